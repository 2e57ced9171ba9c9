/*-------------------------------------------------------------------------
 *
 * best_users.c
 *	  The users of gpuvec_recommend: read, and taken in batches.
 *
 * One statement reads the users' factors, another one the items that each
 * user has interacted with (known_items.c).  They run with the caller's
 * rights, and their names are qualified, so that the search path does not
 * matter.  Users go to tuplestores, which are written to disk when they become
 * large, one for each bucket of the known items.
 *
 * A batch is made when its first row is asked for, and forgotten after its
 * last one.  The first batch is small, for those who want a few rows only.
 * From the second one on, the engine searches for the next batch while rows
 * are returned, and the batch after that is made while the engine searches
 * (embedding/nearest_ahead.c).
 *
 * Users of a batch who know many items come last: the engine looks for as
 * many more rows, for queries that it searches for together, as the longest
 * list of known items has (engine/embedding/nearest_rows.c).
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "embedding/embedding_table.h"
#include "executor/tuptable.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "recommend/best_items.h"
#include "recommend/known_items.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/tuplestore.h"

/* How many times as many rows the next batch has */
#define NEXT_BATCH		8

/* A batch ends when it has this many known items, or elements of factors */
#define BATCH_KNOWN		((uint64) 4 * 1024 * 1024)
#define BATCH_ELEMENTS	((uint64) 16 * 1024 * 1024)

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
	int			bucket = call->known ? KnownItemsBucket(MirrorKey(slot->tts_values[COLUMN_KEY], type)) : 0;

	if (call->rows[bucket] == NULL)
	{
		ResourceOwner old = CurrentResourceOwner;

		/* temporary files live longer than the statement */
		CurrentResourceOwner = receiver->owner;
		call->rows[bucket] = tuplestore_begin_heap(false, false,
												   call->known ? Max(work_mem / KNOWN_BUCKETS, 64) : work_mem);
		CurrentResourceOwner = old;
	}
	return call->rows[bucket];
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
void
RecommendReadUsers(Recommending *call)
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
void
RecommendReadKnown(Recommending *call)
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
	RecommendLogStep(call, "read known items", rows);
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
	for (; call->bucket < KNOWN_BUCKETS; call->bucket++)
		if (call->rows[call->bucket] &&
			tuplestore_gettupleslot(call->rows[call->bucket], true, false, call->slot))
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
void
RecommendMakeBatch(Recommending *call)
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
	RecommendLogStep(call, "took", batch->nearest.nqueries);
}
