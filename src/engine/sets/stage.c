/*-------------------------------------------------------------------------
 *
 * stage.c
 *	  The stage: rows that wait to be sorted and built into segments.
 *
 * Segments hold rows in the order of (length, tid), but pages bring them in
 * the order of tid.  So rows are staged in classes by length.  Each length
 * below OWN_CLASSES has a class; longer lengths share classes by ranges.  A
 * class is a list of chunks.  The rows of a class of one length are in order
 * as they come.  The other classes are sorted one at a time.  So no array of
 * all rows is ever made, and chunks are freed as soon as their segments are
 * built: at its peak a load takes little more memory than the segments.
 *
 * The first FIRST_ROWS rows are kept in one array, whatever their lengths.
 * An update often has no more rows, and sorting so few rows is faster than
 * spreading them over classes.  If their ids stay valid, they are not copied.
 *
 * When much has been staged, chunks are cut from blocks of the size of a huge
 * page.  The chunks of a block belong to a few neighboring classes, so a
 * block too can be freed soon after its first row went to a segment.
 *
 * A staged row is a header of 8 bytes and its ids, padded to a multiple of 4
 * bytes.  If some are cold, their number comes between.  The words of filter
 * columns come last.
 *
 * Rows are staged with their ids as the pages have them, where ids of 16 bits
 * count as hot.  If the mirror has numbers for ids, the rows get these before
 * segments are built (renumber.c).
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/fault.h"
#include "engine/host_memory.h"
#include "engine/sets/stage_layout.h"

/*
 * Bytes of the first chunk of a class (FIRST_ROWS_CHUNK: of the class of the
 * first rows).  Each next chunk is 4 times as large, up to LAST_CHUNK.
 */
#define FIRST_CHUNK		((size_t) 8 * 1024)
#define FIRST_ROWS_CHUNK	((size_t) 32 * 1024)
#define LAST_CHUNK		((size_t) 512 * 1024)

/*
 * Bytes of a chunk that is cut from a block.  This starts when the stage has
 * BLOCKS_FROM bytes in all, and the group of classes has GROUP_FROM bytes in
 * chunks of their own.
 */
#define PIECE			((size_t) 64 * 1024)
#define BLOCKS_FROM		((size_t) 16 * 1024 * 1024)
#define GROUP_FROM		((size_t) 1024 * 1024)

/*
 * On the CPU, threads share a search by segments, so small mirrors are cut
 * into more segments, but not into ones of less than FEWEST_ROWS rows
 */
#define FEWEST_ROWS		8192

uint32_t
gpuvec_full_segment(void)
{
	long		rows;

	return gpuvec_fault("full-segment", &rows) ? (uint32_t) rows : GPUVEC_SEGMENT_ROWS;
}

gpuvec_stage *
gpuvec_stage_new(uint32_t nfilters)
{
	gpuvec_stage *stage = calloc(1, sizeof(gpuvec_stage));

	if (stage)
		stage->nfilters = nfilters;
	return stage;
}

/* A chunk of a block is freed; the last one frees the block */
static void
leave_block(gpuvec_stage *stage, stage_block *b)
{
	if (--b->nchunks > 0)
		return;
	if (stage->open[b->group] == b)
		stage->open[b->group] = NULL;
	stage->bytes -= sizeof(*b) + GPUVEC_HUGE_PAGE;
	free(b->memory);
	free(b);
}

void
gpuvec_stage_free_chunks(gpuvec_stage *stage, stage_chunk *c)
{
	while (c)
	{
		stage_chunk *next = c->next;

		if (c->block)
			leave_block(stage, c->block);
		else
		{
			stage->bytes -= sizeof(*c) + c->size;
			free(c);
		}
		c = next;
	}
}

void
gpuvec_stage_free(gpuvec_stage *stage)
{
	if (stage == NULL)
		return;
	for (int i = 0; i <= NCLASSES; i++)
		gpuvec_stage_free_chunks(stage, stage->classes[i].first);
	free(stage->first);
	free(stage);
}

uint64_t
gpuvec_stage_rows(const gpuvec_stage *stage)
{
	return stage->nrows;
}

uint64_t
gpuvec_stage_lent(const gpuvec_stage *stage)
{
	return stage->lent;
}

size_t
gpuvec_stage_bytes(const gpuvec_stage *stage)
{
	return stage->bytes;
}

size_t
gpuvec_stage_estimate(const gpuvec_stage *stage)
{
	return stage->estimate;
}

/* The class of a length */
static int
class_of(uint32_t len)
{
	int			octave;

	if (len < OWN_CLASSES)
		return (int) len;
	octave = 31 - __builtin_clz(len);
	return OWN_CLASSES + (octave - 8) * 16 + (int) (len >> (octave - 4) & 15);
}

/* A new block for a group of classes */
static stage_block *
new_block(gpuvec_stage *stage, int group)
{
	stage_block *b = calloc(1, sizeof(*b));

	if (b == NULL)
		return NULL;
	b->group = group;
	b->memory = gpuvec_memory_new(GPUVEC_HUGE_PAGE);
	if (b->memory == NULL)
	{
		free(b);
		return NULL;
	}
	stage->bytes += sizeof(*b) + GPUVEC_HUGE_PAGE;
	stage->open[group] = b;
	return b;
}

/* Cut a chunk from the group's block, or from a new one */
static stage_chunk *
cut_chunk(gpuvec_stage *stage, int group)
{
	stage_block *b = stage->open[group];
	stage_chunk *c;

	if (b == NULL || b->used == GPUVEC_HUGE_PAGE)
		b = new_block(stage, group);
	if (b == NULL)
		return NULL;
	c = (stage_chunk *) (b->memory + b->used);
	memset(c, 0, sizeof(*c));
	c->block = b;
	c->size = PIECE - sizeof(*c);
	b->used += PIECE;
	b->nchunks++;
	return c;
}

/* Allocate a chunk with memory of its own */
static stage_chunk *
allocate_chunk(gpuvec_stage *stage, int group, size_t size)
{
	stage_chunk *c = malloc(sizeof(*c) + size);

	if (c == NULL)
		return NULL;
	memset(c, 0, sizeof(*c));
	c->size = size;
	stage->bytes += sizeof(*c) + size;
	stage->own[group] += size;
	return c;
}

/* Append a chunk with room for `bytes` to a class */
static stage_chunk *
new_chunk(gpuvec_stage *stage, row_class *class, size_t bytes, gpuvec_error *error)
{
	int			group = (int) (class - stage->classes) / GROUP;
	stage_chunk *last = class->last;
	size_t		size = last != NULL ? last->size * 4 :
		class == &stage->classes[FIRST_CLASS] ? FIRST_ROWS_CHUNK : FIRST_CHUNK;
	stage_chunk *c;

	if (size > LAST_CHUNK)
		size = LAST_CHUNK;
	if (size < bytes)
		size = bytes;
	if (last != NULL && stage->bytes >= BLOCKS_FROM && stage->own[group] >= GROUP_FROM &&
		bytes <= PIECE - sizeof(*c))
		c = cut_chunk(stage, group);
	else
		c = allocate_chunk(stage, group, size);
	if (c == NULL)
	{
		gpuvec_fail_memory(error, size);
		return NULL;
	}
	if (last)
		last->next = c;
	else
		class->first = c;
	class->last = c;
	return c;
}

/* Room for a row at the end of a class */
static inline staged_row *
new_row(gpuvec_stage *stage, row_class *class, size_t bytes, gpuvec_error *error)
{
	stage_chunk *c = class->last;
	staged_row *row;

	if (c == NULL || c->size - c->used < bytes)
		c = new_chunk(stage, class, bytes, error);
	if (c == NULL)
		return NULL;
	row = (staged_row *) (c->data + c->used);
	c->used += bytes;
	return row;
}

/* Add a copy of a row to a class */
static bool
add_row(gpuvec_stage *stage, row_class *class, const gpuvec_source_row *from, gpuvec_error *error)
{
	size_t		bytes = staged_bytes(from->len, from->ncold) + gpuvec_filter_bytes(stage->nfilters);
	staged_row *row = new_row(stage, class, bytes, error);

	if (row == NULL)
		return false;
	write_row(row, from, stage->nfilters);
	class->unsorted |= class->nrows > 0 && from->tid <= class->last_tid;
	class->last_tid = from->tid;
	class->nrows++;
	return true;
}

/* Enlarge the array of the first rows */
static bool
reserve_first(gpuvec_stage *stage, gpuvec_error *error)
{
	uint64_t	room = stage->first_room ? stage->first_room * 2 : FIRST_ROOM;
	gpuvec_source_row *first = realloc(stage->first, room * sizeof(*first));

	if (first == NULL)
		return gpuvec_fail_memory(error, room * sizeof(*first));
	stage->bytes += (room - stage->first_room) * sizeof(*first);
	stage->first = first;
	stage->first_room = room;
	return true;
}

/* Detach the array of the first rows; the caller frees it */
static gpuvec_source_row *
take_first(gpuvec_stage *stage)
{
	gpuvec_source_row *first = stage->first;

	stage->bytes -= stage->first_room * sizeof(*first);
	stage->first = NULL;
	stage->first_room = 0;
	return first;
}

/* Add one of the first rows; its ids and words are copied unless `last` */
static bool
add_first(gpuvec_stage *stage, const gpuvec_source_row *from, bool last, gpuvec_error *error)
{
	row_class  *class = &stage->classes[FIRST_CLASS];
	size_t		bytes = staged_bytes(from->len, from->ncold);
	gpuvec_source_row row = *from;

	if (class->nrows == stage->first_room && !reserve_first(stage, error))
		return false;
	if (!last)
	{
		staged_row *copy = new_row(stage, class, bytes + gpuvec_filter_bytes(stage->nfilters), error);

		if (copy == NULL)
			return false;
		copy_ids(copy + 1, from);
		row.ids = (const uint16_t *) (copy + 1);
		if (copy_words((char *) copy + bytes, from, stage->nfilters) > 0)
			row.words = (char *) copy + bytes;
	}
	stage->lent += last;
	stage->first[class->nrows++] = row;
	return true;
}

/* Done when more rows come, or those of another stage */
bool
gpuvec_stage_spread(gpuvec_stage *stage, gpuvec_error *error)
{
	row_class  *class = &stage->classes[FIRST_CLASS];

	for (uint64_t i = 0; i < class->nrows; i++)
	{
		const gpuvec_source_row *row = &stage->first[i];

		if (!add_row(stage, &stage->classes[class_of(row->len)], row, error))
			return false;
	}
	free(take_first(stage));
	gpuvec_stage_free_chunks(stage, class->first);
	memset(class, 0, sizeof(*class));
	stage->lent = 0;
	stage->spread = true;
	return true;
}

bool
gpuvec_stage_add(gpuvec_stage *stage, const gpuvec_source_row *row, bool last,
				 gpuvec_error *error)
{
	if (stage->nrows == FIRST_ROWS && !stage->spread && !gpuvec_stage_spread(stage, error))
		return false;
	if (!(stage->spread ? add_row(stage, &stage->classes[class_of(row->len)], row, error) :
		  add_first(stage, row, last, error)))
		return false;
	stage->nrows++;
	stage->ncold += row->ncold;
	stage->estimate += segment_bytes(row, stage->nfilters);
	return true;
}

uint32_t
gpuvec_stage_filters(const gpuvec_stage *stage)
{
	return stage->nfilters;
}

uint64_t
gpuvec_stage_cold(const gpuvec_stage *stage)
{
	return stage->ncold;
}

/* A cursor over all rows, in the order of segments */
typedef struct stage_cursor
{
	gpuvec_stage *stage;
	uint32_t	nblocks;
	int			class;			/* class that is being read, -1 at first */
	stage_chunk *retired;		/* chunks that were read, in use until their
								 * segments are built */

	/* a class whose rows are in order */
	size_t		offset;			/* offset of the next row in the class's first
								 * chunk */

	/* a class of several runs that are in order */
	stage_runs	runs;

	/* a class whose rows had to be sorted */
	gpuvec_source_row *sorted;
	uint64_t	nsorted;
	uint64_t	at;
} stage_cursor;

static bool
sort_class(stage_cursor *c, gpuvec_thread_pool *pool, gpuvec_error *error)
{
	row_class  *class = &c->stage->classes[c->class];

	c->nsorted = c->at = 0;
	if (c->class == FIRST_CLASS)
	{
		c->sorted = take_first(c->stage);
		c->nsorted = class->nrows;
		return gpuvec_rows_sort(c->sorted, c->nsorted, error);
	}
	c->sorted = malloc((class->nrows + 1) * sizeof(gpuvec_source_row));
	if (c->sorted == NULL)
		return gpuvec_fail_memory(error, class->nrows * sizeof(gpuvec_source_row));
	for (stage_chunk *k = class->first; k; k = k->next)
		for (size_t offset = 0; offset < k->used;)
			offset += read_row(k->data + offset, &c->sorted[c->nsorted++], c->stage->nfilters);
	return gpuvec_rows_sort(c->sorted, c->nsorted, error);
}

/* Move the first chunk of the current class to the retired ones */
static void
retire_chunk(stage_cursor *c)
{
	row_class  *class = &c->stage->classes[c->class];
	stage_chunk *k = class->first;

	class->first = k->next;
	if (class->first == NULL)
		class->last = NULL;
	k->next = c->retired;
	c->retired = k;
	c->offset = 0;
}

/* The next row of the current class; false at its end */
static bool
next_in_class(stage_cursor *c, gpuvec_source_row *row)
{
	row_class  *class = &c->stage->classes[c->class];

	if (c->sorted)
	{
		if (c->at < c->nsorted)
		{
			*row = c->sorted[c->at++];
			return true;
		}
		free(c->sorted);
		c->sorted = NULL;
		while (class->first)
			retire_chunk(c);
		return false;
	}
	if (c->runs.runs)
	{
		if (gpuvec_runs_next(&c->runs, c->stage->nfilters, row, &c->retired))
			return true;
		gpuvec_runs_end(&c->runs, &c->retired);
		return false;
	}
	while (class->first && c->offset >= class->first->used)
		retire_chunk(c);
	if (class->first == NULL)
		return false;
	c->offset += read_row(class->first->data + c->offset, row, c->stage->nfilters);
	return true;
}

/* Begin to read a class that has rows */
static bool
begin_class(stage_cursor *c, gpuvec_thread_pool *pool, gpuvec_error *error)
{
	row_class  *class = &c->stage->classes[c->class];

	if (c->class >= OWN_CLASSES || class->unsorted)
		return sort_class(c, pool, error);
	return class->more_runs == 0 ||
		gpuvec_runs_begin(&c->runs, class, c->stage->nfilters, error);
}

/*
 * Read up to n rows, without those of blocks at or beyond nblocks.  Returns
 * the number read, 0 at the end, or -1 on failure.
 */
static int64_t
read_rows(stage_cursor *c, gpuvec_source_row *rows, uint64_t n, gpuvec_thread_pool *pool,
		  gpuvec_error *error)
{
	uint64_t	done = 0;

	while (done < n)
	{
		if (c->class >= 0 && next_in_class(c, &rows[done]))
		{
			if (gpuvec_tid_block(rows[done].tid) < c->nblocks)
				done++;
			continue;
		}
		if (c->class + 1 > NCLASSES)
			break;
		c->class++;
		if (c->stage->classes[c->class].nrows > 0 && !begin_class(c, pool, error))
			return -1;
	}
	return (int64_t) done;
}

/* A batch of segments that all threads build */
typedef struct build_task
{
	gpuvec_backend *backend;
	const gpuvec_source_row *rows;
	uint64_t	nrows;
	uint32_t	segment_rows;
	uint32_t	nfilters;
	gpuvec_segment **segments;
	pthread_mutex_t mutex;		/* guards error */
	gpuvec_error error;
	int			failed;			/* atomic */
} build_task;

/* Build and adopt one segment; called by a thread of the pool */
static void
build_segment(void *arg, uint64_t part, int thread)
{
	build_task *task = arg;
	uint64_t	first = part * task->segment_rows;
	uint64_t	n = task->nrows - first;
	gpuvec_segment *segment;
	gpuvec_error error;

	(void) thread;
	if (__atomic_load_n(&task->failed, __ATOMIC_RELAXED))
		return;
	if (n > task->segment_rows)
		n = task->segment_rows;
	segment = gpuvec_segment_build(task->rows + first, (uint32_t) n, task->nfilters, &error);
	if (segment != NULL && task->backend->adopt_segment(task->backend, segment, &error))
	{
		task->segments[part] = segment;
		return;
	}
	gpuvec_segment_unref(segment);
	pthread_mutex_lock(&task->mutex);
	task->error = error;
	pthread_mutex_unlock(&task->mutex);
	__atomic_store_n(&task->failed, 1, __ATOMIC_RELAXED);
}

uint64_t
gpuvec_segments_needed(const gpuvec_backend *backend, uint64_t nrows, int shares)
{
	uint32_t	full = gpuvec_full_segment();
	uint64_t	n = (nrows + full - 1) / full;

	if (!backend->on_device && n < (uint64_t) shares)
		n = nrows / FEWEST_ROWS < (uint64_t) shares ? nrows / FEWEST_ROWS : (uint64_t) shares;
	return n > 0 ? n : 1;
}

/* The number of rows of each segment: all get about the same size */
static uint32_t
choose_segment_rows(const gpuvec_stage_target *target)
{
	uint32_t	full = gpuvec_full_segment();
	uint64_t	n = gpuvec_segments_needed(target->backend, target->nrows, target->shares);
	uint64_t	rows = (target->nrows + n - 1) / n;

	rows = (rows + GPUVEC_TILE_ROWS - 1) / GPUVEC_TILE_ROWS * GPUVEC_TILE_ROWS;
	return (uint32_t) (rows < full ? rows : full);
}

/*
 * Read rows and build their segments, `room` rows at a time.  task->segments
 * is large enough for all segments.
 */
static bool
build_all(stage_cursor *c, const gpuvec_stage_target *target, build_task *task,
		  gpuvec_source_row *rows, uint64_t room, uint32_t *nsegments, gpuvec_error *error)
{
	gpuvec_segment **all = task->segments;
	size_t		built = 0;
	uint64_t	left = target->nrows;

	while (left > 0)
	{
		int64_t		n = read_rows(c, rows, left < room ? left : room, target->pool, error);
		uint32_t	parts;

		if (n < 0)
			return false;
		if (n == 0)
			return gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL, "rows are missing in the gpuvec engine");
		task->rows = rows;
		task->nrows = (uint64_t) n;
		task->segments = all + *nsegments;
		parts = (uint32_t) ((task->nrows + task->segment_rows - 1) / task->segment_rows);
		gpuvec_thread_pool_run(target->pool, build_segment, task, parts);
		*nsegments += parts;
		if (task->failed)
		{
			*error = task->error;
			return false;
		}
		gpuvec_stage_free_chunks(c->stage, c->retired);
		c->retired = NULL;
		for (uint32_t i = 0; i < parts; i++)
			built += gpuvec_segment_charge(task->segments[i]);
		left -= (uint64_t) n;
		if (!target->progress(target->arg, built, c->stage->bytes, error))
			return false;
	}
	return true;
}

bool
gpuvec_stage_build(gpuvec_stage *stage, const gpuvec_stage_target *target,
				   gpuvec_segment ***segments, uint32_t *nsegments, gpuvec_error *error)
{
	stage_cursor c = {.stage = stage, .nblocks = target->nblocks, .class = stage->spread ? -1 : FIRST_CLASS - 1};
	build_task	task = {
		.backend = target->backend, .segment_rows = choose_segment_rows(target),
		.nfilters = stage->nfilters
	};
	uint64_t	most = target->nrows / task.segment_rows + 1;
	uint64_t	room = (uint64_t) gpuvec_thread_pool_threads(target->pool) * task.segment_rows;
	gpuvec_source_row *rows;
	bool		ok;

	if (room > target->nrows)
		room = target->nrows;
	*nsegments = 0;
	*segments = task.segments = calloc(most, sizeof(gpuvec_segment *));
	rows = malloc((room + 1) * sizeof(gpuvec_source_row));
	if (rows == NULL || *segments == NULL)
		ok = gpuvec_fail_memory(error,
								room * sizeof(gpuvec_source_row) + most * sizeof(gpuvec_segment *));
	else
	{
		pthread_mutex_init(&task.mutex, NULL);
		ok = build_all(&c, target, &task, rows, room, nsegments, error);
		pthread_mutex_destroy(&task.mutex);
	}
	free(rows);
	free(c.sorted);
	gpuvec_runs_end(&c.runs, &c.retired);
	gpuvec_stage_free_chunks(stage, c.retired);
	for (uint32_t i = 0; ok && i < *nsegments; i++)
		(*segments)[i]->sorted = target->sorted || *nsegments >= GPUVEC_SORTED_SEGMENTS;
	if (!ok)
	{
		for (uint32_t i = 0; i < *nsegments; i++)
			gpuvec_segment_unref((*segments)[i]);
		free(*segments);
		*segments = NULL;
		*nsegments = 0;
	}
	return ok;
}
