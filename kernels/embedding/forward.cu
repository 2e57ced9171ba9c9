/*-------------------------------------------------------------------------
 *
 * forward.cu
 *	  Pools rows of an embedding table.
 *
 * The speed of memory limits this work.  So everything is arranged for many
 * loads in flight, with few instructions between them.
 *
 * If every lookup is a vector of the result (concat, or bags of one lookup),
 * gather.cu copies the rows.  The following is about all other cases.
 *
 * A call may take only 20 microseconds, and the gap between two kernels would
 * take one or two of them.  So kernels start while the previous kernel ends
 * (launch_chained).  If bags are settled (pooling_kernels.h), they also read
 * rows while it ends, and wait only before they write.
 *
 * Groups of lanes pool bags: long ones by bag_kernel (bags.cu), short ones by
 * stream_kernel (streams.cuh).
 *
 * Bags of more than GPUVEC_PIECE lookups are first cut into pieces
 * (pieces.cu), which then take the place of bags.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>

#include "kernels/embedding/bags.cuh"

namespace gpuvec
{

/* lookups per group of lanes in stream_kernel, on average */
#define RANGE_LOOKUPS 16

#define LONG_BAG 32 /* lookups of a long bag, on average */

/* True if some bag may have more than one piece */
static bool
may_be_long(const struct pooling_bags *bags)
{
	if (bags->offsets == NULL)
		return bags->hotness > GPUVEC_PIECE;
	return bags->lookups > GPUVEC_PIECE && (bags->longest == 0 || bags->longest > GPUVEC_PIECE);
}

/* True if the lengths of bags differ much, or are unknown */
static bool
uneven_bags(const struct pooling_bags *bags)
{
	return bags->offsets != NULL && (bags->longest == 0 || bags->bags == 0 ||
									 bags->longest > bags->lookups / bags->bags * 3 / 2);
}

/* True if the arguments are within the limits */
static bool
valid_forward(const struct pooling_table *table, const struct pooling_bags *bags,
			  gpuvec_pool_mode mode)
{
	return table->rows < UINT32_MAX && table->width > 0 && table->stride >= table->width &&
		   table->stride <= UINT32_MAX / sizeof(float) &&
		   (bags->index_bits == 32 || bags->index_bits == 64) && bags->bags < POOLING_PARTIAL &&
		   (bags->offsets != NULL || bags->hotness <= INT32_MAX) &&
		   (mode == GPUVEC_POOL_CONCAT ? bags->weights == NULL
									   : (!may_be_long(bags) || bags->lookups < POOLING_PARTIAL)) &&
		   (mode == GPUVEC_POOL_CONCAT || bags->offsets != NULL ||
			bags->lookups == bags->bags * bags->hotness);
}

/* Bytes of memory that pooling_forward needs */
cudaError_t
pooling_forward_workspace(const struct pooling_table *table, const struct pooling_bags *bags,
						  gpuvec_pool_mode mode, size_t *bytes)
{
	struct arena area = {NULL, 0};
	struct pooling_bag_pieces pieces;

	*bytes = 0;
	if (!valid_forward(table, bags, mode))
		return cudaErrorInvalidValue;
	if (mode != GPUVEC_POOL_CONCAT && may_be_long(bags))
		pooling_lay_out_bags(&area, bags, table->width, &pieces);
	*bytes = area.used;
	return cudaSuccess;
}

/*
 * Number of bags that a group of lanes pools, so that it has RANGE_LOOKUPS
 * lookups on average
 */
static uint32_t
choose_range(const struct pooling_policy &policy, uint64_t lookups, uint64_t bags)
{
	uint64_t range = bags * RANGE_LOOKUPS / std::max(lookups, UINT64_C(1));

	return (uint32_t) std::clamp(range, policy.least_range, policy.most_range);
}

/*
 * Bytes of the longest vectors with which rows are read, if each group of
 * lanes pools one bag.  With shorter vectors more lanes share a row, so fewer
 * bags share a warp.  If long bags have uneven lengths, they then wait less
 * for each other.  Short rows in bags of many lookups are 2 to 4 % faster.
 */
static uint32_t
choose_vector_bytes(const struct pooling_bags *bags, uint32_t row_bytes)
{
	if (uneven_bags(bags))
		return row_bytes <= 32 * 8 ? 8 : 16;
	if (bags->lookups / bags->bags >= LONG_BAG && row_bytes <= 16 * 8)
		return row_bytes <= 16 * 4 ? 4 : 8;
	return 16;
}

cudaError_t
pooling_forward(const struct pooling_policy &policy, const struct pooling_table *table,
				const struct pooling_bags *bags, gpuvec_pool_mode mode, void *out,
				gpuvec_storage out_storage, uint64_t out_stride, void *work, size_t work_bytes,
				cudaStream_t stream)
{
	struct pool_params params = {};
	struct pooling_bag_pieces pieces = {};
	uint32_t most_bytes;
	size_t needed;
	cudaError_t error = pooling_forward_workspace(table, bags, mode, &needed);

	if (error != cudaSuccess)
		return error;
	if (work_bytes < needed || out_stride < table->width ||
		(out_storage != GPUVEC_FLOAT32 && out_storage != table->storage))
		return cudaErrorInvalidValue;
	if (mode == GPUVEC_POOL_CONCAT ||
		(bags->offsets == NULL && bags->hotness == 1 && bags->weights == NULL))
		return pooling_gather(policy, table, bags, mode == GPUVEC_POOL_CONCAT, out, out_storage,
							  out_stride, stream);
	if (bags->bags == 0)
		return cudaSuccess;

	params.table = (const char *) table->data;
	params.stride_bytes = (uint32_t) (table->stride * pooling_element_size(table->storage));
	params.rows = (uint32_t) table->rows;
	params.width = table->width;
	params.indices = bags->indices;
	params.weights = bags->weights;
	params.index_bits = bags->index_bits;
	params.hotness = (uint32_t) bags->hotness;
	params.offsets = bags->offsets;
	params.bags = bags->bags;
	params.settled = bags->settled != 0;
	params.mean = mode == GPUVEC_POOL_MEAN;
	params.skip_missing = bags->skip_missing != 0;
	params.out = out;
	params.out_stride = out_stride;

	if (may_be_long(bags))
	{
		struct arena area = {(char *) work, 0};

		pooling_lay_out_bags(&area, bags, table->width, &pieces);
		error = pooling_cut_bags(policy, bags, &pieces, stream);
		if (error != cudaSuccess)
			return error;

		params.settled = false;
		params.offsets = pieces.offsets;
		params.count = &pieces.shared.total->pieces;
		params.bags = bags->bags + bags->lookups / (GPUVEC_PIECE / 2) + 1;
		params.dest = pieces.dest;
		params.partial = pieces.shared.partial;
		params.partial_divisor = pieces.shared.partial_divisor;
		params.partial_stride = pieces.shared.partial_stride;
	}

	params.range = choose_range(policy, bags->lookups, bags->bags);
	most_bytes =
		params.range > 1
			? 16
			: choose_vector_bytes(bags, table->width * pooling_element_size(table->storage));
	most_bytes = std::clamp(most_bytes, policy.least_vector_bytes, policy.most_vector_bytes);
	error = pooling_pool_bags(policy, &params, table->storage, out_storage, most_bytes, stream);
	if (error == cudaSuccess && params.count)
		error = pooling_combine(policy, &pieces.shared, params.mean, out, out_storage, out_stride,
								table->width, bags->lookups / GPUVEC_PIECE, stream);
	return error;
}

} // namespace gpuvec
