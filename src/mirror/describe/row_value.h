/*-------------------------------------------------------------------------
 *
 * row_value.h
 *	  What a column of sets or of vectors has in a row: ids, perhaps with
 *	  values.
 *
 * The rows of a mirror are of one kind, as its key tells (`values`): sets, or
 * vectors, whose ids have values.  A row of either kind is a gpuvec_sparse
 * here.  That of a set has no values.  One without ids (ids.ids is NULL) is
 * that of a null.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ROW_VALUE_H
#define GPUVEC_ROW_VALUE_H

#include "postgres.h"

#include "core/sparse.h"

/* True if a column of this type, or domain, has vectors */
extern bool RowTypeHasValues(Oid type);

/*
 * The row of a payload: what follows the header of a set, or of a vector if
 * `values`.  It lies in the payload, and is aligned as that is.  Of a vector
 * whose length is not what it says: error XX001.
 */
extern gpuvec_sparse RowOfPayload(bool values, const void *payload, Size bytes);

/* The same of a value of the type; it lies in the value, or in a copy */
extern gpuvec_sparse RowOfDatum(bool values, Datum value);

/* A null */
static inline gpuvec_sparse
RowOfNull(void)
{
	gpuvec_sparse row = {{NULL, 0, false}, NULL, false};

	return row;
}

/* GPUVEC_FORM_... of a row in messages of a mirror whose rows have values */
extern uint32 RowForm(bool values, const gpuvec_sparse *row);

/*
 * Write a row as messages have it: gpuvec_form_bytes() of its form.  Neither
 * it nor `to` need be aligned.
 */
extern void RowWrite(char *to, uint32 form, const gpuvec_sparse *row);

/* The row of a message, in this form, whose n ids lie at `ids` */
extern gpuvec_sparse RowOfMessage(uint32 form, const void *ids, uint32 n);

#endif							/* GPUVEC_ROW_VALUE_H */
