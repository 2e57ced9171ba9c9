/*-------------------------------------------------------------------------
 *
 * embedding_backend.h
 *	  Interface to what holds the vectors of embedding tables: a device, or the
 *	  CPU (cpu/cpu_vectors.c).
 *
 * A bank holds vectors of one width, in numbered slots.  Which row a slot
 * belongs to is up to the engine (embedding_mirror.h), so its requests name
 * slots.  For finding the slots of keys, a device can keep a hash table,
 * which the engine fills.  Results are those defined in core/pooling.h,
 * pooling_grad.h and nearest.h, to the bit.
 *
 * All functions may be called from any thread.  Functions that change a bank
 * are called only by the updater of its mirror.  While `reserve` runs, nobody
 * else uses the bank.  `put` and `flush` may run beside requests that do not
 * use the slots concerned.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_EMBEDDING_BACKEND_H
#define GPUVEC_EMBEDDING_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/pooling_types.h"
#include "engine/engine_error.h"
#include "engine/thread_pool.h"

#ifdef __cplusplus
extern "C"
{
#endif

/* Slot of a key that was not found */
#define GPUVEC_NO_SLOT			UINT32_MAX

/* Slot of a key that find_keys leaves to the host */
#define GPUVEC_ASK_SLOT			(UINT32_MAX - 1)

/* Most slots that a bank may have */
#define GPUVEC_MAX_SLOTS		INT32_MAX

typedef struct gpuvec_device_bank gpuvec_device_bank;

/*
 * The bags of a request, as slots, in host memory that the caller owns.
 * (gpuvec_bag in pooling.h is a bag of keys.  gpuvec_pooling_bags are the
 * bags of a kernel, in device memory.)
 */
typedef struct gpuvec_slot_bags
{
	const uint32_t *slots;		/* [nslots] */
	uint64_t	nslots;
	const uint64_t *offsets;	/* [nbags + 1], from 0 to nslots; NULL: use
								 * hotness */
	uint64_t	hotness;		/* number of slots of each bag */
	uint64_t	nbags;
	const float *weights;		/* [nslots], or NULL */
	const float *divisors;		/* [nbags]: for gradients of weights with mean
								 * only */
	gpuvec_pool_mode mode;		/* concat: one vector per slot; bags do not
								 * matter */
	bool		skip_missing;	/* a mean does not count keys that were not
								 * found */
	const int64_t *keys;		/* [nslots]: for the gradient of vectors on
								 * the host; a device has keys of its own */
	gpuvec_thread_pool *pool;	/* for vectors on the host; NULL: one thread */
	const int  *canceled;		/* NULL, or nonzero once the answer is no
								 * longer wanted; read atomically */
} gpuvec_slot_bags;

/*
 * Where the keys and tids of slots are, in memory that the caller owns: those
 * of a slot are `step` elements behind those of the one before
 */
typedef struct gpuvec_slot_names
{
	const int64_t *keys;
	const uint64_t *tids;
	uint32_t	step;
} gpuvec_slot_names;

/* A search for the nearest vectors */
typedef struct gpuvec_slot_search
{
	gpuvec_metric metric;
	const float *queries;		/* [nqueries * width] */
	const double *squares;		/* [nqueries]: scalar product of each query
								 * with itself */
	uint32_t	nqueries;
	uint32_t	k;				/* at least 1, and no more than nlive */
	const uint8_t *live;		/* [nlive]: nonzero for slots whose rows are
								 * searched */
	uint32_t	nlive;
	uint64_t	version;		/* changes whenever the contents of live[]
								 * change */
	const int  *canceled;

	/*
	 * For vectors on the host; a device has keys and tids of its own, and
	 * finds unwanted slots as well.
	 */
	gpuvec_slot_names names;
	gpuvec_thread_pool *pool;	/* NULL: one thread */
	/* Is a slot wanted by a query?  NULL: all are */
	bool		(*wanted) (const void *arg, uint32_t query, uint32_t slot);
	const void *wanted_arg;

	/*
	 * the answer: the best k live slots, or all if there are fewer, in any
	 * order
	 */
	uint32_t   *slots;			/* [nqueries * k] */
	double	   *scores;			/* [nqueries * k] */
	uint32_t   *counts;			/* [nqueries] */
} gpuvec_slot_search;

/* An entry of a device's hash table */
typedef struct gpuvec_key_row
{
	int64_t		key;
	uint32_t	slot;			/* or GPUVEC_NO_SLOT: the key has no row; or
								 * GPUVEC_ASK_SLOT */
	uint32_t	block;			/* the block number of the row */
} gpuvec_key_row;

/* A look-up of keys */
typedef struct gpuvec_key_search
{
	const int64_t *keys;		/* [nkeys] */
	uint64_t	nkeys;
	const uint32_t *proven;		/* a bit for each of nblocks pages:
								 * GPUVEC_ASK_SLOT is answered for rows of
								 * pages without it */
	uint32_t	nblocks;
	const int  *canceled;

	/* the answer: a slot, GPUVEC_NO_SLOT or GPUVEC_ASK_SLOT */
	uint32_t   *slots;			/* [nkeys] */
} gpuvec_key_search;

typedef struct gpuvec_vectors gpuvec_vectors;

struct gpuvec_vectors
{
	/*
	 * True if vectors are in the host's memory.  They are charged to it when
	 * they come, the host finds the slots of all keys, and searches leave out
	 * what is not wanted.
	 */
	bool		on_host;

	/* Free it; all banks have been released */
	void		(*close) (gpuvec_vectors *vectors);

	/* Make a bank for vectors of width > 0, without room for slots */
	gpuvec_device_bank *(*make) (gpuvec_vectors *vectors, uint32_t width,
								 gpuvec_storage storage, gpuvec_error *error);
	void		(*release) (gpuvec_vectors *vectors, gpuvec_device_bank *bank);

	/* Make room for `capacity` slots; on failure the bank is unchanged */
	bool		(*reserve) (gpuvec_vectors *vectors, gpuvec_device_bank *bank, uint32_t capacity,
							gpuvec_error *error);

	/* Device memory that `capacity` slots take, in bytes */
	size_t		(*bytes) (const gpuvec_device_bank *bank, uint32_t capacity);

	/*
	 * put fills a slot, at most once between two flushes.  The copy to the
	 * device may be pending until flush returns.  forget drops pending
	 * copies.
	 */
	bool		(*put) (gpuvec_vectors *vectors, gpuvec_device_bank *bank, uint32_t slot, int64_t key,
						uint64_t tid, const void *elements, gpuvec_error *error);
	bool		(*flush) (gpuvec_vectors *vectors, gpuvec_device_bank *bank, gpuvec_error *error);
	void		(*forget) (gpuvec_device_bank *bank);

	/*
	 * Each bank may have a hash table from keys to slots.  clear_keys makes
	 * an empty one, and reserve destroys it.  map_keys enters rows with
	 * different keys; several threads may call it at the same time, if their
	 * keys differ.  After that, find_keys looks keys up.  key_limit is the
	 * number of rows that may be entered until clear_keys is called again.
	 */
	uint64_t	(*key_limit) (const gpuvec_device_bank *bank);
	bool		(*clear_keys) (gpuvec_vectors *vectors, gpuvec_device_bank *bank, gpuvec_error *error);
	bool		(*map_keys) (gpuvec_vectors *vectors, gpuvec_device_bank *bank,
							 const gpuvec_key_row *rows, uint64_t n, gpuvec_error *error);
	bool		(*find_keys) (gpuvec_vectors *vectors, gpuvec_device_bank *bank,
							  const gpuvec_key_search *search, gpuvec_error *error);

	/* Pool into out[nbags * width]; for concat out[nslots * width] */
	bool		(*pool) (gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_slot_bags *bags,
						 float *out, gpuvec_error *error);

	/*
	 * The gradient of the vectors, given the upstream gradient.  *n is the
	 * number of different slots.  It must not exceed `most`, which bounds the
	 * memory needed.  *body is malloc'd: the slots' keys as int64, ascending,
	 * and then their gradients.
	 */
	bool		(*gradient) (gpuvec_vectors *vectors, gpuvec_device_bank *bank,
							 const gpuvec_slot_bags *bags, const float *gradient, uint64_t most,
							 uint64_t *n, void **body, gpuvec_error *error);

	/* The gradients of the weights, into out[nslots]; not for concat */
	bool		(*weight_gradients) (gpuvec_vectors *vectors, gpuvec_device_bank *bank,
									 const gpuvec_slot_bags *bags, const float *gradient, float *out,
									 gpuvec_error *error);

	/* Find the nearest vectors in live slots, as ordered by nearest.h */
	bool		(*nearest) (gpuvec_vectors *vectors, gpuvec_device_bank *bank,
							gpuvec_slot_search *search, gpuvec_error *error);

	/*
	 * What follows is NULL for devices that do not have it: banks of several
	 * devices of one kind, whose vectors all of them can read.
	 *
	 * can_share says whether these devices can.  reserve_shared makes room
	 * for `capacity` slots in each of n banks of one width.  Slot s of bank c
	 * is then number c * distance + s of all.  On failure, all banks are
	 * unchanged.  pool_shared does what `pool`, or with a gradient
	 * `weight_gradients`, does, for bags of such numbers.
	 */
	bool		(*can_share) (gpuvec_vectors *const *vectors, uint32_t n);
	bool		(*reserve_shared) (gpuvec_vectors *const *vectors, gpuvec_device_bank *const *banks,
								   uint32_t n, uint32_t capacity, uint32_t *distance,
								   gpuvec_error *error);
	bool		(*pool_shared) (gpuvec_vectors *vectors, gpuvec_device_bank *bank,
								const gpuvec_slot_bags *bags, const float *gradient, float *out,
								gpuvec_error *error);
};

#ifdef __cplusplus
}
#endif

#endif							/* GPUVEC_EMBEDDING_BACKEND_H */
