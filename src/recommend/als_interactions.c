/*-------------------------------------------------------------------------
 *
 * als_interactions.c
 *	  Interactions of users and items: from a table to the engine, to a list,
 *	  or to whoever takes them.
 *
 * They are read by SQL, as all tables are (als_read.c).  Reading takes most
 * of the time of a training.  So if the plan is nothing but a scan of an
 * ordinary table, parallel workers scan it (als_parallel.c).
 *
 * In which order rows come makes no difference to the engine, to the bit.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <float.h>
#include <math.h>

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "executor/tuptable.h"
#include "lib/stringinfo.h"
#include "recommend/als_interactions.h"
#include "tcop/pquery.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/portal.h"

/* Most users that the planner gets to see where it need not know all */
#define MOST_PLANNED	1000

/* Interactions on their way */
typedef struct InteractionReceiver
{
	DestReceiver dest;
	AlsInteractionChunk chunk;
	const AlsInteractions *interactions;
	double		alpha;
	uint64		rows;			/* that had keys and a weight */
	AlsTakeChunk *take;			/* who gets them */
	void	   *arg;
	AlsPairs   *pairs;			/* the list that gets them, or NULL */
} InteractionReceiver;

/* AlsTakeChunk: append to a list, as far as it may have that many */
static void
keep_pairs(void *arg, uint64 n, const int64 *users, const int64 *items, const float *weights)
{
	AlsPairs   *pairs = arg;

	for (uint64 i = 0; i < n && pairs->n <= pairs->most; i++)
	{
		AlsPair    *pair;

		if (pairs->n == pairs->capacity)
		{
			pairs->capacity = Max(2 * pairs->capacity, 256);
			pairs->pairs = pairs->pairs ?
				repalloc_huge(pairs->pairs, pairs->capacity * sizeof(AlsPair)) :
				MemoryContextAllocHuge(pairs->context, pairs->capacity * sizeof(AlsPair));
		}
		pair = &pairs->pairs[pairs->n++];
		memset(pair, 0, sizeof(*pair));
		pair->user = users[i];
		pair->item = items[i];
		pair->weight = weights[i];
	}
}

/* AlsTakeChunk: to the engine */
static void
send_chunk(void *arg, uint64 n, const int64 *users, const int64 *items, const float *weights)
{
	AlsJobAdd(arg, n, users, items, weights);
}

/* Hand over a chunk, and make it empty */
static void
hand_over(InteractionReceiver *receiver)
{
	AlsInteractionChunk *chunk = &receiver->chunk;

	if (chunk->n > 0)
		receiver->take(receiver->arg, chunk->n, chunk->users, chunk->items, chunk->weights);
	chunk->n = 0;
}

/* DestReceiver: an interaction; those without key or weight are left out */
static bool
receive_interaction(TupleTableSlot *slot, DestReceiver *self)
{
	InteractionReceiver *receiver = (InteractionReceiver *) self;
	const AlsInteractions *from = receiver->interactions;
	bool		weighted = from->columns[2] != NULL;

	slot_getallattrs(slot);
	if (slot->tts_isnull[0] || slot->tts_isnull[1] || (weighted && slot->tts_isnull[2]))
		return true;
	receiver->rows++;
	if (AlsTakeInteraction(&receiver->chunk, from->types, receiver->alpha,
						   MirrorKey(slot->tts_values[0], from->types[0]), slot->tts_values[1],
						   weighted ? &slot->tts_values[2] : NULL))
		hand_over(receiver);
	return receiver->pairs == NULL || receiver->pairs->n <= receiver->pairs->most;
}

/* The statement that reads interactions, with users as a parameter or not */
static char *
make_statement(const AlsInteractions *interactions, bool some)
{
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfo(&sql, "SELECT t.%s, t.%s", interactions->columns[0], interactions->columns[1]);
	if (interactions->columns[2])
		appendStringInfo(&sql, ", t.%s", interactions->columns[2]);
	appendStringInfo(&sql, " FROM %s t", interactions->relation);
	if (some)
		appendStringInfo(&sql, " WHERE t.%s OPERATOR(pg_catalog.=) ANY ($1)", interactions->columns[0]);
	return sql.data;
}

/* True if a key is a number of this type */
static bool
fits_type(int64 key, Oid type)
{
	return type == INT2OID ? key >= PG_INT16_MIN && key <= PG_INT16_MAX :
		key >= PG_INT32_MIN && key <= PG_INT32_MAX;
}

/*
 * The server looks elements of an array up in a hash table only if they have
 * the type of the column, and goes through all of them otherwise
 */
Datum
AlsKeysOfType(Datum array, Oid type, Oid *array_type)
{
	Datum	   *elements;
	bool	   *nulls;
	int			n;
	int			kept = 0;

	*array_type = get_array_type(type);
	if (type == INT8OID)
		return array;
	deconstruct_array(DatumGetArrayTypeP(array), INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
					  TYPALIGN_DOUBLE, &elements, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		int64		key = DatumGetInt64(elements[i]);

		GPUVEC_STEP(i);
		if (!nulls[i] && fits_type(key, type))
			elements[kept++] = type == INT2OID ? Int16GetDatum((int16) key) : Int32GetDatum((int32) key);
	}
	return PointerGetDatum(construct_array(elements, kept, type, get_typlen(type), true,
										   type == INT2OID ? TYPALIGN_SHORT : TYPALIGN_INT));
}

/* Number of elements of an array */
static int
array_elements(Datum array)
{
	const ArrayType *keys = DatumGetArrayTypeP(array);

	return ArrayGetNItems(ARR_NDIM(keys), ARR_DIMS(keys));
}

/* MOST_PLANNED elements of an int8[], evenly spread, but nulls */
static Datum
sample_keys(Datum array)
{
	Datum	   *elements;
	bool	   *nulls;
	int			n;
	int			kept = 0;

	deconstruct_array(DatumGetArrayTypeP(array), INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
					  TYPALIGN_DOUBLE, &elements, &nulls, &n);
	for (int i = 0; i < MOST_PLANNED; i++)
	{
		int			from = (int) ((int64) i * n / MOST_PLANNED);

		if (!nulls[from])
			elements[kept++] = elements[from];
	}
	return PointerGetDatum(construct_array(elements, kept, INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
										   TYPALIGN_DOUBLE));
}

/* Read without workers */
static void
read_here(InteractionReceiver *receiver, const char *sql, Datum keys)
{
	bool		some = DatumGetPointer(keys) != NULL;
	Oid			type;
	Datum		param = some ? AlsKeysOfType(keys, receiver->interactions->types[0], &type) : keys;

	AlsReadRows(sql, some ? 1 : 0, &type, &param, NULL, &receiver->dest);
}

/*
 * Plan the statement, with these users as its parameter unless keys is 0.
 * True if parallel workers should read, who then find so many times as many
 * users.  Else, the statement's rows go to the receiver unless that is NULL.
 */
static bool
workers_should_read(const AlsInteractions *interactions, const char *sql, Datum keys, double times,
					InteractionReceiver *receiver)
{
	bool		some = DatumGetPointer(keys) != NULL;
	Oid			type;
	Datum		param = some ? AlsKeysOfType(keys, interactions->types[0], &type) : keys;
	Portal		portal;
	bool		scans;

	SPI_connect();
	/* read-only: under the snapshot that is active now, the statement's */
	portal = SPI_cursor_open_with_args(NULL, sql, some ? 1 : 0, &type, &param, NULL, true, 0);
	scans = AlsOnlyScans(portal, interactions->relid, times);
	if (!scans && receiver)
		(void) PortalRunFetch(portal, FETCH_FORWARD, FETCH_ALL, &receiver->dest);
	SPI_cursor_close(portal);
	SPI_finish();
	return scans;
}

/*
 * The same for many users: planned for some of them.  The planner compares
 * each key with all of the column's most common values, which takes a quarter
 * of a second with 100,000 keys.
 */
static bool
workers_should_read_many(const AlsInteractions *interactions, const char *sql, Datum keys)
{
	int			n = DatumGetPointer(keys) ? array_elements(keys) : 0;

	return n > MOST_PLANNED &&
		workers_should_read(interactions, sql, sample_keys(keys), (double) n / MOST_PLANNED, NULL);
}

/*
 * Read interactions, of these users only unless keys is 0; returns the number
 * of rows that had keys and a weight
 */
static uint64
read_interactions(InteractionReceiver *receiver, const AlsInteractions *interactions, Datum keys)
{
	bool		some = DatumGetPointer(keys) != NULL;
	char	   *sql = make_statement(interactions, some);
	uint64		rows;

	AlsInitReceiver(&receiver->dest, receive_interaction);
	receiver->interactions = interactions;
	if ((workers_should_read_many(interactions, sql, keys) ||
		 workers_should_read(interactions, sql, keys, 1, receiver)) &&
		!AlsReadParallel(interactions, keys, receiver->alpha, receiver->take, receiver->arg,
						 &receiver->rows))
		read_here(receiver, sql, keys);
	hand_over(receiver);
	rows = receiver->rows;
	pfree(receiver);
	pfree(sql);
	return rows;
}

uint64
AlsReadChunks(const AlsInteractions *interactions, Datum keys, double alpha, AlsTakeChunk *take,
			  void *arg)
{
	InteractionReceiver *receiver = palloc0_object(InteractionReceiver);

	receiver->alpha = alpha;
	receiver->take = take;
	receiver->arg = arg;
	return read_interactions(receiver, interactions, keys);
}

uint64
AlsReadInteractions(AlsJob *job, const AlsInteractions *interactions, Datum keys)
{
	return AlsReadChunks(interactions, keys, job->begin.alpha, send_chunk, job);
}

bool
AlsReadPairs(const AlsInteractions *interactions, Datum keys, double alpha, uint64 most,
			 AlsPairs *pairs)
{
	InteractionReceiver *receiver = palloc0_object(InteractionReceiver);

	memset(pairs, 0, sizeof(*pairs));
	pairs->most = most;
	pairs->context = CurrentMemoryContext;
	receiver->take = keep_pairs;
	receiver->arg = receiver->pairs = pairs;
	receiver->alpha = alpha;
	(void) read_interactions(receiver, interactions, keys);
	return pairs->n <= most;
}
