/*-------------------------------------------------------------------------
 *
 * id_sums.h
 *	  A number for each of some ids, to which others are added.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ID_SUMS_H
#define GPUVEC_ID_SUMS_H

#include "gpuvec.h"

/* An id and its sum */
typedef struct IdSum
{
	uint32		id;
	char		status;			/* for the hash table */
	double		sum;
} IdSum;

struct idsums_hash;

typedef struct IdSums
{
	struct idsums_hash *table;
} IdSums;

/* No ids, in a memory context */
extern IdSums *id_sums_make(MemoryContext context);

/*
 * Add a number to the sum of an id.  More than 65,536 different ids are an
 * error, whatever their sums are.
 */
extern void id_sums_add(IdSums *sums, uint32 id, double number);

/* The number of ids */
extern uint32 id_sums_count(const IdSums *sums);

/* All ids with their sums, ascending, in the current memory context */
extern IdSum *id_sums_list(const IdSums *sums);

#endif							/* GPUVEC_ID_SUMS_H */
