/*-------------------------------------------------------------------------
 *
 * idset_bits.c
 *	  Conversions between sets and bits: bit, bit varying, bytea.
 *
 * Bit i stands for id i.  In a bit string, bit 0 is the leftmost one.  In a
 * bytea, bit 0 is the least significant bit of the first byte, as in
 * PostgreSQL's get_bit(), RDKit's bfp_to_binary_text() and chemfp's files.
 *
 * An id that does not fit the length that was asked for is an error: to cut
 * it off would give the bits of another set.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "idset/idset.h"
#include "port/pg_bitutils.h"
#include "utils/varbit.h"

PG_FUNCTION_INFO_V1(varbit_to_idset);
PG_FUNCTION_INFO_V1(idset_to_bit);
PG_FUNCTION_INFO_V1(idset_cast_to_bit);
PG_FUNCTION_INFO_V1(idset_cast_to_varbit);
PG_FUNCTION_INFO_V1(idset_from_bytea);
PG_FUNCTION_INFO_V1(idset_to_bytea);

/* The mask of bit i of a byte */
static inline int
bit_mask(int i, bool leftmost_first)
{
	return leftmost_first ? HIGHBIT >> i : 1 << i;
}

/* The set of the bits that are set */
static IdSet *
set_from_bits(const uint8 *bytes, int nbytes, bool leftmost_first)
{
	uint64		count = pg_popcount((const char *) bytes, nbytes);
	uint32		n = 0;
	uint32	   *ids;

	if (count > GPUVEC_MAX_IDS)
		return idset_from_sorted(NULL, (uint32) Min(count, PG_UINT32_MAX)); /* an error */
	ids = palloc_array(uint32, Max(count, 1));
	for (int byte = 0; byte < nbytes; byte++)
	{
		GPUVEC_STEP(byte);
		for (int i = 0; bytes[byte] != 0 && i < 8; i++)
			if (bytes[byte] & bit_mask(i, leftmost_first))
				ids[n++] = idset_check_id((int64) byte * 8 + i);
	}
	return idset_from_sorted(ids, n);
}

/* Set the bits of a set; there is room for all of them */
static void
set_bits(const IdSet *set, uint8 *bytes, bool leftmost_first)
{
	uint32		n = idset_count(set);

	for (uint32 i = 0; i < n; i++)
	{
		uint32		id = idset_id(set, i);

		bytes[id / 8] |= bit_mask(id % 8, leftmost_first);
	}
}

/* The number of bits that a set needs */
static int64
needed_bits(const IdSet *set)
{
	uint32		n = idset_count(set);

	return n == 0 ? 0 : (int64) idset_id(set, n - 1) + 1;
}

/* Raise an error if a set does not fit `bits` bits */
static void
check_fits(const IdSet *set, int64 bits)
{
	int64		needed = needed_bits(set);

	if (needed > bits)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg_plural("id " INT64_FORMAT " does not fit " INT64_FORMAT " bit",
							   "id " INT64_FORMAT " does not fit " INT64_FORMAT " bits",
							   (unsigned long) bits, needed - 1, bits),
				 errhint("The set needs at least " INT64_FORMAT " bits.", needed)));
}

/* A bit string of a set, of the given number of bits */
static VarBit *
bit_string(const IdSet *set, int bits)
{
	VarBit	   *result;

	if (bits < 0 || bits > VARBITMAXLEN)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a bit string cannot have %d bits", bits),
				 errhint("Give a length from 0 to %d.", VARBITMAXLEN)));
	check_fits(set, bits);
	result = palloc0(VARBITTOTALLEN(bits));
	SET_VARSIZE(result, VARBITTOTALLEN(bits));
	VARBITLEN(result) = bits;
	set_bits(set, VARBITS(result), true);
	return result;
}

/* The same, as long as the set needs */
static VarBit *
shortest_bit_string(const IdSet *set)
{
	check_fits(set, VARBITMAXLEN);
	return bit_string(set, (int) needed_bits(set));
}

/* Cast of bit and bit varying to idset */
Datum
varbit_to_idset(PG_FUNCTION_ARGS)
{
	VarBit	   *bits = PG_GETARG_VARBIT_P(0);

	PG_RETURN_IDSET_P(set_from_bits(VARBITS(bits), VARBITBYTES(bits), true));
}

/* idset_to_bit(idset, int4): a bit string of the given length */
Datum
idset_to_bit(PG_FUNCTION_ARGS)
{
	PG_RETURN_VARBIT_P(bit_string(PG_GETARG_IDSET_P(0), PG_GETARG_INT32(1)));
}

/*
 * Cast of idset to bit(n); a type without a length fits.  The server would
 * cut off what is beyond the length, without an error.
 */
Datum
idset_cast_to_bit(PG_FUNCTION_ARGS)
{
	IdSet	   *set = PG_GETARG_IDSET_P(0);
	int32		bits = PG_GETARG_INT32(1);

	PG_RETURN_VARBIT_P(bits < 0 ? shortest_bit_string(set) : bit_string(set, bits));
}

/* Cast of idset to bit varying(n) */
Datum
idset_cast_to_varbit(PG_FUNCTION_ARGS)
{
	IdSet	   *set = PG_GETARG_IDSET_P(0);
	int32		bits = PG_GETARG_INT32(1);

	if (bits >= 0)
		check_fits(set, bits);
	PG_RETURN_VARBIT_P(shortest_bit_string(set));
}

/* idset_from_bytea(bytea): the set of the bits that are set */
Datum
idset_from_bytea(PG_FUNCTION_ARGS)
{
	bytea	   *bytes = PG_GETARG_BYTEA_PP(0);

	PG_RETURN_IDSET_P(set_from_bits((const uint8 *) VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes),
									false));
}

/* idset_to_bytea(idset, int4): the bits of a set in this many bytes */
Datum
idset_to_bytea(PG_FUNCTION_ARGS)
{
	IdSet	   *set = PG_GETARG_IDSET_P(0);
	int32		nbytes = PG_GETARG_INT32(1);
	bytea	   *result;

	if (nbytes < 0 || nbytes > MaxAllocSize - VARHDRSZ)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a bytea cannot have %d bytes", nbytes),
				 errhint("Give a length from 0 to %d.", (int) (MaxAllocSize - VARHDRSZ))));
	check_fits(set, (int64) nbytes * 8);
	result = palloc0(VARHDRSZ + nbytes);
	SET_VARSIZE(result, VARHDRSZ + nbytes);
	set_bits(set, (uint8 *) VARDATA(result), false);
	PG_RETURN_BYTEA_P(result);
}
