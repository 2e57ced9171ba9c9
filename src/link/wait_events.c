/*-------------------------------------------------------------------------
 *
 * wait_events.c
 *	  What pg_stat_activity shows as the wait_event of processes that wait.
 *
 * A name takes a place in the server's shared memory, which has room for 128
 * names of all extensions.  A wait whose name finds no place is called
 * "Extension", as before PostgreSQL 17.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "link/attempt.h"
#include "link/faults.h"
#include "link/wait_events.h"
#include "test_hooks.h"

static const char *const names[GPUVEC_WAITS] = {
	"GpuvecEngine",
	"GpuvecEngineStart",
	"GpuvecRefresh",
	"GpuvecServers",
	"GpuvecWorkers",
	"GpuvecAutoprewarmMain",
	"GpuvecFeederMain",
	"GpuvecSupervisorMain",
};

static uint32 events[GPUVEC_WAITS]; /* 0: not asked for yet */
static GpuvecWait asked;		/* the one that ask() asks for */

/* For tests: take the places of all names that there can be */
static void
eat_names(void)
{
	if (gpuvec_shared_memory_choice == GPUVEC_SHARED_MEMORY_FULL)
		for (int i = 0; i < 1000; i++)
			(void) GpuvecNewWaitEvent(psprintf("GpuvecTest%d", i));
}

static void
ask(void)
{
	eat_names();
	events[asked] = GPUVEC_RAISING(GpuvecNewWaitEvent(names[asked]));
}

uint32
GpuvecWaitEvent(GpuvecWait wait)
{
	if (events[wait] == 0)
	{
		asked = wait;
		if (!GpuvecAttempt(ask, NULL, 0))
		{
			GpuvecReleaseWaitEventLock();
			events[wait] = PG_WAIT_EXTENSION;
		}
	}
	return events[wait];
}
