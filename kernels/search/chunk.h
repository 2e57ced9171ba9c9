/*-------------------------------------------------------------------------
 *
 * chunk.h
 *	  What the files of a search's host side share.
 *
 * topk.cu           which queries are searched together, and the rounds
 * chunk_cold.cu     their cold numbers
 * chunk_filters.cu  their filters
 * chunk_sparse.cu   their weights, by measures of sparse vectors
 * chunk_counts.cu   queries that count rows, each a chunk of its own
 * chunk_groups.cu   the groups of these rows
 * chunk_overlaps.cu pairs of queries that count rows
 * list_rounds.cu    the rounds of a chunk that is counted by lists
 * dense_rounds.cu   the same by bit vectors
 * chunk.cu          a chunk's memory, and its way to the device
 * chunk_kernels.cu  queuing the kernels that scan, select and sort
 * chunk_answers.cu  waiting for a chunk, and its way back
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CHUNK_H
#define GPUVEC_CHUNK_H

#include "engine/equal_filters.h"
#include "kernels/device/arena.h"
#include "kernels/search/group_kernels.h"
#include "kernels/search/search_backend.h"

namespace gpuvec
{

#define MAX_ROUNDS 64

/* The rows that pass a filter */
struct filter_rows
{
	uint32_t npassed;     /* live rows that pass */
	uint32_t nrows;       /* those that take part in the search */
	bool gathered;        /* they are counted one by one */
	uint32_t first;       /* then, position of the first one */
	const uint32_t *mask; /* [ntiles] */
};

#define NO_FILTER UINT32_MAX

/* How counted rows are put into groups */
enum group_way
{
	GROUPS_OF_BINS,    /* the host makes groups of bins, .. */
	GROUPS_MERGED,     /* .. or the device does (group_merge.cu) */
	GROUPS_OF_ROWS,    /* the host makes groups of marked rows */
	GROUPS_OF_NUMBERS, /* by the ids of sets (group_ids.cu) */
};

/* A query that is being worked on */
struct work_query
{
	gpuvec_topk_query *query;
	uint32_t k;    /* query->k, but at most the view's rows */
	uint32_t kind; /* queries of one kind share a chunk */
	/* queries are worked on in this order: kind, length, largest id */
	uint64_t order;
	struct row_key bound;
	const struct filter_rows *filter; /* NULL: all live rows take part */
};

/* One topk call */
struct search
{
	struct search_backend *b;
	const struct gpuvec_search_policy &policy;
	cudaStream_t stream;
	const gpuvec_view *given = NULL; /* the view, as the host has it .. */
	struct cuda_view *view = NULL;   /* .. and on the device */
	gpuvec_scoring scoring = {};
	gpuvec_method method = GPUVEC_METHOD_AUTO;
	struct work_query *work = NULL;
	uint32_t nwork = 0;
	uint32_t *overflowed = NULL; /* [noverflowed] positions in work[] */
	uint32_t noverflowed = 0;
	struct filter_rows *filters = NULL; /* different ones */
	/* [queries] number of each one's filter, or NO_FILTER; NULL: none has */
	uint32_t *filter_of = NULL;
	uint64_t nlisted = 0; /* rows that are gathered */
	bool listing = false; /* list_rows() may be under way */
	/*
	 * all queries of the chunk are canceled, and the kernels were told to
	 * stop
	 */
	bool stopped = false;
	gpuvec_error *error = NULL;

	/*
	 * True if a CUDA call succeeded.  If not, fills *error; `what` completes
	 * "could not ...".
	 */
	bool
	check(cudaError_t rc, const char *what = "search on the GPU") const
	{
		return b->device.check(rc, what, error);
	}
};

/* Pointer to an offset in the scratch memory on the device */
template <typename T>
static inline T *
scratch_at(const struct search *s, size_t offset)
{
	return (T *) (s->b->scratch.get<char>() + offset);
}

/*
 * A chunk: queries of one kind that are searched together, and the layout of
 * its scratch memory
 */
struct chunk
{
	struct work_query *work;
	const uint32_t *positions; /* [n] positions in work[]; NULL: the first n */
	uint32_t n;
	uint32_t kmax;
	bool lists;  /* count by lists */
	bool dense;  /* count by bit vectors, where segments have them */
	bool lone;   /* the queries are parameters of a kernel */
	bool direct; /* the last kernel writes results and states to the host */
	bool again;  /* its queries overflowed before: they have good bounds */
	bool counts; /* its only query counts rows; the bound is the least score */
	bool every;  /* then, all rows that take part are counted */
	/* how these rows are put into groups; NULL: they are not */
	const gpuvec_grouping *grouping;
	enum group_way group_way;
	bool whole; /* tables of weights have all numbers (sparse_scan.cu) */
	/* 0, or warps of a block that scans for all queries (sparse_batch.cu) */
	uint32_t together;
	size_t together_bytes; /* its shared memory */
	uint32_t together_blocks;
	/* the mask of all queries that are scanned together; NULL: not one */
	const uint32_t *mask;
	/* rows that pass the queries' filters are counted one by one */
	bool gathered;
	double share; /* of the rows that take part, of the query with the most */
	uint32_t planes;
	uint32_t list_planes;
	uint32_t entry_bits;
	uint32_t batch; /* queries per batch of a scan */
	uint32_t capacity;
	uint32_t slots; /* 0, or slots of each query's table; else what is expected */
	size_t shared_bytes;
	uint32_t blocks; /* blocks that run on the GPU at once */

	/*
	 * Offsets into the scratch memory, in this order.  From `states` to
	 * `uploaded` is copied to the device; from `results` to `counters` is
	 * copied back.
	 */
	size_t results;
	size_t states;
	size_t counted; /* for a query that counts rows: row_counts.counted */
	size_t group_sums;
	size_t counters;
	size_t ids;
	size_t cold;           /* cold numbers */
	size_t pieces;         /* of cold numbers */
	size_t sparse;         /* by measures of vectors: sparse_query, .. */
	size_t weights;        /* .. weights of hot numbers, .. */
	size_t terms;          /* .. and terms; if they are scanned together: */
	size_t number_lists;   /* .. lists of numbers, .. */
	size_t number_entries; /* .. and their entries */
	size_t ranges;         /* for each block the queries that sample it */
	size_t pages;          /* whose rows are counted */
	size_t segment_bins;   /* where bins of segments begin */
	size_t uploaded;       /* end of what is copied in */
	size_t entries;        /* of the queries, for each segment */
	size_t nentries_of;
	/* the queries' bit vectors, and counters: these are set to 0 */
	size_t query_bits;
	size_t dense_counts;
	size_t dense_zero_end;
	size_t dense_panels; /* a list of panels */
	size_t finds;        /* where rows may qualify */
	size_t top[2];
	size_t candidates;
	size_t tids;  /* of rows that are not counted */
	size_t marks; /* of rows that are put into groups: row_counts.marks, .. */
	size_t bins;  /* .. and the bins of all segments, or counters of numbers */
	/* if bins are merged, as merge_params.keys and rows */
	size_t pair_keys[2];
	size_t pair_rows[2];
	size_t cold_keys; /* tables of rows that share cold numbers */
	size_t cold_places;
	size_t bytes;
	uint64_t bin_words; /* of all segments; or numbers */
	uint64_t nids;
	uint64_t nterms; /* of all queries; 0 by measures of sets */
	uint64_t ncold;  /* cold numbers of all queries; 0: no table is needed */
	uint64_t npieces;
	uint64_t nslots;     /* of all tables */
	uint32_t most_slots; /* of the largest table */
	uint32_t probes;     /* of the last round that began with cold numbers */
	uint64_t nentries;   /* in units of eight entries */

	uint32_t which;    /* top[which] holds the current lists of the best rows */
	uint32_t launches; /* item counters used */
};

static inline struct work_query *
chunk_query(const struct chunk *c, uint32_t i)
{
	return &c->work[c->positions ? c->positions[i] : i];
}

/* True if rows are counted in bins of segments */
static inline bool
has_bins(const struct chunk *c)
{
	return c->grouping != NULL && (c->group_way == GROUPS_OF_BINS || c->group_way == GROUPS_MERGED);
}

static inline bool
is_canceled(const gpuvec_topk_query *query)
{
	return query->canceled != NULL && __atomic_load_n(query->canceled, __ATOMIC_RELAXED);
}

/*
 * Units of eight entries that a query takes in a segment; its slots are
 * padded to a whole unit
 */
static inline uint32_t
query_entries(uint32_t len)
{
	return (len + 14) / 8;
}

/* chunk.cu */
extern bool
need_memory(struct search *s, struct grown_memory &memory, size_t bytes);
extern bool
need_pinned(struct search *s, unique_pinned &buffer, size_t &size, size_t bytes);
extern uint32_t
fit_capacity(const struct search *s, uint64_t wanted);
extern size_t
query_list_bytes(const struct search *s, uint32_t len);
extern size_t
query_bytes(uint32_t kmax, uint32_t capacity);
extern void
lay_out(const struct search *s, struct chunk *c);
extern void
note_way(struct chunk *c);
extern void
fill_queries(const struct search *s, const struct chunk *c, struct query_state *states,
			 uint16_t *ids);
extern bool
upload_chunk(struct search *s, struct chunk *c);

/* chunk_cold.cu */
extern uint32_t
searched_cold(const struct search *s, const gpuvec_topk_query *query);
extern size_t
query_cold_bytes(const struct search *s, const gpuvec_topk_query *query);
extern void
count_cold_slots(const struct search *s, struct chunk *c);
extern void
fill_cold(const struct search *s, const struct chunk *c, struct query_state *states,
		  uint32_t *numbers, uint2 *pieces);
extern struct cold_tables
chunk_tables(const struct search *s, const struct chunk *c);
extern bool
queue_cold(struct search *s, struct chunk *c, uint32_t class_lo, uint32_t class_hi);

/* chunk_sparse.cu */
extern size_t
query_sparse_bytes(const struct search *s, const gpuvec_topk_query *query);
extern void
lay_out_sparse(const struct search *s, struct chunk *c, struct arena *at);
extern void
fill_sparse(const struct search *s, const struct chunk *c, char *upload);
extern struct sparse_tables
chunk_weights(const struct search *s, const struct chunk *c);
extern bool
choose_sparse_kernel(struct search *s, struct chunk *c);
extern uint32_t
most_together(const struct search *s);
extern size_t
sparse_lists_bytes(const struct search *s);
extern bool
choose_together(struct search *s, struct chunk *c);

/* chunk_filters.cu */
extern size_t
filters_at_once(const struct search *s);
extern bool
begin_filters(struct search *s, const gpuvec_topk_query *queries, uint32_t nqueries);
extern void
fill_filter(const struct work_query *w, struct query_state *state);
extern bool
queue_gather(struct search *s, struct chunk *c);

/* chunk_counts.cu */
extern struct row_counts
chunk_counts(const struct search *s, const struct chunk *c);
extern bool
copy_back(struct search *s, const struct chunk *c, void *to, size_t from, size_t bytes);
extern bool
run_count(struct search *s, struct work_query *w);

/* chunk_groups.cu */
extern bool
plan_groups(const struct search *s, struct chunk *c);
extern void
lay_out_groups(const struct search *s, struct chunk *c, struct arena *at);
extern void
fill_groups(const struct search *s, const struct chunk *c, struct segment_bins *to);
extern bool
clear_groups(struct search *s, const struct chunk *c);
extern bool
queue_groups(struct search *s, const struct chunk *c);
extern bool
take_groups(struct search *s, const struct chunk *c, const struct group_sums *sums,
			gpuvec_topk_query *query);

/* chunk_kernels.cu */
extern bool
choose_kernel(struct search *s, struct chunk *c, uint32_t planes);
extern bool
reset_counters(struct search *s, struct chunk *c);
extern uint32_t
class_tiles(const struct search *s, uint32_t class_lo, uint32_t class_hi);
extern double
together_tiles(const struct search *s, const struct chunk *c);
extern bool
begin_scan(struct search *s, struct chunk *c, struct scan_params *p, uint32_t ngroups,
		   uint32_t class_lo, uint32_t class_hi);
extern bool
queue_scan(struct search *s, struct chunk *c, uint32_t ngroups, uint32_t class_lo,
		   uint32_t class_hi, bool plain);
extern bool
queue_select(struct search *s, struct chunk *c, enum select_mode mode);
extern bool
queue_sort(struct search *s, struct chunk *c);

/* chunk_answers.cu */
extern bool
chunk_canceled(const struct chunk *c);
extern bool
wait_for_device(struct search *s, const struct chunk *c);
extern bool
clear_stop(struct search *s);
extern void
quiet_device(struct search *s);
extern bool
queue_download(struct search *s, struct chunk *c);
extern void
finish_chunk(struct search *s, const struct chunk *c);

/* list_rounds.cu */
extern void
fill_ranges(const struct search *s, const struct chunk *c, uint2 *ranges);
extern bool
queue_list_rounds(struct search *s, struct chunk *c);

/* dense_rounds.cu */
extern void
choose_dense(const struct search *s, struct chunk *c, uint32_t n);
extern size_t
query_dense_bytes(const struct search *s, uint32_t capacity);
extern void
lay_out_dense(const struct search *s, struct chunk *c, struct arena *at);
extern bool
queue_dense_rounds(struct search *s, struct chunk *c);

/* topk.cu */
extern bool
lists_pay(const struct search *s, const struct work_query *w);
extern uint32_t
planes_for(const struct search *s, uint32_t len);
extern uint32_t
plan_rounds(const struct search *s, const struct chunk *c, uint32_t *ends);

} // namespace gpuvec

#endif /* GPUVEC_CHUNK_H */
