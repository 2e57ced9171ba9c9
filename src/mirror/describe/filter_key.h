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
	FILTER_MAC,					/* macaddr, macaddr8 */
	FILTER_SET,					/* a further set */
	FILTER_N_KINDS
} FilterKind;

typedef struct FilterColumn
{
	AttrNumber	attnum;			/* of the table; 0: an expression */
	FilterKind	kind;
	bool		prefix;			/* of text: the key begins with its first
								 * bytes */
	bool		varies;			/* values are of variable length */
	Oid			type;			/* input type of the operator class */
	Oid			collation;
} FilterColumn;

/* What conditions find the values that are less or greater, or share ids */
typedef enum FilterOrder
{
	FILTER_UNORDERED,			/* none: keys are in no order */
	FILTER_BY_KEY,				/* a range of keys, which are in the order of
								 * the values */
	FILTER_BY_PREFIX,			/* the same of the upper half of a key, if it
								 * is a prefix; the lower one is a hash */
	FILTER_BY_LABEL,			/* a list of the labels of an enum */
	FILTER_BY_BITS				/* bits of a set */
} FilterOrder;

#define FILTER_MOST_TYPES	3

/*
 * What is decided for each kind: a row of FilterKinds[] in filter_key.c.  A
 * field that is left out is the careful choice.
 */
typedef struct FilterKindRow
{
	Oid			types[FILTER_MOST_TYPES];	/* input types of the operator
											 * classes */
	uint64		(*key) (const FilterColumn *column, Datum value);
	Datum		(*value) (const FilterColumn *column, uint64 key);
	FilterOrder order;
	bool		exact;			/* equal keys mean equal values.  Otherwise
								 * rows that are found are checked again. */
	bool		mixed;			/* an operator may have two of the types */
} FilterKindRow;

extern const FilterKindRow FilterKinds[];	/* [FILTER_N_KINDS] */

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

/* Let a column have values of another type of its kind, or ids of a set */
extern void FilterSetType(FilterColumn *column, Oid type);

/* The key of a value of a column, which may be compressed or out of line */
extern uint64 FilterKey(const FilterColumn *column, Datum value);

/*
 * True if keys become values again; the value that has a key.  -0 has that of
 * 0.
 */
extern bool FilterHasValues(const FilterColumn *column);
extern Datum FilterValue(const FilterColumn *column, uint64 key);

/*
 * Bits of filter_keys[0] and filter_keys[1 ..] of a row of an index: values[]
 * has the set and those of the filter columns
 */
extern void FilterKeys(const FilterColumns *filters, const Datum *values, const bool *isnull,
					   uint64 *filter_keys);

#endif							/* GPUVEC_FILTER_KEY_H */
