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
static size_t capacity = 0;
static gpuvec_store *searched;	/* whose changes requests may wait for */

/* Cancel a request; false if it has been canceled already */
static bool
cancel(const watched_socket *watched)
{
	return !__atomic_exchange_n(watched->canceled, 1, __ATOMIC_RELAXED);
}

/*
 * Check all watched connections.  True if a request was canceled.  The caller
 * holds the mutex.
 */
static bool
look(void)
{
	bool		any = false;

	for (size_t i = 0; i < n; i++)
	{
		struct pollfd p = {.fd = list[i].fd, .events = POLLRDHUP};

		if (poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)))
			any |= cancel(&list[i]);
	}
	return any;
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
		bool		canceled;

		while (n == 0)
			pthread_cond_wait(&some, &mutex);
		canceled = look();
		pthread_mutex_unlock(&mutex);
		if (canceled)
			gpuvec_store_wake(searched);
		nanosleep(&nap, NULL);
		pthread_mutex_lock(&mutex);
	}
	return NULL;
}

bool
gpuvec_hangup_start(gpuvec_store *store)
{
	pthread_t	thread;

	searched = store;
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
	if (n == capacity)
	{
		size_t		more = capacity ? capacity * 2 : 64;
		watched_socket *bigger = realloc(list, more * sizeof(*bigger));

		if (bigger != NULL)
		{
			list = bigger;
			capacity = more;
		}
	}
	if (n < capacity)
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
		(void) cancel(&list[i]);
	pthread_mutex_unlock(&mutex);
	if (any)
		gpuvec_store_wake(searched);
	return any;
}
