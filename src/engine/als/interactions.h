/*-------------------------------------------------------------------------
 *
 * interactions.h
 *	  Interactions of users and items: collected as they come, then sorted
 *	  into a sparse matrix by users and one by items.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_INTERACTIONS_H
#define GPUVEC_INTERACTIONS_H

#include "engine/als/key_numbers.h"
#include "engine/als_backend.h"
#include "engine/thread_pool.h"

/* A side: its keys in ascending order, and its matrix */
typedef struct gpuvec_side_rows
{
	int64_t    *keys;			/* [n] */
	uint32_t	n;
	gpuvec_als_matrix matrix;	/* n rows */
} gpuvec_side_rows;

/* An interaction as it came, with numbers in the order of coming */
typedef struct gpuvec_triple
{
	uint32_t	number[2];		/* of gpuvec_als_side */
	float		weight;
} gpuvec_triple;

#define GPUVEC_BLOCK_TRIPLES	262144

typedef struct gpuvec_triple_block
{
	struct gpuvec_triple_block *next;
	uint32_t	n;
	gpuvec_triple triples[GPUVEC_BLOCK_TRIPLES];
} gpuvec_triple_block;

typedef struct gpuvec_interactions
{
	gpuvec_als_memory *memory;
	gpuvec_key_numbers numbers[2];	/* of gpuvec_als_side */
	bool		known_items;	/* interactions with items that have no number
								 * yet are left out, and items without
								 * interactions stay */
	gpuvec_triple_block *blocks;	/* in reverse order of coming */
	uint64_t	ntriples;
} gpuvec_interactions;

extern void gpuvec_interactions_init(gpuvec_interactions *in, gpuvec_als_memory *memory);
extern void gpuvec_interactions_free(gpuvec_interactions *in);

/* Add n interactions; weights must be finite and not zero */
extern bool gpuvec_interactions_add(gpuvec_interactions *in, gpuvec_thread_pool *pool, uint64_t n,
									const int64_t *users, const int64_t *items,
									const float *weights, gpuvec_error *error);

/* Set the error of a preparation that was canceled; returns false */
extern bool gpuvec_als_fail_canceled(gpuvec_error *error);

/*
 * Sort all interactions into the matrices of both sides, and free them.  With
 * known_items, the matrix of the items has no entries.  On failure, rows[] is
 * empty; if it was canceled, it fails.
 */
extern bool gpuvec_interactions_sort(gpuvec_interactions *in, gpuvec_thread_pool *pool,
									 double alpha, const int *canceled, gpuvec_side_rows *rows,
									 gpuvec_error *error);
extern void gpuvec_side_rows_free(gpuvec_als_memory *memory, gpuvec_side_rows *rows);

/* The row of a key, or GPUVEC_NO_NUMBER */
extern uint32_t gpuvec_als_find_row(const gpuvec_side_rows *rows, int64_t key);

#endif							/* GPUVEC_INTERACTIONS_H */
