/*-------------------------------------------------------------------------
 *
 * stage_order_read.c
 *	  Reads the rows of a stage in their order: slices by several threads.
 *
 * A thread merges the runs of a class from where its slice begins
 * (stage_order.c).  A class that has to be sorted is sorted as a whole, by the
 * thread that comes first.
 *
 * A chunk is freed when all its rows have been read and are not needed any
 * more.  Two threads may have read it, so rows are counted.  A thread must not
 * look at a chunk of which it reads no row, as that may be freed: what it has
 * to know of the rows that come next is kept beside the chunks.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sets/stage_places.h"

/* Note that rows were read */
static bool
note_taken(order_reader *reader, order_chunk *chunk, order_class *sorted, uint64_t n,
		   gpuvec_error *error)
{
	if (reader->ntaken == reader->capacity)
	{
		uint64_t	capacity = reader->capacity ? reader->capacity * 2 : 256;
		order_taken *taken = realloc(reader->taken, capacity * sizeof(*taken));

		if (taken == NULL)
			return gpuvec_fail_memory(error, capacity * sizeof(*taken));
		reader->taken = taken;
		reader->capacity = capacity;
	}
	reader->taken[reader->ntaken++] = (order_taken)
	{
		chunk, sorted, n
	};
	return true;
}

/*
 * Choose the run that comes next.  *limit is the tid of the one that follows.
 */
static uint32_t
choose_run(const order_place *at, uint32_t n, uint64_t *limit)
{
	uint32_t	best = 0;

	*limit = NO_TID;
	for (uint32_t i = 1; i < n; i++)
	{
		if (at[i].tid < at[best].tid)
		{
			*limit = at[best].tid;
			best = i;
		}
		else if (at[i].tid < *limit)
			*limit = at[i].tid;
	}
	return best;
}

/*
 * Read up to n rows of a run, as long as their tids are below limit.  The
 * next row is in *at; it is looked at only if its chunk has rows that were
 * read.  Returns the number of rows.
 */
static uint64_t
read_run(const order_run *run, order_place *at, uint64_t limit, gpuvec_row_kind kind,
		 gpuvec_source_row *rows, uint64_t n)
{
	const stage_chunk *chunk = run->chunks[at->chunk].chunk;
	uint64_t	done = 0;

	while (done < n && at->tid < limit && at->offset < chunk->used)
	{
		at->offset += read_row(chunk->data + at->offset, &rows[done++], kind);
		if (at->offset < chunk->used)
		{
			gpuvec_source_row next;

			(void) read_row(chunk->data + at->offset, &next, kind);
			at->tid = next.tid;
		}
	}
	return done;
}

/* Go on behind a chunk of which all rows are read */
static void
next_chunk(const order_run *run, order_place *at)
{
	at->chunk++;
	at->offset = 0;
	at->tid = at->chunk < run->n ? run->chunks[at->chunk].tid : NO_TID;
}

/* Merge n rows of a class, from the places in reader->at on */
static bool
merge_runs(gpuvec_stage_order *order, order_class *class, order_reader *reader,
		   gpuvec_source_row *rows, uint64_t n, gpuvec_error *error)
{
	memset(reader->taken_of, 0, class->nruns * sizeof(*reader->taken_of));
	for (uint64_t done = 0; done < n;)
	{
		uint64_t	limit;
		uint32_t	best = choose_run(reader->at, class->nruns, &limit);
		order_run  *run = &class->runs[best];
		order_place *at = &reader->at[best];
		order_chunk *chunk;
		uint64_t	took;

		/* at the end, or two runs have the same row */
		if (at->tid >= limit)
			return fail_order(error);
		chunk = &run->chunks[at->chunk];
		took = read_run(run, at, limit, order->stage->kind, rows + done, n - done);
		done += took;
		reader->taken_of[best] += took;
		if (at->offset < chunk->chunk->used)
			continue;
		if (!note_taken(reader, chunk, NULL, reader->taken_of[best], error))
			return false;
		reader->taken_of[best] = 0;
		next_chunk(run, at);
	}
	for (uint32_t i = 0; i < class->nruns; i++)
		if (reader->taken_of[i] > 0 &&
			!note_taken(reader, &class->runs[i].chunks[reader->at[i].chunk], NULL,
						reader->taken_of[i], error))
			return false;
	return true;
}

/* Read from the first row of a class on */
static void
begin_class(const order_class *class, order_reader *reader)
{
	for (uint32_t i = 0; i < class->nruns; i++)
		reader->at[i] = begin_run(&class->runs[i]);
}

/* Collect the rows of a class in the order of tid */
static bool
merge_class(gpuvec_stage_order *order, order_class *class, order_reader *reader,
			gpuvec_source_row *rows, gpuvec_error *error)
{
	uint64_t	ntaken = reader->ntaken;
	bool		ok;

	begin_class(class, reader);
	ok = merge_runs(order, class, reader, rows, class->nrows, error);
	/* the class counts its rows itself */
	reader->ntaken = ntaken;
	return ok;
}

/* Collect the rows of a class as they are; there is room for one more */
static bool
collect_class(gpuvec_stage_order *order, const order_class *class, gpuvec_source_row *rows,
			  gpuvec_error *error)
{
	const gpuvec_stage *stage = order->stage;
	uint64_t	n = 0;

	if (class->class == FIRST_CLASS)
		for (uint64_t i = 0; i < stage->classes[FIRST_CLASS].nrows; i++)
		{
			rows[n] = stage->first[i];
			n += gpuvec_tid_block(rows[n].tid) < order->nblocks;
		}
	else
		for (uint64_t i = 0; i < class->nchunks; i++)
			for (size_t offset = 0; offset < class->chunks[i].chunk->used;)
			{
				offset += read_row(class->chunks[i].chunk->data + offset, &rows[n], stage->kind);
				n += gpuvec_tid_block(rows[n].tid) < order->nblocks;
			}
	return n == class->nrows || fail_order(error);
}

/* Collect the rows of a class, and sort them */
static gpuvec_source_row *
sort_rows(gpuvec_stage_order *order, order_class *class, order_reader *reader, gpuvec_error *error)
{
	gpuvec_source_row *rows = malloc((class->nrows + 1) * sizeof(*rows));

	if (rows == NULL)
	{
		gpuvec_fail_memory(error, class->nrows * sizeof(*rows));
		return NULL;
	}
	if ((class->by_tid ? merge_class(order, class, reader, rows, error) :
		 collect_class(order, class, rows, error)) &&
		gpuvec_rows_sort(rows, class->nrows, error))
		return rows;
	free(rows);
	return NULL;
}

/* Read n rows of a class that has to be sorted, from `from` on */
static bool
read_sorted(gpuvec_stage_order *order, order_class *class, order_reader *reader, uint64_t from,
			gpuvec_source_row *rows, uint64_t n, gpuvec_error *error)
{
	bool		ok;

	pthread_mutex_lock(&class->mutex);
	if (class->sorted == NULL)
		class->sorted = sort_rows(order, class, reader, error);
	ok = class->sorted != NULL;
	pthread_mutex_unlock(&class->mutex);
	if (!ok || !note_taken(reader, NULL, class, n, error))
		return false;
	memcpy(rows, class->sorted + from, n * sizeof(*rows));
	return true;
}

/* Set reader->at to the first row of the slice that is of a class */
static void
go_to(gpuvec_stage_order *order, const order_class *class, uint64_t slice, order_reader *reader)
{
	if (slice * order->step > class->begin)
		memcpy(reader->at, order->places + slice * order->most_runs,
			   class->nruns * sizeof(*reader->at));
	else
		begin_class(class, reader);
}

const gpuvec_source_row *
gpuvec_stage_order_read(gpuvec_stage_order *order, uint64_t slice, int thread, uint32_t *n,
						gpuvec_error *error)
{
	order_reader *reader = &order->readers[thread];
	uint64_t	at = slice * order->step;
	uint64_t	all = order->nrows - at < order->step ? order->nrows - at : order->step;

	if (!gpuvec_stage_make_reader(order, reader, error))
		return NULL;
	reader->ntaken = 0;
	for (uint64_t done = 0; done < all;)
	{
		order_class *class = find_class(order, at + done);
		uint64_t	from = at + done - class->begin;
		uint64_t	take = class->nrows - from < all - done ? class->nrows - from : all - done;
		bool		ok;

		if (class->unsorted)
			ok = read_sorted(order, class, reader, from, reader->rows + done, take, error);
		else
		{
			go_to(order, class, slice, reader);
			ok = merge_runs(order, class, reader, reader->rows + done, take, error);
		}
		if (!ok)
			return NULL;
		done += take;
	}
	*n = (uint32_t) all;
	return reader->rows;
}

void
gpuvec_stage_order_done(gpuvec_stage_order *order, int thread)
{
	order_reader *reader = &order->readers[thread];

	for (uint64_t i = 0; i < reader->ntaken; i++)
	{
		order_taken *taken = &reader->taken[i];

		if (taken->sorted == NULL)
		{
			stage_chunk *chunk = taken->chunk->chunk;

			if (__atomic_sub_fetch(&chunk->nrows, taken->n, __ATOMIC_ACQ_REL) > 0)
				continue;
			taken->chunk->chunk = NULL;
			gpuvec_stage_free_chunks(order->stage, chunk);
		}
		else if (__atomic_sub_fetch(&taken->sorted->left, taken->n, __ATOMIC_ACQ_REL) == 0)
			gpuvec_stage_free_class(order->stage, taken->sorted);
	}
	reader->ntaken = 0;
}
