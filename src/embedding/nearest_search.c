/*-------------------------------------------------------------------------
 *
 * nearest_search.c
 *	  Find the rows whose vectors are nearest to queries, for the functions
 *	  that search and those that recommend.
 *
 * Tables with a mirror are searched in the engine, others are scanned.  The
 * rows of several relations are merged.
 *
 * A request has one list of excluded keys for all its queries.  If each query
 * has its own short list besides, several queries still share a request.  It
 * asks for k plus the length of the longest list, and excluded rows are
 * dropped in this session.  If that leaves too few rows (several rows may
 * have the same key), or a list is long, the query is sent alone with its
 * list.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "embedding/embedding_table.h"
#include "link/engine_link.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

/* A query with a longer list of excluded keys is sent alone */
#define MAX_MORE_ROWS	1000

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
 * Ask the engine for the nearest rows of a relation.  False, with *reason, if
 * there is no engine.
 */
static bool
ask_target(EmbeddingTable *table, int target, const EmbeddingNearest *nearest,
		   EmbeddingAnswer *answer, const char **reason)
{
	if (!EmbeddingAskNearest(table, target, nearest, answer, reason))
		return false;
	if (answer->head.status != GPUVEC_EMBEDDING_DONE)
		EmbeddingComplain(table, &answer->head);
	return true;
}

/* Offer the rows of an answer */
static void
offer_answer(const EmbeddingAnswer *answer, uint32 nqueries, gpuvec_near_heap *heaps)
{
	const gpuvec_near *rows = answer->rows;

	for (uint32 i = 0; i < nqueries; i++)
		for (uint32 j = 0; j < answer->counts[i]; j++)
			gpuvec_near_offer(&heaps[i], rows++);
}

/* Make heaps of the rows of an answer, which are in order already */
static gpuvec_near_heap *
take_answer(const EmbeddingAnswer *answer, const EmbeddingNearest *nearest)
{
	gpuvec_near_heap *heaps = palloc_array(gpuvec_near_heap, Max(nearest->nqueries, 1));
	gpuvec_near *rows = unconstify(gpuvec_near *, answer->rows);

	for (uint32 i = 0; i < nearest->nqueries; i++)
	{
		heaps[i].rows = rows;
		heaps[i].n = answer->counts[i];
		heaps[i].k = nearest->k;
		rows += answer->counts[i];
	}
	return heaps;
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
	gpuvec_near_heap *heaps = NULL;
	NearestScan scan = {.nearest = nearest};

	for (int i = 0; i < table->ntargets; i++)
	{
		EmbeddingAnswer answer;
		const char *reason;
		bool		asked = use_engine && table->targets[i].mode == MIRROR_SHARED;

		if (asked && ask_target(table, i, nearest, &answer, &reason))
		{
			if (table->ntargets == 1)
				return take_answer(&answer, nearest);
			heaps = heaps ? heaps : make_heaps(nearest);
			offer_answer(&answer, nearest->nqueries, heaps);
			continue;
		}
		if (asked)
		{
			GpuvecLinkWarn(reason);
			/* an engine that refuses this relation may serve the others */
			use_engine = GpuvecLinkRefusal() != NULL;
		}
		scan.target = &table->targets[i];
		scan.heaps = heaps = heaps ? heaps : make_heaps(nearest);
		EmbeddingScan(scan.target, table->snapshot, false, offer_row, &scan);
	}
	heaps = heaps ? heaps : make_heaps(nearest);
	for (uint32 i = 0; i < nearest->nqueries; i++)
		gpuvec_near_sort(&heaps[i]);
	return heaps;
}

/*
 * After a search that found nothing: fail if the queries and the table's
 * vectors differ in width
 */
void
EmbeddingCheckQueries(EmbeddingTable *table, uint32 width)
{
	uint32		table_width;

	if (EmbeddingWidth(table, &table_width) && table_width != width)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("query and vectors have different numbers of elements"),
				 errdetail("The query has %u, vectors of relation \"%s\" have %u.", width,
						   get_rel_name(table->relid), table_width)));
}

int
EmbeddingCompareKeys(const void *a, const void *b)
{
	int64		x = *(const int64 *) a;
	int64		y = *(const int64 *) b;

	return x < y ? -1 : x > y;
}

void
EmbeddingSortKeys(int64 *keys, uint64 n)
{
	qsort(keys, n, sizeof(int64), EmbeddingCompareKeys);
}

/*
 * Make a search of one query, without the keys that all queries exclude and
 * those of its own list
 */
static void
take_alone(const EmbeddingNearest *all, const EmbeddingLists *lists, uint32 query,
		   EmbeddingNearest *some)
{
	uint64		n = lists->offsets[query + 1] - lists->offsets[query];
	int64	   *keys;

	*some = *all;
	some->queries += (Size) query * all->width;
	some->nqueries = 1;
	some->nexcluded += n;
	keys = MemoryContextAllocHuge(CurrentMemoryContext, (some->nexcluded + 1) * sizeof(int64));
	memcpy(keys, lists->keys + lists->offsets[query], n * sizeof(int64));
	if (all->nexcluded > 0)
	{
		memcpy(keys + n, all->excluded, all->nexcluded * sizeof(int64));
		EmbeddingSortKeys(keys, some->nexcluded);
	}
	some->excluded = keys;
}

/*
 * Make a search of the queries, from `first` on, that share a request.  True
 * if it is one query, and its list is part of the search.
 */
static bool
take_queries(const EmbeddingNearest *all, const EmbeddingLists *lists, uint32 first,
			 EmbeddingNearest *some)
{
	uint64		more = 0;
	uint32		n = 0;

	*some = *all;
	some->queries += (Size) first * all->width;
	if (lists->offsets == NULL)
	{
		some->nqueries = Min(Max(GPUVEC_MAX_NEAR / all->k, 1), all->nqueries - first);
		return false;
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
		return true;
	}
	some->nqueries = n;
	some->k += more;
	return false;
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
drop_excluded(gpuvec_near_heap *heap, const EmbeddingLists *lists, uint32 query, uint32 k)
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

gpuvec_near_heap *
EmbeddingFindNearest(EmbeddingTable *table, const EmbeddingNearest *all,
					 const EmbeddingLists *lists, uint32 first, EmbeddingNearest *some)
{
	bool		alone = take_queries(all, lists, first, some);
	gpuvec_near_heap *heaps = find_verified(table, some);

	if (lists->offsets == NULL || alone)
		return heaps;
	for (uint32 i = 0; i < some->nqueries; i++)
	{
		EmbeddingNearest one;

		if (drop_excluded(&heaps[i], lists, first + i, all->k))
			continue;
		take_alone(all, lists, first + i, &one);
		heaps[i] = *find_verified(table, &one);
	}
	return heaps;
}
