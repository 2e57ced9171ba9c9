/*
 * clock.c
 *	  A library to preload: the wall clock of a program is that of the machine
 *	  and so many seconds, which may change at any time.
 *
 * The environment's GPUVEC_CLOCK names a file of one long, the seconds.  A
 * server starts its engine with the machine's own clock, unless
 * GPUVEC_CLOCK_ENGINE is set.  The monotonic clock stays as it is.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long *offset;

__attribute__((constructor)) static void
begin(void)
{
	int			fd = open(getenv("GPUVEC_CLOCK"), O_RDONLY);
	void	   *memory = mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, fd, 0);

	offset = memory == MAP_FAILED ? NULL : memory;
	if (strcmp(program_invocation_short_name, "postgres") == 0 && !getenv("GPUVEC_CLOCK_ENGINE"))
		unsetenv("LD_PRELOAD");
}

int
clock_gettime(clockid_t clock, struct timespec *now)
{
	int			rc = (int) syscall(SYS_clock_gettime, clock, now);

	if (rc == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		now->tv_sec += *offset;
	return rc;
}

int
gettimeofday(struct timeval *now, void *zone)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	now->tv_sec = t.tv_sec;
	now->tv_usec = t.tv_nsec / 1000;
	(void) zone;
	return 0;
}

time_t
time(time_t *now)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	if (now)
		*now = t.tv_sec;
	return t.tv_sec;
}
