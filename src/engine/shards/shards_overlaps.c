/*-------------------------------------------------------------------------
 *
 * shards_overlaps.c
 *	  Rows of pairs of queries, counted on all devices that have a shard of a
 *	  view.
 *
 * Each device counts the rows of its shard.  A row is in one shard, so counts
 * are added up, and the rows that are returned are those of all shards.  If a
 * device has no memory for it, the sessions do it without the engine.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "engine/shards/shards.h"

/* What one device counts */
typedef struct shard_overlaps
{
	gpuvec_overlaps overlaps;	/* pairs are malloc'd */
	bool		ok;
	gpuvec_error error;
} shard_overlaps;

typedef struct overlaps_task
{
	shards_backend *shards;
	const shards_view *divided;
	const gpuvec_overlaps *asked;
	shard_overlaps found[GPUVEC_MAX_DEVICES];	/* [divided->n] */
} overlaps_task;

/* Count on one device; called by a thread of the pool */
static void
ask_shard(void *arg, uint64_t number, int thread)
{
	overlaps_task *task = arg;
	shard_overlaps *mine = &task->found[number];
	int			device = task->divided->shard[number].child;
	shards_child *child = &task->shards->children[device];
	uint64_t	npairs = gpuvec_overlap_pairs(task->asked->n);
	uint64_t	start;

	(void) thread;
	mine->overlaps = *task->asked;
	mine->overlaps.pairs = calloc(npairs, sizeof(uint64_t));
	mine->ok = mine->overlaps.pairs != NULL ||
		gpuvec_fail_memory(&mine->error, npairs * sizeof(uint64_t));
	if (!mine->ok)
		return;
	pthread_mutex_lock(&child->search);
	start = gpuvec_clock_ns();
	mine->ok = child->backend->overlaps(child->backend, task->divided->shard[number].view,
										&mine->overlaps, &mine->error);
	pthread_mutex_unlock(&child->search);
	if (!mine->ok)
		(void) shards_failed(device, &mine->error);
	__atomic_add_fetch(&child->searches, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&child->queries, task->asked->n, __ATOMIC_RELAXED);
	__atomic_add_fetch(&child->errors, !mine->ok, __ATOMIC_RELAXED);
	__atomic_add_fetch(&child->busy_ns, gpuvec_clock_ns() - start, __ATOMIC_RELAXED);
}

/* Add what a device has found to the answer.  False: out of memory. */
static bool
unite(gpuvec_overlaps *answer, const gpuvec_overlaps *found)
{
	uint64_t   *tids;

	for (uint64_t i = 0; i < gpuvec_overlap_pairs(answer->n); i++)
		answer->pairs[i] += found->pairs[i];
	if (found->ntids == 0)
		return true;
	tids = realloc(answer->tids, (answer->ntids + found->ntids) * sizeof(uint64_t));
	if (tids == NULL)
		return false;
	memcpy(tids + answer->ntids, found->tids, found->ntids * sizeof(uint64_t));
	answer->tids = tids;
	answer->ntids += found->ntids;
	return true;
}

/*
 * Unite what all devices have found; the first error, one that ends the engine
 * before others
 */
static bool
unite_all(const overlaps_task *task, gpuvec_overlaps *answer, gpuvec_error *error)
{
	const shard_overlaps *worst = NULL;

	for (int i = 0; i < task->divided->n; i++)
		if (!task->found[i].ok &&
			(worst == NULL || (task->found[i].error.fatal && !worst->error.fatal)))
			worst = &task->found[i];
	if (worst)
	{
		*error = worst->error;
		return false;
	}
	for (int i = 0; i < task->divided->n; i++)
		if (!unite(answer, &task->found[i].overlaps))
			return gpuvec_fail_memory(error, task->found[i].overlaps.ntids * sizeof(uint64_t));
	return true;
}

bool
shards_overlaps(gpuvec_backend *backend, const gpuvec_view *view, gpuvec_overlaps *overlaps,
				gpuvec_error *error)
{
	shards_backend *shards = (shards_backend *) backend;
	overlaps_task *task = calloc(1, sizeof(*task));
	bool		ok;

	overlaps->tids = NULL;
	overlaps->ntids = 0;
	if (task == NULL)
		return gpuvec_fail_memory(error, sizeof(*task));
	task->shards = shards;
	task->divided = view->device;
	task->asked = overlaps;
	pthread_mutex_lock(&shards->together);
	gpuvec_thread_pool_run(shards->pool, ask_shard, task, (uint64_t) task->divided->n);
	pthread_mutex_unlock(&shards->together);
	ok = unite_all(task, overlaps, error);
	for (int i = 0; i < task->divided->n; i++)
	{
		free(task->found[i].overlaps.pairs);
		free(task->found[i].overlaps.tids);
	}
	free(task);
	return ok;
}
