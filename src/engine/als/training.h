/*-------------------------------------------------------------------------
 *
 * training.h
 *	  A training: the interactions, the factors of both sides, iterations.
 *
 * The order of calls: gpuvec_training_new; gpuvec_training_add, as often as
 * there are interactions; gpuvec_training_prepare; gpuvec_training_set, if
 * there are factors to begin with; gpuvec_training_iterate; and
 * gpuvec_training_copy.
 *
 * Or, to compute factors of users from given factors of items:
 * gpuvec_training_new with fold_in; gpuvec_training_set for the items;
 * gpuvec_training_add; gpuvec_training_prepare; gpuvec_training_fold_in; and
 * gpuvec_training_copy of the users.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_TRAINING_H
#define GPUVEC_TRAINING_H

#include "engine/als_backend.h"

#ifdef __cplusplus
extern "C"
{
#endif

/* engine/store/store.h */
struct gpuvec_store;

typedef struct gpuvec_training_options
{
	uint32_t	factors;		/* 1 .. GPUVEC_ALS_MAX_FACTORS */
	uint32_t	cg_steps;		/* 1 .. GPUVEC_ALS_MAX_STEPS */
	double		regularization; /* finite, at least 0 */
	double		alpha;			/* finite, more than 0 */
	int64_t		seed;
	bool		fold_in;
	gpuvec_trainer *trainer;	/* NULL: one of the store's GPUs if there is
								 * one with room, else the CPU */
} gpuvec_training_options;

typedef struct gpuvec_training gpuvec_training;

/* store: where memory is charged, or NULL.  threads: 0: one for each core. */
extern gpuvec_training *gpuvec_training_new(struct gpuvec_store *store, int threads,
											const gpuvec_training_options *options,
											gpuvec_error *error);
extern void gpuvec_training_free(gpuvec_training *training);

/* Add n interactions; weights must be finite and not zero */
extern bool gpuvec_training_add(gpuvec_training *training, uint64_t n, const int64_t *users,
								const int64_t *items, const float *weights, gpuvec_error *error);

/*
 * All interactions have come: make matrices and the first factors.  If it was
 * canceled, it fails, and the training is of no use.
 */
extern bool gpuvec_training_prepare(gpuvec_training *training, const int *canceled,
									gpuvec_error *error);

/*
 * Set the factors of n keys.  Keys without interactions are ignored; for
 * fold_in, the items get these keys.
 */
extern bool gpuvec_training_set(gpuvec_training *training, gpuvec_als_side side, uint64_t n,
								const int64_t *keys, const float *elements, gpuvec_error *error);

/*
 * One iteration.  *loss is the loss after it.  If it was canceled, it returns
 * true with factors that are of no use.
 */
extern bool gpuvec_training_iterate(gpuvec_training *training, const int *canceled, double *loss,
									gpuvec_error *error);

/* Seconds of the steps of an iteration */
typedef struct gpuvec_training_times
{
	double		users;
	double		items;
	double		loss;			/* on a GPU: and the beginning of the next
								 * iteration */
} gpuvec_training_times;

/* Those of the last iteration */
extern gpuvec_training_times gpuvec_training_last_times(const gpuvec_training *training);

/* Compute the factors of all users exactly */
extern bool gpuvec_training_fold_in(gpuvec_training *training, const int *canceled,
									gpuvec_error *error);

/* Rows of a side, and their keys in ascending order; pairs with a weight */
extern uint32_t gpuvec_training_rows(const gpuvec_training *training, gpuvec_als_side side);
extern const int64_t *gpuvec_training_keys(const gpuvec_training *training, gpuvec_als_side side);
extern uint64_t gpuvec_training_entries(const gpuvec_training *training);

/* Copy n factors, of rows first and on, to out[n * factors] */
extern bool gpuvec_training_copy(gpuvec_training *training, gpuvec_als_side side, uint32_t first,
								 uint32_t n, float *out, gpuvec_error *error);

#ifdef __cplusplus
}
#endif

#endif							/* GPUVEC_TRAINING_H */
