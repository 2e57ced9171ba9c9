/*-------------------------------------------------------------------------
 *
 * ranges.c
 *	  A node with rows in the order of a filter column, range by range.
 *
 *		SELECT ... FROM docs WHERE tags && q ORDER BY created DESC LIMIT 20
 *
 * A sort of all rows that the index finds takes as long as there are rows.
 * Few are wanted, the newest.  So this node, a custom scan, as EXPLAIN shows,
 * stands above the sort, and has it run several times: at first for rows
 * created after some time, which should be a few more than are wanted, then
 * for eight times as many that come next, and so on.  Before each run it gives
 * the index scan below search keys for that, besides those that this has.
 *
 * Where a range ends is a guess (range_ends.c).  If it is a bad one, it takes
 * longer.
 *
 * Each row comes from exactly one range, in order.  A range begins behind the
 * last value of the one before and has all rows of its own last value, so that
 * further sort keys count among rows that are sorted together.  A search key
 * may let other rows through, as keys of filter columns may be rounded and
 * bitmaps may lose single rows.  So the node compares each row's value with
 * the ends of the range, by the sort's own order.  Rows whose values are null
 * are a range of their own, before or behind the others.  All runs are
 * searches by the same snapshot; and a row version has one value.
 *
 * If the index cannot tell (there is no engine, for instance), the bitmap has
 * all pages, and so one run has all rows: those are returned that were not
 * yet, and it is the last one.
 *
 * Rows that are equal by all sort keys may come in another order than a sort
 * of all rows has.  When a row is checked again, after a wait for its lock,
 * scans hand out just that row in each run, and one of these takes it.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/relscan.h"
#include "access/table.h"
#include "commands/explain.h"
#include "executor/executor.h"
#include "index/custom_node.h"
#include "index/knn_scan.h"
#include "index/range_ends.h"
#include "index/ranges.h"
#include "storage/bufmgr.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

typedef enum RangesRun
{
	RUN_NONE,					/* none yet */
	RUN_NULLS,					/* rows whose values are null */
	RUN_VALUES					/* a range of values */
} RangesRun;

typedef struct RangesState
{
	CustomScanState css;		/* custom_ps: the sort */
	BitmapIndexScanState *index;	/* NULL: rows of the sort are handed on */
	Relation	table;
	SortSupportData order;		/* of the first sort key */
	AttrNumber	column;			/* of the sort's rows: that key */
	AttrNumber	attnum;			/* .. and of the index */
	RangeEnds	ends;
	bool		has_statistics; /* .. of the column */
	bool		has_nulls;		/* RANGES_NULLS */
	MemoryContext context;		/* lives as long as one (re)scan */
	RangesRun	run;
	bool		returned;		/* this run has returned a row */
	bool		answered;		/* .. or has none */
	bool		whole;			/* .. and has the rows of all runs */
	bool		done;			/* it was the last one */
	bool		nulls_done;		/* they were returned */
	bool		values_done;
	uint64		runs;			/* of all (re)scans */
	MirrorUsage used;
} RangesState;

/* ---- search keys ---- */

static KnnState *
scan_of(const RangesState *state)
{
	return state->index->biss_ScanDesc->opaque;
}

/* Have rows found whose values are null, or not */
static void
add_null_key(RangesState *state, int flag)
{
	KnnRange   *range = &scan_of(state)->range;

	ScanKeyEntryInitialize(&range->keys[range->n++], SK_ISNULL | flag, state->attnum,
						   InvalidStrategy, InvalidOid, InvalidOid, InvalidOid, (Datum) 0);
}

/* Have rows found whose values come up to this one, or behind it, in order */
static void
add_value_key(RangesState *state, bool up_to, Datum value)
{
	KnnRange   *range = &scan_of(state)->range;
	Relation	index = state->index->biss_RelationDesc;
	Oid			type = index->rd_opcintype[state->attnum - 1];
	StrategyNumber strategy = up_to ?
		(state->order.ssup_reverse ? GPUVEC_FILTER_AT_LEAST : GPUVEC_FILTER_AT_MOST) :
		(state->order.ssup_reverse ? GPUVEC_FILTER_LESS : GPUVEC_FILTER_GREATER);
	Oid			operator = get_opfamily_member(index->rd_opfamily[state->attnum - 1], type, type,
											   strategy);

	if (!OidIsValid(operator))
		elog(ERROR, "missing operator %d of an index column", strategy);
	ScanKeyEntryInitialize(&range->keys[range->n++], 0, state->attnum, strategy, type,
						   index->rd_indcollation[state->attnum - 1], get_opcode(operator), value);
}

/*
 * The share of the column's values that come before all that the scan's own
 * keys let through: of created < '...' in descending order, those after that
 */
static double
share_before(const RangesState *state)
{
	const BitmapIndexScanState *index = state->index;
	double		share = 0;

	for (int i = 0; i < index->biss_NumScanKeys; i++)
	{
		const ScanKeyData *key = &index->biss_ScanKeys[i];
		StrategyNumber strategy = key->sk_strategy;
		Datum		value;

		if (key->sk_attno != state->attnum || key->sk_flags != 0 ||
			!ThresholdsConvert(&state->ends.thresholds, key->sk_subtype, key->sk_argument, &value))
			continue;
		if (state->order.ssup_reverse ? strategy == GPUVEC_FILTER_LESS || strategy == GPUVEC_FILTER_AT_MOST :
			strategy == GPUVEC_FILTER_GREATER || strategy == GPUVEC_FILTER_AT_LEAST)
			share = Max(share, ThresholdsShare(&state->ends.thresholds, value));
	}
	return share;
}

/* ---- runs ---- */

static int
compare(RangesState *state, Datum a, Datum b)
{
	return ApplySortComparator(a, false, b, false, &state->order);
}

/*
 * Let the nodes below begin again, with the search keys as they are now.  A
 * node whose parameters have changed leaves that to its first row, but the
 * search keys that depend on them are wanted before.
 */
static void
rescan_below(RangesState *state)
{
	for (PlanState *node = CustomNodeBelow(&state->css); node != NULL; node = outerPlanState(node))
		ExecReScan(node);
}

/*
 * By which part of its rows a table has grown since it was analyzed, if values
 * of new rows come first: times mostly grow
 */
static double
growth_of(const RangesState *state)
{
	double		pages = state->table->rd_rel->relpages;

	if (!state->order.ssup_reverse || pages <= 0)
		return 0;
	return Max(RelationGetNumberOfBlocks(state->table) / pages - 1, 0);
}

/* Prepare for the first range of a (re)scan */
static void
begin_values(RangesState *state)
{
	double		growth = growth_of(state);

	ThresholdsSetNewer(&state->ends.thresholds, growth / (1 + growth));
	scan_of(state)->range.n = 0;
	/* values of other keys may be known only now */
	if (state->index->biss_NumRuntimeKeys > 0)
		rescan_below(state);
	RangeEndsBegin(&state->ends, share_before(state));
}

/* Give the index scan the search keys of the range that was chosen */
static void
add_keys(RangesState *state)
{
	const RangeEnds *ends = &state->ends;
	bool		values = state->run == RUN_VALUES;

	scan_of(state)->range.n = 0;
	if (!values)
		add_null_key(state, SK_SEARCHNULL);
	else if (ends->has_last)
		add_value_key(state, false, ends->last);
	else if (ends->rest)
		add_null_key(state, SK_SEARCHNOTNULL);
	if (values && !ends->rest)
		add_value_key(state, true, ends->end);
}

/* Run the nodes below for what was chosen */
static void
begin_run(RangesState *state)
{
	add_keys(state);
	scan_of(state)->range.most = state->run == RUN_VALUES ? state->ends.most : 0;
	state->runs++;
	state->returned = false;
	state->answered = false;
	rescan_below(state);
}

/* RangeEnds.survey: the engine knows keys, which are to be exact */
static bool
survey(void *arg, double *n, Datum *first, Datum *end)
{
	RangesState *state = arg;
	gpuvec_grouping grouping = {.nvalues = 1,.columns = {state->attnum - 1}};
	const uint64 *range = NULL;
	uint64		low = PG_UINT64_MAX;
	uint64		high = 0;
	FilterColumns filters;
	const FilterColumn *column = &filters.columns[state->attnum - 2];
	GpuvecCount count;

	FilterDescribe(state->index->biss_RelationDesc->rd_indextuple, &filters);
	if (!FilterHasValues(column))
		return false;
	add_keys(state);
	rescan_below(state);
	if (!GpuvecEstimateFound(state->index->biss_ScanDesc, &scan_of(state)->conditions, &grouping,
							 &count))
		return false;
	*n = 0;
	for (int i = 0; i < count.n; i++)
	{
		*n += count.parts[i].seen;
		if (count.parts[i].ngroups == 0)
			continue;
		range = count.parts[i].groups + GPUVEC_GROUP_KEYS;
		low = Min(low, range[0]);
		high = Max(high, range[1]);
	}
	if (range == NULL)
		*n = 0;
	else
	{
		*first = FilterValue(column, state->order.ssup_reverse ? high : low);
		*end = FilterValue(column, state->order.ssup_reverse ? low : high);
	}
	return true;
}

/* Note that a run has returned all its rows */
static void
end_run(RangesState *state)
{
	state->nulls_done |= state->run == RUN_NULLS;
	state->values_done |= state->run == RUN_VALUES && state->ends.rest;
	state->done = state->whole || (state->values_done && (state->nulls_done || !state->has_nulls));
}

/* Choose and begin the next run.  False: there is none. */
static bool
next_run(RangesState *state)
{
	MemoryContext old;

	end_run(state);
	if (state->done)
		return false;
	if (state->has_nulls && !state->nulls_done && (state->order.ssup_nulls_first || state->values_done))
		state->run = RUN_NULLS;
	else
	{
		old = MemoryContextSwitchTo(state->context);
		if (state->run == RUN_VALUES)
			RangeEndsNext(&state->ends, scan_of(state)->found.n, state->returned);
		else
			begin_values(state);
		state->run = RUN_VALUES;
		MemoryContextSwitchTo(old);
	}
	begin_run(state);
	return true;
}

/* Take a part of the range, if that has too many rows */
static bool
divide_run(RangesState *state)
{
	MemoryContext old;

	if (!scan_of(state)->too_many)
		return false;
	old = MemoryContextSwitchTo(state->context);
	RangeEndsDivide(&state->ends, scan_of(state)->found.n);
	MemoryContextSwitchTo(old);
	begin_run(state);
	return true;
}

/* True if this run is to return a row; sets *behind if none follows */
static bool
takes(RangesState *state, TupleTableSlot *row, bool *behind)
{
	const RangeEnds *ends = &state->ends;
	bool		isnull;
	Datum		value = slot_getattr(row, state->column, &isnull);

	*behind = false;
	if (isnull)
		return state->whole ? !state->nulls_done : state->run == RUN_NULLS;
	if (state->values_done || (!state->whole && state->run == RUN_NULLS))
		return false;
	if (state->run == RUN_VALUES && ends->has_last && compare(state, value, ends->last) <= 0)
		return false;
	*behind = !state->whole && !ends->rest && compare(state, value, ends->end) > 0;
	return !*behind;
}

/* ExecCustomScan */
static TupleTableSlot *
next_row(CustomScanState *node)
{
	RangesState *state = (RangesState *) node;
	MirrorUsage before = MirrorUsed;
	TupleTableSlot *row = NULL;

	if (state->index == NULL)
		return CustomNodeRow(node, ExecProcNode(CustomNodeBelow(node)));
	/* once, for all (re)scans */
	if (!state->has_statistics)
		ThresholdsRead(state->index->biss_RelationDesc, state->attnum, &state->order,
					   &state->ends.thresholds);
	state->has_statistics = true;
	while (row == NULL && !state->done)
	{
		bool		behind = false;

		if (state->run != RUN_NONE)
			row = ExecProcNode(CustomNodeBelow(node));
		if (state->run != RUN_NONE && !state->answered)
		{
			state->answered = true;
			state->whole = scan_of(state)->found.all;
			if (divide_run(state))
			{
				row = NULL;
				continue;
			}
		}
		if (!TupIsNull(row) && takes(state, row, &behind))
		{
			state->returned = true;
			break;
		}
		if ((TupIsNull(row) || behind) && !next_run(state))
			break;
		row = NULL;
	}
	MirrorUsageAdd(&state->used, &before);
	return CustomNodeRow(node, state->done ? NULL : row);
}

/* ---- the rest of the node ---- */

/* Find the index scan below the sort, unless another node is there */
static void
find_scan(RangesState *state)
{
	PlanState  *node = outerPlanState(CustomNodeBelow(&state->css));

	/* conditions without columns of the table are a node of their own */
	while (node != NULL && IsA(node, ResultState))
		node = outerPlanState(node);
	if (node == NULL || !IsA(node, BitmapHeapScanState) ||
		!IsA(outerPlanState(node), BitmapIndexScanState))
		return;
	state->table = ((ScanState *) node)->ss_currentRelation;
	state->index = (BitmapIndexScanState *) outerPlanState(node);
}

/* Prepare to compare values as the sort does */
static void
prepare_order(RangesState *state, const Sort *sort)
{
	state->column = sort->sortColIdx[0];
	state->order.ssup_cxt = CurrentMemoryContext;
	state->order.ssup_collation = sort->collations[0];
	state->order.ssup_nulls_first = sort->nullsFirst[0];
	PrepareSortSupportFromOrderingOp(sort->sortOperators[0], &state->order);
}

/* BeginCustomScan */
static void
begin_node(CustomScanState *node, EState *estate, int eflags)
{
	RangesState *state = (RangesState *) node;
	const CustomScan *plan = (const CustomScan *) node->ss.ps.plan;

	state->attnum = intVal(list_nth(plan->custom_private, RANGES_COLUMN));
	/* the sort is to run anew each time */
	if (state->attnum > 0)
		eflags &= ~(EXEC_FLAG_REWIND | EXEC_FLAG_BACKWARD | EXEC_FLAG_MARK);
	CustomNodeBegin(node, estate, eflags);
	if (state->attnum == 0)
		return;
	find_scan(state);
	prepare_order(state, linitial(plan->custom_plans));
	state->ends.survey = survey;
	state->ends.survey_arg = state;
	state->ends.first = floatVal(list_nth(plan->custom_private, RANGES_FIRST));
	state->ends.rows = floatVal(list_nth(plan->custom_private, RANGES_ROWS));
	state->has_nulls = intVal(list_nth(plan->custom_private, RANGES_NULLS)) != 0;
	state->context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec ranges",
										   ALLOCSET_DEFAULT_SIZES);
}

/* ReScanCustomScan: the nodes below begin anew with the first run */
static void
rescan(CustomScanState *node)
{
	RangesState *state = (RangesState *) node;

	if (state->index == NULL)
	{
		CustomNodeRescan(node);
		return;
	}
	if (node->ss.ps.chgParam != NULL)
		UpdateChangedParamSet(CustomNodeBelow(node), node->ss.ps.chgParam);
	MemoryContextReset(state->context);
	state->run = RUN_NONE;
	state->whole = state->done = state->nulls_done = state->values_done = false;
}

/* ExplainCustomScan */
static void
explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
	const RangesState *state = (const RangesState *) node;

	if (!es->analyze || state->index == NULL)
		return;
	ExplainPropertyUInteger("Ranges", NULL, state->runs, es);
	MirrorUsageExplain(&state->used, es);
}

static const CustomExecMethods exec_methods = {
	.CustomName = "gpuvec ranges",
	.BeginCustomScan = begin_node,
	.ExecCustomScan = next_row,
	.EndCustomScan = CustomNodeEnd,
	.ReScanCustomScan = rescan,
	.ExplainCustomScan = explain,
};

static Node *
create_state(CustomScan *scan)
{
	return CustomNodeState(sizeof(RangesState), &exec_methods);
}

const CustomScanMethods RangesScanMethods = {
	.CustomName = "gpuvec ranges",
	.CreateCustomScanState = create_state,
};

void
RangesInit(void)
{
	RegisterCustomScanMethods(&RangesScanMethods);
}
