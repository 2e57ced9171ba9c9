/*-------------------------------------------------------------------------
 *
 * test_groups.h
 *	  Groups of counted rows (core/grouping.h) as tests expect them: rows are
 *	  sorted by their keys, and those with the same are a group.  By the ids
 *	  of sets, ids are sorted.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_TEST_GROUPS_H
#define GPUVEC_TEST_GROUPS_H

#include <stdlib.h>
#include <string.h>

#include "engine/groups.h"
#include "unit_test.h"

/* A row that is counted */
typedef struct grouped_row
{
	uint64_t	nulls;			/* bit c: column c is null */
	const uint64_t *keys;		/* that of column c is keys[c - 1] */
	const uint32_t *ids;		/* of its set, as segments have them */
	uint32_t	nids;
} grouped_row;

#define MOST_GROUP_WORDS	(2 + 2 * GPUVEC_MOST_GROUPED)

/* The grouping of what is being sorted */
static const gpuvec_grouping *sorting;

static bool
is_null(const grouped_row *row, int place)
{
	return (row->nulls >> sorting->columns[place] & 1) != 0;
}

static uint64_t
key_of(const grouped_row *row, int place)
{
	return row->keys[sorting->columns[place] - 1];
}

/* By the keys of the columns that rows are grouped by, nulls last */
static int
compare_grouped_rows(const void *a, const void *b)
{
	for (int i = 0; i < sorting->nkeys; i++)
	{
		bool		null_a = is_null(a, i);
		bool		null_b = is_null(b, i);

		if (null_a != null_b)
			return null_a - null_b;
		if (!null_a && key_of(a, i) != key_of(b, i))
			return key_of(a, i) < key_of(b, i) ? -1 : 1;
	}
	return 0;
}

/* The same of groups as they are found */
static int
compare_found_groups(const void *a, const void *b)
{
	const uint64_t *x = a;
	const uint64_t *y = b;

	for (int i = 0; i < sorting->nkeys; i++)
	{
		uint64_t	null_x = x[1] >> i & 1;
		uint64_t	null_y = y[1] >> i & 1;

		if (null_x != null_y)
			return null_x < null_y ? -1 : 1;
		if (x[2 + i] != y[2 + i])
			return x[2 + i] < y[2 + i] ? -1 : 1;
	}
	return 0;
}

/* Write down the group of n rows */
static void
write_group(const grouped_row *rows, uint32_t n, uint64_t *words)
{
	int			nkeys = sorting->nkeys;

	memset(words, 0, MOST_GROUP_WORDS * sizeof(uint64_t));
	words[0] = n;
	for (int i = 0; i < nkeys; i++)
	{
		words[1] |= (uint64_t) is_null(rows, i) << i;
		words[2 + i] = is_null(rows, i) ? 0 : key_of(rows, i);
	}
	for (int v = 0; v < sorting->nvalues; v++)
	{
		uint64_t   *range = words + 2 + nkeys + 2 * v;
		bool		some = false;

		for (uint32_t r = 0; r < n; r++)
		{
			uint64_t	key;

			if (is_null(&rows[r], nkeys + v))
				continue;
			key = key_of(&rows[r], nkeys + v);
			range[0] = !some || key < range[0] ? key : range[0];
			range[1] = !some || key > range[1] ? key : range[1];
			some = true;
		}
		words[1] |= (uint64_t) !some << (nkeys + v);
	}
}

/* The rows from `from` on, of n that are sorted, that are of the same group */
static uint32_t
end_of_group(const grouped_row *rows, uint32_t n, uint32_t from)
{
	uint32_t	end = from + 1;

	while (end < n && compare_grouped_rows(&rows[from], &rows[end]) == 0)
		end++;
	return end;
}

static int
compare_ids(const void *a, const void *b)
{
	uint32_t	x = *(const uint32_t *) a;
	uint32_t	y = *(const uint32_t *) b;

	return x < y ? -1 : x > y;
}

/* The ids of n rows, sorted; malloc'd */
static uint32_t *
sorted_ids(const grouped_row *rows, uint32_t n, size_t *nids)
{
	uint32_t   *ids;
	size_t		at = 0;

	*nids = 0;
	for (uint32_t i = 0; i < n; i++)
		*nids += rows[i].nids;
	ids = malloc((*nids + 1) * sizeof(*ids));
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t j = 0; j < rows[i].nids; j++)
			ids[at++] = rows[i].ids[j];
	qsort(ids, *nids, sizeof(*ids), compare_ids);
	return ids;
}

/* How many different ids n rows have */
static uint32_t
count_ids(const grouped_row *rows, uint32_t n)
{
	uint32_t	ngroups = 0;
	size_t		nids;
	uint32_t   *ids = sorted_ids(rows, n, &nids);

	for (size_t i = 0; i < nids; i++)
		ngroups += i == 0 || ids[i] != ids[i - 1];
	free(ids);
	return ngroups;
}

/* How many groups these rows are; sorts them */
static uint32_t
count_groups(const gpuvec_grouping *grouping, grouped_row *rows, uint32_t n)
{
	uint32_t	ngroups = 0;

	if (gpuvec_groups_ids(grouping))
		return count_ids(rows, n);
	sorting = grouping;
	qsort(rows, n, sizeof(*rows), compare_grouped_rows);
	for (uint32_t from = 0; from < n; from = end_of_group(rows, n, from))
		ngroups++;
	return ngroups;
}

/* The same by ids: has each one as many rows as a sorted list has it? */
static bool
right_ids(const gpuvec_groups *found, const uint32_t *ids, size_t n)
{
	static const gpuvec_grouping by_key = {.nkeys = 1,.columns = {1}};
	uint32_t	at = 0;

	sorting = &by_key;
	qsort(found->words, found->n, 3 * sizeof(uint64_t), compare_found_groups);
	for (size_t from = 0, end; from < n; from = end, at++)
	{
		const uint64_t *words = found->words + (size_t) at * 3;

		for (end = from; end < n && ids[end] == ids[from];)
			end++;
		if (at == found->n || words[0] != end - from || words[1] != 0 || words[2] != ids[from])
			return false;
	}
	return at == found->n;
}

/* Are these the groups of the ids of n rows? */
static bool
right_id_groups(const gpuvec_grouping *grouping, const gpuvec_groups *found,
				const grouped_row *rows, uint32_t n)
{
	size_t		nids;
	uint32_t   *ids = sorted_ids(rows, n, &nids);
	bool		right = found == NULL ? nids == 0 :
		!found->too_many && memcmp(&found->grouping, grouping, sizeof(*grouping)) == 0 &&
		right_ids(found, ids, nids);

	free(ids);
	return right;
}

/*
 * Are these the groups of n rows?  None are there if there is no row.  Sorts
 * both.
 */
static bool
right_groups(const gpuvec_grouping *grouping, const gpuvec_groups *found, grouped_row *rows,
			 uint32_t n)
{
	uint32_t	width = 2 + grouping->nkeys + 2u * grouping->nvalues;
	uint32_t	ngroups = count_groups(grouping, rows, n);
	uint32_t	at = 0;

	if (gpuvec_groups_ids(grouping))
		return right_id_groups(grouping, found, rows, n);
	if (n == 0 || found == NULL)
		return n == 0 && (found == NULL || found->n == 0);
	if (found->n != ngroups || found->too_many ||
		memcmp(&found->grouping, grouping, sizeof(*grouping)) != 0)
		return false;
	qsort(found->words, ngroups, width * sizeof(uint64_t), compare_found_groups);
	for (uint32_t from = 0; from < n; at++)
	{
		uint32_t	end = end_of_group(rows, n, from);
		uint64_t	words[MOST_GROUP_WORDS];

		write_group(&rows[from], end - from, words);
		if (memcmp(words, found->words + (size_t) at * width, width * sizeof(uint64_t)) != 0)
			return false;
		from = end;
	}
	return true;
}

/* A random grouping by ids, or by some of these columns, one maybe twice */
static void
random_grouping(uint32_t nfilters, gpuvec_grouping *grouping)
{
	memset(grouping, 0, sizeof(*grouping));
	if (nfilters == 0 || random_below(3) == 0)
	{
		grouping->nkeys = 1;
		grouping->columns[0] = GPUVEC_GROUPED_IDS;
		return;
	}
	grouping->nkeys = (uint8_t) random_below(4);
	grouping->nvalues = (uint8_t) (grouping->nkeys == 0 ? 1 + random_below(3) : random_below(4));
	for (int i = 0; i < grouping->nkeys + grouping->nvalues; i++)
		grouping->columns[i] = (uint8_t) (1 + random_below(nfilters));
}

#endif							/* GPUVEC_TEST_GROUPS_H */
