/*-------------------------------------------------------------------------
 *
 * filter_key.h
 *	  Filter columns of an index, and the keys of their values.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_FILTER_KEY_H
#define GPUVEC_FILTER_KEY_H

#include "postgres.h"

#include "access/htup.h"
#include "core/filter.h"
#include "utils/rel.h"

/* Raised when a key is made in another way: see filter_key.c */
#define FILTER_VERSION	1

/* How the values of a column become keys, by the type of its operator class */
typedef enum FilterKind
{
	FILTER_UNKNOWN,				/* not at all */
	FILTER_INTEGER,				/* int2, int4, int8 */
	FILTER_TIME,				/* date, timestamp, timestamptz */
	FILTER_BOOL,
	FILTER_FLOAT,
	FILTER_NUMERIC,
	FILTER_TEXT,
	FILTER_BPCHAR,
	FILTER_UUID,
	FILTER_ENUM,
	FILTER_INET,
	FILTER_SET					/* a further set */
} FilterKind;

typedef struct FilterColumn
{
	AttrNumber	attnum;			/* of the table; 0: an expression */
	FilterKind	kind;
	bool		prefix;			/* of text: the key begins with its first
								 * bytes */
	Oid			type;			/* input type of the operator class */
	Oid			collation;
} FilterColumn;

/* The filter columns of an index, in order */
typedef struct FilterColumns
{
	int			n;
	FilterColumn columns[GPUVEC_MAX_FILTERS];
} FilterColumns;

extern FilterKind FilterKindOf(Oid type);

/*
 * The filter columns of an index, by its row of pg_index.  Raises no error:
 * of a column that cannot be one the kind is FILTER_UNKNOWN.
 */
extern void FilterDescribe(HeapTuple index, FilterColumns *filters);

/*
 * True if equal keys mean equal values.  Of other kinds the rows that are
 * found have to be checked once more.
 */
extern bool FilterKindExact(FilterKind kind);

/*
 * The key of a value of a column, or of another type of its kind.  A value of
 * variable length must not be compressed or out of line.
 */
extern uint64 FilterKey(const FilterColumn *column, Oid type, Datum value);

/* The same for any value, which is detoasted first */
extern uint64 FilterKeyOfAny(const FilterColumn *column, Datum value);

/*
 * Bits of words[0] and words[1 ..] of a row of an index: values[] has the set
 * and those of the filter columns
 */
extern void FilterWords(const FilterColumns *filters, const Datum *values, const bool *isnull,
						uint64 *words);

/* True if a column's values are of variable length */
static inline bool
FilterVaries(const FilterColumn *column)
{
	return column->kind == FILTER_NUMERIC || column->kind == FILTER_TEXT ||
		column->kind == FILTER_BPCHAR || column->kind == FILTER_INET ||
		column->kind == FILTER_SET;
}

#endif							/* GPUVEC_FILTER_KEY_H */
