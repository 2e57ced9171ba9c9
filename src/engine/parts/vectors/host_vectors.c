/*-------------------------------------------------------------------------
 *
 * host_vectors.c
 *	  Vectors of embedding tables in host memory, behind the interface of a
 *	  device.
 *
 * All answers are those of the definitions in core/, by one thread.  As on a
 * GPU, new vectors are collected until flush, reserve destroys the hash table
 * of keys, and there is no hash table until clear_keys makes one.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/embedding/pool_simd.h"
#include "core/hash_secret.h"
#include "engine/parts/vectors/host_vectors.h"
#include "engine/parts/vectors/slot_bags.h"

/* Entries of the hash table for each slot, and beyond these */
#define SLOT_ENTRIES	2
#define SPARE_ENTRIES	64

/* An entry of the hash table */
typedef struct host_entry
{
	gpuvec_key_row row;
	bool		used;
} host_entry;

/* A vector that was put, but has not arrived; its elements follow */
typedef struct host_record
{
	struct host_record *next;
	int64_t		key;
	uint64_t	tid;
	uint32_t	slot;
	char		elements[];
} host_record;

/* Vectors of several banks */
typedef struct host_range
{
	int			refs;
	char		elements[];
}			host_range;

typedef struct host_bank
{
	uint32_t	width;
	gpuvec_storage storage;
	uint32_t	room;
	size_t		vector_bytes;
	char	   *elements;		/* [room * width] */
	host_range *range;			/* where elements are, or NULL */
	int64_t    *keys;			/* [room] */
	uint64_t   *tids;			/* [room] */
	host_record *pending;
	pthread_mutex_t mutex;		/* guards the hash table */
	host_entry *entries;		/* [nentries], or NULL */
	uint64_t	nentries;
} host_bank;

static host_bank *
host_bank_of(gpuvec_device_bank *bank)
{
	return (host_bank *) bank;
}

static void
host_close(gpuvec_vectors *vectors)
{
	free(vectors);
}

static gpuvec_device_bank *
host_make(gpuvec_vectors *vectors, uint32_t width, gpuvec_storage storage, gpuvec_error *error)
{
	host_bank  *bank = calloc(1, sizeof(*bank));

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

static void
host_forget(gpuvec_device_bank *device_bank)
{
	host_bank  *bank = host_bank_of(device_bank);

	while (bank->pending)
	{
		host_record *record = bank->pending;

		bank->pending = record->next;
		free(record);
	}
}

/* Free the vectors of a bank */
static void
free_elements(host_bank *bank)
{
	if (bank->range == NULL)
		free(bank->elements);
	else if (--bank->range->refs == 0)
		free(bank->range);
}

static void
host_release(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank)
{
	host_bank  *bank = host_bank_of(device_bank);

	if (bank == NULL)
		return;
	host_forget(device_bank);
	pthread_mutex_destroy(&bank->mutex);
	free_elements(bank);
	free(bank->keys);
	free(bank->tids);
	free(bank->entries);
	free(bank);
}

static uint64_t
entries_of(uint32_t room)
{
	return (uint64_t) room * SLOT_ENTRIES + SPARE_ENTRIES;
}

static size_t
host_bytes(const gpuvec_device_bank *device_bank, uint32_t room)
{
	const host_bank *bank = (const host_bank *) device_bank;

	return room * (bank->vector_bytes + sizeof(int64_t) + sizeof(uint64_t)) +
		entries_of(room) * sizeof(host_entry);
}

/* Make an array larger, with zeros at its end */
static bool
grow_array(void *array, size_t from, size_t to)
{
	void	  **place = array;
	char	   *larger = realloc(*place, to + 1);

	if (larger == NULL)
		return false;
	if (to > from)
		memset(larger + from, 0, to - from);
	*place = larger;
	return true;
}

/* Make room for keys and tids */
static bool
grow_keys(host_bank *bank, uint32_t room)
{
	size_t		from = bank->room;
	size_t		to = room;

	return grow_array(&bank->keys, from * sizeof(int64_t), to * sizeof(int64_t)) &&
		grow_array(&bank->tids, from * sizeof(uint64_t), to * sizeof(uint64_t));
}

static bool
host_reserve(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank, uint32_t room,
			 gpuvec_error *error)
{
	host_bank  *bank = host_bank_of(device_bank);

	if (!grow_array(&bank->elements, bank->room * bank->vector_bytes, room * bank->vector_bytes) ||
		!grow_keys(bank, room))
		return gpuvec_fail_memory(error, host_bytes(device_bank, room));
	bank->room = room;
	free(bank->entries);
	bank->entries = NULL;
	return true;
}

/* Any devices in host memory can */
static bool
host_can_share(gpuvec_vectors *const *vectors, uint32_t n)
{
	return true;
}

/* One slot more than asked for lies between banks */
static bool
host_reserve_shared(gpuvec_vectors *const *vectors, gpuvec_device_bank *const *banks, uint32_t n,
					uint32_t room, uint32_t *distance, gpuvec_error *error)
{
	size_t		part = (room + (size_t) 1) * host_bank_of(banks[0])->vector_bytes;
	host_range *range = calloc(1, sizeof(*range) + n * part);
	bool		ok = range != NULL;

	for (uint32_t i = 0; ok && i < n; i++)
		ok = grow_keys(host_bank_of(banks[i]), room);
	if (!ok)
	{
		free(range);
		return gpuvec_fail_memory(error, n * part);
	}
	for (uint32_t i = 0; i < n; i++)
	{
		host_bank  *bank = host_bank_of(banks[i]);
		char	   *elements = range->elements + i * part;

		if (bank->elements)
			memcpy(elements, bank->elements, bank->room * bank->vector_bytes);
		free_elements(bank);
		bank->range = range;
		bank->elements = elements;
		bank->room = room;
		range->refs++;
		free(bank->entries);
		bank->entries = NULL;
	}
	*distance = room + 1;
	return true;
}

static bool
host_put(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank, uint32_t slot, int64_t key,
		 uint64_t tid, const void *elements, gpuvec_error *error)
{
	host_bank  *bank = host_bank_of(device_bank);
	host_record *record = malloc(sizeof(*record) + bank->vector_bytes);

	if (record == NULL)
		return gpuvec_fail_memory(error, sizeof(*record) + bank->vector_bytes);
	record->next = bank->pending;
	record->slot = slot;
	record->key = key;
	record->tid = tid;
	memcpy(record->elements, elements, bank->vector_bytes);
	bank->pending = record;
	return true;
}

static bool
host_flush(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank, gpuvec_error *error)
{
	host_bank  *bank = host_bank_of(device_bank);

	for (const host_record *record = bank->pending; record; record = record->next)
	{
		memcpy(bank->elements + record->slot * bank->vector_bytes, record->elements,
			   bank->vector_bytes);
		bank->keys[record->slot] = record->key;
		bank->tids[record->slot] = record->tid;
	}
	host_forget(device_bank);
	return true;
}

/* ---- keys ---- */

static uint64_t
host_key_limit(const gpuvec_device_bank *bank)
{
	return entries_of(((const host_bank *) bank)->room) / 4 * 3;
}

static bool
host_clear_keys(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank, gpuvec_error *error)
{
	host_bank  *bank = host_bank_of(device_bank);

	free(bank->entries);
	bank->nentries = entries_of(bank->room);
	bank->entries = calloc(bank->nentries, sizeof(*bank->entries));
	return bank->entries != NULL ||
		gpuvec_fail_memory(error, bank->nentries * sizeof(*bank->entries));
}

/* The entry of a key, or the one where it belongs */
static host_entry *
find_entry(const host_bank *bank, int64_t key)
{
	uint64_t	at = gpuvec_secret_hash(key) % bank->nentries;

	while (bank->entries[at].used && bank->entries[at].row.key != key)
		at = at + 1 < bank->nentries ? at + 1 : 0;
	return &bank->entries[at];
}

/* There must be a hash table */
static bool
check_entries(const host_bank *bank, gpuvec_error *error)
{
	return bank->entries != NULL ||
		gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL, "the bank has no hash table of keys");
}

static bool
host_map_keys(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank, const gpuvec_key_row *rows,
			  uint64_t n, gpuvec_error *error)
{
	host_bank  *bank = host_bank_of(device_bank);

	if (!check_entries(bank, error))
		return false;
	pthread_mutex_lock(&bank->mutex);
	for (uint64_t i = 0; i < n; i++)
	{
		host_entry *entry = find_entry(bank, rows[i].key);

		if (!entry->used && rows[i].slot == GPUVEC_NO_SLOT)
			continue;
		entry->row = rows[i];
		entry->used = true;
	}
	pthread_mutex_unlock(&bank->mutex);
	return true;
}

static bool
host_find_keys(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
			   const gpuvec_key_search *search, gpuvec_error *error)
{
	const host_bank *bank = host_bank_of(device_bank);

	if (!check_entries(bank, error))
		return false;
	for (uint64_t i = 0; i < search->nkeys; i++)
	{
		const host_entry *entry = find_entry(bank, search->keys[i]);
		uint32_t	block = entry->row.block;

		search->slots[i] = entry->used ? entry->row.slot : GPUVEC_NO_SLOT;
		if (search->slots[i] != GPUVEC_NO_SLOT &&
			!(block < search->nblocks && (search->proven[block / 32] >> block % 32 & 1)))
			search->slots[i] = GPUVEC_ASK_SLOT;
	}
	return true;
}

/* ---- pooling ---- */

/* The bags of a request, with the vectors of their slots */
typedef struct host_bags
{
	const host_bank *bank;
	const gpuvec_slot_bags *bags;
	bool		shared;			/* slots are numbers of all banks' */
	const void **vectors;		/* [nslots] */
	int64_t    *keys;			/* [nslots] */
	float	   *scratch;
	float	   *mean;
} host_bags;

static void
end_bags(host_bags *h)
{
	free(h->vectors);
	free(h->keys);
	free(h->scratch);
	free(h->mean);
}

static bool
begin_bags(host_bags *h, gpuvec_device_bank *device_bank, const gpuvec_slot_bags *bags,
		   bool shared, gpuvec_error *error)
{
	const host_bank *bank = host_bank_of(device_bank);
	const char *elements = shared ? bank->range->elements : bank->elements;

	h->bank = bank;
	h->bags = bags;
	h->vectors = malloc((bags->nslots + 1) * sizeof(*h->vectors));
	h->keys = malloc((bags->nslots + 1) * sizeof(*h->keys));
	h->scratch = malloc((size_t) bank->width * GPUVEC_SCRATCH_VECTORS * sizeof(float));
	h->mean = malloc(bank->width * sizeof(float));
	if (!h->vectors || !h->keys || !h->scratch || !h->mean)
	{
		end_bags(h);
		return gpuvec_fail_memory(error, bags->nslots * sizeof(*h->vectors));
	}
	for (uint64_t i = 0; i < bags->nslots; i++)
	{
		uint32_t	slot = bags->slots[i];
		bool		found = slot != GPUVEC_NO_SLOT;

		h->vectors[i] = found ? elements + slot * bank->vector_bytes : NULL;
		h->keys[i] = found && !shared ? bank->keys[slot] : 0;
	}
	return true;
}

/* Bag i; concat skips nothing */
static gpuvec_bag
get_bag(const host_bags *h, uint64_t i)
{
	const gpuvec_slot_bags *bags = h->bags;
	uint64_t	first = bags->offsets ? bags->offsets[i] : i * bags->hotness;
	uint64_t	end = bags->offsets ? bags->offsets[i + 1] : first + bags->hotness;

	return (gpuvec_bag)
	{
		.keys = h->keys + first, .vectors = h->vectors + first,
			.weights = bags->weights ? bags->weights + first : NULL, .n = end - first,
			.width = h->bank->width, .storage = h->bank->storage, .mode = bags->mode,
			.missing = bags->skip_missing && bags->mode != GPUVEC_POOL_CONCAT ? GPUVEC_MISSING_SKIP :
			GPUVEC_MISSING_ZERO,
			.scratch = h->scratch
	};
}

/* Pool, with slots of the bank or numbers of all banks' */
static bool
pool_slots(gpuvec_device_bank *bank, const gpuvec_slot_bags *bags, bool shared, float *out,
		   gpuvec_error *error)
{
	gpuvec_slot_bags plain = gpuvec_plain_bags(bags);
	gpuvec_pool_bag_function *pool_bag = gpuvec_best_pool_bag();
	host_bags	h;

	if (!begin_bags(&h, bank, &plain, shared, error))
		return false;
	for (uint64_t i = 0; i < plain.nbags; i++)
	{
		gpuvec_bag	bag = get_bag(&h, i);

		out += pool_bag(out, &bag);
	}
	end_bags(&h);
	return true;
}

static bool
host_pool(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_slot_bags *bags,
		  float *out, gpuvec_error *error)
{
	return pool_slots(bank, bags, false, out, error);
}

/* Sum the shares of each key into keys and out; returns the number of keys */
static uint64_t
sum_keys(const host_bags *h, const gpuvec_share *shares, uint64_t nshares, const float *gradient,
		 int64_t *keys, float *out)
{
	gpuvec_upstream up = {
		.gradient = gradient, .width = h->bank->width,
		.factors = h->bags->weights != NULL || h->bags->mode == GPUVEC_POOL_MEAN
	};
	gpuvec_sum_shares_function *sum_shares = gpuvec_best_sum_shares();
	uint64_t	n = 0;

	for (uint64_t i = 0; i < nshares;)
	{
		uint64_t	first = i;

		while (i < nshares && shares[i].key == shares[first].key)
			i++;
		keys[n] = shares[first].key;
		sum_shares(out + n * up.width, shares + first, i - first, &up, h->scratch);
		n++;
	}
	return n;
}

/* Number of different keys of sorted shares */
static uint64_t
count_keys(const gpuvec_share *shares, uint64_t n)
{
	uint64_t	count = 0;

	for (uint64_t i = 0; i < n; i++)
		count += i == 0 || shares[i].key != shares[i - 1].key;
	return count;
}

static bool
host_gradient(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_slot_bags *bags,
			  const float *gradient, uint64_t most, uint64_t *n, void **body, gpuvec_error *error)
{
	gpuvec_slot_bags plain = gpuvec_plain_bags(bags);
	uint32_t	width = host_bank_of(bank)->width;
	gpuvec_share *shares = malloc((bags->nslots + 1) * sizeof(*shares));
	gpuvec_share *spare = malloc((bags->nslots + 1) * sizeof(*spare));
	gpuvec_share *sorted;
	uint64_t	nshares = 0;
	uint64_t	row = 0;
	host_bags	h = {0};
	bool		ok = shares && spare;

	if (!ok)
		gpuvec_fail_memory(error, bags->nslots * sizeof(*shares));
	ok = ok && begin_bags(&h, bank, &plain, false, error);
	for (uint64_t i = 0; ok && i < plain.nbags; i++)
	{
		gpuvec_bag	bag = get_bag(&h, i);

		nshares += gpuvec_bag_shares(shares + nshares, &bag, &row);
	}
	if (ok)
	{
		sorted = gpuvec_sort_shares(shares, spare, nshares);
		*n = count_keys(sorted, nshares);
		*body = malloc(*n * (sizeof(int64_t) + width * sizeof(float)) + 1);
		ok = *n <= most && *body ? true : gpuvec_fail_memory(error, *n * width * sizeof(float));
		if (ok)
			sum_keys(&h, sorted, nshares, gradient, *body, (float *) ((int64_t *) *body + *n));
		else
			free(*body);
		end_bags(&h);
	}
	free(shares);
	free(spare);
	return ok;
}

/* Gradients of weights, with slots of the bank or numbers of all banks' */
static bool
slot_weights(gpuvec_device_bank *bank, const gpuvec_slot_bags *bags, bool shared,
			 const float *gradient, float *out, gpuvec_error *error)
{
	uint64_t	row = 0;
	host_bags	h;

	if (!begin_bags(&h, bank, bags, shared, error))
		return false;
	for (uint64_t i = 0; i < bags->nbags; i++)
	{
		gpuvec_bag	bag = get_bag(&h, i);

		gpuvec_bag_weight_gradients(out, &bag, gradient, h.mean, &row);
		out += bag.n;
	}
	end_bags(&h);
	return true;
}

static bool
host_weight_gradients(gpuvec_vectors *vectors, gpuvec_device_bank *bank,
					  const gpuvec_slot_bags *bags, const float *gradient, float *out,
					  gpuvec_error *error)
{
	return slot_weights(bank, bags, false, gradient, out, error);
}

static bool
host_pool_shared(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_slot_bags *bags,
				 const float *gradient, float *out, gpuvec_error *error)
{
	return gradient ? slot_weights(bank, bags, true, gradient, out, error) :
		pool_slots(bank, bags, true, out, error);
}

/* ---- nearest vectors ---- */

/* Find the rows near to query i; tids of the heap's rows are slots */
static void
near_query(const host_bank *bank, gpuvec_slot_search *search, uint32_t i, gpuvec_near *rows,
		   float *scratch)
{
	gpuvec_near_heap heap = {.rows = rows, .k = search->k};
	const float *query = search->queries + (size_t) i * bank->width;
	gpuvec_near_scores_function *near_scores = gpuvec_best_near_scores();

	for (uint32_t slot = 0; slot < search->nlive; slot++)
	{
		gpuvec_near near = {.key = bank->keys[slot], .tid = bank->tids[slot]};

		if (!search->live[slot])
			continue;
		near_scores(&near.score, search->metric, query, search->squares[i],
					bank->elements + slot * bank->vector_bytes, 1, bank->width, bank->storage,
					scratch);
		if (!gpuvec_near_hopeless(&heap, near.score))
			gpuvec_near_offer(&heap, &near);
	}
	search->counts[i] = (uint32_t) heap.n;
	gpuvec_near_sort(&heap);
}

/* qsort and bsearch comparator of rows by tid */
static int
compare_tids(const void *a, const void *b)
{
	uint64_t	x = ((const gpuvec_near *) a)->tid;
	uint64_t	y = ((const gpuvec_near *) b)->tid;

	return x < y ? -1 : x > y;
}

/* Set the slots and scores of query i, whose rows were found by their tids */
static void
answer_query(const host_bank *bank, gpuvec_slot_search *search, uint32_t i, gpuvec_near *rows)
{
	uint64_t	at = (uint64_t) i * search->k;
	uint32_t	n = search->counts[i];

	qsort(rows, n, sizeof(*rows), compare_tids);
	for (uint32_t slot = 0; slot < search->nlive; slot++)
	{
		gpuvec_near wanted = {.tid = bank->tids[slot]};
		const gpuvec_near *row = search->live[slot] ?
			bsearch(&wanted, rows, n, sizeof(*rows), compare_tids) : NULL;

		if (row == NULL)
			continue;
		search->slots[at + (row - rows)] = slot;
		search->scores[at + (row - rows)] = row->score;
	}
}

static bool
host_nearest(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank, gpuvec_slot_search *search,
			 gpuvec_error *error)
{
	const host_bank *bank = host_bank_of(device_bank);
	gpuvec_near *rows = malloc((search->k + (size_t) 1) * sizeof(*rows));
	float	   *scratch = malloc(bank->width * sizeof(float));
	bool		ok = rows && scratch;

	if (!ok)
		gpuvec_fail_memory(error, search->k * sizeof(*rows));
	for (uint32_t i = 0; ok && i < search->nqueries; i++)
	{
		near_query(bank, search, i, rows, scratch);
		answer_query(bank, search, i, rows);
	}
	free(rows);
	free(scratch);
	return ok;
}

gpuvec_vectors *
gpuvec_host_vectors_new(gpuvec_error *error)
{
	static const gpuvec_vectors functions = {
		.close = host_close, .make = host_make, .release = host_release, .reserve = host_reserve,
		.bytes = host_bytes, .put = host_put, .flush = host_flush, .forget = host_forget,
		.key_limit = host_key_limit, .clear_keys = host_clear_keys, .map_keys = host_map_keys,
		.find_keys = host_find_keys, .pool = host_pool, .gradient = host_gradient,
		.weight_gradients = host_weight_gradients, .nearest = host_nearest,
		.can_share = host_can_share, .reserve_shared = host_reserve_shared,
		.pool_shared = host_pool_shared
	};
	gpuvec_vectors *vectors = malloc(sizeof(*vectors));

	if (vectors == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*vectors));
		return NULL;
	}
	*vectors = functions;
	return vectors;
}
