/*-------------------------------------------------------------------------
 *
 * stage_order.c
 *	  The rows of a stage in the order of segments, for several threads.
 *
 * A load may have so many rows that one thread which reads them takes longer
 * than all others that build segments of them.  So each thread reads the rows
 * of the segment that it builds.
 *
 * The rows of a class of one length are in runs: one of each session that has
 * staged some, in the order of tid.  A slice begins where some tid would be in
 * each run; halving finds the tid that has as many rows before it as belong
 * to the slices before.  All these places are found before the first slice is
 * read.  From there on a thread merges the runs.  Sessions read pages in
 * ranges, so a run has many rows in sequence that no other run comes between.
 * What remains is one comparison for each row.
 *
 * The other classes are sorted as a whole, by the thread that comes first.
 * Merged by tid before, they only have to be sorted by length.
 *
 * Reading is in stage_order_read.c.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sets/stage_places.h"

uint64_t
gpuvec_stage_order_slices(const gpuvec_stage_order *order)
{
	return (order->nrows + order->step - 1) / order->step;
}

/* ---- classes and their runs ---- */

/* Count the rows of a chunk that are not left out */
static uint64_t
count_chunk(const gpuvec_stage_order *order, const stage_chunk *chunk)
{
	uint64_t	n = 0;

	for (size_t offset = 0; offset < chunk->used;)
	{
		gpuvec_source_row row;

		offset += read_row(chunk->data + offset, &row, order->stage->kind);
		n += gpuvec_tid_block(row.tid) < order->nblocks;
	}
	return n;
}

/* Count the rows of a class, and of its chunks, that are not left out */
static uint64_t
count_rows(const gpuvec_stage_order *order, int class)
{
	const gpuvec_stage *stage = order->stage;
	const row_class *rows = &stage->classes[class];
	uint64_t	n = 0;

	/* none is, as a rule */
	if (order->nrows == stage->nrows)
		return rows->nrows;
	if (class == FIRST_CLASS)
		for (uint64_t i = 0; i < rows->nrows; i++)
			n += gpuvec_tid_block(stage->first[i].tid) < order->nblocks;
	else
		for (stage_chunk *chunk = rows->first; chunk; chunk = chunk->next)
		{
			chunk->nrows = count_chunk(order, chunk);
			n += chunk->nrows;
		}
	return n;
}

static uint64_t
count_chunks(const row_class *class)
{
	uint64_t	n = 0;

	for (const stage_chunk *chunk = class->first; chunk; chunk = chunk->next)
		n++;
	return n;
}

/* The first class that may have rows */
static int
first_class(const gpuvec_stage *stage)
{
	return stage->spread ? 0 : FIRST_CLASS;
}

/* Make an entry for each class that has rows */
static bool
make_classes(gpuvec_stage_order *order, gpuvec_error *error)
{
	const gpuvec_stage *stage = order->stage;
	uint32_t	n = 0;

	for (int i = first_class(stage); i <= NCLASSES; i++)
		n += stage->classes[i].nrows > 0;
	order->classes = calloc(n + (size_t) 1, sizeof(*order->classes));
	if (order->classes == NULL)
		return gpuvec_fail_memory(error, n * sizeof(*order->classes));
	for (int i = first_class(stage); i <= NCLASSES; i++)
	{
		if (stage->classes[i].nrows == 0)
			continue;
		pthread_mutex_init(&order->classes[order->nclasses].mutex, NULL);
		order->classes[order->nclasses++].class = i;
	}
	return true;
}

/* Count the rows and runs of all classes; returns the number of chunks */
static uint64_t
measure_classes(gpuvec_stage_order *order)
{
	uint64_t	begin = 0;
	uint64_t	nchunks = 0;

	for (uint32_t i = 0; i < order->nclasses; i++)
	{
		order_class *class = &order->classes[i];
		const row_class *rows = &order->stage->classes[class->class];

		class->begin = begin;
		class->nrows = class->left = count_rows(order, class->class);
		class->nchunks = count_chunks(rows);
		class->nruns = rows->more_runs + 1;
		class->by_tid = class->class != FIRST_CLASS && !rows->unsorted;
		class->unsorted = class->class >= OWN_CLASSES || !class->by_tid;
		if (class->nruns > order->most_runs)
			order->most_runs = class->nruns;
		begin += class->nrows;
		nchunks += class->nchunks;
	}
	return nchunks;
}

static uint64_t
first_tid(const stage_chunk *chunk, gpuvec_row_kind kind)
{
	gpuvec_source_row row;

	(void) read_row(chunk->data, &row, kind);
	return row.tid;
}

/* Take the chunks of a class over that have rows, and note its runs */
static void
list_runs(gpuvec_stage_order *order, order_class *class)
{
	row_class  *rows = &order->stage->classes[class->class];
	order_run  *run = class->runs;
	stage_chunk *next;

	for (stage_chunk *chunk = rows->first; chunk; chunk = next)
	{
		order_chunk *entry = &class->chunks[class->nchunks];

		next = chunk->next;
		chunk->next = NULL;
		if (chunk->begins_run)
			run++;
		if (chunk->nrows == 0)
		{
			/* all are left out */
			gpuvec_stage_free_chunks(order->stage, chunk);
			continue;
		}
		class->nchunks++;
		entry->chunk = chunk;
		if (!class->by_tid)
			continue;
		entry->tid = first_tid(chunk, order->stage->kind);
		if (run->n++ == 0)
			run->chunks = entry;
		else
			entry->before = entry[-1].before + entry[-1].chunk->nrows;
	}
	rows->first = rows->last = NULL;
}

/* Take the chunks of all classes over */
static bool
list_chunks(gpuvec_stage_order *order, gpuvec_error *error)
{
	uint64_t	nchunks = measure_classes(order);
	size_t		capacity = (size_t) order->nclasses * order->most_runs;
	uint64_t	at = 0;

	order->chunks = calloc(nchunks + 1, sizeof(*order->chunks));
	order->runs = calloc(capacity + 1, sizeof(*order->runs));
	if (order->chunks == NULL || order->runs == NULL)
		return gpuvec_fail_memory(error, nchunks * sizeof(*order->chunks) +
								  capacity * sizeof(*order->runs));
	for (uint32_t i = 0; i < order->nclasses; i++)
	{
		order_class *class = &order->classes[i];

		class->chunks = order->chunks + at;
		class->runs = order->runs + (size_t) i * order->most_runs;
		at += class->nchunks;
		class->nchunks = 0;
		list_runs(order, class);
	}
	/* no chunk is cut any more: blocks are freed with their last chunks */
	memset(order->stage->open, 0, sizeof(order->stage->open));
	return true;
}

/* ---- where slices begin ---- */

/* The last chunk, from a place on, whose first row is below tid */
static uint64_t
find_chunk(const order_run *run, uint64_t from, uint64_t tid)
{
	uint64_t	hi = run->n;

	while (hi - from > 1)
	{
		uint64_t	middle = from + (hi - from) / 2;

		if (run->chunks[middle].tid < tid)
			from = middle;
		else
			hi = middle;
	}
	return from;
}

/* The place of the first row at or above tid, which is not before *from */
static order_place
find_place(const order_run *run, const order_place *from, uint64_t tid, gpuvec_row_kind kind)
{
	order_place place = *from;
	uint64_t	chunk;

	if (place.tid >= tid)
		return place;
	chunk = find_chunk(run, place.chunk, tid);
	if (chunk != place.chunk)
		place = (order_place)
	{
		.chunk = chunk, .before = run->chunks[chunk].before, .tid = run->chunks[chunk].tid
	};
	while (place.tid < tid)
	{
		const stage_chunk *rows = run->chunks[place.chunk].chunk;
		gpuvec_source_row row;

		place.offset += read_row(rows->data + place.offset, &row, kind);
		place.before++;
		if (place.offset < rows->used)
		{
			(void) read_row(rows->data + place.offset, &row, kind);
			place.tid = row.tid;
			continue;
		}
		place.chunk++;
		place.offset = 0;
		place.tid = place.chunk < run->n ? run->chunks[place.chunk].tid : NO_TID;
	}
	return place;
}

/*
 * Find the places in all runs of a class that have `before` rows before them,
 * together.  places[] gets them; try[] is for guesses; both have one for each
 * run.
 */
static bool
find_places(const gpuvec_stage_order *order, const order_class *class, uint64_t before,
			order_place *places, order_place *try, gpuvec_error *error)
{
	uint64_t	lo = 0;
	uint64_t	hi = gpuvec_tid((uint64_t) order->nblocks, 0);
	uint64_t	have = 0;

	for (uint32_t i = 0; i < class->nruns; i++)
		places[i] = begin_run(&class->runs[i]);
	while (have < before && hi - lo > 1)
	{
		uint64_t	middle = lo + (hi - lo) / 2;
		uint64_t	n = 0;

		for (uint32_t i = 0; i < class->nruns; i++)
		{
			try[i] = find_place(&class->runs[i], &places[i], middle, order->stage->kind);
			n += try[i].before;
		}
		if (n > before)
		{
			hi = middle;
			continue;
		}
		lo = middle;
		have = n;
		memcpy(places, try, class->nruns * sizeof(*places));
	}
	return have == before || fail_order(error);
}

/* Make what a thread reads with, when it first does */
bool
gpuvec_stage_make_reader(gpuvec_stage_order *order, order_reader *reader, gpuvec_error *error)
{
	size_t		rows = order->step < order->nrows ? order->step : order->nrows;

	if (reader->rows != NULL)
		return true;
	reader->at = malloc(order->most_runs * sizeof(*reader->at));
	reader->taken_of = malloc(order->most_runs * sizeof(*reader->taken_of));
	reader->rows = malloc(rows * sizeof(*reader->rows));
	if (reader->at != NULL && reader->taken_of != NULL && reader->rows != NULL)
		return true;
	free(reader->at);
	free(reader->taken_of);
	free(reader->rows);
	memset(reader, 0, sizeof(*reader));
	return gpuvec_fail_memory(error, rows * sizeof(*reader->rows));
}

/* Find where a slice begins; called by a thread of the pool */
static void
find_slice(void *arg, uint64_t slice, int thread)
{
	gpuvec_stage_order *order = arg;
	order_reader *reader = &order->readers[thread];
	const order_class *class = find_class(order, slice * order->step);
	gpuvec_error error;

	if (class->unsorted || gpuvec_first_error_is_set(&order->first))
		return;
	if (!gpuvec_stage_make_reader(order, reader, &error) ||
		!find_places(order, class, slice * order->step - class->begin,
					 order->places + slice * order->most_runs, reader->at, &error))
		gpuvec_first_error_keep(&order->first, &error);
}

/* Find where all slices begin */
static bool
find_slices(gpuvec_stage_order *order, gpuvec_thread_pool *pool, gpuvec_error *error)
{
	uint64_t	slices = gpuvec_stage_order_slices(order);
	size_t		capacity = slices * order->most_runs;

	order->nthreads = gpuvec_thread_pool_threads(pool);
	order->places = malloc((capacity + 1) * sizeof(*order->places));
	order->readers = calloc((size_t) order->nthreads, sizeof(*order->readers));
	if (order->places == NULL || order->readers == NULL)
		return gpuvec_fail_memory(error, capacity * sizeof(*order->places));
	if (slices == 1)
		find_slice(order, 0, 0);
	else
		gpuvec_thread_pool_run(pool, find_slice, order, slices);
	return gpuvec_first_error_result(&order->first, error);
}

gpuvec_stage_order *
gpuvec_stage_order_new(gpuvec_stage *stage, uint32_t nblocks, uint64_t nrows, uint32_t step,
					   gpuvec_thread_pool *pool, gpuvec_error *error)
{
	gpuvec_stage_order *order = calloc(1, sizeof(*order));
	uint64_t	found = 0;
	bool		ok;

	if (order == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*order));
		return NULL;
	}
	order->stage = stage;
	order->nblocks = nblocks;
	order->nrows = nrows;
	order->step = step;
	ok = make_classes(order, error) && list_chunks(order, error);
	for (uint32_t i = 0; i < order->nclasses; i++)
		found += order->classes[i].nrows;
	if (ok && found < nrows)
		ok = fail_order(error);
	if (ok && find_slices(order, pool, error))
		return order;
	gpuvec_stage_order_free(order);
	return NULL;
}

/* Free what a class has left */
void
gpuvec_stage_free_class(gpuvec_stage *stage, order_class *class)
{
	free(class->sorted);
	class->sorted = NULL;
	/* none were taken over if memory was lacking */
	for (uint64_t i = 0; class->chunks && i < class->nchunks; i++)
		gpuvec_stage_free_chunks(stage, class->chunks[i].chunk);
	class->nchunks = 0;
}

void
gpuvec_stage_order_free(gpuvec_stage_order *order)
{
	if (order == NULL)
		return;
	for (uint32_t i = 0; i < order->nclasses; i++)
	{
		gpuvec_stage_free_class(order->stage, &order->classes[i]);
		pthread_mutex_destroy(&order->classes[i].mutex);
	}
	for (int i = 0; order->readers && i < order->nthreads; i++)
	{
		free(order->readers[i].rows);
		free(order->readers[i].at);
		free(order->readers[i].taken_of);
		free(order->readers[i].taken);
	}
	free(order->readers);
	free(order->places);
	free(order->runs);
	free(order->chunks);
	free(order->classes);
	free(order);
}
