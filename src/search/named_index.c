/*-------------------------------------------------------------------------
 *
 * named_index.c
 *	  Indexes that a search function's column names.
 *
 * The sets or vectors of an index with an expression, and the sets that an
 * index makes of arrays, are in no column.  So in place of a column the
 * functions take the name of such an index, or its first key, as \d shows it:
 * an expression, or the array's column.  They search the rows that the index
 * has.  By its name an index with a predicate may be meant, too.
 *
 * A partition is searched by its own index, which belongs to the named one.
 * Other children need one with the same key, and without a predicate.
 *
 * Who asks must be allowed to read the columns that the index is made of.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/sysattr.h"
#include "catalog/index.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "commands/defrem.h"
#include "entries/entries.h"
#include "miscadmin.h"
#include "nodes/bitmapset.h"
#include "optimizer/optimizer.h"
#include "search/named_index.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

/*
 * The first key of an index, as it is shown, without parentheses around it;
 * palloc'd
 */
static char *
first_key(Relation index)
{
	char	   *key = TextDatumGetCString(DirectFunctionCall3(pg_get_indexdef_ext,
															  ObjectIdGetDatum(RelationGetRelid(index)),
															  Int32GetDatum(1), BoolGetDatum(true)));
	Size		length = strlen(key);

	if (length < 2 || key[0] != '(' || key[length - 1] != ')')
		return key;
	return pnstrdup(key + 1, length - 2);
}

static bool
has_predicate(Relation index)
{
	return !heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL);
}

/* Open an index if it keeps rows of its own; NULL: it does not */
static Relation
open_keeper(Oid oid)
{
	Relation	index = try_relation_open(oid, AccessShareLock);

	if (index == NULL)
		return NULL;
	if (index->rd_rel->relam == get_am_oid("gpuvec", true) && index->rd_index->indislive && EntriesKept(index))
		return index;
	relation_close(index, AccessShareLock);
	return NULL;
}

/* The index of a relation that has this name; open, or NULL */
static Relation
index_by_name(Relation rel, const char *name)
{
	Oid			oid = get_relname_relid(name, RelationGetNamespace(rel));

	if (!OidIsValid(oid) || IndexGetRelation(oid, true) != RelationGetRelid(rel))
		return NULL;
	return open_keeper(oid);
}

/*
 * An index of a relation with this first key, and without a predicate; open,
 * or NULL.  One that is valid is preferred.
 */
static Relation
index_by_key(Relation rel, const char *key)
{
	List	   *oids = RelationGetIndexList(rel);
	Relation	found = NULL;
	ListCell   *cell;

	foreach(cell, oids)
	{
		Relation	index = open_keeper(lfirst_oid(cell));

		if (index == NULL)
			continue;
		if ((found == NULL || !found->rd_index->indisvalid) && !has_predicate(index) &&
			strcmp(first_key(index), key) == 0)
		{
			if (found != NULL)
				relation_close(found, AccessShareLock);
			found = index;
		}
		else
			relation_close(index, AccessShareLock);
	}
	list_free(oids);
	return found;
}

SearchIndex *
SearchNamedIndex(Relation rel, const char *name)
{
	Relation	index = index_by_name(rel, name);
	SearchIndex *named;
	List	   *oids = NIL;
	ListCell   *cell;

	if (index == NULL)
		index = index_by_key(rel, name);
	if (index == NULL)
		return NULL;
	named = palloc0_object(SearchIndex);
	named->index = index;
	if (index->rd_rel->relkind == RELKIND_PARTITIONED_INDEX)
		oids = find_all_inheritors(RelationGetRelid(index), NoLock, NULL);
	named->partitions = palloc_array(Oid, Max(list_length(oids), 1));
	foreach(cell, oids)
		named->partitions[named->npartitions++] = lfirst_oid(cell);
	qsort(named->partitions, named->npartitions, sizeof(Oid), oid_cmp);
	list_free(oids);
	return named;
}

/*
 * The index of a child that stands for the named one; open, or NULL.  Of a
 * partition it is the index's own partition.
 */
static Relation
index_of_child(Relation rel, const SearchIndex *named)
{
	List	   *oids = RelationGetIndexList(rel);
	Relation	index = NULL;
	ListCell   *cell;

	foreach(cell, oids)
	{
		Oid			oid = lfirst_oid(cell);

		if (index == NULL && bsearch(&oid, named->partitions, named->npartitions, sizeof(Oid), oid_cmp))
			index = try_relation_open(oid, AccessShareLock);
	}
	list_free(oids);
	if (index == NULL && !has_predicate(named->index))
		index = index_by_key(rel, first_key(named->index));
	return index;
}

/*
 * Fail if an index cannot be used, as the planner would do without it: it is
 * not complete, or this transaction may see older versions of rows than it
 * has
 */
static void
check_usable(Relation index)
{
	Form_pg_index form = index->rd_index;
	bool		young = form->indcheckxmin &&
		!TransactionIdPrecedes(HeapTupleHeaderGetXmin(index->rd_indextuple->t_data), TransactionXmin);

	if (form->indisvalid && form->indisready && !young)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("index \"%s\" cannot be used", RelationGetRelationName(index)),
			 form->indisvalid ? errdetail("Rows were updated while it was built, and this transaction may see their older versions.") :
			 errdetail("It is not complete."),
			 form->indisvalid ? errhint("Later transactions can use it.") :
			 errhint("Build it with REINDEX.")));
}

void
SearchDescribeIndex(Relation rel, const SearchIndex *named, MirrorTarget *target)
{
	Relation	index = named->index;

	if (index->rd_index->indrelid == RelationGetRelid(rel))
		RelationIncrementReferenceCount(index);
	else
		index = index_of_child(rel, named);
	if (index == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("table \"%s\" has no index like \"%s\"", RelationGetRelationName(rel),
						RelationGetRelationName(named->index)),
				 has_predicate(named->index) ? errhint("An index with a predicate is searched for its own table and its partitions only.") :
				 errhint("Create one with the same first key.")));
	check_usable(index);
	MirrorDescribeIndex(rel, index, target);
	if (target->mode == MIRROR_SHARED)
		MirrorFollow(target);
	else
		target->mode = MIRROR_NONE;
	/* the snapshot sees rows of this transaction */
	EntriesWriteWaiting();
}

Oid
SearchIndexType(Relation index)
{
	return TupleDescAttr(RelationGetDescr(index), 0)->atttypid;
}

/* The columns that an index is made of, as attribute numbers from 1 on */
static Bitmapset *
columns_of(Relation index)
{
	Bitmapset  *columns = NULL;

	for (int i = 0; i < index->rd_index->indnatts; i++)
		if (index->rd_index->indkey.values[i] != 0)
			columns = bms_add_member(columns, index->rd_index->indkey.values[i] -
									 FirstLowInvalidHeapAttributeNumber);
	pull_varattnos((Node *) RelationGetIndexExpressions(index), 1, &columns);
	pull_varattnos((Node *) RelationGetIndexPredicate(index), 1, &columns);
	return columns;
}

bool
SearchIndexReadable(Relation rel, Relation index)
{
	Bitmapset  *columns = columns_of(index);
	int			column = -1;

	while ((column = bms_next_member(columns, column)) >= 0)
	{
		AttrNumber	attnum = column + FirstLowInvalidHeapAttributeNumber;
		bool		allowed = attnum == InvalidAttrNumber ?
			pg_attribute_aclcheck_all(RelationGetRelid(rel), GetUserId(), ACL_SELECT, ACLMASK_ALL) == ACLCHECK_OK :
			pg_attribute_aclcheck(RelationGetRelid(rel), attnum, GetUserId(), ACL_SELECT) == ACLCHECK_OK;

		if (!allowed)
			return false;
	}
	return true;
}

int
SearchHintIndex(Relation rel)
{
	ListCell   *cell;

	foreach(cell, RelationGetIndexList(rel))
	{
		Relation	index = open_keeper(lfirst_oid(cell));

		if (index != NULL)
			return errhint("The index \"%s\" has %s; its name can stand in place of a column.",
						   RelationGetRelationName(index), first_key(index));
	}
	return 0;
}
