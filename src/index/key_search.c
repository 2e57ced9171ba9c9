/*-------------------------------------------------------------------------
 *
 * key_search.c
 *	  Finds the rows that may satisfy the search keys, with the mirror.
 *
 * The rows that satisfy a key reach a bound of some measure, or one of several
 * bounds (key_bounds.c).
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
 * A key with an array has a bound for each of its values.  These are queries
 * of one request, as far as they are of one measure and a request takes them.
 * The answer to several queries has the first rows of each.  Those that have
 * more are asked for again, each alone, as a key without an array is.  Rows
 * that several values find are returned once.
 *
 * Rows that are counted are searched for by one bound, if it is exact, or else
 * by an expression of ids that says all of the keys (set_match.c).  So is a
 * query that the keys do not say all of.
 *
 * Rows are rechecked by the executor unless the bound proves them (rule A3).
 * A bound is exact if only rows that satisfy its key reach it.  All are but
 * that of '<@': scores of sets in the mirror are computed as the operators
 * compute them.  What is found then satisfies the keys if there is only one
 * of the first column, all its bounds are exact, and so are the conditions on
 * filter columns.  The set in the mirror is that of the row which the executor
 * finds (and so are the keys of its filter columns):
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

#include <math.h>

#include "access/relscan.h"
#include "entries/entries.h"
#include "idset/idset.h"
#include "index/conditions.h"
#include "index/index_am.h"
#include "index/key_bounds.h"
#include "index/set_match.h"
#include "link/engine_link.h"
#include "mirror/describe/mirror.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* Most queries of one request, and most bytes of their sets and filters */
#define MOST_QUERIES	1024
#define MOST_BYTES		((Size) 32 * 1024 * 1024)

/* Roots that may be there twice before they are dropped */
#define MOST_DOUBLES	65536

/* A search under way */
typedef struct KeySearch
{
	IndexScanDesc scan;
	MirrorTarget target;
	const GpuvecConditions *conditions;
	const gpuvec_grouping *grouping;	/* of rows that are counted, or NULL */
	bool		estimate;		/* whether they are visible or not */
	MemoryContext context;		/* has what is found */
	GpuvecFound *found;
	uint64		capacity;		/* of found->roots */
	uint64		distinct;		/* as many were distinct roots when they were
								 * counted last */
} KeySearch;

bool
GpuvecHasBound(IndexScanDesc scan)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec bounds",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	Bounds		bounds;

	GpuvecChooseBounds(scan, &bounds);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return bounds.kind != BOUND_NONE;
}

/* Drop roots that were found before */
static void
drop_doubles(KeySearch *search)
{
	GpuvecFound *found = search->found;
	uint64		n = 0;

	qsort(found->roots, found->n, sizeof(int64), GpuvecCompareRoots);
	for (uint64 i = 0; i < found->n; i++)
		if (n == 0 || found->roots[i] != found->roots[n - 1])
			found->roots[n++] = found->roots[i];
	found->n = search->distinct = n;
}

/* Make room for more roots */
static void
reserve_roots(KeySearch *search, uint64 n)
{
	GpuvecFound *found = search->found;

	if (found->n + n > 2 * search->distinct + MOST_DOUBLES && found->n > search->distinct)
		drop_doubles(search);
	if (found->n + n <= search->capacity)
		return;
	search->capacity = Max(found->n + n, 2 * search->capacity);
	found->roots = repalloc_huge(found->roots, search->capacity * sizeof(int64));
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

/* Add the roots that a query has found */
static void
add_roots(KeySearch *search, const MirrorQuery *query)
{
	GpuvecFound *found = search->found;
	RootFinder	finder = {.heap = search->target.rel, .block = InvalidBlockNumber};

	reserve_roots(search, query->pages.data ? query->pages.nrows : query->nhits);
	if (query->pages.data)
		add_pages(&query->pages, found);
	for (uint64 i = 0; i < query->nhits; i++)
	{
		int64		root = hit_root(&query->hits[i]);

		found->roots[found->n++] = search->target.key.rooted ? root :
			GpuvecVersionRoot(&finder, root);
	}
}

/*
 * Make the search for the rows of n bounds of one measure.  One has all its
 * rows, in any order; of several each has its first rows.
 */
static void
make_search(const KeySearch *search, const Bound *bounds, uint32 n, MirrorSearch *made)
{
	memset(made, 0, sizeof(*made));
	made->scoring = bounds[0].scoring;
	made->k = n == 1 ? UINT64_MAX : GPUVEC_FAST_K;
	made->unordered = n == 1;
	made->roots = search->target.key.rooted;
	made->queries = palloc0_array(MirrorQuery, n);
	made->nqueries = n;
	made->snapshot = search->scan->xs_snapshot;
	made->context = CurrentMemoryContext;
	made->floor = -INFINITY;
	for (uint32 i = 0; i < n; i++)
	{
		MirrorQuery *query = &made->queries[i];

		query->value = bounds[i].value;
		query->vector = bounds[i].query;
		/* scores above the next one below are scores from min_score on */
		query->has_above = true;
		query->above = nextafter(bounds[i].min_score, -INFINITY);
		if (search->conditions->filter.n > 0)
			query->filter = &search->conditions->filter;
	}
}

/*
 * Find the rows of n bounds of one measure.  False: the mirror cannot be
 * used.
 */
static bool
find_scores(KeySearch *search, const Bound *bounds, uint32 n)
{
	MemoryContext context = AllocSetContextCreate(search->context, "gpuvec key search",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	const char *reason = NULL;
	MirrorSearch made;
	bool		ok;

	make_search(search, bounds, n, &made);
	ok = MirrorTopK(&search->target, &made, &reason);
	if (!ok)
		GpuvecLinkWarn(reason);
	for (uint32 i = 0; i < n && ok; i++)
	{
		bool		more = made.queries[i].nhits >= made.k;

		if (more)
			ok = find_scores(search, &bounds[i], 1);
		else
			add_roots(search, &made.queries[i]);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return ok;
}

/* The bound that only empty sets reach */
static Bound
no_ids(void)
{
	IdSet	   *nothing = idset_alloc(0);
	Bound		bound = {
		.scoring = {GPUVEC_HAMMING},.value = (struct varlena *) nothing,
		.query = idvec_sparse_of_set(nothing)
	};

	return bound;
}

/* How many of n bounds, the first of all, go into one request */
static uint32
bounds_of_request(const KeySearch *search, const Bound *bounds, uint32 n)
{
	const gpuvec_filter *filter = &search->conditions->filter;
	Size		each = filter->n * sizeof(gpuvec_condition) + filter->nvalues * sizeof(uint64);
	Size		bytes = 0;
	uint32		taken = 0;

	while (taken < Min(n, MOST_QUERIES) && GpuvecSameScoring(&bounds[0].scoring, &bounds[taken].scoring))
	{
		bytes += VARSIZE(bounds[taken].value) + each;
		if (taken > 0 && bytes > MOST_BYTES)
			break;
		taken++;
	}
	return taken;
}

/* Find the rows of bounds.  False: the mirror cannot be used. */
static bool
find_bounds(KeySearch *search, const Bounds *bounds)
{
	Bound		nothing = no_ids();
	uint32		n;

	GpuvecDescribe(search->scan, &search->target);
	if (search->target.mode != MIRROR_SHARED)
		return false;
	search->found->exact = bounds->exact && search->conditions->set_keys == 1 &&
		search->conditions->exact && search->target.key.rooted &&
		!search->scan->xs_snapshot->takenDuringRecovery;
	search->found->roots = palloc(sizeof(int64));
	search->capacity = 1;
	for (uint32 i = 0; i < bounds->n; i += n)
	{
		n = bounds_of_request(search, &bounds->bounds[i], bounds->n - i);
		if (!find_scores(search, &bounds->bounds[i], n))
			return false;
	}
	if (bounds->empty && !find_scores(search, &nothing, 1))
		return false;
	if (bounds->n > 1)
		drop_doubles(search);
	return true;
}

/* Find the rows of the conditions.  False: the mirror cannot be used. */
static bool
find_filtered(IndexScanDesc scan, const GpuvecConditions *conditions, MemoryContext context,
			  GpuvecFound *found)
{
	KeyedRow   *rows;

	if (conditions->filter.n == 0 ||
		!GpuvecFindFiltered(scan, &conditions->filter, NULL, &rows, &found->n))
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
	KeySearch	search = {
		.scan = scan, .conditions = conditions, .context = context, .found = found
	};
	Bounds		bounds;

	memset(found, 0, sizeof(*found));
	GpuvecChooseBounds(scan, &bounds);
	if (conditions->nothing || bounds.kind == BOUND_NOTHING)
		found->roots = palloc(sizeof(int64));
	else if (bounds.kind == BOUND_NONE)
		found->all = !find_filtered(scan, conditions, context, found);
	else
		found->all = !find_bounds(&search, &bounds);
	MemoryContextSwitchTo(old);
}

/* ---- counting ---- */

/*
 * Count the rows of a bound that pass a filter (NULL: all).  False: that is
 * not known without looking at rows.
 */
static bool
count_bound(KeySearch *search, const Bound *bound, const gpuvec_filter *filter, GpuvecCount *count)
{
	const char *reason = NULL;
	MemoryContext old;
	MirrorSearch made;
	bool		known;

	make_search(search, bound, 1, &made);
	made.queries[0].filter = filter;
	made.grouping = search->grouping;
	old = MemoryContextSwitchTo(search->context);
	known = (search->estimate ? MirrorEstimateRows : MirrorCountRows)
		(&search->target, &made, &count->parts[count->n++], &reason);
	MemoryContextSwitchTo(old);
	if (!known && reason != NULL)
		GpuvecLinkWarn(reason);
	return known;
}

/*
 * Count the rows that pass a filter; those whose sets are null, too, which
 * have no ids to group by
 */
static bool
count_filtered(const KeySearch *search, const gpuvec_filter *filter, GpuvecCount *count)
{
	KeySearch	part = *search;
	Bound		any = no_ids();
	gpuvec_grouping all;

	any.min_score = -INFINITY;
	if (MirrorWantsNulls(filter) || (search->grouping && gpuvec_groups_ids(search->grouping)))
		return count_bound(&part, &any, filter, count);
	/* the groups of both searches are added up */
	if (search->grouping != NULL)
	{
		all = *search->grouping;
		all.most = 0;
		part.grouping = &all;
	}
	return count_bound(&part, &any, filter, count) &&
		count_bound(&part, &any, GpuvecFilterNulls(filter), count);
}

/*
 * A filter with the condition that keys of the first column hold, and queries
 */
static const gpuvec_filter *
match_filter(IndexScanDesc scan, const List *queries, const gpuvec_filter *filter)
{
	GpuvecMatch match = {.nids = 0};
	ListCell   *cell;

	for (int i = 0; i < scan->numberOfKeys; i++)
	{
		const ScanKeyData *key = &scan->keyData[i];

		if (key->sk_attno == 1 && !(key->sk_flags & (SK_SEARCHNULL | SK_SEARCHNOTNULL)))
			GpuvecMatchAddKey(&match, key);
	}
	foreach(cell, queries)
		GpuvecMatchAddQuery(&match, lfirst(cell));
	return GpuvecMatchFilter(&match, filter);
}

/*
 * Count the rows of what the keys of the first column say, and queries and a
 * filter
 */
static bool
count_bounds(KeySearch *search, const Bounds *bounds, const List *queries,
			 const gpuvec_filter *filter, GpuvecCount *count)
{
	Bound		any = no_ids();
	int			set_keys = search->conditions->set_keys;

	if (set_keys == 0 && queries == NIL)
		return filter->n > 0 && count_filtered(search, filter, count);
	/* rows that several bounds find would be counted several times */
	if (set_keys == 1 && queries == NIL && bounds->kind != BOUND_NONE &&
		(bounds->exact || search->estimate) && bounds->n + bounds->empty == 1)
		return count_bound(search, bounds->empty ? &any : &bounds->bounds[0],
						   filter->n > 0 ? filter : NULL, count);
	/* sets that an index makes of arrays do not decide about others */
	if (EntriesMakeSets(search->scan->indexRelation))
		return false;
	any.min_score = -INFINITY;
	filter = match_filter(search->scan, queries, filter);
	return filter != NULL && count_bound(search, &any, filter, count);
}

/* Count the rows that a scan finds, or estimate their number */
static bool
count_rows(IndexScanDesc scan, const GpuvecConditions *conditions, const List *queries,
		   const gpuvec_grouping *grouping, bool estimate, GpuvecCount *count)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec count",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	KeySearch	search = {
		.scan = scan, .conditions = conditions, .context = old, .grouping = grouping,
		.estimate = estimate
	};
	bool		exact = conditions->exact_but_rounded && IsMVCCSnapshot(scan->xs_snapshot) &&
		!scan->xs_snapshot->takenDuringRecovery;
	Bounds		bounds;
	bool		known;

	memset(count, 0, sizeof(*count));
	GpuvecChooseBounds(scan, &bounds);
	known = conditions->nothing || bounds.kind == BOUND_NOTHING;
	if (!known && (exact || estimate))
	{
		const gpuvec_filter *sure = exact ? GpuvecFilterSure(conditions) : &conditions->filter;

		GpuvecDescribe(scan, &search.target);
		known = sure == NULL || count_bounds(&search, &bounds, queries, sure, count);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return known;
}

bool
GpuvecCountFound(IndexScanDesc scan, const GpuvecConditions *conditions, const List *queries,
				 const gpuvec_grouping *grouping, GpuvecCount *count)
{
	return count_rows(scan, conditions, queries, grouping, false, count);
}

bool
GpuvecEstimateFound(IndexScanDesc scan, const GpuvecConditions *conditions,
					const gpuvec_grouping *grouping, GpuvecCount *count)
{
	return count_rows(scan, conditions, NIL, grouping, true, count);
}
