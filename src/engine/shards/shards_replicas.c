/*-------------------------------------------------------------------------
 *
 * shards_replicas.c
 *	  Searches of a view: by devices each of which has all its rows, or by
 *	  its shards.
 *
 * The scheduler gives each replica a batch of its own.  If copies are taken
 * away meanwhile, or the device fails for lack of memory, the search is one of
 * all devices: the answer is the same.
 *
 * A large batch is one of all devices: each searches a slice of it.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "engine/shards/shards.h"

/*
 * A search that is alone gets all devices if its view has so many rows: asking
 * several takes longer than searching fewer
 */
#define LONE_ROWS		(UINT64_C(1) << 18)

/* ---- batches ---- */

/* A batch, a slice of which is searched by each copy */
typedef struct batch_slices
{
	shards_backend *shards;
	const gpuvec_scoring *scoring;
	gpuvec_method method;
	gpuvec_topk_query *queries;
	uint32_t	nqueries;
	int			n;
	int			child[GPUVEC_MAX_DEVICES];	/* [n] */
	gpuvec_view *copy[GPUVEC_MAX_DEVICES];	/* [n] with references */
	bool		ok[GPUVEC_MAX_DEVICES];
	gpuvec_error error[GPUVEC_MAX_DEVICES];
} batch_slices;

/* Search a slice; called by a thread of the pool */
static void
search_slice(void *arg, uint64_t number, int thread)
{
	batch_slices *s = arg;
	uint32_t	from = (uint32_t) (s->nqueries * number / (uint64_t) s->n);
	uint32_t	end = (uint32_t) (s->nqueries * (number + 1) / (uint64_t) s->n);

	(void) thread;
	s->ok[number] = shards_search_child(s->shards, s->child[number], s->copy[number], s->scoring,
										s->method, s->queries + from, end - from,
										&s->error[number]);
}

/*
 * Search all slices; the first error, one that ends the engine before others
 */
static bool
search_slices(batch_slices *s, gpuvec_error *error)
{
	bool		ok = true;

	gpuvec_thread_pool_run(s->shards->pool, search_slice, s, (uint64_t) s->n);
	for (int i = 0; i < s->n; i++)
		if (!s->ok[i] && (ok || (s->error[i].fatal && !error->fatal)))
		{
			*error = s->error[i];
			ok = false;
		}
	if (!ok)
		shards_empty_answers(s->queries, s->nqueries);
	return ok;
}

/*
 * Search a large batch by the copies of a view, each a part of it.  Sets *ok,
 * or returns false: there are not several, or the batch is small.
 */
static bool
search_copies(shards_backend *shards, const gpuvec_view *view, const gpuvec_scoring *scoring,
			  gpuvec_method method, gpuvec_topk_query *queries, uint32_t nqueries,
			  bool *ok, gpuvec_error *error)
{
	batch_slices *s;
	bool		done;

	if (nqueries < 2 * SPLIT_QUERIES || !shards_has_copies(&shards->base, view))
		return false;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return false;
	s->shards = shards;
	s->scoring = scoring;
	s->method = method;
	s->queries = queries;
	s->nqueries = nqueries;
	for (int i = 0; i < shards->ndevices; i++)
		if ((s->copy[s->n] = shards_copy_on(shards, view, i)) != NULL)
			s->child[s->n++] = i;
	*ok = s->n > 0 && search_slices(s, error);
	/* a device without memory: by shards, some of which move elsewhere */
	done = *ok || (s->n > 0 && !gpuvec_lacks_memory(error));
	for (int i = 0; i < s->n; i++)
		gpuvec_view_unref(s->copy[i]);
	free(s);
	return done;
}

bool
shards_topk(gpuvec_backend *backend, const gpuvec_view *view, const gpuvec_scoring *scoring,
			gpuvec_method method, gpuvec_topk_query *queries, uint32_t nqueries,
			gpuvec_error *error)
{
	shards_backend *shards = (shards_backend *) backend;
	bool		ok;

	shards_empty_answers(queries, nqueries);
	if (nqueries == 0)
		return true;
	return search_copies(shards, view, scoring, method, queries, nqueries, &ok, error) ? ok :
		shards_search_divided(shards, view->device, scoring, method, queries, nqueries, error);
}

/* ---- replicas ---- */

static bool
replica_topk(gpuvec_backend *backend, const gpuvec_view *view, const gpuvec_scoring *scoring,
			 gpuvec_method method, gpuvec_topk_query *queries, uint32_t nqueries,
			 gpuvec_error *error)
{
	shards_replica *replica = (shards_replica *) backend;
	gpuvec_view *copy = shards_copy_on(replica->shards, view, replica->number);
	bool		ok = copy != NULL &&
		shards_search_child(replica->shards, replica->number, copy, scoring, method, queries, nqueries,
							error);

	if (!ok && (copy == NULL || gpuvec_lacks_memory(error)))
		ok = shards_topk(&replica->shards->base, view, scoring, method, queries, nqueries, error);
	gpuvec_view_unref(copy);
	return ok;
}

static gpuvec_backend *
get_replica(gpuvec_backend *backend, int number)
{
	return &((shards_backend *) backend)->children[number].replica.base;
}

static bool
is_lone(gpuvec_backend *backend, const gpuvec_view *view)
{
	(void) backend;
	return view->nrows >= LONE_ROWS && ((const shards_view *) view->device)->n > 1;
}

void
shards_replicas_init(shards_backend *shards)
{
	for (int i = 0; i < shards->n; i++)
	{
		shards_replica *replica = &shards->children[i].replica;

		replica->base = shards->base;
		replica->base.topk = replica_topk;
		replica->base.is_replica = true;
		replica->shards = shards;
		replica->number = i;
	}
}

const gpuvec_copier gpuvec_shards_copier = {
	.replicas = shards_replicas,
	.replica = get_replica,
	.lone = is_lone,
	.wanted = shards_wanted,
	.copy = shards_copy,
	.has_copies = shards_has_copies,
	.bytes = shards_copies_bytes,
	.take = shards_take_copies,
	.free_copies = shards_free_copies
};
