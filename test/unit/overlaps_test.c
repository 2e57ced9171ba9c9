/*-------------------------------------------------------------------------
 *
 * overlaps_test.c
 *	  Test of counting the rows of pairs of queries, against a loop over all
 *	  rows and pairs.
 *
 * Compiled with OVERLAPS_TEST_GPU it tests the CUDA backend, which may be
 * emulated (search.mk, cuda.mk): with an argument "full" more of it.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/cpu_vectors.h"
#include "engine/sets/draft.h"
#include "engine/sets/id_numbers.h"
#include "engine/shards/shards.h"
#include "unit_test.h"
#ifdef OVERLAPS_TEST_GPU
#include "search_met.h"
#endif

#define LONGEST		12
#define MOST_QUERIES	200
#define PAGE_ROWS	20			/* rows of a page */

typedef struct model_row
{
	uint64_t	tid;
	uint32_t	len;
	uint32_t	ids[LONGEST];	/* numbers; those from GPUVEC_HOT_NUMBERS on
								 * are cold */
	bool		dead;
} model_row;

/* What a table is like */
typedef struct table_kind
{
	uint32_t	n;
	uint32_t	vocabulary;
	bool		cold;			/* rows have cold numbers */
	uint32_t	dead;			/* one in so many rows is dead; 0: none */
	uint32_t	pieces;			/* it is built in */
} table_kind;

typedef struct table
{
	table_kind	kind;
	model_row  *rows;			/* in the order of tid */
	uint8_t    *pages;			/* whose rows are counted */
	uint64_t	page_bytes;
} table;

/* The numbers of a query */
typedef struct query_numbers
{
	uint16_t	hot[LONGEST];
	uint32_t	cold[LONGEST];
	uint32_t	all[LONGEST];
	uint32_t	n;
} query_numbers;

/* What the answers had in all */
static uint64_t counted;
static uint64_t listed;
static uint64_t by_cold;
static uint64_t several_segments;

/* A random set of numbers, ascending; small ones are common */
static uint32_t
random_ids(const table_kind *kind, uint32_t *ids)
{
	uint32_t	n = (uint32_t) random_below(LONGEST + 1);
	uint32_t	len = 0;

	for (uint32_t i = 0; i < n; i++)
	{
		uint32_t	id = (uint32_t) random_below(random_below(kind->vocabulary) + 1);
		uint32_t	j = 0;

		if (kind->cold && random_below(4) == 0)
			id += GPUVEC_HOT_NUMBERS + (random_below(2) ? 0 : 100000);
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

static table
make_table(table_kind kind)
{
	table		t = {.kind = kind,.rows = calloc(kind.n, sizeof(model_row))};

	for (uint32_t i = 0; i < kind.n; i++)
	{
		t.rows[i].tid = gpuvec_tid(i / PAGE_ROWS, i % PAGE_ROWS + 1);
		t.rows[i].len = random_ids(&kind, t.rows[i].ids);
		t.rows[i].dead = kind.dead > 0 && random_below(kind.dead) == 0;
	}
	t.page_bytes = (kind.n / PAGE_ROWS / 32 + 1) * 8;
	t.pages = malloc(t.page_bytes);
	return t;
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

/* Stage the rows first .. end - 1, and build segments of them */
static void
build_rows(gpuvec_draft *draft, const table *t, uint32_t first, uint32_t end)
{
	gpuvec_stage *stage = gpuvec_stage_new((gpuvec_row_kind) {0});
	uint16_t	packed[2 * LONGEST + 2];
	gpuvec_error error;
	bool		ok = true;

	for (uint32_t i = first; i < end; i++)
	{
		gpuvec_source_row row = {.tid = t->rows[i].tid};

		gpuvec_pack_numbers(t->rows[i].ids, t->rows[i].len, packed, &row);
		ok &= gpuvec_stage_add(stage, &row, false, &error);
	}
	if (end > first)
	{
		gpuvec_stage_target target = {
			.pool = draft->pool,.backend = draft->backend,.nblocks = UINT32_MAX,
			.nrows = gpuvec_stage_rows(stage),.shares = 2,.progress = no_progress
		};

		ok &= gpuvec_draft_build(draft, stage, &target, &error);
	}
	check(ok, "segments are built");
	gpuvec_stage_free(stage);
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

static gpuvec_view *
make_view(gpuvec_backend *backend, gpuvec_thread_pool *pool, const table *t)
{
	gpuvec_draft draft = {.backend = backend,.pool = pool};
	gpuvec_error error;
	gpuvec_view *view;

	for (uint32_t i = 0; i < t->kind.pieces; i++)
		build_rows(&draft, t, (uint32_t) ((uint64_t) t->kind.n * i / t->kind.pieces),
				   (uint32_t) ((uint64_t) t->kind.n * (i + 1) / t->kind.pieces));
	bury_dead(&draft, t);
	view = gpuvec_draft_finish(&draft, &error);
	check(view != NULL, "a view");
	gpuvec_draft_free(&draft);
	several_segments += view->nentries > 1;
	return view;
}

/* ---- queries ---- */

/* Random numbers, those of a row sometimes, or none that rows have */
static void
random_query(const table *t, query_numbers *numbers, gpuvec_topk_query *q)
{
	memset(q, 0, sizeof(*q));
	numbers->n = random_ids(&t->kind, numbers->all);
	if (random_below(10) == 0)
	{
		const model_row *row = &t->rows[random_below(t->kind.n)];

		numbers->n = row->len;
		memcpy(numbers->all, row->ids, sizeof(row->ids));
	}
	q->ids = numbers->hot;
	q->cold = numbers->cold;
	for (uint32_t i = 0; i < numbers->n; i++)
		if (numbers->all[i] < GPUVEC_HOT_NUMBERS)
			numbers->hot[q->len++] = (uint16_t) numbers->all[i];
		else
			numbers->cold[q->ncold++] = numbers->all[i];
	q->others = q->ncold;
}

/* True if two ascending lists share a number */
static bool
share_number(const uint32_t *a, uint32_t na, const uint32_t *b, uint32_t nb)
{
	for (uint32_t i = 0, j = 0; i < na && j < nb;)
	{
		if (a[i] == b[j])
			return true;
		if (a[i] < b[j])
			i++;
		else
			j++;
	}
	return false;
}

/* All pages, none, the first ones or some; in the upper bits anything */
static void
random_pages(table *t)
{
	uint64_t	kind = random_below(5);
	uint32_t	npages = (t->kind.n + PAGE_ROWS - 1) / PAGE_ROWS;
	uint32_t	from = (uint32_t) random_below(npages + 1);

	memset(t->pages, 0, t->page_bytes);
	for (uint32_t page = 0; page < npages; page++)
	{
		bool		has = kind == 0 || (kind == 1 && page < from) ||
			(kind == 2 && random_below(40) > 0) || (kind == 3 && random_below(3) == 0);

		t->pages[page / 4] |= (uint8_t) ((has ? 1 : 0) | (random_below(2) ? 2 : 0)) << (page % 4 * 2);
	}
}

static bool
page_counts(const table *t, const gpuvec_overlaps *asked, uint64_t tid)
{
	uint32_t	block = gpuvec_tid_block(tid);

	return block / 4 < asked->counts.bytes && (t->pages[block / 4] >> (block % 4 * 2) & 1);
}

static int
compare_tids(const void *a, const void *b)
{
	uint64_t	x = *(const uint64_t *) a;
	uint64_t	y = *(const uint64_t *) b;

	return x < y ? -1 : x > y;
}

/* Count as it should be: *expected has room for all pairs, *tids for rows */
static uint64_t
count_plainly(const table *t, const gpuvec_overlaps *asked, const query_numbers *numbers,
			  uint64_t *expected, uint64_t *tids)
{
	uint64_t	ntids = 0;

	for (uint32_t r = 0; r < t->kind.n; r++)
	{
		const model_row *row = &t->rows[r];
		uint32_t	found[MOST_QUERIES];
		uint32_t	n = 0;

		if (row->dead)
			continue;
		for (uint32_t q = 0; q < asked->n; q++)
			if (share_number(row->ids, row->len, numbers[q].all, numbers[q].n))
				found[n++] = q;
		if (!page_counts(t, asked, row->tid))
		{
			if (n > 0)
				tids[ntids++] = row->tid;
			continue;
		}
		for (uint32_t i = 0; i < n; i++)
			for (uint32_t j = i; j < n; j++)
				expected[found[i] * asked->n + found[j]]++;
	}
	return ntids;
}

static bool
right_answer(const table *t, gpuvec_overlaps *answer, const query_numbers *numbers,
			 uint64_t before)
{
	uint64_t   *expected = calloc((size_t) answer->n * answer->n, sizeof(uint64_t));
	uint64_t   *tids = malloc((t->kind.n + (size_t) 1) * sizeof(uint64_t));
	uint64_t	ntids = count_plainly(t, answer, numbers, expected, tids);
	const uint64_t *pair = answer->pairs;
	bool		right = answer->ntids == ntids;

	for (uint32_t a = 0; a < answer->n; a++)
		for (uint32_t b = a; b < answer->n; b++, pair++)
		{
			right &= *pair == before + expected[a * answer->n + b];
			counted += *pair - before;
		}
	if (right && ntids > 0)
	{
		qsort(answer->tids, ntids, sizeof(uint64_t), compare_tids);
		right = memcmp(tids, answer->tids, ntids * sizeof(uint64_t)) == 0;
	}
	listed += ntids;
	free(expected);
	free(tids);
	return right;
}

#ifdef OVERLAPS_TEST_GPU
static struct gpuvec_search_stats met;
#endif

/* Ask for n queries; what was counted before stays */
static void
test_queries(gpuvec_backend *backend, const gpuvec_view *view, table *t, uint32_t n)
{
	static gpuvec_topk_query queries[MOST_QUERIES];
	static query_numbers numbers[MOST_QUERIES];
	int			canceled = 0;
	gpuvec_overlaps answer = {.queries = queries,.n = n,.canceled = random_below(2) ? &canceled : NULL};
	uint64_t	before = random_below(2) ? 0 : random_below(1000);
	gpuvec_error error;
	bool		ok;

	for (uint32_t q = 0; q < n; q++)
	{
		random_query(t, &numbers[q], &queries[q]);
		by_cold += queries[q].ncold > 0;
	}
	/* the same twice */
	if (n > 1)
	{
		queries[n - 1] = queries[0];
		numbers[n - 1] = numbers[0];
	}
	random_pages(t);
	answer.counts.bits = t->pages;
	answer.counts.bytes = random_below(4) ? t->page_bytes : random_below(t->page_bytes / 8) * 8;
	answer.pairs = malloc(gpuvec_overlap_pairs(n) * sizeof(uint64_t));
	for (uint64_t i = 0; i < gpuvec_overlap_pairs(n); i++)
		answer.pairs[i] = before;
	ok = backend->overlaps(backend, view, &answer, &error);
	check(ok, "pairs are counted");
	check(ok && right_answer(t, &answer, numbers, before), "rows of pairs of queries");
#ifdef OVERLAPS_TEST_GPU
	if (!gpuvec_shards_of(backend))
		add_search(&met, backend);
#endif
	free(answer.tids);
	/* nothing has to be right, but that it ends */
	canceled = 1;
	answer.canceled = &canceled;
	check(backend->overlaps(backend, view, &answer, &error), "a count is canceled");
	free(answer.tids);
	free(answer.pairs);
}

static void
test_table(gpuvec_backend *backend, gpuvec_thread_pool *pool, table_kind kind, int rounds)
{
	static const uint32_t sizes[] = {1, 2, 3, 31, 32, 33, 63, 64, 65, 100, 129, MOST_QUERIES};
	table		t = make_table(kind);
	gpuvec_view *view = make_view(backend, pool, &t);

	for (int round = 0; round < rounds; round++)
		test_queries(backend, view, &t, sizes[(uint64_t) round % (sizeof(sizes) / sizeof(sizes[0]))]);
	gpuvec_view_unref(view);
	free(t.rows);
	free(t.pages);
}

static void
test_tables(gpuvec_backend *backend, gpuvec_thread_pool *pool, bool full)
{
	test_table(backend, pool, (table_kind) {1, 5, false, 0, 1}, 6);
	for (uint32_t n = 31; n <= 33; n++)
		test_table(backend, pool, (table_kind) {n, 40, n == 32, 5, 1}, 12);
	test_table(backend, pool, (table_kind) {511, 40, true, 5, 1}, 12);
	test_table(backend, pool, (table_kind) {513, 1000, false, 0, 3}, 12);
	test_table(backend, pool, (table_kind) {3000, 65536, true, 20, 4}, 24);
	test_table(backend, pool, (table_kind) {3000, 60, false, 20, 4}, 24);
	test_table(backend, pool, (table_kind) {GPUVEC_SEGMENT_ROWS - 1, 3000, false, 100, 1}, full ? 12 : 3);
	test_table(backend, pool, (table_kind) {GPUVEC_SEGMENT_ROWS + 1, 3000, true, 0, 1}, full ? 12 : 4);
	if (full)
		test_table(backend, pool, (table_kind) {200000, 10000, true, 30, 3}, 12);
}

/* Two devices of the same kind as one */
static gpuvec_backend *
open_shards(gpuvec_backend *(*open) (const gpuvec_backend_options *options, gpuvec_error *error),
			const gpuvec_backend_options *options)
{
	static const size_t budgets[] = {1000000000, 1000000000};
	gpuvec_backend *children[2];
	gpuvec_error error;

	for (int i = 0; i < 2; i++)
	{
		children[i] = open(options, &error);
		/* an emulated GPU searches only */
		if (children[i]->vectors == NULL)
			children[i]->vectors = &gpuvec_cpu_vectors;
	}
	return gpuvec_shards_open(children, budgets, 2, false, &error);
}

#ifdef OVERLAPS_TEST_GPU

int
main(int argc, char **argv)
{
	gpuvec_thread_pool *pool = gpuvec_thread_pool_new(2);
	bool		full = argc > 1 && strcmp(argv[1], "full") == 0;
	gpuvec_backend_options options = {.threads = 1};
	gpuvec_error error;
	gpuvec_backend *backend = gpuvec_cuda_open(&options, &error);
	gpuvec_backend *shards;
	uint64_t	counts;

	if (backend == NULL)
	{
		printf("no GPU: %s\n", error.message);
		return 1;
	}
	test_tables(backend, pool, full);
	backend->close(backend);
	counts = met.overlap_steps;

	/* memory for a segment or two at a time */
	options.workspace = 100000;
	backend = gpuvec_cuda_open(&options, &error);
	test_table(backend, pool, (table_kind) {3000, 60, false, 20, 4}, 24);
	test_table(backend, pool, (table_kind) {5000, 60000, true, 20, 7}, 24);
	backend->close(backend);
	check(met.overlap_steps > counts + 60, "some segments are taken at a time");

	options.workspace = 0;
	shards = open_shards(gpuvec_cuda_open, &options);
	test_table(shards, pool, (table_kind) {3000, 60, true, 20, 4}, 12);
	shards->close(shards);

	check(counted > 100000 && listed > 10000, "rows are counted, or listed");
	check(by_cold > 100, "queries have cold numbers");
	check(several_segments > 5, "views have several segments");
	gpuvec_thread_pool_free(pool);
	return report_checks();
}

#else

int
main(void)
{
	gpuvec_thread_pool *pool = gpuvec_thread_pool_new(2);
	gpuvec_backend_options options = {.threads = 1};
	gpuvec_error error;
	gpuvec_backend *backend;

	for (int simd = 1; simd <= 3; simd++)
	{
		options.simd = simd;
		options.threads = simd == 2 ? 3 : 1;
		backend = gpuvec_cpu_open(&options, &error);
		test_tables(backend, pool, simd == 2);
		backend->close(backend);
	}
	backend = open_shards(gpuvec_cpu_open, &options);
	test_table(backend, pool, (table_kind) {3000, 60, true, 20, 4}, 12);
	test_table(backend, pool, (table_kind) {20, 60, true, 20, 1}, 12);
	backend->close(backend);
	check(counted > 100000 && listed > 10000, "rows are counted, or listed");
	check(by_cold > 100, "queries have cold numbers");
	check(several_segments > 5, "views have several segments");
	gpuvec_thread_pool_free(pool);
	return report_checks();
}

#endif
