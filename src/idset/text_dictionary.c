/*-------------------------------------------------------------------------
 *
 * text_dictionary.c
 *	  Sets of tokens by a dictionary: a table of the user's with the columns
 *	  id and token.
 *
 * idset_encode() looks tokens up, and gives those that the dictionary lacks
 * the next ids; idset_decode() turns a set back.  Both run SQL with the
 * rights of their caller.  The statements name everything by schema, so the
 * caller's search_path does not matter.
 *
 * Ids have no gaps: a new one is the greatest plus one.  So who adds tokens
 * needs the ids of all others who do, and that none of them is rolled back
 * later.  Hence a lock that conflicts with itself alone, from before the
 * greatest id is read to the end of the transaction.  It is a lock on the
 * table as an object of the catalog, not on it as a relation: that would make
 * autovacuum wait, and be canceled by those who wait for it.  It blocks
 * neither readers nor those whose tokens are all known.  Other statements
 * that insert rows do not take it; the unique indexes keep their ids and
 * tokens apart, with an error for the second one.
 *
 * An expression keeps its plans from call to call, and they name the table.
 * Another one may have taken that name meanwhile, so plans are made anew for
 * a dictionary that was renamed or moved.
 *
 * Without unique indexes, two rows could have one token.  So the table must
 * have them.
 *
 * In READ COMMITTED what is looked up under the lock has what others added
 * before.  In REPEATABLE READ the snapshot may lack it.  Ids that the
 * transaction could not decode would be no help, so that is a serialization
 * failure, as updating a row is that has changed since.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "idset/text_ids.h"
#include "mb/pg_wchar.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/rls.h"

PG_FUNCTION_INFO_V1(idset_encode);
PG_FUNCTION_INFO_V1(idset_decode);

/* Bytes of a token that an error shows */
#define SHOWN_BYTES		60

/* Bytes of a row of a btree index: a third of a page, without the headers */
#define LONGEST_KEY		((Size) BLCKSZ / 3 / 8 * 8 - 24)

/*
 * The statements about a dictionary; each has %s for the table.  Rows are
 * looked up by subqueries, so that plans use the indexes however small the
 * table was when they were made.
 */
typedef enum DictionaryStatement
{
	LOOK_UP,					/* $1 text[]: id or null, token */
	GREATEST_ID,
	ADD,						/* $1 text[], $2 int8: the id before theirs */
	FIND,						/* $1 int8[]: token or null */
	N_STATEMENTS
} DictionaryStatement;

static const char *const statements[N_STATEMENTS] = {
	"SELECT (SELECT t.id::pg_catalog.int8 FROM ONLY %s t"
	" WHERE t.token OPERATOR(pg_catalog.=) u.token), u.token"
	" FROM (SELECT u.token, pg_catalog.min(u.n) AS n"
	" FROM pg_catalog.unnest($1) WITH ORDINALITY u(token, n) GROUP BY u.token) u ORDER BY u.n",

	"SELECT pg_catalog.max(t.id)::pg_catalog.int8 FROM ONLY %s t",

	"INSERT INTO %s AS t (id, token) OVERRIDING SYSTEM VALUE"
	" SELECT $2 OPERATOR(pg_catalog.+) u.n, u.token"
	" FROM pg_catalog.unnest($1) WITH ORDINALITY u(token, n) ORDER BY u.n"
	" RETURNING t.id::pg_catalog.int8",

	"SELECT (SELECT t.token FROM ONLY %s t WHERE t.id OPERATOR(pg_catalog.=) u.id)"
	" FROM pg_catalog.unnest($1) WITH ORDINALITY u(id, n) ORDER BY u.n"
};

/* A dictionary, kept from call to call of one expression */
typedef struct Dictionary
{
	Oid			relid;
	char	   *name;			/* qualified and quoted */
	bool		small;			/* the ids are int4, not int8 */
	SPIPlanPtr	plans[N_STATEMENTS];	/* NULL: not made yet */
	MemoryContextCallback cleanup;
} Dictionary;

/* ---- is it a dictionary? ---- */

/* Raise the error that a table cannot be a dictionary */
static void
complain_of_table(Relation rel, int code, const char *detail)
{
	ereport(ERROR,
			(errcode(code),
			 errmsg("relation \"%s\" cannot be a dictionary", RelationGetRelationName(rel)),
			 errdetail_internal("%s", detail),
			 errhint("CREATE TABLE dictionary "
					 "(id bigint PRIMARY KEY, token text COLLATE \"C\" NOT NULL UNIQUE)")));
}

/*
 * Fail unless the relation is a plain table without partitions or children,
 * whose rows the caller sees all
 */
static void
check_kind(Relation rel)
{
	if (rel->rd_rel->relkind != RELKIND_RELATION)
		complain_of_table(rel, ERRCODE_WRONG_OBJECT_TYPE, "It is not a plain table.");
	if (rel->rd_rel->relhassubclass &&
		find_inheritance_children(RelationGetRelid(rel), NoLock) != NIL)
		complain_of_table(rel, ERRCODE_WRONG_OBJECT_TYPE,
						  "It has children, whose rows its unique indexes do not know.");
	if (check_enable_rls(RelationGetRelid(rel), InvalidOid, true) == RLS_ENABLED)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot use table \"%s\" as a dictionary because of its row-level security policies",
						RelationGetRelationName(rel)),
				 errdetail("The dictionary would use rows that the policies hide.")));
}

/* The column of a name; an error unless it is of one of two types */
static Form_pg_attribute
find_column(Relation rel, const char *name, Oid type, Oid other)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(rel), name);
	Form_pg_attribute column;

	if (attnum <= 0)
		complain_of_table(rel, ERRCODE_UNDEFINED_COLUMN,
						  psprintf("It has no column \"%s\".", name));
	column = TupleDescAttr(RelationGetDescr(rel), attnum - 1);
	if (column->atttypid != type && column->atttypid != other)
		complain_of_table(rel, ERRCODE_DATATYPE_MISMATCH,
						  psprintf("Column \"%s\" is of type %s.", name,
								   format_type_be(column->atttypid)));
	return column;
}

/* True if an index alone keeps a column distinct, at once and in all rows */
static bool
keeps_distinct(Oid indexid, AttrNumber attnum)
{
	Relation	index = index_open(indexid, AccessShareLock);
	Form_pg_index form = index->rd_index;
	bool		result = form->indisunique && form->indimmediate && form->indisvalid;

	if (form->indnkeyatts != 1 || form->indkey.values[0] != attnum)
		result = false;
	else if (RelationGetIndexPredicate(index) != NIL)
		result = false;
	index_close(index, NoLock);
	return result;
}

/* Fail unless a unique index keeps the column's values distinct */
static void
check_unique(Relation rel, Form_pg_attribute column)
{
	ListCell   *cell;

	foreach(cell, RelationGetIndexList(rel))
		if (keeps_distinct(lfirst_oid(cell), column->attnum))
		return;
	complain_of_table(rel, ERRCODE_INVALID_COLUMN_REFERENCE,
					  psprintf("Column \"%s\" has no unique index that is neither partial nor deferrable.",
							   NameStr(column->attname)));
}

/* Fail unless the relation can be a dictionary; *small: its ids are int4 */
static void
check_dictionary(Relation rel, bool *small)
{
	Form_pg_attribute id;
	Form_pg_attribute token;

	check_kind(rel);
	id = find_column(rel, "id", INT8OID, INT4OID);
	token = find_column(rel, "token", TEXTOID, TEXTOID);
	if (!get_collation_isdeterministic(token->attcollation))
		complain_of_table(rel, ERRCODE_FEATURE_NOT_SUPPORTED,
						  "The collation of column \"token\" takes different strings for equal.");
	check_unique(rel, id);
	check_unique(rel, token);
	*small = id->atttypid == INT4OID;
}

/* ---- opening ---- */

/* Callback of a memory context: free the plans of a dictionary */
static void
free_plans(void *arg)
{
	Dictionary *dictionary = arg;

	for (int i = 0; i < N_STATEMENTS; i++)
		if (dictionary->plans[i] != NULL)
			(void) SPI_freeplan(dictionary->plans[i]);
	memset(dictionary->plans, 0, sizeof(dictionary->plans));
}

/* What is kept for a function's expression */
static Dictionary *
kept_dictionary(FunctionCallInfo fcinfo)
{
	MemoryContext context = fcinfo->flinfo->fn_mcxt;
	Dictionary *dictionary = fcinfo->flinfo->fn_extra;

	if (dictionary != NULL)
		return dictionary;
	dictionary = MemoryContextAllocZero(context, sizeof(Dictionary));
	dictionary->cleanup.func = free_plans;
	dictionary->cleanup.arg = dictionary;
	MemoryContextRegisterResetCallback(context, &dictionary->cleanup);
	fcinfo->flinfo->fn_extra = dictionary;
	return dictionary;
}

/* Lock and check a dictionary.  Its plans are those of the name it has. */
static Dictionary *
open_dictionary(FunctionCallInfo fcinfo, Oid relid)
{
	Dictionary *dictionary = kept_dictionary(fcinfo);
	Relation	rel = try_relation_open(relid, AccessShareLock);
	char	   *name;

	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	check_dictionary(rel, &dictionary->small);
	name = quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
									  RelationGetRelationName(rel));
	relation_close(rel, NoLock);
	if (dictionary->relid == relid && strcmp(dictionary->name, name) == 0)
		return dictionary;
	free_plans(dictionary);
	dictionary->relid = relid;
	dictionary->name = MemoryContextStrdup(fcinfo->flinfo->fn_mcxt, name);
	return dictionary;
}

/* ---- statements ---- */

/* The plan of a statement */
static SPIPlanPtr
plan_of(Dictionary *dictionary, DictionaryStatement statement)
{
	Oid			types[] = {statement == FIND ? INT8ARRAYOID : TEXTARRAYOID, INT8OID};
	static const int parameters[N_STATEMENTS] = {1, 0, 2, 1};
	SPIPlanPtr	plan = dictionary->plans[statement];
	char	   *sql;

	if (plan != NULL)
		return plan;
	sql = psprintf(statements[statement], dictionary->name);
	plan = SPI_prepare_cursor(sql, parameters[statement], types, CURSOR_OPT_GENERIC_PLAN);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare_cursor failed: %s", SPI_result_code_string(SPI_result));
	SPI_keepplan(plan);
	dictionary->plans[statement] = plan;
	return plan;
}

/* Run a statement.  Its rows are in SPI_tuptable. */
static void
run_statement(Dictionary *dictionary, DictionaryStatement statement, Datum *values,
			  Snapshot snapshot)
{
	SPIPlanPtr	plan = plan_of(dictionary, statement);
	int			rc;

	if (snapshot != NULL)
		rc = SPI_execute_snapshot(plan, values, NULL, snapshot, InvalidSnapshot, false, false, 0);
	else
		rc = SPI_execute_plan(plan, values, NULL, statement == FIND, 0);
	if (rc < 0)
		elog(ERROR, "SPI_execute_plan failed: %s", SPI_result_code_string(rc));
}

/* A value of a row of SPI_tuptable */
static Datum
result_value(uint64 row, int column, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, isnull);
}

/* The greatest id, or -1; `snapshot` as for run_statement() */
static int64
greatest_id(Dictionary *dictionary, Snapshot snapshot)
{
	bool		isnull;
	Datum		value;

	run_statement(dictionary, GREATEST_ID, NULL, snapshot);
	value = result_value(0, 1, &isnull);
	return isnull ? -1 : Max(DatumGetInt64(value), -1);
}

/* ---- encoding ---- */

/*
 * Add the ids of tokens.  Returns an array of those that the dictionary
 * lacks, each once, in the order of their first places; NULL: none.
 */
static ArrayType *
look_up(Dictionary *dictionary, ArrayType *tokens, TextIds *ids)
{
	Datum		values[] = {PointerGetDatum(tokens)};
	Datum	   *unknown;
	int			n = 0;

	run_statement(dictionary, LOOK_UP, values, NULL);
	unknown = palloc_array(Datum, Max(SPI_processed, 1));
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool		isnull;
		Datum		id = result_value(i, 1, &isnull);

		if (isnull)
			unknown[n++] = result_value(i, 2, &isnull);
		else
			text_ids_add(ids, idset_check_id(DatumGetInt64(id)));
	}
	if (n == 0)
		return NULL;
	return construct_array(unknown, n, TEXTOID, -1, false, TYPALIGN_INT);
}

/* The first token of an array, and how many it has */
static char *
first_token(ArrayType *tokens, int *n)
{
	text	   *token = (text *) ARR_DATA_PTR(tokens);
	char	   *string = text_to_cstring(token);
	int			len = (int) strlen(string);

	*n = ArrayGetNItems(ARR_NDIM(tokens), ARR_DIMS(tokens));
	if (len > SHOWN_BYTES)
		strcpy(string + pg_mbcliplen(string, len, SHOWN_BYTES - 3), "...");
	return string;
}

/* Raise the error that tokens are unknown */
static void
complain_of_tokens(Dictionary *dictionary, ArrayType *unknown)
{
	int			n;
	char	   *token = first_token(unknown, &n);

	ereport(ERROR,
			(errcode(ERRCODE_NO_DATA_FOUND),
			 errmsg("dictionary \"%s\" has no token \"%s\"", get_rel_name(dictionary->relid), token),
			 n > 1 ? errdetail("It lacks %d tokens of the array.", n) : 0,
			 errhint("grow => true adds the tokens that it lacks.")));
}

/* Fail unless the caller may add rows: nobody else may block those who add */
static void
check_may_add(Dictionary *dictionary)
{
	Oid			relid = dictionary->relid;
	Oid			user = GetUserId();
	AttrNumber	id = get_attnum(relid, "id");
	AttrNumber	token = get_attnum(relid, "token");

	PreventCommandIfReadOnly("idset_encode()");
	if (pg_class_aclcheck(relid, user, ACL_INSERT) != ACLCHECK_OK &&
		(pg_attribute_aclcheck(relid, id, user, ACL_INSERT) != ACLCHECK_OK ||
		 pg_attribute_aclcheck(relid, token, user, ACL_INSERT) != ACLCHECK_OK))
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE, get_rel_name(relid));
}

/*
 * The greatest id, under the lock.  A transaction whose snapshot does not
 * have it cannot go on.
 */
static int64
last_id(Dictionary *dictionary)
{
	int64		last = greatest_id(dictionary, NULL);

	if (IsolationUsesXactSnapshot() && greatest_id(dictionary, GetLatestSnapshot()) != last)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access due to concurrent update"),
				 errdetail("Dictionary \"%s\" has grown since the transaction's snapshot was taken.",
						   get_rel_name(dictionary->relid)),
				 errhint("The transaction might succeed if retried.")));
	return last;
}

/* Fail unless there are n ids behind the last one */
static void
check_room(Dictionary *dictionary, int64 last, int n)
{
	int64		limit = dictionary->small ? PG_INT32_MAX : (int64) IDSET_MAX_ID;

	if (last <= limit - n)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
			 errmsg("dictionary \"%s\" has no ids left", get_rel_name(dictionary->relid)),
			 errdetail("Its greatest id is " INT64_FORMAT ", %d more are needed, and its ids end at " INT64_FORMAT ".",
					   last, n, limit),
			 dictionary->small ?
			 errhint("A column \"id\" of type bigint has ids up to %u.", (uint32) IDSET_MAX_ID) : 0));
}

/*
 * Raise the error that an index has no room for a token.  The server's names
 * sizes of index rows, which the caller has not made, and compresses before it
 * measures: so only the longest token can be named.
 */
static void
complain_of_length(Dictionary *dictionary, ArrayType *tokens)
{
	Datum	   *elements;
	Size		longest = 0;
	int			n;

	deconstruct_array(tokens, TEXTOID, -1, false, TYPALIGN_INT, &elements, NULL, &n);
	for (int i = 0; i < n; i++)
		longest = Max(longest, VARSIZE_ANY_EXHDR(DatumGetPointer(elements[i])));
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("a token is too long for dictionary \"%s\"", get_rel_name(dictionary->relid)),
			 errdetail("The longest one has %zu bytes, and the unique index takes up to %zu, compressed.",
					   longest, LONGEST_KEY),
			 errhint("Encode hashes of long tokens, as md5() makes them, or use idset_hash().")));
}

/* Insert tokens; an index that cannot have one is an error of ours */
static void
insert_tokens(Dictionary *dictionary, ArrayType *tokens, Datum *values)
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		run_statement(dictionary, ADD, values, NULL);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		if (geterrcode() != ERRCODE_PROGRAM_LIMIT_EXCEEDED)
			PG_RE_THROW();
		FlushErrorState();
		complain_of_length(dictionary, tokens);
	}
	PG_END_TRY();
}

/* Add tokens, which the dictionary lacks, to it and their ids to the list */
static void
add_tokens(Dictionary *dictionary, ArrayType *tokens, TextIds *ids)
{
	int			n = ArrayGetNItems(ARR_NDIM(tokens), ARR_DIMS(tokens));
	int64		last = last_id(dictionary);
	Datum		values[] = {PointerGetDatum(tokens), Int64GetDatum(last)};

	check_room(dictionary, last, n);
	insert_tokens(dictionary, tokens, values);
	if (SPI_processed != n)
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
				 errmsg("dictionary \"%s\" has not taken all tokens",
						get_rel_name(dictionary->relid)),
				 errdetail("Of %d rows it has got " UINT64_FORMAT ".", n, (uint64) SPI_processed),
				 errhint("Look at its triggers and rules.")));
	for (int i = 0; i < n; i++)
	{
		bool		isnull;

		text_ids_add(ids, idset_check_id(DatumGetInt64(result_value(i, 1, &isnull))));
	}
}

/* Add those tokens that the dictionary still lacks under the lock */
static void
grow(Dictionary *dictionary, ArrayType *unknown, TextIds *ids)
{
	check_may_add(dictionary);
	LockDatabaseObject(RelationRelationId, dictionary->relid, 0, ExclusiveLock);
	unknown = look_up(dictionary, unknown, ids);
	if (unknown != NULL)
		add_tokens(dictionary, unknown, ids);
}

/* idset_encode(dictionary, tokens, grow) */
Datum
idset_encode(PG_FUNCTION_ARGS)
{
	Dictionary *dictionary = open_dictionary(fcinfo, PG_GETARG_OID(0));
	ArrayType  *tokens = PG_GETARG_ARRAYTYPE_P(1);
	ArrayType  *unknown;
	TextIds		ids;

	text_check_array(tokens, "encode");
	text_ids_init(&ids);
	SPI_connect();
	unknown = look_up(dictionary, tokens, &ids);
	if (unknown != NULL && !PG_GETARG_BOOL(2))
		complain_of_tokens(dictionary, unknown);
	if (unknown != NULL)
		grow(dictionary, unknown, &ids);
	SPI_finish();
	PG_RETURN_IDSET_P(text_ids_finish(&ids));
}

/* ---- decoding ---- */

/* The ids of a set as an array of int8 */
static ArrayType *
id_array(const IdSet *set)
{
	uint32		n = idset_count(set);
	Datum	   *values = palloc_array(Datum, Max(n, 1));

	for (uint32 i = 0; i < n; i++)
		values[i] = Int64GetDatum(idset_id(set, i));
	return construct_array(values, n, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE);
}

/* Raise the error that n ids of a set are unknown, the i-th is the first */
static void
complain_of_ids(Dictionary *dictionary, const IdSet *set, int n, int i)
{
	ereport(ERROR,
			(errcode(ERRCODE_NO_DATA_FOUND),
			 errmsg("dictionary \"%s\" has no id %u", get_rel_name(dictionary->relid),
					idset_id(set, i)),
			 n > 1 ? errdetail("It lacks %d ids of the set.", n) : 0,
			 errhint("A set is decoded by the dictionary that encoded it.")));
}

/* The n tokens of a set; they are in the memory of SPI_tuptable */
static Datum *
find_tokens(Dictionary *dictionary, const IdSet *set, int n)
{
	Datum	   *tokens = palloc_array(Datum, n + 1);
	Datum		values[] = {PointerGetDatum(id_array(set))};
	int			lacking = 0;
	int			first = 0;

	run_statement(dictionary, FIND, values, NULL);
	Assert(SPI_processed == n);
	for (int i = n - 1; i >= 0; i--)
	{
		bool		isnull;

		tokens[i] = result_value(i, 1, &isnull);
		if (isnull)
		{
			first = i;
			lacking++;
		}
	}
	if (lacking > 0)
		complain_of_ids(dictionary, set, lacking, first);
	return tokens;
}

/* idset_decode(dictionary, set) */
Datum
idset_decode(PG_FUNCTION_ARGS)
{
	Dictionary *dictionary = open_dictionary(fcinfo, PG_GETARG_OID(0));
	IdSet	   *set = PG_GETARG_IDSET_P(1);
	int			n = (int) idset_count(set);
	MemoryContext caller = CurrentMemoryContext;
	ArrayType  *result;
	Datum	   *tokens;

	SPI_connect();
	tokens = find_tokens(dictionary, set, n);
	MemoryContextSwitchTo(caller);
	result = construct_array(tokens, n, TEXTOID, -1, false, TYPALIGN_INT);
	SPI_finish();
	PG_RETURN_ARRAYTYPE_P(result);
}
