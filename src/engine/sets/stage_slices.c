/*-------------------------------------------------------------------------
 *
 * stage_slices.c
 *	  Staged rows in slices, which several threads visit and rewrite.
 *
 * A slice is a chunk of rows.  The slices of a stage are in the order of its
 * rows.  Rewriting replaces the ids of each row by as many others.  So a row
 * stays in its class, and in its place there, and what comes out does not
 * depend on which thread rewrites which slice.
 *
 * Rows get longer or shorter, by how many of their ids are cold.  A thread
 * writes the rows of a chunk to memory of its own, and from there into the
 * chunk, if they fit.  Else into a new chunk, which takes the place of the
 * old one.  So a stage whose rows get shorter, as they mostly do, needs no
 * other memory.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdlib.h>

#include "engine/sets/first_error.h"
#include "engine/sets/stage_layout.h"

/* The chunks of all rows, in their order; returns how many */
static uint64_t
list_chunks(const gpuvec_stage *stage, gpuvec_stage_slice *slices)
{
	uint64_t	n = 0;

	for (int class = 0; class < NCLASSES; class++)
		for (stage_chunk *chunk = stage->classes[class].first; chunk; chunk = chunk->next)
		{
			gpuvec_stage_slice slice = {.chunk = chunk, .in_class = class};

			if (slices != NULL)
				slices[n] = slice;
			n++;
		}
	return n;
}

gpuvec_stage_slice *
gpuvec_stage_slices(const gpuvec_stage *stage, uint64_t *n, gpuvec_error *error)
{
	gpuvec_stage_slice *slices;

	*n = stage->spread ? list_chunks(stage, NULL) : 1;
	slices = calloc(*n + 1, sizeof(*slices));
	if (slices == NULL)
		gpuvec_fail_memory(error, *n * sizeof(*slices));
	else if (stage->spread)
		list_chunks(stage, slices);
	return slices;
}

/* Visit the rows of a stage that has few */
static bool
visit_first(const gpuvec_stage *stage, gpuvec_row_visitor visit, void *arg, gpuvec_error *error)
{
	for (uint64_t i = 0; i < stage->nrows; i++)
		if (!visit(arg, &stage->first[i], error))
			return false;
	return true;
}

bool
gpuvec_stage_visit_slice(const gpuvec_stage *stage, const gpuvec_stage_slice *slice,
						 gpuvec_row_visitor visit, void *arg, gpuvec_error *error)
{
	gpuvec_source_row row;

	if (slice->chunk == NULL)
		return visit_first(stage, visit, arg, error);
	for (size_t offset = 0; offset < slice->chunk->used;)
	{
		offset += read_row(slice->chunk->data + offset, &row, stage->kind);
		if (!visit(arg, &row, error))
			return false;
	}
	return true;
}

bool
gpuvec_stage_visit(const gpuvec_stage *stage, gpuvec_row_visitor visit, void *arg,
				   gpuvec_error *error)
{
	uint64_t	n;
	gpuvec_stage_slice *slices = gpuvec_stage_slices(stage, &n, error);
	bool		ok = slices != NULL;

	for (uint64_t i = 0; ok && i < n; i++)
		ok = gpuvec_stage_visit_slice(stage, &slices[i], visit, arg, error);
	free(slices);
	return ok;
}

bool
gpuvec_stage_is_spread(const gpuvec_stage *stage)
{
	return stage->spread;
}

/* Memory that a thread writes rows to */
typedef struct rewrite_scratch
{
	char	   *memory;
	size_t		bytes;
} rewrite_scratch;

/* What rewriting passes to the threads of the pool */
typedef struct rewriting
{
	gpuvec_stage *stage;
	gpuvec_stage_slice *slices; /* of this run */
	gpuvec_row_rewriter rewrite;
	void	   *arg;
	rewrite_scratch *scratches; /* [threads] */
	uint64_t	ncold;			/* atomic; what all rewritten rows have */
	size_t		estimate;		/* atomic */
	pthread_mutex_t mutex;		/* guards the stage's memory */
	gpuvec_first_error first;
} rewriting;

/*
 * Make room for the rows of a chunk.  With cold ids only, none is more than
 * twice as long; values stay as long as they are.
 */
static bool
reserve_scratch(rewrite_scratch *scratch, const stage_chunk *chunk, gpuvec_error *error)
{
	if (scratch->bytes >= chunk->used * 2)
		return true;
	free(scratch->memory);
	scratch->bytes = chunk->used * 2;
	scratch->memory = malloc(scratch->bytes);
	if (scratch->memory != NULL)
		return true;
	scratch->bytes = 0;
	return gpuvec_fail_memory(error, chunk->used * 2);
}

/* Write a chunk's rows, with other ids, to a room; returns their bytes */
static size_t
rewrite_rows(rewriting *r, const stage_chunk *chunk, int thread)
{
	gpuvec_row_kind kind = r->stage->kind;
	char	   *to = r->scratches[thread].memory;
	uint64_t	ncold = 0;
	size_t		estimate = 0;

	for (size_t offset = 0; offset < chunk->used;)
	{
		gpuvec_source_row row;
		gpuvec_source_row rewritten;

		offset += read_row(chunk->data + offset, &row, kind);
		rewritten = row;
		r->rewrite(r->arg, thread, &row, &rewritten);
		to += write_row((staged_row *) to, &rewritten, kind);
		ncold += rewritten.ncold;
		estimate += segment_bytes(&rewritten, kind);
	}
	__atomic_add_fetch(&r->ncold, ncold, __ATOMIC_RELAXED);
	__atomic_add_fetch(&r->estimate, estimate, __ATOMIC_RELAXED);
	return (size_t) (to - r->scratches[thread].memory);
}

/* Replace a chunk by one of its own memory */
static bool
replace_chunk(rewriting *r, gpuvec_stage_slice *slice, size_t bytes, gpuvec_error *error)
{
	stage_chunk *old = slice->chunk;
	stage_chunk *chunk = malloc(sizeof(*chunk) + bytes);

	if (chunk == NULL)
		return gpuvec_fail_memory(error, bytes);
	*chunk = (stage_chunk)
	{
		.size = bytes, .nrows = old->nrows, .begins_run = old->begins_run
	};
	slice->chunk = chunk;
	old->next = NULL;
	pthread_mutex_lock(&r->mutex);
	r->stage->bytes += sizeof(*chunk) + bytes;
	gpuvec_stage_free_chunks(r->stage, old);
	pthread_mutex_unlock(&r->mutex);
	return true;
}

/* Rewrite a slice; called by a thread of the pool */
static void
rewrite_slice(void *arg, uint64_t i, int thread)
{
	rewriting  *r = arg;
	gpuvec_stage_slice *slice = &r->slices[i];
	rewrite_scratch *scratch = &r->scratches[thread];
	gpuvec_error error;
	size_t		bytes;

	if (gpuvec_first_error_is_set(&r->first))
		return;
	if (reserve_scratch(scratch, slice->chunk, &error))
	{
		bytes = rewrite_rows(r, slice->chunk, thread);
		if (bytes <= slice->chunk->size || replace_chunk(r, slice, bytes, &error))
		{
			memcpy(slice->chunk->data, scratch->memory, bytes);
			slice->chunk->used = bytes;
			return;
		}
	}
	gpuvec_first_error_keep(&r->first, &error);
}

/* Chain the chunks of all slices, some of which are new */
static void
chain_chunks(gpuvec_stage *stage, const gpuvec_stage_slice *slices, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
	{
		row_class  *class = &stage->classes[slices[i].in_class];

		if (i == 0 || slices[i - 1].in_class != slices[i].in_class)
			class->first = slices[i].chunk;
		else
			class->last->next = slices[i].chunk;
		class->last = slices[i].chunk;
		class->last->next = NULL;
	}
}

/*
 * Rewrite all slices, a few for each thread at a time, as others use the pool
 */
static void
rewrite_slices(rewriting *r, gpuvec_stage_slice *slices, uint64_t n, gpuvec_thread_pool *pool)
{
	uint64_t	step = (uint64_t) gpuvec_thread_pool_threads(pool) * GPUVEC_SLICES_AT_ONCE;

	for (uint64_t i = 0; i < n; i += step)
	{
		r->slices = slices + i;
		gpuvec_thread_pool_run(pool, rewrite_slice, r, n - i < step ? n - i : step);
	}
	chain_chunks(r->stage, slices, n);
}

bool
gpuvec_stage_rewrite(gpuvec_stage *stage, gpuvec_thread_pool *pool, gpuvec_row_rewriter rewrite,
					 void *arg, gpuvec_error *error)
{
	int			threads = gpuvec_thread_pool_threads(pool);
	rewriting	r = {.stage = stage, .rewrite = rewrite, .arg = arg};
	uint64_t	n;
	gpuvec_stage_slice *slices = gpuvec_stage_slices(stage, &n, error);

	if (slices == NULL)
		return false;
	r.scratches = calloc((size_t) threads, sizeof(rewrite_scratch));
	if (r.scratches == NULL)
	{
		free(slices);
		return gpuvec_fail_memory(error, (size_t) threads * sizeof(rewrite_scratch));
	}
	pthread_mutex_init(&r.mutex, NULL);
	rewrite_slices(&r, slices, n, pool);
	pthread_mutex_destroy(&r.mutex);
	stage->ncold = r.ncold;
	stage->estimate = r.estimate;
	for (int i = 0; i < threads; i++)
		free(r.scratches[i].memory);
	free(r.scratches);
	free(slices);
	return gpuvec_first_error_result(&r.first, error);
}
