/*-------------------------------------------------------------------------
 *
 * parts.h
 *	  Several devices that hold rows and search them as one backend does.
 *
 * parts_backend.c	opening, and what concerns all devices
 * parts_place.c	which device gets a segment
 * parts_view.c		the part of a view that each device has
 * parts_copies.c	copies of small tables on all devices
 * parts_lanes.c	searches of one device that has all rows
 * parts_elsewhere.c	rows of a device that cannot search them
 * parts_search.c	asking all devices, and merging their answers
 *
 * The devices are backends of their own, the children.  Each segment lies on
 * one of them, whose number it has (gpuvec_segment.child), and so do its live
 * maps.  Each child has a view of its own segments, its part of the view.  A
 * search asks all children that have a part at the same time, and merges what
 * they find.  So answers are those of one device, to the bit.
 *
 * Besides, a view may have copies: views of all its rows, on several devices.
 * They consist of copies of segments and live maps, which these keep until
 * they are released themselves, so that the next view has only few to make.
 * parts_view.copies, gpuvec_segment.copies and gpuvec_livemap.copies are
 * guarded by parts_backend.mutex; the copies never change.
 *
 * With one device there is no such backend.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PARTS_H
#define GPUVEC_PARTS_H

#include <pthread.h>

#include "engine/backend.h"
#include "engine/options.h"
#include "engine/thread_pool.h"

/* A batch of at least twice so many queries is divided among copies */
#define SPLIT_QUERIES	32

typedef struct parts_backend parts_backend;

/* What searches on one device, all of whose rows it has */
typedef struct parts_lane
{
	gpuvec_backend base;
	parts_backend *parts;
	int			number;			/* of the child */
} parts_lane;

/* One of the devices */
typedef struct parts_child
{
	gpuvec_backend *backend;
	parts_lane	lane;
	pthread_mutex_t search;		/* held while it searches */
	size_t		budget;			/* bytes that it may hold */
	bool		is_host;		/* takes what the others have no room for */
	uint64_t	placed;			/* weight of the segments that it holds */
	gpuvec_match *matches;		/* [room] memory for what searches find, kept
								 * from search to search; or NULL */
	uint64_t	room;
	uint64_t	searches;		/* atomic: calls of topk */
	uint64_t	queries;		/* atomic: queries in them */
	uint64_t	errors;			/* atomic: calls that failed */
	uint64_t	refused;		/* atomic: segments that it did not take */
	uint64_t	busy_ns;		/* atomic: time of the searches */
} parts_child;

struct parts_backend
{
	gpuvec_backend base;
	gpuvec_thread_pool *pool;	/* a thread for each child; searches */
	gpuvec_thread_pool *merge_pool; /* merges answers */
	gpuvec_thread_pool *copy_pool;	/* the same; makes copies */
	pthread_mutex_t mutex;		/* guards children[].placed, and copies */
	pthread_mutex_t together;	/* held by a search of parts; taken before
								 * children[].search */
	int			ndevices;		/* n without the host's memory */
	size_t		copy_bytes;		/* a table gets copies if one takes no more */
	bool		owns_vectors;	/* base.vectors are of several devices */
	int			n;
	parts_child children[GPUVEC_MAX_DEVICES];
};

/* Copies of a segment, a live map or a view */
struct parts_copies
{
	struct parts_copies *next;	/* in a list */
	int			kind;			/* parts_copies.c */
	int			n;
	void	   *of[];			/* [n] by the number of the child; NULL: none */
};

/* What view->device is: the parts of a view */
typedef struct parts_view
{
	struct parts_copies *copies;	/* of all rows; or NULL */
	int			n;				/* children that have a part */
	struct
	{
		int			child;
		gpuvec_view *view;
	}			part[GPUVEC_MAX_DEVICES];
} parts_view;

/*
 * Make one backend of n open ones, with these budgets; closing it closes
 * them.  They are of the same kind, but if `with_host` the last one is the
 * CPU, beside devices.  On failure NULL, and they stay open.
 */
extern gpuvec_backend *gpuvec_parts_open(gpuvec_backend *const *children, const size_t *budgets,
										 int n, bool with_host, gpuvec_error *error);

/* Note which device an error is of; returns false */
static inline bool
parts_failed(int child, gpuvec_error *error)
{
	if (error->fatal)
		error->device = child + 1;
	return false;
}

/* The backend, if it is one of several devices; else NULL */
extern parts_backend *gpuvec_parts_of(gpuvec_backend *backend);

/* parts_place.c */
extern bool parts_adopt_copy(parts_backend *parts, int child, gpuvec_segment *segment,
							 gpuvec_error *error);
extern bool parts_adopt_segment(gpuvec_backend *backend, gpuvec_segment *segment,
								gpuvec_error *error);
extern void parts_release_segment(gpuvec_backend *backend, gpuvec_segment *segment);

/* parts_view.c */
extern bool parts_adopt_livemaps(gpuvec_backend *backend, gpuvec_livemap *const *maps,
								 uint32_t n, gpuvec_error *error);
extern void parts_release_livemap(gpuvec_backend *backend, gpuvec_livemap *map);
extern bool parts_adopt_view(gpuvec_backend *backend, gpuvec_view *view, gpuvec_error *error);
extern void parts_release_view(gpuvec_backend *backend, gpuvec_view *view);

/*
 * The parts of a view that no backend has adopted, in *divided.  They hold no
 * references; free each part's view.  False: out of memory, nothing to free.
 */
extern bool parts_divide(const parts_backend *parts, const gpuvec_view *view,
						 parts_view *divided, gpuvec_error *error);

/* parts_copies.c */
extern uint64_t parts_lanes(gpuvec_backend *backend, const gpuvec_view *view, uint32_t nqueries);
extern bool parts_wanted(gpuvec_backend *backend, const gpuvec_view *view,
						 gpuvec_placement placement, size_t *bytes);
extern void parts_copy(gpuvec_backend *backend, gpuvec_view *view);
extern bool parts_has_copies(gpuvec_backend *backend, const gpuvec_view *view);
extern size_t parts_copies_bytes(gpuvec_backend *backend, const gpuvec_view *view, size_t *each);
extern struct parts_copies *parts_take_copies(gpuvec_backend *backend, gpuvec_view *view,
											  struct parts_copies *more);
extern void parts_free_copies(struct parts_copies *copies);

/*
 * A view of all rows on this device, with a reference; NULL if it has not all
 */
extern gpuvec_view *parts_copy_on(parts_backend *parts, const gpuvec_view *view, int child);

/*
 * Copy an entry to a device, with references of its own.  False: that has no
 * memory for it.
 */
extern bool parts_copy_entry(parts_backend *parts, const gpuvec_view_entry *from, int child,
							 gpuvec_view_entry *to);

/*
 * parts_elsewhere.c: the rows of a view on other devices than those that lack
 * memory, which are bits; more of them may turn out to.  views[child] has a
 * reference, or is NULL.  False: there is no memory for them.
 */
extern bool parts_elsewhere(parts_backend *parts, const gpuvec_view *view, uint64_t *lacking,
							gpuvec_view **views);

/*
 * parts_lanes.c.  search_copies: search a large batch by the copies of a view,
 * each a slice of it.  Sets *ok, or returns false: there are not several, or
 * the batch is small.
 */
extern void parts_lanes_init(parts_backend *parts);
extern bool parts_search_copies(parts_backend *parts, const gpuvec_view *view,
								const gpuvec_scoring *scoring, gpuvec_method method,
								gpuvec_topk_query *queries, uint32_t nqueries, bool *ok,
								gpuvec_error *error);
extern const gpuvec_copier gpuvec_parts_copier;

/*
 * parts_search.c.  search_child: search on one device, and note what it took.
 * empty_answers: begin with no rows, also after a search that has failed.
 */
extern void parts_empty_answers(gpuvec_topk_query *queries, uint32_t nqueries);
extern bool parts_search_child(parts_backend *parts, int number, const gpuvec_view *view,
							   const gpuvec_scoring *scoring, gpuvec_method method,
							   gpuvec_topk_query *queries, uint32_t nqueries,
							   gpuvec_error *error);
extern bool parts_topk(gpuvec_backend *backend, const gpuvec_view *view,
					   const gpuvec_scoring *scoring, gpuvec_method method,
					   gpuvec_topk_query *queries, uint32_t nqueries, gpuvec_error *error);

#endif							/* GPUVEC_PARTS_H */
