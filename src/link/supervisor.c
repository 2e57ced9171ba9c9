/*-------------------------------------------------------------------------
 *
 * supervisor.c
 *	  The background worker that keeps one engine running for the server.
 *
 * The supervisor owns the listening socket.  So sessions that connect while
 * the engine restarts wait in the socket's backlog.  The supervisor restarts
 * the engine (engine_process.c) after delays that grow.  It says in shared
 * memory when sessions must do without an engine, so that they need not wait.
 *
 * If the supervisor cannot get a socket, a pipe or a process, it does not
 * end: it tries again, after delays that grow.
 *
 * The supervisor is not connected to a database, so it never blocks DROP
 * DATABASE.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/protocol.h"
#include "link/device_retry.h"
#include "link/engine_process.h"
#include "link/faults.h"
#include "link/shared.h"
#include "link/supervisor.h"
#include "link/wait_events.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/guc.h"

/*
 * Become the supervisor.  False: there is one, or the shared memory cannot be
 * used.
 */
static bool
claim_supervisor(void)
{
	GpuvecShared *state = GpuvecSharedState();
	bool		mine;

	if (state == NULL)
	{
		const char *last_error = GpuvecSharedLastError();

		ereport(LOG,
				(errmsg("gpuvec supervisor ends, as it cannot use the shared memory: %s",
						last_error ? last_error : "there is none")));
		return false;
	}
	SpinLockAcquire(&state->mutex);
	mine = state->supervisor_pid == 0;
	if (mine)
	{
		state->supervisor_pid = MyProcPid;
		state->engine_pid = 0;
		state->listening = state->without = state->engine_ready = false;
	}
	state->arrivals++;
	state->starting = 0;
	SpinLockRelease(&state->mutex);
	return mine;
}

/*
 * Open the listening socket at a path relative to the data directory.
 * Returns NULL, or what could not be done, and errno.
 */
static const char *
open_listen_socket(void)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct stat st;
	mode_t		mask;
	int			rc;

	strlcpy(addr.sun_path, GPUVEC_SOCKET_PATH, sizeof(addr.sun_path));
	if (GPUVEC_CALL(unlink(GPUVEC_SOCKET_PATH)) < 0 && errno != ENOENT)
		return "remove the old socket";
	supervisor.listen_fd = GPUVEC_CALL(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (supervisor.listen_fd < 0)
		return "create a socket";
	mask = umask(0177);
	rc = GPUVEC_CALL(bind(supervisor.listen_fd, (struct sockaddr *) &addr, sizeof(addr)));
	umask(mask);
	if (rc < 0)
		return "bind to socket";
	if (GPUVEC_CALL(listen(supervisor.listen_fd, 4096)) < 0)
		return "listen on socket";
	if (GPUVEC_CALL(stat(GPUVEC_SOCKET_PATH, &st)) < 0)
		return "find socket";
	supervisor.socket_inode = st.st_ino;
	return NULL;
}

/*
 * Open the listening socket.  If that fails, sessions do without the engine,
 * the first failure is logged, and the next attempt is planned.
 */
static void
start_listening(void)
{
	const char *what = open_listen_socket();
	char		last_error[256];
	int			delay;

	if (what == NULL)
	{
		if (supervisor.listen_failures > 0)
			ereport(LOG, (errmsg("gpuvec supervisor listens on socket \"%s\"", GPUVEC_SOCKET_PATH)));
		supervisor.listen_failures = 0;
		SupervisorPublishEngine();
		return;
	}
	snprintf(last_error, sizeof(last_error), "could not %s \"%s\": %s", what, GPUVEC_SOCKET_PATH,
			 strerror(errno));
	SupervisorCloseFd(&supervisor.listen_fd);
	delay = Min(FIRST_DELAY_MS << Min(supervisor.listen_failures, 10), LONGEST_DELAY_MS);
	if (supervisor.listen_failures++ == 0)
		ereport(WARNING,
				(errmsg("gpuvec supervisor %s", last_error),
				 errdetail("Sessions search without the engine until that is mended.")));
	supervisor.next_listen = gpuvec_clock_us() + delay * INT64CONST(1000);
	SupervisorPublishLastError(last_error);
	SupervisorPublishEngine();
}

/*
 * Answer all waiting connections with an error: do without the engine.
 * Otherwise sessions in the backlog would wait for as long as the engine
 * fails to start.
 */
static void
refuse_connections(void)
{
	struct
	{
		gpuvec_frame frame;
		gpuvec_error_head head;
		char		strings[sizeof(((GpuvecShared *) NULL)->last_error) + 2];
	}			reply;
	int			fd;

	while ((fd = GPUVEC_CALL(accept4(supervisor.listen_fd, NULL, NULL,
									 SOCK_CLOEXEC | SOCK_NONBLOCK))) >= 0)
	{
		GpuvecShared *state = GpuvecSharedState();
		ssize_t		rc;

		memset(&reply, 0, sizeof(reply));
		strlcpy(reply.head.sqlstate, "58000", sizeof(reply.head.sqlstate));
		reply.head.fallback = 1;
		strlcpy(reply.strings, state->last_error, sizeof(state->last_error));
		reply.frame.type = GPUVEC_MSG_ERROR;
		reply.frame.length = sizeof(reply.head) + strlen(reply.strings) + 3;
		rc = GPUVEC_CALL(send(fd, &reply, sizeof(reply.frame) + reply.frame.length, MSG_NOSIGNAL));
		(void) rc;
		close(fd);
	}
	supervisor.cannot_accept = errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
}

/* Milliseconds from now until `when`, rounded up; 0 if it has passed */
static long
delay_until(int64 when)
{
	return (long) Max((when - gpuvec_clock_us() + 999) / 1000, 0);
}

/* Milliseconds until something must be done, if no event comes first */
static long
idle_time(void)
{
	if (supervisor.listen_fd < 0)
		return Min(LOOK_MS, delay_until(supervisor.next_listen));
	if (supervisor.engine == 0)
		return Min(LOOK_MS, delay_until(supervisor.next_start));
	return LOOK_MS;
}

/* The events that the supervisor waits for */
static WaitEventSet *
make_events(void)
{
	WaitEventSet *set = GPUVEC_RAISING(GpuvecCreateWaitEventSet(5));

	AddWaitEventToSet(set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	if (supervisor.engine != 0)
	{
		AddWaitEventToSet(set, WL_SOCKET_READABLE, supervisor.log_fd, NULL, NULL);
		AddWaitEventToSet(set, WL_SOCKET_READABLE, supervisor.liveness_fd, NULL, NULL);
	}
	if (supervisor.listen_fd >= 0 && SupervisorRefuses() && !supervisor.cannot_accept)
		AddWaitEventToSet(set, WL_SOCKET_READABLE, supervisor.listen_fd, NULL, NULL);
	return set;
}

/* The same, or NULL if that fails */
static WaitEventSet *
try_make_events(void)
{
	MemoryContext old = CurrentMemoryContext;
	WaitEventSet *volatile set = NULL;

	PG_TRY();
	{
		set = make_events();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(old);
		EmitErrorReport();
		FlushErrorState();
	}
	PG_END_TRY();
	return set;
}

/* Wait for an event, at most idle_time().  Without events, just sleep. */
static void
wait_for_events(void)
{
	WaitEventSet *set = try_make_events();
	WaitEvent	event[5];

	if (set == NULL)
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Max(idle_time(), 100), GpuvecWaitEvent(GPUVEC_WAIT_SUPERVISOR));
	else
	{
		WaitEventSetWait(set, idle_time(), event, 5, GpuvecWaitEvent(GPUVEC_WAIT_SUPERVISOR));
		FreeWaitEventSet(set);
	}
	ResetLatch(MyLatch);
	supervisor.cannot_accept = false;
}

/*
 * Reload the settings, and stop the engine if its own settings have changed
 */
static void
reload_settings(void)
{
	char	   *settings;

	ProcessConfigFile(PGC_SIGHUP);
	settings = EngineSettings();
	if (strcmp(settings, supervisor.settings) != 0)
	{
		ereport(LOG, (errmsg("restarting the gpuvec engine because its settings have changed")));
		supervisor.settings = MemoryContextStrdup(TopMemoryContext, settings);
		supervisor.on_cpu = false;
		DevicesForget();
		EngineRestart();
	}
}

/*
 * Exit callback: stop the engine and remove the socket.  After an error, the
 * next supervisor is not started at once.
 */
static void
supervisor_exit(int code, Datum arg)
{
	GpuvecShared *state = GpuvecSharedState();

	EngineStop();
	if (supervisor.listen_fd >= 0)
		unlink(GPUVEC_SOCKET_PATH);
	SupervisorCloseFd(&supervisor.listen_fd);
	if (code != 0)
		GpuvecNoteSupervisorFailure("its supervisor failed");

	SpinLockAcquire(&state->mutex);
	state->supervisor_pid = 0;
	state->engine_pid = 0;
	state->listening = state->without = state->engine_ready = false;
	SpinLockRelease(&state->mutex);
}

/* True if the socket's file was removed or replaced */
static bool
socket_removed(void)
{
	struct stat st;

	if (GPUVEC_CALL(stat(GPUVEC_SOCKET_PATH, &st)) < 0)
		return errno == ENOENT;
	return st.st_ino != supervisor.socket_inode;
}

/*
 * If the socket's file was removed, no session can find the engine: start
 * over
 */
static void
check_socket(void)
{
	if (supervisor.listen_fd < 0 || !socket_removed())
		return;
	ereport(LOG, (errmsg("socket \"%s\" of the gpuvec engine was removed, restarting the engine",
						 GPUVEC_SOCKET_PATH)));
	SupervisorCloseFd(&supervisor.listen_fd);
	SupervisorPublishLastError("its socket was removed");
	SupervisorPublishEngine();
	EngineStop();
	supervisor.next_start = supervisor.next_listen = 0;
}

/*
 * Open the socket and start the engine, if either is missing and its delay
 * has passed
 */
static void
start_what_lacks(void)
{
	if (supervisor.listen_fd < 0 && delay_until(supervisor.next_listen) == 0)
		start_listening();
	if (supervisor.listen_fd >= 0 && supervisor.engine == 0 && delay_until(supervisor.next_start) == 0)
		EngineStart();
}

/* Main function of the background worker */
void
gpuvec_supervisor_main(Datum arg)
{
	MemoryContext context;

	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGPIPE, PG_SIG_IGN);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	pgstat_report_appname("gpuvec supervisor");
	GpuvecFaultsOfSupervisor();

	if (!claim_supervisor())
		proc_exit(0);
	before_shmem_exit(supervisor_exit, (Datum) 0);
	SupervisorPublishLastError("the gpuvec engine is starting");
	supervisor.settings = GPUVEC_ALLOCATING(MemoryContextStrdup(TopMemoryContext, EngineSettings()));

	context = AllocSetContextCreate(TopMemoryContext, "gpuvec supervisor",
									ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(context);
	pgstat_report_activity(STATE_IDLE, NULL);

	while (!ShutdownRequestPending)
	{
		MemoryContextReset(context);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			reload_settings();
			supervisor.next_listen = 0;
		}
		start_what_lacks();
		wait_for_events();
		check_socket();
		if (supervisor.engine != 0)
		{
			/* at end-of-file the engine is about to exit */
			if (!EngineRelayLog())
				pg_usleep(1000L);
			EngineWatch();
			EngineCheck();
		}
		DevicesRetry();
		if (supervisor.listen_fd >= 0 && SupervisorRefuses())
			refuse_connections();
	}
	proc_exit(0);
}
