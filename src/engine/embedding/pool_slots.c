/*-------------------------------------------------------------------------
 *
 * pool_slots.c
 *	  Gathering, pooling and gradients.
 *
 * Keys have been resolved to slots; the backend gets bags of slots
 * (embedding_backend.h).  A concatenation that skips keys that were not found
 * is one of fewer slots.  Gathering is concatenation of bags of one key each,
 * without the keys that were not found.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "core/pooling_grad.h"
#include "engine/embedding/reading.h"
#include "engine/fault.h"
#include "engine/host_memory.h"

/* Most floats that fit an answer */
#define MAX_ELEMENTS	((GPUVEC_MAX_FRAME - sizeof(gpuvec_embedding_answer)) / sizeof(float))

/* A request, and its bags of slots */
typedef struct slots_run
{
	gpuvec_reading *r;
	const gpuvec_bank *bank;
	gpuvec_thread_pool *pool;
	gpuvec_slot_bags bags;
	float	   *weights;		/* [nkeys], or NULL: of slots that are left */
	int64_t    *keys;			/* [nkeys], or NULL: their keys */
} slots_run;

/* True if slots of keys that were not found are left out */
static bool
drops_slots(const gpuvec_reading *r)
{
	return r->mode == GPUVEC_POOL_CONCAT && r->missing == GPUVEC_MISSING_SKIP;
}

/* Leave out the slots of keys that were not found, with all that is theirs */
static void
drop_slots(slots_run *s)
{
	gpuvec_reading *r = s->r;
	uint64_t	n = 0;

	for (uint64_t i = 0; i < r->nkeys; i++)
	{
		if (r->slots[i] == GPUVEC_NO_SLOT)
			continue;
		if (s->weights)
			s->weights[n] = r->q->weights[i];
		if (s->keys)
			s->keys[n] = r->q->keys[i];
		r->slots[n++] = r->slots[i];
	}
	s->bags.nslots = n;
	s->bags.weights = s->weights;
	s->bags.keys = s->keys;
}

/* Describe the bags of a request */
static bool
describe_bags(slots_run *s, gpuvec_error *error)
{
	gpuvec_reading *r = s->r;
	bool		drops = drops_slots(r) && r->nfound < r->nkeys;
	bool		by_key = r->q->head.op == GPUVEC_EMBEDDING_GRAD;

	s->bags = (gpuvec_slot_bags)
	{
		.slots = r->slots, .nslots = r->nkeys, .nbags = r->nbags, .hotness = r->hotness,
			.offsets = r->hotness > 0 ? NULL : r->q->offsets, .weights = r->q->weights,
			.mode = r->mode, .skip_missing = r->missing == GPUVEC_MISSING_SKIP,
			.keys = r->q->keys, .pool = s->pool, .canceled = r->q->canceled
	};
	if (!drops)
		return true;
	s->weights = r->q->weights ? malloc(r->nkeys * sizeof(float) + 1) : NULL;
	s->keys = by_key ? malloc(r->nkeys * sizeof(int64_t) + 1) : NULL;
	if ((r->q->weights && s->weights == NULL) || (by_key && s->keys == NULL))
		return gpuvec_fail_memory(error, r->nkeys * sizeof(int64_t));
	drop_slots(s);
	return true;
}

/* Number of rows that pooling returns */
static uint64_t
pooled_rows(const gpuvec_slot_bags *bags)
{
	return bags->mode == GPUVEC_POOL_CONCAT ? bags->nslots : bags->nbags;
}

/* Most floats that an answer may have: MAX_ELEMENTS, or fewer in tests */
static uint64_t
answer_limit(void)
{
	long		limit = MAX_ELEMENTS;

	(void) gpuvec_fault("embed-limit", &limit);
	return (uint64_t) limit;
}

/*
 * If pooling would give too many floats for an answer, answer so, and return
 * true.  What counts is the largest possible answer, so that nothing is pooled
 * in vain.
 */
static bool
is_too_large(gpuvec_reading *r)
{
	gpuvec_embedding_answer *answer = &r->q->answer;
	uint64_t	limit = answer_limit();
	uint64_t	found = r->q->found ? (r->nkeys + 7) / 8 * (8 / sizeof(float)) : 0;

	if (found <= limit &&
		(answer->width == 0 ||
		 (r->mode == GPUVEC_POOL_CONCAT ? r->nkeys : r->nbags) <= (limit - found) / answer->width))
		return false;
	answer->status = GPUVEC_EMBEDDING_LARGE;
	return true;
}

/*
 * Unless the upstream gradient has `rows` rows, answer so, and return false
 */
static bool
check_gradient(gpuvec_reading *r, uint64_t rows)
{
	uint64_t	width = r->q->answer.width;

	if (r->q->head.ngradient == rows * width)
		return true;
	r->q->answer.status = GPUVEC_EMBEDDING_GRADIENT;
	r->q->answer.count = rows * width;
	return false;
}

/* Allocate an answer of n floats */
static float *
new_answer(gpuvec_reading *r, uint64_t n, gpuvec_error *error)
{
	r->q->answer.count = n;
	r->q->body_size = n * sizeof(float);
	r->q->body = gpuvec_memory_new(r->q->body_size);
	if (r->q->body == NULL)
		gpuvec_fail_memory(error, r->q->body_size);
	return r->q->body;
}

/* Serve a request to gather or pool */
static bool
pool_slots(slots_run *s, gpuvec_error *error)
{
	gpuvec_vectors *backend = s->bank->backend;
	float	   *out;

	if (is_too_large(s->r))
		return true;
	out = new_answer(s->r, pooled_rows(&s->bags) * s->bank->width, error);
	return out && backend->pool(backend, s->bank->vectors, &s->bags, out, error);
}

/*
 * Set *too_many if there are more than `most` different slots.  The backend
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
slot_gradient(slots_run *s, gpuvec_error *error)
{
	gpuvec_vectors *backend = s->bank->backend;
	gpuvec_embedding_query *q = s->r->q;
	uint64_t	most = answer_limit() / (s->bank->width + 2);
	uint64_t	n;
	bool		too_many;

	if (!too_many_slots(s->bank, &s->bags, most, &too_many, error))
		return false;
	if (too_many)
	{
		q->answer.status = GPUVEC_EMBEDDING_LARGE;
		return true;
	}
	if (!backend->gradient(backend, s->bank->vectors, &s->bags, q->gradient, most, &n, &q->body,
						   error))
		return false;
	q->answer.nrows = n;
	q->answer.count = n * s->bank->width;
	q->body_size = n * sizeof(int64_t) + q->answer.count * sizeof(float);
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
		out[i] = r->rows[i] == GPUVEC_NO_VECTOR ? 0 : gradients[n++];
}

/* The divisor of a bag's mean; vectors[] has room for all its keys */
static float
bag_divisor(const gpuvec_reading *r, uint64_t i, const void **vectors)
{
	uint64_t	first = gpuvec_reading_bag(r, i);
	gpuvec_bag	bag = {
		.vectors = vectors, .n = gpuvec_reading_bag(r, i + 1) - first, .missing = r->missing,
		.weights = r->q->weights ? r->q->weights + first : NULL
	};

	/* only whether there is a vector matters */
	for (uint64_t j = 0; j < bag.n; j++)
		vectors[j] = r->slots[first + j] == GPUVEC_NO_SLOT ? NULL : vectors;
	return gpuvec_bag_divisor(&bag);
}

/* The divisors of all bags' means; malloc'd */
static float *
mean_divisors(const gpuvec_reading *r, gpuvec_error *error)
{
	float	   *divisors = malloc((r->nbags + 1) * sizeof(float));
	const void **vectors = malloc((r->nkeys + 1) * sizeof(*vectors));

	if (divisors == NULL || vectors == NULL)
	{
		free(divisors);
		free(vectors);
		gpuvec_fail_memory(error, r->nbags * sizeof(float));
		return NULL;
	}
	for (uint64_t i = 0; i < r->nbags; i++)
		divisors[i] = bag_divisor(r, i, vectors);
	free(vectors);
	return divisors;
}

/*
 * Compute the weights' gradients of a concatenation, which may have fewer
 * slots than keys
 */
static bool
concat_weight_gradients(slots_run *s, float *out, gpuvec_error *error)
{
	gpuvec_vectors *backend = s->bank->backend;
	gpuvec_slot_bags *bags = &s->bags;
	const float *gradient = s->r->q->gradient;
	float	   *some;
	bool		ok;

	/* each slot is a bag of its own, summed */
	bags->mode = GPUVEC_POOL_SUM;
	bags->offsets = NULL;
	bags->hotness = 1;
	bags->nbags = bags->nslots;
	if (bags->nslots == s->r->nkeys)
		return backend->weight_gradients(backend, s->bank->vectors, bags, gradient, out, error);
	some = malloc(bags->nslots * sizeof(float) + 1);
	if (some == NULL)
		return gpuvec_fail_memory(error, bags->nslots * sizeof(float));
	ok = backend->weight_gradients(backend, s->bank->vectors, bags, gradient, some, error);
	if (ok)
		spread_gradients(s->r, out, some);
	free(some);
	return ok;
}

/* Compute the gradients of the weights */
static bool
slot_weight_gradients(slots_run *s, gpuvec_error *error)
{
	gpuvec_vectors *backend = s->bank->backend;
	float	   *out = new_answer(s->r, s->r->nkeys, error);
	float	   *divisors = NULL;
	bool		ok;

	if (out == NULL)
		return false;
	if (s->bags.mode == GPUVEC_POOL_CONCAT)
		return concat_weight_gradients(s, out, error);
	/* on the host each thread sums those of its bags */
	if (s->bags.mode == GPUVEC_POOL_MEAN && !backend->on_host &&
		(divisors = mean_divisors(s->r, error)) == NULL)
		return false;
	s->bags.divisors = divisors;
	ok = backend->weight_gradients(backend, s->bank->vectors, &s->bags, s->r->q->gradient, out,
								   error);
	free(divisors);
	return ok;
}

/* Serve a request, given its bags of slots */
static bool
serve_slots(slots_run *s, gpuvec_error *error)
{
	uint32_t	op = s->r->q->head.op;

	if (op != GPUVEC_EMBEDDING_GRAD && op != GPUVEC_EMBEDDING_GRAD_WEIGHTS)
		return pool_slots(s, error);
	if (!check_gradient(s->r, pooled_rows(&s->bags)))
		return true;
	return op == GPUVEC_EMBEDDING_GRAD ? slot_gradient(s, error) : slot_weight_gradients(s, error);
}

bool
gpuvec_reading_slots(gpuvec_reading *r, gpuvec_thread_pool *pool, gpuvec_error *error)
{
	slots_run	s = {.r = r, .bank = r->table->banks[r->main_bank], .pool = pool};
	bool		ok = describe_bags(&s, error) && serve_slots(&s, error);

	free(s.weights);
	free(s.keys);
	return ok;
}
