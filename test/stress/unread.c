/*
 * unread.c
 *	  Clients that do not read what the server sends, and sessions that stand
 *	  still.
 *
 * A role that may only read asks for all messages there are, for a value that
 * fills its socket, or nearly so, and then for a search that loads a table,
 * perhaps by parallel workers, or for a cursor's rows.  For a while it reads
 * nothing; or its process is stopped.  That lasts longer, sometimes, than the
 * five seconds after which a session that holds a mirror's lock is overtaken.
 * Meanwhile the table is searched by another session, as by all others, and
 * results are compared.  In the end the client reads on, is cancelled or
 * terminated, or goes.
 *
 * Who waits for its client must have no lock of a mirror: nobody may wait for
 * that client.  It has a lock of the table, though, as any statement has.  Who
 * wants to alter the table waits for it, and searches wait for that.  So the
 * session that searches meanwhile does not wait for locks for long: otherwise
 * the client would never read on.
 */
#include "stress.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * What a socket takes that nobody reads, about: the server's messages go into
 * the sender's buffer (net.core.wmem_default)
 */
#define CAPACITY			200000

/* Longest that one is stopped or does not read, in ms */
#define LONG_STALL		12000

/* What makes a session send many messages, or few */
static const char *const messages[] = {
	"SET client_min_messages = debug1", "SET client_min_messages = debug1", "SET client_min_messages = debug2",
	"SET client_min_messages = debug5", "SET client_min_messages = log", "SET client_min_messages = notice",
};

static const char *const workers_settings[] = {
	"SET max_parallel_workers_per_gather = 0",
	"SET max_parallel_workers_per_gather = 3; SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0",
};

/* A statement that searches the table, without parameters */
static const char *
any_search(struct worker *w, const struct table *t)
{
	struct question q;

	do
	{
		w->parameter = NULL;
		if (strcmp(t->name, "stress.vectors") == 0)
			q = vectors_question(w);
		else
			q = strcmp(t->type, "idset") == 0 && chance(w, 50) ? function_question(w, t, "s") : table_question(w, t);
	} while (w->parameter);
	return q.answer;
}

/* Statements whose results, and messages, are more than the socket takes */
static const char *
any_statements(struct worker *w, const struct table *t)
{
	const char *search = any_search(w, t);
	int			fill = chance(w, 60) ? between(w, CAPACITY - 30000, CAPACITY + 30000) : between(w, 0, 2 * CAPACITY);
	const char *filler = say(w, "SELECT repeat('x', %d)", fill);

	if (chance(w, 25))
		return say(w, "BEGIN; DECLARE c CURSOR FOR %s; FETCH 3 FROM c; %s; FETCH ALL FROM c; COMMIT", search, filler);
	if (chance(w, 15))
		return say(w, "%s; SELECT x.*, repeat('y', 3000) FROM (%s) x", filler, search);
	return say(w, "%s; %s; %s", filler, search, chance(w, 30) ? search : "SELECT 1");
}

/* Other sessions' searches need what the table's next search loads */
static void
make_it_load(struct worker *w, const struct table *t)
{
	if (chance(w, 60))
	{
		/* what this exists for is the engine */
		w->tolerated = "53000 53200 58000";
		run(w, "SELECT gpuvec_evict('%s')", t->name);
		w->tolerated = NULL;
	}
	else if (chance(w, 50) && w->role == PRIMARY)
		run(w, "UPDATE %s SET n = n WHERE %s %% 5 = %d", t->name, strcmp(t->name, "stress.vectors") == 0 ? "key" : "id", between(w, 0, 4));
}

/* Does a session that waits for its client have a lock of a mirror? */
static bool
has_lock(struct worker *w, int pid)
{
	const char *n = value_of(w, "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'userlock' AND l.granted "
							 "AND (a.pid = %d OR a.leader_pid = %d) AND EXISTS (SELECT FROM pg_stat_activity c WHERE c.pid = %d AND c.wait_event = 'ClientWrite')",
							 pid, pid, pid);

	return n && *n != '0';
}

/* One that is being ended has it for a moment */
static void
must_have_no_lock(struct worker *w, int pid, const char *sql)
{
	for (int i = 0; i < 50; i++)
	{
		if (w->conn == NULL || !has_lock(w, pid))
			return;
		usleep(100000);
	}
	fail(w, "process %d waits for its client and has the lock of a mirror: %s", pid, sql);
}

/* The table is searched meanwhile; who waits must not wait for this client */
static void
search_meanwhile(struct worker *w, const struct table *t, int ms)
{
	double		until = now() + ms / 1000.0;

	do
	{
		struct question q = strcmp(t->name, "stress.vectors") == 0 ? vectors_question(w) : table_question(w, t);

		if (w->conn == NULL)
			break;
		ask(w, &q);
		abandon(w);
		w->parameter = NULL;
		nap(w, 20, 200);
	} while (!stopping && now() < until);
	nap(w, 0, until > now() ? (int) ((until - now()) * 1000) : 0);
}

/* How the client's statements end */
static void
end_stall(struct worker *w, struct worker *client, const char *sql)
{
	switch (between(w, 0, 4))
	{
		case 0:
			run(w, "SELECT pg_terminate_backend(%d)", client->pid);
			break;
		case 1:
			run(w, "SELECT pg_cancel_backend(%d)", client->pid);
			break;
		case 2:
			session_close(client);
			return;
		default:
			break;
	}
	read_on(client, sql);
	abandon(client);
}

static int
stall_length(struct worker *w)
{
	return chance(w, 70) ? between(w, 100, 2500) : between(w, 4000, LONG_STALL);
}

/* The client reads nothing for a while, or its process stands still */
static void
stall(struct worker *w, struct worker *client, const struct table *t)
{
	const char *sql = any_statements(w, t);
	bool		stop = chance(w, 30);
	bool		stopped = false;

	make_it_load(w, t);
	if (w->conn == NULL || client->conn == NULL || !send_query(client, sql))
		return;
	PQflush(client->conn);
	if (stop)
	{
		usleep(between(w, 0, 30000));
		stopped = !in_outage(client->node) && kill(client->pid, SIGSTOP) == 0;
	}
	search_meanwhile(w, t, stall_length(w));
	if (stopped)
		kill(client->pid, SIGCONT);
	else
		must_have_no_lock(w, client->pid, sql);
	count(stopped ? STANDSTILLS : STALLS);
	end_stall(w, client, sql);
}

/* Some table, or that of the embeddings */
static struct table
any_relation(struct worker *w)
{
	static const struct table vectors = {.name = "stress.vectors"};

	return chance(w, 20) ? vectors : *any_table(w);
}

/* Sessions of both on the same server; false: the run is over */
static bool
open_both(struct worker *w, struct worker *client)
{
	if (chance(w, 10))
	{
		w->role = options.standby && chance(w, 30) ? STANDBY : PRIMARY;
		client->role = w->role;
	}
	while (!stopping)
	{
		if ((w->conn == NULL || w->node != node_of(w->role)) && !session_open(w))
			return false;
		if ((client->conn == NULL || client->node != node_of(client->role)) && !session_open(client))
			return false;
		if (w->conn && client->conn && w->node == client->node)
			return true;
	}
	return false;
}

void
stall_all_the_time(struct worker *w)
{
	struct worker *client = w + 1;	/* see new_crowd() */

	while (!stopping && open_both(w, client))
	{
		struct table t = any_relation(w);

		if (run(client, "%s; %s", any_of(w, messages), any_of(w, workers_settings)) &&
			run(w, "SET lock_timeout = '3s'"))
			stall(w, client, &t);
		w->parameter = NULL;
		forget(client);
		forget(w);
		nap(w, 0, 300);
	}
	session_close(client);
}
