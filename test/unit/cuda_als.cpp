/*-------------------------------------------------------------------------
 *
 * cuda_als.cpp
 *	  Test of training on a GPU: losses and factors are compared with those of
 *	  a plain training in float64, and with those of the engine's threads.
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
#include <atomic>
#include <cmath>
#include <cuda_runtime.h>
#include <numeric>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "engine/als/training.h"
#include "engine/backend.h"
#include "engine/thread_pool.h"
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
		!gpuvec_training_prepare(training, NULL, &error))
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

/* The difference of two vectors, relative to the length of the second */
static double
distance(const std::vector<float> &a, const std::vector<double> &b)
{
	double		off = 0;
	double		all = 0;

	for (size_t i = 0; i < a.size(); i++)
	{
		off += (a[i] - b[i]) * (a[i] - b[i]);
		all += b[i] * b[i];
	}
	return off == 0 ? 0 : std::sqrt(off / all);
}

/* ---- the same in float64 ---- */

/* Call f for each row, on all cores */
template <typename F>
static void
for_rows(size_t n, F f)
{
	std::atomic<size_t> next(0);
	std::vector<std::thread> threads;

	auto		work = [&] {
		for (size_t row; (row = next++) < n;)
			f(row);
	};

	for (int i = 1; n > 64 && i < gpuvec_cores(); i++)
		threads.emplace_back(work);
	work();
	for (std::thread &thread : threads)
		thread.join();
}

/* A side: its keys in ascending order, the pairs of each row, factors */
struct reference_side
{
	std::vector<int64_t> keys;
	std::vector<std::vector<std::pair<uint32_t, double>>> pairs;	/* other row, confidence */
	std::vector<double> factors;

	uint32_t
	row(int64_t key) const
	{
		return (uint32_t) (std::lower_bound(keys.begin(), keys.end(), key) - keys.begin());
	}
};

/* A training as core/als.h defines it; repeated pairs are not expected */
struct reference
{
	uint32_t	f;
	gpuvec_training_options options;
	reference_side sides[2];
	std::vector<double> gram;

	reference(const interactions &in, const gpuvec_training_options &o): f(o.factors), options(o)
	{
		const std::vector<int64_t> *keys[2] = {&in.users, &in.items};

		for (int side = 0; side < 2; side++)
		{
			reference_side &s = sides[side];

			s.keys = *keys[side];
			std::sort(s.keys.begin(), s.keys.end());
			s.keys.erase(std::unique(s.keys.begin(), s.keys.end()), s.keys.end());
			s.pairs.resize(s.keys.size());
			for (int64_t key : s.keys)
				for (uint32_t k = 0; k < f; k++)
					s.factors.push_back(gpuvec_als_initial(o.seed, (gpuvec_als_side) side, key, k, f));
		}
		for (size_t i = 0; i < in.users.size(); i++)
		{
			uint32_t	user = sides[0].row(in.users[i]);
			uint32_t	item = sides[1].row(in.items[i]);
			double		c = (float) (o.alpha * in.weights[i]);

			sides[0].pairs[user].emplace_back(item, c);
			sides[1].pairs[item].emplace_back(user, c);
		}
	}

	double
	dot(const double *a, const double *b) const
	{
		double		sum = 0;

		for (uint32_t k = 0; k < f; k++)
			sum += a[k] * b[k];
		return sum;
	}

	static void
	add(std::vector<double> &to, double factor, const double *v)
	{
		for (size_t k = 0; k < to.size(); k++)
			to[k] += factor * v[k];
	}

	void
	make_gram(int side)
	{
		const std::vector<double> &y = sides[side].factors;

		gram.assign((size_t) f * f, 0);
		for_rows(f, [&](size_t i) {
			for (size_t at = 0; at < y.size(); at += f)
				for (uint32_t j = 0; j < f; j++)
					gram[i * f + j] += y[at + i] * y[at + j];
			gram[i * f + i] += options.regularization;
		});
	}

	/* A v, and b if it is wanted */
	std::vector<double>
	apply(int side, size_t row, const double *v, std::vector<double> *b) const
	{
		std::vector<double> out(f);

		for (uint32_t i = 0; i < f; i++)
			out[i] = dot(&gram[i * f], v);
		for (const auto &pair : sides[side].pairs[row])
		{
			const double *y = &sides[!side].factors[(size_t) pair.first * f];

			add(out, (std::fabs(pair.second) - 1) * dot(y, v), y);
			if (b && pair.second > 0)
				add(*b, pair.second, y);
		}
		return out;
	}

	void
	solve_row(int side, size_t row)
	{
		double	   *x = &sides[side].factors[row * f];
		std::vector<double> b(f);
		std::vector<double> r = apply(side, row, x, &b);
		std::vector<double> p;
		double		rr;
		double		least = std::max(1e-20, 1e-12 * dot(b.data(), b.data()));

		for (uint32_t k = 0; k < f; k++)
			r[k] = b[k] - r[k];
		p = r;
		rr = dot(r.data(), r.data());
		for (uint32_t step = 0; step < options.cg_steps && rr >= least; step++)
		{
			std::vector<double> ap = apply(side, row, p.data(), NULL);
			double		before = rr;
			double		length = rr / dot(p.data(), ap.data());

			for (uint32_t k = 0; k < f; k++)
				x[k] += length * p[k];
			add(r, -length, ap.data());
			rr = dot(r.data(), r.data());
			for (uint32_t k = 0; k < f; k++)
				p[k] = r[k] + rr / before * p[k];
		}
	}

	/* The loss with these factors, or with those of a side of a training */
	double
	loss()
	{
		std::vector<double> losses(sides[0].keys.size());
		double		sum = 0;
		double		confidence = (double) sides[0].keys.size() * sides[1].keys.size();

		for (const reference_side &s : sides)
			sum += options.regularization * std::inner_product(s.factors.begin(), s.factors.end(), s.factors.begin(), 0.0);
		make_gram(1);
		for (uint32_t i = 0; i < f; i++)
			gram[i * f + i] -= options.regularization;
		for_rows(losses.size(), [&](size_t row) {
			const double *x = &sides[0].factors[row * f];

			for (uint32_t i = 0; i < f; i++)
				losses[row] += x[i] * dot(&gram[i * f], x);
			for (const auto &pair : sides[0].pairs[row])
			{
				double		product = dot(x, &sides[1].factors[(size_t) pair.first * f]);
				double		off = (pair.second > 0) - product;

				losses[row] += std::fabs(pair.second) * off * off - product * product;
			}
		});
		for (const auto &pairs : sides[0].pairs)
			for (const auto &pair : pairs)
				confidence += std::fabs(pair.second) - 1;
		return std::accumulate(losses.begin(), losses.end(), sum) / confidence;
	}

	double
	iterate()
	{
		for (int side = 0; side < 2; side++)
		{
			make_gram(!side);
			for_rows(sides[side].keys.size(), [&](size_t row) { solve_row(side, row); });
		}
		return loss();
	}
};

/*
 * Train on the GPU, and in float64.  The loss is always that of the factors.
 * After one iteration, losses and factors agree with those in float64.  Later
 * on they may drift apart, to other factors with nearly the same loss.
 *
 * Where a side has fewer rows than there are factors, systems are nearly
 * singular, and steps soon follow nothing but rounding errors.  Then only the
 * first losses agree, and later ones do not grow.
 */
static void
compare(const interactions &in, const gpuvec_training_options &options, int iterations,
		double tolerance)
{
	gpuvec_training *gpu = begin(in, options, true);
	reference	ref(in, options);
	bool		singular = options.factors > ref.sides[0].keys.size() ||
		options.factors > ref.sides[1].keys.size();
	double		before = INFINITY;
	char		about[250];

	for (int i = 0; i < iterations; i++)
	{
		double		is = iterate(gpu);
		double		should = ref.iterate();
		reference	own = ref;
		double		off[2];

		for (int side = 0; side < 2; side++)
		{
			std::vector<float> factors = factors_of(gpu, (gpuvec_als_side) side, options.factors);

			off[side] = distance(factors, ref.sides[side].factors);
			std::copy(factors.begin(), factors.end(), own.sides[side].factors.begin());
		}
		snprintf(about, sizeof(about), "%s, %u factors, iteration %d: the loss is %.9g, in float64 %.9g, factors are off by %.2g and %.2g, theirs is %.9g",
				 in.name.c_str(), options.factors, i + 1, is, should, off[0], off[1], own.loss());
		report(std::fabs(is - own.loss()) <= 1e-4 * own.loss() + 1e-7, about);
		report(singular && i > 0 ? is <= before * 1.0001 + 1e-7 :
			   std::fabs(is - should) <= (singular ? 1e-3 : tolerance) * should + 1e-7, about);
		if (!singular && i == 0)
			report(off[0] <= 10 * tolerance && off[1] <= 10 * tolerance, about);
		before = is;
	}
	gpuvec_training_free(gpu);
}

/* ---- data ---- */

/* Random pairs, of which each user and each item has some */
static interactions
random_pairs(uint32_t users, uint32_t items, uint32_t n)
{
	interactions in;
	std::unordered_set<uint64_t> seen;

	in.name = std::to_string(users) + " users, " + std::to_string(items) + " items, " +
		std::to_string(n) + " pairs";
	for (uint32_t i = 0; i < n; i++)
	{
		uint32_t	popular = 1 + random_below(items);
		float		weight = (float) (1 + random_below(40)) / 8;
		uint32_t	user = i < users ? i : random_below(users);
		uint32_t	item = i < items ? i : random_below(popular);

		if (seen.insert((uint64_t) user << 32 | item).second)
			in.add((int64_t) user * 1000003 - 5, item, random_below(8) == 0 ? -weight : weight);
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
		/* the plain training takes long */
		if (factors <= 400 || factors == 1024)
			compare(random_pairs(factors + random_below(60), factors + random_below(40), 200 + 3 * factors),
					options, factors <= 400 ? 2 : 1, 1e-4);
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
		dislikes.add(i % 37, i / 37, (float) -(1 + i % 5));
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

/* A solver that is canceled between two steps takes no more of them */
static void
test_cancel_steps(void)
{
	uint64_t	starts[2] = {0, 1};
	gpuvec_als_entry entry = {0, 3};
	gpuvec_als_matrix matrix = {1, starts, &entry};
	float		factors[2][16] = {{1, 2, 3, 4}, {4, 3, -2, 1}};
	gpuvec_als_problem problem = {{&matrix, &matrix}, {factors[0], factors[1]}, 4, 16, 1, 0.1};
	gpuvec_error error = {};
	gpuvec_als_solver *solver = trainer->solver(trainer, &problem, &error);

	if (solver == NULL)
		die("there is no solver", &error);
	for (int canceled = 1; canceled >= 0; canceled--)
	{
		report(solver->solve(solver, GPUVEC_ALS_USERS, &canceled, &error) &&
			   solver->get(solver, GPUVEC_ALS_USERS, &error), "a solver is canceled, or not");
		report((factors[0][0] == 1 && factors[0][3] == 4) == (canceled == 1),
			   canceled ? "no step is taken" : "a step is taken");
	}
	solver->close(solver);
}

/* Steps that are waited for one by one: the same bits, and more progress */
static void
test_rounds(void)
{
	interactions in = random_pairs(60, 40, 500);
	gpuvec_training_options options = make_options(20);
	double		losses[2];

	options.cg_steps = 7;
	for (int single = 0; single < 2; single++)
	{
		gpuvec::training_policy policy;
		gpuvec_training *training;
		uint64_t	before;

		if (single)
			policy.look_floats = 1;
		gpuvec::training_policy_set(trainer, policy);
		training = begin(in, options, true);
		before = gpuvec_progress();
		losses[single] = iterate(training);
		report(gpuvec_progress() - before >= (single ? 2u * 7 : 2), "an iteration tells of progress");
		gpuvec_training_free(training);
	}
	gpuvec::training_policy_set(trainer, gpuvec::training_policy());
	report(losses[0] == losses[1], "it does not matter when steps are waited for");
}

/* Bytes that the memory pool of the GPU has taken from the system */
static uint64_t
pool_bytes(void)
{
	cudaMemPool_t pool;
	uint64_t	bytes = 0;

	if (cudaDeviceGetDefaultMemPool(&pool, 0) != cudaSuccess ||
		cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &bytes) != cudaSuccess)
		report(false, "the pool is asked");
	return bytes;
}

/* What a training has freed goes back to the system */
static void
test_memory(void)
{
	interactions in;
	uint64_t	before = pool_bytes();
	uint64_t	during;

	if (emulated)
		return;
	in = random_pairs(50000, 3000, 60000);
	for (int round = 0; round < 3; round++)
	{
		gpuvec_training *training = begin(in, make_options(1024), true);
		char		about[120];

		iterate(training);
		during = pool_bytes();
		gpuvec_training_free(training);
		snprintf(about, sizeof(about), "the pool has %llu bytes, in a training %llu, after it %llu",
				 (unsigned long long) before, (unsigned long long) during,
				 (unsigned long long) pool_bytes());
		report(during > before + (300 << 20) && pool_bytes() < before + (150 << 20), about);
	}
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
	uint32_t	n = full ? 134265 : emulated ? 3000 : 20000;

	in.name = "a long row";
	for (uint32_t i = 0; i < n; i++)
	{
		in.add(i, 0, (float) (1 + i % 7));
		in.add(i, 1 + random_below(100), 1);
	}
	compare(in, make_options(emulated ? 20 : 48), 2, 1e-3);
	if (emulated)
		return;
	compare(in, make_options(100), 2, 1e-3);
	repeat(in, 64, 2);
}

static void
test_large(void)
{
	if (!full)
		return;
	compare(random_pairs(100000, 20000, 3000000), make_options(64), 2, 1e-4);
	compare(random_pairs(2000, 1500, 100000), make_options(700), 1, 1e-4);
}

/* Ten iterations here and on the engine's threads */
static void
test_engine(void)
{
	for (uint32_t factors : {16, 48, 128})
	{
		interactions in = random_pairs(emulated ? 200 : 20000, emulated ? 150 : 5000, emulated ? 4000 : 700000);
		gpuvec_training *gpu;
		gpuvec_training *cpu;
		double		is = 0;
		double		should = 0;
		char		about[200];

		if (emulated && factors > 16)
			continue;
		gpu = begin(in, make_options(factors), true);
		cpu = begin(in, make_options(factors), false);
		for (int i = 0; i < 10; i++)
		{
			is = iterate(gpu);
			should = iterate(cpu);
			snprintf(about, sizeof(about), "%u factors: the loss of iteration %d is %.9g, that of the CPU %.9g",
					 factors, i + 1, is, should);
			report(std::fabs(is - should) <= 1e-4 * should, about);
		}
		gpuvec_training_free(gpu);
		gpuvec_training_free(cpu);
	}
}

/* Other pieces */
static void
test_policies(void)
{
	gpuvec::training_policy policy;

	policy.piece_pairs = 19;
	gpuvec::training_policy_set(trainer, policy);
	for (uint32_t factors : {5, 64, 130})
		compare(random_pairs(90, 60, 1500), make_options(factors), 3, 1e-4);
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
		{"cancel_steps", test_cancel_steps}, {"rounds", test_rounds}, {"memory", test_memory},
		{"bits", test_bits}, {"long", test_long_row}, {"large", test_large}, {"engine", test_engine},
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
