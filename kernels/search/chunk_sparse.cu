/*-------------------------------------------------------------------------
 *
 * chunk_sparse.cu
 *	  The weights of a chunk's queries, by measures of sparse vectors.
 *
 * A query's weights go to the device twice.  A scan takes those of hot
 * numbers, in the order of these.  Scores take all, with their numbers, in the
 * order of ids.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
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
		   sizeof(struct sparse_term) * query_terms(s, query);
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

} // namespace gpuvec
