/*-------------------------------------------------------------------------
 *
 * idset.h
 *	  The type idset: a set of ids 0 to 4294967295.
 *
 * A varlena with one of two forms.  A set whose ids are all below 65536 is
 * narrow: its payload is an array of two-byte ids.  Any other set is wide:
 * its payload is an array of four-byte ids, and then a zero byte.  So a
 * payload of an odd number of bytes is that of a wide set, and a narrow set
 * pays nothing.  The ids of both are ascending and distinct.
 *
 * The number of ids follows from the size.  No set has more than 65,536 ids.
 * A set that could be narrow is never wide, so equal sets have equal bytes.
 *
 * On disk the payload may follow a one-byte header and be unaligned.
 * DatumGetIdSetP always returns a value with a four-byte header, whose ids
 * are aligned.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_IDSET_H
#define GPUVEC_IDSET_H

#include "postgres.h"

#include "core/bounds.h"
#include "core/ids.h"
#include "core/measure.h"
#include "compat.h"
#include "fmgr.h"

/* Use idset_id(), or idset_ids() and idset_wide_ids(), to read ids */
typedef struct IdSet
{
	int32		vl_len_;		/* varlena header (do not touch directly!) */
	uint16		ids[FLEXIBLE_ARRAY_MEMBER]; /* of a narrow set */
} IdSet;

#define DatumGetIdSetP(d)		((IdSet *) PG_DETOAST_DATUM(d))
#define PG_GETARG_IDSET_P(n)	DatumGetIdSetP(PG_GETARG_DATUM(n))
#define PG_RETURN_IDSET_P(s)	PG_RETURN_POINTER(s)

/* The greatest id, and the greatest id of a narrow set */
#define IDSET_MAX_ID			UINT64CONST(4294967295)
#define IDSET_MAX_NARROW_ID		GPUVEC_MAX_ID

/* True if a payload of so many bytes is that of a wide set */
#define idset_bytes_wide(bytes)	(((bytes) & 1) != 0)

/* Number of ids in a payload of so many bytes */
#define idset_bytes_count(bytes) \
	((uint32) (idset_bytes_wide(bytes) ? (bytes) / sizeof(uint32) : (bytes) / sizeof(uint16)))

static inline bool
idset_is_wide(const IdSet *set)
{
	return idset_bytes_wide(VARSIZE(set) - VARHDRSZ);
}

static inline uint32
idset_count(const IdSet *set)
{
	return idset_bytes_count(VARSIZE(set) - VARHDRSZ);
}

/* The ids of a narrow set */
static inline const uint16 *
idset_ids(const IdSet *set)
{
	Assert(!idset_is_wide(set));
	return set->ids;
}

/* The ids of a wide set */
static inline const uint32 *
idset_wide_ids(const IdSet *set)
{
	Assert(idset_is_wide(set));
	return (const uint32 *) set->ids;
}

/*
 * The i-th id of an array.  Where `wide` is a constant, nothing is asked when
 * the program runs.
 */
static pg_attribute_always_inline uint32
idset_id_at(const void *ids, bool wide, uint32 i)
{
	return wide ? ((const uint32 *) ids)[i] : ((const uint16 *) ids)[i];
}

/* The i-th id of any set, from 0 */
static inline uint32
idset_id(const IdSet *set, uint32 i)
{
	return idset_id_at(set->ids, idset_is_wide(set), i);
}

/* Copy ids number from ..  to - 1 of any set */
static inline void
idset_copy_ids(const IdSet *set, uint32 from, uint32 to, uint32 *ids)
{
	for (uint32 i = from; i < to; i++)
		*ids++ = idset_id(set, i);
}

/* The ids of any set */
static inline gpuvec_id_span
idset_span(const IdSet *set)
{
	gpuvec_id_span span = {set->ids, idset_count(set), idset_is_wide(set)};

	return span;
}

/* The ids in a payload of so many bytes, which is aligned as they are */
static inline gpuvec_id_span
idset_span_of_bytes(const void *ids, Size bytes)
{
	gpuvec_id_span span = {ids, idset_bytes_count(bytes), idset_bytes_wide(bytes)};

	return span;
}

/* A new narrow set of n ids; the caller fills in all of them */
extern IdSet *idset_alloc(uint32 n);

/* Shorten a set that idset_alloc() made to its first n ids */
static inline void
idset_shrink(IdSet *set, uint32 n)
{
	SET_VARSIZE(set, VARHDRSZ + (Size) n * sizeof(uint16));
}

/*
 * A set of n ids in any order, with duplicates or not; may sort ids[].  More
 * than 65,536 different ids are an error.
 */
extern IdSet *idset_from_ids(uint32 *ids, uint32 n);

/* The same.  NULL after a soft error, which goes to `escontext`. */
extern IdSet *idset_from_ids_safe(uint32 *ids, uint32 n, Node *escontext);

/* A set of n ids that are ascending and distinct; errors as above */
extern IdSet *idset_from_sorted(const uint32 *ids, uint32 n);

/* Sort ids[] */
extern void idset_sort(uint32 *ids, uint32 n);

/* Sort ids[], drop duplicates, and return the number of those left */
extern uint32 idset_sort_distinct(uint32 *ids, uint32 n);

/* The number as an id; an error if it is out of range */
extern uint32 idset_check_id(int64 number);

/* The number of common ids */
extern uint32 idset_span_common(gpuvec_id_span a, gpuvec_id_span b);

static inline uint32
idset_common(const IdSet *a, const IdSet *b)
{
	return idset_span_common(idset_span(a), idset_span(b));
}

/* What a query and a row share */
static inline gpuvec_shared
idset_shared(gpuvec_id_span query, gpuvec_id_span row)
{
	gpuvec_shared shared = {idset_span_common(query, row), query.n, row.n};

	return shared;
}

/* True if the id is in the set.  *position is where it is, or would be. */
extern bool idset_find(const IdSet *set, uint32 id, uint32 *position);

/*
 * True if a type is one of the extension, by the catalog: a base type with
 * this input function, or idset
 */
extern bool idset_type_reads(Oid type, PGFunction input);
extern bool idset_is_type(Oid type);

extern Datum idset_out(PG_FUNCTION_ARGS);
extern Datum idset_add_id(PG_FUNCTION_ARGS);

/*
 * Operator functions and constructors of thresholds and rankings: the planner
 * recognizes them by address
 */
extern Datum idset_cardinality(PG_FUNCTION_ARGS);
extern Datum idset_intersect(PG_FUNCTION_ARGS);
extern Datum idset_overlaps(PG_FUNCTION_ARGS);
extern Datum idset_unnest(PG_FUNCTION_ARGS);
extern Datum idset_contains(PG_FUNCTION_ARGS);
extern Datum idset_contains_id(PG_FUNCTION_ARGS);
extern Datum idset_contained(PG_FUNCTION_ARGS);
extern Datum idset_id_contained(PG_FUNCTION_ARGS);
extern Datum idset_reaches_threshold(PG_FUNCTION_ARGS);
extern Datum idset_threshold(PG_FUNCTION_ARGS);
extern Datum idset_ranking(PG_FUNCTION_ARGS);

#endif							/* GPUVEC_IDSET_H */
