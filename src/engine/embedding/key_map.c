/*-------------------------------------------------------------------------
 *
 * key_map.c
 *	  Looking keys up in a hash table on the device.
 *
 * If vectors are on a device, it looks up the keys of large requests.  Its
 * hash table leads from keys to slots of the largest bank
 * (embedding_backend.h).  It answers for keys with one row, if the session is
 * known to see all rows of that row's page.  All else is left to the host:
 * keys of several rows or of rows in another bank, and rows that the session
 * may have to decide about.
 *
 * The device hashes keys in a way that is known, so it gets veiled ones
 * (hash_secret.h).
 *
 * Requests bring the device's hash table up to date when they need it.  The
 * keys whose rows have changed since its last use are in a list, and are
 * entered anew from the host's hash table.  If too many keys have changed, or
 * the bank has grown, the hash table is rebuilt.  Nothing is published
 * meanwhile, because the request holds the table's lock.  Other requests wait
 * for the mutex.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/embedding/reading.h"
#include "engine/fault.h"
#include "engine/host_memory.h"

/* Rows are prefetched this many entries ahead */
#define AHEAD			16

/* Keys that a thread veils at a time */
#define VEILED_SLICE		65536

/* A rebuild of the device's hash table */
typedef struct map_making
{
	const gpuvec_embedding_table *table;
	pthread_mutex_t mutex;		/* guards what follows */
	bool		failed;
	gpuvec_error error;			/* the first error, if failed */
} map_making;

size_t
gpuvec_key_map_bytes(void)
{
	return sizeof(gpuvec_key_map) + gpuvec_embedding_policy.changed_keys * sizeof(int64_t);
}

gpuvec_key_map *
gpuvec_key_map_new(gpuvec_error *error)
{
	gpuvec_key_map *map = calloc(1, gpuvec_key_map_bytes());

	if (map == NULL)
	{
		gpuvec_fail_memory(error, gpuvec_key_map_bytes());
		return NULL;
	}
	pthread_mutex_init(&map->mutex, NULL);
	return map;
}

void
gpuvec_key_map_free(gpuvec_key_map *map)
{
	if (map == NULL)
		return;
	pthread_mutex_destroy(&map->mutex);
	free(map);
}

/* The device's entry for a key whose list of rows begins with `first` */
static gpuvec_key_row
key_row_of(const gpuvec_embedding_table *table, int64_t key, gpuvec_vector_ref first)
{
	gpuvec_key_row found = {.key = gpuvec_veiled_key(key), .slot = GPUVEC_NO_SLOT};
	const gpuvec_vector_info *row;

	if (first == GPUVEC_NO_VECTOR)
		return found;
	row = gpuvec_vector_at(table, first);
	if (row->next != GPUVEC_NO_VECTOR || gpuvec_ref_bank(first) != table->map->bank)
		found.slot = GPUVEC_ASK_SLOT;
	else
	{
		found.slot = gpuvec_ref_slot(first);
		found.block = gpuvec_tid_block(row->tid);
	}
	return found;
}

/* Task: enter the keys of a slice of the host's hash table */
static void
map_part(void *task, uint64_t slice, int thread)
{
	map_making *making = task;
	const gpuvec_embedding_table *table = making->table;
	const gpuvec_bank *bank = table->banks[table->map->bank];
	uint64_t	most = gpuvec_embedding_policy.part_entries;
	uint64_t	first = slice * most;
	uint64_t	end = first + most <= table->mask ? first + most : table->mask + 1;
	gpuvec_key_row *rows = malloc((end - first) * sizeof(*rows));
	gpuvec_error error;
	uint64_t	n = 0;
	bool		ok = rows != NULL || gpuvec_fail_memory(&error, (end - first) * sizeof(*rows));

	for (uint64_t i = first; ok && i < end; i++)
	{
		const gpuvec_key_entry *entry = &table->entries[i];

		if (i + AHEAD < end && entry[AHEAD].first != GPUVEC_NO_VECTOR)
			__builtin_prefetch(gpuvec_vector_at(table, entry[AHEAD].first));
		if (entry->first != GPUVEC_NO_VECTOR)
			rows[n++] = key_row_of(table, entry->key, entry->first);
	}
	ok = ok && table->vectors->map_keys(table->vectors, bank->vectors, rows, n, &error);
	free(rows);
	if (ok)
		return;
	pthread_mutex_lock(&making->mutex);
	if (!making->failed)
		making->error = error;
	making->failed = true;
	pthread_mutex_unlock(&making->mutex);
}

/* Rebuild the device's hash table */
static bool
make_map(const gpuvec_embedding_table *table, gpuvec_thread_pool *pool, gpuvec_error *error)
{
	gpuvec_key_map *map = table->map;
	const gpuvec_bank *bank = table->banks[map->bank];
	uint64_t	nslices = table->mask / gpuvec_embedding_policy.part_entries + 1;
	map_making	making = {.table = table};

	if (!table->vectors->clear_keys(table->vectors, bank->vectors, error))
		return false;
	pthread_mutex_init(&making.mutex, NULL);
	if (nslices == 1)
		map_part(&making, 0, 0);
	else
		gpuvec_thread_pool_run(pool, map_part, &making, nslices);
	pthread_mutex_destroy(&making.mutex);
	if (making.failed)
	{
		*error = making.error;
		return false;
	}
	map->entered = table->nentries;
	map->capacity = bank->capacity;
	return true;
}

/* qsort comparator of keys */
static int
compare_keys(const void *a, const void *b)
{
	int64_t		x = *(const int64_t *) a;
	int64_t		y = *(const int64_t *) b;

	return x < y ? -1 : x > y;
}

/* Enter the keys whose rows have changed */
static bool
follow_changes(const gpuvec_embedding_table *table, gpuvec_error *error)
{
	gpuvec_key_map *map = table->map;
	const gpuvec_bank *bank = table->banks[map->bank];
	gpuvec_key_row *rows = malloc((map->nchanged + 1) * sizeof(*rows));
	uint64_t	n = 0;
	bool		ok;

	if (rows == NULL)
		return gpuvec_fail_memory(error, map->nchanged * sizeof(*rows));
	qsort(map->changed, map->nchanged, sizeof(map->changed[0]), compare_keys);
	for (uint64_t i = 0; i < map->nchanged; i++)
	{
		int64_t		key = map->changed[i];

		if (i == 0 || key != map->changed[i - 1])
			rows[n++] = key_row_of(table, key, table->entries[gpuvec_key_index(table, key)].first);
	}
	ok = table->vectors->map_keys(table->vectors, bank->vectors, rows, n, error);
	free(rows);
	map->entered += n;
	return ok;
}

/*
 * The bank that the device's hash table refers to: of the banks with usable
 * vectors, the one with most slots.  It changes only when rows are published.
 */
static uint32_t
choose_bank(const gpuvec_embedding_table *table)
{
	uint32_t	best = UINT32_MAX;

	for (uint32_t i = 0; i < table->nbanks; i++)
	{
		const gpuvec_bank *bank = table->banks[i];

		if (bank->width > 0 && bank->kind == GPUVEC_VECTOR_GOOD && bank->nlive > 0 &&
			(best == UINT32_MAX || bank->nlive > table->banks[best]->nlive))
			best = i;
	}
	return best;
}

/*
 * Bring the device's hash table up to date.  *usable is false if there is
 * none.  The caller holds the mutex.
 */
static bool
follow(const gpuvec_embedding_table *table, gpuvec_thread_pool *pool, bool *usable,
	   gpuvec_error *error)
{
	gpuvec_key_map *map = table->map;
	uint32_t	number = choose_bank(table);
	const gpuvec_bank *bank;
	uint64_t	limit;
	bool		afresh;
	bool		ok;

	*usable = false;
	if (number == UINT32_MAX)
		return true;
	bank = table->banks[number];
	limit = table->vectors->key_limit(bank->vectors);
	/* keys of rows in other banks take entries as well */
	if (table->nentries > limit)
		return true;
	*usable = true;
	afresh = map->version == 0 || map->bank != number || map->capacity != bank->capacity ||
		map->nchanged > gpuvec_embedding_policy.changed_keys || map->entered + map->nchanged > limit;
	if (map->version == table->version && !afresh)
		return true;
	map->bank = number;
	ok = afresh ? make_map(table, pool, error) : follow_changes(table, error);
	map->version = ok ? table->version : 0;
	map->nchanged = 0;
	return ok;
}

/* Keys that are veiled for the device */
typedef struct veil_task
{
	const int64_t *keys;
	uint64_t	nkeys;
	int64_t    *veiled;
} veil_task;

/* Task: veil a slice of the keys */
static void
veil_slice(void *arg, uint64_t slice, int thread)
{
	const veil_task *task = arg;
	uint64_t	first = slice * VEILED_SLICE;
	uint64_t	end = first + VEILED_SLICE < task->nkeys ? first + VEILED_SLICE : task->nkeys;

	(void) thread;
	for (uint64_t i = first; i < end; i++)
		task->veiled[i] = gpuvec_veiled_key(task->keys[i]);
}

/* Veil keys for the device; malloc'd, or NULL with *error */
static int64_t *
veil_keys(const int64_t *keys, uint64_t nkeys, gpuvec_thread_pool *pool, gpuvec_error *error)
{
	size_t		bytes = (nkeys + 1) * sizeof(int64_t);
	veil_task	task = {.keys = keys, .nkeys = nkeys, .veiled = gpuvec_memory_new(bytes)};
	uint64_t	nslices = nkeys / VEILED_SLICE + 1;

	if (task.veiled == NULL)
		(void) gpuvec_fail_memory(error, bytes);
	else if (nslices == 1)
		veil_slice(&task, 0, 0);
	else
		gpuvec_thread_pool_run(pool, veil_slice, &task, nslices);
	return task.veiled;
}

bool
gpuvec_reading_asks_device(const gpuvec_reading *r)
{
	long		least = gpuvec_embedding_policy.device_keys;

	(void) gpuvec_fault("device-keys", &least);
	return r->table->map && r->nkeys >= (uint64_t) least;
}

bool
gpuvec_reading_find(gpuvec_reading *r, gpuvec_thread_pool *pool, gpuvec_error *error)
{
	const gpuvec_embedding_table *table = r->table;
	gpuvec_key_search search = {.nkeys = r->nkeys, .canceled = r->q->canceled};
	int64_t    *keys;
	bool		usable;
	bool		ok;

	if (!gpuvec_reading_asks_device(r))
		return true;
	pthread_mutex_lock(&table->map->mutex);
	ok = follow(table, pool, &usable, error);
	pthread_mutex_unlock(&table->map->mutex);
	if (!ok || !usable)
		return ok;
	search.keys = keys = veil_keys(r->q->keys, r->nkeys, pool, error);
	r->slots = search.slots = keys ? gpuvec_memory_new((r->nkeys + 1) * sizeof(uint32_t)) : NULL;
	search.proven = r->resolved->pages;
	search.nblocks = r->resolved->nblocks;
	ok = r->slots ? table->vectors->find_keys(table->vectors,
											  table->banks[table->map->bank]->vectors,
											  &search, error) :
		gpuvec_fail_memory(error, r->nkeys * sizeof(uint32_t));
	free(keys);
	return ok;
}
