/*-------------------------------------------------------------------------
 *
 * scheduler.c
 *	  Runs the searches of all sessions on one backend, in batches.
 *
 * The scheduler has no thread of its own.  A session's thread that finds the
 * backend idle becomes the leader.  It takes the oldest request of the queue,
 * and all others with the same view, measure, weights and method.  It runs
 * them as one batch and wakes their owners.  So a lone request starts at once
 * in its own thread.  Under load, batches grow while the backend is busy
 * (flat combining: Hendler, Incze, Shavit and Tzafrir 2010).  Each
 * batch starts with the oldest request, so no request starves.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/clock.h"
#include "engine/method_costs.h"
#include "engine/scheduler.h"

/*
 * Most queries of a batch of several requests.  A single request may have
 * more.
 */
#define BATCH_QUERIES	8192

typedef struct topk_request
{
	const gpuvec_view *view;
	gpuvec_measure measure;
	gpuvec_method method;
	gpuvec_topk_query *queries;
	uint32_t	nqueries;
	struct topk_request *next;	/* in the queue, then in the batch */
	pthread_cond_t wake;
	bool		done;
	bool		ok;
	gpuvec_error error;
} topk_request;

struct gpuvec_scheduler
{
	gpuvec_backend *backend;
	pthread_mutex_t mutex;		/* guards all below */
	bool		busy;			/* a thread is running a batch */
	topk_request *head;
	topk_request *tail;
	gpuvec_scheduler_stats stats;
};

gpuvec_scheduler *
gpuvec_scheduler_new(gpuvec_backend *backend)
{
	gpuvec_scheduler *scheduler = calloc(1, sizeof(*scheduler));

	if (scheduler != NULL)
	{
		scheduler->backend = backend;
		pthread_mutex_init(&scheduler->mutex, NULL);
	}
	return scheduler;
}

void
gpuvec_scheduler_free(gpuvec_scheduler *scheduler)
{
	if (scheduler == NULL)
		return;
	pthread_mutex_destroy(&scheduler->mutex);
	free(scheduler);
}

void
gpuvec_scheduler_get_stats(gpuvec_scheduler *scheduler, gpuvec_scheduler_stats *stats)
{
	pthread_mutex_lock(&scheduler->mutex);
	*stats = scheduler->stats;
	pthread_mutex_unlock(&scheduler->mutex);
}

void
gpuvec_scheduler_count(gpuvec_scheduler *scheduler)
{
	pthread_mutex_lock(&scheduler->mutex);
	scheduler->stats.requests++;
	pthread_mutex_unlock(&scheduler->mutex);
}

/* True if both may be searched in one batch */
static bool
go_together(const topk_request *a, const topk_request *b)
{
	return a->view == b->view && a->measure == b->measure && a->method == b->method &&
		(a->measure != GPUVEC_TVERSKY ||
		 memcmp(&a->queries[0].weights, &b->queries[0].weights, sizeof(gpuvec_weights)) == 0);
}

/*
 * Take the oldest request off the queue, and all others that can run in its
 * batch.  The queue must not be empty.  Sets *nqueries to the batch's number
 * of queries.
 */
static topk_request *
take_batch(gpuvec_scheduler *scheduler, uint32_t *nqueries)
{
	topk_request *batch = scheduler->head;
	topk_request *last = batch;
	topk_request **link = &scheduler->head;

	scheduler->head = batch->next;
	*nqueries = batch->nqueries;
	while (*link != NULL)
	{
		topk_request *r = *link;

		if (go_together(r, batch) && *nqueries + r->nqueries <= BATCH_QUERIES)
		{
			*link = r->next;
			last->next = r;
			last = r;
			*nqueries += r->nqueries;
		}
		else
			link = &r->next;
	}
	last->next = NULL;
	scheduler->tail = NULL;
	for (topk_request *r = scheduler->head; r != NULL; r = r->next)
		scheduler->tail = r;
	return batch;
}

/* Search by the method that was asked for; AUTO: the cheapest */
static bool
search(gpuvec_scheduler *scheduler, const topk_request *like, gpuvec_topk_query *queries,
	   uint32_t nqueries, gpuvec_error *error)
{
	gpuvec_backend *backend = scheduler->backend;

	if (like->method == GPUVEC_METHOD_AUTO)
		return gpuvec_topk_by_cost(backend, like->view, like->measure, queries, nqueries, error);
	return backend->topk(backend, like->view, like->measure, like->method, queries, nqueries,
						 error);
}

/*
 * Run the requests of a batch in one call of the backend, and give each its
 * answers
 */
static bool
run_together(gpuvec_scheduler *scheduler, topk_request *batch, uint32_t nqueries,
			 gpuvec_error *error)
{
	gpuvec_topk_query *queries = malloc(nqueries * sizeof(*queries));
	uint32_t	n = 0;
	bool		ok;

	if (queries == NULL)
		return gpuvec_fail_memory(error, nqueries * sizeof(*queries));
	for (topk_request *r = batch; r != NULL; r = r->next)
	{
		memcpy(queries + n, r->queries, r->nqueries * sizeof(*queries));
		n += r->nqueries;
	}
	ok = search(scheduler, batch, queries, n, error);
	n = 0;
	for (topk_request *r = batch; r != NULL; r = r->next)
		for (uint32_t i = 0; i < r->nqueries; i++, n++)
		{
			r->queries[i].matches = queries[n].matches;
			r->queries[i].nmatches = queries[n].nmatches;
			r->queries[i].passed = queries[n].passed;
			r->queries[i].ranked_disjoint = queries[n].ranked_disjoint;
			r->queries[i].tids = queries[n].tids;
			r->queries[i].ways = queries[n].ways;
		}
	free(queries);
	return ok;
}

/*
 * Run a batch and wake the owners of its requests.  If the requests fail as
 * one batch (memory may suffice for each, but not for all), each is tried
 * alone, so that only those fail that must.  The mutex is held at call and
 * return, but not while searching.
 */
static void
run_batch(gpuvec_scheduler *scheduler, topk_request *batch, uint32_t nqueries)
{
	uint64_t	start = gpuvec_clock_ns();
	gpuvec_error error;
	bool		together;

	scheduler->stats.batches++;
	scheduler->stats.queries += nqueries;
	pthread_mutex_unlock(&scheduler->mutex);
	together = batch->next != NULL && run_together(scheduler, batch, nqueries, &error);
	for (topk_request *r = batch; r != NULL; r = r->next)
		r->ok = together || search(scheduler, r, r->queries, r->nqueries, &r->error);
	pthread_mutex_lock(&scheduler->mutex);
	scheduler->stats.busy_ns += gpuvec_clock_ns() - start;
	while (batch != NULL)
	{
		topk_request *next = batch->next;

		scheduler->stats.errors += !batch->ok;
		batch->done = true;
		pthread_cond_signal(&batch->wake);
		batch = next;
	}
}

bool
gpuvec_scheduler_topk(gpuvec_scheduler *scheduler, const gpuvec_view *view,
					  gpuvec_measure measure, gpuvec_method method,
					  gpuvec_topk_query *queries, uint32_t nqueries, gpuvec_error *error)
{
	topk_request mine = {.view = view, .measure = measure, .method = method, .queries = queries,
		.nqueries = nqueries
	};

	pthread_cond_init(&mine.wake, NULL);
	pthread_mutex_lock(&scheduler->mutex);
	if (scheduler->tail)
		scheduler->tail->next = &mine;
	else
		scheduler->head = &mine;
	scheduler->tail = &mine;

	while (!mine.done)
	{
		if (!scheduler->busy)
		{
			uint32_t	n;
			topk_request *batch;

			scheduler->busy = true;
			batch = take_batch(scheduler, &n);
			run_batch(scheduler, batch, n);
			scheduler->busy = false;
		}
		else
			pthread_cond_wait(&mine.wake, &scheduler->mutex);
	}
	/* pass the lead to the owner of the oldest request */
	if (!scheduler->busy && scheduler->head != NULL)
		pthread_cond_signal(&scheduler->head->wake);
	pthread_mutex_unlock(&scheduler->mutex);
	pthread_cond_destroy(&mine.wake);
	if (!mine.ok)
		*error = mine.error;
	return mine.ok;
}
