/*-------------------------------------------------------------------------
 *
 * conditions.c
 *	  Search keys of an index scan as conditions of a filter.
 *
 * A key of a filter column becomes a condition on the keys that the mirror
 * has of the column's values (mirror/describe/filter_key.c).  Every row that
 * satisfies the search key satisfies the condition:
 *
 *		= v				the key of v, or of one of the values of an array
 *		< <= >= > v		a range of keys.  Where different values may have one
 *						key, the range has the key of v, too.  A text whose
 *						collation orders by bytes has a range of prefixes.
 *		of an enum		the labels that are less, or greater, in the order of
 *						pg_enum when the scan begins.  Labels that are added
 *						later are in no row that its snapshot sees.
 *		&& @> <@ = v	bits that a further set shares with v, has, or has at
 *						most.  A set that has all bits of one value of an
 *						array has those that all values have.
 *		IS [NOT] NULL	of any column, the first one included
 *
 * With an array, a comparison holds for the least or the greatest value of it,
 * so the ranges of all values together are one range.
 *
 * What cannot be a condition is left out: operators of the first column
 * (key_search.c), ranges of other texts, thresholds of further sets, and more
 * conditions or values than the engine takes.  Then, or if a condition is not
 * exact, the executor checks the rows once more.  No row satisfies a key whose
 * value is null, or whose array has no value.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relscan.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/pg_enum.h"
#include "index/conditions.h"
#include "index/index_am.h"
#include "storage/predicate.h"
#include "utils/array.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/* The lower half of a text's key is a hash */
#define HASH_BITS	UINT64CONST(0xFFFFFFFF)

/* Conditions under construction */
typedef struct Maker
{
	IndexScanDesc scan;
	FilterColumns filters;
	gpuvec_condition *conditions;	/* [MOST_CONDITIONS] */
	uint64	   *values;			/* palloc'd, or NULL */
	GpuvecConditions *made;
} Maker;

/* Most conditions: room is left for that of GpuvecFilterNulls() */
#define MOST_CONDITIONS	(GPUVEC_MAX_CONDITIONS - 1)

/* Rows have to be looked at, whatever their keys */
static void
set_inexact(Maker *maker)
{
	maker->made->exact = maker->made->exact_but_rounded = false;
}

/* Add a condition; the row is rechecked if there are too many */
static void
add(Maker *maker, const gpuvec_condition *condition)
{
	gpuvec_filter *filter = &maker->made->filter;

	if (filter->n == MOST_CONDITIONS)
		set_inexact(maker);
	else
		maker->conditions[filter->n++] = *condition;
}

/* qsort comparator */
static int
compare_keys(const void *a, const void *b)
{
	uint64		x = *(const uint64 *) a;
	uint64		y = *(const uint64 *) b;

	return x < y ? -1 : x > y;
}

/* Add the condition that the key of a column is one of n; sorts keys[] */
static void
add_any(Maker *maker, uint32 column, uint64 *keys, uint32 n)
{
	gpuvec_filter *filter = &maker->made->filter;
	gpuvec_condition condition = {.column = column, .kind = GPUVEC_KEY_ANY};
	uint32		distinct = 0;

	if (n > 1)
		qsort(keys, n, sizeof(uint64), compare_keys);
	for (uint32 i = 0; i < n; i++)
		if (distinct == 0 || keys[i] != keys[distinct - 1])
			keys[distinct++] = keys[i];
	if (distinct == 0)
		maker->made->nothing = true;
	else if (distinct > GPUVEC_MAX_FILTER_VALUES - filter->nvalues ||
			 filter->n == MOST_CONDITIONS)
		set_inexact(maker);
	else
	{
		Size		size = (filter->nvalues + distinct) * sizeof(uint64);

		maker->values = maker->values ? repalloc(maker->values, size) : palloc(size);
		memcpy(maker->values + filter->nvalues, keys, distinct * sizeof(uint64));
		condition.first = filter->nvalues;
		condition.n = distinct;
		filter->nvalues += distinct;
		add(maker, &condition);
	}
}

/*
 * Set the range of keys that the values of an exact kind have.  False: there
 * are none.
 */
static bool
exact_range(StrategyNumber strategy, uint64 key, gpuvec_condition *range)
{
	if ((strategy == GPUVEC_FILTER_LESS && key == 0) ||
		(strategy == GPUVEC_FILTER_GREATER && key == PG_UINT64_MAX))
		return false;
	if (strategy == GPUVEC_FILTER_LESS)
		range->high = key - 1;
	if (strategy == GPUVEC_FILTER_GREATER)
		range->low = key + 1;
	return true;
}

/*
 * Set the range of keys that values have which satisfy an operator with a
 * value of this key.  False: there are none.
 */
static bool
key_range(const FilterColumn *column, StrategyNumber strategy, uint64 key,
		  gpuvec_condition *range)
{
	uint64		mask = 0;

	range->low = 0;
	range->high = PG_UINT64_MAX;
	if (FilterKinds[column->kind].order == FILTER_BY_PREFIX && strategy != GPUVEC_FILTER_EQUAL)
		mask = HASH_BITS;
	if (strategy >= GPUVEC_FILTER_EQUAL)
		range->low = key & ~mask;
	if (strategy <= GPUVEC_FILTER_EQUAL)
		range->high = key | mask;
	return !FilterKinds[column->kind].exact || exact_range(strategy, key, range);
}

/* True if the enum label with sort order `label` satisfies an operator */
static bool
label_satisfies(StrategyNumber strategy, float4 label, float4 value)
{
	switch (strategy)
	{
		case GPUVEC_FILTER_LESS:
			return label < value;
		case GPUVEC_FILTER_AT_MOST:
			return label <= value;
		case GPUVEC_FILTER_AT_LEAST:
			return label >= value;
		case GPUVEC_FILTER_GREATER:
			return label > value;
		default:
			return label == value;
	}
}

/* A label of an enum */
typedef struct Label
{
	Oid			oid;
	float4		order;
} Label;

/* Read the labels of an enum; returns their number */
static uint32
read_labels(Oid type, Label **labels)
{
	Relation	catalog = table_open(EnumRelationId, AccessShareLock);
	uint32		capacity = 64;
	uint32		n = 0;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	*labels = palloc_array(Label, capacity);
	ScanKeyInit(&key, Anum_pg_enum_enumtypid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(type));
	scan = systable_beginscan(catalog, EnumTypIdLabelIndexId, true, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_enum form = (Form_pg_enum) GETSTRUCT(tuple);

		if (n == capacity)
			*labels = repalloc(*labels, (capacity *= 2) * sizeof(Label));
		(*labels)[n].oid = form->oid;
		(*labels)[n++].order = form->enumsortorder;
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return n;
}

/* Find a label's place in the order of its enum; false: it is not there */
static bool
label_order(const Label *labels, uint32 n, Oid label, float4 *order)
{
	for (uint32 i = 0; i < n; i++)
		if (labels[i].oid == label)
		{
			*order = labels[i].order;
			return true;
		}
	return false;
}

/*
 * Find the labels that compare so with one of n labels.  False: one of these
 * is not there.
 */
static bool
find_labels(StrategyNumber strategy, const Label *labels, uint32 nlabels, const uint64 *keys,
			uint32 n, bool *found)
{
	for (uint32 j = 0; j < n; j++)
	{
		float4		order;

		if (!label_order(labels, nlabels, (Oid) keys[j], &order))
			return false;
		for (uint32 i = 0; i < nlabels; i++)
			found[i] |= label_satisfies(strategy, labels[i].order, order);
	}
	return true;
}

/* Add a condition for the labels that compare so with one of n labels */
static void
add_labels(Maker *maker, ScanKey key, const uint64 *keys, uint32 n)
{
	TupleDesc	desc = RelationGetDescr(maker->scan->indexRelation);
	Oid			type = getBaseType(TupleDescAttr(desc, key->sk_attno - 1)->atttypid);
	Label	   *labels;
	uint32		nlabels = read_labels(type, &labels);
	bool	   *found = palloc0_array(bool, nlabels + 1);
	uint64	   *oids = palloc_array(uint64, nlabels + 1);
	uint32		noids = 0;

	if (find_labels(key->sk_strategy, labels, nlabels, keys, n, found))
	{
		for (uint32 i = 0; i < nlabels; i++)
			if (found[i])
				oids[noids++] = labels[i].oid;
		/* there may be such a label later: the engine would not be asked */
		if (noids == 0)
			PredicateLockRelation(GpuvecScanHeap(maker->scan), maker->scan->xs_snapshot);
		add_any(maker, key->sk_attno - 1, oids, noids);
	}
	else
		set_inexact(maker);
	pfree(oids);
	pfree(found);
	pfree(labels);
}

/* Add a condition on the bits of a further set, which n > 0 sets have */
static void
add_bits(Maker *maker, ScanKey key, const uint64 *keys, uint32 n)
{
	gpuvec_condition condition = {.column = key->sk_attno - 1, .low = keys[0]};

	set_inexact(maker);
	for (uint32 i = 1; i < n; i++)
	{
		if (key->sk_strategy == GPUVEC_CONTAINS)
			condition.low &= keys[i];
		else
			condition.low |= keys[i];
	}
	switch (key->sk_strategy)
	{
		case GPUVEC_OVERLAPS:
			condition.kind = GPUVEC_KEY_SHARES_BITS;
			break;
		case GPUVEC_CONTAINS:
			condition.kind = GPUVEC_KEY_HAS_BITS;
			break;
		case GPUVEC_CONTAINED:
			condition.kind = GPUVEC_KEY_WITHIN_BITS;
			break;
		default:
			condition.kind = GPUVEC_KEY_BETWEEN;
			condition.high = keys[0];
			break;
	}
	add(maker, &condition);
}

/* Add a condition for the range of all n values together */
static void
add_range(Maker *maker, ScanKey key, const uint64 *keys, uint32 n)
{
	const FilterColumn *column = &maker->filters.columns[key->sk_attno - 2];
	gpuvec_condition all = {.column = key->sk_attno - 1, .kind = GPUVEC_KEY_BETWEEN};
	bool		any = false;

	for (uint32 i = 0; i < n; i++)
	{
		gpuvec_condition range;

		if (!key_range(column, key->sk_strategy, keys[i], &range))
			continue;
		all.low = any ? Min(all.low, range.low) : range.low;
		all.high = any ? Max(all.high, range.high) : range.high;
		any = true;
	}
	if (any)
		add(maker, &all);
	else
		maker->made->nothing = true;
}

/* True if a key of a column can be a condition, with its array if any */
static bool
is_condition(const FilterColumn *column, ScanKey key)
{
	switch (FilterKinds[column->kind].order)
	{
		case FILTER_UNORDERED:
			break;
		case FILTER_BY_KEY:
		case FILTER_BY_LABEL:
			return true;
		case FILTER_BY_PREFIX:
			if (column->prefix)
				return true;
			break;
		case FILTER_BY_BITS:
			return key->sk_strategy != GPUVEC_REACHES;
	}
	return key->sk_strategy == GPUVEC_FILTER_EQUAL;
}

/* Make the keys of an array that are not null; returns their number */
static uint32
array_keys(const FilterColumn *column, ScanKey key, uint64 **keys)
{
	Oid			type = OidIsValid(key->sk_subtype) ? key->sk_subtype : column->type;
	FilterColumn of_values = *column;
	Datum	   *values;
	bool	   *isnull;
	int			count = GpuvecKeyElements(key, &values, &isnull);
	uint32		n = 0;

	FilterSetType(&of_values, type);
	*keys = palloc_array(uint64, count + 1);
	for (int i = 0; i < count; i++)
		if (!isnull[i])
			(*keys)[n++] = FilterKey(&of_values, values[i]);
	return n;
}

/*
 * True if a comparison that is not exact is so for all rows but those with
 * some keys: it is added to rounded[]
 */
static bool
is_rounded(Maker *maker, const FilterColumn *column, ScanKey key, uint64 value)
{
	GpuvecConditions *made = maker->made;
	GpuvecRounded *rounded = &made->rounded[made->nrounded];
	uint64		mask = FilterKinds[column->kind].order == FILTER_BY_PREFIX ? HASH_BITS : 0;
	StrategyNumber strategy = key->sk_strategy;

	if ((key->sk_flags & SK_SEARCHARRAY) != 0 || strategy == GPUVEC_FILTER_EQUAL ||
		FilterKinds[column->kind].order == FILTER_BY_BITS || made->filter.n == MOST_CONDITIONS ||
		made->nrounded == GPUVEC_MOST_ROUNDED ||
		(made->nrounded > 0 && made->rounded[0].others.sk_attno != key->sk_attno))
		return false;
	rounded->condition = made->filter.n;
	rounded->low = value & ~mask;
	rounded->high = value | mask;
	rounded->others = *key;
	rounded->others.sk_strategy = strategy < GPUVEC_FILTER_EQUAL ? GPUVEC_FILTER_AT_LEAST :
		GPUVEC_FILTER_AT_MOST;
	made->nrounded++;
	return true;
}

/* Add the condition of a comparison */
static void
add_comparison(Maker *maker, ScanKey key)
{
	FilterColumn column = maker->filters.columns[key->sk_attno - 2];
	FilterOrder order = FilterKinds[column.kind].order;
	uint64		single;
	uint64	   *keys = &single;
	uint32		n = 1;

	if (!is_condition(&column, key))
	{
		set_inexact(maker);
		return;
	}
	if (key->sk_flags & SK_SEARCHARRAY)
		n = array_keys(&column, key, &keys);
	else
	{
		if (OidIsValid(key->sk_subtype))
			FilterSetType(&column, key->sk_subtype);
		single = FilterKey(&column, key->sk_argument);
	}
	if (!FilterKinds[column.kind].exact)
	{
		maker->made->exact = false;
		if (n != 1 || !is_rounded(maker, &column, key, keys[0]))
			set_inexact(maker);
	}
	if (n == 0)
		maker->made->nothing = true;
	else if (order == FILTER_BY_BITS && (key->sk_strategy != GPUVEC_EQUALS || n == 1))
		add_bits(maker, key, keys, n);
	else if (order == FILTER_BY_LABEL && key->sk_strategy != GPUVEC_FILTER_EQUAL)
		add_labels(maker, key, keys, n);
	else if (order == FILTER_BY_BITS || (key->sk_strategy == GPUVEC_FILTER_EQUAL && n != 1))
		add_any(maker, key->sk_attno - 1, keys, n);
	else
		add_range(maker, key, keys, n);
}

/* Add the condition of a key, if it can be one */
static void
add_key(Maker *maker, ScanKey key)
{
	gpuvec_condition null = {.column = key->sk_attno - 1};

	if (key->sk_flags & (SK_SEARCHNULL | SK_SEARCHNOTNULL))
	{
		null.kind = key->sk_flags & SK_SEARCHNULL ? GPUVEC_IS_NULL : GPUVEC_IS_NOT_NULL;
		if (maker->filters.n > 0)
			add(maker, &null);
		else
			set_inexact(maker);
	}
	else if (key->sk_flags & SK_ISNULL)
		maker->made->nothing = true;
	else if (key->sk_attno == 1)
		maker->made->set_keys++;
	else
		add_comparison(maker, key);
}

void
GpuvecMakeConditions(IndexScanDesc scan, ScanKey more, int nmore, GpuvecConditions *conditions)
{
	Maker		maker = {.scan = scan, .made = conditions};

	memset(conditions, 0, sizeof(*conditions));
	conditions->exact = conditions->exact_but_rounded = true;
	if (scan->numberOfKeys + nmore == 0)
		return;
	FilterDescribe(scan->indexRelation->rd_indextuple, &maker.filters);
	maker.conditions = palloc_array(gpuvec_condition, MOST_CONDITIONS);
	/* if there are too many, those at the end are left out */
	for (int i = 0; i < nmore; i++)
		add_key(&maker, &more[i]);
	for (int i = 0; i < scan->numberOfKeys; i++)
		add_key(&maker, &scan->keyData[i]);
	conditions->filter.conditions = maker.conditions;
	conditions->filter.values = maker.values;
}

const gpuvec_filter *
GpuvecFilterSure(const GpuvecConditions *conditions)
{
	const gpuvec_filter *filter = &conditions->filter;
	gpuvec_condition *sure = palloc_array(gpuvec_condition, filter->n);
	gpuvec_filter *result = palloc_object(gpuvec_filter);

	if (filter->n > 0)
		memcpy(sure, filter->conditions, filter->n * sizeof(gpuvec_condition));
	for (int i = 0; i < conditions->nrounded; i++)
	{
		const GpuvecRounded *rounded = &conditions->rounded[i];
		gpuvec_condition *range = &sure[rounded->condition];

		if (rounded->others.sk_strategy == GPUVEC_FILTER_AT_LEAST)
		{
			if (rounded->low == 0)
				return NULL;
			range->high = rounded->low - 1;
		}
		else
		{
			if (rounded->high == PG_UINT64_MAX)
				return NULL;
			range->low = rounded->high + 1;
		}
		if (range->low > range->high)
			return NULL;
	}
	*result = *filter;
	result->conditions = sure;
	return result;
}

const gpuvec_filter *
GpuvecFilterNulls(const gpuvec_filter *filter)
{
	gpuvec_condition *conditions = palloc_array(gpuvec_condition, filter->n + 1);
	gpuvec_filter *result = palloc_object(gpuvec_filter);

	memcpy(conditions, filter->conditions, filter->n * sizeof(gpuvec_condition));
	memset(&conditions[filter->n], 0, sizeof(gpuvec_condition));
	conditions[filter->n].kind = GPUVEC_IS_NULL;
	*result = *filter;
	result->conditions = conditions;
	result->n++;
	return result;
}
