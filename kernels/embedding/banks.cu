/*-------------------------------------------------------------------------
 *
 * banks.cu
 *	  Banks of vectors in the memory of the GPU.
 *
 * A bank is one allocation: vectors, keys, tids, the flags of live slots, and
 * the hash table of the keys, which keys.cu fills.  To grow, a bank is copied
 * to a larger allocation.
 *
 * If GPUs share vectors, these are in a range of addresses that has those of
 * all banks (shared_range.h), each bank's in memory of its own GPU.
 *
 * New vectors are collected in host memory with their slots, keys and tids.
 * They go to the device some megabytes at a time, where a kernel puts each
 * vector into its slot.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <new>
#include <stdlib.h>
#include <string.h>
#include <vector>

#include "kernels/embedding/cuda_embedding.h"

namespace gpuvec
{

#define FIRST_RECORDS 16
#define PUT_THREADS 256

/* What precedes each collected vector */
struct __align__(16) record_head
{
	int64_t key;
	uint64_t tid;
	uint32_t slot;
	uint32_t padding[3];
};

gpuvec_device_bank *
bank_make(gpuvec_vectors *vectors, uint32_t width, gpuvec_storage storage, gpuvec_error *error)
{
	gpuvec_device_bank *bank = new (std::nothrow) gpuvec_device_bank();
	uint32_t element_bytes = (uint32_t) gpuvec_element_bytes(storage);

	(void) vectors;
	if (bank == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*bank));
		return NULL;
	}
	bank->width = width;
	bank->storage = storage;
	bank->stride_bytes = divide_up((uint64_t) width * element_bytes, 16) * 16;
	bank->stride = (uint32_t) (bank->stride_bytes / element_bytes);
	return bank;
}

/*
 * Free memory that no request uses, in the default stream: nothing is under
 * way
 */
static void
release_memory(unique_memory &memory)
{
	free_in_stream(memory, NULL);
	memory.reset();
}

void
bank_release(gpuvec_vectors *vectors, gpuvec_device_bank *bank)
{
	(void) vectors;
	if (bank == NULL)
		return;
	release_memory(bank->memory);
	free(bank->records);
	delete bank;
}

/* Cut memory into the arrays of a bank; elements are elsewhere, or NULL */
static struct bank_arrays
take_arrays(struct arena *arena, const gpuvec_device_bank *bank, uint32_t capacity, char *elements)
{
	struct bank_arrays a;

	a.elements = elements ? elements : arena->take<char>(capacity * bank->stride_bytes);
	a.keys = arena->take<int64_t>(capacity);
	a.tids = arena->take<uint64_t>(capacity);
	a.live = arena->take<uint8_t>(capacity);
	a.entries = arena->take<struct key_entry>(key_entries(capacity));
	return a;
}

size_t
bank_bytes(const gpuvec_device_bank *bank, uint32_t capacity)
{
	struct arena arena = {NULL, 0};

	take_arrays(&arena, bank, capacity, NULL);
	/* a range has whole pages */
	return arena.used + (bank->range ? SHARED_PAGE : 0);
}

/* Copy the first n slots of a bank to larger arrays */
static cudaError_t
copy_slots(const struct bank_arrays *to, const gpuvec_device_bank *bank, cudaStream_t stream)
{
	const struct bank_arrays *from = &bank->arrays;
	size_t n = bank->capacity;
	cudaError_t rc = cudaMemcpyAsync(to->elements, from->elements, n * bank->stride_bytes,
									 cudaMemcpyDeviceToDevice, stream);

	if (rc == cudaSuccess)
		rc = cudaMemcpyAsync(to->keys, from->keys, n * sizeof(int64_t), cudaMemcpyDeviceToDevice,
							 stream);
	if (rc == cudaSuccess)
		rc = cudaMemcpyAsync(to->tids, from->tids, n * sizeof(uint64_t), cudaMemcpyDeviceToDevice,
							 stream);
	return rc;
}

/* New arrays of a bank */
struct new_arrays
{
	unique_memory memory;
	struct bank_arrays arrays;
};

/*
 * Make arrays with room for `capacity` slots, and copy the bank to them.  With
 * `elements`, its vectors go there.
 */
static bool
make_arrays(struct cuda_embedding &e, const gpuvec_device_bank *bank, uint32_t capacity,
			char *elements, struct new_arrays *made, gpuvec_error *error)
{
	static const char *const what = "copy vectors on the GPU";
	worker_loan worker = e.take_worker(error);
	struct arena arena = {NULL, 0};
	cudaStream_t stream;

	take_arrays(&arena, bank, capacity, elements);
	if (!worker || !e.allocate(made->memory, worker->streams[0], arena.used, "vectors", error))
		return false;
	stream = worker->streams[0].get();
	arena = {(char *) made->memory.get(), 0};
	made->arrays = take_arrays(&arena, bank, capacity, elements);
	return (!bank->memory ||
			e.device.check(copy_slots(&made->arrays, bank, stream), what, error)) &&
		   e.device.check(cudaStreamSynchronize(stream), what, error);
}

/* Let a bank have new arrays */
static void
change_arrays(gpuvec_device_bank *bank, uint32_t capacity, struct new_arrays *made)
{
	release_memory(bank->memory);
	bank->memory = std::move(made->memory);
	bank->arrays = made->arrays;
	bank->capacity = capacity;
	bank->live_version = 0;
}

bool
bank_reserve(gpuvec_vectors *vectors, gpuvec_device_bank *bank, uint32_t capacity,
			 gpuvec_error *error)
{
	struct new_arrays made;

	if (!make_arrays(embedding_of(vectors), bank, capacity, NULL, &made, error))
		return false;
	change_arrays(bank, capacity, &made);
	bank->range.reset();
	return true;
}

/* ---- banks whose vectors GPUs share ---- */

/* The devices of n backends */
static std::vector<struct cuda_device *>
devices_of(gpuvec_vectors *const *vectors, uint32_t n)
{
	std::vector<struct cuda_device *> devices;

	for (uint32_t i = 0; i < n; i++)
		devices.push_back(&embedding_of(vectors[i]).device);
	return devices;
}

/* Without memory to find it out, they cannot */
bool
banks_can_share(gpuvec_vectors *const *vectors, uint32_t n)
try
{
	return can_share_range(devices_of(vectors, n).data(), n);
}
catch (const std::bad_alloc &)
{
	return false;
}

/*
 * The least number of slots, `capacity` or more, that take a multiple of
 * SHARED_PAGE bytes
 */
static uint64_t
whole_pages(const gpuvec_device_bank *bank, uint32_t capacity)
{
	size_t unit = SHARED_PAGE;

	/* SHARED_PAGE is a power of two */
	for (size_t stride = bank->stride_bytes; stride % 2 == 0 && unit > 1; stride /= 2)
		unit /= 2;
	return std::max(divide_up(capacity, unit), UINT64_C(1)) * unit;
}

bool
banks_reserve_shared(gpuvec_vectors *const *vectors, gpuvec_device_bank *const *banks, uint32_t n,
					 uint32_t capacity, uint32_t *distance, gpuvec_error *error)
try
{
	std::vector<struct cuda_device *> devices = devices_of(vectors, n);
	std::vector<struct new_arrays> made(n);
	std::shared_ptr<shared_range> range = std::make_shared<shared_range>();
	size_t stride_bytes = banks[0]->stride_bytes;
	uint64_t slots = whole_pages(banks[0], capacity);

	if (slots * n > GPUVEC_MAX_SLOTS)
		return gpuvec_fail(error, GPUVEC_LIMIT_EXCEEDED, NULL, NULL,
						   "the relation has too many rows for the gpuvec engine");
	if (!range->open(devices.data(), n, slots * stride_bytes, capacity * stride_bytes, error))
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (!make_arrays(embedding_of(vectors[i]), banks[i], capacity, range->shard(i), &made[i],
						 error))
			return false;
	for (uint32_t i = 0; i < n; i++)
	{
		change_arrays(banks[i], capacity, &made[i]);
		banks[i]->range = range;
		banks[i]->distance = (uint32_t) slots;
		banks[i]->nbanks = n;
	}
	*distance = (uint32_t) slots;
	return true;
}
catch (const std::bad_alloc &)
{
	return gpuvec_fail_memory(error, n * sizeof(struct new_arrays));
}

/* ---- filling slots ---- */

struct put_params
{
	const uint4 *records;
	uint32_t nrecords;
	uint32_t vectors; /* units of 16 bytes per vector */
	uint4 *elements;
	int64_t *keys;
	uint64_t *tids;
};

/* Put vectors into their slots; one thread per 16 bytes */
static __global__ void
put_kernel(const __grid_constant__ struct put_params p)
{
	uint32_t quads = p.vectors + sizeof(struct record_head) / sizeof(uint4);
	uint64_t i = (uint64_t) blockIdx.x * blockDim.x + threadIdx.x;
	uint32_t number = (uint32_t) (i / quads);
	uint32_t quad = (uint32_t) (i % quads);
	const uint4 *record = p.records + (uint64_t) number * quads;
	const struct record_head *head = (const struct record_head *) record;

	if (number >= p.nrecords)
		return;
	if (quad == 0)
	{
		p.keys[head->slot] = head->key;
		p.tids[head->slot] = head->tid;
	}
	else if (quad >= quads - p.vectors)
		p.elements[(uint64_t) head->slot * p.vectors + quad - (quads - p.vectors)] = record[quad];
}

/* Bytes of a collected vector with its head */
static size_t
record_bytes(const gpuvec_device_bank *bank)
{
	return sizeof(struct record_head) + bank->stride_bytes;
}

/* Send the collected vectors, and put them into their slots */
static bool
send_records(struct cuda_embedding &e, staged_stream &stream, gpuvec_device_bank *bank,
			 gpuvec_error *error)
{
	size_t bytes = bank->nrecords * record_bytes(bank);
	struct put_params params = {};
	unique_memory memory;

	if (!e.allocate(memory, stream, bytes, "new vectors", error))
		return false;
	params.records = (const uint4 *) memory.get();
	params.nrecords = bank->nrecords;
	params.vectors = (uint32_t) (bank->stride_bytes / sizeof(uint4));
	params.elements = (uint4 *) bank->arrays.elements;
	params.keys = bank->arrays.keys;
	params.tids = bank->arrays.tids;
	return e.send(stream, memory.get(), bank->records, bytes, error) &&
		   e.device.check(launch(put_kernel, divide_up(bytes / sizeof(uint4), PUT_THREADS),
								 PUT_THREADS, 0, stream.get(), params),
						  "store vectors on the GPU", error);
}

void
bank_forget(gpuvec_device_bank *bank)
{
	free(bank->records);
	bank->records = NULL;
	bank->nrecords = bank->records_capacity = 0;
}

/*
 * Send the collected vectors and wait; the memory for more of them is kept
 */
static bool
flush_records(gpuvec_vectors *vectors, gpuvec_device_bank *bank, gpuvec_error *error)
{
	struct cuda_embedding &e = embedding_of(vectors);
	worker_loan worker;

	if (bank->nrecords == 0)
		return true;
	worker = e.take_worker(error);
	if (!worker || !worker->finish(send_records(e, worker->streams[0], bank, error), error))
		return false;
	bank->nrecords = 0;
	return true;
}

bool
bank_flush(gpuvec_vectors *vectors, gpuvec_device_bank *bank, gpuvec_error *error)
{
	if (!flush_records(vectors, bank, error))
		return false;
	bank_forget(bank);
	return true;
}

/* Make room to collect one more vector */
static bool
reserve_record(gpuvec_vectors *vectors, gpuvec_device_bank *bank, gpuvec_error *error)
{
	size_t most =
		std::max(embedding_of(vectors).policy.record_bytes / record_bytes(bank), (size_t) 1);
	size_t capacity =
		std::min(most, std::max((size_t) bank->records_capacity * 2, (size_t) FIRST_RECORDS));
	char *records;

	if (bank->nrecords < bank->records_capacity)
		return true;
	if (bank->nrecords == most)
		return flush_records(vectors, bank, error);
	records = (char *) realloc(bank->records, capacity * record_bytes(bank));
	if (records == NULL)
		return gpuvec_fail_memory(error, capacity * record_bytes(bank));
	bank->records = records;
	bank->records_capacity = (uint32_t) capacity;
	return true;
}

bool
bank_put(gpuvec_vectors *vectors, gpuvec_device_bank *bank, uint32_t slot, int64_t key,
		 uint64_t tid, const void *elements, gpuvec_error *error)
{
	size_t bytes = (size_t) bank->width * gpuvec_element_bytes(bank->storage);
	struct record_head head = {};
	char *to;

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

} // namespace gpuvec
