/*-------------------------------------------------------------------------
 *
 * lists_builder.c
 *	  Building inverted lists in the background.
 *
 * After its adoption, a segment waits in a queue until a thread of the
 * builder makes its lists; meanwhile searches scan it.  A search that insists
 * on lists makes them itself.  The threads run at a lower priority, so that
 * loads and searches come first.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/cpu/lists_builder.h"

/* Niceness of the builder's threads */
#define BUILDER_NICE		10

/*
 * One builder thread for each THREADS_SHARE threads of the pool, at least 1
 * and at most MAX_THREADS
 */
#define THREADS_SHARE		4
#define MAX_THREADS			4

struct lists_builder
{
	const gpuvec_lists_policy *policy;
	pthread_mutex_t mutex;		/* guards all below, and states and links of
								 * segments */
	pthread_cond_t work;		/* there is a segment in the queue, or stop is
								 * set */
	pthread_cond_t built;		/* a segment is built */
	bool		stop;
	cpu_segment *head;
	cpu_segment *tail;
	int			nthreads;
	pthread_t	threads[MAX_THREADS];
};

/* Take a segment out of the queue; the mutex is held */
static void
dequeue(lists_builder *builder, cpu_segment *mine)
{
	*(mine->prev ? &mine->prev->next : &builder->head) = mine->next;
	*(mine->next ? &mine->next->prev : &builder->tail) = mine->prev;
	mine->prev = mine->next = NULL;
}

/*
 * Build the lists of a waiting segment.  The mutex is held at call and
 * return, but not while building.
 */
static void
build(lists_builder *builder, cpu_segment *mine)
{
	cpu_lists  *lists;

	dequeue(builder, mine);
	mine->state = CPU_SEGMENT_BUILDING;
	pthread_mutex_unlock(&builder->mutex);
	lists = lists_build(mine->segment, builder->policy, &mine->abandon);
	pthread_mutex_lock(&builder->mutex);

	/* if out of memory, the segment is always scanned */
	__atomic_store_n(&mine->segment->host_bytes,
					 mine->segment->host_bytes - mine->reserved + (lists ? lists->bytes : 0),
					 __ATOMIC_RELAXED);
	__atomic_store_n(&mine->lists, lists, __ATOMIC_RELEASE);
	mine->state = CPU_SEGMENT_DONE;
	pthread_cond_broadcast(&builder->built);
}

/* A builder thread: builds the lists of the segments in the queue */
static void *
builder_thread(void *arg)
{
	lists_builder *builder = arg;

	/* on Linux, niceness is per thread; a failure is harmless */
	(void) setpriority(PRIO_PROCESS, 0, BUILDER_NICE);
	pthread_mutex_lock(&builder->mutex);
	while (!builder->stop)
	{
		if (builder->head)
			build(builder, builder->head);
		else
			pthread_cond_wait(&builder->work, &builder->mutex);
	}
	pthread_mutex_unlock(&builder->mutex);
	return NULL;
}

/* Start one thread, with all signals blocked */
static bool
start_thread(lists_builder *builder)
{
	sigset_t	all;
	sigset_t	old;
	int			rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&builder->threads[builder->nthreads], NULL, builder_thread, builder);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc == 0)
		builder->nthreads++;
	return rc == 0;
}

lists_builder *
lists_builder_new(int pool_threads, const gpuvec_lists_policy *policy)
{
	lists_builder *builder = calloc(1, sizeof(*builder));
	int			nthreads = pool_threads / THREADS_SHARE;

	if (builder == NULL)
		return NULL;
	builder->policy = policy;
	pthread_mutex_init(&builder->mutex, NULL);
	pthread_cond_init(&builder->work, NULL);
	pthread_cond_init(&builder->built, NULL);
	if (nthreads < 1)
		nthreads = 1;
	while (builder->nthreads < nthreads && builder->nthreads < MAX_THREADS)
	{
		if (!start_thread(builder))
		{
			lists_builder_free(builder);
			return NULL;
		}
	}
	return builder;
}

void
lists_builder_free(lists_builder *builder)
{
	if (builder == NULL)
		return;
	pthread_mutex_lock(&builder->mutex);
	builder->stop = true;
	pthread_cond_broadcast(&builder->work);
	pthread_mutex_unlock(&builder->mutex);
	for (int i = 0; i < builder->nthreads; i++)
		pthread_join(builder->threads[i], NULL);
	pthread_mutex_destroy(&builder->mutex);
	pthread_cond_destroy(&builder->work);
	pthread_cond_destroy(&builder->built);
	free(builder);
}

cpu_segment *
lists_builder_add(lists_builder *builder, gpuvec_segment *segment)
{
	cpu_segment *mine = calloc(1, sizeof(*mine));

	if (mine == NULL)
		return NULL;
	mine->segment = segment;
	mine->reserved = lists_budget(segment, builder->policy);
	segment->host_bytes += sizeof(*mine) + mine->reserved;
	pthread_mutex_lock(&builder->mutex);
	mine->prev = builder->tail;
	*(builder->tail ? &builder->tail->next : &builder->head) = mine;
	builder->tail = mine;
	pthread_cond_signal(&builder->work);
	pthread_mutex_unlock(&builder->mutex);
	return mine;
}

void
lists_builder_require(lists_builder *builder, cpu_segment *mine)
{
	pthread_mutex_lock(&builder->mutex);
	if (mine->state == CPU_SEGMENT_WAITING)
		build(builder, mine);
	while (mine->state != CPU_SEGMENT_DONE)
		pthread_cond_wait(&builder->built, &builder->mutex);
	pthread_mutex_unlock(&builder->mutex);
}

void
lists_builder_remove(lists_builder *builder, cpu_segment *mine)
{
	pthread_mutex_lock(&builder->mutex);
	if (mine->state == CPU_SEGMENT_WAITING)
		dequeue(builder, mine);
	else
	{
		__atomic_store_n(&mine->abandon, 1, __ATOMIC_RELAXED);
		while (mine->state != CPU_SEGMENT_DONE)
			pthread_cond_wait(&builder->built, &builder->mutex);
	}
	pthread_mutex_unlock(&builder->mutex);
	lists_free(mine->lists);
	free(mine);
}
