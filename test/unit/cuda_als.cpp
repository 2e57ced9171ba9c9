/*-------------------------------------------------------------------------
 *
 * cuda_als.cpp
 *	  Test of training on a GPU: losses and factors are compared with those of
 *	  the engine's threads, which als_test.c compares with dense matrices.
 *
 *		cuda_als [emulated|quick|full] [seed] [name of a test]
 *
 * quick (the default) takes seconds; full adds large matrices; emulated is
 * for als.mk, which has no GPU.  With a name, only the tests run whose names
 * begin with it.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <cmath>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <vector>

#include "engine/als/training.h"
#include "engine/backend.h"
#include "kernels/als/cuda_als.h"

static int	npassed;
static int	nfailed;
static uint64_t random_state;
static gpuvec_trainer *trainer;
static bool full;
static bool emulated;

static void
report(bool ok, const std::string &about)
{
	if (ok)
		npassed++;
	else if (nfailed++ < 40)
		printf("FAILED: %s\n", about.c_str());
}

/* splitmix64 */
static uint64_t
random64(void)
{
	uint64_t	z = (random_state += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

static uint32_t
random_below(uint32_t n)
{
	return (uint32_t) ((random64() >> 32) * n >> 32);
}

static void
die(const char *what, const gpuvec_error *error)
{
	printf("%s: %s %s (%s)\n", what, error->sqlstate, error->message, error->detail);
	exit(1);
}

/* ---- trainings ---- */

struct interactions
{
	std::string name;
	std::vector<int64_t> users;
	std::vector<int64_t> items;
	std::vector<float> weights;

	void
	add(int64_t user, int64_t item, float weight)
	{
		users.push_back(user);
		items.push_back(item);
		weights.push_back(weight);
	}
};

static gpuvec_training_options
make_options(uint32_t factors)
{
	gpuvec_training_options options = {};

	options.factors = factors;
	options.cg_steps = 3;
	options.regularization = 0.01;
	options.alpha = 1;
	options.seed = 42;
	return options;
}

/* A training of the interactions, prepared; on the GPU or the CPU */
static gpuvec_training *
begin(const interactions &in, gpuvec_training_options options, bool gpu)
{
	gpuvec_error error = {};
	gpuvec_training *training;

	options.trainer = gpu ? trainer : NULL;
	training = gpuvec_training_new(NULL, 2, &options, &error);
	if (training == NULL ||
		!gpuvec_training_add(training, in.users.size(), in.users.data(), in.items.data(),
							 in.weights.data(), &error) ||
		!gpuvec_training_prepare(training, &error))
		die("a training does not begin", &error);
	return training;
}

static double
iterate(gpuvec_training *training)
{
	gpuvec_error error = {};
	double		loss = NAN;

	if (!gpuvec_training_iterate(training, NULL, &loss, &error))
		die("an iteration fails", &error);
	return loss;
}

static std::vector<float>
factors_of(gpuvec_training *training, gpuvec_als_side side, uint32_t nfactors)
{
	uint32_t	rows = gpuvec_training_rows(training, side);
	std::vector<float> factors((size_t) rows * nfactors);
	gpuvec_error error = {};

	if (!gpuvec_training_copy(training, side, 0, rows, factors.data(), &error))
		die("factors are not copied", &error);
	return factors;
}

/* The difference of two vectors, relative to their length */
static double
distance(const std::vector<float> &a, const std::vector<float> &b)
{
	double		off = 0;
	double		all = 0;

	for (size_t i = 0; i < a.size(); i++)
	{
		off += ((double) a[i] - b[i]) * ((double) a[i] - b[i]);
		all += (double) b[i] * b[i];
	}
	return off == 0 ? 0 : std::sqrt(off / all);
}

/*
 * Train on both.  Losses agree to `tolerance`, and after one iteration so do
 * the factors, to ten times as much: later ones may be others with the same
 * loss.
 *
 * Where a side has fewer rows than there are factors, systems are nearly
 * singular, and steps soon follow nothing but rounding errors.  Then the
 * first loss agrees, and later ones do not grow.
 */
static void
compare(const interactions &in, const gpuvec_training_options &options, int iterations,
		double tolerance)
{
	gpuvec_training *gpu = begin(in, options, true);
	gpuvec_training *cpu = begin(in, options, false);
	bool		singular = options.factors > gpuvec_training_rows(cpu, GPUVEC_ALS_USERS) ||
		options.factors > gpuvec_training_rows(cpu, GPUVEC_ALS_ITEMS);
	double		before = INFINITY;
	char		about[200];

	for (int i = 0; i < iterations; i++)
	{
		double		is = iterate(gpu);
		double		should = iterate(cpu);

		snprintf(about, sizeof(about), "%s, %u factors: the loss of iteration %d is %.9g, should be %.9g",
				 in.name.c_str(), options.factors, i + 1, is, should);
		report(singular && i > 0 ? is <= before * 1.0001 + 1e-7 :
			   std::fabs(is - should) <= (singular ? 1e-3 : tolerance) * std::fabs(should) + 1e-7, about);
		before = is;
		for (int side = 0; !singular && i == 0 && side < 2; side++)
		{
			double		off = distance(factors_of(gpu, (gpuvec_als_side) side, options.factors),
									   factors_of(cpu, (gpuvec_als_side) side, options.factors));

			snprintf(about, sizeof(about), "%s, %u factors: factors of side %d are off by %g",
					 in.name.c_str(), options.factors, side, off);
			report(off <= 10 * tolerance, about);
		}
	}
	gpuvec_training_free(gpu);
	gpuvec_training_free(cpu);
}

/* ---- data ---- */

/* Random pairs of which each user and each item has some; some twice */
static interactions
random_pairs(uint32_t users, uint32_t items, uint32_t n)
{
	interactions in;

	in.name = std::to_string(users) + " users, " + std::to_string(items) + " items, " +
		std::to_string(n) + " pairs";
	for (uint32_t i = 0; i < n; i++)
	{
		uint32_t	popular = 1 + random_below(items);
		float		weight = (float) (1 + random_below(40)) / 8;

		in.add((int64_t) (i < users ? i : random_below(users)) * 1000003 - 5,
			   i < items ? i : random_below(popular), random_below(8) == 0 ? -weight : weight);
	}
	return in;
}

static const uint32_t all_factors[] = {
	1, 7, 16, 17, 32, 33, 64, 65, 100, 128, 129, 200, 256, 257, 384, 400, 512, 513, 768, 769, 1024
};

/* ---- tests ---- */

static void
test_random(void)
{
	for (uint32_t factors : all_factors)
	{
		gpuvec_training_options options = make_options(factors);

		if (emulated && factors > 130 && factors != 257)
			continue;
		options.regularization = 0.05 * (1 + random_below(10));
		options.alpha = 0.5 * (1 + random_below(4));
		options.cg_steps = 1 + random_below(4);
		compare(random_pairs(1 + random_below(60), 1 + random_below(40), 200), options, 2, 1e-4);
		compare(random_pairs(factors + random_below(60), factors + random_below(40), 200 + 3 * factors),
				options, 2, 1e-4);
	}
	for (int round = 0; round < (emulated ? 4 : 60); round++)
		compare(random_pairs(1 + random_below(400), 1 + random_below(300), 1 + random_below(emulated ? 1500 : 5000)),
				make_options(1 + random_below(emulated ? 40 : 200)), 3, 1e-4);
}

/* Rows of many lengths around those of pieces, and of tiles */
static void
test_lengths(void)
{
	interactions in;

	in.name = "rows of many lengths";
	for (int64_t user = 1; user <= 400; user += user < 140 ? 1 : 13)
		for (int64_t item = 0; item < user; item++)
			in.add(user, (item * 7 + user) % 400, (float) (1 + (user + item) % 9));
	compare(in, make_options(20), emulated ? 1 : 5, 1e-4);
	if (!emulated)
		compare(in, make_options(150), 5, 1e-4);
}

static void
test_small(void)
{
	interactions one;
	interactions user;
	interactions item;
	interactions dislikes;

	one.name = "one pair";
	one.add(7, -7, 3);
	user.name = "one user";
	item.name = "one item";
	dislikes.name = "only dislikes";
	for (int i = 0; i < 300; i++)
	{
		user.add(1, i, (float) (1 + i % 5));
		item.add(i, 1, (float) (1 + i % 5));
		dislikes.add(i % 37, i % 23, (float) -(1 + i % 5));
	}
	for (uint32_t factors : {1, 3, 64, 130})
	{
		compare(one, make_options(factors), 5, 1e-4);
		compare(user, make_options(factors), 5, 1e-4);
		compare(item, make_options(factors), 5, 1e-4);
		if (factors > 23)
			compare(dislikes, make_options(factors), 2, 1e-4);
	}
}

/* Confidences that are large, small, and far from each other */
static void
test_confidences(void)
{
	for (float scale : {1e-20f, 1e-6f, 100.0f, 1e8f, 2e10f})
	{
		interactions in = random_pairs(50, 30, 600);
		gpuvec_training *training;
		double		loss = INFINITY;
		char		about[100];

		for (float &weight : in.weights)
			weight *= scale;
		in.name += ", times " + std::to_string(scale);
		if (scale == 100)
			compare(in, make_options(8), 3, 1e-3);
		training = begin(in, make_options(40), true);
		for (int i = 0; i < 5; i++)
		{
			double		before = loss;

			loss = iterate(training);
			snprintf(about, sizeof(about), "times %g: the loss goes from %g to %g", scale, before, loss);
			report(std::isfinite(loss) && (scale > 1e5 || loss <= before * 1.001 + 1e-7), about);
		}
		gpuvec_training_free(training);
	}
}

/* Factors that are set are those that iterations begin with */
static void
test_set(void)
{
	interactions in = random_pairs(70, 50, 900);
	uint32_t	nfactors = 24;
	gpuvec_training *first = begin(in, make_options(nfactors), true);
	gpuvec_training *second;
	gpuvec_error error = {};
	double		loss;

	iterate(first);
	second = begin(in, make_options(nfactors), true);
	for (int side = 0; side < 2; side++)
		report(gpuvec_training_set(second, (gpuvec_als_side) side,
								   gpuvec_training_rows(first, (gpuvec_als_side) side),
								   gpuvec_training_keys(first, (gpuvec_als_side) side),
								   factors_of(first, (gpuvec_als_side) side, nfactors).data(), &error),
			   "factors are set");
	loss = iterate(first);
	report(iterate(second) == loss, "a training goes on from the factors of another one");

	/* half of the users, in the middle of a training */
	iterate(second);
	report(gpuvec_training_set(second, GPUVEC_ALS_USERS, 35, gpuvec_training_keys(first, GPUVEC_ALS_USERS),
							   std::vector<float>(35 * nfactors).data(), &error),
		   "some factors are set");
	{
		std::vector<float> factors = factors_of(second, GPUVEC_ALS_USERS, nfactors);

		report(std::all_of(factors.begin(), factors.begin() + 35 * nfactors, [](float f) { return f == 0; }) &&
			   std::any_of(factors.begin() + 35 * nfactors, factors.end(), [](float f) { return f != 0; }),
			   "only these are set");
	}
	report(iterate(second) < loss, "training goes on after that");
	gpuvec_training_free(first);
	gpuvec_training_free(second);
}

static void
test_cancel(void)
{
	gpuvec_training *training = begin(random_pairs(20, 20, 100), make_options(8), true);
	gpuvec_error error = {};
	int			canceled = 1;
	double		loss;

	report(gpuvec_training_iterate(training, &canceled, &loss, &error), "a canceled iteration is no error");
	report(std::isfinite(iterate(training)), "the next one goes on");
	gpuvec_training_free(training);
}

/* The same bits again */
static void
repeat(const interactions &in, uint32_t nfactors, int iterations)
{
	std::vector<float> first[2];
	double		loss = 0;

	for (int round = 0; round < 3; round++)
	{
		gpuvec_training *training = begin(in, make_options(nfactors), true);
		double		again = 0;

		for (int i = 0; i < iterations; i++)
			again = iterate(training);
		report(round == 0 || again == loss, in.name + ": the loss has the same bits");
		loss = again;
		for (int side = 0; side < 2; side++)
		{
			std::vector<float> factors = factors_of(training, (gpuvec_als_side) side, nfactors);

			report(round == 0 || memcmp(factors.data(), first[side].data(), factors.size() * sizeof(float)) == 0,
				   in.name + ": factors have the same bits");
			first[side] = factors;
		}
		gpuvec_training_free(training);
	}
}

static void
test_bits(void)
{
	repeat(random_pairs(300, 200, emulated ? 2000 : 9000), 20, 3);
	if (!emulated)
		repeat(random_pairs(40000, 3000, 600000), 130, 4);
}

/* A row as long as the most popular item of a large matrix has */
static void
test_long_row(void)
{
	interactions in;
	uint32_t	n = full ? 134265 : 20000;

	if (emulated)
		return;
	in.name = "a long row";
	for (uint32_t i = 0; i < n; i++)
	{
		in.add(i, 0, (float) (1 + i % 7));
		in.add(i, 1 + random_below(100), 1);
	}
	compare(in, make_options(48), 3, 1e-4);
	compare(in, make_options(256), 2, 1e-4);
	repeat(in, 64, 2);
}

static void
test_large(void)
{
	if (!full)
		return;
	compare(random_pairs(100000, 20000, 5000000), make_options(64), 4, 1e-4);
	compare(random_pairs(30000, 9000, 2000000), make_options(256), 3, 1e-4);
	compare(random_pairs(3000, 2000, 200000), make_options(1024), 3, 1e-4);
}

/* Other pieces, and steps in float16, which differ more with so few pairs */
static void
test_policies(void)
{
	gpuvec::training_policy policy;

	policy.piece_pairs = 19;
	gpuvec::training_policy_set(trainer, policy);
	for (uint32_t factors : {5, 64, 130})
		compare(random_pairs(90, 60, 1500), make_options(factors), 3, 1e-4);
	policy.narrow_from = 0;
	gpuvec::training_policy_set(trainer, policy);
	for (uint32_t factors : all_factors)
		if (!emulated || factors < 140)
			compare(random_pairs(90, 60, 1500), make_options(factors), 3, 2e-3);
	test_set();
	gpuvec::training_policy_set(trainer, gpuvec::training_policy());
}

int
main(int argc, char **argv)
{
	static const struct
	{
		const char *name;
		void		(*run) (void);
	}			tests[] = {
		{"random", test_random}, {"lengths", test_lengths}, {"small", test_small},
		{"confidences", test_confidences}, {"set", test_set}, {"cancel", test_cancel},
		{"bits", test_bits}, {"long", test_long_row}, {"large", test_large},
		{"policies", test_policies}
	};
	std::string mode = argc > 1 ? argv[1] : "quick";
	const char *only = argc > 3 ? argv[3] : "";
	gpuvec_backend_options options = {};
	gpuvec_error error = {};
	gpuvec_backend *backend = gpuvec_cuda_open(&options, &error);

	full = mode == "full";
	emulated = mode == "emulated";
	random_state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	if (backend == NULL)
		die("no GPU", &error);
	trainer = backend->trainer;
	for (const auto &test : tests)
		if (strncmp(test.name, only, strlen(only)) == 0)
			test.run();
	printf("%d passed, %d failed\n", npassed, nfailed);
	return nfailed > 0;
}
