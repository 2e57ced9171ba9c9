/*-------------------------------------------------------------------------
 *
 * stage_runs.c
 *	  Rows that several sessions have staged.
 *
 * Sessions that load a mirror together have a stage each, with rows of
 * different pages.  When all are done, the chunks of each class are chained:
 * the class has a run of each stage, and each run is in the order of tid.
 * Segments want the order of all, so the runs are merged as they are read.
 *
 * Sessions read pages in ranges, so a run has many rows in sequence that no
 * other run comes between.  What remains is one comparison for each row.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "engine/sets/stage_layout.h"

/* Chain the rows of a class behind those of another */
static void
chain_class(row_class *class, row_class *other)
{
	if (other->first == NULL)
		return;
	if (class->first == NULL)
	{
		*class = *other;
		memset(other, 0, sizeof(*other));
		return;
	}
	other->first->begins_run = true;
	class->last->next = other->first;
	class->last = other->last;
	class->nrows += other->nrows;
	class->unsorted |= other->unsorted;
	class->more_runs += 1 + other->more_runs;
	memset(other, 0, sizeof(*other));
}

/* The blocks that the other stage has open are not cut any further */
static void
take_totals(gpuvec_stage *stage, gpuvec_stage *other)
{
	stage->nrows += other->nrows;
	stage->ncold += other->ncold;
	stage->bytes += other->bytes;
	stage->estimate += other->estimate;
	other->nrows = other->ncold = 0;
	other->bytes = other->estimate = 0;
	memset(other->open, 0, sizeof(other->open));
}

bool
gpuvec_stage_unite(gpuvec_stage *stage, gpuvec_stage *other, gpuvec_error *error)
{
	if ((!stage->spread && !gpuvec_stage_spread(stage, error)) ||
		(!other->spread && !gpuvec_stage_spread(other, error)))
		return false;
	for (int i = 0; i < NCLASSES; i++)
		chain_class(&stage->classes[i], &other->classes[i]);
	take_totals(stage, other);
	return true;
}

/* Note the tid of the run's next row, if it has one */
static bool
look_ahead(stage_run *run, uint32_t nfilters)
{
	gpuvec_source_row row;

	if (run->chunk == NULL)
		return false;
	(void) read_row(run->chunk->data + run->offset, &row, nfilters);
	run->tid = row.tid;
	return true;
}

/*
 * Go on with the run that comes next, up to the one that follows.  The caller
 * has noted the tids of all runs.
 */
static void
choose_run(stage_runs *runs)
{
	runs->limit = UINT64_MAX;
	runs->at = 0;
	for (uint32_t i = 1; i < runs->n; i++)
	{
		uint64_t	tid = runs->runs[i].tid;

		if (tid < runs->runs[runs->at].tid)
		{
			runs->limit = runs->runs[runs->at].tid;
			runs->at = i;
		}
		else if (tid < runs->limit)
			runs->limit = tid;
	}
}

/* Cut the list of a class's chunks into its runs */
static void
cut_runs(stage_runs *runs, row_class *class)
{
	stage_chunk *before = NULL;

	for (stage_chunk *chunk = class->first; chunk; before = chunk, chunk = chunk->next)
	{
		if (before != NULL && !chunk->begins_run)
			continue;
		if (before != NULL)
			before->next = NULL;
		runs->runs[runs->n++].chunk = chunk;
	}
	class->first = class->last = NULL;
}

bool
gpuvec_runs_begin(stage_runs *runs, row_class *class, uint32_t nfilters, gpuvec_error *error)
{
	size_t		room = (size_t) class->more_runs + 1;

	runs->n = 0;
	runs->runs = calloc(room, sizeof(stage_run));
	if (runs->runs == NULL)
		return gpuvec_fail_memory(error, room * sizeof(stage_run));
	cut_runs(runs, class);
	for (uint32_t i = 0; i < runs->n; i++)
		(void) look_ahead(&runs->runs[i], nfilters);
	choose_run(runs);
	return true;
}

/* Go on behind a chunk that has been read.  The run may be at its end. */
static void
next_chunk(stage_runs *runs, stage_run *run, stage_chunk **retired)
{
	stage_chunk *chunk = run->chunk;

	run->chunk = chunk->next;
	run->offset = 0;
	chunk->next = *retired;
	*retired = chunk;
	if (run->chunk != NULL)
		return;
	*run = runs->runs[--runs->n];
	choose_run(runs);
}

bool
gpuvec_runs_next(stage_runs *runs, uint32_t nfilters, gpuvec_source_row *row,
				 stage_chunk **retired)
{
	while (runs->n > 0)
	{
		stage_run  *run = &runs->runs[runs->at];
		size_t		bytes = read_row(run->chunk->data + run->offset, row, nfilters);

		if (row->tid < runs->limit)
		{
			run->offset += bytes;
			if (run->offset >= run->chunk->used)
				next_chunk(runs, run, retired);
			return true;
		}
		run->tid = row->tid;
		choose_run(runs);
	}
	return false;
}

void
gpuvec_runs_end(stage_runs *runs, stage_chunk **retired)
{
	for (uint32_t i = 0; i < runs->n; i++)
		while (runs->runs[i].chunk)
		{
			stage_chunk *chunk = runs->runs[i].chunk;

			runs->runs[i].chunk = chunk->next;
			chunk->next = *retired;
			*retired = chunk;
		}
	free(runs->runs);
	runs->runs = NULL;
	runs->n = 0;
}
