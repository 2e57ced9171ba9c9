/*-------------------------------------------------------------------------
 *
 * weights_test.c
 *	  Test of searches of sets and of vectors by measures of sparse vectors,
 *	  on the CPU, or with WEIGHTS_TEST_GPU on a GPU, against brute force.
 *
 * Scores are computed here, from ids, values and weights, and answers sorted
 * as a whole.
 *
 * Rows and queries are sets of ids.  A table gives numbers to its ids, in any
 * order, some of them cold; or has the ids themselves.  So the order of
 * numbers is not that of ids, in which sums are made, and which the weights
 * are chosen to show.
 *
 *-------------------------------------------------------------------------
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/sets/id_numbers.h"
#ifdef WEIGHTS_TEST_GPU
#include "search_met.h"
#else
#include "engine/cpu/sparse_rows.h"
#endif

#include "test_weights.h"
#include "unit_test.h"

#define N_MEASURES		3
#define N_QUERIES		20
#define MANY_QUERIES	150
#define MOST_IDS		2000	/* of a table; others are unknown to it */

typedef struct id_set
{
	uint32_t	n;
	uint32_t   *ids;			/* ascending, distinct */
	float	   *values;			/* of rows; NULL: they are 1 */
} id_set;

typedef struct table
{
	uint32_t	nids;			/* ids are below this */
	uint32_t	numbers[MOST_IDS];	/* of ids */
	bool		same;			/* they are the ids themselves */
	bool		vectors;		/* rows have values */
	uint32_t	n;
	id_set	   *rows;			/* tids are tid_of() */
	bool	   *dead;
} table;

typedef struct answer
{
	double		score;
	uint64_t	tid;
	uint32_t	common;
} answer;

/* A query, as it was drawn and as the backend gets it, and what is expected */
typedef struct question
{
	id_set		set;
	float	   *weights;
	uint16_t	hot[MOST_IDS];
	uint32_t	cold[MOST_IDS];
	uint16_t	places[MOST_IDS];
	gpuvec_condition condition; /* of its filter */
	gpuvec_topk_query query;
	answer	   *expected;
	uint32_t	n;
} question;

/* Rows of a page; a GPU takes no line beyond those that pages have */
#define PAGE_ROWS		100

static uint64_t
tid_of(uint32_t row)
{
	return (uint64_t) (row / PAGE_ROWS) << 16 | (row % PAGE_ROWS * 2 + 1);
}

static uint32_t
row_of(uint64_t tid)
{
	return (uint32_t) (tid >> 16) * PAGE_ROWS + (uint32_t) (tid & 0xFFFF) / 2;
}

/* Values of the filter column: most segments have only some */
#define FILTER_VALUES	10

static uint64_t
filter_value(const table *t, uint32_t row)
{
	return (uint64_t) row * FILTER_VALUES / t->n;
}

static void *
allocate(size_t size)
{
	void	   *p = calloc(1, size ? size : 1);

	if (p == NULL)
		abort();
	return p;
}

/* ---- drawing ---- */

/* A set of at most n ids below nids; small ids are common */
static id_set
draw_set(uint32_t n, uint32_t nids)
{
	bool	   *has = allocate(nids + 1);
	id_set		set = {0, allocate((n + 1) * sizeof(uint32_t)), NULL};

	for (uint32_t i = random_below(n + 1); i > 0; i--)
		has[random_below(random_below(nids) + 1)] = true;
	for (uint32_t id = 0; id < nids; id++)
		if (has[id])
			set.ids[set.n++] = id;
	free(has);
	return set;
}

/* How numbers are given */
enum
{
	IDS, TURNED, SHUFFLED, HALF_COLD, ONLY_COLD, N_NUMBERS
};

static void
draw_numbers(table *t, int kind)
{
	uint32_t	first = kind == HALF_COLD ? GPUVEC_HOT_NUMBERS - t->nids / 2 :
		kind == ONLY_COLD ? GPUVEC_HOT_NUMBERS : 0;

	t->same = kind == IDS;
	for (uint32_t id = 0; id < t->nids; id++)
		t->numbers[id] = kind == TURNED ? t->nids - 1 - id : first + id;
	for (uint32_t i = t->nids; i > 1 && kind >= SHUFFLED; i--)
	{
		uint32_t	j = (uint32_t) random_below(i);
		uint32_t	swap = t->numbers[i - 1];

		t->numbers[i - 1] = t->numbers[j];
		t->numbers[j] = swap;
	}
	/* rows of one tile have some hot numbers each, one the number 0 */
	for (uint32_t id = 0; kind == HALF_COLD && id < t->nids; id++)
		if (t->numbers[id] == first)
			t->numbers[id] = 0;
}

/* Kinds of weights and values */
enum
{
	FEW, MANY, BOTH_SIGNS, OPPOSITES, ALL_SIZES, HUGE_ONES, DENORMAL, NEGATIVE, N_WEIGHTS
};

static float
draw_weight(int kind)
{
	float		mantissa = 1 + (float) random_below(1 << 23) * 0x1p-23f;
	float		sign = random_below(2) ? 1 : -1;

	switch (kind)
	{
		case FEW:
			return 0.1f + (float) random_below(3);
		case BOTH_SIGNS:
			return sign * mantissa;
		case OPPOSITES:
			return sign * 0.3f;
		case ALL_SIZES:
			return sign * ldexpf(mantissa, (int) random_below(276) - 149);
		case HUGE_ONES:
			return sign * ldexpf(mantissa, 127);
		case DENORMAL:
			return sign * ldexpf((float) (1 + random_below(1000)), -149);
		case NEGATIVE:
			return -mantissa;
	}
	return ldexpf(mantissa, (int) random_below(10));
}

/* Draw the values of a row; in most tables few rows have negative ones */
static void
draw_values(id_set *row, int kind, bool negative)
{
	row->values = allocate((row->n + 1) * sizeof(float));
	for (uint32_t i = 0; i < row->n; i++)
		row->values[i] = negative ? draw_weight(kind) : fabsf(draw_weight(kind));
}

/* values: their kind; -1: rows are sets */
static table *
draw_table(uint32_t n, uint32_t longest, uint32_t nids, int numbers, int values)
{
	table	   *t = allocate(sizeof(table));
	uint32_t	dead = (uint32_t) random_below(3) * 3;
	uint32_t	positive = random_below(2) ? 1 : 20;

	t->nids = nids;
	t->vectors = values >= 0;
	t->n = n;
	t->rows = allocate(n * sizeof(id_set));
	t->dead = allocate(n);
	draw_numbers(t, numbers);
	for (uint32_t r = 0; r < n; r++)
	{
		t->rows[r] = draw_set(longest, nids);
		if (t->vectors)
			draw_values(&t->rows[r], values, random_below(positive) == 0);
		t->dead[r] = dead > 0 && random_below(dead) == 0;
		/* some rows are equal */
		if (r > 0 && random_below(4) == 0)
		{
			const id_set *other = &t->rows[random_below(r)];

			free(t->rows[r].ids);
			free(t->rows[r].values);
			t->rows[r] = (id_set) {other->n, allocate((other->n + 1) * sizeof(uint32_t)), NULL};
			memcpy(t->rows[r].ids, other->ids, other->n * sizeof(uint32_t));
			if (t->vectors)
				t->rows[r].values = memcpy(allocate((other->n + 1) * sizeof(float)), other->values,
										   other->n * sizeof(float));
		}
	}
	return t;
}

static void
free_table(table *t)
{
	for (uint32_t r = 0; r < t->n; r++)
	{
		free(t->rows[r].ids);
		free(t->rows[r].values);
	}
	free(t->rows);
	free(t->dead);
	free(t);
}

/* ---- brute force ---- */

/* The score of a row, by the definition; *common is what it shares */
static double
score_of(int measure, const question *q, const id_set *row, uint32_t *common)
{
	double		s = 0;
	double		a = 0;
	double		b = 0;
	double		ratio;
	bool		negative = false;

	*common = 0;
	for (uint32_t i = 0; i < row->n; i++)
	{
		double		value = row->values ? row->values[i] : 1;

		b += measure == GPUVEC_SPARSE_JACCARD ? value : value * value;
		negative |= value < 0;
	}
	for (uint32_t i = 0, j = 0; i < q->set.n; i++)
	{
		double		weight = q->weights[i];
		double		value;

		a += measure == GPUVEC_SPARSE_JACCARD ? weight : weight * weight;
		while (j < row->n && row->ids[j] < q->set.ids[i])
			j++;
		if (j == row->n || row->ids[j] != q->set.ids[i])
			continue;
		value = row->values ? row->values[j] : 1;
		s += measure != GPUVEC_SPARSE_JACCARD ? weight * value : weight < value ? weight : value;
		++*common;
	}
	if (measure == GPUVEC_SPARSE_JACCARD && negative)
		return INFINITY;
	if (measure == GPUVEC_SPARSE_INNER_PRODUCT)
		return s;
	if (measure == GPUVEC_SPARSE_JACCARD)
		return a + b - s == 0 ? 0 : s / (a + b - s);
	ratio = a * b == 0 ? 0 : s * s / (a * b);
	ratio = sqrt(ratio > 1 ? 1 : ratio);
	return s < 0 ? 0 - ratio : ratio;
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

static bool
passes(const table *t, const question *q, uint32_t row)
{
	uint64_t	value = filter_value(t, row);

	return q->query.filter.n == 0 || (value >= q->condition.low && value <= q->condition.high);
}

static void
brute_force(const table *t, int measure, question *q)
{
	const gpuvec_topk_query *query = &q->query;
	answer		after = {.score = query->after_score,.tid = query->after_tid};

	q->expected = allocate((t->n + 1) * sizeof(answer));
	q->n = 0;
	for (uint32_t r = 0; r < t->n; r++)
	{
		answer		a = {.tid = tid_of(r)};

		a.score = score_of(measure, q, &t->rows[r], &a.common);
		if (!t->dead[r] && passes(t, q, r) && (!query->has_min_score || a.score >= query->min_score) &&
			(!query->has_after || compare_answers(&a, &after) > 0))
			q->expected[q->n++] = a;
	}
	qsort(q->expected, q->n, sizeof(answer), compare_answers);
	if (q->n > query->k)
		q->n = query->k;
}

/* ---- queries ---- */

/* Numbers of the query's ids, hot ones first, and where their weights are */
static void
give_numbers(const table *t, question *q)
{
	gpuvec_topk_query *query = &q->query;
	uint32_t	n = 0;

	/* in ascending order of numbers, by looking for the next one */
	for (int64_t before = -1;; n++)
	{
		uint32_t	next = UINT32_MAX;
		uint32_t	place = 0;

		for (uint32_t i = 0; i < q->set.n && q->set.ids[i] < t->nids; i++)
			if (t->numbers[q->set.ids[i]] > before && t->numbers[q->set.ids[i]] < next)
			{
				next = t->numbers[q->set.ids[i]];
				place = i;
			}
		if (next == UINT32_MAX)
			break;
		before = next;
		q->places[n] = (uint16_t) place;
		if (next < GPUVEC_HOT_NUMBERS)
			q->hot[query->len++] = (uint16_t) next;
		else
			q->cold[query->ncold++] = next;
	}
	query->ids = q->hot;
	query->cold = q->cold;
	query->others = q->set.n - query->len;
	query->places = t->same ? NULL : q->places;
}

/* Conditions that a query may have */
static void
draw_conditions(const gpuvec_backend *b, const table *t, int measure, question *q)
{
	gpuvec_topk_query *query = &q->query;
	const id_set *row = &t->rows[random_below(t->n)];
	uint32_t	common;

	query->k = random_below(5) == 0 ? 100000 : random_below(5) == 0 ? 1 : 1 + (uint32_t) random_below(12);
	query->has_min_score = random_below(3) != 0;
	switch (random_below(5))
	{
		case 0:
			query->min_score = score_of(measure, q, row, &common);
			break;
		case 1:
			query->min_score = nextafter(score_of(measure, q, row, &common), INFINITY);
			break;
		case 2:
			query->min_score = random_below(2) ? 0.0 : -0.0;
			break;
		case 3:
			query->min_score = 0x1p-1074;
			break;
		default:
			query->min_score = -0.5;
			break;
	}
	query->has_after = random_below(4) == 0;
	row = &t->rows[random_below(t->n)];
	query->after_score = score_of(measure, q, row, &common);
	query->after_tid = tid_of((uint32_t) random_below(t->n));
	query->filter.n = random_below(4) == 0;
	query->filter.conditions = &q->condition;
	q->condition = (gpuvec_condition) {.column = 1,.kind = GPUVEC_KEY_BETWEEN};
	q->condition.low = random_below(FILTER_VALUES);
	q->condition.high = q->condition.low + random_below(FILTER_VALUES);
	query->unordered = b->takes_unordered && !query->has_after && random_below(4) == 0;
	query->bare = query->unordered && random_below(2);
	if (query->unordered)
		query->k = UINT32_MAX;
	else
		query->matches = allocate(2 * t->n * sizeof(gpuvec_match));
}

static question *
draw_question(const gpuvec_backend *b, const table *t, int measure, int weights, uint32_t longest)
{
	question   *q = allocate(sizeof(question));
	uint32_t	unknown = (uint32_t) random_below(3) * (uint32_t) random_below(4);
	double		square = 0;
	double		own = 0;

	q->set = draw_set(longest + unknown, random_below(2) ? t->nids : t->nids + unknown);
	q->weights = allocate((q->set.n + 1) * sizeof(float));
	for (uint32_t i = 0; i < q->set.n; i++)
	{
		float		weight = draw_weight(weights);

		q->weights[i] = measure == GPUVEC_SPARSE_JACCARD ? fabsf(weight) : weight;
		square += (double) q->weights[i] * q->weights[i];
		own += q->weights[i];
	}
	q->query.weights = q->weights;
	q->query.square = square;
	q->query.own = measure == GPUVEC_SPARSE_COSINE ? square : measure == GPUVEC_SPARSE_JACCARD ? own : 0;
	give_numbers(t, q);
	draw_conditions(b, t, measure, q);
	brute_force(t, measure, q);
	return q;
}

static void
free_question(question *q)
{
	free(q->set.ids);
	free(q->weights);
	free(q->expected);
	free(q->query.matches);
	free(q->query.tids);
	free(q);
}

/* ---- searches ---- */

static bool
has_tid(const gpuvec_topk_query *query, uint64_t tid)
{
	uint32_t	n = 0;

	for (uint32_t i = 0; i < query->nmatches; i++)
		n += query->tids[i] == tid;
	return n == 1;
}

/* Is the backend's answer what is expected, to the last bit? */
static bool
is_right(const question *q, const gpuvec_topk_query *query)
{
	if (query->nmatches != q->n)
		return false;
	if (query->unordered && !query->bare && q->n > 0)
		qsort(query->matches, q->n, sizeof(gpuvec_match), compare_matches);
	for (uint32_t i = 0; i < q->n; i++)
	{
		const answer *want = &q->expected[i];

		if (query->bare ? !has_tid(query, want->tid) :
			(query->matches[i].tid != want->tid || query->matches[i].common != want->common ||
			 memcmp(&query->matches[i].score, &want->score, sizeof(double)) != 0))
			return false;
	}
	return true;
}

#ifdef WEIGHTS_TEST_GPU
/* What all searches have done, and those whose tables were large enough */
static struct gpuvec_search_stats met;
static struct gpuvec_search_stats short_of;

static void
count_search(gpuvec_backend *b)
{
	add_search(&met, b);
	if (gpuvec_search_last(b).cold_full == 0)
		add_search(&short_of, b);
}
#else
#define count_search(b)	((void) 0)
#endif

/* What answers that have rows are examples of */
enum
{
	FILTERED, BEHIND_A_ROW, BEYOND_MATCHES, COLD_NUMBERS, COLD_OF_VECTORS, SEVERAL_SEGMENTS, DEAD_ROWS, N_EXAMPLES
};

static const char *const example_names[] = {
	"queries have filters", "queries begin behind a row", "fewer rows match than were asked for",
	"queries have cold numbers", "and rows values", "views have several segments", "views have dead rows"
};

static uint64_t examples[N_MEASURES][N_EXAMPLES];

static void
count_answer(const gpuvec_view *view, int measure, const gpuvec_topk_query *query)
{
	uint64_t   *n = examples[measure];

	if (query->nmatches == 0)
		return;
	n[FILTERED] += query->filter.n > 0;
	n[BEHIND_A_ROW] += query->has_after;
	n[BEYOND_MATCHES] += query->nmatches < query->k;
	n[COLD_NUMBERS] += query->ncold > 0;
	n[COLD_OF_VECTORS] += query->ncold > 0 && view->entries[0].segment->sums != NULL;
	n[SEVERAL_SEGMENTS] += view->nentries > 1;
	n[DEAD_ROWS] += view->entries[0].live != NULL;
}

static void
search(gpuvec_backend *b, const gpuvec_view *view, int measure, gpuvec_method method,
	   question **questions, uint32_t n)
{
	static const char *const names[] = {"inner product", "cosine", "jaccard"};
	gpuvec_scoring scoring = gpuvec_sparse_scoring((gpuvec_sparse_measure) measure);
	gpuvec_topk_query *queries = allocate(n * sizeof(*queries));
	uint32_t	ways = gpuvec_way_bit(GPUVEC_WAY_SCAN);
	gpuvec_error error;

	for (uint32_t i = 0; i < n; i++)
	{
		queries[i] = questions[i]->query;
		if (queries[i].ncold > 0)
			ways |= gpuvec_way_bit(GPUVEC_WAY_LISTS);
		if (queries[i].filter.n > 0)
			ways |= gpuvec_way_bit(GPUVEC_WAY_GATHERED);
	}
	check(b->topk(b, view, &scoring, method, queries, n, &error), "a search");
	count_search(b);
	for (uint32_t i = 0; i < n; i++)
	{
		check(is_right(questions[i], &queries[i]), names[measure]);
		count_answer(view, measure, &queries[i]);
		check((queries[i].ways & ~ways) == 0, "the ways of a search");
		/* what the backend has allocated is freed with the question */
		questions[i]->query.tids = queries[i].tids;
		questions[i]->query.matches = queries[i].matches;
	}
	free(queries);
}

/* A number of a row, and its value */
typedef struct number_value
{
	uint32_t	number;
	float		value;
} number_value;

static int
compare_numbers(const void *x, const void *y)
{
	const number_value *a = x;
	const number_value *b = y;

	return a->number < b->number ? -1 : a->number > b->number;
}

/* A row as segments are built from; malloc'd, the row's ids point to it */
static uint16_t *
pack_row(const table *t, const id_set *set, gpuvec_source_row *row)
{
	number_value *pairs = allocate((set->n + 1) * sizeof(*pairs));
	uint32_t   *numbers = allocate((set->n + 1) * sizeof(uint32_t));
	char	   *packed = allocate(gpuvec_packed_bytes(set->n, set->n) + gpuvec_values_bytes(set->n) + 4);
	gpuvec_row_sums sums = {0, 0};
	bool		negative = false;
	char	   *to;

	for (uint32_t i = 0; i < set->n; i++)
	{
		pairs[i] = (number_value) {t->numbers[set->ids[i]], set->values ? set->values[i] : 1};
		sums.square += (double) pairs[i].value * pairs[i].value;
		sums.sum += pairs[i].value;
		negative |= pairs[i].value < 0;
	}
	if (negative)
		sums.sum = -1;
	qsort(pairs, set->n, sizeof(*pairs), compare_numbers);
	for (uint32_t i = 0; i < set->n; i++)
		numbers[i] = pairs[i].number;
	gpuvec_pack_numbers(numbers, set->n, (uint16_t *) packed, row);
	to = packed + gpuvec_packed_bytes(row->len, row->ncold);
	if (t->vectors)
		memcpy(to, &sums, sizeof(sums));
	for (uint32_t i = 0; t->vectors && i < set->n; i++)
		memcpy(to + sizeof(sums) + i * sizeof(float), &pairs[i].value, sizeof(float));
	free(numbers);
	free(pairs);
	return (uint16_t *) packed;
}

/* Rows [from, to) as a segment, in which the dead ones are marked */
static gpuvec_view_entry
make_entry(gpuvec_backend *b, const table *t, uint32_t from, uint32_t to)
{
	uint32_t	n = to - from;
	gpuvec_source_row *rows = allocate(n * sizeof(*rows));
	uint16_t  **packed = allocate(n * sizeof(*packed));
	uint64_t   *keys = allocate(n * 2 * sizeof(*keys));
	gpuvec_view_entry entry = {NULL, NULL, 0};
	gpuvec_row_kind kind = {1, t->vectors};
	gpuvec_segment *copy;
	gpuvec_error error;

	for (uint32_t i = 0; i < n; i++)
	{
		packed[i] = pack_row(t, &t->rows[from + i], &rows[i]);
		rows[i].tid = tid_of(from + i);
		keys[i * 2 + 1] = filter_value(t, from + i);
		rows[i].filter_keys = &keys[i * 2];
	}
	check(gpuvec_rows_sort(rows, n, &error), "rows_sort");
	entry.segment = gpuvec_segment_build(rows, n, kind, &error);
	for (uint32_t r = 0; r < n; r++)
	{
		if (!t->dead[row_of(rows[r].tid)])
			continue;
		if (entry.live == NULL)
			entry.live = gpuvec_livemap_new(n, &error);
		entry.live->bits[r / 32] &= ~(1u << (r % 32));
		entry.live->nlive--;
	}
	check(b->adopt_segment(b, entry.segment, &error) &&
		  b->adopt_livemaps(b, &entry.live, entry.live != NULL, &error), "adopt");
	/* a copy is searched as the segment is */
	if (random_below(3) == 0)
	{
		copy = gpuvec_segment_copy(entry.segment, &error);
		check(copy != NULL && b->adopt_segment(b, copy, &error), "copy");
		gpuvec_segment_unref(entry.segment);
		entry.segment = copy;
	}
	for (uint32_t i = 0; i < n; i++)
		free(packed[i]);
	free(packed);
	free(keys);
	free(rows);
	return entry;
}

static gpuvec_view *
make_view(gpuvec_backend *b, const table *t)
{
	gpuvec_view_entry entries[4];
	uint32_t	n = 0;
	gpuvec_error error;
	gpuvec_view *view;

	for (uint32_t from = 0; from < t->n;)
	{
		uint32_t	to = n == 3 || random_below(3) == 0 ? t->n : from + 1 + (uint32_t) random_below(t->n - from);

		if (to - from > GPUVEC_SEGMENT_ROWS)
			to = from + GPUVEC_SEGMENT_ROWS;
		entries[n++] = make_entry(b, t, from, to);
		from = to;
	}
	view = gpuvec_view_new(entries, n, &error);
	check(b->adopt_view(b, view, &error), "adopt_view");
	return view;
}

/* Give queries the filter of the first one */
static void
share_filter(const table *t, int measure, question **questions, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
	{
		questions[i]->condition = questions[0]->condition;
		questions[i]->query.filter.n = 1;
		free(questions[i]->expected);
		brute_force(t, measure, questions[i]);
	}
}

/* Search a table by a measure with weights of a kind, alone and together */
static void
search_table(gpuvec_backend *b, const table *t, int measure, int weights, uint32_t longest)
{
	gpuvec_view *view = make_view(b, t);
	question   *questions[N_QUERIES];

	for (int i = 0; i < N_QUERIES; i++)
		questions[i] = draw_question(b, t, measure, weights, i % 5 == 0 ? 1 : longest);
	if (random_below(4) == 0)
		share_filter(t, measure, questions, N_QUERIES);
	for (int method = 0; method < GPUVEC_N_METHODS; method++)
	{
		search(b, view, measure, (gpuvec_method) method, questions, N_QUERIES);
		search(b, view, measure, (gpuvec_method) method, questions, 1);
	}
	for (int i = 0; i < N_QUERIES; i++)
		free_question(questions[i]);
	gpuvec_view_unref(view);
}

#ifdef WEIGHTS_TEST_GPU
#define N_BACKENDS	3

/*
 * Queries of a batch are scanned together by the first two.  Rounds,
 * candidates and tables of the last two are small: searches run short of them.
 */
static gpuvec_backend *
open_backend(int simd, int threads)
{
	gpuvec_backend_options options = {.threads = threads};
	gpuvec_error error;
	gpuvec_backend *b = gpuvec_cuda_open(&options, &error);
	struct gpuvec_search_policy policy;

	if (b == NULL)
	{
		fprintf(stderr, "%s\n", error.message);
		exit(1);
	}
	policy = gpuvec_search_policy_get(b);
	policy.list_rows = 1;
	/* so filters' rows are scanned for as well, in small tables */
	if (simd < N_BACKENDS)
		policy.gather_rows = simd == 1 ? 30 : 0;
	policy.together_queries = simd < N_BACKENDS ? 2 : UINT32_MAX;
	policy.together_percent = policy.together_numbers = 0;
	if (simd != 1)
	{
		policy.first_rows = 64;
		policy.candidates = policy.candidates_few = 64;
		policy.candidates_per_k = 1;
		policy.growth = policy.growth_few = 1000;
		policy.cold_slots = policy.cold_slots_most = 64;
		policy.retry_candidates = 64;
		policy.retry_per_k = 1;
	}
	gpuvec_search_policy_set(b, &policy);
	return b;
}
#else
#define N_BACKENDS	6

/* Rows have lists at once, so a search could take them */
static const gpuvec_lists_policy all_lists = {.least_rows = 1,.dense = 64,.share = 1e9};

static gpuvec_backend *
open_backend(int simd, int threads)
{
	gpuvec_backend_options options = {.simd = simd,.threads = threads};
	gpuvec_error error;

	return gpuvec_cpu_open_with(&options, &all_lists, &error);
}
#endif

static void
test_tables(int n)
{
	static const uint32_t vocabularies[] = {1, 9, 60, 300, MOST_IDS};
	gpuvec_backend *backends[N_BACKENDS];

	for (int i = 0; i < N_BACKENDS; i++)
		backends[i] = open_backend(1 + i % 3, 1 + i / 3 * 2);
	for (int i = 0; i < n; i++)
	{
		uint32_t	longest = random_below(8) == 0 ? 400 : 1 + (uint32_t) random_below(40);
		uint32_t	rows = 1 + (uint32_t) random_below(i % 9 == 0 ? 1500 : 130);
		table	   *t = draw_table(rows, longest, vocabularies[random_below(5)], i % N_NUMBERS,
								random_below(3) == 0 ? -1 : (int) random_below(N_WEIGHTS));

		search_table(backends[random_below(N_BACKENDS)], t, i / N_NUMBERS % N_MEASURES,
					 (int) random_below(N_WEIGHTS), longest);
		free_table(t);
	}
	for (int i = 0; i < N_BACKENDS; i++)
		backends[i]->close(backends[i]);
}

/*
 * Many rows, so that bounds prune, and terms whose sums of floats are not in
 * the order of scores
 */
static void
test_large(uint32_t large, uint32_t largest)
{
	for (int i = 0; i < 9; i++)
	{
		gpuvec_backend *b = open_backend(1 + i % 3, 1 + i % 2);
		table	   *t = draw_table(i == 1 ? largest : large, 40, i == 1 ? 200 : MOST_IDS, i % N_NUMBERS,
								i % 4 < 2 ? -1 : i % 2 ? ALL_SIZES : BOTH_SIGNS);

		search_table(b, t, i / 3, i % 2 ? BOTH_SIGNS : MANY, 300);
		free_table(t);
		b->close(b);
	}
}

/* The best rows with a positive score, and all that jaccard refuses */
static void
want_positive(const table *t, int measure, question *q)
{
	q->query.has_min_score = true;
	q->query.min_score = 0x1p-1074;
	free(q->expected);
	brute_force(t, measure, q);
}

/*
 * Many queries of few ids, each of which dozens of them have; sometimes none
 * wants rows without an id of it
 */
static void
test_many(int n)
{
	for (int i = 0; i < n; i++)
	{
		gpuvec_backend *b = open_backend(1 + i % 3, 1 + i % 2);
		int			values = i % 4 == 0 ? -1 : i % 2 ? BOTH_SIGNS : (int) random_below(N_WEIGHTS);
		table	   *t = draw_table(200, 12, 15, i % N_NUMBERS, values);
		gpuvec_view *view = make_view(b, t);
		question   *questions[MANY_QUERIES];
		int			measure = i / 3 % N_MEASURES;

		for (int j = 0; j < MANY_QUERIES; j++)
		{
			questions[j] = draw_question(b, t, measure, (int) random_below(N_WEIGHTS), 12);
			if (i % 2)
				want_positive(t, measure, questions[j]);
		}
		search(b, view, measure, GPUVEC_METHOD_AUTO, questions, MANY_QUERIES);
		for (int j = 0; j < MANY_QUERIES; j++)
			free_question(questions[j]);
		gpuvec_view_unref(view);
		free_table(t);
		b->close(b);
	}
}

#ifndef WEIGHTS_TEST_GPU

#define MORE_QUERIES	(2 * SPARSE_BATCH_MOST + 70)

/* More queries than sums are kept of */
static void
test_more(void)
{
	question  **questions = allocate(MORE_QUERIES * sizeof(*questions));

	for (int i = 0; i < 6; i++)
	{
		gpuvec_backend *b = open_backend(1 + i % 3, 1 + i % 2);
		table	   *t = draw_table(300, 40, 300, i % N_NUMBERS, i < 3 ? -1 : MANY);
		gpuvec_view *view = make_view(b, t);

		for (int j = 0; j < MORE_QUERIES; j++)
			questions[j] = draw_question(b, t, i % N_MEASURES, BOTH_SIGNS, 20);
		search(b, view, i % N_MEASURES, GPUVEC_METHOD_AUTO, questions, MORE_QUERIES);
		for (int j = 0; j < MORE_QUERIES; j++)
			free_question(questions[j]);
		gpuvec_view_unref(view);
		free_table(t);
		b->close(b);
	}
	free(questions);
}

#endif

#define CLIMBING		600		/* rows, and ids */

/* Row r has the id r only, and each row is better than all before it */
static table *
climbing_table(int numbers, bool vectors)
{
	table	   *t = allocate(sizeof(table));

	t->nids = t->n = CLIMBING;
	t->vectors = vectors;
	t->rows = allocate(t->n * sizeof(id_set));
	t->dead = allocate(t->n);
	draw_numbers(t, numbers);
	for (uint32_t r = 0; r < t->n; r++)
	{
		t->rows[r] = (id_set) {1, allocate(sizeof(uint32_t)), vectors ? allocate(sizeof(float)) : NULL};
		t->rows[r].ids[0] = r;
		if (vectors)
			t->rows[r].values[0] = (float) (r + 1) / CLIMBING;
	}
	return t;
}

/* A question of one id, for all rows */
static question *
small_question(const table *t, int measure, uint32_t id, float weight)
{
	question   *q = allocate(sizeof(question));

	q->set = (id_set) {1, allocate(sizeof(uint32_t)), NULL};
	q->set.ids[0] = id;
	q->weights = allocate(sizeof(float));
	q->weights[0] = weight;
	q->query.weights = q->weights;
	q->query.square = (double) weight * weight;
	q->query.own = measure == GPUVEC_SPARSE_COSINE ? q->query.square : 0;
	q->query.k = t->n;
	q->query.matches = allocate(t->n * sizeof(gpuvec_match));
	give_numbers(t, q);
	brute_force(t, measure, q);
	return q;
}

/* Products that are too small for a float are no less a common id */
static void
test_small(void)
{
	static const float weights[4] = {0x1p-100f, -0x1p-100f, 1, -1};

	for (int simd = 1; simd <= 3; simd++)
		for (int measure = GPUVEC_SPARSE_INNER_PRODUCT; measure <= GPUVEC_SPARSE_COSINE; measure++)
		{
			gpuvec_backend *b = open_backend(simd, 1);
			table	   *t = climbing_table(IDS, true);
			gpuvec_view *view;
			question   *questions[8];

			for (uint32_t r = 0; r < t->n; r++)
			{
				t->rows[r].ids[0] = r % 3;
				t->rows[r].values[0] = r % 2 ? 0x1p-100f : -0x1p-100f;
			}
			view = make_view(b, t);
			for (uint32_t j = 0; j < 8; j++)
				questions[j] = small_question(t, measure, j % 2, weights[j / 2]);
			search(b, view, measure, GPUVEC_METHOD_AUTO, questions, 8);
			for (int j = 0; j < 8; j++)
				free_question(questions[j]);
			gpuvec_view_unref(view);
			free_table(t);
			b->close(b);
		}
}

/* The k best rows by a query of all ids */
static question *
climbing_question(const table *t, int measure, uint32_t k)
{
	question   *q = allocate(sizeof(question));

	q->set = (id_set) {t->nids, allocate(t->nids * sizeof(uint32_t)), NULL};
	q->weights = allocate(t->nids * sizeof(float));
	for (uint32_t i = 0; i < t->nids; i++)
	{
		q->set.ids[i] = i;
		q->weights[i] = (float) (i + 1) / CLIMBING;
		q->query.square += (double) q->weights[i] * q->weights[i];
		q->query.own += q->weights[i];
	}
	if (measure != GPUVEC_SPARSE_JACCARD)
		q->query.own = measure == GPUVEC_SPARSE_COSINE ? q->query.square : 0;
	q->query.weights = q->weights;
	q->query.k = k;
	q->query.matches = allocate(k * sizeof(gpuvec_match));
	give_numbers(t, q);
	brute_force(t, measure, q);
	return q;
}

/*
 * Rows of a tile are about as good, so a sample of them says little of the
 * others: more rows may qualify than there is room for
 */
static void
test_climbing(void)
{
	static const uint32_t ks[] = {40, 3, 12, 60};
	gpuvec_backend *b = open_backend(2, 2);

	for (int i = 0; i < N_NUMBERS * N_MEASURES * 2; i++)
	{
		int			measure = i / N_NUMBERS % N_MEASURES;
		table	   *t = climbing_table(i % N_NUMBERS, i % 2);
		gpuvec_view *view = make_view(b, t);
		question   *questions[4];

		for (int j = 0; j < 4; j++)
			questions[j] = climbing_question(t, measure, ks[j]);
		search(b, view, measure, GPUVEC_METHOD_AUTO, questions, 4);
		search(b, view, measure, GPUVEC_METHOD_AUTO, questions, 1);
		for (int j = 0; j < 4; j++)
			free_question(questions[j]);
		gpuvec_view_unref(view);
		free_table(t);
	}
	b->close(b);
}

#ifdef WEIGHTS_TEST_GPU
#define N_LONGEST	1
#else
#define N_LONGEST	20
#endif

/*
 * Sets of all ids that there are, in the order of numbers from the last id; on
 * the CPU more queries than a batch takes of such
 */
static void
test_longest(void)
{
	uint32_t	n = GPUVEC_MAX_IDS;
	uint16_t   *ids = allocate(n * sizeof(uint16_t));
	uint16_t   *places = allocate(n * sizeof(uint16_t));
	float	   *weights = allocate(n * sizeof(float));
	gpuvec_scoring scoring = gpuvec_sparse_scoring(GPUVEC_SPARSE_INNER_PRODUCT);
	gpuvec_source_row row = {7, n, 0, ids, NULL};
	double		sum = 0;
	gpuvec_error error;

	for (uint32_t i = 0; i < n; i++)
	{
		ids[i] = (uint16_t) i;
		places[i] = (uint16_t) (n - 1 - i);
		weights[i] = draw_weight(MANY) * (i % 2 ? 1 : 1e-6f);
	}
	for (uint32_t i = 0; i < n; i++)
		sum += weights[i];
	for (int simd = 1; simd <= 3; simd++)
	{
		gpuvec_backend *b = open_backend(simd, 1);
		gpuvec_view_entry entry = {gpuvec_segment_build(&row, 1, (gpuvec_row_kind) {0}, &error), NULL, 0};
		gpuvec_view *view = gpuvec_view_new(&entry, 1, &error);
		gpuvec_match matches[N_LONGEST];
		gpuvec_topk_query queries[N_LONGEST];
		gpuvec_topk_query query = {.ids = ids,.len = n,.weights = weights,.places = places,.k = 1,
			.has_min_score = true,.min_score = sum
		};

		for (uint32_t i = 0; i < n; i++)
			query.square += (double) weights[i] * weights[i];
		check(b->adopt_segment(b, entry.segment, &error) && b->adopt_view(b, view, &error), "adopt");
		for (int i = 0; i < N_LONGEST; i++)
		{
			queries[i] = query;
			queries[i].matches = &matches[i];
		}
		check(b->topk(b, view, &scoring, GPUVEC_METHOD_AUTO, queries, N_LONGEST, &error), "a search for all ids");
		for (int i = 0; i < N_LONGEST; i++)
			check(queries[i].nmatches == 1 && matches[i].score == sum && matches[i].common == n &&
				  matches[i].tid == 7, "a set of all ids");
		gpuvec_view_unref(view);
		b->close(b);
	}
	free(ids);
	free(places);
	free(weights);
}

/* Random queries must have come to all that they are for */
static void
check_examples(void)
{
	for (int measure = 0; measure < N_MEASURES; measure++)
		for (int i = 0; i < N_EXAMPLES; i++)
			check(examples[measure][i] > 20, example_names[i]);
}

#ifdef WEIGHTS_TEST_GPU

#define TOGETHER	8			/* queries */
#define WORKSPACE	32768		/* bytes */

/* On the device: the weight of each number, or a term for each id */
static const size_t term_bytes[2] = {sizeof(uint16_t) + 3 * sizeof(float), sizeof(uint32_t) + 2 * sizeof(float)};

/*
 * Queries that are searched at once have no more memory than they may; each
 * of these has less than that
 */
static void
test_room(void)
{
	static const int numbers[2] = {IDS, ONLY_COLD};
	gpuvec_backend *b = open_backend(2, 1);
	struct gpuvec_search_policy policy = gpuvec_search_policy_get(b);

	policy.workspace = WORKSPACE;
	gpuvec_search_policy_set(b, &policy);
	for (int i = 0; i < 2; i++)
	{
		table	   *t = climbing_table(numbers[i], true);
		gpuvec_view *view = make_view(b, t);
		question   *questions[TOGETHER];

		for (int j = 0; j < TOGETHER; j++)
			questions[j] = climbing_question(t, GPUVEC_SPARSE_COSINE, 3);
		search(b, view, GPUVEC_SPARSE_COSINE, GPUVEC_METHOD_AUTO, questions, TOGETHER);
		check(gpuvec_search_last(b).chunks * (size_t) WORKSPACE >= TOGETHER * CLIMBING * term_bytes[i],
			  "room for weights is counted");
		for (int j = 0; j < TOGETHER; j++)
			free_question(questions[j]);
		gpuvec_view_unref(view);
		free_table(t);
	}
	b->close(b);
}

/* With "full", for a GPU; less for one that is emulated */
int
main(int argc, char **argv)
{
	bool		full = argc > 1 && strcmp(argv[1], "full") == 0;

	test_tables(full ? 1500 : 90);
	test_large(full ? 5000 : 1500, full ? 70000 : 3000);
	test_many(full ? 90 : 18);
	test_small();
	test_climbing();
	test_room();
	test_longest();
	check(met.together_rounds > 200, "queries are scanned together");
	check(met.masked_rounds > 0, "and with one mask");
	check(met.gathered > 100, "rows are gathered");
	check(met.cold_rounds > 100 && met.cold_full > 5, "tables are made, or are too small");
	check(short_of.overflows > 0, "queries have more candidates than there is room for");
	check(short_of.direct_overflows > 0, "so have lone queries");
	check(short_of.retries > 0, "rounds of those that are run again overflow");
	check_examples();
	return report_checks();
}

#else

int
main(void)
{
	test_tables(1500);
	test_large(5000, 70000);
	test_many(90);
	test_small();
	test_more();
	test_climbing();
	test_longest();
	check_examples();
	return report_checks();
}

#endif
