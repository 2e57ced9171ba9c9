/*-------------------------------------------------------------------------
 *
 * shard_bank.h
 *	  What the files share that serve vectors on several devices.
 *
 * shard_vectors.c	opening, closing
 * shard_ask.c		asking children
 * shard_bank.c		banks: laying out, filling
 * shard_keys.c		finding slots of keys
 * shard_pool.c		pooling, gradients of weights
 * shard_gradient.c	gradients of vectors
 * shard_nearest.c	nearest vectors
 * shard_split.c		what of a request belongs to which child
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SHARD_BANK_H
#define GPUVEC_SHARD_BANK_H

#include <pthread.h>

#include "engine/embedding/pool_simd.h"
#include "engine/shards/vectors/shard_vectors.h"
#include "engine/slot_bags.h"
#include "engine/thread_pool.h"

typedef struct shard_child
{
	gpuvec_vectors *vectors;
	uint64_t	requests;		/* under way; atomic */
} shard_child;

typedef struct shard_vectors
{
	gpuvec_vectors functions;	/* first, as callers know only this */
	gpuvec_shard_policy policy;
	gpuvec_thread_pool *asking; /* a thread for each child */
	gpuvec_thread_pool *summing;
	gpuvec_pool_bag_function *pool_bag;
	uint64_t	turn;			/* who is asked first if all have as much to
								 * do; atomic */
	bool		share;			/* children read each other's vectors */
	uint32_t	n;
	shard_child children[];		/* [n] */
} shard_vectors;

/* A child's shard of a bank */
typedef struct shard_bank_child
{
	gpuvec_device_bank *bank;
	uint64_t	entered;		/* keys entered into its hash table; atomic */
	uint8_t    *live;			/* [live slots]: of a spread bank; see
								 * shard_nearest.c */
} shard_bank_child;

typedef struct shard_bank
{
	shard_vectors *shards;
	uint32_t	width;
	gpuvec_storage storage;
	uint32_t	capacity;
	bool		copies;			/* false: the bank is spread */
	uint32_t	distance;		/* between the numbers of children's slots, if
								 * children share; else 0 */
	int64_t    *keys;			/* [capacity] */
	uint64_t   *tids;			/* [capacity] */
	int			keys_known;		/* atomic; false: the host has to find all
								 * keys */
	pthread_mutex_t mutex;		/* guards live_version, children's live[] */
	uint64_t	live_version;	/* of the arrays live[]; 0: there are none */
	shard_bank_child children[];	/* [shards->n] */
} shard_bank;

static inline shard_vectors *
shard_vectors_of(gpuvec_vectors *vectors)
{
	return (shard_vectors *) vectors;
}

static inline shard_bank *
shard_bank_of(gpuvec_device_bank *bank)
{
	return (shard_bank *) bank;
}

/* Slots of a child, of a spread bank that has n */
static inline uint32_t
shard_slots(const shard_vectors *shards, uint32_t child, uint32_t n)
{
	return n / shards->n + (child < n % shards->n);
}

/* shard_ask.c */

/* Ask a child for its shard of `arg` */
typedef bool shard_ask (void *arg, uint32_t child, gpuvec_error *error);

/*
 * Ask all children, at the same time if `beside`, else until one fails.  On
 * failure, *error is that of the first child that failed.
 */
extern bool gpuvec_shard_ask(shard_vectors *shards, shard_ask *ask, void *arg, bool beside,
							 gpuvec_error *error);

/* Note which child an error is of; returns false */
static inline bool
gpuvec_shard_failed(uint32_t child, gpuvec_error *error)
{
	if (error->fatal)
		error->device = (int) child + 1;
	return false;
}

/*
 * Take the child that has fewest requests under way; give it back after the
 * request, whose result is returned
 */
extern uint32_t gpuvec_shard_take(shard_vectors *shards);
extern bool gpuvec_shard_give(shard_vectors *shards, uint32_t child, bool ok, gpuvec_error *error);

/* shard_split.c */

/* The items of a request, by child */
typedef struct shard_split
{
	uint64_t	first[GPUVEC_MAX_CHILDREN + 1]; /* child c has the items at[]
												 * from first[c] to first[c +
												 * 1] */
	uint64_t   *at;				/* malloc'd; of a child in ascending order */
} shard_split;

/* Split slots or keys; GPUVEC_NO_SLOT belongs to no child */
extern bool gpuvec_shard_split_slots(shard_split *split, const shard_vectors *shards,
									 const uint32_t *slots, uint64_t n, gpuvec_error *error);
extern bool gpuvec_shard_split_keys(shard_split *split, const shard_vectors *shards,
									const int64_t *keys, size_t stride, uint64_t n,
									gpuvec_error *error);

/* Number of a child's items */
static inline uint64_t
shard_split_count(const shard_split *split, uint32_t child)
{
	return split->first[child + 1] - split->first[child];
}

/* What of a spread request belongs to one child, as sums */
typedef struct shard_bags
{
	gpuvec_slot_bags bags;
	uint32_t   *slots;
	uint64_t   *offsets;
	float	   *weights;		/* NULL: none */
	float	   *rows;			/* NULL, or rows of the upstream gradient */
	const float *gradient;		/* rows, or the request's */
} shard_bags;

/*
 * The slots of one child.  Each has the weight factors[its number], which may
 * be NULL.  Bags that have none of its slots may be left out, with their rows
 * of the upstream gradient.
 */
extern bool gpuvec_shard_bags_new(shard_bags *mine, const shard_bank *bank,
								  const gpuvec_slot_bags *bags, const float *factors,
								  const float *gradient, const uint64_t *at, uint64_t n,
								  gpuvec_error *error);
extern void gpuvec_shard_bags_free(shard_bags *mine);

/* shard_bank.c; for what these do see embedding_backend.h */
extern gpuvec_device_bank *gpuvec_shard_make(gpuvec_vectors *vectors, uint32_t width,
											 gpuvec_storage storage, gpuvec_error *error);
extern void gpuvec_shard_release(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank);
extern bool gpuvec_shard_reserve(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
								 uint32_t capacity, gpuvec_error *error);
extern size_t gpuvec_shard_bytes(const gpuvec_device_bank *device_bank, uint32_t capacity);
extern bool gpuvec_shard_put(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank, uint32_t slot,
							 int64_t key, uint64_t tid, const void *elements, gpuvec_error *error);
extern bool gpuvec_shard_flush(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
							   gpuvec_error *error);
extern void gpuvec_shard_forget(gpuvec_device_bank *device_bank);

/* shard_keys.c */
extern uint64_t gpuvec_shard_key_limit(const gpuvec_device_bank *device_bank);
extern bool gpuvec_shard_clear_keys(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
									gpuvec_error *error);
extern bool gpuvec_shard_map_keys(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
								  const gpuvec_key_row *rows, uint64_t n, gpuvec_error *error);
extern bool gpuvec_shard_find_keys(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
								   const gpuvec_key_search *search, gpuvec_error *error);

/* shard_pool.c */
extern bool gpuvec_shard_pool(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
							  const gpuvec_slot_bags *bags, float *out, gpuvec_error *error);
extern bool gpuvec_shard_weight_gradients(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
										  const gpuvec_slot_bags *bags, const float *gradient,
										  float *out, gpuvec_error *error);

/* shard_gradient.c */
extern bool gpuvec_shard_gradient(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
								  const gpuvec_slot_bags *bags, const float *gradient, uint64_t most,
								  uint64_t *n, void **body, gpuvec_error *error);

/* shard_nearest.c */
extern bool gpuvec_shard_nearest(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
								 gpuvec_slot_search *search, gpuvec_error *error);

#endif							/* GPUVEC_SHARD_BANK_H */
