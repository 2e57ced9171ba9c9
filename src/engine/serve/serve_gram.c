/*-------------------------------------------------------------------------
 *
 * serve_gram.c
 *	  The Gram matrix of a table of factors, for sessions that fold in users.
 *
 * It is made when the first session asks for it, of all live rows of the
 * mirror in the order of their keys, and kept with them until rows are
 * published.  It holds for a session that sees all of these rows.  The mirror
 * is as fresh as the session needs it, so these are all rows that the session
 * sees.
 *
 * What is kept, at most 8 MB with a mirror, is charged to the engine's budget.
 * If it does not fit, the matrix is made again for the next session.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/als/gram.h"
#include "engine/embedding/embedding_mirror.h"
#include "engine/embedding/embedding_query.h"
#include "engine/serve/serve_gram.h"

/* Bytes of vectors that are copied at a time */
#define ROUND_BYTES		((uint64_t) 16 * 1024 * 1024)

/* A matrix that is being made */
typedef struct gram_run
{
	const gpuvec_embedding_table *table;
	const gpuvec_bank *bank;
	gpuvec_thread_pool *pool;
	gpuvec_key_slot *slots;		/* [n], by key */
	uint64_t	n;
	uint32_t	stride;
	uint64_t	round;			/* rows that are copied at a time */
	float	   *rows;			/* [round * stride] */
	float	   *chunks;			/* for gpuvec_gram_add() */
	double	   *sum;			/* [stride * stride] */
	bool		usable;			/* so far all elements are */
} gram_run;

static void
free_run(gram_run *run)
{
	free(run->slots);
	free(run->rows);
	free(run->chunks);
	free(run->sum);
}

/* Allocate the arrays of a run, which are at least 64 bytes aligned */
static bool
make_room(gram_run *run, gpuvec_error *error)
{
	size_t		square = (size_t) run->stride * run->stride;
	uint64_t	nchunks = ROUND_BYTES / (GPUVEC_GRAM_CHUNK * run->stride * sizeof(float)) + 1;
	size_t		chunk_bytes = nchunks * square * sizeof(float);
	size_t		row_bytes;

	run->round = nchunks * GPUVEC_GRAM_CHUNK;
	row_bytes = run->round * run->stride * sizeof(float);
	run->rows = aligned_alloc(64, row_bytes);
	run->chunks = aligned_alloc(64, chunk_bytes);
	run->sum = calloc(square, sizeof(double));
	return (run->rows && run->chunks && run->sum) ||
		gpuvec_fail_memory(error, row_bytes + chunk_bytes);
}

/* Add up all rows */
static bool
add_rows(gram_run *run, gpuvec_error *error)
{
	for (uint64_t from = 0; from < run->n && run->usable; from += run->round)
	{
		uint64_t	n = run->n - from < run->round ? run->n - from : run->round;

		if (!gpuvec_copy_vectors(run->table, run->bank, run->slots + from, n, run->stride,
								 run->rows, error))
			return false;
		for (uint64_t i = 0; i < n * run->stride; i++)
			run->usable &= fabsf(run->rows[i]) <= GPUVEC_ALS_MAX_ELEMENT;
		gpuvec_gram_add(run->pool, run->rows, n, run->stride, run->chunks, run->sum);
	}
	return true;
}

/* A matrix without the padding of factors; unless fit, that there is none */
static gpuvec_gram *
copy_gram(const gram_run *run, bool fit, gpuvec_error *error)
{
	uint32_t	width = fit ? run->bank->width : 0;
	size_t		bytes = sizeof(gpuvec_gram) + (size_t) width * width * sizeof(double);
	gpuvec_gram *gram = malloc(bytes);

	if (gram == NULL)
	{
		gpuvec_fail_memory(error, bytes);
		return NULL;
	}
	gram->store = NULL;
	gram->bytes = bytes;
	gram->fit = fit;
	gram->width = width;
	for (size_t i = 0; i < width; i++)
		memcpy(gram->elements + i * width, run->sum + i * run->stride, width * sizeof(double));
	return gram;
}

/* Make the matrix of a table; NULL, with *error, on failure */
static gpuvec_gram *
make_gram(const gpuvec_embedding_table *table, gpuvec_thread_pool *pool, gpuvec_error *error)
{
	gram_run	run = {.table = table, .bank = gpuvec_only_bank(table), .pool = pool};
	gpuvec_gram *gram = NULL;
	bool		distinct = true;
	bool		ok = true;

	run.usable = run.bank && run.bank->width >= 1 && run.bank->width <= GPUVEC_ALS_MAX_FACTORS;
	if (run.usable)
	{
		run.stride = gpuvec_als_stride(run.bank->width);
		run.slots = gpuvec_slots_by_key(run.bank, &run.n, &distinct, error);
		ok = run.slots && make_room(&run, error) && add_rows(&run, error);
	}
	if (ok)
		gram = copy_gram(&run, run.usable && distinct, error);
	free_run(&run);
	return gram;
}

/* Charge a matrix, so that it can be kept; false if it does not fit */
static bool
charge_gram(gpuvec_gram *gram, gpuvec_store *store)
{
	gpuvec_error ignored;

	if (!gpuvec_store_reserve(store, gram->bytes, &ignored))
		return false;
	gram->store = store;
	return true;
}

/* Set the answer to a copy of the matrix */
static bool
put_gram(const gpuvec_gram *gram, gpuvec_gram_query *q, gpuvec_error *error)
{
	if (!gram->fit)
	{
		q->answer.status = GPUVEC_EMBEDDING_UNFIT;
		return true;
	}
	q->answer.width = gram->width;
	q->answer.count = (uint64_t) gram->width * gram->width;
	q->body_size = q->answer.count * sizeof(double);
	q->body = malloc(q->body_size);
	if (q->body == NULL)
		return gpuvec_fail_memory(error, q->body_size);
	memcpy(q->body, gram->elements, q->body_size);
	return true;
}

/*
 * Answer with the matrix, and keep it if that fits.  The caller holds the
 * table's lock; the store's mutex may be taken below it.
 */
static bool
answer_gram(gpuvec_embedding_table *table, gpuvec_thread_pool *pool, gpuvec_gram_query *q,
			gpuvec_error *error)
{
	gpuvec_gram *gram;
	bool		kept;
	bool		ok;

	pthread_mutex_lock(&table->gram_mutex);
	gram = table->gram;
	kept = gram != NULL;
	if (!kept)
		gram = make_gram(table, pool, error);
	if (gram && !kept && charge_gram(gram, q->store))
	{
		table->gram = gram;
		kept = true;
	}
	pthread_mutex_unlock(&table->gram_mutex);
	if (gram == NULL)
		return false;
	ok = put_gram(gram, q, error);
	if (!kept)
		gpuvec_gram_free(gram);
	return ok;
}

bool
gpuvec_gram_run(gpuvec_embedding_table *table, gpuvec_thread_pool *pool, void *query,
				gpuvec_error *error)
{
	gpuvec_gram_query *q = query;
	bool		ok = true;

	pthread_rwlock_rdlock(&table->lock);
	q->answer.state = table->state;
	q->answer.status = GPUVEC_EMBEDDING_STALE;
	if (table->state.state == GPUVEC_READY && table->state.checked >= q->head.position)
	{
		ok = gpuvec_all_rows_seen(table, q, error);
		if (ok && q->answer.status == GPUVEC_EMBEDDING_DONE)
			ok = answer_gram(table, pool, q, error);
	}
	pthread_rwlock_unlock(&table->lock);
	return ok;
}
