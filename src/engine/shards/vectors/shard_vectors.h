/*-------------------------------------------------------------------------
 *
 * shard_vectors.h
 *	  The vectors of embedding tables on several devices, as if on one.
 *
 * Each device is a child.  A bank is laid out in one of two ways:
 *
 *	 copies		each child has all slots.  A request goes to the child that
 *				has least to do; a large one is split by bags, or by queries.
 *	 spread		slot s is slot s / n of child s % n.  If all children can read
 *				each other's vectors, any can pool them; see shard_pool.c for
 *				what is exchanged otherwise.
 *
 * A bank begins with copies.  It is spread when a copy would take more than
 * copy_bytes, and stays so.
 *
 * Answers are the same bits for any number of children as for one: sums are
 * taken in the order that core/pooling.h defines, never as sums of the
 * children's sums.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SHARD_VECTORS_H
#define GPUVEC_SHARD_VECTORS_H

#include "engine/embedding_backend.h"

/* Most children */
#define GPUVEC_MAX_CHILDREN	64

/*
 * How vectors are laid out and requests are served.  No answer depends on
 * this; tests set smaller numbers.
 */
typedef struct gpuvec_shard_policy
{
	size_t		copy_bytes;		/* a bank whose copy takes more on a child is
								 * spread */
	bool		share;			/* children read each other's vectors, if they
								 * can */
	int			threads;		/* that add up vectors; 0: one for each core */
	uint64_t	split_slots;	/* with copies, requests of at least this many
								 * slots are split by bags */
	uint32_t	split_queries;	/* and searches of at least this many queries */
	uint64_t	beside;			/* requests of at least this many slots, keys
								 * or queries ask the children at the same
								 * time, others one after another */
	size_t		chunk_bytes;	/* vectors that are fetched at a time, unless
								 * one bag has more */
	uint64_t	sum_slots;		/* slots that one task adds up */
} gpuvec_shard_policy;

/* What to start from; copy_bytes is 0 */
extern const gpuvec_shard_policy gpuvec_shard_defaults;

/*
 * Put 1 to GPUVEC_MAX_CHILDREN children together; NULL, with *error, on
 * failure.  The result is freed by its function `close`, which leaves the
 * children to the caller.
 */
extern gpuvec_vectors *gpuvec_shard_vectors_new(gpuvec_vectors *const *children, uint32_t n,
												const gpuvec_shard_policy *policy,
												gpuvec_error *error);

#endif							/* GPUVEC_SHARD_VECTORS_H */
