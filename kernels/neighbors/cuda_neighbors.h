/*-------------------------------------------------------------------------
 *
 * cuda_neighbors.h
 *	  Finding the nearest items of items on a GPU (the interface is
 *	  neighbors_backend.h).
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CUDA_NEIGHBORS_H
#define GPUVEC_CUDA_NEIGHBORS_H

#include "engine/neighbors_backend.h"
#include "kernels/device/cuda_device.h"

namespace gpuvec
{

/* How it is done; tests try other ways */
struct neighbors_policy
{
	/* columns of a slice; fewer if that is all that fits */
	uint32_t most_columns = UINT32_MAX;
	/* for each slice and interaction; fewer are left to threads */
	uint32_t least_products = 16;
	uint64_t split_numbers = (uint64_t) 4 << 20; /* that are made on the host at a time */
};

/* NULL, with *error, if that fails.  The device must be closed after it. */
extern gpuvec_finder *
neighbors_open(struct cuda_device &device, const struct neighbors_policy &policy,
			   gpuvec_error *error);

} // namespace gpuvec

#endif /* GPUVEC_CUDA_NEIGHBORS_H */
