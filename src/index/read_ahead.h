/*-------------------------------------------------------------------------
 *
 * read_ahead.h
 *	  The node of a plan that reads the outer rows of a lateral join ahead.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_READ_AHEAD_H
#define GPUVEC_READ_AHEAD_H

#include "nodes/execnodes.h"

/* The node whose rows it hands on; NULL if a node is of another kind */
extern PlanState *ReadAheadChild(PlanState *node);

/*
 * Have the outer side of a loop read up to `most` rows at once, and tell them
 * to a scan of the inner side.  Until then, it reads them one by one.
 */
extern void ReadAheadBegin(NestLoopState *loop, IndexScanState *scan, uint32 most);

/* Called once, when the library is loaded */
extern void ReadAheadInit(void);

#endif							/* GPUVEC_READ_AHEAD_H */
