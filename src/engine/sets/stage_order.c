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
 * staged some, in the order of tid.  A part begins where some tid would be in
 * each run; halving finds the tid that has as many rows before it as belong
 * to the parts before.  All these places are found before the first part is
 * read.  From there on a thread merges the runs.  Sessions read pages in
 * ranges, so a run has many rows in sequence that no other run comes between.
 * What remains is one comparison for each row.
 *
 * The other classes are sorted as a whole, by the thread that comes first.
 * Merged by tid before, they only have to be sorted by length.
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

#include "engine/sets/first_error.h"
#include "engine/sets/stage_layout.h"
#include "engine/sets/stage_order.h"

/* No row has this tid, nor one above it */
#define NO_TID		UINT64_MAX

/* A chunk of a run */
typedef struct order_chunk
{
	stage_chunk *chunk;			/* NULL: it was freed */
	uint64_t	tid;			/* of its first row */
	uint64_t	before;			/* rows of the run in chunks before it */
} order_chunk;

typedef struct order_run
{
	order_chunk *chunks;		/* [n] */
	uint64_t	n;
} order_run;

/* A class that has rows */
typedef struct order_class
{
	int			class;
	uint64_t	begin;			/* rows of classes before it */
	uint64_t	nrows;			/* that are not left out */
	order_chunk *chunks;		/* [nchunks] those of all its runs, without
								 * chunks whose rows are left out */
	uint64_t	nchunks;
	order_run  *runs;			/* [nruns] */
	uint32_t	nruns;

	/* rows that have to be sorted */
	bool		unsorted;
	bool		by_tid;			/* its runs are in the order of tid */
	pthread_mutex_t mutex;		/* held while they are sorted */
	gpuvec_source_row *sorted;	/* [nrows] NULL: not yet */
	uint64_t	left;			/* atomic: those that are needed */
} order_class;

/* A place in a run: the next row to be read */
typedef struct order_place
{
	uint64_t	chunk;			/* number of chunks: the end */
	size_t		offset;			/* in its data */
	uint64_t	before;			/* rows of the run before it */
	uint64_t	tid;			/* NO_TID: the end */
} order_place;

/* Rows that a thread has read: of a chunk, or of a class that was sorted */
typedef struct order_taken
{
	order_chunk *chunk;
	order_class *sorted;		/* NULL: of a chunk */
	uint64_t	n;
} order_taken;

/* What a thread reads with */
typedef struct order_reader
{
	gpuvec_source_row *rows;	/* [step] */
	order_place *at;			/* [most_runs] where it is in each run */
	uint64_t   *taken_of;		/* [most_runs] rows of the run's chunk */
	order_taken *taken;			/* [ntaken] */
	uint64_t	ntaken;
	uint64_t	room;
} order_reader;

struct gpuvec_stage_order
{
	gpuvec_stage *stage;
	uint32_t	nblocks;
	uint64_t	nrows;
	uint32_t	step;
	order_class *classes;		/* [nclasses] */
	uint32_t	nclasses;
	order_chunk *chunks;
	order_run  *runs;
	uint32_t	most_runs;		/* of a class */
	order_place *places;		/* [parts * most_runs] where parts begin, in
								 * the runs of the class of their first rows */
	int			nthreads;
	order_reader *readers;		/* [nthreads] */
	gpuvec_first_error first;
};

uint64_t
gpuvec_stage_order_parts(const gpuvec_stage_order *order)
{
	return (order->nrows + order->step - 1) / order->step;
}

/* What the stage has counted is not what it has */
static bool
fail_order(gpuvec_error *error)
{
	return gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL,
					   "rows are missing in the gpuvec engine");
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

		offset += read_row(chunk->data + offset, &row, order->stage->nfilters);
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
first_tid(const stage_chunk *chunk, uint32_t nfilters)
{
	gpuvec_source_row row;

	(void) read_row(chunk->data, &row, nfilters);
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
		entry->tid = first_tid(chunk, order->stage->nfilters);
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
	size_t		room = (size_t) order->nclasses * order->most_runs;
	uint64_t	at = 0;

	order->chunks = calloc(nchunks + 1, sizeof(*order->chunks));
	order->runs = calloc(room + 1, sizeof(*order->runs));
	if (order->chunks == NULL || order->runs == NULL)
		return gpuvec_fail_memory(error, nchunks * sizeof(*order->chunks) +
								  room * sizeof(*order->runs));
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

/* The class of the row at a place in the order */
static order_class *
find_class(gpuvec_stage_order *order, uint64_t row)
{
	uint32_t	lo = 0;
	uint32_t	hi = order->nclasses;

	while (hi - lo > 1)
	{
		uint32_t	middle = lo + (hi - lo) / 2;

		if (order->classes[middle].begin <= row)
			lo = middle;
		else
			hi = middle;
	}
	return &order->classes[lo];
}

/* ---- where parts begin ---- */

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
find_place(const order_run *run, const order_place *from, uint64_t tid, uint32_t nfilters)
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

		place.offset += read_row(rows->data + place.offset, &row, nfilters);
		place.before++;
		if (place.offset < rows->used)
		{
			(void) read_row(rows->data + place.offset, &row, nfilters);
			place.tid = row.tid;
			continue;
		}
		place.chunk++;
		place.offset = 0;
		place.tid = place.chunk < run->n ? run->chunks[place.chunk].tid : NO_TID;
	}
	return place;
}

/* The beginning of a run */
static order_place
begin_run(const order_run *run)
{
	return (order_place)
	{
		.tid = run->n > 0 ? run->chunks[0].tid : NO_TID
	};
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
			try[i] = find_place(&class->runs[i], &places[i], middle, order->stage->nfilters);
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
static bool
make_reader(gpuvec_stage_order *order, order_reader *reader, gpuvec_error *error)
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

/* Find where a part begins; called by a thread of the pool */
static void
find_part(void *arg, uint64_t part, int thread)
{
	gpuvec_stage_order *order = arg;
	order_reader *reader = &order->readers[thread];
	const order_class *class = find_class(order, part * order->step);
	gpuvec_error error;

	if (class->unsorted || gpuvec_first_error_is_set(&order->first))
		return;
	if (!make_reader(order, reader, &error) ||
		!find_places(order, class, part * order->step - class->begin,
					 order->places + part * order->most_runs, reader->at, &error))
		gpuvec_first_error_keep(&order->first, &error);
}

/* Find where all parts begin */
static bool
find_parts(gpuvec_stage_order *order, gpuvec_thread_pool *pool, gpuvec_error *error)
{
	uint64_t	parts = gpuvec_stage_order_parts(order);
	size_t		room = parts * order->most_runs;

	order->nthreads = gpuvec_thread_pool_threads(pool);
	order->places = malloc((room + 1) * sizeof(*order->places));
	order->readers = calloc((size_t) order->nthreads, sizeof(*order->readers));
	if (order->places == NULL || order->readers == NULL)
		return gpuvec_fail_memory(error, room * sizeof(*order->places));
	if (parts == 1)
		find_part(order, 0, 0);
	else
		gpuvec_thread_pool_run(pool, find_part, order, parts);
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
	if (ok && find_parts(order, pool, error))
		return order;
	gpuvec_stage_order_free(order);
	return NULL;
}

/* Free what a class has left */
static void
free_class(gpuvec_stage *stage, order_class *class)
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
		free_class(order->stage, &order->classes[i]);
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

/* ---- reading ---- */

/* Note that rows were read */
static bool
note_taken(order_reader *reader, order_chunk *chunk, order_class *sorted, uint64_t n,
		   gpuvec_error *error)
{
	if (reader->ntaken == reader->room)
	{
		uint64_t	room = reader->room ? reader->room * 2 : 256;
		order_taken *taken = realloc(reader->taken, room * sizeof(*taken));

		if (taken == NULL)
			return gpuvec_fail_memory(error, room * sizeof(*taken));
		reader->taken = taken;
		reader->room = room;
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
read_run(const order_run *run, order_place *at, uint64_t limit, uint32_t nfilters,
		 gpuvec_source_row *rows, uint64_t n)
{
	const stage_chunk *chunk = run->chunks[at->chunk].chunk;
	uint64_t	done = 0;

	while (done < n && at->tid < limit && at->offset < chunk->used)
	{
		at->offset += read_row(chunk->data + at->offset, &rows[done++], nfilters);
		if (at->offset < chunk->used)
		{
			gpuvec_source_row next;

			(void) read_row(chunk->data + at->offset, &next, nfilters);
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
		took = read_run(run, at, limit, order->stage->nfilters, rows + done, n - done);
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
				offset += read_row(class->chunks[i].chunk->data + offset, &rows[n], stage->nfilters);
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

/* Set reader->at to the first row of the part that is of a class */
static void
go_to(gpuvec_stage_order *order, const order_class *class, uint64_t part, order_reader *reader)
{
	if (part * order->step > class->begin)
		memcpy(reader->at, order->places + part * order->most_runs,
			   class->nruns * sizeof(*reader->at));
	else
		begin_class(class, reader);
}

const gpuvec_source_row *
gpuvec_stage_order_read(gpuvec_stage_order *order, uint64_t part, int thread, uint32_t *n,
						gpuvec_error *error)
{
	order_reader *reader = &order->readers[thread];
	uint64_t	at = part * order->step;
	uint64_t	all = order->nrows - at < order->step ? order->nrows - at : order->step;

	if (!make_reader(order, reader, error))
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
			go_to(order, class, part, reader);
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
			free_class(order->stage, taken->sorted);
	}
	reader->ntaken = 0;
}
