/*-------------------------------------------------------------------------
 *
 * vectors.cu
 *	  The vectors of embedding tables in the memory of the GPU, and requests to
 *	  pool them.
 *
 * A bank is one allocation: vectors, keys, tids, the flags of live slots, and the hash table
 * of the keys, which keys.cu makes.  It grows
 * by making a larger one and copying.  New vectors are collected on the host with
 * their slots, keys and tids, and go to the device some megabytes at a time, where a
 * kernel puts each in its slot.
 *
 * A request to pool is cut into chunks of bags.  A worker has two halves, each with a
 * stream, pinned memory and, for the time of a chunk, device memory; while one half
 * computes, the host fills the other's pinned memory or empties it.  What a request
 * gets does not depend on the chunks, for a bag is never cut.
 *
 * A gradient needs all its lookups at once.  The kernels give it in the order of slots;
 * the keys are sorted here, and the rows go to the host in their order.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <new>
#include <stdlib.h>
#include <string.h>
#include <cub/device/device_radix_sort.cuh>

#include "engine/host_memory.h"
#include "kernels/embedding/cuda_vectors.h"

/* Vectors that are collected before they go to the device */
#ifdef EMULATION
#define RECORDS_BYTES		((size_t) 16 << 10)
#else
#define RECORDS_BYTES		((size_t) 4 << 20)
#endif
#define FIRST_RECORDS		16

/* Limits of a chunk, unless one bag has more; small ones let tests find more */
#ifdef EMULATION
#define CHUNK_SLOTS			UINT64_C(500)
#define CHUNK_BAGS			UINT64_C(50)
#else
#define CHUNK_SLOTS			((uint64_t) 1 << 20)
#define CHUNK_BAGS			((uint64_t) 1 << 19)
#endif
#define CHUNK_FLOATS		(VECTORS_PINNED / sizeof(float))

#define THREADS				256

/* What precedes a vector on its way */
struct __align__(16) record_head
{
	int64_t		key;
	uint64_t	tid;
	uint32_t	slot;
	uint32_t	padding[3];
};

/* ---- workers ---- */

/* Get what a half needs, once */
static bool
prepare_half(struct cuda_vectors *v, struct vector_half *half, gpuvec_error *error)
{
	if (half->stream == NULL &&
		!cuda_check(v->b, cudaStreamCreateWithFlags(&half->stream, cudaStreamNonBlocking),
					"create a CUDA stream", error))
		return false;
	if (half->up == NULL &&
		!cuda_check(v->b, cudaHostAlloc((void **) &half->up, VECTORS_PINNED, cudaHostAllocDefault),
					"allocate pinned memory", error))
		return false;
	return half->down != NULL ||
		cuda_check(v->b, cudaHostAlloc((void **) &half->down, VECTORS_PINNED, cudaHostAllocDefault),
				   "allocate pinned memory", error);
}

/* Wait for a free worker and take it.  NULL and *error if it cannot be used. */
struct vector_worker *
take_worker(struct cuda_vectors *v, gpuvec_error *error)
{
	struct vector_worker *worker = NULL;

	if (!cuda_enter(v->b, error))
		return NULL;
	pthread_mutex_lock(&v->lock);
	for (;;)
	{
		for (int i = 0; i < VECTORS_WORKERS && worker == NULL; i++)
			if (!v->workers[i].busy)
				worker = &v->workers[i];
		if (worker != NULL)
			break;
		pthread_cond_wait(&v->idle, &v->lock);
	}
	worker->busy = true;
	pthread_mutex_unlock(&v->lock);
	if (prepare_half(v, &worker->halves[0], error) && prepare_half(v, &worker->halves[1], error))
		return worker;
	put_worker(v, worker);
	return NULL;
}

void
put_worker(struct cuda_vectors *v, struct vector_worker *worker)
{
	pthread_mutex_lock(&v->lock);
	worker->busy = false;
	pthread_cond_signal(&v->idle);
	pthread_mutex_unlock(&v->lock);
}

bool
send_up(struct cuda_vectors *v, struct vector_half *half, void *to, const void *from, size_t bytes,
		gpuvec_error *error)
{
	static const char *const what = "copy data to the GPU";

	for (size_t at = 0; at < bytes;)
	{
		size_t		n = std::min(bytes - at, VECTORS_PINNED - half->up_used);

		if (n == 0)
		{
			if (!cuda_check(v->b, cudaStreamSynchronize(half->stream), what, error))
				return false;
			half->up_used = 0;
			continue;
		}
		memcpy(half->up + half->up_used, (const char *) from + at, n);
		if (!cuda_check(v->b, cudaMemcpyAsync((char *) to + at, half->up + half->up_used, n,
											  cudaMemcpyHostToDevice, half->stream), what, error))
			return false;
		half->up_used += n;
		at += n;
	}
	return true;
}

bool
fetch(struct cuda_vectors *v, struct vector_half *half, void *to, const void *from, size_t bytes,
	  gpuvec_error *error)
{
	half->target = to;
	half->target_bytes = bytes;
	return bytes == 0 ||
		cuda_check(v->b, cudaMemcpyAsync(half->down, from, bytes, cudaMemcpyDeviceToHost,
										 half->stream), "copy data from the GPU", error);
}

bool
finish(struct cuda_vectors *v, struct vector_half *half, gpuvec_error *error)
{
	if (!cuda_check(v->b, cudaStreamSynchronize(half->stream), "pool vectors on the GPU", error))
		return false;
	if (half->target_bytes > 0)
		memcpy(half->target, half->down, half->target_bytes);
	half->target_bytes = 0;
	half->up_used = 0;
	return true;
}

void
drain(struct cuda_vectors *v, struct vector_worker *worker)
{
	gpuvec_error ignored;

	for (int i = 0; i < 2 && cuda_enter(v->b, &ignored); i++)
	{
		cudaStreamSynchronize(worker->halves[i].stream);
		cudaGetLastError();
	}
	for (int i = 0; i < 2; i++)
	{
		worker->halves[i].target_bytes = 0;
		worker->halves[i].up_used = 0;
	}
}

bool
end_work(struct cuda_vectors *v, struct vector_worker *worker, bool ok, gpuvec_error *error)
{
	ok = ok && finish(v, &worker->halves[0], error) && finish(v, &worker->halves[1], error);
	if (!ok)
		drain(v, worker);
	put_worker(v, worker);
	return ok;
}

bool
half_alloc(struct cuda_vectors *v, struct vector_half *half, void **memory, size_t bytes,
		   const char *what, gpuvec_error *error)
{
	return device_alloc(v->b, memory, std::max(bytes, (size_t) 256), half->stream, what, error);
}

/* ---- banks ---- */

static gpuvec_device_bank *
make_bank(gpuvec_vectors *vectors, uint32_t width, bool half, gpuvec_error *error)
{
	gpuvec_device_bank *bank = (gpuvec_device_bank *) calloc(1, sizeof(*bank));
	uint32_t	element_bytes = half ? 2 : 4;

	(void) vectors;
	if (bank == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*bank));
		return NULL;
	}
	bank->width = width;
	bank->half = half;
	bank->stride_bytes = ((size_t) width * element_bytes + 15) / 16 * 16;
	bank->stride = (uint32_t) (bank->stride_bytes / element_bytes);
	pthread_mutex_init(&bank->mutex, NULL);
	return bank;
}

/* Free device memory that no request uses */
static void
release_memory(struct cuda_vectors *v, void *memory)
{
	gpuvec_error ignored;

	/* the default stream: nothing is under way */
	if (memory != NULL && cuda_enter(v->b, &ignored))
		device_free(v->b, memory, NULL);
}

static void
release_bank(gpuvec_vectors *vectors, gpuvec_device_bank *bank)
{
	if (bank == NULL)
		return;
	release_memory((struct cuda_vectors *) vectors, bank->memory);
	pthread_mutex_destroy(&bank->mutex);
	free(bank->records);
	free(bank);
}

/* Cut a bank's memory into arrays, or only find out how much it is */
static size_t
lay_out_bank(gpuvec_device_bank *bank, void *memory, uint32_t room)
{
	struct pooling_area area = {(char *) memory, 0};

	bank->memory = memory;
	bank->room = room;
	bank->elements = area.take<char>(room * bank->stride_bytes);
	bank->keys = area.take<int64_t>(room);
	bank->tids = area.take<uint64_t>(room);
	bank->live = area.take<uint8_t>(room);
	bank->entries = area.take<struct key_entry>(key_entries(room));
	return area.used;
}

static size_t
bank_bytes(const gpuvec_device_bank *bank, uint32_t room)
{
	gpuvec_device_bank copy = *bank;

	return lay_out_bank(&copy, NULL, room);
}

/* Copy what a smaller bank has to a larger one */
static cudaError_t
copy_bank(gpuvec_device_bank *to, const gpuvec_device_bank *from, cudaStream_t stream)
{
	size_t		n = from->room;
	cudaError_t rc = cudaMemcpyAsync(to->elements, from->elements, n * from->stride_bytes,
									 cudaMemcpyDeviceToDevice, stream);

	if (rc == cudaSuccess)
		rc = cudaMemcpyAsync(to->keys, from->keys, n * sizeof(int64_t), cudaMemcpyDeviceToDevice,
							 stream);
	if (rc == cudaSuccess)
		rc = cudaMemcpyAsync(to->tids, from->tids, n * sizeof(uint64_t), cudaMemcpyDeviceToDevice,
							 stream);
	return rc;
}

static bool
reserve(gpuvec_vectors *vectors, gpuvec_device_bank *bank, uint32_t room, gpuvec_error *error)
{
	struct cuda_vectors *v = (struct cuda_vectors *) vectors;
	struct vector_worker *worker = take_worker(v, error);
	gpuvec_device_bank larger = *bank;
	void	   *memory = NULL;
	bool		ok;

	if (worker == NULL)
		return false;
	ok = half_alloc(v, &worker->halves[0], &memory, bank_bytes(bank, room), "vectors", error);
	if (ok)
	{
		lay_out_bank(&larger, memory, room);
		ok = (bank->memory == NULL ||
			  cuda_check(v->b, copy_bank(&larger, bank, worker->halves[0].stream),
						 "copy vectors on the GPU", error)) &&
			cuda_check(v->b, cudaStreamSynchronize(worker->halves[0].stream),
					   "copy vectors on the GPU", error);
	}
	put_worker(v, worker);
	release_memory(v, ok ? bank->memory : memory);
	if (ok)
	{
		lay_out_bank(bank, memory, room);
		bank->live_version = 0;
	}
	return ok;
}

/* ---- filling slots ---- */

struct put_params
{
	const uint4 *records;
	uint32_t	nrecords;
	uint32_t	vectors;		/* of 16 bytes, of each vector */
	uint4	   *elements;
	int64_t    *keys;
	uint64_t   *tids;
};

/* Put vectors in their slots: a thread for each 16 bytes */
static __global__ void
put_kernel(const __grid_constant__ struct put_params p)
{
	uint32_t	parts = p.vectors + sizeof(struct record_head) / sizeof(uint4);
	uint64_t	i = (uint64_t) blockIdx.x * blockDim.x + threadIdx.x;
	uint32_t	number = (uint32_t) (i / parts);
	uint32_t	part = (uint32_t) (i % parts);
	const uint4 *record = p.records + (uint64_t) number * parts;
	const struct record_head *head = (const struct record_head *) record;

	if (number >= p.nrecords)
		return;
	if (part == 0)
	{
		p.keys[head->slot] = head->key;
		p.tids[head->slot] = head->tid;
	}
	else if (part >= parts - p.vectors)
		p.elements[(uint64_t) head->slot * p.vectors + part - (parts - p.vectors)] = record[part];
}

/* Bytes of a vector on its way */
static size_t
record_bytes(const gpuvec_device_bank *bank)
{
	return sizeof(struct record_head) + bank->stride_bytes;
}

/* Send the vectors that were collected */
static bool
send_records(struct cuda_vectors *v, struct vector_half *half, gpuvec_device_bank *bank,
			 gpuvec_error *error)
{
	size_t		bytes = bank->nrecords * record_bytes(bank);
	struct put_params params = {};
	void	   *memory;
	bool		ok;

	if (!half_alloc(v, half, &memory, bytes, "new vectors", error))
		return false;
	params.records = (const uint4 *) memory;
	params.nrecords = bank->nrecords;
	params.vectors = (uint32_t) (bank->stride_bytes / sizeof(uint4));
	params.elements = (uint4 *) bank->elements;
	params.keys = bank->keys;
	params.tids = bank->tids;
	ok = send_up(v, half, memory, bank->records, bytes, error) &&
		cuda_check(v->b, pooling_launch(put_kernel, pooling_divide_up(bytes / sizeof(uint4), THREADS), THREADS,
									params, half->stream), "store vectors on the GPU", error);
	device_free(v->b, memory, half->stream);
	return ok;
}

/* Nothing is on its way any more */
static void
forget(gpuvec_device_bank *bank)
{
	free(bank->records);
	bank->records = NULL;
	bank->nrecords = bank->room_records = 0;
}

static bool
flush_some(gpuvec_vectors *vectors, gpuvec_device_bank *bank, gpuvec_error *error)
{
	struct cuda_vectors *v = (struct cuda_vectors *) vectors;
	struct vector_worker *worker;
	bool		ok;

	if (bank->nrecords == 0)
		return true;
	worker = take_worker(v, error);
	if (worker == NULL)
		return false;
	ok = end_work(v, worker, send_records(v, &worker->halves[0], bank, error), error);
	if (ok)
		bank->nrecords = 0;
	return ok;
}

static bool
flush(gpuvec_vectors *vectors, gpuvec_device_bank *bank, gpuvec_error *error)
{
	if (!flush_some(vectors, bank, error))
		return false;
	forget(bank);
	return true;
}

/* Make room for one more vector on its way */
static bool
reserve_record(gpuvec_vectors *vectors, gpuvec_device_bank *bank, gpuvec_error *error)
{
	size_t		most = std::max(RECORDS_BYTES / record_bytes(bank), (size_t) 1);
	size_t		room = std::min(most, std::max((size_t) bank->room_records * 2, (size_t) FIRST_RECORDS));
	char	   *records;

	if (bank->nrecords < bank->room_records)
		return true;
	if (bank->nrecords == most)
		return flush_some(vectors, bank, error);
	records = (char *) realloc(bank->records, room * record_bytes(bank));
	if (records == NULL)
		return gpuvec_fail_memory(error, room * record_bytes(bank));
	bank->records = records;
	bank->room_records = (uint32_t) room;
	return true;
}

static bool
put(gpuvec_vectors *vectors, gpuvec_device_bank *bank, uint32_t slot, int64_t key, uint64_t tid,
	const void *elements, gpuvec_error *error)
{
	size_t		bytes = (size_t) bank->width * (bank->half ? 2 : 4);
	struct record_head head = {};
	char	   *to;

	if (!reserve_record(vectors, bank, error))
		return false;
	head.slot = slot;
	head.key = key;
	head.tid = tid;
	to = bank->records + bank->nrecords++ * record_bytes(bank);
	memcpy(to, &head, sizeof(head));
	to += sizeof(head);
	memcpy(to, elements, bytes);
	memset(to + bytes, 0, bank->stride_bytes - bytes);
	return true;
}

/* ---- pooling ---- */

/* Some consecutive bags of a request */
struct chunk
{
	uint64_t	first_bag;
	uint64_t	nbags;
	uint64_t	first_slot;
	uint64_t	nslots;
	uint64_t	longest;		/* slots of the longest bag */
};

/* The first slot of a bag */
static uint64_t
bag_start(const gpuvec_slot_bags *bags, uint64_t bag)
{
	return bags->offsets ? bags->offsets[bag] : bag * bags->hotness;
}

/* The bags from first_bag on that go together; at least one */
static struct chunk
next_chunk(const gpuvec_slot_bags *bags, uint64_t first_bag, uint32_t width)
{
	uint64_t	most_bags = std::max(std::min(CHUNK_FLOATS / width, CHUNK_BAGS), (uint64_t) 1);
	uint64_t	end = std::min(bags->nbags, first_bag + most_bags);
	struct chunk c = {first_bag, 0, bag_start(bags, first_bag), 0, 0};

	for (uint64_t bag = first_bag; bag < end; bag++)
	{
		uint64_t	n = bag_start(bags, bag + 1) - bag_start(bags, bag);

		if (c.nbags > 0 && c.nslots + n > CHUNK_SLOTS)
			break;
		c.nbags++;
		c.nslots += n;
		c.longest = std::max(c.longest, n);
	}
	return c;
}

/* Device memory of a chunk */
struct chunk_memory
{
	uint32_t   *slots;
	int64_t    *offsets;		/* NULL: fixed hotness */
	float	   *weights;
	float	   *gradient;
	float	   *out;
	char	   *work;
};

static size_t
lay_out_chunk(struct chunk_memory *m, char *memory, const gpuvec_slot_bags *bags, const struct chunk *c,
			  uint64_t ngradient, uint64_t nout, size_t work_bytes)
{
	struct pooling_area area = {memory, 0};

	memset(m, 0, sizeof(*m));
	m->slots = area.take<uint32_t>(c->nslots);
	if (bags->offsets)
		m->offsets = area.take<int64_t>(c->nbags + 1);
	if (bags->weights)
		m->weights = area.take<float>(c->nslots);
	m->gradient = area.take<float>(ngradient);
	m->out = area.take<float>(nout);
	m->work = area.take<char>(work_bytes);
	return area.used;
}

/* Send the slots, offsets and weights of a chunk */
static bool
send_bags(struct cuda_vectors *v, struct vector_half *half, const struct chunk_memory *m,
		  const gpuvec_slot_bags *bags, const struct chunk *c, gpuvec_error *error)
{
	bool		ok = send_up(v, half, m->slots, bags->slots + c->first_slot,
							 c->nslots * sizeof(uint32_t), error);

	if (ok && bags->weights)
		ok = send_up(v, half, m->weights, bags->weights + c->first_slot, c->nslots * sizeof(float),
					 error);
	if (ok && bags->offsets)
	{
		size_t		bytes = (c->nbags + 1) * sizeof(int64_t);
		int64_t    *offsets = (int64_t *) malloc(bytes);

		if (offsets == NULL)
			return gpuvec_fail_memory(error, bytes);
		for (uint64_t i = 0; i <= c->nbags; i++)
			offsets[i] = (int64_t) (bags->offsets[c->first_bag + i] - c->first_slot);
		ok = send_up(v, half, m->offsets, offsets, bytes, error);
		free(offsets);
	}
	return ok;
}

/* The table as the kernels want it */
static struct gpuvec_pooling_table
describe_table(const gpuvec_device_bank *bank)
{
	struct gpuvec_pooling_table table = {};

	table.data = bank->elements;
	table.rows = bank->room;
	table.stride = bank->stride;
	table.width = bank->width;
	table.storage = bank->half ? GPUVEC_FLOAT16 : GPUVEC_FLOAT32;
	return table;
}

/* A chunk's bags as the kernels want them, without what depends on memory */
static struct gpuvec_pooling_bags
describe_bags(const gpuvec_slot_bags *bags, const struct chunk *c, bool has_offsets)
{
	static const int64_t some = 0;
	struct gpuvec_pooling_bags result = {};

	result.index_bits = 32;
	result.skip_missing = bags->skip_missing;
	result.offsets = has_offsets ? &some : NULL;
	result.bags = c->nbags;
	result.hotness = bags->hotness;
	result.lookups = c->nslots;
	result.longest = std::max(c->longest, (uint64_t) 1);
	return result;
}

/* And with it */
static void
locate_bags(struct gpuvec_pooling_bags *bags, const struct chunk_memory *m)
{
	bags->indices = m->slots;
	bags->offsets = m->offsets;
	bags->weights = m->weights;
}

/* With weights, to concatenate is to sum bags of one slot */
static gpuvec_pool_mode
kernel_mode(const gpuvec_slot_bags *bags)
{
	return bags->mode == GPUVEC_POOL_MEAN ? GPUVEC_POOL_MEAN :
		bags->mode == GPUVEC_POOL_CONCAT && bags->weights == NULL ? GPUVEC_POOL_CONCAT : GPUVEC_POOL_SUM;
}

/* For concat each slot is a bag */
static gpuvec_slot_bags
plain_bags(const gpuvec_slot_bags *bags)
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

/* Queue the work of a chunk; finish() writes its result to out */
static bool
pool_chunk(struct cuda_vectors *v, struct vector_half *half, const gpuvec_device_bank *bank,
		   const gpuvec_slot_bags *bags, const struct chunk *c, float *out, gpuvec_error *error)
{
	static const char *const what = "pool vectors on the GPU";
	struct gpuvec_pooling_table table = describe_table(bank);
	struct gpuvec_pooling_bags kernel_bags = describe_bags(bags, c, bags->offsets != NULL);
	gpuvec_pool_mode mode = kernel_mode(bags);
	uint64_t	nout = c->nbags * bank->width;
	struct chunk_memory m;
	size_t		work_bytes;
	void	   *memory;
	bool		ok;

	if (!cuda_check(v->b, gpuvec_pooling_forward_workspace(&table, &kernel_bags, mode, &work_bytes), what,
					error) ||
		!half_alloc(v, half, &memory, lay_out_chunk(&m, NULL, bags, c, 0, nout, work_bytes),
					"pooling", error))
		return false;
	lay_out_chunk(&m, (char *) memory, bags, c, 0, nout, work_bytes);
	locate_bags(&kernel_bags, &m);
	ok = send_bags(v, half, &m, bags, c, error) &&
		cuda_check(v->b, gpuvec_pooling_forward(&table, &kernel_bags, mode, m.out,
											GPUVEC_FLOAT32, bank->width, m.work, work_bytes,
										    half->stream), what, error);
	ok = ok && fetch(v, half, out, m.out, nout * sizeof(float), error);
	device_free(v->b, memory, half->stream);
	return ok;
}

/* Device memory for gradients of weights, besides that of a chunk */
struct weights_memory
{
	uint32_t   *samples;
	float	   *divisors;
	double	   *bases;
	float	   *out;
};

static size_t
lay_out_weights(struct weights_memory *m, char *memory, size_t used, const gpuvec_slot_bags *bags,
				const struct chunk *c)
{
	struct pooling_area area = {memory, used};

	memset(m, 0, sizeof(*m));
	m->out = area.take<float>(c->nslots);
	if (bags->offsets)
		m->samples = area.take<uint32_t>(c->nslots);
	if (bags->mode == GPUVEC_POOL_MEAN)
	{
		m->divisors = area.take<float>(c->nbags);
		m->bases = area.take<double>(c->nbags);
	}
	return area.used;
}

/* Send what only gradients of weights need */
static bool
send_weights(struct cuda_vectors *v, struct vector_half *half, const struct chunk_memory *m,
			 const struct weights_memory *w, const gpuvec_slot_bags *bags, const struct chunk *c,
			 const float *gradient, uint32_t width, gpuvec_error *error)
{
	uint32_t   *samples = bags->offsets ? (uint32_t *) malloc(c->nslots * sizeof(uint32_t) + 1) : NULL;
	bool		ok = samples != NULL || bags->offsets == NULL ||
		gpuvec_fail_memory(error, c->nslots * sizeof(uint32_t));

	for (uint64_t bag = 0; samples != NULL && bag < c->nbags; bag++)
		for (uint64_t i = bag_start(bags, c->first_bag + bag); i < bag_start(bags, c->first_bag + bag + 1); i++)
			samples[i - c->first_slot] = (uint32_t) bag;
	if (ok && samples != NULL)
		ok = send_up(v, half, w->samples, samples, c->nslots * sizeof(uint32_t), error);
	if (ok && w->divisors != NULL)
		ok = send_up(v, half, w->divisors, bags->divisors + c->first_bag, c->nbags * sizeof(float), error);
	free(samples);
	return ok && send_up(v, half, m->gradient, gradient + c->first_bag * width,
						 c->nbags * width * sizeof(float), error);
}

/* Queue the work of a chunk of gradients of weights */
static bool
weights_chunk(struct cuda_vectors *v, struct vector_half *half, const gpuvec_device_bank *bank,
			  const gpuvec_slot_bags *bags, const struct chunk *c, const float *gradient, float *out,
			  gpuvec_error *error)
{
	static const char *const what = "compute gradients on the GPU";
	struct gpuvec_pooling_table table = describe_table(bank);
	struct gpuvec_pooling_bags kernel_bags = describe_bags(bags, c, bags->offsets != NULL);
	bool		mean = bags->mode == GPUVEC_POOL_MEAN;
	uint64_t	nmeans = mean ? c->nbags * bank->width : 0;
	struct weight_params params = {};
	struct chunk_memory m;
	struct weights_memory w;
	size_t		work_bytes;
	size_t		used;
	void	   *memory;
	bool		ok;

	if (!cuda_check(v->b, gpuvec_pooling_forward_workspace(&table, &kernel_bags, GPUVEC_POOL_MEAN, &work_bytes),
					what, error))
		return false;
	used = lay_out_chunk(&m, NULL, bags, c, c->nbags * bank->width, nmeans, work_bytes);
	if (!half_alloc(v, half, &memory, lay_out_weights(&w, NULL, used, bags, c), "gradients", error))
		return false;
	lay_out_chunk(&m, (char *) memory, bags, c, c->nbags * bank->width, nmeans, work_bytes);
	lay_out_weights(&w, (char *) memory, used, bags, c);
	locate_bags(&kernel_bags, &m);
	ok = send_bags(v, half, &m, bags, c, error) &&
		send_weights(v, half, &m, &w, bags, c, gradient, bank->width, error) &&
		(!mean || cuda_check(v->b, gpuvec_pooling_forward(&table, &kernel_bags, GPUVEC_POOL_MEAN, m.out,
													  GPUVEC_FLOAT32, bank->width, m.work,
													  work_bytes, half->stream),
							 what, error));
	params.elements = bank->elements;
	params.stride_bytes = bank->stride_bytes;
	params.width = bank->width;
	params.slots = m.slots;
	params.samples = w.samples;
	params.hotness = bags->hotness;
	params.n = c->nslots;
	params.gradient = m.gradient;
	params.out = w.out;
	params.means = mean ? m.out : NULL;
	params.divisors = w.divisors;
	params.bases = w.bases;
	params.nbags = c->nbags;
	params.skip_missing = bags->skip_missing;
	ok = ok && cuda_check(v->b, weights_launch(&params, bank->half, half->stream), what, error);
	/* a bag may have more slots than pinned memory holds */
	for (uint64_t at = 0; ok && at < c->nslots; at += CHUNK_FLOATS)
		ok = (at == 0 || finish(v, half, error)) &&
			fetch(v, half, out + c->first_slot + at, w.out + at,
				  std::min(c->nslots - at, (uint64_t) CHUNK_FLOATS) * sizeof(float), error);
	device_free(v->b, memory, half->stream);
	return ok;
}

/* Pool, or compute the gradients of weights, chunk by chunk */
static bool
run_chunks(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_slot_bags *request,
		   const float *gradient, float *out, gpuvec_error *error)
{
	struct cuda_vectors *v = (struct cuda_vectors *) vectors;
	struct vector_worker *worker = take_worker(v, error);
	gpuvec_slot_bags bags = plain_bags(request);
	bool		ok = worker != NULL;

	for (uint64_t bag = 0, i = 0; ok && bag < bags.nbags && !is_canceled(bags.canceled); i++)
	{
		struct vector_half *half = &worker->halves[i % 2];
		struct chunk c = next_chunk(&bags, bag, bank->width);

		ok = finish(v, half, error) &&
			(gradient ? weights_chunk(v, half, bank, &bags, &c, gradient, out, error) :
			 pool_chunk(v, half, bank, &bags, &c, out + bag * bank->width, error));
		bag += c.nbags;
	}
	return worker != NULL && end_work(v, worker, ok, error);
}

static bool
pool(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_slot_bags *bags, float *out,
	 gpuvec_error *error)
{
	return run_chunks(vectors, bank, bags, NULL, out, error);
}

static bool
weight_gradients(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_slot_bags *bags,
				 const float *gradient, float *out, gpuvec_error *error)
{
	return run_chunks(vectors, bank, bags, gradient, out, error);
}

/* ---- gradients of vectors ---- */

struct key_params
{
	const int64_t *bank_keys;
	const uint32_t *slots;
	uint64_t   *keys;
	uint32_t   *order;
	uint32_t	n;
};

#define SIGN_BIT	(UINT64_C(1) << 63)

/* The keys of slots, so that their order is that of unsigned numbers */
static __global__ void
keys_kernel(const __grid_constant__ struct key_params p)
{
	uint32_t	i = blockIdx.x * blockDim.x + threadIdx.x;

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
	float	   *to;
	uint64_t	n;				/* elements in all */
	uint32_t	width;
};

/* Copy rows in a given order */
static __global__ void
permute_kernel(const __grid_constant__ struct permute_params p)
{
	uint64_t	i = (uint64_t) blockIdx.x * blockDim.x + threadIdx.x;

	if (i < p.n)
		p.to[i] = p.from[(uint64_t) p.order[i / p.width] * p.width + i % p.width];
}

/* A gradient that is being computed */
struct gradient
{
	struct cuda_vectors *v;
	struct vector_worker *worker;
	const gpuvec_device_bank *bank;
	const gpuvec_slot_bags *bags;
	void	   *memory;			/* of the kernels */
	void	   *sort_memory;
	float	   *out;
	uint32_t   *out_rows;
	const uint64_t *keys;		/* sorted */
	const uint32_t *order;
	uint64_t	n;
};

/* Compute the gradient in the order of slots */
static bool
compute_gradient(struct gradient *g, const float *upstream, uint64_t limit, gpuvec_error *error)
{
	static const char *const what = "compute gradients on the GPU";
	struct vector_half *half = &g->worker->halves[0];
	const gpuvec_slot_bags *bags = g->bags;
	struct chunk all = {0, bags->nbags, 0, bags->nslots, 0};
	struct gpuvec_pooling_bags kernel_bags = describe_bags(bags, &all, bags->offsets != NULL);
	/* concat is a sum of bags of one slot */
	gpuvec_pool_mode mode = bags->mode == GPUVEC_POOL_MEAN ? GPUVEC_POOL_MEAN : GPUVEC_POOL_SUM;
	struct gpuvec_pooling_grad grad = {};
	uint64_t	ngradient = bags->nbags * g->bank->width;
	uint64_t	most = std::min(std::min((uint64_t) g->bank->room, bags->nslots), limit);
	float		some_weight = 0;
	struct chunk_memory m;
	size_t		work_bytes;
	uint32_t	count;
	uint32_t   *out_count = NULL;

	if (bags->nslots > INT32_MAX)
		return gpuvec_fail(error, GPUVEC_LIMIT_EXCEEDED, NULL, NULL,
						   "a gradient of more than %d keys is not supported", INT32_MAX);
	/* sizes depend on whether there are weights, not on where */
	kernel_bags.weights = bags->weights ? &some_weight : NULL;
	kernel_bags.longest = 0;
	grad.rows = g->bank->room;
	grad.width = g->bank->width;
	grad.grad_stride = grad.out_stride = g->bank->width;
	if (!cuda_check(g->v->b, gpuvec_pooling_grad_workspace(&grad, &kernel_bags, mode, &work_bytes), what,
					error))
		return false;
	for (int pass = 0; pass < 2; pass++)
	{
		struct pooling_area area = {(char *) g->memory, 0};

		area.used = lay_out_chunk(&m, (char *) g->memory, bags, &all, ngradient,
								  most * g->bank->width, work_bytes);
		g->out_rows = area.take<uint32_t>(most);
		out_count = area.take<uint32_t>(1);
		if (pass == 0 && !half_alloc(g->v, half, &g->memory, area.used, "gradients", error))
			return false;
	}
	locate_bags(&kernel_bags, &m);
	g->out = m.out;
	grad.grad = m.gradient;
	grad.out = m.out;
	grad.out_rows = g->out_rows;
	grad.out_count = out_count;
	if (!send_bags(g->v, half, &m, bags, &all, error) ||
		!send_up(g->v, half, m.gradient, upstream, ngradient * sizeof(float), error) ||
		!cuda_check(g->v->b, gpuvec_pooling_grad(&grad, &kernel_bags, mode, m.work, work_bytes,
											 half->stream), what, error) ||
		!fetch(g->v, half, &count, out_count, sizeof(count), error) || !finish(g->v, half, error))
		return false;
	g->n = count;
	return true;
}

/* Sort the keys of the gradient */
static bool
sort_keys(struct gradient *g, gpuvec_error *error)
{
	static const char *const what = "sort keys on the GPU";
	struct vector_half *half = &g->worker->halves[0];
	uint64_t   *keys[2];
	uint32_t   *order[2];
	char	   *work = NULL;
	size_t		work_bytes = 0;
	struct key_params params = {};
	cudaError_t rc;

	for (int pass = 0; pass < 2; pass++)
	{
		struct pooling_area area = {(char *) g->sort_memory, 0};

		for (int i = 0; i < 2; i++)
		{
			keys[i] = area.take<uint64_t>(g->n);
			order[i] = area.take<uint32_t>(g->n);
		}
		if (pass == 0)
		{
			cub::DoubleBuffer<uint64_t> k(keys[0], keys[1]);
			cub::DoubleBuffer<uint32_t> o(order[0], order[1]);

			rc = cub::DeviceRadixSort::SortPairs(NULL, work_bytes, k, o, (int) g->n, 0, 64,
												 half->stream);
			if (!cuda_check(g->v->b, rc, what, error))
				return false;
		}
		work = area.take<char>(work_bytes);
		if (pass == 0 && !half_alloc(g->v, half, &g->sort_memory, area.used, "gradients", error))
			return false;
	}
	params.bank_keys = g->bank->keys;
	params.slots = g->out_rows;
	params.keys = keys[0];
	params.order = order[0];
	params.n = (uint32_t) g->n;
	rc = pooling_launch(keys_kernel, pooling_divide_up(g->n, THREADS), THREADS, params, half->stream);
	if (rc == cudaSuccess)
	{
		cub::DoubleBuffer<uint64_t> k(keys[0], keys[1]);
		cub::DoubleBuffer<uint32_t> o(order[0], order[1]);

		rc = cub::DeviceRadixSort::SortPairs(work, work_bytes, k, o, (int) g->n, 0, 64, half->stream);
		g->keys = k.Current();
		g->order = o.Current();
	}
	return cuda_check(g->v->b, rc, what, error) && finish(g->v, half, error);
}

/* Copy the sorted keys to the host */
static bool
fetch_keys(struct gradient *g, int64_t *keys, gpuvec_error *error)
{
	const uint64_t most = VECTORS_PINNED / sizeof(uint64_t);

	for (uint64_t at = 0, i = 0; at < g->n; at += most, i++)
	{
		struct vector_half *half = &g->worker->halves[i % 2];

		if (!finish(g->v, half, error) ||
			!fetch(g->v, half, keys + at, g->keys + at, std::min(most, g->n - at) * sizeof(uint64_t),
				   error))
			return false;
	}
	if (!finish(g->v, &g->worker->halves[0], error) || !finish(g->v, &g->worker->halves[1], error))
		return false;
	for (uint64_t i = 0; i < g->n; i++)
		keys[i] = (int64_t) ((uint64_t) keys[i] ^ SIGN_BIT);
	return true;
}

/* Copy the rows of the gradient to the host, in the order of their keys */
static bool
fetch_rows(struct gradient *g, float *out, gpuvec_error *error)
{
	uint32_t	width = g->bank->width;
	const uint64_t most = CHUNK_FLOATS / width;
	void	   *memory[2] = {NULL, NULL};
	bool		ok = true;

	for (uint64_t at = 0, i = 0; ok && at < g->n && !is_canceled(g->bags->canceled); at += most, i++)
	{
		struct vector_half *half = &g->worker->halves[i % 2];
		struct permute_params params = {};

		params.n = std::min(most, g->n - at) * width;
		params.from = g->out;
		params.order = g->order + at;
		params.width = width;
		ok = finish(g->v, half, error) &&
			(memory[i % 2] != NULL ||
			 half_alloc(g->v, half, &memory[i % 2], VECTORS_PINNED, "gradients", error));
		params.to = (float *) memory[i % 2];
		ok = ok && cuda_check(g->v->b, pooling_launch(permute_kernel, pooling_divide_up(params.n, THREADS),
												  THREADS, params, half->stream),
							  "copy gradients on the GPU", error) &&
			fetch(g->v, half, out + at * width, params.to, params.n * sizeof(float), error);
	}
	for (int i = 0; i < 2; i++)
	{
		ok = ok && finish(g->v, &g->worker->halves[i], error);
		device_free(g->v->b, memory[i], g->worker->halves[i].stream);
	}
	return ok;
}

/* Compute a gradient, of at most so many keys, and copy it to the host */
static bool
run_gradient(struct gradient *g, const float *upstream, uint64_t most, void **body,
			 gpuvec_error *error)
{
	size_t		bytes;

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

static bool
gradient(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_slot_bags *request,
		 const float *upstream, uint64_t most, uint64_t *n, void **body, gpuvec_error *error)
{
	struct cuda_vectors *v = (struct cuda_vectors *) vectors;
	gpuvec_slot_bags bags = plain_bags(request);
	struct gradient g = {};
	bool		ok;

	*body = NULL;
	g.v = v;
	g.worker = take_worker(v, error);
	if (g.worker == NULL)
		return false;
	g.bank = bank;
	g.bags = &bags;
	ok = run_gradient(&g, upstream, most, body, error);
	*n = g.n;
	if (!ok)
	{
		drain(v, g.worker);
		free(*body);
		*body = NULL;
	}
	device_free(v->b, g.memory, g.worker->halves[0].stream);
	device_free(v->b, g.sort_memory, g.worker->halves[0].stream);
	put_worker(v, g.worker);
	return ok;
}

/* ---- opening ---- */

gpuvec_vectors *
cuda_vectors_new(struct cuda_backend *b, gpuvec_error *error)
{
	struct cuda_vectors *v = (struct cuda_vectors *) calloc(1, sizeof(*v));

	if (v == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*v));
		return NULL;
	}
	v->b = b;
	pthread_mutex_init(&v->lock, NULL);
	pthread_cond_init(&v->idle, NULL);
	v->base.make = make_bank;
	v->base.release = release_bank;
	v->base.reserve = reserve;
	v->base.bytes = bank_bytes;
	v->base.put = put;
	v->base.flush = flush;
	v->base.forget = forget;
	v->base.key_limit = cuda_key_limit;
	v->base.clear_keys = cuda_clear_keys;
	v->base.map_keys = cuda_map_keys;
	v->base.find_keys = cuda_find_keys;
	v->base.pool = pool;
	v->base.gradient = gradient;
	v->base.weight_gradients = weight_gradients;
	v->base.nearest = cuda_nearest;
	return &v->base;
}

void
cuda_vectors_free(gpuvec_vectors *vectors)
{
	struct cuda_vectors *v = (struct cuda_vectors *) vectors;
	gpuvec_error ignored;

	if (v == NULL)
		return;
	for (int i = 0; i < VECTORS_WORKERS && cuda_enter(v->b, &ignored); i++)
		for (int j = 0; j < 2; j++)
		{
			struct vector_half *half = &v->workers[i].halves[j];

			if (half->stream)
				cudaStreamDestroy(half->stream);
			cudaFreeHost(half->up);
			cudaFreeHost(half->down);
			cudaGetLastError();
		}
	pthread_cond_destroy(&v->idle);
	pthread_mutex_destroy(&v->lock);
	free(v);
}
