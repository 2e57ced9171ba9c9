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
 * The word that has the bit of an id of vector v, in panels of so many
 * vectors
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

/* Bytes of the vectors of n rows or queries, in panels of so many */
static inline size_t
vectors_bytes(size_t n, uint32_t panel)
{
	return (n + panel - 1) / panel * panel * VECTOR_BYTES;
}

/*
 * A find: sums of two neighboring rows and two queries, of which some reach
 * what the queries need.  It has
 *
 *	 x: the number of the panel in the list of the round
 *	 y: the thread that found it, the batch of queries, the place, and a bit for
 *		each of the four sums that reaches its need
 *	 z: the sums of the first query
 *	 w: those of the other one, which is eight queries further
 *
 * Place j of a thread is rows 8 j + 2 t and the next one of the panel, t being
 * the thread modulo 4.
 */
#define MOST_DENSE_QUERIES (MOST_BATCHES * BATCH_QUERIES)
#define FIND_PLACES 16

static __device__ __forceinline__ uint4
pack_find(uint32_t panel, uint32_t thread, uint32_t batch, uint32_t place, uint32_t reached,
		  const int *sums)
{
	return make_uint4(panel, thread | batch << 9 | place << 16 | reached << 20,
					  (uint32_t) sums[0] | (uint32_t) sums[1] << 16,
					  (uint32_t) sums[2] | (uint32_t) sums[3] << 16);
}

/* The query of sum i of a find */
static __device__ __forceinline__ uint32_t
find_query(uint4 find, uint32_t i)
{
	uint32_t thread = find.y & 0x1FF;

	return (find.y >> 9 & 0x7F) * BATCH_QUERIES + thread / 32 * 16 + thread % 32 / 4 + i / 2 * 8;
}

/* Its row in the panel */
static __device__ __forceinline__ uint32_t
find_row(uint4 find, uint32_t i)
{
	return (find.y >> 16 & 0xF) * 8 + find.y % 4 * 2 + i % 2;
}

static __device__ __forceinline__ uint32_t
find_sum(uint4 find, uint32_t i)
{
	return (i < 2 ? find.z : find.w) >> i % 2 * 16 & 0xFFFF;
}

/* Does it reach its need? */
static __device__ __forceinline__ bool
find_reached(uint4 find, uint32_t i)
{
	return find.y >> (20 + i) & 1;
}

} // namespace gpuvec

#endif /* GPUVEC_DENSE_CELLS_CUH */
