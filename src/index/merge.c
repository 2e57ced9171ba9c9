/*-------------------------------------------------------------------------
 *
 * merge.c
 *	  A node that merges the ordered scans of partitions, as late as it can.
 *
 * ORDER BY a distance LIMIT k, of a table with partitions, is a Merge Append
 * of an index scan for each partition.  It begins with the first row of each
 * scan, though only a few of them have rows among the best.  So this node
 * stands above it, and merges in its place: a custom scan, as EXPLAIN shows.
 * It asks the engine for the best rows of all partitions (merge_rows.c), and
 * fetches a row of a scan only when that may be the next one of all.
 *
 * What it merges are the Merge Append's own children, slots and sort keys, so
 * rows, conditions, columns and pruning are as there.  A row that was fetched
 * is handed on once no other child can have a row that comes before it: each
 * has one fetched, or its next row has a greater distance, or the same one in
 * a table with a greater oid.  Sort keys decide between rows that were
 * fetched, then oids.  (Sort keys may be made of the distance: orders.c.  Then
 * they grow with it, or stay.  In a UNION ALL each branch may have another
 * one: that is left to the Merge Append.)  Children of another kind are
 * fetched first, as in a Merge Append.
 *
 * The costs of each scan include a round trip to the engine.  Here there is
 * one, which makes a difference where partitions are small and many.  So where
 * this node gives the order that a query asks for, it has a path with lower
 * costs beside the others.  It is put above other Merge Appends, those below
 * a window for instance, when all paths are made and costed.
 *
 * When a row is checked again, after a wait for its lock, the children hand
 * out just that row: then the Merge Append runs by itself.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "executor/execPartition.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "index/custom_node.h"
#include "index/merge.h"
#include "lib/binaryheap.h"
#include "mirror/describe/costs.h"
#include "miscadmin.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "parser/parsetree.h"
#include "utils/sortsupport.h"

typedef struct MergeState
{
	CustomScanState css;		/* custom_ps: the Merge Append */
	MergeAppendState *append;
	MergeRows  *rows;			/* NULL: the Merge Append runs by itself */
	bool		begun;			/* this (re)scan */
	binaryheap *fetched;		/* children with a row */
	binaryheap *waiting;		/* children of which a row is to be fetched,
								 * by bounds[] */
	double	   *bounds;			/* of their next rows, when they came here */
	MirrorUsage used;			/* by all requests, also of the children */
} MergeState;

static Plan *plan_merge(PlannerInfo *root, RelOptInfo *rel, struct CustomPath *path, List *tlist,
						List *clauses, List *custom_plans);
static Node *create_state(CustomScan *scan);

static const CustomPathMethods path_methods = {
	.CustomName = "gpuvec merge",
	.PlanCustomPath = plan_merge,
};

static const CustomScanMethods scan_methods = {
	.CustomName = "gpuvec merge",
	.CreateCustomScanState = create_state,
};

/* ---- planning ---- */

/* True for a path of one of our indexes that orders, without conditions */
static bool
is_member(const Path *path)
{
	if (IsA(path, ProjectionPath))
		path = ((const ProjectionPath *) path)->subpath;
	return IsA(path, IndexPath) && ((const IndexPath *) path)->indexorderbys != NIL &&
		((const IndexPath *) path)->indexclauses == NIL &&
		GpuvecIsOurIndex(((const IndexPath *) path)->indexinfo);
}

/*
 * The children of a Merge Append that go together.  They are those of a table.
 * None is sorted by itself: only a Merge Append tells a sort how many rows are
 * wanted.
 */
static int
count_members(PlannerInfo *root, const MergeAppendPath *append)
{
	const RelOptInfo *rel = append->path.parent;
	int			n = 0;
	ListCell   *cell;

	if (rel->reloptkind != RELOPT_BASEREL || planner_rt_fetch(rel->relid, root)->rtekind != RTE_RELATION)
		return 0;
	foreach(cell, append->subpaths)
	{
		if (!pathkeys_contained_in(append->path.pathkeys, ((Path *) lfirst(cell))->pathkeys))
			return 0;
		n += is_member(lfirst(cell));
	}
	return n;
}

/*
 * Where a path has the path that its rows come from, in their order; NULL: it
 * has not one
 */
static Path **
path_below(Path *path)
{
	switch (nodeTag(path))
	{
		case T_NestPath:
			return &((JoinPath *) path)->outerjoinpath;
		case T_ProjectionPath:
			return &((ProjectionPath *) path)->subpath;
		case T_ProjectSetPath:
			return &((ProjectSetPath *) path)->subpath;
		case T_IncrementalSortPath:
			return &((SortPath *) path)->subpath;
		case T_GroupPath:
			return &((GroupPath *) path)->subpath;
		case T_GpuvecUniquePath:
			return &((GpuvecUniquePath *) path)->subpath;
		case T_AggPath:
			return &((AggPath *) path)->subpath;
		case T_WindowAggPath:
			return &((WindowAggPath *) path)->subpath;
		case T_LockRowsPath:
			return &((LockRowsPath *) path)->subpath;
		case T_LimitPath:
			return &((LimitPath *) path)->subpath;
		default:
			return NULL;
	}
}

/* A path with the node above its Merge Append, if it has one of ours */
static Path *
with_merge(PlannerInfo *root, Path *path)
{
	Path	  **below = path_below(path);

	if (IsA(path, MergeAppendPath) && count_members(root, (MergeAppendPath *) path) > 1)
		return CustomNodePath(path, &path_methods);
	if (below != NULL)
		*below = with_merge(root, *below);
	return path;
}

void
MergePutInto(PlannerInfo *root, RelOptInfo *final)
{
	ListCell   *cell;

	foreach(cell, final->pathlist)
		lfirst(cell) = with_merge(root, lfirst(cell));
}

/*
 * Add the paths of partitions that have this order, each the cheapest by this
 * criterion, those of their own partitions in their place.  False: a partition
 * has none.
 */
static bool
add_ordered(const RelOptInfo *rel, List *pathkeys, CostSelector criterion, List **paths)
{
	for (int i = 0; i < rel->nparts; i++)
	{
		RelOptInfo *part = rel->part_rels[i];
		Path	   *path;

		if (part == NULL || IS_DUMMY_REL(part))
			continue;
		path = get_cheapest_path_for_pathkeys(part->pathlist, pathkeys, NULL, criterion, false);
		if (path == NULL)
			return false;
		if (IsA(path, MergeAppendPath))
			*paths = list_concat(*paths, ((MergeAppendPath *) path)->subpaths);
		else
			*paths = lappend(*paths, path);
	}
	return true;
}

/* Add the path of a merge of these paths, if it is worth it */
static void
add_merge(PlannerInfo *root, RelOptInfo *input, RelOptInfo *output, List *paths)
{
	PathTarget *target = root->upper_targets[UPPERREL_ORDERED];
	MergeAppendPath *append;
	Path	   *path;
	Cost		saved;
	int			n = 0;
	ListCell   *cell;

	foreach(cell, paths)
		n += is_member(lfirst(cell));
	if (n < 2)
		return;
	append = GpuvecMergeAppendPath(root, input, paths, root->sort_pathkeys);
	if (count_members(root, append) < 2)
		return;
	path = CustomNodePath(&append->path, &path_methods);
	saved = Min((n - 1) * CostsTripOperators() * cpu_operator_cost, path->startup_cost);
	path->startup_cost -= saved;
	path->total_cost -= saved;
	if (path->pathtarget != target)
		path = apply_projection_to_path(root, output, path, target);
	add_path(output, path);
}

/*
 * The Merge Append itself is made anew, of the partitions' paths.  The one in
 * the input's list may be gone: add_path() frees a path that costs more than
 * another, and the server gives it the input's own paths.
 */
void
MergeAddPaths(PlannerInfo *root, RelOptInfo *input, RelOptInfo *output)
{
	static const CostSelector criteria[] = {STARTUP_COST, TOTAL_COST};

	if (root->sort_pathkeys == NIL || !IS_SIMPLE_REL(input) || !IS_PARTITIONED_REL(input))
		return;
	for (int i = 0; i < lengthof(criteria); i++)
	{
		List	   *paths = NIL;

		if (add_ordered(input, root->sort_pathkeys, criteria[i], &paths))
			add_merge(root, input, output, paths);
	}
}

/*
 * PlanCustomPath.  The server puts a node above a Merge Append to drop its
 * sort keys, if they are no columns of its rows; here they stay.
 */
static Plan *
plan_merge(PlannerInfo *root, RelOptInfo *rel, struct CustomPath *path, List *tlist, List *clauses,
		   List *custom_plans)
{
	Plan	   *append = linitial(custom_plans);

	if (IsA(append, Result))
		append = outerPlan(append);
	return CustomNodePlan(path, tlist, append, &scan_methods);
}

/* ---- execution ---- */

/* In the order of the tables' oids; the first one is the greatest */
static int
compare_tables(const MergeState *state, int a, int b)
{
	Oid			x = MergeRowsTable(state->rows, a);
	Oid			y = MergeRowsTable(state->rows, b);

	return x < y ? 1 : x > y ? -1 : 0;
}

/* binaryheap comparator: the child whose row may come first is the greatest */
static int
compare_waiting(Datum a, Datum b, void *arg)
{
	const MergeState *state = arg;
	double		x = state->bounds[DatumGetInt32(a)];
	double		y = state->bounds[DatumGetInt32(b)];

	if (x != y)
		return x < y ? 1 : -1;
	return compare_tables(state, DatumGetInt32(a), DatumGetInt32(b));
}

/* binaryheap comparator: the child whose row comes first is the greatest */
static int
compare_fetched(Datum a, Datum b, void *arg)
{
	const MergeState *state = arg;
	const MergeAppendState *append = state->append;

	for (int i = 0; i < append->ms_nkeys; i++)
	{
		SortSupport key = &append->ms_sortkeys[i];
		Datum		values[2];
		bool		nulls[2];
		int			order;

		values[0] = slot_getattr(append->ms_slots[DatumGetInt32(a)], key->ssup_attno, &nulls[0]);
		values[1] = slot_getattr(append->ms_slots[DatumGetInt32(b)], key->ssup_attno, &nulls[1]);
		order = ApplySortComparator(values[0], nulls[0], values[1], nulls[1], key);
		if (order != 0)
			return -order;
	}
	return compare_tables(state, DatumGetInt32(a), DatumGetInt32(b));
}

static void
begin(CustomScanState *node, EState *estate, int eflags)
{
	MergeState *state = (MergeState *) node;

	CustomNodeBegin(node, estate, eflags);
	state->append = castNode(MergeAppendState, CustomNodeBelow(node));
	if (eflags & EXEC_FLAG_EXPLAIN_ONLY)
		return;
	state->rows = MergeRowsBegin(state->append);
	state->bounds = palloc0_array(double, state->append->ms_nplans);
	state->waiting = binaryheap_allocate(state->append->ms_nplans, compare_waiting, state);
	state->fetched = binaryheap_allocate(state->append->ms_nplans, compare_fetched, state);
}

/* Let a child wait until its next row may be that of all */
static void
await_child(MergeState *state, int child)
{
	state->bounds[child] = MergeRowsBound(state->rows, child);
	binaryheap_add(state->waiting, Int32GetDatum(child));
}

/* Begin a (re)scan, with the children that run-time pruning leaves */
static void
begin_merge(MergeState *state)
{
	MergeAppendState *append = state->append;
	int			child = -1;

	if (append->ms_valid_subplans == NULL)
		append->ms_valid_subplans = GpuvecFindMatchingSubPlans(append->ms_prune_state);
	MergeRowsAsk(state->rows, append->ms_valid_subplans);
	binaryheap_reset(state->waiting);
	binaryheap_reset(state->fetched);
	while ((child = bms_next_member(append->ms_valid_subplans, child)) >= 0)
		await_child(state, child);
	state->begun = true;
}

/* The distance of the first row that was fetched */
static double
first_distance(const MergeState *state)
{
	return MergeRowsDistance(state->rows, DatumGetInt32(binaryheap_first(state->fetched)));
}

/*
 * True if the next row of a child, which has this bound, may come before all
 * that were fetched
 */
static bool
may_come_first(const MergeState *state, int child, double bound)
{
	double		distance;

	if (binaryheap_empty(state->fetched))
		return true;
	distance = first_distance(state);
	if (bound != distance || isinf(distance))
		return bound <= distance;
	return compare_tables(state, child, DatumGetInt32(binaryheap_first(state->fetched))) >= 0;
}

/*
 * The child whose row has to be fetched before one is handed on; -1: there is
 * none
 */
static int
next_to_fetch(MergeState *state)
{
	while (!binaryheap_empty(state->waiting))
	{
		int			child = DatumGetInt32(binaryheap_first(state->waiting));
		double		bound = MergeRowsBound(state->rows, child);

		/* more may be known by now */
		if (bound > state->bounds[child])
		{
			state->bounds[child] = bound;
			binaryheap_replace_first(state->waiting, Int32GetDatum(child));
		}
		else if (!may_come_first(state, child, bound))
			return -1;
		else if (!MergeRowsAskMore(state->rows, child))
			return child;
	}
	return -1;
}

/* Fetch the next row of a child */
static void
fetch(MergeState *state, int child)
{
	bool		alone = !binaryheap_empty(state->fetched) && isinf(first_distance(state));
	TupleTableSlot *row = MergeRowsFetch(state->rows, child, alone);

	state->append->ms_slots[child] = row;
	if (row != NULL)
		binaryheap_add(state->fetched, Int32GetDatum(child));
}

/* The next row of all; NULL: there is none */
static TupleTableSlot *
merge(MergeState *state)
{
	int			child;

	if (!state->begun)
		begin_merge(state);
	else if (!binaryheap_empty(state->fetched))
		await_child(state, DatumGetInt32(binaryheap_remove_first(state->fetched)));
	while ((child = next_to_fetch(state)) >= 0)
	{
		CHECK_FOR_INTERRUPTS();
		(void) binaryheap_remove_first(state->waiting);
		fetch(state, child);
	}
	if (binaryheap_empty(state->fetched))
		return NULL;
	return state->append->ms_slots[DatumGetInt32(binaryheap_first(state->fetched))];
}

/*
 * ExecCustomScan.  For EXPLAIN ANALYZE, rows that are merged in the place of
 * the Merge Append count as its own.
 */
static TupleTableSlot *
next_row(CustomScanState *node)
{
	MergeState *state = (MergeState *) node;
	PlanState  *below = CustomNodeBelow(node);
	MirrorUsage before = MirrorUsed;
	TupleTableSlot *row;

	if (state->rows == NULL || node->ss.ps.state->es_epq_active != NULL)
		return CustomNodeRow(node, ExecProcNode(below));
	if (below->chgParam != NULL)
		ExecReScan(below);
	if (below->instrument)
		InstrStartNode(below->instrument);
	row = merge(state);
	if (below->instrument)
		InstrStopNode(below->instrument, row ? 1.0 : 0.0);
	MirrorUsageAdd(&state->used, &before);
	return CustomNodeRow(node, row);
}

static void
rescan(CustomScanState *node)
{
	((MergeState *) node)->begun = false;
	CustomNodeRescan(node);
}

/* ExplainCustomScan */
static void
explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
	const MergeState *state = (const MergeState *) node;

	if (es->analyze && state->rows != NULL)
		MirrorUsageExplain(&state->used, es);
}

static const CustomExecMethods exec_methods = {
	.CustomName = "gpuvec merge",
	.BeginCustomScan = begin,
	.ExecCustomScan = next_row,
	.EndCustomScan = CustomNodeEnd,
	.ReScanCustomScan = rescan,
	.ExplainCustomScan = explain,
};

static Node *
create_state(CustomScan *scan)
{
	return CustomNodeState(sizeof(MergeState), &exec_methods);
}

void
MergeInit(void)
{
	RegisterCustomScanMethods(&scan_methods);
}
