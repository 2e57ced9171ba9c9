/*-------------------------------------------------------------------------
 *
 * supervisor.c
 *	  The background worker that keeps one engine running for the server.
 *
 * The supervisor owns the listening socket, so sessions that connect while
 * the engine restarts wait in its backlog.  It starts the engine by fork and
 * exec with the socket, one end of a liveness socket (at whose end-of-file
 * the engine exits: nothing it could survive closes the other end later than
 * this process) and a pipe for its log.  It relays the log, restarts the
 * engine with growing delays, and says in shared memory when sessions must do
 * without an engine, so that they learn it at once.  After repeated failures
 * with CUDA it starts the engine on the CPU.
 *
 * Through the liveness socket the engine gives a sign of life each second.
 * One that gives none for some seconds, in which this process did run, is
 * stopped or stuck: it is killed and replaced.
 *
 * What the supervisor itself lacks (a socket, a pipe, a process) is not the
 * end of it: it tries again, after delays that grow.
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

#include "core/protocol.h"
#include "link/faults.h"
#include "link/shared.h"
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

/* How long the engine may take to exit when asked to, and when killed */
#define EXIT_PATIENCE_MS	3000
#define KILL_PATIENCE_MS	5000

/* How often to look after everything */
#define LOOK_MS				1000

/*
 * How long the engine may give no sign of life: at all, and before its first
 * one
 */
#define SILENCE_MS			gpuvec_engine_patience
#define START_SILENCE_MS	60000

typedef struct Supervisor
{
	int			listen_fd;		/* -1: it could not be opened yet */
	ino_t		socket_inode;	/* of the socket's file */
	int			listen_failures;	/* in a row */
	TimestampTz next_listen;	/* not before this */
	int			liveness_fd;	/* our end; -1: no engine */
	int			log_fd;			/* our, reading end; -1: no engine */
	pid_t		engine;			/* 0: none */
	bool		ready;			/* it has said so */
	bool		heard;			/* it has given a sign of life */
	bool		silent;			/* it has been given up */
	long		silence_ms;		/* since its last sign, as far as we were there */
	TimestampTz last_look;		/* for signs */
	bool		cannot_accept;	/* connections; do not try before the next look */
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

/*
 * Must sessions be told to do without?  Otherwise they wait for the next
 * start.
 */
static bool
must_refuse(void)
{
	return me.listen_fd < 0 || me.silent ||
		(me.engine == 0 && (me.no_exec || me.failures >= REFUSE_FAILURES));
}

/* Tell sessions what the engine is up to */
static void
publish_engine(void)
{
	GpuvecShared *state = GpuvecSharedState();

	SpinLockAcquire(&state->mutex);
	state->engine_pid = me.engine;
	state->engine_ready = me.engine != 0 && me.ready;
	state->listening = me.listen_fd >= 0;
	state->without = must_refuse();
	if (me.silent)
		state->silent_pid = me.engine;
	if (state->engine_ready)
		state->failed_supervisors = 0;
	SpinLockRelease(&state->mutex);
}

/* Note for sessions why there is no engine ("" when there is one) */
static void
publish_trouble(const char *trouble)
{
	GpuvecShared *state = GpuvecSharedState();

	SpinLockAcquire(&state->mutex);
	strlcpy(state->trouble, trouble, sizeof(state->trouble));
	SpinLockRelease(&state->mutex);
}

/* Note that an engine was started */
static void
publish_start(void)
{
	GpuvecShared *state = GpuvecSharedState();

	SpinLockAcquire(&state->mutex);
	state->starts++;
	/* not the one that had this number before */
	if (state->silent_pid == me.engine)
		state->silent_pid = 0;
	SpinLockRelease(&state->mutex);
	publish_trouble("");
	publish_engine();
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
		state->listening = state->without = state->engine_ready = false;
	}
	state->arrivals++;
	state->starting = 0;
	SpinLockRelease(&state->mutex);
	return mine;
}

/* Close a descriptor of ours, if open */
static void
close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/*
 * Open the listening socket with a path relative to the data directory.
 * NULL, or what could not be done (see errno).
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
	me.listen_fd = GPUVEC_CALL(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (me.listen_fd < 0)
		return "create a socket";
	mask = umask(0177);
	rc = GPUVEC_CALL(bind(me.listen_fd, (struct sockaddr *) &addr, sizeof(addr)));
	umask(mask);
	if (rc < 0)
		return "bind to socket";
	if (GPUVEC_CALL(listen(me.listen_fd, 4096)) < 0)
		return "listen on socket";
	if (GPUVEC_CALL(stat(GPUVEC_SOCKET_PATH, &st)) < 0)
		return "find socket";
	me.socket_inode = st.st_ino;
	return NULL;
}

/*
 * Listen.  If that fails, sessions do without, the log hears of it once, and
 * it is tried again later.
 */
static void
start_listening(void)
{
	const char *what = open_listen_socket();
	char		trouble[256];
	int			delay;

	if (what == NULL)
	{
		if (me.listen_failures > 0)
			ereport(LOG, (errmsg("gpuvec supervisor listens on socket \"%s\"", GPUVEC_SOCKET_PATH)));
		me.listen_failures = 0;
		publish_engine();
		return;
	}
	snprintf(trouble, sizeof(trouble), "could not %s \"%s\": %s", what, GPUVEC_SOCKET_PATH,
			 strerror(errno));
	close_fd(&me.listen_fd);
	delay = Min(FIRST_DELAY_MS << Min(me.listen_failures, 10), LONGEST_DELAY_MS);
	if (me.listen_failures++ == 0)
		ereport(WARNING,
				(errmsg("gpuvec supervisor %s", trouble),
				 errdetail("Sessions search without the engine until that is mended.")));
	me.next_listen = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), delay);
	publish_trouble(trouble);
	publish_engine();
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

/* After so many failed starts, how long to wait for the next one */
static int
retry_delay(void)
{
	return me.failures == 0 ? 0 :
		Min(FIRST_DELAY_MS << Min(me.failures - 1, 10), LONGEST_DELAY_MS);
}

/*
 * A socket for life and a pipe for the log of the engine; false: they cannot
 * be had
 */
static bool
make_channels(int *liveness, int *log)
{
	if (GPUVEC_CALL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, liveness)) < 0)
		return false;
	if (GPUVEC_CALL(pipe2(log, O_CLOEXEC)) == 0)
	{
		if (GPUVEC_CALL(fcntl(log[0], F_SETFL, O_NONBLOCK)) == 0)
			return true;
		close(log[0]);
		close(log[1]);
	}
	close(liveness[0]);
	close(liveness[1]);
	return false;
}

/* The engine cannot be started for want of something: try again later */
static void
start_failed(const char *what)
{
	char		trouble[256];

	snprintf(trouble, sizeof(trouble), "could not %s: %s", what, strerror(errno));
	me.failures++;
	me.next_start = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), retry_delay());
	ereport(LOG, (errmsg("gpuvec supervisor %s", trouble)));
	publish_trouble(trouble);
	publish_engine();
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

	if (!make_channels(liveness, log))
	{
		start_failed("create a pipe for the gpuvec engine");
		return;
	}
	pid = GPUVEC_CALL(fork());
	if (pid == 0)
		exec_engine(argv, liveness[0], log[1], parent);
	if (pid < 0)
		start_failed("fork the gpuvec engine");
	close(liveness[0]);
	close(log[1]);
	if (pid < 0)
	{
		close(liveness[1]);
		close(log[0]);
		return;
	}
	me.engine = pid;
	me.liveness_fd = liveness[1];
	me.log_fd = log[0];
	me.line_len = 0;
	me.ready = me.heard = me.silent = false;
	me.silence_ms = 0;
	me.last_look = GetCurrentTimestamp();
	publish_start();
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
		{
			me.ready = true;
			publish_engine();
		}
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
		publish_trouble(line);
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
		ssize_t		n = GPUVEC_CALL(read(me.log_fd, me.line + used, sizeof(me.line) - 1 - used));
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

/* There is no engine any more */
static void
forget_engine(void)
{
	close_fd(&me.liveness_fd);
	close_fd(&me.log_fd);
	me.engine = 0;
	me.ready = me.silent = false;
}

/* The engine is gone: plan the next start */
static void
engine_ended(int status)
{
	TimestampTz now = GetCurrentTimestamp();
	char	   *what = describe_exit(status);
	bool		often = me.ready && crashes_often(now);
	int			delay;

	me.failures = me.ready ? 0 : me.failures + 1;
	me.no_exec = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_NO_EXEC;
	forget_engine();

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
	delay = often && me.failures == 0 ? FIRST_DELAY_MS : retry_delay();
	me.next_start = TimestampTzPlusMilliseconds(now, delay);
	publish_trouble(what);
	publish_engine();
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

/*
 * Stop the engine: ask, wait, insist.  One that cannot even be killed (it
 * waits in the kernel) is not waited for: it ends when it can.
 */
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
		if (waited >= EXIT_PATIENCE_MS || me.silent)
			kill(engine, SIGKILL);
		if (waited >= EXIT_PATIENCE_MS + KILL_PATIENCE_MS)
		{
			ereport(WARNING, (errmsg("gpuvec engine (PID %d) does not end", (int) engine)));
			break;
		}
		pg_usleep(10000L);
	}
	forget_engine();
}

/* Take the engine's signs of life; false: there were none */
static bool
take_signs(void)
{
	char		signs[64];
	bool		any = false;

	while (GPUVEC_CALL(recv(me.liveness_fd, signs, sizeof(signs), MSG_DONTWAIT)) > 0)
		any = true;
	return any;
}

/*
 * What /proc says of the engine in a line that begins so; 0 if it does not
 * say
 */
static int
engine_status(const char *field)
{
	char		path[64];
	char		text[4096];
	ssize_t		n = -1;
	char	   *at;
	int			fd;

	snprintf(path, sizeof(path), "/proc/%d/status", (int) me.engine);
	fd = GPUVEC_CALL(open(path, O_RDONLY | O_CLOEXEC));
	if (fd >= 0)
	{
		n = GPUVEC_CALL(read(fd, text, sizeof(text) - 1));
		close(fd);
	}
	text[Max(n, 0)] = '\0';
	at = strstr(text, field);
	return at ? atoi(at + strlen(field)) : 0;
}

/* The engine has been silent for long: let sessions do without, and end it */
static void
give_up_engine(void)
{
	char		trouble[256];

	if (!me.silent)
	{
		snprintf(trouble, sizeof(trouble), "the gpuvec engine (PID %d) gives no sign of life",
				 (int) me.engine);
		ereport(LOG,
				(errmsg("%s, terminating it", trouble),
				 errdetail("It was stopped, or is stuck.")));
		me.silent = true;
		publish_trouble(trouble);
		publish_engine();
	}
	/* the traces of a crash may be of use */
	if (engine_status("\nCoreDumping:") == 0)
		kill(me.engine, SIGKILL);
}

/*
 * Look for signs of life.  Time in which we did not run ourselves (all were
 * stopped, or the machine was asleep) does not count, nor does time in which
 * somebody debugs the engine.
 */
static void
watch_engine(void)
{
	TimestampTz now = GetCurrentTimestamp();
	long		elapsed = TimestampDifferenceMilliseconds(me.last_look, now);

	me.last_look = now;
	if (take_signs())
	{
		me.heard = true;
		me.silence_ms = 0;
		return;
	}
	me.silence_ms += Min(elapsed, LOOK_MS);
	if (me.silence_ms < (me.heard ? SILENCE_MS : START_SILENCE_MS))
		return;
	if (engine_status("\nTracerPid:") != 0)
		me.silence_ms = 0;
	else
		give_up_engine();
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

	while ((fd = GPUVEC_CALL(accept4(me.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK))) >= 0)
	{
		GpuvecShared *state = GpuvecSharedState();
		ssize_t		rc;

		memset(&reply, 0, sizeof(reply));
		strlcpy(reply.head.sqlstate, "58000", sizeof(reply.head.sqlstate));
		reply.head.fallback = 1;
		strlcpy(reply.text, state->trouble, sizeof(state->trouble));
		reply.frame.type = GPUVEC_MSG_ERROR;
		reply.frame.length = sizeof(reply.head) + strlen(reply.text) + 3;
		rc = GPUVEC_CALL(send(fd, &reply, sizeof(reply.frame) + reply.frame.length, MSG_NOSIGNAL));
		(void) rc;
		close(fd);
	}
	me.cannot_accept = errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
}

/* Milliseconds until something may be done; 0 is now */
static long
delay_until(TimestampTz when)
{
	return TimestampDifferenceMilliseconds(GetCurrentTimestamp(), when);
}

/* How long there is nothing to do, unless something happens */
static long
idle_time(void)
{
	if (me.listen_fd < 0)
		return Min(LOOK_MS, delay_until(me.next_listen));
	if (me.engine == 0)
		return Min(LOOK_MS, delay_until(me.next_start));
	return LOOK_MS;
}

/* What to wait for */
static WaitEventSet *
make_events(void)
{
	WaitEventSet *set = GPUVEC_RAISING(GpuvecCreateWaitEventSet(5));

	AddWaitEventToSet(set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	if (me.engine != 0)
	{
		AddWaitEventToSet(set, WL_SOCKET_READABLE, me.log_fd, NULL, NULL);
		AddWaitEventToSet(set, WL_SOCKET_READABLE, me.liveness_fd, NULL, NULL);
	}
	if (me.listen_fd >= 0 && must_refuse() && !me.cannot_accept)
		AddWaitEventToSet(set, WL_SOCKET_READABLE, me.listen_fd, NULL, NULL);
	return set;
}

/* The same if it can be had; else NULL: then sleeping will do */
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

/* Wait for something to do, at most a second */
static void
wait_for_events(void)
{
	WaitEventSet *set = try_make_events();
	WaitEvent	event[5];

	if (set == NULL)
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Max(idle_time(), 100), PG_WAIT_EXTENSION);
	else
	{
		WaitEventSetWait(set, idle_time(), event, 5, PG_WAIT_EXTENSION);
		FreeWaitEventSet(set);
	}
	ResetLatch(MyLatch);
	me.cannot_accept = false;
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
		publish_trouble("the gpuvec engine is restarting");
		publish_engine();
	}
}

/*
 * Leave nothing behind.  After an error the next supervisor is not started at
 * once.
 */
static void
supervisor_exit(int code, Datum arg)
{
	GpuvecShared *state = GpuvecSharedState();

	stop_engine();
	if (me.listen_fd >= 0)
		unlink(GPUVEC_SOCKET_PATH);
	close_fd(&me.listen_fd);
	if (code != 0)
		GpuvecNoteSupervisorFailure("its supervisor failed");

	SpinLockAcquire(&state->mutex);
	state->supervisor_pid = 0;
	state->engine_pid = 0;
	state->listening = state->without = state->engine_ready = false;
	SpinLockRelease(&state->mutex);
}

/* Has somebody removed the socket's file, or put another there? */
static bool
socket_removed(void)
{
	struct stat st;

	if (GPUVEC_CALL(stat(GPUVEC_SOCKET_PATH, &st)) < 0)
		return errno == ENOENT;
	return st.st_ino != me.socket_inode;
}

/*
 * If the socket cannot be found any more, the engine listens in vain: begin
 * anew
 */
static void
check_socket(void)
{
	if (me.listen_fd < 0 || !socket_removed())
		return;
	ereport(LOG, (errmsg("socket \"%s\" of the gpuvec engine was removed, restarting the engine",
						 GPUVEC_SOCKET_PATH)));
	close_fd(&me.listen_fd);
	publish_trouble("its socket was removed");
	publish_engine();
	stop_engine();
	me.next_start = me.next_listen = 0;
}

/* Begin what can be begun now */
static void
start_what_lacks(void)
{
	if (me.listen_fd < 0 && delay_until(me.next_listen) == 0)
		start_listening();
	if (me.listen_fd >= 0 && me.engine == 0 && delay_until(me.next_start) == 0)
		start_engine();
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
	GpuvecFaultsOfSupervisor();

	if (!claim_supervisor())
		proc_exit(0);
	before_shmem_exit(supervisor_exit, (Datum) 0);
	publish_trouble("the gpuvec engine is starting");
	me.settings = GPUVEC_ALLOCATING(MemoryContextStrdup(TopMemoryContext, engine_settings()));

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
			me.next_listen = 0;
		}
		start_what_lacks();
		wait_for_events();
		check_socket();
		if (me.engine != 0)
		{
			/* at end of file the engine is about to be gone */
			if (!relay_log())
				pg_usleep(1000L);
			watch_engine();
			check_engine();
		}
		if (me.listen_fd >= 0 && must_refuse())
			refuse_connections();
	}
	proc_exit(0);
}
