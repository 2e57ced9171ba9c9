/*-------------------------------------------------------------------------
 *
 * als_read.c
 *	  Rows of tables to the engine.
 *
 * Tables are read by SQL: with the rights of the caller, row-level security
 * included, and under the snapshot of the calling statement.  So views,
 * partitioned and foreign tables can be read as well.  The executor hands
 * each row to a receiver, which converts it and sends it on when a part is
 * full; nothing is kept.
 *
 * Names are qualified, and values are converted here rather than by casts, so
 * that the statements call nothing that depends on the search path.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <float.h>
#include <math.h>

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "executor/tuptable.h"
#include "recommend/recommend.h"
#include "tcop/dest.h"
#include "tcop/pquery.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/portal.h"

/* Interactions in one message */
#define PART_ROWS		32768

/* Bytes of factors in one message */
#define PART_BYTES		((Size) 4 * 1024 * 1024)

/* Interactions, on their way to the engine or to a list */
typedef struct InteractionReceiver
{
	DestReceiver dest;
	AlsJob	   *job;			/* NULL: to the list */
	AlsPairs   *pairs;
	const AlsInteractions *interactions;
	double		alpha;
	uint64		rows;
	uint32		n;				/* rows in the part */
	int64		users[PART_ROWS];
	int64		items[PART_ROWS];
	float		weights[PART_ROWS];
} InteractionReceiver;

/* Factors, on their way to the engine or to a function */
typedef struct FactorReceiver
{
	DestReceiver dest;
	AlsJob	   *job;			/* NULL: to the function */
	gpuvec_als_side side;
	AlsTakeFactors *take;
	void	   *arg;
	uint32		width;			/* elements of each factor */
	const AlsFactors *factors;
	bool		ascending;		/* keys must be distinct; they come in order */
	int64		last;			/* the last row's key */
	MemoryContext context;		/* of one row */
	uint64		rows;
	uint32		n;				/* rows in the part */
	uint32		room;
	int64	   *keys;			/* [room] */
	float	   *elements;		/* [room * number of factors] */
} FactorReceiver;

static void
receiver_startup(DestReceiver *self, int operation, TupleDesc desc)
{
}

static void
receiver_done(DestReceiver *self)
{
}

void
AlsInitReceiver(DestReceiver *dest, bool (*receive) (TupleTableSlot *slot, DestReceiver *self))
{
	dest->receiveSlot = receive;
	dest->rStartup = receiver_startup;
	dest->rShutdown = receiver_done;
	dest->rDestroy = receiver_done;
	dest->mydest = DestTuplestore;
}

void
AlsReadRows(const char *sql, int n, Oid *types, Datum *values, const char *nulls,
			DestReceiver *dest)
{
	Portal		portal;

	SPI_connect();
	/* read-only: under the snapshot that is active now, the statement's */
	portal = SPI_cursor_open_with_args(NULL, sql, n, types, values, nulls, true, 0);
	(void) PortalRunFetch(portal, FETCH_FORWARD, FETCH_ALL, dest);
	SPI_cursor_close(portal);
	SPI_finish();
}

/* ---- interactions ---- */

/* Append a part to the list, as far as it may have that many */
static void
keep_pairs(InteractionReceiver *receiver)
{
	AlsPairs   *pairs = receiver->pairs;

	for (uint32 i = 0; i < receiver->n && pairs->n <= pairs->most; i++)
	{
		AlsPair    *pair;

		if (pairs->n == pairs->room)
		{
			pairs->room = Max(2 * pairs->room, 256);
			pairs->pairs = pairs->pairs ?
				repalloc_huge(pairs->pairs, pairs->room * sizeof(AlsPair)) :
				MemoryContextAllocHuge(pairs->context, pairs->room * sizeof(AlsPair));
		}
		pair = &pairs->pairs[pairs->n++];
		memset(pair, 0, sizeof(*pair));
		pair->user = receiver->users[i];
		pair->item = receiver->items[i];
		pair->weight = receiver->weights[i];
	}
}

static void
send_interactions(InteractionReceiver *receiver)
{
	if (receiver->job == NULL)
		keep_pairs(receiver);
	else if (receiver->n > 0)
		AlsJobAdd(receiver->job, receiver->n, receiver->users, receiver->items, receiver->weights);
	receiver->n = 0;
}

/* A weight of any numeric type */
static double
decode_weight(Datum value, Oid type)
{
	switch (type)
	{
		case INT2OID:
			return DatumGetInt16(value);
		case INT4OID:
			return DatumGetInt32(value);
		case INT8OID:
			return (double) DatumGetInt64(value);
		case FLOAT4OID:
			return DatumGetFloat4(value);
		case FLOAT8OID:
			return DatumGetFloat8(value);
		default:
			return DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, value));
	}
}

/* Raise the error that a weight cannot be used */
static void
complain_of_weight(double weight, int64 user, int64 item)
{
	ereport(ERROR,
			(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
			 isfinite(weight) ?
			 errmsg("weight of user " INT64_FORMAT " and item " INT64_FORMAT " is too large", user, item) :
			 errmsg("weight of user " INT64_FORMAT " and item " INT64_FORMAT " is not a finite number",
					user, item),
			 errdetail("It is %g.", weight)));
}

/* DestReceiver: an interaction; those without key or weight are left out */
static bool
receive_interaction(TupleTableSlot *slot, DestReceiver *self)
{
	InteractionReceiver *receiver = (InteractionReceiver *) self;
	const AlsInteractions *from = receiver->interactions;
	bool		weighted = from->columns[2] != NULL;
	double		weight = 1;
	int64		user;
	int64		item;

	slot_getallattrs(slot);
	receiver->rows++;
	if (slot->tts_isnull[0] || slot->tts_isnull[1] || (weighted && slot->tts_isnull[2]))
		return true;
	user = MirrorKey(slot->tts_values[0], from->types[0]);
	item = MirrorKey(slot->tts_values[1], from->types[1]);
	if (weighted)
		weight = decode_weight(slot->tts_values[2], from->types[2]);
	if (!(fabs(weight) <= Min(GPUVEC_ALS_MAX_CONFIDENCE / receiver->alpha, FLT_MAX)))
		complain_of_weight(weight, user, item);
	receiver->users[receiver->n] = user;
	receiver->items[receiver->n] = item;
	receiver->weights[receiver->n] = (float) weight;
	if (receiver->weights[receiver->n] != 0)
		receiver->n++;
	if (receiver->n == PART_ROWS)
		send_interactions(receiver);
	return receiver->job != NULL || receiver->pairs->n <= receiver->pairs->most;
}

/*
 * Read interactions, of these users only unless keys is 0; returns the number
 * of rows that were read
 */
static uint64
read_interactions(InteractionReceiver *receiver, const AlsInteractions *interactions, Datum keys)
{
	bool		some = DatumGetPointer(keys) != NULL;
	Oid			type = INT8ARRAYOID;
	StringInfoData sql;
	uint64		rows;

	AlsInitReceiver(&receiver->dest, receive_interaction);
	receiver->interactions = interactions;
	receiver->rows = receiver->n = 0;
	initStringInfo(&sql);
	appendStringInfo(&sql, "SELECT t.%s, t.%s", interactions->columns[0], interactions->columns[1]);
	if (interactions->columns[2])
		appendStringInfo(&sql, ", t.%s", interactions->columns[2]);
	appendStringInfo(&sql, " FROM %s t", interactions->relation);
	if (some)
		appendStringInfo(&sql, " WHERE t.%s OPERATOR(pg_catalog.=) ANY ($1)", interactions->columns[0]);
	AlsReadRows(sql.data, some ? 1 : 0, &type, &keys, NULL, &receiver->dest);
	send_interactions(receiver);
	rows = receiver->rows;
	pfree(receiver);
	pfree(sql.data);
	return rows;
}

uint64
AlsReadInteractions(AlsJob *job, const AlsInteractions *interactions, Datum keys)
{
	InteractionReceiver *receiver = palloc0_object(InteractionReceiver);

	receiver->job = job;
	receiver->alpha = job->begin.alpha;
	return read_interactions(receiver, interactions, keys);
}

bool
AlsReadPairs(const AlsInteractions *interactions, Datum keys, double alpha, uint64 most,
			 AlsPairs *pairs)
{
	InteractionReceiver *receiver = palloc0_object(InteractionReceiver);

	memset(pairs, 0, sizeof(*pairs));
	pairs->most = most;
	pairs->context = CurrentMemoryContext;
	receiver->pairs = pairs;
	receiver->alpha = alpha;
	(void) read_interactions(receiver, interactions, keys);
	return pairs->n <= most;
}

/* ---- factors ---- */

static void
send_factors(FactorReceiver *receiver)
{
	if (receiver->n > 0 && receiver->job)
		AlsJobSet(receiver->job, receiver->side, receiver->n, receiver->keys, receiver->elements);
	else if (receiver->n > 0)
		receiver->take(receiver->arg, receiver->n, receiver->keys, receiver->elements);
	receiver->n = 0;
}

void
AlsComplainOfFactor(const AlsFactors *factors, int64 key, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_EXCEPTION),
			 errmsg("the factor with key " INT64_FORMAT " of relation %s cannot be used", key,
					factors->relation),
			 errdetail_internal("%s", detail)));
}

void
AlsDecodeFactor(TupleTableSlot *slot, const AlsFactors *factors, int64 *key, MirrorVector *vector)
{
	*key = MirrorKey(slot->tts_values[0], factors->key_type);
	MirrorDecodeVector((struct varlena *) DatumGetPointer(slot->tts_values[1]), factors->type,
					   vector);
	if (vector->kind != GPUVEC_VECTOR_GOOD)
		AlsComplainOfFactor(factors, *key, _("It is no array of one dimension without nulls."));
}

/* Append a factor to the part */
static void
add_factor(FactorReceiver *receiver, int64 key, const MirrorVector *vector)
{
	uint32		factors = receiver->width;

	if (vector->width != factors)
		AlsComplainOfFactor(receiver->factors, key,
							psprintf(_("It has %u elements, not %u."), vector->width, factors));
	for (uint32 i = 0; i < factors; i++)
	{
		if (!isfinite(vector->elements[i]))
			AlsComplainOfFactor(receiver->factors, key, _("An element is not a finite number."));
		if (fabsf(vector->elements[i]) > GPUVEC_ALS_MAX_ELEMENT)
			AlsComplainOfFactor(receiver->factors, key, _("An element is too large."));
	}
	receiver->keys[receiver->n] = key;
	memcpy(receiver->elements + (Size) receiver->n * factors, vector->elements,
		   factors * sizeof(float));
	receiver->n++;
}

/* DestReceiver: a factor; nulls are left out */
static bool
receive_factor(TupleTableSlot *slot, DestReceiver *self)
{
	FactorReceiver *receiver = (FactorReceiver *) self;
	MemoryContext old = MemoryContextSwitchTo(receiver->context);
	MirrorVector vector;
	int64		key;

	slot_getallattrs(slot);
	if (!slot->tts_isnull[0] && !slot->tts_isnull[1])
	{
		AlsDecodeFactor(slot, receiver->factors, &key, &vector);
		if (receiver->ascending && receiver->rows > 0 && receiver->last == key)
			AlsComplainOfFactor(receiver->factors, key, _("Several rows have this key."));
		if (receiver->n == receiver->room)
			send_factors(receiver);
		add_factor(receiver, key, &vector);
		receiver->last = key;
		receiver->rows++;
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(receiver->context);
	return true;
}

/* Read a table of factors; returns the number of factors */
static uint64
read_factors(FactorReceiver *receiver)
{
	const AlsFactors *factors = receiver->factors;
	StringInfoData sql;

	AlsInitReceiver(&receiver->dest, receive_factor);
	receiver->context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec factor",
											  ALLOCSET_DEFAULT_SIZES);
	receiver->room = PART_BYTES / (receiver->width * sizeof(float));
	receiver->keys = palloc_array(int64, receiver->room);
	receiver->elements = palloc_array(float, (Size) receiver->room * receiver->width);
	initStringInfo(&sql);
	appendStringInfo(&sql, "SELECT t.%s, t.%s FROM %s t", factors->key, factors->column,
					 factors->relation);
	if (receiver->ascending)
		appendStringInfo(&sql, " ORDER BY t.%s USING OPERATOR(pg_catalog.<)", factors->key);
	AlsReadRows(sql.data, 0, NULL, NULL, NULL, &receiver->dest);
	send_factors(receiver);
	pfree(receiver->keys);
	pfree(receiver->elements);
	pfree(sql.data);
	MemoryContextDelete(receiver->context);
	return receiver->rows;
}

uint64
AlsReadFactors(AlsJob *job, gpuvec_als_side side, const AlsFactors *factors, bool ascending)
{
	FactorReceiver receiver = {
		.job = job, .side = side, .factors = factors, .ascending = ascending,
		.width = job->begin.factors
	};

	return read_factors(&receiver);
}

void
AlsReadFactorParts(const AlsFactors *factors, uint32 width, AlsTakeFactors *take, void *arg)
{
	FactorReceiver receiver = {
		.factors = factors, .ascending = true, .width = width, .take = take, .arg = arg
	};

	(void) read_factors(&receiver);
}

/* ---- their width ---- */

typedef struct WidthReceiver
{
	DestReceiver dest;
	const AlsFactors *factors;
	uint32		width;
} WidthReceiver;

/* DestReceiver: the first factor that is not null */
static bool
receive_width(TupleTableSlot *slot, DestReceiver *self)
{
	WidthReceiver *receiver = (WidthReceiver *) self;
	MirrorVector vector;
	int64		key;

	slot_getallattrs(slot);
	AlsDecodeFactor(slot, receiver->factors, &key, &vector);
	if (vector.width < 1 || vector.width > GPUVEC_ALS_MAX_FACTORS)
		AlsComplainOfFactor(receiver->factors, key,
							psprintf(_("It has %u elements; it must have between 1 and %d."), vector.width,
									 GPUVEC_ALS_MAX_FACTORS));
	receiver->width = vector.width;
	return true;
}

uint32
AlsFactorWidth(const AlsFactors *factors)
{
	WidthReceiver receiver = {.factors = factors};

	AlsInitReceiver(&receiver.dest, receive_width);
	AlsReadRows(psprintf("SELECT t.%s, t.%s FROM %s t WHERE t.%s IS NOT NULL AND t.%s IS NOT NULL LIMIT 1",
						 factors->key, factors->column, factors->relation, factors->key, factors->column),
				0, NULL, NULL, NULL, &receiver.dest);
	return receiver.width;
}
