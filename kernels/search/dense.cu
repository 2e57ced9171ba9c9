/*-------------------------------------------------------------------------
 *
 * dense.cu
 *	  Counts the ids that rows share with queries by products of bit matrices,
 *	  and emits the rows that may be among the best.
 *
 * Rows and queries are vectors of bits, one for each id (dense_cells.cuh,
 * dense_bits.cu).  The instruction mma multiplies 16 queries by 8 rows and 256
 * ids, with AND for multiplication, and adds the ones to its sums.  These are
 * compared with what the queries need; there is no other work for a pair of
 * row and query.
 *
 * A warp holds the vectors of 48 queries in registers while tiles of rows
 * stream by in shared memory.  A thread block has twelve warps, so that each
 * has the 168 registers that this takes.  If there are fewer queries, warps
 * that have the same ones take tiles in turn.
 *
 * The tiles to count are listed before (dense_tiles.cu).  A block takes units
 * of the list in turn with the other blocks, for one batch of queries after
 * the other.  All warps of a block see the same tiles in the same order, and
 * each copies half a tile to a ring of stages of four tiles, half a ring
 * before it counts them.  A stage has two barriers: one says that all have
 * copied their part, the other that all are done with it.  So warps need not
 * keep step: one that has rows to score falls behind by up to half a ring, and
 * catches up.  There is no warp that only copies, as it would have to be
 * given registers that the others need.
 *
 * For a tile as a whole, lane q finds how many ids queries q and q + 32 need
 * for their bounds (gpuvec_need).  Neighbouring tiles often have rows of the
 * same lengths, so this is done when lengths change.  A warp none of whose
 * queries can find such rows skips the tile.
 *
 * Pairs that may qualify wait in a queue of the warp until there are 32, so
 * that each lane scores one.
 *
 * Rows may have cold numbers, which the vectors lack.  So sums are of hot
 * numbers, as those of a scan, and lengths count all; cold_rows.cu has the
 * rest.
 *
 * Rounds and classes of tiles are those of scan.cu.
 *
 * What it takes, with c chunks of 512 ids: a warp multiplies a tile by 32 c
 * instructions mma, of 6 cycles of its quarter of a multiprocessor each, at
 * 5,200 * 10^12 products a second on an H200.  It reads 2 c KiB of shared
 * memory for that, 16 c cycles of 48 c.  With c = 4 and 8.5 million rows,
 * 2,000 queries take 265,625 tiles * 4 batches / 132 multiprocessors * 1,536
 * cycles, 6.8 ms at 1.8 GHz.  Of the 112 instructions for 16 rows 64 are mma,
 * 384 cycles; in the 80 cycles that follow the quarter's other warp
 * multiplies.  Below about 64 queries reading 64 c bytes a row takes longer:
 * 0.46 ms with c = 4.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>

#include "kernels/device/instructions.cuh"
#include "kernels/device/launch.h"
#include "kernels/search/dense_cells.cuh"
#include "kernels/search/emit.cuh"

namespace gpuvec
{

#ifndef DENSE_WARPS
#define DENSE_WARPS 12
#define WARP_QUERIES 48
#endif
#define DENSE_THREADS (DENSE_WARPS * 32)
#define WARP_GROUPS (WARP_QUERIES / QUERY_GROUP)
#define BATCH_QUERIES (DENSE_WARPS * WARP_QUERIES)
#define TILE_GROUPS (GPUVEC_TILE_ROWS / ROW_GROUP)
#define STAGE_TILES 4
#define TILE_THREADS (DENSE_THREADS / STAGE_TILES) /* copy a tile */
#define MOST_STAGES 16
#define SCORED 32 /* pairs that are scored together */
/* rows that are multiplied together, and how many pairs eight of them make */
#define STEP_ROWS 16
#define GROUP_PAIRS (ROW_GROUP * WARP_QUERIES)

/* What a query needs that no row of a tile can reach */
#define OUT_OF_REACH (1 << 30)

extern __shared__ uint4 shared_memory[];

/* Where a warp is in the ring */
struct ring_position
{
	uint32_t stage;
	uint32_t parity; /* changes with each round of the ring */

	__device__ __forceinline__ void
	advance(uint32_t nstages)
	{
		if (++stage == nstages)
		{
			stage = 0;
			parity ^= 1;
		}
	}
};

/* The tiles of a stage: none means that there is nothing more to count */
struct stage_head
{
	uint32_t ntiles;
	uint32_t batch; /* of queries */
};

/* What a warp keeps of a query, besides its vector */
struct query_part
{
	uint32_t len;
	uint32_t nids;
	float score;
	uint32_t alive; /* nonzero: it has not overflowed */
};

/* Shared memory of a thread block; the stages' rows follow */
struct __align__(16) dense_shared
{
	uint4 about[MOST_STAGES][STAGE_TILES]; /* of the tiles: segment, tile, minlen, most */
	struct stage_head head[MOST_STAGES];
	shared_barrier full[MOST_STAGES];
	shared_barrier done[MOST_STAGES];
	struct query_part query[DENSE_WARPS][WARP_QUERIES];
	uint2 pairs[DENSE_WARPS][SCORED + GROUP_PAIRS];
};

/*
 * A row that may qualify for a query of the warp: row in the segment, query
 * and numbers in common, of which there are at most 2,048
 */
static __device__ __forceinline__ uint2
pack_pair(uint32_t segment, uint32_t row, uint32_t query, uint32_t common)
{
	return make_uint2(row | query << 16 | segment >> 19 << 22, common | segment << 13);
}

static __device__ __forceinline__ uint32_t
pair_segment(uint2 pair)
{
	return pair.x >> 22 << 19 | pair.y >> 13;
}

/* The sum of a number over this lane and all lanes before it */
static __device__ __forceinline__ uint32_t
sum_upto_lane(uint32_t n)
{
	uint32_t lane = threadIdx.x % 32;

#pragma unroll
	for (uint32_t d = 1; d < 32; d *= 2)
	{
		uint32_t left = __shfl_up_sync(FULL_WARP, n, d);

		n += lane >= d ? left : 0;
	}
	return n;
}

/*
 * Score n pairs, a pair a lane.  Not inlined, and given values only, so that
 * the queries' vectors stay in registers.
 */
static __device__ __attribute__((noinline)) void
score_pairs(const struct dense_params &params, const uint2 *pairs, uint32_t first, uint32_t n)
{
	const struct candidate_sink sink = {params.scan.queries, params.scan.candidates,
										params.scan.capacity, params.scan.weights,
										params.scan.measure};
	uint32_t lane = threadIdx.x % 32;

	if (lane < n)
	{
		uint2 pair = pairs[lane];
		const struct device_segment *segment = &params.scan.segments[pair_segment(pair)];
		uint32_t row = pair.x & 0xFFFF;
		uint32_t q = first + (pair.x >> 16) % WARP_QUERIES;

		if (row < segment->nrows &&
			(segment->live == NULL || segment->live[row / 32] >> row % 32 & 1))
			emit_row(sink, q, &params.scan.queries[q].limits, pair.y & 0x1FFF, segment->len[row],
					 segment->tid[row]);
	}
	__syncwarp();
}

/*
 * A thread's part of copying tiles to the ring.  The list is cut into units;
 * the block takes every gridDim.x-th unit, of all batches in turn.
 */
template <int CHUNKS>
struct tile_reader
{
	static constexpr uint32_t TILE_LOADS = TILE_GROUPS * CHUNKS * ROW_LOADS;
	static constexpr uint32_t MY_LOADS = (TILE_LOADS + TILE_THREADS - 1) / TILE_THREADS;

	const struct dense_params &params;
	struct dense_shared *shared;
	uint32_t listed;   /* tiles of the list */
	uint32_t nunits;   /* of the list */
	uint32_t unit;     /* of all batches */
	uint32_t batch;    /* of the unit */
	uint32_t first;    /* tile of the unit in the list */
	uint32_t ntiles;   /* of the unit; 0: there is no unit */
	uint32_t next;     /* tile of the unit to read */
	const uint4 *bits; /* of the unit's tile of this lane */
	struct ring_position to;
	bool stopping; /* of the first thread: the search is to end */
	bool ended;    /* the stage that says so was filled */

	__device__ __forceinline__
	tile_reader(const struct dense_params &params, struct dense_shared *shared, uint32_t listed)
		: params(params), shared(shared), listed(listed),
		  nunits((listed + params.unit_tiles - 1) / params.unit_tiles), unit(blockIdx.x), batch(0),
		  first(0), bits(NULL), stopping(false), ended(false)
	{
		/* the barrier of a stage that was never used has parity 1 */
		to = {0, 1};
		begin_unit();
	}

	/* Find the unit's tiles */
	__device__ __forceinline__ void
	begin_unit()
	{
		uint32_t lane = threadIdx.x % 32;

		ntiles = next = 0;
		if (unit >= nunits * params.scan.nbatches)
			return;
		batch = unit / nunits;
		first = (unit - batch * nunits) * params.unit_tiles;
		ntiles = min(listed - first, params.unit_tiles);
		if (lane < ntiles)
			bits = (const uint4 *) __ldcg(
				(const unsigned long long *) &params.tiles[first + lane].bits);
		if (threadIdx.x == 0)
			stopping = *(volatile const uint32_t *) params.scan.stop != 0;
	}

	/* Copy this thread's part of a stage's tile */
	__device__ __forceinline__ void
	copy_tile(uint32_t mine, const uint4 *from)
	{
		uint32_t part = threadIdx.x % TILE_THREADS;
		uint4 *tile = (uint4 *) (shared + 1) + (to.stage * STAGE_TILES + mine) * TILE_LOADS;

#pragma unroll
		for (uint32_t i = 0; i < MY_LOADS; i++)
			if (TILE_LOADS % TILE_THREADS == 0 || part + i * TILE_THREADS < TILE_LOADS)
				copy_async(tile + part + i * TILE_THREADS, from + part + i * TILE_THREADS);
		if (part == 0)
			copy_async(&shared->about[to.stage][mine], &params.tiles[first + next + mine]);
	}

	/* Begin to copy the next tiles, as soon as a stage is free */
	__device__ __forceinline__ void
	read_next()
	{
		uint32_t mine = threadIdx.x / TILE_THREADS;
		const uint4 *from;

		if (ended)
			return;
		from = (const uint4 *) __shfl_sync(FULL_WARP, (unsigned long long) bits, (next + mine) % 32);
		barrier_wait(&shared->done[to.stage], to.parity);
		if (next + mine < ntiles)
			copy_tile(mine, from);
		if (threadIdx.x == 0)
			shared->head[to.stage] = {stopping ? 0 : min(ntiles - next, (uint32_t) STAGE_TILES),
									  batch};
		barrier_arrive_copied(&shared->full[to.stage]);
		barrier_arrive(&shared->full[to.stage]);
		to.advance(params.nstages);
		ended = ntiles == 0;
		next += STAGE_TILES;
		if (next >= ntiles)
		{
			unit += gridDim.x;
			begin_unit();
		}
	}
};

/* A warp that counts */
template <int CHUNKS>
struct dense_counter
{
	static constexpr uint32_t TILE_LOADS = TILE_GROUPS * CHUNKS * ROW_LOADS;
	static constexpr uint32_t GROUP_LOADS = CHUNKS * ROW_LOADS;

	const struct dense_params &params;
	struct dense_shared *shared;
	const uint4 *stages;
	uint32_t warp;
	uint32_t lane;

	/* of the batch */
	uint32_t batch;
	uint32_t first;  /* first query of the warp */
	uint32_t nslots; /* warps that have the same queries */
	uint32_t slot;   /* which of them this is */
	uint32_t turn;   /* whose turn the next tile is */
	/* vectors of the queries: what each instruction takes of each group */
	uint4 vectors[2 * CHUNKS][WARP_GROUPS];

	/* the lengths of the last tile, and what follows from them */
	uint32_t minlen;
	uint32_t most;
	bool active;               /* some query can find such rows */
	int needs[WARP_GROUPS][2]; /* of queries lane / 4 and lane / 4 + 8 of each group */

	uint32_t npairs; /* pairs that wait */

	__device__ __forceinline__
	dense_counter(const struct dense_params &p, struct dense_shared *s)
		: params(p), shared(s), stages((const uint4 *) (s + 1)), warp(threadIdx.x / 32),
		  lane(threadIdx.x % 32), batch(~0u), npairs(0)
	{
	}

	/* Load this lane's part of the queries' vectors */
	__device__ __forceinline__ void
	load_vectors()
	{
		uint32_t ngroups = (params.scan.nqueries + QUERY_GROUP - 1) / QUERY_GROUP;

#pragma unroll
		for (int m = 0; m < WARP_GROUPS; m++)
		{
			uint32_t group = first / QUERY_GROUP + m;
			const uint4 *from = params.bits + (size_t) group * CHUNKS * QUERY_LOADS + lane;

#pragma unroll
			for (int i = 0; i < 2 * CHUNKS; i++)
				vectors[i][m] = group < ngroups ? __ldcg(&from[i * 32]) : make_uint4(0, 0, 0, 0);
		}
	}

	/* What the warp keeps of a query */
	__device__ __forceinline__ struct query_part
	query_part_of(uint32_t q)
	{
		struct query_part part = {};

		if (q < params.scan.nqueries)
		{
			const struct query_state *query = &params.scan.queries[q];

			part.alive = !query->overflow;
			part.len = query->limits.len;
			part.nids = query->nids;
			part.score = bound_score(query->limits.bound.hi);
		}
		return part;
	}

	/*
	 * Take the warp's queries of a batch.  The last batch may have fewer than
	 * the block has warps for.
	 */
	__device__ __forceinline__ void
	load_batch(uint32_t which)
	{
		uint32_t begin = which * BATCH_QUERIES;
		uint32_t nqueries = min(params.scan.nqueries - begin, (uint32_t) BATCH_QUERIES);
		uint32_t nwarps = (nqueries + WARP_QUERIES - 1) / WARP_QUERIES;

		batch = which;
		nslots = DENSE_WARPS / nwarps;
		slot = warp / nwarps;
		turn = 0;
		first = begin + warp % nwarps * WARP_QUERIES;
		for (uint32_t i = lane; i < WARP_QUERIES; i += 32)
			shared->query[warp][i] = query_part_of(first + i);
		__syncwarp();
		load_vectors();
		minlen = ~0u;
		most = 0;
	}

	/* What query q of the warp needs for rows of the lengths */
	__device__ __forceinline__ int
	need_of(uint32_t q)
	{
		const struct query_part &query = shared->query[warp][q];
		uint32_t need = gpuvec_need_with(params.scan.measure, params.scan.weights, query.len,
										 minlen, query.score);

		return query.alive && need <= min(query.nids, most) ? (int) need : OUT_OF_REACH;
	}

	/* Find what the queries need for rows of these lengths */
	__device__ __forceinline__ void
	set_lengths(uint32_t shortest, uint32_t most_numbers)
	{
		int mine[2];

		minlen = shortest;
		most = most_numbers;
		mine[0] = need_of(lane);
		mine[1] = lane + 32 < WARP_QUERIES ? need_of(lane + 32) : OUT_OF_REACH;
		active = __any_sync(FULL_WARP, min(mine[0], mine[1]) != OUT_OF_REACH);
#pragma unroll
		for (int i = 0; i < 2 * WARP_GROUPS; i++)
			needs[i / 2][i % 2] = __shfl_sync(FULL_WARP, mine[i / 4], i % 4 * 8 + lane / 4);
	}

	/* Score the last n pairs that wait; n is 32 at most */
	__device__ __forceinline__ void
	score_last(uint32_t n)
	{
		npairs -= n;
		score_pairs(params, shared->pairs[warp] + npairs, first, n);
	}

	/* Score all pairs that wait: fewer than 32 */
	__device__ __forceinline__ void
	end_pairs()
	{
		if (npairs > 0)
			score_last(npairs);
	}

	/* Where this lane's n pairs go; counts those of all lanes */
	__device__ __forceinline__ uint2 *
	make_room(uint32_t n)
	{
		uint32_t upto = sum_upto_lane(n);
		uint2 *to = shared->pairs[warp] + npairs + upto - n;

		npairs += __shfl_sync(FULL_WARP, upto, 31);
		return to;
	}

	/* Append the pairs of eight rows of a segment, from `row` on, that may qualify */
	__device__ __forceinline__ void
	add_pairs(const int (*sums)[4], uint32_t segment, uint32_t row)
	{
		uint32_t n = 0;
		uint2 *to;

#pragma unroll
		for (int i = 0; i < WARP_GROUPS * 4; i++)
			n += sums[i / 4][i % 4] >= needs[i / 4][i % 4 / 2];
		if (!__any_sync(FULL_WARP, n > 0))
			return;
		to = make_room(n);
#pragma unroll
		for (int i = 0; i < WARP_GROUPS * 4; i++)
			if (sums[i / 4][i % 4] >= needs[i / 4][i % 4 / 2])
				*to++ = pack_pair(segment, row + lane % 4 * 2 + i % 2, i / 2 * 8 + lane / 4,
								  (uint32_t) sums[i / 4][i % 4]);
		__syncwarp();
#pragma unroll 1
		while (npairs >= SCORED)
			score_last(SCORED);
	}

	/* Multiply the warp's queries by 16 rows; the next ones are at `more` */
	__device__ __forceinline__ void
	multiply(int (*sums)[WARP_GROUPS][4], const uint4 *rows, const uint4 *more, uint4 *b)
	{
		const int none[4] = {0, 0, 0, 0};

#pragma unroll
		for (int c = 0; c < CHUNKS; c++)
		{
			const uint4 *from = c + 1 < CHUNKS ? rows + (c + 1) * ROW_LOADS : more;
			uint4 now[2] = {b[0], b[1]};

			b[0] = from[0];
			b[1] = from[GROUP_LOADS];
#pragma unroll
			for (int i = 0; i < 2 * WARP_GROUPS; i++)
				multiply_bits(sums[i % 2][i / 2], vectors[2 * c][i / 2], now[i % 2].x, now[i % 2].y,
							  c == 0 ? none : sums[i % 2][i / 2]);
#pragma unroll
			for (int i = 0; i < 2 * WARP_GROUPS; i++)
				multiply_bits(sums[i % 2][i / 2], vectors[2 * c + 1][i / 2], now[i % 2].z,
							  now[i % 2].w, sums[i % 2][i / 2]);
		}
	}

	/* True if a pair of some lane may qualify: a difference is not negative */
	__device__ __forceinline__ bool
	some_qualify(const int (*sums)[WARP_GROUPS][4])
	{
		int all = -1;

#pragma unroll
		for (int m = 0; m < WARP_GROUPS; m++)
#pragma unroll
			for (int h = 0; h < 2; h++)
				all &= max(max(sums[0][m][2 * h], sums[0][m][2 * h + 1]),
						   max(sums[1][m][2 * h], sums[1][m][2 * h + 1])) -
					   needs[m][h];
		return __any_sync(FULL_WARP, all >= 0);
	}

	/* Count a tile: about has segment, tile, minlen, most */
	__device__ __forceinline__ void
	count_tile(uint4 about, const uint4 *tile)
	{
		const uint4 *rows = tile + lane;
		uint32_t row = about.y * GPUVEC_TILE_ROWS;
		uint32_t end = row + GPUVEC_TILE_ROWS;
		uint4 b[2];

		if (about.z != minlen || about.w != most)
			set_lengths(about.z, about.w);
		if (!active)
			return;
		b[0] = rows[0];
		b[1] = rows[GROUP_LOADS];
#pragma unroll 1
		for (; row != end; row += STEP_ROWS)
		{
			/* after the last rows the first are loaded again, in vain */
			const uint4 *more = row + STEP_ROWS != end ? rows + 2 * GROUP_LOADS : rows;
			int sums[2][WARP_GROUPS][4];

			multiply(sums, rows, more, b);
			if (some_qualify(sums))
			{
				add_pairs(sums[0], about.x, row);
				add_pairs(sums[1], about.x, row + ROW_GROUP);
			}
			rows = more;
		}
	}

	/*
	 * Count the tiles of a stage, or leave them to other warps; false: there
	 * are none, the search ends
	 */
	__device__ __forceinline__ bool
	count_stage(uint32_t stage)
	{
		const struct stage_head head = shared->head[stage];
		const uint4 *tiles = stages + stage * (STAGE_TILES * TILE_LOADS);
		uint4 next = shared->about[stage][0];

		if (head.ntiles == 0)
			return false;
		if (head.batch != batch)
		{
			end_pairs();
			load_batch(head.batch);
		}
#pragma unroll 1
		for (uint32_t i = 0; i < head.ntiles; i++)
		{
			uint4 about = next;

			next = shared->about[stage][(i + 1) % STAGE_TILES];
			if (turn == slot)
				count_tile(about, tiles + i * TILE_LOADS);
			turn = turn + 1 == nslots ? 0 : turn + 1;
		}
		__syncwarp();
		return true;
	}

	/* Count the block's tiles */
	__device__ __forceinline__ void
	run(uint32_t listed)
	{
		tile_reader<CHUNKS> reader(params, shared, listed);
		struct ring_position from = {0, 0};

#pragma unroll 1
		for (uint32_t i = 0; i < params.nstages / 2; i++)
			reader.read_next();
#pragma unroll 1
		for (;;)
		{
			reader.read_next();
			barrier_wait(&shared->full[from.stage], from.parity);
			if (!count_stage(from.stage))
				break;
			if (lane == 0)
				barrier_arrive(&shared->done[from.stage]);
			from.advance(params.nstages);
		}
		end_pairs();
		wait_copies();
	}
};

/* Make the barriers; called by the whole thread block */
static __device__ __forceinline__ void
begin_ring(struct dense_shared *shared)
{
	if (threadIdx.x < MOST_STAGES)
	{
		/* a thread arrives at once, and when its copies are complete */
		barrier_make(&shared->full[threadIdx.x], 2 * DENSE_THREADS);
		barrier_make(&shared->done[threadIdx.x], DENSE_WARPS);
	}
	__syncthreads();
}

template <int CHUNKS>
__global__ void
__launch_bounds__(DENSE_THREADS, 1) dense_kernel(const __grid_constant__ struct dense_params params)
{
	struct dense_shared *shared = (struct dense_shared *) shared_memory;

	begin_ring(shared);
	wait_for_previous();
	dense_counter<CHUNKS>(params, shared).run(__ldcg(params.listed));
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

/* Queries of a batch */
uint32_t
dense_batch(void)
{
	return BATCH_QUERIES;
}

/* Bytes of a stage */
static size_t
stage_bytes(uint32_t chunks)
{
	return row_bits_bytes(STAGE_TILES * GPUVEC_TILE_ROWS, chunks);
}

/* Stages for which shared memory has room; 0: vectors cannot be counted */
uint32_t
dense_stages(uint32_t chunks, size_t smem_limit)
{
	if (smem_limit < sizeof(struct dense_shared))
		return 0;
	return (uint32_t) std::min((smem_limit - sizeof(struct dense_shared)) / stage_bytes(chunks),
							   (size_t) MOST_STAGES);
}

/* Launch; sets nstages */
cudaError_t
dense_launch(struct dense_params *params, size_t smem_limit, uint32_t blocks, cudaStream_t stream)
{
	params->nstages = dense_stages(params->chunks, smem_limit);
	return launch_chained(dense_variant(params->chunks), dim3(blocks), DENSE_THREADS,
						  sizeof(struct dense_shared) + params->nstages * stage_bytes(params->chunks), stream, *params);
}

} // namespace gpuvec
