/*-------------------------------------------------------------------------
 *
 * chunk_cold.cu
 *	  The cold numbers of a chunk's queries, and the tables of the rows that
 *	  share them (cold_rows.cu).
 *
 * The host does not know how many rows these are.  It expects as many as
 * share a cold number of an average row, for each of the query's; segments
 * know this from their postings.  Most tables are then larger than they need
 * be.  A query whose table is too small is run again with a larger one.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <string.h>

#include "kernels/search/chunk.h"

namespace gpuvec
{

/*
 * Slots from a row's own one on in which it may be: with more, a table that
 * is nearly full would take long to fail.  A round of one class of tiles
 * cannot be made smaller, so there a row may be in any slot.
 */
#define PROBES 256u

/* How many of a query's cold numbers are searched: none that no row has */
uint32_t
searched_cold(const struct search *s, const gpuvec_topk_query *query)
{
	return s->view->ncold_segments > 0 ? query->ncold : 0;
}

static uint32_t
round_slots(double slots)
{
	return ((uint32_t) slots + COLD_UNIT - 1) / COLD_UNIT * COLD_UNIT;
}

/* Slots of the table of a query with n cold numbers */
static uint32_t
expected_slots(const struct search *s, uint32_t n)
{
	const struct gpuvec_search_policy &policy = s->policy;
	double most = std::min(2.0 * s->view->ntiles * 32, (double) policy.cold_slots_most);
	double slots = s->view->cold_rows * n * policy.cold_spread;

	if (n == 0)
		return 0;
	return round_slots(std::min(std::max(slots, (double) policy.cold_slots), std::max(most, 1.0)));
}

/* Bytes of scratch memory for a query's table and its cold numbers */
size_t
query_cold_bytes(const struct search *s, const gpuvec_topk_query *query)
{
	uint32_t n = searched_cold(s, query);

	return (size_t) expected_slots(s, n) * (sizeof(uint64_t) + sizeof(uint2)) +
		   n * sizeof(uint32_t) + divide_up(n, COLD_PIECE) * sizeof(uint2);
}

/* Slots of the table of a chunk's query i */
static uint32_t
query_slots(const struct search *s, const struct chunk *c, uint32_t i)
{
	uint32_t n = searched_cold(s, chunk_query(c, i)->query);

	return n > 0 && c->slots > 0 ? round_slots(c->slots) : expected_slots(s, n);
}

/* Count the cold numbers of a chunk, and the slots that it needs */
void
count_cold_slots(const struct search *s, struct chunk *c)
{
	c->ncold = 0;
	c->npieces = 0;
	c->nslots = 0;
	c->most_slots = 0;
	for (uint32_t i = 0; i < c->n; i++)
	{
		uint32_t n = searched_cold(s, chunk_query(c, i)->query);
		uint32_t slots = query_slots(s, c, i);

		c->ncold += n;
		c->npieces += divide_up(n, COLD_PIECE);
		c->nslots += slots;
		c->most_slots = std::max(c->most_slots, slots);
	}
}

/*
 * Write the cold numbers of a chunk for the device, cut into pieces, and
 * complete the states of its queries
 */
void
fill_cold(const struct search *s, const struct chunk *c, struct query_state *states,
		  uint32_t *numbers, uint2 *pieces)
{
	uint32_t at = 0;
	uint32_t table = 0;

	for (uint32_t i = 0; i < c->n; i++)
	{
		const gpuvec_topk_query *q = chunk_query(c, i)->query;
		struct query_state *state = &states[i];

		state->ncold = searched_cold(s, q);
		if (state->ncold == 0)
			continue;
		state->cold = at;
		state->table = table;
		state->nslots = query_slots(s, c, i);
		memcpy(numbers + at, q->cold, state->ncold * sizeof(uint32_t));
		for (uint32_t from = 0; from < state->ncold; from += COLD_PIECE)
			*pieces++ = make_uint2(i, from);
		at += state->ncold;
		table += state->nslots;
	}
}

/* The tables of a chunk; none if there are no cold numbers */
struct cold_tables
chunk_tables(const struct search *s, const struct chunk *c)
{
	struct cold_tables tables = {};

	if (c->ncold == 0)
		return tables;
	tables.keys = scratch_at<unsigned long long>(s, c->cold_keys);
	tables.places = scratch_at<uint2>(s, c->cold_places);
	tables.probes = c->probes;
	return tables;
}

/*
 * Queue the search for rows that share cold numbers in the tiles of classes
 * class_lo .. class_hi - 1
 */
bool
queue_cold(struct search *s, struct chunk *c, uint32_t class_lo, uint32_t class_hi)
{
	struct search_backend *b = s->b;
	struct cold_params p;

	c->probes = class_hi - class_lo > 1 ? std::min(c->most_slots, PROBES) : c->most_slots;
	memset(&p, 0, sizeof(p));
	p.segments = s->view->segments;
	p.cold_segments = s->view->cold_segments;
	p.queries = scratch_at<struct query_state>(s, c->states);
	p.ids = scratch_at<uint16_t>(s, c->ids);
	p.numbers = scratch_at<uint32_t>(s, c->cold);
	p.pieces = scratch_at<uint2>(s, c->pieces);
	p.tables = chunk_tables(s, c);
	p.candidates = scratch_at<struct row_key>(s, c->candidates);
	p.stop = (const uint32_t *) b->stop.get();
	p.ncold_segments = s->view->ncold_segments;
	p.nqueries = c->n;
	p.npieces = (uint32_t) c->npieces;
	p.nslots = (uint32_t) c->nslots;
	p.nslices = (uint32_t) divide_up(c->most_slots, COLD_SLICE);
	p.capacity = c->capacity;
	p.class_lo = class_lo;
	p.class_hi = class_hi;
	p.scoring = s->scoring;
	p.sparse = chunk_weights(s, c);
	p.counts = chunk_counts(s, c);
	b->stats.cold_rounds++;
	return s->check(cold_launch(&p, c->counts, s->stream));
}

} // namespace gpuvec
