/*-------------------------------------------------------------------------
 *
 * idset_ranking.c
 *	  Order by any measure: tokens <&> idset_ranking(query, measure).
 *
 * The operator returns the negated score of the set, so that the most similar
 * sets come first.  The score is that of the measure's SQL function: one C
 * function computes both.  There is no rounding beside it, as there would be
 * in 1 - score, so sets with different scores have different results.
 *
 * As with thresholds (idset_threshold.c), the right side is a composite value,
 * which a plain ROW() is, and which an index scan can read the measure from.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "catalog/pg_type.h"
#include "idset/idset_ranking.h"
#include "idset/idset_threshold.h"
#include "idset/kept_argument.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(idset_ranking);
PG_FUNCTION_INFO_V1(idset_negative_score);

/* Columns of the type idset_ranking */
enum
{
	RANKING_QUERY,
	RANKING_MEASURE,
	RANKING_COLUMNS
};

/* Constructor */
Datum
idset_ranking(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(threshold_row(fcinfo));
}

bool
idset_ranking_parse(HeapTupleHeader value, IdSetRanking *result, bool raise)
{
	static const Oid types[RANKING_COLUMNS] = {InvalidOid, TEXTOID};
	Datum		values[RANKING_COLUMNS];
	bool		nulls[RANKING_COLUMNS];

	memset(result, 0, sizeof(*result));
	threshold_deform(value, types, RANKING_COLUMNS, values, nulls);
	if (nulls[RANKING_MEASURE])
		return true;
	if (!threshold_measure(TextDatumGetCString(values[RANKING_MEASURE]), raise, &result->scoring))
		return false;
	if (!nulls[RANKING_QUERY])
		result->query = DatumGetIdSetP(values[RANKING_QUERY]);
	return true;
}

/* Parse the right side of the operators */
static void *
parse_right_side(FunctionCallInfo fcinfo, struct varlena *value)
{
	IdSetRanking *ranking = palloc_object(IdSetRanking);

	idset_ranking_parse((HeapTupleHeader) value, ranking, true);
	return ranking;
}

const IdSetRanking *
idset_ranking_argument(FunctionCallInfo fcinfo)
{
	return kept_argument(fcinfo, 1, parse_right_side);
}

/* <&> operator */
Datum
idset_negative_score(PG_FUNCTION_ARGS)
{
	const IdSetRanking *ranking = idset_ranking_argument(fcinfo);
	IdSet	   *set;
	double		result;

	if (ranking->query == NULL)
		PG_RETURN_NULL();
	set = PG_GETARG_IDSET_P(0);
	result = idset_ranking_distance(ranking, set);
	PG_FREE_IF_COPY(set, 0);
	PG_RETURN_FLOAT8(result);
}
