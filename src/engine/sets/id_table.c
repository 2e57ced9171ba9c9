/*-------------------------------------------------------------------------
 *
 * id_table.c
 *	  A hash table with a value for each id.
 *
 * A part without ids has one slot, which is free and belongs to all such
 * parts.  It is never written: the first id makes the part grow.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/host_memory.h"
#include "engine/sets/id_table.h"

/* Slots of a part that gets its first id */
#define FIRST_SLOTS		16

static gpuvec_id_slot no_slot = {0, 0};

void
gpuvec_id_table_init(gpuvec_id_table *table)
{
	static const gpuvec_id_part empty = {.slots = &no_slot};

	for (int i = 0; i < GPUVEC_ID_PARTS; i++)
		table->parts[i] = empty;
}

void
gpuvec_id_table_free(gpuvec_id_table *table)
{
	for (int i = 0; i < GPUVEC_ID_PARTS; i++)
		if (table->parts[i].slots != &no_slot)
			free(table->parts[i].slots);
}

size_t
gpuvec_id_table_bytes(const gpuvec_id_table *table)
{
	size_t		bytes = 0;

	for (int i = 0; i < GPUVEC_ID_PARTS; i++)
		if (table->parts[i].slots != &no_slot)
			bytes += (table->parts[i].mask + 1) * sizeof(gpuvec_id_slot);
	return bytes;
}

uint64_t
gpuvec_id_table_count(const gpuvec_id_table *table)
{
	uint64_t	n = 0;

	for (int i = 0; i < GPUVEC_ID_PARTS; i++)
		n += table->parts[i].n;
	return n;
}

/* Move all slots of a part to an array of twice the size */
static bool
grow_part(gpuvec_id_part *part, gpuvec_error *error)
{
	uint64_t	nslots = part->n > 0 ? (part->mask + 1) * 2 : FIRST_SLOTS;
	size_t		bytes = nslots * sizeof(gpuvec_id_slot);
	gpuvec_id_part larger = {
		.slots = gpuvec_memory_new(bytes), .mask = nslots - 1, .n = part->n
	};

	if (larger.slots == NULL)
		return gpuvec_fail_memory(error, bytes);
	memset(larger.slots, 0, bytes);
	if (part->n > 0)
	{
		for (uint64_t i = 0; i <= part->mask; i++)
			if (part->slots[i].value != 0)
				*gpuvec_id_part_slot(&larger, part->slots[i].id) = part->slots[i];
		free(part->slots);
	}
	*part = larger;
	return true;
}

bool
gpuvec_id_part_add(gpuvec_id_part *part, uint32_t id, uint32_t value, gpuvec_error *error)
{
	gpuvec_id_slot slot = {.id = id, .value = value};

	if ((part->n + 1) * 4 > (part->mask + 1) * 3 && !grow_part(part, error))
		return false;
	*gpuvec_id_part_slot(part, id) = slot;
	part->n++;
	return true;
}
