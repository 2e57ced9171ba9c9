/*-------------------------------------------------------------------------
 *
 * pool.c
 *	  Gathering and pooling the vectors of keys.
 *
 * A table with one mirror is pooled in the engine.  For other tables, vectors
 * are collected, and the same function pools them in this session.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "embedding/embedding_table.h"
#include "link/engine_link.h"
#include "miscadmin.h"
#include "search/set_search.h"
#include "utils/memutils.h"

EmbeddingTable *
EmbeddingOpen(Oid relid, const char *key_column, const char *column, Snapshot snapshot)
{
	EmbeddingTable *table = palloc0_object(EmbeddingTable);

	table->relid = relid;
	table->snapshot = snapshot;
	table->targets = SearchEmbeddingTargets(relid, key_column, column, &table->ntargets);
	table->verdicts = palloc0_array(EmbeddingVerdicts, Max(table->ntargets, 1));
	return table;
}

/* Close a table; its locks stay */
void
EmbeddingClose(EmbeddingTable *table)
{
	if (table->engine_us > 0)
		ereport(DEBUG1,
				(errmsg_internal("time in the gpuvec engine: " UINT64_FORMAT " us", table->engine_us)));
	SearchCloseTargets(table->targets, table->ntargets);
}

/* A scan for the width of a relation's first vector */
typedef struct WidthScan
{
	MirrorTarget *target;
	bool		known;
	uint32		width;
} WidthScan;

/*
 * EmbeddingScan callback: take the width, and stop at the first good vector
 */
static bool
take_width(void *arg, const EmbeddingRow *row)
{
	WidthScan  *scan = arg;
	MirrorVector vector;

	MirrorDecodeVector(row->value, scan->target->vector_type, &vector);
	scan->known = vector.kind == GPUVEC_VECTOR_GOOD;
	scan->width = vector.width;
	return !scan->known;
}

/* The width of the table's first vector; false if it has none */
bool
EmbeddingWidth(EmbeddingTable *table, uint32 *width)
{
	for (int i = 0; i < table->ntargets; i++)
	{
		WidthScan	scan = {.target = &table->targets[i]};

		EmbeddingScan(scan.target, table->snapshot, true, take_width, &scan);
		if (!scan.known)
			continue;
		*width = scan.width;
		return true;
	}
	return false;
}

/*
 * Number of floats of an answer.  found[nkeys] is only read for concat with
 * GPUVEC_MISSING_SKIP.
 */
static uint64
count_elements(const EmbeddingBags *bags, const bool *found, uint32 width)
{
	uint64		n = 0;

	if (bags->mode != GPUVEC_POOL_CONCAT)
		return bags->nbags * width;
	if (bags->missing != GPUVEC_MISSING_SKIP)
		return bags->nkeys * width;
	for (uint64 i = 0; i < bags->nkeys; i++)
	{
		GPUVEC_STEP(i);
		n += found[i];
	}
	return n * width;
}

/*
 * Describe a bag whose vectors have been collected; `where` is from
 * EmbeddingLocate()
 */
gpuvec_bag
EmbeddingBag(const EmbeddingBags *bags, const float **where, uint32 width, uint64 bag,
			 float *scratch)
{
	uint64		start = bags->offsets[bag];
	gpuvec_bag	found = {
		.keys = bags->keys + start,
		.vectors = (const void *const *) (where + start),
		.weights = bags->weights ? bags->weights + start : NULL,
		.n = bags->offsets[bag + 1] - start,
		.width = width,
		.storage = GPUVEC_FLOAT32,
		.mode = bags->mode,
		.missing = bags->missing,
		.scratch = scratch
	};

	return found;
}

static void
pool_collected(EmbeddingCollection *collection, EmbeddingTable *table, const EmbeddingBags *bags,
			   EmbeddingVectors *vectors)
{
	const float **where = EmbeddingLocate(collection, table, bags, vectors);
	float	   *out;
	float	   *scratch;

	if (!vectors->known)
		return;
	scratch = palloc_array(float, (vectors->width + 1) * GPUVEC_SCRATCH_VECTORS);
	vectors->count = count_elements(bags, vectors->found, vectors->width);
	out = MemoryContextAllocHuge(CurrentMemoryContext, vectors->count * sizeof(float) + 1);
	vectors->elements = out;
	for (uint64 bag = 0; bag < bags->nbags; bag++)
	{
		gpuvec_bag	one = EmbeddingBag(bags, where, vectors->width, bag, scratch);

		GPUVEC_LOOK();
		out += gpuvec_pool_bag(out, &one);
	}
}

/* Collect the vectors, and pool them in this session */
static void
pool_here(EmbeddingTable *table, const EmbeddingBags *bags, bool use_engine,
		  EmbeddingVectors *vectors)
{
	pool_collected(EmbeddingCollect(table, bags->keys, bags->nkeys, use_engine), table, bags,
				   vectors);
}

/* No key was found: return zeros, as wide as the table's vectors */
static void
pool_nothing(EmbeddingTable *table, const EmbeddingBags *bags, EmbeddingVectors *vectors)
{
	vectors->known = EmbeddingWidth(table, &vectors->width);
	if (!vectors->known)
		return;
	vectors->count = count_elements(bags, vectors->found, vectors->width);
	vectors->elements = MemoryContextAllocExtended(CurrentMemoryContext,
												   vectors->count * sizeof(float) + 1,
												   MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
}

/* Fail if floats differ in a bit; any NaN equals any other */
void
EmbeddingCompare(EmbeddingTable *table, const float *a, const float *b, uint64 n)
{
	for (uint64 i = 0; i < n; i++)
	{
		GPUVEC_STEP(i);
		if (memcmp(&a[i], &b[i], sizeof(float)) != 0 && !(isnan(a[i]) && isnan(b[i])))
			EmbeddingReportWrong(table);
	}
}

/* Fail if two answers differ */
static void
compare_vectors(EmbeddingTable *table, const EmbeddingVectors *a, const EmbeddingVectors *b,
				uint64 nkeys)
{
	bool		same = a->known == b->known && a->width == b->width && a->count == b->count;

	for (uint64 i = 0; same && i < nkeys && a->found && b->found; i++)
	{
		GPUVEC_STEP(i);
		same = a->found[i] == b->found[i];
	}
	if (!same)
		EmbeddingReportWrong(table);
	EmbeddingCompare(table, a->elements, b->elements, a->count);
}

/* Make bags of the bags from `first` to before `end` */
static EmbeddingBags
chunk_of(const EmbeddingBags *bags, uint64 first, uint64 end)
{
	uint64		start = bags->offsets[first];
	uint64	   *offsets = MemoryContextAllocHuge(CurrentMemoryContext,
												 (end - first + 1) * sizeof(uint64));
	EmbeddingBags chunk = *bags;

	for (uint64 bag = first; bag <= end; bag++)
	{
		GPUVEC_STEP(bag);
		offsets[bag - first] = bags->offsets[bag] - start;
	}
	chunk.offsets = offsets;
	chunk.nbags = end - first;
	chunk.keys += start;
	chunk.nkeys = offsets[chunk.nbags];
	if (chunk.weights)
		chunk.weights += start;
	return chunk;
}

/* Make bags to gather the keys from `first` to before `end` */
static EmbeddingBags
chunk_of_keys(const EmbeddingBags *bags, uint64 first, uint64 end)
{
	uint64	   *offsets = palloc_array(uint64, 2);
	EmbeddingBags chunk = *bags;

	offsets[0] = 0;
	offsets[1] = end - first;
	chunk.offsets = offsets;
	chunk.keys += first;
	chunk.nkeys = end - first;
	return chunk;
}

/*
 * Join two answers.  An answer that found no key has zeros, if missing keys
 * count.
 */
static void
join_vectors(EmbeddingTable *table, const EmbeddingBags *chunks, const EmbeddingVectors *from,
			 EmbeddingVectors *vectors)
{
	bool	   *found = NULL;
	const EmbeddingVectors *known = from[0].known ? &from[0] : &from[1];
	uint64		counts[2];
	float	   *elements;

	if (from[0].known && from[1].known && from[0].width != from[1].width)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("vectors of relation \"%s\" have different numbers of elements",
						get_rel_name(table->relid)),
				 errdetail("Some have %u, others have %u.", from[0].width, from[1].width)));
	*vectors = *known;
	if (from[0].found && from[1].found)
		found = MemoryContextAllocHuge(CurrentMemoryContext, chunks[0].nkeys + chunks[1].nkeys + 1);
	for (int i = 0; i < 2; i++)
	{
		if (found)
			memcpy(found + (i == 0 ? 0 : chunks[0].nkeys), from[i].found, chunks[i].nkeys);
		counts[i] = known->known ? count_elements(&chunks[i], from[i].found, known->width) : 0;
	}
	vectors->found = found;
	vectors->count = counts[0] + counts[1];
	elements = MemoryContextAllocHuge(CurrentMemoryContext, vectors->count * sizeof(float) + 1);
	vectors->elements = elements;
	for (int i = 0; i < 2; i++)
	{
		if (from[i].known)
			memcpy(elements, from[i].elements, counts[i] * sizeof(float));
		else
			memset(elements, 0, counts[i] * sizeof(float));
		elements += counts[i];
	}
}

static void find_vectors(EmbeddingTable *table, gpuvec_embedding_op op, const EmbeddingBags *bags,
						 EmbeddingVectors *vectors);

/*
 * The request or its answer would be too large: serve one half of the keys or
 * bags after the other
 */
static void
find_halves(EmbeddingTable *table, gpuvec_embedding_op op, const EmbeddingBags *bags,
			EmbeddingVectors *vectors)
{
	uint64		n = op == GPUVEC_EMBEDDING_GATHER ? bags->nkeys : bags->nbags;
	EmbeddingBags chunks[2];
	EmbeddingVectors halves[2];

	for (int i = 0; i < 2; i++)
	{
		uint64		first = i == 0 ? 0 : n / 2;
		uint64		end = i == 0 ? n / 2 : n;

		chunks[i] = op == GPUVEC_EMBEDDING_GATHER ? chunk_of_keys(bags, first, end) :
			chunk_of(bags, first, end);
		find_vectors(table, op, &chunks[i], &halves[i]);
	}
	join_vectors(table, chunks, halves, vectors);
}

/*
 * True if a request is so large that it may not fit a message, together with
 * a map and verdicts
 */
bool
EmbeddingRequestTooLarge(const EmbeddingBags *bags)
{
	Size		key = sizeof(int64) + (bags->weights ? sizeof(float) : 0);

	return bags->nkeys * key + bags->nbags * sizeof(uint64) + bags->ngradient * sizeof(float) >
		GPUVEC_MAX_FRAME / 4 * 3;
}

/*
 * Gather or pool in the engine.  False if the table does not have exactly one
 * shared mirror.  False with *use_engine = false if there is no engine.
 */
static bool
use_mirror(EmbeddingTable *table, gpuvec_embedding_op op, const EmbeddingBags *bags,
		   bool *use_engine, EmbeddingVectors *vectors)
{
	bool		tell = bags->mode == GPUVEC_POOL_CONCAT && bags->missing == GPUVEC_MISSING_SKIP;
	bool		divisible = (op == GPUVEC_EMBEDDING_GATHER ? bags->nkeys : bags->nbags) > 1;
	EmbeddingAnswer answer;
	const char *reason;

	*use_engine = true;
	if (table->ntargets != 1 || table->targets[0].mode != MIRROR_SHARED)
		return false;
	if (divisible && EmbeddingRequestTooLarge(bags))
	{
		find_halves(table, op, bags, vectors);
		return true;
	}
	if (!EmbeddingAsk(table, 0, op, tell ? GPUVEC_EMBEDDING_FOUND : 0, bags, &answer, &reason))
	{
		GpuvecLinkWarn(reason);
		*use_engine = false;
		return false;
	}
	if (answer.head.status == GPUVEC_EMBEDDING_LARGE && divisible)
	{
		find_halves(table, op, bags, vectors);
		return true;
	}
	if (answer.head.status != GPUVEC_EMBEDDING_DONE)
		EmbeddingComplain(table, &answer.head);
	vectors->known = answer.head.nfound > 0;
	vectors->width = answer.head.width;
	vectors->found = tell ? (const bool *) answer.found : NULL;
	vectors->elements = answer.elements;
	vectors->count = answer.head.count;
	return true;
}

/* Gather or pool, in the engine or in this session */
static void
find_vectors(EmbeddingTable *table, gpuvec_embedding_op op, const EmbeddingBags *bags,
			 EmbeddingVectors *vectors)
{
	bool		use_engine;

	memset(vectors, 0, sizeof(*vectors));
	if (!use_mirror(table, op, bags, &use_engine, vectors))
		pool_here(table, bags, use_engine, vectors);
	else if (gpuvec_verify)
	{
		EmbeddingVectors check = {0};

		pool_here(table, bags, false, &check);
		compare_vectors(table, vectors, &check, bags->nkeys);
	}
}

/* Number of floats of a bag in an answer */
uint64
EmbeddingBagElements(const EmbeddingBags *bags, const EmbeddingVectors *vectors, uint64 bag)
{
	uint64		start = bags->offsets[bag];
	uint64		end = bags->offsets[bag + 1];
	uint64		n = 0;

	if (bags->mode != GPUVEC_POOL_CONCAT)
		return vectors->width;
	if (bags->missing != GPUVEC_MISSING_SKIP)
		return (end - start) * vectors->width;
	for (uint64 i = start; i < end; i++)
	{
		GPUVEC_STEP(i);
		n += vectors->found[i];
	}
	return n * vectors->width;
}

/* Pool bags; the result lives in the current memory context */
void
EmbeddingPool(EmbeddingTable *table, const EmbeddingBags *bags, EmbeddingVectors *vectors)
{
	find_vectors(table, GPUVEC_EMBEDDING_POOL, bags, vectors);
	if (!vectors->known)
		pool_nothing(table, bags, vectors);
}

/* Pool bags whose vectors have been collected */
void
EmbeddingPoolCollected(EmbeddingCollection *collection, EmbeddingTable *table,
					   const EmbeddingBags *bags, EmbeddingVectors *vectors)
{
	memset(vectors, 0, sizeof(*vectors));
	pool_collected(collection, table, bags, vectors);
	if (!vectors->known)
		pool_nothing(table, bags, vectors);
}

/* Gather the vectors of the keys that are found, in the order of keys[] */
void
EmbeddingGather(EmbeddingTable *table, const int64 *keys, uint64 nkeys, EmbeddingVectors *vectors)
{
	uint64		offsets[2] = {0, nkeys};
	EmbeddingBags bags = {
		.keys = keys, .nkeys = nkeys, .nbags = 1, .offsets = offsets,
		.mode = GPUVEC_POOL_CONCAT, .missing = GPUVEC_MISSING_SKIP
	};

	find_vectors(table, GPUVEC_EMBEDDING_GATHER, &bags, vectors);
}
