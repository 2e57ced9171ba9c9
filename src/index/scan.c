/*-------------------------------------------------------------------------
 *
 * scan.c
 *	  Index scans in order of a distance.
 *
 * Rows come as a sequential scan and a sort by (distance, root tid) would
 * return them, nulls last.  First come the rows that the engine ranks
 * (ranked_rows.c), then all others (other_rows.c).  If there are search keys
 * as well, the rows that they find are sorted instead, once that is less work
 * (keyed.c).  Search keys of filter columns are conditions that the engine
 * knows (conditions.c): it ranks only rows that satisfy them, and finds the
 * others that do (filtered.c).
 *
 * Rows that a measure refuses, as jaccard does negative values, come first,
 * with the distance -infinity.  The executor computes what a query is sorted
 * by, with the other columns that it wants, of rows that satisfy the
 * conditions: so the query fails as it would without the index.
 *
 * If the engine is not available, or cannot go on with a scan, the scan does
 * not end.  Then all rows are found and sorted (other_rows.c), except those
 * that were returned already.
 *
 * Only MVCC snapshots can use the mirror: in the middle of a command the
 * mirror does not know the current rows.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "access/relscan.h"
#include "access/table.h"
#include "idset/idset.h"
#include "index/entry_queue.h"
#include "index/merge.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/*
 * When no more rows rank, the scan goes on with the rows of the search keys,
 * if these are at most KEYED_PER_PAGE for each page on average.  Otherwise it
 * scans the table for all other rows.
 */
#define KEYED_PER_PAGE	8

IndexScanDesc
gpuvec_beginscan(Relation index, int nkeys, int norderbys)
{
	IndexScanDesc scan = RelationGetIndexScan(index, nkeys, norderbys);
	KnnState   *state = palloc0_object(KnnState);

	state->context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec index scan",
										   ALLOCSET_DEFAULT_SIZES);
	state->phase = SCAN_END;
	state->first_batch = GPUVEC_FIRST_BATCH;
	scan->opaque = state;
	if (norderbys > 0)
	{
		scan->xs_orderbyvals = palloc0_array(Datum, norderbys);
		scan->xs_orderbynulls = palloc0_array(bool, norderbys);
	}
	return scan;
}

/* Release what a scan holds, and reset its state */
static void
clean_up(KnnState *state)
{
	MemoryContext context = state->context;
	MirrorUsage used = state->used;
	KnnComing	coming = state->coming;
	KnnRange	range = state->range;

	if (state->sort)
		tuplesort_end(state->sort);
	if (state->slot)
		ExecDropSingleTupleTableSlot(state->slot);
	if (state->opened)
		table_close(state->opened, NoLock);
	memset(state, 0, sizeof(*state));
	state->context = context;
	state->used = used;
	state->coming = coming;
	state->range = range;
	state->phase = SCAN_END;
	state->finder.block = InvalidBlockNumber;
	MemoryContextReset(context);
}

void
gpuvec_rescan(IndexScanDesc scan, ScanKey keys, int nkeys, ScanKey orderbys, int norderbys)
{
	KnnState   *state = scan->opaque;
	MemoryContext old;

	clean_up(state);
	state->first_batch = ExpectedFirst(orderbys);
	EntryQueueFlush();
	if (keys && scan->numberOfKeys > 0)
		memmove(scan->keyData, keys, scan->numberOfKeys * sizeof(ScanKeyData));
	if (orderbys && scan->numberOfOrderBys > 0)
		memmove(scan->orderByData, orderbys, scan->numberOfOrderBys * sizeof(ScanKeyData));
	if (scan->numberOfOrderBys > 1)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("access method \"%s\" cannot order by several distances", "gpuvec")));
	if (scan->numberOfOrderBys == 1 && scan->orderByData[0].sk_attno != 1)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("access method \"%s\" can order by a distance of the first column only",
						"gpuvec")));
	state->finder.heap = scan->heapRelation;
	old = MemoryContextSwitchTo(state->context);
	KnnReadKeys(scan, &state->conditions, &state->order);
	MemoryContextSwitchTo(old);
	if (scan->numberOfOrderBys == 0)
	{
		state->phase = SCAN_FOUND;
		return;
	}
	if (state->conditions.nothing)
		return;
	state->phase = SCAN_ENGINE;
	state->known = -INFINITY;
}

void
gpuvec_endscan(IndexScanDesc scan)
{
	KnnState   *state = scan->opaque;

	clean_up(state);
	MemoryContextDelete(state->context);
	if (state->coming.context)
		MemoryContextDelete(state->coming.context);
	pfree(state);
}

/*
 * Go on with rows that were found, behind the last one that was returned.  If
 * all rows that pass are ranked, those that share an id and have score 0 are
 * among those that share none, and only null sets are left then.
 */
static void
go_on_keyed(KnnState *state)
{
	for (uint64 i = 0; state->disjoint && i < state->nkeyed; i++)
		state->keyed[i].ranks |= state->keyed[i].distance != INFINITY;
	if (state->disjoint && state->nkeyed > 1)
		qsort(state->keyed, state->nkeyed, sizeof(KeyedRow), GpuvecCompareKeyed);
	state->next = 0;
	while (state->next < state->nkeyed && !KnnComesNext(state, &state->keyed[state->next]))
		state->next++;
	state->phase = SCAN_KEYED;
}

/*
 * Go on with the rows that pass the conditions, without a fetch, if no key of
 * the first column leaves fewer, and the engine says that there are at most
 * `most`
 */
static bool
begin_filtered(IndexScanDesc scan, KnnState *state, uint64 most)
{
	MemoryContext old;
	bool		found;

	if (state->conditions.filter.n == 0 || state->everything || GpuvecHasBound(scan) ||
		state->wire.passed > most)
		return false;
	old = MemoryContextSwitchTo(state->context);
	found = GpuvecFindFiltered(scan, &state->conditions.filter, &state->order, &state->keyed,
							   &state->nkeyed);
	MemoryContextSwitchTo(old);
	if (found)
		go_on_keyed(state);
	return found;
}

/*
 * Go on with the rows that the search keys find, if there are at most `most`
 */
static bool
begin_keyed(IndexScanDesc scan, KnnState *state, uint64 most)
{
	MemoryContext old;

	if (state->everything || !GpuvecHasBound(scan))
		return false;
	if (!state->looked)
		GpuvecFind(scan, &state->conditions, state->context, &state->found);
	state->looked = true;
	if (state->found.all || state->found.n > most)
		return false;
	old = MemoryContextSwitchTo(state->context);
	state->nkeyed = GpuvecFetchFound(scan, &state->found, &state->order, &state->keyed);
	MemoryContextSwitchTo(old);
	go_on_keyed(state);
	return true;
}

/*
 * Get the next row that ranks.  False: there is none, or the phase has
 * changed.
 */
static bool
next_ranked(IndexScanDesc scan, KnnState *state, KnnRow *row)
{
	while (state->next == state->nready)
	{
		if (state->complete)
			return false;
		if (state->search.k >= GPUVEC_KEYED_BATCH && begin_keyed(scan, state, state->search.k))
			return false;
		if (!KnnNextBatch(scan, state))
		{
			state->everything = true;
			return false;
		}
	}
	if (state->next == state->nsorted)
		KnnSortGroup(state);
	*row = state->last = state->rows[state->next++];
	state->returned = true;
	return true;
}

/* No more rows rank: go on with those that do not */
static void
begin_unranked(IndexScanDesc scan, KnnState *state)
{
	uint64		most = Max(GPUVEC_KEYED_BATCH,
						   KEYED_PER_PAGE * (uint64) RelationGetNumberOfBlocks(scan->heapRelation));

	if (state->exhausted)
		state->phase = SCAN_END;
	else if (!begin_filtered(scan, state, most) && !begin_keyed(scan, state, most))
	{
		KnnBeginOthers(scan, state);
		state->phase = SCAN_OTHERS;
	}
}

/* Get the next row.  False: there is none. */
static bool
next_row(IndexScanDesc scan, KnnState *state, KnnRow *row)
{
	if (state->phase == SCAN_ENGINE)
	{
		if (MirrorWantsNulls(&state->conditions.filter))
			 /* all distances are null: nothing ranks */ ;
		else if (state->search.k == 0 && !KnnBeginEngine(scan, state))
			state->everything = true;
		else if (next_ranked(scan, state, row))
			return true;
		if (state->phase == SCAN_ENGINE)
			begin_unranked(scan, state);
	}
	if (state->phase == SCAN_KEYED)
	{
		if (state->next == state->nkeyed)
			return false;
		row->root = state->keyed[state->next++].root;
		return true;
	}
	if (state->phase == SCAN_FOUND)
	{
		if (state->found.roots == NULL && !state->found.all)
		{
			GpuvecFind(scan, &state->conditions, state->context, &state->found);
			state->next = 0;
		}
		if (!state->found.all)
		{
			if (state->next == state->found.n)
				return false;
			row->root = state->found.roots[state->next++];
			return true;
		}
		/* all rows, in any order */
		state->everything = true;
		KnnBeginOthers(scan, state);
		state->phase = SCAN_OTHERS;
	}
	if (state->phase == SCAN_OTHERS)
	{
		if (KnnNextOther(state, row))
			return true;
		state->phase = SCAN_END;
	}
	return false;
}

/* Refuse other snapshots than MVCC ones: see the head of the file */
static void
check_snapshot(Snapshot snapshot)
{
	if (!IsMVCCSnapshot(snapshot))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("access method \"%s\" cannot be scanned with this kind of snapshot", "gpuvec")));
}

/*
 * Count a scan that begins, for pg_stat_user_indexes, and for EXPLAIN ANALYZE
 * from version 18 on
 */
static void
count_scan(IndexScanDesc scan)
{
	if (!MergeRowsCounted(scan))
		pgstat_count_index_scan(scan->indexRelation);
#if PG_VERSION_NUM >= 180000
	if (scan->instrument)
		scan->instrument->nsearches++;
#endif
}

/*
 * True if a bitmap heap scan of this server looks at every row before it
 * counts it.  Servers up to version 17 did not, until these minor versions:
 * of a page that was all-visible they counted the rows of the bitmap, if
 * these needed no recheck and no column was wanted.  VACUUM may have removed
 * some of them meanwhile.  (The library may run on another minor version than
 * that which it was built for.)
 */
static bool
rows_are_looked_at(void)
{
	static int	version = 0;

	if (version == 0)
		version = pg_strtoint32(GetConfigOption("server_version_num", false, false));
	switch (version / 10000)
	{
		case 13:
			return version >= 130021;
		case 14:
			return version >= 140018;
		case 15:
			return version >= 150013;
		case 16:
			return version >= 160009;
		case 17:
			return version >= 170005;
		default:
			return version >= 180000;
	}
}

/* Rows that are put into a bitmap together */
#define BITMAP_ROWS		256

/*
 * Put the rows that were found into a bitmap.  They are rechecked unless what
 * was found is exact and the server looks at each row.
 */
static void
add_found(const GpuvecFound *found, TIDBitmap *bitmap)
{
	bool		recheck = !found->exact || !rows_are_looked_at();
	ItemPointerData tids[BITMAP_ROWS];
	int			n = 0;

	for (uint64 i = 0; i < found->n; i++)
	{
		ItemPointerSet(&tids[n], tid_number_block(found->roots[i]),
					   tid_number_line(found->roots[i]));
		if (++n == BITMAP_ROWS || i + 1 == found->n)
		{
			tbm_add_tuples(bitmap, tids, n, recheck);
			n = 0;
		}
	}
}

/* Put the rows that may satisfy the search keys into a bitmap */
int64
gpuvec_getbitmap(IndexScanDesc scan, TIDBitmap *bitmap)
{
	KnnState   *state = scan->opaque;
	MirrorUsage before = MirrorUsed;

	check_snapshot(scan->xs_snapshot);
	if (state->range.only != NULL)
	{
		add_found(state->range.only, bitmap);
		return (int64) state->range.only->n;
	}
	count_scan(scan);
	GpuvecFind(scan, &state->conditions, state->context, &state->found);
	MirrorUsageAdd(&state->used, &before);
	if (state->found.all)
	{
		BlockNumber nblocks = RelationGetNumberOfBlocks(GpuvecScanHeap(scan));

		for (BlockNumber block = 0; block < nblocks; block++)
			tbm_add_page(bitmap, block);
		return (int64) nblocks * 10;	/* a guess, as in BRIN */
	}
	state->too_many = state->range.most > 0 && state->found.n > state->range.most;
	if (state->too_many)
		return 0;
	add_found(&state->found, bitmap);
	GPUVEC_INJECTION("bitmap-found");
	return (int64) state->found.n;
}

/*
 * True if what the engine has found satisfies all search keys.  Rows from a
 * scan of the table were not looked at.
 */
static bool
keys_hold(IndexScanDesc scan, const KnnState *state)
{
	if (scan->xs_snapshot->takenDuringRecovery || state->phase == SCAN_OTHERS)
		return false;
	if (state->conditions.set_keys == 0)
		return state->conditions.exact;
	return state->phase == SCAN_FOUND && state->found.exact;
}

bool
gpuvec_gettuple(IndexScanDesc scan, ScanDirection direction)
{
	KnnState   *state = scan->opaque;
	MirrorUsage before = MirrorUsed;
	KnnRow		row;
	bool		found;

	Assert(ScanDirectionIsForward(direction));
	check_snapshot(scan->xs_snapshot);
	if ((state->phase == SCAN_ENGINE && state->search.k == 0) ||
		(state->phase == SCAN_FOUND && state->found.roots == NULL))
		count_scan(scan);
	found = next_row(scan, state, &row);
	MirrorUsageAdd(&state->used, &before);
	if (!found)
		return false;
	ItemPointerSet(&scan->xs_heaptid, tid_number_block(row.root), tid_number_line(row.root));
	scan->xs_recheck = scan->numberOfKeys > 0 && !keys_hold(scan, state);
	scan->xs_recheckorderby = false;
	/* nobody compares the distances: they are exact */
	if (scan->numberOfOrderBys > 0)
		scan->xs_orderbynulls[0] = true;
	return true;
}
