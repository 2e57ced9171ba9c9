/*-------------------------------------------------------------------------
 *
 * jsonb_set.c
 *	  Sets of the elements of jsonb arrays.
 *
 * A string has the id that it has as an element of text[], under a collation
 * that compares bytes, as jsonb does.  A number has the id that it has as an
 * element of numeric[], so 1, 1.0 and 1e0 have one.  Null elements are left
 * out.  No set is made of an array with other elements, nor of what is no
 * array.
 *
 * An index of jsonb (operator class jsonb_ops) has these sets, so all its rows
 * are such arrays.  Each row that satisfies an operator has a set that
 * satisfies the same operator of sets, with the set that is made of the right
 * side:
 *
 *		tags @> q		a row has all strings and numbers of the array q, or q
 *						itself if it is one
 *		tags <@ q		a row's strings and numbers are all in the array q
 *		tags = q		equal arrays have the same elements
 *		tags ? 'a'		a row has the string: contains {a}
 *		tags ?& '{a,b}'	contains {a,b}, without nulls
 *		tags ?| '{a,b}'	shares an element with {a,b}, without nulls
 *
 * Whatever else q is or has is left to the operator, which the executor checks
 * on the row.  Of too many elements for a set nothing is said, and all rows
 * are looked at.  A distance from what no set is made of fails for the first
 * row.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "idset/made_set.h"
#include "idset/text_ids.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"

/* Report a value that no set is made of */
static void
no_set(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("cannot make a set of this jsonb value"),
			 errdetail("%s", detail),
			 errhint("A set is made of an array of strings and numbers, like [\"red\",3].")));
}

/* The id of a number */
static uint32
number_id(Numeric number)
{
	return (uint32) DatumGetUInt64(DirectFunctionCall2(hash_numeric_extended,
													   NumericGetDatum(number), Int64GetDatum(0)));
}

/*
 * Add the ids of the strings and numbers of an array, or of a single value; an
 * object has none.  Returns the number of the first element that is neither,
 * nor null, and what it is; 0 if there is none.
 */
static int
add_scalars(TextIds *ids, Jsonb *jsonb, const char **kind)
{
	JsonbIterator *iterator = JsonbIteratorInit(&jsonb->root);
	JsonbValue	value;
	int			other = 0;

	JsonbIteratorNext(&iterator, &value, true); /* the beginning */
	for (int i = 1; JsonbIteratorNext(&iterator, &value, true) == WJB_ELEM; i++)
	{
		GPUVEC_STEP(i);
		if (value.type == jbvString)
			text_ids_add(ids, text_token_id(value.val.string.val, value.val.string.len));
		else if (value.type == jbvNumeric)
			text_ids_add(ids, number_id(value.val.numeric));
		else if (value.type != jbvNull && other == 0)
		{
			*kind = value.type == jbvBool ? "a boolean" : "an array or an object";
			other = i;
		}
	}
	return other;
}

IdSet *
idset_make_of_jsonb(struct varlena *value, Oid collation, bool lenient)
{
	Jsonb	   *jsonb = (Jsonb *) value;
	const char *kind;
	TextIds		ids;
	int			other;

	if (!JB_ROOT_IS_ARRAY(jsonb) || JB_ROOT_IS_SCALAR(jsonb))
	{
		if (!lenient)
			no_set(JB_ROOT_IS_OBJECT(jsonb) ? "It is an object." : "It is a single value.");
		return NULL;
	}
	text_ids_init(&ids);
	ids.lenient = lenient;
	other = add_scalars(&ids, jsonb, &kind);
	if (other == 0)
		return text_ids_finish(&ids);
	if (!lenient)
		no_set(psprintf("Element %d is %s.", other, kind));
	pfree(ids.ids);
	return NULL;
}

/* idset_of_jsonb(jsonb) */
PG_FUNCTION_INFO_V1(idset_of_jsonb);
Datum
idset_of_jsonb(PG_FUNCTION_ARGS)
{
	PG_RETURN_IDSET_P(idset_make_of_jsonb(PG_GETARG_VARLENA_P(0), InvalidOid, false));
}

/* The set of a string */
static IdSet *
set_of_string(const text *string)
{
	uint32		id = text_token_id(VARDATA_ANY(string), VARSIZE_ANY_EXHDR(string));

	return idset_from_sorted(&id, 1);
}

/* The set of strings and numbers; NULL if they are too many */
static IdSet *
set_of_scalars(Jsonb *jsonb)
{
	const char *kind;
	TextIds		ids;

	text_ids_init(&ids);
	ids.lenient = true;
	(void) add_scalars(&ids, jsonb, &kind);
	return text_ids_finish(&ids);
}

/*
 * gpuvec_jsonb_query(internal, int2, oid): the set of the right side of an
 * operator (ENTRY_QUERY_PROC)
 */
PG_FUNCTION_INFO_V1(gpuvec_jsonb_query);
Datum
gpuvec_jsonb_query(PG_FUNCTION_ARGS)
{
	switch (PG_GETARG_OID(2))
	{
		case TEXTOID:
			PG_RETURN_POINTER(set_of_string(PG_GETARG_TEXT_PP(0)));
		case TEXTARRAYOID:
			PG_RETURN_POINTER(idset_make_of_array(PG_GETARG_VARLENA_P(0), C_COLLATION_OID, true));
		default:
			PG_RETURN_POINTER(set_of_scalars(PG_GETARG_JSONB_P(0)));
	}
}
