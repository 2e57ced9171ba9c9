/*-------------------------------------------------------------------------
 *
 * idset_query.c
 *	  The type idset_query: input, output and evaluation.
 *
 * The text is 1 & (2 | !3), as of intarray's query_int: "!" binds closest,
 * then "&", then "|".  Input drops parentheses that change nothing, also
 * those around an operand of the same operator, so that long expressions do
 * not become deep ones.  Functions that follow the depth of an expression
 * check the depth of the stack.
 *
 * The binary form is a version number (1 byte), then the text.
 *
 * To evaluate a query, each id is looked up by binary search, until the
 * result is certain.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "idset/idset_query.h"
#include "libpq/pqformat.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "parser/scansup.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(idset_query_in);
PG_FUNCTION_INFO_V1(idset_query_out);
PG_FUNCTION_INFO_V1(idset_query_recv);
PG_FUNCTION_INFO_V1(idset_query_send);
PG_FUNCTION_INFO_V1(idset_matches_query);
PG_FUNCTION_INFO_V1(idset_query_matches);

/* Version of the binary form */
#define BINARY_VERSION	1

/* Largest number of items of a query */
#define MOST_ITEMS		1000000

/* ---- input ---- */

/* The text being read, and the items so far */
typedef struct QueryReader
{
	const char *text;			/* the whole text, for messages */
	const char *p;				/* the rest */
	Node	   *escontext;		/* for soft errors, or NULL */
	IdSetQueryItem *items;
	uint32		n;
	uint32		capacity;
} QueryReader;

static bool read_any(QueryReader *reader);

/* Report invalid text.  Returns false, for the caller to return. */
static bool
query_error(QueryReader *reader, const char *detail)
{
	errsave(reader->escontext,
			(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
			 errmsg("invalid input syntax for type %s: \"%s\"", "idset_query", reader->text),
			 errdetail("%s", detail),
			 errhint("Write a query as 1 & (2 | !3).")));
	return false;
}

/* Report that the next character is not expected */
static bool
unexpected(QueryReader *reader)
{
	if (*reader->p == '\0')
		return query_error(reader, "Unexpected end of input.");
	return query_error(reader, psprintf("Unexpected \"%.*s\" character.",
										pg_mblen(reader->p), reader->p));
}

/* The next character that is no white space */
static char
next_character(QueryReader *reader)
{
	while (scanner_isspace(*reader->p))
		reader->p++;
	return *reader->p;
}

/* Append an item; false after a soft error */
static bool
add_item(QueryReader *reader, IdSetQueryKind kind, uint32 value)
{
	if (reader->n == MOST_ITEMS)
	{
		errsave(reader->escontext,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many ids and operators for type idset_query"),
				 errdetail("A query has at most %d.", MOST_ITEMS)));
		return false;
	}
	if (reader->n == reader->capacity)
	{
		reader->capacity *= 2;
		reader->items = repalloc(reader->items, reader->capacity * sizeof(IdSetQueryItem));
	}
	reader->items[reader->n].kind = kind;
	reader->items[reader->n].value = value;
	reader->n++;
	return true;
}

/* Read an id; false after a soft error */
static bool
read_query_id(QueryReader *reader)
{
	const char *start = reader->p;
	uint64		number = 0;

	/* what is larger is out of range, whatever follows */
	for (; *reader->p >= '0' && *reader->p <= '9'; reader->p++)
		if (number <= IDSET_MAX_ID)
			number = number * 10 + (*reader->p - '0');
	if (reader->p == start)
		return unexpected(reader);
	if (number > IDSET_MAX_ID)
	{
		errsave(reader->escontext,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("id %.*s is out of range for type %s", (int) (reader->p - start), start,
						"idset_query"),
				 errdetail("Ids are 0 to " UINT64_FORMAT ".", IDSET_MAX_ID)));
		return false;
	}
	return add_item(reader, QUERY_ID, (uint32) number);
}

/* Read an id, a negation, or an expression in parentheses */
static bool
read_operand(QueryReader *reader)
{
	uint32		start = reader->n;
	char		c = next_character(reader);

	CHECK_FOR_INTERRUPTS();
	check_stack_depth();
	if (c == '!')
	{
		reader->p++;
		if (!add_item(reader, QUERY_NOT, 0) || !read_operand(reader))
			return false;
		reader->items[start].value = reader->n - start;
		return true;
	}
	if (c != '(')
		return read_query_id(reader);
	reader->p++;
	if (!read_any(reader))
		return false;
	if (next_character(reader) != ')')
		return unexpected(reader);
	reader->p++;
	return true;
}

/* Put an operator before the items from `start` on */
static bool
insert_operator(QueryReader *reader, uint32 start, IdSetQueryKind kind)
{
	if (!add_item(reader, kind, 0))
		return false;
	memmove(reader->items + start + 1, reader->items + start,
			(reader->n - 1 - start) * sizeof(IdSetQueryItem));
	reader->items[start].kind = kind;
	return true;
}

/* Reads an operand */
typedef bool (*ReadFunction) (QueryReader *reader);

/* Read operands with one kind of operator between them */
static bool
read_operands(QueryReader *reader, IdSetQueryKind kind, char sign, ReadFunction read)
{
	uint32		start = reader->n;
	uint32		operand;

	if (!read(reader))
		return false;
	if (next_character(reader) != sign)
		return true;
	if (reader->items[start].kind != kind && !insert_operator(reader, start, kind))
		return false;
	while (next_character(reader) == sign)
	{
		reader->p++;
		operand = reader->n;
		if (!read(reader))
			return false;
		if (reader->items[operand].kind == kind)
		{
			/* its operands are ours */
			reader->n--;
			memmove(reader->items + operand, reader->items + operand + 1,
					(reader->n - operand) * sizeof(IdSetQueryItem));
		}
	}
	reader->items[start].value = reader->n - start;
	return true;
}

static bool
read_all(QueryReader *reader)
{
	return read_operands(reader, QUERY_AND, '&', read_operand);
}

static bool
read_any(QueryReader *reader)
{
	return read_operands(reader, QUERY_OR, '|', read_all);
}

/* A query from its text; NULL after a soft error */
static IdSetQuery *
parse_query(const char *string, Node *escontext)
{
	QueryReader reader = {.text = string, .p = string, .escontext = escontext, .capacity = 16};
	IdSetQuery *query;
	Size		size;

	reader.items = palloc_array(IdSetQueryItem, reader.capacity);
	if (!read_any(&reader))
		return NULL;
	if (next_character(&reader) != '\0')
	{
		unexpected(&reader);
		return NULL;
	}
	size = reader.n * sizeof(IdSetQueryItem);
	query = palloc(VARHDRSZ + size);
	SET_VARSIZE(query, VARHDRSZ + size);
	memcpy(query->items, reader.items, size);
	pfree(reader.items);
	return query;
}

/* idset_query_in(cstring) */
Datum
idset_query_in(PG_FUNCTION_ARGS)
{
	IdSetQuery *query = parse_query(PG_GETARG_CSTRING(0), fcinfo->context);

	if (query == NULL)
		PG_RETURN_NULL();
	PG_RETURN_POINTER(query);
}

/* idset_query_recv(internal) */
Datum
idset_query_recv(PG_FUNCTION_ARGS)
{
	StringInfo	buf = (StringInfo) PG_GETARG_POINTER(0);
	int			version = pq_getmsgbyte(buf);
	int			length;

	if (version != BINARY_VERSION)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
				 errmsg("unsupported version of external \"idset_query\" value: %d", version)));
	PG_RETURN_POINTER(parse_query(pq_getmsgtext(buf, buf->len - buf->cursor, &length), NULL));
}

/* ---- output ---- */

/* Append the text of an expression */
static void
write_expression(const IdSetQueryItem *item, StringInfo out)
{
	const IdSetQueryItem *end = idset_query_end(item);

	check_stack_depth();
	if (item->kind == QUERY_ID)
	{
		appendStringInfo(out, "%u", item->value);
		return;
	}
	if (item->kind == QUERY_NOT)
		appendStringInfoChar(out, '!');
	for (const IdSetQueryItem *op = idset_query_first(item); op < end; op = idset_query_next(op))
	{
		/* operators with higher numbers bind less */
		bool		parentheses = op->kind > item->kind;

		if (op > idset_query_first(item))
			appendStringInfoString(out, item->kind == QUERY_AND ? " & " : " | ");
		if (parentheses)
			appendStringInfoChar(out, '(');
		write_expression(op, out);
		if (parentheses)
			appendStringInfoChar(out, ')');
	}
}

/* The text of a query */
static char *
query_text(const IdSetQuery *query)
{
	StringInfoData out;

	initStringInfo(&out);
	write_expression(query->items, &out);
	return out.data;
}

/* idset_query_out(idset_query) */
Datum
idset_query_out(PG_FUNCTION_ARGS)
{
	PG_RETURN_CSTRING(query_text(PG_GETARG_IDSET_QUERY_P(0)));
}

/* idset_query_send(idset_query) */
Datum
idset_query_send(PG_FUNCTION_ARGS)
{
	char	   *text = query_text(PG_GETARG_IDSET_QUERY_P(0));
	StringInfoData buf;

	pq_begintypsend(&buf);
	pq_sendbyte(&buf, BINARY_VERSION);
	pq_sendtext(&buf, text, strlen(text));
	PG_RETURN_BYTEA_P(pq_endtypsend(&buf));
}

/* ---- evaluation ---- */

/* True if an expression holds for a set */
static bool
holds(const IdSetQueryItem *item, const IdSet *set)
{
	const IdSetQueryItem *end = idset_query_end(item);
	uint32		position;
	bool		decisive = item->kind == QUERY_OR;

	if (item->kind == QUERY_ID)
		return idset_find(set, item->value, &position);
	check_stack_depth();
	if (item->kind == QUERY_NOT)
		return !holds(idset_query_first(item), set);
	for (const IdSetQueryItem *op = idset_query_first(item); op < end; op = idset_query_next(op))
		if (holds(op, set) == decisive)
			return decisive;
	return !decisive;
}

/* @@ operator */
Datum
idset_matches_query(PG_FUNCTION_ARGS)
{
	IdSet	   *set = PG_GETARG_IDSET_P(0);
	IdSetQuery *query = PG_GETARG_IDSET_QUERY_P(1);
	bool		result = holds(query->items, set);

	PG_FREE_IF_COPY(set, 0);
	PG_FREE_IF_COPY(query, 1);
	PG_RETURN_BOOL(result);
}

/* ~~ operator */
Datum
idset_query_matches(PG_FUNCTION_ARGS)
{
	return DirectFunctionCall2(idset_matches_query, PG_GETARG_DATUM(1), PG_GETARG_DATUM(0));
}
