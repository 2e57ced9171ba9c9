/*-------------------------------------------------------------------------
 *
 * foreign_connect.c
 *	  Connections of our own to servers of postgres_fdw.
 *
 * postgres_fdw waits for each server several times, one server after the
 * other.  So where nothing of its transaction can be seen, searches use
 * connections of their own, which send everything at once.  That is so if the
 * search stands in the top-level statement of a session, and that statement
 * is all of the transaction (ForeignChooseWay()).  Then no earlier statement
 * has changed anything on a server or seen a snapshot of it, and no other part
 * of the statement reads foreign tables.
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
 * Who may connect as whom is decided by the rules of postgres_fdw: options of
 * the server and of the user mapping, and a password for those who are not
 * superusers, unless password_required is off.  What is not known here, an
 * option of a later version, say, is left to postgres_fdw.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/xact.h"
#include "catalog/pg_foreign_server.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "core/clock.h"
#include "foreign/fdwapi.h"
#include "foreign/foreign.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "servers/foreign_connect.h"
#include "storage/fd.h"
#include "storage/lmgr.h"
#include "tcop/pquery.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

static HTAB *connections = NULL;

/* ---- which way ---- */

/* True if the statement of an executor names foreign tables */
static bool
reads_foreign_tables(const PlannedStmt *statement)
{
	ListCell   *cell;

	foreach(cell, statement->rtable)
	{
		const RangeTblEntry *entry = lfirst_node(RangeTblEntry, cell);

		if (entry->rtekind == RTE_RELATION && entry->relkind == RELKIND_FOREIGN_TABLE)
			return true;
	}
	return false;
}

/*
 * True if an executor runs the top-level statement of the session, and this
 * statement is the whole transaction.  Cursors, SQL's EXECUTE, and statements
 * of functions have portals with names, or executors that are not those of
 * the portal.  An earlier part of this statement that has changed anything
 * has used up a command.
 */
static bool
is_whole_transaction(const EState *estate)
{
	Portal		portal = ActivePortal;

	return portal != NULL && portal->name[0] == '\0' && list_length(portal->stmts) == 1 &&
		linitial_node(PlannedStmt, portal->stmts) == estate->es_plannedstmt &&
		!IsInTransactionBlock(true) && !IsInParallelMode() && !IsolationUsesXactSnapshot() &&
		GetCurrentCommandId(false) == FirstCommandId;
}

/*
 * The start of the last transaction in which a search has used a connection
 * of postgres_fdw: searches that follow shall see the same snapshot
 */
static TimestampTz others_used = 0;

void
ForeignNoteOthers(void)
{
	others_used = GetCurrentTransactionStartTimestamp();
}

static bool
others_were_used(void)
{
	return others_used == GetCurrentTransactionStartTimestamp();
}

/* Options of postgres_fdw that do not concern connections */
static const char *const other_options[] = {
	"use_remote_estimate", "fdw_startup_cost", "fdw_tuple_cost", "extensions", "updatable",
	"truncatable", "fetch_size", "batch_size", "async_capable", "parallel_commit",
	"parallel_abort", "keep_connections", "analyze_sampling", "password_required"
};

static bool
is_other_option(const char *name)
{
	for (int i = 0; i < lengthof(other_options); i++)
		if (strcmp(name, other_options[i]) == 0)
			return true;
	return false;
}

/* True for the options of libpq that postgres_fdw lets users set */
static bool
is_libpq_option(const LibpqOption *options, const char *name)
{
	if (strcmp(name, "fallback_application_name") == 0 || strcmp(name, "client_encoding") == 0)
		return false;
	for (; options->keyword; options++)
		if (strcmp(name, options->keyword) == 0)
			return strchr(options->dispchar, 'D') == NULL;
	return false;
}

/* True if all options are known */
static bool
are_known(const LibpqOption *known, List *options)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		const char *name = lfirst_node(DefElem, cell)->defname;

		if (!is_libpq_option(known, name) && !is_other_option(name))
			return false;
	}
	return true;
}

static bool
bool_option(List *options, const char *name, bool otherwise)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, name) == 0)
			return defGetBoolean(option);
	}
	return otherwise;
}

/* True if a user has to be asked for a password by the server */
static bool
needs_password(const UserMapping *mapping)
{
	return !superuser_arg(mapping->userid) && bool_option(mapping->options, "password_required", true);
}

/*
 * True if we can connect to the server of a table.  If a password is needed
 * and there is none, postgres_fdw says so, or knows another way.  Hosts that
 * are given up after a time are left to it as well, as libpq itself goes on
 * to the next one only in a function that waits.
 */
static bool
can_connect(const LibpqOption *known, const ForeignLeaf *leaf)
{
	const ForeignServer *server = GetForeignServer(leaf->server);
	const UserMapping *mapping = GetUserMapping(GetUserId(), leaf->server);
	const char *password = ForeignOption(mapping->options, "password");
	const char *host = ForeignOption(server->options, "host");
	const char *hostaddr = ForeignOption(server->options, "hostaddr");

	if (!are_known(known, server->options) || !are_known(known, mapping->options))
		return false;
	if (ForeignOption(server->options, "connect_timeout") != NULL &&
		((host && strchr(host, ',')) || (hostaddr && strchr(hostaddr, ','))))
		return false;
	return !needs_password(mapping) || (password != NULL && password[0] != '\0');
}

/* True if we can connect to the servers of all these tables */
static bool
can_connect_all(const LibpqOption *known, const ForeignLeaf *leaves, int nleaves)
{
	for (int i = 0; i < nleaves; i++)
	{
		(void) ForeignMapping(&leaves[i]);	/* an error names the server */
		if (!can_connect(known, &leaves[i]))
			return false;
	}
	return true;
}

static void end_statement(void *arg);

/* True if end_statement() will be called */
static bool watched = false;

/* See to it that what a statement has done over connections ends with it */
static void
watch_statement(EState *estate)
{
	MemoryContextCallback *end;

	if (watched)
		return;
	end = MemoryContextAllocZero(estate->es_query_cxt, sizeof(*end));
	end->func = end_statement;
	MemoryContextRegisterResetCallback(estate->es_query_cxt, end);
	watched = true;
}

/*
 * Decide whether these foreign tables are searched over connections of our
 * own, for an executor; estate is NULL if it is not known.
 */
void
ForeignChooseWay(ForeignLeaf *leaves, int nleaves, EState *estate)
{
	LibpqOption *known;
	volatile bool own = false;

	if (!gpuvec_own_connections || nleaves == 0 || estate == NULL || !is_whole_transaction(estate) ||
		reads_foreign_tables(estate->es_plannedstmt) || others_were_used())
		return;
	/* an earlier part of the statement may have locked a table over there */
	for (int i = 0; i < nleaves; i++)
		if (CheckRelationLockedByMe(leaves[i].rel, RowShareLock, true))
			return;
	/* loads the library of postgres_fdw, if it is not loaded yet */
	(void) GetFdwRoutineForRelation(leaves[0].rel, false);
	if (ForeignLibpq() == NULL || (known = ForeignLibpq()->PQconndefaults()) == NULL)
		return;
	PG_TRY();
	{
		own = can_connect_all(known, leaves, nleaves);
	}
	PG_FINALLY();
	{
		ForeignLibpq()->PQconninfoFree(known);
	}
	PG_END_TRY();
	for (int i = 0; i < nleaves; i++)
		leaves[i].own = own;
	if (own)
		watch_statement(estate);
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

/* Append what an escape in an application name stands for */
static void
append_escape(StringInfo name, char escape)
{
	switch (escape)
	{
		case 'a':
			appendStringInfoString(name, application_name ? application_name : "");
			break;
		case 'c':
			appendStringInfo(name, "%lx.%x", (long) MyStartTime, MyProcPid);
			break;
		case 'C':
			appendStringInfoString(name, cluster_name ? cluster_name : "");
			break;
		case 'd':
			appendStringInfoString(name, get_database_name(MyDatabaseId));
			break;
		case 'p':
			appendStringInfo(name, "%d", MyProcPid);
			break;
		case 'u':
			appendStringInfoString(name, GetUserNameFromId(GetSessionUserId(), false));
			break;
		case '%':
			appendStringInfoChar(name, '%');
			break;
	}
}

/* An application name without its escapes */
static char *
expand_name(const char *name)
{
	StringInfoData expanded;

	initStringInfo(&expanded);
	for (; *name != '\0'; name++)
	{
		if (*name != '%')
			appendStringInfoChar(&expanded, *name);
		else if (name[1] != '\0')
			append_escape(&expanded, *++name);
	}
	return expanded.data;
}

/* Keywords and values of a connection, as libpq takes them */
typedef struct ConnectOptions
{
	const char **keywords;
	const char **values;
	int			n;
} ConnectOptions;

static void
add_option(ConnectOptions *options, const char *keyword, const char *value)
{
	options->keywords[options->n] = keyword;
	options->values[options->n++] = value;
}

static void
add_options(ConnectOptions *to, const LibpqOption *known, List *from)
{
	ListCell   *cell;

	foreach(cell, from)
	{
		DefElem    *option = lfirst_node(DefElem, cell);

		if (is_libpq_option(known, option->defname))
			add_option(to, option->defname, defGetString(option));
	}
}

/*
 * The name that the server shows: that of the options, or better that of the
 * setting of postgres_fdw (PostgreSQL 15 and later), which may have escapes
 */
static void
add_name(ConnectOptions *options)
{
	const char *name = GetConfigOption("postgres_fdw.application_name", true, false);

	add_option(options, "fallback_application_name", "gpuvec");
	if (name != NULL && name[0] != '\0')
		add_option(options, "application_name", name);
	for (int i = options->n - 1; i >= 0 && GPUVEC_NAMES_HAVE_ESCAPES; i--)
	{
		if (strcmp(options->keywords[i], "application_name") != 0 || options->values[i][0] == '\0')
			continue;
		options->values[i] = expand_name(options->values[i]);
		if (options->values[i][0] != '\0')
			break;
	}
}

/* All options of a connection; they live in the current memory context */
static void
make_options(ConnectOptions *options, const ForeignServer *server, const UserMapping *mapping)
{
	int			n = list_length(server->options) + list_length(mapping->options) + 4;
	LibpqOption *known = ForeignLibpq()->PQconndefaults();

	if (known == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));
	options->keywords = palloc0_array(const char *, n);
	options->values = palloc0_array(const char *, n);
	options->n = 0;
	PG_TRY();
	{
		add_options(options, known, server->options);
		add_options(options, known, mapping->options);
	}
	PG_FINALLY();
	{
		ForeignLibpq()->PQconninfoFree(known);
	}
	PG_END_TRY();
	add_name(options);
	add_option(options, "client_encoding", GetDatabaseEncodingName());
}

/* When to give up connecting; libpq obeys connect_timeout only if it waits */
static int64
connect_deadline(const ConnectOptions *options)
{
	int			seconds = 0;

	for (int i = 0; i < options->n; i++)
		if (strcmp(options->keywords[i], "connect_timeout") == 0)
			seconds = atoi(options->values[i]);
	return seconds <= 0 ? 0 :
		gpuvec_clock_us() + Max(seconds, 2) * INT64CONST(1000000);
}

/* The value of an option, of which the last one counts; or NULL */
static const char **
find_option(const ConnectOptions *options, const char *keyword)
{
	for (int i = options->n - 1; i >= 0; i--)
		if (strcmp(options->keywords[i], keyword) == 0)
			return &options->values[i];
	return NULL;
}

/* Element i of a list with commas; palloc'd */
static char *
list_element(const char *list, int i)
{
	while (i-- > 0)
		list = strchr(list, ',') + 1;
	return pnstrdup(list, strcspn(list, ","));
}

static int
list_elements(const char *list)
{
	int			n = 1;

	for (; *list != '\0'; list++)
		n += *list == ',';
	return n;
}

/* A list without element i, and those before it at its end */
static char *
leave_out(const char *list, int i)
{
	StringInfoData rest;
	int			n = list_elements(list);

	initStringInfo(&rest);
	for (int j = 1; j < n; j++)
		appendStringInfo(&rest, "%s%s", j > 1 ? "," : "", list_element(list, (i + j) % n));
	return rest.data;
}

/* True if an element of the list is empty: it stands for libpq's default */
static bool
has_empty(const char *list)
{
	for (int i = list_elements(list) - 1; i >= 0; i--)
		if (list_element(list, i)[0] == '\0')
			return true;
	return false;
}

/*
 * The element of these lists to which a connection goes; -1: none, or it is
 * not certain which
 */
static int
find_host(const ForeignConnection *connection, const char *names, const char *ports)
{
	int			found = -1;

	for (int i = list_elements(names) - 1; i >= 0; i--)
	{
		if (strcmp(list_element(names, i), ForeignLibpq()->PQhost(connection->conn)) != 0 ||
			(ports && strcmp(list_element(ports, i), ForeignLibpq()->PQport(connection->conn)) != 0))
			continue;
		if (found >= 0)
			return -1;
		found = i;
	}
	return found;
}

/*
 * Leave out the host to which another connection goes.  False: there is no
 * other one, or it is not certain which one that is.
 */
static bool
leave_out_host(ConnectOptions *options, const ForeignConnection *other)
{
	const char **lists[] = {
		find_option(options, "host"), find_option(options, "hostaddr"), find_option(options, "port")
	};
	const char **names = lists[0] ? lists[0] : lists[1];
	int			n = names ? list_elements(*names) : 1;
	int			host;

	if (n == 1)
		return false;
	for (int i = 0; i < lengthof(lists); i++)
	{
		if (lists[i] && has_empty(*lists[i]))
			return false;
		if (lists[i] && list_elements(*lists[i]) != n)
			lists[i] = NULL;
	}
	host = find_host(other, *names, lists[2] ? *lists[2] : NULL);
	for (int i = 0; i < lengthof(lists) && host >= 0; i++)
		if (lists[i])
			*lists[i] = leave_out(*lists[i], host);
	return host >= 0;
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
	ConnectOptions options;

	ForeignDisconnect(connection);
	/* before the options are read: a change meanwhile makes them stale */
	connection->server_hash = GetSysCacheHashValue1(FOREIGNSERVEROID, ObjectIdGetDatum(leaf->server));
	connection->mapping_hash = GetSysCacheHashValue1(USERMAPPINGOID, ObjectIdGetDatum(connection->key.mapping));
	server = GetForeignServer(leaf->server);
	mapping = GetUserMapping(GetUserId(), leaf->server);
	connection->keep = bool_option(server->options, "keep_connections", true);
	connection->need_password = needs_password(mapping);
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
	make_options(&options, server, mapping);
	if (other && !leave_out_host(&options, other))
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
	connection->deadline = connect_deadline(&options);
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
