/*-------------------------------------------------------------------------
 *
 * filter_key.c
 *	  Filter columns of an index, and the keys of their values.
 *
 * The engine compares keys of 64 bits (core/filter.h).  What a key is depends
 * on the input type of the column's operator class, which is a built-in type
 * or a set: only functions of the server and of this file see the values.
 *
 *	integers, dates, times	the value, with its sign flipped: keys are in the
 *							order of the values as unsigned numbers
 *	bool					0 or 1
 *	float4, float8			the bits of the float8, so changed that they are
 *							in the order of the server's operators: -0 is 0,
 *							and all NaN are one value above infinity
 *	numeric					the same of the nearest float8.  Rounding keeps the
 *							order, but different values may have one key.
 *	text, char(n)			above, the first four bytes, if the collation
 *							orders by bytes, else 0.  Below, 32 bits of the
 *							server's hash, which is equal for values that are
 *							equal under the collation.
 *	uuid					the first eight bytes
 *	enum					the label's OID, which stays when others are added,
 *							or it is renamed.  OIDs are in no order: a range
 *							is a list of labels (index/conditions.c).
 *	inet, cidr				a hash
 *	set						a bit for each id, by a hash of it
 *
 * Keys of rows that an index keeps lie on its pages.  Who changes how a key is
 * made gives these pages another version (entry_page.h), and raises
 * FILTER_VERSION, which is part of a mirror's key.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "access/htup_details.h"
#include "catalog/pg_index.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "idset/idset.h"
#include "mirror/describe/filter_key.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

/* Bytes of a text that its key begins with */
#define PREFIX_BYTES	4

#define SIGN_BIT		(UINT64CONST(1) << 63)
#define LOW_HALF		UINT64CONST(0xFFFFFFFF)

FilterKind
FilterKindOf(Oid type)
{
	switch (type)
	{
		case INT2OID:
		case INT4OID:
		case INT8OID:
			return FILTER_INTEGER;
		case DATEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			return FILTER_TIME;
		case BOOLOID:
			return FILTER_BOOL;
		case FLOAT4OID:
		case FLOAT8OID:
			return FILTER_FLOAT;
		case NUMERICOID:
			return FILTER_NUMERIC;
		case TEXTOID:
			return FILTER_TEXT;
		case BPCHAROID:
			return FILTER_BPCHAR;
		case UUIDOID:
			return FILTER_UUID;
		case ANYENUMOID:
			return FILTER_ENUM;
		case INETOID:
			return FILTER_INET;
		default:
			return FILTER_UNKNOWN;
	}
}

bool
FilterKindExact(FilterKind kind)
{
	return kind == FILTER_INTEGER || kind == FILTER_TIME || kind == FILTER_BOOL ||
		kind == FILTER_FLOAT || kind == FILTER_ENUM;
}

/* Describe a column by its operator class; sets have the type `set` */
static void
describe_column(AttrNumber attnum, Oid opclass, Oid collation, Oid set, FilterColumn *column)
{
	column->attnum = attnum;
	column->type = get_opclass_input_type(opclass);
	column->kind = column->type == set ? FILTER_SET : FilterKindOf(column->type);
	column->collation = collation;
	column->prefix = (column->kind == FILTER_TEXT || column->kind == FILTER_BPCHAR) &&
		GpuvecCollationIsC(collation);
}

/* A column of pg_index that is of variable length, and never null */
static Datum
index_datum(HeapTuple index, AttrNumber attnum)
{
	bool		isnull;

	return SysCacheGetAttr(INDEXRELID, index, attnum, &isnull);
}

void
FilterDescribe(HeapTuple index, FilterColumns *filters)
{
	Form_pg_index form = (Form_pg_index) GETSTRUCT(index);
	const		oidvector *classes;
	const		oidvector *collations;
	Oid			set;

	memset(filters, 0, sizeof(*filters));
	if (form->indnkeyatts <= 1)
		return;
	classes = (oidvector *) DatumGetPointer(index_datum(index, Anum_pg_index_indclass));
	collations = (oidvector *) DatumGetPointer(index_datum(index, Anum_pg_index_indcollation));
	set = get_opclass_input_type(classes->values[0]);
	filters->n = Min(form->indnkeyatts - 1, GPUVEC_MAX_FILTERS);
	for (int i = 0; i < filters->n; i++)
		describe_column(form->indkey.values[i + 1], classes->values[i + 1],
						collations->values[i + 1], set, &filters->columns[i]);
}

/* The key of an integer, date or time */
static uint64
integer_key(Oid type, Datum value)
{
	int64		number;

	switch (type)
	{
		case INT2OID:
			number = DatumGetInt16(value);
			break;
		case INT4OID:
			number = DatumGetInt32(value);
			break;
		case DATEOID:
			number = DatumGetDateADT(value);
			break;
		default:
			number = DatumGetInt64(value);
			break;
	}
	return (uint64) number ^ SIGN_BIT;
}

/* The key of a float8 */
static uint64
float_key(float8 value)
{
	uint64		bits;

	if (isnan(value))
		return PG_UINT64_MAX;
	if (value == 0)
		value = 0;				/* not -0 */
	memcpy(&bits, &value, sizeof(bits));
	return (bits & SIGN_BIT) != 0 ? ~bits : bits | SIGN_BIT;
}

/* The first bytes of a text, as a number that is in the order of bytes */
static uint64
prefix_of(const char *text, int length)
{
	uint64		prefix = 0;

	for (int i = 0; i < PREFIX_BYTES; i++)
		prefix = prefix << 8 | (i < length ? (unsigned char) text[i] : 0);
	return prefix << 32;
}

/* The key of a text: blanks at the end of a char(n) do not count */
static uint64
text_key(const FilterColumn *column, Datum value)
{
	text	   *string = DatumGetTextPP(value);
	bool		padded = column->kind == FILTER_BPCHAR;
	PGFunction	hash = padded ? hashbpcharextended : hashtextextended;
	int			length = VARSIZE_ANY_EXHDR(string);
	uint64		key;

	if (padded)
		length = bpchartruelen(VARDATA_ANY(string), length);
	key = DatumGetUInt64(DirectFunctionCall2Coll(hash, column->collation,
												 PointerGetDatum(string), Int64GetDatum(0))) & LOW_HALF;
	if (column->prefix)
		key |= prefix_of(VARDATA_ANY(string), length);
	return key;
}

/* The first eight bytes of a UUID, as a number in the order of UUIDs */
static uint64
uuid_key(Datum value)
{
	const		pg_uuid_t *uuid = DatumGetUUIDP(value);
	uint64		key = 0;

	for (int i = 0; i < 8; i++)
		key = key << 8 | uuid->data[i];
	return key;
}

/* The bit of an id, by the highest bits of a product */
static uint64
id_bit(uint32 id)
{
	return UINT64CONST(1) << (id * UINT32_C(0x9E3779B1) >> 26);
}

/* A bit for each id of a set */
static uint64
set_key(Datum value)
{
	gpuvec_id_span set = idset_span(DatumGetIdSetP(value));
	uint64		key = 0;

	for (uint32 i = 0; i < set.n; i++)
		key |= id_bit(idset_id_at(set.ids, set.wide, i));
	return key;
}

uint64
FilterKey(const FilterColumn *column, Oid type, Datum value)
{
	switch (column->kind)
	{
		case FILTER_INTEGER:
		case FILTER_TIME:
			return integer_key(type, value);
		case FILTER_BOOL:
			return DatumGetBool(value) ? 1 : 0;
		case FILTER_FLOAT:
			return float_key(type == FLOAT4OID ? DatumGetFloat4(value) : DatumGetFloat8(value));
		case FILTER_NUMERIC:
			return float_key(DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, value)));
		case FILTER_TEXT:
		case FILTER_BPCHAR:
			return text_key(column, value);
		case FILTER_UUID:
			return uuid_key(value);
		case FILTER_ENUM:
			return DatumGetObjectId(value);
		case FILTER_INET:
			return DatumGetUInt64(DirectFunctionCall2(hashinetextended, value, Int64GetDatum(0)));
		case FILTER_SET:
			/* tags @> 17; no set has a number that is not an id */
			return type == INT8OID ? id_bit((uint32) DatumGetInt64(value)) : set_key(value);
		case FILTER_UNKNOWN:
			break;
	}
	elog(ERROR, "values of type %u have no keys", type);
	return 0;
}

uint64
FilterKeyOfAny(const FilterColumn *column, Datum value)
{
	struct varlena *plain;
	uint64		key;

	if (!FilterVaries(column) || column->type == INT8OID)
		return FilterKey(column, column->type, value);
	plain = PG_DETOAST_DATUM_PACKED(value);
	key = FilterKey(column, column->type, PointerGetDatum(plain));
	if ((Pointer) plain != DatumGetPointer(value))
		pfree(plain);
	return key;
}

void
FilterWords(const FilterColumns *filters, const Datum *values, const bool *isnull, uint64 *words)
{
	words[0] = isnull[0];
	for (int i = 1; i <= filters->n; i++)
	{
		words[0] |= (uint64) isnull[i] << i;
		words[i] = isnull[i] ? 0 : FilterKeyOfAny(&filters->columns[i - 1], values[i]);
	}
}
