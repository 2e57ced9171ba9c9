/*-------------------------------------------------------------------------
 *
 * shard_ask.c
 *	  Asking the devices that vectors are on: all of them, or one.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/shards/vectors/shard_bank.h"

/* All children are asked for something */
typedef struct child_asking
{
	shard_ask  *ask;
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
	(void) gpuvec_shard_failed((uint32_t) child, &error);
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
gpuvec_shard_ask(shard_vectors *shards, shard_ask *ask, void *arg, bool beside, gpuvec_error *error)
{
	child_asking a = {.ask = ask, .arg = arg, .failed = UINT64_MAX};

	if (!beside)
	{
		for (uint32_t child = 0; child < shards->n; child++)
			if (!ask(arg, child, error))
				return gpuvec_shard_failed(child, error);
		return true;
	}
	pthread_mutex_init(&a.mutex, NULL);
	gpuvec_thread_pool_run(shards->asking, ask_child, &a, shards->n);
	pthread_mutex_destroy(&a.mutex);
	if (a.failed == UINT64_MAX)
		return true;
	*error = a.error;
	return false;
}

uint32_t
gpuvec_shard_take(shard_vectors *shards)
{
	uint32_t	first = (uint32_t) (__atomic_fetch_add(&shards->turn, 1, __ATOMIC_RELAXED) % shards->n);
	uint32_t	best = first;
	uint64_t	least = UINT64_MAX;

	for (uint32_t i = 0; i < shards->n; i++)
	{
		uint32_t	child = (first + i) % shards->n;
		uint64_t	requests = __atomic_load_n(&shards->children[child].requests, __ATOMIC_RELAXED);

		if (requests < least)
		{
			best = child;
			least = requests;
		}
	}
	__atomic_add_fetch(&shards->children[best].requests, 1, __ATOMIC_RELAXED);
	return best;
}

bool
gpuvec_shard_give(shard_vectors *shards, uint32_t child, bool ok, gpuvec_error *error)
{
	__atomic_sub_fetch(&shards->children[child].requests, 1, __ATOMIC_RELAXED);
	return ok || gpuvec_shard_failed(child, error);
}
