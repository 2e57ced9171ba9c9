/*-------------------------------------------------------------------------
 *
 * embedding_table.h
 *	  Embedding tables in a session: gathering and pooling their vectors, and
 *	  finding the nearest ones.
 *
 * ask.c			requests to the engine
 * local_rows.c		the rows of a table, scanned without the engine
 * complain.c		errors about its vectors
 * sort_keys.c		the order of keys
 * collect.c		vectors collected in this session
 * cache.c			vectors kept for later groups of an aggregate
 * pool.c			pooling bags of keys, in the engine or in this session
 * gradient.c		gradients of pooling, likewise
 * nearest_search.c	finding the nearest rows
 * nearest_ahead.c	the same before the rows are needed
 * nearest.c		SQL functions that do so
 * arguments.c		arguments of the SQL functions
 * functions.c		SQL functions that return one value
 * rows.c			SQL functions that return rows
 * aggregate.c		the aggregates that pool
 * bags.c			the aggregates that make batches of bags
 * train.c			new keys, and steps of optimizers
 * train_vectors.c	what their statements compute of each row
 * train_check.c	what train.c requires of tables
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_EMBEDDING_TABLE_H
#define GPUVEC_EMBEDDING_TABLE_H

#include "postgres.h"

#include "core/nearest.h"
#include "core/pooling.h"
#include "core/protocol_vectors.h"
#include "fmgr.h"
#include "mirror/ask/conversation.h"
#include "utils/array.h"

/* Known verdicts: whether the snapshot sees a row of a target */
typedef struct EmbeddingVerdicts
{
	uint64	   *verdicts;		/* [n]: gpuvec_verdict, ascending */
	uint64		n;
} EmbeddingVerdicts;

/* An embedding table that is in use, with one snapshot */
typedef struct EmbeddingTable
{
	Oid			relid;
	MirrorTarget *targets;		/* [ntargets], open */
	int			ntargets;
	EmbeddingVerdicts *verdicts;	/* [ntargets] */
	Snapshot	snapshot;
	uint64		engine_us;		/* time spent in the engine, microseconds */
	MirrorKeptMap *kept_map;	/* a map that outlives this structure, or NULL */
} EmbeddingTable;

/* Bags of keys to pool */
typedef struct EmbeddingBags
{
	const int64 *keys;			/* [nkeys] */
	uint64		nkeys;
	const uint64 *offsets;		/* [nbags + 1]: first key of each bag, and
								 * nkeys */
	uint64		nbags;
	const float *weights;		/* [nkeys], or NULL */
	gpuvec_pool_mode mode;
	gpuvec_missing missing;
	const float *gradient;		/* [ngradient]: with respect to what pooling
								 * returns; NULL: none */
	uint64		ngradient;
} EmbeddingBags;

/* Contiguous vectors, in the current memory context */
typedef struct EmbeddingVectors
{
	bool		known;			/* false: no vector was found, so the width is
								 * not known */
	uint32		width;			/* elements of each vector */
	const bool *found;			/* [nkeys]: whether the key was found; NULL:
								 * not asked for */
	const float *elements;		/* [count] */
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
	uint64		n;				/* number of keys, or of weights */
	const int64 *keys;			/* [n], for gradients of vectors: the keys */
	const float *elements;		/* [n * width], or of weights [n] */
} EmbeddingGradient;

extern void EmbeddingGradients(EmbeddingTable *table, gpuvec_embedding_op op,
							   const EmbeddingBags *bags, EmbeddingGradient *result);

typedef struct EmbeddingAhead EmbeddingAhead;

/* ask.c */
typedef struct EmbeddingAnswer
{
	gpuvec_embedding_answer head;
	char	   *body;			/* what follows the head in the message */
	const char *found;			/* [nkeys], if GPUVEC_EMBEDDING_FOUND was set */
	const int64 *keys;			/* for GPUVEC_EMBEDDING_GRAD */
	const float *elements;
	const uint32 *counts;		/* [nqueries]: number of nearest rows of each
								 * query */
	const gpuvec_near *rows;
	const double *gram;			/* [width * width] */
} EmbeddingAnswer;

/* A search for the nearest rows */
typedef struct EmbeddingNearest
{
	gpuvec_metric metric;
	uint32		k;
	uint32		width;
	uint32		nqueries;
	const float *queries;		/* [nqueries * width] */
	const int64 *excluded;		/* [nexcluded]: keys to leave out, ascending */
	uint64		nexcluded;

	/*
	 * Keys that single queries leave out besides: those of query i are
	 * listed[offsets[i]] .. listed[offsets[i + 1] - 1], ascending.  The first
	 * offset need not be 0.  NULL: there are none.
	 */
	const int64 *offsets;		/* [nqueries + 1] */
	const int64 *listed;
} EmbeddingNearest;

extern bool EmbeddingAsk(EmbeddingTable *table, int target, gpuvec_embedding_op op, uint32 flags,
						 const EmbeddingBags *bags, EmbeddingAnswer *answer, const char **reason);

extern bool EmbeddingAskGram(EmbeddingTable *table, int target, EmbeddingAnswer *answer,
							 const char **reason);

/* reply: the answer to the same request, sent ahead; NULL: there is none */
extern bool EmbeddingAskNearest(EmbeddingTable *table, int target, const EmbeddingNearest *nearest,
								const GpuvecReply *reply, EmbeddingAnswer *answer,
								const char **reason);

/*
 * Send the request, and leave its answer unread.  Returns its number, or 0 if
 * it was not sent; *need says how fresh the mirror has to be.
 */
extern uint64 EmbeddingSendNearest(EmbeddingTable *table, int target,
								   const EmbeddingNearest *nearest, GpuvecTakeAnswer take,
								   gpuvec_freshness *need);

/* nearest_search.c */

/*
 * Find the rows of as many queries, from query `first` on, as one request can
 * have.  *some describes these queries.  Returns their rows, nearest first,
 * in the current memory context.  `ahead`: uses what was sent ahead, or NULL.
 */
extern gpuvec_near_heap *EmbeddingFindNearest(EmbeddingTable *table, const EmbeddingNearest *all,
											  uint32 first, EmbeddingAhead *ahead,
											  EmbeddingNearest *some);

/* nearest_ahead.c */

/* Make one, in the current memory context; it ends with that */
extern EmbeddingAhead *EmbeddingAheadMake(void);

/*
 * Let the engine begin to find the rows of these queries, if the table has
 * one mirror, and the engine is there.  They stay where they are until their
 * rows are asked for, or others'.
 */
extern void EmbeddingAheadSend(EmbeddingAhead *ahead, EmbeddingTable *table,
							   const EmbeddingNearest *some);

/* Describe as many queries, from query `first` on, as one request can have */
extern void EmbeddingTakeQueries(const EmbeddingNearest *all, uint32 first, EmbeddingNearest *some);

/*
 * The answer to these queries, as far as it was sent for; NULL if there is
 * none.  It lives in the current memory context.
 */
extern const GpuvecReply *EmbeddingAheadAnswer(EmbeddingAhead *ahead, EmbeddingTable *table,
											   const EmbeddingNearest *some);

/* Forget what was sent */
extern void EmbeddingAheadDrop(EmbeddingAhead *ahead);
extern void EmbeddingCheckQueries(EmbeddingTable *table, uint32 width);

/* sort_keys.c; the first is a qsort comparator */
extern int	EmbeddingCompareKeys(const void *a, const void *b);
extern void EmbeddingSortKeys(int64 *keys, uint64 n);

/* local_rows.c */
typedef struct EmbeddingRow
{
	int64		key;
	uint64		tid;			/* gpuvec_tid */
	struct varlena *value;		/* the vector, as it is stored; may be toasted */
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

/* rows.c: register its functions, when the library is loaded */
extern void EmbeddingInit(void);

/* complain.c: raise a complaint, naming the table that the caller named */
extern void EmbeddingComplain(EmbeddingTable *table, const gpuvec_embedding_answer *complaint)
			pg_attribute_noreturn();

/* arguments.c */

/*
 * Position of the argument with the keys, after relation, key column and
 * vector column
 */
#define EMBEDDING_ARG_KEYS	3

extern const int64 *EmbeddingKeysArgument(FunctionCallInfo fcinfo, int argument, const char *name,
										  bool **nulls, uint64 *n);
extern const int64 *EmbeddingSortedKeysArgument(FunctionCallInfo fcinfo, int argument,
												const char *name, uint64 *n);
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

/* train.c */

/* The qualified and quoted name of a relation */
extern const char *EmbeddingRelationName(Oid relid);

/* Fail if one of the first n arguments is null; names[i] NULL: it may be */
extern void EmbeddingRequireArguments(FunctionCallInfo fcinfo, const char *const *names, int n);

/* Memory for a series of arrays, of which only the last is in use */
typedef struct EmbeddingArrayBuffer
{
	ArrayType  *array;
	Size		size;
	ArrayType  *empty;
} EmbeddingArrayBuffer;

extern Datum EmbeddingArray(const float *elements, uint64 n);
extern Datum EmbeddingNextArray(EmbeddingArrayBuffer *buffer, const float *elements, uint64 n);

#endif							/* GPUVEC_EMBEDDING_TABLE_H */
