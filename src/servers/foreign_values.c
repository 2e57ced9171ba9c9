/*-------------------------------------------------------------------------
 *
 * foreign_values.c
 *	  Read rows that a server has sent, in binary format or as text.
 *
 * Rows are asked for in PostgreSQL's binary format if all columns are sets, or
 * of types that are the same on all servers.  A value in binary format does
 * not tell its type.  So the types of a result are compared with those that
 * are expected.  If they are others, the rows have to be asked for as text,
 * which the input functions of the types here read; and so are those of later
 * searches of this table.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "mb/pg_wchar.h"
#include "servers/foreign_values.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"

static HTAB *text_tables = NULL;

static bool
is_read_as_text(Oid relation)
{
	return text_tables != NULL && hash_search(text_tables, &relation, HASH_FIND, NULL) != NULL;
}

static void
read_as_text(Oid relation)
{
	if (text_tables == NULL)
	{
		HASHCTL		control = {.keysize = sizeof(Oid), .entrysize = sizeof(Oid)};

		text_tables = hash_create("gpuvec tables read as text", 16, &control, HASH_ELEM | HASH_BLOBS);
	}
	hash_search(text_tables, &relation, HASH_ENTER, NULL);
}

/* ---- types ---- */

/* True for types whose binary form is the text that their input reads */
static bool
is_chars(Oid type)
{
	return type == TEXTOID || type == VARCHAROID || type == BPCHAROID || type == NAMEOID ||
		type == JSONOID;
}

/* True for types whose binary form is the same on all servers */
static bool
is_portable(Oid type)
{
	switch (type)
	{
		case BOOLOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case FLOAT4OID:
		case FLOAT8OID:
		case NUMERICOID:
		case OIDOID:
		case BYTEAOID:
		case DATEOID:
		case TIMEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
		case INTERVALOID:
		case UUIDOID:
		case INT2ARRAYOID:
		case INT4ARRAYOID:
		case INT8ARRAYOID:
		case FLOAT4ARRAYOID:
		case FLOAT8ARRAYOID:
			return true;
		default:
			return is_chars(type);
	}
}

/* The type that a column must have on the server; InvalidOid: text only */
static Oid
remote_type(const ForeignLeaf *leaf, Oid type)
{
	if (is_portable(type))
		return type;
	return type == leaf->set_type ? leaf->remote_set_type : InvalidOid;
}

/* Prepare to read rows in the format of the reader */
static void
prepare_columns(ForeignReader *reader)
{
	TupleDesc	desc = reader->slot->tts_tupleDescriptor;

	for (int i = 0; i < desc->natts; i++)
	{
		ForeignColumnReader *column = &reader->columns[i];
		Oid			type = TupleDescAttr(desc, i)->atttypid;
		Oid			function;

		column->type = remote_type(reader->leaf, type);
		column->chars = !reader->binary || is_chars(type);
		if (column->chars)
			getTypeInputInfo(type, &function, &column->param);
		else
			getTypeBinaryInputInfo(type, &function, &column->param);
		fmgr_info(function, &column->function);
	}
}

/* True if the rows can be asked for in binary format */
static bool
can_be_binary(const ForeignReader *reader)
{
	TupleDesc	desc = reader->slot->tts_tupleDescriptor;

	if (is_read_as_text(RelationGetRelid(reader->leaf->rel)))
		return false;
	for (int i = 0; i < desc->natts; i++)
		if (!OidIsValid(remote_type(reader->leaf, TupleDescAttr(desc, i)->atttypid)))
			return false;
	return true;
}

/* ---- rows ---- */

void
ForeignReaderBegin(ForeignReader *reader, const ForeignStatement *statement)
{
	reader->leaf = statement->leaf;
	reader->reading = -1;
	reader->slot = MakeSingleTupleTableSlot(ExecCleanTypeFromTL(statement->tlist), &TTSOpsVirtual);
	reader->columns = palloc0_array(ForeignColumnReader, reader->slot->tts_tupleDescriptor->natts);
	reader->binary = can_be_binary(reader);
	prepare_columns(reader);
}

void
ForeignReaderUseText(ForeignReader *reader)
{
	read_as_text(RelationGetRelid(reader->leaf->rel));
	reader->binary = false;
	prepare_columns(reader);
}

void
ForeignReaderEnd(ForeignReader *reader)
{
	ExecDropSingleTupleTableSlot(reader->slot);
}

bool
ForeignReaderCan(const ForeignReader *reader, const PGresult *result)
{
	const Libpq *pq = ForeignLibpq();

	for (int i = 0; reader->binary && i < reader->slot->tts_tupleDescriptor->natts; i++)
	{
		Oid			type = pq->PQftype(result, i);
		Oid			expected = reader->columns[i].type;

		if (type != expected && !(is_chars(type) && is_chars(expected)))
			return false;
	}
	return true;
}

/* Read one value */
static Datum
read_value(ForeignColumnReader *column, char *value, int len, int32 typmod)
{
	StringInfoData buffer = {.data = value, .len = len, .maxlen = len + 1};
	Datum		datum;

	if (column->chars)
	{
		pg_verifymbstr(value, strlen(value), false);
		return InputFunctionCall(&column->function, value, column->param, typmod);
	}
	datum = ReceiveFunctionCall(&column->function, &buffer, column->param, typmod);
	if (buffer.cursor != len)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
				 errmsg("incorrect binary data format")));
	return datum;
}

void
ForeignReaderRead(ForeignReader *reader, const PGresult *result, int row)
{
	const Libpq *pq = ForeignLibpq();
	TupleTableSlot *slot = reader->slot;
	TupleDesc	desc = slot->tts_tupleDescriptor;

	ExecClearTuple(slot);
	for (int i = 0; i < desc->natts; i++)
	{
		ForeignColumnReader *column = &reader->columns[i];
		int32		typmod = TupleDescAttr(desc, i)->atttypmod;

		reader->reading = i;
		slot->tts_isnull[i] = pq->PQgetisnull(result, row, i);
		if (!slot->tts_isnull[i])
			slot->tts_values[i] = read_value(column, pq->PQgetvalue(result, row, i),
											 pq->PQgetlength(result, row, i), typmod);
		else if (reader->binary)
			slot->tts_values[i] = (Datum) 0;
		else					/* a domain may forbid it */
			slot->tts_values[i] = InputFunctionCall(&column->function, NULL, column->param, typmod);
	}
	reader->reading = -1;
	ExecStoreVirtualTuple(slot);
}
