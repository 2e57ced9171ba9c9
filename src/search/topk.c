/*-------------------------------------------------------------------------
 *
 * topk.c
 *	  A call of a search function: arguments, search, and result rows.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/tupconvert.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "idset/idset.h"
#include "idset/idset_threshold.h"
#include "miscadmin.h"
#include "servers/foreign.h"
#include "search/row_fetch.h"
#include "search/set_search.h"
#include "search/set_function.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/typcache.h"

/* Positions of the arguments, the same in all functions */
enum
{
	ARG_RELATION,				/* regclass; for whole rows, a value of the
								 * row type */
	ARG_COLUMN,
	ARG_QUERY,					/* a set or a vector, or an array of them */
	ARG_K,
	ARG_MEASURE,
	ARG_MIN_SCORE,
	ARG_AMONG
};

/* Makes values of the requested row type from a target's rows */
typedef struct RowMaker
{
	RowFetch   *fetch;
	TupleConversionMap *map;	/* to the requested type; NULL: same type */
	TupleDesc	desc;
} RowMaker;

/* A position in the answers */
typedef struct AnswerCursor
{
	uint32		query;			/* the query whose hits are next */
	uint64		row;
} AnswerCursor;

/*
 * Rows are prefetched (row_fetch.h) in groups of ROWS_AHEAD: their pages two
 * groups before their turn, their tuples one group before.  Prefetches close
 * together overlap best, because code between them, locks most of all, delays
 * the later ones.  8 to 64 rows are equally good.
 */
#define ROWS_AHEAD	16

PG_FUNCTION_INFO_V1(gpuvec_topk);
PG_FUNCTION_INFO_V1(gpuvec_topk_batch);
PG_FUNCTION_INFO_V1(gpuvec_topk_rows);
PG_FUNCTION_INFO_V1(gpuvec_topk_batch_rows);
PG_FUNCTION_INFO_V1(gpuvec_vec_topk);
PG_FUNCTION_INFO_V1(gpuvec_vec_topk_batch);
PG_FUNCTION_INFO_V1(gpuvec_vec_topk_rows);
PG_FUNCTION_INFO_V1(gpuvec_vec_topk_batch_rows);

/* Forms of the functions, as flags */
#define FORM_BATCH	1			/* rows begin with the number of the query */
#define FORM_ROWS	2			/* rows have whole rows in place of source and
								 * tid */
#define FORM_VECTORS	4		/* queries are vectors */

/* A call: what is searched for, the answers, and the next row to return */
typedef struct TopKCall
{
	FunctionCallInfo fcinfo;
	bool		batch;			/* FORM_BATCH */
	bool		rows;			/* FORM_ROWS */
	bool		vectors;		/* FORM_VECTORS */
	MirrorTarget *targets;		/* closed after the search, unless whole rows
								 * are fetched */
	int			ntargets;
	List	   *foreign;		/* foreign tables */
	MirrorSearch search;
	SearchAnswer *answers;

	AnswerCursor next;
	ItemPointerData tid;		/* of the row returned last */

	RowMaker   *makers;			/* [ntargets], for whole rows */
	AnswerCursor next_page;		/* next row whose page is prefetched */
	AnswerCursor next_tuple;
	int			asked;			/* rows to return before the next prefetch */
	MemoryContext row_context;
} TopKCall;

/* The name of the measure */
static const char *
measure_name(const TopKCall *call)
{
	FunctionCallInfo fcinfo = call->fcinfo;

	if (!PG_ARGISNULL(ARG_MEASURE))
		return text_to_cstring(PG_GETARG_TEXT_PP(ARG_MEASURE));
	return call->vectors ? "inner_product" : "braun_blanquet";
}

/* Read k, measure and min_score */
static void
parse_options(TopKCall *call)
{
	FunctionCallInfo fcinfo = call->fcinfo;
	MirrorSearch *search = &call->search;

	if (call->vectors)
		search->scoring = gpuvec_sparse_scoring(idvec_measure_by_name(measure_name(call)));
	else
		idset_measure_by_name(measure_name(call), &search->scoring);

	search->has_min_score = !PG_ARGISNULL(ARG_MIN_SCORE);
	if (search->has_min_score)
	{
		search->min_score = PG_GETARG_FLOAT8(ARG_MIN_SCORE);
		if (isnan(search->min_score))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("min_score must be a number")));
	}

	if (!PG_ARGISNULL(ARG_K))
	{
		int64		k = PG_GETARG_INT64(ARG_K);

		if (k < 1)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("k must be at least 1, not " INT64_FORMAT, k)));
		search->k = (uint64) k;
	}
	else if (search->has_min_score)
		search->k = UINT64_MAX;
	else
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("k must not be null without min_score"),
				 errhint("Give k, or min_score to get all rows with at least that score.")));
}

/* Make a query of a set or a vector; a null query finds nothing */
static void
set_query(const TopKCall *call, MirrorQuery *query, Datum value, bool isnull)
{
	memset(query, 0, sizeof(*query));
	query->skip = query->done = isnull;
	if (isnull)
		return;
	if (!call->vectors)
	{
		MirrorSetQuery(query, DatumGetIdSetP(value));
		return;
	}
	MirrorSetVectorQuery(query, DatumGetIdVecP(value));
	if (gpuvec_scoring_sparse(call->search.scoring) == GPUVEC_SPARSE_JACCARD)
		idvec_check_not_negative(&query->vector);
}

/* Read the queries: one, or an array */
static void
parse_queries(TopKCall *call)
{
	FunctionCallInfo fcinfo = call->fcinfo;
	MirrorSearch *search = &call->search;
	Datum	   *values;
	bool	   *nulls;
	int			n;

	if (!call->batch)
	{
		search->nqueries = PG_ARGISNULL(ARG_QUERY) ? 0 : 1;
		search->queries = palloc0_array(MirrorQuery, 1);
		if (search->nqueries > 0)
			set_query(call, search->queries, PG_GETARG_DATUM(ARG_QUERY), false);
		return;
	}

	search->nqueries = 0;
	if (PG_ARGISNULL(ARG_QUERY))
		return;
	n = SearchArrayArgument(fcinfo, ARG_QUERY, "queries", &values, &nulls);
	if (n > GPUVEC_MAX_QUERIES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("cannot search for more than %d queries at once", GPUVEC_MAX_QUERIES),
				 errdetail("The array has %d.", n)));
	search->nqueries = n;
	search->queries = palloc_array(MirrorQuery, Max(n, 1));
	for (int i = 0; i < n; i++)
		set_query(call, &search->queries[i], values[i], nulls[i]);
}

/* The row type of the first argument; of a domain, its base type */
static Oid
row_type_of(FunctionCallInfo fcinfo)
{
	Oid			type = get_fn_expr_argtype(fcinfo->flinfo, ARG_RELATION);

	return OidIsValid(type) ? getBaseType(type) : InvalidOid;
}

/* The table whose row type the first argument has */
static Oid
base_relation(FunctionCallInfo fcinfo)
{
	Oid			type = row_type_of(fcinfo);
	Oid			relid = OidIsValid(type) ? get_typ_typrelid(type) : InvalidOid;

	if (!OidIsValid(relid) || get_rel_relkind(relid) == RELKIND_COMPOSITE_TYPE)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("the first argument must have the row type of a table"),
				 errhint("Write NULL::tablename.")));
	return relid;
}

/*
 * Read the rows to rank, if not all.  A tid does not tell its table, so there
 * must be only one table.
 */
static void
parse_among(TopKCall *call, Oid relid)
{
	FunctionCallInfo fcinfo = call->fcinfo;

	if (PG_ARGISNULL(ARG_AMONG))
		return;
	if (call->ntargets != 1 || call->foreign != NIL || call->targets[0].key.relation != relid)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 call->foreign != NIL ?
				 errmsg("cannot search among given rows of \"%s\", which are on other servers", get_rel_name(relid)) :
				 errmsg("cannot search among given rows of \"%s\", which has partitions or child tables",
						get_rel_name(relid)),
				 errdetail("Rows of different tables can have the same tid."),
				 errhint("Name the partition or child table that holds the rows.")));
	call->search.among = MirrorTidSetMake(PG_GETARG_ARRAYTYPE_P(ARG_AMONG));
}

/* Fail if stored rows lack columns: virtual generated ones */
static void
check_stored(const TopKCall *call, Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < desc->natts; i++)
		if (TupleDescAttr(desc, i)->attgenerated == ATTRIBUTE_GENERATED_VIRTUAL)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot return whole rows of \"%s\", which has virtual generated columns",
							RelationGetRelationName(rel)),
					 errhint("Use %s, and join the table by its tids.",
							 call->vectors ? "gpuvec_vec_topk" : "gpuvec_topk")));
}

/* The same for all tables of a call */
static void
check_all_stored(const TopKCall *call)
{
	ListCell   *cell;

	for (int i = 0; i < call->ntargets; i++)
		check_stored(call, call->targets[i].rel);
	foreach(cell, call->foreign)
		check_stored(call, lfirst(cell));
}

/* Prepare to fetch whole rows of each target */
static void
make_row_makers(TopKCall *call)
{
	Oid			row_type = row_type_of(call->fcinfo);
	uint64		nrows = 0;

	for (uint32 i = 0; i < call->search.nqueries; i++)
		nrows += call->answers[i].nhits;
	call->makers = palloc0_array(RowMaker, Max(call->ntargets, 1));
	for (int i = 0; i < call->ntargets; i++)
	{
		Relation	rel = call->targets[i].rel;
		RowMaker   *maker = &call->makers[i];

		maker->fetch = RowFetchBegin(rel, call->search.snapshot, nrows / call->ntargets);
		maker->desc = lookup_rowtype_tupdesc_copy(row_type, -1);
		if (rel->rd_rel->reltype != row_type)
			maker->map = convert_tuples_by_name(RelationGetDescr(rel), maker->desc);
	}
	call->row_context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec row",
											  ALLOCSET_DEFAULT_SIZES);
}

/*
 * The row at call->tid as a value of the requested type; it lives until the
 * next call
 */
static Datum
fetch_row(TopKCall *call, int target)
{
	RowMaker   *maker = &call->makers[target];
	MemoryContext old;
	HeapTuple	tuple;
	Datum		row;

	MemoryContextReset(call->row_context);
	old = MemoryContextSwitchTo(call->row_context);
	tuple = RowFetchGet(maker->fetch, &call->tid);
	if (tuple == NULL)
		elog(ERROR, "row (%u,%u) of relation \"%s\" is gone",
			 ItemPointerGetBlockNumber(&call->tid),
			 ItemPointerGetOffsetNumber(&call->tid),
			 RelationGetRelationName(call->targets[target].rel));
	if (maker->map)
		tuple = execute_attr_map_tuple(tuple, maker->map);
	row = heap_copy_tuple_as_datum(tuple, maker->desc);
	RowFetchRelease(maker->fetch);
	MemoryContextSwitchTo(old);
	return row;
}

/*
 * The hit at the cursor, which moves behind it; NULL at the end.  *target is
 * its table's number, or -1 for a row of a foreign table.
 */
static const MirrorHit *
next_hit(const TopKCall *call, AnswerCursor *cursor, int *target)
{
	const SearchAnswer *answer;

	while (cursor->query < call->search.nqueries &&
		   cursor->row == call->answers[cursor->query].nhits)
	{
		cursor->query++;
		cursor->row = 0;
	}
	if (cursor->query >= call->search.nqueries)
		return NULL;
	answer = &call->answers[cursor->query];
	*target = answer->targets ? answer->targets[cursor->row] : 0;
	return &answer->hits[cursor->row++];
}

/* Prefetch for the next group of rows, from the cursor on */
static inline void
look_ahead(TopKCall *call, AnswerCursor *cursor,
		   void (*ahead) (const RowFetch *fetch, ItemPointer tid))
{
	for (int i = 0; i < ROWS_AHEAD; i++)
	{
		int			target;
		const MirrorHit *hit = next_hit(call, cursor, &target);
		ItemPointerData tid;

		if (hit == NULL)
			return;
		if (target < 0)
			continue;
		MirrorHitTid(hit, &tid);
		ahead(call->makers[target].fetch, &tid);
	}
}

/*
 * Prefetch the tuples of the next group of rows, and the pages of the group
 * behind it
 */
static void
look_ahead_group(TopKCall *call)
{
	look_ahead(call, &call->next_page, RowFetchAheadPage);
	look_ahead(call, &call->next_tuple, RowFetchAheadTuple);
	call->asked += ROWS_AHEAD;
}

static void
start_rows(TopKCall *call)
{
	memset(&call->next, 0, sizeof(call->next));
	call->next_page = call->next_tuple = call->next;
	call->asked = 0;
	if (call->rows)
		look_ahead(call, &call->next_page, RowFetchAheadPage);
}

/* The row of a foreign table that next_hit() has returned last */
static Datum
foreign_row(const TopKCall *call)
{
	HeapTuple	item = call->answers[call->next.query].items[call->next.row - 1];

	return HeapTupleHeaderGetDatum(item->t_data);
}

/* The executor that calls, or NULL if it is not known */
static EState *
calling_executor(FunctionCallInfo fcinfo)
{
	const ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	if (fcinfo->context && IsA(fcinfo->context, EState))
		return (EState *) fcinfo->context;	/* from set_scan.c */
	return rsinfo && IsA(rsinfo, ReturnSetInfo) ? rsinfo->econtext->ecxt_estate : NULL;
}

/* Search all tables, those on other servers too */
static void
search_tables(TopKCall *call)
{
	ForeignSearch foreign = {.rels = call->foreign, .targets = call->targets,
	.ntargets = call->ntargets, .search = &call->search};

	if (call->foreign == NIL)
	{
		SearchRun(call->targets, call->ntargets, &call->search, call->answers);
		return;
	}
	foreign.column = NameStr(*DatumGetName(call->fcinfo->args[ARG_COLUMN].value));
	foreign.measure = measure_name(call);
	foreign.row_type = row_type_of(call->fcinfo);
	foreign.estate = calling_executor(call->fcinfo);
	ForeignTopK(&foreign, call->answers);
	ForeignCloseLeaves(call->foreign);
}

/* Open the relations to search: those of the first argument */
static void
open_targets(TopKCall *call, Oid relid)
{
	FunctionCallInfo fcinfo = call->fcinfo;
	SearchColumns columns = {.column = NameStr(*PG_GETARG_NAME(ARG_COLUMN)),
		.vectors = call->vectors,.whole_rows = call->rows,
	.foreign = call->rows ? &call->foreign : NULL};

	if (call->vectors)
		columns.idset_type = SearchIdSetType(fcinfo);
	else if (call->batch)
		columns.idset_type = get_element_type(SearchArgumentType(fcinfo, ARG_QUERY));
	else
		columns.idset_type = SearchArgumentType(fcinfo, ARG_QUERY);
	call->targets = SearchTargets(relid, &columns, &call->ntargets);
}

static void *
topk_begin(FunctionCallInfo fcinfo, int form, Snapshot snapshot)
{
	TopKCall   *call = palloc0(sizeof(TopKCall));
	Oid			relid;

	call->fcinfo = fcinfo;
	call->batch = (form & FORM_BATCH) != 0;
	call->rows = (form & FORM_ROWS) != 0;
	call->vectors = (form & FORM_VECTORS) != 0;
	if (call->rows)
		relid = base_relation(fcinfo);
	else
	{
		SearchRequireArgument(fcinfo, ARG_RELATION, "relation");
		relid = PG_GETARG_OID(ARG_RELATION);
	}
	SearchRequireArgument(fcinfo, ARG_COLUMN, "column");

	parse_options(call);
	parse_queries(call);
	call->search.snapshot = snapshot;
	open_targets(call, relid);
	parse_among(call, relid);
	if (call->rows)
		check_all_stored(call);
	call->answers = palloc0_array(SearchAnswer, Max(call->search.nqueries, 1));
	search_tables(call);
	if (call->rows)
		make_row_makers(call);
	else
		SearchCloseTargets(call->targets, call->ntargets);
	start_rows(call);
	return call;
}

/* The next result row; false at the end.  No column is null. */
static bool
topk_next(void *state, Datum *values, bool *nulls)
{
	TopKCall   *call = state;
	const MirrorHit *hit;
	int			target;
	int			n = 0;

	hit = next_hit(call, &call->next, &target);
	if (hit == NULL)
		return false;
	if (call->next.row == 1)
		CHECK_FOR_INTERRUPTS();
	MirrorHitTid(hit, &call->tid);
	if (call->batch)
		values[n++] = Int32GetDatum((int32) call->next.query + 1);
	values[n++] = Int32GetDatum((int32) call->next.row);
	if (call->rows)
	{
		if (call->asked-- == 0)
			look_ahead_group(call);
		values[n++] = target < 0 ? foreign_row(call) : fetch_row(call, target);
	}
	else
	{
		values[n++] = ObjectIdGetDatum(call->targets[target].key.relation);
		values[n++] = PointerGetDatum(&call->tid);
	}
	values[n++] = Float8GetDatum(hit->score);
	values[n++] = Int32GetDatum((int32) gpuvec_hit_common(hit->place));
	return true;
}

static void
topk_rewind(void *call)
{
	start_rows(call);
}

/* Release row fetchers and relations */
static void
topk_end(void *state)
{
	TopKCall   *call = state;

	if (!call->rows)
		return;
	for (int i = 0; i < call->ntargets; i++)
		RowFetchEnd(call->makers[i].fetch);
	SearchCloseTargets(call->targets, call->ntargets);
}

#define TOPK(name, which) \
	{.function = name, .form = which, .begin = topk_begin, .next = topk_next, \
		.rewind = topk_rewind, .end = topk_end}

const SetFunction TopKFunctions[] = {
	TOPK(gpuvec_topk, 0),
	TOPK(gpuvec_topk_batch, FORM_BATCH),
	TOPK(gpuvec_topk_rows, FORM_ROWS),
	TOPK(gpuvec_topk_batch_rows, FORM_BATCH | FORM_ROWS),
	TOPK(gpuvec_vec_topk, FORM_VECTORS),
	TOPK(gpuvec_vec_topk_batch, FORM_VECTORS | FORM_BATCH),
	TOPK(gpuvec_vec_topk_rows, FORM_VECTORS | FORM_ROWS),
	TOPK(gpuvec_vec_topk_batch_rows, FORM_VECTORS | FORM_BATCH | FORM_ROWS),
	{0}
};

Datum
gpuvec_topk(PG_FUNCTION_ARGS)
{
	return SetFunctionRows(fcinfo, gpuvec_topk);
}

Datum
gpuvec_topk_batch(PG_FUNCTION_ARGS)
{
	return SetFunctionRows(fcinfo, gpuvec_topk_batch);
}

Datum
gpuvec_topk_rows(PG_FUNCTION_ARGS)
{
	return SetFunctionRows(fcinfo, gpuvec_topk_rows);
}

Datum
gpuvec_topk_batch_rows(PG_FUNCTION_ARGS)
{
	return SetFunctionRows(fcinfo, gpuvec_topk_batch_rows);
}

Datum
gpuvec_vec_topk(PG_FUNCTION_ARGS)
{
	return SetFunctionRows(fcinfo, gpuvec_vec_topk);
}

Datum
gpuvec_vec_topk_batch(PG_FUNCTION_ARGS)
{
	return SetFunctionRows(fcinfo, gpuvec_vec_topk_batch);
}

Datum
gpuvec_vec_topk_rows(PG_FUNCTION_ARGS)
{
	return SetFunctionRows(fcinfo, gpuvec_vec_topk_rows);
}

Datum
gpuvec_vec_topk_batch_rows(PG_FUNCTION_ARGS)
{
	return SetFunctionRows(fcinfo, gpuvec_vec_topk_batch_rows);
}
