/*-------------------------------------------------------------------------
 *
 * build.c
 *	  Building an index: its metapage, and its rows if it keeps them.
 *
 * The table is scanned in either case, by the server's own function.  This
 * finds broken HOT chains, whose rows older snapshots must not look for in
 * the index.  The scan takes most of the time, so
 * pg_stat_progress_create_index shows its blocks and rows.  The same function
 * evaluates expressions and predicates, as the table's owner.  Sessions that
 * only read have no part in it.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/tableam.h"
#include "catalog/index.h"
#include "commands/progress.h"
#include "entries/entries.h"
#include "index/index_am.h"
#include "nodes/execnodes.h"
#include "nodes/nodeFuncs.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

/*
 * Phases of a build, numbered after the server's
 * PROGRESS_CREATEIDX_SUBPHASE_INITIALIZE
 */
#define PHASE_META		2
#define PHASE_SCAN		3

/* Entries are written when this many bytes have been collected */
#define BATCH_BYTES		(64 * 1024)

/* A build under way */
typedef struct Build
{
	double		rows;			/* number of rows */
	bool		kept;			/* the index keeps its rows */
	MemoryContext context;		/* of the batch's memory */
	MemoryContext row;			/* of one row's set */
	FilterColumns filters;
	uint32		bucket;			/* bucket of the batch */
	EntryBatch	batch;
} Build;

/* Write the batch of a bucket */
static void
write_batch(Build *build, Relation index)
{
	if (build->batch.used > 0)
		EntriesWrite(index, build->bucket, &build->batch, true);
	build->batch.used = 0;
}

/* Keep a row */
static void
keep_row(Build *build, Relation index, ItemPointer tid, Datum *values, bool *isnull)
{
	uint32		bucket = entry_bucket(ItemPointerGetBlockNumber(tid));
	uint64		filter_keys[GPUVEC_MAX_FILTERS + 1];
	EntryValue	value = {.filter_keys = filter_keys, .nfilter_keys = gpuvec_filter_keys(build->filters.n)};

	MemoryContextReset(build->row);
	if (!isnull[0])
	{
		MemoryContext old = MemoryContextSwitchTo(build->row);

		value.set = EntriesRowValue(index, values[0]);
		MemoryContextSwitchTo(old);
	}
	if (value.nfilter_keys > 0)
		FilterKeys(&build->filters, values, isnull, filter_keys);
	if (bucket != build->bucket || build->batch.used > BATCH_BYTES)
		write_batch(build, index);
	build->bucket = bucket;
	/* the value is copied into the batch */
	EntryBatchAdd(&build->batch, build->context, tid, &value, 0);
}

/* Callback of the table scan: add a row to the index */
static void
add_row(Relation index, ItemPointer tid, Datum *values, bool *isnull, bool alive, void *state)
{
	Build	   *build = state;

	if (build->kept)
		keep_row(build, index, tid, values, isnull);
	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, (int64) ++build->rows);
	GPUVEC_INJECTION("build-row");
}

/* The name of a phase in pg_stat_progress_create_index */
char *
gpuvec_buildphasename(int64 phase)
{
	switch (phase)
	{
		case PROGRESS_CREATEIDX_SUBPHASE_INITIALIZE:
			return "initializing";
		case PHASE_SCAN:
			return "scanning table";
		case PHASE_META:
			return "writing metapage";
		default:
			return NULL;
	}
}

/* Refuse columns that cannot be where they are */
static void
check_columns(Relation index, const FilterColumns *filters)
{
	int			n = IndexRelationGetNumberOfKeyAttributes(index);

	if (FilterKindOf(index->rd_opcintype[0]) != FILTER_UNKNOWN && !EntriesMakeSets(index))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("the first column of an index of access method \"%s\" must be of type %s, %s or %s, or an array", "gpuvec",
						"idset", "idvec", "jsonb"),
				 errdetail("The first column has the type %s.",
						   format_type_be(index->rd_opcintype[0])),
				 index->rd_opcintype[0] == TEXTOID ?
				 errhint("Name the operator class: (column %s).", "gpuvec_trgm_ops") :
				 index->rd_opcintype[0] == BPCHAROID ?
				 errhint("Cast it, and name the operator class: ((column::text) %s).", "gpuvec_trgm_ops") : 0));
	if (n - 1 > GPUVEC_MAX_FILTERS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("an index of access method \"%s\" cannot have more than %d columns", "gpuvec",
						GPUVEC_MAX_FILTERS + 1)));
	for (int i = 0; i < filters->n; i++)
		if (filters->columns[i].kind == FILTER_UNKNOWN)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("access method \"%s\" cannot filter by type %s", "gpuvec",
							format_type_be(filters->columns[i].type))));
	/* their operators do not compare values (conditions.c) */
	for (int i = 2; i <= n; i++)
		if (OidIsValid(index_getprocid(index, i, ENTRY_SET_PROC)))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("access method \"%s\" cannot filter by sets that are made of a column", "gpuvec"),
					 errdetail("Column %d of the index has an operator class that is for the first column only.", i),
					 errhint("Leave the operator class out there, or create another index.")));
}

/*
 * Fail if there are values in the first column that no set can be made of:
 * arrays of a type without a hash function
 */
static void
check_elements(Relation heap, Relation index, const IndexInfo *info)
{
	AttrNumber	attnum = info->ii_IndexAttrNumbers[0];
	Oid			type;

	if (!EntriesMakeSets(index))
		return;
	type = attnum != 0 ? TupleDescAttr(RelationGetDescr(heap), attnum - 1)->atttypid :
		exprType(linitial(info->ii_Expressions));
	type = get_base_element_type(type);
	if (OidIsValid(type))
		(void) EntriesValue(index, PointerGetDatum(construct_empty_array(type)));
}

/* Refuse definitions that scans cannot serve */
static void
check_definition(Relation heap, Relation index, const IndexInfo *info, const FilterColumns *filters)
{
	if (info->ii_ExclusionOps != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("access method \"%s\" does not support exclusion constraints", "gpuvec")));
	check_columns(index, filters);
	check_elements(heap, index, info);
}

IndexBuildResult *
gpuvec_build(Relation heap, Relation index, IndexInfo *info)
{
	IndexBuildResult *result = palloc_object(IndexBuildResult);
	Build		build = {.kept = EntriesKept(index), .context = CurrentMemoryContext};

	if (RelationGetNumberOfBlocks(index) != 0)
		elog(ERROR, "index \"%s\" already contains data", RelationGetRelationName(index));
	FilterDescribe(index->rd_indextuple, &build.filters);
	check_definition(heap, index, info, &build.filters);
	build.row = AllocSetContextCreate(CurrentMemoryContext, "gpuvec row", ALLOCSET_DEFAULT_SIZES);
	EntriesForget(index);
	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, PHASE_META);
	GPUVEC_INJECTION("build-meta");
	EntriesCreate(index, MAIN_FORKNUM);
	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, PHASE_SCAN);
	/* an estimate; -1 or 0 if there is none */
	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_TOTAL,
								 (int64) Max(heap->rd_rel->reltuples, 0));

	/*
	 * kept rows are written in the order of the table: no synchronized scan,
	 * which may begin in the middle
	 */
	result->heap_tuples = table_index_build_scan(heap, index, info, !build.kept, true, add_row,
												 &build, NULL);
	result->index_tuples = build.rows;
	write_batch(&build, index);
	MemoryContextDelete(build.row);
	if (build.kept)
		EntriesLogBuild(index);
	return result;
}

void
gpuvec_buildempty(Relation index)
{
	EntriesCreate(index, INIT_FORKNUM);
}
