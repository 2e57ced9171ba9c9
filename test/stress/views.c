/*
 * views.c
 *	  Materialized views, which lose their data and get it back.
 *
 * One thread alone refreshes them, so it knows whether they have data.
 * Without data whatever reads them must raise the server's error; with data
 * they are searched and compared.  Readers ask them at any time, and take
 * either.
 */
#include "stress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct table set_view = {.name = "stress.view", .type = "idset", .cast = "public.idset", .expression = "s",
.indexes = {"USING gpuvec (s)", "USING gpuvec (s) WHERE kind = 1"}, .domain = 150, .longest = 14};

static const char *const views_sql =
	"CREATE MATERIALIZED VIEW stress.view AS SELECT id, kind, n, note, s FROM stress.indexed WITH NO DATA;"
	"CREATE UNIQUE INDEX ON stress.view (id);"
	"CREATE INDEX ON stress.view USING gpuvec (s);"
	"CREATE MATERIALIZED VIEW stress.view_vectors AS SELECT * FROM stress.vectors WITH NO DATA;"
	"CREATE UNIQUE INDEX ON stress.view_vectors (key);"
	"CREATE MATERIALIZED VIEW stress.view_clicks AS SELECT id AS u, kind AS i, 1 AS w FROM stress.indexed WITH NO DATA";

static const char *const view_names[] = {"stress.view", "stress.view_vectors", "stress.view_clicks"};

#define SETS	"'stress.view', 's'"
#define VECTORS "'stress.view_vectors', 'key', 'v'"
#define CLICKS	"'stress.view_clicks', 'u', 'i'"

/* Each reads the view of the same place in view_names, and no other one */
static const char *const set_statements[] = {
	"SELECT count(*) FROM gpuvec_topk(" SETS ", '{1,11}', 5)",
	"SELECT count(*) FROM gpuvec_topk(" SETS ", '{}', 1)",
	"SELECT count(*) FROM gpuvec_topk(" SETS ", '{1}', 5, 'jaccard', 0.5)",
	"SELECT count(*) FROM gpuvec_topk(" SETS ", '{1}', 5, among => '{\"(0,1)\"}')",
	"SELECT count(*) FROM gpuvec_topk_batch(" SETS ", '{\"{1}\",\"{2,3}\"}', 5)",
	"SELECT count(*) FROM gpuvec_topk_rows(NULL::stress.view, 's', '{1}', 5)",
	"SELECT count(*) FROM gpuvec_topk_batch_rows(NULL::stress.view, 's', '{\"{1}\"}', 5)",
	"SELECT count(*) FROM stress.plain t, gpuvec_topk(" SETS ", t.s, 2)",
	"SELECT id FROM stress.view ORDER BY s <-> '{1,11}' LIMIT 3",
	"SELECT count(*) FROM stress.view WHERE s && '{1}'",
	"SELECT gpuvec_prewarm(" SETS ")",
	NULL
};

static const char *const vector_statements[] = {
	"SELECT gpuvec_prewarm(" VECTORS ")",
	"SELECT count(*) FROM gpuvec_gather(" VECTORS ", '{1,2}')",
	"SELECT count(*) FROM gpuvec_gather(" VECTORS ", '{}')",
	"SELECT count(*) FROM gpuvec_gather_batch(" VECTORS ", '{1,2}', hotness => 1)",
	"SELECT gpuvec_pool(" VECTORS ", '{1}')",
	"SELECT gpuvec_pool(" VECTORS ", '{1}', missing => 'error')",
	"SELECT count(*) FROM gpuvec_pool_batch(" VECTORS ", '{1,2}', hotness => 1)",
	"SELECT gpuvec_sum_agg(" VECTORS ", i) FROM generate_series(1, 3) i",
	"SELECT gpuvec_weighted_sum_agg(" VECTORS ", i, 1) FROM generate_series(1, 3) i",
	"SELECT count(*) FROM gpuvec_nearest(" VECTORS ", '{1,2,3,4,5,6,7,8}', 3)",
	"SELECT count(*) FROM gpuvec_nearest_keys(" VECTORS ", '{1,2}', 3)",
	"SELECT count(*) FROM gpuvec_pool_grad(" VECTORS ", '{1}', '{1,2,3,4,5,6,7,8}')",
	NULL
};

static const char *const click_statements[] = {
	"SELECT count(*) FROM gpuvec_item_neighbors(" CLICKS ", 3, 'w')",
	"SELECT count(*) FROM gpuvec_als_fold_in(" CLICKS ", 'stress.factors', NULL, 'w')",
	"SELECT count(*) FROM gpuvec_als_explain(" CLICKS ", 'stress.factors', 1, 2, 'w')",
	"SELECT gpuvec_als(" CLICKS ", 'stress.factors', 'stress.factors_too', factors => 2)",
	NULL
};

static const char *const *const statements[] = {set_statements, vector_statements, click_statements};

bool
make_views(struct worker *w)
{
	return run(w, "%s", views_sql) &&
		run(w, "CREATE TABLE stress.factors AS SELECT i::bigint AS key, ARRAY[1, i]::real[] AS embedding FROM generate_series(0, 3) i;"
			"CREATE TABLE stress.factors_too (key bigint PRIMARY KEY, embedding real[])");
}

/* The text with another name in place of one */
static const char *
renamed(struct worker *w, const char *text, const char *from, const char *to)
{
	const char *result = "";
	const char *at;

	while ((at = strstr(text, from)) != NULL)
	{
		result = say(w, "%s%.*s%s", result, (int) (at - text), text, to);
		text = at + strlen(from);
	}
	return say(w, "%s%s", result, text);
}

/* A question about a view, which may have no data */
struct question
views_question(struct worker *w)
{
	struct question q;

	w->unpopulated = true;
	if (chance(w, 60))
		return chance(w, 60) ? function_question(w, &set_view, "s") : table_question(w, &set_view);
	q = vectors_question(w);
	q.answer = renamed(w, q.answer, "stress.vectors", "stress.view_vectors");
	q.truth = renamed(w, q.truth, "stress.vectors", "stress.view_vectors");
	return q;
}

/* 1: the view has data; 0: it has none; -1: that is not known */
static int
populated(struct worker *w, const char *view)
{
	const char *state = value_of(w, "SELECT relispopulated FROM pg_class WHERE oid = '%s'::regclass", view);

	return state == NULL ? -1 : *state == 't';
}

/* A statement that reads a view without data */
static void
must_refuse(struct worker *w, const char *sql)
{
	PGresult   *result;

	w->sqlstate[0] = '\0';
	result = query(w, sql);
	if (result)
		fail(w, "a materialized view without data was read: %s", sql);
	else if (strcmp(w->sqlstate, "55000") == 0)
	{
		atomic_fetch_add(&passed, 1);
		count(REFUSALS);
	}
	PQclear(result);
}

static void
refuse_all(struct worker *w, int view)
{
	w->unpopulated = true;
	/* trainings exist for the engine alone, and may find it gone */
	w->tolerated = statements[view] == click_statements ? "53000 53200 58000" : NULL;
	for (int i = 0; statements[view][i] && w->conn; i++)
		if (chance(w, 50))
			must_refuse(w, statements[view][i]);
	w->unpopulated = false;
	w->tolerated = NULL;
}

/* Data comes, is made anew, or goes */
static void
refresh(struct worker *w, const char *view, bool has_data)
{
	bool		concurrently = has_data && strcmp(view, "stress.view_clicks") != 0 && chance(w, 40);

	if (has_data && !concurrently && chance(w, 60))
		run(w, "REFRESH MATERIALIZED VIEW %s WITH NO DATA", view);
	else
		run(w, "REFRESH MATERIALIZED VIEW %s %s", concurrently ? "CONCURRENTLY" : "", view);
}

/* A refresh that is perhaps rolled back, and a question in between */
static void
refresh_in_transaction(struct worker *w, const char *view, bool has_data)
{
	struct question q;

	if (!begin(w, "READ COMMITTED"))
		return;
	refresh(w, view, has_data);
	if (w->conn && PQtransactionStatus(w->conn) == PQTRANS_INTRANS && chance(w, 60))
	{
		q = views_question(w);
		ask_inside(w, &q, false);
		w->unpopulated = false;
	}
	if (w->conn)
		end(w, chance(w, 50));
}

void
refresh_views_all_the_time(struct worker *w)
{
	while (!stopping)
	{
		int			view = below(w, lengthof(view_names));
		int			has_data;

		if ((w->conn == NULL || w->node != node_of(w->role)) && !session_open(w))
			break;
		has_data = populated(w, view_names[view]);
		if (has_data == 0 && chance(w, 60))
			refuse_all(w, view);
		else if (has_data >= 0 && chance(w, 25))
			refresh_in_transaction(w, view_names[view], has_data);
		else if (has_data >= 0)
			refresh(w, view_names[view], has_data);
		abandon(w);
		for (int i = between(w, 0, 4); i > 0 && w->conn; i--)
		{
			struct question q = views_question(w);

			ask(w, &q);
			w->unpopulated = false;
			abandon(w);
			w->parameter = NULL;
		}
		forget(w);
		nap(w, 0, 500);
	}
}

/* When nobody refreshes them any more */
void
check_views(struct worker *w)
{
	for (int i = 0; i < 10 && w->conn; i++)
	{
		struct question q = views_question(w);

		ask(w, &q);
		abandon(w);
		forget(w);
	}
}
