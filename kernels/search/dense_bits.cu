/*-------------------------------------------------------------------------
 *
 * dense_bits.cu
 *	  Makes the bit vectors of rows and of queries for dense.cu.
 *
 * A vector has a cell for each id, or fewer cells than there are ids: then
 * ids share cells, and counts of cells that two vectors have in common are
 * bounds only, which dense.cu corrects.  That takes half of the work, or a
 * quarter, and pays if few rows pass the bound that should not.
 *
 * How many pass is estimated from how often ids are in rows of the segment.
 * A row and a query that are drawn like rows share S = sum of p * p ids,
 * where p is an id's frequency.  They share as many cells as the same sum for
 * cells tells, and the bound adds the ids of the query that share a cell with
 * another one.  What is more than S is noise.  Fewer cells are taken if the
 * noise is small beside S.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <new>
#include <string.h>
#include <vector>

#include "kernels/device/instructions.cuh"
#include "kernels/device/launch.h"
#include "kernels/search/dense_cells.cuh"
#include "kernels/search/row_ids.cuh"
#include "kernels/search/search_backend.h"

namespace gpuvec
{

#define BITS_THREADS 256

/* Rows whose ids are counted to choose the number of cells, at most */
#define SAMPLED_ROWS 4096

static const char *const what = "make the bit vectors of a segment";
static const char *const whose = "the bit vectors of a segment";

/* The parameters of the kernel for rows */
struct row_bits_params
{
	struct device_segment segment;
	uint32_t *words;
	uint32_t chunks;
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
					{
						uint32_t cell = id % (p.chunks * CELLS_PER_CHUNK);

						atomicOr(&p.words[row_word(row, p.chunks, cell)], 1u << cell % 32);
					});
}

/*
 * Set the bits of queries, and count their ids that share a cell with one
 * before; a warp a query.  An id that no row has is left out.
 */
static __global__ void
__launch_bounds__(BITS_THREADS)
	query_bits_kernel(const __grid_constant__ struct query_bits_params p)
{
	uint32_t q = (blockIdx.x * BITS_THREADS + threadIdx.x) / 32;
	uint32_t doubles = 0;
	const uint16_t *ids;
	uint32_t n;

	wait_for_previous();
	if (q >= p.nqueries)
		return;
	ids = p.ids + p.queries[q].ids;
	n = p.queries[q].nids;
	for (uint32_t i = threadIdx.x % 32; i < n; i += 32)
	{
		uint32_t cell = ids[i] % (p.chunks * CELLS_PER_CHUNK);

		if (ids[i] > p.maxid)
			continue;
		doubles +=
			atomicOr(&p.words[query_word(q, p.chunks, cell)], 1u << cell % 32) >> cell % 32 & 1;
		if (p.exact != NULL)
			atomicOr(&p.exact[(size_t) q * p.exact_words + ids[i] / 32], 1u << ids[i] % 32);
	}
	__syncwarp();
	doubles = __reduce_add_sync(FULL_WARP, doubles);
	if (threadIdx.x % 32 == 0)
		p.doubles[q] = doubles;
}

cudaError_t
dense_query_bits(const struct query_bits_params *params, cudaStream_t stream)
{
	return launch_chained(query_bits_kernel,
						  dim3((params->nqueries * 32 + BITS_THREADS - 1) / BITS_THREADS),
						  BITS_THREADS, 0, stream, *params);
}

/*
 * Count how many of some rows of a segment have each id; returns the number
 * of these rows
 */
static uint32_t
sample_ids(const gpuvec_segment *segment, std::vector<uint32_t> &rows_of)
{
	uint32_t step = segment->nrows / SAMPLED_ROWS + 1;
	uint32_t n = 0;

	for (uint32_t r = 0; r < segment->nrows; r += step, n++)
	{
		const uint16_t *tile = segment->ids + (size_t) segment->tile_chunk[r / GPUVEC_TILE_ROWS] *
												  GPUVEC_TILE_ROWS * GPUVEC_CHUNK_IDS;

		for (uint32_t i = 0; i < gpuvec_hot_len(segment, r); i++)
			rows_of[tile[(i / GPUVEC_CHUNK_IDS * GPUVEC_TILE_ROWS + r % GPUVEC_TILE_ROWS) *
							 GPUVEC_CHUNK_IDS +
						 i % GPUVEC_CHUNK_IDS]]++;
	}
	return n;
}

/* The noise of vectors of this length, in parts of S */
static double
noise_of(const std::vector<uint32_t> &rows_of, uint32_t nrows, uint32_t chunks)
{
	uint32_t ncells = chunks * CELLS_PER_CHUNK;
	double common = 0;
	double noise = 0;

	for (uint32_t cell = 0; cell < ncells; cell++)
	{
		double sum = 0;
		double none = 1;

		for (size_t id = cell; id < rows_of.size(); id += ncells)
		{
			double p = (double) rows_of[id] / nrows;

			sum += p;
			none *= 1 - p;
			common += p * p;
		}
		noise += (1 - none) * (1 - none) + sum - (1 - none);
	}
	return common > 0 ? (noise - common) / common : 0;
}

/* Choose the chunks of a segment's vectors; 0: it gets none */
static uint32_t
choose_chunks(const struct gpuvec_search_policy &policy, const gpuvec_segment *segment,
			  uint32_t maxid)
{
	uint32_t all = std::min(maxid / CELLS_PER_CHUNK, (uint32_t) DENSE_CHUNKS) + 1;
	std::vector<uint32_t> rows_of(maxid + 1);
	uint32_t nrows;
	uint32_t chunks;
	double cells;

	if (policy.dense_chunks > 0)
		return std::min(policy.dense_chunks, (uint32_t) DENSE_CHUNKS);
	nrows = sample_ids(segment, rows_of);
	for (chunks = 1; chunks < all; chunks++)
		if (noise_of(rows_of, nrows, chunks) * 100 <= policy.dense_noise)
			break;
	cells = (double) segment->nrows * chunks * CELLS_PER_CHUNK;
	return chunks <= DENSE_CHUNKS && (double) gpuvec_segment_hot(segment) * policy.dense_part >= cells ? chunks
																						 : 0;
}

/* Make the vectors of a segment, if it gets some */
static bool
build(struct search_backend *b, staged_stream &stream, const gpuvec_segment *segment,
	  struct cuda_segment *mine, size_t *bytes, gpuvec_error *error)
{
	struct row_bits_params p = {mine->desc, NULL, choose_chunks(b->policy, segment, mine->maxid)};
	size_t size = row_bits_bytes((size_t) segment->ntiles * GPUVEC_TILE_ROWS, p.chunks);
	unique_memory words;

	if (p.chunks == 0)
		return true;
	if (!allocate(b->device, words, size, stream.get(), whose, error))
		return false;
	p.words = (uint32_t *) words.get();
	if (!b->device.check(cudaMemsetAsync(p.words, 0, size, stream.get()), what, error) ||
		!b->device.check(launch(row_bits_kernel,
								dim3((segment->nrows + BITS_THREADS - 1) / BITS_THREADS),
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
	mine->desc.bit_chunks = p.chunks;
	*bytes = size;
	return true;
}

bool
dense_build(struct search_backend *b, const gpuvec_segment *segment, struct cuda_segment *mine,
			size_t *bytes, gpuvec_error *error)
{
	upload_streams::loan stream;
	bool ok;

	*bytes = 0;
	if (mine->maxid >= b->policy.dense_ids || segment->nrows < b->policy.dense_rows ||
		gpuvec_segment_hot(segment) == 0)
		return true;
	stream = take_upload_stream(b, error);
	if (stream == NULL)
		return false;
	try
	{
		ok = build(b, *stream, segment, mine, bytes, error);
	}
	catch (const std::bad_alloc &)
	{
		ok = gpuvec_fail_memory(error, mine->maxid * sizeof(uint32_t));
	}
	return ok || (!b->device.broken && strcmp(error->sqlstate, GPUVEC_OUT_OF_MEMORY) == 0);
}

} // namespace gpuvec
