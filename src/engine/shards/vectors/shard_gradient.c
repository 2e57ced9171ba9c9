/*-------------------------------------------------------------------------
 *
 * shard_gradient.c
 *	  Gradients of vectors, with vectors on several devices.
 *
 * All shares of the gradient of a vector go to the child that has the vector,
 * in the order of the request, and are summed there.  So nothing is exchanged
 * between children; their answers are merged by key.
 *
 * A child does not know the keys of the bags that others have, and so neither
 * the divisor of a mean.  The host computes the factors of all shares, and
 * asks for the gradient of a sum with these as weights.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "core/pooling_grad.h"
#include "engine/host_memory.h"
#include "engine/shards/vectors/shard_bank.h"

/* Rows of a merged answer that one task copies */
#define ROWS_AT_ONCE	1024

/* A child's answer: its keys, ascending, and their gradients */
typedef struct child_gradient
{
	uint64_t	n;
	void	   *body;			/* malloc'd, or NULL */
	uint64_t	next;			/* the first that is not merged */
} child_gradient;

typedef struct gradient_request
{
	const shard_bank *bank;
	gpuvec_slot_bags bags;		/* plain */
	const float *gradient;
	const float *factors;		/* [nslots], or NULL */
	uint64_t	most;
	shard_split split;
	child_gradient answers[GPUVEC_MAX_CHILDREN];
} gradient_request;

/* The factors of the shares of one bag of a mean */
static void
bag_factors(float *factors, const gpuvec_slot_bags *bags, uint64_t i, const void **vectors)
{
	uint64_t	first = gpuvec_bag_start(bags, i);
	gpuvec_bag	bag = {
		.vectors = vectors, .n = gpuvec_bag_start(bags, i + 1) - first,
		.weights = bags->weights ? bags->weights + first : NULL,
		.missing = bags->skip_missing ? GPUVEC_MISSING_SKIP : GPUVEC_MISSING_ZERO
	};
	float		divisor;

	/* only whether there is a vector matters */
	for (uint64_t j = 0; j < bag.n; j++)
		vectors[j] = bags->slots[first + j] == GPUVEC_NO_SLOT ? NULL : factors;
	divisor = gpuvec_bag_divisor(&bag);
	for (uint64_t j = 0; j < bag.n; j++)
		factors[first + j] = divisor == 0 ? 0 : (bag.weights ? bag.weights[j] : 1) / divisor;
}

/* The factors of all shares of a mean; malloc'd */
static float *
mean_factors(const gpuvec_slot_bags *bags, gpuvec_error *error)
{
	float	   *factors = gpuvec_memory_new(bags->nslots * sizeof(float) + 1);
	const void **vectors;
	uint64_t	longest = 0;

	for (uint64_t i = 0; i < bags->nbags; i++)
	{
		uint64_t	n = gpuvec_bag_start(bags, i + 1) - gpuvec_bag_start(bags, i);

		longest = n > longest ? n : longest;
	}
	vectors = malloc((longest + 1) * sizeof(*vectors));
	if (factors && vectors)
		for (uint64_t i = 0; i < bags->nbags; i++)
			bag_factors(factors, bags, i, vectors);
	else
	{
		free(factors);
		factors = NULL;
		gpuvec_fail_memory(error, bags->nslots * sizeof(float));
	}
	free(vectors);
	return factors;
}

/*
 * The keys of a child's slots, at[n] of the request, if it has to be told;
 * malloc'd
 */
static bool
take_keys(const gradient_request *g, const gpuvec_vectors *child, const uint64_t *at, uint64_t n,
		  int64_t **keys, gpuvec_error *error)
{
	*keys = child->on_host ? malloc(n * sizeof(**keys) + 1) : NULL;
	if (child->on_host && *keys == NULL)
		return gpuvec_fail_memory(error, n * sizeof(**keys));
	for (uint64_t i = 0; *keys && i < n; i++)
		(*keys)[i] = g->bags.keys[at[i]];
	return true;
}

/* Let a child compute the gradients of its vectors */
static bool
ask_gradient(void *arg, uint32_t i, gpuvec_error *error)
{
	gradient_request *g = arg;
	gpuvec_vectors *child = g->bank->shards->children[i].vectors;
	child_gradient *answer = &g->answers[i];
	uint64_t	n = shard_split_count(&g->split, i);
	const uint64_t *at = g->split.at + g->split.first[i];
	shard_bags	mine;
	int64_t    *keys;
	bool		ok;

	if (n == 0)
		return true;
	if (!gpuvec_shard_bags_new(&mine, g->bank, &g->bags, g->factors, g->gradient, at, n, error))
		return false;
	ok = take_keys(g, child, at, n, &keys, error);
	mine.bags.keys = keys;
	ok = ok && child->gradient(child, g->bank->children[i].bank, &mine.bags, mine.gradient, g->most,
							   &answer->n, &answer->body, error);
	free(keys);
	if (!ok)
		*answer = (child_gradient)
	{
		.n = 0
	};
	gpuvec_shard_bags_free(&mine);
	return ok;
}

/* The child whose next key is least; n: none is left */
static uint32_t
least_key(const gradient_request *g, int64_t *key)
{
	uint32_t	best = g->bank->shards->n;

	for (uint32_t i = 0; i < g->bank->shards->n; i++)
	{
		const child_gradient *answer = &g->answers[i];
		int64_t		next;

		if (answer->next == answer->n)
			continue;
		next = ((const int64_t *) answer->body)[answer->next];
		if (best == g->bank->shards->n || next < *key)
		{
			best = i;
			*key = next;
		}
	}
	return best;
}

/* The rows of a merged answer, which threads copy */
typedef struct gradient_copy
{
	const float *const *from;	/* [n] each row in a child's answer */
	float	   *to;
	uint64_t	n;
	uint32_t	width;
} gradient_copy;

/* Task: copy some rows */
static void
copy_rows(void *task, uint64_t shard, int thread)
{
	const gradient_copy *c = task;
	uint64_t	end = (shard + 1) * ROWS_AT_ONCE;

	(void) thread;
	for (uint64_t i = shard * ROWS_AT_ONCE; i < end && i < c->n; i++)
		memcpy(c->to + i * c->width, c->from[i], c->width * sizeof(float));
}

/* Merge the keys of the children, and note where their rows lie */
static void
merge_keys(gradient_request *g, int64_t *keys, const float **from)
{
	uint32_t	i;
	int64_t		key = 0;

	while ((i = least_key(g, &key)) < g->bank->shards->n)
	{
		child_gradient *answer = &g->answers[i];
		const float *rows = (const float *) ((const int64_t *) answer->body + answer->n);

		*keys++ = key;
		*from++ = rows + answer->next++ * g->bank->width;
	}
}

/* Merge the answers of the children */
static bool
merge_gradients(gradient_request *g, uint64_t *n, void **body, gpuvec_error *error)
{
	gradient_copy copy = {.width = g->bank->width};
	size_t		bytes;
	const float **from;
	int64_t    *keys;
	uint64_t	nshards;

	for (uint32_t i = 0; i < g->bank->shards->n; i++)
		copy.n += g->answers[i].n;
	bytes = copy.n * (sizeof(int64_t) + copy.width * sizeof(float)) + 1;
	keys = gpuvec_memory_new(bytes);
	from = gpuvec_memory_new(copy.n * sizeof(*from) + 1);
	if (keys == NULL || from == NULL)
	{
		free(keys);
		free(from);
		return gpuvec_fail_memory(error, bytes);
	}
	merge_keys(g, keys, from);
	copy.from = from;
	copy.to = (float *) (keys + copy.n);
	nshards = (copy.n + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
	if (nshards <= 1)
		copy_rows(&copy, 0, 0);
	else
		gpuvec_thread_pool_run(g->bank->shards->summing, copy_rows, &copy, nshards);
	free(from);
	*n = copy.n;
	*body = keys;
	return true;
}

/* The gradient of vectors of a spread bank */
static bool
spread_gradient(gradient_request *g, uint64_t *n, void **body, gpuvec_error *error)
{
	shard_vectors *shards = g->bank->shards;
	float	   *factors = NULL;
	bool		ok = true;

	g->factors = g->bags.weights;
	if (g->bags.mode == GPUVEC_POOL_MEAN)
	{
		g->factors = factors = mean_factors(&g->bags, error);
		ok = factors != NULL;
	}
	ok = ok &&
		gpuvec_shard_split_slots(&g->split, shards, g->bags.slots, g->bags.nslots, error) &&
		gpuvec_shard_ask(shards, ask_gradient, g, g->bags.nslots >= shards->policy.beside, error) &&
		merge_gradients(g, n, body, error);
	for (uint32_t i = 0; i < shards->n; i++)
		free(g->answers[i].body);
	free(g->split.at);
	free(factors);
	return ok;
}

bool
gpuvec_shard_gradient(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
					  const gpuvec_slot_bags *bags, const float *gradient, uint64_t most,
					  uint64_t *n, void **body, gpuvec_error *error)
{
	shard_vectors *shards = shard_vectors_of(vectors);
	shard_bank *bank = shard_bank_of(device_bank);
	gradient_request g = {
		.bank = bank, .bags = gpuvec_plain_bags(bags), .gradient = gradient, .most = most
	};
	gpuvec_vectors *child;
	uint32_t	i;
	bool		ok;

	if (!bank->copies)
		return spread_gradient(&g, n, body, error);
	i = gpuvec_shard_take(shards);
	child = shards->children[i].vectors;
	ok = child->gradient(child, bank->children[i].bank, bags, gradient, most, n, body, error);
	return gpuvec_shard_give(shards, i, ok, error);
}
