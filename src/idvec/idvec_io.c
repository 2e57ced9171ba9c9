/*-------------------------------------------------------------------------
 *
 * idvec_io.c
 *	  Text and binary input and output of sparse vectors.
 *
 * Text input is {3:0.5,17:2}, ids with their values, in any order.  A value
 * of 0 says that the id is not there.  An id that is there twice is error
 * 22P02.  What pgvector's sparsevec writes is understood, too: {1:0.5,3:2}/5.
 * Its indexes are 1 to the number of dimensions, here 5, and become ids as
 * they are; one that is not in that range is error 22003.  White space is
 * allowed between all parts.  Output is ascending by id, and each value is
 * the shortest number that is read as the same float4.
 *
 * From 16 on, errors of input are soft.
 *
 * The binary form, all in network byte order: the number of ids (int4); flags
 * (int1), 1 if ids have four bytes, else they have two, and 2 if values have
 * one byte, else they are float4; the ids, ascending and distinct; the
 * values, finite and not 0.  A client may send the flag 1, and leave out the
 * flag 2, whatever the ids and values are.  Anything else is error 22P03.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "common/shortest_dec.h"
#include "idvec/idvec.h"
#include "lib/stringinfo.h"
#include "libpq/pqformat.h"
#include "mb/pg_wchar.h"
#include "parser/scansup.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

PG_FUNCTION_INFO_V1(idvec_in);
PG_FUNCTION_INFO_V1(idvec_out);
PG_FUNCTION_INFO_V1(idvec_recv);
PG_FUNCTION_INFO_V1(idvec_send);

/* Flags of the binary form */
#define SENT_WIDE		1
#define SENT_SMALL		2

/* The longest number that is read */
#define NUMBER_BYTES	128

/* The text being read */
typedef struct IdVecReader
{
	const char *text;			/* the whole text, for messages */
	const char *p;				/* the rest */
	Node	   *escontext;		/* for soft errors, or NULL */
	IdValue    *pairs;
	uint32		n;
	uint32		capacity;
	uint32		nonzero;		/* of them, so that a text takes no more
								 * memory than some vectors do */
} IdVecReader;

/* Report invalid text.  Returns false, for the caller to return. */
static bool
syntax_error(IdVecReader *reader, const char *detail)
{
	errsave(reader->escontext,
			(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
			 errmsg("invalid input syntax for type %s: \"%s\"", "idvec", reader->text),
			 errdetail("%s", detail),
			 errhint("Write a vector as {3:0.5,17:2}, ids with their values.")));
	return false;
}

/* Report that the next character is not expected */
static bool
unexpected(IdVecReader *reader)
{
	if (*reader->p == '\0')
		return syntax_error(reader, "Unexpected end of input.");
	return syntax_error(reader, psprintf("Unexpected \"%.*s\" character.",
										 pg_mblen(reader->p), reader->p));
}

/* Skip white space, which is the same in every locale */
static void
skip_space(IdVecReader *reader)
{
	while (scanner_isspace(*reader->p))
	{
		GPUVEC_STEP(reader->p - reader->text);
		reader->p++;
	}
}

/* Skip white space and a character; false if it is not there */
static bool
skip_char(IdVecReader *reader, char c)
{
	skip_space(reader);
	if (*reader->p != c)
		return false;
	reader->p++;
	skip_space(reader);
	return true;
}

/* Report a number that is out of range, and what the range is */
static bool
range_error(IdVecReader *reader, const char *what, const char *start, const char *detail)
{
	errsave(reader->escontext,
			(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
			 errmsg("%s %.*s is out of range for type %s", what, (int) (reader->p - start), start, "idvec"),
			 errdetail("%s", detail)));
	return false;
}

/* Read a whole number of at most `most`; false after a soft error */
static bool
read_whole(IdVecReader *reader, const char *what, uint64 most, uint64 *number)
{
	const char *start = reader->p;
	bool		negative = *start == '-';

	if (*reader->p == '-' || *reader->p == '+')
		reader->p++;
	if (!(*reader->p >= '0' && *reader->p <= '9'))
	{
		reader->p = start;
		return unexpected(reader);
	}
	for (*number = 0; *reader->p >= '0' && *reader->p <= '9'; reader->p++)
	{
		GPUVEC_STEP(reader->p - start);
		if (*number <= most)	/* no overflow: it is out of range anyway */
			*number = *number * 10 + (*reader->p - '0');
	}
	if (*number > most || (negative && *number > 0))
		return range_error(reader, what, start, psprintf("The least is 0, the greatest " UINT64_FORMAT ".", most));
	return true;
}

/* Read a value; false after a soft error */
static bool
read_value(IdVecReader *reader, float4 *value)
{
	const char *start = reader->p;
	Size		length = strspn(start, "+-.0123456789eE");
	char		number[NUMBER_BYTES];
	char	   *end;

	if (length == 0)
		return unexpected(reader);
	if (length >= sizeof(number))
		return syntax_error(reader, psprintf("A number has at most %d characters.", NUMBER_BYTES - 1));
	memcpy(number, start, length);
	number[length] = '\0';
	errno = 0;
	*value = strtof(number, &end);
	if (end != number + length)
		return syntax_error(reader, psprintf("\"%s\" is not a number.", number));
	reader->p += length;
	if (isinf(*value))
		return range_error(reader, "value", start, "Values are finite numbers of type real.");
	if (*value == 0 && errno == ERANGE)
		return range_error(reader, "value", start, "It is too near to 0 for type real.");
	return true;
}

/* Read an id and its value; false after a soft error */
static bool
read_pair(IdVecReader *reader)
{
	uint64		id;
	float4		value;

	if (reader->n == reader->capacity)
	{
		reader->capacity *= 2;
		reader->pairs = repalloc_huge(reader->pairs, reader->capacity * sizeof(IdValue));
	}
	GPUVEC_STEP(reader->n);
	if (!read_whole(reader, "id", IDSET_MAX_ID, &id))
		return false;
	if (!skip_char(reader, ':'))
		return syntax_error(reader, psprintf("Id " UINT64_FORMAT " has no value.", id));
	if (!read_value(reader, &value))
		return false;
	reader->pairs[reader->n].id = (uint32) id;
	reader->pairs[reader->n++].value = value;
	reader->nonzero += value != 0;
	return reader->nonzero <= GPUVEC_MAX_IDS || idvec_too_many(reader->escontext);
}

/*
 * Read the number of dimensions, and check that all ids are indexes; false
 * after a soft error
 */
static bool
read_dimensions(IdVecReader *reader)
{
	uint64		dimensions;

	if (!read_whole(reader, "number of dimensions", IDSET_MAX_ID, &dimensions))
		return false;
	for (uint32 i = 0; i < reader->n; i++)
	{
		GPUVEC_STEP(i);
		if (reader->pairs[i].id == 0 || reader->pairs[i].id > dimensions)
		{
			errsave(reader->escontext,
					(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					 errmsg("id %u is out of range for a vector of " UINT64_FORMAT " dimensions",
							reader->pairs[i].id, dimensions),
					 errdetail("With a number of dimensions, ids are 1 to that number."),
					 errhint("Leave out \"/" UINT64_FORMAT "\".", dimensions)));
			return false;
		}
	}
	return true;
}

/* Read a whole vector; NULL after a soft error */
static IdVec *
read_vector(IdVecReader *reader)
{
	if (!skip_char(reader, '{'))
	{
		syntax_error(reader, "A vector begins with \"{\".");
		return NULL;
	}
	if (*reader->p != '}')
	{
		do
		{
			if (!read_pair(reader))
				return NULL;
		} while (skip_char(reader, ','));
	}
	if (!skip_char(reader, '}'))
	{
		unexpected(reader);
		return NULL;
	}
	if (skip_char(reader, '/') && !read_dimensions(reader))
		return NULL;
	skip_space(reader);
	if (*reader->p != '\0')
	{
		syntax_error(reader, "Junk after the vector.");
		return NULL;
	}
	return idvec_from_pairs_safe(reader->pairs, reader->n, reader->escontext);
}

bool
idvec_is_type(Oid type)
{
	return idset_type_reads(type, idvec_in);
}

/* idvec_in(cstring) */
Datum
idvec_in(PG_FUNCTION_ARGS)
{
	IdVecReader reader = {.text = PG_GETARG_CSTRING(0), .escontext = fcinfo->context, .capacity = 64};
	IdVec	   *vector;

	reader.p = reader.text;
	reader.pairs = palloc_array(IdValue, reader.capacity);
	vector = read_vector(&reader);
	if (vector == NULL)
		PG_RETURN_NULL();
	PG_RETURN_IDVEC_P(vector);
}

/* idvec_out(idvec) */
Datum
idvec_out(PG_FUNCTION_ARGS)
{
	IdVec	   *vector = PG_GETARG_IDVEC_P(0);
	gpuvec_sparse sparse = idvec_sparse(vector);
	char	   *text = palloc((Size) sparse.ids.n * (12 + FLOAT_SHORTEST_DECIMAL_LEN) + 3);
	char	   *p = text;

	*p++ = '{';
	for (uint32 i = 0; i < sparse.ids.n; i++)
	{
		if (i > 0)
			*p++ = ',';
		p += pg_ultoa_n(gpuvec_sparse_id(&sparse, i), p);
		*p++ = ':';
		p += float_to_shortest_decimal_bufn(gpuvec_sparse_value(&sparse, i), p);
	}
	*p++ = '}';
	*p = '\0';
	PG_FREE_IF_COPY(vector, 0);
	PG_RETURN_CSTRING(text);
}

/* Report a binary value that is none */
static void
complain_of_binary(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
			 errmsg("invalid external \"idvec\" value"),
			 errdetail_internal("%s", detail)));
}

/* Read a value of the binary form */
static float4
receive_value(StringInfo buf, bool small)
{
	float4		value = small ? (float4) (uint8) pq_getmsgint(buf, 1) : pq_getmsgfloat4(buf);

	if (value == 0 || isnan(value) || isinf(value))
		complain_of_binary("Values must be finite and not 0.");
	return value;
}

/* idvec_recv(internal) */
Datum
idvec_recv(PG_FUNCTION_ARGS)
{
	StringInfo	buf = (StringInfo) PG_GETARG_POINTER(0);
	int			bytes = buf->len - buf->cursor;
	int			width;
	bool		small;
	int32		n;
	int			flags;
	IdValue    *pairs;

	if (bytes < 5)
		complain_of_binary(psprintf("A value has at least 5 bytes, not %d.", bytes));
	n = (int32) pq_getmsgint(buf, sizeof(int32));
	flags = pq_getmsgbyte(buf);
	if (n < 0 || n > GPUVEC_MAX_IDS || (flags & ~(SENT_WIDE | SENT_SMALL)) != 0)
		complain_of_binary(psprintf("There are no vectors of %d ids with flags %d.", n, flags));
	width = flags & SENT_WIDE ? sizeof(uint32) : sizeof(uint16);
	small = (flags & SENT_SMALL) != 0;
	if (bytes != 5 + n * (width + (small ? 1 : (int) sizeof(float4))))
		complain_of_binary(psprintf("%d bytes are too few or too many for %d ids.", bytes, n));
	pairs = palloc_array(IdValue, Max(n, 1));
	for (int i = 0; i < n; i++)
	{
		pairs[i].id = pq_getmsgint(buf, width);
		if (i > 0 && pairs[i].id <= pairs[i - 1].id)
			complain_of_binary(psprintf("Id %u follows id %u; ids must be ascending and distinct.",
										pairs[i].id, pairs[i - 1].id));
	}
	for (int i = 0; i < n; i++)
		pairs[i].value = receive_value(buf, small);
	PG_RETURN_IDVEC_P(idvec_from_sorted(pairs, n));
}

/* idvec_send(idvec) */
Datum
idvec_send(PG_FUNCTION_ARGS)
{
	IdVec	   *vector = PG_GETARG_IDVEC_P(0);
	gpuvec_sparse sparse = idvec_sparse(vector);
	StringInfoData buf;

	pq_begintypsend(&buf);
	enlargeStringInfo(&buf, VARSIZE(vector));
	pq_sendint32(&buf, sparse.ids.n);
	pq_sendint8(&buf, (sparse.ids.wide ? SENT_WIDE : 0) | (sparse.small ? SENT_SMALL : 0));
	for (uint32 i = 0; i < sparse.ids.n; i++)
	{
		if (sparse.ids.wide)
			pq_sendint32(&buf, gpuvec_sparse_id(&sparse, i));
		else
			pq_sendint16(&buf, (uint16) gpuvec_sparse_id(&sparse, i));
	}
	for (uint32 i = 0; i < sparse.ids.n; i++)
	{
		if (sparse.small)
			pq_sendint8(&buf, ((const uint8 *) sparse.values)[i]);
		else
			pq_sendfloat4(&buf, gpuvec_sparse_value(&sparse, i));
	}
	PG_FREE_IF_COPY(vector, 0);
	PG_RETURN_BYTEA_P(pq_endtypsend(&buf));
}
