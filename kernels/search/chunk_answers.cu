/*-------------------------------------------------------------------------
 *
 * chunk_answers.cu
 *	  Waits for a chunk of queries, and turns its results into matches.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "kernels/search/chunk.h"

namespace gpuvec
{

/* True if all queries of the chunk are canceled */
bool
chunk_canceled(const struct chunk *c)
{
	for (uint32_t i = 0; i < c->n; i++)
		if (!is_canceled(chunk_query(c, i)->query))
			return false;
	return true;
}

/*
 * Wait for all queued kernels.  Looks at the cancellation flags from time to
 * time; if all queries are canceled, makes the kernels end early.  c: NULL if
 * there is no chunk yet; then waits for all.
 */
bool
wait_for_device(struct search *s, const struct chunk *c)
{
	struct search_backend *b = s->b;
	uint32_t spins = 0;
	cudaError_t rc;

	if (!s->check(cudaEventRecord(b->finished.get(), s->stream)))
		return false;
	while ((rc = cudaEventQuery(b->finished.get())) == cudaErrorNotReady)
	{
		spins++;
		if (spins < 2000)
			continue;
		if (spins % 64 == 0 && c != NULL && !s->stopped && chunk_canceled(c))
		{
			s->stopped = true;
			if (!s->check(cudaMemcpyAsync(b->stop.get(), b->stop_value.get(), sizeof(uint32_t),
										  cudaMemcpyHostToDevice, b->device.side_stream.get())))
				return false;
		}
		if (spins < 4000)
			sched_yield();
		else
		{
			struct timespec pause = {0, 20000};

			nanosleep(&pause, NULL);
		}
	}
	s->listing = false;
	return s->check(rc);
}

/*
 * After a chunk was stopped: reset the stop flag, so that the next chunk runs
 */
bool
clear_stop(struct search *s)
{
	struct search_backend *b = s->b;

	if (!s->stopped)
		return true;
	if (!s->check(cudaStreamSynchronize(b->device.side_stream.get())) ||
		!s->check(cudaMemsetAsync(b->stop.get(), 0, sizeof(uint32_t), s->stream)))
		return false;
	s->stopped = false;
	return true;
}

/*
 * After a failure: wait until nothing of this search runs, so that its memory
 * can be reused, and reset the stop flag.  s->error keeps the failure.
 */
void
quiet_device(struct search *s)
{
	gpuvec_error *error = s->error;
	gpuvec_error ignored;

	cudaStreamSynchronize(s->stream);
	s->error = &ignored;
	if (!clear_stop(s))
		s->b->device.broken = true;
	s->error = error;
}

/*
 * Queue the copy of a chunk's states and sorted lists to the host.  With
 * c->direct the last kernel has written them there.
 */
bool
queue_download(struct search *s, struct chunk *c)
{
	struct search_backend *b = s->b;
	size_t bytes = c->counters - c->results;
	size_t list = c->kmax <= GPUVEC_FAST_K ? 0 : sizeof(struct row_key) * c->kmax * c->n;

	if (c->direct)
		return true;
	if (!need_pinned(s, b->download, b->download_bytes, bytes + list) ||
		!s->check(cudaMemcpyAsync(b->download.get(), scratch_at<char>(s, c->results), bytes,
								  cudaMemcpyDeviceToHost, s->stream),
				  "copy results from the GPU"))
		return false;
	return list == 0 || s->check(cudaMemcpyAsync(b->download.get() + bytes,
												 scratch_at<char>(s, c->top[c->which]), list,
												 cudaMemcpyDeviceToHost, s->stream),
								 "copy results from the GPU");
}

/*
 * Turn one query's list of n keys into matches; `bits` of the keys tell the
 * mirror
 */
static void
decode_matches(gpuvec_topk_query *query, const struct row_key *list, uint32_t n, uint32_t bits)
{
	for (uint32_t i = 0; i < n; i++)
	{
		gpuvec_match *m = &query->matches[i];

		m->score = gpuvec_key_score(list[i].hi);
		m->tid = tid_of_key(list[i].lo, bits);
		m->common = (uint32_t) (list[i].lo & KEY_COMMON_MASK);
		m->padding = 0;
	}
	query->nmatches = n;
}

/* Decoding the results of a finished chunk, a task of several threads */
struct decoding
{
	const struct chunk *chunk;
	const struct query_state *states;
	const struct row_key *lists;
	uint32_t slice_queries;
	uint32_t partition_bits; /* of the keys */
};

/* Decode the results of slice_queries queries of a chunk */
static void
decode_slice(void *task, uint64_t slice, int)
{
	const struct decoding *d = (const struct decoding *) task;
	uint32_t from = (uint32_t) slice * d->slice_queries;

	for (uint32_t i = from; i < std::min(from + d->slice_queries, d->chunk->n); i++)
	{
		gpuvec_topk_query *query = chunk_query(d->chunk, i)->query;

		if (d->states[i].overflow)
			continue;
		decode_matches(query, d->lists + (size_t) i * d->chunk->kmax, d->states[i].ntop,
					   d->partition_bits);
		query->ranked_disjoint = d->chunk->gathered && d->states[i].disjoint;
	}
}

/* Take a finished chunk's results; note the queries that overflowed */
void
finish_chunk(struct search *s, const struct chunk *c)
{
	struct search_backend *b = s->b;
	const char *download = b->download.get();
	struct decoding d;
	uint32_t slices = (uint32_t) divide_up(c->n, s->policy.decode_queries);

	d.slice_queries = s->policy.decode_queries;
	d.partition_bits = s->view->partition_bits;
	d.chunk = c;
	d.states = (const struct query_state *) (download + (c->states - c->results));
	d.lists =
		(const struct row_key *) (c->kmax <= GPUVEC_FAST_K ? download
														   : download + (c->counters - c->results));
	b->stats.stopped_chunks += s->stopped;
	if (s->stopped)
	{
		for (uint32_t i = 0; i < c->n; i++)
			chunk_query(c, i)->query->nmatches = 0;
		return;
	}
	for (uint32_t i = 0; i < c->n; i++)
		if (d.states[i].overflow)
		{
			struct work_query *w = chunk_query(c, i);

			b->stats.cold_full += d.states[i].cold_full;
			w->bound = d.states[i].limits.bound;
			/* rows are not gathered again, so the least score holds */
			if (s->scoring.sparse && w->query->has_min_score &&
				gpuvec_score_key(w->query->min_score + 0.0) < w->bound.hi)
				w->bound = {gpuvec_score_key(w->query->min_score + 0.0), ~UINT64_C(0)};
			b->stats.direct_overflows += c->direct;
			s->overflowed[s->noverflowed++] = (uint32_t) (w - s->work);
		}
	if (b->pool && slices > 1 && (uint64_t) c->n * c->kmax >= s->policy.decode_rows)
		gpuvec_thread_pool_run(b->pool, decode_slice, &d, slices);
	else
		for (uint32_t i = 0; i < slices; i++)
			decode_slice(&d, i, 0);
}

} // namespace gpuvec
