/*-------------------------------------------------------------------------
 *
 * kept_argument.h
 *	  What a function makes of an argument, kept for the calls that follow.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_KEPT_ARGUMENT_H
#define GPUVEC_KEPT_ARGUMENT_H

#include "postgres.h"

#include "fmgr.h"

/* Makes something of a value, which is not toasted and lives as long */
typedef void *(*KeptMaker) (FunctionCallInfo fcinfo, struct varlena *value);

/*
 * What make() returns for an argument, 0 or 1, that is a varlena and not null.
 * It is kept for the calls of the expression that follow, while the argument
 * has the same bytes.  fn_extra is used for that alone.
 */
extern void *kept_argument(FunctionCallInfo fcinfo, int argument, KeptMaker make);

#endif							/* GPUVEC_KEPT_ARGUMENT_H */
