/*-------------------------------------------------------------------------
 *
 * set_match.c
 *	  Conditions on a set as one condition of a filter.
 *
 * A node that counts rows (count.c) asks the engine for those that satisfy
 * all conditions on the set, where one bound of scores does not say that
 * (key_bounds.c).  Then they are an expression of ids (core/set_match.h):
 *
 *		tokens @> q			all ids of q
 *		tokens && q			one of them
 *		tokens @> ANY (a)	all ids of one of the sets
 *		tokens && ANY (a)	one id of all sets
 *		tokens <@ q			no others; this must be the only condition
 *		tokens @@ query		the query
 *
 * Values of an array that are null satisfy nothing.  A set contains no ids
 * whatever it is, so such a condition is left out, and so is one with an array
 * that has such a value.
 *
 * What has more ids or steps than the engine takes is no such expression, nor
 * are thresholds.  Then the scan is run.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "catalog/pg_type.h"
#include "idset/idset.h"
#include "index/index_am.h"
#include "index/set_match.h"
#include "miscadmin.h"

/* ---- steps ---- */

static void
add_step(GpuvecMatch *match, uint64 step)
{
	if (match->nsteps == GPUVEC_MOST_MATCH_STEPS)
		match->failed = true;
	if (match->failed)
		return;
	match->steps[match->nsteps++] = step;
	match->depth += 1 - gpuvec_step_takes(step, match->nids);
	match->failed = match->depth > GPUVEC_MOST_MATCH_DEPTH;
}

/* The number of an id, which is listed now */
static uint32
list_id(GpuvecMatch *match, uint32 id)
{
	uint32		at = 0;

	while (at < match->nids && match->ids[at] != id)
		at++;
	if (at == GPUVEC_MOST_MATCH_IDS)
		match->failed = true;
	else if (at == match->nids)
		match->ids[match->nids++] = id;
	return at;
}

/* Add an id, or with a set: each or any of its ids, which are not none */
static void
add_id(GpuvecMatch *match, uint32 id)
{
	uint32		number = list_id(match, id);

	if (!match->failed)
		add_step(match, number);
}

static void
add_ids(GpuvecMatch *match, gpuvec_id_span ids, uint64 operator)
{
	for (uint32 i = 0; i < ids.n && !match->failed; i++)
	{
		add_id(match, idset_id_at(ids.ids, ids.wide, i));
		if (i > 0)
			add_step(match, operator);
	}
}

/* One more condition was added: all of them must hold */
static void
end_condition(GpuvecMatch *match)
{
	if (match->nconditions++ > 0)
		add_step(match, GPUVEC_SET_AND);
}

/* ---- queries ---- */

/* Add an expression of a query */
static void
add_expression(GpuvecMatch *match, const IdSetQueryItem *item)
{
	const IdSetQueryItem *first = idset_query_first(item);

	check_stack_depth();
	if (item->kind == QUERY_ID)
	{
		add_id(match, item->value);
		return;
	}
	for (const IdSetQueryItem *op = first; op < idset_query_end(item) && !match->failed;
		 op = idset_query_next(op))
	{
		add_expression(match, op);
		if (op > first)
			add_step(match, item->kind == QUERY_AND ? GPUVEC_SET_AND : GPUVEC_SET_OR);
	}
	if (item->kind == QUERY_NOT)
		add_step(match, GPUVEC_SET_NOT);
}

void
GpuvecMatchAddQuery(GpuvecMatch *match, const IdSetQuery *query)
{
	add_expression(match, query->items);
	end_condition(match);
}

const IdSetQuery *
GpuvecMatchedQuery(const Node *clause, AttrNumber column)
{
	const Node *set;
	const IdSetQuery *query = idset_query_of(clause, &set);

	if (query == NULL || !IsA(set, Var) || ((const Var *) set)->varattno != column ||
		column == InvalidAttrNumber)
		return NULL;
	return query;
}

/* ---- search keys ---- */

/* What a value of a key says */
typedef enum KeySays
{
	SAYS_NOTHING,				/* every set satisfies it */
	SAYS_NEVER,					/* no set does */
	SAYS_STEPS					/* those that steps were added for */
} KeySays;

/* Add what a set says */
static KeySays
add_set(GpuvecMatch *match, StrategyNumber strategy, gpuvec_id_span ids)
{
	switch (strategy)
	{
		case GPUVEC_OVERLAPS:
			add_ids(match, ids, GPUVEC_SET_OR);
			return ids.n == 0 ? SAYS_NEVER : SAYS_STEPS;
		case GPUVEC_CONTAINS:
			add_ids(match, ids, GPUVEC_SET_AND);
			return ids.n == 0 ? SAYS_NOTHING : SAYS_STEPS;
		case GPUVEC_CONTAINED:
			for (uint32 i = 0; i < ids.n && !match->failed; i++)
				list_id(match, idset_id_at(ids.ids, ids.wide, i));
			match->failed |= match->only;
			match->only = true;
			add_step(match, GPUVEC_SET_ONLY);
			return SAYS_STEPS;
		default:
			match->failed = true;
			return SAYS_STEPS;
	}
}

/* Add what a value of a key says, which is not null */
static KeySays
add_value(GpuvecMatch *match, const ScanKeyData *key, Datum value)
{
	int64		number;

	if (key->sk_strategy == GPUVEC_REACHES)
		match->failed = true;
	if (match->failed)
		return SAYS_STEPS;
	if (key->sk_subtype != INT8OID)
		return add_set(match, key->sk_strategy, idset_span(DatumGetIdSetP(value)));
	number = DatumGetInt64(value);
	if (number < 0 || number > (int64) IDSET_MAX_ID)
		return SAYS_NEVER;
	add_id(match, (uint32) number);
	return SAYS_STEPS;
}

/* Add what a key with an array says: that one of its values holds */
static KeySays
add_array(GpuvecMatch *match, const ScanKeyData *key)
{
	KeySays		all = SAYS_NEVER;
	Datum	   *elements;
	bool	   *isnull;
	int			n = GpuvecKeyElements(key, &elements, &isnull);

	for (int i = 0; i < n && !match->failed && all != SAYS_NOTHING; i++)
	{
		KeySays		one = isnull[i] ? SAYS_NEVER : add_value(match, key, elements[i]);

		if (one == SAYS_STEPS && all == SAYS_STEPS)
			add_step(match, GPUVEC_SET_OR);
		if (one != SAYS_NEVER)
			all = one;
	}
	return all;
}

void
GpuvecMatchAddKey(GpuvecMatch *match, const ScanKeyData *key)
{
	GpuvecMatch before = *match;

	switch (key->sk_flags & SK_SEARCHARRAY ? add_array(match, key) : add_value(match, key, key->sk_argument))
	{
		case SAYS_NOTHING:
			*match = before;
			break;
		case SAYS_NEVER:
			/* who asks knows that before */
			match->failed = true;
			break;
		case SAYS_STEPS:
			end_condition(match);
	}
}

/* ---- the filter ---- */

/* Write ids, ascending, and steps as values */
static void
write_values(const GpuvecMatch *match, uint64 *values)
{
	uint32		sorted[GPUVEC_MOST_MATCH_IDS];

	memcpy(sorted, match->ids, match->nids * sizeof(uint32));
	idset_sort(sorted, match->nids);
	for (uint32 i = 0; i < match->nids; i++)
		values[i] = sorted[i];
	for (uint32 i = 0; i < match->nsteps; i++)
	{
		uint64		step = match->steps[i];

		values[match->nids + i] = step < match->nids ?
			gpuvec_match_number(values, match->nids, match->ids[step]) : step;
	}
}

bool
GpuvecMatchFits(const GpuvecMatch *match)
{
	return !match->failed && (!match->only || match->nconditions == 1);
}

const gpuvec_filter *
GpuvecMatchFilter(const GpuvecMatch *match, const gpuvec_filter *filter)
{
	uint32		n = match->nids + match->nsteps;
	gpuvec_filter *result;
	gpuvec_condition *conditions;
	uint64	   *values;

	if (!GpuvecMatchFits(match) || match->nconditions == 0 ||
		filter->n == GPUVEC_MAX_CONDITIONS || n > GPUVEC_MAX_FILTER_VALUES - filter->nvalues)
		return NULL;
	result = palloc_object(gpuvec_filter);
	conditions = palloc0_array(gpuvec_condition, filter->n + 1);
	values = palloc_array(uint64, filter->nvalues + n);
	if (filter->n > 0)
		memcpy(conditions, filter->conditions, filter->n * sizeof(gpuvec_condition));
	if (filter->nvalues > 0)
		memcpy(values, filter->values, filter->nvalues * sizeof(uint64));
	write_values(match, values + filter->nvalues);
	conditions[filter->n].kind = GPUVEC_SET_MATCHES;
	conditions[filter->n].first = filter->nvalues;
	conditions[filter->n].n = n;
	conditions[filter->n].low = match->nids;
	result->n = filter->n + 1;
	result->nvalues = filter->nvalues + n;
	result->conditions = conditions;
	result->values = values;
	return result;
}
