/*-------------------------------------------------------------------------
 *
 * main.c
 *	  gpuvec-engine: the process that keeps mirrors in memory and searches
 *	  them.  This file sets up signals, limits, threads and the socket.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/fault.h"
#include "core/hash_secret.h"
#include "engine/embedding/embedding_mirror.h"
#include "engine/log.h"
#include "engine/serve/server.h"
#include "engine/sets/compound.h"
#include "engine/sets/sets_mirror.h"

#define EXIT_SETUP	3

/* Milliseconds between heartbeats to the supervisor */
#define PULSE_MS	1000

/* Microseconds that running searches get to end when the engine stops */
#define FAREWELL_US	50000

/*
 * Allocations of at least this size use mmap, so free() returns them to the
 * system at once, as full segments should be.
 */
#define MMAP_BYTES	(4 * 1024 * 1024)

/*
 * The heap keeps up to TRIM_BYTES of freed memory, and grows in steps of
 * PAD_BYTES.  Otherwise each refresh, and each merge of small segments, would
 * pay for page faults, which take longer than filling the memory.
 */
#define TRIM_BYTES	(8 * 1024 * 1024)
#define PAD_BYTES	(1024 * 1024)

static gpuvec_engine_options options;
static gpuvec_server server;

/* Remove the socket that this process created, if any */
static void
remove_socket(void)
{
	if (options.socket)
		unlink(options.socket);
}

/* True if the supervisor has closed its end.  It never sends anything. */
static bool
supervisor_gone(void)
{
	char		c;
	ssize_t		n = read(options.liveness_fd, &c, 1);

	return n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN);
}

/*
 * Thread: sends the supervisor a heartbeat each second, unless work is stuck.
 * Exits the process when the supervisor is gone.
 */
static void *
watch_supervisor(void *arg)
{
	struct pollfd p = {.fd = options.liveness_fd, .events = POLLIN};

	(void) arg;
	for (;;)
	{
		/*
		 * send() fails on a pipe, which a manual start may pass; then no
		 * heartbeat is needed
		 */
		if (gpuvec_seats_get_on())
			(void) send(options.liveness_fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (poll(&p, 1, PULSE_MS) > 0 && supervisor_gone())
		{
			remove_socket();
			_exit(0);
		}
	}
	return NULL;
}

/* Thread: waits for SIGTERM, which all threads block, and shuts down */
static void *
wait_for_signal(void *arg)
{
	sigset_t   *set = arg;
	int			sig;

	while (sigwait(set, &sig) != 0)
		;
	gpuvec_server_stop();
	remove_socket();
	/* sessions with running searches are told to retry; others see EOF */
	if (gpuvec_hangup_cancel_all())
		usleep(FAREWELL_US);
	_exit(0);
	return NULL;
}

/* Start a detached thread */
static bool
start_thread(void *(*run) (void *), void *arg)
{
	pthread_t	thread;

	return pthread_create(&thread, NULL, run, arg) == 0 && pthread_detach(thread) == 0;
}

/*
 * Ignore signals that may be sent to the whole process group.  SIGTERM goes
 * to the thread that waits for it.
 */
static bool
set_up_signals(void)
{
	static sigset_t term;

	signal(SIGPIPE, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGUSR1, SIG_IGN);
	signal(SIGUSR2, SIG_IGN);
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &term, NULL);
	return start_thread(wait_for_signal, &term);
}

/* Raise the limit of open files to its maximum, and set up malloc */
static void
raise_limits(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
	{
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	mallopt(M_MMAP_THRESHOLD, MMAP_BYTES);
	mallopt(M_TRIM_THRESHOLD, TRIM_BYTES);
	mallopt(M_TOP_PAD, PAD_BYTES);
	mallopt(M_ARENA_MAX, 4);
}

/*
 * Listen on a UNIX socket at this path, for its owner only.  Returns the
 * descriptor, or -1.
 */
static int
listen_on(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int			fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	mode_t		mask;
	int			rc;

	if (fd < 0 || strlen(path) >= sizeof(addr.sun_path))
		return -1;
	strcpy(addr.sun_path, path);
	unlink(path);
	mask = umask(0177);
	rc = bind(fd, (struct sockaddr *) &addr, sizeof(addr));
	umask(mask);
	return rc == 0 && listen(fd, 4096) == 0 ? fd : -1;
}

int
main(int argc, char **argv)
{
	static const gpuvec_mirror_kinds kinds = {&gpuvec_sets_kind, &gpuvec_embedding_kind};
	long		argument = 0;

	gpuvec_parse_options(&options, argc, argv);
	gpuvec_log_init();
	gpuvec_hash_secret_draw();
	if (gpuvec_fault("crash-at-start", &argument))
		return 1;
	if (options.probe)
		return gpuvec_probe(&options) ? 0 : 1;
	raise_limits();
	if (!set_up_signals() || (options.liveness_fd >= 0 && !start_thread(watch_supervisor, NULL)) ||
		!gpuvec_hangup_start(&server.store))
	{
		gpuvec_log("ERROR", "could not start threads");
		return EXIT_SETUP;
	}
	server.options = &options;
	if (!gpuvec_store_open(&server.store, &options, &kinds))
		return EXIT_SETUP;
	if (!gpuvec_merger_start(&server.store) || !gpuvec_compounds_start(&server.store))
	{
		gpuvec_log("ERROR", "could not start threads");
		return EXIT_SETUP;
	}
	if (!gpuvec_sweep_start(&server.store))
		gpuvec_log("WARNING", "could not start the thread that drops stale mirrors");
	server.listen_fd = options.socket ? listen_on(options.socket) : options.listen_fd;
	if (server.listen_fd < 0)
	{
		gpuvec_log("ERROR", "could not listen on socket \"%s\": %s", options.socket, strerror(errno));
		return EXIT_SETUP;
	}
	gpuvec_server_run(&server);
	/* the thread that stopped the server ends the process */
	while (gpuvec_server_stopping())
		pause();
	return 0;
}
