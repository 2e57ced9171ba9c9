/*-------------------------------------------------------------------------
 *
 * foreign_send.c
 *	  Send statements to servers, and report what fails: for those that are
 *	  asked, and for their hedges.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "core/clock.h"
#include "postgres_ext.h"
#include "servers/foreign_asking.h"

/* ---- errors ---- */

/* Error context callback: which column, which table, on which server */
void
ForeignNamePlace(void *arg)
{
	const Asked *asked = arg;
	const ForeignLeaf *leaf = asked->statement->leaf;

	if (asked->reader.reading >= 0)
	{
		TargetEntry *entry = list_nth_node(TargetEntry, asked->statement->tlist, asked->reader.reading);

		if (entry->resname)
			errcontext("column \"%s\" of foreign table \"%s\"", entry->resname,
					   RelationGetRelationName(leaf->rel));
	}
	errcontext("search of foreign table \"%s\" on server \"%s\"",
			   RelationGetRelationName(leaf->rel), leaf->server_name);
}

/* Fail with the error that a server has sent, or that its connection has */
void
ForeignReportError(const Asked *asked, const PGresult *result)
{
	const Libpq *pq = ForeignLibpq();
	char	   *state = result ? pq->PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
	char	   *message = result ? pq->PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : NULL;
	char	   *detail = result ? pq->PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL) : NULL;
	char	   *hint = result ? pq->PQresultErrorField(result, PG_DIAG_MESSAGE_HINT) : NULL;
	char	   *context = result ? pq->PQresultErrorField(result, PG_DIAG_CONTEXT) : NULL;
	int			code = ERRCODE_CONNECTION_FAILURE;

	if (state && strlen(state) == 5)
		code = MAKE_SQLSTATE(state[0], state[1], state[2], state[3], state[4]);
	if (message == NULL)
		message = pchomp(pq->PQerrorMessage(asked->connection->conn));
	ereport(ERROR,
			(errcode(code),
			 message[0] != '\0' ? errmsg_internal("%s", message) :
			 errmsg("could not obtain message string for remote error"),
			 detail ? errdetail_internal("%s", detail) : 0,
			 hint ? errhint("%s", hint) : 0,
			 context ? errcontext("%s", context) : 0,
			 errcontext("remote SQL command: %s", asked->statement->sql)));
}

/* True if the time to connect is over */
bool
ForeignIsTooLate(const ForeignConnection *connection)
{
	return connection->deadline != 0 && gpuvec_clock_us() >= connection->deadline;
}

/* Fail, as there is no connection to a server */
void
ForeignReportNoConnection(const Asked *asked)
{
	ForeignConnectFailed(asked->connection, asked->statement->leaf,
						 ForeignIsTooLate(asked->connection) ? "timeout expired" : NULL);
}

/* Fail, as the connection to a server is lost, or does not come about */
void
ForeignAskFailed(Asked *asked)
{
	ErrorContextCallback callback = {.callback = ForeignNamePlace, .arg = asked, .previous = error_context_stack};

	error_context_stack = &callback;
	if (asked->connection->connecting)
		ForeignReportNoConnection(asked);
	ForeignReportError(asked, NULL);
}

/* ---- sending ---- */

/* What postgres_fdw sets for its connections */
static const char *const settings[] = {
	"SET search_path = pg_catalog", "SET timezone = 'GMT'", "SET datestyle = ISO",
	"SET intervalstyle = postgres", "SET extra_float_digits = 3"
};

/* Add a statement to the pipeline */
static bool
send_sql(PGconn *conn, const char *sql)
{
	return ForeignLibpq()->PQsendQueryParams(conn, sql, 0, NULL, NULL, NULL, NULL, 0);
}

/* A connection is made: prepare it */
bool
ForeignSendSettings(ForeignConnection *connection)
{
	const Libpq *pq = ForeignLibpq();
	PGconn	   *conn = connection->conn;

	if (pq->PQsetnonblocking(conn, 1) != 0 || !pq->PQenterPipelineMode(conn))
		return false;
	for (int i = 0; i < lengthof(settings); i++)
		if (!send_sql(conn, settings[i]))
			return false;
	if (!pq->PQpipelineSync(conn))
		return false;
	connection->syncs++;
	return true;
}

/* Send a statement, behind the beginning of the transaction if need be */
bool
ForeignSendStatement(Asked *asked)
{
	const Libpq *pq = ForeignLibpq();
	ForeignConnection *connection = asked->connection;
	PGconn	   *conn = connection->conn;
	const char *value = asked->statement->parameter;

	asked->sent = true;
	if (!connection->begun)
	{
		if (!send_sql(conn, "START TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
			return false;
		asked->begins = connection->begun = true;
	}
	if (!pq->PQsendQueryParams(conn, asked->statement->sql, value ? 1 : 0, NULL, &value, NULL, NULL,
							   asked->reader.binary) ||
		!pq->PQpipelineSync(conn))
		return false;
	connection->syncs++;
	/* if it is the first in the pipeline; else it fails */
	(void) pq->PQsetSingleRowMode(conn);
	return true;
}
