/*-------------------------------------------------------------------------
 *
 * group_merge.cu
 *	  Makes groups of the bins of all segments, if rows are grouped by one
 *	  column, and nothing else is wanted of them.
 *
 * Each bin with rows becomes a pair: its key, and its rows.  Pairs are sorted
 * by key, and those with the same key are added up (CUB).  Nulls have no key
 * among the others: their rows are added up apart.
 *
 * What it costs: the host takes 12 to 40 ns for a bin, and waits for all of
 * them to be copied.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_reduce.cuh>

#include "kernels/device/instructions.cuh"
#include "kernels/device/launch.h"
#include "kernels/search/group_kernels.h"

namespace gpuvec
{

#define PAIR_THREADS 256
#define PAIR_BLOCKS 8 /* of each segment */

/* Turn the bins of segments into pairs; PAIR_BLOCKS thread blocks for each */
static __global__ void
__launch_bounds__(PAIR_THREADS) list_pairs(const __grid_constant__ struct merge_params params)
{
	const struct device_segment *segment = &params.segments[blockIdx.x / PAIR_BLOCKS];
	struct segment_bins mine = params.segment_bins[blockIdx.x / PAIR_BLOCKS];
	const uint64_t *keys = column_keys(segment, params.column);
	uint32_t nkeys = segment->filters[params.column - 1].nkeys;
	uint32_t lane = threadIdx.x % 32;

	/* lanes of a warp stay together */
	for (uint32_t first = blockIdx.x % PAIR_BLOCKS * PAIR_THREADS + threadIdx.x - lane;
		 first < mine.n; first += PAIR_BLOCKS * PAIR_THREADS)
	{
		uint32_t code = first + lane;
		uint32_t rows = code < mine.n ? params.bins[mine.first + code] : 0;
		uint32_t pairs = __ballot_sync(FULL_WARP, rows > 0 && code < nkeys);
		uint32_t at = 0;

		if (rows > 0 && code == nkeys)
			atomicAdd((unsigned long long *) &params.sums->null_rows, (unsigned long long) rows);
		if (pairs == 0)
			continue;
		if (lane == 0)
			at = atomicAdd(&params.sums->npairs, __popc(pairs));
		at = __shfl_sync(FULL_WARP, at, 0) + __popc(pairs & ((1u << lane) - 1));
		if (pairs >> lane & 1)
		{
			params.keys[0][at] = keys[code];
			params.rows[0][at] = rows;
		}
	}
}

/* std::plus, for the device */
struct add_rows
{
	GPUVEC_HD uint64_t
	operator()(uint64_t a, uint64_t b) const
	{
		return a + b;
	}
};

cudaError_t
group_pairs_launch(const struct merge_params *params, cudaStream_t stream)
{
	return launch(list_pairs, (uint64_t) params->nsegments * PAIR_BLOCKS, PAIR_THREADS, 0, stream,
				  *params);
}

cudaError_t
group_merge(const struct merge_params *params, uint32_t n, void *work, size_t *work_bytes,
			uint32_t *to, cudaStream_t stream)
{
	cub::DoubleBuffer<uint64_t> keys(params->keys[0], params->keys[1]);
	cub::DoubleBuffer<uint64_t> rows(params->rows[0], params->rows[1]);
	size_t sort_bytes = *work_bytes;
	size_t reduce_bytes = *work_bytes;
	cudaError_t rc =
		cub::DeviceRadixSort::SortPairs(work, sort_bytes, keys, rows, (int) n, 0, 64, stream);

	if (rc == cudaSuccess)
		rc = cub::DeviceReduce::ReduceByKey(work, reduce_bytes, keys.Current(), keys.Alternate(),
											rows.Current(), rows.Alternate(),
											&params->sums->ngroups, add_rows(), (int) n, stream);
	*work_bytes = std::max(sort_bytes, reduce_bytes);
	*to = !keys.selector;
	return rc;
}

} // namespace gpuvec
