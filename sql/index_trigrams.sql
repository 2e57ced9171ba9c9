-- Indexes on texts by trigrams: the distance <%~>, thresholds, LIKE and =,
-- which are checked on the rows.
SELECT current_database() AS before, current_database() || '_trigrams' AS unicode, CASE WHEN current_setting('server_version_num')::int >= 180000 THEN 'LOCALE_PROVIDER builtin BUILTIN_LOCALE ' || quote_literal('PG_UNICODE_FAST') ELSE '' END AS full_mapping \gset
-- with a locale that lowers sigma by its neighbours, if the server has one
CREATE DATABASE :"unicode" TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C.UTF-8' :full_mapping;
\c :"unicode"
CREATE EXTENSION gpuvec;
SET client_encoding = 'UTF8';
SET client_min_messages = error;
-- the distance is that of the sets of trigrams
SELECT 'word' <%~> 'two words' AS distance, '' <%~> '' AS empty, 'abc' <%~> NULL AS nothing, 'Größe'::varchar <%~> 'GRÖSSE' AS "varchar";
SELECT 'abc' <<%~>> idset_threshold(idset_trigrams('abcd'), 0.5, 'jaccard') AS reaches, 'abc' <<%~>> idset_threshold(idset_trigrams('abcd'), 0.7, 'jaccard') AS misses;
SELECT idset_trgm_within('abcd', 0.5, 'jaccard') = idset_within(idset_trigrams('abcd'), 0.5, 'jaccard') AS within;
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'gpuvec_trgm_ops';
-- texts: near duplicates, capitals that are lowered in several ways, nulls,
-- wildcards
CREATE TABLE names (id int, name text, code varchar, price int);
CREATE FUNCTION chance(i int, j int, kind int) RETURNS float8 LANGUAGE sql IMMUTABLE AS $$ SELECT (hashint4extended(i * 100 + j, kind) & 1048575) / 1048576::float8 $$;
CREATE TABLE parts AS SELECT row_number() OVER () AS n, part FROM unnest(ARRAY['a', 'ab', 'I', 'Ilse', 'i', 'Berlin', 'berlin', 'Köln', 'KÖLN', 'Straße', '50%', 'x_y', '\', '.', '-', ' ', 'ΣΑΣ', 'σας', 'σΑσ', 'İ', 'ı', 'é', 'e' || U&'\0301', 'J' || U&'\0300', U&'\212A' || 'elvin', 'Kelvin', '東京', '都', 'O''Neil', '123', 'foo', 'FOOBAR', 'bar', ' ', ' ', ' ']) part;
INSERT INTO names SELECT i, CASE WHEN i % 41 > 0 THEN name END, upper(name), i % 100
	FROM (SELECT i, coalesce(string_agg(part, '' ORDER BY j), '') AS name FROM generate_series(1, 8000) i LEFT JOIN generate_series(1, 9) j ON j <= i * 7919 % 10 LEFT JOIN parts ON n = 1 + (chance(i, j, 2) ^ 1.5 * (SELECT count(*) - 1 FROM parts))::int GROUP BY i) s;
CREATE INDEX names_name ON names USING gpuvec (name gpuvec_trgm_ops, price);
CREATE INDEX names_code ON names USING gpuvec (code gpuvec_trgm_ops);
UPDATE names SET name = name || ' new' WHERE id % 11 = 0;
DELETE FROM names WHERE id % 17 = 0;
ANALYZE names;
CREATE FUNCTION rows_of(query text, off text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE result text;
BEGIN
	EXECUTE 'SET LOCAL enable_' || off || ' = off';
	IF off = 'indexscan' THEN SET LOCAL enable_bitmapscan = off; ELSE SET LOCAL enable_sort = off; END IF;
	EXECUTE format('SELECT string_agg(r::text, %L) FROM (%s) r', '; ', query) INTO result;
	SET LOCAL enable_indexscan = on; SET LOCAL enable_bitmapscan = on; SET LOCAL enable_seqscan = on; SET LOCAL enable_sort = on;
	RETURN result;
END $$;
CREATE FUNCTION used_index(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text; used text = 'none';
BEGIN
	SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off;
	FOR line IN EXECUTE 'EXPLAIN ' || query LOOP
		used = coalesce(substring(line, 'names_\w+'), used);
	END LOOP;
	SET LOCAL enable_seqscan = on; SET LOCAL enable_sort = on;
	RETURN used;
END $$;
CREATE FUNCTION compared(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE expected text = rows_of(query, 'indexscan');
BEGIN
	RETURN concat(used_index(query), CASE WHEN expected IS NULL THEN ' no rows' END) || CASE WHEN rows_of(query, 'seqscan') IS DISTINCT FROM expected THEN ' differ' ELSE ' equal' END;
END $$;
-- orders
SELECT q, compared(format('SELECT d FROM (SELECT name <%%~> %L AS d FROM names ORDER BY 1 LIMIT 50) s', q)) FROM unnest('{berlin,"KÖLN foo",σας,"",東京都,123}'::text[]) q;
SELECT compared('SELECT code <%~> ''foobar'' AS d FROM names ORDER BY 1 LIMIT 30') AS "varchar", compared('SELECT name <%~> ''foobar'' AS d FROM names WHERE price < 5 ORDER BY 1 LIMIT 30') AS filtered, compared('SELECT 1 - (name <%~> ''foobar'') AS d FROM names WHERE name IS NOT NULL ORDER BY 1 DESC LIMIT 30') AS turned;
SELECT m, compared(format('SELECT d FROM (SELECT name <&%%~> idset_ranking(idset_trigrams(''foo bar''), %L) AS d FROM names WHERE name <> '''' ORDER BY 1 LIMIT 50) s', m)) FROM unnest('{containment,overlap,"tversky(0.9, 0.1)",cosine}'::text[]) m;
-- thresholds, comparisons
SELECT c, compared(format('SELECT id FROM names WHERE %s ORDER BY id', c)) FROM unnest(ARRAY['name <%~> ''berlin'' <= 0.5', '1 - (name <%~> ''Köln'') > 0.4', 'name <<%~>> idset_threshold(idset_trigrams(''foobar''), 0.5, ''jaccard'')', 'name <<%~>> idset_threshold(idset_trigrams(''foobar''), 1, ''containment'') AND price > 50', 'code <%~> ''50%'' < 0.6']) c;
EXPLAIN (COSTS OFF) SELECT count(*) FROM names WHERE name <<%~>> idset_threshold(idset_trigrams('foobar'), 0.5, 'jaccard');
SELECT (SELECT count(*) FROM names WHERE name <<%~>> idset_threshold(idset_trigrams('foobar'), 0.5, 'jaccard')) = (SELECT count(*) FROM names WHERE jaccard_similarity(idset_trigrams(name), idset_trigrams('foobar')) >= 0.5) AS counted;
-- = and LIKE: every piece of some names between wildcards, and whole names
SELECT compared(format('SELECT id FROM names WHERE name = %L ORDER BY id', name)) AS same, count(*) FROM (SELECT name FROM names WHERE id % 400 = 7) s GROUP BY 1 ORDER BY 1;
CREATE FUNCTION escaped(t text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT regexp_replace(t, '([\\%_])', '\\\1', 'g') $$;
CREATE TABLE patterns AS SELECT DISTINCT CASE k % 7 WHEN 0 THEN '%' || p || '%' WHEN 1 THEN p || '%' WHEN 2 THEN '%' || p WHEN 3 THEN '_' || p || '_' WHEN 4 THEN p WHEN 5 THEN '%' || replace(p, ' ', '%') || '%' ELSE '%' || overlay(p PLACING '_' FROM 1 + length(p) / 2 FOR 1) || '%' END AS pattern
	FROM (SELECT k, escaped(substr(name, CASE k % 7 WHEN 1 THEN 1 ELSE from_at END, CASE WHEN k % 7 IN (2, 4) THEN 1000 ELSE len END)) AS p
		FROM (SELECT name, k, 1 + (chance(id, k, 3) * length(name))::int AS from_at, 3 + (chance(id, k, 4) * 10)::int AS len FROM names, generate_series(0, 6) k WHERE id % 40 = 3 AND length(name) > 6) s) t WHERE p <> '';
CREATE FUNCTION pattern_differs(pattern text, operator text DEFAULT 'LIKE') RETURNS bool LANGUAGE plpgsql AS $$
DECLARE found int[]; expected int[];
BEGIN
	SET LOCAL enable_bitmapscan = off; SET LOCAL enable_indexscan = off;
	EXECUTE format('SELECT array_agg(id ORDER BY id) FROM names WHERE name %s $1', operator) INTO expected USING pattern;
	SET LOCAL enable_bitmapscan = on; SET LOCAL enable_indexscan = on; SET LOCAL enable_seqscan = off;
	EXECUTE format('SELECT array_agg(id ORDER BY id) FROM names WHERE name %s $1', operator) INTO found USING pattern;
	SET LOCAL enable_seqscan = on;
	RETURN found IS DISTINCT FROM expected;
END $$;
SELECT count(*) > 1000 AS many, count(*) FILTER (WHERE pattern_differs(pattern)) AS differ, string_agg(pattern, ' ') FILTER (WHERE pattern_differs(pattern)) AS which FROM patterns;
SELECT p, substring(compared(format('SELECT id FROM names WHERE name LIKE %L ORDER BY id', p)), '\w+$') FROM unnest(ARRAY['%berlin%', '%\%%', '%x\_y%', '%\\%', '%', '', 'ΣΑ%', '%ΣΑΣ%', '%ΑΣ', '%JÀ%', '%ab', 'foo%bar', '%oo b%', '%Ilse%', '%lse%', '%é%', 'a', '%ber\lin%', 'berlin', '%berlin']) p;
SELECT p, compared(format('SELECT id FROM names WHERE name LIKE %L ESCAPE ''!'' ORDER BY id', p)) FROM unnest(ARRAY['%50!%%', '%x!_y%']) p;
SELECT compared('SELECT id FROM names WHERE name LIKE ANY (''{%berlin%,%KÖLN%}'') ORDER BY id') AS "any", compared('SELECT id FROM names WHERE name = ANY ((SELECT array_agg(name) FROM names WHERE id < 20)::text[]) ORDER BY id') AS equal_any, compared('SELECT id FROM names WHERE code LIKE ''%FOO%'' AND name LIKE ''%foo%'' ORDER BY id') AS two;
-- ILIKE: the same patterns, also in capitals and small letters
SELECT count(*) > 2000 AS many, count(*) FILTER (WHERE pattern_differs(pattern, 'ILIKE')) AS differ, string_agg(pattern, ' ') FILTER (WHERE pattern_differs(pattern, 'ILIKE')) AS which FROM (SELECT pattern FROM patterns UNION SELECT upper(pattern) FROM patterns WHERE length(pattern) % 2 = 0 UNION SELECT lower(pattern) FROM patterns WHERE length(pattern) % 3 = 0) s;
SELECT p, substring(compared(format('SELECT id FROM names WHERE name ILIKE %L ORDER BY id', p)), '\w+$') FROM unnest(ARRAY['%BERLIN%', '%kelvin%', '%KELVIN%', '%elv' || U&'\0130' || 'n%', '%köl%', '%Foo%Bar', '%ilse%', '%ILSE%', 'x\_Y%', '%be\Rl%', '', '%50\%%']) p;
SELECT used_index('SELECT id FROM names WHERE name ILIKE ''%bERl%''') AS by_index, compared('SELECT id FROM names WHERE name ILIKE ANY (''{%BERL%,%foo%}'') ORDER BY id') AS "any";
-- a pattern without a trigram is no search
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM names WHERE name LIKE '%ab%' AND price = 3;
RESET enable_seqscan;
EXPLAIN (COSTS OFF) SELECT id FROM names WHERE name LIKE '%ab%';
EXPLAIN (COSTS OFF) SELECT id FROM names WHERE name LIKE '%abcd%';
SELECT id FROM names WHERE name LIKE '%abcd\' AND id = 1;
-- prepared
PREPARE like_p (text) AS SELECT count(*) FROM names WHERE name LIKE $1;
SET plan_cache_mode = force_generic_plan;
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) EXECUTE like_p ('%berlin%');
EXECUTE like_p ('%berlin%');
EXECUTE like_p ('%e%');
RESET plan_cache_mode;
RESET enable_seqscan;
SELECT count(*) FILTER (WHERE name LIKE '%berlin%') AS berlin, count(*) FILTER (WHERE name LIKE '%e%') AS e FROM names;
-- another collation than the index's, and one under which other texts are
-- equal
CREATE COLLATION other FROM "C";
SET enable_seqscan = off;
SELECT used_index('SELECT id FROM names WHERE name COLLATE other LIKE ''%berlin%''') AS like, used_index('SELECT id FROM names WHERE name COLLATE other <%~> ''berlin'' < 0.5') AS distance;
RESET enable_seqscan;
SELECT count(*) > 0 AS icu FROM pg_collation WHERE collprovider = 'i' \gset
\if :icu
CREATE COLLATION bare (provider = icu, locale = 'und-u-ks-level1', deterministic = false);
\else
CREATE COLLATION bare FROM "C";
\endif
CREATE TABLE names_bare AS SELECT id, (ARRAY['Café', 'cafe', 'CAFÉ', 'other'])[1 + id % 4] COLLATE bare AS name FROM generate_series(1, 1000) id;
CREATE INDEX names_bare_name ON names_bare USING gpuvec (name gpuvec_trgm_ops);
SELECT compared('SELECT id FROM names_bare WHERE name = ''cafe'' ORDER BY id') AS same, compared('SELECT name <%~> ''cafe'' AS d FROM names_bare ORDER BY 1 LIMIT 300') AS distance;
-- texts that no set is made of
SELECT string_agg(chr(19968 + i % 20000) || chr(19968 + i / 200), '') AS long FROM generate_series(1, 40000) i \gset
INSERT INTO names (id, name) VALUES (-1, :'long');
SELECT count(*) FROM names WHERE name = :'long' OR name LIKE :'long' || '%';
SELECT count(*) FROM names WHERE name LIKE '%' || :'long' || '%';
-- only the first column is a set of trigrams
CREATE FUNCTION message(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE detail text; hint text;
BEGIN
	EXECUTE statement;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(' | ', SQLSTATE, SQLERRM, detail, hint);
END $$;
CREATE TABLE names_places (name text, city text COLLATE "C", zip char(5), tokens idset);
INSERT INTO names_places SELECT 'name ' || i, 'Berlin ' || i, i % 100, ARRAY[i % 7]::idset FROM generate_series(1, 500) i;
SELECT message('CREATE INDEX names_places_city ON names_places USING gpuvec (tokens, city gpuvec_trgm_ops)') AS after_sets, message('CREATE INDEX ON names_places USING gpuvec (name gpuvec_trgm_ops, city, name gpuvec_trgm_ops)') AS after_trigrams;
SELECT compared('SELECT name FROM names_places WHERE tokens @> 3 AND city LIKE ''_erlin 1%'' ORDER BY name') AS first_letters;
SELECT message('CREATE INDEX ON names_places USING gpuvec (zip)') AS blanks;
CREATE TABLE names_lists (list jsonb, words text[]);
SELECT message('SELECT gpuvec_topk(''names_places'', ''name'', ''{1}'')') AS no_index_of_trigrams, message('SELECT gpuvec_topk(''names_lists'', ''list'', ''{1}'')') AS of_jsonb, message('SELECT gpuvec_topk(''names_lists'', ''words'', ''{1}'')') AS of_array;
CREATE INDEX names_places_zip ON names_places USING gpuvec ((zip::text) gpuvec_trgm_ops, city);
SELECT compared('SELECT name FROM names_places WHERE zip::text = ''42'' AND city < ''Berlin 3'' ORDER BY name') AS zip;
-- search functions take the index
SELECT score FROM gpuvec_topk('names', 'name', idset_trigrams('berlin'), 3, 'jaccard') ORDER BY rank;
-- a locale that gives J a dot before some letters that combine, if the server
-- has it
SELECT current_setting('server_version_num')::int >= 150000 AND EXISTS (SELECT FROM pg_collation WHERE collprovider = 'i') AS lithuanian \gset
\c :"before"
SET client_min_messages = error;
DROP DATABASE :"unicode";
\if :lithuanian
CREATE DATABASE :"unicode" TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C.UTF-8' LOCALE_PROVIDER icu ICU_LOCALE 'lt';
\else
CREATE DATABASE :"unicode" TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C.UTF-8';
\endif
\c :"unicode"
SET client_min_messages = error;
CREATE EXTENSION gpuvec;
CREATE TABLE dotted AS SELECT U&'abxyJ\2DE0zwcd' AS name UNION ALL SELECT 'other ' || i FROM generate_series(1, 200) i;
CREATE INDEX ON dotted USING gpuvec (name gpuvec_trgm_ops);
SET enable_seqscan = off;
SELECT count(*) FROM dotted WHERE name LIKE U&'%xyJ\2DE0zw%';
\c :"before"
DROP DATABASE :"unicode";
