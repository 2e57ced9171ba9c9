/*-------------------------------------------------------------------------
 *
 * draw.c
 *	  gpuvec_draw: a random number for each pair of a user and an item, to
 *	  split interactions into those for training and those for testing.
 *
 * It depends on the pair and the seed only, not on the order of rows, nor on
 * the machine or the version of PostgreSQL.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "core/pooling.h"
#include "fmgr.h"

PG_FUNCTION_INFO_V1(gpuvec_draw);

/* From 0 to less than 1 */
Datum
gpuvec_draw(PG_FUNCTION_ARGS)
{
	uint64		user = (uint64) PG_GETARG_INT64(0);
	uint64		item = (uint64) PG_GETARG_INT64(1);
	uint64		hash = gpuvec_hash_key(PG_GETARG_INT64(2) ^ INT64CONST(0x2545F4914F6CDD1D));

	hash = gpuvec_hash_key((int64) ((hash ^ user) + UINT64CONST(0x9E3779B97F4A7C15)));
	hash = gpuvec_hash_key((int64) ((hash ^ item) + UINT64CONST(0xD1B54A32D192ED03)));
	PG_RETURN_FLOAT8((double) (hash >> 11) / 9007199254740992.0);
}
