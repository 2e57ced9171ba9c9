/*-------------------------------------------------------------------------
 *
 * sparse_test.c
 *	  Test of bounds of sums of floats: no row with the score is skipped.
 *
 * A query and a row are drawn.  The score is computed here, from the
 * definition.  The terms of floats are added in several orders, with and
 * without fused operations.  The row must be wanted for its own score, and
 * for any lower one.  Sums that lose as much as can be have cases of their
 * own, and so have those that overflow.  That bounds leave out rows at all is
 * another case.
 *
 *-------------------------------------------------------------------------
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/sparse_bound.h"

#include "unit_test.h"

#define MOST			65536
#define N_ORDERS		6
#define N_MEASURES		3

/* Sizes of values that are drawn */
enum
{
	SMALL,						/* 1 .. 255 */
	SAME_SIZE,					/* of 24 bits, between 1 and 2 */
	ALL_SIZES,
	HUGE_ONES,
	DENORMAL,
	PRODUCTS_DENORMAL,			/* the query's times the row's are */
	ONES,
	N_KINDS
};

/* Values of the query and of the row; 0: it does not have the id */
static float q[MOST];
static float v[MOST];
static uint32_t n;
static float terms[MOST];
static uint32_t order[MOST];

/* What has been found out about them */
static double scores[N_MEASURES];
static double own_q[N_MEASURES];
static double own_v[N_MEASURES];
static bool hit;

static float
drawn(int kind, bool negative)
{
	float		sign = negative && random_below(2) ? -1 : 1;
	float		mantissa = 1 + (float) random_below(1 << 23) * 0x1p-23f;

	switch (kind)
	{
		case SMALL:
			return sign * (float) (1 + random_below(255));
		case SAME_SIZE:
			return sign * mantissa;
		case ALL_SIZES:
			return sign * ldexpf(mantissa, (int) random_below(276) - 149);
		case HUGE_ONES:
			return sign * ldexpf(mantissa, 125 + (int) random_below(3));
		case DENORMAL:
			return sign * ldexpf((float) (1 + random_below(1000)), -149);
		case PRODUCTS_DENORMAL:
			return sign * ldexpf(mantissa, -74 + (int) random_below(3));
	}
	return 1;
}

/* Draw both, of n ids */
static void
draw(int kind_q, int kind_v, bool negative, uint64_t share)
{
	for (uint32_t i = 0; i < n; i++)
	{
		q[i] = random_below(100) < share ? drawn(kind_q, negative) : 0;
		v[i] = random_below(100) < share ? drawn(kind_v, negative) : 0;
	}
}

/* The definition, from the arrays */
static void
compute(void)
{
	double		s = 0;
	double		m = 0;
	double		ratio;

	memset(own_q, 0, sizeof(own_q));
	memset(own_v, 0, sizeof(own_v));
	hit = false;
	for (uint32_t i = 0; i < n; i++)
	{
		own_q[GPUVEC_SPARSE_COSINE] += (double) q[i] * q[i];
		own_v[GPUVEC_SPARSE_COSINE] += (double) v[i] * v[i];
		own_q[GPUVEC_SPARSE_JACCARD] += q[i];
		own_v[GPUVEC_SPARSE_JACCARD] += v[i];
		if (q[i] == 0 || v[i] == 0)
			continue;
		hit = true;
		s += (double) q[i] * v[i];
		m += q[i] < v[i] ? q[i] : v[i];
	}
	scores[GPUVEC_SPARSE_INNER_PRODUCT] = s;
	ratio = own_q[GPUVEC_SPARSE_COSINE] * own_v[GPUVEC_SPARSE_COSINE];
	ratio = ratio > 0 ? s * s / ratio : 0;
	ratio = sqrt(ratio > 1 ? 1 : ratio);
	scores[GPUVEC_SPARSE_COSINE] = s < 0 ? 0 - ratio : ratio;
	ratio = own_q[GPUVEC_SPARSE_JACCARD] + own_v[GPUVEC_SPARSE_JACCARD] - m;
	scores[GPUVEC_SPARSE_JACCARD] = ratio > 0 ? m / ratio : 0;
}

/* Add up every step-th product from `first` on, with fused operations */
static float
fused(uint32_t first, uint32_t step, bool least)
{
	float		sum = 0;

	for (uint32_t i = first; i < n; i += step)
		sum = least ? sum + (q[i] < v[i] ? q[i] : v[i]) : fmaf(q[i], v[i], sum);
	return sum;
}

static float
halves(uint32_t first, uint32_t end)
{
	uint32_t	middle = first + (end - first) / 2;

	return end - first == 1 ? terms[first] : halves(first, middle) + halves(middle, end);
}

static int
by_term(const void *a, const void *b)
{
	float		x = fabsf(terms[*(const uint32_t *) a]);
	float		y = fabsf(terms[*(const uint32_t *) b]);

	return x > y ? -1 : x < y;
}

/* The sum of floats, in some order.  Terms of ids that one has not are 0. */
static float
add_up(int how, bool least)
{
	float		lanes[16];
	float		sum = 0;

	for (uint32_t i = 0; i < n; i++)
	{
		terms[i] = least ? (q[i] < v[i] ? q[i] : v[i]) : q[i] * v[i];
		order[i] = i;
	}
	switch (how)
	{
		case 0:
			for (uint32_t i = 0; i < n; i++)
				sum += terms[i];
			break;
		case 1:
			for (uint32_t i = n; i-- > 0;)
				sum += terms[i];
			break;
		case 2:
			sum = fused(0, 1, least);
			break;
		case 3:
			for (int l = 0; l < 16; l++)
				lanes[l] = fused((uint32_t) l, 16, least);
			for (int l = 8; l > 0; l /= 2)
				for (int i = 0; i < l; i++)
					lanes[i] += lanes[i + l];
			sum = lanes[0];
			break;
		case 4:
			sum = halves(0, n);
			break;
		case 5:
			/* the greatest first: loses most */
			if (n > 4096)
				return add_up(0, least);
			qsort(order, n, sizeof(*order), by_term);
			for (uint32_t i = 0; i < n; i++)
				sum += terms[order[i]];
			break;
	}
	return sum;
}

/* Rows that are not wanted, and those of them that reach the line */
static uint64_t skipped;
static uint64_t reached;

/* True if the row is wanted by a measure, for a score */
static bool
wanted(int measure, float sum, double score)
{
	gpuvec_sparse_bound bound =
	gpuvec_sparse_make_bound((gpuvec_sparse_measure) measure, n, own_q[GPUVEC_SPARSE_COSINE],
							 own_q[measure]);
	double		square = own_v[GPUVEC_SPARSE_COSINE];
	float		least = gpuvec_sparse_least(&bound, score, square, own_v[measure]);
	float		place = gpuvec_sparse_place((gpuvec_sparse_measure) measure, square, own_v[measure]);
	bool		reaches = gpuvec_sparse_reaches(sum, gpuvec_sparse_make_line(&bound, score), place);
	bool		result = gpuvec_sparse_wanted(sum, hit, least, score);

	/* the line is less, but not by much */
	if (hit && result)
		check(reaches, "a row that is wanted reaches the line");
	skipped += hit && !result;
	reached += hit && !result && reaches;
	return result;
}

/* Check what was drawn, by the measures that it suits */
static void
check_all(bool negative, const char *what)
{
	compute();
	for (int m = 0; m < (negative ? GPUVEC_SPARSE_JACCARD : N_MEASURES); m++)
		for (int how = 0; how < N_ORDERS; how++)
		{
			float		sum = add_up(how, m == GPUVEC_SPARSE_JACCARD);
			double		score = scores[m];

			check(wanted(m, sum, score), what);
			check(wanted(m, sum, nextafter(score, -INFINITY)), what);
			check(wanted(m, sum, score - fabs(score) * (double) random_below(1000) / 256), what);
			check(wanted(m, sum, -INFINITY) && wanted(m, sum, NAN), what);
			(void) wanted(m, sum, score + fabs(score) * (double) (1 + random_below(1000)) / 4096);
			check(score < 0 || wanted(m, sum, -0x1p-1074), what);
			check(hit || wanted(m, sum, 0x1p-1074) == false, "a row without an id of the query");
		}
}

static const uint32_t sizes[] = {1, 1, 1, 2, 3, 8, 17, 43, 127, 600};

static void
test_random(void)
{
	for (int round = 0; round < 24000; round++)
	{
		bool		negative = random_below(2) == 1;

		n = sizes[random_below(sizeof(sizes) / sizeof(sizes[0]))];
		draw((int) random_below(N_KINDS), (int) random_below(N_KINDS), negative, round % 8 == 0 ? 30 : 100);
		check_all(negative, "a row with its own score");
	}
}

/* Of each kind, and of both kinds together, as many ids as there can be */
static void
test_long(void)
{
	for (int kind = 0; kind < N_KINDS * 3; kind++)
	{
		bool		negative = kind % 2 == 1;

		n = kind % 3 == 0 ? MOST : kind % 3 == 1 ? MOST - 1 : 20000;
		draw(kind / 3, (kind + kind / 3) % N_KINDS, negative, 90);
		check_all(negative, "a long row with its own score");
	}
}

/*
 * Sums that lose as much as they can: behind 1, which is the first, each term
 * is lost.  Query and row are in proportion, so |q| |v| is the sum.
 */
static void
test_lost(void)
{
	for (n = 1; n <= MOST; n = n < 40 ? n + 1 : n * 2 - n / 7)
		for (int sign = 0; sign < 2; sign++)
		{
			for (uint32_t i = 0; i < n; i++)
			{
				v[i] = i == 0 ? 1 : 0x1p-12f;
				q[i] = sign ? -v[i] : v[i];
			}
			check_all(sign == 1, "a sum that loses all terms but one");
			for (uint32_t i = 1; i < n; i++)
				q[i] = sign ? -0x1p-24f : 0x1p-24f;
			for (uint32_t i = 1; i < n; i++)
				v[i] = 1;
			check_all(sign == 1, "a sum that loses all terms but one");
		}
}

/* One product of each size */
static void
test_one(void)
{
	n = 1;
	for (int exponent = -149; exponent <= 127; exponent++)
		for (int other = -149; other <= 127; other += 3)
		{
			q[0] = ldexpf(1 + (float) random_below(1 << 23) * 0x1p-23f, exponent);
			v[0] = ldexpf(1 + (float) random_below(1 << 23) * 0x1p-23f, other);
			check_all(false, "one product");
			q[0] = -q[0];
			check_all(true, "one product");
		}
	for (int round = 0; round < 20000; round++)
	{
		draw(SAME_SIZE, SAME_SIZE, true, 100);
		check_all(true, "one product");
	}
}

/* A sum that is below all floats in between, and positive at last */
static void
test_overflow(void)
{
	n = 3;
	v[0] = v[1] = v[2] = 0x1p127f;
	q[0] = -0x1.12p1f;
	q[1] = 0x1.84p0f;
	q[2] = 0x1.ddp0f;
	check_all(true, "a sum that overflows");
	check(scores[GPUVEC_SPARSE_INNER_PRODUCT] > 0 && add_up(0, false) == -INFINITY,
		  "a positive sum whose floats end below all");
	n = 4;
	for (int i = 0; i < 4; i++)
		v[i] = FLT_MAX;
	q[0] = q[2] = 3;
	q[1] = q[3] = -2;
	check_all(true, "a sum that overflows to both sides");
	n = MOST;
	for (uint32_t i = 0; i < n; i++)
		q[i] = v[i] = FLT_MAX;
	check_all(false, "the greatest values");
}

/* Cosines that are too small for a float8, and cut ones */
static void
test_cosines(void)
{
	n = 3;
	for (int sign = -1; sign <= 1; sign += 2)
	{
		q[0] = 0x1p-149f;
		q[1] = v[2] = FLT_MAX;
		q[2] = v[1] = 0;
		v[0] = sign < 0 ? -0x1p-149f : 0x1p-149f;
		check_all(true, "a cosine that is too small");
		check(scores[GPUVEC_SPARSE_COSINE] == 0 && scores[GPUVEC_SPARSE_INNER_PRODUCT] != 0,
			  "a cosine that is too small");
		check(wanted(GPUVEC_SPARSE_COSINE, add_up(0, false), 0), "the score 0");
	}
	for (int round = 0; round < 2000; round++)
	{
		n = 1 + (uint32_t) random_below(300);
		draw(SAME_SIZE, SAME_SIZE, true, 100);
		for (uint32_t i = 0; i < n; i++)
			v[i] = (round % 2 ? -3 : 3) * q[i];
		check_all(true, "the greatest and the least cosine");
		check(wanted(GPUVEC_SPARSE_COSINE, add_up(0, false), -1), "the least cosine");
	}
}

/* Bounds leave out rows that are a thousandth too low */
static void
test_prunes(void)
{
	for (int round = 0; round < 2000; round++)
	{
		n = 1 + (uint32_t) random_below(127);
		draw(round % 2, SAME_SIZE, false, 100);
		compute();
		for (int m = 0; m < N_MEASURES; m++)
			for (int how = 0; how < N_ORDERS; how++)
				check(!wanted(m, add_up(how, m == GPUVEC_SPARSE_JACCARD), scores[m] * 1.001),
					  "a row that is too low");
	}
	n = 2;
	q[0] = v[1] = 1;
	q[1] = v[0] = 0;
	compute();
	check(wanted(GPUVEC_SPARSE_INNER_PRODUCT, 0, 0) && wanted(GPUVEC_SPARSE_INNER_PRODUCT, 0, -1) &&
		  wanted(GPUVEC_SPARSE_INNER_PRODUCT, 0, NAN), "a row without an id of the query");
}

int
main(void)
{
	test_random();
	test_long();
	test_lost();
	test_one();
	test_overflow();
	test_cosines();
	test_prunes();
	check(skipped > 100000 && reached < skipped / 5, "the line skips nearly all");
	return report_checks();
}
