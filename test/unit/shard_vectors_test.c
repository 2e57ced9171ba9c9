/*-------------------------------------------------------------------------
 *
 * shard_vectors_test.c
 *	  Vectors on several devices: how banks are laid out, who is asked, and
 *	  what happens when a device fails or a hash table is full.
 *
 * That answers are those of one device is tested by vectors_test.c.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "core/key_hash.h"
#include "core/nearest.h"
#include "core/pooling.h"
#include "engine/cpu/cpu_vectors.h"
#include "engine/shards/vectors/shard_vectors.h"
#include "unit_test.h"

#define NCHILDREN	3
#define WIDTH		5
#define CAPACITY		40

/* A vector that was put, but has not arrived */
typedef struct pending_put
{
	struct pending_put *next;
	gpuvec_device_bank *bank;
	uint32_t	slot;
	float		elements[WIDTH];
} pending_put;

/*
 * A device that counts what it is asked for, and fails when it is told to.
 * As on a GPU, what was put arrives when it is flushed.
 */
typedef struct device
{
	gpuvec_vectors functions;
	gpuvec_vectors *host;
	pending_put *pending;
	int			number;
	int			banks;
	uint64_t	puts;
	uint64_t	slots;			/* pooled, for gradients too */
	uint64_t	queries;
	uint64_t	keys;
} device;

static device devices[NCHILDREN];

/* The call that fails: counted down at each call of any device; 0: none */
static int64_t failing;
static int	failed_device;
static bool lost = false;		/* does the device fail for good? */

static device *
device_of(gpuvec_vectors *vectors)
{
	return (device *) vectors;
}

/* Count a call.  False if it is the one that fails. */
static bool
call(gpuvec_vectors *vectors, gpuvec_error *error)
{
	if (__atomic_load_n(&failing, __ATOMIC_RELAXED) == 0 ||
		__atomic_sub_fetch(&failing, 1, __ATOMIC_RELAXED) != 0)
		return true;
	failed_device = device_of(vectors)->number;
	gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL, "device %d fails", failed_device);
	error->fatal = lost;
	return false;
}

static gpuvec_device_bank *
device_make(gpuvec_vectors *vectors, uint32_t width, gpuvec_storage storage, gpuvec_error *error)
{
	device	   *d = device_of(vectors);
	gpuvec_device_bank *bank = call(vectors, error) ? d->host->make(d->host, width, storage, error) : NULL;

	__atomic_add_fetch(&d->banks, bank != NULL, __ATOMIC_RELAXED);
	return bank;
}

/* Let what was put in a bank arrive, or drop it */
static void
end_pending(device *d, gpuvec_device_bank *bank, bool arrive)
{
	pending_put **link = &d->pending;
	gpuvec_error error;

	while (*link)
	{
		pending_put *put = *link;

		if (put->bank != bank)
		{
			link = &put->next;
			continue;
		}
		if (arrive)
			(void) d->host->put(d->host, bank, put->slot, 0, 0, put->elements, &error);
		*link = put->next;
		free(put);
	}
}

static void
device_release(gpuvec_vectors *vectors, gpuvec_device_bank *bank)
{
	device	   *d = device_of(vectors);

	end_pending(d, bank, false);
	__atomic_sub_fetch(&d->banks, bank != NULL, __ATOMIC_RELAXED);
	d->host->release(d->host, bank);
}

static bool
device_reserve(gpuvec_vectors *vectors, gpuvec_device_bank *bank, uint32_t capacity,
			   gpuvec_error *error)
{
	gpuvec_vectors *host = device_of(vectors)->host;

	return call(vectors, error) && host->reserve(host, bank, capacity, error);
}

static bool
device_put(gpuvec_vectors *vectors, gpuvec_device_bank *bank, uint32_t slot,
		   int64_t key __attribute__((unused)),
		   uint64_t tid __attribute__((unused)), const void *elements, gpuvec_error *error)
{
	device	   *d = device_of(vectors);
	pending_put *put;

	__atomic_add_fetch(&d->puts, 1, __ATOMIC_RELAXED);
	if (!call(vectors, error))
		return false;
	put = malloc(sizeof(*put));
	*put = (pending_put)
	{
		.next = d->pending, .bank = bank, .slot = slot
	};
	memcpy(put->elements, elements, sizeof(put->elements));
	d->pending = put;
	return true;
}

static bool
device_flush(gpuvec_vectors *vectors, gpuvec_device_bank *bank, gpuvec_error *error)
{
	if (!call(vectors, error))
		return false;
	end_pending(device_of(vectors), bank, true);
	return true;
}

static void
device_forget(gpuvec_device_bank *bank)
{
	for (int i = 0; i < NCHILDREN; i++)
		end_pending(&devices[i], bank, false);
}

static bool
device_clear_keys(gpuvec_vectors *vectors, gpuvec_device_bank *bank, gpuvec_error *error)
{
	gpuvec_vectors *host = device_of(vectors)->host;

	return call(vectors, error) && host->clear_keys(host, bank, error);
}

static bool
device_map_keys(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_key_row *rows,
				uint64_t n, gpuvec_error *error)
{
	device	   *d = device_of(vectors);

	__atomic_add_fetch(&d->keys, n, __ATOMIC_RELAXED);
	return call(vectors, error) && d->host->map_keys(d->host, bank, rows, n, error);
}

static bool
device_find_keys(gpuvec_vectors *vectors, gpuvec_device_bank *bank,
				 const gpuvec_key_search *search, gpuvec_error *error)
{
	gpuvec_vectors *host = device_of(vectors)->host;

	return call(vectors, error) && host->find_keys(host, bank, search, error);
}

static bool
device_pool(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_slot_bags *bags,
			float *out, gpuvec_error *error)
{
	device	   *d = device_of(vectors);

	__atomic_add_fetch(&d->slots, bags->nslots, __ATOMIC_RELAXED);
	return call(vectors, error) && d->host->pool(d->host, bank, bags, out, error);
}

static bool
device_gradient(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_slot_bags *bags,
				const float *gradient, uint64_t most, uint64_t *n, void **body,
				gpuvec_error *error)
{
	device	   *d = device_of(vectors);

	__atomic_add_fetch(&d->slots, bags->nslots, __ATOMIC_RELAXED);
	return call(vectors, error) &&
		d->host->gradient(d->host, bank, bags, gradient, most, n, body, error);
}

static bool
device_weight_gradients(gpuvec_vectors *vectors, gpuvec_device_bank *bank,
						const gpuvec_slot_bags *bags, const float *gradient, float *out,
						gpuvec_error *error)
{
	device	   *d = device_of(vectors);

	__atomic_add_fetch(&d->slots, bags->nslots, __ATOMIC_RELAXED);
	return call(vectors, error) &&
		d->host->weight_gradients(d->host, bank, bags, gradient, out, error);
}

static bool
device_nearest(gpuvec_vectors *vectors, gpuvec_device_bank *bank, gpuvec_slot_search *search,
			   gpuvec_error *error)
{
	device	   *d = device_of(vectors);

	__atomic_add_fetch(&d->queries, search->nqueries, __ATOMIC_RELAXED);
	return call(vectors, error) && d->host->nearest(d->host, bank, search, error);
}

static bool
device_reserve_shared(gpuvec_vectors *const *vectors, gpuvec_device_bank *const *banks, uint32_t n,
					  uint32_t capacity, uint32_t *distance, gpuvec_error *error)
{
	if (!call(vectors[0], error))
	{
		/* it is the error of all of them */
		error->fatal = false;
		return false;
	}
	return device_of(vectors[0])->host->reserve_shared(vectors, banks, n, capacity, distance, error);
}

static bool
device_pool_shared(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_slot_bags *bags,
				   const float *gradient, float *out, gpuvec_error *error)
{
	device	   *d = device_of(vectors);

	__atomic_add_fetch(&d->slots, bags->nslots, __ATOMIC_RELAXED);
	return call(vectors, error) && d->host->pool_shared(d->host, bank, bags, gradient, out, error);
}

/* Open the devices */
static void
open_devices(void)
{
	for (int i = 0; i < NCHILDREN; i++)
	{
		gpuvec_vectors *host = &gpuvec_cpu_vectors;

		devices[i] = (device)
		{
			.functions = *host, .host = host, .number = i
		};
		devices[i].functions.make = device_make;
		devices[i].functions.release = device_release;
		devices[i].functions.reserve = device_reserve;
		devices[i].functions.put = device_put;
		devices[i].functions.flush = device_flush;
		devices[i].functions.forget = device_forget;
		devices[i].functions.clear_keys = device_clear_keys;
		devices[i].functions.map_keys = device_map_keys;
		devices[i].functions.find_keys = device_find_keys;
		devices[i].functions.pool = device_pool;
		devices[i].functions.gradient = device_gradient;
		devices[i].functions.weight_gradients = device_weight_gradients;
		devices[i].functions.nearest = device_nearest;
		devices[i].functions.reserve_shared = device_reserve_shared;
		devices[i].functions.pool_shared = device_pool_shared;
	}
}

/* Forget what was counted */
static void
reset_counts(void)
{
	for (int i = 0; i < NCHILDREN; i++)
		devices[i].puts = devices[i].slots = devices[i].queries = devices[i].keys = 0;
}

/* Vectors on all devices */
static gpuvec_vectors *
open_shards(size_t copy_bytes, uint64_t at_once, bool share)
{
	gpuvec_vectors *children[NCHILDREN];
	gpuvec_shard_policy policy = gpuvec_shard_defaults;
	gpuvec_error error;

	for (int i = 0; i < NCHILDREN; i++)
		children[i] = &devices[i].functions;
	policy.copy_bytes = copy_bytes;
	policy.share = share;
	policy.threads = 1;
	policy.beside = policy.split_slots = at_once;
	policy.split_queries = (uint32_t) at_once;
	return gpuvec_shard_vectors_new(children, NCHILDREN, &policy, &error);
}

/* Element i of the vector in a slot */
static float
element(uint32_t slot, int i)
{
	return (float) (slot * 10 + i) + 0.25f;
}

/* Put the slots [first, end) */
static bool
put_slots(gpuvec_vectors *shards, gpuvec_device_bank *bank, uint32_t first, uint32_t end,
		  gpuvec_error *error)
{
	float		elements[WIDTH];

	for (uint32_t slot = first; slot < end; slot++)
	{
		for (int i = 0; i < WIDTH; i++)
			elements[i] = element(slot, i);
		if (!shards->put(shards, bank, slot, slot, slot + 1000, elements, error))
			return false;
	}
	return true;
}

/* Are the vectors of the slots below n as they were put? */
static bool
gather_right(gpuvec_vectors *shards, gpuvec_device_bank *bank, uint32_t n, gpuvec_error *error)
{
	uint32_t	slots[CAPACITY * 2];
	float		out[CAPACITY * 2 * WIDTH];
	gpuvec_slot_bags bags = {.slots = slots, .nslots = n, .mode = GPUVEC_POOL_CONCAT};

	for (uint32_t i = 0; i < n; i++)
		slots[i] = i;
	if (!shards->pool(shards, bank, &bags, out, error))
		return false;
	for (uint32_t i = 0; i < n; i++)
		for (int j = 0; j < WIDTH; j++)
			if (out[i * WIDTH + j] != element(i, j))
				return false;
	return true;
}

/* A bank with ROOM slots, all of them full */
static gpuvec_device_bank *
full_bank(gpuvec_vectors *shards)
{
	gpuvec_error error;
	gpuvec_device_bank *bank = shards->make(shards, WIDTH, GPUVEC_FLOAT32, &error);

	check(bank && shards->reserve(shards, bank, CAPACITY, &error) &&
		  put_slots(shards, bank, 0, CAPACITY, &error) && shards->flush(shards, bank, &error), "bank");
	return bank;
}

/* Copies and spread banks are where they should be */
static void
test_layout(void)
{
	gpuvec_vectors *shards = open_shards(SIZE_MAX, 1000, false);
	gpuvec_device_bank *bank;
	gpuvec_error error;
	size_t		copies;

	reset_counts();
	bank = full_bank(shards);
	for (int i = 0; i < NCHILDREN; i++)
		check(devices[i].puts == CAPACITY, "each device has a copy");
	copies = shards->bytes(bank, CAPACITY * 100);
	check(gather_right(shards, bank, CAPACITY, &error), "vectors of copies");
	shards->release(shards, bank);
	shards->close(shards);

	reset_counts();
	shards = open_shards(0, 1000, false);
	bank = full_bank(shards);
	for (int i = 0; i < NCHILDREN; i++)
		check(devices[i].puts == CAPACITY / NCHILDREN + (i < CAPACITY % NCHILDREN), "devices have shares");
	check(shards->bytes(bank, CAPACITY * 100) * 2 < copies, "shares take less than copies");
	check(gather_right(shards, bank, CAPACITY, &error), "spread vectors");
	shards->release(shards, bank);
	shards->close(shards);
	for (int i = 0; i < NCHILDREN; i++)
		check(devices[i].banks == 0, "banks are released");
}

/* Requests go to who has least to do, large ones to all, repeated slots once */
static void
test_requests(void)
{
	gpuvec_vectors *shards = open_shards(SIZE_MAX, 10, false);
	gpuvec_device_bank *bank = full_bank(shards);
	gpuvec_error error;
	uint32_t	slots[30];
	float		out[30 * WIDTH];
	gpuvec_slot_bags bags = {.slots = slots, .nslots = 30, .hotness = 3, .nbags = 10};

	for (uint32_t i = 0; i < 30; i++)
		slots[i] = i % 4;
	reset_counts();
	for (int i = 0; i < 6; i++)
		check(gather_right(shards, bank, 5, &error), "small request");
	for (int i = 0; i < NCHILDREN; i++)
		check(devices[i].slots == 10, "small requests take turns");
	reset_counts();
	check(shards->pool(shards, bank, &bags, out, &error), "large request");
	for (int i = 0; i < NCHILDREN; i++)
		check(devices[i].slots >= 9 && devices[i].slots <= 12, "a large request is split");
	shards->release(shards, bank);
	shards->close(shards);

	shards = open_shards(0, 10, false);
	bank = full_bank(shards);
	reset_counts();
	check(shards->pool(shards, bank, &bags, out, &error), "request to a spread bank");
	check(devices[0].slots == 2 && devices[1].slots == 1 && devices[2].slots == 1,
		  "a slot that is repeated is fetched once");
	shards->release(shards, bank);
	shards->close(shards);

	shards = open_shards(0, 10, true);
	bank = full_bank(shards);
	reset_counts();
	for (int i = 0; i < 6; i++)
		check(gather_right(shards, bank, 5, &error), "small request, vectors shared");
	check(shards->pool(shards, bank, &bags, out, &error), "large request, vectors shared");
	for (int i = 0; i < NCHILDREN; i++)
		check(devices[i].slots >= 19 && devices[i].slots <= 22, "any device serves any bag");
	shards->release(shards, bank);
	shards->close(shards);
}

/* The first element of the vector in a slot */
static float
first_element(gpuvec_vectors *shards, gpuvec_device_bank *bank, uint32_t slot)
{
	float		out[WIDTH] = {0};
	gpuvec_slot_bags bags = {.slots = &slot, .nslots = 1, .mode = GPUVEC_POOL_CONCAT};
	gpuvec_error error;

	check(shards->pool(shards, bank, &bags, out, &error), "pool");
	return out[0];
}

/* A bank that grows is spread, with what was put and has not arrived */
static void
test_growth(bool share)
{
	gpuvec_error error;
	gpuvec_vectors *sizes = open_shards(SIZE_MAX, 1000, false);
	gpuvec_device_bank *bank = sizes->make(sizes, WIDTH, GPUVEC_FLOAT32, &error);
	size_t		copy = sizes->bytes(bank, CAPACITY) / NCHILDREN;
	gpuvec_vectors *shards = open_shards(copy, 1000, share);

	sizes->release(sizes, bank);
	sizes->close(sizes);
	bank = full_bank(shards);
	check(shards->bytes(bank, CAPACITY) == copy * NCHILDREN, "copies that just fit");
	check(shards->put(shards, bank, 3, 3, 1003, (float[WIDTH]) {9}, &error), "put");
	for (int64_t call = 1;; call++)
	{
		bool		ok;

		failing = call;
		ok = shards->reserve(shards, bank, CAPACITY * 2, &error);
		if (failing > 0)
		{
			check(ok, "growth without a failure");
			break;
		}
		check(!ok && error.message[7] == '0' + failed_device, "a failure while a bank is spread");
		for (int i = 0; i < NCHILDREN; i++)
			check(devices[i].banks == 1, "no bank is left over");
	}
	failing = 0;
	check(first_element(shards, bank, 3) == 9, "what had not arrived is spread as well");
	reset_counts();
	check(put_slots(shards, bank, 3, 4, &error) && put_slots(shards, bank, CAPACITY, CAPACITY * 2, &error) &&
		  shards->flush(shards, bank, &error), "put after growth");
	check(devices[0].puts + devices[1].puts + devices[2].puts == CAPACITY + 1, "the bank is spread");
	check(gather_right(shards, bank, CAPACITY * 2, &error), "vectors after growth");
	shards->release(shards, bank);
	shards->close(shards);
}

/* Enter keys [first, end), whose slots are their numbers */
static bool
map_range(gpuvec_vectors *shards, gpuvec_device_bank *bank, int64_t first, int64_t end,
		  gpuvec_error *error)
{
	bool		ok = true;

	for (int64_t key = first; ok && key < end; key++)
	{
		gpuvec_key_row row = {.key = key, .slot = (uint32_t) key, .block = 0};

		ok = shards->map_keys(shards, bank, &row, 1, error);
	}
	return ok;
}

/* Find a key */
static bool
ask_key(gpuvec_vectors *shards, gpuvec_device_bank *bank, int64_t key, uint32_t *slot,
		gpuvec_error *error)
{
	uint32_t	proven = 1;
	gpuvec_key_search search = {
		.keys = &key, .nkeys = 1, .proven = &proven, .nblocks = 1, .slots = slot
	};

	return shards->find_keys(shards, bank, &search, error);
}

/* The slot that is found for a key */
static uint32_t
find_key(gpuvec_vectors *shards, gpuvec_device_bank *bank, int64_t key)
{
	uint32_t	slot = 12345;
	gpuvec_error error;

	check(ask_key(shards, bank, key, &slot, &error), "find a key");
	return slot;
}

/*
 * Many keys at once, of all devices, in another order than they were entered:
 * those that there are, and some that there are not
 */
static bool
all_keys_found(gpuvec_vectors *shards, gpuvec_device_bank *bank)
{
	int64_t		keys[CAPACITY * 3];
	uint32_t	slots[CAPACITY * 3];
	uint32_t	proven = 1;
	gpuvec_error error;
	gpuvec_key_search search = {
		.keys = keys, .nkeys = CAPACITY * 3, .proven = &proven, .nblocks = 1, .slots = slots
	};

	for (int i = 0; i < CAPACITY * 3; i++)
		keys[i] = (int64_t) (i * 7 % (CAPACITY * 3)) - CAPACITY;
	if (!shards->find_keys(shards, bank, &search, &error))
		return false;
	for (int i = 0; i < CAPACITY * 3; i++)
		if (slots[i] != (keys[i] < 0 || keys[i] >= CAPACITY ? GPUVEC_NO_SLOT : (uint32_t) keys[i]))
			return false;
	return true;
}

/* A search for no keys finds them all */
static bool
no_keys_found(gpuvec_vectors *shards, gpuvec_device_bank *bank)
{
	int64_t		key = 0;
	uint32_t	slot = 0;
	uint32_t	proven = 1;
	gpuvec_error error;
	gpuvec_key_search search = {
		.keys = &key, .nkeys = 0, .proven = &proven, .nblocks = 1, .slots = &slot
	};

	return shards->find_keys(shards, bank, &search, &error) && slot == 0;
}

/* A key that belongs to the first device */
static int64_t
first_devices_key(int64_t after)
{
	do
		after++;
	while ((gpuvec_hash_key(after) >> 32) * NCHILDREN >> 32 != 0);
	return after;
}

/* No hash table is asked for more than it takes, nor one that is not there */
static void
test_keys(void)
{
	for (int i = 0; i < 4; i++)
	{
		bool		spread = i % 2 == 1;
		gpuvec_vectors *shards = open_shards(spread ? 0 : SIZE_MAX, i < 2 ? 1000 : 10, false);
		gpuvec_device_bank *bank = full_bank(shards);
		gpuvec_error error;
		int64_t		key = 0;

		check(find_key(shards, bank, 7) == GPUVEC_ASK_SLOT, "no hash table yet");
		check(shards->clear_keys(shards, bank, &error) &&
			  map_range(shards, bank, 0, CAPACITY, &error), "enter keys");
		check(find_key(shards, bank, 7) == 7, "a key");
		check(find_key(shards, bank, -7) == GPUVEC_NO_SLOT, "no such key");
		check(all_keys_found(shards, bank), "many keys");
		check(no_keys_found(shards, bank), "no keys");
		check(shards->key_limit(bank) >= CAPACITY, "room for all keys");

		/* as if all keys had one hash */
		for (uint64_t n = 0; spread && n < shards->key_limit(bank); n++)
		{
			gpuvec_key_row row = {.key = key = first_devices_key(key), .slot = 1};

			check(shards->map_keys(shards, bank, &row, 1, &error), "enter an unlucky key");
		}
		check(find_key(shards, bank, 7) == (spread ? GPUVEC_ASK_SLOT : 7), "a full hash table");
		check(shards->clear_keys(shards, bank, &error) &&
			  map_range(shards, bank, 0, CAPACITY, &error), "enter keys again");
		check(find_key(shards, bank, 7) == 7, "a key again");

		/* a failure in the middle of reserve */
		failing = 2;
		check(!shards->reserve(shards, bank, CAPACITY * 2, &error), "reserve fails");
		check(failing == 0, "the failure came");
		check(find_key(shards, bank, 7) == GPUVEC_ASK_SLOT, "hash tables are lost");
		check(map_range(shards, bank, 7, 8, &error), "entering is in vain");
		check(find_key(shards, bank, 7) == GPUVEC_ASK_SLOT, "hash tables are still lost");
		check(gather_right(shards, bank, CAPACITY, &error), "the bank is unchanged");
		check(shards->reserve(shards, bank, CAPACITY * 2, &error), "reserve succeeds");
		check(shards->clear_keys(shards, bank, &error) &&
			  map_range(shards, bank, 0, CAPACITY, &error) && find_key(shards, bank, 7) == 7,
			  "keys after growth");
		shards->release(shards, bank);
		shards->close(shards);
	}
}

/* All requests, and whether their answers are right */
static bool
all_requests(gpuvec_vectors *shards, gpuvec_device_bank *bank, bool *right, gpuvec_error *error)
{
	uint32_t	slots[12] = {0, 1, 2, 3, 4, 5, GPUVEC_NO_SLOT, 7, 1, 9, 10, 11};
	int64_t		keys[12] = {0, 1, 2, 3, 4, 5, 0, 7, 1, 9, 10, 11};
	float		gradient[4 * WIDTH] = {0};
	float		out[4 * WIDTH];
	float		weights[12];
	float		divisors[4] = {3, 3, 3, 3};
	uint8_t		live[CAPACITY];
	double		squares[2] = {0, 0};
	uint32_t	found[6];
	double		scores[6];
	uint32_t	counts[2];
	gpuvec_slot_bags bags = {
		.slots = slots, .nslots = 12, .hotness = 3, .nbags = 4, .mode = GPUVEC_POOL_MEAN,
		.divisors = divisors, .keys = keys
	};
	gpuvec_slot_bags sums = {.slots = slots, .nslots = 12, .hotness = 3, .nbags = 4};
	gpuvec_slot_search search = {
		.metric = GPUVEC_METRIC_L2, .queries = gradient, .squares = squares, .nqueries = 2, .k = 3,
		.live = live, .nlive = CAPACITY, .version = 1, .slots = found, .scores = scores,
		.counts = counts
	};
	uint32_t	slot;
	uint64_t	n;
	void	   *body;

	memset(live, 1, sizeof(live));
	if (!shards->clear_keys(shards, bank, error) || !map_range(shards, bank, 0, 2, error) ||
		!ask_key(shards, bank, 1, &slot, error) ||
		!shards->pool(shards, bank, &bags, out, error) ||
		!shards->weight_gradients(shards, bank, &bags, gradient, weights, error) ||
		!shards->weight_gradients(shards, bank, &sums, gradient, weights, error) ||
		!shards->nearest(shards, bank, &search, error) ||
		!shards->gradient(shards, bank, &bags, gradient, 12, &n, &body, error))
		return false;
	*right = out[0] == (element(0, 0) + element(1, 0) + element(2, 0)) / 3 && n == 10 &&
		((int64_t *) body)[1] == 1 && ((int64_t *) body)[9] == 11 && counts[0] == 3 &&
		scores[0] < 0 && found[0] < 3 && slot == 1;
	free(body);
	return true;
}

/*
 * Each call of a device fails once, while a bank is made and while it is
 * used.  The error is that device's, and the next request succeeds.
 */
static void
test_failures(size_t copy_bytes, uint64_t at_once, bool share)
{
	for (int64_t call = 1;; call++)
	{
		gpuvec_vectors *shards = open_shards(copy_bytes, at_once, share);
		gpuvec_device_bank *bank;
		gpuvec_error error = {0};
		bool		right = false;
		bool		ok;

		failing = call;
		lost = call % 2 == 0;
		bank = shards->make(shards, WIDTH, GPUVEC_FLOAT32, &error);
		ok = bank && shards->reserve(shards, bank, CAPACITY, &error) &&
			put_slots(shards, bank, 0, CAPACITY, &error) && shards->flush(shards, bank, &error);
		if (bank && !ok)
			shards->forget(bank);
		if (ok)
			ok = all_requests(shards, bank, &right, &error);
		check(ok || error.device == (error.fatal ? failed_device + 1 : 0), "the engine says which device is lost");
		lost = false;
		check(ok == (failing > 0), "a failure is reported");
		check(ok || error.message[7] == '0' + failed_device, "which one it is");
		check(!ok || right, "right answers");
		if (failing == 0 && bank)
		{
			ok = shards->reserve(shards, bank, CAPACITY, &error) &&
				put_slots(shards, bank, 0, CAPACITY, &error) && shards->flush(shards, bank, &error) &&
				all_requests(shards, bank, &right, &error);
			check(ok && right, "right answers after a failure");
			ok = false;
		}
		failing = 0;
		if (bank)
			shards->release(shards, bank);
		shards->close(shards);
		for (int i = 0; i < NCHILDREN; i++)
			check(devices[i].banks == 0, "banks are released after a failure");
		if (ok)
			break;
	}
}

/* A row of a search for the nearest */
typedef struct near_row
{
	gpuvec_near near;
	uint32_t	slot;
} near_row;

/* qsort comparator: better rows first */
static int
compare_near(const void *a, const void *b)
{
	const near_row *x = a;
	const near_row *y = b;

	return gpuvec_nearer(&x->near, &y->near) ? -1 : gpuvec_nearer(&y->near, &x->near);
}

#define NEAR_SLOTS		2000

/* Element i of the vector in a slot: products are few different numbers */
static float
small_element(uint32_t slot, int i)
{
	return (float) (int) ((slot * 2654435761u >> (8 + 2 * i)) % 5) - 2;
}

/* Keys are not in the order of slots */
static int64_t
near_key(uint32_t slot)
{
	return (int64_t) (slot * UINT64_C(7919) % NEAR_SLOTS) - 1000;
}

/* Fill a bank; `rows` are those of its live slots, all but every seventh */
static gpuvec_device_bank *
near_bank(gpuvec_vectors *shards, uint8_t *live, near_row *rows, uint32_t *n)
{
	gpuvec_error error;
	gpuvec_device_bank *bank = shards->make(shards, WIDTH, GPUVEC_FLOAT32, &error);

	check(bank && shards->reserve(shards, bank, NEAR_SLOTS, &error), "a bank");
	*n = 0;
	for (uint32_t slot = 0; slot < NEAR_SLOTS; slot++)
	{
		float		elements[WIDTH];

		for (int i = 0; i < WIDTH; i++)
			elements[i] = small_element(slot, i);
		check(shards->put(shards, bank, slot, near_key(slot), slot + 1000, elements, &error), "put");
		live[slot] = slot % 7 != 0;
		rows[*n].slot = slot;
		rows[*n].near.key = near_key(slot);
		rows[*n].near.tid = slot + 1000;
		*n += live[slot];
	}
	check(shards->flush(shards, bank, &error), "flush");
	return bank;
}

/* A search finds these rows, in any order */
static bool
finds(const gpuvec_slot_search *search, const near_row *rows)
{
	near_row	found[NEAR_SLOTS];

	for (uint32_t i = 0; i < search->k; i++)
	{
		found[i].slot = search->slots[i];
		found[i].near.score = search->scores[i];
		found[i].near.key = near_key(search->slots[i]);
		found[i].near.tid = search->slots[i] + 1000;
	}
	qsort(found, search->k, sizeof(*found), compare_near);
	for (uint32_t i = 0; i < search->k; i++)
		if (found[i].slot != rows[i].slot || found[i].near.score != rows[i].near.score)
			return false;
	return search->counts[0] == search->k;
}

/*
 * The nearest of a spread bank: scores of both signs, and 0, and many rows for
 * each of them
 */
static void
test_nearest(void)
{
	static const uint32_t numbers[] = {1, 2, 10, 100, 1000, NEAR_SLOTS - (NEAR_SLOTS + 6) / 7};
	static near_row rows[NEAR_SLOTS];
	static uint8_t live[NEAR_SLOTS];
	static uint32_t slots[NEAR_SLOTS];
	static double scores[NEAR_SLOTS];
	gpuvec_vectors *shards = open_shards(0, 1, false);
	uint32_t	n;
	gpuvec_device_bank *bank = near_bank(shards, live, rows, &n);
	gpuvec_error error;

	for (int q = -1; q <= 1; q++)
	{
		float		query[WIDTH];
		double		square;
		uint32_t	count;
		gpuvec_slot_search search = {
			.metric = GPUVEC_METRIC_IP, .queries = query, .squares = &square, .nqueries = 1,
			.live = live, .nlive = NEAR_SLOTS, .version = 1, .slots = slots, .scores = scores,
			.counts = &count
		};

		for (int i = 0; i < WIDTH; i++)
			query[i] = (float) q * (float) (i + 1);
		square = gpuvec_product(query, query, WIDTH);
		for (uint32_t i = 0; i < n; i++)
		{
			float		vector[WIDTH];

			for (int j = 0; j < WIDTH; j++)
				vector[j] = small_element(rows[i].slot, j);
			rows[i].near.score = gpuvec_product(query, vector, WIDTH);
		}
		qsort(rows, n, sizeof(*rows), compare_near);
		for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		{
			search.k = numbers[i];
			check(shards->nearest(shards, bank, &search, &error) && finds(&search, rows),
				  "the nearest of a spread bank");
		}
	}
	shards->release(shards, bank);
	shards->close(shards);
}

/* A gradient of many vectors of a spread bank: each has its own, by key */
static void
test_gradient(void)
{
	static near_row rows[NEAR_SLOTS];
	static uint8_t live[NEAR_SLOTS];
	static uint32_t slots[NEAR_SLOTS];
	static int64_t keys[NEAR_SLOTS];
	static float gradient[NEAR_SLOTS * WIDTH];
	gpuvec_vectors *shards = open_shards(0, 1, false);
	uint32_t	nlive;
	gpuvec_device_bank *bank = near_bank(shards, live, rows, &nlive);
	gpuvec_slot_bags bags = {
		.slots = slots, .nslots = NEAR_SLOTS, .hotness = 1, .nbags = NEAR_SLOTS, .keys = keys
	};
	bool		right = true;
	uint64_t	n;
	void	   *body;
	gpuvec_error error;

	for (uint32_t i = 0; i < NEAR_SLOTS; i++)
	{
		slots[i] = NEAR_SLOTS - 1 - i;
		keys[i] = near_key(slots[i]);
		for (int j = 0; j < WIDTH; j++)
			gradient[i * WIDTH + j] = (float) (slots[i] * 8 + j);
	}
	check(shards->gradient(shards, bank, &bags, gradient, NEAR_SLOTS, &n, &body, &error), "a gradient");
	check(n == NEAR_SLOTS, "of all vectors");
	for (uint32_t slot = 0; slot < NEAR_SLOTS && n == NEAR_SLOTS; slot++)
	{
		/* keys are all numbers from -1000 on */
		uint64_t	at = (uint64_t) (near_key(slot) + 1000);
		const float *row = (const float *) ((const int64_t *) body + n) + at * WIDTH;

		right &= ((const int64_t *) body)[at] == near_key(slot);
		for (int j = 0; j < WIDTH; j++)
			right &= row[j] == (float) (slot * 8 + j);
	}
	check(right, "a gradient of many vectors of a spread bank");
	free(body);
	shards->release(shards, bank);
	shards->close(shards);
}

/* A request that was canceled ends, and is not answered with anything */
static void
test_canceled(void)
{
	gpuvec_vectors *shards = open_shards(0, 1, false);
	gpuvec_device_bank *bank = full_bank(shards);
	gpuvec_error error;
	int			canceled = 1;
	uint32_t	slot = 1;
	float		out[WIDTH] = {77};
	gpuvec_slot_bags bags = {
		.slots = &slot, .nslots = 1, .hotness = 1, .nbags = 1, .canceled = &canceled
	};

	reset_counts();
	check(shards->pool(shards, bank, &bags, out, &error), "a canceled request");
	check(out[0] == 77 && devices[1].slots == 0, "nothing is done");
	shards->release(shards, bank);
	shards->close(shards);
}

/* Numbers of devices that cannot be */
static void
test_limits(void)
{
	gpuvec_vectors *children[1] = {&devices[0].functions};
	gpuvec_error error;

	check(gpuvec_shard_vectors_new(children, 0, &gpuvec_shard_defaults, &error) == NULL, "no device");
	check(gpuvec_shard_vectors_new(children, GPUVEC_MAX_CHILDREN + 1, &gpuvec_shard_defaults, &error) == NULL &&
		  strcmp(error.sqlstate, GPUVEC_LIMIT_EXCEEDED) == 0, "too many devices");
}

int
main(void)
{
	open_devices();
	test_layout();
	test_requests();
	test_growth(false);
	test_growth(true);
	test_keys();
	for (uint64_t at_once = 1; at_once <= 1000; at_once += 999)
	{
		test_failures(SIZE_MAX, at_once, false);
		test_failures(0, at_once, false);
		test_failures(0, at_once, true);
	}
	test_nearest();
	test_gradient();
	test_canceled();
	test_limits();
	return report_checks();
}
