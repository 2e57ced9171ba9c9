/*-------------------------------------------------------------------------
 *
 * part_bank.h
 *	  What the files share that serve vectors on several devices.
 *
 * part_vectors.c	opening, closing
 * part_ask.c		asking children
 * part_bank.c		banks: laying out, filling
 * part_keys.c		finding slots of keys
 * part_pool.c		pooling, gradients of weights
 * part_gradient.c	gradients of vectors
 * part_nearest.c	nearest vectors
 * part_split.c		what of a request belongs to which child
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PART_BANK_H
#define GPUVEC_PART_BANK_H

#include <pthread.h>

#include "engine/embedding/pool_simd.h"
#include "engine/parts/vectors/part_vectors.h"
#include "engine/slot_bags.h"
#include "engine/thread_pool.h"

typedef struct part_child
{
	gpuvec_vectors *vectors;
	uint64_t	requests;		/* under way; atomic */
} part_child;

typedef struct part_vectors
{
	gpuvec_vectors functions;	/* first, as callers know only this */
	gpuvec_part_policy policy;
	gpuvec_thread_pool *asking; /* a thread for each child */
	gpuvec_thread_pool *summing;
	gpuvec_pool_bag_function *pool_bag;
	uint64_t	turn;			/* who is asked first if all have as much to
								 * do; atomic */
	bool		share;			/* children read each other's vectors */
	uint32_t	n;
	part_child	children[];		/* [n] */
} part_vectors;

/* A child's part of a bank */
typedef struct part_bank_child
{
	gpuvec_device_bank *bank;
	uint64_t	entered;		/* keys entered into its hash table; atomic */
	uint8_t    *live;			/* [live slots]: of a spread bank; see
								 * part_nearest.c */
} part_bank_child;

typedef struct part_bank
{
	part_vectors *parts;
	uint32_t	width;
	gpuvec_storage storage;
	uint32_t	room;
	bool		copies;			/* false: the bank is spread */
	uint32_t	distance;		/* between the numbers of children's slots, if
								 * children share; else 0 */
	int64_t    *keys;			/* [room] */
	uint64_t   *tids;			/* [room] */
	int			keys_known;		/* atomic; false: the host has to find all
								 * keys */
	pthread_mutex_t mutex;		/* guards live_version and live[] of children */
	uint64_t	live_version;	/* of the arrays live[]; 0: there are none */
	part_bank_child children[]; /* [parts->n] */
} part_bank;

static inline part_vectors *
part_vectors_of(gpuvec_vectors *vectors)
{
	return (part_vectors *) vectors;
}

static inline part_bank *
part_bank_of(gpuvec_device_bank *bank)
{
	return (part_bank *) bank;
}

/* Slots of a child, of a spread bank that has n */
static inline uint32_t
part_slots(const part_vectors *parts, uint32_t child, uint32_t n)
{
	return n / parts->n + (child < n % parts->n);
}

/* part_ask.c */

/* Ask a child for its part of `arg` */
typedef bool part_ask (void *arg, uint32_t child, gpuvec_error *error);

/*
 * Ask all children, at the same time if `beside`, else until one fails.  On
 * failure, *error is that of the first child that failed.
 */
extern bool gpuvec_part_ask(part_vectors *parts, part_ask *ask, void *arg, bool beside,
							gpuvec_error *error);

/*
 * Take the child that has fewest requests under way; give it back after the
 * request
 */
extern uint32_t gpuvec_part_take(part_vectors *parts);
extern void gpuvec_part_give(part_vectors *parts, uint32_t child);

/* part_split.c */

/* The items of a request, by child */
typedef struct part_split
{
	uint64_t	first[GPUVEC_MAX_CHILDREN + 1]; /* child c has the items at[]
												 * from first[c] to first[c +
												 * 1] */
	uint64_t   *at;				/* malloc'd; of a child in ascending order */
} part_split;

/* Split slots or keys; GPUVEC_NO_SLOT belongs to no child */
extern bool gpuvec_part_split_slots(part_split *split, const part_vectors *parts,
									const uint32_t *slots, uint64_t n, gpuvec_error *error);
extern bool gpuvec_part_split_keys(part_split *split, const part_vectors *parts,
								   const int64_t *keys, size_t stride, uint64_t n,
								   gpuvec_error *error);

/* Number of a child's items */
static inline uint64_t
part_split_count(const part_split *split, uint32_t child)
{
	return split->first[child + 1] - split->first[child];
}

/* What of a spread request belongs to one child, as sums */
typedef struct part_bags
{
	gpuvec_slot_bags bags;
	uint32_t   *slots;
	uint64_t   *offsets;
	float	   *weights;		/* NULL: none */
	float	   *rows;			/* NULL, or rows of the upstream gradient */
	const float *gradient;		/* rows, or the request's */
} part_bags;

/*
 * The slots of one child.  Each has the weight factors[its number], which may
 * be NULL.  Bags that have none of its slots may be left out, with their rows
 * of the upstream gradient.
 */
extern bool gpuvec_part_bags_new(part_bags *mine, const part_bank *bank,
								 const gpuvec_slot_bags *bags, const float *factors,
								 const float *gradient, const uint64_t *at, uint64_t n,
								 gpuvec_error *error);
extern void gpuvec_part_bags_free(part_bags *mine);

/* part_bank.c; for what these do see embedding_backend.h */
extern gpuvec_device_bank *gpuvec_part_make(gpuvec_vectors *vectors, uint32_t width,
											gpuvec_storage storage, gpuvec_error *error);
extern void gpuvec_part_release(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank);
extern bool gpuvec_part_reserve(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
								uint32_t room, gpuvec_error *error);
extern size_t gpuvec_part_bytes(const gpuvec_device_bank *device_bank, uint32_t room);
extern bool gpuvec_part_put(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank, uint32_t slot,
							int64_t key, uint64_t tid, const void *elements, gpuvec_error *error);
extern bool gpuvec_part_flush(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
							  gpuvec_error *error);
extern void gpuvec_part_forget(gpuvec_device_bank *device_bank);

/* part_keys.c */
extern uint64_t gpuvec_part_key_limit(const gpuvec_device_bank *device_bank);
extern bool gpuvec_part_clear_keys(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
								   gpuvec_error *error);
extern bool gpuvec_part_map_keys(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
								 const gpuvec_key_row *rows, uint64_t n, gpuvec_error *error);
extern bool gpuvec_part_find_keys(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
								  const gpuvec_key_search *search, gpuvec_error *error);

/* part_pool.c */
extern bool gpuvec_part_pool(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
							 const gpuvec_slot_bags *bags, float *out, gpuvec_error *error);
extern bool gpuvec_part_weight_gradients(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
										 const gpuvec_slot_bags *bags, const float *gradient,
										 float *out, gpuvec_error *error);

/* part_gradient.c */
extern bool gpuvec_part_gradient(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
								 const gpuvec_slot_bags *bags, const float *gradient, uint64_t most,
								 uint64_t *n, void **body, gpuvec_error *error);

/* part_nearest.c */
extern bool gpuvec_part_nearest(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
								gpuvec_slot_search *search, gpuvec_error *error);

#endif							/* GPUVEC_PART_BANK_H */
