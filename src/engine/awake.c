/*-------------------------------------------------------------------------
 *
 * awake.c
 *	  Waiting for a session's next message without sleeping.
 *
 * To sleep and to be woken takes some 30 microseconds, more in virtual machines, which is much
 * of a search that takes 80 on a GPU.  So a thread stays awake for a moment
 *
 *	 - if the session is sending more just now; or
 *	 - if the last search was answered by a GPU and the session's last one came soon after the
 *	   one before; but only while the GPU has nothing to do, and only one thread at a time, so
 *	   that under load no processor waits for anything.
 *
 * The server's side of this is in link.c.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <sys/socket.h>
#include <time.h>

#include "engine/awake.h"
#include "engine/threads.h"

/* How long for a message that is being made, and for the next search, microseconds */
#define SOON_US			50
#define BRISK_US		300

/* The latter with so many processors */
#define BRISK_CORES		4

/* Some thread waits for the next search */
static int	waiting;

int64_t
gpuvec_stopwatch(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t) t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

void
gpuvec_awake_answered(gpuvec_awake *awake, const gpuvec_scheduler *scheduler)
{
	awake->scheduler = scheduler;
	awake->answered = gpuvec_stopwatch();
}

/* Is there anything to be read, or the connection's end? */
static bool
readable(int fd)
{
	char		c;

	return recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}

/* Wait for the next search */
static void
wait_brisk(const gpuvec_awake *awake, int fd)
{
	int64_t		end = awake->answered + BRISK_US;

	if (__atomic_exchange_n(&waiting, 1, __ATOMIC_ACQUIRE) != 0)
		return;
	while (!readable(fd) && gpuvec_scheduler_idle(awake->scheduler) && gpuvec_stopwatch() < end)
		 /* again */ ;
	__atomic_store_n(&waiting, 0, __ATOMIC_RELEASE);
}

void
gpuvec_awake_wait(gpuvec_awake *awake, int fd)
{
	if (awake->soon && gpuvec_cores() > 1)
	{
		int64_t		end = gpuvec_stopwatch() + SOON_US;

		while (!readable(fd) && gpuvec_stopwatch() < end)
			 /* again */ ;
	}
	else if (awake->scheduler && awake->brisk && gpuvec_scheduler_on_device(awake->scheduler) &&
			 gpuvec_cores() >= BRISK_CORES)
		wait_brisk(awake, fd);
	awake->soon = false;
}

void
gpuvec_awake_came(gpuvec_awake *awake)
{
	if (awake->scheduler)
		awake->brisk = gpuvec_stopwatch() - awake->answered < BRISK_US;
	awake->scheduler = NULL;
}
