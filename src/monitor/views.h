/*-------------------------------------------------------------------------
 *
 * views.h
 *	  What the functions behind views share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_VIEWS_H
#define GPUVEC_VIEWS_H

#include "postgres.h"

#include "core/protocol_mirrors.h"
#include "link/engine_link.h"

/* A length of time in microseconds as an interval */
extern Datum GpuvecIntervalOfUs(int64 us);

/* True if the caller may see mirrors of this relation */
extern bool GpuvecMaySeeMirror(Oid database, Oid relation);

/* The first columns of a view's row: which mirror; returns their number, 5 */
extern int	GpuvecPutMirrorKey(const gpuvec_mirror_key *key, Datum *values, bool *nulls);

/*
 * Ask the engine, without starting it.  False, with *reason, if it does not
 * run or does not answer.
 */
extern bool GpuvecAskEngine(gpuvec_message type, gpuvec_message expected, GpuvecReply *reply,
							const char **reason);

#endif							/* GPUVEC_VIEWS_H */
