/*-------------------------------------------------------------------------
 *
 * feed.c
 *	  Feeds: what an index tells a mirror of changes of its table.
 *
 * A rooted mirror (mirror.h) has to follow two kinds of changes only: new
 * roots, and the reuse of their line pointers.  The index hears of both.  A
 * row with a new root is inserted into the index, after the page was changed
 * and before the commit.  And VACUUM calls for bulk deletion before it makes
 * any line pointer reusable that an index may name.  So an index can be the
 * feed of a mirror.  It has a slot in a small table in shared memory, in
 * which an insertion marks a page, and bulk deletion marks all pages.
 *
 * Marks are numbered, and never cleared.  A mirror knows its feed, and the
 * number up to which it has applied the marks.  Both live in the engine, and
 * die with the mirror.  A search reads the last number after it has taken its
 * snapshot.  Every change that the snapshot sees was marked before its
 * commit, so a mirror that has applied that number has the change.  A refresh
 * reads the pages of the marks again that were not applied yet.  A session
 * may use another session's refresh only if that has applied the number that
 * the session itself has read.  A slot remembers the last FEED_MARKS marks.
 * Older marks, and marks of all pages, take a refresh by WAL or by page LSNs,
 * as for a table without an index (stale_pages.c).
 *
 * A feed counts only from a complete load or refresh that began after its
 * slot was taken: what was inserted before was on the pages when they were
 * read.  Insertions look for the slot without a lock, after they have changed
 * the page.  An insertion that does not find the slot has changed its page
 * before the reader of that page took the page's lock: had it been after, the
 * slot would have been there.
 *
 * A slot that was given to another index comes back as another feed.  In
 * recovery nothing is inserted into the index, so there are no feeds; the
 * first search after a promotion takes a slot.  A crash restart loses all
 * feeds, together with the engine.
 *
 * A session that changes the table may be unable to use the shared memory,
 * for want of memory, or because its library is of another version.  Then it
 * does not mark, but counts that it did not (shared.c).  A slot remembers
 * that count from when the slot was taken.  When the count has moved, the
 * slot does not count any more, and comes back as another feed, too.
 *
 * Consecutive marks of the same page are one mark, unless the number was read
 * in between: then the page may have been read as well.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/xact.h"
#include "link/shared.h"
#include "mirror/feed.h"
#include "miscadmin.h"
#include "storage/spin.h"
#include "utils/timestamp.h"

/* A slot that was not read for this long may be given to another index */
#define SLOT_IDLE_MS	60000

#define FEED_SLOTS		16
#define FEED_MARKS		256
#define FEED_BUILD_BYTES 16

/* The index that a feed belongs to */
typedef struct FeedKey
{
	Oid			database;
	Oid			index;
	Oid			relfilenumber;	/* of the index */
} FeedKey;

/* One feed, in shared memory */
typedef struct FeedSlot
{
	slock_t		mutex;			/* protects all below */
	FeedKey		key;
	uint8		build[FEED_BUILD_BYTES];	/* build id of the index
											 * (MirrorTarget) */
	uint64		feed;			/* number of the feed; 0: the slot is free */
	uint64		unmarked;		/* count of unmarked changes when the slot was
								 * taken */
	uint64		number;			/* of the last mark */
	uint64		swept;			/* of the last mark that stands for all pages */
	bool		read;			/* number was read since the last mark */
	TimestampTz used;			/* when number was last read */
	BlockNumber blocks[FEED_MARKS]; /* the page of mark n is at n % FEED_MARKS */
} FeedSlot;

typedef struct FeedTable
{
	slock_t		mutex;			/* protects feeds, and taking slots */
	uint64		feeds;			/* last number given to a feed */
	FeedSlot	slots[FEED_SLOTS];
} FeedTable;

/* Initialize the table */
static void
init_feeds(void *part)
{
	FeedTable  *table = part;

	SpinLockInit(&table->mutex);
	for (int i = 0; i < FEED_SLOTS; i++)
		SpinLockInit(&table->slots[i].mutex);
}

static GpuvecSharedPart feeds_part = {.size = sizeof(FeedTable), .init = init_feeds};

void
FeedInit(void)
{
	GpuvecSharedAsk(&feeds_part);
}

static FeedKey
feed_key(Relation index)
{
	FeedKey		key = {
		.database = MyDatabaseId,
		.index = RelationGetRelid(index),
		.relfilenumber = GpuvecRelFile(index)
	};

	return key;
}

/*
 * True if the slot is that of this index.  Without the slot's lock the answer
 * may be out of date.
 */
static bool
slot_has(const FeedSlot *slot, const FeedKey *key)
{
	return slot->key.index == key->index && slot->key.relfilenumber == key->relfilenumber &&
		slot->key.database == key->database && slot->feed != 0;
}

/* Add a mark; the slot is locked */
static void
add_mark(FeedSlot *slot, BlockNumber block)
{
	slot->number++;
	slot->blocks[slot->number % FEED_MARKS] = block;
	slot->read = false;
}

/*
 * The next slot of this index, from number *i on, locked.  *i is then behind
 * it.  NULL: there is no other.
 */
static FeedSlot *
lock_slot(FeedTable *table, const FeedKey *key, int *i)
{
	while (table != NULL && *i < FEED_SLOTS)
	{
		FeedSlot   *slot = &table->slots[(*i)++];

		if (slot_has(slot, key))
		{
			SpinLockAcquire(&slot->mutex);
			if (slot_has(slot, key))
				return slot;
			SpinLockRelease(&slot->mutex);
		}
	}
	return NULL;
}

void
FeedMark(Relation index, BlockNumber block)
{
	FeedTable  *table = GpuvecSharedFind(GpuvecSharedToMark(), &feeds_part);
	FeedKey		key = feed_key(index);
	FeedSlot   *slot;
	int			i = 0;

	while ((slot = lock_slot(table, &key, &i)) != NULL)
	{
		if (slot->read || slot->number == 0 || slot->blocks[slot->number % FEED_MARKS] != block)
			add_mark(slot, block);
		SpinLockRelease(&slot->mutex);
	}
}

void
FeedMarkAll(Relation index)
{
	FeedTable  *table = GpuvecSharedFind(GpuvecSharedToMark(), &feeds_part);
	FeedKey		key = feed_key(index);
	FeedSlot   *slot;
	int			i = 0;

	while ((slot = lock_slot(table, &key, &i)) != NULL)
	{
		add_mark(slot, InvalidBlockNumber);
		slot->swept = slot->number;
		SpinLockRelease(&slot->mutex);
	}
}

/*
 * True if a locked slot is of this build of the index, and has all marks
 * since it was taken
 */
static bool
slot_counts(const FeedSlot *slot, const FeedKey *key, const uint8 *build)
{
	return slot_has(slot, key) && memcmp(slot->build, build, FEED_BUILD_BYTES) == 0 &&
		slot->unmarked == GpuvecSharedUnmarked();
}

/* Read the number of an index's slot.  False: it has none that counts. */
static bool
read_slot(FeedTable *table, const FeedKey *key, const uint8 *build, TimestampTz now,
		  gpuvec_freshness *need)
{
	for (int i = 0; i < FEED_SLOTS; i++)
	{
		FeedSlot   *slot = &table->slots[i];
		bool		found;

		if (!slot_has(slot, key))
			continue;
		SpinLockAcquire(&slot->mutex);
		found = slot_counts(slot, key, build);
		if (found)
		{
			need->feed = slot->feed;
			need->applied = slot->number;
			slot->read = true;
			slot->used = now;
		}
		SpinLockRelease(&slot->mutex);
		if (found)
			return true;
	}
	return false;
}

/*
 * The slot that an index may take: its own that does not count, a free one,
 * or an idle one.  NULL: there is none.
 */
static FeedSlot *
choose_slot(FeedTable *table, const FeedKey *key, TimestampTz now)
{
	FeedSlot   *oldest = NULL;

	for (int i = 0; i < FEED_SLOTS; i++)
	{
		FeedSlot   *slot = &table->slots[i];

		if (slot->feed == 0 || slot_has(slot, key))
			return slot;
		if (oldest == NULL || slot->used < oldest->used)
			oldest = slot;
	}
	return now - oldest->used > INT64CONST(1000) * SLOT_IDLE_MS ? oldest : NULL;
}

/*
 * Take a slot for an index, unless it has one that counts, or none is
 * available
 */
static void
take_slot(FeedTable *table, const FeedKey *key, const uint8 *build, TimestampTz now)
{
	FeedSlot   *slot;

	SpinLockAcquire(&table->mutex);
	slot = choose_slot(table, key, now);
	if (slot != NULL && !slot_counts(slot, key, build))
	{
		SpinLockAcquire(&slot->mutex);
		slot->key = *key;
		slot->unmarked = GpuvecSharedUnmarked();
		memcpy(slot->build, build, FEED_BUILD_BYTES);
		slot->number = slot->swept = 0;
		slot->read = false;
		slot->used = now;
		slot->feed = ++table->feeds;
		SpinLockRelease(&slot->mutex);
	}
	SpinLockRelease(&table->mutex);
}

void
FeedRead(Relation index, const uint8 *build, gpuvec_freshness *need)
{
	FeedTable  *table = GpuvecSharedFind(GpuvecSharedState(), &feeds_part);
	FeedKey		key = feed_key(index);
	TimestampTz now = GetCurrentStatementStartTimestamp();

	if (table == NULL || RecoveryInProgress() ||
		read_slot(table, &key, build, now, need))
		return;
	take_slot(table, &key, build, now);
	(void) read_slot(table, &key, build, now, need);
}

/*
 * Copy the pages of the marks in (applied, wanted]; the slot is locked.
 * False: the pages are not known one by one.
 */
static bool
copy_marks(const FeedSlot *slot, uint64 applied, uint64 wanted, BlockNumber *blocks)
{
	if (slot->swept > applied || slot->number - applied > FEED_MARKS)
		return false;
	for (uint64 i = applied + 1; i <= wanted; i++)
		*blocks++ = slot->blocks[i % FEED_MARKS];
	return true;
}

bool
FeedTake(uint64 applied, const gpuvec_freshness *need, BlockNumber **blocks, uint32 *n)
{
	FeedTable  *table = GpuvecSharedFind(GpuvecSharedState(), &feeds_part);
	bool		ok = false;

	*n = 0;
	*blocks = palloc_array(BlockNumber, FEED_MARKS);
	if (need->applied <= applied)
		return true;
	for (int i = 0; table != NULL && i < FEED_SLOTS; i++)
	{
		FeedSlot   *slot = &table->slots[i];

		SpinLockAcquire(&slot->mutex);
		if (slot->feed == need->feed)
			ok = copy_marks(slot, applied, need->applied, *blocks);
		SpinLockRelease(&slot->mutex);
	}
	if (ok)
		*n = need->applied - applied;
	return ok;
}
