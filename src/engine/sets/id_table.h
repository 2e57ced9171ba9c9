/*-------------------------------------------------------------------------
 *
 * id_table.h
 *	  A hash table with a value for each id.
 *
 * The table has GPUVEC_ID_BUCKETS buckets, and the hash of an id says which
 * one it is in.  A bucket is an array with open addressing and linear probing,
 * and grows on its own.  Several threads may add ids beside one another if
 * each bucket is used by one of them at a time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ID_TABLE_H
#define GPUVEC_ID_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine_error.h"
#include "core/hash_secret.h"

/* Buckets of a table; the upper bits of a hash say which one */
#define GPUVEC_ID_BUCKET_BITS	6
#define GPUVEC_ID_BUCKETS		(1 << GPUVEC_ID_BUCKET_BITS)

typedef struct gpuvec_id_slot
{
	uint32_t	id;
	uint32_t	value;			/* 0: the slot is free */
} gpuvec_id_slot;

typedef struct gpuvec_id_bucket
{
	gpuvec_id_slot *slots;		/* [mask + 1], a power of two */
	uint64_t	mask;
	uint64_t	n;				/* slots in use: at most three of four */
} gpuvec_id_bucket;

typedef struct gpuvec_id_table
{
	gpuvec_id_bucket buckets[GPUVEC_ID_BUCKETS];
} gpuvec_id_table;

/* A table without ids takes no memory but its own */
extern void gpuvec_id_table_init(gpuvec_id_table *table);
extern void gpuvec_id_table_free(gpuvec_id_table *table);

/* Bytes allocated, and ids; nobody may be adding any */
extern size_t gpuvec_id_table_bytes(const gpuvec_id_table *table);
extern uint64_t gpuvec_id_table_count(const gpuvec_id_table *table);

/* Add an id that the bucket does not have, with a value that is not 0 */
extern bool gpuvec_id_bucket_add(gpuvec_id_bucket *bucket, uint32_t id, uint32_t value,
								 gpuvec_error *error);

/* Number of the bucket of an id */
static inline uint32_t
gpuvec_id_bucket_of(uint32_t id)
{
	return gpuvec_secret_id_hash(id) >> (32 - GPUVEC_ID_BUCKET_BITS);
}

/*
 * The slot of an id in its bucket, or the free one where it would be.  Other
 * threads may be replacing values of other ids.
 */
static inline gpuvec_id_slot *
gpuvec_id_bucket_slot(const gpuvec_id_bucket *bucket, uint32_t id)
{
	uint64_t	at = gpuvec_secret_id_hash(id) & bucket->mask;

	while (bucket->slots[at].id != id &&
		   __atomic_load_n(&bucket->slots[at].value, __ATOMIC_RELAXED) != 0)
		at = (at + 1) & bucket->mask;
	return &bucket->slots[at];
}

/* The same in a table */
static inline gpuvec_id_slot *
gpuvec_id_table_slot(const gpuvec_id_table *table, uint32_t id)
{
	return gpuvec_id_bucket_slot(&table->buckets[gpuvec_id_bucket_of(id)], id);
}

/*
 * Prefetch the slot of an id.  A large table is in no cache, so each look
 * would wait for memory.
 */
static inline void
gpuvec_id_table_prefetch(const gpuvec_id_table *table, uint32_t id)
{
	uint32_t	hash = gpuvec_secret_id_hash(id);
	const gpuvec_id_bucket *bucket = &table->buckets[hash >> (32 - GPUVEC_ID_BUCKET_BITS)];

	__builtin_prefetch(&bucket->slots[hash & bucket->mask]);
}

#endif							/* GPUVEC_ID_TABLE_H */
