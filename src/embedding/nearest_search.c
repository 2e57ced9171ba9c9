/*-------------------------------------------------------------------------
 *
 * nearest_search.c
 *	  Find the rows whose vectors are nearest to queries, for the functions
 *	  that search and those that recommend.
 *
 * Tables with a mirror are searched in the engine, others are scanned.  The
 * rows of several relations are merged.
 *
 * As many queries share a request as its answer may have rows, and as their
 * own lists of excluded keys fit a message of moderate size.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "embedding/embedding_table.h"
#include "link/engine_link.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

/* Excluded keys of single queries in one request, unless one has more */
#define MOST_LISTED		((int64) 8 * 1024 * 1024)

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

/* True if a query's own list has the key */
static bool
is_listed_by(const EmbeddingNearest *nearest, uint32 query, int64 key)
{
	const int64 *offsets = nearest->offsets;

	return offsets != NULL &&
		is_listed(nearest->listed + offsets[query], offsets[query + 1] - offsets[query], key);
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

		GPUVEC_LOOK();
		near.score = gpuvec_near_score(nearest->metric, query,
									   gpuvec_product(query, query, nearest->width),
									   vector.elements, nearest->width);
		if (!gpuvec_near_hopeless(&scan->heaps[i], near.score) &&
			!is_listed_by(nearest, i, near.key))
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
		   const GpuvecReply *reply, EmbeddingAnswer *answer, const char **reason)
{
	if (!EmbeddingAskNearest(table, target, nearest, reply, answer, reason))
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
		{
			GPUVEC_LOOK();
			gpuvec_near_offer(&heaps[i], rows++);
		}
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

/*
 * Find the nearest rows of all queries in all targets, nearest first; reply:
 * the answer about the only target, or NULL
 */
static gpuvec_near_heap *
find_nearest(EmbeddingTable *table, const EmbeddingNearest *nearest, const GpuvecReply *reply,
			 bool use_engine)
{
	gpuvec_near_heap *heaps = NULL;
	NearestScan scan = {.nearest = nearest};

	for (int i = 0; i < table->ntargets; i++)
	{
		EmbeddingAnswer answer;
		const char *reason;
		bool		asked = use_engine && table->targets[i].mode == MIRROR_SHARED;

		if (asked && ask_target(table, i, nearest, reply, &answer, &reason))
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
	{
		GPUVEC_LOOK();
		gpuvec_near_sort(&heaps[i]);
	}
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

/* Make a search of the queries, from `first` on, that share a request */
void
EmbeddingTakeQueries(const EmbeddingNearest *all, uint32 first, EmbeddingNearest *some)
{
	uint32		n = Min(Max(GPUVEC_MAX_NEAR / all->k, 1), all->nqueries - first);

	*some = *all;
	some->queries += (Size) first * all->width;
	if (all->offsets)
	{
		some->offsets += first;
		while (n > 1 && some->offsets[n] - some->offsets[0] > MOST_LISTED)
			n--;
	}
	some->nqueries = n;
}

/*
 * Find the rows of some queries; with gpuvec_verify, compare them with a scan
 */
static gpuvec_near_heap *
find_verified(EmbeddingTable *table, const EmbeddingNearest *nearest, const GpuvecReply *reply)
{
	gpuvec_near_heap *heaps = find_nearest(table, nearest, reply, true);

	if (gpuvec_verify)
		compare_heaps(table, nearest, heaps, find_nearest(table, nearest, NULL, false));
	return heaps;
}

gpuvec_near_heap *
EmbeddingFindNearest(EmbeddingTable *table, const EmbeddingNearest *all, uint32 first,
					 EmbeddingAhead *ahead, EmbeddingNearest *some)
{
	EmbeddingTakeQueries(all, first, some);
	return find_verified(table, some, ahead ? EmbeddingAheadAnswer(ahead, table, some) : NULL);
}
