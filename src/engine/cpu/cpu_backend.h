/*-------------------------------------------------------------------------
 *
 * cpu_backend.h
 *	  What the files of the CPU backend share.
 *
 * cpu_backend.c	opening; what is kept of each segment
 * cpu_search.c		splitting a search over threads, merging
 * choose.c			how a segment is searched
 * best_rows.c		the bounded heap of a query's best rows
 * cold_rows.c		rows that share a cold number with a query
 * filters.c		rows that pass a filter; counting them where they are few
 * filter_codes.c	which rows of a segment pass, by the codes of its columns;
 *					filter_mask.inc, compiled for each instruction set
 * filter_sets.c	which rows of a segment have sets that match
 * overlaps.c		rows of pairs of queries; bit_pairs.inc, compiled for each
 *					instruction set
 * lists_*.c		inverted lists, and the search by them
 * scan_lone.c		the scan for one query
 * scan_batch.inc	the scan for a batch of queries, compiled for each
 *					instruction set by scan_batch_*.c
 * sparse_scan.c	the scan by measures of sparse vectors; sparse_scan.inc,
 *					compiled for each instruction set by sparse_scan_*.c
 * sparse_batch.c	the same for a batch of queries
 * sparse_score.c	scores by such measures
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CPU_BACKEND_H
#define GPUVEC_CPU_BACKEND_H

#include "engine/backend.h"
#include "engine/cpu/lists.h"
#include "engine/instruction_sets.h"
#include "engine/thread_pool.h"

/* Instruction sets, as in gpuvec_backend_options.simd */
typedef enum cpu_simd
{
	SIMD_PORTABLE = 1,
	SIMD_AVX2 = 2,
	SIMD_AVX512 = 3
} cpu_simd;

/* A row of an answer.  The order of results is ascending (key, tid). */
typedef struct best_row
{
	uint64_t	key;			/* gpuvec_score_key */
	uint64_t	tid;
	uint32_t	common;
	uint32_t	padding;
} best_row;

/* A set of rows, by their tids: a hash table with linear probing */
typedef struct cold_rows
{
	uint64_t	n;
	uint64_t	mask;			/* slots - 1; at most every other one is used */
	uint64_t   *slots;			/* COLD_FREE: none */
} cold_rows;

#define COLD_FREE		UINT64_MAX	/* no row has this tid */

/* The slot of a row, or the free one where it would be */
static inline uint64_t
cold_slot(const cold_rows *cold, uint64_t tid)
{
	uint64_t	at = (tid * UINT64_C(0x9E3779B97F4A7C15) >> 20) & cold->mask;

	while (cold->slots[at] != tid && cold->slots[at] != COLD_FREE)
		at = (at + 1) & cold->mask;
	return at;
}

/* The rows of an entry that pass a filter */
typedef struct cpu_passing
{
	uint32_t	npassed;		/* live rows that pass, those with null sets
								 * included */
	uint32_t	nrows;			/* those that take part in the search */
	uint64_t   *mask;			/* their bits; NULL: none does */
} cpu_passing;

/* A filter of a search */
typedef struct cpu_filter
{
	gpuvec_filter filter;
	bool		wants_null_sets;	/* a condition asks for null sets */
	uint64_t	npassed;		/* sums of passing[] */
	uint64_t	nrows;
	cpu_passing *passing;		/* [entries of the view] */
} cpu_filter;

/* What is left to do in an entry, for a query with a filter */
#define ENTRY_SEARCHED	0		/* to be searched by scans or lists */
#define ENTRY_GATHERED	1		/* the rows that pass are counted one by one */
#define ENTRY_EMPTY		2		/* no row passes */

/* Rows that are counted, to be grouped when all are known (grouped.c) */
typedef struct counted_marks
{
	const gpuvec_view *view;
	size_t	   *first_word;		/* [entries] where an entry's rows begin */
	uint64_t   *bits;			/* of all rows of all entries; atomic */
} counted_marks;

/*
 * What all slices of a search share for one query.  *bound is the key of
 * min_score, if any, or of the k-th best row that some part has found: rows
 * with a greater key cannot be in the answer.  It only decreases; threads
 * read and lower it without locks.
 */
typedef struct cpu_query
{
	const gpuvec_topk_query *query;
	gpuvec_scoring scoring;
	uint64_t   *bound;			/* atomic; may be shared with other devices */
	uint64_t	own_bound;		/* what it points to if not */
	uint64_t	after_key;		/* with after_tid: only rows after this
								 * position count */
	uint64_t	after_tid;
	bool		has_after;
	bool		ranks_disjoint; /* rows without a common id count; by measures
								 * of sparse vectors: rows of any score */
	uint32_t	leading_pages;	/* of the set of pages whose rows are counted:
								 * it has all up to this one */
	const cold_rows *cold;		/* rows that have been offered already, and
								 * are left out by all slices; NULL: none */
	struct counted_marks *marks;	/* of counted rows; NULL: no groups */
	const cpu_filter *filter;	/* NULL: all live rows take part */
	const uint8_t *done;		/* with a filter: [entries of the view] what
								 * is left to do in them */
} cpu_query;

/*
 * True if a slice searches this entry of the view for the query; sets the mask
 * of the rows that take part, NULL for all live ones
 */
static inline bool
query_searches(const cpu_query *query, uint32_t entry, const uint64_t **mask)
{
	*mask = query->filter ? query->filter->passing[entry].mask : NULL;
	return query->filter == NULL || query->done[entry] == ENTRY_SEARCHED;
}

/* True if a row is in a mask, or there is none */
static inline bool
mask_has(const uint64_t *mask, uint32_t row)
{
	return mask == NULL || (mask[row / 64] >> (row % 64) & 1) != 0;
}

/*
 * The best rows of a query in one slice of a search: a heap with the worst row
 * at the root
 */
typedef struct best_rows
{
	cpu_query  *query;
	uint32_t	n;
	uint32_t	capacity;
	union
	{
		best_row   *rows;
		uint64_t   *tids;		/* of a bare query, in any order */
	};
	uint64_t	counted;		/* rows of a bare query that tids[] lacks */
	bool		failed;			/* out of memory */
} best_rows;

/*
 * A slice of a search: the queries of one batch and a range of segments, or
 * those segments of the range that no other slice has taken
 */
typedef struct cpu_slice
{
	const gpuvec_view *view;
	const uint32_t *order;		/* numbers of the view's entries, in the order
								 * of scanning */
	uint32_t	first_entry;	/* positions in order[] */
	uint32_t	end_entry;
	uint32_t	part;			/* of nparts parts of each entry; only by */
	uint32_t	nparts;			/* measures of sparse vectors, else 1 */
	uint32_t   *next_entry;		/* atomic; if not NULL, the slices of the
								 * batch take their entries from this shared
								 * position in order[] */
	uint32_t	nqueries;
	cpu_query **queries;
	best_rows  *best;			/* [nqueries] */
	bool		canceled;
} cpu_slice;

/* Ways to search a segment */
typedef enum cpu_way
{
	CPU_LISTS,					/* search by inverted lists */
	CPU_LONE,					/* scan, one query after another */
	CPU_BATCH,					/* scan for a batch of queries at once */
	CPU_SPARSE					/* scan by a measure of sparse vectors */
} cpu_way;

#define CPU_N_WAYS	4

struct lists_scratch;
struct sparse_scratch;
struct lists_builder;

typedef struct cpu_backend
{
	gpuvec_backend base;
	gpuvec_thread_pool *pool;
	cpu_simd	simd;
	gpuvec_lists_policy policy;
	struct lists_builder *builder;
	struct lists_scratch *scratch;	/* [threads of the pool] */
	struct sparse_scratch **sparse; /* [threads of the pool]; NULL until a
									 * thread needs it */
	uint64_t   *masks;			/* [nmasks] memory for masks of filters, kept
								 * from search to search; or NULL */
	size_t		nmasks;
} cpu_backend;

/* Open a backend with a policy for lists; used by tests */
extern gpuvec_backend *gpuvec_cpu_open_with(const gpuvec_backend_options *options,
											const gpuvec_lists_policy *policy,
											gpuvec_error *error);

/* cpu_search.c */
extern bool cpu_topk(gpuvec_backend *backend, const gpuvec_view *view,
					 const gpuvec_scoring *scoring, gpuvec_method method,
					 gpuvec_topk_query *queries, uint32_t nqueries, gpuvec_error *error);

/* overlaps.c */
extern bool cpu_overlaps(gpuvec_backend *backend, const gpuvec_view *view,
						 gpuvec_overlaps *overlaps, gpuvec_error *error);

/* choose.c */
extern uint32_t cpu_width(cpu_simd simd, cpu_way way, uint32_t nqueries);

/*
 * Into how many parts entries are cut, if there are fewer than slices are
 * wanted.  On average, a part has at least PART_ROWS rows.
 */
extern uint32_t cpu_parts(const gpuvec_view *view, const uint32_t *entries, uint32_t nentries,
						  uint32_t nslices);
extern cpu_way choose_way(cpu_backend *cpu, const gpuvec_segment *segment, gpuvec_method method,
						  const cpu_query *queries, uint32_t nqueries);
extern bool gathering_costs_less(cpu_backend *cpu, const gpuvec_segment *segment,
								 gpuvec_method method, const cpu_query *query,
								 uint32_t nqueries, uint32_t nscanned, uint32_t nrows);

/*
 * Nanoseconds that a search by lists takes for one query whose rows are wanted
 * in any order; the segment has lists
 */
extern double cpu_all_rows_cost(cpu_backend *cpu, const gpuvec_segment *segment,
								const gpuvec_topk_query *query);

/* best_rows.c */
/*
 * Consider a live row with this score and number of common ids.  False if
 * neither this row nor any row that has the same score or a lower one and a
 * greater tid can be in the answer.  best_offer: the same of a set, by what it
 * shares with the query; one without a common id may not rank.
 */
extern bool best_offer_score(best_rows *best, double score, uint32_t common,
							 const gpuvec_view_entry *entry, uint32_t row);
extern bool best_offer(best_rows *best, const gpuvec_shared *shared,
					   const gpuvec_view_entry *entry, uint32_t row);

/* Lower the bound that a query's slices share to key, if that is less */
extern void best_lower_bound(cpu_query *query, uint64_t key);

/*
 * True if the query is bare, and wants each live row that has one common id,
 * however long it is.  best_make_room: room for n such rows.  False: out of
 * memory, and best->failed is set.  best_counts_tid: 1 if such a row is
 * counted, 0 if its tid is taken.
 */
extern bool best_takes_any(const best_rows *best);
extern bool best_make_room(best_rows *best, uint32_t n);

/* True if the query is bare, and wants each live row that takes part */
extern bool query_takes_all(const cpu_query *query);

/*
 * best_leading_pages: how many pages a set has before the first one that it
 * lacks.  best_counts_all: true if it is known that all rows of an entry would
 * be counted.  best_take_rows: take the live ones of some rows of an entry, as
 * bits; sets failed on lack of memory.
 */
extern uint32_t best_leading_pages(const gpuvec_page_set *set);
extern bool best_counts_all(const best_rows *best, const gpuvec_view_entry *entry);
extern void best_take_rows(best_rows *best, const gpuvec_view_entry *entry, const uint64_t *rows);

static inline uint32_t
best_counts_tid(const best_rows *best, uint64_t tid)
{
	return gpuvec_page_set_has(&best->query->query->counts, gpuvec_tid_block(tid));
}

/*
 * grouped.c: let those of n queries that group the rows that they count mark
 * them; put the marked rows into the groups of their answers.  False: out of
 * memory.  grouped_free: forget the marks; queries may be NULL.
 */
extern bool grouped_begin(cpu_query *queries, uint32_t n, const gpuvec_view *view);
extern bool grouped_end(const cpu_query *queries, uint32_t n, gpuvec_thread_pool *pool);
extern void grouped_free(cpu_query *queries, uint32_t n);

/*
 * grouped_ids.c: count the marked rows of a segment by ids: hot numbers in
 * *hot, which is made if it is NULL, cold ones in groups; turn the hot numbers
 * that n threads have counted into groups.  False: out of memory.
 */
extern bool grouped_count_ids(const gpuvec_segment *segment, const uint64_t *marks,
							  uint32_t **hot, gpuvec_groups *groups);
extern bool grouped_add_hot(uint32_t **hot, int n, gpuvec_groups *groups);

/* Mark rows that are counted: some of a word of 64 rows */
static inline void
best_mark_word(const best_rows *best, const gpuvec_view_entry *entry, uint32_t word, uint64_t rows)
{
	const counted_marks *marks = best->query->marks;

	if (marks != NULL && rows != 0)
		__atomic_fetch_or(&marks->bits[marks->first_word[entry - marks->view->entries] + word], rows,
						  __ATOMIC_RELAXED);
}

static inline void
best_mark_row(const best_rows *best, const gpuvec_view_entry *entry, uint32_t row)
{
	best_mark_word(best, entry, row / 64, UINT64_C(1) << (row % 64));
}

/*
 * The score that a row must reach, as gpuvec_need takes it; -INFINITY without
 * a bound
 */
static inline float
bound_score(const cpu_query *query)
{
	uint64_t	key = __atomic_load_n(query->bound, __ATOMIC_RELAXED);

	return key == UINT64_MAX ? -INFINITY : (float) gpuvec_key_score(key);
}

/* True if all queries of the slice were canceled */
static inline bool
slice_canceled(const cpu_slice *slice)
{
	for (uint32_t q = 0; q < slice->nqueries; q++)
	{
		const int  *canceled = slice->queries[q]->query->canceled;

		if (canceled == NULL || !__atomic_load_n(canceled, __ATOMIC_RELAXED))
			return false;
	}
	return true;
}

/*
 * bit_pairs_*.c: to sums[i * width + j] add how many bits vectors a + i *
 * stride and b + j * stride have in common, for i < na, j < nb.  Vectors have
 * nwords words, a multiple of OVERLAP_WORDS.
 */
#define OVERLAP_WORDS	8

typedef void bit_pairs(const uint64_t *a, uint32_t na, const uint64_t *b, uint32_t nb,
					   size_t stride, uint32_t nwords, uint64_t *sums, uint32_t width);

extern bit_pairs bit_pairs_portable;
extern bit_pairs bit_pairs_avx2;
extern bit_pairs bit_pairs_avx512;

/* scan_lone.c, scan_lone_avx512.c */
extern bool scan_lone_portable(cpu_slice *slice);
extern bool scan_lone_avx512(cpu_slice *slice);

/* scan_batch_*.c: false when out of memory */
extern bool scan_batch_portable(cpu_slice *slice);
extern bool scan_batch_avx2(cpu_slice *slice);
extern bool scan_batch_avx512(cpu_slice *slice);

#endif							/* GPUVEC_CPU_BACKEND_H */
