/*-------------------------------------------------------------------------
 *
 * embedding_forward.cu
 *	  Pool rows of an embedding table.
 *
 * Memory limits this work, so all is arranged for many loads in flight and few
 * instructions between them.
 *
 * Where every lookup is a vector of the result (concat, or bags of one lookup), rows are
 * copied by embedding_gather.cu.  What follows is of the other cases.
 *
 * A call may be over in 20 microseconds, of which one or two would pass between two kernels:
 * kernels start while the one before ends (emb_launch_chained).  If bags are settled (see
 * embedding.h), they also read rows while it ends, and wait only before they write.
 *
 * Groups of 8, 16 or 32 lanes pool bags; a lane adds up its own columns in the order of the
 * lookups.  Indices are fetched a chunk ahead, one per lane.  Rows of more
 * than 512 bytes are pooled in slices.
 *
 * bag_kernel gives each group one bag of more than a few lookups and has eight rows in
 * flight.  What limits it, if keys are skewed and rows come from the caches, is the L2
 * cache (at 88 to 94 % of what it can), and for float16 also instructions; see
 * emb_add_batch in embedding_pool.cuh.  Blocks are small and take no shared memory, which
 * leaves the L1 cache to the hot rows.
 *
 * stream_kernel gives each group several consecutive short bags.  Their lookups are
 * consecutive too, so the group goes through them as through one stream: rows of several
 * bags are in flight; where a bag ends, its vector is stored and the next begins.  So
 * short bags keep as many loads in flight as long ones, and a warp waits for the sum of
 * several bags' lengths, which varies less than each of them.
 *
 * Bags of more than GPUVEC_EMB_PIECE lookups are cut into pieces first.  Warps count
 * the pieces of EMB_TILE bags each, some blocks turn counts into places, and the
 * warps write the pieces, which then take the place of bags.  What pieces of long
 * bags give is added up by combine_kernel.
 *
 * Blocks are small, so that the hardware, which deals blocks out one by one, balances
 * bags of all lengths.
 *
 *-------------------------------------------------------------------------
 */
#include "embedding_pool.cuh"

struct gpuvec_emb_tuning gpuvec_emb_tuning;

/* Defaults of gpuvec_emb_tuning */
#define BAG_THREADS			64
#define BAG_UNROLL			8	/* rows in flight of a group of lanes */
#define STREAM_THREADS		64
#define STREAM_UNROLL		4	/* the same */
#define RANGE_LOOKUPS		16	/* of a group of lanes, on average */

#define POOL_MOST_THREADS	256

#define SCAN_THREADS		1024
#define SCAN_BLOCKS			32
#define COMBINE_THREADS		256
#define COMBINE_BLOCKS		1056

/* What bag_kernel and stream_kernel need to know */
struct pool_params
{
	/* the table, without its type */
	const char *table;
	uint32_t	stride_bytes;
	uint32_t	rows;
	uint32_t	width;

	/* the lookups */
	const void *indices;
	const float *weights;
	uint32_t	index_bits;

	/* bags or pieces */
	uint32_t	hotness;
	const int64_t *offsets;		/* NULL: bags of hotness lookups */
	const uint32_t *count;		/* how many, if the host does not know it */
	uint32_t	bags;			/* at most so many */

	/* their distribution */
	uint32_t	range;			/* bags of a group of lanes */
	uint32_t	warp_tasks;		/* warps, for one slice */
	uint32_t	slices;
	uint32_t	vectors;		/* of a row */
	bool		slice_major;

	/* the result */
	bool		settled;		/* see embedding.h */
	bool		mean;
	bool		skip_missing;
	bool		vector_out;		/* aligned for vector stores */
	bool		vector_partial; /* the same for sums of pieces */
	const uint32_t *dest;		/* NULL: bag i goes to row i */
	void	   *out;			/* of the type that the kernel knows */
	uint64_t	out_stride;
	float	   *partial;
	float	   *partial_divisor;
	uint64_t	partial_stride;
};

/*
 * Pieces of bags.  Piece i consists of the lookups from offsets[i] to offsets[i + 1]
 * and goes to dest[i].
 */
struct bag_pieces
{
	struct emb_pieces shared;
	int64_t    *offsets;
	uint32_t   *dest;
};

/* What bag_pieces_kernel needs to know */
struct bag_pieces_params
{
	const int64_t *offsets;
	uint64_t	hotness;
	uint64_t	bags;
	struct bag_pieces pieces;
};

/*
 * Divide the sums of a bag.  To multiply by the inverse of a power of two gives the same
 * bits as to divide by that, in a fraction of the time.
 */
template <int E>
static __device__ __forceinline__ void
divide(float (&acc)[E], float divisor)
{
	uint32_t	bits = __float_as_uint(divisor);

	if (divisor >= 1.0f && divisor <= (float) (1 << 20) && bits << 9 == 0)
	{
		float		inverse = __uint_as_float(2 * __float_as_uint(1.0f) - bits);

#pragma unroll
		for (int e = 0; e < E; e++)
			acc[e] *= inverse;
	}
	else
	{
#pragma unroll
		for (int e = 0; e < E; e++)
			acc[e] = divisor == 0.0f ? 0.0f : __fdiv_rn(acc[e], divisor);
	}
}

/*
 * Store the vector of a bag, or that of a piece with its divisor.
 */
template <typename O, int E>
static __device__ __forceinline__ void
store_bag(const struct pool_params &p, uint32_t dest, uint32_t column, bool active,
		  float (&acc)[E], float divisor)
{
	if (dest & EMB_PARTIAL)
	{
		uint32_t	slot = dest & ~EMB_PARTIAL;

		if (active)
			emb_store<E>(p.partial + slot * p.partial_stride, column * E, p.width, p.vector_partial, acc);
		if (p.mean && column == 0)
			p.partial_divisor[slot] = divisor;
	}
	else if (active)
	{
		if (p.mean)
			divide(acc, divisor);
		emb_store<E>((O *) p.out + dest * p.out_stride, column * E, p.width, p.vector_out, acc);
	}
}

/*
 * Pool bags, or pieces of them, one with each group of lanes.  W: there are weights;
 * otherwise as above.
 */
template <typename T, typename O, int VB, int LANES, bool W>
static __global__ void __launch_bounds__(POOL_MOST_THREADS)
bag_kernel(const __grid_constant__ struct pool_params p)
{
	constexpr int E = VB / (int) sizeof(T);
	uint32_t	lane = threadIdx.x % 32;
	uint32_t	sub = lane % LANES;
	uint32_t	warp_task;
	uint32_t	slice;

	emb_let_next();
	if (!p.settled)
		emb_wait();
	if (!emb_find_work(p.warp_tasks, p.slices, p.slice_major, warp_task, slice))
		return;

	uint32_t	bag = warp_task * (32 / LANES) + lane / LANES;
	bool		valid = bag < (p.count ? *p.count : p.bags);
	uint32_t	column = slice * LANES + sub;
	bool		active = column < p.vectors;
	const char *base = emb_lane_base(p.table, column, p.vectors, VB);
	uint64_t	start = 0;
	int			n = 0;

	if (valid)
	{
		start = p.offsets ? p.offsets[bag] : (uint64_t) bag * p.hotness;
		n = p.offsets ? (int) (p.offsets[bag + 1] - start) : (int) p.hotness;
	}

	int			most = (int) __reduce_max_sync(EMB_FULL_WARP, (unsigned) n);
	bool		count = p.mean && (W || p.skip_missing);	/* or else the divisor is n */
	float		acc[E];
	float		divisor = count ? 0.0f : (float) n;
	struct emb_chunk chunk;
	uint32_t	next_row;
	float		next_weight;

#pragma unroll
	for (int e = 0; e < E; e++)
		acc[e] = 0.0f;
	chunk.ends = 0;
	chunk.group_lane = lane - sub;

	auto		fetch = [&] (int at)
	{
		next_row = EMB_MISSING;
		next_weight = 1.0f;
		if (at < n)
		{
			next_row = emb_lookup(p.indices, p.index_bits, p.rows, start + at);
			if (W)
				next_weight = __ldcs(p.weights + start + at);
		}
	};

	fetch(sub);
	for (int k = 0; k < most; k += LANES)
	{
		chunk.row = next_row;
		chunk.weight = next_weight;
		fetch(k + LANES + sub);
		chunk.present = __ballot_sync(EMB_FULL_WARP, chunk.row != EMB_MISSING);
#pragma unroll 1
		for (uint32_t j = 0; j < LANES; j += BAG_UNROLL)
			emb_add_batch<T, VB, LANES, BAG_UNROLL, W>(base, p.stride_bytes, chunk, j, acc, [] (uint32_t) {});

		if (count)
		{
			uint32_t	counted = chunk.present;

			if (!p.skip_missing)
				counted = __ballot_sync(EMB_FULL_WARP, k + (int) sub < n);
			if (!W)
				divisor += (float) __popc(counted >> chunk.group_lane & (EMB_FULL_WARP >> (32 - LANES)));
			for (uint32_t i = 0; W && i < LANES; i++)
			{
				float		weight = __shfl_sync(EMB_FULL_WARP, chunk.weight, chunk.group_lane + i);

				if (counted >> (chunk.group_lane + i) & 1)
					divisor += weight;
			}
		}
	}
	emb_wait();
	if (valid)
		store_bag<O, E>(p, p.dest ? p.dest[bag] : bag, column, active, acc, divisor);
}

/*
 * What the mean of a bag is divided by, computed by one lane: the lookups from `start`
 * to `end`.
 */
static __device__ __forceinline__ float
bag_divisor(const struct pool_params &p, uint64_t start, uint64_t end)
{
	float		divisor = 0.0f;

	if (!p.weights && !p.skip_missing)
		return (float) (end - start);
	for (uint64_t i = start; i < end; i++)
	{
		if (!p.skip_missing ||
			emb_lookup(p.indices, p.index_bits, p.rows, i) != EMB_MISSING)
			divisor += p.weights ? p.weights[i] : 1.0f;
	}
	return divisor;
}

/*
 * Pool short bags, or pieces of them: those of a group of lanes, p.range consecutive
 * ones, are one stream of lookups.  Lane i of a group knows where its bag i begins and
 * ends, where it goes and what it is divided by.
 *
 * Positions k, n and last count from the first lookup of the group.
 */
template <typename T, typename O, int VB, int LANES, bool W>
static __global__ void __launch_bounds__(POOL_MOST_THREADS)
stream_kernel(const __grid_constant__ struct pool_params p)
{
	constexpr int E = VB / (int) sizeof(T);
	uint32_t	lane = threadIdx.x % 32;
	uint32_t	sub = lane % LANES;
	uint32_t	group_lane = lane - sub;
	uint32_t	group_mask = EMB_FULL_WARP >> (32 - LANES);
	uint32_t	warp_task;
	uint32_t	slice;
	bool		waited = !p.settled;

	emb_let_next();
	if (waited)
		emb_wait();
	if (!emb_find_work(p.warp_tasks, p.slices, p.slice_major, warp_task, slice))
		return;

	uint32_t	column = slice * LANES + sub;
	bool		active = column < p.vectors;
	const char *base = emb_lane_base(p.table, column, p.vectors, VB);

	/* this lane's bag */
	uint32_t	bags = p.count ? *p.count : p.bags;
	uint64_t	first_bag = (uint64_t) (warp_task * (32 / LANES) + lane / LANES) * p.range;
	uint32_t	range = (uint32_t) min((uint64_t) p.range, bags - min(first_bag, (uint64_t) bags));
	uint32_t	bag = (uint32_t) first_bag + sub;
	bool		valid = sub < range;
	uint64_t	bag_start = 0;
	uint64_t	bag_end = 0;
	uint32_t	bag_dest = bag;
	float		bag_div = 0.0f;

	if (valid)
	{
		bag_start = p.offsets ? p.offsets[bag] : (uint64_t) bag * p.hotness;
		bag_end = p.offsets ? p.offsets[bag + 1] : bag_start + p.hotness;
		if (p.dest)
			bag_dest = p.dest[bag];
		if (p.mean)
			bag_div = bag_divisor(p, bag_start, bag_end);
	}

	bool		empty = bag_start == bag_end;
	uint64_t	start = __shfl_sync(EMB_FULL_WARP, bag_start, group_lane);
	int			last = empty ? -1 : (int) (bag_end - start) - 1;
	int			n = (int) (__shfl_sync(EMB_FULL_WARP, bag_end, group_lane + max(range, 1u) - 1) - start);
	int			most = (int) __reduce_max_sync(EMB_FULL_WARP, (unsigned) n);
	uint32_t	queue = __ballot_sync(EMB_FULL_WARP, !empty) >> group_lane & group_mask;
	uint32_t	empties = __ballot_sync(EMB_FULL_WARP, valid && empty);
	float		acc[E];
	struct emb_chunk chunk;
	uint32_t	next_row;
	float		next_weight;

#pragma unroll
	for (int e = 0; e < E; e++)
		acc[e] = 0.0f;
	chunk.group_lane = group_lane;

	/* Store the vector of bag i, if `now`, and begin the next */
	auto		store = [&] (uint32_t i, bool now)
	{
		uint32_t	dest = __shfl_sync(EMB_FULL_WARP, bag_dest, group_lane + i);
		float		divisor = __shfl_sync(EMB_FULL_WARP, bag_div, group_lane + i);

		if (!waited)
			emb_wait();
		waited = true;
		if (!now)
			return;
		store_bag<O, E>(p, dest, column, active, acc, divisor);
#pragma unroll
		for (int e = 0; e < E; e++)
			acc[e] = 0.0f;
	};

	for (uint32_t i = 0; i < LANES && empties; i++)
	{
		if (empties >> i & emb_group_starts<LANES>())
			store(i, empties >> (group_lane + i) & 1);
	}

	auto		fetch = [&] (int at)
	{
		next_row = EMB_MISSING;
		next_weight = 1.0f;
		if (at < n)
		{
			next_row = emb_lookup(p.indices, p.index_bits, p.rows, start + at);
			if (W)
				next_weight = __ldcs(p.weights + start + at);
		}
	};

	fetch(sub);
	for (int k = 0; k < most; k += LANES)
	{
		bool		here = last >= k && last - k < LANES;

		chunk.row = next_row;
		chunk.weight = next_weight;
		fetch(k + LANES + sub);
		chunk.present = __ballot_sync(EMB_FULL_WARP, chunk.row != EMB_MISSING);
		chunk.ends = __reduce_or_sync(EMB_FULL_WARP, here ? 1u << (group_lane + (uint32_t) (last - k)) : 0);

#pragma unroll 1
		for (uint32_t j = 0; j < LANES; j += STREAM_UNROLL)
			emb_add_batch<T, VB, LANES, STREAM_UNROLL, W>(base, p.stride_bytes, chunk, j, acc, [&] (uint32_t at)
			{
				bool		now = chunk.ends >> (group_lane + at) & 1;

				store(queue ? __ffs(queue) - 1 : 0, now);
				if (now)
					queue &= queue - 1;
			});
	}
}

/*
 * Add up the pieces of long bags.  A block serves a bag and 128 columns at a time; its
 * warps sum GPUVEC_EMB_FAN pieces each, in turn, the first warp sums these sums.
 */
template <typename O>
static __global__ void __launch_bounds__(COMBINE_THREADS)
combine_kernel(const __grid_constant__ struct emb_combine_params p)
{
	__shared__ float4 sums[GPUVEC_EMB_FAN][32];
	__shared__ float divisors[GPUVEC_EMB_FAN];
	uint32_t	lane = threadIdx.x % 32;
	uint32_t	warp = threadIdx.x / 32;
	uint64_t	items;

	emb_begin();
	items = (uint64_t) p.total->longs * p.slices;
	for (uint64_t item = blockIdx.x; item < items; item += gridDim.x)
	{
		uint32_t	bag = (uint32_t) (item / p.slices);
		uint32_t	column = ((uint32_t) (item % p.slices) * 32 + lane) * 4;
		bool		active = column < p.partial_stride;
		uint32_t	begin = p.longs[bag].partial;
		uint32_t	end = p.longs[bag + 1].partial;
		uint32_t	dest = p.longs[bag].dest;
		float4		total = make_float4(0, 0, 0, 0);
		float		total_divisor = 0.0f;

		while (begin < end)
		{
			for (uint32_t group = warp; group < GPUVEC_EMB_FAN; group += COMBINE_THREADS / 32)
			{
				uint32_t	first = begin + group * GPUVEC_EMB_FAN;
				uint32_t	m = first < end ? min(end - first, (uint32_t) GPUVEC_EMB_FAN) : 0;
				float4		sum = make_float4(0, 0, 0, 0);
				float		divisor = 0.0f;

#pragma unroll 8
				for (uint32_t i = 0; i < m; i++)
				{
					if (active)
					{
						float4		part = *(const float4 *) (p.partial + (first + i) * p.partial_stride + column);

						sum.x += part.x;
						sum.y += part.y;
						sum.z += part.z;
						sum.w += part.w;
					}
					if (p.partial_divisor)
						divisor += p.partial_divisor[first + i];
				}
				if (m > 0)
				{
					sums[group][lane] = sum;
					if (lane == 0)
						divisors[group] = divisor;
				}
			}
			__syncthreads();
			if (warp == 0)
			{
				uint32_t	groups = (min(end - begin, (uint32_t) (GPUVEC_EMB_FAN * GPUVEC_EMB_FAN)) +
									  GPUVEC_EMB_FAN - 1) / GPUVEC_EMB_FAN;
				float4		sum = make_float4(0, 0, 0, 0);
				float		divisor = 0.0f;

				for (uint32_t i = 0; i < groups; i++)
				{
					float4		part = sums[i][lane];

					sum.x += part.x;
					sum.y += part.y;
					sum.z += part.z;
					sum.w += part.w;
					divisor += divisors[i];
				}
				total.x += sum.x;
				total.y += sum.y;
				total.z += sum.z;
				total.w += sum.w;
				total_divisor += divisor;
			}
			__syncthreads();
			begin += GPUVEC_EMB_FAN * GPUVEC_EMB_FAN;
		}

		if (warp == 0 && active)
		{
			float		value[4] = {total.x, total.y, total.z, total.w};

			if (p.partial_divisor)
			{
				for (int e = 0; e < 4; e++)
					value[e] = total_divisor == 0.0f ? 0.0f : __fdiv_rn(value[e], total_divisor);
			}
			emb_store<4>((O *) p.out + dest * p.out_stride, column, p.width, false, value);
		}
	}
}

/* Adds counts, for the scan */
struct add_counts
{
	__device__ __forceinline__ struct emb_counts
	operator() (const struct emb_counts &a, const struct emb_counts &b) const
	{
		return {a.bags + b.bags, a.pieces + b.pieces, a.partials + b.partials, a.longs + b.longs};
	}
};

/* Exclusive sums over a warp, and the totals */
static __device__ __forceinline__ struct emb_counts
scan_warp(const struct emb_counts &counts, struct emb_counts &all)
{
	add_counts	add;
	uint32_t	lane = threadIdx.x % 32;
	struct emb_counts sum = counts;

#pragma unroll
	for (uint32_t d = 1; d < 32; d *= 2)
	{
		struct emb_counts other = {__shfl_up_sync(EMB_FULL_WARP, sum.bags, d),
			__shfl_up_sync(EMB_FULL_WARP, sum.pieces, d),
			__shfl_up_sync(EMB_FULL_WARP, sum.partials, d),
			__shfl_up_sync(EMB_FULL_WARP, sum.longs, d)};

		if (lane >= d)
			sum = add(sum, other);
	}
	all = {__shfl_sync(EMB_FULL_WARP, sum.bags, 31), __shfl_sync(EMB_FULL_WARP, sum.pieces, 31),
		__shfl_sync(EMB_FULL_WARP, sum.partials, 31), __shfl_sync(EMB_FULL_WARP, sum.longs, 31)};
	return {sum.bags - counts.bags, sum.pieces - counts.pieces, sum.partials - counts.partials,
		sum.longs - counts.longs};
}

/* The same over a block; parts is an array of a value for each warp */
static __device__ __forceinline__ struct emb_counts
scan_block(const struct emb_counts &counts, struct emb_counts &all, struct emb_counts *parts)
{
	add_counts	add;
	uint32_t	lane = threadIdx.x % 32;
	uint32_t	warp = threadIdx.x / 32;
	struct emb_counts before = scan_warp(counts, all);
	struct emb_counts part;

	__syncthreads();			/* parts may be in use */
	if (lane == 0)
		parts[warp] = all;
	__syncthreads();
	part = scan_warp(parts[lane], all);
	part = {__shfl_sync(EMB_FULL_WARP, part.bags, warp), __shfl_sync(EMB_FULL_WARP, part.pieces, warp),
		__shfl_sync(EMB_FULL_WARP, part.partials, warp), __shfl_sync(EMB_FULL_WARP, part.longs, warp)};
	return add(part, before);
}

/*
 * Turn the counts of tiles into places, and tell the totals to everyone who needs them.
 * Each block has a part of the tiles, and adds up all that come before itself, which
 * takes less time than to wait for others to do it.
 */
static __global__ void __launch_bounds__(SCAN_THREADS)
scan_kernel(const __grid_constant__ struct emb_scan_params p)
{
	__shared__ struct emb_counts parts[SCAN_THREADS / 32];
	const struct emb_counts none = {0, 0, 0, 0};
	add_counts	add;
	uint32_t	begin = min(blockIdx.x * p.part, p.ntiles);
	uint32_t	end = min(begin + p.part, p.ntiles);
	struct emb_counts sum = none;
	struct emb_counts before;

	emb_begin();
#pragma unroll 8
	for (uint32_t tile = threadIdx.x; tile < begin; tile += SCAN_THREADS)
		sum = add(sum, p.tiles[tile]);
	scan_block(sum, before, parts);

	for (uint32_t first = begin; first < end; first += SCAN_THREADS)
	{
		uint32_t	tile = first + threadIdx.x;
		struct emb_counts counts = tile < end ? p.tiles[tile] : none;
		struct emb_counts all;

		counts = add(before, scan_block(counts, all, parts));
		if (tile < end)
			p.places[tile] = counts;
		before = add(before, all);
	}
	if (end == p.ntiles && begin < end && threadIdx.x == 0)
	{
		*p.total = before;
		p.longs[before.longs].partial = before.partials;
		if (p.out_count)
			*p.out_count = before.bags;
	}
}

/*
 * Count (WRITE false) or write the pieces of bags.  A warp looks through EMB_TILE bags,
 * 32 at a time.
 */
template <bool WRITE>
static __global__ void
bag_pieces_kernel(const __grid_constant__ struct bag_pieces_params p)
{
	uint32_t	lane = threadIdx.x % 32;
	uint64_t	tile = ((uint64_t) blockIdx.x * blockDim.x + threadIdx.x) / 32;
	uint32_t	before_lane = (1u << lane) - 1;
	struct emb_counts counts = {0, 0, 0, 0};

	emb_begin();
	if (tile * EMB_TILE >= p.bags)
		return;
	if (WRITE)
		counts = p.pieces.shared.places[tile];

	for (uint64_t first = tile * EMB_TILE; first < (tile + 1) * EMB_TILE; first += 32)
	{
		uint64_t	bag = first + lane;
		int64_t		start = 0;
		int64_t		end = 0;
		uint32_t	n = 0;

		if (bag < p.bags)
		{
			start = p.offsets ? p.offsets[bag] : bag * p.hotness;
			end = p.offsets ? p.offsets[bag + 1] : start + p.hotness;
			n = end - start <= GPUVEC_EMB_PIECE ? 1 :
				(uint32_t) ((end - start + GPUVEC_EMB_PIECE - 1) / GPUVEC_EMB_PIECE);
		}

		uint32_t	longs = __ballot_sync(EMB_FULL_WARP, n > 1);
		uint32_t	bags = __popc(__ballot_sync(EMB_FULL_WARP, n > 0));

		/* inclusive sums over the lanes: pieces, and pieces of long bags */
		uint32_t	pieces = n;
		uint32_t	partials = n > 1 ? n : 0;

		for (int d = 1; d < 32; d *= 2)
		{
			uint32_t	other_pieces = __shfl_up_sync(EMB_FULL_WARP, pieces, d);
			uint32_t	other_partials = __shfl_up_sync(EMB_FULL_WARP, partials, d);

			if (lane >= d)
			{
				pieces += other_pieces;
				partials += other_partials;
			}
		}

		if (WRITE)
		{
			uint32_t	place = counts.pieces + pieces - n;
			uint32_t	slot = counts.partials + partials - (n > 1 ? n : 0);

			if (n == 1)
			{
				p.pieces.offsets[place] = start;
				p.pieces.dest[place] = (uint32_t) bag;
			}
			else if (n > 1)
			{
				struct emb_long *entry = p.pieces.shared.longs + counts.longs + __popc(longs & before_lane);

				entry->partial = slot;
				entry->dest = (uint32_t) bag;
			}
			if (bag == p.bags - 1)
				p.pieces.offsets[place + n] = end;

			/* the warp writes the pieces of each long bag together */
			for (uint32_t rest = longs; rest != 0; rest &= rest - 1)
			{
				int			source = __ffs(rest) - 1;
				int64_t		bag_start = __shfl_sync(EMB_FULL_WARP, start, source);
				uint32_t	bag_pieces = __shfl_sync(EMB_FULL_WARP, n, source);
				uint32_t	bag_place = __shfl_sync(EMB_FULL_WARP, place, source);
				uint32_t	bag_slot = __shfl_sync(EMB_FULL_WARP, slot, source);

				for (uint32_t i = lane; i < bag_pieces; i += 32)
				{
					p.pieces.offsets[bag_place + i] = bag_start + (int64_t) i * GPUVEC_EMB_PIECE;
					p.pieces.dest[bag_place + i] = (bag_slot + i) | EMB_PARTIAL;
				}
			}
		}

		counts.bags += bags;
		counts.pieces += __shfl_sync(EMB_FULL_WARP, pieces, 31);
		counts.partials += __shfl_sync(EMB_FULL_WARP, partials, 31);
		counts.longs += __popc(longs);
	}
	if (!WRITE && lane == 0)
		p.pieces.shared.tiles[tile] = counts;
}

/*
 * How to read rows: of the vectors that the alignment allows, the longest, but rows
 * of less than 128 bytes are spread over 8 lanes.
 */
struct emb_shape
emb_choose_shape(const void *data, uint64_t stride_bytes, uint64_t row_bytes,
				 uint32_t element_bytes, uint32_t max_vector_bytes)
{
	struct emb_shape shape;
	uint32_t	bytes = element_bytes;
	uint32_t	slice = gpuvec_emb_tuning.slice_bytes;

	while (bytes < max_vector_bytes &&
		   (uintptr_t) data % (bytes * 2) == 0 && stride_bytes % (bytes * 2) == 0 &&
		   emb_divide_up(row_bytes, bytes) > (1u << EMB_MIN_LANES_LOG2))
		bytes *= 2;

	shape.vector_bytes = bytes;
	shape.vectors = (uint32_t) emb_divide_up(row_bytes, bytes);
	shape.lanes_log2 = EMB_MIN_LANES_LOG2;
	while (shape.lanes_log2 < 5 && shape.vectors > (1u << shape.lanes_log2) &&
		   (slice == 0 || bytes << (shape.lanes_log2 + 1) <= slice))
		shape.lanes_log2++;
	shape.slices = (uint32_t) emb_divide_up(shape.vectors, (uint64_t) 1 << shape.lanes_log2);
	return shape;
}

/* Launch bag_kernel or stream_kernel */
template <typename T, typename O, int VB, int LANES, bool W>
static cudaError_t
launch_pool(const struct pool_params &params, cudaStream_t stream)
{
	uint64_t	warps = (uint64_t) params.warp_tasks * params.slices;

	if (params.range == 1)
		return emb_launch_cached(bag_kernel<T, O, VB, LANES, W>, warps, emb_block_threads(BAG_THREADS),
								 params, stream);
	return emb_launch_cached(stream_kernel<T, O, VB, LANES, W>, warps, emb_block_threads(STREAM_THREADS),
							 params, stream);
}

/* The same for vectors of VB bytes */
template <typename T, typename O, int VB>
static cudaError_t
pool_vectors(const struct pool_params &params, uint32_t lanes_log2, cudaStream_t stream)
{
	bool		weighted = params.weights != NULL;

	switch (lanes_log2)
	{
		case 3:
			return weighted ? launch_pool<T, O, VB, 8, true>(params, stream) :
				launch_pool<T, O, VB, 8, false>(params, stream);
		case 4:
			return weighted ? launch_pool<T, O, VB, 16, true>(params, stream) :
				launch_pool<T, O, VB, 16, false>(params, stream);
		default:
			return weighted ? launch_pool<T, O, VB, 32, true>(params, stream) :
				launch_pool<T, O, VB, 32, false>(params, stream);
	}
}

/* The same for tables of T and results of O */
template <typename T, typename O>
static cudaError_t
pool_type(const struct pool_params &params, const struct emb_shape &shape, cudaStream_t stream)
{
	switch (shape.vector_bytes)
	{
		case 16:
			return pool_vectors<T, O, 16>(params, shape.lanes_log2, stream);
		case 8:
			return pool_vectors<T, O, 8>(params, shape.lanes_log2, stream);
		case 4:
			return pool_vectors<T, O, 4>(params, shape.lanes_log2, stream);
		default:
			return pool_vectors<T, O, sizeof(T)>(params, shape.lanes_log2, stream);
	}
}

/*
 * Pool: what the caller leaves to this function is how to read the table, and the
 * launch.  If long bags are of uneven lengths, more lanes share a row, so that fewer
 * bags share a warp and wait for each other.
 */
static cudaError_t
pool(struct pool_params *params, enum gpuvec_emb_type type, enum gpuvec_emb_type out_type, bool uneven,
	 cudaStream_t stream)
{
	uint32_t	element_bytes = emb_element_size(type);
	uint64_t	row_bytes = (uint64_t) params->width * element_bytes;
	uint32_t	most_bytes = gpuvec_emb_tuning.vector_bytes;
	struct emb_shape shape;
	uint64_t	warp_tasks;

	if (most_bytes == 0)
		most_bytes = uneven && params->range == 1 && row_bytes <= 32 * 8 ? 8 : 16;
	shape = emb_choose_shape(params->table, params->stride_bytes, row_bytes, element_bytes, most_bytes);

	/* a warp has as many lookups, whatever the width */
	if (params->range > 1u << (shape.lanes_log2 - 1))
		params->range = 1u << (shape.lanes_log2 - 1);
	warp_tasks = emb_divide_up(emb_divide_up(params->bags, params->range), 32u >> shape.lanes_log2);
	if (warp_tasks * shape.slices > UINT32_MAX)
		return cudaErrorInvalidValue;
	params->warp_tasks = (uint32_t) warp_tasks;
	params->vectors = shape.vectors;
	params->slices = shape.slices;
	params->slice_major = gpuvec_emb_tuning.slice_major != 0;
	params->vector_out = emb_vector_out(params->out, params->out_stride, params->width,
										shape.vector_bytes / element_bytes, emb_element_size(out_type));
	params->vector_partial = params->width % (shape.vector_bytes / element_bytes) == 0;

	if (type == GPUVEC_EMB_FLOAT32)
		return pool_type<float, float>(*params, shape, stream);
	if (out_type == GPUVEC_EMB_FLOAT32)
		return pool_type<__half, float>(*params, shape, stream);
	return pool_type<__half, __half>(*params, shape, stream);
}

/* Add up the pieces of long bags, of which there are at most most_longs */
cudaError_t
emb_combine(const struct emb_pieces *pieces, bool mean, void *out, enum gpuvec_emb_type out_type,
			uint64_t out_stride, uint32_t width, uint64_t most_longs, cudaStream_t stream)
{
	struct emb_combine_params params = {};

	params.total = pieces->total;
	params.longs = pieces->longs;
	params.partial = pieces->partial;
	params.partial_divisor = mean ? pieces->partial_divisor : NULL;
	params.partial_stride = pieces->partial_stride;
	params.out = out;
	params.out_stride = out_stride;
	params.width = width;
	params.slices = (uint32_t) emb_divide_up(width, 128);
	most_longs *= params.slices;
	return emb_launch_chained(out_type == GPUVEC_EMB_FLOAT32 ? combine_kernel<float> : combine_kernel<__half>,
					  most_longs < COMBINE_BLOCKS ? most_longs : COMBINE_BLOCKS, COMBINE_THREADS,
					  params, stream);
}

/* See embedding_pool.cuh */
bool
emb_kernels_wait(void)
{
	static const bool wait = [] ()
	{
		cudaFuncAttributes attributes;

		/* all kernels are compiled alike */
		return cudaFuncGetAttributes(&attributes, (const void *) scan_kernel) == cudaSuccess &&
			attributes.ptxVersion >= 90;
	} ();

	return wait;
}

/* Turn the counts of tiles into places */
cudaError_t
emb_scan(const struct emb_pieces *pieces, uint64_t ntiles, uint32_t *out_count, cudaStream_t stream)
{
	struct emb_scan_params params = {};
	uint64_t	blocks = emb_divide_up(ntiles, SCAN_THREADS);

	if (blocks > SCAN_BLOCKS)
		blocks = SCAN_BLOCKS;
	params.tiles = pieces->tiles;
	params.places = pieces->places;
	params.ntiles = (uint32_t) ntiles;
	params.part = (uint32_t) emb_divide_up(ntiles, blocks);
	params.total = pieces->total;
	params.longs = pieces->longs;
	params.out_count = out_count;
	return emb_launch_chained(scan_kernel, blocks, SCAN_THREADS, params, stream);
}

/* May some bag have more than one piece? */
static bool
may_be_long(const struct gpuvec_emb_bags *bags)
{
	if (bags->offsets == NULL)
		return bags->hotness > GPUVEC_EMB_PIECE;
	return bags->lookups > GPUVEC_EMB_PIECE &&
		(bags->longest == 0 || bags->longest > GPUVEC_EMB_PIECE);
}

/* Do the lengths of bags differ much? */
static bool
uneven_bags(const struct gpuvec_emb_bags *bags)
{
	return bags->offsets != NULL &&
		(bags->longest == 0 || bags->bags == 0 || bags->longest > bags->lookups / bags->bags * 3 / 2);
}

/*
 * Lay out the memory that pieces of bags take.  More than one piece has only a bag
 * of more than GPUVEC_EMB_PIECE lookups, so these are less than 2 / GPUVEC_EMB_PIECE
 * of the lookups.
 */
static void
lay_out_pieces(struct emb_area *area, const struct gpuvec_emb_bags *bags, uint32_t width,
			   struct bag_pieces *pieces)
{
	uint64_t	most_partials = bags->lookups / (GPUVEC_EMB_PIECE / 2) + 1;

	pieces->shared.tiles = area->take<struct emb_counts>(emb_divide_up(bags->bags, EMB_TILE));
	pieces->shared.places = area->take<struct emb_counts>(emb_divide_up(bags->bags, EMB_TILE));
	pieces->shared.total = area->take<struct emb_counts>(1);
	pieces->offsets = area->take<int64_t>(bags->bags + most_partials + 1);
	pieces->dest = area->take<uint32_t>(bags->bags + most_partials);
	pieces->shared.longs = area->take<struct emb_long>(bags->lookups / GPUVEC_EMB_PIECE + 2);
	pieces->shared.partial_stride = emb_partial_stride(width);
	pieces->shared.partial = area->take<float>(most_partials * pieces->shared.partial_stride);
	pieces->shared.partial_divisor = area->take<float>(most_partials);
}

/* Is this a call that can be served? */
static bool
valid_forward(const struct gpuvec_emb_table *table, const struct gpuvec_emb_bags *bags,
			  enum gpuvec_emb_mode mode)
{
	return table->rows < UINT32_MAX && table->width > 0 && table->stride >= table->width &&
		table->stride <= UINT32_MAX / sizeof(float) &&
		(bags->index_bits == 32 || bags->index_bits == 64) &&
		bags->bags < EMB_PARTIAL &&
		(bags->offsets != NULL || bags->hotness <= INT32_MAX) &&
		(mode == GPUVEC_EMB_CONCAT ? bags->weights == NULL :
		 (!may_be_long(bags) || bags->lookups < EMB_PARTIAL)) &&
		(mode == GPUVEC_EMB_CONCAT || bags->offsets != NULL ||
		 bags->lookups == bags->bags * bags->hotness);
}

/* How much memory gpuvec_emb_forward needs */
cudaError_t
gpuvec_emb_forward_workspace(const struct gpuvec_emb_table *table, const struct gpuvec_emb_bags *bags,
							 enum gpuvec_emb_mode mode, size_t *bytes)
{
	struct emb_area area = {NULL, 0};
	struct bag_pieces pieces;

	*bytes = 0;
	if (!valid_forward(table, bags, mode))
		return cudaErrorInvalidValue;
	if (mode != GPUVEC_EMB_CONCAT && may_be_long(bags))
		lay_out_pieces(&area, bags, table->width, &pieces);
	*bytes = area.used;
	return cudaSuccess;
}

/*
 * How many bags a group of lanes pools: so many that it has RANGE_LOOKUPS lookups, on
 * average.
 */
static uint32_t
choose_range(uint64_t lookups, uint64_t bags)
{
	uint64_t	range = gpuvec_emb_tuning.range;

	if (range == 0)
		range = bags * RANGE_LOOKUPS / (lookups > 0 ? lookups : 1);
	return range < 1 ? 1 : range > RANGE_LOOKUPS ? RANGE_LOOKUPS : (uint32_t) range;
}

/* Pool */
cudaError_t
gpuvec_emb_forward(const struct gpuvec_emb_table *table, const struct gpuvec_emb_bags *bags,
				   enum gpuvec_emb_mode mode, void *out, enum gpuvec_emb_type out_type,
				   uint64_t out_stride, void *work, size_t work_bytes, cudaStream_t stream)
{
	struct pool_params params = {};
	struct bag_pieces pieces = {};
	size_t		needed;
	cudaError_t error = gpuvec_emb_forward_workspace(table, bags, mode, &needed);

	if (error != cudaSuccess)
		return error;
	if (work_bytes < needed || out_stride < table->width ||
		(out_type != GPUVEC_EMB_FLOAT32 && out_type != table->type))
		return cudaErrorInvalidValue;
	if (mode == GPUVEC_EMB_CONCAT ||
		(bags->offsets == NULL && bags->hotness == 1 && bags->weights == NULL))
		return emb_gather(table, bags, mode == GPUVEC_EMB_CONCAT, out, out_type, out_stride, stream);
	if (bags->bags == 0)
		return cudaSuccess;

	params.table = (const char *) table->data;
	params.stride_bytes = (uint32_t) (table->stride * emb_element_size(table->type));
	params.rows = (uint32_t) table->rows;
	params.width = table->width;
	params.indices = bags->indices;
	params.weights = bags->weights;
	params.index_bits = bags->index_bits;
	params.hotness = (uint32_t) bags->hotness;
	params.offsets = bags->offsets;
	params.bags = bags->bags;
	params.settled = bags->settled != 0;
	params.mean = mode == GPUVEC_EMB_MEAN;
	params.skip_missing = bags->skip_missing != 0;
	params.out = out;
	params.out_stride = out_stride;

	if (may_be_long(bags))
	{
		struct emb_area area = {(char *) work, 0};
		struct bag_pieces_params bag_pieces = {};
		uint64_t	ntiles = emb_divide_up(bags->bags, EMB_TILE);

		lay_out_pieces(&area, bags, table->width, &pieces);
		bag_pieces.offsets = bags->offsets;
		bag_pieces.hotness = bags->hotness;
		bag_pieces.bags = bags->bags;
		bag_pieces.pieces = pieces;
		error = emb_launch_chained(bag_pieces_kernel<false>, emb_divide_up(ntiles, 4), 128, bag_pieces, stream);
		if (error == cudaSuccess)
			error = emb_scan(&pieces.shared, ntiles, NULL, stream);
		if (error == cudaSuccess)
			error = emb_launch_chained(bag_pieces_kernel<true>, emb_divide_up(ntiles, 4), 128, bag_pieces, stream);
		if (error != cudaSuccess)
			return error;

		params.settled = false;
		params.offsets = pieces.offsets;
		params.count = &pieces.shared.total->pieces;
		params.bags = bags->bags + bags->lookups / (GPUVEC_EMB_PIECE / 2) + 1;
		params.dest = pieces.dest;
		params.partial = pieces.shared.partial;
		params.partial_divisor = pieces.shared.partial_divisor;
		params.partial_stride = pieces.shared.partial_stride;
	}

	params.range = choose_range(bags->lookups, bags->bags);
	error = pool(&params, table->type, out_type, uneven_bags(bags), stream);
	if (error == cudaSuccess && params.count)
		error = emb_combine(&pieces.shared, params.mean, out, out_type, out_stride, table->width,
							bags->lookups / GPUVEC_EMB_PIECE, stream);
	return error;
}
