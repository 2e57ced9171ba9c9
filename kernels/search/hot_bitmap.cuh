/*-------------------------------------------------------------------------
 *
 * hot_bitmap.cuh
 *	  What kernels share that count single rows: their hot numbers against a
 *	  bitmap of those of a query, in shared memory; and sums over lanes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_HOT_BITMAP_CUH
#define GPUVEC_HOT_BITMAP_CUH

#include "kernels/device/instructions.cuh"
#include "kernels/search/search_kernels.h"

namespace gpuvec
{

#define HOT_WORDS (GPUVEC_HOT_NUMBERS / 32)

/*
 * Make the bitmap of a query's hot numbers; called by a thread block, which
 * has to wait for all its threads afterwards
 */
static __device__ __forceinline__ void
mark_hot(uint32_t *bitmap, const uint16_t *ids, uint32_t nids)
{
	uint4 *words = (uint4 *) bitmap;

	for (uint32_t i = threadIdx.x; i < HOT_WORDS / 4; i += blockDim.x)
		words[i] = make_uint4(0, 0, 0, 0);
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < nids; i += blockDim.x)
		atomicOr(&bitmap[ids[i] / 32], 1u << ids[i] % 32);
}

/* How many of the first n numbers in a chunk the bitmap has */
static __device__ __forceinline__ uint32_t
count_chunk(const uint32_t *bitmap, uint4 chunk, uint32_t n)
{
	const uint32_t word[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
	uint32_t common = 0;

#pragma unroll
	for (uint32_t i = 0; i < 8; i++)
	{
		uint32_t number = i % 2 ? word[i / 2] >> 16 : word[i / 2] & 0xFFFF;

		common += i < n ? bitmap[number / 32] >> number % 32 & 1 : 0;
	}
	return common;
}

/* How many hot numbers of a row the bitmap has */
static __device__ __forceinline__ uint32_t
count_hot(const uint32_t *bitmap, const struct device_segment *segment, uint32_t row,
		  uint32_t hot_len)
{
	const uint4 *ids = segment->ids + (size_t) segment->tiles[row / 32].x * 32 + row % 32;
	uint32_t common = 0;

#pragma unroll 4
	for (uint32_t i = 0; i < hot_len; i += 8)
		common += count_chunk(bitmap, __ldcg(&ids[i * 4]), hot_len - i);
	return common;
}

/* The sum of a number over this lane and all lanes before it */
static __device__ __forceinline__ uint32_t
sum_upto_lane(uint32_t n)
{
	uint32_t lane = threadIdx.x % 32;

#pragma unroll
	for (int d = 1; d < 32; d *= 2)
	{
		uint32_t left = __shfl_up_sync(FULL_WARP, n, d);

		if (lane >= (uint32_t) d)
			n += left;
	}
	return n;
}

} // namespace gpuvec

#endif /* GPUVEC_HOT_BITMAP_CUH */
