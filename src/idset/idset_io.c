/*-------------------------------------------------------------------------
 *
 * idset_io.c
 *	  Text and binary representation of sets.
 *
 * Text input is an array literal, {3,17,50000}, or a JSON array, [3,17], of
 * whole numbers in any order; output is ascending, in braces.  Binary is the
 * number of ids (int4), then the ids (uint2), ascending.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <ctype.h>

#include "idset/idset.h"
#include "lib/stringinfo.h"
#include "libpq/pqformat.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(idset_in);
PG_FUNCTION_INFO_V1(idset_out);
PG_FUNCTION_INFO_V1(idset_recv);
PG_FUNCTION_INFO_V1(idset_send);

/* Reports bad text */
static void
syntax_error(const char *text, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
			 errmsg("invalid input syntax for type %s: \"%s\"", "idset", text),
			 errdetail("%s", detail),
			 errhint("Write a set as {3,17,50000} or [3,17,50000].")));
}

static const char *
skip_space(const char *p)
{
	while (isspace((unsigned char) *p))
		p++;
	return p;
}

/* Parse one id; returns what follows it */
static const char *
parse_id(const char *text, const char *p, uint16 *id)
{
	bool		negative = *p == '-';
	uint32		number = 0;
	const char *digits = *p == '-' || *p == '+' ? p + 1 : p;
	const char *end = digits;

	while (isdigit((unsigned char) *end))
	{
		/* what is too large stays too large */
		if (number <= GPUVEC_MAX_ID)
			number = number * 10 + (*end - '0');
		end++;
	}
	if (end == digits)
		syntax_error(text, "A set consists of whole numbers.");
	if (*end != ',' && *end != '}' && *end != ']' && *end != '\0' &&
		!isspace((unsigned char) *end))
		syntax_error(text, "A set consists of whole numbers.");
	if (number > GPUVEC_MAX_ID || (negative && number > 0))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("id %.*s is out of range for type idset", (int) (end - p), p),
				 errdetail("Ids are 0 to %d.", GPUVEC_MAX_ID)));
	*id = (uint16) number;
	return end;
}

Datum
idset_in(PG_FUNCTION_ARGS)
{
	const char *text = PG_GETARG_CSTRING(0);
	const char *p = skip_space(text);
	char		close = *p == '[' ? ']' : '}';
	uint32		room = 64;
	uint32		n = 0;
	uint16	   *ids = palloc(room * sizeof(uint16));

	if (*p != '{' && *p != '[')
		syntax_error(text, "A set begins with \"{\" or \"[\".");
	p = skip_space(p + 1);
	if (*p != close)
	{
		for (;;)
		{
			if (n == room)
			{
				/* duplicates may make input longer than any set */
				room *= 2;
				ids = repalloc_huge(ids, room * sizeof(uint16));
			}
			p = skip_space(parse_id(text, p, &ids[n++]));
			if (*p != ',')
				break;
			p = skip_space(p + 1);
		}
	}
	if (*p != close)
		syntax_error(text, close == ']' ? "A set that begins with \"[\" ends with \"]\"." :
					 "A set that begins with \"{\" ends with \"}\".");
	if (*skip_space(p + 1) != '\0')
		syntax_error(text, "Junk follows the end of the set.");
	PG_RETURN_IDSET_P(idset_from_ids(ids, n));
}

Datum
idset_out(PG_FUNCTION_ARGS)
{
	IdSet	   *set = PG_GETARG_IDSET_P(0);
	uint32		n = idset_count(set);
	char	   *text = palloc((Size) n * 6 + 3);
	char	   *p = text;

	*p++ = '{';
	for (uint32 i = 0; i < n; i++)
	{
		if (i > 0)
			*p++ = ',';
		p += pg_ultoa_n(set->ids[i], p);
	}
	*p++ = '}';
	*p = '\0';
	PG_RETURN_CSTRING(text);
}

Datum
idset_recv(PG_FUNCTION_ARGS)
{
	StringInfo	buf = (StringInfo) PG_GETARG_POINTER(0);
	int32		n;
	IdSet	   *set;

	if (buf->len - buf->cursor < (int) sizeof(int32))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
				 errmsg("invalid length of external \"idset\" value"),
				 errdetail("A value has at least %d bytes, not %d.", (int) sizeof(int32),
						   buf->len - buf->cursor)));
	n = pq_getmsgint(buf, sizeof(int32));
	if (n < 0 || n > GPUVEC_MAX_IDS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
				 errmsg("invalid number of ids in external \"idset\" value: %d", n)));
	if (buf->len - buf->cursor != n * (int) sizeof(uint16))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
				 errmsg("invalid length of external \"idset\" value"),
				 errdetail("%d ids take %d bytes, not %d.", n, n * (int) sizeof(uint16),
						   buf->len - buf->cursor)));
	set = idset_alloc(n);
	for (int32 i = 0; i < n; i++)
	{
		set->ids[i] = (uint16) pq_getmsgint(buf, sizeof(uint16));
		if (i > 0 && set->ids[i] <= set->ids[i - 1])
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
					 errmsg("invalid order of ids in external \"idset\" value"),
					 errdetail("Ids must be ascending and distinct.")));
	}
	PG_RETURN_IDSET_P(set);
}

Datum
idset_send(PG_FUNCTION_ARGS)
{
	IdSet	   *set = PG_GETARG_IDSET_P(0);
	uint32		n = idset_count(set);
	StringInfoData buf;

	pq_begintypsend(&buf);
	pq_sendint32(&buf, n);
	for (uint32 i = 0; i < n; i++)
		pq_sendint16(&buf, set->ids[i]);
	PG_RETURN_BYTEA_P(pq_endtypsend(&buf));
}
