/*
 * maintain.c
 *	  Threads that make and drop indexes, alter tables, and clean them.
 *
 * Each has tables of its own, and is the only one that changes their
 * definitions, so it knows what there is.
 */
#include "stress.h"

#include <string.h>

/* A table with indexes of ours */
static const struct table *
any_indexed(struct worker *w)
{
	const struct table *t;

	do
		t = my_table(w);
	while (t->indexes[0] == NULL);
	return t;
}

static const char *
any_definition(struct worker *w, const struct table *t)
{
	int			n = 0;

	while (n < (int) lengthof(t->indexes) && t->indexes[n])
		n++;
	return t->indexes[below(w, n)];
}

/*
 * One of the table's indexes, first of those that a failed command left;
 * NULL: none
 */
static const char *
any_index(struct worker *w, const struct table *t)
{
	return value_of(w, "SELECT indexrelid::regclass FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam "
					"WHERE a.amname = 'gpuvec' AND i.indrelid = '%s'::regclass ORDER BY indisvalid, random() LIMIT 1", t->name);
}

/* What only tables without partitions have */
static const char *
concurrently(struct worker *w, const struct table *t)
{
	return !t->partitioned && chance(w, 60) ? "CONCURRENTLY" : "";
}

static void
make_index(struct worker *w)
{
	const struct table *t = any_indexed(w);
	const char *n = value_of(w, "SELECT count(*) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam "
							 "WHERE a.amname = 'gpuvec' AND i.indrelid = '%s'::regclass", t->name);

	if (n && n[0] < '3')
		run(w, "CREATE INDEX %s ON %s %s", concurrently(w, t), t->name, any_definition(w, t));
}

static void
drop_index(struct worker *w)
{
	const struct table *t = any_indexed(w);
	const char *index = any_index(w, t);

	if (index)
		run(w, "DROP INDEX %s %s", concurrently(w, t), index);
}

static void
reindex(struct worker *w)
{
	const struct table *t = any_indexed(w);
	const char *index = chance(w, 70) ? any_index(w, t) : NULL;

	if (index)
		run(w, "REINDEX INDEX %s %s", concurrently(w, t), index);
	else if (!t->partitioned)
		run(w, "REINDEX TABLE %s %s", concurrently(w, t), t->name);
}

/* Ask in the transaction that this thread has begun */
static void
ask_here(struct worker *w, const struct table *t)
{
	struct question q = strcmp(t->type, "idset") == 0 && chance(w, 40) ? function_question(w, t, "s") : table_question(w, t);

	ask_inside(w, &q, true);
	w->parameter = NULL;
}

/* A change of definitions between two questions, mostly rolled back */
static void
ask_around(struct worker *w, const struct table *t, const char *change)
{
	if (!begin(w, "REPEATABLE READ"))
		return;
	if (chance(w, 50))
		ask_here(w, t);
	if (w->conn && run(w, "%s", change))
		ask_here(w, t);
	if (w->conn)
		end(w, chance(w, 30));
}

static void
index_in_transaction(struct worker *w)
{
	const struct table *t = any_indexed(w);
	const char *index = chance(w, 50) ? any_index(w, t) : NULL;

	ask_around(w, t, index ? say(w, "DROP INDEX %s", index) : say(w, "CREATE INDEX ON %s %s", t->name, any_definition(w, t)));
}

/* A column with a default, which old rows have without being rewritten */
static void
change_column(struct worker *w)
{
	const struct table *t = &tables[w->share];
	const char *has = value_of(w, "SELECT count(*) FROM pg_attribute WHERE attrelid = '%s'::regclass AND attname = 'x'", t->name);
	struct question q;

	if (has == NULL || !begin(w, "READ COMMITTED"))
		return;
	if (*has == '1' && chance(w, 50))
		run(w, "ALTER TABLE %s DROP COLUMN x", t->name);
	else if (*has == '1')
		run(w, "UPDATE %s SET x = %s WHERE id %% %d = 0", t->name, row_value(w, t), between(w, 3, 30));
	else if (run(w, "ALTER TABLE %s ADD COLUMN x idset DEFAULT '%s'", t->name, some_ids(w, t)) && chance(w, 70))
	{
		q = function_question(w, t, "x");
		ask_inside(w, &q, false);
	}
	if (w->conn)
		end(w, chance(w, 70));
}

static void
rename_table(struct worker *w)
{
	const struct table *t = my_table(w);
	const char *name = t->name + strlen("stress.");
	struct table renamed = *t;

	renamed.name = say(w, "stress.renamed_%d", w->share);
	if (!begin(w, "REPEATABLE READ"))
		return;
	w->tolerated = "42P01";		/* a join with a table of the old name */
	if (run(w, "ALTER TABLE %s RENAME TO renamed_%d", t->name, w->share))
		ask_here(w, &renamed);
	w->tolerated = NULL;
	if (w->conn && run(w, "ALTER TABLE %s RENAME TO %s", renamed.name, name))
		ask_here(w, t);
	if (w->conn)
		end(w, chance(w, 50));
}

/*
 * A function of an index becomes another one, but not for good.  What is
 * found within the transaction is not compared: the index has the values of
 * before, as any has.
 */
static void
replace_function(struct worker *w)
{
	bool		words = chance(w, 50);
	struct question q = table_question(w, &tables[words ? 2 : 4]);

	if (w->share != 0)
		return;
	if (!begin(w, "READ COMMITTED"))
		return;
	if (words)
		run(w, "CREATE OR REPLACE FUNCTION stress.words_set(words text) RETURNS public.idset LANGUAGE plpgsql IMMUTABLE STRICT AS $$ BEGIN RETURN '{7,8}'::public.idset; END $$");
	else
		run(w, "CREATE OR REPLACE FUNCTION stress.wanted(kind int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN kind = 3; END $$");
	for (int i = between(w, 1, 2); i > 0 && w->conn; i--)
	{
		PGresult   *result = query(w, q.answer);

		PQclear(result);
		nap(w, 0, 200);
	}
	if (w->conn)
		end(w, false);
}

/* A table that is new, with or without WAL, and soon gone */
static void
fresh_table(struct worker *w)
{
	const struct table *t = my_table(w);
	struct table fresh = *t;

	fresh.name = say(w, "stress.fresh_%d", w->share);
	fresh.partitioned = false;
	if (!run(w, "DROP TABLE IF EXISTS %s", fresh.name) ||
		!run(w, "CREATE %s TABLE %s AS SELECT * FROM %s", chance(w, 30) ? "UNLOGGED" : "", fresh.name, t->name))
		return;
	if (t->indexes[0])
		run(w, "CREATE INDEX ON %s %s", fresh.name, any_definition(w, t));
	for (int i = between(w, 1, 3); i > 0 && w->conn; i--)
	{
		struct question q = table_question(w, &fresh);

		ask(w, &q);
		w->parameter = NULL;
		run(w, "DELETE FROM %s WHERE id %% %d = 0", fresh.name, between(w, 2, 9));
	}
	run(w, "DROP TABLE %s", fresh.name);
}

/* The partition of a table for rows of some kind */
static const char *
partition(struct worker *w, const struct table *t, int kind)
{
	return say(w, "%s_%d", t->name, kind);
}

/*
 * Attach a partition of the table.  A transaction that has read the table
 * would see it from then on, whatever its snapshot, so those end first.
 */
static void
attach(struct worker *w, const struct table *t, const char *part, int kind)
{
	if (!begin(w, "READ COMMITTED"))
		return;
	if (run(w, "LOCK TABLE %s IN ACCESS EXCLUSIVE MODE", t->name))
		run(w, "ALTER TABLE %s ATTACH PARTITION %s FOR VALUES IN (%d)", t->name, part, kind);
	if (w->conn)
		end(w, true);
}

/*
 * What a canceled command, a crash or a lost primary has left detached, or
 * half so, is attached; false: not all are
 */
static bool
attach_all(struct worker *w, const struct table *t)
{
	const char *pending = PQserverVersion(w->conn) < 140000 ? "false" : "inhdetachpending";
	int			n_attached = 0;

	for (int kind = 0; kind < N_KINDS && w->conn; kind++)
	{
		const char *part = partition(w, t, kind);
		const char *state = say(w, "SELECT CASE count(*) FILTER (WHERE %s) WHEN 0 THEN count(*)::text ELSE 'pending' END "
								"FROM pg_inherits WHERE inhrelid = '%s'::regclass", pending, part);
		const char *is = value_of(w, "%s", state);

		if (is && strcmp(is, "pending") == 0 && run(w, "ALTER TABLE %s DETACH PARTITION %s FINALIZE", t->name, part))
			is = "0";
		if (is && strcmp(is, "0") == 0)
		{
			attach(w, t, part, kind);
			is = w->conn ? value_of(w, "%s", state) : NULL;
		}
		n_attached += is && strcmp(is, "1") == 0;
	}
	return n_attached == N_KINDS;
}

/* Detach and attach again, with others between, and snapshots of both */
static void
detach_concurrently(struct worker *w, const struct table *t, const char *part)
{
	if (PQserverVersion(w->conn) < 140000)
		return;
	if (run(w, "ALTER TABLE %s DETACH PARTITION %s CONCURRENTLY", t->name, part) && chance(w, 50))
		nap(w, 0, 300);
	if (w->conn)
		attach_all(w, t);
}

/* Another partition takes the place of this one, and its rows */
static void
replace_partition(struct worker *w, const struct table *t, const char *part, int kind)
{
	if (!begin(w, "READ COMMITTED"))
		return;
	if (run(w, "LOCK TABLE %s IN ACCESS EXCLUSIVE MODE", t->name) &&
		run(w, "CREATE TEMP TABLE old ON COMMIT DROP AS SELECT id, kind, n, note, s FROM %s", part) &&
		run(w, "DROP TABLE %s", part) &&
		make_partition(w, t, kind) &&
		run(w, "GRANT SELECT ON %s TO reader", part) &&
		run(w, "INSERT INTO %s (id, kind, n, note, s) SELECT * FROM old WHERE n %% %d <> 0", t->name, between(w, 2, 20)) &&
		chance(w, 30))
		ask_here(w, t);
	if (w->conn)
		end(w, chance(w, 60));
}

static void
exchange_partition(struct worker *w)
{
	const struct table *t = parted_table();
	int			kind = between(w, 0, N_KINDS - 1);
	const char *part = partition(w, t, kind);

	if ((t - tables) % N_KEEPERS != w->share)
		return;
	if (!attach_all(w, t))
		return;
	if (chance(w, 30))
		detach_concurrently(w, t, part);
	else if (chance(w, 40))
		replace_partition(w, t, part, kind);
	else if (begin(w, "READ COMMITTED"))
	{
		if (run(w, "ALTER TABLE %s DETACH PARTITION %s", t->name, part) && chance(w, 70))
			ask_here(w, t);
		if (w->conn)
			run(w, "ALTER TABLE %s ATTACH PARTITION %s FOR VALUES IN (%d)", t->name, part, kind);
		if (w->conn)
			end(w, chance(w, 60));
	}
}

/* All rows go, and most of them come back, perhaps in another order */
static void
truncate_table(struct worker *w)
{
	const struct table *t = my_table(w);
	const char *emptied = t->partitioned && chance(w, 50) ? partition(w, t, between(w, 0, N_KINDS - 1)) : t->name;
	const char *into = t->partitioned ? say(w, "%s (id, kind, n, note, s)", t->name) : t->name;

	if (!begin(w, "READ COMMITTED"))
		return;
	w->tolerated = t->partitioned ? DETACHED : NULL;
	if (run(w, "CREATE TEMP TABLE old ON COMMIT DROP AS SELECT %s FROM %s", t->partitioned ? "id, kind, n, note, s" : "*", emptied) &&
		run(w, "TRUNCATE %s", emptied) &&
		run(w, "INSERT INTO %s SELECT * FROM old WHERE n %% %d <> 0 ORDER BY %s",
			into, between(w, 2, 20), chance(w, 50) ? "n" : "id") &&
		chance(w, 30))
		ask_here(w, t);
	w->tolerated = NULL;
	if (w->conn)
		end(w, chance(w, 60));
}

/* Line pointers come free and are used again at once */
static void
recycle_rows(struct worker *w)
{
	const struct table *t = my_table(w);
	int			part = between(w, 2, 5);

	w->tolerated = t->partitioned ? DETACHED : NULL;
	run(w, "DELETE FROM %s WHERE id %% %d = 0", t->name, part);
	run(w, "VACUUM (INDEX_CLEANUP %s) %s", chance(w, 80) ? "on" : "off", t->name);
	run(w, "INSERT INTO %s SELECT i, i %% 4, i, 'again', %s(stress.make_ids(i + %d, %d, 200)) FROM generate_series(%d, %d, %d) i ON CONFLICT DO NOTHING",
		t->name, t->cast, between(w, 1, 999), t->longest > 100 ? 1000 : t->longest, part, n_ids(t), part);
	w->tolerated = NULL;
}

/* What keeps tables and the WAL in order */
static void
clean(struct worker *w)
{
	const struct table *t = my_table(w);
	const char *name = chance(w, 10) ? "stress.vectors" : t->name;

	switch (between(w, 0, 10))
	{
		case 0:
			run(w, "VACUUM (FREEZE) %s", name);
			break;
		case 1:
			run(w, "VACUUM FULL %s", name);
			break;
		case 2:
			if (!t->partitioned)
				run(w, "CLUSTER %s USING %s_pkey", t->name, t->name + strlen("stress."));
			break;
		case 3:
			run(w, "ANALYZE %s", name);
			break;
		case 4:
			run(w, "CHECKPOINT");
			break;
		case 5:
			run(w, "SELECT pg_switch_wal()");
			break;
		case 6:
			w->tolerated = "53000 53200 58000"; /* what these two exist for is the engine */
			if (strcmp(t->type, "idset") == 0)
				run(w, "SELECT %s('%s', 's')", chance(w, 50) ? "gpuvec_evict" : "gpuvec_prewarm", t->name);
			w->tolerated = NULL;
			break;
		default:
			run(w, "VACUUM %s", name);
	}
	count(MAINTENANCE);
}

/* Change definitions in some way */
static void
define(struct worker *w)
{
	static void (*const changes[]) (struct worker *) = {
		make_index, make_index, make_index, drop_index, drop_index, reindex, index_in_transaction, change_column,
		rename_table, replace_function, fresh_table, exchange_partition, truncate_table,
	};

	changes[below(w, lengthof(changes))] (w);
	count(DEFINITIONS);
}

void
maintain_all_the_time(struct worker *w)
{
	while (!stopping)
	{
		if ((w->conn == NULL || w->node != node_of(w->role)) && !session_open(w))
			break;
		if (chance(w, 55))
			define(w);
		else if (chance(w, 30))
			recycle_rows(w);
		else
			clean(w);
		abandon(w);
		forget(w);
		nap(w, 0, 300);
	}
}
