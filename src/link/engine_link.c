/*-------------------------------------------------------------------------
 *
 * engine_link.c
 *	  Requests to the engine and their answers.
 *
 * A session has one connection, which it opens on first use and keeps
 * (connection.h).  `in_request` is true from the first byte of a request to
 * the last byte of its answer, and from the first page of a load to its
 * commit.  If an error or a cancel ends the (sub)transaction in between, the
 * connection is closed.  That cancels the request in the engine; the next
 * search opens a new connection.  While `in_request` is true there can be no
 * other request: it would come from a function of an index that a load
 * evaluates, which is an error.
 *
 * After any failure here, the connection is closed or as usable as before.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/xact.h"
#include "link/connection.h"
#include "link/faults.h"
#include "miscadmin.h"

/* Give up after this many connections that were accepted and then closed */
#define OPEN_ATTEMPTS			5

/* Largest number of pieces of a request */
#define MAX_PIECES				16

static bool unanswered = false; /* messages without a reply were sent since
								 * the last answer */
static bool awaited = false;	/* an answer is still to be read */
static uint64 request_number = 0;
static GpuvecRefusal refusal;
static bool refusal_noted = false;	/* `refusal` was set since the last
									 * GpuvecLinkOpen() */

/* The answer left unread by GpuvecLinkLeave() */
static struct
{
	uint64		number;			/* number of the request; 0: no answer is left
								 * unread */
	gpuvec_message expected;
	Size		minimum;
	GpuvecTakeAnswer take;
}			late;

void
GpuvecLinkClose(void)
{
	LinkStreamClose();
	connection.in_request = unanswered = awaited = false;
	late.number = 0;
}

void
GpuvecLinkExpectMore(void)
{
	connection.in_request = connection.fd >= 0;
}

uint64
GpuvecLinkGeneration(void)
{
	return connection.generation;
}

const gpuvec_welcome *
GpuvecLinkEngine(void)
{
	return &connection.engine;
}

uint64
GpuvecLinkEngineNumber(void)
{
	return connection.fd >= 0 && connection.engine.pid != 0 ? connection.engine.number : 0;
}

const GpuvecRefusal *
GpuvecLinkRefusal(void)
{
	return refusal_noted ? &refusal : NULL;
}

/*
 * Note that the engine does not serve the request; detail and hint may be ""
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

/* Raise the refusal: for requests that only the engine can serve */
void
GpuvecLinkRaiseRefusal(void)
{
	ereport(ERROR,
			(errcode(refusal.sqlerrcode),
			 errmsg("%s", refusal.message),
			 refusal.detail[0] ? errdetail("%s", refusal.detail) : 0,
			 refusal.hint[0] ? errhint("%s", refusal.hint) : 0));
}

/* A request that an error cut off cannot be finished */
void
GpuvecLinkAbandon(void)
{
	if (connection.in_request)
		GpuvecLinkClose();
}

static void
link_xact_callback(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_ABORT || event == XACT_EVENT_PARALLEL_ABORT)
		GpuvecLinkAbandon();
}

static void
link_subxact_callback(SubXactEvent event, SubTransactionId mySubid,
					  SubTransactionId parentSubid, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		GpuvecLinkAbandon();
}

/*
 * Register the transaction callbacks.  If the second one fails for want of
 * memory, the next call registers only the second one.
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

/* Find and greet the engine */
static GpuvecLinkStatus
connect_to_engine(bool start, const char **reason)
{
	if (!ConnectPossible(start, reason))
		return GPUVEC_LINK_UNAVAILABLE;
	for (int attempt = 0; attempt < OPEN_ATTEMPTS; attempt++)
	{
		bool		refused;

		if (!ConnectReach(start, reason))
			return GPUVEC_LINK_UNAVAILABLE;
		if (ConnectGreet(&refused))
			return GPUVEC_LINK_READY;
		GpuvecLinkClose();
		if (refused)
			return GPUVEC_LINK_UNAVAILABLE;
		if (connection.given_up == 0)
			LinkStreamSleep(20 << attempt);
	}
	*reason = "it closes connections";
	return GPUVEC_LINK_UNAVAILABLE;
}

/*
 * Open the connection, unless it is open.  `start` also starts the
 * supervisor, and with it the engine.
 */
GpuvecLinkStatus
GpuvecLinkOpen(bool start, const char **reason)
{
	if (connection.in_request)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot search while the gpuvec engine loads a table for this session"),
				 errdetail("A function of an index expression or predicate must not search.")));
	refusal_noted = false;

	/* if the engine is gone, the answer left unread may be missing */
	if (connection.fd >= 0 && GpuvecLinkSettle())
	{
		if (LinkStreamAlive())
			return GPUVEC_LINK_READY;
		GpuvecLinkClose();
	}
	register_callbacks();
	return connect_to_engine(start, reason);
}

/* Note that a request is too large for a message */
static void
refuse_large(Size length)
{
	char		detail[128];

	snprintf(detail, sizeof(detail), "It has %zu bytes, the limit is %u.", length, GPUVEC_MAX_FRAME);
	GpuvecLinkRefuse(ERRCODE_PROGRAM_LIMIT_EXCEEDED, "request to the gpuvec engine is too large",
					 detail, "");
}

/*
 * Send a frame of several pieces, in one write so that the engine wakes up
 * once.  False: as LinkStreamWrite(), or the frame is too large.
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
	connection.in_request = true;
	all[0] = (struct iovec)
	{
		&frame, sizeof(frame)
	};
	for (int i = 0; i < npieces; i++)
		all[i + 1] = (struct iovec)
	{
		unconstify(void *, pieces[i].data), pieces[i].size
	};
	return LinkStreamWrite(all, npieces + 1, awaited, spoke);
}

/*
 * Read the answer to a request.  False: the connection was lost or the engine
 * asks to try again (*lost), or the engine refuses.  An error from the engine
 * also ends the connection if messages without a reply were sent before it
 * (pages were under way), or if more answers are to come.
 */
static bool
read_reply(uint64 number, gpuvec_message expected, Size minimum, GpuvecReply *reply, bool *lost)
{
	uint64		request;

	*lost = true;
	if (!FrameRead(reply, &request))
		return false;
	if (reply->type == GPUVEC_MSG_ERROR)
	{
		EngineError error;

		FrameParseError(reply, &error);
		if (error.head.retry)
			return false;
		*lost = false;
		if (unanswered || request != request_number)
			GpuvecLinkClose();
		connection.in_request = awaited = false;
		if (!error.head.fallback)
			FrameRaiseError(&error);
		GpuvecLinkRefuse(FrameErrorCode(&error), error.message, error.detail, error.hint);
		refusal.request = request;
		pfree(reply->data);
		return false;
	}
	*lost = false;
	if (reply->type != expected || reply->length < minimum || request != number)
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("unexpected message %u from the gpuvec engine", reply->type)));
	connection.in_request = awaited = number != request_number;
	unanswered = false;
	return true;
}

/*
 * The engine sent something before we had sent all: read the error, and raise
 * it or note it
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

	/* however this transaction ends, exactly one answer will come */
	connection.in_request = unanswered = awaited = false;
}

/*
 * An error in the unread answer is dropped: whoever needs what was requested
 * will see that it was not done, and request it again.
 */
bool
GpuvecLinkSettle(void)
{
	uint64		number = late.number;
	uint64		request;
	GpuvecReply reply;
	bool		kept = false;
	bool		ok;

	if (number == 0)
		return true;
	late.number = 0;
	connection.in_request = true;
	ok = FrameRead(&reply, &request) && request == number;
	connection.in_request = false;
	if (ok && reply.type == late.expected && reply.length >= late.minimum)
		kept = late.take(reply.data, reply.length);
	else if (ok && reply.type == GPUVEC_MSG_ERROR)
	{
		EngineError error;

		FrameParseError(&reply, &error);
		ok = !error.head.retry;
	}
	else
		ok = false;
	if (!ok)
	{
		GpuvecLinkClose();
		return false;
	}
	if (!kept)
		pfree(reply.data);
	return true;
}

uint64
GpuvecLinkLeft(void)
{
	return late.number;
}

uint64
GpuvecLinkBegin(gpuvec_message type, const GpuvecPiece *pieces, int npieces)
{
	bool		spoke = false;

	if (connection.fd < 0 || !GpuvecLinkSettle())
		return 0;
	if (send_frame(type, pieces, npieces, &spoke))
	{
		/* pages have no answer, but an earlier request may await one */
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

	if (connection.fd < 0)
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
	/* in_request stays true: a commit must follow */
	unanswered = true;
	return GpuvecLinkBegin(type, pieces, npieces) != 0;
}
