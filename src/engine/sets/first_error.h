/*-------------------------------------------------------------------------
 *
 * first_error.h
 *	  The first error of several threads that work at one task.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_FIRST_ERROR_H
#define GPUVEC_FIRST_ERROR_H

#include "engine/engine_error.h"

typedef struct gpuvec_first_error
{
	int			failed;			/* changed by __atomic builtins only */
	gpuvec_error error;			/* read when all threads are done */
} gpuvec_first_error;

/* Called by a thread that has failed */
static inline void
gpuvec_first_error_keep(gpuvec_first_error *first, const gpuvec_error *error)
{
	if (__atomic_exchange_n(&first->failed, 1, __ATOMIC_RELAXED) == 0)
		first->error = *error;
}

/* True if a thread has failed: others need not go on */
static inline bool
gpuvec_first_error_is_set(const gpuvec_first_error *first)
{
	return __atomic_load_n(&first->failed, __ATOMIC_RELAXED) != 0;
}

/* The result of the task, when all threads are done */
static inline bool
gpuvec_first_error_result(const gpuvec_first_error *first, gpuvec_error *error)
{
	if (gpuvec_first_error_is_set(first))
		*error = first->error;
	return !gpuvec_first_error_is_set(first);
}

#endif							/* GPUVEC_FIRST_ERROR_H */
