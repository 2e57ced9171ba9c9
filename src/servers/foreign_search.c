/*-------------------------------------------------------------------------
 *
 * foreign_search.c
 *	  Search foreign tables by the same function on their servers.
 *
 * Each server is asked for the best rows of its table, and the rows are
 * merged with those of local tables.  The order of all rows is (score
 * descending, oid of the table here, rank there).  It needs no tids of other
 * servers, and the k best rows are the first of the k + 1 best.  Each of the
 * k best rows of all is among the k best of its table.
 *
 * Most tables hold only a few of the k best rows.  So in a first round, each
 * server is asked for k1 < k rows.  A table whose k1-th row is among the k
 * best rows so far may hold more, and is asked again, for rows behind the
 * k1-th, with the k-th score as least score.  The others hold no more: all
 * their other rows come behind their k1-th, which is behind the k-th of all.
 * Both rounds have one snapshot of the server, as postgres_fdw runs them in
 * one transaction of level repeatable read.
 *
 * What a server sends is checked: numbers of queries, ranks one after the
 * other up to the number of rows asked for, scores that are numbers in
 * descending order.  A server that breaks these rules gets an error, and it
 * cannot make this session keep more than k rows of a query.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "common/shortest_dec.h"
#include "idset/idset.h"
#include "mirror/describe/row_value.h"
#include "miscadmin.h"
#include "servers/foreign.h"
#include "servers/foreign_connect.h"
#include "settings.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

/* A row of the answer of one query */
typedef struct MergedRow
{
	double		score;
	Oid			relation;
	uint32		rank;			/* there */
	uint32		common;
	HeapTuple	item;			/* NULL: a local row */
	MirrorHit	hit;			/* of a local row, ... */
	int			target;			/* ... and where it is */
} MergedRow;

/* The best rows of one query so far: a heap, the worst row first */
typedef struct Merged
{
	MergedRow  *rows;
	uint64		n;
	uint64		max;
} Merged;

/* How much of a query's answer a leaf has sent */
typedef struct Progress
{
	uint32		n;
	double		last;			/* score of its last row */
} Progress;

/* A search on all servers */
typedef struct ForeignCall
{
	const ForeignSearch *search;
	SearchAnswer *answers;
	Merged	   *merged;			/* [nqueries] */
	TupleDesc	desc;			/* of the rows to return */
	AttrNumber	set_attnum;		/* of the sets or vectors, in desc */
	bool		values;			/* they are vectors */
} ForeignCall;

/* One leaf */
typedef struct LeafSearch
{
	ForeignCall *call;
	const ForeignLeaf *leaf;
	Progress   *progress;		/* [nqueries] */
	List	   *tlist;

	/* the round */
	uint32	   *queries;		/* [nqueries]: numbers of the queries to ask */
	uint32		nqueries;
	uint64		k;				/* this many rows at most */
	bool		has_least;
	double		least;			/* rows of at least this score */

	/* the row that is read */
	Datum	   *values;
	bool	   *nulls;
} LeafSearch;

/* Columns before those of the row itself */
enum
{
	COLUMN_QUERY,
	COLUMN_RANK,
	COLUMN_SCORE,
	COLUMN_COMMON,
	COLUMN_ITEM
};

/* ---- merging ---- */

/* True if row a comes before row b */
static bool
comes_before(const MergedRow *a, const MergedRow *b)
{
	if (a->score != b->score)
		return a->score > b->score;
	if (a->relation != b->relation)
		return a->relation < b->relation;
	return a->rank < b->rank;
}

static int
compare_rows(const void *a, const void *b)
{
	return comes_before(a, b) ? -1 : comes_before(b, a);
}

/* Sink a row from the root of the heap to its place */
static void
sink_row(Merged *merged, MergedRow row)
{
	uint64		i = 0;

	for (;;)
	{
		uint64		child = 2 * i + 1;

		if (child >= merged->n)
			break;
		if (child + 1 < merged->n && comes_before(&merged->rows[child], &merged->rows[child + 1]))
			child++;
		if (!comes_before(&row, &merged->rows[child]))
			break;
		merged->rows[i] = merged->rows[child];
		i = child;
	}
	merged->rows[i] = row;
}

/* Add a row to the heap, from a leaf of the tree upwards */
static void
raise_row(Merged *merged, MergedRow row)
{
	uint64		i;

	if (merged->n == merged->max)
	{
		merged->max = Max(merged->max * 2, 16);
		merged->rows = merged->rows == NULL ?
			MemoryContextAllocHuge(CurrentMemoryContext, merged->max * sizeof(MergedRow)) :
			repalloc_huge(merged->rows, merged->max * sizeof(MergedRow));
	}
	for (i = merged->n++; i > 0; i = (i - 1) / 2)
	{
		if (!comes_before(&merged->rows[(i - 1) / 2], &row))
			break;
		merged->rows[i] = merged->rows[(i - 1) / 2];
	}
	merged->rows[i] = row;
}

/* True if a row would be among the k best so far */
static bool
is_wanted(const Merged *merged, const MergedRow *row, uint64 k)
{
	return merged->n < k || comes_before(row, &merged->rows[0]);
}

/* Add a row that is wanted; the worst one goes if there are k already */
static void
add_row(Merged *merged, const MergedRow *row, uint64 k)
{
	if (merged->n < k)
	{
		raise_row(merged, *row);
		return;
	}
	if (merged->rows[0].item)
		heap_freetuple(merged->rows[0].item);
	sink_row(merged, *row);
}

/* Search the local tables, and add their rows; called while servers work */
static void
search_targets(void *arg)
{
	ForeignCall *call = arg;
	const ForeignSearch *search = call->search;

	if (search->ntargets == 0)
		return;
	SearchRun(search->targets, search->ntargets, search->search, call->answers);
	for (uint32 q = 0; q < search->search->nqueries; q++)
	{
		const SearchAnswer *answer = &call->answers[q];

		for (uint64 i = 0; i < answer->nhits; i++)
		{
			MergedRow	row = {.score = answer->hits[i].score, .rank = i, .hit = answer->hits[i]};

			row.target = answer->targets ? answer->targets[i] : 0;
			row.relation = search->targets[row.target].key.relation;
			row.common = gpuvec_hit_common(row.hit.place);
			if (is_wanted(&call->merged[q], &row, search->search->k))
				add_row(&call->merged[q], &row, search->search->k);
		}
	}
}

/* Make the answers of the merged rows, best first */
static void
make_answers(ForeignCall *call)
{
	for (uint32 q = 0; q < call->search->search->nqueries; q++)
	{
		Merged	   *merged = &call->merged[q];
		SearchAnswer *answer = &call->answers[q];
		MemoryContext context = CurrentMemoryContext;

		memset(answer, 0, sizeof(*answer));
		if (merged->n == 0)
			continue;
		qsort(merged->rows, merged->n, sizeof(MergedRow), compare_rows);
		answer->nhits = answer->maxhits = merged->n;
		answer->hits = MemoryContextAllocHuge(context, merged->n * sizeof(MirrorHit));
		answer->targets = MemoryContextAllocHuge(context, merged->n * sizeof(int));
		answer->items = MemoryContextAllocHuge(context, merged->n * sizeof(HeapTuple));
		for (uint64 i = 0; i < merged->n; i++)
		{
			const MergedRow *row = &merged->rows[i];

			answer->hits[i] = row->hit;
			if (row->item)
			{
				answer->hits[i].score = row->score;
				answer->hits[i].place = gpuvec_hit_place(0, row->common, false);
			}
			answer->targets[i] = row->target;
			answer->items[i] = row->item;
		}
		pfree(merged->rows);
	}
}

/* ---- rows of a server ---- */

/* True if queries are vectors */
static bool
by_vectors(const LeafSearch *leaf)
{
	return leaf->call->search->search->scoring.sparse != 0;
}

/* Fail: a row breaks a rule */
static void
reject_row(const LeafSearch *leaf, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_FDW_ERROR),
			 errmsg("server \"%s\" returned a wrong answer", leaf->leaf->server_name),
			 errdetail("%s", detail),
			 errhint("Check the version of gpuvec there, and what its function %s is.",
					 ForeignFunction(by_vectors(leaf)))));
}

/*
 * The query of a row, by its number here.  The row's place in the query's
 * answer must be behind the rows that came before it.
 */
static uint32
check_row(const LeafSearch *leaf, const TupleTableSlot *slot, MergedRow *row)
{
	int32		number = DatumGetInt32(slot->tts_values[COLUMN_QUERY]);
	const Progress *progress;
	uint32		query;

	for (int i = 0; i < COLUMN_ITEM; i++)
		if (slot->tts_isnull[i])
			reject_row(leaf, "A number of a row is null.");
	if (number < 1 || number > leaf->nqueries)
		reject_row(leaf, psprintf("A row belongs to query %d of %u.", number, leaf->nqueries));
	query = leaf->queries[number - 1];
	progress = &leaf->progress[query];
	if (row->rank != (uint64) progress->n + 1 || row->rank > leaf->k)
		reject_row(leaf, psprintf("A row has rank %u after %u of " UINT64_FORMAT " rows.",
								  row->rank, progress->n, leaf->k));
	if (isnan(row->score) || (progress->n > 0 && row->score > progress->last) ||
		(leaf->has_least && row->score < leaf->least))
		reject_row(leaf, psprintf("The row of rank %u has score %g.", row->rank, row->score));
	if (row->common > leaf->call->search->search->queries[query].vector.ids.n)
		reject_row(leaf, psprintf("The row of rank %u has %u common ids.", row->rank, row->common));
	return query;
}

/*
 * Fail unless the score of a row is that of its set or vector; with
 * gpuvec.verify
 */
static void
verify_row(const LeafSearch *leaf, uint32 query, const MergedRow *row)
{
	const ForeignCall *call = leaf->call;
	const MirrorSearch *search = call->search->search;
	const MirrorQuery *q = &search->queries[query];
	const char *what = call->values ? "vector" : "set";
	gpuvec_sparse value;
	uint32		common;

	if (leaf->nulls[call->set_attnum - 1])
		reject_row(leaf, psprintf("The row of rank %u has no %s.", row->rank, what));
	value = RowOfDatum(call->values, leaf->values[call->set_attnum - 1]);
	common = idset_span_common(q->vector.ids, value.ids);
	if (common != row->common || idvec_score(&search->scoring, &q->vector, &value, common) != row->score)
		reject_row(leaf, psprintf("The row of rank %u has %u common ids and score %g, not its %s's.",
								  row->rank, row->common, row->score, what));
}

/* Take a row that a server has sent */
static void
take_row(TupleTableSlot *slot, void *arg)
{
	LeafSearch *leaf = arg;
	const ForeignCall *call = leaf->call;
	MergedRow	row = {
		.score = slot->tts_isnull[COLUMN_SCORE] ? 0 : DatumGetFloat8(slot->tts_values[COLUMN_SCORE]),
		.relation = RelationGetRelid(leaf->leaf->rel),
		.rank = DatumGetInt32(slot->tts_values[COLUMN_RANK]),
		.common = DatumGetInt32(slot->tts_values[COLUMN_COMMON]),
		.target = -1
	};
	uint32		query = check_row(leaf, slot, &row);
	int			column = COLUMN_ITEM;

	leaf->progress[query].n++;
	leaf->progress[query].last = row.score;
	if (!is_wanted(&call->merged[query], &row, call->search->search->k))
		return;
	for (int i = 0; i < call->desc->natts; i++)
	{
		leaf->nulls[i] = true;
		leaf->values[i] = (Datum) 0;
		if (TupleDescAttr(call->desc, i)->attisdropped)
			continue;
		leaf->values[i] = slot->tts_values[column];
		leaf->nulls[i] = slot->tts_isnull[column++];
	}
	if (gpuvec_verify)
		verify_row(leaf, query, &row);
	row.item = heap_form_tuple(call->desc, leaf->values, leaf->nulls);
	add_row(&call->merged[query], &row, call->search->search->k);
}

/* ---- statements ---- */

/* Append a number as a quoted literal that is read back as the same number */
static void
append_score(StringInfo sql, double score)
{
	char		digits[DOUBLE_SHORTEST_DECIMAL_LEN];

	double_to_shortest_decimal_buf(score, digits);
	appendStringInfo(sql, "'%s'::pg_catalog.float8", digits);
}

/*
 * The queries of a round, as the text of an array.  It is a parameter of the
 * statement, because errors show the whole statement.
 */
static char *
make_queries(const LeafSearch *leaf)
{
	StringInfoData array;

	initStringInfo(&array);
	appendStringInfoChar(&array, '{');
	for (uint32 i = 0; i < leaf->nqueries; i++)
	{
		const struct varlena *query = leaf->call->search->search->queries[leaf->queries[i]].value;
		char	   *text = DatumGetCString(DirectFunctionCall1(by_vectors(leaf) ? idvec_out : idset_out,
															   PointerGetDatum(query)));

		appendStringInfo(&array, "%s\"%s\"", i > 0 ? "," : "", text);
		pfree(text);
	}
	appendStringInfoChar(&array, '}');
	return array.data;
}

/* Append the columns of a row as columns of the function's rows */
static void
append_columns(StringInfo sql, const LeafSearch *leaf)
{
	TupleDesc	desc = leaf->call->desc;
	Relation	rel = leaf->leaf->rel;

	appendStringInfoString(sql, "SELECT h.query, h.rank, h.score, h.common");
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);
		AttrNumber	attnum;

		if (attribute->attisdropped)
			continue;
		attnum = get_attnum(RelationGetRelid(rel), NameStr(attribute->attname));
		appendStringInfo(sql, ", (h.item).%s", quote_identifier(ForeignColumnName(rel, attnum)));
	}
}

/* The statement of a round; `behind` rows of each query are here already */
static char *
make_sql(const LeafSearch *leaf, uint64 behind)
{
	StringInfoData sql;

	initStringInfo(&sql);
	append_columns(&sql, leaf);
	appendStringInfo(&sql, " FROM %s.%s(NULL::%s, %s, $1::%s.%s[]", leaf->leaf->schema,
					 ForeignFunction(by_vectors(leaf)), leaf->leaf->table,
					 quote_literal_cstr(leaf->leaf->column), leaf->leaf->schema,
					 by_vectors(leaf) ? "idvec" : "idset");
	if (leaf->k == UINT64_MAX)
		appendStringInfoString(&sql, ", NULL::pg_catalog.int8, ");
	else
		appendStringInfo(&sql, ", '" UINT64_FORMAT "'::pg_catalog.int8, ", leaf->k);
	appendStringInfo(&sql, "%s, ", quote_literal_cstr(leaf->call->search->measure));
	if (leaf->has_least)
		append_score(&sql, leaf->least);
	else
		appendStringInfoString(&sql, "NULL::pg_catalog.float8");
	appendStringInfoString(&sql, ") h");
	if (behind > 0)
		appendStringInfo(&sql, " WHERE h.rank OPERATOR(pg_catalog.>) " UINT64_FORMAT, behind);
	return sql.data;
}

/* ---- rounds ---- */

/*
 * The rows of each leaf in the first round.  If rows lie where they like,
 * about k / n of the k best are in each of n tables, give or take the root of
 * that.  Five times the root is enough for nearly all tables.
 */
static uint64
first_k(uint64 k, int n)
{
	double		mean = (double) k / n;
	double		most = ceil(mean + 5 * sqrt(mean) + 4);

	return k != UINT64_MAX && most < (double) k ? (uint64) most : k;
}

/*
 * The least score that all rows need.  By vectors there is one in any case:
 * which rows rank is decided here, not there.
 */
static double
least_of_all(const MirrorSearch *search)
{
	if (search->has_min_score)
		return search->min_score;
	return search->scoring.sparse ? nextafter(0, INFINITY) : -get_float8_infinity();
}

/*
 * The least score that rows of these queries need.  A query with fewer than k
 * rows wants any row, and several queries have one bound, so the least.
 */
static void
set_least(LeafSearch *leaf)
{
	const MirrorSearch *search = leaf->call->search->search;
	double		least = get_float8_infinity();

	for (uint32 i = 0; i < leaf->nqueries; i++)
	{
		const Merged *merged = &leaf->call->merged[leaf->queries[i]];

		least = Min(least, merged->n < search->k ? -get_float8_infinity() : merged->rows[0].score);
	}
	leaf->least = Max(least, least_of_all(search));
	leaf->has_least = search->has_min_score || leaf->least > -get_float8_infinity();
}

/* True if a leaf may hold more rows of a query than those it has sent */
static bool
may_hold_more(const LeafSearch *leaf, uint32 query, uint64 behind)
{
	const Progress *progress = &leaf->progress[query];
	MergedRow	last = {.score = progress->last, .relation = RelationGetRelid(leaf->leaf->rel)};
	const Merged *merged = &leaf->call->merged[query];

	last.rank = progress->n;
	return progress->n == behind &&
		(merged->n < leaf->call->search->search->k || !comes_before(&merged->rows[0], &last));
}

/*
 * Choose the queries to ask: in the first round all, then those of which this
 * leaf may hold more rows
 */
static void
choose_queries(LeafSearch *leaf, uint64 behind)
{
	const MirrorSearch *search = leaf->call->search->search;

	leaf->nqueries = 0;
	for (uint32 q = 0; q < search->nqueries; q++)
		if (search->queries[q].value != NULL && (behind == 0 || may_hold_more(leaf, q, behind)))
			leaf->queries[leaf->nqueries++] = q;
}

/* Ask leaves for their rows behind `behind`, up to k; see ForeignRun() */
static void
run_round(LeafSearch *leaves, int nleaves, uint64 behind, uint64 k,
		  void (*meanwhile) (void *arg), void *arg)
{
	ForeignStatement *statements = palloc0_array(ForeignStatement, nleaves);
	int			n = 0;

	for (int i = 0; i < nleaves; i++)
	{
		LeafSearch *leaf = &leaves[i];
		ForeignStatement *statement = &statements[n];
		double		nrows;

		choose_queries(leaf, behind);
		if (leaf->nqueries == 0)
			continue;
		leaf->k = k;
		set_least(leaf);
		nrows = (double) leaf->nqueries * (k - behind);
		statement->leaf = leaf->leaf;
		statement->sql = make_sql(leaf, behind);
		statement->parameter = make_queries(leaf);
		statement->tlist = leaf->tlist;
		statement->nrows = nrows < PG_INT32_MAX ? (uint64) nrows : PG_INT32_MAX;
		statement->take = take_row;
		statement->arg = leaf;
		n++;
	}
	ForeignRun(statements, n, meanwhile, arg);
	for (int i = 0; i < n; i++)
	{
		pfree(statements[i].sql);
		pfree(statements[i].parameter);
	}
	pfree(statements);
}

/* ---- the search ---- */

/* The types of a statement's columns */
static List *
make_tlist(const ForeignCall *call, Relation rel)
{
	List	   *tlist = ForeignAddColumn(NIL, INT4OID);

	tlist = ForeignAddColumn(tlist, INT4OID);
	tlist = ForeignAddColumn(tlist, FLOAT8OID);
	tlist = ForeignAddColumn(tlist, INT4OID);
	for (int i = 0; i < call->desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(call->desc, i);

		if (!attribute->attisdropped)
			tlist = ForeignAddAttribute(tlist, rel, get_attnum(RelationGetRelid(rel),
															   NameStr(attribute->attname)));
	}
	return tlist;
}

static void
begin_leaf(LeafSearch *search, ForeignCall *call, const ForeignLeaf *leaf)
{
	uint32		nqueries = Max(call->search->search->nqueries, 1);

	search->call = call;
	search->leaf = leaf;
	search->progress = MemoryContextAllocExtended(CurrentMemoryContext, nqueries * sizeof(Progress),
												  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	search->queries = palloc_array(uint32, nqueries);
	search->values = palloc_array(Datum, Max(call->desc->natts, 1));
	search->nulls = palloc_array(bool, Max(call->desc->natts, 1));
	search->tlist = make_tlist(call, leaf->rel);
}

/* The number of a column in a row type */
static AttrNumber
attribute_of(TupleDesc desc, const char *name)
{
	for (int i = 0; i < desc->natts; i++)
		if (!TupleDescAttr(desc, i)->attisdropped &&
			strcmp(NameStr(TupleDescAttr(desc, i)->attname), name) == 0)
			return i + 1;
	elog(ERROR, "row type has no column \"%s\"", name);
	return InvalidAttrNumber;
}

/*
 * Find the k best rows of all foreign and local tables for each query.  The
 * answers live in the current memory context.
 */
void
ForeignTopK(const ForeignSearch *search, SearchAnswer *answers)
{
	uint64		k = search->search->k;
	uint64		k1;
	int			nleaves;
	ForeignLeaf *leaves = ForeignLeaves(search->rels, search->column, &nleaves);
	LeafSearch *searches = palloc0_array(LeafSearch, nleaves);
	ForeignCall call = {.search = search, .answers = answers};

	call.merged = MemoryContextAllocExtended(CurrentMemoryContext,
											 Max(search->search->nqueries, 1) * sizeof(Merged),
											 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	call.desc = lookup_rowtype_tupdesc_copy(search->row_type, -1);
	call.set_attnum = attribute_of(call.desc, search->column);
	call.values = RowTypeHasValues(TupleDescAttr(call.desc, call.set_attnum - 1)->atttypid);
	ForeignChooseWay(leaves, nleaves, search->estate);
	ForeignFindHomes(leaves, nleaves, search->search->scoring.sparse != 0);
	for (int i = 0; i < nleaves; i++)
		begin_leaf(&searches[i], &call, &leaves[i]);

	k1 = first_k(k, nleaves + search->ntargets);
	run_round(searches, nleaves, 0, k1, search_targets, &call);
	if (k1 < k)
		run_round(searches, nleaves, k1, k, NULL, NULL);
	ForeignConfirmHomes(leaves, nleaves);
	make_answers(&call);
}

/* ---- loading ---- */

/* Add the number that gpuvec_prewarm has returned on a server */
static void
take_count(TupleTableSlot *row, void *arg)
{
	if (!row->tts_isnull[0])
		*(uint64 *) arg += DatumGetInt64(row->tts_values[0]);
}

/* Have all servers load a column at once; returns the number of rows */
uint64
ForeignPrewarm(List *rels, const char *column)
{
	int			nleaves;
	ForeignLeaf *leaves = ForeignLeaves(rels, column, &nleaves);
	ForeignStatement *statements = palloc0_array(ForeignStatement, nleaves);
	uint64		total = 0;

	ForeignFindHomes(leaves, nleaves, false);
	for (int i = 0; i < nleaves; i++)
	{
		statements[i].leaf = &leaves[i];
		statements[i].sql = psprintf("SELECT %s.gpuvec_prewarm(%s::pg_catalog.regclass, %s)",
									 leaves[i].schema, quote_literal_cstr(leaves[i].table),
									 quote_literal_cstr(leaves[i].column));
		statements[i].tlist = ForeignAddColumn(NIL, INT8OID);
		statements[i].nrows = 1;
		statements[i].take = take_count;
		statements[i].arg = &total;
	}
	ForeignRun(statements, nleaves, NULL, NULL);
	ForeignConfirmHomes(leaves, nleaves);
	return total;
}
