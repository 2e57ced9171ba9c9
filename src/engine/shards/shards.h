/*-------------------------------------------------------------------------
 *
 * shards.h
 *	  Several devices that hold rows and search them as one backend does.
 *
 * shards_backend.c	opening, and what concerns all devices
 * shards_place.c	which device gets a segment
 * shards_view.c		the shard of a view that each device has
 * shards_copies.c	copies of small tables on all devices
 * shards_replicas.c	searches: by a device that has all rows, by copies, by
 *					shards
 * shards_elsewhere.c	rows of a device that cannot search them
 * shards_search.c	asking all devices that have a shard, and merging their
 *					answers
 * shards_overlaps.c	the same for rows of pairs of queries
 *
 * The devices are backends of their own, the children.  Each segment lies on
 * one of them, whose number it has (gpuvec_segment.child), and so do its live
 * maps.  Each child has a view of its own segments, its shard of the view.  A
 * search asks all children that have a shard at the same time, and merges what
 * they find.  So answers are those of one device, to the bit.
 *
 * Besides, a view may have copies: views of all its rows, on several devices.
 * They consist of copies of segments and live maps, which these keep until
 * they are released themselves, so that the next view has only few to make.
 * shards_view.copies, gpuvec_segment.copies and gpuvec_livemap.copies are
 * guarded by shards_backend.mutex; the copies never change.
 *
 * With one device there is no such backend.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SHARDS_H
#define GPUVEC_SHARDS_H

#include <pthread.h>

#include "engine/backend.h"
#include "engine/options.h"
#include "engine/thread_pool.h"

/* Half of the fewest queries of a batch that is divided among copies */
#define SPLIT_QUERIES	32

typedef struct shards_backend shards_backend;

/* What searches on one device, all of whose rows it has */
typedef struct shards_replica
{
	gpuvec_backend base;
	shards_backend *shards;
	int			number;			/* of the child */
} shards_replica;

/* One of the devices */
typedef struct shards_child
{
	gpuvec_backend *backend;
	shards_replica replica;
	pthread_mutex_t search;		/* held while it searches */
	size_t		budget;			/* bytes that it may hold */
	bool		is_host;		/* takes what the others have no room for */
	uint64_t	placed;			/* weight of the segments that it holds */
	gpuvec_match *matches;		/* [capacity] memory for what searches find,
								 * kept from search to search; or NULL */
	uint64_t	capacity;
	uint64_t	searches;		/* atomic: calls of topk */
	uint64_t	queries;		/* atomic: queries in them */
	uint64_t	errors;			/* atomic: calls that failed */
	uint64_t	refused;		/* atomic: segments that it did not take */
	uint64_t	busy_ns;		/* atomic: time of the searches */
} shards_child;

struct shards_backend
{
	gpuvec_backend base;
	gpuvec_thread_pool *pool;	/* a thread for each child; searches */
	gpuvec_thread_pool *merge_pool; /* merges answers */
	gpuvec_thread_pool *copy_pool;	/* the same; makes copies */
	pthread_mutex_t mutex;		/* guards children[].placed, and copies */
	pthread_mutex_t together;	/* held by a search of shards; taken before
								 * children[].search */
	int			ndevices;		/* n without the host's memory */
	size_t		copy_bytes;		/* a table gets copies if one takes no more */
	bool		owns_vectors;	/* base.vectors are of several devices */
	int			n;
	shards_child children[GPUVEC_MAX_DEVICES];
};

/* Copies of a segment, a live map or a view */
struct shards_copies
{
	struct shards_copies *next; /* in a list */
	int			kind;			/* shards_copies.c */
	int			n;
	void	   *of[];			/* [n] by number of the child; NULL: none */
};

/* What view->device is: the shards of a view */
typedef struct shards_view
{
	struct shards_copies *copies;	/* of all rows; or NULL */
	int			n;				/* children that have a shard */
	struct
	{
		int			child;
		gpuvec_view *view;
	}			shard[GPUVEC_MAX_DEVICES];
} shards_view;

/*
 * Make one backend of n open ones, with these budgets; closing it closes
 * them.  They are of the same kind, but if `with_host` the last one is the
 * CPU, beside devices.  On failure NULL, and they stay open.
 */
extern gpuvec_backend *gpuvec_shards_open(gpuvec_backend *const *children, const size_t *budgets,
										  int n, bool with_host, gpuvec_error *error);

/* Note which device an error is of; returns false */
static inline bool
shards_failed(int child, gpuvec_error *error)
{
	if (error->fatal)
		error->device = child + 1;
	return false;
}

/* The backend, if it is one of several devices; else NULL */
extern shards_backend *gpuvec_shards_of(gpuvec_backend *backend);

/* shards_place.c */
extern bool shards_adopt_copy(shards_backend *shards, int child, gpuvec_segment *segment,
							  gpuvec_error *error);
extern bool shards_adopt_segment(gpuvec_backend *backend, gpuvec_segment *segment,
								 gpuvec_error *error);

/* A segment is not, or no longer, on a device: see shards_adopt_segment */
extern void shards_take_away(shards_backend *shards, int child, const gpuvec_segment *segment);

/* shards_view.c */
extern bool shards_adopt_livemaps(gpuvec_backend *backend, gpuvec_livemap *const *maps,
								  uint32_t n, gpuvec_error *error);
extern void shards_release_livemap(gpuvec_backend *backend, gpuvec_livemap *map);
extern bool shards_adopt_view(gpuvec_backend *backend, gpuvec_view *view, gpuvec_error *error);
extern void shards_release_view(gpuvec_backend *backend, gpuvec_view *view);

/* shards_copies.c */
extern uint64_t shards_replicas(gpuvec_backend *backend, const gpuvec_view *view, uint32_t nqueries);
extern bool shards_wanted(gpuvec_backend *backend, const gpuvec_view *view,
						  gpuvec_placement placement, size_t *bytes);
extern void shards_copy(gpuvec_backend *backend, gpuvec_view *view);
extern bool shards_has_copies(gpuvec_backend *backend, const gpuvec_view *view);
extern size_t shards_copies_bytes(gpuvec_backend *backend, const gpuvec_view *view, size_t *each);
extern struct shards_copies *shards_take_copies(gpuvec_backend *backend, gpuvec_view *view,
												struct shards_copies *more);
extern void shards_free_copies(struct shards_copies *copies);

/*
 * A view of all rows on this device, with a reference; NULL if it has not all
 */
extern gpuvec_view *shards_copy_on(shards_backend *shards, const gpuvec_view *view, int child);

/*
 * Copy an entry to a device, with references of its own.  False: that has no
 * memory for it.
 */
extern bool shards_copy_entry(shards_backend *shards, const gpuvec_view_entry *from, int child,
							  gpuvec_view_entry *to);

/*
 * shards_elsewhere.c: the rows of a view on other devices than those that lack
 * memory, which are bits; more of them may turn out to.  views[child] has a
 * reference, or is NULL.  False: there is no memory for them.
 */
extern bool shards_elsewhere(shards_backend *shards, const gpuvec_view *view, uint64_t *lacking,
							 gpuvec_view **views);

/*
 * shards_search.c.  search_child: search on one device, and note what it took.
 * search_divided: search a view by its shards.  empty_answers: begin with no
 * rows, also after a search that has failed.
 */
extern void shards_empty_answers(gpuvec_topk_query *queries, uint32_t nqueries);
extern bool shards_search_child(shards_backend *shards, int number, const gpuvec_view *view,
								const gpuvec_scoring *scoring, gpuvec_method method,
								gpuvec_topk_query *queries, uint32_t nqueries,
								gpuvec_error *error);
extern bool shards_search_divided(shards_backend *shards, const shards_view *divided,
								  const gpuvec_scoring *scoring, gpuvec_method method,
								  gpuvec_topk_query *queries, uint32_t nqueries,
								  gpuvec_error *error);

/* shards_overlaps.c */
extern bool shards_overlaps(gpuvec_backend *backend, const gpuvec_view *view,
							gpuvec_overlaps *overlaps, gpuvec_error *error);

/* shards_replicas.c */
extern void shards_replicas_init(shards_backend *shards);
extern const gpuvec_copier gpuvec_shards_copier;
extern bool shards_topk(gpuvec_backend *backend, const gpuvec_view *view,
						const gpuvec_scoring *scoring, gpuvec_method method,
						gpuvec_topk_query *queries, uint32_t nqueries, gpuvec_error *error);

#endif							/* GPUVEC_SHARDS_H */
