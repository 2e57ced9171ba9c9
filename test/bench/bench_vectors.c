/*-------------------------------------------------------------------------
 *
 * bench_vectors.c
 *	  How fast the CUDA backend serves embedding tables, copies to and from
 *	  the host included.
 *
 *	bench_vectors [ROWS [WIDTH [DEVICES [LAYOUT]]]]
 *
 * "make bench-vectors" builds it into test/bench/bin.  Times are the best of
 * several.  DEVICES is a list, as "0,1" (0); LAYOUT is "share" (rows are
 * spread, and devices read each other's; the default), "spread" (they do not)
 * or "copies".  The sums of answers' bits are the same for all of these.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/nearest.h"
#include "engine/backend.h"
#include "engine/shards/vectors/shard_vectors.h"

#define REPEATS		5

#define MAX_DEVICES	16

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

/* Open the devices of a list as one */
static void
open_devices(const char *list, const char *layout)
{
	gpuvec_vectors *children[MAX_DEVICES] = {0};
	gpuvec_shard_policy policy = gpuvec_shard_defaults;
	gpuvec_error error;
	uint32_t	n = 0;

	for (; *list != '\0' && n < MAX_DEVICES; list += strcspn(list, ","), list += *list == ',')
	{
		gpuvec_backend_options options = {.threads = 1,.device = atoi(list)};
		gpuvec_backend *backend = gpuvec_cuda_open(&options, &error);

		check(backend != NULL, &error);
		children[n++] = backend->vectors;
	}
	vectors = children[0];
	if (n <= 1)
		return;
	policy.share = strcmp(layout, "share") == 0;
	if (strcmp(layout, "copies") == 0)
		policy.copy_bytes = SIZE_MAX;
	vectors = gpuvec_shard_vectors_new(children, n, &policy, &error);
	check(vectors != NULL, &error);
}

/* FNV-1a of numbers' bits */
static uint64_t
hash_bits(const void *bits, size_t n)
{
	const uint32_t *words = bits;
	uint64_t	h = UINT64_C(0xCBF29CE484222325);

	for (size_t i = 0; i < n; i++)
		h = (h ^ words[i]) * UINT64_C(0x100000001B3);
	return h;
}

/* A slot: uniform, or by Zipf's law with this exponent, scattered */
static uint32_t
random_slot(double zipf)
{
	double		u = (double) (random64() >> 11) / 9007199254740992.0;
	double		last;

	if (zipf == 0)
		return (uint32_t) (random64() % rows);

	/* the inverse of the integral of x^-zipf from 1 to rows + 1 */
	last = pow((double) rows + 1, 1 - zipf);
	return (uint32_t) ((uint64_t) pow(1 + u * (last - 1), 1 / (1 - zipf)) * UINT64_C(2654435761) % rows);
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

/*
 * Pool bags of so many slots, uniform or by Zipf's law, and compute gradients
 * of that
 */
static void
pool(uint64_t nbags, uint64_t hotness, double zipf)
{
	uint64_t	n = nbags * hotness;
	uint32_t   *slots = malloc(n * sizeof(*slots));
	float	   *out = malloc(nbags * width * sizeof(float));
	float	   *weights = malloc(n * sizeof(float));
	gpuvec_slot_bags bags = {.slots = slots,.nslots = n,.hotness = hotness,.nbags = nbags};
	double		best[3] = {1e9, 1e9, 1e9};
	uint64_t	count = 0;
	uint64_t	bits = 0;
	gpuvec_error error;

	for (uint64_t i = 0; i < n; i++)
		slots[i] = random_slot(zipf);
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
		if (i == REPEATS - 1)
			bits = hash_bits(out, nbags * width) ^ hash_bits(body, count * (width + 2)) ^
				hash_bits(weights, n);
		free(body);
		for (int j = 0; j < 3; j++)
			if (times[j + 1] - times[j] < best[j])
				best[j] = times[j + 1] - times[j];
	}
	printf("%llu bags of %llu, Zipf %.2f: pool %.2f ms, %.0f million rows a second, gradient of %llu keys %.2f ms, of weights %.2f ms; bits %016llx\n",
		   (unsigned long long) nbags, (unsigned long long) hotness, zipf, best[0], (double) n / best[0] / 1e3,
		   (unsigned long long) count, best[1], best[2], (unsigned long long) bits);
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
	open_devices(argc > 3 ? argv[3] : "0", argc > 4 ? argv[4] : "share");
	if (argc > 1)
		rows = (uint32_t) strtoul(argv[1], NULL, 10);
	if (argc > 2)
		width = (uint32_t) strtoul(argv[2], NULL, 10);
	load();
	pool(1, 16, 0);
	pool(65536, 1, 0);
	pool(65536, 16, 0);
	pool(65536, 64, 0);
	pool(65536, 64, 1.05);
	for (int metric = 0; metric < 3; metric++)
	{
		nearest((gpuvec_metric) metric, 1, 10);
		nearest((gpuvec_metric) metric, 100, 10);
	}
	nearest(GPUVEC_METRIC_IP, 1, 1000);
	nearest(GPUVEC_METRIC_IP, 1, 100000);
	return 0;
}
