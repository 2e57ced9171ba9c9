/*-------------------------------------------------------------------------
 *
 * best_items.c
 *	  gpuvec_recommend: the items with the highest scores for each user.
 *
 * The score is the inner product of both factors.  One statement joins the
 * users' factors with gpuvec_nearest, which is exact, searches a mirror of
 * the items' factors, and leaves out given items: those of the caller, and
 * those that the user has interacted with.  It runs with the caller's rights,
 * and its names are qualified, so that the search path does not matter.  Rows
 * go to a tuplestore, which is written to disk when it becomes large.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "catalog/pg_type.h"
#include "embedding/embedding_table.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "recommend/recommend.h"
#include "search/set_function.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(gpuvec_recommend);

/* Positions of the arguments */
enum
{
	ARG_USER_FACTORS,
	ARG_ITEM_FACTORS,
	ARG_USERS,
	ARG_K,
	ARG_INTERACTIONS,
	ARG_USER_COLUMN,
	ARG_ITEM_COLUMN,
	ARG_EXCLUDE,
	ARG_KEY_COLUMN,
	ARG_COLUMN_NAME,
	N_ARGS
};

static const char *const required[N_ARGS] = {
	"user_factors", "item_factors", NULL, "k", NULL, NULL, NULL, NULL, NULL, NULL
};

/* With interactions, their columns must not be null, either */
static const char *const required_columns[N_ARGS] = {
	[ARG_USER_COLUMN] = "user_column",[ARG_ITEM_COLUMN] = "item_column"
};

/* Parameters of the statement */
enum
{
	PARAM_USERS,
	PARAM_RELATION,
	PARAM_KEY_COLUMN,
	PARAM_COLUMN,
	PARAM_K,
	PARAM_EXCLUDE,
	N_PARAMS
};

/* Where the statement's rows go */
typedef struct StoreReceiver
{
	DestReceiver dest;
	Tuplestorestate *store;
} StoreReceiver;

static bool
receive_row(TupleTableSlot *slot, DestReceiver *self)
{
	tuplestore_puttupleslot(((StoreReceiver *) self)->store, slot);
	return true;
}

/* Append a condition that a column is among the users, unless all are */
static void
append_users(StringInfo sql, FunctionCallInfo fcinfo, const char *word, const char *column)
{
	if (!PG_ARGISNULL(ARG_USERS))
		appendStringInfo(sql, " %s %s OPERATOR(pg_catalog.=) ANY ($%d)", word, column,
						 PARAM_USERS + 1);
}

/* Append a join with the items that each user has interacted with */
static void
append_known(StringInfo sql, FunctionCallInfo fcinfo, const AlsFactors *users)
{
	AlsInteractions interactions;

	EmbeddingRequireArguments(fcinfo, required_columns, N_ARGS);
	AlsDescribeInteractions(PG_GETARG_OID(ARG_INTERACTIONS),
							AlsNameArgument(fcinfo, ARG_USER_COLUMN),
							AlsNameArgument(fcinfo, ARG_ITEM_COLUMN), NULL, &interactions);
	appendStringInfo(sql, " LEFT JOIN (SELECT i.%s AS key, pg_catalog.array_agg(i.%s::pg_catalog.int8) AS items FROM %s i",
					 interactions.columns[0], interactions.columns[1], interactions.relation);
	append_users(sql, fcinfo, "WHERE", psprintf("i.%s", interactions.columns[0]));
	appendStringInfo(sql, " GROUP BY i.%s) known ON known.key OPERATOR(pg_catalog.=) u.%s",
					 interactions.columns[0], users->key);
}

static char *
make_statement(FunctionCallInfo fcinfo, const AlsFactors *users)
{
	Oid			schema = get_func_namespace(fcinfo->flinfo->fn_oid);
	bool		known = !PG_ARGISNULL(ARG_INTERACTIONS);
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfo(&sql, "SELECT u.%s::pg_catalog.int8, n.rank, n.key, n.score FROM %s u", users->key,
					 users->relation);
	if (known)
		append_known(&sql, fcinfo, users);
	/* not every type of vectors has a cast to float8[] */
	appendStringInfo(&sql, " CROSS JOIN LATERAL %s($%d, $%d, $%d, u.%s::pg_catalog.float4[]::pg_catalog.float8[], $%d, 'ip', ",
					 quote_qualified_identifier(get_namespace_name(schema), "gpuvec_nearest"),
					 PARAM_RELATION + 1, PARAM_KEY_COLUMN + 1, PARAM_COLUMN + 1, users->column, PARAM_K + 1);
	appendStringInfo(&sql, known ? "pg_catalog.array_cat($%d, known.items)) n" : "$%d) n", PARAM_EXCLUDE + 1);
	appendStringInfo(&sql, " WHERE u.%s IS NOT NULL AND u.%s IS NOT NULL", users->key, users->column);
	append_users(&sql, fcinfo, "AND", psprintf("u.%s", users->key));
	return sql.data;
}

Datum
gpuvec_recommend(PG_FUNCTION_ARGS)
{
	Oid			types[N_PARAMS] = {INT8ARRAYOID, REGCLASSOID, NAMEOID, NAMEOID, INT8OID, INT8ARRAYOID};
	char		nulls[N_PARAMS + 1] = "      ";
	Datum		values[N_PARAMS];
	StoreReceiver receiver;
	AlsFactors	factors[2];		/* of gpuvec_als_side */

	GpuvecMaterializedSRF(fcinfo);
	EmbeddingRequireArguments(fcinfo, required, N_ARGS);
	for (int side = 0; side < 2; side++)
		AlsDescribeFactors(PG_GETARG_OID(side), AlsNameArgument(fcinfo, ARG_KEY_COLUMN),
						   AlsNameArgument(fcinfo, ARG_COLUMN_NAME), &factors[side]);
	values[PARAM_USERS] = PG_GETARG_DATUM(ARG_USERS);
	values[PARAM_RELATION] = PG_GETARG_DATUM(ARG_ITEM_FACTORS);
	values[PARAM_KEY_COLUMN] = NameGetDatum(&factors[GPUVEC_ALS_ITEMS].key_name);
	values[PARAM_COLUMN] = NameGetDatum(&factors[GPUVEC_ALS_ITEMS].column_name);
	values[PARAM_K] = PG_GETARG_DATUM(ARG_K);
	values[PARAM_EXCLUDE] = PG_GETARG_DATUM(ARG_EXCLUDE);
	nulls[PARAM_USERS] = PG_ARGISNULL(ARG_USERS) ? 'n' : ' ';
	nulls[PARAM_EXCLUDE] = PG_ARGISNULL(ARG_EXCLUDE) ? 'n' : ' ';
	AlsInitReceiver(&receiver.dest, receive_row);
	receiver.store = ((ReturnSetInfo *) fcinfo->resultinfo)->setResult;
	AlsReadRows(make_statement(fcinfo, &factors[GPUVEC_ALS_USERS]), N_PARAMS, types, values, nulls,
				&receiver.dest);
	return (Datum) 0;
}
