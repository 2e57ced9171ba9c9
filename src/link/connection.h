/*-------------------------------------------------------------------------
 *
 * connection.h
 *	  How this session's connection to the engine is made, for src/link only.
 *
 * From below: a stream of bytes through one socket (stream.c), frames in it
 * (frame.c), finding and greeting the engine (connect.c).  Above them are
 * requests and their answers (engine_link.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CONNECTION_H
#define GPUVEC_CONNECTION_H

#include "postgres.h"

#include <sys/uio.h>

#include "core/protocol.h"
#include "datatype/timestamp.h"
#include "link/engine_link.h"
#include "storage/latch.h"

typedef struct EngineConnection
{
	int			fd;				/* of the socket; -1: there is no connection */
	WaitEventSet *events;		/* the socket and our latch */
	uint64		generation;		/* connections that this session has opened */
	TimestampTz opened;
	int64		last_use;		/* milliseconds of some clock */
	bool		waited;			/* for long, for what is sent or read now */
	bool		in_request;		/* an error would leave it of no use: see
								 * engine_link.c */
	gpuvec_welcome engine;		/* what it said of itself; pid 0: nothing yet */
	TimestampTz given_up;		/* the statement in which the engine was; 0:
								 * none */
	char		why_not[256];	/* why there is no engine */
} EngineConnection;

/* That of this session (stream.c) */
extern EngineConnection connection;

/* How an attempt to connect ended */
typedef enum StreamStatus
{
	STREAM_CONNECTED,
	STREAM_NOBODY_LISTENS,		/* yet, or not any more */
	STREAM_HOPELESS				/* why_not says why */
} StreamStatus;

/* stream.c */
extern StreamStatus StreamOpen(void);
extern void StreamClose(void);

/*
 * Is the connection still there?  The engine closes those that have been idle
 * for long, for others' sake, so after a while it is worth a look.  Nobody
 * speaks to us unasked.
 */
extern bool StreamAlive(void);

/* Read exactly `size` bytes.  False if the connection is lost first. */
extern bool StreamRead(void *to, Size size);

/*
 * Write pieces of memory; changes the list.  False if the connection is lost,
 * or if the engine speaks before we are done, which it does only to report an
 * error: *spoke is set.  (Or to answer what was sent before, if an answer is
 * awaited: then it reads on.)
 */
extern bool StreamWrite(struct iovec *pieces, int npieces, bool awaited, bool *spoke);

/* Sleep, interruptibly */
extern void StreamSleep(long ms);

/* The strings of an error frame, in the memory of the reply */
typedef struct EngineError
{
	gpuvec_error_head head;
	const char *message;
	const char *detail;
	const char *hint;
} EngineError;

/* frame.c */

/*
 * Read one frame into a palloc'd reply, which is NUL-terminated; *request is
 * the number of the request that it answers.  False: the connection was lost.
 */
extern bool FrameRead(GpuvecReply *reply, uint64 *request);

/* Take an error frame apart */
extern void FrameParseError(const GpuvecReply *reply, EngineError *error);

/* Its SQLSTATE as the server's code */
extern int	FrameErrorCode(const EngineError *error);

/* Raise it as ours */
extern void FrameRaiseError(const EngineError *error) pg_attribute_noreturn();

/* connect.c */

/*
 * Find the engine and introduce ourselves; `start` also starts the supervisor
 * and with it the engine
 */
extern GpuvecLinkStatus ConnectToEngine(bool start, const char **reason);

#endif							/* GPUVEC_CONNECTION_H */
