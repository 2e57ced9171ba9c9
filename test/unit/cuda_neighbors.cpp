/*-------------------------------------------------------------------------
 *
 * cuda_neighbors.cpp
 *	  Neighbors of items on a GPU, compared with the engine's threads, bit by
 *	  bit.
 *
 *	cuda_neighbors [emulated|quick|full]
 *
 * "emulated" has small matrices, for a GPU that is emulated (neighbors.mk);
 * "full" also has one of the shape of MovieLens 20M.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/neighbors/cuda_neighbors.h"
#include "als_data.h"

/* for C headers */
#define restrict __restrict__

extern "C"
{
#include "engine/neighbors/neighbors.h"
#include "unit_test.h"
}

/* Interactions */
struct Pairs
{
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

static const gpuvec_weighting all[] = {
	GPUVEC_WEIGHTING_COSINE, GPUVEC_WEIGHTING_TFIDF, GPUVEC_WEIGHTING_BM25, GPUVEC_WEIGHTING_NONE
};

static struct gpuvec::cuda_device device;

static void
die(const gpuvec_error &error)
{
	printf("%s (%s)\n", error.message, error.detail);
	printf("%ld passed, %ld failed\n", passed, failed + 1);
	exit(1);
}

/* All neighbors; finder NULL: by threads */
static std::vector<gpuvec_neighbor>
find(const Pairs &pairs, gpuvec_neighbors_options options, gpuvec_finder *finder)
{
	gpuvec_error error;
	gpuvec_neighbors *neighbors;
	std::vector<gpuvec_neighbor> all_rows;

	options.finder = finder;
	neighbors = gpuvec_neighbors_new(NULL, 0, &options, &error);
	if (neighbors == NULL ||
		!gpuvec_neighbors_add(neighbors, pairs.users.size(), pairs.users.data(), pairs.items.data(), pairs.weights.data(), &error) ||
		!gpuvec_neighbors_prepare(neighbors, NULL, &error))
		die(error);
	check(gpuvec_neighbors_on_device(neighbors) ==
		  (finder != NULL && gpuvec_neighbors_rows(neighbors, GPUVEC_ALS_ITEMS) > 1), "it is where it should be");
	while (gpuvec_neighbors_done(neighbors) < gpuvec_neighbors_rows(neighbors, GPUVEC_ALS_ITEMS))
	{
		const gpuvec_neighbor *rows;
		uint64_t	n;

		if (!gpuvec_neighbors_next(neighbors, NULL, &rows, &n, &error))
			die(error);
		all_rows.insert(all_rows.end(), rows, rows + n);
	}
	gpuvec_neighbors_free(neighbors);
	return all_rows;
}

static bool
same(const std::vector<gpuvec_neighbor> &a, const std::vector<gpuvec_neighbor> &b)
{
	return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
}

/* Compare, with columns in one slice and, unless most is 0, in several */
static void
compare(const Pairs &pairs, gpuvec_weighting weighting, uint32_t k, uint32_t most, const char *what)
{
	gpuvec_neighbors_options options = {k, weighting, 1.2, 0.75, NULL};
	std::vector<gpuvec_neighbor> right = find(pairs, options, NULL);

	for (int slices = 0; slices < (most ? 2 : 1); slices++)
	{
		gpuvec_error error;
		struct gpuvec::neighbors_policy policy;
		gpuvec_finder *finder;

		if (slices)
		{
			policy.most_columns = most;
			/* a few users at a time, with the last ones fewer */
			policy.split_numbers = 1000;
		}
		finder = gpuvec::neighbors_open(device, policy, &error);
		if (finder == NULL)
			die(error);
		check(same(right, find(pairs, options, finder)), what);
		check(same(right, find(pairs, options, finder)), "and once more");
		finder->close(finder);
	}
}

/*
 * A random matrix; items with small numbers have more users than others, and
 * all but a few weights are small integers, so that many scores tie
 */
static Pairs
random_pairs(int users, int items, int each, bool negative)
{
	Pairs		pairs;

	for (int u = 0; u < users; u++)
		for (int n = (int) random_below(2 * each + 1); n > 0; n--)
		{
			double		x = (double) random_below(1 << 20) / (1 << 20);
			float		weight = random_below(8) == 0 ? (float) (random_below(1000) + 1) / 7 : (float) (random_below(2) + 1);

			pairs.add(u * 3 - 100, (int64_t) (x * x * items) * 7 - 1000, negative && random_below(3) == 0 ? -weight : weight);
		}
	return pairs;
}

static void
test_random(bool small)
{
	static const uint32_t ks[] = {1, 5, 20, 300};
	int			rounds = small ? 3 : 24;

	for (int round = 0; round < rounds; round++)
		for (int w = 0; w < 4; w++)
		{
			int			scale = small ? 1 : 10;
			bool		negative = round % 2 == 1 && !gpuvec_weighting_positive(all[w]);
			int			users = 1 + (int) random_below(60 * scale);
			int			items = 2 + (int) random_below(40 * scale);
			Pairs		pairs = random_pairs(users, items, 1 + (int) random_below(12 * scale), negative);

			compare(pairs, all[w], ks[random_below(4)], 1 + (uint32_t) items / 5, "a random matrix");
		}
}

/* All items tie, one user, one item, none */
static void
test_few(void)
{
	for (int w = 0; w < 4; w++)
	{
		Pairs		pairs;

		compare(pairs, all[w], 3, 0, "nothing");
		pairs.add(1, 1, 1);
		compare(pairs, all[w], 3, 0, "one item");
		pairs.add(1, 2, 1);
		compare(pairs, all[w], 3, 1, "two items");
		for (int i = 0; i < 70; i++)
			for (int u = 2; u < 5; u++)
				pairs.add(u, i * 1000 - 20000, 1);
		compare(pairs, all[w], 7, 9, "all scores tie");
	}
}

/* A user with very many items, and an item with very many users */
static void
test_long(int n)
{
	Pairs		pairs;

	for (int i = 0; i < n; i++)
	{
		pairs.add(-1, i, (float) (i % 5 + 1));
		pairs.add(i, n / 2, (float) (i % 3 + 1));
		pairs.add(i, n + i % 100, 2);
	}
	for (int w = 0; w < 4; w++)
		compare(pairs, all[w], 50, 0, "long rows");
}

/* The shape of MovieLens 20M, or a part of its users */
static void
test_large(double scale, bool zipf)
{
	als_data::matrix m = als_data::generate(zipf, scale, true);
	Pairs		pairs;

	for (int u = 0; u < m.users; u++)
		for (int64_t i = m.starts[u]; i < m.starts[u + 1]; i++)
			pairs.add(u, m.others[i], m.confidences[i]);
	compare(pairs, GPUVEC_WEIGHTING_COSINE, 20, 9000, "cosine of many");
	compare(pairs, GPUVEC_WEIGHTING_BM25, 100, 0, "bm25 of many");
}

int
main(int argc, char **argv)
{
	std::string what = argc > 1 ? argv[1] : "quick";
	gpuvec_error error;

	if (!device.open(0, &error))
		die(error);
	test_few();
	test_random(what == "emulated");
	test_long(what == "emulated" ? 200 : 20000);
	if (what != "emulated")
		test_large(0.02, false);
	if (what == "full")
	{
		test_large(0.1, true);
		test_large(1, false);
	}
	return report_checks();
}
