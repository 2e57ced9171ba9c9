/*-------------------------------------------------------------------------
 *
 * vectors_test.c
 *	  The vectors of embedding tables on a device, or on several, against the
 *	  definitions that the CPU uses, bit by bit.
 *
 *	vectors_test [CASES [SEED]]
 *
 * The devices are in host memory (cpu_vectors.h).  With VECTORS_TEST_GPU
 * they are the CUDA backend: linked with that the test needs a GPU, linked
 * with the emulated one (test/unit/emulation) none.  It takes all GPUs that
 * there are.  If these are fewer than it wants, each is several devices.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/pooling_grad.h"
#include "core/nearest.h"
#include "engine/backend.h"
#include "engine/cpu/cpu_vectors.h"
#include "engine/shards/vectors/shard_vectors.h"

/* A table, on the device and here */
static gpuvec_vectors *vectors;
static gpuvec_thread_pool *pool;
static int	nshards;				/* devices; 0: one, as it is */
static gpuvec_device_bank *bank;
static uint32_t width;
static gpuvec_storage storage;
static uint32_t nrows;
static char *elements;			/* [nrows * width] */
static int64_t *keys;
static uint64_t *tids;
static uint8_t *live;
static uint64_t version;

static uint64_t seed;
static uint64_t case_number;

/* A random number */
static uint64_t
random64(void)
{
	uint64_t	z = (seed += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
	return z ^ z >> 31;
}

static uint64_t
below(uint64_t n)
{
	return random64() % n;
}

/* A number as they occur, or a special one */
static float
random_float(void)
{
	static const float special[] = {0.0f, -0.0f, 1.0f, -1.0f, 1e-30f, 3e38f, INFINITY, NAN};
	uint64_t	what = below(1000);

	if (what < 6 + 2 * (case_number % 2))
		return special[what];
	if (case_number % 3 == 0)
		return (float) below(7) - 3;
	return (float) ((double) random64() / (double) UINT64_MAX * 2 - 1);
}

/* Give up */
static void
fail(const char *what, uint64_t place)
{
	printf("case %llu: %s differs at %llu (width %u, %s, %d parts)\n",
		   (unsigned long long) case_number, what, (unsigned long long) place, width,
		   storage == GPUVEC_FLOAT16 ? "float16" : "float32", nshards);
	exit(1);
}

/* Give up if a call has failed */
static void
check(bool ok, const gpuvec_error *error)
{
	if (ok)
		return;
	printf("case %llu: %s: %s\n", (unsigned long long) case_number, error->message, error->detail);
	exit(1);
}

/* Compare floats; any NaN is like any other */
static void
compare(const char *what, const float *a, const float *b, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		if (memcmp(&a[i], &b[i], sizeof(float)) != 0 && !(isnan(a[i]) && isnan(b[i])))
		{
			printf("%.9g, not %.9g\n", (double) a[i], (double) b[i]);
			fail(what, i);
		}
}

/* Put a random row in a slot */
static void
put_row(uint32_t slot)
{
	static const int64_t extremes[] = {0, -1, INT64_MIN, INT64_MAX};
	size_t		bytes = width * gpuvec_element_bytes(storage);
	char	   *to = elements + slot * bytes;
	gpuvec_error error;

	/* equal scores are to occur, and equal keys among them */
	if (below(4) == 0)
		memcpy(to, elements + below(slot + 1) * bytes, bytes);
	else
		for (uint32_t i = 0; i < width; i++)
		{
			float		value = random_float();
			uint16_t	half = gpuvec_float_to_half(value);

			if (storage == GPUVEC_FLOAT16)
				memcpy(to + i * sizeof(half), &half, sizeof(half));
			else
				memcpy(to + i * sizeof(value), &value, sizeof(value));
		}
	keys[slot] = below(8) == 0 ? extremes[below(4)] : (int64_t) slot;
	tids[slot] = random64() >> 8 << 20 | slot;
	live[slot] = below(10) > 0;
	check(vectors->put(vectors, bank, slot, keys[slot], tids[slot], to, &error), &error);
}

/* Make a table */
static void
make_table(void)
{
	static const uint32_t widths[] = {1, 2, 3, 4, 7, 8, 16, 17, 31, 33, 64, 100, 128, 250, 1024};
	gpuvec_error error;
	uint32_t	scratch = 0;

	width = widths[below(sizeof(widths) / sizeof(widths[0]))];
	storage = below(2) ? GPUVEC_FLOAT16 : GPUVEC_FLOAT32;
	nrows = 1 + (uint32_t) below(below(2) ? 1000 : 20);
	elements = malloc((size_t) nrows * width * sizeof(float));
	keys = malloc(nrows * sizeof(int64_t));
	tids = malloc(nrows * sizeof(uint64_t));
	live = malloc(nrows);
	bank = vectors->make(vectors, width, storage, &error);
	check(bank != NULL, &error);
	for (uint32_t slot = 0; slot < nrows; slot++)
	{
		if (slot == scratch)
		{
			scratch = scratch * 2 + 1 + (uint32_t) below(100);
			check(vectors->reserve(vectors, bank, scratch, &error), &error);
		}
		put_row(slot);
	}
	check(vectors->flush(vectors, bank, &error), &error);
	for (uint32_t slot = 0; slot < nrows; slot++)
		if (below(3) == 0)
			put_row(slot);
	check(vectors->flush(vectors, bank, &error), &error);
	version++;
}

/* Forget it */
static void
drop_table(void)
{
	vectors->release(vectors, bank);
	free(elements);
	free(keys);
	free(tids);
	free(live);
}

/* Bags, for the device and for here */
typedef struct bags
{
	gpuvec_slot_bags b;
	gpuvec_missing missing;
	const void **vectors;
	int64_t    *keys;
	float	   *divisors;
	float	   *scratch;
	uint64_t   *offsets;		/* always there */
} bags;

/* How many keys the next bag has */
static uint64_t
random_length(void)
{
	uint64_t	what = below(100);

	return what < 20 ? 0 : what < 95 ? below(20) : what < 99 ? below(600) : below(9000);
}

/* Random bags */
static bags
make_bags(void)
{
	bags		r = {.missing = GPUVEC_MISSING_ZERO};
	bool		fixed = below(2);
	uint32_t   *slots;
	float	   *weights;

	r.b.nbags = 1 + below(60);
	r.b.hotness = fixed ? 1 + (below(10) ? below(10) : below(700)) : 0;
	r.b.mode = (gpuvec_pool_mode) below(3);
	r.b.skip_missing = below(2);
	r.missing = r.b.skip_missing ? GPUVEC_MISSING_SKIP : GPUVEC_MISSING_ZERO;
	r.offsets = malloc((r.b.nbags + 1) * sizeof(uint64_t));
	r.offsets[0] = 0;
	for (uint64_t i = 0; i < r.b.nbags; i++)
		r.offsets[i + 1] = r.offsets[i] + (fixed ? r.b.hotness : random_length());
	r.b.offsets = fixed ? NULL : r.offsets;
	r.b.nslots = r.offsets[r.b.nbags];
	slots = malloc(r.b.nslots * sizeof(uint32_t) + 1);
	weights = malloc(r.b.nslots * sizeof(float) + 1);
	r.vectors = malloc(r.b.nslots * sizeof(void *) + 1);
	r.keys = malloc(r.b.nslots * sizeof(int64_t) + 1);
	for (uint64_t i = 0; i < r.b.nslots; i++)
	{
		bool		found = below(10) > 0;

		slots[i] = found ? (uint32_t) below(below(2) ? nrows : 1 + nrows / 100) : GPUVEC_NO_SLOT;
		r.vectors[i] = found ? elements + (size_t) slots[i] * width * gpuvec_element_bytes(storage) : NULL;
		/* a key for each slot */
		r.keys[i] = found ? keys[slots[i]] : 0;
		weights[i] = below(8) ? random_float() : (float) below(2);
	}
	r.b.slots = slots;
	r.b.weights = below(2) ? weights : NULL;
	if (r.b.weights == NULL)
		free(weights);
	r.scratch = malloc((size_t) width * GPUVEC_SCRATCH_VECTORS * sizeof(float));
	r.divisors = malloc(r.b.nbags * sizeof(float));
	r.b.keys = r.keys;
	r.b.pool = below(2) ? pool : NULL;
	return r;
}

static void
drop_bags(bags *r)
{
	free((void *) r->b.slots);
	free((void *) r->b.weights);
	free(r->vectors);
	free(r->keys);
	free(r->divisors);
	free(r->scratch);
	free(r->offsets);
}

/*
 * A bag as the CPU sees it; the device does not skip anything when it
 * concatenates
 */
static gpuvec_bag
get_bag(const bags *r, uint64_t i)
{
	uint64_t	first = r->offsets[i];

	return (gpuvec_bag) {
		.keys = r->keys + first,.vectors = r->vectors + first,
		.weights = r->b.weights ? r->b.weights + first : NULL,.n = r->offsets[i + 1] - first,
		.width = width,.storage = storage,.mode = r->b.mode,
		.missing = r->b.mode == GPUVEC_POOL_CONCAT ? GPUVEC_MISSING_ZERO : r->missing,
		.scratch = r->scratch
	};
}

/* Pooling */
static void
test_pool(const bags *r)
{
	uint64_t	n = (r->b.mode == GPUVEC_POOL_CONCAT ? r->b.nslots : r->b.nbags) * width;
	float	   *mine = malloc(n * sizeof(float) + 1);
	float	   *out = malloc(n * sizeof(float) + 1);
	float	   *to = mine;
	gpuvec_error error;

	for (uint64_t i = 0; i < r->b.nbags; i++)
	{
		gpuvec_bag	bag = get_bag(r, i);

		to += gpuvec_pool_bag(to, &bag);
	}
	check(vectors->pool(vectors, bank, &r->b, out, &error), &error);
	compare("pooling", out, mine, n);
	free(mine);
	free(out);
}

/* The gradients of vectors */
static void
test_gradient(const bags *r, const float *gradient)
{
	gpuvec_share *scratch = malloc((r->b.nslots + 1) * sizeof(*scratch));
	gpuvec_share *spare = malloc((r->b.nslots + 1) * sizeof(*spare));
	gpuvec_share *shares;
	float	   *sum = malloc(width * sizeof(float));
	gpuvec_upstream up = {
		.gradient = gradient,.width = width,
		.factors = r->b.weights != NULL || r->b.mode == GPUVEC_POOL_MEAN
	};
	uint64_t	row = 0;
	uint64_t	n = 0;
	uint64_t	nkeys = 0;
	uint64_t	count;
	void	   *body;
	gpuvec_error error;

	for (uint64_t i = 0; i < r->b.nbags; i++)
	{
		gpuvec_bag	bag = get_bag(r, i);

		n += gpuvec_bag_shares(scratch + n, &bag, &row);
	}
	shares = gpuvec_sort_shares(scratch, spare, n);
	check(vectors->gradient(vectors, bank, &r->b, gradient, UINT64_MAX, &count, &body, &error), &error);
	for (uint64_t i = 0; i < n; nkeys++)
	{
		uint64_t	first = i;

		while (i < n && shares[i].key == shares[first].key)
			i++;
		if (nkeys >= count || ((int64_t *) body)[nkeys] != shares[first].key)
			fail("key of a gradient", nkeys);
		gpuvec_sum_shares(sum, shares + first, i - first, &up, r->scratch);
		compare("gradient", (float *) ((int64_t *) body + count) + nkeys * width, sum, width);
	}
	if (nkeys != count)
		fail("number of keys", nkeys);
	if (count > 0)
	{
		void	   *again;

		/* with no more memory than it takes, the same */
		check(vectors->gradient(vectors, bank, &r->b, gradient, count, &count, &again, &error), &error);
		if (memcmp(again, body, count * (sizeof(int64_t) + width * sizeof(float))) != 0)
			fail("limit of a gradient", count);
		free(again);
	}
	free(body);
	free(sum);
	free(scratch);
	free(spare);
}

/* The gradients of weights, of sums and means */
static void
test_weights(bags *r, const float *gradient)
{
	float	   *mine = malloc(r->b.nslots * sizeof(float) + 1);
	float	   *out = malloc(r->b.nslots * sizeof(float) + 1);
	float	   *mean = malloc(width * sizeof(float));
	uint64_t	row = 0;
	gpuvec_error error;

	for (uint64_t i = 0; i < r->b.nbags; i++)
	{
		gpuvec_bag	bag = get_bag(r, i);

		r->divisors[i] = gpuvec_bag_divisor(&bag);
		gpuvec_bag_weight_gradients(mine + r->offsets[i], &bag, gradient, mean, &row);
	}
	r->b.divisors = r->divisors;
	check(vectors->weight_gradients(vectors, bank, &r->b, gradient, out, &error), &error);
	compare("gradient of weights", out, mine, r->b.nslots);
	free(mine);
	free(out);
	free(mean);
}

/* Does each key stand for one slot?  Gradients are by keys. */
static bool
keys_distinct(void)
{
	for (uint32_t i = 0; i < nrows; i++)
		for (uint32_t j = 0; j < i; j++)
			if (keys[i] == keys[j])
				return false;
	return true;
}

/* Make it so */
static void
make_keys_distinct(void)
{
	gpuvec_error error;

	for (uint32_t i = 0; i < nrows && !keys_distinct(); i++)
	{
		keys[i] = (int64_t) (random64() << 12 | i);
		check(vectors->put(vectors, bank, i, keys[i], tids[i],
						   elements + (size_t) i * width * gpuvec_element_bytes(storage), &error), &error);
	}
	check(vectors->flush(vectors, bank, &error), &error);
}

/* Compare rows, for qsort */
static int
compare_rows(const void *a, const void *b)
{
	return gpuvec_nearer(a, b) ? -1 : gpuvec_nearer(b, a) ? 1 : 0;
}

/* Slots that a query does not want: one of as many as *arg is */
static bool
is_wanted(const void *arg, uint32_t query, uint32_t slot)
{
	return (slot + query) % *(const uint32_t *) arg != 0;
}

/*
 * What is near to query i of a search, here; returns how many there are.
 * Where vectors are not on the host, unwanted ones are found as well.
 */
static uint64_t
near_here(const gpuvec_slot_search *search, uint32_t query_number, gpuvec_near *rows)
{
	const float *query = search->queries + (size_t) query_number * width;
	uint64_t	n = 0;
	float	   *scratch = malloc(width * sizeof(float));

	for (uint32_t i = 0; i < nrows; i++)
	{
		double		score;

		gpuvec_near_scores(&score, search->metric, query, search->squares[query_number],
						   elements + (size_t) i * width * gpuvec_element_bytes(storage), 1, width,
						   storage, scratch);
		if (live[i] && !isnan(score) &&
			(!vectors->on_host || is_wanted(search->wanted_arg, query_number, i)))
			rows[n++] = (gpuvec_near) {.score = score,.key = keys[i],.tid = tids[i]};
	}
	qsort(rows, n, sizeof(*rows), compare_rows);
	free(scratch);
	return n;
}

/* The nearest rows */
static void
test_nearest(void)
{
	uint32_t	nqueries = below(2) ? 1 : 1 + (uint32_t) below(20);
	uint32_t	k = 1 + (uint32_t) below(below(2) ? nrows : 1 + nrows / 20);
	float	   *queries = malloc((size_t) nqueries * width * sizeof(float));
	double	   *squares = malloc(nqueries * sizeof(double));
	gpuvec_near *mine = malloc(nrows * sizeof(*mine));
	gpuvec_near *theirs = malloc(k * sizeof(*theirs));
	uint32_t	unwanted = 2 + (uint32_t) below(20);
	gpuvec_slot_search search = {
		.metric = (gpuvec_metric) below(3),.queries = queries,.squares = squares,
		.nqueries = nqueries,.k = k,.live = live,.nlive = nrows,.version = version,
		.slots = malloc((size_t) nqueries * k * sizeof(uint32_t)),
		.scores = malloc((size_t) nqueries * k * sizeof(double)),
		.counts = malloc(nqueries * sizeof(uint32_t)), .names = {keys, tids, 1},
		.pool = below(2) ? pool : NULL, .wanted = is_wanted, .wanted_arg = &unwanted
	};
	gpuvec_error error;

	for (uint32_t i = 0; i < nqueries; i++)
	{
		float	   *query = queries + (size_t) i * width;

		for (uint32_t j = 0; j < width; j++)
			query[j] = below(300) ? (float) below(9) - 4 : random_float();
		if (below(4) == 0 && storage == GPUVEC_FLOAT32)
			memcpy(query, elements + below(nrows) * width * sizeof(float), width * sizeof(float));
		squares[i] = gpuvec_product(query, query, width);
	}
	check(vectors->nearest(vectors, bank, &search, &error), &error);
	for (uint32_t i = 0; i < nqueries; i++)
	{
		uint64_t	n = near_here(&search, i, mine);

		if (search.counts[i] != (n < k ? n : k))
			fail("number of near rows", i);
		for (uint32_t j = 0; j < search.counts[i]; j++)
		{
			uint32_t	slot = search.slots[(size_t) i * k + j];

			theirs[j] = (gpuvec_near) {
				.score = search.scores[(size_t) i * k + j],.key = keys[slot],.tid = tids[slot]
			};
		}
		qsort(theirs, search.counts[i], sizeof(*theirs), compare_rows);
		if (memcmp(mine, theirs, search.counts[i] * sizeof(*mine)) != 0)
			fail("near rows", i);
	}
	free(queries);
	free(squares);
	free(mine);
	free(theirs);
	free(search.slots);
	free(search.scores);
	free(search.counts);
}

/*
 * A key that a test of the hash table uses, and what the table should know of
 * it
 */
typedef struct known_key
{
	gpuvec_key_row row;			/* slot GPUVEC_NO_SLOT: it is not there */
	uint64_t	batch;			/* the last one that it was in */
} known_key;

#define TEST_BLOCKS		100

/* Enter random changes of different keys; returns how many */
static uint64_t
change_keys(known_key *known, uint64_t nknown, uint64_t most)
{
	static uint64_t batch = 0;
	uint64_t	n = below(3) ? below(most + 1) : below(most < 20 ? most + 1 : 20);
	gpuvec_key_row *rows = malloc((n + 1) * sizeof(*rows));
	uint64_t	count = 0;
	gpuvec_error error;

	batch++;
	for (uint64_t i = 0; i < n; i++)
	{
		known_key  *key = &known[below(nknown)];

		if (key->batch == batch)
			continue;
		key->batch = batch;
		key->row.slot = below(4) == 0 ? GPUVEC_NO_SLOT : below(8) == 0 ? GPUVEC_ASK_SLOT : (uint32_t) below(nrows);
		key->row.block = (uint32_t) below(TEST_BLOCKS);
		rows[count++] = key->row;
	}
	check(vectors->map_keys(vectors, bank, rows, count, &error), &error);
	free(rows);
	return count;
}

/* Look up random keys, those of no row among them */
static void
find_known_keys(const known_key *known, uint64_t nknown)
{
	uint32_t	proven[TEST_BLOCKS / 32 + 1];
	uint64_t	n = below(2 * nknown) + 1;
	int64_t    *wanted = malloc(n * sizeof(int64_t));
	uint64_t   *numbers = malloc(n * sizeof(uint64_t));
	gpuvec_key_search search = {
		.keys = wanted,.nkeys = n,.proven = proven,.nblocks = (uint32_t) below(TEST_BLOCKS + 1),
		.slots = malloc(n * sizeof(uint32_t))
	};
	gpuvec_error error;

	for (int i = 0; i <= TEST_BLOCKS / 32; i++)
		proven[i] = (uint32_t) (random64() | random64());
	for (uint64_t i = 0; i < n; i++)
	{
		numbers[i] = below(nknown);
		wanted[i] = known[numbers[i]].row.key;
	}
	check(vectors->find_keys(vectors, bank, &search, &error), &error);
	for (uint64_t i = 0; i < n; i++)
	{
		const gpuvec_key_row *row = &known[numbers[i]].row;
		bool		seen = row->block < search.nblocks && (proven[row->block / 32] >> row->block % 32 & 1);
		uint32_t	slot = row->slot != GPUVEC_NO_SLOT && !seen ? GPUVEC_ASK_SLOT : row->slot;

		if (search.slots[i] != slot)
			fail("slot of a key", i);
	}
	free(wanted);
	free(numbers);
	free(search.slots);
}

/* Keys come and go */
static void
test_keys(void)
{
	static const int64_t extremes[] = {0, -1, INT64_MIN, INT64_MAX};
	uint64_t	limit = vectors->key_limit(bank);
	uint64_t	nknown = 4 + below(2 * limit);
	known_key  *known = calloc(nknown, sizeof(*known));
	int64_t		factor = (int64_t) (below(2) ? 1 : random64() | 1);
	uint64_t	entered = UINT64_MAX;
	gpuvec_error error;

	for (uint64_t i = 0; i < nknown; i++)
		known[i].row = (gpuvec_key_row) {
			.key = i < 4 ? extremes[i] : (int64_t) ((i + 1) * (uint64_t) factor),.slot = GPUVEC_NO_SLOT
		};
	for (int round = 0; round < 12; round++)
	{
		if (entered > limit)
		{
			check(vectors->clear_keys(vectors, bank, &error), &error);
			for (uint64_t i = 0; i < nknown; i++)
				known[i].row.slot = GPUVEC_NO_SLOT;
			entered = 0;
		}
		entered += change_keys(known, nknown, limit - entered);
		find_known_keys(known, nknown);
		if (entered == limit || below(6) == 0)
			entered = UINT64_MAX;
	}
	free(known);
}

/* Some rows come, and some go */
static void
change_live(void)
{
	for (uint32_t slot = 0; slot < nrows; slot++)
		if (below(5) == 0)
			live[slot] = !live[slot];
	version++;
}

/* All tests with one table */
static void
test_table(void)
{
	make_table();
	for (int i = 0; i < 3; i++)
	{
		test_nearest();
		if (below(2))
			change_live();
	}
	test_keys();
	make_keys_distinct();
	for (int i = 0; i < 4; i++)
	{
		bags		r = make_bags();
		uint64_t	n = (r.b.mode == GPUVEC_POOL_CONCAT ? r.b.nslots : r.b.nbags) * width;
		float	   *gradient = malloc(n * sizeof(float) + 1);

		for (uint64_t j = 0; j < n; j++)
			gradient[j] = random_float();
		test_pool(&r);
		test_gradient(&r, gradient);
		if (r.b.mode != GPUVEC_POOL_CONCAT)
			test_weights(&r, gradient);
		free(gradient);
		drop_bags(&r);
	}
	drop_table();
}

#define MOST_SHARDS	7

/* Device `number` */
static gpuvec_vectors *
open_device(int number)
{
#ifdef VECTORS_TEST_GPU
	gpuvec_error error;
	gpuvec_backend_options options = {.threads = 1, .device = number};
	gpuvec_backend *backend = gpuvec_cuda_open(&options, &error);

	check(backend != NULL, &error);
	return backend->vectors;
#else
	(void) number;
	return &gpuvec_cpu_vectors;
#endif
}

/*
 * Random numbers for shards: some banks have copies, some are spread, some
 * begin with copies; some requests are split, some are served in chunks
 */
static gpuvec_shard_policy
random_policy(void)
{
	gpuvec_shard_policy policy = gpuvec_shard_defaults;

	policy.copy_bytes = below(3) == 0 ? SIZE_MAX : below(3) == 0 ? below(100000) : 0;
	policy.share = below(2);
	policy.threads = 1 + (int) below(3);
	policy.split_slots = below(300);
	policy.split_queries = (uint32_t) below(10);
	policy.beside = below(500);
	policy.chunk_bytes = below(2) ? 1 + below(100000) : policy.chunk_bytes;
	policy.sum_slots = 1 + below(300);
	return policy;
}

/* Number of devices */
static int
count_devices(void)
{
#ifdef VECTORS_TEST_GPU
	gpuvec_error error;
	int			n = gpuvec_cuda_count(&error);

	return n < 1 ? 1 : n < MOST_SHARDS ? n : MOST_SHARDS;
#else
	return 2;
#endif
}

/* All tests with one table, on a random number of n devices or more */
static void
test_shards(gpuvec_vectors *const *devices, int n)
{
	static const int numbers[] = {0, 1, 2, 3, 4, MOST_SHARDS};
	gpuvec_shard_policy policy = random_policy();
	gpuvec_vectors *children[MOST_SHARDS];
	gpuvec_error error;

	nshards = numbers[below(sizeof(numbers) / sizeof(numbers[0]))];
	vectors = devices[below(n)];
	for (int i = 0; i < MOST_SHARDS; i++)
		children[i] = devices[i % n];
	if (nshards > 0)
		vectors = gpuvec_shard_vectors_new(children, (uint32_t) nshards, &policy, &error);
	check(vectors != NULL, &error);
	test_table();
	if (nshards > 0)
		vectors->close(vectors);
}

int
main(int argc, char **argv)
{
#ifdef VECTORS_TEST_GPU
	uint64_t	cases = 100;
#else
	uint64_t	cases = 600;
#endif
	gpuvec_vectors *devices[MOST_SHARDS];
	int			n = count_devices();

	pool = gpuvec_thread_pool_new(3);
	for (int i = 0; i < n; i++)
		devices[i] = open_device(i);
	if (argc > 1)
		cases = strtoull(argv[1], NULL, 10);
	for (case_number = 1; case_number <= cases; case_number++)
	{
		seed = (argc > 2 ? strtoull(argv[2], NULL, 10) : 1) * 1000003 + case_number;
		test_shards(devices, n);
	}
	gpuvec_thread_pool_free(pool);
	printf("%llu passed, 0 failed\n", (unsigned long long) cases);
	return 0;
}
