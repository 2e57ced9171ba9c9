/*-------------------------------------------------------------------------
 *
 * scan_lone.c
 *	  The scan for one query, in portable C.
 *
 * The query is a bitmap of 8 kB, which stays in the first-level cache.  Rows
 * of a segment are sorted by length.  So the number of common ids that a row
 * needs (gpuvec_need) is computed once for each length, and lengths that
 * cannot reach it are skipped.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "engine/cpu/scan_lone.h"

/* Scan the live rows [row, end) of a segment, all of one length */
static void
scan_rows(const lone_scan *scan, const gpuvec_view_entry *entry, uint32_t row, uint32_t end,
		  uint32_t need)
{
	const gpuvec_segment *segment = entry->segment;
	gpuvec_shared shared = {0, gpuvec_query_len(scan->query->query), segment->len[row]};

	for (; row < end; row++)
	{
		if (!gpuvec_entry_live(entry, row) || !mask_has(scan->mask, row))
			continue;
		shared.common = lone_count(scan->bitmap, segment, row, gpuvec_hot_len(segment, row));
		if (shared.common >= need)
			best_offer(scan->best, &shared, entry, row);
	}
}

bool
scan_lone_portable(cpu_slice *slice)
{
	return lone_scan_slice(slice, scan_rows);
}
