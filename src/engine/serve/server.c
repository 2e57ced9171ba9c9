/*-------------------------------------------------------------------------
 *
 * server.c
 *	  Accepts connections, and starts a thread for each.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/fault.h"
#include "engine/log.h"
#include "engine/serve/frames.h"
#include "engine/serve/server.h"

/* Stack of a session's thread; large objects are on the heap */
#define STACK_BYTES		(512 * 1024)

/* Microseconds to wait when descriptors or memory are lacking */
#define SHORTAGE_US		20000

typedef struct session_start
{
	gpuvec_server *server;
	int			fd;
} session_start;

/* A session's thread */
static void *
session_thread(void *arg)
{
	session_start start = *(session_start *) arg;

	free(arg);
	gpuvec_session_run(start.server, start.fd);
	__atomic_sub_fetch(&start.server->sessions, 1, __ATOMIC_RELAXED);
	return NULL;
}

/* True if the other end is a process of the engine's own user */
static bool
peer_is_ours(int fd)
{
	struct ucred peer;
	socklen_t	size = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

/* Start a thread for a connection */
static bool
start_session(gpuvec_server *server, int fd)
{
	session_start *start = malloc(sizeof(*start));
	pthread_attr_t attr;
	pthread_t	thread;
	bool		ok;

	if (start == NULL)
		return false;
	start->server = server;
	start->fd = fd;
	__atomic_add_fetch(&server->sessions, 1, __ATOMIC_RELAXED);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	ok = !gpuvec_fault_due("no-threads") &&
		pthread_create(&thread, &attr, session_thread, start) == 0;
	pthread_attr_destroy(&attr);
	if (!ok)
	{
		__atomic_sub_fetch(&server->sessions, 1, __ATOMIC_RELAXED);
		free(start);
	}
	return ok;
}

/* The supervisor's socket is nonblocking, so wait with poll */
static void
wait_for_connection(int listen_fd)
{
	struct pollfd p = {.fd = listen_fd, .events = POLLIN};

	(void) poll(&p, 1, -1);
}

/* Tell a new connection that the engine cannot serve it, and close it */
static void
turn_away(int fd)
{
	gpuvec_error error;

	gpuvec_fail(&error, GPUVEC_NO_RESOURCES, NULL, NULL,
				"the gpuvec engine lacks file descriptors, threads or memory");
	gpuvec_send_error(fd, 0, &error, false);
	close(fd);
}

/*
 * There is no file descriptor for the next connection.  Close that of an idle
 * session.  If there is none, use the descriptor kept in *reserve to accept
 * the new connection and turn it away.
 */
static void
find_descriptor(gpuvec_server *server, int *reserve)
{
	int			fd = -1;

	if (!gpuvec_seat_give_away() && *reserve >= 0)
	{
		close(*reserve);
		fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0)
			turn_away(fd);
		*reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
	}
	if (fd < 0)
		usleep(SHORTAGE_US);
}

void
gpuvec_server_run(gpuvec_server *server)
{
	int			reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (getrandom(&server->number, sizeof(server->number), 0) != (ssize_t) sizeof(server->number))
		server->number = 0;
	while (!gpuvec_server_stopping())
	{
		int			fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
		{
			if (errno == EAGAIN)
				wait_for_connection(server->listen_fd);
			else if (errno == EMFILE || errno == ENFILE)
				find_descriptor(server, &reserve);
			else if (errno == ENOMEM || errno == ENOBUFS)
				usleep(SHORTAGE_US);
			else if (errno != EINTR && errno != ECONNABORTED)
			{
				gpuvec_log("ERROR", "could not accept a connection: %s", strerror(errno));
				return;
			}
			continue;
		}
		if (!peer_is_ours(fd))
			close(fd);
		else if (!start_session(server, fd))
			turn_away(fd);
	}
}
