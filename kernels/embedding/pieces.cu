/*-------------------------------------------------------------------------
 *
 * pieces.cu
 *	  Cut long bags into pieces, and add up what the pieces give.
 *
 * Warps count the pieces of POOLING_TILE bags each, some blocks sum up what is before
 * each tile, and the
 * warps write the pieces, those of bags that are not long among them.  grad.cu
 * finds pieces in its own way, and shares the rest.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/embedding/pool.cuh"

namespace gpuvec
{

#define CUT_THREADS			128
#define SCAN_THREADS		1024
#define SCAN_BLOCKS			32
#define COMBINE_THREADS		256
#define COMBINE_BLOCKS		1056

/* What bag_pieces_kernel needs to know */
struct bag_pieces_params
{
	struct pooling_bags bags;
	struct pooling_bag_pieces pieces;
};

/* Adds counts, for the scan */
struct add_counts
{
	__device__ __forceinline__ struct pooling_counts
	operator() (const struct pooling_counts &a, const struct pooling_counts &b) const
	{
		return {a.bags + b.bags, a.pieces + b.pieces, a.partials + b.partials, a.longs + b.longs};
	}
};

/* Exclusive sums over a warp, and the totals */
static __device__ __forceinline__ struct pooling_counts
scan_warp(const struct pooling_counts &counts, struct pooling_counts &all)
{
	add_counts	add;
	uint32_t	lane = threadIdx.x % 32;
	struct pooling_counts sum = counts;

#pragma unroll
	for (uint32_t d = 1; d < 32; d *= 2)
	{
		struct pooling_counts other = {__shfl_up_sync(FULL_WARP, sum.bags, d),
			__shfl_up_sync(FULL_WARP, sum.pieces, d),
			__shfl_up_sync(FULL_WARP, sum.partials, d),
			__shfl_up_sync(FULL_WARP, sum.longs, d)};

		if (lane >= d)
			sum = add(sum, other);
	}
	all = {__shfl_sync(FULL_WARP, sum.bags, 31), __shfl_sync(FULL_WARP, sum.pieces, 31),
		__shfl_sync(FULL_WARP, sum.partials, 31), __shfl_sync(FULL_WARP, sum.longs, 31)};
	return {sum.bags - counts.bags, sum.pieces - counts.pieces, sum.partials - counts.partials,
		sum.longs - counts.longs};
}

/* The same over a block; parts is an array of a value for each warp */
static __device__ __forceinline__ struct pooling_counts
scan_block(const struct pooling_counts &counts, struct pooling_counts &all, struct pooling_counts *parts)
{
	add_counts	add;
	uint32_t	lane = threadIdx.x % 32;
	uint32_t	warp = threadIdx.x / 32;
	struct pooling_counts before = scan_warp(counts, all);
	struct pooling_counts part;

	__syncthreads();			/* parts may be in use */
	if (lane == 0)
		parts[warp] = all;
	__syncthreads();
	part = scan_warp(parts[lane], all);
	part = {__shfl_sync(FULL_WARP, part.bags, warp), __shfl_sync(FULL_WARP, part.pieces, warp),
		__shfl_sync(FULL_WARP, part.partials, warp), __shfl_sync(FULL_WARP, part.longs, warp)};
	return add(part, before);
}

/*
 * Sum up what is before each tile, and tell the totals to everyone who needs them.
 * Each block has a part of the tiles, and adds up all that come before itself, which
 * takes less time than to wait for others to do it.
 */
static __global__ void __launch_bounds__(SCAN_THREADS)
scan_kernel(const __grid_constant__ struct pooling_scan_params p)
{
	__shared__ struct pooling_counts parts[SCAN_THREADS / 32];
	const struct pooling_counts none = {0, 0, 0, 0};
	add_counts	add;
	uint32_t	begin = min(blockIdx.x * p.part, p.ntiles);
	uint32_t	end = min(begin + p.part, p.ntiles);
	struct pooling_counts sum = none;
	struct pooling_counts before;

	pooling_begin();
#pragma unroll 8
	for (uint32_t tile = threadIdx.x; tile < begin; tile += SCAN_THREADS)
		sum = add(sum, p.tiles[tile]);
	scan_block(sum, before, parts);

	for (uint32_t first = begin; first < end; first += SCAN_THREADS)
	{
		uint32_t	tile = first + threadIdx.x;
		struct pooling_counts counts = tile < end ? p.tiles[tile] : none;
		struct pooling_counts all;

		counts = add(before, scan_block(counts, all, parts));
		if (tile < end)
			p.before[tile] = counts;
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
 * Count (WRITE false) or write the pieces of bags.  A warp looks through POOLING_TILE bags,
 * 32 at a time.
 */
template <bool WRITE>
static __global__ void
bag_pieces_kernel(const __grid_constant__ struct bag_pieces_params p)
{
	uint32_t	lane = threadIdx.x % 32;
	uint64_t	tile = ((uint64_t) blockIdx.x * blockDim.x + threadIdx.x) / 32;
	uint32_t	before_lane = (1u << lane) - 1;
	struct pooling_counts counts = {0, 0, 0, 0};

	pooling_begin();
	if (tile * POOLING_TILE >= p.bags.bags)
		return;
	if (WRITE)
		counts = p.pieces.shared.before[tile];

	for (uint64_t first = tile * POOLING_TILE; first < (tile + 1) * POOLING_TILE; first += 32)
	{
		uint64_t	bag = first + lane;
		int64_t		start = 0;
		int64_t		end = 0;
		uint32_t	n = 0;

		if (bag < p.bags.bags)
		{
			start = p.bags.offsets ? p.bags.offsets[bag] : bag * p.bags.hotness;
			end = p.bags.offsets ? p.bags.offsets[bag + 1] : start + p.bags.hotness;
			n = end - start <= GPUVEC_PIECE ? 1 :
				(uint32_t) ((end - start + GPUVEC_PIECE - 1) / GPUVEC_PIECE);
		}

		uint32_t	longs = __ballot_sync(FULL_WARP, n > 1);
		uint32_t	bags = __popc(__ballot_sync(FULL_WARP, n > 0));

		/* inclusive sums over the lanes: pieces, and pieces of long bags */
		uint32_t	pieces = n;
		uint32_t	partials = n > 1 ? n : 0;

		for (int d = 1; d < 32; d *= 2)
		{
			uint32_t	other_pieces = __shfl_up_sync(FULL_WARP, pieces, d);
			uint32_t	other_partials = __shfl_up_sync(FULL_WARP, partials, d);

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
				struct pooling_long *entry = p.pieces.shared.longs + counts.longs + __popc(longs & before_lane);

				entry->partial = slot;
				entry->dest = (uint32_t) bag;
			}
			if (bag == p.bags.bags - 1)
				p.pieces.offsets[place + n] = end;

			/* the warp writes the pieces of each long bag together */
			for (uint32_t rest = longs; rest != 0; rest &= rest - 1)
			{
				int			source = __ffs(rest) - 1;
				int64_t		bag_start = __shfl_sync(FULL_WARP, start, source);
				uint32_t	bag_pieces = __shfl_sync(FULL_WARP, n, source);
				uint32_t	bag_place = __shfl_sync(FULL_WARP, place, source);
				uint32_t	bag_slot = __shfl_sync(FULL_WARP, slot, source);

				for (uint32_t i = lane; i < bag_pieces; i += 32)
				{
					p.pieces.offsets[bag_place + i] = bag_start + (int64_t) i * GPUVEC_PIECE;
					p.pieces.dest[bag_place + i] = (bag_slot + i) | POOLING_PARTIAL;
				}
			}
		}

		counts.bags += bags;
		counts.pieces += __shfl_sync(FULL_WARP, pieces, 31);
		counts.partials += __shfl_sync(FULL_WARP, partials, 31);
		counts.longs += __popc(longs);
	}
	if (!WRITE && lane == 0)
		p.pieces.shared.tiles[tile] = counts;
}

/*
 * Add up the pieces of long bags.  A block serves a bag and 128 columns at a time; its
 * warps sum GPUVEC_FAN pieces each, in turn, the first warp sums these sums.
 */
template <typename O>
static __global__ void __launch_bounds__(COMBINE_THREADS)
combine_kernel(const __grid_constant__ struct pooling_combine_params p)
{
	__shared__ float4 sums[GPUVEC_FAN][32];
	__shared__ double divisors[GPUVEC_FAN];
	uint32_t	lane = threadIdx.x % 32;
	uint32_t	warp = threadIdx.x / 32;
	uint64_t	items;

	pooling_begin();
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
		double		total_divisor = 0.0;

		while (begin < end)
		{
			for (uint32_t group = warp; group < GPUVEC_FAN; group += COMBINE_THREADS / 32)
			{
				uint32_t	first = begin + group * GPUVEC_FAN;
				uint32_t	m = first < end ? min(end - first, (uint32_t) GPUVEC_FAN) : 0;
				float4		sum = make_float4(0, 0, 0, 0);
				double		divisor = 0.0;

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
				uint32_t	groups = (min(end - begin, (uint32_t) (GPUVEC_FAN * GPUVEC_FAN)) +
									  GPUVEC_FAN - 1) / GPUVEC_FAN;
				float4		sum = make_float4(0, 0, 0, 0);
				double		divisor = 0.0;

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
			begin += GPUVEC_FAN * GPUVEC_FAN;
		}

		if (warp == 0 && active)
		{
			float		value[4] = {total.x, total.y, total.z, total.w};
			float		divisor = (float) total_divisor;

			if (p.partial_divisor)
			{
				for (int e = 0; e < 4; e++)
					value[e] = divisor == 0.0f ? 0.0f : __fdiv_rn(value[e], divisor);
			}
			pooling_store<4>((O *) p.out + dest * p.out_stride, column, p.width, false, value);
		}
	}
}

/* Add up the pieces of long bags, of which there are at most most_longs */
cudaError_t
pooling_combine(const struct pooling_policy &policy, const struct pooling_pieces *pieces, bool mean, void *out, gpuvec_storage out_storage,
			uint64_t out_stride, uint32_t width, uint64_t most_longs, cudaStream_t stream)
{
	struct pooling_combine_params params = {};

	params.total = pieces->total;
	params.longs = pieces->longs;
	params.partial = pieces->partial;
	params.partial_divisor = mean ? pieces->partial_divisor : NULL;
	params.partial_stride = pieces->partial_stride;
	params.out = out;
	params.out_stride = out_stride;
	params.width = width;
	params.slices = (uint32_t) divide_up(width, 128);
	most_longs *= params.slices;
	return pooling_launch(policy, out_storage == GPUVEC_FLOAT32 ? combine_kernel<float> : combine_kernel<__half>,
					  most_longs < COMBINE_BLOCKS ? most_longs : COMBINE_BLOCKS, COMBINE_THREADS,
					  params, stream);
}

/* Sum up what is before each tile */
cudaError_t
pooling_scan(const struct pooling_policy &policy, const struct pooling_pieces *pieces, uint64_t ntiles, uint32_t *out_count, cudaStream_t stream)
{
	struct pooling_scan_params params = {};
	uint64_t	blocks = divide_up(ntiles, SCAN_THREADS);

	if (blocks > SCAN_BLOCKS)
		blocks = SCAN_BLOCKS;
	params.tiles = pieces->tiles;
	params.before = pieces->before;
	params.ntiles = (uint32_t) ntiles;
	params.part = (uint32_t) divide_up(ntiles, blocks);
	params.total = pieces->total;
	params.longs = pieces->longs;
	params.out_count = out_count;
	return pooling_launch(policy, scan_kernel, blocks, SCAN_THREADS, params, stream);
}

/*
 * Lay out the memory that pieces of bags take.  More than one piece has only a bag
 * of more than GPUVEC_PIECE lookups, so these are less than 2 / GPUVEC_PIECE
 * of the lookups.
 */
void
pooling_lay_out_bags(struct arena *area, const struct pooling_bags *bags, uint32_t width,
				 struct pooling_bag_pieces *pieces)
{
	uint64_t	most_partials = bags->lookups / (GPUVEC_PIECE / 2) + 1;

	pieces->shared.tiles = area->take<struct pooling_counts>(divide_up(bags->bags, POOLING_TILE));
	pieces->shared.before = area->take<struct pooling_counts>(divide_up(bags->bags, POOLING_TILE));
	pieces->shared.total = area->take<struct pooling_counts>(1);
	pieces->offsets = area->take<int64_t>(bags->bags + most_partials + 1);
	pieces->dest = area->take<uint32_t>(bags->bags + most_partials);
	pieces->shared.longs = area->take<struct pooling_long>(bags->lookups / GPUVEC_PIECE + 2);
	pieces->shared.partial_stride = pooling_partial_stride(width);
	pieces->shared.partial = area->take<float>(most_partials * pieces->shared.partial_stride);
	pieces->shared.partial_divisor = area->take<double>(most_partials);
}

/* Cut bags into pieces. */
cudaError_t
pooling_cut_bags(const struct pooling_policy &policy, const struct pooling_bags *bags, const struct pooling_bag_pieces *pieces, cudaStream_t stream)
{
	uint64_t	ntiles = divide_up(bags->bags, POOLING_TILE);
	uint64_t	blocks = divide_up(ntiles, CUT_THREADS / 32);
	struct bag_pieces_params params = {};
	cudaError_t error;

	params.bags = *bags;
	params.pieces = *pieces;
	error = pooling_launch(policy, bag_pieces_kernel<false>, blocks, CUT_THREADS, params, stream);
	if (error == cudaSuccess)
		error = pooling_scan(policy, &pieces->shared, ntiles, NULL, stream);
	if (error == cudaSuccess)
		error = pooling_launch(policy, bag_pieces_kernel<true>, blocks, CUT_THREADS, params, stream);
	return error;
}

}
