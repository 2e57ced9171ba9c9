/*-------------------------------------------------------------------------
 *
 * chunk_filters.cu
 *	  The filters of a search: their masks (filter_masks.cu), and the queries
 *	  whose rows are gathered (gather.cu).
 *
 * Before anything else the masks of all filters are made, unless they were
 * kept (kept_masks.h), and their rows are counted.  The host waits for the
 * numbers, some 10 us: they decide how each query is searched.
 *
 *	- No row passes: not at all.
 *	- Few pass: they are listed, and counted one by one.
 *	- Else scans and lists leave out rows that are not in the mask.  They do
 *	  so before candidates are emitted, and before a sample chooses the rows
 *	  with the highest counts.  So all bounds come from rows that pass.
 *
 * Masks of very many filters do not fit at once: topk.cu searches for as many
 * queries at a time as there is room for.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <stdlib.h>
#include <string.h>

#include "kernels/search/chunk.h"

namespace gpuvec
{

/* True if a query needs a mask; see needs_mask() of engine/cpu/filters.c */
static bool
needs_mask(const struct search *s, const gpuvec_topk_query *query)
{
	return query->filter.n > 0 ||
		   (s->view->null_sets && (s->scoring.sparse || gpuvec_ranks_disjoint(s->scoring.measure)));
}

size_t
filters_at_once(const struct search *s)
{
	return s->policy.workspace / 8 / std::max(s->view->ntiles * sizeof(uint32_t), (size_t) 1);
}

/* The filters of a search whose masks are to be made */
struct new_filters
{
	uint32_t n;
	uint32_t *numbers; /* [n] in s->filters */
	const gpuvec_filter *const *all;

	const gpuvec_filter *
	operator[](uint32_t i) const
	{
		return all[numbers[i]];
	}
};

/* Where the slices of the filters' memory begin */
struct filter_layout
{
	size_t specs;
	size_t conditions;
	size_t values;
	size_t counts;
	size_t masks;
	size_t bytes;
};

static struct filter_layout
lay_out_filters(const struct search *s, const struct new_filters &made)
{
	struct filter_layout at;
	struct arena arena = {NULL, 0};
	size_t nconditions = 0;
	size_t nvalues = 0;

	for (uint32_t i = 0; i < made.n; i++)
	{
		nconditions += made[i]->n;
		nvalues += made[i]->nvalues;
	}
	at.specs = arena.reserve(made.n * sizeof(struct filter_spec));
	at.conditions = arena.reserve(nconditions * sizeof(gpuvec_condition));
	at.values = arena.reserve(nvalues * sizeof(uint64_t));
	at.counts = arena.reserve(made.n * sizeof(uint2));
	at.masks = arena.used;
	at.bytes = at.masks + (size_t) made.n * s->view->ntiles * sizeof(uint32_t);
	return at;
}

/* The number of a filter's expression of ids among its conditions */
static uint32_t
match_number(const gpuvec_filter *filter)
{
	const gpuvec_condition *match = gpuvec_filter_match(filter);

	return match == NULL ? NO_MATCH : (uint32_t) (match - filter->conditions);
}

/* Write the filters for the device, with counts of 0 */
static void
fill_filters(const struct new_filters &made, const struct filter_layout *at, char *to)
{
	struct filter_spec *specs = (struct filter_spec *) (to + at->specs);
	gpuvec_condition *conditions = (gpuvec_condition *) (to + at->conditions);
	uint64_t *values = (uint64_t *) (to + at->values);
	uint32_t condition = 0;
	uint32_t value = 0;

	for (uint32_t i = 0; i < made.n; i++)
	{
		const gpuvec_filter *filter = made[i];

		specs[i] = {condition, filter->n, value, gpuvec_wants_null_sets(filter),
					match_number(filter)};
		if (filter->n > 0)
			memcpy(conditions + condition, filter->conditions, filter->n * sizeof(*conditions));
		if (filter->nvalues > 0)
			memcpy(values + value, filter->values, filter->nvalues * sizeof(*values));
		condition += filter->n;
		value += filter->nvalues;
	}
	memset(to + at->counts, 0, at->masks - at->counts);
}

/* Queue the making of masks */
static bool
queue_masks(struct search *s, const struct new_filters &made, const struct filter_layout *at)
{
	const char *memory = s->b->filters.get<char>();
	struct mask_params p;

	memset(&p, 0, sizeof(p));
	p.segments = s->view->segments;
	p.filters = (const struct filter_spec *) (memory + at->specs);
	p.conditions = (const gpuvec_condition *) (memory + at->conditions);
	p.values = (const uint64_t *) (memory + at->values);
	p.counts = (uint2 *) (memory + at->counts);
	p.masks = (uint32_t *) (memory + at->masks);
	p.nfilters = made.n;
	for (uint32_t i = 0; i < made.n; i++)
		p.matches |= match_number(made[i]) != NO_MATCH;
	p.nsegments = s->view->nsegments;
	p.nslices = mask_slices();
	p.ntiles = s->view->ntiles;
	return s->check(masks_launch(&p, s->stream));
}

/*
 * Take the counts of the masks that were made from b->download, and keep masks
 * for later
 */
static bool
take_counts(struct search *s, const struct new_filters &made, const struct filter_layout *at)
{
	const uint2 *counts = (const uint2 *) s->b->download.get();
	const uint32_t *masks = (const uint32_t *) (s->b->filters.get<char>() + at->masks);
	size_t ntiles = s->view->ntiles;

	for (uint32_t i = 0; i < made.n; i++)
	{
		struct filter_rows *rows = &s->filters[made.numbers[i]];

		rows->npassed = counts[i].x;
		rows->nrows = counts[i].y;
		rows->mask = masks + i * ntiles;
		if (!keep_mask(s->b, &s->view->kept, made[i], rows->mask, ntiles, counts[i], s->error))
			return false;
	}
	return true;
}

/* Make masks, and wait for the counts */
static bool
make_masks(struct search *s, const struct new_filters &made)
{
	struct search_backend *b = s->b;
	struct filter_layout at = lay_out_filters(s, made);
	size_t counts = made.n * sizeof(uint2);

	if (!need_memory(s, b->filters, at.bytes) ||
		!need_pinned(s, b->upload, b->upload_bytes, at.masks) ||
		!need_pinned(s, b->download, b->download_bytes, counts))
		return false;
	fill_filters(made, &at, b->upload.get());
	return s->check(cudaMemcpyAsync(b->filters.get<char>(), b->upload.get(), at.masks,
									cudaMemcpyHostToDevice, s->stream),
					"copy filters to the GPU") &&
		   queue_masks(s, made, &at) &&
		   s->check(cudaMemcpyAsync(b->download.get(), b->filters.get<char>() + at.counts, counts,
									cudaMemcpyDeviceToHost, s->stream),
					"copy results from the GPU") &&
		   wait_for_device(s, NULL) && take_counts(s, made, &at);
}

/* Find the masks that were kept, and make the others */
static bool
find_masks(struct search *s, const gpuvec_equal_filters *equal)
{
	struct kept_masks *kept = &s->view->kept;
	struct new_filters made = {0, (uint32_t *) malloc(equal->n * sizeof(uint32_t)), equal->filters};
	bool ok = true;

	if (made.numbers == NULL)
		return gpuvec_fail_memory(s->error, equal->n * sizeof(uint32_t));
	kept->searches++;
	for (uint32_t i = 0; i < equal->n; i++)
	{
		const struct kept_mask *mask = find_kept_mask(kept, equal->filters[i]);
		struct filter_rows *rows = &s->filters[i];

		if (mask == NULL)
			made.numbers[made.n++] = i;
		else
		{
			rows->npassed = mask->counts.x;
			rows->nrows = mask->counts.y;
			rows->mask = (const uint32_t *) mask->bits.get();
		}
	}
	s->b->stats.filters += equal->n;
	s->b->stats.kept_filters += equal->n - made.n;
	if (made.n > 0)
		ok = make_masks(s, made);
	free(made.numbers);
	return ok;
}

/* Choose the filters whose rows are gathered */
static void
choose_gathered(struct search *s, uint32_t n)
{
	s->nlisted = 0;
	for (uint32_t i = 0; i < n; i++)
	{
		struct filter_rows *rows = &s->filters[i];

		rows->gathered = rows->nrows <= s->policy.gather_rows;
		rows->first = (uint32_t) s->nlisted;
		if (rows->gathered)
			s->nlisted += rows->nrows;
	}
}

/* List the rows of the filters that are gathered */
static bool
list_rows(struct search *s, uint32_t n)
{
	struct search_backend *b = s->b;
	size_t lists = s->nlisted * sizeof(uint2);
	size_t used = lists + n * sizeof(struct row_list);
	struct gather_params p;
	struct row_list *list;

	if (!need_memory(s, b->listed, used + n * sizeof(uint32_t)) ||
		!need_pinned(s, b->lists, b->lists_bytes, n * sizeof(struct row_list)))
		return false;
	memset(&p, 0, sizeof(p));
	list = (struct row_list *) b->lists.get();
	for (uint32_t i = 0; i < n; i++)
		if (s->filters[i].gathered && s->filters[i].nrows > 0)
			list[p.nlists++] = {s->filters[i].mask, s->filters[i].first};
	p.segments = s->view->segments;
	p.rows = (uint2 *) b->listed.get<char>();
	p.lists = (const struct row_list *) (b->listed.get<char>() + lists);
	p.used = (uint32_t *) (b->listed.get<char>() + used);
	p.nsegments = s->view->nsegments;
	s->listing = true;
	return s->check(cudaMemcpyAsync(b->listed.get<char>() + lists, list,
									p.nlists * sizeof(struct row_list), cudaMemcpyHostToDevice,
									s->stream),
					"copy filters to the GPU") &&
		   s->check(cudaMemsetAsync(p.used, 0, n * sizeof(uint32_t), s->stream)) &&
		   s->check(list_rows_launch(&p, s->stream));
}

/*
 * Find the rows that pass the filters of the queries: fills in numbers[], and
 * s->filters
 */
static bool
find_rows(struct search *s, const gpuvec_topk_query *queries, uint32_t nqueries,
		  gpuvec_equal_filters *equal)
{
	for (uint32_t i = 0; i < nqueries; i++)
		s->filter_of[i] =
			needs_mask(s, &queries[i]) ? gpuvec_equal_filter(equal, &queries[i].filter) : NO_FILTER;
	if (s->view->ntiles == 0)
	{
		choose_gathered(s, equal->n);
		return true;
	}
	if (!find_masks(s, equal))
		return false;
	choose_gathered(s, equal->n);
	return s->nlisted == 0 || list_rows(s, equal->n);
}

/* True if some query needs a mask */
static bool
any_mask(const struct search *s, const gpuvec_topk_query *queries, uint32_t nqueries)
{
	for (uint32_t i = 0; i < nqueries; i++)
		if (needs_mask(s, &queries[i]))
			return true;
	return false;
}

bool
begin_filters(struct search *s, const gpuvec_topk_query *queries, uint32_t nqueries)
{
	gpuvec_equal_filters equal;
	bool ok;

	s->filters = NULL;
	s->filter_of = NULL;
	if (!any_mask(s, queries, nqueries))
		return true;
	ok = gpuvec_equal_filters_init(&equal, nqueries);
	s->filters = (struct filter_rows *) calloc(nqueries, sizeof(struct filter_rows));
	s->filter_of = (uint32_t *) malloc(nqueries * sizeof(uint32_t));
	if (!ok || s->filters == NULL || s->filter_of == NULL)
		ok = gpuvec_fail_memory(s->error, nqueries * sizeof(struct filter_rows));
	else
		ok = find_rows(s, queries, nqueries, &equal);
	gpuvec_equal_filters_free(&equal);
	return ok;
}

void
fill_filter(const struct work_query *w, struct query_state *state)
{
	const struct filter_rows *rows = w->filter;

	if (rows == NULL)
		return;
	state->limits.mask = rows->mask;
	state->rows = rows->first;
	state->nrows = rows->nrows;
	state->disjoint = w->query->disjoint && w->query->filter.n > 0;
}

bool
queue_gather(struct search *s, struct chunk *c)
{
	struct search_backend *b = s->b;
	struct gather_params p;
	uint32_t most = 0;

	for (uint32_t i = 0; i < c->n; i++)
		most = std::max(most, chunk_query(c, i)->filter->nrows);
	memset(&p, 0, sizeof(p));
	p.segments = s->view->segments;
	p.queries = scratch_at<struct query_state>(s, c->states);
	p.ids = scratch_at<uint16_t>(s, c->ids);
	p.candidates = scratch_at<struct row_key>(s, c->candidates);
	p.rows = (uint2 *) b->listed.get<char>();
	p.nqueries = c->n;
	p.nslices = (uint32_t) divide_up(most, GATHER_SLICE);
	p.capacity = c->capacity;
	p.scoring = s->scoring;
	p.sparse = chunk_weights(s, c);
	p.counts = chunk_counts(s, c);
	b->stats.gathered += c->n;
	return s->check(gather_launch(&p, c->counts, s->stream));
}

} // namespace gpuvec
