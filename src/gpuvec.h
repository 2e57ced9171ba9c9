/*-------------------------------------------------------------------------
 *
 * gpuvec.h
 *	  Included first by every C file of the extension.
 *
 * This header includes nothing else of the extension but the headers below.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_H
#define GPUVEC_H

#include "postgres.h"

#include "compat.h"
#include "settings.h"
#include "test_hooks.h"

#define GPUVEC_LOOK() \
	do \
	{ \
		GpuvecTestLook(); \
		CHECK_FOR_INTERRUPTS(); \
	} while (0)

#include "core/step.h"

#endif							/* GPUVEC_H */
