/*-------------------------------------------------------------------------
 *
 * visibility.c
 *	  Which rows of a mirror does a snapshot see?
 *
 * A mirror holds row versions.  Each hit is fetched by its own tid under the
 * snapshot.  A rooted mirror (mirror.h) holds HOT chains, of which the
 * visible member is fetched.  For answers with many rows the visibility map
 * saves most fetches.  But the order of steps matters, since other sessions
 * refresh the same mirror:
 *
 *	 1. the snapshot is taken (and, under SERIALIZABLE, the predicate lock);
 *	 2. the mirror's refresh number n0 is asked for;
 *	 3. the visibility map is read;
 *	 4. the WAL position is read, the mirror is checked against it, and
 *		searched.
 *
 * A hit needs no fetch if its page's bit was set in step 3, and the page was
 * last read by a refresh numbered n0 or before.  Proof: the page content that
 * the hit came from was read before step 3.  Nothing changed on the page
 * between that reading and step 3; otherwise the check in step 4 would have
 * read the page again, under a number above n0.  So the content is what the
 * page held in step 3.  All of it was visible then to every snapshot, ours
 * included, which already existed.  With any other order of steps, some
 * interleaving of another session's refresh returns a row that is not
 * visible.
 *
 * A refresh may read some line pointers of a page only (wal_lines.c).  Then
 * no number proves the page until it is read as a whole.  "Nothing changed"
 * does not count locks of rows: they change neither a row nor who sees it.
 *
 * Before VACUUM has come to a page, its bit of the map is not set.  So the
 * tuples themselves tell, when a page is read as a whole (page_reader.c).  Its
 * newest transaction is noted if of each tuple that is not dead to everyone
 *
 *	- the inserting transaction X has committed; and
 *	- nobody has deleted it: there is no xmax, or one that only locks, or one
 *	  that has aborted (HEAPTUPLE_LIVE).
 *
 * Rows of such a page need neither map nor fetch if its newest transaction
 * precedes the snapshot's xmin, until the page, or lines of it, are read
 * again.  Proof, for a snapshot S whose search finds the row:
 *
 *	- S sees the insertion.  X has committed, and X precedes S.xmin.  So S does
 *	  not take X for running (XidInMVCCSnapshot looks at that first), whether
 *	  it was taken before the page was read or later, here or by another
 *	  session.  A subtransaction has committed if those above it have.  On a
 *	  standby it is the same by the transactions that the standby takes for
 *	  running.
 *	- S sees no deletion.  One whose WAL was written before step 4 is in the
 *	  WAL that the mirror is checked against, and its page is read again, or
 *	  counts as partly read.  One that was written later had not committed
 *	  when S was taken; or it is of S's own transaction, by a later command.
 *	  An aborted one does not count for anybody, and a lock deletes nothing.
 *	  On a standby, read "replayed" for "written".
 *
 * Numbers of transactions come with their epoch (MirrorFullXid), since what
 * the engine keeps may become older than 32 bits can tell.  A frozen row
 * counts as older than all.
 *
 * This is not so in a rooted mirror, which follows an index: it hears neither
 * of deletions nor of HOT updates (F4).  Rows that come from the WAL or that
 * are laid over an answer were not read with their page: they prove nothing.
 * Private mirrors are not worth it.
 *
 * In a rooted mirror the content also says whether the root is the row
 * version itself.  If it is not, the page has to be read for the member's
 * tid.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/relscan.h"
#include "access/tableam.h"
#include "access/visibilitymap.h"
#include "core/set_match.h"
#include "entries/entries.h"
#include "mirror/describe/mirror.h"
#include "mirror/describe/row_value.h"
#include "mirror/describe/usage.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/predicate.h"
#include "storage/smgr.h"
#include "utils/memutils.h"

/*
 * The visibility map has two bits for each heap page (see visibilitymap.c)
 */
#define MAP_PAGE_BYTES	(BLCKSZ - MAXALIGN(SizeOfPageHeaderData))
#define MAP_PAGE_BLOCKS ((BlockNumber) (MAP_PAGE_BYTES * 4))

struct MirrorVisibility
{
	MirrorTarget *target;
	Snapshot	snapshot;
	MemoryContext context;		/* all of this lives here */
	TupleTableSlot *slot;		/* NULL: no row was fetched yet */
	IndexFetchTableData *fetch; /* follows HOT chains; NULL: a plain mirror */
	EntryReader *entries;		/* verifies rows that an index keeps; or NULL */

	/* copy of the visibility map, page by page; NULL: not read */
	uint8	   *map;
	BlockNumber map_pages;
	uint64		refresh;		/* n0 */
	bool		fetch_all;		/* hits prove nothing of themselves */
};

MirrorVisibility *
MirrorVisibilityBegin(MirrorTarget *target, Snapshot snapshot)
{
	MirrorVisibility *visibility = palloc0(sizeof(MirrorVisibility));

	visibility->target = target;
	visibility->snapshot = snapshot;
	visibility->context = CurrentMemoryContext;
	return visibility;
}

/* Prepare for fetches.  Of many partitions most have no row to fetch. */
static void
prepare_fetch(MirrorVisibility *visibility)
{
	MirrorTarget *target = visibility->target;
	MemoryContext old;

	if (visibility->slot != NULL)
		return;
	old = MemoryContextSwitchTo(visibility->context);
	visibility->slot = table_slot_create(target->rel, NULL);
	if (target->key.rooted)
		visibility->fetch = GpuvecBeginFetch(target->rel);
	MemoryContextSwitchTo(old);
}

void
MirrorVisibilityRest(MirrorVisibility *visibility)
{
	if (visibility->fetch)
		table_index_fetch_reset(visibility->fetch);
}

void
MirrorVisibilityEnd(MirrorVisibility *visibility)
{
	if (visibility->slot)
		ExecDropSingleTupleTableSlot(visibility->slot);
	if (visibility->fetch)
		table_index_fetch_end(visibility->fetch);
	if (visibility->entries)
		EntryReaderEnd(visibility->entries);
	if (visibility->map)
		pfree(visibility->map);
	pfree(visibility);
}

/*
 * Number of pages of a relation's visibility map.  One page covers 32,672
 * heap pages, so the map is cheap to read even for large tables.
 */
static BlockNumber
map_pages(Relation rel)
{
	BlockNumber known = GpuvecKnownMapPages(GpuvecRelationSmgr(rel));

	/*
	 * As in the server itself, a fork that had pages exists until an
	 * invalidation.  smgrexists() would open its file anew each time.
	 */
	if ((known == InvalidBlockNumber || known == 0) &&
		!smgrexists(GpuvecRelationSmgr(rel), VISIBILITYMAP_FORKNUM))
		return 0;
	return RelationGetNumberOfBlocksInFork(rel, VISIBILITYMAP_FORKNUM);
}

BlockNumber
MirrorVisibilityMapPages(MirrorVisibility *visibility)
{
	return map_pages(visibility->target->rel);
}

/*
 * Copy the visibility map.  Bits are read without a lock, as everywhere: a bit
 * that is just being cleared was set a moment ago, when the page still was
 * all-visible, and the check that follows sees the change.
 */
uint8 *
MirrorReadMap(Relation rel, Size *bytes)
{
	BlockNumber pages = map_pages(rel);
	uint8	   *map;

	*bytes = (Size) pages * MAP_PAGE_BYTES;
	if (pages == 0)
		return NULL;
	map = MemoryContextAllocHuge(CurrentMemoryContext, *bytes);
	for (BlockNumber page = 0; page < pages; page++)
	{
		Buffer		buffer = ReadBufferExtended(rel, VISIBILITYMAP_FORKNUM, page,
												RBM_ZERO_ON_ERROR, NULL);

		memcpy(map + (Size) page * MAP_PAGE_BYTES, PageGetContents(BufferGetPage(buffer)),
			   MAP_PAGE_BYTES);
		ReleaseBuffer(buffer);
	}
	return map;
}

/* Keep the map; the number `refresh` was known before */
void
MirrorVisibilityTakeMap(MirrorVisibility *visibility, uint64 refresh)
{
	Size		bytes;

	visibility->map = MirrorReadMap(visibility->target->rel, &bytes);
	visibility->map_pages = (BlockNumber) (bytes / MAP_PAGE_BYTES);
	if (visibility->map)
		visibility->refresh = refresh;
}

/*
 * The copied map: two bits for each heap page, the lower of which says
 * all-visible
 */
const uint8 *
MirrorVisibilityMap(const MirrorVisibility *visibility, Size *bytes)
{
	*bytes = (Size) visibility->map_pages * MAP_PAGE_BYTES;
	return visibility->map;
}

/* The refresh number that goes with the map; 0: the map was not read */
uint64
MirrorVisibilityNumber(const MirrorVisibility *visibility)
{
	return visibility->map ? visibility->refresh : 0;
}

/*
 * Fetch every row from here on, as the mirror may not have been told of all
 * changes of HOT chains
 */
void
MirrorVisibilityFetchAll(MirrorVisibility *visibility)
{
	if (visibility->map)
		pfree(visibility->map);
	visibility->map = NULL;
	visibility->map_pages = 0;
	visibility->fetch_all = true;
}

/*
 * True if a hit's line pointer is known to be that of the last row version of
 * its HOT chain that is not dead
 */
bool
MirrorVisibilityKnowsRoot(const MirrorVisibility *visibility, const gpuvec_hit *hit)
{
	return !visibility->fetch_all && mirror_line_itself(gpuvec_hit_line(hit->place));
}

/* True if the page was all-visible when the map was read */
static bool
page_all_visible(const MirrorVisibility *visibility, BlockNumber block)
{
	BlockNumber page = block / MAP_PAGE_BLOCKS;
	uint32		nth = block % MAP_PAGE_BLOCKS;

	if (page >= visibility->map_pages)
		return false;
	return (visibility->map[(Size) page * MAP_PAGE_BYTES + nth / 4] >>
			(nth % 4 * 2)) & VISIBILITYMAP_ALL_VISIBLE;
}

/*
 * Find the value of the row in the slot, and the filter keys of its filter
 * columns.  False: it is null.
 */
static bool
slot_row(MirrorVisibility *visibility, gpuvec_sparse *row, uint64 *filter_keys)
{
	const MirrorTarget *target = visibility->target;
	const FilterColumns *filters = &target->filters;
	Datum		values[GPUVEC_MAX_FILTERS + 1];
	bool		isnull[GPUVEC_MAX_FILTERS + 1];

	values[0] = slot_getattr(visibility->slot, target->attnum, &isnull[0]);
	for (int i = 0; i < filters->n; i++)
		values[i + 1] = slot_getattr(visibility->slot, filters->columns[i].attnum, &isnull[i + 1]);
	FilterKeys(filters, values, isnull, filter_keys);
	if (!isnull[0])
		*row = RowOfDatum(target->key.values, values[0]);
	return !isnull[0];
}

/*
 * The same of the entry of `root` that an index keeps; or of the row in the
 * slot, if none does
 */
static bool
fetched_row(MirrorVisibility *visibility, ItemPointer root, gpuvec_sparse *row, uint64 *filter_keys)
{
	const MirrorTarget *target = visibility->target;
	const IndexEntry *entry;

	filter_keys[0] = 1;
	if (target->key.index == 0)
		return slot_row(visibility, row, filter_keys);
	if (visibility->entries == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(visibility->context);

		visibility->entries = EntryReaderBegin(target->index);
		MemoryContextSwitchTo(old);
	}
	entry = EntryReaderFind(visibility->entries, root);
	if (entry == NULL)
		return false;
	if (entry->filter_keys != NULL)
		memcpy(filter_keys, entry->filter_keys, gpuvec_filter_bytes(target->key.nfilters));
	else
		filter_keys[0] = entry->isnull;
	if (!entry->isnull)
		*row = RowOfPayload(target->key.values, entry->ids, entry->bytes);
	return !entry->isnull;
}

/*
 * Find the value of the row that was fetched, and how many of its ids the
 * query has.  False: there is no such row, or it does not pass the filter.
 */
static bool
count_fetched(MirrorVisibility *visibility, ItemPointer root, const MirrorQuery *query,
			  gpuvec_sparse *row, uint32 *common)
{
	uint64		filter_keys[GPUVEC_MAX_FILTERS + 1];
	bool		found;

	memset(row, 0, sizeof(*row));
	found = fetched_row(visibility, root, row, filter_keys) ||
		(MirrorWantsNulls(query->filter) && (filter_keys[0] & 1) != 0);

	if (query->filter != NULL && (!gpuvec_filter_passes(query->filter, filter_keys) ||
								  !gpuvec_ids_match(query->filter, row->ids)))
		found = false;
	*common = found && row->ids.n > 0 ? idset_span_common(query->vector.ids, row->ids) : 0;
	return found;
}

/* Raise an error unless the score of a hit is that of the table's row */
static void
verify_hit(MirrorVisibility *visibility, const gpuvec_hit *hit,
		   const MirrorQuery *query, const MirrorSearch *search)
{
	ItemPointerData root;
	gpuvec_sparse row;
	uint32		common;
	double		score;
	bool		found;

	ItemPointerSet(&root, gpuvec_hit_block(hit->place), mirror_line_offset(gpuvec_hit_line(hit->place)));
	found = count_fetched(visibility, &root, query, &row, &common);
	score = idvec_score(&search->scoring, &query->vector, &row, common);
	if (!found || common != gpuvec_hit_common(hit->place) || score != hit->score)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the gpuvec engine's score of a row of relation \"%s\" is wrong",
						RelationGetRelationName(visibility->target->rel)),
				 errdetail("The row at (%u,%u) has %u common ids and score %.17g, the engine says %u and %.17g.",
						   gpuvec_hit_block(hit->place),
						   mirror_line_offset(gpuvec_hit_line(hit->place)),
						   common, score, gpuvec_hit_common(hit->place), hit->score),
				 errhint("Please report this as a bug; gpuvec_evict discards the engine's copy.")));
}

/*
 * True if the page has, before this line pointer, a row version that is not
 * the root of its HOT chain.  If the snapshot sees such a version, it was
 * there before the snapshot was taken, and stays where it is.
 */
bool
MirrorPageHasMember(MirrorVisibility *visibility, BlockNumber block, OffsetNumber before)
{
	Buffer		buffer = ReadBuffer(visibility->target->rel, block);
	bool		found = false;
	Page		page;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	before = Min(before, PageGetMaxOffsetNumber(page) + 1);
	for (OffsetNumber line = FirstOffsetNumber; line < before && !found; line++)
	{
		ItemId		item = PageGetItemId(page, line);

		found = ItemIdIsNormal(item) &&
			HeapTupleHeaderIsHeapOnly((HeapTupleHeader) PageGetItem(page, item));
	}
	UnlockReleaseBuffer(buffer);
	return found;
}

/*
 * True if the snapshot sees the tuple at a line of a page that is locked.  The
 * caller has the relation's predicate lock, so that no other one is needed.
 */
static bool
line_visible(MirrorVisibility *visibility, Buffer buffer, BlockNumber block, OffsetNumber line)
{
	Relation	rel = visibility->target->rel;
	Page		page = BufferGetPage(buffer);
	HeapTupleData tuple;
	bool		visible;
	ItemId		item;

	if (line < FirstOffsetNumber || line > PageGetMaxOffsetNumber(page))
		return false;
	item = PageGetItemId(page, line);
	if (!ItemIdIsNormal(item))
		return false;
	tuple.t_data = (HeapTupleHeader) PageGetItem(page, item);
	tuple.t_len = ItemIdGetLength(item);
	tuple.t_tableOid = RelationGetRelid(rel);
	ItemPointerSet(&tuple.t_self, block, line);
	visible = HeapTupleSatisfiesVisibility(&tuple, visibility->snapshot, buffer);
	HeapCheckForSerializableConflictOut(visible, rel, &tuple, buffer, visibility->snapshot);
	return visible;
}

/*
 * Prefetch the headers of a page's tuples into the CPU's cache: otherwise each
 * look at one waits for memory
 */
static void
prefetch_tuples(Page page)
{
#ifdef __GNUC__
	OffsetNumber last = PageGetMaxOffsetNumber(page);

	for (OffsetNumber line = FirstOffsetNumber; line <= last; line++)
		__builtin_prefetch((char *) page + ItemIdGetOffset(PageGetItemId(page, line)));
#endif
}

/*
 * Tell of each of n rows of a plain mirror, in the order of their tids
 * (gpuvec_tid), whether the snapshot sees it.  Each page is locked once.
 */
void
MirrorRowsVisible(MirrorVisibility *visibility, const uint64 *tids, uint64 n, bool *visible)
{
	uint64		i = 0;

	while (i < n)
	{
		BlockNumber block = gpuvec_tid_block(tids[i]);
		Buffer		buffer;

		CHECK_FOR_INTERRUPTS();
		buffer = ReadBuffer(visibility->target->rel, block);
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		prefetch_tuples(BufferGetPage(buffer));
		for (; i < n && gpuvec_tid_block(tids[i]) == block; i++)
			visible[i] = line_visible(visibility, buffer, block,
									  mirror_line_offset(gpuvec_tid_line(tids[i])));
		UnlockReleaseBuffer(buffer);
	}
	MirrorUsed.unproven += n;
}

/*
 * Fetch the version that the snapshot sees into the slot; in a rooted mirror
 * its tid replaces the root's.  False: the snapshot sees none.
 */
static bool
fetch_row(MirrorVisibility *visibility, ItemPointer tid)
{
	bool		again = false;

	prepare_fetch(visibility);
	if (visibility->fetch == NULL)
		return table_tuple_fetch_row_version(visibility->target->rel, tid,
											 visibility->snapshot, visibility->slot);
	if (!table_index_fetch_tuple(visibility->fetch, tid, visibility->snapshot,
								 visibility->slot, &again, NULL))
		return false;
	*tid = visibility->slot->tts_tid;
	return true;
}

/* True if a hit needs no fetch, by one of the two proofs */
static bool
is_proven(const MirrorVisibility *visibility, const gpuvec_hit *hit)
{
	if (gpuvec_hit_proven(hit->place) && !gpuvec_verify)
		return true;
	return visibility->map && !gpuvec_hit_newer(hit->place) &&
		mirror_line_itself(gpuvec_hit_line(hit->place)) &&
		page_all_visible(visibility, gpuvec_hit_block(hit->place));
}

/*
 * True if the snapshot sees this row.  In the hit of a rooted mirror, the tid
 * of the visible version replaces the tid of the root.
 */
bool
MirrorVisible(MirrorVisibility *visibility, gpuvec_hit *hit, const MirrorQuery *query,
			  const MirrorSearch *search)
{
	BlockNumber block = gpuvec_hit_block(hit->place);
	uint16		line = gpuvec_hit_line(hit->place);
	ItemPointerData tid;

	if (is_proven(visibility, hit))
		return true;

	MirrorUsed.unproven += !gpuvec_verify;
	ItemPointerSet(&tid, block, mirror_line_offset(line));
	if (!fetch_row(visibility, &tid))
		return false;
	if (gpuvec_verify)
		verify_hit(visibility, hit, query, search);
	ExecClearTuple(visibility->slot);
	if (visibility->fetch)
		hit->place = gpuvec_hit_place(gpuvec_tid(block, mirror_line(ItemPointerGetOffsetNumber(&tid), true)),
									  gpuvec_hit_common(hit->place), gpuvec_hit_newer(hit->place));
	return true;
}

/* Fetch the member of a root (gpuvec_tid) that the snapshot sees, if any */
static bool
fetch_root(MirrorVisibility *visibility, uint64 root)
{
	ItemPointerData tid;

	CHECK_FOR_INTERRUPTS();
	ItemPointerSet(&tid, gpuvec_tid_block(root), mirror_line_offset(gpuvec_tid_line(root)));
	return fetch_row(visibility, &tid);
}

/*
 * Of n roots of a rooted mirror (gpuvec_tid), in the order of pages, the
 * number of those of which the snapshot sees a member
 */
uint64
MirrorCountVisible(MirrorVisibility *visibility, const uint64 *roots, uint64 n)
{
	uint64		count = 0;

	for (uint64 i = 0; i < n; i++)
		count += fetch_root(visibility, roots[i]);
	MirrorVisibilityRest(visibility);
	MirrorUsed.unproven += n;
	return count;
}

/*
 * Show the set of each member of such roots that the snapshot sees, unless it
 * is null.  It lives until the next one.
 */
void
MirrorVisitVisible(MirrorVisibility *visibility, const uint64 *roots, uint64 n,
				   MirrorVisitor visit, void *arg)
{
	MemoryContext row = AllocSetContextCreate(CurrentMemoryContext, "gpuvec row",
											  ALLOCSET_DEFAULT_SIZES);

	for (uint64 i = 0; i < n; i++)
	{
		uint64		filter_keys[GPUVEC_MAX_FILTERS + 1];
		ItemPointerData root;
		gpuvec_sparse value;
		MemoryContext old;

		if (!fetch_root(visibility, roots[i]))
			continue;
		ItemPointerSet(&root, gpuvec_tid_block(roots[i]), mirror_line_offset(gpuvec_tid_line(roots[i])));
		old = MemoryContextSwitchTo(row);
		if (fetched_row(visibility, &root, &value, filter_keys))
			visit(arg, &value);
		MemoryContextSwitchTo(old);
		MemoryContextReset(row);
		ExecClearTuple(visibility->slot);
	}
	MemoryContextDelete(row);
	MirrorVisibilityRest(visibility);
	MirrorUsed.unproven += n;
}

/*
 * Raise an error if the snapshot sees the row at this tid, which the engine
 * has found, but the row does not qualify
 */
void
MirrorVerifyRow(MirrorVisibility *visibility, uint64 tid, const MirrorQuery *query,
				const MirrorSearch *search)
{
	ItemPointerData root;
	ItemPointerData at;
	gpuvec_sparse row;
	uint32		common;
	MirrorHit	hit;

	ItemPointerSet(&root, gpuvec_tid_block(tid), mirror_line_offset(gpuvec_tid_line(tid)));
	at = root;
	if (!fetch_row(visibility, &at))
		return;
	if (!count_fetched(visibility, &root, query, &row, &common) ||
		!MirrorRank(search, query, tid, &row, common, true, &hit))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("a row of relation \"%s\" that the gpuvec engine found does not qualify",
						RelationGetRelationName(visibility->target->rel)),
				 errdetail("The row at (%u,%u) has %u common ids.", gpuvec_tid_block(tid),
						   mirror_line_offset(gpuvec_tid_line(tid)), common),
				 errhint("Please report this as a bug; gpuvec_evict discards the engine's copy.")));
	ExecClearTuple(visibility->slot);
}
