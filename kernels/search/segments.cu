/*-------------------------------------------------------------------------
 *
 * segments.cu
 *	  Segments and live maps in the memory of the GPU.
 *
 * A segment is one allocation.  For each tile it has the first chunk, the
 * number of chunks, and the least and most of its rows (device_segment.h).
 * For each row it has the part of the key that comes from the tid, the
 * length, and, if some have cold numbers, how many hot ones it has.  Then
 * come the cold postings, the filter columns, and the ids, swizzled as on the
 * host.  The lists are another allocation (list_build.cu), and so are the bit
 * vectors (dense_bits.cu).
 *
 * If rows have values, the sums of each row's follow the filter columns, and
 * the values themselves the ids, in the same layout.  Cold postings have
 * theirs beside them.  Such a segment has neither lists nor bit vectors: they
 * have no values.
 *
 * A cold posting takes 4 bytes: the lower half of its number, and its row.
 * Postings are sorted by number, so the upper halves are few, and each is
 * stored once.
 *
 * Adopting a segment waits for the copy, so whatever searches see is
 * complete.  Views hold references to their segments, so a segment that is
 * released is not in use.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <new>
#include <stdlib.h>
#include <string.h>

#include "kernels/search/search_backend.h"

namespace gpuvec
{

static const char *const copying = "copy rows to the GPU";

/* Take a stream of a list, which sends through so much pinned memory */
template <typename List>
static typename List::loan
take_stream(struct search_backend *b, List &list, size_t bytes, gpuvec_error *error)
{
	typename List::loan stream;

	if (!b->device.enter(error))
		return stream;
	stream = list.take();
	if (!stream->open(b->device, bytes, DOWNLOAD_BYTES, error))
		stream.reset();
	return stream;
}

upload_streams::loan
take_upload_stream(struct search_backend *b, gpuvec_error *error)
{
	return take_stream(b, b->uploads, UPLOAD_BYTES, error);
}

bool
upload_pieces(struct search_backend *b, unique_memory &memory, size_t bytes,
			  std::initializer_list<struct host_piece> pieces, const char *what,
			  gpuvec_error *error)
{
	upload_streams::loan stream = take_upload_stream(b, error);
	bool ok;

	if (stream == NULL)
		return false;
	ok = allocate(b->device, memory, std::max(bytes, (size_t) 16), stream->get(), what, error);
	for (const struct host_piece &piece : pieces)
		ok = ok && stream->send((char *) memory.get() + piece.offset, piece.data, piece.bytes,
								copying, error);
	if (ok && stream->finish(copying, error))
	{
		free_in_stream(memory, b->device.side_stream.get());
		return true;
	}
	stream->drain();
	memory.reset();
	return false;
}

/* Where the pieces of a segment's allocation begin */
struct segment_layout
{
	size_t tid;
	size_t len;
	size_t hot_len;     /* the same as len if there are no cold numbers */
	size_t cold_groups; /* device_cold */
	size_t cold_low;
	size_t cold_row;
	size_t cold_value; /* if rows have values */
	size_t filters;    /* device_filter for each column, then their keys and codes */
	size_t null_sets;  /* if there are some */
	size_t sums;       /* if rows have values */
	size_t ids;
	size_t values; /* if rows have some */
	size_t bytes;
};

/* Bytes of the keys of a filter column, so that what follows is aligned */
static size_t
keys_bytes(const gpuvec_filter_column *column)
{
	return (column->nkeys + (size_t) 1) / 2 * 2 * sizeof(uint64_t);
}

/* Bytes of the descriptions of filter columns */
static size_t
descriptions_bytes(const gpuvec_segment *segment)
{
	return (segment->nfilters * sizeof(struct device_filter) + 15) / 16 * 16;
}

/* Bytes of all filter columns */
static size_t
filters_bytes(const gpuvec_segment *segment)
{
	size_t bytes = descriptions_bytes(segment);

	for (uint32_t i = 0; i < segment->nfilters; i++)
		bytes += keys_bytes(&segment->filters[i]) +
				 gpuvec_code_capacity(segment->nrows) * sizeof(uint16_t);
	return bytes;
}

static struct segment_layout
lay_out_segment(const gpuvec_segment *segment)
{
	struct segment_layout at;
	size_t rows = (size_t) segment->ntiles * GPUVEC_TILE_ROWS;
	size_t chunk_ids = (size_t) segment->nchunks * GPUVEC_TILE_ROWS * GPUVEC_CHUNK_IDS;
	bool values = segment->sums != NULL;
	size_t end;

	at.tid = segment->ntiles * sizeof(uint4);
	at.len = at.tid + rows * sizeof(uint64_t);
	end = at.len + rows * sizeof(uint32_t);
	at.hot_len = segment->ngroups > 0 ? end : at.len;
	at.cold_groups = at.hot_len + rows * sizeof(uint32_t);
	at.cold_low =
		at.cold_groups + (segment->ngroups > 0 ? (segment->ngroups + 1) * sizeof(uint2) : 0);
	at.cold_row = at.cold_low + segment->ncold * sizeof(uint16_t);
	at.cold_value = (at.cold_row + segment->ncold * sizeof(uint16_t) + 15) / 16 * 16;
	end = at.cold_value + (values ? segment->ncold * sizeof(float) : 0);
	at.filters = (end + 15) / 16 * 16;
	at.null_sets = at.filters + filters_bytes(segment);
	end = at.null_sets + (segment->null_sets ? segment->ntiles * sizeof(uint32_t) : 0);
	at.sums = (end + 15) / 16 * 16;
	end = at.sums + (values ? rows * sizeof(double2) : 0);
	at.ids = (end + 255) / 256 * 256;
	at.values = at.ids + chunk_ids * sizeof(uint16_t);
	at.bytes = at.values + (values ? chunk_ids * sizeof(float) : 0);
	return at;
}

/* Write the cold postings of a segment, in the layout of the device */
static void
fill_cold(const gpuvec_segment *segment, const struct segment_layout *at, char *head)
{
	uint2 *groups = (uint2 *) (head + at->cold_groups);

	for (uint32_t i = 0; i < segment->ngroups; i++)
		groups[i] = make_uint2(segment->cold_groups[i].upper, segment->cold_groups[i].start);
	groups[segment->ngroups] = make_uint2(UINT32_MAX, (uint32_t) segment->ncold);
	memcpy(head + at->cold_low, segment->cold_low, segment->ncold * sizeof(uint16_t));
	memcpy(head + at->cold_row, segment->cold_row, segment->ncold * sizeof(uint16_t));
	if (segment->sums)
		memcpy(head + at->cold_value, segment->cold_value, segment->ncold * sizeof(float));
}

/* Write the sums of the rows' values */
static void
fill_sums(const gpuvec_segment *segment, double2 *sums)
{
	for (uint32_t r = 0; r < segment->nrows; r++)
		sums[r] = make_double2(segment->sums[r].square, segment->sums[r].sum);
}

/* Write the filter columns of a segment, in the layout of the device */
static void
fill_filter_columns(const gpuvec_segment *segment, const struct segment_layout *at, char *head)
{
	struct device_filter *filters = (struct device_filter *) (head + at->filters);
	size_t codes = gpuvec_code_capacity(segment->nrows) * sizeof(uint16_t);
	size_t used = descriptions_bytes(segment);

	for (uint32_t i = 0; i < segment->nfilters; i++)
	{
		const gpuvec_filter_column *column = &segment->filters[i];

		filters[i] = {column->nkeys, column->has_nulls, used, used + keys_bytes(column)};
		memcpy(head + at->filters + used, column->keys, column->nkeys * sizeof(uint64_t));
		memcpy(head + at->filters + filters[i].codes, column->codes, codes);
		used = filters[i].codes + codes;
	}
	if (segment->null_sets)
		memcpy(head + at->null_sets, segment->null_sets, segment->ntiles * sizeof(uint32_t));
}

/* Describe tile t for the device: device_segment.tiles */
static uint4
describe_tile(const gpuvec_segment *segment, uint32_t t)
{
	uint32_t first = t * GPUVEC_TILE_ROWS;
	uint32_t end = std::min(first + GPUVEC_TILE_ROWS, segment->nrows);
	uint32_t chunks = segment->tile_chunk[t + 1] - segment->tile_chunk[t];
	uint32_t least = UINT32_MAX;
	uint32_t most = 0;

	for (uint32_t row = first; row < end; row++)
	{
		least = std::min(least, gpuvec_hot_len(segment, row));
		most = std::max(most, gpuvec_hot_len(segment, row));
	}
	return make_uint4(segment->tile_chunk[t], chunks | least / GPUVEC_CHUNK_IDS << TILE_WHOLE_SHIFT,
					  segment->len[first], most);
}

/* Write all of a segment but ids and values, in the layout of the device */
static void
fill_head(const gpuvec_segment *segment, const struct segment_layout *at, char *head)
{
	uint4 *tiles = (uint4 *) head;
	uint64_t *tid = (uint64_t *) (head + at->tid);
	uint32_t *len = (uint32_t *) (head + at->len);

	memset(head, 0, at->ids);
	for (uint32_t t = 0; t < segment->ntiles; t++)
		tiles[t] = describe_tile(segment, t);
	for (uint32_t r = 0; r < segment->nrows; r++)
	{
		tid[r] = key_from_tid(segment->tid[r]) |
				 partition_key(segment->tid[r] >> GPUVEC_PARTITION_SHIFT, segment->partition_bits);
		len[r] = segment->len[r];
	}
	if (segment->ncold > 0)
	{
		memcpy(head + at->hot_len, segment->hot_len, segment->nrows * sizeof(uint32_t));
		fill_cold(segment, at, head);
	}
	fill_filter_columns(segment, at, head);
	if (segment->sums)
		fill_sums(segment, (double2 *) (head + at->sums));
}

/*
 * In how many rows a cold number is found that a row of the segment has, on
 * average, besides this row.  With n rows for each of the numbers, this is
 * the sum of n * (n - 1), divided by the sum of n.
 */
static double
expected_rows(const gpuvec_segment *segment)
{
	uint64_t sum = 0;

	for (uint32_t group = 0; group < segment->ngroups; group++)
	{
		gpuvec_cold_run run = gpuvec_segment_group(segment, group);
		uint64_t before = 0; /* postings of this number so far */

		for (uint64_t i = run.first + 1; i < run.end; i++)
		{
			before = segment->cold_low[i] == segment->cold_low[i - 1] ? before + 1 : 0;
			sum += 2 * before;
		}
	}
	return segment->ncold > 0 ? (double) sum / segment->ncold : 0;
}

/*
 * The largest id of a segment.  A row's ids are in ascending order, so it is
 * the last id of some row.
 */
static uint32_t
largest_id(const gpuvec_segment *segment)
{
	uint32_t largest = 0;

	for (uint32_t r = 0; r < segment->nrows; r++)
	{
		size_t last = gpuvec_hot_len(segment, r);
		size_t chunk;

		if (last-- == 0)
			continue;
		chunk = segment->tile_chunk[r / GPUVEC_TILE_ROWS] + last / GPUVEC_CHUNK_IDS;
		largest = std::max(
			largest,
			(uint32_t)
				segment->ids[(chunk * GPUVEC_TILE_ROWS + r % GPUVEC_TILE_ROWS) * GPUVEC_CHUNK_IDS +
							 last % GPUVEC_CHUNK_IDS]);
	}
	return largest;
}

/* Give an uploaded segment its lists */
static bool
make_lists(struct search_backend *b, const gpuvec_segment *segment, struct cuda_segment *mine,
		   size_t *bytes, gpuvec_error *error)
{
	lists_streams::loan stream = take_stream(b, b->list_makers, LISTS_BYTES, error);

	return stream != NULL && lists_build(b, *stream, segment, mine, bytes, error);
}

/* Upload a segment; set the pointers in *mine */
static bool
upload_segment(struct search_backend *b, const gpuvec_segment *segment,
			   const struct segment_layout *at, struct cuda_segment *mine, gpuvec_error *error)
{
	char *head = (char *) malloc(at->ids);
	char *memory;
	bool ok;

	if (head == NULL)
		return gpuvec_fail_memory(error, at->ids);
	fill_head(segment, at, head);
	ok = upload_pieces(b, mine->memory, at->bytes,
					   {{0, head, at->ids},
						{at->ids, segment->ids, at->values - at->ids},
						{at->values, segment->values, at->bytes - at->values}},
					   "a segment", error);
	free(head);
	if (!ok)
		return false;
	memory = (char *) mine->memory.get();
	mine->maxid = largest_id(segment);
	mine->cold_rows = expected_rows(segment);
	mine->desc.tiles = (const uint4 *) memory;
	mine->desc.tid = (const uint64_t *) (memory + at->tid);
	mine->desc.len = (const uint32_t *) (memory + at->len);
	mine->desc.hot_len = (const uint32_t *) (memory + at->hot_len);
	mine->desc.cold.groups = (const uint2 *) (memory + at->cold_groups);
	mine->desc.cold.low = (const uint16_t *) (memory + at->cold_low);
	mine->desc.cold.row = (const uint16_t *) (memory + at->cold_row);
	mine->desc.cold.ngroups = segment->ngroups;
	mine->desc.nfilters = segment->nfilters;
	mine->desc.filters = (const struct device_filter *) (memory + at->filters);
	if (segment->null_sets)
		mine->desc.null_sets = (const uint32_t *) (memory + at->null_sets);
	mine->desc.ids = (const uint4 *) (memory + at->ids);
	if (segment->sums)
	{
		mine->desc.sums = (const double2 *) (memory + at->sums);
		mine->desc.values = (const float *) (memory + at->values);
		mine->desc.cold.value = (const float *) (memory + at->cold_value);
	}
	mine->desc.nrows = segment->nrows;
	mine->desc.ntiles = segment->ntiles;
	return true;
}

bool
adopt_segment(gpuvec_backend *backend, gpuvec_segment *segment, gpuvec_error *error)
{
	struct search_backend *b = static_cast<struct search_backend *>(backend);
	struct segment_layout at = lay_out_segment(segment);
	size_t freed = at.bytes - at.ids;
	std::unique_ptr<struct cuda_segment> mine(new (std::nothrow) cuda_segment);
	size_t lists_bytes = 0;
	size_t bits_bytes = 0;

	if (segment->ncold >= MOST_COLD)
		return gpuvec_fail(error, GPUVEC_LIMIT_EXCEEDED, NULL, NULL,
						   "a segment has too many rare ids for a GPU");
	if (mine == NULL)
		return gpuvec_fail_memory(error, sizeof(*mine));
	if (!upload_segment(b, segment, &at, mine.get(), error) ||
		(segment->sums == NULL && (!make_lists(b, segment, mine.get(), &lists_bytes, error) ||
								   !dense_build(b, segment, mine.get(), &bits_bytes, error))))
		return false;
	segment->backend = backend;
	segment->device = mine.release();
	segment->device_bytes = at.bytes + lists_bytes + bits_bytes;
	free(segment->ids);
	free(segment->values);
	segment->ids = NULL;
	segment->values = NULL;
	segment->host_bytes -= std::min(segment->host_bytes, freed);
	segment->host_bytes += sizeof(struct cuda_segment);
	return true;
}

void
release_segment(gpuvec_backend *, gpuvec_segment *segment)
{
	delete (struct cuda_segment *) segment->device;
	segment->device = NULL;
	segment->device_bytes = 0;
}

/* Queue the copy of a live map to memory of its own */
static bool
send_livemap(struct search_backend *b, staged_stream *stream, gpuvec_livemap *map,
			 gpuvec_error *error)
{
	struct cuda_livemap *mine = new (std::nothrow) cuda_livemap;
	size_t bytes = map->nwords * sizeof(uint32_t);

	if (mine == NULL)
		return gpuvec_fail_memory(error, sizeof(*mine));
	map->device = mine;
	return allocate(b->device, mine->bits, std::max(bytes, (size_t) 16), stream->get(),
					"a map of live rows", error) &&
		   stream->send(mine->bits.get(), map->bits, bytes, copying, error);
}

/* All maps go through one stream, which is waited for once */
bool
adopt_livemaps(gpuvec_backend *backend, gpuvec_livemap *const *maps, uint32_t n,
			   gpuvec_error *error)
{
	struct search_backend *b = static_cast<struct search_backend *>(backend);
	upload_streams::loan stream;
	uint32_t sent = 0;
	bool ok = true;

	if (n == 0)
		return true;
	stream = take_upload_stream(b, error);
	if (stream == NULL)
		return false;
	while (ok && sent < n)
		ok = send_livemap(b, stream.get(), maps[sent++], error);
	if (!ok || !stream->finish(copying, error))
	{
		stream->drain();
		while (sent > 0)
			release_livemap(backend, maps[--sent]);
		return false;
	}
	for (uint32_t i = 0; i < n; i++)
	{
		free_in_stream(((struct cuda_livemap *) maps[i]->device)->bits,
					   b->device.side_stream.get());
		maps[i]->backend = backend;
	}
	return true;
}

void
release_livemap(gpuvec_backend *, gpuvec_livemap *map)
{
	delete (struct cuda_livemap *) map->device;
	map->device = NULL;
}

/* Copy a part of a segment back to the host */
static bool
read_part(struct search_backend *b, void *to, const void *from, size_t bytes, gpuvec_error *error)
{
	static const char *const what = "copy rows from the GPU";
	upload_streams::loan stream = take_upload_stream(b, error);
	bool ok = stream != NULL;

	for (size_t at = 0; at < bytes && ok; at += DOWNLOAD_BYTES)
		ok = stream->fetch((char *) to + at, (const char *) from + at,
						   std::min(bytes - at, DOWNLOAD_BYTES), what, error) &&
			 stream->finish(what, error);
	return ok;
}

/* Ids in the tiles of a segment, padding included */
static size_t
tile_ids(const gpuvec_segment *segment)
{
	return (size_t) segment->nchunks * GPUVEC_TILE_ROWS * GPUVEC_CHUNK_IDS;
}

bool
read_ids(gpuvec_backend *backend, const gpuvec_segment *segment, uint16_t *ids, gpuvec_error *error)
{
	const struct cuda_segment *mine = (const struct cuda_segment *) segment->device;

	return read_part(static_cast<struct search_backend *>(backend), ids, mine->desc.ids,
					 tile_ids(segment) * sizeof(uint16_t), error);
}

bool
read_values(gpuvec_backend *backend, const gpuvec_segment *segment, float *values,
			gpuvec_error *error)
{
	const struct cuda_segment *mine = (const struct cuda_segment *) segment->device;

	return read_part(static_cast<struct search_backend *>(backend), values, mine->desc.values,
					 tile_ids(segment) * sizeof(float), error);
}

} // namespace gpuvec
