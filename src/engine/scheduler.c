/*-------------------------------------------------------------------------
 *
 * scheduler.c
 *	  Runs the searches of all sessions on one backend, in batches.
 *
 * The scheduler has no thread of its own.  A session's thread that finds the
 * backend idle becomes the leader.  It takes the oldest request of the queue,
 * and all others with the same view, scoring and method.  It runs
 * them as one batch and wakes their owners.  So a lone request starts at once
 * in its own thread.  Under load, batches grow while the backend is busy
 * (flat combining: Hendler, Incze, Shavit and Tzafrir 2010).  Each
 * batch starts with the oldest request, so no request starves.
 *
 * While something can start, some thread is awake that will look for it: one
 * that puts a request into the queue looks itself, and one that has taken or
 * finished a batch wakes the owner of another request (pass_lead()).  Owners
 * sleep by a mutex of their own.  So those of a finished batch, whom it takes
 * long to wake, are woken when the next one has begun, and need nothing that
 * others hold.
 *
 * A batch copies the queries of its requests, so each request must get back
 * all that its queries were answered with (run_together()).  Else, an answer
 * would depend on whether others have searched at the same time.
 *
 * A backend of several devices runs as many batches at a time as it has
 * devices that are idle, for views that one device can search alone: each of
 * its replicas is busy or idle.  Other searches take all replicas.  What waits
 * for all of them keeps later requests from starting, or it would wait for
 * ever.  When several replicas are idle, a batch takes only its share of the
 * requests.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/protocol_sets.h"
#include "engine/fault.h"
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
	const gpuvec_scoring *scoring;
	gpuvec_method method;
	gpuvec_topk_query *queries;
	uint32_t	nqueries;
	gpuvec_overlaps *overlaps;	/* in place of queries: pairs of them are
								 * counted; or NULL */
	uint64_t	replicas;		/* any of which can search it alone, as bits;
								 * 0: it takes all */
	struct topk_request *next;	/* in the queue, then in the batch */
	bool		sleeps;			/* its owner waits, and nobody has woken it */
	bool		ok;
	gpuvec_error error;
	pthread_mutex_t mutex;		/* guards what follows */
	pthread_cond_t wake;
	bool		woken;			/* the owner has not noticed yet */
	bool		done;
} topk_request;

struct gpuvec_scheduler
{
	gpuvec_backend *backend;
	pthread_mutex_t mutex;		/* guards all below */
	uint64_t	busy;			/* replicas on which threads run batches */
	int			last_replica;	/* the replica of the last batch on one */
	topk_request *head;
	topk_request *tail;
	long		held;			/* requests that a fault holds back */
	uint64_t	releases;		/* how often it has let some go */
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

/* A batch that is about to run */
typedef struct topk_batch
{
	topk_request *requests;
	uint32_t	nqueries;
	uint64_t	replicas;		/* that it makes busy */
	gpuvec_backend *backend;	/* that searches: the only replica, or all */
} topk_batch;

/* True if both may be searched in one batch */
static bool
go_together(const topk_request *a, const topk_request *b)
{
	if (a->overlaps || b->overlaps)
		return false;
	return a->view == b->view && a->replicas == b->replicas && a->method == b->method &&
		gpuvec_wire_measure(*a->scoring) == gpuvec_wire_measure(*b->scoring) &&
		(a->scoring->measure != GPUVEC_TVERSKY ||
		 memcmp(&a->scoring->tversky, &b->scoring->tversky, sizeof(gpuvec_tversky)) == 0);
}

/* The idle replica that comes next after the last one: all are used in turn */
static int
next_replica(gpuvec_scheduler *scheduler, uint64_t idle)
{
	uint64_t	later = idle & ~(UINT64_MAX >> (63 - scheduler->last_replica));

	scheduler->last_replica = __builtin_ctzll(later ? later : idle);
	return scheduler->last_replica;
}

/* The link to the oldest request that can start now, or NULL */
static topk_request **
find_startable(gpuvec_scheduler *scheduler)
{
	for (topk_request **link = &scheduler->head; *link; link = &(*link)->next)
	{
		uint64_t	replicas = (*link)->replicas;

		if (replicas == 0)
			return scheduler->busy == 0 ? link : NULL;
		if (replicas & ~scheduler->busy)
			return link;
	}
	return NULL;
}

/*
 * Most queries of a batch that begins with this request: its replica's share
 * of those that wait for the same
 */
static uint32_t
share_of(const gpuvec_scheduler *scheduler, const topk_request *first)
{
	uint32_t	idle = (uint32_t) __builtin_popcountll(first->replicas & ~scheduler->busy);
	uint64_t	queries = 0;

	if (idle <= 1)
		return BATCH_QUERIES;
	for (const topk_request *r = scheduler->head; r; r = r->next)
		if (go_together(r, first))
			queries += r->nqueries;
	queries = (queries + idle - 1) / idle;
	return queries < BATCH_QUERIES ? (uint32_t) queries : BATCH_QUERIES;
}

/*
 * Take a request off the queue, and all others that can run in its batch.
 * Returns the first one, and sets *nqueries to the batch's number of queries.
 */
static topk_request *
take_requests(gpuvec_scheduler *scheduler, topk_request **link, uint32_t *nqueries)
{
	topk_request *batch = *link;
	topk_request *last = batch;
	uint32_t	most = share_of(scheduler, batch);

	*link = batch->next;
	*nqueries = batch->nqueries;
	while (*link != NULL)
	{
		topk_request *r = *link;

		if (go_together(r, batch) && *nqueries + r->nqueries <= most)
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

/* True if a batch of a replica is alone, and better has all devices */
static bool
is_lone(const gpuvec_scheduler *scheduler, const topk_batch *batch)
{
	return scheduler->busy == 0 && scheduler->head == NULL && batch->nqueries == 1 &&
		scheduler->backend->copier->lone(scheduler->backend, batch->requests->view);
}

/*
 * Take the batch that is to run next, and make its replicas busy.  False:
 * nothing can start.
 */
static bool
take_batch(gpuvec_scheduler *scheduler, topk_batch *batch)
{
	topk_request **link = find_startable(scheduler);
	const gpuvec_copier *copier = scheduler->backend->copier;
	uint64_t	idle;

	if (link == NULL)
		return false;
	idle = (*link)->replicas & ~scheduler->busy;
	batch->requests = take_requests(scheduler, link, &batch->nqueries);
	batch->replicas = UINT64_MAX;
	batch->backend = scheduler->backend;
	if (idle != 0 && !is_lone(scheduler, batch))
	{
		int			replica = next_replica(scheduler, idle);

		batch->replicas = UINT64_C(1) << replica;
		batch->backend = copier->replica(scheduler->backend, replica);
	}
	scheduler->busy |= batch->replicas;
	return true;
}

/* Wake the owner of a request.  One that is done may be gone afterwards. */
static void
wake_owner(topk_request *r, bool done)
{
	pthread_mutex_lock(&r->mutex);
	r->done |= done;
	r->woken = true;
	pthread_cond_signal(&r->wake);
	pthread_mutex_unlock(&r->mutex);
}

/* Sleep until somebody wakes the owner; true: the request is done */
static bool
sleep_until_woken(topk_request *mine)
{
	bool		done;

	pthread_mutex_lock(&mine->mutex);
	while (!mine->woken)
		pthread_cond_wait(&mine->wake, &mine->mutex);
	mine->woken = false;
	done = mine->done;
	pthread_mutex_unlock(&mine->mutex);
	return done;
}

static bool
is_done(topk_request *mine)
{
	bool		done;

	pthread_mutex_lock(&mine->mutex);
	done = mine->done;
	pthread_mutex_unlock(&mine->mutex);
	return done;
}

/*
 * Wake a thread that can lead the next batch, if one can start.  The mutex is
 * held, so the request is still there.
 */
static void
pass_lead(gpuvec_scheduler *scheduler)
{
	if (find_startable(scheduler) == NULL)
		return;
	for (topk_request *r = scheduler->head; r != NULL; r = r->next)
		if (r->sleeps)
		{
			r->sleeps = false;
			wake_owner(r, false);
			return;
		}
}

/*
 * Search by the method that was asked for; AUTO: the cheapest.  By measures of
 * sparse vectors there is one method only.
 */
static bool
search(gpuvec_backend *backend, const topk_request *like, gpuvec_topk_query *queries,
	   uint32_t nqueries, gpuvec_error *error)
{
	if (like->overlaps)
		return backend->overlaps(backend, like->view, like->overlaps, error);
	if (like->method == GPUVEC_METHOD_AUTO && !like->scoring->sparse)
		return gpuvec_topk_by_cost(backend, like->view, like->scoring, queries, nqueries, error);
	return backend->topk(backend, like->view, like->scoring, like->method, queries, nqueries,
						 error);
}

/*
 * Run the requests of a batch in one call of the backend, and give each its
 * answers
 */
static bool
run_together(const topk_batch *batch, gpuvec_error *error)
{
	gpuvec_topk_query *queries = malloc(batch->nqueries * sizeof(*queries));
	uint32_t	n = 0;
	bool		ok;

	if (queries == NULL)
		return gpuvec_fail_memory(error, batch->nqueries * sizeof(*queries));
	for (topk_request *r = batch->requests; r != NULL; r = r->next)
	{
		memcpy(queries + n, r->queries, r->nqueries * sizeof(*queries));
		n += r->nqueries;
	}
	ok = search(batch->backend, batch->requests, queries, n, error);
	n = 0;
	for (topk_request *r = batch->requests; r != NULL; r = r->next)
		for (uint32_t i = 0; i < r->nqueries; i++, n++)
		{
			r->queries[i].matches = queries[n].matches;
			r->queries[i].nmatches = queries[n].nmatches;
			r->queries[i].counted = queries[n].counted;
			r->queries[i].groups = queries[n].groups;
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
 * alone, so that only those fail that must.  The mutex is held at call, and
 * not at return.
 */
static void
run_batch(gpuvec_scheduler *scheduler, const topk_batch *batch)
{
	uint64_t	start = gpuvec_clock_ns();
	gpuvec_error error;
	bool		together;

	scheduler->stats.batches++;
	scheduler->stats.queries += batch->nqueries;
	pass_lead(scheduler);
	pthread_mutex_unlock(&scheduler->mutex);
	gpuvec_fault_sleep("slow-batch", NULL);
	together = batch->requests->next != NULL && run_together(batch, &error);
	for (topk_request *r = batch->requests; r != NULL; r = r->next)
		r->ok = together || search(batch->backend, r, r->queries, r->nqueries, &r->error);
	pthread_mutex_lock(&scheduler->mutex);
	scheduler->stats.busy_ns += gpuvec_clock_ns() - start;
	scheduler->busy &= ~batch->replicas;
	for (const topk_request *r = batch->requests; r != NULL; r = r->next)
		scheduler->stats.errors += !r->ok;
	pass_lead(scheduler);
	pthread_mutex_unlock(&scheduler->mutex);
	for (topk_request *r = batch->requests, *next; r != NULL; r = next)
	{
		next = r->next;
		wake_owner(r, true);
	}
}

/*
 * If a fault asks for it, wait until so many requests are held back, or for a
 * second.  All of them are let go at once: several devices take what waits in
 * more than one batch.  The mutex is held at call and return.
 */
static void
hold_back(gpuvec_scheduler *scheduler, topk_request *mine)
{
	uint64_t	before = scheduler->releases;
	long		wanted = 0;

	if (!gpuvec_fault("together", &wanted))
		return;
	if (++scheduler->held >= wanted)
	{
		scheduler->held = 0;
		scheduler->releases++;
	}
	for (int ms = 0; ms < 1000 && !is_done(mine) && scheduler->releases == before; ms++)
	{
		pthread_mutex_unlock(&scheduler->mutex);
		usleep(1000);
		pthread_mutex_lock(&scheduler->mutex);
	}
	if (scheduler->releases == before)
		scheduler->held--;
}

/*
 * Lead batches, and sleep, until a request is done.  The mutex is held at
 * call, and not at return.
 */
static void
wait_for_answer(gpuvec_scheduler *scheduler, topk_request *mine)
{
	topk_batch	batch;
	bool		done = false;

	while (!done)
	{
		if (take_batch(scheduler, &batch))
		{
			run_batch(scheduler, &batch);
			done = is_done(mine);
		}
		else
		{
			mine->sleeps = true;
			pthread_mutex_unlock(&scheduler->mutex);
			done = sleep_until_woken(mine);
		}
		if (!done)
			pthread_mutex_lock(&scheduler->mutex);
	}
}

/* Put a request into the queue, and wait for its answer */
static bool
run_request(gpuvec_scheduler *scheduler, topk_request *mine, gpuvec_error *error)
{
	pthread_mutex_init(&mine->mutex, NULL);
	pthread_cond_init(&mine->wake, NULL);
	pthread_mutex_lock(&scheduler->mutex);
	if (scheduler->tail)
		scheduler->tail->next = mine;
	else
		scheduler->head = mine;
	scheduler->tail = mine;
	hold_back(scheduler, mine);
	wait_for_answer(scheduler, mine);
	pthread_cond_destroy(&mine->wake);
	pthread_mutex_destroy(&mine->mutex);
	if (!mine->ok)
		*error = mine->error;
	return mine->ok;
}

bool
gpuvec_scheduler_topk(gpuvec_scheduler *scheduler, const gpuvec_view *view,
					  const gpuvec_scoring *scoring, gpuvec_method method,
					  gpuvec_topk_query *queries, uint32_t nqueries, gpuvec_error *error)
{
	topk_request mine = {.view = view, .scoring = scoring, .method = method, .queries = queries,
		.nqueries = nqueries
	};
	const gpuvec_copier *copier = scheduler->backend->copier;

	if (copier)
		mine.replicas = copier->replicas(scheduler->backend, view, nqueries);
	return run_request(scheduler, &mine, error);
}

bool
gpuvec_scheduler_overlaps(gpuvec_scheduler *scheduler, const gpuvec_view *view,
						  gpuvec_overlaps *overlaps, gpuvec_error *error)
{
	topk_request mine = {.view = view, .nqueries = overlaps->n, .overlaps = overlaps};

	return run_request(scheduler, &mine, error);
}
