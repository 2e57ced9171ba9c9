/*-------------------------------------------------------------------------
 *
 * load_targets.h
 *	  Loading the mirrors of several small relations at the same time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_LOAD_TARGETS_H
#define GPUVEC_LOAD_TARGETS_H

#include "postgres.h"

#include "mirror/describe/mirror.h"

/*
 * Load those mirrors that are absent, as far as parallel workers pay.  What
 * is left, for whatever reason, is loaded when it is needed.
 */
extern void LoadTargets(MirrorTarget *const *targets, int ntargets, Snapshot snapshot);

/* The same; asks the engine which mirrors are absent */
extern void LoadAbsentTargets(MirrorTarget *targets, int ntargets, Snapshot snapshot);

#endif							/* GPUVEC_LOAD_TARGETS_H */
