/*-------------------------------------------------------------------------
 *
 * grad_lookups.cu
 *	  The sorted lookups of a gradient: their samples and coefficients.
 *
 * Missing lookups get the number of rows as their row.  So they come last,
 * and are left out.
 *
 * With weights, or for the mean, each lookup carries its position through the
 * sort instead of its sample.  The sample and the coefficient are fetched
 * afterwards.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/embedding/grad.cuh"
#include "kernels/embedding/sort.h"

namespace gpuvec
{

#define SAMPLES_THREADS 256
#define SAMPLES_LOOKUPS 1024 /* lookups per block */

/* The parameters of the kernels that look at bags */
struct bag_params
{
	struct pooling_bags bags; /* for concat, bags of one lookup */
	uint32_t rows;
	uint32_t *samples; /* out: [lookups] */
	float *divisors;   /* out: [bags] */
};

/* The parameters of coefficients_kernel */
struct coefficient_params
{
	uint32_t lookups;
	const uint32_t *positions; /* sorted by row */
	const uint32_t *samples;   /* by position */
	const float *weights;      /* by position, or NULL */
	const float *divisors;     /* by sample, or NULL */
	uint32_t *sorted_samples;  /* out */
	float *coefficients;       /* out */
};

/* Find the sample of each lookup */
static __global__ void
__launch_bounds__(SAMPLES_THREADS) samples_kernel(const __grid_constant__ struct bag_params p)
{
	__shared__ uint32_t first_bag;
	__shared__ uint32_t last_bag;
	const int64_t *offsets = p.bags.offsets;
	uint32_t most = (uint32_t) p.bags.bags - 1;
	uint32_t hotness = (uint32_t) p.bags.hotness;
	uint32_t begin = blockIdx.x * SAMPLES_LOOKUPS;
	uint32_t end = min(begin + SAMPLES_LOOKUPS, (uint32_t) p.bags.lookups);

	pooling_begin();
	if (offsets)
	{
		if (threadIdx.x == 0)
			first_bag = pooling_find_bag(offsets, 0, most, begin);
		if (threadIdx.x == 32)
			last_bag = pooling_find_bag(offsets, 0, most, end - 1);
		__syncthreads();
	}
	for (uint32_t i = begin + threadIdx.x; i < end; i += SAMPLES_THREADS)
		p.samples[i] = offsets        ? pooling_find_bag(offsets, first_bag, last_bag, i)
					   : hotness == 1 ? i
									  : i / hotness;
}

/* Find the lookups of a bag: begin .. end - 1 */
static __device__ __forceinline__ void
bag_lookups(const struct pooling_bags &bags, uint32_t bag, uint32_t &begin, uint32_t &end)
{
	begin = bags.offsets ? (uint32_t) bags.offsets[bag] : bag * (uint32_t) bags.hotness;
	end = bags.offsets ? (uint32_t) bags.offsets[bag + 1] : begin + (uint32_t) bags.hotness;
}

/* What a lookup adds to the divisor of a mean */
static __device__ __forceinline__ float
divisor_share(const struct bag_params &p, uint32_t position)
{
	if (p.bags.skip_missing &&
		pooling_lookup(p.bags.indices, p.bags.index_bits, p.rows, position) == POOLING_MISSING)
		return 0.0f;
	return p.bags.weights ? p.bags.weights[position] : 1.0f;
}

/* The sum over a warp; as a tree, so that the order is fixed */
static __device__ __forceinline__ double
warp_sum(double value)
{
	for (int d = 16; d > 0; d /= 2)
		value += __shfl_xor_sync(FULL_WARP, value, d);
	return value;
}

/*
 * The divisors of the means of all bags; one warp per bag.  Lane i adds up
 * lookups i, i + 32, ..., so the last bits may differ from the divisor of the
 * forward pass.
 */
static __global__ void
divisors_kernel(const __grid_constant__ struct bag_params p)
{
	uint32_t bag = (uint32_t) (((uint64_t) blockIdx.x * blockDim.x + threadIdx.x) / 32);
	/* otherwise it is the number of lookups */
	bool count = p.bags.weights || p.bags.skip_missing;
	uint32_t begin;
	uint32_t end;
	double sum = 0.0;

	pooling_begin();
	if (bag >= p.bags.bags)
		return;
	bag_lookups(p.bags, bag, begin, end);
	for (uint32_t i = begin + threadIdx.x % 32; i < end && count; i += 32)
		sum += divisor_share(p, i);
	sum = count ? warp_sum(sum) : end - begin;
	if (threadIdx.x % 32 == 0)
		p.divisors[bag] = (float) sum;
}

/* Find the samples and coefficients of sorted lookups */
static __global__ void
coefficients_kernel(const __grid_constant__ struct coefficient_params p)
{
	uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

	pooling_begin();
	if (i >= p.lookups)
		return;

	uint32_t position = p.positions[i];
	uint32_t sample = p.samples[position];
	float coefficient = p.weights ? p.weights[position] : 1.0f;

	if (p.divisors)
	{
		float divisor = p.divisors[sample];

		coefficient = divisor == 0.0f ? 0.0f : __fdiv_rn(coefficient, divisor);
	}
	p.sorted_samples[i] = sample;
	p.coefficients[i] = coefficient;
}

/* The bags as the kernels take them: for concat, bags of one lookup each */
static struct pooling_bags
plain_bags(const struct pooling_bags *bags, gpuvec_pool_mode mode)
{
	struct pooling_bags plain = *bags;

	if (mode == GPUVEC_POOL_CONCAT)
	{
		plain.offsets = NULL;
		plain.hotness = 1;
	}
	return plain;
}

/*
 * Sort the lookups by row.  The rows end up in *rows, the samples in
 * *samples, and the coefficients, if any, in *coefficients.
 */
cudaError_t
grad_sort_lookups(const struct pooling_policy &policy, const struct pooling_grad *grad,
				  const struct pooling_bags *bags, gpuvec_pool_mode mode, const struct grad_area *g,
				  const uint32_t **rows, const uint32_t **samples, const float **coefficients,
				  cudaStream_t stream)
{
	struct bag_params params = {};
	struct pooling_sort sort = {};
	struct coefficient_params coefficient = {};
	int result = pooling_sort_result((uint32_t) grad->rows);
	cudaError_t error;

	params.bags = plain_bags(bags, mode);
	params.rows = (uint32_t) grad->rows;
	sort.bags = params.bags;
	sort.rows = params.rows;
	sort.positions = has_coefficients(bags, mode);
	for (int i = 0; i < 2; i++)
	{
		sort.keys[i] = g->keys[i];
		sort.values[i] = g->values[i];
	}
	error = pooling_sort(policy, &sort, g->sort, stream);
	*rows = g->keys[result];
	*samples = g->values[result];
	*coefficients = NULL;
	if (error != cudaSuccess || !has_coefficients(bags, mode))
		return error;

	params.samples = g->samples;
	params.divisors = g->divisors;
	error = pooling_launch(policy, samples_kernel, divide_up(bags->lookups, SAMPLES_LOOKUPS),
						   SAMPLES_THREADS, params, stream);
	if (error == cudaSuccess && mode == GPUVEC_POOL_MEAN)
		error =
			pooling_launch(policy, divisors_kernel, divide_up(bags->bags, 4), 128, params, stream);
	if (error != cudaSuccess)
		return error;

	coefficient.lookups = (uint32_t) bags->lookups;
	coefficient.positions = g->values[result];
	coefficient.samples = g->samples;
	coefficient.weights = bags->weights;
	coefficient.divisors = mode == GPUVEC_POOL_MEAN ? g->divisors : NULL;
	coefficient.sorted_samples = g->values[!result];
	coefficient.coefficients = (float *) g->keys[!result];
	*samples = coefficient.sorted_samples;
	*coefficients = coefficient.coefficients;
	return pooling_launch(policy, coefficients_kernel, divide_up(bags->lookups, 256), 256,
						  coefficient, stream);
}

} // namespace gpuvec
