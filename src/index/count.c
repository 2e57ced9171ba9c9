/*-------------------------------------------------------------------------
 *
 * count.c
 *	  A node that counts rows without looking at most of them.
 *
 *		SELECT count(*) FROM docs WHERE tags && '{...}' AND price < 10
 *
 * stands above a bitmap scan of one of our indexes, or an Append of such scans
 * of partitions: a custom scan, as EXPLAIN shows.  It does not run these.  It
 * takes the search keys of each scan, which the executor has made, and asks
 * the engine how many rows satisfy them (count_rows.c).  Rows of pages that
 * the visibility map does not prove are looked at.  If the engine cannot tell,
 * or is not there, the scan is run, and its rows are counted.
 *
 * The planner considers the node only where the search keys decide: each
 * condition, those of security barriers too, is a key of the index that needs
 * no second look at the row.  The executor knows that better than the planner,
 * which only has to be right about costs: where it is wrong, the scan is run.
 * The aggregates are count(*) alone, of all rows together.  HAVING and
 * expressions with the count are evaluated here.
 *
 * As with an index-only scan, enable_indexonlyscan = off turns it off.
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
#include "index/index_paths.h"
#include "index/knn_scan.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "parser/parsetree.h"
#include "pgstat.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/* Operator calls that take as long as counting a row in the engine */
#define COUNT_OPERATORS 1.0

typedef struct CountState
{
	CustomScanState css;		/* custom_ps: the scan whose rows it counts */
	bool		done;			/* the count was returned */
	uint64		seen;			/* rows that were not looked at, ... */
	uint64		run;			/* scans that were run, ... */
	MirrorUsage used;			/* ... of all (re)scans */
} CountState;

static Plan *plan_count(PlannerInfo *root, RelOptInfo *rel, struct CustomPath *path, List *tlist,
						List *clauses, List *custom_plans);
static Node *create_state(CustomScan *scan);

static const CustomPathMethods path_methods = {
	.CustomName = "gpuvec count",
	.PlanCustomPath = plan_count,
};

static const CustomScanMethods scan_methods = {
	.CustomName = "gpuvec count",
	.CreateCustomScanState = create_state,
};

/* ---- what is asked for ---- */

/* True for count(*), and for count of a constant */
static bool
counts_rows(const Aggref *agg)
{
	if (agg->aggfilter != NULL || agg->aggdistinct != NIL || agg->aggorder != NIL ||
		agg->agglevelsup != 0)
		return false;
	if (agg->aggfnoid == F_COUNT_)
		return true;
	if (agg->aggfnoid == F_COUNT_ANY)
	{
		const TargetEntry *entry = linitial(agg->args);

		return IsA(entry->expr, Const) && !((const Const *) entry->expr)->constisnull;
	}
	return false;
}

/*
 * The distinct aggregates of a query's targets and of HAVING; NIL if there are
 * none, or if one is no count of all rows
 */
static List *
find_counts(const PathTarget *target, Node *having)
{
	int			flags = PVC_INCLUDE_AGGREGATES | PVC_RECURSE_WINDOWFUNCS | PVC_INCLUDE_PLACEHOLDERS;
	List	   *counts = NIL;
	List	   *nodes = list_concat(pull_var_clause((Node *) target->exprs, flags),
									pull_var_clause(having, flags));
	ListCell   *cell;

	foreach(cell, nodes)
	{
		if (!IsA(lfirst(cell), Aggref) || !counts_rows(lfirst(cell)))
			return NIL;
		counts = list_append_unique(counts, lfirst(cell));
	}
	return counts;
}

/* ---- scans that can be counted ---- */

/* Search keys of a path that have been looked at */
typedef struct KeysSeen
{
	int			of_set;			/* those of the first column */
	int			rounded;		/* those of a column whose keys are rounded */
	int			rounded_column;
} KeysSeen;

/*
 * True if the executor need only look at few of the rows that a comparison of
 * a filter column finds: at none, or at those whose rounded keys are equal
 */
static bool
is_comparison_decided(const IndexOptInfo *index, const FilterColumn *filter, int column,
					  Oid operator, KeysSeen *seen)
{
	FilterOrder order = FilterKinds[filter->kind].order;

	if (FilterKinds[filter->kind].exact)
		return true;
	if ((order != FILTER_BY_KEY && !(order == FILTER_BY_PREFIX && filter->prefix)) ||
		get_op_opfamily_strategy(operator, index->opfamily[column]) == GPUVEC_FILTER_EQUAL ||
		(seen->rounded > 0 && seen->rounded_column != column) || seen->rounded == GPUVEC_MOST_ROUNDED)
		return false;
	seen->rounded++;
	seen->rounded_column = column;
	return true;
}

/* True if the executor need look at few of the rows that a condition finds */
static bool
is_decided(const IndexOptInfo *index, const FilterColumns *filters, const IndexClause *clause,
		   KeysSeen *seen)
{
	int			column = clause->indexcol;
	const RestrictInfo *rinfo;
	const OpExpr *comparison;

	if (clause->lossy || list_length(clause->indexquals) != 1 || column > filters->n)
		return false;
	rinfo = linitial(clause->indexquals);
	if (IsA(rinfo->clause, NullTest))
		return filters->n > 0;
	if (IsA(rinfo->clause, ScalarArrayOpExpr))
		return column > 0 && FilterKinds[filters->columns[column - 1].kind].exact;
	if (!IsA(rinfo->clause, OpExpr))
		return false;
	comparison = (const OpExpr *) rinfo->clause;
	if (column > 0)
		return is_comparison_decided(index, &filters->columns[column - 1], column, comparison->opno,
									 seen);
	seen->of_set++;
	return get_op_opfamily_strategy(comparison->opno, index->opfamily[0]) != GPUVEC_CONTAINED;
}

/* The clause of a path that a condition became, or NULL */
static const IndexClause *
clause_of(const IndexPath *path, const RestrictInfo *rinfo)
{
	ListCell   *cell;

	foreach(cell, path->indexclauses)
		if (((const IndexClause *) lfirst(cell))->rinfo == rinfo)
		return lfirst(cell);
	return NULL;
}

/* IndexPathTest: all conditions of a table are search keys that decide */
static bool
decides(const IndexPath *path)
{
	const IndexOptInfo *index = path->indexinfo;
	Relation	rel = index_open(index->indexoid, NoLock);
	FilterColumns filters;
	KeysSeen	seen = {0};
	ListCell   *cell;

	FilterDescribe(rel->rd_indextuple, &filters);
	index_close(rel, NoLock);
	foreach(cell, index->indrestrictinfo)
	{
		const RestrictInfo *rinfo = lfirst(cell);
		const IndexClause *clause = rinfo->pseudoconstant ? NULL : clause_of(path, rinfo);

		if (clause == NULL || !is_decided(index, &filters, clause, &seen))
			return false;
	}
	return seen.of_set <= 1;
}

/*
 * Add what it costs to count the rows of a scan, and to look at those that the
 * visibility map does not prove
 */
static void
add_cost(const RelOptInfo *rel, const IndexPath *index, const Path *scan, Cost *cost)
{
	double		found = index->indexselectivity * rel->tuples;
	Cost		begin = IndexPathBegin(rel, index);
	double		unseen = 1 - Min(Max(rel->allvisfrac, 0), 1);

	*cost += begin + found * COUNT_OPERATORS * cpu_operator_cost +
		unseen * Max(scan->total_cost - begin, 0);
}

/*
 * Add the scans of a table to scans, those of its partitions in its place.
 * False: one cannot be counted.
 */
static bool
add_scans(PlannerInfo *root, RelOptInfo *rel, List **scans, Cost *cost)
{
	const RangeTblEntry *entry = planner_rt_fetch(rel->relid, root);
	IndexPath  *index;
	Path	   *scan;

	if (IS_DUMMY_REL(rel))
		return true;
	if (entry->rtekind != RTE_RELATION || entry->tablesample != NULL)
		return false;
	if (entry->inh)
	{
		if (!IS_PARTITIONED_REL(rel))
			return false;
		for (int i = 0; i < rel->nparts; i++)
			if (rel->part_rels[i] != NULL && !add_scans(root, rel->part_rels[i], scans, cost))
				return false;
		return true;
	}
	index = IndexPathFind(root, rel, NULL, NULL, decides);
	if (index == NULL)
		return false;
	scan = (Path *) create_bitmap_heap_path(root, rel, (Path *) index, NULL, 1.0, 0);
	*scans = lappend(*scans, scan);
	add_cost(rel, index, scan, cost);
	return true;
}

/* ---- planning ---- */

void
CountAddPaths(PlannerInfo *root, RelOptInfo *input, RelOptInfo *output)
{
	const Query *parse = root->parse;
	List	   *scans = NIL;
	Cost		cost = 0;
	CustomPath *path;

	if (!enable_indexonlyscan || input->reloptkind != RELOPT_BASEREL || !parse->hasAggs ||
		parse->groupClause != NIL || parse->groupingSets != NIL ||
		find_counts(output->reltarget, parse->havingQual) == NIL || IS_DUMMY_REL(input) ||
		!add_scans(root, input, &scans, &cost) || scans == NIL)
		return;
	path = makeNode(CustomPath);
	path->path.pathtype = T_CustomScan;
	path->path.parent = output;
	path->path.pathtarget = output->reltarget;
	path->path.rows = 1;
	path->path.startup_cost = path->path.total_cost = cost + output->reltarget->cost.startup +
		output->reltarget->cost.per_tuple;
#if PG_VERSION_NUM >= 150000
	path->flags = CUSTOMPATH_SUPPORT_PROJECTION;
#endif
	path->custom_paths = list_make1(list_length(scans) == 1 ? linitial(scans) :
									GpuvecAppendOf(root, input, scans));
	path->methods = &path_methods;
	add_path(output, &path->path);
}

/* PlanCustomPath: the node's rows consist of the counts */
static Plan *
plan_count(PlannerInfo *root, RelOptInfo *rel, struct CustomPath *path, List *tlist, List *clauses,
		   List *custom_plans)
{
	CustomScan *scan = makeNode(CustomScan);
	Node	   *having = root->parse->havingQual;
	List	   *counts = find_counts(path->path.pathtarget, having);
	ListCell   *cell;

	foreach(cell, counts)
		scan->custom_scan_tlist = lappend(scan->custom_scan_tlist,
										  makeTargetEntry(copyObject(lfirst(cell)),
														  list_length(scan->custom_scan_tlist) + 1,
														  NULL, false));
	scan->scan.plan.targetlist = tlist;
	scan->scan.plan.qual = (List *) having;
	scan->custom_plans = custom_plans;
	scan->flags = path->flags;
	scan->methods = &scan_methods;
	return &scan->scan.plan;
}

/* ---- execution ---- */

/* Run a node and count its rows */
static uint64
run_node(PlanState *node)
{
	uint64		rows = 0;

	for (;;)
	{
		TupleTableSlot *slot = ExecProcNode(node);

		if (TupIsNull(slot))
			return rows;
		rows++;
	}
}

/*
 * The scan of one of our indexes that a bitmap scan has its rows of, with its
 * keys; NULL: it is another node, or has other conditions
 */
static IndexScanDesc
begin_scan(PlanState *node)
{
	BitmapIndexScanState *index;

	if (!IsA(node, BitmapHeapScanState) || node->qual != NULL ||
		!IsA(outerPlanState(node), BitmapIndexScanState))
		return NULL;
	if (node->chgParam != NULL)
		ExecReScan(node);
	index = (BitmapIndexScanState *) outerPlanState(node);
	if (index->ss.ps.chgParam != NULL ||
		(index->biss_NumRuntimeKeys > 0 && !index->biss_RuntimeKeysReady))
		ExecReScan(&index->ss.ps);
	return GpuvecIsOurs(index->biss_RelationDesc) && index->biss_NumArrayKeys == 0 ?
		index->biss_ScanDesc : NULL;
}

/* Raise an error unless a scan has as many rows */
static void
verify_count(PlanState *node, uint64 rows)
{
	uint64		run;

	ExecReScan(node);
	run = run_node(node);
	if (run != rows)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("a count of rows of relation \"%s\" with the gpuvec engine is wrong",
						RelationGetRelationName(((ScanState *) node)->ss_currentRelation)),
				 errdetail("A scan has " UINT64_FORMAT " rows, the count is " UINT64_FORMAT ".", run, rows),
				 errhint("Please report this as a bug; gpuvec_evict discards the engine's copy.")));
}

/*
 * Copy the keys that rows have which must be looked at, each once; returns
 * their number.  The scan forgets them when it begins anew; the copies are
 * there until the node has returned its row.
 */
static int
copy_rounded(CountState *state, IndexScanDesc scan, ScanKeyData *others)
{
	const GpuvecConditions *conditions = &((const KnnState *) scan->opaque)->conditions;
	const GpuvecRounded *rounded = conditions->rounded;
	MemoryContext old = MemoryContextSwitchTo(state->css.ss.ps.ps_ExprContext->ecxt_per_tuple_memory);
	int			n = 0;

	for (int i = 0; i < conditions->nrounded; i++)
	{
		AttrNumber	attnum = rounded[i].others.sk_attno;
		Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(scan->indexRelation), attnum - 1);

		if (i > 0 && rounded[i].low == rounded[0].low)
			continue;
		others[n] = rounded[i].others;
		others[n].sk_argument = datumCopy(others[n].sk_argument, attribute->attbyval, attribute->attlen);
		n++;
	}
	MemoryContextSwitchTo(old);
	return n;
}

/*
 * Count the rows of a scan that have to be looked at: the index has their keys
 * rounded.  The scan finds them by one more search key, and checks them.
 */
static uint64
count_rounded(PlanState *node, IndexScanDesc scan, const ScanKeyData *others)
{
	KnnRange   *range = &((KnnState *) scan->opaque)->range;
	uint64		rows;

	range->keys[0] = *others;
	range->n = 1;
	ExecReScan(node);
	rows = run_node(node);
	range->n = 0;
	return rows;
}

/* Count the rows of a scan */
static uint64
count_scan(CountState *state, PlanState *node)
{
	IndexScanDesc scan = begin_scan(node);
	ScanKeyData others[GPUVEC_MOST_ROUNDED];
	GpuvecCount count;
	int			n;

	if (scan == NULL ||
		!GpuvecCountFound(scan, &((const KnnState *) scan->opaque)->conditions, &count))
	{
		state->run++;
		return run_node(node);
	}
	pgstat_count_index_scan(scan->indexRelation);
	state->seen += count.seen;
	n = copy_rounded(state, scan, others);
	for (int i = 0; i < n; i++)
		count.rows += count_rounded(node, scan, &others[i]);
	if (gpuvec_verify)
		verify_count(node, count.rows);
	return count.rows;
}

/* Count the rows of all scans that run-time pruning leaves */
static uint64
count_rows(CountState *state)
{
	PlanState  *node = CustomNodeBelow(&state->css);
	AppendState *append = (AppendState *) node;
	const Bitmapset *valid = NULL;
	uint64		rows = 0;
	int			child = -1;

	if (!IsA(node, AppendState))
		return count_scan(state, node);
	if (node->chgParam != NULL)
		ExecReScan(node);
	if (append->as_nplans > 0)
		valid = append->as_valid_subplans ? append->as_valid_subplans :
			GpuvecFindMatchingSubPlans(append->as_prune_state);
	while ((child = bms_next_member(valid, child)) >= 0)
		rows += count_scan(state, append->appendplans[child]);
	return rows;
}

/* ExecCustomScan */
static TupleTableSlot *
next_row(CustomScanState *node)
{
	CountState *state = (CountState *) node;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;
	ExprContext *context = node->ss.ps.ps_ExprContext;
	MirrorUsage before = MirrorUsed;
	Datum		rows;

	ExecClearTuple(slot);
	if (state->done)
		return slot;
	EntryQueueFlush();
	rows = Int64GetDatum((int64) count_rows(state));
	state->done = true;
	MirrorUsageAdd(&state->used, &before);
	for (int i = 0; i < slot->tts_tupleDescriptor->natts; i++)
	{
		slot->tts_values[i] = rows;
		slot->tts_isnull[i] = false;
	}
	ExecStoreVirtualTuple(slot);
	ResetExprContext(context);
	context->ecxt_scantuple = slot;
	if (!ExecQual(node->ss.ps.qual, context))
		return ExecClearTuple(slot);
	return node->ss.ps.ps_ProjInfo ? ExecProject(node->ss.ps.ps_ProjInfo) : slot;
}

static void
rescan(CustomScanState *node)
{
	((CountState *) node)->done = false;
	CustomNodeRescan(node);
}

/* ExplainCustomScan */
static void
explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
	const CountState *state = (const CountState *) node;

	if (!es->analyze)
		return;
	ExplainPropertyUInteger("Rows Not Fetched", NULL, state->seen, es);
	if (state->run > 0)
		ExplainPropertyUInteger("Scans Run", NULL, state->run, es);
	MirrorUsageExplain(&state->used, es);
}

static const CustomExecMethods exec_methods = {
	.CustomName = "gpuvec count",
	.BeginCustomScan = CustomNodeBegin,
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

void
CountInit(void)
{
	RegisterCustomScanMethods(&scan_methods);
}
