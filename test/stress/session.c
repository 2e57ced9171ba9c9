/*
 * session.c
 *	  Sessions, and which of their errors are no failures.
 *
 * Whatever the chaos may cause is named here: cancellation, termination,
 * conflicts of transactions and of recovery, connections that end while a
 * server is down.  Everything else fails the run, so also a search that fails
 * for want of an engine.
 */
#include "stress.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Query canceled (by us, by a timeout, by recovery), terminated, a conflict
 * with others, and what follows in the same transaction
 */
static const char *const always_tolerated = "57014 57P01 40001 40P01 55P03 25P02";

/* What a search says that finds no engine, no room, or no place in it */
static const char *const want_of_engine = "08006 08P01 53000 53200 53300 54000 55000 55006";

/* Settings that sessions choose among */
static const char *const any_settings[] = {
	"SET gpuvec.method = bitset",
	"SET gpuvec.method = inverted",
	"SET gpuvec.verify = on",
	"SET plan_cache_mode = force_generic_plan",
	"SET enable_bitmapscan = off",
	"SET enable_indexscan = off",
	"SET enable_nestloop = off",
	"SET enable_hashjoin = off; SET enable_mergejoin = off",
	"SET work_mem = '64kB'",
	"SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET min_parallel_index_scan_size = 0",
	"SET synchronous_commit = off",
	"SET statement_timeout = '300ms'",
	"SET lock_timeout = '200ms'",
};

/* The session's statement, for the watch; NULL: it has ended */
static void
show_statement(struct worker *w, const char *sql)
{
	pthread_mutex_lock(&w->lock);
	w->since = sql ? now() : 0;
	w->late = false;
	snprintf(w->statement, sizeof(w->statement), "%s", sql ? sql : "");
	pthread_mutex_unlock(&w->lock);
}

/* Has there been an outage of the node since the session was opened? */
static bool
outage_excuses(struct worker *w)
{
	return in_outage(w->node) || atomic_load(&w->node->outages) != w->outage;
}

static bool
contains(const char *list, const char *sqlstate)
{
	return list && *sqlstate && strstr(list, sqlstate);
}

/*
 * Did the server end the session on purpose?  Its log says so; its message
 * may be lost with the connection.
 */
static bool
was_terminated(struct worker *w)
{
	FILE	   *log = fopen(say(w, "%s/server_%d.log", options.work, w->node->number), "r");
	const char *pid = say(w, "[%d] ", w->pid);
	char		line[1000];
	bool		found = false;

	while (log && !found && fgets(line, sizeof(line), log))
		found = strstr(line, pid) && strstr(line, "FATAL:  terminating connection");
	if (log)
		fclose(log);
	return found;
}

/*
 * On a standby the server's own planner may find an index that is gone when
 * it opens it: locks of a table there do not hold up what the primary has
 * dropped concurrently.
 */
static bool
met_dropped_index(struct worker *w, const char *message)
{
	return w->node->streaming && strstr(message, "could not open relation with OID") != NULL;
}

/*
 * ON CONFLICT found a partition without the key's index in the table's tree:
 * it was detached concurrently behind the planner.  This is the server's own.
 */
static bool
met_detached_partition(const char *message)
{
	return strstr(message, "invalid arbiter index list") != NULL;
}

/* A materialized view has no data, and somebody knows that it may be so */
static bool
met_unpopulated(struct worker *w, const char *message)
{
	return w->unpopulated && strcmp(w->sqlstate, "55000") == 0 && strstr(message, "has not been populated") != NULL;
}

/*
 * What was to be read from WAL only is more than servers keep (wal_keep_size
 * in servers.c)
 */
static bool
met_old_wal(const char *message)
{
	const char *range = strstr(message, "could not read the WAL between ");
	unsigned	from[2],
				to[2];

	return range &&
		sscanf(range, "could not read the WAL between %X/%X and %X/%X", &from[0], &from[1], &to[0], &to[1]) == 4 &&
		(((uint64_t) to[0] << 32) + to[1]) - (((uint64_t) from[0] << 32) + from[1]) >= WAL_KEPT;
}

/* Look at an error: count it, or fail the run */
static void
judge(struct worker *w, const char *sql, const PGresult *result)
{
	const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	char	   *message = say(w, "%s", PQerrorMessage(w->conn));

	snprintf(w->sqlstate, sizeof(w->sqlstate), "%s", sqlstate ? sqlstate : "");
	/* libpq may fail to write before it knows the connection as lost */
	if (PQstatus(w->conn) == CONNECTION_BAD || sqlstate == NULL)
	{
		if (outage_excuses(w) || was_terminated(w))
			count(LOST_CONNECTIONS);
		else
			fail(w, "the connection was lost\n%s\n%s", sql, message);
	}
	else if (contains(always_tolerated, w->sqlstate) || contains(w->tolerated, w->sqlstate) ||
			 outage_excuses(w) || met_dropped_index(w, message) || met_detached_partition(message) ||
			 met_unpopulated(w, message) || met_old_wal(message))
		count(INTERRUPTED);
	else if (options.lenient && contains(want_of_engine, w->sqlstate))
		count(SEARCH_ERRORS);
	else
		fail(w, "an error that must not happen: %s%s%s%s%s\n%s", sql,
			 w->parameter ? "\n$1: " : "", w->parameter ? w->parameter : "",
			 "\nSQLSTATE ", w->sqlstate, message);
}

/* Run a statement; NULL if it failed, which has been judged then */
PGresult *
query(struct worker *w, const char *sql)
{
	bool		with = w->parameter && strstr(sql, "$1");
	PGresult   *result;
	ExecStatusType status;

	if (w->conn == NULL)
		return NULL;
	show_statement(w, sql);
	count(STATEMENTS);
	if (with)
		result = PQexecParams(w->conn, sql, 1, NULL, &w->parameter, NULL, NULL, 0);
	else
		result = PQexec(w->conn, sql);
	show_statement(w, NULL);
	status = PQresultStatus(result);
	if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK || status == PGRES_COPY_IN)
		return result;
	judge(w, sql, result);
	PQclear(result);
	if (PQstatus(w->conn) == CONNECTION_BAD)
		session_close(w);
	return NULL;
}

/* Run a command; false if it failed */
bool
run(struct worker *w, const char *format,...)
{
	va_list		args;
	char	   *sql;
	PGresult   *result;

	va_start(args, format);
	if (vasprintf(&sql, format, args) < 0)
		sql = NULL;
	va_end(args);
	result = query(w, keep(w, sql));
	PQclear(result);
	return result != NULL;
}

/* The first value of a query's result; NULL if there is none, or an error */
const char *
value_of(struct worker *w, const char *format,...)
{
	va_list		args;
	char	   *sql;
	char	   *value = NULL;
	PGresult   *result;

	va_start(args, format);
	if (vasprintf(&sql, format, args) < 0)
		sql = NULL;
	va_end(args);
	result = query(w, keep(w, sql));
	if (result && PQntuples(result) > 0 && !PQgetisnull(result, 0, 0))
		value = say(w, "%s", PQgetvalue(result, 0, 0));
	PQclear(result);
	return value;
}

/* COPY lines into a table; data ends with a newline */
bool
copy_in(struct worker *w, const char *into, const char *data)
{
	char	   *sql = say(w, "COPY %s FROM STDIN", into);
	PGresult   *result = query(w, sql);
	bool		done;

	if (result == NULL)
		return false;
	PQclear(result);
	show_statement(w, sql);
	PQputCopyData(w->conn, data, strlen(data));
	PQputCopyEnd(w->conn, NULL);
	result = PQgetResult(w->conn);
	done = PQresultStatus(result) == PGRES_COMMAND_OK;
	if (!done)
		judge(w, sql, result);
	while (result)
	{
		PQclear(result);
		result = PQgetResult(w->conn);
	}
	show_statement(w, NULL);
	if (PQstatus(w->conn) == CONNECTION_BAD)
		session_close(w);
	return done;
}

/* Begin statements whose results are not read yet */
bool
send_query(struct worker *w, const char *sql)
{
	count(STATEMENTS);
	return PQsendQuery(w->conn, sql) == 1;
}

/* Read all that statements of send_query() have sent */
void
read_on(struct worker *w, const char *sql)
{
	PGresult   *result;

	show_statement(w, sql);
	while ((result = PQgetResult(w->conn)) != NULL)
	{
		ExecStatusType status = PQresultStatus(result);

		if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
			judge(w, sql, result);
		PQclear(result);
	}
	show_statement(w, NULL);
	if (PQstatus(w->conn) == CONNECTION_BAD)
		session_close(w);
}

bool
begin(struct worker *w, const char *isolation)
{
	return run(w, "BEGIN ISOLATION LEVEL %s", isolation);
}

/* End a transaction; true if it was committed */
bool
end(struct worker *w, bool commit)
{
	PGresult   *result = query(w, commit ? "COMMIT" : "ROLLBACK");
	bool		committed = result && strcmp(PQcmdStatus(result), "COMMIT") == 0;

	PQclear(result);
	count(committed ? COMMITS : ROLLBACKS);
	return committed;
}

/* Leave whatever transaction there is */
void
abandon(struct worker *w)
{
	if (w->conn && PQtransactionStatus(w->conn) != PQTRANS_IDLE)
		end(w, false);
}

void
session_close(struct worker *w)
{
	if (w->conn)
		PQfinish(w->conn);
	w->conn = NULL;
}

/*
 * Settings of a new session: an index is used where one can be, the rest is
 * chance
 */
static void
choose_settings(struct worker *w)
{
	run(w, "SET enable_seqscan = off; SET enable_sort = off");
	if (w->user == NULL)
		run(w, "SET deadlock_timeout = '300ms'");
	/* some are not for everybody */
	w->tolerated = w->user ? "42501" : NULL;
	for (int i = between(w, 0, 3); i > 0; i--)
		run(w, "%s", any_of(w, any_settings));
	w->tolerated = NULL;
}

/*
 * Notices say that an engine is missing, that a table was truncated, and so
 * on
 */
static void
ignore_notice(void *arg, const PGresult *result)
{
	(void) arg;
	(void) result;
}

/*
 * Connect to the server of the session's role; false if the run is over
 * meanwhile
 */
bool
session_open(struct worker *w)
{
	double		begun = now();
	bool		told = false;

	session_close(w);
	do
	{
		struct node *node = node_of(w->role);

		if (node == NULL || in_outage(node))
			begun = now();
		else
		{
			w->node = node;
			w->outage = atomic_load(&node->outages);
			w->conn = PQconnectdb(say(w, "host='%s' port=%d dbname=stress user=%s application_name=%s connect_timeout=20",
									  options.sockets, 5432 + node->number, w->user ? w->user : "postgres", w->name));
			PQsetNoticeReceiver(w->conn, ignore_notice, NULL);
			if (PQstatus(w->conn) == CONNECTION_OK)
			{
				w->pid = PQbackendPID(w->conn);
				choose_settings(w);
				if (w->conn)
					return true;
			}
			else if (now() - begun > options.patience && !told && !outage_excuses(w))
			{
				fail(w, "cannot connect: %s", PQerrorMessage(w->conn));
				told = true;
			}
			session_close(w);
		}
		nap(w, 20, 100);
	} while (!stopping);
	return false;
}
