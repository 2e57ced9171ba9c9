/*-------------------------------------------------------------------------
 *
 * segment.c
 *	  Builds, copies, shares and frees segments.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/backend.h"
#include "engine/host_memory.h"
#include "engine/radix_sort.h"

/* ids in a chunk of a tile: 8 of each of its 32 rows */
#define CHUNK_VALUES	(GPUVEC_TILE_ROWS * GPUVEC_CHUNK_IDS)

static inline uint32_t
chunks_of(uint32_t len)
{
	return (len + GPUVEC_CHUNK_IDS - 1) / GPUVEC_CHUNK_IDS;
}

/* Order of rows in a segment: by len, then tid */
static int
compare_rows(const void *a, const void *b)
{
	const gpuvec_source_row *x = a;
	const gpuvec_source_row *y = b;

	if (x->len != y->len)
		return x->len < y->len ? -1 : 1;
	return x->tid < y->tid ? -1 : x->tid > y->tid;
}

/* Order of tid alone */
static int
compare_tids(const void *a, const void *b)
{
	const gpuvec_source_row *x = a;
	const gpuvec_source_row *y = b;

	return x->tid < y->tid ? -1 : x->tid > y->tid;
}

/*
 * Sort rows by (len, tid).  Rows usually come from the heap in order of tid;
 * if not, they are sorted by tid first.  Then a stable counting sort by
 * length gives the order.  It counts only the lengths from the shortest to
 * the longest row: touching memory for all possible lengths would cost more
 * than sorting a few rows.
 */
bool
gpuvec_rows_sort(gpuvec_source_row *rows, uint64_t nrows, gpuvec_error *error)
{
	uint32_t	minlen = UINT32_MAX;
	uint32_t	maxlen = 0;
	size_t		counts_size;
	uint64_t   *start;
	gpuvec_source_row *sorted;
	bool		by_tid = true;

	for (uint64_t i = 1; i < nrows && by_tid; i++)
		by_tid = rows[i - 1].tid <= rows[i].tid;
	if (!by_tid)
		qsort(rows, nrows, sizeof(*rows), compare_tids);
	if (nrows < 64)
	{
		qsort(rows, nrows, sizeof(*rows), compare_rows);
		return true;
	}

	for (uint64_t i = 0; i < nrows; i++)
	{
		minlen = rows[i].len < minlen ? rows[i].len : minlen;
		maxlen = rows[i].len > maxlen ? rows[i].len : maxlen;
	}
	if (minlen == maxlen)
		return true;
	counts_size = (maxlen - minlen + (size_t) 2) * sizeof(uint64_t);
	start = calloc(1, counts_size);
	if (start == NULL)
		return gpuvec_fail_memory(error, counts_size);
	sorted = malloc(nrows * sizeof(*rows));
	if (sorted == NULL)
	{
		free(start);
		return gpuvec_fail_memory(error, nrows * sizeof(*rows));
	}
	for (uint64_t i = 0; i < nrows; i++)
		start[rows[i].len - minlen + 1]++;
	for (uint32_t len = 0; len <= maxlen - minlen; len++)
		start[len + 1] += start[len];
	for (uint64_t i = 0; i < nrows; i++)
		sorted[start[rows[i].len - minlen]++] = rows[i];
	memcpy(rows, sorted, nrows * sizeof(*rows));
	free(sorted);
	free(start);
	return true;
}

/* Allocate the arrays that only a segment with cold numbers has */
static bool
allocate_cold(gpuvec_segment *segment, gpuvec_error *error)
{
	segment->hot_len = malloc(segment->nrows * sizeof(uint32_t));
	segment->cold_low = malloc(segment->ncold * sizeof(uint16_t));
	segment->cold_row = malloc(segment->ncold * sizeof(uint16_t));
	segment->host_bytes += segment->nrows * sizeof(uint32_t) +
		segment->ncold * 2 * sizeof(uint16_t);
	if (segment->hot_len == NULL || segment->cold_low == NULL || segment->cold_row == NULL)
		return gpuvec_fail_memory(error, segment->host_bytes);
	return true;
}

/* Allocate the arrays that only a segment with values has */
static bool
allocate_values(gpuvec_segment *segment, gpuvec_error *error)
{
	size_t		values = segment->nchunks * CHUNK_VALUES * sizeof(float);
	size_t		cold = segment->ncold * sizeof(float);
	size_t		sums = segment->nrows * sizeof(gpuvec_row_sums);

	segment->values = gpuvec_memory_soon(values);
	segment->cold_value = cold > 0 ? malloc(cold) : NULL;
	segment->sums = malloc(sums);
	segment->host_bytes += values + cold + sums;
	if (segment->values == NULL || (cold > 0 && segment->cold_value == NULL) || segment->sums == NULL)
		return gpuvec_fail_memory(error, segment->host_bytes);
	return true;
}

/* Allocate the groups of cold postings, which are counted */
static bool
allocate_groups(gpuvec_segment *segment, gpuvec_error *error)
{
	size_t		bytes = segment->ngroups * sizeof(gpuvec_cold_group);

	segment->cold_groups = malloc(bytes);
	if (segment->cold_groups == NULL)
		return gpuvec_fail_memory(error, bytes);
	segment->host_bytes += bytes;
	return true;
}

/* Allocate the arrays of a segment whose counts are set */
static bool
allocate_segment(gpuvec_segment *segment, bool values, gpuvec_error *error)
{
	size_t		nrows = segment->nrows;
	size_t		ids = segment->nchunks * CHUNK_VALUES * sizeof(uint16_t);

	segment->tid = malloc(nrows * sizeof(uint64_t));
	segment->len = malloc(nrows * sizeof(uint32_t));
	segment->by_tid = malloc(nrows * sizeof(uint16_t));
	segment->tile_chunk = malloc((segment->ntiles + 1) * sizeof(uint32_t));
	segment->ids = gpuvec_memory_soon(ids);
	segment->host_bytes = sizeof(*segment) + nrows * (8 + 4 + 2) +
		(segment->ntiles + 1) * sizeof(uint32_t) + ids;
	if (segment->tid == NULL || segment->len == NULL || segment->by_tid == NULL ||
		segment->tile_chunk == NULL || segment->ids == NULL)
		return gpuvec_fail_memory(error, segment->host_bytes);
	return (segment->ncold == 0 || allocate_cold(segment, error)) &&
		(!values || allocate_values(segment, error));
}

/* Free a segment's host memory */
static void
free_segment(gpuvec_segment *segment)
{
	free(segment->tid);
	free(segment->len);
	free(segment->by_tid);
	free(segment->tile_chunk);
	free(segment->ids);
	free(segment->hot_len);
	free(segment->cold_groups);
	free(segment->cold_low);
	free(segment->cold_row);
	free(segment->values);
	free(segment->cold_value);
	free(segment->sums);
	for (uint32_t i = 0; segment->filters && i < segment->nfilters; i++)
		gpuvec_filter_column_free(&segment->filters[i]);
	free(segment->filters);
	free(segment->null_sets);
	free(segment);
}

/*
 * Write what the n hot numbers of row r of a tile have, ids or values, of
 * `size` bytes each, and pad the row with zeros.  The tile has nchunks chunks.
 */
static inline __attribute__((always_inline)) void
swizzle_row(void *tile, uint32_t nchunks, uint32_t r, const void *from, uint32_t n, size_t size)
{
	char	   *to = (char *) tile + r * GPUVEC_CHUNK_IDS * size;
	char	   *end = to + nchunks * CHUNK_VALUES * size;

	for (; n >= GPUVEC_CHUNK_IDS; n -= GPUVEC_CHUNK_IDS)
	{
		memcpy(to, from, GPUVEC_CHUNK_IDS * size);
		from = (const char *) from + GPUVEC_CHUNK_IDS * size;
		to += CHUNK_VALUES * size;
	}
	for (; to < end; to += CHUNK_VALUES * size)
	{
		char		last[GPUVEC_CHUNK_IDS * sizeof(float)] = {0};

		for (size_t i = 0; i < n * size; i += sizeof(uint16_t))
			memcpy(last + i, (const char *) from + i, sizeof(uint16_t));
		memcpy(to, last, GPUVEC_CHUNK_IDS * size);
		n = 0;
	}
}

/*
 * A key of a sort by tid, or by number: a tid of 48 bits, or a number, above a
 * row number of 16 bits
 */
#define KEY_SHIFT		16

/*
 * Fill by_tid, first_tid and last_tid.  The ids are written later, so their
 * memory serves as scratch memory if it is large enough: allocating fresh
 * memory is expensive.
 */
static bool
order_by_tid(gpuvec_segment *segment, gpuvec_error *error)
{
	size_t		size = 2 * (size_t) segment->nrows * sizeof(uint64_t);
	bool		lent = size <= segment->nchunks * CHUNK_VALUES * sizeof(uint16_t);
	uint64_t   *keys = lent ? (uint64_t *) segment->ids : malloc(size);
	uint64_t   *sorted;

	if (keys == NULL)
		return gpuvec_fail_memory(error, size);
	for (uint32_t row = 0; row < segment->nrows; row++)
		keys[row] = segment->tid[row] << KEY_SHIFT | row;
	sorted = gpuvec_radix_sort(keys, keys + segment->nrows, segment->nrows, KEY_SHIFT);
	for (uint32_t i = 0; i < segment->nrows; i++)
		segment->by_tid[i] = (uint16_t) sorted[i];
	segment->first_tid = segment->tid[segment->by_tid[0]];
	segment->last_tid = segment->tid[segment->by_tid[segment->nrows - 1]];
	if (!lent)
		free(keys);
	return true;
}

/*
 * Write the ids of a segment's rows, and their values if they have some; and
 * zeros everywhere else
 */
static void
write_ids(gpuvec_segment *segment, const gpuvec_source_row *rows)
{
	for (uint32_t row = 0; row < segment->ntiles * GPUVEC_TILE_ROWS; row++)
	{
		const uint32_t *chunk = &segment->tile_chunk[row / GPUVEC_TILE_ROWS];
		size_t		at = (size_t) chunk[0] * CHUNK_VALUES;
		bool		exists = row < segment->nrows;
		uint32_t	hot = exists ? rows[row].len - rows[row].ncold : 0;

		swizzle_row(segment->ids + at, chunk[1] - chunk[0], row % GPUVEC_TILE_ROWS,
					exists ? rows[row].ids : NULL, hot, sizeof(uint16_t));
		if (segment->values)
			swizzle_row(segment->values + at, chunk[1] - chunk[0], row % GPUVEC_TILE_ROWS,
						exists ? gpuvec_source_values(&rows[row]) : NULL, hot, sizeof(float));
	}
}

/* Write the sums of the rows' values */
static void
write_sums(gpuvec_segment *segment, const gpuvec_source_row *rows)
{
	for (uint32_t row = 0; row < segment->nrows; row++)
		memcpy(&segment->sums[row], gpuvec_source_sums(&rows[row]), sizeof(gpuvec_row_sums));
}

/*
 * Write the values of cold postings.  A row's numbers ascend as the postings
 * do, so its values come in their order.
 */
static bool
write_cold_values(gpuvec_segment *segment, const gpuvec_source_row *rows, gpuvec_error *error)
{
	uint32_t   *next = malloc(segment->nrows * sizeof(uint32_t));

	if (next == NULL)
		return gpuvec_fail_memory(error, segment->nrows * sizeof(uint32_t));
	memcpy(next, segment->hot_len, segment->nrows * sizeof(uint32_t));
	for (uint64_t i = 0; i < segment->ncold; i++)
	{
		uint16_t	row = segment->cold_row[i];

		memcpy(&segment->cold_value[i], gpuvec_source_values(&rows[row]) + next[row]++ * sizeof(float),
			   sizeof(float));
	}
	free(next);
	return true;
}

/* Make a key of each cold number and its row, in the order of rows */
static void
collect_cold(gpuvec_segment *segment, const gpuvec_source_row *rows, uint64_t *keys)
{
	uint64_t	n = 0;

	for (uint32_t row = 0; row < segment->nrows; row++)
	{
		uint32_t	hot = rows[row].len - rows[row].ncold;
		const char *from = (const char *) rows[row].ids + gpuvec_hot_bytes(hot);

		segment->hot_len[row] = hot;
		for (uint32_t i = 0; i < rows[row].ncold; i++)
		{
			uint32_t	number;

			memcpy(&number, from + i * sizeof(number), sizeof(number));
			keys[n++] = (uint64_t) number << KEY_SHIFT | row;
		}
	}
}

/* The upper half of the number of a sorted key */
static inline uint32_t
upper_half(uint64_t key)
{
	return (uint32_t) (key >> KEY_SHIFT >> 16);
}

/* Fill the groups of cold postings and these from sorted keys */
static bool
write_postings(gpuvec_segment *segment, const uint64_t *keys, gpuvec_error *error)
{
	gpuvec_cold_group *group;

	segment->ngroups = 1;
	for (uint64_t i = 1; i < segment->ncold; i++)
		segment->ngroups += upper_half(keys[i]) != upper_half(keys[i - 1]);
	if (!allocate_groups(segment, error))
		return false;
	group = segment->cold_groups;
	for (uint64_t i = 0; i < segment->ncold; i++)
	{
		if (i == 0 || upper_half(keys[i]) != upper_half(keys[i - 1]))
			*group++ = (gpuvec_cold_group) {upper_half(keys[i]), (uint32_t) i};
		segment->cold_low[i] = (uint16_t) (keys[i] >> KEY_SHIFT);
		segment->cold_row[i] = (uint16_t) keys[i];
	}
	return true;
}

/* Fill the cold postings and hot_len.  The sort is stable, so rows ascend. */
static bool
write_cold(gpuvec_segment *segment, const gpuvec_source_row *rows, gpuvec_error *error)
{
	uint64_t   *keys = malloc(2 * segment->ncold * sizeof(uint64_t));
	bool		ok;

	if (keys == NULL)
		return gpuvec_fail_memory(error, 2 * segment->ncold * sizeof(uint64_t));
	collect_cold(segment, rows, keys);
	ok = write_postings(segment, gpuvec_radix_sort(keys, keys + segment->ncold, segment->ncold, KEY_SHIFT),
						error);
	free(keys);
	return ok;
}

/* Note which rows have null sets, if any has */
static bool
write_null_sets(gpuvec_segment *segment, const gpuvec_source_row *rows, gpuvec_error *error)
{
	size_t		bytes = segment->ntiles * sizeof(uint32_t);

	for (uint32_t row = 0; row < segment->nrows; row++)
	{
		uint64_t	nulls;

		memcpy(&nulls, rows[row].filter_keys, sizeof(nulls));
		if ((nulls & 1) == 0)
			continue;
		if (segment->null_sets == NULL)
			segment->null_sets = calloc(1, bytes);
		if (segment->null_sets == NULL)
			return gpuvec_fail_memory(error, bytes);
		segment->null_sets[row / 32] |= UINT32_C(1) << (row % 32);
		segment->nnull_sets++;
	}
	segment->host_bytes += segment->null_sets ? bytes : 0;
	return true;
}

/* Make one filter column */
static bool
write_filter(gpuvec_segment *segment, const gpuvec_source_row *rows, uint32_t column,
			 gpuvec_row_key *pairs, gpuvec_error *error)
{
	gpuvec_filter_column *filter = &segment->filters[column - 1];

	for (uint32_t row = 0; row < segment->nrows; row++)
	{
		const char *filter_keys = rows[row].filter_keys;
		uint64_t	nulls;

		memcpy(&nulls, filter_keys, sizeof(nulls));
		memcpy(&pairs[row].key, filter_keys + column * sizeof(uint64_t), sizeof(uint64_t));
		pairs[row].row = row;
		pairs[row].null = (uint32_t) (nulls >> column & 1);
	}
	if (!gpuvec_filter_column_build(filter, pairs, pairs + segment->nrows, segment->nrows, error))
		return false;
	segment->host_bytes += gpuvec_filter_column_bytes(filter, segment->nrows);
	return true;
}

/* Make the filter columns of a segment that has some */
static bool
write_filters(gpuvec_segment *segment, const gpuvec_source_row *rows, gpuvec_error *error)
{
	size_t		bytes = 2 * (size_t) segment->nrows * sizeof(gpuvec_row_key);
	gpuvec_row_key *pairs = malloc(bytes);
	bool		ok;

	segment->filters = calloc(segment->nfilters, sizeof(*segment->filters));
	if (pairs == NULL || segment->filters == NULL)
	{
		free(pairs);
		return gpuvec_fail_memory(error, bytes);
	}
	ok = write_null_sets(segment, rows, error);
	for (uint32_t column = 1; ok && column <= segment->nfilters; column++)
		ok = write_filter(segment, rows, column, pairs, error);
	free(pairs);
	return ok;
}

/* Count the cold numbers of all rows */
static uint64_t
count_cold(const gpuvec_source_row *rows, uint32_t nrows)
{
	uint64_t	n = 0;

	for (uint32_t row = 0; row < nrows; row++)
		n += rows[row].ncold;
	return n;
}

/*
 * Chunks of a tile: those of its longest row.  That is its last one, unless
 * rows have cold numbers.
 */
static uint32_t
tile_chunks(const gpuvec_segment *segment, const gpuvec_source_row *rows, uint32_t tile)
{
	uint32_t	first = tile * GPUVEC_TILE_ROWS;
	uint32_t	end = first + GPUVEC_TILE_ROWS < segment->nrows ?
		first + GPUVEC_TILE_ROWS : segment->nrows;
	uint32_t	most = 0;

	if (segment->ncold == 0)
		return chunks_of(rows[end - 1].len);
	for (uint32_t row = first; row < end; row++)
		most = rows[row].len - rows[row].ncold > most ? rows[row].len - rows[row].ncold : most;
	return chunks_of(most);
}

gpuvec_segment *
gpuvec_segment_build(const gpuvec_source_row *rows, uint32_t nrows, gpuvec_row_kind kind,
					 gpuvec_error *error)
{
	gpuvec_segment *segment;

	if (nrows == 0 || nrows > GPUVEC_SEGMENT_ROWS)
	{
		gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL,
					"a segment cannot have %u rows", nrows);
		return NULL;
	}
	segment = calloc(1, sizeof(*segment));
	if (segment == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*segment));
		return NULL;
	}
	segment->refs = 1;
	segment->nrows = nrows;
	segment->ntiles = (nrows + GPUVEC_TILE_ROWS - 1) / GPUVEC_TILE_ROWS;
	segment->nfilters = kind.nfilters;
	segment->minlen = rows[0].len;
	segment->maxlen = rows[nrows - 1].len;
	segment->ncold = count_cold(rows, nrows);
	for (uint32_t tile = 0; tile < segment->ntiles; tile++)
		segment->nchunks += tile_chunks(segment, rows, tile);
	if (!allocate_segment(segment, kind.values, error))
	{
		free_segment(segment);
		return NULL;
	}

	for (uint32_t row = 0; row < nrows; row++)
	{
		segment->tid[row] = rows[row].tid;
		segment->len[row] = rows[row].len;
		segment->nids += rows[row].len;
	}
	segment->tile_chunk[0] = 0;
	for (uint32_t tile = 0; tile < segment->ntiles; tile++)
		segment->tile_chunk[tile + 1] = segment->tile_chunk[tile] +
			tile_chunks(segment, rows, tile);
	if (!order_by_tid(segment, error) ||
		(segment->ncold > 0 && !write_cold(segment, rows, error)) ||
		(segment->cold_value && !write_cold_values(segment, rows, error)) ||
		(kind.nfilters > 0 && !write_filters(segment, rows, error)))
	{
		free_segment(segment);
		return NULL;
	}
	write_ids(segment, rows);
	if (kind.values)
		write_sums(segment, rows);
	return segment;
}

/* Copy the postings of cold numbers */
static bool
copy_cold(gpuvec_segment *to, const gpuvec_segment *from, gpuvec_error *error)
{
	to->ngroups = from->ngroups;
	if (!allocate_groups(to, error))
		return false;
	memcpy(to->hot_len, from->hot_len, from->nrows * sizeof(uint32_t));
	memcpy(to->cold_groups, from->cold_groups, from->ngroups * sizeof(gpuvec_cold_group));
	memcpy(to->cold_low, from->cold_low, from->ncold * sizeof(uint16_t));
	memcpy(to->cold_row, from->cold_row, from->ncold * sizeof(uint16_t));
	return true;
}

/* Copy the sums and cold values of a segment with values */
static void
copy_values(gpuvec_segment *to, const gpuvec_segment *from)
{
	memcpy(to->sums, from->sums, from->nrows * sizeof(gpuvec_row_sums));
	if (from->ncold > 0)
		memcpy(to->cold_value, from->cold_value, from->ncold * sizeof(float));
}

/* Copy the filter columns, and which rows have null sets */
static bool
copy_filters(gpuvec_segment *to, const gpuvec_segment *from, gpuvec_error *error)
{
	size_t		bytes = from->ntiles * sizeof(uint32_t);

	to->filters = calloc(from->nfilters, sizeof(*to->filters));
	if (to->filters == NULL)
		return gpuvec_fail_memory(error, from->nfilters * sizeof(*to->filters));
	for (uint32_t i = 0; i < from->nfilters; i++)
	{
		if (!gpuvec_filter_column_copy(&to->filters[i], &from->filters[i], from->nrows, error))
			return false;
		to->host_bytes += gpuvec_filter_column_bytes(&to->filters[i], to->nrows);
	}
	if (from->null_sets == NULL)
		return true;
	to->null_sets = malloc(bytes);
	if (to->null_sets == NULL)
		return gpuvec_fail_memory(error, bytes);
	memcpy(to->null_sets, from->null_sets, bytes);
	to->host_bytes += bytes;
	return true;
}

/* Allocate the arrays of a copy, and fill all but ids and their values */
static bool
copy_arrays(gpuvec_segment *to, const gpuvec_segment *from, gpuvec_error *error)
{
	if (!allocate_segment(to, from->sums != NULL, error))
		return false;
	memcpy(to->tid, from->tid, from->nrows * sizeof(uint64_t));
	memcpy(to->len, from->len, from->nrows * sizeof(uint32_t));
	memcpy(to->by_tid, from->by_tid, from->nrows * sizeof(uint16_t));
	memcpy(to->tile_chunk, from->tile_chunk, (from->ntiles + 1) * sizeof(uint32_t));
	if (from->ncold > 0 && !copy_cold(to, from, error))
		return false;
	if (from->sums)
		copy_values(to, from);
	return from->nfilters == 0 || copy_filters(to, from, error);
}

gpuvec_segment *
gpuvec_segment_copy(const gpuvec_segment *from, gpuvec_error *error)
{
	gpuvec_segment *to = calloc(1, sizeof(*to));

	if (to == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*to));
		return NULL;
	}
	to->refs = 1;
	to->nrows = from->nrows;
	to->ntiles = from->ntiles;
	to->minlen = from->minlen;
	to->maxlen = from->maxlen;
	to->nids = from->nids;
	to->ncold = from->ncold;
	to->first_tid = from->first_tid;
	to->last_tid = from->last_tid;
	to->nchunks = from->nchunks;
	to->sorted = from->sorted;
	to->partition_bits = from->partition_bits;
	to->nfilters = from->nfilters;
	to->nnull_sets = from->nnull_sets;
	if (copy_arrays(to, from, error) &&
		from->backend->read_ids(from->backend, from, to->ids, error) &&
		(from->sums == NULL || from->backend->read_values(from->backend, from, to->values, error)))
		return to;
	free_segment(to);
	return NULL;
}

gpuvec_segment *
gpuvec_segment_ref(gpuvec_segment *segment)
{
	__atomic_add_fetch(&segment->refs, 1, __ATOMIC_RELAXED);
	return segment;
}

void
gpuvec_segment_unref(gpuvec_segment *segment)
{
	if (segment == NULL || __atomic_sub_fetch(&segment->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	if (segment->backend)
		segment->backend->release_segment(segment->backend, segment);
	free_segment(segment);
}
