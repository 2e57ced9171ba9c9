/*-------------------------------------------------------------------------
 *
 * dense_rounds.cu
 *	  Chooses and queues the counting of a chunk by bit vectors.
 *
 * Rounds are those of a scan (topk.cu).  In each round there is a kernel for
 * each number of chunks that vectors of the view have, and a scan of the
 * segments without vectors.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <string.h>

#include "kernels/search/chunk.h"
#include "kernels/search/dense_cells.cuh"

namespace gpuvec
{

/* Nanoseconds that a scan of so many ids takes for n queries, about */
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
	double time = scan_time(s, nids * (double) view->dense_rows[0], n);

	for (uint32_t c = 1; c <= DENSE_CHUNKS; c++)
	{
		double cells = (double) view->dense_rows[c] * c * CELLS_PER_CHUNK;

		time +=
			std::max(cells * (double) divide_up(n, 64) * 64 / (1000.0 * s->policy.dense_products),
					 cells / 8 / s->policy.dense_bytes);
	}
	return time;
}

/*
 * True if bit vectors should take less time than a scan for n queries.  Lists
 * may be faster than both, but less so the more of the ids a row has; so
 * segments whose rows have few get no vectors.
 *
 * Of GPUs other than those of compute capability 9.0 it is not known that they
 * multiply bits fast enough.
 */
static bool
dense_pays(const struct search *s, uint32_t n)
{
	const struct cuda_view *view = s->view;

	return s->b->device.capability == 90 && view->dense_rows[0] * 2 <= view->nrows &&
		   n > s->policy.dense_queries && dense_time(s, n) < scan_time(s, (double) view->nids, n);
}

/* Choose between bit vectors and what was chosen without them for n queries */
void
choose_dense(const struct search *s, struct chunk *c, uint32_t n)
{
	if (s->view->dense_rows[0] == s->view->nrows)
		return;
	c->dense =
		s->method == GPUVEC_METHOD_DENSE || (s->method == GPUVEC_METHOD_AUTO && dense_pays(s, n));
	if (c->dense)
		c->lists = false;
}

/* Reserve scratch memory for the vectors of a chunk's queries, and for tiles */
void
lay_out_dense(const struct search *s, struct chunk *c, struct arena *at)
{
	if (!c->dense)
		return;
	c->query_bits[0] = at->used;
	for (uint32_t i = 1; i <= DENSE_CHUNKS; i++)
		c->query_bits[i] = at->reserve(s->view->dense_rows[i] > 0 ? query_bits_bytes(c->n, i) : 0);
	c->query_bits_end = at->used;
	c->dense_tiles = at->reserve(s->view->ntiles * sizeof(struct dense_tile));
}

/* Queue the making of the queries' vectors */
static bool
queue_query_bits(struct search *s, struct chunk *c)
{
	struct query_bits_params p;

	if (!s->check(cudaMemsetAsync(scratch_at<char>(s, c->query_bits[0]), 0,
								  c->query_bits_end - c->query_bits[0], s->stream)))
		return false;
	memset(&p, 0, sizeof(p));
	p.queries = scratch_at<struct query_state>(s, c->states);
	p.ids = scratch_at<uint16_t>(s, c->ids);
	p.nqueries = c->n;
	for (uint32_t i = 1; i <= DENSE_CHUNKS; i++)
	{
		p.words = scratch_at<uint32_t>(s, c->query_bits[i]);
		p.chunks = i;
		if (s->view->dense_rows[i] > 0 && !s->check(dense_query_bits(&p, s->stream)))
			return false;
	}
	return true;
}

/*
 * Tiles of a unit: dense_tiles, but fewer, though not less than a stage has, if
 * there are not 16 units or so for each block
 */
static uint32_t
unit_tiles(const struct search *s, const struct scan_params *p)
{
	double tiles = class_tiles(s, p->class_lo, p->class_hi);
	double most = tiles * p->nbatches / (16.0 * s->b->device.sms);

	return (uint32_t) std::min({std::max(most, 4.0), (double) s->policy.dense_tiles, 32.0});
}

/* Queue the counting of the segments whose vectors have so many chunks */
static bool
queue_dense(struct search *s, struct chunk *c, uint32_t chunks, uint32_t class_lo,
			uint32_t class_hi)
{
	struct dense_params p;

	memset(&p, 0, sizeof(p));
	if (!begin_scan(s, c, &p.scan, s->view->ngroups, class_lo, class_hi))
		return false;
	p.bits = scratch_at<uint4>(s, c->query_bits[chunks]);
	p.tiles = scratch_at<struct dense_tile>(s, c->dense_tiles);
	p.listed = p.scan.next_item;
	p.chunks = chunks;
	p.scan.nbatches = (uint32_t) divide_up(p.scan.nqueries, dense_batch());
	p.unit_tiles = unit_tiles(s, &p.scan);
	return s->check(dense_list(&p, s->stream)) &&
		   s->check(dense_launch(&p, s->b->device.shared_limit, (uint32_t) s->b->device.sms,
								 s->stream));
}

/* Queue the counting of classes class_lo .. class_hi - 1 */
static bool
queue_dense_round(struct search *s, struct chunk *c, uint32_t class_lo, uint32_t class_hi)
{
	for (uint32_t i = 1; i <= DENSE_CHUNKS; i++)
		if (s->view->dense_rows[i] > 0 && !queue_dense(s, c, i, class_lo, class_hi))
			return false;
	return s->view->dense_rows[0] == 0 || queue_scan(s, c, s->view->ngroups, class_lo, class_hi);
}

/* Queue all rounds of a chunk that is counted by bit vectors */
bool
queue_dense_rounds(struct search *s, struct chunk *c)
{
	uint32_t ends[MAX_ROUNDS];
	uint32_t nrounds = plan_rounds(s, c, ends);
	bool fast = c->kmax <= GPUVEC_FAST_K;

	s->b->stats.dense_chunks++;
	if (!queue_query_bits(s, c))
		return false;
	for (uint32_t i = 0; i < nrounds; i++)
		if (!queue_dense_round(s, c, i > 0 ? ends[i - 1] : 0, ends[i]) ||
			!queue_select(s, c, fast && i + 1 == nrounds ? SELECT_FINAL : SELECT_ROUND))
			return false;
	return true;
}

} // namespace gpuvec
