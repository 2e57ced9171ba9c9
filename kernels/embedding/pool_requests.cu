/*-------------------------------------------------------------------------
 *
 * pool_requests.cu
 *	  Requests to pool vectors, and for the gradients of weights.
 *
 * A request is cut into chunks of bags.  A worker has two streams, each with
 * pinned memory and, while it has a chunk, device memory.  While one stream
 * computes, the host fills or empties the other stream's pinned memory.  A
 * bag is never cut, so results do not depend on the chunks.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <stdlib.h>
#include <string.h>

#include "kernels/embedding/cuda_embedding.h"
#include "kernels/embedding/products.h"

namespace gpuvec
{

/* A chunk of a request, and the stream that serves it */
struct chunk_task
{
	struct cuda_embedding &e;
	staged_stream &stream;
	const gpuvec_device_bank *bank;
	const gpuvec_slot_bags *bags;
	struct pooling_table table; /* where the vectors are */
	struct bag_chunk chunk;
};

/* The first slot of a bag */
static uint64_t
bag_start(const gpuvec_slot_bags *bags, uint64_t bag)
{
	return bags->offsets ? bags->offsets[bag] : bag * bags->hotness;
}

/* The chunk of bags that starts with first_bag; it has at least one bag */
static struct bag_chunk
next_chunk(const struct embedding_policy &policy, const gpuvec_slot_bags *bags, uint64_t first_bag,
		   uint32_t width)
{
	uint64_t most_bags =
		std::max(std::min(policy.pinned_floats() / width, policy.chunk_bags), UINT64_C(1));
	uint64_t end = std::min(bags->nbags, first_bag + most_bags);
	struct bag_chunk c = {first_bag, 0, bag_start(bags, first_bag), 0, 0};

	for (uint64_t bag = first_bag; bag < end; bag++)
	{
		uint64_t n = bag_start(bags, bag + 1) - bag_start(bags, bag);

		if (c.nbags > 0 && c.nslots + n > policy.chunk_slots)
			break;
		c.nbags++;
		c.nslots += n;
		c.longest = std::max(c.longest, n);
	}
	return c;
}

struct chunk_arrays
take_chunk(struct arena *arena, const gpuvec_slot_bags *bags, const struct bag_chunk *c,
		   uint64_t ngradient, uint64_t nout, size_t work_bytes, struct pooling_bags *kernel_bags)
{
	struct chunk_arrays a = {};

	a.slots = arena->take<uint32_t>(c->nslots);
	if (bags->offsets)
		a.offsets = arena->take<int64_t>(c->nbags + 1);
	if (bags->weights)
		a.weights = arena->take<float>(c->nslots);
	a.gradient = arena->take<float>(ngradient);
	a.out = arena->take<float>(nout);
	a.work = arena->take<char>(work_bytes);
	kernel_bags->indices = a.slots;
	kernel_bags->offsets = a.offsets;
	kernel_bags->weights = a.weights;
	return a;
}

/* Send the offsets of a chunk's bags, counted from the chunk's first slot */
static bool
send_offsets(struct cuda_embedding &e, staged_stream &stream, int64_t *to,
			 const gpuvec_slot_bags *bags, const struct bag_chunk *c, gpuvec_error *error)
{
	size_t bytes = (c->nbags + 1) * sizeof(int64_t);
	int64_t *offsets = (int64_t *) malloc(bytes);
	bool ok;

	if (offsets == NULL)
		return gpuvec_fail_memory(error, bytes);
	for (uint64_t i = 0; i <= c->nbags; i++)
		offsets[i] = (int64_t) (bags->offsets[c->first_bag + i] - c->first_slot);
	ok = e.send(stream, to, offsets, bytes, error);
	free(offsets);
	return ok;
}

bool
send_chunk(struct cuda_embedding &e, staged_stream &stream, const struct chunk_arrays *a,
		   const gpuvec_slot_bags *bags, const struct bag_chunk *c, gpuvec_error *error)
{
	return e.send(stream, a->slots, bags->slots + c->first_slot, c->nslots * sizeof(uint32_t),
				  error) &&
		   (!bags->weights || e.send(stream, a->weights, bags->weights + c->first_slot,
									 c->nslots * sizeof(float), error)) &&
		   (!bags->offsets || send_offsets(e, stream, a->offsets, bags, c, error));
}

/*
 * The table as the kernels take it: the vectors of a bank, or of all banks
 * that share theirs
 */
static struct pooling_table
describe_table(const gpuvec_device_bank *bank, bool shared)
{
	struct pooling_table table = {};

	table.data = shared ? bank->range->shard(0) : bank->arrays.elements;
	table.rows = shared ? (uint64_t) bank->distance * bank->nbanks : bank->capacity;
	table.stride = bank->stride;
	table.width = bank->width;
	table.storage = bank->storage;
	return table;
}

struct pooling_bags
describe_chunk(const gpuvec_slot_bags *bags, const struct bag_chunk *c)
{
	static const int64_t some = 0;
	struct pooling_bags result = {};

	result.index_bits = 32;
	result.skip_missing = bags->skip_missing;
	/*
	 * sizes depend only on whether there are offsets; take_chunk() sets the
	 * pointer
	 */
	result.offsets = bags->offsets ? &some : NULL;
	result.bags = c->nbags;
	result.hotness = bags->hotness;
	result.lookups = c->nslots;
	result.longest = std::max(c->longest, UINT64_C(1));
	return result;
}

/*
 * The mode for the kernels: concat with weights is the sum of bags of one
 * slot
 */
static gpuvec_pool_mode
kernel_mode(const gpuvec_slot_bags *bags)
{
	return bags->mode == GPUVEC_POOL_CONCAT && bags->weights ? GPUVEC_POOL_SUM : bags->mode;
}

gpuvec_slot_bags
plain_slot_bags(const gpuvec_slot_bags *bags)
{
	gpuvec_slot_bags result = *bags;

	if (bags->mode == GPUVEC_POOL_CONCAT)
	{
		result.offsets = NULL;
		result.hotness = 1;
		result.nbags = bags->nslots;
	}
	return result;
}

/* Queue the work of a chunk.  Its result is in out after finish(). */
static bool
pool_chunk(const struct chunk_task &t, float *out, gpuvec_error *error)
{
	static const char *const what = "pool vectors on the GPU";
	const struct pooling_policy &policy = t.e.policy.pooling;
	const struct pooling_table &table = t.table;
	struct pooling_bags kernel_bags = describe_chunk(t.bags, &t.chunk);
	gpuvec_pool_mode mode = kernel_mode(t.bags);
	uint64_t nout = t.chunk.nbags * t.bank->width;
	struct arena arena = {NULL, 0};
	struct chunk_arrays a;
	size_t work_bytes;
	unique_memory memory;

	if (!t.e.device.check(pooling_forward_workspace(&table, &kernel_bags, mode, &work_bytes), what,
						  error))
		return false;
	take_chunk(&arena, t.bags, &t.chunk, 0, nout, work_bytes, &kernel_bags);
	if (!t.e.allocate(memory, t.stream, arena.used, "pooling", error))
		return false;
	arena = {(char *) memory.get(), 0};
	a = take_chunk(&arena, t.bags, &t.chunk, 0, nout, work_bytes, &kernel_bags);
	return send_chunk(t.e, t.stream, &a, t.bags, &t.chunk, error) &&
		   t.e.device.check(pooling_forward(policy, &table, &kernel_bags, mode, a.out,
											GPUVEC_FLOAT32, t.bank->width, a.work, work_bytes,
											t.stream.get()),
							what, error) &&
		   t.e.fetch(t.stream, out, a.out, nout * sizeof(float), error);
}

/* ---- gradients of weights ---- */

/* Device memory for gradients of weights, besides that of a chunk */
struct weights_arrays
{
	uint32_t *samples;
	float *divisors;
	double *bases;
	float *out;
};

/* Cut memory into the arrays of a chunk and of gradients of weights */
static struct chunk_arrays
take_weights(struct arena *arena, const struct chunk_task &t, size_t work_bytes,
			 struct pooling_bags *kernel_bags, struct weights_arrays *w)
{
	const struct bag_chunk *c = &t.chunk;
	bool mean = t.bags->mode == GPUVEC_POOL_MEAN;
	uint64_t n = c->nbags * t.bank->width;
	struct chunk_arrays a = take_chunk(arena, t.bags, c, n, mean ? n : 0, work_bytes, kernel_bags);

	*w = {};
	w->out = arena->take<float>(c->nslots);
	if (t.bags->offsets)
		w->samples = arena->take<uint32_t>(c->nslots);
	if (mean)
	{
		w->divisors = arena->take<float>(c->nbags);
		w->bases = arena->take<double>(c->nbags);
	}
	return a;
}

/* Send for each slot the number of its bag */
static bool
send_samples(const struct chunk_task &t, uint32_t *to, gpuvec_error *error)
{
	const struct bag_chunk *c = &t.chunk;
	uint32_t *samples = (uint32_t *) malloc(c->nslots * sizeof(uint32_t) + 1);
	bool ok;

	if (samples == NULL)
		return gpuvec_fail_memory(error, c->nslots * sizeof(uint32_t));
	for (uint64_t bag = 0; bag < c->nbags; bag++)
		for (uint64_t i = bag_start(t.bags, c->first_bag + bag);
			 i < bag_start(t.bags, c->first_bag + bag + 1); i++)
			samples[i - c->first_slot] = (uint32_t) bag;
	ok = t.e.send(t.stream, to, samples, c->nslots * sizeof(uint32_t), error);
	free(samples);
	return ok;
}

/*
 * Send what only gradients of weights need: samples, divisors, upstream
 * gradient
 */
static bool
send_weights(const struct chunk_task &t, const struct chunk_arrays *a,
			 const struct weights_arrays *w, const float *gradient, gpuvec_error *error)
{
	const struct bag_chunk *c = &t.chunk;
	uint32_t width = t.bank->width;

	return (!w->samples || send_samples(t, w->samples, error)) &&
		   (!w->divisors || t.e.send(t.stream, w->divisors, t.bags->divisors + c->first_bag,
									 c->nbags * sizeof(float), error)) &&
		   t.e.send(t.stream, a->gradient, gradient + c->first_bag * width,
					c->nbags * width * sizeof(float), error);
}

/*
 * Launch the kernels of gradients of weights.  For a mean, a->out has the
 * means.
 */
static cudaError_t
launch_weights(const struct chunk_task &t, const struct chunk_arrays *a,
			   const struct weights_arrays *w)
{
	struct weight_params params = {};

	params.elements = (const char *) t.table.data;
	params.stride_bytes = t.bank->stride_bytes;
	params.width = t.bank->width;
	params.slots = a->slots;
	params.samples = w->samples;
	params.hotness = t.bags->hotness;
	params.n = t.chunk.nslots;
	params.gradient = a->gradient;
	params.out = w->out;
	params.means = t.bags->mode == GPUVEC_POOL_MEAN ? a->out : NULL;
	params.divisors = w->divisors;
	params.bases = w->bases;
	params.nbags = t.chunk.nbags;
	params.skip_missing = t.bags->skip_missing;
	return weights_launch(&params, t.bank->storage, t.stream.get());
}

/*
 * Queue the copy of a chunk's gradients.  Waits if a bag has more slots than
 * pinned memory holds.
 */
static bool
fetch_weights(const struct chunk_task &t, const float *from, float *out, gpuvec_error *error)
{
	uint64_t most = t.e.policy.pinned_floats();

	for (uint64_t at = 0; at < t.chunk.nslots; at += most)
		if ((at > 0 && !t.e.finish(t.stream, error)) ||
			!t.e.fetch(t.stream, out + t.chunk.first_slot + at, from + at,
					   std::min(t.chunk.nslots - at, most) * sizeof(float), error))
			return false;
	return true;
}

/* Queue the work of a chunk of gradients of weights */
static bool
weights_chunk(const struct chunk_task &t, const float *gradient, float *out, gpuvec_error *error)
{
	static const char *const what = "compute gradients on the GPU";
	const struct pooling_table &table = t.table;
	struct pooling_bags kernel_bags = describe_chunk(t.bags, &t.chunk);
	bool mean = t.bags->mode == GPUVEC_POOL_MEAN;
	struct arena arena = {NULL, 0};
	struct chunk_arrays a;
	struct weights_arrays w;
	size_t work_bytes;
	unique_memory memory;

	if (!t.e.device.check(
			pooling_forward_workspace(&table, &kernel_bags, GPUVEC_POOL_MEAN, &work_bytes), what,
			error))
		return false;
	take_weights(&arena, t, work_bytes, &kernel_bags, &w);
	if (!t.e.allocate(memory, t.stream, arena.used, "gradients", error))
		return false;
	arena = {(char *) memory.get(), 0};
	a = take_weights(&arena, t, work_bytes, &kernel_bags, &w);
	return send_chunk(t.e, t.stream, &a, t.bags, &t.chunk, error) &&
		   send_weights(t, &a, &w, gradient, error) &&
		   (!mean ||
			t.e.device.check(pooling_forward(t.e.policy.pooling, &table, &kernel_bags,
											 GPUVEC_POOL_MEAN, a.out, GPUVEC_FLOAT32, t.bank->width,
											 a.work, work_bytes, t.stream.get()),
							 what, error)) &&
		   t.e.device.check(launch_weights(t, &a, &w), what, error) &&
		   fetch_weights(t, w.out, out, error);
}

/* ---- requests ---- */

/*
 * Pool, or compute the gradients of weights if gradient is not NULL, chunk by
 * chunk.  If `shared`, slots are those of all banks that share vectors.
 */
static bool
run_chunks(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_slot_bags *request,
		   bool shared, const float *gradient, float *out, gpuvec_error *error)
{
	struct cuda_embedding &e = embedding_of(vectors);
	worker_loan worker = e.take_worker(error);
	gpuvec_slot_bags bags = plain_slot_bags(request);
	bool ok = true;

	if (!worker)
		return false;
	for (uint64_t bag = 0, i = 0; ok && bag < bags.nbags && !is_canceled(bags.canceled); i++)
	{
		struct chunk_task t = {
			e,     worker->streams[i % 2],       bank,
			&bags, describe_table(bank, shared), next_chunk(e.policy, &bags, bag, bank->width)};

		ok =
			e.finish(t.stream, error) && (gradient ? weights_chunk(t, gradient, out, error)
												   : pool_chunk(t, out + bag * bank->width, error));
		bag += t.chunk.nbags;
	}
	return worker->finish(ok, error);
}

bool
pool_request(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_slot_bags *bags,
			 float *out, gpuvec_error *error)
{
	return run_chunks(vectors, bank, bags, false, NULL, out, error);
}

bool
weights_request(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_slot_bags *bags,
				const float *gradient, float *out, gpuvec_error *error)
{
	return run_chunks(vectors, bank, bags, false, gradient, out, error);
}

bool
shared_request(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_slot_bags *bags,
			   const float *gradient, float *out, gpuvec_error *error)
{
	return run_chunks(vectors, bank, bags, true, gradient, out, error);
}

} // namespace gpuvec
