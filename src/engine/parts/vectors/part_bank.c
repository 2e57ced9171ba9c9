/*-------------------------------------------------------------------------
 *
 * part_bank.c
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
#include "engine/parts/vectors/part_bank.h"

gpuvec_device_bank *
gpuvec_part_make(gpuvec_vectors *vectors, uint32_t width, gpuvec_storage storage,
				 gpuvec_error *error)
{
	part_vectors *parts = part_vectors_of(vectors);
	size_t		bytes = sizeof(part_bank) + parts->n * sizeof(part_bank_child);
	part_bank  *bank = calloc(1, bytes);

	if (bank == NULL)
	{
		gpuvec_fail_memory(error, bytes);
		return NULL;
	}
	pthread_mutex_init(&bank->mutex, NULL);
	bank->parts = parts;
	bank->width = width;
	bank->storage = storage;
	bank->copies = true;
	for (uint32_t i = 0; i < parts->n; i++)
	{
		gpuvec_vectors *child = parts->children[i].vectors;

		bank->children[i].bank = child->make(child, width, storage, error);
		if (bank->children[i].bank == NULL)
		{
			gpuvec_part_release(vectors, (gpuvec_device_bank *) bank);
			return NULL;
		}
	}
	return (gpuvec_device_bank *) bank;
}

/* Release a child's bank, which may be NULL */
static void
release_child(part_vectors *parts, uint32_t child, gpuvec_device_bank *bank)
{
	gpuvec_vectors *vectors = parts->children[child].vectors;

	if (bank)
		vectors->release(vectors, bank);
}

void
gpuvec_part_release(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank)
{
	part_bank  *bank = part_bank_of(device_bank);

	if (bank == NULL)
		return;
	for (uint32_t i = 0; i < bank->parts->n; i++)
	{
		release_child(bank->parts, i, bank->children[i].bank);
		free(bank->children[i].live);
	}
	pthread_mutex_destroy(&bank->mutex);
	free(bank->keys);
	free(bank->tids);
	free(bank);
}

/* ---- making room ---- */

/* Bytes of `room` slots on a child */
static size_t
child_bytes(const part_bank *bank, uint32_t child, uint32_t room)
{
	return bank->parts->children[child].vectors->bytes(bank->children[child].bank, room);
}

/* True if a bank has copies when it has room for `room` slots */
static bool
copies_fit(const part_bank *bank, uint32_t room)
{
	return bank->parts->n == 1 ||
		(bank->copies && child_bytes(bank, 0, room) <= bank->parts->policy.copy_bytes);
}

size_t
gpuvec_part_bytes(const gpuvec_device_bank *device_bank, uint32_t room)
{
	const part_bank *bank = (const part_bank *) device_bank;
	bool		copies = copies_fit(bank, room);
	size_t		bytes = 0;

	for (uint32_t i = 0; i < bank->parts->n; i++)
		bytes += child_bytes(bank, i, copies ? room : part_slots(bank->parts, i, room));
	return bytes;
}

/* What is made of a bank by gpuvec_part_reserve */
typedef struct reserving
{
	part_bank  *bank;
	uint32_t	room;
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
	const part_vectors *parts = r->bank->parts;
	gpuvec_vectors *child = parts->children[i].vectors;

	return child->reserve(child, r->banks[i], r->copies ? r->room : part_slots(parts, i, r->room),
						  error);
}

/* Make room on all children */
static bool
reserve_children(reserving *r, gpuvec_error *error)
{
	part_vectors *parts = r->bank->parts;
	gpuvec_vectors *vectors[GPUVEC_MAX_CHILDREN] = {NULL};

	if (r->copies || !parts->share)
		return gpuvec_part_ask(parts, reserve_child, r, true, error);
	for (uint32_t i = 0; i < parts->n; i++)
		vectors[i] = parts->children[i].vectors;
	return vectors[0]->reserve_shared(vectors, r->banks, parts->n, part_slots(parts, 0, r->room),
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
	const part_bank *bank = r->bank;
	gpuvec_vectors *child = bank->parts->children[i].vectors;
	uint32_t   *slots = malloc((end - first) * sizeof(uint32_t));
	gpuvec_slot_bags bags = {.slots = slots, .nslots = end - first, .mode = GPUVEC_POOL_CONCAT};
	bool		ok = slots || gpuvec_fail_memory(error, (end - first) * sizeof(uint32_t));

	for (uint32_t j = first; ok && j < end; j++)
		slots[j - first] = j * bank->parts->n + i;
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
	const part_bank *bank = r->bank;
	gpuvec_vectors *child = bank->parts->children[i].vectors;
	uint32_t	n = part_slots(bank->parts, i, bank->room);
	size_t		vector_bytes = bank->width * sizeof(float);
	uint32_t	most = (uint32_t) (bank->parts->policy.chunk_bytes / vector_bytes);
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
	const part_bank *bank = r->bank;

	for (uint32_t i = 0; i < bank->parts->n; i++)
	{
		gpuvec_vectors *child = bank->parts->children[i].vectors;

		r->banks[i] = child->make(child, bank->width, bank->storage, error);
		if (r->banks[i] == NULL)
			return false;
	}
	return true;
}

/* Spread a bank that had copies */
static bool
spread(reserving *r, gpuvec_error *error)
{
	part_bank  *bank = r->bank;
	bool		ok;

	memset(r->banks, 0, sizeof(r->banks));
	ok = make_banks(r, error) && reserve_children(r, error) &&
		gpuvec_part_ask(bank->parts, fill_child, r, true, error);
	for (uint32_t i = 0; i < bank->parts->n; i++)
	{
		release_child(bank->parts, i, ok ? bank->children[i].bank : r->banks[i]);
		if (ok)
			bank->children[i].bank = r->banks[i];
	}
	return ok;
}

/* Make room for keys and tids */
static bool
reserve_keys(part_bank *bank, uint32_t room, gpuvec_error *error)
{
	int64_t    *keys = realloc(bank->keys, room * sizeof(*keys) + 1);
	uint64_t   *tids;

	bank->keys = keys ? keys : bank->keys;
	tids = realloc(bank->tids, room * sizeof(*tids) + 1);
	bank->tids = tids ? tids : bank->tids;
	if (keys == NULL || tids == NULL)
		return gpuvec_fail_memory(error, room * (sizeof(*keys) + sizeof(*tids)));
	if (room > bank->room)
	{
		memset(keys + bank->room, 0, (room - bank->room) * sizeof(*keys));
		memset(tids + bank->room, 0, (room - bank->room) * sizeof(*tids));
	}
	return true;
}

bool
gpuvec_part_reserve(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank, uint32_t room,
					gpuvec_error *error)
{
	part_bank  *bank = part_bank_of(device_bank);
	reserving	r = {.bank = bank, .room = room, .copies = copies_fit(bank, room)};

	(void) vectors;
	if (!reserve_keys(bank, room, error))
		return false;
	/* if only some children succeed, they have no hash tables any more */
	__atomic_store_n(&bank->keys_known, false, __ATOMIC_RELAXED);
	bank->live_version = 0;
	for (uint32_t i = 0; i < bank->parts->n; i++)
		r.banks[i] = bank->children[i].bank;
	if (bank->copies && !r.copies && bank->room > 0 ? !spread(&r, error) :
		!reserve_children(&r, error))
		return false;
	bank->copies = r.copies;
	bank->distance = r.distance;
	bank->room = room;
	return true;
}

/* ---- filling ---- */

bool
gpuvec_part_put(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank, uint32_t slot,
				int64_t key, uint64_t tid, const void *elements, gpuvec_error *error)
{
	part_bank  *bank = part_bank_of(device_bank);
	uint32_t	n = bank->parts->n;
	uint32_t	first = bank->copies ? 0 : slot % n;
	uint32_t	end = bank->copies ? n : first + 1;

	(void) vectors;
	bank->keys[slot] = key;
	bank->tids[slot] = tid;
	for (uint32_t i = first; i < end; i++)
	{
		gpuvec_vectors *child = bank->parts->children[i].vectors;

		if (!child->put(child, bank->children[i].bank, bank->copies ? slot : slot / n, key, tid,
						elements, error))
			return false;
	}
	return true;
}

static bool
flush_child(void *arg, uint32_t i, gpuvec_error *error)
{
	part_bank  *bank = arg;
	gpuvec_vectors *child = bank->parts->children[i].vectors;

	return child->flush(child, bank->children[i].bank, error);
}

bool
gpuvec_part_flush(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank, gpuvec_error *error)
{
	part_bank  *bank = part_bank_of(device_bank);

	(void) vectors;
	return gpuvec_part_ask(bank->parts, flush_child, bank, true, error);
}

void
gpuvec_part_forget(gpuvec_device_bank *device_bank)
{
	part_bank  *bank = part_bank_of(device_bank);

	for (uint32_t i = 0; i < bank->parts->n; i++)
		bank->parts->children[i].vectors->forget(bank->children[i].bank);
}
