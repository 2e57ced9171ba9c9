/*-------------------------------------------------------------------------
 *
 * parts.h
 *	  Several devices that hold rows and search them as one backend does.
 *
 * parts_backend.c	opening, and what concerns all devices
 * parts_place.c	which device gets a segment
 * parts_view.c		the part of a view that each device has
 * parts_search.c	asking all devices, and merging their answers
 *
 * The devices are backends of their own, the children.  Each segment lies on
 * one of them, whose number it has (gpuvec_segment.child), and so do its live
 * maps.  Each child has a view of its own segments, its part of the view.  A
 * search asks all children that have a part at the same time, and merges what
 * they find.  So answers are those of one device, to the bit.
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

/* One of the devices */
typedef struct parts_child
{
	gpuvec_backend *backend;
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

typedef struct parts_backend
{
	gpuvec_backend base;
	gpuvec_thread_pool *pool;	/* a thread for each child */
	pthread_mutex_t mutex;		/* guards children[].placed */
	bool		owns_vectors;	/* base.vectors are of several devices */
	gpuvec_vectors *host[GPUVEC_MAX_DEVICES];	/* of children that have no
												 * memory of their own */
	int			n;
	parts_child children[GPUVEC_MAX_DEVICES];
} parts_backend;

/* What view->device is: the parts of a view */
typedef struct parts_view
{
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

/* The backend, if it is one of several devices; else NULL */
extern parts_backend *gpuvec_parts_of(gpuvec_backend *backend);

/* parts_place.c */
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
 * The parts of a view that no backend has adopted, in *parts.  They hold no
 * references; free each part's view.  False: out of memory, nothing to free.
 */
extern bool parts_divide(const parts_backend *parts, const gpuvec_view *view,
						 parts_view *divided, gpuvec_error *error);

/* parts_search.c */
extern bool parts_topk(gpuvec_backend *backend, const gpuvec_view *view, gpuvec_measure measure,
					   gpuvec_method method, gpuvec_topk_query *queries, uint32_t nqueries,
					   gpuvec_error *error);

#endif							/* GPUVEC_PARTS_H */
