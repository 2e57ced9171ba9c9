/*-------------------------------------------------------------------------
 *
 * explain.c
 *	  EXPLAIN ANALYZE of index scans.
 *
 * PostgreSQL 18 has a hook for each plan node.  Versions before have none, so
 * there an index scan shows what the server knows of it.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "index/index_am.h"
#include "index/knn_scan.h"

#if PG_VERSION_NUM >= 180000
#include "access/relscan.h"
#include "commands/explain.h"

static explain_per_node_hook_type previous_hook = NULL;

/* The scan of a plan node, if it is one of our indexes; else NULL */
static IndexScanDesc
index_scan(PlanState *node)
{
	IndexScanDesc scan = NULL;

	if (IsA(node, IndexScanState))
		scan = ((IndexScanState *) node)->iss_ScanDesc;
	else if (IsA(node, BitmapIndexScanState))
		scan = ((BitmapIndexScanState *) node)->biss_ScanDesc;
	return scan != NULL && GpuvecIsOurs(scan->indexRelation) ? scan : NULL;
}

/* explain_per_node_hook: show what the engine did for an index scan */
static void
explain_node(PlanState *node, List *ancestors, const char *relationship, const char *plan_name,
			 ExplainState *es)
{
	IndexScanDesc scan = es->analyze ? index_scan(node) : NULL;

	if (previous_hook)
		previous_hook(node, ancestors, relationship, plan_name, es);
	if (scan != NULL)
		MirrorUsageExplain(&((KnnState *) scan->opaque)->used, es);
}
#endif

/* Called once, when the library is loaded */
void
GpuvecExplainInit(void)
{
#if PG_VERSION_NUM >= 180000
	previous_hook = explain_per_node_hook;
	explain_per_node_hook = explain_node;
#endif
}
