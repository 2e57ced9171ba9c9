/*-------------------------------------------------------------------------
 *
 * coming.c
 *	  Queries of rescans to come, which are asked for together.
 *
 * In a lateral join an index scan begins anew for each row of the other side.
 * Each time it asks the engine one query.  Most of the time goes into the
 * trip, and a GPU has hardly anything to do.  So the rows to come are looked
 * at (joined.c), and the first rows of all their queries are asked for in one
 * request, when the first of these queries is needed.
 *
 * Only a query may take the answer that is the same: value, measure and
 * conditions.  It is looked for among those that are left, in order, since not
 * every row brings a rescan.  A query that is not there is asked alone.  A
 * request has one measure, that of the first row to come, as rows mostly have
 * the same.  (Where the right side names it, it may be another for each row.)
 *
 * An answer may be old when it is taken.  But rescans have one snapshot.  A
 * mirror that was as fresh as the snapshot needs had every row that it sees,
 * as with the batches of a single scan (ranked_rows.c), and the executor
 * looks at each row.  Later batches are asked for when they are needed.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/relscan.h"
#include "idset/idset.h"
#include "index/knn_scan.h"
#include "mirror/describe/mirror.h"
#include "utils/memutils.h"

/* Most rows of all first batches together */
#define MOST_ROWS		(256 * 1024)

/* Queries are kept until they take this much memory */
#define MOST_BYTES		(8 * 1024 * 1024)

void
KnnComingReset(IndexScanDesc scan, uint32 capacity)
{
	KnnState   *state = scan->opaque;
	KnnComing  *coming = &state->coming;

	if (coming->context == NULL)
		coming->context = AllocSetContextCreate(GetMemoryChunkContext(state),
												"gpuvec queries to come", ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(coming->context);
	capacity = Min(capacity, MOST_ROWS / state->first_batch);
	coming->queries = MemoryContextAllocZero(coming->context, capacity * sizeof(MirrorQuery));
	coming->capacity = capacity;
	coming->n = coming->next = 0;
	coming->asked = false;
}

/*
 * The scan's own keys are overwritten: a rescan gives it others before it is
 * used again
 */
bool
KnnComingAdd(IndexScanDesc scan, ScanKey keys, ScanKey orderbys)
{
	KnnComing  *coming = &((KnnState *) scan->opaque)->coming;
	MemoryContext old;
	GpuvecConditions *conditions;
	GpuvecOrder order;

	if (coming->n == coming->capacity ||
		MemoryContextMemAllocated(coming->context, false) >= MOST_BYTES)
		return false;
	old = MemoryContextSwitchTo(coming->context);
	conditions = palloc_object(GpuvecConditions);
	if (scan->numberOfKeys > 0)
		memcpy(scan->keyData, keys, scan->numberOfKeys * sizeof(ScanKeyData));
	memcpy(scan->orderByData, orderbys, scan->numberOfOrderBys * sizeof(ScanKeyData));
	KnnReadKeys(scan, conditions, &order);
	if (coming->n == 0)
		coming->scoring = order.scoring;
	if (order.value != NULL && !order.refused && !MirrorWantsNulls(&conditions->filter) &&
		GpuvecSameScoring(&order.scoring, &coming->scoring))
		KnnMakeQuery(&order, conditions, &coming->queries[coming->n++]);
	MemoryContextSwitchTo(old);
	return true;
}

/* True if two filters are the same; NULL: none */
static bool
same_filter(const gpuvec_filter *a, const gpuvec_filter *b)
{
	if (a == NULL || b == NULL)
		return a == b;
	return a->n == b->n && a->nvalues == b->nvalues &&
		memcmp(a->conditions, b->conditions, a->n * sizeof(gpuvec_condition)) == 0 &&
		(a->nvalues == 0 || memcmp(a->values, b->values, a->nvalues * sizeof(uint64)) == 0);
}

/* True if two queries ask for the same rows */
static bool
same_query(const MirrorQuery *a, const MirrorQuery *b)
{
	return GpuvecSameValue(a->value, b->value) && same_filter(a->filter, b->filter);
}

/* Ask for the first rows of all queries that are left */
static bool
ask(KnnState *state)
{
	KnnComing  *coming = &state->coming;
	MirrorSearch search = state->search;
	const char *reason = NULL;

	search.queries = coming->queries + coming->next;
	search.nqueries = coming->n - coming->next;
	search.context = coming->context;
	coming->asked = MirrorTopK(&state->target, &search, &reason);
	if (!coming->asked)
		coming->next = coming->n;	/* alone it tells why */
	return coming->asked;
}

bool
KnnComingTake(KnnState *state)
{
	KnnComing  *coming = &state->coming;
	uint32		next = coming->next;

	if (state->wire.resumes || !GpuvecSameScoring(&state->order.scoring, &coming->scoring))
		return false;
	while (next < coming->n && !same_query(&coming->queries[next], &state->wire))
		next++;
	if (next == coming->n)
		return false;
	coming->next = next;
	if (!coming->asked && (coming->n - next < 2 || !ask(state)))
		return false;
	state->wire = coming->queries[next];
	state->wire.value = state->order.value;
	state->wire.vector = state->order.vector;
	if (state->wire.filter != NULL)
		state->wire.filter = &state->conditions.filter;
	coming->next = next + 1;
	return true;
}
