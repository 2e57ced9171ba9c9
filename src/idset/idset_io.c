/*-------------------------------------------------------------------------
 *
 * idset_io.c
 *	  Text and binary input and output of sets.
 *
 * Text input is an array literal, {3,17,50000}, or a JSON array, [3,17], of
 * integers in any order, with duplicates or not.  Output is ascending, in
 * braces.  White space is allowed around every bracket, comma and number.
 * Text that is no such list is error 22P02; an integer out of the range of
 * ids is error 22003; more than 65,536 different ids are error 54000.  From
 * 16 on, all are soft errors, so pg_input_is_valid() and COPY ... (ON_ERROR
 * ignore) work.
 *
 * The binary form is a number (int4), then the ids, ascending and distinct,
 * all in network byte order.  If the number is not negative, it is that of
 * the ids, and each has two bytes: all narrow sets are sent so.  Else it is
 * the negated number of the ids, and each has four bytes.  A client may send
 * any set but the empty one in this form, and need not look for ids above
 * 65535.  A server that knows only narrow sets refuses a negative number, and
 * never takes the one form for the other.
 *
 * Anything else is error 22P03: to report a sender that counts or sorts
 * wrongly is better than to correct it.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "catalog/pg_type.h"
#include "idset/idset.h"
#include "lib/stringinfo.h"
#include "libpq/pqformat.h"
#include "mb/pg_wchar.h"
#include "parser/scansup.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

PG_FUNCTION_INFO_V1(idset_in);
PG_FUNCTION_INFO_V1(idset_out);
PG_FUNCTION_INFO_V1(idset_recv);
PG_FUNCTION_INFO_V1(idset_send);

/* The text being read */
typedef struct IdSetReader
{
	const char *text;			/* the whole text, for messages */
	const char *p;				/* the rest */
	Node	   *escontext;		/* for soft errors, or NULL */
} IdSetReader;

/* Report invalid text.  Returns false, for the caller to return. */
static bool
syntax_error(IdSetReader *reader, const char *detail)
{
	errsave(reader->escontext,
			(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
			 errmsg("invalid input syntax for type %s: \"%s\"", "idset", reader->text),
			 errdetail("%s", detail),
			 errhint("Write a set as {3,17,50000} or [3,17,50000].")));
	return false;
}

/* Report that the next character is not expected */
static bool
unexpected(IdSetReader *reader)
{
	if (*reader->p == '\0')
		return syntax_error(reader, "Unexpected end of input.");
	return syntax_error(reader, psprintf("Unexpected \"%.*s\" character.",
										 pg_mblen(reader->p), reader->p));
}

/* Skip white space, which is the same in every locale */
static void
skip_space(IdSetReader *reader)
{
	while (scanner_isspace(*reader->p))
	{
		GPUVEC_STEP(reader->p - reader->text);
		reader->p++;
	}
}

/* isdigit() that is the same in every locale */
static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* True if this character ends an element */
static bool
ends_element(char c)
{
	return c == '\0' || c == ',' || c == '"' || c == '{' || c == '}' || c == '[' || c == ']' || scanner_isspace(c);
}

/* Report an element that is not an integer */
static bool
element_error(IdSetReader *reader)
{
	int			length = 0;

	if (*reader->p == '{' || *reader->p == '[')
		return syntax_error(reader, "A set has one dimension and no elements but ids.");
	if (*reader->p == '"')
		return syntax_error(reader, "A quoted element must be one whole number.");
	while (!ends_element(reader->p[length]))
	{
		GPUVEC_STEP(length);
		length++;
	}
	if (length == 0)
		return unexpected(reader);
	if (length == 4 && pg_strncasecmp(reader->p, "null", 4) == 0)
		return syntax_error(reader, "A set has no null elements.");
	return syntax_error(reader, psprintf("\"%.*s\" is not a whole number.", length, reader->p));
}

/* Read one id without quotes; false after a soft error */
static bool
read_number(IdSetReader *reader, uint32 *id)
{
	const char *start = reader->p;
	const char *p = start;
	uint64		number = 0;
	bool		negative = *p == '-';

	if (*p == '-' || *p == '+')
		p++;
	if (!is_digit(*p))
		return element_error(reader);
	for (; is_digit(*p); p++)
	{
		GPUVEC_STEP(p - start);
		if (number <= IDSET_MAX_ID) /* no overflow: a larger number is out of
									 * range anyway */
			number = number * 10 + (*p - '0');
	}
	if (!ends_element(*p))
		return element_error(reader);
	if (number > IDSET_MAX_ID || (negative && number > 0))
	{
		errsave(reader->escontext,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("id %.*s is out of range for type %s", (int) (p - start), start, "idset"),
				 errdetail("Ids are 0 to " UINT64_FORMAT ".", IDSET_MAX_ID)));
		return false;
	}
	reader->p = p;
	*id = (uint32) number;
	return true;
}

/*
 * Read one id; false after a soft error.  Some drivers quote all elements of
 * an array.  As in arrays, quotes do not change the meaning of a number.
 */
static bool
read_id(IdSetReader *reader, uint32 *id)
{
	const char *start = reader->p;

	if (*start != '"')
		return read_number(reader, id);
	reader->p++;
	skip_space(reader);
	if (!is_digit(*reader->p) && *reader->p != '+' && *reader->p != '-')
	{
		reader->p = start;
		return element_error(reader);
	}
	if (!read_number(reader, id))
		return false;
	skip_space(reader);
	if (*reader->p != '"')
	{
		reader->p = start;
		return element_error(reader);
	}
	reader->p++;
	return true;
}

/* Read a whole set; false after a soft error */
static bool
read_set(IdSetReader *reader, IdSet **set)
{
	uint32		capacity = 64;
	uint32		n = 0;
	uint32	   *ids = palloc(capacity * sizeof(uint32));
	char		close;

	skip_space(reader);
	if (*reader->p != '{' && *reader->p != '[')
		return syntax_error(reader, "A set begins with \"{\" or \"[\".");
	close = *reader->p++ == '{' ? '}' : ']';
	skip_space(reader);
	while (*reader->p != close || n > 0)
	{
		if (n == capacity)
		{
			/* with duplicates, a text may have more ids than any set */
			capacity *= 2;
			ids = repalloc_huge(ids, capacity * sizeof(uint32));
		}
		GPUVEC_STEP(n);
		if (!read_id(reader, &ids[n++]))
			return false;
		skip_space(reader);
		if (*reader->p != ',')
			break;
		reader->p++;
		skip_space(reader);
	}
	if (*reader->p != close)
		return unexpected(reader);
	reader->p++;
	skip_space(reader);
	if (*reader->p != '\0')
		return syntax_error(reader, psprintf("Junk after closing \"%c\".", close));
	*set = idset_from_ids_safe(ids, n, reader->escontext);
	return *set != NULL;
}

bool
idset_type_reads(Oid type, PGFunction input)
{
	FmgrInfo	info;
	Oid			oid;
	Oid			param;

	if (get_typtype(type) != TYPTYPE_BASE)
		return false;
	getTypeInputInfo(type, &oid, &param);
	fmgr_info(oid, &info);
	return info.fn_addr == input;
}

bool
idset_is_type(Oid type)
{
	return idset_type_reads(type, idset_in);
}

/* idset_in(cstring) */
Datum
idset_in(PG_FUNCTION_ARGS)
{
	IdSetReader reader;
	IdSet	   *set = NULL;

	reader.text = PG_GETARG_CSTRING(0);
	reader.p = reader.text;
	reader.escontext = fcinfo->context;
	if (!read_set(&reader, &set))
		PG_RETURN_NULL();
	PG_RETURN_IDSET_P(set);
}

/* idset_out(idset) */
Datum
idset_out(PG_FUNCTION_ARGS)
{
	IdSet	   *set = PG_GETARG_IDSET_P(0);
	uint32		n = idset_count(set);
	char	   *text = palloc((Size) n * (idset_is_wide(set) ? 11 : 6) + 3);
	char	   *p = text;

	*p++ = '{';
	for (uint32 i = 0; i < n; i++)
	{
		if (i > 0)
			*p++ = ',';
		p += pg_ultoa_n(idset_id(set, i), p);
	}
	*p++ = '}';
	*p = '\0';
	PG_FREE_IF_COPY(set, 0);
	PG_RETURN_CSTRING(text);
}

/*
 * Read the number of ids of a binary value, and their width in bytes; check
 * that the value's length fits
 */
static uint32
receive_count(StringInfo buf, int *width)
{
	int			bytes = buf->len - buf->cursor;
	int32		n;

	if (bytes < (int) sizeof(int32))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
				 errmsg("invalid length of external \"idset\" value"),
				 errdetail("A value has at least %d bytes, not %d.", (int) sizeof(int32), bytes)));
	n = pq_getmsgint(buf, sizeof(int32));
	bytes -= sizeof(int32);
	if (n < -GPUVEC_MAX_IDS || n > GPUVEC_MAX_IDS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
				 errmsg("invalid number of ids in external \"idset\" value: %d", n)));
	*width = n < 0 ? sizeof(uint32) : sizeof(uint16);
	n = abs(n);
	if (bytes != n * *width)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
				 errmsg("invalid length of external \"idset\" value"),
				 errdetail("%d ids take %d bytes, not %d.", n, n * *width, bytes)));
	return n;
}

/* idset_recv(internal) */
Datum
idset_recv(PG_FUNCTION_ARGS)
{
	StringInfo	buf = (StringInfo) PG_GETARG_POINTER(0);
	int			width;
	uint32		n = receive_count(buf, &width);
	uint32	   *ids = palloc(Max(n, 1) * sizeof(uint32));
	IdSet	   *set;

	for (uint32 i = 0; i < n; i++)
	{
		ids[i] = pq_getmsgint(buf, width);
		if (i > 0 && ids[i] <= ids[i - 1])
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
					 errmsg("invalid order of ids in external \"idset\" value"),
					 errdetail("Id %u follows id %u; ids must be ascending and distinct.",
							   ids[i], ids[i - 1])));
	}
	set = idset_from_sorted(ids, n);
	pfree(ids);
	PG_RETURN_IDSET_P(set);
}

/* idset_send(idset) */
Datum
idset_send(PG_FUNCTION_ARGS)
{
	IdSet	   *set = PG_GETARG_IDSET_P(0);
	uint32		n = idset_count(set);
	bool		wide = idset_is_wide(set);
	StringInfoData buf;

	pq_begintypsend(&buf);
	enlargeStringInfo(&buf, sizeof(int32) + n * (wide ? sizeof(uint32) : sizeof(uint16)));
	pq_sendint32(&buf, wide ? -(int32) n : (int32) n);
	for (uint32 i = 0; i < n; i++)
	{
		if (wide)
			pq_sendint32(&buf, idset_wide_ids(set)[i]);
		else
			pq_sendint16(&buf, idset_ids(set)[i]);
	}
	PG_FREE_IF_COPY(set, 0);
	PG_RETURN_BYTEA_P(pq_endtypsend(&buf));
}
