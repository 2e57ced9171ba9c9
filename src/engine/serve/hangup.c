/*-------------------------------------------------------------------------
 *
 * hangup.c
 *	  Cancels the requests of closed connections.
 *
 * A session does not read its socket while it searches.  One thread checks
 * the sockets of all searching sessions every LOOK_MS milliseconds, by one
 * call: sessions that begin or end a search wait for it.
 *
 *-------------------------------------------------------------------------
 */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "engine/serve/server.h"

#define LOOK_MS		10

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t some = PTHREAD_COND_INITIALIZER;
static struct pollfd *sockets = NULL;	/* [n] watched ones */
static int **canceled = NULL;	/* [n] their requests' */
static size_t n = 0;
static size_t capacity = 0;
static gpuvec_store *searched;	/* whose changes requests may wait for */

/* Cancel a request; false if it has been canceled already */
static bool
cancel(size_t i)
{
	return !__atomic_exchange_n(canceled[i], 1, __ATOMIC_RELAXED);
}

/*
 * Check all watched connections.  True if a request was canceled.  The caller
 * holds the mutex.
 */
static bool
look(void)
{
	bool		any = false;

	if (poll(sockets, n, 0) <= 0)
		return false;
	for (size_t i = 0; i < n; i++)
		if (sockets[i].revents & (POLLRDHUP | POLLHUP | POLLERR))
			any |= cancel(i);
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
		bool		any;

		while (n == 0)
			pthread_cond_wait(&some, &mutex);
		any = look();
		pthread_mutex_unlock(&mutex);
		if (any)
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

/* Make room for more sockets, if there is memory */
static void
make_room(void)
{
	size_t		more = capacity ? capacity * 2 : 64;
	struct pollfd *more_sockets = realloc(sockets, more * sizeof(*sockets));
	int		  **more_canceled;

	if (more_sockets == NULL)
		return;
	sockets = more_sockets;
	more_canceled = realloc(canceled, more * sizeof(*canceled));
	if (more_canceled == NULL)
		return;
	canceled = more_canceled;
	capacity = more;
}

/*
 * On lack of memory the connection is not watched; then the search just ends
 * later
 */
void
gpuvec_hangup_watch(int fd, int *request_canceled)
{
	pthread_mutex_lock(&mutex);
	if (n == capacity)
		make_room();
	if (n < capacity)
	{
		sockets[n] = (struct pollfd) {.fd = fd, .events = POLLRDHUP};
		canceled[n] = request_canceled;
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
		if (sockets[i].fd == fd)
		{
			n--;
			sockets[i] = sockets[n];
			canceled[i] = canceled[n];
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
		(void) cancel(i);
	pthread_mutex_unlock(&mutex);
	if (any)
		gpuvec_store_wake(searched);
	return any;
}
