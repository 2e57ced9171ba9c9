/*-------------------------------------------------------------------------
 *
 * gpuvec.h
 *	  What every file of the extension begins with.
 *
 * The ground floor: nothing here knows anything of the rest.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_H
#define GPUVEC_H

#include "postgres.h"

#include "compat.h"
#include "settings.h"
#include "test_hooks.h"

#endif							/* GPUVEC_H */
