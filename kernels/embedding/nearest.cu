/*-------------------------------------------------------------------------
 *
 * nearest.cu
 *	  Finds the vectors nearest to queries, by brute force.
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
 * Rows whose scores are within the bound become candidates of their query.
 * The bound is known only when some rows have been scored, so the table is
 * scored in rounds.  After each round select_best_kernel keeps each query's
 * best k candidates, in the order (score descending, key ascending, tid
 * ascending), and their bound.  The first round has no more rows than there
 * is room for candidates.  A later round has as many rows as would fill half
 * of the room if the rows were in random order.  If the room does not
 * suffice, the round is repeated with fewer rows.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device/lanes.cuh"
#include "kernels/embedding/cuda_embedding.h"

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

/*
 * Queries that a group of threads scores at a time, unless there is only one
 */
#define QUERIES 8

#define SELECT_THREADS 512

/* Queries per batch, at most */
#define MOST_QUERIES 4096

/*
 * The order of the rows of an answer: words are compared one after another
 */
struct near_order
{
	uint64_t word[3]; /* for the score, the key, the tid */
};

#define ORDER_DIGITS 24 /* bytes */

/* A query of a batch */
struct near_query
{
	struct near_order bound; /* candidates are not behind it */
	double square;           /* product of the query with itself */
	uint32_t bounded;        /* boolean: there is a bound */
	/* candidates, including those for which there was no room */
	uint32_t count;
};

struct near_params
{
	const char *elements;
	const int64_t *keys;
	const uint64_t *tids;
	const uint8_t *live;
	uint64_t stride_bytes;
	uint32_t width;
	uint32_t first; /* slots to score: first .. end - 1 */
	uint32_t end;
	const double *queries; /* [nqueries][padded_width], padded with zeros */
	uint32_t padded_width;
	uint32_t nqueries;
	uint32_t ntiles; /* tiles of queries */
	struct near_query *states;
	uint32_t *slots; /* [nqueries][capacity] */
	double *scores;
	uint32_t capacity;
	uint32_t k;
	uint32_t *best_slots; /* [nqueries][k] */
	double *best_scores;
};

/* The first word of a row's order: the greater the score, the smaller */
static __device__ __forceinline__ uint64_t
score_word(double score)
{
	uint64_t bits = (uint64_t) __double_as_longlong(score + 0.0); /* -0 is 0 */

	return (bits >> 63) != 0 ? bits : ~bits & ~(UINT64_C(1) << 63);
}

/* Word 0, 1 or 2 of a row's order */
static __device__ __forceinline__ uint64_t
order_word(const struct near_params &p, int number, uint32_t slot, double score)
{
	return number == 0   ? score_word(score)
		   : number == 1 ? (uint64_t) p.keys[slot] ^ (UINT64_C(1) << 63)
						 : p.tids[slot];
}

/* True if a row is not behind the bound */
static __device__ __forceinline__ bool
within(const struct near_params &p, const struct near_order &bound, uint32_t slot, double score)
{
	for (int i = 0; i < 3; i++)
	{
		uint64_t word = order_word(p, i, slot, score);

		if (word != bound.word[i])
			return word < bound.word[i];
	}
	return true;
}

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

/*
 * Find a digit of a row's order.  Returns false if the row's digits before it
 * differ from the prefix.
 */
static __device__ __forceinline__ bool
digit_of(const struct near_params &p, const struct near_order &prefix, int digit, uint32_t slot,
		 double score, uint32_t *value)
{
	int number = digit / 8;
	int shift = 56 - digit % 8 * 8;
	uint64_t word;

	for (int i = 0; i < number; i++)
		if (order_word(p, i, slot, score) != prefix.word[i])
			return false;
	word = order_word(p, number, slot, score);
	if (shift < 56 && (word ^ prefix.word[number]) >> (shift + 8) != 0)
		return false;
	*value = (uint32_t) (word >> shift) & 0xFF;
	return true;
}

/*
 * Find a bound that k of a query's candidates do not exceed, digit by digit,
 * from the highest on.  Called by a whole thread block.
 */
static __device__ void
find_bound(const struct near_params &p, const uint32_t *slots, const double *scores, uint32_t n,
		   struct near_order *bound)
{
	__shared__ uint32_t counts[256];
	__shared__ uint32_t found;
	__shared__ uint32_t before;
	uint32_t wanted = p.k;

	*bound = {{0, 0, 0}};
	for (int digit = 0; digit < ORDER_DIGITS; digit++)
	{
		int shift = 56 - digit % 8 * 8;
		bool done;

		for (uint32_t i = threadIdx.x; i < 256; i += blockDim.x)
			counts[i] = 0;
		__syncthreads();
		for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
		{
			uint32_t value;

			if (digit_of(p, *bound, digit, slots[i], scores[i], &value))
				atomicAdd(&counts[value], 1u);
		}
		__syncthreads();
		if (threadIdx.x == 0)
		{
			before = 0;
			for (found = 0; before + counts[found] < wanted; found++)
				before += counts[found];
		}
		__syncthreads();
		wanted -= before;
		bound->word[digit / 8] |= (uint64_t) found << shift;
		done = counts[found] == wanted;
		__syncthreads();
		if (done)
		{
			/* the bound includes all rows with this prefix */
			if (shift > 0)
				bound->word[digit / 8] |= (UINT64_C(1) << shift) - 1;
			for (int i = digit / 8 + 1; i < 3; i++)
				bound->word[i] = UINT64_MAX;
			break;
		}
	}
}

/* Keep the best k candidates of a query; one thread block per query */
static __global__ void
__launch_bounds__(SELECT_THREADS) select_best_kernel(const __grid_constant__ struct near_params p)
{
	__shared__ uint32_t warps[SELECT_THREADS / 32];
	struct near_query *state = &p.states[blockIdx.x];
	uint32_t *slots = p.slots + (uint64_t) blockIdx.x * p.capacity;
	double *scores = p.scores + (uint64_t) blockIdx.x * p.capacity;
	uint32_t n = state->count;
	uint32_t kept = 0;
	struct near_order bound;

	if (n < p.k)
		return;
	find_bound(p, slots, scores, n, &bound);
	for (uint32_t first = 0; first < n; first += blockDim.x)
	{
		uint32_t i = first + threadIdx.x;
		uint32_t slot = i < n ? slots[i] : 0;
		double score = i < n ? scores[i] : 0;
		bool keep = i < n && within(p, bound, slot, score);
		uint32_t votes = __ballot_sync(FULL_WARP, keep);
		uint32_t to = kept + __popc(votes & ((1u << threadIdx.x % 32) - 1));

		if (threadIdx.x % 32 == 0)
			warps[threadIdx.x / 32] = __popc(votes);
		__syncthreads();
		for (uint32_t w = 0; w < blockDim.x / 32; w++)
		{
			if (w < threadIdx.x / 32)
				to += warps[w];
			kept += warps[w];
		}
		if (keep)
		{
			slots[to] = slot;
			scores[to] = score;
		}
		__syncthreads();
	}
	if (threadIdx.x == 0)
	{
		state->bound = bound;
		state->bounded = 1;
		state->count = kept;
	}
}

/* Copy the best rows of all queries to one array */
static __global__ void
collect_kernel(const __grid_constant__ struct near_params p)
{
	uint64_t i = (uint64_t) blockIdx.x * blockDim.x + threadIdx.x;
	uint64_t query = i / p.k;
	uint32_t number = (uint32_t) (i % p.k);

	if (query < p.nqueries && number < p.states[query].count)
	{
		p.best_slots[i] = p.slots[query * p.capacity + number];
		p.best_scores[i] = p.scores[query * p.capacity + number];
	}
}

/* ---- the host's side ---- */

/* A batch of queries that is being served */
struct near_batch
{
	struct cuda_embedding &e;
	staged_stream &stream;
	const gpuvec_device_bank *bank;
	gpuvec_slot_search *search;
	uint32_t first; /* number of its first query */
	uint32_t nqueries;
	uint32_t capacity;
	struct near_params params;
	struct near_query *states; /* [nqueries], after the last round */
	struct near_query *after;  /* [nqueries], after the current round */
	unique_memory memory;
};

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

/* Copy the flags of live slots to the device, if they have changed */
static bool
send_live(struct cuda_embedding &e, staged_stream &stream, gpuvec_device_bank *bank,
		  const gpuvec_slot_search *search, gpuvec_error *error)
{
	std::lock_guard<std::mutex> guard(bank->mutex);

	if (bank->live_version == search->version)
		return true;
	bank->live_version = 0;
	if (!e.send(stream, bank->arrays.live, search->live, search->nlive, error) ||
		!e.finish(stream, error))
		return false;
	bank->live_version = search->version;
	return true;
}

/* Number of candidates to make room for, for one query */
static uint32_t
choose_capacity(const struct embedding_policy &policy, const gpuvec_slot_search *search)
{
	uint64_t more = std::max(search->k, policy.more_candidates);

	return (uint32_t) std::min((uint64_t) search->nlive, search->k + more);
}

/* Queries per batch */
static uint32_t
choose_batch(const struct embedding_policy &policy, const gpuvec_slot_search *search)
{
	size_t bytes = (size_t) choose_capacity(policy, search) * (sizeof(uint32_t) + sizeof(double));

	return (uint32_t) std::min(
		(size_t) search->nqueries,
		std::min(std::max(policy.candidate_bytes / bytes, (size_t) 1), (size_t) MOST_QUERIES));
}

/* Cut memory into the arrays of a batch */
static void
take_batch(struct arena *arena, struct near_batch *batch)
{
	struct near_params *p = &batch->params;

	p->queries = arena->take<double>((size_t) p->padded_width * (batch->nqueries + QUERIES - 1));
	p->states = arena->take<struct near_query>(batch->nqueries);
	p->slots = arena->take<uint32_t>((uint64_t) batch->nqueries * batch->capacity);
	p->scores = arena->take<double>((uint64_t) batch->nqueries * batch->capacity);
	p->best_slots = arena->take<uint32_t>((uint64_t) batch->nqueries * p->k);
	p->best_scores = arena->take<double>((uint64_t) batch->nqueries * p->k);
}

/* Allocate the device memory of a batch */
static bool
allocate_batch(struct near_batch *batch, gpuvec_error *error)
{
	struct arena arena = {NULL, 0};

	take_batch(&arena, batch);
	if (!batch->e.allocate(batch->memory, batch->stream, arena.used, "a search", error))
		return false;
	arena = {(char *) batch->memory.get(), 0};
	take_batch(&arena, batch);
	return true;
}

/* Send the queries of a batch, as float64 */
static bool
send_queries(struct near_batch *batch, gpuvec_error *error)
{
	const gpuvec_slot_search *search = batch->search;
	uint32_t width = batch->bank->width;
	uint32_t padded = batch->params.padded_width;
	/* the last query is repeated to fill the last tile */
	uint32_t n = batch->nqueries == 1 ? 1 : (batch->nqueries + QUERIES - 1) / QUERIES * QUERIES;
	double *queries = (double *) calloc((size_t) n * padded, sizeof(double));
	bool ok;

	if (queries == NULL)
		return gpuvec_fail_memory(error, (size_t) n * padded * sizeof(double));
	for (uint32_t i = 0; i < n; i++)
	{
		size_t from = batch->first + (size_t) std::min(i, batch->nqueries - 1);

		for (uint32_t j = 0; j < width; j++)
			queries[(size_t) i * padded + j] = search->queries[from * width + j];
	}
	ok = batch->e.send(batch->stream, (double *) batch->params.queries, queries,
					   (size_t) n * padded * sizeof(double), error);
	free(queries);
	return ok;
}

/* Send the states of the queries */
static bool
send_states(struct near_batch *batch, gpuvec_error *error)
{
	return batch->e.send(batch->stream, batch->params.states, batch->states,
						 batch->nqueries * sizeof(struct near_query), error);
}

/*
 * Score n slots from `first` on, and keep the best rows.  *overflow: there
 * was not enough room for candidates, and the states are as before.
 */
static bool
run_round(struct near_batch *batch, uint32_t first, uint32_t n, bool *overflow, gpuvec_error *error)
{
	static const char *const what = "search vectors on the GPU";
	struct near_params *p = &batch->params;
	struct cuda_embedding &e = batch->e;
	staged_stream &stream = batch->stream;
	struct near_query *swap = batch->states;

	p->first = first;
	p->end = first + n;
	if (!e.device.check(batch->bank->storage == GPUVEC_FLOAT16
							? launch_metric<__half>(batch->search->metric, p, stream.get())
							: launch_metric<float>(batch->search->metric, p, stream.get()),
						what, error) ||
		!e.fetch(stream, batch->after, p->states, batch->nqueries * sizeof(struct near_query),
				 error) ||
		!e.finish(stream, error))
		return false;
	*overflow = false;
	for (uint32_t i = 0; i < batch->nqueries; i++)
		*overflow |= batch->after[i].count > batch->capacity;
	if (*overflow)
		return send_states(batch, error);
	batch->states = batch->after;
	batch->after = swap;
	if (!e.device.check(launch(select_best_kernel, (uint64_t) batch->nqueries, SELECT_THREADS, 0,
							   stream.get(), *p),
						what, error) ||
		!e.fetch(stream, batch->states, p->states, batch->nqueries * sizeof(struct near_query),
				 error))
		return false;
	return e.finish(stream, error);
}

/* Number of rows of the next round, when `done` rows have been scored */
static uint32_t
next_round(const struct near_batch *batch, uint32_t done)
{
	uint32_t left = batch->search->nlive - done;
	uint32_t sure = batch->capacity - batch->params.k;
	double growth = exp(std::min(sure / 2.0 / batch->params.k, 40.0)) - 1;

	if (done == 0)
		return std::min(left, batch->capacity);
	return (uint32_t) std::min((double) left, std::max((double) sure, done * growth));
}

/* Copy the best rows of a batch to the caller's arrays */
static bool
fetch_best(struct near_batch *batch, gpuvec_error *error)
{
	struct near_params *p = &batch->params;
	gpuvec_slot_search *search = batch->search;
	uint64_t n = (uint64_t) batch->nqueries * p->k;
	uint64_t to = (uint64_t) batch->first * p->k;
	const uint64_t most = batch->e.policy.pinned_bytes / sizeof(double);

	for (uint32_t i = 0; i < batch->nqueries; i++)
		search->counts[batch->first + i] = batch->states[i].count;
	if (!batch->e.device.check(
			launch(collect_kernel, divide_up(n, 256), 256, 0, batch->stream.get(), *p),
			"search vectors on the GPU", error))
		return false;
	for (uint64_t at = 0; at < n; at += most)
	{
		uint64_t part = std::min(most, n - at);

		if (!batch->e.fetch(batch->stream, search->slots + to + at, p->best_slots + at,
							part * sizeof(uint32_t), error) ||
			!batch->e.finish(batch->stream, error) ||
			!batch->e.fetch(batch->stream, search->scores + to + at, p->best_scores + at,
							part * sizeof(double), error) ||
			!batch->e.finish(batch->stream, error))
			return false;
	}
	return true;
}

/* Serve a batch whose memory is allocated */
static bool
run_batch(struct near_batch *batch, gpuvec_error *error)
{
	const gpuvec_slot_search *search = batch->search;
	uint32_t done = 0;
	uint32_t limit = UINT32_MAX;

	for (uint32_t i = 0; i < batch->nqueries; i++)
		batch->states[i].square = search->squares[batch->first + i];
	if (!send_queries(batch, error) || !send_states(batch, error))
		return false;
	while (done < search->nlive && !is_canceled(search->canceled))
	{
		uint32_t n = std::min(next_round(batch, done), limit);
		bool overflow;

		if (!run_round(batch, done, n, &overflow, error))
			return false;
		if (overflow)
			limit = batch->capacity - batch->params.k;
		else
		{
			done += n;
			limit = limit > UINT32_MAX / 2 ? UINT32_MAX : limit * 2;
		}
	}
	return is_canceled(search->canceled) || fetch_best(batch, error);
}

/* The kernels' parameters for a batch, without the memory of the batch */
static struct near_params
describe_batch(const gpuvec_device_bank *bank, const gpuvec_slot_search *search, uint32_t nqueries,
			   uint32_t capacity)
{
	struct near_params p = {};

	p.elements = bank->arrays.elements;
	p.keys = bank->arrays.keys;
	p.tids = bank->arrays.tids;
	p.live = bank->arrays.live;
	p.stride_bytes = bank->stride_bytes;
	p.width = bank->width;
	p.padded_width = (bank->width + LANES - 1) / LANES * LANES;
	p.nqueries = nqueries;
	p.capacity = capacity;
	p.k = search->k;
	return p;
}

/* Serve some queries */
static bool
search_batch(struct cuda_embedding &e, staged_stream &stream, const gpuvec_device_bank *bank,
			 gpuvec_slot_search *search, uint32_t first, uint32_t nqueries, gpuvec_error *error)
{
	uint32_t capacity = choose_capacity(e.policy, search);
	struct near_query *states =
		(struct near_query *) calloc(2 * (size_t) nqueries, sizeof(*states));
	bool ok;

	if (states == NULL)
		return gpuvec_fail_memory(error, 2 * nqueries * sizeof(*states));

	struct near_batch batch = {e,        stream,
							   bank,     search,
							   first,    nqueries,
							   capacity, describe_batch(bank, search, nqueries, capacity),
							   states,   states + nqueries,
							   {}};

	ok = allocate_batch(&batch, error) && run_batch(&batch, error);
	free(states);
	return ok;
}

bool
nearest_request(gpuvec_vectors *vectors, gpuvec_device_bank *bank, gpuvec_slot_search *search,
				gpuvec_error *error)
{
	struct cuda_embedding &e = embedding_of(vectors);
	worker_loan worker = e.take_worker(error);
	uint32_t most = choose_batch(e.policy, search);
	bool ok;

	if (!worker)
		return false;
	ok = send_live(e, worker->streams[0], bank, search, error);
	for (uint32_t first = 0; ok && first < search->nqueries && !is_canceled(search->canceled);
		 first += most)
		ok = search_batch(e, worker->streams[0], bank, search, first,
						  std::min(most, search->nqueries - first), error);
	return worker->finish(ok, error);
}

} // namespace gpuvec
