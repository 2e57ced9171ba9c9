/*-------------------------------------------------------------------------
 *
 * faults.c
 *	  Fault injection: makes system calls and allocations of src/link fail.
 *
 * gpuvec.fail_at counts down to 0, so its value tells whether the fault was
 * reached.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#ifdef GPUVEC_TEST_HOOKS

#include <limits.h>

#include "link/faults.h"
#include "utils/guc.h"

static int	fail_at = 0;		/* the call that fails, counted from 1; 0:
								 * none */
static int	supervisor_fail_at = 0;
static int	fail_errno = EMFILE;
static bool fail_again = false; /* all later calls fail, too */
static bool failing = false;

/* GUC assign hook: a new count ends the failures of the old count */
static void
assign_fail_at(int newval, void *extra)
{
	failing = false;
}

void
GpuvecDefineFaults(void)
{
	DefineCustomIntVariable("gpuvec.fail_at",
							"Number of the call of the link, from now on, that fails.",
							"0 means none.",
							&fail_at, 0, 0, INT_MAX,
							PGC_SUSET, GUC_NOT_IN_SAMPLE, NULL, assign_fail_at, NULL);
	DefineCustomIntVariable("gpuvec.supervisor_fail_at",
							"Number of the call of each supervisor that fails.",
							"0 means none.",
							&supervisor_fail_at, 0, 0, INT_MAX,
							PGC_SIGHUP, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);
	DefineCustomIntVariable("gpuvec.fail_errno",
							"Error number of a system call that is made to fail.",
							NULL,
							&fail_errno, EMFILE, 1, INT_MAX,
							PGC_SUSET, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);
	DefineCustomBoolVariable("gpuvec.fail_again",
							 "Lets all later calls fail too.",
							 NULL,
							 &fail_again, false,
							 PGC_SUSET, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);
}

/* This process is the supervisor: use its own count */
void
GpuvecFaultsOfSupervisor(void)
{
	fail_at = supervisor_fail_at;
}

bool
GpuvecFails(void)
{
	if (fail_at > 0 && --fail_at == 0)
	{
		failing = true;
		ereport(LOG, (errmsg("gpuvec fault injected")));
	}
	else if (!failing)
		return false;
	if (!fail_again)
		failing = false;
	errno = fail_errno;
	return true;
}

/* Raise an error, as functions of PostgreSQL do */
void
GpuvecMayRaise(int sqlerrcode, const char *what)
{
	if (GpuvecFails())
		ereport(ERROR, (errcode(sqlerrcode), errmsg("injected fault: %s: %m", what)));
}

#endif
