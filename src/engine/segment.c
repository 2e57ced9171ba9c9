/*-------------------------------------------------------------------------
 *
 * segment.c
 *	  Building, sharing and freeing segments, live maps and views.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/backend.h"

/* uint16_t ids in a chunk of a tile: 32 rows of 8 */
#define CHUNK_VALUES	(GPUVEC_TILE_ROWS * GPUVEC_CHUNK_IDS)

/* Chunks that a row of this length takes */
static inline uint32_t
chunks_of(uint32_t len)
{
	return (len + GPUVEC_CHUNK_IDS - 1) / GPUVEC_CHUNK_IDS;
}

/* The order of rows in a segment */
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
 * Sort rows by (len, tid).  Rows come from the heap in order of tid, so a stable
 * counting sort by length does it; if they do not, they are sorted by tid first.
 */
bool
gpuvec_rows_sort(gpuvec_source_row *rows, uint64_t nrows, int nthreads,
				 gpuvec_error *error)
{
	size_t		counts_size = (GPUVEC_MAX_IDS + 2) * sizeof(uint64_t);
	uint64_t   *start;
	gpuvec_source_row *sorted;
	bool		by_tid = true;

	(void) nthreads;
	for (uint64_t i = 1; i < nrows && by_tid; i++)
		by_tid = rows[i - 1].tid <= rows[i].tid;
	if (!by_tid)
		qsort(rows, nrows, sizeof(*rows), compare_tids);
	if (nrows < 64)
	{
		qsort(rows, nrows, sizeof(*rows), compare_rows);
		return true;
	}

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
		start[rows[i].len + 1]++;
	for (uint32_t len = 0; len <= GPUVEC_MAX_IDS; len++)
		start[len + 1] += start[len];
	for (uint64_t i = 0; i < nrows; i++)
		sorted[start[rows[i].len]++] = rows[i];
	memcpy(rows, sorted, nrows * sizeof(*rows));
	free(sorted);
	free(start);
	return true;
}

/* Allocate the arrays of a segment whose counts are set */
static bool
allocate_segment(gpuvec_segment *segment, gpuvec_error *error)
{
	size_t		nrows = segment->nrows;
	size_t		ids = segment->nchunks * CHUNK_VALUES * sizeof(uint16_t);

	segment->tid = malloc(nrows * sizeof(uint64_t));
	segment->len = malloc(nrows * sizeof(uint32_t));
	segment->by_tid = malloc(nrows * sizeof(uint16_t));
	segment->tile_chunk = malloc((segment->ntiles + 1) * sizeof(uint32_t));
	segment->ids = calloc(1, ids > 0 ? ids : 1);
	segment->host_bytes = sizeof(*segment) + nrows * (8 + 4 + 2) +
		(segment->ntiles + 1) * sizeof(uint32_t) + ids;
	if (segment->tid == NULL || segment->len == NULL || segment->by_tid == NULL ||
		segment->tile_chunk == NULL || segment->ids == NULL)
		return gpuvec_fail_memory(error, segment->host_bytes);
	return true;
}

/* Free the host's part of a segment */
static void
free_segment(gpuvec_segment *segment)
{
	free(segment->tid);
	free(segment->len);
	free(segment->by_tid);
	free(segment->tile_chunk);
	free(segment->ids);
	free(segment);
}

/* Write the ids of a row to its places */
static void
swizzle_row(uint16_t *tile, uint32_t r, const uint16_t *ids, uint32_t len)
{
	uint16_t   *to = tile + r * GPUVEC_CHUNK_IDS;

	for (; len >= GPUVEC_CHUNK_IDS; len -= GPUVEC_CHUNK_IDS)
	{
		memcpy(to, ids, GPUVEC_CHUNK_IDS * sizeof(uint16_t));
		ids += GPUVEC_CHUNK_IDS;
		to += CHUNK_VALUES;
	}
	memcpy(to, ids, len * sizeof(uint16_t));
}

/* An entry to sort rows by tid: tid and row number */
typedef struct tid_row
{
	uint64_t	tid;
	uint16_t	row;
} tid_row;

static int
compare_tid_rows(const void *a, const void *b)
{
	const tid_row *x = a;
	const tid_row *y = b;

	return x->tid < y->tid ? -1 : x->tid > y->tid;
}

/* Fill by_tid.  Rows of one length are in order already: merge by sorting. */
static bool
order_by_tid(gpuvec_segment *segment, gpuvec_error *error)
{
	tid_row    *entries = malloc(segment->nrows * sizeof(tid_row));

	if (entries == NULL)
		return gpuvec_fail_memory(error, segment->nrows * sizeof(tid_row));
	for (uint32_t row = 0; row < segment->nrows; row++)
		entries[row] = (tid_row) {segment->tid[row], (uint16_t) row};
	qsort(entries, segment->nrows, sizeof(tid_row), compare_tid_rows);
	for (uint32_t i = 0; i < segment->nrows; i++)
		segment->by_tid[i] = entries[i].row;
	free(entries);
	return true;
}

gpuvec_segment *
gpuvec_segment_build(const gpuvec_source_row *rows, uint32_t nrows, gpuvec_error *error)
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
	segment->minlen = rows[0].len;
	segment->maxlen = rows[nrows - 1].len;
	for (uint32_t tile = 0; tile < segment->ntiles; tile++)
	{
		uint32_t	last = (tile + 1) * GPUVEC_TILE_ROWS;

		segment->nchunks += chunks_of(rows[(last < nrows ? last : nrows) - 1].len);
	}
	if (!allocate_segment(segment, error))
	{
		free_segment(segment);
		return NULL;
	}

	segment->tile_chunk[0] = 0;
	for (uint32_t tile = 0; tile < segment->ntiles; tile++)
	{
		uint32_t	first = tile * GPUVEC_TILE_ROWS;
		uint32_t	n = nrows - first < GPUVEC_TILE_ROWS ? nrows - first : GPUVEC_TILE_ROWS;
		uint32_t	chunk = segment->tile_chunk[tile];

		segment->tile_chunk[tile + 1] = chunk + chunks_of(rows[first + n - 1].len);
		for (uint32_t r = 0; r < n; r++)
		{
			const gpuvec_source_row *row = &rows[first + r];

			swizzle_row(segment->ids + (size_t) chunk * CHUNK_VALUES, r, row->ids, row->len);
			segment->tid[first + r] = row->tid;
			segment->len[first + r] = row->len;
			segment->nids += row->len;
		}
	}
	if (!order_by_tid(segment, error))
	{
		free_segment(segment);
		return NULL;
	}
	return segment;
}

void
gpuvec_segment_row(const gpuvec_segment *segment, uint32_t row, uint16_t *ids)
{
	const uint16_t *from = segment->ids +
		(size_t) segment->tile_chunk[row / GPUVEC_TILE_ROWS] * CHUNK_VALUES +
		row % GPUVEC_TILE_ROWS * GPUVEC_CHUNK_IDS;
	uint32_t	len = segment->len[row];

	for (uint32_t i = 0; i < len; i += GPUVEC_CHUNK_IDS)
	{
		uint32_t	n = len - i < GPUVEC_CHUNK_IDS ? len - i : GPUVEC_CHUNK_IDS;

		memcpy(ids + i, from, n * sizeof(uint16_t));
		from += CHUNK_VALUES;
	}
}

uint32_t
gpuvec_segment_find(const gpuvec_segment *segment, uint64_t tid)
{
	uint32_t	low = 0;
	uint32_t	high = segment->nrows;

	while (low < high)
	{
		uint32_t	middle = (low + high) / 2;

		if (segment->tid[segment->by_tid[middle]] < tid)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
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

/* An uninitialised live map for this many words */
static gpuvec_livemap *
allocate_livemap(uint32_t nwords, gpuvec_error *error)
{
	size_t		size = sizeof(gpuvec_livemap) + nwords * sizeof(uint32_t);
	gpuvec_livemap *map = malloc(size);

	if (map == NULL)
	{
		gpuvec_fail_memory(error, size);
		return NULL;
	}
	map->refs = 1;
	map->nwords = nwords;
	map->backend = NULL;
	map->device = NULL;
	return map;
}

gpuvec_livemap *
gpuvec_livemap_new(uint32_t nrows, gpuvec_error *error)
{
	uint32_t	nwords = (nrows + 31) / 32;
	gpuvec_livemap *map = allocate_livemap(nwords, error);

	if (map == NULL)
		return NULL;
	map->nlive = nrows;
	memset(map->bits, 0xFF, nwords * sizeof(uint32_t));
	if (nrows % 32 != 0)
		map->bits[nwords - 1] = (UINT32_C(1) << (nrows % 32)) - 1;
	return map;
}

gpuvec_livemap *
gpuvec_livemap_copy(const gpuvec_livemap *from, gpuvec_error *error)
{
	gpuvec_livemap *map = allocate_livemap(from->nwords, error);

	if (map == NULL)
		return NULL;
	map->nlive = from->nlive;
	memcpy(map->bits, from->bits, from->nwords * sizeof(uint32_t));
	return map;
}

gpuvec_livemap *
gpuvec_livemap_ref(gpuvec_livemap *map)
{
	if (map)
		__atomic_add_fetch(&map->refs, 1, __ATOMIC_RELAXED);
	return map;
}

void
gpuvec_livemap_unref(gpuvec_livemap *map)
{
	if (map == NULL || __atomic_sub_fetch(&map->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	if (map->backend)
		map->backend->release_livemap(map->backend, map);
	free(map);
}

gpuvec_view *
gpuvec_view_new(const gpuvec_view_entry *entries, uint32_t nentries, gpuvec_error *error)
{
	size_t		size = sizeof(gpuvec_view) + nentries * sizeof(gpuvec_view_entry);
	gpuvec_view *view = calloc(1, size);

	if (view == NULL)
	{
		gpuvec_fail_memory(error, size);
		return NULL;
	}
	view->refs = 1;
	view->nentries = nentries;
	for (uint32_t i = 0; i < nentries; i++)
	{
		view->entries[i] = entries[i];
		view->nrows += entries[i].live ? entries[i].live->nlive : entries[i].segment->nrows;
		view->nids += entries[i].segment->nids;
	}
	return view;
}

gpuvec_view *
gpuvec_view_ref(gpuvec_view *view)
{
	__atomic_add_fetch(&view->refs, 1, __ATOMIC_RELAXED);
	return view;
}

void
gpuvec_view_unref(gpuvec_view *view)
{
	if (view == NULL || __atomic_sub_fetch(&view->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	if (view->backend)
		view->backend->release_view(view->backend, view);
	for (uint32_t i = 0; i < view->nentries; i++)
	{
		gpuvec_segment_unref(view->entries[i].segment);
		gpuvec_livemap_unref(view->entries[i].live);
	}
	free(view);
}
