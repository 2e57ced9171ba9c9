/*-------------------------------------------------------------------------
 *
 * link.c
 *	  This session's connection to the engine.
 *
 * One socket per session, opened on first use and kept.  `in_request` is true
 * from the first byte of a request to the last of its answer (and from the
 * first page of a load to its commit); if an error or a cancel ends the
 * (sub)transaction meanwhile, the connection is closed, which cancels the
 * request in the engine, and the next search opens a new one.  Meanwhile there can be
 * no other request: one would come from a function of an index that is evaluated for a
 * load, which is not allowed.
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
#include "link/link.h"
#include "link/supervisor.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* How long to wait for a supervisor to open its socket */
#define SUPERVISOR_PATIENCE_MS	10000

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
static gpuvec_welcome engine;	/* what it said of itself */
static bool callbacks_registered = false;
static GpuvecRefusal refusal;
static bool refusal_noted = false;	/* since the last GpuvecLinkOpen() */

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

/* Say that the engine does not do what is asked for; detail and hint may be empty */
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

/* Wait until the socket is ready, the latch is set, or the time is over */
static void
wait_socket(uint32 events, long timeout)
{
	WaitEvent	event;

	ModifyWaitEvent(link_events, EVENT_SOCKET, events, NULL);
	WaitEventSetWait(link_events, timeout, &event, 1, PG_WAIT_EXTENSION);
	if (event.events & WL_LATCH_SET)
		ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/* Sleep, interruptibly */
static void
nap(long ms)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms,
					 PG_WAIT_EXTENSION);
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
		ssize_t		n = recv(link_fd, p, size, MSG_DONTWAIT);

		if (n > 0)
		{
			p += n;
			size -= n;
		}
		else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			wait_socket(WL_SOCKET_READABLE, -1);
		else if (n == 0 || errno != EINTR)
			return false;
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

/*
 * Write pieces of memory; changes the list.  False if the connection is lost, or if the
 * engine speaks before we are done, which it does only to report an error: *spoke is set.
 * (Or to answer what was sent before, if an answer is awaited: then it reads on.)
 */
static bool
write_pieces(struct iovec *pieces, int npieces, bool *spoke)
{
	struct msghdr message = {.msg_iov = pieces,.msg_iovlen = npieces};

	skip_bytes(&message, 0);
	while (message.msg_iovlen > 0)
	{
		ssize_t		n = sendmsg(link_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n > 0)
			skip_bytes(&message, n);
		else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		{
			char		c;

			if (!awaited && recv(link_fd, &c, 1, MSG_DONTWAIT | MSG_PEEK) > 0)
			{
				*spoke = true;
				return false;
			}
			wait_socket(awaited ? WL_SOCKET_WRITEABLE : WL_SOCKET_WRITEABLE | WL_SOCKET_READABLE, -1);
		}
		else if (n == 0 || errno != EINTR)
		{
			char		c;

			/* its last words may still lie in our buffer */
			*spoke = !awaited && recv(link_fd, &c, 1, MSG_DONTWAIT | MSG_PEEK) > 0;
			return false;
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
	char	   *memory = MemoryContextAllocExtended(CurrentMemoryContext, size, MCXT_ALLOC_HUGE);
	uintptr_t	start = TYPEALIGN(HUGE_PAGE, (uintptr_t) memory);
	uintptr_t	end = TYPEALIGN_DOWN(HUGE_PAGE, (uintptr_t) memory + size);

	/* without huge pages ordinary ones do */
	if (end > start)
		(void) madvise((void *) start, end - start, MADV_HUGEPAGE);
	return memory;
}

/* Read one frame into a palloc'd reply */
static bool
read_frame(GpuvecReply *reply, uint64 *request)
{
	gpuvec_frame frame;

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

/*
 * Connect the socket, without blocking.  True when connected; false if nobody
 * listens (yet).
 */
static bool
connect_socket(void)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct ucred peer;
	socklen_t	size = sizeof(peer);
	int			room = SEND_BUFFER_BYTES;

	if (!AcquireExternalFD())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("no file descriptor is free for the gpuvec engine")));
	link_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (link_fd < 0)
	{
		ReleaseExternalFD();
		ereport(ERROR,
				(errcode_for_socket_access(), errmsg("could not create a socket: %m")));
	}
	strlcpy(addr.sun_path, GPUVEC_SOCKET_PATH, sizeof(addr.sun_path));
	if (connect(link_fd, (struct sockaddr *) &addr, sizeof(addr)) < 0 ||
		getsockopt(link_fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 ||
		peer.uid != geteuid())
	{
		GpuvecLinkClose();
		return false;
	}
	/* room for a frame of pages while the engine works on the one before */
	(void) setsockopt(link_fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	link_events = GpuvecCreateWaitEventSet(3);
	AddWaitEventToSet(link_events, WL_SOCKET_READABLE, link_fd, NULL, NULL);
	AddWaitEventToSet(link_events, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(link_events, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	generation++;
	return true;
}

/* Is there a supervisor, and has it opened its socket? */
static void
supervisor_state(bool *running, bool *listening)
{
	GpuvecShared *state = GpuvecSharedState();

	SpinLockAcquire(&state->mutex);
	*running = state->supervisor_pid != 0;
	*listening = state->listening;
	SpinLockRelease(&state->mutex);
}

/* Get a connected socket, starting the supervisor if need be */
static bool
reach_supervisor(bool start, const char **reason)
{
	TimestampTz begin = GetCurrentTimestamp();

	for (;;)
	{
		bool		running;
		bool		listening;

		supervisor_state(&running, &listening);
		if (!running)
		{
			if (!start)
			{
				*reason = "it is not running";
				return false;
			}
			if (!GpuvecStartSupervisor(reason))
				return false;
		}
		else if (listening && connect_socket())
			return true;
		if (TimestampDifferenceExceeds(begin, GetCurrentTimestamp(), SUPERVISOR_PATIENCE_MS))
		{
			*reason = "its supervisor did not start";
			return false;
		}
		nap(5);
	}
}

/* Introduce ourselves.  False: the connection was lost. */
static bool
shake_hands(EngineError *error, bool *refused)
{
	struct
	{
		gpuvec_frame frame;
		gpuvec_hello hello;
	}			message;
	struct iovec piece = {&message, sizeof(message)};
	GpuvecReply reply;
	uint64		request;
	bool		spoke = false;

	memset(&message, 0, sizeof(message));
	message.frame.type = GPUVEC_MSG_HELLO;
	message.frame.length = sizeof(message.hello);
	message.hello.magic = GPUVEC_PROTOCOL_MAGIC;
	message.hello.version = GPUVEC_PROTOCOL_VERSION;
	memcpy(message.hello.incarnation, GpuvecSharedState()->incarnation, 16);
	message.hello.pid = MyProcPid;
	message.hello.database = MyDatabaseId;

	*refused = false;
	in_request = true;
	if (!write_pieces(&piece, 1, &spoke) && !spoke)
		return false;
	if (!read_frame(&reply, &request))
		return false;
	in_request = false;
	if (reply.type == GPUVEC_MSG_WELCOME && reply.length == sizeof(gpuvec_welcome))
	{
		memcpy(&engine, reply.data, sizeof(engine));
		engine.backend[sizeof(engine.backend) - 1] = '\0';
		return true;
	}
	if (reply.type != GPUVEC_MSG_ERROR)
		return false;
	parse_error(&reply, error);
	*refused = !error->head.retry;
	return false;
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
	if (link_fd >= 0 && GpuvecLinkSettle())
		return GPUVEC_LINK_READY;

	if (!callbacks_registered)
	{
		RegisterXactCallback(link_xact_callback, NULL);
		RegisterSubXactCallback(link_subxact_callback, NULL);
		callbacks_registered = true;
	}

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

		if (!reach_supervisor(start, reason))
			return GPUVEC_LINK_UNAVAILABLE;
		if (shake_hands(&error, &refused))
			return GPUVEC_LINK_READY;
		GpuvecLinkClose();
		if (refused)
		{
			/*
			 * a full engine is for those to know who search; any other
			 * refusal, do without
			 */
			if (start && sqlstate_code(error.head.sqlstate) == ERRCODE_TOO_MANY_CONNECTIONS)
				raise_error(&error);
			*reason = error.message;
			return GPUVEC_LINK_UNAVAILABLE;
		}
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
 * Send a frame that consists of several pieces, in one go so that the engine wakes once.
 * False: as write_pieces(), or it is too large.
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
 * Read the answer to a request.  False: the connection was lost, the engine asks to try
 * again (both: *lost), or it refuses.  An error ends the connection if messages without an
 * answer were sent before (pages were under way), or more answers are to come.
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

/* The engine has spoken before we were done: read its error, and raise it or note it */
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
