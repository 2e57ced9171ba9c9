/*-------------------------------------------------------------------------
 *
 * on_device.c
 *	  Gathering, pooling and gradients with vectors on a device.
 *
 * The host has resolved the keys to slots; the device gets bags of slots
 * (embedding_backend.h).  A concatenation that skips keys that were not found
 * is one of fewer slots.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/embedding/reading.h"
#include "engine/host_memory.h"

/*
 * Describe the bags of a request.  If a concatenation skips keys, r->slots is
 * compacted, and the weights of its slots go to weights[nkeys] (NULL: no
 * weights).
 */
static gpuvec_slot_bags
describe_bags(gpuvec_reading *r, float *weights)
{
	gpuvec_slot_bags bags = {
		.slots = r->slots, .nslots = r->nkeys, .nbags = r->nbags, .hotness = r->hotness,
		.offsets = r->hotness > 0 ? NULL : r->q->offsets, .weights = r->q->weights,
		.mode = r->mode, .skip_missing = r->missing == GPUVEC_MISSING_SKIP,
		.canceled = r->q->canceled
	};
	uint64_t	n = 0;

	if (r->mode != GPUVEC_POOL_CONCAT || r->missing != GPUVEC_MISSING_SKIP)
		return bags;
	for (uint64_t i = 0; i < r->nkeys; i++)
	{
		if (r->slots[i] == GPUVEC_NO_SLOT)
			continue;
		if (r->q->weights)
			weights[n] = r->q->weights[i];
		r->slots[n++] = r->slots[i];
	}
	bags.nslots = n;
	bags.weights = weights;
	return bags;
}

/* Number of rows that pooling returns */
static uint64_t
pooled_rows(const gpuvec_slot_bags *bags)
{
	return bags->mode == GPUVEC_POOL_CONCAT ? bags->nslots : bags->nbags;
}

/* Serve a request to gather or pool */
static bool
pool_slots(gpuvec_reading *r, const gpuvec_bank *bank, const gpuvec_slot_bags *bags,
		   gpuvec_error *error)
{
	gpuvec_vectors *vectors = r->table->vectors;

	if (gpuvec_reading_too_large(r))
		return true;
	r->q->answer.count = pooled_rows(bags) * bank->width;
	r->q->body_size = r->q->answer.count * sizeof(float);
	r->q->body = gpuvec_memory_new(r->q->body_size);
	if (r->q->body == NULL)
		return gpuvec_fail_memory(error, r->q->body_size);
	return vectors->pool(vectors, bank->device, bags, r->q->body, error);
}

/*
 * Set *too_many if there are more than `most` different slots.  The device
 * needs memory for the whole gradient, so this is checked before.
 */
static bool
too_many_slots(const gpuvec_bank *bank, const gpuvec_slot_bags *bags, uint64_t most, bool *too_many,
			   gpuvec_error *error)
{
	size_t		nwords = bank->nlive / 64 + 1;
	uint64_t   *seen;
	uint64_t	n = 0;

	*too_many = false;
	if (bags->nslots <= most || bank->nlive <= most)
		return true;
	seen = calloc(nwords, sizeof(uint64_t));
	if (seen == NULL)
		return gpuvec_fail_memory(error, nwords * sizeof(uint64_t));
	for (uint64_t i = 0; i < bags->nslots && n <= most; i++)
	{
		uint32_t	slot = bags->slots[i];
		uint64_t	bit = UINT64_C(1) << slot % 64;

		if (slot == GPUVEC_NO_SLOT)
			continue;
		n += (seen[slot / 64] & bit) == 0;
		seen[slot / 64] |= bit;
	}
	free(seen);
	*too_many = n > most;
	return true;
}

/* Compute the gradient of the vectors */
static bool
slot_gradient(gpuvec_reading *r, const gpuvec_bank *bank, const gpuvec_slot_bags *bags,
			  gpuvec_error *error)
{
	gpuvec_vectors *vectors = r->table->vectors;
	gpuvec_embedding_answer *answer = &r->q->answer;
	uint64_t	most = gpuvec_reading_limit() / (bank->width + 2);
	uint64_t	n;
	bool		too_many;

	if (!too_many_slots(bank, bags, most, &too_many, error))
		return false;
	if (too_many)
	{
		answer->status = GPUVEC_EMBEDDING_LARGE;
		return true;
	}
	if (!vectors->gradient(vectors, bank->device, bags, r->q->gradient, most, &n, &r->q->body,
						   error))
		return false;
	answer->nrows = n;
	answer->count = n * bank->width;
	r->q->body_size = n * sizeof(int64_t) + answer->count * sizeof(float);
	return true;
}

/*
 * Spread the weights' gradients of a concatenation to all keys; skipped keys
 * have 0
 */
static void
spread_gradients(const gpuvec_reading *r, float *out, const float *gradients)
{
	uint64_t	n = 0;

	for (uint64_t i = 0; i < r->nkeys; i++)
		out[i] = r->rows[i].vector != NULL ? gradients[n++] : 0;
}

/* The divisors of all bags' means; malloc'd */
static float *
mean_divisors(const gpuvec_reading *r, gpuvec_error *error)
{
	float	   *divisors = malloc((r->nbags + 1) * sizeof(float));

	if (divisors == NULL)
		gpuvec_fail_memory(error, r->nbags * sizeof(float));
	for (uint64_t i = 0; divisors && i < r->nbags; i++)
	{
		gpuvec_bag	bag = gpuvec_reading_get(r, i, NULL);

		divisors[i] = gpuvec_bag_divisor(&bag);
	}
	return divisors;
}

/*
 * Compute the weights' gradients of a concatenation, which may have fewer
 * slots than keys
 */
static bool
concat_weight_gradients(gpuvec_reading *r, const gpuvec_bank *bank, gpuvec_slot_bags *bags,
						gpuvec_error *error)
{
	gpuvec_vectors *vectors = r->table->vectors;
	float	   *out;
	bool		ok;

	/* each slot is a bag of its own, summed */
	bags->mode = GPUVEC_POOL_SUM;
	bags->offsets = NULL;
	bags->hotness = 1;
	bags->nbags = bags->nslots;
	if (bags->nslots == r->nkeys)
		return vectors->weight_gradients(vectors, bank->device, bags, r->q->gradient, r->q->body,
										 error);
	out = malloc(bags->nslots * sizeof(float) + 1);
	if (out == NULL)
		return gpuvec_fail_memory(error, bags->nslots * sizeof(float));
	ok = vectors->weight_gradients(vectors, bank->device, bags, r->q->gradient, out, error);
	if (ok)
		spread_gradients(r, r->q->body, out);
	free(out);
	return ok;
}

/* Compute the gradients of the weights */
static bool
slot_weight_gradients(gpuvec_reading *r, const gpuvec_bank *bank, gpuvec_slot_bags *bags,
					  gpuvec_error *error)
{
	gpuvec_vectors *vectors = r->table->vectors;
	float	   *divisors = NULL;
	bool		ok;

	r->q->answer.count = r->nkeys;
	r->q->body_size = r->nkeys * sizeof(float);
	r->q->body = gpuvec_memory_new(r->q->body_size);
	if (r->q->body == NULL)
		return gpuvec_fail_memory(error, r->q->body_size);
	if (bags->mode == GPUVEC_POOL_CONCAT)
		return concat_weight_gradients(r, bank, bags, error);
	if (bags->mode == GPUVEC_POOL_MEAN && (divisors = mean_divisors(r, error)) == NULL)
		return false;
	bags->divisors = divisors;
	ok = vectors->weight_gradients(vectors, bank->device, bags, r->q->gradient, r->q->body, error);
	free(divisors);
	return ok;
}

/* Serve a request, given its bags of slots */
static bool
serve_slots(gpuvec_reading *r, gpuvec_slot_bags *bags, gpuvec_error *error)
{
	const gpuvec_bank *bank = r->table->banks[r->main_bank];

	if (r->q->head.op != GPUVEC_EMBEDDING_GRAD && r->q->head.op != GPUVEC_EMBEDDING_GRAD_WEIGHTS)
		return pool_slots(r, bank, bags, error);
	if (!gpuvec_reading_check_gradient(r, pooled_rows(bags)))
		return true;
	return r->q->head.op == GPUVEC_EMBEDDING_GRAD ? slot_gradient(r, bank, bags, error) :
		slot_weight_gradients(r, bank, bags, error);
}

bool
gpuvec_reading_device(gpuvec_reading *r, gpuvec_error *error)
{
	float	   *weights = r->q->weights ? malloc(r->nkeys * sizeof(float) + 1) : NULL;
	gpuvec_slot_bags bags;
	bool		ok;

	if (r->q->weights && weights == NULL)
		return gpuvec_fail_memory(error, r->nkeys * sizeof(float));
	bags = describe_bags(r, weights);
	ok = serve_slots(r, &bags, error);
	free(weights);
	return ok;
}
