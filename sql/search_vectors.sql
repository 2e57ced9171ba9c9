-- Search functions by vectors: inner products, cosine and Jaccard's measure,
-- of sets and of vectors, with values of both signs, against a definition that
-- has arrays only.  Sums are of float8, from the least id on
-- (src/core/sparse.h).
CREATE SCHEMA search_vectors;
SET search_path = search_vectors, public;
CREATE FUNCTION oracle(xi int8[], xv real[], yi int8[], yv real[], OUT product float8, OUT cosine float8, OUT jaccard float8, OUT common int) LANGUAGE plpgsql AS $$
DECLARE
	s float8 := 0;
	m float8 := 0;
	a float8 := 0;
	b float8 := 0;
	asum float8 := 0;
	bsum float8 := 0;
	ratio float8 := 0;
	i int := 1;
	j int := 1;
	x real;
BEGIN
	common := 0;
	WHILE i <= cardinality(xi) AND j <= cardinality(yi) LOOP
		IF xi[i] < yi[j] THEN
			i := i + 1;
		ELSIF xi[i] > yi[j] THEN
			j := j + 1;
		ELSE
			common := common + 1;
			s := s + xv[i]::float8 * yv[j]::float8;
			m := m + least(xv[i], yv[j])::float8;
			i := i + 1;
			j := j + 1;
		END IF;
	END LOOP;
	FOREACH x IN ARRAY xv LOOP
		a := a + x::float8 * x::float8;
		asum := asum + x::float8;
	END LOOP;
	FOREACH x IN ARRAY yv LOOP
		b := b + x::float8 * x::float8;
		bsum := bsum + x::float8;
	END LOOP;
	product := s;
	IF s <> 0 THEN
		BEGIN
			ratio := s * s / (a * b);
		EXCEPTION WHEN numeric_value_out_of_range THEN
			ratio := 0;	-- the server's own division does not round to 0
		END;
	END IF;
	cosine := CASE WHEN ratio = 0 THEN 0 WHEN s < 0 THEN -sqrt(least(ratio, 1)) ELSE sqrt(least(ratio, 1)) END;
	IF (SELECT coalesce(min(z), 0) FROM unnest(xv || yv) z) >= 0 THEN
		jaccard := CASE WHEN asum + bsum - m = 0 THEN 0 ELSE m / (asum + bsum - m) END;
	END IF;
END $$;
-- sets: null, empty, with large ids, many alike
CREATE FUNCTION ids_of(i int) RETURNS int8[] IMMUTABLE LANGUAGE sql AS $$
	SELECT CASE WHEN i % 97 = 0 THEN NULL WHEN i % 89 = 0 THEN '{}'
		WHEN i % 11 = 3 THEN ARRAY[i % 7, 31, 100000 + i % 5, 4000000000 + i % 3]
		WHEN i % 11 = 4 THEN ARRAY[7, 31 + i % 2]
		ELSE (SELECT array_agg(DISTINCT x ORDER BY x) FROM (SELECT (i::int8 * 7919 * j + j * j * 31 + i / 7) % (20 * j) AS x FROM generate_series(1, 5 + i % 12) j) s) END $$;
-- values: 0 bytes, 1 of both signs, 2 huge, 3 next to nothing, 4 of all sizes,
-- 5 ones; terms have negative ones now and then, counts have none
CREATE FUNCTION values_of(i int, n int, signs bool) RETURNS real[] IMMUTABLE LANGUAGE sql AS $$
	SELECT coalesce(array_agg((CASE i % 6 WHEN 0 THEN 1 + (i * 7 + k * 13) % 255 WHEN 1 THEN ((i + k * 5) % 17 + 1) / 3.0::float8 WHEN 2 THEN 3.4e38::float8 * (1 - (i + k) % 1000 / 4096.0::float8)
		WHEN 3 THEN (1 + (i + k) % 9) * 2 ^ (-149::float8) WHEN 4 THEN 1.5 * 2 ^ ((i * 31 + k * 57) % 270 - 149)::float8 ELSE 1 END * CASE WHEN signs AND i % 6 IN (1, 2, 3, 4) AND (i / 6 + k) % 3 = 0 THEN -1 ELSE 1 END)::real ORDER BY k), '{}')
	FROM generate_series(1, n) k $$;
CREATE TABLE docs (id int PRIMARY KEY, ids int8[], tags idset, tenant int, terms idvec, counts idvec, tv real[], cv real[]) WITH (autovacuum_enabled = off, fillfactor = 70);
INSERT INTO docs SELECT i, ids, ids::idset, i % 10, idvec(ids, tv), idvec(ids, cv), tv, cv FROM generate_series(1, 500) i, ids_of(i) ids, values_of(i, cardinality(ids), true) tv, values_of(i, cardinality(ids), false) cv;
CREATE TABLE queries (q int, what text, yi int8[], yv real[], v idvec);
INSERT INTO queries VALUES
	(1, 'positive', '{7,31,62,93}', '{0.5,2,0.25,1}'), (2, 'both signs', '{7,31,62,93,150}', '{1,-2,0.5,-0.75,3}'), (3, 'negative', '{7,31}', '{-1,-0.5}'),
	(4, 'cancels', '{7,8,31,62}', '{1,-1,1,-1}'), (5, 'order', '{}', '{}'), (6, 'huge', '{3,7,31}', '{3e38,1e-45,-3e38}'), (7, 'denormal', '{7,31}', '{1e-45,3e-45}'),
	(8, 'of no row', '{64000,64001}', '{1,2}'), (9, 'nothing', '{}', '{}'), (10, 'one id', '{7}', '{2}'), (11, 'wide', '{7,100003,4000000000}', '{1,2,-0.5}'),
	(12, 'long', '{}', '{}'), (13, 'ones', '{7,31,62,93}', '{1,1,1,1}'), (14, 'null', NULL, NULL), (15, 'far apart', '{7,31}', '{1e-45,3e38}'), (16, 'a row', '{7,31}', '{1,1}');
UPDATE queries SET yi = x.yi, yv = x.yv FROM (SELECT array_agg(i::int8 ORDER BY i) AS yi, array_agg((CASE i % 3 WHEN 0 THEN -1 ELSE 1 END * 2 ^ (i % 40 - 20) / 3)::real ORDER BY i) AS yv FROM generate_series(0, 60) i) x WHERE q = 5;
UPDATE queries SET yi = x.yi, yv = x.yv FROM (SELECT array_agg(i * 2::int8 ORDER BY i) AS yi, array_agg((0.5 + i % 19)::real ORDER BY i) AS yv FROM generate_series(0, 200) i) x WHERE q = 12;
UPDATE queries SET v = idvec(yi, yv) WHERE yi IS NOT NULL;
CREATE TABLE truth (id int, q int, measure text, score float8, common int, col text, PRIMARY KEY (col, measure, q, id));
INSERT INTO truth SELECT id, q, measure, score, common, col FROM docs, queries, LATERAL (VALUES ('tags', array_fill(1::real, ARRAY[cardinality(ids)])), ('terms', tv), ('counts', cv)) c (col, xv), oracle(ids, xv, yi, yv) o,
	LATERAL (VALUES ('inner_product', product), ('cosine', cosine), ('jaccard', jaccard)) v (measure, score) WHERE ids IS NOT NULL AND yi IS NOT NULL AND score IS NOT NULL AND (measure <> 'jaccard' OR col <> 'terms');
ANALYZE;
SELECT measure, q, what, count(*) FILTER (WHERE score > 0) AS positive, count(*) FILTER (WHERE score = 0) AS zero, count(*) FILTER (WHERE score < 0) AS negative,
	count(*) FILTER (WHERE common > 0 AND score = 0) AS cancelled, count(DISTINCT score) AS scores FROM truth JOIN queries USING (q) WHERE col = 'tags' GROUP BY 1, 2, 3 ORDER BY measure COLLATE "C", q;
SELECT col, measure, count(*) FILTER (WHERE score > 0) > 1000 AS positive, count(*) FILTER (WHERE score < 0) > 300 AS negative, count(*) FILTER (WHERE common > 0 AND score = 0) AS cancelled, count(*) FILTER (WHERE abs(score) < 1e-80 AND score <> 0) > 0 AS tiny, max(score) > 1e76 AS huge FROM truth GROUP BY 1, 2 ORDER BY col COLLATE "C", measure COLLATE "C";

-- What a function returns, and what it should
CREATE FUNCTION found(rel regclass, asked int, m text, k int8, bound float8, tids tid[], col text DEFAULT 'tags') RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(string_agg(format('%s %s %s %s %s', rank, source::oid, tid, score, common), ';' ORDER BY rank), '')
	FROM gpuvec_vec_topk(rel, col::name, (SELECT v FROM queries WHERE q = asked), k, m, bound, tids) $$;
CREATE FUNCTION expected(rel regclass, asked int, m text, k int8, bound float8, tids tid[], col text DEFAULT 'tags') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE format('SELECT coalesce(string_agg(format(''%%s %%s %%s %%s %%s'', rank, source, tid, score, common), '';'' ORDER BY rank), '''') FROM (
		SELECT row_number() OVER (ORDER BY score DESC, s.tableoid, s.ctid) AS rank, s.tableoid AS source, s.ctid AS tid, score, common FROM truth JOIN %s s USING (id)
		WHERE q = $1 AND measure = $2 AND col = $6 AND s.%I IS NOT NULL AND CASE WHEN $4 IS NULL THEN score > 0 ELSE score >= $4 END AND ($5 IS NULL OR s.ctid = ANY ($5))) x WHERE $3 IS NULL OR rank <= $3', rel, col)
	INTO result USING asked, m, k, bound, tids, col;
	RETURN result;
END $$;
-- Compare for k and min_score at and around each border: "same", and the
-- number of calls, or the first call that differs
CREATE FUNCTION compare(rel regclass, asked int, m text, tids tid[], c text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	x record;
	n int := 0;
BEGIN
	FOR x IN WITH t AS (SELECT count(*) FILTER (WHERE score > 0) AS positive, min(score), max(score), percentile_disc(ARRAY[0.9, 0.3]) WITHIN GROUP (ORDER BY score) AS p FROM truth WHERE q = asked AND measure = m AND col = c)
		SELECT k, NULL::float8 AS bound FROM t, unnest(ARRAY[1, 3, positive - 1, positive, positive + 1, 5000]) k WHERE k > 0
		UNION SELECT k, bound FROM t, unnest(ARRAY['-Infinity', min, '-0', 0, 5e-324, max, 'Infinity'] || p, '{NULL,7,NULL,1000,NULL,4,3,5,NULL}'::int[]) b (bound, k)
	LOOP
		n := n + 1;
		IF found(rel, asked, m, x.k, x.bound, tids, c) IS DISTINCT FROM expected(rel, asked, m, x.k, x.bound, tids, c) THEN
			RETURN format('differs: k = %s, min_score = %s', x.k, x.bound);
		END IF;
	END LOOP;
	RETURN CASE WHEN n > 8 THEN 'same' ELSE 'few' END;
END $$;
-- The same for all queries, or some, all measures and columns, of vectors only
-- what differs from sets: how many of them differ
CREATE FUNCTION differences(rel regclass, tids tid[] DEFAULT NULL, these int[] DEFAULT NULL) RETURNS SETOF text LANGUAGE sql AS $$
	WITH t AS (SELECT DISTINCT q, measure, col FROM truth WHERE (these IS NULL OR q = ANY (these)) AND (col = 'tags' OR q IN (2, 5, 6, 7, 9, 12)))
	SELECT format('%s of %s queries by all measures', count(*), (SELECT count(*) FROM t)) || coalesce(': ' || string_agg(format('%s %s %s %s', q, measure, col, result), ', ' ORDER BY q, measure, col), '')
	FROM t, compare(rel, q, measure, tids, col) result WHERE result <> 'same' $$;

-- a table without an index, and with one
SELECT * FROM differences('docs');
SELECT columns, searches > 100 AS searched FROM gpuvec_mirrors WHERE relation = 'docs'::regclass ORDER BY columns;
CREATE INDEX docs_tags ON docs USING gpuvec (tags, tenant);
CREATE INDEX docs_terms ON docs USING gpuvec (terms, tenant);
SELECT * FROM differences('docs');
-- versions, holes and new rows
UPDATE docs SET tenant = tenant + 1 WHERE id % 3 = 0;
DELETE FROM docs WHERE id % 7 = 0;
INSERT INTO docs SELECT id + 10000, ids, tags, tenant, terms, counts FROM docs WHERE id % 10 = 1;
INSERT INTO truth SELECT id + 10000, q, measure, score, common, col FROM truth WHERE id % 10 = 1 AND id < 10000;
SELECT * FROM differences('docs');
-- many rows by one query: the engine is asked again and again
INSERT INTO docs SELECT 20000 + i, '{7,31}', '{7,31}', 0 FROM generate_series(1, 3000) i;
INSERT INTO truth SELECT docs.id, q, measure, score, common, col FROM docs, truth t WHERE docs.id > 20000 AND t.id = 26;
SELECT q, m, found('docs', q, m, k, bound, NULL) = expected('docs', q, m, k, bound, NULL) AS same, length(found('docs', q, m, k, bound, NULL)) > 50000 AS many
FROM (VALUES (3, 'inner_product', 3200, -2), (3, 'cosine', NULL, -1), (1, 'jaccard', 2500, NULL), (4, 'inner_product', NULL, 0), (10, 'cosine', 3300, NULL), (13, 'jaccard', NULL, 0.1), (2, 'inner_product', 3999, '-Infinity')) v (q, m, k, bound);
DELETE FROM docs WHERE id > 20000;
DELETE FROM truth WHERE id > 20000;

-- some rows: few, which are fetched, and many, which are filtered
SELECT * FROM differences('docs', ARRAY(SELECT ctid FROM docs WHERE tenant = 3 AND id % 20 < 10), '{2,6,10,12}');
SELECT * FROM differences('docs', ARRAY(SELECT ctid FROM docs WHERE tenant IN (1, 2, 3, 4, 6) ORDER BY id DESC));
SELECT count(*) FROM gpuvec_vec_topk('docs', 'tags', '{7:1}', among => '{}');

-- tables of this transaction, in memory or read anew; temporary, unlogged,
-- materialized, and changed by it
BEGIN;
CREATE TABLE mine AS SELECT * FROM docs;
SELECT * FROM differences('mine', these => '{2,6,10,12}');
CREATE TEMP TABLE temporary AS SELECT * FROM docs;
ALTER TABLE mine SET (fillfactor = 10);
SELECT * FROM differences('temporary', these => '{2,6,10,12}');
UPDATE docs SET tenant = tenant + 1 WHERE id % 5 = 0;
INSERT INTO mine SELECT 20000 + i, '{7,31}', '{7,31}', 0 FROM generate_series(1, 30000) i;
INSERT INTO truth SELECT mine.id, q, measure, score, common, col FROM mine, truth t WHERE mine.id > 20000 AND t.id = 26 AND q IN (1, 3);
SELECT q, m, found('mine', q, m, k, bound, NULL) = expected('mine', q, m, k, bound, NULL) AS same FROM (VALUES (1, 'inner_product', 7, NULL), (3, 'inner_product', 70, -1), (1, 'jaccard', 70000, NULL)) v (q, m, k, bound);
SELECT relation FROM gpuvec_mirrors WHERE relation IN ('mine'::regclass, 'temporary'::regclass);
ROLLBACK;
CREATE UNLOGGED TABLE unlogged AS SELECT * FROM docs;
CREATE MATERIALIZED VIEW materialized AS SELECT * FROM docs;
SELECT * FROM differences('unlogged', these => '{2,6,10,12}');
SELECT * FROM differences('materialized', these => '{2,6,10,12}');

-- partitions: with an index, without, without WAL, with nothing
CREATE TABLE parts (id int, ids int8[], tags idset, tenant int, terms idvec, counts idvec) PARTITION BY LIST (tenant);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (0, 1);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2, 3);
CREATE UNLOGGED TABLE parts_3 PARTITION OF parts FOR VALUES IN (4, 5);
CREATE TABLE parts_4 (tenant int, gone int, counts idvec, tags idset, terms idvec, ids int8[], id int);
ALTER TABLE parts_4 DROP COLUMN gone;
ALTER TABLE parts ATTACH PARTITION parts_4 FOR VALUES IN (6, 7);
CREATE TABLE parts_5 PARTITION OF parts FOR VALUES IN (99);
CREATE TABLE parts_6 PARTITION OF parts FOR VALUES IN (8, 9, 10, 11);
CREATE INDEX ON parts_2 USING gpuvec (tags);
CREATE INDEX ON parts_2 USING gpuvec (counts);
CREATE INDEX ON parts_6 USING gpuvec (terms);
CREATE INDEX ON parts_6 USING gpuvec (tags);
INSERT INTO parts SELECT id, ids, tags, tenant, terms, counts FROM docs;
SELECT * FROM differences('parts', these => '{1,2,3,4,7,12}');
SELECT * FROM differences('parts');
-- rows of the best score are in each, and before others of any score: by
-- cosine and Jaccard none is better, by sums one of a later partition may be
SELECT count(DISTINCT source) > 3 AS several FROM gpuvec_vec_topk('parts', 'tags', '{7:1,31:1}', 100, 'cosine', 1);
SELECT q, m, k, found('parts', q, m, k, NULL, NULL) = expected('parts', q, m, k, NULL, NULL) AS same FROM (VALUES (16, 'cosine'), (16, 'jaccard'), (16, 'inner_product'), (12, 'inner_product')) v (q, m), unnest('{1,2,5,20}'::int[]) k ORDER BY q, m, k;
UPDATE parts SET id = id WHERE id % 4 = 0;
DELETE FROM parts WHERE id % 9 = 0;
SELECT * FROM differences('parts');
BEGIN;
INSERT INTO parts SELECT 30000 + i, '{7,31}', '{7,31}', i % 4 FROM generate_series(1, 40) i;
INSERT INTO truth SELECT p.id, q, measure, score, common, col FROM parts p, truth t WHERE p.id > 30000 AND t.id = 26;
SELECT * FROM differences('parts', these => '{1,3,4,7,12,16}');
ROLLBACK;
CREATE TABLE parent (LIKE docs);
CREATE TABLE child (more text) INHERITS (parent);
INSERT INTO parent SELECT * FROM docs WHERE id % 2 = 0;
INSERT INTO child SELECT *, 'more' FROM docs WHERE id % 2 = 1;
SELECT * FROM differences('parent', these => '{2,6,10,12}');

-- many queries, and whole rows
CREATE FUNCTION batches(rel regclass, col text, k int8, m text, bound float8, OUT by_batch text, OUT by_rows text, OUT n int8) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('WITH a AS (SELECT q, CASE WHEN $2 <> ''jaccard'' OR NOT 0 > ANY (yv) THEN v END AS v FROM queries),
		s AS (SELECT q, r.rank, r.source, r.tid, r.score, r.common FROM a, gpuvec_vec_topk(%1$L, %2$L, v, $1, $2, $3) r),
		b AS (SELECT query, rank, source, tid, score, common FROM gpuvec_vec_topk_batch(%1$L, %2$L, (SELECT array_agg(v ORDER BY q) FROM a), $1, $2, $3)),
		r AS (SELECT query, rank, (item).id, (item).%2$I, score, common FROM gpuvec_vec_topk_batch_rows(NULL::%1$s, %2$L, (SELECT array_agg(v ORDER BY q) FROM a), $1, $2, $3))
		SELECT (SELECT count(*) FROM s FULL JOIN b ON (q, s.rank, s.source, s.tid, s.score, s.common) = (query, b.rank, b.source, b.tid, b.score, b.common) WHERE q IS NULL OR query IS NULL),
			(SELECT count(*) FROM (SELECT q, rank, d.id, d.%2$I, score, common FROM s JOIN %1$s d ON (d.tableoid, d.ctid) = (source, tid)) s FULL JOIN r ON (q, s.rank, s.id, s.%2$I, s.score, s.common) = (query, r.rank, r.id, r.%2$I, r.score, r.common) WHERE q IS NULL OR query IS NULL),
			(SELECT count(*) FROM b)', rel, col) INTO by_batch, by_rows, n USING k, m, bound;
END $$;
SELECT rel, col, m, k, bound, by_batch, by_rows, n > 0 AS found FROM unnest('{docs,parts}'::regclass[]) rel, (VALUES ('tags', 'inner_product'), ('tags', 'cosine'), ('tags', 'jaccard'), ('terms', 'inner_product'), ('terms', 'cosine'), ('counts', 'jaccard')) m (col, m),
	(VALUES (1, NULL), (300, NULL), (50, 0), (NULL, 0.25), (20, -0.5)) c (k, bound), batches(rel, col, k, m, bound) ORDER BY rel, col COLLATE "C", m COLLATE "C", k, bound;
SELECT query, count(*) FROM gpuvec_vec_topk_batch('docs', 'tags', '{"{7:1}",NULL,"{}","{64000:1}","{7:-1}"}', 3) GROUP BY query ORDER BY query;
SELECT count(*) FROM gpuvec_vec_topk_batch('docs', 'tags', '{}');
SELECT count(*) FROM gpuvec_vec_topk_batch('docs', 'tags', NULL);
SELECT count(*) FROM gpuvec_vec_topk('docs', 'tags', NULL, min_score => '-Infinity');
SELECT t.rank, (t.item).id, t.score, t.common FROM gpuvec_vec_topk_rows(NULL::docs, 'tags', '{7:2,8:-0.5,31:0.25}', 3) t ORDER BY rank;
SELECT t.query, t.rank, (t.item).id, t.score FROM gpuvec_vec_topk_batch_rows(NULL::docs, 'tags', '{"{7:2}","{100003:0.5}"}', 2, 'cosine') t ORDER BY query, rank;
-- a measure of null is the default; names count whatever their case
SELECT (SELECT string_agg(t::text, ' ') FROM gpuvec_vec_topk('docs', 'tags', '{7:2,31:0.25}', 5, NULL) t) = (SELECT string_agg(t::text, ' ') FROM gpuvec_vec_topk('docs', 'tags', '{7:2,31:0.25}', 5) t) AS "null",
	(SELECT string_agg(t::text, ' ') FROM gpuvec_vec_topk('docs', 'tags', '{7:2,31:0.25}', 5, 'Tanimoto') t) = (SELECT string_agg(t::text, ' ') FROM gpuvec_vec_topk('docs', 'tags', '{7:2,31:0.25}', 5, 'JACCARD') t) AS tanimoto;
-- by weights of 1 the scores are those of sets
SELECT count(*) AS differ FROM gpuvec_vec_topk('docs', 'tags', '{7:1,31:1,62:1}', NULL, 'cosine', 1e-9) v FULL JOIN gpuvec_topk('docs', 'tags', '{7,31,62}', NULL, 'cosine', 1e-9) s USING (rank, source, tid, score, common) WHERE v IS NULL OR s IS NULL;

-- plans
EXPLAIN (COSTS OFF) SELECT * FROM gpuvec_vec_topk('docs', 'tags', '{7:1}', 3);
EXPLAIN (COSTS OFF, VERBOSE) SELECT t.score FROM gpuvec_vec_topk_batch_rows(NULL::docs, 'tags', ARRAY['{7:1}', '{8:-2.5}']::idvec[], 3, 'cosine') t WHERE t.rank = 1;
EXPLAIN (COSTS OFF) SELECT * FROM gpuvec_vec_topk('docs', 'tags', '{7:1}', 3) WITH ORDINALITY;
EXPLAIN (COSTS OFF) SELECT d.id FROM gpuvec_vec_topk('docs', 'tags', '{7:1}', 10) t JOIN docs d ON d.ctid = t.tid;
SELECT rank, ordinality FROM gpuvec_vec_topk('docs', 'tags', '{7:1}', 2) WITH ORDINALITY;
SELECT (gpuvec_vec_topk('docs', 'tags', '{7:1}', 2)).rank;
CREATE FUNCTION estimate(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	EXECUTE 'EXPLAIN ' || statement INTO line;
	RETURN substring(line FROM 'rows=(\d+)');
END $$;
SELECT estimate($$SELECT * FROM gpuvec_vec_topk('docs', 'tags', '{3:1}')$$) AS default_k, estimate($$SELECT * FROM gpuvec_vec_topk('docs', 'tags', '{3:1}', 7)$$) AS k7,
	estimate($$SELECT * FROM gpuvec_vec_topk_batch_rows(NULL::docs, 'tags', ARRAY['{3:1}','{4:1}','{5:1}']::idvec[], 7)$$) AS batch, estimate($$SELECT * FROM gpuvec_vec_topk('docs', 'tags', '{3:1}', NULL, 'cosine', 0.5)$$) AS of_score;
-- other queries of one plan
PREPARE search(idvec, int, text) AS SELECT array_agg(d.id ORDER BY t.rank) FROM gpuvec_vec_topk('docs', 'tags', $1, $2, $3) t JOIN docs d ON d.ctid = t.tid;
SET plan_cache_mode = force_generic_plan;
EXECUTE search('{7:1,31:-0.5}', 3, 'cosine');
EXECUTE search('{100003:1}', 2, 'inner_product');
EXECUTE search(NULL, 2, 'inner_product');
RESET plan_cache_mode;
SELECT q, array_agg(t.score ORDER BY rank) FROM queries, gpuvec_vec_topk('docs', 'tags', v, 2) t WHERE q < 5 GROUP BY q ORDER BY q;

-- By jaccard a row with a negative value is an error if the snapshot sees it,
-- and it is among the rows, wherever it is.
CREATE TABLE refused (id int, v idvec, p int) PARTITION BY LIST (p);
CREATE TABLE refused_1 PARTITION OF refused FOR VALUES IN (1);
CREATE TABLE refused_2 PARTITION OF refused FOR VALUES IN (2);
CREATE UNLOGGED TABLE refused_3 PARTITION OF refused FOR VALUES IN (3);
INSERT INTO refused SELECT i, '{7:1,8:0.5}', 1 + i % 3 FROM generate_series(1, 300) i;
CREATE FUNCTION jaccard(rel regclass, k int, tids tid[] DEFAULT NULL, bound float8 DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT count(*) FROM gpuvec_vec_topk(rel, 'v', '{7:1,8:0.5}', k, 'jaccard', bound, tids));
EXCEPTION WHEN invalid_parameter_value THEN
	RETURN SQLERRM;
END $$;
SELECT jaccard('refused', 2), jaccard('refused', 1000);
INSERT INTO refused SELECT i, CASE WHEN i = 1000 THEN '{9:-1e-45}'::idvec ELSE '{7:2}' END, p FROM unnest('{999,1000,1001}'::int[]) i, unnest('{1,2,3}'::int[]) p;
SELECT rel, k, jaccard(rel, k), jaccard(rel, k, bound => 0.99) FROM unnest('{refused,refused_1,refused_2,refused_3}'::regclass[]) rel, unnest('{1,2,1000}'::int[]) k ORDER BY rel, k;
SELECT jaccard('refused_2', 3, ARRAY(SELECT ctid FROM refused_2 WHERE id < 1000)) AS others, jaccard('refused_2', 3, ARRAY(SELECT ctid FROM refused_2 WHERE id >= 1000)) AS among, jaccard('refused_2', 3, ARRAY(SELECT ctid FROM refused_2)) AS all_rows;
SELECT count(*) FROM gpuvec_vec_topk('refused', 'v', '{7:1}', 7, 'cosine');
-- one partition after the other, each of which may have it
DELETE FROM refused WHERE id = 1000 AND p = 2;
CREATE INDEX ON refused_1 USING gpuvec (v);
SELECT jaccard('refused', 1), jaccard('refused_2', 1), jaccard('refused_1', 1);
BEGIN;
DELETE FROM refused WHERE id = 1000 AND p = 1;
SELECT jaccard('refused', 1), jaccard('refused_1', 1000);
DELETE FROM refused WHERE id = 1000;
SELECT jaccard('refused', 1), jaccard('refused', 1000);
ROLLBACK;
DELETE FROM refused WHERE id = 1000 AND p = 3;
SELECT jaccard('refused', 1), jaccard('refused_1', 1), jaccard('refused_3', 1000);
UPDATE refused SET v = '{9:1}' WHERE id = 1000;
SELECT jaccard('refused', 1), jaccard('refused_1', 1000);

-- a copy of vectors, by name
SELECT gpuvec_evict('docs', 'terms') > 0 AS evicted, gpuvec_prewarm('docs', 'terms') >= count(terms) AS loaded FROM docs;

-- errors
CREATE FUNCTION fails(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE d text; h text;
BEGIN
	EXECUTE statement;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS d = PG_EXCEPTION_DETAIL, h = PG_EXCEPTION_HINT;
	RETURN SQLSTATE || ': ' || SQLERRM || CASE WHEN d <> '' THEN E'\n  detail: ' || d ELSE '' END || CASE WHEN h <> '' THEN E'\n  hint: ' || h ELSE '' END;
END $$;
CREATE VIEW docs_view AS SELECT * FROM docs;
CREATE FOREIGN DATA WRAPPER vector_dummy;
CREATE SERVER vector_dummy FOREIGN DATA WRAPPER vector_dummy;
CREATE FOREIGN TABLE elsewhere (tags idset) SERVER vector_dummy;
\pset format unaligned
\pset tuples_only on
SELECT fails($$SELECT gpuvec_vec_topk('docs', 'tags', '{7:-1}', 3, 'jaccard')$$);
SELECT fails($$SELECT gpuvec_vec_topk_batch('docs', 'tags', '{"{7:1}",NULL,"{7:1,31:-1e-45}"}', 3, 'tanimoto')$$);
SELECT fails($$SELECT gpuvec_vec_topk('docs', 'tags', '{7:1}', 3, 'dice')$$);
SELECT fails($$SELECT gpuvec_vec_topk('docs', 'tags', '{7:1}', 3, '')$$);
SELECT fails($$SELECT gpuvec_topk('docs', 'tags', '{7}', 3, 'inner_product')$$);
SELECT fails($$SELECT gpuvec_vec_topk('docs', 'tags', '{7:1}', 0)$$);
SELECT fails($$SELECT gpuvec_vec_topk('docs', 'tags', '{7:1}', NULL)$$);
SELECT fails($$SELECT gpuvec_vec_topk('docs', 'tags', '{7:1}', 3, 'cosine', 'NaN')$$);
SELECT fails($$SELECT gpuvec_vec_topk('docs', 'tags', '{7:0.5,7:1}')$$);
SELECT split_part(fails($$SELECT gpuvec_vec_topk('docs', 'tags', tags) FROM docs$$), E'\n', 1);
SELECT fails($$SELECT gpuvec_vec_topk('docs', 'ids', '{7:1}')$$);
SELECT fails($$SELECT gpuvec_topk('docs', 'terms', '{7}')$$);
SELECT fails($$SELECT gpuvec_topk_batch_rows(NULL::docs, 'terms', '{"{7}"}')$$);
SELECT fails($$SELECT gpuvec_vec_topk('docs', 'nope', '{7:1}')$$);
SELECT fails($$SELECT gpuvec_vec_topk('docs', NULL, '{7:1}')$$);
SELECT fails($$SELECT gpuvec_vec_topk(NULL, 'tags', '{7:1}')$$);
SELECT fails($$SELECT gpuvec_vec_topk_batch('docs', 'tags', '{{"{7:1}"},{"{8:1}"}}')$$);
SELECT fails($$SELECT gpuvec_vec_topk_rows(1, 'tags', '{7:1}')$$);
SELECT fails($$SELECT gpuvec_vec_topk('docs_view', 'tags', '{7:1}')$$);
SELECT fails($$SELECT gpuvec_vec_topk('elsewhere', 'tags', '{7:1}')$$);
SELECT fails($$SELECT gpuvec_vec_topk_rows(NULL::elsewhere, 'tags', '{7:1}')$$);
SELECT fails($$SELECT gpuvec_vec_topk('parts', 'tags', '{7:1}', among => '{"(0,1)"}')$$);
CREATE ROLE regress_gpuvec_vectors;
GRANT USAGE ON SCHEMA search_vectors TO regress_gpuvec_vectors;
GRANT SELECT (tags) ON docs TO regress_gpuvec_vectors;
SET ROLE regress_gpuvec_vectors;
SELECT fails($$SELECT gpuvec_vec_topk('parts', 'tags', '{7:1}')$$);
SELECT fails($$SELECT gpuvec_vec_topk('docs', 'ids', '{7:1}')$$);
SELECT fails($$SELECT gpuvec_vec_topk_rows(NULL::docs, 'tags', '{7:1}')$$);
SELECT count(*) FROM gpuvec_vec_topk('docs', 'tags', '{7:1}', 4);
RESET ROLE;
ALTER TABLE docs ENABLE ROW LEVEL SECURITY;
SET ROLE regress_gpuvec_vectors;
SELECT fails($$SELECT gpuvec_vec_topk('docs', 'tags', '{7:1}')$$);
RESET ROLE;
ALTER TABLE docs DISABLE ROW LEVEL SECURITY;
-- a partition is searched although the best score was found: one of its rows
-- may be refused
TRUNCATE refused;
INSERT INTO refused VALUES (1, '{1:1}', 1), (2, '{2:1}', 2), (3, '{1:1,2:-1}', 3);
SELECT fails($$SELECT gpuvec_vec_topk('refused', 'v', '{1:1}', 1, 'jaccard')$$);
\pset tuples_only off
\pset format aligned
SET client_min_messages = warning;
DROP SCHEMA search_vectors CASCADE;
DROP SERVER vector_dummy CASCADE;
DROP FOREIGN DATA WRAPPER vector_dummy;
DROP ROLE regress_gpuvec_vectors;
