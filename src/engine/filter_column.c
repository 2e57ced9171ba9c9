/*-------------------------------------------------------------------------
 *
 * filter_column.c
 *	  Making the filter columns of segments.
 *
 * Pairs of a key and its row are sorted by key, by a radix sort from the
 * lowest digit to the highest.  Digits that are equal in all keys are
 * skipped.  One pass over the sorted pairs then gives keys and codes.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/filter_column.h"

#define DIGIT_BITS	8
#define NDIGITS		(64 / DIGIT_BITS)

/* Move pairs to `to` in the order of one digit; pairs of equal digits stay */
static void
sort_digit(const gpuvec_row_key *from, gpuvec_row_key *to, uint32_t n, int shift)
{
	uint32_t	start[1 << DIGIT_BITS] = {0};
	uint32_t	sum = 0;

	for (uint32_t i = 0; i < n; i++)
		start[(uint8_t) (from[i].key >> shift)]++;
	for (int i = 0; i < 1 << DIGIT_BITS; i++)
	{
		uint32_t	count = start[i];

		start[i] = sum;
		sum += count;
	}
	for (uint32_t i = 0; i < n; i++)
		to[start[(uint8_t) (from[i].key >> shift)]++] = from[i];
}

/* Sort pairs by key; returns the array that holds them then */
static gpuvec_row_key *
sort_pairs(gpuvec_row_key *pairs, gpuvec_row_key *scratch, uint32_t n)
{
	uint64_t	differ = 0;

	for (uint32_t i = 1; i < n; i++)
		differ |= pairs[i].key ^ pairs[0].key;
	for (int d = 0; d < NDIGITS; d++)
	{
		gpuvec_row_key *swap = pairs;

		if ((uint8_t) (differ >> (d * DIGIT_BITS)) == 0)
			continue;
		sort_digit(pairs, scratch, n, d * DIGIT_BITS);
		pairs = scratch;
		scratch = swap;
	}
	return pairs;
}

/* Move the pairs of nulls behind the others; returns how many others */
static uint32_t
part_nulls(gpuvec_row_key *pairs, uint32_t n)
{
	uint32_t	i = 0;

	while (i < n)
	{
		gpuvec_row_key last = pairs[n - 1];

		if (!pairs[i].null)
		{
			i++;
			continue;
		}
		pairs[--n] = pairs[i];
		pairs[i] = last;
	}
	return n;
}

/* Number of different keys of sorted pairs */
static uint32_t
count_keys(const gpuvec_row_key *sorted, uint32_t n)
{
	uint32_t	nkeys = n > 0;

	for (uint32_t i = 1; i < n; i++)
		nkeys += sorted[i].key != sorted[i - 1].key;
	return nkeys;
}

bool
gpuvec_filter_column_build(gpuvec_filter_column *column, gpuvec_row_key *pairs,
						   gpuvec_row_key *scratch, uint32_t nrows, gpuvec_error *error)
{
	uint32_t	n = part_nulls(pairs, nrows);
	gpuvec_row_key *sorted = sort_pairs(pairs, scratch, n);
	const gpuvec_row_key *nulls = pairs;
	uint32_t	code = 0;

	column->nkeys = count_keys(sorted, n);
	column->has_nulls = n < nrows;
	column->keys = malloc((column->nkeys + 1) * sizeof(uint64_t));
	column->codes = calloc(gpuvec_code_capacity(nrows), sizeof(uint16_t));
	if (column->keys == NULL || column->codes == NULL)
		return gpuvec_fail_memory(error, gpuvec_filter_column_bytes(column, nrows));
	for (uint32_t i = 0; i < n; i++)
	{
		code += i > 0 && sorted[i].key != sorted[i - 1].key;
		column->keys[code] = sorted[i].key;
		column->codes[sorted[i].row] = (uint16_t) code;
	}
	for (uint32_t i = n; i < nrows; i++)
		column->codes[nulls[i].row] = (uint16_t) column->nkeys;
	return true;
}

bool
gpuvec_filter_column_copy(gpuvec_filter_column *to, const gpuvec_filter_column *from,
						  uint32_t nrows, gpuvec_error *error)
{
	size_t		keys = (from->nkeys + (size_t) 1) * sizeof(uint64_t);
	size_t		codes = gpuvec_code_capacity(nrows) * sizeof(uint16_t);

	to->nkeys = from->nkeys;
	to->has_nulls = from->has_nulls;
	to->keys = calloc(1, keys);
	to->codes = malloc(codes);
	if (to->keys == NULL || to->codes == NULL)
		return gpuvec_fail_memory(error, gpuvec_filter_column_bytes(from, nrows));
	memcpy(to->keys, from->keys, from->nkeys * sizeof(uint64_t));
	memcpy(to->codes, from->codes, codes);
	return true;
}

void
gpuvec_filter_column_free(gpuvec_filter_column *column)
{
	free(column->keys);
	free(column->codes);
}

size_t
gpuvec_filter_column_bytes(const gpuvec_filter_column *column, uint32_t nrows)
{
	return sizeof(*column) + (column->nkeys + (size_t) 1) * sizeof(uint64_t) +
		gpuvec_code_capacity(nrows) * sizeof(uint16_t);
}
