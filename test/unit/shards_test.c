/*-------------------------------------------------------------------------
 *
 * shards_test.c
 *	  Test of the backend of several devices: it has to answer as one device
 *	  does, whose answers topk_test.c and filter_test.c compare with brute
 *	  force.
 *
 * The devices are backends of the CPU behind others that can fail, can wait,
 * and count what they hold.
 *
 * Compiled with SHARDS_TEST_GPU the devices are GPUs (search.mk, cuda.mk); one
 * GPU counts as several.
 *
 *-------------------------------------------------------------------------
 */
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/cpu_vectors.h"
#include "engine/shards/shards.h"
#include "engine/scheduler.h"
#include "engine/sets/draft.h"
#include "engine/sets/id_numbers.h"
#include "test_groups.h"
#include "test_weights.h"
#include "unit_test.h"
#include "test_match.h"

#define LONGEST			24
#define MOST_SHARDS		5
#define MOST_SEGMENTS	14
#define NQUERIES		16
#define LARGE_BATCH		(2 * SPLIT_QUERIES)
#define LITTLE			100000

/* ---- devices ---- */

/* A device that is told what to do, and counts what it has adopted */
typedef struct test_device
{
	gpuvec_backend base;
	gpuvec_backend *inner;
	bool		no_disjoint;	/* does not count rows one by one */
	bool		no_memory;		/* for segments */
	bool		no_maps;
	bool		no_view;
	const char *fails;			/* searches fail with this SQLSTATE */
	bool		fatal;
	int		   *waiting;		/* searches wait until they are canceled; how
								 * many do; or NULL */
	int			running;		/* searches; changed atomically */
	int			segments;		/* that it has; changed atomically */
	int			maps;
	int			views;
} test_device;

static test_device *
device_of(gpuvec_backend *backend)
{
	return (test_device *) backend;
}

static bool
device_adopt_segment(gpuvec_backend *backend, gpuvec_segment *segment, gpuvec_error *error)
{
	test_device *d = device_of(backend);

	if (d->no_memory)
		return gpuvec_fail_memory(error, 1);
	__atomic_add_fetch(&d->segments, 1, __ATOMIC_RELAXED);
	if (!d->inner->adopt_segment(d->inner, segment, error))
		return false;
	segment->backend = backend;
	return true;
}

static bool
device_adopt_livemaps(gpuvec_backend *backend, gpuvec_livemap *const *maps, uint32_t n,
					  gpuvec_error *error)
{
	test_device *d = device_of(backend);

	if (d->no_maps)
		return gpuvec_fail_memory(error, 1);
	__atomic_add_fetch(&d->maps, (int) n, __ATOMIC_RELAXED);
	if (!d->inner->adopt_livemaps(d->inner, maps, n, error))
		return false;
	for (uint32_t i = 0; i < n; i++)
		maps[i]->backend = backend;
	return true;
}

static bool
device_adopt_view(gpuvec_backend *backend, gpuvec_view *view, gpuvec_error *error)
{
	test_device *d = device_of(backend);
	bool		ok;

	if (d->no_view)
		return gpuvec_fail_memory(error, 1);
	__atomic_add_fetch(&d->views, 1, __ATOMIC_RELAXED);
	ok = d->inner->adopt_view(d->inner, view, error);
	view->backend = backend;
	return ok;
}

static void
device_release_segment(gpuvec_backend *backend, gpuvec_segment *segment)
{
	__atomic_sub_fetch(&device_of(backend)->segments, 1, __ATOMIC_RELAXED);
	device_of(backend)->inner->release_segment(device_of(backend)->inner, segment);
}

static void
device_release_livemap(gpuvec_backend *backend, gpuvec_livemap *map)
{
	__atomic_sub_fetch(&device_of(backend)->maps, 1, __ATOMIC_RELAXED);
	device_of(backend)->inner->release_livemap(device_of(backend)->inner, map);
}

static void
device_release_view(gpuvec_backend *backend, gpuvec_view *view)
{
	__atomic_sub_fetch(&device_of(backend)->views, 1, __ATOMIC_RELAXED);
	device_of(backend)->inner->release_view(device_of(backend)->inner, view);
}

static bool
device_read_ids(gpuvec_backend *backend, const gpuvec_segment *segment, uint16_t *ids,
				gpuvec_error *error)
{
	return device_of(backend)->inner->read_ids(device_of(backend)->inner, segment, ids, error);
}

static bool
device_read_values(gpuvec_backend *backend, const gpuvec_segment *segment, float *values,
				   gpuvec_error *error)
{
	return device_of(backend)->inner->read_values(device_of(backend)->inner, segment, values, error);
}

static void
device_info(gpuvec_backend *backend, gpuvec_backend_info *info)
{
	device_of(backend)->inner->info(device_of(backend)->inner, info);
}

/* Wait until the first query is canceled */
static void
await_cancel(test_device *d, const gpuvec_topk_query *queries)
{
	__atomic_add_fetch(d->waiting, 1, __ATOMIC_RELAXED);
	while (!__atomic_load_n(queries[0].canceled, __ATOMIC_RELAXED))
		sched_yield();
}

static bool
device_topk(gpuvec_backend *backend, const gpuvec_view *view, const gpuvec_scoring *scoring,
			gpuvec_method method, gpuvec_topk_query *queries, uint32_t nqueries,
			gpuvec_error *error)
{
	test_device *d = device_of(backend);
	bool		ok;

	check(__atomic_add_fetch(&d->running, 1, __ATOMIC_RELAXED) == 1, "one search at a time on a device");
	if (d->waiting)
		await_cancel(d, queries);
	for (uint32_t i = 0; d->no_disjoint && i < nqueries; i++)
		queries[i].disjoint = false;
	ok = d->inner->topk(d->inner, view, scoring, method, queries, nqueries, error);
	__atomic_sub_fetch(&d->running, 1, __ATOMIC_RELAXED);
	if (!ok || d->fails == NULL)
		return ok;
	gpuvec_fail(error, d->fails, NULL, NULL, "the device fails");
	error->fatal = d->fatal;
	return false;
}

static gpuvec_backend *
open_cpu(void)
{
	gpuvec_lists_policy policy = {.least_rows = random_below(2) ? 1 : 1000, .dense = 16, .share = 1e9};
	gpuvec_backend_options options = {
		.simd = 1 + (int) random_below(3), .threads = 1 + (int) random_below(2)
	};
	gpuvec_error error;

	return gpuvec_cpu_open_with(&options, &policy, &error);
}

#ifdef SHARDS_TEST_GPU

/* GPUs that are open; opening takes long, so they stay so */
static gpuvec_backend *gpus[MOST_SHARDS];

static gpuvec_backend *
open_shard(int number)
{
	gpuvec_error error = {0};
	int			count = gpuvec_cuda_count(&error);
	gpuvec_backend_options options = {.device = count > 0 ? number % count : 0};

	if (gpus[number] == NULL)
		gpus[number] = gpuvec_cuda_open(&options, &error);
	if (gpus[number] == NULL)
	{
		printf("no GPU: %s\n", error.message);
		exit(1);
	}
	return gpus[number];
}

static void
close_shard(gpuvec_backend *inner)
{
	if (!inner->on_device)
		inner->close(inner);
}

#else

static gpuvec_backend *
open_shard(int number)
{
	(void) number;
	return open_cpu();
}

static void
close_shard(gpuvec_backend *inner)
{
	inner->close(inner);
}

#endif

static void
device_close(gpuvec_backend *backend)
{
	test_device *d = device_of(backend);

	check(d->segments == 0 && d->maps == 0 && d->views == 0, "devices are empty at the end");
	close_shard(d->inner);
	free(d);
}

/* A device by an open backend */
static gpuvec_backend *
make_device(gpuvec_backend *inner)
{
	test_device *d = calloc(1, sizeof(*d));

	d->inner = inner;
	d->base = *inner;
	/* an emulated GPU searches only */
	if (d->base.vectors == NULL)
		d->base.vectors = &gpuvec_cpu_vectors;
	d->base.adopt_segment = device_adopt_segment;
	d->base.adopt_livemaps = device_adopt_livemaps;
	d->base.adopt_view = device_adopt_view;
	d->base.release_segment = device_release_segment;
	d->base.release_livemap = device_release_livemap;
	d->base.release_view = device_release_view;
	d->base.read_ids = device_read_ids;
	d->base.read_values = device_read_values;
	d->base.finish_segment = NULL;
	d->base.trim = NULL;
	d->base.info = device_info;
	d->base.topk = device_topk;
	d->base.close = device_close;
	return &d->base;
}

/* The one device to compare with */
static gpuvec_backend *
open_device(void)
{
	return make_device(open_cpu());
}

/*
 * A backend of n devices with these budgets; NULL: equal ones.  If
 * `with_host`, the last one is the host's memory.
 */
static gpuvec_backend *
open_with_host(int n, const size_t *budgets, bool with_host)
{
	gpuvec_backend *children[MOST_SHARDS];
	size_t		equal[MOST_SHARDS];
	gpuvec_error error;

	for (int i = 0; i < n; i++)
	{
		children[i] = make_device(open_shard(i));
		equal[i] = 1000000;
	}
	return gpuvec_shards_open(children, budgets ? budgets : equal, n, with_host, &error);
}

static gpuvec_backend *
open_shards(int n, const size_t *budgets)
{
	return open_with_host(n, budgets, false);
}

static test_device *
shard_device(gpuvec_backend *backend, int child)
{
	return device_of(gpuvec_shards_of(backend)->children[child].backend);
}

/* True if no device counts any segment */
static bool
nothing_placed(gpuvec_backend *backend)
{
	shards_backend *shards = gpuvec_shards_of(backend);

	for (int i = 0; i < shards->n; i++)
		if (shards->children[i].placed != 0)
			return false;
	return true;
}

/* ---- tables ---- */

typedef struct model_row
{
	uint32_t	len;
	uint32_t	numbers[LONGEST];
	uint16_t	packed[LONGEST * 3 + 4];
	uint64_t	filter_keys[2];
	bool		dead;
} model_row;

typedef struct table
{
	uint32_t	n;
	uint32_t	nfilters;		/* 0 or 1 */
	uint32_t	vocabulary;
	bool		cold;
	model_row  *rows;
	uint32_t	nsegments;
	uint32_t	first[MOST_SEGMENTS + 1];	/* rows of the segments */
} table;

/* A random set of numbers, ascending */
static uint32_t
random_numbers(const table *t, uint32_t *numbers)
{
	uint32_t	n = (uint32_t) random_below(LONGEST / 2);
	uint32_t	len = 0;

	for (uint32_t i = 0; i < n; i++)
	{
		uint32_t	number = (uint32_t) random_below(random_below(t->vocabulary) + 1);
		uint32_t	j = 0;

		if (t->cold && random_below(4) == 0)
			number += GPUVEC_HOT_NUMBERS;
		while (j < len && numbers[j] < number)
			j++;
		if (j < len && numbers[j] == number)
			continue;
		memmove(numbers + j + 1, numbers + j, (len - j) * sizeof(uint32_t));
		numbers[j] = number;
		len++;
	}
	return len;
}

static void
make_row(const table *t, model_row *row)
{
	bool		null_set = t->nfilters > 0 && random_below(12) == 0;
	bool		null_key = t->nfilters > 0 && random_below(12) == 0;

	row->len = null_set ? 0 : random_numbers(t, row->numbers);
	row->filter_keys[0] = (uint64_t) null_set | (uint64_t) null_key << 1;
	row->filter_keys[1] = null_key ? 0 : random_below(6);
	row->dead = random_below(6) == 0;
}

/* A plain table has no filter column, no null sets, and no cold numbers */
static table
make_table(uint32_t n, uint32_t nsegments, uint32_t vocabulary, bool plain)
{
	table		t = {
		.n = n, .nfilters = (uint32_t) random_below(2), .vocabulary = vocabulary,
		.cold = random_below(2) == 0, .rows = calloc(n + 1, sizeof(model_row)),
		.nsegments = nsegments
	};

	t.nfilters = plain ? 0 : t.nfilters;
	t.cold &= !plain;

	for (uint32_t i = 0; i < n; i++)
		make_row(&t, &t.rows[i]);
	for (uint32_t i = 0; i <= nsegments; i++)
		t.first[i] = (uint32_t) ((uint64_t) n * i / nsegments);
	return t;
}

/* Tids of the rows of different segments are not in order */
static uint64_t
tid_of(const table *t, uint32_t row)
{
	uint64_t	place = (uint64_t) row * 7919 % (t->n * UINT64_C(8) + 1);

	return gpuvec_tid(place / 30, place % 30 + 1);
}

/* The segment of some rows, not adopted yet, with its live map */
static gpuvec_view_entry
make_entry(const table *t, uint32_t from, uint32_t to)
{
	uint32_t	n = to - from;
	gpuvec_source_row *rows = calloc(n, sizeof(*rows));
	uint64_t   *dead = calloc(n + 1, sizeof(*dead));
	uint32_t	ndead = 0;
	gpuvec_view_entry entry = {NULL, NULL, 0};
	gpuvec_error error;

	for (uint32_t i = 0; i < n; i++)
	{
		model_row  *row = &t->rows[from + i];

		gpuvec_pack_numbers(row->numbers, row->len, row->packed, &rows[i]);
		rows[i].tid = tid_of(t, from + i);
		rows[i].filter_keys = t->nfilters ? row->filter_keys : NULL;
		if (row->dead)
			dead[ndead++] = rows[i].tid;
	}
	check(gpuvec_rows_sort(rows, n, &error), "rows are sorted");
	entry.segment = gpuvec_segment_build(rows, n, (gpuvec_row_kind) {.nfilters = t->nfilters}, &error);
	if (ndead > 0)
		entry.live = gpuvec_livemap_new(n, &error);
	for (uint32_t r = 0; r < n; r++)
		for (uint32_t d = 0; d < ndead; d++)
			if (entry.segment->tid[r] == dead[d])
			{
				entry.live->bits[r / 32] &= ~(UINT32_C(1) << (r % 32));
				entry.live->nlive--;
			}
	free(dead);
	free(rows);
	return entry;
}

/* Adopt all entries, without a view */
static uint32_t
adopt_entries(gpuvec_backend *b, const table *t, gpuvec_view_entry *entries)
{
	gpuvec_error error;
	uint32_t	n = 0;

	for (uint32_t s = 0; s < t->nsegments; s++)
	{
		if (t->first[s] == t->first[s + 1])
			continue;
		entries[n] = make_entry(t, t->first[s], t->first[s + 1]);
		check(b->adopt_segment(b, entries[n].segment, &error), "a segment is adopted");
		if (entries[n].live)
		{
			entries[n].live->child = entries[n].segment->child;
			check(b->adopt_livemaps(b, &entries[n].live, 1, &error), "a live map is adopted");
		}
		n++;
	}
	return n;
}

static gpuvec_view *
make_view(gpuvec_backend *b, const table *t)
{
	gpuvec_view_entry entries[MOST_SEGMENTS];
	gpuvec_error error;
	gpuvec_view *view = gpuvec_view_new(entries, adopt_entries(b, t, entries), &error);

	check(b->adopt_view(b, view, &error), "a view is adopted");
	return view;
}

/* ---- queries ---- */

typedef struct test_query
{
	uint16_t	hot[LONGEST];
	uint32_t	numbers[LONGEST];
	test_weights weights;
	gpuvec_condition condition;
	uint64_t	values[MATCH_VALUES];	/* of an expression of ids */
	uint8_t		pages[64];		/* whose rows are counted */
	gpuvec_grouping grouping;	/* of these, if the query has one */
} test_query;

static uint64_t counted_rows;	/* of all queries */
static uint64_t several_groups; /* answers that have .. */
static uint64_t several_ids;	/* .. by ids */
static uint64_t refused;		/* queries that devices did not count */

static const gpuvec_scoring by_hamming = {.measure = GPUVEC_HAMMING};

/* Let a query have an expression of numbers, some of which rows have */
static void
draw_match(const table *t, test_query *scratch, gpuvec_topk_query *q)
{
	test_match	match = {.nids = 0};
	uint32_t	numbers[LONGEST];
	uint32_t	n = random_numbers(t, numbers);

	for (uint32_t i = 0; i < n && i < 5; i++)
		match_add_id(&match, numbers[i]);
	match_make_tree(&match, 3);
	scratch->condition = (gpuvec_condition) {.kind = GPUVEC_SET_MATCHES,.low = match.nids};
	scratch->condition.n = match_values(&match, scratch->values);
	q->filter = (gpuvec_filter) {1, scratch->condition.n, &scratch->condition, scratch->values};
}

/* Draw a query of a table; q->matches has room for all its rows */
static void
draw_query(const table *t, gpuvec_measure measure, test_query *scratch, gpuvec_topk_query *q)
{
	uint32_t	len = random_numbers(t, scratch->numbers);

	memset(q, 0, sizeof(*q));
	if (t->n > 0 && random_below(2))
	{
		const model_row *row = &t->rows[random_below(t->n)];

		len = row->len;
		memcpy(scratch->numbers, row->numbers, sizeof(row->numbers));
	}
	for (; q->len < len && scratch->numbers[q->len] < GPUVEC_HOT_NUMBERS; q->len++)
		scratch->hot[q->len] = (uint16_t) scratch->numbers[q->len];
	q->ids = scratch->hot;
	q->cold = scratch->numbers + q->len;
	q->ncold = len - q->len;
	q->others = q->ncold + (uint32_t) random_below(3);
	draw_weights(measure, q, &scratch->weights);
	q->k = random_below(5) == 0 ? 100000 : 1 + (uint32_t) random_below(12);
	q->has_min_score = random_below(4) == 0;
	q->min_score = measure == GPUVEC_HAMMING ? -(double) random_below(20) : (double) random_below(10) / 10;
	q->has_after = random_below(4) == 0;
	q->after_score = measure == GPUVEC_HAMMING ? -(double) random_below(10) : (double) random_below(4) / 4;
	q->after_tid = t->n > 0 ? tid_of(t, (uint32_t) random_below(t->n)) : 0;
	if (is_sparse(measure) && random_below(2))
	{
		q->has_min_score = true;
		q->min_score = random_below(4) == 0 ? (double) random_below(5) - 3 : 0x1p-1074;
	}
	if (t->nfilters && random_below(3))
	{
		scratch->condition = (gpuvec_condition) {
			.column = 1, .kind = GPUVEC_KEY_BETWEEN, .low = random_below(6), .high = 5
		};
		if (random_below(8) == 0)
			scratch->condition = (gpuvec_condition) {.column = 0, .kind = GPUVEC_IS_NULL};
		q->filter.n = 1;
		q->filter.conditions = &scratch->condition;
		q->disjoint = random_below(2);
	}
	else if (random_below(6) == 0)
		draw_match(t, scratch, q);
	if (!q->has_after && random_below(6) == 0)
	{
		q->unordered = true;
		q->k = UINT32_MAX;
	}
}

static int
compare_tids(const void *x, const void *y)
{
	uint64_t	a = *(const uint64_t *) x;
	uint64_t	b = *(const uint64_t *) y;

	return a < b ? -1 : a > b;
}

static int
compare_match_tids(const void *x, const void *y)
{
	return compare_tids(&((const gpuvec_match *) x)->tid, &((const gpuvec_match *) y)->tid);
}

/* Give each query memory for its rows, or take it away */
static void
set_rows(gpuvec_topk_query *queries, uint32_t n, uint64_t nrows, bool there)
{
	for (uint32_t i = 0; i < n; i++)
	{
		if (!there)
			free(queries[i].matches);
		if (!there)
			free(queries[i].tids);
		if (!there)
			gpuvec_groups_free(queries[i].groups);
		queries[i].tids = NULL;
		queries[i].groups = NULL;
		queries[i].matches = there && !queries[i].unordered ?
			calloc(nrows + 1, sizeof(gpuvec_match)) : NULL;
		queries[i].nmatches = UINT32_MAX;
	}
}

/* What a row of a table, or of several mirrors' tables, is to be grouped by */
static grouped_row
grouped_row_of(const table *tables, uint64_t tid)
{
	const table *t = &tables[tid >> GPUVEC_PARTITION_SHIFT];
	grouped_row row = {0, NULL, NULL, 0};

	for (uint32_t i = 0; i < t->n && row.keys == NULL; i++)
		if (tid_of(t, i) == (tid & (gpuvec_partition_tid(1) - 1)))
			row = (grouped_row) {
				t->rows[i].filter_keys[0], t->rows[i].filter_keys + 1, t->rows[i].numbers, t->rows[i].len
			};
	return row;
}

/*
 * Leave out the rows of an answer that are of the pages of a query which
 * counts; returns how many they are, and adds those to be grouped to rows[]
 */
static uint64_t
leave_out_counted(const table *t, gpuvec_topk_query *answer, const gpuvec_topk_query *query,
				  grouped_row *rows)
{
	uint32_t	n = 0;
	uint64_t	counted = 0;

	for (uint32_t i = 0; i < answer->nmatches; i++)
	{
		uint64_t	tid = answer->matches[i].tid;

		if (!gpuvec_page_set_has(&query->counts, gpuvec_tid_block(tid)))
		{
			answer->matches[n++] = answer->matches[i];
			continue;
		}
		if (query->grouping)
			rows[counted] = grouped_row_of(t, tid);
		counted++;
	}
	answer->nmatches = n;
	counted_rows += counted;
	return counted;
}

/* Has an answer the groups of n rows, or none if these were not asked for? */
static bool
same_groups(const gpuvec_topk_query *answer, grouped_row *rows, uint64_t n)
{
	bool		several = answer->groups && answer->groups->n > 1;

	several_groups += several;
	several_ids += several && gpuvec_groups_ids(answer->grouping);
	return answer->grouping ? right_groups(answer->grouping, answer->groups, rows, (uint32_t) n) :
		answer->groups == NULL;
}

/* Is a query that was not answered one of those that may be? */
static bool
may_be_refused(const gpuvec_topk_query *query)
{
	refused++;
	return query->bare && query->nmatches == 0 && query->tids == NULL && query->groups == NULL &&
		(query->disjoint || query->ncold > 0);
}

static bool
same_rows(const gpuvec_topk_query *a, const gpuvec_topk_query *b)
{
	if (a->nmatches != b->nmatches || a->passed != b->passed)
		return false;
	/* a view without segments ranks no row, one with dead rows all of none */
	if (a->passed > 0 && a->ranked_disjoint != b->ranked_disjoint)
		return false;
	for (uint32_t i = 0; a->bare && i < a->nmatches; i++)
		if (a->tids[i] != b->matches[i].tid)
			return false;
	for (uint32_t i = 0; !a->bare && i < a->nmatches; i++)
	{
		const gpuvec_match *x = &a->matches[i];
		const gpuvec_match *y = &b->matches[i];

		if (memcmp(&x->score, &y->score, sizeof(double)) != 0 || x->tid != y->tid || x->common != y->common)
			return false;
	}
	return true;
}

/* Search by a backend, with rows of its own; unordered ones are sorted */
static gpuvec_topk_query *
search(gpuvec_backend *b, const gpuvec_view *view, gpuvec_measure measure, gpuvec_method method,
	   const gpuvec_topk_query *queries, uint32_t n)
{
	gpuvec_topk_query *mine = malloc(n * sizeof(*mine) + 1);
	gpuvec_scoring scoring = {.measure = measure,.tversky = gpuvec_make_tversky(0.7, 0.3)};
	gpuvec_error error;

	if (is_sparse(measure))
		scoring = gpuvec_sparse_scoring((gpuvec_sparse_measure) (measure - GPUVEC_WIRE_SPARSE));
	memcpy(mine, queries, n * sizeof(*mine));
	set_rows(mine, n, view->nrows, true);
	check(b->topk(b, view, &scoring, method, mine, n, &error), "a search works");
	for (uint32_t i = 0; i < n; i++)
	{
		if (mine[i].bare && mine[i].nmatches > 0)
			qsort(mine[i].tids, mine[i].nmatches, sizeof(uint64_t), compare_tids);
		else if (mine[i].unordered && mine[i].nmatches > 0)
			qsort(mine[i].matches, mine[i].nmatches, sizeof(gpuvec_match), compare_matches);
	}
	return mine;
}

/* True if a device that has a shard of the view counts no rows one by one */
static bool
is_uncounted(gpuvec_backend *b, const gpuvec_view *view)
{
	for (uint32_t i = 0; i < view->nentries; i++)
		if (shard_device(b, view->entries[i].segment->child)->no_disjoint)
			return true;
	return false;
}

/*
 * Let a query for all rows have only their tids, if it likes or if the backend
 * takes no other, and those of some pages counted, or also put into groups
 */
static void
choose_bare(const gpuvec_backend *by, uint32_t nfilters, test_query *scratch, gpuvec_topk_query *q)
{
	q->bare = !by->takes_unordered || random_below(2);
	if (!q->bare || random_below(3) == 0)
		return;
	for (size_t i = 0; i < sizeof(scratch->pages); i++)
		scratch->pages[i] = (uint8_t) random64();
	q->counts.bits = scratch->pages;
	q->counts.bytes = random_below(sizeof(scratch->pages) + 1);
	if (random_below(3) == 0)
		return;
	random_grouping(nfilters, &scratch->grouping);
	q->grouping = &scratch->grouping;
}

/*
 * Search a table by one device and by several, and compare.  n queries; by a
 * replica if it is not negative.
 */
static void
compare_batch(gpuvec_backend *one, const gpuvec_view *expected, gpuvec_backend *shards, int replica,
			  const gpuvec_view *view, const table *t, gpuvec_measure measure, uint32_t n)
{
	gpuvec_topk_query *queries = calloc(n, sizeof(*queries));
	test_query *scratch = calloc(n, sizeof(*scratch));
	gpuvec_method method = (gpuvec_method) random_below(GPUVEC_N_METHODS);
	bool		uncounted = is_uncounted(shards, view);
	gpuvec_backend *by = replica < 0 ? shards : shards->copier->replica(shards, replica);
	grouped_row *rows = malloc((view->nrows + 1) * sizeof(*rows));
	gpuvec_topk_query *found;
	gpuvec_topk_query *want;

	for (uint32_t i = 0; i < n; i++)
		draw_query(t, measure, &scratch[i], &queries[i]);
	for (uint32_t i = 0; i < n; i++)
		if (queries[i].unordered)
			choose_bare(by, t->nfilters, &scratch[i], &queries[i]);
	found = search(by, view, measure, method, queries, n);
	for (uint32_t i = 0; i < n; i++)
	{
		queries[i].bare = false;
		queries[i].counts.bytes = 0;
		queries[i].grouping = NULL;
	}
	/* rows without a common id rank everywhere or nowhere */
	for (uint32_t i = 0; uncounted && i < n; i++)
		queries[i].disjoint = false;
	want = search(one, expected, measure, GPUVEC_METHOD_BITSET, queries, n);
	for (uint32_t i = 0; i < n; i++)
	{
		uint64_t	counted = leave_out_counted(t, &want[i], &found[i], rows);

		if (found[i].bare && want[i].nmatches > 0)
			qsort(want[i].matches, want[i].nmatches, sizeof(gpuvec_match), compare_match_tids);
		if (found[i].counted == GPUVEC_NOT_COUNTED)
			check(may_be_refused(&found[i]), "devices count");
		else
			check(same_rows(&found[i], &want[i]) && found[i].counted == counted &&
				  same_groups(&found[i], rows, counted),
				  "parts answer as one device does");
	}
	set_rows(found, n, 0, false);
	set_rows(want, n, 0, false);
	free(found);
	free(want);
	free(queries);
	free(scratch);
	free(rows);
}

/* The same with some queries, and all devices */
static void
compare_views(gpuvec_backend *one, const gpuvec_view *expected, gpuvec_backend *shards,
			  const gpuvec_view *view, const table *t, gpuvec_measure measure)
{
	compare_batch(one, expected, shards, -1, view, t, measure,
				  1 + (uint32_t) random_below(NQUERIES));
}

static void
test_random(int ntables)
{
	static const uint32_t vocabularies[] = {1, 4, 30, 3000};
	gpuvec_backend *one = open_device();

	for (int i = 0; i < ntables; i++)
	{
		gpuvec_backend *shards = open_shards(1 + i % MOST_SHARDS, NULL);
		table		t = make_table((uint32_t) random_below(i % 10 == 0 ? 900 : 120),
								   1 + (uint32_t) random_below(MOST_SEGMENTS),
								   vocabularies[random_below(4)], false);
		gpuvec_view *expected = make_view(one, &t);
		gpuvec_view *view;

		for (int p = 0; p < gpuvec_shards_of(shards)->n; p++)
			shard_device(shards, p)->no_disjoint = random_below(6) == 0;
		view = make_view(shards, &t);
		for (int round = 0; round < 3; round++)
			compare_views(one, expected, shards, view, &t, (gpuvec_measure) random_below(GPUVEC_N_WIRE_MEASURES));
		gpuvec_view_unref(view);
		gpuvec_view_unref(expected);
		check(nothing_placed(shards), "released segments no longer count");
		shards->close(shards);
		free(t.rows);
	}
	one->close(one);
}

/* ---- many groups ---- */

/* A table of two segments, each of whose rows has another key */
static table
many_keys(uint32_t n)
{
	table		t = make_table(n, 2, 4, true);

	t.nfilters = 1;
	for (uint32_t i = 0; i < n; i++)
	{
		t.rows[i].dead = false;
		t.rows[i].filter_keys[0] = 0;
		t.rows[i].filter_keys[1] = i;
	}
	return t;
}

/*
 * Each of two devices has half of the groups; an answer may have only so many
 */
static void
test_many_groups(uint32_t n)
{
	gpuvec_backend *shards = open_shards(2, NULL);
	table		t = many_keys(n);
	gpuvec_view *view = make_view(shards, &t);
	gpuvec_grouping grouping = {.nkeys = 1,.columns = {1}};
	static uint8_t pages[8 * GPUVEC_MOST_GROUPS / 30];
	gpuvec_topk_query query = {
		.k = UINT32_MAX,.unordered = true,.bare = true,.counts = {pages, sizeof(pages)},.grouping = &grouping
	};
	grouped_row *rows = calloc(n, sizeof(*rows));
	gpuvec_topk_query *found;

	memset(pages, 0x55, sizeof(pages));
	for (uint32_t i = 0; i < n; i++)
		rows[i].keys = t.rows[i].filter_keys + 1;
	check(view->entries[0].segment->child != view->entries[1].segment->child, "two devices have rows");
	found = search(shards, view, GPUVEC_HAMMING, GPUVEC_METHOD_AUTO, &query, 1);
	if (n > GPUVEC_MOST_GROUPS)
		check(found->counted == GPUVEC_NOT_COUNTED && found->groups == NULL && found->nmatches == 0,
			  "there are too many groups");
	else
		check(found->counted == n && same_groups(found, rows, n), "two devices have many groups");
	set_rows(found, 1, 0, false);
	free(found);
	gpuvec_view_unref(view);
	shards->close(shards);
	free(rows);
	free(t.rows);
}

#ifndef SHARDS_TEST_GPU
/* ---- views of several mirrors ---- */

/* A view of two tables */
static gpuvec_view *
joint_view(gpuvec_backend *b, const table *t)
{
	gpuvec_view_entry entries[2 * MOST_SEGMENTS];
	uint32_t	first = adopt_entries(b, &t[0], entries);
	uint32_t	n = first + adopt_entries(b, &t[1], entries + first);
	gpuvec_view *view;
	gpuvec_error error;

	for (uint32_t i = 0; i < n; i++)
		entries[i].partition = gpuvec_partition_tid(i < first ? 0 : 1);
	view = gpuvec_view_new(entries, n, &error);
	check(b->adopt_view(b, view, &error), "a view of several mirrors is adopted");
	return view;
}

/* The answer of a view of two tables is that of each of them */
static void
check_joint(gpuvec_backend *one, const gpuvec_view *joint, const table *t, gpuvec_measure measure)
{
	gpuvec_topk_query query;
	gpuvec_topk_query *found[3];
	gpuvec_view *views[2];
	test_query	scratch;
	uint32_t	same = 0;

	draw_query(&t[0], measure, &scratch, &query);
	query.has_after = query.unordered = query.disjoint = false;
	query.filter.n = 0;
	query.k = 100000;
	found[2] = search(one, joint, measure, GPUVEC_METHOD_AUTO, &query, 1);
	for (int i = 0; i < 2; i++)
	{
		views[i] = make_view(one, &t[i]);
		found[i] = search(one, views[i], measure, GPUVEC_METHOD_AUTO, &query, 1);
	}
	for (uint32_t i = 0; i < found[2]->nmatches; i++)
	{
		const gpuvec_match *row = &found[2]->matches[i];
		const gpuvec_topk_query *of = found[row->tid >> GPUVEC_PARTITION_SHIFT];

		for (uint32_t j = 0; j < of->nmatches; j++)
			same += of->matches[j].tid == (row->tid & (gpuvec_partition_tid(1) - 1)) &&
				of->matches[j].score == row->score;
	}
	check(found[2]->nmatches == found[0]->nmatches + found[1]->nmatches && same == found[2]->nmatches,
		  "rows of a view of several mirrors are of the right one");
	for (int i = 0; i < 3; i++)
	{
		set_rows(found[i], 1, 0, false);
		free(found[i]);
	}
	gpuvec_view_unref(views[0]);
	gpuvec_view_unref(views[1]);
}

static void
test_joint(int ntables)
{
	gpuvec_backend *one = open_device();

	for (int i = 0; i < ntables; i++)
	{
		gpuvec_backend *shards = open_shards(2 + i % (MOST_SHARDS - 1), NULL);
		table		t[2];
		gpuvec_view *expected;
		gpuvec_view *view;

		for (int j = 0; j < 2; j++)
			t[j] = make_table((uint32_t) random_below(100), 1 + (uint32_t) random_below(6), 5, true);
		/* an index with a filter column has rows with null sets */
		for (uint32_t r = 0; i % 2 && r < t[1].n; r += 7)
		{
			t[1].nfilters = 1;
			t[1].rows[r].len = 0;
			t[1].rows[r].filter_keys[0] = 1;
		}
		expected = joint_view(one, t);
		view = joint_view(shards, t);
		for (gpuvec_measure m = 0; m < GPUVEC_N_WIRE_MEASURES; m++)
		{
			compare_views(one, expected, shards, view, &t[0], m);
			check_joint(one, expected, t, m);
		}
		gpuvec_view_unref(view);
		gpuvec_view_unref(expected);
		shards->close(shards);
		free(t[0].rows);
		free(t[1].rows);
	}
	one->close(one);
}

#endif

/* ---- placement ---- */

static void
test_places(void)
{
	static const size_t budgets[] = {100000, 300000};
	gpuvec_backend *even = open_shards(3, NULL);
	gpuvec_backend *uneven = open_shards(2, budgets);
	table		t = make_table(12 * 40, 12, 50, false);
	gpuvec_view *view;
	gpuvec_backend_info info;

	for (uint32_t i = 0; i < t.n; i++)
		t.rows[i].dead = false;
	view = make_view(even, &t);
	for (int p = 0; p < 3; p++)
		check(shard_device(even, p)->segments == 4, "segments are dealt out in turn");
	for (uint32_t i = 0; i < view->nentries; i++)
	{
		gpuvec_segment *segment = view->entries[i].segment;
		gpuvec_view_entry same = make_entry(&t, t.first[i], t.first[i + 1]);
		size_t		bytes = segment->nchunks * GPUVEC_TILE_ROWS * GPUVEC_CHUNK_IDS * sizeof(uint16_t);
		uint16_t   *ids = malloc(bytes + 1);
		gpuvec_error error;

		check(segment->backend == even && even->read_ids(even, segment, ids, &error) &&
			  memcmp(ids, same.segment->ids, bytes) == 0, "ids are read back from their device");
		gpuvec_segment_unref(same.segment);
		free(ids);
	}
	even->info(even, &info);
	check(strstr(info.device, "and 2 more") != NULL, "info tells how many devices there are");
	gpuvec_view_unref(view);

	view = make_view(uneven, &t);
	check(shard_device(uneven, 0)->segments == 3 && shard_device(uneven, 1)->segments == 9,
		  "devices get segments by their budgets");
	gpuvec_view_unref(view);
	even->close(even);
	uneven->close(uneven);
	free(t.rows);
}

/* The host's memory gets what the other devices have no room for */
static void
test_host(void)
{
	static const size_t budgets[] = {6000, 6000, 1000000};
	gpuvec_backend *one = open_device();
	gpuvec_backend *shards = open_with_host(3, budgets, true);
	table		t = make_table(12 * 40, 12, 50, false);
	table		few = make_table(100, 4, 50, false);
	gpuvec_view *expected = make_view(one, &t);
	gpuvec_view *view = make_view(shards, &few);
	shards_child *children = gpuvec_shards_of(shards)->children;

	check(shard_device(shards, 2)->segments == 0, "what fits is on the devices");
	gpuvec_view_unref(view);
	view = make_view(shards, &t);
	check(shard_device(shards, 0)->segments > 0 && shard_device(shards, 1)->segments > 0 &&
		  shard_device(shards, 2)->segments > 0, "what does not is in the host's memory");
	check(children[0].placed <= budgets[0] && children[1].placed <= budgets[1],
		  "devices keep their budgets");
	for (int round = 0; round < 8; round++)
		compare_views(one, expected, shards, view, &t, (gpuvec_measure) round);
	gpuvec_view_unref(view);

	/* the host has no memory, either */
	shard_device(shards, 2)->no_memory = true;
	view = make_view(shards, &t);
	check(shard_device(shards, 2)->segments == 0, "devices are asked for more, then");
	gpuvec_view_unref(view);
	gpuvec_view_unref(expected);
	shards->close(shards);
	one->close(one);
	free(t.rows);
	free(few.rows);
}

/* ---- failures ---- */

/* A device has no memory for segments: the others get them */
static void
test_refused(void)
{
	gpuvec_backend *one = open_device();
	gpuvec_backend *shards = open_shards(3, NULL);
	table		t = make_table(400, 8, 20, false);
	gpuvec_view *expected = make_view(one, &t);
	gpuvec_view_entry entry = make_entry(&t, 0, 10);
	gpuvec_view *view;
	gpuvec_error error;

	shard_device(shards, 1)->no_memory = true;
	view = make_view(shards, &t);
	check(shard_device(shards, 1)->segments == 0 && gpuvec_shards_of(shards)->children[1].refused > 0,
		  "others take what a device refuses");
	check(gpuvec_shards_of(shards)->children[1].placed == 0, "what was refused does not count");
	compare_views(one, expected, shards, view, &t, GPUVEC_JACCARD);
	for (int p = 0; p < 3; p++)
		shard_device(shards, p)->no_memory = true;
	memset(&error, 0, sizeof(error));
	check(!shards->adopt_segment(shards, entry.segment, &error) &&
		  strcmp(error.sqlstate, GPUVEC_OUT_OF_MEMORY) == 0 && entry.segment->backend == NULL,
		  "without any memory adopting fails");
	gpuvec_segment_unref(entry.segment);
	gpuvec_livemap_unref(entry.live);
	gpuvec_view_unref(view);
	gpuvec_view_unref(expected);
	check(nothing_placed(shards), "released segments no longer count");
	shards->close(shards);
	one->close(one);
	free(t.rows);
}

/* A device adopts no live maps, or no view: nothing is left on the others */
static void
test_half_adopted(void)
{
	gpuvec_backend *shards = open_shards(3, NULL);
	table		t = make_table(300, 6, 20, false);
	gpuvec_view_entry entries[6];
	gpuvec_livemap *maps[6];
	gpuvec_view *view;
	gpuvec_error error;

	for (uint32_t i = 0; i < t.n; i++)
		t.rows[i].dead = i % 5 == 0;
	for (uint32_t s = 0; s < 6; s++)
	{
		entries[s] = make_entry(&t, t.first[s], t.first[s + 1]);
		check(shards->adopt_segment(shards, entries[s].segment, &error), "a segment is adopted");
		maps[s] = entries[s].live;
		maps[s]->child = entries[s].segment->child;
	}
	shard_device(shards, 2)->no_maps = true;
	check(!shards->adopt_livemaps(shards, maps, 6, &error), "adopting live maps fails");
	for (int p = 0; p < 3; p++)
		check(shard_device(shards, p)->maps == 0 && maps[p]->backend == NULL, "no live map is left");
	shard_device(shards, 2)->no_maps = false;
	check(shards->adopt_livemaps(shards, maps, 6, &error), "live maps are adopted");
	view = gpuvec_view_new(entries, 6, &error);

	shard_device(shards, 1)->no_view = true;
	check(!shards->adopt_view(shards, view, &error) && view->backend == NULL, "adopting a view fails");
	for (int p = 0; p < 3; p++)
		check(shard_device(shards, p)->views == 0, "no part of a view is left");
	shard_device(shards, 1)->no_view = false;
	maps[3]->child = (maps[3]->child + 1) % 3;
	check(!shards->adopt_view(shards, view, &error), "maps have to be where their segments are");
	maps[3]->child = entries[3].segment->child;
	check(shards->adopt_view(shards, view, &error), "a view is adopted");
	gpuvec_view_unref(view);
	shards->close(shards);
	free(t.rows);
}

/* Searches of one device, or two, fail */
static void
test_failing(void)
{
	gpuvec_backend *shards = open_shards(3, NULL);
	table		t = make_table(300, 9, 20, false);
	gpuvec_view *view = make_view(shards, &t);
	gpuvec_topk_query queries[2];
	test_query	scratch[2];
	gpuvec_error error;

	for (int i = 0; i < 2; i++)
	{
		draw_query(&t, GPUVEC_HAMMING, &scratch[i], &queries[i]);
		memset(&queries[i].filter, 0, sizeof(queries[i].filter));
		queries[i].has_after = queries[i].has_min_score = false;
		queries[i].unordered = i == 1 && shards->takes_unordered;
		queries[i].k = queries[i].unordered ? UINT32_MAX : 10;
	}
	set_rows(queries, 2, view->nrows, true);
	for (int p = 0; p < 3; p++)
		shard_device(shards, p)->fails = GPUVEC_OUT_OF_MEMORY;
	check(!shards->topk(shards, view, &by_hamming, GPUVEC_METHOD_AUTO, queries, 2, &error) &&
		  strcmp(error.sqlstate, GPUVEC_OUT_OF_MEMORY) == 0 && !error.fatal && error.fallback,
		  "an error of all devices is that of the search");
	check(queries[0].nmatches == 0 && queries[1].nmatches == 0, "nothing is found then");
	shard_device(shards, 2)->fails = GPUVEC_SYSTEM_ERROR;
	shard_device(shards, 2)->fatal = true;
	check(!shards->topk(shards, view, &by_hamming, GPUVEC_METHOD_AUTO, queries, 2, &error) &&
		  error.fatal, "an error that ends the engine comes first");
	for (int p = 0; p < 3; p++)
		check(gpuvec_shards_of(shards)->children[p].errors > 1, "errors are counted");
	set_rows(queries, 2, 0, false);
	gpuvec_view_unref(view);
	shards->close(shards);
	free(t.rows);
}

/*
 * Devices have no memory for a search: others have copies of their rows, and
 * answer.  Later the devices do it again.
 */
static void
test_elsewhere(int ntables, bool with_host)
{
	gpuvec_backend *one = open_device();

	for (int i = 0; i < ntables; i++)
	{
		int			n = 2 + i % (MOST_SHARDS - 1);
		gpuvec_backend *shards = open_with_host(n, NULL, with_host);
		table		t = make_table((uint32_t) random_below(200), 1 + (uint32_t) random_below(9), 30, false);
		gpuvec_view *expected = make_view(one, &t);
		gpuvec_view *view = make_view(shards, &t);
		int			good = (int) random_below((uint64_t) n);

		for (int p = 0; p < n; p++)
			shard_device(shards, p)->fails = p != good && random_below(2) ? GPUVEC_OUT_OF_MEMORY : NULL;
		for (int round = 0; round < 3; round++)
			compare_views(one, expected, shards, view, &t, (gpuvec_measure) random_below(GPUVEC_N_WIRE_MEASURES));
		for (int p = 0; p < n; p++)
			shard_device(shards, p)->fails = NULL;
		shards->copier->free_copies(shards->copier->take(shards, view, NULL));
		check(shards->copier->bytes(shards, view, NULL) == 0, "what was elsewhere is gone");
		compare_views(one, expected, shards, view, &t, GPUVEC_JACCARD);
		gpuvec_view_unref(view);
		gpuvec_view_unref(expected);
		check(nothing_placed(shards), "released segments no longer count");
		shards->close(shards);
		free(t.rows);
	}
	one->close(one);
}

/* ---- copies ---- */

/* Make copies of a view; true if it has some then */
static bool
copy_view(gpuvec_backend *shards, gpuvec_view *view)
{
	size_t		each[MOST_SHARDS] = {0};
	size_t		bytes;

	if (!shards->copier->wanted(shards, view, GPUVEC_PLACE_REPLICATE, &bytes))
		return false;
	shards->copier->copy(shards, view);
	bytes = shards->copier->bytes(shards, view, each);
	for (int p = 0; p < gpuvec_shards_of(shards)->n; p++)
		bytes -= each[p];
	check(bytes == 0, "bytes of devices add up");
	return shards->copier->has_copies(shards, view);
}

/* The replicas that a view has if all of n devices have copies */
static uint64_t
all_replicas(int n)
{
	return (UINT64_C(1) << n) - 1;
}

/* Rows of a view, searched by each device alone, large batches by all */
static void
compare_copies(gpuvec_backend *one, const gpuvec_view *expected, gpuvec_backend *shards,
			   const gpuvec_view *view, const table *t)
{
	for (int p = 0; p < gpuvec_shards_of(shards)->ndevices; p++)
		compare_batch(one, expected, shards, p, view, t,
					  (gpuvec_measure) random_below(GPUVEC_N_WIRE_MEASURES),
					  1 + (uint32_t) random_below(NQUERIES));
	compare_batch(one, expected, shards, -1, view, t,
				  (gpuvec_measure) random_below(GPUVEC_N_WIRE_MEASURES),
				  2 * SPLIT_QUERIES + (uint32_t) random_below(3 * SPLIT_QUERIES));
	compare_views(one, expected, shards, view, t, GPUVEC_JACCARD);
}

/* Bury random rows of a view, as a refresh does, in the table too */
static gpuvec_view *
bury_some(gpuvec_backend *shards, const gpuvec_view *view, table *t)
{
	gpuvec_draft draft = {.backend = shards};
	gpuvec_view *next;
	gpuvec_error error;

	check(gpuvec_draft_copy(&draft, view, &error), "a view is drafted");
	for (uint32_t e = 0; e < draft.n; e += 2)
		for (uint32_t r = 0; r < draft.entries[e].segment->nrows; r++)
		{
			if (random_below(3) > 0 || !gpuvec_entry_live(&draft.entries[e], r))
				continue;
			check(gpuvec_entry_bury(&draft.entries[e], r, &error), "a row is buried");
			for (uint32_t i = 0; i < t->n; i++)
				t->rows[i].dead |= tid_of(t, i) == draft.entries[e].segment->tid[r];
		}
	gpuvec_draft_drop_dead(&draft);
	next = gpuvec_draft_finish(&draft, &error);
	check(next != NULL, "a draft is finished");
	gpuvec_draft_free(&draft);
	return next;
}

/*
 * Bytes that are allocated; sanitizers do not tell, but find what is lost.
 * Each thread keeps a little of what it frees, so this is not exact.
 */
static size_t
allocated(void)
{
#if __GLIBC_PREREQ(2, 33)
	struct mallinfo2 now = mallinfo2();
#else
	struct mallinfo now = mallinfo();
#endif

	return (size_t) now.uordblks + (size_t) now.hblkhd;
}

/*
 * Searches of large batches by copies free the batch.  Threads may get their
 * memory in any search, so a few are looked at together, several times: what
 * is lost is lost each time, and of a batch that is much.
 */
static void
copies_lose_nothing(gpuvec_backend *shards, const gpuvec_view *view, const table *t)
{
	gpuvec_topk_query queries[LARGE_BATCH] = {0};
	test_query *scratch = calloc(LARGE_BATCH, sizeof(*scratch));
	bool		lost = true;

	for (uint32_t i = 0; i < LARGE_BATCH; i++)
		draw_query(t, GPUVEC_JACCARD, &scratch[i], &queries[i]);
	for (int few = 0; few < 10 && lost; few++)
	{
		size_t		before = allocated();

		for (int i = 0; i < 5; i++)
		{
			gpuvec_topk_query *found = search(shards, view, GPUVEC_JACCARD, GPUVEC_METHOD_BITSET, queries, LARGE_BATCH);

			set_rows(found, LARGE_BATCH, 0, false);
			free(found);
		}
		lost = allocated() > before + LITTLE;
	}
	check(!lost, "searches by copies lose no memory");
	free(scratch);
}

/*
 * Copies of random tables; then rows are buried, and what is there is copied
 * again
 */
static void
test_copies(int ntables)
{
	gpuvec_backend *one = open_device();

	for (int i = 0; i < ntables; i++)
	{
		int			n = 2 + i % (MOST_SHARDS - 1);
		gpuvec_backend *shards = open_shards(n, NULL);
		table		t = make_table(1 + (uint32_t) random_below(150), 1 + (uint32_t) random_below(9), 30, false);
		gpuvec_view *expected = make_view(one, &t);
		gpuvec_view *view = make_view(shards, &t);
		gpuvec_view *next;
		int			segments[MOST_SHARDS];

		check(copy_view(shards, view), "a view is copied");
		check(shards->copier->replicas(shards, view, 1) == all_replicas(n) &&
			  shards->copier->replicas(shards, view, 2 * SPLIT_QUERIES) == 0, "all devices are lanes");
		compare_copies(one, expected, shards, view, &t);
		copies_lose_nothing(shards, view, &t);
		for (int p = 0; p < n; p++)
		{
			segments[p] = shard_device(shards, p)->segments;
			check(segments[p] == (int) view->nentries, "each device has all segments");
		}
		next = bury_some(shards, view, &t);
		gpuvec_view_unref(expected);
		expected = make_view(one, &t);
		if (next->nentries > 0)
			check(copy_view(shards, next), "the next view is copied");
		for (int p = 0; p < n; p++)
			check(shard_device(shards, p)->segments == segments[p], "without new copies of segments");
		compare_copies(one, expected, shards, next, &t);
		gpuvec_view_unref(view);
		compare_copies(one, expected, shards, next, &t);
		gpuvec_view_unref(next);
		gpuvec_view_unref(expected);
		check(nothing_placed(shards), "released copies no longer count");
		shards->close(shards);
		free(t.rows);
	}
	one->close(one);
}

/* Devices without memory have no copies; nothing is left of half of one */
static void
test_copies_refused(void)
{
	gpuvec_backend *one = open_device();
	gpuvec_backend *shards = open_shards(4, NULL);
	table		t = make_table(300, 8, 30, false);
	gpuvec_view *expected = make_view(one, &t);
	gpuvec_view *view = make_view(shards, &t);
	size_t		bytes;
	size_t		again;

	shard_device(shards, 1)->no_memory = true;
	shard_device(shards, 2)->no_view = true;
	check(copy_view(shards, view) && shards->copier->replicas(shards, view, 1) == 9,
		  "only devices with memory have copies");
	check(shard_device(shards, 1)->segments == 2 && shard_device(shards, 2)->segments == 2 &&
		  shard_device(shards, 3)->segments == 8, "nothing is left of others");
	for (int p = 0; p < 4; p += 3)
		compare_batch(one, expected, shards, p, view, &t, GPUVEC_JACCARD, 5);
	shard_device(shards, 0)->fails = GPUVEC_OUT_OF_MEMORY;
	compare_batch(one, expected, shards, 0, view, &t, GPUVEC_JACCARD, 5);
	compare_batch(one, expected, shards, -1, view, &t, GPUVEC_JACCARD, 3 * SPLIT_QUERIES);
	shard_device(shards, 0)->fails = NULL;
	shard_device(shards, 1)->no_memory = shard_device(shards, 2)->no_view = false;

	shards->copier->free_copies(shards->copier->take(shards, view, NULL));
	check(!shards->copier->has_copies(shards, view) && shards->copier->replicas(shards, view, 1) == 0 &&
		  shards->copier->bytes(shards, view, NULL) == 0, "copies are taken away");
	for (int p = 0; p < 4; p++)
		check(shard_device(shards, p)->segments == 2, "and freed");
	compare_batch(one, expected, shards, 2, view, &t, GPUVEC_JACCARD, 5);
	for (int p = 1; p < 4; p++)
		shard_device(shards, p)->no_memory = true;
	check(!copy_view(shards, view) && shards->copier->bytes(shards, view, NULL) == 0,
		  "one copy is not enough");
	for (int p = 1; p < 4; p++)
		shard_device(shards, p)->no_memory = false;

	/* large tables are spread, unless their owner wants another thing */
	gpuvec_shards_of(shards)->copy_bytes = 1000;
	check(!shards->copier->wanted(shards, view, GPUVEC_PLACE_AUTO, &bytes), "a large table has no copies");
	gpuvec_shards_of(shards)->copy_bytes = 1000000;
	check(shards->copier->wanted(shards, view, GPUVEC_PLACE_AUTO, &bytes) && bytes > 0, "a small one has");
	check(!shards->copier->wanted(shards, view, GPUVEC_PLACE_SPREAD, &again), "unless it is not to");
	check(copy_view(shards, view) && shards->copier->wanted(shards, view, GPUVEC_PLACE_AUTO, &again) &&
		  again < bytes, "what is there need not be made");
	gpuvec_view_unref(view);

	/* devices have no room for copies beside other tables */
	for (int p = 0; p < 4; p++)
		gpuvec_shards_of(shards)->children[p].budget = 1;
	view = make_view(shards, &t);
	check(!copy_view(shards, view), "copies keep the budgets of devices");
	gpuvec_view_unref(view);
	gpuvec_view_unref(expected);
	shards->close(shards);
	one->close(one);
	free(t.rows);
}

/* ---- cancelling ---- */

typedef struct running
{
	gpuvec_backend *shards;
	const gpuvec_view *view;
	gpuvec_topk_query *query;
	bool		ok;
} running;

static void *
run_search(void *arg)
{
	running    *run = arg;
	gpuvec_error error;

	run->ok = run->shards->topk(run->shards, run->view, &by_hamming, GPUVEC_METHOD_AUTO, run->query, 1,
							   &error);
	return NULL;
}

/* All devices are asked at the same time, and all hear that it is canceled */
static void
test_canceled(void)
{
	gpuvec_backend *shards = open_shards(4, NULL);
	table		t = make_table(200, 8, 20, false);
	gpuvec_view *view = make_view(shards, &t);
	gpuvec_match matches[10];
	gpuvec_topk_query query = {.k = 10, .matches = matches};
	running		run = {.shards = shards, .view = view, .query = &query};
	int			canceled = 0;
	int			waiting = 0;
	pthread_t	thread;

	query.canceled = &canceled;
	for (int p = 0; p < 4; p++)
		shard_device(shards, p)->waiting = &waiting;
	pthread_create(&thread, NULL, run_search, &run);
	while (__atomic_load_n(&waiting, __ATOMIC_RELAXED) < 4)
		sched_yield();
	__atomic_store_n(&canceled, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	check(run.ok && query.nmatches == 0, "a search is canceled on all devices");
	gpuvec_view_unref(view);
	shards->close(shards);
	free(t.rows);
}

#ifndef SHARDS_TEST_GPU
/* ---- sessions ---- */

/* A thread that searches, by the scheduler */
typedef struct session
{
	pthread_t	thread;
	gpuvec_scheduler *scheduler;
	const gpuvec_view *view;
	gpuvec_topk_query query;
	gpuvec_match matches[10];
	int			rounds;
	bool		ok;
} session;

static void *
run_session(void *arg)
{
	session    *s = arg;
	gpuvec_error error;

	s->ok = true;
	for (int i = 0; i < s->rounds; i++)
		s->ok &= gpuvec_scheduler_topk(s->scheduler, s->view, &by_hamming, GPUVEC_METHOD_AUTO,
									   &s->query, 1, &error);
	return NULL;
}

static void
start_session(session *s, gpuvec_scheduler *scheduler, const gpuvec_view *view, int rounds,
			  const int *canceled)
{
	memset(s, 0, sizeof(*s));
	s->scheduler = scheduler;
	s->view = view;
	s->rounds = rounds;
	s->query.k = 10;
	s->query.matches = s->matches;
	s->query.canceled = canceled;
	pthread_create(&s->thread, NULL, run_session, s);
}

static void
await(const int *counter, int n)
{
	while (__atomic_load_n(counter, __ATOMIC_RELAXED) < n)
		sched_yield();
}

/* Searches of one view with copies run on all devices at the same time */
static void
test_replicas(void)
{
	gpuvec_backend *shards = open_shards(4, NULL);
	table		t = make_table(200, 8, 20, true);
	table		single = make_table(50, 1, 20, true);
	gpuvec_view *view = make_view(shards, &t);
	gpuvec_view *small = make_view(shards, &single);
	gpuvec_view *spread = make_view(shards, &t);
	gpuvec_scheduler *scheduler = gpuvec_scheduler_new(shards);
	session		sessions[6];
	int			canceled = 0;
	int			waiting = 0;

	check(copy_view(shards, view), "a view is copied");
	check(__builtin_popcountll(shards->copier->replicas(shards, small, 1)) == 1,
		  "a single segment is searched by its device");
	for (int p = 0; p < 4; p++)
		shard_device(shards, p)->waiting = &waiting;
	for (int i = 0; i < 4; i++)
	{
		start_session(&sessions[i], scheduler, view, 1, &canceled);
		await(&waiting, i + 1);
	}
	/* these have to wait; the first one for all devices */
	start_session(&sessions[4], scheduler, spread, 1, &canceled);
	start_session(&sessions[5], scheduler, small, 1, &canceled);
	for (int i = 0; i < 100; i++)
		sched_yield();
	check(__atomic_load_n(&waiting, __ATOMIC_RELAXED) == 4, "each device searches once at a time");
	__atomic_store_n(&canceled, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 6; i++)
	{
		pthread_join(sessions[i].thread, NULL);
		check(sessions[i].ok, "a session searches");
	}
	check(waiting >= 4 + 1 + 1, "all have searched");
	gpuvec_scheduler_free(scheduler);
	gpuvec_view_unref(view);
	gpuvec_view_unref(small);
	gpuvec_view_unref(spread);
	shards->close(shards);
	free(t.rows);
	free(single.rows);
}

/* Sessions search while copies are taken away, and made again */
static void
test_copies_taken(void)
{
	gpuvec_backend *shards = open_shards(3, NULL);
	table		t = make_table(300, 6, 20, true);
	gpuvec_view *view = make_view(shards, &t);
	gpuvec_scheduler *scheduler = gpuvec_scheduler_new(shards);
	session		sessions[6];
	gpuvec_match first[10];

	for (int i = 0; i < 6; i++)
		start_session(&sessions[i], scheduler, view, 200, NULL);
	for (int i = 0; i < 60; i++)
	{
		check(copy_view(shards, view), "a view is copied");
		sched_yield();
		shards->copier->free_copies(shards->copier->take(shards, view, NULL));
	}
	for (int i = 0; i < 6; i++)
	{
		pthread_join(sessions[i].thread, NULL);
		check(sessions[i].ok && sessions[i].query.nmatches == 10, "a session searches");
		if (i == 0)
			memcpy(first, sessions[i].matches, sizeof(first));
		check(memcmp(first, sessions[i].matches, sizeof(first)) == 0, "and finds what others find");
	}
	gpuvec_scheduler_free(scheduler);
	gpuvec_view_unref(view);
	check(nothing_placed(shards), "released copies no longer count");
	shards->close(shards);
	free(t.rows);
}

#endif

/* ---- drafts ---- */

/* Rows that are buried: their live maps go where the segments are */
static void
test_draft(void)
{
	gpuvec_backend *one = open_device();
	gpuvec_backend *shards = open_shards(3, NULL);
	table		t = make_table(360, 6, 10, true);
	gpuvec_view *expected;
	gpuvec_view *view;
	gpuvec_view *next;
	gpuvec_draft draft = {.backend = shards};
	gpuvec_error error;

	for (uint32_t i = 0; i < t.n; i++)
		t.rows[i].dead = false;
	view = make_view(shards, &t);
	check(gpuvec_draft_copy(&draft, view, &error), "a view is drafted");
	for (uint32_t e = 0; e < draft.n; e++)
		for (uint32_t r = 0; r < draft.entries[e].segment->nrows; r += 3)
		{
			check(gpuvec_entry_bury(&draft.entries[e], r, &error), "a row is buried");
			for (uint32_t i = 0; i < t.n; i++)
				t.rows[i].dead |= tid_of(&t, i) == draft.entries[e].segment->tid[r];
		}
	next = gpuvec_draft_finish(&draft, &error);
	check(next != NULL, "a draft is finished");
	expected = make_view(one, &t);
	for (int round = 0; next && round < 8; round++)
		compare_views(one, expected, shards, next, &t, (gpuvec_measure) round);
	gpuvec_view_unref(next);
	gpuvec_view_unref(view);
	gpuvec_view_unref(expected);
	gpuvec_draft_free(&draft);
	shards->close(shards);
	one->close(one);
	free(t.rows);
}

/* With an argument: so many random tables */
int
main(int argc, char **argv)
{
	int			ntables = argc > 1 ? atoi(argv[1]) : 1500;
	int			some = ntables < 200 ? ntables : 200;

	test_random(ntables);
#ifndef SHARDS_TEST_GPU
	test_joint(200);
#endif
	test_places();
	test_host();
	test_refused();
	test_half_adopted();
	test_failing();
	test_elsewhere(some, false);
	test_elsewhere(some / 2, true);
	test_canceled();
	test_draft();
	test_copies(some);
	test_copies_refused();
	test_many_groups(GPUVEC_MOST_GROUPS);
	test_many_groups(GPUVEC_MOST_GROUPS + 2);
#ifndef SHARDS_TEST_GPU
	test_replicas();
	test_copies_taken();
#endif
#ifdef SHARDS_TEST_GPU
	for (int i = 0; i < MOST_SHARDS; i++)
		if (gpus[i])
			gpus[i]->close(gpus[i]);
#endif
	check(counted_rows > 100, "devices count rows");
	check(several_groups > 20 && several_ids > 20, "devices put rows into groups, also by ids");
	return report_checks();
}
