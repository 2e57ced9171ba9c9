/*-------------------------------------------------------------------------
 *
 * choose.c
 *	  Which way a segment is searched in.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/cpu/cpu_backend.h"

/*
 * Batches no larger than this are scanned query by query: a pass over the rows
 * costs a batch as much as so many lone queries, by instruction set.
 */
static const uint32_t lone_queries[] = {0, 2, 2, 12};

/* Queries that share a pass over the rows, or over the lists while those are in the cache */
static const uint32_t batch_widths[] = {0, 64, 256, 512};
#define LISTS_WIDTH		512

uint32_t
cpu_width(cpu_simd simd, cpu_way way)
{
	return way == CPU_LONE ? 1 : way == CPU_BATCH ? batch_widths[simd] : LISTS_WIDTH;
}

cpu_way
choose_way(cpu_backend *cpu, const gpuvec_segment *segment, gpuvec_method method,
		   const cpu_query *queries, uint32_t nqueries)
{
	if (method != GPUVEC_METHOD_BITSET && segment->device)
		return CPU_LISTS;
	return nqueries <= lone_queries[cpu->simd] ? CPU_LONE : CPU_BATCH;
}
