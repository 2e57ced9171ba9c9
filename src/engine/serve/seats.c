/*-------------------------------------------------------------------------
 *
 * seats.c
 *	  Seats: how many sessions the engine serves, which idle session makes
 *	  room for a new one, and whether running requests make progress.
 *
 * A session keeps its connection between searches, so there may be more
 * sessions than seats.  Then the session that has been idle longest loses its
 * seat: its connection is closed, and its next search opens another.  A
 * session must not lose a request that is being sent, or anything else that
 * it has in the engine.  So its state changes atomically: from idle, either
 * the session begins a request, or its seat is given away.
 *
 * A session may leave an answer unread, that of a search whose rows an idle
 * cursor does not need yet.  After UNREAD_MS its connection is closed, which
 * frees the answer and the seat.  Then it asks once more when it needs the
 * rows.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <string.h>
#include <stddef.h>
#include <sys/socket.h>

#include "core/clock.h"
#include "engine/fault.h"
#include "engine/serve/seats.h"
#include "engine/thread_pool.h"

/* A session keeps its seat until it has been idle for LEAST_IDLE_MS */
#define LEAST_IDLE_MS	5000

/* An answer of which nothing is read for UNREAD_MS is given up */
#define UNREAD_MS		60000

/*
 * If no request makes progress for STUCK_MS while some session works, the
 * engine is stuck.  The longest steps without progress are a kernel, a copy
 * to the GPU, and a sort in one thread.
 */
#define STUCK_MS		120000

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;	/* guards the list */
static gpuvec_seat *seats = NULL;
static int	nseats = 0;			/* seats taken and not given away */
static __thread gpuvec_seat *mine = NULL;

static int64_t
now_ms(void)
{
	return gpuvec_clock_coarse_us() / 1000;
}

/* Milliseconds that a session must have been idle to lose its seat */
static long
least_idle(void)
{
	long		ms = LEAST_IDLE_MS;

	(void) gpuvec_fault("least-idle", &ms);
	return ms;
}

/*
 * The seat that has been idle longest, if it may be given away; else NULL.
 * The caller holds the mutex.
 */
static gpuvec_seat *
longest_idle(void)
{
	int64_t		before = now_ms() - least_idle();
	gpuvec_seat *longest = NULL;

	for (gpuvec_seat *seat = seats; seat; seat = seat->next)
	{
		int64_t		since = __atomic_load_n(&seat->since, __ATOMIC_RELAXED);

		if (__atomic_load_n(&seat->doing, __ATOMIC_ACQUIRE) == GPUVEC_IDLE && since <= before &&
			!__atomic_load_n(&seat->keeps, __ATOMIC_RELAXED))
		{
			before = since;
			longest = seat;
		}
	}
	return longest;
}

/* If a session is idle, change its state; false if it is not idle */
static bool
leave_idle(gpuvec_seat *seat, gpuvec_doing to)
{
	int			idle = GPUVEC_IDLE;

	return __atomic_compare_exchange_n(&seat->doing, &idle, to, false,
									   __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/*
 * Give away the seat that has been idle longest; false if none may be.  The
 * caller holds the mutex, which keeps the descriptor open.
 */
static bool
give_away(void)
{
	gpuvec_seat *seat;

	while ((seat = longest_idle()) != NULL)
	{
		if (leave_idle(seat, GPUVEC_UNSEATED))
		{
			nseats--;
			shutdown(seat->fd, SHUT_RDWR);
			return true;
		}
	}
	return false;
}

bool
gpuvec_seat_give_away(void)
{
	bool		ok;

	pthread_mutex_lock(&mutex);
	ok = give_away();
	pthread_mutex_unlock(&mutex);
	return ok;
}

bool
gpuvec_seat_take(gpuvec_seat *seat, int fd, int most)
{
	bool		ok;

	memset(seat, 0, sizeof(*seat));
	seat->fd = fd;
	seat->doing = GPUVEC_TALKING;
	pthread_mutex_lock(&mutex);
	ok = nseats < most || give_away();
	if (ok)
	{
		nseats++;
		seat->next = seats;
		if (seats)
			seats->prev = seat;
		seats = seat;
		mine = seat;
	}
	pthread_mutex_unlock(&mutex);
	return ok;
}

void
gpuvec_seat_leave(gpuvec_seat *seat)
{
	pthread_mutex_lock(&mutex);
	if (__atomic_load_n(&seat->doing, __ATOMIC_RELAXED) != GPUVEC_UNSEATED)
		nseats--;
	if (seat->prev)
		seat->prev->next = seat->next;
	else
		seats = seat->next;
	if (seat->next)
		seat->next->prev = seat->prev;
	mine = NULL;
	pthread_mutex_unlock(&mutex);
}

bool
gpuvec_seat_talk(gpuvec_seat *seat)
{
	return leave_idle(seat, GPUVEC_TALKING);
}

void
gpuvec_seat_work(gpuvec_seat *seat)
{
	__atomic_store_n(&seat->requests, seat->requests + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&seat->doing, GPUVEC_WORKING, __ATOMIC_RELEASE);
}

void
gpuvec_seat_answer(void)
{
	if (mine)
		__atomic_store_n(&mine->doing, GPUVEC_TALKING, __ATOMIC_RELEASE);
}

int
gpuvec_seat_patience(void)
{
	long		ms = UNREAD_MS;

	if (mine == NULL || __atomic_load_n(&mine->keeps, __ATOMIC_RELAXED))
		return -1;
	(void) gpuvec_fault("unread", &ms);
	return (int) ms;
}

void
gpuvec_seat_idle(gpuvec_seat *seat, bool keeps)
{
	__atomic_store_n(&seat->keeps, keeps, __ATOMIC_RELAXED);
	__atomic_store_n(&seat->since, now_ms(), __ATOMIC_RELAXED);
	__atomic_store_n(&seat->doing, GPUVEC_IDLE, __ATOMIC_RELEASE);
}

/*
 * True if any session works.  Adds the requests of all sessions to *requests.
 */
static bool
anybody_works(uint64_t *requests)
{
	bool		any = false;

	pthread_mutex_lock(&mutex);
	for (gpuvec_seat *seat = seats; seat; seat = seat->next)
	{
		any |= __atomic_load_n(&seat->doing, __ATOMIC_ACQUIRE) == GPUVEC_WORKING;
		*requests += __atomic_load_n(&seat->requests, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&mutex);
	return any;
}

/* Milliseconds without progress after which the engine is stuck */
static long
patience(void)
{
	long		ms = STUCK_MS;

	(void) gpuvec_fault("stuck-search", &ms);
	return ms;
}

bool
gpuvec_seats_get_on(void)
{
	static uint64_t before = 0;
	static int64_t since = 0;
	uint64_t	progress = gpuvec_progress();

	if (!anybody_works(&progress) || progress != before || since == 0)
	{
		before = progress;
		since = now_ms();
	}
	return now_ms() - since < patience();
}
