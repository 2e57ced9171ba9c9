/*
 * tables.c
 *	  The tables with sets or vectors, and what is written into them.
 *
 * All have the columns (id, kind, n, note, s), so that one writer serves all.
 * The set or vector of a row is s, or an expression of it.  Ids come from a
 * fixed range, so the number of rows stays within bounds whatever writers do.
 */
#include "stress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct table tables[] = {
	{.name = "stress.plain", .type = "idset", .cast = "public.idset", .expression = "s",
	.domain = 150, .longest = 14},
	{.name = "stress.indexed", .type = "idset", .cast = "public.idset", .expression = "s",
		.indexes = {"USING gpuvec (s)"}, .domain = 150, .longest = 14},
	{.name = "stress.words", .type = "text", .cast = "stress.as_words", .expression = "stress.words_set(s)",
		.indexes = {"USING gpuvec (stress.words_set(s))", "USING gpuvec (stress.words_set(s)) WHERE kind = 1"},
	.domain = 100, .longest = 12},
	{.name = "stress.arrays", .type = "int[]", .cast = "stress.as_array", .expression = "stress.array_set(s)",
		.indexes = {"USING gpuvec (stress.array_set(s))", "USING gpuvec (stress.array_set(s)) WHERE stress.wanted(kind)"},
	.domain = 100, .longest = 12},
	{.name = "stress.partial", .type = "idset", .cast = "public.idset", .expression = "s",
		.indexes = {"USING gpuvec (s) WHERE kind = 1", "USING gpuvec (s) WHERE stress.wanted(kind)", "USING gpuvec (s)"},
	.domain = 120, .longest = 12},
	{.name = "stress.parted", .type = "idset", .cast = "stress.wide_set", .expression = "s", .wide = true,
	.indexes = {"USING gpuvec (s)"}, .domain = 100, .longest = 12, .partitioned = true},
	{.name = "stress.longs", .type = "idset", .cast = "stress.wide_set", .expression = "s", .wide = true,
	.indexes = {"USING gpuvec (s)"}, .domain = 2, .longest = 5000},
	{.name = "stress.ties", .type = "idset", .cast = "public.idset", .expression = "s",
	.indexes = {"USING gpuvec (s)"}, .domain = 120, .longest = 8, .distinct = 12},
	{.name = "stress.weighted", .type = "idvec", .cast = "stress.as_vector", .expression = "s", .vectors = true,
	.indexes = {"USING gpuvec (s)", "USING gpuvec (s) WHERE kind = 1", "USING gpuvec (s, kind)"}, .domain = 150, .longest = 14},
	{.name = "stress.texts", .type = "text", .cast = "stress.as_words", .expression = "stress.words_vector(s)", .vectors = true,
		.indexes = {"USING gpuvec (stress.words_vector(s))", "USING gpuvec (stress.words_vector(s)) WHERE stress.wanted(kind)"},
	.domain = 80, .longest = 400},
};

const int	n_tables = lengthof(tables);

/*
 * What all tables need.  From seed to seed + 9 the ids are nearly the same.
 */
static const char *const schema_sql =
	"CREATE EXTENSION gpuvec;"
	"CREATE SCHEMA stress;"
	"CREATE FUNCTION stress.words_set(words text) RETURNS public.idset LANGUAGE plpgsql IMMUTABLE STRICT AS"
	" $$ BEGIN RETURN pg_catalog.string_to_array(words, ' ')::int[]::public.idset; END $$;"
	"CREATE FUNCTION stress.array_set(ids int[]) RETURNS public.idset LANGUAGE sql IMMUTABLE AS $$ SELECT ids::public.idset $$;"
	"CREATE FUNCTION stress.as_words(ids int[]) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT array_to_string(ids, ' ') $$;"
	"CREATE FUNCTION stress.as_array(ids int[]) RETURNS int[] LANGUAGE sql IMMUTABLE AS $$ SELECT ids $$;"
	"CREATE FUNCTION stress.wide_set(ids int[]) RETURNS public.idset LANGUAGE sql IMMUTABLE STRICT AS"
	" $$ SELECT ARRAY(SELECT CASE WHEN id > 50 AND id % 3 = 0 THEN id::bigint * 65537 ELSE id END FROM unnest(ids) id)::public.idset $$;"
	"CREATE FUNCTION stress.wanted(kind int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN kind % 2 = 0; END $$;"
	/* weights of both signs, whose sums tie and cancel */
	"CREATE FUNCTION stress.weights(q public.idset) RETURNS public.idvec LANGUAGE sql IMMUTABLE AS $$"
	" SELECT public.idvec(q::int8[], ARRAY(SELECT (ARRAY[-1, 0.5, 2, 0.3, 1])[1 + i % 5]::real FROM unnest(q::int8[]) i ORDER BY i)) $$;"
	/* a vector of ids, which may be there twice: counts and floats that tie */
	"CREATE FUNCTION stress.as_vector(ids int[]) RETURNS public.idvec LANGUAGE sql IMMUTABLE STRICT AS $$"
	" SELECT coalesce(public.idvec_agg(i, (ARRAY[1, 2, 200, 0.5, 0.3, 1e-40])[1 + (i + cardinality(ids)) % 6]), '{}') FROM unnest(ids) i $$;"
	"CREATE FUNCTION stress.words_vector(words text) RETURNS public.idvec LANGUAGE plpgsql IMMUTABLE STRICT AS"
	" $$ BEGIN RETURN stress.as_vector(pg_catalog.string_to_array(words, ' ')::int[]); END $$;"
	/* the same with values of both signs */
	"CREATE FUNCTION stress.turned(v public.idvec) RETURNS public.idvec LANGUAGE sql IMMUTABLE STRICT AS $$"
	" SELECT coalesce(public.idvec_agg(id, CASE WHEN id % 3 = 1 THEN -value ELSE value END), '{}') FROM public.idvec_each(v) $$;"
	"CREATE FUNCTION stress.make_ids(seed bigint, longest int, variety int) RETURNS int[] LANGUAGE sql IMMUTABLE AS $$"
	" SELECT CASE WHEN seed % 29 = 0 THEN '{}' WHEN seed % 31 = 0 THEN NULL ELSE"
	" ARRAY(SELECT floor(((hashint8extended(seed / 10 * 9999 + i, 1) & 65535) / 65536.0) ^ 2 * variety)::int"
	" FROM generate_series(1, 1 + abs(hashint8(seed / 10)::bigint) % longest) i) || (seed % 10 * 20)::int END $$;";

/* The number of different ids of rows in a table */
int
n_ids(const struct table *t)
{
	int			n = (int) ((int64_t) options.rows * t->domain / 100);

	return n < 20 ? 20 : n;
}

/*
 * The partition for rows of a kind: kind 2 has partitions of its own, and in
 * that of kind 3 columns have other numbers
 */
bool
make_partition(struct worker *w, const struct table *t, int kind)
{
	if (kind == 2)
		return run(w, "CREATE TABLE %s_2 PARTITION OF %s FOR VALUES IN (2) PARTITION BY HASH (id);"
				   "CREATE TABLE %s_2_0 PARTITION OF %s_2 FOR VALUES WITH (MODULUS 2, REMAINDER 0) WITH (fillfactor = 50);"
				   "CREATE TABLE %s_2_1 PARTITION OF %s_2 FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
				   t->name, t->name, t->name, t->name, t->name, t->name);
	if (kind == 3)
		return run(w, "CREATE TABLE %s_3 (gone int, s %s, n int, id bigint NOT NULL, note text, kind int NOT NULL);"
				   "ALTER TABLE %s_3 DROP COLUMN gone;"
				   "ALTER TABLE %s ATTACH PARTITION %s_3 FOR VALUES IN (3)", t->name, t->type, t->name, t->name, t->name);
	return run(w, "CREATE TABLE %s_%d PARTITION OF %s FOR VALUES IN (%d) WITH (fillfactor = 50)", t->name, kind, t->name, kind);
}

static bool
make_partitions(struct worker *w, const struct table *t)
{
	for (int kind = 0; kind < N_KINDS; kind++)
		if (!make_partition(w, t, kind))
			return false;
	return true;
}

/* The one table that has partitions */
const struct table *
parted_table(void)
{
	const struct table *t = tables;

	while (!t->partitioned)
		t++;
	return t;
}

/* A table, half of whose ids have rows, and an index of the first kind */
static bool
make_table(struct worker *w, const struct table *t)
{
	if (!run(w, "CREATE TABLE %s (id bigint NOT NULL, kind int NOT NULL, n int, note text, s %s, PRIMARY KEY (%s)) %s",
			 t->name, t->type, t->partitioned ? "id, kind" : "id",
			 t->partitioned ? "PARTITION BY LIST (kind)" : "WITH (fillfactor = 40)"))
		return false;
	if (t->partitioned && !make_partitions(w, t))
		return false;
	return run(w, "INSERT INTO %s SELECT i, i %% 4, i, repeat('x', 40 + i %% 100), %s(stress.make_ids(%s, %d, %d)) FROM generate_series(1, %d, 2) i",
			   t->name, t->cast, t->distinct ? say(w, "i %% %d * 10", t->distinct) : "i",
			   t->longest, t->longest > 100 ? 65536 : 200, n_ids(t)) &&
		run(w, "CREATE INDEX ON %s (kind)", t->name) &&
		(t->indexes[0] == NULL || run(w, "CREATE INDEX ON %s %s", t->name, t->indexes[0])) &&
		run(w, "ANALYZE %s", t->name);
}

/* Who may read all tables, and nothing more */
static bool
make_reader(struct worker *w)
{
	return run(w, "CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA stress TO reader; GRANT SELECT ON ALL TABLES IN SCHEMA stress TO reader");
}

bool
make_tables(struct worker *w)
{
	if (!run(w, "%s", schema_sql))
		return false;
	for (int i = 0; i < n_tables; i++)
		if (!make_table(w, &tables[i]))
			return false;
	return make_vectors(w) && make_views(w) && make_reader(w);
}

/* Some table, for a second or two mostly the same for all threads */
const struct table *
any_table(struct worker *w)
{
	int			busy = (int) ((uint64_t) (now() / 2) * 2654435761 % 1009) % n_tables;

	return &tables[chance(w, 50) ? busy : (int) below(w, n_tables)];
}

/* The same, of those that this thread alone may change the definition of */
const struct table *
my_table(struct worker *w)
{
	const struct table *t;

	do
		t = any_table(w);
	while ((t - tables) % N_KEEPERS != w->share);
	return t;
}

/*
 * One id: small ones are frequent, and sometimes it is the least or the
 * greatest
 */
static int
some_id(struct worker *w, const struct table *t)
{
	uint32_t	variety = t->longest > 100 ? 65536 : 200;

	if (chance(w, 1))
		return chance(w, 50) ? 65535 : 0;
	return below(w, below(w, variety) + 1);
}

/*
 * The ids of a set, in braces: a new one, or one that rows have been made
 * with
 */
const char *
some_ids(struct worker *w, const struct table *t)
{
	int			n = between(w, 0, t->longest > 100 && chance(w, 60) ? 100 : t->longest);
	char	   *text;
	int			at = 0;

	if (t->distinct && chance(w, 90))
		return say(w, "{%d,%d}", t->distinct % 5, (int) below(w, t->distinct));
	text = keep(w, malloc(n * 7 + 3));
	text[at++] = '{';
	for (int i = 0; i < n; i++)
		at += sprintf(text + at, i ? ",%d" : "%d", some_id(w, t));
	strcpy(text + at, "}");
	return text;
}

/* A value for the column s, as SQL */
const char *
row_value(struct worker *w, const struct table *t)
{
	if (chance(w, 3))
		return "NULL";
	if (chance(w, 40))
		return say(w, "%s(stress.make_ids(%d, %d, %d))", t->cast,
				   t->distinct ? (int) below(w, t->distinct) * 10 : between(w, 1, n_ids(t)),
				   t->longest, t->longest > 100 ? 65536 : 200);
	return say(w, "%s('%s'::int[])", t->cast, some_ids(w, t));
}

/* Rows behind VALUES; no id comes twice */
const char *
some_rows(struct worker *w, const struct table *t)
{
	int			n = t->longest > 100 ? 1 : between(w, 1, 12);
	int			id = between(w, 1, n_ids(t));
	char	   *rows = say(w, "%s", "");

	for (int i = 0; i < n; i++)
	{
		rows = say(w, "%s%s(%d, %d, %d, '%.*s', %s)", rows, i ? ", " : "", id, between(w, 0, 3), between(w, 0, 999),
				   between(w, 0, 60), "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy", row_value(w, t));
		id += between(w, 1, 9);
	}
	return rows;
}
