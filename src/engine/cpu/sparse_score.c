/*-------------------------------------------------------------------------
 *
 * sparse_score.c
 *	  Scores of rows by measures of sparse vectors.
 *
 * A score is a sum of float8 in ascending order of ids (core/sparse.h).  A
 * row has numbers, in their own order, and cold ones apart.  So what it shares
 * with the query is noted by the places of the query's ids, one bit for each.
 * Then the bits are walked through.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "engine/cpu/scan_lone.h"
#include "engine/cpu/sparse_rows.h"

sparse_scratch *
sparse_scratch_of(cpu_backend *cpu, int thread)
{
	if (cpu->sparse[thread] == NULL)
		cpu->sparse[thread] = calloc(1, sizeof(sparse_scratch));
	return cpu->sparse[thread];
}

void
sparse_begin(sparse_scratch *scratch, const cpu_query *query)
{
	const gpuvec_topk_query *wanted = query->query;

	scratch->query = query;
	for (uint32_t i = 0; i < wanted->len; i++)
	{
		uint16_t	place = sparse_place(wanted, i);

		scratch->places[wanted->ids[i]] = place;
		scratch->weights[wanted->ids[i]] = wanted->weights[place];
	}
	scratch->first = scratch->weights[0];
	scratch->weights[0] = 0;
}

void
sparse_end(sparse_scratch *scratch)
{
	const gpuvec_topk_query *query = scratch->query->query;

	for (uint32_t i = 0; i < query->len; i++)
		scratch->weights[query->ids[i]] = 0;
	scratch->first = 0;
}

/* Note an id that the row shares, by its place, and the row's value */
static inline void
note_place(sparse_scratch *scratch, uint16_t place, float value)
{
	scratch->shared[place / 64] |= UINT64_C(1) << (place % 64);
	scratch->values[place] = value;
}

/* Note the hot numbers of a row that the query has */
static void
note_hot(sparse_scratch *scratch, const gpuvec_segment *segment, uint32_t row)
{
	const uint16_t *ids = row_ids(segment, row);
	const float *values = segment->sums ? segment->values + (ids - segment->ids) : NULL;
	uint32_t	len = gpuvec_hot_len(segment, row);

	if (len > 0 && ids[0] == 0 && scratch->first != 0)
		note_place(scratch, scratch->places[0], values ? values[0] : 1);
	for (uint32_t i = 0; i < len; i += GPUVEC_CHUNK_IDS)
	{
		uint32_t	n = len - i < GPUVEC_CHUNK_IDS ? len - i : GPUVEC_CHUNK_IDS;
		size_t		at = (size_t) i / GPUVEC_CHUNK_IDS * CHUNK_VALUES;

		for (uint32_t j = 0; j < n; j++)
			if (scratch->weights[ids[at + j]] != 0)
				note_place(scratch, scratch->places[ids[at + j]], values ? values[at + j] : 1);
	}
}

/* Add up the terms of what was noted, and forget it; *common is its number */
static double
add_terms(sparse_scratch *scratch, uint32_t *common)
{
	const gpuvec_topk_query *query = scratch->query->query;
	gpuvec_sparse_measure measure = gpuvec_scoring_sparse(scratch->query->scoring);
	uint32_t	nwords = (gpuvec_query_len(query) + 63) / 64;
	double		sum = 0;

	*common = 0;
	for (uint32_t w = 0; w < nwords; w++)
	{
		for (uint64_t bits = scratch->shared[w]; bits != 0; bits &= bits - 1)
		{
			uint32_t	place = w * 64 + (uint32_t) __builtin_ctzll(bits);

			sum += gpuvec_sparse_term(measure, query->weights[place], scratch->values[place]);
			++*common;
		}
		scratch->shared[w] = 0;
	}
	return sum;
}

void
sparse_offer(sparse_scratch *scratch, best_rows *best, const gpuvec_view_entry *entry, uint32_t row,
			 sparse_cold cold)
{
	const gpuvec_segment *segment = entry->segment;
	const cpu_query *query = scratch->query;
	gpuvec_sparse_measure measure = gpuvec_scoring_sparse(query->scoring);
	gpuvec_sparse_shared shared = {
		.a = query->query->own, .b = sparse_row_own(measure, segment, row)
	};
	uint32_t	common;
	double		score;

	note_hot(scratch, segment, row);
	for (uint32_t i = 0; i < cold.n; i++)
		note_place(scratch, cold.ids[i].place, cold.ids[i].value);
	shared.common = add_terms(scratch, &common);
	score = sparse_row_refused(measure, segment, row) ? INFINITY :
		gpuvec_sparse_score(measure, shared);
	best_offer_score(best, score, common, entry, row);
}
