/*-------------------------------------------------------------------------
 *
 * engine_process.c
 *	  The engine's process: its start, log, signs of life and end.
 *
 * All of this runs in the supervisor (supervisor.c).  It starts the engine by
 * fork and exec.  The engine inherits the listening socket, one end of a
 * liveness socket, and a pipe for its log, which the supervisor copies to the
 * server's log.  The engine exits at the end-of-file of the liveness socket,
 * which comes with the supervisor's death at the latest.  After repeated
 * failures with CUDA the engine is started on the CPU.
 *
 * The engine sends a sign of life through the liveness socket every second.
 * If it sends none for gpuvec_engine_patience ms in which the supervisor
 * itself did run, it is stopped or stuck: it is killed and replaced.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "link/engine_process.h"
#include "link/faults.h"
#include "link/lost_devices.h"
#include "link/shared.h"
#include "miscadmin.h"

/*
 * The engine's program, in the directory of postgres, unless
 * gpuvec.engine_program is set.  A package of its own may bring one with
 * kernels, which works without a GPU as well.
 */
#define ENGINE_PROGRAM		"gpuvec-engine"
#define CUDA_ENGINE_PROGRAM "gpuvec-engine-cuda"

/* The engine's file descriptors */
#define ENGINE_LISTEN_FD	3
#define ENGINE_LIVENESS_FD	4

/*
 * The engine is started on the CPU after CUDA_FAILURES failed starts in a
 * row, or after more than CUDA_CRASHES ends of a running engine within
 * CRASH_WINDOW_MS
 */
#define CUDA_FAILURES		3
#define CRASH_WINDOW_MS		60000

/* The child's exit code if the program could not be executed */
#define EXIT_NO_EXEC		127

/* How long the engine may take to exit after SIGTERM, and after SIGKILL */
#define EXIT_PATIENCE_MS	3000
#define KILL_PATIENCE_MS	5000

/*
 * How long the engine may give no sign of life: after its first sign, and
 * before
 */
#define SILENCE_MS			gpuvec_engine_patience
#define START_SILENCE_MS	60000

/* Full path of a program in the directory of postgres */
static char *
beside_postgres(const char *program)
{
	char	   *path = pstrdup(my_exec_path);

	get_parent_directory(path);
	return psprintf("%s/%s", path, program);
}

/*
 * Full path of the engine's program: of two, that with kernels, unless
 * gpuvec.engine is cpu
 */
static char *
engine_path(void)
{
	char	   *with_kernels;

	if (gpuvec_engine_program && gpuvec_engine_program[0])
		return pstrdup(gpuvec_engine_program);
	with_kernels = beside_postgres(CUDA_ENGINE_PROGRAM);
	if (gpuvec_engine != GPUVEC_ENGINE_CPU && access(with_kernels, X_OK) == 0)
		return with_kernels;
	return beside_postgres(ENGINE_PROGRAM);
}

/*
 * The engine's --backend: the setting, or the CPU after failures with CUDA
 */
static const char *
engine_backend(void)
{
	if (supervisor.on_cpu || gpuvec_engine == GPUVEC_ENGINE_CPU)
		return "cpu";
	return gpuvec_engine == GPUVEC_ENGINE_CUDA ? "cuda" : "auto";
}

char *
EngineSettings(void)
{
	return psprintf("%s|%d|%s|%d|%d|%d|%d|%d", engine_path(), gpuvec_engine,
					gpuvec_devices ? gpuvec_devices : "", gpuvec_device_memory, gpuvec_host_memory,
					gpuvec_cpu_threads, gpuvec_cpu_parts, gpuvec_max_sessions);
}

/* The engine's command line */
static char **
engine_arguments(void)
{
	GpuvecShared *state = GpuvecSharedState();
	char	   *without = DevicesWithout();
	char		incarnation[33];
	int			n = 0;
	char	  **argv = palloc0(sizeof(char *) * 24);

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
	argv[n++] = "--host-memory";
	argv[n++] = psprintf("%d", gpuvec_host_memory);
	argv[n++] = "--cpu-threads";
	argv[n++] = psprintf("%d", gpuvec_cpu_threads);
	if (gpuvec_cpu_parts > 0)
	{
		argv[n++] = "--cpu-parts";
		argv[n++] = psprintf("%d", gpuvec_cpu_parts);
	}
	if (without)
	{
		argv[n++] = "--without-devices";
		argv[n++] = without;
	}
	argv[n++] = "--max-sessions";
	argv[n++] = psprintf("%d", gpuvec_max_sessions);
	Assert(n < 24);
	return argv;
}

char	  **
EngineProbeArguments(char *devices)
{
	int			n = 0;
	char	  **argv = palloc0(sizeof(char *) * 7);

	argv[n++] = engine_path();
	argv[n++] = "--probe";
	argv[n++] = "--backend";
	argv[n++] = pstrdup(engine_backend());
	argv[n++] = "--without-devices";
	argv[n++] = devices;
	return argv;
}

/* Write a message to stderr; async-signal-safe */
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

/* Close all descriptors >= first; async-signal-safe */
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
 * gets a clean process: default signal handlers, three standard descriptors
 * and its own two, no protection from the out-of-memory killer, and SIGKILL
 * when the supervisor dies.
 */
void
EngineExec(char **argv, int liveness_fd, int log_fd, pid_t parent)
{
	static const char oom[] = "200";
	int			listen_fd = fcntl(supervisor.listen_fd, F_DUPFD, 10);
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

/* Delay before the next start, in ms, by the number of failed starts */
static int
retry_delay(void)
{
	return supervisor.failures == 0 ? 0 :
		Min(FIRST_DELAY_MS << Min(supervisor.failures - 1, 10), LONGEST_DELAY_MS);
}

/*
 * Make the engine's liveness socket and log pipe; false: errno says why not
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

/* The engine could not be started for want of something: try again later */
static void
start_failed(const char *what)
{
	char		last_error[256];

	snprintf(last_error, sizeof(last_error), "could not %s: %s", what, strerror(errno));
	supervisor.failures++;
	supervisor.next_start = gpuvec_clock_us() + retry_delay() * INT64CONST(1000);
	ereport(LOG, (errmsg("gpuvec supervisor %s", last_error)));
	SupervisorPublishLastError(last_error);
	SupervisorPublishEngine();
}

void
EngineStart(void)
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
		EngineExec(argv, liveness[0], log[1], parent);
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
	supervisor.engine = pid;
	supervisor.liveness_fd = liveness[1];
	supervisor.log_fd = log[0];
	supervisor.line_len = 0;
	supervisor.ready = supervisor.heard = supervisor.silent = false;
	supervisor.silence_ms = 0;
	supervisor.last_look = gpuvec_clock_us();
	DevicesStarting();
	SupervisorPublishStart();
}

/* Write one line of the engine's log to the server's */
static void
relay_line(char *line)
{
	int			level = LOG;
	int			number;

	if (strncmp(line, "LOG: ", 5) == 0)
	{
		line += 5;
		if (strncmp(line, "ready:", 6) == 0)
		{
			supervisor.ready = true;
			SupervisorPublishEngine();
		}
		else if (sscanf(line, "failed: device %d", &number) == 1)
			DeviceFailed(number);
		else if (sscanf(line, "lost: device %d", &number) == 1)
			DeviceLost(number);
	}
	else if (strncmp(line, "DEBUG: ", 7) == 0)
	{
		level = DEBUG1;
		line += 7;
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

		/*
		 * the last error is what sessions report if the engine does not start
		 */
		SupervisorPublishLastError(line);
	}
	ereport(level, (errmsg("gpuvec engine: %s", line)));
}

bool
EngineRelayLog(void)
{
	for (;;)
	{
		/* line_len is always less; Min() shows compilers that it is */
		Size		used = Min(supervisor.line_len, sizeof(supervisor.line) - 1);
		ssize_t		n = GPUVEC_CALL(read(supervisor.log_fd, supervisor.line + used,
										 sizeof(supervisor.line) - 1 - used));
		char	   *start = supervisor.line;
		char	   *end;

		if (n < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
		supervisor.line_len += n;
		supervisor.line[supervisor.line_len] = '\0';
		while ((end = strchr(start, '\n')) != NULL)
		{
			*end = '\0';
			relay_line(start);
			start = end + 1;
		}
		if (n == 0 || (start == supervisor.line && supervisor.line_len == sizeof(supervisor.line) - 1))
		{
			if (*start)
				relay_line(start);
			start = supervisor.line + supervisor.line_len;
		}
		supervisor.line_len -= start - supervisor.line;
		memmove(supervisor.line, start, supervisor.line_len);
		if (n == 0)
			return false;
	}
}

/* How the engine ended, as a message */
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

/*
 * Note that a running engine has ended.  True if that was too often within
 * CRASH_WINDOW_MS.
 */
static bool
crashes_often(int64 now)
{
	int64		oldest = supervisor.crash[supervisor.ncrashes % CUDA_CRASHES];

	supervisor.crash[supervisor.ncrashes++ % CUDA_CRASHES] = now;
	return supervisor.ncrashes > CUDA_CRASHES &&
		now - oldest < CRASH_WINDOW_MS * INT64CONST(1000);
}

static void
forget_engine(void)
{
	SupervisorCloseFd(&supervisor.liveness_fd);
	SupervisorCloseFd(&supervisor.log_fd);
	supervisor.engine = 0;
	supervisor.ready = supervisor.silent = false;
}

/* The engine has ended: plan the next start */
static void
engine_ended(int status)
{
	int64		now = gpuvec_clock_us();
	char	   *what = describe_exit(status);
	bool		often = supervisor.ready && crashes_often(now);
	int			delay;

	supervisor.failures = supervisor.ready ? 0 : supervisor.failures + 1;
	supervisor.no_exec = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_NO_EXEC;
	forget_engine();

	ereport(LOG, (errmsg("%s", what)));
	if ((often || supervisor.failures >= CUDA_FAILURES) && !supervisor.no_exec &&
		gpuvec_engine != GPUVEC_ENGINE_CPU && !supervisor.on_cpu)
	{
		ereport(WARNING,
				(errmsg("gpuvec engine failed repeatedly with gpuvec.engine = %s, starting it on the CPU",
						engine_backend()),
				 errhint("After the cause is mended, terminate the gpuvec supervisor to try the GPU again.")));
		supervisor.on_cpu = true;
		supervisor.failures = 0;
	}
	delay = often && supervisor.failures == 0 ? FIRST_DELAY_MS : retry_delay();
	supervisor.next_start = now + delay * INT64CONST(1000);
	SupervisorPublishLastError(what);
	SupervisorPublishEngine();
}

void
EngineCheck(void)
{
	int			status;

	if (supervisor.engine != 0 && waitpid(supervisor.engine, &status, WNOHANG) == supervisor.engine)
	{
		EngineRelayLog();
		engine_ended(status);
	}
}

void
EngineStop(void)
{
	int			status;
	pid_t		engine = supervisor.engine;

	if (engine == 0)
		return;
	kill(engine, SIGTERM);
	for (int waited = 0; waitpid(engine, &status, WNOHANG) == 0; waited += 10)
	{
		if (waited >= EXIT_PATIENCE_MS || supervisor.silent)
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

void
EngineRestart(void)
{
	EngineStop();
	supervisor.no_exec = false;
	supervisor.failures = 0;
	supervisor.next_start = 0;
	SupervisorPublishLastError("the gpuvec engine is restarting");
	SupervisorPublishEngine();
}

/* Receive the engine's signs of life; false if there were none */
static bool
take_signs(void)
{
	char		signs[64];
	bool		any = false;

	while (GPUVEC_CALL(recv(supervisor.liveness_fd, signs, sizeof(signs), MSG_DONTWAIT)) > 0)
		any = true;
	return any;
}

/*
 * The number in the line of the engine's /proc status that begins with
 * `field`; 0 if there is none
 */
static int
engine_status(const char *field)
{
	char		path[64];
	char		lines[4096];
	ssize_t		n = -1;
	char	   *at;
	int			fd;

	snprintf(path, sizeof(path), "/proc/%d/status", (int) supervisor.engine);
	fd = GPUVEC_CALL(open(path, O_RDONLY | O_CLOEXEC));
	if (fd >= 0)
	{
		n = GPUVEC_CALL(read(fd, lines, sizeof(lines) - 1));
		close(fd);
	}
	lines[Max(n, 0)] = '\0';

	at = strstr(lines, field);
	return at ? atoi(at + strlen(field)) : 0;
}

/*
 * The engine was silent for too long: tell sessions to do without it, and
 * kill it
 */
static void
give_up_engine(void)
{
	char		last_error[256];

	if (!supervisor.silent)
	{
		snprintf(last_error, sizeof(last_error), "the gpuvec engine (PID %d) gives no sign of life",
				 (int) supervisor.engine);
		ereport(LOG,
				(errmsg("%s, terminating it", last_error),
				 errdetail("It was stopped, or is stuck.")));
		supervisor.silent = true;
		SupervisorPublishLastError(last_error);
		SupervisorPublishEngine();
	}
	/* let a core dump be written first */
	if (engine_status("\nCoreDumping:") == 0)
		kill(supervisor.engine, SIGKILL);
}

void
EngineWatch(void)
{
	int64		now = gpuvec_clock_us();
	long		elapsed = (long) ((now - supervisor.last_look) / 1000);

	supervisor.last_look = now;
	if (take_signs())
	{
		supervisor.heard = true;
		supervisor.silence_ms = 0;
		return;
	}
	supervisor.silence_ms += Min(elapsed, LOOK_MS);
	if (supervisor.silence_ms < (supervisor.heard ? SILENCE_MS : START_SILENCE_MS))
		return;
	if (engine_status("\nTracerPid:") != 0)
		supervisor.silence_ms = 0;
	else
		give_up_engine();
}
