/*-------------------------------------------------------------------------
 *
 * topk_test.c
 *	  Test of measures, segments and the CPU backend, against brute force that
 *	  shares nothing with them: sets are merged, scores computed from formulas
 *	  written again, answers sorted as a whole.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/backend.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/sets/id_numbers.h"

typedef struct set
{
	uint32_t	len;
	uint16_t   *ids;
} set;

typedef struct answer
{
	double		score;
	uint64_t	tid;
	uint32_t	common;
} answer;

/* A table of rows, as they lie in a view */
typedef struct table
{
	uint32_t	n;
	gpuvec_source_row *rows;	/* in order of tid */
	bool	   *dead;
	uint32_t	split;			/* rows that go to segments of their own */
} table;

static long passed = 0;
static long failed = 0;
static uint64_t seed = 88172645463325252u;

/* xorshift64 (Marsaglia 2003) */
static uint32_t
random32(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t) (seed >> 24);
}

static void *
allocate(size_t size)
{
	void	   *p = calloc(1, size ? size : 1);

	if (p == NULL)
		abort();
	return p;
}

static void
check(bool ok, const char *what)
{
	if (ok)
		passed++;
	else
	{
		failed++;
		printf("not ok - %s\n", what);
	}
}

/* A random set of at most n ids below vocabulary */
static set
random_set(uint32_t n, uint32_t vocabulary)
{
	uint8_t    *has = allocate(vocabulary);
	set			s = {0};

	s.ids = allocate((n + 1) * sizeof(uint16_t));
	/* skewed, so that some ids are common */
	for (uint32_t i = 0; i < n; i++)
		has[random32() % (random32() % vocabulary + 1)] = 1;
	for (uint32_t id = 0; id < vocabulary; id++)
		if (has[id])
			s.ids[s.len++] = (uint16_t) id;
	free(has);
	return s;
}

static uint32_t
common_ids(const uint16_t *a, uint32_t na, const uint16_t *b, uint32_t nb)
{
	uint32_t	n = 0;

	for (uint32_t i = 0, j = 0; i < na && j < nb;)
	{
		if (a[i] == b[j])
			n++, i++, j++;
		else if (a[i] < b[j])
			i++;
		else
			j++;
	}
	return n;
}

/*
 * Weights of tversky, which count as measures of their own here, and the
 * power of ten that makes integers of them; 0: none does
 */
static const struct
{
	double		alpha;
	double		beta;
	double		scale;
}			some_weights[] = {
	{0.7, 0.3, 10}, {0, 1, 1}, {2.25, 0, 100}, {1.0 / 3, 1e-7, 0}, {1e300, 2, 0}, {1e-300, 1e-12, 0}
};

#define N_WEIGHTS	6
#define N_MEASURES	(GPUVEC_N_MEASURES + N_WEIGHTS)

/* tversky with the weights of such a measure */
static double
tversky(int measure, double i, double a, double b)
{
	double		alpha = some_weights[measure - GPUVEC_TVERSKY].alpha;
	double		beta = some_weights[measure - GPUVEC_TVERSKY].beta;
	double		scale = some_weights[measure - GPUVEC_TVERSKY].scale;

	if (i == 0)
		return 0;
	if (scale == 0)
		return 1 / (1 + (alpha * (a - i) + beta * (b - i)) / i);
	return scale * i / (scale * i + rint(alpha * scale) * (a - i) + rint(beta * scale) * (b - i));
}

/* Such a measure, with its weights */
static gpuvec_scoring
scoring_of(int measure)
{
	gpuvec_scoring scoring = {.measure = measure < GPUVEC_TVERSKY ? measure : GPUVEC_TVERSKY};

	if (measure >= GPUVEC_TVERSKY)
		scoring.tversky = gpuvec_make_tversky(some_weights[measure - GPUVEC_TVERSKY].alpha,
											  some_weights[measure - GPUVEC_TVERSKY].beta);
	return scoring;
}

/* The formulas of the measures */
static double
formula(int measure, double i, double a, double b)
{
	double		den;

	if (measure >= GPUVEC_TVERSKY)
		return tversky(measure, i, a, b);
	switch (measure)
	{
		case 0:
			den = fmax(a, b);
			break;
		case 1:
			den = a + b - i;
			break;
		case 2:
			return a * b == 0 ? 0 : sqrt(i * i / (a * b));
		case 3:
			i = 2 * i;
			den = a + b;
			break;
		case 4:
			den = fmin(a, b);
			break;
		case 5:
			den = a;
			break;
		case 6:
			return i;
		case 7:
			return a + b == 2 * i ? 0.0 : -(a + b - 2 * i);
		default:
			i = i * (a + b);
			den = 2 * a * b;
			break;
	}
	return den == 0 ? 0 : i / den;
}

static int
compare_answers(const void *x, const void *y)
{
	const answer *a = x;
	const answer *b = y;

	if (a->score != b->score)
		return a->score > b->score ? -1 : 1;
	return a->tid < b->tid ? -1 : a->tid > b->tid;
}

/* How many ids the query shares with each row; malloc'd */
static uint32_t *
count_common(const table *t, const gpuvec_topk_query *q)
{
	uint32_t   *common = allocate((t->n + 1) * sizeof(uint32_t));

	for (uint32_t r = 0; r < t->n; r++)
		common[r] = common_ids(q->ids, q->len, t->rows[r].ids, t->rows[r].len);
	return common;
}

/* The answer by brute force, given what is shared; malloc'd */
static answer *
brute(const table *t, int measure, const gpuvec_topk_query *q, const uint32_t *common, uint32_t *n)
{
	answer	   *all = allocate((t->n + 1) * sizeof(answer));

	*n = 0;
	for (uint32_t r = 0; r < t->n; r++)
	{
		const gpuvec_source_row *row = &t->rows[r];
		answer		a = {.tid = row->tid};
		answer		after = {.score = q->after_score,.tid = q->after_tid};

		if (t->dead[r])
			continue;
		a.common = common[r];
		if (a.common == 0 && measure != 7)
			continue;
		a.score = formula(measure, a.common, q->len, row->len);
		if ((q->has_min_score && a.score < q->min_score) ||
			(q->has_after && compare_answers(&a, &after) <= 0))
			continue;
		all[(*n)++] = a;
	}
	qsort(all, *n, sizeof(answer), compare_answers);
	if (*n > q->k)
		*n = q->k;
	return all;
}

/* Is the backend's answer the same? */
static bool
same_answer(const gpuvec_topk_query *q, const answer *want, uint32_t n)
{
	if (q->nmatches != n)
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (q->matches[i].score != want[i].score || q->matches[i].tid != want[i].tid ||
			q->matches[i].common != want[i].common || signbit(q->matches[i].score) != signbit(want[i].score))
			return false;
	return true;
}

static int
compare_numbers(const void *x, const void *y)
{
	uint64_t	a = *(const uint64_t *) x;
	uint64_t	b = *(const uint64_t *) y;

	return a < b ? -1 : a > b;
}

/* Has the backend's answer the same tids, in any order? */
static bool
same_tids(const gpuvec_topk_query *q, const answer *want, uint32_t n)
{
	uint64_t   *tids = allocate(n * sizeof(uint64_t));
	bool		same = q->nmatches == n;

	for (uint32_t i = 0; i < n; i++)
		tids[i] = want[i].tid;
	qsort(tids, n, sizeof(uint64_t), compare_numbers);
	if (same && n > 0)
	{
		qsort(q->tids, n, sizeof(uint64_t), compare_numbers);
		same = memcmp(q->tids, tids, n * sizeof(uint64_t)) == 0;
	}
	free(tids);
	return same;
}

/*
 * Segments [from, to) of the table's rows added to entries; dead rows marked
 */
static uint32_t
add_segments(gpuvec_backend *b, const table *t, uint32_t from, uint32_t to,
			 gpuvec_view_entry *entries, uint32_t n)
{
	uint32_t	count = to - from;
	gpuvec_source_row *rows = allocate(count * sizeof(*rows));
	gpuvec_error error;

	memcpy(rows, t->rows + from, count * sizeof(*rows));
	/* rows may come in any order */
	for (uint32_t i = count; i > 1 && from % 2; i--)
	{
		uint32_t	j = random32() % i;
		gpuvec_source_row swap = rows[i - 1];

		rows[i - 1] = rows[j];
		rows[j] = swap;
	}
	check(gpuvec_rows_sort(rows, count, &error), "rows_sort");
	for (uint32_t first = 0; first < count; first += GPUVEC_SEGMENT_ROWS)
	{
		uint32_t	m = count - first < GPUVEC_SEGMENT_ROWS ? count - first : GPUVEC_SEGMENT_ROWS;
		gpuvec_segment *segment = gpuvec_segment_build(rows + first, m, (gpuvec_row_kind) {0}, &error);
		gpuvec_livemap *live = NULL;

		for (uint32_t r = 0; r < m; r++)
		{
			/* tids are (row + 1) * 7 */
			if (!t->dead[rows[first + r].tid / 7 - 1])
				continue;
			if (live == NULL)
				live = gpuvec_livemap_new(m, &error);
			live->bits[r / 32] &= ~(1u << (r % 32));
			live->nlive--;
		}
		check(b->adopt_segment(b, segment, &error) && b->adopt_livemaps(b, &live, live != NULL, &error), "adopt");
		entries[n++] = (gpuvec_view_entry) {.segment = segment,.live = live};
	}
	free(rows);
	return n;
}

static gpuvec_view *
make_view(gpuvec_backend *b, const table *t)
{
	gpuvec_view_entry entries[64];
	uint32_t	n = 0;
	gpuvec_error error;
	gpuvec_view *view;

	if (t->split > 0)
		n = add_segments(b, t, 0, t->split, entries, n);
	if (t->n > t->split)
		n = add_segments(b, t, t->split, t->n, entries, n);
	view = gpuvec_view_new(entries, n, &error);
	check(b->adopt_view(b, view, &error), "adopt_view");
	return view;
}

/* The order of results */
static int
compare_matches(const void *x, const void *y)
{
	const gpuvec_match *a = x;
	const gpuvec_match *b = y;

	if (a->score != b->score)
		return a->score > b->score ? -1 : 1;
	return a->tid < b->tid ? -1 : a->tid > b->tid;
}

/* The answer of a query by brute force */
typedef struct expected
{
	answer	   *answers;
	uint32_t	n;
} expected;

/* Searches by lists that had matches */
static uint64_t by_lists;

/* Rows that were counted, not listed */
static uint64_t rows_counted;

/* All pages that there are */
static const gpuvec_page_set *
all_pages(void)
{
	static uint8_t bits[1 << 16];
	static const gpuvec_page_set set = {bits, sizeof(bits)};

	if (bits[0] == 0)
		memset(bits, 0x55, sizeof(bits));
	return &set;
}

/* Has a bare query counted n rows, or listed them?  A GPU may refuse it. */
static bool
right_count(const gpuvec_topk_query *query, bool refuses, uint32_t n)
{
	if (query->counted == GPUVEC_NOT_COUNTED)
		return refuses && query->nmatches == 0;
	rows_counted += query->counted;
	return query->counted + query->nmatches == n;
}

/*
 * Search the first n queries and compare with what is expected of some of
 * them
 */
static bool
search_equals(gpuvec_backend *b, const gpuvec_view *view, int measure, gpuvec_method method,
			  gpuvec_topk_query *queries, uint32_t n, const expected *want)
{
	gpuvec_scoring scoring = scoring_of(measure);
	gpuvec_error error;

	for (uint32_t i = 0; i < n; i++)
	{
		queries[i].nmatches = UINT32_MAX;
		queries[i].bare = queries[i].unordered && random32() % 2;
		queries[i].counts = (gpuvec_page_set) {0};
		if (queries[i].bare && b->takes_counts && random32() % 2)
			queries[i].counts = *all_pages();
	}
	if (!b->topk(b, view, &scoring, method, queries, n, &error))
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (queries[i].unordered && !queries[i].bare && queries[i].nmatches > 0)
			qsort(queries[i].matches, queries[i].nmatches, sizeof(gpuvec_match), compare_matches);
	for (uint32_t i = 0; i < n; i++)
		if (want[i].answers &&
			!(queries[i].counts.bytes > 0 ? right_count(&queries[i], b->on_device, want[i].n) :
			  (queries[i].bare ? same_tids : same_answer) (&queries[i], want[i].answers, want[i].n)))
			return false;
	/* a way is told unless no row can share an id */
	for (uint32_t i = 0; i < n; i++)
	{
		uint32_t	ways = queries[i].ways;

		by_lists += queries[i].nmatches > 0 && (ways & gpuvec_way_bit(GPUVEC_WAY_LISTS)) != 0;
		if (ways >> GPUVEC_N_WAYS != 0 || (queries[i].nmatches > 0 && ways == 0) ||
			(method == GPUVEC_METHOD_BITSET && queries[i].ncold == 0 &&
			 (ways & ~(gpuvec_way_bit(GPUVEC_WAY_SCAN) | gpuvec_way_bit(GPUVEC_WAY_GATHERED)))))
			return false;
	}
	return true;
}

/*
 * Search a table in many ways, by this measure and every step-th one behind
 * it, and compare
 */
static void
test_measures_of(const char *name, gpuvec_backend **backends, int nbackends, const table *t,
				 uint32_t nqueries, uint32_t qlen, uint32_t vocabulary, uint32_t k, int first, int step)
{
	gpuvec_topk_query *queries = allocate(nqueries * sizeof(*queries));
	set		   *sets = allocate(nqueries * sizeof(set));
	expected   *want = allocate(nqueries * sizeof(expected));
	uint32_t  **common = allocate(nqueries * sizeof(uint32_t *));
	gpuvec_view *views[16];

	for (int b = 0; b < nbackends; b++)
		views[b] = make_view(backends[b], t);
	for (uint32_t i = 0; i < nqueries; i++)
	{
		sets[i] = random_set(random32() % (qlen + 1), vocabulary);
		/* some queries are rows */
		if (t->n > 0 && i % 3 == 0)
		{
			const gpuvec_source_row *row = &t->rows[random32() % t->n];

			free(sets[i].ids);
			sets[i].ids = allocate((row->len + 1) * sizeof(uint16_t));
			sets[i].len = row->len;
			memcpy(sets[i].ids, row->ids, row->len * sizeof(uint16_t));
		}
		queries[i].ids = sets[i].ids;
		queries[i].len = sets[i].len;
		/* a sample: brute force is slow */
		common[i] = i < 40 || i % 14 == 0 ? count_common(t, &queries[i]) : NULL;
	}
	for (int measure = first; measure < N_MEASURES; measure += step)
	{
		for (uint32_t i = 0; i < nqueries; i++)
		{
			gpuvec_topk_query *q = &queries[i];

			q->k = i % 5 == 0 ? 1 : i % 5 == 1 ? k : i % 5 == 2 ? 100000 : 1 + random32() % k;
			q->has_min_score = i % 4 == 1;
			q->min_score = measure == 6 ? 2 : measure == 7 ? -(double) (i % 8 == 1 ? 0 : random32() % 40) : (random32() % 100) / 100.0;
			q->has_after = i % 7 == 3;
			if (t->n > 0)
			{
				const gpuvec_source_row *row = &t->rows[random32() % t->n];

				q->after_score = formula(measure, common_ids(q->ids, q->len, row->ids, row->len), q->len, row->len);
				q->after_tid = row->tid;
				if (q->after_score == 0 && i % 2)
					q->after_score = -0.0;
			}
			/* all rows, in any order */
			q->unordered = i % 6 <= 1 && random32() % 2 && !q->has_after && backends[0]->takes_unordered;
			if (q->unordered)
				q->k = UINT32_MAX;
			q->matches = q->unordered ? NULL : allocate((t->n < q->k ? t->n : q->k) * sizeof(gpuvec_match));
		}
		for (uint32_t i = 0; i < nqueries; i++)
			want[i].answers = common[i] ? brute(t, measure, &queries[i], common[i], &want[i].n) : NULL;
		for (int b = 0; b < nbackends; b++)
		{
			/* alone, few, all: different code */
			uint32_t	sizes[] = {1, 3, nqueries};

			/* inverted lists are there before the backend may choose */
			static const gpuvec_method methods[] = {
				GPUVEC_METHOD_BITSET, GPUVEC_METHOD_INVERTED, GPUVEC_METHOD_DENSE, GPUVEC_METHOD_AUTO
			};

			for (int m = 0; m < GPUVEC_N_METHODS; m++)
				for (int i = 0; i < 3; i++)
					check(search_equals(backends[b], views[b], measure, methods[m], queries,
										sizes[i] < nqueries ? sizes[i] : nqueries, want), name);
		}
		for (uint32_t i = 0; i < nqueries; i++)
			free(want[i].answers);
		for (uint32_t i = 0; i < nqueries; i++)
		{
			free(queries[i].matches);
			free(queries[i].tids);
			queries[i].tids = NULL;
		}
	}
	for (int b = 0; b < nbackends; b++)
		gpuvec_view_unref(views[b]);
	for (uint32_t i = 0; i < nqueries; i++)
	{
		free(sets[i].ids);
		free(common[i]);
	}
	free(sets);
	free(want);
	free(common);
	free(queries);
}

/* By each measure */
static void
test_table(const char *name, gpuvec_backend **backends, int nbackends, const table *t,
		   uint32_t nqueries, uint32_t qlen, uint32_t vocabulary, uint32_t k)
{
	test_measures_of(name, backends, nbackends, t, nqueries, qlen, vocabulary, k, 0, 1);
}

/* A table of n random rows */
static table
make_table(uint32_t n, uint32_t maxlen, uint32_t vocabulary)
{
	table		t = {.n = n};

	t.rows = allocate(n * sizeof(*t.rows));
	t.dead = allocate(n);
	for (uint32_t i = 0; i < n; i++)
	{
		set			s = random_set(random32() % (maxlen + 1), vocabulary);

		t.rows[i] = (gpuvec_source_row) {(uint64_t) (i + 1) * 7, s.len, 0, s.ids, NULL};
	}
	return t;
}

static void
free_table(table *t)
{
	for (uint32_t i = 0; i < t->n; i++)
		free((void *) t->rows[i].ids);
	free(t->rows);
	free(t->dead);
}

/*
 * gpuvec_need must never be more than what is needed; keys must keep the
 * order
 */
static void
test_measures(void)
{
	long		wrong = 0;
	long		keys = 0;

	for (int m = 0; m < N_MEASURES; m++)
		for (uint32_t a = 0; a <= 40; a++)
			for (uint32_t b = 0; b <= 40; b++)
				for (uint32_t i = 0; i <= (a < b ? a : b); i++)
				{
					gpuvec_scoring scoring = scoring_of(m);
					gpuvec_shared shared = {i, a, b};
					double		score = gpuvec_score_with(scoring, shared);

					if (score != formula(m, i, a, b))
						wrong++;
					if (gpuvec_key_score(gpuvec_score_key(score)) != score)
						keys++;
					if (i == 0 && m != GPUVEC_HAMMING)
						continue;
					/*
					 * rows at least as long as some b0 <= b may be bounded by
					 * b0
					 */
					for (uint32_t b0 = b > 3 ? b - 3 : 0; b0 <= b; b0++)
						if (gpuvec_need_with(scoring, a, b0, (float) score) > i)
							wrong++;
				}
	for (int n = 0; n < 200000; n++)
	{
		int			m = n % N_MEASURES;
		gpuvec_scoring scoring = scoring_of(m);
		uint32_t	a = 1 + random32() % 65536;
		uint32_t	b = 1 + random32() % 65536;
		uint32_t	i = 1 + random32() % (a < b ? a : b);
		uint32_t	j = random32() % (a < b ? a : b);
		gpuvec_shared first = {i, a, b};
		gpuvec_shared second = {j, a, b};
		double		x = gpuvec_score_with(scoring, first);
		double		y = gpuvec_score_with(scoring, second);

		if (gpuvec_need_with(scoring, a, b, (float) x) > i)
			wrong++;
		if ((x > y) != (gpuvec_score_key(x) < gpuvec_score_key(y)))
			keys++;
	}
	check(wrong == 0, "measures");
	check(keys == 0, "keys");
}

/* Kinds of small tables */
enum
{
	RANDOM, SAME_IDS, ONE_PER_LENGTH, ALL_COMMON, DUPLICATES, ENDS, LONG_ROWS, N_KINDS
};

/* Row r of a small table of a kind */
static set
kind_row(int kind, uint32_t r, uint32_t n, uint32_t maxlen, uint32_t vocabulary)
{
	set			s = {.ids = allocate((maxlen + n + 2) * sizeof(uint16_t))};
	set			other;

	switch (kind)
	{
		case SAME_IDS:
			/* each row one id, or all of them the same ones */
			s.len = maxlen % 2 ? 1 : vocabulary < maxlen ? vocabulary : maxlen;
			for (uint32_t i = 0; i < s.len; i++)
				s.ids[i] = (uint16_t) (vocabulary - s.len + i);
			return s;
		case ONE_PER_LENGTH:
			/* nested, or each begins elsewhere */
			s.len = r + 1;
			for (uint32_t i = 0; i < s.len; i++)
				s.ids[i] = (uint16_t) (i + (maxlen % 2 ? r : 0));
			return s;
		case ALL_COMMON:
			/* all ids but one */
			for (uint32_t i = 0; i < vocabulary && s.len < maxlen; i++)
				if (i != r % (vocabulary + 3))
					s.ids[s.len++] = (uint16_t) i;
			return s;
		case ENDS:
			if (r % 3 != 0)
				s.ids[s.len++] = 0;
			if (r % 5 == 0)
				s.ids[s.len++] = 1;
			if (r % 2 != 0)
				s.ids[s.len++] = 65534;
			if (r % 7 != 1)
				s.ids[s.len++] = 65535;
			return s;
		default:
			other = random_set(random32() % (maxlen + 1), vocabulary);
			free(s.ids);
			return other;
	}
}

static table
make_kind(int kind, uint32_t n, uint32_t maxlen, uint32_t vocabulary)
{
	table		t = {.n = n};

	t.rows = allocate(n * sizeof(*t.rows));
	t.dead = allocate(n);
	for (uint32_t r = 0; r < n; r++)
	{
		set			s;

		if (kind == DUPLICATES && r > 0 && random32() % 16 != 0)
		{
			s.len = t.rows[0].len;
			s.ids = allocate((s.len + 1) * sizeof(uint16_t));
			memcpy(s.ids, t.rows[0].ids, s.len * sizeof(uint16_t));
		}
		else
			s = kind_row(kind, r, n, maxlen, vocabulary);
		t.rows[r] = (gpuvec_source_row) {(uint64_t) (r + 1) * 7, s.len, 0, s.ids, NULL};
	}
	return t;
}

/* All segments get lists; the ids of one row in 64 get bitmaps */
static const gpuvec_lists_policy all_lists = {.least_rows = 1,.dense = 64,.share = 1e9};

/*
 * A backend for each instruction set, with one thread and with several;
 * returns how many
 */
#define MOST_BACKENDS	8

static int
open_backends(gpuvec_backend **backends, const gpuvec_lists_policy *policy)
{
	int			n = 0;

	for (int simd = 1; simd <= 3; simd++)
		for (int threads = 1; threads <= 3; threads += simd == 2 ? 2 : 1)
		{
			gpuvec_backend_options options = {.simd = simd,.threads = threads};
			gpuvec_error error;

			backends[n++] = gpuvec_cpu_open_with(&options, policy, &error);
		}
	return n;
}

static void
close_backends(gpuvec_backend **backends, int n)
{
	for (int i = 0; i < n; i++)
		backends[i]->close(backends[i]);
}

/* Thousands of small tables, each searched by one measure on some backend */
static void
test_small(int ntables)
{
	static const uint32_t vocabularies[] = {1, 2, 16, 300, 65536};
	static const uint32_t denses[] = {1, 2, 16, 64, 1 << 20};

	for (int i = 0; i < ntables; i++)
	{
		int			kind = i % N_KINDS;
		uint32_t	n = 1 + random32() % (kind == LONG_ROWS ? 40 : i % 9 == 0 ? 1200 : 130);
		uint32_t	vocabulary = kind == ENDS || kind == LONG_ROWS ? 65536 : vocabularies[random32() % 5];
		uint32_t	maxlen = kind == LONG_ROWS ? 700 : 1 + random32() % 40;
		gpuvec_backend_options options = {.simd = 1 + random32() % 3,.threads = 1 + random32() % 3};
		gpuvec_lists_policy policy = all_lists;
		gpuvec_backend *backend;
		gpuvec_error error;
		table		t;
		char		name[64];

		/*
		 * nothing, something or all gets a bitmap; of two segments only one
		 * may get lists
		 */
		policy.dense = denses[random32() % 5];
		policy.share = i % 3 == 0 ? 1.3 : 1e9;
		t = make_kind(kind, n, maxlen, vocabulary);
		t.split = i % 2 ? random32() % (n + 1) : 0;
		policy.least_rows = i % 4 == 1 ? n - t.split : 1;
		for (uint32_t r = 0; r < n && i % 3 == 1; r++)
			t.dead[r] = random32() % 4 == 0;
		snprintf(name, sizeof(name), "small table %d", i);
		backend = gpuvec_cpu_open_with(&options, &policy, &error);
		test_measures_of(name, &backend, 1, &t, 1 + random32() % 24, kind == LONG_ROWS ? 900 : 50,
						 vocabulary, 1 + random32() % 12, i / N_KINDS % N_MEASURES, N_MEASURES);
		backend->close(backend);
		free_table(&t);
	}
}

/* A row with all ids there are, which lists alone must count */
static void
test_all_ids(void)
{
	gpuvec_lists_policy policy = all_lists;
	gpuvec_backend *backends[MOST_BACKENDS];
	int			nbackends;
	table		t = make_table(3, 40, 65536);
	set			all = {.len = 65536,.ids = allocate(65536 * sizeof(uint16_t))};

	for (uint32_t i = 0; i < all.len; i++)
		all.ids[i] = (uint16_t) i;
	free((void *) t.rows[1].ids);
	t.rows[1].ids = all.ids;
	t.rows[1].len = all.len;
	policy.dense = 1;
	nbackends = open_backends(backends, &policy);
	test_table("all ids", backends, nbackends, &t, 12, 100, 65536, 3);
	close_backends(backends, nbackends);
	free_table(&t);
}

/*
 * Equal rows that are shorter than most queries, and longer ones that share no
 * id with any: the last blocks of short rows are searched before the others,
 * which have the lower tids
 */
static void
test_near_lengths(gpuvec_backend **backends, int nbackends)
{
	table		t = make_table(1400, 3, 65536);

	for (uint32_t r = 0; r < t.n; r++)
	{
		bool		is_long = r >= 1300;
		uint32_t	len = is_long ? 14 : 6;
		uint16_t   *ids = allocate(len * sizeof(uint16_t));

		for (uint32_t i = 0; i < len; i++)
			ids[i] = (uint16_t) (is_long ? 1000 + i : 2 * i);
		free((void *) t.rows[r].ids);
		t.rows[r].ids = ids;
		t.rows[r].len = len;
	}
	test_table("near lengths", backends, nbackends, &t, 30, 24, 16, 10);
	free_table(&t);
}

/*
 * Tables with cold numbers.  A row or a query is a set of numbers of 32 bits;
 * what a segment gets is packed.
 */
typedef struct wide_set
{
	uint32_t	len;
	uint32_t   *numbers;		/* ascending, distinct */
} wide_set;

typedef struct wide_table
{
	uint32_t	n;
	wide_set   *rows;			/* tids are (row + 1) * 7 */
	bool	   *dead;
} wide_table;

/* How numbers are drawn */
enum
{
	FEW_COLD, AT_THE_EDGE, ONLY_COLD, SKEWED, ALL_KINDS, N_DRAWS
};

static uint32_t
draw_number(int draw)
{
	static const uint32_t ends[] = {
		0, 1, 65534, 65535, 65536, 65537, INT32_MAX, UINT32_C(0x80000000), UINT32_MAX - 2, UINT32_MAX - 1
	};

	switch (draw)
	{
		case FEW_COLD:
			return random32() % 20 == 0 ? 65536 + random32() % 100 : random32() % 200;
		case AT_THE_EDGE:
			return 65536 - 12 + random32() % 24;
		case ONLY_COLD:
			return 65536 + random32() % (random32() % 300 + 1);
		case SKEWED:
			/* about as Zipf has it: small numbers are common */
			return (uint32_t) exp(random32() % 1000000 / 1e6 * log(500000)) - 1;
		default:
			return random32() % 2 ? ends[random32() % 10] : random32() % 2 ? random32() % 50 :
				65536 + random32() % 50;
	}
}

static wide_set
draw_set(uint32_t most, int draw)
{
	uint32_t	n = random32() % (most + 1);
	wide_set	s = {.numbers = allocate((n + 1) * sizeof(uint32_t))};

	for (uint32_t i = 0; i < n; i++)
		s.numbers[i] = draw_number(draw);
	gpuvec_sort_numbers(s.numbers, n);
	for (uint32_t i = 0; i < n; i++)
		if (i == 0 || s.numbers[i] != s.numbers[i - 1])
			s.numbers[s.len++] = s.numbers[i];
	return s;
}

static wide_table
make_wide(uint32_t n, uint32_t longest, int draw)
{
	wide_table	t = {.n = n,.rows = allocate(n * sizeof(wide_set)),.dead = allocate(n)};
	uint32_t	dead = random32() % 3 * 3;

	for (uint32_t r = 0; r < n; r++)
	{
		/* some rows are copies, so that there are ties */
		t.rows[r] = draw_set(longest, draw);
		if (r > 0 && random32() % 4 == 0)
		{
			const wide_set *other = &t.rows[random32() % r];

			free(t.rows[r].numbers);
			t.rows[r].len = other->len;
			t.rows[r].numbers = allocate((other->len + 1) * sizeof(uint32_t));
			memcpy(t.rows[r].numbers, other->numbers, other->len * sizeof(uint32_t));
		}
		t.dead[r] = dead > 0 && random32() % dead == 0;
	}
	return t;
}

static void
free_wide(wide_table *t)
{
	for (uint32_t r = 0; r < t->n; r++)
		free(t->rows[r].numbers);
	free(t->rows);
	free(t->dead);
}

/* One segment of the rows [from, to) */
static gpuvec_view_entry
wide_entry(gpuvec_backend *b, const wide_table *t, uint32_t from, uint32_t to)
{
	uint32_t	n = to - from;
	gpuvec_source_row *rows = allocate(n * sizeof(*rows));
	uint16_t  **packed = allocate(n * sizeof(*packed));
	gpuvec_view_entry entry = {NULL, NULL, 0};
	gpuvec_error error;

	for (uint32_t i = 0; i < n; i++)
	{
		const wide_set *s = &t->rows[from + i];

		packed[i] = allocate(gpuvec_packed_bytes(s->len, s->len) + 4);
		gpuvec_pack_numbers(s->numbers, s->len, packed[i], &rows[i]);
		rows[i].tid = (uint64_t) (from + i + 1) * 7;
	}
	check(gpuvec_rows_sort(rows, n, &error), "rows_sort");
	entry.segment = gpuvec_segment_build(rows, n, (gpuvec_row_kind) {0}, &error);
	for (uint32_t r = 0; r < n; r++)
	{
		if (!t->dead[rows[r].tid / 7 - 1])
			continue;
		if (entry.live == NULL)
			entry.live = gpuvec_livemap_new(n, &error);
		entry.live->bits[r / 32] &= ~(1u << (r % 32));
		entry.live->nlive--;
	}
	check(b->adopt_segment(b, entry.segment, &error) &&
		  b->adopt_livemaps(b, &entry.live, entry.live != NULL, &error), "adopt");
	for (uint32_t i = 0; i < n; i++)
		free(packed[i]);
	free(packed);
	free(rows);
	return entry;
}

/* A view of up to three segments */
static gpuvec_view *
wide_view(gpuvec_backend *b, const wide_table *t)
{
	gpuvec_view_entry entries[3];
	uint32_t	n = 0;
	uint32_t	from = 0;
	gpuvec_error error;
	gpuvec_view *view;

	while (from < t->n)
	{
		uint32_t	to = n == 2 ? t->n : from + 1 + random32() % (t->n - from);

		entries[n++] = wide_entry(b, t, from, to);
		from = to;
	}
	view = gpuvec_view_new(entries, n, &error);
	check(b->adopt_view(b, view, &error), "adopt_view");
	return view;
}

static uint32_t
common_numbers(const wide_set *a, const wide_set *b)
{
	uint32_t	n = 0;

	for (uint32_t i = 0, j = 0; i < a->len && j < b->len;)
	{
		if (a->numbers[i] == b->numbers[j])
			n++, i++, j++;
		else if (a->numbers[i] < b->numbers[j])
			i++;
		else
			j++;
	}
	return n;
}

/* The answer by brute force, of a set with `unknown` more ids; malloc'd */
static answer *
brute_wide(const wide_table *t, int measure, const gpuvec_topk_query *q, const wide_set *set,
		   uint32_t unknown, uint32_t *n)
{
	answer	   *all = allocate((t->n + 1) * sizeof(answer));
	answer		after = {.score = q->after_score,.tid = q->after_tid};

	*n = 0;
	for (uint32_t r = 0; r < t->n; r++)
	{
		answer		a = {.tid = (uint64_t) (r + 1) * 7,.common = common_numbers(&t->rows[r], set)};

		if (t->dead[r] || (a.common == 0 && measure != 7))
			continue;
		a.score = formula(measure, a.common, set->len + unknown, t->rows[r].len);
		if ((q->has_min_score && a.score < q->min_score) ||
			(q->has_after && compare_answers(&a, &after) <= 0))
			continue;
		all[(*n)++] = a;
	}
	qsort(all, *n, sizeof(answer), compare_answers);
	if (*n > q->k)
		*n = q->k;
	return all;
}

#define WIDE_QUERIES	24

/* A query of a wide table: numbers of a row, or others, and unknown ids */
static wide_set
wide_query(const wide_table *t, int draw, uint32_t longest, uint32_t unknown, int measure,
		   gpuvec_topk_query *q)
{
	const wide_set *row = &t->rows[random32() % t->n];
	wide_set	s = draw_set(random32() % 6 == 0 ? 0 : longest, draw);
	uint16_t   *hot;

	if (random32() % 2)
	{
		free(s.numbers);
		s.len = row->len;
		s.numbers = allocate((s.len + 1) * sizeof(uint32_t));
		memcpy(s.numbers, row->numbers, s.len * sizeof(uint32_t));
	}
	hot = allocate((s.len + 1) * sizeof(uint16_t));
	for (q->len = 0; q->len < s.len && s.numbers[q->len] < 65536; q->len++)
		hot[q->len] = (uint16_t) s.numbers[q->len];
	q->ids = hot;
	q->cold = s.numbers + q->len;
	q->ncold = s.len - q->len;
	q->others = q->ncold + unknown;
	q->k = random32() % 5 == 0 ? 100000 : 1 + random32() % 8;
	q->has_min_score = random32() % 4 == 0;
	q->min_score = measure == 6 ? 2 : measure == 7 ? -(double) (random32() % 40) : random32() % 100 / 100.0;
	q->has_after = random32() % 3 == 0;
	row = &t->rows[random32() % t->n];
	q->after_score = formula(measure, common_numbers(row, &s), s.len + unknown, row->len);
	q->after_tid = (uint64_t) (random32() % t->n + 1) * 7;
	/* with room for rows that are wrongly given twice */
	q->matches = allocate(2 * t->n * sizeof(gpuvec_match));
	return s;
}

/*
 * Search a view of a wide table by one measure, by all methods, alone and
 * together
 */
static void
search_wide(gpuvec_backend *b, const gpuvec_view *view, const wide_table *t, int draw,
			uint32_t longest, int measure)
{
	gpuvec_topk_query *queries = allocate(WIDE_QUERIES * sizeof(*queries));
	expected	want[WIDE_QUERIES];
	wide_set	sets[WIDE_QUERIES];

	for (int i = 0; i < WIDE_QUERIES; i++)
	{
		uint32_t	unknown = random32() % 3 == 0 ? random32() % 6 : 0;

		sets[i] = wide_query(t, draw, longest, unknown, measure, &queries[i]);
		if (b->takes_unordered && !queries[i].has_after && random32() % 3 == 0)
		{
			queries[i].unordered = true;
			queries[i].k = UINT32_MAX;
			free(queries[i].matches);
			queries[i].matches = NULL;
		}
		want[i].answers = brute_wide(t, measure, &queries[i], &sets[i], unknown, &want[i].n);
	}
	for (int method = 0; method <= (int) GPUVEC_METHOD_READY_LISTS; method++)
	{
		check(search_equals(b, view, measure, (gpuvec_method) method, queries, WIDE_QUERIES, want), "cold numbers");
		check(search_equals(b, view, measure, (gpuvec_method) method, queries, 1, want), "cold numbers, one query");
	}
	for (int i = 0; i < WIDE_QUERIES; i++)
	{
		free((void *) queries[i].ids);
		free(queries[i].matches);
		free(queries[i].tids);
		free(sets[i].numbers);
		free(want[i].answers);
	}
	free(queries);
}

static void
test_wide(int ntables)
{
	for (int i = 0; i < ntables; i++)
	{
		int			draw = i % N_DRAWS;
		uint32_t	longest = random32() % 8 == 0 ? 600 : 1 + random32() % 40;
		gpuvec_backend_options options = {.simd = 1 + random32() % 3,.threads = 1 + random32() % 3};
		gpuvec_lists_policy policy = all_lists;
		gpuvec_backend *backend;
		gpuvec_view *view;
		gpuvec_error error;
		wide_table	t = make_wide(1 + random32() % (i % 9 == 0 ? 1500 : 150), longest, draw);

		policy.dense = i % 2 ? 16 : 1 << 20;
		policy.least_rows = i % 3 == 0 ? 40 : 1;
		backend = gpuvec_cpu_open_with(&options, &policy, &error);
		view = wide_view(backend, &t);
		search_wide(backend, view, &t, draw, longest, i / N_DRAWS % N_MEASURES);
		gpuvec_view_unref(view);
		backend->close(backend);
		free_wide(&t);
	}
}

#define PAGE		4096
#define CHUNK_BYTES	512			/* of segment->ids */

/*
 * Let a segment have its ids at the end of memory: a read behind them crashes.
 * Returns where they were.
 */
static uint16_t *
fence(gpuvec_segment *segment)
{
	uint16_t   *ids = segment->ids;
	size_t		bytes = segment->nchunks * CHUNK_BYTES;
	size_t		pages = (bytes + PAGE - 1) / PAGE * PAGE;
	char	   *memory = mmap(NULL, pages + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED || mprotect(memory + pages, PAGE, PROT_NONE) != 0)
		abort();
	segment->ids = memcpy(memory + pages - bytes, ids, bytes);
	return ids;
}

static void
unfence(gpuvec_segment *segment, uint16_t *ids)
{
	uintptr_t	from = (uintptr_t) segment->ids / PAGE * PAGE;
	uintptr_t	end = (uintptr_t) segment->ids + segment->nchunks * CHUNK_BYTES + PAGE;

	munmap((void *) from, end - from);
	segment->ids = ids;
}

/*
 * Rows of a segment have fewer hot numbers than numbers: scans of one query
 * and of many read nothing behind the ids that there are.  Lists, which are
 * made in the background, are of no use here.
 */
static void
test_fenced(void)
{
	static const gpuvec_lists_policy no_lists = {.least_rows = UINT32_MAX,.dense = 64,.share = 1e9};

	for (int i = 0; i < 3 * N_DRAWS; i++)
	{
		gpuvec_backend_options options = {.simd = 1 + i % 3,.threads = 1};
		gpuvec_error error;
		gpuvec_backend *b = gpuvec_cpu_open_with(&options, &no_lists, &error);
		wide_table	t = make_wide(200, 60, i / 3);
		gpuvec_view_entry entry = wide_entry(b, &t, 0, t.n);
		gpuvec_view *view = gpuvec_view_new(&entry, 1, &error);
		uint16_t   *ids = fence(entry.segment);

		check(b->adopt_view(b, view, &error), "adopt_view");
		for (int measure = 0; measure < GPUVEC_N_MEASURES; measure++)
			search_wide(b, view, &t, i / 3, 60, measure);
		unfence(entry.segment, ids);
		gpuvec_view_unref(view);
		b->close(b);
		free_wide(&t);
	}
}

/*
 * Segments are released while their lists wait, are being made, or are there
 */
static void
test_release(gpuvec_backend *b)
{
	table		t = make_table(3000, 60, 1000);
	gpuvec_source_row *rows = allocate(t.n * sizeof(*rows));
	gpuvec_segment *segments[40];
	gpuvec_error error;
	bool		ok = true;

	memcpy(rows, t.rows, t.n * sizeof(*rows));
	ok = gpuvec_rows_sort(rows, t.n, &error);
	for (int round = 0; round < 20; round++)
	{
		for (int i = 0; i < 40; i++)
		{
			segments[i] = gpuvec_segment_build(rows, t.n, (gpuvec_row_kind) {0}, &error);
			ok = ok && segments[i] && b->adopt_segment(b, segments[i], &error);
		}
		for (int i = 0; i < 40; i++)
		{
			uint32_t	j = random32() % (40 - i);
			gpuvec_segment *segment = segments[j];

			segments[j] = segments[39 - i];
			gpuvec_segment_unref(segment);
		}
	}
	check(ok, "release");
	free(rows);
	free_table(&t);
}

/* ---- the choice between lists and a scan ---- */

/* Rows of so many ids, of which each is in one row of CHOICE_STEP */
#define CHOICE_ROWS		40000
#define CHOICE_IDS		20
#define CHOICE_STEP		100

static table
make_choice(void)
{
	table		t = {.n = CHOICE_ROWS};

	t.rows = allocate(t.n * sizeof(*t.rows));
	t.dead = allocate(t.n);
	for (uint32_t i = 0; i < t.n; i++)
	{
		uint16_t   *ids = allocate(CHOICE_IDS * sizeof(uint16_t));

		for (uint32_t j = 0; j < CHOICE_IDS; j++)
			ids[j] = (uint16_t) (j * CHOICE_STEP + random32() % CHOICE_STEP);
		t.rows[i] = (gpuvec_source_row) {(uint64_t) (i + 1) * 7, CHOICE_IDS, 0, ids, NULL};
	}
	return t;
}

/* The ways of a batch of queries with every step-th id */
static uint32_t
ways_of_batch(gpuvec_backend *b, const gpuvec_view *view, gpuvec_method method, uint32_t step)
{
	static uint16_t ids[CHOICE_IDS * CHOICE_STEP];
	static gpuvec_match matches[64];
	gpuvec_topk_query queries[64] = {0};
	gpuvec_scoring scoring = scoring_of(GPUVEC_JACCARD);
	uint32_t	ways = 0;
	gpuvec_error error;

	for (int i = 0; i < 64; i++)
	{
		queries[i].ids = ids;
		queries[i].k = 1;
		queries[i].matches = &matches[i];
	}
	for (uint32_t id = 0; id < CHOICE_IDS * CHOICE_STEP; id += step)
	{
		ids[id / step] = (uint16_t) id;
		for (int i = 0; i < 64; i++)
			queries[i].len++;
	}
	check(b->topk(b, view, &scoring, method, queries, 64, &error), "a batch of equal queries");
	for (int i = 0; i < 64; i++)
		ways |= queries[i].ways;
	return ways;
}

/*
 * Few ids are counted by their lists.  The lists of many have more row numbers
 * than there are ids in the rows that a batch scans together.
 */
static void
test_choice(gpuvec_backend **backends, int nbackends)
{
	table		t = make_choice();

	for (int b = 0; b < nbackends; b++)
	{
		gpuvec_view *view = make_view(backends[b], &t);
		uint32_t	lists = gpuvec_way_bit(GPUVEC_WAY_LISTS);

		/* then the lists are there */
		check(ways_of_batch(backends[b], view, GPUVEC_METHOD_INVERTED, 1) == lists, "lists, as asked");
		check(ways_of_batch(backends[b], view, GPUVEC_METHOD_AUTO, 500) == lists, "lists of few ids");
		check(ways_of_batch(backends[b], view, GPUVEC_METHOD_AUTO, 4) == gpuvec_way_bit(GPUVEC_WAY_SCAN),
			  "a scan instead of lists of many ids");
		gpuvec_view_unref(view);
	}
	free_table(&t);
}

int
main(void)
{
	gpuvec_backend *backends[MOST_BACKENDS];
	int			n = open_backends(backends, &all_lists);
	static const uint32_t sizes[] = {1, 7, 8, 9, 31, 32, 33, 1000};
	table		t;

	test_measures();
	test_small(4000);
	test_wide(2000);
	test_fenced();
	test_all_ids();
	test_near_lengths(backends, n);
	test_choice(backends, n);
	test_release(backends[0]);
	t = make_table(0, 0, 1);
	test_table("no rows", backends, n, &t, 5, 5, 10, 3);
	free_table(&t);
	for (int i = 0; i < 8; i++)
	{
		t = make_table(sizes[i], 40, 300);
		t.split = sizes[i] / 3;
		for (uint32_t r = 0; r < t.n; r += 5)
			t.dead[r] = true;
		test_table("small tables", backends, n, &t, 70, 60, 300, 10);
		free_table(&t);
	}
	for (uint32_t vocabulary = 1; vocabulary <= 16; vocabulary += 15)
	{
		t = make_table(700, 12, vocabulary);
		test_table("ties", backends, n, &t, 600, 12, vocabulary, 20);
		free_table(&t);
	}
	t = make_table(300, 3, 65536);
	for (uint32_t r = 0; r < t.n; r++)
	{
		uint16_t   *ids = allocate(6);

		free((void *) t.rows[r].ids);
		ids[0] = r % 2 ? 0 : 65535;
		ids[1] = 65535;
		t.rows[r].ids = ids;
		t.rows[r].len = r % 2 ? 2 : 1;
	}
	test_table("ids 0 and 65535", backends, n, &t, 20, 3, 65536, 10);
	free_table(&t);
	t = make_table(24, 65536, 65536);
	test_table("long sets", backends, n, &t, 8, 65536, 65536, 10);
	free_table(&t);
	for (uint32_t rows = 65535; rows <= 65537; rows++)
	{
		t = make_table(rows, 24, 2000);
		t.split = rows % 2 ? rows - 100 : 0;
		/* rows do not depend on the measure: a third of the measures each */
		test_measures_of("a full segment", backends + 2, 1, &t, 9, 24, 2000, 100, rows % 3, 3);
		test_measures_of("a full segment", backends + n - 1, 1, &t, 60, 24, 2000, 100, rows % 3, 3);
		free_table(&t);
	}
	close_backends(backends, n);
	check(by_lists > 1000, "searches by lists are told");
	check(rows_counted > 1000, "rows are counted");
	printf("%ld passed, %ld failed\n", passed, failed);
	return failed > 0;
}
