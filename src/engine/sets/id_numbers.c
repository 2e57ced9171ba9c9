/*-------------------------------------------------------------------------
 *
 * id_numbers.c
 *	  The numbers that a mirror of large ids gives to ids.
 *
 * Tiles hold 16 bits of an id.  So a mirror whose rows have larger ids
 * numbers them.  A load counts how many rows have each id, and the most
 * frequent ids get the lowest numbers: these are hot, and most of the ids of
 * most rows lie in tiles.  Ids that come later get the next numbers.  A
 * mirror that was narrow when its first large id came keeps the ids that it
 * has as their own numbers.
 *
 * What makes it right:
 *
 *	- Different ids have different numbers, and a number never changes.  So
 *	  rows and queries may be mapped at any time, and share as many numbers as
 *	  ids.
 *	- An id gets its number before a view with it is published.  So an id that
 *	  a search of that view finds without a number is in none of its rows.
 *	- A view's map is the one that its rows were mapped by.  A load makes a
 *	  new map; a search takes view and map in one step.
 *
 * The map is a hash table with open addressing and linear probing.  One lock
 * for readers and writers guards it.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/fault.h"
#include "engine/sets/id_numbers.h"

/* Slots of a new table */
#define FIRST_SLOTS		1024

/* How far ahead slots are prefetched */
#define PREFETCH_IDS	16

/*
 * Up to FEW_NUMBERS numbers, sorting by insertion is the quickest; up to
 * MANY_NUMBERS, by their bytes
 */
#define FEW_NUMBERS		32
#define MANY_NUMBERS	4096

typedef struct id_slot
{
	uint32_t	id;
	uint32_t	value;			/* 0: the slot is free */
} id_slot;

typedef struct id_table
{
	id_slot    *slots;			/* [mask + 1], a power of two */
	uint64_t	mask;
	uint64_t	n;				/* slots in use: at most three of four */
} id_table;

struct gpuvec_id_counts
{
	id_table	table;			/* values are counts */
};

struct gpuvec_id_numbers
{
	int			refs;			/* changed by __atomic builtins only */
	bool		narrow;			/* ids of 16 bits are their own numbers, and
								 * not in the table */
	pthread_rwlock_t lock;		/* guards all below */
	uint32_t	next;			/* number of the next new id */
	id_table	table;			/* values are numbers + 1 */
};

static bool
make_table(id_table *table, uint64_t nslots, gpuvec_error *error)
{
	table->slots = calloc(nslots, sizeof(id_slot));
	if (table->slots == NULL)
		return gpuvec_fail_memory(error, nslots * sizeof(id_slot));
	table->mask = nslots - 1;
	table->n = 0;
	return true;
}

static size_t
table_bytes(const id_table *table)
{
	return (table->mask + 1) * sizeof(id_slot);
}

/*
 * Where the search for an id begins.  The hash is a bijection that mixes all
 * bits (Appleby's MurmurHash3).
 */
static inline uint64_t
first_slot(const id_table *table, uint32_t id)
{
	uint32_t	hash = id;

	hash = (hash ^ hash >> 16) * UINT32_C(0x85EBCA6B);
	hash = (hash ^ hash >> 13) * UINT32_C(0xC2B2AE35);
	return (hash ^ hash >> 16) & table->mask;
}

/*
 * Prefetch the slot of the id that is looked up PREFETCH_IDS ids later.  A
 * large table is in no cache, so each look would wait for memory.
 */
static inline void
prefetch_slot(const id_table *table, const uint32_t *ids, uint32_t i, uint32_t n)
{
	if (i + PREFETCH_IDS < n)
		__builtin_prefetch(&table->slots[first_slot(table, ids[i + PREFETCH_IDS])]);
}

/* The same before the first look */
static inline void
prefetch_first(const id_table *table, const uint32_t *ids, uint32_t n)
{
	for (uint32_t i = 0; i < PREFETCH_IDS && i < n; i++)
		__builtin_prefetch(&table->slots[first_slot(table, ids[i])]);
}

/* The slot of an id, or the free one where it would be */
static inline id_slot *
slot_of(const id_table *table, uint32_t id)
{
	uint64_t	at;

	for (at = first_slot(table, id); table->slots[at].value != 0 && table->slots[at].id != id;)
		at = (at + 1) & table->mask;
	return &table->slots[at];
}

/* Move all slots to a table of twice the size */
static bool
grow_table(id_table *table, gpuvec_error *error)
{
	id_table	larger;

	if (!make_table(&larger, (table->mask + 1) * 2, error))
		return false;
	for (uint64_t i = 0; i <= table->mask; i++)
		if (table->slots[i].value != 0)
			*slot_of(&larger, table->slots[i].id) = table->slots[i];
	larger.n = table->n;
	free(table->slots);
	*table = larger;
	return true;
}

/* Add an id that the table does not have */
static bool
add_slot(id_table *table, uint32_t id, uint32_t value, gpuvec_error *error)
{
	id_slot    *slot;

	if ((table->n + 1) * 4 > (table->mask + 1) * 3 && !grow_table(table, error))
		return false;
	slot = slot_of(table, id);
	slot->id = id;
	slot->value = value;
	table->n++;
	return true;
}

gpuvec_id_counts *
gpuvec_id_counts_new(gpuvec_error *error)
{
	gpuvec_id_counts *counts = malloc(sizeof(*counts));

	if (counts == NULL)
		gpuvec_fail_memory(error, sizeof(*counts));
	else if (make_table(&counts->table, FIRST_SLOTS, error))
		return counts;
	free(counts);
	return NULL;
}

void
gpuvec_id_counts_free(gpuvec_id_counts *counts)
{
	if (counts == NULL)
		return;
	free(counts->table.slots);
	free(counts);
}

size_t
gpuvec_id_counts_bytes(const gpuvec_id_counts *counts)
{
	return sizeof(*counts) + table_bytes(&counts->table);
}

bool
gpuvec_id_counts_add(gpuvec_id_counts *counts, const uint32_t *ids, uint32_t n,
					 gpuvec_error *error)
{
	prefetch_first(&counts->table, ids, n);
	for (uint32_t i = 0; i < n; i++)
	{
		id_slot    *slot = slot_of(&counts->table, ids[i]);

		prefetch_slot(&counts->table, ids, i, n);
		if (slot->value == 0)
		{
			if (!add_slot(&counts->table, ids[i], 1, error))
				return false;
		}
		else if (slot->value < UINT32_MAX)
			slot->value++;
	}
	return true;
}

/* Make a map without ids */
static gpuvec_id_numbers *
new_numbers(uint64_t nslots, gpuvec_error *error)
{
	gpuvec_id_numbers *numbers = calloc(1, sizeof(*numbers));

	if (numbers == NULL)
		gpuvec_fail_memory(error, sizeof(*numbers));
	else if (make_table(&numbers->table, nslots, error))
	{
		numbers->refs = 1;
		pthread_rwlock_init(&numbers->lock, NULL);
		return numbers;
	}
	free(numbers);
	return NULL;
}

gpuvec_id_numbers *
gpuvec_id_numbers_narrow(gpuvec_error *error)
{
	gpuvec_id_numbers *numbers = new_numbers(FIRST_SLOTS, error);

	if (numbers != NULL)
	{
		numbers->narrow = true;
		numbers->next = GPUVEC_HOT_NUMBERS;
	}
	return numbers;
}

static int
compare_keys(const void *a, const void *b)
{
	uint64_t	x = *(const uint64_t *) a;
	uint64_t	y = *(const uint64_t *) b;

	return x < y ? -1 : x > y;
}

/*
 * The ids that were counted, in the lower halves of malloc'd keys, in the
 * order of their numbers
 */
static uint64_t *
sort_by_count(const id_table *table, gpuvec_error *error)
{
	uint64_t   *keys = malloc((table->n + 1) * sizeof(uint64_t));
	uint64_t	n = 0;

	if (keys == NULL)
	{
		gpuvec_fail_memory(error, table->n * sizeof(uint64_t));
		return NULL;
	}
	for (uint64_t i = 0; i <= table->mask; i++)
		if (table->slots[i].value != 0)
			keys[n++] = (uint64_t) ~table->slots[i].value << 32 | table->slots[i].id;
	qsort(keys, n, sizeof(uint64_t), compare_keys);
	return keys;
}

/* Give an id the next number */
static bool
number_id(gpuvec_id_numbers *numbers, uint32_t id, gpuvec_error *error)
{
	if (numbers->next == GPUVEC_NO_NUMBER)
		return gpuvec_fail(error, GPUVEC_LIMIT_EXCEEDED, NULL, NULL,
						   "the gpuvec engine has no more numbers for ids");
	if (!add_slot(&numbers->table, id, numbers->next + 1, error))
		return false;
	numbers->next++;
	return true;
}

gpuvec_id_numbers *
gpuvec_id_numbers_counted(const gpuvec_id_counts *counts, gpuvec_error *error)
{
	uint64_t   *keys = sort_by_count(&counts->table, error);
	gpuvec_id_numbers *numbers = keys ? new_numbers(counts->table.mask + 1, error) : NULL;
	bool		ok = numbers != NULL;
	long		first;

	/* tests have few ids, and want cold ones */
	if (ok && gpuvec_fault("first-number", &first))
		numbers->next = (uint32_t) first;
	for (uint64_t i = 0; ok && i < counts->table.n; i++)
		ok = number_id(numbers, (uint32_t) keys[i], error);
	free(keys);
	if (ok)
		return numbers;
	gpuvec_id_numbers_unref(numbers);
	return NULL;
}

gpuvec_id_numbers *
gpuvec_id_numbers_ref(gpuvec_id_numbers *numbers)
{
	if (numbers)
		__atomic_add_fetch(&numbers->refs, 1, __ATOMIC_RELAXED);
	return numbers;
}

void
gpuvec_id_numbers_unref(gpuvec_id_numbers *numbers)
{
	if (numbers == NULL || __atomic_sub_fetch(&numbers->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	pthread_rwlock_destroy(&numbers->lock);
	free(numbers->table.slots);
	free(numbers);
}

size_t
gpuvec_id_numbers_bytes(gpuvec_id_numbers *numbers)
{
	size_t		bytes;

	pthread_rwlock_rdlock(&numbers->lock);
	bytes = sizeof(*numbers) + table_bytes(&numbers->table);
	pthread_rwlock_unlock(&numbers->lock);
	return bytes;
}

/* The number of an id; the caller holds the lock */
static inline uint32_t
number_of(const gpuvec_id_numbers *numbers, uint32_t id)
{
	if (numbers->narrow && id <= GPUVEC_MAX_ID)
		return id;
	/* a free slot's 0 becomes GPUVEC_NO_NUMBER */
	return slot_of(&numbers->table, id)->value - 1;
}

void
gpuvec_id_numbers_find(gpuvec_id_numbers *numbers, const uint32_t *ids, uint32_t n, uint32_t *to)
{
	pthread_rwlock_rdlock(&numbers->lock);
	for (uint32_t i = 0; i < n; i++)
		to[i] = number_of(numbers, ids[i]);
	pthread_rwlock_unlock(&numbers->lock);
}

/* Look up ids until one has no number; returns how many have one */
static uint32_t
find_known(gpuvec_id_numbers *numbers, const uint32_t *ids, uint32_t n, uint32_t *to)
{
	uint32_t	i = 0;

	pthread_rwlock_rdlock(&numbers->lock);
	prefetch_first(&numbers->table, ids, n);
	for (; i < n; i++)
	{
		uint32_t	number = number_of(numbers, ids[i]);

		prefetch_slot(&numbers->table, ids, i, n);
		if (number == GPUVEC_NO_NUMBER)
			break;
		to[i] = number;
	}
	pthread_rwlock_unlock(&numbers->lock);
	return i;
}

bool
gpuvec_id_numbers_add(gpuvec_id_numbers *numbers, const uint32_t *ids, uint32_t n, uint32_t *to,
					  gpuvec_error *error)
{
	uint32_t	i = find_known(numbers, ids, n, to);
	bool		ok = true;

	if (i == n)
		return true;
	pthread_rwlock_wrlock(&numbers->lock);
	for (; ok && i < n; i++)
	{
		uint32_t	id = ids[i];

		if (number_of(numbers, id) == GPUVEC_NO_NUMBER)
			ok = number_id(numbers, id, error);
		if (ok)
			to[i] = number_of(numbers, id);
	}
	pthread_rwlock_unlock(&numbers->lock);
	return ok;
}

static int
compare_numbers(const void *a, const void *b)
{
	uint32_t	x = *(const uint32_t *) a;
	uint32_t	y = *(const uint32_t *) b;

	return x < y ? -1 : x > y;
}

/* Sort by the byte at `shift`, keeping the order of equal ones */
static void
sort_by_byte(const uint32_t *from, uint32_t *to, uint32_t n, int shift)
{
	uint32_t	start[257] = {0};

	for (uint32_t i = 0; i < n; i++)
		start[(from[i] >> shift & 0xFF) + 1]++;
	for (int byte = 0; byte < 256; byte++)
		start[byte + 1] += start[byte];
	for (uint32_t i = 0; i < n; i++)
		to[start[from[i] >> shift & 0xFF]++] = from[i];
}

/* Sort up to MANY_NUMBERS numbers byte by byte, as many as the largest has */
static void
sort_by_bytes(uint32_t *numbers, uint32_t n)
{
	uint32_t	room[MANY_NUMBERS];
	uint32_t	all = 0;

	for (uint32_t i = 0; i < n; i++)
		all |= numbers[i];
	for (int shift = 0; shift < 32 && all >> shift != 0; shift += 16)
	{
		sort_by_byte(numbers, room, n, shift);
		sort_by_byte(room, numbers, n, shift + 8);
	}
}

void
gpuvec_sort_numbers(uint32_t *numbers, uint32_t n)
{
	if (n > MANY_NUMBERS)
	{
		qsort(numbers, n, sizeof(uint32_t), compare_numbers);
		return;
	}
	if (n > FEW_NUMBERS)
	{
		sort_by_bytes(numbers, n);
		return;
	}
	for (uint32_t i = 1; i < n; i++)
	{
		uint32_t	number = numbers[i];
		uint32_t	at = i;

		for (; at > 0 && numbers[at - 1] > number; at--)
			numbers[at] = numbers[at - 1];
		numbers[at] = number;
	}
}

void
gpuvec_pack_numbers(const uint32_t *numbers, uint32_t n, uint16_t *to, gpuvec_source_row *row)
{
	uint32_t	hot = 0;

	for (; hot < n && numbers[hot] < GPUVEC_HOT_NUMBERS; hot++)
		to[hot] = (uint16_t) numbers[hot];
	if (hot % 2 != 0)
		to[hot] = 0;
	if (hot < n)
		memcpy((char *) to + gpuvec_hot_bytes(hot), numbers + hot, (n - hot) * sizeof(uint32_t));
	row->len = n;
	row->ncold = n - hot;
	row->ids = to;
}

void
gpuvec_unpack_numbers(const gpuvec_source_row *row, uint32_t *numbers)
{
	uint32_t	hot = row->len - row->ncold;

	for (uint32_t i = 0; i < hot; i++)
		numbers[i] = row->ids[i];
	if (row->ncold > 0)
		memcpy(numbers + hot, (const char *) row->ids + gpuvec_hot_bytes(hot),
			   row->ncold * sizeof(uint32_t));
}
