/*-------------------------------------------------------------------------
 *
 * fault.c
 *	  Faults that tests inject into the engine.
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
/*
 * True if GPUVEC_ENGINE_FAULT names this fault; sets its argument (0 if it
 * has none)
 */
bool
gpuvec_fault(const char *name, long *argument)
{
	const char *fault = getenv("GPUVEC_ENGINE_FAULT");
	size_t		n = strlen(name);

	for (; fault != NULL; fault = strchr(fault, ','))
	{
		fault += *fault == ',';
		if (strncmp(fault, name, n) != 0 || (fault[n] != '\0' && fault[n] != ':' && fault[n] != ','))
			continue;
		*argument = fault[n] == ':' ? atol(fault + n + 1) : 0;
		return true;
	}
	return false;
}
#endif

/*
 * True if the fault is asked for and is due: at every call or, with an
 * argument N, at the N-th call only
 */
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

/* Crash if the fault is due, before this thread does anything else */
void
gpuvec_fault_crash(const char *name)
{
	if (gpuvec_fault_due(name))
		raise(SIGSEGV);
}

/*
 * If the fault is asked for, sleep for its argument in milliseconds, or until
 * *canceled (may be NULL) is nonzero.  Reports progress meanwhile.
 */
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

/* Block forever if the fault is asked for.  Reports no progress. */
void
gpuvec_fault_stick(const char *name)
{
	long		ms;

	(void) name;
	while (gpuvec_fault(name, &ms))
		pause();
}
