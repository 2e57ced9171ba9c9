/*-------------------------------------------------------------------------
 *
 * siblings.c
 *	  The first rows of all index scans below a Merge Append, by one request.
 *
 * ORDER BY a distance LIMIT k, of a table with partitions, is a Merge Append
 * of an index scan for each partition.  It begins with the first row of each
 * scan.  When the first of these scans begins, one request asks the engine
 * for the first rows of all of them (search_partitions.c).  Few are needed of
 * each scan, unless rows are expected to fail a condition (expected.c): then
 * each scan gets its share of what a scan of all rows would begin with.  A
 * scan that needs more goes on by itself, and so does one whose mirror could
 * not be asked with the others.
 *
 * When a plan starts, its Merge Appends are looked up, and their scans noted:
 * no other place tells which scans belong together.  That the others will be
 * for the same query is a guess.  So a scan takes the rows that were found
 * for it only if they are of its own query, measure and snapshot, and once.
 * Then they are the answer to the request that it would have made, as the
 * mirror was fresh for this snapshot, and rows that come later are of no
 * concern to it.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "access/relscan.h"
#include "executor/executor.h"
#include "index/knn_scan.h"
#include "mirror/ask/search_partitions.h"
#include "nodes/nodeFuncs.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* Rows to ask for, of each scan, unless more are expected to be needed */
#define SIBLING_ROWS	6

typedef struct Sibling
{
	IndexScanState *node;
	bool		asked;			/* by the last request, which it has not heard
								 * of yet */
	bool		ready;			/* hits[] are its first rows, and not taken */
	uint32		nhits;
	MirrorHit  *hits;			/* NULL, or palloc'd */
} Sibling;

/* The scans of a Merge Append; lives in its query's memory */
typedef struct SiblingGroup
{
	struct SiblingGroup *next;
	MemoryContextCallback gone;
	MemoryContext context;
	int			n;
	int			last;			/* the scan that was looked up last */
	int			given;			/* scans with rows, by the last request; 0:
								 * there was none */
	int			taken;			/* how many of them took these */
	uint32		rows;			/* asked for, of each scan */
	gpuvec_measure measure;
	IdSet	   *query;
	Snapshot	snapshot;
	Sibling		members[FLEXIBLE_ARRAY_MEMBER];
} SiblingGroup;

/* Those of all queries that run in this session */
static SiblingGroup *groups = NULL;

/* A query's memory is freed: forget its group */
static void
forget_group(void *arg)
{
	SiblingGroup **link = &groups;

	while (*link != arg)
		link = &(*link)->next;
	*link = (*link)->next;
}

/* The node, if it is a scan by an index of ours that only orders; or NULL */
static IndexScanState *
ordered_scan(PlanState *node)
{
	IndexScanState *scan = (IndexScanState *) node;

	if (node == NULL || !IsA(node, IndexScanState) || !GpuvecIsOurs(scan->iss_RelationDesc) ||
		scan->iss_NumOrderByKeys != 1 || scan->iss_NumScanKeys != 0)
		return NULL;
	return scan;
}

/* Note the scans of a Merge Append, if there are several */
static void
note_group(MergeAppendState *append, MemoryContext context)
{
	Size		size = offsetof(SiblingGroup, members) + append->ms_nplans * sizeof(Sibling);
	SiblingGroup *group = MemoryContextAllocZero(context, size);

	for (int i = 0; i < append->ms_nplans; i++)
	{
		IndexScanState *scan = ordered_scan(append->mergeplans[i]);

		if (scan)
			group->members[group->n++].node = scan;
	}
	if (group->n < 2)
	{
		pfree(group);
		return;
	}
	group->context = context;
	group->gone.func = forget_group;
	group->gone.arg = group;
	group->next = groups;
	groups = group;
	MemoryContextRegisterResetCallback(context, &group->gone);
}

/* Find the Merge Appends of a plan */
static bool
find_groups(PlanState *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, MergeAppendState))
		note_group((MergeAppendState *) node, context);
	return planstate_tree_walker(node, find_groups, context);
}

void
SiblingsNote(QueryDesc *query)
{
	/* a table, and partitions of it */
	if (query->planstate != NULL && list_length(query->plannedstmt->rtable) > 2)
		(void) find_groups(query->planstate, query->estate->es_query_cxt);
}

/* Find a scan among those that were noted; or NULL */
static Sibling *
find_sibling(IndexScanDesc scan, SiblingGroup **found)
{
	for (SiblingGroup *group = groups; group != NULL; group = group->next)
		for (int i = 0; i < group->n; i++)
		{
			int			number = (group->last + i) % group->n;

			if (group->members[number].node->iss_ScanDesc != scan)
				continue;
			group->last = number;
			*found = group;
			return &group->members[number];
		}
	return NULL;
}

/* True if the rows of a group are of this scan's query */
static bool
is_same_query(const SiblingGroup *group, IndexScanDesc scan, const KnnState *state)
{
	return group->query != NULL && group->measure == state->measure &&
		group->snapshot == scan->xs_snapshot &&
		VARSIZE_ANY(group->query) == VARSIZE_ANY(state->query) &&
		memcmp(group->query, state->query, VARSIZE_ANY(state->query)) == 0;
}

/* Describe the mirrors of all scans of a group */
static MirrorTarget *
describe_group(const SiblingGroup *group)
{
	MirrorTarget *targets = palloc0_array(MirrorTarget, group->n);

	for (int i = 0; i < group->n; i++)
	{
		IndexScanState *node = group->members[i].node;

		MirrorDescribeIndex(node->ss.ss_currentRelation, node->iss_RelationDesc, &targets[i]);
		MirrorFollow(&targets[i]);
		/* as functions do: what is not rooted is searched by itself */
		if (!targets[i].key.rooted)
			targets[i].mode = MIRROR_NONE;
	}
	return targets;
}

/*
 * How many rows to ask for of each scan.  Rows lie where they like, so a scan
 * may need a few more than its share.
 */
static uint32
rows_of_each(const SiblingGroup *group, const KnnState *state)
{
	double		share = (double) state->first_batch / group->n;
	double		most = ceil(share + 2 * sqrt(share));

	if (state->first_batch <= GPUVEC_FIRST_BATCH || most < SIBLING_ROWS)
		return SIBLING_ROWS;
	return Min((uint32) most, state->first_batch);
}

/* Keep the rows that were found for each scan */
static void
keep_rows(SiblingGroup *group, MirrorPartitions *partitions, MirrorSearch *search)
{
	MirrorQuery *query = &search->queries[0];

	for (int i = 0; i < group->n; i++)
	{
		Sibling    *member = &group->members[i];

		query->hits = NULL;
		query->nhits = query->maxhits = 0;
		member->ready = MirrorPartitionsTake(partitions, i, search, NULL, NULL);
		if (!member->ready)
			continue;
		member->nhits = query->nhits;
		member->hits = MemoryContextAlloc(group->context,
										  Max(query->nhits, 1) * sizeof(MirrorHit));
		memcpy(member->hits, query->hits, query->nhits * sizeof(MirrorHit));
		group->given++;
	}
}

/* Forget the rows of the last request; each scan is told of the next one */
static void
begin_request(SiblingGroup *group)
{
	group->given = group->taken = 0;
	for (int i = 0; i < group->n; i++)
	{
		Sibling    *member = &group->members[i];

		member->asked = true;
		member->ready = false;
		if (member->hits)
			pfree(member->hits);
		member->hits = NULL;
	}
}

/* Ask for the first rows of all scans of a group */
static void
ask_group(SiblingGroup *group, IndexScanDesc scan, const KnnState *state)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec siblings",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	MirrorQuery query = state->wire;
	MirrorSearch search = state->search;
	MirrorPartitions *partitions;

	search.queries = &query;
	search.k = group->rows = rows_of_each(group, state);
	search.context = context;
	begin_request(group);
	if (group->query)
		pfree(group->query);
	group->query = NULL;
	partitions = MirrorPartitionsSearch(describe_group(group), group->n, &search, MIRROR_PARTITIONS_EACH);
	if (partitions)
	{
		keep_rows(group, partitions, &search);
		MirrorPartitionsEnd(partitions);
	}
	group->measure = state->measure;
	group->snapshot = scan->xs_snapshot;
	group->query = MemoryContextAlloc(group->context, VARSIZE_ANY(state->query));
	memcpy(group->query, state->query, VARSIZE_ANY(state->query));
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

bool
SiblingsFirstRows(IndexScanDesc scan, KnnState *state)
{
	SiblingGroup *group;
	Sibling    *member;

	if (groups == NULL || !state->search.roots || scan->numberOfKeys > 0 ||
		(member = find_sibling(scan, &group)) == NULL)
		return false;
	/* ask again if most scans have taken what they were given */
	if (!(member->asked && is_same_query(group, scan, state)) &&
		group->taken * 2 >= group->given)
		ask_group(group, scan, state);
	if (!member->asked || !is_same_query(group, scan, state))
		return false;
	member->asked = false;
	if (!member->ready)
		return false;
	member->ready = false;
	group->taken++;
	state->search.k = group->rows;
	MirrorSearchReset(&state->search);
	state->wire.hits = member->hits;
	state->wire.nhits = member->nhits;
	return true;
}
