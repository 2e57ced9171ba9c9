/*-------------------------------------------------------------------------
 *
 * supervisor_state.c
 *	  What the supervisor knows of the engine, and what it tells sessions of it
 *	  in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <unistd.h>

#include "link/shared.h"
#include "link/supervisor_state.h"

/*
 * After this many failed starts in a row, sessions are told to do without an
 * engine
 */
#define REFUSE_FAILURES		3

Supervisor	supervisor = {.listen_fd = -1, .liveness_fd = -1, .log_fd = -1};

bool
SupervisorRefuses(void)
{
	return supervisor.listen_fd < 0 || supervisor.silent ||
		(supervisor.engine == 0 && (supervisor.no_exec || supervisor.failures >= REFUSE_FAILURES));
}

void
SupervisorPublishEngine(void)
{
	GpuvecShared *state = GpuvecSharedState();

	SpinLockAcquire(&state->mutex);
	state->engine_pid = supervisor.engine;
	state->engine_ready = supervisor.engine != 0 && supervisor.ready;
	state->listening = supervisor.listen_fd >= 0;
	state->without = SupervisorRefuses();
	if (supervisor.silent)
		state->silent_pid = supervisor.engine;
	if (state->engine_ready)
		state->failed_supervisors = 0;
	SpinLockRelease(&state->mutex);
}

void
SupervisorPublishLastError(const char *last_error)
{
	GpuvecShared *state = GpuvecSharedState();

	SpinLockAcquire(&state->mutex);
	strlcpy(state->last_error, last_error, sizeof(state->last_error));
	SpinLockRelease(&state->mutex);
}

void
SupervisorPublishStart(void)
{
	GpuvecShared *state = GpuvecSharedState();

	SpinLockAcquire(&state->mutex);
	state->starts++;
	/* this engine may have got the pid of the silent one */
	if (state->silent_pid == supervisor.engine)
		state->silent_pid = 0;
	SpinLockRelease(&state->mutex);
	SupervisorPublishLastError("");
	SupervisorPublishEngine();
}

void
SupervisorCloseFd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}
