/*-------------------------------------------------------------------------
 *
 * engine_link.h
 *	  This session's connection to the engine.
 *
 * Every wait here can be interrupted.  An engine that vanishes is no error at
 * this level: calls return false, and the caller decides whether to start
 * over.  Neither is one that cannot do what was asked, for want of memory,
 * say: calls return false as well, and GpuvecLinkRefusal() tells that from a
 * lost connection.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ENGINE_LINK_H
#define GPUVEC_ENGINE_LINK_H

#include "postgres.h"

#include "core/protocol.h"

typedef enum GpuvecLinkStatus
{
	GPUVEC_LINK_READY,
	GPUVEC_LINK_UNAVAILABLE		/* no engine can be had: *reason says why */
} GpuvecLinkStatus;

/* A piece of a message */
typedef struct GpuvecPiece
{
	const void *data;
	Size		size;
} GpuvecPiece;

/* An answer; data is palloc'd in the caller's memory context */
typedef struct GpuvecReply
{
	uint16		type;			/* gpuvec_message */
	uint32		length;
	char	   *data;
} GpuvecReply;

/* Why the engine does not do what was asked; the strings may be empty */
typedef struct GpuvecRefusal
{
	int			sqlerrcode;
	uint64		request;		/* number of the request that the engine
								 * refused, or 0 */
	char		message[256];
	char		detail[256];
	char		hint[256];
} GpuvecRefusal;

/* Connect, starting supervisor and engine if `start` */
extern GpuvecLinkStatus GpuvecLinkOpen(bool start, const char **reason);

/*
 * Send one request and read its answer.  False: the connection was lost, or
 * the engine refuses.  Errors that the engine answers are raised, except
 * refusals, and those that ask for a retry, which count as a lost connection.
 */
extern bool GpuvecLinkCall(gpuvec_message type, const GpuvecPiece *pieces,
						   int npieces, gpuvec_message expected, Size minimum,
						   GpuvecReply *reply);

/*
 * Send a message that has no answer (pages).  False: the connection was lost.
 */
extern bool GpuvecLinkSend(gpuvec_message type, const GpuvecPiece *pieces, int npieces);

/*
 * The same in two steps, so that several requests can be sent before their
 * answers, in the same order, are read: number of the request, or 0 when the
 * connection was lost.
 */
extern uint64 GpuvecLinkBegin(gpuvec_message type, const GpuvecPiece *pieces, int npieces);
extern bool GpuvecLinkAnswer(uint64 number, gpuvec_message expected, Size minimum,
							 GpuvecReply *reply);

/*
 * Leave the answer to the last request unread, when all others have been
 * read: it is read and given to `take` before the next request is sent, or
 * when that is asked for, which waits for it.  If that is an error it is
 * dropped.  `take` must do without this transaction.  False: the connection
 * was lost.
 */
typedef void (*GpuvecTakeAnswer) (const char *data);

extern void GpuvecLinkLeave(uint64 number, gpuvec_message expected, Size minimum,
							GpuvecTakeAnswer take);
extern bool GpuvecLinkSettle(void);

/*
 * More messages must follow the last answer (a load or refresh has begun): if
 * an error comes first, the connection is closed.
 */
extern void GpuvecLinkExpectMore(void);

extern void GpuvecLinkClose(void);

/*
 * What the engine has refused since GpuvecLinkOpen(), or NULL; and to say so
 * in its place
 */
extern const GpuvecRefusal *GpuvecLinkRefusal(void);
extern void GpuvecLinkRefuse(int sqlerrcode, const char *message, const char *detail,
							 const char *hint);
extern void GpuvecLinkRaiseRefusal(void) pg_attribute_noreturn();

/*
 * warning.c: say that the engine refuses, or else that it cannot be used for
 * this reason; each once per session
 */
extern void GpuvecLinkWarn(const char *reason);

/* The engine that the last connection was to: valid after GpuvecLinkOpen() */
extern const gpuvec_welcome *GpuvecLinkEngine(void);

/* Tells connections of one session apart; private mirrors are named by it */
extern uint64 GpuvecLinkGeneration(void);

#endif							/* GPUVEC_ENGINE_LINK_H */
