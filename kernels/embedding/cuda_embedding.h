/*-------------------------------------------------------------------------
 *
 * cuda_embedding.h
 *	  What the files share that serve embedding tables on a GPU (the interface
 *	  is embedding_backend.h).
 *
 * cuda_embedding.cu  opening and closing; the table of functions
 * banks.cu           banks: the vectors of one width, in slots
 * pool_requests.cu   requests to pool, and for the gradients of weights
 * gradients.cu       requests for the gradients of vectors
 * keys.cu            hash tables from keys to slots
 * nearest.cu         requests for the nearest vectors
 * near_scores.cu     the kernels that score them
 * near_best.cu       the kernels that keep the best
 * products.cu        the kernels of the gradients of weights
 * pooling_kernels.h  the kernels that pool
 * embedding_policy.h how requests are served; embedding_tuning.cu has numbers
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CUDA_EMBEDDING_H
#define GPUVEC_CUDA_EMBEDDING_H

#include <memory>
#include <mutex>

#include "engine/embedding_backend.h"
#include "kernels/device/arena.h"
#include "kernels/device/cuda_device.h"
#include "kernels/device/free_list.h"
#include "kernels/device/launch.h"
#include "kernels/device/shared_range.h"
#include "kernels/device/staged_stream.h"
#include "kernels/embedding/embedding_policy.h"
#include "kernels/embedding/pooling_kernels.h"

namespace gpuvec
{

/* Requests that are served at the same time */
static constexpr int EMBEDDING_WORKERS = 4;

/*
 * A worker serves one request at a time: while one stream computes, the other
 * copies
 */
struct embedding_worker
{
	staged_stream streams[2];

	/*
	 * Wait for all that was queued.  ok says whether all has succeeded so
	 * far.  Returns false if not, or if waiting fails; nothing is under way
	 * then.
	 */
	bool
	finish(bool ok, gpuvec_error *error);
};

typedef free_list<embedding_worker, EMBEDDING_WORKERS> embedding_workers;
typedef embedding_workers::loan worker_loan;

/* The backend */
struct cuda_embedding : gpuvec_vectors
{
	struct cuda_device &device;
	const struct embedding_policy policy;
	embedding_workers workers;

	cuda_embedding(struct cuda_device &d, const struct embedding_policy &p)
		: gpuvec_vectors(), device(d), policy(p)
	{
	}

	/*
	 * Take a worker; waits until one is free.  Empty, and *error is filled,
	 * if the worker cannot be used.
	 */
	worker_loan
	take_worker(gpuvec_error *error);

	/* Allocate device memory in the order of a stream; bytes may be 0 */
	bool
	allocate(unique_memory &memory, staged_stream &stream, size_t bytes, const char *what,
			 gpuvec_error *error);

	/* Wait for a stream */
	bool
	finish(staged_stream &stream, gpuvec_error *error);

	/* Queue the copy of host memory to the device */
	bool
	send(staged_stream &stream, void *to, const void *from, size_t bytes, gpuvec_error *error);

	/*
	 * Queue the copy of at most policy.pinned_bytes to the host.  The data is
	 * at `to` after finish().
	 */
	bool
	fetch(staged_stream &stream, void *to, const void *from, size_t bytes, gpuvec_error *error);
};

/* The backend behind the table of functions that C code has */
static inline struct cuda_embedding &
embedding_of(gpuvec_vectors *vectors)
{
	return *static_cast<struct cuda_embedding *>(vectors);
}

/* An entry of a hash table from keys to slots; see keys.cu */
struct __align__(16) key_entry
{
	int64_t key;
	uint32_t slot;
	uint32_t block;
};

/*
 * The arrays of a bank, on the device; all have room for the same number of
 * slots
 */
struct bank_arrays
{
	char *elements;
	int64_t *keys;
	uint64_t *tids;
	uint8_t *live;
	struct key_entry *entries; /* [key_entries(room)] */
};

} // namespace gpuvec

/*
 * A bank: the vectors of one width, in slots.  A vector takes a multiple of
 * 16 bytes; zeros fill its end.
 */
struct gpuvec_device_bank
{
	uint32_t width;
	gpuvec_storage storage;
	uint32_t stride; /* elements from one vector to the next */
	size_t stride_bytes;
	uint32_t capacity;            /* slots */
	gpuvec::unique_memory memory; /* holds the arrays */

	/*
	 * If GPUs share their vectors: where all vectors are, and the number of
	 * slots from one bank's first to the next one's.  arrays.elements is in
	 * it, then, not in `memory`.
	 */
	std::shared_ptr<gpuvec::shared_range> range;
	uint32_t distance;
	uint32_t nbanks; /* that share */

	struct gpuvec::bank_arrays arrays;

	std::mutex mutex; /* guards live_version and arrays.live */
	/* version of arrays.live; 0: not filled */
	uint64_t live_version;

	/*
	 * the updater's: collected vectors (host memory, malloc'd), see banks.cu
	 */
	char *records;
	uint32_t nrecords;
	uint32_t records_capacity;
};

namespace gpuvec
{

/* True if a request was canceled */
static inline bool
is_canceled(const int *canceled)
{
	return canceled != NULL && __atomic_load_n(canceled, __ATOMIC_RELAXED) != 0;
}

/* banks.cu; for what each function does see embedding_backend.h */
extern gpuvec_device_bank *
bank_make(gpuvec_vectors *vectors, uint32_t width, gpuvec_storage storage, gpuvec_error *error);
extern void
bank_release(gpuvec_vectors *vectors, gpuvec_device_bank *bank);
extern bool
bank_reserve(gpuvec_vectors *vectors, gpuvec_device_bank *bank, uint32_t capacity,
			 gpuvec_error *error);
extern bool
banks_can_share(gpuvec_vectors *const *vectors, uint32_t n);
extern bool
banks_reserve_shared(gpuvec_vectors *const *vectors, gpuvec_device_bank *const *banks, uint32_t n,
					 uint32_t capacity, uint32_t *distance, gpuvec_error *error);
extern size_t
bank_bytes(const gpuvec_device_bank *bank, uint32_t capacity);
extern bool
bank_put(gpuvec_vectors *vectors, gpuvec_device_bank *bank, uint32_t slot, int64_t key,
		 uint64_t tid, const void *elements, gpuvec_error *error);
extern bool
bank_flush(gpuvec_vectors *vectors, gpuvec_device_bank *bank, gpuvec_error *error);
extern void
bank_forget(gpuvec_device_bank *bank);

/* pool_requests.cu */

/* Some consecutive bags of a request */
struct bag_chunk
{
	uint64_t first_bag;
	uint64_t nbags;
	uint64_t first_slot;
	uint64_t nslots;
	uint64_t longest; /* slots of the longest bag; 0: unknown */
};

/* Device memory of a chunk */
struct chunk_arrays
{
	uint32_t *slots;
	int64_t *offsets; /* NULL: all bags have the same number of slots */
	float *weights;
	float *gradient;
	float *out;
	char *work;
};

/* The bags as the kernels take them: for concat each slot is a bag */
extern gpuvec_slot_bags
plain_slot_bags(const gpuvec_slot_bags *bags);

/* A chunk's bags as the kernels take them, without the arrays */
extern struct pooling_bags
describe_chunk(const gpuvec_slot_bags *bags, const struct bag_chunk *c);

/*
 * Cut memory into the arrays of a chunk, and set the pointers of the kernels'
 * bags
 */
extern struct chunk_arrays
take_chunk(struct arena *arena, const gpuvec_slot_bags *bags, const struct bag_chunk *c,
		   uint64_t ngradient, uint64_t nout, size_t work_bytes, struct pooling_bags *kernel_bags);

/* Send the slots, offsets and weights of a chunk */
extern bool
send_chunk(struct cuda_embedding &e, staged_stream &stream, const struct chunk_arrays *a,
		   const gpuvec_slot_bags *bags, const struct bag_chunk *c, gpuvec_error *error);

extern bool
pool_request(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_slot_bags *bags,
			 float *out, gpuvec_error *error);
extern bool
weights_request(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_slot_bags *bags,
				const float *gradient, float *out, gpuvec_error *error);
extern bool
shared_request(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_slot_bags *bags,
			   const float *gradient, float *out, gpuvec_error *error);

/* gradients.cu */
extern bool
gradient_request(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_slot_bags *bags,
				 const float *gradient, uint64_t most, uint64_t *n, void **body,
				 gpuvec_error *error);

/* keys.cu */
extern uint64_t
key_entries(uint32_t capacity);
extern uint64_t
keys_limit(const gpuvec_device_bank *bank);
extern bool
keys_clear(gpuvec_vectors *vectors, gpuvec_device_bank *bank, gpuvec_error *error);
extern bool
keys_map(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_key_row *rows, uint64_t n,
		 gpuvec_error *error);
extern bool
keys_find(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_key_search *search,
		  gpuvec_error *error);

/* nearest.cu */
extern bool
nearest_request(gpuvec_vectors *vectors, gpuvec_device_bank *bank, gpuvec_slot_search *search,
				gpuvec_error *error);

/*
 * Open a device's service of embedding tables.  Returns NULL and fills *error
 * if that fails.  The device must be closed after it.
 */
extern gpuvec_vectors *
embedding_open(struct cuda_device &device, const struct embedding_policy &policy,
			   gpuvec_error *error);

} // namespace gpuvec

#endif /* GPUVEC_CUDA_EMBEDDING_H */
