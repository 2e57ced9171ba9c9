/*-------------------------------------------------------------------------
 *
 * supervisor.c
 *	  The background worker that keeps one engine running for the server.
 *
 * The supervisor owns the listening socket, so sessions that connect while the
 * engine restarts wait in its backlog.  It starts the engine by fork and exec
 * with the socket, one end of a liveness pipe (at whose end-of-file the engine
 * exits: nothing it could survive closes the other end later than this process)
 * and a pipe for its log.  It relays the log, restarts the engine with growing
 * delays, and answers connections itself while it waits, so that sessions
 * learn at once that they must do without an engine.  After repeated failures
 * with CUDA it starts the engine on the CPU.
 *
 * It is connected to no database: it never holds up DROP DATABASE.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/protocol.h"
#include "link/supervisor.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

/* The engine's program beside postgres, unless gpuvec.engine_program says else */
#define ENGINE_PROGRAM		"gpuvec-engine"

/* Descriptors of the engine */
#define ENGINE_LISTEN_FD	3
#define ENGINE_LIVENESS_FD	4

/* Delays after failed starts: an engine that was ready has started well */
#define FIRST_DELAY_MS		500
#define LONGEST_DELAY_MS	60000

/* Failed starts in a row after which sessions are told to do without an engine */
#define REFUSE_FAILURES		3

/*
 * Failed starts in a row, or ends of a running engine within a minute, after
 * which it is started on the CPU
 */
#define CUDA_FAILURES		3
#define CUDA_CRASHES		5
#define CRASH_WINDOW_MS		60000

/* The child's exit code if the program could not be executed */
#define EXIT_NO_EXEC		127

/* How long the engine may take to exit when asked to */
#define EXIT_PATIENCE_MS	3000

typedef struct Supervisor
{
	int			listen_fd;
	int			liveness_fd;	/* our, writing end; -1: no engine */
	int			log_fd;			/* our, reading end; -1: no engine */
	pid_t		engine;			/* 0: none */
	bool		ready;			/* it has said so */
	bool		no_exec;		/* the program cannot be executed */
	int			failures;		/* failed starts in a row */
	TimestampTz crash[CUDA_CRASHES];	/* last ends of running engines, a ring */
	int			ncrashes;
	TimestampTz next_start;		/* not before this */
	bool		on_cpu;			/* CUDA failed too often */
	char		line[2048];		/* unfinished line of the engine's log */
	Size		line_len;
	char	   *settings;		/* the engine's arguments in one string */
} Supervisor;

static Supervisor me = {.listen_fd = -1, .liveness_fd = -1, .log_fd = -1};

/* Note for sessions why there is no engine ("" when there is one) */
static void
publish_engine(const char *trouble)
{
	GpuvecShared *state = GpuvecSharedState();

	SpinLockAcquire(&state->mutex);
	state->engine_pid = me.engine;
	if (me.engine != 0)
		state->starts++;
	strlcpy(state->trouble, trouble, sizeof(state->trouble));
	SpinLockRelease(&state->mutex);
}

/* Become the supervisor, unless there is one */
static bool
claim_supervisor(void)
{
	GpuvecShared *state = GpuvecSharedState();
	bool		mine;

	if (state == NULL)
	{
		const char *trouble = GpuvecSharedTrouble();

		ereport(LOG,
				(errmsg("gpuvec supervisor ends, as it cannot use the shared memory: %s",
						trouble ? trouble : "there is none")));
		return false;
	}
	SpinLockAcquire(&state->mutex);
	mine = state->supervisor_pid == 0;
	if (mine)
	{
		state->supervisor_pid = MyProcPid;
		state->engine_pid = 0;
		state->listening = false;
	}
	state->starting = 0;
	SpinLockRelease(&state->mutex);
	return mine;
}

/* Open the listening socket with a path relative to the data directory */
static void
open_listen_socket(void)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	GpuvecShared *state = GpuvecSharedState();
	mode_t		mask;
	int			rc;

	strlcpy(addr.sun_path, GPUVEC_SOCKET_PATH, sizeof(addr.sun_path));
	if (unlink(GPUVEC_SOCKET_PATH) < 0 && errno != ENOENT)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not remove file \"%s\": %m", GPUVEC_SOCKET_PATH)));
	me.listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (me.listen_fd < 0)
		ereport(ERROR,
				(errcode_for_socket_access(),
				 errmsg("could not create the socket of the gpuvec engine: %m")));
	mask = umask(0177);
	rc = bind(me.listen_fd, (struct sockaddr *) &addr, sizeof(addr));
	umask(mask);
	if (rc < 0 || listen(me.listen_fd, 4096) < 0)
		ereport(ERROR,
				(errcode_for_socket_access(),
				 errmsg("could not listen on socket \"%s\": %m", GPUVEC_SOCKET_PATH)));

	SpinLockAcquire(&state->mutex);
	state->listening = true;
	SpinLockRelease(&state->mutex);
}

/* Close a descriptor of ours, if open */
static void
close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Full path of the engine's program */
static char *
engine_path(void)
{
	char	   *path;

	if (gpuvec_engine_program && gpuvec_engine_program[0])
		return pstrdup(gpuvec_engine_program);
	path = pstrdup(my_exec_path);
	get_parent_directory(path);
	return psprintf("%s/%s", path, ENGINE_PROGRAM);
}

/* What the engine is to run on: the setting, or the CPU after CUDA's failures */
static const char *
engine_backend(void)
{
	if (me.on_cpu || gpuvec_engine == GPUVEC_ENGINE_CPU)
		return "cpu";
	return gpuvec_engine == GPUVEC_ENGINE_CUDA ? "cuda" : "auto";
}

/* All settings of the engine, to notice when one changes */
static char *
engine_settings(void)
{
	return psprintf("%s|%d|%s|%d|%d|%d", engine_path(), gpuvec_engine,
					gpuvec_devices ? gpuvec_devices : "", gpuvec_device_memory,
					gpuvec_cpu_threads, gpuvec_max_sessions);
}

/* Arguments of the engine */
static char **
engine_arguments(void)
{
	GpuvecShared *state = GpuvecSharedState();
	char		incarnation[33];
	int			n = 0;
	char	  **argv = palloc0(sizeof(char *) * 20);

	for (int i = 0; i < 16; i++)
		snprintf(incarnation + 2 * i, 3, "%02x", state->incarnation[i]);

	argv[n++] = engine_path();
	argv[n++] = "--listen-fd";
	argv[n++] = psprintf("%d", ENGINE_LISTEN_FD);
	argv[n++] = "--liveness-fd";
	argv[n++] = psprintf("%d", ENGINE_LIVENESS_FD);
	argv[n++] = "--incarnation";
	argv[n++] = pstrdup(incarnation);
	argv[n++] = "--backend";
	argv[n++] = pstrdup(engine_backend());
	argv[n++] = "--devices";
	argv[n++] = pstrdup(gpuvec_devices && gpuvec_devices[0] ? gpuvec_devices : "0");
	argv[n++] = "--device-memory";
	argv[n++] = psprintf("%d", gpuvec_device_memory);
	argv[n++] = "--cpu-threads";
	argv[n++] = psprintf("%d", gpuvec_cpu_threads);
	argv[n++] = "--max-sessions";
	argv[n++] = psprintf("%d", gpuvec_max_sessions);
	Assert(n < 20);
	return argv;
}

/* Write a message to descriptor 2; async-signal-safe */
static void
child_complain(const char *what, const char *path, int code)
{
	char		digits[12];
	int			n = sizeof(digits);
	ssize_t		rc;

	digits[--n] = '\n';
	do
		digits[--n] = '0' + code % 10;
	while ((code /= 10) != 0);
	rc = write(2, what, strlen(what));
	rc = write(2, path, strlen(path));
	rc = write(2, ": error ", 8);
	rc = write(2, digits + n, sizeof(digits) - n);
	(void) rc;
}

/* Close every descriptor from the given one on; async-signal-safe */
static void
close_from(int first)
{
#ifdef SYS_close_range
	if (syscall(SYS_close_range, first, ~0U, 0) == 0)
		return;
#endif
	for (int fd = first; fd < 65536; fd++)
		close(fd);
}

/*
 * The child between fork and exec: only async-signal-safe calls.  The engine
 * gets a clean process: default signals, three standard descriptors and its own
 * two, no shield from the out-of-memory killer, and SIGKILL when we die.
 */
static void
exec_engine(char **argv, int liveness_fd, int log_fd, pid_t parent)
{
	static const char oom[] = "200";
	int			listen_fd = fcntl(me.listen_fd, F_DUPFD, 10);
	sigset_t	none;
	int			fd;

	liveness_fd = fcntl(liveness_fd, F_DUPFD, 10);
	log_fd = fcntl(log_fd, F_DUPFD, 10);

	for (int sig = 1; sig < NSIG; sig++)
		if (sig != SIGKILL && sig != SIGSTOP)
			signal(sig, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);

	fd = open("/dev/null", O_RDWR);
	dup2(fd, 0);
	dup2(fd, 1);
	dup2(log_fd, 2);
	dup2(listen_fd, ENGINE_LISTEN_FD);
	dup2(liveness_fd, ENGINE_LIVENESS_FD);
	close_from(ENGINE_LIVENESS_FD + 1);

	fd = open("/proc/self/oom_score_adj", O_WRONLY);
	if (fd >= 0)
	{
		ssize_t		rc = write(fd, oom, sizeof(oom) - 1);

		(void) rc;
		close(fd);
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(126);

	execv(argv[0], argv);
	child_complain("ERROR: could not execute ", argv[0], errno);
	_exit(EXIT_NO_EXEC);
}

/* Start the engine */
static void
start_engine(void)
{
	char	  **argv = engine_arguments();
	pid_t		parent = getpid();
	int			liveness[2];
	int			log[2];
	pid_t		pid;

	if (pipe2(liveness, O_CLOEXEC) < 0)
		ereport(ERROR,
				(errcode_for_socket_access(), errmsg("could not create a pipe: %m")));
	if (pipe2(log, O_CLOEXEC) < 0)
	{
		close(liveness[0]);
		close(liveness[1]);
		ereport(ERROR,
				(errcode_for_socket_access(), errmsg("could not create a pipe: %m")));
	}

	pid = fork();
	if (pid == 0)
		exec_engine(argv, liveness[0], log[1], parent);
	close(liveness[0]);
	close(log[1]);
	if (pid < 0)
	{
		close(liveness[1]);
		close(log[0]);
		ereport(ERROR, (errmsg("could not fork the gpuvec engine: %m")));
	}
	fcntl(log[0], F_SETFL, O_NONBLOCK);
	me.engine = pid;
	me.liveness_fd = liveness[1];
	me.log_fd = log[0];
	me.line_len = 0;
	me.ready = false;
	publish_engine("");
}

/* Write one line of the engine's log to the server's */
static void
relay_line(char *line)
{
	int			level = LOG;

	if (strncmp(line, "LOG: ", 5) == 0)
	{
		line += 5;
		if (strncmp(line, "ready:", 6) == 0)
			me.ready = true;
	}
	else if (strncmp(line, "WARNING: ", 9) == 0)
	{
		level = WARNING;
		line += 9;
	}
	else if (strncmp(line, "ERROR: ", 7) == 0)
	{
		level = WARNING;
		line += 7;
		/* the last complaint is what sessions hear if the engine does not start */
		strlcpy(GpuvecSharedState()->trouble, line, sizeof(GpuvecSharedState()->trouble));
	}
	ereport(level, (errmsg("gpuvec engine: %s", line)));
}

/* Relay what the engine wrote.  False at the end of the file. */
static bool
relay_log(void)
{
	for (;;)
	{
		/* there always is room; Min tells compilers */
		Size		used = Min(me.line_len, sizeof(me.line) - 1);
		ssize_t		n = read(me.log_fd, me.line + used, sizeof(me.line) - 1 - used);
		char	   *start = me.line;
		char	   *end;

		if (n < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
		me.line_len += n;
		me.line[me.line_len] = '\0';
		while ((end = strchr(start, '\n')) != NULL)
		{
			*end = '\0';
			relay_line(start);
			start = end + 1;
		}
		if (n == 0 || (start == me.line && me.line_len == sizeof(me.line) - 1))
		{
			if (*start)
				relay_line(start);
			start = me.line + me.line_len;
		}
		me.line_len -= start - me.line;
		memmove(me.line, start, me.line_len);
		if (n == 0)
			return false;
	}
}

/* How the engine ended, for people */
static char *
describe_exit(int status)
{
	if (WIFSIGNALED(status))
		return psprintf("gpuvec engine was terminated by signal %d: %s",
						WTERMSIG(status), pg_strsignal(WTERMSIG(status)));
	if (WEXITSTATUS(status) == EXIT_NO_EXEC)
		return psprintf("gpuvec engine program \"%s\" could not be executed", engine_path());
	return psprintf("gpuvec engine exited with exit code %d", WEXITSTATUS(status));
}

/* Has a running engine ended too often lately?  Notes that one has. */
static bool
crashes_often(TimestampTz now)
{
	TimestampTz oldest = me.crash[me.ncrashes % CUDA_CRASHES];

	me.crash[me.ncrashes++ % CUDA_CRASHES] = now;
	return me.ncrashes > CUDA_CRASHES &&
		!TimestampDifferenceExceeds(oldest, now, CRASH_WINDOW_MS);
}

/* The engine is gone: plan the next start */
static void
engine_ended(int status)
{
	TimestampTz now = GetCurrentTimestamp();
	char	   *what = describe_exit(status);
	bool		often = me.ready && crashes_often(now);
	int			delay = 0;

	close_fd(&me.liveness_fd);
	close_fd(&me.log_fd);
	me.engine = 0;
	me.failures = me.ready ? 0 : me.failures + 1;
	me.no_exec = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_NO_EXEC;

	ereport(LOG, (errmsg("%s", what)));
	if ((often || me.failures >= CUDA_FAILURES) && !me.no_exec &&
		gpuvec_engine != GPUVEC_ENGINE_CPU && !me.on_cpu)
	{
		ereport(WARNING,
				(errmsg("gpuvec engine failed repeatedly with gpuvec.engine = %s, starting it on the CPU",
						engine_backend()),
				 errhint("After the cause is mended, terminate the gpuvec supervisor to try the GPU again.")));
		me.on_cpu = true;
		me.failures = 0;
	}
	if (often)
		delay = FIRST_DELAY_MS;
	if (me.failures > 0)
		delay = Min(FIRST_DELAY_MS << Min(me.failures - 1, 10), LONGEST_DELAY_MS);
	me.next_start = TimestampTzPlusMilliseconds(now, delay);
	publish_engine(what);
}

/* Has the engine exited?  Then collect it. */
static void
check_engine(void)
{
	int			status;

	if (me.engine != 0 && waitpid(me.engine, &status, WNOHANG) == me.engine)
	{
		relay_log();
		engine_ended(status);
	}
}

/* Stop the engine: ask, wait, insist */
static void
stop_engine(void)
{
	int			status;
	pid_t		engine = me.engine;

	if (engine == 0)
		return;
	kill(engine, SIGTERM);
	for (int waited = 0; waitpid(engine, &status, WNOHANG) == 0; waited += 10)
	{
		if (waited >= EXIT_PATIENCE_MS)
			kill(engine, SIGKILL);
		pg_usleep(10000L);
	}
	close_fd(&me.liveness_fd);
	close_fd(&me.log_fd);
	me.engine = 0;
}

/*
 * Answer connections while no engine runs: "do without".  Whoever is in the
 * backlog would otherwise wait for as long as the engine keeps failing.
 */
static void
refuse_connections(void)
{
	struct
	{
		gpuvec_frame frame;
		gpuvec_error_head head;
		char		text[sizeof(((GpuvecShared *) NULL)->trouble) + 2];
	}			reply;
	int			fd;

	while ((fd = accept4(me.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
	{
		GpuvecShared *state = GpuvecSharedState();
		ssize_t		rc;

		memset(&reply, 0, sizeof(reply));
		strlcpy(reply.head.sqlstate, "58000", sizeof(reply.head.sqlstate));
		reply.head.fallback = 1;
		strlcpy(reply.text, state->trouble, sizeof(state->trouble));
		reply.frame.type = GPUVEC_MSG_ERROR;
		reply.frame.length = sizeof(reply.head) + strlen(reply.text) + 3;
		rc = send(fd, &reply, sizeof(reply.frame) + reply.frame.length, MSG_NOSIGNAL);
		(void) rc;
		close(fd);
	}
}

/* Must sessions be told to do without?  Otherwise they wait for the next start. */
static bool
must_refuse(void)
{
	return me.engine == 0 && (me.no_exec || me.failures >= REFUSE_FAILURES);
}

/* Milliseconds until the engine may be started; 0 is now */
static long
start_delay(void)
{
	return TimestampDifferenceMilliseconds(GetCurrentTimestamp(), me.next_start);
}

/* Wait for something to do, at most a second */
static void
wait_for_events(void)
{
	WaitEventSet *set = GpuvecCreateWaitEventSet(4);
	WaitEvent	event[4];
	long		timeout = 1000;

	AddWaitEventToSet(set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	if (me.engine != 0)
		AddWaitEventToSet(set, WL_SOCKET_READABLE, me.log_fd, NULL, NULL);
	else
		timeout = Min(timeout, start_delay());
	if (must_refuse())
		AddWaitEventToSet(set, WL_SOCKET_READABLE, me.listen_fd, NULL, NULL);
	WaitEventSetWait(set, timeout, event, 4, PG_WAIT_EXTENSION);
	FreeWaitEventSet(set);
	ResetLatch(MyLatch);
}

/* Settings were reloaded: restart the engine if its own have changed */
static void
reload_settings(void)
{
	char	   *settings;

	ProcessConfigFile(PGC_SIGHUP);
	settings = engine_settings();
	if (strcmp(settings, me.settings) != 0)
	{
		ereport(LOG, (errmsg("restarting the gpuvec engine because its settings have changed")));
		stop_engine();
		me.settings = MemoryContextStrdup(TopMemoryContext, settings);
		me.on_cpu = false;
		me.no_exec = false;
		me.failures = 0;
		me.next_start = 0;
		publish_engine("the gpuvec engine is restarting");
	}
}

/* Leave nothing behind */
static void
supervisor_exit(int code, Datum arg)
{
	GpuvecShared *state = GpuvecSharedState();

	stop_engine();
	if (me.listen_fd >= 0)
		unlink(GPUVEC_SOCKET_PATH);
	close_fd(&me.listen_fd);

	SpinLockAcquire(&state->mutex);
	state->supervisor_pid = 0;
	state->engine_pid = 0;
	state->listening = false;
	SpinLockRelease(&state->mutex);
}

/* The supervisor */
void
gpuvec_supervisor_main(Datum arg)
{
	MemoryContext context;

	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGPIPE, SIG_IGN);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	pgstat_report_appname("gpuvec supervisor");

	if (!claim_supervisor())
		proc_exit(0);
	before_shmem_exit(supervisor_exit, (Datum) 0);
	publish_engine("the gpuvec engine is starting");
	open_listen_socket();
	me.settings = MemoryContextStrdup(TopMemoryContext, engine_settings());

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
		}
		if (me.engine == 0 && start_delay() == 0)
			start_engine();
		wait_for_events();
		if (me.engine != 0)
		{
			/* at end of file the engine is about to be gone */
			if (!relay_log())
				pg_usleep(1000L);
			check_engine();
		}
		if (must_refuse())
			refuse_connections();
	}
	proc_exit(0);
}
