/*-------------------------------------------------------------------------
 *
 * pieces.cu
 *	  Cuts long bags into pieces, and adds up the sums of the pieces.
 *
 * First each warp counts the pieces of POOLING_TILE bags (a tile).  Then some
 * blocks compute for each tile what is before it.  Then the warps write the
 * pieces; a bag that is not long is one piece.
 *
 * grad.cu finds pieces in its own way, but shares the rest.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/embedding/pool.cuh"

namespace gpuvec
{

#define CUT_THREADS 128
#define SCAN_THREADS 1024
#define SCAN_BLOCKS 32
#define COMBINE_THREADS 256
#define COMBINE_BLOCKS 1056

/* The parameters of bag_pieces_kernel */
struct bag_pieces_params
{
	struct pooling_bags bags;
	struct pooling_bag_pieces pieces;
};

/* Adds counts */
struct add_counts
{
	__device__ __forceinline__ struct pooling_counts
	operator()(const struct pooling_counts &a, const struct pooling_counts &b) const
	{
		return {a.bags + b.bags, a.pieces + b.pieces, a.partials + b.partials, a.longs + b.longs};
	}
};

/* Exclusive prefix sums over a warp, and the total */
static __device__ __forceinline__ struct pooling_counts
scan_warp(const struct pooling_counts &counts, struct pooling_counts &all)
{
	add_counts add;
	uint32_t lane = threadIdx.x % 32;
	struct pooling_counts sum = counts;

#pragma unroll
	for (uint32_t d = 1; d < 32; d *= 2)
	{
		struct pooling_counts other = {
			__shfl_up_sync(FULL_WARP, sum.bags, d), __shfl_up_sync(FULL_WARP, sum.pieces, d),
			__shfl_up_sync(FULL_WARP, sum.partials, d), __shfl_up_sync(FULL_WARP, sum.longs, d)};

		if (lane >= d)
			sum = add(sum, other);
	}
	all = {__shfl_sync(FULL_WARP, sum.bags, 31), __shfl_sync(FULL_WARP, sum.pieces, 31),
		   __shfl_sync(FULL_WARP, sum.partials, 31), __shfl_sync(FULL_WARP, sum.longs, 31)};
	return {sum.bags - counts.bags, sum.pieces - counts.pieces, sum.partials - counts.partials,
			sum.longs - counts.longs};
}

/*
 * The same over a thread block; slices[]: shared memory, one element per warp
 */
static __device__ __forceinline__ struct pooling_counts
scan_block(const struct pooling_counts &counts, struct pooling_counts &all,
		   struct pooling_counts *slices)
{
	add_counts add;
	uint32_t lane = threadIdx.x % 32;
	uint32_t warp = threadIdx.x / 32;
	struct pooling_counts before = scan_warp(counts, all);
	struct pooling_counts slice;

	__syncthreads(); /* slices[] may be in use */
	if (lane == 0)
		slices[warp] = all;
	__syncthreads();
	slice = scan_warp(slices[lane], all);
	slice = {__shfl_sync(FULL_WARP, slice.bags, warp), __shfl_sync(FULL_WARP, slice.pieces, warp),
			 __shfl_sync(FULL_WARP, slice.partials, warp),
			 __shfl_sync(FULL_WARP, slice.longs, warp)};
	return add(slice, before);
}

/*
 * Compute for each tile the counts before it, and the total.
 *
 * Each block has a slice of the tiles, and adds up itself all tiles before its
 * slice.  This takes less time than waiting for other blocks.
 */
static __global__ void
__launch_bounds__(SCAN_THREADS) scan_kernel(const __grid_constant__ struct pooling_scan_params p)
{
	__shared__ struct pooling_counts slices[SCAN_THREADS / 32];
	const struct pooling_counts none = {0, 0, 0, 0};
	add_counts add;
	uint32_t begin = min(blockIdx.x * p.slice, p.ntiles);
	uint32_t end = min(begin + p.slice, p.ntiles);
	struct pooling_counts sum = none;
	struct pooling_counts before;

	pooling_begin();
#pragma unroll 8
	for (uint32_t tile = threadIdx.x; tile < begin; tile += SCAN_THREADS)
		sum = add(sum, p.tiles[tile]);
	scan_block(sum, before, slices);

	for (uint32_t first = begin; first < end; first += SCAN_THREADS)
	{
		uint32_t tile = first + threadIdx.x;
		struct pooling_counts counts = tile < end ? p.tiles[tile] : none;
		struct pooling_counts all;

		counts = add(before, scan_block(counts, all, slices));
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

/* Inclusive prefix sums of two numbers over the lanes of a warp */
static __device__ __forceinline__ void
sum_up_to_lane(uint32_t &a, uint32_t &b)
{
	uint32_t lane = threadIdx.x % 32;

	for (int d = 1; d < 32; d *= 2)
	{
		uint32_t other_a = __shfl_up_sync(FULL_WARP, a, d);
		uint32_t other_b = __shfl_up_sync(FULL_WARP, b, d);

		if (lane >= d)
		{
			a += other_a;
			b += other_b;
		}
	}
}

/* The bag of a lane, when pieces are counted or written */
struct lane_bag
{
	uint64_t number;
	int64_t start; /* first lookup */
	int64_t end;
	uint32_t pieces;  /* 0: there is no such bag */
	uint32_t first;   /* its first piece */
	uint32_t partial; /* its first partial sum, if it is long */
};

/* Find the lookups and pieces of a bag */
static __device__ __forceinline__ struct lane_bag
find_bag(const struct pooling_bags &bags, uint64_t number)
{
	struct lane_bag bag = {number, 0, 0, 0, 0, 0};

	if (number < bags.bags)
	{
		bag.start = bags.offsets ? bags.offsets[number] : number * bags.hotness;
		bag.end = bags.offsets ? bags.offsets[number + 1] : bag.start + bags.hotness;
		bag.pieces = bag.end - bag.start <= GPUVEC_PIECE
						 ? 1
						 : (uint32_t) ((bag.end - bag.start + GPUVEC_PIECE - 1) / GPUVEC_PIECE);
	}
	return bag;
}

/*
 * Write the pieces of each long bag, with the whole warp; longs: the lanes
 * whose bag is long
 */
static __device__ __forceinline__ void
write_long_bags(const struct pooling_bag_pieces &to, const struct lane_bag &bag, uint32_t longs)
{
	for (uint32_t rest = longs; rest != 0; rest &= rest - 1)
	{
		int source = __ffs(rest) - 1;
		int64_t start = __shfl_sync(FULL_WARP, bag.start, source);
		uint32_t pieces = __shfl_sync(FULL_WARP, bag.pieces, source);
		uint32_t first = __shfl_sync(FULL_WARP, bag.first, source);
		uint32_t partial = __shfl_sync(FULL_WARP, bag.partial, source);

		for (uint32_t i = threadIdx.x % 32; i < pieces; i += 32)
		{
			to.offsets[first + i] = start + (int64_t) i * GPUVEC_PIECE;
			to.dest[first + i] = (partial + i) | POOLING_PARTIAL;
		}
	}
}

/*
 * Write the pieces of the warp's bags.  `number` is the number of this lane's
 * bag among the long bags.
 */
static __device__ __forceinline__ void
write_bags(const struct bag_pieces_params &p, const struct lane_bag &bag, uint32_t longs,
		   uint32_t number)
{
	if (bag.pieces == 1)
	{
		p.pieces.offsets[bag.first] = bag.start;
		p.pieces.dest[bag.first] = (uint32_t) bag.number;
	}
	else if (bag.pieces > 1)
	{
		p.pieces.shared.longs[number].partial = bag.partial;
		p.pieces.shared.longs[number].dest = (uint32_t) bag.number;
	}
	if (bag.number == p.bags.bags - 1)
		p.pieces.offsets[bag.first + bag.pieces] = bag.end;
	write_long_bags(p.pieces, bag, longs);
}

/*
 * Write the pieces of bags, or if WRITE is false count them.  A warp looks
 * through POOLING_TILE bags, 32 at a time.
 */
template <bool WRITE>
static __global__ void
bag_pieces_kernel(const __grid_constant__ struct bag_pieces_params p)
{
	uint32_t lane = threadIdx.x % 32;
	uint64_t tile = ((uint64_t) blockIdx.x * blockDim.x + threadIdx.x) / 32;
	struct pooling_counts counts = {0, 0, 0, 0};

	pooling_begin();
	if (tile * POOLING_TILE >= p.bags.bags)
		return;
	if (WRITE)
		counts = p.pieces.shared.before[tile];

	for (uint64_t first = tile * POOLING_TILE; first < (tile + 1) * POOLING_TILE; first += 32)
	{
		struct lane_bag bag = find_bag(p.bags, first + lane);
		uint32_t long_pieces = bag.pieces > 1 ? bag.pieces : 0;
		uint32_t longs = __ballot_sync(FULL_WARP, bag.pieces > 1);
		uint32_t bags = __popc(__ballot_sync(FULL_WARP, bag.pieces > 0));
		uint32_t pieces = bag.pieces;
		uint32_t partials = long_pieces;

		sum_up_to_lane(pieces, partials);
		if (WRITE)
		{
			bag.first = counts.pieces + pieces - bag.pieces;
			bag.partial = counts.partials + partials - long_pieces;
			write_bags(p, bag, longs, counts.longs + __popc(longs & ((1u << lane) - 1)));
		}
		counts.bags += bags;
		counts.pieces += __shfl_sync(FULL_WARP, pieces, 31);
		counts.partials += __shfl_sync(FULL_WARP, partials, 31);
		counts.longs += __popc(longs);
	}
	if (!WRITE && lane == 0)
		p.pieces.shared.tiles[tile] = counts;
}

/* Add to a vector */
static __device__ __forceinline__ void
add_to(float4 &sum, const float4 &slice)
{
	sum.x += slice.x;
	sum.y += slice.y;
	sum.z += slice.z;
	sum.w += slice.w;
}

/* The sums of four columns, and of divisors */
struct column_sum
{
	float4 value;
	double divisor;
};

/*
 * Add up n partial sums from `first` on.  Lanes beyond the row (not active)
 * only add up divisors.
 */
static __device__ __forceinline__ struct column_sum
sum_partials(const struct pooling_combine_params &p, uint32_t first, uint32_t n, uint32_t column,
			 bool active)
{
	struct column_sum sum = {make_float4(0, 0, 0, 0), 0.0};

#pragma unroll 8
	for (uint32_t i = 0; i < n; i++)
	{
		if (active)
			add_to(sum.value,
				   *(const float4 *) (p.partial + (first + i) * p.partial_stride + column));
		if (p.partial_divisor)
			sum.divisor += p.partial_divisor[first + i];
	}
	return sum;
}

/* Store four columns of a bag's result, divided if there are divisors */
template <typename O>
static __device__ __forceinline__ void
store_columns(const struct pooling_combine_params &p, uint32_t dest, uint32_t column,
			  const struct column_sum &total)
{
	float value[4] = {total.value.x, total.value.y, total.value.z, total.value.w};
	float divisor = (float) total.divisor;

	if (p.partial_divisor)
	{
		for (int e = 0; e < 4; e++)
			value[e] = divisor == 0.0f ? 0.0f : __fdiv_rn(value[e], divisor);
	}
	pooling_store<4>((O *) p.out + dest * p.out_stride, column, p.width, false, value);
}

/*
 * Add up the partial sums of long bags.  A block serves one bag and 128
 * columns at a time.  Each warp in turn adds up GPUVEC_FAN partial sums; the
 * first warp adds up the results.
 */
template <typename O>
static __global__ void
__launch_bounds__(COMBINE_THREADS)
	combine_kernel(const __grid_constant__ struct pooling_combine_params p)
{
	__shared__ float4 sums[GPUVEC_FAN][32];
	__shared__ double divisors[GPUVEC_FAN];
	uint32_t lane = threadIdx.x % 32;
	uint32_t warp = threadIdx.x / 32;
	uint64_t items;

	pooling_begin();
	items = (uint64_t) p.total->longs * p.slices;
	for (uint64_t item = blockIdx.x; item < items; item += gridDim.x)
	{
		uint32_t bag = (uint32_t) (item / p.slices);
		uint32_t column = ((uint32_t) (item % p.slices) * 32 + lane) * 4;
		bool active = column < p.partial_stride;
		uint32_t end = p.longs[bag + 1].partial;
		uint32_t dest = p.longs[bag].dest;
		struct column_sum total = {make_float4(0, 0, 0, 0), 0.0};

		for (uint32_t begin = p.longs[bag].partial; begin < end; begin += GPUVEC_FAN * GPUVEC_FAN)
		{
			for (uint32_t group = warp; group < GPUVEC_FAN; group += COMBINE_THREADS / 32)
			{
				uint32_t first = begin + group * GPUVEC_FAN;
				uint32_t n = first < end ? min(end - first, (uint32_t) GPUVEC_FAN) : 0;
				struct column_sum sum = sum_partials(p, first, n, column, active);

				if (n > 0)
				{
					sums[group][lane] = sum.value;
					if (lane == 0)
						divisors[group] = sum.divisor;
				}
			}
			__syncthreads();
			if (warp == 0)
			{
				uint32_t groups =
					(min(end - begin, (uint32_t) (GPUVEC_FAN * GPUVEC_FAN)) + GPUVEC_FAN - 1) /
					GPUVEC_FAN;
				struct column_sum sum = {make_float4(0, 0, 0, 0), 0.0};

				for (uint32_t i = 0; i < groups; i++)
				{
					add_to(sum.value, sums[i][lane]);
					sum.divisor += divisors[i];
				}
				add_to(total.value, sum.value);
				total.divisor += sum.divisor;
			}
			__syncthreads();
		}
		if (warp == 0 && active)
			store_columns<O>(p, dest, column, total);
	}
}

/*
 * Add up the partial sums of long bags; there are at most most_longs of them
 */
cudaError_t
pooling_combine(const struct pooling_policy &policy, const struct pooling_pieces *pieces, bool mean,
				void *out, gpuvec_storage out_storage, uint64_t out_stride, uint32_t width,
				uint64_t most_longs, cudaStream_t stream)
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
	return pooling_launch(
		policy, out_storage == GPUVEC_FLOAT32 ? combine_kernel<float> : combine_kernel<__half>,
		most_longs < COMBINE_BLOCKS ? most_longs : COMBINE_BLOCKS, COMBINE_THREADS, params, stream);
}

/* Compute for each tile the counts before it */
cudaError_t
pooling_scan(const struct pooling_policy &policy, const struct pooling_pieces *pieces,
			 uint64_t ntiles, uint32_t *out_count, cudaStream_t stream)
{
	struct pooling_scan_params params = {};
	uint64_t blocks = divide_up(ntiles, SCAN_THREADS);

	if (blocks > SCAN_BLOCKS)
		blocks = SCAN_BLOCKS;
	params.tiles = pieces->tiles;
	params.before = pieces->before;
	params.ntiles = (uint32_t) ntiles;
	params.slice = (uint32_t) divide_up(ntiles, blocks);
	params.total = pieces->total;
	params.longs = pieces->longs;
	params.out_count = out_count;
	return pooling_launch(policy, scan_kernel, blocks, SCAN_THREADS, params, stream);
}

/*
 * Lay out the memory for pieces of bags.  Only a bag of more than
 * GPUVEC_PIECE lookups has more than one piece.  So the number of pieces of
 * long bags is less than 2 / GPUVEC_PIECE of the number of lookups.
 */
void
pooling_lay_out_bags(struct arena *area, const struct pooling_bags *bags, uint32_t width,
					 struct pooling_bag_pieces *pieces)
{
	uint64_t most_partials = bags->lookups / (GPUVEC_PIECE / 2) + 1;

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

/* Cut bags into pieces */
cudaError_t
pooling_cut_bags(const struct pooling_policy &policy, const struct pooling_bags *bags,
				 const struct pooling_bag_pieces *pieces, cudaStream_t stream)
{
	uint64_t ntiles = divide_up(bags->bags, POOLING_TILE);
	uint64_t blocks = divide_up(ntiles, CUT_THREADS / 32);
	struct bag_pieces_params params = {};
	cudaError_t error;

	params.bags = *bags;
	params.pieces = *pieces;
	error = pooling_launch(policy, bag_pieces_kernel<false>, blocks, CUT_THREADS, params, stream);
	if (error == cudaSuccess)
		error = pooling_scan(policy, &pieces->shared, ntiles, NULL, stream);
	if (error == cudaSuccess)
		error =
			pooling_launch(policy, bag_pieces_kernel<true>, blocks, CUT_THREADS, params, stream);
	return error;
}

} // namespace gpuvec
