/*-------------------------------------------------------------------------
 *
 * stage_places.h
 *	  Classes of a stage, their runs, and places in them, for the files that
 *	  put a stage in order.
 *
 * Others include stage_order.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_STAGE_PLACES_H
#define GPUVEC_STAGE_PLACES_H

#include <pthread.h>

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
	uint64_t	capacity;
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
	order_place *places;		/* [slices * most_runs] where slices begin, in
								 * the runs of the class of their first rows */
	int			nthreads;
	order_reader *readers;		/* [nthreads] */
	gpuvec_first_error first;
};

/* What the stage has counted is not what it has */
static inline bool
fail_order(gpuvec_error *error)
{
	return gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL,
					   "rows are missing in the gpuvec engine");
}

/* The class of the row at a place in the order */
static inline order_class *
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

/* The beginning of a run */
static inline order_place
begin_run(const order_run *run)
{
	return (order_place)
	{
		.tid = run->n > 0 ? run->chunks[0].tid : NO_TID
	};
}

/*
 * stage_order.c
 *
 * gpuvec_stage_make_reader	makes what a thread reads with, when it first does
 * gpuvec_stage_free_class	frees what a class has left
 */
extern bool gpuvec_stage_make_reader(gpuvec_stage_order *order, order_reader *reader,
									 gpuvec_error *error);
extern void gpuvec_stage_free_class(gpuvec_stage *stage, order_class *class);

#endif							/* GPUVEC_STAGE_PLACES_H */
