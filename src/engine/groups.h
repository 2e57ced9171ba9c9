/*-------------------------------------------------------------------------
 *
 * groups.h
 *	  Groups of the rows that a search counts (core/grouping.h).
 *
 * A backend counts the rows of a segment in bins, one for each combination of
 * codes of the columns that rows are grouped by (engine/filter_column.h).
 * Then the bins of all segments become groups, by their keys.
 *
 * The ids of sets are counted by their numbers, which are the keys that
 * backends give groups.  Numbers are those of a mirror, not of a segment.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_GROUPS_H
#define GPUVEC_GROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/grouping.h"
#include "engine/filter_column.h"

#ifdef __cplusplus
extern "C"
{
#endif

/* Words that the bins of a segment have at most */
#define GPUVEC_MOST_BIN_WORDS	(UINT32_C(1) << 20)

typedef struct gpuvec_groups
{
	gpuvec_grouping grouping;
	uint32_t	n;
	uint32_t	next;			/* the group behind the one that was added to
								 * last */
	uint32_t	capacity;
	bool		too_many;		/* there are more than gpuvec_most_groups():
								 * what is here means nothing */
	uint64_t   *words;			/* [n * gpuvec_group_words()] */
	uint32_t	nslots;			/* groups that are in the hash table: the
								 * first ones */
	uint32_t   *slots;			/* hash table of groups' numbers + 1; NULL: to
								 * be made */
	uint32_t	mask;			/* its size - 1 */
} gpuvec_groups;

static inline size_t
gpuvec_groups_bytes(const gpuvec_groups *groups)
{
	return (size_t) groups->n * gpuvec_group_words(&groups->grouping) * sizeof(uint64_t);
}

/* NULL: out of memory.  The caller frees it; NULL may be freed, too. */
extern gpuvec_groups *gpuvec_groups_new(const gpuvec_grouping *grouping);
extern void gpuvec_groups_free(gpuvec_groups *groups);

/*
 * Add a group, or the rows of one that is there.  False: out of memory.  Of
 * too many nothing is added.
 */
extern bool gpuvec_groups_add(gpuvec_groups *groups, const uint64_t *group);

/* The same of a group that is not there, as the caller knows */
extern bool gpuvec_groups_append(gpuvec_groups *groups, const uint64_t *group);

/*
 * Add groups of the ids first .. first + n - 1, by their numbers: counts[i] is
 * the rows of number first + i; 0: there is no such group.  False: out of
 * memory.
 */
extern bool gpuvec_groups_add_ids(gpuvec_groups *groups, uint32_t first, const uint32_t *counts,
								  uint32_t n);

/*
 * Drop the groups that cannot be among those with the most rows which are
 * wanted, if `others` more rows may be counted, each of which is in a group
 * once at most.  False: out of memory.
 */
extern bool gpuvec_groups_trim(gpuvec_groups *groups, uint64_t others);

/*
 * Add all groups of others, of the same grouping, to those at *to; *from is
 * freed.  NULL: there are none.  False: out of memory.
 */
extern bool gpuvec_groups_unite(gpuvec_groups **to, gpuvec_groups **from);

/*
 * How many bins a segment with these filter columns has; 0 if they have more
 * than GPUVEC_MOST_BIN_WORDS.  The bin of a row is
 *
 *		((code_1 * size_2) + code_2) * size_3 + ...
 *
 * where code_i is its code of the i-th column of keys, and size_i the number
 * of that column's codes, gpuvec_bin_codes().
 */
extern uint32_t gpuvec_group_bins(const gpuvec_grouping *grouping,
								  const gpuvec_filter_column *filters);

/* The codes that rows of a segment have in a column: that of a null is last */
static inline uint32_t
gpuvec_bin_codes(const gpuvec_filter_column *column)
{
	return column->nkeys + column->has_nulls;
}

/*
 * What is counted in nbins bins: uint32_t rows[nbins], then for each column of
 * values the least code[nbins] and the greatest code[nbins] of rows that are
 * not null.  If there are none, the least is UINT32_MAX, and the greatest 0.
 */
static inline size_t
gpuvec_bin_words(const gpuvec_grouping *grouping, uint32_t nbins)
{
	return (size_t) nbins * (1 + 2 * (size_t) grouping->nvalues);
}

/*
 * Add rows of a segment, one by one: row first + i if bit i is set.  False:
 * out of memory.
 */
extern bool gpuvec_groups_add_rows(gpuvec_groups *groups, const gpuvec_filter_column *filters,
								   uint32_t first, uint64_t bits);

/* Add the bins of a segment.  False: out of memory. */
extern bool gpuvec_groups_add_bins(gpuvec_groups *groups, const gpuvec_filter_column *filters,
								   const uint32_t *bins, uint32_t nbins);

#ifdef __cplusplus
}
#endif

#endif							/* GPUVEC_GROUPS_H */
