/*-------------------------------------------------------------------------
 *
 * sparse_batch.cu
 *	  The scan of many queries at once by measures of sparse vectors.
 *
 * A row shares few ids with a query: of 115 pairs and 43, about one.  So the
 * numbers of the queries are transposed: a list tells which queries have a
 * number, with their weights.  A warp takes a row, and goes through the lists
 * of its numbers.  Each entry adds a term to the sum of its query.  The sums
 * of all queries lie in shared memory, of each warp its own.  Lists are read
 * one after another, and no query is twice in one, so lanes do not meet.
 *
 * Then each lane compares sums with the lines of their queries
 * (core/sparse_bound.h), which lie there as well, and clears them.  Few reach
 * their line.  What they must reach is computed exactly then, and the row is
 * scored for each such query (sparse_score.cuh).
 *
 * A sum is NO_HIT until a term is added.  A row without an id of a query is
 * told by this from one whose terms add up to 0.
 *
 * If all queries have one mask, as those of a batch mostly do, rows that are
 * not in it are left out at first.  Other masks are asked for each row that
 * reaches the line of a query.
 *
 * Numbers that are cold, and rows that have such, are treated as in
 * sparse_scan.cu.  No number needs to be told from padding: a row's length
 * says how many it has.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/device/launch.h"
#include "kernels/search/sparse_score.cuh"
#include "kernels/search/tile_walk.cuh"

namespace gpuvec
{

extern __shared__ uint4 shared_memory[];

#define MOST_WARPS 24
#define LEAST_WARPS 8

/* Loads overlap: numbers that a lane reads at a time, lists of a warp */
#define NUMBERS_AT_ONCE 4
#define LISTS_AT_ONCE 4

/* Bits of -0: no sum of terms has them, see add_entry() */
#define NO_HIT 0x80000000u

/* Shared memory of a thread block; lines and sums follow */
struct __align__(16) sparse_batch_shared
{
	struct tile_walk walk;
	uint32_t loose; /* a query wants rows without an id of it */
	uint32_t padding;
};

struct sparse_batcher
{
	const struct scan_params &params;
	struct sparse_batch_shared *shared;
	float4 *bases; /* of the lines, four queries each */
	float4 *slopes;
	float *sums; /* [params.stride] of the warp */
	gpuvec_sparse_measure measure;
	uint32_t lane;

	__device__ __forceinline__
	sparse_batcher(const struct scan_params &p)
		: params(p), shared((struct sparse_batch_shared *) shared_memory),
		  measure(gpuvec_scoring_sparse(p.scoring)), lane(threadIdx.x % 32)
	{
		bases = (float4 *) (shared + 1);
		slopes = bases + params.stride / 4;
		sums = (float *) (slopes + params.stride / 4) + (size_t) threadIdx.x / 32 * params.stride;
	}

	/* A query's bound as a score; NaN if there is none */
	__device__ __forceinline__ double
	bound_of(const struct query_state *query) const
	{
		uint64_t bound = query->limits.bound.hi;

		return bound == ~UINT64_C(0) ? NAN : gpuvec_key_score(bound);
	}

	/*
	 * Write lines, and clear sums.  Called by the whole thread block, which
	 * waits for one another before it reads them.
	 */
	__device__ __forceinline__ void
	begin()
	{
		bool loose = false;

		for (uint32_t i = threadIdx.x; i < params.stride; i += blockDim.x)
		{
			gpuvec_sparse_line line = {INFINITY, 0};

			if (i < params.nqueries && !params.queries[i].overflow)
			{
				double score = bound_of(&params.queries[i]);

				line = gpuvec_sparse_make_line(&params.sparse.queries[i].bound, score);
				loose |= !(score > 0);
			}
			((float *) bases)[i] = line.base;
			((float *) slopes)[i] = line.slope;
		}
		for (uint32_t i = lane; i < params.stride; i += 32)
			sums[i] = __uint_as_float(NO_HIT);
		if (threadIdx.x == 0)
			shared->loose = 0;
		__syncthreads();
		if (loose)
			shared->loose = 1;
	}

	/*
	 * Add a term to a sum.  The first may be rounded to -0, which the last
	 * addition makes 0.
	 */
	__device__ __forceinline__ void
	add_entry(struct sparse_entry entry, float value)
	{
		float sum = sums[entry.query];

		if (measure == GPUVEC_SPARSE_JACCARD)
			sum += entry.weight < value ? entry.weight : value;
		else
			sum = __fmaf_rn(entry.weight, value, sum);
		sums[entry.query] = __fadd_rn(sum, 0.0f);
	}

	/* Add the terms of each lane's list and value */
	__device__ __forceinline__ void
	add_lists(uint2 list, float value)
	{
		uint32_t pending = __ballot_sync(FULL_WARP, list.y > 0);

#pragma unroll 1
		while (pending != 0)
		{
			uint32_t first[LISTS_AT_ONCE];
			uint32_t n[LISTS_AT_ONCE];
			float values[LISTS_AT_ONCE];
			struct sparse_entry entry[LISTS_AT_ONCE];

#pragma unroll
			for (int i = 0; i < LISTS_AT_ONCE; i++)
			{
				int from = max(__ffs(pending) - 1, 0);

				first[i] = __shfl_sync(FULL_WARP, list.x, from);
				n[i] = __shfl_sync(FULL_WARP, list.y, from);
				values[i] = __shfl_sync(FULL_WARP, value, from);
				if (pending == 0)
					n[i] = 0;
				pending &= pending - 1;
				if (lane < n[i])
					entry[i] = params.sparse.entries[first[i] + lane];
			}
#pragma unroll
			for (int i = 0; i < LISTS_AT_ONCE; i++)
			{
				if (lane < n[i])
					add_entry(entry[i], values[i]);
#pragma unroll 1
				for (uint32_t at = lane + 32; at < n[i]; at += 32)
					add_entry(params.sparse.entries[first[i] + at], values[i]);
				__syncwarp();
			}
		}
	}

	/* Add the terms of a row of a tile that begins at a chunk */
	__device__ __forceinline__ void
	add_row(const struct device_segment *segment, uint32_t chunk, uint32_t r, uint32_t len)
	{
		/* number p of the row is ids[first + p / 8 * 256 + p % 8] */
		size_t first = ((size_t) chunk * 32 + r) * 8;
		const uint16_t *ids = (const uint16_t *) segment->ids + first;

#pragma unroll 1
		for (uint32_t begin = 0; begin < len; begin += 32 * NUMBERS_AT_ONCE)
		{
			uint32_t number[NUMBERS_AT_ONCE];
			float value[NUMBERS_AT_ONCE];
			uint2 list[NUMBERS_AT_ONCE];

#pragma unroll
			for (int i = 0; i < NUMBERS_AT_ONCE; i++)
			{
				uint32_t p = begin + 32 * i + lane;
				size_t at = (size_t) (p / 8) * 256 + p % 8;

				number[i] = p < len ? __ldg(&ids[at]) : ~0u;
				value[i] = p < len && segment->values ? __ldg(&segment->values[first + at]) : 1;
			}
#pragma unroll
			for (int i = 0; i < NUMBERS_AT_ONCE; i++)
				list[i] = number[i] != ~0u ? params.sparse.lists[number[i]] : make_uint2(0, 0);
#pragma unroll
			for (int i = 0; i < NUMBERS_AT_ONCE; i++)
				add_lists(list[i], value[i]);
		}
	}

	/* True if a row of a tile may rank for query q, by its sum */
	__device__ __forceinline__ bool
	may_rank(const struct device_segment *segment, uint32_t tile, uint32_t row, uint32_t q,
			 float sum) const
	{
		const struct query_state *query = &params.queries[q];
		bool hit = __float_as_uint(sum) != NO_HIT;
		double score = bound_of(query);
		float least = 0;

		if (query->overflow || !(mask_word(&query->limits, segment, tile) >> row % 32 & 1))
			return false;
		if (sparse_row_refused(measure, segment, row))
			return true;
		if (hit)
			least = gpuvec_sparse_least(&params.sparse.queries[q].bound, score,
										sparse_row_square(segment, row),
										sparse_row_own(measure, segment, row));
		return gpuvec_sparse_wanted(sum, hit, least, score);
	}

	/* Score a row for query q, and append it if it ranks; the whole warp */
	__device__ __forceinline__ void
	score_row(const struct device_segment *segment, uint32_t row, uint32_t q, bool hit)
	{
		const struct candidate_sink sink = {params.queries, params.candidates, params.capacity,
											params.scoring};
		const struct query_limits *limits = &params.queries[q].limits;
		struct sparse_shared_sum one = {0, 0};
		struct row_key key;

		if (hit)
			one = sum_terms<false>(params.sparse, q, segment, row);
		if (lane == 0 &&
			rank_score(limits, sparse_row_score(&params.sparse.queries[q], segment, row, one.sum),
					   one.common, key_of_row(segment, row), &key))
			append_row(sink, q, key);
	}

	/* True if a sum has a term, and a row of this place may rank by it */
	static __device__ __forceinline__ bool
	reaches_line(float sum, float base, float slope, float place)
	{
		return __float_as_uint(sum) != NO_HIT && gpuvec_sparse_reaches(sum, {base, slope}, place);
	}

	/*
	 * Compare a row's sums with the lines, clear them, and score the row for
	 * those queries for which it may rank.  all: for all queries, as it is
	 * refused.
	 */
	__device__ __forceinline__ void
	compare_row(const struct device_segment *segment, uint32_t tile, uint32_t row, float place,
				bool all)
	{
		bool loose = all || shared->loose;
		float4 none;

		none.x = none.y = none.z = none.w = __uint_as_float(NO_HIT);
#pragma unroll 1
		for (uint32_t i = lane; i < params.stride / 4; i += 32)
		{
			const float4 sum = ((float4 *) sums)[i];
			const float4 base = bases[i];
			const float4 slope = slopes[i];
			bool reaches = loose || reaches_line(sum.x, base.x, slope.x, place) ||
						   reaches_line(sum.y, base.y, slope.y, place) ||
						   reaches_line(sum.z, base.z, slope.z, place) ||
						   reaches_line(sum.w, base.w, slope.w, place);

			((float4 *) sums)[i] = none;
			if (!__any_sync(FULL_WARP, reaches))
				continue;
#pragma unroll 1
			for (int j = 0; j < 4; j++)
			{
				uint32_t q = i * 4 + j;
				float one = j == 0 ? sum.x : j == 1 ? sum.y : j == 2 ? sum.z : sum.w;
				bool hit = __float_as_uint(one) != NO_HIT;
				bool mine = reaches && q < params.nqueries && may_rank(segment, tile, row, q, one);

				for (uint32_t pending = __ballot_sync(FULL_WARP, mine); pending != 0;
					 pending &= pending - 1)
				{
					int from = __ffs(pending) - 1;

					score_row(segment, row, __shfl_sync(FULL_WARP, q, from),
							  __shfl_sync(FULL_WARP, (int) hit, from));
				}
			}
		}
		__syncwarp();
	}

	/* Scan one tile, which begins at a chunk; called by one warp */
	__device__ __forceinline__ void
	scan_tile(const struct device_segment *segment, uint32_t tile, uint32_t chunk)
	{
		uint32_t row = tile * 32 + lane;
		uint32_t live = segment->live ? segment->live[tile] : ~0u;
		uint32_t mask = params.mask ? params.mask[segment->first_tile + tile] : ~0u;
		bool takes = row < segment->nrows && (live & mask) >> lane & 1;
		uint32_t len = takes ? segment->hot_len[row] : 0;
		bool refused = takes && sparse_row_refused(measure, segment, row);
		float place = takes ? gpuvec_sparse_place(measure, sparse_row_square(segment, row),
												  sparse_row_own(measure, segment, row))
							: 0;

#pragma unroll 1
		for (uint32_t pending = __ballot_sync(FULL_WARP, takes); pending != 0;
			 pending &= pending - 1)
		{
			int r = __ffs(pending) - 1;

			add_row(segment, chunk, r, __shfl_sync(FULL_WARP, len, r));
			compare_row(segment, tile, tile * 32 + r, __shfl_sync(FULL_WARP, place, r),
						__shfl_sync(FULL_WARP, (int) refused, r));
		}
	}

	/* Take items until none is left */
	__device__ __forceinline__ void
	run()
	{
		uint32_t item;

		begin();
		while (take_item(params, &shared->walk, &item))
			walk_range(params, &shared->walk, item,
					   [this](uint32_t group, uint32_t offset, uint32_t n)
					   {
						   walk_strip(params, group, offset, n,
									  [this](const struct device_segment *segment, uint32_t tile,
											 uint32_t chunk, uint32_t)
									  { scan_tile(segment, tile, chunk); });
					   });
	}
};

__global__ void
__launch_bounds__(MOST_WARPS * 32, 1)
	sparse_batch_kernel(const __grid_constant__ struct scan_params params)
{
	sparse_batcher s(params);

	wait_for_previous();
	s.run();
}

/* Allow the kernel as much shared memory as the device has */
cudaError_t
sparse_batch_prepare(size_t smem_limit)
{
	return cudaFuncSetAttribute((const void *) sparse_batch_kernel,
								cudaFuncAttributeMaxDynamicSharedMemorySize, (int) smem_limit);
}

/* Sums of a warp for so many queries */
uint32_t
sparse_batch_stride(uint32_t nqueries)
{
	return (nqueries + SPARSE_BATCH_UNIT - 1) / SPARSE_BATCH_UNIT * SPARSE_BATCH_UNIT;
}

/* The warps of a block for which there is shared memory; 0: for too few */
uint32_t
sparse_batch_warps(uint32_t nqueries, size_t smem_limit)
{
	size_t sums = sizeof(float) * sparse_batch_stride(nqueries);
	size_t taken = sizeof(struct sparse_batch_shared) + 2 * sums;
	size_t warps = smem_limit > taken ? (smem_limit - taken) / sums : 0;

	return warps < LEAST_WARPS ? 0 : warps < MOST_WARPS ? (uint32_t) warps : MOST_WARPS;
}

/* Bytes of shared memory of a block */
size_t
sparse_batch_shared_bytes(uint32_t nqueries, uint32_t warps)
{
	return sizeof(struct sparse_batch_shared) +
		   sizeof(float) * sparse_batch_stride(nqueries) * (2 + warps);
}

/* Find how many blocks run on a multiprocessor at once */
cudaError_t
sparse_batch_blocks(uint32_t warps, size_t shared_bytes, int *blocks)
{
	return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, sparse_batch_kernel, warps * 32,
														 shared_bytes);
}

cudaError_t
sparse_batch_launch(const struct scan_params *params, uint32_t warps, size_t shared_bytes,
					uint32_t blocks, cudaStream_t stream)
{
	return launch_chained(sparse_batch_kernel, dim3(blocks), warps * 32, shared_bytes, stream,
						  *params);
}

} // namespace gpuvec
