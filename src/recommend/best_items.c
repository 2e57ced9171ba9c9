/*-------------------------------------------------------------------------
 *
 * best_items.c
 *	  gpuvec_recommend: the items with the highest scores for each user.
 *
 * The score is the inner product of both factors.  Users are searched for in
 * batches (best_users.c).  The answer is never in memory as a whole.
 *
 * With `among`, the factors of these items are gathered once, and this
 * process computes all their scores, by the same function as the engine.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "embedding/embedding_table.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "nodes/supportnodes.h"
#include "recommend/best_items.h"
#include "recommend/known_items.h"
#include "search/set_search.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(gpuvec_recommend);
PG_FUNCTION_INFO_V1(gpuvec_recommend_support);

/* Rows of the first batch */
#define FIRST_ROWS		1000

static const char *const required[N_ARGS] = {
	[ARG_USER_FACTORS] = "user_factors",[ARG_ITEM_FACTORS] = "item_factors",[ARG_K] = "k",
	[ARG_EXCLUDE_KNOWN] = "exclude_known"
};

/* ---- arguments ---- */

/* Open the table of items, with the caller's rights */
static EmbeddingTable *
open_items(const Recommending *call)
{
	const AlsFactors *items = &call->factors[GPUVEC_ALS_ITEMS];

	return EmbeddingOpen(items->relid, NameStr(items->key_name), NameStr(items->column_name),
						 call->snapshot);
}

/* Note where the rows of the items are */
static void
note_files(Recommending *call, const EmbeddingTable *table)
{
	call->nfiles = table->ntargets;
	call->relids = palloc_array(Oid, Max(call->nfiles, 1));
	call->files = palloc_array(Oid, Max(call->nfiles, 1));
	for (int i = 0; i < call->nfiles; i++)
	{
		call->relids[i] = RelationGetRelid(table->targets[i].rel);
		call->files[i] = table->targets[i].rel->rd_rel->relfilenode;
	}
}

/*
 * Fail if the statement's own transaction has truncated or rewritten the
 * items since the call began.  The table is not open between two buckets, so
 * that nothing else prevents it, and the rows of its snapshot are gone.
 */
static void
check_files(const Recommending *call, const EmbeddingTable *table)
{
	for (int i = 0; i < Min(call->nfiles, table->ntargets); i++)
	{
		Relation	rel = table->targets[i].rel;

		if (call->relids[i] == RelationGetRelid(rel) && call->files[i] != rel->rd_rel->relfilenode)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("relation \"%s\" was truncated or rewritten while its rows were recommended",
							RelationGetRelationName(rel))));
	}
}

/* Check the rights to read the items, and gather the factors of `among` */
static void
read_items(Recommending *call)
{
	EmbeddingTable *table = open_items(call);

	note_files(call, table);
	if (call->namong > 0)
		EmbeddingGather(table, call->among, call->namong, &call->vectors);
	EmbeddingClose(table);
}

static void *
recommend_begin(FunctionCallInfo fcinfo, int form, Snapshot snapshot)
{
	Recommending *call = palloc0_object(Recommending);

	INSTR_TIME_SET_CURRENT(call->begun);
	EmbeddingRequireArguments(fcinfo, required, N_ARGS);
	call->fcinfo = fcinfo;
	call->snapshot = snapshot;
	for (int side = 0; side < 2; side++)
		AlsDescribeFactors(PG_GETARG_OID(side), AlsNameArgument(fcinfo, ARG_KEY_COLUMN),
						   AlsNameArgument(fcinfo, ARG_COLUMN_NAME), &call->factors[side]);
	call->nearest.metric = GPUVEC_METRIC_IP;
	call->nearest.k = AlsRowsArgument(fcinfo, ARG_K);
	call->nearest.excluded = EmbeddingSortedKeysArgument(fcinfo, ARG_EXCLUDE, "exclude",
														 &call->nearest.nexcluded);
	call->among = EmbeddingSortedKeysArgument(fcinfo, ARG_AMONG, "among", &call->namong);
	call->most = FIRST_ROWS / call->nearest.k + 1;
	read_items(call);
	RecommendReadKnown(call);
	RecommendReadUsers(call);
	RecommendLogStep(call, "read", call->total_users);
	for (int i = 0; i < 2; i++)
		call->batches[i].context = AllocSetContextCreate(CurrentMemoryContext,
														 "gpuvec recommendations",
														 ALLOCSET_DEFAULT_SIZES);
	call->ahead = EmbeddingAheadMake();
	call->bucket_context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec best items",
												 ALLOCSET_DEFAULT_SIZES);
	return call;
}

/* Go to the next batch; false if there are no more users */
static bool
next_batch(Recommending *call)
{
	RecommendMakeBatch(call);
	call->made = false;
	call->later = call->batches[call->batch].nearest.nqueries > 0;
	call->batch = 1 - call->batch;
	call->first = call->nusers = call->user = 0;
	return call->batches[call->batch].nearest.nqueries > 0;
}

/* ---- its best items ---- */

/* True if a key is in an ascending list */
static bool
is_listed(const int64 *keys, uint64 n, int64 key)
{
	return n > 0 && bsearch(&key, keys, n, sizeof(int64), EmbeddingCompareKeys) != NULL;
}

/* Rank the items of `among` for a user */
static void
rank_items(Recommending *call, const BatchUser *user, gpuvec_near_heap *heap)
{
	const EmbeddingNearest *nearest = &call->nearest;
	const float *elements = call->vectors.elements;

	memset(heap, 0, sizeof(*heap));
	heap->k = Min(nearest->k, call->namong);
	heap->rows = palloc_array(gpuvec_near, Max(heap->k, 1));
	for (uint64 i = 0; i < call->namong; i++)
	{
		gpuvec_near near = {.key = call->among[i]};

		GPUVEC_LOOK();
		if (!call->vectors.found[i])
			continue;
		near.score = gpuvec_near_score(nearest->metric, user->factor, 0, elements, nearest->width);
		elements += nearest->width;
		if (!gpuvec_near_hopeless(heap, near.score) &&
			!is_listed(nearest->excluded, nearest->nexcluded, near.key) &&
			!is_listed(user->known, user->nknown, near.key))
			gpuvec_near_offer(heap, &near);
	}
	gpuvec_near_sort(heap);
}

/* Rank the items of `among` for all users of the batch */
static const gpuvec_near_heap *
rank_among(Recommending *call)
{
	const Batch *batch = &call->batches[call->batch];
	gpuvec_near_heap *heaps = palloc0_array(gpuvec_near_heap, batch->nearest.nqueries);

	if (call->vectors.known && call->vectors.width != call->nearest.width)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("factors of users and items have different numbers of elements"),
				 errdetail("Those of users have %u, those of items %u.", call->nearest.width,
						   call->vectors.width)));
	for (uint32 i = 0; call->vectors.known && i < batch->nearest.nqueries; i++)
	{
		CHECK_FOR_INTERRUPTS();
		rank_items(call, &batch->users[i], &heaps[i]);
	}
	return heaps;
}

/*
 * True if the engine should search while rows are returned.  A training in
 * this session must not lose the connection, which may be closed to end such
 * a search.
 */
static bool
looks_ahead(const Recommending *call)
{
	return call->later && AlsJobCurrent() == NULL;
}

/* Let the engine search for the users after the first `end` of the batch */
static void
send_ahead(Recommending *call, EmbeddingTable *table, uint32 end)
{
	const EmbeddingNearest *all = &call->batches[call->batch].nearest;
	EmbeddingNearest next;

	if (end == all->nqueries)
	{
		RecommendMakeBatch(call);
		all = &call->batches[1 - call->batch].nearest;
		end = 0;
	}
	if (all->nqueries == 0)
		return;
	EmbeddingTakeQueries(all, end, &next);
	EmbeddingAheadSend(call->ahead, table, &next);
}

/* Search for the users of the batch from call->first on; returns how many */
static uint32
search_bucket(Recommending *call)
{
	const EmbeddingNearest *all = &call->batches[call->batch].nearest;
	EmbeddingTable *table = open_items(call);
	EmbeddingNearest some;

	check_files(call, table);
	call->heaps = EmbeddingFindNearest(table, all, call->first, call->ahead, &some);
	for (uint32 i = 0; i < some.nqueries; i++)
		call->total += call->heaps[i].n;
	if (call->total == 0)
		EmbeddingCheckQueries(table, call->nearest.width);
	if (looks_ahead(call))
		send_ahead(call, table, call->first + some.nqueries);
	EmbeddingClose(table);
	return some.nqueries;
}

/* Find the best items of the next users; false if there are no more users */
static bool
next_bucket(Recommending *call)
{
	MemoryContext old;

	call->first += call->nusers;
	RecommendLogStep(call, "returned", call->total);
	if (call->first == call->batches[call->batch].nearest.nqueries && !next_batch(call))
		return false;
	/* while the engine searches */
	if (looks_ahead(call) && !call->among)
		RecommendMakeBatch(call);
	MemoryContextReset(call->bucket_context);
	old = MemoryContextSwitchTo(call->bucket_context);
	if (call->among)
	{
		call->heaps = rank_among(call);
		call->nusers = call->batches[call->batch].nearest.nqueries;
	}
	else
		call->nusers = search_bucket(call);
	MemoryContextSwitchTo(old);
	RecommendLogStep(call, "found", call->nusers);
	call->user = 0;
	call->rank = 0;
	return true;
}

/* Return the next row: a user, a rank, an item and its score */
static bool
recommend_next(void *state, Datum *values, bool *nulls)
{
	Recommending *call = state;
	const gpuvec_near *row;

	while (call->user == call->nusers || call->rank == call->heaps[call->user].n)
	{
		CHECK_FOR_INTERRUPTS();
		call->rank = 0;
		if (call->user < call->nusers)
			call->user++;
		else if (!next_bucket(call))
			return false;
	}
	row = &call->heaps[call->user].rows[call->rank++];
	values[0] = Int64GetDatum(call->batches[call->batch].users[call->first + call->user].key);
	values[1] = Int32GetDatum((int32) call->rank);
	values[2] = Int64GetDatum(row->key);
	values[3] = Float8GetDatum(row->score);
	return true;
}

/* Begin with the first user again */
static void
recommend_rewind(void *state)
{
	Recommending *call = state;

	for (int i = 0; i < KNOWN_BUCKETS; i++)
		if (call->rows[i])
			tuplestore_rescan(call->rows[i]);
	call->bucket = 0;
	EmbeddingAheadDrop(call->ahead);
	call->batches[call->batch].nearest.nqueries = 0;
	call->made = call->later = false;
	call->first = call->nusers = call->user = 0;
}

static void
recommend_end(void *state)
{
	Recommending *call = state;

	if (call->slot)
		ExecDropSingleTupleTableSlot(call->slot);
	for (int i = 0; i < KNOWN_BUCKETS; i++)
		if (call->rows[i])
			tuplestore_end(call->rows[i]);
	if (call->known)
		KnownItemsEnd(call->known);
}

const SetFunction RecommendFunctions[] = {
	{.function = gpuvec_recommend, .begin = recommend_begin, .next = recommend_next,
	.rewind = recommend_rewind, .end = recommend_end},
	{0}
};

Datum
gpuvec_recommend(PG_FUNCTION_ARGS)
{
	return SetFunctionRows(fcinfo, gpuvec_recommend);
}

/*
 * Planner support: the expected number of rows.  Calling it also makes the
 * planner load the library, before it asks for paths (search/set_scan.c).
 */
Datum
gpuvec_recommend_support(PG_FUNCTION_ARGS)
{
	Node	   *raw = (Node *) PG_GETARG_POINTER(0);
	SupportRequestRows *request = (SupportRequestRows *) raw;
	Const	   *users;
	Const	   *k;
	ArrayType  *array;

	if (!IsA(raw, SupportRequestRows) || request->node == NULL || !IsA(request->node, FuncExpr))
		PG_RETURN_POINTER(NULL);
	users = SearchKnownArgument(request->root, (FuncExpr *) request->node, ARG_USERS);
	k = SearchKnownArgument(request->root, (FuncExpr *) request->node, ARG_K);
	if (users == NULL || users->constisnull || k == NULL || k->constisnull)
		PG_RETURN_POINTER(NULL);
	array = DatumGetArrayTypeP(users->constvalue);
	request->rows = Max((double) ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array)) *
						(double) DatumGetInt64(k->constvalue), 1);
	PG_RETURN_POINTER(request);
}
