/*-------------------------------------------------------------------------
 *
 * gradients.cu
 *	  Requests for the gradients of vectors.
 *
 * A gradient needs all its lookups at once.  The kernels compute its rows in
 * the order of slots.  Here their keys are sorted, and the rows are copied to
 * the host in the order of keys.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <cub/device/device_radix_sort.cuh>
#include <stdlib.h>

#include "engine/host_memory.h"
#include "kernels/embedding/cuda_embedding.h"

namespace gpuvec
{

#define THREADS 256

struct key_params
{
	const int64_t *bank_keys;
	const uint32_t *slots;
	uint64_t *keys;
	uint32_t *order;
	uint32_t n;
};

#define SIGN_BIT (UINT64_C(1) << 63)

/*
 * Fetch the keys of slots, with the sign bit flipped: their order as unsigned
 * numbers is then the order of keys
 */
static __global__ void
keys_kernel(const __grid_constant__ struct key_params p)
{
	uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < p.n)
	{
		p.keys[i] = (uint64_t) p.bank_keys[p.slots[i]] ^ SIGN_BIT;
		p.order[i] = i;
	}
}

struct permute_params
{
	const float *from;
	const uint32_t *order;
	float *to;
	uint64_t n; /* elements of all rows */
	uint32_t width;
};

/* Copy rows in a given order */
static __global__ void
permute_kernel(const __grid_constant__ struct permute_params p)
{
	uint64_t i = (uint64_t) blockIdx.x * blockDim.x + threadIdx.x;

	if (i < p.n)
		p.to[i] = p.from[(uint64_t) p.order[i / p.width] * p.width + i % p.width];
}

/* A gradient that is being computed */
struct gradient
{
	struct cuda_embedding &e;
	struct embedding_worker &worker;
	const gpuvec_device_bank *bank;
	const gpuvec_slot_bags *bags; /* for concat, bags of one slot */
	unique_memory memory;         /* memory of the kernels */
	unique_memory sort_memory;
	float *out;            /* rows in the order of slots */
	uint32_t *out_rows;    /* slots of out's rows */
	const uint64_t *keys;  /* sorted, with flipped sign bits */
	const uint32_t *order; /* numbers of out's rows, sorted by key */
	uint64_t n;
};

/* The kernels' description of a gradient, without pointers */
static struct pooling_grad
describe_gradient(const struct gradient *g)
{
	struct pooling_grad grad = {};

	grad.rows = g->bank->capacity;
	grad.width = g->bank->width;
	grad.grad_stride = grad.out_stride = g->bank->width;
	return grad;
}

/*
 * Cut memory into the arrays, and set the pointers of the kernels' structs.
 * most: the number of different slots, at most
 */
static struct chunk_arrays
take_gradient(struct arena *arena, struct gradient *g, const struct bag_chunk *all, uint64_t most,
			  size_t work_bytes, struct pooling_bags *kernel_bags, struct pooling_grad *grad)
{
	uint32_t width = g->bank->width;
	struct chunk_arrays a =
		take_chunk(arena, g->bags, all, all->nbags * width, most * width, work_bytes, kernel_bags);

	g->out_rows = arena->take<uint32_t>(most);
	g->out = a.out;
	grad->grad = a.gradient;
	grad->out = a.out;
	grad->out_rows = g->out_rows;
	grad->out_count = arena->take<uint32_t>(1);
	return a;
}

/* Compute the gradient, with its rows in the order of slots */
static bool
compute_gradient(struct gradient *g, const float *upstream, uint64_t limit, gpuvec_error *error)
{
	static const char *const what = "compute gradients on the GPU";
	static const float some_weight = 0;
	staged_stream &stream = g->worker.streams[0];
	const gpuvec_slot_bags *bags = g->bags;
	struct bag_chunk all = {0, bags->nbags, 0, bags->nslots, 0};
	struct pooling_bags kernel_bags = describe_chunk(bags, &all);
	/* concat is a sum of bags of one slot */
	gpuvec_pool_mode mode = bags->mode == GPUVEC_POOL_MEAN ? GPUVEC_POOL_MEAN : GPUVEC_POOL_SUM;
	struct pooling_grad grad = describe_gradient(g);
	uint64_t most = std::min(std::min((uint64_t) g->bank->capacity, bags->nslots), limit);
	struct arena arena = {NULL, 0};
	struct chunk_arrays a;
	size_t work_bytes;
	uint32_t count;

	if (bags->nslots > INT32_MAX)
		return gpuvec_fail(error, GPUVEC_LIMIT_EXCEEDED, NULL, NULL,
						   "a gradient of more than %d keys is not supported", INT32_MAX);
	/* only sizes are asked for: they depend on whether there are weights */
	kernel_bags.weights = bags->weights ? &some_weight : NULL;
	kernel_bags.longest = 0;
	if (!g->e.device.check(pooling_grad_workspace(&grad, &kernel_bags, mode, &work_bytes), what,
						   error))
		return false;
	take_gradient(&arena, g, &all, most, work_bytes, &kernel_bags, &grad);
	if (!g->e.allocate(g->memory, stream, arena.used, "gradients", error))
		return false;
	arena = {(char *) g->memory.get(), 0};
	a = take_gradient(&arena, g, &all, most, work_bytes, &kernel_bags, &grad);
	if (!send_chunk(g->e, stream, &a, bags, &all, error) ||
		!g->e.send(stream, a.gradient, upstream, bags->nbags * g->bank->width * sizeof(float),
				   error) ||
		!g->e.device.check(pooling_grad(g->e.policy.pooling, &grad, &kernel_bags, mode, a.work,
										work_bytes, stream.get()),
						   what, error) ||
		!g->e.fetch(stream, &count, grad.out_count, sizeof(count), error) ||
		!g->e.finish(stream, error))
		return false;
	g->n = count;
	return true;
}

/*
 * Two buffers each for keys and their order, and memory for the sort itself
 */
struct sort_arrays
{
	uint64_t *keys[2];
	uint32_t *order[2];
	char *work;
};

static struct sort_arrays
take_sort(struct arena *arena, uint64_t n, size_t work_bytes)
{
	struct sort_arrays a;

	for (int i = 0; i < 2; i++)
	{
		a.keys[i] = arena->take<uint64_t>(n);
		a.order[i] = arena->take<uint32_t>(n);
	}
	a.work = arena->take<char>(work_bytes);
	return a;
}

/*
 * Sort keys and their order.  If a->work is NULL, only find out *work_bytes.
 */
static cudaError_t
sort_pairs(struct gradient *g, const struct sort_arrays *a, size_t *work_bytes, cudaStream_t stream)
{
	cub::DoubleBuffer<uint64_t> keys(a->keys[0], a->keys[1]);
	cub::DoubleBuffer<uint32_t> order(a->order[0], a->order[1]);
	cudaError_t rc = cub::DeviceRadixSort::SortPairs(a->work, *work_bytes, keys, order, (int) g->n,
													 0, 64, stream);

	g->keys = keys.Current();
	g->order = order.Current();
	return rc;
}

/* Sort the keys of the gradient */
static bool
sort_keys(struct gradient *g, gpuvec_error *error)
{
	static const char *const what = "sort keys on the GPU";
	staged_stream &stream = g->worker.streams[0];
	struct sort_arrays a = {};
	struct arena arena = {NULL, 0};
	size_t work_bytes = 0;
	struct key_params params = {};
	cudaError_t rc;

	if (!g->e.device.check(sort_pairs(g, &a, &work_bytes, stream.get()), what, error))
		return false;
	take_sort(&arena, g->n, work_bytes);
	if (!g->e.allocate(g->sort_memory, stream, arena.used, "gradients", error))
		return false;
	arena = {(char *) g->sort_memory.get(), 0};
	a = take_sort(&arena, g->n, work_bytes);
	params.bank_keys = g->bank->arrays.keys;
	params.slots = g->out_rows;
	params.keys = a.keys[0];
	params.order = a.order[0];
	params.n = (uint32_t) g->n;
	rc = launch(keys_kernel, divide_up(g->n, THREADS), THREADS, 0, stream.get(), params);
	if (rc == cudaSuccess)
		rc = sort_pairs(g, &a, &work_bytes, stream.get());
	return g->e.device.check(rc, what, error) && g->e.finish(stream, error);
}

/* Wait for both streams */
static bool
finish_both(struct gradient *g, gpuvec_error *error)
{
	return g->e.finish(g->worker.streams[0], error) && g->e.finish(g->worker.streams[1], error);
}

/* Copy the sorted keys to the host */
static bool
fetch_keys(struct gradient *g, int64_t *keys, gpuvec_error *error)
{
	const uint64_t most = g->e.policy.pinned_bytes / sizeof(uint64_t);

	for (uint64_t at = 0, i = 0; at < g->n; at += most, i++)
	{
		staged_stream &stream = g->worker.streams[i % 2];

		if (!g->e.finish(stream, error) ||
			!g->e.fetch(stream, keys + at, g->keys + at,
						std::min(most, g->n - at) * sizeof(uint64_t), error))
			return false;
	}
	if (!finish_both(g, error))
		return false;
	for (uint64_t i = 0; i < g->n; i++)
		keys[i] = (int64_t) ((uint64_t) keys[i] ^ SIGN_BIT);
	return true;
}

/* Copy the rows of the gradient to the host, in the order of their keys */
static bool
fetch_rows(struct gradient *g, float *out, gpuvec_error *error)
{
	uint32_t width = g->bank->width;
	const uint64_t most = g->e.policy.pinned_floats() / width;
	unique_memory memory[2];

	for (uint64_t at = 0, i = 0; at < g->n && !is_canceled(g->bags->canceled); at += most, i++)
	{
		staged_stream &stream = g->worker.streams[i % 2];
		struct permute_params params = {};

		if (!g->e.finish(stream, error) ||
			(!memory[i % 2] &&
			 !g->e.allocate(memory[i % 2], stream, g->e.policy.pinned_bytes, "gradients", error)))
			return false;
		params.n = std::min(most, g->n - at) * width;
		params.from = g->out;
		params.order = g->order + at;
		params.to = (float *) memory[i % 2].get();
		params.width = width;
		if (!g->e.device.check(launch(permute_kernel, divide_up(params.n, THREADS), THREADS, 0,
									  stream.get(), params),
							   "copy gradients on the GPU", error) ||
			!g->e.fetch(stream, out + at * width, params.to, params.n * sizeof(float), error))
			return false;
	}
	return finish_both(g, error);
}

/* Compute a gradient of at most `most` keys, and copy it to the host */
static bool
run_gradient(struct gradient *g, const float *upstream, uint64_t most, void **body,
			 gpuvec_error *error)
{
	size_t bytes;

	if (!compute_gradient(g, upstream, most, error))
		return false;
	bytes = g->n * (sizeof(int64_t) + g->bank->width * sizeof(float));
	*body = gpuvec_memory_new(bytes);
	if (*body == NULL)
		return gpuvec_fail_memory(error, bytes);
	return g->n == 0 || is_canceled(g->bags->canceled) ||
		   (sort_keys(g, error) && fetch_keys(g, (int64_t *) *body, error) &&
			fetch_rows(g, (float *) ((int64_t *) *body + g->n), error));
}

bool
gradient_request(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_slot_bags *request,
				 const float *upstream, uint64_t most, uint64_t *n, void **body,
				 gpuvec_error *error)
{
	struct cuda_embedding &e = embedding_of(vectors);
	gpuvec_slot_bags bags = plain_slot_bags(request);
	worker_loan worker = e.take_worker(error);

	*body = NULL;
	if (!worker)
		return false;

	struct gradient g = {e, *worker, bank, &bags, {}, {}, NULL, NULL, NULL, NULL, 0};

	if (!worker->finish(run_gradient(&g, upstream, most, body, error), error))
	{
		free(*body);
		*body = NULL;
		return false;
	}
	*n = g.n;
	return true;
}

} // namespace gpuvec
