/*-------------------------------------------------------------------------
 *
 * protocol_vectors.h
 *	  Messages about embedding tables: vectors, sums, gradients, neighbors.
 *
 * core/protocol.h has the rules of all messages.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PROTOCOL_VECTORS_H
#define GPUVEC_PROTOCOL_VECTORS_H

#include <stdint.h>

#include "core/nearest.h"
#include "core/pooling.h"
#include "core/protocol_mirrors.h"

/*
 * Gather or pool vectors.  Followed, in this order, by
 *
 *		int64_t keys[nkeys]
 *		uint64_t offsets[nbags + 1]		where bags begin; not for GATHER,
 *										and only if hotness is 0
 *		uint64_t verdicts[nverdicts]	gpuvec_verdict, ascending and distinct
 *		float weights[nkeys]			with WEIGHTED, padded to 8 bytes
 *		float gradient[ngradient]		with respect to the pooled result,
 *										padded to 8 bytes
 *		uint8_t map[map_bytes]			visibility map: two bits for each heap
 *										page, the lower one set if the page is
 *										all-visible
 *
 * Which rows does the session's snapshot see?  It sees all rows of a page
 * whose bit in `map` is set, if the page was last read by refresh `known` or
 * an earlier one, and those of a page whose `newest` precedes `xmin`
 * (gpuvec_page).  About any other row the session must decide.  The engine
 * answers UNDECIDED with the rows that need a verdict and have none, and the
 * session sends its request again with more verdicts.  A verdict holds for as
 * long as its snapshot.
 */
typedef enum gpuvec_embedding_op
{
	GPUVEC_EMBEDDING_GATHER,	/* the vectors of keys */
	GPUVEC_EMBEDDING_POOL,		/* the pooled bags of keys */
	GPUVEC_EMBEDDING_GRAD,		/* the gradients of the keys' vectors */
	GPUVEC_EMBEDDING_GRAD_WEIGHTS	/* the gradients of the weights */
} gpuvec_embedding_op;

#define GPUVEC_N_EMBEDDING_OPS		4

#define GPUVEC_EMBEDDING_WEIGHTED	1	/* each key has a weight */
#define GPUVEC_EMBEDDING_FOUND		2	/* answer for each key whether it was
										 * found */
#define GPUVEC_EMBEDDING_KEEP_MAP	4	/* keep this map for later requests of
										 * the session */
#define GPUVEC_EMBEDDING_KEPT_MAP	8	/* use the map kept last; map_bytes is
										 * 0 */
#define GPUVEC_EMBEDDING_FLAGS		15

typedef struct gpuvec_embedding_request
{
	gpuvec_mirror_key key;
	uint64_t	position;		/* answer only if checked >= position */
	uint64_t	known;			/* number of a refresh; 0: ignore the map */
	uint64_t	xmin;			/* the snapshot's; 0: proves nothing */
	uint32_t	op;				/* gpuvec_embedding_op */
	uint32_t	flags;
	uint32_t	mode;			/* gpuvec_pool_mode */
	uint32_t	missing;		/* gpuvec_missing */
	uint64_t	nkeys;
	uint64_t	nbags;			/* 0 for GATHER */
	uint64_t	hotness;		/* keys of each bag; 0: there are offsets */
	uint64_t	nverdicts;
	uint64_t	ngradient;		/* number of floats; 0 for GATHER and POOL */
	uint64_t	map_bytes;		/* a multiple of 8 */
} gpuvec_embedding_request;

#define gpuvec_verdict(tid, visible)	((uint64_t) (tid) << 1 | (visible))
#define gpuvec_verdict_tid(verdict)		((verdict) >> 1)

typedef enum gpuvec_embedding_status
{
	GPUVEC_EMBEDDING_STALE,		/* the mirror is not READY, or checked <
								 * position */
	GPUVEC_EMBEDDING_UNDECIDED, /* followed by uint64_t tids[count], sorted */
	GPUVEC_EMBEDDING_DONE,
	GPUVEC_EMBEDDING_MISSING,	/* GPUVEC_MISSING_ERROR: no row has `key` */
	GPUVEC_EMBEDDING_DUPLICATE, /* several rows have `key` */
	GPUVEC_EMBEDDING_BAD,		/* the vector of `key` is unusable: `kind` */
	GPUVEC_EMBEDDING_WIDTHS,	/* vectors of `key` and `other_key` differ in
								 * width */
	GPUVEC_EMBEDDING_GRADIENT,	/* the gradient must have `count` elements */
	GPUVEC_EMBEDDING_LARGE,		/* the answer would be too large */
	GPUVEC_EMBEDDING_UNFIT		/* for GRAM only */
} gpuvec_embedding_status;

/*
 * Answer, with the state as it was when the request was served.  An error
 * status is about the first key, in the order of the request, that has an
 * error.  DONE is followed by
 *
 *		uint8_t found[nkeys]		with FOUND, padded to 8 bytes
 *		float elements[count]		GATHER: the vectors of the keys that were
 *									found; POOL: of the bags; GRAD_WEIGHTS:
 *									one for each key; none if no key was found
 *
 * For GRAD, the elements are replaced by
 *
 *		int64_t keys[nrows]			keys that were found, ascending, distinct
 *		float elements[count]		their gradients
 */
typedef struct gpuvec_embedding_answer
{
	gpuvec_state state;
	uint32_t	status;			/* gpuvec_embedding_status */
	uint32_t	width;			/* of vectors, 0 if no key was found; WIDTHS:
								 * of the vector of `key` */
	uint32_t	other_width;
	uint32_t	kind;			/* gpuvec_vector_kind */
	int64_t		key;
	int64_t		other_key;
	uint64_t	nfound;			/* keys that were found */
	uint64_t	nrows;			/* GRAD: number of gradients */
	uint64_t	count;
	uint32_t	engine_us;		/* time in the engine, microseconds */
	uint32_t	padding;
} gpuvec_embedding_answer;

/*
 * Find the rows of an embedding table whose vectors are nearest to queries.
 * Followed, in this order, by
 *
 *		uint64_t verdicts[nverdicts]	as for EMBEDDING
 *		int64_t excluded[nexcluded]		keys to leave out, ascending
 *		uint64_t offsets[nqueries + 1]	only if nlisted is not 0: where the
 *										queries' own lists begin
 *		int64_t listed[nlisted]			these lists: keys to leave out, too,
 *										ascending in each
 *		float queries[nqueries * width]	padded to 8 bytes
 *		uint8_t map[map_bytes]			as for EMBEDDING
 *
 * Vectors of another width than the queries are left out.  The answer is an
 * EMBEDDING_ANSWER as well.  UNDECIDED is followed by rows near the queries.
 * DONE is followed by
 *
 *		uint32_t nrows[nqueries]		padded to 8 bytes
 *		gpuvec_near rows[count]			query by query, best first
 */
typedef struct gpuvec_nearest_head
{
	gpuvec_mirror_key key;
	uint64_t	position;		/* answer only if checked >= position */
	uint64_t	known;			/* number of a refresh; 0: ignore the map */
	uint64_t	xmin;			/* the snapshot's; 0: proves nothing */
	uint32_t	metric;			/* gpuvec_metric */
	uint32_t	k;				/* 1 .. GPUVEC_MAX_K */
	uint32_t	nqueries;
	uint32_t	width;
	uint64_t	nverdicts;
	uint64_t	nexcluded;
	uint64_t	nlisted;
	uint64_t	map_bytes;		/* a multiple of 8 */
} gpuvec_nearest_head;

/* Largest nqueries * k of one request */
#define GPUVEC_MAX_NEAR			1000000

/*
 * The Gram matrix of an embedding table whose vectors are factors: the sum of
 * y y' over all rows, as gpuvec_training_fold_in() makes it, in the order of
 * keys.  Followed, in this order, by
 *
 *		uint64_t verdicts[nverdicts]	as for EMBEDDING
 *		uint8_t map[map_bytes]			as for EMBEDDING
 *
 * The answer is an EMBEDDING_ANSWER as well.  DONE is followed by
 *
 *		double gram[width * width]		its elements from the diagonal on
 *
 * UNFIT: the session has to compute it otherwise.  It does not see all rows
 * of the mirror, or would have to decide about very many, or they are not
 * factors: there are none, keys come twice, or vectors differ in width or
 * have elements that are not finite.
 */
typedef struct gpuvec_gram_head
{
	gpuvec_mirror_key key;
	uint64_t	position;		/* answer only if checked >= position */
	uint64_t	known;			/* number of a refresh; 0: ignore the map */
	uint64_t	xmin;			/* the snapshot's; 0: proves nothing */
	uint64_t	nverdicts;
	uint64_t	map_bytes;		/* a multiple of 8 */
} gpuvec_gram_head;

#endif							/* GPUVEC_PROTOCOL_VECTORS_H */
