/*-------------------------------------------------------------------------
 *
 * key_bounds.h
 *	  Search keys of the first column as bounds of scores.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_KEY_BOUNDS_H
#define GPUVEC_KEY_BOUNDS_H

#include "postgres.h"

#include "access/genam.h"
#include "core/sparse.h"

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
 * A value as a bound: rows that reach min_score with the query, and empty
 * rows if `empty` is set
 */
typedef struct Bound
{
	BoundKind	kind;
	gpuvec_scoring scoring;
	double		min_score;
	const struct varlena *value;	/* the query, a set or a vector */
	gpuvec_sparse query;		/* its ids and values */
	bool		empty;
	bool		exact;			/* rows that reach it satisfy the key */
} Bound;

/*
 * A search key: rows that reach one of its bounds, and empty rows if `empty`
 * is set
 */
typedef struct Bounds
{
	BoundKind	kind;			/* of the bound that leaves most rows */
	Bound	   *bounds;			/* [n], distinct, those of one measure
								 * together; not those that only empty rows
								 * reach */
	uint32		n;
	bool		empty;
	bool		exact;			/* all rows that are found satisfy the key */
} Bounds;

/*
 * Choose the key to search for, and make its bounds in the current memory
 * context
 */
extern void GpuvecChooseBounds(IndexScanDesc scan, Bounds *best);

#endif							/* GPUVEC_KEY_BOUNDS_H */
