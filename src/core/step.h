/*-------------------------------------------------------------------------
 *
 * step.h
 *	  Loops that may be long look now and then whether they are canceled.
 *
 * In the library that is what the server calls checking for interrupts, and a
 * loop may end there with an error.  The engine's loops go on: its requests
 * are canceled elsewhere.
 *
 * A loop that has a step for each element that a user gives must
 * look, however short a step is: an array has up to 1 GB.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_STEP_H
#define GPUVEC_STEP_H

/* Look at once; src/gpuvec.h defines it before */
#ifndef GPUVEC_LOOK
#define GPUVEC_LOOK() ((void) 0)
#endif

/* Steps of nanoseconds between looks: less than a few milliseconds */
#define GPUVEC_STEPS	65536

/* At step i of a loop, from 0 on */
#define GPUVEC_STEP(i) \
	do \
	{ \
		if (((i) & (GPUVEC_STEPS - 1)) == 0) \
			GPUVEC_LOOK(); \
	} while (0)

#endif							/* GPUVEC_STEP_H */
