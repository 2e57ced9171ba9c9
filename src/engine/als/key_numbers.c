/*-------------------------------------------------------------------------
 *
 * key_numbers.c
 *	  Numbers for keys, in the order in which the keys come.
 *
 * A hash table with linear probing, at most half full.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "engine/als/key_numbers.h"
#include "core/hash_secret.h"

#define LEAST_SLOTS		1024

/* The slot that has the key, or the free one where it belongs */
static uint64_t
find_slot(const gpuvec_key_numbers *numbers, int64_t key)
{
	uint64_t	slot = gpuvec_secret_hash(key) & (numbers->nslots - 1);

	while (numbers->slots[slot] != GPUVEC_NO_NUMBER && numbers->keys[numbers->slots[slot]] != key)
		slot = (slot + 1) & (numbers->nslots - 1);
	return slot;
}

/* Make room for twice as many keys */
static bool
grow(gpuvec_key_numbers *numbers, gpuvec_error *error)
{
	uint64_t	nslots = numbers->nslots ? numbers->nslots * 2 : LEAST_SLOTS;
	uint32_t   *slots;
	int64_t    *keys;

	if (nslots > (uint64_t) UINT32_MAX)
		return gpuvec_fail(error, GPUVEC_LIMIT_EXCEEDED, NULL, NULL, "too many distinct keys");
	slots = gpuvec_als_new(numbers->memory, nslots, sizeof(*slots), error);
	if (slots == NULL)
		return false;
	keys = gpuvec_als_new(numbers->memory, nslots / 2, sizeof(*keys), error);
	if (keys == NULL)
	{
		gpuvec_als_free(numbers->memory, slots);
		return false;
	}
	memset(slots, 0xff, nslots * sizeof(*slots));
	if (numbers->n > 0)
		memcpy(keys, numbers->keys, numbers->n * sizeof(*keys));
	gpuvec_als_free(numbers->memory, numbers->slots);
	gpuvec_als_free(numbers->memory, numbers->keys);
	numbers->slots = slots;
	numbers->nslots = nslots;
	numbers->keys = keys;
	numbers->capacity = (uint32_t) (nslots / 2);
	for (uint32_t i = 0; i < numbers->n; i++)
		slots[find_slot(numbers, keys[i])] = i;
	return true;
}

uint32_t
gpuvec_key_number(const gpuvec_key_numbers *numbers, int64_t key)
{
	return numbers->nslots == 0 ? GPUVEC_NO_NUMBER : numbers->slots[find_slot(numbers, key)];
}

uint32_t
gpuvec_key_number_add(gpuvec_key_numbers *numbers, int64_t key, gpuvec_error *error)
{
	uint32_t	number = gpuvec_key_number(numbers, key);

	if (number != GPUVEC_NO_NUMBER)
		return number;
	if (numbers->n == numbers->capacity && !grow(numbers, error))
		return GPUVEC_NO_NUMBER;
	number = numbers->n++;
	numbers->keys[number] = key;
	numbers->slots[find_slot(numbers, key)] = number;
	return number;
}

void
gpuvec_key_numbers_free(gpuvec_key_numbers *numbers)
{
	gpuvec_als_free(numbers->memory, numbers->slots);
	gpuvec_als_free(numbers->memory, numbers->keys);
	*numbers = (gpuvec_key_numbers)
	{
		.memory = numbers->memory
	};
}
