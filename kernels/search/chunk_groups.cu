/*-------------------------------------------------------------------------
 *
 * chunk_groups.cu
 *	  Puts the rows that a query counts into groups.
 *
 * The kernels that count rows mark them, too.  Then each segment's marked rows
 * are counted in bins (group_rows.cu), which the host makes groups of by the
 * keys of its segments (engine/groups.h).
 *
 * There may be far more bins than rows.  A query is not answered if a segment
 * has too many, or if all of them would take too much of the workspace.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <memory>
#include <string.h>

#include "kernels/search/chunk.h"

namespace gpuvec
{

static const gpuvec_filter_column *
columns_of(const struct search *s, uint32_t segment)
{
	return s->given->entries[segment].segment->filters;
}

/* The words of a segment's bins; 0: they are too many */
static uint64_t
segment_words(const struct search *s, const struct chunk *c, uint32_t segment)
{
	return gpuvec_bin_words(c->grouping, gpuvec_group_bins(c->grouping, columns_of(s, segment)));
}

/*
 * Find out how the rows of a chunk that counts are put into groups, if they
 * are.  Returns false if there are too many bins.
 */
bool
plan_groups(const struct search *s, struct chunk *c)
{
	const gpuvec_topk_query *query = chunk_query(c, 0)->query;
	uint64_t most = s->policy.workspace / 4 / sizeof(uint32_t);

	if (query->grouping == NULL || query->counts.bytes == 0)
		return true;
	c->grouping = query->grouping;
	for (uint32_t i = 0; i < s->view->nsegments; i++)
	{
		uint64_t words = segment_words(s, c, i);

		c->bin_words += words;
		if (words == 0 || c->bin_words > most)
			return false;
	}
	return true;
}

/* Reserve scratch memory for marks and bins */
void
lay_out_groups(const struct search *s, struct chunk *c, struct arena *at)
{
	c->marks = at->reserve(c->grouping ? sizeof(uint32_t) * s->view->ntiles : 0);
	c->bins = at->reserve(sizeof(uint32_t) * c->bin_words);
}

/* Write down where the bins of each segment begin */
void
fill_groups(const struct search *s, const struct chunk *c, struct segment_bins *to)
{
	uint64_t first = 0;

	for (uint32_t i = 0; i < s->view->nsegments; i++)
	{
		uint32_t words = (uint32_t) segment_words(s, c, i);

		to[i] = {first, gpuvec_group_bins(c->grouping, columns_of(s, i)), words};
		first += words;
	}
}

static struct group_params
group_params_of(const struct search *s, const struct chunk *c)
{
	struct group_params p;

	memset(&p, 0, sizeof(p));
	p.segments = s->view->segments;
	p.segment_bins = scratch_at<struct segment_bins>(s, c->segment_bins);
	p.marks = scratch_at<uint32_t>(s, c->marks);
	p.bins = scratch_at<uint32_t>(s, c->bins);
	p.nsegments = s->view->nsegments;
	p.grouping = *c->grouping;
	return p;
}

/* Queue the clearing of marks and bins, before rows are counted */
bool
clear_groups(struct search *s, const struct chunk *c)
{
	struct group_params p;

	if (c->grouping == NULL)
		return true;
	p = group_params_of(s, c);
	return s->check(group_clear_launch(&p, s->stream));
}

/* Queue the counting of marked rows in bins */
bool
queue_groups(struct search *s, const struct chunk *c)
{
	struct group_params p;
	uint64_t shared = 0;
	bool wide = false;

	if (c->grouping == NULL)
		return true;
	for (uint32_t i = 0; i < s->view->nsegments; i++)
	{
		uint64_t words = segment_words(s, c, i);

		shared = std::max(shared, words * bin_copies(words));
		wide |= bin_copies(words) == 0;
	}
	s->b->stats.grouped_counts++;
	s->b->stats.wide_groups += wide;
	p = group_params_of(s, c);
	return s->check(group_rows_launch(&p, shared * sizeof(uint32_t), s->stream));
}

/* Make groups of the bins of all segments; false: out of memory */
static bool
add_bins(const struct search *s, const struct chunk *c, gpuvec_groups *groups, const uint32_t *bins)
{
	const gpuvec_topk_query *query = chunk_query(c, 0)->query;

	for (uint32_t i = 0; i < s->view->nsegments && !groups->too_many && !is_canceled(query); i++)
	{
		if (!gpuvec_groups_add_bins(groups, columns_of(s, i), bins,
									gpuvec_group_bins(c->grouping, columns_of(s, i))))
			return false;
		bins += segment_words(s, c, i);
	}
	return true;
}

/*
 * Give a query its groups, once the kernels have ended.  If it is canceled
 * meanwhile, some are missing.
 */
bool
take_groups(struct search *s, const struct chunk *c, gpuvec_topk_query *query)
{
	size_t bytes = sizeof(uint32_t) * c->bin_words;
	std::unique_ptr<uint32_t[]> bins(new (std::nothrow) uint32_t[c->bin_words]);

	if (bins == NULL || (query->groups = gpuvec_groups_new(c->grouping)) == NULL)
		return gpuvec_fail_memory(s->error, bytes);
	if (!copy_back(s, c, bins.get(), c->bins, bytes))
		return false;
	return s->stopped || add_bins(s, c, query->groups, bins.get()) ||
		   gpuvec_fail_memory(s->error, bytes);
}

} // namespace gpuvec
