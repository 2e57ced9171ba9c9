/*-------------------------------------------------------------------------
 *
 * stage_build.c
 *	  Building segments of staged rows.
 *
 * Each segment is built, and adopted by the backend, by one thread, which
 * reads the rows of it from the stage (stage_order.c).
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "engine/fault.h"
#include "engine/sets/first_error.h"
#include "engine/sets/stage_layout.h"
#include "engine/sets/stage_order.h"

/*
 * On the CPU, threads share a search by segments, so small mirrors are cut
 * into more segments, but not into ones of less than FEWEST_ROWS rows
 */
#define FEWEST_ROWS		8192

/*
 * Segments for each thread in one run of the pool, which others wait for
 */
#define SEGMENTS_AT_ONCE	2

uint32_t
gpuvec_full_segment(void)
{
	long		rows;

	return gpuvec_fault("full-segment", &rows) ? (uint32_t) rows : GPUVEC_SEGMENT_ROWS;
}

/* Segments that all threads build */
typedef struct build_task
{
	const gpuvec_stage_target *target;
	gpuvec_stage_order *order;
	gpuvec_row_kind kind;
	uint64_t	begin;			/* first segment of this run */
	gpuvec_segment **segments;
	gpuvec_first_error first;
} build_task;

/* Read the rows of a segment, and build it; NULL on failure */
static gpuvec_segment *
build(build_task *task, uint64_t number, int thread, gpuvec_error *error)
{
	uint32_t	n;
	const gpuvec_source_row *rows = gpuvec_stage_order_read(task->order, number, thread, &n, error);
	gpuvec_segment *segment;

	if (rows == NULL)
		return NULL;
	segment = gpuvec_segment_build(rows, n, task->kind, error);
	gpuvec_stage_order_done(task->order, thread);
	if (segment && task->target->name_rows)
		task->target->name_rows(task->target->arg, segment);
	return segment;
}

/* Build and adopt one segment; called by a thread of the pool */
static void
build_segment(void *arg, uint64_t slice, int thread)
{
	build_task *task = arg;
	gpuvec_backend *backend = task->target->backend;
	uint64_t	number = task->begin + slice;
	gpuvec_segment *segment;
	gpuvec_error error;

	if (gpuvec_first_error_is_set(&task->first))
		return;
	segment = build(task, number, thread, &error);
	if (segment != NULL && backend->adopt_segment(backend, segment, &error))
	{
		task->segments[number] = segment;
		return;
	}
	gpuvec_segment_unref(segment);
	gpuvec_first_error_keep(&task->first, &error);
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
 * Build all segments, a few for each thread at a time.  The last run may have
 * some more, as most threads would idle in one of few segments.
 */
static bool
build_all(build_task *task, const gpuvec_stage *stage, const gpuvec_stage_target *target,
		  gpuvec_error *error)
{
	uint64_t	step = (uint64_t) gpuvec_thread_pool_threads(target->pool) * SEGMENTS_AT_ONCE;
	uint64_t	all = gpuvec_stage_order_slices(task->order);
	uint64_t	slices;
	size_t		built = 0;

	for (task->begin = 0; task->begin < all; task->begin += slices)
	{
		uint64_t	left = all - task->begin;

		slices = left < step + step / 2 ? left : step;
		gpuvec_thread_pool_run(target->pool, build_segment, task, slices);
		if (!gpuvec_first_error_result(&task->first, error))
			return false;
		for (uint64_t i = 0; i < slices; i++)
			built += gpuvec_segment_charge(task->segments[task->begin + i]);
		if (!target->progress(target->arg, built, stage->bytes, error))
			return false;
	}
	return true;
}

bool
gpuvec_stage_build(gpuvec_stage *stage, const gpuvec_stage_target *target,
				   gpuvec_segment ***segments, uint32_t *nsegments, gpuvec_error *error)
{
	uint32_t	rows = choose_segment_rows(target);
	uint64_t	n = (target->nrows + rows - 1) / rows;
	build_task	task = {.target = target, .kind = stage->kind};
	bool		ok;

	*segments = NULL;
	*nsegments = 0;
	task.segments = calloc(n + 1, sizeof(gpuvec_segment *));
	if (task.segments == NULL)
		return gpuvec_fail_memory(error, n * sizeof(gpuvec_segment *));
	task.order = gpuvec_stage_order_new(stage, target->nblocks, target->nrows, rows, target->pool, error);
	ok = task.order != NULL && build_all(&task, stage, target, error);
	gpuvec_stage_order_free(task.order);
	if (!ok)
	{
		for (uint64_t i = 0; i < n; i++)
			gpuvec_segment_unref(task.segments[i]);
		free(task.segments);
		return false;
	}
	for (uint64_t i = 0; i < n; i++)
		task.segments[i]->sorted = target->sorted || n >= GPUVEC_SORTED_SEGMENTS;
	*segments = task.segments;
	*nsegments = (uint32_t) n;
	return true;
}
