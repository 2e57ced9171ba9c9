/*-------------------------------------------------------------------------
 *
 * als_math.h
 *	  Inner loops of training, compiled for several instruction sets.
 *
 * Factors are rows of `stride` floats, a multiple of GPUVEC_ALS_LANES,
 * aligned to 64 bytes; those beyond the number of factors are zero.  All
 * variants give the same bits.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ALS_MATH_H
#define GPUVEC_ALS_MATH_H

#include "engine/als_backend.h"
#include "engine/instruction_sets.h"

/* Element i of a vector is added in lane i mod 16 */
#define GPUVEC_ALS_LANES	16

/* Vectors of `stride` floats that solve and loss need for themselves */
#define GPUVEC_ALS_SCRATCH	3

/* One side is solved, the other is fixed */
typedef struct gpuvec_als_half
{
	const gpuvec_als_matrix *matrix;	/* of the side to solve */
	const float *fixed;			/* factors of the other side */
	float	   *solved;			/* factors of this side */
	const float *gram;			/* [stride * stride]: sum of y y' of the other
								 * side + regularization I */
	uint32_t	stride;
	uint32_t	cg_steps;
} gpuvec_als_half;

typedef struct gpuvec_als_math
{
	/*
	 * out[stride * stride] = the sum of y y' over n rows; only its elements
	 * from the diagonal's block of 16 columns on
	 */
	void		(*gram) (const float *rows, uint32_t n, uint32_t stride, float *out);

	/* Some steps of conjugate gradient for a row, from its present factor */
	void		(*solve) (const gpuvec_als_half *half, uint32_t row, float *scratch);

	/*
	 * The row's slice of the loss: the sum of c (p - x.y)^2 over all pairs of
	 * the row + regularization x.x
	 */
	double		(*loss) (const gpuvec_als_half *half, uint32_t row, float *scratch);
} gpuvec_als_math;

extern const gpuvec_als_math gpuvec_als_math_portable;
extern const gpuvec_als_math gpuvec_als_math_avx2;
extern const gpuvec_als_math gpuvec_als_math_avx512;

/* The best for this machine */
extern const gpuvec_als_math *gpuvec_als_best_math(void);

#endif							/* GPUVEC_ALS_MATH_H */
