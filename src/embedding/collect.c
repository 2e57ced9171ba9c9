/*-------------------------------------------------------------------------
 *
 * collect.c
 *	  Vectors of keys, collected in this session.
 *
 * A collection serves where one request to the engine will not do.  Tables
 * with partitions have several mirrors.  Tables without a mirror are scanned,
 * and so are all tables if there is no engine.  A collection can grow, so
 * that many small requests with one snapshot fetch each vector once
 * (cache.c).
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "core/hash_secret.h"
#include "embedding/embedding_table.h"
#include "link/engine_link.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/* A key, and the row that was found for it */
typedef struct KeyEntry
{
	int64		key;
	char		status;
	bool		found;
	bool		twice;
	bool		complete;		/* collected by an earlier call */
	gpuvec_vector_kind kind;
	uint32		width;
	const float *elements;
	int			target;			/* the target whose mirror it came from last */
} KeyEntry;

#define SH_PREFIX		keyhash
#define SH_ELEMENT_TYPE	KeyEntry
#define SH_KEY_TYPE		int64
#define SH_KEY			key
#define SH_HASH_KEY(tb, key)	((uint32) gpuvec_secret_hash(key))
#define SH_EQUAL(tb, a, b)		((a) == (b))
#define SH_SCOPE		static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* Least number of elements in a block of kept vectors */
#define BLOCK_ELEMENTS	16384

struct EmbeddingCollection
{
	MemoryContext context;
	float	   *spare;			/* free room in the last block */
	Size		nspare;
	keyhash_hash *keys;
	int64	   *distinct;		/* [ndistinct]: the keys that are being
								 * collected, each once */
	uint64		ndistinct;
};

/* Copy a vector into the collection's memory */
static const float *
keep_vector(EmbeddingCollection *collection, const float *elements, uint32 width)
{
	float	   *copy;

	if (collection->spare == NULL || collection->nspare < width)
	{
		collection->nspare = Max(width, BLOCK_ELEMENTS);
		collection->spare = MemoryContextAllocHuge(collection->context,
												   collection->nspare * sizeof(float));
	}
	copy = collection->spare;
	if (width > 0)
		memcpy(copy, elements, width * sizeof(float));
	collection->spare += width;
	collection->nspare -= width;
	return copy;
}

/* Take the vector of a row whose key is wanted */
static void
take_vector(EmbeddingCollection *collection, KeyEntry *entry, const MirrorVector *vector)
{
	entry->twice = entry->found;
	if (entry->found)
		return;
	entry->found = true;
	entry->kind = vector->kind;
	entry->width = vector->width;
	entry->elements = keep_vector(collection, vector->elements, vector->width);
}

/* A scan of a relation for a collection */
typedef struct CollectScan
{
	EmbeddingCollection *collection;
	MirrorTarget *target;
} CollectScan;

/* EmbeddingScan callback: take the row if its key is wanted */
static bool
take_row(void *arg, const EmbeddingRow *row)
{
	CollectScan *scan = arg;
	KeyEntry   *entry = keyhash_lookup(scan->collection->keys, row->key);
	MirrorVector vector;

	if (entry == NULL || entry->complete)
		return true;
	MirrorReadVector(row->value, scan->target, &vector);
	take_vector(scan->collection, entry, &vector);
	return true;
}

/* Take the vectors that the engine has found */
static void
take_answer(EmbeddingCollection *collection, int target, const EmbeddingBags *bags,
			const EmbeddingAnswer *answer)
{
	bool		keep = collection->context != CurrentMemoryContext;
	const float *elements = answer->elements;

	for (uint64 i = 0; i < bags->nkeys; i++)
	{
		KeyEntry   *entry = keyhash_lookup(collection->keys, bags->keys[i]);

		GPUVEC_STEP(i);
		if (!answer->found[i])
			continue;
		entry->twice = entry->found;
		entry->found = true;
		entry->target = target;
		entry->kind = GPUVEC_VECTOR_GOOD;
		entry->width = answer->head.width;
		entry->elements = keep ? keep_vector(collection, elements, entry->width) : elements;
		elements += answer->head.width;
	}
}

/*
 * Fetch the vectors of n keys from a relation's mirror.  If the answer would
 * be too large, fetch one half of the keys after the other.  False, with
 * *reason, if there is no engine.
 */
static bool
ask_target(EmbeddingCollection *collection, EmbeddingTable *table, int target, const int64 *keys,
		   uint64 n, const char **reason)
{
	EmbeddingBags bags = {.keys = keys, .nkeys = n, .missing = GPUVEC_MISSING_SKIP};
	EmbeddingAnswer answer;

	if (!EmbeddingAsk(table, target, GPUVEC_EMBEDDING_GATHER, GPUVEC_EMBEDDING_FOUND, &bags, &answer, reason))
		return false;
	if (answer.head.status == GPUVEC_EMBEDDING_LARGE && n > 1)
		return ask_target(collection, table, target, keys, n / 2, reason) &&
			ask_target(collection, table, target, keys + n / 2, n - n / 2, reason);
	if (answer.head.status != GPUVEC_EMBEDDING_DONE)
		EmbeddingComplain(table, &answer.head);
	take_answer(collection, target, &bags, &answer);
	return true;
}

/*
 * The engine was lost between two halves: forget the relation's rows, because
 * it will be scanned from the beginning
 */
static void
forget_target(EmbeddingCollection *collection, int target)
{
	for (uint64 i = 0; i < collection->ndistinct; i++)
	{
		KeyEntry   *entry = keyhash_lookup(collection->keys, collection->distinct[i]);

		GPUVEC_STEP(i);
		if (!entry->found || entry->target != target)
			continue;
		entry->found = entry->twice;
		entry->twice = false;
	}
}

/* A growing list of keys */
typedef struct KeyList
{
	int64	   *keys;
	uint64		n;
	uint64		spare;
} KeyList;

/* EmbeddingScan callback: append the row's key */
static bool
append_key(void *arg, const EmbeddingRow *row)
{
	KeyList    *list = arg;

	if (list->n == list->spare)
		list->keys = repalloc_huge(list->keys, (list->spare *= 2) * sizeof(int64));
	list->keys[list->n++] = row->key;
	return true;
}

/*
 * All keys of the table that have a vector, ascending.  Fail if a key has
 * several rows.
 */
const int64 *
EmbeddingAllKeys(EmbeddingTable *table, uint64 *n)
{
	KeyList		list = {.spare = 1024};
	int64	   *keys;

	list.keys = palloc_array(int64, list.spare);
	for (int i = 0; i < table->ntargets; i++)
		EmbeddingScan(&table->targets[i], table->snapshot, false, append_key, &list);
	keys = list.keys;
	*n = list.n;
	EmbeddingSortKeys(keys, *n);
	for (uint64 i = 1; i < *n; i++)
	{
		gpuvec_embedding_answer complaint = {.status = GPUVEC_EMBEDDING_DUPLICATE, .key = keys[i]};

		GPUVEC_STEP(i);
		if (keys[i] == keys[i - 1])
			EmbeddingComplain(table, &complaint);
	}
	return keys;
}

/* Make an empty collection, in the current memory context */
EmbeddingCollection *
EmbeddingCollectionMake(void)
{
	EmbeddingCollection *collection = palloc0_object(EmbeddingCollection);

	gpuvec_hash_secret_draw();
	collection->context = CurrentMemoryContext;
	collection->keys = keyhash_create(CurrentMemoryContext, 256, NULL);
	return collection;
}

/* Add the keys that the collection lacks, and list them in distinct[] */
static void
enter_keys(EmbeddingCollection *collection, const int64 *keys, uint64 nkeys)
{
	collection->distinct = MemoryContextAllocHuge(CurrentMemoryContext, (nkeys + 1) * sizeof(int64));
	collection->ndistinct = 0;
	for (uint64 i = 0; i < nkeys; i++)
	{
		bool		known;
		KeyEntry   *entry;

		GPUVEC_STEP(i);
		entry = keyhash_insert(collection->keys, keys[i], &known);
		if (known)
			continue;
		entry->found = entry->twice = entry->complete = false;
		entry->target = -1;
		collection->distinct[collection->ndistinct++] = keys[i];
	}
}

/*
 * Collect the vectors of the keys that the collection lacks; returns the
 * number of such keys.  After an error the collection cannot be used.
 */
uint64
EmbeddingCollectMore(EmbeddingCollection *collection, EmbeddingTable *table, const int64 *keys,
					 uint64 nkeys, bool use_engine)
{
	CollectScan scan = {.collection = collection};

	enter_keys(collection, keys, nkeys);
	for (int i = 0; i < table->ntargets && collection->ndistinct > 0; i++)
	{
		const char *reason;

		if (use_engine && table->targets[i].mode == MIRROR_SHARED)
		{
			if (ask_target(collection, table, i, collection->distinct, collection->ndistinct, &reason))
				continue;
			GpuvecLinkWarn(reason);
			/* an engine that refuses this relation may serve the others */
			use_engine = GpuvecLinkRefusal() != NULL;
			forget_target(collection, i);
		}
		scan.target = &table->targets[i];
		EmbeddingScan(scan.target, table->snapshot, false, take_row, &scan);
	}
	for (uint64 i = 0; i < collection->ndistinct; i++)
	{
		GPUVEC_STEP(i);
		keyhash_lookup(collection->keys, collection->distinct[i])->complete = true;
	}
	pfree(collection->distinct);
	return collection->ndistinct;
}

/* Collect the vectors of keys, in the current memory context */
EmbeddingCollection *
EmbeddingCollect(EmbeddingTable *table, const int64 *keys, uint64 nkeys, bool use_engine)
{
	EmbeddingCollection *collection = EmbeddingCollectionMake();

	(void) EmbeddingCollectMore(collection, table, keys, nkeys, use_engine);
	return collection;
}

/*
 * The complaint about a key's row; GPUVEC_EMBEDDING_DONE if there is none.
 * `first` is the first key that was found: all vectors must have its width.
 */
static gpuvec_embedding_status
complaint_about(const KeyEntry *entry, const KeyEntry *first, gpuvec_missing missing)
{
	if (!entry->found)
		return missing == GPUVEC_MISSING_ERROR ? GPUVEC_EMBEDDING_MISSING : GPUVEC_EMBEDDING_DONE;
	if (entry->twice)
		return GPUVEC_EMBEDDING_DUPLICATE;
	if (entry->kind != GPUVEC_VECTOR_GOOD)
		return GPUVEC_EMBEDDING_BAD;
	return entry->width == first->width ? GPUVEC_EMBEDDING_DONE : GPUVEC_EMBEDDING_WIDTHS;
}

/*
 * Locate the vector of each key of the bags; NULL for keys that were not
 * found.  Raises the same complaints as the engine.  Sets vectors->found,
 * ->known and, if any key was found, ->width.
 */
const float **
EmbeddingLocate(EmbeddingCollection *collection, EmbeddingTable *table,
				const EmbeddingBags *bags, EmbeddingVectors *vectors)
{
	const float **where = MemoryContextAllocHuge(CurrentMemoryContext,
												 (bags->nkeys + 1) * sizeof(float *));
	bool	   *found = MemoryContextAllocHuge(CurrentMemoryContext, bags->nkeys + 1);
	KeyEntry   *first = NULL;

	for (uint64 i = 0; i < bags->nkeys; i++)
	{
		KeyEntry   *entry = keyhash_lookup(collection->keys, bags->keys[i]);
		gpuvec_embedding_answer complaint;

		GPUVEC_STEP(i);
		if (entry->found && first == NULL)
			first = entry;
		memset(&complaint, 0, sizeof(complaint));
		complaint.status = complaint_about(entry, first, bags->missing);
		if (complaint.status != GPUVEC_EMBEDDING_DONE)
		{
			complaint.key = entry->key;
			complaint.kind = entry->kind;
			complaint.width = entry->width;
			complaint.other_key = first ? first->key : 0;
			complaint.other_width = first ? first->width : 0;
			EmbeddingComplain(table, &complaint);
		}
		found[i] = entry->found;
		where[i] = entry->found ? entry->elements : NULL;
	}
	vectors->found = found;
	vectors->known = first != NULL;
	vectors->width = first ? first->width : 0;
	return where;
}
