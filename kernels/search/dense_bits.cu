/*-------------------------------------------------------------------------
 *
 * dense_bits.cu
 *	  Makes the bit vectors of rows and of queries for dense.cu.
 *
 * A segment gets vectors if it has few ids, of which its rows have many: else
 * lists are faster, and take less memory.  A row takes VECTOR_BYTES,
 * which are part of what the segment takes on the device.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <string.h>

#include "kernels/device/instructions.cuh"
#include "kernels/device/launch.h"
#include "kernels/search/dense_cells.cuh"
#include "kernels/search/row_ids.cuh"
#include "kernels/search/search_backend.h"

namespace gpuvec
{

#define BITS_THREADS 256

static const char *const what = "make the bit vectors of a segment";
static const char *const whose = "the bit vectors of a segment";

/* The parameters of the kernel for rows */
struct row_bits_params
{
	struct device_segment segment;
	uint32_t *words;
};

/* Set the bits of rows; a thread a row */
static __global__ void
__launch_bounds__(BITS_THREADS) row_bits_kernel(const __grid_constant__ struct row_bits_params p)
{
	uint32_t row = blockIdx.x * BITS_THREADS + threadIdx.x;

	if (row >= p.segment.nrows)
		return;
	for_each_row_id(p.segment.ids + (size_t) p.segment.tiles[row / 32].x * 32, row % 32,
					p.segment.hot_len[row],
					[=](uint32_t id, uint32_t)
					{ atomicOr(&p.words[vector_word(row, PANEL_ROWS, id)], 1u << id % 32); });
}

/*
 * Set the bits of queries; a warp a query.  An id beyond the vectors, which no
 * row with a vector has, is left out.
 */
static __global__ void
__launch_bounds__(BITS_THREADS)
	query_bits_kernel(const __grid_constant__ struct query_bits_params p)
{
	uint32_t q = (blockIdx.x * BITS_THREADS + threadIdx.x) / 32;
	const uint16_t *ids;

	wait_for_previous();
	if (q >= p.nqueries)
		return;
	ids = p.ids + p.queries[q].ids;
	for (uint32_t i = threadIdx.x % 32; i < p.queries[q].nids; i += 32)
		if (ids[i] < DENSE_BITS)
			atomicOr(&p.words[vector_word(q, PANEL_QUERIES, ids[i])], 1u << ids[i] % 32);
}

cudaError_t
dense_query_bits(const struct query_bits_params *params, cudaStream_t stream)
{
	return launch_chained(query_bits_kernel,
						  dim3((params->nqueries * 32 + BITS_THREADS - 1) / BITS_THREADS),
						  BITS_THREADS, 0, stream, *params);
}

/*
 * True if the segment is to get vectors.  They are a luxury: where memory is
 * scarce, rows come first.
 */
static bool
wants_vectors(struct search_backend *b, const gpuvec_segment *segment, uint32_t maxid)
{
	const struct gpuvec_search_policy &policy = b->policy;

	return maxid < std::min(policy.dense_ids, (uint32_t) DENSE_BITS) && segment->nrows > 0 &&
		   segment->nrows >= policy.dense_rows && dense_usable(b) &&
		   gpuvec_segment_hot(segment) * policy.dense_fraction >=
			   (uint64_t) segment->nrows * maxid &&
		   b->device.free_memory() >= b->device.memory_total / 2;
}

/* Make vectors of an uploaded segment */
static bool
build(struct search_backend *b, staged_stream &stream, struct cuda_segment *mine, size_t *bytes,
	  gpuvec_error *error)
{
	struct row_bits_params p = {mine->desc, NULL};
	size_t size = vectors_bytes(mine->desc.nrows, PANEL_ROWS);
	unique_memory words;

	if (!allocate(b->device, words, size, stream.get(), whose, error))
		return false;
	p.words = (uint32_t *) words.get();
	if (!b->device.check(cudaMemsetAsync(p.words, 0, size, stream.get()), what, error) ||
		!b->device.check(launch(row_bits_kernel,
								dim3((mine->desc.nrows + BITS_THREADS - 1) / BITS_THREADS),
								BITS_THREADS, 0, stream.get(), p),
						 what, error) ||
		!b->device.check(cudaStreamSynchronize(stream.get()), what, error))
	{
		stream.drain();
		return false;
	}
	free_in_stream(words, b->device.side_stream.get());
	mine->bits_memory = std::move(words);
	mine->desc.bits = (const uint4 *) p.words;
	*bytes = size;
	return true;
}

bool
dense_build(struct search_backend *b, const gpuvec_segment *segment, struct cuda_segment *mine,
			size_t *bytes, gpuvec_error *error)
{
	upload_streams::loan stream;

	*bytes = 0;
	if (!wants_vectors(b, segment, mine->maxid))
		return true;
	stream = take_upload_stream(b, error);
	if (stream == NULL)
		return false;
	return build(b, *stream, mine, bytes, error) ||
		   (!b->device.broken && strcmp(error->sqlstate, GPUVEC_OUT_OF_MEMORY) == 0);
}

} // namespace gpuvec
