/*-------------------------------------------------------------------------
 *
 * product_kernels.h
 *	  The kernel that finds the nearest items of items (product_kernel.cu).
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PRODUCT_KERNELS_H
#define GPUVEC_PRODUCT_KERNELS_H

#include <cuda_runtime.h>

#include "engine/neighbors_backend.h"

namespace gpuvec
{

/* Warps of a block: each has a range of columns of its own */
constexpr uint32_t PRODUCT_WARPS = 32;

/* What the kernel works on */
struct product_params
{
	gpuvec_product_problem matrix; /* in device memory; without work */
	uint32_t nslices;              /* of the columns: blocks for each item */
	uint32_t first;                /* item of the batch */
	const uint32_t *bounds;        /* [ranges + 1]: the first column of each range */
	const uint32_t *splits;        /* [nusers * (ranges + 1)]: where ranges begin in a user's row */
	const uint32_t *order;         /* [items of the batch]: which one is whose, less `first` */
	gpuvec_scored_item *best;      /* [items of the batch * nslices * k] */
	uint32_t *counts;              /* [items of the batch * nslices] */
};

/* Most columns of a slice, given the shared memory that a block may have */
extern uint32_t
product_columns(size_t shared_limit);

/* Tell the driver how much shared memory blocks may have */
extern cudaError_t
product_prepare(size_t shared_limit);

/* Find neighbors of n items; no slice has more than `columns` columns */
extern cudaError_t
product_find(const product_params &params, uint32_t n, uint32_t columns, cudaStream_t stream);

} // namespace gpuvec

#endif /* GPUVEC_PRODUCT_KERNELS_H */
