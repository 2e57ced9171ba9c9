/*-------------------------------------------------------------------------
 *
 * equal_filters.c
 *	  The different filters of a batch of queries, so that equal ones are
 *	  evaluated once.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/equal_filters.h"

bool
gpuvec_equal_filters_init(gpuvec_equal_filters *equal, uint32_t n)
{
	uint32_t	capacity = 4;

	while (capacity < 2 * (uint64_t) n)
		capacity *= 2;
	equal->n = 0;
	equal->mask = capacity - 1;
	equal->slots = calloc(capacity, sizeof(uint32_t));
	equal->filters = malloc((n + (size_t) 1) * sizeof(*equal->filters));
	return equal->slots != NULL && equal->filters != NULL;
}

void
gpuvec_equal_filters_free(gpuvec_equal_filters *equal)
{
	free(equal->slots);
	free(equal->filters);
}

/* Add words to a hash */
static uint64_t
hash_words(uint64_t hash, const void *from, size_t bytes)
{
	const char *at = from;

	for (size_t i = 0; i < bytes; i += sizeof(uint64_t))
	{
		uint64_t	word;

		memcpy(&word, at + i, sizeof(word));
		hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
		hash ^= hash >> 29;
	}
	return hash;
}

/* Conditions and values are made of whole words */
uint64_t
gpuvec_filter_hash(const gpuvec_filter *filter)
{
	uint64_t	hash = hash_words(filter->n, filter->conditions,
								  filter->n * sizeof(gpuvec_condition));

	return hash_words(hash, filter->values, filter->nvalues * sizeof(uint64_t));
}

bool
gpuvec_same_filter(const gpuvec_filter *a, const gpuvec_filter *b)
{
	return a->n == b->n && a->nvalues == b->nvalues &&
		(a->n == 0 ||
		 memcmp(a->conditions, b->conditions, a->n * sizeof(gpuvec_condition)) == 0) &&
		(a->nvalues == 0 ||
		 memcmp(a->values, b->values, a->nvalues * sizeof(uint64_t)) == 0);
}

uint32_t
gpuvec_equal_filter(gpuvec_equal_filters *equal, const gpuvec_filter *filter)
{
	uint32_t	at = (uint32_t) (gpuvec_filter_hash(filter) >> 32) & equal->mask;

	for (; equal->slots[at] != 0; at = (at + 1) & equal->mask)
		if (gpuvec_same_filter(equal->filters[equal->slots[at] - 1], filter))
			return equal->slots[at] - 1;
	equal->filters[equal->n] = filter;
	equal->slots[at] = ++equal->n;
	return equal->n - 1;
}

uint32_t
gpuvec_queries_with(const gpuvec_topk_query *queries, uint32_t n, size_t most)
{
	gpuvec_equal_filters equal;
	uint32_t	taken = 0;

	if (n <= most || n == 1)
		return n;
	if (gpuvec_equal_filters_init(&equal, n))
		for (; taken < n; taken++)
		{
			if (queries[taken].filter.n > 0)
				(void) gpuvec_equal_filter(&equal, &queries[taken].filter);
			if (equal.n > most)
				break;
		}
	gpuvec_equal_filters_free(&equal);
	return taken > 0 ? taken : 1;
}

bool
gpuvec_wants_null_sets(const gpuvec_filter *filter)
{
	for (uint32_t i = 0; i < filter->n; i++)
		if (filter->conditions[i].column == 0 && filter->conditions[i].kind == GPUVEC_IS_NULL)
			return true;
	return false;
}
