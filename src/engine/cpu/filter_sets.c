/*-------------------------------------------------------------------------
 *
 * filter_sets.c
 *	  The rows of a segment whose sets match an expression of ids.
 *
 * The ids of a row that an expression has are bits of a word
 * (core/set_match.h).  Hot numbers are looked up in a table as the tiles have
 * them; those tiles are read of which other conditions have left a row.  Cold
 * ones are found in the postings, which come in the order of rows.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "core/set_match.h"
#include "engine/cpu/filters.h"

/* The numbers of an expression in a segment */
typedef struct match_numbers
{
	const gpuvec_segment *segment;
	uint8_t		place[GPUVEC_HOT_NUMBERS];	/* of hot numbers: from 1 on; 0:
											 * none */
	uint64_t	bit[GPUVEC_MOST_MATCH_IDS + 1]; /* of each place */
	gpuvec_cold_run cold[GPUVEC_MOST_MATCH_IDS];	/* [ncold] postings that
													 * are not read yet */
	uint64_t	cold_bit[GPUVEC_MOST_MATCH_IDS];
	uint32_t	ncold;
} match_numbers;

/* Of an expression with n numbers.  NULL: out of memory. */
static match_numbers *
make_numbers(const gpuvec_segment *segment, const uint64_t *numbers, uint64_t n)
{
	match_numbers *made = calloc(1, sizeof(*made));

	if (made == NULL)
		return NULL;
	made->segment = segment;
	for (uint32_t i = 0; i < n; i++)
	{
		if (numbers[i] < GPUVEC_HOT_NUMBERS)
		{
			made->place[numbers[i]] = (uint8_t) (i + 1);
			made->bit[i + 1] = UINT64_C(1) << i;
		}
		else if (segment->ncold > 0)
		{
			made->cold[made->ncold] = gpuvec_segment_find_cold(segment, (uint32_t) numbers[i]);
			made->cold_bit[made->ncold++] = UINT64_C(1) << i;
		}
	}
	return made;
}

/* Find the cold numbers of a tile's rows; tiles come in ascending order */
static void
find_cold(match_numbers *numbers, uint32_t tile, uint64_t *has)
{
	const uint16_t *rows = numbers->segment->cold_row;

	memset(has, 0, GPUVEC_TILE_ROWS * sizeof(uint64_t));
	for (uint32_t i = 0; i < numbers->ncold; i++)
	{
		gpuvec_cold_run *run = &numbers->cold[i];

		for (; run->first < run->end && rows[run->first] / GPUVEC_TILE_ROWS <= tile; run->first++)
			if (rows[run->first] / GPUVEC_TILE_ROWS == tile)
				has[rows[run->first] % GPUVEC_TILE_ROWS] |= numbers->cold_bit[i];
	}
}

/* The hot numbers of a row */
static uint64_t
find_hot(const match_numbers *numbers, uint32_t row)
{
	const gpuvec_segment *segment = numbers->segment;
	const uint16_t *ids = segment->ids + ((size_t) segment->tile_chunk[row / GPUVEC_TILE_ROWS] *
										  GPUVEC_TILE_ROWS + row % GPUVEC_TILE_ROWS) * GPUVEC_CHUNK_IDS;
	uint32_t	len = gpuvec_hot_len(segment, row);
	uint64_t	has = 0;

	for (uint32_t i = 0; i < len; i++)
		has |= numbers->bit[numbers->place[ids[i / GPUVEC_CHUNK_IDS * GPUVEC_TILE_ROWS * GPUVEC_CHUNK_IDS +
											   i % GPUVEC_CHUNK_IDS]]];
	return has;
}

bool
mask_by_sets(const gpuvec_condition *match, const uint64_t *values, const gpuvec_segment *segment,
			 uint64_t *mask)
{
	const uint64_t *ids = values + match->first;
	const uint64_t *steps = ids + match->low;
	uint32_t	nsteps = match->n - (uint32_t) match->low;
	match_numbers *numbers = make_numbers(segment, ids, match->low);

	if (numbers == NULL)
		return false;
	for (uint32_t tile = 0; tile < segment->ntiles; tile++)
	{
		uint32_t	first = tile * GPUVEC_TILE_ROWS;
		uint64_t	has[GPUVEC_TILE_ROWS];

		if ((uint32_t) (mask[first / 64] >> first % 64) == 0)
			continue;
		find_cold(numbers, tile, has);
		for (uint32_t row = first; row < first + GPUVEC_TILE_ROWS; row++)
		{
			uint64_t	bit = UINT64_C(1) << row % 64;
			uint64_t	all;

			if ((mask[row / 64] & bit) == 0)
				continue;
			all = has[row - first] | find_hot(numbers, row);
			if (!gpuvec_set_matches(steps, nsteps, all,
									(uint32_t) __builtin_popcountll(all) < segment->len[row]))
				mask[row / 64] &= ~bit;
		}
	}
	free(numbers);
	return true;
}
