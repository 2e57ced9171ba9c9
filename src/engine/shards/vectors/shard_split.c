/*-------------------------------------------------------------------------
 *
 * shard_split.c
 *	  What of a request to a spread bank belongs to which child.
 *
 * A slot belongs to a child by its number, a key by the upper half of its
 * hash, as the lower half is used by hash tables.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "core/hash_secret.h"
#include "engine/shards/vectors/shard_bank.h"

/*
 * List the items of each child; owners[i] is the child of item i, or no child
 * if it is shards->n
 */
static bool
list_items(shard_split *split, const shard_vectors *shards, const uint8_t *owners, uint64_t n,
		   gpuvec_error *error)
{
	uint64_t	next[GPUVEC_MAX_CHILDREN];

	split->at = malloc((n + 1) * sizeof(*split->at));
	if (split->at == NULL)
		return gpuvec_fail_memory(error, n * sizeof(*split->at));
	memset(split->first, 0, sizeof(split->first));
	for (uint64_t i = 0; i < n; i++)
		if (owners[i] < shards->n)
			split->first[owners[i] + 1]++;
	for (uint32_t child = 0; child < shards->n; child++)
	{
		next[child] = split->first[child];
		split->first[child + 1] += split->first[child];
	}
	for (uint64_t i = 0; i < n; i++)
		if (owners[i] < shards->n)
			split->at[next[owners[i]]++] = i;
	return true;
}

bool
gpuvec_shard_split_slots(shard_split *split, const shard_vectors *shards, const uint32_t *slots,
						 uint64_t n, gpuvec_error *error)
{
	uint8_t    *owners = malloc(n + 1);
	bool		ok = owners || gpuvec_fail_memory(error, n);

	split->at = NULL;
	for (uint64_t i = 0; ok && i < n; i++)
		owners[i] = (uint8_t) (slots[i] == GPUVEC_NO_SLOT ? shards->n : slots[i] % shards->n);
	ok = ok && list_items(split, shards, owners, n, error);
	free(owners);
	return ok;
}

bool
gpuvec_shard_split_keys(shard_split *split, const shard_vectors *shards, const int64_t *keys,
						size_t stride, uint64_t n, gpuvec_error *error)
{
	uint8_t    *owners = malloc(n + 1);
	bool		ok = owners || gpuvec_fail_memory(error, n);

	split->at = NULL;
	for (uint64_t i = 0; ok && i < n; i++)
	{
		int64_t		key = *(const int64_t *) ((const char *) keys + i * stride);

		owners[i] = (uint8_t) ((gpuvec_secret_hash(key) >> 32) * shards->n >> 32);
	}
	ok = ok && list_items(split, shards, owners, n, error);
	free(owners);
	return ok;
}

/* Copy a row of the upstream gradient, if rows are copied */
static void
copy_row(shard_bags *mine, uint64_t to, const float *gradient, uint64_t from, uint32_t width)
{
	if (mine->rows)
		memcpy(mine->rows + to * width, gradient + from * width, width * sizeof(float));
}

/*
 * Fill the bags of a child: those that have slots of it, or all.  Returns
 * their number.
 */
static uint64_t
fill_bags(shard_bags *mine, const shard_bank *bank, const gpuvec_slot_bags *bags,
		  const float *factors, const float *gradient, const uint64_t *at, uint64_t n)
{
	uint64_t	nbags = 0;
	uint64_t	i = 0;

	mine->offsets[0] = 0;
	for (uint64_t bag = 0; bag < bags->nbags; bag++)
	{
		uint64_t	end = gpuvec_bag_start(bags, bag + 1);
		uint64_t	first = i;

		for (; i < n && at[i] < end; i++)
		{
			mine->slots[i] = bags->slots[at[i]] / bank->shards->n;
			if (factors)
				mine->weights[i] = factors[at[i]];
		}
		if (mine->rows && i == first)
			continue;
		copy_row(mine, nbags, gradient, bag, bank->width);
		mine->offsets[++nbags] = i;
	}
	return nbags;
}

/* Number of bags that have slots at[n] */
static uint64_t
count_bags(const gpuvec_slot_bags *bags, const uint64_t *at, uint64_t n)
{
	uint64_t	count = 0;
	uint64_t	i = 0;

	for (uint64_t bag = 0; bag < bags->nbags && i < n; bag++)
	{
		uint64_t	end = gpuvec_bag_start(bags, bag + 1);

		count += at[i] < end;
		while (i < n && at[i] < end)
			i++;
	}
	return count;
}

bool
gpuvec_shard_bags_new(shard_bags *mine, const shard_bank *bank, const gpuvec_slot_bags *bags,
					  const float *factors, const float *gradient, const uint64_t *at, uint64_t n,
					  gpuvec_error *error)
{
	uint64_t	nbags = count_bags(bags, at, n);
	size_t		row_bytes = bank->width * sizeof(float);
	bool		copy = nbags <= bags->nbags / 2;

	memset(mine, 0, sizeof(*mine));
	mine->slots = malloc(n * sizeof(uint32_t) + 1);
	mine->offsets = malloc((bags->nbags + 1) * sizeof(uint64_t));
	if (factors)
		mine->weights = malloc(n * sizeof(float) + 1);
	if (copy)
		mine->rows = malloc(nbags * row_bytes + 1);
	if (!mine->slots || !mine->offsets || (factors && !mine->weights) || (copy && !mine->rows))
	{
		gpuvec_shard_bags_free(mine);
		return gpuvec_fail_memory(error, n * sizeof(uint32_t) + nbags * row_bytes);
	}
	mine->gradient = copy ? mine->rows : gradient;
	mine->bags = (gpuvec_slot_bags)
	{
		.slots = mine->slots, .nslots = n, .offsets = mine->offsets,
			.nbags = fill_bags(mine, bank, bags, factors, gradient, at, n), .weights = mine->weights,
			.mode = GPUVEC_POOL_SUM, .canceled = bags->canceled
	};
	return true;
}

void
gpuvec_shard_bags_free(shard_bags *mine)
{
	free(mine->slots);
	free(mine->offsets);
	free(mine->weights);
	free(mine->rows);
}
