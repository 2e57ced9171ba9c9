/*-------------------------------------------------------------------------
 *
 * chunk_kernels.cu
 *	  Queues the kernels that scan, select and sort for a chunk of queries.
 *
 * All are queued in one stream and waited for once (chunk_answers.cu).
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <string.h>

#include "kernels/search/chunk.h"

namespace gpuvec
{

/* Bits of the widest entries for which a scan's table fits shared memory */
static uint32_t
choose_entry_bits(const struct search_backend *b, uint32_t planes, uint32_t maxid)
{
	uint32_t bits = b->policy.entry_bits;

	while (bits > 8 && scan_shared_bytes(bits, planes, maxid) > b->device.shared_limit)
		bits /= 2;
	return bits;
}

/*
 * Choose the variant of the scan for the chunk, and find out how many of its
 * blocks run at once
 */
bool
choose_kernel(struct search *s, struct chunk *c, uint32_t planes)
{
	struct search_backend *b = s->b;
	int blocks = 0;

	if (s->scoring.sparse)
		return choose_sparse_kernel(s, c);
	c->planes = std::max(planes, s->policy.least_planes);
	c->entry_bits = c->counts ? SCAN_COUNT_BITS : choose_entry_bits(b, c->planes, s->view->maxid);
	c->shared_bytes = scan_shared_bytes(c->entry_bits, c->planes, s->view->maxid);
	c->batch = c->entry_bits;
	if (!s->check(scan_blocks(c->entry_bits, c->planes, c->counts, c->shared_bytes, &blocks),
				  "prepare a search"))
		return false;
	c->blocks = (uint32_t) std::max(blocks, 1) * b->device.sms;
	b->stats.entry_bits = c->entry_bits;
	b->stats.planes = c->planes;
	return true;
}

/* Set all item counters to zero, and use them again */
bool
reset_counters(struct search *s, struct chunk *c)
{
	c->launches = 0;
	return s->check(cudaMemsetAsync(scratch_at<char>(s, c->counters), 0,
									sizeof(uint32_t) * MAX_ROUNDS, s->stream));
}

/*
 * Number of tiles in classes class_lo .. class_hi - 1.  The view's tiles are
 * counted by class only when this is needed.
 */
uint32_t
class_tiles(const struct search *s, uint32_t class_lo, uint32_t class_hi)
{
	if (class_lo == 0 && class_hi == TILE_CLASSES)
		return s->view->ntiles;
	count_classes(s->view);
	return s->view->tiles_before[class_hi] - s->view->tiles_before[class_lo];
}

/*
 * Cut a scan by blocks of so many warps into items.  An item should be large:
 * making its table must take little time beside it.  But there should be 4
 * items or more for each block.
 */
static void
cut_items(const struct search *s, uint32_t blocks, uint32_t warps, struct scan_params *p)
{
	const struct cuda_view *view = s->view;
	uint32_t tiles = class_tiles(s, p->class_lo, p->class_hi);
	double per_group = 32.0 * std::max(tiles, 1u) / view->ntiles;
	double groups = s->policy.item_tiles / per_group;
	double most = (double) p->ngroups * p->nbatches / (4.0 * blocks);

	groups = std::min(std::max(std::min(groups, most), 1.0), (double) p->ngroups);
	p->range_groups = (uint32_t) groups;
	p->nitems = (p->ngroups + p->range_groups - 1) / p->range_groups * p->nbatches;

	/*
	 * If few tiles are in the classes, a warp takes more tiles at a time.
	 * But there must be work for all warps of the block.
	 */
	p->grab = 1;
	while (p->grab * per_group / 32.0 < s->policy.grab &&
		   p->grab * 2 * warps <= p->range_groups * 32)
		p->grab *= 2;
}

/*
 * Fill in what all ways of counting tiles need to know for classes class_lo
 * .. class_hi - 1 of the first ngroups groups; *p is 0.  The round is not cut
 * into items yet.
 */
bool
begin_scan(struct search *s, struct chunk *c, struct scan_params *p, uint32_t ngroups,
		   uint32_t class_lo, uint32_t class_hi)
{
	struct search_backend *b = s->b;

	if (c->launches == MAX_ROUNDS && !reset_counters(s, c))
		return false;
	p->segments = s->view->segments;
	p->groups = s->view->groups;
	p->queries = scratch_at<struct query_state>(s, c->states);
	p->ids = scratch_at<uint16_t>(s, c->ids);
	p->candidates = scratch_at<struct row_key>(s, c->candidates);
	p->next_item = scratch_at<uint32_t>(s, c->counters) + c->launches++;
	p->stop = (const uint32_t *) b->stop.get();
	p->ngroups = ngroups;
	p->nqueries = c->n;
	p->capacity = c->capacity;
	p->class_lo = class_lo;
	p->class_hi = class_hi;
	p->maxid = s->view->maxid;
	p->scoring = s->scoring;
	p->sparse = chunk_weights(s, c);
	p->counts = chunk_counts(s, c);
	b->stats.rounds++;
	return true;
}

/*
 * Tiles of a round that scans all queries together, at least: each of its
 * warps is busy with a tile for long
 */
double
together_tiles(const struct search *s, const struct chunk *c)
{
	return s->policy.together_percent / 100.0 * c->together_blocks * c->together;
}

/* Queue a scan of all queries together.  False: there are too few tiles. */
static bool
scan_together(struct search *s, struct chunk *c, struct scan_params *p, cudaError_t *rc)
{
	if (class_tiles(s, p->class_lo, p->class_hi) < together_tiles(s, c))
		return false;
	s->b->stats.together_rounds++;
	s->b->stats.masked_rounds += c->mask != NULL;
	p->nbatches = 1;
	p->mask = c->mask;
	p->stride = sparse_batch_stride(c->n);
	cut_items(s, c->together_blocks, c->together, p);
	*rc = sparse_batch_launch(p, c->together, c->together_bytes,
							  std::min(c->together_blocks, p->nitems), s->stream);
	return true;
}

/*
 * Queue the scan of classes class_lo .. class_hi - 1 of the first ngroups
 * groups; if `plain`, only of segments without bit vectors
 */
bool
queue_scan(struct search *s, struct chunk *c, uint32_t ngroups, uint32_t class_lo,
		   uint32_t class_hi, bool plain)
{
	struct scan_params p;
	cudaError_t rc;

	memset(&p, 0, sizeof(p));
	if (!begin_scan(s, c, &p, ngroups, class_lo, class_hi))
		return false;
	p.plain = plain;
	p.nbatches = (c->n + c->batch - 1) / c->batch;
	if (c->together > 0 && scan_together(s, c, &p, &rc))
		return s->check(rc);
	cut_items(s, c->blocks,
			  (s->scoring.sparse ? sparse_scan_threads() : scan_threads(c->planes)) / 32, &p);
	if (s->scoring.sparse)
		return s->check(sparse_scan_launch(&p, c->whole, c->counts, c->shared_bytes,
										   std::min(c->blocks, p.nitems), s->stream));
	return s->check(scan_launch(&p, c->entry_bits, c->planes, c->counts, c->shared_bytes,
								std::min(c->blocks, p.nitems), s->stream));
}

/* Queue the selection after a round */
bool
queue_select(struct search *s, struct chunk *c, enum select_mode mode)
{
	struct search_backend *b = s->b;
	struct select_params p;

	memset(&p, 0, sizeof(p));
	p.queries = scratch_at<struct query_state>(s, c->states);
	p.candidates = scratch_at<struct row_key>(s, c->candidates);
	p.top_in = scratch_at<struct row_key>(s, c->top[c->which]);
	p.top_out = scratch_at<struct row_key>(s, c->top[1 - c->which]);
	p.results = scratch_at<struct row_key>(s, c->results);
	if (c->direct && mode == SELECT_FINAL)
	{
		p.results = (struct row_key *) b->download.get();
		p.states = (struct query_state *) (b->download.get() + (c->states - c->results));
	}
	p.nqueries = c->n;
	p.capacity = c->capacity;
	p.kmax = c->kmax;
	p.mode = mode;
	p.tables = chunk_tables(s, c);
	if (mode == SELECT_ROUND)
		c->which = 1 - c->which;
	return s->check(select_launch(&p, s->stream));
}

/* Queue the sorting of lists that are too long for SELECT_FINAL */
bool
queue_sort(struct search *s, struct chunk *c)
{
	struct sort_params p;
	uint32_t width = 0;

	memset(&p, 0, sizeof(p));
	p.queries = scratch_at<struct query_state>(s, c->states);
	p.nqueries = c->n;
	p.kmax = c->kmax;
	while (width < c->kmax)
	{
		p.in = scratch_at<struct row_key>(s, c->top[c->which]);
		p.out = scratch_at<struct row_key>(s, c->top[1 - c->which]);
		p.width = width;
		if (!s->check(sort_launch(&p, s->stream)))
			return false;
		c->which = 1 - c->which;
		width = width == 0 ? SORT_RUN : width * 2;
	}
	return true;
}

} // namespace gpuvec
