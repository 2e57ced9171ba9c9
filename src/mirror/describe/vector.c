/*-------------------------------------------------------------------------
 *
 * vector.c
 *	  The keys and vectors of embedding tables, as PostgreSQL stores them.
 *
 * Vectors are arrays of real or double precision, or values of the types
 * vector and halfvec of the extension vector (pgvector), which is known by
 * its name only.  All become float32: doubles are rounded, and become
 * infinite where they are too large.
 *
 * The owner of an extension need not be a superuser, and can add other types
 * to it.  Only superusers can make base types, so only base types count.
 * Whatever a value's header says, no element is read behind its end.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/htup_details.h"
#include "catalog/dependency.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "mirror/describe/mirror.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

/* True if this is the base type of that name of the extension vector */
static bool
is_pgvector_type(Oid type, const char *name)
{
	HeapTuple	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
	Form_pg_type form;
	bool		same;
	Oid			extension;
	char	   *extension_name;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_type) GETSTRUCT(tuple);
	same = form->typtype == TYPTYPE_BASE && form->typlen == -1 &&
		strcmp(NameStr(form->typname), name) == 0;
	ReleaseSysCache(tuple);
	if (!same)
		return false;
	extension = getExtensionOfObject(TypeRelationId, type);
	extension_name = OidIsValid(extension) ? get_extension_name(extension) : NULL;
	return extension_name != NULL && strcmp(extension_name, "vector") == 0;
}

/* The kind of vectors of this type, or domain */
MirrorVectorType
MirrorVectorTypeOf(Oid type)
{
	type = getBaseType(type);
	if (type == FLOAT4ARRAYOID)
		return MIRROR_FLOAT4_ARRAY;
	if (type == FLOAT8ARRAYOID)
		return MIRROR_FLOAT8_ARRAY;
	if (type < FirstNormalObjectId)
		return MIRROR_NO_VECTOR;
	if (is_pgvector_type(type, "vector"))
		return MIRROR_VECTOR;
	if (is_pgvector_type(type, "halfvec"))
		return MIRROR_HALFVEC;
	return MIRROR_NO_VECTOR;
}

/* True if keys can have this type, or domain */
bool
MirrorKeyType(Oid type)
{
	type = getBaseType(type);
	return type == INT2OID || type == INT4OID || type == INT8OID;
}

/* The value of a key; `type` is not a domain */
int64
MirrorKey(Datum value, Oid type)
{
	switch (type)
	{
		case INT2OID:
			return DatumGetInt16(value);
		case INT4OID:
			return DatumGetInt32(value);
		default:
			return DatumGetInt64(value);
	}
}

/*
 * True if a value has room for n elements of `bytes` bytes behind its head
 */
static bool
has_elements(const void *value, Size head, int n, Size bytes)
{
	return n >= 0 && VARSIZE(value) >= head && n * bytes <= VARSIZE(value) - head;
}

/* Decode an array */
static void
decode_array(ArrayType *array, MirrorVectorType type, MirrorVector *vector)
{
	int			n = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));

	if (ARR_NDIM(array) > 1)
		vector->kind = GPUVEC_VECTOR_DIMENSIONS;
	else if (array_contains_nulls(array))
		vector->kind = GPUVEC_VECTOR_NULLS;
	else if (n > GPUVEC_MAX_WIDTH)
		vector->kind = GPUVEC_VECTOR_LONG;
	else if (!has_elements(array, ARR_DATA_OFFSET(array), n,
						   type == MIRROR_FLOAT4_ARRAY ? sizeof(float) : sizeof(double)))
		vector->kind = GPUVEC_VECTOR_DAMAGED;
	else if (type == MIRROR_FLOAT4_ARRAY)
	{
		vector->width = n;
		vector->elements = (const float *) ARR_DATA_PTR(array);
	}
	else
	{
		const double *from = (const double *) ARR_DATA_PTR(array);
		float	   *to = palloc_array(float, Max(n, 1));

		for (int i = 0; i < n; i++)
			to[i] = (float) from[i];
		vector->width = n;
		vector->elements = to;
	}
}

/* A vector or halfvec as pgvector stores it */
typedef struct PgVector
{
	int32		header;
	int16		dim;
	int16		unused;
	char		elements[FLEXIBLE_ARRAY_MEMBER];
} PgVector;

/* Decode a vector or halfvec of pgvector */
static void
decode_pgvector(const PgVector *value, MirrorVectorType type, MirrorVector *vector)
{
	if (!has_elements(value, offsetof(PgVector, elements), 0, 0) ||
		!has_elements(value, offsetof(PgVector, elements), value->dim,
					  type == MIRROR_VECTOR ? sizeof(float) : sizeof(uint16)))
	{
		vector->kind = GPUVEC_VECTOR_DAMAGED;
		return;
	}
	vector->width = (uint32) value->dim;
	if (type == MIRROR_VECTOR)
		vector->elements = (const float *) value->elements;
	else
	{
		const uint16 *from = (const uint16 *) value->elements;
		float	   *to = palloc_array(float, Max(vector->width, 1));

		for (uint32 i = 0; i < vector->width; i++)
			to[i] = gpuvec_half_to_float(from[i]);
		vector->elements = to;
	}
}

/* Decode a vector, which is not stored out of line */
void
MirrorDecodeVector(struct varlena *value, MirrorVectorType type, MirrorVector *vector)
{
	value = PG_DETOAST_DATUM(PointerGetDatum(value));
	memset(vector, 0, sizeof(*vector));
	if (type == MIRROR_FLOAT4_ARRAY || type == MIRROR_FLOAT8_ARRAY)
		decode_array((ArrayType *) value, type, vector);
	else
		decode_pgvector((const PgVector *) value, type, vector);
}

/*
 * Decode a vector as the mirror has it: rounded to float16 if it is stored so
 */
void
MirrorReadVector(struct varlena *value, const MirrorTarget *target, MirrorVector *vector)
{
	float	   *rounded;

	MirrorDecodeVector(value, target->vector_type, vector);
	if (target->key.storage != GPUVEC_FLOAT16)
		return;
	rounded = palloc_array(float, Max(vector->width, 1));
	for (uint32 i = 0; i < vector->width; i++)
		rounded[i] = gpuvec_half_to_float(gpuvec_float_to_half(vector->elements[i]));
	vector->elements = rounded;
}
