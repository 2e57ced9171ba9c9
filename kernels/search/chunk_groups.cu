/*-------------------------------------------------------------------------
 *
 * chunk_groups.cu
 *	  Puts the rows that a query counts into groups.
 *
 * The kernels that count rows mark them, too.  Then each segment's marked rows
 * are counted in bins (group_rows.cu), which the host makes groups of by the
 * keys of its segments (engine/groups.h).  If rows are grouped by one column,
 * as most are, and there is room, the device does (group_merge.cu).
 *
 * By the ids of sets, there is a counter for each number of the view's rows
 * (group_ids.cu).  The host makes groups of those that are not 0.
 *
 * There may be far more bins than rows.  If a segment has too many, or if all
 * of them would take too much of the workspace, the host makes groups of the
 * marked rows, one by one: it has their codes, too.  It has no ids: a query is
 * not answered if their counters would take too much.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <memory>
#include <string.h>

#include "kernels/search/chunk.h"

namespace gpuvec
{

/* What bins take that are merged: two keys, and two numbers of rows */
#define PAIR_BYTES (4 * sizeof(uint64_t))

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

/* The numbers of a view's rows are below this */
static uint64_t
end_of_numbers(const struct search *s)
{
	uint64_t end = (uint64_t) s->view->maxid + 1;

	for (uint32_t i = 0; i < s->view->nsegments; i++)
	{
		const gpuvec_segment *segment = s->given->entries[i].segment;

		if (segment->ngroups > 0)
			end = std::max(end, ((uint64_t) segment->cold_groups[segment->ngroups - 1].upper + 1)
									<< 16);
	}
	return end;
}

/* Choose how rows are grouped by columns, where words of bins have room */
static void
plan_bins(const struct search *s, struct chunk *c, uint64_t room)
{
	bool fit = true;

	for (uint32_t i = 0; i < s->view->nsegments && fit; i++)
	{
		uint64_t words = segment_words(s, c, i);

		c->bin_words += words;
		fit = words > 0 && c->bin_words <= room;
	}
	if (!fit)
	{
		c->group_way = GROUPS_OF_ROWS;
		c->bin_words = 0;
	}
	else if (c->grouping->nkeys == 1 && c->grouping->nvalues == 0 &&
			 c->bin_words <= s->policy.workspace / 4 / PAIR_BYTES && c->bin_words <= INT32_MAX)
		c->group_way = GROUPS_MERGED;
}

/*
 * Find out how the rows of a chunk that counts are put into groups, if they
 * are.  Returns false if they cannot be.
 */
bool
plan_groups(const struct search *s, struct chunk *c)
{
	const gpuvec_topk_query *query = chunk_query(c, 0)->query;
	uint64_t room = s->policy.workspace / 4 / sizeof(uint32_t);

	if (query->grouping == NULL || query->counts.bytes == 0)
		return true;
	c->grouping = query->grouping;
	if (gpuvec_groups_ids(c->grouping))
	{
		c->group_way = GROUPS_OF_NUMBERS;
		c->bin_words = end_of_numbers(s);
		return c->bin_words <= room;
	}
	plan_bins(s, c, room);
	return true;
}

/* Reserve scratch memory for marks, bins or counters, and pairs of bins */
void
lay_out_groups(const struct search *s, struct chunk *c, struct arena *at)
{
	uint64_t npairs = c->group_way == GROUPS_MERGED ? c->bin_words : 0;

	c->marks = at->reserve(c->grouping ? sizeof(uint32_t) * s->view->ntiles : 0);
	c->bins = at->reserve(sizeof(uint32_t) * c->bin_words);
	for (int i = 0; i < 2; i++)
	{
		c->pair_keys[i] = at->reserve(sizeof(uint64_t) * npairs);
		c->pair_rows[i] = at->reserve(sizeof(uint64_t) * npairs);
	}
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

static struct merge_params
merge_params_of(const struct search *s, const struct chunk *c)
{
	struct merge_params p;

	memset(&p, 0, sizeof(p));
	p.segments = s->view->segments;
	p.segment_bins = scratch_at<struct segment_bins>(s, c->segment_bins);
	p.bins = scratch_at<uint32_t>(s, c->bins);
	p.sums = scratch_at<struct group_sums>(s, c->group_sums);
	for (int i = 0; i < 2; i++)
	{
		p.keys[i] = scratch_at<uint64_t>(s, c->pair_keys[i]);
		p.rows[i] = scratch_at<uint64_t>(s, c->pair_rows[i]);
	}
	p.nsegments = s->view->nsegments;
	p.column = c->grouping->columns[0];
	return p;
}

/* Queue the clearing of marks, and of bins or counters, before the count */
bool
clear_groups(struct search *s, const struct chunk *c)
{
	struct group_params p;

	if (c->grouping == NULL)
		return true;
	if (!has_bins(c))
		return s->check(cudaMemsetAsync(scratch_at<char>(s, c->marks), 0,
										c->pair_keys[0] - c->marks, s->stream));
	p = group_params_of(s, c);
	return s->check(group_clear_launch(&p, s->stream));
}

/* Queue the counting of marked rows by the ids of their sets */
static bool
queue_ids(struct search *s, const struct chunk *c)
{
	struct search_backend *b = s->b;
	struct id_params p;
	int blocks = 0;

	memset(&p, 0, sizeof(p));
	p.segments = s->view->segments;
	p.groups = s->view->groups;
	p.cold_segments = s->view->cold_segments;
	p.marks = scratch_at<uint32_t>(s, c->marks);
	p.counts = scratch_at<uint32_t>(s, c->bins);
	p.ngroups = s->view->ngroups;
	p.ncold_segments = s->view->ncold_segments;
	group_ids_share(&p, s->view->maxid + 1, s->policy.id_counters, b->device.shared_limit);
	b->stats.id_groups++;
	b->stats.global_ids += p.nshared <= s->view->maxid;
	return s->check(group_ids_blocks(&p, &blocks), "prepare a search") &&
		   s->check(group_ids_launch(&p,
									 std::min(s->policy.id_blocks, (uint32_t) std::max(blocks, 1) *
																	   (uint32_t) b->device.sms),
									 s->stream));
}

/* Queue the counting of marked rows in bins, and what is made of these */
static bool
queue_bins(struct search *s, const struct chunk *c)
{
	struct group_params p;
	struct merge_params merge;
	uint64_t shared = 0;
	bool wide = false;

	for (uint32_t i = 0; i < s->view->nsegments; i++)
	{
		uint64_t words = segment_words(s, c, i);

		shared = std::max(shared, words * bin_copies(words));
		wide |= bin_copies(words) == 0;
	}
	s->b->stats.wide_groups += wide;
	s->b->stats.merged_groups += c->group_way == GROUPS_MERGED;
	p = group_params_of(s, c);
	if (!s->check(group_rows_launch(&p, shared * sizeof(uint32_t), s->stream)))
		return false;
	if (c->group_way != GROUPS_MERGED)
		return true;
	merge = merge_params_of(s, c);
	return s->check(group_pairs_launch(&merge, s->stream));
}

/* Queue what the device makes of marked rows, if anything */
bool
queue_groups(struct search *s, const struct chunk *c)
{
	if (c->grouping == NULL)
		return true;
	s->b->stats.grouped_counts++;
	s->b->stats.row_groups += c->group_way == GROUPS_OF_ROWS;
	return has_bins(c)                         ? queue_bins(s, c)
		   : c->group_way == GROUPS_OF_NUMBERS ? queue_ids(s, c)
											   : true;
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

/* Make groups of the counters of all numbers; false: out of memory */
static bool
add_numbers(const struct chunk *c, gpuvec_groups *groups, const uint32_t *counts)
{
	return gpuvec_groups_add_ids(groups, 0, counts, (uint32_t) c->bin_words);
}

/* Copy the bins of all segments, or counters, and make groups of them */
static bool
take_bins(struct search *s, const struct chunk *c, gpuvec_groups *groups)
{
	size_t bytes = sizeof(uint32_t) * c->bin_words;
	std::unique_ptr<uint32_t[]> bins(new (std::nothrow) uint32_t[c->bin_words]);

	if (bins == NULL)
		return gpuvec_fail_memory(s->error, bytes);
	if (!copy_back(s, c, bins.get(), c->bins, bytes))
		return false;
	return s->stopped ||
		   (has_bins(c) ? add_bins(s, c, groups, bins.get())
						: add_numbers(c, groups, bins.get())) ||
		   gpuvec_fail_memory(s->error, bytes);
}

/* Make groups of the marked rows of all segments; false: out of memory */
static bool
add_rows(const struct search *s, const struct chunk *c, gpuvec_groups *groups,
		 const uint32_t *marks)
{
	const gpuvec_topk_query *query = chunk_query(c, 0)->query;

	for (uint32_t i = 0; i < s->view->nsegments && !is_canceled(query); i++)
		for (uint32_t tile = 0; tile < s->view->segment_tiles[i] && !groups->too_many; tile++)
			if (!gpuvec_groups_add_rows(groups, columns_of(s, i), tile * GPUVEC_TILE_ROWS,
										*marks++))
				return false;
	return true;
}

/* Copy the marks, and make groups of the rows that have one */
static bool
take_rows(struct search *s, const struct chunk *c, gpuvec_groups *groups)
{
	size_t bytes = sizeof(uint32_t) * s->view->ntiles;
	std::unique_ptr<uint32_t[]> marks(new (std::nothrow) uint32_t[s->view->ntiles]);

	if (marks == NULL)
		return gpuvec_fail_memory(s->error, bytes);
	if (!copy_back(s, c, marks.get(), c->marks, bytes))
		return false;
	return s->stopped || add_rows(s, c, groups, marks.get()) || gpuvec_fail_memory(s->error, bytes);
}

/*
 * Make groups of n pairs, which are then at *to in the scratch memory's pairs;
 * finds out how many they are
 */
static bool
merge_pairs(struct search *s, const struct chunk *c, uint32_t n, uint32_t *ngroups, uint32_t *to)
{
	struct merge_params p = merge_params_of(s, c);
	struct grown_memory &memory = s->b->merging;
	size_t bytes = 0;

	*ngroups = 0;
	if (n == 0)
		return true;
	return s->check(group_merge(&p, n, NULL, &bytes, to, s->stream)) &&
		   need_memory(s, memory, bytes) &&
		   s->check(group_merge(&p, n, memory.get<void>(), &bytes, to, s->stream)) &&
		   copy_back(s, c, ngroups, c->group_sums + offsetof(struct group_sums, ngroups),
					 sizeof(*ngroups));
}

/* Add groups of one key each, not null, to none or that of nulls */
static bool
add_keys(gpuvec_groups *groups, const uint64_t *keys, const uint64_t *rows, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
	{
		const uint64_t group[] = {rows[i], 0, keys[i]};

		if (!gpuvec_groups_append(groups, group))
			return false;
	}
	return true;
}

/* Make groups of the pairs that bins have become */
static bool
take_pairs(struct search *s, const struct chunk *c, const struct group_sums *sums,
		   gpuvec_groups *groups)
{
	const uint64_t nulls[] = {sums->null_rows, 1, 0};
	std::unique_ptr<uint64_t[]> words;
	uint32_t n;
	uint32_t to = 0;

	if (!merge_pairs(s, c, sums->npairs, &n, &to))
		return false;
	if (s->stopped)
		return true;
	groups->too_many = n > GPUVEC_MOST_GROUPS;
	if (groups->too_many)
		return true;
	words.reset(new (std::nothrow) uint64_t[2 * n]);
	if (words == NULL)
		return gpuvec_fail_memory(s->error, 2 * n * sizeof(uint64_t));
	if (!copy_back(s, c, words.get(), c->pair_keys[to], n * sizeof(uint64_t)) ||
		!copy_back(s, c, words.get() + n, c->pair_rows[to], n * sizeof(uint64_t)))
		return false;
	return s->stopped ||
		   ((sums->null_rows == 0 || gpuvec_groups_append(groups, nulls)) &&
			add_keys(groups, words.get(), words.get() + n, n)) ||
		   gpuvec_fail_memory(s->error, 2 * n * sizeof(uint64_t));
}

/*
 * Give a query its groups, once the kernels have ended.  If it is canceled
 * meanwhile, some are missing.
 */
bool
take_groups(struct search *s, const struct chunk *c, const struct group_sums *sums,
			gpuvec_topk_query *query)
{
	query->groups = gpuvec_groups_new(c->grouping);
	if (query->groups == NULL)
		return gpuvec_fail_memory(s->error, sizeof(gpuvec_groups));
	return c->group_way == GROUPS_MERGED    ? take_pairs(s, c, sums, query->groups)
		   : c->group_way == GROUPS_OF_ROWS ? take_rows(s, c, query->groups)
											: take_bins(s, c, query->groups);
}

} // namespace gpuvec
