/*-------------------------------------------------------------------------
 *
 * nearest.c
 *	  The SQL functions gpuvec_nearest, gpuvec_nearest_batch and
 *	  gpuvec_nearest_keys: find the rows whose vectors are nearest to queries.
 *
 * They search (nearest_search.c) one request after the other, and put the rows
 * into a tuplestore.  For queries that are given, the engine meanwhile serves
 * the next request (nearest_ahead.c).
 *
 * Queries by key are vectors of the table itself.  They are gathered for one
 * request at a time, so that they need little memory even for all keys.  No
 * key is among its own rows.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "embedding/embedding_table.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "search/set_function.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(gpuvec_nearest);
PG_FUNCTION_INFO_V1(gpuvec_nearest_batch);
PG_FUNCTION_INFO_V1(gpuvec_nearest_keys);

/* Most keys whose vectors are gathered at a time */
#define MOST_KEYS		16384

/* Positions of arguments after relation, key column and vector column */
enum
{
	ARG_QUERY = 3,				/* gpuvec_nearest_keys: the keys */
	ARG_K,
	ARG_METRIC,
	ARG_EXCLUDE,
	ARG_EXCLUDE_OFFSETS			/* gpuvec_nearest_batch only */
};

static gpuvec_metric
metric_argument(FunctionCallInfo fcinfo)
{
	static const char *const names[] = GPUVEC_METRIC_NAMES;
	char	   *name;

	if (PG_ARGISNULL(ARG_METRIC))
		return GPUVEC_METRIC_COSINE;
	name = text_to_cstring(PG_GETARG_TEXT_PP(ARG_METRIC));
	for (int i = 0; i < GPUVEC_N_METRICS; i++)
		if (strcmp(name, names[i]) == 0)
			return (gpuvec_metric) i;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unknown metric \"%s\"", name),
			 errhint("Available metrics are cosine, ip and l2.")));
	return GPUVEC_METRIC_COSINE;
}

static uint32
k_argument(FunctionCallInfo fcinfo)
{
	int64		k = PG_ARGISNULL(ARG_K) ? 0 : PG_GETARG_INT64(ARG_K);

	if (k < 1 || k > GPUVEC_MAX_K)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("k must be between 1 and %d", GPUVEC_MAX_K)));
	return (uint32) k;
}

/*
 * Read the queries: a one-dimensional array, or (batch) the rows of a
 * two-dimensional array
 */
static void
queries_argument(FunctionCallInfo fcinfo, bool batch, EmbeddingNearest *nearest)
{
	ArrayType  *array;
	const double *values = EmbeddingFloatsArgument(fcinfo, ARG_QUERY, "query", &array);
	int			n = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	float	   *queries;

	if (n > 0 && ARR_NDIM(array) != (batch ? 2 : 1))
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 batch ? errmsg("queries must be a two-dimensional array, a row for each query") :
				 errmsg("query must be a one-dimensional array")));
	nearest->nqueries = n == 0 ? !batch : batch ? ARR_DIMS(array)[0] : 1;
	nearest->width = n == 0 ? 0 : n / nearest->nqueries;
	queries = MemoryContextAllocHuge(CurrentMemoryContext, ((Size) n + 1) * sizeof(float));
	for (int i = 0; i < n; i++)
	{
		GPUVEC_STEP(i);
		queries[i] = (float) values[i];
	}
	nearest->queries = queries;
}

/* Read the offsets of the lists of excluded keys, as in EmbeddingNearest */
static const int64 *
list_offsets(FunctionCallInfo fcinfo, uint64 nkeys, uint64 nqueries)
{
	uint64		n;
	const int64 *offsets = EmbeddingKeysArgument(fcinfo, ARG_EXCLUDE_OFFSETS, "exclude_offsets",
												 NULL, &n);

	if (n != nqueries + 1 || offsets[0] != 0 || offsets[n - 1] != (int64) nkeys)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("exclude_offsets must have one element more than there are queries, begin with 0 and end with the number of keys in exclude"),
				 errhint("Query i excludes the keys from exclude_offsets[i] + 1 to exclude_offsets[i + 1].")));
	for (uint64 i = 1; i < n; i++)
	{
		GPUVEC_STEP(i);
		if (offsets[i - 1] > offsets[i])
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("exclude_offsets must be sorted in ascending order")));
	}
	return offsets;
}

/*
 * Read the excluded keys.  Null elements are ignored in a single list, and
 * errors in lists of several queries.
 */
static void
exclude_argument(FunctionCallInfo fcinfo, bool batch, EmbeddingNearest *nearest)
{
	uint64		n;
	const int64 *keys;
	int64	   *sorted;

	if (!batch || PG_ARGISNULL(ARG_EXCLUDE_OFFSETS))
	{
		nearest->excluded = EmbeddingSortedKeysArgument(fcinfo, ARG_EXCLUDE, "exclude",
														&nearest->nexcluded);
		return;
	}
	if (PG_ARGISNULL(ARG_EXCLUDE))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("exclude must not be null if exclude_offsets is given")));
	keys = EmbeddingKeysArgument(fcinfo, ARG_EXCLUDE, "exclude", NULL, &n);
	sorted = MemoryContextAllocHuge(CurrentMemoryContext, (n + 1) * sizeof(int64));
	memcpy(sorted, keys, n * sizeof(int64));
	nearest->listed = sorted;
	nearest->offsets = list_offsets(fcinfo, n, nearest->nqueries);
	for (uint32 i = 0; i < nearest->nqueries; i++)
	{
		GPUVEC_STEP(i);
		EmbeddingSortKeys(sorted + nearest->offsets[i],
						  nearest->offsets[i + 1] - nearest->offsets[i]);
	}
}

/* What stands for a query in its rows */
typedef enum QueryColumn
{
	QUERY_NONE,					/* there is one query */
	QUERY_NUMBER,
	QUERY_KEY					/* the key that it leaves out, its own */
} QueryColumn;

/*
 * Return the rows of some queries, the first of which is query `first`;
 * returns their number
 */
static uint64
put_rows(ReturnSetInfo *rsinfo, QueryColumn column, uint32 first, const EmbeddingNearest *nearest,
		 const gpuvec_near_heap *heaps)
{
	uint64		total = 0;

	for (uint32 i = 0; i < nearest->nqueries; i++)
	{
		CHECK_FOR_INTERRUPTS();
		for (uint64 j = 0; j < heaps[i].n; j++)
		{
			const gpuvec_near *row = &heaps[i].rows[j];
			Datum		values[4];
			bool		nulls[4] = {0};
			int			n = 0;

			if (column == QUERY_NUMBER)
				values[n++] = Int32GetDatum((int32) (first + i) + 1);
			else if (column == QUERY_KEY)
				values[n++] = Int64GetDatum(nearest->listed[nearest->offsets[i]]);
			values[n++] = Int32GetDatum((int32) j + 1);
			values[n++] = Int64GetDatum(row->key);
			values[n++] = Float8GetDatum(row->score);
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
		}
		total += heaps[i].n;
	}
	return total;
}

/* Let the engine search for the next queries, while rows are returned */
static void
send_ahead(EmbeddingAhead *ahead, EmbeddingTable *table, const EmbeddingNearest *all, uint32 first)
{
	EmbeddingNearest next;

	EmbeddingTakeQueries(all, first, &next);
	EmbeddingAheadSend(ahead, table, &next);
}

/*
 * A context for a search and its rows, as the current one; delete_context()
 * ends it
 */
static MemoryContext
make_context(MemoryContext *old)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec nearest",
												  ALLOCSET_DEFAULT_SIZES);

	*old = MemoryContextSwitchTo(context);
	return context;
}

static void
delete_context(MemoryContext context, EmbeddingTable *table)
{
	MemoryContextDelete(context);
	/* verdicts lived in that context */
	memset(table->verdicts, 0, table->ntargets * sizeof(EmbeddingVerdicts));
}

/* Serve the functions whose queries are given */
static Datum
find_rows(FunctionCallInfo fcinfo, bool batch)
{
	EmbeddingTable *table;
	EmbeddingNearest all = {0};
	EmbeddingNearest some;
	EmbeddingAhead *ahead;
	uint64		total = 0;

	GpuvecMaterializedSRF(fcinfo);
	table = EmbeddingTableArguments(fcinfo, GetActiveSnapshot());
	all.k = k_argument(fcinfo);
	all.metric = metric_argument(fcinfo);
	if (PG_ARGISNULL(ARG_QUERY))
	{
		EmbeddingClose(table);
		return (Datum) 0;
	}
	queries_argument(fcinfo, batch, &all);
	exclude_argument(fcinfo, batch, &all);
	ahead = EmbeddingAheadMake();
	for (uint32 first = 0; first < all.nqueries; first += some.nqueries)
	{
		MemoryContext old;
		MemoryContext context = make_context(&old);
		gpuvec_near_heap *heaps = EmbeddingFindNearest(table, &all, first, ahead, &some);

		if (first + some.nqueries < all.nqueries)
			send_ahead(ahead, table, &all, first + some.nqueries);
		MemoryContextSwitchTo(old);
		total += put_rows((ReturnSetInfo *) fcinfo->resultinfo, batch ? QUERY_NUMBER : QUERY_NONE,
						  first, &some, heaps);
		delete_context(context, table);
	}
	if (total == 0 && all.nqueries > 0)
		EmbeddingCheckQueries(table, all.width);
	EmbeddingClose(table);
	return (Datum) 0;
}

Datum
gpuvec_nearest(PG_FUNCTION_ARGS)
{
	return find_rows(fcinfo, false);
}

Datum
gpuvec_nearest_batch(PG_FUNCTION_ARGS)
{
	return find_rows(fcinfo, true);
}

/* Make the vectors of n keys queries, as far as the keys are found */
static void
queries_of_keys(EmbeddingTable *table, const int64 *keys, uint64 n, EmbeddingNearest *nearest)
{
	EmbeddingVectors vectors;
	int64	   *found = palloc_array(int64, n);
	int64	   *offsets = palloc_array(int64, n + 1);
	uint32		nfound = 0;

	EmbeddingGather(table, keys, n, &vectors);
	for (uint64 i = 0; vectors.known && i < n; i++)
	{
		GPUVEC_STEP(i);
		offsets[nfound] = nfound;
		if (vectors.found[i])
			found[nfound++] = keys[i];
	}
	offsets[nfound] = nfound;
	nearest->nqueries = nfound;
	nearest->width = vectors.width;
	nearest->queries = vectors.elements;
	nearest->listed = found;
	nearest->offsets = offsets;
}

/* Find and return the rows of at most MOST_KEYS keys */
static void
find_rows_of_keys(FunctionCallInfo fcinfo, EmbeddingTable *table, const int64 *keys, uint64 n,
				  const EmbeddingNearest *common)
{
	EmbeddingNearest all = *common;
	EmbeddingNearest some;
	MemoryContext old;
	MemoryContext context = make_context(&old);

	queries_of_keys(table, keys, n, &all);
	for (uint32 first = 0; first < all.nqueries; first += some.nqueries)
	{
		gpuvec_near_heap *heaps = EmbeddingFindNearest(table, &all, first, NULL, &some);

		(void) put_rows((ReturnSetInfo *) fcinfo->resultinfo, QUERY_KEY, first, &some, heaps);
	}
	MemoryContextSwitchTo(old);
	delete_context(context, table);
}

Datum
gpuvec_nearest_keys(PG_FUNCTION_ARGS)
{
	EmbeddingTable *table;
	EmbeddingNearest common = {0};
	const int64 *keys;
	uint64		n;
	uint64		most;

	GpuvecMaterializedSRF(fcinfo);
	table = EmbeddingTableArguments(fcinfo, GetActiveSnapshot());
	common.k = k_argument(fcinfo);
	common.metric = metric_argument(fcinfo);
	exclude_argument(fcinfo, false, &common);
	keys = PG_ARGISNULL(ARG_QUERY) ? EmbeddingAllKeys(table, &n) :
		EmbeddingSortedKeysArgument(fcinfo, ARG_QUERY, "keys", &n);
	most = Min(Max(GPUVEC_MAX_NEAR / common.k, 1), MOST_KEYS);
	for (uint64 first = 0; first < n; first += most)
		find_rows_of_keys(fcinfo, table, keys + first, Min(n - first, most), &common);
	EmbeddingClose(table);
	return (Datum) 0;
}
