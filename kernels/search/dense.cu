/*-------------------------------------------------------------------------
 *
 * dense.cu
 *	  Counts the ids that rows share with queries by products of bit matrices,
 *	  and lists where rows may be among the best.
 *
 * Rows and queries are vectors of bits, one for each id (dense_cells.cuh,
 * dense_bits.cu).  The instruction wgmma multiplies 64 queries by 128 rows and
 * 256 ids, with AND for multiplication, and adds the ones to its sums.  These
 * are compared with what the queries need; there is no other work for a pair
 * of row and query.
 *
 * A thread block has four groups of four warps that count.  Each group has 64
 * queries, whose vectors stay in shared memory while panels of 128 rows stream
 * by.  A warp has 16 of these queries, and a thread 32 rows of the panel for
 * each of two of them, so what it needs to know of its queries is two numbers.
 *
 * The panels to count are listed before (dense_panels.cu), and queries are cut
 * into batches of as many as a block's groups have.  A block counts units of
 * the list for one batch.  When there are none left for it, it goes on with
 * the batch of which most are left.  All batches are counted at about the same
 * pace, so most panels are read from the L2 cache.  One more warp of the block
 * copies panels to a ring of stages in shared memory.  A stage has two
 * barriers: one says that its panel is there, the other that all warps are
 * done with it.
 *
 * Each group goes at its own pace: while one looks at its sums, the tensor
 * cores multiply for the others.
 *
 * For a panel as a whole, lane q of a warp finds how many ids queries q and
 * q + 32 of the group need for their bounds (gpuvec_need).  Neighboring panels
 * often have rows of the same lengths, so this is done when lengths change.  A
 * group none of whose queries can find such rows skips the panel.
 *
 * If some of its sums reach what they need, a thread notes which, a bit for
 * each.  Most panels have a find or two, so that has to be quick, and its code
 * short: what is seldom run is seldom in the instruction cache.  Finds wait in
 * a queue of the warp until there are 32, and go to a list in global memory.
 * The next kernel counts these few rows again (dense_score.cu).  A query for
 * whose finds the list has no room has lost candidates, and is searched again
 * by other means.
 *
 * Rows may have cold numbers, which the vectors lack.  So sums are of hot
 * numbers, as those of a scan, and lengths count all; cold_rows.cu has the
 * rest.
 *
 * What it takes: a multiprocessor multiplies 32,768 bits a cycle, a panel by
 * 256 queries in 2,048 cycles.  With 8.5 million rows, 2,000 queries take
 * 66,407 panels * 8 batches / 132 multiprocessors * 2,048 cycles, 4.2 ms at
 * 1.98 GHz.  For this it reads 96 of the 128 bytes that shared memory gives a
 * cycle.  Beside it a warp looks at 64 sums in about 80 instructions, of which
 * a quarter of a multiprocessor issues 320 in that time.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>

#include "kernels/device/bit_product.cuh"
#include "kernels/device/instructions.cuh"
#include "kernels/device/launch.h"
#include "kernels/device/warp_barrier.cuh"
#include "kernels/search/dense_cells.cuh"
#include "kernels/search/search_kernels.h"

namespace gpuvec
{

#define GROUPS 4
#define GROUP_WARPS 4
#define COUNTING_WARPS (GROUPS * GROUP_WARPS)
#define GROUP_THREADS (GROUP_WARPS * 32)
/* the warps of one more group; the first of them copies */
#define DENSE_THREADS ((GROUPS + 1) * GROUP_THREADS)
#define STAGES 4
#define SUMS (PANEL_ROWS * PANEL_QUERIES / GROUP_THREADS)
#define SENT 32 /* finds that are sent together */

/* What a query needs that no row of a panel can reach */
#define OUT_OF_REACH (1 << 30)

/* The batch of a stage that says that there is nothing more to count */
#define NO_BATCH (~0u)

extern __shared__ uint4 shared_memory[];

/* Where a warp is in the ring */
struct ring_position
{
	uint32_t stage;
	uint32_t parity; /* changes with each round of the ring */

	__device__ __forceinline__ void
	advance()
	{
		if (++stage == STAGES)
		{
			stage = 0;
			parity ^= 1;
		}
	}
};

/* The panel of a stage */
struct stage_panel
{
	uint32_t batch;  /* of queries, or NO_BATCH */
	uint32_t number; /* in the list */
	uint32_t minlen;
	uint32_t most;
};

/* What a group keeps of a query, besides its vector */
struct query_head
{
	uint32_t len;
	uint32_t nids;
	float score;
	uint32_t alive; /* nonzero: it has not overflowed */
};

/* Shared memory of a thread block, at a multiple of PANEL_ALIGNMENT */
struct dense_shared
{
	char rows[STAGES][ROW_PANEL_BYTES];
	char queries[GROUPS][QUERY_PANEL_BYTES];
	struct query_head query[GROUPS][PANEL_QUERIES];
	uint4 finds[COUNTING_WARPS][2 * SENT];
	struct stage_panel panel[STAGES];
	warp_barrier full[STAGES];
	warp_barrier done[STAGES];
	warp_barrier together[GROUPS]; /* the warps of a group wait for each other */
};

#define PANEL_ALIGNMENT 1024

static_assert(BATCH_QUERIES == GROUPS * PANEL_QUERIES, "finds have the batch of their queries");

#if BIT_PRODUCTS

/* The warp that copies panels to the ring */
struct panel_reader
{
	const struct dense_params &params;
	struct dense_shared *shared;
	uint32_t lane;
	struct ring_position to;
	uint32_t batch;
	struct dense_panel mine; /* of the list: one of 32 that were looked up together */

	__device__ __forceinline__
	panel_reader(const struct dense_params &p, struct dense_shared *s)
		: params(p), shared(s), lane(threadIdx.x % 32), batch(0)
	{
		/* the barrier of a stage that was never used has parity 1 */
		to = {0, 1};
	}

	/* Take a unit of the batch; may be none */
	__device__ __forceinline__ uint32_t
	take_unit()
	{
		uint32_t unit = 0;

		if (lane == 0)
			unit = *(volatile const uint32_t *) params.scan.stop
					   ? ~0u
					   : atomicAdd(&params.counts->taken[batch], 1);
		return __shfl_sync(FULL_WARP, unit, 0);
	}

	/* Choose the batch of which most units are left; false if none has any */
	__device__ __forceinline__ bool
	choose_batch(uint32_t nunits)
	{
		uint32_t best = ~0u;

		for (uint32_t i = lane; i < params.scan.nbatches; i += 32)
		{
			uint32_t taken = *(volatile const uint32_t *) &params.counts->taken[i];

			if (taken < nunits)
				best = min(best, taken * MOST_BATCHES + i);
		}
		best = __reduce_min_sync(FULL_WARP, best);
		batch = best % MOST_BATCHES;
		return best != ~0u;
	}

	/*
	 * Copy panel `number` of the list, as soon as a stage is free; `which` of
	 * those that were looked up together
	 */
	__device__ __forceinline__ void
	copy(uint32_t number, uint32_t which)
	{
		const char *bits =
			(const char *) __shfl_sync(FULL_WARP, (unsigned long long) mine.bits, which);
		struct stage_panel panel = {batch, number, __shfl_sync(FULL_WARP, mine.minlen, which),
									__shfl_sync(FULL_WARP, mine.most, which)};

		barrier_wait(&shared->done[to.stage], to.parity);
		if (lane == 0)
		{
			shared->panel[to.stage] = panel;
			barrier_arrive_bytes(&shared->full[to.stage], ROW_PANEL_BYTES);
			barrier_copy(shared->rows[to.stage], bits, ROW_PANEL_BYTES, &shared->full[to.stage]);
		}
		to.advance();
	}

	/* Copy the panels of a unit */
	__device__ __forceinline__ void
	copy_unit(uint32_t first, uint32_t n)
	{
#pragma unroll 1
		for (uint32_t i = 0; i < n; i++)
		{
			if (i % 32 == 0 && i + lane < n)
				mine = params.panels[first + i + lane];
			copy(first + i, i % 32);
		}
	}

	/* Copy panels until there are no more, and say so */
	__device__ __forceinline__ void
	run()
	{
		uint32_t listed = __ldcg(&params.counts->listed);
		uint32_t nunits = (listed + params.unit_panels - 1) / params.unit_panels;
		uint32_t unit;

		batch = blockIdx.x % params.scan.nbatches;
#pragma unroll 1
		do
		{
			while ((unit = take_unit()) < nunits)
				copy_unit(unit * params.unit_panels,
						  min(listed - unit * params.unit_panels, params.unit_panels));
		} while (unit != ~0u && choose_batch(nunits));
		barrier_wait(&shared->done[to.stage], to.parity);
		if (lane == 0)
		{
			shared->panel[to.stage].batch = NO_BATCH;
			barrier_arrive(&shared->full[to.stage]);
		}
	}
};

/* A warp that counts */
struct dense_counter
{
	const struct dense_params &params;
	struct dense_shared *shared;
	uint32_t warp; /* of the group */
	uint32_t group;
	uint32_t lane;

	/* of the batch */
	uint32_t batch;
	uint32_t first; /* first query of the group */

	/* the lengths of the last panel, and what follows from them */
	uint32_t minlen;
	uint32_t most;
	bool active;  /* some query of the group can find such rows */
	int needs[2]; /* of queries lane / 4 and lane / 4 + 8 of the warp */

	uint4 *finds;    /* that wait */
	uint32_t nfinds; /* how many do */

	uint32_t together_parity;

	__device__ __forceinline__
	dense_counter(const struct dense_params &p, struct dense_shared *s)
		: params(p), shared(s), warp(threadIdx.x / 32 % GROUP_WARPS),
		  group(threadIdx.x / GROUP_THREADS), lane(threadIdx.x % 32), batch(NO_BATCH),
		  finds(s->finds[threadIdx.x / 32]), nfinds(0), together_parity(0)
	{
	}

	/*
	 * Wait for the other warps of the group, and see what they have written.
	 * Each thread arrives, so each one's writes are ordered before what the
	 * others do next.
	 */
	__device__ __forceinline__ void
	wait_group()
	{
		barrier_arrive(&shared->together[group]);
		barrier_wait(&shared->together[group], together_parity);
		together_parity ^= 1;
	}

	/* What the group keeps of a query */
	__device__ __forceinline__ struct query_head
	query_head_of(uint32_t q)
	{
		struct query_head head = {};

		if (q < params.scan.nqueries)
		{
			const struct query_state *query = &params.scan.queries[q];

			head.alive = !query->overflow;
			head.len = query->limits.len;
			head.nids = query->nids;
			head.score = bound_score(query->limits.bound.hi);
		}
		return head;
	}

	/*
	 * Take the group's queries of a batch, of which each warp copies a
	 * quarter.  There may be none.
	 */
	__device__ __forceinline__ void
	load_batch(uint32_t which)
	{
		constexpr uint32_t PIECES = QUERY_PANEL_BYTES / sizeof(uint4);
		uint32_t i = threadIdx.x % GROUP_THREADS;
		const uint4 *from;

		batch = which;
		first = which * BATCH_QUERIES + group * PANEL_QUERIES;
		from = params.bits + (size_t) (first / PANEL_QUERIES) * PIECES;
		wait_group();
		if (i < PANEL_QUERIES)
			shared->query[group][i] = query_head_of(first + i);
#pragma unroll
		for (; i < PIECES; i += GROUP_THREADS)
			((uint4 *) shared->queries[group])[i] = __ldcg(&from[i]);
		product_fence();
		wait_group();
		minlen = ~0u;
		most = 0;
	}

	/* What query q of the group needs for rows of the lengths */
	__device__ __forceinline__ int
	need_of(uint32_t q)
	{
		const struct query_head &query = shared->query[group][q];
		uint32_t need = gpuvec_need_with(params.scan.scoring, query.len, minlen, query.score);

		return query.alive && need <= min(query.nids, most) ? (int) need : OUT_OF_REACH;
	}

	/*
	 * Find what the queries need for rows of these lengths.  All warps of the
	 * group look at all of its queries, so that they agree on `active`.
	 */
	__device__ __forceinline__ void
	set_lengths(uint32_t shortest, uint32_t most_numbers)
	{
		int mine[2];
		int of_warp;

		minlen = shortest;
		most = most_numbers;
		mine[0] = need_of(lane);
		mine[1] = need_of(lane + 32);
		active = __any_sync(FULL_WARP, min(mine[0], mine[1]) != OUT_OF_REACH);
		of_warp = warp < 2 ? mine[0] : mine[1];
		for (uint32_t i = 0; i < 2; i++)
			needs[i] = __shfl_sync(FULL_WARP, of_warp, warp % 2 * 16 + i * 8 + lane / 4);
	}

	/*
	 * Send the last n finds that wait to the list; n is 32 at most.  The
	 * queries of a find that finds no room have lost candidates.
	 */
	__device__ __forceinline__ void
	send_finds(uint32_t n)
	{
		uint32_t at = 0;

		__syncwarp();
		nfinds -= n;
		if (lane == 0)
			at = atomicAdd(&params.counts->finds, n);
		at = __shfl_sync(FULL_WARP, at, 0) + lane;
		if (lane < n)
		{
			uint4 find = finds[nfinds + lane];

			if (at < params.capacity)
				params.finds[at] = find;
			else
				/* bits 0 and 2 are of its two queries */
				for (uint32_t i = 0; i < 4; i += 2)
					if (find_query(find, i) < params.scan.nqueries)
						params.scan.queries[find_query(find, i)].overflow = 1;
		}
		__syncwarp();
	}

	/*
	 * The largest sum for query h of the thread.  There are four chains of
	 * comparisons, so that none has to wait for the one before.
	 */
	static __device__ __forceinline__ int
	largest(const int (&sums)[SUMS], int h)
	{
		int most[4];

#pragma unroll
		for (int c = 0; c < 4; c++)
		{
			most[c] = sums[c * 4 + 2 * h];
#pragma unroll
			for (int i = 1; i < SUMS / 8; i++)
				most[c] = max(most[c], sums[i / 2 * 16 + c * 4 + 2 * h + i % 2]);
		}
		return max(max(most[0], most[1]), max(most[2], most[3]));
	}

	/* Note which sums of a panel reach their needs */
	__device__ __forceinline__ void
	look(const int (&sums)[SUMS], uint32_t panel)
	{
		bool any = largest(sums, 0) >= needs[0] || largest(sums, 1) >= needs[1];
		uint32_t chosen = __ballot_sync(FULL_WARP, any);
		uint32_t reached[SUMS / 32] = {};

		if (chosen == 0)
			return;
#pragma unroll
		for (int i = 0; i < SUMS; i++)
			if (sums[i] >= needs[i / 2 % 2])
				reached[i / 32] |= 1u << i % 32;
		if (any)
			finds[nfinds + __popc(chosen & ((1u << lane) - 1))] =
				pack_find(panel, threadIdx.x, batch, reached);
		nfinds += __popc(chosen);
		if (nfinds >= SENT)
			send_finds(SENT);
	}

	/* The warp is done with the panel of a stage */
	__device__ __forceinline__ void
	release(uint32_t stage)
	{
		if (lane == 0)
			barrier_arrive(&shared->done[stage]);
	}

	/* Count a panel */
	__device__ __forceinline__ void
	count_panel(uint32_t stage, const struct stage_panel &panel, int (&sums)[SUMS])
	{
		begin_product<HALVES, LINE_BYTES * PANEL_QUERIES, LINE_BYTES * PANEL_ROWS>(
			sums, shared->queries[group], shared->rows[stage]);
		end_product(sums);
		release(stage);
		look(sums, panel.number);
	}

	/* Count the panel of a stage; false: there is none, the search ends */
	__device__ __forceinline__ bool
	count_stage(uint32_t stage, int (&sums)[SUMS])
	{
		const struct stage_panel panel = shared->panel[stage];

		if (panel.batch == NO_BATCH)
			return false;
		if (panel.batch != batch)
			load_batch(panel.batch);
		if (panel.minlen != minlen || panel.most != most)
			set_lengths(panel.minlen, panel.most);
		/* the group's queries may find none of the panel's rows */
		if (active)
			count_panel(stage, panel, sums);
		else
			release(stage);
		return true;
	}

	/* Count the block's panels */
	__device__ __forceinline__ void
	run()
	{
		struct ring_position from = {0, 0};
		int sums[SUMS];

#pragma unroll 1
		for (;;)
		{
			barrier_wait(&shared->full[from.stage], from.parity);
			if (!count_stage(from.stage, sums))
				break;
			from.advance();
		}
		if (nfinds > 0)
			send_finds(nfinds);
	}
};

/* Make the barriers; called by the whole thread block */
static __device__ __forceinline__ void
make_barriers(struct dense_shared *shared)
{
	if (threadIdx.x == 0)
	{
		for (uint32_t i = 0; i < STAGES; i++)
		{
			barrier_make(&shared->full[i], 1);
			barrier_make(&shared->done[i], COUNTING_WARPS);
		}
		for (uint32_t i = 0; i < GROUPS; i++)
			barrier_make(&shared->together[i], GROUP_THREADS);
		barriers_made();
	}
	__syncthreads();
}

#endif /* BIT_PRODUCTS */

static __global__ void
__launch_bounds__(DENSE_THREADS, 1) dense_kernel(const __grid_constant__ struct dense_params params)
{
#if BIT_PRODUCTS
	struct dense_shared *shared =
		(struct dense_shared *) (((uintptr_t) shared_memory + PANEL_ALIGNMENT - 1) /
								 PANEL_ALIGNMENT * PANEL_ALIGNMENT);

	make_barriers(shared);
	wait_for_previous();
	if (threadIdx.x >= GROUPS * GROUP_THREADS)
	{
		if (threadIdx.x < GROUPS * GROUP_THREADS + 32)
			panel_reader(params, shared).run();
	}
	else
		dense_counter(params, shared).run();
#endif
}

#define SHARED_BYTES (sizeof(struct dense_shared) + PANEL_ALIGNMENT)

/* Allow the kernel the shared memory that it needs, if the device has it */
cudaError_t
dense_prepare(size_t smem_limit)
{
	if (!dense_possible(smem_limit))
		return cudaSuccess;
	return cudaFuncSetAttribute((const void *) dense_kernel,
								cudaFuncAttributeMaxDynamicSharedMemorySize, (int) SHARED_BYTES);
}

/* True if a device with smem_limit bytes for a block has room for one */
bool
dense_possible(size_t smem_limit)
{
	return smem_limit >= SHARED_BYTES;
}

cudaError_t
dense_count(const struct dense_params *params, uint32_t blocks, cudaStream_t stream)
{
	return launch_chained(dense_kernel, dim3(blocks), DENSE_THREADS, SHARED_BYTES, stream, *params);
}

} // namespace gpuvec
