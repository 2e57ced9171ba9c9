-- CREATE INDEX ... USING gpuvec: what the statistics views count
CREATE SCHEMA index_stats;
SET search_path = index_stats, public;
CREATE TABLE docs (id int, tokens idset);
INSERT INTO docs SELECT i, ARRAY[i % 97, i % 89 + 100]::idset FROM generate_series(1, 2000) i;
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens);
VACUUM ANALYZE docs;

-- Sessions report what they counted when they end, or before, and other sessions see it
-- somewhat later: waits for the counts, in vain if they are others
CREATE FUNCTION counts(scans int, read int, fetched int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	s pg_stat_user_indexes;
BEGIN
	FOR i IN 1 .. 100 LOOP
		PERFORM pg_stat_clear_snapshot();
		SELECT * INTO s FROM pg_stat_user_indexes WHERE indexrelname = 'docs_tokens' AND schemaname = 'index_stats';
		EXIT WHEN (s.idx_scan, s.idx_tup_read, s.idx_tup_fetch) = (scans, read, fetched);
		PERFORM pg_sleep(0.1);
	END LOOP;
	RETURN format('%s scans, %s read, %s fetched', s.idx_scan, s.idx_tup_read, s.idx_tup_fetch);
END $$;
SET enable_seqscan = off;
SET enable_sort = off;
-- the mirror has a feed from its load on, however many indexes have one
SET gpuvec.feed_idle = 0;
-- an ordered scan: it reads the rows that were asked for
SELECT count(*) FROM (SELECT id FROM docs ORDER BY tokens <-> '{1,101}' LIMIT 7) x;
\c
SELECT index_stats.counts(1, 7, 7);
-- an ordered scan to the end, which searches in several batches and then sorts the others
SET enable_seqscan = off;
SET enable_sort = off;
SELECT count(*) FROM (SELECT id FROM index_stats.docs ORDER BY tokens <-> '{1,101}') x;
\c
SELECT index_stats.counts(2, 2007, 2007);
-- one scan for each outer row
SET enable_seqscan = off;
SET enable_sort = off;
SELECT count(*) FROM unnest('{"{1}","{2}","{3}"}'::idset[]) q, LATERAL (SELECT id FROM index_stats.docs ORDER BY tokens <-> q LIMIT 2) x;
\c
SELECT index_stats.counts(5, 2013, 2013);
-- a search, and a search for what no row has
SET enable_seqscan = off;
SET enable_indexonlyscan = off;
SET enable_bitmapscan = off;
SELECT count(*) FROM index_stats.docs WHERE tokens && '{1}';
SELECT count(*) FROM index_stats.docs WHERE tokens && '{50000}';
\c
SELECT index_stats.counts(7, 2034, 2034);
-- a bitmap scan fetches for the table, not for the index
SET enable_seqscan = off;
SET enable_indexonlyscan = off;
SET enable_indexscan = off;
SELECT count(*) FROM index_stats.docs WHERE tokens && '{1}';
\c
SELECT index_stats.counts(8, 2055, 2034);
-- VACUUM hands over no pages but those from which it removes rows
SET gpuvec.feed_idle = 0;
SET enable_seqscan = off;
SET enable_sort = off;
SELECT count(*) FROM (SELECT id FROM index_stats.docs ORDER BY tokens <-> '{1,101}' LIMIT 7) x;
SELECT count(DISTINCT (ctid::text::point)[0]) AS pages FROM index_stats.docs WHERE id BETWEEN 1001 AND 1500 \gset
DELETE FROM index_stats.docs WHERE id BETWEEN 1001 AND 1500;
VACUUM (INDEX_CLEANUP on) index_stats.docs;
SELECT pages_waiting <= :pages AS no_others FROM gpuvec_mirrors WHERE relation = 'index_stats.docs'::regclass;
-- what is known of the index for the planner stays known, though it counts no
-- rows itself
SELECT relname, reltuples, relpages FROM pg_class WHERE oid IN ('index_stats.docs'::regclass, 'index_stats.docs_tokens'::regclass) ORDER BY 1;
SET client_min_messages = warning;
DROP SCHEMA index_stats CASCADE;
