/*-------------------------------------------------------------------------
 *
 * placement.h
 *	  The parameter of an index that says where its table's copy lies.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_MIRROR_PLACEMENT_H
#define GPUVEC_MIRROR_PLACEMENT_H

#include "core/placement.h"
#include "mirror/describe/mirror.h"

/* The parameters of an index, for its access method */
extern bytea *PlacementOptions(Datum options, bool validate);

/* What the owner of a mirror's table wants; AUTO if nothing was said */
extern gpuvec_placement MirrorPlacement(const MirrorTarget *target);

#endif							/* GPUVEC_MIRROR_PLACEMENT_H */
