/*-------------------------------------------------------------------------
 *
 * part_vectors.c
 *	  The vectors of embedding tables on several devices: opening, closing.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "engine/parts/vectors/part_bank.h"

const gpuvec_part_policy gpuvec_part_defaults = {
	.copy_bytes = 0, .share = true, .threads = 0, .split_slots = 262144, .split_queries = 16, .beside = 2048,
	.chunk_bytes = (size_t) 64 << 20, .sum_slots = 8192
};

/* Free it; the children stay */
static void
part_close(gpuvec_vectors *vectors)
{
	part_vectors *parts = part_vectors_of(vectors);

	if (parts->asking)
		gpuvec_thread_pool_free(parts->asking);
	if (parts->summing)
		gpuvec_thread_pool_free(parts->summing);
	free(parts);
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
gpuvec_part_vectors_new(gpuvec_vectors *const *children, uint32_t n,
						const gpuvec_part_policy *policy, gpuvec_error *error)
{
	static const gpuvec_vectors functions = {
		.close = part_close, .make = gpuvec_part_make, .release = gpuvec_part_release,
		.reserve = gpuvec_part_reserve, .bytes = gpuvec_part_bytes, .put = gpuvec_part_put,
		.flush = gpuvec_part_flush, .forget = gpuvec_part_forget,
		.key_limit = gpuvec_part_key_limit, .clear_keys = gpuvec_part_clear_keys,
		.map_keys = gpuvec_part_map_keys, .find_keys = gpuvec_part_find_keys,
		.pool = gpuvec_part_pool, .gradient = gpuvec_part_gradient,
		.weight_gradients = gpuvec_part_weight_gradients, .nearest = gpuvec_part_nearest
	};
	size_t		bytes = sizeof(part_vectors) + n * sizeof(part_child);
	part_vectors *parts;

	if (n < 1 || n > GPUVEC_MAX_CHILDREN)
	{
		gpuvec_fail(error, GPUVEC_LIMIT_EXCEEDED, NULL, NULL,
					"vectors can be on 1 to %d devices, not on %u", GPUVEC_MAX_CHILDREN, n);
		return NULL;
	}
	parts = calloc(1, bytes);
	if (parts == NULL)
	{
		gpuvec_fail_memory(error, bytes);
		return NULL;
	}
	parts->functions = functions;
	parts->policy = *policy;
	parts->n = n;
	for (uint32_t i = 0; i < n; i++)
		parts->children[i].vectors = children[i];
	parts->pool_bag = gpuvec_best_pool_bag();
	parts->share = policy->share && can_share(children, n);
	parts->asking = gpuvec_thread_pool_new((int) n);
	parts->summing = gpuvec_thread_pool_new(policy->threads);
	if (parts->asking && parts->summing)
		return &parts->functions;
	part_close(&parts->functions);
	gpuvec_fail_memory(error, bytes);
	return NULL;
}
