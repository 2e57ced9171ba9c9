/*-------------------------------------------------------------------------
 *
 * filter_sets.c
 *	  The rows of a segment whose sets match an expression of ids.
 *
 * The ids of a row that an expression has are bits of a word
 * (core/set_match.h).  Hot numbers are found in the inverted lists of the
 * segment, cold ones in the postings, both in the order of rows.  If there are
 * no lists (yet), the tiles are read of which other conditions have left a
 * row, and their numbers are looked up in a table.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "core/set_match.h"
#include "engine/cpu/filters.h"
#include "engine/cpu/lists_builder.h"

/* The rows of a number that are not read yet, ascending */
typedef struct number_rows
{
	const uint16_t *next;
	const uint16_t *end;
	uint64_t	bit;			/* of the number */
} number_rows;

/* The numbers of an expression in a segment */
typedef struct match_numbers
{
	const gpuvec_segment *segment;
	bool		tiles;			/* hot numbers are looked up in tiles */
	uint8_t		place[GPUVEC_HOT_NUMBERS];	/* then, of these: from 1 on; 0:
											 * none */
	uint64_t	bit[GPUVEC_MOST_MATCH_IDS + 1]; /* of each place */
	number_rows lists[GPUVEC_MOST_MATCH_IDS];	/* [nlists] of others */
	uint32_t	nlists;
	const uint8_t *bitmaps[GPUVEC_MOST_MATCH_IDS];	/* [nbitmaps] the same */
	uint64_t	bitmap_bit[GPUVEC_MOST_MATCH_IDS];
	uint32_t	nbitmaps;
} match_numbers;

/* Add the rows first .. end - 1 of a list */
static void
add_rows(match_numbers *numbers, const uint16_t *rows, uint64_t first, uint64_t end, uint64_t bit)
{
	numbers->lists[numbers->nlists++] = (number_rows)
	{
		rows + first, rows + end, bit
	};
}

/* Add a hot number of a segment with lists */
static void
add_listed(match_numbers *numbers, const cpu_lists *lists, uint32_t number, uint64_t bit)
{
	const uint32_t *start;

	if (number < lists->first_id || number >= lists->end_id)
		return;
	start = lists->start + (number - lists->first_id);
	if ((start[0] & LISTS_BITMAP) == 0)
		add_rows(numbers, lists->rows, start[0], start[1] & ~LISTS_BITMAP, bit);
	else
	{
		numbers->bitmaps[numbers->nbitmaps] =
			lists->bitmaps + (size_t) lists->rows[start[0] & ~LISTS_BITMAP] * lists->stride;
		numbers->bitmap_bit[numbers->nbitmaps++] = bit;
	}
}

/* Add a number of an expression, the i-th one */
static void
add_number(match_numbers *numbers, const cpu_lists *lists, uint64_t number, uint32_t i)
{
	const gpuvec_segment *segment = numbers->segment;
	uint64_t	bit = UINT64_C(1) << i;
	gpuvec_cold_run run;

	if (number < GPUVEC_HOT_NUMBERS && lists)
		add_listed(numbers, lists, (uint32_t) number, bit);
	else if (number < GPUVEC_HOT_NUMBERS)
	{
		numbers->place[number] = (uint8_t) (i + 1);
		numbers->bit[i + 1] = bit;
	}
	else if (segment->ncold > 0)
	{
		run = gpuvec_segment_find_cold(segment, (uint32_t) number);
		add_rows(numbers, segment->cold_row, run.first, run.end, bit);
	}
}

/* Find the numbers of a tile's rows that have lists; tiles ascend */
static void
find_listed(match_numbers *numbers, uint32_t tile, uint64_t *has)
{
	memset(has, 0, GPUVEC_TILE_ROWS * sizeof(uint64_t));
	for (uint32_t i = 0; i < numbers->nlists; i++)
	{
		number_rows *list = &numbers->lists[i];

		for (; list->next < list->end && *list->next / GPUVEC_TILE_ROWS <= tile; list->next++)
			if (*list->next / GPUVEC_TILE_ROWS == tile)
				has[*list->next % GPUVEC_TILE_ROWS] |= list->bit;
	}
	for (uint32_t i = 0; i < numbers->nbitmaps; i++)
	{
		const uint8_t *bytes = numbers->bitmaps[i] + tile * (GPUVEC_TILE_ROWS / 8);

		for (uint32_t row = 0; row < GPUVEC_TILE_ROWS; row += 8)
			for (uint32_t bits = bytes[row / 8]; bits != 0; bits &= bits - 1)
				has[row + (uint32_t) __builtin_ctz(bits)] |= numbers->bitmap_bit[i];
	}
}

/* The numbers of a row that are looked up in its tile */
static uint64_t
find_hot(const match_numbers *numbers, uint32_t row)
{
	const gpuvec_segment *segment = numbers->segment;
	const uint16_t *ids = segment->ids + ((size_t) segment->tile_chunk[row / GPUVEC_TILE_ROWS] *
										  GPUVEC_TILE_ROWS + row % GPUVEC_TILE_ROWS) * GPUVEC_CHUNK_IDS;
	uint32_t	len = numbers->tiles ? gpuvec_hot_len(segment, row) : 0;
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
	const cpu_lists *lists = segment_lists(segment);
	match_numbers *numbers = calloc(1, sizeof(*numbers));
	uint64_t	before = 0;		/* what the row before has, and if more */
	bool		before_more = true;
	bool		matches = gpuvec_set_matches(steps, nsteps, before, before_more);

	if (numbers == NULL)
		return false;
	numbers->segment = segment;
	numbers->tiles = lists == NULL;
	for (uint32_t i = 0; i < match->low; i++)
		add_number(numbers, lists, ids[i], i);
	for (uint32_t tile = 0; tile < segment->ntiles; tile++)
	{
		uint32_t	first = tile * GPUVEC_TILE_ROWS;
		uint64_t	has[GPUVEC_TILE_ROWS];

		if ((uint32_t) (mask[first / 64] >> first % 64) == 0)
			continue;
		find_listed(numbers, tile, has);
		for (uint32_t row = first; row < first + GPUVEC_TILE_ROWS; row++)
		{
			uint64_t	bit = UINT64_C(1) << row % 64;
			uint64_t	mine;
			bool		more;

			if ((mask[row / 64] & bit) == 0)
				continue;
			mine = has[row - first] | find_hot(numbers, row);
			more = (uint32_t) __builtin_popcountll(mine) < segment->len[row];
			/* most rows are like the one before: they have none */
			if (mine != before || more != before_more)
				matches = gpuvec_set_matches(steps, nsteps, mine, more);
			before = mine;
			before_more = more;
			if (!matches)
				mask[row / 64] &= ~bit;
		}
	}
	free(numbers);
	return true;
}
