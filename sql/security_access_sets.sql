-- Rows that some groups may read: a policy by a filter column of sets.  What
-- the index finds is compared with what a scan of the table does.
CREATE ROLE regress_access_reader;
CREATE TABLE notes (id int PRIMARY KEY, readers idset, tokens idset, terms idvec);
INSERT INTO notes
SELECT i,
       CASE WHEN i % 97 = 0 THEN NULL WHEN i % 89 = 0 THEN '{}' ELSE ARRAY[i % 50, 100 + i % 7]::idset END,
       CASE WHEN i % 83 = 0 THEN NULL WHEN i % 79 = 0 THEN '{}' ELSE ARRAY[i % 3, 10 + i % 11, 30 + i % 101]::idset END,
       CASE WHEN i % 83 > 0 THEN idvec(ARRAY[i % 3, 10 + i % 11, 30 + i % 101], ARRAY[1, i % 5 - 2.5, 2]::float4[]) END
FROM generate_series(1, 3000) i;
CREATE INDEX notes_tokens ON notes USING gpuvec (tokens, readers);
CREATE INDEX notes_terms ON notes USING gpuvec (terms, readers);
CREATE INDEX notes_readers ON notes USING gpuvec (readers);
ANALYZE notes;
CREATE FUNCTION my_groups() RETURNS idset LANGUAGE sql STABLE AS $$ SELECT nullif(current_setting('app.groups', true), '')::idset $$;
ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
CREATE POLICY readers ON notes USING (readers && my_groups());
GRANT SELECT ON notes TO regress_access_reader;

-- statements that should use an index, each made of a condition or an order
CREATE TABLE asked (n int, statement text);
INSERT INTO asked VALUES
	(1, 'SELECT id, tokens <%> ''{1,12,40}'' AS d FROM notes ORDER BY tokens <%> ''{1,12,40}'''),
	(2, 'SELECT id, tokens <-> ''{2,15,99}'' AS d FROM notes ORDER BY tokens <-> ''{2,15,99}'''),
	(3, 'SELECT id, terms <#> ''{1:2,12:-1,40:3}'' AS d FROM notes ORDER BY terms <#> ''{1:2,12:-1,40:3}'''),
	(4, 'SELECT id, 0::float8 AS d FROM notes WHERE tokens && ''{40,41,42}'''),
	(5, 'SELECT id, 0::float8 AS d FROM notes WHERE tokens @> ''{1,12}'' AND readers && ''{3,4,5,6,7,103}'''),
	(6, 'SELECT id, 0::float8 AS d FROM notes WHERE tokens <@ ''{0,1,2,10,11,12,13,40,41,42,43,44,45}'''),
	(7, 'SELECT id, 0::float8 AS d FROM notes WHERE tokens <<->> (''{1,12,40}'', 0.5, ''jaccard'')'),
	(8, 'SELECT id, 0::float8 AS d FROM notes'),
	(9, 'SELECT id, 0::float8 AS d FROM notes WHERE tokens IS NULL');
GRANT SELECT ON asked TO regress_access_reader;

-- all rows with their distances, and whether these ascend
CREATE FUNCTION answer(statement text, OUT rows text, OUT ascending bool) LANGUAGE plpgsql AS $$
DECLARE r record; last float8 := '-infinity'; all_rows text[] := '{}';
BEGIN
	ascending := true;
	FOR r IN EXECUTE statement LOOP
		ascending := ascending AND (r.d IS NULL OR r.d >= last);
		last := coalesce(r.d, last);
		all_rows := all_rows || (r.id || ' ' || coalesce(r.d::text, 'null'));
	END LOOP;
	SELECT md5(string_agg(x, ',' ORDER BY x)) || ' ' || count(*) INTO rows FROM unnest(all_rows) x;
END $$;
CREATE FUNCTION uses_index(statement text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE line text; used bool := false;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS off) ' || statement LOOP
		used := used OR line ~ 'Index Cond: .*my_groups|Index Cond: .*app.groups';
	END LOOP;
	RETURN used;
END $$;

-- by the table, and by the index
CREATE TABLE groups (n int, groups text);
INSERT INTO groups VALUES (1, '{3}'), (2, '{3,101,4000000000}'), (3, '{}'), (4, ''), (5, '{100,101,102,103,104,105,106}'), (6, '{77}');
CREATE TABLE answers (groups int, asked int, by_index bool, rows text, ascending bool, used bool);
GRANT SELECT ON groups TO regress_access_reader;
GRANT INSERT ON answers TO regress_access_reader;
CREATE FUNCTION ask(by_index bool) RETURNS void LANGUAGE plpgsql AS $$
DECLARE g record;
BEGIN
	FOR g IN SELECT * FROM groups LOOP
		PERFORM set_config('app.groups', g.groups, false);
		INSERT INTO answers SELECT g.n, n, by_index, (answer(statement)).*, uses_index(statement) FROM asked;
	END LOOP;
END $$;
SET ROLE regress_access_reader;
SET enable_indexscan = off;
SET enable_bitmapscan = off;
SELECT ask(false);
RESET enable_indexscan;
RESET enable_bitmapscan;
SET enable_seqscan = off;
SET enable_sort = off;
SELECT ask(true);
RESET enable_seqscan;
RESET enable_sort;
RESET ROLE;
SELECT asked, bool_and(used) AS by_index FROM answers WHERE by_index GROUP BY asked ORDER BY asked;
SELECT count(*) AS by_table_with_index FROM answers WHERE used AND NOT by_index;
SELECT groups, asked, i.rows, t.rows FROM answers i JOIN answers t USING (groups, asked)
WHERE i.by_index AND NOT t.by_index AND (i.rows IS DISTINCT FROM t.rows OR NOT i.ascending);
SELECT groups, split_part(rows, ' ', 2) AS rows FROM answers WHERE by_index AND asked = 8 ORDER BY groups;

-- One plan for several users: the groups are those of the moment.
SET ROLE regress_access_reader;
SET plan_cache_mode = force_generic_plan;
SET enable_seqscan = off;
PREPARE best AS SELECT id, readers FROM notes ORDER BY tokens <%> '{1,12,40}' LIMIT 2;
SET app.groups = '{3}';
EXECUTE best;
SET app.groups = '{4,5}';
EXECUTE best;
SET app.groups = '';
EXECUTE best;
-- a cursor keeps those of its snapshot's time, as its rows
SET app.groups = '{3}';
BEGIN;
DECLARE page CURSOR FOR SELECT id FROM notes ORDER BY tokens <%> '{1,12,40}';
FETCH 1 FROM page;
RESET ROLE;
UPDATE notes SET readers = '{9}' WHERE readers && '{3}';
FETCH 1 FROM page;
COMMIT;
SET ROLE regress_access_reader;
SELECT count(*) FROM notes WHERE tokens && '{0,1,2}';
SET app.groups = '{9}';
SELECT count(*) > 60 AS told FROM notes WHERE tokens && '{0,1,2}';
-- functions do not know policies
SELECT * FROM gpuvec_topk('notes', 'tokens', '{1}', 1);
RESET ROLE;
DROP TABLE notes, asked, groups, answers;
DROP FUNCTION my_groups, answer, uses_index, ask;
DROP OWNED BY regress_access_reader;
DROP ROLE regress_access_reader;
