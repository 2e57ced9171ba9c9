/*-------------------------------------------------------------------------
 *
 * dense_cells.cuh
 *	  The layout of bit vectors that are counted by products of bits.
 *
 * A vector has bits, called cells, in chunks of 512.  A map says which cell an
 * id has (dense_map.cu).  A chunk, which is 16 words, takes two instructions mma: the first gets words 4 t and
 * 4 t + 1 from lane 4 g + t, the second words 4 t + 2 and 4 t + 3.  mma
 * numbers them otherwise, but that does not matter, as long as both factors
 * have them in the same order.
 *
 * Vectors lie in groups, so that what a lane loads by 16 bytes is what
 * instructions take from registers that follow one another:
 *
 *	 - eight rows: words 4 t .. 4 t + 3 of row g, for both instructions;
 *	 - 16 queries, for each instruction: a word of query g, the same of query
 *	   g + 8, then the next word of both.
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

#define CELLS_PER_CHUNK 512
#define ROW_GROUP 8
#define QUERY_GROUP 16

/* Loads of 16 bytes of a chunk of a group: one or two for each lane */
#define ROW_LOADS 32
#define QUERY_LOADS 64

/* The position of the word that has a cell of a row */
static __device__ __forceinline__ size_t
row_word(size_t row, uint32_t chunks, uint32_t cell)
{
	size_t chunk = row / ROW_GROUP * chunks + cell / CELLS_PER_CHUNK;

	return chunk * ROW_LOADS * 4 + row % ROW_GROUP * (CELLS_PER_CHUNK / 32) +
		   cell % CELLS_PER_CHUNK / 32;
}

/* The same of a query */
static __device__ __forceinline__ size_t
query_word(size_t query, uint32_t chunks, uint32_t cell)
{
	size_t chunk = query / QUERY_GROUP * chunks + cell / CELLS_PER_CHUNK;
	uint32_t word = cell % CELLS_PER_CHUNK / 32;
	uint32_t lane = query % 8 * 4 + word / 4;

	return ((chunk * 2 + word % 4 / 2) * 32 + lane) * 4 + word % 2 * 2 + query % QUERY_GROUP / 8;
}

/* Bytes of the vectors of n rows */
static inline size_t
row_bits_bytes(size_t n, uint32_t chunks)
{
	return (n + ROW_GROUP - 1) / ROW_GROUP * chunks * ROW_LOADS * sizeof(uint4);
}

/* Bytes of the vectors of n queries */
static inline size_t
query_bits_bytes(size_t n, uint32_t chunks)
{
	return (n + QUERY_GROUP - 1) / QUERY_GROUP * chunks * QUERY_LOADS * sizeof(uint4);
}

} // namespace gpuvec

#endif /* GPUVEC_DENSE_CELLS_CUH */
