/*-------------------------------------------------------------------------
 *
 * als_weights.c
 *	  Interactions with their weights, as they go into a message.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <float.h>
#include <math.h>

#include "catalog/pg_type.h"
#include "recommend/als_interactions.h"
#include "utils/builtins.h"

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

bool
AlsTakeInteraction(AlsInteractionChunk *chunk, const Oid *types, double alpha, int64 user,
				   Datum item, const Datum *weight)
{
	double		value = weight ? decode_weight(*weight, types[2]) : 1;

	if (!(fabs(value) <= Min(GPUVEC_ALS_MAX_CONFIDENCE / alpha, FLT_MAX)))
		complain_of_weight(value, user, MirrorKey(item, types[1]));
	chunk->users[chunk->n] = user;
	chunk->items[chunk->n] = MirrorKey(item, types[1]);
	chunk->weights[chunk->n] = (float) value;
	chunk->n += chunk->weights[chunk->n] != 0;
	return chunk->n == ALS_CHUNK_ROWS;
}
