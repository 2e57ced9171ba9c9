/*-------------------------------------------------------------------------
 *
 * grouped_ids.c
 *	  Groups of counted rows by the ids of their sets.
 *
 * Each thread counts the hot numbers of the marked rows of all entries that it
 * is given in an array.  When all are counted, these become groups.  The cold
 * postings of an entry are in the order of numbers, so each number that marked
 * rows have becomes a group of the thread's at once.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "engine/cpu/cpu_backend.h"

#define WORD_ROWS		64

/* ids in a chunk of a tile: 8 of each of its 32 rows */
#define CHUNK_IDS		(GPUVEC_TILE_ROWS * GPUVEC_CHUNK_IDS)

/* Count the hot numbers of a row */
static void
count_row(const gpuvec_segment *segment, uint32_t row, uint32_t *hot)
{
	uint32_t	left = gpuvec_hot_len(segment, row);
	const uint16_t *ids = segment->ids +
		(size_t) segment->tile_chunk[row / GPUVEC_TILE_ROWS] * CHUNK_IDS +
		row % GPUVEC_TILE_ROWS * GPUVEC_CHUNK_IDS;

	for (; left >= GPUVEC_CHUNK_IDS; left -= GPUVEC_CHUNK_IDS, ids += CHUNK_IDS)
		for (uint32_t i = 0; i < GPUVEC_CHUNK_IDS; i++)
			hot[ids[i]]++;
	for (uint32_t i = 0; i < left; i++)
		hot[ids[i]]++;
}

/* Add the cold numbers of marked rows to groups.  False: out of memory. */
static bool
add_cold(const gpuvec_segment *segment, const uint64_t *marks, gpuvec_groups *groups)
{
	for (uint32_t g = 0; g < segment->ngroups && !groups->too_many; g++)
	{
		gpuvec_cold_run run = gpuvec_segment_group(segment, g);
		uint32_t	upper = segment->cold_groups[g].upper << 16;

		for (uint64_t i = run.first; i < run.end;)
		{
			uint16_t	low = segment->cold_low[i];
			uint32_t	rows = 0;

			for (; i < run.end && segment->cold_low[i] == low; i++)
				rows += marks[segment->cold_row[i] / WORD_ROWS] >> segment->cold_row[i] % WORD_ROWS & 1;
			if (!gpuvec_groups_add_ids(groups, upper | low, &rows, 1))
				return false;
		}
	}
	return true;
}

bool
grouped_count_ids(const gpuvec_segment *segment, const uint64_t *marks, uint32_t **hot,
				  gpuvec_groups *groups)
{
	if (*hot == NULL)
		*hot = calloc(GPUVEC_HOT_NUMBERS, sizeof(uint32_t));
	if (*hot == NULL)
		return false;
	for (uint32_t word = 0; word < (segment->nrows + WORD_ROWS - 1) / WORD_ROWS; word++)
		for (uint64_t bits = marks[word]; bits != 0; bits &= bits - 1)
			count_row(segment, word * WORD_ROWS + (uint32_t) __builtin_ctzll(bits), *hot);
	return add_cold(segment, marks, groups);
}

bool
grouped_add_hot(uint32_t **hot, int n, gpuvec_groups *groups)
{
	uint32_t   *all = NULL;

	for (int thread = 0; thread < n; thread++)
	{
		if (hot[thread] == NULL)
			continue;
		if (all == NULL)
			all = hot[thread];
		else
			for (uint32_t i = 0; i < GPUVEC_HOT_NUMBERS; i++)
				all[i] += hot[thread][i];
	}
	return all == NULL || gpuvec_groups_add_ids(groups, 0, all, GPUVEC_HOT_NUMBERS);
}
