-- The statements of README.md, as they stand there.
CREATE TABLE docs (id bigint PRIMARY KEY, tokens idset);
INSERT INTO docs VALUES (1, '{3,17,50000}'), (2, ARRAY[17,99]), (3, '[3,17]');
SELECT d.id, t.score, t.common
FROM gpuvec_topk('docs', 'tokens', '{3,17}', 10) t JOIN docs d ON d.ctid = t.tid
ORDER BY t.rank;
SELECT t.query, t.rank, d.id, t.score
FROM gpuvec_topk_batch('docs', 'tokens', ARRAY['{3,17}', '{99}']::idset[], 10) t JOIN docs d ON d.ctid = t.tid
ORDER BY t.query, t.rank;
SELECT (t.item).id, t.score FROM gpuvec_topk_rows(NULL::docs, 'tokens', '{3,17}', 10) t ORDER BY t.rank;
SELECT d.id, t.score FROM gpuvec_topk('docs', 'tokens', '{3,17}', NULL, 'jaccard', 0.5) t JOIN docs d ON d.ctid = t.tid ORDER BY t.rank;

-- an integer array column: beside it, and in place
CREATE TABLE arrays (id int, tokens int[]);
INSERT INTO arrays VALUES (1, '{5,3,3}'), (2, '{7}'), (3, NULL), (4, '{}');
ALTER TABLE arrays ADD COLUMN token_set idset GENERATED ALWAYS AS (tokens::idset) STORED;
SELECT id, token_set FROM arrays ORDER BY id;
SELECT a.id, t.score FROM gpuvec_topk('arrays', 'token_set', '{3,5}') t JOIN arrays a ON a.ctid = t.tid;
UPDATE arrays SET tokens = '{3,5,7}' WHERE id = 3;
SELECT a.id, t.score FROM gpuvec_topk('arrays', 'token_set', '{3,5}') t JOIN arrays a ON a.ctid = t.tid ORDER BY t.rank;
INSERT INTO arrays VALUES (5, '{1,-1}');
INSERT INTO arrays VALUES (5, '{1,NULL}');
ALTER TABLE arrays DROP COLUMN token_set;
CREATE INDEX arrays_tokens ON arrays USING gin (tokens);
ALTER TABLE arrays ALTER COLUMN tokens TYPE idset USING tokens::idset;
DROP INDEX arrays_tokens;
ALTER TABLE arrays ALTER COLUMN tokens TYPE idset USING tokens::idset;
SELECT id, tokens FROM arrays ORDER BY id;
SELECT a.id, t.score FROM gpuvec_topk('arrays', 'tokens', '{3,5}') t JOIN arrays a ON a.ctid = t.tid ORDER BY t.rank;

-- text tags through a dictionary
CREATE TABLE item_tags (item text, tag text);
INSERT INTO item_tags VALUES ('apple', 'fruit'), ('apple', 'red'), ('pear', 'fruit'), ('pear', 'green'), ('brick', 'red'), ('sky', 'blue');
CREATE TABLE dictionary (id int PRIMARY KEY CHECK (id BETWEEN 0 AND 65535), word text UNIQUE);
INSERT INTO dictionary SELECT row_number() OVER (ORDER BY tag) - 1, tag FROM (SELECT DISTINCT tag FROM item_tags) t;
CREATE TABLE items AS SELECT item, idset_agg(d.id) AS tags FROM item_tags JOIN dictionary d ON d.word = tag GROUP BY item;
SELECT i.item, t.score
FROM gpuvec_topk('items', 'tags', (SELECT idset_agg(id) FROM dictionary WHERE word IN ('fruit', 'red')), 10) t
JOIN items i ON i.ctid = t.tid ORDER BY t.score DESC, i.item;
-- no known word: no rows
SELECT count(*) FROM gpuvec_topk('items', 'tags', (SELECT idset_agg(id) FROM dictionary WHERE word IN ('house')), 10);

-- many queries, by their ids
CREATE TABLE queries (id int, tokens idset);
INSERT INTO queries VALUES (70, '{3}'), (50, '{99}'), (60, NULL);
WITH q AS (SELECT array_agg(id ORDER BY id) AS ids, array_agg(tokens ORDER BY id) AS sets FROM queries)
SELECT q.ids[t.query] AS query_id, d.id, t.score
FROM q, gpuvec_topk_batch('docs', 'tokens', q.sets, 10) t JOIN docs d ON d.ctid = t.tid
ORDER BY query_id, t.rank;

-- explain a score
SELECT d.id, t.score, d.tokens & '{3,17}' AS common_ids
FROM gpuvec_topk('docs', 'tokens', '{3,17}', 10) t JOIN docs d ON d.ctid = t.tid ORDER BY t.rank;
SELECT i.item, t.score, w.word
FROM (SELECT idset_agg(id) AS tags FROM dictionary WHERE word IN ('fruit', 'red')) q,
     gpuvec_topk('items', 'tags', q.tags, 10) t JOIN items i ON i.ctid = t.tid,
     unnest(q.tags & i.tags) u JOIN dictionary w ON w.id = u
ORDER BY t.score DESC, i.item, w.word;

-- pages
SELECT d.id, t.score FROM gpuvec_topk('docs', 'tokens', '{3,17}', 2) t JOIN docs d ON d.ctid = t.tid WHERE t.rank > 1 ORDER BY t.rank;
SELECT d.id, t.score FROM gpuvec_topk('docs', 'tokens', '{3,17}', 3) t JOIN docs d ON d.ctid = t.tid WHERE t.rank > 2 ORDER BY t.rank;
BEGIN;
DECLARE page CURSOR FOR SELECT d.id, t.score FROM gpuvec_topk('docs', 'tokens', '{3,17}', 100) t JOIN docs d ON d.ctid = t.tid ORDER BY t.rank;
FETCH 2 FROM page;
FETCH 2 FROM page;
COMMIT;

-- filtering: the best rows of some
CREATE TABLE articles (id int PRIMARY KEY, tenant int, tokens idset);
INSERT INTO articles SELECT i, i % 7, ARRAY[3, i % 5 + 15, i]::int[]::idset FROM generate_series(100, 199) i;
SELECT a.id, t.score
FROM gpuvec_topk('articles', 'tokens', '{3,17}', 10, among => ARRAY(SELECT ctid FROM articles WHERE tenant = 5)) t
JOIN articles a ON a.ctid = t.tid ORDER BY t.rank;

-- all rows that are similar enough
SELECT d.id, t.score FROM gpuvec_topk('docs', 'tokens', '{3,17}', k => NULL, min_score => 0.6) t JOIN docs d ON d.ctid = t.tid ORDER BY t.rank;

-- near duplicates
WITH q AS (SELECT array_agg(id ORDER BY id) AS ids, array_agg(tokens ORDER BY id) AS sets FROM docs)
SELECT q.ids[t.query] AS id, d.id AS duplicate, t.score
FROM q, gpuvec_topk_batch('docs', 'tokens', q.sets, NULL, 'jaccard', 0.6) t JOIN docs d ON d.ctid = t.tid
WHERE q.ids[t.query] < d.id ORDER BY 1, 2;

-- partitioned tables: the first rows of both partitions have the same ctid
CREATE TABLE events (id int, day date, tokens idset) PARTITION BY RANGE (day);
CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
INSERT INTO events VALUES (1, '2026-01-05', '{3,17}'), (2, '2026-02-05', '{3}'), (3, '2026-02-06', '{17,3}');
SELECT e.id, t.score
FROM gpuvec_topk('events', 'tokens', '{3,17}', 10) t JOIN events e ON (e.tableoid, e.ctid) = (t.source, t.tid)
ORDER BY t.rank;

-- a role that may search but not select
CREATE FUNCTION search_docs(q idset, n int8) RETURNS TABLE (id bigint, score float8)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
	SELECT d.id, t.score FROM gpuvec_topk('docs', 'tokens', q, n) t JOIN docs d ON d.ctid = t.tid ORDER BY t.rank
$$;
REVOKE EXECUTE ON FUNCTION search_docs FROM PUBLIC;
CREATE ROLE regress_gpuvec_guest;
CREATE ROLE regress_gpuvec_stranger;
GRANT EXECUTE ON FUNCTION search_docs TO regress_gpuvec_guest;
SET ROLE regress_gpuvec_guest;
SELECT * FROM search_docs('{3,17}', 2);
SELECT * FROM gpuvec_topk('docs', 'tokens', '{3,17}', 2);
SET ROLE regress_gpuvec_stranger;
SELECT * FROM search_docs('{3,17}', 2);
RESET ROLE;
DROP FUNCTION search_docs;
DROP ROLE regress_gpuvec_guest, regress_gpuvec_stranger;

-- update the rows that were found
ALTER TABLE docs ADD COLUMN seen bool DEFAULT false;
UPDATE docs SET seen = true
WHERE id IN (SELECT d.id FROM gpuvec_topk('docs', 'tokens', '{3,17}', 2) t JOIN docs d ON d.ctid = t.tid);
SELECT id, seen FROM docs ORDER BY id;
-- new versions of rows are found where they are now
SELECT d.id, t.score, d.seen FROM gpuvec_topk('docs', 'tokens', '{3,17}', 10) t JOIN docs d ON d.ctid = t.tid ORDER BY t.rank;
-- conditions on filter columns
ALTER TABLE docs ADD COLUMN tenant int DEFAULT 5, ADD COLUMN price float8 DEFAULT 2.5, ADD COLUMN created timestamptz DEFAULT '2024-02-29 10:00+00';
UPDATE docs SET price = 12 WHERE id = 1;
CREATE INDEX docs_filters ON docs USING gpuvec (tokens, tenant, price, created);
SET enable_seqscan = off;
SET enable_sort = off;
EXPLAIN (COSTS OFF)
SELECT id FROM docs WHERE tenant = 5 AND price < 10 ORDER BY tokens <-> '{3,17,99}' LIMIT 10;
SELECT id FROM docs WHERE tenant = 5 AND price < 10 ORDER BY tokens <-> '{3,17,99}' LIMIT 10;
RESET enable_seqscan;
RESET enable_sort;
DROP TABLE docs, arrays, item_tags, dictionary, items, queries, events, articles;
