/*-------------------------------------------------------------------------
 *
 * gram.cu
 *	  Gram matrices, and the loss.
 *
 * The Gram matrix is the sum of y y' over all rows.  Chunks of rows are added
 * up in float32, one block for a tile of the matrix and a chunk, and chunks
 * in float64 in their order, as on the CPU.  Rounds of chunks keep the
 * memory that this takes small.  Only tiles on the diagonal and above it are
 * computed; the matrix is symmetric.
 *
 * The loss needs the sum of (x.y)^2 over all pairs of users and items.  That
 * is the sum of the products of the elements of both Gram matrices:
 *
 *		sum of (x.y)^2 = sum over i, j of (sum of x_i x_j) (sum of y_i y_j)
 *
 * What the pairs in the table change of it was summed with the residual
 * (pairs.cu).
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
#define TILE 64
#define DEPTH 16 /* rows that are taken at a time */

/* Bytes of a round of chunks, and its most chunks */
#define ROUND_BYTES ((size_t) 64 << 20)
#define ROUND_CHUNKS 256

/* ---- chunks ---- */

struct gram_params
{
	const float *factors; /* [n][stride] */
	float *chunks;        /* [chunks of the round][stride][stride] */
	uint32_t n;
	uint32_t stride;
	uint32_t tiles; /* in each direction */
	uint32_t tile_pairs;
	uint32_t chunk_rows;
	uint32_t first; /* chunk of the round */
};

/* Tile `number` of those with i <= j */
static __device__ __forceinline__ void
find_tile(uint32_t number, uint32_t tiles, uint32_t &i, uint32_t &j)
{
	for (i = 0; number >= tiles - i; i++)
		number -= tiles - i;
	j = i + number;
}

/* Four columns of a row of this round of DEPTH rows; zeros behind the end */
static __device__ __forceinline__ float4
load_columns(const struct gram_params &p, uint64_t row, uint64_t end, uint32_t tile)
{
	uint32_t column = tile * TILE + threadIdx.x % 16 * 4;

	row += threadIdx.x / 16;
	return row < end && column < p.stride ? load4(p.factors + row * p.stride + column)
										  : make_float4(0, 0, 0, 0);
}

static __global__ void
__launch_bounds__(THREADS) gram_kernel(const __grid_constant__ struct gram_params p)
{
	__shared__ __align__(16) float left[2][DEPTH][TILE];
	__shared__ __align__(16) float right[2][DEPTH][TILE];
	uint32_t chunk = blockIdx.x / p.tile_pairs;
	uint64_t row = (uint64_t) (p.first + chunk) * p.chunk_rows;
	uint64_t end = min(row + p.chunk_rows, (uint64_t) p.n);
	float *out = p.chunks + (uint64_t) chunk * p.stride * p.stride;
	uint32_t at = threadIdx.x / 16;
	uint32_t column = threadIdx.x % 16 * 4;
	float4 sums[4] = {};
	float4 next[2];
	uint32_t i;
	uint32_t j;
	int now = 0;

	find_tile(blockIdx.x % p.tile_pairs, p.tiles, i, j);
	next[0] = load_columns(p, row, end, i);
	next[1] = load_columns(p, row, end, j);
	for (; row < end; row += DEPTH)
	{
		*(float4 *) &left[now][at][column] = next[0];
		*(float4 *) &right[now][at][column] = next[1];
		__syncthreads();
		next[0] = load_columns(p, row + DEPTH, end, i);
		next[1] = load_columns(p, row + DEPTH, end, j);
#pragma unroll
		for (int k = 0; k < DEPTH; k++)
		{
			float4 a = *(const float4 *) &left[now][k][at * 4];
			float4 b = *(const float4 *) &right[now][k][column];

			add4(sums[0], a.x, b);
			add4(sums[1], a.y, b);
			add4(sums[2], a.z, b);
			add4(sums[3], a.w, b);
		}
		now = 1 - now;
	}
#pragma unroll
	for (int k = 0; k < 4; k++)
		if (i * TILE + at * 4 + k < p.stride && j * TILE + column < p.stride)
			*(float4 *) (out + (uint64_t) (i * TILE + at * 4 + k) * p.stride + j * TILE + column) =
				sums[k];
}

/* ---- the sum of chunks ---- */

/* Threads that share an element, each of which adds up some chunks */
#define SLICES 8
#define ELEMENTS (THREADS / SLICES)

struct sum_params
{
	const float *chunks; /* [n][stride][stride] */
	uint32_t n;
	uint32_t stride;
	uint32_t nfactors;
	double regularization;
	bool begin; /* the first round */
	bool end;   /* the last round */
	double *sum;
	float *gram;
};

/* Write an element of the Gram matrix, and the same one below the diagonal */
static __device__ __forceinline__ void
write_element(const struct sum_params &p, uint32_t i, uint32_t j, double sum)
{
	uint64_t at = (uint64_t) i * p.stride + j;
	uint64_t mirrored = (uint64_t) j * p.stride + i;

	p.sum[at] = p.sum[mirrored] = sum;
	/* the padding stays zero */
	if (i == j && i < p.nfactors)
		sum += p.regularization;
	if (p.end)
		p.gram[at] = p.gram[mirrored] = (float) sum;
}

static __global__ void
__launch_bounds__(THREADS) sum_kernel(const __grid_constant__ struct sum_params p)
{
	__shared__ double slices[SLICES][ELEMENTS];
	uint32_t element = threadIdx.x % ELEMENTS;
	uint32_t slice = threadIdx.x / ELEMENTS;
	uint64_t square = (uint64_t) p.stride * p.stride;
	uint64_t at = (uint64_t) blockIdx.x * ELEMENTS + element;
	uint32_t i = (uint32_t) (at / p.stride);
	uint32_t j = (uint32_t) (at % p.stride);
	double sum = 0;

	if (i <= j)
#pragma unroll 4
		for (uint32_t chunk = slice; chunk < p.n; chunk += SLICES)
			sum += p.chunks[chunk * square + at];
	slices[slice][element] = sum;
	__syncthreads();
	if (slice > 0 || i > j)
		return;
	sum = p.begin ? 0 : p.sum[at];
	for (int k = 0; k < SLICES; k++)
		sum += slices[k][element];
	write_element(p, i, j, sum);
}

/* Chunks of a round */
static uint32_t
round_chunks(uint32_t stride)
{
	size_t square = (size_t) stride * stride * sizeof(float);

	return (uint32_t) std::min((size_t) ROUND_CHUNKS, ROUND_BYTES / square);
}

size_t
als_gram_scratch(uint32_t stride)
{
	return (size_t) round_chunks(stride) * stride * stride;
}

cudaError_t
als_gram_launch(const struct als_side_rows &side, float *chunks, uint32_t nfactors,
				double regularization, uint32_t stride, cudaStream_t stream)
{
	struct gram_params g = {};
	struct sum_params s = {};
	uint32_t most = round_chunks(stride);
	uint32_t nchunks;
	cudaError_t rc = cudaSuccess;

	g.factors = side.factors;
	s.chunks = g.chunks = chunks;
	g.n = side.nrows;
	s.stride = g.stride = stride;
	g.tiles = (uint32_t) divide_up(stride, TILE);
	g.tile_pairs = g.tiles * (g.tiles + 1) / 2;
	g.chunk_rows = stride < 256 ? 512 : 1024;
	nchunks = (uint32_t) std::max(divide_up(side.nrows, g.chunk_rows), (uint64_t) 1);
	s.nfactors = nfactors;
	s.regularization = regularization;
	s.sum = side.sum;
	s.gram = side.gram;
	for (; rc == cudaSuccess && g.first < nchunks; g.first += most)
	{
		s.n = std::min(most, nchunks - g.first);
		s.begin = g.first == 0;
		s.end = g.first + s.n == nchunks;
		rc = launch(gram_kernel, (uint64_t) s.n * g.tile_pairs, THREADS, 0, stream, g);
		if (rc == cudaSuccess)
			rc = launch(sum_kernel, (uint64_t) stride * stride / ELEMENTS, THREADS, 0, stream, s);
	}
	return rc;
}

/* ---- the loss ---- */

struct loss_params
{
	const double *users; /* [stride][stride]: sums of x x' */
	const double *items;
	const double *losses; /* [npieces] */
	uint32_t npieces;
	uint32_t stride;
	double regularization;
	double *partials; /* [LOSS_BLOCKS] */
	double *loss;
};

/* The sum over a block, for thread 0 */
static __device__ __forceinline__ double
block_sum(double sum)
{
	__shared__ double sums[THREADS / 32];
	double total = 0;

#pragma unroll
	for (int distance = 16; distance > 0; distance /= 2)
		sum += __shfl_xor_sync(FULL_WARP, sum, distance);
	if (threadIdx.x % 32 == 0)
		sums[threadIdx.x / 32] = sum;
	__syncthreads();
	for (int i = 0; i < THREADS / 32; i++)
		total += sums[i];
	return total;
}

static __global__ void
__launch_bounds__(THREADS) loss_partials_kernel(const __grid_constant__ struct loss_params p)
{
	uint64_t square = (uint64_t) p.stride * p.stride;
	uint64_t thread = (uint64_t) blockIdx.x * THREADS + threadIdx.x;
	double sum = 0;

	for (uint64_t i = thread; i < square; i += LOSS_BLOCKS * THREADS)
	{
		sum += p.users[i] * p.items[i];
		if (i / p.stride == i % p.stride)
			sum += p.regularization * (p.users[i] + p.items[i]);
	}
	for (uint64_t i = thread; i < p.npieces; i += LOSS_BLOCKS * THREADS)
		sum += p.losses[i];
	sum = block_sum(sum);
	if (threadIdx.x == 0)
		p.partials[blockIdx.x] = sum;
}

static __global__ void
__launch_bounds__(THREADS) loss_kernel(const __grid_constant__ struct loss_params p)
{
	double sum = block_sum(threadIdx.x < LOSS_BLOCKS ? p.partials[threadIdx.x] : 0);

	if (threadIdx.x == 0)
		*p.loss = sum;
}

cudaError_t
als_loss_launch(const struct als_side_rows *sides, const struct als_vectors &v, double *partials,
				double *loss, double regularization, uint32_t stride, cudaStream_t stream)
{
	const struct als_side_rows &users = sides[GPUVEC_ALS_USERS];
	struct loss_params p = {users.sum, sides[GPUVEC_ALS_ITEMS].sum,
							v.losses,  users.npieces,
							stride,    regularization,
							partials,  loss};
	cudaError_t rc = launch(loss_partials_kernel, (uint64_t) LOSS_BLOCKS, THREADS, 0, stream, p);

	return rc == cudaSuccess ? launch(loss_kernel, (uint64_t) 1, THREADS, 0, stream, p) : rc;
}

} // namespace gpuvec
