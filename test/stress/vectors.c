/*
 * vectors.c
 *	  The embedding table: what is written to it, and questions about it.
 *
 * Elements are small integers, so that sums are exact in any order, and in
 * float16.
 */
#include "stress.h"

#include <stdio.h>
#include <string.h>

#define WIDTH		8
#define TABLE		"'stress.vectors', 'key', 'v'"

/* The number of different keys; a third of them may have no row */
static int
n_keys(void)
{
	return options.rows / 4 < 50 ? 50 : options.rows / 4;
}

bool
make_vectors(struct worker *w)
{
	return run(w, "CREATE TABLE stress.vectors (key bigint PRIMARY KEY, n int, v real[]) WITH (fillfactor = 50);"
			   "INSERT INTO stress.vectors SELECT i, i, ARRAY(SELECT ((i * j * 31 + i * i * j) %% 7 - 3)::real FROM generate_series(1, %d) j) FROM generate_series(1, %d) i;"
			   "ANALYZE stress.vectors", WIDTH, n_keys() * 2 / 3);
}

/*
 * Some keys, as an array in SQL; some come twice, some have no row, or are
 * null
 */
static const char *
some_keys(struct worker *w, bool nulls)
{
	const char *keys = "";

	for (int i = between(w, 0, 30); i > 0; i--)
		keys = say(w, "%s%s%s", keys, *keys ? "," : "", nulls && chance(w, 3) ? "NULL" : say(w, "%d", between(w, 1, n_keys())));
	return say(w, "'{%s}'::int8[]", keys);
}

static const char *
some_vector(struct worker *w)
{
	const char *elements = "";

	for (int i = 0; i < WIDTH; i++)
		elements = say(w, "%s%s%d", elements, i ? "," : "", between(w, -4, 4));
	return say(w, "'{%s}'", elements);
}

/* Change the embedding table in some way */
void
change_vectors(struct worker *w)
{
	int			key = between(w, 1, n_keys());
	const char *vector = chance(w, 3) ? "NULL" : some_vector(w);

	switch (between(w, 0, 6))
	{
		case 0:
			run(w, "INSERT INTO stress.vectors VALUES (%d, 0, %s) ON CONFLICT (key) DO UPDATE SET v = excluded.v", key, vector);
			break;
		case 1:
			run(w, "UPDATE stress.vectors SET v = %s WHERE key BETWEEN %d AND %d", vector, key, key + between(w, 0, 5));
			break;
		case 2:
			run(w, "UPDATE stress.vectors SET n = n + 1 WHERE key %% %d = 1", between(w, 2, 50));
			break;
		case 3:
			run(w, "DELETE FROM stress.vectors WHERE key BETWEEN %d AND %d", key, key + between(w, 0, 20));
			break;
		case 4:
			run(w, "UPDATE stress.vectors SET key = key + %d WHERE key = %d AND NOT EXISTS (SELECT FROM stress.vectors WHERE key = %d)",
				n_keys(), key, key + n_keys());
			break;
		case 5:
			run(w, "SELECT gpuvec_ensure_keys(%s, ARRAY(SELECT generate_series(%d, %d)), %d, 'zeros')", TABLE, key, key + between(w, 0, 30), WIDTH);
			break;
		default:
			run(w, "SELECT gpuvec_apply_grad(%s, ARRAY[%d, %d, %d], %s::float8[] || %s || %s, 'sgd', 1)", TABLE,
				key, between(w, 1, n_keys()), key, some_vector(w), some_vector(w), some_vector(w));
	}
	count(WRITES);
}

/* Vectors by their keys */
static struct question
gather(struct worker *w)
{
	const char *keys = some_keys(w, true);

	return (struct question) {"gather",
		say(w, "SELECT 0 AS grp, coalesce(key, -1)::text AS key, found || ' ' || coalesce(embedding::text, '') AS id FROM gpuvec_gather(%s, %s) ORDER BY ordinality",
			TABLE, keys),
		say(w, "SELECT 0 AS grp, coalesce(k, -1)::text AS key, (v IS NOT NULL) || ' ' || coalesce(v::text, '') AS id "
			"FROM unnest(%s) WITH ORDINALITY u(k, o) LEFT JOIN stress.vectors ON key = k ORDER BY o", keys),
		SAME_LIST, 0, 0};
}

/* The sum or mean of the vectors of an array of keys, by plain SQL */
static const char *
pooled(struct worker *w, const char *keys, bool mean, bool skip)
{
	const char *divisor = !mean ? "1" : skip ? "count(v)" : say(w, "cardinality(%s)", keys);

	return say(w, "(SELECT CASE WHEN EXISTS (SELECT FROM stress.vectors WHERE v IS NOT NULL) THEN array_agg(s ORDER BY i) END FROM "
			   "(SELECT i, (CASE WHEN %s = 0 THEN 0 ELSE coalesce(sum(v[i]), 0)::real / (%s)::real END)::real AS s "
			   "FROM generate_series(1, %d) i LEFT JOIN (SELECT v FROM unnest(%s) k JOIN stress.vectors ON key = k) x ON true GROUP BY i) y)",
			   divisor, divisor, WIDTH, keys);
}

static struct question
pool(struct worker *w)
{
	const char *keys = some_keys(w, false);
	bool		mean = chance(w, 50);
	bool		skip = chance(w, 50);

	return (struct question) {"pool",
		say(w, "SELECT 0 AS grp, '' AS key, coalesce(gpuvec_pool(%s, %s, '%s', missing => '%s')::text, 'none') AS id",
			TABLE, keys, mean ? "mean" : "sum", skip ? "skip" : "zero"),
		say(w, "SELECT 0 AS grp, '' AS key, coalesce(%s::text, 'none') AS id", pooled(w, keys, mean, skip)),
		SAME_LIST, 0, 0};
}

/* Bags of as many keys each */
static struct question
pool_batch(struct worker *w)
{
	int			hotness = between(w, 1, 6);
	const char *keys = say(w, "ARRAY(SELECT (i * %d) %% %d FROM generate_series(1, %d) i)::int8[]", between(w, 1, 999), n_keys(), hotness * between(w, 0, 20));
	const char *bag = say(w, "(%s)[(b - 1) * %d + 1:b * %d]", keys, hotness, hotness);

	return (struct question) {"pool batch",
		say(w, "SELECT sample::int AS grp, '' AS key, coalesce(embedding::text, 'none') AS id FROM gpuvec_pool_batch(%s, %s, hotness => %d)", TABLE, keys, hotness),
		say(w, "SELECT b AS grp, '' AS key, coalesce(%s::text, 'none') AS id FROM generate_series(1, cardinality(%s) / %d) b", pooled(w, bag, false, false), keys, hotness),
		SAME_ROWS, 0, 0};
}

static struct question
pool_agg(struct worker *w)
{
	const char *keys = some_keys(w, false);
	int			groups = between(w, 1, 5);

	return (struct question) {"pool aggregate",
		say(w, "SELECT (k %% %d)::int AS grp, '' AS key, coalesce(gpuvec_sum_agg(%s, k)::text, 'none') AS id FROM unnest(%s) k WHERE k IS NOT NULL GROUP BY k %% %d",
			groups, TABLE, keys, groups),
		say(w, "SELECT (k %% %d)::int AS grp, '' AS key, coalesce(%s::text, 'none') AS id FROM "
			"(SELECT k %% %d AS k, array_agg(k) AS bag FROM unnest(%s) k WHERE k IS NOT NULL GROUP BY k %% %d) x",
			groups, pooled(w, "bag", false, false), groups, keys, groups),
		SAME_ROWS, 0, 0};
}

/*
 * The nearest vectors; scores are the same float8 operations in the same
 * order
 */
static struct question
nearest(struct worker *w)
{
	const char *metric = one_of(w, (const char *[]) {"ip", "l2", "cosine"}, 3);
	const char *q = say(w, "%s::float8[]", some_vector(w));
	const char *excluded = chance(w, 30) ? some_keys(w, false) : "'{}'::int8[]";
	int			k = chance(w, 80) ? between(w, 1, 40) : 5000;
	/* + 0: the sum of negative zeros is one in SQL */
	const char *score = strcmp(metric, "ip") == 0 ? "qv + 0" : strcmp(metric, "l2") == 0 ? "0 - sqrt(d)" :
		"CASE WHEN qq * vv = 0 THEN 0 ELSE qv / sqrt(qq * vv) + 0 END";

	return (struct question) {"nearest vectors",
		say(w, "SELECT 0 AS grp, score::text AS key, rank || ' ' || key AS id FROM gpuvec_nearest(%s, %s, %d, '%s', %s) ORDER BY rank", TABLE, q, k, metric, excluded),
		say(w, "SELECT 0 AS grp, score::text AS key, row_number() OVER (ORDER BY score DESC, key) || ' ' || key AS id FROM (SELECT key, %s AS score FROM stress.vectors, LATERAL "
			"(SELECT sum(a * b) AS qv, sum(a * a) AS qq, sum(b::float8 * b) AS vv, sum((a - b) ^ 2) AS d FROM unnest(%s, v) u (a, b)) x "
			"WHERE v IS NOT NULL AND key NOT IN (SELECT e FROM unnest(%s) e WHERE e IS NOT NULL)) y ORDER BY score DESC, y.key LIMIT %d",
			score, q, excluded, k),
		SAME_LIST, 0, 0};
}

struct question
vectors_question(struct worker *w)
{
	switch (between(w, 0, 4))
	{
		case 0:
			return gather(w);
		case 1:
			return pool(w);
		case 2:
			return pool_batch(w);
		case 3:
			return pool_agg(w);
		default:
			return nearest(w);
	}
}
