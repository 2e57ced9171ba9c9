/*-------------------------------------------------------------------------
 *
 * list_rounds.cu
 *	  Plans and queues the rounds of a chunk that is counted by lists.
 *
 * There are up to three rounds.  A sample of some blocks gives each query its
 * first bound.  If there are many queries, a part of the blocks gives a
 * better bound.  Then all other blocks follow.  The first two rounds choose
 * blocks whose rows have the lengths at which the best rows for the query are
 * expected.
 *
 * Segments without lists, which are small, are scanned in the last round.
 *
 * The device gets for each block the range of queries that it is chosen for.
 * If the chunk has very few queries, they and their blocks are parameters of
 * the kernels instead.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <string.h>

#include "kernels/search/chunk.h"

namespace gpuvec
{

#define UNSAMPLED_ROWS 8192 /* smaller views are not sampled */
#define SAMPLE_PER_K 4      /* rows of the sample for each of k results, at least */

/* The rounds of counting by lists */
enum list_round
{
	ROUND_SAMPLE, /* a few rows of a few blocks give a bound */
	ROUND_NEAR,   /* a part of the blocks gives a better bound */
	ROUND_REST    /* the other blocks */
};

/* Number of blocks of a kind that a query counts in a round */
static uint32_t
round_blocks(const struct search *s, const struct chunk *c, enum list_round round, int kind)
{
	uint32_t nblocks = s->view->nblocks[kind];

	if (round == ROUND_REST)
		return nblocks;
	if (c->again ||
		(uint64_t) s->view->ntiles * 32 <= std::min(c->capacity, (uint32_t) UNSAMPLED_ROWS))
		return 0;
	if (round == ROUND_SAMPLE)
		return std::min(kind == 0 ? s->policy.sample_tiled : s->policy.sample_whole,
						(nblocks + 7) / 8);
	return c->n <= s->policy.near_queries ? 0 : nblocks / s->policy.near_fraction;
}

/* True if queries count any blocks in a round */
static bool
has_round(const struct search *s, const struct chunk *c, enum list_round round)
{
	return round_blocks(s, c, round, 0) + round_blocks(s, c, round, 1) > 0;
}

/* The length at which the best rows for a query are expected */
static uint32_t
best_length(const struct search *s, const gpuvec_topk_query *query)
{
	switch (s->scoring.measure)
	{
		case GPUVEC_INTERSECTION:
		case GPUVEC_CONTAINMENT:
			return UINT32_MAX;
		case GPUVEC_OVERLAP:
			return 0;
		default:
			return gpuvec_query_len(query);
	}
}

/* The first of the n blocks of a kind around a length */
static uint32_t
first_block(const struct search *s, int kind, uint32_t n, uint32_t best)
{
	uint32_t nblocks = s->view->nblocks[kind];
	const uint32_t *len = s->view->block_len[kind].get();
	uint32_t from = (uint32_t) (std::lower_bound(len, len + nblocks, best) - len);
	uint32_t upto = (uint32_t) (std::upper_bound(len, len + nblocks, best) - len);
	uint32_t middle = from + (upto - from) / 2;

	return std::min(middle > n / 2 ? middle - n / 2 : 0, nblocks - n);
}

/*
 * Choose n consecutive blocks for each query, around its best length.
 * ranges[] says for each block which queries chose it: first query, number of
 * queries.  These are consecutive too, because queries are in order of
 * length.
 */
static void
choose_blocks(const struct search *s, const struct chunk *c, int kind, uint32_t n, uint2 *ranges)
{
	memset(ranges, 0, sizeof(uint2) * s->view->nblocks[kind]);
	for (uint32_t q = 0, next; q < c->n; q = next)
	{
		uint32_t best = best_length(s, chunk_query(c, q)->query);
		uint32_t from = first_block(s, kind, n, best);

		for (next = q + 1; next < c->n; next++)
			if (best_length(s, chunk_query(c, next)->query) != best)
				break;
		for (uint32_t i = from; i < from + n; i++)
		{
			if (ranges[i].y == 0)
				ranges[i].x = q;
			ranges[i].y = next - ranges[i].x;
		}
	}
}

/* Position of the ranges of a round and kind among all ranges */
static uint32_t
ranges_at(const struct search *s, enum list_round round, int kind)
{
	return (round == ROUND_SAMPLE ? 0 : s->view->nblocks[0] + s->view->nblocks[1]) +
		   (kind == 0 ? 0 : s->view->nblocks[0]);
}

/* Choose the blocks of the first two rounds */
void
fill_ranges(const struct search *s, const struct chunk *c, uint2 *ranges)
{
	for (int kind = 0; kind < 2; kind++)
	{
		choose_blocks(s, c, kind, round_blocks(s, c, ROUND_SAMPLE, kind),
					  ranges + ranges_at(s, ROUND_SAMPLE, kind));
		choose_blocks(s, c, kind, round_blocks(s, c, ROUND_NEAR, kind),
					  ranges + ranges_at(s, ROUND_NEAR, kind));
	}
}

/* Cut the counting of blocks into items, and queue it */
static bool
queue_blocks(struct search *s, struct chunk *c, struct list_params *p, int kind)
{
	struct search_backend *b = s->b;
	const struct gpuvec_search_policy &policy = s->policy;
	uint32_t item_queries = kind == 0 ? policy.item_queries : policy.whole_item_queries;
	bool plain = s->view->plain && c->list_planes <= 8;
	uint32_t slices;
	cudaError_t rc;

	if (p->nblocks == 0)
		return true;
	if (c->launches == MAX_ROUNDS && !reset_counters(s, c))
		return false;
	p->next_item = scratch_at<uint32_t>(s, c->counters) + c->launches++;
	slices = p->own_blocks > 0 ? 1 : (c->n + item_queries - 1) / item_queries;
	if (kind == 0)
		/* with fewer slices, bitmaps are staged less often */
		slices = std::min(slices, 16 * (uint32_t) b->device.sms / p->nblocks + 1);
	p->item_queries = (c->n + slices - 1) / slices;
	p->nslices = (c->n + p->item_queries - 1) / p->item_queries;
	b->stats.own_rounds += p->own_blocks > 0;
	if (c->counts)
		b->stats.list_counts++;
	if (kind == 1)
	{
		b->stats.plain_rounds += plain;
		b->stats.plain_lone_rounds += plain && c->n <= LONE_QUERIES;
		rc = plain ? lists_count_plain(p, c->counts, b->device.sms, s->stream)
				   : lists_count_whole(p, c->list_planes, c->counts, b->device.sms, s->stream);
	}
	else if (c->counts || c->n <= policy.lone_queries)
		rc = lists_count_lone(p, c->list_planes, c->counts, s->stream);
	else if (c->n <= policy.direct_queries)
		rc = lists_count_direct(p, c->list_planes, s->stream);
	else
		rc = lists_count_tiled(p, c->list_planes, b->device.shared_limit, s->view->nstaged,
							   b->device.sms, s->stream);
	b->stats.rounds++;
	return s->check(rc);
}

/* Fill in the parameters that all launches for a chunk share */
static void
fill_list_params(const struct search *s, const struct chunk *c, struct list_params *p)
{
	struct search_backend *b = s->b;

	memset(p, 0, sizeof(*p));
	p->segments = s->view->segments;
	p->queries = scratch_at<struct query_state>(s, c->states);
	p->ids = scratch_at<uint16_t>(s, c->ids);
	p->entries = scratch_at<uint16_t>(s, c->entries);
	p->nentries_of = scratch_at<uint4>(s, c->nentries_of);
	p->candidates = scratch_at<struct row_key>(s, c->candidates);
	p->stop = (const uint32_t *) b->stop.get();
	p->nsegments = s->view->nsegments;
	p->nentries = (uint32_t) c->nentries;
	p->nqueries = c->n;
	p->capacity = c->capacity;
	p->scoring = s->scoring;
	p->counts = chunk_counts(s, c);
}

/*
 * For queries that are kernel parameters: choose the blocks of a round as
 * fill_ranges() does, but put them into the parameters
 */
static void
choose_own_blocks(const struct search *s, const struct chunk *c, struct list_params *p, int kind,
				  uint32_t n)
{
	for (uint32_t q = 0; q < c->n; q++)
		p->own_first[q] = first_block(s, kind, n, best_length(s, chunk_query(c, q)->query));
	p->own_blocks = n;
	p->nblocks = n * c->n;
}

/* Queue the counting of all blocks of a round */
static bool
queue_lists(struct search *s, struct chunk *c, struct list_params *p, enum list_round round)
{
	const uint2 *ranges = scratch_at<uint2>(s, c->ranges);
	uint32_t sum = round_blocks(s, c, round, 0) + round_blocks(s, c, round, 1);
	bool near = has_round(s, c, ROUND_NEAR);

	p->sample = 0;
	if (round == ROUND_SAMPLE)
	{
		p->sample = std::max(s->policy.sample_rows, (SAMPLE_PER_K * c->kmax + sum - 1) / sum);
		p->sample = std::max(std::min(p->sample, c->capacity / (2 * sum)), 1u);
	}
	for (int kind = 0; kind < 2; kind++)
	{
		p->blocks = s->view->blocks[kind];
		p->nblocks = s->view->nblocks[kind];
		p->own_blocks = 0;
		p->ranges = NULL;
		if (round != ROUND_REST && c->lone)
			choose_own_blocks(s, c, p, kind, round_blocks(s, c, round, kind));
		else if (round != ROUND_REST)
			p->ranges = ranges + ranges_at(s, round, kind);
		p->counted = round == ROUND_REST && near ? ranges + ranges_at(s, ROUND_NEAR, kind) : NULL;
		if (round_blocks(s, c, round, kind) > 0 && !queue_blocks(s, c, p, kind))
			return false;
	}
	return true;
}

/* Queue the classification of ids for queries that come as parameters */
static bool
queue_lone(struct search *s, const struct chunk *c, const struct list_params *p)
{
	struct lone_params lone;

	lone.lists = *p;
	lone.counters = scratch_at<uint32_t>(s, c->counters);
	lone.stored_ids = scratch_at<uint16_t>(s, c->ids);
	lone.ncounters = MAX_ROUNDS;
	lone.nids = (uint32_t) c->nids;
	fill_queries(s, c, lone.queries, lone.ids);
	return s->check(lists_classify_lone(&lone, s->stream));
}

/* Queue the rounds of a chunk that is counted by lists */
bool
queue_list_rounds(struct search *s, struct chunk *c)
{
	struct list_params p;

	s->b->stats.list_chunks++;
	fill_list_params(s, c, &p);
	if (!(c->lone ? queue_lone(s, c, &p) : s->check(lists_classify(&p, s->stream))))
		return false;
	if (has_round(s, c, ROUND_SAMPLE) &&
		(!queue_lists(s, c, &p, ROUND_SAMPLE) || !queue_select(s, c, SELECT_TIGHTEN)))
		return false;
	if (has_round(s, c, ROUND_NEAR) &&
		(!queue_lists(s, c, &p, ROUND_NEAR) || !queue_select(s, c, SELECT_ROUND)))
		return false;
	return queue_lists(s, c, &p, ROUND_REST) &&
		   (s->view->nplain == 0 || queue_scan(s, c, s->view->nplain, 0, TILE_CLASSES, false)) &&
		   (c->counts ||
			queue_select(s, c, c->kmax <= GPUVEC_FAST_K ? SELECT_FINAL : SELECT_ROUND));
}

} // namespace gpuvec
