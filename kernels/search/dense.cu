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
 * A warp holds the vectors of 64 queries in registers while tiles of rows
 * stream by in shared memory.  A thread block has eight warps, so that each
 * has the 255 registers that this takes.  If there are fewer queries, warps
 * that have the same ones take tiles in turn.
 *
 * The last warp is also the reader: between its own tiles it finds those of
 * the block's items that are in the round's classes, and begins to copy them
 * to a ring of stages.  Each stage has two barriers: one says that it was
 * filled, the other that all warps are done with it.  So warps need not keep
 * step: one that has rows to score falls behind by as many tiles as the ring
 * has, and catches up.
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
 * Items, rounds and classes of tiles are those of scan.cu.
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
#include "kernels/device/instructions.cuh"
#include "kernels/device/launch.h"
#include "kernels/search/dense_cells.cuh"
#include "kernels/search/emit.cuh"

namespace gpuvec
{

#define DENSE_WARPS 8
#define DENSE_THREADS (DENSE_WARPS * 32)
#define READER (DENSE_WARPS - 1)
#define WARP_QUERIES 64
#define WARP_GROUPS (WARP_QUERIES / QUERY_GROUP)
#define BATCH_QUERIES (DENSE_WARPS * WARP_QUERIES)
#define LISTED_GROUPS 32 /* groups whose tiles are listed at a time */
#define TILE_GROUPS (GPUVEC_TILE_ROWS / ROW_GROUP)
#define MOST_STAGES 32
#define SCORED 32 /* pairs that are scored together */
/* rows that are multiplied together, and how many pairs eight of them make */
#define STEP_ROWS 16
#define GROUP_PAIRS (ROW_GROUP * WARP_QUERIES)

/* What a query needs that no row of a tile can reach */
#define OUT_OF_REACH (1 << 30)

/* The number of the segment after the last tile */
#define NO_SEGMENT UINT32_MAX

extern __shared__ uint4 shared_memory[];

/* A tile to count */
struct __align__(16) dense_tile
{
	uint32_t segment;
	uint32_t tile;
	uint32_t minlen; /* of the shortest row */
	uint32_t most;   /* hot numbers of a row */
	const uint4 *bits;
	uint32_t batch; /* of queries */
	uint32_t padding;
};

/* Where a warp is in the ring */
struct ring_position
{
	uint32_t tile; /* how many were before */
	uint32_t stage;
	uint32_t parity; /* changes with each round of the ring */

	__device__ __forceinline__ void
	advance(uint32_t nstages)
	{
		tile++;
		if (++stage == nstages)
		{
			stage = 0;
			parity ^= 1;
		}
	}
};

/* Where the reader is */
struct reader_position
{
	struct ring_position at; /* the stage to fill next */
	uint32_t ended;          /* nonzero: all tiles were read */
	uint32_t batch;          /* of the item */
	uint32_t group;          /* of the item: the next one to list */
	uint32_t end;            /* after its last group */
	uint32_t nlisted;        /* tiles in list[], and how many are in next[] or read */
	uint32_t listed;
	uint32_t nnext; /* tiles in next[], and how many are read */
	uint32_t next;
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
	struct dense_tile stage[MOST_STAGES];
	struct dense_tile next[32]; /* the reader's next tiles */
	shared_barrier full[MOST_STAGES];
	shared_barrier done[MOST_STAGES];
	struct query_part query[DENSE_WARPS][WARP_QUERIES];
	/* pairs: row in the segment and query << 16, and numbers in common */
	uint2 pairs[DENSE_WARPS][SCORED + GROUP_PAIRS];
	/* what the reader has found: segment and tile */
	uint2 list[LISTED_GROUPS * 32];
	struct reader_position reader;
};

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
score_pairs(const struct dense_params &params, const struct device_segment *segment,
			const uint2 *pairs, uint32_t first, uint32_t n)
{
	const struct candidate_sink sink = {params.scan.queries, params.scan.candidates,
										params.scan.capacity, params.scan.weights,
										params.scan.measure};
	uint32_t lane = threadIdx.x % 32;
	uint2 pair = pairs[lane];
	uint32_t row = pair.x & 0xFFFF;
	uint32_t q = first + (pair.x >> 16);

	if (lane < n && row < segment->nrows &&
		(segment->live == NULL || segment->live[row / 32] >> row % 32 & 1))
		emit_row(sink, q, &params.scan.queries[q].limits, pair.y, segment->len[row],
				 segment->tid[row]);
	__syncwarp();
}

/* Finds tiles and copies them; used by a whole warp */
struct tile_reader
{
	const struct dense_params &params;
	struct dense_shared *shared;
	struct reader_position p;
	uint32_t lane;

	__device__ __forceinline__
	tile_reader(const struct dense_params &params, struct dense_shared *shared)
		: params(params), shared(shared), p(shared->reader), lane(threadIdx.x % 32)
	{
	}

	/* The next item of the block; if the search is to end, none */
	__device__ __forceinline__ bool
	take_item()
	{
		uint32_t item = params.scan.nitems;

		if (lane == 0 && *(volatile const uint32_t *) params.scan.stop == 0)
			item = atomicAdd(params.scan.next_item, 1);
		item = __shfl_sync(FULL_WARP, item, 0);
		p.batch = item % params.scan.nbatches;
		p.group = item / params.scan.nbatches * params.scan.range_groups;
		p.end = min(p.group + params.scan.range_groups, params.scan.ngroups);
		return item < params.scan.nitems;
	}

	/* Which tiles of a group are in the round's classes */
	__device__ __forceinline__ uint32_t
	choose_tiles(uint2 where)
	{
		const struct device_segment *segment = &params.scan.segments[where.x];
		uint32_t ntiles = min(segment->ntiles - where.y, 32u);
		uint32_t chosen = 0;

		if (segment->bit_chunks != params.chunks)
			return 0;
		for (uint32_t i = 0; i < ntiles; i++)
		{
			uint32_t hash = tile_class(where.x, where.y + i);

			if (hash >= params.scan.class_lo && hash < params.scan.class_hi)
				chosen |= 1u << i;
		}
		return chosen;
	}

	/*
	 * List the tiles of up to 32 groups of the item, a group a lane, that are
	 * in the round's classes
	 */
	__device__ __forceinline__ void
	list_tiles()
	{
		uint2 where = make_uint2(0, 0);
		uint32_t chosen = 0;
		uint32_t upto;

		if (p.group + lane < p.end)
		{
			where = params.scan.groups[p.group + lane];
			chosen = choose_tiles(where);
		}
		upto = sum_upto_lane(__popc(chosen));
		for (uint32_t to = upto - __popc(chosen); chosen != 0; chosen &= chosen - 1)
			shared->list[to++] = make_uint2(where.x, where.y + __ffs(chosen) - 1);
		p.group += LISTED_GROUPS;
		p.nlisted = __shfl_sync(FULL_WARP, upto, 31);
		p.listed = 0;
	}

	/* Describe up to 32 tiles of the list */
	__device__ __forceinline__ void
	describe_tiles()
	{
		p.nnext = min(p.nlisted - p.listed, 32u);
		p.next = 0;
		if (lane < p.nnext)
		{
			uint2 where = shared->list[p.listed + lane];
			const struct device_segment *segment = &params.scan.segments[where.x];
			uint4 about = segment->tiles[where.y];
			size_t first = (size_t) where.y * params.chunks * (TILE_GROUPS * ROW_LOADS);

			shared->next[lane] = {where.x, where.y, about.z, about.w, segment->bits + first,
								  p.batch, 0};
		}
		p.listed += p.nnext;
	}

	/* Find out which tile is next; if there is none, the round has ended */
	__device__ __forceinline__ void
	find_next()
	{
		__syncwarp();
		while (p.listed == p.nlisted && !p.ended)
		{
			if (p.group < p.end || take_item())
				list_tiles();
			else
				p.ended = 1;
			__syncwarp();
		}
		describe_tiles();
		__syncwarp();
	}

	/* Fill a stage; after the last tile it says that there is nothing more */
	__device__ __forceinline__ void
	fill_stage()
	{
		uint32_t loads = params.chunks * (TILE_GROUPS * ROW_LOADS);
		uint4 *to = (uint4 *) (shared + 1) + p.at.stage * loads;
		struct dense_tile tile = {};

		tile.segment = NO_SEGMENT;
		if (!p.ended)
		{
			tile = shared->next[p.next++];
			for (uint32_t i = lane; i < loads; i += 32)
				copy_async(to + i, tile.bits + i);
		}
		if (lane == 0)
			shared->stage[p.at.stage] = tile;
		barrier_arrive_copied(&shared->full[p.at.stage]);
		if (lane == 0)
			barrier_arrive(&shared->full[p.at.stage]);
		p.at.advance(params.nstages);
	}

	/*
	 * Fill the stages that are free, at least up to tile t, which is the next
	 * that this warp counts.  The barrier of a stage that was never used has
	 * parity 1, as if it had been.
	 */
	__device__ __forceinline__ void
	read(uint32_t t)
	{
		while (!p.ended && p.at.tile < t + params.nstages)
		{
			if (p.at.tile <= t)
				barrier_wait(&shared->done[p.at.stage], p.at.parity);
			else if (!barrier_ended(&shared->done[p.at.stage], p.at.parity))
				break;
			if (p.next == p.nnext)
				find_next();
			fill_stage();
		}
		__syncwarp();
		if (lane == 0)
			shared->reader = p;
		__syncwarp();
	}
};

/* Not inlined, so that it does not take registers of the queries' vectors */
static __device__ __attribute__((noinline)) void
read_tiles(const struct dense_params &params, struct dense_shared *shared, uint32_t t)
{
	tile_reader reader(params, shared);

	reader.read(t);
}

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
	/* vectors of the queries: what each instruction takes of each group */
	uint4 vectors[2 * CHUNKS][WARP_GROUPS];

	/* the lengths of the last tile, and what follows from them */
	uint32_t minlen;
	uint32_t most;
	bool active;               /* some query can find such rows */
	int needs[WARP_GROUPS][2]; /* of queries lane / 4 and lane / 4 + 8 of each group */

	/* pairs that wait */
	const struct device_segment *segment;
	uint32_t npairs;

	__device__ __forceinline__
	dense_counter(const struct dense_params &p, struct dense_shared *s)
		: params(p), shared(s), stages((const uint4 *) (s + 1)), warp(threadIdx.x / 32),
		  lane(threadIdx.x % 32), batch(~0u), segment(NULL), npairs(0)
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
		mine[1] = need_of(lane + 32);
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
		score_pairs(params, segment, shared->pairs[warp] + npairs, first, n);
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

	/* Append the pairs of eight rows, from `row` on, that may qualify */
	__device__ __forceinline__ void
	add_pairs(const int (*sums)[4], uint32_t row)
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
				*to++ = make_uint2((row + lane % 4 * 2 + i % 2) | (i / 2 * 8 + lane / 4) << 16,
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

	/* Count a tile */
	__device__ __forceinline__ void
	count_tile(const struct dense_tile &at, const uint4 *tile)
	{
		const uint4 *rows = tile + lane;
		uint4 b[2];

		if (at.minlen != minlen || at.most != most)
			set_lengths(at.minlen, at.most);
		if (!active)
			return;
		if (segment != &params.scan.segments[at.segment])
		{
			end_pairs();
			segment = &params.scan.segments[at.segment];
		}
		b[0] = rows[0];
		b[1] = rows[GROUP_LOADS];
#pragma unroll 1
		for (uint32_t i = 0; i < GPUVEC_TILE_ROWS; i += STEP_ROWS)
		{
			/* after the last rows the first are loaded again, in vain */
			const uint4 *more = i + STEP_ROWS < GPUVEC_TILE_ROWS ? rows + 2 * GROUP_LOADS : rows;
			int sums[2][WARP_GROUPS][4];

			multiply(sums, rows, more, b);
			if (some_qualify(sums))
			{
				add_pairs(sums[0], at.tile * GPUVEC_TILE_ROWS + i);
				add_pairs(sums[1], at.tile * GPUVEC_TILE_ROWS + i + ROW_GROUP);
			}
			rows = more;
		}
	}

	/* Count what the reader reads, to the end */
	__device__ __forceinline__ void
	run()
	{
		struct ring_position at = {0, 0, 0};

#pragma unroll 1
		for (;; at.advance(params.nstages))
		{
			if (warp == READER)
				read_tiles(params, shared, at.tile);
			barrier_wait(&shared->full[at.stage], at.parity);
			const struct dense_tile tile = shared->stage[at.stage];

			if (tile.segment == NO_SEGMENT)
				break;
			if (tile.batch != batch)
			{
				end_pairs();
				load_batch(tile.batch);
			}
			if (at.tile % nslots == slot)
				count_tile(tile, stages + at.stage * TILE_LOADS);
			__syncwarp();
			if (lane == 0)
				barrier_arrive(&shared->done[at.stage]);
		}
		end_pairs();
	}
};

/* Make the barriers, and begin to read; called by the whole thread block */
static __device__ __forceinline__ void
begin_ring(struct dense_shared *shared)
{
	if (threadIdx.x < MOST_STAGES)
	{
		barrier_make(&shared->full[threadIdx.x], 32 + 1);
		barrier_make(&shared->done[threadIdx.x], DENSE_WARPS);
	}
	if (threadIdx.x == 0)
	{
		shared->reader = {};
		shared->reader.at.parity = 1;
	}
	__syncthreads();
}

template <int CHUNKS>
__global__ void
__launch_bounds__(DENSE_THREADS, 1) dense_kernel(const __grid_constant__ struct dense_params params)
{
	dense_counter<CHUNKS> counter(params, (struct dense_shared *) shared_memory);

	begin_ring((struct dense_shared *) shared_memory);
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

/* Queries of a batch */
uint32_t
dense_batch(void)
{
	return BATCH_QUERIES;
}

/* Launch; sets chunks, and nstages, for which shared memory has room */
cudaError_t
dense_launch(struct dense_params *params, uint32_t chunks, size_t smem_limit, uint32_t blocks,
			 cudaStream_t stream)
{
	size_t stage = row_bits_bytes(GPUVEC_TILE_ROWS, chunks);
	size_t room = (smem_limit - sizeof(struct dense_shared)) / stage;

	params->chunks = chunks;
	params->nstages = room < MOST_STAGES ? (uint32_t) room : MOST_STAGES;
	return launch_chained(dense_variant(chunks), dim3(blocks), DENSE_THREADS,
						  sizeof(struct dense_shared) + params->nstages * stage, stream, *params);
}

} // namespace gpuvec
