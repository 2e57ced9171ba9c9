/*-------------------------------------------------------------------------
 *
 * grad.cu
 *	  The gradient of pooling with respect to the table.
 *
 * A sample is a bag; its gradient is the gradient of the bag's vector.  The
 * gradient of a row is the sum of the gradients of all samples that looked
 * the row up.  So lookups are sorted by row, stably (sort.cu).  Then the
 * lookups of a row form a bag whose "rows" are samples' gradients, and these
 * bags are pooled.  This takes no atomic operations, and the order of
 * additions is always the same.
 *
 * The steps: grad_lookups.cu sorts, grad_heads.cu counts where vectors go, and
 * grad_add.cu adds up.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/embedding/grad.cuh"
#include "kernels/embedding/sort.h"

namespace gpuvec
{

/* Lay out the memory; an area without a base only counts bytes */
static void
lay_out_grad(struct arena *area, const struct pooling_grad *grad, const struct pooling_bags *bags,
			 gpuvec_pool_mode mode, struct grad_area *g)
{
	uint64_t n = bags->lookups;
	uint64_t most_partials = n / (GPUVEC_PIECE / 2) + 1;
	uint64_t ntiles = divide_up(n, POOLING_TILE);

	for (int i = 0; i < 2; i++)
	{
		g->keys[i] = area->take<uint32_t>(n);
		g->values[i] = area->take<uint32_t>(n);
	}
	g->sort = area->take<char>(pooling_sort_workspace((uint32_t) grad->rows, (uint32_t) n));
	g->samples = NULL;
	g->divisors = NULL;
	if (has_coefficients(bags, mode))
	{
		g->samples = area->take<uint32_t>(n);
		g->divisors = area->take<float>(bags->bags);
	}
	g->pieces.tiles = area->take<struct pooling_counts>(ntiles);
	g->pieces.before = area->take<struct pooling_counts>(ntiles);
	g->pieces.total = area->take<struct pooling_counts>(1);
	g->cuts = area->take<struct grad_cut>(ntiles * (POOLING_TILE / GRAD_CUT));
	g->pieces.longs = area->take<struct pooling_long>(n / GPUVEC_PIECE + 2);
	g->pieces.partial_stride = pooling_partial_stride(grad->width);
	g->pieces.partial = area->take<float>(most_partials * g->pieces.partial_stride);
	g->pieces.partial_divisor = NULL;
}

/* True if the arguments are within the limits */
static bool
valid_bags(const struct pooling_bags *bags, gpuvec_pool_mode mode, uint64_t rows)
{
	return rows < UINT32_MAX && (bags->index_bits == 32 || bags->index_bits == 64) &&
		   bags->bags < POOLING_PARTIAL && bags->lookups < POOLING_PARTIAL &&
		   (mode == GPUVEC_POOL_CONCAT
				? bags->weights == NULL
				: bags->offsets != NULL || bags->lookups == bags->bags * bags->hotness);
}

static bool
valid_grad(const struct pooling_grad *grad, const struct pooling_bags *bags, gpuvec_pool_mode mode)
{
	return valid_bags(bags, mode, grad->rows) && grad->width > 0 &&
		   grad->grad_stride >= grad->width && grad->grad_stride <= UINT32_MAX / sizeof(float) &&
		   grad->out_stride >= grad->width && (!grad->full || grad->rows < POOLING_PARTIAL);
}

/* Bytes of memory that pooling_grad needs */
cudaError_t
pooling_grad_workspace(const struct pooling_grad *grad, const struct pooling_bags *bags,
					   gpuvec_pool_mode mode, size_t *bytes)
{
	struct arena area = {NULL, 0};
	struct grad_area g;

	*bytes = 0;
	if (!valid_grad(grad, bags, mode))
		return cudaErrorInvalidValue;
	lay_out_grad(&area, grad, bags, mode, &g);
	*bytes = area.used;
	return cudaSuccess;
}

/* The gradient of the table */
cudaError_t
pooling_grad(const struct pooling_policy &policy, const struct pooling_grad *grad,
			 const struct pooling_bags *bags, gpuvec_pool_mode mode, void *work, size_t work_bytes,
			 cudaStream_t stream)
{
	struct arena area = {(char *) work, 0};
	struct grad_area g;
	struct heads_params heads = {};
	struct grad_params add = {};
	uint64_t ntiles = divide_up(bags->lookups, POOLING_TILE);
	const uint32_t *rows;
	const uint32_t *samples;
	const float *coefficients;
	cudaError_t error;

	if (!valid_grad(grad, bags, mode))
		return cudaErrorInvalidValue;
	if (bags->lookups == 0)
		return grad->out_count ? cudaMemsetAsync(grad->out_count, 0, sizeof(uint32_t), stream)
							   : cudaSuccess;
	lay_out_grad(&area, grad, bags, mode, &g);
	if (work_bytes < area.used)
		return cudaErrorInvalidValue;

	error = grad_sort_lookups(policy, grad, bags, mode, &g, &rows, &samples, &coefficients, stream);
	if (error != cudaSuccess || policy.grad_stages < 2)
		return error;

	heads.keys = rows;
	heads.lookups = (uint32_t) bags->lookups;
	heads.rows = (uint32_t) grad->rows;
	heads.tiles = g.pieces.tiles;
	heads.cuts = g.cuts;
	error = grad_count_heads(policy, heads, stream);
	if (error == cudaSuccess)
		error = pooling_scan(policy, &g.pieces, ntiles, grad->out_count, stream);
	if (error != cudaSuccess || policy.grad_stages < 3)
		return error;

	add.keys = rows;
	add.samples = samples;
	add.coefficients = coefficients;
	add.lookups = (uint32_t) bags->lookups;
	add.rows = (uint32_t) grad->rows;
	add.grad = (const char *) grad->grad;
	add.stride_bytes = (uint32_t) (grad->grad_stride * sizeof(float));
	add.width = grad->width;
	add.before = g.pieces.before;
	add.cuts = g.cuts;
	add.full = grad->full != 0;
	add.out = grad->out;
	add.out_stride = grad->out_stride;
	add.out_rows = grad->out_rows;
	add.partial = g.pieces.partial;
	add.partial_stride = g.pieces.partial_stride;
	add.longs = g.pieces.longs;
	error = grad_add(policy, &add, stream);
	if (error == cudaSuccess)
		error =
			pooling_combine(policy, &g.pieces, false, grad->out, GPUVEC_FLOAT32, grad->out_stride,
							grad->width, bags->lookups / GPUVEC_PIECE, stream);
	return error;
}

} // namespace gpuvec
