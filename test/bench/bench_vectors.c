/*-------------------------------------------------------------------------
 *
 * bench_vectors.c
 *	  How fast the CUDA backend serves embedding tables, copies to and from
 *	  the host
 *	  included.
 *
 *	bench_vectors [ROWS [WIDTH]]
 *
 * "make bench-vectors" builds it into test/bench/bin.  Times are the best of
 * several.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/nearest.h"
#include "engine/backend.h"

#define REPEATS		5

static gpuvec_vectors *vectors;
static gpuvec_device_bank *bank;
static uint32_t rows = 10000000;
static uint32_t width = 128;
static uint64_t state = 1;

static uint64_t
random64(void)
{
	uint64_t	z = (state += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
	return z ^ z >> 31;
}

/* Milliseconds */
static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec * 1e3 + (double) t.tv_nsec / 1e6;
}

static void
check(bool ok, const gpuvec_error *error)
{
	if (ok)
		return;
	printf("%s: %s\n", error->message, error->detail);
	exit(1);
}

/* Fill the table */
static void
load(void)
{
	float	   *vector = malloc(width * sizeof(float));
	double		start = now();
	gpuvec_error error;

	bank = vectors->make(vectors, width, GPUVEC_FLOAT32, &error);
	check(bank && vectors->reserve(vectors, bank, rows, &error), &error);
	for (uint32_t slot = 0; slot < rows; slot++)
	{
		for (uint32_t i = 0; i < width; i += 2)
		{
			uint64_t	z = random64();

			vector[i] = (float) (int32_t) z / 2147483648.0f;
			if (i + 1 < width)
				vector[i + 1] = (float) (int32_t) (z >> 32) / 2147483648.0f;
		}
		check(vectors->put(vectors, bank, slot, slot, slot, vector, &error), &error);
	}
	check(vectors->flush(vectors, bank, &error), &error);
	printf("load %u rows of %u: %.0f ms\n", rows, width, now() - start);
	free(vector);
}

/* Pool bags of so many slots, and compute gradients of that */
static void
pool(uint64_t nbags, uint64_t hotness)
{
	uint64_t	n = nbags * hotness;
	uint32_t   *slots = malloc(n * sizeof(*slots));
	float	   *out = malloc(nbags * width * sizeof(float));
	float	   *weights = malloc(n * sizeof(float));
	gpuvec_slot_bags bags = {.slots = slots,.nslots = n,.hotness = hotness,.nbags = nbags};
	double		best[3] = {1e9, 1e9, 1e9};
	uint64_t	count = 0;
	gpuvec_error error;

	for (uint64_t i = 0; i < n; i++)
		slots[i] = (uint32_t) (random64() % rows);
	memset(out, 0, nbags * width * sizeof(float));
	for (int i = 0; i < REPEATS; i++)
	{
		double		times[4];
		void	   *body;

		times[0] = now();
		check(vectors->pool(vectors, bank, &bags, out, &error), &error);
		times[1] = now();
		check(vectors->gradient(vectors, bank, &bags, out, UINT64_MAX, &count, &body, &error), &error);
		times[2] = now();
		check(vectors->weight_gradients(vectors, bank, &bags, out, weights, &error), &error);
		times[3] = now();
		free(body);
		for (int j = 0; j < 3; j++)
			if (times[j + 1] - times[j] < best[j])
				best[j] = times[j + 1] - times[j];
	}
	printf("%llu bags of %llu: pool %.2f ms, gradient of %llu keys %.2f ms, of weights %.2f ms\n",
		   (unsigned long long) nbags, (unsigned long long) hotness, best[0],
		   (unsigned long long) count, best[1], best[2]);
	free(slots);
	free(out);
	free(weights);
}

/* Find the nearest rows of some queries */
static void
nearest(gpuvec_metric metric, uint32_t nqueries, uint32_t k)
{
	static const char *const names[] = {"cosine", "ip", "l2"};
	float	   *queries = malloc((size_t) nqueries * width * sizeof(float));
	double	   *squares = malloc(nqueries * sizeof(double));
	uint8_t    *live = malloc(rows);
	gpuvec_slot_search search = {
		.metric = metric,.queries = queries,.squares = squares,.nqueries = nqueries,.k = k,
		.live = live,.nlive = rows,.version = 1,
		.slots = malloc((size_t) nqueries * k * sizeof(uint32_t)),
		.scores = malloc((size_t) nqueries * k * sizeof(double)),
		.counts = malloc(nqueries * sizeof(uint32_t))
	};
	double		best = 1e9;
	gpuvec_error error;

	memset(live, 1, rows);
	for (size_t i = 0; i < (size_t) nqueries * width; i++)
		queries[i] = (float) (int32_t) random64() / 2147483648.0f;
	for (uint32_t i = 0; i < nqueries; i++)
		squares[i] = gpuvec_product(queries + (size_t) i * width, queries + (size_t) i * width, width);
	for (int i = 0; i < REPEATS; i++)
	{
		double		start = now();

		check(vectors->nearest(vectors, bank, &search, &error), &error);
		if (now() - start < best)
			best = now() - start;
	}
	printf("%u nearest of %u queries, %s: %.2f ms\n", k, nqueries, names[metric], best);
	free(queries);
	free(squares);
	free(live);
	free(search.slots);
	free(search.scores);
	free(search.counts);
}

int
main(int argc, char **argv)
{
	gpuvec_backend_options options = {.threads = 1};
	gpuvec_error error;
	gpuvec_backend *backend = gpuvec_cuda_open(&options, &error);

	check(backend != NULL, &error);
	vectors = backend->vectors;
	if (argc > 1)
		rows = (uint32_t) strtoul(argv[1], NULL, 10);
	if (argc > 2)
		width = (uint32_t) strtoul(argv[2], NULL, 10);
	load();
	pool(1, 16);
	pool(65536, 1);
	pool(65536, 16);
	pool(65536, 64);
	for (int metric = 0; metric < 3; metric++)
	{
		nearest((gpuvec_metric) metric, 1, 10);
		nearest((gpuvec_metric) metric, 100, 10);
	}
	nearest(GPUVEC_METRIC_IP, 1, 1000);
	nearest(GPUVEC_METRIC_IP, 1, 100000);
	return 0;
}
