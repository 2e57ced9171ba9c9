/*-------------------------------------------------------------------------
 *
 * foreign_ask.c
 *	  Run statements on servers over connections of our own.
 *
 * All servers are asked before one is waited for.  Statements of one server
 * follow one another.  In the pipeline of libpq, the first one goes out in one
 * message with what begins the transaction, and a new connection gets its
 * settings so, too.  So a search takes one round trip for each round, however
 * many servers there are.
 *
 * A server that is slow may have another host, which is asked as well
 * (foreign_hedge.c); the first one that has rows answers.
 *
 * Rows are taken one by one as they arrive, so a server cannot fill the memory
 * of this session.  If the server's columns turn out to have other types than
 * expected (foreign_values.c), the statement is sent once more.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "core/clock.h"
#include "link/wait_events.h"
#include "miscadmin.h"
#include "postgres_ext.h"
#include "servers/foreign_asking.h"

static const Libpq *pq;

/* ---- connecting ---- */

/*
 * A connection is lost.  One that was made long ago may have been closed
 * since, so it is made once more, unless rows have come, or an earlier
 * statement of the transaction has seen its snapshot.  Otherwise a second
 * host may answer (foreign_hedge.c).
 */
static bool
reconnect(Asking *asking, Asked *asked, const PGresult *result)
{
	ForeignConnection *connection = asked->connection;

	if (!connection->reused || asked->answered || (connection->begun && !asked->begins))
	{
		if (ForeignHedgeRemains(asking, asked))
			return false;
		ForeignReportError(asked, result);
	}
	ForeignForgetSet(asking);
	ForeignConnectStart(connection, asked->statement->leaf);
	asked->sent = asked->flushed = asked->begins = false;
	asked->wanted = WL_SOCKET_WRITEABLE;
	return false;
}

/* Go on with connecting; true if the connection is there */
static bool
go_on_connecting(Asking *asking, Asked *asked)
{
	ForeignConnection *connection = asked->connection;

	/* the socket may have become another one */
	ForeignForgetSet(asking);
	switch (ForeignIsTooLate(connection) ? LIBPQ_POLLING_FAILED : pq->PQconnectPoll(connection->conn))
	{
		case LIBPQ_POLLING_OK:
			break;
		case LIBPQ_POLLING_READING:
			asked->wanted = WL_SOCKET_READABLE;
			return false;
		case LIBPQ_POLLING_WRITING:
			asked->wanted = WL_SOCKET_WRITEABLE;
			return false;
		default:
			if (ForeignHedgeRemains(asking, asked))
				return false;
			ForeignReportNoConnection(asked);
	}
	connection->connecting = false;
	connection->deadline = 0;
	ForeignConnectCheck(connection, asked->statement->leaf);
	if (!ForeignSendSettings(connection))
		ForeignReportError(asked, NULL);
	return true;
}

/* ---- reading ---- */

/* Fail: the server breaks a rule */
static void
reject_answer(const Asked *asked, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_FDW_ERROR),
			 errmsg("server \"%s\" returned a wrong answer", asked->statement->leaf->server_name),
			 errdetail("%s", detail)));
}

/* Take the rows of a result */
static void
take_rows(Asking *asking, Asked *asked, const PGresult *result)
{
	int			nrows = pq->PQntuples(result);

	if (pq->PQnfields(result) != asked->reader.slot->tts_tupleDescriptor->natts)
		reject_answer(asked, psprintf("Rows have %d columns.", pq->PQnfields(result)));
	if (asked->again)
		return;
	if (!ForeignReaderCan(&asked->reader, result))
	{
		asked->again = true;
		return;
	}
	for (int i = 0; i < nrows; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(asking->row_context);

		CHECK_FOR_INTERRUPTS();
		ForeignReaderRead(&asked->reader, result, i);
		MemoryContextSwitchTo(asking->context);
		asked->statement->take(asked->reader.slot, asked->statement->arg);
		MemoryContextSwitchTo(old);
		MemoryContextReset(asking->row_context);
	}
	asked->answered = asked->answered || nrows > 0;
}

/* True if an error ends the session on the server */
static bool
is_fatal(const PGconn *conn, const PGresult *result)
{
	const char *severity = pq->PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);

	return pq->PQstatus(conn) != LIBPQ_CONNECTION_OK ||
		(severity && (strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0));
}

/* Take what one statement in the pipeline has returned */
static bool
take_result(Asking *asking, Asked *asked, const PGresult *result)
{
	ForeignConnection *connection = asked->connection;

	switch (pq->PQresultStatus(result))
	{
		case LIBPQ_COMMAND_OK:
			break;
		case LIBPQ_TUPLES_OK:
		case LIBPQ_SINGLE_TUPLE:
			ForeignHedgeDrop(asking, asked);
			take_rows(asking, asked, result);
			asked->complete = pq->PQresultStatus(result) == LIBPQ_TUPLES_OK;
			break;
		case LIBPQ_PIPELINE_SYNC:
			connection->syncs--;
			break;
		default:
			if (is_fatal(connection->conn, result))
				return reconnect(asking, asked, result);
			ForeignReportError(asked, result);
	}
	return true;
}

/*
 * The statement's last result is here: done, or once more as text.  A server
 * that has not ended the rows may have more, and what it sends next would be
 * taken for another statement's.
 */
static void
finish_statement(Asked *asked)
{
	if (!asked->complete)
		reject_answer(asked, "The end of its rows is missing.");
	asked->complete = false;
	asked->done = !asked->again;
	asked->wanted = 0;
	if (!asked->again)
		return;
	asked->again = asked->sent = asked->flushed = asked->begins = false;
	ForeignReaderUseText(&asked->reader);
}

/* Take all results that are here; false if the connection was lost */
static bool
take_results(Asking *asking, Asked *asked)
{
	ForeignConnection *connection = asked->connection;
	bool		goes_on = true;

	/* a hedge has left the result that decided between the two */
	while (goes_on && connection->syncs > 0 && (connection->result || !pq->PQisBusy(connection->conn)))
	{
		CHECK_FOR_INTERRUPTS();
		if (connection->result == NULL)
			connection->result = pq->PQgetResult(connection->conn);
		if (connection->result == NULL)
		{
			/* the next statement has begun, if there is one */
			(void) pq->PQsetSingleRowMode(connection->conn);
			if (pq->PQstatus(connection->conn) != LIBPQ_CONNECTION_OK)
				return reconnect(asking, asked, NULL);
			continue;
		}
		goes_on = take_result(asking, asked, connection->result);
		if (connection->result)
			pq->PQclear(connection->result);
		connection->result = NULL;
	}
	return goes_on;
}

/* One step of a statement; true if there may be another one */
static bool
advance(Asking *asking, Asked *asked)
{
	ForeignConnection *connection = asked->connection;
	int			flushed;

	if (connection->connecting && !go_on_connecting(asking, asked))
		return false;
	if (!asked->sent && !ForeignSendStatement(asked))
		return reconnect(asking, asked, NULL);
	flushed = pq->PQflush(connection->conn);
	if (flushed < 0 || !pq->PQconsumeInput(connection->conn))
		return reconnect(asking, asked, NULL);
	asked->flushed = flushed == 0;
	asked->wanted = WL_SOCKET_READABLE | (flushed > 0 ? WL_SOCKET_WRITEABLE : 0);
	if (!take_results(asking, asked) || connection->syncs > 0)
		return false;
	finish_statement(asked);
	return !asked->done;
}

/* Do for a statement what can be done without waiting, then for the next */
static void
go_on(Asking *asking, Asked *asked)
{
	for (; asked != NULL && !asked->done; asked = asked->next)
	{
		ErrorContextCallback callback = {.callback = ForeignNamePlace, .arg = asked, .previous = error_context_stack};

		asked->waits = false;
		error_context_stack = &callback;
		while (advance(asking, asked))
			;
		error_context_stack = callback.previous;
		if (!asked->done)
			break;
	}
}

/* ---- waiting ---- */

/* Number i of the statements, and of their hedges behind them; may be NULL */
static Asked *
nth_asked(const Asking *asking, int i)
{
	return i < asking->n ? &asking->asked[i] : asking->asked[i - asking->n].hedge;
}

/* Make the set of events of all statements that are under way */
static void
make_set(Asking *asking)
{
	/* the set is a file as well */
	if (!ForeignMakeRoom())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("cannot wait for servers"),
				 errdetail("There are too many open files on the local server.")));
	asking->set = GpuvecCreateWaitEventSet(2 * asking->n + 2);
	AddWaitEventToSet(asking->set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(asking->set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	for (int i = 0; i < 2 * asking->n; i++)
	{
		Asked	   *asked = nth_asked(asking, i);

		if (!ForeignIsUnderWay(asked))
			continue;
		asked->registered = asked->wanted;
		AddWaitEventToSet(asking->set, asked->wanted, pq->PQsocket(asked->connection->conn), NULL, asked);
	}
}

/* The sooner of what may be 0, which is never */
static int64
sooner(int64 a, int64 b)
{
	return a == 0 || (b != 0 && b < a) ? b : a;
}

/*
 * Milliseconds until a connection is given up, or a second host is asked; -1:
 * not at all
 */
static long
time_left(const Asking *asking)
{
	int64		next = 0;

	for (int i = 0; i < 2 * asking->n; i++)
	{
		const Asked *asked = nth_asked(asking, i);

		if (ForeignIsUnderWay(asked))
			next = sooner(next, sooner(asked->connection->deadline, asked->hedge_at));
	}
	return next == 0 ? -1 : (long) Max((next - gpuvec_clock_us()) / 1000 + 1, 0);
}

/* Something has happened on a connection, or its time is over */
static void
go_on_any(Asking *asking, Asked *asked)
{
	if (asked->hedged == NULL)
		go_on(asking, asked);
	else if (ForeignHedgeGoOn(asking, asked))
		go_on(asking, asked->hedged);
}

/* Give up connections whose time is over */
static void
check_deadlines(Asking *asking)
{
	for (int i = 0; i < 2 * asking->n; i++)
	{
		Asked	   *asked = nth_asked(asking, i);

		if (ForeignIsUnderWay(asked) && asked->connection->deadline != 0 &&
			gpuvec_clock_us() >= asked->connection->deadline)
			go_on_any(asking, asked);
	}
}

/* Wait until something happens, and go on with the statements concerned */
static void
wait_and_go_on(Asking *asking, WaitEvent *events)
{
	int			n;

	for (int i = 0; i < 2 * asking->n && asking->set; i++)
	{
		const Asked *asked = nth_asked(asking, i);

		if (ForeignIsUnderWay(asked) && asked->wanted != asked->registered)
			ForeignForgetSet(asking);
	}
	if (asking->set == NULL)
		make_set(asking);
	n = WaitEventSetWait(asking->set, time_left(asking), events, 2 * asking->n + 2, GpuvecWaitEvent(GPUVEC_WAIT_SERVERS));
	for (int i = 0; i < n; i++)
	{
		Asked	   *asked = events[i].user_data;

		if (events[i].events & WL_LATCH_SET)
			ResetLatch(MyLatch);
		else if (asked != NULL && asked->done)
			ForeignForgetSet(asking);	/* closed, or the next statement's */
		else if (asked != NULL)
			go_on_any(asking, asked);
	}
	CHECK_FOR_INTERRUPTS();
	check_deadlines(asking);
	ForeignHedgeStart(asking);
}

/* ---- a call ---- */

static bool
all_done(const Asking *asking)
{
	for (int i = 0; i < asking->n; i++)
		if (!asking->asked[i].done)
			return false;
	return true;
}

/* True if each server has been asked for something */
static bool
all_sent(const Asking *asking)
{
	for (int i = 0; i < asking->n; i++)
	{
		const Asked *asked = &asking->asked[i];

		if (asked->lost)
			asked = asked->hedge;
		if (ForeignIsUnderWay(asked) && !asked->flushed)
			return false;
	}
	return true;
}

/* Run all statements, and what the caller does meanwhile */
static void
run_all(Asking *asking, void (*meanwhile) (void *arg), void *arg)
{
	WaitEvent  *events = palloc_array(WaitEvent, 2 * asking->n + 2);

	ForeignHedgePlan(asking);
	for (int i = 0; i < asking->n; i++)
		if (!asking->asked[i].waits && !asking->asked[i].connection->connecting)
			go_on(asking, &asking->asked[i]);
	for (;;)
	{
		if (meanwhile && all_sent(asking))
		{
			meanwhile(arg);
			meanwhile = NULL;
		}
		if (all_done(asking))
			break;
		wait_and_go_on(asking, events);
	}
	pfree(events);
}

/* Prepare to run a statement; `earlier` ones are prepared */
static void
begin_statement(Asked *asked, const ForeignStatement *statement, Asked *earlier, int nearlier)
{
	ErrorContextCallback callback = {.callback = ForeignNamePlace, .arg = asked, .previous = error_context_stack};

	asked->statement = statement;
	asked->wanted = WL_SOCKET_WRITEABLE;
	asked->reader.reading = -1;
	error_context_stack = &callback;
	asked->connection = ForeignConnect(statement->leaf);
	error_context_stack = callback.previous;
	for (int i = nearlier - 1; i >= 0; i--)
	{
		if (earlier[i].connection != asked->connection)
			continue;
		earlier[i].next = asked;
		asked->waits = true;
		break;
	}
	ForeignReaderBegin(&asked->reader, statement);
}

/*
 * Run all statements at once over connections of our own, until all rows are
 * taken.  meanwhile(arg), unless NULL, is called once, when all servers are
 * asked.
 */
void
ForeignAsk(const ForeignStatement *statements, int n, void (*meanwhile) (void *arg), void *arg)
{
	Asking		asking = {.n = n, .context = CurrentMemoryContext};

	pq = ForeignLibpq();
	asking.asked = palloc0_array(Asked, Max(n, 1));
	asking.row_context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec row of a server",
											   ALLOCSET_DEFAULT_SIZES);
	for (int i = 0; i < n; i++)
		begin_statement(&asking.asked[i], &statements[i], asking.asked, i);
	PG_TRY();
	{
		run_all(&asking, meanwhile, arg);
	}
	PG_FINALLY();
	{
		ForeignForgetSet(&asking);
	}
	PG_END_TRY();
	for (int i = 0; i < n; i++)
		ForeignReaderEnd(&asking.asked[i].reader);
	MemoryContextDelete(asking.row_context);
}
