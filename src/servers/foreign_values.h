/*-------------------------------------------------------------------------
 *
 * foreign_values.h
 *	  Read rows that a server has sent over a connection of our own.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_FOREIGN_VALUES_H
#define GPUVEC_FOREIGN_VALUES_H

#include "postgres.h"

#include "fmgr.h"
#include "servers/foreign.h"
#include "servers/foreign_libpq.h"

/* How values of a column are read */
typedef struct ForeignColumnReader
{
	FmgrInfo	function;		/* input or receive */
	Oid			param;
	bool		chars;			/* in binary format too, the value is text */
	Oid			type;			/* on the server, in binary format */
} ForeignColumnReader;

/* Reads the rows of a statement into a slot */
typedef struct ForeignReader
{
	const ForeignLeaf *leaf;
	bool		binary;			/* the format to ask for */
	TupleTableSlot *slot;
	ForeignColumnReader *columns;
	int			reading;		/* number of the column that is read just now,
								 * or -1 */
} ForeignReader;

extern void ForeignReaderBegin(ForeignReader *reader, const ForeignStatement *statement);
extern void ForeignReaderEnd(ForeignReader *reader);

/* True if a result has the types that the reader expects */
extern bool ForeignReaderCan(const ForeignReader *reader, const PGresult *result);

/* From now on, read this table as text */
extern void ForeignReaderUseText(ForeignReader *reader);

/* Read a row of a result into the slot; its values are palloc'd */
extern void ForeignReaderRead(ForeignReader *reader, const PGresult *result, int row);

#endif							/* GPUVEC_FOREIGN_VALUES_H */
