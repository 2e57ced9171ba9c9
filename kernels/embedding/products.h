/*-------------------------------------------------------------------------
 *
 * products.h
 *	  Gradients of the weights of pooling.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PRODUCTS_H
#define GPUVEC_PRODUCTS_H

#include <cuda_runtime.h>
#include <stdint.h>

#include "core/pooling_types.h"

namespace gpuvec
{

/* Parameters of the kernels; all pointers are to device memory */
struct weight_params
{
	const char *elements;
	uint64_t stride_bytes;
	uint32_t width;
	const uint32_t *slots;   /* [n] */
	const uint32_t *samples; /* [n]: the bag of each slot; NULL: fixed hotness */
	uint64_t hotness;
	uint64_t n;
	const float *gradient; /* [nbags][width] */
	float *out;            /* [n] */

	/* for a mean; NULL for a sum */
	const float *means;    /* [nbags][width] */
	const float *divisors; /* [nbags] */
	double *bases;         /* [nbags], scratch */
	uint64_t nbags;
	bool skip_missing;
};

/* Queue the kernels; storage is that of the elements */
extern cudaError_t
weights_launch(const struct weight_params *params, gpuvec_storage storage, cudaStream_t stream);

} // namespace gpuvec

#endif /* GPUVEC_PRODUCTS_H */
