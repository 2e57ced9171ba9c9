/*-------------------------------------------------------------------------
 *
 * hangup.c
 *	  Cancels the requests of closed connections.
 *
 * A session does not read its socket while it searches.  One thread checks
 * the sockets of all searching sessions every LOOK_MS milliseconds.
 *
 *-------------------------------------------------------------------------
 */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "engine/serve/server.h"

#define LOOK_MS		10

typedef struct watched_socket
{
	int			fd;
	int		   *canceled;
} watched_socket;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t some = PTHREAD_COND_INITIALIZER;
static watched_socket *list = NULL;
static size_t n = 0;
static size_t room = 0;

/* Check all watched connections; the caller holds the mutex */
static void
look(void)
{
	for (size_t i = 0; i < n; i++)
	{
		struct pollfd p = {.fd = list[i].fd, .events = POLLRDHUP};

		if (poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)))
			__atomic_store_n(list[i].canceled, 1, __ATOMIC_RELAXED);
	}
}

/* The thread that checks the connections */
static void *
watch(void *arg)
{
	const struct timespec nap = {.tv_nsec = LOOK_MS * 1000000L};

	(void) arg;
	pthread_mutex_lock(&mutex);
	for (;;)
	{
		while (n == 0)
			pthread_cond_wait(&some, &mutex);
		look();
		pthread_mutex_unlock(&mutex);
		nanosleep(&nap, NULL);
		pthread_mutex_lock(&mutex);
	}
	return NULL;
}

bool
gpuvec_hangup_start(void)
{
	pthread_t	thread;

	if (pthread_create(&thread, NULL, watch, NULL) != 0)
		return false;
	pthread_detach(thread);
	return true;
}

/*
 * On lack of memory the connection is not watched; then the search just ends
 * later
 */
void
gpuvec_hangup_watch(int fd, int *canceled)
{
	pthread_mutex_lock(&mutex);
	if (n == room)
	{
		size_t		more = room ? room * 2 : 64;
		watched_socket *bigger = realloc(list, more * sizeof(*bigger));

		if (bigger != NULL)
		{
			list = bigger;
			room = more;
		}
	}
	if (n < room)
	{
		list[n].fd = fd;
		list[n].canceled = canceled;
		n++;
		if (n == 1)
			pthread_cond_signal(&some);
	}
	pthread_mutex_unlock(&mutex);
}

void
gpuvec_hangup_unwatch(int fd)
{
	pthread_mutex_lock(&mutex);
	for (size_t i = 0; i < n; i++)
	{
		if (list[i].fd == fd)
		{
			list[i] = list[--n];
			break;
		}
	}
	pthread_mutex_unlock(&mutex);
}

bool
gpuvec_hangup_cancel_all(void)
{
	bool		any;

	pthread_mutex_lock(&mutex);
	any = n > 0;
	for (size_t i = 0; i < n; i++)
		__atomic_store_n(list[i].canceled, 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&mutex);
	return any;
}
