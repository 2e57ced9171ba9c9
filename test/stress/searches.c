/*
 * searches.c
 *	  Questions about tables of sets and of vectors.
 *
 * The answer is an index scan or a search function; the truth calls the
 * functions of operators and measures, which no index serves, and repeats
 * conditions in a way that implies no predicate of an index.
 */
#include "stress.h"

#include <string.h>

struct pair
{
	const char *answer;
	const char *truth;
};

/* The right side of this one names a measure */
#define RANKING "<&>"

/* Distances; by other weights than the query's, what makes these */
static const struct distance
{
	struct pair names;
	const char *weights;
}			distances[] = {
	{{"<->", "idset_braun_blanquet_distance"}, ""},
	{{"<%>", "idset_jaccard_distance"}, ""},
	{{"<=>", "idset_cosine_distance"}, ""},
	{{"<#>", "idset_negative_intersection"}, ""},
	{{"<~>", "idset_hamming_distance"}, ""},
	{{"<#>", "idset_negative_inner_product"}, "stress.weights"},
	{{RANKING, "idset_negative_score"}, ""},
	{{RANKING, "idset_negative_score"}, ""},
};

/* The same of vectors */
static const struct distance vector_distances[] = {
	{{"<%>", "idvec_jaccard_distance"}, ""},
	{{"<=>", "idvec_cosine_distance"}, ""},
	{{"<=>", "idvec_cosine_distance"}, "stress.turned"},
	{{"<#>", "idvec_negative_inner_product"}, ""},
	{{"<#>", "idvec_negative_inner_product"}, "stress.turned"},
};

static const struct pair operators[] = {
	{"@>", "idset_contains"},
	{"&&", "idset_overlaps"},
	{"<@", "idset_contained"},
	{"=", "idset_eq"},
};

static const char *const measures[] = {
	"braun_blanquet", "jaccard", "cosine", "dice", "overlap", "containment", "intersection", "hamming",
	"kulczynski", "tversky(0.7, 0.3)"
};

/* A row of t: the very version, and something of its contents */
#define IDENTITY "t.tableoid::oid || ' ' || t.ctid || ' ' || t.id || ' ' || t.kind || ' ' || coalesce(t.n, -1)"

/* What makes a set of an int[], for queries of a table */
static const char *
maker(const struct table *t)
{
	return t->wide ? t->cast : "idset";
}

/* A query set, as SQL.  As $1 it may be the only parameter of a question. */
static const char *
some_query(struct worker *w, const struct table *t)
{
	int			form = between(w, 0, 9);

	if (t->vectors && form < 7)
		return say(w, "stress.as_vector(%s)", form < 4 ? say(w, "'%s'::int[]", some_ids(w, t)) :
				   say(w, "stress.make_ids(%d, %d, %d)", between(w, 1, n_ids(t)), t->longest, t->longest > 100 ? 65536 : 200));
	if (form < 4)
		return t->wide ? say(w, "%s('%s'::int[])", t->cast, some_ids(w, t)) : say(w, "'%s'::idset", some_ids(w, t));
	if (form < 7)
		return say(w, "%s(stress.make_ids(%d, %d, %d))", maker(t), between(w, 1, n_ids(t)), t->longest, t->longest > 100 ? 65536 : 200);
	if (form < 9 && w->parameter == NULL)
	{
		w->parameter = some_ids(w, t);
		return t->vectors ? "stress.as_vector($1::int[])" : "$1::idset";
	}
	return say(w, "(SELECT %s FROM %s WHERE id = %d ORDER BY kind LIMIT 1)", t->expression, t->name, between(w, 1, n_ids(t)));
}

/* An array of query sets */
static const char *
some_queries(struct worker *w, const struct table *t)
{
	const char *list = "";

	for (int i = between(w, 1, 6); i > 0; i--)
		list = say(w, "%s%s%s", list, *list ? ", " : "",
				   chance(w, 3) ? "NULL" : t->vectors ? say(w, "stress.as_vector('%s'::int[])", some_ids(w, t)) : t->wide && chance(w, 80) ? say(w, "%s('%s'::int[])", t->cast, some_ids(w, t)) :
				   say(w, "'%s'", some_ids(w, t)));
	return say(w, "ARRAY[%s]::%s[]", list, t->vectors ? "idvec" : "idset");
}

/* The score of a set by a measure */
static const char *
score(struct worker *w, const char *measure, const char *q, const char *set)
{
	if (strcmp(measure, "hamming") == 0)
		return say(w, "(-hamming_distance(%s, %s))::float8", q, set);
	if (strcmp(measure, "intersection") == 0)
		return say(w, "intersection_count(%s, %s)::float8", q, set);
	if (strncmp(measure, "tversky", 7) == 0)
		return say(w, "tversky_similarity(%s, %s, 0.7, 0.3)", q, set);
	return say(w, "%s_similarity(%s, %s)", measure, q, set);
}

/* A score that some rows reach */
static const char *
some_bound(struct worker *w, const char *measure)
{
	if (strcmp(measure, "hamming") == 0)
		return say(w, "%d", -between(w, 0, 9));
	if (strcmp(measure, "intersection") == 0)
		return say(w, "%d", between(w, 1, 6));
	return say(w, "0.%d", between(w, 1, 9));
}

/* A condition on the set of a row */
static struct pair
some_search(struct worker *w, const struct table *t)
{
	const struct pair *op = &operators[below(w, lengthof(operators))];
	const char *measure = any_of(w, measures);
	const char *bound = some_bound(w, measure);
	const char *q;

	if (chance(w, 15))
	{
		int			id = below(w, 60);

		return (struct pair) {say(w, "%s @> %d::bigint", t->expression, id),
			say(w, "idset_contains_id(%s, %d::bigint)", t->expression, id)};
	}
	q = some_query(w, t);
	if (chance(w, 40))
		return (struct pair) {say(w, "%s <<->> idset_threshold(%s, %s, '%s')", t->expression, q, bound, measure),
			say(w, "%s >= %s", score(w, measure, q, t->expression), bound)};
	return (struct pair) {say(w, "%s %s %s", t->expression, op->answer, q),
		say(w, "%s(%s, %s)", op->truth, t->expression, q)};
}

/*
 * A condition on the other columns; often one that is a predicate of indexes
 */
static struct pair
some_filter(struct worker *w, const struct table *t)
{
	bool		has_predicate = t->indexes[1] != NULL;
	int			what = has_predicate && chance(w, 70) ? between(w, 0, 1) : between(w, 0, 6);
	int			n = below(w, 20);

	switch (what)
	{
		case 0:
			return (struct pair) {"kind = 1", "kind + 0 = 1"};
		case 1:
			return (struct pair) {"stress.wanted(kind)", "stress.wanted(kind + 0)"};
		case 2:
			return (struct pair) {say(w, "n %% 20 = %d", n), say(w, "n %% 20 = %d", n)};
		case 3:
			return (struct pair) {say(w, "n %% 3 = %d", n % 3), say(w, "n %% 3 = %d", n % 3)};
		default:
			return (struct pair) {"true", "true"};
	}
}

/*
 * ORDER BY distance LIMIT: both queries, for rows in the order of distance
 * from q
 */
static struct pair
nearest_rows(struct worker *w, const struct table *t, const char *q, struct pair filter, int limit, int offset)
{
	const struct distance *distance = t->vectors ? &vector_distances[below(w, lengthof(vector_distances))] :
		&distances[below(w, lengthof(distances))];
	const struct pair *op = &distance->names;
	const char *tail = offset ? say(w, " OFFSET %d", offset) : "";

	if (distance->weights[0])
		q = say(w, "%s(%s)", distance->weights, q);
	if (strcmp(op->answer, RANKING) == 0)
		q = say(w, "idset_ranking(%s, '%s')", q, any_of(w, measures));
	return (struct pair) {
		say(w, "SELECT 0 AS grp, (%s %s %s)::text AS key, " IDENTITY " AS id FROM %s t WHERE %s ORDER BY %s %s %s LIMIT %d%s",
			t->expression, op->answer, q, t->name, filter.answer, t->expression, op->answer, q, limit, tail),
		say(w, "SELECT 0 AS grp, %s(%s, %s)::text AS key, " IDENTITY " AS id FROM %s t WHERE %s ORDER BY %s(%s, %s) FETCH FIRST %d ROWS WITH TIES",
			op->truth, t->expression, q, t->name, filter.truth, op->truth, t->expression, q, offset + limit)};
}

static int
some_limit(struct worker *w)
{
	return chance(w, 70) ? between(w, 1, 30) : chance(w, 70) ? between(w, 30, 400) : 100000;
}

/* The nearest rows by an index */
static struct question
nearest_question(struct worker *w, const struct table *t)
{
	int			limit = some_limit(w);
	int			offset = chance(w, 20) ? between(w, 1, 40) : 0;
	struct pair both = nearest_rows(w, t, some_query(w, t), some_filter(w, t), limit, offset);

	return (struct question) {"nearest", both.answer, both.truth, RANKED, offset, limit};
}

/* The nearest rows among those that a search finds */
static struct question
nearest_found_question(struct worker *w, const struct table *t)
{
	struct pair filter = some_filter(w, t);
	struct pair search = some_search(w, t);
	int			limit = some_limit(w);
	struct pair all = {say(w, "%s AND %s", filter.answer, search.answer), say(w, "%s AND %s", filter.truth, search.truth)};
	struct pair both = nearest_rows(w, t, some_query(w, t), all, limit, 0);

	return (struct question) {"nearest found", both.answer, both.truth, RANKED, 0, limit};
}

/*
 * The nearest rows of each of some sets: the index is scanned again and again
 */
static struct question
nearest_each_question(struct worker *w, const struct table *t)
{
	const char *queries = some_queries(w, t);
	int			limit = between(w, 1, 20);
	struct pair both = nearest_rows(w, t, "q.q", some_filter(w, t), limit, 0);
	const char *from;

	if (chance(w, 30))
		queries = say(w, "ARRAY(SELECT %s FROM %s WHERE id <= 5 ORDER BY id, kind)", t->expression, t->name);
	from = say(w, "SELECT q.o::int AS grp, x.key, x.id FROM unnest(%s) WITH ORDINALITY q(q, o), LATERAL", queries);
	return (struct question) {"nearest of each", say(w, "%s (%s) x", from, both.answer),
		say(w, "%s (%s) x", from, both.truth), RANKED, 0, limit};
}

/* Rows that one or two searches find, or their number, or that of each kind */
static struct question
search_question(struct worker *w, const struct table *t)
{
	struct pair filter = some_filter(w, t);
	struct pair search = some_search(w, t);
	bool		counts = chance(w, 40);
	bool		alone = counts && chance(w, 70);
	bool		groups = counts && chance(w, 50);
	const char *columns = groups ? "0 AS grp, concat(kind, ' ', max(kind)) AS key, count(*)::text AS id" :
		counts ? "0 AS grp, count(*)::text AS key, '' AS id" : "0 AS grp, '' AS key, " IDENTITY " AS id";
	const char *grouping = groups ? "GROUP BY kind" : "";

	/* what the engine may count */
	if (alone)
		filter = (struct pair) {"true", "true"};
	else if (chance(w, 25))
	{
		struct pair other = some_search(w, t);
		const char *word = chance(w, 50) ? "OR" : "AND";

		search.answer = say(w, "(%s %s %s)", search.answer, word, other.answer);
		search.truth = say(w, "(%s %s %s)", search.truth, word, other.truth);
	}
	return (struct question) {"search",
		say(w, "SELECT %s FROM %s t WHERE %s AND %s %s", columns, t->name, filter.answer, search.answer, grouping),
		say(w, "SELECT %s FROM %s t WHERE %s AND %s %s", columns, t->name, filter.truth, search.truth, grouping),
		SAME_ROWS, 0, 0};
}

/* A join: sets of one table are looked for in another */
static struct question
join_question(struct worker *w, const struct table *t)
{
	const struct table *other;
	const struct pair *op = &operators[below(w, lengthof(operators))];
	struct pair filter = some_filter(w, t);
	const char *sets;

	do
		other = any_table(w);
	while (other->vectors);
	sets = say(w, "(SELECT id AS o, %s AS set FROM %s WHERE id <= %d) o", other->expression, other->name, between(w, 1, 12));
	return (struct question) {"join",
		say(w, "SELECT 0 AS grp, o::text AS key, " IDENTITY " AS id FROM %s t JOIN %s ON %s %s o.set WHERE %s",
			t->name, sets, t->expression, op->answer, filter.answer),
		say(w, "SELECT 0 AS grp, o::text AS key, " IDENTITY " AS id FROM %s t JOIN %s ON %s(%s, o.set) WHERE %s",
			t->name, sets, op->truth, t->expression, filter.truth),
		SAME_ROWS, 0, 0};
}

/* An index is asked about the expression that it is made of */
struct question
table_question(struct worker *w, const struct table *t)
{
	int			kind = between(w, 0, 99);

	if (kind < 40 || (t->vectors && kind < 80))
		return nearest_question(w, t);
	if (t->vectors)
		return nearest_each_question(w, t);
	if (kind < 52)
		return nearest_found_question(w, t);
	if (kind < 62)
		return nearest_each_question(w, t);
	if (kind < 92)
		return search_question(w, t);
	return join_question(w, t);
}

/* What a search function is asked for */
struct call
{
	const char *measure;
	const char *k;
	const char *bound;			/* min_score */
	const char *among;			/* a condition on the rows; NULL: none */
	const char *options;		/* arguments behind the query */
	const char *answer_id;		/* what is returned of a row */
	const char *truth_id;
};

static struct call
some_call(struct worker *w, const struct table *t)
{
	struct call call;

	call.measure = any_of(w, measures);
	call.bound = chance(w, 40) ? some_bound(w, call.measure) : "NULL";
	call.k = strcmp(call.bound, "NULL") != 0 && chance(w, 25) ? "NULL" : say(w, "%d", some_limit(w));
	call.among = !t->partitioned && chance(w, 25) ? say(w, "n %% %d = 1", between(w, 2, 40)) : NULL;
	call.options = say(w, "%s, '%s', %s%s", call.k, call.measure, call.bound,
					   call.among ? say(w, ", ARRAY(SELECT ctid FROM %s WHERE %s)", t->name, call.among) : "");
	return call;
}

/*
 * The ranking of a table by plain SQL; from has queries q.q and their numbers
 * q.o
 */
static const char *
ranking(struct worker *w, const struct table *t, const char *column, const struct call *call, const char *from)
{
	const char *set = say(w, "t.%s", column);
	const char *scored = say(w, "SELECT t.tableoid AS source, t.ctid AS tid, t.id, t::text AS row, %s AS score, intersection_count(q.q, %s) AS common FROM %s t%s%s",
							 score(w, call->measure, "q.q", set), set, t->name, call->among ? " WHERE " : "", call->among ? call->among : "");
	bool		hamming = strcmp(call->measure, "hamming") == 0;

	return say(w, "SELECT q.o::int AS grp, x.score::text AS key, %s AS id FROM %s, LATERAL "
			   "(SELECT row_number() OVER (ORDER BY score DESC, source, tid) AS rank, y.* FROM (%s) y WHERE %s AND score >= coalesce(%s, score)) x "
			   "WHERE x.rank <= coalesce(%s, x.rank) ORDER BY q.o, x.rank",
			   call->truth_id, from, scored, hamming ? "score IS NOT NULL" : "common > 0", call->bound, call->k);
}

/* gpuvec_topk and its kin */
struct question
function_question(struct worker *w, const struct table *t, const char *column)
{
	struct call call = some_call(w, t);
	bool		batch = chance(w, 30);
	bool		rows = chance(w, 30);
	bool		join = !rows && chance(w, 40);
	const char *q = batch ? some_queries(w, t) : some_query(w, t);
	const char *name = say(w, "gpuvec_topk%s%s", batch ? "_batch" : "", rows ? "_rows" : "");
	const char *base = rows ? say(w, "NULL::%s", t->name) : say(w, "'%s'", t->name);
	const char *from;

	call.answer_id = rows ? "f.rank || ' ' || (f.item).id || ' ' || md5(f.item::text) || ' ' || f.common" :
		join ? "f.rank || ' ' || f.source::oid || ' ' || f.tid || ' ' || f.common || ' ' || t.id || ' ' || md5(t::text)" :
		"f.rank || ' ' || f.source::oid || ' ' || f.tid || ' ' || f.common";
	call.truth_id = rows ? "x.rank || ' ' || x.id || ' ' || md5(x.row) || ' ' || x.common" :
		join ? "x.rank || ' ' || x.source || ' ' || x.tid || ' ' || x.common || ' ' || x.id || ' ' || md5(x.row)" :
		"x.rank || ' ' || x.source || ' ' || x.tid || ' ' || x.common";
	from = batch ? say(w, "unnest(%s) WITH ORDINALITY q(q, o)", q) : say(w, "(SELECT %s AS q, 0 AS o) q", q);
	return (struct question) {name,
		say(w, "SELECT %s AS grp, f.score::text AS key, %s AS id FROM %s(%s, '%s', %s, %s) f%s ORDER BY %sf.rank",
			batch ? "f.query" : "0", call.answer_id, name, base, column, q, call.options,
			join ? say(w, " JOIN %s t ON t.tableoid = f.source AND t.ctid = f.tid", t->name) : "", batch ? "f.query, " : ""),
		ranking(w, t, column, &call, from),
		SAME_LIST, 0, 0};
}

/* A question about any table, that is searched in any way */
struct question
any_question(struct worker *w)
{
	const struct table *t = any_table(w);

	if (chance(w, 12))
		return vectors_question(w);
	if (chance(w, 5))
		return views_question(w);
	if (strcmp(t->type, "idset") == 0 && chance(w, 35))
		return function_question(w, t, "s");
	return table_question(w, t);
}
