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
 *	macaddr, macaddr8		all six or eight bytes, the first one on top
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
#include "utils/float.h"
#include "utils/fmgrprotos.h"
#include "utils/inet.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

/* Bytes of a text that its key begins with */
#define PREFIX_BYTES	4

#define SIGN_BIT		(UINT64CONST(1) << 63)
#define LOW_HALF		UINT64CONST(0xFFFFFFFF)

/* The key of an integer, date or time */
static uint64
integer_key(const FilterColumn *column, Datum value)
{
	int64		number;

	switch (column->type)
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

static Datum
integer_value(const FilterColumn *column, uint64 key)
{
	int64		number = (int64) (key ^ SIGN_BIT);

	switch (column->type)
	{
		case INT2OID:
			return Int16GetDatum((int16) number);
		case INT4OID:
			return Int32GetDatum((int32) number);
		case DATEOID:
			return DateADTGetDatum((DateADT) number);
		default:
			return Int64GetDatum(number);
	}
}

/* The key of a number, as a float8 */
static uint64
number_key(float8 value)
{
	uint64		bits;

	if (isnan(value))
		return PG_UINT64_MAX;
	if (value == 0)
		value = 0;				/* not -0 */
	memcpy(&bits, &value, sizeof(bits));
	return (bits & SIGN_BIT) != 0 ? ~bits : bits | SIGN_BIT;
}

static uint64
float_key(const FilterColumn *column, Datum value)
{
	return number_key(column->type == FLOAT4OID ? DatumGetFloat4(value) : DatumGetFloat8(value));
}

static Datum
float_value(const FilterColumn *column, uint64 key)
{
	uint64		bits = (key & SIGN_BIT) != 0 ? key ^ SIGN_BIT : ~key;
	float8		value;

	memcpy(&value, &bits, sizeof(value));
	if (key == PG_UINT64_MAX)
		value = get_float8_nan();
	return column->type == FLOAT4OID ? Float4GetDatum((float4) value) : Float8GetDatum(value);
}

static uint64
numeric_key(const FilterColumn *column, Datum value)
{
	return number_key(DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, value)));
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

/* At most eight bytes, as a number in the order of their values */
static uint64
bytes_key(const unsigned char *bytes, int n)
{
	uint64		key = 0;

	for (int i = 0; i < n; i++)
		key = key << 8 | bytes[i];
	return key;
}

/* The first eight bytes of a UUID */
static uint64
uuid_key(const FilterColumn *column, Datum value)
{
	return bytes_key(DatumGetUUIDP(value)->data, 8);
}

/* The bytes of a hardware address, which the server compares unsigned */
static uint64
mac_key(const FilterColumn *column, Datum value)
{
	return bytes_key((const unsigned char *) DatumGetPointer(value),
					 column->type == MACADDROID ? sizeof(macaddr) : sizeof(macaddr8));
}

/* The bit of an id, by the highest bits of a product */
static uint64
id_bit(uint32 id)
{
	return UINT64CONST(1) << (id * UINT32_C(0x9E3779B1) >> 26);
}

/* A bit for each id of a set, or of the number in tags @> 17 */
static uint64
set_key(const FilterColumn *column, Datum value)
{
	gpuvec_id_span set;
	uint64		key = 0;

	/* no set has a number that is not an id */
	if (column->type == INT8OID)
		return id_bit((uint32) DatumGetInt64(value));
	set = idset_span(DatumGetIdSetP(value));
	for (uint32 i = 0; i < set.n; i++)
		key |= id_bit(idset_id_at(set.ids, set.wide, i));
	return key;
}

static uint64
bool_key(const FilterColumn *column, Datum value)
{
	return DatumGetBool(value) ? 1 : 0;
}

static Datum
bool_value(const FilterColumn *column, uint64 key)
{
	return BoolGetDatum(key != 0);
}

static uint64
enum_key(const FilterColumn *column, Datum value)
{
	return DatumGetObjectId(value);
}

static Datum
enum_value(const FilterColumn *column, uint64 key)
{
	return ObjectIdGetDatum((Oid) key);
}

static uint64
inet_key(const FilterColumn *column, Datum value)
{
	return DatumGetUInt64(DirectFunctionCall2(hashinetextended, value, Int64GetDatum(0)));
}

/*
 * Equal values have equal keys, and an order is that of all operators: else
 * rows are lost.  A kind without types or without a function is refused where
 * an index is made.  Only exact keys can become values again.
 */
const FilterKindRow FilterKinds[] = {
	[FILTER_INTEGER] = {{INT2OID, INT4OID, INT8OID}, integer_key, integer_value, FILTER_BY_KEY, .exact = true, .mixed = true},
	[FILTER_TIME] = {{DATEOID, TIMESTAMPOID, TIMESTAMPTZOID}, integer_key, integer_value, FILTER_BY_KEY, .exact = true},
	[FILTER_BOOL] = {{BOOLOID}, bool_key, bool_value, FILTER_BY_KEY, .exact = true},
	[FILTER_FLOAT] = {{FLOAT4OID, FLOAT8OID}, float_key, float_value, FILTER_BY_KEY, .exact = true, .mixed = true},
	[FILTER_NUMERIC] = {{NUMERICOID}, numeric_key, NULL, FILTER_BY_KEY},
	[FILTER_TEXT] = {{TEXTOID}, text_key, NULL, FILTER_BY_PREFIX},
	[FILTER_BPCHAR] = {{BPCHAROID}, text_key, NULL, FILTER_BY_PREFIX},
	[FILTER_UUID] = {{UUIDOID}, uuid_key, NULL, FILTER_BY_KEY},
	[FILTER_ENUM] = {{ANYENUMOID}, enum_key, enum_value, FILTER_BY_LABEL, .exact = true},
	[FILTER_INET] = {{INETOID}, inet_key, NULL, FILTER_UNORDERED},
	[FILTER_MAC] = {{MACADDROID, MACADDR8OID}, mac_key, NULL, FILTER_BY_KEY, .exact = true},
	/* the type of sets is the extension's: describe_column() */
	[FILTER_SET] = {{InvalidOid}, set_key, NULL, FILTER_BY_BITS}
};

StaticAssertDecl(lengthof(FilterKinds) == FILTER_N_KINDS, "each kind has a row");

FilterKind
FilterKindOf(Oid type)
{
	for (int kind = 0; kind < FILTER_N_KINDS && OidIsValid(type); kind++)
		for (int i = 0; i < FILTER_MOST_TYPES; i++)
			if (FilterKinds[kind].types[i] == type)
				return FilterKinds[kind].key != NULL ? (FilterKind) kind : FILTER_UNKNOWN;
	return FILTER_UNKNOWN;
}

uint64
FilterKey(const FilterColumn *column, Datum value)
{
	uint64		(*key) (const FilterColumn *column, Datum value) = FilterKinds[column->kind].key;
	struct varlena *plain;
	uint64		result;

	if (key == NULL)
		elog(ERROR, "values of type %u have no keys", column->type);
	if (!column->varies)
		return key(column, value);
	plain = PG_DETOAST_DATUM_PACKED(value);
	result = key(column, PointerGetDatum(plain));
	if ((Pointer) plain != DatumGetPointer(value))
		pfree(plain);
	return result;
}

bool
FilterHasValues(const FilterColumn *column)
{
	return FilterKinds[column->kind].value != NULL;
}

Datum
FilterValue(const FilterColumn *column, uint64 key)
{
	return FilterKinds[column->kind].value(column, key);
}

void
FilterSetType(FilterColumn *column, Oid type)
{
	column->type = type;
	column->varies = get_typlen(type) < 0;
}

/* Describe a column by its operator class */
static void
describe_column(AttrNumber attnum, Oid opclass, Oid collation, FilterColumn *column)
{
	Oid			type = get_opclass_input_type(opclass);

	column->attnum = attnum;
	column->kind = FilterKindOf(type);
	if (column->kind == FILTER_UNKNOWN && idset_is_type(type))
		column->kind = FILTER_SET;
	column->collation = collation;
	column->prefix = FilterKinds[column->kind].order == FILTER_BY_PREFIX &&
		GpuvecCollationIsC(collation);
	FilterSetType(column, type);
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

	memset(filters, 0, sizeof(*filters));
	if (form->indnkeyatts <= 1)
		return;
	classes = (oidvector *) DatumGetPointer(index_datum(index, Anum_pg_index_indclass));
	collations = (oidvector *) DatumGetPointer(index_datum(index, Anum_pg_index_indcollation));
	filters->n = Min(form->indnkeyatts - 1, GPUVEC_MAX_FILTERS);
	for (int i = 0; i < filters->n; i++)
		describe_column(form->indkey.values[i + 1], classes->values[i + 1],
						collations->values[i + 1], &filters->columns[i]);
}

void
FilterKeys(const FilterColumns *filters, const Datum *values, const bool *isnull, uint64 *filter_keys)
{
	filter_keys[0] = isnull[0];
	for (int i = 1; i <= filters->n; i++)
	{
		filter_keys[0] |= (uint64) isnull[i] << i;
		filter_keys[i] = isnull[i] ? 0 : FilterKey(&filters->columns[i - 1], values[i]);
	}
}
