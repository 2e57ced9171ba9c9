-- Indexes with expressions and predicates: what they return is what a scan and a sort do.
CREATE TABLE notes (id int PRIMARY KEY, tenant int, ids int[], tokens idset, words text);
INSERT INTO notes
SELECT i, i % 5, ARRAY[i % 13, i % 31 + 20, i % 7 + 60, i], ARRAY[i % 11, i % 17 + 20, i % 401 + 100]::idset,
	(i % 13) || ',' || (i % 29 + 20)
FROM generate_series(1, 2000) i;
UPDATE notes SET tokens = NULL, ids = NULL, words = NULL WHERE id % 97 = 0;
UPDATE notes SET tokens = '{}', ids = '{}' WHERE id % 89 = 0;
CREATE FUNCTION word_set(words text) RETURNS idset LANGUAGE sql IMMUTABLE STRICT
	AS $$ SELECT ('{' || words || '}')::public.idset $$;

CREATE INDEX notes_ids ON notes USING gpuvec ((ids::idset));
CREATE INDEX notes_words ON notes USING gpuvec (word_set(words));
CREATE INDEX notes_tenant ON notes USING gpuvec (tokens) WHERE tenant = 3;
CREATE INDEX notes_both ON notes USING gpuvec ((ids::idset)) WHERE tenant < 2 AND words IS NOT NULL;
ANALYZE notes;

-- The same distances in the same order, and the same rows with each but the last distance
CREATE FUNCTION same(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan text;
	by_index record;
	by_sort record;
	wanted text := 'SELECT array_agg(d) AS distances, (SELECT array_agg(id ORDER BY d, id) FROM (SELECT id, d, max(d) OVER () AS last, count(*) OVER () AS n FROM (%1$s) x) y WHERE d IS DISTINCT FROM last OR n > 1000) AS ids FROM (%1$s) r';
BEGIN
	SET LOCAL enable_seqscan = off;
	SET LOCAL enable_sort = off;
	SET LOCAL enable_bitmapscan = off;
	EXECUTE 'EXPLAIN (COSTS OFF, FORMAT JSON) ' || query INTO plan;
	EXECUTE format(wanted, query) INTO by_index;
	SET LOCAL enable_seqscan = on;
	SET LOCAL enable_sort = on;
	SET LOCAL enable_indexscan = off;
	EXECUTE format(wanted, query) INTO by_sort;
	SET LOCAL enable_indexscan = on;
	RETURN coalesce(substring(plan FROM '"Index Name": "(\w+)"'), 'no index') || ': ' || cardinality(by_index.distances) || ' rows, ' ||
		CASE WHEN by_index = by_sort THEN 'same' ELSE 'different' END;
END $$;

SELECT same(format('SELECT id, (ids::idset) %s %L AS d FROM notes ORDER BY (ids::idset) %1$s %2$L LIMIT %s', op, q, k))
FROM (VALUES ('<->', '{1,25,63}', 20), ('<%>', '{5}', 400), ('<=>', '{2,30,31,61,500}', 3000), ('<#>', '{7,60}', 10), ('<~>', '{}', 50), ('<~>', '{3,22}', 2500)) v (op, q, k);
SELECT same(format('SELECT id, word_set(words) %s %L AS d FROM notes ORDER BY word_set(words) %1$s %2$L LIMIT %s', op, q, k))
FROM (VALUES ('<->', '{1,25}', 20), ('<%>', '{5}', 3000), ('<=>', '{2,30,31}', 100)) v (op, q, k);
SELECT same(format('SELECT id, tokens %s %L AS d FROM notes WHERE tenant = 3 ORDER BY tokens %1$s %2$L LIMIT %s', op, q, k))
FROM (VALUES ('<->', '{1,25,163}', 20), ('<%>', '{5}', 3000), ('<=>', '{2,30,31}', 100), ('<#>', '{7,60}', 1)) v (op, q, k);
SELECT same(format('SELECT id, (ids::idset) %s %L AS d FROM notes WHERE tenant < 2 AND words IS NOT NULL ORDER BY (ids::idset) %1$s %2$L LIMIT %s', op, q, k))
FROM (VALUES ('<->', '{1,25,63}', 20), ('<=>', '{2,30,31}', 3000)) v (op, q, k);

-- Rows that enter and leave a partial index, HOT updates, vacuum
UPDATE notes SET tenant = 3 WHERE id % 50 = 1;
UPDATE notes SET tenant = 4 WHERE id % 50 = 3;
UPDATE notes SET words = words WHERE id % 3 = 0;
UPDATE notes SET ids = ids || 77 WHERE id % 40 = 2;
DELETE FROM notes WHERE id % 45 = 8;
SELECT same(format('SELECT id, tokens %s %L AS d FROM notes WHERE tenant = 3 ORDER BY tokens %1$s %2$L LIMIT %s', op, q, k))
FROM (VALUES ('<->', '{1,25,163}', 20), ('<%>', '{5}', 3000)) v (op, q, k);
SELECT same('SELECT id, (ids::idset) <-> ''{77,5}'' AS d FROM notes ORDER BY (ids::idset) <-> ''{77,5}'' LIMIT 100');
VACUUM notes;
SELECT same('SELECT id, tokens <-> ''{1,25,163}'' AS d FROM notes WHERE tenant = 3 ORDER BY tokens <-> ''{1,25,163}'' LIMIT 3000');
SELECT same('SELECT id, (ids::idset) <-> ''{77,5}'' AS d FROM notes ORDER BY (ids::idset) <-> ''{77,5}'' LIMIT 3000');

-- Search keys
SET enable_seqscan = off;
SET enable_indexonlyscan = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM notes WHERE (ids::idset) && '{77}' AND tenant < 2 AND words IS NOT NULL;
SET enable_indexscan = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM notes WHERE (ids::idset) && '{77}' AND tenant < 2 AND words IS NOT NULL;
RESET enable_indexscan;
SELECT count(*) FROM notes WHERE (ids::idset) && '{77}';
SELECT count(*) FROM notes WHERE tokens @> '{1,25}' AND tenant = 3;
SET enable_indexscan = off;
SET enable_bitmapscan = off;
SET enable_seqscan = on;
SELECT count(*) FROM notes WHERE (ids::idset) && '{77}';
SELECT count(*) FROM notes WHERE tokens @> '{1,25}' AND tenant = 3;
RESET ALL;

-- Expressions over values that lie out of line
CREATE TABLE long_notes (id int, ids int[]);
ALTER TABLE long_notes ALTER ids SET STORAGE EXTERNAL;
INSERT INTO long_notes SELECT i, array_agg(j * i % 65536) FROM generate_series(1, 30) i, generate_series(1, 3000) j GROUP BY i;
CREATE INDEX long_notes_ids ON long_notes USING gpuvec ((ids::idset));
SELECT same('SELECT id, (ids::idset) <-> ''{1000,2000,3000,4000}'' AS d FROM long_notes ORDER BY (ids::idset) <-> ''{1000,2000,3000,4000}'' LIMIT 30');
DELETE FROM long_notes WHERE id % 3 = 0;
VACUUM long_notes;
SELECT same('SELECT id, (ids::idset) <-> ''{1000,2000,3000,4000}'' AS d FROM long_notes ORDER BY (ids::idset) <-> ''{1000,2000,3000,4000}'' LIMIT 30');

-- Expressions are evaluated with the rights of the table's owner by a build, and not at all by a search
CREATE ROLE regress_gpuvec_owner;
CREATE ROLE regress_gpuvec_reader;
CREATE FUNCTION who(tokens idset) RETURNS idset LANGUAGE sql IMMUTABLE
	AS $$ SELECT CASE current_user WHEN 'regress_gpuvec_owner' THEN tokens ELSE '{}' END $$;
CREATE TABLE owned (id int, tokens idset);
INSERT INTO owned SELECT i, ARRAY[i]::idset FROM generate_series(10, 500) i;
ALTER TABLE owned OWNER TO regress_gpuvec_owner;
GRANT SELECT ON owned TO regress_gpuvec_reader;
CREATE INDEX owned_who ON owned USING gpuvec (who(tokens)) WHERE who(tokens) IS NOT NULL;
SET ROLE regress_gpuvec_reader;
SET enable_seqscan = off;
SET enable_sort = off;
SELECT id, who(tokens) FROM owned WHERE who(tokens) IS NOT NULL ORDER BY who(tokens) <-> '{20}' LIMIT 1;
RESET ROLE;
RESET ALL;
SELECT current_user = session_user AS restored;
DROP TABLE owned;
DROP FUNCTION who(idset);
DROP ROLE regress_gpuvec_owner;
DROP ROLE regress_gpuvec_reader;

-- The functions use the mirror of an index on the whole column, and no other
CREATE INDEX notes_tokens ON notes USING gpuvec (tokens);
SELECT gpuvec_evict('notes');
SELECT count(*) FROM gpuvec_topk('notes', 'tokens', '{1,25}', 10);
SELECT same('SELECT id, tokens <-> ''{1,25}'' AS d FROM notes ORDER BY tokens <-> ''{1,25}'' LIMIT 10');
SELECT columns, index, state, loads > 0 AS loaded FROM gpuvec_mirrors WHERE relation = 'notes'::regclass ORDER BY columns, index::text;

-- Columns whose value is in the catalog for older rows, of whatever type
ALTER TABLE notes ADD added_int int DEFAULT 3;
ALTER TABLE notes ADD added_name name DEFAULT 'three';
ALTER TABLE notes ADD added_ids int[] DEFAULT '{3,4}';
CREATE INDEX notes_added ON notes USING gpuvec ((tokens | added_int::int8)) WHERE added_name = 'three' AND added_ids[1] = added_int;
SELECT same('SELECT id, (tokens | added_int::int8) <-> ''{1,3,25}'' AS d FROM notes WHERE added_name = ''three'' AND added_ids[1] = added_int ORDER BY (tokens | added_int::int8) <-> ''{1,3,25}'' LIMIT 20');
DROP INDEX notes_added;

-- A function that is replaced: an index that is built anew has what it makes now
CREATE INDEX notes_words_again ON notes USING gpuvec (word_set(words)) WHERE tenant = 4;
SELECT same('SELECT id, word_set(words) <-> ''{1,25}'' AS d FROM notes WHERE tenant = 4 ORDER BY word_set(words) <-> ''{1,25}'' LIMIT 300');
CREATE OR REPLACE FUNCTION word_set(words text) RETURNS idset LANGUAGE sql IMMUTABLE STRICT
	AS $$ SELECT ('{' || words || ',1,' || length(words) || '}')::public.idset $$;
-- (the server remembers the old one for indexes that this session has used)
\c -
REINDEX INDEX notes_words_again;
SELECT same('SELECT id, word_set(words) <-> ''{1,25}'' AS d FROM notes WHERE tenant = 4 ORDER BY word_set(words) <-> ''{1,25}'' LIMIT 300');

-- A function that searches itself, which an immutable one must not, does no harm: only writers call it
CREATE FUNCTION nearest(tokens idset) RETURNS idset LANGUAGE sql IMMUTABLE SET search_path = public
	AS $$ SELECT n.tokens FROM gpuvec_topk('notes', 'tokens', $1, 1) t JOIN notes n ON n.ctid = t.tid $$;
CREATE TABLE searching AS SELECT id, tokens FROM notes WHERE id BETWEEN 1 AND 10;
CREATE INDEX searching_nearest ON searching USING gpuvec (nearest(tokens));
SET enable_seqscan = off;
SET enable_sort = off;
SELECT id FROM searching ORDER BY nearest(tokens) <-> '{1,25}' LIMIT 1;
RESET ALL;
SELECT count(*) FROM gpuvec_topk('notes', 'tokens', '{1,25}', 10);
DROP TABLE searching;
DROP FUNCTION nearest(idset);

DROP TABLE notes, long_notes;
DROP FUNCTION word_set(text), same(text);
