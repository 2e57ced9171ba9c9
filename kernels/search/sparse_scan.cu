/*-------------------------------------------------------------------------
 *
 * sparse_scan.cu
 *	  The scan by measures of sparse vectors.
 *
 * A warp scans a tile of 32 rows for one query.  Lane r has row r, and adds up
 * the terms of its numbers as floats.  Most rows are skipped by their sums
 * (core/sparse_bound.h).  The others are scored (sparse_score.cuh), and those
 * that rank within the query's limits are candidates.
 *
 * The weights of the query lie in shared memory, by number, if there is room
 * for as many as the view has numbers.  Else a bitmap there tells which
 * numbers the query has, and how many come before each word.  So the weight's
 * place is known, and it is read from the query's list.
 *
 * Positions beyond a row's length hold the number 0, whose weight in the table
 * is therefore 0.  If the query has it, its term is added apart, by the rows'
 * first numbers.
 *
 * In a mirror with numbers of ids, only hot numbers are added up.  That is all
 * that a row outside C shares, and rows of C are left out (cold_rows.cu).  So
 * scores have no cold terms here, either: a row of C would otherwise be told
 * from itself no more.
 *
 * No length bounds a sum: each tile of the round is read.
 *
 * Thread blocks take items as in scan.cu.  An item is a range of tiles and a
 * query.  The queries of one range follow one another, so that its numbers
 * and values come from the L2 cache.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/device/launch.h"
#include "kernels/search/sparse_score.cuh"
#include "kernels/search/tile_walk.cuh"

namespace gpuvec
{

extern __shared__ uint4 shared_memory[];

#define SPARSE_THREADS 1024

/* Shared memory of a thread block; the table follows */
struct __align__(16) sparse_scan_shared
{
	struct query_limits limits;
	gpuvec_sparse_bound bound;
	double score; /* the bound; NaN if there is none */
	float first;  /* weight of the number 0, or 0 */
	struct tile_walk walk;
	uint32_t padding;
};

/* What a row's number adds, if the query has it with this weight */
enum sparse_kind
{
	WEIGHTS,         /* the weight: rows are sets */
	WEIGHTS_UP_TO_1, /* at most 1 */
	PRODUCTS,        /* the weight times the row's value */
	MINIMA           /* the smaller one */
};

/* Terms of a row, added up as floats */
struct float_sum
{
	float sum;
	bool hit; /* there is one at least */
};

static __device__ __forceinline__ void
add_term(struct float_sum *sum, int kind, float weight, float value)
{
	sum->hit |= weight != 0;
	if (kind == PRODUCTS)
		sum->sum = __fmaf_rn(weight, value, sum->sum);
	else if (kind == MINIMA)
		sum->sum += weight < value ? weight : value;
	else if (kind == WEIGHTS_UP_TO_1)
		sum->sum += weight < 1 ? weight : 1;
	else
		sum->sum += weight;
}

/*
 * WHOLE: the table has the weights of all numbers.  COUNTS: for a query that
 * counts rows.
 */
template <bool WHOLE, bool COUNTS>
struct sparse_scanner
{
	const struct scan_params &params;
	struct sparse_scan_shared *shared;
	void *table;
	uint32_t lane;

	/* of the query */
	uint32_t q;
	bool alive;           /* it has not overflowed */
	const float *weights; /* of its hot numbers, in their order */

	__device__ __forceinline__
	sparse_scanner(const struct scan_params &p)
		: params(p), shared((struct sparse_scan_shared *) shared_memory), table(shared + 1),
		  lane(threadIdx.x % 32), q(0), alive(false), weights(NULL)
	{
	}

	/* Write the weights of n numbers, which ascend, by number */
	__device__ __forceinline__ void
	write_weights(const uint16_t *ids, uint32_t n)
	{
		float *by_number = (float *) table;

		for (uint32_t i = threadIdx.x; i <= params.maxid; i += SPARSE_THREADS)
			by_number[i] = 0;
		__syncthreads();
		for (uint32_t i = threadIdx.x; i < n; i += SPARSE_THREADS)
			if (ids[i] != 0 && ids[i] <= params.maxid)
				by_number[ids[i]] = weights[i];
	}

	/* Write the bitmap, and beside each word how many numbers precede it */
	__device__ __forceinline__ void
	write_bitmap(const uint16_t *ids, uint32_t n)
	{
		uint2 *words = (uint2 *) table;

		for (uint32_t w = threadIdx.x; w <= params.maxid / 32; w += SPARSE_THREADS)
		{
			uint32_t lo = 0;
			uint32_t hi = n;

			/* the number 0 has no bit, but precedes all others */
			while (lo < hi)
			{
				uint32_t middle = (lo + hi) / 2;

				if (ids[middle] < max(w * 32, 1u))
					lo = middle + 1;
				else
					hi = middle;
			}
			words[w] = make_uint2(0, lo);
		}
		__syncthreads();
		for (uint32_t i = threadIdx.x; i < n; i += SPARSE_THREADS)
			if (ids[i] != 0 && ids[i] <= params.maxid)
				atomicOr(&words[ids[i] / 32].x, 1u << ids[i] % 32);
	}

	/* The weight of a number; 0 if the query does not have it */
	__device__ __forceinline__ float
	weight_of(uint32_t number) const
	{
		uint2 word;

		if constexpr (WHOLE)
			return ((const float *) table)[number];
		word = ((const uint2 *) table)[number / 32];
		if (!(word.x >> number % 32 & 1))
			return 0;
		return __ldg(&weights[word.y + __popc(word.x & ((1u << number % 32) - 1))]);
	}

	/* Make the table for a query; called by the whole thread block */
	__device__ __forceinline__ void
	load_query(uint32_t number)
	{
		const struct query_state *query = &params.queries[number];
		const uint16_t *ids = params.ids + query->ids;
		uint64_t bound = query->limits.bound.hi;

		q = number;
		alive = !query->overflow;
		weights = params.sparse.weights + query->ids;
		if (threadIdx.x == 0)
		{
			shared->limits = query->limits;
			shared->bound = params.sparse.queries[q].bound;
			shared->score = bound == ~UINT64_C(0) ? NAN : gpuvec_key_score(bound);
			shared->first = query->nids > 0 && ids[0] == 0 ? weights[0] : 0;
		}
		if constexpr (WHOLE)
			write_weights(ids, query->nids);
		else
			write_bitmap(ids, query->nids);
		__syncthreads();
	}

	/* Add up the terms of this lane's row; the tile begins at a chunk */
	template <int KIND>
	__device__ __forceinline__ struct float_sum
	add_row(const struct device_segment *segment, uint32_t chunk, uint32_t nchunks, uint32_t row)
	{
		const uint4 *ids = segment->ids + (size_t) chunk * 32 + lane;
		const float4 *values =
			KIND >= PRODUCTS ? (const float4 *) segment->values + ((size_t) chunk * 32 + lane) * 2
							 : NULL;
		struct float_sum sum = {0, false};

		if (shared->first != 0 && segment->hot_len[row] > 0 && (__ldcg(ids).x & 0xFFFF) == 0)
			add_term(&sum, KIND, shared->first, KIND >= PRODUCTS ? __ldg(values).x : 1);
#pragma unroll 2
		for (uint32_t c = 0; c < nchunks; c++)
		{
			uint4 numbers = __ldcg(&ids[(size_t) c * 32]);
			const uint32_t word[4] = {numbers.x, numbers.y, numbers.z, numbers.w};
			float4 a = {1, 1, 1, 1};
			float4 b = {1, 1, 1, 1};

			if constexpr (KIND >= PRODUCTS)
			{
				a = __ldg(&values[(size_t) c * 64]);
				b = __ldg(&values[(size_t) c * 64 + 1]);
			}

			const float value[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};

#pragma unroll
			for (int i = 0; i < 8; i++)
				add_term(&sum, KIND, weight_of(i % 2 ? word[i / 2] >> 16 : word[i / 2] & 0xFFFF),
						 value[i]);
		}
		return sum;
	}

	/* The same, by the measure and what rows are */
	__device__ __forceinline__ struct float_sum
	add_any_row(const struct device_segment *segment, uint32_t chunk, uint32_t nchunks,
				uint32_t row)
	{
		bool minima = shared->bound.measure == GPUVEC_SPARSE_JACCARD;

		if (segment->values == NULL)
			return minima ? add_row<WEIGHTS_UP_TO_1>(segment, chunk, nchunks, row)
						  : add_row<WEIGHTS>(segment, chunk, nchunks, row);
		return minima ? add_row<MINIMA>(segment, chunk, nchunks, row)
					  : add_row<PRODUCTS>(segment, chunk, nchunks, row);
	}

	/* True if a row with this sum may rank; without a hit its score is 0 */
	__device__ __forceinline__ bool
	may_rank(const struct device_segment *segment, uint32_t row, const struct float_sum &sum)
	{
		gpuvec_sparse_measure measure = shared->bound.measure;
		float least;

		if (sparse_row_refused(measure, segment, row))
			return true;
		if (!sum.hit)
			return gpuvec_sparse_wanted(0, false, 0, shared->score);
		least = gpuvec_sparse_least(&shared->bound, shared->score, sparse_row_square(segment, row),
									sparse_row_own(measure, segment, row));
		return gpuvec_sparse_wanted(sum.sum, true, least, shared->score);
	}

	/* Scan one tile, which begins at a chunk; called by one warp */
	__device__ __forceinline__ void
	scan_tile(const struct device_segment *segment, uint32_t tile, uint32_t chunk, uint32_t nchunks)
	{
		const struct candidate_sink sink = {params.queries, params.candidates, params.capacity,
											params.scoring, &params.counts};
		uint32_t row = tile * 32 + lane;
		uint32_t live = segment->live ? segment->live[tile] : ~0u;
		bool takes =
			row < segment->nrows && (live & mask_word(&shared->limits, segment, tile)) >> lane & 1;
		struct row_key key = {0, 0};
		struct float_sum sum;
		uint64_t tid;
		bool ranks;

		if (!__any_sync(FULL_WARP, takes))
			return;
		sum = add_any_row(segment, chunk, nchunks, row);
		takes = takes && may_rank(segment, row, sum);
		if (!__any_sync(FULL_WARP, takes))
			return;
		tid = key_of_row(segment, row);
		/* what shares nothing is known to have the sum 0 */
		ranks =
			takes && !sum.hit &&
			rank_score(&shared->limits,
					   sparse_row_score(&params.sparse.queries[q], segment, row, 0), 0, tid, &key);
		ranks |= rank_sparse<false>(params.sparse, q, &shared->limits, takes && sum.hit, segment,
									row, tid, &key);
		append_rows<COUNTS>(sink, q, ranks, key, warp_rows{segment, tile});
	}

	/* Take items until none is left */
	__device__ __forceinline__ void
	run()
	{
		uint32_t query = ~0u;
		uint32_t item;

		while (take_item(params, &shared->walk, &item))
		{
			if (item % params.nbatches != query)
			{
				query = item % params.nbatches;
				load_query(query);
			}
			if (alive)
				walk_range(params, &shared->walk, item / params.nbatches,
						   [this](uint32_t group, uint32_t offset, uint32_t n)
						   {
							   walk_strip(params, group, offset, n,
										  [this](const struct device_segment *segment,
												 uint32_t tile, uint32_t chunk, uint32_t nchunks)
										  { scan_tile(segment, tile, chunk, nchunks); });
						   });
		}
	}
};

template <bool WHOLE, bool COUNTS>
__global__ void
__launch_bounds__(SPARSE_THREADS, 1)
	sparse_scan_kernel(const __grid_constant__ struct scan_params params)
{
	sparse_scanner<WHOLE, COUNTS> s(params);

	wait_for_previous();
	s.run();
}

typedef void (*scan_function)(const struct scan_params);

static scan_function
sparse_variant(bool whole, bool counts)
{
	if (counts)
		return whole ? sparse_scan_kernel<true, true> : sparse_scan_kernel<false, true>;
	return whole ? sparse_scan_kernel<true, false> : sparse_scan_kernel<false, false>;
}

/* Allow the kernels as much shared memory as the device has */
cudaError_t
sparse_scan_prepare(size_t smem_limit)
{
	cudaError_t rc = cudaSuccess;

	for (int i = 0; i < 4 && rc == cudaSuccess; i++)
		rc = cudaFuncSetAttribute((const void *) sparse_variant(i % 2, i / 2),
								  cudaFuncAttributeMaxDynamicSharedMemorySize, (int) smem_limit);
	return rc;
}

/* Bytes of shared memory of a block for a table of numbers 0 .. maxid */
size_t
sparse_scan_shared_bytes(bool whole, uint32_t maxid)
{
	return sizeof(struct sparse_scan_shared) + (whole ? ((size_t) maxid + 1) * sizeof(float)
													  : ((size_t) maxid / 32 + 1) * sizeof(uint2));
}

uint32_t
sparse_scan_threads(void)
{
	return SPARSE_THREADS;
}

/* Find how many blocks run on a multiprocessor at once */
cudaError_t
sparse_scan_blocks(bool whole, size_t shared_bytes, int *blocks)
{
	return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, sparse_variant(whole, false),
														 SPARSE_THREADS, shared_bytes);
}

cudaError_t
sparse_scan_launch(const struct scan_params *params, bool whole, bool counts, size_t shared_bytes,
				   uint32_t blocks, cudaStream_t stream)
{
	return launch_chained(sparse_variant(whole, counts), dim3(blocks), SPARSE_THREADS, shared_bytes,
						  stream, *params);
}

} // namespace gpuvec
