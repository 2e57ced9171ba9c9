/*-------------------------------------------------------------------------
 *
 * interactions_sort.h
 *	  The steps by which interactions are sorted, for the files that take
 *	  them.
 *
 * Others include interactions.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_INTERACTIONS_SORT_H
#define GPUVEC_INTERACTIONS_SORT_H

#include "engine/als/interactions.h"

/* Entries that a thread takes at a time */
#define SLICE_ENTRIES	65536

/* The threads that sort */
typedef struct sorter_threads
{
	gpuvec_thread_pool *pool;
	const int  *canceled;		/* or NULL */
} sorter_threads;

/* A key and its number */
typedef struct numbered_key
{
	int64_t		key;
	uint32_t	number;			/* GPUVEC_NO_NUMBER: none yet */
} numbered_key;

/*
 * interactions.c
 *
 * gpuvec_als_run_slices			runs all slices of a task; false if it was
 *								canceled: some were left out
 * gpuvec_interactions_free_triples	frees the interactions, but not the keys
 */
extern bool gpuvec_als_run_slices(const sorter_threads *threads, gpuvec_slice slice, void *task,
								  uint64_t nslices);
extern void gpuvec_interactions_free_triples(gpuvec_interactions *in);

/*
 * interactions_deal.c
 *
 * gpuvec_als_deal		deals out the interactions to users, in any order;
 *						row_of[] has the row of each number, of both sides
 * gpuvec_als_transpose	transposes a matrix
 */
extern bool gpuvec_als_deal(const gpuvec_interactions *in, const sorter_threads *threads,
							uint32_t *const *row_of, gpuvec_als_matrix *users,
							gpuvec_error *error);
extern bool gpuvec_als_transpose(gpuvec_als_memory *memory, const sorter_threads *threads,
								 const gpuvec_als_matrix *from, gpuvec_als_matrix *to,
								 gpuvec_error *error);

/*
 * interactions_pairs.c: makes each pair of the users' matrix one entry, and
 * weights confidences.  kept[] has room for an element for each user.
 * may_vanish: it is no error if all confidences are too small.
 */
extern bool gpuvec_als_unite_pairs(gpuvec_side_rows *rows, const sorter_threads *threads,
								   double alpha, bool may_vanish, uint32_t *kept,
								   gpuvec_error *error);

#endif							/* GPUVEC_INTERACTIONS_SORT_H */
