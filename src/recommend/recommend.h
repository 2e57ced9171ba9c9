/*-------------------------------------------------------------------------
 *
 * recommend.h
 *	  Factors of users and items from their interactions.
 *
 * als.c			gpuvec_als, which trains
 * fold_in.c		gpuvec_als_fold_in
 * best_items.c		gpuvec_recommend
 * als_arguments.c	arguments of these functions
 * als_tables.c		what they require of tables and columns
 * als_job.c		a training in the engine, as the session sees it
 * als_read.c		rows of tables to the engine
 * als_write.c		factors from the engine into tables
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_RECOMMEND_H
#define GPUVEC_RECOMMEND_H

#include "postgres.h"

#include "core/als.h"
#include "core/protocol.h"
#include "fmgr.h"
#include "mirror/mirror.h"
#include "tcop/dest.h"

/* A table of interactions: names are quoted */
typedef struct AlsInteractions
{
	Oid			relid;
	const char *relation;		/* qualified */
	const char *columns[3];		/* user, item, weight; the last may be NULL */
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

/* als_tables.c */

extern void AlsDescribeInteractions(Oid relid, const char *user_column, const char *item_column,
									const char *weight_column, AlsInteractions *interactions);

/* key_column and column may be NULL: then they are looked for */
extern void AlsDescribeFactors(Oid relid, const char *key_column, const char *column,
							   AlsFactors *factors);

/* Fail unless the caller may replace the rows of the table */
extern void AlsCheckWritable(const AlsFactors *factors);

/*
 * A training in the engine.  AlsJobBegin() fails while another one is under
 * way in this session.  If an error ends what follows, AlsJobAbandon() must
 * be called.
 */
typedef struct AlsJob
{
	gpuvec_als_begin begin;
	gpuvec_als_state state;		/* as of the last answer */
	uint64		generation;		/* of the connection */
	uint64		sent;			/* parts of interactions that were sent ... */
	uint64		taken;			/* ... and whose answers were read */
} AlsJob;

/* als_job.c */
extern void AlsJobBegin(AlsJob *job);
extern void AlsJobAdd(AlsJob *job, uint64 n, const int64 *users, const int64 *items,
					  const float *weights);
extern void AlsJobPrepare(AlsJob *job);
extern void AlsJobSet(AlsJob *job, gpuvec_als_side side, uint64 n, const int64 *keys,
					  const float *elements);
extern void AlsJobRun(AlsJob *job);
extern void AlsJobGet(AlsJob *job, gpuvec_als_side side, uint32 first, uint32 n,
					  const int64 **keys, const float **elements);
extern void AlsJobEnd(AlsJob *job);
extern void AlsJobAbandon(const AlsJob *job);

/* The job under way in this session, or NULL */
extern AlsJob *AlsJobCurrent(void);

/* als_read.c; the number of rows that were read */

/* Interactions, of these users only unless keys is 0 */
extern uint64 AlsReadInteractions(AlsJob *job, const AlsInteractions *interactions, Datum keys);

/* Factors of a side; ascending: in the order of distinct keys */
extern uint64 AlsReadFactors(AlsJob *job, gpuvec_als_side side, const AlsFactors *factors,
							 bool ascending);

/* Fill in what all receivers of rows have in common */
extern void AlsInitReceiver(DestReceiver *dest,
							bool (*receive) (TupleTableSlot *slot, DestReceiver *self));

/* Run a query with up to `n` parameters, and give its rows to a receiver */
extern void AlsReadRows(const char *sql, int n, Oid *types, Datum *values, const char *nulls,
						DestReceiver *dest);

/* Number of elements of the factors in a table, by one of them; 0: none */
extern uint32 AlsFactorWidth(const AlsFactors *factors);

/* als_write.c; lock: against all who write, until the transaction ends */
extern void AlsLockFactors(const AlsFactors *factors);
extern uint64 AlsReplaceFactors(AlsJob *job, FunctionCallInfo fcinfo, gpuvec_als_side side,
								const AlsFactors *factors);
extern void RecommendInit(void);

#endif							/* GPUVEC_RECOMMEND_H */
