/*-------------------------------------------------------------------------
 *
 * known_items.c
 *	  The items that each user has interacted with, for many users.
 *
 * Interactions are read as for a training, by parallel workers where that is
 * possible (als_interactions.c).  They come in any order.  So users are dealt
 * out to buckets, by a hash of their keys, and the pairs of each bucket are
 * collected.  Pairs that do not fit work_mem go to temporary files.
 *
 * Whoever wants to know the items of users takes the users bucket by bucket.
 * When a bucket begins, its pairs are read into memory and sorted, by a radix
 * sort.  Then the items of each user are in a row, ascending.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/tupdesc.h"
#include "catalog/pg_type.h"
#include "core/key_hash.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "recommend/known_items.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/tuplestore.h"

/* Pairs that go to a tuplestore together */
#define CHUNK_PAIRS		1024

/* Turns keys into unsigned numbers of the same order, and back */
#define SIGN			(UINT64CONST(1) << 63)

/* Values of a byte */
#define NBYTES			256

/* What a pair consists of */
enum
{
	WORD_ITEM,
	WORD_USER,
	NWORDS
};

/* A pair of a user and an item; the words have the order of the keys */
typedef struct KnownPair
{
	uint64		words[NWORDS];
} KnownPair;

/* The pairs of some users */
typedef struct KnownBucket
{
	Tuplestorestate *store;		/* whole chunks; NULL: there are none */
	uint64		stored;			/* pairs in it */
	KnownPair  *chunk;			/* [CHUNK_PAIRS]: the last one; may be NULL */
	uint32		n;				/* pairs in that */
} KnownBucket;

struct KnownItems
{
	MemoryContext context;
	ResourceOwner owner;		/* of temporary files */
	TupleDesc	desc;			/* a chunk: one bytea */
	TupleTableSlot *slot;
	KnownBucket buckets[KNOWN_BUCKETS];

	/* the bucket that is loaded */
	MemoryContext loaded_context;
	int			loaded;			/* -1: none */
	uint64		nusers;
	int64	   *users;			/* [nusers], ascending */
	uint64	   *starts;			/* [nusers + 1]: their items in items[] */
	int64	   *items;
};

int
KnownItemsBucket(int64 user)
{
	/* the upper bits: others use the lower ones for hash tables */
	return (int) ((gpuvec_hash_key(user) >> 32) % KNOWN_BUCKETS);
}

/* ---- collecting ---- */

/* Make an empty tuplestore, which lives as long as the call */
static Tuplestorestate *
make_store(const KnownItems *known)
{
	ResourceOwner old = CurrentResourceOwner;
	Tuplestorestate *store;

	CurrentResourceOwner = known->owner;
	store = tuplestore_begin_heap(false, false, Max(work_mem / KNOWN_BUCKETS, 64));
	CurrentResourceOwner = old;
	return store;
}

/* Store a chunk, and make it empty */
static void
store_chunk(KnownItems *known, KnownBucket *bucket)
{
	Size		bytes = bucket->n * sizeof(KnownPair);
	struct varlena *data = palloc(VARHDRSZ + bytes);
	Datum		value = PointerGetDatum(data);
	bool		isnull = false;

	if (bucket->store == NULL)
		bucket->store = make_store(known);
	SET_VARSIZE(data, VARHDRSZ + bytes);
	memcpy(VARDATA(data), bucket->chunk, bytes);
	tuplestore_putvalues(bucket->store, known->desc, &value, &isnull);
	pfree(data);
	bucket->stored += bucket->n;
	bucket->n = 0;
}

/* AlsTakeChunk: deal out interactions to buckets */
static void
collect(void *arg, uint64 n, const int64 *users, const int64 *items, const float *weights)
{
	KnownItems *known = arg;
	MemoryContext old = MemoryContextSwitchTo(known->context);

	for (uint64 i = 0; i < n; i++)
	{
		KnownBucket *bucket = &known->buckets[KnownItemsBucket(users[i])];
		KnownPair  *pair;

		if (bucket->chunk == NULL)
			bucket->chunk = palloc_array(KnownPair, CHUNK_PAIRS);
		else if (bucket->n == CHUNK_PAIRS)
			store_chunk(known, bucket);
		pair = &bucket->chunk[bucket->n++];
		pair->words[WORD_USER] = (uint64) users[i] ^ SIGN;
		pair->words[WORD_ITEM] = (uint64) items[i] ^ SIGN;
	}
	MemoryContextSwitchTo(old);
}

/* A row of one bytea */
static TupleDesc
chunk_desc(void)
{
	TupleDesc	desc = CreateTemplateTupleDesc(1);

	TupleDescInitEntry(desc, 1, "pairs", BYTEAOID, -1, 0);
	TupleDescFinalize(desc);
	return desc;
}

KnownItems *
KnownItemsRead(const AlsInteractions *interactions, Datum users, uint64 *rows)
{
	KnownItems *known = palloc0_object(KnownItems);

	known->context = CurrentMemoryContext;
	known->loaded_context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec known items",
												  ALLOCSET_DEFAULT_SIZES);
	known->owner = CurrentResourceOwner;
	known->desc = chunk_desc();
	known->slot = MakeSingleTupleTableSlot(known->desc, &TTSOpsMinimalTuple);
	known->loaded = -1;
	*rows = AlsReadChunks(interactions, users, 1, collect, known);
	return known;
}

/* ---- a bucket ---- */

/* Copy the pairs of a bucket */
static void
copy_pairs(KnownItems *known, const KnownBucket *bucket, KnownPair *pairs)
{
	if (bucket->store)
	{
		tuplestore_rescan(bucket->store);
		while (tuplestore_gettupleslot(bucket->store, true, false, known->slot))
		{
			struct varlena *data;

			CHECK_FOR_INTERRUPTS();
			slot_getallattrs(known->slot);
			data = (struct varlena *) DatumGetPointer(known->slot->tts_values[0]);
			memcpy(pairs, VARDATA_ANY(data), VARSIZE_ANY_EXHDR(data));
			pairs += VARSIZE_ANY_EXHDR(data) / sizeof(KnownPair);
		}
		ExecClearTuple(known->slot);
	}
	if (bucket->n > 0)
		memcpy(pairs, bucket->chunk, bucket->n * sizeof(KnownPair));
}

/* Sort pairs by a byte of a word; equal ones stay in order */
static void
sort_by_byte(const KnownPair *from, KnownPair *to, uint64 n, int word, int shift)
{
	uint64		next[NBYTES] = {0};
	uint64		at = 0;

	for (uint64 i = 0; i < n; i++)
	{
		GPUVEC_STEP(i);
		next[from[i].words[word] >> shift & (NBYTES - 1)]++;
	}
	for (int byte = 0; byte < NBYTES; byte++)
	{
		uint64		count = next[byte];

		next[byte] = at;
		at += count;
	}
	for (uint64 i = 0; i < n; i++)
	{
		GPUVEC_STEP(i);
		to[next[from[i].words[word] >> shift & (NBYTES - 1)]++] = from[i];
	}
}

/*
 * Sort pairs by user, then by item; other[] has room for as many.  Returns
 * the array that they are in then.  Bytes that are the same in all pairs are
 * left out.
 */
static KnownPair *
sort_pairs(KnownPair *pairs, KnownPair *other, uint64 n)
{
	for (int word = 0; word < NWORDS; word++)
	{
		uint64		differs = 0;

		for (uint64 i = 1; i < n; i++)
		{
			GPUVEC_STEP(i);
			differs |= pairs[i].words[word] ^ pairs[0].words[word];
		}
		for (int shift = 0; shift < 64; shift += 8)
		{
			KnownPair  *sorted = other;

			if ((differs >> shift & (NBYTES - 1)) == 0)
				continue;
			sort_by_byte(pairs, sorted, n, word, shift);
			other = pairs;
			pairs = sorted;
		}
	}
	return pairs;
}

/* Make the lists of items of sorted pairs */
static void
make_lists(KnownItems *known, const KnownPair *pairs, uint64 n)
{
	uint64		nusers = n > 0;

	for (uint64 i = 1; i < n; i++)
	{
		GPUVEC_STEP(i);
		nusers += pairs[i].words[WORD_USER] != pairs[i - 1].words[WORD_USER];
	}
	known->users = palloc_extended((nusers + 1) * sizeof(int64), MCXT_ALLOC_HUGE);
	known->starts = palloc_extended((nusers + 1) * sizeof(uint64), MCXT_ALLOC_HUGE);
	known->items = palloc_extended((n + 1) * sizeof(int64), MCXT_ALLOC_HUGE);
	known->nusers = 0;
	for (uint64 i = 0; i < n; i++)
	{
		GPUVEC_STEP(i);
		if (i == 0 || pairs[i].words[WORD_USER] != pairs[i - 1].words[WORD_USER])
		{
			known->users[known->nusers] = (int64) (pairs[i].words[WORD_USER] ^ SIGN);
			known->starts[known->nusers++] = i;
		}
		known->items[i] = (int64) (pairs[i].words[WORD_ITEM] ^ SIGN);
	}
	known->starts[known->nusers] = n;
}

/* Load a bucket, and forget the one that was loaded before */
static void
load_bucket(KnownItems *known, int number)
{
	const KnownBucket *bucket = &known->buckets[number];
	uint64		n = bucket->stored + bucket->n;
	Size		bytes = (n + 1) * sizeof(KnownPair);
	MemoryContext old;
	KnownPair  *pairs;
	KnownPair  *other;

	known->loaded = -1;
	MemoryContextReset(known->loaded_context);
	old = MemoryContextSwitchTo(known->loaded_context);
	pairs = palloc_extended(bytes, MCXT_ALLOC_HUGE);
	other = palloc_extended(bytes, MCXT_ALLOC_HUGE);
	copy_pairs(known, bucket, pairs);
	make_lists(known, sort_pairs(pairs, other, n), n);
	pfree(pairs);
	pfree(other);
	MemoryContextSwitchTo(old);
	known->loaded = number;
}

const int64 *
KnownItemsOf(KnownItems *known, int64 user, uint64 *n)
{
	int			bucket = KnownItemsBucket(user);
	uint64		low = 0;
	uint64		high;

	if (known->loaded != bucket)
		load_bucket(known, bucket);
	high = known->nusers;
	while (low < high)
	{
		uint64		middle = (low + high) / 2;

		if (known->users[middle] < user)
			low = middle + 1;
		else
			high = middle;
	}
	*n = 0;
	if (low < known->nusers && known->users[low] == user)
		*n = known->starts[low + 1] - known->starts[low];
	return *n > 0 ? known->items + known->starts[low] : NULL;
}

void
KnownItemsEnd(KnownItems *known)
{
	for (int i = 0; i < KNOWN_BUCKETS; i++)
		if (known->buckets[i].store)
			tuplestore_end(known->buckets[i].store);
	ExecDropSingleTupleTableSlot(known->slot);
}
