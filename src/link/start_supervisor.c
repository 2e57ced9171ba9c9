/*-------------------------------------------------------------------------
 *
 * start_supervisor.c
 *	  Starts the supervisor: with the server, or from a session.
 *
 * A session that needs the engine starts the supervisor if there is none; of
 * several sessions, only one does.  If a supervisor ended with an error, or
 * could not be started, sessions do without the engine for a while, which
 * grows with each failure.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "core/clock.h"
#include "link/faults.h"
#include "link/shared.h"
#include "link/supervisor.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"

/*
 * Do not wait longer for a session that began to start a supervisor: it may
 * be gone
 */
#define STARTING_TIMEOUT_MS		5000

/*
 * Wait this long after a supervisor failed, before the next one is started
 */
#define FIRST_REST_MS			500
#define LONGEST_REST_MS			60000

/* Describe the supervisor to the postmaster */
static void
fill_worker(BackgroundWorker *worker)
{
	memset(worker, 0, sizeof(*worker));
	snprintf(worker->bgw_name, BGW_MAXLEN, "gpuvec supervisor");
	snprintf(worker->bgw_type, BGW_MAXLEN, "gpuvec supervisor");
	snprintf(worker->bgw_library_name, BGW_MAXLEN, "gpuvec");
	snprintf(worker->bgw_function_name, BGW_MAXLEN, "gpuvec_supervisor_main");
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker->bgw_start_time = BgWorkerStart_ConsistentState;
	worker->bgw_restart_time = BGW_NEVER_RESTART;
}

/* The library is preloaded: start the supervisor with the server */
void
GpuvecRegisterSupervisor(void)
{
	BackgroundWorker worker;

	GpuvecSharedPreload();
	fill_worker(&worker);
	worker.bgw_restart_time = 5;
	RegisterBackgroundWorker(&worker);
}

/*
 * Note that a supervisor ended with an error or did not begin: sessions do
 * without the engine for a while
 */
void
GpuvecNoteSupervisorFailure(const char *why)
{
	GpuvecShared *state = GpuvecSharedState();
	int64		now = gpuvec_clock_us();
	long		rest;

	SpinLockAcquire(&state->mutex);
	rest = Min(FIRST_REST_MS << Min(state->failed_supervisors, 10), LONGEST_REST_MS);
	state->failed_supervisors++;
	state->next_supervisor = now + rest * INT64CONST(1000);
	strlcpy(state->last_error, why, sizeof(state->last_error));
	SpinLockRelease(&state->mutex);
}

/* True if it is too early to start another supervisor: *reason says why */
static bool
must_rest(GpuvecShared *state, const char **reason)
{
	static char last_error[sizeof(state->last_error)];
	int64		now = gpuvec_clock_us();
	bool		rest;

	SpinLockAcquire(&state->mutex);
	rest = state->supervisor_pid == 0 && now < state->next_supervisor;
	if (rest)
		strlcpy(last_error, state->last_error, sizeof(last_error));
	SpinLockRelease(&state->mutex);
	if (rest)
		*reason = last_error;
	return rest;
}

/* Number of supervisors that have begun so far */
static uint32
arrivals(GpuvecShared *state)
{
	uint32		n;

	SpinLockAcquire(&state->mutex);
	n = state->arrivals;
	SpinLockRelease(&state->mutex);
	return n;
}

/*
 * True if this session may start the supervisor; no other session may then
 */
static bool
claim_start(GpuvecShared *state)
{
	int64		now = gpuvec_clock_us();
	bool		mine = false;

	SpinLockAcquire(&state->mutex);
	if (state->supervisor_pid == 0 &&
		(state->starting == 0 ||
		 now - state->starting >= STARTING_TIMEOUT_MS * INT64CONST(1000)))
	{
		state->starting = now;
		mine = true;
	}
	SpinLockRelease(&state->mutex);
	return mine;
}

static void
unclaim_start(GpuvecShared *state)
{
	SpinLockAcquire(&state->mutex);
	state->starting = 0;
	SpinLockRelease(&state->mutex);
}

/*
 * Make sure that a supervisor runs or is being started.  False: there can be
 * none, and *reason says why; the caller does without the engine.
 */
bool
GpuvecStartSupervisor(const char **reason)
{
	GpuvecShared *state = GpuvecSharedMake(reason);
	BackgroundWorker worker;
	BackgroundWorkerHandle *handle;
	BgwHandleStatus status;
	pid_t		pid;
	uint32		arrived;

	if (state == NULL)
		return false;
	if (!IsUnderPostmaster)
	{
		*reason = "background workers do not run in single-user mode";
		return false;
	}
	if (must_rest(state, reason))
		return false;
	arrived = arrivals(state);
	if (!claim_start(state))
		return true;

	fill_worker(&worker);
	worker.bgw_notify_pid = MyProcPid;
	if (!GPUVEC_REFUSING(RegisterDynamicBackgroundWorker(&worker, &handle)))
	{
		unclaim_start(state);
		*reason = "no background worker slot is free (see max_worker_processes)";
		return false;
	}
	status = WaitForBackgroundWorkerStartup(handle, &pid);
	pfree(handle);
	if (status == BGWH_POSTMASTER_DIED)
		ereport(FATAL,
				(errcode(ERRCODE_ADMIN_SHUTDOWN),
				 errmsg("postmaster exited during the start of a background worker")));
	if (status == BGWH_STOPPED)
	{
		/* it may have begun and ended; then the caller tries again */
		unclaim_start(state);
		if (arrivals(state) == arrived)
			GpuvecNoteSupervisorFailure("its supervisor could not be started");
	}
	return true;
}
