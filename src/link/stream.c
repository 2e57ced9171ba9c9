/*-------------------------------------------------------------------------
 *
 * stream.c
 *	  The stream of bytes between this session and the engine: one socket.
 *
 * Every wait can be interrupted, and checks every second whether the
 * supervisor has given up the engine.  It is not an error if a descriptor, a
 * socket or memory for waiting is lacking: the session does without the
 * engine.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "access/xact.h"
#include "core/clock.h"
#include "link/connection.h"
#include "link/faults.h"
#include "link/shared.h"
#include "link/supervisor.h"
#include "link/wait_events.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "test_hooks.h"

/* While waiting, check this often whether the engine is given up */
#define LOOK_MS					1000

/*
 * After this idle time, check whether the engine has closed the connection
 */
#define IDLE_MS					1000

/* Size of the socket's send buffer, if the system allows it */
#define SEND_BUFFER_BYTES		(1024 * 1024)

/*
 * The first attempt to read waits in the system call, for at most this many
 * ms: most answers come sooner, and to wait for the socket and the latch is a
 * call more.  Signals that are handled end the wait.  One that comes just
 * before it is noticed behind it, as is the latch.
 */
#define RECEIVE_MS				5

/* Position of the socket in connection.events */
#define EVENT_SOCKET	0

EngineConnection connection = {.fd = -1};

void		(*GpuvecLinkWaits) (void) = NULL;

void
LinkStreamClose(void)
{
	if (connection.events != NULL)
		FreeWaitEventSet(connection.events);
	connection.events = NULL;
	if (connection.fd >= 0)
	{
		close(connection.fd);
		ReleaseExternalFD();
	}
	connection.fd = -1;
	connection.nearly = 0;
}

/*
 * True if the supervisor has given up the engine of this connection.  Before
 * WELCOME, that is the engine that runs.
 */
static bool
engine_silent(void)
{
	GpuvecShared *state = GpuvecSharedState();
	bool		silent;

	SpinLockAcquire(&state->mutex);
	silent = state->silent_pid != 0 &&
		state->silent_pid == (connection.engine.pid ? (int) connection.engine.pid : state->engine_pid);
	SpinLockRelease(&state->mutex);
	return silent;
}

/* True if a ready engine has not sent WELCOME in time */
static bool
greeting_overdue(void)
{
	GpuvecShared *state = GpuvecSharedState();
	bool		ready;

	SpinLockAcquire(&state->mutex);
	ready = state->engine_ready;
	SpinLockRelease(&state->mutex);
	return connection.engine.pid == 0 && ready &&
		gpuvec_clock_coarse_us() - connection.opened >= gpuvec_greeting_patience * INT64CONST(1000);
}

/* Note that the engine is of no use: this statement does not try again */
static void
give_up(const char *why)
{
	connection.given_up = GetCurrentStatementStartTimestamp();
	strlcpy(connection.why_not, why, sizeof(connection.why_not));
}

/*
 * The connection is lost; returns false.  If this read or write has waited,
 * and the engine was then killed for its silence, this statement gives up the
 * engine.  If it was killed earlier, the next engine is worth a try.
 */
static bool
lost(void)
{
	if (connection.waited && engine_silent())
		give_up("it gave no sign of life");
	return false;
}

/*
 * Wait until the socket is ready or the latch is set.  False: waiting makes
 * no sense.  A session may wait long for an engine to start, but not for an
 * engine that is stuck.
 */
static bool
wait_socket(uint32 events)
{
	WaitEvent	event;

	GPUVEC_RAISING(ModifyWaitEvent(connection.events, EVENT_SOCKET, events, NULL));
	if (GPUVEC_RAISING(WaitEventSetWait(connection.events, LOOK_MS, &event, 1,
										GpuvecWaitEvent(GPUVEC_WAIT_ENGINE))) == 0)
	{
		connection.waited = true;
		if (engine_silent())
			return lost();
		if (greeting_overdue())
		{
			give_up("it does not accept connections");
			return false;
		}
		if (GpuvecLinkWaits != NULL)
			GpuvecLinkWaits();
	}
	else if (event.events & WL_LATCH_SET)
		ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	return true;
}

void
LinkStreamSleep(long ms)
{
	(void) GPUVEC_RAISING(WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms,
									GpuvecWaitEvent(GPUVEC_WAIT_ENGINE_START)));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/*
 * Receive bytes: up to `size` of them at `to`, or what fits connection.early
 * if that is larger.  So a small answer takes one system call.  Returns what
 * recv() does.
 */
static ssize_t
receive(void *to, Size size, bool waits)
{
	bool		early = size < sizeof(connection.early);
	ssize_t		n;

	if (waits)
		pgstat_report_wait_start(GpuvecWaitEvent(GPUVEC_WAIT_ENGINE));
	n = GPUVEC_CALL(recv(connection.fd, early ? connection.early : to,
						 early ? sizeof(connection.early) : size, waits ? 0 : MSG_DONTWAIT));
	if (waits)
		pgstat_report_wait_end();
	if (n <= 0)
		return n;
	connection.last_use = gpuvec_clock_coarse_us();
	if (early)
	{
		connection.next_early = 0;
		connection.nearly = n;
	}
	return n;
}

/* Take bytes that have come early; returns how many */
static Size
take_early(void *to, Size size)
{
	Size		n = Min(size, connection.nearly);

	memcpy(to, connection.early + connection.next_early, n);
	connection.next_early += n;
	connection.nearly -= n;
	return n;
}

bool
LinkStreamRead(void *to, Size size)
{
	char	   *p = to;
	bool		waits = true;

	for (;;)
	{
		Size		taken = take_early(p, size);
		ssize_t		n;

		p += taken;
		size -= taken;
		if (size == 0)
			return true;
		n = receive(p, size, waits);
		if (n > 0)
		{
			/* else an answer that keeps coming could not be canceled */
			CHECK_FOR_INTERRUPTS();
			if (connection.nearly == 0)
			{
				p += n;
				size -= n;
			}
		}
		else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		{
			waits = false;
			if (!wait_socket(WL_SOCKET_READABLE))
				return false;
		}
		else if (n < 0 && errno == EINTR)
		{
			waits = false;
			CHECK_FOR_INTERRUPTS();
		}
		else if (n <= 0)
			return lost();
	}
}

/* Advance a message by n bytes */
static void
skip_bytes(struct msghdr *message, Size n)
{
	while (message->msg_iovlen > 0 && n >= message->msg_iov->iov_len)
	{
		n -= message->msg_iov->iov_len;
		message->msg_iov++;
		message->msg_iovlen--;
	}
	if (message->msg_iovlen > 0)
	{
		message->msg_iov->iov_base = (char *) message->msg_iov->iov_base + n;
		message->msg_iov->iov_len -= n;
	}
}

/* True if there are bytes from the engine to read */
static bool
engine_spoke(void)
{
	char		c;

	return connection.nearly > 0 ||
		GPUVEC_CALL(recv(connection.fd, &c, 1, MSG_DONTWAIT | MSG_PEEK)) > 0;
}

bool
LinkStreamWrite(struct iovec *pieces, int npieces, bool awaited, bool *spoke)
{
	struct msghdr message = {.msg_iov = pieces, .msg_iovlen = npieces};

	connection.waited = false;
	skip_bytes(&message, 0);
	while (message.msg_iovlen > 0)
	{
		ssize_t		n = GPUVEC_CALL(sendmsg(connection.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL));

		if (n > 0)
			skip_bytes(&message, n);
		else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		{
			if (!awaited && engine_spoke())
			{
				*spoke = true;
				return false;
			}
			if (!wait_socket(awaited ? WL_SOCKET_WRITEABLE : WL_SOCKET_WRITEABLE | WL_SOCKET_READABLE))
				return false;
		}
		else if (n == 0 || errno != EINTR)
		{
			/* a last error from the engine may still be unread */
			*spoke = !awaited && engine_spoke();
			return lost();
		}
	}
	return true;
}

/* Close the connection; errno says why there is none */
static LinkStreamStatus
hopeless(const char *what)
{
	snprintf(connection.why_not, sizeof(connection.why_not), "%s: %s", what, strerror(errno));
	LinkStreamClose();
	return STREAM_HOPELESS;
}

/*
 * Let recv() wait for RECEIVE_MS unless it is told not to.  If that is not
 * possible, it never waits.
 */
static void
let_wait(void)
{
	struct timeval most = {.tv_usec = RECEIVE_MS * 1000};

	if (GPUVEC_CALL(setsockopt(connection.fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most))) == 0)
		(void) GPUVEC_CALL(fcntl(connection.fd, F_SETFL, 0));
}

/*
 * Connect to the engine's socket without blocking.  A socket of another
 * user's process counts as nobody listening.
 */
static LinkStreamStatus
connect_socket(void)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct ucred peer;
	socklen_t	size = sizeof(peer);
	int			capacity = SEND_BUFFER_BYTES;

	if (!GPUVEC_REFUSING(AcquireExternalFD()))
	{
		strlcpy(connection.why_not, "no file descriptor is free for it", sizeof(connection.why_not));
		return STREAM_HOPELESS;
	}
	connection.fd = GPUVEC_CALL(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (connection.fd < 0)
	{
		ReleaseExternalFD();
		return hopeless("could not create a socket");
	}
	strlcpy(addr.sun_path, GPUVEC_SOCKET_PATH, sizeof(addr.sun_path));
	if (GPUVEC_CALL(connect(connection.fd, (struct sockaddr *) &addr, sizeof(addr))) < 0)
	{
		/* a full backlog (EAGAIN) means that nobody accepts at the moment */
		if (errno != ENOENT && errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR)
			return hopeless("could not connect to it");
		LinkStreamClose();
		return STREAM_NOBODY_LISTENS;
	}
	if (GPUVEC_CALL(getsockopt(connection.fd, SOL_SOCKET, SO_PEERCRED, &peer, &size)) < 0)
		return hopeless("could not find out who it is");
	if (peer.uid != geteuid())
	{
		LinkStreamClose();
		return STREAM_NOBODY_LISTENS;
	}

	/*
	 * so that a frame of pages fits while the engine works on the last one
	 */
	(void) GPUVEC_CALL(setsockopt(connection.fd, SOL_SOCKET, SO_SNDBUF, &capacity, sizeof(capacity)));
	let_wait();
	return STREAM_CONNECTED;
}

/*
 * Make connection.events.  That takes a descriptor; if there is none,
 * PostgreSQL's error becomes why_not.
 */
static bool
make_events(void)
{
	MemoryContext old = CurrentMemoryContext;
	uint32		held_off = InterruptHoldoffCount;
	uint32		cancel_held_off = QueryCancelHoldoffCount;
	volatile bool ok = true;

	PG_TRY();
	{
		WaitEventSet *events = GPUVEC_RAISING(GpuvecCreateWaitEventSet(3));

		connection.events = events;
		GPUVEC_RAISING(AddWaitEventToSet(events, WL_SOCKET_READABLE, connection.fd, NULL, NULL));
		GPUVEC_RAISING(AddWaitEventToSet(events, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL));
		GPUVEC_RAISING(AddWaitEventToSet(events, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL));
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(old);
		/* an error has reset these */
		InterruptHoldoffCount = held_off;
		QueryCancelHoldoffCount = cancel_held_off;
		error = CopyErrorData();
		FlushErrorState();
		strlcpy(connection.why_not, error->message, sizeof(connection.why_not));
		FreeErrorData(error);
		ok = false;
	}
	PG_END_TRY();
	if (!ok)
		LinkStreamClose();
	return ok;
}

LinkStreamStatus
LinkStreamOpen(void)
{
	LinkStreamStatus result = connect_socket();

	if (result != STREAM_CONNECTED)
		return result;
	if (!make_events())
		return STREAM_HOPELESS;
	connection.generation++;
	connection.engine.pid = 0;
	connection.opened = gpuvec_clock_coarse_us();
	return STREAM_CONNECTED;
}

bool
LinkStreamAlive(void)
{
	char		c;

	if (connection.nearly > 0)
		return false;
	return gpuvec_clock_coarse_us() - connection.last_use < IDLE_MS * INT64CONST(1000) ||
		(GPUVEC_CALL(recv(connection.fd, &c, 1, MSG_DONTWAIT | MSG_PEEK)) < 0 &&
		 (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
}
