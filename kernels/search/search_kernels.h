/*-------------------------------------------------------------------------
 *
 * search_kernels.h
 *	  The kernels of a search: their parameters, and the functions that launch
 *	  them.
 *
 * scan.cu		the scan that counts common ids and emits candidates
 * lists_classify.cu	what a query's ids have in a segment: lists or bitmaps
 * lists.cu		counting by them; lists_plain.cu: where no id is common;
 *			lists_lone.cu: a query that is alone
 * select.cu	the selection of the best candidates, and sorting
 *
 * What they share: list_planes.cuh, list_items.cuh and bit_counters.cuh for
 * counting, emit.cuh for scoring what was counted.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SEARCH_KERNELS_H
#define GPUVEC_SEARCH_KERNELS_H

#include "kernels/search/device_segment.h"
#include "kernels/search/row_key.h"

namespace gpuvec
{

/* What a row must fulfil to rank for a query */
struct __align__(16) query_limits
{
	struct row_key bound; /* key <= bound */
	struct row_key after; /* and key > after */
	uint32_t len;         /* ids of the query */
	float score;          /* kernels keep bound_score(bound.hi) here */
	uint32_t padding[2];
};

/* bound.hi as a score, rounded down */
static __forceinline__ __device__ float
bound_score(uint64_t bound_hi)
{
	return bound_hi == ~UINT64_C(0) ? -INFINITY : __double2float_rd(gpuvec_key_score(bound_hi));
}

/* A query of a chunk, as the kernels see it */
struct __align__(16) query_state
{
	struct query_limits limits;
	uint32_t ids;     /* first of its ids */
	uint32_t entries; /* first of its entries in each segment (lists.cu), in eights */
	uint32_t k;
	uint32_t count;    /* candidates of this round, those that found no
								 * room included */
	uint32_t ntop;     /* rows in its list of the best */
	uint32_t overflow; /* candidates were lost: its list is void, its
								 * bound is not */
	uint32_t padding[2];
};

struct scan_params
{
	const struct device_segment *segments;
	const uint2 *groups;
	struct query_state *queries;
	const uint16_t *ids;        /* of the queries */
	struct row_key *candidates; /* [nqueries * capacity] */
	uint32_t *next_item;        /* zero before the launch */
	const uint32_t *stop;       /* nonzero: the answer is not wanted any more */
	uint32_t ngroups;
	uint32_t nqueries;
	uint32_t capacity;
	uint32_t class_lo; /* the tiles to scan: classes class_lo .. */
	uint32_t class_hi; /* .. class_hi - 1 */
	uint32_t maxid;
	uint32_t nbatches;
	uint32_t nitems;       /* nbatches * number of ranges */
	uint32_t range_groups; /* groups of an item */
	uint32_t grab;         /* tiles that a warp takes at a time: a power of 2 */
	gpuvec_measure measure;
};

/*
 * Queries that are alone, or nearly so: a number of them, and of all their
 * ids
 */
#define LONE_QUERIES 4
#define LONE_IDS 768

/* Counting by lists; see lists.cu */
struct list_params
{
	const struct device_segment *segments;
	const uint2 *blocks; /* those to count: segment and block */
	struct query_state *queries;
	const uint16_t *ids;        /* of the queries */
	uint16_t *entries;          /* [nsegments * nentries] */
	uint4 *nentries_of;         /* [nsegments * nqueries]: slots that are staged, other slots,
								 * ids with lists; and where the entries are, in eights */
	struct row_key *candidates; /* [nqueries * capacity] */
	uint32_t *next_item;        /* zero before the launch */
	const uint32_t *stop;       /* nonzero: the answer is not wanted any more */
	uint32_t nsegments;
	uint32_t nentries; /* of a segment, in eights */
	uint32_t nblocks;
	uint32_t nqueries;
	uint32_t capacity;
	const uint2 *ranges;  /* NULL, or for each block the queries to count: the first
								 * one, and how many */
	const uint2 *counted; /* NULL, or for each block those that are counted already */
	uint32_t own_blocks;  /* not 0: each query counts this number of blocks of its own, .. */
	uint32_t own_first[LONE_QUERIES]; /* .. from this one on, and nblocks are all of them */
	uint32_t sample;                  /* not 0: of each block, only about this many of the rows
								 * with the highest counts */
	uint32_t item_queries;            /* queries of a work item */
	uint32_t nslices;                 /* work items of a block */
	gpuvec_measure measure;
};

/*
 * Queries that reach the device as a parameter of the kernel that classifies
 * their ids, which stores them where the kernels after it look: no copy has
 * to be waited for.
 */
struct lone_params
{
	struct list_params lists;
	uint32_t *counters; /* to be set to 0 */
	uint16_t *stored_ids;
	uint32_t ncounters;
	uint32_t nids;
	struct query_state queries[LONE_QUERIES];
	uint16_t ids[LONE_IDS];
};

enum select_mode
{
	SELECT_ROUND,  /* list = the k best of list and candidates */
	SELECT_FINAL,  /* the same, sorted into results (k <=
								 * GPUVEC_FAST_K) */
	SELECT_TIGHTEN /* drop the candidates, but tighten the bound */
};

struct select_params
{
	struct query_state *queries;
	const struct row_key *candidates;
	const struct row_key *top_in; /* [nqueries * kmax] */
	struct row_key *top_out;
	struct row_key *results;
	struct query_state *states; /* where the final states go as well, or NULL */
	uint32_t nqueries;
	uint32_t capacity;
	uint32_t kmax;
	enum select_mode mode;
};

struct sort_params
{
	const struct query_state *queries;
	const struct row_key *in; /* [nqueries * kmax] */
	struct row_key *out;
	uint32_t nqueries;
	uint32_t kmax;
	uint32_t width; /* length of the runs to merge; 0: make runs of
								 * SORT_RUN */
};

#define SORT_RUN 1024

/* scan.cu: entry_bits is 8, 16 or 32, planes 8 or 17 */
extern cudaError_t
scan_prepare(size_t smem_limit);
extern size_t
scan_shared_bytes(uint32_t entry_bits, uint32_t planes, uint32_t maxid);
extern uint32_t
scan_threads(uint32_t planes);
extern cudaError_t
scan_blocks(uint32_t entry_bits, uint32_t planes, size_t shared_bytes, int *blocks);
extern cudaError_t
scan_launch(const struct scan_params *params, uint32_t entry_bits, uint32_t planes,
			size_t shared_bytes, uint32_t blocks, cudaStream_t stream);

/* lists.cu: planes is 7, 8 or 17 */
extern cudaError_t
lists_prepare(size_t smem_limit);
extern cudaError_t
lists_classify(const struct list_params *params, cudaStream_t stream);
extern cudaError_t
lists_classify_lone(const struct lone_params *params, cudaStream_t stream);
extern uint32_t
lists_slots(size_t smem_limit);
extern cudaError_t
lists_count_tiled(const struct list_params *params, uint32_t planes, size_t smem_limit,
				  uint32_t nslots, uint32_t sms, cudaStream_t stream);
extern cudaError_t
lists_count_lone(const struct list_params *params, uint32_t planes, cudaStream_t stream);
extern cudaError_t
lists_count_direct(const struct list_params *params, uint32_t planes, cudaStream_t stream);
extern cudaError_t
lists_count_whole(const struct list_params *params, uint32_t planes, uint32_t sms,
				  cudaStream_t stream);
extern cudaError_t
lists_plain_prepare(void);
extern cudaError_t
lists_count_plain(const struct list_params *params, uint32_t sms, cudaStream_t stream);

/* select.cu */
extern cudaError_t
select_prepare(void);
extern cudaError_t
select_launch(const struct select_params *params, cudaStream_t stream);
extern cudaError_t
sort_launch(const struct sort_params *params, cudaStream_t stream);

} // namespace gpuvec

#endif /* GPUVEC_SEARCH_KERNELS_H */
