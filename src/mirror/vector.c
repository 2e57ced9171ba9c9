/*-------------------------------------------------------------------------
 *
 * vector.c
 *	  The keys and vectors of embedding tables, as PostgreSQL stores them.
 *
 * Vectors are arrays of real or double precision, or values of the types vector
 * and halfvec of the extension vector (pgvector), which is known by its name only.
 * All become float32: doubles are rounded, and become infinite where they are too
 * large.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "catalog/dependency.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "mirror/mirror.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

/* Is this the type of that name of the extension vector? */
static bool
is_pgvector_type(Oid type, const char *name)
{
	HeapTuple	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
	bool		same;
	Oid			extension;
	char	   *extension_name;

	if (!HeapTupleIsValid(tuple))
		return false;
	same = strcmp(NameStr(((Form_pg_type) GETSTRUCT(tuple))->typname), name) == 0;
	ReleaseSysCache(tuple);
	if (!same)
		return false;
	extension = getExtensionOfObject(TypeRelationId, type);
	extension_name = OidIsValid(extension) ? get_extension_name(extension) : NULL;
	return extension_name != NULL && strcmp(extension_name, "vector") == 0;
}

/* What vectors of this type, or domain, are like */
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

/* Can keys have this type, or domain? */
bool
MirrorKeyType(Oid type)
{
	type = getBaseType(type);
	return type == INT2OID || type == INT4OID || type == INT8OID;
}

/* A key; `type` is no domain */
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

/* An array */
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

/* What pgvector stores: the number of elements, 16 unused bits, elements */
typedef struct PgVector
{
	int32		header;
	int16		dim;
	int16		unused;
	char		elements[FLEXIBLE_ARRAY_MEMBER];
} PgVector;

/* A vector of pgvector */
static void
decode_pgvector(const PgVector *value, MirrorVectorType type, MirrorVector *vector)
{
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

/* The elements of a vector, which is not out of line */
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

/* The same as the mirror has them: rounded to float16 if that is how they are stored */
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
