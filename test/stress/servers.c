/*
 * servers.c
 *	  The primary and its standby: how they are made, crash, and change roles.
 *
 * Each node has a number, its folder and its port come from it.  When the
 * standby is promoted, it becomes the primary, the old primary is thrown
 * away, and a new standby is made.  Only the main thread and that of the
 * chaos call what changes nodes.
 */
#include "stress.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct node nodes[MAX_NODES];
static int	n_nodes;
static struct node *_Atomic role_nodes[2];

/* What servers of this kind need beside the settings in options.settings */
static const char *const base_settings =
	"listen_addresses = ''\n"
	"fsync = off\n"
	"max_connections = 60\n"
	"max_prepared_transactions = 20\n"
	"max_worker_processes = 24\n"
	"max_parallel_workers = 8\n"
	"max_wal_senders = 8\n"
	"shared_buffers = 32MB\n"
	"hot_standby_feedback = off\n"
	"wal_keep_size = 0\n"
	"min_wal_size = 2MB\n"
	"max_wal_size = 4MB\n"
	"checkpoint_timeout = 30s\n"
	"checkpoint_completion_target = 0.1\n"
	"log_checkpoints = off\n"
	"log_line_prefix = '%m [%p] %a '\n"
	"restart_after_crash = on\n"
	"jit = off\n"
	"include = 'stress.conf'\n";

/* The server of a role, or NULL */
struct node *
node_of(enum role role)
{
	return atomic_load(&role_nodes[role]);
}

bool
in_outage(struct node *node)
{
	return (atomic_load(&node->outages) & 1) != 0;
}

/*
 * Run a program to its end; true if it succeeded.  Its output goes to a log.
 */
static bool
program(struct worker *w, const char *format,...)
{
	va_list		args;
	char	   *command;
	int			status;

	va_start(args, format);
	if (vasprintf(&command, format, args) < 0)
		command = NULL;
	va_end(args);
	keep(w, command);
	status = system(say(w, "%s >>'%s/programs.log' 2>&1", command, options.work));
	if (status != 0)
		note("%s failed, see %s/programs.log", command, options.work);
	return status == 0;
}

static const char *
log_of(struct worker *w, const struct node *node)
{
	return say(w, "%s/server_%d.log", options.work, node->number);
}

/* Write settings that are chosen anew, by chance, at each start and reload */
void
write_settings(struct worker *w, struct node *node, bool reload)
{
	FILE	   *file = fopen(say(w, "%s/stress.conf", node->data), "w");

	if (file == NULL)
	{
		fail(w, "cannot write the settings of node %d", node->number);
		return;
	}
	fprintf(file, "include '%s'\n", options.settings);
	fprintf(file, "port = %d\nunix_socket_directories = '%s'\n", 5432 + node->number, options.sockets);
	fprintf(file, "wal_level = %s\n", options.standby ? "replica" : "minimal");
	if (!options.standby)
		fprintf(file, "max_wal_senders = 0\n");
	fprintf(file, "shared_preload_libraries = '%s'\n", chance(w, 50) ? "gpuvec" : "");
	fprintf(file, "gpuvec.engine = '%s'\n", options.engine);
	fprintf(file, "gpuvec.device_memory = %s\n", one_of(w, (const char *[]) {"0", "0", "0", "1MB", "3MB", "64MB"}, 6));
	fprintf(file, "gpuvec.max_sessions = %s\n", chance(w, 70) ? "1000" : "2");
	fprintf(file, "gpuvec.cpu_threads = %d\n", between(w, 1, 2));
	/* freshness that comes from the WAL only must find it */
	if (options.forms)
		fprintf(file, "wal_keep_size = %dMB\ngpuvec.feeder = %s\n", WAL_KEPT >> 20, chance(w, 50) ? "on" : "off");
	/*
	 * not -1: replay that waits for a snapshot, and who waits for a lock of
	 * replay, would wait for ever
	 */
	fprintf(file, "max_standby_streaming_delay = %s\n", one_of(w, (const char *[]) {"20s", "20s", "0", "2s"}, 4));
	fprintf(file, "autovacuum = %s\nautovacuum_naptime = 1s\n", chance(w, 50) ? "on" : "off");
	fprintf(file, "synchronous_commit = %s\n", chance(w, 50) ? "on" : "off");
	fprintf(file, "wal_compression = %s\n", chance(w, 50) ? "on" : "off");
	fprintf(file, "max_parallel_workers_per_gather = %d\n", chance(w, 50) ? 2 : 0);
	fclose(file);
	if (reload)
		program(w, "'%s/pg_ctl' -D '%s' -s reload", options.bindir, node->data);
}

static bool
start_server(struct worker *w, struct node *node)
{
	write_settings(w, node, false);
	if (program(w, "'%s/pg_ctl' -D '%s' -l '%s' -w -t 180 -s start", options.bindir, node->data, log_of(w, node)))
		return true;
	fail(w, "node %d does not start, see %s", node->number, log_of(w, node));
	return false;
}

static bool
stop_server(struct worker *w, struct node *node, const char *mode)
{
	return program(w, "'%s/pg_ctl' -D '%s' -m %s -w -t 120 -s stop", options.bindir, node->data, mode);
}

/* A node that has no folder yet */
static struct node *
new_node(bool streaming)
{
	struct node *node = &nodes[n_nodes];

	node->number = n_nodes++;
	node->streaming = streaming;
	snprintf(node->data, sizeof(node->data), "%s/node_%d", options.work, node->number);
	return node;
}

/* Make the first primary, without any table */
static bool
make_primary(struct worker *w)
{
	struct node *node = new_node(false);
	FILE	   *file;

	if (!program(w, "'%s/initdb' -D '%s' -U postgres -A trust -N --wal-segsize=1 --locale=C --encoding=UTF8",
				 options.bindir, node->data))
		return false;
	file = fopen(say(w, "%s/postgresql.conf", node->data), "a");
	if (file == NULL)
		return false;
	fputs(base_settings, file);
	fclose(file);
	if (!start_server(w, node))
		return false;
	atomic_store(&node->exists, true);
	atomic_store(&role_nodes[PRIMARY], node);
	return program(w, "'%s/createdb' -h '%s' -p %d -U postgres stress", options.bindir, options.sockets, 5432 + node->number);
}

/*
 * A copy of a running server.  With so little WAL it may be gone before the
 * copy asks for it: then it is tried again.
 */
static bool
copy_primary(struct worker *w, struct node *primary, struct node *node)
{
	for (int attempt = 0; attempt < 4; attempt++)
		if (program(w, "'%s/pg_basebackup' -h '%s' -p %d -U postgres -D '%s' -c fast -X stream -R -C -S standby_%d_%d -N",
					options.bindir, options.sockets, 5432 + primary->number, node->data, node->number, attempt))
			return true;
	return false;
}

/* Make a standby of the primary */
bool
make_standby(struct worker *w)
{
	struct node *primary = node_of(PRIMARY);
	struct node *node;

	if (n_nodes == MAX_NODES)
		return false;
	node = new_node(true);
	if (!copy_primary(w, primary, node) || !start_server(w, node))
	{
		fail(w, "the standby could not be made");
		return false;
	}
	atomic_store(&node->exists, true);
	atomic_store(&role_nodes[STANDBY], node);
	return true;
}

bool
servers_begin(struct worker *w)
{
	return make_primary(w);
}

/* Stop all servers: at once, or quickly with all that is proper */
void
servers_end(struct worker *w)
{
	for (int i = n_nodes; i-- > 0;)
		if (atomic_load(&nodes[i].exists))
		{
			if (!in_outage(&nodes[i]))
				atomic_fetch_add(&nodes[i].outages, 1);
			if (!stop_server(w, &nodes[i], "fast"))
			{
				fail(w, "node %d does not stop", i);
				stop_server(w, &nodes[i], "immediate");
			}
		}
}

/* A crash: an immediate stop, and recovery at the start */
void
crash_server(struct worker *w, struct node *node)
{
	atomic_fetch_add(&node->outages, 1);
	stop_server(w, node, "immediate");
	if (!start_server(w, node))
		stopping = true;
	atomic_fetch_add(&node->outages, 1);
	count(CRASHES);
}

/*
 * Kill a session with SIGKILL, so that the server restarts by itself.  The
 * outage begins before, and the loss of our own session shows that it has
 * come.
 */
void
kill_backend(struct worker *w, struct node *node)
{
	const char *pid = value_of(w, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1");
	double		until = now() + options.patience;
	const char *address;

	if (pid == NULL)
		return;
	atomic_fetch_add(&node->outages, 1);
	kill(atoi(pid), SIGKILL);
	while (w->conn && now() < until)
	{
		run(w, "SELECT 1");
		usleep(10000);
	}
	address = say(w, "host='%s' port=%d dbname=stress user=postgres", options.sockets, 5432 + node->number);
	while (PQping(address) != PQPING_OK && now() < until)
		usleep(50000);
	if (now() >= until)
		fail(w, "node %d does not come back after the crash of a session", node->number);
	atomic_fetch_add(&node->outages, 1);
	count(CRASHES);
}

/*
 * Promote the node that w is connected to.  Recovery may wait for a session
 * that waits for it, and finds that out by a clock which may have been set
 * back; so sessions that wait for recovery are cancelled.
 */
static bool
promote(struct worker *w, struct node *node)
{
	double		until = now() + 180;

	if (!program(w, "'%s/pg_ctl' -D '%s' -W -s promote", options.bindir, node->data))
		return false;
	while (w->conn && now() < until)
	{
		const char *recovers = value_of(w, "SELECT pg_is_in_recovery()");

		if (recovers && *recovers == 'f')
			return true;
		usleep(300000);
		run(w, "SELECT pg_cancel_backend(pid) FROM pg_locks WHERE NOT granted AND locktype <> 'userlock'");
	}
	return false;
}

/*
 * The primary goes, the standby takes its place, and gets a standby of its
 * own
 */
void
promote_standby(struct worker *w)
{
	struct node *old = node_of(PRIMARY);
	struct node *standby = node_of(STANDBY);

	if (standby == NULL)
		return;
	w->role = STANDBY;
	if (!session_open(w))
		return;
	atomic_fetch_add(&old->outages, 1);
	stop_server(w, old, chance(w, 50) ? "immediate" : "fast");
	atomic_store(&role_nodes[STANDBY], NULL);
	if (!promote(w, standby))
	{
		fail(w, "node %d is not promoted", standby->number);
		stopping = true;
		return;
	}
	atomic_store(&role_nodes[PRIMARY], standby);
	atomic_store(&old->exists, false);
	program(w, "rm -rf '%s'", old->data);
	count(PROMOTIONS);
	w->role = PRIMARY;
	make_standby(w);
}
