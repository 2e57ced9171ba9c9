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

/* Interactions, on their way to the engine */
typedef struct InteractionReceiver
{
	DestReceiver dest;
	AlsJob	   *job;
	const AlsInteractions *interactions;
	uint64		rows;
	uint32		n;				/* rows in the part */
	int64		users[PART_ROWS];
	int64		items[PART_ROWS];
	float		weights[PART_ROWS];
} InteractionReceiver;

/* Factors, on their way to the engine */
typedef struct FactorReceiver
{
	DestReceiver dest;
	AlsJob	   *job;
	gpuvec_als_side side;
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

static void
send_interactions(InteractionReceiver *receiver)
{
	if (receiver->n > 0)
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
	if (!(fabs(weight) <= Min(GPUVEC_ALS_MAX_CONFIDENCE / receiver->job->begin.alpha, FLT_MAX)))
		complain_of_weight(weight, user, item);
	receiver->users[receiver->n] = user;
	receiver->items[receiver->n] = item;
	receiver->weights[receiver->n] = (float) weight;
	if (receiver->weights[receiver->n] != 0)
		receiver->n++;
	if (receiver->n == PART_ROWS)
		send_interactions(receiver);
	return true;
}

uint64
AlsReadInteractions(AlsJob *job, const AlsInteractions *interactions, Datum keys)
{
	InteractionReceiver *receiver = palloc_object(InteractionReceiver);
	bool		some = DatumGetPointer(keys) != NULL;
	Oid			type = INT8ARRAYOID;
	StringInfoData sql;
	uint64		rows;

	AlsInitReceiver(&receiver->dest, receive_interaction);
	receiver->job = job;
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

/* ---- factors ---- */

static void
send_factors(FactorReceiver *receiver)
{
	if (receiver->n > 0)
		AlsJobSet(receiver->job, receiver->side, receiver->n, receiver->keys, receiver->elements);
	receiver->n = 0;
}

/* Raise the error that a factor cannot be used */
static void
complain_of_factor(const AlsFactors *factors, int64 key, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_EXCEPTION),
			 errmsg("the factor with key " INT64_FORMAT " of relation %s cannot be used", key,
					factors->relation),
			 errdetail_internal("%s", detail)));
}

/* Decode the factor in a row; *key is its key */
static void
decode_factor(TupleTableSlot *slot, const AlsFactors *factors, int64 *key, MirrorVector *vector)
{
	*key = MirrorKey(slot->tts_values[0], factors->key_type);
	MirrorDecodeVector((struct varlena *) DatumGetPointer(slot->tts_values[1]), factors->type,
					   vector);
	if (vector->kind != GPUVEC_VECTOR_GOOD)
		complain_of_factor(factors, *key, _("It is no array of one dimension without nulls."));
}

/* Append a factor to the part */
static void
add_factor(FactorReceiver *receiver, int64 key, const MirrorVector *vector)
{
	uint32		factors = receiver->job->begin.factors;

	if (vector->width != factors)
		complain_of_factor(receiver->factors, key,
						   psprintf(_("It has %u elements, not %u."), vector->width, factors));
	for (uint32 i = 0; i < factors; i++)
		if (!isfinite(vector->elements[i]))
			complain_of_factor(receiver->factors, key, _("An element is not a finite number."));
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
		decode_factor(slot, receiver->factors, &key, &vector);
		if (receiver->ascending && receiver->rows > 0 && receiver->last == key)
			complain_of_factor(receiver->factors, key, _("Several rows have this key."));
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

uint64
AlsReadFactors(AlsJob *job, gpuvec_als_side side, const AlsFactors *factors, bool ascending)
{
	FactorReceiver receiver = {
		.job = job, .side = side, .factors = factors, .ascending = ascending
	};
	StringInfoData sql;

	AlsInitReceiver(&receiver.dest, receive_factor);
	receiver.context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec factor",
											 ALLOCSET_DEFAULT_SIZES);
	receiver.room = PART_BYTES / (job->begin.factors * sizeof(float));
	receiver.keys = palloc_array(int64, receiver.room);
	receiver.elements = palloc_array(float, (Size) receiver.room * job->begin.factors);
	initStringInfo(&sql);
	appendStringInfo(&sql, "SELECT t.%s, t.%s FROM %s t", factors->key, factors->column,
					 factors->relation);
	if (ascending)
		appendStringInfo(&sql, " ORDER BY t.%s USING OPERATOR(pg_catalog.<)", factors->key);
	AlsReadRows(sql.data, 0, NULL, NULL, NULL, &receiver.dest);
	send_factors(&receiver);
	pfree(receiver.keys);
	pfree(receiver.elements);
	pfree(sql.data);
	MemoryContextDelete(receiver.context);
	return receiver.rows;
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
	decode_factor(slot, receiver->factors, &key, &vector);
	if (vector.width < 1 || vector.width > GPUVEC_ALS_MAX_FACTORS)
		complain_of_factor(receiver->factors, key,
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
