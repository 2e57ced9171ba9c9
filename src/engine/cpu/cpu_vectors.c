/*-------------------------------------------------------------------------
 *
 * cpu_vectors.c
 *	  Vectors of embedding tables in the host's memory: banks.
 *
 * A vector that is put is there at once, so there is nothing to flush.  The
 * host has a hash table of all keys already.  The one here, and banks that
 * share memory, are for several of these in the place of several devices
 * (slices/vectors).  As on a GPU, reserve destroys the hash table, and there
 * is none until clear_keys makes one.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "core/hash_secret.h"
#include "engine/cpu/cpu_vectors.h"

/* Entries of the hash table for each slot, and beyond these */
#define SLOT_ENTRIES	2
#define SPARE_ENTRIES	64

static cpu_bank *
cpu_bank_of(gpuvec_device_bank *bank)
{
	return (cpu_bank *) bank;
}

static gpuvec_device_bank *
bank_make(gpuvec_vectors *vectors, uint32_t width, gpuvec_storage storage, gpuvec_error *error)
{
	cpu_bank   *bank = calloc(1, sizeof(*bank));

	if (bank == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*bank));
		return NULL;
	}
	bank->width = width;
	bank->storage = storage;
	bank->vector_bytes = width * gpuvec_element_bytes(storage);
	pthread_mutex_init(&bank->mutex, NULL);
	return (gpuvec_device_bank *) bank;
}

/* Free the vectors of a bank */
static void
free_elements(cpu_bank *bank)
{
	if (bank->range == NULL)
		free(bank->elements);
	else if (--bank->range->refs == 0)
		free(bank->range);
}

static void
bank_release(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank)
{
	cpu_bank   *bank = cpu_bank_of(device_bank);

	if (bank == NULL)
		return;
	pthread_mutex_destroy(&bank->mutex);
	free_elements(bank);
	free(bank->entries);
	free(bank);
}

static uint64_t
entries_of(uint32_t capacity)
{
	return (uint64_t) capacity * SLOT_ENTRIES + SPARE_ENTRIES;
}

static size_t
bank_bytes(const gpuvec_device_bank *device_bank, uint32_t capacity)
{
	const cpu_bank *bank = (const cpu_bank *) device_bank;

	return capacity * bank->vector_bytes + entries_of(capacity) * sizeof(cpu_key_entry);
}

static bool
bank_reserve(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank, uint32_t capacity,
			 gpuvec_error *error)
{
	cpu_bank   *bank = cpu_bank_of(device_bank);
	char	   *elements = realloc(bank->elements, capacity * bank->vector_bytes + 1);

	if (elements == NULL)
		return gpuvec_fail_memory(error, bank_bytes(device_bank, capacity));
	bank->elements = elements;
	bank->capacity = capacity;
	free(bank->entries);
	bank->entries = NULL;
	return true;
}

/* Any devices in host memory can */
static bool
can_share(gpuvec_vectors *const *vectors, uint32_t n)
{
	return true;
}

/* One slot more than asked for lies between banks */
static bool
reserve_shared(gpuvec_vectors *const *vectors, gpuvec_device_bank *const *banks, uint32_t n,
			   uint32_t capacity, uint32_t *distance, gpuvec_error *error)
{
	size_t		slice = (capacity + (size_t) 1) * cpu_bank_of(banks[0])->vector_bytes;
	cpu_range  *range = calloc(1, sizeof(*range) + n * slice);

	if (range == NULL)
		return gpuvec_fail_memory(error, n * slice);
	for (uint32_t i = 0; i < n; i++)
	{
		cpu_bank   *bank = cpu_bank_of(banks[i]);
		char	   *elements = range->elements + i * slice;

		if (bank->elements)
			memcpy(elements, bank->elements, bank->capacity * bank->vector_bytes);
		free_elements(bank);
		bank->range = range;
		bank->elements = elements;
		bank->capacity = capacity;
		range->refs++;
		free(bank->entries);
		bank->entries = NULL;
	}
	*distance = capacity + 1;
	return true;
}

static bool
bank_put(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank, uint32_t slot, int64_t key,
		 uint64_t tid, const void *elements, gpuvec_error *error)
{
	cpu_bank   *bank = cpu_bank_of(device_bank);

	memcpy(bank->elements + slot * bank->vector_bytes, elements, bank->vector_bytes);
	return true;
}

static bool
bank_flush(gpuvec_vectors *vectors, gpuvec_device_bank *bank, gpuvec_error *error)
{
	return true;
}

static void
bank_forget(gpuvec_device_bank *bank)
{
}

/* ---- keys ---- */

static uint64_t
key_limit(const gpuvec_device_bank *bank)
{
	return entries_of(((const cpu_bank *) bank)->capacity) / 4 * 3;
}

static bool
clear_keys(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank, gpuvec_error *error)
{
	cpu_bank   *bank = cpu_bank_of(device_bank);

	free(bank->entries);
	bank->nentries = entries_of(bank->capacity);
	bank->entries = calloc(bank->nentries, sizeof(*bank->entries));
	return bank->entries != NULL ||
		gpuvec_fail_memory(error, bank->nentries * sizeof(*bank->entries));
}

/* The entry of a key, or the one where it belongs */
static cpu_key_entry *
find_entry(const cpu_bank *bank, int64_t key)
{
	uint64_t	at = gpuvec_secret_hash(key) % bank->nentries;

	while (bank->entries[at].used && bank->entries[at].row.key != key)
		at = at + 1 < bank->nentries ? at + 1 : 0;
	return &bank->entries[at];
}

/* There must be a hash table */
static bool
check_entries(const cpu_bank *bank, gpuvec_error *error)
{
	return bank->entries != NULL ||
		gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL, "the bank has no hash table of keys");
}

static bool
map_keys(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank, const gpuvec_key_row *rows,
		 uint64_t n, gpuvec_error *error)
{
	cpu_bank   *bank = cpu_bank_of(device_bank);

	if (!check_entries(bank, error))
		return false;
	pthread_mutex_lock(&bank->mutex);
	for (uint64_t i = 0; i < n; i++)
	{
		cpu_key_entry *entry = find_entry(bank, rows[i].key);

		if (!entry->used && rows[i].slot == GPUVEC_NO_SLOT)
			continue;
		entry->row = rows[i];
		entry->used = true;
	}
	pthread_mutex_unlock(&bank->mutex);
	return true;
}

static bool
find_keys(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
		  const gpuvec_key_search *search, gpuvec_error *error)
{
	const cpu_bank *bank = cpu_bank_of(device_bank);

	if (!check_entries(bank, error))
		return false;
	for (uint64_t i = 0; i < search->nkeys; i++)
	{
		const cpu_key_entry *entry = find_entry(bank, search->keys[i]);
		uint32_t	block = entry->row.block;

		search->slots[i] = entry->used ? entry->row.slot : GPUVEC_NO_SLOT;
		if (search->slots[i] != GPUVEC_NO_SLOT &&
			!(block < search->nblocks && (search->proven[block / 32] >> block % 32 & 1)))
			search->slots[i] = GPUVEC_ASK_SLOT;
	}
	return true;
}

static void
close_vectors(gpuvec_vectors *vectors)
{
}

gpuvec_vectors gpuvec_cpu_vectors = {
	.on_host = true, .close = close_vectors, .make = bank_make, .release = bank_release,
	.reserve = bank_reserve, .bytes = bank_bytes, .put = bank_put, .flush = bank_flush,
	.forget = bank_forget, .key_limit = key_limit, .clear_keys = clear_keys,
	.map_keys = map_keys, .find_keys = find_keys, .pool = cpu_pool, .gradient = cpu_gradient,
	.weight_gradients = cpu_weight_gradients, .nearest = cpu_nearest, .can_share = can_share,
	.reserve_shared = reserve_shared, .pool_shared = cpu_pool_shared
};
