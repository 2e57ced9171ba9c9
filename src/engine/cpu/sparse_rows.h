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
 * Rows are sets: each value is 1.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CPU_SPARSE_ROWS_H
#define GPUVEC_CPU_SPARSE_ROWS_H

#include "core/sparse_bound.h"
#include "engine/cpu/cpu_backend.h"

/*
 * Tables of a thread for one query.  Of a hot number of the query, terms[] has
 * what it adds to a row's sum, places[] the place of its id among the query's.
 * Terms of all others are 0.  Padding of tiles is 0 as the number 0 is, so
 * terms[0] is 0, and the term of that number is `first`.
 */
typedef struct sparse_scratch
{
	const cpu_query *query;
	float		terms[GPUVEC_HOT_NUMBERS];
	float		first;
	uint16_t	places[GPUVEC_HOT_NUMBERS];
	uint64_t	shared[GPUVEC_MAX_IDS / 64];	/* places that a row shares,
												 * as bits; 0 between rows */
} sparse_scratch;

/* Cold numbers that a row shares: places of their ids among the query's ids */
typedef struct sparse_cold
{
	const uint16_t *places;
	uint32_t	n;
} sparse_cold;

/*
 * Add up the terms of the 32 rows of a tile, which has nchunks chunks, as
 * floats.  Returns which rows have any number with a term, as bits.
 */
typedef uint32_t (*sparse_sums) (const float *terms, const uint16_t *ids, uint32_t nchunks,
								 float *sums);

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

/* The sums of a row of a set: gpuvec_sparse_own() of all its values */
static inline double
sparse_row_own(const gpuvec_segment *segment, uint32_t row)
{
	return segment->len[row];
}

/* Score a live row, and offer it under a tid */
extern void sparse_offer(sparse_scratch *scratch, best_rows *best, const gpuvec_segment *segment,
						 uint32_t row, sparse_cold cold, uint64_t tid);

/* sparse_scan.c */
/* False: out of memory */
extern bool sparse_scan(cpu_slice *slice, sparse_scratch *scratch, sparse_sums sums);

/* sparse_scan_*.c */
extern uint32_t sparse_sums_portable(const float *terms, const uint16_t *ids, uint32_t nchunks,
									 float *sums);
extern uint32_t sparse_sums_avx2(const float *terms, const uint16_t *ids, uint32_t nchunks,
								 float *sums);
extern uint32_t sparse_sums_avx512(const float *terms, const uint16_t *ids, uint32_t nchunks,
								   float *sums);

#endif							/* GPUVEC_CPU_SPARSE_ROWS_H */
