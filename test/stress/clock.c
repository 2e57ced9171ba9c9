/*
 * clock.c
 *	  Sets the wall clock of servers and engines back and forth.
 *
 * All of them are started with a library (shim/clock.c) that adds seconds to
 * what the machine's clock says.  The tester's own clock stays as it is.
 */
#include "stress.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define DAY		86400L

static volatile long *offset;

/*
 * Have programs that are started from now on use the library.  The address
 * sanitizer of an engine would like to come first.
 */
bool
clock_begin(struct worker *w)
{
	const char *path = say(w, "%s/clock", options.work);
	long		zero = 0;
	void	   *memory;
	int			fd;

	if (*options.clock == '\0')
		return true;
	fd = open(path, O_RDWR | O_CREAT, 0600);
	if (fd < 0 || write(fd, &zero, sizeof(zero)) != sizeof(zero))
		return false;
	memory = mmap(NULL, sizeof(zero), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (memory == MAP_FAILED)
		return false;
	offset = memory;
	setenv("GPUVEC_CLOCK", path, 1);
	setenv("GPUVEC_CLOCK_ENGINE", "yes", 1);
	setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
	setenv("LD_PRELOAD", options.clock, 1);
	return true;
}

/* Set it: mostly to another time than that of the machine */
void
step_clock(struct worker *w)
{
	static const long distances[] = {1, 10, 300, 3600, DAY, 3 * DAY};
	long		distance = distances[below(w, lengthof(distances))];

	if (offset == NULL)
		return;
	*offset = chance(w, 15) ? 0 : chance(w, 60) ? *offset % DAY - distance : *offset % DAY + distance;
	count(CLOCK_STEPS);
}
