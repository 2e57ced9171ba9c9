/*-------------------------------------------------------------------------
 *
 * products.cu
 *	  Gradients of the weights of pooling: scalar products of gradients and
 *	  vectors.
 *
 * They are those of core/pooling_grad.h, to the bit: in float64, in 16 lanes,
 * a thread for each.  For a mean, the products of the gradients and the means
 * come first.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/embedding_backend.h"
#include "kernels/device/arena.h"
#include "kernels/device/lanes.cuh"
#include "kernels/device/launch.h"
#include "kernels/embedding/products.h"

namespace gpuvec
{

static_assert(LANES == GPUVEC_LANES, "products would be other bits");

#define THREADS 128
#define GROUPS (THREADS / LANES)

/*
 * The product of a gradient and a vector, in all threads of a group; NULL: 0
 */
template <typename T>
static __device__ __forceinline__ double
product(const float *gradient, const char *vector, uint32_t width, uint32_t lane)
{
	double sum = 0;

	if (vector != NULL)
		for (uint32_t i = lane; i < width; i += LANES)
			sum = fma((double) __ldg(gradient + i), lane_element<T>(vector, i), sum);
	folding<1, LANES / 2>::run(&sum, lane);
	return sum;
}

/* The products of the gradients and the means of all bags */
static __global__ void
__launch_bounds__(THREADS) bases_kernel(const __grid_constant__ struct weight_params p)
{
	uint64_t bag = (uint64_t) blockIdx.x * GROUPS + threadIdx.x / LANES;
	uint32_t lane = threadIdx.x % LANES;
	uint64_t at = bag * p.width;
	const char *mean = bag < p.nbags ? (const char *) (p.means + at) : NULL;
	double base = product<float>(p.gradient + at, mean, p.width, lane);

	if (bag < p.nbags && lane == 0)
		p.bases[bag] = base;
}

/* The gradients of all weights */
template <typename T>
static __global__ void
__launch_bounds__(THREADS) weights_kernel(const __grid_constant__ struct weight_params p)
{
	uint64_t i = (uint64_t) blockIdx.x * GROUPS + threadIdx.x / LANES;
	uint32_t lane = threadIdx.x % LANES;
	uint32_t slot = i < p.n ? p.slots[i] : GPUVEC_NO_SLOT;
	uint64_t bag = i >= p.n ? 0 : p.samples ? p.samples[i] : i / p.hotness;
	const char *vector = slot != GPUVEC_NO_SLOT ? p.elements + slot * p.stride_bytes : NULL;
	double result = product<T>(p.gradient + bag * p.width, vector, p.width, lane);

	if (i >= p.n || lane != 0)
		return;
	if (p.means != NULL)
	{
		float divisor = p.divisors[bag];

		if (divisor == 0 || (vector == NULL && p.skip_missing))
			result = 0;
		else
			result = (result - p.bases[bag]) / divisor;
	}
	p.out[i] = (float) result;
}

cudaError_t
weights_launch(const struct weight_params *params, gpuvec_storage storage, cudaStream_t stream)
{
	uint64_t blocks = divide_up(params->n, GROUPS);

	if (params->means != NULL)
	{
		cudaError_t rc =
			launch(bases_kernel, divide_up(params->nbags, GROUPS), THREADS, 0, stream, *params);

		if (rc != cudaSuccess)
			return rc;
	}
	if (storage == GPUVEC_FLOAT16)
		return launch(weights_kernel<__half>, blocks, THREADS, 0, stream, *params);
	return launch(weights_kernel<float>, blocks, THREADS, 0, stream, *params);
}

} // namespace gpuvec
