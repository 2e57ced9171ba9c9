/*-------------------------------------------------------------------------
 *
 * method.h
 *	  Methods of counting common ids.  Results do not depend on the method.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_METHOD_H
#define GPUVEC_METHOD_H

#include <stdint.h>

typedef enum gpuvec_method
{
	GPUVEC_METHOD_AUTO,			/* by cost, for each segment and batch of
								 * queries */
	GPUVEC_METHOD_BITSET,		/* scan all rows */
	GPUVEC_METHOD_INVERTED,		/* inverted lists of the segments that have
								 * them; a segment without lists is scanned */
	GPUVEC_METHOD_DENSE,		/* bit vectors of the segments that have them,
								 * on a GPU; else as auto.  A segment without
								 * them is scanned. */
	GPUVEC_METHOD_READY_LISTS	/* within the engine: as inverted, but a
								 * segment whose lists are still to be made is
								 * scanned, too */
} gpuvec_method;

/* Methods that a session may ask for */
#define GPUVEC_N_METHODS	GPUVEC_METHOD_READY_LISTS

/* How rows were counted; in a search several ways may be gone */
typedef enum gpuvec_way
{
	GPUVEC_WAY_SCAN,
	GPUVEC_WAY_LISTS,
	GPUVEC_WAY_DENSE,			/* bit vectors */
	GPUVEC_WAY_GATHERED			/* the rows that pass a filter, one by one */
} gpuvec_way;

#define GPUVEC_N_WAYS		4
#define gpuvec_way_bit(way)	(UINT32_C(1) << (way))

/* Count a query that was searched in these ways, of which each has a bit */
static inline void
gpuvec_count_ways(uint32_t ways, uint32_t *counts)
{
	for (int i = 0; i < GPUVEC_N_WAYS; i++)
		counts[i] += ways >> i & 1;
}

#endif							/* GPUVEC_METHOD_H */
