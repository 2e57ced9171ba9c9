/*-------------------------------------------------------------------------
 *
 * compound.h
 *	  Rows of small mirrors that are searched together, once more, in
 *	  segments of full size.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_COMPOUND_H
#define GPUVEC_COMPOUND_H

#include "engine/store/store.h"

/* A part of a search: a mirror, and its view that is to be searched */
typedef struct gpuvec_compound_part
{
	const gpuvec_mirror_key *key;
	gpuvec_view *view;			/* NULL: the part is not searched */
} gpuvec_compound_part;

/* Start the thread that makes compounds */
extern bool gpuvec_compounds_start(gpuvec_store *store);

/*
 * Note a search of n parts, which lie on this device and have their ids as
 * numbers.  If there is a compound of them, its view: it has the live rows of
 * the views of the parts that it sets in covered[n], and no others, with the
 * parts' numbers in their tids.  The caller drops the reference.  Else NULL.
 */
extern gpuvec_view *gpuvec_compound_find(gpuvec_store *store, gpuvec_device *device,
										 const gpuvec_compound_part *parts, uint32_t n,
										 bool *covered);

#endif							/* GPUVEC_COMPOUND_H */
