/*-------------------------------------------------------------------------
 *
 * cache.c
 *	  Vectors kept for the next groups of an aggregate.
 *
 * A sorted aggregate finishes each group before it reads the next one, so
 * each would need a trip to the engine.  Instead the vectors of its keys are
 * kept, and a group asks only for those that no group before it had; then it
 * is pooled here, by the same function as in the engine, to the same bits.
 * All groups of a statement have one snapshot, so a vector that one of them
 * got is right for all.
 *
 * There is as much memory as for a hash table of the executor.  When it is
 * used up, all is forgotten; and if most keys had to be asked for in that
 * time, keeping vectors does not pay: then groups are left to the engine.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "embedding/embedding_table.h"
#include "executor/nodeHash.h"
#include "utils/memutils.h"

/*
 * Bags of more keys are left to the engine, which has threads, and does not
 * send vectors
 */
#define MAX_KEYS	1024

struct EmbeddingCache
{
	MemoryContext context;		/* of the collection */
	EmbeddingCollection *collection;
	uint64		keys;			/* that groups had, since all was forgotten */
	uint64		asked;			/* those of them that had to be asked for */
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

/* An empty cache */
EmbeddingCache *
EmbeddingCacheMake(MemoryContext parent)
{
	EmbeddingCache *cache = MemoryContextAllocZero(parent, sizeof(EmbeddingCache));

	cache->context = AllocSetContextCreate(parent, "gpuvec vectors", ALLOCSET_DEFAULT_SIZES);
	return cache;
}

/* Give it up */
void
EmbeddingCacheDrop(EmbeddingCache *cache)
{
	MemoryContextDelete(cache->context);
	pfree(cache);
}

/* Is there room for more?  If not, all is forgotten. */
static void
make_room(EmbeddingCache *cache)
{
	if (MemoryContextMemAllocated(cache->context, true) < get_hash_memory_limit())
		return;
	cache->useless = cache->asked > cache->keys / 2;
	forget(cache);
}

/* Pool bags if that pays; the answer is in the current memory context */
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
