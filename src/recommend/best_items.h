/*-------------------------------------------------------------------------
 *
 * best_items.h
 *	  A call of gpuvec_recommend, for the files that make it up.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_BEST_ITEMS_H
#define GPUVEC_BEST_ITEMS_H

#include "postgres.h"

#include "embedding/embedding_table.h"
#include "executor/tuptable.h"
#include "portability/instr_time.h"
#include "recommend/known_items.h"
#include "recommend/recommend.h"
#include "utils/tuplestore.h"

/* Positions of the arguments */
enum
{
	ARG_USER_FACTORS,
	ARG_ITEM_FACTORS,
	ARG_USERS,
	ARG_K,
	ARG_INTERACTIONS,
	ARG_USER_COLUMN,
	ARG_ITEM_COLUMN,
	ARG_EXCLUDE,
	ARG_AMONG,
	ARG_EXCLUDE_KNOWN,
	ARG_KEY_COLUMN,
	ARG_COLUMN_NAME,
	N_ARGS
};

/* A user of a batch */
typedef struct BatchUser
{
	int64		key;
	const float *factor;
	const int64 *known;			/* [nknown], ascending */
	uint64		nknown;
} BatchUser;

/* A batch of users */
typedef struct Batch
{
	MemoryContext context;
	BatchUser  *users;
	EmbeddingNearest nearest;	/* for all of them */
} Batch;

/* A call of gpuvec_recommend */
typedef struct Recommending
{
	FunctionCallInfo fcinfo;
	Snapshot	snapshot;
	AlsFactors	factors[2];		/* of gpuvec_als_side */
	KnownItems *known;			/* NULL: they do not matter */
	uint64		total_users;	/* rows of the statement ... */
	Tuplestorestate *rows[KNOWN_BUCKETS];	/* ... by bucket; NULL: none */
	int			bucket;			/* the one that is being read */
	TupleTableSlot *slot;		/* NULL: there are no rows */
	const int64 *among;			/* [namong], ascending; NULL: all items */
	uint64		namong;
	EmbeddingVectors vectors;	/* of among */
	int			nfiles;			/* relations of items, as the call began: */
	Oid		   *relids;
	Oid		   *files;			/* ... and where their rows were */

	EmbeddingNearest nearest;	/* what all batches have in common */
	uint64		most;			/* users that the next batch may have */
	Batch		batches[2];
	int			batch;			/* the present one */
	bool		made;			/* the other one is the next one */
	bool		later;			/* the present one is not the first */
	EmbeddingAhead *ahead;
	uint64		total;			/* rows that were found */
	instr_time	begun;			/* the present step of the call */

	/* the bucket of the present batch that was searched for */
	MemoryContext bucket_context;
	uint32		first;			/* its first user */
	uint32		nusers;
	const gpuvec_near_heap *heaps;	/* [nusers] */
	uint32		user;			/* the next row: its user in heaps[] ... */
	uint64		rank;			/* ... and its rank there */
} Recommending;

/* Log how long a step of the call took, and how many rows it was of */
static inline void
RecommendLogStep(Recommending *call, const char *what, uint64 rows)
{
	AlsLogStep(&call->begun, "gpuvec_recommend", what, rows);
}

/*
 * best_users.c
 *
 * RecommendReadKnown	reads the items that the users know, if these are to be
 *						left out
 * RecommendReadUsers	reads all users into the tuplestores
 * RecommendMakeBatch	makes the batch after the present one, if it is not
 *						made; without users at the end
 */
extern void RecommendReadKnown(Recommending *call);
extern void RecommendReadUsers(Recommending *call);
extern void RecommendMakeBatch(Recommending *call);

#endif							/* GPUVEC_BEST_ITEMS_H */
