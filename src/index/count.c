/*-------------------------------------------------------------------------
 *
 * count.c
 *	  A node that counts rows without looking at most of them.
 *
 *		SELECT brand, count(*), min(price) FROM shop
 *		WHERE tags && '{...}' AND price < 10 GROUP BY brand
 *
 * stands above a bitmap scan of one of our indexes, or an Append of such scans
 * of partitions: a custom scan, as EXPLAIN shows (count_paths.c).  It returns
 * rows of a partial aggregate: keys of a group, and how many rows it has, or a
 * part of it, with their least and greatest values.
 *
 * It takes the search keys of each scan, which the executor has made, and asks
 * the engine for the groups of the rows that satisfy them (count_rows.c).  The
 * scan's filters are queries that these keys do not say all of.
 * Rows of pages that the visibility map does not prove, and those whose keys
 * are rounded, have to be looked at: the scan is run for them alone, and each
 * is a group of one row.  If the engine cannot tell, or is not there, the scan
 * is run for all rows.
 *
 * Such a run must not come upon other rows of a page, which were counted.  So
 * its bitmap never has more pages than it can have without forgetting which
 * rows of them it was given.
 *
 * When a row is checked again, after a wait for its lock, a subquery that
 * counts is run as before, under the same snapshot.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/relscan.h"
#include "commands/explain.h"
#include "executor/execPartition.h"
#include "executor/executor.h"
#include "index/count.h"
#include "index/custom_node.h"
#include "index/entry_queue.h"
#include "index/knn_scan.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#define MOST_TO_FETCH	(2 + GPUVEC_MOST_ROUNDED)

typedef struct CountState
{
	CustomScanState css;		/* custom_ps: the scans whose rows it counts */
	const List *kinds;			/* see CountAddPaths() */
	const List *numbers;
	int			ncolumns;		/* of the scan */
	int			nkeys;
	int			most;			/* groups that are wanted; 0: all */
	Oid			unnest;			/* rows are grouped by the ids of their sets:
								 * the function that returns these */
	int			next_child;		/* of an Append; then its next scan */
	MemoryContext context;		/* what was found of a scan; the scan itself
								 * allocates elsewhere */

	/* the scan whose rows are being returned */
	PlanState  *scan;			/* NULL: there is none */
	IndexScanDesc index;		/* NULL: it is run for all rows */
	List	   *queries;		/* that rows match besides its keys */
	FilterColumns filters;		/* of its index */
	gpuvec_grouping grouping;
	GpuvecCount count;
	int			part;			/* of the count, and the next group of it */
	uint64		group;
	CountToFetch fetch[MOST_TO_FETCH];	/* [nfetch] */
	GpuvecFound some;			/* of these: those of the scan's bitmap */
	int			nfetch;
	int			fetching;		/* number of these rows that are fetched */
	CountIds   *ids;			/* of rows that it returned, in context; NULL:
								 * there are none yet */
	bool		ended;			/* it has returned all rows */
	bool		running;		/* the scan is run */
	bool		counted;		/* the row was returned that has the count */
	bool		verify;			/* what is returned is checked at the end */
	CountCheck	check;

	uint64		seen;			/* rows that were not looked at, ... */
	uint64		run;			/* scans that were run, ... */
	MirrorUsage used;			/* ... of all (re)scans */
} CountState;

int
CountColumn(const FilterColumns *filters, AttrNumber attnum, bool as_value)
{
	for (int i = 0; attnum > 0 && i < filters->n; i++)
	{
		const FilterColumn *column = &filters->columns[i];

		if (column->attnum == attnum && FilterHasValues(column) &&
			(!as_value || FilterKinds[column->kind].order == FILTER_BY_KEY))
			return i + 1;
	}
	return 0;
}

/* True if rows are counted, and that is all */
static inline bool
only_counts(const CountState *state)
{
	return state->ncolumns == 0;
}

/* ---- a scan begins ---- */

/* How the n-th column of the scan is grouped; 0: it cannot be */
static uint8
grouped_column(const CountState *state, int n)
{
	const TargetEntry *entry = list_nth(state->scan->plan->targetlist, n);
	const Var  *column = (const Var *) entry->expr;

	if (!IsA(column, Var))
		return 0;
	if (!OidIsValid(state->unnest))
		return CountColumn(&state->filters, column->varattno, n >= state->nkeys);
	return column->varattno == state->index->indexRelation->rd_index->indkey.values[0] ?
		GPUVEC_GROUPED_IDS : 0;
}

/*
 * Find the columns of an index that are those of the scan.  False: not all are
 * there.
 */
static bool
find_columns(CountState *state)
{
	gpuvec_grouping *grouping = &state->grouping;

	FilterDescribe(state->index->indexRelation->rd_indextuple, &state->filters);
	memset(grouping, 0, sizeof(*grouping));
	grouping->nkeys = state->nkeys;
	grouping->nvalues = state->ncolumns - state->nkeys;
	for (int n = 0; n < state->ncolumns; n++)
	{
		grouping->columns[n] = grouped_column(state, n);
		if (grouping->columns[n] == 0)
			return false;
	}
	return true;
}

/* The next rows that have to be looked at, n of them, which are in no order */
static void
add_to_fetch(CountState *state, int64 *roots, uint64 n, bool exact)
{
	CountToFetch *fetch = &state->fetch[state->nfetch];

	if (n == 0)
		return;
	qsort(roots, n, sizeof(int64), GpuvecCompareRoots);
	memset(fetch, 0, sizeof(*fetch));
	fetch->found.roots = roots;
	fetch->found.n = n;
	fetch->found.exact = exact;
	state->nfetch++;
}

/* Add the rows that the engine has not counted */
static void
add_unseen(CountState *state, const MirrorCount *count)
{
	int64	   *roots = (int64 *) count->roots;

	for (uint64 i = 0; i < count->nroots; i++)
		roots[i] = tid_root(count->roots[i]);
	add_to_fetch(state, roots, count->nroots, true);
}

/*
 * Find the rows of a scan whose keys are rounded, by one more search key.
 * False: any row may be one.
 */
static bool
find_rounded(CountState *state, const ScanKeyData *others)
{
	KnnState   *knn = state->index->opaque;
	GpuvecFound found;

	knn->range.keys[0] = *others;
	knn->range.n = 1;
	ExecReScan(state->scan);
	GpuvecFind(state->index, &knn->conditions, state->context, &found);
	knn->range.n = 0;
	if (!found.all)
		add_to_fetch(state, found.roots, found.n, found.exact);
	return !found.all;
}

/* Have the engine count the rows of a scan.  False: it cannot. */
static bool
count_found(CountState *state)
{
	KnnState   *knn = state->index->opaque;
	ScanKeyData others[GPUVEC_MOST_ROUNDED];
	MemoryContext old;
	bool		known;
	int			n;

	if (!find_columns(state))
		return false;
	/* the engine does not know how many rows have keys that are rounded */
	if (knn->conditions.nrounded == 0 && !gpuvec_verify)
		state->grouping.most = state->most;
	old = MemoryContextSwitchTo(state->context);
	known = GpuvecCountFound(state->index, &knn->conditions, state->queries,
							 only_counts(state) ? NULL : &state->grouping, &state->count);
	n = known ? CountCopyRounded(state->index, others) : 0;
	MemoryContextSwitchTo(old);
	if (!known)
		return false;
	for (int i = 0; i < n; i++)
		if (!find_rounded(state, &others[i]))
			return false;
	for (int i = 0; i < state->count.n; i++)
	{
		add_unseen(state, &state->count.parts[i]);
		state->seen += state->count.parts[i].seen;
	}
	return true;
}

/* Begin with the rows of a scan */
static void
begin_scan(CountState *state, PlanState *scan)
{
	MemoryContextReset(state->context);
	if (scan->chgParam != NULL)
		ExecReScan(scan);
	state->scan = scan;
	state->index = CountBeginKeys(scan, state->context, &state->queries);
	memset(&state->count, 0, sizeof(state->count));
	CountCheckBegin(&state->check);
	state->ids = NULL;
	state->part = state->nfetch = state->fetching = 0;
	state->group = 0;
	state->running = state->counted = state->ended = false;
	if (state->index != NULL && count_found(state))
		pgstat_count_index_scan(state->index->indexRelation);
	else
	{
		/* also of what was counted before that failed */
		memset(&state->count, 0, sizeof(state->count));
		state->run++;
		state->running = true;
		state->nfetch = 0;
		if (state->index != NULL)
			ExecReScan(scan);
		state->index = NULL;
	}
	state->verify = gpuvec_verify && state->index != NULL;
}

/* The next scan that run-time pruning leaves, or NULL */
static PlanState *
next_scan(CountState *state)
{
	PlanState  *node = CustomNodeBelow(&state->css);
	AppendState *append = (AppendState *) node;

	if (!IsA(node, AppendState))
		return state->next_child++ < 0 ? node : NULL;
	if (node->chgParam != NULL)
		ExecReScan(node);
	/* as the node itself does: it forgets them when a parameter changes */
	if (append->as_nplans > 0 && append->as_valid_subplans == NULL)
		append->as_valid_subplans = GpuvecFindMatchingSubPlans(append->as_prune_state);
	state->next_child = append->as_nplans > 0 ?
		bms_next_member(append->as_valid_subplans, state->next_child) : -2;
	return state->next_child >= 0 ? append->appendplans[state->next_child] : NULL;
}

/* ---- its rows ---- */

/* Run the scan for the next rows that have to be looked at.  False: none. */
static bool
fetch_next(CountState *state)
{
	KnnState   *knn = state->index->opaque;
	long		pages = Max(tbm_calculate_entries(work_mem * (Size) 1024) / 2, 1);

	while (state->fetching < state->nfetch)
	{
		if (!CountNextToFetch(&state->fetch[state->fetching], pages, &state->some))
		{
			state->fetching++;
			continue;
		}
		knn->range.only = &state->some;
		ExecReScan(state->scan);
		return true;
	}
	knn->range.only = NULL;
	return false;
}

/* A row of the scan as a group of one row */
static void
group_of_row(const CountState *state, TupleTableSlot *row, uint64 *group)
{
	memset(group, 0, gpuvec_group_words(&state->grouping) * sizeof(uint64));
	group[GPUVEC_GROUP_ROWS] = 1;
	for (int n = 0; n < state->ncolumns; n++)
	{
		const FilterColumn *column = &state->filters.columns[state->grouping.columns[n] - 1];
		uint64	   *range = group + GPUVEC_GROUP_KEYS + state->nkeys + 2 * (n - state->nkeys);
		bool		isnull;
		Datum		value = slot_getattr(row, n + 1, &isnull);

		if (isnull)
			group[GPUVEC_GROUP_NULLS] |= UINT64CONST(1) << n;
		else if (n < state->nkeys)
			group[GPUVEC_GROUP_KEYS + n] = FilterKey(column, value);
		else
			range[0] = range[1] = FilterKey(column, value);
	}
}

/* Return a group of the engine's */
static void
store_group(CountState *state, const uint64 *group, TupleTableSlot *slot)
{
	const uint64 *keys = group + GPUVEC_GROUP_KEYS;
	int			i = 0;
	ListCell   *kind;
	ListCell   *number;

	forboth(kind, state->kinds, number, state->numbers)
	{
		int			n = lfirst_int(number);
		const FilterColumn *column;
		uint64		key;

		slot->tts_isnull[i] = false;
		if (lfirst_int(kind) == COUNT_ROWS || lfirst_int(kind) == COUNT_ID)
		{
			slot->tts_values[i++] = Int64GetDatum((int64) (lfirst_int(kind) == COUNT_ID ? keys[0] :
														   group[GPUVEC_GROUP_ROWS]));
			continue;
		}
		column = &state->filters.columns[state->grouping.columns[n] - 1];
		key = lfirst_int(kind) == COUNT_KEY ? keys[n] :
			keys[state->nkeys + 2 * (n - state->nkeys) + (lfirst_int(kind) == COUNT_GREATEST)];
		slot->tts_isnull[i] = (group[GPUVEC_GROUP_NULLS] >> n & 1) != 0;
		slot->tts_values[i] = slot->tts_isnull[i] ? (Datum) 0 : FilterValue(column, key);
		i++;
	}
}

/* Return a row of the scan */
static void
store_row(CountState *state, TupleTableSlot *row, TupleTableSlot *slot)
{
	int			i = 0;
	ListCell   *kind;
	ListCell   *number;

	forboth(kind, state->kinds, number, state->numbers)
	{
		slot->tts_isnull[i] = false;
		slot->tts_values[i] = Int64GetDatum(1);
		if (lfirst_int(kind) != COUNT_ROWS)
			slot->tts_values[i] = slot_getattr(row, lfirst_int(number) + 1, &slot->tts_isnull[i]);
		i++;
	}
}

/* Return how many rows there are */
static void
store_count(uint64 rows, TupleTableSlot *slot)
{
	for (int i = 0; i < slot->tts_tupleDescriptor->natts; i++)
	{
		slot->tts_values[i] = Int64GetDatum((int64) rows);
		slot->tts_isnull[i] = false;
	}
}

/* The next group that the engine has found, or NULL */
static const uint64 *
next_group(CountState *state)
{
	for (; state->part < state->count.n; state->part++, state->group = 0)
	{
		const MirrorCount *part = &state->count.parts[state->part];

		if (state->group < part->ngroups)
			return part->groups + state->group++ * gpuvec_group_words(&state->grouping);
	}
	return NULL;
}

/* The next row of the scan that is run, or NULL */
static TupleTableSlot *
next_fetched(CountState *state)
{
	for (;;)
	{
		if (state->running)
		{
			TupleTableSlot *row = ExecProcNode(state->scan);

			if (!TupIsNull(row))
				return row;
		}
		state->running = state->index != NULL && fetch_next(state);
		if (!state->running)
			return NULL;
	}
}

/* Count ids of rows of the scan.  False: there are no rows any more. */
static bool
count_ids(CountState *state)
{
	TupleTableSlot *row;

	if (state->ended)
		return false;
	if (state->ids == NULL)
		state->ids = CountIdsNew(state->context);
	while (row = next_fetched(state), row != NULL)
		if (!CountIdsAdd(state->ids, row))
			return true;
	state->ended = true;
	return true;
}

/* The next id of the scan's rows as a group, or part of it.  False: none. */
static bool
next_id(CountState *state, uint64 *group)
{
	while (state->ids == NULL || !CountIdsTake(state->ids, group))
		if (!count_ids(state))
			return false;
	return true;
}

/* Count all rows of the scan, which no groups are asked of */
static void
count_all(CountState *state, TupleTableSlot *slot)
{
	uint64		rows = 0;

	for (int i = 0; i < state->count.n; i++)
		rows += state->count.parts[i].seen + state->count.parts[i].fetched;
	while (next_fetched(state) != NULL)
		rows++;
	state->check.rows = rows;
	store_count(rows, slot);
}

/* Add a group of a row of the scan to what is checked */
static void
check_row(const CountState *state, TupleTableSlot *row, CountCheck *check)
{
	uint64		group[GPUVEC_GROUP_KEYS + 2 * GPUVEC_MOST_GROUPED];

	group_of_row(state, row, group);
	CountCheckAdd(check, &state->grouping, group);
}

/* Raise an error unless a run of the scan has the rows that were returned */
static void
verify_scan(CountState *state)
{
	CountCheck	run;
	TupleTableSlot *row;

	CountCheckBegin(&run);
	ExecReScan(state->scan);
	while (row = ExecProcNode(state->scan), !TupIsNull(row))
	{
		if (OidIsValid(state->unnest))
			CountIdsCheck(row, &state->grouping, &run);
		else
			check_row(state, row, &run);
	}
	if (memcmp(&run, &state->check, sizeof(run)) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("a count of rows of relation \"%s\" with the gpuvec engine is wrong",
						RelationGetRelationName(((ScanState *) state->scan)->ss_currentRelation)),
				 errdetail("A scan has " UINT64_FORMAT " rows, the count is " UINT64_FORMAT ".",
						   run.rows, state->check.rows),
				 errhint("Please report this as a bug; gpuvec_evict discards the engine's copy.")));
}

/* Return the next group, or part of one.  False: there is none. */
static bool
next_grouped(CountState *state, TupleTableSlot *slot)
{
	const uint64 *group = next_group(state);
	uint64		one[GPUVEC_GROUP_KEYS + 2 * GPUVEC_MOST_GROUPED];
	TupleTableSlot *row;

	if (group != NULL)
		store_group(state, group, slot);
	else if (OidIsValid(state->unnest))
	{
		if (!next_id(state, one))
			return false;
		store_group(state, one, slot);
		group = one;
	}
	else
	{
		row = next_fetched(state);
		if (row == NULL)
			return false;
		store_row(state, row, slot);
		if (state->verify)
			check_row(state, row, &state->check);
	}
	if (state->verify && group != NULL)
		CountCheckAdd(&state->check, &state->grouping, group);
	return true;
}

/*
 * Get the next row of the scan.  False: there is none, and the scan is done
 * with.
 */
static bool
next_of_scan(CountState *state, TupleTableSlot *slot)
{
	bool		more = false;

	if (!only_counts(state))
		more = next_grouped(state, slot);
	else if (!state->counted)
	{
		count_all(state, slot);
		state->counted = more = true;
	}
	if (state->verify && !more)
		verify_scan(state);
	return more;
}

/* ExecCustomScan */
static TupleTableSlot *
next_row(CustomScanState *node)
{
	CountState *state = (CountState *) node;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;
	ExprContext *context = node->ss.ps.ps_ExprContext;
	MirrorUsage before = MirrorUsed;

	ExecClearTuple(slot);
	if (state->scan == NULL && state->next_child < 0)
		EntryQueueFlush();
	while (state->scan == NULL || !next_of_scan(state, slot))
	{
		PlanState  *scan = next_scan(state);

		state->scan = NULL;
		if (scan == NULL)
			break;
		begin_scan(state, scan);
	}
	MirrorUsageAdd(&state->used, &before);
	if (state->scan == NULL)
		return slot;
	ExecStoreVirtualTuple(slot);
	ResetExprContext(context);
	context->ecxt_scantuple = slot;
	return node->ss.ps.ps_ProjInfo ? ExecProject(node->ss.ps.ps_ProjInfo) : slot;
}

/* Forget what is known of the scans below */
static void
reset(CountState *state)
{
	if (state->index != NULL)
		((KnnState *) state->index->opaque)->range.only = NULL;
	state->scan = NULL;
	state->index = NULL;
	state->next_child = -1;
}

static void
begin(CustomScanState *node, EState *estate, int eflags)
{
	CountState *state = (CountState *) node;
	const CustomScan *scan = (const CustomScan *) node->ss.ps.plan;
	ListCell   *cell;

	CustomNodeBegin(node, estate, eflags);
	state->kinds = linitial(scan->custom_private);
	state->numbers = lsecond(scan->custom_private);
	state->ncolumns = linitial_int(lthird(scan->custom_private));
	state->most = lsecond_int(lthird(scan->custom_private));
	state->unnest = linitial_oid(lfourth(scan->custom_private));
	foreach(cell, state->kinds)
		state->nkeys += lfirst_int(cell) == COUNT_KEY || lfirst_int(cell) == COUNT_ID;
	if (OidIsValid(state->unnest))
		GpuvecCheckExecute(state->unnest);
	state->context = AllocSetContextCreate(estate->es_query_cxt, "gpuvec count", ALLOCSET_DEFAULT_SIZES);
	reset(state);
}

static void
rescan(CustomScanState *node)
{
	reset((CountState *) node);
	CustomNodeRescan(node);
}

/* ExplainCustomScan */
static void
explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
	const CountState *state = (const CountState *) node;

	if (state->most > 0)
		ExplainPropertyInteger("Groups Wanted", NULL, state->most, es);
	if (!es->analyze)
		return;
	ExplainPropertyUInteger("Rows Not Fetched", NULL, state->seen, es);
	if (state->run > 0)
		ExplainPropertyUInteger("Scans Run", NULL, state->run, es);
	MirrorUsageExplain(&state->used, es);
}

static const CustomExecMethods exec_methods = {
	.CustomName = "gpuvec count",
	.BeginCustomScan = begin,
	.ExecCustomScan = next_row,
	.EndCustomScan = CustomNodeEnd,
	.ReScanCustomScan = rescan,
	.ExplainCustomScan = explain,
};

static Node *
create_state(CustomScan *scan)
{
	return CustomNodeState(sizeof(CountState), &exec_methods);
}

const CustomScanMethods CountScanMethods = {
	.CustomName = "gpuvec count",
	.CreateCustomScanState = create_state,
};

void
CountInit(void)
{
	RegisterCustomScanMethods(&CountScanMethods);
}
