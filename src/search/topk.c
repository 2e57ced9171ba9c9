/*-------------------------------------------------------------------------
 *
 * topk.c
 *	  The search functions of SQL: gpuvec_topk, gpuvec_topk_batch and their
 *	  forms that return whole rows.
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
#include "miscadmin.h"
#include "search/search.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"
#include "utils/typcache.h"

PG_FUNCTION_INFO_V1(gpuvec_topk);
PG_FUNCTION_INFO_V1(gpuvec_topk_batch);
PG_FUNCTION_INFO_V1(gpuvec_topk_rows);
PG_FUNCTION_INFO_V1(gpuvec_topk_batch_rows);

/* Positions of the arguments, the same in all four functions */
enum
{
	ARG_RELATION,				/* regclass, or the row type */
	ARG_COLUMN,
	ARG_QUERY,					/* idset, or idset[] */
	ARG_K,
	ARG_MEASURE,
	ARG_MIN_SCORE
};

/* A call: what is asked, and the answers */
typedef struct TopKCall
{
	FunctionCallInfo fcinfo;
	bool		batch;			/* result rows begin with the query's number */
	bool		rows;			/* whole rows instead of source and tid */
	MirrorTarget *targets;
	int			ntargets;
	MirrorSearch search;
	SearchAnswer *answers;
} TopKCall;

/* Find a measure by its name */
static gpuvec_measure
parse_measure(const char *name)
{
	static const char *const names[] = GPUVEC_MEASURE_NAMES;

	for (int i = 0; i < GPUVEC_N_MEASURES; i++)
		if (strcmp(name, names[i]) == 0)
			return (gpuvec_measure) i;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unknown similarity measure \"%s\"", name),
			 errhint("Available measures are braun_blanquet, jaccard, cosine, dice, overlap, containment, intersection and hamming.")));
	return GPUVEC_BRAUN_BLANQUET;
}

/* An argument that must not be NULL */
static void
require_argument(FunctionCallInfo fcinfo, int argument, const char *name)
{
	if (PG_ARGISNULL(argument))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", name)));
}

/* k, measure and min_score */
static void
parse_options(FunctionCallInfo fcinfo, MirrorSearch *search)
{
	search->measure = PG_ARGISNULL(ARG_MEASURE) ? GPUVEC_BRAUN_BLANQUET :
		parse_measure(text_to_cstring(PG_GETARG_TEXT_PP(ARG_MEASURE)));

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

/* One query of a call */
static void
set_query(MirrorQuery *query, Datum value, bool isnull)
{
	IdSet	   *set;

	memset(query, 0, sizeof(*query));
	query->skip = query->done = isnull;
	if (isnull)
		return;
	set = DatumGetIdSetP(value);
	query->ids = idset_ids(set);
	query->len = idset_count(set);
}

/* The queries of a call: one, or an array of them */
static void
parse_queries(TopKCall *call)
{
	FunctionCallInfo fcinfo = call->fcinfo;
	MirrorSearch *search = &call->search;
	ArrayType  *array;
	int16		typlen;
	bool		typbyval;
	char		typalign;
	Datum	   *values;
	bool	   *nulls;
	int			n;

	if (!call->batch)
	{
		search->nqueries = PG_ARGISNULL(ARG_QUERY) ? 0 : 1;
		search->queries = palloc0_array(MirrorQuery, 1);
		if (search->nqueries > 0)
			set_query(search->queries, PG_GETARG_DATUM(ARG_QUERY), false);
		return;
	}

	search->nqueries = 0;
	if (PG_ARGISNULL(ARG_QUERY))
		return;
	array = PG_GETARG_ARRAYTYPE_P(ARG_QUERY);
	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("queries must be a one-dimensional array"),
				 errdetail("The array has %d dimensions.", ARR_NDIM(array))));
	get_typlenbyvalalign(ARR_ELEMTYPE(array), &typlen, &typbyval, &typalign);
	deconstruct_array(array, ARR_ELEMTYPE(array), typlen, typbyval, typalign,
					  &values, &nulls, &n);
	if (n > GPUVEC_MAX_QUERIES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("cannot search for more than %d queries at once", GPUVEC_MAX_QUERIES),
				 errdetail("The array has %d.", n)));
	search->nqueries = n;
	search->queries = palloc_array(MirrorQuery, Max(n, 1));
	for (int i = 0; i < n; i++)
		set_query(&search->queries[i], values[i], nulls[i]);
}

/* The row type of the first argument, behind any domain */
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

/* Check and search */
static void
run_call(TopKCall *call)
{
	FunctionCallInfo fcinfo = call->fcinfo;
	Oid			type = SearchArgumentType(fcinfo, ARG_QUERY);
	Oid			relid;

	if (call->batch)
		type = get_element_type(type);
	if (call->rows)
		relid = base_relation(fcinfo);
	else
	{
		require_argument(fcinfo, ARG_RELATION, "relation");
		relid = PG_GETARG_OID(ARG_RELATION);
	}
	require_argument(fcinfo, ARG_COLUMN, "column");

	parse_options(fcinfo, &call->search);
	parse_queries(call);
	call->search.snapshot = GetActiveSnapshot();
	call->targets = SearchTargets(relid, NameStr(*PG_GETARG_NAME(ARG_COLUMN)), type,
								  call->rows, &call->ntargets);
	call->answers = palloc_array(SearchAnswer, Max(call->search.nqueries, 1));
	SearchRun(call->targets, call->ntargets, &call->search, call->answers);
}

/* Turns the rows of a target into values of the asked row type */
typedef struct RowMaker
{
	TupleTableSlot *slot;		/* of the target */
	TupleConversionMap *map;	/* to the asked type; NULL: it is the same */
	TupleDesc	desc;
} RowMaker;

/* Prepare for rows of each target */
static RowMaker *
make_row_makers(TopKCall *call, Oid row_type)
{
	RowMaker   *makers = palloc0_array(RowMaker, Max(call->ntargets, 1));

	for (int i = 0; i < call->ntargets; i++)
	{
		Relation	rel = call->targets[i].rel;

		makers[i].slot = table_slot_create(rel, NULL);
		makers[i].desc = lookup_rowtype_tupdesc_copy(row_type, -1);
		if (rel->rd_rel->reltype != row_type)
			makers[i].map = convert_tuples_by_name(RelationGetDescr(rel), makers[i].desc);
	}
	return makers;
}

/* The row of a hit, as a value of the asked type */
static Datum
fetch_row(TopKCall *call, RowMaker *makers, SearchHit *found)
{
	RowMaker   *maker = &makers[found->target];
	Relation	rel = call->targets[found->target].rel;
	HeapTuple	tuple;
	bool		should_free;
	Datum		row;

	if (!table_tuple_fetch_row_version(rel, &found->hit.tid, call->search.snapshot, maker->slot))
		elog(ERROR, "row (%u,%u) of relation \"%s\" is gone",
			 ItemPointerGetBlockNumber(&found->hit.tid),
			 ItemPointerGetOffsetNumber(&found->hit.tid), RelationGetRelationName(rel));
	tuple = ExecFetchSlotHeapTuple(maker->slot, false, &should_free);
	if (maker->map)
		tuple = execute_attr_map_tuple(tuple, maker->map);
	row = heap_copy_tuple_as_datum(tuple, maker->desc);
	ExecClearTuple(maker->slot);
	return row;
}

/* Put all answers into the result, with whole rows */
static void
return_rows(TopKCall *call)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) call->fcinfo->resultinfo;
	MemoryContext row_context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec row",
													  ALLOCSET_DEFAULT_SIZES);
	RowMaker   *makers = make_row_makers(call, row_type_of(call->fcinfo));
	Datum		values[5];
	bool		nulls[5] = {0};

	for (uint32 q = 0; q < call->search.nqueries; q++)
	{
		SearchAnswer *answer = &call->answers[q];

		for (uint64 i = 0; i < answer->nhits; i++)
		{
			SearchHit  *found = &answer->hits[i];
			MemoryContext old = MemoryContextSwitchTo(row_context);
			int			n = 0;

			if (call->batch)
				values[n++] = Int32GetDatum(q + 1);
			values[n++] = Int32GetDatum((int32) (i + 1));
			values[n++] = fetch_row(call, makers, found);
			values[n++] = Float8GetDatum(found->hit.score);
			values[n++] = Int32GetDatum((int32) found->hit.common);
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
			MemoryContextSwitchTo(old);
			MemoryContextReset(row_context);
			CHECK_FOR_INTERRUPTS();
		}
	}
	for (int i = 0; i < call->ntargets; i++)
		ExecDropSingleTupleTableSlot(makers[i].slot);
	MemoryContextDelete(row_context);
}

/*
 * A result row whose columns all have a fixed width and are not null: formed
 * once, and then overwritten in place for each row.
 */
typedef struct RowForm
{
	HeapTuple	tuple;
	char	   *column[6];
} RowForm;

/* Make the form of a result row */
static void
make_row_form(RowForm *form, TupleDesc desc)
{
	Datum		values[6] = {0};
	bool		nulls[6] = {0};
	ItemPointerData tid;
	char	   *data;
	Size		offset = 0;

	Assert(desc->natts <= 6);
	ItemPointerSetInvalid(&tid);
	for (int i = 0; i < desc->natts; i++)
		if (TupleDescAttr(desc, i)->atttypid == TIDOID)
			values[i] = PointerGetDatum(&tid);
		else if (TupleDescAttr(desc, i)->atttypid == FLOAT8OID)
			values[i] = Float8GetDatum(0.0);
	form->tuple = heap_form_tuple(desc, values, nulls);
	data = (char *) form->tuple->t_data + form->tuple->t_data->t_hoff;
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		offset = att_align_nominal(offset, att->attalign);
		form->column[i] = data + offset;
		offset += att->attlen;
	}
}

/* Put all answers into the result, with sources and tids */
static void
return_tids(TopKCall *call)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) call->fcinfo->resultinfo;
	RowForm		form;

	make_row_form(&form, rsinfo->setDesc);
	for (uint32 q = 0; q < call->search.nqueries; q++)
	{
		SearchAnswer *answer = &call->answers[q];
		int32		number = (int32) q + 1;

		for (uint64 i = 0; i < answer->nhits; i++)
		{
			SearchHit  *found = &answer->hits[i];
			int32		rank = (int32) (i + 1);
			Oid			source = call->targets[found->target].key.relation;
			int32		common = (int32) found->hit.common;
			int			n = 0;

			if (call->batch)
				memcpy(form.column[n++], &number, sizeof(number));
			memcpy(form.column[n++], &rank, sizeof(rank));
			memcpy(form.column[n++], &source, sizeof(source));
			memcpy(form.column[n++], &found->hit.tid, sizeof(ItemPointerData));
			memcpy(form.column[n++], &found->hit.score, sizeof(double));
			memcpy(form.column[n++], &common, sizeof(common));
			tuplestore_puttuple(rsinfo->setResult, form.tuple);
		}
		CHECK_FOR_INTERRUPTS();
	}
	heap_freetuple(form.tuple);
}

/* All four functions */
static Datum
topk(FunctionCallInfo fcinfo, bool batch, bool rows)
{
	TopKCall	call = {.fcinfo = fcinfo, .batch = batch, .rows = rows};

	GpuvecMaterializedSRF(fcinfo);
	run_call(&call);
	if (rows)
		return_rows(&call);
	else
		return_tids(&call);
	SearchCloseTargets(call.targets, call.ntargets);
	return (Datum) 0;
}

Datum
gpuvec_topk(PG_FUNCTION_ARGS)
{
	return topk(fcinfo, false, false);
}

Datum
gpuvec_topk_batch(PG_FUNCTION_ARGS)
{
	return topk(fcinfo, true, false);
}

Datum
gpuvec_topk_rows(PG_FUNCTION_ARGS)
{
	return topk(fcinfo, false, true);
}

Datum
gpuvec_topk_batch_rows(PG_FUNCTION_ARGS)
{
	return topk(fcinfo, true, true);
}
