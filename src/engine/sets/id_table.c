/*-------------------------------------------------------------------------
 *
 * id_table.c
 *	  A hash table with a value for each id.
 *
 * A bucket without ids has one slot, which is free and belongs to all such
 * buckets.  It is never written: the first id makes the bucket grow.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/host_memory.h"
#include "engine/sets/id_table.h"

/* Slots of a bucket that gets its first id */
#define FIRST_SLOTS		16

static gpuvec_id_slot no_slot = {0, 0};

void
gpuvec_id_table_init(gpuvec_id_table *table)
{
	static const gpuvec_id_bucket empty = {.slots = &no_slot};

	for (int i = 0; i < GPUVEC_ID_BUCKETS; i++)
		table->buckets[i] = empty;
}

void
gpuvec_id_table_free(gpuvec_id_table *table)
{
	for (int i = 0; i < GPUVEC_ID_BUCKETS; i++)
		if (table->buckets[i].slots != &no_slot)
			free(table->buckets[i].slots);
}

size_t
gpuvec_id_table_bytes(const gpuvec_id_table *table)
{
	size_t		bytes = 0;

	for (int i = 0; i < GPUVEC_ID_BUCKETS; i++)
		if (table->buckets[i].slots != &no_slot)
			bytes += (table->buckets[i].mask + 1) * sizeof(gpuvec_id_slot);
	return bytes;
}

uint64_t
gpuvec_id_table_count(const gpuvec_id_table *table)
{
	uint64_t	n = 0;

	for (int i = 0; i < GPUVEC_ID_BUCKETS; i++)
		n += table->buckets[i].n;
	return n;
}

/* Move all slots of a bucket to an array of twice the size */
static bool
grow_bucket(gpuvec_id_bucket *bucket, gpuvec_error *error)
{
	uint64_t	nslots = bucket->n > 0 ? (bucket->mask + 1) * 2 : FIRST_SLOTS;
	size_t		bytes = nslots * sizeof(gpuvec_id_slot);
	gpuvec_id_bucket larger = {
		.slots = gpuvec_memory_new(bytes), .mask = nslots - 1, .n = bucket->n
	};

	if (larger.slots == NULL)
		return gpuvec_fail_memory(error, bytes);
	memset(larger.slots, 0, bytes);
	if (bucket->n > 0)
	{
		for (uint64_t i = 0; i <= bucket->mask; i++)
			if (bucket->slots[i].value != 0)
				*gpuvec_id_bucket_slot(&larger, bucket->slots[i].id) = bucket->slots[i];
		free(bucket->slots);
	}
	*bucket = larger;
	return true;
}

bool
gpuvec_id_bucket_add(gpuvec_id_bucket *bucket, uint32_t id, uint32_t value, gpuvec_error *error)
{
	gpuvec_id_slot slot = {.id = id, .value = value};

	if ((bucket->n + 1) * 4 > (bucket->mask + 1) * 3 && !grow_bucket(bucket, error))
		return false;
	*gpuvec_id_bucket_slot(bucket, id) = slot;
	bucket->n++;
	return true;
}
