/*-------------------------------------------------------------------------
 *
 * grad.cuh
 *	  The steps of the gradient of pooling, for the files that take them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_GRAD_CUH
#define GPUVEC_GRAD_CUH

#include "kernels/embedding/pool.cuh"

namespace gpuvec
{

/*
 * The number of sorted lookups of a part that has a warp for itself.  In a
 * long row, a piece begins only in every other part of GRAD_CUT lookups.
 */
#define GRAD_CUT 128

/*
 * What comes before a part of GRAD_CUT sorted lookups: counts since the
 * beginning of the tile
 */
struct grad_cut
{
	uint32_t bags;
	uint32_t partials;
	uint32_t longs;
	uint32_t start; /* position where the row of its first lookup begins */
};

/* The parameters of heads_kernel */
struct heads_params
{
	const uint32_t *keys; /* sorted rows */
	uint32_t lookups;
	uint32_t rows;
	struct pooling_counts *tiles; /* out */
	struct grad_cut *cuts;        /* out */
};

/* The parameters of grad_kernel */
struct grad_params
{
	/* sorted lookups */
	const uint32_t *keys;
	const uint32_t *samples;
	const float *coefficients; /* or NULL */
	uint32_t lookups;
	uint32_t rows;

	/* gradients of samples */
	const char *grad;
	uint32_t stride_bytes;
	uint32_t width;

	/* how the work is distributed */
	const struct pooling_counts *before; /* by tile */
	const struct grad_cut *cuts;
	uint32_t warp_tasks; /* warps per slice */
	uint32_t slices;
	uint32_t vectors;
	bool slice_major;

	/* the result */
	bool full;
	bool vector_out;     /* aligned for vector stores */
	bool vector_partial; /* the same for sums of pieces */
	float *out;
	uint64_t out_stride;
	uint32_t *out_rows; /* or NULL */
	float *partial;
	uint64_t partial_stride;
	struct pooling_long *longs;
};

/* The memory of pooling_grad */
struct grad_area
{
	uint32_t *keys[2];
	uint32_t *values[2];
	void *sort;
	uint32_t *samples; /* with coefficients only */
	float *divisors;
	struct grad_cut *cuts;
	struct pooling_pieces pieces;
};

/* True if there are coefficients */
static inline bool
has_coefficients(const struct pooling_bags *bags, gpuvec_pool_mode mode)
{
	return bags->weights != NULL || mode == GPUVEC_POOL_MEAN;
}

/*
 * In grad_lookups.cu: sort the lookups by row.  The rows end up in *rows, the
 * samples in *samples, and the coefficients, if any, in *coefficients.
 */
extern cudaError_t
grad_sort_lookups(const struct pooling_policy &policy, const struct pooling_grad *grad,
				  const struct pooling_bags *bags, gpuvec_pool_mode mode, const struct grad_area *g,
				  const uint32_t **rows, const uint32_t **samples, const float **coefficients,
				  cudaStream_t stream);

/* In grad_heads.cu: count rows and pieces of all tiles */
extern cudaError_t
grad_count_heads(const struct pooling_policy &policy, const struct heads_params &params,
				 cudaStream_t stream);

/*
 * In grad_add.cu: add up the gradients of the samples of each row.  Chooses
 * how they are read; the other parameters are complete.
 */
extern cudaError_t
grad_add(const struct pooling_policy &policy, struct grad_params *params, cudaStream_t stream);

} // namespace gpuvec

#endif /* GPUVEC_GRAD_CUH */
