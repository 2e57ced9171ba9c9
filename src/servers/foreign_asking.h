/*-------------------------------------------------------------------------
 *
 * foreign_asking.h
 *	  Statements that are run on servers over connections of our own.
 *
 * foreign_ask.c	asking all servers, and reading what they return
 * foreign_hedge.c	asking a second host of a server that is slow
 * foreign_send.c	sending statements; errors
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_FOREIGN_ASKING_H
#define GPUVEC_FOREIGN_ASKING_H

#include "postgres.h"

#include "servers/foreign_connect.h"
#include "servers/foreign_values.h"
#include "storage/latch.h"

/* A statement, and how far it has come */
typedef struct Asked
{
	const ForeignStatement *statement;
	ForeignConnection *connection;
	struct Asked *next;			/* of the same connection; waits for it */
	bool		waits;			/* for another one */
	bool		sent;
	bool		flushed;		/* all of it */
	bool		begins;			/* it has been sent with the beginning of the
								 * transaction */
	bool		answered;		/* the server has sent something */
	bool		complete;		/* it has said that there are no more rows */
	bool		done;
	bool		again;			/* send it again, for text */
	uint32		wanted;			/* events to wait for, ... */
	uint32		registered;		/* ... and those that the set has */
	ForeignReader reader;		/* of its rows */
	int64		hedge_at;		/* when a second host is asked, of
								 * gpuvec_clock_us(); 0: never */
	struct Asked *hedge;		/* the same statement on that host; or NULL */
	bool		lost;			/* its own connection is; the hedge goes on */
	struct Asked *hedged;		/* of a hedge: the statement; else NULL */
} Asked;

/* What all statements of a call share */
typedef struct Asking
{
	Asked	   *asked;
	int			n;
	MemoryContext context;		/* of the caller */
	MemoryContext row_context;
	WaitEventSet *set;			/* NULL: to be made anew */
} Asking;

/* True if something of a statement is under way */
static inline bool
ForeignIsUnderWay(const Asked *asked)
{
	return asked != NULL && !asked->done && !asked->waits && !asked->lost;
}

/* Sockets or events have changed: make the set of events anew */
static inline void
ForeignForgetSet(Asking *asking)
{
	if (asking->set)
		FreeWaitEventSet(asking->set);
	asking->set = NULL;
}

/* foreign_send.c */
extern bool ForeignSendSettings(ForeignConnection *connection);
extern bool ForeignSendStatement(Asked *asked);
extern bool ForeignIsTooLate(const ForeignConnection *connection);
extern void ForeignNamePlace(void *arg);
extern void ForeignReportError(const Asked *asked, const PGresult *result);
extern void ForeignReportNoConnection(const Asked *asked);
extern void ForeignAskFailed(Asked *asked);

/* foreign_hedge.c */
extern void ForeignHedgePlan(Asking *asking);
extern void ForeignHedgeStart(Asking *asking);
extern bool ForeignHedgeRemains(Asking *asking, Asked *asked);
extern bool ForeignHedgeGoOn(Asking *asking, Asked *hedge);
extern void ForeignHedgeDrop(Asking *asking, Asked *asked);

#endif							/* GPUVEC_FOREIGN_ASKING_H */
