/*-------------------------------------------------------------------------
 *
 * idset_query.h
 *	  The type idset_query: a boolean expression of ids.
 *
 * A varlena whose payload is an array of items, in prefix notation: an
 * operator comes before its operands.  AND and OR have two operands or more,
 * none of which is of the operator's own kind; NOT has one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_IDSET_QUERY_H
#define GPUVEC_IDSET_QUERY_H

#include "idset/idset.h"

typedef enum IdSetQueryKind
{
	QUERY_ID,
	QUERY_NOT,
	QUERY_AND,
	QUERY_OR
} IdSetQueryKind;

typedef struct IdSetQueryItem
{
	uint32		kind;			/* IdSetQueryKind */
	uint32		value;			/* the id; of an operator, the number of items
								 * of its expression, itself included */
} IdSetQueryItem;

typedef struct IdSetQuery
{
	int32		vl_len_;		/* varlena header (do not touch directly!) */
	IdSetQueryItem items[FLEXIBLE_ARRAY_MEMBER];
} IdSetQuery;

#define DatumGetIdSetQueryP(d)		((IdSetQuery *) PG_DETOAST_DATUM(d))
#define PG_GETARG_IDSET_QUERY_P(n)	DatumGetIdSetQueryP(PG_GETARG_DATUM(n))

/* Number of items of the expression that begins with an item */
static inline uint32
idset_query_length(const IdSetQueryItem *item)
{
	return item->kind == QUERY_ID ? 1 : item->value;
}

/* The operands of an operator: for (op = first; op < end; op = next) */
#define idset_query_first(item)	((item) + 1)
#define idset_query_end(item)	((item) + idset_query_length(item))
#define idset_query_next(op)	((op) + idset_query_length(op))

/* Operator functions: the planner recognizes them by address */
extern Datum idset_matches_query(PG_FUNCTION_ARGS);
extern Datum idset_query_matches(PG_FUNCTION_ARGS);

/*
 * idset_query_plan.c: the query of a condition set @@ query that is a
 * constant, and that no one condition set @> ids or set && ids says all of; or
 * NULL.  *set is the other argument.
 */
extern const IdSetQuery *idset_query_of(const Node *clause, const Node **set);

#endif							/* GPUVEC_IDSET_QUERY_H */
