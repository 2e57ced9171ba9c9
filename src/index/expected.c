/*-------------------------------------------------------------------------
 *
 * expected.c
 *	  How many rows an ordered scan is expected to rank.
 *
 * A condition on a column that is not in the index is evaluated by the
 * executor.  ORDER BY ... LIMIT 10 with one that a row in a thousand
 * satisfies needs about 10,000 rows of the index.  Batches that grow from
 * GPUVEC_FIRST_BATCH on get there after four requests, the last of which is
 * for 65,536 rows.  The planner knows better: while a path is estimated, it
 * tells how many rows satisfy all conditions, how many come out of the index,
 * and what limit there is.  From that follows how many rows to ask for first.
 *
 * A plan has no place for such a number, and plans are kept.  So it is noted
 * in this session, by the index and the number of rows of the path, which the
 * plan's scan has, too.  When a statement begins, its scans are looked up
 * there.  When one of them begins, it knows its node by the node's keys of the
 * order, which the executor hands it.  A number that was overwritten, or is
 * another path's, makes a scan slower or faster, but never wrong.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "executor/executor.h"
#include "index/index_am.h"
#include "lib/ilist.h"
#include "nodes/nodeFuncs.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* Most rows to ask for first: estimates may be wrong */
#define MOST_FIRST		32768

/* Paths to remember; the oldest one is overwritten */
#define REMEMBERED		64

/* What was noted of a path */
typedef struct Noted
{
	Oid			index;
	double		rows;			/* of the path */
	uint32		first;			/* rows to ask for first */
} Noted;

/* A scan of a statement that runs */
typedef struct Expected
{
	dlist_node	link;			/* in expected */
	const IndexScanState *scan;
	uint32		first;
} Expected;

static Noted noted[REMEMBERED];
static uint32 last_noted = 0;
static bool any_noted = false;
static dlist_head expected = DLIST_STATIC_INIT(expected);

/* The note of a path, or NULL */
static Noted *
find(Oid index, double rows)
{
	for (uint32 i = 0; i < REMEMBERED; i++)
		if (noted[i].index == index && noted[i].rows == rows)
			return &noted[i];
	return NULL;
}

/*
 * Adds two standard deviations, so that one request mostly suffices (as in
 * MirrorRowsToLookAt)
 */
void
ExpectedNote(Oid index, double rows, double ranked, double limit)
{
	double		first = (limit + 2 * sqrt(Max(limit, 0))) * ranked / Max(rows, 1) + 1;
	Noted	   *note = find(index, rows);

	if (limit <= 0 || first <= GPUVEC_FIRST_BATCH)
	{
		if (note != NULL)
			note->index = InvalidOid;
		return;
	}
	if (note == NULL)
		note = &noted[last_noted++ % REMEMBERED];
	note->index = index;
	note->rows = rows;
	note->first = (uint32) Min(first, MOST_FIRST);
	any_noted = true;
}

uint32
ExpectedFirst(const ScanKeyData *orderbys)
{
	dlist_iter	i;

	dlist_foreach(i, &expected)
	{
		const Expected *one = dlist_container(Expected, link, i.cur);

		if (one->scan->iss_OrderByKeys == orderbys)
			return one->first;
	}
	return GPUVEC_FIRST_BATCH;
}

/* Memory context callback: a statement ends, however it does */
static void
forget(void *arg)
{
	dlist_delete(&((Expected *) arg)->link);
}

/* Have a scan begin with what was noted of its path */
static void
expect(const IndexScanState *scan, uint32 first)
{
	MemoryContext context = scan->ss.ps.state->es_query_cxt;
	Expected   *one = MemoryContextAllocZero(context, sizeof(Expected));
	MemoryContextCallback *callback = MemoryContextAllocZero(context, sizeof(MemoryContextCallback));

	one->scan = scan;
	one->first = first;
	callback->func = forget;
	callback->arg = one;
	dlist_push_head(&expected, &one->link);
	MemoryContextRegisterResetCallback(context, callback);
}

/* planstate_tree_walker: look for scans whose paths were noted */
static bool
look_at(PlanState *node, void *arg)
{
	if (GpuvecIsOrderedScan(node))
	{
		const Noted *note = find(RelationGetRelid(((IndexScanState *) node)->iss_RelationDesc),
								 node->plan->plan_rows);

		if (note != NULL)
			expect((IndexScanState *) node, note->first);
	}
	return planstate_tree_walker(node, look_at, arg);
}

void
ExpectedBegin(PlanState *node)
{
	if (any_noted && node != NULL)
		look_at(node, NULL);
}
