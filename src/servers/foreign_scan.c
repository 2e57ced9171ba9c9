/*-------------------------------------------------------------------------
 *
 * foreign_scan.c
 *	  Run statements on servers over the connections of postgres_fdw.
 *
 * A search on another server must be part of this transaction: it sees what
 * the transaction changed there, with one snapshot, by the user mapping of
 * the current user, and it ends when the transaction is canceled.  All this
 * belongs to the connections of postgres_fdw, whose functions are hidden in
 * its library.  What it offers to the public are the functions of a foreign
 * scan.  So a plan is made whose foreign scans carry our statements in place
 * of the ones that postgres_fdw deparses, and the executor runs it.  That is
 * how postgres_fdw itself scans joins and aggregates: the scan has no relation
 * of its own, its rows have the types of fdw_scan_tlist, and fdw_private
 * lists the statement, the numbers of the columns that it returns, and the
 * number of rows to fetch at a time.  This layout is the same in PostgreSQL
 * 13 to 19.
 *
 * The scans lie under an Append node, which asks all servers before it waits
 * for one of them (from PostgreSQL 14 on).  While they work, the caller does
 * its own part.
 *
 * The routines of each scan are replaced by ours, which call those of
 * postgres_fdw.  They take the rows right away, so the Append node returns
 * none, and they add the name of the server to errors.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "executor/executor.h"
#include "foreign/fdwapi.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "servers/foreign.h"
#include "servers/foreign_connect.h"
#include "tcop/dest.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

/* Rows of one FETCH, at most: they are in memory all at once */
#define MAX_FETCH	10000

/* What all scans of a run share */
typedef struct Run
{
	void		(*meanwhile) (void *arg);	/* NULL: nothing left to do */
	void	   *arg;
	MemoryContext context;		/* of the caller */
	int			n;				/* number of scans */
	int			asked;			/* this many servers have been asked */
} Run;

/* The routines of one scan: ours, and in front of them those they call */
typedef struct ScanRoutine
{
	FdwRoutine	routine;		/* must be first: it is the node's fdwroutine */
	const FdwRoutine *original;
	const ForeignStatement *statement;
	Run		   *run;
} ScanRoutine;

/*
 * True for a foreign table whose server belongs to postgres_fdw: nothing else
 * has a handler of this name in an extension of this name
 */
bool
ForeignCanAsk(Relation rel)
{
#if PG_VERSION_NUM < 200000
	Oid			handler;
	Oid			extension;
	char	   *name;

	if (rel->rd_rel->relkind != RELKIND_FOREIGN_TABLE)
		return false;
	handler = GetForeignDataWrapper(GetForeignServer(GetForeignServerIdByRelId(RelationGetRelid(rel)))->fdwid)->fdwhandler;
	if (!OidIsValid(handler))
		return false;
	name = get_func_name(handler);
	extension = get_extension_oid("postgres_fdw", true);
	return name != NULL && strcmp(name, "postgres_fdw_handler") == 0 && OidIsValid(extension) &&
		getExtensionOfObject(ProcedureRelationId, handler) == extension;
#else
	/* the layout of fdw_private is not known */
	return false;
#endif
}

/* Add a column of this type to the row type of a statement */
List *
ForeignAddColumn(List *tlist, Oid type)
{
	Const	   *column = makeNullConst(type, -1, get_typcollation(type));

	return lappend(tlist, makeTargetEntry((Expr *) column, list_length(tlist) + 1, NULL, false));
}

/*
 * Add a column of a foreign table.  If a value cannot be read, the error
 * names it.  The table's place in the range table is set by make_scan().
 */
List *
ForeignAddAttribute(List *tlist, Relation rel, AttrNumber attnum)
{
	Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(rel), attnum - 1);
	Var		   *column = makeVar(0, attnum, attribute->atttypid, attribute->atttypmod,
								 attribute->attcollation, 0);

	return lappend(tlist, makeTargetEntry((Expr *) column, list_length(tlist) + 1,
										  pstrdup(NameStr(attribute->attname)), false));
}

/* ---- the plan ---- */

/* The range table entry of a foreign table; errors name its columns */
static RangeTblEntry *
make_entry(const ForeignLeaf *leaf)
{
	RangeTblEntry *entry = makeNode(RangeTblEntry);
	TupleDesc	desc = RelationGetDescr(leaf->rel);
	List	   *names = NIL;

	for (int i = 0; i < desc->natts; i++)
		names = lappend(names, makeString(pstrdup(NameStr(TupleDescAttr(desc, i)->attname))));
	entry->rtekind = RTE_RELATION;
	entry->relid = RelationGetRelid(leaf->rel);
	entry->relkind = RELKIND_FOREIGN_TABLE;
	entry->rellockmode = AccessShareLock;
	entry->eref = makeAlias(RelationGetRelationName(leaf->rel), names);
	entry->inFromCl = true;
	return entry;
}

/* The columns of a scan, as its own target list refers to them */
static List *
make_targets(List *tlist)
{
	List	   *targets = NIL;
	ListCell   *cell;

	foreach(cell, tlist)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, cell);
		Var		   *var = makeVarFromTargetEntry(INDEX_VAR, entry);

		targets = lappend(targets, makeTargetEntry((Expr *) var, entry->resno, NULL, false));
	}
	return targets;
}

/* A foreign scan that runs a statement; rti is its foreign table */
static Plan *
make_scan(const ForeignStatement *statement, Index rti)
{
	ForeignScan *scan = makeNode(ForeignScan);
	List	   *numbers = NIL;
	ListCell   *cell;

	foreach(cell, statement->tlist)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, cell);

		if (IsA(entry->expr, Var))
			((Var *) entry->expr)->varno = rti;
		numbers = lappend_int(numbers, entry->resno);
	}
	scan->scan.plan.targetlist = make_targets(statement->tlist);
	scan->operation = CMD_SELECT;
	scan->fs_server = statement->leaf->server;
	scan->fdw_scan_tlist = statement->tlist;
	/* one row more than expected: then the first FETCH is the last */
	scan->fdw_private = list_make3(makeString(statement->sql), numbers,
								   makeInteger((int) Min(statement->nrows, MAX_FETCH - 1) + 1));
	if (statement->parameter)
		scan->fdw_exprs = list_make1(makeConst(TEXTOID, -1, DEFAULT_COLLATION_OID, -1,
											   CStringGetTextDatum(statement->parameter), false, false));
	scan->fs_relids = bms_make_singleton(rti);
#if PG_VERSION_NUM >= 160000
	scan->fs_base_relids = bms_make_singleton(rti);
#endif
#if PG_VERSION_NUM >= 140000
	scan->scan.plan.async_capable = true;
#endif
	return (Plan *) scan;
}

/* A plan that runs all statements */
static PlannedStmt *
make_plan(const ForeignStatement *statements, int n)
{
	PlannedStmt *plan = makeNode(PlannedStmt);
	Append	   *append = makeNode(Append);

	for (int i = 0; i < n; i++)
	{
		plan->rtable = lappend(plan->rtable, make_entry(statements[i].leaf));
		append->appendplans = lappend(append->appendplans, make_scan(&statements[i], i + 1));
	}
	append->plan.targetlist = make_targets(statements[0].tlist);
	append->first_partial_plan = n;
#if PG_VERSION_NUM >= 140000
	append->nasyncplans = n;
#endif
#if PG_VERSION_NUM >= 180000
	append->part_prune_index = -1;
#endif
	plan->commandType = CMD_SELECT;
	plan->canSetTag = true;
	plan->planTree = (Plan *) append;
	plan->stmt_location = -1;
	return plan;
}

/* ---- the routines ---- */

/*
 * Take all rows that the server has sent.  Returns an empty slot: so, as far
 * as the executor knows, there were none.
 */
static TupleTableSlot *
iterate_scan(ForeignScanState *node)
{
	const ScanRoutine *scan = (ScanRoutine *) node->fdwroutine;
	ErrorContextCallback callback;
	TupleTableSlot *slot;

	ForeignEnter(&callback, scan->statement->leaf);
	for (;;)
	{
		MemoryContext old;

		CHECK_FOR_INTERRUPTS();
		slot = scan->original->IterateForeignScan(node);
		if (TupIsNull(slot))
			break;
		slot_getallattrs(slot);
		old = MemoryContextSwitchTo(scan->run->context);
		scan->statement->take(slot, scan->statement->arg);
		MemoryContextSwitchTo(old);
	}
	error_context_stack = callback.previous;
	return slot;
}

static void
end_scan(ForeignScanState *node)
{
	const ScanRoutine *scan = (ScanRoutine *) node->fdwroutine;
	ErrorContextCallback callback;

	ForeignEnter(&callback, scan->statement->leaf);
	scan->original->EndForeignScan(node);
	error_context_stack = callback.previous;
}

/* Do the caller's own part, unless that is done */
static void
do_meanwhile(Run *run)
{
	void		(*meanwhile) (void *arg) = run->meanwhile;
	MemoryContext old;

	if (meanwhile == NULL)
		return;
	run->meanwhile = NULL;
	old = MemoryContextSwitchTo(run->context);
	meanwhile(run->arg);
	MemoryContextSwitchTo(old);
}

#if PG_VERSION_NUM >= 140000
/* Call an asynchronous routine of postgres_fdw */
static void
call_async(AsyncRequest *request, void (*routine) (AsyncRequest *request))
{
	const ScanRoutine *scan = (ScanRoutine *) ((ForeignScanState *) request->requestee)->fdwroutine;
	ErrorContextCallback callback;

	ForeignEnter(&callback, scan->statement->leaf);
	routine(request);
	error_context_stack = callback.previous;
}

static const ScanRoutine *
routine_of(AsyncRequest *request)
{
	return (ScanRoutine *) ((ForeignScanState *) request->requestee)->fdwroutine;
}

/*
 * The executor asks all servers, one after the other, before it waits.  After
 * the last one, the caller does its own part.
 */
static void
request_async(AsyncRequest *request)
{
	Run		   *run = routine_of(request)->run;

	call_async(request, routine_of(request)->original->ForeignAsyncRequest);
	if (++run->asked == run->n)
		do_meanwhile(run);
}

static void
configure_wait(AsyncRequest *request)
{
	call_async(request, routine_of(request)->original->ForeignAsyncConfigureWait);
}

static void
notify_async(AsyncRequest *request)
{
	call_async(request, routine_of(request)->original->ForeignAsyncNotify);
}
#endif

/* Have a scan call our routines */
static void
replace_routine(ForeignScanState *node, const ForeignStatement *statement, Run *run)
{
	ScanRoutine *scan = palloc_object(ScanRoutine);

	scan->original = node->fdwroutine;
	scan->routine = *node->fdwroutine;
	scan->routine.IterateForeignScan = iterate_scan;
	scan->routine.EndForeignScan = end_scan;
#if PG_VERSION_NUM >= 140000
	scan->routine.ForeignAsyncRequest = request_async;
	scan->routine.ForeignAsyncConfigureWait = configure_wait;
	scan->routine.ForeignAsyncNotify = notify_async;
#endif
	scan->statement = statement;
	scan->run = run;
	node->fdwroutine = &scan->routine;
}

/*
 * Run all statements at once, one for each leaf, until all rows are taken.
 * meanwhile(arg), unless NULL, is called once, when all servers are asked.
 */
void
ForeignRun(const ForeignStatement *statements, int n, void (*meanwhile) (void *arg), void *arg)
{
	Run			run = {meanwhile, arg, CurrentMemoryContext, n};
	QueryDesc  *query;
	AppendState *append;

	for (int i = 0; i < n; i++)
		(void) ForeignMapping(statements[i].leaf);
	if (n > 0 && statements[0].leaf->own)
	{
		ForeignAsk(statements, n, meanwhile, arg);
		return;
	}
	if (n > 0)
	{
		ForeignNoteOthers();
		query = CreateQueryDesc(make_plan(statements, n), "search of foreign tables",
								GetActiveSnapshot(), InvalidSnapshot, None_Receiver, NULL, NULL, 0);
		standard_ExecutorStart(query, 0);
		append = castNode(AppendState, query->planstate);
		for (int i = 0; i < n; i++)
			replace_routine(castNode(ForeignScanState, append->appendplans[i]), &statements[i], &run);
#if PG_VERSION_NUM >= 180000
		standard_ExecutorRun(query, ForwardScanDirection, 0);
#else
		standard_ExecutorRun(query, ForwardScanDirection, 0, true);
#endif
		standard_ExecutorFinish(query);
		standard_ExecutorEnd(query);
		FreeQueryDesc(query);
	}
	do_meanwhile(&run);
}
