/*-------------------------------------------------------------------------
 *
 * id_numbers.c
 *	  The numbers that a mirror of large ids gives to ids.
 *
 * Tiles hold 16 bits of an id.  So a mirror whose rows have larger ids
 * numbers them.  A load counts how many rows have each id (id_counts.c).  The
 * most frequent ids get the lowest numbers: these are hot, so most of the ids
 * of most rows lie in tiles.  Ids that come later get the next numbers.  A
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
 * An id keeps its number when its last row is gone.  If most ids of a map are
 * such ids, the mirror is loaded anew (sets_commit.c).
 *
 * The map is a hash table (id_table.h).  One lock for readers and writers
 * guards it.  The reverse of it, ids by numbers, is made when it is first
 * asked for, with room for some numbers more.  When that is used up, it is
 * made anew when it is asked for again.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/radix_sort.h"
#include "engine/sets/id_numbers.h"

/* How far ahead slots are prefetched */
#define PREFETCH_IDS	16

/*
 * Up to FEW_NUMBERS numbers, sorting by insertion is the quickest; up to
 * MANY_NUMBERS, by their bytes
 */
#define FEW_NUMBERS		32
#define MANY_NUMBERS	4096

/* Room for so many new ids at least */
#define FEW_IDS			1024

struct gpuvec_id_numbers
{
	int			refs;			/* changed by __atomic builtins only */
	bool		narrow;			/* ids of 16 bits are their own numbers, and
								 * not in the table */
	pthread_rwlock_t lock;		/* guards all below */
	uint32_t	next;			/* number of the next new id */
	gpuvec_id_table table;		/* values are gpuvec_id_value() of numbers */
	uint32_t   *ids;			/* [capacity] ids by numbers; NULL: not made */
	uint32_t	capacity;
};

/*
 * Prefetch the slot of the id that is looked up PREFETCH_IDS ids later
 */
static inline void
prefetch_slot(const gpuvec_id_table *table, const uint32_t *ids, uint32_t i, uint32_t n)
{
	if (i + PREFETCH_IDS < n)
		gpuvec_id_table_prefetch(table, ids[i + PREFETCH_IDS]);
}

/* The same before the first look */
static inline void
prefetch_first(const gpuvec_id_table *table, const uint32_t *ids, uint32_t n)
{
	for (uint32_t i = 0; i < PREFETCH_IDS && i < n; i++)
		gpuvec_id_table_prefetch(table, ids[i]);
}

/* Make a map without ids */
static gpuvec_id_numbers *
new_numbers(gpuvec_error *error)
{
	gpuvec_id_numbers *numbers = calloc(1, sizeof(*numbers));

	if (numbers == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*numbers));
		return NULL;
	}
	gpuvec_id_table_init(&numbers->table);
	numbers->refs = 1;
	pthread_rwlock_init(&numbers->lock, NULL);
	return numbers;
}

gpuvec_id_numbers *
gpuvec_id_numbers_of_table(gpuvec_id_table *table, uint32_t next, gpuvec_error *error)
{
	gpuvec_id_numbers *numbers = new_numbers(error);

	if (numbers != NULL)
	{
		numbers->table = *table;
		numbers->next = next;
		gpuvec_id_table_init(table);
	}
	return numbers;
}

gpuvec_id_numbers *
gpuvec_id_numbers_narrow(gpuvec_error *error)
{
	gpuvec_id_numbers *numbers = new_numbers(error);

	if (numbers != NULL)
	{
		numbers->narrow = true;
		numbers->next = GPUVEC_HOT_NUMBERS;
	}
	return numbers;
}

bool
gpuvec_fail_numbers(gpuvec_error *error)
{
	return gpuvec_fail(error, GPUVEC_LIMIT_EXCEEDED, NULL, NULL,
					   "the gpuvec engine has no more numbers for ids");
}

/* Give an id the next number */
static bool
number_id(gpuvec_id_numbers *numbers, uint32_t id, gpuvec_error *error)
{
	gpuvec_id_bucket *bucket = &numbers->table.buckets[gpuvec_id_bucket_of(id)];

	if (numbers->next == GPUVEC_NO_NUMBER)
		return gpuvec_fail_numbers(error);
	if (!gpuvec_id_bucket_add(bucket, id, gpuvec_id_value(numbers->next), error))
		return false;
	if (numbers->next < numbers->capacity)
		numbers->ids[numbers->next] = id;
	numbers->next++;
	return true;
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
	gpuvec_id_table_free(&numbers->table);
	free(numbers->ids);
	free(numbers);
}

size_t
gpuvec_id_numbers_bytes(gpuvec_id_numbers *numbers)
{
	size_t		bytes;

	pthread_rwlock_rdlock(&numbers->lock);
	bytes = sizeof(*numbers) + gpuvec_id_table_bytes(&numbers->table) +
		numbers->capacity * sizeof(uint32_t);
	pthread_rwlock_unlock(&numbers->lock);
	return bytes;
}

uint64_t
gpuvec_id_numbers_count(gpuvec_id_numbers *numbers)
{
	uint64_t	n;

	pthread_rwlock_rdlock(&numbers->lock);
	n = gpuvec_id_table_count(&numbers->table);
	pthread_rwlock_unlock(&numbers->lock);
	return n;
}

/* The number of an id; the caller holds the lock */
static inline uint32_t
number_of(const gpuvec_id_numbers *numbers, uint32_t id)
{
	if (numbers->narrow && id <= GPUVEC_MAX_ID)
		return id;
	/* a free slot's 0 becomes GPUVEC_NO_NUMBER */
	return gpuvec_id_table_slot(&numbers->table, id)->value - 1;
}

void
gpuvec_id_numbers_find(gpuvec_id_numbers *numbers, const uint32_t *ids, uint32_t n, uint32_t *to)
{
	pthread_rwlock_rdlock(&numbers->lock);
	for (uint32_t i = 0; i < n; i++)
		to[i] = number_of(numbers, ids[i]);
	pthread_rwlock_unlock(&numbers->lock);
}

void
gpuvec_id_numbers_hold(gpuvec_id_numbers *numbers)
{
	pthread_rwlock_rdlock(&numbers->lock);
}

void
gpuvec_id_numbers_let_go(gpuvec_id_numbers *numbers)
{
	pthread_rwlock_unlock(&numbers->lock);
}

void
gpuvec_id_numbers_held(const gpuvec_id_numbers *numbers, const uint32_t *ids, uint32_t n,
					   uint32_t *to)
{
	prefetch_first(&numbers->table, ids, n);
	for (uint32_t i = 0; i < n; i++)
	{
		uint32_t	number = number_of(numbers, ids[i]);

		prefetch_slot(&numbers->table, ids, i, n);
		to[i] = number;
	}
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

/* Write down the ids of a bucket of a table by their numbers */
static void
list_ids(const gpuvec_id_bucket *bucket, uint32_t *ids)
{
	for (uint64_t i = 0; bucket->n > 0 && i <= bucket->mask; i++)
		if (bucket->slots[i].value != 0)
			ids[bucket->slots[i].value - 1] = bucket->slots[i].id;
}

/* The same of all numbers in use; the caller holds the lock */
static void
list_all(const gpuvec_id_numbers *numbers, uint32_t *ids)
{
	for (uint32_t id = 0; numbers->narrow && id < GPUVEC_HOT_NUMBERS; id++)
		ids[id] = id;
	for (int i = 0; i < GPUVEC_ID_BUCKETS; i++)
		list_ids(&numbers->table.buckets[i], ids);
}

uint32_t *
gpuvec_id_numbers_ids(gpuvec_id_numbers *numbers, gpuvec_error *error)
{
	uint32_t   *ids;
	size_t		bytes;

	pthread_rwlock_rdlock(&numbers->lock);
	bytes = ((size_t) numbers->next + 1) * sizeof(uint32_t);
	ids = malloc(bytes);
	if (ids != NULL)
		list_all(numbers, ids);
	pthread_rwlock_unlock(&numbers->lock);
	if (ids == NULL)
		gpuvec_fail_memory(error, bytes);
	return ids;
}

/* True if ids[] has those of all numbers in use; the caller holds the lock */
static inline bool
has_ids(const gpuvec_id_numbers *numbers)
{
	return numbers->ids != NULL && numbers->next <= numbers->capacity;
}

/* Have the ids of all numbers in use in ids[].  False: out of memory. */
static bool
keep_ids(gpuvec_id_numbers *numbers, gpuvec_error *error)
{
	uint64_t	capacity;
	uint32_t   *ids;

	pthread_rwlock_wrlock(&numbers->lock);
	if (!has_ids(numbers))
	{
		capacity = numbers->next + (uint64_t) numbers->next / 4 + FEW_IDS;
		if (capacity > GPUVEC_NO_NUMBER)
			capacity = GPUVEC_NO_NUMBER;
		ids = realloc(numbers->ids, capacity * sizeof(uint32_t));
		if (ids == NULL)
		{
			pthread_rwlock_unlock(&numbers->lock);
			return gpuvec_fail_memory(error, capacity * sizeof(uint32_t));
		}
		list_all(numbers, ids);
		numbers->ids = ids;
		numbers->capacity = (uint32_t) capacity;
	}
	pthread_rwlock_unlock(&numbers->lock);
	return true;
}

bool
gpuvec_id_numbers_reverse(gpuvec_id_numbers *numbers, uint64_t *values, uint32_t n, uint32_t step,
						  gpuvec_error *error)
{
	pthread_rwlock_rdlock(&numbers->lock);
	if (!has_ids(numbers))
	{
		pthread_rwlock_unlock(&numbers->lock);
		if (!keep_ids(numbers, error))
			return false;
		pthread_rwlock_rdlock(&numbers->lock);
	}
	for (uint32_t i = 0; i < n; i++)
		values[(size_t) i * step] = numbers->ids[values[(size_t) i * step]];
	pthread_rwlock_unlock(&numbers->lock);
	return true;
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
	uint32_t	scratch[MANY_NUMBERS];
	uint32_t	all = 0;

	for (uint32_t i = 0; i < n; i++)
		all |= numbers[i];
	for (int shift = 0; shift < 32 && all >> shift != 0; shift += 16)
	{
		sort_by_byte(numbers, scratch, n, shift);
		sort_by_byte(scratch, numbers, n, shift + 8);
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
gpuvec_sort_numbers_places(uint32_t *numbers, uint16_t *places, uint32_t n, uint64_t *room)
{
	uint64_t   *sorted = room;

	for (uint32_t i = 0; i < n; i++)
		room[i] = (uint64_t) numbers[i] << 32 | i;
	if (n > FEW_NUMBERS)
		sorted = gpuvec_radix_sort(room, room + n, n, 32);
	for (uint32_t i = 1; i < n && n <= FEW_NUMBERS; i++)
	{
		uint64_t	key = room[i];
		uint32_t	at = i;

		for (; at > 0 && room[at - 1] > key; at--)
			room[at] = room[at - 1];
		room[at] = key;
	}
	for (uint32_t i = 0; i < n; i++)
	{
		numbers[i] = (uint32_t) (sorted[i] >> 32);
		places[i] = (uint16_t) sorted[i];
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
gpuvec_pack_values(const gpuvec_source_row *row, uint16_t *to, const char *sums, const char *values,
				   const uint16_t *places)
{
	char	   *at = (char *) to + gpuvec_packed_bytes(row->len, row->ncold);

	memcpy(at, sums, sizeof(gpuvec_row_sums));
	at += sizeof(gpuvec_row_sums);
	if (places == NULL && row->len > 0)
		memcpy(at, values, row->len * sizeof(float));
	for (uint32_t i = 0; places && i < row->len; i++)
		memcpy(at + i * sizeof(float), values + places[i] * sizeof(float), sizeof(float));
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
