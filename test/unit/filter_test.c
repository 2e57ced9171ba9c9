/*-------------------------------------------------------------------------
 *
 * filter_test.c
 *	  Test of filter columns: staging, segments, merging, and searches with
 *	  filters, against a loop over all rows.
 *
 * Whether a row passes is written again here, on values instead of codes.
 *
 * Compiled with FILTER_TEST_GPU it tests the CUDA backend, which may be
 * emulated (search.mk, cuda.mk): with an argument "full" more of it.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cpu_backend.h"
#include "engine/sets/draft.h"
#include "engine/sets/id_numbers.h"
#include "test_groups.h"
#include "test_weights.h"
#include "unit_test.h"
#include "test_match.h"
#ifdef FILTER_TEST_GPU
#include "search_met.h"
#endif

#define LONGEST		24
#define MOST_VALUES	400
#define NQUERIES	24
#define MOST_CONDITIONS	5
#define PAGE_ROWS	30			/* rows of a page */
#define MOST_PAGES	8192

/* A row as it should be found */
typedef struct model_row
{
	uint64_t	tid;
	uint32_t	len;
	uint32_t	ids[LONGEST];	/* numbers; those from GPUVEC_HOT_NUMBERS on
								 * are cold */
	bool		null_set;
	bool		dead;
	bool		null[GPUVEC_MAX_FILTERS];
	uint64_t	key[GPUVEC_MAX_FILTERS];
} model_row;

/* What a table is like */
typedef struct table_kind
{
	uint32_t	n;
	uint32_t	nfilters;
	uint32_t	vocabulary;
	bool		cold;			/* rows have cold numbers */
	bool		null_sets;
	uint32_t	pieces;			/* it is built in */
} table_kind;

typedef struct table
{
	table_kind	kind;
	model_row  *rows;			/* in the order of tid */
} table;

/* A query, with room for what it points to */
typedef struct test_query
{
	gpuvec_topk_query q;
	uint16_t	hot[LONGEST];
	uint32_t	cold[LONGEST];
	uint32_t	ids[LONGEST];	/* all numbers */
	uint32_t	nids;
	test_weights weights;
	gpuvec_condition conditions[MOST_CONDITIONS];
	uint64_t	values[MOST_VALUES];
	test_match	match;			/* a condition's, if it has nodes */
	uint8_t		pages[MOST_PAGES / 4];	/* whose rows are counted */
	gpuvec_grouping grouping;	/* of these, if q.grouping is there */
} test_query;

/* ---- tables ---- */

/* A random set of numbers, ascending; few numbers make many ties */
static uint32_t
random_ids(const table_kind *kind, uint32_t *ids)
{
	uint32_t	n = (uint32_t) random_below(LONGEST / 2 + 1);
	uint32_t	len = 0;

	for (uint32_t i = 0; i < n; i++)
	{
		uint32_t	id = (uint32_t) random_below(random_below(kind->vocabulary) + 1);
		uint32_t	j = 0;

		if (kind->cold && random_below(4) == 0)
			id += GPUVEC_HOT_NUMBERS;
		while (j < len && ids[j] < id)
			j++;
		if (j < len && ids[j] == id)
			continue;
		memmove(ids + j + 1, ids + j, (len - j) * sizeof(uint32_t));
		ids[j] = id;
		len++;
	}
	return len;
}

/* A key of a column; each column has another distribution */
static uint64_t
random_key(uint32_t column, uint32_t row)
{
	switch (column % 7)
	{
		case 0:
			return (UINT64_C(1) << 63) + random_below(10) - 5;
		case 1:
			return random_below(random_below(1000) + 1);
		case 2:
			return random64();
		case 3:
			return UINT64_C(1) << random_below(64) | UINT64_C(1) << random_below(64);
		case 4:
			return 42;
		case 5:
			return row;
		default:
			return random_below(2) ? 0 : UINT64_MAX - random_below(3);
	}
}

static table
make_table(table_kind kind)
{
	table		t = {.kind = kind,.rows = calloc(kind.n, sizeof(model_row))};

	for (uint32_t i = 0; i < kind.n; i++)
	{
		model_row  *row = &t.rows[i];

		row->tid = gpuvec_tid(i / PAGE_ROWS, i % PAGE_ROWS + 1);
		row->null_set = kind.null_sets && random_below(10) == 0;
		row->len = row->null_set ? 0 : random_ids(&kind, row->ids);
		row->dead = random_below(8) == 0;
		for (uint32_t c = 0; c < kind.nfilters; c++)
		{
			/* column 14 is always null */
			row->null[c] = c == 13 || (c % 2 == 1 && random_below(12) == 0);
			row->key[c] = row->null[c] ? 0 : random_key(c, i);
		}
	}
	return t;
}

static void
filter_keys_of(const model_row *row, uint32_t nfilters, uint64_t *filter_keys)
{
	filter_keys[0] = row->null_set;
	for (uint32_t c = 0; c < nfilters; c++)
	{
		filter_keys[0] |= (uint64_t) row->null[c] << (c + 1);
		filter_keys[c + 1] = row->key[c];
	}
}

/* ---- segments ---- */

static bool
no_progress(void *arg, size_t built, size_t staged, gpuvec_error *error)
{
	(void) arg;
	(void) built;
	(void) staged;
	(void) error;
	return true;
}

/* Build segments of all rows of a stage, and free it */
static void
build_stage(gpuvec_draft *draft, gpuvec_stage *stage)
{
	gpuvec_stage_target target = {
		.pool = draft->pool,.backend = draft->backend,.nblocks = UINT32_MAX,
		.nrows = gpuvec_stage_rows(stage),.shares = 2,.progress = no_progress
	};
	gpuvec_error error;

	check(target.nrows == 0 || gpuvec_draft_build(draft, stage, &target, &error), "segments are built");
	gpuvec_stage_free(stage);
}

/* Stage the rows first .. end - 1, and build segments of them */
static void
build_rows(gpuvec_draft *draft, const table *t, uint32_t first, uint32_t end)
{
	gpuvec_stage *stage = gpuvec_stage_new((gpuvec_row_kind) {.nfilters = t->kind.nfilters});
	uint16_t	packed[2 * LONGEST + 2];
	char		filter_keys[(GPUVEC_MAX_FILTERS + 1) * 8 + 4];
	uint64_t	aligned[GPUVEC_MAX_FILTERS + 1];
	gpuvec_error error;
	bool		ok = true;

	for (uint32_t i = first; i < end; i++)
	{
		gpuvec_source_row row = {.tid = t->rows[i].tid};

		gpuvec_pack_numbers(t->rows[i].ids, t->rows[i].len, packed, &row);
		filter_keys_of(&t->rows[i], t->kind.nfilters, aligned);
		/* filter keys need not be aligned */
		memcpy(filter_keys + 4, aligned, (t->kind.nfilters + 1) * sizeof(uint64_t));
		row.filter_keys = t->kind.nfilters > 0 ? filter_keys + 4 : NULL;
		ok &= gpuvec_stage_add(stage, &row, false, &error);
	}
	check(ok, "rows are staged");
	build_stage(draft, stage);
}

static const model_row *
find_row(const table *t, uint64_t tid)
{
	return &t->rows[gpuvec_tid_block(tid) * PAGE_ROWS + gpuvec_tid_line(tid) - 1];
}

/* Delete the dead rows */
static void
bury_dead(gpuvec_draft *draft, const table *t)
{
	gpuvec_error error;

	for (uint32_t i = 0; i < draft->n; i++)
		for (uint32_t row = 0; row < draft->entries[i].segment->nrows; row++)
			if (find_row(t, draft->entries[i].segment->tid[row])->dead)
				gpuvec_entry_bury(&draft->entries[i], row, &error);
	gpuvec_draft_drop_dead(draft);
}

static uint64_t dead_rows;		/* of all views */

/* Check the filter keys of all rows of a view; returns how many are live */
static uint64_t
check_filter_keys(const gpuvec_view *view, const table *t)
{
	uint64_t	live = 0;
	bool		right = true;

	for (uint32_t e = 0; e < view->nentries; e++)
		for (uint32_t row = 0; row < view->entries[e].segment->nrows; row++)
		{
			uint64_t	want[GPUVEC_MAX_FILTERS + 1];
			uint64_t	got[GPUVEC_MAX_FILTERS + 1];

			filter_keys_of(find_row(t, view->entries[e].segment->tid[row]), t->kind.nfilters, want);
			gpuvec_segment_filter_keys(view->entries[e].segment, row, got);
			right &= memcmp(want, got, (t->kind.nfilters + 1) * sizeof(uint64_t)) == 0;
			live += gpuvec_entry_live(&view->entries[e], row);
			dead_rows += !gpuvec_entry_live(&view->entries[e], row);
		}
	check(right, "words of a view's rows");
	return live;
}

#ifdef FILTER_TEST_GPU

/* What all searches have done */
static struct gpuvec_search_stats met;

/* Views with segments that have lists and others that have none */
static uint64_t mixed_views;

/* True if the GPU is of the one kind that counts by bit vectors */
static bool multiplies_bits;

/* With more ids none is common in a table: lists are counted in bytes */
#define UNCOMMON	1000

/*
 * The segments that are built next have lists in blocks of some size, or
 * none, and bit vectors if their ids allow it, or none.  Do they have lists?
 */
static bool
vary_segments(gpuvec_backend *backend, const table_kind *kind)
{
	static const uint32_t shifts[] = {0, 12, 16};
	struct gpuvec_search_policy policy = gpuvec_search_policy_get(backend);

	policy.list_rows = random_below(3) == 0 ? UINT32_MAX : 1;
	policy.list_shift = kind->vocabulary > UNCOMMON ? 16 : shifts[random_below(3)];
	policy.dense_rows = 1;
	policy.dense_fraction = UINT32_MAX;
	policy.dense_ids = random_below(2) ? GPUVEC_HOT_NUMBERS : 0;
	gpuvec_search_policy_set(backend, &policy);
	return policy.list_rows == 1;
}

#else

static bool
vary_segments(gpuvec_backend *backend, const table_kind *kind)
{
	(void) backend;
	(void) kind;
	return true;
}

#endif

static gpuvec_view *
make_view(gpuvec_backend *backend, gpuvec_thread_pool *pool, const table *t)
{
	gpuvec_draft draft = {.backend = backend,.pool = pool};
	uint32_t	listed = 0;
	gpuvec_error error;
	gpuvec_view *view;

	for (uint32_t i = 0; i < t->kind.pieces; i++)
	{
		listed += vary_segments(backend, &t->kind);
		build_rows(&draft, t, (uint64_t) t->kind.n * i / t->kind.pieces,
				   (uint64_t) t->kind.n * (i + 1) / t->kind.pieces);
	}
#ifdef FILTER_TEST_GPU
	mixed_views += listed > 0 && listed < t->kind.pieces;
#endif
	bury_dead(&draft, t);
	view = gpuvec_draft_finish(&draft, &error);
	check(view != NULL, "a view");
	gpuvec_draft_free(&draft);
	return view;
}

/* A view with the same live rows, merged */
static gpuvec_view *
merge_view(gpuvec_backend *backend, gpuvec_thread_pool *pool, const gpuvec_view *view,
		   uint32_t nfilters)
{
	gpuvec_draft draft = {.backend = backend,.pool = pool};
	gpuvec_stage *stage = gpuvec_stage_new((gpuvec_row_kind) {.nfilters = nfilters});
	gpuvec_error error;
	gpuvec_view *merged;

	check(gpuvec_draft_copy(&draft, view, &error) &&
		  gpuvec_draft_unbuild(&draft, 0, NULL, stage, &error), "segments are taken apart");
	build_stage(&draft, stage);
	merged = gpuvec_draft_finish(&draft, &error);
	check(merged != NULL, "a merged view");
	gpuvec_draft_free(&draft);
	return merged;
}

/* ---- queries ---- */

static int
compare_values(const void *a, const void *b)
{
	uint64_t	x = *(const uint64_t *) a;
	uint64_t	y = *(const uint64_t *) b;

	return x < y ? -1 : x > y;
}

/* A key that the column may have, or one beside it */
static uint64_t
some_key(const table *t, uint32_t column)
{
	const model_row *row = &t->rows[random_below(t->kind.n)];
	uint64_t	key = row->key[column - 1];

	switch (random_below(8))
	{
		case 0:
			return key + 1;
		case 1:
			return key - 1;
		case 2:
			return random64();
		default:
			return key;
	}
}

/* Add a list of keys to a condition */
static void
random_list(const table *t, test_query *q, gpuvec_condition *c)
{
	static const uint32_t sizes[] = {0, 1, 2, 3, 9, 20, 60};
	uint32_t	n = sizes[random_below(7)];
	uint32_t	kept = 0;
	uint64_t   *values = q->values + q->q.filter.nvalues;

	if (q->q.filter.nvalues + n > MOST_VALUES)
		n = 0;
	for (uint32_t i = 0; i < n; i++)
		values[i] = some_key(t, c->column);
	qsort(values, n, sizeof(uint64_t), compare_values);
	for (uint32_t i = 0; i < n; i++)
		if (i == 0 || values[i] != values[i - 1])
			values[kept++] = values[i];
	c->first = q->q.filter.nvalues;
	c->n = kept;
	q->q.filter.nvalues += kept;
}

/* An expression of numbers, some of which no row has */
static void
random_match(const table *t, test_query *q, gpuvec_condition *c)
{
	static const uint32_t sizes[] = {0, 1, 2, 3, 3, 5, 8, GPUVEC_MOST_MATCH_IDS};
	uint32_t	n = sizes[random_below(8)];
	test_match *match = &q->match;

	memset(match, 0, sizeof(*match));
	while (match->nids < n)
	{
		uint32_t	number = (uint32_t) random_below(random_below(t->kind.vocabulary + n) + 1);

		if (t->kind.cold && random_below(3) == 0)
			number += GPUVEC_HOT_NUMBERS;
		match_add_id(match, random_below(50) == 0 ? GPUVEC_NO_NUMBER - (uint32_t) random_below(n) : number);
	}
	match_make_tree(match, 5);
	c->kind = GPUVEC_SET_MATCHES;
	c->first = q->q.filter.nvalues;
	c->n = match_values(match, q->values + c->first);
	c->low = match->nids;
	q->q.filter.nvalues += c->n;
}

static void
random_condition(const table *t, test_query *q, gpuvec_condition *c)
{
	uint32_t	column = (uint32_t) random_below(t->kind.nfilters + 1);

	memset(c, 0, sizeof(*c));
	/* those that the set is null, or not, are rare */
	if (q->match.n == 0 && q->q.filter.nvalues + MATCH_VALUES <= MOST_VALUES && random_below(3) == 0)
	{
		random_match(t, q, c);
		return;
	}
	if (column == 0 && t->kind.nfilters > 0 && random_below(4) > 0)
		column = 1;
	c->column = column;
	if (column == 0 || random_below(10) == 0)
	{
		c->kind = random_below(3) == 0 ? GPUVEC_IS_NULL : GPUVEC_IS_NOT_NULL;
		return;
	}
	c->kind = (uint32_t) (GPUVEC_KEY_BETWEEN + random_below(5));
	switch (c->kind)
	{
		case GPUVEC_KEY_BETWEEN:
			c->low = random_below(4) == 0 ? 0 : some_key(t, column);
			c->high = random_below(4) == 0 ? UINT64_MAX :
				random_below(4) == 0 ? c->low : some_key(t, column);
			if (c->low > c->high && random_below(8) > 0)
			{
				uint64_t	swap = c->low;

				c->low = c->high;
				c->high = swap;
			}
			break;
		case GPUVEC_KEY_ANY:
			random_list(t, q, c);
			break;
		case GPUVEC_KEY_WITHIN_BITS:
			c->low = ~(UINT64_C(1) << random_below(64) | UINT64_C(1) << random_below(64));
			break;
		default:
			c->low = random_below(6) == 0 ? 0 : UINT64_C(1) << random_below(64);
	}
}

static void
random_query(const table *t, test_query *q)
{
	const model_row *row = &t->rows[random_below(t->kind.n)];

	memset(q, 0, sizeof(*q));
	q->nids = random_ids(&t->kind, q->ids);
	if (random_below(3) == 0)
	{
		/* numbers of a row */
		q->nids = row->len;
		memcpy(q->ids, row->ids, sizeof(q->ids));
	}
	q->q.ids = q->hot;
	q->q.cold = q->cold;
	for (uint32_t i = 0; i < q->nids; i++)
	{
		if (q->ids[i] < GPUVEC_HOT_NUMBERS)
			q->hot[q->q.len++] = (uint16_t) q->ids[i];
		else
			q->cold[q->q.ncold++] = q->ids[i];
	}
	q->q.others = q->q.ncold + (uint32_t) random_below(3);
	q->q.filter.conditions = q->conditions;
	q->q.filter.values = q->values;
	q->q.filter.n = random_below(6) == 0 ? 0 : (uint32_t) random_below(random_below(4) + 1) + 1;
	for (uint32_t i = 0; i < q->q.filter.n; i++)
		random_condition(t, q, &q->conditions[i]);
	q->q.k = random_below(3) == 0 ? t->kind.n : (uint32_t) random_below(12) + 1;
	q->q.disjoint = random_below(2) == 0;
}

/* Some least score, and some position to begin behind */
static void
random_limits(gpuvec_measure measure, test_query *q)
{
	q->q.has_min_score = random_below(4) == 0;
	q->q.min_score = measure == GPUVEC_HAMMING ? -(double) random_below(9) : (double) random_below(5) / 4;
	q->q.has_after = random_below(4) == 0;
	q->q.after_score = measure == GPUVEC_HAMMING ? -(double) random_below(9) : (double) random_below(5) / 4;
	q->q.after_tid = gpuvec_tid(random_below(50), 3);
	/* as sessions ask: for what has any score, or is above 0 */
	if (is_sparse(measure) && random_below(2))
	{
		q->q.has_min_score = true;
		q->q.min_score = random_below(4) == 0 ? (double) random_below(5) - 3 : 0x1p-1074;
	}
}

/*
 * Let a query count the rows of some pages.  The upper bit of a page says
 * nothing, and the set may end before the table does.
 */
static void
random_pages(const table *t, test_query *q)
{
	uint32_t	bytes = (t->kind.n - 1) / PAGE_ROWS / 4 + 1;
	uint32_t	all = (uint32_t) random_below(5);

	for (uint32_t i = 0; i < bytes; i++)
		q->pages[i] = (uint8_t) (all == 0 ? 0xAA : all <= 2 ? 0x55 | random64() : random64());
	/* all pages but one */
	if (all == 2)
		q->pages[random_below(bytes)] &= (uint8_t) ~(1 << random_below(4) * 2);
	q->q.unordered = q->q.bare = true;
	q->q.k = UINT32_MAX;
	q->q.counts.bits = q->pages;
	q->q.counts.bytes = random_below(3) > 0 ? bytes : random_below(bytes + 1);
	if (random_below(2))
	{
		random_grouping(t->kind.nfilters, &q->grouping);
		q->q.grouping = &q->grouping;
	}
}

/* A query that all rows satisfy which pass its filter */
static void
ask_for_filter(test_query *q)
{
	q->nids = q->q.len = q->q.ncold = q->q.others = 0;
	q->q.has_min_score = false;
}

/* ---- what should be found ---- */

/* Does a row satisfy a condition? */
static bool
satisfies(const model_row *row, const test_query *q, const gpuvec_condition *c)
{
	const uint64_t *values = q->values;
	bool		null = c->column == 0 ? row->null_set : row->null[c->column - 1];
	uint64_t	key = c->column == 0 ? 0 : row->key[c->column - 1];
	bool		found = false;

	if (c->kind == GPUVEC_IS_NULL || c->kind == GPUVEC_IS_NOT_NULL)
		return null == (c->kind == GPUVEC_IS_NULL);
	if (null)
		return false;
	switch (c->kind)
	{
		case GPUVEC_SET_MATCHES:
			return match_holds(&q->match, 0, row->ids, row->len);
		case GPUVEC_KEY_BETWEEN:
			return c->low <= key && key <= c->high;
		case GPUVEC_KEY_ANY:
			for (uint32_t i = 0; i < c->n; i++)
				found |= values[c->first + i] == key;
			return found;
		case GPUVEC_KEY_SHARES_BITS:
			return (key & c->low) > 0;
		case GPUVEC_KEY_HAS_BITS:
			return (~key & c->low) == 0;
		default:
			return (key | c->low) == c->low;
	}
}

static bool
passes(const model_row *row, const test_query *q)
{
	bool		ok = true;

	for (uint32_t i = 0; i < q->q.filter.n; i++)
		ok &= satisfies(row, q, &q->conditions[i]);
	return ok;
}

static bool
asks_for_null_sets(const test_query *q)
{
	for (uint32_t i = 0; i < q->q.filter.n; i++)
		if (q->conditions[i].column == 0 && q->conditions[i].kind == GPUVEC_IS_NULL)
			return true;
	return false;
}

static uint32_t
common_ids(const model_row *row, const test_query *q)
{
	uint32_t	n = 0;

	for (uint32_t i = 0; i < row->len; i++)
		for (uint32_t j = 0; j < q->nids; j++)
			n += row->ids[i] == q->ids[j];
	return n;
}

/* The score of a row, by a measure of sparse vectors */
static double
sparse_score(gpuvec_measure measure, const model_row *row, const test_query *q)
{
	bool		shares[LONGEST] = {false};

	for (uint32_t i = 0; i < row->len; i++)
		for (uint32_t j = 0; j < q->nids; j++)
			shares[j] |= row->ids[i] == q->ids[j];
	return weighted_score(measure, &q->q, shares, row->len);
}

/* A measure, with weights if it is tversky */
static gpuvec_scoring
scoring_of(gpuvec_measure measure)
{
	gpuvec_scoring scoring = {.measure = measure,.tversky = gpuvec_make_tversky(0.5, 0.25)};

	return is_sparse(measure) ?
		gpuvec_sparse_scoring((gpuvec_sparse_measure) (measure - GPUVEC_WIRE_SPARSE)) : scoring;
}

/* All matches of a query, sorted; counts the rows that pass */
static uint32_t
all_matches(const table *t, gpuvec_measure measure, const test_query *q, bool disjoint,
			gpuvec_match *matches, uint64_t *npassed)
{
	uint32_t	n = 0;

	*npassed = 0;
	for (uint32_t i = 0; i < t->kind.n; i++)
	{
		const model_row *row = &t->rows[i];
		gpuvec_match match = {.tid = row->tid};
		gpuvec_shared shared = {.a = gpuvec_query_len(&q->q),.b = row->len};

		if (row->dead || !passes(row, q))
			continue;
		++*npassed;
		match.common = shared.common = common_ids(row, q);
		match.score = is_sparse(measure) ? sparse_score(measure, row, q) :
			gpuvec_score_with(scoring_of(measure), shared);
		if ((row->null_set && !asks_for_null_sets(q)) ||
			(match.common == 0 && measure != GPUVEC_HAMMING && !disjoint && !is_sparse(measure)) ||
			(q->q.has_min_score && match.score < q->q.min_score && !(disjoint && is_sparse(measure))) ||
			(q->q.has_after && (match.score > q->q.after_score ||
								(match.score == q->q.after_score && match.tid <= q->q.after_tid))))
			continue;
		matches[n++] = match;
	}
	qsort(matches, n, sizeof(*matches), compare_matches);
	return n;
}

static int
compare_tids(const void *x, const void *y)
{
	uint64_t	a = *(const uint64_t *) x;
	uint64_t	b = *(const uint64_t *) y;

	return a < b ? -1 : a > b;
}

/* Are the tids of an answer, in any order, those of n rows? */
static bool
same_tids(const gpuvec_topk_query *q, const gpuvec_match *rows, uint32_t n)
{
	uint64_t   *tids = malloc((n + 1) * sizeof(uint64_t));
	bool		same;

	for (uint32_t i = 0; i < n; i++)
		tids[i] = rows[i].tid;
	qsort(tids, n, sizeof(uint64_t), compare_tids);
	if (n > 0)
		qsort(q->tids, n, sizeof(uint64_t), compare_tids);
	same = n == 0 || memcmp(tids, q->tids, n * sizeof(uint64_t)) == 0;
	free(tids);
	return same;
}

/* Rows of a bare query, by what became of them */
static uint64_t counted_rows;
static uint64_t listed_rows;

/*
 * Leave out the rows that should be counted, of n; returns how many they are,
 * and adds them to grouped[]
 */
static uint64_t
leave_out_counted(const table *t, const test_query *q, gpuvec_match *rows, uint32_t *n,
				  grouped_row *grouped)
{
	uint64_t	counted = 0;

	for (uint32_t i = 0; i < *n; i++)
	{
		uint32_t	block = gpuvec_tid_block(rows[i].tid);

		if (block / 4 < q->q.counts.bytes && (q->pages[block / 4] >> (block % 4 * 2)) % 2)
		{
			const model_row *row = find_row(t, rows[i].tid);

			grouped[counted].nulls = 0;
			for (uint32_t c = 0; c < t->kind.nfilters; c++)
				grouped[counted].nulls |= (uint64_t) row->null[c] << (c + 1);
			grouped[counted].keys = row->key;
			grouped[counted].ids = row->ids;
			grouped[counted++].nids = row->len;
		}
		else
			rows[i - counted] = rows[i];
	}
	*n -= (uint32_t) counted;
	counted_rows += counted;
	listed_rows += q->q.bare ? *n : 0;
	return counted;
}

/* Tids that a query may list, or more; else it is not answered */
static uint64_t room_for_tids = UINT64_MAX;

/* The same of numbers that rows are counted by, to make groups */
static uint64_t room_for_numbers = UINT64_MAX;

/* Queries that count but were not answered: for lack of room for tids .. */
static uint64_t without_room;
static uint64_t without_groups; /* .. or for too many groups, or numbers .. */
static uint64_t without_table;	/* .. or for rows with cold numbers, .. */
static uint64_t refused;		/* .. or for any reason */

/* Queries whose groups were right, with more than one of them .. */
static uint64_t grouped_by[GPUVEC_N_WIRE_MEASURES];
static uint64_t grouped_way[GPUVEC_N_WAYS];
static uint64_t grouped_nulls;	/* .. one of which has a null */
static uint64_t grouped_ids;	/* .. by ids, with more than 20 of them .. */
static uint64_t grouped_cold;	/* .. some of them cold */

/* Are there more numbers of a table, dead rows included, than have room? */
static bool
has_many_numbers(const table *t)
{
	uint64_t	end = 0;

	for (uint32_t i = 0; i < t->kind.n; i++)
	{
		const model_row *row = &t->rows[i];
		uint64_t	last = row->len > 0 ? row->ids[row->len - 1] : 0;

		/* cold ones have room by 65,536 */
		if (last >= GPUVEC_HOT_NUMBERS)
			last |= 0xFFFF;
		end = last + 1 > end ? last + 1 : end;
	}
	return end > room_for_numbers;
}

/* May a query be refused of which n tids are to be listed? */
static bool
may_be_refused(const table *t, const test_query *q, uint32_t n, uint32_t ngroups)
{
	bool		no_groups = q->q.grouping &&
		(ngroups > gpuvec_most_groups(&q->grouping) ||
		 (gpuvec_groups_ids(&q->grouping) && has_many_numbers(t)));
	bool		no_room = !no_groups && n > room_for_tids;

	refused++;
	without_groups += no_groups;
	without_room += no_room;
	without_table += !no_groups && !no_room && q->q.ncold > 0;
	return q->q.nmatches == 0 && q->q.tids == NULL && q->q.groups == NULL &&
		(no_groups || no_room || q->q.ncold > 0);
}

/* Are the groups of an answer those of n rows? */
static bool
same_groups(gpuvec_measure measure, const test_query *q, grouped_row *rows, uint32_t n)
{
	const gpuvec_groups *found = q->q.groups;

	if (q->q.grouping == NULL)
		return found == NULL;
	if (!right_groups(&q->grouping, found, rows, n))
		return false;
	if (found == NULL || found->n < 2)
		return true;
	if (gpuvec_groups_ids(&q->grouping))
	{
		grouped_ids += found->n > 20;
		/* groups have been sorted */
		grouped_cold += found->words[(size_t) (found->n - 1) * 3 + 2] >= GPUVEC_HOT_NUMBERS;
	}
	grouped_by[measure]++;
	for (int way = 0; way < GPUVEC_N_WAYS; way++)
		grouped_way[way] += q->q.ways >> way & 1;
	/* nulls come last */
	grouped_nulls += found->words[(size_t) (found->n - 1) * gpuvec_group_words(&q->grouping) + 1] != 0;
	return true;
}

/* Is the answer of a query right?  Sorts one that may be in any order. */
static bool
right_answer(const table *t, gpuvec_measure measure, const test_query *q, gpuvec_match *matches)
{
	uint64_t	npassed;
	uint32_t	n = all_matches(t, measure, q, q->q.ranked_disjoint, matches, &npassed);
	grouped_row *grouped = malloc((n + 1) * sizeof(grouped_row));
	uint64_t	counted = leave_out_counted(t, q, matches, &n, grouped);
	bool		right;

	if (q->q.counted == GPUVEC_NOT_COUNTED)
	{
		right = may_be_refused(t, q, n, q->q.grouping ?
							   count_groups(&q->grouping, grouped, (uint32_t) counted) : 0);
		free(grouped);
		return right;
	}
	right = same_groups(measure, q, grouped, (uint32_t) counted);
	free(grouped);
	if (n > q->q.k)
		n = q->q.k;
	if (q->q.unordered && q->q.nmatches > 1 && !q->q.bare)
		qsort(q->q.matches, q->q.nmatches, sizeof(gpuvec_match), compare_matches);
	right &= q->q.nmatches == n && q->q.counted == counted &&
		q->q.passed == (q->q.filter.n > 0 ? npassed : GPUVEC_NOT_COUNTED) &&
		(!q->q.ranked_disjoint || (q->q.disjoint && q->q.filter.n > 0));
	/* rows that rank without a common id were gathered, all that pass */
	right &= !q->q.ranked_disjoint ||
		(q->q.ways & ~gpuvec_way_bit(GPUVEC_WAY_LISTS) & ~gpuvec_way_bit(GPUVEC_WAY_GATHERED)) == 0;
	right &= !q->q.ranked_disjoint || n + counted == 0 || q->q.ways != 0;
	if (q->q.bare)
		return right && same_tids(&q->q, matches, n);
	for (uint32_t i = 0; right && i < n; i++)
		right = matches[i].score == q->q.matches[i].score && matches[i].tid == q->q.matches[i].tid &&
			matches[i].common == q->q.matches[i].common;
	return right;
}

/* ---- searches ---- */

static uint64_t ranked_disjoint;
static uint64_t not_ranked;

/* Answers that have rows, to queries .. */
static uint64_t filtered[GPUVEC_N_WIRE_MEASURES];	/* with filters */
static uint64_t of_way[GPUVEC_N_WAYS];	/* that were answered in a way */
static uint64_t counted_by[GPUVEC_N_WIRE_MEASURES]; /* with rows that were
													 * counted, or whose tids
													 * were listed */
static uint64_t counted_way[GPUVEC_N_WAYS];
static uint64_t matched;		/* with expressions of ids, .. */
static uint64_t matched_counts; /* .. of rows that were counted or listed */
static uint64_t short_ones;		/* with fewer rows than were asked for */
static uint64_t behind_rows;	/* that begin behind a row */
static uint64_t by_cold;		/* by measures of sparse vectors, with cold
								 * numbers */

/* Count what an answer is an example of */
static void
count_answer(gpuvec_measure measure, const gpuvec_topk_query *q)
{
	if (q->bare && q->counted != GPUVEC_NOT_COUNTED && q->counted + q->nmatches > 0)
	{
		matched_counts += gpuvec_filter_match(&q->filter) != NULL;
		counted_by[measure]++;
		for (int way = 0; way < GPUVEC_N_WAYS; way++)
			counted_way[way] += q->ways >> way & 1;
	}
	if (q->nmatches == 0)
		return;
	filtered[measure] += q->filter.n > 0;
	matched += gpuvec_filter_match(&q->filter) != NULL;
	for (int way = 0; way < GPUVEC_N_WAYS; way++)
		of_way[way] += q->ways >> way & 1;
	short_ones += q->nmatches < q->k;
	behind_rows += q->has_after;
	by_cold += is_sparse(measure) && q->ncold > 0;
}

/* Search for n queries at once, in all ways */
static void
test_queries(gpuvec_backend *backend, const gpuvec_view *view, const table *t,
			 gpuvec_measure measure, test_query *queries, uint32_t n)
{
	const gpuvec_method methods[] = {
		random_below(2) ? GPUVEC_METHOD_AUTO : GPUVEC_METHOD_DENSE, GPUVEC_METHOD_BITSET, GPUVEC_METHOD_INVERTED
	};
	gpuvec_topk_query batch[NQUERIES];
	gpuvec_match *matches = malloc(t->kind.n * sizeof(gpuvec_match));
	gpuvec_match *found = malloc((size_t) n * t->kind.n * sizeof(gpuvec_match));
	gpuvec_scoring scoring = scoring_of(measure);
	gpuvec_error error;

	for (int m = 0; m < 3; m++)
	{
		bool		right;

		for (uint32_t i = 0; i < n; i++)
		{
			queries[i].q.matches = queries[i].q.unordered ? NULL : found + (size_t) i * t->kind.n;
			batch[i] = queries[i].q;
		}
		right = backend->topk(backend, view, &scoring, methods[m], batch, n, &error);
#ifdef FILTER_TEST_GPU
		add_search(&met, backend);
#endif
		for (uint32_t i = 0; i < n; i++)
		{
			queries[i].q = batch[i];
			right &= right_answer(t, measure, &queries[i], matches);
			gpuvec_free_unordered(&queries[i].q);
			count_answer(measure, &batch[i]);
			ranked_disjoint += batch[i].ranked_disjoint;
			not_ranked += batch[i].disjoint && batch[i].filter.n > 0 && !batch[i].ranked_disjoint;
		}
		check(right, "answers to queries with filters");
	}
	free(matches);
	free(found);
}

static void
test_searches(gpuvec_backend *backend, const gpuvec_view *view, const table *t, int rounds)
{
	static test_query queries[NQUERIES];

	for (int round = 0; round < rounds; round++)
	{
		gpuvec_measure measure = (gpuvec_measure) (round % GPUVEC_N_WIRE_MEASURES);
		uint32_t	n = round % 3 == 0 ? 1 : (uint32_t) random_below(NQUERIES) + 1;
		/* filters of a batch that are equal to the one before, in 3 */
		uint64_t	equal = random_below(2) == 0 ? 3 : 1;

		for (uint32_t i = 0; i < n; i++)
		{
			random_query(t, &queries[i]);
			random_limits(measure, &queries[i]);
			draw_weights(measure, &queries[i].q, &queries[i].weights);
			if (backend->takes_unordered && !queries[i].q.has_after && random_below(4) == 0)
			{
				queries[i].q.unordered = true;
				queries[i].q.bare = random_below(2) == 0;
				queries[i].q.k = UINT32_MAX;
				if (queries[i].q.bare && random_below(2) == 0)
					random_pages(t, &queries[i]);
			}
			else if (backend->takes_counts && !queries[i].q.has_after && random_below(6) == 0)
			{
				random_pages(t, &queries[i]);
				if (measure == GPUVEC_HAMMING && random_below(2))
					ask_for_filter(&queries[i]);
			}
			if (i > 0 && random_below(3) < equal)
			{
				memcpy(queries[i].conditions, queries[i - 1].conditions, sizeof(queries[i].conditions));
				memcpy(queries[i].values, queries[i - 1].values, sizeof(queries[i].values));
				queries[i].match = queries[i - 1].match;
				queries[i].q.filter.n = queries[i - 1].q.filter.n;
				queries[i].q.filter.nvalues = queries[i - 1].q.filter.nvalues;
			}
		}
		test_queries(backend, view, t, measure, queries, n);
	}
}

static void
test_table(gpuvec_backend *backend, gpuvec_thread_pool *pool, table_kind kind, int rounds)
{
	table		t = make_table(kind);
	gpuvec_view *view = make_view(backend, pool, &t);
	gpuvec_view *merged;
	uint64_t	live = check_filter_keys(view, &t);

	test_searches(backend, view, &t, rounds);
	merged = merge_view(backend, pool, view, kind.nfilters);
	check(check_filter_keys(merged, &t) == live, "rows of a merged view");
	test_searches(backend, merged, &t, rounds / 2);
	gpuvec_view_unref(view);
	gpuvec_view_unref(merged);
	free(t.rows);
}

/*
 * Count rows of tables whose last tile, block or segment is not full, or just
 * so
 */
static void
test_counts(gpuvec_backend *backend, gpuvec_thread_pool *pool, uint32_t around, int rounds)
{
	for (uint32_t n = around - 1; n <= around + 1; n++)
	{
		table		t = make_table((table_kind) {n, 2, 100, around > 32, true, 1});
		gpuvec_view *view = make_view(backend, pool, &t);
		static test_query queries[2];

		for (int round = 0; round < rounds; round++)
		{
			gpuvec_measure measure = (gpuvec_measure)
				(rounds < GPUVEC_N_WIRE_MEASURES ? random_below(GPUVEC_N_WIRE_MEASURES) :
				 (uint64_t) (round % GPUVEC_N_WIRE_MEASURES));

			for (int i = 0; i < 2; i++)
			{
				random_query(&t, &queries[i]);
				random_pages(&t, &queries[i]);
				/* what is refused does not say which rows would rank */
				queries[i].q.disjoint &= room_for_tids == UINT64_MAX;
				draw_weights(measure, &queries[i].q, &queries[i].weights);
				if (measure == GPUVEC_HAMMING && i == 0)
					ask_for_filter(&queries[i]);
			}
			test_queries(backend, view, &t, measure, queries, 1 + round % 2);
		}
		gpuvec_view_unref(view);
		free(t.rows);
	}
}

/* Put counted rows of a table into groups, by each measure */
static void
test_groups(gpuvec_backend *backend, gpuvec_thread_pool *pool, table_kind kind)
{
	table		t = make_table(kind);
	gpuvec_view *view = make_view(backend, pool, &t);
	static test_query queries[2];

	for (int round = 0; round < 2 * GPUVEC_N_WIRE_MEASURES; round++)
	{
		gpuvec_measure measure = (gpuvec_measure) (round % GPUVEC_N_WIRE_MEASURES);

		for (int i = 0; i < 2; i++)
		{
			random_query(&t, &queries[i]);
			random_limits(measure, &queries[i]);
			queries[i].q.has_after = false;
			draw_weights(measure, &queries[i].q, &queries[i].weights);
			random_pages(&t, &queries[i]);
			random_grouping(kind.nfilters, &queries[i].grouping);
			queries[i].q.grouping = &queries[i].grouping;
			if (measure == GPUVEC_HAMMING && random_below(2))
				ask_for_filter(&queries[i]);
		}
		test_queries(backend, view, &t, measure, queries, 1 + (uint32_t) random_below(2));
	}
	gpuvec_view_unref(view);
	free(t.rows);
}

/*
 * Count all rows of a table of two segments, each of which is a group by the
 * last column, or has one of few keys of the first one; with values of other
 * columns, and without
 */
static void
test_many_groups(gpuvec_backend *backend, gpuvec_thread_pool *pool, uint32_t n)
{
	table		t = make_table((table_kind) {n, 6, 4, false, false, 2});
	static test_query query;
	gpuvec_view *view;

	for (uint32_t i = 0; i < n; i++)
	{
		t.rows[i].dead = t.rows[i].null[5] = false;
		t.rows[i].key[5] = i;
	}
	view = make_view(backend, pool, &t);
	for (int i = 0; i < 4; i++)
	{
		random_query(&t, &query);
		random_pages(&t, &query);
		ask_for_filter(&query);
		query.q.filter.n = 0;
		memset(query.pages, 0x55, sizeof(query.pages));
		query.q.counts.bytes = sizeof(query.pages);
		query.grouping = (gpuvec_grouping) {.nkeys = 1,.columns = {i % 2 ? 1 : 6}};
		if (i < 2)
		{
			query.grouping.nvalues = 3;
			memcpy(query.grouping.columns + 1, (uint8_t[]) {3, 4, 6}, 3);
		}
		query.q.grouping = &query.grouping;
		test_queries(backend, view, &t, GPUVEC_HAMMING, &query, 1);
	}
	gpuvec_view_unref(view);
	free(t.rows);
}

/* Let a query count all rows, by the ids of their sets */
static void
ask_for_all_ids(const table *t, test_query *q)
{
	random_query(t, q);
	random_pages(t, q);
	ask_for_filter(q);
	q->q.filter.n = 0;
	memset(q->pages, 0x55, sizeof(q->pages));
	q->q.counts.bytes = sizeof(q->pages);
	q->grouping = (gpuvec_grouping) {.nkeys = 1,.columns = {GPUVEC_GROUPED_IDS}};
	q->q.grouping = &q->grouping;
}

/* Count all rows of a table by ids */
static void
test_all_ids(gpuvec_backend *backend, gpuvec_thread_pool *pool, const table *t)
{
	static test_query query;
	gpuvec_view *view = make_view(backend, pool, t);

	ask_for_all_ids(t, &query);
	test_queries(backend, view, t, GPUVEC_HAMMING, &query, 1);
	gpuvec_view_unref(view);
}

/* Two full segments, of whose ids four are in all rows */
static void
test_full_segments(gpuvec_backend *backend, gpuvec_thread_pool *pool)
{
	static const uint32_t all[] = {7, 1000, 40001, 65535};
	table		t = make_table((table_kind) {2 * GPUVEC_SEGMENT_ROWS, 1, 4, false, false, 2});

	for (uint32_t i = 0; i < t.kind.n; i++)
	{
		t.rows[i].dead = false;
		t.rows[i].len = 4;
		memcpy(t.rows[i].ids, all, sizeof(all));
	}
	test_all_ids(backend, pool, &t);
	free(t.rows);
}

/* As many groups of ids as there may be, and a row with `more` other ids */
static void
test_many_ids(gpuvec_backend *backend, gpuvec_thread_pool *pool, uint32_t more)
{
	const uint32_t len = GPUVEC_MOST_ID_GROUPS / GPUVEC_SEGMENT_ROWS;
	table		t = make_table((table_kind) {GPUVEC_SEGMENT_ROWS, 1, 4, false, false, 2});

	for (uint32_t i = 0; i < t.kind.n; i++)
	{
		t.rows[i].dead = false;
		t.rows[i].len = len + (i == 3 ? more : 0);
		for (uint32_t j = 0; j < len; j++)
			t.rows[i].ids[j] = j * GPUVEC_SEGMENT_ROWS + i;
	}
	for (uint32_t j = 0; j < more; j++)
		t.rows[3].ids[len + j] = len * GPUVEC_SEGMENT_ROWS + 5 * j;
	test_all_ids(backend, pool, &t);
	free(t.rows);
}

#ifdef FILTER_TEST_GPU

/* A way of searching that small tables would not take by themselves */
static struct gpuvec_search_policy
random_policy(const struct gpuvec_search_policy *usual)
{
	static const uint32_t gathered[] = {0, 1, 30, 200, 32768};
	struct gpuvec_search_policy policy = *usual;

	if (random_below(2))
		for (int i = 0; i < GPUVEC_LIST_FRACTIONS; i++)
			policy.list_fractions[i] = 1 + (uint32_t) random_below(100);
	policy.gather_rows = gathered[random_below(5)];
	if (random_below(3) == 0)
		policy.kept_bytes = random_below(2) ? 0 : 400;
	policy.lone_queries = random_below(2) ? usual->lone_queries : 0;
	policy.direct_queries = random_below(2) ? usual->direct_queries : 0;
	policy.scan_above = UINT32_MAX;
	policy.together_queries = random_below(3) == 0 ? UINT32_MAX : 2;
	policy.together_percent = policy.together_numbers = 0;
	policy.cold_slots = random_below(2) ? usual->cold_slots : 32;
	if (random_below(2))
	{
		/* many queries lose candidates, and are run again */
		policy.candidates = policy.candidates_few = 64;
		policy.candidates_per_k = policy.retry_per_k = 2;
		policy.retry_candidates = 128;
		policy.first_rows = 32;
	}
	if (random_below(3) == 0)
		policy.workspace = 1 << 20;
	policy.id_counters = random_below(2) ? usual->id_counters : 300;
	policy.id_blocks = random_below(2) ? usual->id_blocks : 1;
	return policy;
}

/*
 * Count rows with room for 64 tids, and for 32 rows that share cold numbers:
 * queries that have more are refused
 */
static void
test_room(gpuvec_backend *backend, gpuvec_thread_pool *pool, const struct gpuvec_search_policy *usual)
{
	struct gpuvec_search_policy policy = *usual;

	policy.workspace = 4 * 64 * sizeof(uint64_t);
	policy.cold_slots = policy.cold_slots_most = 32;
	gpuvec_search_policy_set(backend, &policy);
	room_for_tids = 64;
	room_for_numbers = 2 * room_for_tids;
	for (uint32_t around = 64; around <= 1024; around *= 4)
		test_counts(backend, pool, around, 2 * GPUVEC_N_WIRE_MEASURES);
	room_for_tids = UINT64_MAX;
}

/*
 * Make groups where the bins of 40,000 keys have room, but not to be merged.
 * Of four queries one has few keys, and no values.
 */
static void
test_room_to_merge(gpuvec_backend *backend, gpuvec_thread_pool *pool,
				   const struct gpuvec_search_policy *usual)
{
	struct gpuvec_search_policy policy = *usual;
	struct gpuvec_search_stats before = met;

	policy.workspace = 4 * 40000 * 30;
	room_for_numbers = policy.workspace / 4 / sizeof(uint32_t);
	gpuvec_search_policy_set(backend, &policy);
	test_many_groups(backend, pool, 40000);
	check(4 * (met.merged_groups - before.merged_groups) == met.grouped_counts - before.grouped_counts &&
		  met.merged_groups > before.merged_groups, "bins are merged if there is room");
}

/*
 * Count ids where a thread block counts more rows than 16 bits, and numbers
 * that all have counters in shared memory, or some
 */
static void
test_ids(gpuvec_backend *backend, gpuvec_thread_pool *pool, const struct gpuvec_search_policy *usual)
{
	struct gpuvec_search_policy policy = *usual;
	uint32_t	before = met.global_ids;

	test_full_segments(backend, pool);
	policy.id_blocks = 1;
	gpuvec_search_policy_set(backend, &policy);
	test_full_segments(backend, pool);
	test_many_ids(backend, pool, 0);
	policy.id_counters = 40001;
	gpuvec_search_policy_set(backend, &policy);
	test_full_segments(backend, pool);
	test_many_ids(backend, pool, 1);
	policy.id_counters = 300;
	gpuvec_search_policy_set(backend, &policy);
	test_groups(backend, pool, (table_kind) {1700, 0, 3000, true, false, 2});
	check(met.global_ids > before + 10, "shared memory has no room for some");
	gpuvec_search_policy_set(backend, usual);
}

/* Test the GPU, or its emulation, with many policies */
static void
test_gpu(gpuvec_thread_pool *pool, bool full)
{
	static const table_kind kinds[] = {
		{1, 1, 10, false, false, 1}, {700, 7, 30, false, true, 3}, {700, 15, 200, true, true, 2},
		{1700, 5, 20, true, false, 4}, {4200, 7, 100, false, true, 1}, {300, 0, 20, false, false, 2},
		/* most rows share cold numbers, and have few different scores */
		{500, 1, 8, true, false, 1},
		/* no number is common */
		{500, 4, 3000, false, true, 2}
	};
	gpuvec_backend_options options = {.device = 0};
	gpuvec_error error;
	gpuvec_backend *backend = gpuvec_cuda_open(&options, &error);
	gpuvec_backend_info info;
	struct gpuvec_search_policy usual;

	if (backend == NULL)
	{
		printf("%s\n", error.message);
		exit(2);
	}
	backend->info(backend, &info);
	multiplies_bits = info.capability == 90;
	usual = gpuvec_search_policy_get(backend);
	for (int i = 0; i < (full ? 80 : 21); i++)
	{
		struct gpuvec_search_policy policy = random_policy(&usual);

		gpuvec_search_policy_set(backend, &policy);
		room_for_numbers = policy.workspace / 4 / sizeof(uint32_t);
		test_table(backend, pool, kinds[i % 8], full ? 36 : GPUVEC_N_WIRE_MEASURES);
		test_groups(backend, pool, kinds[i % 8]);
	}
	test_room(backend, pool, &usual);
	test_room_to_merge(backend, pool, &usual);
	gpuvec_search_policy_set(backend, &usual);
	room_for_numbers = usual.workspace / 4 / sizeof(uint32_t);
	test_many_groups(backend, pool, 40000);
	test_many_groups(backend, pool, GPUVEC_MOST_GROUPS);
	test_many_groups(backend, pool, GPUVEC_MOST_GROUPS + 1);
	test_ids(backend, pool, &usual);
	test_counts(backend, pool, 32, 2 * GPUVEC_N_WIRE_MEASURES);
	test_counts(backend, pool, 8192, full ? 2 * GPUVEC_N_WIRE_MEASURES : 3);
	test_counts(backend, pool, GPUVEC_SEGMENT_ROWS, full ? 2 * GPUVEC_N_WIRE_MEASURES : 1);
	if (full)
	{
		test_table(backend, pool, (table_kind) {GPUVEC_SEGMENT_ROWS, 6, 30, false, true, 1}, 36);
		test_table(backend, pool, (table_kind) {200000, 3, 300, true, true, 3}, 18);
	}
	backend->close(backend);
}

int
main(int argc, char **argv)
{
	gpuvec_thread_pool *pool = gpuvec_thread_pool_new(2);

	test_gpu(pool, argc > 1 && strcmp(argv[1], "full") == 0);
	check(ranked_disjoint > 100 && not_ranked > 100, "rows without a common id rank, or not");
	for (int measure = 0; measure < GPUVEC_N_WIRE_MEASURES; measure++)
		check(filtered[measure] > 10, "each measure is searched for with filters");
	for (int way = 0; way < GPUVEC_N_WAYS; way++)
		check(of_way[way] > 20 || (way == GPUVEC_WAY_DENSE && !multiplies_bits), "queries are answered in each way");
	check(short_ones > 100, "fewer rows match than were asked for");
	check(matched > 100 && matched_counts > 100, "rows match expressions of ids");
	check(behind_rows > 100, "queries begin behind a row");
	check(by_cold > 20, "queries by measures of sparse vectors have cold numbers");
	check(mixed_views > 2, "views have segments with lists, and without");
	check(met.kept_filters > 100, "masks of filters are kept");
	check(met.gathered > 100, "rows are gathered");
	check(met.together_rounds > 20, "queries are scanned together");
	check(met.masked_rounds > 10, "queries with one mask are scanned together");
	check(met.overflows > 20 && met.direct_overflows > 5, "queries run out of room");
	check(met.retries > 0, "and do so again");
	check(dead_rows > 100, "rows are dead");
	check(met.lone_chunks > 20, "queries are parameters");
	check(met.own_rounds > 5, "queries have samples of their own");
	check(met.plain_rounds > met.plain_lone_rounds && met.plain_lone_rounds > 0,
		  "queries are counted in bytes");
	check(met.cold_rounds > 20 && met.cold_full > 5, "queries have tables, or those are too small");
	for (int measure = 0; measure < GPUVEC_N_WIRE_MEASURES; measure++)
		check(counted_by[measure] > 20, "rows are counted by each measure");
	for (int way = 0; way < GPUVEC_N_WAYS; way++)
		check(counted_way[way] > 20 || way == GPUVEC_WAY_DENSE, "rows are counted in each way");
	check(counted_rows > 1000 && listed_rows > 1000, "rows are counted, or listed");
	check(met.every_counts > 20, "rows of masks are counted");
	for (int measure = 0; measure < GPUVEC_N_WIRE_MEASURES; measure++)
		check(grouped_by[measure] > 20, "rows are put into groups by each measure");
	for (int way = 0; way < GPUVEC_N_WAYS; way++)
		check(grouped_way[way] > 20 || way == GPUVEC_WAY_DENSE, "rows are put into groups in each way");
	check(grouped_nulls > 20, "groups have nulls");
	check(met.grouped_counts > 100 && met.wide_groups > 10, "bins are in shared memory, or beyond it");
	check(met.merged_groups > 20 && met.grouped_counts > met.merged_groups + met.id_groups + met.row_groups + 100,
		  "bins are merged by the device, or not");
	check(met.id_groups > 100 && met.global_ids > 20, "rows are counted by ids");
	check(grouped_ids > 100 && grouped_cold > 20, "many ids are counted, some of them cold");
	check(met.row_groups > 20, "the host makes groups of rows where bins are too many");
	check(without_groups > 5, "there are too many groups, or numbers");
	check(met.list_counts > 20, "lists count rows");
	check(met.cold_counts > 20 + met.refused_counts, "rows with cold numbers are counted");
	check(without_room > 5 && without_table > 0, "tids have no room, or tables are too small");
	check(met.refused_counts == refused && refused < met.counts / 4, "no query is refused but those");
	gpuvec_thread_pool_free(pool);
	return report_checks();
}

#else

static void
test_backend(gpuvec_thread_pool *pool, int simd, int threads)
{
	gpuvec_lists_policy policy = {.least_rows = 200,.least_ids = 0,.dense = 16,.share = 4};
	gpuvec_backend_options options = {.threads = threads,.simd = simd};
	gpuvec_error error;
	gpuvec_backend *backend = gpuvec_cpu_open_with(&options, &policy, &error);

	test_table(backend, pool, (table_kind) {1, 1, 10, false, false, 1}, 9);
	test_table(backend, pool, (table_kind) {700, 7, 30, false, true, 3}, 27);
	test_table(backend, pool, (table_kind) {700, 15, 200, true, true, 2}, 27);
	test_table(backend, pool, (table_kind) {2500, 5, 20, true, false, 4}, 18);
	test_table(backend, pool, (table_kind) {9000, 7, 100, false, true, 2}, 18);
	test_table(backend, pool, (table_kind) {300, 0, 20, false, false, 2}, 9);
	backend->close(backend);
}

/* How many groups of n have more rows than this? */
static uint32_t
groups_above(const uint32_t *counts, uint32_t n, uint64_t rows)
{
	uint32_t	above = 0;

	for (uint32_t i = 0; i < n; i++)
		above += counts[i] > rows;
	return above;
}

/*
 * Drop groups: those stay, in their order, that have so many rows, or might
 * have, that fewer others have more than are wanted
 */
static void
test_trim(void)
{
	uint64_t	dropped = 0;
	uint64_t	ties = 0;

	for (int round = 0; round < 500; round++)
	{
		gpuvec_grouping grouping = {.nkeys = 1,.columns = {GPUVEC_GROUPED_IDS}};
		uint32_t	n = (uint32_t) random_below(200);
		uint64_t	range = 1 + random_below(round % 2 ? 10 : 100000);
		uint64_t	others = round % 3 ? random_below(range) : 0;
		gpuvec_groups *groups;
		uint32_t	counts[200];
		uint32_t	kept = 0;
		bool		right = true;

		grouping.most = (uint32_t) random_below(round % 5 ? 60 : 400);
		groups = gpuvec_groups_new(&grouping);
		for (uint32_t i = 0; i < n; i++)
			counts[i] = 1 + (uint32_t) random_below(range);
		check(gpuvec_groups_add_ids(groups, 5, counts, n) && groups->n == n &&
			  gpuvec_groups_trim(groups, others), "groups are dropped");
		for (uint32_t i = 0; i < n; i++)
		{
			const uint64_t *group = groups->words + (size_t) kept * 3;

			if (grouping.most > 0 && groups_above(counts, n, counts[i] + others) >= grouping.most)
				continue;
			right &= kept < groups->n && group[0] == counts[i] && group[1] == 0 && group[2] == 5 + i;
			kept++;
		}
		check(right && groups->n == kept, "groups that may be wanted stay");
		dropped += n - kept;
		ties += others == 0 && grouping.most > 0 && kept > grouping.most;
		gpuvec_groups_free(groups);
	}
	check(dropped > 1000 && ties > 20, "groups are dropped, or stay by a tie");
}

/* A segment that uses all codes, with and without nulls */
static void
test_all_codes(gpuvec_backend *backend, gpuvec_thread_pool *pool)
{
	table_kind	kind = {GPUVEC_SEGMENT_ROWS, 6, 30, false, true, 1};

	test_table(backend, pool, kind, 9);
}

int
main(void)
{
	gpuvec_backend_options options = {.threads = 1};
	gpuvec_error error;
	gpuvec_thread_pool *pool = gpuvec_thread_pool_new(2);
	gpuvec_backend *backend = gpuvec_cpu_open(&options, &error);

	for (int simd = 1; simd <= 3; simd++)
		test_backend(pool, simd, simd == 2 ? 3 : 1);
	test_all_codes(backend, pool);
	test_trim();
	test_counts(backend, pool, 32, 2 * GPUVEC_N_WIRE_MEASURES);
	test_counts(backend, pool, 8192, GPUVEC_N_WIRE_MEASURES);
	test_groups(backend, pool, (table_kind) {700, 15, 200, true, true, 3});
	test_groups(backend, pool, (table_kind) {2500, 7, 20, false, true, 2});
	test_groups(backend, pool, (table_kind) {1700, 0, 3000, true, false, 2});
	test_many_groups(backend, pool, 40000);
	test_many_groups(backend, pool, GPUVEC_MOST_GROUPS);
	test_full_segments(backend, pool);
	test_many_ids(backend, pool, 0);
	check(refused == 0, "no query is refused");
	test_many_groups(backend, pool, GPUVEC_MOST_GROUPS + 1);
	test_many_ids(backend, pool, 1);
	check(ranked_disjoint > 100 && not_ranked > 100, "rows without a common id rank, or not");
	for (int measure = 0; measure < GPUVEC_N_WIRE_MEASURES; measure++)
		check(counted_by[measure] > 20, "rows are counted by each measure");
	check(matched > 100 && matched_counts > 100, "rows match expressions of ids");
	check(counted_rows > 1000 && listed_rows > 1000, "rows are counted, or listed");
	check(refused > 0 && refused == without_groups, "only those with too many groups are refused");
	for (int measure = 0; measure < GPUVEC_N_WIRE_MEASURES; measure++)
		check(grouped_by[measure] > 10, "rows are put into groups by each measure");
	check(grouped_nulls > 100, "there are groups of nulls");
	check(grouped_ids > 100 && grouped_cold > 20, "rows are grouped by ids, some of them cold");
	backend->close(backend);
	gpuvec_thread_pool_free(pool);
	return report_checks();
}

#endif
