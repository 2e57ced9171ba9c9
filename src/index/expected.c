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
 * plan's scan has, too.  When a statement begins, its scans look there.  A
 * number that was overwritten, or is another path's, makes a scan slower or
 * faster, but never wrong.
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

/* A scan of a statement that begins */
typedef struct Beginning
{
	dlist_node	link;			/* in beginnings */
	PlanState  *node;
	ExecProcNodeMtd next_row;	/* the node's own function */
	uint32		first;
} Beginning;

static Noted noted[REMEMBERED];
static uint32 last_noted = 0;
static bool any_noted = false;
static dlist_head beginnings = DLIST_STATIC_INIT(beginnings);

/* For the scan of an index that begins next */
static Oid	next_index = InvalidOid;
static uint32 next_first = 0;

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
ExpectedFirst(Oid index)
{
	uint32		first = next_index == index ? next_first : 0;

	next_index = InvalidOid;
	return Max(first, GPUVEC_FIRST_BATCH);
}

/*
 * The function of a scan that begins: tell how many rows it is expected to
 * rank, and give it back its own function
 */
static TupleTableSlot *
begin(PlanState *node)
{
	dlist_iter	i;

	dlist_foreach(i, &beginnings)
	{
		Beginning  *beginning = dlist_container(Beginning, link, i.cur);

		if (beginning->node != node)
			continue;
		next_index = RelationGetRelid(((IndexScanState *) node)->iss_RelationDesc);
		next_first = beginning->first;
		ExecSetExecProcNode(node, beginning->next_row);
		return beginning->next_row(node);
	}
	elog(ERROR, "index scan is not known");
	return NULL;
}

/* Memory context callback: a statement ends, however it does */
static void
forget(void *arg)
{
	dlist_delete(&((Beginning *) arg)->link);
}

/* Have a scan begin with what was noted of its path */
static void
expect(PlanState *node, uint32 first)
{
	MemoryContext context = node->state->es_query_cxt;
	Beginning  *beginning = MemoryContextAllocZero(context, sizeof(Beginning));
	MemoryContextCallback *callback = MemoryContextAllocZero(context, sizeof(MemoryContextCallback));

	beginning->node = node;
	beginning->next_row = node->ExecProcNodeReal;
	beginning->first = first;
	callback->func = forget;
	callback->arg = beginning;
	dlist_push_head(&beginnings, &beginning->link);
	MemoryContextRegisterResetCallback(context, callback);
	ExecSetExecProcNode(node, begin);
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
			expect(node, note->first);
	}
	return planstate_tree_walker(node, look_at, arg);
}

void
ExpectedBegin(PlanState *node)
{
	if (any_noted && node != NULL)
		look_at(node, NULL);
}
