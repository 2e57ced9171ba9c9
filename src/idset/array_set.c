/*-------------------------------------------------------------------------
 *
 * array_set.c
 *	  Sets of the elements of arrays, and distances of arrays, which are those
 *	  of their sets.
 *
 * An element of type int2 or int4 is the id with its 32 bits, so different
 * elements have different ids.  One of another type is the low half of what
 * the extended hash function of the type returns with seed 0, under the
 * array's collation: equal elements have one id, and so may others, by chance
 * (text_hash.c).  Null elements are left out.  An array of any dimensions is
 * the list of its elements.
 *
 * An index of arrays (operator class array_ops) has these sets.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "idset/text_ids.h"

/* The set of an array's elements, palloc'd; an error if they are too many */
static IdSet *
set_of_array(ArrayType *array, Oid collation)
{
	TextIds		ids;

	text_ids_init(&ids);
	text_add_elements(&ids, array, collation, true);
	return text_ids_finish(&ids);
}

/* idset_of_array(anyarray) */
PG_FUNCTION_INFO_V1(idset_of_array);
Datum
idset_of_array(PG_FUNCTION_ARGS)
{
	PG_RETURN_IDSET_P(set_of_array(PG_GETARG_ARRAYTYPE_P(0), PG_GET_COLLATION()));
}

/* array_..._distance(anyarray, anyarray): the distance of the sets of both */
#define ARRAY_DISTANCE(distance) \
extern Datum idset_##distance(PG_FUNCTION_ARGS); \
PG_FUNCTION_INFO_V1(array_##distance); \
Datum \
array_##distance(PG_FUNCTION_ARGS) \
{ \
	IdSet	   *a = set_of_array(PG_GETARG_ARRAYTYPE_P(0), PG_GET_COLLATION()); \
	IdSet	   *b = set_of_array(PG_GETARG_ARRAYTYPE_P(1), PG_GET_COLLATION()); \
 \
	return DirectFunctionCall2(idset_##distance, PointerGetDatum(a), PointerGetDatum(b)); \
}

ARRAY_DISTANCE(braun_blanquet_distance)
ARRAY_DISTANCE(jaccard_distance)
ARRAY_DISTANCE(negative_intersection)
ARRAY_DISTANCE(hamming_distance)
