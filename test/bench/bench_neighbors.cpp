/*-------------------------------------------------------------------------
 *
 * bench_neighbors.cpp
 *	  The nearest items of each item on the CPU, without PostgreSQL, beside a
 *	  plain C++ of the loop that the library "implicit" runs.
 *
 * That loop, for each item, adds up the products of all of its users in an
 * array, with a linked list of the items that have a sum, and a heap keeps
 * the k best.  It runs on one thread, with the engine's weights divided by
 * the lengths of items, and looks for k + 1 items, since it finds each item
 * itself.  The engine runs on one thread, and on --threads.  All scores are
 * compared.
 *
 *	bench_neighbors
 *		--scale S		part of the users and pairs of als_data.h, 1
 *		--zipf			its second kind of data
 *		--k K			20
 *		--weighting W	cosine
 *		--threads T		0: all cores
 *		--backend cuda	a GPU as well
 *
 * Exit status 1 if scores differ, 2 on any other error.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "als_data.h"

/* for C headers */
#define restrict __restrict__

extern "C"
{
#include "engine/backend.h"
#include "engine/neighbors/neighbors.h"
}

namespace
{

double
now()
{
	return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Options
{
	double scale = 1;
	uint32_t k = 20;
	int threads = 0;
	bool zipf = false;
	bool cuda = false;
	gpuvec_weighting weighting = GPUVEC_WEIGHTING_COSINE;
};

/* One way to all neighbors, and what it took */
struct Run
{
	std::vector<gpuvec_neighbor> rows;
	double prepare = 0;
	double product = 0;
	double cpu = 0;			/* of the product, on all threads together */
};

void
fail(const gpuvec_error &error)
{
	std::fprintf(stderr, "%s: %s\n", error.message, error.detail);
	std::exit(2);
}

/* Users and items as keys, in the order of the generator */
struct Pairs
{
	std::vector<int64_t> users, items;
	std::vector<float> weights;
};

Pairs
pairs_of(const als_data::matrix &m)
{
	Pairs p;

	for (int user = 0; user < m.users; user++)
		for (int64_t i = m.starts[user]; i < m.starts[user + 1]; i++)
		{
			p.users.push_back(user);
			p.items.push_back(m.others[i]);
			p.weights.push_back(m.confidences[i]);
		}
	return p;
}

Run
run_engine(const Options &options, const Pairs &pairs, int threads, gpuvec_finder *finder)
{
	gpuvec_neighbors_options wanted = {options.k, options.weighting, 100, 0.8, finder};
	gpuvec_error error;
	gpuvec_neighbors *neighbors = gpuvec_neighbors_new(nullptr, threads, &wanted, &error);
	Run run;
	double start = now();

	if (neighbors == nullptr ||
		!gpuvec_neighbors_add(neighbors, pairs.users.size(), pairs.users.data(), pairs.items.data(),
							  pairs.weights.data(), &error) ||
		!gpuvec_neighbors_prepare(neighbors, NULL, &error))
		fail(error);
	run.prepare = now() - start;
	start = now();
	clock_t cpu = std::clock();
	while (gpuvec_neighbors_done(neighbors) < gpuvec_neighbors_rows(neighbors, GPUVEC_ALS_ITEMS))
	{
		const gpuvec_neighbor *rows;
		uint64_t n;

		if (!gpuvec_neighbors_next(neighbors, nullptr, &rows, &n, &error))
			fail(error);
		run.rows.insert(run.rows.end(), rows, rows + n);
	}
	run.product = now() - start;
	run.cpu = double(std::clock() - cpu) / CLOCKS_PER_SEC;
	gpuvec_neighbors_free(neighbors);
	return run;
}

/* ---- the plain loop ---- */

/* The matrix by rows, with weights in float64 */
struct Rows
{
	std::vector<int64_t> starts;
	std::vector<int32_t> columns;
	std::vector<double> weights;
};

/* The weighted matrix, by items or by users */
Rows
weigh(const Options &options, const als_data::matrix &m, const als_data::matrix &other, bool by_items)
{
	const als_data::matrix &items = by_items ? m : other;
	const als_data::matrix &users = by_items ? other : m;
	std::vector<double> sums(items.users), lengths(items.users), idf(users.users);
	Rows rows = {m.starts, m.others, std::vector<double>(m.confidences.size())};
	double mean = 0, nitems = 0;

	for (int i = 0; i < items.users; i++)
	{
		for (int64_t e = items.starts[i]; e < items.starts[i + 1]; e++)
			sums[i] += items.confidences[e];
		mean += sums[i];
		nitems += sums[i] > 0;
	}
	mean /= nitems;
	for (int u = 0; u < users.users; u++)
		idf[u] = gpuvec_idf((uint64_t) nitems, (uint64_t) (users.starts[u + 1] - users.starts[u]));
	auto weight = [&](int item, int user, float x) {
		return gpuvec_pair_weight(options.weighting, 100, x, idf[user], gpuvec_bm25_length(0.8, sums[item], mean));
	};
	for (int i = 0; i < items.users; i++)
	{
		for (int64_t e = items.starts[i]; e < items.starts[i + 1]; e++)
		{
			double w = weight(i, items.others[e], items.confidences[e]);
			lengths[i] += w * w;
		}
		lengths[i] = gpuvec_weighting_divides(options.weighting) ? std::sqrt(lengths[i]) : 1;
	}
	for (int r = 0; r < m.users; r++)
		for (int64_t e = m.starts[r]; e < m.starts[r + 1]; e++)
		{
			int item = by_items ? r : m.others[e], user = by_items ? m.others[e] : r;
			rows.weights[e] = weight(item, user, m.confidences[e]) / lengths[item];
		}
	return rows;
}

/* Sums of products, and a list of those that there are */
struct Sums
{
	std::vector<double> sums;
	std::vector<int> next;
	int head = -2;
	int length = 0;

	explicit Sums(int n) : sums(n, 0), next(n, -1)
	{
	}

	void
	add(int at, double value)
	{
		sums[at] += value;
		if (next[at] == -1)
		{
			next[at] = head;
			head = at;
			length++;
		}
	}

	template <typename F>
	void
	take(F f)
	{
		for (; length > 0; length--)
		{
			int at = head;

			f(at, sums[at]);
			head = next[at];
			sums[at] = 0;
			next[at] = -1;
		}
		head = -2;
	}
};

using Scored = std::pair<double, int>;

/* The best of a row, with the item itself left out */
void
finish_row(int item, std::vector<Scored> &best, uint32_t k, Run &run)
{
	std::sort(best.begin(), best.end(), [](const Scored &a, const Scored &b) {
		return a.first > b.first || (a.first == b.first && a.second < b.second);
	});
	uint32_t n = 0;
	for (const Scored &s : best)
		if (s.second != item && n++ < k)
			run.rows.push_back({item, s.second, s.first});
	best.clear();
}

Run
run_plain(const Options &options, const als_data::matrix &users, const als_data::matrix &items)
{
	Run run;
	double start = now();
	Rows by_item = weigh(options, items, users, true), by_user = weigh(options, users, items, false);
	Sums sums(items.users);
	std::vector<Scored> best;

	run.prepare = now() - start;
	start = now();
	clock_t cpu = std::clock();
	for (int i = 0; i < items.users; i++)
	{
		for (int64_t a = by_item.starts[i]; a < by_item.starts[i + 1]; a++)
		{
			int u = by_item.columns[a];
			double w = by_item.weights[a];

			for (int64_t b = by_user.starts[u]; b < by_user.starts[u + 1]; b++)
				sums.add(by_user.columns[b], by_user.weights[b] * w);
		}
		sums.take([&](int item, double score) {
			if (best.size() == options.k + 1)
			{
				if (score <= best.front().first)
					return;
				std::pop_heap(best.begin(), best.end(), std::greater<Scored>());
				best.pop_back();
			}
			best.emplace_back(score, item);
			std::push_heap(best.begin(), best.end(), std::greater<Scored>());
		});
		finish_row(i, best, options.k, run);
	}
	run.product = now() - start;
	run.cpu = double(std::clock() - cpu) / CLOCKS_PER_SEC;
	return run;
}

/* ---- comparing ---- */

/* Scores by rank are equal but for rounding; which of two that tie comes first may differ */
bool
same_scores(const Run &a, const Run &b)
{
	if (a.rows.size() != b.rows.size())
		return false;
	for (size_t i = 0; i < a.rows.size(); i++)
		if (a.rows[i].item != b.rows[i].item ||
			std::fabs(a.rows[i].score - b.rows[i].score) > 1e-10 * std::fmax(1, std::fabs(a.rows[i].score)))
			return false;
	return true;
}

void
print(const char *name, int threads, const Run &run, double products)
{
	std::printf("%-11s %7d %11.2f %11.2f %11.2f %21.0f\n", name, threads, run.prepare, run.product, run.cpu,
				products / run.cpu / 1e6);
}

Options
parse(int argc, char **argv)
{
	Options options;

	for (int i = 1; i < argc; i++)
	{
		std::string name = argv[i];
		const char *value = i + 1 < argc ? argv[i + 1] : "";

		if (name == "--zipf")
		{
			options.zipf = true;
			continue;
		}
		if (name == "--scale")
			options.scale = std::atof(value);
		else if (name == "--k")
			options.k = (uint32_t) std::atoi(value);
		else if (name == "--threads")
			options.threads = std::atoi(value);
		else if (name == "--backend")
			options.cuda = std::strcmp(value, "cuda") == 0;
		else if (name == "--weighting")
			options.weighting = gpuvec_weighting_find(value);
		else
			options.k = 0;
		i++;
	}
	if (options.k < 1 || options.scale <= 0 || options.scale > 1 || options.weighting == GPUVEC_N_WEIGHTINGS)
	{
		std::fprintf(stderr, "usage: bench_neighbors [--scale S] [--k K] [--threads N] [--weighting NAME] [--backend cuda] [--zipf]\n");
		std::exit(2);
	}
	return options;
}

} // namespace

int
main(int argc, char **argv)
{
	Options options = parse(argc, argv);
	als_data::matrix users = als_data::generate(options.zipf, options.scale, true);
	als_data::matrix items = als_data::transpose(users);
	Pairs pairs = pairs_of(users);
	double products = 0;
	bool right = true;

	for (int u = 0; u < users.users; u++)
		products += std::pow(double(users.starts[u + 1] - users.starts[u]), 2);
	std::printf("%zu pairs of %d users and %d items, checksum %016llx, %s, k %u, %.3g products\n", pairs.users.size(),
				users.users, items.users, (unsigned long long) als_data::checksum(users),
				gpuvec_weighting_name(options.weighting), options.k, products);
	std::printf("%-11s %7s %11s %11s %11s %21s\n", "", "threads", "prepare, s", "product, s", "its CPU, s", "million a CPU second");
	Run plain = run_plain(options, users, items);
	print("plain loop", 1, plain, products);
	for (int threads : {1, options.threads})
	{
		Run engine = run_engine(options, pairs, threads, nullptr);

		print("gpuvec", threads ? threads : gpuvec_cores(), engine, products);
		right = right && same_scores(plain, engine);
	}
	if (options.cuda)
	{
		gpuvec_backend_options wanted = {};
		gpuvec_error error;
		gpuvec_backend *backend = gpuvec_cuda_open(&wanted, &error);

		if (backend == nullptr)
			fail(error);
		Run engine = run_engine(options, pairs, 0, backend->finder);

		print("gpuvec cuda", gpuvec_cores(), engine, products);
		right = right && same_scores(plain, engine);
		backend->close(backend);
	}
	std::printf("%zu neighbors, %s\n", plain.rows.size(), right ? "the same scores" : "SCORES DIFFER");
	return right ? 0 : 1;
}
