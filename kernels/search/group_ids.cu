/*-------------------------------------------------------------------------
 *
 * group_ids.cu
 *	  Counts the rows of a query that counts by the ids of their sets.
 *
 * The kernels that count rows have marked them: bit r of word t is row r of
 * tile t.  There is a counter for each number.
 *
 * Hot numbers are in the tiles.  A thread block counts them in shared memory,
 * and adds what it has to the counters of the view.  The lowest numbers are
 * the most frequent ones in a mirror that gives ids numbers, and rows begin
 * with them: so each lane has a counter of its own for these, in a bank of its
 * own.  Counters of other numbers are pairs of 16 bits.  A row has an id once,
 * so they are added before so many rows have been counted.  Numbers for which
 * shared memory has no room are counted in global memory.
 *
 * Cold numbers are in the cold postings.  A thread takes some that follow one
 * another: rows with the same number are one addition in global memory.
 *
 * What it costs: 8.5 million rows of 30 hot numbers, of which 61 % are marked
 * at random, are 510 MB, of which 85 % of all sectors are read: 0.11 ms at 4
 * TB/s.  Warps add for 19 marked lanes of 32 at a time, 62,000 times on each
 * of 132 multiprocessors; at 4 cycles these are 0.14 ms.  A block adds 65,536
 * counters in some 2 us, twice, whatever is marked.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>

#include "kernels/device/instructions.cuh"
#include "kernels/device/launch.h"
#include "kernels/search/group_kernels.h"

namespace gpuvec
{

extern __shared__ uint4 shared_memory[];

#define ID_THREADS 1024
#define ID_WARPS (ID_THREADS / 32)

/* Numbers below this have a counter for each lane */
#define LANE_NUMBERS 256
#define LANE_WORDS (LANE_NUMBERS * 32)

/* Tiles that a warp takes at a time: a part of a group of 32 */
#define PART_TILES 8
#define GROUP_PARTS (32 / PART_TILES)

/* Rows that a block counts at a time, and how often before pairs are added */
#define STEP_ROWS (ID_WARPS * PART_TILES * GPUVEC_TILE_ROWS)
#define STEPS 7

static_assert(STEPS * STEP_ROWS <= UINT16_MAX, "16 bits count the rows of all steps");

/* Chunks of a row that are loaded before their numbers are counted */
#define LOADED_CHUNKS 4

#define COLD_ID_THREADS 256
#define COLD_ID_BLOCKS 8 /* of each segment with cold numbers */
#define THREAD_POSTINGS 8

/* Where the pair of a number from LANE_NUMBERS on is in shared memory */
static __device__ __forceinline__ uint32_t
pair_word(uint32_t number)
{
	return LANE_WORDS + (number - LANE_NUMBERS) / 2;
}

/* Count a hot number of the lane's row */
static __device__ __forceinline__ void
count_number(const struct id_params &params, uint32_t *shared, uint32_t number)
{
	bool own = number < LANE_NUMBERS;

	if (number >= params.nshared)
		atomicAdd(&params.counts[number], 1);
	else
		atomicAdd(&shared[own ? number * 32 + threadIdx.x % 32 : pair_word(number)],
				  own || number % 2 == 0 ? 1u : 0x10000u);
}

/* Count the first n numbers of row r of a tile, whose ids begin at `chunks` */
static __device__ __forceinline__ void
count_row(const struct id_params &params, uint32_t *shared, const uint4 *chunks, uint32_t r,
		  uint32_t n)
{
	for (uint32_t first = 0; first * GPUVEC_CHUNK_IDS < n; first += LOADED_CHUNKS)
	{
		uint4 chunk[LOADED_CHUNKS];

#pragma unroll
		for (uint32_t c = 0; c < LOADED_CHUNKS; c++)
			chunk[c] = (first + c) * GPUVEC_CHUNK_IDS < n
						   ? __ldcs(&chunks[(size_t) (first + c) * 32 + r])
						   : make_uint4(0, 0, 0, 0);
#pragma unroll
		for (uint32_t c = 0; c < LOADED_CHUNKS; c++)
		{
			const uint32_t word[4] = {chunk[c].x, chunk[c].y, chunk[c].z, chunk[c].w};

#pragma unroll
			for (uint32_t i = 0; i < GPUVEC_CHUNK_IDS; i++)
				if ((first + c) * GPUVEC_CHUNK_IDS + i < n)
					count_number(params, shared, i % 2 ? word[i / 2] >> 16 : word[i / 2] & 0xFFFF);
		}
	}
}

/* Count the marked rows of a part of a group of tiles; called by a warp */
static __device__ __forceinline__ void
count_part(const struct id_params &params, uint32_t *shared, uint32_t part)
{
	uint32_t lane = threadIdx.x % 32;
	uint2 where = params.groups[part / GROUP_PARTS];
	const struct device_segment *segment = &params.segments[where.x];
	uint32_t first = where.y + part % GROUP_PARTS * PART_TILES;
	uint32_t mine = 0;
	uint32_t begin = 0;
	uint32_t pending;

	if (lane < PART_TILES && first + lane < segment->ntiles)
		mine = params.marks[segment->first_tile + first + lane];
	if (mine != 0)
		begin = segment->tiles[first + lane].x;
	pending = __ballot_sync(FULL_WARP, mine != 0);
#pragma unroll 1
	for (; pending != 0; pending &= pending - 1)
	{
		uint32_t src = __ffs(pending) - 1;
		uint32_t rows = __shfl_sync(FULL_WARP, mine, src);
		const uint4 *chunks = segment->ids + (size_t) __shfl_sync(FULL_WARP, begin, src) * 32;

		if (rows >> lane & 1)
			count_row(params, shared, chunks, lane, segment->hot_len[(first + src) * 32 + lane]);
	}
}

/* Add the pairs of the thread block to the counters, and clear them */
static __device__ __forceinline__ void
add_pairs(const struct id_params &params, uint32_t *shared)
{
	for (uint32_t i = LANE_WORDS + threadIdx.x; i < params.shared_words; i += ID_THREADS)
	{
		uint32_t pair = shared[i];
		uint32_t *to = &params.counts[LANE_NUMBERS + (i - LANE_WORDS) * 2];

		if (pair == 0)
			continue;
		shared[i] = 0;
		if ((pair & 0xFFFF) != 0)
			atomicAdd(&to[0], pair & 0xFFFF);
		if (pair >> 16 != 0)
			atomicAdd(&to[1], pair >> 16);
	}
}

/* Add the counters of lanes, a number for each warp at a time */
static __device__ __forceinline__ void
add_lanes(const struct id_params &params, const uint32_t *shared)
{
	for (uint32_t number = threadIdx.x / 32; number < LANE_NUMBERS; number += ID_WARPS)
	{
		uint32_t rows = __reduce_add_sync(FULL_WARP, shared[number * 32 + threadIdx.x % 32]);

		if (threadIdx.x % 32 == 0 && rows != 0)
			atomicAdd(&params.counts[number], rows);
	}
}

/* Count the hot numbers of marked rows */
static __global__ void
__launch_bounds__(ID_THREADS) count_hot_ids(const __grid_constant__ struct id_params params)
{
	uint32_t *shared = (uint32_t *) shared_memory;
	uint32_t nparts = params.ngroups * GROUP_PARTS;
	uint32_t step = 0;

	for (uint32_t i = threadIdx.x; i < params.shared_words; i += ID_THREADS)
		shared[i] = 0;
	__syncthreads();
	for (uint32_t first = blockIdx.x * ID_WARPS; first < nparts; first += gridDim.x * ID_WARPS)
	{
		uint32_t part = first + threadIdx.x / 32;

		if (step == STEPS)
		{
			step = 0;
			__syncthreads();
			add_pairs(params, shared);
			__syncthreads();
		}
		if (part < nparts)
			count_part(params, shared, part);
		step++;
	}
	__syncthreads();
	add_pairs(params, shared);
	add_lanes(params, shared);
}

/* Count the marked rows of postings first .. end - 1; called by a thread */
static __device__ __forceinline__ void
count_postings(const struct id_params &params, const struct device_segment *segment, uint32_t first,
			   uint32_t end, uint32_t upper)
{
	const uint32_t *marks = params.marks + segment->first_tile;
	uint32_t low[THREAD_POSTINGS];
	uint32_t row[THREAD_POSTINGS];
	uint32_t rows = 0;

#pragma unroll
	for (uint32_t i = 0; i < THREAD_POSTINGS; i++)
	{
		low[i] = first + i < end ? __ldg(&segment->cold.low[first + i]) : 0;
		row[i] = first + i < end ? __ldg(&segment->cold.row[first + i]) : 0;
	}
#pragma unroll
	for (uint32_t i = 0; i < THREAD_POSTINGS; i++)
	{
		if (first + i < end)
			rows += marks[row[i] / 32] >> row[i] % 32 & 1;
		if (rows != 0 && (i + 1 == THREAD_POSTINGS || first + i + 1 >= end || low[i + 1] != low[i]))
		{
			atomicAdd(&params.counts[upper << 16 | low[i]], rows);
			rows = 0;
		}
	}
}

/*
 * Count the cold numbers of marked rows; COLD_ID_BLOCKS thread blocks for each
 * segment that has some
 */
static __global__ void
__launch_bounds__(COLD_ID_THREADS) count_cold_ids(const __grid_constant__ struct id_params params)
{
	const struct device_segment *segment =
		&params.segments[params.cold_segments[blockIdx.x / COLD_ID_BLOCKS]];
	uint32_t mine = (blockIdx.x % COLD_ID_BLOCKS * COLD_ID_THREADS + threadIdx.x) * THREAD_POSTINGS;

	for (uint32_t g = 0; g < segment->cold.ngroups; g++)
	{
		uint2 group = segment->cold.groups[g];
		uint32_t end = segment->cold.groups[g + 1].y;

		for (uint32_t i = group.y + mine; i < end;
			 i += COLD_ID_BLOCKS * COLD_ID_THREADS * THREAD_POSTINGS)
			count_postings(params, segment, i, end, group.x);
	}
}

cudaError_t
group_ids_prepare(size_t smem_limit)
{
	return cudaFuncSetAttribute((const void *) count_hot_ids,
								cudaFuncAttributeMaxDynamicSharedMemorySize, (int) smem_limit);
}

void
group_ids_share(struct id_params *params, uint32_t nhot, uint32_t most, size_t smem_limit)
{
	uint64_t room = LANE_NUMBERS + (smem_limit / sizeof(uint32_t) - LANE_WORDS) * 2;
	uint64_t n = std::min({(uint64_t) nhot, (uint64_t) most, room});

	params->nshared = (uint32_t) std::max(n, (uint64_t) LANE_NUMBERS);
	params->shared_words = LANE_WORDS + (params->nshared - LANE_NUMBERS + 1) / 2;
}

cudaError_t
group_ids_blocks(const struct id_params *params, int *blocks)
{
	return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, count_hot_ids, ID_THREADS,
														 params->shared_words * sizeof(uint32_t));
}

cudaError_t
group_ids_launch(const struct id_params *params, uint32_t blocks, cudaStream_t stream)
{
	uint64_t steps = ((uint64_t) params->ngroups * GROUP_PARTS + ID_WARPS - 1) / ID_WARPS;
	cudaError_t rc = launch(count_hot_ids, std::min((uint64_t) blocks, steps), ID_THREADS,
							params->shared_words * sizeof(uint32_t), stream, *params);

	if (rc != cudaSuccess)
		return rc;
	return launch(count_cold_ids, (uint64_t) params->ncold_segments * COLD_ID_BLOCKS,
				  COLD_ID_THREADS, 0, stream, *params);
}

} // namespace gpuvec
