/*-------------------------------------------------------------------------
 *
 * filters.h
 *	  The filters of a search: which rows pass, and which are gathered.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CPU_FILTERS_H
#define GPUVEC_CPU_FILTERS_H

#include "engine/cpu/cpu_backend.h"
#include "engine/instruction_sets.h"

/* Rows of a mask are padded to a multiple of this, and their bits are 0 */
#define MASK_ROWS	512

#define mask_words(nrows)	(((nrows) + MASK_ROWS - 1) / MASK_ROWS * (MASK_ROWS / 64))

/* Codes low .. end - 1 */
typedef struct code_range
{
	uint32_t	low;
	uint32_t	end;
} code_range;

/* All filters of a search */
typedef struct cpu_filters
{
	const gpuvec_view *view;
	cpu_backend *cpu;
	cpu_simd	simd;
	cpu_filter *filters;		/* [n] distinct ones */
	uint32_t	n;
	size_t		nmasks;			/* words of a filter's masks */
	size_t	   *first_word;		/* [entries] where an entry's mask begins */
	uint64_t   *masks;			/* [n * nmasks] */
	uint8_t    *done;			/* [queries * entries], see cpu_query */
	best_rows  *gathered;		/* [queries * splits] of rows that were
								 * gathered; NULL: none were */
	uint32_t	splits;
	uint32_t	nqueries;
	cpu_query  *queries;
	int			failed;			/* atomic */
} cpu_filters;

/*
 * Find the filters of queries, and the rows that pass them.  Sets passed,
 * ranked_disjoint and filter of each query.  False: out of memory.
 */
extern bool filters_begin(cpu_filters *filters, cpu_backend *cpu, gpuvec_method method);

/* Gather rows where few pass.  False: out of memory. */
extern bool filters_gather(cpu_filters *filters, cpu_backend *cpu);

extern void filters_free(cpu_filters *filters, cpu_backend *cpu);

/*
 * filter_codes.c: find the rows of an entry that pass.  mask has room for
 * mask_words() words, aligned to a line.  False: out of memory.
 */
extern bool filter_entry(const cpu_filter *filter, const gpuvec_view_entry *entry, cpu_simd simd,
						 uint64_t *mask, cpu_passing *passing);

/*
 * filter_sets.c: clear the bits of rows of a mask whose sets do not match a
 * condition.  False: out of memory.
 */
extern bool mask_by_sets(const gpuvec_condition *match, const uint64_t *values,
						 const gpuvec_segment *segment, uint64_t *mask);

/*
 * filter_mask_*.c: clear the bits of rows whose codes are in none of the
 * ranges; how many bits are set
 */
typedef void (*mask_by_ranges) (const uint16_t *codes, uint32_t nwords, const code_range *ranges,
								uint32_t nranges, uint64_t *mask);
typedef uint32_t (*mask_count) (const uint64_t *mask, uint32_t nwords);

extern void mask_by_ranges_portable(const uint16_t *codes, uint32_t nwords,
									const code_range *ranges, uint32_t nranges, uint64_t *mask);
extern void mask_by_ranges_avx2(const uint16_t *codes, uint32_t nwords,
								const code_range *ranges, uint32_t nranges, uint64_t *mask);
extern void mask_by_ranges_avx512(const uint16_t *codes, uint32_t nwords,
								  const code_range *ranges, uint32_t nranges, uint64_t *mask);
extern uint32_t mask_count_portable(const uint64_t *mask, uint32_t nwords);
extern uint32_t mask_count_avx2(const uint64_t *mask, uint32_t nwords);
extern uint32_t mask_count_avx512(const uint64_t *mask, uint32_t nwords);

#endif							/* GPUVEC_CPU_FILTERS_H */
