/*-------------------------------------------------------------------------
 *
 * dense_cells.cuh
 *	  The layout of bit vectors that are counted by products of bits.
 *
 * A vector has a bit for each id below DENSE_BITS.  Vectors lie in panels as
 * tensor cores take them from shared memory: 128 rows or 64 queries.  A panel
 * has two halves; each has of every vector a line of 1,024 bits.  The eight
 * pieces of 16 bytes of a line are in another order in each of eight
 * neighboring lines, so that these lines are read without bank conflicts
 * ("swizzle of 128 bytes").
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_DENSE_CELLS_CUH
#define GPUVEC_DENSE_CELLS_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#include "kernels/search/device_segment.h"

namespace gpuvec
{

#define DENSE_BITS 2048
#define VECTOR_BYTES (DENSE_BITS / 8)
#define LINE_BYTES 128
#define HALVES (VECTOR_BYTES / LINE_BYTES)

/* queries of a thread block */
#define BATCH_QUERIES 256

#define PANEL_ROWS 128
#define PANEL_TILES (PANEL_ROWS / GPUVEC_TILE_ROWS)
#define PANEL_QUERIES 64
#define ROW_PANEL_BYTES (PANEL_ROWS * VECTOR_BYTES)
#define QUERY_PANEL_BYTES (PANEL_QUERIES * VECTOR_BYTES)

/*
 * The word that has the bit of an id of vector v, in panels of
 * `panel` vectors
 */
static __device__ __forceinline__ size_t
vector_word(size_t v, uint32_t panel, uint32_t id)
{
	uint32_t line = (uint32_t) (v % panel);
	uint32_t half = id / (LINE_BYTES * 8);
	uint32_t piece = id / 128 % 8 ^ line % 8;

	return v / panel * panel * (VECTOR_BYTES / 4) + (half * panel + line) * (LINE_BYTES / 4) +
		   piece * 4 + id / 32 % 4;
}

/* Bytes of the vectors of n rows or queries, in panels of `panel` */
static inline size_t
vectors_bytes(size_t n, uint32_t panel)
{
	return (n + panel - 1) / panel * panel * VECTOR_BYTES;
}

/*
 * What a thread has found in a panel: which of its sums reach what the queries
 * need.  A find has
 *
 *	 x: the number of the panel in the list of the round
 *	 y: the thread and the batch of queries
 *	 z, w: a bit for each of the 64 sums: for lane 4 g + t, bit 4 j + 2 h + i
 *		is of row 8 j + 2 t + i of the panel and of query 8 h + g of the warp's
 */
#define MOST_DENSE_QUERIES (MOST_BATCHES * BATCH_QUERIES)

static __device__ __forceinline__ uint4
pack_find(uint32_t panel, uint32_t thread, uint32_t batch, const uint32_t *sums)
{
	return make_uint4(panel, thread | batch << 16, sums[0], sums[1]);
}

/* The query of a sum of a find */
static __device__ __forceinline__ uint32_t
find_query(uint4 find, uint32_t sum)
{
	uint32_t thread = find.y & 0xFFFF;

	return (find.y >> 16) * BATCH_QUERIES + thread / 32 * 16 + sum / 2 % 2 * 8 + thread % 32 / 4;
}

/* Its row in the panel */
static __device__ __forceinline__ uint32_t
find_row(uint4 find, uint32_t sum)
{
	return sum / 4 * 8 + find.y % 4 * 2 + sum % 2;
}

} // namespace gpuvec

#endif /* GPUVEC_DENSE_CELLS_CUH */
