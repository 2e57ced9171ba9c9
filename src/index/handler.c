/*-------------------------------------------------------------------------
 *
 * handler.c
 *	  The index access method "gpuvec".
 *
 * An index on a column holds only a metapage.  It tells the planner that the
 * mirror of the column can return the table's rows in the order of a
 * distance, or the rows with certain ids.  An index with an expression or a
 * predicate keeps its rows (entries.c), as no session that only reads may
 * compute them.  So does one that makes sets of its values, of arrays, jsonb
 * and texts (entry_value.c).  Scans search the mirror (scan.c, key_search.c).
 * Insertions hand rows over to the mirror, and vacuum those that are gone, in
 * shared memory (feed.c, gone.c): neither needs the engine.
 *
 * Columns behind the first are filter columns
 * (mirror/describe/filter_key.c).  The mirror has a key for each of their
 * values, and the engine finds the rows that satisfy conditions on them
 * (conditions.c).
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/amvalidate.h"
#include "access/detoast.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_amop.h"
#include "catalog/pg_opclass.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_type.h"
#include "commands/vacuum.h"
#include "entries/entries.h"
#include "fmgr.h"
#include "index/entry_queue.h"
#include "index/index_am.h"
#include "mirror/describe/placement.h"
#include "mirror/describe/row_value.h"
#include "mirror/feed/feed.h"
#include "mirror/feed/feed_queue.h"
#include "mirror/feed/feed_ring.h"
#include "storage/bufmgr.h"
#include "storage/predicate.h"
#include "utils/catcache.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/syscache.h"

/*
 * Hand over a row.  Large values are not detoasted for this: the page that
 * has the row is read when it is needed.  Nor does an index hand over rows
 * that is not valid: CREATE INDEX CONCURRENTLY adds rows of other
 * transactions, at any time after these have inserted them.  A row that may
 * be killed while its transaction goes on must not wait (feed_queue.c): one
 * that was inserted speculatively, or that is not in a heap.
 */
static void
hand_over(Relation heap, Relation index, ItemPointer tid, Datum value, bool isnull, bool values,
		  const uint64 *filter_keys, uint32 nfilter_keys)
{
	struct varlena *plain = NULL;
	gpuvec_sparse row = RowOfNull();

	if (!index->rd_index->indisvalid ||
		(!isnull && toast_raw_datum_size(value) - VARHDRSZ > FEED_MOST_BYTES))
	{
		FeedMark(index, ItemPointerGetBlockNumber(tid));
		return;
	}
	if (!isnull)
	{
		plain = PG_DETOAST_DATUM_PACKED(value);
		row = RowOfPayload(values, VARDATA_ANY(plain), VARSIZE_ANY_EXHDR(plain));
	}
	FeedRow(index, tid, values, &row, filter_keys, nfilter_keys);
	if (EntryQueueSpeculates() || heap->rd_tableam != GetHeapamTableAmRoutine())
		FeedQueueFlush();
	if (plain != NULL && plain != (struct varlena *) DatumGetPointer(value))
		pfree(plain);
}

/* The columns of an index that a statement inserts into */
typedef struct Columns
{
	bool		values;			/* the first one has vectors */
	FilterColumns filters;
	MemoryContext row;			/* of what is made of a row, if it is kept */
} Columns;

static const Columns *
columns_of(Relation index, IndexInfo *info)
{
	if (info->ii_AmCache == NULL)
	{
		Columns    *columns = MemoryContextAlloc(info->ii_Context, sizeof(Columns));

		columns->values = GpuvecHasValues(index);
		columns->row = EntriesKept(index) ?
			AllocSetContextCreate(info->ii_Context, "gpuvec row", ALLOCSET_SMALL_SIZES) : NULL;
		FilterDescribe(index->rd_indextuple, &columns->filters);
		info->ii_AmCache = columns;
	}
	return info->ii_AmCache;
}

/*
 * Let serializable searches see a row that a serializable transaction has
 * inserted, although it has not committed: they have to find rows that they
 * do not see, to know of the conflict.  So it must not wait.  A search that
 * began before it was there has its lock by now, which this checks once more:
 * the server's own checks came before the row was handed over.
 */
static void
hand_over_now(Relation heap, Relation index)
{
	if (!IsolationIsSerializable())
		return;
	EntryQueueFlush();
	FeedQueueFlush();
	CheckForSerializableConflictIn(heap, NULL, InvalidBlockNumber);
	CheckForSerializableConflictIn(index, NULL, InvalidBlockNumber);
}

/* A row version was inserted that is the root of a HOT chain */
static void
insert_row(Relation heap, Relation index, ItemPointer tid, Datum *values, bool *isnull,
		   IndexInfo *info)
{
	bool		kept = EntriesKept(index);
	uint64		filter_keys[GPUVEC_MAX_FILTERS + 1];
	EntryValue	value = {.filter_keys = filter_keys, .nfilter_keys = EntriesFilterKeys(index)};

	/* who has described the index before may not know its file */
	FeedMoved(index);
	if (!kept && !FeedTaken(index))
		return;
	if (value.nfilter_keys > 0)
		FilterKeys(&columns_of(index, info)->filters, values, isnull, filter_keys);
	if (!kept)
	{
		hand_over(heap, index, tid, values[0], isnull[0], columns_of(index, info)->values,
				  filter_keys, value.nfilter_keys);
		return;
	}
	if (!isnull[0])
	{
		MemoryContext old = MemoryContextSwitchTo(columns_of(index, info)->row);

		value.set = EntriesRowValue(index, values[0]);
		MemoryContextSwitchTo(old);
	}
	EntryQueueAdd(heap, index, tid, &value);
	MemoryContextReset(columns_of(index, info)->row);
}

#if PG_VERSION_NUM >= 140000
static bool
gpuvec_insert(Relation index, Datum *values, bool *isnull, ItemPointer tid, Relation heap,
			  IndexUniqueCheck check_unique, bool index_unchanged, IndexInfo *info)
#else
static bool
gpuvec_insert(Relation index, Datum *values, bool *isnull, ItemPointer tid, Relation heap,
			  IndexUniqueCheck check_unique, IndexInfo *info)
#endif
{
	insert_row(heap, index, tid, values, isnull, info);
	hand_over_now(heap, index);
	return false;
}

/*
 * VACUUM is about to make line pointers reusable.  The mirror hears which,
 * from the entries that are removed, or else from the pages of the table.
 */
static IndexBulkDeleteResult *
gpuvec_bulkdelete(IndexVacuumInfo *info, IndexBulkDeleteResult *stats,
				  IndexBulkDeleteCallback callback, void *callback_state)
{
	if (stats == NULL)
		stats = palloc0_object(IndexBulkDeleteResult);
	if (EntriesKept(info->index))
	{
		EntriesVacuum result;

		EntriesRemove(info->index, callback, callback_state, GpuvecHandOverRemoved, info->strategy, &result);
		stats->num_pages = result.pages;
		stats->num_index_tuples = result.kept;
		stats->tuples_removed += result.removed;
	}
	else if (FeedTaken(info->index))
		GpuvecHandOverReaped(info, callback, callback_state);
	return stats;
}

static IndexBulkDeleteResult *
gpuvec_vacuumcleanup(IndexVacuumInfo *info, IndexBulkDeleteResult *stats)
{
	if (info->analyze_only)
		return stats;
	/* bulk deletion has counted what the index keeps */
	if (stats != NULL && EntriesKept(info->index))
		return stats;
	if (stats == NULL)
		stats = palloc0_object(IndexBulkDeleteResult);
	stats->num_pages = RelationGetNumberOfBlocks(info->index);
	stats->num_index_tuples = info->num_heap_tuples;
	stats->estimated_count = true;
	return stats;
}

/* True if a distance operator has the types that scans expect */
static bool
distance_fits(Form_pg_amop amop)
{
	bool		types = amop->amoplefttype == amop->amoprighttype ||
		(amop->amopstrategy == GPUVEC_INNER_PRODUCT &&
		 (idvec_is_type(amop->amoplefttype) || idvec_is_type(amop->amoprighttype)));

	if (amop->amopstrategy == GPUVEC_RANKS)
		types = type_is_rowtype(amop->amoprighttype) && !RowTypeHasValues(amop->amoplefttype);
	return amop->amoppurpose == AMOP_ORDER && types && get_op_rettype(amop->amopopr) == FLOAT8OID &&
		opfamily_can_sort_type(amop->amopsortfamily, FLOAT8OID);
}

/*
 * True if a search operator of sets has the right type on its right side.
 * Those of jsonb have strings, too (jsonb_set.c).
 */
static bool
set_search_fits(Form_pg_amop amop)
{
	bool		contains = amop->amopstrategy == GPUVEC_CONTAINS;

	if (amop->amopstrategy == GPUVEC_REACHES)
		return type_is_rowtype(amop->amoprighttype);
	if (amop->amopstrategy == GPUVEC_LIKE || amop->amopstrategy == GPUVEC_ILIKE)
		return amop->amoplefttype == TEXTOID && amop->amoprighttype == TEXTOID;
	if (amop->amoplefttype == JSONBOID && amop->amoprighttype == TEXTARRAYOID)
		return contains || amop->amopstrategy == GPUVEC_OVERLAPS;
	return amop->amoplefttype == amop->amoprighttype ||
		(contains && amop->amoprighttype == (amop->amoplefttype == JSONBOID ? TEXTOID : INT8OID));
}

/*
 * The same for a search operator.  Those of filter columns may have two types
 * of one kind.
 */
static bool
search_fits(Form_pg_amop amop)
{
	FilterKind	kind = FilterKindOf(amop->amoplefttype);

	if (amop->amoppurpose != AMOP_SEARCH || get_op_rettype(amop->amopopr) != BOOLOID)
		return false;
	if (amop->amopstrategy >= GPUVEC_FIRST_FILTER && amop->amopstrategy <= GPUVEC_FILTER_GREATER)
		return kind != FILTER_UNKNOWN && FilterKindOf(amop->amoprighttype) == kind &&
			(amop->amoplefttype == amop->amoprighttype || FilterKinds[kind].mixed);
	return (kind == FILTER_UNKNOWN || EntriesClassMakesSets(amop->amopfamily, amop->amoplefttype)) &&
		set_search_fits(amop);
}

/* True if scans understand an operator of a family */
static bool
operator_valid(Form_pg_amop amop, const char *family)
{
	Oid			left;
	Oid			right;

	op_input_types(amop->amopopr, &left, &right);
	if (left == amop->amoplefttype && right == amop->amoprighttype &&
		amop->amopstrategy >= GPUVEC_FIRST_DISTANCE && amop->amopstrategy <= GPUVEC_N_STRATEGIES &&
		(GpuvecStrategyOrders(amop->amopstrategy) ? distance_fits(amop) : search_fits(amop)))
		return true;
	ereport(INFO,
			(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
			 errmsg("operator family \"%s\" of access method %s contains operator %s with invalid strategy number %d, purpose or types",
					family, "gpuvec", format_operator(amop->amopopr), amop->amopstrategy)));
	return false;
}

/*
 * True if an operator class has what it is for, as `seen` of its strategies
 * tells: distances of sets, or equality of a filter column's values
 */
static bool
class_complete(Form_pg_opclass form, uint32 seen)
{
	bool		filter = FilterKindOf(form->opcintype) != FILTER_UNKNOWN && !OidIsValid(form->opckeytype);
	uint32		wanted = filter ? 1u << GPUVEC_FILTER_EQUAL :
		(1u << (GPUVEC_LAST_DISTANCE + 1)) - (1u << GPUVEC_FIRST_DISTANCE) + (1u << GPUVEC_RANKS);

	if ((seen & wanted) != 0)
		return true;
	ereport(INFO,
			(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
			 errmsg("operator class \"%s\" of access method %s has no %s", NameStr(form->opcname),
					"gpuvec", filter ? "equality operator" : "distance operators")));
	return false;
}

/* True if functions that make sets have the types that indexes expect */
static bool
set_procs_valid(Form_pg_opclass form)
{
	Oid			set = get_opfamily_proc(form->opcfamily, form->opcintype, form->opcintype, ENTRY_SET_PROC);
	Oid			query = get_opfamily_proc(form->opcfamily, form->opcintype, form->opcintype, ENTRY_QUERY_PROC);
	bool		makes = OidIsValid(form->opckeytype);

	if (OidIsValid(set) == makes && OidIsValid(query) == makes &&
		(!makes || (idset_is_type(form->opckeytype) && get_func_rettype(set) == form->opckeytype &&
					check_amproc_signature(query, INTERNALOID, true, 3, 3, INTERNALOID, INT2OID, OIDOID))))
		return true;
	ereport(INFO,
			(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
			 errmsg("operator class \"%s\" of access method %s has not the functions %d and %d that its storage type needs",
					NameStr(form->opcname), "gpuvec", ENTRY_SET_PROC, ENTRY_QUERY_PROC)));
	return false;
}

static bool
gpuvec_validate(Oid opclass)
{
	HeapTuple	class_tuple = SearchSysCache1(CLAOID, ObjectIdGetDatum(opclass));
	HeapTuple	family_tuple;
	Form_pg_opclass form;
	CatCList   *list;
	bool		ok = true;
	uint32		seen = 0;

	if (!HeapTupleIsValid(class_tuple))
		elog(ERROR, "cache lookup failed for operator class %u", opclass);
	form = (Form_pg_opclass) GETSTRUCT(class_tuple);
	family_tuple = SearchSysCache1(OPFAMILYOID, ObjectIdGetDatum(form->opcfamily));
	if (!HeapTupleIsValid(family_tuple))
		elog(ERROR, "cache lookup failed for operator family %u", form->opcfamily);
	list = SearchSysCacheList1(AMOPSTRATEGY, ObjectIdGetDatum(form->opcfamily));
	for (int i = 0; i < list->n_members; i++)
	{
		Form_pg_amop amop = (Form_pg_amop) GETSTRUCT(&list->members[i]->tuple);

		if (!operator_valid(amop, NameStr(((Form_pg_opfamily) GETSTRUCT(family_tuple))->opfname)))
			ok = false;
		else if (amop->amoplefttype == form->opcintype)
			seen |= 1u << amop->amopstrategy;
	}
	ok = class_complete(form, seen) && set_procs_valid(form) && ok;
	ReleaseCatCacheList(list);
	ReleaseSysCache(family_tuple);
	ReleaseSysCache(class_tuple);
	return ok;
}

/* True if the operator class of an index column has distance operators */
static bool
column_has_distances(Oid index, int column)
{
	Oid			opclass = get_index_column_opclass(index, column);
	Oid			family;
	Oid			type;
	CatCList   *list;
	bool		result = false;

	if (!OidIsValid(opclass) || !get_opclass_opfamily_and_input_type(opclass, &family, &type))
		return false;
	list = SearchSysCacheList1(AMOPSTRATEGY, ObjectIdGetDatum(family));
	for (int i = 0; i < list->n_members && !result; i++)
	{
		Form_pg_amop amop = (Form_pg_amop) GETSTRUCT(&list->members[i]->tuple);

		result = amop->amoplefttype == type && amop->amoppurpose == AMOP_ORDER;
	}
	ReleaseCatCacheList(list);
	return result;
}

/*
 * Tell what the server cannot know: the first column, with its distance
 * operators, can be ordered by distances, and exclusion constraints are
 * refused (build.c)
 */
static bool
gpuvec_property(Oid index, int column, IndexAMProperty property, const char *name,
				bool *result, bool *isnull)
{
	switch (property)
	{
		case AMPROP_DISTANCE_ORDERABLE:
			*result = column == 1 && column_has_distances(index, column);
			return column > 0;
		case AMPROP_CAN_EXCLUDE:
			*result = false;
			return true;
		default:
			return false;
	}
}

PG_FUNCTION_INFO_V1(gpuvec_handler);
Datum
gpuvec_handler(PG_FUNCTION_ARGS)
{
	static const IndexAmRoutine am = {
		.type = T_IndexAmRoutine,
		.amstrategies = GPUVEC_N_STRATEGIES,
		.amsupport = ENTRY_QUERY_PROC,
		.amcanorderbyop = true,
		.amcanmulticol = true,
		.amoptionalkey = true,
		.amsearcharray = true,
		.amsearchnulls = true,
		.amstorage = true,
		.amkeytype = InvalidOid,
		.amparallelvacuumoptions = VACUUM_OPTION_NO_PARALLEL,

		.ambuild = gpuvec_build,
		.ambuildempty = gpuvec_buildempty,
		.aminsert = gpuvec_insert,
		.ambulkdelete = gpuvec_bulkdelete,
		.amvacuumcleanup = gpuvec_vacuumcleanup,
		.amcostestimate = gpuvec_costestimate,
		.ambuildphasename = gpuvec_buildphasename,
		.amoptions = PlacementOptions,
		.amproperty = gpuvec_property,
		.amvalidate = gpuvec_validate,
		.ambeginscan = gpuvec_beginscan,
		.amrescan = gpuvec_rescan,
		.amgettuple = gpuvec_gettuple,
		.amgetbitmap = gpuvec_getbitmap,
		.amendscan = gpuvec_endscan
	};

	PG_RETURN_POINTER(GpuvecAmRoutine(&am));
}
