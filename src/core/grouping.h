/*-------------------------------------------------------------------------
 *
 * grouping.h
 *	  How rows that are counted are put into groups, by filter columns.
 *
 * Rows are of one group if their keys of some columns are equal, null or not.
 * Of other columns a group has the least and the greatest key.
 *
 * A group is an array of words, also as it is sent:
 *
 *		rows				how many rows the group has; not 0
 *		nulls				bit i: column i of the grouping is null; of a
 *							column with a least key: it is null in all rows
 *		keys[nkeys]			0 of a null
 *		low, high			of each of the other columns; 0 if all are null
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_GROUPING_H
#define GPUVEC_GROUPING_H

#include <stdbool.h>
#include <stdint.h>

#include "core/filter.h"

#define GPUVEC_MOST_GROUPED		14

/* More groups are not made */
#define GPUVEC_MOST_GROUPS		100000

typedef struct gpuvec_grouping
{
	uint8_t		nkeys;			/* columns that rows are grouped by */
	uint8_t		nvalues;		/* columns of which the least and the greatest
								 * keys are wanted */
	uint8_t		columns[GPUVEC_MOST_GROUPED];	/* 1 .. number of filter
												 * columns: those of keys,
												 * then those of values */
} gpuvec_grouping;

/* Where words of a group begin */
#define GPUVEC_GROUP_ROWS		0
#define GPUVEC_GROUP_NULLS		1
#define GPUVEC_GROUP_KEYS		2

static inline uint32_t
gpuvec_group_words(const gpuvec_grouping *grouping)
{
	return GPUVEC_GROUP_KEYS + grouping->nkeys + 2 * (uint32_t) grouping->nvalues;
}

/* True if a grouping is one of a mirror with nfilters filter columns */
static inline bool
gpuvec_grouping_valid(const gpuvec_grouping *grouping, uint32_t nfilters)
{
	int			n = grouping->nkeys + grouping->nvalues;

	if (n < 1 || n > GPUVEC_MOST_GROUPED)
		return false;
	for (int i = 0; i < n; i++)
		if (grouping->columns[i] < 1 || grouping->columns[i] > nfilters)
			return false;
	return true;
}

#endif							/* GPUVEC_GROUPING_H */
