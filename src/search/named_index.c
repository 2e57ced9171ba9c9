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
#include "access/relation.h"
#include "access/sysattr.h"
#include "catalog/partition.h"
#include "commands/defrem.h"
#include "entries/entries.h"
#include "miscadmin.h"
#include "nodes/bitmapset.h"
#include "optimizer/optimizer.h"
#include "search/named_index.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
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

/*
 * Open an index of the list of a relation's, if it keeps rows of its own;
 * NULL: it does not
 */
static Relation
open_keeper(Oid oid, Oid am)
{
	Relation	index = try_relation_open(oid, AccessShareLock);

	if (index == NULL)
		return NULL;
	if (index->rd_rel->relam == am && index->rd_index->indislive && EntriesKept(index))
		return index;
	relation_close(index, AccessShareLock);
	return NULL;
}

/* How well an index answers to a name: 2 by its own, 1 by its key, 0: not */
static int
answers_to(Relation index, const char *name)
{
	if (strcmp(RelationGetRelationName(index), name) == 0)
		return 2;
	return !has_predicate(index) && strcmp(first_key(index), name) == 0;
}

/* True if an index is a partition of another one, or of one of its */
static bool
descends_from(Relation index, Relation ancestor)
{
	return index->rd_rel->relispartition &&
		list_member_oid(get_partition_ancestors(RelationGetRelid(index)), RelationGetRelid(ancestor));
}

/* The same, for the index of a child in place of the named one */
static int
stands_for(Relation index, Relation named)
{
	if (descends_from(index, named))
		return 2;
	return !has_predicate(index) && !has_predicate(named) &&
		strcmp(first_key(index), first_key(named)) == 0;
}

/*
 * The index of a relation that answers best to a name, or that stands best
 * for a named index; open, or NULL.  One that is valid is preferred.
 */
static Relation
find_index(Relation rel, const char *name, Relation named)
{
	Oid			am = rel->rd_rel->relhasindex ? get_am_oid("gpuvec", true) : InvalidOid;
	List	   *oids = OidIsValid(am) ? RelationGetIndexList(rel) : NIL;
	Relation	best = NULL;
	int			most = 0;
	ListCell   *cell;

	foreach(cell, oids)
	{
		Relation	index = open_keeper(lfirst_oid(cell), am);
		int			fit;

		if (index == NULL)
			continue;
		fit = named ? stands_for(index, named) : answers_to(index, name);
		fit = fit == 0 ? 0 : fit * 2 + index->rd_index->indisvalid;
		if (fit <= most)
		{
			relation_close(index, AccessShareLock);
			continue;
		}
		if (best != NULL)
			relation_close(best, AccessShareLock);
		best = index;
		most = fit;
	}
	list_free(oids);
	return best;
}

Relation
SearchNamedIndex(Relation rel, const char *name)
{
	return find_index(rel, name, NULL);
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
SearchDescribeIndex(Relation rel, Relation named, MirrorTarget *target)
{
	Relation	index = named;

	if (named->rd_index->indrelid != RelationGetRelid(rel))
		index = find_index(rel, NULL, named);
	else
		RelationIncrementReferenceCount(index);
	if (index == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("table \"%s\" has no index like \"%s\"", RelationGetRelationName(rel),
						RelationGetRelationName(named)),
				 has_predicate(named) ? errhint("An index with a predicate is searched for its own table and its partitions only.") :
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
	Oid			am = rel->rd_rel->relhasindex ? get_am_oid("gpuvec", true) : InvalidOid;
	List	   *oids = OidIsValid(am) ? RelationGetIndexList(rel) : NIL;
	ListCell   *cell;

	foreach(cell, oids)
	{
		Relation	index = open_keeper(lfirst_oid(cell), am);

		if (index != NULL)
			return errhint("The index \"%s\" has %s; its name can stand in place of a column.",
						   RelationGetRelationName(index), first_key(index));
	}
	return 0;
}
