/*-------------------------------------------------------------------------
 *
 * dense_rounds.cu
 *	  Chooses and queues the counting of a chunk by bit vectors.
 *
 * Rounds are those of a scan (topk.cu), but for the first one: nearly every
 * row of it qualifies, which is not what dense.cu is made for.  So a scan of
 * these rows gives the first bounds, and they are counted again in the second
 * round.  In each round segments without vectors are scanned.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <string.h>

#include "kernels/device/launch.h"
#include "kernels/search/chunk.h"
#include "kernels/search/dense_cells.cuh"

namespace gpuvec
{

/* Panels of a group of 32 tiles */
#define GROUP_PANELS (32 / PANEL_TILES)

/*
 * Room for finds is that for candidates, divided by this: a round finds far
 * fewer than there is room for
 */
#define FINDS_FRACTION 2

/* True if the device multiplies bits, and the kernels were made for it */
bool
dense_usable(const struct search_backend *b)
{
	return b->tuning->multiplies_bits && b->tuning->capability == b->device.capability &&
		   kernels_wait() && dense_possible(b->device.shared_limit);
}

/* Nanoseconds that a scan of nids ids takes for n queries, about */
static double
scan_time(const struct search *s, double nids, uint32_t n)
{
	return nids * (double) divide_up(n, s->policy.entry_bits) / s->policy.scan_lookups;
}

/*
 * Nanoseconds that counting by bit vectors takes, about: multiplying, or
 * reading the vectors
 */
static double
dense_time(const struct search *s, uint32_t n)
{
	const struct cuda_view *view = s->view;
	double nids = (double) view->nids / std::max(view->nrows, (uint64_t) 1);
	double bits = (double) view->dense_rows * DENSE_BITS;
	uint64_t queries = divide_up(n, BATCH_QUERIES) * BATCH_QUERIES;

	return scan_time(s, nids * (double) (view->nrows - view->dense_rows), n) +
		   std::max(bits * (double) queries / (1000.0 * s->policy.dense_products),
					bits / 8 / s->policy.dense_bytes);
}

/*
 * True if bit vectors should take less time than a scan for n queries.  Lists
 * may be faster than both, but less so the more of the ids a row has; so
 * segments whose rows have few get no vectors.
 */
static bool
dense_pays(const struct search *s, uint32_t n)
{
	const struct cuda_view *view = s->view;

	return view->dense_rows * 2 >= view->nrows && n > s->policy.dense_queries &&
		   dense_time(s, n) < scan_time(s, (double) view->nids, n);
}

/* Choose between bit vectors and what was chosen without them for n queries */
void
choose_dense(const struct search *s, struct chunk *c, uint32_t n)
{
	if (s->scoring.sparse || s->view->dense_rows == 0 || n > MOST_DENSE_QUERIES)
		return;
	/* products know no filters: scans and lists do */
	for (uint32_t i = 0; i < n; i++)
		if (c->work[i].filter)
			return;
	c->dense =
		s->method == GPUVEC_METHOD_DENSE || (s->method == GPUVEC_METHOD_AUTO && dense_pays(s, n));
	if (c->dense)
		c->lists = false;
}

/* Finds of a chunk for which there is room */
static uint32_t
finds_capacity(const struct chunk *c)
{
	return (uint32_t) std::min((uint64_t) c->n * c->capacity / FINDS_FRACTION,
							   (uint64_t) UINT32_MAX);
}

/* Bytes of scratch memory that counting by bit vectors takes for a query */
size_t
query_dense_bytes(const struct search *s, uint32_t capacity)
{
	return s->view->dense_rows > 0 ? VECTOR_BYTES + capacity / FINDS_FRACTION * sizeof(uint4) : 0;
}

/*
 * Reserve scratch memory for the vectors of a chunk's queries, the counters of
 * all rounds, and lists of panels and finds
 */
void
lay_out_dense(const struct search *s, struct chunk *c, struct arena *at)
{
	if (!c->dense)
		return;
	c->query_bits = at->reserve(vectors_bytes(c->n, BATCH_QUERIES));
	c->dense_counts = at->reserve(MAX_ROUNDS * sizeof(struct dense_counts));
	c->dense_zero_end = at->used;
	c->dense_panels =
		at->reserve((size_t) s->view->ngroups * GROUP_PANELS * sizeof(struct dense_panel));
	c->finds = at->reserve(finds_capacity(c) * sizeof(uint4));
}

/* Queue the making of the queries' vectors; counters become 0 */
static bool
queue_query_bits(struct search *s, struct chunk *c)
{
	struct query_bits_params p;

	p.queries = scratch_at<struct query_state>(s, c->states);
	p.ids = scratch_at<uint16_t>(s, c->ids);
	p.words = scratch_at<uint32_t>(s, c->query_bits);
	p.nqueries = c->n;
	return s->check(cudaMemsetAsync(p.words, 0, c->dense_zero_end - c->query_bits, s->stream)) &&
		   s->check(dense_query_bits(&p, s->stream));
}

/*
 * Panels of a unit: dense_unit, but fewer if there are not 16 units or so for
 * each block
 */
static uint32_t
unit_panels(const struct search *s, const struct scan_params *p)
{
	double panels = class_tiles(s, p->class_lo, p->class_hi) / (double) PANEL_TILES;
	double most = panels * p->nbatches / (16.0 * s->b->device.sms);

	return (uint32_t) std::min(std::max(most, 2.0), (double) s->policy.dense_unit);
}

/* Queue the counting of the segments that have vectors in a round */
static bool
queue_dense(struct search *s, struct chunk *c, uint32_t round, uint32_t class_lo, uint32_t class_hi)
{
	uint32_t sms = (uint32_t) s->b->device.sms;
	struct dense_params p;

	memset(&p, 0, sizeof(p));
	if (!begin_scan(s, c, &p.scan, s->view->ngroups, class_lo, class_hi))
		return false;
	p.bits = scratch_at<uint4>(s, c->query_bits);
	p.panels = scratch_at<struct dense_panel>(s, c->dense_panels);
	p.finds = scratch_at<uint4>(s, c->finds);
	p.counts = scratch_at<struct dense_counts>(s, c->dense_counts) + round;
	p.capacity = finds_capacity(c);
	p.scan.nbatches = (uint32_t) divide_up(c->n, BATCH_QUERIES);
	p.unit_panels = unit_panels(s, &p.scan);
	return s->check(dense_list(&p, s->stream)) && s->check(dense_count(&p, sms, s->stream)) &&
		   s->check(dense_score(&p, sms, s->stream));
}

/* Queue a round: the counting of classes class_lo .. class_hi - 1 */
static bool
queue_dense_round(struct search *s, struct chunk *c, uint32_t round, uint32_t class_lo,
				  uint32_t class_hi)
{
	return queue_dense(s, c, round, class_lo, class_hi) &&
		   (s->view->dense_rows == s->view->nrows ||
			queue_scan(s, c, s->view->ngroups, class_lo, class_hi, true));
}

/* Queue all rounds of a chunk that is counted by bit vectors */
bool
queue_dense_rounds(struct search *s, struct chunk *c)
{
	uint32_t ends[MAX_ROUNDS];
	uint32_t nrounds = plan_rounds(s, c, ends);
	uint32_t first = nrounds > 1 ? 1 : 0;
	bool fast = c->kmax <= GPUVEC_FAST_K;

	s->b->stats.dense_chunks++;
	if (!queue_query_bits(s, c) ||
		(first > 0 && (!queue_scan(s, c, s->view->ngroups, 0, ends[0], false) ||
					   !queue_select(s, c, SELECT_TIGHTEN))))
		return false;
	for (uint32_t i = first; i < nrounds; i++)
		if (!queue_dense_round(s, c, i, i > first ? ends[i - 1] : 0, ends[i]) ||
			!queue_select(s, c, fast && i + 1 == nrounds ? SELECT_FINAL : SELECT_ROUND))
			return false;
	return true;
}

} // namespace gpuvec
