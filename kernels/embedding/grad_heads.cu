/*-------------------------------------------------------------------------
 *
 * grad_heads.cu
 *	  Counts rows and pieces of sorted lookups.
 *
 * To know where vectors go, heads_kernel counts rows and pieces before they
 * are added up: a warp looks at POOLING_TILE positions.  If the row of its
 * first position began earlier, the warp searches for its beginning, with 32
 * probes a step.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/embedding/grad.cuh"

namespace gpuvec
{

#define HEADS_THREADS 128

/*
 * The first position of the keys that equal keys[i].  Keys are sorted, and
 * keys[i - 1] == keys[i].  Called by a whole warp.
 */
static __device__ uint32_t
find_start(const uint32_t *keys, uint32_t i)
{
	uint32_t lane = threadIdx.x % 32;
	uint32_t key = keys[i];
	bool equal = lane < i && keys[i - 1 - lane] == key;
	uint32_t unequal = __ballot_sync(FULL_WARP, !equal);
	uint32_t low = 0;
	uint32_t high;

	if (unequal)
		return i - (__ffs(unequal) - 1);

	/* the first equal key is at low .. high */
	high = i - 32;
	while (low < high)
	{
		uint32_t step = (high - low + 31) / 32;
		uint64_t probe = low + (uint64_t) lane * step;
		bool less = probe < high && keys[probe] < key;
		uint32_t nless = __popc(__ballot_sync(FULL_WARP, less));
		uint32_t base = low;

		if (nless > 0)
			low = base + (nless - 1) * step + 1;
		high = (uint32_t) min((uint64_t) high, base + (uint64_t) nless * step);
	}
	return low;
}

/*
 * Count rows and pieces: in each tile, and in each tile before each part.  A
 * lane looks at keys 32 * i + lane, which are all loaded at once.
 */
static __global__ void
__launch_bounds__(HEADS_THREADS) heads_kernel(const __grid_constant__ struct heads_params p)
{
	constexpr uint32_t keys = POOLING_TILE / 32;
	constexpr uint32_t piece_keys = GPUVEC_PIECE / 32;
	uint32_t lane = threadIdx.x % 32;
	uint32_t tile = (uint32_t) (((uint64_t) blockIdx.x * blockDim.x + threadIdx.x) / 32);
	uint32_t begin = tile * POOLING_TILE;
	uint32_t up_to_lane = FULL_WARP >> (31 - lane);
	uint32_t start = begin;
	uint32_t key[keys];
	uint32_t before_tile = p.rows;
	uint32_t last;
	struct pooling_counts counts = {0, 0, 0, 0};

	pooling_begin();
	if ((uint64_t) tile * POOLING_TILE >= p.lookups)
		return;
#pragma unroll
	for (uint32_t c = 0; c < keys; c++)
	{
		uint32_t i = begin + c * 32 + lane;

		key[c] = i < p.lookups ? p.keys[i] : p.rows;
	}
	if (begin > 0)
		before_tile = p.keys[begin - 1];
	if (begin > 0 && before_tile == p.keys[begin])
		start = find_start(p.keys, begin);
	last = __shfl_sync(FULL_WARP, key[keys - 1], 31);

#pragma unroll
	for (uint32_t c = 0; c < keys; c++)
	{
		uint32_t first = begin + c * 32;
		uint32_t i = first + lane;
		uint32_t before = __shfl_up_sync(FULL_WARP, key[c], 1);
		uint32_t before_first =
			c > 0 ? __shfl_sync(FULL_WARP, key[c > 0 ? c - 1 : 0], 31) : before_tile;
		bool present = key[c] < p.rows;
		bool head = present && (i == 0 || (lane > 0 ? before : before_first) != key[c]);
		uint32_t heads = __ballot_sync(FULL_WARP, head);
		uint32_t heads_before = heads & up_to_lane;
		uint32_t my_start = heads_before ? first + 31 - __clz(heads_before) : start;
		bool piece = present && (i - my_start) % GPUVEC_PIECE == 0;
		bool is_long = false;

		/* true if the row goes on after its first piece */
		if (c + piece_keys < keys)
			is_long = head && key[c + piece_keys < keys ? c + piece_keys : 0] == key[c];
		else if (head && key[c] == last && i + GPUVEC_PIECE < p.lookups)
			is_long = p.keys[i + GPUVEC_PIECE] == key[c];

		uint32_t pieces = __ballot_sync(FULL_WARP, piece);
		uint32_t longs = __ballot_sync(FULL_WARP, is_long);
		uint32_t partials = __ballot_sync(FULL_WARP, piece && (!head || is_long));

		if (c % (GRAD_CUT / 32) == 0 && lane == 0)
			p.cuts[first / GRAD_CUT] = {counts.bags, counts.partials, counts.longs, my_start};
		counts.bags += __popc(heads);
		counts.pieces += __popc(pieces);
		counts.partials += __popc(partials);
		counts.longs += __popc(longs);
		if (heads)
			start = first + 31 - __clz(heads);
	}
	if (lane == 0)
		p.tiles[tile] = counts;
}

cudaError_t
grad_count_heads(const struct pooling_policy &policy, const struct heads_params &params,
				 cudaStream_t stream)
{
	uint64_t ntiles = divide_up(params.lookups, POOLING_TILE);

	return pooling_launch(policy, heads_kernel, divide_up(ntiles, HEADS_THREADS / 32),
						  HEADS_THREADS, params, stream);
}

} // namespace gpuvec
