/*-------------------------------------------------------------------------
 *
 * measure_test.c
 *	  Test of scores and distances against similarities that are not rounded:
 *	  fractions of integers, compared by multiplication.
 *
 * Equal similarities must have the same float8, and a greater one none that
 * is smaller, whatever numbers of ids they come from.  All small numbers are
 * tried, and large ones of which many give the same fraction.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/measure.h"

#define MAX_IDS			65536

/*
 * All a, b up to this with all measures; with cosine, a <= b up to
 * MOST_COSINE
 */
#define MOST_IDS		90
#define MOST_COSINE		300
#define LARGE_CASES		400000

/* Numbers of ids, and the similarity: a fraction, of cosine its square */
typedef struct tried
{
	int64_t		num;
	int64_t		den;			/* > 0 */
	uint32_t	i;
	uint32_t	a;
	uint32_t	b;
} tried;

/*
 * Weights of tversky that are decimal fractions: as they are given, and as
 * integers over `scale`
 */
static const struct
{
	double		given[2];
	int64_t		scale;
	int64_t		alpha;
	int64_t		beta;
}			fractions[] = {
	{{1, 1}, 1, 1, 1}, {{0.5, 0.5}, 10, 5, 5}, {{0.7, 0.3}, 10, 7, 3}, {{1, 0}, 1, 1, 0}, {{0, 1}, 1, 0, 1},
	{{0.95, 0.05}, 100, 95, 5}, {{2.5, 0.125}, 1000, 2500, 125}, {{0, 0.3}, 10, 0, 3},
	{{1e-9, 68}, INT64_C(1000000000), 1, INT64_C(68000000000)}, {{68719476736.0, 1}, 1, INT64_C(68719476736), 1},
	{{0.123456789, 9.87654321}, INT64_C(1000000000), 123456789, INT64_C(9876543210)}
};

/* Others, which are none or too large */
static const double others[][2] = {
	{1.0 / 3, 2.0 / 3}, {1e-300, 1e-12}, {1e-12, 1e-12}, {5e-324, 0}, {0, 1e300}, {1e300, 1e-300},
	{1.7976931348623157e308, 1.7976931348623157e308}, {1e-10, 0.3}, {1e12, 0.1}, {3.14159265358979, 1e-7},
	{1e-38, 1e38}, {0.1234567891, 0.5}, {1e44, 3e43}, {1e43, 0}, {2.3e-16, 1e-16}, {7e-15, 1e-15}
};

static int fraction;			/* the ones in use */
static gpuvec_tversky weights;
static tried *all;
static size_t n_all;
static long passed = 0;
static long failed = 0;
static uint64_t seed = 88172645463325252u;

/* xorshift64 (Marsaglia 2003): a number in 1 .. most */
static uint32_t
random_to(uint32_t most)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return 1 + (uint32_t) (seed >> 24) % most;
}

/* The definitions of the measures, in integers */
static void
add(int measure, uint32_t i, uint32_t a, uint32_t b)
{
	int64_t		num = i;
	int64_t		den = 1;
	int64_t		shorter = a < b ? a : b;
	int64_t		longer = a < b ? b : a;

	switch (measure)
	{
		case GPUVEC_BRAUN_BLANQUET:
			den = longer;
			break;
		case GPUVEC_JACCARD:
			den = shorter + longer - i;
			break;
		case GPUVEC_COSINE:
			num *= i;
			den = shorter * longer;
			break;
		case GPUVEC_DICE:
			num *= 2;
			den = shorter + longer;
			break;
		case GPUVEC_OVERLAP:
			den = shorter;
			break;
		case GPUVEC_CONTAINMENT:
			den = a;
			break;
		case GPUVEC_HAMMING:
			num = 2 * num - shorter - longer;
			break;
		case GPUVEC_KULCZYNSKI:
			num *= shorter + longer;
			den = 2 * shorter * longer;
			break;
		case GPUVEC_TVERSKY:
			num *= fractions[fraction].scale;
			den = num + fractions[fraction].alpha * (a - i) + fractions[fraction].beta * (b - i);
			break;
	}
	if (den == 0)				/* so is num */
		den = 1;
	all[n_all++] = (tried) {num, den, i, a, b};
}

/*
 * qsort comparator, ascending: products of 34 and 34 bits and a sign need 69,
 * those of tversky 54 and 54 and a sign
 */
static int
compare_fractions(const void *x, const void *y)
{
	const tried *s = x;
	const tried *t = y;
	__int128	left = (__int128) s->num * t->den;
	__int128	right = (__int128) t->num * s->den;

	return left < right ? -1 : left > right;
}

static gpuvec_scoring
scoring_of(int measure)
{
	gpuvec_scoring scoring = {.measure = measure,.tversky = weights};

	return scoring;
}

/*
 * Two neighbours in the order of their similarities: are they in that of
 * their scores?
 */
static bool
pair_is_right(int measure, const tried *s, const tried *t)
{
	gpuvec_shared first = {s->i, s->a, s->b};
	gpuvec_shared second = {t->i, t->a, t->b};
	double		x = gpuvec_score_with(scoring_of(measure), first);
	double		y = gpuvec_score_with(scoring_of(measure), second);
	double		dx = gpuvec_distance(measure, first);
	double		dy = gpuvec_distance(measure, second);

	if (compare_fractions(s, t) == 0)
		return memcmp(&x, &y, sizeof(x)) == 0 && memcmp(&dx, &dy, sizeof(dx)) == 0;
	/*
	 * squares of cosines, and fractions of products, may be so near each
	 * other that they round to one float8, and so may fractions of weights
	 */
	if (measure == GPUVEC_TVERSKY)
		return x <= y;
	return measure == GPUVEC_COSINE || measure == GPUVEC_KULCZYNSKI ? x <= y && dx >= dy : x < y && dx > dy;
}

/*
 * Is no more asked for than what a row of this score has, and is it no more
 * by the length of a shorter row?
 */
static bool
need_is_right(int measure, const tried *t)
{
	gpuvec_scoring scoring = scoring_of(measure);
	gpuvec_shared shared = {t->i, t->a, t->b};
	float		score = (float) gpuvec_score_with(scoring, shared);
	uint32_t	need = gpuvec_need_with(scoring, t->a, t->b, score);
	uint32_t	shorter = random_to(t->b + 1) - 1;

	if (t->i == 0 && !gpuvec_ranks_disjoint(measure))
		return true;
	return need <= t->i && gpuvec_need_with(scoring, t->a, shorter, score) <= need;
}

/* Check what was added, and start anew */
static void
check_all(int measure, const char *what)
{
	static const char *const names[] = GPUVEC_MEASURE_NAMES;
	const char *name = measure == GPUVEC_TVERSKY ? "tversky" : names[measure];
	size_t		ties = 0;
	size_t		wrong = 0;
	size_t		first = 0;

	qsort(all, n_all, sizeof(tried), compare_fractions);
	for (size_t n = 0; n < n_all; n++)
	{
		bool		right = need_is_right(measure, &all[n]);

		if (n > 0)
		{
			right &= pair_is_right(measure, &all[n - 1], &all[n]);
			ties += compare_fractions(&all[n - 1], &all[n]) == 0;
		}
		if (!right && wrong++ == 0)
			first = n;
	}
	if (wrong == 0 && ties > n_all / 10)
		passed++;
	else
	{
		failed++;
		printf("not ok - %s, %s: %zu of %zu wrong (%zu ties), first %" PRIu32 " of %" PRIu32 " and %" PRIu32 "\n",
			   name, what, wrong, n_all, ties, all[first].i, all[first].a, all[first].b);
	}
	n_all = 0;
}

/* All of few ids */
static void
add_small(int measure, uint32_t most, bool ordered)
{
	for (uint32_t a = 0; a <= most; a++)
		for (uint32_t b = ordered ? a : 0; b <= most; b++)
			for (uint32_t i = 0; i <= (a < b ? a : b); i++)
				add(measure, i, a, b);
}

/*
 * Many ids: multiples of some numbers, which are equal fractions; and for
 * cosine also rows of equal i * i / b with one query, which are not
 * multiples.
 */
static void
add_large(int measure)
{
	while (n_all + 3 <= LARGE_CASES)
	{
		uint32_t	b = random_to(random_to(4) == 1 ? MAX_IDS : 250);
		uint32_t	a = random_to(random_to(4) == 1 ? MAX_IDS : 250);
		uint32_t	i = random_to(a < b ? a : b);
		uint32_t	times = random_to(MAX_IDS / (a > b ? a : b));
		uint32_t	root = random_to(256);

		add(measure, i, a, b);
		add(measure, i * times, a * times, b * times);
		if (i * root <= a && (uint64_t) b * root * root <= MAX_IDS)
			add(measure, i * root, a, b * root * root);
	}
}

/* All that is tried of one measure */
static void
try_measure(int measure)
{
	add_small(measure, MOST_IDS, false);
	check_all(measure, "few ids");
	add_large(measure);
	check_all(measure, "many ids");
}

static void
check(bool ok, const char *what, int n)
{
	if (ok)
		passed++;
	else
	{
		failed++;
		printf("not ok - %s, %d\n", what, n);
	}
}

/* tversky with weights that are measures by other names, bit for bit */
static void
test_other_names(void)
{
	static const double given[][2] = {{1, 1}, {0.5, 0.5}, {1, 0}};
	static const gpuvec_measure same[] = {GPUVEC_JACCARD, GPUVEC_DICE, GPUVEC_CONTAINMENT};

	for (int w = 0; w < 3; w++)
	{
		bool		ok = true;

		weights = gpuvec_make_tversky(given[w][0], given[w][1]);
		for (int n = 0; n < 1000000; n++)
		{
			uint32_t	b = random_to(random_to(4) == 1 ? MAX_IDS : 250);
			uint32_t	a = random_to(random_to(4) == 1 ? MAX_IDS : 250);
			uint32_t	i = random_to((a < b ? a : b) + 1) - 1;
			gpuvec_shared shared = {i, a, b};
			double		x = gpuvec_score_with(scoring_of(GPUVEC_TVERSKY), shared);
			double		y = gpuvec_score(same[w], shared);

			ok &= memcmp(&x, &y, sizeof(x)) == 0;
		}
		check(ok, "tversky by another name", w);
	}
}

/*
 * One query and row with these weights: how right is a score, is it in 0 ..
 * 1, not lower than that of fewer common ids, and does no bound prune it?
 */
static bool
others_are_right(double alpha, double beta, uint32_t a, uint32_t b)
{
	uint32_t	most = a < b ? a : b;
	uint32_t	step = most / 200 + 1;
	double		last = 0;

	for (uint32_t i = 0; i <= most; i += i < 40 || i + 40 > most ? 1 : step)
	{
		gpuvec_shared shared = {i, a, b};
		double		x = gpuvec_tversky_score(weights, shared);
		long double unrounded = i == 0 ? 0 :
			i / (i + (long double) alpha * (a - i) + (long double) beta * (b - i));
		uint32_t	shorter = b - random_to(b) / 2;

		if (!(x >= last && x <= 1) || signbit(x))
			return false;
		if (unrounded > 1e-300L && fabsl(x - unrounded) > unrounded * 1e-15L)
			return false;
		if (i > 0 && (gpuvec_tversky_need(weights, a, b, (float) x) > i ||
					  gpuvec_tversky_need(weights, a, shorter, (float) x) > i ||
					  gpuvec_tversky_need(weights, a, shorter, (float) x) >
					  gpuvec_tversky_need(weights, a, b, (float) x)))
			return false;
		last = x;
	}
	return true;
}

static void
test_other_weights(void)
{
	for (int w = 0; w < (int) (sizeof(others) / sizeof(others[0])); w++)
	{
		bool		ok = true;

		weights = gpuvec_make_tversky(others[w][0], others[w][1]);
		check(weights.one == 0, "weights that are no decimal fractions", w);
		for (int n = 0; n < 20000; n++)
			ok &= others_are_right(others[w][0], others[w][1],
								   random_to(random_to(4) == 1 ? MAX_IDS : 100),
								   random_to(random_to(4) == 1 ? MAX_IDS : 100));
		check(ok, "tversky with other weights", w);
	}
}

/* Do bounds prune at all?  Half of the best score needs at least these. */
static void
test_need(void)
{
	weights = gpuvec_make_tversky(0.7, 0.3);
	check(gpuvec_tversky_need(weights, 100, 100, 0.5f) == 50, "need", 0);
	weights = gpuvec_make_tversky(1e300, 1e300);
	check(gpuvec_tversky_need(weights, 100, 100, 0.5f) == 100, "need", 1);
	weights = gpuvec_make_tversky(0, 3);
	check(gpuvec_tversky_need(weights, 10, 40, 0.5f) == 30, "need", 2);
	check(gpuvec_tversky_need(weights, 10, 40, 1.5f) > MAX_IDS, "need", 3);
	check(gpuvec_tversky_need(weights, 10, 40, -INFINITY) == 1, "need", 4);
}

int
main(void)
{
	size_t		most = (size_t) MOST_COSINE * MOST_COSINE * MOST_COSINE / 6 + (size_t) MOST_COSINE * MOST_COSINE * 2;

	all = malloc(most * sizeof(tried));
	if (all == NULL)
		abort();
	for (int m = 0; m < GPUVEC_N_MEASURES; m++)
		try_measure(m);
	for (fraction = 0; fraction < (int) (sizeof(fractions) / sizeof(fractions[0])); fraction++)
	{
		weights = gpuvec_make_tversky(fractions[fraction].given[0], fractions[fraction].given[1]);
		check(weights.one == fractions[fraction].scale, "weights as integers", fraction);
		try_measure(GPUVEC_TVERSKY);
	}
	test_other_names();
	test_other_weights();
	test_need();
	add_small(GPUVEC_COSINE, MOST_COSINE, true);
	check_all(GPUVEC_COSINE, "more ids");
	free(all);
	printf("%ld passed, %ld failed\n", passed, failed);
	return failed > 0;
}
