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
	}
	if (den == 0)				/* so is num */
		den = 1;
	all[n_all++] = (tried) {num, den, i, a, b};
}

/*
 * qsort comparator, ascending: products of 32 and 32 bits and a sign need 65
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

/*
 * Two neighbours in the order of their similarities: are they in that of
 * their scores?
 */
static bool
pair_is_right(int measure, const tried *s, const tried *t)
{
	double		x = gpuvec_score(measure, s->i, s->a, s->b);
	double		y = gpuvec_score(measure, t->i, t->a, t->b);
	double		dx = gpuvec_distance(measure, s->i, s->a, s->b);
	double		dy = gpuvec_distance(measure, t->i, t->a, t->b);

	if (compare_fractions(s, t) == 0)
		return memcmp(&x, &y, sizeof(x)) == 0 && memcmp(&dx, &dy, sizeof(dx)) == 0;
	/*
	 * squares of cosines may be so near each other that they round to one
	 * float8
	 */
	return measure == GPUVEC_COSINE ? x <= y && dx >= dy : x < y && dx > dy;
}

/* Is no more asked for than what a row of this score has? */
static bool
need_is_right(int measure, const tried *t)
{
	if (t->i == 0 && !gpuvec_ranks_disjoint(measure))
		return true;
	return gpuvec_need(measure, t->a, t->b, (float) gpuvec_score(measure, t->i, t->a, t->b)) <= t->i;
}

/* Check what was added, and start anew */
static void
check_all(int measure, const char *what)
{
	static const char *const names[] = GPUVEC_MEASURE_NAMES;
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
			   names[measure], what, wrong, n_all, ties, all[first].i, all[first].a, all[first].b);
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

int
main(void)
{
	size_t		most = (size_t) MOST_COSINE * MOST_COSINE * MOST_COSINE / 6 + (size_t) MOST_COSINE * MOST_COSINE * 2;

	all = malloc(most * sizeof(tried));
	if (all == NULL)
		abort();
	for (int m = 0; m < GPUVEC_N_MEASURES; m++)
	{
		add_small(m, MOST_IDS, false);
		check_all(m, "few ids");
		add_large(m);
		check_all(m, "many ids");
	}
	add_small(GPUVEC_COSINE, MOST_COSINE, true);
	check_all(GPUVEC_COSINE, "more ids");
	free(all);
	printf("%ld passed, %ld failed\n", passed, failed);
	return failed > 0;
}
