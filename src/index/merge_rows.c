/*-------------------------------------------------------------------------
 *
 * merge_rows.c
 *	  The first rows of ordered scans below a Merge Append, by one request.
 *
 * One request asks the engine for the best rows of all partitions together
 * (search_partitions.c).  That tells of each partition its rows down to the
 * cut, the last row of all.  A scan takes these instead of asking.  If they
 * are used up, all are asked for once more, for more rows, of which each scan
 * takes those that it has not had.  If that does not go on, or a partition
 * could not be searched with the others, its scan asks by itself.
 *
 * A scan that has not begun costs nothing.  For what is known of its rows says
 * when the merge (merge.c) needs the first one.  These are all rows that the
 * engine has, also those that the snapshot does not see: a serializable
 * transaction has to meet rows of others that would be among its own.
 *
 * Only scans go together whose distances are of the same measure, from the
 * same expression.  A scan takes rows only if they are of its own query,
 * measure and snapshot.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "access/relscan.h"
#include "executor/executor.h"
#include "executor/nodeIndexscan.h"
#include "index/entry_queue.h"
#include "index/merge.h"
#include "mirror/ask/search_partitions.h"
#include "nodes/nodeFuncs.h"
#include "pgstat.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* A child of the Merge Append */
typedef struct MergeMember
{
	IndexScanState *scan;		/* NULL: of another kind */
	Oid			table;			/* of the scan */
	bool		asked;			/* in this (re)scan with the others */
	bool		counted;		/* as a scan, by the request */
	bool		begun;			/* its rows are being fetched */
	bool		listed;			/* hits[next .. nhits) are its next rows */
	double		known;			/* all rows before this distance are listed */
	MirrorHit  *hits;
	uint32		nhits;
	uint32		next;
} MergeMember;

struct MergeRows
{
	MergeRows  *following;
	MemoryContextCallback gone;
	MergeAppendState *append;
	MemoryContext context;		/* what a (re)scan has; reset by the next */
	int			running;		/* the child of which a row is fetched, or -1 */
	bool		alone;			/* it does not have all asked for more */
	uint64		k;				/* rows that were asked for; 0: no more are */
	GpuvecOrder order;
	MergeMember members[FLEXIBLE_ARRAY_MEMBER]; /* [append->ms_nplans] */
};

/* Those of all queries that run in this session */
static MergeRows *all_rows = NULL;

/* ---- members ---- */

/* The operand of a scan's order, as it was planned */
static const Node *
order_operand(const IndexScanState *scan)
{
	const OpExpr *order = linitial(((IndexScan *) scan->ss.ps.plan)->indexorderby);

	return get_rightop(order);
}

/*
 * The child, if it is an ordered scan of ours without conditions; or NULL.
 * There may be a Result above it, which evaluates what is the same for all
 * rows.
 */
static IndexScanState *
member_scan(PlanState *child)
{
	IndexScanState *scan;

	if (IsA(child, ResultState) && outerPlanState(child) != NULL)
		child = outerPlanState(child);
	scan = (IndexScanState *) child;
	if (!GpuvecIsOrderedScan(child) || scan->iss_NumScanKeys != 0 ||
		(scan->iss_OrderByKeys[0].sk_flags & SK_ISNULL) != 0)
		return NULL;
	return scan;
}

/* True if two scans order by the same distance */
static bool
same_order(const IndexScanState *a, const IndexScanState *b)
{
	return a->iss_OrderByKeys[0].sk_strategy == b->iss_OrderByKeys[0].sk_strategy &&
		equal(order_operand(a), order_operand(b));
}

/* Memory context callback: the query's memory is freed */
static void
forget(void *arg)
{
	MergeRows **link = &all_rows;

	while (*link != arg)
		link = &(*link)->following;
	*link = (*link)->following;
}

MergeRows *
MergeRowsBegin(MergeAppendState *append)
{
	MemoryContext context = append->ps.state->es_query_cxt;
	MergeRows  *rows = MemoryContextAllocZero(context, offsetof(MergeRows, members) +
											  append->ms_nplans * sizeof(MergeMember));
	const IndexScanState *first = NULL;
	int			n = 0;

	for (int i = 0; i < append->ms_nplans; i++)
	{
		IndexScanState *scan = member_scan(append->mergeplans[i]);

		if (scan == NULL || (first != NULL && !same_order(first, scan)))
			continue;
		first = first ? first : scan;
		rows->members[i].scan = scan;
		rows->members[i].table = RelationGetRelid(scan->ss.ss_currentRelation);
		n++;
	}
	if (n < 2)
	{
		pfree(rows);
		return NULL;
	}
	rows->append = append;
	rows->running = -1;
	rows->context = AllocSetContextCreate(context, "gpuvec merge", ALLOCSET_DEFAULT_SIZES);
	rows->gone.func = forget;
	rows->gone.arg = rows;
	rows->following = all_rows;
	all_rows = rows;
	MemoryContextRegisterResetCallback(context, &rows->gone);
	return rows;
}

/* ---- requests ---- */

/* Read the query; false: it is null, or refused */
static bool
read_query(MergeRows *rows, IndexScanState *scan)
{
	const ScanKeyData *key = &scan->iss_OrderByKeys[0];

	if (scan->iss_NumRuntimeKeys > 0)
	{
		ResetExprContext(scan->iss_RuntimeContext);
		ExecIndexEvalRuntimeKeys(scan->iss_RuntimeContext, scan->iss_RuntimeKeys,
								 scan->iss_NumRuntimeKeys);
	}
	GpuvecReadOrder(scan->iss_RelationDesc, key, &rows->order);
	return rows->order.value != NULL && !rows->order.refused;
}

/* qsort comparator: in the order of the tables' oids */
static int
compare_members(const void *a, const void *b)
{
	const MergeMember *x = *(MergeMember *const *) a;
	const MergeMember *y = *(MergeMember *const *) b;

	return x->table < y->table ? -1 : x->table > y->table;
}

/*
 * Describe the mirrors of the scans that go together, in the order in which
 * functions have them, so that both search the same joint view.  As in
 * functions, those that are not rooted are not searched.
 */
static int
describe(MergeRows *rows, MirrorTarget *targets, MergeMember **members)
{
	int			n = 0;

	for (int i = 0; i < rows->append->ms_nplans; i++)
		if (rows->members[i].asked)
			members[n++] = &rows->members[i];
	qsort(members, n, sizeof(MergeMember *), compare_members);
	for (int i = 0; i < n; i++)
	{
		const IndexScanState *scan = members[i]->scan;

		MirrorDescribeIndex(scan->ss.ss_currentRelation, scan->iss_RelationDesc, &targets[i]);
		MirrorFollow(&targets[i]);
		if (!targets[i].key.rooted)
			targets[i].mode = MIRROR_NONE;
	}
	return n;
}

/* Count a scan that is known by a request, once */
static void
count_scan(MergeMember *member)
{
	if (!member->counted && !member->begun)
		pgstat_count_index_scan(member->scan->iss_RelationDesc);
	member->counted = true;
}

/* The state of a scan that has begun */
static const KnnState *
scan_state(const MergeMember *member)
{
	return member->scan->iss_ScanDesc->opaque;
}

/*
 * True if a scan has had this row, or one behind it.  The scan itself knows
 * how far it has come: it may have asked by itself, too.
 */
static bool
was_given(const MergeMember *member, const MirrorHit *hit)
{
	const MirrorQuery *query;

	if (!member->begun || member->scan->iss_ScanDesc == NULL)
		return false;
	query = &scan_state(member)->wire;
	if (!query->resumes || hit->score != query->resume_score)
		return query->resumes && hit->score > query->resume_score;
	return gpuvec_hit_tid(hit->place) <= query->resume_tid;
}

/*
 * The distance before which all rows of a target are known.  With the score of
 * the cut itself all rows of relations before its own are known, too.
 */
static double
known_distance(const MergeRows *rows, const MirrorPartitions *partitions, int target)
{
	double		score;
	int			from;
	double		distance;

	if (!MirrorPartitionsCut(partitions, 0, &score, &from))
		return INFINITY;
	distance = GpuvecRankDistance(&rows->order, score);
	return target < from && !GpuvecOrderRounds(&rows->order) ?
		nextafter(distance, INFINITY) : distance;
}

/*
 * Note the rows of a scan, but those that it has had.  If there are k, more
 * may have been found before the cut.
 */
static void
note_rows(MergeRows *rows, MergeMember *member, const MirrorQuery *query, double known)
{
	member->known = query->nhits < rows->k ? known :
		GpuvecRankDistance(&rows->order, query->hits[query->nhits - 1].score);
	member->hits = MemoryContextAllocHuge(rows->context, Max(query->nhits, 1) * sizeof(MirrorHit));
	memcpy(member->hits, query->hits, query->nhits * sizeof(MirrorHit));
	member->nhits = query->nhits;
	member->next = 0;
	while (member->next < member->nhits && was_given(member, &member->hits[member->next]))
		member->next++;
	count_scan(member);
}

/* Take the rows of all scans out of an answer */
static void
take_answer(MergeRows *rows, MirrorPartitions *partitions, MirrorSearch *search, MergeMember **members,
			int n)
{
	MirrorQuery *query = &search->queries[0];

	for (int i = 0; i < n; i++)
	{
		MergeMember *member = members[i];

		query->hits = NULL;
		query->nhits = query->maxhits = 0;
		if (member->hits)
			pfree(member->hits);
		member->hits = NULL;
		member->listed = MirrorPartitionsTake(partitions, i, search, NULL, NULL);
		if (member->listed)
			note_rows(rows, member, query, known_distance(rows, partitions, i));
	}
}

/* Ask for the best k rows of all scans; no more are asked for if that fails */
static void
ask(MergeRows *rows, uint64 k)
{
	MemoryContext context = AllocSetContextCreate(rows->context, "gpuvec merge request",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	int			most = rows->append->ms_nplans;
	MirrorTarget *targets = palloc0_array(MirrorTarget, most);
	MergeMember **members = palloc_array(MergeMember *, most);
	int			n = describe(rows, targets, members);
	GpuvecConditions none = {0};
	MirrorQuery query = {0};
	MirrorSearch search = {
		.scoring = rows->order.scoring,.floor = GpuvecFloor(&rows->order.scoring),
		.k = k,.queries = &query,.nqueries = 1,.roots = true,
		.snapshot = rows->append->ps.state->es_snapshot,.context = context
	};
	MirrorPartitions *partitions;

	KnnMakeQuery(&rows->order, &none, &query);
	partitions = MirrorPartitionsSearch(targets, n, &search, 1);
	rows->k = partitions ? k : 0;
	if (partitions)
	{
		take_answer(rows, partitions, &search, members, n);
		MirrorPartitionsEnd(partitions);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

/* Forget what an earlier (re)scan had; returns the scans to ask for */
static int
begin_again(MergeRows *rows, const Bitmapset *valid)
{
	int			n = 0;

	MemoryContextReset(rows->context);
	rows->running = -1;
	rows->k = 0;
	rows->order.value = NULL;
	for (int i = 0; i < rows->append->ms_nplans; i++)
	{
		MergeMember *member = &rows->members[i];
		IndexScanState *scan = member->scan;
		Oid			table = member->table;

		memset(member, 0, sizeof(*member));
		member->scan = scan;
		member->table = table;
		member->asked = scan != NULL && bms_is_member(i, valid);
		n += member->asked;
	}
	return n;
}

/* The first of the scans to ask for, and the most rows that one expects */
static IndexScanState *
first_member(const MergeRows *rows, uint32 *expected)
{
	IndexScanState *first = NULL;

	*expected = 0;
	for (int i = 0; i < rows->append->ms_nplans; i++)
	{
		IndexScanState *scan = rows->members[i].scan;

		if (!rows->members[i].asked)
			continue;
		first = first ? first : scan;
		*expected = Max(*expected, ExpectedFirst(scan->iss_OrderByKeys));
	}
	return first;
}

void
MergeRowsAsk(MergeRows *rows, const Bitmapset *valid)
{
	Snapshot	snapshot = rows->append->ps.state->es_snapshot;
	MemoryContext old;
	uint32		expected;
	bool		asks;

	if (begin_again(rows, valid) < 2 || !IsMVCCSnapshot(snapshot) || snapshot->takenDuringRecovery)
		return;
	EntryQueueFlush();
	old = MemoryContextSwitchTo(rows->context);
	asks = read_query(rows, first_member(rows, &expected));
	MemoryContextSwitchTo(old);
	if (asks)
		ask(rows, expected);
}

/* ---- the merge ---- */

/* True if a scan has taken all that is known, and more can be asked for */
static bool
wants_more(const MergeRows *rows, const MergeMember *member)
{
	return member->listed && member->next == member->nhits && member->known != INFINITY &&
		rows->k > 0 && rows->k < GPUVEC_MAX_K;
}

static void
ask_more(MergeRows *rows)
{
	ask(rows, Min(rows->k * GPUVEC_BATCH_GROWTH, GPUVEC_MAX_K));
}

bool
MergeRowsAskMore(MergeRows *rows, int child)
{
	const MergeMember *member = &rows->members[child];

	if (member->scan == NULL || !wants_more(rows, member) ||
		(member->begun && KnnHasRows(scan_state(member))))
		return false;
	ask_more(rows);
	return true;
}

TupleTableSlot *
MergeRowsFetch(MergeRows *rows, int child, bool alone)
{
	TupleTableSlot *slot;

	rows->members[child].begun = true;
	rows->running = child;
	rows->alone = alone;
	slot = ExecProcNode(rows->append->mergeplans[child]);
	rows->running = -1;
	return TupIsNull(slot) ? NULL : slot;
}

double
MergeRowsDistance(const MergeRows *rows, int child)
{
	const MergeMember *member = &rows->members[child];

	return member->scan ? KnnLastDistance(scan_state(member)) : INFINITY;
}

/* The bound of rows that a scan has not taken yet */
static double
listed_bound(const MergeRows *rows, const MergeMember *member)
{
	if (!member->listed)
		return -INFINITY;
	return member->next == member->nhits ? member->known :
		GpuvecRankDistance(&rows->order, member->hits[member->next].score);
}

double
MergeRowsBound(const MergeRows *rows, int child)
{
	const MergeMember *member = &rows->members[child];

	if (member->scan == NULL)
		return -INFINITY;
	if (!member->begun)
		return listed_bound(rows, member);
	return KnnNextDistance(scan_state(member), listed_bound(rows, member));
}

Oid
MergeRowsTable(const MergeRows *rows, int child)
{
	return rows->members[child].table;
}

/* ---- scans ---- */

/* The member whose row is being fetched by this scan; or NULL */
static MergeMember *
find_member(IndexScanDesc scan, MergeRows **found)
{
	for (MergeRows *rows = all_rows; rows != NULL; rows = rows->following)
		if (rows->running >= 0)
		{
			MergeMember *member = &rows->members[rows->running];

			if (member->scan == NULL || member->scan->iss_ScanDesc != scan)
				continue;
			*found = rows;
			return member;
		}
	return NULL;
}

/* True if the rows are of this scan's query */
static bool
is_same_query(const MergeRows *rows, IndexScanDesc scan, const KnnState *state)
{
	const GpuvecOrder *mine = &state->order;

	return rows->order.value != NULL && GpuvecSameScoring(&rows->order.scoring, &mine->scoring) &&
		rows->append->ps.state->es_snapshot == scan->xs_snapshot &&
		GpuvecSameValue(rows->order.value, mine->value);
}

bool
MergeRowsTake(IndexScanDesc scan, KnnState *state)
{
	MergeRows  *rows;
	MergeMember *member;

	if (all_rows == NULL || !state->search.roots || (member = find_member(scan, &rows)) == NULL ||
		!is_same_query(rows, scan, state))
		return false;
	while (!rows->alone && wants_more(rows, member))
		ask_more(rows);
	if (!member->listed || (member->next == member->nhits && member->known != INFINITY))
		return false;
	MirrorSearchReset(&state->search);
	state->wire.hits = member->hits + member->next;
	state->wire.nhits = member->nhits - member->next;
	state->known = member->known;
	member->next = member->nhits;
	return true;
}

bool
MergeRowsCounted(IndexScanDesc scan)
{
	MergeRows  *rows;
	const MergeMember *member = all_rows ? find_member(scan, &rows) : NULL;

	return member != NULL && member->counted;
}
