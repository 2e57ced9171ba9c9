/*-------------------------------------------------------------------------
 *
 * cuda_als.h
 *	  Training on a GPU (the interface is als_backend.h).
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CUDA_ALS_H
#define GPUVEC_CUDA_ALS_H

#include "engine/als_backend.h"
#include "kernels/device/cuda_device.h"

namespace gpuvec
{

/* How trainings are done; tests try other ways */
struct training_policy
{
	uint32_t piece_pairs = 128; /* the most pairs of a piece of a row */

	/* Floats that steps may read between two looks whether it is canceled */
	uint64_t look_floats = (uint64_t) 1 << 36;
};

/* NULL, with *error, if memory is lacking */
extern gpuvec_trainer *
training_open(struct cuda_device &device, const struct training_policy &policy,
			  gpuvec_error *error);

extern void
training_policy_set(gpuvec_trainer *trainer, const struct training_policy &policy);

} // namespace gpuvec

#endif /* GPUVEC_CUDA_ALS_H */
