/*-------------------------------------------------------------------------
 *
 * near_scores.cu
 *	  Scores vectors against queries, and offers them as candidates.
 *
 * Scores are those of core/nearest.h, to the bit: sums in float64, in 16
 * lanes.  So 16 threads share a vector, one thread for each lane, and
 * exchange their lanes to fold them.  A group of 16 threads has several
 * vectors and several queries in registers at a time.  With several queries,
 * each step of the folding also divides the queries among the threads, so
 * that it costs little.
 *
 * The product of two float32 is exact in float64.  So a fused multiply-add
 * rounds like a product followed by a sum.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/embedding/nearest.cuh"

namespace gpuvec
{

static_assert(LANES == GPUVEC_LANES, "scores would be other bits");

/*
 * Vectors that a group of threads scores at a time, and how often a thread
 * block does this
 */
#define ROWS 4
#define SCORE_THREADS 128
#define SCORE_ROUNDS 8
#define BLOCK_ROWS (SCORE_THREADS / LANES * ROWS * SCORE_ROUNDS)

/* Add a row to a query's candidates, if it is live and within the bound */
static __device__ __forceinline__ void
offer(const struct near_params &p, uint32_t query, bool bounded, uint64_t bound_word, uint32_t slot,
	  double score)
{
	uint32_t number;

	if (score != score || (bounded && score_word(score) > bound_word) || !p.live[slot] ||
		(bounded && !within(p, p.states[query].bound, slot, score)))
		return;
	number = atomicAdd(&p.states[query].count, 1u);
	if (number < p.capacity)
	{
		p.slots[(uint64_t) query * p.capacity + number] = slot;
		p.scores[(uint64_t) query * p.capacity + number] = score;
	}
}

/*
 * Compute one lane of the sums that scores are made of, for ROWS vectors and
 * Q queries
 */
template <typename T, int METRIC, int Q>
static __device__ __forceinline__ void
sum_lanes(const struct near_params &p, const char *const (&vectors)[ROWS], const double *queries,
		  uint32_t lane, double (&sum)[ROWS][Q], double (&square)[ROWS])
{
#pragma unroll
	for (int r = 0; r < ROWS; r++)
	{
		square[r] = 0;
#pragma unroll
		for (int q = 0; q < Q; q++)
			sum[r][q] = 0;
	}
#pragma unroll 2
	for (uint32_t i = lane; i < p.padded_width; i += LANES)
	{
		double v[ROWS];

#pragma unroll
		for (int r = 0; r < ROWS; r++)
		{
			v[r] = i < p.width ? lane_element<T>(vectors[r], i) : 0;
			if (METRIC == GPUVEC_METRIC_COSINE)
				square[r] = fma(v[r], v[r], square[r]);
		}
#pragma unroll
		for (int q = 0; q < Q; q++)
		{
			double x = __ldg(queries + (uint64_t) q * p.padded_width + i);

#pragma unroll
			for (int r = 0; r < ROWS; r++)
			{
				if (METRIC == GPUVEC_METRIC_L2)
				{
					double d = x - v[r];

					sum[r][q] += d * d;
				}
				else
					sum[r][q] = fma(x, v[r], sum[r][q]);
			}
		}
	}
}

/* Compute a score from its sums */
template <int METRIC>
static __device__ __forceinline__ double
make_score(double sum, double query_square, double square)
{
	double squares = query_square * square;

	if (METRIC == GPUVEC_METRIC_L2)
		return 0 - sqrt(sum);
	if (METRIC == GPUVEC_METRIC_IP)
		return sum;
	return squares == 0 ? 0 : sum / sqrt(squares);
}

/* Score some rows against some queries */
template <typename T, int METRIC, int Q>
static __global__ void
__launch_bounds__(SCORE_THREADS) score_kernel(const __grid_constant__ struct near_params p)
{
	uint32_t tile = blockIdx.x % p.ntiles;
	uint64_t start = p.first + (uint64_t) (blockIdx.x / p.ntiles) * BLOCK_ROWS;
	uint32_t lane = threadIdx.x % LANES;
	uint32_t query = tile * Q + lane * Q / LANES;
	bool mine = lane * Q % LANES == 0 && query < p.nqueries;
	const struct near_query *state = &p.states[query < p.nqueries ? query : 0];
	bool bounded = state->bounded != 0;
	uint64_t bound_word = state->bound.word[0];
	double query_square = state->square;
	const double *queries = p.queries + (uint64_t) tile * Q * p.padded_width;

	for (int round = 0; round < SCORE_ROUNDS; round++)
	{
		uint64_t row =
			start + ((uint64_t) round * (SCORE_THREADS / LANES) + threadIdx.x / LANES) * ROWS;
		const char *vectors[ROWS];
		double sum[ROWS][Q];
		double square[ROWS];

		if (row - threadIdx.x / LANES * ROWS >= p.end)
			break;
#pragma unroll
		for (int r = 0; r < ROWS; r++)
			vectors[r] = p.elements + (row + r < p.end ? row + r : p.end - 1) * p.stride_bytes;
		sum_lanes<T, METRIC, Q>(p, vectors, queries, lane, sum, square);
#pragma unroll
		for (int r = 0; r < ROWS; r++)
		{
			folding<Q, LANES / 2>::run(sum[r], lane);
			if (METRIC == GPUVEC_METRIC_COSINE)
				folding<1, LANES / 2>::run(&square[r], lane);
			if (mine && row + r < p.end)
				offer(p, query, bounded, bound_word, (uint32_t) (row + r),
					  make_score<METRIC>(sum[r][0], query_square, square[r]));
		}
	}
}

/* Launch score_kernel for a number of queries */
template <typename T, int METRIC>
static cudaError_t
launch_score(struct near_params *params, cudaStream_t stream)
{
	uint64_t blocks = divide_up(params->end - params->first, BLOCK_ROWS);

	params->ntiles = params->nqueries == 1 ? 1 : (params->nqueries + QUERIES - 1) / QUERIES;
	if (params->nqueries == 1)
		return launch(score_kernel<T, METRIC, 1>, blocks, SCORE_THREADS, 0, stream, *params);
	return launch(score_kernel<T, METRIC, QUERIES>, blocks * params->ntiles, SCORE_THREADS, 0,
				  stream, *params);
}

template <typename T>
static cudaError_t
launch_metric(gpuvec_metric metric, struct near_params *params, cudaStream_t stream)
{
	switch (metric)
	{
		case GPUVEC_METRIC_COSINE:
			return launch_score<T, GPUVEC_METRIC_COSINE>(params, stream);
		case GPUVEC_METRIC_IP:
			return launch_score<T, GPUVEC_METRIC_IP>(params, stream);
		default:
			return launch_score<T, GPUVEC_METRIC_L2>(params, stream);
	}
}

cudaError_t
near_score(gpuvec_storage storage, gpuvec_metric metric, struct near_params *params,
		   cudaStream_t stream)
{
	return storage == GPUVEC_FLOAT16 ? launch_metric<__half>(metric, params, stream)
									 : launch_metric<float>(metric, params, stream);
}

} // namespace gpuvec
