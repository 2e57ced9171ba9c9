/*
 * coverage.h
 *	  For builds that count which lines are run (make check COVERAGE=yes):
 *	  included before all of the engine, whose processes end by _exit.
 */
#ifndef GPUVEC_COVERAGE_H
#define GPUVEC_COVERAGE_H

#include <unistd.h>

extern void __gcov_dump(void);

static inline void
coverage_exit(int status)
{
	__gcov_dump();
	_exit(status);
}

#define _exit(status) coverage_exit(status)

#endif
