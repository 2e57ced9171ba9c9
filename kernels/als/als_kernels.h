/*-------------------------------------------------------------------------
 *
 * als_kernels.h
 *	  The kernels of a training on a GPU: their parameters, and functions that
 *	  queue them.
 *
 * Factors, and all vectors of conjugate gradient, are rows of `stride`
 * floats; those beyond the number of factors are zero.  All pointers are to
 * device memory.  All sums have an order that depends on nothing but the
 * sizes, so a training gives the same bits each time.
 *
 * pairs.cu		sums over the pairs of rows
 * rows.cu		conjugate gradient, from these sums
 * gram.cu		Gram matrices, and the loss
 * apply.cu		the product of vectors and a Gram matrix
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ALS_KERNELS_H
#define GPUVEC_ALS_KERNELS_H

#include <cuda_runtime.h>
#include <stdint.h>

#include "engine/als_backend.h"

namespace gpuvec
{

/*
 * A piece of a row: some of its pairs.  Rows are cut into pieces, so that
 * long ones take no longer than others.
 */
struct als_piece
{
	uint64_t first; /* entry */
	uint32_t row;
	uint32_t n; /* entries, at least 1 */
};

/* One side of a training on the device */
struct als_side_rows
{
	uint32_t nrows;
	uint32_t npieces;
	uint64_t nentries;
	struct als_piece *pieces;  /* [npieces] */
	uint32_t *first_pieces;    /* [nrows + 1] */
	gpuvec_als_entry *entries; /* [nentries] */
	float *factors;            /* [nrows][stride] */
	float *gram;               /* [stride][stride], + regularization I */
	double *sum;               /* [stride][stride]: without it */
};

/* The vectors of conjugate gradient for one side; [nrows] or [npieces] */
struct als_vectors
{
	float *r;       /* [nrows][stride]: residuals */
	float *p;       /* [nrows][stride]: directions */
	float *q;       /* [nrows][stride]: products with the Gram matrix */
	float *sums;    /* [npieces][stride]: sums over pairs */
	float *rights;  /* [npieces][stride]: parts of right sides */
	double *losses; /* [npieces]: parts of the loss */
	float *squares; /* [nrows]: r.r */
	float *least;   /* [nrows]: r.r of a row that needs no step any more */
	uint32_t *done; /* [nrows]: 1: it needs none */
};

/* Blocks that add up the loss */
static constexpr uint32_t LOSS_BLOCKS = 128;

/* The stride on the device for a number of factors */
extern uint32_t
als_stride(uint32_t nfactors);

/*
 * The residual's sums of all pieces: of (liked c - (c - 1) (x.y)) y, and, as
 * the right side, of liked c y; and the loss of their pairs without x.y over
 * all pairs
 */
extern cudaError_t
als_residual_launch(const struct als_side_rows &side, const float *fixed,
					const struct als_vectors &v, uint32_t stride, cudaStream_t stream);

/* The sums over pairs of (c - 1) (p.y) y, for rows that are not done */
extern cudaError_t
als_pairs_launch(const struct als_side_rows &side, const float *fixed, const struct als_vectors &v,
				 uint32_t stride, cudaStream_t stream);

/* After the residual's sums and v.q = G x: begin conjugate gradient */
extern cudaError_t
als_begin_launch(const struct als_side_rows &side, const struct als_vectors &v, uint32_t stride,
				 cudaStream_t stream);

/* After the sums and v.q = G p: a step for all rows that are not done */
extern cudaError_t
als_step_launch(const struct als_side_rows &side, const struct als_vectors &v, uint32_t stride,
				cudaStream_t stream);

/* out = vectors G; n vectors */
extern cudaError_t
als_apply_launch(const float *vectors, const float *gram, float *out, uint32_t n, uint32_t stride,
				 cudaStream_t stream);

/* side.gram and side.sum from side.factors; chunks is scratch */
extern cudaError_t
als_gram_launch(const struct als_side_rows &side, float *chunks, uint32_t nfactors,
				double regularization, uint32_t stride, cudaStream_t stream);
extern size_t
als_gram_scratch(uint32_t stride);

/*
 * *loss from the sums of both sides and v.losses of the users; parts is
 * scratch, [LOSS_BLOCKS]
 */
extern cudaError_t
als_loss_launch(const struct als_side_rows *sides, const struct als_vectors &v, double *partials,
				double *loss, double regularization, uint32_t stride, cudaStream_t stream);

} // namespace gpuvec

#endif /* GPUVEC_ALS_KERNELS_H */
