/*-------------------------------------------------------------------------
 *
 * cpu_vectors.h
 *	  Vectors of embedding tables in the host's memory.
 *
 * cpu_vectors.c	banks, hash tables of keys, banks that share memory
 * cpu_pool.c		pooling and gradients
 * cpu_nearest.c	nearest vectors
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CPU_VECTORS_H
#define GPUVEC_CPU_VECTORS_H

#include <pthread.h>

#include "engine/embedding_backend.h"

/* It has no state of its own: all backends on the CPU have this one */
extern gpuvec_vectors gpuvec_cpu_vectors;

/* ---- what the files share ---- */

/* Vectors of several banks */
typedef struct cpu_range
{
	int			refs;
	char		elements[];
} cpu_range;

/* An entry of the hash table of keys */
typedef struct cpu_key_entry
{
	gpuvec_key_row row;
	bool		used;
} cpu_key_entry;

typedef struct cpu_bank
{
	uint32_t	width;
	gpuvec_storage storage;
	uint32_t	capacity;
	size_t		vector_bytes;
	char	   *elements;		/* [room * width] */
	cpu_range  *range;			/* where elements are, or NULL */
	pthread_mutex_t mutex;		/* guards the hash table */
	cpu_key_entry *entries;		/* [nentries], or NULL */
	uint64_t	nentries;
} cpu_bank;

/* cpu_pool.c, cpu_nearest.c; for what these do see embedding_backend.h */
extern bool cpu_pool(gpuvec_vectors *vectors, gpuvec_device_bank *bank,
					 const gpuvec_slot_bags *bags, float *out, gpuvec_error *error);
extern bool cpu_pool_shared(gpuvec_vectors *vectors, gpuvec_device_bank *bank,
							const gpuvec_slot_bags *bags, const float *gradient, float *out,
							gpuvec_error *error);
extern bool cpu_gradient(gpuvec_vectors *vectors, gpuvec_device_bank *bank,
						 const gpuvec_slot_bags *bags, const float *gradient, uint64_t most,
						 uint64_t *n, void **body, gpuvec_error *error);
extern bool cpu_weight_gradients(gpuvec_vectors *vectors, gpuvec_device_bank *bank,
								 const gpuvec_slot_bags *bags, const float *gradient, float *out,
								 gpuvec_error *error);
extern bool cpu_nearest(gpuvec_vectors *vectors, gpuvec_device_bank *bank,
						gpuvec_slot_search *search, gpuvec_error *error);

/* Run all slices of a task; without a pool, or a single one, in this thread */
static inline void
cpu_run(gpuvec_thread_pool *pool, gpuvec_slice slice, void *task, uint64_t nslices)
{
	if (pool && nslices > 1)
		gpuvec_thread_pool_run(pool, slice, task, nslices);
	else
		for (uint64_t i = 0; i < nslices; i++)
			slice(task, i, 0);
}

#endif							/* GPUVEC_CPU_VECTORS_H */
