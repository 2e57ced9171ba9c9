/*-------------------------------------------------------------------------
 *
 * foreign_params.h
 *	  With what to connect to a server: libpq's parameters.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_FOREIGN_PARAMS_H
#define GPUVEC_FOREIGN_PARAMS_H

#include "postgres.h"

#include "foreign/foreign.h"
#include "servers/foreign_connect.h"

/* Keywords and values of a connection, as libpq takes them */
typedef struct ForeignParams
{
	const char **keywords;
	const char **values;
	int			n;
} ForeignParams;

/* The value of an option of postgres_fdw, or `otherwise` */
extern bool ForeignBoolOption(List *options, const char *name, bool otherwise);

/* True for the options of libpq that postgres_fdw lets users set */
extern bool ForeignIsLibpqOption(const LibpqOption *options, const char *name);

/* True if a user has to be asked for a password by the server */
extern bool ForeignNeedsPassword(const UserMapping *mapping);

/* All parameters of a connection; they live in the current memory context */
extern void ForeignParamsMake(ForeignParams *params, const ForeignServer *server,
							  const UserMapping *mapping);

/*
 * Leave out the host to which another connection goes.  False: there is no
 * other one, or it is not certain which one that is.
 */
extern bool ForeignParamsLeaveOut(ForeignParams *params, const ForeignConnection *other);

/* When to give up connecting, of gpuvec_clock_us(); 0: never */
extern int64 ForeignParamsDeadline(const ForeignParams *params);

#endif							/* GPUVEC_FOREIGN_PARAMS_H */
