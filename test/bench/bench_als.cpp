/*-------------------------------------------------------------------------
 *
 * bench_als.cpp
 *	  Trainings in the engine alone, without PostgreSQL.
 *
 *		bench_als [--backend cpu|cuda] [--factors N[,N...]] [--iterations N] [--zipf]
 *				  [--scale X] [--threads N] [--steps N] [--regularization X]
 *				  [--piece N] [--seed N] [--plain] [--rows]
 *
 * It prints the seconds of adding and preparing the interactions, of both
 * halves and of the loss of each iteration, and the loss.  The data are those
 * of als_data.h; a scale of 0.01 has one percent of them.
 *
 * --plain also runs the loop of the library "implicit" on the same threads,
 * written in plain C++ after its published algorithm: conjugate gradient for
 * one row after another, and chunks of 8 rows for a thread.  The compiler may
 * use all instructions of the machine, and reorder sums.
 *
 * --rows prints the interactions instead, for COPY: user, item, weight.
 *
 * --piece changes how a GPU trains (kernels/als/cuda_als.h).
 *
 *-------------------------------------------------------------------------
 */
#include <atomic>
#include <chrono>
#include <cmath>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <string.h>
#include <thread>
#include <vector>

#include "als_data.h"
#include "engine/als/training.h"
#include "engine/backend.h"
#include "engine/thread_pool.h"
#ifdef WITH_CUDA
#include "kernels/als/cuda_als.h"
#endif

struct settings
{
	bool		cuda = false;
	bool		zipf = false;
	bool		plain = false;
	bool		rows = false;
	int			seed = 0;
	int			piece = 0;
	std::vector<int> all_factors{64};
	int			factors = 0;	/* of the present run */
	int			iterations = 15;
	int			steps = 3;
	int			threads = 0;
	double		scale = 1;
	double		regularization = 0.01;
};

static double
now(void)
{
	return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static void
die(const char *what, const gpuvec_error *error)
{
	fprintf(stderr, "%s: %s (%s)\n", what, error->message, error->detail);
	exit(1);
}

/* ---- the engine ---- */

/* The GPU's trainer, by the settings */
static gpuvec_trainer *
open_trainer(const settings &s)
{
	gpuvec_backend_options options = {};
	gpuvec_error error = {};
	gpuvec_backend *backend = gpuvec_cuda_open(&options, &error);

	if (backend == NULL)
		die("no GPU", &error);
	(void) s;
#ifdef WITH_CUDA
	gpuvec::training_policy policy;

	if (s.piece > 0)
		policy.piece_pairs = s.piece;
	gpuvec::training_policy_set(backend->trainer, policy);
#endif
	return backend->trainer;
}

static gpuvec_trainer *
trainer_of(const settings &s)
{
	static gpuvec_trainer *trainer = s.cuda ? open_trainer(s) : NULL;

	return trainer;
}

/* Add the interactions as a session does, in parts */
static void
add_pairs(gpuvec_training *training, const als_data::matrix &m)
{
	const size_t part = 8192;
	std::vector<int64_t> users;
	std::vector<int64_t> items;
	gpuvec_error error = {};

	for (int u = 0; u < m.users; u++)
		for (int64_t i = m.starts[u]; i < m.starts[u + 1]; i++)
		{
			users.push_back(u);
			items.push_back(m.others[i]);
			if (users.size() < part && i + 1 < (int64_t) m.others.size())
				continue;
			if (!gpuvec_training_add(training, users.size(), users.data(), items.data(),
									 &m.confidences[i + 1 - users.size()], &error))
				die("could not add interactions", &error);
			users.clear();
			items.clear();
		}
}

static void
bench_engine(const settings &s, const als_data::matrix &m)
{
	gpuvec_training_options options = {};
	gpuvec_error error = {};
	gpuvec_training_times sum = {};
	gpuvec_training *training;
	double		loss = 0;
	double		start;

	options.factors = s.factors;
	options.cg_steps = s.steps;
	options.regularization = s.regularization;
	options.alpha = 1;
	options.seed = s.seed;
	options.trainer = trainer_of(s);
	training = gpuvec_training_new(NULL, s.threads, &options, &error);
	if (training == NULL)
		die("could not begin", &error);
	start = now();
	add_pairs(training, m);
	printf("add %.3f s\n", now() - start);
	start = now();
	if (!gpuvec_training_prepare(training, NULL, &error))
		die("could not prepare", &error);
	printf("prepare %.3f s\n", now() - start);
	for (int i = 0; i < s.iterations; i++)
	{
		gpuvec_training_times times;

		if (!gpuvec_training_iterate(training, NULL, &loss, &error))
			die("an iteration failed", &error);
		times = gpuvec_training_last_times(training);
		printf("iteration %d: users %.5f items %.5f loss %.5f s, loss %.9f\n", i + 1, times.users,
			   times.items, times.loss, loss);
		/* the first one also warms up */
		if (i == 0 && s.iterations > 1)
			continue;
		sum.users += times.users;
		sum.items += times.items;
		sum.loss += times.loss;
	}
	{
		int			n = s.iterations > 1 ? s.iterations - 1 : 1;
		std::vector<float> factors((size_t) std::max(m.users, m.items) * s.factors);

		printf("%s: %d factors, per iteration: users %.5f + items %.5f + loss %.5f = %.5f s, final loss %.9f\n",
			   s.cuda ? "cuda" : "cpu", s.factors, sum.users / n, sum.items / n, sum.loss / n,
			   (sum.users + sum.items + sum.loss) / n, loss);
		start = now();
		for (int side = 0; side < 2; side++)
			if (!gpuvec_training_copy(training, (gpuvec_als_side) side, 0,
									  gpuvec_training_rows(training, (gpuvec_als_side) side),
									  factors.data(), &error))
				die("could not copy factors", &error);
		printf("copy factors %.3f s\n", now() - start);
	}
	gpuvec_training_free(training);
}

/* ---- the plain loop ---- */

/* Call f(first, end) for chunks of rows, on all threads */
template <typename F>
static void
for_rows(int rows, int threads, int chunk, F f)
{
	std::atomic<int> next(0);
	std::vector<std::thread> pool;

	for (int t = 0; t < threads; t++)
		pool.emplace_back([&] {
			for (int first; (first = next.fetch_add(chunk)) < rows;)
				f(first, std::min(rows, first + chunk));
		});
	for (std::thread &thread : pool)
		thread.join();
}

static std::vector<float>
plain_gram(const std::vector<float> &y, int f, double regularization, int threads)
{
	int			rows = (int) (y.size() / f);
	std::vector<std::vector<float>> sums;
	std::atomic<int> next(0);

	sums.assign(threads, std::vector<float>((size_t) f * f));
	for_rows(threads, threads, 1, [&](int, int) {
		int			t = next++;
		std::vector<float> &sum = sums[t];

		for (int row = (int) ((int64_t) rows * t / threads); row < (int64_t) rows * (t + 1) / threads; row++)
			for (int i = 0; i < f; i++)
				for (int j = 0; j < f; j++)
					sum[i * f + j] += y[(size_t) row * f + i] * y[(size_t) row * f + j];
	});
	for (int t = 1; t < threads; t++)
		for (size_t i = 0; i < sums[0].size(); i++)
			sums[0][i] += sums[t][i];
	for (int i = 0; i < f; i++)
		sums[0][i * f + i] += (float) regularization;
	return sums[0];
}

static float
plain_dot(const float *a, const float *b, int f)
{
	float		sum = 0;

	for (int i = 0; i < f; i++)
		sum += a[i] * b[i];
	return sum;
}

static void
plain_add(float factor, const float *v, float *to, int f)
{
	for (int i = 0; i < f; i++)
		to[i] += factor * v[i];
}

static void
plain_apply(const std::vector<float> &gram, const float *v, float *out, int f, float factor)
{
	std::fill(out, out + f, 0);
	for (int i = 0; i < f; i++)
		plain_add(factor * v[i], &gram[(size_t) i * f], out, f);
}

static void
plain_solve(const als_data::matrix &m, const std::vector<float> &y, const std::vector<float> &gram,
			int u, int f, int steps, float *x, float *scratch)
{
	float	   *r = scratch;
	float	   *p = scratch + f;
	float	   *ap = scratch + 2 * f;
	float		rr;

	plain_apply(gram, x, r, f, -1);
	for (int64_t i = m.starts[u]; i < m.starts[u + 1]; i++)
	{
		const float *v = &y[(size_t) m.others[i] * f];
		float		c = m.confidences[i];

		plain_add(c - (c - 1) * plain_dot(v, x, f), v, r, f);
	}
	std::copy(r, r + f, p);
	rr = plain_dot(r, r, f);
	for (int step = 0; step < steps && rr >= 1e-20f; step++)
	{
		float		length;
		float		before = rr;

		plain_apply(gram, p, ap, f, 1);
		for (int64_t i = m.starts[u]; i < m.starts[u + 1]; i++)
		{
			const float *v = &y[(size_t) m.others[i] * f];

			plain_add((m.confidences[i] - 1) * plain_dot(v, p, f), v, ap, f);
		}
		length = rr / plain_dot(p, ap, f);
		plain_add(length, p, x, f);
		plain_add(-length, ap, r, f);
		rr = plain_dot(r, r, f);
		for (int i = 0; i < f; i++)
			p[i] = r[i] + rr / before * p[i];
	}
}

static void
plain_half(const als_data::matrix &m, const std::vector<float> &y, std::vector<float> &x,
		   const settings &s, int threads)
{
	std::vector<float> gram = plain_gram(y, s.factors, s.regularization, threads);

	for_rows(m.users, threads, 8, [&](int first, int end) {
		std::vector<float> scratch(3 * s.factors);

		for (int u = first; u < end; u++)
			plain_solve(m, y, gram, u, s.factors, s.steps, &x[(size_t) u * s.factors],
						scratch.data());
	});
}

static void
bench_plain(const settings &s, const als_data::matrix &users)
{
	als_data::matrix items = als_data::transpose(users);
	int			threads = s.threads ? s.threads : gpuvec_cores();
	std::vector<float> x((size_t) users.users * s.factors);
	std::vector<float> y((size_t) users.items * s.factors);
	int			iterations = std::min(s.iterations, 3);
	double		start;

	for (std::vector<float> *side : {&x, &y})
		for (size_t i = 0; i < side->size(); i++)
			(*side)[i] = (float) (((double) (als_data::splitmix64(i) >> 11) / 9007199254740992.0 - 0.5) / s.factors);
	start = now();
	for (int i = 0; i < iterations; i++)
	{
		plain_half(users, y, x, s, threads);
		plain_half(items, x, y, s, threads);
	}
	printf("plain loop: %d factors, %.5f s per iteration without the loss, %d threads\n", s.factors,
		   (now() - start) / iterations, threads);
}

/* ---- arguments ---- */

static std::vector<int>
parse_list(const char *text)
{
	std::vector<int> numbers;

	for (const char *p = text; p; p = strchr(p, ','))
		numbers.push_back(atoi(*p == ',' ? ++p : p));
	return numbers;
}

static settings
parse(int argc, char **argv)
{
	settings	s;

	for (int i = 1; i < argc; i++)
	{
		std::string name = argv[i];
		const char *value = i + 1 < argc ? argv[i + 1] : "";

		i++;
		if (name == "--backend")
			s.cuda = strcmp(value, "cuda") == 0;
		else if (name == "--factors")
			s.all_factors = parse_list(value);
		else if (name == "--iterations")
			s.iterations = atoi(value);
		else if (name == "--steps")
			s.steps = atoi(value);
		else if (name == "--threads")
			s.threads = atoi(value);
		else if (name == "--piece")
			s.piece = atoi(value);
		else if (name == "--scale")
			s.scale = atof(value);
		else if (name == "--regularization")
			s.regularization = atof(value);
		else if (name == "--seed")
			s.seed = atoi(value);
		else
		{
			i--;
			if (name == "--zipf")
				s.zipf = true;
			else if (name == "--plain")
				s.plain = true;
			else if (name == "--rows")
				s.rows = true;
			else
			{
				fprintf(stderr, "unknown argument %s; see the head of bench_als.cpp\n", name.c_str());
				exit(2);
			}
		}
	}
	return s;
}

/* The interactions in COPY's format */
static void
print_rows(const als_data::matrix &m)
{
	for (int u = 0; u < m.users; u++)
		for (int64_t i = m.starts[u]; i < m.starts[u + 1]; i++)
			printf("%d\t%d\t%g\n", u, m.others[i], m.confidences[i]);
}

int
main(int argc, char **argv)
{
	settings	s = parse(argc, argv);
	double		start = now();
	als_data::matrix m = als_data::generate(s.zipf, s.scale);

	if (s.rows)
	{
		print_rows(m);
		return 0;
	}
	setlinebuf(stdout);
	printf("%d users, %d items, %zu pairs, checksum %016llx, made in %.1f s\n", m.users, m.items,
		   m.others.size(), (unsigned long long) als_data::checksum(m), now() - start);
	for (int factors : s.all_factors)
	{
		s.factors = factors;
		if (s.plain)
			bench_plain(s, m);
		bench_engine(s, m);
	}
	return 0;
}
