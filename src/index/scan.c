/*-------------------------------------------------------------------------
 *
 * scan.c
 *	  Index scans in order of a distance.
 *
 * Rows come as a sequential scan and a sort by (distance, root tid) would
 * deliver them, nulls last.  First those that rank for the engine, in batches
 * that grow: a batch goes on behind the last row of the one before, in the
 * order (score, tid), so that refreshes in between do no harm.  Then all
 * others: rows without a common id, empty and null sets, which a scan of the
 * table (or of the rows that the index keeps) finds and a sort orders.  If
 * there are search keys as well, the rows that they find are sorted instead,
 * once that is less work (keyed.c).
 *
 * An engine that cannot be had, or cannot serve the scan any more, does not
 * end it: then all rows are found and sorted in that way, but for those that
 * have been returned.
 *
 * The mirror is a rooted one (see mirror.h): the engine knows the roots of
 * HOT chains, from where the executor follows each chain to the version that
 * the snapshot sees, if there is one.  In recovery it is a plain one
 * (recovery.c). Rows that may not be in the order of (distance, root) yet are
 * collected and sorted once more: those whose distances are equal though
 * their scores are not (see GpuvecRankDistance), and those of a page that
 * come from a plain mirror.  A group is complete when a row of another one
 * follows.
 *
 * Only MVCC snapshots can use the mirror (in the middle of a command the
 * mirror does not know what is there now).
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_type_d.h"
#include "entries/entries.h"
#include "idset/idset.h"
#include "index/entry_queue.h"
#include "index/index_am.h"
#include "link/engine_link.h"
#include "mirror/mirror.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/tuplesort.h"

/*
 * When no more rows rank, those of the search keys are fetched, instead of
 * scanning the table for all others, if each page has at most this many of
 * them on average
 */
#define KEYED_PER_PAGE	8

/* A row to return */
typedef struct KnnRow
{
	double		distance;
	int64		root;
	bool		version;		/* root is still a row version: see find_root() */
} KnnRow;

typedef enum KnnPhase
{
	SCAN_ENGINE,				/* rows that rank */
	SCAN_OTHERS,				/* rows that do not, from the sort */
	SCAN_KEYED,					/* rows that the search keys found, in order */
	SCAN_FOUND,					/* without an order: what the search keys found */
	SCAN_END
} KnnPhase;

typedef struct KnnState
{
	MemoryContext context;		/* of one (re)scan */
	KnnPhase	phase;
	gpuvec_measure measure;
	IdSet	   *query;			/* NULL: every distance is null */

	/* SCAN_ENGINE */
	MirrorTarget target;
	MirrorSearch search;
	MirrorQuery wire;
	bool		complete;		/* no rows are behind those of rows[] */
	KnnRow    *rows;
	uint64		nrows;
	uint64		maxrows;
	uint64		nready;			/* of these, whole groups */
	uint64		nsorted;		/* of these, in the order to return */
	uint64		next;
	KnnRow		last;			/* that was returned */
	bool		returned;		/* there is one */

	/* SCAN_KEYED */
	bool		looked;			/* found is set */
	KeyedRow   *keyed;
	uint64		nkeyed;

	/* SCAN_OTHERS */
	Tuplesortstate *sort;
	TupleTableSlot *slot;		/* (distance float8, root int8) */
	bool		everything;		/* the engine delivers nothing (more) */

	/* SCAN_FOUND, SCAN_KEYED */
	GpuvecFound found;

	RootFinder	finder;
	Relation	opened;			/* the table, if the executor has not given it */
} KnnState;

IndexScanDesc
gpuvec_beginscan(Relation index, int nkeys, int norderbys)
{
	IndexScanDesc scan = RelationGetIndexScan(index, nkeys, norderbys);
	KnnState  *state = palloc0_object(KnnState);

	state->context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec index scan",
										   ALLOCSET_DEFAULT_SIZES);
	state->phase = SCAN_END;
	scan->opaque = state;
	if (norderbys > 0)
	{
		scan->xs_orderbyvals = palloc0_array(Datum, norderbys);
		scan->xs_orderbynulls = palloc0_array(bool, norderbys);
	}
	return scan;
}

/* The table; in a bitmap scan the executor does not name it, but holds its lock */
Relation
GpuvecScanHeap(IndexScanDesc scan)
{
	KnnState   *state = scan->opaque;

	if (scan->heapRelation != NULL)
		return scan->heapRelation;
	if (state->opened == NULL)
		state->opened = table_open(scan->indexRelation->rd_index->indrelid, NoLock);
	return state->opened;
}

/* Let go of what a scan holds, but for the state itself */
static void
clean_up(KnnState *state)
{
	MemoryContext context = state->context;

	if (state->sort)
		tuplesort_end(state->sort);
	if (state->slot)
		ExecDropSingleTupleTableSlot(state->slot);
	if (state->opened)
		table_close(state->opened, NoLock);
	memset(state, 0, sizeof(*state));
	state->context = context;
	state->phase = SCAN_END;
	state->finder.block = InvalidBlockNumber;
	MemoryContextReset(context);
}

void
gpuvec_rescan(IndexScanDesc scan, ScanKey keys, int nkeys, ScanKey orderbys, int norderbys)
{
	KnnState  *state = scan->opaque;
	MemoryContext old;

	clean_up(state);
	EntryQueueFlush();
	if (keys && scan->numberOfKeys > 0)
		memmove(scan->keyData, keys, scan->numberOfKeys * sizeof(ScanKeyData));
	if (orderbys && scan->numberOfOrderBys > 0)
		memmove(scan->orderByData, orderbys, scan->numberOfOrderBys * sizeof(ScanKeyData));
	if (scan->numberOfOrderBys > 1)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("access method \"%s\" cannot order by several distances", "gpuvec")));
	state->finder.heap = scan->heapRelation;
	if (scan->numberOfOrderBys == 0)
	{
		state->phase = SCAN_FOUND;
		return;
	}
	state->measure = GpuvecStrategyMeasure(scan->orderByData[0].sk_strategy);
	old = MemoryContextSwitchTo(state->context);
	if (!(scan->orderByData[0].sk_flags & SK_ISNULL))
		state->query = (IdSet *) PG_DETOAST_DATUM_COPY(scan->orderByData[0].sk_argument);
	MemoryContextSwitchTo(old);
	state->phase = SCAN_ENGINE;
}

void
gpuvec_endscan(IndexScanDesc scan)
{
	KnnState  *state = scan->opaque;

	clean_up(state);
	MemoryContextDelete(state->context);
	pfree(state);
}

/*
 * A number that orders like the distance of a row that ranks.  A larger score is a
 * smaller distance; but distances that are 1 - score may be equal though scores are
 * not.
 */
double
GpuvecRankDistance(gpuvec_measure measure, double score)
{
	return measure == GPUVEC_COSINE ? 1.0 - score : -score;
}

static int
compare_rows(const void *a, const void *b)
{
	const KnnRow *x = a;
	const KnnRow *y = b;

	if (x->distance != y->distance)
		return x->distance < y->distance ? -1 : 1;
	return x->root < y->root ? -1 : x->root > y->root;
}

/* Prepare for batches; false: the rows have to be sorted here */
static bool
begin_engine(IndexScanDesc scan, KnnState *state)
{
	MirrorSearch *search = &state->search;

	if (state->query == NULL)
		return false;
	GpuvecDescribe(scan, &state->target);
	if (state->target.mode != MIRROR_SHARED)
		return false;
	search->measure = state->measure;
	search->roots = state->target.key.rooted;
	search->queries = &state->wire;
	search->nqueries = 1;
	search->snapshot = scan->xs_snapshot;
	search->context = state->context;
	search->k = GPUVEC_FIRST_BATCH;
	state->wire.ids = idset_ids(state->query);
	state->wire.len = idset_count(state->query);
	return true;
}

/* Replace the tid of a row version from a plain mirror by that of its root */
static void
find_root(KnnState *state, KnnRow *row)
{
	if (row->version)
		row->root = GpuvecVersionRoot(&state->finder, row->root);
	row->version = false;
}

/*
 * Do two rows belong to a group that the engine may give in another order
 * than that of roots?
 */
static bool
same_group(const KnnState *state, const KnnRow *a, const KnnRow *b)
{
	return a->distance == b->distance &&
		(state->measure == GPUVEC_COSINE || tid_number_block(a->root) == tid_number_block(b->root));
}

/* Only whole groups are ready: not the last one, unless nothing follows */
static void
finish_groups(KnnState *state)
{
	uint64		n = state->nrows;

	state->nsorted = 0;
	if (state->measure != GPUVEC_COSINE && state->search.roots)
		state->nsorted = n;
	else if (!state->complete)
		while (n > 0 && same_group(state, &state->rows[n - 1], &state->rows[state->nrows - 1]))
			n--;
	state->nready = n;
}

/*
 * Sort the group that comes next.  Its roots are found now: most rows of a
 * batch are never returned.
 */
static void
sort_group(KnnState *state)
{
	KnnRow	   *first = &state->rows[state->next];
	uint64		n = 0;

	while (state->next + n < state->nready && same_group(state, first, first + n))
	{
		find_root(state, first + n);
		n++;
	}
	if (n > 1)
		qsort(first, n, sizeof(KnnRow), compare_rows);
	state->nsorted = state->next + n;
}

/* Get the next batch from the engine; false: there is none */
static bool
next_batch(IndexScanDesc scan, KnnState *state)
{
	MirrorSearch *search = &state->search;
	MemoryContext old = MemoryContextSwitchTo(state->context);
	const char *reason = NULL;

	if (!MirrorTopK(&state->target, search, &reason))
	{
		MemoryContextSwitchTo(old);
		GpuvecLinkWarn(reason);
		return false;
	}
	/* what was returned is not needed any more */
	state->nrows -= state->next;
	if (state->nrows > 0)
		memmove(state->rows, state->rows + state->next, state->nrows * sizeof(KnnRow));
	state->next = 0;
	if (state->maxrows < state->nrows + state->wire.nhits)
	{
		Size		size;

		state->maxrows = Max(state->maxrows * 2, state->nrows + state->wire.nhits);
		size = state->maxrows * sizeof(KnnRow);
		state->rows = state->rows ? repalloc_huge(state->rows, size) :
			MemoryContextAllocHuge(state->context, size);
	}
	for (uint64 i = 0; i < state->wire.nhits; i++)
	{
		const MirrorHit *hit = &state->wire.hits[i];
		KnnRow    *row = &state->rows[state->nrows++];

		row->distance = GpuvecRankDistance(state->measure, hit->score);
		row->root = hit_root(hit);
		row->version = !search->roots;
	}
	state->complete = state->wire.nhits < search->k;
	if (!state->complete)
	{
		const MirrorHit *last = &state->wire.hits[state->wire.nhits - 1];

		state->wire.resumes = true;
		state->wire.resume_score = last->score;
		state->wire.resume_tid = mirror_behind(last->place);
		search->k = Min(search->k * GPUVEC_BATCH_GROWTH, GPUVEC_MAX_K);
	}
	finish_groups(state);
	MemoryContextSwitchTo(old);
	return true;
}

/* Does a row come behind the last one that was returned? */
static bool
comes_next(const KnnState *state, const KeyedRow *row)
{
	if (!state->returned || !row->ranks)
		return true;
	return row->distance != state->last.distance ? row->distance > state->last.distance :
		row->root > state->last.root;
}

/* Go on with the rows that the search keys find, if there are at most so many */
static bool
begin_keyed(IndexScanDesc scan, KnnState *state, uint64 most)
{
	MemoryContext old;

	if (scan->numberOfKeys == 0 || state->everything)
		return false;
	if (!state->looked)
		GpuvecFind(scan, state->context, &state->found);
	state->looked = true;
	if (state->found.all || state->found.n > most)
		return false;
	old = MemoryContextSwitchTo(state->context);
	state->nkeyed = GpuvecFetchFound(scan, &state->found, state->measure, state->query, &state->keyed);
	MemoryContextSwitchTo(old);
	state->next = 0;
	while (state->next < state->nkeyed && !comes_next(state, &state->keyed[state->next]))
		state->next++;
	state->phase = SCAN_KEYED;
	return true;
}

/* The next row that ranks */
static bool
next_ranked(IndexScanDesc scan, KnnState *state, KnnRow *row)
{
	while (state->next == state->nready)
	{
		if (state->complete)
			return false;
		if (state->search.k >= GPUVEC_KEYED_BATCH && begin_keyed(scan, state, state->search.k))
			return false;
		if (!next_batch(scan, state))
		{
			state->everything = true;
			return false;
		}
	}
	if (state->next == state->nsorted)
		sort_group(state);
	*row = state->last = state->rows[state->next++];
	state->returned = true;
	return true;
}

/*
 * Does a row with these ids belong to those that the engine does not return,
 * or has
 * not returned?  Its distance, then.
 */
static bool
is_other(const KnnState *state, const uint16 *ids, uint32 len, int64 root, double *distance)
{
	uint32		common = idset_intersection_count(idset_ids(state->query), idset_count(state->query),
												  ids, len);

	if (common > 0 || gpuvec_ranks_disjoint(state->measure))
	{
		KeyedRow	row = {.root = root,.ranks = true};

		if (!state->everything)
			return false;
		row.distance = GpuvecRankDistance(state->measure,
										  gpuvec_score(state->measure, common, idset_count(state->query), len));
		if (!comes_next(state, &row))
			return false;
	}
	*distance = gpuvec_distance(state->measure, common, idset_count(state->query), len);
	return true;
}

/*
 * Put a row into the sort if it is one of the others; ids NULL: its set is
 * null
 */
static void
put_other(KnnState *state, TupleTableSlot *slot, const uint16 *ids, uint32 len, int64 root)
{
	double		distance = 0;
	bool		isnull = ids == NULL || state->query == NULL;

	if (!isnull && !is_other(state, ids, len, root, &distance))
		return;
	ExecClearTuple(slot);
	slot->tts_values[0] = Float8GetDatum(distance);
	slot->tts_isnull[0] = isnull;
	slot->tts_values[1] = Int64GetDatum(root);
	slot->tts_isnull[1] = false;
	ExecStoreVirtualTuple(slot);
	tuplesort_puttupleslot(state->sort, slot);
}

/* Put the others among the table's rows into the sort */
static void
put_others_of_table(IndexScanDesc scan, KnnState *state, TupleTableSlot *slot)
{
	AttrNumber	attnum = scan->indexRelation->rd_index->indkey.values[0];
	TupleTableSlot *in = table_slot_create(scan->heapRelation, NULL);
	TableScanDesc table = table_beginscan(scan->heapRelation, scan->xs_snapshot, 0, NULL);
	MemoryContext row = AllocSetContextCreate(state->context, "gpuvec row", ALLOCSET_DEFAULT_SIZES);

	while (table_scan_getnextslot(table, ForwardScanDirection, in))
	{
		MemoryContext old = MemoryContextSwitchTo(row);
		bool		isnull;
		Datum		datum = slot_getattr(in, attnum, &isnull);
		IdSet	   *set = isnull ? NULL : DatumGetIdSetP(datum);

		CHECK_FOR_INTERRUPTS();
		put_other(state, slot, set ? idset_ids(set) : NULL, set ? idset_count(set) : 0,
				  GpuvecFindRoot(&state->finder, ItemPointerGetBlockNumber(&in->tts_tid),
								 ItemPointerGetOffsetNumber(&in->tts_tid)));
		MemoryContextSwitchTo(old);
		MemoryContextReset(row);
	}
	table_endscan(table);
	ExecDropSingleTupleTableSlot(in);
	MemoryContextDelete(row);
}

/*
 * Put the others among the rows that the index keeps into the sort.  Which of
 * them the snapshot sees is for the executor to find out.
 */
static void
put_others_of_index(IndexScanDesc scan, KnnState *state, TupleTableSlot *slot)
{
	EntryReader *reader = EntryReaderBegin(scan->indexRelation);
	BlockNumber nblocks = RelationGetNumberOfBlocks(scan->heapRelation);

	for (BlockNumber block = 0; block < nblocks; block += ENTRY_BUCKET_BLOCKS)
	{
		uint32		n;
		const IndexEntry *entries = EntryReaderBucket(reader, entry_bucket(block), &n);

		CHECK_FOR_INTERRUPTS();
		for (uint32 i = 0; i < n; i++)
			put_other(state, slot, entries[i].ids, entries[i].len,
					  tid_number(ItemPointerGetBlockNumber(&entries[i].root),
								 ItemPointerGetOffsetNumber(&entries[i].root)));
		if (nblocks - block <= ENTRY_BUCKET_BLOCKS)
			break;
	}
	EntryReaderEnd(reader);
}

/* Find all other rows, and sort them */
static void
begin_others(IndexScanDesc scan, KnnState *state)
{
	AttrNumber	columns[] = {1, 2};
	Oid			operators[] = {Float8LessOperator, Int8LessOperator};
	Oid			collations[] = {InvalidOid, InvalidOid};
	bool		nulls_first[] = {false, false};
	MemoryContext old = MemoryContextSwitchTo(state->context);
	TupleDesc	desc = CreateTemplateTupleDesc(2);
	TupleTableSlot *slot;

	TupleDescInitEntry(desc, 1, "distance", FLOAT8OID, -1, 0);
	TupleDescInitEntry(desc, 2, "root", INT8OID, -1, 0);
	slot = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
	state->slot = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);
	state->sort = tuplesort_begin_heap(desc, 2, columns, operators, collations, nulls_first,
									   work_mem, NULL, GpuvecTuplesortNone);
	if (EntriesKept(scan->indexRelation))
		put_others_of_index(scan, state, slot);
	else
		put_others_of_table(scan, state, slot);
	ExecDropSingleTupleTableSlot(slot);
	tuplesort_performsort(state->sort);
	MemoryContextSwitchTo(old);
}

/* The next of the other rows */
static bool
next_other(KnnState *state, KnnRow *row)
{
	bool		isnull;

	if (!tuplesort_gettupleslot(state->sort, true, false, state->slot, NULL))
		return false;
	row->root = DatumGetInt64(slot_getattr(state->slot, 2, &isnull));
	row->distance = DatumGetFloat8(slot_getattr(state->slot, 1, &isnull));
	if (isnull)
		row->distance = NAN;
	return true;
}

/* The next row of all */
static bool
next_row(IndexScanDesc scan, KnnState *state, KnnRow *row)
{
	if (state->phase == SCAN_ENGINE)
	{
		if (state->search.k == 0 && !begin_engine(scan, state))
			state->everything = true;
		else if (next_ranked(scan, state, row))
			return true;
		if (state->phase == SCAN_ENGINE &&
			!begin_keyed(scan, state, Max(GPUVEC_KEYED_BATCH, KEYED_PER_PAGE * (uint64) RelationGetNumberOfBlocks(scan->heapRelation))))
		{
			begin_others(scan, state);
			state->phase = SCAN_OTHERS;
		}
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
			GpuvecFind(scan, state->context, &state->found);
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
		begin_others(scan, state);
		state->phase = SCAN_OTHERS;
	}
	if (state->phase == SCAN_OTHERS)
	{
		if (next_other(state, row))
			return true;
		state->phase = SCAN_END;
	}
	return false;
}

/* Only MVCC snapshots can use the mirror: see the head of the file */
static void
check_snapshot(Snapshot snapshot)
{
	if (!IsMVCCSnapshot(snapshot))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("access method \"%s\" cannot be scanned with this kind of snapshot", "gpuvec")));
}

/* A scan begins: pg_stat_user_indexes counts it, and EXPLAIN ANALYZE from version 18 on */
static void
count_scan(IndexScanDesc scan)
{
	pgstat_count_index_scan(scan->indexRelation);
#if PG_VERSION_NUM >= 180000
	if (scan->instrument)
		scan->instrument->nsearches++;
#endif
}

/* The rows that may satisfy the search keys, in a bitmap; all are checked once more */
int64
gpuvec_getbitmap(IndexScanDesc scan, TIDBitmap *bitmap)
{
	KnnState   *state = scan->opaque;

	check_snapshot(scan->xs_snapshot);
	count_scan(scan);
	GpuvecFind(scan, state->context, &state->found);
	if (state->found.all)
	{
		BlockNumber nblocks = RelationGetNumberOfBlocks(GpuvecScanHeap(scan));

		for (BlockNumber block = 0; block < nblocks; block++)
			tbm_add_page(bitmap, block);
		return (int64) nblocks * 10;	/* a guess, as in BRIN */
	}
	for (uint64 i = 0; i < state->found.n; i++)
	{
		ItemPointerData tid;

		ItemPointerSet(&tid, tid_number_block(state->found.roots[i]),
					   tid_number_line(state->found.roots[i]));
		tbm_add_tuples(bitmap, &tid, 1, true);
	}
	return (int64) state->found.n;
}

bool
gpuvec_gettuple(IndexScanDesc scan, ScanDirection direction)
{
	KnnState   *state = scan->opaque;
	KnnRow		row;

	Assert(ScanDirectionIsForward(direction));
	check_snapshot(scan->xs_snapshot);
	if ((state->phase == SCAN_ENGINE && state->search.k == 0) ||
		(state->phase == SCAN_FOUND && state->found.roots == NULL))
		count_scan(scan);
	if (!next_row(scan, state, &row))
		return false;
	ItemPointerSet(&scan->xs_heaptid, tid_number_block(row.root), tid_number_line(row.root));
	scan->xs_recheck = scan->numberOfKeys > 0;
	scan->xs_recheckorderby = false;
	/* nobody compares them: they are exact */
	if (scan->numberOfOrderBys > 0)
		scan->xs_orderbynulls[0] = true;
	return true;
}
