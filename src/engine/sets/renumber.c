/*-------------------------------------------------------------------------
 *
 * renumber.c
 *	  From the ids of staged rows to numbers.
 *
 * Which ids are frequent is known when all rows of a load are staged.  So
 * rows are staged with their ids, those above 65,535 as if they were cold
 * numbers.  Then the ids are counted and numbered (id_counts.c), and the rows
 * get their numbers where they are (stage_slices.c).  The threads of a pool
 * share all this, and its result does not depend on how many they are.
 *
 * New ids get the next numbers in the order of the rows.  So one thread gives
 * them out, before the rows are rewritten.  An update of few rows is not
 * worth that: its rows move to another stage, one by one.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "engine/sets/first_error.h"
#include "engine/sets/id_counts.h"
#include "engine/sets/renumber.h"

/* The counts; and their order, or the map that they become */
#define COUNTS_AND_ORDER	2

/* Memory that a thread has for one row */
typedef struct row_scratch
{
	uint32_t	ids[GPUVEC_MAX_IDS];
	uint16_t	packed[GPUVEC_MOST_PACKED / sizeof(uint16_t)];

	/* for rows with values */
	uint16_t	places[GPUVEC_MAX_IDS];
	uint64_t	room[2 * GPUVEC_MAX_IDS];
} row_scratch;

/* What counting and renumbering pass to threads and visitors */
typedef struct renumbering
{
	const gpuvec_stage *stage;
	const gpuvec_stage_slice *slices;	/* of this run */
	gpuvec_id_counts *counts;
	gpuvec_id_numbers *numbers;
	gpuvec_stage *to;
	bool		values;			/* the rows have some */
	row_scratch **scratches;	/* [threads] */
	int			threads;
	gpuvec_first_error first;
} renumbering;

static bool
make_scratches(renumbering *r, int threads, gpuvec_error *error)
{
	r->scratches = calloc((size_t) threads, sizeof(row_scratch *));
	for (r->threads = 0; r->scratches != NULL && r->threads < threads; r->threads++)
	{
		r->scratches[r->threads] = malloc(sizeof(row_scratch));
		if (r->scratches[r->threads] == NULL)
			break;
	}
	return r->threads == threads || gpuvec_fail_memory(error, (size_t) threads * sizeof(row_scratch));
}

static void
free_scratches(renumbering *r)
{
	for (int i = 0; i < r->threads; i++)
		free(r->scratches[i]);
	free(r->scratches);
}

/* ---- the map ---- */

/* A thread that counts */
typedef struct counter
{
	renumbering *r;
	int			thread;
} counter;

static bool
count_row(void *arg, const gpuvec_source_row *row, gpuvec_error *error)
{
	counter    *c = arg;
	uint32_t   *ids = c->r->scratches[c->thread]->ids;

	gpuvec_unpack_numbers(row, ids);
	return gpuvec_id_counts_add(c->r->counts, c->thread, ids, row->len, error);
}

/* Count the ids of a slice; called by a thread of the pool */
static void
count_slice(void *arg, uint64_t slice, int thread)
{
	counter		c = {.r = arg, .thread = thread};
	gpuvec_error error;

	if (!gpuvec_first_error_is_set(&c.r->first) &&
		!gpuvec_stage_visit_slice(c.r->stage, &c.r->slices[slice], count_row, &c, &error))
		gpuvec_first_error_keep(&c.r->first, &error);
}

/* Count the ids of all slices; charge what that takes after each run */
static bool
count_slices(renumbering *r, const gpuvec_stage_slice *slices, uint64_t n, gpuvec_thread_pool *pool,
			 gpuvec_renumber_charge charge, void *arg, gpuvec_error *error)
{
	uint64_t	step = (uint64_t) r->threads * GPUVEC_SLICES_AT_ONCE;

	for (uint64_t i = 0; i < n; i += step)
	{
		r->slices = slices + i;
		gpuvec_thread_pool_run(pool, count_slice, r, n - i < step ? n - i : step);
		if (!gpuvec_first_error_result(&r->first, error))
			return false;
		if (charge && !charge(arg, COUNTS_AND_ORDER * gpuvec_id_counts_bytes(r->counts), error))
			return false;
	}
	return gpuvec_id_counts_finish(r->counts, pool, error) &&
		(!charge || charge(arg, COUNTS_AND_ORDER * gpuvec_id_counts_bytes(r->counts), error));
}

gpuvec_id_numbers *
gpuvec_renumber_map(const gpuvec_stage *stage, gpuvec_thread_pool *pool,
					gpuvec_renumber_charge charge, void *arg, gpuvec_error *error)
{
	int			threads = gpuvec_thread_pool_threads(pool);
	renumbering r = {.stage = stage};
	uint64_t	n;
	gpuvec_stage_slice *slices = gpuvec_stage_slices(stage, &n, error);

	if (slices != NULL && make_scratches(&r, threads, error))
		r.counts = gpuvec_id_counts_new(threads, error);
	if (r.counts != NULL && count_slices(&r, slices, n, pool, charge, arg, error))
		r.numbers = gpuvec_id_counts_rank(r.counts, pool, error);
	gpuvec_id_counts_free(r.counts);
	free_scratches(&r);
	free(slices);
	return r.numbers;
}

/* ---- the rows ---- */

/*
 * Sort a row's numbers, which are in a room, and pack them there, with the
 * values that `from` has for its ids
 */
static void
pack_row(const renumbering *r, row_scratch *scratch, const gpuvec_source_row *from,
		 gpuvec_source_row *row)
{
	if (r->values)
		gpuvec_sort_numbers_places(scratch->ids, scratch->places, row->len, scratch->room);
	else
		gpuvec_sort_numbers(scratch->ids, row->len);
	gpuvec_pack_numbers(scratch->ids, row->len, scratch->packed, row);
	if (r->values)
		gpuvec_pack_values(row, scratch->packed, gpuvec_source_sums(from), gpuvec_source_values(from),
						   scratch->places);
}

/* Give the ids of a row numbers */
static bool
add_ids(void *arg, const gpuvec_source_row *row, gpuvec_error *error)
{
	renumbering *r = arg;
	uint32_t   *ids = r->scratches[0]->ids;

	gpuvec_unpack_numbers(row, ids);
	return gpuvec_id_numbers_add(r->numbers, ids, row->len, ids, error);
}

/* The same, and move the row to the other stage */
static bool
move_row(void *arg, const gpuvec_source_row *row, gpuvec_error *error)
{
	renumbering *r = arg;
	gpuvec_source_row numbered = *row;

	if (!add_ids(r, row, error))
		return false;
	pack_row(r, r->scratches[0], row, &numbered);
	return gpuvec_stage_add(r->to, &numbered, false, error);
}

/* Write down a row's numbers; called by threads of the pool */
static void
rewrite_row(void *arg, int thread, const gpuvec_source_row *row, gpuvec_source_row *to)
{
	renumbering *r = arg;
	row_scratch *scratch = r->scratches[thread];

	gpuvec_unpack_numbers(row, scratch->ids);
	gpuvec_id_numbers_held(r->numbers, scratch->ids, row->len, scratch->ids);
	pack_row(r, scratch, row, to);
}

/* Renumber many rows, where they are */
static bool
rewrite_rows(renumbering *r, gpuvec_stage *stage, bool complete, gpuvec_thread_pool *pool,
			 gpuvec_error *error)
{
	bool		ok;

	if (!complete && !gpuvec_stage_visit(stage, add_ids, r, error))
		return false;
	gpuvec_id_numbers_hold(r->numbers);
	ok = gpuvec_stage_rewrite(stage, pool, rewrite_row, r, error);
	gpuvec_id_numbers_let_go(r->numbers);
	return ok;
}

/* Renumber few rows, in a new stage */
static bool
move_rows(renumbering *r, gpuvec_stage **stage, gpuvec_error *error)
{
	bool		ok;

	r->to = gpuvec_stage_new(gpuvec_stage_kind(*stage));
	if (r->to == NULL)
		return gpuvec_fail_memory(error, sizeof(void *));
	ok = gpuvec_stage_visit(*stage, move_row, r, error);
	gpuvec_stage_free(*stage);
	*stage = r->to;
	return ok;
}

bool
gpuvec_renumber_rows(gpuvec_stage **stage, gpuvec_id_numbers *numbers, bool complete,
					 gpuvec_thread_pool *pool, gpuvec_error *error)
{
	bool		many = gpuvec_stage_is_spread(*stage);
	renumbering r = {.numbers = numbers, .values = gpuvec_stage_kind(*stage).values};
	bool		ok = make_scratches(&r, many ? gpuvec_thread_pool_threads(pool) : 1, error);

	if (ok)
		ok = many ? rewrite_rows(&r, *stage, complete, pool, error) : move_rows(&r, stage, error);
	free_scratches(&r);
	return ok;
}
