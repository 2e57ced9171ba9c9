/*-------------------------------------------------------------------------
 *
 * array_set.c
 *	  Sets of the elements of arrays.
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

#include "idset/made_set.h"
#include "idset/text_ids.h"

IdSet *
idset_make_of_array(struct varlena *value, Oid collation, bool lenient)
{
	TextIds		ids;

	text_ids_init(&ids);
	ids.lenient = lenient;
	text_add_elements(&ids, (ArrayType *) value, collation, true);
	return text_ids_finish(&ids);
}

/* idset_of_array(anyarray) */
PG_FUNCTION_INFO_V1(idset_of_array);
Datum
idset_of_array(PG_FUNCTION_ARGS)
{
	PG_RETURN_IDSET_P(idset_make_of_array(PG_GETARG_VARLENA_P(0), PG_GET_COLLATION(), false));
}

/*
 * gpuvec_array_query(internal, int2, oid): the set of an array on the right
 * side of an operator (ENTRY_QUERY_PROC).  The server's operators take more
 * elements than a set.
 */
PG_FUNCTION_INFO_V1(gpuvec_array_query);
Datum
gpuvec_array_query(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(idset_make_of_array(PG_GETARG_VARLENA_P(0), PG_GET_COLLATION(), true));
}
