/*-------------------------------------------------------------------------
 *
 * dense.cu
 *	  Counts the ids that rows share with queries by products of bit matrices,
 *	  and emits the rows that may be among the best.
 *
 * Rows and queries are vectors of bits (dense_cells.cuh, dense_bits.cu).  The
 * instruction mma multiplies 16 queries by 8 rows and 256 cells, with AND for
 * multiplication, and adds the ones to what it is given.  That is minus the
 * number of cells that the query needs: so a row may qualify if and only if
 * the sum is not negative, and one AND of many sums tells whether none does.
 * There is no other work for a pair of row and query.
 *
 * A warp holds the vectors of 32 queries in registers while rows stream by.
 * A thread block has warps for up to 512 queries, and reads tiles of rows
 * into shared memory by asynchronous copies, a few steps of four tiles ahead.
 * If there are fewer queries, up to four warps share the tiles of a step.
 *
 * For a tile as a whole, lane q finds how many ids query q needs for its
 * bound (gpuvec_need).  Neighbouring tiles often have rows of the same
 * lengths, so this is done when lengths change.  A warp none of whose queries
 * can find such rows skips the tile.
 *
 * Cells may stand for several ids.  A query and a row with n common ids have
 * at least n - d common cells, where d is the number of the query's ids that
 * share a cell with an id before: common ids are in common cells, and of the
 * query's ids in a cell all but one count in d.  So the need is lowered by d,
 * and the ids of the pairs that remain are counted one by one.
 *
 * Pairs that may qualify wait in a queue of the warp until there are 32, so
 * that each lane scores one.
 *
 * Items, rounds and classes of tiles are those of scan.cu.  A block lists the
 * tiles of its item that are in the round's classes before it copies them.
 *
 * What it takes, with c chunks of 512 cells: a warp multiplies a tile by 16 c
 * instructions mma, of 1.5 cycles of a multiprocessor each at 5,200 * 10^12
 * products a second on an H200; it reads 2 c KiB of shared memory for that,
 * 16 c cycles of 24 c.  With 16 warps, c = 4 and 8.5 million rows, 2,000
 * queries take 265,625 tiles * 4 blocks / 132 multiprocessors * 1,536 cycles,
 * 6.9 ms at 1.8 GHz; with c = 2, 3.5 ms and what is counted again.  Below
 * about 64 queries reading 64 c bytes a row takes longer: 0.46 ms with c = 4.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/device/instructions.cuh"
#include "kernels/device/launch.h"
#include "kernels/search/dense_cells.cuh"
#include "kernels/search/emit.cuh"
#include "kernels/search/row_ids.cuh"

namespace gpuvec
{

#define DENSE_THREADS 512
#define DENSE_WARPS (DENSE_THREADS / 32)
#define WARP_QUERIES 32
#define STEP_TILES 4     /* tiles that are copied together */
#define LISTED_TILES 768 /* tiles that are listed at a time, at most */
#define TILE_GROUPS (GPUVEC_TILE_ROWS / ROW_GROUP)

/* Minus the need of a query that no row of a tile can reach */
#define OUT_OF_REACH (-(1 << 30))

extern __shared__ uint4 shared_memory[];

/* A tile to count */
struct __align__(8) dense_tile
{
	const uint4 *bits;
	uint32_t segment;
	uint32_t tile;
	uint32_t minlen;
	uint32_t maxlen;
};

/* What a warp keeps of a query, besides its vector */
struct query_part
{
	uint32_t len;
	float score;
	uint32_t doubles;
	uint32_t alive; /* nonzero: it has not overflowed */
};

/* Shared memory of a thread block; the steps' tiles follow */
struct __align__(16) dense_shared
{
	struct dense_tile list[LISTED_TILES];
	/* pairs of a warp: row in the segment and query << 16, and cells */
	uint2 hits[DENSE_WARPS][64];
	struct query_part query[DENSE_WARPS][WARP_QUERIES];
	uint32_t found[DENSE_WARPS]; /* tiles that each warp has found */
	uint32_t item;
	uint32_t padding[3];
};

/* The number of ids, or hot numbers, that query q and a row have in common */
static __device__ __forceinline__ uint32_t
count_ids(const struct dense_params &params, const struct device_segment *segment, uint32_t q,
		  uint32_t row)
{
	const uint32_t *has = params.exact + (size_t) q * params.exact_words;
	uint32_t common = 0;

	for_each_row_id(segment->ids + (size_t) segment->tiles[row / 32].x * 32, row % 32, segment->hot_len[row],
					[&](uint32_t id, uint32_t) { common += has[id / 32] >> id % 32 & 1; });
	return common;
}

/*
 * Score n pairs of a queue, a pair a lane.  Not inlined, and given values
 * only, so that the queries' vectors stay in registers.
 */
static __device__ __attribute__((noinline)) void
score_hits(const struct dense_params &params, const struct device_segment *segment,
		   const uint2 *hits, uint32_t first, uint32_t n)
{
	const struct candidate_sink sink = {params.scan.queries, params.scan.candidates,
										params.scan.capacity, params.scan.weights,
										params.scan.measure};
	uint32_t lane = threadIdx.x % 32;
	uint2 hit = hits[lane];
	uint32_t row = hit.x & 0xFFFF;
	uint32_t q = first + (hit.x >> 16);

	if (lane < n && row < segment->nrows &&
		(segment->live == NULL || segment->live[row / 32] >> row % 32 & 1))
	{
		uint32_t rowlen = segment->len[row];
		uint32_t common = params.exact != NULL ? count_ids(params, segment, q, row) : hit.y;

		emit_row(sink, q, &params.scan.queries[q].limits, common, rowlen, segment->tid[row]);
	}
	__syncwarp();
}

template <int CHUNKS>
struct dense_counter
{
	/* loads of a tile, and of a step */
	static constexpr uint32_t TILE_LOADS = TILE_GROUPS * CHUNKS * ROW_LOADS;
	static constexpr uint32_t STEP_LOADS = STEP_TILES * TILE_LOADS;

	const struct dense_params &params;
	struct dense_shared *shared;
	uint4 *steps;
	uint32_t warp;
	uint32_t lane;

	/* of the batch */
	uint32_t first; /* first query of the warp */
	bool working;   /* the warp has queries that have not overflowed */
	/* vectors of the queries: what each instruction takes of two groups */
	uint4 vectors[2 * CHUNKS][2];

	/* the lengths of the last tile, and what follows from them */
	uint32_t minlen;
	uint32_t maxlen;
	bool active;     /* some query can find such rows */
	int least[2][4]; /* minus the needs, as mma adds to them */

	/* the queue */
	const struct device_segment *segment;
	uint32_t nhits;

	__device__ __forceinline__
	dense_counter(const struct dense_params &p)
		: params(p), shared((struct dense_shared *) shared_memory), steps((uint4 *) (shared + 1)),
		  warp(threadIdx.x / 32), lane(threadIdx.x % 32)
	{
	}

	/* Load this lane's part of the queries' vectors */
	__device__ __forceinline__ void
	load_vectors()
	{
		uint32_t ngroups = (params.scan.nqueries + QUERY_GROUP - 1) / QUERY_GROUP;

#pragma unroll
		for (int m = 0; m < 2; m++)
		{
			uint32_t group = first / QUERY_GROUP + m;
			const uint4 *from = params.bits + (size_t) group * CHUNKS * QUERY_LOADS + lane;

#pragma unroll
			for (int i = 0; i < 2 * CHUNKS; i++)
				vectors[i][m] = group < ngroups ? __ldcg(&from[i * 32]) : make_uint4(0, 0, 0, 0);
		}
	}

	/* Take the warp's queries of a batch */
	__device__ __forceinline__ void
	load_batch(uint32_t batch)
	{
		struct query_part mine = {};
		uint32_t q;

		first = (batch * params.query_warps + warp % params.query_warps) * WARP_QUERIES;
		q = first + lane;
		if (q < params.scan.nqueries)
		{
			const struct query_state *query = &params.scan.queries[q];

			mine.alive = !query->overflow;
			mine.len = query->limits.len;
			mine.score = bound_score(query->limits.bound.hi);
			mine.doubles = params.doubles[q];
		}
		shared->query[warp][lane] = mine;
		working = __any_sync(FULL_WARP, mine.alive);
		load_vectors();
		minlen = ~0u;
		maxlen = 0;
	}

	/* Find what the queries need for rows of these lengths */
	__device__ __forceinline__ void
	set_lengths(uint32_t shortest, uint32_t longest)
	{
		const struct query_part &query = shared->query[warp][lane];
		int mine = OUT_OF_REACH;

		minlen = shortest;
		maxlen = longest;
		if (query.alive)
		{
			uint32_t need = gpuvec_need_with(params.scan.measure, params.scan.weights, query.len,
											 shortest, query.score);

			if (need <= min(query.len, longest))
				mine = need > query.doubles ? -(int) (need - query.doubles) : 0;
		}
		active = __any_sync(FULL_WARP, mine != OUT_OF_REACH);
#pragma unroll
		for (int half = 0; half < 4; half++)
		{
			int need = __shfl_sync(FULL_WARP, mine, half * 8 + lane / 4);

			least[half / 2][half % 2 * 2] = need;
			least[half / 2][half % 2 * 2 + 1] = need;
		}
	}

	/* Score all pairs of the queue */
	__device__ __forceinline__ void
	end_hits()
	{
		__syncwarp();
		if (nhits > 0)
			score_hits(params, segment, shared->hits[warp], first, nhits);
		nhits = 0;
	}

	/* Append a pair of each lane that has one */
	__device__ __forceinline__ void
	add_hits(bool has, uint32_t row, uint32_t q, uint32_t cells)
	{
		uint32_t votes = __ballot_sync(FULL_WARP, has);

		if (has)
			shared->hits[warp][nhits + __popc(votes & ((1u << lane) - 1))] =
				make_uint2(row | q << 16, cells);
		nhits += __popc(votes);
		if (nhits < 32)
			return;
		__syncwarp();
		score_hits(params, segment, shared->hits[warp], first, 32);
		nhits -= 32;
		if (lane < nhits)
			shared->hits[warp][lane] = shared->hits[warp][32 + lane];
		__syncwarp();
	}

	/* Append the pairs of 16 queries and eight rows whose sums qualify */
	__device__ __forceinline__ void
	add_sums(const int *sums, const int *needs, uint32_t q, uint32_t row)
	{
		if (!__any_sync(FULL_WARP, (sums[0] & sums[1] & sums[2] & sums[3]) >= 0))
			return;
#pragma unroll
		for (int i = 0; i < 4; i++)
			add_hits(sums[i] >= 0, row + lane % 4 * 2 + i % 2, q + i / 2 * 8 + lane / 4,
					 (uint32_t) (sums[i] - needs[i]));
	}

	/* Multiply the warp's queries by 16 rows */
	__device__ __forceinline__ void
	count_rows(const uint4 *rows, uint32_t row)
	{
		int sums[2][2][4];
		int all = -1;

#pragma unroll
		for (int c = 0; c < CHUNKS; c++)
#pragma unroll
			for (int r = 0; r < 2; r++)
			{
				uint4 b = rows[(r * CHUNKS + c) * ROW_LOADS];

#pragma unroll
				for (int m = 0; m < 2; m++)
				{
					multiply_bits(sums[r][m], vectors[2 * c][m], b.x, b.y,
								  c == 0 ? least[m] : sums[r][m]);
					multiply_bits(sums[r][m], vectors[2 * c + 1][m], b.z, b.w, sums[r][m]);
				}
			}
#pragma unroll
		for (int i = 0; i < 16; i++)
			all &= sums[i / 8][i / 4 % 2][i % 4];
		if (!__any_sync(FULL_WARP, all >= 0))
			return;
#pragma unroll
		for (int i = 0; i < 4; i++)
			add_sums(sums[i / 2][i % 2], least[i % 2], i % 2 * 16, row + i / 2 * 8);
	}

	/* Count a tile of a step */
	__device__ __forceinline__ void
	count_tile(const struct dense_tile &at, const uint4 *rows)
	{
		if (at.minlen != minlen || at.maxlen != maxlen)
			set_lengths(at.minlen, at.maxlen);
		if (!active)
			return;
		if (segment != &params.scan.segments[at.segment])
		{
			end_hits();
			segment = &params.scan.segments[at.segment];
		}
#pragma unroll 1
		for (uint32_t i = 0; i < GPUVEC_TILE_ROWS; i += 16)
			count_rows(rows + i / ROW_GROUP * CHUNKS * ROW_LOADS + lane,
					   at.tile * GPUVEC_TILE_ROWS + i);
	}

	/* Begin to copy the tiles of a step; called by the whole thread block */
	__device__ __forceinline__ void
	copy_step(uint32_t step, uint32_t ntiles)
	{
		uint4 *to = steps + step % params.nsteps * STEP_LOADS;

#pragma unroll
		for (uint32_t i = threadIdx.x; i < STEP_LOADS; i += DENSE_THREADS)
		{
			uint32_t tile = step * STEP_TILES + i / TILE_LOADS;

			if (tile < ntiles)
				copy_async(to + i, shared->list[tile].bits + i % TILE_LOADS);
		}
		copy_async_end();
	}

	/* Count the tiles of the list; called by the whole thread block */
	__device__ __forceinline__ void
	count_list(uint32_t ntiles)
	{
		uint32_t slots = min(DENSE_WARPS / params.query_warps, (uint32_t) STEP_TILES);
		uint32_t slot = warp / params.query_warps;

		segment = NULL;
		nhits = 0;
		for (uint32_t step = 0; step + 1 < params.nsteps; step++)
			copy_step(step, ntiles);
#pragma unroll 1
		for (uint32_t step = 0; step * STEP_TILES < ntiles; step++)
		{
			const uint4 *rows = steps + step % params.nsteps * STEP_LOADS;
			uint32_t n = min(ntiles - step * STEP_TILES, (uint32_t) STEP_TILES);

			copy_async_wait(params.nsteps > 2);
			__syncthreads();
			copy_step(step + params.nsteps - 1, ntiles);
			if (!working || slot >= slots)
				continue;
#pragma unroll 1
			for (uint32_t i = slot; i < n; i += slots)
				count_tile(shared->list[step * STEP_TILES + i], rows + i * TILE_LOADS);
		}
		end_hits();
		__syncthreads();
	}

	/* List the tiles of a group that are in the round's classes, from n on */
	__device__ __forceinline__ void
	list_group(bool take, uint2 where, uint32_t votes, uint32_t n)
	{
		const struct device_segment *desc = &params.scan.segments[where.x];
		uint32_t tile = where.y + lane;
		uint4 about;

		if (!take)
			return;
		about = desc->tiles[tile];
		shared->list[n + __popc(votes & ((1u << lane) - 1))] = {
			desc->bits + (size_t) tile * TILE_LOADS, where.x, tile, about.z, about.w};
	}

	/*
	 * List tiles of the groups from *group to end - 1, a group a warp, until
	 * there is no room for more.  Returns their number.
	 */
	__device__ __forceinline__ uint32_t
	list_tiles(uint32_t *group, uint32_t end)
	{
		uint32_t n = 0;

		for (; *group < end && n + DENSE_THREADS <= LISTED_TILES; *group += DENSE_WARPS)
		{
			uint2 where = make_uint2(0, 0);
			bool take = false;
			uint32_t votes;

			if (*group + warp < end)
			{
				const struct device_segment *desc;
				uint32_t hash;

				where = params.scan.groups[*group + warp];
				desc = &params.scan.segments[where.x];
				hash = tile_class(where.x, where.y + lane);
				take = desc->bit_chunks == CHUNKS && where.y + lane < desc->ntiles &&
					   hash >= params.scan.class_lo && hash < params.scan.class_hi;
			}
			votes = __ballot_sync(FULL_WARP, take);
			if (lane == 0)
				shared->found[warp] = __popc(votes);
			__syncthreads();
			for (uint32_t w = 0, at = n; w < DENSE_WARPS; w++)
			{
				if (w == warp)
					list_group(take, where, votes, at);
				at += shared->found[w];
				n += shared->found[w];
			}
			__syncthreads();
		}
		return n;
	}

	/* Count a range of groups; called by the whole thread block */
	__device__ __forceinline__ void
	count_range(uint32_t range)
	{
		uint32_t group = range * params.scan.range_groups;
		uint32_t end = min(group + params.scan.range_groups, params.scan.ngroups);

		while (group < end)
		{
			uint32_t n = list_tiles(&group, end);

			if (n > 0)
				count_list(n);
		}
	}

	/* The next item of the block; if the search is to end, none */
	__device__ __forceinline__ uint32_t
	take_item()
	{
		bool stop = *(volatile const uint32_t *) params.scan.stop != 0;

		__syncthreads();
		if (threadIdx.x == 0)
			shared->item = stop ? params.scan.nitems : atomicAdd(params.scan.next_item, 1);
		__syncthreads();
		return shared->item;
	}

	/* Count items until none is left */
	__device__ __forceinline__ void
	run()
	{
		uint32_t batch = ~0u;

		for (uint32_t item = take_item(); item < params.scan.nitems; item = take_item())
		{
			if (item % params.scan.nbatches != batch)
			{
				batch = item % params.scan.nbatches;
				load_batch(batch);
			}
			count_range(item / params.scan.nbatches);
		}
	}
};

template <int CHUNKS>
__global__ void
__launch_bounds__(DENSE_THREADS, 1) dense_kernel(const __grid_constant__ struct dense_params params)
{
	dense_counter<CHUNKS> counter(params);

	wait_for_previous();
	counter.run();
}

typedef void (*dense_function)(const struct dense_params);

/* The kernel for vectors of this number of chunks */
static dense_function
dense_variant(uint32_t chunks)
{
	static_assert(DENSE_CHUNKS == 4, "there is a kernel for each number of chunks");
	return chunks == 1   ? dense_kernel<1>
		   : chunks == 2 ? dense_kernel<2>
		   : chunks == 3 ? dense_kernel<3>
						 : dense_kernel<4>;
}

/* Allow the kernels as much shared memory as the device has */
cudaError_t
dense_prepare(size_t smem_limit)
{
	for (uint32_t chunks = 1; chunks <= DENSE_CHUNKS; chunks++)
	{
		cudaError_t rc =
			cudaFuncSetAttribute((const void *) dense_variant(chunks),
								 cudaFuncAttributeMaxDynamicSharedMemorySize, (int) smem_limit);

		if (rc != cudaSuccess)
			return rc;
	}
	return cudaSuccess;
}

/* Warps of a block that hold different queries: as many in each batch */
uint32_t
dense_query_warps(uint32_t nqueries)
{
	uint32_t warps = (nqueries + WARP_QUERIES - 1) / WARP_QUERIES;
	uint32_t batches = (warps + DENSE_WARPS - 1) / DENSE_WARPS;

	return (warps + batches - 1) / batches;
}

/* Launch; sets nsteps, which depends on the shared memory of the device */
cudaError_t
dense_launch(struct dense_params *params, uint32_t chunks, size_t smem_limit, uint32_t blocks,
			 cudaStream_t stream)
{
	size_t step = STEP_TILES * row_bits_bytes(GPUVEC_TILE_ROWS, chunks);

	params->nsteps = sizeof(struct dense_shared) + 4 * step <= smem_limit ? 4 : 2;
	return launch_chained(dense_variant(chunks), dim3(blocks), DENSE_THREADS,
						  sizeof(struct dense_shared) + params->nsteps * step, stream, *params);
}

} // namespace gpuvec
