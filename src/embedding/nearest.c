/*-------------------------------------------------------------------------
 *
 * nearest.c
 *	  The SQL functions gpuvec_nearest and gpuvec_nearest_batch: find the rows
 *	  whose vectors are nearest to queries.
 *
 * Tables with a mirror are searched in the engine, others are scanned.  The
 * rows of several relations are merged.
 *
 * A request has one list of excluded keys for all its queries.  If each query
 * of a batch has its own short list, several queries still share a request.
 * It asks for k plus the length of the longest list, and excluded rows are
 * dropped in this session.  If that leaves too few rows (several rows may
 * have the same key), or a list is long, the query is sent alone with its
 * list.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "embedding/embedding_table.h"
#include "link/engine_link.h"
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

/* Positions of arguments after relation, key column and vector column */
enum
{
	ARG_QUERY = 3,
	ARG_K,
	ARG_METRIC,
	ARG_EXCLUDE,
	ARG_EXCLUDE_OFFSETS			/* gpuvec_nearest_batch only */
};

/* A query with a longer list of excluded keys is sent alone */
#define MAX_MORE_ROWS	1000

/*
 * The excluded keys of query i: from offsets[i] to offsets[i + 1], ascending
 */
typedef struct NearestLists
{
	const int64 *keys;
	const int64 *offsets;		/* [nqueries + 1]; NULL: one list for all */
} NearestLists;

/* A scan of a relation for all queries */
typedef struct NearestScan
{
	MirrorTarget *target;
	const EmbeddingNearest *nearest;
	gpuvec_near_heap *heaps;
} NearestScan;

/* True if a key is in an ascending list */
static bool
is_listed(const int64 *keys, uint64 n, int64 key)
{
	uint64		low = 0;
	uint64		high = n;

	while (low < high)
	{
		uint64		middle = (low + high) / 2;

		if (keys[middle] < key)
			low = middle + 1;
		else
			high = middle;
	}
	return low < n && keys[low] == key;
}

/* EmbeddingScan callback: offer the row to all queries */
static bool
offer_row(void *arg, const EmbeddingRow *row)
{
	NearestScan *scan = arg;
	const EmbeddingNearest *nearest = scan->nearest;
	gpuvec_near near = {.key = row->key, .tid = row->tid};
	MirrorVector vector;

	MirrorReadVector(row->value, scan->target, &vector);
	if (vector.kind != GPUVEC_VECTOR_GOOD || vector.width != nearest->width ||
		is_listed(nearest->excluded, nearest->nexcluded, near.key))
		return true;
	for (uint32 i = 0; i < nearest->nqueries; i++)
	{
		const float *query = nearest->queries + (Size) i * nearest->width;

		near.score = gpuvec_near_score(nearest->metric, query,
									   gpuvec_product(query, query, nearest->width),
									   vector.elements, nearest->width);
		if (!gpuvec_near_hopeless(&scan->heaps[i], near.score))
			gpuvec_near_offer(&scan->heaps[i], &near);
	}
	return true;
}

/*
 * Offer the nearest rows of a relation from its mirror.  False, with *reason,
 * if there is no engine.
 */
static bool
ask_target(EmbeddingTable *table, int target, const EmbeddingNearest *nearest,
		   gpuvec_near_heap *heaps, const char **reason)
{
	EmbeddingAnswer answer;
	const gpuvec_near *rows;

	if (!EmbeddingAskNearest(table, target, nearest, &answer, reason))
		return false;
	if (answer.head.status != GPUVEC_EMBEDDING_DONE)
		EmbeddingComplain(table, &answer.head);
	rows = answer.rows;
	for (uint32 i = 0; i < nearest->nqueries; i++)
		for (uint32 j = 0; j < answer.counts[i]; j++)
			gpuvec_near_offer(&heaps[i], rows++);
	return true;
}

/* Make an empty heap for each query, in the current memory context */
static gpuvec_near_heap *
make_heaps(const EmbeddingNearest *nearest)
{
	gpuvec_near_heap *heaps = palloc_array(gpuvec_near_heap, Max(nearest->nqueries, 1));

	for (uint32 i = 0; i < nearest->nqueries; i++)
	{
		memset(&heaps[i], 0, sizeof(heaps[i]));
		heaps[i].rows = MemoryContextAllocHuge(CurrentMemoryContext, nearest->k * sizeof(gpuvec_near));
		heaps[i].k = nearest->k;
	}
	return heaps;
}

/* Fail if two answers differ */
static void
compare_heaps(EmbeddingTable *table, const EmbeddingNearest *nearest, const gpuvec_near_heap *a,
			  const gpuvec_near_heap *b)
{
	for (uint32 i = 0; i < nearest->nqueries; i++)
		if (a[i].n != b[i].n || memcmp(a[i].rows, b[i].rows, a[i].n * sizeof(gpuvec_near)) != 0)
			EmbeddingReportWrong(table);
}

/* Find the nearest rows of all queries in all targets, nearest first */
static gpuvec_near_heap *
find_nearest(EmbeddingTable *table, const EmbeddingNearest *nearest, bool use_engine)
{
	gpuvec_near_heap *heaps = make_heaps(nearest);
	NearestScan scan = {.nearest = nearest, .heaps = heaps};

	for (int i = 0; i < table->ntargets; i++)
	{
		const char *reason;

		if (use_engine && table->targets[i].mode == MIRROR_SHARED)
		{
			if (ask_target(table, i, nearest, heaps, &reason))
				continue;
			GpuvecLinkWarn(reason);
			/* an engine that refuses this relation may serve the others */
			use_engine = GpuvecLinkRefusal() != NULL;
		}
		scan.target = &table->targets[i];
		EmbeddingScan(scan.target, table->snapshot, false, offer_row, &scan);
	}
	for (uint32 i = 0; i < nearest->nqueries; i++)
		gpuvec_near_sort(&heaps[i]);
	return heaps;
}

/*
 * After a search that found nothing: fail if the queries and the table's
 * vectors differ in width
 */
static void
check_width(EmbeddingTable *table, uint32 width)
{
	uint32		table_width;

	if (EmbeddingWidth(table, &table_width) && table_width != width)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("query and vectors have different numbers of elements"),
				 errdetail("The query has %u, vectors of relation \"%s\" have %u.", width,
						   get_rel_name(table->relid), table_width)));
}

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
		queries[i] = (float) values[i];
	nearest->queries = queries;
}

/* qsort comparator of keys */
static int
compare_keys(const void *a, const void *b)
{
	int64		x = *(const int64 *) a;
	int64		y = *(const int64 *) b;

	return x < y ? -1 : x > y;
}

/* Read the offsets of the lists of excluded keys, as in NearestLists */
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
		if (offsets[i - 1] > offsets[i])
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("exclude_offsets must not descend")));
	return offsets;
}

/*
 * Read the excluded keys.  Null elements are ignored in a single list, and
 * errors in lists of several queries.
 */
static void
exclude_argument(FunctionCallInfo fcinfo, bool batch, EmbeddingNearest *nearest,
				 NearestLists *lists)
{
	bool		several = batch && !PG_ARGISNULL(ARG_EXCLUDE_OFFSETS);
	bool	   *nulls = NULL;
	uint64		n;
	uint64		nsorted = 0;
	const int64 *keys;
	int64	   *sorted;

	memset(lists, 0, sizeof(*lists));
	if (PG_ARGISNULL(ARG_EXCLUDE) && !several)
		return;
	if (PG_ARGISNULL(ARG_EXCLUDE))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("exclude must not be null if exclude_offsets is given")));
	keys = EmbeddingKeysArgument(fcinfo, ARG_EXCLUDE, "exclude", several ? NULL : &nulls, &n);
	sorted = MemoryContextAllocHuge(CurrentMemoryContext, (n + 1) * sizeof(int64));
	for (uint64 i = 0; i < n; i++)
		if (nulls == NULL || !nulls[i])
			sorted[nsorted++] = keys[i];
	if (!several)
	{
		qsort(sorted, nsorted, sizeof(int64), compare_keys);
		nearest->excluded = sorted;
		nearest->nexcluded = nsorted;
		return;
	}
	lists->keys = sorted;
	lists->offsets = list_offsets(fcinfo, n, nearest->nqueries);
	for (uint32 i = 0; i < nearest->nqueries; i++)
		qsort(sorted + lists->offsets[i], lists->offsets[i + 1] - lists->offsets[i],
			  sizeof(int64), compare_keys);
}

/* Make a search of one query, with its list of excluded keys */
static void
take_alone(const EmbeddingNearest *all, const NearestLists *lists, uint32 query,
		   EmbeddingNearest *some)
{
	*some = *all;
	some->queries += (Size) query * all->width;
	some->nqueries = 1;
	some->excluded = lists->keys + lists->offsets[query];
	some->nexcluded = lists->offsets[query + 1] - lists->offsets[query];
}

/* Make a search of the queries, from `first` on, that share a request */
static void
take_queries(const EmbeddingNearest *all, const NearestLists *lists, uint32 first,
			 EmbeddingNearest *some)
{
	uint64		more = 0;
	uint32		n = 0;

	*some = *all;
	some->queries += (Size) first * all->width;
	if (lists->offsets == NULL)
	{
		some->nqueries = Min(Max(GPUVEC_MAX_NEAR / all->k, 1), all->nqueries - first);
		return;
	}
	for (; first + n < all->nqueries; n++)
	{
		uint64		length = lists->offsets[first + n + 1] - lists->offsets[first + n];
		uint64		k = all->k + Max(more, length);

		if (length > MAX_MORE_ROWS || k > GPUVEC_MAX_K || (n + 1) * k > GPUVEC_MAX_NEAR)
			break;
		more = Max(more, length);
	}
	if (n == 0)
	{
		take_alone(all, lists, first, some);
		return;
	}
	some->nqueries = n;
	some->k += more;
}

/*
 * Return the rows of some queries, the first of which is query `first`;
 * returns their number
 */
static uint64
put_rows(ReturnSetInfo *rsinfo, bool batch, uint32 first, const EmbeddingNearest *nearest,
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

			if (batch)
				values[n++] = Int32GetDatum((int32) (first + i) + 1);
			values[n++] = Int32GetDatum((int32) j + 1);
			values[n++] = Int64GetDatum(row->key);
			values[n++] = Float8GetDatum(row->score);
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
		}
		total += heaps[i].n;
	}
	return total;
}

/*
 * Find the rows of some queries; with gpuvec_verify, compare them with a scan
 */
static gpuvec_near_heap *
find_verified(EmbeddingTable *table, const EmbeddingNearest *nearest)
{
	gpuvec_near_heap *heaps = find_nearest(table, nearest, true);

	if (gpuvec_verify)
		compare_heaps(table, nearest, heaps, find_nearest(table, nearest, false));
	return heaps;
}

/*
 * Drop excluded rows, and rows beyond the k-th.  False if fewer than k rows
 * are left and the table may have more.
 */
static bool
drop_excluded(gpuvec_near_heap *heap, const NearestLists *lists, uint32 query, uint32 k)
{
	const int64 *keys = lists->keys + lists->offsets[query];
	uint64		nkeys = lists->offsets[query + 1] - lists->offsets[query];
	bool		all = heap->n < heap->k;
	uint64		n = 0;

	for (uint64 i = 0; i < heap->n && n < k; i++)
		if (!is_listed(keys, nkeys, heap->rows[i].key))
			heap->rows[n++] = heap->rows[i];
	heap->n = n;
	return all || n == k;
}

/*
 * Find the rows of some queries, from query `first` on.  *some describes the
 * queries that were searched for.
 */
static gpuvec_near_heap *
find_group(EmbeddingTable *table, const EmbeddingNearest *all, const NearestLists *lists,
		   uint32 first, EmbeddingNearest *some)
{
	gpuvec_near_heap *heaps;

	take_queries(all, lists, first, some);
	heaps = find_verified(table, some);
	if (lists->offsets == NULL || some->excluded)
		return heaps;
	for (uint32 i = 0; i < some->nqueries; i++)
	{
		EmbeddingNearest alone;

		if (drop_excluded(&heaps[i], lists, first + i, all->k))
			continue;
		take_alone(all, lists, first + i, &alone);
		heaps[i] = *find_verified(table, &alone);
	}
	return heaps;
}

/* Serve both functions */
static Datum
find_rows(FunctionCallInfo fcinfo, bool batch)
{
	EmbeddingTable *table;
	EmbeddingNearest all = {0};
	EmbeddingNearest some;
	NearestLists lists;
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
	exclude_argument(fcinfo, batch, &all, &lists);
	for (uint32 first = 0; first < all.nqueries; first += some.nqueries)
	{
		MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec nearest",
													  ALLOCSET_DEFAULT_SIZES);
		MemoryContext old = MemoryContextSwitchTo(context);
		gpuvec_near_heap *heaps = find_group(table, &all, &lists, first, &some);

		MemoryContextSwitchTo(old);
		total += put_rows((ReturnSetInfo *) fcinfo->resultinfo, batch, first, &some, heaps);
		MemoryContextDelete(context);
		/* verdicts lived in that context */
		memset(table->verdicts, 0, table->ntargets * sizeof(EmbeddingVerdicts));
	}
	if (total == 0 && all.nqueries > 0)
		check_width(table, all.width);
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
