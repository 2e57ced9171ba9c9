/*-------------------------------------------------------------------------
 *
 * exact.h
 *	  Exact solution of the system of one row.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_EXACT_H
#define GPUVEC_EXACT_H

#include "core/als_solve.h"
#include "engine/als/als_math.h"
#include "engine/instruction_sets.h"

/* Number of float64 that a solution needs for itself */
extern size_t gpuvec_exact_scratch(uint32_t factors);

/*
 * Solve for a row of half->matrix.  gram[stride * stride] is the sum of y y',
 * its elements from the diagonal on, without regularization.  If the system
 * has several solutions, a small number is added to its diagonal.
 */
extern void gpuvec_solve_exactly(const gpuvec_als_half *half, const double *gram,
								 double regularization, uint32_t factors, uint32_t row,
								 double *scratch);

/*
 * gpuvec_als_prepare() for each instruction set.  All give the same bits: no
 * sum is made in another order, and products are rounded before they are
 * added.
 */
typedef bool gpuvec_exact_prepare (const gpuvec_als_system *system, double *a, double *b);

extern gpuvec_exact_prepare gpuvec_exact_prepare_portable;
extern gpuvec_exact_prepare gpuvec_exact_prepare_avx2;
extern gpuvec_exact_prepare gpuvec_exact_prepare_avx512;

#endif							/* GPUVEC_EXACT_H */
