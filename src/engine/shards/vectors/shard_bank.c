/*-------------------------------------------------------------------------
 *
 * shard_bank.c
 *	  Banks of vectors on several devices: laying out, filling.
 *
 * Keys and tids are kept on the host as well, to put the nearest vectors of
 * several children in order.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "core/half.h"
#include "engine/shards/vectors/shard_bank.h"

gpuvec_device_bank *
gpuvec_shard_make(gpuvec_vectors *vectors, uint32_t width, gpuvec_storage storage,
				  gpuvec_error *error)
{
	shard_vectors *shards = shard_vectors_of(vectors);
	size_t		bytes = sizeof(shard_bank) + shards->n * sizeof(shard_bank_child);
	shard_bank *bank = calloc(1, bytes);

	if (bank == NULL)
	{
		gpuvec_fail_memory(error, bytes);
		return NULL;
	}
	pthread_mutex_init(&bank->mutex, NULL);
	bank->shards = shards;
	bank->width = width;
	bank->storage = storage;
	bank->copies = true;
	for (uint32_t i = 0; i < shards->n; i++)
	{
		gpuvec_vectors *child = shards->children[i].vectors;

		bank->children[i].bank = child->make(child, width, storage, error);
		if (bank->children[i].bank == NULL)
		{
			(void) gpuvec_shard_failed(i, error);
			gpuvec_shard_release(vectors, (gpuvec_device_bank *) bank);
			return NULL;
		}
	}
	return (gpuvec_device_bank *) bank;
}

/* Release a child's bank, which may be NULL */
static void
release_child(shard_vectors *shards, uint32_t child, gpuvec_device_bank *bank)
{
	gpuvec_vectors *vectors = shards->children[child].vectors;

	if (bank)
		vectors->release(vectors, bank);
}

void
gpuvec_shard_release(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank)
{
	shard_bank *bank = shard_bank_of(device_bank);

	if (bank == NULL)
		return;
	for (uint32_t i = 0; i < bank->shards->n; i++)
	{
		release_child(bank->shards, i, bank->children[i].bank);
		free(bank->children[i].live);
	}
	pthread_mutex_destroy(&bank->mutex);
	free(bank->keys);
	free(bank->tids);
	free(bank);
}

/* ---- making room ---- */

/* Bytes of `capacity` slots on a child */
static size_t
child_bytes(const shard_bank *bank, uint32_t child, uint32_t capacity)
{
	return bank->shards->children[child].vectors->bytes(bank->children[child].bank, capacity);
}

/* True if a bank has copies when it has room for `capacity` slots */
static bool
copies_fit(const shard_bank *bank, uint32_t capacity)
{
	return bank->shards->n == 1 ||
		(bank->copies && child_bytes(bank, 0, capacity) <= bank->shards->policy.copy_bytes);
}

size_t
gpuvec_shard_bytes(const gpuvec_device_bank *device_bank, uint32_t capacity)
{
	const shard_bank *bank = (const shard_bank *) device_bank;
	bool		copies = copies_fit(bank, capacity);
	size_t		bytes = 0;

	for (uint32_t i = 0; i < bank->shards->n; i++)
		bytes += child_bytes(bank, i, copies ? capacity : shard_slots(bank->shards, i, capacity));
	return bytes;
}

/* What is made of a bank by gpuvec_shard_reserve */
typedef struct reserving
{
	shard_bank *bank;
	uint32_t	capacity;
	bool		copies;
	uint32_t	distance;
	gpuvec_device_bank *banks[GPUVEC_MAX_CHILDREN]; /* the bank's, or new ones
													 * if it is to be spread */
} reserving;

/* Make room on a child */
static bool
reserve_child(void *arg, uint32_t i, gpuvec_error *error)
{
	const reserving *r = arg;
	const shard_vectors *shards = r->bank->shards;
	gpuvec_vectors *child = shards->children[i].vectors;

	return child->reserve(child, r->banks[i], r->copies ? r->capacity : shard_slots(shards, i, r->capacity),
						  error);
}

/* Make room on all children */
static bool
reserve_children(reserving *r, gpuvec_error *error)
{
	shard_vectors *shards = r->bank->shards;
	gpuvec_vectors *vectors[GPUVEC_MAX_CHILDREN] = {NULL};

	if (r->copies || !shards->share)
		return gpuvec_shard_ask(shards, reserve_child, r, true, error);
	for (uint32_t i = 0; i < shards->n; i++)
		vectors[i] = shards->children[i].vectors;
	return vectors[0]->reserve_shared(vectors, r->banks, shards->n, shard_slots(shards, 0, r->capacity),
									  &r->distance, error);
}

/*
 * Put the slots [first, end) of a child's new bank.  They come from its copy
 * of the whole bank, as float32, which converts float16 without loss.
 */
static bool
move_slots(const reserving *r, uint32_t i, uint32_t first, uint32_t end, float *from, uint16_t *to,
		   gpuvec_error *error)
{
	const shard_bank *bank = r->bank;
	gpuvec_vectors *child = bank->shards->children[i].vectors;
	uint32_t   *slots = malloc((end - first) * sizeof(uint32_t));
	gpuvec_slot_bags bags = {.slots = slots, .nslots = end - first, .mode = GPUVEC_POOL_CONCAT};
	bool		ok = slots || gpuvec_fail_memory(error, (end - first) * sizeof(uint32_t));

	for (uint32_t j = first; ok && j < end; j++)
		slots[j - first] = j * bank->shards->n + i;
	ok = ok && child->pool(child, bank->children[i].bank, &bags, from, error);
	for (uint32_t j = first; ok && j < end; j++)
	{
		const void *elements = from + (size_t) (j - first) * bank->width;
		uint32_t	slot = slots[j - first];

		if (bank->storage == GPUVEC_FLOAT16)
		{
			for (uint32_t e = 0; e < bank->width; e++)
				to[e] = gpuvec_float_to_half(((const float *) elements)[e]);
			elements = to;
		}
		ok = child->put(child, r->banks[i], j, bank->keys[slot], bank->tids[slot], elements, error);
	}
	free(slots);
	return ok;
}

/* Fill a child's new bank from the child's copy */
static bool
fill_child(void *arg, uint32_t i, gpuvec_error *error)
{
	const reserving *r = arg;
	const shard_bank *bank = r->bank;
	gpuvec_vectors *child = bank->shards->children[i].vectors;
	uint32_t	n = shard_slots(bank->shards, i, bank->capacity);
	size_t		vector_bytes = bank->width * sizeof(float);
	uint32_t	most = (uint32_t) (bank->shards->policy.chunk_bytes / vector_bytes);
	float	   *from;
	uint16_t   *to = malloc(bank->width * sizeof(uint16_t));
	bool		ok;

	most = most < 1 ? 1 : most < n ? most : n;
	from = malloc(most * vector_bytes + 1);
	ok = (from && to) || gpuvec_fail_memory(error, most * vector_bytes);
	/* what was put has to arrive in the copy */
	ok = ok && child->flush(child, bank->children[i].bank, error);
	for (uint32_t first = 0; ok && first < n; first += most)
		ok = move_slots(r, i, first, n - first < most ? n : first + most, from, to, error);
	ok = ok && child->flush(child, r->banks[i], error);
	free(from);
	free(to);
	return ok;
}

/* Make new banks for all children */
static bool
make_banks(reserving *r, gpuvec_error *error)
{
	const shard_bank *bank = r->bank;

	for (uint32_t i = 0; i < bank->shards->n; i++)
	{
		gpuvec_vectors *child = bank->shards->children[i].vectors;

		r->banks[i] = child->make(child, bank->width, bank->storage, error);
		if (r->banks[i] == NULL)
			return gpuvec_shard_failed(i, error);
	}
	return true;
}

/* Spread a bank that had copies */
static bool
spread(reserving *r, gpuvec_error *error)
{
	shard_bank *bank = r->bank;
	bool		ok;

	memset(r->banks, 0, sizeof(r->banks));
	ok = make_banks(r, error) && reserve_children(r, error) &&
		gpuvec_shard_ask(bank->shards, fill_child, r, true, error);
	for (uint32_t i = 0; i < bank->shards->n; i++)
	{
		release_child(bank->shards, i, ok ? bank->children[i].bank : r->banks[i]);
		if (ok)
			bank->children[i].bank = r->banks[i];
	}
	return ok;
}

/* Make room for keys and tids */
static bool
reserve_keys(shard_bank *bank, uint32_t capacity, gpuvec_error *error)
{
	int64_t    *keys = realloc(bank->keys, capacity * sizeof(*keys) + 1);
	uint64_t   *tids;

	bank->keys = keys ? keys : bank->keys;
	tids = realloc(bank->tids, capacity * sizeof(*tids) + 1);
	bank->tids = tids ? tids : bank->tids;
	if (keys == NULL || tids == NULL)
		return gpuvec_fail_memory(error, capacity * (sizeof(*keys) + sizeof(*tids)));
	if (capacity > bank->capacity)
	{
		memset(keys + bank->capacity, 0, (capacity - bank->capacity) * sizeof(*keys));
		memset(tids + bank->capacity, 0, (capacity - bank->capacity) * sizeof(*tids));
	}
	return true;
}

bool
gpuvec_shard_reserve(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank, uint32_t capacity,
					 gpuvec_error *error)
{
	shard_bank *bank = shard_bank_of(device_bank);
	reserving	r = {.bank = bank, .capacity = capacity, .copies = copies_fit(bank, capacity)};

	(void) vectors;
	if (!reserve_keys(bank, capacity, error))
		return false;
	/* if only some children succeed, they have no hash tables any more */
	__atomic_store_n(&bank->keys_known, false, __ATOMIC_RELAXED);
	bank->live_version = 0;
	for (uint32_t i = 0; i < bank->shards->n; i++)
		r.banks[i] = bank->children[i].bank;
	if (bank->copies && !r.copies && bank->capacity > 0 ? !spread(&r, error) :
		!reserve_children(&r, error))
		return false;
	bank->copies = r.copies;
	bank->distance = r.distance;
	bank->capacity = capacity;
	return true;
}

/* ---- filling ---- */

bool
gpuvec_shard_put(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank, uint32_t slot,
				 int64_t key, uint64_t tid, const void *elements, gpuvec_error *error)
{
	shard_bank *bank = shard_bank_of(device_bank);
	uint32_t	n = bank->shards->n;
	uint32_t	first = bank->copies ? 0 : slot % n;
	uint32_t	end = bank->copies ? n : first + 1;

	(void) vectors;
	bank->keys[slot] = key;
	bank->tids[slot] = tid;
	for (uint32_t i = first; i < end; i++)
	{
		gpuvec_vectors *child = bank->shards->children[i].vectors;

		if (!child->put(child, bank->children[i].bank, bank->copies ? slot : slot / n, key, tid,
						elements, error))
			return gpuvec_shard_failed(i, error);
	}
	return true;
}

static bool
flush_child(void *arg, uint32_t i, gpuvec_error *error)
{
	shard_bank *bank = arg;
	gpuvec_vectors *child = bank->shards->children[i].vectors;

	return child->flush(child, bank->children[i].bank, error);
}

bool
gpuvec_shard_flush(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank, gpuvec_error *error)
{
	shard_bank *bank = shard_bank_of(device_bank);

	(void) vectors;
	return gpuvec_shard_ask(bank->shards, flush_child, bank, true, error);
}

void
gpuvec_shard_forget(gpuvec_device_bank *device_bank)
{
	shard_bank *bank = shard_bank_of(device_bank);

	for (uint32_t i = 0; i < bank->shards->n; i++)
		bank->shards->children[i].vectors->forget(bank->children[i].bank);
}
