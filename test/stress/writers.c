/*
 * writers.c
 *	  Threads that change the tables in all ways that transactions can.
 */
#include "stress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

atomic_int	prepared_number;

/* What concurrent writers may meet: the same new key */
#define UNIQUE_VIOLATION	"23505"

/* Some rows, by COPY: as text, so tables of sets only */
static void
copy_rows(struct worker *w, const struct table *t)
{
	const char *lines = "";
	int			id = between(w, 1, n_ids(t));

	for (int i = between(w, 1, 30); i > 0; i--)
	{
		const char *ids = some_ids(w, t);

		if (strcmp(t->type, "text") == 0)
			ids = say(w, "%d %d", between(w, 0, 99), between(w, 0, 99));
		if (strcmp(t->type, "idvec") == 0)
			ids = say(w, "{%d:%d,%d:0.5}", between(w, 0, 99), between(w, 1, 300), between(w, 100, 199));
		lines = say(w, "%s%d\t%d\t%d\tcopied\t%s\n", lines, id, between(w, 0, 3), between(w, 0, 999), chance(w, 3) ? "\\N" : ids);
		id += between(w, 1, 5);
	}
	copy_in(w, say(w, "%s (id, kind, n, note, s)", t->name), lines);
}

/*
 * The same change by many rows: insertions, or updates of some part of the
 * table
 */
static void
change_many(struct worker *w, const struct table *t)
{
	int			part = between(w, 3, 40);
	int			rest = below(w, part);

	switch (between(w, 0, 4))
	{
		case 0:
			run(w, "INSERT INTO %s SELECT i, i %% 4, i, 'many', %s(stress.make_ids(i + %d, %d, 200)) FROM generate_series(%d, %d, %d) i ON CONFLICT DO NOTHING",
				t->name, t->cast, between(w, 0, 9999), t->longest > 100 ? 1000 : t->longest, rest + 1, n_ids(t), part);
			break;
		case 1:
			run(w, "UPDATE %s SET n = n + 1 WHERE id %% %d = %d", t->name, part, rest);
			break;
		case 2:
			run(w, "UPDATE %s SET s = %s, note = NULL WHERE id %% %d = %d", t->name, row_value(w, t), part * 3, rest);
			break;
		case 3:
			run(w, "UPDATE %s SET kind = (kind + 1) %% 4 WHERE id %% %d = %d", t->name, part, rest);
			break;
		default:
			run(w, "DELETE FROM %s WHERE id %% %d = %d", t->name, chance(w, 10) ? 2 : part, chance(w, 10) ? 0 : rest);
	}
}

/* Change a few rows */
static void
change_few(struct worker *w, const struct table *t)
{
	int			id = between(w, 1, n_ids(t));

	switch (between(w, 0, 7))
	{
		case 0:
			run(w, "INSERT INTO %s VALUES %s", t->name, some_rows(w, t));
			break;
		case 1:
			run(w, "INSERT INTO %s VALUES %s ON CONFLICT DO NOTHING", t->name, some_rows(w, t));
			break;
		case 2:
			run(w, "INSERT INTO %s VALUES %s ON CONFLICT (%s) DO UPDATE SET s = excluded.s, n = t.n + 1", say(w, "%s AS t (id, kind, n, note, s)", t->name),
				some_rows(w, t), t->partitioned ? "id, kind" : "id");
			break;
		case 3:
			run(w, "UPDATE %s SET s = %s WHERE id BETWEEN %d AND %d", t->name, row_value(w, t), id, id + between(w, 0, 4));
			break;
		case 4:
			run(w, "UPDATE %s SET n = n + 1, note = 'few' WHERE id BETWEEN %d AND %d", t->name, id, id + between(w, 0, 10));
			break;
		case 5:
			run(w, "UPDATE %s SET kind = %d WHERE id BETWEEN %d AND %d", t->name, between(w, 0, 3), id, id + between(w, 0, 4));
			break;
		case 6:
			run(w, "DELETE FROM %s WHERE id BETWEEN %d AND %d", t->name, id, id + between(w, 0, 20));
			break;
		default:
			run(w, "SELECT FROM %s WHERE id BETWEEN %d AND %d FOR %s", t->name, id, id + between(w, 0, 10),
				one_of(w, (const char *[]) {"UPDATE", "SHARE", "NO KEY UPDATE", "KEY SHARE"}, 4));
	}
}

/* Change a table in some way, or the embedding table */
void
change(struct worker *w, const struct table *t)
{
	w->tolerated = t->partitioned ? UNIQUE_VIOLATION " " DETACHED : UNIQUE_VIOLATION;
	if (chance(w, 15))
		change_vectors(w);
	else if (chance(w, 10))
		copy_rows(w, t);
	else if (chance(w, 20))
		change_many(w, t);
	else
		change_few(w, t);
	count(WRITES);
	w->tolerated = NULL;
}

/* Changes within a savepoint, which is kept, rolled back, or left as it is */
static void
change_in_savepoint(struct worker *w, const struct table *t)
{
	if (!run(w, "SAVEPOINT s"))
		return;
	for (int i = between(w, 1, 3); i > 0; i--)
		change(w, t);
	if (w->conn && (PQtransactionStatus(w->conn) == PQTRANS_INERROR || chance(w, 40)))
		run(w, "ROLLBACK TO s");
	else if (chance(w, 50))
		run(w, "RELEASE s");
}

/* End a transaction through PREPARE; the watch ends what is left over */
static void
prepare(struct worker *w)
{
	int			mine = atomic_fetch_add(&prepared_number, 1);

	if (!run(w, "PREPARE TRANSACTION 'stress_%d'", mine))
		return;
	count(PREPARED);
	nap(w, 0, 300);
	w->tolerated = "42704 55000";	/* the watch was faster, or is at it */
	run(w, "%s PREPARED 'stress_%d'", chance(w, 60) ? "COMMIT" : "ROLLBACK", mine);
	w->tolerated = NULL;
}

/* A transaction of several changes, which sees its own in searches */
static void
write_transaction(struct worker *w)
{
	const char *isolation = one_of(w, (const char *[]) {"READ COMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"}, 4);
	bool		snapshot = strcmp(isolation, "READ COMMITTED") != 0;
	const struct table *t = any_table(w);

	if (!begin(w, isolation))
		return;
	for (int i = between(w, 1, 5); i > 0 && w->conn; i--)
	{
		if (PQtransactionStatus(w->conn) == PQTRANS_INERROR)
			break;
		if (chance(w, 25))
			change_in_savepoint(w, t);
		else
			change(w, chance(w, 70) ? t : any_table(w));
		if (w->conn && chance(w, 25) && PQtransactionStatus(w->conn) == PQTRANS_INTRANS)
		{
			struct question q = chance(w, 50) ? table_question(w, t) : any_question(w);

			ask_inside(w, &q, snapshot);
			w->parameter = NULL;
		}
	}
	if (w->conn == NULL || PQtransactionStatus(w->conn) != PQTRANS_INTRANS)
		return;
	if (chance(w, 8))
		prepare(w);
	else
		end(w, chance(w, 75));
}

void
write_all_the_time(struct worker *w)
{
	while (!stopping)
	{
		if ((w->conn == NULL || w->node != node_of(w->role) || chance(w, 2)) && !session_open(w))
			break;
		if (chance(w, 50))
			change(w, any_table(w));
		else
			write_transaction(w);
		if (chance(w, 3))
			run(w, "VACUUM %s", any_table(w)->name);
		abandon(w);
		forget(w);
		nap(w, 0, 10);
	}
}
