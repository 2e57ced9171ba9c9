/*-------------------------------------------------------------------------
 *
 * search_numbers.c
 *	  Turns the ids of queries into numbers of a mirror.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/host_memory.h"
#include "engine/serve/search_run.h"

/* True if a query's ids are not what segments hold */
static bool
needs_numbers(const search_run *q, uint32_t i)
{
	return q->wire[i].len > 0 && (q->mirror.id_numbers || (q->wire[i].form & GPUVEC_FORM_WIDE));
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
	if (q->mirror.id_numbers)
		gpuvec_id_numbers_find(q->mirror.id_numbers, numbers, wire->len, numbers);
	else
		/* all rows are narrow */
		for (uint32_t j = 0; j < wire->len; j++)
			if (numbers[j] > GPUVEC_MAX_ID)
				numbers[j] = GPUVEC_NO_NUMBER;
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

bool
gpuvec_search_number(search_run *q, gpuvec_error *error)
{
	uint64_t	total = 0;

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
