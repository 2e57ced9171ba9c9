/*-------------------------------------------------------------------------
 *
 * nearest.cu
 *	  Finds the vectors nearest to queries, by brute force.
 *
 * Rows whose scores (near_scores.cu) are within the bound become candidates
 * of their query.  The bound is known only when some rows have been scored,
 * so the table is scored in rounds.  After each round near_best.cu keeps each
 * query's best k candidates, in the order (score descending, key ascending,
 * tid ascending), and their bound.  The first round has no more rows than
 * there is room for candidates.  A later round has as many rows as would fill
 * half of the room if the rows were in random order.  If the room does not
 * suffice, the round is repeated with fewer rows.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <math.h>
#include <stdlib.h>

#include "kernels/embedding/nearest.cuh"

namespace gpuvec
{

/* Queries per batch, at most */
#define MOST_QUERIES 4096

/* A batch of queries that is being served */
struct near_batch
{
	struct cuda_embedding &e;
	staged_stream &stream;
	const gpuvec_device_bank *bank;
	gpuvec_slot_search *search;
	uint32_t first; /* number of its first query */
	uint32_t nqueries;
	uint32_t capacity;
	struct near_params params;
	struct near_query *states; /* [nqueries], after the last round */
	struct near_query *after;  /* [nqueries], after the current round */
	unique_memory memory;
};

/* Copy the flags of live slots to the device, if they have changed */
static bool
send_live(struct cuda_embedding &e, staged_stream &stream, gpuvec_device_bank *bank,
		  const gpuvec_slot_search *search, gpuvec_error *error)
{
	std::lock_guard<std::mutex> guard(bank->mutex);

	if (bank->live_version == search->version)
		return true;
	bank->live_version = 0;
	if (!e.send(stream, bank->arrays.live, search->live, search->nlive, error) ||
		!e.finish(stream, error))
		return false;
	bank->live_version = search->version;
	return true;
}

/* Number of candidates to make room for, for one query */
static uint32_t
choose_capacity(const struct embedding_policy &policy, const gpuvec_slot_search *search)
{
	uint64_t more = std::max(search->k, policy.more_candidates);

	return (uint32_t) std::min((uint64_t) search->nlive, search->k + more);
}

/* Queries per batch */
static uint32_t
choose_batch(const struct embedding_policy &policy, const gpuvec_slot_search *search)
{
	size_t bytes = (size_t) choose_capacity(policy, search) * (sizeof(uint32_t) + sizeof(double));

	return (uint32_t) std::min(
		(size_t) search->nqueries,
		std::min(std::max(policy.candidate_bytes / bytes, (size_t) 1), (size_t) MOST_QUERIES));
}

/* Cut memory into the arrays of a batch */
static void
take_batch(struct arena *arena, struct near_batch *batch)
{
	struct near_params *p = &batch->params;

	p->queries = arena->take<double>((size_t) p->padded_width * (batch->nqueries + QUERIES - 1));
	p->states = arena->take<struct near_query>(batch->nqueries);
	p->slots = arena->take<uint32_t>((uint64_t) batch->nqueries * batch->capacity);
	p->scores = arena->take<double>((uint64_t) batch->nqueries * batch->capacity);
	p->best_slots = arena->take<uint32_t>((uint64_t) batch->nqueries * p->k);
	p->best_scores = arena->take<double>((uint64_t) batch->nqueries * p->k);
}

/* Allocate the device memory of a batch */
static bool
allocate_batch(struct near_batch *batch, gpuvec_error *error)
{
	struct arena arena = {NULL, 0};

	take_batch(&arena, batch);
	if (!batch->e.allocate(batch->memory, batch->stream, arena.used, "a search", error))
		return false;
	arena = {(char *) batch->memory.get(), 0};
	take_batch(&arena, batch);
	return true;
}

/* Send the queries of a batch, as float64 */
static bool
send_queries(struct near_batch *batch, gpuvec_error *error)
{
	const gpuvec_slot_search *search = batch->search;
	uint32_t width = batch->bank->width;
	uint32_t padded = batch->params.padded_width;
	/* the last query is repeated to fill the last tile */
	uint32_t n = batch->nqueries == 1 ? 1 : (batch->nqueries + QUERIES - 1) / QUERIES * QUERIES;
	double *queries = (double *) calloc((size_t) n * padded, sizeof(double));
	bool ok;

	if (queries == NULL)
		return gpuvec_fail_memory(error, (size_t) n * padded * sizeof(double));
	for (uint32_t i = 0; i < n; i++)
	{
		size_t from = batch->first + (size_t) std::min(i, batch->nqueries - 1);

		for (uint32_t j = 0; j < width; j++)
			queries[(size_t) i * padded + j] = search->queries[from * width + j];
	}
	ok = batch->e.send(batch->stream, (double *) batch->params.queries, queries,
					   (size_t) n * padded * sizeof(double), error);
	free(queries);
	return ok;
}

/* Send the states of the queries */
static bool
send_states(struct near_batch *batch, gpuvec_error *error)
{
	return batch->e.send(batch->stream, batch->params.states, batch->states,
						 batch->nqueries * sizeof(struct near_query), error);
}

/*
 * Score n slots from `first` on, and keep the best rows.  *overflow: there
 * was not enough room for candidates, and the states are as before.
 */
static bool
run_round(struct near_batch *batch, uint32_t first, uint32_t n, bool *overflow, gpuvec_error *error)
{
	static const char *const what = "search vectors on the GPU";
	struct near_params *p = &batch->params;
	struct cuda_embedding &e = batch->e;
	staged_stream &stream = batch->stream;
	struct near_query *swap = batch->states;

	p->first = first;
	p->end = first + n;
	if (!e.device.check(near_score(batch->bank->storage, batch->search->metric, p, stream.get()),
						what, error) ||
		!e.fetch(stream, batch->after, p->states, batch->nqueries * sizeof(struct near_query),
				 error) ||
		!e.finish(stream, error))
		return false;
	*overflow = false;
	for (uint32_t i = 0; i < batch->nqueries; i++)
		*overflow |= batch->after[i].count > batch->capacity;
	if (*overflow)
		return send_states(batch, error);
	batch->states = batch->after;
	batch->after = swap;
	if (!e.device.check(near_select(*p, stream.get()), what, error) ||
		!e.fetch(stream, batch->states, p->states, batch->nqueries * sizeof(struct near_query),
				 error))
		return false;
	return e.finish(stream, error);
}

/* Number of rows of the next round, when `done` rows have been scored */
static uint32_t
next_round(const struct near_batch *batch, uint32_t done)
{
	uint32_t left = batch->search->nlive - done;
	uint32_t sure = batch->capacity - batch->params.k;
	double growth = exp(std::min(sure / 2.0 / batch->params.k, 40.0)) - 1;

	if (done == 0)
		return std::min(left, batch->capacity);
	return (uint32_t) std::min((double) left, std::max((double) sure, done * growth));
}

/* Copy the best rows of a batch to the caller's arrays */
static bool
fetch_best(struct near_batch *batch, gpuvec_error *error)
{
	struct near_params *p = &batch->params;
	gpuvec_slot_search *search = batch->search;
	uint64_t n = (uint64_t) batch->nqueries * p->k;
	uint64_t to = (uint64_t) batch->first * p->k;
	const uint64_t most = batch->e.policy.pinned_bytes / sizeof(double);

	for (uint32_t i = 0; i < batch->nqueries; i++)
		search->counts[batch->first + i] = batch->states[i].count;
	if (!batch->e.device.check(near_collect(*p, batch->stream.get()), "search vectors on the GPU",
							   error))
		return false;
	for (uint64_t at = 0; at < n; at += most)
	{
		uint64_t chunk = std::min(most, n - at);

		if (!batch->e.fetch(batch->stream, search->slots + to + at, p->best_slots + at,
							chunk * sizeof(uint32_t), error) ||
			!batch->e.finish(batch->stream, error) ||
			!batch->e.fetch(batch->stream, search->scores + to + at, p->best_scores + at,
							chunk * sizeof(double), error) ||
			!batch->e.finish(batch->stream, error))
			return false;
	}
	return true;
}

/* Serve a batch whose memory is allocated */
static bool
run_batch(struct near_batch *batch, gpuvec_error *error)
{
	const gpuvec_slot_search *search = batch->search;
	uint32_t done = 0;
	uint32_t limit = UINT32_MAX;

	for (uint32_t i = 0; i < batch->nqueries; i++)
		batch->states[i].square = search->squares[batch->first + i];
	if (!send_queries(batch, error) || !send_states(batch, error))
		return false;
	while (done < search->nlive && !is_canceled(search->canceled))
	{
		uint32_t n = std::min(next_round(batch, done), limit);
		bool overflow;

		if (!run_round(batch, done, n, &overflow, error))
			return false;
		if (overflow)
			limit = batch->capacity - batch->params.k;
		else
		{
			done += n;
			limit = limit > UINT32_MAX / 2 ? UINT32_MAX : limit * 2;
		}
	}
	return is_canceled(search->canceled) || fetch_best(batch, error);
}

/* The kernels' parameters for a batch, without the memory of the batch */
static struct near_params
describe_batch(const gpuvec_device_bank *bank, const gpuvec_slot_search *search, uint32_t nqueries,
			   uint32_t capacity)
{
	struct near_params p = {};

	p.elements = bank->arrays.elements;
	p.keys = bank->arrays.keys;
	p.tids = bank->arrays.tids;
	p.live = bank->arrays.live;
	p.stride_bytes = bank->stride_bytes;
	p.width = bank->width;
	p.padded_width = (bank->width + LANES - 1) / LANES * LANES;
	p.nqueries = nqueries;
	p.capacity = capacity;
	p.k = search->k;
	return p;
}

/* Serve some queries */
static bool
search_batch(struct cuda_embedding &e, staged_stream &stream, const gpuvec_device_bank *bank,
			 gpuvec_slot_search *search, uint32_t first, uint32_t nqueries, gpuvec_error *error)
{
	uint32_t capacity = choose_capacity(e.policy, search);
	struct near_query *states =
		(struct near_query *) calloc(2 * (size_t) nqueries, sizeof(*states));
	bool ok;

	if (states == NULL)
		return gpuvec_fail_memory(error, 2 * nqueries * sizeof(*states));

	struct near_batch batch = {e,        stream,
							   bank,     search,
							   first,    nqueries,
							   capacity, describe_batch(bank, search, nqueries, capacity),
							   states,   states + nqueries,
							   {}};

	ok = allocate_batch(&batch, error) && run_batch(&batch, error);
	free(states);
	return ok;
}

bool
nearest_request(gpuvec_vectors *vectors, gpuvec_device_bank *bank, gpuvec_slot_search *search,
				gpuvec_error *error)
{
	struct cuda_embedding &e = embedding_of(vectors);
	worker_loan worker = e.take_worker(error);
	uint32_t most = choose_batch(e.policy, search);
	bool ok;

	if (!worker)
		return false;
	ok = send_live(e, worker->streams[0], bank, search, error);
	for (uint32_t first = 0; ok && first < search->nqueries && !is_canceled(search->canceled);
		 first += most)
		ok = search_batch(e, worker->streams[0], bank, search, first,
						  std::min(most, search->nqueries - first), error);
	return worker->finish(ok, error);
}

} // namespace gpuvec
