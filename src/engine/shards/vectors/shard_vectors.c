/*-------------------------------------------------------------------------
 *
 * shard_vectors.c
 *	  The vectors of embedding tables on several devices: opening, closing.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "engine/shards/vectors/shard_bank.h"

const gpuvec_shard_policy gpuvec_shard_defaults = {
	.copy_bytes = 0, .share = true, .threads = 0, .split_slots = 262144, .split_queries = 16, .beside = 2048,
	.chunk_bytes = (size_t) 64 << 20, .sum_slots = 8192
};

/* Free it; the children stay */
static void
shard_close(gpuvec_vectors *vectors)
{
	shard_vectors *shards = shard_vectors_of(vectors);

	if (shards->asking)
		gpuvec_thread_pool_free(shards->asking);
	if (shards->summing)
		gpuvec_thread_pool_free(shards->summing);
	free(shards);
}

/* True if children are of one kind, and can read each other's vectors */
static bool
can_share(gpuvec_vectors *const *children, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (children[i]->can_share == NULL || children[i]->can_share != children[0]->can_share)
			return false;
	return n > 1 && children[0]->can_share(children, n);
}

gpuvec_vectors *
gpuvec_shard_vectors_new(gpuvec_vectors *const *children, uint32_t n,
						 const gpuvec_shard_policy *policy, gpuvec_error *error)
{
	static const gpuvec_vectors functions = {
		.close = shard_close, .make = gpuvec_shard_make, .release = gpuvec_shard_release,
		.reserve = gpuvec_shard_reserve, .bytes = gpuvec_shard_bytes, .put = gpuvec_shard_put,
		.flush = gpuvec_shard_flush, .forget = gpuvec_shard_forget,
		.key_limit = gpuvec_shard_key_limit, .clear_keys = gpuvec_shard_clear_keys,
		.map_keys = gpuvec_shard_map_keys, .find_keys = gpuvec_shard_find_keys,
		.pool = gpuvec_shard_pool, .gradient = gpuvec_shard_gradient,
		.weight_gradients = gpuvec_shard_weight_gradients, .nearest = gpuvec_shard_nearest
	};
	size_t		bytes = sizeof(shard_vectors) + n * sizeof(shard_child);
	shard_vectors *shards;

	if (n < 1 || n > GPUVEC_MAX_CHILDREN)
	{
		gpuvec_fail(error, GPUVEC_LIMIT_EXCEEDED, NULL, NULL,
					"vectors can be on 1 to %d devices, not on %u", GPUVEC_MAX_CHILDREN, n);
		return NULL;
	}
	shards = calloc(1, bytes);
	if (shards == NULL)
	{
		gpuvec_fail_memory(error, bytes);
		return NULL;
	}
	shards->functions = functions;
	shards->policy = *policy;
	shards->n = n;
	for (uint32_t i = 0; i < n; i++)
		shards->children[i].vectors = children[i];
	shards->pool_bag = gpuvec_best_pool_bag();
	shards->share = policy->share && can_share(children, n);
	shards->asking = gpuvec_thread_pool_new((int) n);
	shards->summing = gpuvec_thread_pool_new(policy->threads);
	if (shards->asking && shards->summing)
		return &shards->functions;
	shard_close(&shards->functions);
	gpuvec_fail_memory(error, bytes);
	return NULL;
}
