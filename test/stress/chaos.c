/*
 * chaos.c
 *	  One thread that kills, stops, cancels, crashes, reloads, promotes, and
 *	  sets the clock.
 */
#include "stress.h"

#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * Seconds that an engine is stopped, which must be longer than anybody waits
 * for it
 */
#define LONG_STOP		15

/* What a link of a process in /proc points to; "" if that cannot be read */
static const char *
process_link(const char *process, const char *name, char *target, size_t capacity)
{
	char		link[300];
	ssize_t		length;

	snprintf(link, sizeof(link), "/proc/%s/%s", process, name);
	length = readlink(link, target, capacity - 1);
	target[length < 0 ? 0 : length] = '\0';
	return target;
}

/*
 * True if a process is an engine of this run.  Other servers may run the same
 * program beside it; an engine's working folder is its server's data folder.
 */
static bool
is_engine(const char *process)
{
	char		work[PATH_MAX];
	char		target[PATH_MAX];
	size_t		length;

	if (realpath(options.work, work) == NULL ||
		strcmp(process_link(process, "exe", target, sizeof(target)), options.engine_program) != 0)
		return false;
	length = strlen(work);
	process_link(process, "cwd", target, sizeof(target));
	return strncmp(target, work, length) == 0 && strncmp(target + length, "/node_", 6) == 0;
}

/*
 * Process ids of the engines of this run, at most `capacity`; returns their
 * number
 */
int
engine_pids(int *pids, int capacity)
{
	DIR		   *proc = opendir("/proc");
	struct dirent *entry;
	int			n = 0;

	while (proc && n < capacity && (entry = readdir(proc)) != NULL)
	{
		if (atoi(entry->d_name) != 0 && is_engine(entry->d_name))
			pids[n++] = atoi(entry->d_name);
	}
	if (proc)
		closedir(proc);
	return n;
}

/* Some engine; 0: there is none */
static int
any_engine(struct worker *w)
{
	int			pids[20];
	int			n = engine_pids(pids, lengthof(pids));

	return n ? pids[below(w, n)] : 0;
}

/* Wake engines that are stopped: they would outlive their servers */
void
continue_engines(void)
{
	int			pids[20];

	for (int i = engine_pids(pids, lengthof(pids)); i-- > 0;)
		kill(pids[i], SIGCONT);
}

static void
kill_engine(struct worker *w)
{
	int			pid = any_engine(w);

	if (pid && kill(pid, SIGKILL) == 0)
		count(ENGINE_KILLS);
}

/*
 * An engine stands still for a moment, or so long that sessions must do
 * without it, or for ever, so that another one must take its place
 */
static void
stop_engine(struct worker *w)
{
	int			pid = any_engine(w);

	if (pid == 0 || kill(pid, SIGSTOP) != 0)
		return;
	count(ENGINE_STOPS);
	if (!options.lenient && chance(w, 10))
		return;
	if (chance(w, 85))
		nap(w, 10, 1500);
	else
		nap(w, LONG_STOP * 1000, LONG_STOP * 1000);
	kill(pid, SIGCONT);
}

/* Cancel or terminate a session, or the supervisor */
static void
disturb_session(struct worker *w)
{
	bool		terminate = chance(w, 40);
	const char *whom = chance(w, 85) ? "application_name LIKE 'stress%'" : "backend_type LIKE 'gpuvec%' OR backend_type LIKE 'autovacuum worker' OR backend_type LIKE 'parallel worker'";

	run(w, "SELECT %s(pid) FROM (SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND (%s) ORDER BY random() LIMIT 1) x",
		terminate ? "pg_terminate_backend" : "pg_cancel_backend", whom);
	count(terminate ? SESSION_KILLS : CANCELS);
}

/* Which server something is done to */
static struct node *
any_node(struct worker *w)
{
	struct node *standby = node_of(STANDBY);

	return standby && chance(w, 35) ? standby : node_of(PRIMARY);
}

static void
crash(struct worker *w)
{
	struct node *node = any_node(w);

	if (chance(w, 50))
		crash_server(w, node);
	else
	{
		w->role = node == node_of(PRIMARY) ? PRIMARY : STANDBY;
		if (session_open(w))
			kill_backend(w, w->node);
		w->role = PRIMARY;
	}
}

/* One act, most of them harmless */
static void
act(struct worker *w)
{
	int			what = between(w, 0, 99);

	if (what < 18)
		kill_engine(w);
	else if (what < 30)
		stop_engine(w);
	else if (what < 76)
		disturb_session(w);
	else if (what < 86)
		step_clock(w);
	else if (what < 94)
	{
		write_settings(w, any_node(w), true);
		count(RELOADS);
	}
	else
		crash(w);
}

/*
 * Promotions come at fixed times: at half of a short run, every two minutes
 * of a long one
 */
void
make_chaos(struct worker *w)
{
	double		period = options.seconds < 240 ? options.seconds / 2.0 : 120;
	double		promotion = now() + period;

	while (!stopping)
	{
		if (now() > promotion && options.standby)
		{
			promote_standby(w);
			promotion = now() + period;
		}
		if (w->conn == NULL || w->node != node_of(w->role) || chance(w, 5))
		{
			w->role = chance(w, 30) && node_of(STANDBY) ? STANDBY : PRIMARY;
			if (!session_open(w))
				break;
			run(w, "RESET ALL");
		}
		act(w);
		forget(w);
		nap(w, 100, 1500);
	}
}
