/*-------------------------------------------------------------------------
 *
 * connection.h
 *	  This session's connection to the engine, for src/link only.
 *
 * The layers, from the lowest: a stream of bytes through one socket
 * (stream.c), frames (frame.c), finding and greeting the engine (connect.c),
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

/*
 * Bytes that are read with those before, for the next read.  Larger answers
 * are read to where they belong.
 */
#define EARLY_BYTES		16384

typedef struct EngineConnection
{
	int			fd;				/* socket; -1: no connection */
	WaitEventSet *events;		/* waits for the socket, our latch and the
								 * postmaster's death */
	uint64		generation;		/* number of connections that this session has
								 * opened */
	int64		opened;			/* of gpuvec_clock_coarse_us() */
	int64		last_use;		/* when bytes last arrived, of the same clock */
	bool		waited;			/* the current read or write has waited for
								 * LOOK_MS or more */
	bool		in_request;		/* a request is unfinished: see engine_link.c */
	gpuvec_welcome engine;		/* WELCOME; pid 0: not received yet */
	TimestampTz given_up;		/* start of the statement that gave up the
								 * engine; 0: none */
	char		why_not[256];	/* why there is no engine */
	Size		nearly;			/* bytes in early[] that are not read yet */
	Size		next_early;		/* where they begin */
	char		early[EARLY_BYTES];
} EngineConnection;

/* This session's connection (stream.c) */
extern EngineConnection connection;

/* How an attempt to connect ended */
typedef enum LinkStreamStatus
{
	STREAM_CONNECTED,
	STREAM_NOBODY_LISTENS,		/* no engine or supervisor accepts connections
								 * at the moment */
	STREAM_HOPELESS				/* not possible: connection.why_not says why */
} LinkStreamStatus;

/* stream.c */
extern LinkStreamStatus LinkStreamOpen(void);
extern void LinkStreamClose(void);

/*
 * True if the engine has not closed the connection.  It closes connections
 * that are idle for long to make room for others, so a session checks after a
 * while.  The engine sends nothing unasked, so bytes to read are a fault,
 * too.
 */
extern bool LinkStreamAlive(void);

/* Read exactly `size` bytes.  False: the connection was lost. */
extern bool LinkStreamRead(void *to, Size size);

/*
 * Write pieces of memory; changes the array.  False: the connection was lost,
 * or the engine sent something before all was written.  It does so only to
 * report an error, and *spoke is set.  If `awaited`, earlier requests are
 * unanswered: bytes from the engine are their answers, and writing goes on.
 */
extern bool LinkStreamWrite(struct iovec *pieces, int npieces, bool awaited, bool *spoke);

extern void LinkStreamSleep(long ms);

/* An error frame; the strings are in the memory of the reply */
typedef struct EngineError
{
	gpuvec_error_head head;
	const char *message;
	const char *detail;
	const char *hint;
} EngineError;

/* frame.c */

/*
 * Read one frame.  reply->data is palloc'd and NUL-terminated.  *request is
 * the number of the request that the frame answers.  False: the connection
 * was lost.
 */
extern bool FrameRead(GpuvecReply *reply, uint64 *request);

/* Parse an error frame */
extern void FrameParseError(const GpuvecReply *reply, EngineError *error);

/* The error's SQLSTATE as an errcode() of the server */
extern int	FrameErrorCode(const EngineError *error);

/* Raise the engine's error in this session */
extern void FrameRaiseError(const EngineError *error) pg_attribute_noreturn();

/* connect.c */

/*
 * One attempt to connect to the engine, in steps.  `start` also starts the
 * supervisor, and with it the engine.
 *
 * possible: there is the shared memory in which the supervisor speaks.  reach:
 * connect to the supervisor's socket.  Each is false if there is no engine,
 * and *reason says why.  greet: false if the connection is lost, or the engine
 * refuses, for now or for good (*refused; connection.why_not says why).
 */
extern bool ConnectPossible(bool start, const char **reason);
extern bool ConnectReach(bool start, const char **reason);
extern bool ConnectGreet(bool *refused);

#endif							/* GPUVEC_CONNECTION_H */
