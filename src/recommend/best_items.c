/*-------------------------------------------------------------------------
 *
 * best_items.c
 *	  gpuvec_recommend: the items with the highest scores for each user.
 *
 * The score is the inner product of both factors.  One statement reads the
 * users' factors, and with them the items that each user has interacted with.
 * It runs with the caller's rights, and its names are qualified, so that the
 * search path does not matter.  Its rows go to a tuplestore, which is written
 * to disk when it becomes large.
 *
 * Then the users are searched for in batches.  A batch is made when its first
 * row is asked for, and forgotten after its last one, so that the answer is
 * never in memory as a whole.  The first batch is small, for those who want a
 * few rows only.
 *
 * Users of a batch who know many items come last: the engine looks for as
 * many more rows, for queries that it searches for together, as the longest
 * list of known items has (engine/embedding/nearest_rows.c).
 *
 * With `among`, the factors of these items are gathered once, and this
 * process computes all their scores, by the same function as the engine.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "catalog/pg_type.h"
#include "embedding/embedding_table.h"
#include "executor/tuptable.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/pathnodes.h"
#include "nodes/supportnodes.h"
#include "recommend/recommend.h"
#include "search/set_search.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(gpuvec_recommend);
PG_FUNCTION_INFO_V1(gpuvec_recommend_support);

/* Rows of the first batch, and how many times as many the next one has */
#define FIRST_ROWS		1000
#define NEXT_BATCH		8

/* A batch ends when it has this many known items, or elements of factors */
#define BATCH_KNOWN		((uint64) 4 * 1024 * 1024)
#define BATCH_ELEMENTS	((uint64) 16 * 1024 * 1024)

/* Positions of the arguments */
enum
{
	ARG_USER_FACTORS,
	ARG_ITEM_FACTORS,
	ARG_USERS,
	ARG_K,
	ARG_INTERACTIONS,
	ARG_USER_COLUMN,
	ARG_ITEM_COLUMN,
	ARG_EXCLUDE,
	ARG_AMONG,
	ARG_EXCLUDE_KNOWN,
	ARG_KEY_COLUMN,
	ARG_COLUMN_NAME,
	N_ARGS
};

static const char *const required[N_ARGS] = {
	[ARG_USER_FACTORS] = "user_factors",[ARG_ITEM_FACTORS] = "item_factors",[ARG_K] = "k",
	[ARG_EXCLUDE_KNOWN] = "exclude_known"
};

/* With interactions, their columns must not be null, either */
static const char *const required_columns[N_ARGS] = {
	[ARG_USER_COLUMN] = "user_column",[ARG_ITEM_COLUMN] = "item_column"
};

/* Columns of the statement */
enum
{
	COLUMN_KEY,
	COLUMN_FACTOR,
	COLUMN_KNOWN
};

/* A user of a batch */
typedef struct BatchUser
{
	int64		key;
	const float *factor;
	const int64 *known;			/* [nknown], ascending */
	uint64		nknown;
} BatchUser;

/* A call of gpuvec_recommend */
typedef struct Recommending
{
	FunctionCallInfo fcinfo;
	Snapshot	snapshot;
	AlsFactors	factors[2];		/* of gpuvec_als_side */
	bool		known;			/* the statement has known items */
	Tuplestorestate *rows;		/* of the statement */
	TupleTableSlot *slot;		/* NULL: there are none */
	const int64 *among;			/* [namong], ascending; NULL: all items */
	uint64		namong;
	EmbeddingVectors vectors;	/* of among */
	int			nfiles;			/* relations of items, as the call began: */
	Oid		   *relids;
	Oid		   *files;			/* ... and where their rows were */

	/* the batch */
	MemoryContext context;
	uint64		most;			/* users that it may have */
	BatchUser  *users;
	EmbeddingNearest nearest;	/* for all its users */
	uint64		total;			/* rows that were found */
	instr_time	begun;			/* the present part of the call */

	/* the part of it that was searched for */
	MemoryContext part_context;
	uint32		first;			/* its first user */
	uint32		nusers;
	const gpuvec_near_heap *heaps;	/* [nusers] */
	uint32		user;			/* the next row: its user in heaps[] ... */
	uint64		rank;			/* ... and its rank there */
} Recommending;

/* ---- reading the users ---- */

/* Where the statement's rows go */
typedef struct StoreReceiver
{
	DestReceiver dest;
	Recommending *call;
	MemoryContext context;
} StoreReceiver;

static bool
receive_row(TupleTableSlot *slot, DestReceiver *self)
{
	StoreReceiver *receiver = (StoreReceiver *) self;
	Recommending *call = receiver->call;
	MemoryContext old = MemoryContextSwitchTo(receiver->context);

	if (call->slot == NULL)
		call->slot = MakeSingleTupleTableSlot(CreateTupleDescCopy(slot->tts_tupleDescriptor),
											  &TTSOpsMinimalTuple);
	tuplestore_puttupleslot(call->rows, slot);
	MemoryContextSwitchTo(old);
	return true;
}

/*
 * Append a condition that a column is among the users, unless all are.  Each
 * table has its own parameter, of the type of its column.
 */
static void
append_users(StringInfo sql, const Recommending *call, int parameter, const char *column)
{
	FunctionCallInfo fcinfo = call->fcinfo;

	if (!PG_ARGISNULL(ARG_USERS))
		appendStringInfo(sql, " AND %s OPERATOR(pg_catalog.=) ANY ($%d)", column, parameter);
}

/* Append a join with the items that each user has interacted with */
static void
append_known(StringInfo sql, const Recommending *call, const AlsInteractions *interactions)
{
	appendStringInfo(sql, " LEFT JOIN (SELECT i.%s AS key, pg_catalog.array_agg(i.%s::pg_catalog.int8) AS items FROM %s i WHERE i.%s IS NOT NULL",
					 interactions->columns[0], interactions->columns[1], interactions->relation,
					 interactions->columns[1]);
	append_users(sql, call, 2, psprintf("i.%s", interactions->columns[0]));
	appendStringInfo(sql, " GROUP BY i.%s) known ON known.key OPERATOR(pg_catalog.=) u.%s",
					 interactions->columns[0], call->factors[GPUVEC_ALS_USERS].key);
}

/*
 * The statement that reads the users, and the items that they know.  *type:
 * of the interactions' users, if it reads these.
 */
static char *
make_statement(Recommending *call, Oid *type)
{
	FunctionCallInfo fcinfo = call->fcinfo;
	const AlsFactors *users = &call->factors[GPUVEC_ALS_USERS];
	AlsInteractions interactions;
	StringInfoData sql;

	initStringInfo(&sql);
	if (!PG_ARGISNULL(ARG_INTERACTIONS))
	{
		EmbeddingRequireArguments(fcinfo, required_columns, N_ARGS);
		AlsDescribeInteractions(PG_GETARG_OID(ARG_INTERACTIONS),
								AlsNameArgument(fcinfo, ARG_USER_COLUMN),
								AlsNameArgument(fcinfo, ARG_ITEM_COLUMN), NULL, &interactions);
		call->known = PG_GETARG_BOOL(ARG_EXCLUDE_KNOWN);
		*type = interactions.types[0];
	}
	appendStringInfo(&sql, "SELECT u.%s, u.%s%s FROM %s u", users->key, users->column,
					 call->known ? ", known.items" : "", users->relation);
	if (call->known)
		append_known(&sql, call, &interactions);
	appendStringInfo(&sql, " WHERE u.%s IS NOT NULL AND u.%s IS NOT NULL", users->key,
					 users->column);
	append_users(&sql, call, 1, psprintf("u.%s", users->key));
	return sql.data;
}

/* Read all users into the tuplestore */
static void
read_users(Recommending *call)
{
	FunctionCallInfo fcinfo = call->fcinfo;
	StoreReceiver receiver = {.call = call, .context = CurrentMemoryContext};
	Oid			known_type = INT8OID;
	char	   *sql = make_statement(call, &known_type);
	Oid			types[2];
	Datum		users[2];
	int			n = PG_ARGISNULL(ARG_USERS) ? 0 : call->known ? 2 : 1;

	AlsInitReceiver(&receiver.dest, receive_row);
	call->rows = tuplestore_begin_heap(false, false, work_mem);
	if (n > 0)
		users[0] = AlsKeysOfType(PG_GETARG_DATUM(ARG_USERS),
								 call->factors[GPUVEC_ALS_USERS].key_type, &types[0]);
	if (n > 1)
		users[1] = AlsKeysOfType(PG_GETARG_DATUM(ARG_USERS), known_type, &types[1]);
	AlsReadRows(sql, n, types, users, NULL, &receiver.dest);
}

/* ---- arguments ---- */

/*
 * The keys of an int8[] argument, ascending and distinct, without nulls;
 * NULL, and *n is 0, if it is null
 */
static const int64 *
keys_argument(FunctionCallInfo fcinfo, int argument, const char *name, uint64 *n)
{
	bool	   *nulls;
	const int64 *keys;
	int64	   *sorted;
	uint64		nkeys;
	uint64		nsorted = 0;

	*n = 0;
	if (PG_ARGISNULL(argument))
		return NULL;
	keys = EmbeddingKeysArgument(fcinfo, argument, name, &nulls, &nkeys);
	sorted = MemoryContextAllocHuge(CurrentMemoryContext, (nkeys + 1) * sizeof(int64));
	for (uint64 i = 0; i < nkeys; i++)
		if (nulls == NULL || !nulls[i])
			sorted[nsorted++] = keys[i];
	EmbeddingSortKeys(sorted, nsorted);
	for (uint64 i = 0; i < nsorted; i++)
		if (i == 0 || sorted[i] != sorted[i - 1])
			sorted[(*n)++] = sorted[i];
	return sorted;
}

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
 * items since the call began.  The table is not open between two parts, so
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

static void
log_part(Recommending *call, const char *what, uint64 rows)
{
	AlsLogPart(&call->begun, "gpuvec_recommend", what, rows);
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
	call->nearest.excluded = keys_argument(fcinfo, ARG_EXCLUDE, "exclude",
										   &call->nearest.nexcluded);
	call->among = keys_argument(fcinfo, ARG_AMONG, "among", &call->namong);
	call->most = FIRST_ROWS / call->nearest.k + 1;
	read_items(call);
	read_users(call);
	log_part(call, "read", tuplestore_tuple_count(call->rows));
	call->context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec recommendations",
										  ALLOCSET_DEFAULT_SIZES);
	call->part_context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec best items",
											   ALLOCSET_DEFAULT_SIZES);
	return call;
}

/* ---- a batch of users ---- */

/* Take a user from the present row; the factor and the items are copied */
static void
take_user(Recommending *call, BatchUser *user)
{
	const AlsFactors *factors = &call->factors[GPUVEC_ALS_USERS];
	TupleTableSlot *slot = call->slot;
	MirrorVector vector;
	ArrayType  *known;
	float	   *copy;

	memset(user, 0, sizeof(*user));
	AlsDecodeFactor(slot, factors, &user->key, &vector);
	if (call->nearest.width == 0)
		call->nearest.width = vector.width;
	if (vector.width != call->nearest.width || vector.width == 0)
		AlsComplainOfFactor(factors, user->key,
							psprintf(_("It has %u elements, and the first one that was read %u."),
									 vector.width, call->nearest.width));
	copy = palloc_array(float, vector.width);
	memcpy(copy, vector.elements, vector.width * sizeof(float));
	user->factor = copy;
	if (!call->known || slot->tts_isnull[COLUMN_KNOWN])
		return;
	known = DatumGetArrayTypePCopy(slot->tts_values[COLUMN_KNOWN]);
	user->known = (const int64 *) ARR_DATA_PTR(known);
	user->nknown = ArrayGetNItems(ARR_NDIM(known), ARR_DIMS(known));
	EmbeddingSortKeys((int64 *) ARR_DATA_PTR(known), user->nknown);
}

/* qsort comparator of users, by the number of known items */
static int
compare_users(const void *a, const void *b)
{
	const BatchUser *x = a;
	const BatchUser *y = b;

	if (x->nknown != y->nknown)
		return x->nknown < y->nknown ? -1 : 1;
	return x->key < y->key ? -1 : x->key > y->key;
}

/* Read the next users, at most call->most; returns their number */
static uint32
take_users(Recommending *call, uint64 *nknown)
{
	uint32		n = 0;

	*nknown = 0;
	call->users = MemoryContextAllocHuge(CurrentMemoryContext, call->most * sizeof(BatchUser));
	while (n < call->most && *nknown < BATCH_KNOWN &&
		   (n == 0 || (uint64) n * call->nearest.width < BATCH_ELEMENTS) &&
		   call->slot && tuplestore_gettupleslot(call->rows, true, false, call->slot))
	{
		CHECK_FOR_INTERRUPTS();
		slot_getallattrs(call->slot);
		take_user(call, &call->users[n]);
		*nknown += call->users[n++].nknown;
	}
	/* the row is in the batch's memory, too */
	if (call->slot)
		ExecClearTuple(call->slot);
	qsort(call->users, n, sizeof(BatchUser), compare_users);
	return n;
}

/* Make one search of all users of the batch */
static void
make_search(Recommending *call, uint64 nknown)
{
	uint32		n = call->nearest.nqueries;
	uint32		width = call->nearest.width;
	int64	   *offsets = palloc_array(int64, n + 1);
	float	   *queries;
	int64	   *keys;

	queries = MemoryContextAllocHuge(CurrentMemoryContext, ((Size) n * width + 1) * sizeof(float));
	keys = MemoryContextAllocHuge(CurrentMemoryContext, (nknown + 1) * sizeof(int64));
	offsets[0] = 0;
	for (uint32 i = 0; i < n; i++)
	{
		const BatchUser *user = &call->users[i];

		memcpy(queries + (Size) i * width, user->factor, width * sizeof(float));
		if (user->nknown > 0)
			memcpy(keys + offsets[i], user->known, user->nknown * sizeof(int64));
		offsets[i + 1] = offsets[i] + user->nknown;
	}
	call->nearest.queries = queries;
	call->nearest.listed = keys;
	call->nearest.offsets = call->known ? offsets : NULL;
}

/* Begin the next batch; false if there are no more users */
static bool
next_batch(Recommending *call)
{
	MemoryContext old;
	uint64		nknown;

	MemoryContextReset(call->context);
	old = MemoryContextSwitchTo(call->context);
	call->nearest.nqueries = take_users(call, &nknown);
	make_search(call, nknown);
	MemoryContextSwitchTo(old);
	call->first = call->nusers = call->user = 0;
	call->most = Min(call->most * NEXT_BATCH, Max(GPUVEC_MAX_NEAR / call->nearest.k, 1));
	return call->nearest.nqueries > 0;
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
	gpuvec_near_heap *heaps = palloc0_array(gpuvec_near_heap, call->nearest.nqueries);

	if (call->vectors.known && call->vectors.width != call->nearest.width)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("factors of users and items have different numbers of elements"),
				 errdetail("Those of users have %u, those of items %u.", call->nearest.width,
						   call->vectors.width)));
	for (uint32 i = 0; call->vectors.known && i < call->nearest.nqueries; i++)
	{
		CHECK_FOR_INTERRUPTS();
		rank_items(call, &call->users[i], &heaps[i]);
	}
	return heaps;
}

/* Search for the users of the batch from call->first on; returns how many */
static uint32
search_part(Recommending *call)
{
	EmbeddingTable *table = open_items(call);
	EmbeddingNearest some;

	check_files(call, table);
	call->heaps = EmbeddingFindNearest(table, &call->nearest, call->first, &some);
	for (uint32 i = 0; i < some.nqueries; i++)
		call->total += call->heaps[i].n;
	if (call->total == 0)
		EmbeddingCheckQueries(table, call->nearest.width);
	EmbeddingClose(table);
	return some.nqueries;
}

/* Find the best items of the next users; false if there are no more users */
static bool
next_part(Recommending *call)
{
	MemoryContext old;

	call->first += call->nusers;
	log_part(call, "returned", call->total);
	if (call->first == call->nearest.nqueries && !next_batch(call))
		return false;
	log_part(call, "took", call->nearest.nqueries);
	MemoryContextReset(call->part_context);
	old = MemoryContextSwitchTo(call->part_context);
	if (call->among)
	{
		call->heaps = rank_among(call);
		call->nusers = call->nearest.nqueries;
	}
	else
		call->nusers = search_part(call);
	MemoryContextSwitchTo(old);
	log_part(call, "found", call->nusers);
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
		else if (!next_part(call))
			return false;
	}
	row = &call->heaps[call->user].rows[call->rank++];
	values[0] = Int64GetDatum(call->users[call->first + call->user].key);
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

	tuplestore_rescan(call->rows);
	call->nearest.nqueries = call->first = call->nusers = call->user = 0;
}

static void
recommend_end(void *state)
{
	Recommending *call = state;

	if (call->slot)
		ExecDropSingleTupleTableSlot(call->slot);
	tuplestore_end(call->rows);
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
