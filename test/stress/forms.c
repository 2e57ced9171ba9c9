/*
 * forms.c
 *	  Rare forms of the same search: --forms.
 *
 * A search of a table with a filter column of each type is asked in many
 * shapes (shapes[]), and run in many ways (ways[]), by any comparison of its
 * columns, also with values and arrays of other types.  The truth is the same
 * statement in the same snapshot, with index scans switched off.
 *
 * Some shapes stop early (LIMIT) before a row for which the condition divides
 * by zero.  An index scan may be ahead of the executor, but must not fail for
 * such a row: if the statement succeeds with gpuvec.join_rows = 1, so it does
 * by default.
 */
#include "stress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DOCS			3000
#define INDEXED			5
#define QUERIES			60
#define DIVISION_BY_ZERO "22012"

/*
 * One of a few values in some rows, and in others one of its own: the planner
 * makes no index condition of one that most rows satisfy
 */
#define FEW(of) "(CASE WHEN i % 9 < 2 THEN i / 9 % " #of " ELSE 100 + i END)"

/*
 * A filter column, the types that its operators compare it with, and the
 * value of a row, by its number
 */
struct column
{
	const char *name;
	const char *type;
	const char *others[3];
	const char *of_row;
};

static const struct column columns[] = {
	{"i2", "int2", {"int2", "int4", "int8"}, "(" FEW(13) " % 9999)::int2"},
	{"i4", "int4", {"int4", "int2", "int8"}, "i % 11 - 3"},
	{"i8", "int8", {"int8", "int4", "int2"}, FEW(7) " - 3"},
	{"f4", "float4", {"float4", "float8"}, "CASE WHEN i % 97 = 0 THEN 'NaN' ELSE " FEW(13) " + 0.5 END"},
	{"f8", "float8", {"float8", "float4"}, FEW(13) " + 0.5"},
	{"nu", "numeric", {"numeric"}, FEW(9) " + 0.5"},
	{"da", "date", {"date", "timestamp", "timestamptz"}, "'2020-01-01'::date + " FEW(13)},
	{"ts", "timestamp", {"timestamp", "date", "timestamptz"}, "'2020-01-01'::timestamp + " FEW(13) " * interval '12 hours'"},
	{"tz", "timestamptz", {"timestamptz", "date", "timestamp"}, "'2020-01-01'::timestamptz + " FEW(13) " * interval '1 day'"},
	{"bo", "bool", {"bool"}, "i % 3 = 0"},
	{"tx", "text", {"text"}, "(ARRAY['', 'a', 'ab', 'abcdefgh', 'abcdefghi', 'abcdefghj', 'b', NULL])[i % 8 + 1]"},
	{"bp", "char(4)", {"bpchar"}, "(ARRAY['', 'a', 'ab', 'abcd', 'b'])[i % 5 + 1]"},
	{"uu", "uuid", {"uuid"}, "('00000000-0000-0000-0000-00000000000' || i % 10)::uuid"},
	{"en", "forms.mood", {"forms.mood"}, "('m' || i % 5)::forms.mood"},
};

/*
 * Filter columns of the index of each table forms.docs_N.  A table has no
 * other index, or the planner would take one with fewer columns.
 */
static const uint8_t indexed[][INDEXED] = {
	{1, 0, 3, 6, 10}, {1, 4, 7, 11, 2}, {1, 2, 5, 8, 9}, {1, 12, 13, 4, 3}, {1, 8, 6, 7, 0},
};

static const char *const distances[] = {"<->", "<%>", "<=>", "<#>", "<~>"};
static const char *const searches[] = {"&&", "&&", "&&", "@>", "<@", "="};
static const char *const comparisons[] = {"=", "<", "<=", ">", ">="};

enum condition
{
	NO_CONDITION,
	COMPARISON,
	COMMUTED,
	ARRAY_OF_VALUES,
	BETWEEN_VALUES,
	NULL_TEST,
	OF_OUTER_ROW,				/* compares with a column of the outer row */
	N_CONDITIONS
};

/* All that is chosen about a statement */
struct form
{
	int			shape;
	int			table;
	const struct column *column;
	enum condition condition;
	const char *value_type;		/* of the value; of an array's elements */
	const char *compare;
	const char *value;			/* as SQL */
	const char *upper;			/* of BETWEEN */
	const char *distance;
	const char *search;
	const char *query;			/* as SQL */
	const char *more;			/* another condition, or an empty string */
	int			limit;			/* of the rows of a search */
	int			outer;			/* rows of the other table */
	int			stop;			/* LIMIT around all */
	bool		fails_behind;	/* a row that is behind the LIMIT divides by zero */
};

/* How a parameter is written: as a literal, or $1 and $2 */
struct words
{
	const char *query;
	const char *value;
	const char *limit;			/* "LIMIT n", or with all ties */
};

/* A value of a type, as SQL; null sometimes */
static const char *
some_value(struct worker *w, const char *type)
{
	int			v = between(w, 0, 13);

	if (chance(w, 2))
		return say(w, "NULL::%s", type);
	if (strncmp(type, "int", 3) == 0)
		return say(w, "(%d)::%s", v - 2, type);
	if (strncmp(type, "float", 5) == 0 || strcmp(type, "numeric") == 0)
		return chance(w, 5) ? say(w, "'NaN'::%s", type) : say(w, "%d.%d::%s", v, chance(w, 70) ? 5 : 0, type);
	if (strcmp(type, "date") == 0)
		return say(w, "'2020-01-%02d'::date", v + 1);
	if (strncmp(type, "timestamp", 9) == 0)
		return say(w, "'2020-01-%02d %s'::%s", v + 1, chance(w, 70) ? "00:00" : "12:00", type);
	if (strcmp(type, "bool") == 0)
		return v % 2 ? "true" : "false";
	if (strcmp(type, "uuid") == 0)
		return say(w, "'00000000-0000-0000-0000-00000000000%d'::uuid", v % 10);
	if (strcmp(type, "forms.mood") == 0)
		return say(w, "'m%d'::forms.mood", v % 5);
	return say(w, "'%.*s'::%s", v % 10, "abcdefghi", type);
}

/* An array of some values, rarely an empty one */
static const char *
some_array(struct worker *w, const char *type)
{
	const char *list = "";

	for (int i = between(w, 0, 6); i > 0; i--)
		list = say(w, "%s%s%s", list, *list ? ", " : "", some_value(w, type));
	return say(w, "ARRAY[%s]::%s[]", list, type);
}

static const char *
some_set(struct worker *w)
{
	const char *list = "";

	for (int i = between(w, 0, 6); i > 0; i--)
		list = say(w, "%s%s%d", list, *list ? "," : "", (int) below(w, below(w, 60) + 1));
	return say(w, "'{%s}'::idset", list);
}

/* The condition on the filter column */
static const char *
condition_sql(struct worker *w, const struct form *f, const struct words *words)
{
	const char *name = f->column->name;

	switch (f->condition)
	{
		case COMPARISON:
			return say(w, "d.%s %s %s", name, f->compare, words->value);
		case COMMUTED:
			return say(w, "%s %s d.%s", words->value, f->compare, name);
		case ARRAY_OF_VALUES:
			return say(w, "d.%s %s ANY (%s)", name, f->compare, words->value);
		case BETWEEN_VALUES:
			return say(w, "d.%s BETWEEN %s AND %s", name, words->value, f->upper);
		case NULL_TEST:
			return say(w, "d.%s IS %sNULL", name, f->limit % 2 ? "NOT " : "");
		case OF_OUTER_ROW:
			return say(w, "d.i4 = o.n %% 9 + 0 / (o.n - %d)", f->fails_behind ? f->outer : -1);
		default:
			return "true";
	}
}

/* The rows of a search in the order of their distances, as "id, dist" */
static const char *
nearest_sql(struct worker *w, const struct form *f, const struct words *words, const char *query)
{
	return say(w, "SELECT d.id, d.s %s %s AS dist FROM forms.docs_%d d WHERE %s%s ORDER BY d.s %s %s %s",
			   f->distance, query, f->table, condition_sql(w, f, words), f->more, f->distance, query, words->limit);
}

/* That of each outer row */
static const char *
each_sql(struct worker *w, const struct form *f, const struct words *words)
{
	return say(w, "forms.queries o, LATERAL (%s) x WHERE o.n <= %d", nearest_sql(w, f, words, "o.s"), f->outer);
}

static const char *
rows_sql(struct worker *w, const struct form *f, const struct words *words)
{
	return say(w, "SELECT 0 AS grp, x.dist::text AS key, x.id::text AS id FROM (%s) x", nearest_sql(w, f, words, words->query));
}

static const char *
cte_sql(struct worker *w, const struct form *f, const struct words *words)
{
	return say(w, "WITH x AS %sMATERIALIZED (%s) SELECT 0 AS grp, x.dist::text AS key, x.id::text AS id FROM x",
			   f->limit % 2 ? "" : "NOT ", nearest_sql(w, f, words, words->query));
}

static const char *
subquery_sql(struct worker *w, const struct form *f, const struct words *words)
{
	return say(w, "SELECT 0 AS grp, x.dist::text AS key, x.id::text AS id FROM (%s) x",
			   nearest_sql(w, f, words, say(w, "(SELECT s FROM forms.queries WHERE n = %d)", f->outer)));
}

static const char *
lateral_sql(struct worker *w, const struct form *f, const struct words *words)
{
	return say(w, "SELECT o.n AS grp, x.dist::text AS key, x.id::text AS id FROM %s", each_sql(w, f, words));
}

static const char *
aggregate_sql(struct worker *w, const struct form *f, const struct words *words)
{
	return say(w, "SELECT o.n AS grp, count(*) || ' ' || coalesce(max(x.dist), 0) AS key, '' AS id FROM %s GROUP BY o.n ORDER BY o.n LIMIT %d",
			   each_sql(w, f, words), f->stop);
}

static const char *
distinct_sql(struct worker *w, const struct form *f, const struct words *words)
{
	return say(w, "SELECT DISTINCT ON (o.n) o.n AS grp, x.dist::text AS key, '' AS id FROM %s ORDER BY o.n, x.dist LIMIT %d",
			   each_sql(w, f, words), f->stop);
}

static const char *
window_sql(struct worker *w, const struct form *f, const struct words *words)
{
	return say(w, "SELECT grp, key, '' AS id FROM (SELECT o.n AS grp, row_number() OVER (PARTITION BY o.n ORDER BY x.dist) || ' ' || x.dist AS key FROM %s ORDER BY o.n, x.dist LIMIT %d) y",
			   each_sql(w, f, words), f->stop);
}

static const char *
stopped_sql(struct worker *w, const struct form *f, const struct words *words)
{
	return say(w, "SELECT n AS grp, dist::text AS key, '' AS id FROM (SELECT o.n, x.dist FROM %s ORDER BY o.n, x.dist LIMIT %d) y",
			   each_sql(w, f, words), f->stop);
}

static const char *
scalar_sql(struct worker *w, const struct form *f, const struct words *words)
{
	return say(w, "SELECT o.n AS grp, (SELECT count(*) || ' ' || max(x.dist) FROM (%s) x) AS key, '' AS id FROM forms.queries o WHERE o.n <= %d",
			   nearest_sql(w, f, words, "o.s"), f->outer);
}

static const char *
search_sql(struct worker *w, const struct form *f, const struct words *words)
{
	return say(w, "SELECT 0 AS grp, '' AS key, d.id::text AS id FROM forms.docs_%d d WHERE %s%s AND d.s %s %s",
			   f->table, condition_sql(w, f, words), f->more, f->search, words->query);
}

static const char *
semi_join_sql(struct worker *w, const struct form *f, const struct words *words)
{
	return say(w, "SELECT 0 AS grp, '' AS key, o.n::text AS id FROM forms.queries o WHERE o.n <= %d AND %sEXISTS (SELECT FROM forms.docs_%d d WHERE %s%s AND d.s %s o.s)",
			   f->outer, f->limit % 3 ? "" : "NOT ", f->table, condition_sql(w, f, words), f->more, f->search);
}

static const char *
in_sql(struct worker *w, const struct form *f, const struct words *words)
{
	return say(w, "SELECT 0 AS grp, '' AS key, e.id::text AS id FROM forms.docs_%d e WHERE e.i2 = 3 AND e.id IN (SELECT d.id FROM forms.docs_%d d WHERE %s%s AND d.s %s %s)",
			   f->table, f->table, condition_sql(w, f, words), f->more, f->search, words->query);
}

static const char *
union_sql(struct worker *w, const struct form *f, const struct words *words)
{
	const char *search = search_sql(w, f, words);

	return say(w, "%s UNION ALL %s", search, search);
}

/* The first rows of a search in the order of the filter column */
static const char *
first_sql(struct worker *w, const struct form *f, const struct words *words, const char *query)
{
	static const char *const orders[] = {"", "DESC", "DESC NULLS LAST", "NULLS FIRST"};
	const char *name = f->column->name;
	const char *behind = f->condition == COMPARISON && f->limit % 3 == 0 ?
		say(w, " AND (d.%s, d.id) %s (%s, %d)", name, f->limit % 2 ? "<" : ">=", words->value, f->limit * 50) : "";

	return say(w, "SELECT d.%s AS k, d.id FROM forms.docs_%d d WHERE %s%s%s AND d.s && %s ORDER BY d.%s %s, d.id %s",
			   name, f->table, condition_sql(w, f, words), f->more, behind, query, name, orders[f->limit % lengthof(orders)], words->limit);
}

static const char *
first_rows_sql(struct worker *w, const struct form *f, const struct words *words)
{
	return say(w, "SELECT 0 AS grp, row_number() OVER () || ' ' || coalesce(x.k::text, '-') AS key, x.id::text AS id FROM (%s) x",
			   first_sql(w, f, words, words->query));
}

static const char *
first_of_each_sql(struct worker *w, const struct form *f, const struct words *words)
{
	return say(w, "SELECT o.n AS grp, coalesce(x.k::text, '-') AS key, x.id::text AS id FROM forms.queries o, LATERAL (%s) x WHERE o.n <= %d",
			   first_sql(w, f, words, "o.s"), f->outer);
}

/* Rows by the ids of their sets, those that most of them have, or all */
static const char *
ids_sql(struct worker *w, const struct form *f, const struct words *words, const char *search)
{
	const char *order = f->limit % 3 == 0 ? "" : say(w, " ORDER BY n DESC, k %s", words->limit);

	return say(w, "SELECT u.k, 0 AS k2, count(*) AS n, 0 AS low, 0 AS high FROM forms.docs_%d d, unnest(d.s) AS u (k) WHERE %s%s%s GROUP BY u.k%s",
			   f->table, condition_sql(w, f, words), f->more, search, order);
}

/* Groups of rows by one filter column, two, or ids; or all as one group */
static const char *
facets_sql(struct worker *w, const struct form *f, const struct words *words, const char *query)
{
	static const char *const groupings[] = {"GROUP BY 1", "GROUP BY 1", "GROUP BY 1, 2", "GROUP BY 1, 2 HAVING count(*) > 3"};
	const char *name = columns[indexed[f->table][f->limit % INDEXED]].name;
	const char *second = f->limit % 4 < 2 ? "0" : say(w, "d.%s", f->column->name);
	const char *search = f->outer % 4 == 0 ? "" : say(w, " AND d.s %s %s", f->search, query);
	bool		grouped = f->limit % 7 > 0;

	if (f->limit % 5 == 1)
		return ids_sql(w, f, words, search);
	return say(w, "SELECT %s AS k, %s AS k2, count(*) AS n, min(d.i4) AS low, max(d.%s) AS high FROM forms.docs_%d d WHERE %s%s%s %s",
			   grouped ? say(w, "d.%s", name) : "0", grouped ? second : "0", strcmp(f->column->name, "f8") == 0 ? "f8" : "i4",
			   f->table, condition_sql(w, f, words), f->more, search, grouped ? groupings[f->limit % 4] : "");
}

static const char *
facets_of_all_sql(struct worker *w, const struct form *f, const struct words *words)
{
	return say(w, "SELECT 0 AS grp, concat_ws(' ', x.k, '/', x.k2) AS key, concat_ws(' ', x.n, x.low, '-', x.high) AS id FROM (%s) x",
			   facets_sql(w, f, words, words->query));
}

static const char *
facets_of_each_sql(struct worker *w, const struct form *f, const struct words *words)
{
	return say(w, "SELECT o.n AS grp, concat_ws(' ', x.k, '/', x.k2) AS key, concat_ws(' ', x.n, x.low, '-', x.high) AS id FROM forms.queries o, LATERAL (%s) x WHERE o.n <= %d",
			   facets_sql(w, f, words, "o.s"), f->outer);
}

static const struct
{
	const char *name;
	const char *(*sql) (struct worker *w, const struct form *f, const struct words *words);
	enum rule	rule;
	bool		outer;			/* has outer rows, o */
	bool		stops;			/* has a LIMIT around all */
}			shapes[] =
{
	{"rows", rows_sql, RANKED, false, false},
	{"CTE", cte_sql, RANKED, false, false},
	{"subquery parameter", subquery_sql, RANKED, false, false},
	{"lateral", lateral_sql, RANKED, true, false},
	{"aggregate below LIMIT", aggregate_sql, SAME_ROWS, true, true},
	{"DISTINCT ON", distinct_sql, SAME_ROWS, true, true},
	{"window", window_sql, SAME_ROWS, true, true},
	{"lateral below LIMIT", stopped_sql, SAME_ROWS, true, true},
	{"scalar subquery", scalar_sql, SAME_ROWS, true, false},
	{"search", search_sql, SAME_ROWS, false, false},
	{"semi-join", semi_join_sql, SAME_ROWS, true, false},
	{"IN", in_sql, SAME_ROWS, false, false},
	{"UNION ALL", union_sql, SAME_ROWS, false, false},
	{"first by a column", first_rows_sql, SAME_ROWS, false, false},
	{"first of each", first_of_each_sql, SAME_ROWS, true, false},
	{"facets", facets_of_all_sql, SAME_ROWS, false, false},
	{"facets of each", facets_of_each_sql, SAME_ROWS, true, false},
};

/* Comparisons with some value of an array are for "=" mostly */
static void
choose_condition(struct worker *w, struct form *f)
{
	const struct column *c;
	int			n = 1;

	f->table = below(w, lengthof(indexed));
	c = &columns[indexed[f->table][below(w, INDEXED)]];
	while (n < 3 && c->others[n])
		n++;
	f->column = c;
	f->condition = chance(w, 30) ? ARRAY_OF_VALUES : between(w, 0, OF_OUTER_ROW - 1);
	if (shapes[f->shape].outer && chance(w, 40))
		f->condition = OF_OUTER_ROW;
	f->value_type = c->others[below(w, n)];
	f->compare = f->condition == ARRAY_OF_VALUES && chance(w, 80) ? "=" : any_of(w, comparisons);
	f->value = f->condition == ARRAY_OF_VALUES ? some_array(w, f->value_type) : some_value(w, f->value_type);
	f->upper = some_value(w, f->value_type);
}

static struct form
some_form(struct worker *w)
{
	struct form f = {.shape = below(w, lengthof(shapes))};

	choose_condition(w, &f);
	f.distance = any_of(w, distances);
	f.search = any_of(w, searches);
	f.query = some_set(w);
	f.more = chance(w, 20) ? say(w, " AND d.i4 < %d", between(w, -3, 7)) : "";
	f.limit = chance(w, 70) ? between(w, 1, 30) : chance(w, 60) ? between(w, 30, 900) : 100000;
	f.stop = shapes[f.shape].stops ? between(w, 1, 8) : 0;
	f.outer = f.stop ? f.stop + between(w, 2, 12) : between(w, 1, 12);
	f.fails_behind = f.stop && chance(w, 70);
	if (shapes[f.shape].outer && f.limit > 900)
		f.limit = 40;
	return f;
}

/* ---- ways to run a statement ---- */

/* What a way has to know: the statement with parameters, and their values */
struct call
{
	const char *literal;
	const char *with;			/* $1 is the query, $2 the value */
	const char *type;			/* of the value */
	const struct form *form;
};

static PGresult *
run_plain(struct worker *w, const struct call *c)
{
	return query(w, c->literal);
}

/* Several times, so that a generic plan may be the cheapest */
static PGresult *
run_prepared(struct worker *w, const struct call *c)
{
	PGresult   *result = NULL;
	int			times = chance(w, 30) ? 7 : 1;

	if (!run(w, "DEALLOCATE ALL") || !run(w, "PREPARE p (idset, %s) AS %s", c->type, c->with))
		return NULL;
	for (int i = 0; i < times && w->conn; i++)
	{
		PQclear(result);
		result = query(w, say(w, "EXECUTE p(%s, %s)", c->form->query, c->form->value));
		if (result == NULL)
			return NULL;
	}
	return result;
}

static PGresult *
run_generic(struct worker *w, const struct call *c)
{
	return run(w, "SET LOCAL plan_cache_mode = force_generic_plan") ? run_prepared(w, c) : NULL;
}

static PGresult *
run_custom(struct worker *w, const struct call *c)
{
	return run(w, "SET LOCAL plan_cache_mode = force_custom_plan") ? run_prepared(w, c) : NULL;
}

/* As the body of a function */
static PGresult *
run_function(struct worker *w, const struct call *c, const char *language, const char *body)
{
	if (!run(w, "CREATE OR REPLACE FUNCTION pg_temp.f(idset, %s) RETURNS TABLE (grp int, key text, id text) LANGUAGE %s AS $f$ %s $f$",
			 c->type, language, body))
		return NULL;
	return query(w, say(w, "SELECT * FROM pg_temp.f(%s, %s)", c->form->query, c->form->value));
}

static PGresult *
run_sql_function(struct worker *w, const struct call *c)
{
	return run_function(w, c, "sql", c->with);
}

static PGresult *
run_plpgsql(struct worker *w, const struct call *c)
{
	return run_function(w, c, "plpgsql", say(w, "#variable_conflict use_column\nBEGIN RETURN QUERY %s; END", c->with));
}

static PGresult *
run_plpgsql_loop(struct worker *w, const struct call *c)
{
	return run_function(w, c, "plpgsql", say(w, "#variable_conflict use_column\nDECLARE r record; BEGIN FOR r IN %s LOOP"
											 " grp := r.grp; key := r.key; id := r.id; RETURN NEXT; END LOOP; END", c->with));
}

/* Rows are fetched bit by bit; a table takes them together in the end */
static PGresult *
run_cursor(struct worker *w, const struct call *c)
{
	if (!run(w, "CREATE TEMP TABLE fetched (n serial, grp int, key text, id text) ON COMMIT DROP") ||
		!run(w, "DO $do$ DECLARE c %sCURSOR FOR %s; r record; BEGIN OPEN c; LOOP FETCH c INTO r; EXIT WHEN NOT FOUND;"
			 " INSERT INTO fetched (grp, key, id) VALUES (r.grp, r.key, r.id); END LOOP; END $do$",
			 chance(w, 50) ? "NO SCROLL " : "", c->literal))
		return NULL;
	return query(w, "SELECT grp, key, id FROM fetched ORDER BY n");
}

static PGresult *
run_into_table(struct worker *w, const struct call *c)
{
	return run(w, "CREATE TEMP TABLE fetched ON COMMIT DROP AS SELECT row_number() OVER () AS n, x.* FROM (%s) x", c->literal) ?
		query(w, "SELECT grp, key, id FROM fetched ORDER BY n") : NULL;
}

static const struct
{
	const char *name;
	PGresult   *(*run) (struct worker *w, const struct call *c);
}			ways[] =
{
	{"plain", run_plain}, {"prepared", run_prepared}, {"generic plan", run_generic}, {"custom plan", run_custom},
	{"SQL function", run_sql_function}, {"PL/pgSQL", run_plpgsql}, {"PL/pgSQL loop", run_plpgsql_loop},
	{"cursor", run_cursor}, {"into a table", run_into_table},
};

/* Options away from their defaults */
static const char *const form_settings[] = {
	"gpuvec.join_rows = 1", "gpuvec.join_rows = 3", "gpuvec.ahead_rows = 0", "gpuvec.ahead_rows = 3",
	"gpuvec.method = bitset", "gpuvec.method = inverted", "gpuvec.verify = on", "gpuvec.verify = off",
	"enable_hashagg = off", "enable_material = off", "enable_memoize = off", "enable_bitmapscan = off", "enable_indexscan = off",
	"enable_nestloop = off", "enable_hashjoin = off", "work_mem = '64kB'", "cursor_tuple_fraction = 1", "from_collapse_limit = 1",
	"enable_incremental_sort = off", "timezone = 'America/New_York'",
};

static bool
choose_form_settings(struct worker *w)
{
	if (!run(w, "SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off"))
		return false;
	for (int i = between(w, 0, 5); i > 0; i--)
		if (!run(w, "SET LOCAL %s", any_of(w, form_settings)))
			return false;
	return true;
}

static PGresult *
run_truth(struct worker *w, const char *sql)
{
	if (!run(w, "SET LOCAL enable_indexscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_indexonlyscan = off;"
			 "SET LOCAL enable_seqscan = on; SET LOCAL enable_sort = on; SET LOCAL enable_nestloop = on"))
		return NULL;
	return query(w, sql);
}

/* Did a statement divide by zero that would not if nothing was read ahead? */
static void
judge_division(struct worker *w, const char *sql)
{
	PGresult   *alone;

	run(w, "ROLLBACK TO asked");
	if (!run(w, "SET LOCAL gpuvec.join_rows = 1"))
		return;
	alone = query(w, sql);
	if (alone)
		fail(w, "MISMATCH: division by zero for a row that need not be computed\nanswer: %s", sql);
	PQclear(alone);
}

/*
 * Our own changes before we ask, which nobody else sees.  Up to DOCS + 50
 * others insert ids (change_definitions).
 */
static void
change_before(struct worker *w, int table)
{
	if (chance(w, 50))
		run(w, "INSERT INTO forms.docs_%d SELECT * FROM forms.row_of(%d)", table, DOCS + between(w, 51, 1000000));
	else
		run(w, "UPDATE forms.docs_%d SET note = note + 1, i4 = i4 + %d WHERE id %% 97 = %d", table, between(w, 0, 1), between(w, 0, 96));
}

static void
ask_form(struct worker *w)
{
	struct form f = some_form(w);
	int			way = below(w, lengthof(ways));
	struct words literal = {f.query, f.value, say(w, "LIMIT %d", f.limit)};
	struct words with = {"$1", "$2", literal.limit};
	struct words ties = {f.query, f.value, say(w, "FETCH FIRST %d ROWS WITH TIES", f.limit)};
	bool		ranked = shapes[f.shape].rule == RANKED;
	struct call call = {shapes[f.shape].sql(w, &f, &literal), shapes[f.shape].sql(w, &f, &with),
		f.condition == ARRAY_OF_VALUES ? say(w, "%s[]", f.value_type) : f.value_type, &f};
	struct question q = {say(w, "%s, %s", shapes[f.shape].name, ways[way].name), call.literal,
		ranked ? shapes[f.shape].sql(w, &f, &ties) : call.literal, shapes[f.shape].rule, 0, f.limit};
	PGresult   *answer,
			   *truth = NULL;

	if (!begin(w, "REPEATABLE READ"))
		return;
	if (chance(w, 15))
		change_before(w, f.table);
	if (!choose_form_settings(w) || !run(w, "SAVEPOINT asked"))
		return;
	w->tolerated = DIVISION_BY_ZERO;
	answer = ways[way].run(w, &call);
	if (answer)
		truth = run_truth(w, q.truth);
	else if (strcmp(w->sqlstate, DIVISION_BY_ZERO) == 0 && w->conn)
		judge_division(w, call.literal);
	w->tolerated = NULL;
	if (answer && truth)
		settle_results(w, &q, ways[way].name, answer, NULL, truth);
	PQclear(answer);
	PQclear(truth);
}

/* ---- other questions ---- */

/* A plain statement by indexes, in a transaction, and the truth */
static void
ask_plain(struct worker *w, const char *kind, const char *sql)
{
	struct question q = {kind, sql, sql, SAME_ROWS, 0, 0};
	PGresult   *answer = query(w, sql);
	PGresult   *truth = answer ? run_truth(w, sql) : NULL;

	if (truth)
		settle_results(w, &q, "one snapshot", answer, NULL, truth);
	PQclear(answer);
	PQclear(truth);
	end(w, false);
}

/*
 * Rows of forms.edges that have the id k + 1: full batches but for some rows
 */
static const int edges[] = {63, 127, 255, 1023, 4095, 8191};

/*
 * A question whose answer is about as large as something in the code has room
 * for, with rows of our own behind those that the engine has
 */
static void
ask_edge(struct worker *w)
{
	int			k = chance(w, 50) ? (int) lengthof(edges) - 1 : (int) below(w, lengthof(edges));
	const char *set = one_of(w, (const char *[]) {"'{1,2,3,4,5,6,9}'", say(w, "'{%d}'", k + 1), say(w, "'{%d,9}'", k + 1)}, 3);
	const char *sql = say(w, "SELECT 0 AS grp, '' AS key, id::text AS id FROM forms.edges WHERE s %s",
						  chance(w, 50) ? say(w, "@> %d::bigint", k + 1) : say(w, "&& '{%d}'", k + 1));

	if (!begin(w, "REPEATABLE READ") ||
		!run(w, "INSERT INTO forms.edges SELECT -i, %s FROM generate_series(1, %d) i", set, chance(w, 60) ? 1 : between(w, 2, 4)) ||
		!run(w, "SET LOCAL enable_seqscan = off; SET LOCAL enable_%s = off", chance(w, 60) ? "bitmapscan" : "indexscan"))
		return;
	if (chance(w, 15))
		run(w, "DELETE FROM forms.edges WHERE id IN (%d, -1)", between(w, 1, 60));
	ask_plain(w, "edge", sql);
}

/* A dictionary is renamed while one expression goes on to use it */
static void
ask_dictionary(struct worker *w)
{
	const char *function = chance(w, 50) ? "false" : "true";

	if (begin(w, "READ COMMITTED") &&
		run(w, "CREATE TABLE forms.words_a (id bigint PRIMARY KEY, token text COLLATE \"C\" NOT NULL UNIQUE);"
			"CREATE TABLE forms.words_b (LIKE forms.words_a INCLUDING ALL);"
			"INSERT INTO forms.words_a VALUES (1, 'x'), (2, 'y'); INSERT INTO forms.words_b VALUES (11, 'x'), (12, 'y')") &&
		run(w, "DO $do$ DECLARE d regclass := 'forms.words_a'; got idset; due idset; BEGIN FOR i IN 1..4 LOOP"
			" got := idset_encode(d, '{x,y}'::text[], %s);"
			" EXECUTE format('SELECT idset_agg(id) FROM %%s', d) INTO due;"
			" IF got IS DISTINCT FROM due THEN RAISE 'MISMATCH: %% instead of %%', got, due USING ERRCODE = 'XX001'; END IF;"
			" IF i = %d THEN ALTER TABLE forms.words_a RENAME TO words_c; ALTER TABLE forms.words_b RENAME TO words_a; END IF;"
			" END LOOP; END $do$", function, between(w, 1, 3)))
		atomic_fetch_add(&passed, 1);
	abandon(w);
}

static int
n_many(void)
{
	return options.seconds < 60 ? 20 : 300;
}

/*
 * More tables than anything has places for, with changes of one's own in
 * between
 */
static void
ask_many(struct worker *w)
{
	int			table = below(w, n_many());
	const char *from = say(w, "gpuvec_topk('forms.many_%d', 's', '{1,2,3}', NULL, 'jaccard', 0.1)", table);
	struct question q = {"many tables",
		say(w, "SELECT 0 AS grp, score::text AS key, tid::text AS id FROM %s ORDER BY rank", from),
		say(w, "SELECT 0 AS grp, jaccard_similarity('{1,2,3}', s)::text AS key, ctid::text AS id FROM forms.many_%d"
			" WHERE jaccard_similarity('{1,2,3}', s) >= 0.1 ORDER BY jaccard_similarity('{1,2,3}', s) DESC, ctid", table),
		SAME_LIST, 0, 0};

	run(w, "SELECT set_config(name, '%s', false) FROM pg_settings WHERE name = 'gpuvec.freshness'", chance(w, 50) ? "wal" : "sweep");
	if (chance(w, 20))
		run(w, "INSERT INTO forms.many_%d SELECT i, ARRAY[i %% 5, i %% 3]::idset FROM generate_series(1, %d) i", table, between(w, 1, 5));
	if (chance(w, 5))
		run(w, "DELETE FROM forms.many_%d WHERE id %% 2 = 0; DROP TABLE IF EXISTS forms.noise_%s", table, w->name);
	if (chance(w, 10))
		run(w, "CREATE TABLE IF NOT EXISTS forms.noise_%s AS SELECT 1 AS a", w->name);
	ask(w, &q);
}

/* Forms of an insertion that may meet a conflict */
static const char *const insertions[] = {
	"INSERT INTO forms.pairs VALUES %s ON CONFLICT DO NOTHING",
	"WITH x AS (INSERT INTO forms.pairs VALUES %s ON CONFLICT DO NOTHING RETURNING id) SELECT count(*) FROM x",
	"WITH x AS (INSERT INTO forms.pairs AS p VALUES %s ON CONFLICT (id) DO UPDATE SET kind = excluded.kind, list = p.list || excluded.list RETURNING p.id) SELECT count(*) FROM x",
	"WITH x AS (INSERT INTO forms.pairs VALUES %s ON CONFLICT DO NOTHING RETURNING id) INSERT INTO forms.log SELECT id FROM x",
	"DO $do$ BEGIN INSERT INTO forms.pairs VALUES %s ON CONFLICT DO NOTHING; END $do$",
	"DO $do$ BEGIN PERFORM 1 FROM (SELECT 1) y; WITH x AS (INSERT INTO forms.pairs VALUES %s ON CONFLICT DO NOTHING RETURNING id) INSERT INTO forms.log SELECT id FROM x; END $do$",
};

static void
change_pairs(struct worker *w)
{
	const char *rows = "";
	char	   *sql;

	for (int i = between(w, 1, 4); i > 0; i--)
		rows = say(w, "%s%s(%d, %d, ARRAY[%d, %d])", rows, *rows ? ", " : "", between(w, 1, 30), between(w, 0, 1), between(w, 1, 6), between(w, 1, 6));
	/* one text with one %s */
	if (asprintf(&sql, insertions[below(w, lengthof(insertions))], rows) < 0)
		sql = NULL;
	w->tolerated = "21000";		/* a row that is met twice by DO UPDATE */
	run(w, "%s", keep(w, sql));
	if (chance(w, 40))
		run(w, "DELETE FROM forms.pairs WHERE id %% 3 = %d", between(w, 0, 2));
	w->tolerated = NULL;
}

/* Does an index of an expression with a predicate have what satisfies it? */
static void
ask_pairs(struct worker *w)
{
	const char *sql = say(w, "SELECT 0 AS grp, kind::text AS key, id || ' ' || list::text AS id FROM forms.pairs WHERE kind = 1 AND forms.slow_set(list) && '{%d,%d}'",
						  between(w, 1, 6), between(w, 1, 6));

	if (begin(w, "REPEATABLE READ") && run(w, "SET LOCAL enable_seqscan = off"))
		ask_plain(w, "pairs", sql);
}

/* Definitions change beside statements that are prepared or under way */
static void
change_definitions(struct worker *w)
{
	static const char *const columns_of[] = {"s, i4, f8", "s, i8, tz, da", "s, f8, ts, i2", "s"};
	int			table = below(w, lengthof(indexed));

	w->tolerated = "42P07 42704 23505";
	switch (between(w, 0, 3))
	{
		case 0:
			run(w, "CREATE INDEX more ON forms.docs_%d USING gpuvec (%s)", table, any_of(w, columns_of));
			break;
		case 1:
			run(w, "DROP INDEX forms.more");
			break;
		case 2:
			run(w, "VACUUM forms.%s", one_of(w, (const char *[]) {"docs_0", "docs_3", "pairs"}, 3));
			break;
		default:
			run(w, "INSERT INTO forms.docs_%d SELECT r.* FROM generate_series(%d, %d) i, forms.row_of(i) r ON CONFLICT DO NOTHING",
				table, between(w, 1, 50), between(w, 1, 50) + DOCS);
	}
	w->tolerated = NULL;
}

static void
change_docs(struct worker *w)
{
	int			table = below(w, lengthof(indexed));

	if (chance(w, 60))
		run(w, "UPDATE forms.docs_%d SET note = note + 1, i4 = i4 + 1 WHERE id %% 89 = %d", table, between(w, 0, 88));
	else
		run(w, "DELETE FROM forms.docs_%d WHERE id %% 199 = %d", table, between(w, 0, 198));
}

/* What threads do, in percent: each likes something most */
static const struct
{
	void		(*run) (struct worker *w);
	int			percent[4];
}			steps[] =
{
	{ask_form, {68, 68, 10, 0}}, {ask_edge, {10, 10, 5, 0}}, {ask_dictionary, {4, 4, 0, 0}}, {ask_many, {8, 8, 80, 0}},
	{change_pairs, {1, 1, 0, 70}}, {ask_pairs, {2, 2, 0, 30}}, {change_docs, {6, 6, 5, 0}}, {change_definitions, {1, 1, 0, 0}},
};

void
ask_forms_all_the_time(struct worker *w)
{
	while (!stopping)
	{
		int			dice = below(w, 100);
		int			i = 0;

		if (w->conn == NULL && !session_open(w))
			break;
		for (; dice >= steps[i].percent[w->share % 4]; i++)
			dice -= steps[i].percent[w->share % 4];
		*w->sqlstate = '\0';
		steps[i].run(w);
		abandon(w);
		forget(w);
	}
}

/* ---- the tables ---- */

/* A table with rows of the type forms.docs, and one index */
static bool
make_docs_table(struct worker *w, size_t number)
{
	const char *names = "s";

	for (int i = 0; i < INDEXED; i++)
		names = say(w, "%s, %s", names, columns[indexed[number][i]].name);
	return run(w, "CREATE TABLE forms.docs_%zu (LIKE forms.docs INCLUDING ALL) WITH (fillfactor = 70);"
			   "INSERT INTO forms.docs_%zu SELECT r.* FROM generate_series(1, %d) i, forms.row_of(i) r", number, number, DOCS) &&
		run(w, "CREATE INDEX ON forms.docs_%zu USING gpuvec (%s)", number, names) &&
		run(w, "VACUUM ANALYZE forms.docs_%zu", number);
}

static bool
make_docs(struct worker *w)
{
	const char *definition = "",
			   *values = "";

	for (size_t i = 0; i < lengthof(columns); i++)
	{
		definition = say(w, "%s, %s %s", definition, columns[i].name, columns[i].type);
		values = say(w, "%s, CASE WHEN i %% 23 = %zu THEN NULL ELSE %s END", values, i, columns[i].of_row);
	}
	if (!run(w, "CREATE TABLE forms.docs (id int PRIMARY KEY, note int, s idset%s) WITH (fillfactor = 70)", definition) ||
		!run(w, "CREATE FUNCTION forms.row_of(i int) RETURNS forms.docs LANGUAGE sql STABLE AS $$"
			 " SELECT i, 0, CASE WHEN i %% 31 = 0 THEN NULL WHEN i %% 3 = 0 THEN ARRAY[i %% 60, i %% 7, i %% 5]::idset"
			 " ELSE ARRAY[100 + i %% 300, i %% 41]::idset END%s $$", values))
		return false;
	for (size_t i = 0; i < lengthof(indexed); i++)
		if (!make_docs_table(w, i))
			return false;
	return true;
}

static bool
make_edges(struct worker *w)
{
	const char *list = "ARRAY[9]";

	for (size_t k = 0; k < lengthof(edges); k++)
		list = say(w, "%s || CASE WHEN i <= %d THEN %zu ELSE 9 END", list, edges[k], k + 1);
	return run(w, "CREATE TABLE forms.edges (id int, s idset) WITH (autovacuum_enabled = off);"
			   "INSERT INTO forms.edges SELECT i, (%s)::idset FROM generate_series(1, 9000) i;"
			   "CREATE INDEX ON forms.edges USING gpuvec (s)", list);
}

bool
make_forms(struct worker *w)
{
	return run(w, "CREATE EXTENSION gpuvec; CREATE SCHEMA forms; CREATE TYPE forms.mood AS ENUM ('m0', 'm1', 'm2', 'm3', 'm4');"
			   "CREATE TABLE forms.queries (n int PRIMARY KEY, s idset);"
			   "INSERT INTO forms.queries SELECT i, ARRAY[i %% 7, i %% 41, i %% 60]::idset FROM generate_series(1, %d) i", QUERIES) &&
		make_docs(w) && make_edges(w) &&
		run(w, "CREATE FUNCTION forms.slow_set(list int[]) RETURNS idset LANGUAGE plpgsql IMMUTABLE AS"
			" $$ BEGIN PERFORM pg_catalog.pg_sleep(0.002); RETURN list::public.idset; END $$;"
			"CREATE TABLE forms.pairs (id int PRIMARY KEY, kind int, list int[]); CREATE TABLE forms.log (id int);"
			"CREATE INDEX ON forms.pairs USING gpuvec (forms.slow_set(list)) WHERE kind = 1") &&
		run(w, "DO $do$ BEGIN FOR i IN 0..%d LOOP"
			" EXECUTE format('CREATE TABLE forms.many_%%s (id int, s idset)', i);"
			" EXECUTE format('INSERT INTO forms.many_%%s SELECT i, ARRAY[i %%%% 5, i %%%% 3]::idset FROM generate_series(1, 20) i', i);"
			" IF i %% 3 = 0 THEN EXECUTE format('CREATE INDEX ON forms.many_%%s USING gpuvec (s)', i); END IF;"
			" END LOOP; END $do$", n_many() - 1) &&
		run(w, "VACUUM ANALYZE forms.edges");
}
