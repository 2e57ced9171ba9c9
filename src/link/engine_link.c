/*-------------------------------------------------------------------------
 *
 * engine_link.c
 *	  This session's connection to the engine.
 *
 * One socket per session, opened on first use and kept.  `in_request` is true
 * from the first byte of a request to the last of its answer (and from the
 * first page of a load to its commit); if an error or a cancel ends the
 * (sub)transaction meanwhile, the connection is closed, which cancels the
 * request in the engine, and the next search opens a new one.  Meanwhile
 * there can be no other request: one would come from a function of an index
 * that is evaluated for a load, which is not allowed.
 *
 * Whatever fails here leaves the connection closed, or as usable as before.
 * What cannot be had for it (a descriptor, a socket, memory for waiting) is
 * no error: the session does without an engine.  Who waits looks every second
 * whether the supervisor has given the engine up.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "access/xact.h"
#include "link/faults.h"
#include "link/engine_link.h"
#include "link/shared.h"
#include "link/supervisor.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* How long to wait for a supervisor to open its socket */
#define SUPERVISOR_PATIENCE_MS	10000

/* How long to wait for the greeting of an engine that is ready */
#define GREETING_PATIENCE_MS	10000

/* How often to look for signs of the engine's end */
#define LOOK_MS					1000

/*
 * The engine may close connections that are idle for longer than this, and
 * some
 */
#define IDLE_MS					1000

/* Connections that are accepted and then closed: the engine is in trouble */
#define OPEN_ATTEMPTS			5

/* The socket's buffer, as far as the system allows */
#define SEND_BUFFER_BYTES		(1024 * 1024)

/* Size of a huge page */
#define HUGE_PAGE				((uintptr_t) 2 * 1024 * 1024)

/* Pieces of a request */
#define MAX_PIECES				16

static int	link_fd = -1;
static WaitEventSet *link_events = NULL;
static bool in_request = false;
static bool unanswered = false; /* messages without an answer were sent since the last answer */
static bool awaited = false;	/* an answer is still to be read */
static uint64 request_number = 0;
static uint64 generation = 0;
static gpuvec_welcome engine;	/* what it said of itself; pid 0: nothing yet */
static GpuvecRefusal refusal;
static bool refusal_noted = false;	/* since the last GpuvecLinkOpen() */
static TimestampTz connected;	/* when the connection was opened */
static int64 last_use;			/* milliseconds of some clock */
static bool waited;				/* for long, for what is sent or read now */
static TimestampTz given_up = 0;	/* the statement in which the engine was; 0: none */
static char why_not[256];		/* why there is no engine */

/* An answer that is left unread until something else is asked; number 0: there is none */
static struct
{
	uint64		number;			/* of the request */
	gpuvec_message expected;
	Size		minimum;
	GpuvecTakeAnswer take;
}			late;

/* Positions in link_events */
#define EVENT_SOCKET	0

/* Close the connection */
void
GpuvecLinkClose(void)
{
	if (link_events != NULL)
		FreeWaitEventSet(link_events);
	link_events = NULL;
	if (link_fd >= 0)
	{
		close(link_fd);
		ReleaseExternalFD();
	}
	link_fd = -1;
	in_request = unanswered = awaited = false;
	late.number = 0;
}

void
GpuvecLinkExpectMore(void)
{
	in_request = link_fd >= 0;
}

uint64
GpuvecLinkGeneration(void)
{
	return generation;
}

const gpuvec_welcome *
GpuvecLinkEngine(void)
{
	return &engine;
}

const GpuvecRefusal *
GpuvecLinkRefusal(void)
{
	return refusal_noted ? &refusal : NULL;
}

/*
 * Say that the engine does not do what is asked for; detail and hint may be
 * empty
 */
void
GpuvecLinkRefuse(int sqlerrcode, const char *message, const char *detail, const char *hint)
{
	refusal_noted = true;
	refusal.sqlerrcode = sqlerrcode;
	refusal.request = 0;
	strlcpy(refusal.message, message, sizeof(refusal.message));
	strlcpy(refusal.detail, detail, sizeof(refusal.detail));
	strlcpy(refusal.hint, hint, sizeof(refusal.hint));
}

/* For those who have no other way to do it */
void
GpuvecLinkRaiseRefusal(void)
{
	ereport(ERROR,
			(errcode(refusal.sqlerrcode),
			 errmsg("%s", refusal.message),
			 refusal.detail[0] ? errdetail("%s", refusal.detail) : 0,
			 refusal.hint[0] ? errhint("%s", refusal.hint) : 0));
}

/* A request that an error cut off cannot be finished any more */
static void
link_xact_callback(XactEvent event, void *arg)
{
	if (in_request && (event == XACT_EVENT_ABORT || event == XACT_EVENT_PARALLEL_ABORT))
		GpuvecLinkClose();
}

static void
link_subxact_callback(SubXactEvent event, SubTransactionId mySubid,
					  SubTransactionId parentSubid, void *arg)
{
	if (in_request && event == SUBXACT_EVENT_ABORT_SUB)
		GpuvecLinkClose();
}

/*
 * Have the callbacks called, each once even if there is no memory for the
 * second at first
 */
static void
register_callbacks(void)
{
	static int	registered = 0;

	if (registered == 0)
	{
		GPUVEC_ALLOCATING(RegisterXactCallback(link_xact_callback, NULL));
		registered++;
	}
	if (registered == 1)
	{
		GPUVEC_ALLOCATING(RegisterSubXactCallback(link_subxact_callback, NULL));
		registered++;
	}
}

/* A clock that costs next to nothing and is not set back */
static int64
clock_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (int64) t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/*
 * Has the supervisor given up the engine that this connection is to?  If it
 * has not greeted us yet, that is the one that runs.
 */
static bool
engine_silent(void)
{
	GpuvecShared *state = GpuvecSharedState();
	bool		silent;

	SpinLockAcquire(&state->mutex);
	silent = state->silent_pid != 0 &&
		state->silent_pid == (engine.pid ? (int) engine.pid : state->engine_pid);
	SpinLockRelease(&state->mutex);
	return silent;
}

/* Has an engine that is ready still not greeted us? */
static bool
greeting_overdue(void)
{
	GpuvecShared *state = GpuvecSharedState();
	bool		ready;

	SpinLockAcquire(&state->mutex);
	ready = state->engine_ready;
	SpinLockRelease(&state->mutex);
	return engine.pid == 0 && ready &&
		TimestampDifferenceExceeds(connected, GetCurrentTimestamp(), GREETING_PATIENCE_MS);
}

/*
 * The engine is alive but of no use, or not alive: this statement does not
 * try again
 */
static void
give_up(const char *why)
{
	given_up = GetCurrentStatementStartTimestamp();
	strlcpy(why_not, why, sizeof(why_not));
}

/*
 * The connection is lost; returns false.  If we have waited for an engine
 * that was then killed, that is enough; if that happened before, the next
 * engine is worth a try.
 */
static bool
lost(void)
{
	if (waited && engine_silent())
		give_up("it gave no sign of life");
	return false;
}

/*
 * Wait until the socket is ready or the latch is set.  False: it makes no
 * sense any more.  Who connects while no engine runs may wait for long, but
 * not for one that is stuck.
 */
static bool
wait_socket(uint32 events)
{
	WaitEvent	event;

	GPUVEC_RAISING(ModifyWaitEvent(link_events, EVENT_SOCKET, events, NULL));
	if (GPUVEC_RAISING(WaitEventSetWait(link_events, LOOK_MS, &event, 1, PG_WAIT_EXTENSION)) == 0)
	{
		waited = true;
		if (engine_silent())
			return lost();
		if (greeting_overdue())
		{
			give_up("it does not accept connections");
			return false;
		}
	}
	else if (event.events & WL_LATCH_SET)
		ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	return true;
}

/* Sleep, interruptibly */
static void
nap(long ms)
{
	(void) GPUVEC_RAISING(WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms,
									PG_WAIT_EXTENSION));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/*
 * Read exactly `size` bytes.  False if the connection is lost first.
 */
static bool
read_bytes(void *to, Size size)
{
	char	   *p = to;

	while (size > 0)
	{
		ssize_t		n = GPUVEC_CALL(recv(link_fd, p, size, MSG_DONTWAIT));

		if (n > 0)
		{
			p += n;
			size -= n;
		}
		else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		{
			if (!wait_socket(WL_SOCKET_READABLE))
				return false;
		}
		else if (n == 0 || errno != EINTR)
			return lost();
	}
	return true;
}

/* Go on behind the first n bytes of some pieces of memory */
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

/* Has the engine sent something, be it only its last words? */
static bool
engine_spoke(void)
{
	char		c;

	return GPUVEC_CALL(recv(link_fd, &c, 1, MSG_DONTWAIT | MSG_PEEK)) > 0;
}

/*
 * Write pieces of memory; changes the list.  False if the connection is lost, or if the
 * engine speaks before we are done, which it does only to report an error: *spoke is set.
 * (Or to answer what was sent before, if an answer is awaited: then it reads on.)
 */
static bool
write_pieces(struct iovec *pieces, int npieces, bool *spoke)
{
	struct msghdr message = {.msg_iov = pieces,.msg_iovlen = npieces};

	waited = false;
	skip_bytes(&message, 0);
	while (message.msg_iovlen > 0)
	{
		ssize_t		n = GPUVEC_CALL(sendmsg(link_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL));

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
			/* its last words may still lie in our buffer */
			*spoke = !awaited && engine_spoke();
			return lost();
		}
	}
	return true;
}

/*
 * Memory for a reply.  To get and clear a large one page by page takes the kernel longer
 * than to copy the reply there, so whole huge pages in it are asked for, where the system
 * has them.
 */
static char *
allocate_reply(Size size)
{
	char	   *memory = GPUVEC_ALLOCATING(MemoryContextAllocExtended(CurrentMemoryContext, size,
																	  MCXT_ALLOC_HUGE));
	uintptr_t	start = TYPEALIGN(HUGE_PAGE, (uintptr_t) memory);
	uintptr_t	end = TYPEALIGN_DOWN(HUGE_PAGE, (uintptr_t) memory + size);

	/* without huge pages ordinary ones do */
	if (end > start)
		(void) GPUVEC_CALL(madvise((void *) start, end - start, MADV_HUGEPAGE));
	return memory;
}

/* Read one frame into a palloc'd reply */
static bool
read_frame(GpuvecReply *reply, uint64 *request)
{
	gpuvec_frame frame;

	waited = false;
	if (!read_bytes(&frame, sizeof(frame)))
		return false;
	if (frame.length > GPUVEC_MAX_FRAME)
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("invalid message from the gpuvec engine")));
	reply->type = frame.type;
	reply->length = frame.length;
	reply->data = allocate_reply((Size) frame.length + 1);
	reply->data[frame.length] = '\0';
	*request = frame.request;
	last_use = clock_ms();
	return read_bytes(reply->data, frame.length);
}

/* The strings of an error frame */
typedef struct EngineError
{
	gpuvec_error_head head;
	const char *message;
	const char *detail;
	const char *hint;
} EngineError;

/* Take an error frame apart; data is NUL-terminated by read_frame */
static void
parse_error(const GpuvecReply *reply, EngineError *error)
{
	const char *p = reply->data + sizeof(gpuvec_error_head);
	const char *end = reply->data + reply->length;

	if (reply->length < sizeof(gpuvec_error_head))
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("invalid message from the gpuvec engine")));
	memcpy(&error->head, reply->data, sizeof(gpuvec_error_head));
	error->head.sqlstate[5] = '\0';
	error->message = p;
	p = Min(p + strlen(p) + 1, end);
	error->detail = p;
	p = Min(p + strlen(p) + 1, end);
	error->hint = p;
}

/* Is this five characters that a SQLSTATE may have? */
static int
sqlstate_code(const char *s)
{
	if (strlen(s) != 5 || strspn(s, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") != 5)
		return ERRCODE_INTERNAL_ERROR;
	return MAKE_SQLSTATE(s[0], s[1], s[2], s[3], s[4]);
}

/* Raise the engine's error as ours */
static void
raise_error(const EngineError *error)
{
	ereport(ERROR,
			(errcode(sqlstate_code(error->head.sqlstate)),
			 errmsg("%s", error->message),
			 error->detail[0] ? errdetail("%s", error->detail) : 0,
			 error->hint[0] ? errhint("%s", error->hint) : 0));
}

/* How an attempt to connect ended */
typedef enum Connecting
{
	CONNECTED,
	NOBODY_LISTENS,				/* yet, or not any more */
	HOPELESS					/* why_not says why */
} Connecting;

/* There is no connection for a reason that `errno` knows */
static Connecting
hopeless(const char *what)
{
	snprintf(why_not, sizeof(why_not), "%s: %s", what, strerror(errno));
	GpuvecLinkClose();
	return HOPELESS;
}

/* Connect to the socket, without blocking, as a process of our own user */
static Connecting
connect_socket(void)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct ucred peer;
	socklen_t	size = sizeof(peer);
	int			room = SEND_BUFFER_BYTES;

	if (!GPUVEC_REFUSING(AcquireExternalFD()))
	{
		strlcpy(why_not, "no file descriptor is free for it", sizeof(why_not));
		return HOPELESS;
	}
	link_fd = GPUVEC_CALL(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (link_fd < 0)
	{
		ReleaseExternalFD();
		return hopeless("could not create a socket");
	}
	strlcpy(addr.sun_path, GPUVEC_SOCKET_PATH, sizeof(addr.sun_path));
	if (GPUVEC_CALL(connect(link_fd, (struct sockaddr *) &addr, sizeof(addr))) < 0)
	{
		/*
		 * a backlog that is full (EAGAIN) is also one that nobody takes from
		 * now
		 */
		if (errno != ENOENT && errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR)
			return hopeless("could not connect to it");
		GpuvecLinkClose();
		return NOBODY_LISTENS;
	}
	if (GPUVEC_CALL(getsockopt(link_fd, SOL_SOCKET, SO_PEERCRED, &peer, &size)) < 0)
		return hopeless("could not find out who it is");
	if (peer.uid != geteuid())
	{
		GpuvecLinkClose();
		return NOBODY_LISTENS;
	}
	/* room for a frame of pages while the engine works on the one before */
	(void) GPUVEC_CALL(setsockopt(link_fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)));
	return CONNECTED;
}

/*
 * Make what the session waits with.  It takes a descriptor, and what
 * PostgreSQL raises if there is none is no error here.
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
		link_events = GPUVEC_RAISING(GpuvecCreateWaitEventSet(3));
		GPUVEC_RAISING(AddWaitEventToSet(link_events, WL_SOCKET_READABLE, link_fd, NULL, NULL));
		GPUVEC_RAISING(AddWaitEventToSet(link_events, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL));
		GPUVEC_RAISING(AddWaitEventToSet(link_events, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL));
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(old);
		/* an error lets go of them */
		InterruptHoldoffCount = held_off;
		QueryCancelHoldoffCount = cancel_held_off;
		error = CopyErrorData();
		FlushErrorState();
		strlcpy(why_not, error->message, sizeof(why_not));
		FreeErrorData(error);
		ok = false;
	}
	PG_END_TRY();
	if (!ok)
		GpuvecLinkClose();
	return ok;
}

/* Open a connection */
static Connecting
open_connection(void)
{
	Connecting	result = connect_socket();

	if (result != CONNECTED)
		return result;
	if (!make_events())
		return HOPELESS;
	generation++;
	engine.pid = 0;
	connected = GetCurrentTimestamp();
	return CONNECTED;
}

/* What the supervisor says */
typedef struct SupervisorState
{
	bool		running;
	bool		listening;		/* it has opened its socket */
	bool		without;		/* sessions are to do without an engine: why_not says why */
} SupervisorState;

static SupervisorState
supervisor_state(void)
{
	GpuvecShared *state = GpuvecSharedState();
	SupervisorState s;

	SpinLockAcquire(&state->mutex);
	s.running = state->supervisor_pid != 0;
	s.listening = state->listening;
	s.without = s.running && state->without;
	if (s.without)
		strlcpy(why_not, state->trouble, sizeof(why_not));
	SpinLockRelease(&state->mutex);
	return s;
}

/* Get a connected socket, starting the supervisor if need be */
static bool
reach_supervisor(bool start, const char **reason)
{
	TimestampTz begin = GetCurrentTimestamp();

	for (;;)
	{
		SupervisorState s = supervisor_state();

		*reason = why_not;
		if (s.without)
			return false;
		if (!s.running)
		{
			if (!start)
			{
				*reason = "it is not running";
				return false;
			}
			if (!GpuvecStartSupervisor(reason))
				return false;
		}
		else if (s.listening)
		{
			Connecting	result = open_connection();

			if (result != NOBODY_LISTENS)
				return result == CONNECTED;
		}
		if (TimestampDifferenceExceeds(begin, GetCurrentTimestamp(), SUPERVISOR_PATIENCE_MS))
		{
			*reason = "its supervisor did not start";
			return false;
		}
		nap(5);
	}
}

/* Say who we are.  False: the connection was lost before. */
static bool
send_hello(void)
{
	struct
	{
		gpuvec_frame frame;
		gpuvec_hello hello;
	}			message;
	struct iovec piece = {&message, sizeof(message)};
	bool		spoke = false;

	memset(&message, 0, sizeof(message));
	message.frame.type = GPUVEC_MSG_HELLO;
	message.frame.length = sizeof(message.hello);
	message.hello.magic = GPUVEC_PROTOCOL_MAGIC;
	message.hello.version = GPUVEC_PROTOCOL_VERSION;
	memcpy(message.hello.incarnation, GpuvecSharedState()->incarnation, 16);
	message.hello.pid = MyProcPid;
	message.hello.database = MyDatabaseId;
	/* who refuses us need not listen first */
	return write_pieces(&piece, 1, &spoke) || spoke;
}

/*
 * Introduce ourselves.  False: the connection was lost, or the engine refuses
 * for now or (*refused) altogether.
 */
static bool
shake_hands(EngineError *error, bool *refused)
{
	GpuvecReply reply;
	uint64		request;

	*refused = false;
	in_request = true;
	if (!send_hello() || !read_frame(&reply, &request))
		return false;
	if (reply.type == GPUVEC_MSG_WELCOME && reply.length == sizeof(gpuvec_welcome))
	{
		memcpy(&engine, reply.data, sizeof(engine));
		engine.backend[sizeof(engine.backend) - 1] = '\0';
		in_request = false;
		return true;
	}
	if (reply.type != GPUVEC_MSG_ERROR)
		return false;
	parse_error(&reply, error);
	*refused = !error->head.retry;
	return false;
}

/*
 * Is the connection still there?  The engine closes those that have been idle
 * for long, for others' sake, so after a while it is worth a look.  Nobody
 * speaks to us unasked.
 */
static bool
still_there(void)
{
	char		c;

	if (clock_ms() - last_use < IDLE_MS ||
		(GPUVEC_CALL(recv(link_fd, &c, 1, MSG_DONTWAIT | MSG_PEEK)) < 0 &&
		 (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)))
		return true;
	GpuvecLinkClose();
	return false;
}

/* Has this statement given up the engine?  It does not try again at once. */
static bool
has_given_up(void)
{
	bool		now = given_up != 0 && given_up == GetCurrentStatementStartTimestamp();

	given_up = 0;
	return now;
}

/*
 * Open the connection, unless it is open.  `start` also starts the supervisor
 * and with it the engine.
 */
GpuvecLinkStatus
GpuvecLinkOpen(bool start, const char **reason)
{
	if (in_request)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot search while the gpuvec engine loads a table for this session"),
				 errdetail("A function of an index expression or predicate must not search.")));
	refusal_noted = false;
	/* an engine that is gone meanwhile may be known by the answer that it does not give */
	if (link_fd >= 0 && GpuvecLinkSettle() && still_there())
		return GPUVEC_LINK_READY;

	register_callbacks();
	if (start ? GpuvecSharedMake(reason) == NULL : GpuvecSharedState() == NULL)
	{
		if (!start)
			*reason = GpuvecSharedTrouble() ? GpuvecSharedTrouble() : "it is not running";
		return GPUVEC_LINK_UNAVAILABLE;
	}
	for (int attempt = 0; attempt < OPEN_ATTEMPTS; attempt++)
	{
		EngineError error;
		bool		refused;

		*reason = why_not;
		if (has_given_up() || !reach_supervisor(start, reason))
			return GPUVEC_LINK_UNAVAILABLE;
		if (shake_hands(&error, &refused))
			return GPUVEC_LINK_READY;
		GpuvecLinkClose();
		if (refused)
		{
			strlcpy(why_not, error.message, sizeof(why_not));
			*reason = why_not;
			return GPUVEC_LINK_UNAVAILABLE;
		}
		if (given_up == 0)
			nap(20 << attempt);
	}
	*reason = "it closes connections";
	return GPUVEC_LINK_UNAVAILABLE;
}

/* Say that a request does not fit a message */
static void
refuse_large(Size length)
{
	char		detail[128];

	snprintf(detail, sizeof(detail), "It has %zu bytes, the limit is %u.", length, GPUVEC_MAX_FRAME);
	GpuvecLinkRefuse(ERRCODE_PROGRAM_LIMIT_EXCEEDED, "request to the gpuvec engine is too large",
					 detail, "");
}

/*
 * Send a frame that consists of several pieces, in one go so that the engine
 * wakes once.  False: as write_pieces(), or it is too large.
 */
static bool
send_frame(gpuvec_message type, const GpuvecPiece *pieces, int npieces, bool *spoke)
{
	gpuvec_frame frame;
	struct iovec all[MAX_PIECES + 1];
	Size		length = 0;

	Assert(npieces <= MAX_PIECES);
	for (int i = 0; i < npieces; i++)
		length += pieces[i].size;
	if (length > GPUVEC_MAX_FRAME)
	{
		refuse_large(length);
		return false;
	}

	memset(&frame, 0, sizeof(frame));
	frame.type = type;
	frame.length = length;
	frame.request = ++request_number;
	in_request = true;
	all[0] = (struct iovec) {&frame, sizeof(frame)};
	for (int i = 0; i < npieces; i++)
		all[i + 1] = (struct iovec) {unconstify(void *, pieces[i].data), pieces[i].size};
	return write_pieces(all, npieces + 1, spoke);
}

/*
 * Read the answer to a request.  False: the connection was lost, the engine
 * asks to try again (both: *lost), or it refuses.  An error ends the
 * connection if messages without an answer were sent before (pages were under
 * way), or more answers are to come.
 */
static bool
read_reply(uint64 number, gpuvec_message expected, Size minimum, GpuvecReply *reply, bool *lost)
{
	uint64		request;

	*lost = true;
	if (!read_frame(reply, &request))
		return false;
	if (reply->type == GPUVEC_MSG_ERROR)
	{
		EngineError error;

		parse_error(reply, &error);
		if (error.head.retry)
			return false;
		*lost = false;
		if (unanswered || request != request_number)
			GpuvecLinkClose();
		in_request = awaited = false;
		if (!error.head.fallback)
			raise_error(&error);
		GpuvecLinkRefuse(sqlstate_code(error.head.sqlstate), error.message, error.detail, error.hint);
		refusal.request = request;
		pfree(reply->data);
		return false;
	}
	*lost = false;
	if (reply->type != expected || reply->length < minimum || request != number)
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("unexpected message %u from the gpuvec engine", reply->type)));
	in_request = awaited = number != request_number;
	unanswered = false;
	return true;
}

/*
 * The engine has spoken before we were done: read its error, and raise it or
 * note it
 */
static void
read_last_words(void)
{
	GpuvecReply reply;
	bool		lost;

	unanswered = true;
	(void) read_reply(request_number, GPUVEC_MSG_ERROR, 0, &reply, &lost);
}

void
GpuvecLinkLeave(uint64 number, gpuvec_message expected, Size minimum, GpuvecTakeAnswer take)
{
	Assert(late.number == 0 && number == request_number);
	late.number = number;
	late.expected = expected;
	late.minimum = minimum;
	late.take = take;
	/* whatever becomes of this transaction, an answer will come, and nothing more */
	in_request = unanswered = awaited = false;
}

/*
 * An error that is the answer concerns nobody any more: who needs what was asked for will
 * see that it was not done, and ask again.
 */
bool
GpuvecLinkSettle(void)
{
	uint64		number = late.number;
	uint64		request;
	GpuvecReply reply;
	bool		ok;

	if (number == 0)
		return true;
	late.number = 0;
	in_request = true;
	ok = read_frame(&reply, &request) && request == number;
	in_request = false;
	if (ok && reply.type == late.expected && reply.length >= late.minimum)
		late.take(reply.data);
	else if (ok && reply.type == GPUVEC_MSG_ERROR)
	{
		EngineError error;

		parse_error(&reply, &error);
		ok = !error.head.retry;
	}
	else
		ok = false;
	if (!ok)
	{
		GpuvecLinkClose();
		return false;
	}
	pfree(reply.data);
	return true;
}

uint64
GpuvecLinkBegin(gpuvec_message type, const GpuvecPiece *pieces, int npieces)
{
	bool		spoke = false;

	if (link_fd < 0 || !GpuvecLinkSettle())
		return 0;
	if (send_frame(type, pieces, npieces, &spoke))
	{
		/* pages have no answer, but may follow a request that has */
		awaited |= type != GPUVEC_MSG_PAGES && type != GPUVEC_MSG_REFRESH_PAGES;
		return request_number;
	}
	if (spoke)
		read_last_words();
	GpuvecLinkClose();
	return 0;
}

bool
GpuvecLinkAnswer(uint64 number, gpuvec_message expected, Size minimum, GpuvecReply *reply)
{
	bool		lost;

	if (link_fd < 0)
		return false;
	if (read_reply(number, expected, minimum, reply, &lost))
		return true;
	if (lost)
		GpuvecLinkClose();
	return false;
}

bool
GpuvecLinkCall(gpuvec_message type, const GpuvecPiece *pieces, int npieces,
			   gpuvec_message expected, Size minimum, GpuvecReply *reply)
{
	uint64		number = GpuvecLinkBegin(type, pieces, npieces);

	return number != 0 && GpuvecLinkAnswer(number, expected, minimum, reply);
}

bool
GpuvecLinkSend(gpuvec_message type, const GpuvecPiece *pieces, int npieces)
{
	/* in_request stays: a commit has to follow */
	unanswered = true;
	return GpuvecLinkBegin(type, pieces, npieces) != 0;
}
