/*-------------------------------------------------------------------------
 *
 * overlap_numbers.c
 *	  The queries that have each hot number, for counting pairs of queries.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "engine/backend.h"

uint32_t
gpuvec_overlaps_hot(const gpuvec_overlaps *overlaps)
{
	uint32_t	n = 0;

	for (uint32_t q = 0; q < overlaps->n; q++)
		n += overlaps->queries[q].len;
	return n;
}

void
gpuvec_overlaps_numbers(const gpuvec_overlaps *overlaps, uint32_t *first, uint16_t *queries)
{
	uint32_t	total = 0;

	memset(first, 0, (GPUVEC_HOT_NUMBERS + 1) * sizeof(*first));
	for (uint32_t q = 0; q < overlaps->n; q++)
		for (uint32_t i = 0; i < overlaps->queries[q].len; i++)
			first[overlaps->queries[q].ids[i]]++;
	for (uint32_t i = 0; i <= GPUVEC_HOT_NUMBERS; i++)
		first[i] = total += first[i];
	/* from the ends of the numbers' ranges down to their beginnings */
	for (uint32_t q = overlaps->n; q-- > 0;)
		for (uint32_t i = 0; i < overlaps->queries[q].len; i++)
			queries[--first[overlaps->queries[q].ids[i]]] = (uint16_t) q;
}
