/*-------------------------------------------------------------------------
 *
 * cpu_pool.c
 *	  Pooling and gradients, with vectors in the host's memory.
 *
 * Threads take slices of the bags.  Each bag is pooled by one thread, in the
 * order of its keys.
 *
 * A share is what one occurrence of a key gets of the upstream gradient.  All
 * shares are sorted by key.  The shares of a key are summed by one thread, in
 * the order of the request, so the result has the same bits for any number of
 * threads.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cpu_vectors.h"
#include "engine/embedding/pool_simd.h"
#include "engine/host_memory.h"
#include "engine/slot_bags.h"

/* Slots of a slice, about */
#define SLICE_SLOTS		4096

/* Keys of a slice of a gradient, about */
#define SLICE_KEYS		1024

/* A request: bags of slots, which threads take in slices */
typedef struct bags_run
{
	const cpu_bank *bank;
	const char *elements;		/* of slot 0 */
	const gpuvec_slot_bags *bags;
	gpuvec_pool_bag_function *pool_bag;
	const float *gradient;		/* of weights */
	float	   *out;
	uint64_t	nslices;
	bool		failed;			/* atomic: out of memory */
} bags_run;

/* What a thread works with for a slice of the bags */
typedef struct bags_slice
{
	const bags_run *run;
	uint64_t	first;			/* slot of the slice */
	const void **vectors;		/* of the slice's slots; NULL: not found */
	float	   *scratch;
	float	   *mean;
} bags_slice;

/* Number of bags; concat has one of all slots, which can be cut anywhere */
static uint64_t
count_bags(const gpuvec_slot_bags *bags)
{
	return bags->mode == GPUVEC_POOL_CONCAT ? bags->nslots : bags->nbags;
}

/* Where bag i begins, or where the last one ends */
static uint64_t
bag_start(const gpuvec_slot_bags *bags, uint64_t i)
{
	return bags->mode == GPUVEC_POOL_CONCAT ? i : gpuvec_bag_start(bags, i);
}

/* The first bag of a slice */
static uint64_t
slice_start(const bags_run *run, uint64_t slice)
{
	return (uint64_t) ((unsigned __int128) count_bags(run->bags) * slice / run->nslices);
}

static bags_run
make_run(gpuvec_device_bank *device_bank, const gpuvec_slot_bags *bags, float *out)
{
	const cpu_bank *bank = (const cpu_bank *) device_bank;
	uint64_t	nbags = count_bags(bags);
	bags_run	run = {
		.bank = bank, .elements = bank->elements, .bags = bags, .out = out,
		.pool_bag = gpuvec_best_pool_bag(), .nslices = bags->nslots / SLICE_SLOTS + 1
	};

	if (run.nslices > nbags)
		run.nslices = nbags;
	return run;
}

/* Find the vectors of slots */
static void
find_vectors(const bags_run *run, const uint32_t *slots, uint64_t n, const void **vectors)
{
	size_t		bytes = run->bank->vector_bytes;

	for (uint64_t i = 0; i < n; i++)
		vectors[i] = slots[i] == GPUVEC_NO_SLOT ? NULL : run->elements + slots[i] * bytes;
}

static void
end_slice(bags_slice *p)
{
	free(p->vectors);
	free(p->scratch);
}

/* Begin with the slots from `first` to `end`; false: out of memory */
static bool
begin_slice(bags_slice *p, const bags_run *run, uint64_t first, uint64_t end)
{
	size_t		width = run->bank->width;

	p->run = run;
	p->first = first;
	p->vectors = gpuvec_memory_new((end - first + 1) * sizeof(*p->vectors));
	p->scratch = malloc((width * (GPUVEC_SCRATCH_VECTORS + 1) + 1) * sizeof(float));
	if (p->vectors == NULL || p->scratch == NULL)
	{
		end_slice(p);
		return false;
	}
	p->mean = p->scratch + width * GPUVEC_SCRATCH_VECTORS;
	find_vectors(run, run->bags->slots + first, end - first, p->vectors);
	return true;
}

/* The bag of the slots from `first` to `end` */
static gpuvec_bag
get_bag(const bags_slice *p, uint64_t first, uint64_t end)
{
	const gpuvec_slot_bags *bags = p->run->bags;

	return (gpuvec_bag)
	{
		.keys = bags->keys ? bags->keys + first : NULL, .vectors = p->vectors + (first - p->first),
			.weights = bags->weights ? bags->weights + first : NULL, .n = end - first,
			.width = p->run->bank->width, .storage = p->run->bank->storage, .mode = bags->mode,
			.missing = bags->skip_missing && bags->mode != GPUVEC_POOL_CONCAT ?
			GPUVEC_MISSING_SKIP : GPUVEC_MISSING_ZERO,
			.scratch = p->scratch
	};
}

/* Pool the bags of a slice; those of concat are one */
static void
pool_bags(const bags_slice *p, uint64_t first, uint64_t end)
{
	const bags_run *run = p->run;
	float	   *out = run->out + first * run->bank->width;

	if (run->bags->mode == GPUVEC_POOL_CONCAT)
	{
		gpuvec_bag	bag = get_bag(p, first, end);

		(void) run->pool_bag(out, &bag);
		return;
	}
	for (uint64_t i = first; i < end; i++)
	{
		gpuvec_bag	bag = get_bag(p, gpuvec_bag_start(run->bags, i),
								  gpuvec_bag_start(run->bags, i + 1));

		out += run->pool_bag(out, &bag);
	}
}

/*
 * The gradients of the weights of the bags of a slice.  Sums of one slot each
 * are what concat makes of all of them.
 */
static void
weigh_bags(const bags_slice *p, uint64_t first, uint64_t end)
{
	const bags_run *run = p->run;

	if (run->bags->mode == GPUVEC_POOL_SUM && run->bags->offsets == NULL && run->bags->hotness == 1)
	{
		gpuvec_bag	bag = get_bag(p, first, end);

		bag.mode = GPUVEC_POOL_CONCAT;
		bag.missing = GPUVEC_MISSING_ZERO;
		gpuvec_bag_weight_gradients(run->out + first, &bag, run->gradient, p->mean, &first);
		return;
	}
	for (uint64_t i = first; i < end; i++)
	{
		uint64_t	start = gpuvec_bag_start(run->bags, i);
		uint64_t	row = i;
		gpuvec_bag	bag = get_bag(p, start, gpuvec_bag_start(run->bags, i + 1));

		gpuvec_bag_weight_gradients(run->out + start, &bag, run->gradient, p->mean, &row);
	}
}

/* Task: pool the bags of a slice, or compute the gradients of their weights */
static void
run_slice(void *task, uint64_t slice, int thread)
{
	bags_run   *run = task;
	uint64_t	first = slice_start(run, slice);
	uint64_t	end = slice_start(run, slice + 1);
	bags_slice	p;

	if (gpuvec_bags_canceled(run->bags->canceled))
		return;
	if (!begin_slice(&p, run, bag_start(run->bags, first), bag_start(run->bags, end)))
	{
		__atomic_store_n(&run->failed, true, __ATOMIC_RELAXED);
		return;
	}
	if (run->gradient)
		weigh_bags(&p, first, end);
	else
		pool_bags(&p, first, end);
	end_slice(&p);
}

static bool
run_bags(bags_run *run, gpuvec_error *error)
{
	cpu_run(run->bags->pool, run_slice, run, run->nslices);
	return !run->failed || gpuvec_fail_memory(error, run->bags->nslots * sizeof(void *));
}

bool
cpu_pool(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_slot_bags *bags,
		 float *out, gpuvec_error *error)
{
	bags_run	run = make_run(bank, bags, out);

	return run_bags(&run, error);
}

bool
cpu_weight_gradients(gpuvec_vectors *vectors, gpuvec_device_bank *bank,
					 const gpuvec_slot_bags *bags, const float *gradient, float *out,
					 gpuvec_error *error)
{
	bags_run	run = make_run(bank, bags, out);

	run.gradient = gradient;
	return run_bags(&run, error);
}

bool
cpu_pool_shared(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_slot_bags *bags,
				const float *gradient, float *out, gpuvec_error *error)
{
	bags_run	run = make_run(bank, bags, out);

	run.elements = run.bank->range->elements;
	run.gradient = gradient;
	return run_bags(&run, error);
}

/* ---- the gradient of vectors ---- */

/* The sums of the shares of all different keys */
typedef struct gradient_sums
{
	const gpuvec_slot_bags *bags;
	gpuvec_upstream up;
	gpuvec_sum_shares_function *sum_shares;
	const gpuvec_share *shares; /* sorted */
	uint64_t   *first;			/* [n + 1]: the first share of each key */
	uint64_t	n;				/* different keys */
	uint64_t	nslices;
	float	   *out;			/* [n * width] */
	bool		failed;			/* atomic: out of memory */
} gradient_sums;

/*
 * The number of slots for which there must be room while shares are collected
 * bag by bag; the bag of concat is cut into slices
 */
static uint64_t
longest_bag(const gpuvec_slot_bags *bags)
{
	uint64_t	longest = bags->offsets ? 0 : bags->hotness;

	if (bags->mode == GPUVEC_POOL_CONCAT)
		return SLICE_SLOTS;
	for (uint64_t i = 0; bags->offsets && i < bags->nbags; i++)
		if (bags->offsets[i + 1] - bags->offsets[i] > longest)
			longest = bags->offsets[i + 1] - bags->offsets[i];
	return longest;
}

/* Collect the shares of all bags; returns their number */
static uint64_t
collect_shares(const bags_run *run, const void **vectors, gpuvec_share *shares)
{
	const gpuvec_slot_bags *bags = run->bags;
	bool		concat = bags->mode == GPUVEC_POOL_CONCAT;
	uint64_t	nbags = concat ? (bags->nslots + SLICE_SLOTS - 1) / SLICE_SLOTS : bags->nbags;
	uint64_t	n = 0;
	uint64_t	row = 0;

	for (uint64_t i = 0; i < nbags; i++)
	{
		uint64_t	first = concat ? i * SLICE_SLOTS : gpuvec_bag_start(bags, i);
		uint64_t	end = concat ? first + SLICE_SLOTS : gpuvec_bag_start(bags, i + 1);
		bags_slice	p = {.run = run, .first = first, .vectors = vectors};
		gpuvec_bag	bag = get_bag(&p, first, end < bags->nslots ? end : bags->nslots);

		find_vectors(run, bags->slots + first, bag.n, vectors);
		n += gpuvec_bag_shares(shares + n, &bag, &row);
	}
	return n;
}

/* Find where the shares of each key begin */
static void
find_keys(gradient_sums *g, uint64_t nshares)
{
	for (uint64_t i = 0; i < nshares; i++)
		if (i == 0 || g->shares[i].key != g->shares[i - 1].key)
			g->first[g->n++] = i;
	g->first[g->n] = nshares;
}

/* Task: sum the shares of the keys of a slice */
static void
sum_slice(void *task, uint64_t slice, int thread)
{
	gradient_sums *g = task;
	uint64_t	end = g->n * (slice + 1) / g->nslices;
	float	   *scratch;

	if (gpuvec_bags_canceled(g->bags->canceled))
		return;
	scratch = malloc(((size_t) g->up.width * GPUVEC_SCRATCH_VECTORS + 1) * sizeof(float));
	if (scratch == NULL)
		__atomic_store_n(&g->failed, true, __ATOMIC_RELAXED);
	for (uint64_t i = g->n * slice / g->nslices; scratch && i < end; i++)
		g->sum_shares(g->out + i * g->up.width, g->shares + g->first[i],
					  g->first[i + 1] - g->first[i], &g->up, scratch);
	free(scratch);
}

/* Sum all shares into a new body, behind the keys */
static bool
sum_keys(gradient_sums *g, uint64_t most, void **body, gpuvec_error *error)
{
	size_t		bytes = g->n * (sizeof(int64_t) + g->up.width * sizeof(float));
	int64_t    *keys = g->n <= most ? gpuvec_memory_new(bytes + 1) : NULL;

	if (keys == NULL)
		return gpuvec_fail_memory(error, bytes);
	for (uint64_t i = 0; i < g->n; i++)
		keys[i] = g->shares[g->first[i]].key;
	g->out = (float *) (keys + g->n);
	g->nslices = g->n / SLICE_KEYS + 1;
	cpu_run(g->bags->pool, sum_slice, g, g->nslices);
	if (g->failed)
	{
		free(keys);
		return gpuvec_fail_memory(error, g->up.width * sizeof(float));
	}
	*body = keys;
	return true;
}

bool
cpu_gradient(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_slot_bags *bags,
			 const float *gradient, uint64_t most, uint64_t *n, void **body, gpuvec_error *error)
{
	bags_run	run = make_run(bank, bags, NULL);
	gpuvec_share *shares = gpuvec_memory_new((bags->nslots + 1) * sizeof(*shares));
	gpuvec_share *spare = gpuvec_memory_new((bags->nslots + 1) * sizeof(*spare));
	gradient_sums g = {
		.bags = bags, .sum_shares = gpuvec_best_sum_shares(),
		.first = gpuvec_memory_new((bags->nslots + 2) * sizeof(uint64_t)),
		.up = {
			.gradient = gradient, .width = run.bank->width,
			.factors = bags->weights != NULL || bags->mode == GPUVEC_POOL_MEAN
		}
	};
	const void **found = gpuvec_memory_new((longest_bag(bags) + 1) * sizeof(*found));
	bool		ok = shares && spare && g.first && found;

	if (ok)
	{
		uint64_t	nshares = collect_shares(&run, found, shares);

		g.shares = gpuvec_sort_shares(shares, spare, nshares);
		find_keys(&g, nshares);
		*n = g.n;
		ok = sum_keys(&g, most, body, error);
	}
	else
		gpuvec_fail_memory(error, bags->nslots * sizeof(*shares));
	free(found);
	free(shares);
	free(spare);
	free(g.first);
	return ok;
}
