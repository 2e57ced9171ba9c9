/*-------------------------------------------------------------------------
 *
 * id_counts.c
 *	  How many rows have each id, and the ids in the order of that.
 *
 * Threads share the work, and what comes out does not depend on how they do.
 *
 * Counting: a thread appends each id to a buffer of its own for the bucket of
 * the table that the id is in (id_table.h).  A full buffer is counted while
 * the bucket is locked.  So a lock is taken once for many ids, and the counts
 * of a bucket, which a cache can hold, are changed many at a time.
 *
 * Ranking: an id and its count make a key of 64 bits, and the order of the
 * keys is that of the numbers.  Keys are distributed into ranges, whose
 * bounds come from a sample, and each range is sorted by one thread.  No two
 * keys are equal, so their order does not depend on the bounds.  The place of
 * a key is the number of its id.  It replaces the count in the table: the
 * counts become the map.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/fault.h"
#include "engine/sets/first_error.h"
#include "engine/sets/id_counts.h"

/*
 * Ids in a full buffer.  Not a power of two, else all buffers of a thread
 * would end in the same sets of the cache.
 */
#define BUFFER_IDS		240

/* How far ahead slots are prefetched */
#define PREFETCH_IDS	16

/*
 * Ranges of keys.  From SPLIT_IDS ids on they are bounded by a sample of
 * SAMPLED ids of each bucket.
 */
#define RANGES			256
#define SPLIT_IDS		32768
#define SAMPLED			128

/* A thread's ids that are not counted yet */
typedef struct id_buffers
{
	uint32_t	n[GPUVEC_ID_BUCKETS];
	uint32_t	ids[GPUVEC_ID_BUCKETS][BUFFER_IDS];
} id_buffers;

struct gpuvec_id_counts
{
	gpuvec_id_table table;		/* values are counts */
	pthread_mutex_t locks[GPUVEC_ID_BUCKETS];	/* one guards each bucket */
	int			nthreads;
	id_buffers *buffers[];		/* [nthreads] made when a thread first adds */
};

gpuvec_id_counts *
gpuvec_id_counts_new(int nthreads, gpuvec_error *error)
{
	size_t		bytes = sizeof(gpuvec_id_counts) + (size_t) nthreads * sizeof(id_buffers *);
	gpuvec_id_counts *counts = calloc(1, bytes);

	if (counts == NULL)
	{
		gpuvec_fail_memory(error, bytes);
		return NULL;
	}
	gpuvec_id_table_init(&counts->table);
	for (int i = 0; i < GPUVEC_ID_BUCKETS; i++)
		pthread_mutex_init(&counts->locks[i], NULL);
	counts->nthreads = nthreads;
	return counts;
}

/* Free the buffers of all threads */
static void
free_buffers(gpuvec_id_counts *counts)
{
	for (int i = 0; i < counts->nthreads; i++)
	{
		free(counts->buffers[i]);
		counts->buffers[i] = NULL;
	}
}

void
gpuvec_id_counts_free(gpuvec_id_counts *counts)
{
	if (counts == NULL)
		return;
	free_buffers(counts);
	for (int i = 0; i < GPUVEC_ID_BUCKETS; i++)
		pthread_mutex_destroy(&counts->locks[i]);
	gpuvec_id_table_free(&counts->table);
	free(counts);
}

size_t
gpuvec_id_counts_bytes(const gpuvec_id_counts *counts)
{
	size_t		bytes = sizeof(*counts) + gpuvec_id_table_bytes(&counts->table);

	for (int i = 0; i < counts->nthreads; i++)
		if (counts->buffers[i] != NULL)
			bytes += sizeof(id_buffers);
	return bytes;
}

/* Count ids of one bucket, which nobody else uses */
static bool
count_ids(gpuvec_id_bucket *bucket, const uint32_t *ids, uint32_t n, gpuvec_error *error)
{
	for (uint32_t i = 0; i < n; i++)
	{
		gpuvec_id_slot *slot = gpuvec_id_bucket_slot(bucket, ids[i]);

		if (i + PREFETCH_IDS < n)
			__builtin_prefetch(&bucket->slots[gpuvec_secret_id_hash(ids[i + PREFETCH_IDS]) & bucket->mask]);
		if (slot->value == 0)
		{
			if (!gpuvec_id_bucket_add(bucket, ids[i], 1, error))
				return false;
		}
		else if (slot->value < UINT32_MAX)
			slot->value++;
	}
	return true;
}

/* Count the ids that a buffer has for a bucket, and empty it */
static bool
empty_buffer(gpuvec_id_counts *counts, id_buffers *buffers, uint32_t bucket, gpuvec_error *error)
{
	bool		ok;

	pthread_mutex_lock(&counts->locks[bucket]);
	ok = count_ids(&counts->table.buckets[bucket], buffers->ids[bucket], buffers->n[bucket], error);
	pthread_mutex_unlock(&counts->locks[bucket]);
	buffers->n[bucket] = 0;
	return ok;
}

/* Make the buffers of a thread */
static bool
make_buffers(gpuvec_id_counts *counts, int thread, gpuvec_error *error)
{
	id_buffers *buffers = malloc(sizeof(*buffers));

	if (buffers == NULL)
		return gpuvec_fail_memory(error, sizeof(*buffers));
	memset(buffers->n, 0, sizeof(buffers->n));
	counts->buffers[thread] = buffers;
	return true;
}

bool
gpuvec_id_counts_add(gpuvec_id_counts *counts, int thread, const uint32_t *ids, uint32_t n,
					 gpuvec_error *error)
{
	id_buffers *buffers;

	if (counts->buffers[thread] == NULL && !make_buffers(counts, thread, error))
		return false;
	buffers = counts->buffers[thread];
	for (uint32_t i = 0; i < n; i++)
	{
		uint32_t	bucket = gpuvec_id_bucket_of(ids[i]);

		buffers->ids[bucket][buffers->n[bucket]++] = ids[i];
		if (buffers->n[bucket] == BUFFER_IDS && !empty_buffer(counts, buffers, bucket, error))
			return false;
	}
	return true;
}

/* What finishing passes to the threads of the pool */
typedef struct finish_task
{
	gpuvec_id_counts *counts;
	gpuvec_first_error first;
} finish_task;

/* Count what all buffers have for one bucket of the table */
static void
finish_bucket(void *arg, uint64_t bucket, int thread)
{
	finish_task *task = arg;
	gpuvec_error error;

	(void) thread;
	for (int i = 0; i < task->counts->nthreads; i++)
		if (task->counts->buffers[i] != NULL &&
			!empty_buffer(task->counts, task->counts->buffers[i], (uint32_t) bucket, &error))
		{
			gpuvec_first_error_keep(&task->first, &error);
			return;
		}
}

bool
gpuvec_id_counts_finish(gpuvec_id_counts *counts, gpuvec_thread_pool *pool, gpuvec_error *error)
{
	finish_task task = {.counts = counts};

	gpuvec_thread_pool_run(pool, finish_bucket, &task, GPUVEC_ID_BUCKETS);
	free_buffers(counts);
	return gpuvec_first_error_result(&task.first, error);
}

/* ---- ranking ---- */

typedef struct ranking
{
	gpuvec_id_table *table;
	uint64_t   *keys;			/* [all] in the order of their ranges */
	uint64_t	all;			/* number of ids */
	uint32_t	first;			/* number of the first id */
	uint64_t	bounds[RANGES]; /* range r has the keys below bounds[r], and
								 * not below those of the ranges before */
	uint64_t	start[RANGES + 1];	/* where ranges begin in keys[] */
	uint64_t	next[GPUVEC_ID_BUCKETS][RANGES];	/* where a bucket's keys
													 * of a range go; first
													 * how many these are */
} ranking;

/* The most frequent ids first, of equal ones the lowest */
static inline uint64_t
key_of(const gpuvec_id_slot *slot)
{
	return (uint64_t) ~slot->value << 32 | slot->id;
}

static int
compare_keys(const void *a, const void *b)
{
	uint64_t	x = *(const uint64_t *) a;
	uint64_t	y = *(const uint64_t *) b;

	return x < y ? -1 : x > y;
}

/*
 * The keys of SAMPLED ids of each bucket.  Slots are in the order of hashes,
 * so those at the beginning are as good as any.  Returns how many there are.
 */
static uint32_t
sample_keys(const gpuvec_id_table *table, uint64_t *sample)
{
	uint32_t	n = 0;

	for (int i = 0; i < GPUVEC_ID_BUCKETS; i++)
	{
		const gpuvec_id_bucket *bucket = &table->buckets[i];
		uint32_t	taken = 0;

		for (uint64_t at = 0; at <= bucket->mask && taken < SAMPLED; at++)
			if (bucket->slots[at].value != 0)
			{
				sample[n++] = key_of(&bucket->slots[at]);
				taken++;
			}
	}
	return n;
}

/* Choose ranges that have about the same number of keys */
static void
choose_bounds(ranking *r)
{
	uint64_t	sample[GPUVEC_ID_BUCKETS * SAMPLED];
	uint32_t	n;

	for (int i = 0; i < RANGES; i++)
		r->bounds[i] = UINT64_MAX;
	if (r->all < SPLIT_IDS)
		return;
	n = sample_keys(r->table, sample);
	qsort(sample, n, sizeof(uint64_t), compare_keys);
	for (uint32_t i = 0; i < RANGES - 1; i++)
		r->bounds[i] = sample[(uint64_t) (i + 1) * n / RANGES];
}

/* The range of a key: how many bounds are not above it, by halving */
static inline uint32_t
range_of(const ranking *r, uint64_t key)
{
	uint32_t	range = 0;

	for (uint32_t step = RANGES / 2; step > 0; step /= 2)
		range += r->bounds[range + step - 1] <= key ? step : 0;
	return range;
}

/* Count one bucket's keys of each range; called by a thread of the pool */
static void
count_keys(void *arg, uint64_t bucket, int thread)
{
	ranking    *r = arg;
	const gpuvec_id_bucket *p = &r->table->buckets[bucket];
	uint64_t   *count = r->next[bucket];

	(void) thread;
	for (uint64_t at = 0; at <= p->mask; at++)
		if (p->slots[at].value != 0)
			count[range_of(r, key_of(&p->slots[at]))]++;
}

/* From the counts of keys to the places where they go */
static void
lay_out_keys(ranking *r)
{
	uint64_t	at = 0;

	for (int range = 0; range < RANGES; range++)
	{
		r->start[range] = at;
		for (int bucket = 0; bucket < GPUVEC_ID_BUCKETS; bucket++)
		{
			uint64_t	n = r->next[bucket][range];

			r->next[bucket][range] = at;
			at += n;
		}
	}
	r->start[RANGES] = at;
}

/* Write one bucket's keys to their ranges; called by a thread of the pool */
static void
enter_keys(void *arg, uint64_t bucket, int thread)
{
	ranking    *r = arg;
	const gpuvec_id_bucket *p = &r->table->buckets[bucket];

	(void) thread;
	for (uint64_t at = 0; at <= p->mask; at++)
		if (p->slots[at].value != 0)
		{
			uint64_t	key = key_of(&p->slots[at]);

			r->keys[r->next[bucket][range_of(r, key)]++] = key;
		}
}

/*
 * Sort a range, and give its ids their numbers; called by a thread of the
 * pool
 */
static void
number_range(void *arg, uint64_t range, int thread)
{
	ranking    *r = arg;
	uint64_t	end = r->start[range + 1];

	(void) thread;
	qsort(r->keys + r->start[range], end - r->start[range], sizeof(uint64_t), compare_keys);
	for (uint64_t i = r->start[range]; i < end; i++)
	{
		gpuvec_id_slot *slot = gpuvec_id_table_slot(r->table, (uint32_t) r->keys[i]);

		if (i + PREFETCH_IDS < end)
			gpuvec_id_table_prefetch(r->table, (uint32_t) r->keys[i + PREFETCH_IDS]);
		__atomic_store_n(&slot->value, gpuvec_id_value(r->first + i), __ATOMIC_RELAXED);
	}
}

/* Replace the counts of a table by numbers */
static bool
rank_table(ranking *r, gpuvec_thread_pool *pool, gpuvec_error *error)
{
	r->keys = malloc((r->all + 1) * sizeof(uint64_t));
	if (r->keys == NULL)
		return gpuvec_fail_memory(error, r->all * sizeof(uint64_t));
	choose_bounds(r);
	gpuvec_thread_pool_run(pool, count_keys, r, GPUVEC_ID_BUCKETS);
	lay_out_keys(r);
	gpuvec_thread_pool_run(pool, enter_keys, r, GPUVEC_ID_BUCKETS);
	gpuvec_thread_pool_run(pool, number_range, r, RANGES);
	free(r->keys);
	return true;
}

gpuvec_id_numbers *
gpuvec_id_counts_rank(gpuvec_id_counts *counts, gpuvec_thread_pool *pool, gpuvec_error *error)
{
	ranking    *r = calloc(1, sizeof(*r));
	gpuvec_id_numbers *numbers = NULL;
	long		first;

	if (r == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*r));
		return NULL;
	}
	r->table = &counts->table;
	r->all = gpuvec_id_table_count(r->table);
	/* tests have few ids, and want cold ones */
	if (gpuvec_fault("first-number", &first))
		r->first = (uint32_t) first;
	if (r->first + r->all > GPUVEC_NO_NUMBER)
		gpuvec_fail_numbers(error);
	else if (rank_table(r, pool, error))
		numbers = gpuvec_id_numbers_of_table(r->table, (uint32_t) (r->first + r->all), error);
	free(r);
	return numbers;
}
