-- Orders by any measure: tokens <&> idset_ranking(query, measure), of arrays
-- <&~>
CREATE SCHEMA index_ranking;
SET search_path = index_ranking, public;
SET client_min_messages = error;
CREATE FUNCTION message(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
-- the operator is the negated score, with the query first
CREATE TABLE pairs AS SELECT q, t, a FROM (SELECT DISTINCT ARRAY(SELECT i * j % 11 FROM generate_series(1, i) j)::idset AS q FROM generate_series(0, 8) i) s,
	(SELECT a::idset AS t, a FROM (SELECT ARRAY(SELECT i * j % 7 FROM generate_series(1, 9 - i) j) AS a FROM generate_series(1, 9) i) r) r;
SELECT count(*), bool_and(t <&> idset_ranking(q) = -braun_blanquet_similarity(q, t)) AS braun_blanquet, bool_and(t <&> (q, 'Tanimoto') = -jaccard_similarity(q, t)) AS jaccard, bool_and(t <&> (q, 'cosine') = -cosine_similarity(q, t)) AS cosine,
	bool_and(t <&> (q, 'dice') = -dice_similarity(q, t)) AS dice, bool_and(t <&> (q, 'overlap') = -overlap_similarity(q, t)) AS overlap, bool_and(t <&> (q, 'containment') = -containment_similarity(q, t)) AS containment,
	bool_and(t <&> (q, 'intersection') = t <#> q) AS intersection, bool_and(t <&> (q, 'hamming') = t <~> q) AS hamming, bool_and(t <&> (q, 'kulczynski') = -kulczynski_similarity(q, t)) AS kulczynski,
	bool_and(t <&> (q, 'tversky(0.7, 0.3)') = -tversky_similarity(q, t, 0.7, 0.3)) AS tversky, bool_and(t <&> (q, 'tversky(0, 1)') = -containment_similarity(t, q)) AS of_the_row,
	bool_and(a <&~> (q, 'tversky(0, 1)') = t <&> (q, 'tversky(0, 1)') AND a <&~> idset_ranking(q, 'overlap') = t <&> idset_ranking(q, 'overlap')) AS of_arrays FROM pairs;
SELECT '{3}'::idset <&> ('{4}', 'overlap') AS zero, '{3}' <&> idset_ranking('{3,4}', 'containment') AS literal, '{}'::idset <&> ('{}', 'dice') AS empty, NULL::idset <&> ('{}', 'dice') AS null_of, '{3}'::idset <&> NULL AS of_null,
	'{3}'::idset <&> (NULL, 'dice') AS no_query, '{3}'::idset <&> ('{3}', NULL) AS no_measure, '{3}'::idset <&> (NULL, NULL) AS nothing, '{a}'::text[] <&~> (NULL, 'dice') AS no_array, '{a,NULL,b,a}'::text[] <&~> idset_ranking(idset_of_array('{a,b}'::text[]), 'dice') AS a_list;
SELECT idset_ranking('{3}'), idset_ranking(NULL, 'nearness'), idset_ranking('{3}', measure => NULL);
SELECT s, message('SELECT ' || s) FROM unnest(ARRAY['''{3}''::idset <&> (''{3}'', ''nearness'')', '''{3}''::idset <&> (NULL, ''nearness'')', '''{3}''::idset <&> (''{3}'', ''tversky(-1, 1)'')', '''{3}''::idset <&> (''{3}'', ''tversky'')',
	'''{3}'' <&~> idset_ranking(''{3}'')', '''{3}''::idset <&> ''{3}''::idset', '''{"(1,2)"}''::point[] <&~> idset_ranking(''{3}'')']) s;
SELECT opcname, amvalidate(oid) FROM pg_opclass WHERE opcname IN ('idset_ops', 'array_ops', 'idvec_ops') AND opcmethod = (SELECT oid FROM pg_am WHERE amname = 'gpuvec') ORDER BY 1;
-- of vectors there is none, and none without a row on the right side
CREATE FUNCTION of_vector(idvec, idset_ranking) RETURNS float8 LANGUAGE sql IMMUTABLE AS 'SELECT 0::float8';
CREATE OPERATOR <&> (LEFTARG = idvec, RIGHTARG = idset_ranking, FUNCTION = of_vector);
CREATE OPERATOR <&> (LEFTARG = idset, RIGHTARG = idset, FUNCTION = idset_jaccard_distance);
CREATE FUNCTION valid(family text, operator text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE result text;
BEGIN
	EXECUTE format('ALTER OPERATOR FAMILY %s USING gpuvec ADD OPERATOR 16 %s FOR ORDER BY pg_catalog.float_ops', family, operator);
	SELECT string_agg(amvalidate(oid)::text, ' ') INTO result FROM pg_opclass WHERE opcname = family AND opcmethod = (SELECT oid FROM pg_am WHERE amname = 'gpuvec');
	RAISE '%', result;
EXCEPTION WHEN raise_exception THEN
	RETURN SQLERRM;
END $$;
SELECT valid('idvec_ops', '<&> (idvec, idset_ranking)'), valid('idset_ops', '<&> (idset, idset)');

-- rows: nulls, empty sets, large ids, ties, and chains of versions
CREATE TABLE docs (id int, tokens idset, price int) WITH (fillfactor = 70, autovacuum_enabled = off);
INSERT INTO docs SELECT i, CASE WHEN i % 3 = 0 THEN ARRAY[i % 13, i % 11 + 20] ELSE ARRAY[i % 97, i % 89 + 100, i % 7 + 300, i % 5 + 100000] || ARRAY(SELECT 400 + i % j FROM generate_series(2, i % 12) j) END::idset, i % 100 FROM generate_series(1, 3000) i;
INSERT INTO docs SELECT 10000 + i, '{}', i FROM generate_series(1, 5) i;
INSERT INTO docs SELECT 20000 + i, NULL, i FROM generate_series(1, 5) i;
INSERT INTO docs SELECT 30000 + i, '{0,65535,4294967295}', i FROM generate_series(1, 5) i;
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens, price);
UPDATE docs SET id = -id WHERE id % 4 = 1;
UPDATE docs SET tokens = tokens | 5 WHERE id % 11 = 5;
DELETE FROM docs WHERE id % 17 = 3;
VACUUM ANALYZE docs;
EXPLAIN (COSTS OFF) SELECT id FROM docs ORDER BY tokens <&> ('{5,105,305}', 'overlap') LIMIT 5;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE price < 50 ORDER BY tokens <&> idset_ranking('{5,105,305}', 'tversky(0, 1)') LIMIT 5;

-- What an index returns, against a sort: the scores in the order in which the
-- rows come, and which rows have them.  Of the last score any rows may come.
CREATE FUNCTION answer(sort text, source text, rows int, by_index bool, OUT plan text, OUT scores text, OUT places text) LANGUAGE plpgsql AS $$
DECLARE query text := format('SELECT ctid, tableoid, %s AS score FROM %s ORDER BY %s LIMIT %s', regexp_replace(sort, '( ASC| DESC)?( NULLS \w+)?$', ''), source, sort, rows);
BEGIN
	PERFORM set_config('enable_' || kind, CASE WHEN by_index THEN 'off' ELSE 'on' END, true) FROM unnest('{seqscan,sort,bitmapscan}'::text[]) kind;
	PERFORM set_config('enable_indexscan', by_index::text, true);
	EXECUTE 'EXPLAIN (COSTS OFF, FORMAT JSON) ' || query INTO plan;
	EXECUTE format('SELECT coalesce(md5(string_agg(coalesce(score::text, %L), %L ORDER BY n)), %1$L) || %3$L || count(*), md5(string_agg(tableoid || ctid::text || coalesce(score::text, %1$L), %2$L ORDER BY tableoid, ctid) FILTER (WHERE score IS DISTINCT FROM last OR n < %5$s AND %5$s > 100000)) FROM (SELECT *, row_number() OVER () AS n, last_value(score) OVER () AS last FROM (%4$s) x) x',
		'null', ',', ' ', query, rows) INTO scores, places;
END $$;
CREATE FUNCTION same(sort text, source text DEFAULT 'docs', rows int DEFAULT 1000000) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	got record := answer(sort, source, rows, true);
	wanted record := answer(sort, source, rows, false);
BEGIN
	IF got.plan NOT LIKE '%"Order By": "%' OR wanted.plan LIKE '%"Order By": "%' THEN RETURN 'another plan'; END IF;
	RETURN CASE WHEN got.scores = wanted.scores AND got.places IS NOT DISTINCT FROM wanted.places THEN 'same ' || split_part(wanted.scores, ' ', 2)
		ELSE format('differs: %s, %s', (got.scores, got.places), (wanted.scores, wanted.places)) END;
END $$;
CREATE TABLE measures AS SELECT * FROM unnest('{braun_blanquet,jaccard,cosine,dice,overlap,containment,intersection,hamming,kulczynski,"tversky(0.7, 0.3)","tversky(0, 1)","tversky(1, 0)","tversky(0.333333333333333333, 1e-7)","tversky(1e-300, 1e-300)","tversky(1e305, 1e308)"}'::text[]) WITH ORDINALITY m(measure, n);
CREATE TABLE queries AS SELECT * FROM unnest('{"{5,105,305,1,2}","{5}","{0,1,2,3,20,21,22,100,300,301,100001,4294967295}","{}","{77777}"}'::idset[]) WITH ORDINALITY q(q, n);
-- huge weights: rows that share ids with the query have score 0, as those that
-- share none
SELECT count(*) > 0 AS shared, count(DISTINCT tokens <&> ('{5,105,305,1,2}', 'tversky(1e305, 1e308)')) AS scores FROM docs WHERE tokens && '{5,105,305,1,2}' AND tokens <&> ('{5,105,305,1,2}', 'tversky(1e305, 1e308)') = 0;
SELECT measure, string_agg(DISTINCT same(format('tokens <&> (%L, %L)', q, measure), 'docs', rows), ', ') FROM measures, queries, unnest('{1,150,1000000}'::int[]) rows GROUP BY measure ORDER BY measure COLLATE "C";
-- beside conditions: many rows, few, none; by filter columns and by the set
-- itself
SELECT c, string_agg(DISTINCT same(format('tokens <&> (%L, %L)', '{5,105,305,1,2}', measure), 'docs WHERE ' || c, rows), ', ') FROM measures, unnest('{10,1000000}'::int[]) rows,
	unnest(ARRAY['price < 50', 'price = 7', 'price = -1', 'price IN (3, 4) AND id > 0', 'tokens && ''{5,400}''', 'tokens @> ''{5}'' AND price < 9', 'tokens && ''{5,2}'' AND price BETWEEN 3 AND 60', 'tokens IS NULL', 'tokens IS NOT NULL AND price > 90', 'tokens <<->> (''{5,105}'', 0.3, ''overlap'')', 'id % 50 = 7']) c GROUP BY c ORDER BY c COLLATE "C";
-- rows that pass are few, and all ranked: those of score 0 come by their tids,
-- whether they share ids or not, and once
CREATE TABLE many AS SELECT i AS id, i % 100 AS kind, s AS tokens FROM generate_series(1, 130000) i JOIN (SELECT k, (SELECT idset_agg(100 * k + 10 + j) | 5 FROM generate_series(1, 30) j) AS s FROM generate_series(0, 1) k) two ON k = i / 100 % 2 ORDER BY i;
CREATE INDEX docs_many ON many USING gpuvec (tokens, kind);
ANALYZE many;
SELECT measure, same(format('tokens <&> (%L, %L)', '{7,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31}', measure), 'many WHERE kind = 3 AND tokens && ''{5}''') FROM unnest('{"tversky(1e305, 1e308)",overlap}'::text[]) measure;
-- parts that are null: all rows are equal
SELECT r, same('tokens <&> ' || r), same('tokens <&> ' || r, 'docs WHERE price < 3', 2) FROM unnest(ARRAY['(NULL, ''dice'')', '(''{5}'', NULL)', 'idset_ranking(NULL, NULL)']) r;
-- own changes, and a cursor beside others
BEGIN;
UPDATE docs SET tokens = '{5,105}' WHERE id BETWEEN 100 AND 200;
DELETE FROM docs WHERE id BETWEEN 300 AND 900;
INSERT INTO docs SELECT 50000 + i, ARRAY[5, i]::idset, 7 FROM generate_series(1, 40) i;
SELECT measure, same(format('tokens <&> (%L, %L)', '{5,105,305,1,2}', measure)) FROM measures WHERE n % 3 = 1 ORDER BY n;
ROLLBACK;
-- tables that have no mirror: the scan sorts by itself
CREATE TEMP TABLE own AS SELECT * FROM docs WHERE id % 5 = 0;
CREATE INDEX ON own USING gpuvec (tokens);
SELECT measure, same(format('tokens <&> (%L, %L)', '{5,105,305,1,2}', measure), 'own') FROM measures ORDER BY n;
-- an index with an expression
CREATE TABLE words (id int, body text);
INSERT INTO words SELECT i, 'w' || i % 7 || ' w' || i % 11 || ' w' || i % 41 FROM generate_series(1, 2000) i;
CREATE INDEX words_body ON words USING gpuvec (idset_hash(string_to_array(body, ' '))) WHERE id > 10;
ANALYZE words;
SELECT measure, same(format('idset_hash(string_to_array(body, %L)) <&> (idset_hash(%L::text[]), %L)', ' ', '{w3,w4,w23}', measure), 'words WHERE id > 10') FROM measures WHERE n % 4 = 1 ORDER BY n;

-- queries and measures that are not known when the statement is planned
SET enable_seqscan = off;
SET enable_sort = off;
SET plan_cache_mode = force_generic_plan;
PREPARE by_parts (idset, text) AS SELECT array_agg(d) FROM (SELECT round((tokens <&> idset_ranking($1, $2))::numeric, 3) AS d FROM docs ORDER BY tokens <&> idset_ranking($1, $2) LIMIT 4) x;
PREPARE whole (idset_ranking) AS SELECT array_agg(d) FROM (SELECT round((tokens <&> $1)::numeric, 3) AS d FROM docs ORDER BY tokens <&> $1 LIMIT 4) x;
EXPLAIN (COSTS OFF) EXECUTE by_parts('{5}', 'dice');
EXECUTE by_parts('{5,105,305,1,2}', 'overlap');
EXECUTE by_parts('{5,105,305,1,2}', 'kulczynski');
EXECUTE by_parts('{5,105,305,1,2}', NULL);
EXECUTE by_parts('{5,105,305,1,2}', 'nearness');
EXECUTE whole(('{5,105,305,1,2}', 'hamming'));
EXECUTE whole(('{5,105,305,1,2}', 'tversky(0.7, 0.3)'));
EXECUTE whole(NULL);
EXECUTE whole((NULL, 'nearness'));
RESET plan_cache_mode;
RESET enable_seqscan;
RESET enable_sort;

-- An index makes no statement fail, and has an error that there is without it:
-- where there is a row
CREATE TABLE none (id int, tokens idset, price int);
CREATE INDEX docs_none ON none USING gpuvec (tokens, price);
CREATE TABLE nulls AS SELECT i AS id, NULL::idset AS tokens FROM generate_series(1, 10) i;
CREATE INDEX docs_nulls ON nulls USING gpuvec (tokens);
CREATE TABLE mixed AS SELECT * FROM nulls UNION ALL SELECT 11, '{5}';
CREATE INDEX docs_mixed ON mixed USING gpuvec (tokens);
CREATE TABLE parts (id int, tokens idset, price int) PARTITION BY RANGE (id);
CREATE TABLE docs_p1 PARTITION OF parts FOR VALUES FROM (MINVALUE) TO (0);
CREATE TABLE docs_p2 PARTITION OF parts FOR VALUES FROM (0) TO (1500);
CREATE TABLE docs_p3 PARTITION OF parts FOR VALUES FROM (1500) TO (MAXVALUE);
INSERT INTO parts SELECT id, tokens, price FROM docs;
CREATE INDEX docs_parts ON parts USING gpuvec (tokens, price);
VACUUM ANALYZE none, nulls, mixed, parts;
CREATE FUNCTION outcome(query text, by_index bool) RETURNS text LANGUAGE plpgsql AS $$
DECLARE plan text;
BEGIN
	PERFORM set_config('enable_' || kind, CASE WHEN by_index THEN 'off' ELSE 'on' END, true) FROM unnest('{seqscan,sort,bitmapscan}'::text[]) kind;
	PERFORM set_config('enable_indexscan', by_index::text, true);
	EXECUTE 'EXPLAIN (COSTS OFF, FORMAT JSON) ' || query INTO plan;
	IF (plan LIKE '%"Order By": "%') <> by_index THEN RETURN 'another plan'; END IF;
	RETURN message(query);
END $$;
CREATE TABLE failing AS SELECT format(c, r) AS query FROM unnest(ARRAY['none ORDER BY tokens <&> %s', 'nulls ORDER BY tokens <&> %s', 'docs WHERE price = -1 ORDER BY tokens <&> %s', 'docs WHERE tokens && ''{123456}'' ORDER BY tokens <&> %s', 'docs WHERE tokens IS NULL ORDER BY tokens <&> %s', 'parts WHERE price = -1 ORDER BY tokens <&> %s',
	'generate_series(1, 3) i, LATERAL (SELECT id FROM none ORDER BY tokens <&> %s LIMIT i) x', 'mixed ORDER BY tokens <&> %s', 'docs ORDER BY tokens <&> %s', 'docs WHERE price = 3 ORDER BY tokens <&> %s', 'docs WHERE tokens && ''{5}'' AND price = 5 ORDER BY tokens <&> %s', 'parts ORDER BY tokens <&> %s', 'generate_series(1, 3) i, LATERAL (SELECT id FROM docs ORDER BY tokens <&> %s LIMIT 3) x']) WITH ORDINALITY c(c, n),
	unnest(ARRAY['(''{5}'', ''nearness'')', '(NULL, ''tversky(0, 0)'')']) r ORDER BY n;
SELECT query, outcome('SELECT * FROM ' || query || ' LIMIT 2', true) AS by_index, outcome('SELECT * FROM ' || query || ' LIMIT 2', true) = outcome('SELECT * FROM ' || query || ' LIMIT 2', false) AS same FROM failing;
SELECT outcome($$SELECT id FROM docs ORDER BY tokens <&> ('{5}', 'nearness') LIMIT 0$$, true);

-- partitions
SELECT plan LIKE '%"gpuvec merge"%' AS merged FROM answer('tokens <&> (''{5,105,305}'', ''overlap'')', 'parts', 5, true);
SELECT measure, string_agg(DISTINCT same(format('tokens <&> (%L, %L)', q, measure), 'parts', rows), ', ') FROM measures, queries, unnest('{3,150,1000000}'::int[]) rows GROUP BY measure ORDER BY measure COLLATE "C";
SELECT measure, same(format('tokens <&> (%L, %L)', '{5,105,305,1,2}', measure), 'parts WHERE price < 30', 40) FROM measures ORDER BY n;
-- one merge with another measure each time it begins
SELECT n, (SELECT array_agg(d) FROM (SELECT round((tokens <&> idset_ranking('{5,105,305,1,2}', measure))::numeric, 3) AS d FROM parts ORDER BY tokens <&> idset_ranking('{5,105,305,1,2}', measure) LIMIT 3) x) FROM measures WHERE measure LIKE 'tversky%' ORDER BY n;

-- lateral joins, whose queries are asked for together if they have one measure
CREATE TABLE asked AS SELECT i AS n, CASE WHEN i % 20 = 3 THEN NULL WHEN i % 20 = 4 THEN '{}' ELSE ARRAY[i % 97, i % 89 + 100, i % 7 + 300, 5] END::idset AS q, (SELECT measure FROM measures m WHERE m.n = i % 15 + 1) AS measure, CASE i % 3 WHEN 0 THEN 'tversky(0.7, 0.3)' ELSE 'tversky(0.3, 0.7)' END AS weights FROM generate_series(1, 120) i;
ANALYZE asked;
CREATE FUNCTION joined(query text, by_index bool, at_once int, OUT got text, OUT requests numeric) LANGUAGE plpgsql AS $$
DECLARE plan text;
BEGIN
	PERFORM set_config('enable_' || kind, CASE WHEN by_index THEN 'off' ELSE 'on' END, true) FROM unnest('{seqscan,sort,bitmapscan,memoize,material}'::text[]) kind WHERE EXISTS (SELECT FROM pg_settings WHERE name = 'enable_' || kind);
	PERFORM set_config('enable_indexscan', by_index::text, true), set_config('gpuvec.join_rows', at_once::text, true);
	EXECUTE 'EXPLAIN (COSTS OFF, FORMAT JSON) ' || query INTO plan;
	SELECT e.requests INTO requests FROM gpuvec_engine e;
	EXECUTE 'SELECT count(*) || '' '' || md5(string_agg(x::text, '';'' ORDER BY x)) FROM (' || query || ') x' INTO got;
	SELECT e.requests - joined.requests INTO requests FROM gpuvec_engine e;
	IF (plan LIKE '%"Order By": "%') <> by_index THEN got := 'another plan'; END IF;
END $$;
CREATE FUNCTION same_join(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	together record := joined(query, true, 256);
	alone record := joined(query, true, 1);
	sorted record := joined(query, false, 256);
BEGIN
	RETURN CASE WHEN together.got <> sorted.got OR alone.got <> sorted.got THEN format('differs: %s, %s, %s', together.got, alone.got, sorted.got)
		ELSE format('same %s, %s', split_part(sorted.got, ' ', 1), CASE WHEN together.requests * 1.5 < alone.requests THEN 'fewer requests' ELSE 'as many requests' END) END;
END $$;
SELECT same_join(format('SELECT n, d FROM asked, LATERAL (SELECT tokens <&> %s AS d FROM docs %s ORDER BY tokens <&> %1$s LIMIT 5) x', r, c)), r, c
	FROM unnest(ARRAY['(q, ''overlap'')', 'idset_ranking(q, ''tversky(0, 1)'')', 'idset_ranking(q, measure)', 'idset_ranking(q, weights)', '(''{5,105,305}'', measure)', '(''{5,105,305}'', weights)']) WITH ORDINALITY r(r, n), unnest(ARRAY['', 'WHERE price < 40']) c ORDER BY n, c;
-- a measure of a row that is not reached
SELECT by_index, outcome(format('SELECT n FROM (VALUES (1, %L), (2, %L)) v(n, m), LATERAL (SELECT id FROM docs ORDER BY tokens <&> idset_ranking(%L, m) LIMIT 3) x LIMIT %s', 'overlap', 'nearness', '{5}', rows), by_index), rows FROM unnest('{true,false}'::bool[]) by_index, unnest('{3,4}'::int[]) rows;
SELECT same_join('SELECT n, d FROM asked, LATERAL (SELECT overlap_similarity(q, tokens) AS d FROM docs WHERE tokens IS NOT NULL ORDER BY overlap_similarity(q, tokens) DESC LIMIT 5) x');

-- Scores that no distance orders: the index has their order by <&>
SET enable_sort = off;
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM docs ORDER BY containment_similarity(tokens, '{5,105,305}') DESC NULLS LAST LIMIT 5;
EXPLAIN (COSTS OFF) SELECT id FROM docs ORDER BY cosine_similarity(tokens, '{5,105,305}') DESC NULLS LAST LIMIT 5;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tokens IS NOT NULL ORDER BY 1 - tversky_similarity(tokens, '{5,105,305}', 0.7, 0.1) LIMIT 5;
RESET enable_sort;
RESET enable_seqscan;
SELECT s, string_agg(DISTINCT same(format(s, q), c, rows), ', ') FROM queries, unnest('{20,1000000}'::int[]) rows, unnest(ARRAY['docs', 'parts']) c,
	unnest(ARRAY['overlap_similarity(tokens, %L) DESC NULLS LAST', 'overlap_similarity(%L, tokens) DESC NULLS LAST', 'kulczynski_similarity(%L, tokens) DESC NULLS LAST', 'kulczynski_similarity(tokens, %L) DESC NULLS LAST', 'cosine_similarity(tokens, %L) DESC NULLS LAST', 'containment_similarity(tokens, %L) DESC NULLS LAST',
		'tversky_similarity(%L, tokens, 0.7, 0.3) DESC NULLS LAST', 'tversky_similarity(tokens, %L, 0.7, 0.3) DESC NULLS LAST', 'tversky_similarity(%L, tokens, 0.333333333333333333, 1e-7) DESC NULLS LAST', 'tversky_similarity(tokens, %L, 3e200, 0) DESC NULLS LAST', 'tversky_similarity(tokens, %L, 1e305, 1e308) DESC NULLS LAST',
		'1 - overlap_similarity(tokens, %L)', '(100 * kulczynski_similarity(tokens, %L))::real DESC NULLS LAST', 'coalesce(containment_similarity(tokens, %L), 0) DESC', 'coalesce(tversky_similarity(%L, tokens, 2, 1), -1) DESC', '1.5 - coalesce(cosine_similarity(tokens, %L), 0) ASC']) s GROUP BY s ORDER BY s COLLATE "C";
SELECT same('overlap_similarity(tokens, ''{5,105}'') DESC', 'docs WHERE tokens IS NOT NULL'), same('tversky_similarity(tokens, (SELECT q FROM queries WHERE n = 1), 0.25, 2) DESC NULLS LAST');
-- not where nulls would come first, what is farthest, the weights are not
-- known or bad, or the value has not the order of scores
CREATE FUNCTION ordered(sort text) RETURNS bool LANGUAGE plpgsql SET enable_seqscan = off SET enable_sort = off AS $$
DECLARE plan text;
BEGIN
	EXECUTE 'EXPLAIN (COSTS OFF, FORMAT JSON) SELECT id FROM docs ORDER BY ' || sort || ' LIMIT 3' INTO plan;
	RETURN plan LIKE '%"Order By": "%';
END $$;
SELECT ordered(s), s FROM unnest(ARRAY['overlap_similarity(tokens, ''{5}'') DESC', 'overlap_similarity(tokens, ''{5}'')', '1 - kulczynski_similarity(tokens, ''{5}'') DESC NULLS LAST', 'coalesce(overlap_similarity(tokens, ''{5}''), 0.1) DESC', 'tversky_similarity(tokens, ''{5}'', 1, price) DESC NULLS LAST',
	'tversky_similarity(tokens, ''{5}'', -1, 1) DESC NULLS LAST', 'tversky_similarity(tokens, ''{5}'', NULL, 1) DESC NULLS LAST', 'tversky_similarity(tokens, tokens, 1, 1) DESC NULLS LAST', '(overlap_similarity(tokens, ''{5}'')::numeric / 3)::float8 DESC NULLS LAST', 'tokens <&> (''{5}'', ''dice'') DESC', 'tokens <&> (''{5}'', ''dice'') NULLS FIRST',
	'tokens <&> (tokens, ''dice'')', 'tokens <&> (''{5}'', random()::text)', 'tokens <&> (''{5}'', ''dice'')', '1 + (tokens <&> (''{5}'', ''dice''))']) s;
SELECT outcome('SELECT id FROM docs ORDER BY tversky_similarity(tokens, ''{5}'', -1, 1) DESC NULLS LAST LIMIT 3', false);
PREPARE by_weights (float8) AS SELECT id FROM docs ORDER BY tversky_similarity('{5,105}', tokens, $1, 1) DESC NULLS LAST LIMIT 3;
SET enable_seqscan = off;
SET enable_sort = off;
SET plan_cache_mode = force_custom_plan;
EXPLAIN (COSTS OFF) EXECUTE by_weights(0.1);
RESET plan_cache_mode;
RESET enable_seqscan;
RESET enable_sort;

-- below a policy: in the same order, of what may be seen
CREATE ROLE regress_gpuvec_ranking;
GRANT USAGE ON SCHEMA index_ranking TO regress_gpuvec_ranking;
GRANT SELECT ON docs, measures TO regress_gpuvec_ranking;
ALTER TABLE docs ENABLE ROW LEVEL SECURITY;
CREATE POLICY cheap ON docs USING (price < 50);
SET ROLE regress_gpuvec_ranking;
SELECT measure, same(format('tokens <&> (%L, %L)', '{5,105,305,1,2}', measure)), same(format('tokens <&> (%L, %L)', '{5,105,305,1,2}', measure), 'docs WHERE tokens && ''{5,105}''', 20) FROM measures WHERE n % 4 = 2 ORDER BY n;
RESET ROLE;

-- arrays
CREATE TABLE lists (id int, tags text[], ints int[], price int);
INSERT INTO lists SELECT i, CASE WHEN i % 41 > 0 THEN ARRAY(SELECT CASE WHEN i % j = 5 THEN NULL ELSE 'tag ' || i * j % 23 END FROM generate_series(1, i % 9) j) END, ARRAY(SELECT i * j % 31 - 9 FROM generate_series(1, i % 7) j), i % 50 FROM generate_series(1, 2500) i;
CREATE INDEX docs_tags ON lists USING gpuvec (tags, price);
CREATE INDEX docs_ints ON lists USING gpuvec (ints);
UPDATE lists SET price = price + 1 WHERE id % 9 = 1;
UPDATE lists SET tags = tags || 'tag 3'::text WHERE id % 11 = 2;
ANALYZE lists;
EXPLAIN (COSTS OFF) SELECT id FROM lists ORDER BY tags <&~> idset_ranking('{3}', 'containment') LIMIT 5;
SELECT measure, same(format('tags <&~> idset_ranking(idset_of_array(%L::text[]), %L)', '{"tag 3","tag 4",NULL,"tag 20"}', measure), 'lists'), same(format('tags <&~> idset_ranking(idset_of_array(%L::text[]), %L)', '{"tag 3","tag 4",NULL,"tag 20"}', measure), 'lists WHERE price < 20', 30),
	same(format('ints <&~> (idset_of_array(%L::int[]), %L)', '{-3,5,6,7}', measure), 'lists') FROM measures ORDER BY n;
SELECT same('tags <&~> (NULL, ''dice'')', 'lists'), same('tags <&~> (''{}'', ''overlap'')', 'lists'), outcome('SELECT id FROM lists ORDER BY tags <&~> (''{}'', ''nearness'') LIMIT 1', true), outcome('SELECT id FROM lists WHERE price = -1 ORDER BY tags <&~> (''{}'', ''nearness'') LIMIT 1', true);
SELECT same_join('SELECT n, d FROM (SELECT n, idset_of_array(tags) AS q, measure FROM asked JOIN lists ON id = n) a, LATERAL (SELECT l.tags <&~> (q, measure) AS d FROM lists l ORDER BY l.tags <&~> (q, measure) LIMIT 4) x');
DROP SCHEMA index_ranking CASCADE;
DROP ROLE regress_gpuvec_ranking;
