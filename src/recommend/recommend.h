/*-------------------------------------------------------------------------
 *
 * recommend.h
 *	  Factors of users and items from their interactions.
 *
 * als.c			gpuvec_als, which trains
 * fold_in.c		gpuvec_als_fold_in
 * best_items.c		gpuvec_recommend
 * best_users.c		its users, in batches
 * neighbors.c		gpuvec_item_neighbors
 * als_arguments.c	arguments of these functions
 * als_tables.c		what they require of tables and columns
 * als_job.c		a training in the engine, as the session sees it
 * als_interactions.c	interactions to the engine
 * als_weights.c		their weights
 * als_parallel.c	the same by parallel workers
 * als_read.c		rows of other tables to the engine
 * als_write.c		factors from the engine into tables
 * known_items.c	items that many users have interacted with
 * als_items.c		items of a few users, and the Gram matrix of all
 * explain.c		gpuvec_als_explain
 * draw.c			gpuvec_draw
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_RECOMMEND_H
#define GPUVEC_RECOMMEND_H

#include "postgres.h"

#include "core/als.h"
#include "core/protocol_als.h"
#include "fmgr.h"
#include "mirror/describe/mirror.h"
#include "portability/instr_time.h"
#include "search/set_function.h"
#include "tcop/dest.h"

/* A table of interactions: names are quoted */
typedef struct AlsInteractions
{
	Oid			relid;
	const char *relation;		/* qualified */
	const char *columns[3];		/* user, item, weight; the last may be NULL */
	AttrNumber	attnums[3];
	Oid			types[3];		/* without domains */
} AlsInteractions;

/* A table of factors: names are quoted */
typedef struct AlsFactors
{
	Oid			relid;
	const char *relation;		/* qualified */
	const char *key;
	const char *column;
	NameData	key_name;		/* both without quotes */
	NameData	column_name;
	Oid			key_type;		/* without domains */
	MirrorVectorType type;
} AlsFactors;

/* als_arguments.c */

/* A name, or NULL */
extern const char *AlsNameArgument(FunctionCallInfo fcinfo, int argument);

/* A float that is finite, and positive or at least not negative */
extern double AlsFloatArgument(FunctionCallInfo fcinfo, int argument, const char *name,
							   bool positive);

/* k, the number of rows for each user or item, which is not null */
extern uint32 AlsRowsArgument(FunctionCallInfo fcinfo, int argument);

/* als_tables.c */

extern void AlsDescribeInteractions(Oid relid, const char *user_column, const char *item_column,
									const char *weight_column, AlsInteractions *interactions);

/* key_column and column may be NULL: then they are looked for */
extern void AlsDescribeFactors(Oid relid, const char *key_column, const char *column,
							   AlsFactors *factors);

/* Fail unless the caller may replace the rows of the table */
extern void AlsCheckWritable(const AlsFactors *factors);

/*
 * A training in the engine, or a search for neighbors of items.
 * AlsJobBegin() fails while another one is under way in this session.  If an
 * error ends what follows, AlsJobAbandon() must be called.
 */
typedef struct AlsJob
{
	gpuvec_als_begin begin;		/* of neighbors: alpha only */
	bool		neighbors;
	uint64		number;			/* no other job of the session has it */
	gpuvec_als_state state;		/* as of the last answer */
	uint64		generation;		/* of the connection */
	uint64		sent;			/* chunks of interactions that were sent ... */
	uint64		taken;			/* ... and whose answers were read */
} AlsJob;

/* als_job.c */
extern void AlsJobBegin(AlsJob *job);
extern void AlsJobBeginNeighbors(AlsJob *job, const gpuvec_neighbors_begin *begin);
extern void AlsJobAdd(AlsJob *job, uint64 n, const int64 *users, const int64 *items,
					  const float *weights);
extern void AlsJobPrepare(AlsJob *job);
extern void AlsJobSet(AlsJob *job, gpuvec_als_side side, uint64 n, const int64 *keys,
					  const float *elements);
extern void AlsJobRun(AlsJob *job);
extern void AlsJobGet(AlsJob *job, gpuvec_als_side side, uint32 first, uint32 n,
					  const int64 **keys, const float **elements);
extern uint64 AlsJobNeighbors(AlsJob *job, const gpuvec_neighbor **rows);
extern void AlsJobEnd(AlsJob *job);
extern void AlsJobAbandon(const AlsJob *job);

/* The job under way in this session, or NULL */
extern AlsJob *AlsJobCurrent(void);

/* Log how long a step of a call took since *begun, and begin the next one */
extern void AlsLogStep(instr_time *begun, const char *function, const char *what, uint64 rows);

/* als_interactions.c */

/*
 * The elements of an int8[] that are numbers of this type, as an array of the
 * type; nulls may be left out
 */
extern Datum AlsKeysOfType(Datum array, Oid type, Oid *array_type);

/*
 * Interactions, of these users only unless keys is 0; the number of rows that
 * had keys and a weight
 */
extern uint64 AlsReadInteractions(AlsJob *job, const AlsInteractions *interactions, Datum keys);

/* The same, to a function, which gets some at a time */
typedef void AlsTakeChunk (void *arg, uint64 n, const int64 *users, const int64 *items,
						   const float *weights);

extern uint64 AlsReadChunks(const AlsInteractions *interactions, Datum keys, double alpha,
							AlsTakeChunk *take, void *arg);

/* als_read.c: factors of a side; ascending: in the order of distinct keys */
extern uint64 AlsReadFactors(AlsJob *job, gpuvec_als_side side, const AlsFactors *factors,
							 bool ascending);

/*
 * A pair of a user and an item, and its weight.  What follows is set by
 * AlsUnitePairs().
 */
typedef struct AlsPair
{
	int64		user;
	int64		item;
	double		weight;
	float		confidence;		/* negative for a dislike */
	const float *factor;		/* of the item */
} AlsPair;

typedef struct AlsPairs
{
	AlsPair    *pairs;			/* [n] */
	uint64		n;
	uint64		capacity;
	uint64		most;
	MemoryContext context;
} AlsPairs;

/*
 * Read interactions of these users into the current memory context.  False if
 * there are more than `most`.
 */
extern bool AlsReadPairs(const AlsInteractions *interactions, Datum keys, double alpha,
						 uint64 most, AlsPairs *pairs);

/* Read factors of `width` elements, in the order of distinct keys */
typedef void AlsTakeFactors (void *arg, uint32 n, const int64 *keys, const float *elements);

extern void AlsReadFactorChunks(const AlsFactors *factors, uint32 width, AlsTakeFactors *take,
								void *arg);

/* Fill in what all receivers of rows have in common */
extern void AlsInitReceiver(DestReceiver *dest,
							bool (*receive) (TupleTableSlot *slot, DestReceiver *self));

/* Run a query with up to `n` parameters, and give its rows to a receiver */
extern void AlsReadRows(const char *sql, int n, Oid *types, Datum *values, const char *nulls,
						DestReceiver *dest);

/*
 * Decode the factor of a row whose first columns are a key and a vector; both
 * are not null.  Fails if it is no vector.
 */
extern void AlsDecodeFactor(TupleTableSlot *slot, const AlsFactors *factors, int64 *key,
							MirrorVector *vector);

/* Raise the error that a factor cannot be used */
extern void AlsComplainOfFactor(const AlsFactors *factors, int64 key, const char *detail)
			pg_attribute_noreturn();

/* Number of elements of the factors in a table, by one of them; 0: none */
extern uint32 AlsFactorWidth(const AlsFactors *factors);

/* als_items.c */

/* Items of some users, and what else their systems need */
typedef struct AlsItems
{
	uint32		factors;		/* elements of a factor; 0: there is none */
	const double *gram;			/* [factors * factors]: from the diagonal on */
	const int64 *keys;			/* [n], ascending and distinct */
	const float **vectors;		/* [n]: the factor of each; NULL: it has none */
	uint64		n;
} AlsItems;

/*
 * Get the factors of the pairs' items, and of one more item, from the table's
 * mirror.  False if that is not possible.
 */
extern bool AlsGatherItems(const AlsFactors *table, const AlsPairs *pairs, int64 more,
						   AlsItems *items);

/* The same by reading the table */
extern void AlsScanItems(const AlsFactors *table, const AlsPairs *pairs, int64 more,
						 AlsItems *items);

/* The factor of an item, or NULL */
extern const float *AlsItemFactor(const AlsItems *items, int64 key);

/*
 * Sort the pairs by users and items, unite those that come several times, and
 * leave out those whose item has no factor, and those without weight
 */
extern void AlsUnitePairs(AlsPairs *pairs, const AlsItems *items, double alpha);

/*
 * Make and decompose the system of a user with these pairs; as
 * gpuvec_als_prepare()
 */
extern bool AlsPrepareSystem(const AlsItems *items, const AlsPair *pairs, uint64 n,
							 double regularization, double *a, double *b);

/* als_write.c; lock: against all who write, until the transaction ends */
extern void AlsLockFactors(const AlsFactors *factors);
extern uint64 AlsReplaceFactors(AlsJob *job, FunctionCallInfo fcinfo, gpuvec_als_side side,
								const AlsFactors *factors);
extern void RecommendInit(void);

/* best_items.c: its function that returns rows */
extern const SetFunction RecommendFunctions[];

#endif							/* GPUVEC_RECOMMEND_H */
