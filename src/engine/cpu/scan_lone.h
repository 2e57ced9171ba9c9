/*-------------------------------------------------------------------------
 *
 * scan_lone.h
 *	  What the scans for one query have in common.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SCAN_LONE_H
#define GPUVEC_SCAN_LONE_H

#include <string.h>

#include "engine/cpu/cpu_backend.h"

/* ids in a chunk of a tile */
#define CHUNK_VALUES	(GPUVEC_TILE_ROWS * GPUVEC_CHUNK_IDS)

/* Rows between two checks of the bound and the canceled flag */
#define LONE_STRIDE		8192

typedef struct lone_scan
{
	const cpu_query *query;
	best_rows  *best;
	const uint64_t *mask;		/* rows of the entry that take part; NULL: all
								 * live ones */
	uint64_t	bitmap[(GPUVEC_MAX_ID + 1) / 64];
	uint16_t	signature[64];	/* bit id % 1024: word id % 64, bit id / 64 %
								 * 16 in it */
} lone_scan;

/*
 * Scans the live rows [row, end), all of one length, that need `need` common
 * ids
 */
typedef void (*lone_rows) (const lone_scan *scan, const gpuvec_view_entry *entry,
						   uint32_t row, uint32_t end, uint32_t need);

/* Pointer to the first id of a row */
static inline const uint16_t *
row_ids(const gpuvec_segment *segment, uint32_t row)
{
	return segment->ids +
		(size_t) segment->tile_chunk[row / GPUVEC_TILE_ROWS] * CHUNK_VALUES +
		row % GPUVEC_TILE_ROWS * GPUVEC_CHUNK_IDS;
}

/* Number of ids that a row of len hot ids shares with the bitmap */
static inline uint32_t
lone_count(const uint64_t *bitmap, const gpuvec_segment *segment, uint32_t row, uint32_t len)
{
	const uint16_t *ids = row_ids(segment, row);
	uint32_t	n = 0;
	uint32_t	i;

	for (i = 0; i + GPUVEC_CHUNK_IDS <= len; i += GPUVEC_CHUNK_IDS)
	{
		for (int j = 0; j < GPUVEC_CHUNK_IDS; j++)
			n += bitmap[ids[j] / 64] >> (ids[j] % 64) & 1;
		ids += CHUNK_VALUES;
	}
	for (uint32_t j = 0; i + j < len; j++)
		n += bitmap[ids[j] / 64] >> (ids[j] % 64) & 1;
	return n;
}

/* First row at or after `row` that is longer than len */
static inline uint32_t
rows_up_to(const gpuvec_segment *segment, uint32_t row, uint32_t len)
{
	uint32_t	low = row;
	uint32_t	high = segment->nrows;

	while (low < high)
	{
		uint32_t	middle = low + (high - low) / 2;

		if (segment->len[middle] <= len)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Scan one segment.  False: canceled. */
static inline bool
lone_scan_entry(cpu_slice *slice, const lone_scan *scan, const gpuvec_view_entry *entry,
				lone_rows scan_rows)
{
	const gpuvec_segment *segment = entry->segment;
	uint32_t	qlen = gpuvec_query_len(scan->query->query);
	uint32_t	row = 0;

	while (row < segment->nrows)
	{
		uint32_t	len = segment->len[row];
		uint32_t	end = rows_up_to(segment, row, len);

		while (row < end)
		{
			uint32_t	stop = end - row > LONE_STRIDE ? row + LONE_STRIDE : end;
			uint32_t	need = gpuvec_need_with(scan->query->scoring, qlen, len,
												bound_score(scan->query));

			if (need > (qlen < len ? qlen : len))
			{
				row = end;
				break;
			}
			if (slice_canceled(slice))
				return false;
			scan_rows(scan, entry, row, stop, need);
			row = stop;
		}
	}
	return true;
}

/* Set the bitmap and the signature of a query; they are all zero before */
static inline void
lone_set_query(lone_scan *scan, const gpuvec_topk_query *query)
{
	for (uint32_t i = 0; i < query->len; i++)
	{
		uint32_t	id = query->ids[i];

		scan->bitmap[id / 64] |= UINT64_C(1) << (id % 64);
		scan->signature[id % 64] |= (uint16_t) (1 << (id / 64 % 16));
	}
}

/* Scan all segments of a slice for its queries, one after another */
static inline bool
lone_scan_slice(cpu_slice *slice, lone_rows scan_rows)
{
	for (uint32_t q = 0; q < slice->nqueries; q++)
	{
		lone_scan	scan = {.query = slice->queries[q], .best = &slice->best[q]};

		lone_set_query(&scan, scan.query->query);
		for (uint32_t e = slice->first_entry; e < slice->end_entry; e++)
		{
			if (!query_searches(scan.query, slice->order[e], &scan.mask))
				continue;
			if (!lone_scan_entry(slice, &scan, &slice->view->entries[slice->order[e]], scan_rows))
			{
				slice->canceled = true;
				return true;
			}
		}
	}
	return true;
}

#endif							/* GPUVEC_SCAN_LONE_H */
