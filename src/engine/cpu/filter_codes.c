/*-------------------------------------------------------------------------
 *
 * filter_codes.c
 *	  The rows of a segment that pass a filter.
 *
 * Conditions on keys become conditions on the segment's codes
 * (filter_column.h).  First come the ranges: each column has one, the
 * intersection of all that its conditions allow.  If one is empty, no row
 * passes, and nothing is read.  A list of keys, and a condition on bits, is a
 * set of codes besides: some ranges where these are few, else a table.
 *
 * Then a mask of the live rows loses those that a column excludes, column by
 * column, with 2 bytes read for each row.  1,000,000 rows are 2 MB a column,
 * some 100 us of one thread.  Words of the mask that have become 0 are not
 * looked at again.
 *
 * Rows with null sets pass a filter like others, and are counted.  They take
 * no slice in the search, unless a condition asks for null sets.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/filters.h"

/* A set of codes of more ranges than this is a table */
#define MOST_RANGES		8

/*
 * Values are looked up one by one if there are fewer than one for so many
 * keys; else both are merged
 */
#define LOOKUP_KEYS		16

/* A set of codes */
typedef struct code_set
{
	uint32_t	nranges;		/* MOST_RANGES + 1: see the table */
	code_range	ranges[MOST_RANGES];
	uint8_t    *table;			/* [65536] 1: in the set */
} code_set;

/* Add a code to a set; codes come in ascending order */
static inline void
add_code(code_set *set, uint32_t code)
{
	set->table[code] = 1;
	if (set->nranges > MOST_RANGES)
		return;
	if (set->nranges > 0 && set->ranges[set->nranges - 1].end == code)
		set->ranges[set->nranges - 1].end++;
	else if (set->nranges++ < MOST_RANGES)
		set->ranges[set->nranges - 1] = (code_range)
	{
		code, code + 1
	};
}

/* The codes of the keys low .. high */
static code_range
range_of_keys(const gpuvec_filter_column *column, uint64_t low, uint64_t high)
{
	code_range	range = {gpuvec_filter_code(column, low), column->nkeys};

	if (high != UINT64_MAX)
		range.end = gpuvec_filter_code(column, high + 1);
	return range;
}

/* A range that has all codes that may satisfy a condition */
static code_range
range_of(const gpuvec_filter *filter, const gpuvec_condition *c, const gpuvec_filter_column *column)
{
	code_range	keys = {0, column->nkeys};
	code_range	nulls = {column->nkeys, column->nkeys + column->has_nulls};
	code_range	none = {0, 0};

	switch (c->kind)
	{
		case GPUVEC_KEY_BETWEEN:
			return range_of_keys(column, c->low, c->high);
		case GPUVEC_KEY_ANY:
			return c->n == 0 ? none :
				range_of_keys(column, filter->values[c->first],
							  filter->values[c->first + c->n - 1]);
		case GPUVEC_IS_NULL:
			return nulls;
		default:
			return keys;
	}
}

/* True if a range does not tell all about a condition */
static inline bool
needs_set(const gpuvec_condition *c)
{
	return (c->kind == GPUVEC_KEY_ANY && c->n > 1) || c->kind == GPUVEC_KEY_SHARES_BITS ||
		c->kind == GPUVEC_KEY_HAS_BITS || c->kind == GPUVEC_KEY_WITHIN_BITS;
}

/*
 * Intersect the ranges of each column's conditions.  False: no row passes.
 */
static bool
find_ranges(const gpuvec_filter *filter, const gpuvec_segment *segment, code_range *ranges)
{
	for (uint32_t i = 0; i < segment->nfilters; i++)
		ranges[i] = (code_range)
	{
		0, segment->filters[i].nkeys + segment->filters[i].has_nulls
	};
	for (uint32_t i = 0; i < filter->n; i++)
	{
		const gpuvec_condition *c = &filter->conditions[i];
		code_range *mine;
		code_range	range;

		if (c->column == 0)
			continue;
		mine = &ranges[c->column - 1];
		range = range_of(filter, c, &segment->filters[c->column - 1]);
		mine->low = range.low > mine->low ? range.low : mine->low;
		mine->end = range.end < mine->end ? range.end : mine->end;
		if (mine->low >= mine->end)
			return false;
	}
	return true;
}

/* The codes of a list of keys, looked up one by one */
static void
look_up_keys(const gpuvec_filter_column *column, const uint64_t *values, uint32_t n, code_set *set)
{
	for (uint32_t i = 0; i < n; i++)
	{
		uint32_t	code = gpuvec_filter_code(column, values[i]);

		if (code < column->nkeys && column->keys[code] == values[i])
			add_code(set, code);
	}
}

/* The codes of a list of keys, where the lists are of about the same size */
static void
merge_keys(const gpuvec_filter_column *column, const uint64_t *values, uint32_t n, code_set *set)
{
	uint32_t	code = 0;

	for (uint32_t i = 0; i < n && code < column->nkeys;)
	{
		if (column->keys[code] < values[i])
			code++;
		else
		{
			if (column->keys[code] == values[i])
				add_code(set, code++);
			i++;
		}
	}
}

/* The set of codes that satisfy a condition */
static void
fill_set(const gpuvec_filter *filter, const gpuvec_condition *c, const gpuvec_filter_column *column,
		 code_set *set)
{
	if (c->kind != GPUVEC_KEY_ANY)
	{
		for (uint32_t code = 0; code < column->nkeys; code++)
			if (gpuvec_key_passes(c, filter->values, column->keys[code]))
				add_code(set, code);
	}
	else if (c->n < column->nkeys / LOOKUP_KEYS)
		look_up_keys(column, filter->values + c->first, c->n, set);
	else
		merge_keys(column, filter->values + c->first, c->n, set);
}

/* Clear the bits of rows whose codes are not in a table */
static void
mask_by_table(const uint16_t *codes, uint32_t nwords, const uint8_t *table, uint64_t *mask)
{
	for (uint32_t w = 0; w < nwords; w++)
	{
		uint64_t	within = 0;

		if (mask[w] == 0)
			continue;
		for (int i = 0; i < 64; i++)
			within |= (uint64_t) table[codes[(size_t) w * 64 + i]] << i;
		mask[w] &= within;
	}
}

static const mask_by_ranges by_ranges[] = {
	NULL, mask_by_ranges_portable, mask_by_ranges_avx2, mask_by_ranges_avx512
};

static const mask_count counts[] = {
	NULL, mask_count_portable, mask_count_avx2, mask_count_avx512
};

/* Number of a mask's words that have codes */
static inline uint32_t
code_words(const gpuvec_segment *segment)
{
	return (segment->nrows + 63) / 64;
}

/* Apply a condition that a range does not express.  False: out of memory. */
static bool
mask_by_set(const gpuvec_filter *filter, const gpuvec_condition *c, const gpuvec_segment *segment,
			cpu_simd simd, uint64_t *mask)
{
	const gpuvec_filter_column *column = &segment->filters[c->column - 1];
	code_set	set = {.table = calloc(1, GPUVEC_SEGMENT_ROWS)};

	if (set.table == NULL)
		return false;
	fill_set(filter, c, column, &set);
	if (set.nranges > MOST_RANGES)
		mask_by_table(column->codes, code_words(segment), set.table, mask);
	else
		by_ranges[simd] (column->codes, code_words(segment), set.ranges, set.nranges, mask);
	free(set.table);
	return true;
}

/* A mask of the live rows of an entry */
static void
start_mask(const gpuvec_view_entry *entry, uint64_t *mask)
{
	uint32_t	nrows = entry->segment->nrows;

	memset(mask, 0, mask_words(nrows) * sizeof(uint64_t));
	if (entry->live)
	{
		for (uint32_t i = 0; i < entry->live->nwords; i++)
			mask[i / 2] |= (uint64_t) entry->live->bits[i] << (i % 2 * 32);
		return;
	}
	memset(mask, 0xFF, nrows / 64 * sizeof(uint64_t));
	if (nrows % 64 > 0)
		mask[nrows / 64] = (UINT64_C(1) << (nrows % 64)) - 1;
}

/* Clear the bits of rows whose sets are null, or of all others */
static void
mask_null_sets(const gpuvec_segment *segment, bool want_nulls, uint64_t *mask)
{
	for (uint32_t i = 0; i < segment->ntiles; i++)
	{
		uint32_t	nulls = segment->null_sets ? segment->null_sets[i] : 0;

		mask[i / 2] &= ~((uint64_t) (want_nulls ? ~nulls : nulls) << (i % 2 * 32));
	}
}

/*
 * Clear the bits of rows that do not satisfy a condition on their sets.
 * False: out of memory.
 */
static bool
mask_by_match(const gpuvec_filter *filter, const gpuvec_condition *c, const gpuvec_segment *segment,
			  uint64_t *mask)
{
	mask_null_sets(segment, c->kind == GPUVEC_IS_NULL, mask);
	return c->kind != GPUVEC_SET_MATCHES || mask_by_sets(c, filter->values, segment, mask);
}

/* Clear the bits of rows that do not pass.  False: out of memory. */
static bool
apply_filter(const gpuvec_filter *filter, const gpuvec_segment *segment, const code_range *ranges,
			 cpu_simd simd, uint64_t *mask)
{
	for (uint32_t i = 0; i < segment->nfilters; i++)
	{
		const gpuvec_filter_column *column = &segment->filters[i];

		if (ranges[i].low > 0 || ranges[i].end < column->nkeys + column->has_nulls)
			by_ranges[simd] (column->codes, code_words(segment), &ranges[i], 1, mask);
	}
	for (uint32_t i = 0; i < filter->n; i++)
	{
		const gpuvec_condition *c = &filter->conditions[i];

		if (c->column == 0 ? !mask_by_match(filter, c, segment, mask) :
			needs_set(c) && !mask_by_set(filter, c, segment, simd, mask))
			return false;
	}
	return true;
}

bool
filter_entry(const cpu_filter *filter, const gpuvec_view_entry *entry, cpu_simd simd,
			 uint64_t *mask, cpu_passing *passing)
{
	const gpuvec_segment *segment = entry->segment;
	uint32_t	nwords = mask_words(segment->nrows);
	code_range	ranges[GPUVEC_MAX_FILTERS];

	memset(passing, 0, sizeof(*passing));
	if (!find_ranges(&filter->filter, segment, ranges))
		return true;
	start_mask(entry, mask);
	if (!apply_filter(&filter->filter, segment, ranges, simd, mask))
		return false;
	passing->npassed = passing->nrows = counts[simd] (mask, nwords);
	if (segment->null_sets && !filter->wants_null_sets)
	{
		mask_null_sets(segment, false, mask);
		passing->nrows = counts[simd] (mask, nwords);
	}
	if (passing->nrows > 0)
		passing->mask = mask;
	return true;
}
