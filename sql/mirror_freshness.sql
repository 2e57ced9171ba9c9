-- A mirror follows every change, and tables without one are searched all the same.
CREATE TABLE docs (id int PRIMARY KEY, tokens idset, note text) WITH (fillfactor = 50);
CREATE FUNCTION best(rel regclass, q idset DEFAULT '{1,2,3}') RETURNS text LANGUAGE plpgsql AS $$
DECLARE result text;
BEGIN
	-- the ids of the five best rows; the same from brute force must follow
	EXECUTE format('SELECT string_agg(d.id::text, '','' ORDER BY t.rank) FROM gpuvec_topk(%L, ''tokens'', $1, 5) t JOIN %s d ON d.ctid = t.tid', rel, rel) INTO result USING q;
	EXECUTE format('SELECT $2 || CASE WHEN $2 IS NOT DISTINCT FROM string_agg(id::text, '','' ORDER BY s DESC, ctid) THEN '' ok'' ELSE '' but must be '' || string_agg(id::text, '','' ORDER BY s DESC, ctid) END
		FROM (SELECT id, ctid, braun_blanquet_similarity($1, tokens) AS s FROM %s WHERE tokens && $1 ORDER BY s DESC, ctid LIMIT 5) x', rel) INTO result USING q, result;
	RETURN result;
END $$;
INSERT INTO docs SELECT i, idset_agg((i * j) % 97) FROM generate_series(1, 300) i, generate_series(1, 12) j GROUP BY i ORDER BY i;
SELECT best('docs');
INSERT INTO docs VALUES (1001, '{1,2,3}');
SELECT best('docs');
UPDATE docs SET tokens = '{1,2,3,4}' WHERE id = 1001;
SELECT best('docs');
UPDATE docs SET note = 'a HOT update' WHERE id = 1001;
SELECT best('docs');
DELETE FROM docs WHERE id = 1001;
SELECT best('docs');
VACUUM docs;
SELECT best('docs');
INSERT INTO docs VALUES (1002, '{1,2,3}');  -- where the deleted row was
SELECT best('docs');
-- a search that has to wait, here for a load, is counted, and so is the time
SELECT waits, wait_time, clock_timestamp() AS began FROM gpuvec_mirrors WHERE relation = 'docs'::regclass \gset
SELECT gpuvec_evict('docs');
SELECT best('docs');
SELECT waits - :waits AS waits, wait_time > :'wait_time' AND wait_time - :'wait_time' <= clock_timestamp() - :'began' AS some_time
	FROM gpuvec_mirrors WHERE relation = 'docs'::regclass;
-- transactions and savepoints
BEGIN;
INSERT INTO docs VALUES (1003, '{1,2,3}');
SELECT best('docs');
SAVEPOINT s;
DELETE FROM docs WHERE id IN (1002, 1003);
SELECT best('docs');
ROLLBACK TO s;
SELECT best('docs');
ROLLBACK;
SELECT best('docs');
-- a cursor sees what its snapshot sees
BEGIN;
DECLARE c CURSOR FOR SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{1,2,3}', 1000);
INSERT INTO docs SELECT 2000 + i, '{1}' FROM generate_series(1, 10) i;
SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{1,2,3}', 1000);
FETCH c;
ROLLBACK;
-- a function sees its caller's changes
CREATE FUNCTION add_and_search() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO docs VALUES (1004, '{1,2,3}');
	RETURN best('docs');
END $$;
SELECT add_and_search();
DELETE FROM docs WHERE id = 1004;
-- new files
VACUUM FULL docs;
SELECT best('docs');
CLUSTER docs USING docs_pkey;
SELECT best('docs');
BEGIN;
TRUNCATE docs;
SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{1,2,3}');
INSERT INTO docs VALUES (1, '{1}');
SELECT best('docs');
ROLLBACK;
SELECT best('docs');
-- columns: dropped, added with a default that is not stored in the rows
ALTER TABLE docs ADD COLUMN tags idset DEFAULT '{1,2}';
SELECT count(*) FROM gpuvec_topk('docs', 'tags', '{1}', 1000);
BEGIN;
ALTER TABLE docs ADD COLUMN extra idset DEFAULT '{1,2}';
SELECT count(*), max(score) FROM gpuvec_topk('docs', 'extra', '{1,2}', 1000);
ROLLBACK;
ALTER TABLE docs ADD COLUMN extra idset DEFAULT '{7}';
SELECT count(*) FROM gpuvec_topk('docs', 'extra', '{1,2}', 1000);
SELECT count(*) FROM gpuvec_topk('docs', 'extra', '{7}', 1000);
ALTER TABLE docs DROP COLUMN tokens;
SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{7}', 1000);
ALTER TABLE docs RENAME COLUMN extra TO tokens;
SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{7}', 1000);
DROP TABLE docs;
CREATE TABLE docs (id int, tokens idset);
SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{7}', 1000);
-- generated columns
CREATE TABLE gen (id int, a int[], tokens idset GENERATED ALWAYS AS (a::idset) STORED);
INSERT INTO gen (id, a) VALUES (1, '{1,2,3}'), (2, '{3,4}');
SELECT best('gen');
-- temporary, unlogged, just created
CREATE TEMP TABLE tmp AS SELECT i AS id, ARRAY[i % 10, i % 7, i % 3]::idset AS tokens FROM generate_series(1, 2000) i;
SELECT best('tmp');
INSERT INTO tmp VALUES (5000, '{1,2,3}');
SELECT best('tmp');
CREATE UNLOGGED TABLE unl AS SELECT i AS id, ARRAY[i % 10, i % 7, i % 3]::idset AS tokens FROM generate_series(1, 2000) i;
SELECT best('unl');
DELETE FROM unl WHERE id < 100;
SELECT best('unl');
ALTER TABLE unl SET LOGGED;
SELECT best('unl');
BEGIN;
CREATE TABLE fresh AS SELECT i AS id, ARRAY[i % 10, i % 7, i % 3]::idset AS tokens FROM generate_series(1, 2000) i;
SELECT best('fresh');
UPDATE fresh SET tokens = tokens | 3 WHERE id % 3 = 0;
SELECT best('fresh');
COMMIT;
SELECT best('fresh');
-- large enough for a private mirror: pages times queries
SELECT count(*), count(DISTINCT query) FROM gpuvec_topk_batch('tmp', 'tokens', (SELECT array_agg(tokens) FROM (SELECT tokens FROM tmp LIMIT 400) x), 5);
SELECT count(*) AS private_mirrors FROM gpuvec_mirrors WHERE private;
-- residency
SELECT gpuvec_prewarm('fresh', 'tokens');
SELECT relation, columns, state, rows, loads > 0 AS loaded, pages_done = pages_total AS complete FROM gpuvec_mirrors WHERE relation = 'fresh'::regclass;
SELECT gpuvec_evict('fresh', 'tokens'), gpuvec_evict('fresh');
SELECT count(*) FROM gpuvec_mirrors WHERE relation = 'fresh'::regclass;
SELECT best('fresh');
SELECT count(*), bool_and(pid > 0 AND memory_used > 0 AND memory_budget >= memory_used AND requests > 0 AND queries >= batches AND sessions > 0) FROM gpuvec_engine;
SELECT gpuvec_prewarm('tmp', 'tokens');
-- histories: random changes, each followed by a comparison
CREATE TABLE hist (id int, tokens idset);
CREATE FUNCTION history(steps int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE different int := 0; r int := 12345; n bigint;
BEGIN
	FOR step IN 1..steps LOOP
		r := ((r::bigint * 1103515245 + 12345) % 2147483648)::int;
		CASE r / 65536 % 5
			WHEN 0 THEN INSERT INTO hist SELECT step * 100 + i, ARRAY[(r + i) % 50, (r + i * 3) % 50, i]::idset FROM generate_series(1, r / 7 % 40) i;
			WHEN 1 THEN DELETE FROM hist WHERE id % 7 = r % 7;
			WHEN 2 THEN UPDATE hist SET tokens = tokens | (r % 50) WHERE id % 5 = r % 5;
			WHEN 3 THEN UPDATE hist SET id = id + 1 WHERE id % 11 = r % 11;
			ELSE INSERT INTO hist VALUES (step, NULL), (step, '{}'), (step, '{1,2,3}');
		END CASE;
		SELECT count(*) INTO n FROM (
			(SELECT tid, score FROM gpuvec_topk('hist', 'tokens', '{1,2,3,20,30,40}', 30)
			 EXCEPT SELECT ctid, s FROM (SELECT ctid, braun_blanquet_similarity('{1,2,3,20,30,40}', tokens) AS s FROM hist WHERE tokens && '{1,2,3,20,30,40}' ORDER BY s DESC, ctid LIMIT 30) x)
			UNION ALL
			(SELECT ctid, s FROM (SELECT ctid, braun_blanquet_similarity('{1,2,3,20,30,40}', tokens) AS s FROM hist WHERE tokens && '{1,2,3,20,30,40}' ORDER BY s DESC, ctid LIMIT 30) x
			 EXCEPT SELECT tid, score FROM gpuvec_topk('hist', 'tokens', '{1,2,3,20,30,40}', 30))) d;
		different := different + n;
	END LOOP;
	RETURN different;
END $$;
SELECT history(1);
CREATE PROCEDURE histories(n int) LANGUAGE plpgsql AS $$
DECLARE different int := 0;
BEGIN
	FOR i IN 1..n LOOP
		different := different + history(3 + i % 5);
		IF i % 4 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
	END LOOP;
	RAISE NOTICE 'different: %', different;
END $$;
CALL histories(30);
VACUUM hist;
CALL histories(30);
-- a request that is sent along with a refresh, and is much larger than a socket's buffer
CREATE TABLE large (tokens idset);
INSERT INTO large SELECT ARRAY[i, i + 100]::idset FROM generate_series(1, 300) i;
CREATE TABLE asked AS SELECT array_fill(array_agg(i)::idset, ARRAY[5000]) AS queries FROM generate_series(400, 1400) i;
SELECT count(*) FROM asked, gpuvec_topk_batch('large', 'tokens', queries, 1);
INSERT INTO large SELECT queries[1] FROM asked;
SELECT count(*), min(query), max(query), min(score) FROM asked, gpuvec_topk_batch('large', 'tokens', queries, 1);
INSERT INTO large SELECT queries[1] FROM asked, generate_series(1, 1000);
SELECT count(*), count(DISTINCT (query, tid)), min(score) FROM asked, gpuvec_topk_batch('large', 'tokens', queries, 2);
DROP TABLE docs, gen, unl, fresh, hist, large, asked;
DROP PROCEDURE histories;
DROP FUNCTION best, add_and_search, history;
