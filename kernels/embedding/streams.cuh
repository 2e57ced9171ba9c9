/*-------------------------------------------------------------------------
 *
 * streams.cuh
 *	  stream_kernel: pools short bags, as streams of lookups.
 *
 * stream_kernel gives each group several consecutive short bags.  Their
 * lookups are consecutive too, so the group treats them as one stream: rows
 * of several bags are in flight.  Where a bag ends, its vector is stored and
 * the next bag begins.  So short bags keep as many loads in flight as long
 * bags.  A warp waits for the sum of several bags' lengths, which varies less
 * than each length.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_STREAMS_CUH
#define GPUVEC_STREAMS_CUH

#include "kernels/embedding/bags.cuh"

namespace gpuvec
{

#define STREAM_UNROLL 4 /* rows in flight per group of lanes */

/*
 * A group of lanes that pools p.range consecutive short bags or pieces, as
 * one stream of lookups.  Lane i of the group knows where its bag i ends,
 * where its vector goes and what it is divided by.
 *
 * The group pools a chunk of LANES lookups at a time, one lookup per lane,
 * while the next chunk is being fetched.  Positions k, n and last count from
 * the group's first lookup.
 */
template <typename T, typename O, int VB, int LANES, bool W>
struct stream_group
{
	static constexpr int E = VB / (int) sizeof(T);

	/* a copy: it takes fewer registers than a reference */
	const struct pool_params p;
	uint32_t lane;       /* in the warp */
	uint32_t sub;        /* in the group */
	uint32_t group_lane; /* the group's first lane in the warp */
	bool waited;         /* wait_for_previous() was called */

	/* the work */
	uint32_t warp_task;
	uint32_t slice;
	uint32_t column; /* this lane's column, in vectors */
	bool active;     /* the row has this column */
	const char *base;
	uint64_t start; /* the group's first lookup */
	int n;
	int most; /* the greatest n of the warp's groups */

	/* this lane's bag */
	uint32_t dest;
	float divisor;
	int last; /* its last lookup; -1: the bag is empty */

	/* a bit for each bag of the group that is not empty and has not ended */
	uint32_t queue;
	/* a bit for each lane of the warp whose bag is empty */
	uint32_t empties;

	/* the sum, the chunk, and this lane's lookup of the next chunk */
	float acc[E];
	struct pooling_chunk chunk;
	uint32_t next_row;
	float next_weight;

	__device__ __forceinline__
	stream_group(const struct pool_params &params)
		: p(params), lane(threadIdx.x % 32), sub(lane % LANES), group_lane(lane - sub),
		  waited(!p.settled)
	{
	}

	/* Find the work; false if there is none */
	__device__ __forceinline__ bool
	find_work()
	{
		if (!pooling_find_work(p.warp_tasks, p.slices, p.slice_major, warp_task, slice))
			return false;
		column = slice * LANES + sub;
		active = column < p.vectors;
		base = pooling_lane_base(p.table, column, p.vectors, VB);
		chunk.group_lane = group_lane;
		return true;
	}

	/* The divisor of this lane's bag, which has lookups from .. to - 1 */
	__device__ __forceinline__ void
	find_divisor(uint64_t from, uint64_t to)
	{
		typename pooling_divisor<W>::type sum = bag_divisor<W>(p, from, to);

		/* with pieces, bags are not settled, so the group has waited */
		if (slice == 0)
			store_divisor<W>(p, dest, sum);
		divisor = (float) sum;
	}

	/* Find the bags and their lookups */
	__device__ __forceinline__ void
	find_bags()
	{
		uint32_t bags = p.count ? *p.count : p.bags;
		uint64_t first = (uint64_t) (warp_task * (32 / LANES) + lane / LANES) * p.range;
		uint32_t range = (uint32_t) min((uint64_t) p.range, bags - min(first, (uint64_t) bags));
		uint32_t bag = (uint32_t) first + sub;
		bool valid = sub < range;
		uint64_t from = 0;
		uint64_t to = 0;

		dest = bag;
		divisor = 0.0f;
		if (valid)
		{
			from = p.offsets ? p.offsets[bag] : (uint64_t) bag * p.hotness;
			to = p.offsets ? p.offsets[bag + 1] : from + p.hotness;
			if (p.dest)
				dest = p.dest[bag];
			if (p.mean)
				find_divisor(from, to);
		}
		start = __shfl_sync(FULL_WARP, from, group_lane);
		last = from == to ? -1 : (int) (to - start) - 1;
		n = (int) (__shfl_sync(FULL_WARP, to, group_lane + max(range, 1u) - 1) - start);
		most = (int) __reduce_max_sync(FULL_WARP, (unsigned) n);
		queue = __ballot_sync(FULL_WARP, from != to) >> group_lane & (FULL_WARP >> (32 - LANES));
		empties = __ballot_sync(FULL_WARP, valid && from == to);
		clear(acc);
	}

	/*
	 * If `now`, store the vector of bag i, and clear the sum for the next
	 * bag.  Called by the whole warp.
	 */
	__device__ __forceinline__ void
	store(uint32_t i, bool now)
	{
		uint32_t bag_dest = __shfl_sync(FULL_WARP, dest, group_lane + i);
		float bag_div = __shfl_sync(FULL_WARP, divisor, group_lane + i);

		if (!waited)
			wait_for_previous();
		waited = true;
		if (!now)
			return;
		store_bag<O, E, W>(p, bag_dest, column, active, acc, bag_div);
		clear(acc);
	}

	/* Store the vectors of empty bags */
	__device__ __forceinline__ void
	store_empties()
	{
		for (uint32_t i = 0; i < LANES && empties; i++)
		{
			if (empties >> i & pooling_group_starts<LANES>())
				store(i, empties >> (group_lane + i) & 1);
		}
	}

	/* Fetch lookup `at`: this lane's lookup of the next chunk */
	__device__ __forceinline__ void
	fetch(int at)
	{
		fetch_lookup<W>(p, start, n, at, next_row, next_weight);
	}

	/*
	 * Take the chunk that begins with lookup k, and find where bags end in it
	 */
	__device__ __forceinline__ void
	take(int k)
	{
		bool here = last >= k && last - k < LANES;

		chunk.row = next_row;
		chunk.weight = next_weight;
		fetch(k + LANES + sub);
		chunk.present = __ballot_sync(FULL_WARP, chunk.row != POOLING_MISSING);
		chunk.ends =
			__reduce_or_sync(FULL_WARP, here ? 1u << (group_lane + (uint32_t) (last - k)) : 0);
	}

	/*
	 * Called by the whole warp when a bag ends with lookup `at` of the chunk
	 * in at least one group
	 */
	__device__ __forceinline__ void
	end_bag(uint32_t at)
	{
		bool now = chunk.ends >> (group_lane + at) & 1;

		store(queue ? __ffs(queue) - 1 : 0, now);
		if (now)
			queue &= queue - 1;
	}

	/* Add the rows of the chunk */
	__device__ __forceinline__ void
	add()
	{
#pragma unroll 1
		for (uint32_t j = 0; j < LANES; j += STREAM_UNROLL)
			pooling_add_batch<T, VB, LANES, STREAM_UNROLL, W>(base, p.stride_bytes, chunk, j, acc,
															  [&](uint32_t at) { end_bag(at); });
	}
};

/* Pool short bags or pieces: several with each group of lanes */
template <typename T, typename O, int VB, int LANES, bool W>
static __global__ void
__launch_bounds__(POOL_MOST_THREADS) stream_kernel(const __grid_constant__ struct pool_params p)
{
	stream_group<T, O, VB, LANES, W> group(p);

	let_next_start();
	if (group.waited)
		wait_for_previous();
	if (!group.find_work())
		return;
	group.find_bags();
	group.store_empties();
	group.fetch(group.sub);
	for (int k = 0; k < group.most; k += LANES)
	{
		group.take(k);
		group.add();
	}
}

} // namespace gpuvec

#endif /* GPUVEC_STREAMS_CUH */
