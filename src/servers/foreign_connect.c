/*-------------------------------------------------------------------------
 *
 * foreign_connect.c
 *	  Connections of our own to servers of postgres_fdw.
 *
 * foreign_way.c says when they are used, and foreign_params.c with what to
 * connect.
 *
 * Each connection has one transaction there, of level repeatable read, from
 * the first search of the statement to its end.  So all searches of a
 * statement see one snapshot of each server, as with postgres_fdw.  It does
 * not wait for the end of our transaction: a client that sends statements
 * one behind the other, without a Sync, may have a TRUNCATE of the foreign
 * table next, by postgres_fdw, which would wait for this transaction's lock
 * for ever.  The transaction only reads, so nobody waits for its COMMIT: what
 * the server says of it is read by the next search.  If our transaction
 * fails, the statements that are under way are canceled, and the connections
 * closed.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/xact.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "servers/foreign_connect.h"
#include "servers/foreign_params.h"
#include "storage/fd.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/syscache.h"

static HTAB *connections = NULL;

static void end_statement(void *arg);

/* True if end_statement() will be called */
static bool watched = false;

/* See to it that what a statement has done over connections ends with it */
void
ForeignWatchStatement(EState *estate)
{
	MemoryContextCallback *end;

	if (watched)
		return;
	end = MemoryContextAllocZero(estate->es_query_cxt, sizeof(*end));
	end->func = end_statement;
	MemoryContextRegisterResetCallback(estate->es_query_cxt, end);
	watched = true;
}

/* ---- closing ---- */

/* Close a connection, if there is one */
void
ForeignDisconnect(ForeignConnection *connection)
{
	const Libpq *pq = ForeignLibpq();

	if (connection->result)
		pq->PQclear(connection->result);
	if (connection->conn)
	{
		pq->PQfinish(connection->conn);
		ReleaseExternalFD();
	}
	connection->result = NULL;
	connection->conn = NULL;
	connection->connecting = connection->begun = connection->reused = connection->stale = false;
	connection->syncs = 0;
	connection->deadline = 0;
}

/* Send COMMIT, and do not wait for it */
static void
send_commit(ForeignConnection *connection)
{
	const Libpq *pq = ForeignLibpq();
	PGconn	   *conn = connection->conn;

	connection->begun = false;
	if (pq->PQsendQueryParams(conn, "COMMIT TRANSACTION", 0, NULL, NULL, NULL, NULL, 0) &&
		pq->PQpipelineSync(conn) && pq->PQflush(conn) == 0)
		connection->syncs++;
	else
		ForeignDisconnect(connection);
}

/* End what a statement has done over a connection */
static void
end_use(ForeignConnection *connection, bool commit)
{
	if (!connection->used)
		return;
	connection->used = false;
	ForeignCancelEnd(connection);
	if (!commit || !connection->keep || connection->stale)
		ForeignDisconnect(connection);
	else if (connection->begun)
		send_commit(connection);
}

/* Close a connection that is not in use; false: there is none */
static bool
close_idle(void)
{
	HASH_SEQ_STATUS status;
	ForeignConnection *connection;

	hash_seq_init(&status, connections);
	while ((connection = hash_seq_search(&status)) != NULL)
	{
		if (connection->conn == NULL || connection->used)
			continue;
		ForeignDisconnect(connection);
		hash_seq_term(&status);
		return true;
	}
	return false;
}

/*
 * Make sure that one more file can be open.  Connections that wait for a next
 * search make room.
 */
bool
ForeignMakeRoom(void)
{
	while (!AcquireExternalFD())
		if (!close_idle())
			return false;
	ReleaseExternalFD();
	return true;
}

/* Begin to cancel what servers do for this transaction */
static void
cancel_all(void)
{
	HASH_SEQ_STATUS status;
	ForeignConnection *connection;

	hash_seq_init(&status, connections);
	while ((connection = hash_seq_search(&status)) != NULL)
		if (connection->used)
			ForeignCancelBegin(connection);
}

/*
 * Callback of an executor's memory: the statement has ended.  If it failed,
 * end_transaction() will see to it.
 */
static void
end_statement(void *arg)
{
	HASH_SEQ_STATUS status;
	ForeignConnection *connection;

	watched = false;
	if (connections == NULL || !IsTransactionState())
		return;
	hash_seq_init(&status, connections);
	while ((connection = hash_seq_search(&status)) != NULL)
		end_use(connection, true);
}

/* Transaction callback: what is left of a statement that has not ended */
static void
end_transaction(XactEvent event, void *arg)
{
	HASH_SEQ_STATUS status;
	ForeignConnection *connection;
	bool		commit = event == XACT_EVENT_PRE_COMMIT || event == XACT_EVENT_PRE_PREPARE;

	if (!commit && event != XACT_EVENT_ABORT)
		return;
	if (!commit)
		cancel_all();
	hash_seq_init(&status, connections);
	while ((connection = hash_seq_search(&status)) != NULL)
		end_use(connection, commit);
}

/*
 * syscache callback: a server or a user mapping has changed, or is gone.
 * Connections that a statement uses stay until it ends; others are
 * closed.
 */
static void
forget_options(Datum arg, int cache, uint32 hash)
{
	HASH_SEQ_STATUS status;
	ForeignConnection *connection;

	hash_seq_init(&status, connections);
	while ((connection = hash_seq_search(&status)) != NULL)
		if (hash == 0 || hash == (cache == FOREIGNSERVEROID ? connection->server_hash : connection->mapping_hash))
		{
			if (connection->used)
				connection->stale = true;
			else
				ForeignDisconnect(connection);
		}
}

/* ---- connecting ---- */

/* Fail: there is no connection to the server */
void
ForeignConnectFailed(const ForeignConnection *connection, const ForeignLeaf *leaf, const char *detail)
{
	char	   *message = detail ? pstrdup(detail) :
		pchomp(ForeignLibpq()->PQerrorMessage(connection->conn));

	ereport(ERROR,
			(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
			 errmsg("could not connect to server \"%s\"", leaf->server_name),
			 errdetail_internal("%s", message)));
}

/* A connection is made: fail if its user should have needed a password */
void
ForeignConnectCheck(const ForeignConnection *connection, const ForeignLeaf *leaf)
{
	if (connection->need_password && !ForeignLibpq()->PQconnectionUsedPassword(connection->conn))
		ereport(ERROR,
				(errcode(ERRCODE_S_R_E_PROHIBITED_SQL_STATEMENT_ATTEMPTED),
				 errmsg("password is required"),
				 errdetail("Non-superuser cannot connect if the server does not request a password."),
				 errhint("Target server's authentication method must be changed or password_required=false set in the user mapping attributes.")));
}

/*
 * True if a second connection leaves room for the set of events, which is a
 * file as well
 */
static bool
has_room_for_second(void)
{
	bool		one = AcquireExternalFD();
	bool		two = one && AcquireExternalFD();

	if (one)
		ReleaseExternalFD();
	if (two)
		ReleaseExternalFD();
	return two;
}

/*
 * Begin to connect to the server of a leaf, to another host than `other`,
 * unless NULL.  Returns NULL, or why that fails.
 */
static const char *
begin_connecting(ForeignConnection *connection, const ForeignLeaf *leaf, const ForeignConnection *other)
{
	const ForeignServer *server;
	const UserMapping *mapping;
	const char *password;
	ForeignParams options;

	ForeignDisconnect(connection);
	/* before the options are read: a change meanwhile makes them stale */
	connection->server_hash = GetSysCacheHashValue1(FOREIGNSERVEROID, ObjectIdGetDatum(leaf->server));
	connection->mapping_hash = GetSysCacheHashValue1(USERMAPPINGOID, ObjectIdGetDatum(connection->key.mapping));
	server = GetForeignServer(leaf->server);
	mapping = GetUserMapping(GetUserId(), leaf->server);
	connection->keep = ForeignBoolOption(server->options, "keep_connections", true);
	connection->need_password = ForeignNeedsPassword(mapping);
	/* the mapping may have changed since can_connect() */
	password = ForeignOption(mapping->options, "password");
	if (connection->need_password && (password == NULL || password[0] == '\0'))
	{
		if (other)
			return "A password is required.";
		ereport(ERROR,
				(errcode(ERRCODE_S_R_E_PROHIBITED_SQL_STATEMENT_ATTEMPTED),
				 errmsg("password is required"),
				 errdetail("Non-superusers must provide a password in the user mapping.")));
	}
	ForeignParamsMake(&options, server, mapping);
	if (other && !ForeignParamsLeaveOut(&options, other))
		return "There is no other host.";
	if (!(other ? has_room_for_second() : ForeignMakeRoom()) || !AcquireExternalFD())
		return "There are too many open files on the local server.";
	connection->conn = ForeignLibpq()->PQconnectStartParams(options.keywords, options.values, false);
	if (connection->conn == NULL)
	{
		ReleaseExternalFD();
		return "out of memory";
	}
	connection->connecting = true;
	connection->deadline = ForeignParamsDeadline(&options);
	return ForeignLibpq()->PQstatus(connection->conn) == LIBPQ_CONNECTION_BAD ?
		pchomp(ForeignLibpq()->PQerrorMessage(connection->conn)) : NULL;
}

/* Begin to connect to the server of a leaf */
void
ForeignConnectStart(ForeignConnection *connection, const ForeignLeaf *leaf)
{
	const char *detail = begin_connecting(connection, leaf, NULL);

	if (detail)
		ForeignConnectFailed(connection, leaf, detail);
}

/* The table of connections */
static void
make_connections(void)
{
	HASHCTL		control = {.keysize = sizeof(ForeignConnectionKey), .entrysize = sizeof(ForeignConnection)};

	HTAB	   *made = hash_create("gpuvec connections", 16, &control, HASH_ELEM | HASH_BLOBS);

	RegisterXactCallback(end_transaction, NULL);
	connections = made;
	CacheRegisterSyscacheCallback(FOREIGNSERVEROID, forget_options, (Datum) 0);
	CacheRegisterSyscacheCallback(USERMAPPINGOID, forget_options, (Datum) 0);
}

/* The entry of a connection, which may be new */
static ForeignConnection *
enter_connection(const ForeignConnectionKey *key)
{
	ForeignConnection *connection;
	bool		found;

	if (connections == NULL)
		make_connections();
	connection = hash_search(connections, key, HASH_ENTER, &found);
	if (!found)
		memset((char *) connection + sizeof(*key), 0, sizeof(*connection) - sizeof(*key));
	return connection;
}

/* The current user's connection to the server of a leaf, which may be new */
ForeignConnection *
ForeignConnect(const ForeignLeaf *leaf)
{
	ForeignConnectionKey key = {ForeignMapping(leaf), GetUserId(), 0};
	ForeignConnection *connection = enter_connection(&key);

	if (connection->used)
		return connection;
	connection->used = true;
	if (connection->conn && !connection->stale)
		connection->reused = true;
	else
		ForeignConnectStart(connection, leaf);
	return connection;
}

/*
 * A connection to another host of a server than that of the first one; NULL:
 * there is none, or this statement has had one
 */
ForeignConnection *
ForeignConnectSecond(const ForeignConnection *first, const ForeignLeaf *leaf)
{
	ForeignConnectionKey key = {first->key.mapping, first->key.user, 1};
	ForeignConnection *connection = enter_connection(&key);

	/* options that have changed, or are gone, are no error here */
	AcceptInvalidationMessages();
	if (connection->used || first->stale)
		return NULL;
	connection->used = true;
	if (begin_connecting(connection, leaf, first) == NULL)
		return connection;
	ForeignDisconnect(connection);
	return NULL;
}

/* The second connection becomes the first one, and the first the second */
void
ForeignConnectSwap(ForeignConnection *first, ForeignConnection *second)
{
	ForeignConnection other = *first;

	*first = *second;
	*second = other;
	second->key = first->key;
	first->key = other.key;
}
