/*-------------------------------------------------------------------------
 *
 * apply.cu
 *	  The product of vectors and a Gram matrix, in float32.
 *
 * A block computes TILE_ROWS vectors and TILE_COLUMNS of their columns, from
 * tiles of both matrices in shared memory, while the next tiles are loaded.
 * A thread has 8 rows and 4 columns.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>

#include "kernels/als/als_kernels.h"
#include "kernels/als/als_lanes.cuh"
#include "kernels/device/arena.h"
#include "kernels/device/launch.h"

namespace gpuvec
{

#define THREADS 256
#define TILE_ROWS 128
#define TILE_COLUMNS 64
#define DEPTH 16 /* columns of the vectors that are taken at a time */
#define ROWS 8   /* of a thread */

struct apply_params
{
	const float *vectors; /* [n][stride] */
	const float *gram;    /* [stride][stride] */
	float *out;           /* [n][stride] */
	uint32_t n;
	uint32_t stride;
	uint32_t column_tiles;
};

/* What a thread has loaded of the next tiles */
struct apply_next
{
	float4 vectors[2];
	float4 gram;
};

static __device__ __forceinline__ void
load_next(const struct apply_params &p, uint32_t row, uint32_t column, uint32_t depth,
		  struct apply_next &next)
{
	uint32_t t = threadIdx.x;
	float4 zero = make_float4(0, 0, 0, 0);

#pragma unroll
	for (int i = 0; i < 2; i++)
	{
		uint64_t r = row + (i * THREADS + t) / 4;

		next.vectors[i] = r < p.n ? load4(p.vectors + r * p.stride + depth + t % 4 * 4) : zero;
	}
	column += t % 16 * 4;
	next.gram =
		column < p.stride ? load4(p.gram + (uint64_t) (depth + t / 16) * p.stride + column) : zero;
}

/* Put the vectors' tile down by columns: a thread's rows lie together */
static __device__ __forceinline__ void
store_next(const struct apply_next &next, float (*vectors)[TILE_ROWS + 4],
		   float (*gram)[TILE_COLUMNS])
{
	uint32_t t = threadIdx.x;

#pragma unroll
	for (int i = 0; i < 2; i++)
	{
		uint32_t r = (i * THREADS + t) / 4;
		uint32_t c = t % 4 * 4;

		vectors[c][r] = next.vectors[i].x;
		vectors[c + 1][r] = next.vectors[i].y;
		vectors[c + 2][r] = next.vectors[i].z;
		vectors[c + 3][r] = next.vectors[i].w;
	}
	*(float4 *) &gram[t / 16][t % 16 * 4] = next.gram;
}

/* sums[] += the product of two tiles */
static __device__ __forceinline__ void
multiply_tiles(float4 *sums, const float (*vectors)[TILE_ROWS + 4],
			   const float (*gram)[TILE_COLUMNS])
{
	uint32_t row = threadIdx.x / 16 * ROWS;
	uint32_t column = threadIdx.x % 16 * 4;

#pragma unroll
	for (int k = 0; k < DEPTH; k++)
	{
		float4 low = *(const float4 *) &vectors[k][row];
		float4 high = *(const float4 *) &vectors[k][row + 4];
		float4 g = *(const float4 *) &gram[k][column];

		add4(sums[0], low.x, g);
		add4(sums[1], low.y, g);
		add4(sums[2], low.z, g);
		add4(sums[3], low.w, g);
		add4(sums[4], high.x, g);
		add4(sums[5], high.y, g);
		add4(sums[6], high.z, g);
		add4(sums[7], high.w, g);
	}
}

static __global__ void
__launch_bounds__(THREADS) apply_kernel(const __grid_constant__ struct apply_params p)
{
	__shared__ __align__(16) float vectors[2][DEPTH][TILE_ROWS + 4];
	__shared__ __align__(16) float gram[2][DEPTH][TILE_COLUMNS];
	uint32_t row = blockIdx.x / p.column_tiles * TILE_ROWS;
	uint32_t column = blockIdx.x % p.column_tiles * TILE_COLUMNS;
	uint32_t mine = column + threadIdx.x % 16 * 4;
	float4 sums[ROWS] = {};
	struct apply_next next;

	load_next(p, row, column, 0, next);
	store_next(next, vectors[0], gram[0]);
	__syncthreads();
	for (uint32_t depth = 0; depth < p.stride; depth += DEPTH)
	{
		int now = depth / DEPTH % 2;
		bool more = depth + DEPTH < p.stride;

		if (more)
			load_next(p, row, column, depth + DEPTH, next);
		multiply_tiles(sums, vectors[now], gram[now]);
		if (more)
			store_next(next, vectors[1 - now], gram[1 - now]);
		__syncthreads();
	}
#pragma unroll
	for (int i = 0; i < ROWS; i++)
	{
		uint64_t r = row + threadIdx.x / 16 * ROWS + i;

		if (r < p.n && mine < p.stride)
			*(float4 *) (p.out + r * p.stride + mine) = sums[i];
	}
}

cudaError_t
als_apply_launch(const float *vectors, const float *gram, float *out, uint32_t n, uint32_t stride,
				 cudaStream_t stream)
{
	struct apply_params p = {vectors, gram,   out,
							 n,       stride, (uint32_t) divide_up(stride, TILE_COLUMNS)};

	return launch(apply_kernel, divide_up(n, TILE_ROWS) * p.column_tiles, THREADS, 0, stream, p);
}

} // namespace gpuvec
