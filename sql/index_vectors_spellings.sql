-- CREATE INDEX ... USING gpuvec on vectors: conditions and orders that are
-- written in other ways than with <<->> and as distances, against scans
CREATE SCHEMA index_vectors_spellings;
SET search_path = index_vectors_spellings, public;
SET extra_float_digits = 1;
CREATE FUNCTION chance(i int8, j int8, below int8) RETURNS int8 IMMUTABLE LANGUAGE sql AS $$SELECT (hashint8extended(i * 1000 + j, 20261130) & 9007199254740991) % below$$;
-- v has values of both signs, and products that are next to 0; c has none
-- that is negative
CREATE TABLE docs (id int PRIMARY KEY, tenant int, v idvec, c idvec, tokens idset);
INSERT INTO docs SELECT r, r % 20, CASE WHEN r % 41 = 0 THEN NULL WHEN r % 37 = 0 THEN '{}' WHEN r % 43 = 0 THEN format('{0:1e-%s,7:%s}', r % 11 + 9, r)::idvec ELSE
		(SELECT idvec_agg(CASE WHEN k % 5 = 4 THEN k * 100000007::int8 ELSE k END, (1 + chance(r, k + 500, 2000)) / 128.0 * CASE WHEN chance(r, k + 700, 3) = 0 THEN -1 ELSE 1 END)
		FROM generate_series(0, 29) k WHERE chance(r, k, 100) < 60 / (1 + k / 6)) END
	FROM generate_series(1, 900) r;
UPDATE docs SET c = CASE WHEN v IS NOT NULL THEN coalesce((SELECT idvec_agg(id, abs(value)) FROM idvec_each(v)), '{}') END, tokens = v::idset;
CREATE INDEX docs_v ON docs USING gpuvec (v);
CREATE INDEX docs_c ON docs USING gpuvec (c);
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens);
VACUUM (FULL, ANALYZE) docs;

-- plans
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE idvec_cosine_similarity(v, '{0:2,1:1}') >= 0.5;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE 5 < idvec_inner_product('{0:2,1:1}', v);
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE v <=> '{0:2,1:1}' < 0.25 OR v <#> '{0:2,1:1}' <= -5 AND -12.5 < -idvec_inner_product(v, '{5:1}');
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE v <=> '{0:2,1:1}' = 0.25;
EXPLAIN (COSTS OFF) SELECT a.id, b.id FROM docs a JOIN docs b ON idvec_jaccard_similarity(a.c, b.c) >= 0.9 WHERE a.id IN (5, 6);
SET enable_sort = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE idvec_cosine_similarity(v, '{0:2,1:1}') >= 0.5 ORDER BY idvec_inner_product(v, '{5:1}') DESC NULLS LAST LIMIT 3;
RESET enable_bitmapscan;
RESET enable_sort;
RESET enable_seqscan;

-- what a condition finds by a bitmap scan, and by a scan of the table
CREATE FUNCTION found(condition text, by_index bool, relation text DEFAULT 'docs') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan text;
	ids text;
BEGIN
	PERFORM set_config('enable_indexscan', 'off', true), set_config('enable_seqscan', (NOT by_index)::text, true), set_config('enable_bitmapscan', by_index::text, true);
	EXECUTE format('EXPLAIN (FORMAT JSON) SELECT id FROM %s WHERE %s', relation, condition) INTO plan;
	IF (plan LIKE '%"Index Cond"%<<->>%') <> by_index THEN RETURN 'another plan: ' || by_index || plan; END IF;
	EXECUTE format('SELECT string_agg(id::text, '','' ORDER BY id) FROM %s WHERE %s', relation, condition) INTO ids;
	RETURN coalesce(ids, 'none');
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
-- values to compare with: those of rows, those next to them, and others
CREATE FUNCTION limits(value text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE format('SELECT unnest(ARRAY[s, s * (1 - 2.0 ^ -53), s / (1 - 2.0 ^ -53)]::float8[])::text FROM (SELECT DISTINCT %s AS s FROM docs WHERE id %% 47 = 3 OR id %% 43 = 0) x WHERE s IS NOT NULL', value);
	RETURN QUERY SELECT unnest('{-1e300,-5,-1,-0.5,-1e-300,-0,0,1e-300,1e-17,0.2,1,1.0000000000000002,2,1e300,Infinity,-Infinity,NaN}'::text[]);
END $$;
CREATE TABLE calls (call text, col text, sign int);
INSERT INTO calls VALUES ('idvec_inner_product(%s, %s)', 'v', 1), ('idvec_cosine_similarity(%s, %s)', 'v', 1), ('idvec_jaccard_similarity(%s, %s)', 'c', 1),
	('(%s <#> %s)', 'v', -1), ('(%s <=> %s)', 'v', -1), ('(%s <%%> %s)', 'c', -1);
CREATE TABLE queries (q int, v text);
INSERT INTO queries VALUES (1, '{0:2,1:1,7:0.5,900000063:3}'), (2, '{0:1,1:-2,5:0.5,6:-1.5}'), (3, '{0:1}'), (4, '{}');
INSERT INTO queries SELECT id, v::text FROM docs WHERE id = 5;
CREATE TABLE conditions AS SELECT call, expression, op, turned, s, hashtextextended(format('%s %s %s', expression, op, s), 0) AS h
	FROM (SELECT call, c.sign, turned, format(call, CASE WHEN turned THEN literal ELSE col END, CASE WHEN turned THEN col ELSE literal END) AS expression
		FROM calls c, queries q, unnest('{f,t}'::bool[]) turned,
		LATERAL (SELECT quote_literal(CASE WHEN col = 'c' THEN coalesce((SELECT idvec_agg(id, abs(value)) FROM idvec_each(q.v::idvec)), '{}')::text ELSE q.v END) || '::idvec' AS literal) l) x,
	unnest(CASE sign WHEN 1 THEN '{>=,>,=}'::text[] ELSE '{<=,<,=}' END) op, limits(expression) s;
-- a part of them, with the limit on either side
DELETE FROM conditions WHERE h % 10 <> 0;
ALTER TABLE conditions ADD condition text, ADD by_index text, ADD by_scan text;
UPDATE conditions SET condition = CASE WHEN h / 10 % 2 = 0 THEN format('%s %s %L::float8', expression, op, s) ELSE format('%L::float8 %s %s', s, translate(op, '<>', '><'), expression) END;
UPDATE conditions SET by_index = found(condition, true), by_scan = found(condition, false);
SELECT call, count(*) > 80 AS many, count(*) FILTER (WHERE by_index <> by_scan) AS different, count(DISTINCT by_scan) > 20 AS many_answers, min(by_index) FILTER (WHERE by_index !~ '^[0-9,]+$') AS least FROM conditions GROUP BY 1 ORDER BY 1;
SELECT condition, left(by_index, 100), left(by_scan, 100) FROM conditions WHERE by_index <> by_scan ORDER BY 1 LIMIT 3;

-- arithmetic, coalesce(), other types of limits
CREATE TABLE shapes AS SELECT * FROM (VALUES ('1 - %s', -1), ('-%s', -1), ('%s * -1', -1), ('-1::float8 * %s', -1)) v (shape, sign)
	UNION ALL SELECT shape, sign FROM (VALUES ('100 * (1 - %s)', -1), ('%s / 0.3', 1), ('%s * -3', -1), ('%s + 0.7', 1), ('%s - 1e6::float8', 1), ('%s::real', 1), ('%s::numeric', 1),
		('%s::numeric * 100', 1), ('1 - %s::real', -1), ('(1 - %s)::numeric::float8', -1)) v (shape, sign);
CREATE TABLE spelled AS SELECT shape, expression, op, type, s, hashtextextended(format('%s %s %s %s', expression, op, s, type), 0) AS h
	FROM (SELECT shape, call, c.sign * s.sign AS sign, format(shape, format(call, col, quote_literal(CASE col WHEN 'c' THEN '{0:2,1:1,7:0.5}' ELSE '{0:2,1:-1,7:0.5}' END))) AS expression
		FROM calls c, shapes s WHERE call !~ 'inner|#' OR shape IN ('-%s', '%s * -1', '-1::float8 * %s')) x,
	unnest(CASE sign WHEN 1 THEN '{>=,>,=}'::text[] ELSE '{<=,<,=}' END) op, unnest('{float8,real,numeric}'::text[]) type, limits(expression) s
	WHERE (type = 'float8' OR s ~ '^-?[0-9.]{1,15}$');
DELETE FROM spelled WHERE h % 37 <> 0;
ALTER TABLE spelled ADD condition text, ADD by_index text, ADD by_scan text;
UPDATE spelled SET condition = CASE WHEN h / 37 % 2 = 0 THEN format('%s %s %L::%s', expression, op, s, type) ELSE format('%L::%s %s %s', s, type, translate(op, '<>', '><'), expression) END;
UPDATE spelled SET by_index = found(condition, true), by_scan = found(condition, false);
SELECT shape, count(*) > 10 AS many, count(*) FILTER (WHERE by_index <> by_scan) AS different, count(DISTINCT by_scan) > 3 AS others FROM spelled GROUP BY shape ORDER BY shape COLLATE "C";
SELECT condition, left(by_index, 100), left(by_scan, 100) FROM spelled WHERE by_index <> by_scan ORDER BY 1 LIMIT 3;
SELECT condition, left(found(condition, true), 40) AS by_index, found(condition, true) = found(condition, false) AS same FROM (VALUES
	('coalesce(idvec_cosine_similarity(v, ''{0:2,1:1}''), 0) >= 0.5'), ('coalesce(idvec_inner_product(v, ''{0:2,1:1}''), 0) > 40'), ('coalesce(v <#> ''{0:2,1:1}'', 0) < -40'),
	('coalesce(c <%> ''{0:2,1:1}'', 1) <= 0.9'), ('coalesce(idvec_cosine_similarity(v, ''{0:2,1:1}''), -1) > -1'), ('idvec_inner_product(v, ''{0:2}'') >= 30::int8'), ('idvec_inner_product(v, ''{0:2}'') > 30::real'),
	('idvec_cosine_similarity(v, ''{0:2}'') >= 0.2 AND v <#> ''{1:1}'' < -2 AND tenant = 3'), ('NOT (v <=> ''{0:2,1:1}'' >= 0.4) OR idvec_inner_product(v, ''{5:1}'') >= 14'),
	('idset_inner_product(''{0,5}'', v) >= 14'), ('''{0,5}''::idset <#> v < -14'), ('v <#> ''{0,5,400000028}''::idset <= -18.3046875'), ('coalesce(v <#> ''{}''::idset, 1) <= 0 AND tenant = 4')) v (condition);
-- not where it cannot help: what is far is asked for, null rows, negations,
-- both sides of one row, arithmetic around an inner product
CREATE FUNCTION uses(condition text, shown text DEFAULT '%"Index Cond"%<<->>%') RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	plan text;
BEGIN
	PERFORM set_config('enable_seqscan', 'off', true);
	EXECUTE 'EXPLAIN (FORMAT JSON) SELECT id FROM docs WHERE id > 0 AND ' || condition INTO plan;
	PERFORM set_config('enable_seqscan', 'on', true);
	RETURN plan LIKE shown;
END $$;
SELECT condition, uses(condition) FROM unnest(ARRAY['idvec_cosine_similarity(v, ''{5:1}'') <= 0.5', 'v <=> ''{5:1}'' >= 0.5', 'NOT idvec_cosine_similarity(v, ''{5:1}'') >= 0.5', 'idvec_cosine_similarity(v, v) >= 0.5',
	'idvec_cosine_similarity(v, ''{5:1}'') >= random()', 'idvec_cosine_similarity(v, ''{5:1}'') >= id', 'coalesce(idvec_cosine_similarity(v, ''{5:1}''), 1) >= 0.5', '1 - idvec_cosine_similarity(v, ''{5:1}'') >= 0.5',
	'idvec_inner_product(v, ''{5:1}'') * 2 >= 3', 'idvec_inner_product(v, ''{5:1}'')::real >= 3', 'idset_inner_product(tokens, ''{5:1}'') >= 3', 'tokens <#> ''{5:1}''::idvec <= -3', 'idset_inner_product(''{5}'', v) * 2 >= 3',
	'idvec_cosine_similarity(v + c, ''{5:1}'') >= 0.5']) condition;

-- queries and limits that are not known when the statement is planned
SET plan_cache_mode = force_generic_plan;
CREATE FUNCTION prepare_all() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	DEALLOCATE ALL;
	PREPARE by_cosine(idvec, float8) AS SELECT count(*) FROM docs WHERE idvec_cosine_similarity(v, $1) >= $2;
	PREPARE by_distance(idvec, float8) AS SELECT count(*) FROM docs WHERE v <=> $1 < $2;
	PREPARE by_negative(idvec, float8) AS SELECT count(*) FROM docs WHERE $2 >= v <#> $1;
	PREPARE by_jaccard(idvec, float8) AS SELECT count(*) FROM docs WHERE 1 - (c <%> $1) >= $2;
END $$;
CREATE FUNCTION answers() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	statement text;
	result text;
	results text := '';
BEGIN
	FOR statement IN SELECT format('EXECUTE %s(%L, %L)', name, q, s) FROM unnest('{by_cosine,by_distance,by_negative,by_jaccard}'::text[]) WITH ORDINALITY n (name, i), unnest('{"{0:2,1:1}","{}",NULL}'::text[]) WITH ORDINALITY q (q, j),
			unnest('{0.3,0,-3,NaN,Infinity,-Infinity,NULL}'::text[]) WITH ORDINALITY s (s, k) ORDER BY i, j, k LOOP
		EXECUTE statement INTO result;
		results := results || ' ' || result;
	END LOOP;
	RETURN results;
END $$;
SET enable_seqscan = off;
SELECT prepare_all();
EXPLAIN (COSTS OFF) EXECUTE by_cosine('{}', 1);
EXPLAIN (COSTS OFF) EXECUTE by_distance('{}', 1);
EXPLAIN (COSTS OFF) EXECUTE by_negative('{}', 1);
EXPLAIN (COSTS OFF) EXECUTE by_jaccard('{}', 1);
SELECT answers() \gset
SET enable_seqscan = on;
SET enable_indexscan = off;
SET enable_bitmapscan = off;
SELECT prepare_all();
SELECT :'answers' AS answers, answers() = :'answers' AS same;
DEALLOCATE ALL;
RESET enable_indexscan;
RESET enable_bitmapscan;
RESET plan_cache_mode;
-- joins
CREATE FUNCTION join_rows(condition text, parts text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	query text := 'SELECT count(*) || '' '' || sum(hashtextextended(a.id || '' '' || b.id, 0)) FROM (SELECT id, v, c, tokens FROM docs WHERE id < 50) a JOIN docs b ON ' || condition;
	plan text;
	result text;
BEGIN
	PERFORM set_config('enable_indexscan', parts, true), set_config('enable_bitmapscan', parts, true), set_config('enable_seqscan', CASE parts WHEN 'on' THEN 'off' ELSE 'on' END, true);
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	IF (plan LIKE '%<<->>%') <> (parts = 'on') THEN RETURN parts; END IF;
	EXECUTE query INTO result;
	RETURN result;
END $$;
SELECT condition, join_rows(condition, 'on') = join_rows(condition, 'off') AS same FROM unnest(ARRAY['idvec_cosine_similarity(b.v, a.v) >= 0.4', 'a.v <#> b.v < -100', '0.3 <= 1 - (b.c <%> a.c)', 'b.v <#> a.tokens < -30']) condition;

-- What Jaccard's similarity refuses: a row fails as in a scan of the table,
-- behind cheaper conditions; a query, too
INSERT INTO docs VALUES (1001, 99, '{1:1}', '{0:1,1:-1}', '{}');
SELECT condition, left(found(condition, true), 60) AS by_index, found(condition, true) = found(condition, false) AS same FROM (VALUES
	('idvec_jaccard_similarity(c, ''{0:2,1:1}'') >= 0.9'), ('idvec_jaccard_similarity(c, ''{0:2,1:1}'') >= ''NaN'''), ('1 - (c <%> ''{0:2,1:1}'') >= 0.9'), ('c <%> ''{0:2,1:1}'' <= ''NaN'''), ('c <%> ''{0:2,1:1}'' <= -1'),
	('tenant <> 99 AND idvec_jaccard_similarity(c, ''{0:2,1:1}'') >= 0.1'), ('c <%> ''{0:2,1:1}'' <= 0.9 AND tenant < 20'), ('tenant = 3 AND idvec_jaccard_similarity(c, ''{0:-2}'') >= 0.9'), ('tenant = 77 AND c <%> ''{0:-2}'' < 0.9')) v (condition);
-- without a mirror the executor checks all rows
CREATE TEMPORARY TABLE temporary AS SELECT * FROM docs;
CREATE INDEX ON temporary USING gpuvec (c);
SELECT left(found('tenant <> 99 AND c <%> ''{0:2,1:1}'' <= 0.9', by_index, 'temporary'), 60) FROM unnest('{t,f}'::bool[]) by_index;
-- an order by what the row refuses
SET enable_sort = off;
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tenant <> 99 ORDER BY 1 - (c <%> '{0:2,1:1}') DESC NULLS LAST LIMIT 3;
SELECT id FROM docs WHERE tenant <> 99 ORDER BY 1 - (c <%> '{0:2,1:1}') DESC NULLS LAST LIMIT 3;
SELECT id FROM docs ORDER BY 1 - (c <%> '{0:2,1:1}') DESC NULLS LAST LIMIT 3;
RESET enable_sort;
RESET enable_seqscan;
SELECT id FROM docs WHERE tenant <> 99 ORDER BY 1 - (c <%> '{0:2,1:1}') DESC NULLS LAST LIMIT 3;
SELECT '{1:-1}'::idvec <<->> ('{1:1}', 0.5, 'Jaccard_or_Error') AS refused, '{1:1}'::idvec <<->> ('{1:-1}', 'Infinity', 'jaccard_or_error') AS refused_query, '{1:1}'::idvec <<->> ('{1:2}', 0.5, 'jaccard_or_error') AS reached,
	'{1:1}'::idvec <<->> ('{1:2}', 0.51, 'jaccard_or_error') AS not_reached, NULL::idvec <<->> ('{1:-1}', 0, 'jaccard_or_error') AS no_vector;
SELECT * FROM gpuvec_vec_topk('docs', 'c', '{1:1}', 1, 'jaccard_or_error');
DELETE FROM docs WHERE id = 1001;
VACUUM docs;

-- orders: rows in the order of a distance are in the order that is asked for
CREATE FUNCTION sorts(sort text, condition text DEFAULT 'id > 0') RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('enable_sort', 'off', true);
	RETURN uses(format('%s ORDER BY %s LIMIT 10', condition, sort), '%"Order By"%');
END $$;
SELECT sorts(sort) AS by_index, sort FROM unnest(ARRAY['idvec_inner_product(v, ''{5:1}'') DESC NULLS LAST', 'idvec_inner_product(''{5:1}'', v) DESC NULLS LAST', '-(v <#> ''{5:1}'') DESC NULLS LAST', '100 * (v <#> ''{5:1}'')',
	'1 - (v <=> ''{5:1}'') DESC NULLS LAST', '1.0 - (''{5:1}'' <%> c) DESC NULLS LAST', '(c <%> ''{5:1}'')::real', 'coalesce(c <%> ''{5:1}'', 1)', 'coalesce(v <=> ''{5:1}'', 2)', 'coalesce(1 - (v <=> ''{5:1}''), -1.1) DESC',
	'coalesce(idvec_inner_product(v, ''{5:1}''), ''-Infinity'') DESC', 'idset_inner_product(''{5}'', v) DESC NULLS LAST', 'idset_inner_product(tokens, ''{5:1}'') DESC NULLS LAST', '-(tokens <#> ''{5:1}''::idvec) DESC NULLS LAST']) sort;
-- not where nulls would come first or amid, what is farthest, or another order
SELECT sorts(sort) AS by_index, sort FROM unnest(ARRAY['idvec_inner_product(v, ''{5:1}'') DESC', 'idvec_inner_product(v, ''{5:1}'')', '-(v <#> ''{5:1}'')', 'idvec_cosine_similarity(v, ''{5:1}'') DESC NULLS LAST',
	'idvec_jaccard_similarity(c, ''{5:1}'') DESC NULLS LAST', '1 - idvec_cosine_similarity(v, ''{5:1}'')', 'coalesce(idvec_inner_product(v, ''{5:1}''), 0) DESC', 'coalesce(v <#> ''{5:1}'', 0)', 'coalesce(v <=> ''{5:1}'', 1)',
	'coalesce(1 - (v <=> ''{5:1}''), 0) DESC', 'coalesce(1 - (v <=> ''{5:1}''), -1) DESC', 'idvec_cosine_similarity(v, ''{5:1}'') DESC', '-(v <#> ''{5:1}'') DESC']) sort;
SELECT sorts('idvec_inner_product(v, ''{5:1}'') DESC', condition) AS by_index, condition FROM unnest(ARRAY['v IS NOT NULL', 'v <=> ''{5:1}'' < 0.9', 'id > 0']) condition;
-- the values of all rows in this order: negative ones, 0 and nulls come
-- after those that rank
CREATE FUNCTION ordered(sort text, seq text, rows int, relation text DEFAULT 'docs') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	query text := format('SELECT %s AS value FROM %s ORDER BY %s LIMIT %s', regexp_replace(sort, ' DESC| NULLS LAST', '', 'g'), relation, sort, rows);
	plan text;
	result text;
BEGIN
	PERFORM set_config('enable_seqscan', seq, true), set_config('enable_sort', seq, true), set_config('enable_indexscan', CASE seq WHEN 'on' THEN 'off' ELSE 'on' END, true);
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	IF (plan LIKE '%"Order By"%') = (seq = 'on') THEN RETURN seq; END IF;
	EXECUTE format('SELECT md5(string_agg(coalesce(value::text, ''-''), '','')) FROM (%s) x', query) INTO result;
	RETURN result;
END $$;
CREATE TABLE sorted AS SELECT format(shape, format(call, col, quote_literal(query) || '::idvec')) || CASE WHEN (c.sign > 0) <> (s.sign < 0) THEN ' DESC NULLS LAST' ELSE '' END AS sort
	FROM (SELECT * FROM calls UNION ALL SELECT 'idset_inner_product(%s, %s)', 'tokens', 1 UNION ALL SELECT '(%s <#> %s)', 'tokens', -1) c,
	(VALUES ('%s', 1), ('1 - %s', -1), ('%s * -3.7', -1), ('(1 - %s)::real', -1), ('0.3 * %s', 1)) s (shape, sign),
	unnest('{"{0:2,1:1,7:0.5,900000063:3}","{0:1}","{}"}'::text[]) query WHERE call !~ 'cosine|jaccard'
	UNION ALL SELECT format('%s <#> ''{0:1,1:-2,6:-1.5}''::idvec', col) FROM unnest('{v,tokens}'::text[]) col UNION ALL SELECT 'idvec_inner_product(v, ''{0:1,1:-2,6:-1.5}'') DESC NULLS LAST' UNION ALL SELECT '1 - (v <=> ''{0:1,1:-2,6:-1.5}'') DESC NULLS LAST'
	UNION ALL SELECT 'idset_inner_product(''{0,1,5}'', v) DESC NULLS LAST' UNION ALL SELECT 'coalesce(1 - (v <=> ''{0:1,1:-2}''), -1.1) DESC' UNION ALL SELECT 'coalesce(v <#> ''{0:1,1:-2}'', ''Infinity'')';
SELECT count(*), count(*) FILTER (WHERE ordered(sort, 'on', rows) = ordered(sort, 'off', rows)) AS same FROM sorted, unnest(ARRAY[20, 2000]) rows;
SELECT sort FROM sorted WHERE ordered(sort, 'on', 2000) <> ordered(sort, 'off', 2000) ORDER BY 1 LIMIT 5;
-- partitions
CREATE TABLE parts (id int, v idvec, c idvec) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (300);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (300) TO (100000);
INSERT INTO parts SELECT id, v, c FROM docs;
CREATE INDEX ON parts USING gpuvec (v);
CREATE INDEX ON parts USING gpuvec (c);
ANALYZE parts;
SELECT condition, found(condition, true, 'parts') = found(condition, false, 'docs') AS same FROM unnest(ARRAY['idvec_cosine_similarity(v, ''{0:2,1:1}'') >= 0.4', 'v <#> ''{0:2,1:-1}'' < 0', 'c <%> ''{0:2,1:1}'' < 0.9']) condition;
SELECT sort, ordered(sort, 'off', rows, 'parts') = ordered(sort, 'on', rows) AS same FROM unnest(ARRAY['idvec_inner_product(v, ''{0:2,1:-1}'') DESC NULLS LAST', '1 - (c <%> ''{0:2,1:1}'') DESC NULLS LAST']) sort, unnest(ARRAY[20, 2000]) rows;
-- an expression, a predicate, a lateral join
CREATE INDEX docs_less ON docs USING gpuvec ((v - '{5}'::idset)) WHERE id < 600;
SELECT left(found('idvec_cosine_similarity(v - ''{5}''::idset, ''{0:2,1:1}'') >= 0.5 AND id < 600', by_index), 40) FROM unnest('{t,f}'::bool[]) by_index;
DROP INDEX docs_less;
SELECT uses('EXISTS (SELECT FROM (SELECT c.v FROM docs c WHERE c.id = docs.id OFFSET 0) a, LATERAL (SELECT b.id FROM docs b ORDER BY idvec_inner_product(b.v, a.v) DESC NULLS LAST LIMIT 3) x)', '%"Order By"%');

-- who does not see all rows: what cannot fail is searched for by the index,
-- not what a row that a policy hides makes fail
CREATE ROLE regress_gpuvec_vectors_spelled;
INSERT INTO docs VALUES (1002, 99, '{0:1,1:-1}', '{0:1,1:-1}', '{}');
CREATE POLICY hidden ON docs USING (tenant < 20);
ALTER TABLE docs ENABLE ROW LEVEL SECURITY;
GRANT USAGE ON SCHEMA index_vectors_spellings TO regress_gpuvec_vectors_spelled;
GRANT SELECT ON docs TO regress_gpuvec_vectors_spelled;
CREATE TABLE guarded AS SELECT * FROM unnest(ARRAY['idvec_cosine_similarity(v, ''{0:2,1:1}'') > 0.4', 'idvec_inner_product(v, ''{0:2,1:1}'') > 30', 'v <=> ''{0:2,1:1}'' <= 0.6', '1 - (v <=> ''{0:2,1:1}'') >= 0.4', '-(v <#> ''{0:2,1:1}'') > 30',
	'idvec_jaccard_similarity(c, ''{0:2,1:1}'') >= 0.1', 'c <%> ''{0:2,1:1}'' < 0.9', '1 - (c <%> ''{0:2,1:1}'') > 0.1', 'c <<->> (''{0:2,1:1}'', 0.1, ''jaccard_or_error'')']) condition;
GRANT SELECT ON guarded TO regress_gpuvec_vectors_spelled;
SET ROLE regress_gpuvec_vectors_spelled;
SELECT condition, uses(condition) AS by_index, found(condition, uses(condition)) = found(condition, false) AS same, found(condition, false) ~ '^[0-9,]+$' AS rows FROM guarded;
SELECT uses('1 - (v <=> ''{5:1}'') > (SELECT 0.3::float8)') AS later, uses('idvec_cosine_similarity(v, ''{5:1}'') > (SELECT 0.3::float8)') AS leakproof;
RESET ROLE;
SET client_min_messages = warning;
DROP SCHEMA index_vectors_spellings CASCADE;
DROP ROLE regress_gpuvec_vectors_spelled;
