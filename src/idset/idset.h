/*-------------------------------------------------------------------------
 *
 * idset.h
 *	  The type idset: a set of ids 0 to 65535.
 *
 * A varlena whose payload is an array of two-byte unsigned ids, ascending and
 * distinct.  The number of ids follows from the size.  On disk the payload
 * may follow a one-byte header and be unaligned.  DatumGetIdSetP always
 * returns a value with a four-byte header, whose ids are aligned.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_IDSET_H
#define GPUVEC_IDSET_H

#include "postgres.h"

#include "core/bounds.h"
#include "compat.h"
#include "fmgr.h"

typedef struct IdSet
{
	int32		vl_len_;		/* varlena header (do not touch directly!) */
	uint16		ids[FLEXIBLE_ARRAY_MEMBER];
} IdSet;

#define DatumGetIdSetP(d)		((IdSet *) PG_DETOAST_DATUM(d))
#define PG_GETARG_IDSET_P(n)	DatumGetIdSetP(PG_GETARG_DATUM(n))
#define PG_RETURN_IDSET_P(s)	PG_RETURN_POINTER(s)

#define IDSET_SIZE(n)			(VARHDRSZ + (Size) (n) * sizeof(uint16))

static inline uint32
idset_count(const IdSet *set)
{
	return (VARSIZE(set) - VARHDRSZ) / sizeof(uint16);
}

static inline const uint16 *
idset_ids(const IdSet *set)
{
	return set->ids;
}

/* A new set of n ids; the caller fills in all of them */
extern IdSet *idset_alloc(uint32 n);

/* Shorten a set that idset_alloc() made to its first n ids */
static inline void
idset_shrink(IdSet *set, uint32 n)
{
	SET_VARSIZE(set, IDSET_SIZE(n));
}

/* A set of n ids in any order, with duplicates or not; may sort ids[] */
extern IdSet *idset_from_ids(uint16 *ids, uint32 n);

/* The number as an id; an error if it is out of range */
extern uint16 idset_check_id(int64 number);

/* The number of common ids of two ascending, distinct arrays */
extern uint32 idset_intersection_count(const uint16 *a, uint32 na,
									   const uint16 *b, uint32 nb);

/* True if the id is in the set.  *position is where it is, or would be. */
extern bool idset_find(const IdSet *set, uint16 id, uint32 *position);

extern Datum idset_out(PG_FUNCTION_ARGS);

/*
 * Operator functions and the constructor of thresholds: the planner
 * recognizes them by address
 */
extern Datum idset_overlaps(PG_FUNCTION_ARGS);
extern Datum idset_contains(PG_FUNCTION_ARGS);
extern Datum idset_contains_id(PG_FUNCTION_ARGS);
extern Datum idset_contained(PG_FUNCTION_ARGS);
extern Datum idset_id_contained(PG_FUNCTION_ARGS);
extern Datum idset_reaches_threshold(PG_FUNCTION_ARGS);
extern Datum idset_threshold(PG_FUNCTION_ARGS);

#endif							/* GPUVEC_IDSET_H */
