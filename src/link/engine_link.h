/*-------------------------------------------------------------------------
 *
 * engine_link.h
 *	  This session's connection to the engine.
 *
 * Every wait here can be interrupted.  A lost connection is not an error:
 * calls return false, and the caller decides whether to start over.  Nor is
 * it an error if the engine cannot serve a request, for want of memory for
 * example: calls return false, too, and GpuvecLinkRefusal() tells this from a
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
	GPUVEC_LINK_UNAVAILABLE		/* there is no engine: *reason says why */
} GpuvecLinkStatus;

/* A piece of a message */
typedef struct GpuvecPiece
{
	const void *data;
	Size		size;
} GpuvecPiece;

/* An answer; data is palloc'd in the current memory context */
typedef struct GpuvecReply
{
	uint16		type;			/* gpuvec_message */
	uint32		length;
	char	   *data;
} GpuvecReply;

/* Why the engine does not serve a request; the strings may be "" */
typedef struct GpuvecRefusal
{
	int			sqlerrcode;
	uint64		request;		/* number of the request that the engine
								 * refused, or 0 */
	char		message[256];
	char		detail[256];
	char		hint[256];
} GpuvecRefusal;

/* Connect; `start` also starts the supervisor and the engine */
extern GpuvecLinkStatus GpuvecLinkOpen(bool start, const char **reason);

/*
 * Send one request and read its answer.  False: the connection was lost, or
 * the engine refuses.  Other errors of the engine are raised, except errors
 * that ask for a retry, which count as a lost connection.  An answer of
 * another type than `expected`, or of less than `minimum` bytes, is an error.
 */
extern bool GpuvecLinkCall(gpuvec_message type, const GpuvecPiece *pieces,
						   int npieces, gpuvec_message expected, Size minimum,
						   GpuvecReply *reply);

/*
 * Send a message that has no reply (pages).  False: the connection was lost.
 */
extern bool GpuvecLinkSend(gpuvec_message type, const GpuvecPiece *pieces, int npieces);

/*
 * GpuvecLinkCall() in two steps, so that a session can send several requests
 * and then read their answers, in the same order.  GpuvecLinkBegin() returns
 * the number of the request, or 0 if the connection was lost.
 */
extern uint64 GpuvecLinkBegin(gpuvec_message type, const GpuvecPiece *pieces, int npieces);
extern bool GpuvecLinkAnswer(uint64 number, gpuvec_message expected, Size minimum,
							 GpuvecReply *reply);

/*
 * Leave the answer to the last request unread; the answers to all earlier
 * requests must have been read.  It is read, and given to `take`, before the
 * next request is sent or in GpuvecLinkSettle(), which waits for it.  An
 * error as the answer is dropped.  `take` may run in a later transaction.
 * The answer is palloc'd in the current memory context; if `take` returns
 * true, it is not freed.  GpuvecLinkSettle() returns false if the connection
 * was lost.  GpuvecLinkLeft() is the number of the request whose answer is
 * unread, or 0.
 */
typedef bool (*GpuvecTakeAnswer) (char *data, uint32 length);

extern void GpuvecLinkLeave(uint64 number, gpuvec_message expected, Size minimum,
							GpuvecTakeAnswer take);
extern bool GpuvecLinkSettle(void);
extern uint64 GpuvecLinkLeft(void);

/*
 * More messages must follow the last answer, as a load or refresh has begun.
 * If an error comes first, the connection is closed.
 */
extern void GpuvecLinkExpectMore(void);

extern void GpuvecLinkClose(void);

/* Close the connection if an error has cut off a request or a load */
extern void GpuvecLinkAbandon(void);

/*
 * Called about once a second while a request waits for the engine, which is
 * alive; or NULL
 */
extern void (*GpuvecLinkWaits) (void);

/*
 * The engine's refusal since GpuvecLinkOpen(), or NULL.  GpuvecLinkRefuse()
 * notes a refusal in the engine's place.
 */
extern const GpuvecRefusal *GpuvecLinkRefusal(void);
extern void GpuvecLinkRefuse(int sqlerrcode, const char *message, const char *detail,
							 const char *hint);
extern void GpuvecLinkRaiseRefusal(void) pg_attribute_noreturn();

/*
 * warning.c: warn that the engine refuses, or, without a refusal, that it
 * cannot be used for `reason`; each once per session
 */
extern void GpuvecLinkWarn(const char *reason);

/* The engine of the last connection; valid after GpuvecLinkOpen() */
extern const gpuvec_welcome *GpuvecLinkEngine(void);

/* The random number of the engine at the other end; 0: not known */
extern uint64 GpuvecLinkEngineNumber(void);

/*
 * Number of this session's connection: part of the names of private mirrors
 */
extern uint64 GpuvecLinkGeneration(void);

#endif							/* GPUVEC_ENGINE_LINK_H */
