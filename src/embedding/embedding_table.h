/*-------------------------------------------------------------------------
 *
 * embedding_table.h
 *	  Gathering and pooling the vectors of embedding tables.
 *
 * ask.c		asking the engine scan.c		the rows of a table, without
 * the engine collect.c	vectors collected in this session, where one request
 * will not do cache.c		vectors kept for the next groups of an aggregate
 * pool.c		bags of keys to vectors, either way gradient.c	gradients
 * nearest.c	the nearest rows arguments.c	arguments of the functions
 * functions.c	the functions of SQL that return one value rows.c		those
 * that return rows aggregate.c	the aggregate that pools bags.c		the
 * aggregate that makes batches train.c		new keys, steps of optimizers
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_EMBEDDING_TABLE_H
#define GPUVEC_EMBEDDING_TABLE_H

#include "postgres.h"

#include "core/pooling.h"
#include "fmgr.h"
#include "mirror/conversation.h"
#include "utils/array.h"

/* Which rows of a target the snapshot sees, as far as it was asked */
typedef struct EmbeddingVerdicts
{
	uint64	   *verdicts;		/* gpuvec_verdict, ascending */
	uint64		n;
} EmbeddingVerdicts;

/* An embedding table that is being used, in one snapshot */
typedef struct EmbeddingTable
{
	Oid			relid;
	MirrorTarget *targets;		/* open */
	int			ntargets;
	EmbeddingVerdicts *verdicts;	/* of each target */
	Snapshot	snapshot;
	uint64		engine_us;		/* time spent in the engine */
	MirrorKeptMap *kept_map;	/* that outlives it; NULL: none */
} EmbeddingTable;

/* Bags of keys that are to be pooled */
typedef struct EmbeddingBags
{
	const int64 *keys;
	uint64		nkeys;
	const uint64 *offsets;		/* [nbags + 1] */
	uint64		nbags;
	const float *weights;		/* of the keys; NULL: none */
	gpuvec_pool_mode mode;
	gpuvec_missing missing;
	const float *gradient;		/* with respect to what pooling returns; NULL:
								 * none */
	uint64		ngradient;
} EmbeddingBags;

/* Vectors, one behind the other, in the current memory context */
typedef struct EmbeddingVectors
{
	bool		known;			/* false: the table has no rows, so no width */
	uint32		width;
	const bool *found;			/* of each key */
	const float *elements;
	uint64		count;
} EmbeddingVectors;

typedef struct EmbeddingCollection EmbeddingCollection;

/* pool.c */
extern EmbeddingTable *EmbeddingOpen(Oid relid, const char *key_column, const char *column,
									 Snapshot snapshot);
extern void EmbeddingClose(EmbeddingTable *table);
extern void EmbeddingGather(EmbeddingTable *table, const int64 *keys, uint64 nkeys,
							EmbeddingVectors *vectors);
extern void EmbeddingPool(EmbeddingTable *table, const EmbeddingBags *bags,
						  EmbeddingVectors *vectors);
extern uint64 EmbeddingBagElements(const EmbeddingBags *bags, const EmbeddingVectors *vectors,
								   uint64 bag);
extern const int64 *EmbeddingAllKeys(EmbeddingTable *table, uint64 *n);
extern bool EmbeddingWidth(EmbeddingTable *table, uint32 *width);

extern bool EmbeddingRequestTooLarge(const EmbeddingBags *bags);
extern void EmbeddingPoolCollected(EmbeddingCollection *collection, EmbeddingTable *table,
								   const EmbeddingBags *bags, EmbeddingVectors *vectors);
extern gpuvec_bag EmbeddingBag(const EmbeddingBags *bags, const float **where, uint32 width,
							   uint64 bag, float *scratch);
extern void EmbeddingReportWrong(EmbeddingTable *table) pg_attribute_noreturn();
extern void EmbeddingCompare(EmbeddingTable *table, const float *a, const float *b, uint64 n);

/* gradient.c */
typedef struct EmbeddingGradient
{
	bool		known;			/* false: no key was found */
	uint32		width;
	uint64		n;				/* keys, or weights */
	const int64 *keys;			/* of the gradients of vectors */
	const float *elements;
} EmbeddingGradient;

extern void EmbeddingGradients(EmbeddingTable *table, gpuvec_embedding_op op,
							   const EmbeddingBags *bags, EmbeddingGradient *result);

/* ask.c */
typedef struct EmbeddingAnswer
{
	gpuvec_embedding_answer head;
	char	   *body;			/* behind the head, in the message */
	const char *found;			/* of each key, if GPUVEC_EMBEDDING_FOUND was
								 * asked for */
	const int64 *keys;			/* GPUVEC_EMBEDDING_GRAD */
	const float *elements;
	const uint32 *counts;		/* nearest rows of each query */
	const gpuvec_near *rows;
} EmbeddingAnswer;

/* A search for the nearest rows */
typedef struct EmbeddingNearest
{
	gpuvec_metric metric;
	uint32		k;
	uint32		width;
	uint32		nqueries;
	const float *queries;		/* one behind the other */
	const int64 *excluded;		/* keys, ascending */
	uint64		nexcluded;
} EmbeddingNearest;

extern bool EmbeddingAsk(EmbeddingTable *table, int target, gpuvec_embedding_op op, uint32 flags,
						 const EmbeddingBags *bags, EmbeddingAnswer *answer, const char **reason);

extern bool EmbeddingAskNearest(EmbeddingTable *table, int target, const EmbeddingNearest *nearest,
								EmbeddingAnswer *answer, const char **reason);

/* scan.c */
typedef struct EmbeddingRow
{
	int64		key;
	uint64		tid;
	struct varlena *value;		/* the vector, as it is stored */
} EmbeddingRow;

extern void EmbeddingScan(MirrorTarget *target, Snapshot snapshot, bool first,
						  bool (*take) (void *arg, const EmbeddingRow *row), void *arg);

/* collect.c */
extern EmbeddingCollection *EmbeddingCollectionMake(void);
extern uint64 EmbeddingCollectMore(EmbeddingCollection *collection, EmbeddingTable *table,
								   const int64 *keys, uint64 nkeys, bool use_engine);
extern EmbeddingCollection *EmbeddingCollect(EmbeddingTable *table, const int64 *keys,
											 uint64 nkeys, bool use_engine);
extern const float **EmbeddingLocate(EmbeddingCollection *collection, EmbeddingTable *table,
									 const EmbeddingBags *bags, EmbeddingVectors *vectors);

/* train_check.c */
extern void EmbeddingCheckColumns(Oid relid, const char *key_column, const char *column,
								  bool write_keys);
extern void EmbeddingCheckUnique(Oid relid, const char *column);
extern void EmbeddingCheckState(Oid relid);

/* cache.c */
typedef struct EmbeddingCache EmbeddingCache;

extern EmbeddingCache *EmbeddingCacheMake(MemoryContext parent);
extern void EmbeddingCacheDrop(EmbeddingCache *cache);
extern bool EmbeddingCachePool(EmbeddingCache *cache, EmbeddingTable *table,
							   const EmbeddingBags *bags, EmbeddingVectors *vectors);

/* rows.c: add its functions that return rows, when the library is loaded */
extern void EmbeddingInit(void);

/* complaints, in the words of the first relation */
extern void EmbeddingComplain(EmbeddingTable *table, const gpuvec_embedding_answer *complaint)
			pg_attribute_noreturn();

/* arguments.c */

/* Position of the keys, behind relation, key column and vector column */
#define EMBEDDING_ARG_KEYS	3

extern const int64 *EmbeddingKeysArgument(FunctionCallInfo fcinfo, int argument, const char *name,
										  bool **nulls, uint64 *n);
extern const float *EmbeddingWeightsArgument(FunctionCallInfo fcinfo, int argument, uint64 n);
extern void EmbeddingBagsArguments(FunctionCallInfo fcinfo, int offsets_argument,
								   int hotness_argument, EmbeddingBags *bags);
extern int64 EmbeddingSlotsArgument(FunctionCallInfo fcinfo, int argument, uint64 nbags);
extern void EmbeddingGradientArgument(FunctionCallInfo fcinfo, int argument, const char *name,
									  EmbeddingBags *bags);
extern const double *EmbeddingFloatsArgument(FunctionCallInfo fcinfo, int argument,
											 const char *name, ArrayType **array);
extern gpuvec_pool_mode EmbeddingModeArgument(FunctionCallInfo fcinfo, int argument);
extern gpuvec_missing EmbeddingMissingArgument(FunctionCallInfo fcinfo, int argument);
extern EmbeddingTable *EmbeddingTableArguments(FunctionCallInfo fcinfo, Snapshot snapshot);
extern bool EmbeddingGradientArguments(FunctionCallInfo fcinfo, bool batch, EmbeddingBags *bags,
									   int *next);

/* Arrays, of which only the last one is in use */
typedef struct EmbeddingArrayRoom
{
	ArrayType  *array;
	Size		size;
	ArrayType  *empty;
} EmbeddingArrayRoom;

extern Datum EmbeddingArray(const float *elements, uint64 n);
extern Datum EmbeddingNextArray(EmbeddingArrayRoom *room, const float *elements, uint64 n);

#endif							/* GPUVEC_EMBEDDING_TABLE_H */
