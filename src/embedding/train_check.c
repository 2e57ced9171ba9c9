/*-------------------------------------------------------------------------
 *
 * train_check.c
 *	  Check that tables can get new keys and train.
 *
 * Without these checks the statements of train.c would fail as well.  But
 * their errors would be about SQL that the caller has not written, and would
 * not say what helps.  Views are left to the statements: the columns must
 * exist and fit, but a unique index is not required.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/pg_index.h"
#include "catalog/pg_type.h"
#include "embedding/embedding_table.h"
#include "search/set_search.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

/* Fail if a column that is to be written is generated */
static void
check_not_generated(Oid relid, const char *column)
{
	if (get_attgenerated(relid, get_attnum(relid, column)) != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_GENERATED_ALWAYS),
				 errmsg("column \"%s\" of relation \"%s\" is a generated column", column,
						get_rel_name(relid)),
				 errhint("Change the columns that it is computed from.")));
}

/*
 * Fail unless the columns can be keys and vectors.  The column of vectors
 * must not be generated; with write_keys, neither the column of keys.
 */
void
EmbeddingCheckColumns(Oid relid, const char *key_column, const char *column, bool write_keys)
{
	SearchCheckEmbeddingColumns(relid, key_column, column);
	if (write_keys)
		check_not_generated(relid, key_column);
	check_not_generated(relid, column);
}

/*
 * True if an index alone keeps the values of the column distinct, immediately
 * and in all rows
 */
static bool
keeps_distinct(Oid index, AttrNumber attnum)
{
	HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index));
	Form_pg_index form;
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_index) GETSTRUCT(tuple);
	result = form->indisunique && form->indimmediate && form->indisvalid &&
		form->indnkeyatts == 1 && form->indkey.values[0] == attnum &&
		heap_attisnull(tuple, Anum_pg_index_indpred, NULL);
	ReleaseSysCache(tuple);
	return result;
}

/* Fail unless a table has an index that ON CONFLICT (column) can use */
void
EmbeddingCheckUnique(Oid relid, const char *column)
{
	Relation	rel = relation_open(relid, AccessShareLock);
	AttrNumber	attnum = get_attnum(relid, column);
	bool		found = rel->rd_rel->relkind != RELKIND_RELATION &&
		rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE;
	List	   *indexes = RelationGetIndexList(rel);
	ListCell   *cell;

	foreach(cell, indexes)
		found = found || keeps_distinct(lfirst_oid(cell), attnum);
	if (!found)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
				 errmsg("relation \"%s\" has no unique index on column \"%s\"",
						RelationGetRelationName(rel), column),
				 errdetail("Without one, a key could be added twice. It must be neither partial nor deferrable."),
				 errhint("Create a primary key or a unique index.")));
	list_free(indexes);
	relation_close(rel, NoLock);
}

/* Raise the error that a table cannot hold an optimizer's state */
static void
complain_of_state(Oid relid, int code, const char *detail)
{
	ereport(ERROR,
			(errcode(code),
			 errmsg("relation \"%s\" cannot hold the state of an optimizer", get_rel_name(relid)),
			 errdetail_internal("%s", detail),
			 errhint("A state table is made by CREATE TABLE state (key bigint PRIMARY KEY, step bigint, m real[], v real[]).")));
}

/* Fail unless a table can hold the state of an optimizer */
void
EmbeddingCheckState(Oid relid)
{
	static const char *const names[] = {"key", "step", "m", "v"};

	for (int i = 0; i < lengthof(names); i++)
	{
		Oid			type = get_atttype(relid, get_attnum(relid, names[i]));

		if (!OidIsValid(type))
			complain_of_state(relid, ERRCODE_UNDEFINED_COLUMN,
							  psprintf(_("It has no column \"%s\"."), names[i]));
		else if (i < 2 ? !MirrorKeyType(type) : getBaseType(type) != FLOAT4ARRAYOID)
			complain_of_state(relid, ERRCODE_DATATYPE_MISMATCH,
							  psprintf(_("Its column \"%s\" is of type %s."), names[i],
									   format_type_be(type)));
	}
	EmbeddingCheckUnique(relid, "key");
}
