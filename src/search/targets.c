/*-------------------------------------------------------------------------
 *
 * targets.c
 *	  From a relation and column names to the relations that are searched.
 *
 * The functions read tables without the executor.  So this file checks what
 * the executor would check: the kind of the relation, the columns, privileges
 * and row-level security, and that a materialized view has data.  It also
 * refuses tables whose rows are elsewhere (elsewhere.c).  Locks are kept to
 * the end of the transaction.  They keep VACUUM from truncating the table, and
 * others from rewriting it, while the statement still uses its tids.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "mirror/describe/row_value.h"
#include "miscadmin.h"
#include "partitioning/partdesc.h"
#include "search/named_index.h"
#include "search/set_search.h"
#include "servers/foreign.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rls.h"
#include "utils/syscache.h"

/* Fail if an argument is null */
void
SearchRequireArgument(FunctionCallInfo fcinfo, int argument, const char *name)
{
	if (PG_ARGISNULL(argument))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", name)));
}

/* The declared type of an argument of the called function */
Oid
SearchArgumentType(FunctionCallInfo fcinfo, int argument)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(fcinfo->flinfo->fn_oid));
	Oid			type;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", fcinfo->flinfo->fn_oid);
	type = ((Form_pg_proc) GETSTRUCT(tuple))->proargtypes.values[argument];
	ReleaseSysCache(tuple);
	return type;
}

/*
 * The type idset, for functions without an argument of that type.  It is in
 * the schema of the called function.
 */
Oid
SearchIdSetType(FunctionCallInfo fcinfo)
{
	Oid			schema = get_func_namespace(fcinfo->flinfo->fn_oid);
	Oid			type = GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid,
									   CStringGetDatum("idset"), ObjectIdGetDatum(schema));

	if (!OidIsValid(type))
		elog(ERROR, "type idset does not exist in the extension's schema");
	return type;
}

/* The elements of an array that is an argument; returns their number */
int
SearchArrayArgument(FunctionCallInfo fcinfo, int argument, const char *name, Datum **values,
					bool **nulls)
{
	ArrayType  *array = PG_GETARG_ARRAYTYPE_P(argument);
	int16		typlen;
	bool		typbyval;
	char		typalign;
	int			n;

	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("%s must be a one-dimensional array", name),
				 errdetail("The array has %d dimensions.", ARR_NDIM(array))));
	get_typlenbyvalalign(ARR_ELEMTYPE(array), &typlen, &typbyval, &typalign);
	deconstruct_array(array, ARR_ELEMTYPE(array), typlen, typbyval, typalign, values, nulls, &n);
	return n;
}

/* True for relations that have rows of their own */
static bool
has_storage(char relkind)
{
	return relkind == RELKIND_RELATION || relkind == RELKIND_MATVIEW;
}

/* What searches a foreign table, as the hint of an error */
static int
hint_foreign(Relation rel, const SearchColumns *columns)
{
	if (columns->vectors && ForeignCanAsk(rel))
		return errhint("gpuvec_vec_topk_rows and gpuvec_vec_topk_batch_rows search it.");
	if (columns->vectors)
		return errhint("ORDER BY column <#> query LIMIT k searches it; or search the table that holds the rows, or a materialized view.");
	if (ForeignCanAsk(rel))
		return errhint("gpuvec_topk_rows and gpuvec_topk_batch_rows search it, and ORDER BY column <-> query LIMIT k does.");
	return errhint("ORDER BY column <-> query LIMIT k searches it; or search the table that holds the rows, or a materialized view.");
}

/* Fail if a relation of this kind cannot be searched */
static void
check_kind(Relation rel, const SearchColumns *columns)
{
	char		relkind = rel->rd_rel->relkind;
	bool		sets = columns->key_column == NULL;

	if (has_storage(relkind) || relkind == RELKIND_PARTITIONED_TABLE)
		return;
	if (columns->foreign != NULL && ForeignCanAsk(rel))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("cannot search relation \"%s\"", RelationGetRelationName(rel)),
			 relkind == RELKIND_VIEW ? errdetail("Views have no rows of their own.") :
			 relkind == RELKIND_FOREIGN_TABLE ? errdetail("Foreign tables keep their rows elsewhere.") :
			 errdetail("It is not a table or materialized view."),
			 relkind == RELKIND_FOREIGN_TABLE && sets ? hint_foreign(rel, columns) :
			 errhint("Search the table that holds the rows, or a materialized view.")));
}

/*
 * Fail, as the executor does, if the relation is a materialized view without
 * data: that it has no rows does not say that its query has none
 */
static void
check_populated(Relation rel)
{
	if (RelationIsScannable(rel))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("materialized view \"%s\" has not been populated", RelationGetRelationName(rel)),
			 errhint("Use the REFRESH MATERIALIZED VIEW command.")));
}

/*
 * Find a column that is stored; returns its number and sets *type.  In place
 * of one of sets or vectors (`sets`) an index may be meant.
 */
static AttrNumber
find_attribute(Relation rel, const char *column, bool sets, Oid *type)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(rel), column);
	Form_pg_attribute attribute;

	if (attnum == InvalidAttrNumber)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of relation \"%s\" does not exist",
						column, RelationGetRelationName(rel)),
				 sets ? SearchHintIndex(rel) : 0));
	if (attnum < 0)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of relation \"%s\" is a system column",
						column, RelationGetRelationName(rel))));
	attribute = TupleDescAttr(RelationGetDescr(rel), attnum - 1);
	if (attribute->attgenerated == ATTRIBUTE_GENERATED_VIRTUAL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column \"%s\" of relation \"%s\" is a virtual generated column",
						column, RelationGetRelationName(rel)),
				 errhint("A column that is GENERATED ALWAYS AS (...) STORED can be used.")));
	*type = attribute->atttypid;
	return attnum;
}

/* What to do about a column that has no sets */
static const char *
sets_hint(Oid type)
{
	Oid			element = get_base_element_type(type);

	type = getBaseType(type);
	if (RowTypeHasValues(type))
		return "gpuvec_vec_topk searches it, and ORDER BY with one of the operators <#>, <=> and <%> does.";
	if (type == TEXTOID || type == VARCHAROID)
		return "An index USING gpuvec (column gpuvec_trgm_ops) has the sets of its trigrams.";
	if (type == JSONBOID || element == TEXTOID || element == VARCHAROID)
		return "An index USING gpuvec (column) has the sets of its elements.";
	return "Convert it with ALTER TABLE ... ALTER COLUMN ... TYPE idset USING column::idset, or add a generated column.";
}

/* Fail: a column has neither sets, nor vectors that the function takes */
static void
refuse_type(Relation rel, const SearchColumns *columns, Oid type)
{
	if (columns->vectors)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of relation \"%s\" is of type %s, neither %s nor %s",
						columns->column, RelationGetRelationName(rel), format_type_be(type),
						"idvec", format_type_be(columns->idset_type)),
				 errhint("A generated column can have its sets or vectors."),
				 columns->index == NULL ? SearchHintIndex(rel) : 0));
	ereport(ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("column \"%s\" of relation \"%s\" is of type %s, not %s",
					columns->column, RelationGetRelationName(rel), format_type_be(type),
					format_type_be(columns->idset_type)),
			 errhint("%s", sets_hint(type)),
			 columns->index == NULL && !RowTypeHasValues(type) ? SearchHintIndex(rel) : 0));
}

/* True if the function takes sets or vectors of this type */
static bool
takes_type(const SearchColumns *columns, Oid type)
{
	return getBaseType(type) == columns->idset_type || (columns->vectors && RowTypeHasValues(type));
}

/*
 * Find the column of sets or vectors, and check its type; 0 if an index stands
 * for it
 */
static AttrNumber
find_column(Relation rel, const SearchColumns *columns)
{
	Oid			type;
	AttrNumber	attnum;

	if (columns->index != NULL)
	{
		type = SearchIndexType(columns->index->index);
		if (!takes_type(columns, type))
			refuse_type(rel, columns, type);
		return InvalidAttrNumber;
	}
	attnum = find_attribute(rel, columns->column, columns->key_column == NULL, &type);
	if (columns->key_column != NULL)
	{
		if (MirrorVectorTypeOf(type) == MIRROR_NO_VECTOR)
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("column \"%s\" of relation \"%s\" is of type %s, which holds no vectors",
							columns->column, RelationGetRelationName(rel), format_type_be(type)),
					 errhint("Vectors can be of type real[] or double precision[], or vector or halfvec of the extension vector.")));
	}
	else if (!takes_type(columns, type))
		refuse_type(rel, columns, type);
	return attnum;
}

/* Find the column of keys, and check its type; of sets InvalidAttrNumber */
static AttrNumber
find_key_column(Relation rel, const SearchColumns *columns)
{
	Oid			type;
	AttrNumber	attnum;

	if (columns->key_column == NULL)
		return InvalidAttrNumber;
	attnum = find_attribute(rel, columns->key_column, false, &type);
	if (!MirrorKeyType(type))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of relation \"%s\" is of type %s, which holds no keys",
						columns->key_column, RelationGetRelationName(rel), format_type_be(type)),
				 errhint("Keys can be of type smallint, integer or bigint.")));
	return attnum;
}

static Relation
open_relation(Oid relid)
{
	Relation	rel = try_relation_open(relid, AccessShareLock);

	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	return rel;
}

/*
 * Fail unless the caller may read the columns (for whole rows, all columns),
 * and row-level security does not apply
 */
static void
check_privileges(Relation rel, const SearchColumns *columns)
{
	Oid			relid = RelationGetRelid(rel);
	Oid			user = GetUserId();
	AttrNumber	attnum = find_column(rel, columns);
	AttrNumber	key = find_key_column(rel, columns);
	bool		allowed;

	allowed = pg_class_aclcheck(relid, user, ACL_SELECT) == ACLCHECK_OK;
	if (!allowed && columns->whole_rows)
		allowed = pg_attribute_aclcheck_all(relid, user, ACL_SELECT, ACLMASK_ALL) == ACLCHECK_OK;
	else if (!allowed && columns->index != NULL)
		allowed = SearchIndexReadable(rel, columns->index->index);
	else if (!allowed)
		allowed = pg_attribute_aclcheck(relid, attnum, user, ACL_SELECT) == ACLCHECK_OK &&
			(key == InvalidAttrNumber ||
			 pg_attribute_aclcheck(relid, key, user, ACL_SELECT) == ACLCHECK_OK);
	if (!allowed)
		aclcheck_error(ACLCHECK_NO_PRIV, get_relkind_objtype(rel->rd_rel->relkind),
					   RelationGetRelationName(rel));

	if (check_enable_rls(relid, InvalidOid, true) == RLS_ENABLED)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot search table \"%s\" because of its row-level security policies",
						RelationGetRelationName(rel)),
				 errdetail("The search would use rows that the policies hide."),
				 errhint("Let a SECURITY DEFINER function of a role that bypasses row-level security search and filter.")));
}

/*
 * The local shard of a reference table of Citus in place of the table, which
 * is empty.  Not for functions that return tids: a query that joins them to
 * the table may read another node's shard, where they are other rows.  A
 * shard is found by its name, and rights are those on the table.  So a table
 * of another owner does not count: whoever chooses the name of a table that
 * has no shard here could read any table that has such a name.
 */
static Relation
resolve_shard(Relation rel, const SearchColumns *columns, const SearchCatalogs *catalogs)
{
	Oid			shard;
	Relation	local;

	if (columns->foreign == NULL && columns->key_column == NULL)
		return rel;
	shard = SearchLocalShard(rel, catalogs);
	local = OidIsValid(shard) ? try_relation_open(shard, AccessShareLock) : NULL;
	if (local == NULL)
		return rel;
	if (local->rd_rel->relowner != rel->rd_rel->relowner)
	{
		relation_close(local, AccessShareLock);
		return rel;
	}
	table_close(rel, NoLock);
	return local;
}

/*
 * Describe the column of sets or sparse vectors, and follow its index.  That
 * the function takes its type is known: check_privileges() has looked at the
 * relation that was named, and its children have the same.
 */
static void
describe_sets(Relation rel, const SearchColumns *columns, MirrorTarget *target)
{
	uint64		begun;

	if (columns->index != NULL)
	{
		SearchDescribeIndex(rel, columns->index, target);
		return;
	}
	if (MirrorDescribeAgain(rel, columns->column, columns->idset_type, target))
		return;
	begun = MirrorDescribedBegin();
	MirrorDescribe(rel, find_column(rel, columns), target);
	MirrorFollowServing(target);
	MirrorDescribedKeep(begun, columns->column, columns->idset_type, target);
}

/*
 * Add a relation to targets[], or close it if it has no storage.  `named` is
 * true for the relation that the caller named, false for its children.
 */
static void
add_target(MirrorTarget *targets, int *n, Relation rel, bool named, const SearchColumns *columns,
		   const SearchCatalogs *catalogs)
{
	MirrorTarget *target = &targets[*n];

	if (rel->rd_rel->relkind == RELKIND_FOREIGN_TABLE)
	{
		check_kind(rel, columns);
		*columns->foreign = lappend(*columns->foreign, rel);
		return;
	}
	/* as in SQL, temporary children of other sessions are left out */
	if (!has_storage(rel->rd_rel->relkind) || (RELATION_IS_OTHER_TEMP(rel) && !named))
	{
		table_close(rel, NoLock);
		return;
	}
	if (RELATION_IS_OTHER_TEMP(rel))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot access temporary tables of other sessions")));
	rel = resolve_shard(rel, columns, catalogs);
	SearchCheckElsewhere(rel, catalogs, columns->key_column == NULL);
	/* as in SQL: a standby does not have their rows */
	if (rel->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT && RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot access temporary or unlogged relations during recovery")));
	if (columns->key_column == NULL)
		describe_sets(rel, columns, target);
	else
		MirrorDescribeEmbedding(rel, find_key_column(rel, columns), find_column(rel, columns),
								target);
	(*n)++;
}

/* qsort comparator: ascending oid, the order of rows with equal scores */
static int
compare_oids(const void *a, const void *b)
{
	Oid			x = ((const MirrorTarget *) a)->key.relation;
	Oid			y = ((const MirrorTarget *) b)->key.relation;

	return x < y ? -1 : x > y;
}

/* Add the partitions of a table to a list, open and locked */
static List *
add_partitions(List *rels, Relation parent)
{
	PartitionDesc partitions = GpuvecPartitionDesc(parent);
	int			n = partitions->nparts;
	Oid		   *oids = palloc_array(Oid, Max(n, 1));

	/* locked in the order of their OIDs, as anywhere in the server */
	memcpy(oids, partitions->oids, n * sizeof(Oid));
	qsort(oids, n, sizeof(Oid), oid_cmp);
	for (int i = 0; i < n; i++)
	{
		Relation	partition = try_relation_open(oids[i], AccessShareLock);

		/* NULL: it was detached, and dropped */
		if (partition != NULL)
			rels = lappend(rels, partition);
	}
	pfree(oids);
	return rels;
}

/*
 * Open a relation, which is locked and open, and all its children.  Those of
 * a partitioned table are in the relation cache, as for the planner.
 */
static List *
open_family(Relation rel)
{
	List	   *rels = list_make1(rel);
	List	   *oids;
	ListCell   *cell;

	if (rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
	{
		foreach(cell, rels)
		{
			Relation	parent = lfirst(cell);

			if (parent->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
				rels = add_partitions(rels, parent);
		}
		return rels;
	}
	oids = find_all_inheritors(RelationGetRelid(rel), AccessShareLock, NULL);
	foreach(cell, oids)
	{
		if (lfirst_oid(cell) != RelationGetRelid(rel))
			rels = lappend(rels, table_open(lfirst_oid(cell), NoLock));
	}
	list_free(oids);
	return rels;
}

/* True if a relation has the column of sets or vectors */
static bool
has_column(Relation rel, const SearchColumns *columns)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(rel), columns->column);

	return attnum > 0 && takes_type(columns, TupleDescAttr(RelationGetDescr(rel), attnum - 1)->atttypid);
}

/*
 * Open all relations to search: the named one and all its children, in
 * ascending order of oid.  SearchCloseTargets() closes them; the locks stay.
 * What others have changed before the snapshot was taken is known from here
 * on, also if the locks were held before.
 */
MirrorTarget *
SearchTargets(Oid relid, const SearchColumns *given, int *ntargets)
{
	Relation	rel = open_relation(relid);
	SearchColumns named = *given;
	const SearchColumns *columns = &named;
	SearchCatalogs catalogs;
	MirrorTarget *targets;
	List	   *rels;
	ListCell   *cell;

	AcceptInvalidationMessages();
	check_kind(rel, columns);
	if (columns->key_column == NULL && !has_column(rel, columns))
		named.index = SearchNamedIndex(rel, columns->column);
	check_privileges(rel, columns);
	check_populated(rel);
	SearchFindCatalogs(&catalogs);

	/* a partitioned table may belong to such an extension as well */
	if (!has_storage(rel->rd_rel->relkind))
		SearchCheckElsewhere(rel, &catalogs, columns->key_column == NULL);

	*ntargets = 0;
	rels = rel->rd_rel->relhassubclass ? open_family(rel) : list_make1(rel);
	targets = palloc_array(MirrorTarget, list_length(rels));
	foreach(cell, rels)
		add_target(targets, ntargets, lfirst(cell), lfirst(cell) == rel, columns, &catalogs);
	list_free(rels);
	/* each target has its own reference */
	if (named.index != NULL)
		index_close(named.index->index, NoLock);
	qsort(targets, *ntargets, sizeof(MirrorTarget), compare_oids);
	return targets;
}

MirrorTarget *
SearchEmbeddingTargets(Oid relid, const char *key_column, const char *column, int *ntargets)
{
	SearchColumns columns = {.column = column, .key_column = key_column};

	return SearchTargets(relid, &columns, ntargets);
}

/*
 * Fail unless the columns can be keys and vectors, in a relation of any kind.
 * The relation stays locked.  Privileges are not checked.
 */
void
SearchCheckEmbeddingColumns(Oid relid, const char *key_column, const char *column)
{
	SearchColumns columns = {.column = column, .key_column = key_column};
	Relation	rel = open_relation(relid);
	SearchCatalogs catalogs;

	(void) find_key_column(rel, &columns);
	(void) find_column(rel, &columns);

	/*
	 * The caller writes the table by SQL.  TimescaleDB allows that, Citus
	 * does not.
	 */
	SearchFindCatalogs(&catalogs);
	catalogs.chunks = InvalidOid;
	SearchCheckElsewhere(rel, &catalogs, false);
	relation_close(rel, NoLock);
}

/* Close the relations; their locks stay */
void
SearchCloseTargets(MirrorTarget *targets, int ntargets)
{
	for (int i = 0; i < ntargets; i++)
	{
		if (targets[i].index != NULL)
			index_close(targets[i].index, NoLock);
		table_close(targets[i].rel, NoLock);
	}
}
