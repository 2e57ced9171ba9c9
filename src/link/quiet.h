/*-------------------------------------------------------------------------
 *
 * quiet.h
 *	  Work during which nothing is sent to the client.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_QUIET_H
#define GPUVEC_QUIET_H

#include "postgres.h"

/*
 * Call work(arg), which may take a lock that others wait for and releases it,
 * and return what it returns.  If it raises an error, release(arg) is called
 * (unless release is NULL), which must not fail; then the error goes on.
 */
extern bool GpuvecQuietly(bool (*work) (void *arg), void (*release) (void *arg), void *arg);

#endif							/* GPUVEC_QUIET_H */
