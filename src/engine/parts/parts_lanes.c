/*-------------------------------------------------------------------------
 *
 * parts_lanes.c
 *	  Searches of devices each of which has all rows of a view.
 *
 * The scheduler gives each lane a batch of its own.  If copies are taken away
 * meanwhile, or the device fails for lack of memory, the search is one of all
 * devices: the answer is the same.
 *
 * A large batch is one of all devices: each searches a slice of it.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "engine/parts/parts.h"

/*
 * A search that is alone gets all devices if its view has so many rows: asking
 * several takes longer than searching fewer
 */
#define LONE_ROWS		(UINT64_C(1) << 18)

static bool
lane_topk(gpuvec_backend *backend, const gpuvec_view *view, const gpuvec_scoring *scoring,
		  gpuvec_method method, gpuvec_topk_query *queries, uint32_t nqueries,
		  gpuvec_error *error)
{
	parts_lane *lane = (parts_lane *) backend;
	gpuvec_view *copy = parts_copy_on(lane->parts, view, lane->number);
	bool		ok = copy != NULL &&
		parts_search_child(lane->parts, lane->number, copy, scoring, method, queries, nqueries,
						   error);

	if (!ok && (copy == NULL || gpuvec_lacks_memory(error)))
		ok = parts_topk(&lane->parts->base, view, scoring, method, queries, nqueries, error);
	gpuvec_view_unref(copy);
	return ok;
}

/* A batch, a slice of which is searched by each copy */
typedef struct batch_slices
{
	parts_backend *parts;
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
	s->ok[number] = parts_search_child(s->parts, s->child[number], s->copy[number], s->scoring,
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

	gpuvec_thread_pool_run(s->parts->pool, search_slice, s, (uint64_t) s->n);
	for (int i = 0; i < s->n; i++)
		if (!s->ok[i] && (ok || (s->error[i].fatal && !error->fatal)))
		{
			*error = s->error[i];
			ok = false;
		}
	if (!ok)
		parts_empty_answers(s->queries, s->nqueries);
	return ok;
}

bool
parts_search_copies(parts_backend *parts, const gpuvec_view *view, const gpuvec_scoring *scoring,
					gpuvec_method method, gpuvec_topk_query *queries, uint32_t nqueries,
					bool *ok, gpuvec_error *error)
{
	batch_slices *s;
	bool		done;

	if (nqueries < 2 * SPLIT_QUERIES || !parts_has_copies(&parts->base, view))
		return false;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return false;
	s->parts = parts;
	s->scoring = scoring;
	s->method = method;
	s->queries = queries;
	s->nqueries = nqueries;
	for (int i = 0; i < parts->ndevices; i++)
		if ((s->copy[s->n] = parts_copy_on(parts, view, i)) != NULL)
			s->child[s->n++] = i;
	*ok = s->n > 0 && search_slices(s, error);
	/* a device without memory: by parts, some of which move elsewhere */
	done = *ok || (s->n > 0 && !gpuvec_lacks_memory(error));
	for (int i = 0; i < s->n; i++)
		gpuvec_view_unref(s->copy[i]);
	free(s);
	return done;
}

static gpuvec_backend *
get_lane(gpuvec_backend *backend, int number)
{
	return &((parts_backend *) backend)->children[number].lane.base;
}

static bool
is_lone(gpuvec_backend *backend, const gpuvec_view *view)
{
	(void) backend;
	return view->nrows >= LONE_ROWS && ((const parts_view *) view->device)->n > 1;
}

void
parts_lanes_init(parts_backend *parts)
{
	for (int i = 0; i < parts->n; i++)
	{
		parts_lane *lane = &parts->children[i].lane;

		lane->base = parts->base;
		lane->base.topk = lane_topk;
		lane->base.is_lane = true;
		lane->parts = parts;
		lane->number = i;
	}
}

const gpuvec_copier gpuvec_parts_copier = {
	.lanes = parts_lanes,
	.lane = get_lane,
	.lone = is_lone,
	.wanted = parts_wanted,
	.copy = parts_copy,
	.has_copies = parts_has_copies,
	.bytes = parts_copies_bytes,
	.take = parts_take_copies,
	.free_copies = parts_free_copies
};
