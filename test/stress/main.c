/*
 * main.c
 *	  A randomised tester of gpuvec: does any search ever differ from plain
 *	  SQL?
 *
 * A primary and a standby, tables of many shapes, and sessions that write,
 * change definitions, clean up and search, all at once; meanwhile engines are
 * killed and stopped, sessions cancelled and terminated, the wall clock is
 * set back and forth (clock.c), clients do not read their sockets and
 * processes stand still in the middle of a load (unread.c), servers crash and
 * are reloaded with other settings, and the standby is promoted.  Partitions,
 * one of which has partitions, are detached, attached and replaced.
 * Materialized views lose their data and get it back (views.c).  Readers ask
 * each question twice, of gpuvec and of SQL that no index serves, in one
 * statement or snapshot (compare.c), so that a difference is a fault whatever
 * the others did.  Which errors are none: session.c.
 *
 * The seed decides what each thread does next.  A run cannot be repeated to
 * the letter, for threads meet as they will, but the same seed makes the same
 * kind of last_error.
 *
 * With --forms there is one server, left in peace, and all sessions ask rare
 * forms of statements (forms.c).
 *
 * scripts/stress.sh starts it.  The last line is "N passed, N failed".
 */
#include "stress.h"

#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_WORKERS		200
#define MAX_FAILURES	30

struct options options = {
	.bindir = "", .work = ".", .sockets = "/tmp", .engine_program = "", .settings = "", .engine = "auto", .clock = "",
	.seconds = 60, .seed = 0, .clients = 6, .rows = 1000, .patience = 120, .lenient = false, .standby = true,
};

atomic_long counters[N_COUNTERS];
atomic_long passed;
atomic_long failed;
atomic_bool stopping;

static const char *const counter_names[N_COUNTERS] = {
	"statements", "interrupted", "searches without an engine", "lost connections", "writes", "commits", "rollbacks",
	"prepared transactions", "changes of definitions", "cleanings", "engines killed", "engines stopped",
	"sessions terminated", "statements cancelled", "reloads", "crashes", "promotions", "steps of the clock",
	"waits whose timeout the clock has put off", "clients that did not read", "sessions that stood still",
	"refusals of views without data", "comparisons on a standby",
	"index scans", "engine seen on the CPU", "engine seen on CUDA",
};

static struct worker workers[MAX_WORKERS];
static int	n_workers;
static struct worker *standby_watch;
static double begun;
static pthread_mutex_t output = PTHREAD_MUTEX_INITIALIZER;

/* Seconds, of a clock that nobody sets */
double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* One line of output */
void
note(const char *format,...)
{
	va_list		args;

	pthread_mutex_lock(&output);
	printf("%7.1f  ", now() - begun);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
	pthread_mutex_unlock(&output);
}

/*
 * Something is wrong: say what, and end the run if that has happened too
 * often
 */
void
fail(struct worker *w, const char *format,...)
{
	va_list		args;
	long		n = atomic_fetch_add(&failed, 1) + 1;

	pthread_mutex_lock(&output);
	printf("%7.1f  FAILED (seed %llu, %s, node %d): ", now() - begun, (unsigned long long) options.seed,
		   w->name, w->node ? w->node->number : -1);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
	pthread_mutex_unlock(&output);
	if (n == MAX_FAILURES)
	{
		note("that is enough");
		stopping = true;
	}
}

/* A new thread, or (without run) just its memory */
struct worker *
new_worker(const char *name, enum role role, void (*run) (struct worker *))
{
	struct worker *w = &workers[n_workers];

	snprintf(w->name, sizeof(w->name), "%s_%d", name, n_workers);
	w->random = options.seed * 1000003 + n_workers * 7919;
	w->role = role;
	w->run = run;
	pthread_mutex_init(&w->lock, NULL);
	n_workers++;
	return w;
}

static void *
thread_main(void *arg)
{
	struct worker *w = arg;

	w->run(w);
	forget(w);
	session_close(w);
	return NULL;
}

/*
 * Writers are a third of the clients, and a third of the rest are on the
 * standby
 */
static void
new_crowd(void)
{
	int			writers = options.clients / 3 ? options.clients / 3 : 1;
	int			readers = options.clients - writers > 0 ? options.clients - writers : 1;
	int			on_standby = !options.standby ? 0 : readers / 3 ? readers / 3 : 1;

	for (int i = 0; i < writers; i++)
		new_worker("stress_writer", PRIMARY, write_all_the_time);
	for (int i = on_standby; i < readers || i == on_standby; i++)
		new_worker("stress_reader", PRIMARY, read_all_the_time);
	for (int i = 0; i < on_standby; i++)
		new_worker("stress_standby", STANDBY, read_all_the_time);
	for (int i = 0; i < N_KEEPERS; i++)
		new_worker("stress_keeper", PRIMARY, maintain_all_the_time)->share = i;
	new_worker("stress_views", PRIMARY, refresh_views_all_the_time);
	new_worker("stalling", PRIMARY, stall_all_the_time);
	/* its client */
	new_worker("stress_stalled", PRIMARY, NULL)->user = "reader";
	new_worker("chaos", PRIMARY, make_chaos);
}

static void
start_workers(void)
{
	if (options.forms)
		for (int i = 0; i < options.clients; i++)
			new_worker("forms", PRIMARY, ask_forms_all_the_time)->share = i;
	else
	{
		new_crowd();
		standby_watch = new_worker("watch_standby", STANDBY, NULL);
	}
	for (int i = 0; i < n_workers; i++)
		if (workers[i].run)
			pthread_create(&workers[i].thread, NULL, thread_main, &workers[i]);
}

/* What the server's sessions do, when one of them takes too long */
static void
show_activity(struct worker *me)
{
	PGresult   *result = query(me, "SELECT pid, application_name, backend_type, state, wait_event_type, wait_event, pg_blocking_pids(pid), left(query, 200) FROM pg_stat_activity WHERE state IS NOT NULL");

	for (int i = 0; result && i < PQntuples(result); i++)
		note("activity: %s %s %s %s %s/%s %s %s", PQgetvalue(result, i, 0), PQgetvalue(result, i, 1), PQgetvalue(result, i, 2), PQgetvalue(result, i, 3),
			 PQgetvalue(result, i, 4), PQgetvalue(result, i, 5), PQgetvalue(result, i, 6), PQgetvalue(result, i, 7));
	PQclear(result);
}

/* Does any session's statement take too long? */
static void
watch_statements(struct worker *me)
{
	for (int i = 0; i < n_workers; i++)
	{
		struct worker *w = &workers[i];
		char		statement[STATEMENT_BYTES] = "";
		int			pid;

		pthread_mutex_lock(&w->lock);
		pid = w->pid;
		if (w->since && !w->late && now() - w->since > options.patience)
		{
			w->late = true;
			memcpy(statement, w->statement, sizeof(statement));
		}
		pthread_mutex_unlock(&w->lock);
		if (*statement && w != me)
		{
			fail(me, "a statement takes more than %d s, in process %d (%s): %s", options.patience, pid, w->name, statement);
			show_activity(me);
		}
	}
}

/*
 * Statements that wait for a lock of the server's own: a timeout that has
 * begun before the clock was set back ends a day late, and so do the search
 * for deadlocks and a standby's patience.  So what waits for long is freed.
 * Locks of ours are left out: nobody may wait for these for long, whatever
 * the clock says.
 */
static void
free_waiting(struct worker *me)
{
	for (int i = 0; i < n_workers && atomic_load(&counters[CLOCK_STEPS]) > 0; i++)
	{
		struct worker *w = &workers[i];
		struct worker *by = w->role == me->role ? me : standby_watch;
		bool		waits;
		int			pid;

		pthread_mutex_lock(&w->lock);
		waits = w != me && w->since && now() - w->since > options.patience / 4;
		pid = w->pid;
		pthread_mutex_unlock(&w->lock);
		if (waits && by && node_of(by->role) && (by->conn || session_open(by)) && by->node == w->node &&
			value_of(by, "SELECT pg_cancel_backend(pid) FROM pg_locks WHERE pid = %d AND NOT granted AND locktype <> 'userlock'", pid))
			count(FREED);
		if (by && by != me)
			session_close(by);
	}
}

/*
 * End prepared transactions whose session is gone; they hold their locks.
 * Only those with a number below this.
 */
static void
end_prepared(struct worker *me, int below_number)
{
	const char *gid;

	me->tolerated = "42704 55000";	/* somebody else was faster, or is at it */
	for (int i = 0; i < 20 && me->conn; i++)
	{
		gid = value_of(me, "SELECT gid FROM pg_prepared_xacts WHERE substr(gid, 8)::int < %d LIMIT 1", below_number);
		if (gid == NULL)
			break;
		run(me, "%s PREPARED '%s'", chance(me, 50) ? "COMMIT" : "ROLLBACK", gid);
	}
	me->tolerated = NULL;
}

/* Count what only the server knows */
static void
sample(struct worker *me)
{
	static long last;
	const char *scans = value_of(me, "SELECT coalesce(sum(s.idx_scan), 0) FROM pg_stat_all_indexes s JOIN pg_class c ON c.oid = s.indexrelid JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'gpuvec'");
	const char *backend = value_of(me, "SELECT backend FROM gpuvec_engine");
	long		n = scans ? atol(scans) : last;

	/* statistics begin again after a crash */
	atomic_fetch_add(&counters[INDEX_SCANS], n >= last ? n - last : n);
	last = n;
	if (backend)
		count(strcmp(backend, "cpu") == 0 ? ON_CPU : ON_CUDA);
	/*
	 * engines that we kill too often go on without the GPU, until the
	 * supervisor ends
	 */
	if (backend && strcmp(backend, "cpu") == 0 && strcmp(options.engine, "cuda") == 0)
		run(me, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'gpuvec supervisor'");
}

/*
 * True until the time is over.  On a busy machine an engine may take longer to
 * say what it is: it is waited for.
 */
static bool
goes_on(void)
{
	double		over = now() - begun - options.seconds;
	bool		seen = atomic_load(&counters[ON_CPU]) + atomic_load(&counters[ON_CUDA]) > 0;

	return !stopping && (over < 0 || (!seen && over < options.patience));
}

/* Until the time is over: look at everybody */
static void
watch(struct worker *me)
{
	double		told = now();
	double		aged = now();
	int			old = 0;
	int			older = 0;

	while (goes_on())
	{
		watch_statements(me);
		if ((me->conn || session_open(me)) && run(me, "RESET ALL; SET statement_timeout = '10s'"))
		{
			if (now() - aged > 2)
			{
				aged = now();
				older = old;
				old = atomic_load(&prepared_number);
			}
			end_prepared(me, older);
			free_waiting(me);
			sample(me);
		}
		if (me->conn && me->node != node_of(PRIMARY))
			session_close(me);
		if (now() - told > 20)
		{
			told = now();
			note("%ld comparisons, %ld failures, %ld statements, %ld writes", atomic_load(&passed), atomic_load(&failed),
				 atomic_load(&counters[STATEMENTS]), atomic_load(&counters[WRITES]));
		}
		forget(me);
		nap(me, 500, 500);
	}
	stopping = true;
}

/* Has the thread ended, after a second at most? */
static bool
has_ended(struct worker *w)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec++;
	return pthread_timedjoin_np(w->thread, NULL, &until) == 0;
}

/*
 * Wait for the threads; one that does not come to its end is a failure.  What
 * waits in the server is freed, as before.
 */
static bool
join_workers(struct worker *me)
{
	double		until = now() + options.patience;
	bool		all = true;

	for (int i = 0; i < n_workers; i++)
	{
		bool		ended = workers[i].run == NULL;

		while (!ended && !(ended = has_ended(&workers[i])) && now() < until)
			free_waiting(me);
		if (!ended)
			fail(me, "%s does not end: process %d, %s", workers[i].name, workers[i].pid, workers[i].statement);
		all &= ended;
	}
	return all;
}

/* Wait until the standby has replayed what the primary has written */
static void
catch_up(struct worker *me)
{
	const char *lsn = value_of(me, "SELECT pg_current_wal_lsn()");
	double		until = now() + options.patience;

	me->role = STANDBY;
	if (lsn == NULL || !session_open(me))
		return;
	while (now() < until)
	{
		const char *there = value_of(me, "SELECT pg_last_wal_replay_lsn() >= '%s'", lsn);

		if (there && *there == 't')
			return;
		usleep(100000);
	}
	fail(me, "the standby does not catch up");
}

/* Questions about all tables, when nobody changes anything any more */
static void
check_tables(struct worker *me)
{
	for (int i = 0; i < n_tables && me->conn; i++)
		for (int round = 0; round < 4; round++)
		{
			struct question q = table_question(me, &tables[i]);

			if (round == 3 && strcmp(tables[i].type, "idset") == 0)
				q = function_question(me, &tables[i], "s");
			ask(me, &q);
			abandon(me);
			forget(me);
		}
}

/*
 * In the end, with quiet servers: all is right, and the standby has what the
 * primary has
 */
static void
check_at_the_end(struct worker *me)
{
	stopping = false;
	continue_engines();
	me->role = PRIMARY;
	if (!session_open(me))
		return;
	run(me, "RESET ALL; SET enable_seqscan = off; SET enable_sort = off");
	end_prepared(me, INT_MAX);
	sample(me);
	check_tables(me);
	check_views(me);
	if (node_of(STANDBY) == NULL)
		return;
	catch_up(me);
	run(me, "RESET ALL; SET enable_seqscan = off; SET enable_sort = off");
	check_tables(me);
}

/*
 * Often the scheduler of the engine is held up, so that requests of strangers
 * are one batch
 */
static void
gather_requests(struct worker *me)
{
	if (chance(me, 70))
		setenv("GPUVEC_ENGINE_FAULT", say(me, "slow-batch:%d", between(me, 1, 4)), 1);
}

static void
report(struct worker *me)
{
	if (atomic_load(&passed) == 0)
		fail(me, "nothing was compared");
	if (atomic_load(&counters[INDEX_SCANS]) == 0)
		fail(me, "no index was scanned");
	if (atomic_load(&counters[ON_CUDA]) == 0 && strcmp(options.engine, "cuda") == 0)
		fail(me, "no engine used the GPU");
	for (int i = 0; i < N_COUNTERS; i++)
		printf("%10ld %s\n", atomic_load(&counters[i]), counter_names[i]);
	printf("seed %llu: %ld passed, %ld failed\n", (unsigned long long) options.seed, atomic_load(&passed), atomic_load(&failed));
	fflush(stdout);
}

static void
parse_options(int argc, char **argv)
{
	static const struct option longs[] = {
		{"bindir", required_argument, NULL, 'b'}, {"work", required_argument, NULL, 'w'},
		{"sockets", required_argument, NULL, 'S'}, {"engine-program", required_argument, NULL, 'p'},
		{"settings", required_argument, NULL, 'f'}, {"engine", required_argument, NULL, 'e'},
		{"seconds", required_argument, NULL, 't'}, {"seed", required_argument, NULL, 's'},
		{"clients", required_argument, NULL, 'c'}, {"rows", required_argument, NULL, 'r'},
		{"patience", required_argument, NULL, 'P'}, {"clock", required_argument, NULL, 'C'}, {"lenient", no_argument, NULL, 'l'},
		{"no-standby", no_argument, NULL, 'n'}, {"forms", no_argument, NULL, 'F'}, {NULL, 0, NULL, 0}
	};
	int			c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1)
		switch (c)
		{
			case 'b': options.bindir = optarg; break;
			case 'w': options.work = optarg; break;
			case 'S': options.sockets = optarg; break;
			case 'p': options.engine_program = optarg; break;
			case 'f': options.settings = optarg; break;
			case 'e': options.engine = optarg; break;
			case 't': options.seconds = atoi(optarg); break;
			case 's': options.seed = strtoull(optarg, NULL, 10); break;
			case 'c': options.clients = atoi(optarg); break;
			case 'r': options.rows = atoi(optarg); break;
			case 'P': options.patience = atoi(optarg); break;
			case 'C': options.clock = optarg; break;
			case 'l': options.lenient = true; break;
			case 'n': options.standby = false; break;
			case 'F': options.forms = true; break;
			default: exit(2);
		}
	if (options.clients < 1 || options.clients > 50 || options.rows < 10 || options.seconds < 1)
	{
		fprintf(stderr, "stress: clients must be 1 to 50, rows 10 or more, and seconds 1 or more\n");
		exit(2);
	}
}

int
main(int argc, char **argv)
{
	struct worker *me;
	bool		all_ended;

	parse_options(argc, argv);
	signal(SIGPIPE, SIG_IGN);
	begun = now();
	me = new_worker("watch", PRIMARY, NULL);
	note("seed %llu", (unsigned long long) options.seed);
	if (options.forms)
		gather_requests(me);
	if (!clock_begin(me) || !servers_begin(me) || !session_open(me) || !run(me, "RESET ALL") ||
		!(options.forms ? make_forms(me) : make_tables(me)) ||
		(options.standby && !make_standby(me)))
	{
		fail(me, "the servers and tables could not be made");
		servers_end(me);
		report(me);
		return 1;
	}
	note("the tables are made");
	begun = now();
	start_workers();
	watch(me);
	all_ended = join_workers(me);
	if (all_ended && !options.forms)
		check_at_the_end(me);
	continue_engines();
	session_close(me);
	servers_end(me);
	report(me);
	_exit(atomic_load(&failed) == 0 ? 0 : 1);
}
