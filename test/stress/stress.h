/*
 * stress.h
 *	  What the files of the randomised tester share.
 *
 * main.c has the overview.
 */
#ifndef STRESS_H
#define STRESS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <libpq-fe.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define MAX_NODES		200
#define MAX_SCRATCH		20000
#define STATEMENT_BYTES 2000
#define N_KEEPERS		2

/* Values of the column kind, each with a partition */
#define N_KINDS			4

/* WAL that servers keep for rare forms, in bytes */
#define WAL_KEPT		(1 << 30)

/* What an INSERT says whose partition is detached */
#define DETACHED		"23514"

#define lengthof(array) (sizeof(array) / sizeof((array)[0]))
#define printf_like(text, first) __attribute__((format(printf, text, first)))

/* What the command line says */
struct options
{
	const char *bindir;			/* PostgreSQL's programs */
	const char *work;			/* a folder for data */
	const char *sockets;		/* a folder with a short name */
	const char *engine_program;
	const char *settings;		/* a file with settings of each server */
	const char *engine;			/* gpuvec.engine */
	int			seconds;
	uint64_t	seed;
	int			clients;
	int			rows;			/* of a table, about */
	int			patience;		/* seconds a statement may take */
	const char *clock;			/* a library to preload, whose clock is set;
								 * "": none */
	bool		lenient;		/* searches may fail for want of an engine */
	bool		standby;
	bool		forms;			/* rare forms of statements only */
};

extern struct options options;

/* A server.  Nodes are never freed, so a pointer to one stays good. */
struct node
{
	int			number;
	char		data[1000];		/* its folder */
	atomic_int	outages;		/* odd: we have stopped it, or are about to */
	atomic_bool exists;			/* it has been made, and not been given up */
	bool		streaming;		/* it was made as a standby */
};

enum role
{
	PRIMARY,
	STANDBY
};

/* A thread with its session */
struct worker
{
	pthread_t	thread;
	char		name[20];
	void		(*run) (struct worker *);
	enum role	role;
	int			share;			/* of a thread that changes definitions: its tables;
								 * of one that asks forms: what it likes */
	uint64_t	random;
	char	   *scratch[MAX_SCRATCH];	/* freed by forget() */
	int			n_scratch;

	PGconn	   *conn;
	struct node *node;			/* that conn leads to */
	int			outage;			/* node->outages when it was opened */
	const char *user;			/* who connects; NULL: postgres */
	const char *parameter;		/* $1 of statements that have it */
	const char *tolerated;		/* SQLSTATEs that are no failure just now */
	bool		unpopulated;	/* what is asked may be a view without data */
	char		sqlstate[6];	/* of the last error */

	pthread_mutex_t lock;		/* what the watch looks at: */
	char		statement[STATEMENT_BYTES];
	double		since;			/* when it began; 0: none */
	int			pid;			/* of the backend */
	bool		late;			/* it has been reported */
};

/* What is counted; names are in main.c */
enum counter
{
	STATEMENTS,
	INTERRUPTED,
	SEARCH_ERRORS,
	LOST_CONNECTIONS,
	WRITES,
	COMMITS,
	ROLLBACKS,
	PREPARED,
	DEFINITIONS,
	MAINTENANCE,
	ENGINE_KILLS,
	ENGINE_STOPS,
	SESSION_KILLS,
	CANCELS,
	RELOADS,
	CRASHES,
	PROMOTIONS,
	CLOCK_STEPS,
	FREED,
	STALLS,
	STANDSTILLS,
	REFUSALS,
	STANDBY_COMPARISONS,
	INDEX_SCANS,
	ON_CPU,
	ON_CUDA,
	N_COUNTERS
};

extern atomic_long counters[N_COUNTERS];
extern atomic_long passed;
extern atomic_long failed;
extern atomic_bool stopping;	/* the time is over */
extern atomic_int prepared_number;	/* of the next prepared transaction */


#define count(which) ((void) atomic_fetch_add(&counters[which], 1))

/* main.c */
extern double now(void);
extern void fail(struct worker *w, const char *format,...) printf_like(2, 3);
extern void note(const char *format,...) printf_like(1, 2);
extern struct worker *new_worker(const char *name, enum role role, void (*run) (struct worker *));

/* worker.c */
extern uint32_t below(struct worker *w, uint32_t n);
extern int	between(struct worker *w, int least, int most);
extern bool chance(struct worker *w, int percent);
extern const char *one_of(struct worker *w, const char *const *words, int n);
extern void nap(struct worker *w, int least_ms, int most_ms);
extern char *say(struct worker *w, const char *format,...) printf_like(2, 3);
extern char *keep(struct worker *w, char *text);
extern char *file_text(struct worker *w, const char *path);
extern void forget(struct worker *w);

#define any_of(w, words) one_of(w, words, lengthof(words))

/* servers.c */
extern struct node *node_of(enum role role);
extern bool in_outage(struct node *node);
extern bool servers_begin(struct worker *w);
extern void servers_end(struct worker *w);
extern void write_settings(struct worker *w, struct node *node, bool reload);
extern void crash_server(struct worker *w, struct node *node);
extern void kill_backend(struct worker *w, struct node *node);
extern void promote_standby(struct worker *w);
extern bool make_standby(struct worker *w);

/* session.c */
extern bool session_open(struct worker *w);
extern void session_close(struct worker *w);
extern PGresult *query(struct worker *w, const char *sql);
extern bool run(struct worker *w, const char *format,...) printf_like(2, 3);
extern const char *value_of(struct worker *w, const char *format,...) printf_like(2, 3);
extern bool begin(struct worker *w, const char *isolation);
extern bool end(struct worker *w, bool commit);
extern void abandon(struct worker *w);
extern bool copy_in(struct worker *w, const char *into, const char *data);
extern bool send_query(struct worker *w, const char *sql);
extern void read_on(struct worker *w, const char *sql);

/* tables.c */
struct table
{
	const char *name;
	const char *type;			/* of the column s */
	const char *cast;			/* makes such a value of an int[] */
	const char *expression;		/* the set of a row */
	const char *indexes[4];		/* what indexes may be made of */
	int			domain;			/* ids of rows are 1 to this, in percent of options.rows */
	int			longest;		/* ids in a set, at most */
	int			distinct;		/* number of distinct sets, about; 0: many */
	bool		partitioned;
	bool		wide;			/* some ids are above 65,535 */
	bool		vectors;		/* the expression is a vector */
};

extern const struct table tables[];
extern const int n_tables;

extern bool make_tables(struct worker *w);
extern const struct table *any_table(struct worker *w);
extern const struct table *my_table(struct worker *w);
extern int	n_ids(const struct table *t);
extern const struct table *parted_table(void);
extern bool make_partition(struct worker *w, const struct table *t, int kind);
extern const char *some_ids(struct worker *w, const struct table *t);
extern const char *row_value(struct worker *w, const struct table *t);
extern const char *some_rows(struct worker *w, const struct table *t);

/* clock.c */
extern bool clock_begin(struct worker *w);
extern void step_clock(struct worker *w);

/* vectors.c */
extern bool make_vectors(struct worker *w);
extern void change_vectors(struct worker *w);

/* compare.c */
enum rule
{
	SAME_ROWS,					/* in any order */
	SAME_LIST,					/* in this order */
	RANKED						/* by key; ties in any order, and cut anywhere */
};

/*
 * Two queries that must have the same result.  Both return the columns grp
 * (int), key and id (text); in RANKED ones rows of a group come in the order
 * of their keys, and truth has all rows up to the end of the last tie.
 */
struct question
{
	const char *kind;
	const char *answer;
	const char *truth;
	enum rule	rule;
	int			offset;			/* of answer, if RANKED */
	int			limit;
};

extern void ask(struct worker *w, const struct question *q);
extern void settle_results(struct worker *w, const struct question *q, const char *way, PGresult *first, PGresult *rest, PGresult *t);
extern void ask_inside(struct worker *w, const struct question *q, bool snapshot);

/* searches.c and vectors.c */
extern struct question any_question(struct worker *w);
extern struct question table_question(struct worker *w, const struct table *t);
extern struct question function_question(struct worker *w, const struct table *t, const char *column);
extern struct question vectors_question(struct worker *w);
extern struct question views_question(struct worker *w);

/* forms.c */
extern bool make_forms(struct worker *w);
extern void ask_forms_all_the_time(struct worker *w);

/* views.c */
extern bool make_views(struct worker *w);
extern void check_views(struct worker *w);

/*
 * what threads do: readers.c, writers.c, maintain.c, chaos.c, unread.c,
 * views.c
 */
extern void read_all_the_time(struct worker *w);
extern void write_all_the_time(struct worker *w);
extern void change(struct worker *w, const struct table *t);
extern void maintain_all_the_time(struct worker *w);
extern void make_chaos(struct worker *w);
extern void stall_all_the_time(struct worker *w);
extern void refresh_views_all_the_time(struct worker *w);
extern void continue_engines(void);
extern int	engine_pids(int *pids, int capacity);

#endif
