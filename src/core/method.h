/*-------------------------------------------------------------------------
 *
 * method.h
 *	  Methods of counting common ids.  Results do not depend on the method.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_METHOD_H
#define GPUVEC_METHOD_H

typedef enum gpuvec_method
{
	GPUVEC_METHOD_AUTO,			/* by cost, for each segment and batch of
								 * queries */
	GPUVEC_METHOD_BITSET,		/* scan all rows */
	GPUVEC_METHOD_INVERTED,		/* inverted lists of the segments that have
								 * them; a segment without lists is scanned */
	GPUVEC_METHOD_DENSE			/* bit vectors of the segments that have them,
								 * on a GPU; else as auto.  A segment without
								 * them is scanned. */
} gpuvec_method;

#define GPUVEC_N_METHODS	4

/*
 * Within the engine: as GPUVEC_METHOD_INVERTED, but a segment whose lists are
 * still to be made is scanned, too
 */
#define GPUVEC_METHOD_READY_LISTS	((gpuvec_method) GPUVEC_N_METHODS)

#endif							/* GPUVEC_METHOD_H */
