/*-------------------------------------------------------------------------
 *
 * vectors.h
 *	  What the parts that serve embedding tables share.
 *
 * vectors.cu	banks of vectors, and requests to pool them
 * keys.cu	hash tables from keys to slots
 * products.cu	the kernels of gradients of weights
 * nearest.cu	the nearest vectors
 * embedding.h	the kernels that pool
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CUDA_VECTORS_H
#define GPUVEC_CUDA_VECTORS_H

#include <pthread.h>
#include <cuda_runtime.h>

#include "kernels/device/cuda_memory.h"
#include "kernels/embedding/pool.cuh"
#include "engine/embedding/embedding_backend.h"

/* Pinned memory of a half of a worker, for each direction; at least a vector's */
#ifdef EMULATION
#define VECTORS_PINNED		((size_t) 256 << 10)
#else
#define VECTORS_PINNED		((size_t) 8 << 20)
#endif

/* Requests that are served at a time */
#define VECTORS_WORKERS		4

/* A stream, and what goes to the device and comes back on it */
struct vector_half
{
	cudaStream_t stream;
	char	   *up;				/* pinned */
	size_t		up_used;
	char	   *down;			/* pinned */
	void	   *target;			/* where the contents of `down` go once they are there */
	size_t		target_bytes;
};

/* Serves one request at a time: while one half computes, the other copies */
struct vector_worker
{
	bool		busy;
	struct vector_half halves[2];
};

struct cuda_vectors
{
	gpuvec_vectors base;
	struct cuda_backend *b;
	pthread_mutex_t lock;		/* guards workers[].busy */
	pthread_cond_t idle;
	struct vector_worker workers[VECTORS_WORKERS];
};

/* An entry of a hash table from keys to slots, see keys.cu */
struct __align__(16) key_entry
{
	int64_t		key;
	uint32_t	slot;
	uint32_t	block;
};

/* Vectors have 16 bytes or a multiple of that, the end filled with zeros */
struct gpuvec_device_bank
{
	uint32_t	width;
	bool		half;			/* float16 */
	uint32_t	stride;			/* elements from one vector to the next */
	size_t		stride_bytes;
	uint32_t	room;			/* slots */

	/* on the device, [room] each */
	void	   *memory;
	char	   *elements;
	int64_t    *keys;
	uint64_t   *tids;
	uint8_t    *live;
	struct key_entry *entries;	/* [key_entries(room)] */

	pthread_mutex_t mutex;		/* guards what follows */
	uint64_t	live_version;	/* of live[], 0: it is not filled */

	/* the updater's: vectors on their way (host memory) */
	char	   *records;
	uint32_t	nrecords;
	uint32_t	room_records;
};

/* vectors.cu: for nearest.cu */
extern struct vector_worker *take_worker(struct cuda_vectors *v, gpuvec_error *error);
extern void put_worker(struct cuda_vectors *v, struct vector_worker *worker);

/* Queue the copy of host memory to the device, through pinned memory */
extern bool send_up(struct cuda_vectors *v, struct vector_half *half, void *to, const void *from,
				 size_t bytes, gpuvec_error *error);

/* Queue the copy of at most VECTORS_PINNED bytes to the host; finish() puts them there */
extern bool fetch(struct cuda_vectors *v, struct vector_half *half, void *to, const void *from,
				  size_t bytes, gpuvec_error *error);

/* Allocate device memory, ordered in the stream of a half */
extern bool half_alloc(struct cuda_vectors *v, struct vector_half *half, void **memory, size_t bytes,
					   const char *what, gpuvec_error *error);

/* Wait for all that was queued, and copy what has come back to its target */
extern bool finish(struct cuda_vectors *v, struct vector_half *half, gpuvec_error *error);

/* Wait for all that was queued, whatever becomes of it */
extern void drain(struct cuda_vectors *v, struct vector_worker *worker);

/*
 * Give a worker back when all that was queued on it is done.  False if that fails, or if it had
 * failed before (ok): then nothing is under way any more, either.
 */
extern bool end_work(struct cuda_vectors *v, struct vector_worker *worker, bool ok, gpuvec_error *error);

/* Is the answer not wanted any more? */
static inline bool
is_canceled(const int *canceled)
{
	return canceled != NULL && __atomic_load_n(canceled, __ATOMIC_RELAXED) != 0;
}

/* keys.cu */
extern uint64_t key_entries(uint32_t room);
extern uint64_t cuda_key_limit(const gpuvec_device_bank *bank);
extern bool cuda_clear_keys(gpuvec_vectors *vectors, gpuvec_device_bank *bank, gpuvec_error *error);
extern bool cuda_map_keys(gpuvec_vectors *vectors, gpuvec_device_bank *bank,
						  const gpuvec_key_row *places, uint64_t n, gpuvec_error *error);
extern bool cuda_find_keys(gpuvec_vectors *vectors, gpuvec_device_bank *bank,
						   const gpuvec_key_search *search, gpuvec_error *error);

/* products.cu: the gradients of weights; all pointers are to device memory */
struct weight_params
{
	const char *elements;
	uint64_t	stride_bytes;
	uint32_t	width;
	const uint32_t *slots;		/* [n] */
	const uint32_t *samples;	/* [n]: of which bag each is; NULL: hotness */
	uint64_t	hotness;
	uint64_t	n;
	const float *gradient;		/* [nbags][width] */
	float	   *out;			/* [n] */

	/* of a mean; NULL: these are sums */
	const float *means;			/* [nbags][width] */
	const float *divisors;		/* [nbags] */
	double	   *bases;			/* [nbags], scratch */
	uint64_t	nbags;
	bool		skip_missing;
};

extern cudaError_t weights_launch(const struct weight_params *params, bool half, cudaStream_t stream);

/* nearest.cu */
extern bool cuda_nearest(gpuvec_vectors *vectors, gpuvec_device_bank *bank,
						 gpuvec_slot_search *search, gpuvec_error *error);

/* Open and close; b outlives it */
extern gpuvec_vectors *cuda_vectors_new(struct cuda_backend *b, gpuvec_error *error);
extern void cuda_vectors_free(gpuvec_vectors *vectors);

#endif							/* GPUVEC_CUDA_VECTORS_H */
