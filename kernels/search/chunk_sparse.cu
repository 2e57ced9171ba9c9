/*-------------------------------------------------------------------------
 *
 * chunk_sparse.cu
 *	  The weights of a chunk's queries, by measures of sparse vectors.
 *
 * A query's weights go to the device twice.  A scan takes those of hot
 * numbers, in the order of these.  Scores take all, with their numbers, in the
 * order of ids.
 *
 * For a scan of all queries together, hot numbers go once more, as a list of
 * queries for each number.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <math.h>
#include <string.h>

#include "kernels/search/chunk.h"

namespace gpuvec
{

/* How many terms of a query are searched */
static uint32_t
query_terms(const struct search *s, const gpuvec_topk_query *query)
{
	return query->len + searched_cold(s, query);
}

/* Bytes of scratch memory for a query's weights */
size_t
query_sparse_bytes(const struct search *s, const gpuvec_topk_query *query)
{
	if (!s->scoring.sparse)
		return 0;
	return sizeof(struct sparse_query) + sizeof(float) * query->len +
		   sizeof(struct sparse_term) * query_terms(s, query) +
		   (most_together(s) > 0 ? sizeof(struct sparse_entry) * query->len : 0);
}

/* Bytes of scratch memory for where the lists of numbers begin */
size_t
sparse_lists_bytes(const struct search *s)
{
	return sizeof(uint2) * ((size_t) s->view->maxid + 1);
}

/*
 * How many queries may be scanned together, if there are as many; 0: none are
 */
uint32_t
most_together(const struct search *s)
{
	uint32_t most = SPARSE_BATCH_MOST;

	if (!s->scoring.sparse || s->nwork < s->policy.together_queries ||
		sparse_lists_bytes(s) > s->policy.workspace / 4)
		return 0;
	while (most > 0 && sparse_batch_warps(most, s->b->device.shared_limit) == 0)
		most -= SPARSE_BATCH_UNIT;
	return most;
}

/* Reserve scratch memory for the weights of a chunk */
void
lay_out_sparse(const struct search *s, struct chunk *c, struct arena *at)
{
	c->nterms = 0;
	for (uint32_t i = 0; s->scoring.sparse && i < c->n; i++)
		c->nterms += query_terms(s, chunk_query(c, i)->query);
	c->sparse = at->reserve(s->scoring.sparse ? sizeof(struct sparse_query) * c->n : 0);
	c->weights = at->reserve(s->scoring.sparse ? sizeof(float) * c->nids : 0);
	c->terms = at->reserve(sizeof(struct sparse_term) * c->nterms);
	c->number_lists = at->reserve(c->together ? sparse_lists_bytes(s) : 0);
	c->number_entries = at->reserve(c->together ? sizeof(struct sparse_entry) * c->nids : 0);
}

/* The place of a query's i-th number, hot ones first, among its ids */
static uint32_t
place_of(const gpuvec_topk_query *query, uint32_t i)
{
	return query->places ? query->places[i] : i;
}

/* Write n terms of a query in the order of its ids */
static void
fill_terms(const gpuvec_topk_query *query, uint32_t n, struct sparse_term *terms)
{
	/* at first with places where weights will be */
	for (uint32_t i = 0; i < n; i++)
	{
		uint32_t place = place_of(query, i);

		terms[i].number = i < query->len ? query->ids[i] : query->cold[i - query->len];
		memcpy(&terms[i].weight, &place, sizeof(place));
	}
	if (query->places)
		std::sort(terms, terms + n,
				  [](const struct sparse_term &a, const struct sparse_term &b)
				  {
					  uint32_t x;
					  uint32_t y;

					  memcpy(&x, &a.weight, sizeof(x));
					  memcpy(&y, &b.weight, sizeof(y));
					  return x < y;
				  });
	for (uint32_t i = 0; i < n; i++)
	{
		uint32_t place;

		memcpy(&place, &terms[i].weight, sizeof(place));
		terms[i].weight = query->weights[place];
	}
}

/* Write the lists of numbers, each in the order of queries */
static void
fill_lists(const struct search *s, const struct chunk *c, uint2 *lists,
		   struct sparse_entry *entries)
{
	uint32_t maxid = s->view->maxid;
	uint32_t first = 0;

	memset(lists, 0, sparse_lists_bytes(s));
	for (uint32_t i = 0; i < c->n; i++)
	{
		const gpuvec_topk_query *q = chunk_query(c, i)->query;

		for (uint32_t j = 0; j < q->len && q->ids[j] <= maxid; j++)
			lists[q->ids[j]].y++;
	}
	for (uint32_t number = 0; number <= maxid; number++)
	{
		lists[number].x = first;
		first += lists[number].y;
		lists[number].y = 0;
	}
	for (uint32_t i = 0; i < c->n; i++)
	{
		const gpuvec_topk_query *q = chunk_query(c, i)->query;

		for (uint32_t j = 0; j < q->len && q->ids[j] <= maxid; j++)
		{
			uint2 *list = &lists[q->ids[j]];

			entries[list->x + list->y++] = {i, q->weights[place_of(q, j)]};
		}
	}
}

/* Write a chunk's weights for the device; `upload` is where states begin */
void
fill_sparse(const struct search *s, const struct chunk *c, char *upload)
{
	struct sparse_query *queries = (struct sparse_query *) (upload + (c->sparse - c->states));
	float *weights = (float *) (upload + (c->weights - c->states));
	struct sparse_term *terms = (struct sparse_term *) (upload + (c->terms - c->states));
	gpuvec_sparse_measure measure = gpuvec_scoring_sparse(s->scoring);
	uint32_t at = 0;

	for (uint32_t i = 0; i < c->n; i++)
	{
		const gpuvec_topk_query *q = chunk_query(c, i)->query;
		uint32_t n = query_terms(s, q);

		queries[i] = {gpuvec_sparse_make_bound(measure, q->len, q->square, q->own), q->own, at, n};
		for (uint32_t j = 0; j < q->len; j++)
			*weights++ = q->weights[place_of(q, j)];
		fill_terms(q, n, terms + at);
		at += n;
	}
	if (c->together)
		fill_lists(s, c, (uint2 *) (upload + (c->number_lists - c->states)),
				   (struct sparse_entry *) (upload + (c->number_entries - c->states)));
}

/* A chunk's weights on the device; none by measures of sets */
struct sparse_tables
chunk_weights(const struct search *s, const struct chunk *c)
{
	struct sparse_tables tables = {};

	if (!s->scoring.sparse)
		return tables;
	tables.queries = scratch_at<struct sparse_query>(s, c->sparse);
	tables.weights = scratch_at<float>(s, c->weights);
	tables.terms = scratch_at<struct sparse_term>(s, c->terms);
	if (c->together)
	{
		tables.lists = scratch_at<uint2>(s, c->number_lists);
		tables.entries = scratch_at<struct sparse_entry>(s, c->number_entries);
	}
	return tables;
}

/*
 * Choose the variant of the scan, and find out how many of its blocks run at
 * once
 */
bool
choose_sparse_kernel(struct search *s, struct chunk *c)
{
	struct search_backend *b = s->b;
	int blocks = 0;

	c->whole = sparse_scan_shared_bytes(true, s->view->maxid) <= b->device.shared_limit;
	c->shared_bytes = sparse_scan_shared_bytes(c->whole, s->view->maxid);
	c->batch = 1;
	if (!s->check(sparse_scan_blocks(c->whole, c->shared_bytes, &blocks), "prepare a search"))
		return false;
	c->blocks = (uint32_t) std::max(blocks, 1) * b->device.sms;
	return true;
}

/* The mask that all queries of a chunk have; NULL: it is not one */
static const uint32_t *
common_mask(const struct chunk *c)
{
	const struct filter_rows *rows = chunk_query(c, 0)->filter;

	for (uint32_t i = 1; i < c->n; i++)
		if (chunk_query(c, i)->filter != rows)
			return NULL;
	return rows ? rows->mask : NULL;
}

/*
 * Find out whether to scan the chunk's queries together.  A scan for one
 * query goes through tiles with a row that takes part, but one for all
 * through all rows, unless they have one mask.  Its lists are long if queries
 * have many of the numbers: then it takes twice as many.
 */
bool
choose_together(struct search *s, struct chunk *c)
{
	struct search_backend *b = s->b;
	const uint32_t *mask = common_mask(c);
	/* the part of the tiles that have a row of those, if these lie anywhere */
	double tiles = mask ? 1 : 1 - pow(1 - std::min(c->share, 1.0), GPUVEC_TILE_ROWS);
	double queries = c->n * tiles;
	double numbers = (double) s->view->maxid + 1;
	double entries = 0;
	int blocks = 0;

	for (uint32_t i = 0; i < c->n; i++)
		entries += chunk_query(c, i)->query->len;
	if (entries * s->policy.together_numbers > c->n * numbers)
		queries /= 2;
	if (queries < s->policy.together_queries)
		return true;
	c->mask = mask;
	c->together = sparse_batch_warps(c->n, b->device.shared_limit);
	c->together_bytes = sparse_batch_shared_bytes(c->n, c->together);
	if (!s->check(sparse_batch_blocks(c->together, c->together_bytes, &blocks), "prepare a search"))
		return false;
	c->together_blocks = (uint32_t) std::max(blocks, 1) * b->device.sms;
	return true;
}

} // namespace gpuvec
