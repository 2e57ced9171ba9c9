/*-------------------------------------------------------------------------
 *
 * row_ids.cuh
 *	  Reads the ids of a row from the tiles.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ROW_IDS_CUH
#define GPUVEC_ROW_IDS_CUH

#include <cuda_runtime.h>
#include <stdint.h>

namespace gpuvec
{

/*
 * Call f(id, position) for each of the n ids of row r of a tile, in ascending
 * order of positions.  `chunks` is where the ids of the tile begin.
 */
template <typename F>
static __device__ __forceinline__ void
for_each_row_id(const uint4 *chunks, uint32_t r, uint32_t n, F f)
{
	for (uint32_t c = 0; c * 8 < n; c++)
	{
		uint4 chunk = chunks[(size_t) c * 32 + r];
		const uint32_t word[4] = {chunk.x, chunk.y, chunk.z, chunk.w};

#pragma unroll
		for (uint32_t i = 0; i < 8; i++)
			if (c * 8 + i < n)
				f(i % 2 ? word[i / 2] >> 16 : word[i / 2] & 0xFFFF, c * 8 + i);
	}
}

} // namespace gpuvec

#endif /* GPUVEC_ROW_IDS_CUH */
