/*-------------------------------------------------------------------------
 *
 * part_vectors.c
 *	  The vectors of embedding tables on several devices: opening, closing,
 *	  and asking the children.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "engine/parts/vectors/part_bank.h"

const gpuvec_part_policy gpuvec_part_defaults = {
	.copy_bytes = 0, .share = true, .threads = 0, .split_slots = 262144, .split_queries = 16, .beside = 2048,
	.chunk_bytes = (size_t) 64 << 20, .sum_slots = 8192
};

/* All children are asked for something */
typedef struct child_asking
{
	part_ask   *ask;
	void	   *arg;
	pthread_mutex_t mutex;		/* guards what follows */
	uint64_t	failed;			/* the first child that failed, or that is
								 * lost */
	gpuvec_error error;			/* its error */
} child_asking;

/* Task: ask one child */
static void
ask_child(void *task, uint64_t child, int thread)
{
	child_asking *a = task;
	gpuvec_error error = {0};

	(void) thread;
	if (a->ask(a->arg, (uint32_t) child, &error))
		return;
	if (error.fatal)
		error.device = (int) child + 1;
	pthread_mutex_lock(&a->mutex);
	if (a->failed == UINT64_MAX || error.fatal > a->error.fatal ||
		(child < a->failed && error.fatal == a->error.fatal))
	{
		a->failed = child;
		a->error = error;
	}
	pthread_mutex_unlock(&a->mutex);
}

bool
gpuvec_part_ask(part_vectors *parts, part_ask *ask, void *arg, bool beside, gpuvec_error *error)
{
	child_asking a = {.ask = ask, .arg = arg, .failed = UINT64_MAX};

	if (!beside)
	{
		for (uint32_t child = 0; child < parts->n; child++)
			if (!ask(arg, child, error))
			{
				if (error->fatal)
					error->device = (int) child + 1;
				return false;
			}
		return true;
	}
	pthread_mutex_init(&a.mutex, NULL);
	gpuvec_thread_pool_run(parts->asking, ask_child, &a, parts->n);
	pthread_mutex_destroy(&a.mutex);
	if (a.failed == UINT64_MAX)
		return true;
	*error = a.error;
	return false;
}

uint32_t
gpuvec_part_take(part_vectors *parts)
{
	uint32_t	first = (uint32_t) (__atomic_fetch_add(&parts->turn, 1, __ATOMIC_RELAXED) % parts->n);
	uint32_t	best = first;
	uint64_t	least = UINT64_MAX;

	for (uint32_t i = 0; i < parts->n; i++)
	{
		uint32_t	child = (first + i) % parts->n;
		uint64_t	requests = __atomic_load_n(&parts->children[child].requests, __ATOMIC_RELAXED);

		if (requests < least)
		{
			best = child;
			least = requests;
		}
	}
	__atomic_add_fetch(&parts->children[best].requests, 1, __ATOMIC_RELAXED);
	return best;
}

void
gpuvec_part_give(part_vectors *parts, uint32_t child)
{
	__atomic_sub_fetch(&parts->children[child].requests, 1, __ATOMIC_RELAXED);
}

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
