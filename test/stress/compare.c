/*
 * compare.c
 *	  Asks a question in two ways and compares the results.
 *
 * Both queries run in one statement, or in one snapshot of a transaction,
 * whatever others do meanwhile; so any difference is a fault.
 */
#include "stress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_ROWS	40

struct row
{
	int			group;
	int			position;		/* in the result */
	char	   *key;
	char	   *id;
};

struct rows
{
	struct row *row;
	int			n;
};

/* Order by group, then position, which is unique */
static int
by_position(const void *a, const void *b)
{
	const struct row *x = a;
	const struct row *y = b;

	if (x->group != y->group)
		return x->group < y->group ? -1 : 1;
	return (x->position > y->position) - (x->position < y->position);
}

/* Order by everything but the position */
static int
by_contents(const void *a, const void *b)
{
	const struct row *x = a;
	const struct row *y = b;
	int			order = x->group != y->group ? (x->group < y->group ? -1 : 1) : strcmp(x->key, y->key);

	return order ? order : strcmp(x->id, y->id);
}

static void
sort_rows(struct rows *rows, int (*order) (const void *, const void *))
{
	if (rows->n > 1)
		qsort(rows->row, rows->n, sizeof(struct row), order);
}

/* Add rows of a result; columns grp, key and id begin at that number */
static void
add_rows(struct worker *w, struct rows *rows, const PGresult *result, int i, int column)
{
	struct row *row = &rows->row[rows->n++];

	row->group = atoi(PQgetvalue(result, i, column));
	row->position = column ? atoi(PQgetvalue(result, i, column - 1)) : rows->n;
	row->key = PQgetisnull(result, i, column + 1) ? "null" : PQgetvalue(result, i, column + 1);
	row->id = PQgetvalue(result, i, column + 2);
	(void) w;
}

static struct rows
room_for(int n)
{
	struct rows rows = {calloc(n + 1, sizeof(struct row)), 0};

	if (rows.row == NULL)
		abort();
	return rows;
}

/* Do both results have the same rows, in the order that they have now? */
static bool
same_rows(const struct rows *a, const struct rows *b)
{
	if (a->n != b->n)
		return false;
	for (int i = 0; i < a->n; i++)
		if (by_contents(&a->row[i], &b->row[i]) != 0)
			return false;
	return true;
}

/* Where the group of row i of these, sorted by position, ends */
static int
group_end(const struct rows *rows, int i)
{
	int			group = rows->row[i].group;

	while (i < rows->n && rows->row[i].group == group)
		i++;
	return i;
}

/*
 * One group of a ranking: each place must have the key that the truth has
 * there, and the rows must be different ones that the truth has with this
 * key.
 */
static bool
good_ranking(struct row *answer, int n, const struct row *truth, int n_truth, const struct question *q)
{
	struct rows found = {answer, n};
	struct rows all = room_for(n_truth);
	int			due = n_truth - q->offset;
	bool		good;

	due = due < 0 ? 0 : due > q->limit ? q->limit : due;
	good = n == due;
	for (int i = 0; good && i < n; i++)
		good = strcmp(answer[i].key, truth[q->offset + i].key) == 0;
	memcpy(all.row, truth, n_truth * sizeof(struct row));
	all.n = n_truth;
	sort_rows(&all, by_contents);
	sort_rows(&found, by_contents);
	for (int i = 0; good && i < n; i++)
		good = (i == 0 || by_contents(&answer[i - 1], &answer[i]) != 0) &&
			bsearch(&answer[i], all.row, n_truth, sizeof(struct row), by_contents);
	sort_rows(&found, by_position);
	free(all.row);
	return good;
}

/* Rankings, group by group */
static bool
good_rankings(struct rows *answer, const struct rows *truth, const struct question *q)
{
	int			a = 0;
	int			t = 0;

	while (t < truth->n)
	{
		int			t_end = group_end(truth, t);
		int			a_end = a < answer->n && answer->row[a].group == truth->row[t].group ? group_end(answer, a) : a;

		if (!good_ranking(answer->row + a, a_end - a, truth->row + t, t_end - t, q))
			return false;
		a = a_end;
		t = t_end;
	}
	return a == answer->n;
}

static bool
right(struct rows *answer, struct rows *truth, const struct question *q)
{
	int			(*order) (const void *, const void *) = q->rule == SAME_ROWS ? by_contents : by_position;

	sort_rows(answer, order);
	sort_rows(truth, order);
	return q->rule == RANKED ? good_rankings(answer, truth, q) : same_rows(answer, truth);
}

/* Some rows around the first difference, for people to read */
static const char *
shown(struct worker *w, const struct rows *rows, int from)
{
	char	   *text = say(w, "%d rows", rows->n);

	for (int i = from; i < rows->n && i < from + SHOWN_ROWS; i++)
		text = say(w, "%s\n  %d: %d | %s | %s", text, i + 1, rows->row[i].group, rows->row[i].key, rows->row[i].id);
	return text;
}

/* Count a comparison, or report a difference; true: there was none */
static bool
settle(struct worker *w, const struct question *q, const char *way, struct rows *answer, struct rows *truth)
{
	int			from = 0;
	bool		good = right(answer, truth, q);

	if (good)
	{
		atomic_fetch_add(&passed, 1);
		if (w->role == STANDBY)
			count(STANDBY_COMPARISONS);
	}
	else
	{
		while (from < answer->n && from < truth->n && by_contents(&answer->row[from], &truth->row[from]) == 0)
			from++;
		from = from < 5 ? 0 : from - 5;
		fail(w, "MISMATCH (%s, %s)\nanswer: %s\ntruth: %s\n$1: %s\nanswer, from row %d: %s\ntruth, from row %d: %s",
			 q->kind, way, q->answer, q->truth, w->parameter ? w->parameter : "none",
			 from + 1, shown(w, answer, from), from + 1, shown(w, truth, from));
	}
	free(answer->row);
	free(truth->row);
	return good;
}

/* Both queries in one statement */
static void
ask_in_one_statement(struct worker *w, const struct question *q)
{
	PGresult   *result = query(w, say(w, "SELECT 1, row_number() OVER (), a.* FROM (%s) a UNION ALL SELECT 2, row_number() OVER (), b.* FROM (%s) b",
									  q->answer, q->truth));
	int			n = result ? PQntuples(result) : 0;
	struct rows answer,
				truth;

	if (result == NULL)
		return;
	answer = room_for(n);
	truth = room_for(n);
	for (int i = 0; i < n; i++)
		add_rows(w, PQgetvalue(result, i, 0)[0] == '1' ? &answer : &truth, result, i, 2);
	settle(w, q, "one statement", &answer, &truth);
	PQclear(result);
}

/* Show the plan of an answer that was wrong, and whether it still is */
static void
explain(struct worker *w, const char *sql)
{
	PGresult   *result = query(w, say(w, "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) %s", sql));

	for (int i = 0; result && i < PQntuples(result); i++)
		note("plan: %s", PQgetvalue(result, i, 0));
	PQclear(result);
}

/* Two results of one snapshot; both are freed */
void
settle_results(struct worker *w, const struct question *q, const char *way, PGresult *first, PGresult *rest, PGresult *t)
{
	struct rows answer = room_for(PQntuples(first) + (rest ? PQntuples(rest) : 0));
	struct rows truth = room_for(PQntuples(t));

	for (int i = 0; i < PQntuples(first); i++)
		add_rows(w, &answer, first, i, 0);
	for (int i = 0; rest && i < PQntuples(rest); i++)
		add_rows(w, &answer, rest, i, 0);
	for (int i = 0; i < PQntuples(t); i++)
		add_rows(w, &truth, t, i, 0);
	if (!settle(w, q, way, &answer, &truth))
		explain(w, q->answer);
}

/*
 * Time for others to change what a snapshot sees; on a standby longer, where
 * whole changes of definitions are replayed meanwhile
 */
static void
long_nap(struct worker *w)
{
	if (w->role == STANDBY)
		nap(w, 0, chance(w, 25) ? 3000 : 100);
	else
		nap(w, 0, chance(w, 15) ? 2000 : 60);
}

/* The answer comes from a cursor, bit by bit, while others go on */
static void
ask_by_cursor(struct worker *w, const struct question *q)
{
	PGresult   *first = NULL;
	PGresult   *rest = NULL;
	PGresult   *truth = NULL;
	bool		truth_between = chance(w, 50);

	if (!run(w, "DECLARE c NO SCROLL CURSOR FOR %s", q->answer))
		return;
	first = query(w, say(w, "FETCH %d FROM c", between(w, 1, 20)));
	if (first && truth_between)
		truth = query(w, q->truth);
	long_nap(w);
	if (first)
		rest = query(w, "FETCH ALL FROM c");
	if (rest && !truth_between)
		truth = query(w, q->truth);
	if (rest && truth)
		settle_results(w, q, "a cursor", first, rest, truth);
	PQclear(first);
	PQclear(rest);
	PQclear(truth);
	if (w->conn && PQtransactionStatus(w->conn) == PQTRANS_INTRANS)
		run(w, "CLOSE c");
}

/* Both queries in one snapshot, one behind the other */
static void
ask_in_snapshot(struct worker *w, const struct question *q)
{
	bool		truth_first = chance(w, 50);
	PGresult   *one = query(w, truth_first ? q->truth : q->answer);
	PGresult   *two;

	if (one == NULL)
		return;
	long_nap(w);
	two = query(w, truth_first ? q->answer : q->truth);
	if (two)
		settle_results(w, q, truth_first ? "one snapshot, the truth first" : "one snapshot",
					   truth_first ? two : one, NULL, truth_first ? one : two);
	PQclear(one);
	PQclear(two);
}

/*
 * A statement is planned with one snapshot and run with another, unless its
 * transaction has one.  A partition that is detached concurrently in between
 * is in the plan, and no partition for a function.
 */
static bool
needs_snapshot(const struct question *q)
{
	return strncmp(q->kind, "gpuvec_", strlen("gpuvec_")) == 0 &&
		strstr(q->answer, parted_table()->name) != NULL;
}

/*
 * Ask within a transaction, whose snapshot may change from statement to
 * statement
 */
void
ask_inside(struct worker *w, const struct question *q, bool snapshot)
{
	if (w->conn == NULL || (!snapshot && needs_snapshot(q)))
		return;
	if (!snapshot || chance(w, 20))
		ask_in_one_statement(w, q);
	else if (chance(w, 40))
		ask_by_cursor(w, q);
	else
		ask_in_snapshot(w, q);
}

/* Ask outside of a transaction: without one, or in one of its own */
void
ask(struct worker *w, const struct question *q)
{
	const char *isolation = w->role == PRIMARY && chance(w, 30) ? "SERIALIZABLE" : "REPEATABLE READ";

	if (chance(w, w->role == PRIMARY ? 40 : 20) && !needs_snapshot(q))
		ask_in_one_statement(w, q);
	else if (begin(w, isolation))
	{
		ask_inside(w, q, true);
		if (w->conn)
			end(w, chance(w, 70));
	}
}
