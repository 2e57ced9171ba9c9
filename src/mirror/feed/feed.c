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
 * feed of a mirror.  It has a slot in shared memory, to which an insertion
 * hands its row over, and bulk deletion the line pointers that will be
 * reused.  A row that is too long, or that the index does not hand over in
 * the order of its line pointer's history, is a mark instead: its page has to
 * be read.
 *
 * What is handed over are records, numbered, in a ring (feed_ring.c).  A
 * mirror knows its feed, and the number up to which it has applied the
 * records.  Both live in the engine, and die with the mirror.  A search reads
 * the last number after it has taken its snapshot.  Every change that the
 * snapshot sees was handed over before its commit, so a mirror that has
 * applied that number has the change.
 *
 * The records of one line pointer are in the order in which things happened
 * to it: another row gets it only after VACUUM has handed it over as gone.
 * So the last record of a line pointer says what is there, and rows of
 * transactions that failed stay until VACUUM comes.  Nobody sees them.
 *
 * A record tells its page as well.  So a mirror may be refreshed by reading
 * the pages of the records that it has not applied.  The ring has the last
 * records only; of older ones it knows the pages for a while, and then that
 * there were some.  A mirror that is behind these, or behind a mark of all
 * pages, takes a refresh by WAL or by page LSNs, as for a table without an
 * index (stale_pages.c).
 *
 * A feed counts only from a complete load or refresh that began after its
 * slot was taken: what was inserted before was on the pages when they were
 * read.  Insertions look for the slot without a lock, after they have changed
 * the page.  An insertion that does not find the slot has changed its page
 * before the reader of that page took the page's lock: had it been after, the
 * slot would have been there.  VACUUM looks once, when bulk deletion begins.
 * By then the row versions that it removes are gone from their pages, or are
 * dead to everyone: who reads the pages later leaves them out.
 *
 * A slot that was given to another index comes back as another feed.  In
 * recovery nothing is inserted into the index, so there are no feeds; the
 * first search after a promotion takes a slot.  A crash restart loses all
 * feeds, together with the engine.
 *
 * A session that changes the table may be unable to use the shared memory,
 * for want of memory, or because its library is of another version.  Then it
 * does not hand over, but counts that it did not (shared.c).  A slot
 * remembers that count from when the slot was taken.  When the count has
 * moved, the slot does not count any more, and comes back as another feed,
 * too.
 *
 * Locks.  Who appends has the slot's lock, for some 100 ns; so it is waited
 * for without sleeping at first.  Rows are appended together (feed_queue.c).
 * Who takes a slot has the table's lock, then the slot's.  Searches read
 * without a lock.  The number of the feed tells them whether all that they
 * have read is of one feed: it is set to 0 before anything of the slot
 * changes hands, and is never given again.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/xact.h"
#include "idset/idset.h"
#include "core/clock.h"
#include "link/shared.h"
#include "mirror/feed/feed.h"
#include "mirror/feed/feed_queue.h"
#include "mirror/feed/feed_ring.h"
#include "mirror/feed/feeder_state.h"
#include "mirror/describe/mirror.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/spin.h"

#define TRANCHE_NAME	"gpuvec feed"
#define FEED_BUILD_BYTES 16

/*
 * How often to try for a slot's lock before sleeping.  The n-th pause takes n
 * times as long as the first: all together some microseconds, less than a
 * sleep and a wake-up.
 */
#define LOCK_TRIES		20

/* The index that a slot belongs to; written by who takes the slot */
typedef struct FeedOwner
{
	Oid			database;
	Oid			index;
	Oid			relfilenumber;	/* of the index */
	pg_atomic_uint64 feed;		/* number of the feed; 0: the slot is free, or
								 * is changing hands */
} FeedOwner;

/* One feed, in shared memory.  The gaps are as in FeedRing. */
typedef struct FeedSlot
{
	LWLock		lock;			/* for appending, and for taking the slot */
	char		gap[PG_CACHE_LINE_SIZE];
	pg_atomic_uint64 used;		/* when the number was last read */
	pg_atomic_uint64 kept_from; /* hints of the feeder: the engine keeps the
								 * records with the numbers kept_from + 1 ..
								 * kept */
	pg_atomic_uint64 kept;

	/* as in FeedOwner */
	gpuvec_mirror_key mirror;
	uint8		build[FEED_BUILD_BYTES];	/* build id of the index
											 * (MirrorTarget) */
	uint64		unmarked;		/* count of unmarked changes when the slot was
								 * taken */
	FeedRing	ring;
} FeedSlot;

/*
 * Owners are apart from the slots: who inserts into an index that no mirror
 * follows reads nothing else
 */
typedef struct FeedTable
{
	FeedOwner	owners[FEED_SLOTS];
	LWLock		lock;			/* for taking slots */
	int			tranche;		/* of the locks */
	uint64		feeds;			/* last number given to a feed */
	pg_atomic_uint64 moves;		/* counted by FeedMoved() */
	FeedSlot	slots[FEED_SLOTS];
} FeedTable;

/* Initialize the table; its slots are not zeroed */
static void
init_feeds(void *part)
{
	FeedTable  *table = part;

	table->tranche = GpuvecNewTranche(TRANCHE_NAME);
	LWLockInitialize(&table->lock, table->tranche);
	pg_atomic_init_u64(&table->moves, 0);
	for (int i = 0; i < FEED_SLOTS; i++)
	{
		FeedSlot   *slot = &table->slots[i];

		pg_atomic_init_u64(&table->owners[i].feed, 0);
		pg_atomic_init_u64(&slot->used, 0);
		pg_atomic_init_u64(&slot->kept_from, 0);
		pg_atomic_init_u64(&slot->kept, 0);
		LWLockInitialize(&slot->lock, table->tranche);
		FeedRingInit(&slot->ring);
	}
}

static GpuvecSharedPart feeds_part = {
	.size = sizeof(FeedTable),
	.rough = sizeof(FeedTable) - offsetof(FeedTable, slots),
	.init = init_feeds
};

void
FeedInit(void)
{
	GpuvecSharedAsk(&feeds_part);
}

/* The table in the shared state, or NULL */
static FeedTable *
table_in(GpuvecShared *state)
{
	static bool registered = false;
	FeedTable  *table = GpuvecSharedFind(state, &feeds_part);

	if (table != NULL && !registered)
	{
		GpuvecRegisterTranche(table->tranche, TRANCHE_NAME);
		registered = true;
	}
	return table;
}

FeedIndex
FeedIndexOf(Relation index)
{
	FeedIndex	result = {.index = RelationGetRelid(index), .relfilenumber = GpuvecRelFile(index)};

	return result;
}

/* The index that is the target's feed */
static FeedIndex
index_of(const MirrorTarget *target)
{
	FeedIndex	result = {.index = target->followed, .relfilenumber = target->followed_file};

	return result;
}

/*
 * True if the slot of this owner is that of this index.  Without the slot's
 * lock the answer may be out of date.
 */
static bool
is_owner(FeedOwner *owner, const FeedIndex *index)
{
	return owner->index == index->index && owner->relfilenumber == index->relfilenumber &&
		owner->database == MyDatabaseId && pg_atomic_read_u64(&owner->feed) != 0;
}

/* The slot of a feed, or NULL */
static FeedSlot *
slot_of(FeedTable *table, uint64 feed, pg_atomic_uint64 **current)
{
	for (int i = 0; table != NULL && feed != 0 && i < FEED_SLOTS; i++)
	{
		*current = &table->owners[i].feed;
		if (pg_atomic_read_u64(*current) == feed)
			return &table->slots[i];
	}
	return NULL;
}

/* Take the lock of a slot, to append */
static void
lock_to_append(LWLock *lock)
{
	for (int i = 0; i < LOCK_TRIES; i++)
	{
		if (LWLockConditionalAcquire(lock, LW_EXCLUSIVE))
			return;
		for (int pause = 0; pause <= i; pause++)
			SPIN_DELAY();
	}
	LWLockAcquire(lock, LW_EXCLUSIVE);
}

/*
 * The next slot of this index, from number *i on, locked.  *i is then behind
 * it.  NULL: there is no other.
 */
static FeedSlot *
lock_slot(FeedTable *table, const FeedIndex *index, int *i)
{
	while (table != NULL && *i < FEED_SLOTS)
	{
		FeedOwner  *owner = &table->owners[*i];
		FeedSlot   *slot = &table->slots[(*i)++];

		if (is_owner(owner, index))
		{
			lock_to_append(&slot->lock);
			if (is_owner(owner, index))
				return slot;
			LWLockRelease(&slot->lock);
		}
	}
	return NULL;
}

/*
 * The first row in each file is enough: until this transaction ends, its lock
 * of the index lets nobody follow it.  Nobody else knows an index that it has
 * made.
 */
void
FeedMoved(Relation index)
{
	static Oid	counted = InvalidOid;	/* a file */
	FeedTable  *table;

	if (GpuvecRelFirstFileSubid(index) == InvalidSubTransactionId ||
		index->rd_createSubid != InvalidSubTransactionId || counted == GpuvecRelFile(index))
		return;
	table = table_in(GpuvecSharedToMark());
	/* else it counts as a change that is not marked */
	if (table != NULL)
		(void) pg_atomic_fetch_add_u64(&table->moves, 1);
	counted = GpuvecRelFile(index);
}

uint64
FeedMoves(void)
{
	FeedTable  *table = table_in(GpuvecSharedState());

	return table != NULL ? pg_atomic_read_u64(&table->moves) : 0;
}

bool
FeedTaken(Relation index)
{
	FeedTable  *table = table_in(GpuvecSharedToMark());
	FeedIndex	key = FeedIndexOf(index);

	for (int i = 0; table != NULL && i < FEED_SLOTS; i++)
		if (is_owner(&table->owners[i], &key))
			return true;
	return false;
}

/* Append records to all slots of an index */
void
FeedAppend(const FeedIndex *index, const FeedBatch *batch)
{
	FeedTable  *table = table_in(GpuvecSharedToMark());
	FeedSlot   *slot;
	int			i = 0;

	while ((slot = lock_slot(table, index, &i)) != NULL)
	{
		FeedRingAppend(&slot->ring, batch);
		LWLockRelease(&slot->lock);
		FeederWake();
	}
}

/* Append a record at once */
static void
append(Relation index, const gpuvec_feed_record *record, const void *values)
{
	FeedIndex	key = FeedIndexOf(index);
	FeedBatch	batch;

	batch.n = batch.bytes = 0;
	(void) FeedBatchAdd(&batch, record, values);
	FeedAppend(&key, &batch);
}

void
FeedMark(Relation index, BlockNumber block)
{
	gpuvec_feed_record record = {.kind = GPUVEC_FEED_PAGE, .block = block};

	append(index, &record, NULL);
}

void
FeedMarkAll(Relation index)
{
	gpuvec_feed_record record = {.kind = GPUVEC_FEED_ALL, .block = InvalidBlockNumber};

	append(index, &record, NULL);
}

/*
 * Hand over that a root has no set, whatever the mirror has under it.  (With
 * filter columns a mirror has such rows.)
 */
static void
feed_no_set(Relation index, ItemPointer root)
{
	uint16		line = mirror_line(ItemPointerGetOffsetNumber(root), false);
	gpuvec_feed_record record = {
		.kind = GPUVEC_FEED_GONE,
		.block = ItemPointerGetBlockNumber(root),
		.len = 1
	};

	FeedQueueAdd(index, &record, &line, NULL);
}

void
FeedIds(Relation index, ItemPointer root, gpuvec_id_span set, const void *words, uint32 nwords)
{
	gpuvec_feed_record record = {
		.kind = GPUVEC_FEED_ROW,
		.line = mirror_line(ItemPointerGetOffsetNumber(root), false),
		.block = ItemPointerGetBlockNumber(root),
		.len = set.wide ? set.n * 2 : set.n,
		.wide = set.wide,
		.nwords = nwords
	};

	if (set.ids == NULL && nwords == 0)
		feed_no_set(index, root);
	else if (record.len * sizeof(uint16) > FEED_MOST_BYTES)
		FeedMark(index, record.block);
	else
		FeedQueueAdd(index, &record, set.ids, words);
}

void
FeedRow(Relation index, ItemPointer root, struct varlena *set, const uint64 *words, uint32 nwords)
{
	gpuvec_id_span ids = {NULL};

	if (set != NULL)
		ids = idset_span_of_bytes(VARDATA_ANY(set), VARSIZE_ANY_EXHDR(set));
	FeedIds(index, root, ids, words, nwords);
}

void
FeedGone(Relation index, BlockNumber block, const OffsetNumber *roots, int n)
{
	uint16		lines[FEED_MOST_BYTES / sizeof(uint16)];
	gpuvec_feed_record record = {.kind = GPUVEC_FEED_GONE, .block = block};

	for (int done = 0; done < n; done += record.len)
	{
		record.len = Min(n - done, (int) lengthof(lines));
		for (uint32 i = 0; i < record.len; i++)
			lines[i] = mirror_line(roots[done + i], false);
		append(index, &record, lines);
	}
}

/*
 * True if a slot is of this build of the index, and was told of all changes
 * since it was taken
 */
static bool
slot_counts(FeedTable *table, int i, const MirrorTarget *target)
{
	const FeedSlot *slot = &table->slots[i];
	FeedIndex	index = index_of(target);

	return is_owner(&table->owners[i], &index) &&
		memcmp(slot->build, target->build, FEED_BUILD_BYTES) == 0 &&
		slot->unmarked == GpuvecSharedUnmarked();
}

/*
 * Read the number of a slot.  False: it is not the target's, or does not
 * count.
 */
static bool
read_number(FeedTable *table, int i, const MirrorTarget *target, gpuvec_freshness *need)
{
	FeedOwner  *owner = &table->owners[i];
	uint64		feed = pg_atomic_read_u64(&owner->feed);
	uint64		number;

	pg_read_barrier();
	if (!slot_counts(table, i, target))
		return false;
	number = pg_atomic_read_u64(&table->slots[i].ring.number);
	pg_read_barrier();
	if (pg_atomic_read_u64(&owner->feed) != feed)
		return false;
	need->feed = feed;
	need->applied = number;
	return true;
}

/* Read the number of the target's slot.  False: it has none that counts. */
static bool
read_slot(FeedTable *table, const MirrorTarget *target, int64 now, gpuvec_freshness *need)
{
	for (int i = 0; i < FEED_SLOTS; i++)
	{
		if (!read_number(table, i, target, need))
			continue;
		pg_atomic_write_u64(&table->slots[i].used, now);
		return true;
	}
	return false;
}

/*
 * Number of the slot that an index may take: its own that does not count, a
 * free one, or an idle one.  -1: there is none.
 */
static int
choose_slot(FeedTable *table, const MirrorTarget *target, int64 now)
{
	FeedIndex	key = index_of(target);
	int			oldest = 0;

	for (int i = 0; i < FEED_SLOTS; i++)
	{
		if (pg_atomic_read_u64(&table->owners[i].feed) == 0 || is_owner(&table->owners[i], &key))
			return i;
		if (pg_atomic_read_u64(&table->slots[i].used) < pg_atomic_read_u64(&table->slots[oldest].used))
			oldest = i;
	}
	if (now - (int64) pg_atomic_read_u64(&table->slots[oldest].used) >
		INT64CONST(1000) * gpuvec_feed_idle)
		return oldest;
	return -1;
}

/* Bytes of the ring of a slot that is taken now */
static uint32
ring_room(void)
{
	if (gpuvec_feed_ring_bytes == 0)
		return FEED_RING_BYTES;
	return Max(gpuvec_feed_ring_bytes & ~7, FEED_RING_LEAST);
}

/* Give a slot to the target's index, as a new feed */
static void
give_slot(FeedTable *table, int i, const MirrorTarget *target, int64 now)
{
	FeedOwner  *owner = &table->owners[i];
	FeedSlot   *slot = &table->slots[i];

	LWLockAcquire(&slot->lock, LW_EXCLUSIVE);
	pg_atomic_write_u64(&owner->feed, 0);
	pg_write_barrier();
	owner->database = MyDatabaseId;
	owner->index = target->followed;
	owner->relfilenumber = target->followed_file;
	slot->mirror = target->key;
	slot->unmarked = GpuvecSharedUnmarked();
	memcpy(slot->build, target->build, FEED_BUILD_BYTES);
	pg_atomic_write_u64(&slot->used, now);
	pg_atomic_write_u64(&slot->kept_from, 0);
	pg_atomic_write_u64(&slot->kept, 0);
	FeedRingReset(&slot->ring, ring_room());
	pg_write_barrier();
	pg_atomic_write_u64(&owner->feed, ++table->feeds);
	LWLockRelease(&slot->lock);
}

/*
 * Take a slot for an index, unless it has one that counts, or none is
 * available
 */
static void
take_slot(FeedTable *table, const MirrorTarget *target, int64 now)
{
	int			i;

	LWLockAcquire(&table->lock, LW_EXCLUSIVE);
	i = choose_slot(table, target, now);
	if (i >= 0 && !slot_counts(table, i, target))
		give_slot(table, i, target, now);
	LWLockRelease(&table->lock);
}

void
FeedRead(const MirrorTarget *target, gpuvec_freshness *need)
{
	FeedTable  *table = table_in(GpuvecSharedState());
	int64		now = gpuvec_clock_coarse_us();

	/* our snapshot sees our own rows */
	FeedQueueFlush();
	if (table == NULL || RecoveryInProgress())
		return;
	/* a look without a lock: mostly all slots are in use, or one is ours */
	if (!read_slot(table, target, now, need) && choose_slot(table, target, now) >= 0)
	{
		take_slot(table, target, now);
		(void) read_slot(table, target, now, need);
	}
	if (need->feed != 0)
		FeederStart();
}

uint64
FeedApplied(uint64 feed)
{
	pg_atomic_uint64 *current;
	FeedSlot   *slot = slot_of(table_in(GpuvecSharedState()), feed, &current);

	return slot == NULL ? 0 : Min(pg_atomic_read_u64(&slot->ring.applied),
								  pg_atomic_read_u64(&slot->ring.number));
}

/* All records behind this number are rows, and in the ring */
static uint64
rows_since(FeedRing *ring)
{
	uint64		oldest = pg_atomic_read_u64(&ring->oldest);

	return Max(ring->marked, Max(oldest, 1) - 1);
}

uint64
FeedRowsSince(uint64 feed)
{
	pg_atomic_uint64 *current;
	FeedSlot   *slot = slot_of(table_in(GpuvecSharedState()), feed, &current);

	return slot == NULL ? 0 : rows_since(&slot->ring);
}

FeedPace
FeedComing(uint64 feed)
{
	pg_atomic_uint64 *current;
	FeedSlot   *slot = slot_of(table_in(GpuvecSharedState()), feed, &current);
	uint64		applied;
	uint64		since;

	if (slot == NULL || !FeederRuns())
		return FEED_STUCK;
	applied = pg_atomic_read_u64(&slot->ring.applied);
	since = rows_since(&slot->ring);
	if (applied >= since)
		return FEED_COMING;
	return pg_atomic_read_u64(&slot->kept_from) <= applied &&
		pg_atomic_read_u64(&slot->kept) >= since ? FEED_CATCHING_UP : FEED_STUCK;
}

void
FeedNoteKept(uint64 feed, uint64 from, uint64 to)
{
	pg_atomic_uint64 *current;
	FeedSlot   *slot = slot_of(table_in(GpuvecSharedState()), feed, &current);

	if (slot == NULL)
		return;
	pg_atomic_write_u64(&slot->kept_from, from);
	pg_atomic_write_u64(&slot->kept, to);
}

/* If the slot changes hands meanwhile, a hint is wrong */
void
FeedNoteState(const gpuvec_state *state)
{
	pg_atomic_uint64 *current;
	FeedSlot   *slot = slot_of(table_in(GpuvecSharedState()), state->feed, &current);

	if (slot != NULL)
		FeedRingApplied(&slot->ring, state->applied);
}

/*
 * Copy records while others append.  What was copied is of this feed only if
 * the slot still is, after all was read.
 */
bool
FeedCopyRows(uint64 feed, uint64 from, uint64 to, Size most, FeedRows *rows)
{
	pg_atomic_uint64 *current;
	FeedSlot   *slot = slot_of(table_in(GpuvecSharedState()), feed, &current);
	FeedRingSpan span;
	int64		bytes = -1;

	if (slot == NULL)
		return false;
	pg_read_barrier();
	if (!FeedRingPlan(&slot->ring, from, to, most, &span))
		return false;
	rows->data = palloc(Max(span.bytes, 1));
	if (FeedRingCopy(&slot->ring, &span, rows->data) && pg_atomic_read_u64(current) == feed)
		bytes = FeedRingPack(&span, rows->data, &rows->nrows);
	if (bytes < 0)
	{
		pfree(rows->data);
		return false;
	}
	rows->from = from;
	rows->to = span.to;
	rows->bytes = bytes;
	return true;
}

/*
 * List the pages; the slot is locked, so lack of memory is no error.  Its
 * message would go to the client before the lock is released.
 */
static bool
take_pages(FeedRing *ring, uint64 from, uint64 to, BlockNumber **blocks, uint32 *n)
{
	int64		most = FeedRingPagesMost(ring, from);

	if (most < 0)
		return false;
	*blocks = palloc_extended(most * sizeof(BlockNumber), MCXT_ALLOC_NO_OOM);
	if (*blocks == NULL)
		return false;
	*n = FeedRingPages(ring, from, to, *blocks);
	return true;
}

bool
FeedTake(uint64 applied, const gpuvec_freshness *need, BlockNumber **blocks, uint32 *n)
{
	pg_atomic_uint64 *current;
	FeedSlot   *slot;
	bool		ok;

	*n = 0;
	*blocks = NULL;
	if (need->applied <= applied)
		return true;
	slot = slot_of(table_in(GpuvecSharedState()), need->feed, &current);
	if (slot == NULL)
		return false;
	LWLockAcquire(&slot->lock, LW_SHARED);
	ok = pg_atomic_read_u64(current) == need->feed &&
		take_pages(&slot->ring, applied, need->applied, blocks, n);
	LWLockRelease(&slot->lock);
	return ok;
}

void
FeedSlotRead(int n, FeedSlotInfo *info)
{
	FeedTable  *table = table_in(GpuvecSharedState());
	pg_atomic_uint64 *current;
	FeedSlot   *slot;
	uint64		feed;

	memset(info, 0, sizeof(*info));
	if (table == NULL)
		return;
	current = &table->owners[n].feed;
	slot = &table->slots[n];
	feed = pg_atomic_read_u64(current);
	pg_read_barrier();
	info->key = slot->mirror;
	info->number = pg_atomic_read_u64(&slot->ring.number);
	info->applied = Min(pg_atomic_read_u64(&slot->ring.applied), info->number);
	info->lost = slot->ring.lost.count;
	pg_read_barrier();
	info->feed = pg_atomic_read_u64(current) == feed ? feed : 0;
}
