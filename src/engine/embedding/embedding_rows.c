/*-------------------------------------------------------------------------
 *
 * embedding_rows.c
 *	  The rows of an embedding table: staging, publishing and removing them.
 *
 * A bank has the rows whose vectors have one width.  Most tables have one
 * bank.  A hash table (open addressing, linear probing) leads from a key to a
 * list of all row versions with that key.  Another list links the rows of
 * each page.
 *
 * A load or refresh stages rows in unused slots, which are on no list, so
 * readers do not notice them.  Publishing takes the rows of replaced pages
 * off their lists, and puts the staged rows on.  No reader runs meanwhile.
 * Its time depends on the number of changed rows only.  All memory that it
 * needs is allocated before.
 *
 * Vectors are where the backend has them (embedding_backend.h), and all else
 * is here.  A device also has a hash table of its own (key_map.c).
 * gpuvec_embedding_prepare() waits until staged vectors have arrived there.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cpu_vectors.h"
#include "engine/embedding/embedding_rows.h"
#include "engine/host_memory.h"

/* Number of entries of a new hash table */
#define FIRST_ENTRIES	1024

/* True if more than 5 of 8 entries would be in use */
#define ENTRIES_FULL(n, mask)	((n) * 8 > ((mask) + 1) * 5)

/*
 * Number of slots of a new bank.  Arrays from LARGE_BYTES on grow by a
 * quarter; smaller ones are doubled.
 */
#define FIRST_SLOTS		64
#define LARGE_BYTES		((size_t) 64 * 1024 * 1024)

/* Tables with at most this many slots are never sparse */
#define SPARSE_SLOTS	65536

/* Bytes of a row on the host, without its vector */
#define ROW_BYTES		(sizeof(gpuvec_vector_info) + sizeof(uint32_t) + sizeof(uint8_t))

/* Make a lock whose writer is not starved by a stream of readers */
static bool
init_lock(pthread_rwlock_t *lock)
{
	pthread_rwlockattr_t attributes;
	bool		ok;

	if (pthread_rwlockattr_init(&attributes) != 0)
		return false;
	pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	ok = pthread_rwlock_init(lock, &attributes) == 0;
	pthread_rwlockattr_destroy(&attributes);
	return ok;
}

/* Make a hash table of empty entries */
static gpuvec_key_entry *
new_entries(uint64_t n)
{
	gpuvec_key_entry *entries = gpuvec_memory_new(n * sizeof(*entries));

	for (uint64_t i = 0; entries && i < n; i++)
	{
		entries[i].key = 0;
		entries[i].first = GPUVEC_NO_VECTOR;
	}
	return entries;
}

gpuvec_embedding_table *
gpuvec_embedding_new(gpuvec_storage storage, gpuvec_vectors *vectors, gpuvec_error *error)
{
	gpuvec_embedding_table *table = calloc(1, sizeof(*table));

	if (table == NULL || !init_lock(&table->lock))
	{
		free(table);
		gpuvec_fail_memory(error, sizeof(*table));
		return NULL;
	}
	pthread_mutex_init(&table->resolved_mutex, NULL);
	pthread_mutex_init(&table->gram_mutex, NULL);
	table->refs = 1;
	table->storage = storage;
	table->vectors = vectors;
	if (!vectors->on_host && (table->map = gpuvec_key_map_new(error)) == NULL)
	{
		gpuvec_embedding_unref(table);
		return NULL;
	}
	table->mask = FIRST_ENTRIES - 1;
	table->entries = new_entries(FIRST_ENTRIES);
	if (table->entries == NULL)
	{
		gpuvec_embedding_unref(table);
		gpuvec_fail_memory(error, FIRST_ENTRIES * sizeof(gpuvec_key_entry));
		return NULL;
	}
	return table;
}

gpuvec_embedding_table *
gpuvec_embedding_ref(gpuvec_embedding_table *table)
{
	__atomic_add_fetch(&table->refs, 1, __ATOMIC_RELAXED);
	return table;
}

void
gpuvec_gram_free(gpuvec_gram *gram)
{
	if (gram && gram->store)
		gpuvec_store_unreserve(gram->store, gram->bytes);
	free(gram);
}

void
gpuvec_embedding_unref(gpuvec_embedding_table *table)
{
	if (table == NULL || __atomic_sub_fetch(&table->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	for (uint32_t i = 0; i < table->nbanks; i++)
	{
		table->banks[i]->backend->release(table->banks[i]->backend, table->banks[i]->vectors);
		free(table->banks[i]->rows);
		free(table->banks[i]->free);
		free(table->banks[i]->live);
		free(table->banks[i]);
	}
	gpuvec_key_map_free(table->map);
	gpuvec_resolved_unref(table->resolved);
	gpuvec_gram_free(table->gram);
	free(table->banks);
	free(table->entries);
	free(table->blocks);
	free(table->staged);
	gpuvec_page_numbers_unref(table->numbers);
	pthread_mutex_destroy(&table->resolved_mutex);
	pthread_mutex_destroy(&table->gram_mutex);
	pthread_rwlock_destroy(&table->lock);
	free(table);
}

/* Make a bank without room, which is not in the list of banks */
static gpuvec_bank *
new_bank(gpuvec_embedding_table *table, uint32_t width, gpuvec_vector_kind kind,
		 gpuvec_error *error)
{
	gpuvec_bank *bank = calloc(1, sizeof(*bank));

	if (bank == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*bank));
		return NULL;
	}
	bank->width = width;
	bank->kind = kind;
	bank->backend = width > 0 ? table->vectors : &gpuvec_cpu_vectors;
	bank->vectors = bank->backend->make(bank->backend, width, table->storage, error);
	if (bank->vectors == NULL)
	{
		free(bank);
		return NULL;
	}
	return bank;
}

/* Add a bank to the list.  Readers are kept out while the list moves. */
static gpuvec_bank *
add_bank(gpuvec_embedding_table *table, uint32_t width, gpuvec_vector_kind kind,
		 gpuvec_error *error)
{
	gpuvec_bank *bank = new_bank(table, width, kind, error);
	gpuvec_bank **banks;

	if (bank == NULL)
		return NULL;
	pthread_rwlock_wrlock(&table->lock);
	banks = realloc(table->banks, (table->nbanks + (size_t) 1) * sizeof(*banks));
	if (banks)
	{
		table->banks = banks;
		banks[table->nbanks++] = bank;
	}
	pthread_rwlock_unlock(&table->lock);
	if (banks == NULL)
	{
		bank->backend->release(bank->backend, bank->vectors);
		free(bank);
		gpuvec_fail_memory(error, sizeof(*banks));
		return NULL;
	}
	return bank;
}

/* Find or add the bank for such vectors; UINT32_MAX on failure */
static uint32_t
find_bank(gpuvec_embedding_table *table, uint32_t width, gpuvec_vector_kind kind,
		  gpuvec_error *error)
{
	for (uint32_t i = 0; i < table->nbanks; i++)
		if (table->banks[i]->width == width && table->banks[i]->kind == kind)
			return i;
	return add_bank(table, width, kind, error) ? table->nbanks - 1 : UINT32_MAX;
}

/* Bytes of a bank's slot on the host */
static size_t
slot_bytes(const gpuvec_embedding_table *table, const gpuvec_bank *bank)
{
	return ROW_BYTES + (bank->backend->on_host ? gpuvec_vector_bytes(table, bank) : 0);
}

/* Bytes of `capacity` slots of a bank on the device */
static size_t
device_bytes(const gpuvec_bank *bank, uint32_t capacity)
{
	return bank->backend->on_host ? 0 : bank->backend->bytes(bank->vectors, capacity);
}

/*
 * New number of slots of a full bank; more than UINT32_MAX if it must not
 * grow
 */
static size_t
larger_capacity(const gpuvec_embedding_table *table, const gpuvec_bank *bank)
{
	size_t		bytes = ROW_BYTES + gpuvec_vector_bytes(table, bank);
	size_t		most = bank->backend->on_host ? GPUVEC_ASK_SLOT : GPUVEC_MAX_SLOTS;
	size_t		capacity = bank->capacity == 0 ? FIRST_SLOTS :
		bank->capacity * bytes < LARGE_BYTES ? bank->capacity * (size_t) 2 :
		bank->capacity + bank->capacity / (size_t) 4;

	if (capacity > most && bank->capacity < most)
		return most;
	return capacity > most ? (size_t) UINT32_MAX + 1 : capacity;
}

/* Grow the arrays of a bank to `capacity` slots */
static bool
reserve_slots(gpuvec_embedding_table *table, gpuvec_bank *bank, uint32_t capacity, gpuvec_error *error)
{
	gpuvec_vector_info *rows = realloc(bank->rows, capacity * sizeof(*rows));
	uint32_t   *unused;
	uint8_t    *live;

	bank->rows = rows ? rows : bank->rows;
	unused = realloc(bank->free, capacity * sizeof(*unused));
	bank->free = unused ? unused : bank->free;
	live = realloc(bank->live, capacity);
	bank->live = live ? live : bank->live;
	if (rows == NULL || unused == NULL || live == NULL)
		return gpuvec_fail_memory(error, capacity * slot_bytes(table, bank));
	if (!bank->backend->reserve(bank->backend, bank->vectors, capacity, error))
		return false;
	memset(bank->live + bank->capacity, 0, capacity - bank->capacity);
	bank->capacity = capacity;
	return true;
}

/* Make room for more slots.  Readers are kept out while arrays move. */
static bool
grow_bank(gpuvec_embedding_table *table, gpuvec_bank *bank, gpuvec_error *error)
{
	size_t		capacity = larger_capacity(table, bank);
	size_t		bytes;
	size_t		more;
	bool		ok;

	if (capacity > UINT32_MAX)
		return gpuvec_fail(error, GPUVEC_LIMIT_EXCEEDED, NULL, NULL,
						   "the relation has too many rows for the gpuvec engine");
	bytes = device_bytes(bank, (uint32_t) capacity);
	more = device_bytes(bank, bank->capacity);
	/* copies on several devices may give way to one */
	more = bytes > more ? bytes - more : 0;
	if (!bank->backend->on_host && table->make_room &&
		!table->make_room(table->make_room_arg, bytes, more, error))
		return false;
	pthread_rwlock_wrlock(&table->lock);
	ok = reserve_slots(table, bank, (uint32_t) capacity, error);
	pthread_rwlock_unlock(&table->lock);
	if (ok)
		table->staged_bytes += more;
	return ok;
}

/* Take an unused slot */
static bool
take_slot(gpuvec_embedding_table *table, gpuvec_bank *bank, uint32_t *slot, gpuvec_error *error)
{
	if (bank->nfree > 0)
	{
		*slot = bank->free[--bank->nfree];
		return true;
	}
	if (bank->nslots == bank->capacity && !grow_bank(table, bank, error))
		return false;
	*slot = bank->nslots++;
	return true;
}

/* Give a slot back */
static void
free_slot(gpuvec_embedding_table *table, gpuvec_vector_ref ref)
{
	gpuvec_bank *bank = table->banks[gpuvec_ref_bank(ref)];

	bank->free[bank->nfree++] = gpuvec_ref_slot(ref);
}

/* Make room for one more staged row */
static bool
reserve_staged(gpuvec_embedding_table *table, gpuvec_error *error)
{
	uint64_t	capacity = table->staged_capacity ? table->staged_capacity * 2 : 1024;
	gpuvec_vector_ref *staged;

	if (table->nstaged < table->staged_capacity)
		return true;
	staged = realloc(table->staged, capacity * sizeof(*staged));
	if (staged == NULL)
		return gpuvec_fail_memory(error, capacity * sizeof(*staged));
	table->staged = staged;
	table->staged_capacity = capacity;
	return true;
}

bool
gpuvec_embedding_stage(gpuvec_embedding_table *table, uint64_t tid, const gpuvec_vector_row *row,
					   const void *elements, gpuvec_error *error)
{
	uint32_t	number = find_bank(table, row->width, (gpuvec_vector_kind) row->kind, error);
	gpuvec_bank *bank;
	uint32_t	slot;

	if (number == UINT32_MAX || !reserve_staged(table, error))
		return false;
	bank = table->banks[number];
	if (!take_slot(table, bank, &slot, error))
		return false;
	memset(&bank->rows[slot], 0, sizeof(bank->rows[slot]));
	bank->rows[slot].tid = tid;
	bank->rows[slot].key = row->key;
	table->staged[table->nstaged++] = gpuvec_vector_ref_of(number, slot);
	/* on a device, slots are charged when a bank grows */
	if (table->vectors->on_host)
		table->staged_bytes += slot_bytes(table, bank) + sizeof(gpuvec_vector_ref);
	return bank->backend->put(bank->backend, bank->vectors, slot, row->key, tid, elements, error);
}

/* Empty the list of staged rows */
static void
clear_staged(gpuvec_embedding_table *table)
{
	free(table->staged);
	table->staged = NULL;
	table->nstaged = table->staged_capacity = 0;
	table->staged_bytes = 0;
}

void
gpuvec_embedding_discard(gpuvec_embedding_table *table)
{
	for (uint64_t i = 0; i < table->nstaged; i++)
		free_slot(table, table->staged[i]);
	for (uint32_t i = 0; i < table->nbanks; i++)
		table->banks[i]->backend->forget(table->banks[i]->vectors);
	clear_staged(table);
}

/*
 * Grow the hash table for `keys` keys.  Readers are kept out while it is
 * swapped.
 */
static bool
grow_entries(gpuvec_embedding_table *table, uint64_t keys, gpuvec_error *error)
{
	gpuvec_embedding_table larger = {.mask = table->mask};
	gpuvec_key_entry *old = table->entries;

	while (ENTRIES_FULL(keys, larger.mask))
		larger.mask = larger.mask * 2 + 1;
	if (larger.mask == table->mask)
		return true;
	larger.entries = new_entries(larger.mask + 1);
	if (larger.entries == NULL)
		return gpuvec_fail_memory(error, (larger.mask + 1) * sizeof(gpuvec_key_entry));
	for (uint64_t i = 0; i <= table->mask; i++)
		if (old[i].first != GPUVEC_NO_VECTOR)
			larger.entries[gpuvec_key_index(&larger, old[i].key)] = old[i];
	pthread_rwlock_wrlock(&table->lock);
	table->entries = larger.entries;
	table->mask = larger.mask;
	pthread_rwlock_unlock(&table->lock);
	free(old);
	return true;
}

bool
gpuvec_embedding_prepare(gpuvec_embedding_table *table, uint32_t nblocks, gpuvec_error *error)
{
	uint32_t	most = table->nblocks > nblocks ? table->nblocks : nblocks;
	gpuvec_vector_ref *blocks;

	for (uint32_t i = 0; i < table->nbanks; i++)
		if (!table->banks[i]->backend->flush(table->banks[i]->backend, table->banks[i]->vectors,
											 error))
			return false;
	pthread_rwlock_wrlock(&table->lock);
	blocks = realloc(table->blocks, ((size_t) most + 1) * sizeof(*blocks));
	if (blocks)
		table->blocks = blocks;
	pthread_rwlock_unlock(&table->lock);
	if (blocks == NULL)
		return gpuvec_fail_memory(error, most * sizeof(*blocks));
	for (uint32_t block = table->nblocks; block < most; block++)
		blocks[block] = GPUVEC_NO_VECTOR;
	return grow_entries(table, table->nentries + table->nstaged, error);
}

/*
 * Empty an entry of the hash table, and move up entries behind it that
 * collided with it
 */
static void
remove_entry(gpuvec_embedding_table *table, uint64_t hole)
{
	uint64_t	next = hole;

	table->entries[hole].first = GPUVEC_NO_VECTOR;
	table->nentries--;
	for (;;)
	{
		gpuvec_key_entry entry;
		uint64_t	index;

		next = (next + 1) & table->mask;
		entry = table->entries[next];
		if (entry.first == GPUVEC_NO_VECTOR)
			return;

		/* the first empty entry from its hash on; maybe `next` itself */
		table->entries[next].first = GPUVEC_NO_VECTOR;
		index = gpuvec_key_index(table, entry.key);
		table->entries[index] = entry;
	}
}

/* Take a row off the list of its key; the list of its page stays */
static void
unlink_row(gpuvec_embedding_table *table, gpuvec_vector_ref ref)
{
	gpuvec_vector_info *row = gpuvec_vector_at(table, ref);

	if (row->next != GPUVEC_NO_VECTOR)
		gpuvec_vector_at(table, row->next)->previous = row->previous;
	if (row->previous != GPUVEC_NO_VECTOR)
		gpuvec_vector_at(table, row->previous)->next = row->next;
	else
	{
		uint64_t	index = gpuvec_key_index(table, row->key);

		if (row->next != GPUVEC_NO_VECTOR)
			table->entries[index].first = row->next;
		else
			remove_entry(table, index);
	}
	gpuvec_key_changed(table, row->key);
	table->banks[gpuvec_ref_bank(ref)]->live[gpuvec_ref_slot(ref)] = false;
	table->nrows--;
}

/* Put a row on the lists of its key and page */
static void
link_row(gpuvec_embedding_table *table, gpuvec_vector_ref ref)
{
	gpuvec_vector_info *row = gpuvec_vector_at(table, ref);
	gpuvec_key_entry *entry = &table->entries[gpuvec_key_index(table, row->key)];
	gpuvec_vector_ref *block = &table->blocks[gpuvec_tid_block(row->tid)];

	if (entry->first == GPUVEC_NO_VECTOR)
		table->nentries++;
	else
		gpuvec_vector_at(table, entry->first)->previous = ref;
	row->next = entry->first;
	row->previous = GPUVEC_NO_VECTOR;
	entry->key = row->key;
	entry->first = ref;
	row->next_in_block = *block;
	*block = ref;
	gpuvec_key_changed(table, row->key);
	table->banks[gpuvec_ref_bank(ref)]->live[gpuvec_ref_slot(ref)] = true;
	table->nrows++;
}

/* Remove all rows of a page */
static void
clear_block(gpuvec_embedding_table *table, uint32_t block)
{
	gpuvec_vector_ref ref = table->blocks[block];

	while (ref != GPUVEC_NO_VECTOR)
	{
		gpuvec_vector_ref next = gpuvec_vector_at(table, ref)->next_in_block;

		unlink_row(table, ref);
		free_slot(table, ref);
		ref = next;
	}
	table->blocks[block] = GPUVEC_NO_VECTOR;
}

void
gpuvec_embedding_publish(gpuvec_embedding_table *table, const uint32_t *blocks, uint64_t n,
						 uint32_t nblocks)
{
	for (uint64_t i = 0; i < n && blocks[i] < table->nblocks; i++)
		clear_block(table, blocks[i]);
	for (uint32_t block = nblocks; block < table->nblocks; block++)
		clear_block(table, block);
	for (uint64_t i = 0; i < table->nstaged; i++)
	{
		if (gpuvec_tid_block(gpuvec_vector_at(table, table->staged[i])->tid) < nblocks)
			link_row(table, table->staged[i]);
		else
			free_slot(table, table->staged[i]);
	}
	clear_staged(table);
	for (uint32_t i = 0; i < table->nbanks; i++)
		table->banks[i]->nlive = table->banks[i]->nslots;
	table->nblocks = nblocks;
	table->version++;
	gpuvec_resolved_unref(table->resolved);
	table->resolved = NULL;
	gpuvec_gram_free(table->gram);
	table->gram = NULL;
}

void
gpuvec_embedding_bytes(const gpuvec_embedding_table *table, size_t *host, size_t *device)
{
	*host = sizeof(*table) + (table->map ? gpuvec_key_map_bytes() : 0) +
		(table->mask + 1) * sizeof(gpuvec_key_entry) +
		table->nblocks * sizeof(gpuvec_vector_ref) + table->staged_capacity * sizeof(gpuvec_vector_ref);
	*device = 0;
	for (uint32_t i = 0; i < table->nbanks; i++)
	{
		const gpuvec_bank *bank = table->banks[i];

		*host += sizeof(*bank) + bank->nslots * slot_bytes(table, bank);
		*device += device_bytes(bank, bank->capacity);
	}
}

bool
gpuvec_embedding_sparse(const gpuvec_embedding_table *table)
{
	uint64_t	slots = 0;

	for (uint32_t i = 0; i < table->nbanks; i++)
		slots += table->banks[i]->nslots;
	return slots > SPARSE_SLOTS && table->nrows < slots / 3;
}
