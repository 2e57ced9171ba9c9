/*-------------------------------------------------------------------------
 *
 * chunk_counts.cu
 *	  Queries that count the rows of some pages, and list the tids of others.
 *
 * Such a query is a chunk of its own.  The kernels are those of other queries,
 * but a row that ranks is no candidate: it is counted or listed at once
 * (count_rows() in emit.cuh).  The least score is the bound from the first row
 * on, so there is one round of all rows, without a sample or a selection.
 *
 * All rows that take part have a score by hamming.  Without a least score they
 * are those of the mask, and no id is read (mask_rows.cu).
 *
 * A query is not answered (GPUVEC_NOT_COUNTED) if more tids are to be listed
 * than there is room for, if its table of rows that share cold numbers is too
 * small, or if there are too many groups (chunk_groups.cu).
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <stdlib.h>
#include <string.h>

#include "kernels/search/chunk.h"

namespace gpuvec
{

/* Tids that come with the count, and bytes that are copied at a time */
#define FIRST_TIDS 1024
#define STEP_BYTES ((size_t) 4 << 20)

/* What the kernels of a chunk that counts rows need; else nothing */
struct row_counts
chunk_counts(const struct search *s, const struct chunk *c)
{
	struct row_counts counts = {};

	if (!c->counts)
		return counts;
	counts.pages = scratch_at<uint8_t>(s, c->pages);
	counts.page_bytes = chunk_query(c, 0)->query->counts.bytes;
	counts.counted = scratch_at<uint32_t>(s, c->counted);
	counts.tids = scratch_at<uint64_t>(s, c->tids);
	counts.capacity = c->capacity;
	counts.partition_bits = s->view->partition_bits;
	if (!c->every)
		counts.cold = chunk_tables(s, c);
	if (c->grouping)
		counts.marks = scratch_at<uint32_t>(s, c->marks);
	return counts;
}

/* Queue the counting of all rows that take part */
static bool
queue_every(struct search *s, const struct chunk *c)
{
	struct mask_rows_params p;

	memset(&p, 0, sizeof(p));
	p.segments = s->view->segments;
	p.groups = s->view->groups;
	p.query = scratch_at<struct query_state>(s, c->states);
	p.stop = (const uint32_t *) s->b->stop.get();
	p.ngroups = s->view->ngroups;
	p.counts = chunk_counts(s, c);
	s->b->stats.every_counts++;
	return s->check(mask_rows_launch(&p, s->stream));
}

/* Queue all kernels of a chunk that counts rows */
static bool
queue_count(struct search *s, struct chunk *c)
{
	if (c->every)
		return queue_every(s, c);
	if (c->ncold > 0 && !queue_cold(s, c, 0, TILE_CLASSES))
		return false;
	s->b->stats.cold_counts += c->ncold > 0;
	return c->gathered ? queue_gather(s, c)
		   : c->lists  ? queue_list_rounds(s, c)
					   : queue_scan(s, c, s->view->ngroups, 0, TILE_CLASSES, false);
}

/* Queue a copy to pinned memory */
static bool
queue_copy(struct search *s, size_t to, size_t from, size_t bytes)
{
	return s->check(cudaMemcpyAsync(s->b->download.get() + to, scratch_at<char>(s, from), bytes,
									cudaMemcpyDeviceToHost, s->stream),
					"copy results from the GPU");
}

/*
 * Copy bytes of the scratch memory back, through pinned memory.  If the query
 * is canceled meanwhile, some are missing.
 */
bool
copy_back(struct search *s, const struct chunk *c, void *to, size_t from, size_t bytes)
{
	struct search_backend *b = s->b;
	size_t step;

	for (size_t done = 0; done < bytes && !s->stopped; done += step)
	{
		step = std::min(bytes - done, STEP_BYTES);
		if (!need_pinned(s, b->download, b->download_bytes, step) ||
			!queue_copy(s, 0, from + done, step) || !wait_for_device(s, c))
			return false;
		memcpy((char *) to + done, b->download.get(), step);
	}
	return true;
}

/*
 * Give a query its n tids, the first ones of which are at an offset of pinned
 * memory
 */
static bool
take_tids(struct search *s, const struct chunk *c, gpuvec_topk_query *query, size_t first,
		  uint32_t n)
{
	uint32_t taken = std::min(n, (uint32_t) FIRST_TIDS);

	query->tids = (uint64_t *) malloc(n * sizeof(uint64_t));
	if (query->tids == NULL)
		return gpuvec_fail_memory(s->error, n * sizeof(uint64_t));
	memcpy(query->tids, s->b->download.get() + first, taken * sizeof(uint64_t));
	query->nmatches = n;
	return copy_back(s, c, query->tids + taken, c->tids + taken * sizeof(uint64_t),
					 (n - taken) * sizeof(uint64_t));
}

/* Do not answer a query */
static void
refuse_count(struct search *s, gpuvec_topk_query *query)
{
	gpuvec_free_unordered(query);
	query->nmatches = 0;
	query->counted = GPUVEC_NOT_COUNTED;
	s->b->stats.refused_counts++;
}

/* Take the answer from the pinned memory to which its head was copied */
static bool
take_count(struct search *s, const struct chunk *c)
{
	const char *head = s->b->download.get();
	const struct query_state *state =
		(const struct query_state *) (head + (c->states - c->results));
	const uint32_t *counted = (const uint32_t *) (head + (c->counted - c->results));
	/* a copy: the pinned memory is used for tids */
	struct group_sums sums = *(const struct group_sums *) (head + (c->group_sums - c->results));
	gpuvec_topk_query *query = chunk_query(c, 0)->query;
	uint32_t n = state->count;

	if (n > c->capacity || (c->ncold > 0 && !c->every && state->cold_full))
	{
		refuse_count(s, query);
		return true;
	}
	query->ranked_disjoint = c->gathered && state->disjoint;
	for (uint32_t i = 0; i < COUNT_PLACES; i++)
		query->counted += counted[i * COUNT_STRIDE];
	if (n > 0 && !take_tids(s, c, query, c->counters - c->results, n))
		return false;
	if (c->grouping == NULL || query->counted == 0 || s->stopped)
		return true;
	if (!take_groups(s, c, &sums, query))
		return false;
	if (query->groups && query->groups->too_many)
		refuse_count(s, query);
	return true;
}

/* Wait for a chunk whose kernels are queued, and answer its query */
static bool
end_count(struct search *s, struct chunk *c)
{
	struct search_backend *b = s->b;
	size_t head = c->counters - c->results;
	size_t first = std::min(c->capacity, (uint32_t) FIRST_TIDS) * sizeof(uint64_t);
	gpuvec_topk_query *query = chunk_query(c, 0)->query;

	if (!need_pinned(s, b->download, b->download_bytes, head + first) ||
		!queue_copy(s, 0, c->results, head) || !queue_copy(s, head, c->tids, first) ||
		!wait_for_device(s, c) || (!s->stopped && !take_count(s, c)))
		return false;
	b->stats.stopped_chunks += s->stopped;
	if (s->stopped)
	{
		gpuvec_free_unordered(query);
		query->nmatches = 0;
		query->counted = 0;
	}
	return clear_stop(s);
}

/* Answer a query that counts rows */
bool
run_count(struct search *s, struct work_query *w)
{
	struct chunk c;

	memset(&c, 0, sizeof(c));
	if (is_canceled(w->query))
		return true;
	c.work = w;
	c.n = 1;
	c.counts = true;
	c.again = true;
	c.every =
		!s->scoring.sparse && gpuvec_ranks_disjoint(s->scoring.measure) && !w->query->has_min_score;
	c.gathered = w->filter && w->filter->gathered;
	c.lists = !c.every && !c.gathered && lists_pay(s, w);
	c.list_planes = planes_for(s, w->query->len);
	c.capacity = fit_capacity(s, s->policy.workspace / 4 / sizeof(uint64_t));
	s->b->stats.counts++;
	if (!plan_groups(s, &c))
	{
		refuse_count(s, w->query);
		return true;
	}
	if (!choose_kernel(s, &c, w->kind & 1 ? 17 : 8))
		return false;
	lay_out(s, &c);
	note_way(&c);
	return need_memory(s, s->b->scratch, c.bytes) && upload_chunk(s, &c) && clear_groups(s, &c) &&
		   queue_count(s, &c) && queue_groups(s, &c) && end_count(s, &c);
}

} // namespace gpuvec
