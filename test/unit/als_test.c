/*-------------------------------------------------------------------------
 *
 * als_test.c
 *	  Alternating least squares in the engine, against dense matrices in
 *	  float64 (als_reference.h), and by hand.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "als_reference.h"
#include "engine/als/als_math.h"
#include "engine/als/training.h"
#include "engine/store/mirror_kind.h"
#include "engine/store/store.h"
#include "unit_test.h"

/* Interactions as they come */
#define MOST	8192

static int64_t users[MOST];
static int64_t items[MOST];
static float weights[MOST];
static int	n;

static void
add(int64_t user, int64_t item, float weight)
{
	users[n] = user;
	items[n] = item;
	weights[n++] = weight;
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

static const gpuvec_training_options plain = {
	.factors = 4, .cg_steps = 3, .regularization = 0.01, .alpha = 1
};

/* A training of the interactions, prepared */
static gpuvec_training *
begin(const gpuvec_training_options *options, int threads)
{
	gpuvec_error error;
	gpuvec_training *training = gpuvec_training_new(NULL, threads, options, &error);

	check(training != NULL, "a training begins");
	/* in two pieces, as a session sends many */
	check(gpuvec_training_add(training, n / 3, users, items, weights, &error) &&
		  gpuvec_training_add(training, n - n / 3, users + n / 3, items + n / 3, weights + n / 3, &error),
		  "interactions are taken");
	check(gpuvec_training_prepare(training, NULL, &error), "a training is prepared");
	return training;
}

static double
iterate(gpuvec_training *training, int times)
{
	gpuvec_error error;
	double		loss = NAN;

	for (int i = 0; i < times; i++)
		check(gpuvec_training_iterate(training, NULL, &loss, &error), "an iteration succeeds");
	return loss;
}

/* All factors of a side, malloc'd */
static float *
factors_of(gpuvec_training *training, gpuvec_als_side side, uint32_t factors)
{
	uint32_t	rows = gpuvec_training_rows(training, side);
	float	   *out = malloc(((size_t) rows * factors + 1) * sizeof(float));

	check(gpuvec_training_copy(training, side, 0, rows, out, NULL), "factors are copied");
	return out;
}

static bool
near(double a, double b, double tolerance)
{
	return fabs(a - b) <= tolerance * fmax(1, fmax(fabs(a), fabs(b)));
}

/* ---- random matrices, against the reference ---- */

static int64_t
user_key(int user)
{
	return user * INT64_C(1000000007) - 40000000000;
}

static int64_t
item_key(int item)
{
	return item - 10;
}

/*
 * A random matrix: in the reference, where keys ascend, and as interactions.
 * Weights are sums of parts; some parts add up to nothing.  Every user and
 * every item gets a pair.
 */
static void
random_matrix(als_reference *ref)
{
	n = 0;
	memset(ref->weight, 0, sizeof(ref->weight));
	for (int u = 0; u < ref->users; u++)
		for (int i = 0; i < ref->items; i++)
		{
			double		weight = random_below(4) == 0 || u % ref->items == i || i % ref->users == u ?
				(double) (1 + random_below(12)) / 4 : 0;
			int			parts = 1 + (int) random_below(3);

			if (random_below(5) == 0)
				weight = -weight;
			if (weight == 0 && random_below(4) > 0)
				continue;
			ref->weight[u][i] = weight;
			/* the parts are exact in float32 */
			for (int part = 1; part < parts; part++)
			{
				add(user_key(u), item_key(i), (float) part);
				weight -= part;
			}
			if (weight != 0)
				add(user_key(u), item_key(i), (float) weight);
		}
	shuffle();
}

/* The factors that both begin with */
static void
first_factors(als_reference *ref, int64_t seed)
{
	for (int k = 0; k < ref->factors; k++)
	{
		for (int u = 0; u < ref->users; u++)
			ref->x[u][k] = gpuvec_als_initial(seed, GPUVEC_ALS_USERS, user_key(u), k, ref->factors);
		for (int i = 0; i < ref->items; i++)
			ref->y[i][k] = gpuvec_als_initial(seed, GPUVEC_ALS_ITEMS, item_key(i), k, ref->factors);
	}
}

static void
compare_factors(const als_reference *ref, gpuvec_training *training, double tolerance)
{
	for (int side = 0; side < 2; side++)
	{
		float	   *got = factors_of(training, side, ref->factors);
		int			rows = side ? ref->items : ref->users;
		bool		same = gpuvec_training_rows(training, side) == (uint32_t) rows;

		for (int row = 0; same && row < rows; row++)
		{
			same = gpuvec_training_keys(training, side)[row] == (side ? item_key(row) : user_key(row));
			for (int k = 0; same && k < ref->factors; k++)
				same = near(got[row * ref->factors + k], side ? ref->y[row][k] : ref->x[row][k], tolerance);
		}
		check(same, "factors are those of the reference");
		free(got);
	}
}

static void
test_random(void)
{
	static als_reference ref;

	for (int round = 0; round < 60; round++)
	{
		gpuvec_training_options options = {0};
		gpuvec_training *training;

		ref.users = 1 + (int) random_below(REF_MOST);
		ref.items = 1 + (int) random_below(REF_MOST);
		options.factors = ref.factors = 1 + (int) random_below(round % 3 == 0 ? REF_MOST : 8);
		options.cg_steps = ref.cg_steps = 1 + (int) random_below(4);
		options.regularization = ref.regularization = (double) (1 + random_below(100)) / 100;
		options.alpha = ref.alpha = (double) (1 + random_below(8)) / 2;
		options.seed = round - 3;
		random_matrix(&ref);
		first_factors(&ref, options.seed);
		training = begin(&options, 1 + round % 3);
		for (int i = 0; i < 4; i++)
		{
			double		loss = iterate(training, 1);

			ref_iterate(&ref, 0);
			check(near(loss, ref_loss(&ref), 1e-5), "the loss is that of the reference");
		}
		compare_factors(&ref, training, 1e-3);
		gpuvec_training_free(training);
	}
}

/* Factors of users from those of items, against the reference */
static void
test_fold_in(void)
{
	static als_reference ref;

	for (int round = 0; round < 40; round++)
	{
		gpuvec_training_options options = {.alpha = 1, .fold_in = true};
		float		elements[REF_MOST];
		gpuvec_error error;
		gpuvec_training *training;

		ref.users = 1 + (int) random_below(REF_MOST);
		ref.items = 1 + (int) random_below(REF_MOST);
		options.factors = ref.factors = 1 + (int) random_below(REF_MOST);
		options.regularization = ref.regularization = (double) (1 + random_below(100)) / 100;
		options.alpha = ref.alpha = 2;
		random_matrix(&ref);
		first_factors(&ref, round);
		training = gpuvec_training_new(NULL, 2, &options, &error);
		for (int i = 0; i < ref.items; i++)
		{
			int64_t		key = item_key(i);

			for (int k = 0; k < ref.factors; k++)
				ref.y[i][k] = elements[k] = (float) ref.y[i][k] * sqrtf((float) ref.factors);
			check(gpuvec_training_set(training, GPUVEC_ALS_ITEMS, 1, &key, elements, &error), "items come first");
		}
		/* an item without a factor does not count */
		add(user_key(0), item_key(REF_MOST), 3);
		check(gpuvec_training_add(training, n, users, items, weights, &error) &&
			  gpuvec_training_prepare(training, NULL, &error) &&
			  gpuvec_training_fold_in(training, NULL, &error), "users are folded in");
		/* the reference solves for items, too: keep those that were given */
		for (int u = 0; u < ref.users; u++)
		{
			static double a[REF_MOST][REF_MOST];
			double		b[REF_MOST];

			ref_system(&ref, 0, u, a, b);
			ref_solve(ref.factors, a, b, ref.x[u]);
		}
		compare_factors(&ref, training, 1e-5);
		gpuvec_training_free(training);
	}
}

/* ---- the same bits ---- */

/*
 * Users are folded in by several threads as by one, each in its own row: rows
 * of so many factors lie close together
 */
static void
test_fold_in_bits(void)
{
	gpuvec_training_options options = {.factors = GPUVEC_ALS_LANES, .regularization = 0.1, .alpha = 1.5, .fold_in = true};
	float	   *first = NULL;

	for (int nthreads = 1; nthreads <= 4; nthreads += 3)
	{
		gpuvec_error error;
		gpuvec_training *training = gpuvec_training_new(NULL, nthreads, &options, &error);
		float	   *factors;
		size_t		bytes;

		for (int64_t item = 0; item < 40; item++)
		{
			float		elements[GPUVEC_ALS_LANES];

			for (int k = 0; k < GPUVEC_ALS_LANES; k++)
				elements[k] = (float) gpuvec_als_initial(7, GPUVEC_ALS_ITEMS, item, k, GPUVEC_ALS_LANES);
			check(gpuvec_training_set(training, GPUVEC_ALS_ITEMS, 1, &item, elements, &error), "items come first");
		}
		/* so many that there is a slice for each thread */
		for (int times = 0; times < 8; times++)
		{
			n = 0;
			for (int i = 0; i < MOST; i++)
				add(i % 3000, (i / 3000 * 13 + i % 7 + times * 5) % 40, (float) (1 + i * 37 % 1000) / 7);
			check(gpuvec_training_add(training, n, users, items, weights, &error), "interactions are added");
		}
		check(gpuvec_training_prepare(training, NULL, &error) &&
			  gpuvec_training_fold_in(training, NULL, &error), "users are folded in");
		factors = factors_of(training, GPUVEC_ALS_USERS, GPUVEC_ALS_LANES);
		bytes = (size_t) gpuvec_training_rows(training, GPUVEC_ALS_USERS) * GPUVEC_ALS_LANES * sizeof(float);
		check(bytes > 0 && (first == NULL || memcmp(first, factors, bytes) == 0),
			  "users that are folded in have the same bits for any number of threads");
		free(first);
		first = factors;
		gpuvec_training_free(training);
	}
	free(first);
}

static void
test_bits(void)
{
	gpuvec_training_options options = {.factors = 20, .cg_steps = 3, .regularization = 0.1, .alpha = 1.5};
	float	   *first[2] = {NULL, NULL};
	double		loss = 0;

	n = 0;
	/* pairs whose sum depends on the order of weights */
	for (int i = 0; i < 30; i++)
		add(i % 10, 5000, (float[]) {1e9f, 1e-7f, -1e9f}[i / 10]);
	for (int i = 0; i < MOST - 30; i++)
		add((int64_t) random_below(3000), (int64_t) random_below(100) * random_below(100),
			(float) (1 + random_below(1000)) / 7);
	for (int round = 0; round < 5; round++)
	{
		gpuvec_training *training = begin(&options, 1 + round);
		double		again = iterate(training, 3);

		check(round == 0 || again == loss, "the loss has the same bits");
		loss = again;
		for (int side = 0; side < 2; side++)
		{
			float	   *factors = factors_of(training, side, options.factors);
			size_t		bytes = (size_t) gpuvec_training_rows(training, side) * options.factors * sizeof(float);

			check(first[side] == NULL || memcmp(first[side], factors, bytes) == 0,
				  "factors have the same bits for any number of threads and any order of rows");
			free(first[side]);
			first[side] = factors;
		}
		gpuvec_training_free(training);
		shuffle();
	}
	free(first[0]);
	free(first[1]);
	options.seed = 1;
	{
		gpuvec_training *training = begin(&options, 1);

		check(iterate(training, 3) != loss, "another seed gives other factors");
		gpuvec_training_free(training);
	}
}

/* All instruction sets of this machine, on one half of an iteration */
static void
test_instruction_sets(void)
{
	enum {ROWS = 40, FIXED = 70, STRIDE = 48};
	static float fixed[FIXED * STRIDE] __attribute__((aligned(64)));
	static float gram[3][STRIDE * STRIDE] __attribute__((aligned(64)));
	static float solved[3][ROWS * STRIDE] __attribute__((aligned(64)));
	static float scratch[GPUVEC_ALS_SCRATCH * STRIDE] __attribute__((aligned(64)));
	static uint64_t starts[ROWS + 1];
	static gpuvec_als_entry entries[ROWS * FIXED];
	gpuvec_als_matrix matrix = {ROWS, starts, entries};
	const gpuvec_als_math *sets[3] = {&gpuvec_als_math_portable};
	int			nsets = 1;

	if (gpuvec_processor_has("avx2"))
		sets[nsets++] = &gpuvec_als_math_avx2;
	if (gpuvec_processor_has("avx512f"))
		sets[nsets++] = &gpuvec_als_math_avx512;
	check(gpuvec_als_best_math() == sets[nsets - 1], "the best one is taken");
	for (int i = 0; i < FIXED * STRIDE; i++)
		fixed[i] = ((float) random_below(1 << 24) / (1 << 23) - 1) * 0.3f;
	for (int row = 0; row < ROWS; row++)
	{
		starts[row + 1] = starts[row];
		for (int i = 0; i < FIXED; i++)
			if (random_below(ROWS) < (uint64_t) row)
				entries[starts[row + 1]++] = (gpuvec_als_entry) {i, (float) random_below(100) / 9 - 3};
	}
	for (int set = 0; set < nsets; set++)
	{
		gpuvec_als_half half = {&matrix, fixed, solved[set], gram[set], STRIDE, 3};
		double		loss[3];

		sets[set]->gram(fixed, FIXED, STRIDE, gram[set]);
		for (int i = 0; i < STRIDE; i++)
			for (int j = 0; j < i; j++)
				gram[set][i * STRIDE + j] = gram[set][j * STRIDE + i];
		for (int row = 0; row < ROWS; row++)
		{
			sets[set]->solve(&half, row, scratch);
			loss[set] = sets[set]->loss(&half, row, scratch);
			if (set > 0)
				check(loss[set] == sets[0]->loss(&(gpuvec_als_half) {&matrix, fixed, solved[0], gram[0], STRIDE, 3}, row, scratch),
					  "all instruction sets give the same loss");
		}
		check(memcmp(gram[set], gram[0], sizeof(gram[0])) == 0 &&
			  memcmp(solved[set], solved[0], sizeof(solved[0])) == 0, "all instruction sets give the same bits");
	}
}

/* ---- by hand ---- */

static void
set_zeros(gpuvec_training *training, gpuvec_als_side side, uint32_t factors)
{
	float	   *zeros = calloc((size_t) gpuvec_training_rows(training, side) * factors, sizeof(float));
	gpuvec_error error;

	check(gpuvec_training_set(training, side, gpuvec_training_rows(training, side),
							  gpuvec_training_keys(training, side), zeros, &error), "factors are set");
	free(zeros);
}

static void
test_loss_by_hand(void)
{
	gpuvec_training *training;
	float		factor;

	/* without factors every like is missed: 3 of 3 + 1 + 1 + 1 */
	n = 0;
	add(1, 1, 3);
	add(2, 2, 0.5f);
	add(2, 2, -0.5f);
	add(2, 1, -5);
	add(1, 2, -2);
	training = begin(&plain, 1);
	set_zeros(training, GPUVEC_ALS_USERS, 4);
	set_zeros(training, GPUVEC_ALS_ITEMS, 4);
	check(gpuvec_training_entries(training) == 3, "a pair that adds up to zero is none");
	check(near(iterate(training, 1), 3.0 / (3 + 5 + 2 + 1), 1e-12), "dislikes count with their confidence");
	gpuvec_training_free(training);

	/* one pair, one factor: x = c y / (c y^2 + l) for y = 2, then y likewise */
	n = 0;
	add(7, -7, 4);
	training = begin(&(gpuvec_training_options) {.factors = 1, .cg_steps = 1, .regularization = 0.5, .alpha = 0.5}, 1);
	check(gpuvec_training_set(training, GPUVEC_ALS_ITEMS, 1, &(int64_t) {-7}, &(float) {2}, NULL), "a factor is set");
	{
		double		x = 2 * 2 / (2 * 2 * 2 + 0.5);
		double		y = 2 * x / (2 * x * x + 0.5);
		double		loss = (2 * (1 - x * y) * (1 - x * y) + 0.5 * (x * x + y * y)) / 2;

		check(near(iterate(training, 1), loss, 1e-6), "the loss of one pair");
		gpuvec_training_copy(training, GPUVEC_ALS_USERS, 0, 1, &factor, NULL);
		check(near(factor, x, 1e-6), "the user of one pair");
		gpuvec_training_copy(training, GPUVEC_ALS_ITEMS, 0, 1, &factor, NULL);
		check(near(factor, y, 1e-6), "the item of one pair");
	}
	gpuvec_training_free(training);
}

/* x.y of two rows */
static double
score(const float *x, const float *y, int factors)
{
	double		sum = 0;

	for (int k = 0; k < factors; k++)
		sum += (double) x[k] * y[k];
	return sum;
}

/*
 * Users like items of their own parity, but one: it has the best score of all
 * that they have not
 */
static void
test_checkerboard(void)
{
	enum {SIZE = 50, FACTORS = 3};
	gpuvec_training_options options = {.factors = FACTORS, .cg_steps = 3, .regularization = 0.01, .alpha = 1};
	gpuvec_training *training;
	float	   *x;
	float	   *y;

	n = 0;
	for (int u = 0; u < SIZE; u++)
		for (int i = 0; i < SIZE; i++)
			if (u != i && (u - i) % 2 == 0)
				add(u, i, 1);
	training = begin(&options, 2);
	iterate(training, 15);
	x = factors_of(training, GPUVEC_ALS_USERS, FACTORS);
	y = factors_of(training, GPUVEC_ALS_ITEMS, FACTORS);
	for (int u = 0; u < SIZE; u++)
	{
		int			best = -1;

		for (int i = 0; i < SIZE; i++)
			if ((u == i || (u - i) % 2 != 0) &&
				(best < 0 || score(x + u * FACTORS, y + i * FACTORS, FACTORS) > score(x + u * FACTORS, y + best * FACTORS, FACTORS)))
				best = i;
		check(best == u, "the item that was held back comes first");
	}
	free(x);
	free(y);
	gpuvec_training_free(training);
}

/* With as many factors as items and large weights, a matrix comes back */
static void
test_reconstruction(void)
{
	static const char *const rows[] = {"110001", "011010", "100110", "001101", "111000", "000111", "101011"};
	gpuvec_training_options options = {.factors = 6, .cg_steps = 6, .regularization = 0, .alpha = 2};
	gpuvec_training *training;
	float	   *x;
	float	   *y;

	n = 0;
	for (int u = 0; u < 7; u++)
		for (int i = 0; i < 6; i++)
			if (rows[u][i] == '1')
				add(u, i, 1);
	training = begin(&options, 1);
	iterate(training, 60);
	x = factors_of(training, GPUVEC_ALS_USERS, 6);
	y = factors_of(training, GPUVEC_ALS_ITEMS, 6);
	for (int u = 0; u < 7; u++)
		for (int i = 0; i < 6; i++)
			check(fabs(score(x + u * 6, y + i * 6, 6) - (rows[u][i] - '0')) < 1e-3, "the matrix comes back");
	free(x);
	free(y);
	gpuvec_training_free(training);
}

/* ---- limits ---- */

static void
test_limits(void)
{
	gpuvec_training_options options = plain;
	gpuvec_training *training;
	gpuvec_error error;
	int			canceled = 1;
	double		loss;

	n = 0;
	training = begin(&options, 1);
	check(gpuvec_training_rows(training, GPUVEC_ALS_USERS) == 0 &&
		  gpuvec_training_rows(training, GPUVEC_ALS_ITEMS) == 0 && gpuvec_training_entries(training) == 0,
		  "nothing comes of nothing");
	gpuvec_training_free(training);

	/* one user and one item, more factors than items, no regularization */
	add(5, 6, 1);
	options.factors = GPUVEC_ALS_MAX_FACTORS;
	options.regularization = 0;
	training = begin(&options, 1);
	loss = iterate(training, 10);
	check(loss >= -1e-6 && loss < 1e-3, "one pair is learnt with any number of factors");
	check(gpuvec_training_iterate(training, &canceled, &loss, &error), "a canceled iteration is no error");
	gpuvec_training_free(training);

	/* weights that are too large, one by one or together */
	options = plain;
	training = gpuvec_training_new(NULL, 1, &options, &error);
	for (int i = 0; i < 3; i++)
		check(gpuvec_training_add(training, 1, &(int64_t) {-12}, &(int64_t) {34}, &(float) {4e11f}, &error), "large weights come");
	check(!gpuvec_training_prepare(training, NULL, &error) && strcmp(error.sqlstate, GPUVEC_OUT_OF_RANGE) == 0 &&
		  strstr(error.message, "user -12 and item 34") != NULL, "a pair that is too large is named");
	gpuvec_training_free(training);
}

/* Prepare one pair of weight w, times alpha, beside one that adds up to zero */
static gpuvec_training *
small_pair(bool fold_in, double alpha, float w, bool *ok, gpuvec_error *error)
{
	gpuvec_training_options options = plain;
	gpuvec_training *training;

	options.alpha = alpha;
	options.fold_in = fold_in;
	training = gpuvec_training_new(NULL, 1, &options, error);
	if (fold_in)
		for (int64_t item = 2; item < 4; item++)
			check(gpuvec_training_set(training, GPUVEC_ALS_ITEMS, 1, &item, (float[4]) {1}, error), "an item comes");
	check(gpuvec_training_add(training, 3, (int64_t[]) {1, 1, 1}, (int64_t[]) {2, 3, 3}, (float[]) {w, 5, -5}, error), "weights come");
	*ok = gpuvec_training_prepare(training, NULL, error);
	return training;
}

/* Confidences that vanish: an error of a training if there are no others */
static void
test_vanishing(void)
{
	gpuvec_training *training;
	gpuvec_error error;
	bool		ok;

	training = small_pair(false, 1e-20, 1e-30f, &ok, &error);
	check(!ok && strcmp(error.sqlstate, GPUVEC_OUT_OF_RANGE) == 0 &&
		  strstr(error.detail, "1e-20") != NULL, "all confidences vanish");
	gpuvec_training_free(training);
	training = small_pair(false, 1e-20, 1e-20f, &ok, &error);
	check(ok && gpuvec_training_entries(training) == 1, "a small confidence counts");
	gpuvec_training_free(training);
	training = small_pair(true, 1e-20, 1e-30f, &ok, &error);
	check(ok && gpuvec_training_rows(training, GPUVEC_ALS_USERS) == 0, "a user without a confidence is not folded in");
	gpuvec_training_free(training);
	training = gpuvec_training_new(NULL, 1, &plain, &error);
	check(gpuvec_training_add(training, 2, (int64_t[]) {1, 1}, (int64_t[]) {3, 3}, (float[]) {5, -5}, &error) &&
		  gpuvec_training_prepare(training, NULL, &error) && gpuvec_training_entries(training) == 0, "a pair that adds up to zero is none");
	gpuvec_training_free(training);
}

/* Preparing that is canceled */
static void
test_canceled(void)
{
	gpuvec_training_options options = plain;

	for (int fold_in = 0; fold_in < 2; fold_in++)
	{
		gpuvec_error error = {0};
		int			canceled = 1;
		gpuvec_training *training;

		options.fold_in = fold_in;
		training = gpuvec_training_new(NULL, 2, &options, &error);
		if (fold_in)
			check(gpuvec_training_set(training, GPUVEC_ALS_ITEMS, 1, &(int64_t) {34}, (float[4]) {1}, &error), "an item comes");
		check(gpuvec_training_add(training, 1, &(int64_t) {12}, &(int64_t) {34}, &(float) {1}, &error) &&
			  !gpuvec_training_prepare(training, &canceled, &error) && !error.fatal, "preparing is canceled");
		gpuvec_training_free(training);
	}
}

/* ---- a device that trains ---- */

enum {DEVICE_BYTES = 1000};

static const char *device_refuses;	/* the SQLSTATE that it fails with */
static int	device_solvers;		/* that are open */
static int	device_calls;

static void
device_close(gpuvec_als_solver *solver)
{
	device_solvers--;
	free(solver);
}

static bool
device_copy(gpuvec_als_solver *solver __attribute__((unused)), gpuvec_als_side side __attribute__((unused)),
			gpuvec_error *error __attribute__((unused)))
{
	device_calls++;
	return true;
}

static bool
device_solve(gpuvec_als_solver *solver __attribute__((unused)), gpuvec_als_side side __attribute__((unused)),
			 const int *canceled __attribute__((unused)), gpuvec_error *error __attribute__((unused)))
{
	device_calls++;
	return true;
}

static bool
device_loss(gpuvec_als_solver *solver __attribute__((unused)), const int *canceled __attribute__((unused)),
			double *loss, gpuvec_error *error __attribute__((unused)))
{
	*loss = 5;
	return true;
}

static size_t
device_bytes(gpuvec_trainer *trainer __attribute__((unused)),
			 const gpuvec_als_problem *problem __attribute__((unused)))
{
	return DEVICE_BYTES;
}

static gpuvec_als_solver *
device_solver(gpuvec_trainer *trainer __attribute__((unused)),
			  const gpuvec_als_problem *problem __attribute__((unused)), gpuvec_error *error)
{
	gpuvec_als_solver *solver;

	if (device_refuses)
	{
		gpuvec_fail(error, device_refuses, NULL, NULL, "the device refuses");
		return NULL;
	}
	solver = calloc(1, sizeof(*solver));
	*solver = (gpuvec_als_solver)
	{
		device_close, device_copy, device_copy, device_solve, device_loss, NULL
	};
	device_solvers++;
	return solver;
}

static gpuvec_trainer device_trainer = {NULL, device_bytes, device_solver};
static gpuvec_backend device_backend = {.on_device = true, .trainer = &device_trainer};

/* A kind of mirrors that has nothing to give way with */
static size_t
gives_nothing(gpuvec_store *store, const gpuvec_device *device)
{
	(void) store;
	(void) device;
	return 0;
}

/* One iteration with a device of this budget; NAN if there is an error */
static double
train_on_device(size_t budget, const char *refuses)
{
	static const gpuvec_mirror_kind sets = {.give_way = gives_nothing};
	static gpuvec_store store;
	gpuvec_training *training;
	gpuvec_error error;
	float		factor[4];
	double		loss = NAN;

	memset(&store, 0, sizeof(store));
	pthread_mutex_init(&store.mutex, NULL);
	store.devices[0] = (gpuvec_device)
	{
		.backend = &device_backend, .budget = budget
	};
	store.kinds.sets = &sets;
	store.ndevices = 1;
	store.work_budget = (size_t) 1 << 30;
	device_refuses = refuses;
	device_calls = 0;
	training = gpuvec_training_new(&store, 1, &plain, &error);
	check(gpuvec_training_add(training, n, users, items, weights, &error), "interactions are taken");
	if (gpuvec_training_prepare(training, NULL, &error))
	{
		check(store.devices[0].used == (device_solvers ? DEVICE_BYTES : 0), "the device is charged");
		check(gpuvec_training_iterate(training, NULL, &loss, &error) &&
			  gpuvec_training_copy(training, GPUVEC_ALS_USERS, 0, 1, factor, &error) &&
			  gpuvec_training_copy(training, GPUVEC_ALS_USERS, 0, 1, factor, &error), "a training runs");
	}
	gpuvec_training_free(training);
	check(store.devices[0].used == 0 && store.work_used == 0 && device_solvers == 0, "nothing stays charged");
	return loss;
}

/* A device trains if it has room, else threads; other errors are raised */
static void
test_devices(void)
{
	n = 0;
	add(1, 1, 1);
	add(2, 1, 2);
	check(train_on_device(DEVICE_BYTES, NULL) == 5.0 / 3, "a device trains");
	check(device_calls == 3, "factors are copied once");
	check(train_on_device(DEVICE_BYTES - 1, NULL) < 1 && device_calls == 0,
		  "threads train where the device has no room");
	check(train_on_device(DEVICE_BYTES, GPUVEC_OUT_OF_MEMORY) < 1, "threads train where its memory is lacking");
	check(isnan(train_on_device(DEVICE_BYTES, GPUVEC_SYSTEM_ERROR)), "other errors are raised");
}

int
main(void)
{
	test_devices();
	test_random();
	test_fold_in();
	test_bits();
	test_fold_in_bits();
	test_instruction_sets();
	test_loss_by_hand();
	test_checkerboard();
	test_reconstruction();
	test_limits();
	test_vanishing();
	test_canceled();
	return report_checks();
}
