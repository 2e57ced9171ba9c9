/*-------------------------------------------------------------------------
 *
 * protocol_als.h
 *	  Messages of trainings, and of neighbors of items.
 *
 * core/protocol.h has the rules of all messages.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PROTOCOL_ALS_H
#define GPUVEC_PROTOCOL_ALS_H

#include <stdint.h>

#include "core/als.h"
#include "core/protocol.h"
#include "core/weighting.h"

/*
 * Training of factors by alternating least squares (core/als.h).  It belongs
 * to a session, which has one at most: another BEGIN ends the former.  The
 * order of requests is BEGIN, ADD ..., PREPARE, SET ..., RUN for each
 * iteration, GET ..., END.
 *
 * With `fold_in`, factors of users are computed from those of all items: the
 * order is BEGIN, SET ... with the items in the order of their keys, ADD ...,
 * PREPARE, one RUN, GET ... of users, END.  Interactions with other items are
 * left out.
 *
 * Once a request has failed, all others but BEGIN get the same error.
 */
typedef struct gpuvec_als_begin
{
	uint32_t	role;			/* OID of the role that trains, ... */
	uint32_t	relation;		/* ... of what it trains on, for ALS_LIST */
	uint32_t	factors;		/* 1 .. GPUVEC_ALS_MAX_FACTORS */
	uint32_t	iterations;		/* for ALS_LIST */
	uint32_t	cg_steps;		/* 1 .. GPUVEC_ALS_MAX_STEPS */
	uint32_t	fold_in;		/* 0 or 1 */
	double		regularization; /* finite, at least 0 */
	double		alpha;			/* finite, at least GPUVEC_ALS_MIN_ALPHA */
	int64_t		seed;
} gpuvec_als_begin;

/*
 * A chunk of the interactions or factors.  Followed, for ADD, by
 *
 *		int64_t users[n]
 *		int64_t items[n]
 *		float weights[n]			finite and not zero; padded to 8 bytes
 *
 * and for SET by
 *
 *		int64_t keys[n]
 *		float elements[n * factors]	padded to 8 bytes
 *
 * GET asks for n rows of a side from `first` on, in the order of their keys.
 */
typedef struct gpuvec_als_chunk
{
	uint32_t	side;			/* gpuvec_als_side; 0 for ADD */
	uint32_t	first;			/* 0 for ADD and SET */
	uint64_t	n;
} gpuvec_als_chunk;

typedef enum gpuvec_als_phase
{
	GPUVEC_ALS_READING,
	GPUVEC_ALS_PREPARING,
	GPUVEC_ALS_TRAINING,
	GPUVEC_ALS_WRITING,
	GPUVEC_ALS_NEIGHBORS
} gpuvec_als_phase;

typedef struct gpuvec_als_state
{
	uint32_t	pid;			/* of the session */
	uint32_t	database;
	uint32_t	role;
	uint32_t	relation;
	uint32_t	phase;			/* gpuvec_als_phase */
	uint32_t	iteration;		/* iterations, or items, done ... */
	uint32_t	iterations;		/* ... of this many */
	uint32_t	fold_in;
	uint64_t	added;			/* interactions that were added */
	uint64_t	users;			/* from PREPARE on */
	uint64_t	items;
	uint64_t	entries;		/* pairs of users and items */
	double		loss;			/* after the last iteration; NaN: none yet */
	double		seconds;		/* that the last request took in the engine */
} gpuvec_als_state;

/*
 * The nearest items of each item (core/weighting.h).  It takes the place of a
 * training: the order of requests is NEIGHBORS_BEGIN, ADD ..., PREPARE,
 * NEIGHBORS until as many items are done as there are, END.  Each answer to
 * NEIGHBORS has all neighbors of the next items, in the order of their keys.
 */
typedef struct gpuvec_neighbors_begin
{
	uint32_t	role;			/* OID of the role that asks, ... */
	uint32_t	relation;		/* ... and of what it reads, for ALS_LIST */
	uint32_t	k;				/* 1 .. GPUVEC_MAX_K */
	uint32_t	weighting;		/* gpuvec_weighting */
	double		k1;				/* 0 .. GPUVEC_MAX_BM25_K1 */
	double		b;				/* 0 .. 1 */
} gpuvec_neighbors_begin;

typedef struct gpuvec_neighbor
{
	int64_t		item;			/* keys of both */
	int64_t		neighbor;
	double		score;			/* more than zero */
} gpuvec_neighbor;

#endif							/* GPUVEC_PROTOCOL_ALS_H */
