/*-------------------------------------------------------------------------
 *
 * best_items.c
 *	  gpuvec_recommend: the items with the highest scores for each user.
 *
 * The score is the inner product of both factors.  One statement reads the
 * users' factors, another one the items that each user has interacted with
 * (known_items.c).  They run with the caller's rights, and their names are
 * qualified, so that the search path does not matter.  Users go to
 * tuplestores, which are written to disk when they become large, one for each
 * part of the known items.
 *
 * Then the users are searched for in batches.  A batch is made when its first
 * row is asked for, and forgotten after its last one, so that the answer is
 * never in memory as a whole.  The first batch is small, for those who want a
 * few rows only.  From the second one on, the engine searches for the next
 * batch while rows are returned, and the batch after that is made while the
 * engine searches (embedding/nearest_ahead.c).
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
#include "recommend/known_items.h"
#include "search/set_search.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
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
	COLUMN_FACTOR
};

/* A user of a batch */
typedef struct BatchUser
{
	int64		key;
	const float *factor;
	const int64 *known;			/* [nknown], ascending */
	uint64		nknown;
} BatchUser;

/* A batch of users */
typedef struct Batch
{
	MemoryContext context;
	BatchUser  *users;
	EmbeddingNearest nearest;	/* for all of them */
} Batch;

/* A call of gpuvec_recommend */
typedef struct Recommending
{
	FunctionCallInfo fcinfo;
	Snapshot	snapshot;
	AlsFactors	factors[2];		/* of gpuvec_als_side */
	KnownItems *known;			/* NULL: they do not matter */
	uint64		total_users;	/* rows of the statement ... */
	Tuplestorestate *rows[KNOWN_PARTS]; /* ... by part; NULL: none */
	int			part;			/* the one that is being read */
	TupleTableSlot *slot;		/* NULL: there are no rows */
	const int64 *among;			/* [namong], ascending; NULL: all items */
	uint64		namong;
	EmbeddingVectors vectors;	/* of among */
	int			nfiles;			/* relations of items, as the call began: */
	Oid		   *relids;
	Oid		   *files;			/* ... and where their rows were */

	EmbeddingNearest nearest;	/* what all batches have in common */
	uint64		most;			/* users that the next batch may have */
	Batch		batches[2];
	int			batch;			/* the present one */
	bool		made;			/* the other one is the next one */
	bool		later;			/* the present one is not the first */
	EmbeddingAhead *ahead;
	uint64		total;			/* rows that were found */
	instr_time	begun;			/* the present part of the call */

	/* the part of the present batch that was searched for */
	MemoryContext part_context;
	uint32		first;			/* its first user */
	uint32		nusers;
	const gpuvec_near_heap *heaps;	/* [nusers] */
	uint32		user;			/* the next row: its user in heaps[] ... */
	uint64		rank;			/* ... and its rank there */
} Recommending;

static void
log_part(Recommending *call, const char *what, uint64 rows)
{
	AlsLogPart(&call->begun, "gpuvec_recommend", what, rows);
}

/* ---- reading the users ---- */

/* Where the statement's rows go */
typedef struct StoreReceiver
{
	DestReceiver dest;
	Recommending *call;
	MemoryContext context;
	ResourceOwner owner;
} StoreReceiver;

/* The tuplestore that a row belongs to */
static Tuplestorestate *
store_of(StoreReceiver *receiver, TupleTableSlot *slot)
{
	Recommending *call = receiver->call;
	Oid			type = call->factors[GPUVEC_ALS_USERS].key_type;
	int			part = call->known ? KnownItemsPart(MirrorKey(slot->tts_values[COLUMN_KEY], type)) : 0;

	if (call->rows[part] == NULL)
	{
		ResourceOwner old = CurrentResourceOwner;

		/* temporary files live longer than the statement */
		CurrentResourceOwner = receiver->owner;
		call->rows[part] = tuplestore_begin_heap(false, false,
												 call->known ? Max(work_mem / KNOWN_PARTS, 64) : work_mem);
		CurrentResourceOwner = old;
	}
	return call->rows[part];
}

static bool
receive_row(TupleTableSlot *slot, DestReceiver *self)
{
	StoreReceiver *receiver = (StoreReceiver *) self;
	Recommending *call = receiver->call;
	MemoryContext old = MemoryContextSwitchTo(receiver->context);

	if (call->slot == NULL)
		call->slot = MakeSingleTupleTableSlot(CreateTupleDescCopy(slot->tts_tupleDescriptor),
											  &TTSOpsMinimalTuple);
	slot_getallattrs(slot);
	tuplestore_puttupleslot(store_of(receiver, slot), slot);
	call->total_users++;
	MemoryContextSwitchTo(old);
	return true;
}

/* The statement that reads the users; with users as a parameter or not */
static char *
make_statement(const AlsFactors *users, bool some)
{
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfo(&sql, "SELECT u.%s, u.%s FROM %s u WHERE u.%s IS NOT NULL AND u.%s IS NOT NULL",
					 users->key, users->column, users->relation, users->key, users->column);
	if (some)
		appendStringInfo(&sql, " AND u.%s OPERATOR(pg_catalog.=) ANY ($1)", users->key);
	return sql.data;
}

/* Read all users into the tuplestores */
static void
read_users(Recommending *call)
{
	FunctionCallInfo fcinfo = call->fcinfo;
	StoreReceiver receiver = {
		.call = call, .context = CurrentMemoryContext, .owner = CurrentResourceOwner
	};
	const AlsFactors *factors = &call->factors[GPUVEC_ALS_USERS];
	bool		some = !PG_ARGISNULL(ARG_USERS);
	Datum		users = 0;
	Oid			type = InvalidOid;

	AlsInitReceiver(&receiver.dest, receive_row);
	if (some)
		users = AlsKeysOfType(PG_GETARG_DATUM(ARG_USERS), factors->key_type, &type);
	AlsReadRows(make_statement(factors, some), some ? 1 : 0, &type, &users, NULL, &receiver.dest);
}

/* Read the items that the users know, if these are to be left out */
static void
read_known(Recommending *call)
{
	FunctionCallInfo fcinfo = call->fcinfo;
	AlsInteractions interactions;
	uint64		rows;

	if (PG_ARGISNULL(ARG_INTERACTIONS))
		return;
	EmbeddingRequireArguments(fcinfo, required_columns, N_ARGS);
	AlsDescribeInteractions(PG_GETARG_OID(ARG_INTERACTIONS),
							AlsNameArgument(fcinfo, ARG_USER_COLUMN),
							AlsNameArgument(fcinfo, ARG_ITEM_COLUMN), NULL, &interactions);
	if (!PG_GETARG_BOOL(ARG_EXCLUDE_KNOWN))
		return;
	call->known = KnownItemsRead(&interactions,
								 PG_ARGISNULL(ARG_USERS) ? (Datum) 0 : PG_GETARG_DATUM(ARG_USERS),
								 &rows);
	log_part(call, "read known items", rows);
}

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
	read_known(call);
	read_users(call);
	log_part(call, "read", call->total_users);
	for (int i = 0; i < 2; i++)
		call->batches[i].context = AllocSetContextCreate(CurrentMemoryContext,
														 "gpuvec recommendations",
														 ALLOCSET_DEFAULT_SIZES);
	call->ahead = EmbeddingAheadMake();
	call->part_context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec best items",
											   ALLOCSET_DEFAULT_SIZES);
	return call;
}

/* ---- a batch of users ---- */

/* Copy the items that a user knows */
static void
take_known(Recommending *call, BatchUser *user)
{
	const int64 *items = KnownItemsOf(call->known, user->key, &user->nknown);
	int64	   *copy = MemoryContextAllocHuge(CurrentMemoryContext, (user->nknown + 1) * sizeof(int64));

	if (user->nknown > 0)
		memcpy(copy, items, user->nknown * sizeof(int64));
	user->known = copy;
}

/* Go to the next row of a user; false if there are no more */
static bool
next_user(Recommending *call)
{
	for (; call->part < KNOWN_PARTS; call->part++)
		if (call->rows[call->part] &&
			tuplestore_gettupleslot(call->rows[call->part], true, false, call->slot))
			return true;
	return false;
}

/* Take a user from the present row; the factor and the items are copied */
static void
take_user(Recommending *call, BatchUser *user)
{
	const AlsFactors *factors = &call->factors[GPUVEC_ALS_USERS];
	TupleTableSlot *slot = call->slot;
	MirrorVector vector;
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
	if (call->known)
		take_known(call, user);
}

/* qsort comparator of users, by the number of known items */
static int
compare_users(const void *a, const void *b)
{
	const BatchUser *x = a;
	const BatchUser *y = b;

	GPUVEC_LOOK();
	if (x->nknown != y->nknown)
		return x->nknown < y->nknown ? -1 : 1;
	return x->key < y->key ? -1 : x->key > y->key;
}

/* Read the next users into a batch, at most call->most */
static void
take_users(Recommending *call, Batch *batch, uint64 *nknown)
{
	uint32		n = 0;

	*nknown = 0;
	batch->users = MemoryContextAllocHuge(CurrentMemoryContext, call->most * sizeof(BatchUser));
	while (n < call->most && *nknown < BATCH_KNOWN &&
		   (n == 0 || (uint64) n * call->nearest.width < BATCH_ELEMENTS) &&
		   next_user(call))
	{
		CHECK_FOR_INTERRUPTS();
		slot_getallattrs(call->slot);
		take_user(call, &batch->users[n]);
		*nknown += batch->users[n++].nknown;
	}
	/* the row is in the batch's memory, too */
	if (call->slot)
		ExecClearTuple(call->slot);
	qsort(batch->users, n, sizeof(BatchUser), compare_users);
	batch->nearest = call->nearest;
	batch->nearest.nqueries = n;
}

/* Make one search of all users of a batch */
static void
make_search(Batch *batch, bool known, uint64 nknown)
{
	uint32		n = batch->nearest.nqueries;
	uint32		width = batch->nearest.width;
	int64	   *offsets = palloc_array(int64, n + 1);
	float	   *queries;
	int64	   *keys;

	queries = MemoryContextAllocHuge(CurrentMemoryContext, ((Size) n * width + 1) * sizeof(float));
	keys = MemoryContextAllocHuge(CurrentMemoryContext, (nknown + 1) * sizeof(int64));
	offsets[0] = 0;
	for (uint32 i = 0; i < n; i++)
	{
		const BatchUser *user = &batch->users[i];

		GPUVEC_LOOK();
		memcpy(queries + (Size) i * width, user->factor, width * sizeof(float));
		if (user->nknown > 0)
			memcpy(keys + offsets[i], user->known, user->nknown * sizeof(int64));
		offsets[i + 1] = offsets[i] + user->nknown;
	}
	batch->nearest.queries = queries;
	batch->nearest.listed = keys;
	batch->nearest.offsets = known ? offsets : NULL;
}

/* Make the batch after the present one; without users at the end */
static void
make_batch(Recommending *call)
{
	Batch	   *batch = &call->batches[1 - call->batch];
	MemoryContext old;
	uint64		nknown;

	if (call->made)
		return;
	MemoryContextReset(batch->context);
	old = MemoryContextSwitchTo(batch->context);
	take_users(call, batch, &nknown);
	make_search(batch, call->known != NULL, nknown);
	MemoryContextSwitchTo(old);
	call->most = Min(call->most * NEXT_BATCH, Max(GPUVEC_MAX_NEAR / call->nearest.k, 1));
	call->made = true;
	log_part(call, "took", batch->nearest.nqueries);
}

/* Go to the next batch; false if there are no more users */
static bool
next_batch(Recommending *call)
{
	make_batch(call);
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
		make_batch(call);
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
search_part(Recommending *call)
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
next_part(Recommending *call)
{
	MemoryContext old;

	call->first += call->nusers;
	log_part(call, "returned", call->total);
	if (call->first == call->batches[call->batch].nearest.nqueries && !next_batch(call))
		return false;
	/* while the engine searches */
	if (looks_ahead(call) && !call->among)
		make_batch(call);
	MemoryContextReset(call->part_context);
	old = MemoryContextSwitchTo(call->part_context);
	if (call->among)
	{
		call->heaps = rank_among(call);
		call->nusers = call->batches[call->batch].nearest.nqueries;
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

	for (int i = 0; i < KNOWN_PARTS; i++)
		if (call->rows[i])
			tuplestore_rescan(call->rows[i]);
	call->part = 0;
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
	for (int i = 0; i < KNOWN_PARTS; i++)
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
