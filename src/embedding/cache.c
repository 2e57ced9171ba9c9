/*-------------------------------------------------------------------------
 *
 * cache.c
 *	  Vectors kept for later groups of an aggregate.
 *
 * A sorted aggregate finishes each group before it reads the next one, so
 * each group would need a request to the engine.  Instead the vectors of its
 * keys are kept.  A group then asks only for keys that no group before it
 * had, and is pooled in this session.  The same function pools in the engine,
 * so results are the same to the bit.  All groups of a statement have one
 * snapshot, so a vector fetched for one group is right for all.
 *
 * The cache may take as much memory as a hash table of the executor.  When it
 * is full, all vectors are forgotten.  If more than half of the keys had to
 * be asked for until then, the cache does not pay, and later groups are
 * pooled in the engine.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "embedding/embedding_table.h"
#include "executor/nodeHash.h"
#include "utils/memutils.h"

/*
 * Groups with more keys are left to the engine, which pools with several
 * threads and does not send vectors
 */
#define MAX_KEYS	1024

struct EmbeddingCache
{
	MemoryContext context;		/* of the collection and its vectors */
	EmbeddingCollection *collection;
	uint64		keys;			/* keys of groups since all was forgotten */
	uint64		asked;			/* those of them that the engine was asked for */
	bool		useless;
};

/* Forget all vectors */
static void
forget(EmbeddingCache *cache)
{
	MemoryContextReset(cache->context);
	cache->collection = NULL;
	cache->keys = cache->asked = 0;
}

/* Make an empty cache */
EmbeddingCache *
EmbeddingCacheMake(MemoryContext parent)
{
	EmbeddingCache *cache = MemoryContextAllocZero(parent, sizeof(EmbeddingCache));

	cache->context = AllocSetContextCreate(parent, "gpuvec vectors", ALLOCSET_DEFAULT_SIZES);
	return cache;
}

void
EmbeddingCacheDrop(EmbeddingCache *cache)
{
	MemoryContextDelete(cache->context);
	pfree(cache);
}

/* If the cache is full, forget all vectors, and decide whether it pays */
static void
make_room(EmbeddingCache *cache)
{
	if (MemoryContextMemAllocated(cache->context, true) < get_hash_memory_limit())
		return;
	cache->useless = cache->asked > cache->keys / 2;
	forget(cache);
}

/*
 * Pool bags, with results in the current memory context.  False: the caller
 * has to pool them in the engine.
 */
bool
EmbeddingCachePool(EmbeddingCache *cache, EmbeddingTable *table, const EmbeddingBags *bags,
				   EmbeddingVectors *vectors)
{
	MemoryContext old;

	if (bags->nkeys > MAX_KEYS)
		return false;
	make_room(cache);
	if (cache->useless)
		return false;
	old = MemoryContextSwitchTo(cache->context);
	if (cache->collection == NULL)
		cache->collection = EmbeddingCollectionMake();
	MemoryContextSwitchTo(old);
	cache->keys += bags->nkeys;
	cache->asked += EmbeddingCollectMore(cache->collection, table, bags->keys, bags->nkeys, true);
	EmbeddingPoolCollected(cache->collection, table, bags, vectors);
	return true;
}
