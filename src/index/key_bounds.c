/*-------------------------------------------------------------------------
 *
 * key_bounds.c
 *	  Search keys of the first column as bounds of scores.
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
 * If the index makes sets of values, values that satisfy a key have sets that
 * satisfy the key of the sets.  Others may, too: null elements and the order
 * of elements make no difference there, and different ones may have one id.
 * Only thresholds of such values are those of their sets.
 *
 * Of vectors only the last one.  All of them rank.  One that the measure
 * refuses comes, too, so that the executor raises the error; with a query that
 * it refuses, all rows have to be looked at.
 *
 * The engine returns the rows that reach the bound.  It leaves out rows
 * without a common id, unless they rank (gpuvec_ranks_disjoint).  If they
 * do not rank, their score is 0, and no score is lower.  A key says
 * nothing if no score is below its bound, or if it asks for containment of
 * no ids.  No row has a common id with an empty set.  No row satisfies a
 * key that is null, or that has a null query or score.
 *
 * A key with an array, tokens @> ANY (array), has the bound of each of its
 * values (rule A3), or one of their union for the operator &&.  A row
 * satisfies the key if it reaches one of them.  A value that is null, or that
 * no row satisfies, has no bound, and if no value has one, no row satisfies
 * the key.  If one of them says nothing, neither does the key.  Nor does it if
 * a threshold is invalid: the executor may come to another value first, and
 * then there is no error.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/relscan.h"
#include "catalog/pg_type.h"
#include "entries/entries.h"
#include "idset/idset_threshold.h"
#include "idvec/idvec_threshold.h"
#include "index/index_am.h"
#include "index/key_bounds.h"
#include "miscadmin.h"

/* Most ids of sets whose union is searched for, those of several sets twice */
#define MAX_UNITED		((Size) 1024 * 1024)

/* The lowest score that any set has with a query of `len` ids */
static double
lowest_score(gpuvec_measure measure, uint32 len)
{
	gpuvec_shared nothing = {0, len, GPUVEC_MAX_ID + 1};

	return gpuvec_ranks_disjoint(measure) ? gpuvec_score(measure, nothing) : 0;
}

/* Let a bound be one of a set */
static void
set_query(IdSet *set, Bound *bound)
{
	bound->value = (const struct varlena *) set;
	bound->query = idvec_sparse_of_set(set);
}

/* The bound of an idvec_threshold */
static void
vector_bound(Datum value, bool raise, Bound *bound)
{
	IdVecThreshold threshold;

	if (!idvec_threshold_parse(DatumGetHeapTupleHeader(value), &threshold, raise))
	{
		bound->kind = BOUND_NONE;
		return;
	}
	if (threshold.query == NULL)
		return;
	bound->value = (const struct varlena *) threshold.query;
	bound->query = idvec_sparse(threshold.query);
	bound->scoring = threshold.scoring;
	bound->min_score = threshold.min_score;
	bound->kind = idvec_refuses(&bound->scoring, &bound->query) ? BOUND_NONE : BOUND_SCORE;
	bound->exact = threshold.or_error ||
		gpuvec_scoring_sparse(bound->scoring) != GPUVEC_SPARSE_JACCARD;
}

/* The bound of an idset_threshold */
static void
threshold_bound(Datum value, bool raise, Bound *bound)
{
	IdSetThreshold threshold;

	if (!idset_threshold_parse(DatumGetHeapTupleHeader(value), &threshold, raise))
	{
		bound->kind = BOUND_NONE;
		return;
	}
	if (threshold.query == NULL)
		return;
	set_query(threshold.query, bound);
	bound->scoring = threshold.scoring;
	bound->min_score = threshold.min_score;
	if (bound->min_score <= lowest_score(bound->scoring.measure, bound->query.ids.n))
		bound->kind = BOUND_NONE;
	else if (bound->query.ids.n > 0 || gpuvec_ranks_disjoint(bound->scoring.measure))
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
	bound->scoring.measure = GPUVEC_CONTAINMENT;
	bound->min_score = 1;
	set_query(idset_from_sorted(&id, 1), bound);
}

/* The bound of an operator with a set */
static void
set_bound(StrategyNumber strategy, Datum value, Bound *bound)
{
	bool		empty;

	set_query(DatumGetIdSetP(value), bound);
	bound->min_score = 1;
	empty = bound->query.ids.n == 0;
	switch (strategy)
	{
		case GPUVEC_OVERLAPS:
			bound->kind = empty ? BOUND_NOTHING : BOUND_OVERLAPS;
			bound->scoring.measure = GPUVEC_INTERSECTION;
			break;
		case GPUVEC_CONTAINS:
		case GPUVEC_LIKE:
		case GPUVEC_ILIKE:
			bound->kind = empty ? BOUND_NONE : BOUND_CONTAINS;
			bound->scoring.measure = GPUVEC_CONTAINMENT;
			break;
		case GPUVEC_CONTAINED:
			bound->kind = BOUND_CONTAINED;
			bound->scoring.measure = GPUVEC_OVERLAP;
			bound->empty = true;
			break;
		case GPUVEC_EQUALS:
			bound->kind = BOUND_EQUALS;
			bound->scoring.measure = GPUVEC_BRAUN_BLANQUET;
			bound->empty = empty;
			break;
		default:
			elog(ERROR, "unexpected strategy number %d", strategy);
	}
}

/*
 * The bound of an operator of an index that makes sets.  A right side that no
 * set is made of, such as an array with too many elements for one, says
 * nothing.
 */
static void
made_bound(Relation index, const ScanKeyData *key, Datum value, Bound *bound)
{
	const struct varlena *set = EntriesQuery(index, key, value);

	if (set == NULL)
		bound->kind = BOUND_NONE;
	else
		set_bound(key->sk_strategy, PointerGetDatum(set), bound);
}

/* The bound of a value, which is not null, of a search key of an index */
static void
value_bound(Relation index, ScanKey key, Datum value, Bound *bound)
{
	bool		raise = (key->sk_flags & SK_SEARCHARRAY) == 0;
	bool		makes = EntriesMakeSets(index) && key->sk_strategy != GPUVEC_REACHES;

	memset(bound, 0, sizeof(*bound));
	bound->kind = BOUND_NOTHING;
	bound->exact = key->sk_strategy != GPUVEC_CONTAINED && !makes;
	if (makes)
		made_bound(index, key, value, bound);
	else if (key->sk_strategy == GPUVEC_REACHES && GpuvecHasValues(index))
		vector_bound(value, raise, bound);
	else if (key->sk_strategy == GPUVEC_REACHES)
		threshold_bound(value, raise, bound);
	else if (key->sk_subtype == INT8OID)
		number_bound(DatumGetInt64(value), bound);
	else
		set_bound(key->sk_strategy, value, bound);
}

/* qsort comparator: by what is searched for, and by the measure first */
static int
compare_bounds(const void *x, const void *y)
{
	const Bound *a = x;
	const Bound *b = y;
	const gpuvec_tversky *wa = &a->scoring.tversky;
	const gpuvec_tversky *wb = &b->scoring.tversky;
	int			cmp = (int) a->scoring.measure - (int) b->scoring.measure;

	if (cmp == 0)
		cmp = (int) a->scoring.sparse - (int) b->scoring.sparse;
	if (cmp != 0)
		return cmp;
	if (wa->one != wb->one)
		return wa->one < wb->one ? -1 : 1;
	if (wa->alpha != wb->alpha)
		return wa->alpha < wb->alpha ? -1 : 1;
	if (wa->beta != wb->beta)
		return wa->beta < wb->beta ? -1 : 1;
	if (a->min_score != b->min_score)
		return a->min_score < b->min_score ? -1 : 1;
	if (VARSIZE(a->value) != VARSIZE(b->value))
		return VARSIZE(a->value) < VARSIZE(b->value) ? -1 : 1;
	return memcmp(VARDATA(a->value), VARDATA(b->value), VARSIZE(a->value) - VARHDRSZ);
}

/* Add the bound of a value to those of its key, which has room for it */
static void
add_bound(Bounds *bounds, const Bound *bound)
{
	if (bound->kind == BOUND_NOTHING)
		return;
	bounds->kind = Max(bounds->kind, bound->kind);
	bounds->empty |= bound->empty;
	bounds->exact &= bound->exact;
	if (bound->kind != BOUND_NONE &&
		(bound->query.ids.n > 0 || bound->scoring.sparse || gpuvec_ranks_disjoint(bound->scoring.measure)))
		bounds->bounds[bounds->n++] = *bound;
}

/* Bring bounds in order, and drop those that are equal to others */
static void
sort_bounds(Bounds *bounds)
{
	uint32		n = 0;

	qsort(bounds->bounds, bounds->n, sizeof(Bound), compare_bounds);
	for (uint32 i = 0; i < bounds->n; i++)
		if (n == 0 || compare_bounds(&bounds->bounds[i], &bounds->bounds[n - 1]) != 0)
			bounds->bounds[n++] = bounds->bounds[i];
	bounds->n = n;
}

/*
 * Make one bound of those of a key with the operator &&: a common id with one
 * of several sets is one with their union.  Not if that is too large.
 */
static void
unite_overlaps(Bounds *bounds)
{
	Size		total = 0;
	uint32		n = 0;
	uint32	   *ids;

	for (uint32 i = 0; i < bounds->n; i++)
		total += bounds->bounds[i].query.ids.n;
	if (bounds->n < 2 || total > MAX_UNITED)
		return;
	ids = palloc_array(uint32, total);
	for (uint32 i = 0; i < bounds->n; i++)
	{
		gpuvec_id_span span = bounds->bounds[i].query.ids;

		for (uint32 j = 0; j < span.n; j++)
			ids[n++] = idset_id_at(span.ids, span.wide, j);
	}
	n = idset_sort_distinct(ids, n);
	if (n <= GPUVEC_MAX_IDS)
	{
		set_query(idset_from_sorted(ids, n), &bounds->bounds[0]);
		bounds->n = 1;
	}
	pfree(ids);
}

/* The bounds of an array */
static void
array_bounds(Relation index, ScanKey key, Bounds *bounds)
{
	Datum	   *elements;
	bool	   *isnull;
	int			n = GpuvecKeyElements(key, &elements, &isnull);

	bounds->bounds = MemoryContextAllocHuge(CurrentMemoryContext, (n + (Size) 1) * sizeof(Bound));
	for (int i = 0; i < n && bounds->kind != BOUND_NONE; i++)
	{
		Bound		bound;

		CHECK_FOR_INTERRUPTS();
		if (isnull[i])
			continue;
		value_bound(index, key, elements[i], &bound);
		add_bound(bounds, &bound);
	}
	sort_bounds(bounds);
	if (key->sk_strategy == GPUVEC_OVERLAPS && bounds->kind == BOUND_OVERLAPS)
		unite_overlaps(bounds);
}

/* The bounds of a search key of the first column */
static void
key_bounds(Relation index, ScanKey key, Bounds *bounds)
{
	memset(bounds, 0, sizeof(*bounds));
	bounds->kind = BOUND_NONE;
	if (key->sk_flags & (SK_SEARCHNULL | SK_SEARCHNOTNULL))
		return;
	bounds->kind = BOUND_NOTHING;
	bounds->exact = true;
	if (key->sk_flags & SK_ISNULL)
		return;
	if (key->sk_flags & SK_SEARCHARRAY)
		array_bounds(index, key, bounds);
	else
	{
		Bound		bound;

		bounds->bounds = palloc_object(Bound);
		value_bound(index, key, key->sk_argument, &bound);
		add_bound(bounds, &bound);
	}
}

void
GpuvecChooseBounds(IndexScanDesc scan, Bounds *best)
{
	memset(best, 0, sizeof(*best));
	best->kind = BOUND_NONE;
	for (int i = 0; i < scan->numberOfKeys; i++)
	{
		Bounds		bounds;

		if (scan->keyData[i].sk_attno != 1)
			continue;
		key_bounds(scan->indexRelation, &scan->keyData[i], &bounds);
		if (bounds.kind < best->kind || (bounds.kind == best->kind && bounds.n < best->n))
			*best = bounds;
	}
}
