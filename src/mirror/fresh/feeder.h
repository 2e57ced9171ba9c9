/*-------------------------------------------------------------------------
 *
 * feeder.h
 *	  The background worker that applies rows of feeds to mirrors.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_FEEDER_H
#define GPUVEC_FEEDER_H

#include "postgres.h"

extern PGDLLEXPORT void gpuvec_feeder_main(Datum arg);

#endif							/* GPUVEC_FEEDER_H */
