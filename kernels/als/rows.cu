/*-------------------------------------------------------------------------
 *
 * rows.cu
 *	  Conjugate gradient for all rows at once, from sums over pairs.
 *
 * A step of all rows is one pass over all pairs (pairs.cu), one product with
 * the Gram matrix (apply.cu) and one kernel here, in which a group of lanes
 * has a row.  The steps are those of the CPU (als_math.inc), and a row ends
 * where it does there.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/als/als_kernels.h"
#include "kernels/als/als_lanes.cuh"
#include "kernels/device/arena.h"
#include "kernels/device/launch.h"

namespace gpuvec
{

#define THREADS 128

struct rows_params
{
	uint32_t nrows;
	const uint32_t *first_pieces;
	float *x; /* [nrows][stride] */
	struct als_vectors v;
};

/* sum[] += the vectors of pieces first .. end - 1, in their order */
template <typename Shape>
static __device__ __forceinline__ void
add_pieces(float4 *sum, const float *vectors, uint32_t first, uint32_t end, uint32_t at)
{
#pragma unroll 4
	for (uint32_t piece = first; piece < end; piece++)
#pragma unroll
		for (int k = 0; k < Shape::K; k++)
			add4(sum[k], 1,
				 load4(vectors + (uint64_t) piece * Shape::STRIDE + 4 * (k * Shape::L + at)));
}

/* A row that a group of lanes works on */
template <typename Shape>
struct group_row
{
	uint32_t at; /* lane of the group */
	uint32_t row;
	bool any; /* there is such a row */
	uint32_t first;
	uint32_t end; /* pieces */

	__device__ __forceinline__
	group_row(const struct rows_params &p)
	{
		uint64_t number = ((uint64_t) blockIdx.x * THREADS + threadIdx.x) / Shape::L;

		at = threadIdx.x % Shape::L;
		any = number < p.nrows;
		row = any ? (uint32_t) number : 0;
		first = any ? p.first_pieces[row] : 0;
		end = any ? p.first_pieces[row + 1] : 0;
	}

	/* Where chunk k of the row's vector is */
	__device__ __forceinline__ uint64_t
	chunk(int k) const
	{
		return (uint64_t) row * Shape::STRIDE + 4 * (k * Shape::L + at);
	}
};

/* r = p = b - A x */
template <typename Shape>
static __global__ void
__launch_bounds__(THREADS) begin_kernel(const __grid_constant__ struct rows_params p)
{
	group_row<Shape> g(p);
	float4 r[Shape::K] = {};
	float4 b[Shape::K] = {};
	float rr = 0;
	float bb = 0;
	float least;

	add_pieces<Shape>(r, p.v.sums, g.first, g.end, g.at);
	add_pieces<Shape>(b, p.v.rights, g.first, g.end, g.at);
#pragma unroll
	for (int k = 0; k < Shape::K; k++)
	{
		add4(r[k], -1, load4(p.v.q + g.chunk(k)));
		rr = dot4(r[k], r[k], rr);
		bb = dot4(b[k], b[k], bb);
	}
	rr = group_sum<Shape::L>(rr);
	bb = group_sum<Shape::L>(bb);
	if (!g.any)
		return;
#pragma unroll
	for (int k = 0; k < Shape::K; k++)
	{
		*(float4 *) (p.v.r + g.chunk(k)) = r[k];
		*(float4 *) (p.v.p + g.chunk(k)) = r[k];
	}
	least = GPUVEC_ALS_REST * bb;
	if (least < GPUVEC_ALS_RESIDUAL)
		least = GPUVEC_ALS_RESIDUAL;
	if (g.at == 0)
	{
		p.v.squares[g.row] = rr;
		p.v.least[g.row] = least;
		p.v.done[g.row] = !(rr >= least);
	}
}

/* A step along p */
template <typename Shape>
static __global__ void
__launch_bounds__(THREADS) step_kernel(const __grid_constant__ struct rows_params p)
{
	group_row<Shape> g(p);
	bool active = g.any && !p.v.done[g.row];
	float before = active ? p.v.squares[g.row] : 1;
	float4 d[Shape::K];
	float4 ap[Shape::K];
	float4 r[Shape::K];
	float curvature = 0;
	float length;
	float rr = 0;

#pragma unroll
	for (int k = 0; k < Shape::K; k++)
	{
		d[k] = load4(p.v.p + g.chunk(k));
		r[k] = load4(p.v.r + g.chunk(k));
		ap[k] = load4(p.v.q + g.chunk(k));
	}
	add_pieces<Shape>(ap, p.v.sums, g.first, active ? g.end : g.first, g.at);
#pragma unroll
	for (int k = 0; k < Shape::K; k++)
		curvature = dot4(d[k], ap[k], curvature);
	curvature = group_sum<Shape::L>(curvature);
	length = before / curvature;
#pragma unroll
	for (int k = 0; k < Shape::K; k++)
	{
		add4(r[k], -length, ap[k]);
		rr = dot4(r[k], r[k], rr);
	}
	rr = group_sum<Shape::L>(rr);
	if (!active)
		return;
	/* rounding may make the curvature so; then the row stays */
	if (curvature > 0)
	{
#pragma unroll
		for (int k = 0; k < Shape::K; k++)
		{
			float4 x = *(float4 *) (p.x + g.chunk(k));
			float4 direction = r[k];

			add4(x, length, d[k]);
			add4(direction, rr / before, d[k]);
			*(float4 *) (p.x + g.chunk(k)) = x;
			*(float4 *) (p.v.r + g.chunk(k)) = r[k];
			*(float4 *) (p.v.p + g.chunk(k)) = direction;
		}
	}
	if (g.at == 0)
	{
		p.v.squares[g.row] = rr;
		p.v.done[g.row] = !(curvature > 0) || !(rr >= p.v.least[g.row]);
	}
}

static struct rows_params
make_params(const struct als_side_rows &side, const struct als_vectors &v)
{
	struct rows_params p = {};

	p.nrows = side.nrows;
	p.first_pieces = side.first_pieces;
	p.x = side.factors;
	p.v = v;
	return p;
}

cudaError_t
als_begin_launch(const struct als_side_rows &side, const struct als_vectors &v, uint32_t stride,
				 cudaStream_t stream)
{
	struct rows_params p = make_params(side, v);

	return with_shape(stride,
					  [&](auto shape)
					  {
						  return launch(begin_kernel<decltype(shape)>,
										divide_up((uint64_t) p.nrows * shape.L, THREADS), THREADS,
										0, stream, p);
					  });
}

cudaError_t
als_step_launch(const struct als_side_rows &side, const struct als_vectors &v, uint32_t stride,
				cudaStream_t stream)
{
	struct rows_params p = make_params(side, v);

	return with_shape(stride,
					  [&](auto shape)
					  {
						  return launch(step_kernel<decltype(shape)>,
										divide_up((uint64_t) p.nrows * shape.L, THREADS), THREADS,
										0, stream, p);
					  });
}

} // namespace gpuvec
