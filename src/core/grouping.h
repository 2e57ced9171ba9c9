/*-------------------------------------------------------------------------
 *
 * grouping.h
 *	  How rows that are counted are put into groups: by filter columns, or by
 *	  the ids of their sets.
 *
 * Rows are of one group if their keys of some columns are equal, null or not.
 * Of other columns a group has the least and the greatest key.
 *
 * By the ids of sets, a row is in a group for each of its ids, which is the
 * key; in none if it has no ids.
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

/* More groups are not made: of columns, and of ids */
#define GPUVEC_MOST_GROUPS		100000
#define GPUVEC_MOST_ID_GROUPS	(UINT32_C(1) << 20)

/* In place of the only column of keys, without values: the ids of sets */
#define GPUVEC_GROUPED_IDS		255

typedef struct gpuvec_grouping
{
	uint8_t		nkeys;			/* columns that rows are grouped by */
	uint8_t		nvalues;		/* columns of which the least and the greatest
								 * keys are wanted */
	uint8_t		columns[GPUVEC_MOST_GROUPED];	/* 1 .. number of filter
												 * columns: those of keys,
												 * then those of values */
	uint32_t	most;			/* as many groups with the most rows are
								 * wanted, counted and not; groups that cannot
								 * be among these may be missing.  0: all are
								 * wanted. */
	uint32_t	padding;
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

static inline bool
gpuvec_groups_ids(const gpuvec_grouping *grouping)
{
	return grouping->nkeys == 1 && grouping->columns[0] == GPUVEC_GROUPED_IDS;
}

static inline uint32_t
gpuvec_most_groups(const gpuvec_grouping *grouping)
{
	return gpuvec_groups_ids(grouping) ? GPUVEC_MOST_ID_GROUPS : GPUVEC_MOST_GROUPS;
}

/* True if a grouping is one of a mirror with nfilters filter columns */
static inline bool
gpuvec_grouping_valid(const gpuvec_grouping *grouping, uint32_t nfilters)
{
	int			n = grouping->nkeys + grouping->nvalues;

	if (n < 1 || n > GPUVEC_MOST_GROUPED)
		return false;
	if (gpuvec_groups_ids(grouping))
		return grouping->nvalues == 0;
	for (int i = 0; i < n; i++)
		if (grouping->columns[i] < 1 || grouping->columns[i] > nfilters)
			return false;
	return true;
}

#endif							/* GPUVEC_GROUPING_H */
