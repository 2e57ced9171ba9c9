/*-------------------------------------------------------------------------
 *
 * fault.c
 *	  Faults that tests ask the engine for.
 *
 *-------------------------------------------------------------------------
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/fault.h"
#include "engine/thread_pool.h"

#ifdef GPUVEC_TEST_HOOKS
/* Is this fault asked for? */
bool
gpuvec_fault(const char *name, long *argument)
{
	const char *fault = getenv("GPUVEC_ENGINE_FAULT");
	size_t		n = strlen(name);

	if (fault == NULL || strncmp(fault, name, n) != 0 || (fault[n] != '\0' && fault[n] != ':'))
		return false;
	*argument = fault[n] == ':' ? atol(fault + n + 1) : 0;
	return true;
}
#endif

/* Is it time for a fault that may be asked for the N-th time only? */
bool
gpuvec_fault_due(const char *name)
{
	static int	times = 0;
	long		nth = 0;

	(void) name;
	if (!gpuvec_fault(name, &nth))
		return false;
	return nth == 0 || __atomic_add_fetch(&times, 1, __ATOMIC_RELAXED) == nth;
}

/* Crash, if asked for, before this thread does anything else */
void
gpuvec_fault_crash(const char *name)
{
	if (gpuvec_fault_due(name))
		raise(SIGSEGV);
}

/* Sleep, if asked for, until canceled */
void
gpuvec_fault_sleep(const char *name, const int *canceled)
{
	long		ms = 0;

	(void) name;
	if (!gpuvec_fault(name, &ms))
		return;
	for (; ms > 0 && !(canceled && __atomic_load_n(canceled, __ATOMIC_RELAXED)); ms -= 5)
	{
		usleep(5000);
		gpuvec_progress_made();
	}
}

/* Stop for ever, if asked for */
void
gpuvec_fault_stick(const char *name)
{
	long		ms;

	(void) name;
	while (gpuvec_fault(name, &ms))
		pause();
}
