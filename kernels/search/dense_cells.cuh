/*-------------------------------------------------------------------------
 *
 * dense_cells.cuh
 *	  The layout of bit vectors that are counted by products of bits.
 *
 * A vector has 512 cells for each of its chunks; id i has cell i modulo their
 * number.  Vectors lie in groups of eight, and a chunk of eight vectors is
 * what a warp reads by one load: lane 4 g + t has words 4 t .. 4 t + 3 of the
 * 16 words of vector g.  So it has, as the instruction mma wants it, four
 * words of a vector; that these are not the words that mma numbers so does
 * not matter, as long as both factors have them in the same order.
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
#define VECTORS_PER_GROUP 8

/* Loads of 16 bytes of a chunk of eight vectors */
#define GROUP_LOADS 32

/* The position of the word that has a cell of a vector */
static __device__ __forceinline__ size_t
cell_word(size_t vector, uint32_t chunks, uint32_t cell)
{
	size_t group = vector / VECTORS_PER_GROUP;

	return (group * chunks + cell / CELLS_PER_CHUNK) * (GROUP_LOADS * 4) +
		   vector % VECTORS_PER_GROUP * (CELLS_PER_CHUNK / 32) + cell % CELLS_PER_CHUNK / 32;
}

/* Bytes of n vectors */
static inline size_t
dense_bytes(size_t n, uint32_t chunks)
{
	return (n + VECTORS_PER_GROUP - 1) / VECTORS_PER_GROUP * chunks * GROUP_LOADS * sizeof(uint4);
}

} // namespace gpuvec

#endif /* GPUVEC_DENSE_CELLS_CUH */
