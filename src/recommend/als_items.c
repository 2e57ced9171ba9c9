/*-------------------------------------------------------------------------
 *
 * als_items.c
 *	  The systems of a few users, which this session solves itself.
 *
 * A system (core/als.h) needs the factors of the user's items, and the Gram
 * matrix of all items.  The engine keeps that matrix with the mirror of the
 * table of items, so that both are there without reading the table.  The
 * matrix is that of the rows which the statement's snapshot sees, or there is
 * none (serve_gram.c).
 *
 * Pairs and systems are made as the engine makes them (engine/als), so that a
 * factor has the same bits, wherever it is computed.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "catalog/pg_class.h"
#include "core/als_solve.h"
#include "embedding/embedding_table.h"
#include "miscadmin.h"
#include "recommend/recommend.h"
#include "search/set_search.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"

/* ---- the factors of items ---- */

/* List the items of pairs, and one more, ascending and distinct */
static void
list_items(const AlsPairs *pairs, int64 more, AlsItems *items)
{
	uint64		n = 0;
	int64	   *keys;

	keys = MemoryContextAllocHuge(CurrentMemoryContext, (pairs->n + 1) * sizeof(int64));
	for (uint64 i = 0; i < pairs->n; i++)
	{
		GPUVEC_STEP(i);
		keys[i] = pairs->pairs[i].item;
	}
	keys[pairs->n] = more;
	EmbeddingSortKeys(keys, pairs->n + 1);
	for (uint64 i = 0; i <= pairs->n; i++)
	{
		GPUVEC_STEP(i);
		if (i == 0 || keys[i] != keys[i - 1])
			keys[n++] = keys[i];
	}
	items->keys = keys;
	items->n = n;
	items->vectors = MemoryContextAllocExtended(CurrentMemoryContext, n * sizeof(float *),
												MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
}

/*
 * True if a table may be searched in the engine.  For others that would be an
 * error, while a statement can read them.
 */
static bool
may_be_mirrored(const AlsFactors *table)
{
	AttrNumber	key = get_attnum(table->relid, NameStr(table->key_name));
	SearchCatalogs catalogs;

	SearchFindCatalogs(&catalogs);
	return get_rel_relkind(table->relid) == RELKIND_RELATION &&
		MirrorKeyType(get_atttype(table->relid, key)) &&
		!OidIsValid(catalogs.citus) && !OidIsValid(catalogs.chunks) &&
		check_enable_rls(table->relid, InvalidOid, true) != RLS_ENABLED;
}

/*
 * True if a table's only mirror has its vectors as they are, not rounded to
 * float16
 */
static bool
has_whole_mirror(const EmbeddingTable *table)
{
	const MirrorTarget *target = &table->targets[0];

	return table->ntargets == 1 && target->mode == MIRROR_SHARED &&
		(target->key.storage == GPUVEC_FLOAT32 || target->vector_type == MIRROR_HALFVEC);
}

/* Gather the factors of listed items; false if the matrix is not of them */
static bool
gather_listed(EmbeddingTable *table, AlsItems *items)
{
	EmbeddingVectors vectors;
	const float *elements;

	EmbeddingGather(table, items->keys, items->n, &vectors);
	if (!vectors.known)
		return true;
	elements = vectors.elements;
	for (uint64 i = 0; i < items->n; i++)
	{
		GPUVEC_STEP(i);
		if (!vectors.found[i])
			continue;
		items->vectors[i] = elements;
		elements += vectors.width;
	}
	return vectors.width == items->factors;
}

bool
AlsGatherItems(const AlsFactors *table, const AlsPairs *pairs, int64 more, AlsItems *items)
{
	EmbeddingTable *mirrored;
	EmbeddingAnswer answer;
	const char *reason;
	bool		ok;

	if (!may_be_mirrored(table))
		return false;
	list_items(pairs, more, items);
	mirrored = EmbeddingOpen(table->relid, NameStr(table->key_name), NameStr(table->column_name),
							 GetActiveSnapshot());
	ok = has_whole_mirror(mirrored) &&
		EmbeddingAskGram(mirrored, 0, &answer, &reason) &&
		answer.head.status == GPUVEC_EMBEDDING_DONE;
	if (ok)
	{
		items->factors = answer.head.width;
		items->gram = answer.gram;
		ok = gather_listed(mirrored, items);
	}
	EmbeddingClose(mirrored);
	return ok;
}

/* ---- the same by a scan ---- */

/* Where a scan's factors go */
typedef struct ItemScan
{
	AlsItems   *items;
	double	   *gram;
	MemoryContext context;
} ItemScan;

/* The position of a key among the items, or -1 */
static int64
find_item(const AlsItems *items, int64 key)
{
	const int64 *found = items->n == 0 ? NULL :
		bsearch(&key, items->keys, items->n, sizeof(int64), EmbeddingCompareKeys);

	return found ? found - items->keys : -1;
}

/* AlsReadFactorChunks callback: add to the matrix, and keep listed factors */
static void
take_factors(void *arg, uint32 n, const int64 *keys, const float *elements)
{
	ItemScan   *scan = arg;
	uint32		width = scan->items->factors;

	for (uint32 row = 0; row < n; row++, elements += width)
	{
		int64		item = find_item(scan->items, keys[row]);

		CHECK_FOR_INTERRUPTS();
		for (uint32 i = 0; i < width; i++)
			for (uint32 j = i; j < width; j++)
				scan->gram[(Size) i * width + j] += (double) elements[i] * elements[j];
		if (item >= 0)
		{
			float	   *copy = MemoryContextAlloc(scan->context, width * sizeof(float));

			memcpy(copy, elements, width * sizeof(float));
			scan->items->vectors[item] = copy;
		}
	}
}

void
AlsScanItems(const AlsFactors *table, const AlsPairs *pairs, int64 more, AlsItems *items)
{
	ItemScan	scan = {.items = items, .context = CurrentMemoryContext};

	list_items(pairs, more, items);
	items->factors = AlsFactorWidth(table);
	if (items->factors == 0)
		return;
	scan.gram = MemoryContextAllocExtended(CurrentMemoryContext,
										   (Size) items->factors * items->factors * sizeof(double),
										   MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	items->gram = scan.gram;
	AlsReadFactorChunks(table, items->factors, take_factors, &scan);
}

const float *
AlsItemFactor(const AlsItems *items, int64 key)
{
	int64		item = find_item(items, key);

	return item >= 0 ? items->vectors[item] : NULL;
}

/* ---- pairs ---- */

/* qsort comparator of pairs: by user, item and weight */
static int
compare_pairs(const void *a, const void *b)
{
	const AlsPair *x = a;
	const AlsPair *y = b;

	GPUVEC_LOOK();
	if (x->user != y->user)
		return x->user < y->user ? -1 : 1;
	if (x->item != y->item)
		return x->item < y->item ? -1 : 1;
	return x->weight < y->weight ? -1 : x->weight > y->weight;
}

/* Set the confidence of a pair */
static void
set_confidence(AlsPair *pair, double alpha)
{
	double		confidence = alpha * pair->weight;

	if (!(fabs(confidence) <= GPUVEC_ALS_MAX_CONFIDENCE))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("weight of user " INT64_FORMAT " and item " INT64_FORMAT " is too large",
						pair->user, pair->item),
				 errdetail("The sum of the pair's weights times alpha is %g; it must be between %g and %g.",
						   confidence, -GPUVEC_ALS_MAX_CONFIDENCE, GPUVEC_ALS_MAX_CONFIDENCE),
				 errhint("Make weights or alpha smaller.")));
	pair->confidence = (float) confidence;
}

void
AlsUnitePairs(AlsPairs *pairs, const AlsItems *items, double alpha)
{
	AlsPair    *list = pairs->pairs;
	uint64		kept = 0;
	uint64		next;

	qsort(list, pairs->n, sizeof(AlsPair), compare_pairs);
	for (uint64 i = 0; i < pairs->n; i = next)
	{
		AlsPair		pair = list[i];
		double		weight = 0;

		GPUVEC_LOOK();
		for (next = i; next < pairs->n && list[next].user == pair.user &&
			 list[next].item == pair.item; next++)
		{
			GPUVEC_STEP(next);
			weight += list[next].weight;
		}
		pair.weight = weight;
		pair.factor = AlsItemFactor(items, pair.item);
		if (pair.factor == NULL)
			continue;
		set_confidence(&pair, alpha);
		if (pair.confidence != 0)
			list[kept++] = pair;
	}
	pairs->n = kept;
}

/* ---- systems ---- */

/* gpuvec_als_system.term: a pair.  Many of them take long. */
static gpuvec_als_term
pair_term(const void *arg, uint64_t i)
{
	const AlsPair *pair = (const AlsPair *) arg + i;
	gpuvec_als_term term = {pair->factor, pair->confidence};

	CHECK_FOR_INTERRUPTS();
	return term;
}

bool
AlsPrepareSystem(const AlsItems *items, const AlsPair *pairs, uint64 n, double regularization,
				 double *a, double *b)
{
	gpuvec_als_system system = {
		.gram = items->gram, .stride = items->factors, .factors = items->factors,
		.regularization = regularization, .nterms = n, .term = pair_term, .arg = pairs
	};

	return gpuvec_als_prepare(&system, a, b);
}
