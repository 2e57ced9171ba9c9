/*-------------------------------------------------------------------------
 *
 * overlaps.cu
 *	  Counts the rows that pairs of queries find.
 *
 * Some segments are taken at a time (chunk_overlaps.cu), in these kernels:
 *
 *	1. Each query gets a vector of bits, a word for each tile: live rows of
 *	   pages whose rows are counted that share a number with it.  A warp takes
 *	   a tile, a lane a row, whose hot numbers it looks up in a table that has
 *	   the queries of each number.  One more vector has the rows of other pages
 *	   that share a number with any query.
 *	2. The same by cold numbers, whose postings a warp finds.
 *	3. The rows of that last vector are listed.
 *	4. The bits that two vectors have in common are counted, for a square of 64
 *	   by 64 pairs and a slice of the words by a thread block.  It has pieces
 *	   of its 128 vectors in shared memory; a thread has 4 by 4 pairs.
 *
 * What it costs: 10 million rows have 1.25 MB of bits for each query.  With
 * 1,000 queries, half of all pairs take 170 billion counts of a word, of which
 * an H200 makes 3.7 trillion a second (16 a clock and multiprocessor): 46 ms.
 * Loads from shared memory and additions take less than that.  A row that 50
 * queries find takes 50 atomic operations on words in the L2 cache or beyond:
 * 500 million.
 *
 * By cuBLAS, bits would have to be bytes: 10 GB, written and read once, so 4
 * ms, and 10^13 products at some 1.5 * 10^15 a second, 7 ms more.  It would
 * add a library, and its sums for a slice of the rows would have to be added
 * up.  The tensor cores multiply bits, too (bit_product.cuh), but of one
 * architecture.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>

#include "core/overlaps.h"
#include "kernels/device/launch.h"
#include "kernels/search/emit.cuh"
#include "kernels/search/row_ids.cuh"

namespace gpuvec
{

extern __shared__ uint4 shared_memory[];

#define OVERLAP_THREADS 256
#define OVERLAP_WARPS (OVERLAP_THREADS / 32)
#define MOST_BLOCKS 65536

#define SQUARE 64        /* vectors on a side of a square */
#define PIECE_WORDS 32   /* words of a vector in shared memory */
#define PIECE_QUADS 8    /* the same in units of four words */
#define PIECE_STRIDE 9   /* units from one vector to the next: in other banks */
#define THREAD_SIDE 16   /* threads on a side of a square, .. */
#define THREAD_PAIRS 4   /* .. and vectors of each on a side */
#define SLICE_WORDS 2048 /* words of a vector that a thread block counts */

static_assert(THREAD_SIDE * THREAD_PAIRS == SQUARE && THREAD_SIDE * THREAD_SIDE == OVERLAP_THREADS,
			  "threads cover a square");
static_assert(PIECE_WORDS == OVERLAP_WORDS, "vectors are whole pieces");

/* True if the segment is one of those that are taken */
static __device__ __forceinline__ bool
is_taken(const struct overlap_params &params, uint32_t segment)
{
	return segment >= params.segment_lo && segment < params.segment_hi;
}

/* The word of a tile in each vector */
static __device__ __forceinline__ size_t
word_of(const struct overlap_params &params, const struct device_segment *segment, uint32_t tile)
{
	return segment->first_tile - params.first_tile + tile;
}

/* True if a row is live */
static __device__ __forceinline__ bool
is_live(const struct device_segment *segment, uint32_t row)
{
	return row < segment->nrows &&
		   (segment->live == NULL || (segment->live[row / 32] >> row % 32 & 1));
}

/* True if a live row is counted, not listed */
static __device__ __forceinline__ bool
is_counted(const struct overlap_params &params, const struct device_segment *segment, uint32_t row)
{
	uint64_t tid = tid_of_key(key_of_row(segment, row), params.counts.partition_bits);

	return is_counted_page(params.counts, gpuvec_tid_block(tid));
}

/* Mark a row for a query; number n: for the list of rows of other pages */
static __device__ __forceinline__ void
mark_row(const struct overlap_params &params, uint32_t query, size_t word, uint32_t row)
{
	atomicOr(&params.bits[query * (size_t) params.stride + word], 1u << row % 32);
}

/* Mark the rows of tiles by their hot numbers; a warp for each tile */
static __global__ void
__launch_bounds__(OVERLAP_THREADS) mark_tiles(const __grid_constant__ struct overlap_params params)
{
	uint32_t lane = threadIdx.x % 32;
	uint64_t ntiles = (uint64_t) params.ngroups * 32;

	for (uint64_t i = (uint64_t) blockIdx.x * OVERLAP_WARPS + threadIdx.x / 32; i < ntiles;
		 i += (uint64_t) gridDim.x * OVERLAP_WARPS)
	{
		uint2 where = params.groups[i / 32];
		const struct device_segment *segment = &params.segments[where.x];
		uint32_t tile = where.y + i % 32;
		uint32_t row = tile * 32 + lane;
		bool counted;
		bool listed = false;
		size_t word;

		if (!is_taken(params, where.x) || tile >= segment->ntiles || !is_live(segment, row) ||
			*(volatile const uint32_t *) params.stop)
			continue;
		counted = is_counted(params, segment, row);
		word = word_of(params, segment, tile);
		for_each_row_id(segment->ids + (size_t) segment->tiles[tile].x * 32, lane,
						segment->hot_len[row],
						[&](uint32_t id, uint32_t)
						{
							uint32_t end = params.first[id + 1];

							for (uint32_t at = params.first[id]; counted && at < end; at++)
								mark_row(params, params.queries[at], word, row);
							listed |= !counted && params.first[id] < end;
						});
		if (listed)
			mark_row(params, params.n, word, row);
	}
}

/*
 * Mark rows by cold numbers; a warp for each number of a query in a segment
 */
static __global__ void
__launch_bounds__(OVERLAP_THREADS) mark_cold(const __grid_constant__ struct overlap_params params)
{
	uint32_t lane = threadIdx.x % 32;
	uint64_t n = (uint64_t) params.ncold * (params.segment_hi - params.segment_lo);

	for (uint64_t i = (uint64_t) blockIdx.x * OVERLAP_WARPS + threadIdx.x / 32; i < n;
		 i += (uint64_t) gridDim.x * OVERLAP_WARPS)
	{
		const struct device_segment *segment =
			&params.segments[params.segment_lo + i / params.ncold];
		uint2 cold = params.cold[i % params.ncold];
		uint2 found;

		if (segment->cold.ngroups == 0 || *(volatile const uint32_t *) params.stop)
			continue;
		found = find_postings(segment->cold, cold.y);
		for (uint32_t at = lane; at < found.y; at += 32)
		{
			uint32_t row = segment->cold.row[found.x + at];

			if (is_live(segment, row))
				mark_row(params, is_counted(params, segment, row) ? cold.x : params.n,
						 word_of(params, segment, row / 32), row);
		}
	}
}

/* List the rows of the last vector; a thread for each tile */
static __global__ void
__launch_bounds__(OVERLAP_THREADS) list_marked(const __grid_constant__ struct overlap_params params)
{
	uint64_t ntiles = (uint64_t) params.ngroups * 32;

	for (uint64_t i = (uint64_t) blockIdx.x * OVERLAP_THREADS + threadIdx.x; i < ntiles;
		 i += (uint64_t) gridDim.x * OVERLAP_THREADS)
	{
		uint2 where = params.groups[i / 32];
		const struct device_segment *segment = &params.segments[where.x];
		uint32_t tile = where.y + i % 32;
		uint32_t rows;
		uint32_t at;

		if (!is_taken(params, where.x) || tile >= segment->ntiles)
			continue;
		rows = params.bits[params.n * (size_t) params.stride + word_of(params, segment, tile)];
		if (rows == 0)
			continue;
		at = atomicAdd(params.nlisted, __popc(rows));
		for (; rows != 0; rows &= rows - 1)
			params.counts.tids[at++] = tid_of_key(key_of_row(segment, tile * 32 + __ffs(rows) - 1),
												  params.counts.partition_bits);
	}
}

/* Copy a piece of up to 64 vectors to shared memory; 0 where there are none */
static __device__ __forceinline__ void
load_piece(const struct overlap_params &params, uint32_t vector, uint32_t word, uint4 *to)
{
	for (uint32_t i = threadIdx.x; i < SQUARE * PIECE_QUADS; i += OVERLAP_THREADS)
	{
		uint32_t v = i / PIECE_QUADS;
		const uint4 *from =
			(const uint4 *) (params.bits + (vector + v) * (size_t) params.stride + word);

		to[v * PIECE_STRIDE + i % PIECE_QUADS] =
			vector + v < params.n ? from[i % PIECE_QUADS] : make_uint4(0, 0, 0, 0);
	}
}

/* The bits that two units of four words have in common */
static __device__ __forceinline__ uint32_t
common_bits(uint4 a, uint4 b)
{
	return __popc(a.x & b.x) + __popc(a.y & b.y) + __popc(a.z & b.z) + __popc(a.w & b.w);
}

/* Count the pairs of a thread in a piece */
static __device__ __forceinline__ void
count_piece(const uint4 *a, const uint4 *b, uint32_t (&sums)[THREAD_PAIRS][THREAD_PAIRS])
{
	a += threadIdx.x / THREAD_SIDE * PIECE_STRIDE;
	b += threadIdx.x % THREAD_SIDE * PIECE_STRIDE;
#pragma unroll 1
	for (uint32_t k = 0; k < PIECE_QUADS; k++)
	{
		uint4 mine[THREAD_PAIRS];

#pragma unroll
		for (uint32_t j = 0; j < THREAD_PAIRS; j++)
			mine[j] = b[j * THREAD_SIDE * PIECE_STRIDE + k];
#pragma unroll
		for (uint32_t i = 0; i < THREAD_PAIRS; i++)
		{
			uint4 one = a[i * THREAD_SIDE * PIECE_STRIDE + k];

#pragma unroll
			for (uint32_t j = 0; j < THREAD_PAIRS; j++)
				sums[i][j] += common_bits(one, mine[j]);
		}
	}
}

/* The first vectors of a square: those of all pairs come line by line */
static __device__ __forceinline__ uint2
find_square(uint32_t number)
{
	uint32_t line = 0;

	while (number > line)
		number -= ++line;
	return make_uint2(number * SQUARE, line * SQUARE);
}

/* Count the pairs of a square in a slice of the words; a block for each */
static __global__ void
__launch_bounds__(OVERLAP_THREADS) count_pairs(const __grid_constant__ struct overlap_params params)
{
	uint2 square = find_square(blockIdx.x % params.nsquares);
	uint32_t word = blockIdx.x / params.nsquares * SLICE_WORDS;
	uint32_t end = min(word + SLICE_WORDS, params.stride);
	uint4 *a = shared_memory;
	uint4 *b = shared_memory + SQUARE * PIECE_STRIDE;
	uint32_t sums[THREAD_PAIRS][THREAD_PAIRS] = {};

	if (*(volatile const uint32_t *) params.stop)
		return;
	for (; word < end; word += PIECE_WORDS)
	{
		__syncthreads();
		load_piece(params, square.x, word, a);
		load_piece(params, square.y, word, b);
		__syncthreads();
		count_piece(a, b, sums);
	}
#pragma unroll
	for (uint32_t i = 0; i < THREAD_PAIRS; i++)
#pragma unroll
		for (uint32_t j = 0; j < THREAD_PAIRS; j++)
		{
			uint64_t x = square.x + threadIdx.x / THREAD_SIDE + i * THREAD_SIDE;
			uint64_t y = square.y + threadIdx.x % THREAD_SIDE + j * THREAD_SIDE;

			if (x <= y && y < params.n && sums[i][j] > 0)
				atomicAdd(&params.pairs[gpuvec_overlap_pair(params.n, x) + y - x],
						  (unsigned long long) sums[i][j]);
		}
}

/* Blocks for so many units of work */
static uint64_t
blocks_for(uint64_t units, uint32_t of_block)
{
	return std::min((units + of_block - 1) / of_block, (uint64_t) MOST_BLOCKS);
}

cudaError_t
overlaps_launch(const struct overlap_params *params, cudaStream_t stream)
{
	uint64_t tiles = (uint64_t) params->ngroups * 32;
	uint64_t cold = (uint64_t) params->ncold * (params->segment_hi - params->segment_lo);
	uint64_t side = (params->n + SQUARE - 1) / SQUARE;
	uint64_t slices = (params->stride + SLICE_WORDS - 1) / SLICE_WORDS;
	struct overlap_params p = *params;
	cudaError_t rc;

	p.nsquares = (uint32_t) (side * (side + 1) / 2);
	rc = launch(mark_tiles, blocks_for(tiles, OVERLAP_WARPS), OVERLAP_THREADS, 0, stream, p);
	if (rc == cudaSuccess)
		rc = launch(mark_cold, blocks_for(cold, OVERLAP_WARPS), OVERLAP_THREADS, 0, stream, p);
	if (rc == cudaSuccess)
		rc = launch(list_marked, blocks_for(tiles, OVERLAP_THREADS), OVERLAP_THREADS, 0, stream, p);
	if (rc == cudaSuccess)
		rc = launch(count_pairs, p.nsquares * slices, OVERLAP_THREADS,
					2 * SQUARE * PIECE_STRIDE * sizeof(uint4), stream, p);
	return rc;
}

} // namespace gpuvec
