/*-------------------------------------------------------------------------
 *
 * search_kernels.h
 *	  The kernels of a search: their parameters, and the functions that launch
 *	  them.
 *
 * scan.cu            counts common ids by a scan, and emits candidates
 * sparse_scan.cu     the same by measures of sparse vectors: adds up terms
 * sparse_batch.cu    the same of many queries at once
 * dense.cu           counts by products of bit vectors
 * dense_panels.cu    lists the rows to count so
 * dense_score.cu     scores what this finds
 * dense_bits.cu      makes these vectors
 * lists_classify.cu  sorts a query's ids by what a segment has for them
 * lists.cu           counts by inverted lists
 * lists_plain.cu     the same where no id is common
 * lists_lone.cu      the same for very few queries
 * cold_rows.cu       rows that share cold numbers with a query
 * filter_masks.cu    the rows that pass filters
 * gather.cu          counts such rows one by one, where they are few
 * mask_rows.cu       counts all rows that pass a filter
 * group_rows.cu      puts counted rows into groups (group_kernels.h)
 * select.cu          selects the best candidates, and sorts
 *
 * They share list_planes.cuh, list_items.cuh and bit_counters.cuh for
 * counting, and emit.cuh for scoring; sparse_score.cuh by measures of sparse
 * vectors.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SEARCH_KERNELS_H
#define GPUVEC_SEARCH_KERNELS_H

#include "core/filter.h"
#include "core/sparse_bound.h"
#include "kernels/search/device_segment.h"
#include "kernels/search/row_key.h"

namespace gpuvec
{

/* The limits within which a row's key ranks for a query */
struct __align__(16) query_limits
{
	struct row_key bound; /* key <= bound */
	struct row_key after; /* and key > after */
	uint32_t len;         /* ids of the query, whether rows have them or not */
	float score;          /* the scan keeps bound_score(bound.hi) here */
	/* rows that take part, a word for each tile of the view; NULL: all live */
	const uint32_t *mask;
};

/* The rows of a segment's tile that take part */
static __forceinline__ __device__ uint32_t
mask_word(const struct query_limits *limits, const struct device_segment *segment, uint32_t tile)
{
	return limits->mask ? limits->mask[segment->first_tile + tile] : ~0u;
}

/* The part of a row's key that comes from its tid and its mirror */
static __forceinline__ __device__ uint64_t
key_of_row(const struct device_segment *segment, uint32_t row)
{
	return segment->tid[row] | segment->partition;
}

/* bound.hi as a score, rounded down; -infinity if there is no bound */
static __forceinline__ __device__ float
bound_score(uint64_t bound_hi)
{
	return bound_hi == ~UINT64_C(0) ? -INFINITY : __double2float_rd(gpuvec_key_score(bound_hi));
}

/* A query of a chunk, as the kernels see it */
struct __align__(16) query_state
{
	struct query_limits limits;
	uint32_t ids;  /* position of its first id, or hot number */
	uint32_t nids; /* how many it has */
	/*
	 * position of its first entry in each segment (lists.cu), in units of
	 * eight
	 */
	uint32_t entries;
	uint32_t k;
	/*
	 * candidates of this round, including those for which there was no room
	 */
	uint32_t count;
	uint32_t ntop; /* rows in its list of the best rows */
	/* candidates were lost: its list is invalid, but its bound is valid */
	uint32_t overflow;
	uint32_t cold;   /* position of its first cold number */
	uint32_t ncold;  /* how many it has that are searched; 0: it has no table */
	uint32_t table;  /* position of its table's first slot */
	uint32_t nslots; /* slots of its table: a multiple of COLD_UNIT */
	/*
	 * the table was too small: the round is of no use for this query, not
	 * even for its bound
	 */
	uint32_t cold_full;
	/* if the rows that pass are gathered: position of the first, number */
	uint32_t rows;
	uint32_t nrows;
	uint32_t disjoint; /* such rows rank even if they share no id */
};

/* A number of a query, and its id's weight */
struct __align__(8) sparse_term
{
	uint32_t number;
	float weight;
};

/* What a query has besides its numbers, by a measure of sparse vectors */
struct __align__(16) sparse_query
{
	gpuvec_sparse_bound bound; /* what sums of floats must reach */
	double own;                /* gpuvec_sparse_own() */
	uint32_t terms;            /* position of its first term */
	uint32_t nterms;           /* how many: of the numbers that are searched */
};

/* The same of all queries of a chunk */
struct sparse_tables
{
	const struct sparse_query *queries; /* [nqueries] */
	const float *weights;               /* of hot numbers, in their order: as ids[] */
	const struct sparse_term *terms;    /* of each query in the order of ids */
	/*
	 * of queries that are scanned together: where each number's list begins,
	 * and how many entries it has; NULL: they are not
	 */
	const uint2 *lists; /* [maxid + 1] */
	const struct sparse_entry *entries;
};

/* A query that has the number of a list, and its id's weight */
struct __align__(8) sparse_entry
{
	uint32_t query;
	float weight;
};

/* A filter, as kernels see it */
struct filter_spec
{
	uint32_t condition; /* position of its first condition */
	uint32_t nconditions;
	uint32_t value; /* of its first value */
	uint32_t wants_null_sets;
	uint32_t match; /* number of its expression of ids among them; NO_MATCH */
};

#define NO_MATCH UINT32_MAX

struct mask_params
{
	const struct device_segment *segments;
	const struct filter_spec *filters;  /* [nfilters] */
	const gpuvec_condition *conditions; /* of all filters */
	const uint64_t *values;
	uint32_t *masks; /* [nfilters * ntiles] */
	uint2 *counts;   /* [nfilters] rows that pass, and those that take part; 0 before */
	uint32_t nfilters;
	uint32_t nsegments;
	uint32_t nslices; /* mask_slices() */
	uint32_t ntiles;  /* of the view */
	bool matches;     /* some filter has an expression of ids */
};

/* The mask of a filter whose rows are listed, and the position of the first */
struct row_list
{
	const uint32_t *mask; /* [ntiles] */
	uint64_t first;
};

/*
 * The tables of all queries of a chunk: for each query the rows that share
 * cold numbers with it (cold_rows.cu)
 */
struct cold_tables
{
	/* row_key.lo of a row without its number of common ids, or COLD_FREE */
	unsigned long long *keys;
	/*
	 * number of its segment; its row << 16 | (how many numbers it shares - 1)
	 */
	uint2 *places;
	/* a row is in one of so many slots, from its own one on */
	uint32_t probes;
};

#define COLD_FREE (~0ull)
#define COLD_UNIT 32

/*
 * What becomes of the rows that rank for a query that counts rows (emit.cuh):
 * those of some pages are counted, and the tids of the others are listed
 */
struct row_counts
{
	const uint8_t *pages; /* as gpuvec_page_set.bits */
	uint64_t page_bytes;
	uint32_t *counted; /* COUNT_PLACES numbers, whose sum it is */
	uint64_t *tids;    /* [capacity]; query_state.count of them */
	uint32_t capacity;
	uint32_t partition_bits;
	/* rows that share cold numbers; keys is NULL if the query has none */
	struct cold_tables cold;
	/*
	 * bits of the rows that are counted, a word for each tile of the view;
	 * NULL: they are not put into groups
	 */
	uint32_t *marks;
};

/*
 * Numbers that thread blocks add to, so that few wait for one another, and
 * the words from one to the next: each has a sector of memory of its own
 */
#define COUNT_PLACES 256
#define COUNT_STRIDE 8

struct gather_params
{
	const struct device_segment *segments;
	uint2 *rows; /* of all lists: segment, and row in it */

	/* making the lists */
	const struct row_list *lists; /* [nlists] */
	uint32_t *used;               /* [nlists] 0 before */
	uint32_t nlists;
	uint32_t nsegments;

	/* counting rows */
	uint32_t nqueries;
	uint32_t nslices; /* GATHER_SLICE rows each, of a query's longest list */
	uint32_t capacity;
	struct query_state *queries;
	const uint16_t *ids;        /* of the queries */
	struct row_key *candidates; /* [nqueries * capacity] */
	gpuvec_scoring scoring;
	struct sparse_tables sparse;
	struct row_counts counts; /* of the only query, if it counts */
};

#define GATHER_SLICE 256 /* rows of a thread block */

struct cold_params
{
	const struct device_segment *segments;
	const uint32_t *cold_segments; /* [ncold_segments]: those with cold numbers */
	struct query_state *queries;
	const uint16_t *ids;     /* of the queries: hot numbers .. */
	const uint32_t *numbers; /* .. and cold ones */
	/* [npieces]: a query, and the first of up to 32 of its cold numbers */
	const uint2 *pieces;
	struct cold_tables tables;
	struct row_key *candidates; /* [nqueries * capacity] */
	const uint32_t *stop;       /* nonzero: end early, all queries are canceled */
	uint32_t ncold_segments;
	uint32_t nqueries;
	uint32_t npieces;
	uint32_t nslots;  /* of all tables */
	uint32_t nslices; /* of the largest table, COLD_SLICE slots each */
	uint32_t capacity;
	uint32_t class_lo; /* tiles whose rows count: classes class_lo .. */
	uint32_t class_hi; /* .. class_hi - 1 */
	gpuvec_scoring scoring;
	struct sparse_tables sparse;
	struct row_counts counts; /* of the only query, if it counts */
};

#define COLD_PIECE 32   /* cold numbers of a piece */
#define COLD_SLICE 2048 /* slots of a slice */

struct scan_params
{
	const struct device_segment *segments;
	const uint2 *groups;
	struct query_state *queries;
	const uint16_t *ids;        /* of the queries */
	struct row_key *candidates; /* [nqueries * capacity] */
	uint32_t *next_item;        /* zero before the launch */
	const uint32_t *stop;       /* nonzero: end early, all queries are canceled */
	uint32_t ngroups;
	uint32_t nqueries;
	uint32_t capacity;
	uint32_t class_lo; /* tiles to scan: classes class_lo .. */
	uint32_t class_hi; /* .. class_hi - 1 */
	uint32_t maxid;
	uint32_t nbatches;
	uint32_t nitems;       /* nbatches * number of ranges of groups */
	uint32_t range_groups; /* groups per item */
	uint32_t grab;         /* tiles that a warp takes at a time: a power of 2 */
	uint32_t stride;       /* sums of a warp: sparse_batch_stride(nqueries) */
	const uint32_t *mask;  /* if queries scanned together have one mask: it */
	uint32_t plain;        /* nonzero: leave out segments with bit vectors */
	gpuvec_scoring scoring;
	struct sparse_tables sparse;
	struct row_counts counts; /* of the only query, if it counts */
};

/* A panel of 128 rows to count by bit vectors (dense_cells.cuh) */
struct __align__(16) dense_panel
{
	uint32_t segment;
	uint32_t row;    /* its first one */
	uint32_t minlen; /* of the shortest row */
	uint32_t most;   /* hot numbers of a row */
	const uint4 *bits;
	uint64_t padding;
};

#define MOST_BATCHES 128 /* of queries in a round by bit vectors */

/* Counters of a round by bit vectors; zero before it */
struct __align__(16) dense_counts
{
	uint32_t listed;              /* panels of the list */
	uint32_t finds;               /* including those for which there was no room */
	uint32_t taken[MOST_BATCHES]; /* units of the list, for each batch */
	uint32_t padding[2];
};

/*
 * Parameters of the kernels that list panels, count them by bit vectors, and
 * score what is found; see dense.cu
 */
struct dense_params
{
	struct scan_params scan;    /* the same parameters as for a scan */
	const uint4 *bits;          /* vectors of the queries */
	struct dense_panel *panels; /* a list with room for all panels of the view */
	uint4 *finds;               /* [capacity], see pack_find() */
	struct dense_counts *counts;
	uint32_t capacity;
	uint32_t unit_panels; /* panels that a thread block takes at a time */
};

/* Parameters of making the bit vectors of queries; all bits are 0 before */
struct query_bits_params
{
	const struct query_state *queries;
	const uint16_t *ids;
	uint32_t *words;
	uint32_t nqueries;
};

/*
 * Limits for queries that become kernel parameters: their number, and the
 * number of all their ids
 */
#define LONE_QUERIES 4
#define LONE_IDS 768

/* Parameters of counting by lists; see lists.cu */
struct list_params
{
	const struct device_segment *segments;
	const uint2 *blocks; /* [nblocks]: segment and block number */
	struct query_state *queries;
	const uint16_t *ids; /* of the queries */
	uint16_t *entries;   /* [nsegments * nentries * 8]: see lists_classify.cu */
	/*
	 * [nsegments * nqueries]: number of staged slots, other slots, and ids
	 * with lists; position of the entries, in units of eight
	 */
	uint4 *nentries_of;
	struct row_key *candidates; /* [nqueries * capacity] */
	uint32_t *next_item;        /* zero before the launch */
	const uint32_t *stop;       /* nonzero: end early, all queries are canceled */
	uint32_t nsegments;
	uint32_t nentries; /* of a segment, in units of eight */
	uint32_t nblocks;
	uint32_t nqueries;
	uint32_t capacity;
	/* NULL, or [nblocks]: the queries to count, as first query and number */
	const uint2 *ranges;
	/* NULL, or [nblocks]: the queries that are already counted */
	const uint2 *counted;
	/*
	 * 0, or each query counts this number of blocks of its own, and nblocks
	 * is the number of all of them; own_first[] is the first block of each
	 * query
	 */
	uint32_t own_blocks;
	uint32_t own_first[LONE_QUERIES];
	/*
	 * 0, or the approximate number of rows to emit of each block: those with
	 * the highest counts
	 */
	uint32_t sample;
	uint32_t item_queries; /* queries per item */
	uint32_t nslices;      /* items per block */
	gpuvec_scoring scoring;
	struct row_counts counts; /* of the only query, if it counts */
};

/* Parameters of counting all rows that take part; see mask_rows.cu */
struct mask_rows_params
{
	const struct device_segment *segments;
	const uint2 *groups; /* [ngroups] */
	struct query_state *query;
	const uint32_t *stop; /* nonzero: end early, the query is canceled */
	uint32_t ngroups;
	struct row_counts counts;
};

/* Words of vectors of bits come in so many; see overlaps.cu */
#define OVERLAP_WORDS 32

/* Parameters of counting the rows of pairs of queries */
struct overlap_params
{
	const struct device_segment *segments;
	const uint2 *groups; /* [ngroups] */
	uint32_t ngroups;
	/* the segments that are taken, and the first tile of these */
	uint32_t segment_lo;
	uint32_t segment_hi;
	uint32_t first_tile;
	uint32_t n;                /* queries */
	uint32_t stride;           /* words of a vector */
	uint32_t ncold;            /* cold numbers of all queries */
	uint32_t nsquares;         /* set by the launch */
	const uint32_t *first;     /* [GPUVEC_HOT_NUMBERS + 1] in queries[] .. */
	const uint16_t *queries;   /* .. of those that have a number */
	const uint2 *cold;         /* [ncold] query and number */
	uint32_t *bits;            /* [n + 1][stride] */
	unsigned long long *pairs; /* as core/overlaps.h says */
	uint32_t *nlisted;         /* rows in counts.tids, which has room */
	const uint32_t *stop;      /* nonzero: end early, the count is canceled */
	struct row_counts counts;  /* pages, tids and partition_bits of it */
};

/*
 * Parameters of the kernel that classifies ids, with queries among them.  The
 * kernel stores the queries where the next kernels expect them, so no copy to
 * the device has to be waited for.
 */
struct lone_params
{
	struct list_params lists;
	uint32_t *counters; /* the kernel sets them to 0 */
	uint16_t *stored_ids;
	uint32_t ncounters;
	uint32_t nids;
	struct query_state queries[LONE_QUERIES];
	uint16_t ids[LONE_IDS];
};

enum select_mode
{
	SELECT_ROUND, /* list = k best of list and candidates */
	/* the same, but sorted into results (k <= GPUVEC_FAST_K) */
	SELECT_FINAL,
	/* drop the candidates, but tighten the bound */
	SELECT_TIGHTEN
};

struct select_params
{
	struct query_state *queries;
	struct row_key *candidates;
	const struct row_key *top_in; /* [nqueries * kmax] */
	struct row_key *top_out;
	struct row_key *results;
	struct query_state *states; /* NULL, or a second place for final states */
	struct cold_tables tables;  /* keys is NULL if no query has cold numbers */
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
	/* length of the runs to merge; 0: make runs of SORT_RUN */
	uint32_t width;
};

#define SORT_RUN 1024

/*
 * Below, counts: the kernel is one for a query that counts rows.
 *
 * scan.cu: entry_bits is 8, 16 or 32, if it counts SCAN_COUNT_BITS; planes is
 * 8 or 17
 */
#define SCAN_COUNT_BITS 8
extern cudaError_t
scan_prepare(size_t smem_limit);
extern size_t
scan_shared_bytes(uint32_t entry_bits, uint32_t planes, uint32_t maxid);
extern uint32_t
scan_threads(uint32_t planes);
extern cudaError_t
scan_blocks(uint32_t entry_bits, uint32_t planes, bool counts, size_t shared_bytes, int *blocks);
extern cudaError_t
scan_launch(const struct scan_params *params, uint32_t entry_bits, uint32_t planes, bool counts,
			size_t shared_bytes, uint32_t blocks, cudaStream_t stream);

/* sparse_scan.cu; whole: its table has the weights of all numbers */
extern cudaError_t
sparse_scan_prepare(size_t smem_limit);
extern size_t
sparse_scan_shared_bytes(bool whole, uint32_t maxid);
extern uint32_t
sparse_scan_threads(void);
extern cudaError_t
sparse_scan_blocks(bool whole, size_t shared_bytes, int *blocks);
extern cudaError_t
sparse_scan_launch(const struct scan_params *params, bool whole, bool counts, size_t shared_bytes,
				   uint32_t blocks, cudaStream_t stream);

/* sparse_batch.cu */

/* Sums that a warp compares at a time */
#define SPARSE_BATCH_UNIT 128
/* With more queries, sums leave room for too few warps, on any device */
#define SPARSE_BATCH_MOST 2048

extern cudaError_t
sparse_batch_prepare(size_t smem_limit);
extern uint32_t
sparse_batch_stride(uint32_t nqueries);
extern uint32_t
sparse_batch_warps(uint32_t nqueries, size_t smem_limit);
extern size_t
sparse_batch_shared_bytes(uint32_t nqueries, uint32_t warps);
extern cudaError_t
sparse_batch_blocks(uint32_t warps, size_t shared_bytes, int *blocks);
extern cudaError_t
sparse_batch_launch(const struct scan_params *params, uint32_t warps, size_t shared_bytes,
					uint32_t blocks, cudaStream_t stream);

/* dense.cu, dense_bits.cu, dense_panels.cu, dense_score.cu */
extern cudaError_t
dense_prepare(size_t smem_limit);
extern bool
dense_possible(size_t smem_limit);
extern cudaError_t
dense_query_bits(const struct query_bits_params *params, cudaStream_t stream);
extern cudaError_t
dense_list(const struct dense_params *params, cudaStream_t stream);
extern cudaError_t
dense_count(const struct dense_params *params, uint32_t blocks, cudaStream_t stream);
extern cudaError_t
dense_score(const struct dense_params *params, uint32_t blocks, cudaStream_t stream);

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
lists_count_lone(const struct list_params *params, uint32_t planes, bool counts,
				 cudaStream_t stream);
extern cudaError_t
lists_count_direct(const struct list_params *params, uint32_t planes, cudaStream_t stream);
extern cudaError_t
lists_count_whole(const struct list_params *params, uint32_t planes, bool counts, uint32_t sms,
				  cudaStream_t stream);
extern cudaError_t
lists_plain_prepare(void);
extern cudaError_t
lists_count_plain(const struct list_params *params, bool counts, uint32_t sms, cudaStream_t stream);

/* mask_rows.cu */
extern cudaError_t
mask_rows_launch(const struct mask_rows_params *params, cudaStream_t stream);

/* overlaps.cu: queue all kernels */
extern cudaError_t
overlaps_launch(const struct overlap_params *params, cudaStream_t stream);

/* cold_rows.cu */
extern cudaError_t
cold_launch(const struct cold_params *params, bool counts, cudaStream_t stream);

/* filter_masks.cu */
extern uint32_t
mask_slices(void);
extern cudaError_t
masks_launch(const struct mask_params *params, cudaStream_t stream);

/* gather.cu */
extern cudaError_t
list_rows_launch(const struct gather_params *params, cudaStream_t stream);
extern cudaError_t
gather_launch(const struct gather_params *params, bool counts, cudaStream_t stream);

/* select.cu */
extern cudaError_t
select_prepare(void);
extern cudaError_t
select_launch(const struct select_params *params, cudaStream_t stream);
extern cudaError_t
sort_launch(const struct sort_params *params, cudaStream_t stream);

} // namespace gpuvec

#endif /* GPUVEC_SEARCH_KERNELS_H */
