/*-------------------------------------------------------------------------
 *
 * search_numbers.c
 *	  From the ids of queries and their filters to the numbers of a mirror,
 *	  and from the numbers in answers to ids.
 *
 * A mirror of large ids has numbers in their place (sets/id_numbers.h).
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "core/set_match.h"
#include "engine/serve/search_run.h"

/* True if a query's ids are not what segments hold */
static bool
needs_numbers(const search_run *q, uint32_t i)
{
	return q->wire[i].len > 0 && (q->mirror.id_numbers || (q->wire[i].form & GPUVEC_FORM_WIDE));
}

/* Look up n ids, which numbers[] has, and gets the numbers of */
static void
look_up(const search_run *q, uint32_t *numbers, uint32_t n)
{
	if (q->mirror.id_numbers)
		gpuvec_id_numbers_find(q->mirror.id_numbers, numbers, n, numbers);
	else
		/* all rows are narrow */
		for (uint32_t i = 0; i < n; i++)
			if (numbers[i] > GPUVEC_MAX_ID)
				numbers[i] = GPUVEC_NO_NUMBER;
}

/*
 * Look up the ids of a query, which has room for numbers; ascending.  With
 * `places`, note that of each number's id.
 */
static bool
find_numbers(const search_run *q, uint32_t i, uint32_t *numbers, uint16_t *places,
			 gpuvec_error *error)
{
	const gpuvec_query *wire = &q->wire[i];
	const uint16_t *ids = q->queries[i].ids;
	uint64_t   *room;

	if (wire->form & GPUVEC_FORM_WIDE)
		memcpy(numbers, ids, wire->len * sizeof(uint32_t));
	else
		for (uint32_t j = 0; j < wire->len; j++)
			numbers[j] = ids[j];
	look_up(q, numbers, wire->len);
	if (places == NULL)
	{
		gpuvec_sort_numbers(numbers, wire->len);
		return true;
	}
	room = malloc(2 * (wire->len + (size_t) 1) * sizeof(uint64_t));
	if (room == NULL)
		return gpuvec_fail_memory(error, 2 * wire->len * sizeof(uint64_t));
	gpuvec_sort_numbers_places(numbers, places, wire->len, room);
	free(room);
	return true;
}

/*
 * Divide a query's numbers: hot ones, cold ones, and ids without a number,
 * which only count in its length
 */
static void
divide_numbers(gpuvec_topk_query *query, uint32_t len, const uint32_t *numbers, uint16_t *hot)
{
	uint32_t	n = 0;

	for (; n < len && numbers[n] < GPUVEC_HOT_NUMBERS; n++)
		hot[n] = (uint16_t) numbers[n];
	query->ids = hot;
	query->len = n;
	query->others = len - n;
	query->cold = numbers + n;
	for (; n < len && numbers[n] != GPUVEC_NO_NUMBER; n++)
		query->ncold++;
}

/* Give an expression of ids numbers in place of these */
static void
number_match(const search_run *q, const gpuvec_condition *match, uint64_t *values)
{
	uint32_t	numbers[GPUVEC_MOST_MATCH_IDS];

	for (uint32_t i = 0; i < match->low; i++)
		numbers[i] = (uint32_t) values[i];
	look_up(q, numbers, (uint32_t) match->low);
	for (uint32_t i = 0; i < match->low; i++)
		values[i] = numbers[i];
}

/* The same of all queries' filters.  False: out of memory. */
static bool
number_filters(search_run *q, gpuvec_error *error)
{
	uint64_t	total = 0;
	uint64_t   *values;

	for (uint32_t i = 0; i < q->head.nqueries; i++)
		if (gpuvec_filter_match(&q->queries[i].filter))
			total += q->queries[i].filter.nvalues;
	if (total == 0)
		return true;
	values = q->values = malloc(total * sizeof(uint64_t));
	if (values == NULL)
		return gpuvec_fail_memory(error, total * sizeof(uint64_t));
	for (uint32_t i = 0; i < q->head.nqueries; i++)
	{
		gpuvec_filter *filter = &q->queries[i].filter;
		const gpuvec_condition *match = gpuvec_filter_match(filter);

		if (match == NULL)
			continue;
		memcpy(values, filter->values, filter->nvalues * sizeof(uint64_t));
		number_match(q, match, values + match->first);
		filter->values = values;
		values += filter->nvalues;
	}
	return true;
}

bool
gpuvec_search_number(search_run *q, gpuvec_error *error)
{
	uint64_t	total = 0;

	if (!number_filters(q, error))
		return false;
	for (uint32_t i = 0; i < q->head.nqueries; i++)
		if (needs_numbers(q, i))
			total += q->wire[i].len;
	if (total == 0)
		return true;
	q->numbers = malloc(total * sizeof(uint32_t));
	q->hot = malloc(total * sizeof(uint16_t));
	if (q->scoring.sparse)
		q->places = malloc(total * sizeof(uint16_t));
	if (q->numbers == NULL || q->hot == NULL || (q->scoring.sparse && q->places == NULL))
		return gpuvec_fail_memory(error, total * (sizeof(uint32_t) + 2 * sizeof(uint16_t)));
	total = 0;
	for (uint32_t i = 0; i < q->head.nqueries; i++)
	{
		uint16_t   *places = q->places ? q->places + total : NULL;

		if (!needs_numbers(q, i))
			continue;
		if (!find_numbers(q, i, q->numbers + total, places, error))
			return false;
		q->queries[i].places = places;
		divide_numbers(&q->queries[i], q->wire[i].len, q->numbers + total, q->hot + total);
		total += q->wire[i].len;
	}
	return true;
}

bool
gpuvec_search_groups(const search_run *q, gpuvec_error *error)
{
	gpuvec_groups *found = q->queries[0].groups;

	if (found == NULL)
		return true;
	if (!gpuvec_groups_trim(found, q->queries[0].nmatches))
		return gpuvec_fail_memory(error, found->grouping.most * sizeof(uint64_t));
	return !gpuvec_groups_ids(&found->grouping) || q->mirror.id_numbers == NULL ||
		gpuvec_id_numbers_reverse(q->mirror.id_numbers, found->words + GPUVEC_GROUP_KEYS, found->n,
								  gpuvec_group_words(&found->grouping), error);
}
