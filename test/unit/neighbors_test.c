/*-------------------------------------------------------------------------
 *
 * neighbors_test.c
 *	  The nearest items of each item, against dense matrices in float64, and
 *	  against fractions of integers where scores tie.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/neighbors/neighbors.h"
#include "unit_test.h"

#define USERS	40
#define ITEMS	600
#define MOST	(USERS * ITEMS * 2)

/* Interactions as they come */
static int64_t users[MOST];
static int64_t items[MOST];
static float weights[MOST];
static int	n;

/* What they add up to, by the numbers of users and items; 0: none */
static double x[USERS][ITEMS];

static int64_t
user_key(int user)
{
	return user * INT64_C(1000000007) - 20000000000;
}

/* From the least key there is to the largest */
static int64_t
item_key(int item)
{
	return item == 0 ? INT64_MIN : item == ITEMS - 1 ? INT64_MAX : (item - 50) * INT64_C(3);
}

static int
item_of_key(int64_t key)
{
	return key == INT64_MIN ? 0 : key == INT64_MAX ? ITEMS - 1 : (int) (key / 3) + 50;
}

static void
add(int user, int item, float weight)
{
	users[n] = user_key(user);
	items[n] = item_key(item);
	weights[n++] = weight;
	x[user][item] += weight;
}

static void
clear(void)
{
	n = 0;
	memset(x, 0, sizeof(x));
}

/*
 * A random matrix with one pair in `sparse`.  Some pairs come twice.  All
 * weights are multiples of 1/4.
 */
static void
random_matrix(int nusers, int nitems, int sparse, bool negative)
{
	clear();
	for (int u = 0; u < nusers; u++)
		for (int i = 0; i < nitems; i++)
			if (random_below(sparse) == 0)
				for (int times = random_below(4) == 0 ? 2 : 1; times > 0; times--)
					add(u, i, (float) (random_below(8) + 1) / 4 * (negative && random_below(3) == 0 ? -1 : 1));
}

/* Change the order of the interactions */
static void
shuffle(void)
{
	for (int i = n - 1; i > 0; i--)
	{
		int			j = (int) random_below(i + 1);
		int64_t		user = users[i];
		int64_t		item = items[i];
		float		weight = weights[i];

		users[i] = users[j];
		items[i] = items[j];
		weights[i] = weights[j];
		users[j] = user;
		items[j] = item;
		weights[j] = weight;
	}
}

/* ---- the engine's answer ---- */

typedef struct answer
{
	gpuvec_neighbor *rows;
	uint64_t	n;
	uint32_t	items;
} answer;

static gpuvec_neighbors *
begin(gpuvec_neighbors_options options, int threads)
{
	gpuvec_error error;
	gpuvec_neighbors *neighbors = gpuvec_neighbors_new(NULL, threads, &options, &error);

	check(neighbors != NULL, "it begins");
	/* in two pieces, as a session sends many */
	check(gpuvec_neighbors_add(neighbors, n / 3, users, items, weights, &error) &&
		  gpuvec_neighbors_add(neighbors, n - n / 3, users + n / 3, items + n / 3, weights + n / 3, &error),
		  "interactions are taken");
	check(gpuvec_neighbors_prepare(neighbors, NULL, &error), "interactions are prepared");
	return neighbors;
}

/* All rows; the caller frees them */
static answer
ask(gpuvec_neighbors_options options, int threads)
{
	gpuvec_neighbors *neighbors = begin(options, threads);
	answer		a = {.items = gpuvec_neighbors_rows(neighbors, GPUVEC_ALS_ITEMS)};

	while (gpuvec_neighbors_done(neighbors) < a.items)
	{
		const gpuvec_neighbor *rows;
		gpuvec_error error;
		uint64_t	more = 0;

		check(gpuvec_neighbors_next(neighbors, NULL, &rows, &more, &error), "neighbors are found");
		a.rows = realloc(a.rows, (a.n + more) * sizeof(*rows) + 1);
		memcpy(a.rows + a.n, rows, more * sizeof(*rows));
		a.n += more;
	}
	gpuvec_neighbors_free(neighbors);
	return a;
}

static bool
same_answer(const answer *a, const answer *b)
{
	return a->n == b->n && memcmp(a->rows, b->rows, a->n * sizeof(*a->rows)) == 0;
}

/* ---- the reference ---- */

static double weighted[USERS][ITEMS];
static double score[ITEMS][ITEMS];

/* The peer's formulas, on the dense matrix */
static void
weigh(gpuvec_neighbors_options options)
{
	double		rows[ITEMS] = {0};
	double		mean = 0;
	int			nitems = 0;

	for (int i = 0; i < ITEMS; i++)
	{
		bool		any = false;

		for (int u = 0; u < USERS; u++)
		{
			rows[i] += x[u][i];
			any |= x[u][i] != 0;
		}
		mean += rows[i];
		nitems += any;
	}
	mean /= nitems;
	for (int u = 0; u < USERS; u++)
	{
		int			df = 0;
		double		idf;

		for (int i = 0; i < ITEMS; i++)
			df += x[u][i] != 0;
		idf = log(nitems) - log1p(df);
		for (int i = 0; i < ITEMS; i++)
		{
			weighted[u][i] = x[u][i];
			if (x[u][i] != 0 && options.weighting == GPUVEC_WEIGHTING_TFIDF)
				weighted[u][i] = sqrt(x[u][i]) * idf;
			if (x[u][i] != 0 && options.weighting == GPUVEC_WEIGHTING_BM25)
				weighted[u][i] = x[u][i] * (options.k1 + 1) /
					(options.k1 * (1 - options.b + options.b * rows[i] / mean) + x[u][i]) * idf;
		}
	}
}

/* All scores */
static void
compare_all(gpuvec_neighbors_options options)
{
	double		squares[ITEMS] = {0};

	weigh(options);
	for (int i = 0; i < ITEMS; i++)
		for (int u = 0; u < USERS; u++)
			squares[i] += weighted[u][i] * weighted[u][i];
	for (int i = 0; i < ITEMS; i++)
		for (int j = 0; j < ITEMS; j++)
		{
			double		sum = 0;

			for (int u = 0; u < USERS; u++)
				sum += weighted[u][i] * weighted[u][j];
			if (options.weighting == GPUVEC_WEIGHTING_COSINE || options.weighting == GPUVEC_WEIGHTING_TFIDF)
				sum = squares[i] * squares[j] > 0 ? sum / sqrt(squares[i]) / sqrt(squares[j]) : 0;
			score[i][j] = i == j ? 0 : sum;
		}
}

#define TOLERANCE	1e-11

/* The rows of an item, and whether they are its best ones */
static void
check_item(const gpuvec_neighbor *rows, int found, int item, uint32_t k)
{
	bool		seen[ITEMS] = {false};
	int			positive = 0;
	int			surely = 0;
	bool		complete = true;

	for (int r = 0; r < found; r++)
	{
		int			j = item_of_key(rows[r].neighbor);

		check(!seen[j] && j != item, "a neighbor is another item, and comes once");
		seen[j] = true;
		check(rows[r].score > 0 && fabs(rows[r].score - score[item][j]) <= TOLERANCE * fmax(1, score[item][j]), "its score");
		check(r == 0 || rows[r - 1].score > rows[r].score ||
			  (rows[r - 1].score == rows[r].score && rows[r - 1].neighbor < rows[r].neighbor), "the order");
	}
	for (int j = 0; j < ITEMS; j++)
	{
		positive += score[item][j] > -TOLERANCE && (score[item][j] != 0 || seen[j]);
		surely += score[item][j] > TOLERANCE;
		complete &= seen[j] || score[item][j] <= TOLERANCE ||
			(found == (int) k && score[item][j] <= rows[found - 1].score + TOLERANCE);
	}
	check(complete, "no better item is left out");
	check(found >= (surely < (int) k ? surely : (int) k) && found <= (positive < (int) k ? positive : (int) k), "as many as there are");
}

static void
check_answer(const answer *a, gpuvec_neighbors_options options)
{
	uint64_t	at = 0;

	compare_all(options);
	for (int item = 0; item < ITEMS; item++)
	{
		uint64_t	from = at;

		while (at < a->n && a->rows[at].item == item_key(item))
			at++;
		check_item(a->rows + from, (int) (at - from), item, options.k);
	}
	check(at == a->n, "items come in the order of their keys");
}

static const gpuvec_weighting all[] = {
	GPUVEC_WEIGHTING_COSINE, GPUVEC_WEIGHTING_TFIDF, GPUVEC_WEIGHTING_BM25, GPUVEC_WEIGHTING_NONE
};

/* All weightings and several k, on one matrix */
static void
check_matrix(bool negative)
{
	static const uint32_t ks[] = {1, 7, 20, ITEMS * 2};
	static const double parameters[][2] = {{100, 0.8}, {1.2, 0.75}, {0, 0}, {5, 1}};

	for (int w = 0; w < 4; w++)
	{
		if (negative && gpuvec_weighting_positive(all[w]))
			continue;
		for (int k = 0; k < 4; k++)
		{
			gpuvec_neighbors_options options = {ks[k], all[w], parameters[k][0], parameters[k][1], NULL};
			answer		a = ask(options, 1 + (int) random_below(3));

			check_answer(&a, options);
			free(a.rows);
		}
	}
}

static void
test_random(void)
{
	random_matrix(USERS, ITEMS, 4, false);
	check_matrix(false);
	random_matrix(USERS, ITEMS, 100, false);	/* few products: columns are noted */
	check_matrix(false);
	random_matrix(USERS, ITEMS, 10, true);
	check_matrix(true);
	random_matrix(USERS, ITEMS, 60, true);
	check_matrix(true);
	random_matrix(3, 5, 1, false);	/* all users have all items */
	check_matrix(false);
}

/*
 * The same bits in whatever order rows come, on any number of threads; and of
 * two items both ways
 */
static void
test_bits(void)
{
	for (int w = 0; w < 4; w++)
	{
		gpuvec_neighbors_options options = {ITEMS, all[w], 1.2, 0.75, NULL};
		bool		both_ways = true;
		answer		a;
		answer		b;

		random_matrix(USERS, ITEMS, w % 2 ? 5 : 40, false);
		/* some items that all users have, beside those whose columns are noted */
		for (int i = 0; i < 3 * USERS; i++)
			add(i / 3, i % 3, 1);
		/* products that do not add up the same in another order */
		for (int i = 0; i < n; i++)
			weights[i] = (float) (weights[i] * 0.7 * (i % 3 == 0 ? 1e3 : 1));
		a = ask(options, 1);
		shuffle();
		b = ask(options, 4);
		check(same_answer(&a, &b), "the same bits");
		memset(score, 0, sizeof(score));
		for (uint64_t i = 0; i < a.n; i++)
			score[item_of_key(a.rows[i].item)][item_of_key(a.rows[i].neighbor)] = a.rows[i].score;
		for (int i = 0; i < ITEMS; i++)
			for (int j = 0; j < i; j++)
				both_ways &= score[i][j] == score[j][i];
		check(both_ways, "the same bits both ways");
		free(a.rows);
		free(b.rows);
	}
}

/*
 * Cosines of sets: i*i/(a*b) are fractions of small integers.  Equal ones are
 * equal float8, and come in the order of keys.
 */
static void
test_ties(void)
{
	static int	common[ITEMS][ITEMS];
	static int64_t next[ITEMS];
	gpuvec_neighbors_options options = {ITEMS, GPUVEC_WEIGHTING_COSINE, 100, 0.8, NULL};
	answer		a;
	long		ties = 0;

	random_matrix(USERS, 150, 3, false);
	for (int i = 0; i < n; i++)
		weights[i] = 1;
	for (int i = 0; i < n; i++)
		for (int j = 0; j < i; j++)
			if (users[i] == users[j] && items[i] == items[j])
			{
				/* each pair once */
				users[i] = users[--n];
				items[i] = items[n];
				i = 0;
				break;
			}
	for (int i = 0; i < 150; i++)
		for (int j = 0; j < 150; j++)
		{
			common[i][j] = 0;
			for (int u = 0; u < USERS; u++)
				common[i][j] += x[u][i] != 0 && x[u][j] != 0;
		}
	a = ask(options, 2);
	check(a.n > 1000, "many neighbors");
	for (uint64_t r = 1; r < a.n; r++)
	{
		int			i = item_of_key(a.rows[r].item);
		int			j = item_of_key(a.rows[r - 1].neighbor);
		int			k = item_of_key(a.rows[r].neighbor);
		int64_t		left = (int64_t) common[i][j] * common[i][j] * common[k][k];
		int64_t		right = (int64_t) common[i][k] * common[i][k] * common[j][j];

		if (a.rows[r - 1].item != a.rows[r].item)
			continue;
		check(left > right || (left == right && j < k), "the order of fractions");
		check((left == right) == (a.rows[r - 1].score == a.rows[r].score), "equal fractions are equal scores");
		ties += left == right;
	}
	check(ties > 1000, "many ties");
	/* with fewer, those with the smaller keys */
	options.k = 5;
	memset(next, 0, sizeof(next));
	{
		answer		few = ask(options, 1);

		for (uint64_t r = 0, all_rows = 0; r < few.n; r++)
		{
			while (a.rows[all_rows].item != few.rows[r].item)
				all_rows++;
			check(memcmp(&few.rows[r], &a.rows[all_rows + next[item_of_key(few.rows[r].item)]++], sizeof(*few.rows)) == 0,
				  "the first of all");
		}
		free(few.rows);
	}
	free(a.rows);
}

/*
 * Of two items with equal cosines the one with the smaller key is the
 * neighbor, though the other one has more users and is looked at before
 */
static void
test_popular_tie(void)
{
	gpuvec_neighbors_options options = {1, GPUVEC_WEIGHTING_COSINE, 100, 0.8, NULL};
	answer		a;

	clear();
	for (int u = 0; u < 4; u++)
		add(u, 5, 3);
	add(0, 7, 3);
	for (int u = 2; u < 6; u++)
		add(u, 9, 3);
	a = ask(options, 1);
	/* 1 / sqrt(4 * 1) and 2 / sqrt(4 * 4) */
	check(a.n == 3 && a.rows[0].item == item_key(5) && a.rows[0].neighbor == item_key(7) && a.rows[0].score == 0.5,
		  "the smaller key of a tie");
	free(a.rows);
}

/* Scores by hand, as the formulas are written */
static void
test_by_hand(void)
{
	gpuvec_neighbors_options options = {5, GPUVEC_WEIGHTING_NONE, 100, 0.8, NULL};
	answer		a;

	clear();
	add(0, 1, 4);
	add(0, 2, 9);
	add(1, 1, 1);
	add(1, 2, 16);
	add(1, 3, 1);
	add(2, 4, 5);
	a = ask(options, 1);
	check(a.n == 6 && a.items == 4 && a.rows[0].item == item_key(1) && a.rows[0].neighbor == item_key(2) && a.rows[0].score == 52,
		  "none: 4 * 9 + 1 * 16");
	free(a.rows);
	options.weighting = GPUVEC_WEIGHTING_COSINE;
	a = ask(options, 1);
	check(a.n == 6 && a.rows[0].score == sqrt(52.0 * 52 / (17 * 337)), "cosine: 52 / sqrt(17 * 337)");
	free(a.rows);
	options.weighting = GPUVEC_WEIGHTING_TFIDF;
	a = ask(options, 1);
	/* of 4 items user 1 has 3: its idf is 0, so item 3 has no weight */
	check(a.n == 2 && fabs(a.rows[0].score - 1) < 1e-15 && a.rows[1].score == a.rows[0].score, "tfidf: the same direction");
	free(a.rows);
	options.weighting = GPUVEC_WEIGHTING_BM25;
	a = ask(options, 1);
	/* sums are 5, 25, 1 and 5, their mean is 9 */
	check(a.n == 2 && fabs(a.rows[0].score - 4 * 101 / (100 * (0.2 + 0.8 * 5 / 9) + 4) * 9 * 101 / (100 * (0.2 + 0.8 * 25 / 9) + 9) *
						   log(4.0 / 3) * log(4.0 / 3)) < 1e-14, "bm25");
	free(a.rows);
}

/* ---- limits ---- */

static void
check_refused(gpuvec_weighting weighting)
{
	gpuvec_neighbors_options options = {5, weighting, 100, 0.8, NULL};
	gpuvec_error error;
	gpuvec_neighbors *neighbors = gpuvec_neighbors_new(NULL, 1, &options, &error);

	check(gpuvec_neighbors_add(neighbors, 1, &(int64_t) {-12}, &(int64_t) {34}, &(float) {-1}, &error), "a dislike comes");
	check(!gpuvec_neighbors_prepare(neighbors, NULL, &error) && strcmp(error.sqlstate, GPUVEC_OUT_OF_RANGE) == 0 &&
		  strstr(error.message, "user -12 and item 34 is negative") != NULL, "a negative weight is named");
	gpuvec_neighbors_free(neighbors);
}

/* Preparing that is canceled */
static void
test_canceled(void)
{
	gpuvec_neighbors_options options = {5, GPUVEC_WEIGHTING_BM25, 100, 0.8, NULL};
	gpuvec_error error = {0};
	gpuvec_neighbors *neighbors = gpuvec_neighbors_new(NULL, 2, &options, &error);
	int			canceled = 1;

	check(gpuvec_neighbors_add(neighbors, 1, &(int64_t) {12}, &(int64_t) {34}, &(float) {1}, &error) &&
		  !gpuvec_neighbors_prepare(neighbors, &canceled, &error) && !error.fatal, "preparing is canceled");
	gpuvec_neighbors_free(neighbors);
}

static void
test_limits(void)
{
	gpuvec_neighbors_options options = {20, GPUVEC_WEIGHTING_COSINE, 100, 0.8, NULL};
	gpuvec_neighbors *neighbors;
	const gpuvec_neighbor *rows;
	gpuvec_error error;
	uint64_t	more;
	int			canceled = 1;
	answer		a;

	clear();
	a = ask(options, 2);
	check(a.n == 0 && a.items == 0, "nothing comes of nothing");
	free(a.rows);
	add(5, 6, 1);
	a = ask(options, 2);
	check(a.n == 0 && a.items == 1, "one item has no neighbors");
	free(a.rows);
	add(5, 7, 1);
	add(6, 6, 1);
	add(6, 6, -1);
	a = ask(options, 2);
	check(a.n == 2 && a.items == 2 && a.rows[0].score == 1, "weights that add up to zero are left out");
	free(a.rows);

	random_matrix(USERS, ITEMS, 2, false);
	neighbors = begin(options, 2);
	check(gpuvec_neighbors_next(neighbors, &canceled, &rows, &more, &error), "a canceled search is no error");
	gpuvec_neighbors_free(neighbors);
	check_refused(GPUVEC_WEIGHTING_TFIDF);
	check_refused(GPUVEC_WEIGHTING_BM25);
	for (int w = 0; w < GPUVEC_N_WEIGHTINGS; w++)
		check(gpuvec_weighting_find(gpuvec_weighting_name((gpuvec_weighting) w)) == (gpuvec_weighting) w, "names of weightings");
	check(gpuvec_weighting_find("Cosine") == GPUVEC_N_WEIGHTINGS, "an unknown name");
}

/* ---- a GPU that fails ---- */

/* A sanitizer lets an allocation fail, as the system does */
extern const char *__asan_default_options(void);

const char *
__asan_default_options(void)
{
	return "allocator_may_return_null=1";
}

static int	opened;
static bool opens;				/* with answers for which memory is lacking */

static gpuvec_device_product *
open_fake(gpuvec_finder *finder, const gpuvec_product_problem *problem, uint32_t batch,
		  gpuvec_error *error)
{
	gpuvec_device_product *product = opens ? calloc(1, sizeof(*product)) : NULL;

	check(problem->nitems > 1 && batch > 0, "there is something to do");
	if (product == NULL)
	{
		gpuvec_fail_memory(error, 0);
		return NULL;
	}
	product->finder = finder;
	product->slices = UINT32_MAX;
	opened++;
	return product;
}

static void
free_fake(gpuvec_device_product *product)
{
	free(product);
	opened--;
}

/* Where memory is lacking for a GPU, threads find the same neighbors */
static void
test_failing_device(void)
{
	gpuvec_finder finder = {.open = open_fake, .free = free_fake};
	gpuvec_neighbors_options options = {5, GPUVEC_WEIGHTING_COSINE, 100, 0.8, NULL};

	random_matrix(30, 50, 3, false);
	for (int round = 0; round < 2; round++)
	{
		answer		right;
		answer		a;

		options.finder = NULL;
		right = ask(options, 2);
		opens = round == 1;
		options.finder = &finder;
		a = ask(options, 2);
		check(a.n > 0 && a.n == right.n && memcmp(a.rows, right.rows, a.n * sizeof(*a.rows)) == 0 &&
			  opened == 0, "threads find what a GPU cannot");
		free(a.rows);
		free(right.rows);
	}
}

/* A device that has room for answers, but finds none */
static bool
fail_to_find(gpuvec_device_product *product, uint32_t first, uint32_t n, const int *canceled,
			 gpuvec_scored_item *best, uint32_t *counts, gpuvec_error *error)
{
	(void) product;
	(void) first;
	(void) canceled;
	(void) best;
	memset(counts, 0, n * sizeof(*counts));
	return gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL, "the device fails");
}

static gpuvec_device_product *
open_failing(gpuvec_finder *finder, const gpuvec_product_problem *problem, uint32_t batch,
			 gpuvec_error *error)
{
	gpuvec_device_product *product = open_fake(finder, problem, batch, error);

	product->slices = 1;
	return product;
}

/* The error of a device that fails while it searches is the search's */
static void
test_failing_search(void)
{
	gpuvec_finder finder = {.open = open_failing, .find = fail_to_find, .free = free_fake};
	gpuvec_neighbors_options options = {5, GPUVEC_WEIGHTING_COSINE, 100, 0.8, &finder};
	gpuvec_neighbors *neighbors;
	const gpuvec_neighbor *rows;
	gpuvec_error error = {0};
	uint64_t	more = 0;

	random_matrix(30, 50, 3, false);
	opens = true;
	neighbors = begin(options, 2);
	check(!gpuvec_neighbors_next(neighbors, NULL, &rows, &more, &error) && more == 0 &&
		  strcmp(error.message, "the device fails") == 0, "a search that fails is an error");
	check(gpuvec_neighbors_done(neighbors) == 0, "and nothing is done");
	gpuvec_neighbors_free(neighbors);
	check(opened == 0, "the device is closed");
}

int
main(void)
{
	test_random();
	test_bits();
	test_ties();
	test_popular_tie();
	test_by_hand();
	test_limits();
	test_canceled();
	test_failing_device();
	test_failing_search();
	return report_checks();
}
