/*-------------------------------------------------------------------------
 *
 * als_arguments.c
 *	  Arguments of the functions that train, fold in and recommend.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "recommend/recommend.h"

const char *
AlsNameArgument(FunctionCallInfo fcinfo, int argument)
{
	return PG_ARGISNULL(argument) ? NULL : NameStr(*PG_GETARG_NAME(argument));
}

double
AlsFloatArgument(FunctionCallInfo fcinfo, int argument, const char *name, bool positive)
{
	double		number = PG_GETARG_FLOAT8(argument);

	if (!isfinite(number) || number < 0 || (positive && number == 0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 positive ?
				 errmsg("%s must be a finite number greater than zero", name) :
				 errmsg("%s must be a finite number that is not negative", name)));
	if (positive && number < GPUVEC_ALS_MIN_ALPHA)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be at least %g", name, GPUVEC_ALS_MIN_ALPHA)));
	return number;
}

uint32
AlsRowsArgument(FunctionCallInfo fcinfo, int argument)
{
	int64		k = PG_GETARG_INT64(argument);

	if (k < 1 || k > GPUVEC_MAX_K)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("k must be between 1 and %d", GPUVEC_MAX_K)));
	return (uint32) k;
}
