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
 * A row that may qualify for a query: the row in its segment, of which there
 * are at most 2^16; the query in its chunk; and how many ids they have in
 * common, at most DENSE_BITS
 */
#define MOST_DENSE_SEGMENTS (1u << 20)
#define MOST_DENSE_QUERIES (1u << 16)

static __device__ __forceinline__ uint2
pack_pair(uint32_t segment, uint32_t row, uint32_t query, uint32_t common)
{
	return make_uint2(row | query << 16, common | segment << 12);
}

static __device__ __forceinline__ uint32_t
pair_row(uint2 pair)
{
	return pair.x & 0xFFFF;
}

static __device__ __forceinline__ uint32_t
pair_query(uint2 pair)
{
	return pair.x >> 16;
}

static __device__ __forceinline__ uint32_t
pair_common(uint2 pair)
{
	return pair.y & 0xFFF;
}

static __device__ __forceinline__ uint32_t
pair_segment(uint2 pair)
{
	return pair.y >> 12;
}

} // namespace gpuvec

#endif /* GPUVEC_DENSE_CELLS_CUH */
