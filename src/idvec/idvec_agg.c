/*-------------------------------------------------------------------------
 *
 * idvec_agg.c
 *	  idvec_agg(id, value): a vector of the ids in rows, whose values are
 *	  added up.
 *
 * Sums are of float8, in the order of the rows, and rounded to float4 at the
 * end.  As for sum(float8), another order may give other last bits.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "idvec/idvec.h"
#include "libpq/pqformat.h"

PG_FUNCTION_INFO_V1(idvec_agg_transfn);
PG_FUNCTION_INFO_V1(idvec_agg_combinefn);
PG_FUNCTION_INFO_V1(idvec_agg_serialfn);
PG_FUNCTION_INFO_V1(idvec_agg_deserialfn);
PG_FUNCTION_INFO_V1(idvec_agg_finalfn);

/* The aggregate's state, made on the first call */
static IdSums *
get_sums(FunctionCallInfo fcinfo)
{
	MemoryContext context;

	if (!AggCheckCallContext(fcinfo, &context))
		elog(ERROR, "aggregate function called in non-aggregate context");
	return PG_ARGISNULL(0) ? id_sums_make(context) : (IdSums *) PG_GETARG_POINTER(0);
}

/*
 * Transition of idvec_agg(int8, float8).  A row with a NULL only creates the
 * state, so the result of NULLs alone is {}.
 */
Datum
idvec_agg_transfn(PG_FUNCTION_ARGS)
{
	IdSums	   *sums = get_sums(fcinfo);
	double		number;

	if (PG_ARGISNULL(1) || PG_ARGISNULL(2))
		PG_RETURN_POINTER(sums);
	number = PG_GETARG_FLOAT8(2);
	if (isnan(number) || isinf(number))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("value %g is out of range for type idvec", number),
				 errdetail("Values are finite numbers of type real.")));
	id_sums_add(sums, idvec_check_id(PG_GETARG_INT64(1)), number);
	PG_RETURN_POINTER(sums);
}

/* Combine: add the sums of the second state to the first */
Datum
idvec_agg_combinefn(PG_FUNCTION_ARGS)
{
	IdSums	   *sums;
	IdSums	   *others;
	IdSum	   *list;

	if (PG_ARGISNULL(1))
	{
		if (PG_ARGISNULL(0))
			PG_RETURN_NULL();
		PG_RETURN_POINTER(PG_GETARG_POINTER(0));
	}
	sums = get_sums(fcinfo);
	others = (IdSums *) PG_GETARG_POINTER(1);
	list = id_sums_list(others);
	for (uint32 i = 0; i < id_sums_count(others); i++)
		id_sums_add(sums, list[i].id, list[i].sum);
	pfree(list);
	PG_RETURN_POINTER(sums);
}

/* Serialize the state for another process: ids, each with its sum */
Datum
idvec_agg_serialfn(PG_FUNCTION_ARGS)
{
	IdSums	   *sums = (IdSums *) PG_GETARG_POINTER(0);
	IdSum	   *list = id_sums_list(sums);
	StringInfoData buf;

	pq_begintypsend(&buf);
	for (uint32 i = 0; i < id_sums_count(sums); i++)
	{
		pq_sendint32(&buf, list[i].id);
		pq_sendfloat8(&buf, list[i].sum);
	}
	pfree(list);
	PG_RETURN_BYTEA_P(pq_endtypsend(&buf));
}

/* Deserialize the state */
Datum
idvec_agg_deserialfn(PG_FUNCTION_ARGS)
{
	bytea	   *state = PG_GETARG_BYTEA_PP(0);
	IdSums	   *sums;
	StringInfoData buf;

	if (!AggCheckCallContext(fcinfo, NULL))
		elog(ERROR, "aggregate function called in non-aggregate context");
	sums = id_sums_make(CurrentMemoryContext);
	initStringInfo(&buf);
	appendBinaryStringInfo(&buf, VARDATA_ANY(state), VARSIZE_ANY_EXHDR(state));
	while (buf.cursor < buf.len)
	{
		uint32		id = pq_getmsgint(&buf, sizeof(uint32));

		id_sums_add(sums, id, pq_getmsgfloat8(&buf));
	}
	pfree(buf.data);
	PG_RETURN_POINTER(sums);
}

/*
 * Final function.  The state stays as it is: a window function goes on with
 * it.
 */
Datum
idvec_agg_finalfn(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	PG_RETURN_IDVEC_P(idvec_from_sums((IdSums *) PG_GETARG_POINTER(0)));
}
