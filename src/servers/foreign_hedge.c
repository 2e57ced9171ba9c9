/*-------------------------------------------------------------------------
 *
 * foreign_hedge.c
 *	  Hedged searches: a server that is slow is asked on a second host.
 *
 * Of many servers, one is slow now and then, and all of a search waits for
 * it.  If a server has several hosts, and has returned no row some time after
 * it was asked (gpuvec.hedging_delay), the same statement is sent to another
 * one of them.  The first that has rows answers, and the connection to the
 * other one is closed.  (J. Dean and L. A. Barroso, The Tail at Scale, CACM
 * 56, 2013)
 *
 * All that a transaction reads of a server is of one snapshot.  So only its
 * first statement there is hedged, and those that follow take the connection
 * that has answered it.
 *
 * A hedge never makes a search fail: whatever goes wrong with it ends only
 * the hedge, until it has rows and becomes the search.  One that has no rows
 * is no answer, as the extension or the table may be missing there.
 *
 * A connection that is lost before it has returned rows, or that does not come
 * about, leaves the search to the hedge, which begins then at the latest.  Its
 * answer counts then also if it has no rows.  If it fails as well, the search
 * fails with what is known of the first host.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "core/clock.h"
#include "miscadmin.h"
#include "servers/foreign_asking.h"
#include "settings.h"

/* Decide when second hosts are asked; all first ones have been turned to */
void
ForeignHedgePlan(Asking *asking)
{
	int64		at = gpuvec_hedging_delay == 0 ? 0 :
		gpuvec_clock_us() + gpuvec_hedging_delay * INT64CONST(1000);

	for (int i = 0; i < asking->n; i++)
		if (!asking->asked[i].waits && !asking->asked[i].connection->begun)
			asking->asked[i].hedge_at = at;
}

/* Ask a second host */
static void
start_hedge(Asking *asking, Asked *asked)
{
	ForeignConnection *connection = ForeignConnectSecond(asked->connection, asked->statement->leaf);
	Asked	   *hedge;

	if (connection == NULL)
		return;
	hedge = MemoryContextAllocZero(asking->context, sizeof(*hedge));
	hedge->statement = asked->statement;
	hedge->connection = connection;
	hedge->reader.binary = asked->reader.binary;
	hedge->wanted = WL_SOCKET_WRITEABLE;
	hedge->hedged = asked;
	asked->hedge = hedge;
	ForeignForgetSet(asking);
}

/* Ask second hosts of all servers whose time is over */
void
ForeignHedgeStart(Asking *asking)
{
	for (int i = 0; i < asking->n; i++)
	{
		Asked	   *asked = &asking->asked[i];

		if (!ForeignIsUnderWay(asked) || asked->hedge_at == 0 || gpuvec_clock_us() < asked->hedge_at)
			continue;
		asked->hedge_at = 0;
		start_hedge(asking, asked);
	}
}

/* A statement needs no hedge, or not any more */
void
ForeignHedgeDrop(Asking *asking, Asked *asked)
{
	asked->hedge_at = 0;
	if (asked->hedge == NULL)
		return;
	ForeignForgetSet(asking);
	ForeignDisconnect(asked->hedge->connection);
	asked->hedge->done = true;
	asked->hedge = NULL;
}

/*
 * The connection of a statement is lost.  True if a second host is asked, or
 * can be asked now, in its place.
 */
bool
ForeignHedgeRemains(Asking *asking, Asked *asked)
{
	if (asked->answered)
		return false;
	if (asked->hedge == NULL && asked->hedge_at != 0)
		start_hedge(asking, asked);
	asked->hedge_at = 0;
	asked->lost = asked->hedge != NULL;
	ForeignForgetSet(asking);
	return asked->lost;
}

/* A hedge has failed: so does the search, if it has nothing else */
static void
fail(Asking *asking, Asked *hedge)
{
	Asked	   *asked = hedge->hedged;

	ForeignHedgeDrop(asking, asked);
	if (asked->lost)
		ForeignAskFailed(asked);
}

/* Go on with connecting; true if the connection is there */
static bool
go_on_connecting(Asking *asking, Asked *hedge)
{
	const Libpq *pq = ForeignLibpq();
	ForeignConnection *connection = hedge->connection;
	bool		ok = connection->deadline == 0 || gpuvec_clock_us() < connection->deadline;

	/* the socket may have become another one */
	ForeignForgetSet(asking);
	switch (ok ? pq->PQconnectPoll(connection->conn) : LIBPQ_POLLING_FAILED)
	{
		case LIBPQ_POLLING_READING:
			hedge->wanted = WL_SOCKET_READABLE;
			return false;
		case LIBPQ_POLLING_WRITING:
			hedge->wanted = WL_SOCKET_WRITEABLE;
			return false;
		case LIBPQ_POLLING_OK:
			connection->connecting = false;
			connection->deadline = 0;
			if ((!connection->need_password || pq->PQconnectionUsedPassword(connection->conn)) &&
				ForeignSendSettings(connection))
				return true;
			break;
	}
	fail(asking, hedge);
	return false;
}

/* Send what is to be sent, and receive what is here; false if that fails */
static bool
conversation(Asked *hedge)
{
	const Libpq *pq = ForeignLibpq();
	int			flushed;

	if (!hedge->sent && !ForeignSendStatement(hedge))
		return false;
	flushed = pq->PQflush(hedge->connection->conn);
	hedge->flushed = flushed == 0;
	hedge->wanted = WL_SOCKET_READABLE | (flushed > 0 ? WL_SOCKET_WRITEABLE : 0);
	return flushed >= 0 && pq->PQconsumeInput(hedge->connection->conn);
}

/* True if a result has the first rows of the statement, or may have none */
static bool
has_rows(const Asked *hedge, const PGresult *result)
{
	const Libpq *pq = ForeignLibpq();
	int			status = pq->PQresultStatus(result);

	return (status == LIBPQ_TUPLES_OK || status == LIBPQ_SINGLE_TUPLE) &&
		(pq->PQntuples(result) > 0 || hedge->hedged->lost) &&
		pq->PQnfields(result) == list_length(hedge->statement->tlist);
}

/*
 * Read results up to the first one with rows, which stays in the connection.
 * False: the hedge has failed.
 */
static bool
read_results(Asked *hedge)
{
	const Libpq *pq = ForeignLibpq();
	ForeignConnection *connection = hedge->connection;

	while (connection->syncs > 0 && !pq->PQisBusy(connection->conn))
	{
		int			status;

		CHECK_FOR_INTERRUPTS();
		connection->result = pq->PQgetResult(connection->conn);
		if (connection->result == NULL)
		{
			/* the next statement has begun, if there is one */
			(void) pq->PQsetSingleRowMode(connection->conn);
			if (pq->PQstatus(connection->conn) != LIBPQ_CONNECTION_OK)
				return false;
			continue;
		}
		if (has_rows(hedge, connection->result))
			return true;
		status = pq->PQresultStatus(connection->result);
		connection->syncs -= status == LIBPQ_PIPELINE_SYNC;
		pq->PQclear(connection->result);
		connection->result = NULL;
		if (status != LIBPQ_COMMAND_OK && status != LIBPQ_PIPELINE_SYNC)
			return false;
	}
	/* there must be rows, or their end, before the end of the statement */
	return connection->syncs > 0;
}

/* The second host answers: its connection is the server's from now on */
static void
take_over(Asking *asking, Asked *hedge)
{
	Asked	   *asked = hedge->hedged;

	ForeignConnectSwap(asked->connection, hedge->connection);
	asked->lost = false;
	asked->sent = asked->begins = true;
	asked->flushed = hedge->flushed;
	asked->wanted = hedge->wanted;
	ForeignHedgeDrop(asking, asked);
}

/*
 * Something has happened on a hedge's connection.  True if this is the
 * statement's from now on, which goes on with it.
 */
bool
ForeignHedgeGoOn(Asking *asking, Asked *hedge)
{
	if (hedge->connection->connecting && !go_on_connecting(asking, hedge))
		return false;
	if (!conversation(hedge) || !read_results(hedge))
		fail(asking, hedge);
	else if (hedge->connection->result)
	{
		take_over(asking, hedge);
		return true;
	}
	return false;
}
