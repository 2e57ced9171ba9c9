/*-------------------------------------------------------------------------
 *
 * pairs.cu
 *	  Sums over the pairs of rows, for conjugate gradient.
 *
 * This is where a training's time goes: every pass reads a factor for each
 * pair, mostly from the L2 cache.  A warp takes a piece of a row.  Its groups
 * of lanes (als_lanes.cuh) take DEPTH pairs each at a time, whose factors are
 * loaded together, so that many loads are under way.
 *
 * The DEPTH scalar products of a group are added up over its lanes in a
 * butterfly that halves their number with each step.  At the end each lane
 * has one of them, weights it, and gives the weight to the others.
 *
 * Each piece writes its sum on its own, and rows.cu adds up the pieces of a
 * row in their order.
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
#define WARPS (THREADS / 32)

struct pairs_params
{
	const struct als_piece *pieces;
	uint32_t npieces;
	const gpuvec_als_entry *entries;
	const float *fixed;   /* factors of the other side */
	const float *vectors; /* [rows][stride] */
	const uint32_t *done;
	float *sums;
	float *rights;
	double *losses;
};

/* Pairs that a group of lanes takes at a time; no more than its lanes */
template <typename Shape>
struct depth_of
{
	static constexpr int value = Shape::K > 2 ? 2 : Shape::K > 1 || Shape::L < 8 ? 4 : 8;
};

/*
 * Add up N sums over groups of 2 * DISTANCE lanes.  At the end a[0] is one of
 * them, and c[0] the element of c with the same number.
 */
template <int N, int DISTANCE>
struct pairs_folding
{
	static __device__ __forceinline__ void
	run(float *a, float *c, uint32_t lane)
	{
		constexpr int M = N > 1 ? N / 2 : 1;
		bool upper = N > 1 && (lane & DISTANCE) != 0;

#pragma unroll
		for (int i = 0; i < M; i++)
		{
			float mine = upper ? a[N > 1 ? i + M : i] : a[i];
			float other = N == 1 ? a[i] : upper ? a[i] : a[N > 1 ? i + M : i];

			c[i] = upper ? c[N > 1 ? i + M : i] : c[i];
			a[i] = mine + __shfl_xor_sync(FULL_WARP, other, DISTANCE);
		}
		pairs_folding<M, DISTANCE / 2>::run(a, c, lane);
	}
};

template <int N>
struct pairs_folding<N, 0>
{
	static __device__ __forceinline__ void
	run(float *, float *, uint32_t)
	{
	}
};

/*
 * Entry i of a piece.  Behind its end the last one is repeated, with
 * confidence 0, which no entry has.
 */
static __device__ __forceinline__ uint2
piece_entry(const gpuvec_als_entry *entries, uint32_t i, uint32_t n)
{
	uint2 entry = __ldg((const uint2 *) entries + (i < n ? i : n - 1));

	if (i >= n)
		entry.y = 0;
	return entry;
}

/* Add up the vectors of all groups of a warp, and write the sum */
template <typename Shape>
static __device__ __forceinline__ void
write_sum(float4 *sum, float *out, uint32_t lane)
{
#pragma unroll
	for (int k = 0; k < Shape::K; k++)
	{
#pragma unroll
		for (int distance = Shape::L; distance < 32; distance *= 2)
		{
			sum[k].x += __shfl_xor_sync(FULL_WARP, sum[k].x, distance);
			sum[k].y += __shfl_xor_sync(FULL_WARP, sum[k].y, distance);
			sum[k].z += __shfl_xor_sync(FULL_WARP, sum[k].z, distance);
			sum[k].w += __shfl_xor_sync(FULL_WARP, sum[k].w, distance);
		}
		if (lane < Shape::L)
			*(float4 *) (out + 4 * (k * Shape::L + lane)) = sum[k];
	}
}

/* The loss of a pair: what it is more than (x.y)^2 */
static __device__ __forceinline__ double
pair_loss(float confidence, float product)
{
	double c = confidence;
	double d = product;
	double off = (c > 0 ? 1 : 0) - d;

	return confidence == 0 ? 0 : (c < 0 ? -c : c) * off * off - d * d;
}

/* What a warp adds up over a piece */
template <typename Shape>
struct piece_sums
{
	float4 sum[Shape::K];
	float4 right[Shape::K]; /* of the residual only */
	double loss;
};

/*
 * Add DEPTH pairs of each group, whose factors are y.  `weight` and `liked`
 * are what the lane has computed for its pair.
 */
template <typename Shape, bool RESIDUAL, int DEPTH>
static __device__ __forceinline__ void
add_pairs(struct piece_sums<Shape> &s, float4 (*y)[Shape::K], float weight, float liked,
		  uint32_t lane)
{
	constexpr int L = Shape::L;

#pragma unroll
	for (int i = 0; i < DEPTH; i++)
	{
		uint32_t owner = lane / L * L + i * (L / DEPTH);
		float w = __shfl_sync(FULL_WARP, weight, owner);
		float b = RESIDUAL ? __shfl_sync(FULL_WARP, liked, owner) : 0;

#pragma unroll
		for (int k = 0; k < Shape::K; k++)
		{
			add4(s.sum[k], w, y[i][k]);
			if (RESIDUAL)
				add4(s.right[k], b, y[i][k]);
		}
	}
}

/*
 * Weight DEPTH pairs of each group, given their factors y and confidences,
 * and add them
 */
template <typename Shape, bool RESIDUAL, int DEPTH>
static __device__ __forceinline__ void
take_pairs(struct piece_sums<Shape> &s, const float4 *v, float4 (*y)[Shape::K], float *confidences,
		   uint32_t lane)
{
	float products[DEPTH];
	float liked;
	float weight;

#pragma unroll
	for (int i = 0; i < DEPTH; i++)
	{
		products[i] = 0;
#pragma unroll
		for (int k = 0; k < Shape::K; k++)
			products[i] = dot4(v[k], y[i][k], products[i]);
	}
	pairs_folding<DEPTH, Shape::L / 2>::run(products, confidences, lane);

	/* L / DEPTH lanes have the same pair */
	liked = confidences[0] > 0 ? confidences[0] : 0;
	weight = confidences[0] == 0 ? 0 : (fabsf(confidences[0]) - 1) * products[0];
	if (RESIDUAL)
	{
		weight = liked - weight;
		if (lane % (Shape::L / DEPTH) == 0)
			s.loss += pair_loss(confidences[0], products[0]);
	}
	add_pairs<Shape, RESIDUAL, DEPTH>(s, y, weight, liked, lane);
}

/* Write what was added up over a piece */
template <typename Shape, bool RESIDUAL>
static __device__ __forceinline__ void
write_piece(const struct pairs_params &p, struct piece_sums<Shape> &s, uint64_t number,
			uint32_t lane)
{
	write_sum<Shape>(s.sum, p.sums + number * Shape::STRIDE, lane);
	if (!RESIDUAL)
		return;
	write_sum<Shape>(s.right, p.rights + number * Shape::STRIDE, lane);
#pragma unroll
	for (int distance = 16; distance > 0; distance /= 2)
		s.loss += __shfl_xor_sync(FULL_WARP, s.loss, distance);
	if (lane == 0)
		p.losses[number] = s.loss;
}

template <typename Shape, bool RESIDUAL>
static __global__ void
__launch_bounds__(THREADS) pairs_kernel(const __grid_constant__ struct pairs_params p)
{
	constexpr int L = Shape::L;
	constexpr int K = Shape::K;
	constexpr int DEPTH = depth_of<Shape>::value;
	constexpr int GROUPS = 32 / L;
	uint64_t number = (uint64_t) blockIdx.x * WARPS + threadIdx.x / 32;
	uint32_t lane = threadIdx.x % 32;
	uint32_t group = lane / L;
	const float *fixed = p.fixed + 4 * (lane % L);
	struct als_piece piece;
	const gpuvec_als_entry *entries;
	float4 v[K];
	uint2 next[DEPTH];
	struct piece_sums<Shape> s =
	{
	};

	if (number >= p.npieces)
		return;
	piece = p.pieces[number];
	if (!RESIDUAL && p.done[piece.row])
		return;
	entries = p.entries + piece.first;
#pragma unroll
	for (int i = 0; i < DEPTH; i++)
		next[i] = piece_entry(entries, i * GROUPS + group, piece.n);
#pragma unroll
	for (int k = 0; k < K; k++)
		v[k] = load4(p.vectors + (uint64_t) piece.row * Shape::STRIDE + 4 * (k * L + lane % L));
	for (uint32_t first = 0; first < piece.n; first += DEPTH * GROUPS)
	{
		float4 y[DEPTH][K];
		float confidences[DEPTH];

#pragma unroll
		for (int i = 0; i < DEPTH; i++)
#pragma unroll
			for (int k = 0; k < K; k++)
				y[i][k] = load4(fixed + (uint64_t) next[i].x * Shape::STRIDE + 4 * k * L);
#pragma unroll
		for (int i = 0; i < DEPTH; i++)
		{
			confidences[i] = __uint_as_float(next[i].y);
			next[i] = piece_entry(entries, first + (DEPTH + i) * GROUPS + group, piece.n);
		}
		take_pairs<Shape, RESIDUAL, DEPTH>(s, v, y, confidences, lane);
	}
	write_piece<Shape, RESIDUAL>(p, s, number, lane);
}

static struct pairs_params
make_params(const struct als_side_rows &side, const float *fixed, const float *vectors,
			const struct als_vectors &v)
{
	struct pairs_params p = {};

	p.pieces = side.pieces;
	p.npieces = side.npieces;
	p.entries = side.entries;
	p.fixed = fixed;
	p.vectors = vectors;
	p.done = v.done;
	p.sums = v.sums;
	p.rights = v.rights;
	p.losses = v.losses;
	return p;
}

cudaError_t
als_residual_launch(const struct als_side_rows &side, const float *fixed,
					const struct als_vectors &v, uint32_t stride, cudaStream_t stream)
{
	struct pairs_params p = make_params(side, fixed, side.factors, v);

	return with_shape(stride,
					  [&](auto shape)
					  {
						  return launch(pairs_kernel<decltype(shape), true>,
										divide_up(p.npieces, WARPS), THREADS, 0, stream, p);
					  });
}

cudaError_t
als_pairs_launch(const struct als_side_rows &side, const float *fixed, const struct als_vectors &v,
				 uint32_t stride, cudaStream_t stream)
{
	struct pairs_params p = make_params(side, fixed, v.p, v);

	return with_shape(stride,
					  [&](auto shape)
					  {
						  return launch(pairs_kernel<decltype(shape), false>,
										divide_up(p.npieces, WARPS), THREADS, 0, stream, p);
					  });
}

} // namespace gpuvec
