/*-------------------------------------------------------------------------
 *
 * thread_pool.c
 *	  A pool of threads that work on the parts of one task.
 *
 * Threads take parts from an atomic counter.  The caller works too: a pool of
 * one thread starts no thread, and a task of one part wakes none.  A worker
 * that wakes after all parts are taken does not join the run, and the caller
 * does not wait for it.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

#include "engine/thread_pool.h"

struct gpuvec_thread_pool
{
	int			nthreads;
	pthread_mutex_t caller;		/* held during a run: one run at a time */
	pthread_mutex_t mutex;		/* guards all below */
	pthread_cond_t start;
	pthread_cond_t done;
	uint64_t	run;			/* number of the current or last run */
	bool		open;			/* workers may join the run */
	int			working;		/* workers that have joined the run and not
								 * finished */
	bool		stop;

	/* the run */
	gpuvec_part part;
	void	   *task;
	uint64_t	nparts;
	uint64_t	next;			/* atomic */

	pthread_t	threads[];		/* nthreads - 1 of them */
};

typedef struct worker_start
{
	gpuvec_thread_pool *pool;
	int			thread;
} worker_start;

static uint64_t progress = 0;	/* atomic */

void
gpuvec_progress_made(void)
{
	__atomic_add_fetch(&progress, 1, __ATOMIC_RELAXED);
}

uint64_t
gpuvec_progress(void)
{
	return __atomic_load_n(&progress, __ATOMIC_RELAXED);
}

int
gpuvec_cores(void)
{
	cpu_set_t	set;

	if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0)
		return CPU_COUNT(&set);
	return 1;
}

int
gpuvec_thread_pool_threads(const gpuvec_thread_pool *pool)
{
	return pool->nthreads;
}

/* Work on parts until all are taken */
static void
work(gpuvec_thread_pool *pool, int thread)
{
	for (;;)
	{
		uint64_t	part = __atomic_fetch_add(&pool->next, 1, __ATOMIC_RELAXED);

		if (part >= pool->nparts)
			break;
		pool->part(pool->task, part, thread);

		/*
		 * all threads work at the same task, so it is enough if one reports
		 */
		if (thread == 0)
			gpuvec_progress_made();
	}
}

/* A worker thread: joins runs as they start */
static void *
worker(void *arg)
{
	worker_start *start = arg;
	gpuvec_thread_pool *pool = start->pool;
	int			thread = start->thread;
	uint64_t	seen = 0;

	free(start);
	pthread_mutex_lock(&pool->mutex);
	for (;;)
	{
		while (pool->run == seen && !pool->stop)
			pthread_cond_wait(&pool->start, &pool->mutex);
		if (pool->stop)
			break;
		seen = pool->run;
		if (!pool->open)
			continue;
		pool->working++;
		pthread_mutex_unlock(&pool->mutex);
		work(pool, thread);
		pthread_mutex_lock(&pool->mutex);
		if (--pool->working == 0)
			pthread_cond_signal(&pool->done);
	}
	pthread_mutex_unlock(&pool->mutex);
	return NULL;
}

/* Start one worker, with all signals blocked */
static bool
start_worker(gpuvec_thread_pool *pool, int thread)
{
	worker_start *start = malloc(sizeof(*start));
	sigset_t	all;
	sigset_t	old;
	int			rc;

	if (start == NULL)
		return false;
	start->pool = pool;
	start->thread = thread;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&pool->threads[thread - 1], NULL, worker, start);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc != 0)
		free(start);
	return rc == 0;
}

gpuvec_thread_pool *
gpuvec_thread_pool_new(int nthreads)
{
	gpuvec_thread_pool *pool;

	if (nthreads <= 0)
		nthreads = gpuvec_cores();
	pool = calloc(1, sizeof(*pool) + (size_t) nthreads * sizeof(pthread_t));
	if (pool == NULL)
		return NULL;
	pthread_mutex_init(&pool->caller, NULL);
	pthread_mutex_init(&pool->mutex, NULL);
	pthread_cond_init(&pool->start, NULL);
	pthread_cond_init(&pool->done, NULL);
	for (pool->nthreads = 1; pool->nthreads < nthreads; pool->nthreads++)
	{
		if (!start_worker(pool, pool->nthreads))
		{
			gpuvec_thread_pool_free(pool);
			return NULL;
		}
	}
	return pool;
}

void
gpuvec_thread_pool_free(gpuvec_thread_pool *pool)
{
	if (pool == NULL)
		return;
	pthread_mutex_lock(&pool->mutex);
	pool->stop = true;
	pthread_cond_broadcast(&pool->start);
	pthread_mutex_unlock(&pool->mutex);
	for (int i = 0; i < pool->nthreads - 1; i++)
		pthread_join(pool->threads[i], NULL);
	pthread_mutex_destroy(&pool->caller);
	pthread_mutex_destroy(&pool->mutex);
	pthread_cond_destroy(&pool->start);
	pthread_cond_destroy(&pool->done);
	free(pool);
}

/* Wake as many workers as there are parts for */
static void
wake(gpuvec_thread_pool *pool, uint64_t nparts)
{
	uint64_t	workers = (uint64_t) pool->nthreads - 1;

	if (nparts >= workers)
		pthread_cond_broadcast(&pool->start);
	else
		for (uint64_t i = 0; i < nparts; i++)
			pthread_cond_signal(&pool->start);
}

void
gpuvec_thread_pool_run(gpuvec_thread_pool *pool, gpuvec_part part, void *task, uint64_t nparts)
{
	pthread_mutex_lock(&pool->caller);
	pthread_mutex_lock(&pool->mutex);
	pool->part = part;
	pool->task = task;
	pool->nparts = nparts;
	pool->next = 0;
	if (pool->nthreads > 1 && nparts > 1)
	{
		pool->run++;
		pool->open = true;
		wake(pool, nparts - 1);
	}
	pthread_mutex_unlock(&pool->mutex);

	work(pool, 0);

	pthread_mutex_lock(&pool->mutex);
	pool->open = false;
	while (pool->working > 0)
		pthread_cond_wait(&pool->done, &pool->mutex);
	pthread_mutex_unlock(&pool->mutex);
	pthread_mutex_unlock(&pool->caller);
}
