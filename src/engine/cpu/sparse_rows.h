/*-------------------------------------------------------------------------
 *
 * sparse_rows.h
 *	  Rows by measures of sparse vectors: their scores, and the scan.
 *
 * A row's numbers are looked up in tables that a thread fills with one query.
 * The scan adds up floats and skips rows by what core/sparse_bound.h says.
 * The others are scored: terms are float8, and added in the order of ids,
 * which is not that of a mirror's numbers.
 *
 * The values of a set are 1.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CPU_SPARSE_ROWS_H
#define GPUVEC_CPU_SPARSE_ROWS_H

#include "core/sparse_bound.h"
#include "engine/cpu/cpu_backend.h"

/*
 * Tables of a thread for one query.  Of a hot number of the query, weights[]
 * has its weight, places[] the place of its id among the query's.  Weights of
 * all others are 0.  Padding of tiles is 0 as the number 0 is, so weights[0]
 * is 0, and the weight of that number is `first`.
 */
typedef struct sparse_scratch
{
	const cpu_query *query;
	float		weights[GPUVEC_HOT_NUMBERS];
	float		first;
	uint16_t	places[GPUVEC_HOT_NUMBERS];
	uint64_t	shared[GPUVEC_MAX_IDS / 64];	/* places that a row shares,
												 * as bits; 0 between rows */
	float		values[GPUVEC_MAX_IDS]; /* the row's, at these places */

	/*
	 * of a batch of queries: of a number, where its terms are and how many
	 * (sparse_batch.c); 0 between batches
	 */
	uint32_t	lists[GPUVEC_HOT_NUMBERS];
} sparse_scratch;

/* A cold number that a row shares */
typedef struct sparse_cold_id
{
	uint16_t	place;			/* of its id among the query's ids */
	float		value;			/* the row's */
} sparse_cold_id;

/* All that a row shares */
typedef struct sparse_cold
{
	const sparse_cold_id *ids;
	uint32_t	n;
} sparse_cold;

/* The 32 rows of a tile */
typedef struct sparse_tile
{
	const uint16_t *ids;
	const float *values;		/* NULL: all are 1 */
	uint32_t	nchunks;
	bool		minima;			/* terms are minima, not products */
} sparse_tile;

/*
 * Add up the terms of each row of a tile, as floats.  Returns which rows have
 * any number with a weight, as bits.
 */
typedef uint32_t (*sparse_sums) (const float *weights, const sparse_tile *tile, float *sums);

/* A query of a scan, and what sums must reach */
typedef struct sparse_search
{
	sparse_scratch *scratch;
	sparse_sums add_up;			/* NULL in a batch */
	best_rows  *best;
	gpuvec_sparse_bound bound;
	uint32_t	len;			/* the length, and */
	uint64_t	key;			/* the query's bound, of which `least` is */
	float		least;
	double		score;			/* that bound as a score; NaN: none */
} sparse_search;

/*
 * So many queries are scanned for as a batch, at least: one of 3 costs as much
 * as scans for 2, with AVX-512 (test/bench, AMD EPYC of Zen 5).  And at most:
 * their sums stay in the cache.
 */
#define SPARSE_BATCH_LEAST		3
#define SPARSE_BATCH_MOST		512

/* Tiles between two looks at the canceled flag */
#define SPARSE_TILE_STRIDE		256

/* sparse_score.c */
/* A thread's tables, which are made once; NULL: out of memory */
extern sparse_scratch *sparse_scratch_of(cpu_backend *cpu, int thread);

/* Fill tables with a query, and empty them */
extern void sparse_begin(sparse_scratch *scratch, const cpu_query *query);
extern void sparse_end(sparse_scratch *scratch);

/* The place of a query's i-th number, hot ones first, among its ids */
static inline uint16_t
sparse_place(const gpuvec_topk_query *query, uint32_t i)
{
	return (uint16_t) (query->places ? query->places[i] : i);
}

/* The sum of the squares of a row's values */
static inline double
sparse_row_square(const gpuvec_segment *segment, uint32_t row)
{
	return segment->sums ? segment->sums[row].square : segment->len[row];
}

/* gpuvec_sparse_own() of a row, by a measure that needs it */
static inline double
sparse_row_own(gpuvec_sparse_measure measure, const gpuvec_segment *segment, uint32_t row)
{
	return segment->sums && measure == GPUVEC_SPARSE_JACCARD ? segment->sums[row].sum :
		sparse_row_square(segment, row);
}

/*
 * True if a row has a negative value, which jaccard does not take.  Such rows
 * have a score above all, so that sessions learn of them.
 */
static inline bool
sparse_row_refused(gpuvec_sparse_measure measure, const gpuvec_segment *segment, uint32_t row)
{
	return measure == GPUVEC_SPARSE_JACCARD && segment->sums && segment->sums[row].sum < 0;
}

/* A query of a scan that begins */
static inline sparse_search
sparse_make_search(sparse_scratch *scratch, sparse_sums add_up, best_rows *best)
{
	const gpuvec_topk_query *query = best->query->query;

	return (sparse_search)
	{
		.scratch = scratch, .add_up = add_up, .best = best, .score = NAN, .key = UINT64_MAX,
			.len = UINT32_MAX,
			.bound = gpuvec_sparse_make_bound(gpuvec_scoring_sparse(best->query->scoring), query->len,
											  query->square, query->own)
	};
}

/* Read the bound; sets search->score */
static inline void
sparse_read_bound(sparse_search *search)
{
	uint64_t	key = __atomic_load_n(search->best->query->bound, __ATOMIC_RELAXED);

	if (key == search->key)
		return;
	search->key = key;
	search->score = key == UINT64_MAX ? NAN : gpuvec_key_score(key);
	search->len = UINT32_MAX;
}

/* Set search->least for a row */
static inline void
sparse_set_least(sparse_search *search, const gpuvec_segment *segment, uint32_t row)
{
	if (segment->sums == NULL && search->len == segment->len[row])
		return;
	search->len = segment->sums ? UINT32_MAX : segment->len[row];
	search->least = gpuvec_sparse_least(&search->bound, search->score, sparse_row_square(segment, row),
										sparse_row_own(search->bound.measure, segment, row));
}

/*
 * True if a row with this sum has to be scored.  hit: it has an id of the
 * query.
 */
static inline bool
sparse_wants(sparse_search *search, const gpuvec_segment *segment, uint32_t row, float sum, bool hit)
{
	sparse_read_bound(search);
	sparse_set_least(search, segment, row);
	return gpuvec_sparse_wanted(sum, hit, search->least, search->score) ||
		sparse_row_refused(search->bound.measure, segment, row);
}

/* The live rows of a tile that are in a mask, as bits */
static inline uint32_t
sparse_tile_rows(const gpuvec_view_entry *entry, const uint64_t *mask, uint32_t tile)
{
	uint32_t	first = tile * GPUVEC_TILE_ROWS;
	uint32_t	n = entry->segment->nrows - first;
	uint32_t	rows = n < GPUVEC_TILE_ROWS ? (UINT32_C(1) << n) - 1 : UINT32_MAX;

	if (entry->live)
		rows &= entry->live->bits[tile];
	if (mask)
		rows &= (uint32_t) (mask[first / 64] >> (first % 64));
	return rows;
}

/* The first tile of a slice's part of a segment, or of the part behind it */
static inline uint32_t
sparse_first_tile(const cpu_slice *slice, const gpuvec_segment *segment, uint32_t part)
{
	return (uint32_t) ((uint64_t) segment->ntiles * part / slice->nparts);
}

/* Score a live row, and offer it */
extern void sparse_offer(sparse_scratch *scratch, best_rows *best, const gpuvec_view_entry *entry,
						 uint32_t row, sparse_cold cold);

/* sparse_scan.c */
/* False: out of memory */
extern bool sparse_scan(cpu_slice *slice, sparse_scratch *scratch, sparse_sums sums);

/* sparse_batch.c */
/*
 * Scan for n queries of a slice at once; *scanned: false, and it was not done,
 * if that costs more than a scan for each.  False: out of memory.
 */
extern bool sparse_scan_batch(cpu_slice *slice, sparse_scratch *scratch, const uint32_t *queries,
							  uint32_t n, bool *scanned);

/* sparse_scan_*.c */
extern uint32_t sparse_sums_portable(const float *weights, const sparse_tile *tile, float *sums);
extern uint32_t sparse_sums_avx2(const float *weights, const sparse_tile *tile, float *sums);
extern uint32_t sparse_sums_avx512(const float *weights, const sparse_tile *tile, float *sums);

#endif							/* GPUVEC_CPU_SPARSE_ROWS_H */
