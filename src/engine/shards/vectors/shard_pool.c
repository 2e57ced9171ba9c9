/*-------------------------------------------------------------------------
 *
 * shard_pool.c
 *	  Pooling, and gradients of weights, with vectors on several devices.
 *
 * With copies, any child can serve any bag.  So it can if the bank is spread
 * and children read each other's vectors.
 *
 * Otherwise the vectors of a chunk of bags are fetched from the
 * children, each once, however often the bags have it.  The host adds them up
 * in the order of each bag.  Sums of the children's sums would have other
 * bits.  Gradients of weights of sums need no such exchange: each is one
 * product, which the child computes that has the vector.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "core/key_hash.h"
#include "core/pooling_grad.h"
#include "engine/host_memory.h"
#include "engine/shards/vectors/shard_bank.h"

/* A request to pool, or for the gradients of weights (gradient not NULL) */
typedef struct pool_request
{
	shard_bank *bank;
	gpuvec_slot_bags bags;		/* plain: for concat each slot is a bag */
	const float *gradient;
	float	   *out;
} pool_request;

/* ---- bags that any child can serve ---- */

/*
 * The slots of bags, as numbers of all children's slots; malloc'd
 */
static uint32_t *
number_slots(const shard_bank *bank, const gpuvec_slot_bags *bags, gpuvec_error *error)
{
	uint32_t   *numbers = malloc(bags->nslots * sizeof(*numbers) + 1);
	uint32_t	n = bank->shards->n;
	uint32_t	distance = bank->distance;
	double		inverse = 1.0 / n;

	if (numbers == NULL)
	{
		gpuvec_fail_memory(error, bags->nslots * sizeof(*numbers));
		return NULL;
	}
	for (uint64_t i = 0; i < bags->nslots; i++)
	{
		uint32_t	slot = bags->slots[i];

		/*
		 * slot / n, as vector registers can do it.  Slots are less than 2^31,
		 * so the product is nearer to (slot + 0.5) / n than that is to an
		 * integer.
		 */
		uint32_t	own = (uint32_t) (int32_t) (((int32_t) slot + 0.5) * inverse);
		uint32_t	number = (slot - own * n) * distance + own;

		numbers[i] = slot == GPUVEC_NO_SLOT ? slot : number;
	}
	return numbers;
}

/* Let a child serve bags */
static bool
ask_bags(const pool_request *r, uint32_t i, gpuvec_slot_bags *mine, const float *gradient,
		 float *out, gpuvec_error *error)
{
	gpuvec_vectors *child = r->bank->shards->children[i].vectors;
	gpuvec_device_bank *bank = r->bank->children[i].bank;
	uint32_t   *numbers;
	bool		ok;

	if (r->bank->copies)
		return gradient ? child->weight_gradients(child, bank, mine, gradient, out, error) :
			child->pool(child, bank, mine, out, error);
	mine->slots = numbers = number_slots(r->bank, mine, error);
	ok = numbers && child->pool_shared(child, bank, mine, gradient, out, error);
	free(numbers);
	return ok;
}

/* The shard of a request that has the bags [first, end), served by a child */
static bool
serve_bags(const pool_request *r, uint32_t i, uint64_t first, uint64_t end, gpuvec_error *error)
{
	uint64_t	start = gpuvec_bag_start(&r->bags, first);
	uint64_t	row = first * r->bank->width;
	uint64_t   *offsets = NULL;
	gpuvec_slot_bags mine = r->bags;
	bool		ok;

	mine.slots += start;
	mine.nslots = gpuvec_bag_start(&r->bags, end) - start;
	mine.nbags = end - first;
	if (mine.weights)
		mine.weights += start;
	if (mine.divisors)
		mine.divisors += first;
	if (mine.offsets)
	{
		offsets = malloc((mine.nbags + 1) * sizeof(*offsets));
		if (offsets == NULL)
			return gpuvec_fail_memory(error, mine.nbags * sizeof(*offsets));
		for (uint64_t bag = 0; bag <= mine.nbags; bag++)
			offsets[bag] = r->bags.offsets[first + bag] - start;
		mine.offsets = offsets;
	}
	ok = r->gradient ? ask_bags(r, i, &mine, r->gradient + row, r->out + start, error) :
		ask_bags(r, i, &mine, NULL, r->out + row, error);
	free(offsets);
	return ok;
}

/* The first bag that starts at a slot or behind it */
static uint64_t
find_bag(const gpuvec_slot_bags *bags, uint64_t slot)
{
	uint64_t	low = 0;
	uint64_t	high = bags->nbags;

	while (low < high)
	{
		uint64_t	middle = low + (high - low) / 2;

		if (gpuvec_bag_start(bags, middle) < slot)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The first bag of a child's share of a request */
static uint64_t
share_start(const pool_request *r, uint32_t i)
{
	uint32_t	n = r->bank->shards->n;

	return i == 0 ? 0 : i == n ? r->bags.nbags : find_bag(&r->bags, r->bags.nslots / n * i);
}

/* True if any child can serve any bag */
static bool
can_serve_anywhere(const pool_request *r)
{
	return r->bank->copies || r->bank->distance > 0;
}

/* Let a child serve its share */
static bool
serve_share(void *arg, uint32_t i, gpuvec_error *error)
{
	const pool_request *r = arg;
	uint64_t	first = share_start(r, i);
	uint64_t	end = share_start(r, i + 1);

	return first >= end || serve_bags(r, i, first, end, error);
}

/* Serve a request by any children */
static bool
serve_anywhere(pool_request *r, gpuvec_error *error)
{
	shard_vectors *shards = r->bank->shards;
	uint32_t	i;
	bool		ok;

	if (shards->n > 1 && r->bags.nslots >= shards->policy.split_slots)
		return gpuvec_shard_ask(shards, serve_share, r, true, error);
	i = gpuvec_shard_take(shards);
	ok = serve_bags(r, i, 0, r->bags.nbags, error);
	return gpuvec_shard_give(shards, i, ok, error);
}

/* ---- an exchange of vectors ---- */

/* The exchange of vectors, for one chunk of a request's bags at a time */
typedef struct exchange
{
	const pool_request *r;
	uint64_t	most_slots;		/* of a chunk */

	/* the chunk */
	uint64_t	first_bag;
	uint64_t	end_bag;
	uint64_t	first_slot;
	uint64_t	nslots;
	uint64_t	ntasks;

	uint64_t	mask;			/* of the hash table of different slots */
	uint32_t   *entries;		/* [mask + 1]: number of a different slot + 1,
								 * or 0 */
	uint32_t   *numbers;		/* [nslots]: number of the different slot */
	uint32_t   *different;		/* [ndifferent] slots */
	uint64_t	ndifferent;
	shard_split split;			/* of these */
	uint64_t   *places;			/* [ndifferent]: where the vector is */
	float	   *fetched;		/* [ndifferent * width]: by child */
	const void **vectors;		/* [nslots]: NULL if missing */
	float	   *scratch;		/* [threads][GPUVEC_SCRATCH_VECTORS +
								 * 1][width] */
} exchange;

/* The end of the chunk that begins with a bag; it has at least one */
static uint64_t
chunk_end(const pool_request *r, uint64_t first)
{
	uint64_t	most = r->bank->shards->policy.chunk_bytes / (r->bank->width * sizeof(float));
	uint64_t	start = gpuvec_bag_start(&r->bags, first);
	uint64_t	end = find_bag(&r->bags, start + most + 1);

	/* the last bag that starts before may end behind */
	while (end > first + 1 && gpuvec_bag_start(&r->bags, end) > start + most)
		end--;
	return end > first ? end : first + 1;
}

static void
end_exchange(exchange *x)
{
	free(x->entries);
	free(x->numbers);
	free(x->different);
	free(x->places);
	free(x->fetched);
	free(x->vectors);
	free(x->scratch);
}

/* Allocate what the largest chunk takes */
static bool
begin_exchange(exchange *x, const pool_request *r, gpuvec_error *error)
{
	size_t		vector_bytes = r->bank->width * sizeof(float);
	int			threads = gpuvec_thread_pool_threads(r->bank->shards->summing);
	uint64_t	n = 1;

	memset(x, 0, sizeof(*x));
	x->r = r;
	for (uint64_t bag = 0; bag < r->bags.nbags;)
	{
		uint64_t	end = chunk_end(r, bag);
		uint64_t	count = gpuvec_bag_start(&r->bags, end) - gpuvec_bag_start(&r->bags, bag);

		n = count > n ? count : n;
		bag = end;
	}
	x->most_slots = n;
	for (x->mask = 1; x->mask < 2 * n; x->mask = x->mask * 2 + 1)
		;
	x->entries = gpuvec_memory_new((x->mask + 1) * sizeof(*x->entries));
	x->numbers = gpuvec_memory_new(n * sizeof(*x->numbers));
	x->different = gpuvec_memory_new(n * sizeof(*x->different));
	x->places = gpuvec_memory_new(n * sizeof(*x->places));
	x->vectors = gpuvec_memory_new(n * sizeof(*x->vectors));
	/* a bag may have no more different slots than the bank */
	x->fetched = gpuvec_memory_new((n < r->bank->capacity ? n : r->bank->capacity) * vector_bytes + 1);
	x->scratch = malloc(threads * vector_bytes * (GPUVEC_SCRATCH_VECTORS + 1));
	if (x->entries && x->numbers && x->different && x->places && x->vectors && x->fetched && x->scratch)
		return true;
	end_exchange(x);
	return gpuvec_fail_memory(error, n * vector_bytes);
}

/* The number of a slot among the chunk's different slots */
static uint32_t
number_slot(exchange *x, uint32_t slot)
{
	uint64_t	at = gpuvec_hash_key(slot);

	for (at &= x->mask; x->entries[at] != 0; at = (at + 1) & x->mask)
		if (x->different[x->entries[at] - 1] == slot)
			return x->entries[at] - 1;
	x->different[x->ndifferent++] = slot;
	x->entries[at] = (uint32_t) x->ndifferent;
	return (uint32_t) x->ndifferent - 1;
}

/* Fetch the chunk's vectors of a child */
static bool
fetch_child(void *arg, uint32_t i, gpuvec_error *error)
{
	exchange   *x = arg;
	const shard_bank *bank = x->r->bank;
	gpuvec_vectors *child = bank->shards->children[i].vectors;
	uint64_t	n = shard_split_count(&x->split, i);
	const uint64_t *at = x->split.at + x->split.first[i];
	uint32_t   *slots;
	gpuvec_slot_bags bags = {
		.nslots = n, .mode = GPUVEC_POOL_CONCAT, .canceled = x->r->bags.canceled
	};
	bool		ok;

	if (n == 0)
		return true;
	slots = malloc(n * sizeof(uint32_t));
	if (slots == NULL)
		return gpuvec_fail_memory(error, n * sizeof(uint32_t));
	for (uint64_t j = 0; j < n; j++)
	{
		slots[j] = x->different[at[j]] / bank->shards->n;
		x->places[at[j]] = x->split.first[i] + j;
	}
	bags.slots = slots;
	ok = child->pool(child, bank->children[i].bank, &bags,
					 x->fetched + x->split.first[i] * bank->width, error);
	free(slots);
	return ok;
}

/* Fetch the vectors of a chunk */
static bool
fetch_vectors(exchange *x, gpuvec_error *error)
{
	const uint32_t *slots = x->r->bags.slots + x->first_slot;
	shard_vectors *shards = x->r->bank->shards;
	bool		ok;

	memset(x->entries, 0, (x->mask + 1) * sizeof(*x->entries));
	x->ndifferent = 0;
	for (uint64_t i = 0; i < x->nslots; i++)
		if (slots[i] != GPUVEC_NO_SLOT)
			x->numbers[i] = number_slot(x, slots[i]);
	ok = gpuvec_shard_split_slots(&x->split, shards, x->different, x->ndifferent, error) &&
		gpuvec_shard_ask(shards, fetch_child, x, x->ndifferent >= shards->policy.beside, error);
	free(x->split.at);
	for (uint64_t i = 0; ok && i < x->nslots; i++)
		x->vectors[i] = slots[i] == GPUVEC_NO_SLOT ? NULL :
			x->fetched + x->places[x->numbers[i]] * x->r->bank->width;
	return ok;
}

/* Bags [first, end) of a chunk, as one bag */
static gpuvec_bag
chunk_bag(const exchange *x, uint64_t first, uint64_t end, float *scratch)
{
	const gpuvec_slot_bags *bags = &x->r->bags;
	uint64_t	start = gpuvec_bag_start(bags, first);
	bool		skip = bags->skip_missing && bags->mode != GPUVEC_POOL_CONCAT;

	return (gpuvec_bag)
	{
		.vectors = x->vectors + (start - x->first_slot),
			.weights = bags->weights ? bags->weights + start : NULL,
			.n = gpuvec_bag_start(bags, end) - start, .width = x->r->bank->width,
			.storage = GPUVEC_FLOAT32, .mode = bags->mode,
			.missing = skip ? GPUVEC_MISSING_SKIP : GPUVEC_MISSING_ZERO, .scratch = scratch
	};
}

/* Task: serve some bags of a chunk, whose vectors are here */
static void
sum_bags(void *task, uint64_t shard, int thread)
{
	const exchange *x = task;
	const pool_request *r = x->r;
	uint32_t	width = r->bank->width;
	uint64_t	nbags = x->end_bag - x->first_bag;
	uint64_t	bag = x->first_bag + nbags * shard / x->ntasks;
	uint64_t	end = x->first_bag + nbags * (shard + 1) / x->ntasks;
	float	   *scratch = x->scratch + (size_t) thread * width * (GPUVEC_SCRATCH_VECTORS + 1);
	float	   *mean = scratch + (size_t) width * GPUVEC_SCRATCH_VECTORS;

	if (r->bags.mode == GPUVEC_POOL_CONCAT)
	{
		/* each slot is a bag: take them together */
		gpuvec_bag	all = chunk_bag(x, bag, end, scratch);

		r->bank->shards->pool_bag(r->out + bag * width, &all);
		return;
	}
	for (; bag < end; bag++)
	{
		gpuvec_bag	one = chunk_bag(x, bag, bag + 1, scratch);
		uint64_t	row = bag;

		if (r->gradient)
			gpuvec_bag_weight_gradients(r->out + gpuvec_bag_start(&r->bags, bag), &one, r->gradient,
										mean, &row);
		else
			r->bank->shards->pool_bag(r->out + bag * width, &one);
	}
}

/* Serve the bags of a chunk */
static void
sum_chunk(exchange *x)
{
	const shard_vectors *shards = x->r->bank->shards;
	uint64_t	nbags = x->end_bag - x->first_bag;

	x->ntasks = x->nslots / shards->policy.sum_slots + 1;
	if (x->ntasks > nbags)
		x->ntasks = nbags;
	if (x->ntasks == 1)
		sum_bags(x, 0, 0);
	else
		gpuvec_thread_pool_run(shards->summing, sum_bags, x, x->ntasks);
}

/* Serve a request by fetching vectors */
static bool
serve_spread(const pool_request *r, gpuvec_error *error)
{
	exchange	x;
	bool		ok = begin_exchange(&x, r, error);

	if (!ok)
		return false;
	for (uint64_t bag = 0; ok && bag < r->bags.nbags && !gpuvec_bags_canceled(r->bags.canceled);)
	{
		x.first_bag = bag;
		x.end_bag = bag = chunk_end(r, bag);
		x.first_slot = gpuvec_bag_start(&r->bags, x.first_bag);
		x.nslots = gpuvec_bag_start(&r->bags, x.end_bag) - x.first_slot;
		ok = fetch_vectors(&x, error);
		if (ok && !gpuvec_bags_canceled(r->bags.canceled))
			sum_chunk(&x);
	}
	end_exchange(&x);
	return ok;
}

/* Gradients of the weights of sums, of a spread bank */
typedef struct product_request
{
	const pool_request *r;
	shard_split split;
} product_request;

/* The gradients of the weights of a child's slots */
static bool
product_child(void *arg, uint32_t i, gpuvec_error *error)
{
	const product_request *p = arg;
	const pool_request *r = p->r;
	gpuvec_vectors *child = r->bank->shards->children[i].vectors;
	uint64_t	n = shard_split_count(&p->split, i);
	const uint64_t *at = p->split.at + p->split.first[i];
	float	   *out;
	shard_bags	mine;
	bool		ok;

	if (n == 0)
		return true;
	if (!gpuvec_shard_bags_new(&mine, r->bank, &r->bags, NULL, r->gradient, at, n, error))
		return false;
	out = malloc(n * sizeof(float));
	ok = out ? child->weight_gradients(child, r->bank->children[i].bank, &mine.bags, mine.gradient,
									   out, error) :
		gpuvec_fail_memory(error, n * sizeof(float));
	for (uint64_t j = 0; ok && !gpuvec_bags_canceled(r->bags.canceled) && j < n; j++)
		r->out[at[j]] = out[j];
	free(out);
	gpuvec_shard_bags_free(&mine);
	return ok;
}

/* Let each child compute the products of its slots */
static bool
serve_products(const pool_request *r, gpuvec_error *error)
{
	shard_vectors *shards = r->bank->shards;
	product_request p = {.r = r};
	bool		ok = gpuvec_shard_split_slots(&p.split, shards, r->bags.slots, r->bags.nslots, error);

	/* those of missing keys */
	memset(r->out, 0, r->bags.nslots * sizeof(float));
	ok = ok && gpuvec_shard_ask(shards, product_child, &p, r->bags.nslots >= shards->policy.beside,
								error);
	free(p.split.at);
	return ok;
}

bool
gpuvec_shard_pool(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
				  const gpuvec_slot_bags *bags, float *out, gpuvec_error *error)
{
	pool_request r = {
		.bank = shard_bank_of(device_bank), .bags = gpuvec_plain_bags(bags), .out = out
	};

	(void) vectors;
	return can_serve_anywhere(&r) ? serve_anywhere(&r, error) : serve_spread(&r, error);
}

bool
gpuvec_shard_weight_gradients(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
							  const gpuvec_slot_bags *bags, const float *gradient, float *out,
							  gpuvec_error *error)
{
	pool_request r = {
		.bank = shard_bank_of(device_bank), .bags = *bags, .gradient = gradient, .out = out
	};

	(void) vectors;
	if (can_serve_anywhere(&r))
		return serve_anywhere(&r, error);
	return bags->mode == GPUVEC_POOL_MEAN ? serve_spread(&r, error) : serve_products(&r, error);
}
