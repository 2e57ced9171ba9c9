/*-------------------------------------------------------------------------
 *
 * groups.c
 *	  Groups of the rows that a search counts.
 *
 * A hash table with open addressing, by the keys of groups, which users choose
 * (core/hash_secret.h).  Segments have their keys in ascending order, most of
 * them the same ones.  So a group is often the one behind the last group.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "core/hash_secret.h"
#include "engine/groups.h"

#define FIRST_CAPACITY	64

/* Groups that are looked at before the hash table is */
#define GROUPS_AHEAD	4

gpuvec_groups *
gpuvec_groups_new(const gpuvec_grouping *grouping)
{
	gpuvec_groups *groups = calloc(1, sizeof(*groups));

	if (groups == NULL)
		return NULL;
	groups->grouping = *grouping;
	groups->capacity = FIRST_CAPACITY;
	groups->words = malloc(FIRST_CAPACITY * gpuvec_group_words(grouping) * sizeof(uint64_t));
	if (groups->words == NULL)
	{
		gpuvec_groups_free(groups);
		return NULL;
	}
	return groups;
}

void
gpuvec_groups_free(gpuvec_groups *groups)
{
	if (groups == NULL)
		return;
	free(groups->words);
	free(groups->slots);
	free(groups);
}

static inline uint64_t *
group_at(const gpuvec_groups *groups, uint32_t number)
{
	return groups->words + (size_t) number * gpuvec_group_words(&groups->grouping);
}

/* The bits of `nulls` that belong to columns of keys */
static inline uint64_t
key_nulls(const gpuvec_groups *groups, const uint64_t *group)
{
	return group[GPUVEC_GROUP_NULLS] & ((UINT64_C(1) << groups->grouping.nkeys) - 1);
}

static bool
same_keys(const gpuvec_groups *groups, const uint64_t *a, const uint64_t *b)
{
	if (key_nulls(groups, a) != key_nulls(groups, b))
		return false;
	for (int i = 0; i < groups->grouping.nkeys; i++)
		if (a[GPUVEC_GROUP_KEYS + i] != b[GPUVEC_GROUP_KEYS + i])
			return false;
	return true;
}

/* The slot of a group with these keys, or the free one that it would have */
static uint32_t *
find_slot(const gpuvec_groups *groups, const uint64_t *group)
{
	uint64_t	hash = key_nulls(groups, group);
	uint32_t	at;

	for (int i = 0; i < groups->grouping.nkeys; i++)
		hash = gpuvec_secret_hash((int64_t) (hash ^ group[GPUVEC_GROUP_KEYS + i]));
	for (at = (uint32_t) hash & groups->mask; groups->slots[at] != 0; at = (at + 1) & groups->mask)
		if (same_keys(groups, group_at(groups, groups->slots[at] - 1), group))
			break;
	return &groups->slots[at];
}

/* Have all groups in the hash table.  False: out of memory. */
static bool
fill_slots(gpuvec_groups *groups)
{
	if (groups->slots == NULL)
	{
		groups->mask = 2 * groups->capacity - 1;
		groups->slots = calloc(2 * (size_t) groups->capacity, sizeof(uint32_t));
		groups->nslots = 0;
	}
	if (groups->slots == NULL)
		return false;
	for (; groups->nslots < groups->n; groups->nslots++)
		*find_slot(groups, group_at(groups, groups->nslots)) = groups->nslots + 1;
	return true;
}

/* Make room for n more groups.  False: out of memory. */
static bool
grow(gpuvec_groups *groups, uint32_t n)
{
	uint32_t	capacity = groups->capacity;
	uint64_t   *words;

	while (capacity < groups->n + n)
		capacity *= 2;
	if (capacity == groups->capacity)
		return true;
	words = realloc(groups->words, capacity * gpuvec_group_words(&groups->grouping) * sizeof(uint64_t));
	if (words == NULL)
		return false;
	groups->words = words;
	groups->capacity = capacity;
	free(groups->slots);
	groups->slots = NULL;
	return true;
}

/* Add the rows of a group to those of another with its keys */
static void
unite_group(const gpuvec_groups *groups, uint64_t *to, const uint64_t *from)
{
	int			nkeys = groups->grouping.nkeys;

	to[GPUVEC_GROUP_ROWS] += from[GPUVEC_GROUP_ROWS];
	for (int i = 0; i < groups->grouping.nvalues; i++)
	{
		uint64_t	null = UINT64_C(1) << (nkeys + i);
		uint64_t   *low = to + GPUVEC_GROUP_KEYS + nkeys + 2 * i;
		const uint64_t *other = from + GPUVEC_GROUP_KEYS + nkeys + 2 * i;

		if (from[GPUVEC_GROUP_NULLS] & null)
			continue;
		if ((to[GPUVEC_GROUP_NULLS] & null) || other[0] < low[0])
			low[0] = other[0];
		if ((to[GPUVEC_GROUP_NULLS] & null) || other[1] > low[1])
			low[1] = other[1];
		to[GPUVEC_GROUP_NULLS] &= ~null;
	}
}

/* The number of a group with these keys, one of the next ones; or groups->n */
static uint32_t
find_ahead(const gpuvec_groups *groups, const uint64_t *group)
{
	uint32_t	last = groups->next + GROUPS_AHEAD < groups->n ? groups->next + GROUPS_AHEAD : groups->n;

	for (uint32_t i = groups->next; i < last; i++)
		if (same_keys(groups, group_at(groups, i), group))
			return i;
	return groups->n;
}

bool
gpuvec_groups_append(gpuvec_groups *groups, const uint64_t *group)
{
	groups->too_many |= groups->n == gpuvec_most_groups(&groups->grouping);
	if (groups->too_many)
		return true;
	if (!grow(groups, 1))
		return false;
	memcpy(group_at(groups, groups->n), group,
		   gpuvec_group_words(&groups->grouping) * sizeof(uint64_t));
	groups->n++;
	return true;
}

bool
gpuvec_groups_add(gpuvec_groups *groups, const uint64_t *group)
{
	uint32_t	number = find_ahead(groups, group);
	uint32_t   *slots;
	uint32_t   *slot = NULL;

	if (number == groups->n)
	{
		if (!fill_slots(groups))
			return false;
		slot = find_slot(groups, group);
		number = *slot != 0 ? *slot - 1 : groups->n;
	}
	groups->next = number + 1;
	if (number < groups->n)
	{
		unite_group(groups, group_at(groups, number), group);
		return true;
	}
	slots = groups->slots;
	if (!gpuvec_groups_append(groups, group))
		return false;
	/* unless there are too many, or another hash table is to be made */
	if (groups->n > number && groups->slots == slots)
		*slot = groups->nslots = groups->n;
	return true;
}

/* gpuvec_groups_add_ids() where there are no groups yet */
static bool
append_ids(gpuvec_groups *groups, uint32_t first, const uint32_t *counts, uint32_t n)
{
	uint64_t   *to;
	uint32_t	there = 0;

	for (uint32_t i = 0; i < n; i++)
		there += counts[i] != 0;
	groups->too_many = there > gpuvec_most_groups(&groups->grouping);
	if (groups->too_many)
		return true;
	if (!grow(groups, there))
		return false;
	to = groups->words;
	for (uint32_t i = 0; i < n; i++)
		if (counts[i] != 0)
		{
			*to++ = counts[i];
			*to++ = 0;
			*to++ = first + i;
		}
	groups->n = there;
	return true;
}

bool
gpuvec_groups_add_ids(gpuvec_groups *groups, uint32_t first, const uint32_t *counts, uint32_t n)
{
	if (groups->n == 0)
		return append_ids(groups, first, counts, n);
	for (uint32_t i = 0; i < n && !groups->too_many; i++)
	{
		const uint64_t group[] = {counts[i], 0, first + i};

		if (counts[i] != 0 && !gpuvec_groups_add(groups, group))
			return false;
	}
	return true;
}

/* Put a value in place of the least one of a heap */
static void
replace_least(uint64_t *heap, uint32_t n, uint64_t value)
{
	uint32_t	at = 0;

	for (;;)
	{
		uint32_t	child = 2 * at + 1;

		if (child + 1 < n && heap[child + 1] < heap[child])
			child++;
		if (child >= n || value <= heap[child])
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = value;
}

bool
gpuvec_groups_trim(gpuvec_groups *groups, uint64_t others)
{
	uint32_t	most = groups->grouping.most;
	size_t		bytes = gpuvec_group_words(&groups->grouping) * sizeof(uint64_t);
	uint64_t   *heap;			/* the rows of those with the most */
	uint64_t	least;
	uint32_t	n = 0;

	if (most == 0 || most >= groups->n)
		return true;
	heap = calloc(most, sizeof(uint64_t));
	if (heap == NULL)
		return false;
	for (uint32_t i = 0; i < groups->n; i++)
		if (group_at(groups, i)[GPUVEC_GROUP_ROWS] > heap[0])
			replace_least(heap, most, group_at(groups, i)[GPUVEC_GROUP_ROWS]);
	least = heap[0];
	free(heap);
	/* as many groups as are wanted will have at least as many rows */
	for (uint32_t i = 0; i < groups->n; i++)
		if (group_at(groups, i)[GPUVEC_GROUP_ROWS] + others >= least)
			memmove(group_at(groups, n++), group_at(groups, i), bytes);
	groups->n = n;
	return true;
}

bool
gpuvec_groups_unite(gpuvec_groups **to, gpuvec_groups **from)
{
	bool		ok = true;

	if (*to == NULL)
	{
		*to = *from;
		*from = NULL;
	}
	else if (*from != NULL)
	{
		(*to)->too_many |= (*from)->too_many;
		for (uint32_t i = 0; i < (*from)->n && ok && !(*to)->too_many; i++)
			ok = gpuvec_groups_add(*to, group_at(*from, i));
		gpuvec_groups_free(*from);
		*from = NULL;
	}
	return ok;
}

uint32_t
gpuvec_group_bins(const gpuvec_grouping *grouping, const gpuvec_filter_column *filters)
{
	uint64_t	bins = 1;

	for (int i = 0; i < grouping->nkeys; i++)
	{
		bins *= gpuvec_bin_codes(&filters[grouping->columns[i] - 1]);
		if (bins * (1 + 2 * (uint64_t) grouping->nvalues) > GPUVEC_MOST_BIN_WORDS)
			return 0;
	}
	return (uint32_t) bins;
}

/* Set a key of a group by its code */
static void
set_key(const gpuvec_filter_column *column, uint32_t code, int place, uint64_t *group)
{
	if (code == column->nkeys)
		group[GPUVEC_GROUP_NULLS] |= UINT64_C(1) << place;
	else
		group[GPUVEC_GROUP_KEYS + place] = column->keys[code];
}

/* Find the keys of a bin */
static void
read_keys(const gpuvec_grouping *grouping, const gpuvec_filter_column *filters, uint32_t bin,
		  uint64_t *group)
{
	for (int i = grouping->nkeys - 1; i >= 0; i--)
	{
		const gpuvec_filter_column *column = &filters[grouping->columns[i] - 1];

		set_key(column, bin % gpuvec_bin_codes(column), i, group);
		bin /= gpuvec_bin_codes(column);
	}
}

/* Find the least and the greatest keys of a bin */
static void
read_values(const gpuvec_grouping *grouping, const gpuvec_filter_column *filters,
			const uint32_t *bins, uint32_t nbins, uint32_t bin, uint64_t *group)
{
	for (int i = 0; i < grouping->nvalues; i++)
	{
		int			place = grouping->nkeys + i;
		const gpuvec_filter_column *column = &filters[grouping->columns[place] - 1];
		const uint32_t *low = bins + (1 + 2 * (size_t) i) * nbins;
		uint64_t   *range = group + GPUVEC_GROUP_KEYS + grouping->nkeys + 2 * i;

		if (low[bin] == UINT32_MAX)
		{
			group[GPUVEC_GROUP_NULLS] |= UINT64_C(1) << place;
			continue;
		}
		range[0] = column->keys[low[bin]];
		range[1] = column->keys[low[nbins + bin]];
	}
}

/* Add a row of a segment.  False: out of memory. */
static bool
add_row(gpuvec_groups *groups, const gpuvec_filter_column *filters, uint32_t row)
{
	const gpuvec_grouping *grouping = &groups->grouping;
	uint64_t	group[GPUVEC_GROUP_KEYS + 2 * GPUVEC_MOST_GROUPED] = {1};

	for (int i = 0; i < grouping->nkeys + grouping->nvalues; i++)
	{
		const gpuvec_filter_column *column = &filters[grouping->columns[i] - 1];
		uint32_t	code = column->codes[row];
		uint64_t   *range = group + GPUVEC_GROUP_KEYS + grouping->nkeys +
			2 * (i - grouping->nkeys);

		if (i < grouping->nkeys)
			set_key(column, code, i, group);
		else if (code == column->nkeys)
			group[GPUVEC_GROUP_NULLS] |= UINT64_C(1) << i;
		else
			range[0] = range[1] = column->keys[code];
	}
	return gpuvec_groups_add(groups, group);
}

bool
gpuvec_groups_add_rows(gpuvec_groups *groups, const gpuvec_filter_column *filters, uint32_t first,
					   uint64_t bits)
{
	for (; bits != 0 && !groups->too_many; bits &= bits - 1)
		if (!add_row(groups, filters, first + (uint32_t) __builtin_ctzll(bits)))
			return false;
	return true;
}

bool
gpuvec_groups_add_bins(gpuvec_groups *groups, const gpuvec_filter_column *filters,
					   const uint32_t *bins, uint32_t nbins)
{
	const gpuvec_grouping *grouping = &groups->grouping;
	uint64_t	group[GPUVEC_GROUP_KEYS + 2 * GPUVEC_MOST_GROUPED];

	for (uint32_t bin = 0; bin < nbins && !groups->too_many; bin++)
	{
		if (bins[bin] == 0)
			continue;
		memset(group, 0, gpuvec_group_words(grouping) * sizeof(uint64_t));
		group[GPUVEC_GROUP_ROWS] = bins[bin];
		read_keys(grouping, filters, bin, group);
		read_values(grouping, filters, bins, nbins, bin, group);
		if (!gpuvec_groups_add(groups, group))
			return false;
	}
	return true;
}
