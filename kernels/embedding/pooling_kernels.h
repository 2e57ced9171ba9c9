/*-------------------------------------------------------------------------
 *
 * pooling_kernels.h
 *	  Pooling rows of an embedding table on the GPU, and the gradients of it.
 *
 * A table has rows of width elements, float32 or float16.  A lookup names a
 * row by its number; a bag is a sequence of consecutive lookups.  Pooling
 * turns each bag into one vector (sum, mean), or each lookup (concat).
 * Vectors are float32; those of a float16 table also float16, which is the
 * float32 result rounded to nearest.
 *
 * Every function queues its work on a stream and neither waits nor allocates:
 * the caller gives the memory that the matching ..._workspace function asks
 * for, so that calls can be captured in CUDA graphs.  Nothing depends on what
 * the workspace held before.  All pointers in the structures are to device
 * memory unless said otherwise.
 *
 * Results do not depend on the GPU, the run, the launch or the alignment:
 * each element of a result is computed in float32 by this definition and no
 * other, where "sum" starts with +0 and adds from left to right, rounding to
 * nearest:
 *
 *	- A missing lookup contributes nothing.  A lookup is missing if its row
 *	number
 *	  is negative or not less than the number of rows.
 *	- A bag of at most GPUVEC_PIECE lookups: the sum of its rows; with
 *	weights,
 *	  acc = fmaf(weight, row, acc) for each.
 *	- A longer bag is cut into pieces of GPUVEC_PIECE lookups (the last may be
 *	  shorter), each summed as above.  The sums of up to GPUVEC_FAN
 *	  consecutive
 *	  pieces are summed, then the sums of up to GPUVEC_FAN consecutive groups
 *	  of
 *	  pieces, then the results of that.
 *	- The mean is this divided (correctly rounded) by the sum of the weights,
 *	or by
 *	  the number of lookups, taken in the same order; zeros if that is 0.  It
 *	  counts
 *	  missing lookups, unless skip_missing is set.  This sum alone is in
 *	  float64, and
 *	  rounded to float32 in the end, since weights of both signs may nearly
 *	  cancel; it
 *	  is infinite if it is too large, and 0 only if it was 0 before.
 *	- The gradient of row r is the sum, by the rules above for a bag, of the
 *	  gradients of the samples that looked r up, in the order of the lookups;
 *	  with
 *	  weights or for the mean by fmaf(coefficient, gradient, acc), the
 *	  coefficient
 *	  being weight, 1 / divisor or weight / divisor, in float32.  This divisor
 *	  is that
 *	  of the mean in another order: weights i, i + 32, ... of the bag are
 *	  summed for
 *	  each i < 32, then of these sums the ones 16 apart, then 8, 4, 2 and 1
 *	  apart.
 *
 * Gradients of the weights are computed by products.cu.
 *
 * Limits: fewer than 2^32 - 1 rows and 2^31 bags, strides below 2^30
 * elements; for gradients and where a bag may be longer than GPUVEC_PIECE,
 * fewer than 2^31 lookups.  Otherwise sizes are 64 bits.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_POOLING_KERNELS_H
#define GPUVEC_POOLING_KERNELS_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#include "core/pooling_types.h"

namespace gpuvec
{

/*
 * How kernels are launched.  No result depends on it, as long as all stages
 * of gradients run. What a kernel has best was found by trial; the benchmark
 * tries other values.
 */
struct pooling_policy
{
	uint32_t threads = 64; /* of a block; of those that copy rows: */
	uint32_t gather_threads = 128;
	uint64_t least_range = 1; /* bags that a group of lanes pools one after another */
	uint64_t most_range = 16;
	uint32_t least_vector_bytes = 1; /* limits of what a lane reads at once */
	uint32_t most_vector_bytes = 16;
	uint32_t slice_bytes = 512;   /* of a row, that a group of lanes reads at once; up to 512 */
	bool slice_major = false;     /* all bags for one slice, then the next slice */
	bool grad_slice_major = true; /* the same for gradients */
	bool chained = true;          /* kernels start while the one before ends */

	/*
	 * the copy engine copies rows of these bytes, if the result has less than
	 * these bytes
	 */
	uint64_t bulk_min_row = 128;
	uint64_t bulk_max_row = 2048;
	uint64_t bulk_max_result = (uint64_t) 128 << 20;

	uint32_t grad_stages = 3; /* of a gradient: 1 sorting, 2 finding pieces, 3 all */
};

/*
 * A table.  Rows start at multiples of stride elements; all rows * stride
 * elements must be readable.  A stride whose bytes are a multiple of 16 is
 * best.
 */
struct pooling_table
{
	const void *data;
	uint64_t rows;
	uint64_t stride; /* at least width */
	uint32_t width;  /* at least 1 */
	gpuvec_storage storage;
};

/*
 * Lookups, and the bags that they form: gpuvec_slot_bags
 * (embedding_backend.h), or a part of them, in device memory.
 */
struct pooling_bags
{
	const void *indices;    /* int32_t or int64_t [lookups] */
	uint32_t index_bits;    /* 32 or 64 */
	uint32_t skip_missing;  /* the divisor of the mean leaves missing lookups out */
	const int64_t *offsets; /* [bags + 1], ascending from 0 to lookups; or NULL: fixed hotness */
	uint64_t bags;
	uint64_t hotness;     /* lookups of each bag, if offsets is NULL */
	uint64_t lookups;     /* in all */
	uint64_t longest;     /* lookups of the longest bag, or more; 0: not known.  With
								 * offsets only; up to GPUVEC_PIECE saves work */
	const float *weights; /* [lookups], or NULL */
	uint32_t settled;     /* boolean, see below; gradients do not look at it */
};

/*
 * Kernels of this file start while those before them in the stream end, but
 * wait for their end before they read.  With bags that are settled, rows are
 * read before that.  So bags may be called settled only if their arrays and
 * the table were written before the host last synchronised with the stream,
 * or by what is in the stream before the latest copy, or by that copy.  It is
 * of use where calls follow each other.
 */

/*
 * Pool.  out: [bags][out_stride], for concat [lookups][out_stride], of
 * out_storage: float32, or that of the table.
 */
extern cudaError_t
pooling_forward_workspace(const struct pooling_table *table, const struct pooling_bags *bags,
						  gpuvec_pool_mode mode, size_t *bytes);
extern cudaError_t
pooling_forward(const struct pooling_policy &policy, const struct pooling_table *table,
				const struct pooling_bags *bags, gpuvec_pool_mode mode, void *out,
				gpuvec_storage out_storage, uint64_t out_stride, void *work, size_t work_bytes,
				cudaStream_t stream);

/*
 * The gradient of the table.  Compressed: out row i is the gradient of table
 * row out_rows[i], i = 0 .. *out_count - 1, out_rows ascending, each row that
 * is looked up once; there must be room for min(rows, lookups) rows.  Full:
 * out row r is that of table row r, and rows that no lookup names are left as
 * they are; out_rows and out_count may be NULL.
 */
struct pooling_grad
{
	uint64_t rows; /* of the table */
	uint32_t width;
	uint32_t full;        /* boolean */
	const float *grad;    /* of the result: [bags][grad_stride], concat [lookups][grad_stride] */
	uint64_t grad_stride; /* at least width */
	float *out;
	uint64_t out_stride; /* at least width */
	uint32_t *out_rows;
	uint32_t *out_count;
};

extern cudaError_t
pooling_grad_workspace(const struct pooling_grad *grad, const struct pooling_bags *bags,
					   gpuvec_pool_mode mode, size_t *bytes);
extern cudaError_t
pooling_grad(const struct pooling_policy &policy, const struct pooling_grad *grad,
			 const struct pooling_bags *bags, gpuvec_pool_mode mode, void *work, size_t work_bytes,
			 cudaStream_t stream);

} // namespace gpuvec

#endif /* GPUVEC_POOLING_KERNELS_H */
