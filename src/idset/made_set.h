/*-------------------------------------------------------------------------
 *
 * made_set.h
 *	  Sets that are made of values: of arrays, jsonb and texts.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_MADE_SET_H
#define GPUVEC_MADE_SET_H

#include "gpuvec.h"

#include "idset/idset.h"

/*
 * Makes the set of a value, which is not toasted, palloc'd.  If there is none:
 * an error, or NULL if it is to be lenient.
 */
typedef IdSet *(*IdSetMaker) (struct varlena *value, Oid collation, bool lenient);

/*
 * array_set.c: of an array's elements; there is none if they are too many.
 * jsonb_set.c: of the elements of a jsonb array; nor if it is no array of
 * strings, numbers and nulls.
 * text_trigrams.c: of the trigrams of a text; nor if they are too many.
 */
extern IdSet *idset_make_of_array(struct varlena *value, Oid collation, bool lenient);
extern IdSet *idset_make_of_jsonb(struct varlena *value, Oid collation, bool lenient);
extern IdSet *idset_make_of_trgm(struct varlena *value, Oid collation, bool lenient);

#endif							/* GPUVEC_MADE_SET_H */
