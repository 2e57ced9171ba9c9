/*-------------------------------------------------------------------------
 *
 * train.c
 *	  Changing embedding tables: new keys, and steps of an optimizer.
 *
 * Both are plain INSERT and UPDATE statements.  They run with the caller's
 * privileges, in the caller's transaction.  Small functions over vectors
 * (train_vectors.c) compute the new values of each row.  Triggers and
 * defaults of the table work as for any statement.
 *
 * The statements qualify every name with its schema, and cast each argument
 * of a function to its declared type.  Otherwise they might call a function
 * that somebody else has created in the extension's schema, because its
 * argument types fit better.
 *
 * Rows are locked in the order of their keys.  So sessions that train the
 * same table wait for one another instead of running into deadlocks.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "embedding/embedding_table.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(gpuvec_ensure_keys);
PG_FUNCTION_INFO_V1(gpuvec_apply_grad);

/* Casts to the declared types of arguments */
#define AS_FLOAT8		"::pg_catalog.float8"
#define AS_REALS		"::pg_catalog.float4[]"
#define AS_INT8			"::pg_catalog.int8"

/* The qualified name of a function of the extension */
static const char *
own_function(FunctionCallInfo fcinfo, const char *name)
{
	return quote_qualified_identifier(get_namespace_name(get_func_namespace(fcinfo->flinfo->fn_oid)),
									  name);
}

const char *
EmbeddingRelationName(Oid relid)
{
	char	   *name = get_rel_name(relid);

	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)), name);
}

void
EmbeddingRequireArguments(FunctionCallInfo fcinfo, const char *const *names, int n)
{
	for (int i = 0; i < n; i++)
		if (names[i] != NULL && PG_ARGISNULL(i))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("%s must not be null", names[i])));
}

/* Fail unless a number is finite, at least `least`, and less than `limit` */
static void
require_number(double number, const char *name, double least, double limit)
{
	if (isfinite(number) && number >= least && number < limit)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 isinf(least) ? errmsg("%s must be a finite number", name) :
			 isinf(limit) ? errmsg("%s must be a finite number that is not negative", name) :
			 errmsg("%s must be at least %g and less than %g", name, least, limit)));
}

/* Run a statement; returns the number of rows that it changed */
static int64
run_statement(const char *sql, int n, Oid *types, Datum *values)
{
	int64		rows;
	int			rc;

	SPI_connect();
	rc = SPI_execute_with_args(sql, n, types, values, NULL, false, 0);
	if (rc < 0)
		elog(ERROR, "SPI_execute_with_args failed: %s", SPI_result_code_string(rc));
	rows = (int64) SPI_processed;
	SPI_finish();
	return rows;
}

/* The width of new vectors: from the argument, or that of the table */
static int32
new_width(FunctionCallInfo fcinfo, int argument)
{
	EmbeddingTable *table;
	uint32		width;
	bool		known;

	if (!PG_ARGISNULL(argument))
		return PG_GETARG_INT32(argument);
	table = EmbeddingTableArguments(fcinfo, GetActiveSnapshot());
	known = EmbeddingWidth(table, &width);
	EmbeddingClose(table);
	if (!known)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("relation \"%s\" has no vectors whose width new ones could have",
						get_rel_name(PG_GETARG_OID(0))),
				 errhint("Give the width.")));
	return (int32) width;
}

/*
 * gpuvec_ensure_keys(relation, key_column, column, keys, width, initializer,
 * scale, seed): add the keys that the table lacks; returns their number
 */
Datum
gpuvec_ensure_keys(PG_FUNCTION_ARGS)
{
	static const char *const names[] = {
		"relation", "key column", "column", "keys", NULL, "initializer", "scale", "seed"
	};
	const char *rel;
	const char *key;
	StringInfoData sql;
	uint64		n;
	Oid			types[] = {INT8ARRAYOID, INT4OID, TEXTOID, FLOAT8OID, INT8OID};
	Datum		values[5];

	EmbeddingRequireArguments(fcinfo, names, lengthof(names));
	(void) EmbeddingKeysArgument(fcinfo, 3, "keys", NULL, &n);
	require_number(PG_GETARG_FLOAT8(6), "scale", -INFINITY, INFINITY);
	EmbeddingCheckColumns(PG_GETARG_OID(0), NameStr(*PG_GETARG_NAME(1)),
						  NameStr(*PG_GETARG_NAME(2)), true);
	EmbeddingCheckUnique(PG_GETARG_OID(0), NameStr(*PG_GETARG_NAME(1)));
	rel = EmbeddingRelationName(PG_GETARG_OID(0));
	key = quote_identifier(NameStr(*PG_GETARG_NAME(1)));
	values[0] = PG_GETARG_DATUM(3);
	values[1] = Int32GetDatum(new_width(fcinfo, 4));
	values[2] = PG_GETARG_DATUM(5);
	values[3] = PG_GETARG_DATUM(6);
	values[4] = PG_GETARG_DATUM(7);
	initStringInfo(&sql);

	/*
	 * The table may have columns of any name, so each column is named with
	 * its alias.  OVERRIDING SYSTEM VALUE: a key column that is GENERATED
	 * ALWAYS AS IDENTITY gets the given keys.
	 */
	appendStringInfo(&sql,
					 "INSERT INTO %s (%s, %s) OVERRIDING SYSTEM VALUE"
					 " SELECT d.k, %s(d.k, $2, $3, $4, $5)"
					 " FROM (SELECT DISTINCT u AS k FROM pg_catalog.unnest($1) u) d"
					 " WHERE NOT EXISTS (SELECT FROM %s t WHERE t.%s OPERATOR(pg_catalog.=) d.k)"
					 " ORDER BY d.k ON CONFLICT (%s) DO NOTHING",
					 rel, key, quote_identifier(NameStr(*PG_GETARG_NAME(2))),
					 own_function(fcinfo, "gpuvec_initial_vector"), rel, key, key);
	PG_RETURN_INT64(run_statement(sql.data, lengthof(types), types, values));
}

/*
 * A call of gpuvec_apply_grad, and the statement that it builds; names are
 * qualified or quoted
 */
typedef struct Training
{
	FunctionCallInfo fcinfo;
	const char *rel;
	const char *key;			/* the key column */
	const char *column;			/* the vector column */
	const char *state;			/* the optimizer's state table; NULL: none */
	StringInfoData sql;
} Training;

/*
 * Append a WITH query l(key, gradient): the gradients of keys that the table
 * has.  It locks the rows of these keys, in the order of keys.  $1 is the
 * array of keys, $2 that of gradients.
 */
static void
append_gradients(Training *training)
{
	appendStringInfo(&training->sql,
					 "WITH l AS MATERIALIZED ("
					 "SELECT t.%s" AS_INT8 " AS key, r.gradient FROM %s(%s) r, %s t"
					 " WHERE t.%s OPERATOR(pg_catalog.=) r.key AND t.%s IS NOT NULL"
					 " ORDER BY r.key FOR UPDATE OF t)",
					 training->key, own_function(training->fcinfo, "gpuvec_gradient_rows"),
					 "$1, $2", training->rel, training->key, training->column);
}

/*
 * Append a WITH query s(key, step, m, v): the new state of each key in l.  m
 * and v are expressions for a new key, next_m and next_v for a key that has a
 * state.
 */
static void
append_states(Training *training, const char *m, const char *v, const char *next_m,
			  const char *next_v)
{
	appendStringInfo(&training->sql,
					 ", s AS (INSERT INTO %s AS o (key, step, m, v)"
					 " SELECT key, 1, %s, %s FROM l ORDER BY key"
					 " ON CONFLICT (key) DO UPDATE SET step = o.step OPERATOR(pg_catalog.+) 1, m = %s, v = %s"
					 " RETURNING o.key, o.step, o.m, o.v)",
					 training->state, m, v, next_m, next_v);
}

/*
 * Append the UPDATE: `function` is called with the vector and the arguments
 * in `format`, over the row t, its gradient l and its state s
 */
static void
append_update(Training *training, const char *format, const char *function)
{
	StringInfo	sql = &training->sql;

	appendStringInfo(sql, " UPDATE %s t SET %s = %s(t.%s" AS_REALS ", ",
					 training->rel, training->column, own_function(training->fcinfo, function),
					 training->column);
	appendStringInfoString(sql, format);
	appendStringInfo(sql, ") FROM l%s WHERE t.%s OPERATOR(pg_catalog.=) l.key",
					 training->state ? ", s" : "", training->key);
	if (training->state)
		appendStringInfoString(sql, " AND s.key OPERATOR(pg_catalog.=) l.key");
}

/*
 * Make the statement of an optimizer.  $3 is the learning rate, $4 beta1, $5
 * beta2, $6 epsilon.
 */
static void
make_statement(Training *training, const char *optimizer)
{
	const char *square = own_function(training->fcinfo, "gpuvec_vector_square");
	const char *axpy = own_function(training->fcinfo, "gpuvec_vector_axpy");
	bool		sgd = strcmp(optimizer, "sgd") == 0;
	bool		adagrad = strcmp(optimizer, "adagrad") == 0;

	if (!sgd && !adagrad && strcmp(optimizer, "adam") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unknown optimizer \"%s\"", optimizer),
				 errhint("Available optimizers are sgd, adagrad and adam.")));
	if (sgd != (training->state == NULL))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 sgd ? errmsg("optimizer \"%s\" has no state", optimizer) :
				 errmsg("optimizer \"%s\" needs a table for its state", optimizer),
				 sgd ? 0 :
				 errhint("A state table is made by CREATE TABLE state (key bigint PRIMARY KEY, step bigint, m real[], v real[]).")));
	append_gradients(training);
	if (sgd)
		append_update(training, "l.gradient, $3, l.key", "gpuvec_sgd_step");
	else if (adagrad)
	{
		/* keep an m, so that the step complains about it */
		append_states(training, "NULL", psprintf("%s(1" AS_FLOAT8 ", gradient)", square), "o.m",
					  psprintf("%s(1" AS_FLOAT8 ", o.v" AS_REALS ", excluded.v" AS_REALS ")",
							   axpy));
		append_update(training, "l.gradient, s.m" AS_REALS ", s.v" AS_REALS ", $3, $6, l.key",
					  "gpuvec_adagrad_step");
	}
	else
	{
		append_states(training,
					  psprintf("%s(OPERATOR(pg_catalog.-) $4, gradient, gradient)", axpy),
					  psprintf("%s(1" AS_FLOAT8 " OPERATOR(pg_catalog.-) $5, gradient)", square),
					  psprintf("%s($4, o.m" AS_REALS ", excluded.m" AS_REALS ")", axpy),
					  psprintf("%s($5, o.v" AS_REALS ", excluded.v" AS_REALS ")", axpy));
		append_update(training, "s.m" AS_REALS ", s.v" AS_REALS ", s.step" AS_INT8
					  ", $3, $4, $5, $6, l.key", "gpuvec_adam_step");
	}
	/* mention all parameters, also those that the optimizer does not use */
	appendStringInfoString(&training->sql,
						   " AND ($3, $4, $5, $6) IS NOT NULL");
}

/*
 * gpuvec_apply_grad(relation, key_column, column, keys, gradients, optimizer,
 * learning_rate, state, beta1, beta2, epsilon): do one step of an optimizer;
 * returns the number of updated rows
 */
Datum
gpuvec_apply_grad(PG_FUNCTION_ARGS)
{
	static const char *const names[] = {
		"relation", "key column", "column", "keys", "gradients", "optimizer", "learning rate",
		NULL, "beta1", "beta2", "epsilon"
	};
	Training	training = {.fcinfo = fcinfo};
	Oid			types[] = {INT8ARRAYOID, FLOAT8ARRAYOID, FLOAT8OID, FLOAT8OID, FLOAT8OID, FLOAT8OID};
	Datum		values[6];

	EmbeddingRequireArguments(fcinfo, names, lengthof(names));
	EmbeddingCheckColumns(PG_GETARG_OID(0), NameStr(*PG_GETARG_NAME(1)),
						  NameStr(*PG_GETARG_NAME(2)), false);
	training.rel = EmbeddingRelationName(PG_GETARG_OID(0));
	training.key = quote_identifier(NameStr(*PG_GETARG_NAME(1)));
	training.column = quote_identifier(NameStr(*PG_GETARG_NAME(2)));
	if (!PG_ARGISNULL(7))
		training.state = EmbeddingRelationName(PG_GETARG_OID(7));
	initStringInfo(&training.sql);
	make_statement(&training, text_to_cstring(PG_GETARG_TEXT_PP(5)));
	if (training.state)
		EmbeddingCheckState(PG_GETARG_OID(7));
	/* other values would make every updated element NaN */
	require_number(PG_GETARG_FLOAT8(6), "learning rate", -INFINITY, INFINITY);
	require_number(PG_GETARG_FLOAT8(8), "beta1", 0, 1);
	require_number(PG_GETARG_FLOAT8(9), "beta2", 0, 1);
	require_number(PG_GETARG_FLOAT8(10), "epsilon", 0, INFINITY);
	values[0] = PG_GETARG_DATUM(3);
	values[1] = PG_GETARG_DATUM(4);
	values[2] = PG_GETARG_DATUM(6);
	for (int i = 0; i < 3; i++)
		values[3 + i] = PG_GETARG_DATUM(8 + i);
	PG_RETURN_INT64(run_statement(training.sql.data, lengthof(types), types, values));
}
