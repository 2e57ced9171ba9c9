/*-------------------------------------------------------------------------
 *
 * als_read.c
 *	  Rows of tables to the engine.
 *
 * Tables are read by SQL: with the rights of the caller, row-level security
 * included, and under the snapshot of the calling statement.  So views,
 * partitioned and foreign tables can be read as well.  The executor hands
 * each row to a receiver, which converts it and sends it on when a chunk is
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

/* Bytes of factors in one message */
#define CHUNK_BYTES		((Size) 4 * 1024 * 1024)

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
	uint32		n;				/* rows in the chunk */
	uint32		capacity;
	int64	   *keys;			/* [capacity] */
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

/* Append a factor to the chunk */
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
		if (receiver->n == receiver->capacity)
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
	receiver->capacity = CHUNK_BYTES / (receiver->width * sizeof(float));
	receiver->keys = palloc_array(int64, receiver->capacity);
	receiver->elements = palloc_array(float, (Size) receiver->capacity * receiver->width);
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
AlsReadFactorChunks(const AlsFactors *factors, uint32 width, AlsTakeFactors *take, void *arg)
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
