/*-------------------------------------------------------------------------
 *
 * backend.h
 *	  The interface between the engine and a backend, which stores rows and
 *	  searches them: the CPU (src/engine/cpu/) or a GPU (kernels/).
 *
 * All functions may be called from any thread; a backend takes its own locks.
 * The scheduler calls topk of a backend from one thread at a time, and topk of
 * each of its replicas from one.  Other functions may run at the same time as
 * topk.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_BACKEND_H
#define GPUVEC_BACKEND_H

#include <stdlib.h>

#include "core/filter.h"
#include "core/measure.h"
#include "core/method.h"
#include "core/overlaps.h"
#include "core/placement.h"
#include "core/sparse.h"
#include "engine/engine_error.h"
#include "engine/groups.h"
#include "engine/segment.h"
#include "engine/als_backend.h"
#include "engine/embedding_backend.h"
#include "engine/neighbors_backend.h"

#ifdef __cplusplus
extern "C"
{
#endif

/*
 * One result row.  Results are ordered by score descending, then tid
 * ascending.
 */
typedef struct gpuvec_match
{
	double		score;
	uint64_t	tid;
	uint32_t	common;
	uint32_t	padding;
} gpuvec_match;

/*
 * Pages of a relation, two bits for each: the lower one is set if it is one of
 * them
 */
typedef struct gpuvec_page_set
{
	const uint8_t *bits;		/* owned by the caller */
	uint64_t	bytes;			/* pages behind these are not in the set */
} gpuvec_page_set;

static inline bool
gpuvec_page_set_has(const gpuvec_page_set *set, uint32_t block)
{
	return block / 4 < set->bytes && (set->bits[block / 4] >> (block % 4 * 2) & 1) != 0;
}

/*
 * One query of a batch, and its answer: the first k rows in the order of
 * results that meet these conditions:
 *
 *	- The row shares an id with the query (not required for hamming, and by
 *	  measures of sparse vectors).
 *	- If has_min_score: score >= min_score.
 *	- If has_after: the row comes after (after_score, after_tid).
 *	- It passes the filter.  The set of the row is not null, unless a condition
 *	  of the filter asks for that.
 *
 * If `disjoint`, and all rows that pass were counted one by one, those that
 * share no id rank as well, with the score of no common id.  The answer says
 * whether they did.  By measures of sparse vectors, rows of any score rank
 * then: min_score does not hold.
 *
 * Only by measures of sparse vectors the ids have weights.  Numbers are not in
 * the order of ids, in which terms are added.
 *
 * Of a mirror with numbers of ids, ids[] has the hot numbers of the query's
 * ids, and cold[] the cold ones.  Ids that no row has are in neither, but
 * count in the query's length.
 *
 * If it has no ids that rows have, only hamming finds rows.
 *
 * If `unordered`, all rows that meet the conditions, in any order.  There is
 * no has_after then, and k counts for nothing.  Only for backends that take
 * it.  If such a query is `bare`, the answer has only their tids.  Rows of the
 * pages in `counts` are then counted, and are not in the answer.  A backend
 * that takes counts takes bare queries though it may take no other unordered
 * ones.  If it cannot answer one, it has no rows, and `counted` is
 * GPUVEC_NOT_COUNTED.
 *
 * With a `grouping`, the rows that are counted are put into groups, too.  If
 * there are too many of these, the query cannot be answered.
 */
typedef struct gpuvec_topk_query
{
	const uint16_t *ids;		/* ascending, distinct; owned by the caller */
	uint32_t	len;			/* of ids; 0 .. GPUVEC_MAX_IDS */
	uint32_t	others;			/* ids of the query that are not in ids[] */
	uint32_t	ncold;			/* how many of these are in cold[] */
	const uint32_t *cold;		/* ascending, distinct; owned by the caller */
	const float *weights;		/* of sparse vectors: [gpuvec_query_len()] of
								 * all ids, in the order of these; finite and
								 * not 0; owned by the caller */
	const uint16_t *places;		/* [len + ncold] of sparse vectors: which
								 * weight is that of each number, hot ones
								 * first; owned by the caller.  NULL: they are
								 * in order. */
	double		square;			/* the sum of the weights' squares */
	double		own;			/* gpuvec_sparse_own() */
	uint32_t	k;				/* 1 .. GPUVEC_MAX_K */
	bool		has_min_score;
	bool		has_after;
	bool		unordered;
	double		min_score;		/* not NaN */
	double		after_score;
	uint64_t	after_tid;
	gpuvec_filter filter;		/* owned by the caller; its columns are those
								 * of the view's segments */
	bool		disjoint;		/* only with a filter */
	bool		bare;			/* only tids are wanted; only if unordered */
	gpuvec_page_set counts;		/* only if bare; empty: no row is counted */
	const gpuvec_grouping *grouping;	/* only if bare, of columns that the
										 * view's segments have; NULL: rows are
										 * not grouped; owned by the caller */
	uint64_t   *bound;			/* NULL; or atomic, and shared with searches
								 * of other parts of a view: no row with a
								 * greater gpuvec_score_key() is wanted, and k
								 * rows that were found lower it.  A backend
								 * need not use it. */
	const int  *canceled;		/* may be NULL; read atomically.  If nonzero,
								 * the query was canceled and nmatches may be
								 * 0. */

	/* the answer */
	gpuvec_match *matches;		/* owned by the caller; room for min(k, rows
								 * of the view).  If unordered: NULL, or what
								 * the backend has malloc'd and the caller
								 * frees. */
	uint32_t	nmatches;
	uint64_t   *tids;			/* [nmatches] in place of matches, if bare:
								 * NULL, or malloc'd; the caller frees them */
	uint64_t	counted;		/* rows that are counted, not returned; or
								 * GPUVEC_NOT_COUNTED */
	gpuvec_groups *groups;		/* of the counted rows, in any order; NULL:
								 * none; the caller frees them */
	uint32_t	ways;			/* gpuvec_way_bit() of each gpuvec_way */
	bool		ranked_disjoint;
	uint64_t	passed;			/* live rows that pass the filter, those with
								 * null sets included; GPUVEC_NOT_COUNTED
								 * without a filter */
} gpuvec_topk_query;

/* Free the rows of a query in any order: its answer has none then */
static inline void
gpuvec_free_unordered(gpuvec_topk_query *query)
{
	if (!query->unordered)
		return;
	free(query->matches);
	free(query->tids);
	gpuvec_groups_free(query->groups);
	query->matches = NULL;
	query->tids = NULL;
	query->groups = NULL;
}

/* The length of a query: of all its ids; 0 .. GPUVEC_MAX_IDS */
static inline uint32_t
gpuvec_query_len(const gpuvec_topk_query *query)
{
	return query->len + query->others;
}

/*
 * Several queries, and how many rows each pair of them finds: live rows that
 * share an id with both.  Rows of some pages are counted; those of all others
 * that share an id with any query are returned.
 */
typedef struct gpuvec_overlaps
{
	const gpuvec_topk_query *queries;	/* [n] of which only the ids count;
										 * owned by the caller */
	uint32_t	n;				/* 1 .. GPUVEC_MOST_OVERLAPS */
	gpuvec_page_set counts;
	const int  *canceled;		/* read atomically.  If nonzero, the answer
								 * does not matter. */

	/* the answer */
	uint64_t   *pairs;			/* as core/overlaps.h says; owned by the
								 * caller, to which is added */
	uint64_t   *tids;			/* [ntids] of rows that are returned, each
								 * once, in any order: NULL, or malloc'd; the
								 * caller frees them, after a failure too */
	uint64_t	ntids;
} gpuvec_overlaps;

/* Hot numbers of all queries, each one counted for each query that has it */
extern uint32_t gpuvec_overlaps_hot(const gpuvec_overlaps *overlaps);

/*
 * The queries that have each hot number: those of number i are at first[i] ..
 * first[i + 1] - 1 of queries[], which has room for gpuvec_overlaps_hot().
 * first[] has one element more than there are hot numbers.
 */
extern void gpuvec_overlaps_numbers(const gpuvec_overlaps *overlaps, uint32_t *first,
									uint16_t *queries);

typedef struct gpuvec_backend_info
{
	char		name[16];		/* "cpu" or "cuda" */
	char		device[128];	/* name of the GPU, or the CPU's instruction
								 * set in use */
	int			capability;		/* compute capability * 10, or 0 */
	int			threads;		/* CPU threads in use */
	size_t		memory_total;	/* bytes, of the GPU or of the machine */
	size_t		memory_free;
} gpuvec_backend_info;

typedef struct gpuvec_backend_options
{
	int			threads;		/* CPU threads, 0: all cores */
	int			device;			/* number of the GPU */
	int			simd;			/* CPU: 0 best available, 1 portable C, 2
								 * AVX2, 3 AVX-512 (tests force one) */
	size_t		workspace;		/* bytes of scratch memory for topk, 0:
								 * default */
} gpuvec_backend_options;

/* What a table of functions of several devices has for replicas and copies */
typedef struct gpuvec_copier gpuvec_copier;

/* Copies that were taken away from a view, and are to be freed */
typedef struct shards_copies gpuvec_copies;

struct gpuvec_backend
{
	const char *name;
	bool		on_device;		/* true: a segment's ids are moved to the GPU
								 * when it is adopted */
	bool		takes_unordered;	/* queries may be unordered */
	bool		takes_counts;	/* .. if they are bare */
	bool		takes_partitions;	/* views may be of several mirrors */
	gpuvec_vectors *vectors;	/* stores the vectors of embedding tables; not
								 * of a replica */
	gpuvec_trainer *trainer;	/* trains factors; not of a replica */
	gpuvec_finder *finder;		/* finds neighbors; not of a replica */
	const gpuvec_copier *copier;	/* of several devices; else NULL */
	bool		is_replica;		/* a replica: only topk is called */

	void		(*info) (gpuvec_backend *backend, gpuvec_backend_info *info);

	/*
	 * Adopt a new segment, n live maps, or a view: copy to the device what
	 * the device needs.  Each object is adopted once, before any search of a
	 * view that contains it.  adopt_segment may free a segment's ids and
	 * values on the host (segment->ids = segment->values = NULL).  On
	 * failure, nothing is allocated and the objects are unchanged.
	 */
	bool		(*adopt_segment) (gpuvec_backend *backend, gpuvec_segment *segment,
								  gpuvec_error *error);
	bool		(*adopt_livemaps) (gpuvec_backend *backend, gpuvec_livemap *const *maps,
								   uint32_t n, gpuvec_error *error);
	bool		(*adopt_view) (gpuvec_backend *backend, gpuvec_view *view,
							   gpuvec_error *error);

	/*
	 * Called when the last reference is dropped: free the device's memory
	 * (object->device)
	 */
	void		(*release_segment) (gpuvec_backend *backend, gpuvec_segment *segment);
	void		(*release_livemap) (gpuvec_backend *backend, gpuvec_livemap *map);
	void		(*release_view) (gpuvec_backend *backend, gpuvec_view *view);

	/*
	 * Copy a segment's swizzled ids (nchunks * 256 of them) into the caller's
	 * buffer.  Used to rebuild a segment.
	 */
	bool		(*read_ids) (gpuvec_backend *backend, const gpuvec_segment *segment,
							 uint16_t *ids, gpuvec_error *error);

	/* The same of its values, as floats; only of a segment that has some */
	bool		(*read_values) (gpuvec_backend *backend, const gpuvec_segment *segment,
								float *values, gpuvec_error *error);

	/*
	 * Do at once what the backend does with an adopted segment in the
	 * background, so that searches are fast from the first one on.  NULL:
	 * there is no such work.
	 */
	void		(*finish_segment) (gpuvec_backend *backend, gpuvec_segment *segment);

	/*
	 * Return most of the device's memory that is free, but kept for later, to
	 * the system; called after much was released.  NULL: none is kept.
	 */
	void		(*trim) (gpuvec_backend *backend);

	/*
	 * Find the k best live rows of the view for each query; answers are exact
	 */
	bool		(*topk) (gpuvec_backend *backend, const gpuvec_view *view,
						 const gpuvec_scoring *scoring, gpuvec_method method,
						 gpuvec_topk_query *queries, uint32_t nqueries, gpuvec_error *error);

	/*
	 * Count the rows of pairs of queries in a view of one mirror.  Called as
	 * topk is, from one thread at a time.
	 */
	bool		(*overlaps) (gpuvec_backend *backend, const gpuvec_view *view,
							 gpuvec_overlaps *overlaps, gpuvec_error *error);

	void		(*close) (gpuvec_backend *backend);
};

/*
 * Functions of a backend that is made of several devices.
 *
 * A device that has all rows of a view can search it alone.  Such a device is
 * a replica: several of them search at the same time, for different sessions.
 * For that, rows of an adopted view can be copied to all devices.  A view
 * never changes, and neither do its copies: a search of any of them finds
 * what a search of the view finds.
 */
struct gpuvec_copier
{
	/*
	 * replicas: the devices that can search this view alone, as bits; 0:
	 * none, and for a batch of nqueries all are wanted.  replica: a backend
	 * that searches on one of them.
	 */
	uint64_t	(*replicas) (gpuvec_backend *backend, const gpuvec_view *view, uint32_t nqueries);
	gpuvec_backend *(*replica) (gpuvec_backend *backend, int number);

	/*
	 * True if a lone search is to have all devices, though one has all rows
	 */
	bool		(*lone) (gpuvec_backend *backend, const gpuvec_view *view);

	/*
	 * wanted: should this view have copies?  *bytes is what the missing ones
	 * would take.  copy: make them.  Devices without memory get none, so
	 * there may be none at all afterwards.
	 */
	bool		(*wanted) (gpuvec_backend *backend, const gpuvec_view *view,
						   gpuvec_placement placement, size_t *bytes);
	void		(*copy) (gpuvec_backend *backend, gpuvec_view *view);

	/* True if the view has copies of all its rows on two devices or more */
	bool		(*has_copies) (gpuvec_backend *backend, const gpuvec_view *view);

	/*
	 * What copies of a view's rows take; added to each[] of the device that
	 * has them, unless it is NULL
	 */
	size_t		(*bytes) (gpuvec_backend *backend, const gpuvec_view *view, size_t *each);

	/*
	 * take: the view has no copies from now on.  Searches that use them go
	 * on.  Takes no time, unlike free_copies, which frees a list of them.
	 * NULL is an empty list; `more` is a list that it begins with.
	 */
	gpuvec_copies *(*take) (gpuvec_backend *backend, gpuvec_view *view, gpuvec_copies *more);
	void		(*free_copies) (gpuvec_copies *copies);
};

/* Open a backend.  On failure, returns NULL and fills *error. */
extern gpuvec_backend *gpuvec_cpu_open(const gpuvec_backend_options *options,
									   gpuvec_error *error);

/*
 * Open GPU number options->device (kernels/).  Returns NULL if CUDA support
 * is not compiled in, or if there is no driver or no GPU; *error says which.
 */
extern gpuvec_backend *gpuvec_cuda_open(const gpuvec_backend_options *options,
										gpuvec_error *error);

/*
 * Number of GPUs, some of which gpuvec_cuda_open may refuse.  If it can open
 * none, 0, and *error says why.
 */
extern int	gpuvec_cuda_count(gpuvec_error *error);

#ifdef __cplusplus
}
#endif

#endif							/* GPUVEC_BACKEND_H */
