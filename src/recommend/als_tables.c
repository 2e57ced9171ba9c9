/*-------------------------------------------------------------------------
 *
 * als_tables.c
 *	  What training requires of tables and their columns.
 *
 * The statements that read and write them would fail as well, but some of
 * them only after a long training, and with errors about SQL that the caller
 * has not written.  A column must exist under its name also because SQL would
 * take another name for a call of a function.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/relation.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "embedding/embedding_table.h"
#include "recommend/recommend.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/* Open a relation that has rows; its lock stays until the transaction ends */
static Relation
open_relation(Oid relid)
{
	Relation	rel = try_relation_open(relid, AccessShareLock);
	char		kind = rel ? rel->rd_rel->relkind : '\0';

	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	if (kind != RELKIND_RELATION && kind != RELKIND_PARTITIONED_TABLE && kind != RELKIND_VIEW &&
		kind != RELKIND_MATVIEW && kind != RELKIND_FOREIGN_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table or view", RelationGetRelationName(rel))));
	return rel;
}

/* The type of a column, without its domain */
static Oid
column_type(Relation rel, const char *column)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(rel), column);

	if (attnum <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of relation \"%s\" does not exist", column,
						RelationGetRelationName(rel))));
	return getBaseType(TupleDescAttr(RelationGetDescr(rel), attnum - 1)->atttypid);
}

/* Raise the error that a column has a wrong type */
static void
complain_of_type(Relation rel, const char *column, Oid type, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("column \"%s\" of relation \"%s\" is of type %s", column,
					RelationGetRelationName(rel), format_type_be(type)),
			 errhint("%s", hint)));
}

static Oid
key_type(Relation rel, const char *column)
{
	Oid			type = column_type(rel, column);

	if (!MirrorKeyType(type))
		complain_of_type(rel, column, type, _("Keys can be of type smallint, integer or bigint."));
	return type;
}

static Oid
weight_type(Relation rel, const char *column)
{
	Oid			type = column_type(rel, column);

	if (type != INT2OID && type != INT4OID && type != INT8OID && type != FLOAT4OID &&
		type != FLOAT8OID && type != NUMERICOID)
		complain_of_type(rel, column, type, _("Weights can be of any numeric type."));
	return type;
}

void
AlsDescribeInteractions(Oid relid, const char *user_column, const char *item_column,
						const char *weight_column, AlsInteractions *interactions)
{
	Relation	rel = open_relation(relid);

	interactions->relid = relid;
	interactions->relation = EmbeddingRelationName(relid);
	interactions->types[0] = key_type(rel, user_column);
	interactions->types[1] = key_type(rel, item_column);
	interactions->types[2] = weight_column ? weight_type(rel, weight_column) : InvalidOid;
	interactions->attnums[0] = get_attnum(relid, user_column);
	interactions->attnums[1] = get_attnum(relid, item_column);
	interactions->attnums[2] = weight_column ? get_attnum(relid, weight_column) : InvalidAttrNumber;
	interactions->columns[0] = quote_identifier(user_column);
	interactions->columns[1] = quote_identifier(item_column);
	interactions->columns[2] = weight_column ? quote_identifier(weight_column) : NULL;
	relation_close(rel, NoLock);
}

/* True if a column could hold keys, or vectors */
static bool
may_hold(Form_pg_attribute attribute, bool vectors)
{
	if (attribute->attisdropped || attribute->attgenerated != '\0')
		return false;
	return vectors ? MirrorVectorTypeOf(attribute->atttypid) != MIRROR_NO_VECTOR :
		MirrorKeyType(attribute->atttypid);
}

/* The primary key's column if it has one only; else InvalidAttrNumber */
static AttrNumber
primary_key(Relation rel)
{
	Bitmapset  *columns = RelationGetIndexAttrBitmap(rel, INDEX_ATTR_BITMAP_PRIMARY_KEY);
	int			member;

	if (!bms_get_singleton_member(columns, &member))
		return InvalidAttrNumber;
	return member + FirstLowInvalidHeapAttributeNumber;
}

/*
 * Find the only column that could hold keys or vectors, or the primary key,
 * if the caller has not named it
 */
static const char *
find_column(Relation rel, const char *named, bool vectors)
{
	TupleDesc	desc = RelationGetDescr(rel);
	AttrNumber	primary = vectors ? InvalidAttrNumber : primary_key(rel);
	const char *found = NULL;
	int			n = 0;

	if (named != NULL)
		return named;
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);

		if (!may_hold(attribute, vectors))
			continue;
		found = NameStr(attribute->attname);
		if (attribute->attnum == primary)
			return found;
		n++;
	}
	if (n != 1)
		ereport(ERROR,
				(errcode(n == 0 ? ERRCODE_UNDEFINED_COLUMN : ERRCODE_AMBIGUOUS_COLUMN),
				 vectors ?
				 errmsg("relation \"%s\" has %d columns that can hold factors",
						RelationGetRelationName(rel), n) :
				 errmsg("relation \"%s\" has %d columns that can hold keys",
						RelationGetRelationName(rel), n),
				 n == 0 ?
				 errhint("CREATE TABLE %s (key bigint PRIMARY KEY, embedding real[])",
						 RelationGetRelationName(rel)) :
				 errhint("Name the column with %s.", vectors ? "column_name" : "key_column")));
	return found;
}

void
AlsDescribeFactors(Oid relid, const char *key_column, const char *column, AlsFactors *factors)
{
	Relation	rel = open_relation(relid);

	key_column = find_column(rel, key_column, false);
	column = find_column(rel, column, true);
	factors->relid = relid;
	factors->relation = EmbeddingRelationName(relid);
	factors->key_type = key_type(rel, key_column);
	factors->type = MirrorVectorTypeOf(column_type(rel, column));
	if (factors->type == MIRROR_NO_VECTOR)
		complain_of_type(rel, column, column_type(rel, column),
						 _("Factors can be of type real[] or double precision[], or vector or halfvec of the extension vector."));
	namestrcpy(&factors->key_name, key_column);
	namestrcpy(&factors->column_name, column);
	factors->key = pstrdup(quote_identifier(key_column));
	factors->column = pstrdup(quote_identifier(column));
	relation_close(rel, NoLock);
}

void
AlsCheckWritable(const AlsFactors *factors)
{
	AclResult	result = pg_class_aclcheck(factors->relid, GetUserId(), ACL_DELETE);

	/* whether single columns may be inserted is left to the statement */
	if (result == ACLCHECK_OK &&
		pg_class_aclcheck(factors->relid, GetUserId(), ACL_INSERT) != ACLCHECK_OK)
		result = pg_attribute_aclcheck_all(factors->relid, GetUserId(), ACL_INSERT, ACLMASK_ANY);
	if (result != ACLCHECK_OK)
		aclcheck_error(result, get_relkind_objtype(get_rel_relkind(factors->relid)),
					   get_rel_name(factors->relid));
}
