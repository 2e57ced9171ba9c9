/*-------------------------------------------------------------------------
 *
 * placement.h
 *	  Where the rows of a table lie, if the engine has several devices.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PLACEMENT_H
#define GPUVEC_PLACEMENT_H

typedef enum gpuvec_placement
{
	GPUVEC_PLACE_AUTO,			/* copies if they are small */
	GPUVEC_PLACE_REPLICATE,		/* copies, as long as there is memory */
	GPUVEC_PLACE_SPREAD			/* no copies */
} gpuvec_placement;

#define GPUVEC_N_PLACEMENTS	3

#endif							/* GPUVEC_PLACEMENT_H */
