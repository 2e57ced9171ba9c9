/*-------------------------------------------------------------------------
 *
 * segment_read.c
 *	  Reads rows of a segment, and finds them.
 *
 * The layout is in segment.h.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/backend.h"

/* How far from its guess gpuvec_segment_find() looks first */
#define FIRST_STEP	4

/* ids in a chunk of a tile: 8 of each of its 32 rows */
#define CHUNK_VALUES	(GPUVEC_TILE_ROWS * GPUVEC_CHUNK_IDS)

/* Copy what a row's hot numbers have, ids or values, of `size` bytes each */
static inline __attribute__((always_inline)) void
copy_row(const gpuvec_segment *segment, uint32_t row, const void *tiles, void *to, size_t size)
{
	const char *from = (const char *) tiles +
		((size_t) segment->tile_chunk[row / GPUVEC_TILE_ROWS] * CHUNK_VALUES +
		 row % GPUVEC_TILE_ROWS * GPUVEC_CHUNK_IDS) * size;
	uint32_t	len = gpuvec_hot_len(segment, row);

	for (uint32_t i = 0; i < len; i += GPUVEC_CHUNK_IDS)
	{
		uint32_t	n = len - i < GPUVEC_CHUNK_IDS ? len - i : GPUVEC_CHUNK_IDS;

		memcpy((char *) to + i * size, from, n * size);
		from += CHUNK_VALUES * size;
	}
}

void
gpuvec_segment_row(const gpuvec_segment *segment, uint32_t row, uint16_t *ids)
{
	copy_row(segment, row, segment->ids, ids, sizeof(uint16_t));
}

void
gpuvec_segment_row_values(const gpuvec_segment *segment, uint32_t row, float *values)
{
	copy_row(segment, row, segment->values, values, sizeof(float));
}

void
gpuvec_segment_filter_keys(const gpuvec_segment *segment, uint32_t row, uint64_t *filter_keys)
{
	filter_keys[0] = gpuvec_null_set(segment, row);
	for (uint32_t column = 1; column <= segment->nfilters; column++)
	{
		const gpuvec_filter_column *filter = &segment->filters[column - 1];
		uint32_t	code = filter->codes[row];
		bool		null = code == filter->nkeys;

		filter_keys[0] |= (uint64_t) null << column;
		filter_keys[column] = null ? 0 : filter->keys[code];
	}
}

/* Where each row's cold numbers begin, row by row; malloc'd, [nrows] */
static uint64_t *
cold_starts(const gpuvec_segment *segment)
{
	uint64_t   *start = malloc(segment->nrows * sizeof(uint64_t));
	uint64_t	n = 0;

	for (uint32_t row = 0; start && row < segment->nrows; row++)
	{
		start[row] = n;
		n += segment->len[row] - gpuvec_hot_len(segment, row);
	}
	return start;
}

uint32_t *
gpuvec_segment_cold_by_row(const gpuvec_segment *segment, float **values, gpuvec_error *error)
{
	bool		with_values = values && segment->sums;
	uint32_t   *numbers = malloc((segment->ncold + 1) * sizeof(uint32_t));
	float	   *found = with_values ? malloc((segment->ncold + 1) * sizeof(float)) : NULL;
	uint64_t   *next = cold_starts(segment);

	if (numbers == NULL || next == NULL || (with_values && found == NULL))
	{
		free(numbers);
		free(found);
		free(next);
		gpuvec_fail_memory(error, segment->ncold * sizeof(uint32_t));
		return NULL;
	}
	for (uint32_t group = 0; group < segment->ngroups; group++)
	{
		gpuvec_cold_run run = gpuvec_segment_group(segment, group);
		uint32_t	upper = segment->cold_groups[group].upper << 16;

		for (uint64_t i = run.first; i < run.end; i++)
		{
			uint64_t	at = next[segment->cold_row[i]]++;

			numbers[at] = upper | segment->cold_low[i];
			if (found)
				found[at] = segment->cold_value[i];
		}
	}
	free(next);
	if (values)
		*values = found;
	return numbers;
}

/* The first group with this upper half or a greater one; ngroups if none */
static uint32_t
find_group(const gpuvec_segment *segment, uint32_t upper)
{
	uint32_t	low = 0;
	uint32_t	high = segment->ngroups;

	while (low < high)
	{
		uint32_t	middle = (low + high) / 2;

		if (segment->cold_groups[middle].upper < upper)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

gpuvec_cold_run
gpuvec_segment_find_cold(const gpuvec_segment *segment, uint32_t number)
{
	gpuvec_cold_run run = {0, 0};
	uint32_t	group = find_group(segment, number >> 16);
	uint16_t	low = (uint16_t) number;
	uint64_t	end;

	if (group == segment->ngroups || segment->cold_groups[group].upper != number >> 16)
		return run;
	run = gpuvec_segment_group(segment, group);
	end = run.end;
	while (run.first < run.end)
	{
		uint64_t	middle = (run.first + run.end) / 2;

		if (segment->cold_low[middle] < low)
			run.first = middle + 1;
		else
			run.end = middle;
	}
	/* most numbers have few postings */
	while (run.end < end && segment->cold_low[run.end] == low)
		run.end++;
	return run;
}

/* The tid at a position of by_tid */
static inline uint64_t
tid_at(const gpuvec_segment *segment, uint32_t position)
{
	return segment->tid[segment->by_tid[position]];
}

/*
 * Where a tid would be if the tids were spread evenly; the segment has rows
 * on both sides of it, or with it
 */
static uint32_t
guess_position(const gpuvec_segment *segment, uint64_t tid)
{
	double		part = (double) (tid - segment->first_tid) /
		(double) (segment->last_tid - segment->first_tid);

	return (uint32_t) (part * (segment->nrows - 1));
}

/*
 * Each look at a tid is a cache miss.  In most segments tids are spread
 * evenly, so the search begins near a guess, and goes away from it by steps
 * that grow.
 */
uint32_t
gpuvec_segment_find(const gpuvec_segment *segment, uint64_t tid)
{
	uint32_t	low = 0;
	uint32_t	high = segment->nrows;
	uint32_t	step = FIRST_STEP;
	uint32_t	guess;

	if (tid <= segment->first_tid)
		return 0;
	if (tid > segment->last_tid)
		return segment->nrows;
	guess = guess_position(segment, tid);
	if (tid_at(segment, guess) < tid)
	{
		for (low = guess + 1; high - low > step && tid_at(segment, low + step) < tid; step *= 2)
			low += step + 1;
		if (high - low > step)
			high = low + step;
	}
	else
	{
		for (high = guess; high > step && tid_at(segment, high - step) >= tid; step *= 2)
			high -= step;
		if (high > step)
			low = high - step;
	}
	while (low < high)
	{
		uint32_t	middle = (low + high) / 2;

		if (tid_at(segment, middle) < tid)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}
