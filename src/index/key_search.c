/*-------------------------------------------------------------------------
 *
 * key_search.c
 *	  Finds the rows that may satisfy the search keys, with the mirror.
 *
 * The rows that satisfy a key reach a bound of some measure:
 *
 *		tokens && q		at least one common id: intersection >= 1
 *		tokens @> q		all of q's ids are common: containment >= 1
 *		tokens @> id	the same with the set of the id.  No set has a number
 *						that is out of the range of ids.
 *		tokens = q		the larger set has no more ids than are common:
 *						braun_blanquet >= 1; hamming >= 0 if q is empty
 *		tokens <@ q		all of the row's ids are common.  So the smaller set
 *						has no more ids than are common: overlap >= 1.
 *						(Rows that contain q reach that, too.)
 *						Empty rows have no common ids.  They are at distance 0
 *						from the empty set: hamming >= 0, with the query '{}'.
 *		tokens <<->> t	t names the measure and the bound
 *
 * The engine returns the rows that reach the bound.  It leaves out rows
 * without a common id, unless they rank (gpuvec_ranks_disjoint).  If they
 * do not rank, their score is 0, and no score is lower.  A key says
 * nothing if no score is below its bound, or if it asks for containment of
 * no ids.  No row has a common id with an empty set.  No row satisfies a
 * key that is null, or that has a null query or score.
 *
 * The second search for '<@' may find a root that the first one has found,
 * with the set of another row, which came after the first row was removed.
 * Then the snapshot sees neither row.  (In recovery only rows that the
 * snapshot sees are found, each with a root of its own.)
 *
 * Several keys have to be satisfied at once.  Only one of them is searched
 * for: the key whose kind (BoundKind) is likely to leave the fewest rows.  The
 * conditions on filter columns (conditions.c) go with each search.  If no key
 * says anything, they are all that is searched for (filtered.c).  If there are
 * none either, or if there is no mirror, every row may satisfy the keys.
 *
 * Rows are rechecked by the executor unless the bound proves them (rule A3).
 * A bound is exact if only rows that satisfy its key reach it.  All are but
 * that of '<@': scores of sets in the mirror are computed as the operators
 * compute them.  What is found then satisfies the keys if there is only one
 * of the first column, and if the conditions on filter columns are exact.
 * The set in the mirror is that of the row which the executor finds (and so
 * are the keys of its filter columns):
 *
 *	 - The executor returns from a root only the row version that the
 *	   snapshot sees.  If there is one, it cannot be removed while the
 *	   snapshot lives.  So its line pointer has not been reused, and the
 *	   mirror, which is as fresh as the snapshot needs, has its chain under
 *	   this root.  All versions of the chain have the set of the mirror, as
 *	   with any index.
 *	 - If the snapshot sees no row there, nothing is returned, whatever the
 *	   root stood for when it was found, or stands for since.
 *
 * With a snapshot of recovery, versions of a chain may have other sets
 * (recovery.c), so rows are rechecked.  Pages that a bitmap keeps as a whole
 * are rechecked by the executor anyway.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/relscan.h"
#include "catalog/pg_type.h"
#include "entries/entries.h"
#include "idset/idset.h"
#include "idset/idset_threshold.h"
#include "index/conditions.h"
#include "index/index_am.h"
#include "link/engine_link.h"
#include "mirror/mirror.h"
#include "miscadmin.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* Kinds of bounds: a lower kind leaves fewer rows, and is searched for */
typedef enum BoundKind
{
	BOUND_NOTHING,				/* no row */
	BOUND_EQUALS,
	BOUND_SCORE,
	BOUND_CONTAINS,
	BOUND_CONTAINED,
	BOUND_OVERLAPS,
	BOUND_NONE					/* every row */
} BoundKind;

/*
 * A search key as a bound: rows that reach min_score with the query, and
 * empty rows if `empty` is set
 */
typedef struct Bound
{
	BoundKind	kind;
	gpuvec_measure measure;
	gpuvec_weights weights;		/* of tversky */
	double		min_score;
	IdSet	   *query;
	bool		empty;
	bool		exact;			/* rows that reach it satisfy the key */
} Bound;

/* The lowest score that any set has with a query of `len` ids */
static double
lowest_score(gpuvec_measure measure, uint32 len)
{
	return gpuvec_ranks_disjoint(measure) ?
		gpuvec_score(measure, 0, len, GPUVEC_MAX_ID + 1) : 0;
}

/* The bound of an idset_threshold */
static void
threshold_bound(Datum value, Bound *bound)
{
	IdSetThreshold threshold;

	idset_threshold_parse(DatumGetHeapTupleHeader(value), &threshold, true);
	if (threshold.query == NULL)
		return;
	bound->query = threshold.query;
	bound->measure = threshold.measure;
	bound->weights = threshold.weights;
	bound->min_score = threshold.min_score;
	if (bound->min_score <= lowest_score(bound->measure, idset_count(bound->query)))
		bound->kind = BOUND_NONE;
	else if (idset_count(bound->query) > 0 || gpuvec_ranks_disjoint(bound->measure))
		bound->kind = BOUND_SCORE;
}

/* The bound of set @> number */
static void
number_bound(int64 number, Bound *bound)
{
	uint32		id = (uint32) number;

	if (number < 0 || number > (int64) IDSET_MAX_ID)
		return;
	bound->kind = BOUND_CONTAINS;
	bound->measure = GPUVEC_CONTAINMENT;
	bound->min_score = 1;
	bound->query = idset_from_sorted(&id, 1);
}

/* The bound of an operator with a set */
static void
set_bound(StrategyNumber strategy, Datum value, Bound *bound)
{
	bool		empty;

	bound->query = DatumGetIdSetP(value);
	bound->min_score = 1;
	empty = idset_count(bound->query) == 0;
	switch (strategy)
	{
		case GPUVEC_OVERLAPS:
			bound->kind = empty ? BOUND_NOTHING : BOUND_OVERLAPS;
			bound->measure = GPUVEC_INTERSECTION;
			break;
		case GPUVEC_CONTAINS:
			bound->kind = empty ? BOUND_NONE : BOUND_CONTAINS;
			bound->measure = GPUVEC_CONTAINMENT;
			break;
		case GPUVEC_CONTAINED:
			bound->kind = BOUND_CONTAINED;
			bound->measure = GPUVEC_OVERLAP;
			bound->empty = true;
			break;
		case GPUVEC_EQUALS:
			bound->kind = BOUND_EQUALS;
			bound->measure = GPUVEC_BRAUN_BLANQUET;
			bound->empty = empty;
			break;
		default:
			elog(ERROR, "unexpected strategy number %d", strategy);
	}
}

/* Describe the mirror for an index scan */
void
GpuvecDescribe(IndexScanDesc scan, MirrorTarget *target)
{
	MirrorDescribeIndex(GpuvecScanHeap(scan), scan->indexRelation, target);
	if (!GpuvecInRecovery(scan, target))
		MirrorFollow(target);
}

/* The bound of a search key of the first column */
static void
key_bound(ScanKey key, Bound *bound)
{
	memset(bound, 0, sizeof(*bound));
	bound->kind = BOUND_NONE;
	if (key->sk_flags & (SK_SEARCHNULL | SK_SEARCHNOTNULL | SK_SEARCHARRAY))
		return;
	bound->kind = BOUND_NOTHING;
	bound->exact = key->sk_strategy != GPUVEC_CONTAINED;
	if (key->sk_flags & SK_ISNULL)
		return;
	if (key->sk_strategy == GPUVEC_REACHES)
		threshold_bound(key->sk_argument, bound);
	else if (key->sk_subtype == INT8OID)
		number_bound(DatumGetInt64(key->sk_argument), bound);
	else
		set_bound(key->sk_strategy, key->sk_argument, bound);
}

/* Choose the bound to search for; the executor checks the other keys */
static void
choose_bound(IndexScanDesc scan, Bound *best)
{
	memset(best, 0, sizeof(*best));
	best->kind = BOUND_NONE;
	for (int i = 0; i < scan->numberOfKeys; i++)
	{
		Bound		bound;

		if (scan->keyData[i].sk_attno != 1)
			continue;
		key_bound(&scan->keyData[i], &bound);
		if (bound.kind < best->kind)
			*best = bound;
	}
}

bool
GpuvecHasBound(IndexScanDesc scan)
{
	Bound		bound;

	choose_bound(scan, &bound);
	return bound.kind != BOUND_NONE;
}

/* Add the roots that a search of a rooted mirror has found by pages */
static void
add_pages(const MirrorPages *pages, GpuvecFound *found)
{
	int64	   *roots = found->roots + found->n;

	StaticAssertStmt(sizeof(int64) == sizeof(uint64), "roots take the place of tids");
	MirrorPagesTids(pages, (uint64 *) roots);
	for (uint64 i = 0; i < pages->nrows; i++)
		roots[i] = tid_root(roots[i]);
	found->n += pages->nrows;
}

/* Add the roots that a search has found */
static void
add_roots(const MirrorTarget *target, const MirrorQuery *query, MemoryContext context,
		  GpuvecFound *found)
{
	uint64		n = query->pages.data ? query->pages.nrows : query->nhits;
	int64	   *roots = MemoryContextAllocHuge(context, (found->n + n + 1) * sizeof(int64));
	RootFinder	finder = {.heap = target->rel, .block = InvalidBlockNumber};

	if (found->roots != NULL)
	{
		memcpy(roots, found->roots, found->n * sizeof(int64));
		pfree(found->roots);
	}
	found->roots = roots;
	if (query->pages.data)
		add_pages(&query->pages, found);
	for (uint64 i = 0; i < query->nhits; i++)
	{
		int64		root = hit_root(&query->hits[i]);

		roots[found->n++] = target->key.rooted ? root : GpuvecVersionRoot(&finder, root);
	}
}

/* Find the rows that reach a score.  False: the mirror cannot be used. */
static bool
find_scores(IndexScanDesc scan, MirrorTarget *target, const Bound *bound,
			const GpuvecConditions *conditions, MemoryContext context, GpuvecFound *found)
{
	MirrorSearch search = {0};
	MirrorQuery query = {0};
	const char *reason = NULL;

	query.set = bound->query;
	query.len = idset_count(bound->query);
	if (conditions->filter.n > 0)
		query.filter = &conditions->filter;
	search.measure = bound->measure;
	search.weights = bound->weights;
	search.k = UINT64_MAX;
	search.unordered = true;
	search.roots = target->key.rooted;
	search.has_min_score = true;
	search.min_score = bound->min_score;
	search.queries = &query;
	search.nqueries = 1;
	search.snapshot = scan->xs_snapshot;
	search.context = context;
	if (!MirrorTopK(target, &search, &reason))
	{
		GpuvecLinkWarn(reason);
		return false;
	}
	add_roots(target, &query, context, found);
	return true;
}

/* Find the rows of a bound.  False: the mirror cannot be used. */
static bool
find_bound(IndexScanDesc scan, const Bound *bound, const GpuvecConditions *conditions,
		   MemoryContext context, GpuvecFound *found)
{
	Bound		no_ids = {.measure = GPUVEC_HAMMING, .query = idset_alloc(0)};
	MirrorTarget target;

	GpuvecDescribe(scan, &target);
	if (target.mode != MIRROR_SHARED)
		return false;
	found->exact = bound->exact && conditions->set_keys == 1 && conditions->exact &&
		target.key.rooted && !scan->xs_snapshot->takenDuringRecovery;
	if ((idset_count(bound->query) > 0 || gpuvec_ranks_disjoint(bound->measure)) &&
		!find_scores(scan, &target, bound, conditions, context, found))
		return false;
	return !bound->empty ||
		find_scores(scan, &target, &no_ids, conditions, context, found);
}

/* Find the rows of the conditions.  False: the mirror cannot be used. */
static bool
find_filtered(IndexScanDesc scan, const GpuvecConditions *conditions, MemoryContext context,
			  GpuvecFound *found)
{
	KeyedRow   *rows;

	if (conditions->filter.n == 0 ||
		!GpuvecFindFiltered(scan, &conditions->filter, GPUVEC_HAMMING, NULL, &rows, &found->n))
		return false;
	found->roots = MemoryContextAllocHuge(context, (found->n + 1) * sizeof(int64));
	for (uint64 i = 0; i < found->n; i++)
		found->roots[i] = rows[i].root;
	pfree(rows);
	return true;
}

/*
 * Find the rows that may satisfy the search keys.  Unless found->all is set,
 * found->roots is allocated in `context`, and not NULL even if n is 0.
 */
void
GpuvecFind(IndexScanDesc scan, const GpuvecConditions *conditions, MemoryContext context,
		   GpuvecFound *found)
{
	MemoryContext old = MemoryContextSwitchTo(context);
	Bound		bound;

	memset(found, 0, sizeof(*found));
	choose_bound(scan, &bound);
	if (conditions->nothing || bound.kind == BOUND_NOTHING)
		found->roots = palloc(sizeof(int64));
	else if (bound.kind == BOUND_NONE)
		found->all = !find_filtered(scan, conditions, context, found);
	else
		found->all = !find_bound(scan, &bound, conditions, context, found);
	MemoryContextSwitchTo(old);
}
