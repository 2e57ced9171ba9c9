/*-------------------------------------------------------------------------
 *
 * foreign_check.c
 *	  What is set wrongly for searches of foreign tables.
 *
 * Options of servers and foreign tables decide whether ORDER BY with a
 * distance operator runs there or fetches the whole table, and nothing warns
 * of that.  gpuvec_check_foreign() lists such settings, and asks each server
 * whether extension, table, column and index are there.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "fmgr.h"
#include "foreign/fdwapi.h"
#include "foreign/foreign.h"
#include "funcapi.h"
#include "mirror/describe/row_value.h"
#include "miscadmin.h"
#include "search/set_function.h"
#include "servers/foreign.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/tuplestore.h"
#include "utils/varlena.h"

PG_FUNCTION_INFO_V1(gpuvec_check_foreign);

/*
 * Each FETCH of ORDER BY ... LIMIT k brings this many rows of each table; the
 * first of them does for k up to the least one, more than the most are too
 * many for nearly all k
 */
#define LEAST_FETCH_SIZE	10
#define MOST_FETCH_SIZE		1000

/* The call */
typedef struct ForeignCheck
{
	ReturnSetInfo *rsinfo;
	Oid			idset_type;
	char	   *schema;			/* of gpuvec here */
} ForeignCheck;

/* A column of sets or vectors, and what its server says of it */
typedef struct ForeignColumn
{
	const ForeignLeaf *leaf;
	char	   *schema;			/* of gpuvec there; NULL: there is none */
	bool		table;
	char	   *type;			/* of the column; NULL: there is none */
	bool		indexed;
} ForeignColumn;

/* Return one row */
static void
report(const ForeignCheck *check, Relation rel, const char *server, const char *problem,
	   const char *hint)
{
	Datum		values[4];
	bool		nulls[4] = {0};
	NameData	name;

	namestrcpy(&name, server);
	values[0] = ObjectIdGetDatum(RelationGetRelid(rel));
	values[1] = NameGetDatum(&name);
	values[2] = CStringGetTextDatum(problem);
	values[3] = CStringGetTextDatum(hint);
	tuplestore_putvalues(check->rsinfo->setResult, check->rsinfo->setDesc, values, nulls);
}

/* ---- settings here ---- */

/* True if a list of names, separated by commas, has this one */
static bool
has_name(const char *names, const char *name)
{
	List	   *list;
	ListCell   *cell;

	if (names == NULL || !SplitIdentifierString(pstrdup(names), ',', &list))
		return false;
	foreach(cell, list)
		if (strcmp(lfirst(cell), name) == 0)
		return true;
	return false;
}

/* An option of a foreign table, or of its server; or NULL */
static const char *
effective_option(Oid relid, const ForeignServer *server, const char *name)
{
	const char *value = ForeignOption(GetForeignTable(relid)->options, name);

	return value ? value : ForeignOption(server->options, name);
}

/* Report options with which ORDER BY fetches more rows than it needs */
static void
check_options(const ForeignCheck *check, Relation rel, const ForeignServer *server)
{
	const char *name = quote_identifier(server->servername);
	const char *fetch_size = effective_option(RelationGetRelid(rel), server, "fetch_size");
	const char *estimate = effective_option(RelationGetRelid(rel), server, "use_remote_estimate");
	int			rows = fetch_size ? atoi(fetch_size) : 100;
	bool		remote = false;

	if (!has_name(ForeignOption(server->options, "extensions"), "gpuvec"))
		report(check, rel, server->servername,
			   "Operators of gpuvec are not sent to the server: ORDER BY and filters fetch all rows.",
			   psprintf("ALTER SERVER %s OPTIONS (%s extensions 'gpuvec');", name,
						ForeignOption(server->options, "extensions") ? "SET" : "ADD"));
	if (rows < LEAST_FETCH_SIZE || rows > MOST_FETCH_SIZE)
		report(check, rel, server->servername,
			   psprintf("ORDER BY with LIMIT fetches %d rows at a time.", rows),
			   "Set the option fetch_size to the number of rows that most queries want.");
	if (estimate != NULL && parse_bool(estimate, &remote) && remote)
		report(check, rel, server->servername,
			   "Estimates of the server price ORDER BY without LIMIT: the planner may fetch and sort all rows.",
			   "Set the option use_remote_estimate to 'false'.");
}

/* True if the current user has a mapping for a server, or PUBLIC has */
static bool
has_mapping(Oid server)
{
	return SearchSysCacheExists2(USERMAPPINGUSERSERVER, ObjectIdGetDatum(GetUserId()),
								 ObjectIdGetDatum(server)) ||
		SearchSysCacheExists2(USERMAPPINGUSERSERVER, ObjectIdGetDatum(InvalidOid),
							  ObjectIdGetDatum(server));
}

/* Report what shows here.  True if the server can be asked for more. */
static bool
check_leaf(const ForeignCheck *check, Relation rel)
{
	ForeignServer *server = GetForeignServer(GetForeignServerIdByRelId(RelationGetRelid(rel)));

	if (!ForeignCanAsk(rel))
	{
		report(check, rel, server->servername, "The server does not belong to postgres_fdw.",
			   "Search functions refuse the table; ORDER BY column <-> query LIMIT k searches it.");
		return false;
	}
	check_options(check, rel, server);
	if (has_mapping(server->serverid))
		return true;
	report(check, rel, server->servername, "The current user has no user mapping.",
		   psprintf("CREATE USER MAPPING FOR %s SERVER %s;",
					quote_identifier(GetUserNameFromId(GetUserId(), false)),
					quote_identifier(server->servername)));
	return false;
}

/* ---- what servers say ---- */

/* Make the statement that asks for a column */
static char *
make_sql(const ForeignLeaf *leaf)
{
	return psprintf("SELECT n.nspname::pg_catalog.text, c.oid IS NOT NULL, pg_catalog.format_type(a.atttypid, NULL),"
					" EXISTS (SELECT FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class r ON r.oid = i.indexrelid"
					" JOIN pg_catalog.pg_am m ON m.oid = r.relam"
					" WHERE i.indrelid = c.oid AND i.indisvalid AND m.amname = 'gpuvec' AND a.attnum = ANY (i.indkey))"
					" FROM (SELECT 1) one LEFT JOIN pg_catalog.pg_extension e ON e.extname = 'gpuvec'"
					" LEFT JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace"
					" LEFT JOIN pg_catalog.pg_class c ON c.oid = pg_catalog.to_regclass(%s)"
					" LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = %s AND NOT a.attisdropped",
					quote_literal_cstr(leaf->table), quote_literal_cstr(leaf->column));
}

/* Take the answer */
static void
take_column(TupleTableSlot *row, void *arg)
{
	ForeignColumn *column = arg;

	column->schema = row->tts_isnull[0] ? NULL : TextDatumGetCString(row->tts_values[0]);
	column->table = !row->tts_isnull[1] && DatumGetBool(row->tts_values[1]);
	column->type = row->tts_isnull[2] ? NULL : TextDatumGetCString(row->tts_values[2]);
	column->indexed = !row->tts_isnull[3] && DatumGetBool(row->tts_values[3]);
}

/* The type that a column has to have there */
static const char *
wanted_type(const ForeignLeaf *leaf)
{
	return leaf->values ? "idvec" : "idset";
}

/* True if a qualified type name is that of a type of ours */
static bool
is_type(const char *type, const char *name)
{
	const char *dot = strrchr(type, '.');

	return strcmp(dot ? dot + 1 : type, name) == 0;
}

/* Report whether gpuvec is on the server, in the same schema as here */
static void
report_schema(const ForeignCheck *check, const ForeignColumn *column)
{
	const ForeignLeaf *leaf = column->leaf;

	if (column->schema == NULL)
		report(check, leaf->rel, leaf->server_name, "The server lacks the extension gpuvec.",
			   "Run CREATE EXTENSION gpuvec there.");
	else if (strcmp(column->schema, check->schema) != 0)
		report(check, leaf->rel, leaf->server_name,
			   psprintf("The server has gpuvec in schema %s, not %s: ORDER BY and filters fail.",
						quote_identifier(column->schema), quote_identifier(check->schema)),
			   psprintf("ALTER EXTENSION gpuvec SET SCHEMA %s; there.", quote_identifier(check->schema)));
}

/* Report what a server has said of a column */
static void
report_column(const ForeignCheck *check, const ForeignColumn *column)
{
	const ForeignLeaf *leaf = column->leaf;
	const char *name = quote_identifier(leaf->column);

	report_schema(check, column);
	if (!column->table)
		report(check, leaf->rel, leaf->server_name,
			   psprintf("The server lacks the table %s.", leaf->table),
			   "Set the options schema_name and table_name, or create the table there.");
	else if (column->type == NULL)
		report(check, leaf->rel, leaf->server_name,
			   psprintf("The server's table %s lacks the column %s.", leaf->table, name),
			   "Set the option column_name of the column, or create it there.");
	else if (!is_type(column->type, wanted_type(leaf)))
		report(check, leaf->rel, leaf->server_name,
			   psprintf("The server's column %s is of type %s.", name, column->type),
			   psprintf("Make it a column of type %s there.", wanted_type(leaf)));
	else if (!column->indexed)
		report(check, leaf->rel, leaf->server_name,
			   psprintf("The server's column %s has no index: ORDER BY reads and sorts the table, and searches find changes by the WAL.", name),
			   psprintf("CREATE INDEX ON %s USING gpuvec (%s); there.", leaf->table, name));
}

/* Add the columns of sets and of vectors of a foreign table to a list */
static List *
add_columns(const ForeignCheck *check, List *columns, Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);
		ForeignColumn *column;
		int			n;

		if (attribute->attisdropped ||
			(getBaseType(attribute->atttypid) != check->idset_type && !RowTypeHasValues(attribute->atttypid)))
			continue;
		column = palloc0_object(ForeignColumn);
		column->leaf = ForeignLeaves(list_make1(rel), NameStr(attribute->attname), &n);
		columns = lappend(columns, column);
	}
	return columns;
}

/* Ask for all columns at once, and report the answers */
static void
check_columns(const ForeignCheck *check, List *columns)
{
	ForeignStatement *statements = palloc0_array(ForeignStatement, Max(list_length(columns), 1));
	ListCell   *cell;
	int			n = 0;

	foreach(cell, columns)
	{
		ForeignColumn *column = lfirst(cell);
		ForeignStatement *statement = &statements[n++];

		statement->leaf = column->leaf;
		statement->sql = make_sql(column->leaf);
		statement->tlist = ForeignAddColumn(ForeignAddColumn(NIL, TEXTOID), BOOLOID);
		statement->tlist = ForeignAddColumn(ForeignAddColumn(statement->tlist, TEXTOID), BOOLOID);
		statement->nrows = 1;
		statement->take = take_column;
		statement->arg = column;
	}
	ForeignRun(statements, n, NULL, NULL);
	foreach(cell, columns)
		report_column(check, lfirst(cell));
}

/* The foreign tables among a relation and its children, open */
static List *
foreign_tables(Oid relid)
{
	List	   *rels = NIL;
	ListCell   *cell;

	foreach(cell, find_all_inheritors(relid, AccessShareLock, NULL))
	{
		Relation	rel = table_open(lfirst_oid(cell), NoLock);

		if (rel->rd_rel->relkind == RELKIND_FOREIGN_TABLE)
			rels = lappend(rels, rel);
		else
			table_close(rel, NoLock);
	}
	return rels;
}

Datum
gpuvec_check_foreign(PG_FUNCTION_ARGS)
{
	Oid			relid = PG_GETARG_OID(0);
	ForeignCheck check = {(ReturnSetInfo *) fcinfo->resultinfo};
	List	   *columns = NIL;
	List	   *rels;
	ListCell   *cell;

	GpuvecMaterializedSRF(fcinfo);
	LockRelationOid(relid, AccessShareLock);
	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relid)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	if (pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, get_relkind_objtype(get_rel_relkind(relid)),
					   get_rel_name(relid));
	check.idset_type = SearchIdSetType(fcinfo);
	check.schema = get_namespace_name(get_func_namespace(fcinfo->flinfo->fn_oid));
	rels = foreign_tables(relid);
	foreach(cell, rels)
		if (check_leaf(&check, lfirst(cell)))
		columns = add_columns(&check, columns, lfirst(cell));
	check_columns(&check, columns);
	ForeignCloseLeaves(rels);
	return (Datum) 0;
}
