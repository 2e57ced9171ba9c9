/*-------------------------------------------------------------------------
 *
 * filter.h
 *	  Filter columns: conditions on rows, besides the set that is searched.
 *
 * A mirror may have filter columns, at most GPUVEC_MAX_FILTERS.  Each value
 * is a key of 64 bits, which the session makes
 * (mirror/describe/filter_key.c).  Keys of an ordered type are in the order
 * of its values, as unsigned numbers.  Different values of some types may
 * have equal keys: then the session checks the rows that are found once more.
 * The engine knows keys only.
 *
 * A row of such a mirror has filter keys: the first has a bit for each column
 * that is null, the others are the keys of the filter columns, in order.  The
 * key of a null is 0.  Column 0 is the set itself, which has no key.
 *
 * Such a mirror also has the rows whose sets are null, as rows without ids.
 * They are no answer to any search, unless its filter says IS_NULL of column
 * 0.  But they count among the rows that pass a filter.
 *
 * A filter is a list of conditions that must all hold, at most one of which
 * is a boolean expression of the ids of the set (core/set_match.h).  Without
 * filter columns there are no filter keys, and rows with null sets are in no
 * mirror.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_FILTER_H
#define GPUVEC_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/measure.h"

#define GPUVEC_MAX_FILTERS		15

/* Most conditions of a query, and most values of all its conditions */
#define GPUVEC_MAX_CONDITIONS	64
#define GPUVEC_MAX_FILTER_VALUES	65536

/* Number of rows that pass, of a search without a filter */
#define GPUVEC_NOT_COUNTED		(UINT64_MAX >> 1)

/* Filter keys of a row in a mirror with nfilters filter columns */
#define gpuvec_filter_keys(nfilters)	((nfilters) > 0 ? (nfilters) + 1 : 0)
#define gpuvec_filter_bytes(nfilters) \
	((size_t) gpuvec_filter_keys(nfilters) * sizeof(uint64_t))

typedef enum gpuvec_condition_kind
{
	GPUVEC_KEY_BETWEEN = 1,		/* low <= key <= high */
	GPUVEC_KEY_ANY,				/* the key is one of the values */
	GPUVEC_KEY_SHARES_BITS,		/* key & low != 0 */
	GPUVEC_KEY_HAS_BITS,		/* all bits of low are in the key */
	GPUVEC_KEY_WITHIN_BITS,		/* all bits of the key are in low */
	GPUVEC_IS_NULL,
	GPUVEC_IS_NOT_NULL,			/* the others do not hold for a null, either */
	GPUVEC_SET_MATCHES			/* the set matches an expression */
} gpuvec_condition_kind;

#define GPUVEC_LAST_CONDITION	GPUVEC_SET_MATCHES

/* A condition, also as it is sent */
typedef struct gpuvec_condition
{
	uint32_t	column;			/* 0: the set, only IS_NULL, IS_NOT_NULL and
								 * SET_MATCHES; 1 .. number of filter
								 * columns */
	uint32_t	kind;			/* gpuvec_condition_kind */
	uint32_t	first;			/* KEY_ANY: values[first .. first + n - 1] of
								 * the filter, ascending and distinct;
								 * SET_MATCHES: the expression */
	uint32_t	n;				/* 0 of other kinds */
	uint64_t	low;			/* 0 if not used; SET_MATCHES: how many of the
								 * values are ids */
	uint64_t	high;
} gpuvec_condition;

typedef struct gpuvec_filter
{
	uint32_t	n;				/* 0: all rows pass */
	uint32_t	nvalues;
	const gpuvec_condition *conditions;
	const uint64_t *values;		/* [nvalues] */
} gpuvec_filter;

/* The first of n ascending keys that is at least `key`; n if there is none */
static inline GPUVEC_HD uint32_t
gpuvec_first_key(const uint64_t *keys, uint32_t n, uint64_t key)
{
	uint32_t	low = 0;

	while (n > 0)
	{
		uint32_t	half = n / 2;

		if (keys[low + half] < key)
		{
			low += half + 1;
			n -= half + 1;
		}
		else
			n = half;
	}
	return low;
}

/* True if a key that is not null satisfies a condition */
static inline GPUVEC_HD bool
gpuvec_key_passes(const gpuvec_condition *c, const uint64_t *values, uint64_t key)
{
	switch (c->kind)
	{
		case GPUVEC_KEY_BETWEEN:
			return key >= c->low && key <= c->high;
		case GPUVEC_KEY_ANY:
			return c->n > 0 && key <= values[c->first + c->n - 1] &&
				values[c->first + gpuvec_first_key(values + c->first, c->n, key)] == key;
		case GPUVEC_KEY_SHARES_BITS:
			return (key & c->low) != 0;
		case GPUVEC_KEY_HAS_BITS:
			return (key & c->low) == c->low;
		case GPUVEC_KEY_WITHIN_BITS:
			return (key & ~c->low) == 0;
		case GPUVEC_IS_NOT_NULL:
		case GPUVEC_SET_MATCHES:	/* gpuvec_ids_match() knows */
			return true;
		default:
			return false;
	}
}

/* The condition of a filter that is an expression of ids, or NULL */
static inline const gpuvec_condition *
gpuvec_filter_match(const gpuvec_filter *filter)
{
	for (uint32_t i = 0; i < filter->n; i++)
		if (filter->conditions[i].kind == GPUVEC_SET_MATCHES)
			return &filter->conditions[i];
	return NULL;
}

/*
 * True if a row with these filter keys passes the filter, but for an
 * expression of ids, of which only the set must not be null
 */
static inline GPUVEC_HD bool
gpuvec_filter_passes(const gpuvec_filter *filter, const uint64_t *filter_keys)
{
	for (uint32_t i = 0; i < filter->n; i++)
	{
		const gpuvec_condition *c = &filter->conditions[i];
		bool		null = (filter_keys[0] >> c->column & 1) != 0;

		if (c->kind == GPUVEC_IS_NULL ? !null :
			null || !gpuvec_key_passes(c, filter->values, c->column == 0 ? 0 : filter_keys[c->column]))
			return false;
	}
	return true;
}

#endif							/* GPUVEC_FILTER_H */
