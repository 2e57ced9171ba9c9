/*-------------------------------------------------------------------------
 *
 * foreign_leaf.c
 *	  What foreign tables, their columns and gpuvec are called on servers.
 *
 * A session of postgres_fdw has the search path pg_catalog, so statements
 * name the schema of each table, type and function.  The schema of gpuvec is
 * that of the extension on the server.  Each session asks a server for it
 * once, by the user mapping in force.  A search that fails forgets it, for it
 * may have failed because the schema is another one by then.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "mirror/describe/row_value.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "servers/foreign.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

/* What a user's session on a server has said */
typedef struct ForeignHome
{
	struct HomeKey
	{
		Oid			mapping;	/* oid of the user mapping */
		uint32		values;		/* 1: for columns of vectors */
	}			key;
	bool		known;
	bool		vectors;		/* it has the function of vectors, too */
	NameData	schema;			/* of gpuvec; not quoted */
	Oid			set_type;		/* idset, or idvec */
} ForeignHome;

static HTAB *homes = NULL;

/* The name of a column on the server; not quoted */
const char *
ForeignColumnName(Relation rel, AttrNumber attnum)
{
	const char *name = ForeignOption(GetForeignColumnOptions(RelationGetRelid(rel), attnum),
									 "column_name");

	return name ? name : NameStr(TupleDescAttr(RelationGetDescr(rel), attnum - 1)->attname);
}

/* syscache callback: a server or a user mapping has changed */
static void
forget_homes(Datum arg, int cache, uint32 hash)
{
	HASH_SEQ_STATUS status;
	ForeignHome *home;

	hash_seq_init(&status, homes);
	while ((home = hash_seq_search(&status)) != NULL)
		home->known = false;
}

/* What is known of the server of a leaf, for the current user */
static ForeignHome *
find_home(const ForeignLeaf *leaf)
{
	struct HomeKey key = {ForeignMapping(leaf), leaf->values};
	ForeignHome *home;
	bool		found;

	if (homes == NULL)
	{
		HASHCTL		control = {.keysize = sizeof(struct HomeKey), .entrysize = sizeof(ForeignHome)};

		homes = hash_create("gpuvec on servers", 16, &control, HASH_ELEM | HASH_BLOBS);
		CacheRegisterSyscacheCallback(FOREIGNSERVEROID, forget_homes, (Datum) 0);
		CacheRegisterSyscacheCallback(USERMAPPINGOID, forget_homes, (Datum) 0);
	}
	home = hash_search(homes, &key, HASH_ENTER, &found);
	if (!found)
		home->known = false;
	return home;
}

/* Describe a foreign table with a column of sets, or of vectors */
static void
describe_leaf(Relation rel, const char *column, ForeignLeaf *leaf)
{
	ForeignTable *table = GetForeignTable(RelationGetRelid(rel));
	AttrNumber	attnum = get_attnum(RelationGetRelid(rel), column);
	const char *schema = ForeignOption(table->options, "schema_name");
	const char *name = ForeignOption(table->options, "table_name");

	memset(leaf, 0, sizeof(*leaf));
	leaf->rel = rel;
	leaf->server = table->serverid;
	leaf->server_name = GetForeignServer(table->serverid)->servername;
	leaf->table = quote_qualified_identifier(schema ? schema : get_namespace_name(RelationGetNamespace(rel)),
											 name ? name : RelationGetRelationName(rel));
	leaf->column = ForeignColumnName(rel, attnum);
	leaf->set_type = TupleDescAttr(RelationGetDescr(rel), attnum - 1)->atttypid;
	leaf->values = RowTypeHasValues(leaf->set_type);
}

/* Describe all foreign tables of a search; they stay open */
ForeignLeaf *
ForeignLeaves(List *rels, const char *column, int *nleaves)
{
	ForeignLeaf *leaves = palloc_array(ForeignLeaf, Max(list_length(rels), 1));
	ListCell   *cell;

	*nleaves = 0;
	foreach(cell, rels)
		describe_leaf(lfirst(cell), column, &leaves[(*nleaves)++]);
	return leaves;
}

/* The function that searches are sent to: of sets, or of vectors */
const char *
ForeignFunction(bool vectors)
{
	return vectors ? "gpuvec_vec_topk_batch_rows" : "gpuvec_topk_batch_rows";
}

/* An answer about gpuvec on a server */
typedef struct HomeAnswer
{
	const ForeignLeaf *leaf;
	bool		found;
	bool		complete;		/* it has the functions that we call */
	Oid			set_type;
	char	   *schema;
	char	   *version;
} HomeAnswer;

/* Take the answer to home_sql, which has one row at most */
static void
take_home(TupleTableSlot *row, void *arg)
{
	HomeAnswer *answer = arg;

	if (answer->found)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_ERROR),
				 errmsg("server \"%s\" returned a wrong answer", answer->leaf->server_name),
				 errdetail("It has several extensions \"gpuvec\".")));
	if (row->tts_isnull[0] || row->tts_isnull[1] || row->tts_isnull[2])
		return;
	answer->found = true;
	answer->schema = TextDatumGetCString(row->tts_values[0]);
	answer->version = TextDatumGetCString(row->tts_values[1]);
	answer->complete = DatumGetBool(row->tts_values[2]);
	answer->set_type = row->tts_isnull[3] ? InvalidOid : DatumGetObjectId(row->tts_values[3]);
}

/* The statement, for the names of the function that is called and of a type */
static const char home_sql[] =
"SELECT n.nspname::pg_catalog.text, e.extversion, EXISTS (SELECT FROM pg_catalog.pg_proc p"
" WHERE p.pronamespace = n.oid AND p.proname = '%s' AND p.pronargs >= 6),"
" (SELECT t.oid FROM pg_catalog.pg_type t WHERE t.typnamespace = n.oid AND t.typname = '%s')"
" FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace"
" WHERE e.extname = 'gpuvec'";

/* Note what a server has said of gpuvec, or fail if it has none that fits */
static void
note_home(const ForeignLeaf *leaf, const HomeAnswer *answer, bool vectors)
{
	if (!answer->found)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_UNABLE_TO_CREATE_EXECUTION),
				 errmsg("extension \"gpuvec\" does not exist on server \"%s\"", leaf->server_name),
				 errhint("Run CREATE EXTENSION gpuvec there.")));
	if (!answer->complete)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_UNABLE_TO_CREATE_EXECUTION),
				 errmsg("gpuvec %s on server \"%s\" has no function %s",
						answer->version, leaf->server_name, ForeignFunction(vectors)),
				 errhint("Install a later version there, and run ALTER EXTENSION gpuvec UPDATE.")));
	namestrcpy(&leaf->home->schema, answer->schema);
	leaf->home->set_type = answer->set_type;
	leaf->home->known = true;
	leaf->home->vectors = vectors;
}

/* Ask the servers of these leaves, each once */
static void
ask_homes(const ForeignLeaf *leaves, int nleaves, bool vectors)
{
	ForeignStatement *statements = palloc0_array(ForeignStatement, nleaves);
	HomeAnswer *answers = palloc0_array(HomeAnswer, nleaves);
	List	   *asked = NIL;
	int			n = 0;

	for (int i = 0; i < nleaves; i++)
	{
		ForeignStatement *statement = &statements[n];

		if (leaves[i].home->known || list_member_ptr(asked, leaves[i].home))
			continue;
		asked = lappend(asked, leaves[i].home);
		answers[n].leaf = statement->leaf = &leaves[i];
		statement->sql = psprintf(home_sql, ForeignFunction(vectors), leaves[i].values ? "idvec" : "idset");
		statement->tlist = ForeignAddColumn(NIL, TEXTOID);
		statement->tlist = ForeignAddColumn(statement->tlist, TEXTOID);
		statement->tlist = ForeignAddColumn(statement->tlist, BOOLOID);
		statement->tlist = ForeignAddColumn(statement->tlist, OIDOID);
		statement->nrows = 1;
		statement->take = take_home;
		statement->arg = &answers[n++];
	}
	ForeignRun(statements, n, NULL, NULL);
	for (int i = 0; i < n; i++)
		note_home(statements[i].leaf, &answers[i], vectors);
}

/*
 * Set the schema of gpuvec on the server of each leaf.  It is forgotten until
 * ForeignConfirmHomes() is called.  A server without the function of sets, or
 * of vectors, is an error.
 */
void
ForeignFindHomes(ForeignLeaf *leaves, int nleaves, bool vectors)
{
	for (int i = 0; i < nleaves; i++)
	{
		leaves[i].home = find_home(&leaves[i]);
		leaves[i].home->known &= leaves[i].home->vectors || !vectors;
	}
	ask_homes(leaves, nleaves, vectors);
	for (int i = 0; i < nleaves; i++)
	{
		leaves[i].schema = pstrdup(quote_identifier(NameStr(leaves[i].home->schema)));
		leaves[i].remote_set_type = leaves[i].home->set_type;
		leaves[i].home->known = false;
	}
}

/* The search has succeeded: what was found out is right */
void
ForeignConfirmHomes(ForeignLeaf *leaves, int nleaves)
{
	for (int i = 0; i < nleaves; i++)
		leaves[i].home->known = true;
}

/* Close the foreign tables; their locks stay */
void
ForeignCloseLeaves(List *rels)
{
	ListCell   *cell;

	foreach(cell, rels)
		table_close((Relation) lfirst(cell), NoLock);
}
