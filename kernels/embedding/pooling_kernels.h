/*-------------------------------------------------------------------------
 *
 * pooling_kernels.h
 *	  Pools rows of an embedding table on the GPU, and computes the gradients
 *	  of pooling.
 *
 * A table has rows of `width` elements, float32 or float16.  A lookup names a
 * row by its number.  A bag is a sequence of consecutive lookups.  Pooling
 * turns each bag into one vector (sum, mean), or each lookup (concat).
 * Vectors are float32.  With a float16 table they may also be float16, which
 * is the float32 result rounded to nearest.
 *
 * Every function queues its work on a stream, and neither waits nor
 * allocates: the caller provides the memory that the matching ..._workspace
 * function asks for, so that calls can be captured in CUDA graphs.  The
 * previous contents of this memory do not matter.  Pointers in the structs
 * are to device memory unless said otherwise.
 *
 * Results do not depend on the GPU, the run, the launch or the alignment.
 * Each element of a result is computed in float32 by the following definition
 * and no other, where "sum" starts with +0 and adds from left to right,
 * rounding to nearest:
 *
 * - A missing lookup contributes nothing.  A lookup is missing if its row
 *   number is negative or not less than the number of rows.
 * - A bag of at most GPUVEC_PIECE lookups: the sum of its rows.  With
 *   weights, acc = fmaf(weight, row, acc) for each row.
 * - A longer bag is cut into pieces of GPUVEC_PIECE lookups (the last may be
 *   shorter), each summed as above.  The sums of up to GPUVEC_FAN
 *   consecutive pieces are summed.  Then the sums of up to GPUVEC_FAN
 *   consecutive groups of pieces are summed, then the results of that.
 * - The mean is this sum divided (correctly rounded) by the divisor: the sum
 *   of the weights, or the number of lookups, taken in the same order.  The
 *   mean is zeros if the divisor is 0.  The divisor includes missing lookups,
 *   unless skip_missing is set.  Weights of both signs may nearly cancel, so
 *   the divisor alone is summed in float64, and rounded to float32 in the
 *   end.  It is infinite if it is too large, and 0 only if it was 0 before
 *   rounding.
 * - The gradient of row r is the sum, by the rules above for a bag, of the
 *   gradients of the samples (bags) that looked r up, in the order of the
 *   lookups.  With weights or for the mean each is added by
 *   fmaf(coefficient, gradient, acc).  The coefficient is weight, 1 / divisor
 *   or weight / divisor, in float32.  This divisor is the mean's, but summed
 *   in another order: for each i < 32, weights i, i + 32, ... of the bag are
 *   summed; then of these sums those 16 apart, then 8, 4, 2 and 1 apart.
 *
 * Gradients of the weights are computed by products.cu.
 *
 * Limits: fewer than 2^32 - 1 rows and 2^31 bags, strides below 2^30
 * elements.  For gradients, and if a bag may be longer than GPUVEC_PIECE,
 * fewer than 2^31 lookups.  All other sizes have 64 bits.
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
 * How kernels are launched.  No result depends on this, as long as all stages
 * of gradients run.  embedding_tuning.cu has the numbers of each architecture;
 * the benchmark tries others.
 */
struct pooling_policy
{
	uint32_t threads; /* threads per block */
	uint32_t gather_threads;
	uint64_t least_range; /* bags that a group of lanes pools, at least */
	uint64_t most_range;
	/* bytes that a lane reads at once, at least */
	uint32_t least_vector_bytes;
	uint32_t most_vector_bytes;
	/* bytes of a row that a group of lanes reads at once, at most 512 */
	uint32_t slice_bytes;
	/* all bags for one slice come before the next slice */
	bool slice_major;
	bool grad_slice_major; /* the same for gradients */
	/* kernels start while the previous kernel ends */
	bool chained;

	/*
	 * The copy engine copies rows of bulk_min_row .. bulk_max_row bytes, if
	 * the result has less than bulk_max_result bytes
	 */
	uint64_t bulk_min_row;
	uint64_t bulk_max_row;
	uint64_t bulk_max_result;

	/*
	 * stages of a gradient to run: 1 sorting, 2 also finding pieces, 3 all
	 */
	uint32_t grad_stages;
};

/*
 * A table.  Row r starts at element r * stride; all rows * stride elements
 * must be readable.  A stride of a multiple of 16 bytes is best.
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
 * Lookups and the bags that they form: gpuvec_slot_bags
 * (embedding_backend.h), or a part of it, in device memory
 */
struct pooling_bags
{
	const void *indices; /* int32_t or int64_t [lookups] */
	uint32_t index_bits; /* 32 or 64 */
	/* boolean: the divisor of the mean leaves out missing lookups */
	uint32_t skip_missing;
	/* [bags + 1], ascending from 0 to lookups; NULL: fixed hotness */
	const int64_t *offsets;
	uint64_t bags;
	uint64_t hotness; /* lookups per bag, if offsets is NULL */
	uint64_t lookups; /* lookups of all bags */
	/*
	 * lookups of the longest bag, or an upper limit; 0: unknown.  Used with
	 * offsets only.  A value up to GPUVEC_PIECE saves work.
	 */
	uint64_t longest;
	const float *weights; /* [lookups], or NULL */
	uint32_t settled;     /* boolean, see below; gradients ignore it */
};

/*
 * Settled bags: kernels start while previous kernels of the stream end, but
 * wait for their end before they read.  If bags are settled, kernels read
 * rows before that end.
 *
 * So bags may be called settled only if their arrays and the table were
 * written before the host last synchronized with the stream, or by work in
 * the stream before the latest copy, or by that copy.  This helps if calls
 * follow each other.
 */

/*
 * Pool.  out is [bags][out_stride], for concat [lookups][out_stride].
 * out_storage is float32, or the table's.
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
 * The gradient of the table.
 *
 * Compressed: out row i is the gradient of table row out_rows[i], i = 0 ..
 * *out_count - 1.  out_rows is ascending; each row that is looked up appears
 * once.  There must be room for min(rows, lookups) rows.
 *
 * Full: out row r is the gradient of table row r.  Rows that no lookup names
 * are left as they are.  out_rows and out_count may be NULL.
 */
struct pooling_grad
{
	uint64_t rows; /* of the table */
	uint32_t width;
	uint32_t full; /* boolean */
	/*
	 * gradient of the result: [bags][grad_stride], for concat
	 * [lookups][grad_stride]
	 */
	const float *grad;
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
