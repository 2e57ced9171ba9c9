/*-------------------------------------------------------------------------
 *
 * shard_keys.c
 *	  Finding slots of keys on several devices.
 *
 * With copies, each child has the keys of all slots.  If the bank is spread,
 * each child has the keys that belong to it by their hash, with the numbers
 * that slots have in the whole bank.
 *
 * Keys may belong to children unevenly.  If they do so much that the hash
 * table of a child is full, the host finds all keys, until tables are cleared
 * and filled again.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <stdlib.h>

#include "engine/shards/vectors/shard_bank.h"

/*
 * The limit leaves room for the numbers of keys of children to differ, in
 * standard deviations
 */
#define KEY_DEVIATIONS	4

/* The least number of keys that any child takes */
static uint64_t
least_limit(const shard_bank *bank)
{
	uint64_t	least = UINT64_MAX;

	for (uint32_t i = 0; i < bank->shards->n; i++)
	{
		uint64_t	limit = bank->shards->children[i].vectors->key_limit(bank->children[i].bank);

		least = limit < least ? limit : least;
	}
	return least;
}

uint64_t
gpuvec_shard_key_limit(const gpuvec_device_bank *device_bank)
{
	const shard_bank *bank = (const shard_bank *) device_bank;
	double		n = bank->copies ? 1 : bank->shards->n;
	double		all = (double) least_limit(bank) * n;
	double		spare = n > 1 ? KEY_DEVIATIONS * sqrt(all * n) : 0;

	return all > spare ? (uint64_t) (all - spare) : 0;
}

static bool
clear_child(void *arg, uint32_t i, gpuvec_error *error)
{
	shard_bank *bank = arg;
	gpuvec_vectors *child = bank->shards->children[i].vectors;

	bank->children[i].entered = 0;
	return child->clear_keys(child, bank->children[i].bank, error);
}

bool
gpuvec_shard_clear_keys(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
						gpuvec_error *error)
{
	shard_bank *bank = shard_bank_of(device_bank);
	bool		ok = gpuvec_shard_ask(bank->shards, clear_child, bank, true, error);

	(void) vectors;
	__atomic_store_n(&bank->keys_known, ok, __ATOMIC_RELEASE);
	return ok;
}

/* Enter keys into the hash table of a child, unless that would be full */
static bool
enter_keys(shard_bank *bank, uint32_t i, const gpuvec_key_row *rows, uint64_t n, gpuvec_error *error)
{
	gpuvec_vectors *child = bank->shards->children[i].vectors;
	shard_bank_child *mine = &bank->children[i];

	if (__atomic_add_fetch(&mine->entered, n, __ATOMIC_RELAXED) > child->key_limit(mine->bank))
	{
		__atomic_store_n(&bank->keys_known, false, __ATOMIC_RELEASE);
		return true;
	}
	return child->map_keys(child, mine->bank, rows, n, error) || gpuvec_shard_failed(i, error);
}

/* Enter each key into the hash table of its child */
static bool
spread_keys(shard_bank *bank, const gpuvec_key_row *rows, uint64_t n, gpuvec_error *error)
{
	gpuvec_key_row *sorted = malloc(n * sizeof(*sorted) + 1);
	shard_split split = {.at = NULL};
	bool		ok = sorted || gpuvec_fail_memory(error, n * sizeof(*sorted));

	ok = ok && gpuvec_shard_split_keys(&split, bank->shards, &rows->key, sizeof(*rows), n, error);
	for (uint64_t i = 0; ok && i < n; i++)
		sorted[i] = rows[split.at[i]];
	for (uint32_t i = 0; ok && i < bank->shards->n; i++)
		ok = enter_keys(bank, i, sorted + split.first[i], shard_split_count(&split, i), error);
	free(split.at);
	free(sorted);
	return ok;
}

bool
gpuvec_shard_map_keys(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
					  const gpuvec_key_row *rows, uint64_t n, gpuvec_error *error)
{
	shard_bank *bank = shard_bank_of(device_bank);

	(void) vectors;
	if (!__atomic_load_n(&bank->keys_known, __ATOMIC_ACQUIRE) || n == 0)
		return true;
	if (!bank->copies)
		return spread_keys(bank, rows, n, error);
	for (uint32_t i = 0; i < bank->shards->n; i++)
		if (!enter_keys(bank, i, rows, n, error))
			return false;
	return true;
}

/* A search for keys of a spread bank, whose keys are sorted by child */
typedef struct key_search
{
	const shard_bank *bank;
	const gpuvec_key_search *search;
	shard_split split;
	int64_t    *keys;			/* [nkeys] */
	uint32_t   *slots;			/* [nkeys]: the answer */
} key_search;

/* Find the keys that belong to a child */
static bool
find_child(void *arg, uint32_t i, gpuvec_error *error)
{
	const key_search *k = arg;
	gpuvec_vectors *child = k->bank->shards->children[i].vectors;
	gpuvec_key_search mine = *k->search;

	mine.keys = k->keys + k->split.first[i];
	mine.nkeys = shard_split_count(&k->split, i);
	mine.slots = k->slots + k->split.first[i];
	return mine.nkeys == 0 || child->find_keys(child, k->bank->children[i].bank, &mine, error);
}

/* Find keys of a spread bank */
static bool
find_spread(const shard_bank *bank, const gpuvec_key_search *search, gpuvec_error *error)
{
	uint64_t	n = search->nkeys;
	key_search	k = {
		.bank = bank, .search = search, .keys = malloc(n * sizeof(int64_t) + 1),
		.slots = malloc(n * sizeof(uint32_t) + 1)
	};
	bool		ok = (k.keys && k.slots) || gpuvec_fail_memory(error, n * sizeof(int64_t));

	ok = ok && gpuvec_shard_split_keys(&k.split, bank->shards, search->keys, sizeof(int64_t), n, error);
	for (uint64_t i = 0; ok && i < n; i++)
		k.keys[i] = search->keys[k.split.at[i]];
	ok = ok && gpuvec_shard_ask(bank->shards, find_child, &k, n >= bank->shards->policy.beside, error);
	for (uint64_t i = 0; ok && !gpuvec_bags_canceled(search->canceled) && i < n; i++)
		search->slots[k.split.at[i]] = k.slots[i];
	free(k.split.at);
	free(k.keys);
	free(k.slots);
	return ok;
}

bool
gpuvec_shard_find_keys(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
					   const gpuvec_key_search *search, gpuvec_error *error)
{
	shard_vectors *shards = shard_vectors_of(vectors);
	shard_bank *bank = shard_bank_of(device_bank);
	gpuvec_vectors *child;
	uint32_t	i;
	bool		ok;

	if (!__atomic_load_n(&bank->keys_known, __ATOMIC_ACQUIRE))
	{
		for (uint64_t j = 0; j < search->nkeys; j++)
			search->slots[j] = GPUVEC_ASK_SLOT;
		return true;
	}
	if (!bank->copies)
		return find_spread(bank, search, error);
	i = gpuvec_shard_take(shards);
	child = shards->children[i].vectors;
	ok = child->find_keys(child, bank->children[i].bank, search, error);
	return gpuvec_shard_give(shards, i, ok, error);
}
