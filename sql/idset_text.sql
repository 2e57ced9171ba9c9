-- Sets of text.  The character type of the database decides what a letter is, so the tests that need letters beyond ASCII have one of their own.
-- trigrams of three bytes are these bytes as a number
CREATE FUNCTION trigrams(idset) RETURNS text[] LANGUAGE sql IMMUTABLE AS
	$$SELECT array_agg(chr((i >> 16)::int) || chr((i >> 8 & 255)::int) || chr((i & 255)::int) ORDER BY i) FROM unnest($1::int8[]) i$$;
SELECT idset_trigrams('word'), trigrams(idset_trigrams('word'));
SELECT trigrams(idset_trigrams('Foo|BAR foo')), trigrams(idset_trigrams('a_1'));
SELECT idset_trigrams(''), idset_trigrams(' -- '), idset_trigrams(NULL) IS NULL AS nothing;
SELECT t, trigrams(idset_trigrams(t)) FROM unnest(ARRAY['a', ' a', 'ab', 'A.B', 'x1y']) t;
-- pg_trgm's documentation: similarity('word', 'two words') is 0.36363637, word_similarity is 0.8
SELECT jaccard_similarity(a, b)::real, containment_similarity(a, b)::real FROM (SELECT idset_trigrams('word') AS a, idset_trigrams('two words') AS b) s;
-- hashes are those of hash partitions, which do not change
SELECT idset_hash('{fruit,red,fruit}'::text[]), idset_hash('{}'::text[]), idset_hash(NULL::text[]) IS NULL AS nothing;
SELECT bool_and(idset_hash(ARRAY[t]) = ARRAY[hashtextextended(t, 0) & 4294967295]::idset) AS text FROM unnest('{"",a,abc,abcdefghijklm}'::text[] || repeat('long ', 1000)) t;
SELECT idset_hash(ARRAY[3, -1, 3]) = ARRAY[hashint4extended(3, 0) & 4294967295, hashint4extended(-1, 0) & 4294967295]::idset AS int4,
	   idset_hash(ARRAY[3, -1]::int8[]) = idset_hash(ARRAY[3, -1]) AS integers_alike,
	   idset_hash('{1.0,1.00}'::numeric[]) = idset_hash('{1}'::numeric[]) AS "numeric",
	   cardinality(idset_hash(ARRAY['{1,2}', '{3}', '{2,1}']::idset[])) AS sets,
	   cardinality(idset_hash('{a,B}'::name[])) AS names,
	   cardinality(idset_hash('[7:9]={1,2,1}'::int[])) AS bounds;
-- types without a hash function; nulls and dimensions as in casts
CREATE FUNCTION try(statement text, OUT state text, OUT message text, OUT detail text, OUT hint text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
END$$;
SELECT t.* FROM unnest(ARRAY[
	$$SELECT idset_hash('{"(1,2)"}'::point[])$$, $$SELECT idset_hash('{101}'::bit(3)[])$$, $$SELECT idset_hash(ARRAY[ROW(point(1, 2))])$$,
	$$SELECT idset_hash('{a,NULL}'::text[])$$, $$SELECT idset_hash('{{a,b},{c,d}}'::text[])$$,
	$$SELECT idset_shingles('a b', 0)$$, $$SELECT idset_shingles('a b', -2147483648)$$, $$SELECT idset_shingles('a b', 100)$$, $$SELECT idset_shingles('a b', 101)$$, $$SELECT idset_shingles('a b', 2147483647)$$,
	$$SELECT idset_ngrams('a b', 0)$$, $$SELECT idset_ngrams('a b', 257)$$]) WITH ORDINALITY u(statement, n), try(statement) t ORDER BY n;
-- a collation that takes different strings for equal hashes them alike; without any there is an error
CREATE TABLE mixed (a text COLLATE "C", b text COLLATE "POSIX");
INSERT INTO mixed VALUES ('x', 'y');
SELECT state, message FROM try($$SELECT idset_hash(ARRAY[a, b]) FROM mixed$$);
DROP TABLE mixed;
CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
SELECT cardinality(idset_hash(ARRAY['a', 'A', 'b'] COLLATE loose)) AS loose, cardinality(idset_hash(ARRAY['a', 'A', 'b'])) AS strict;
DROP COLLATION loose;
SELECT idset_hash(ARRAY['a', 'b'] COLLATE "C") = idset_hash(ARRAY['a', 'b']) AS collation_makes_no_difference;
-- lexemes
SELECT idset_words('english', 'The cats sat on mats, and the CAT sat') = idset_hash('{cat,mat,sat}'::text[]) AS lexemes,
	   idset_words('simple', 'The cat') = idset_hash('{the,cat}'::text[]) AS simple,
	   idset_words('english', '') AS empty, idset_words('english', 'the') AS stop_words, idset_words(NULL, 'x') IS NULL AS nothing;
SELECT count(*), count(*) FILTER (WHERE idset_words('english', t) IS DISTINCT FROM idset_hash(tsvector_to_array(to_tsvector('english', t)))) AS wrong
FROM (SELECT string_agg(md5((i * j)::text) || (ARRAY[' ', '-', '.', '/', ', ', '@', ''' '])[1 + (i + j) % 7], '') AS t FROM generate_series(1, 300) i, generate_series(1, 12) j GROUP BY i) s;
-- shingles: runs of words in lower case
SELECT idset_shingles('The cat sat; ON the mat.', 3) = idset_hash('{the cat sat,cat sat on,sat on the,on the mat}'::text[]) AS three,
	   idset_shingles('the cat the cat', 2) = idset_hash('{the cat,cat the}'::text[]) AS two,
	   idset_shingles('the cat the', 1) = idset_hash('{the,cat}'::text[]) AS one,
	   idset_shingles('one two', 3) = idset_hash('{one two}'::text[]) AS shorter,
	   idset_shingles('one two', 2147483647) = idset_hash('{one two}'::text[]) AS much_shorter,
	   idset_shingles('one two', 2) = idset_hash('{one two}'::text[]) AS exactly,
	   idset_shingles(' ?!', 2) AS nothing, idset_shingles('a', NULL) IS NULL AS "null";
-- n-grams: runs of characters of a word in lower case
SELECT idset_ngrams('Abcd, EF!', 3) = idset_hash('{abc,bcd,ef}'::text[]) AS three, idset_ngrams('abab', 2) = idset_hash('{ab,ba}'::text[]) AS two,
	   idset_ngrams('aba', 1) = idset_hash('{a,b}'::text[]) AS one, idset_ngrams('one two', 256) = idset_hash('{one,two}'::text[]) AS shorter,
	   idset_ngrams(' ?!', 2) AS nothing, idset_ngrams('', 1) AS empty, idset_ngrams('a', NULL) IS NULL AS "null";
SELECT count(*) FILTER (WHERE idset_ngrams(word, n) IS DISTINCT FROM (SELECT idset_hash(array_agg(substr(word, i, n))) FROM generate_series(1, greatest(length(word) - n + 1, 1)) i)) AS differing
FROM generate_series(1, 12) n, (SELECT substr(repeat(md5(i::text), 2), 1, i) AS word FROM generate_series(1, 40) i) w;
SELECT count(*) FILTER (WHERE idset_shingles(array_to_string(w, ' '), n) IS DISTINCT FROM
	idset_hash(ARRAY(SELECT array_to_string(w[i:i + n - 1], ' ') FROM generate_series(1, greatest(1, cardinality(w) - n + 1)) i))) AS wrong, count(*)
FROM (SELECT n, ARRAY(SELECT 'w' || (i * i + n) % 11 FROM generate_series(1, m) i) AS w FROM generate_series(1, 9) n, generate_series(1, 150, 7) m) s;
-- long texts: repeated ids cost no memory, and more than 65,536 are an error
SELECT cardinality(idset_trigrams(repeat('Lorem ipsum dolor sit amet ', 200000))), cardinality(idset_shingles(repeat('a b c d ', 200000), 5)),
	   cardinality(idset_words('simple', repeat('a b c d ', 200000)));
-- 65,536 words, once and with one more; they are met in an order that is neither that of ids nor of words
SELECT cardinality(idset_hash(a)) AS hashes, cardinality(idset_shingles(array_to_string(a, ' '), 1)) AS shingles, cardinality(idset_words('simple', array_to_string(a, ' '))) AS words
FROM (SELECT array_agg('w' || i ORDER BY i % 7, i) AS a FROM generate_series(1, 65000) i) s;
SELECT t.* FROM unnest(ARRAY[
	$$SELECT idset_hash(array_agg(i)) FROM generate_series(1, 70000) i$$,
	$$SELECT idset_hash(array_agg(i)) FROM generate_series(1, 400000) i$$,
	$$SELECT idset_words('simple', string_agg('w' || i, ' ')) FROM generate_series(1, 200000) i$$,
	$$SELECT idset_shingles(string_agg('w' || i, ' '), 2) FROM generate_series(1, 200000) i$$])
	WITH ORDINALITY u(statement, n), try(statement) t ORDER BY n;
-- ASCII text cannot have so many trigrams: these are all
SELECT cardinality(idset_trigrams(string_agg(a || b || c, ' '))) FROM (SELECT regexp_split_to_table('0123456789abcdefghijklmnopqrstuvwxyz', '') AS a) a,
	(SELECT regexp_split_to_table('0123456789abcdefghijklmnopqrstuvwxyz', '') AS b) b, (SELECT regexp_split_to_table('0123456789abcdefghijklmnopqrstuvwxyz', '') AS c) c;
-- generated columns, expression indexes, plans
CREATE TABLE texts (id int PRIMARY KEY, body text,
	trigrams idset GENERATED ALWAYS AS (idset_trigrams(body)) STORED, words idset GENERATED ALWAYS AS (idset_words('english', body)) STORED,
	shingles idset GENERATED ALWAYS AS (idset_shingles(body, 2)) STORED, tags idset GENERATED ALWAYS AS (idset_hash(string_to_array(body, ' '))) STORED);
INSERT INTO texts (id, body) VALUES (1, 'the quick brown fox'), (2, 'a quick brown dog'), (3, 'postgres extension'), (4, NULL), (5, '');
SELECT id, round(jaccard_similarity(trigrams, idset_trigrams('quik brown fox'))::numeric, 4) AS trigrams, cardinality(words) AS words, cardinality(shingles) AS shingles, cardinality(tags) AS tags FROM texts ORDER BY id;
CREATE INDEX ON texts (idset_trigrams(body));
CREATE INDEX ON texts (idset_words('english', body));
CREATE INDEX ON texts (idset_shingles(body, 3));
CREATE INDEX ON texts (idset_hash(string_to_array(body, ' ')));
SET enable_seqscan = off;
SELECT id FROM texts WHERE idset_trigrams(body) = idset_trigrams('Postgres-Extension');
RESET enable_seqscan;
SELECT provolatile, proparallel, proisstrict, count(*) FROM pg_proc WHERE proname IN ('idset_trigrams', 'idset_words', 'idset_shingles', 'idset_ngrams') OR proname = 'idset_hash' AND prorettype = 'idset'::regtype GROUP BY 1, 2, 3;
DROP TABLE texts;
DROP FUNCTION trigrams, try;
-- letters beyond ASCII, in UTF-8
SELECT current_database() AS before, current_database() || '_text' AS unicode
\gset
CREATE DATABASE :"unicode" TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C.UTF-8';
\c :"unicode"
SET client_min_messages = warning;
CREATE EXTENSION gpuvec;
RESET client_min_messages;
SET client_encoding = 'UTF8';
-- four bytes are exact, longer ones are their CRC
SELECT idset_trigrams(U&'\00C9t\00E9'), idset_trigrams(U&'\00E9T\00C9') = idset_trigrams(U&'\00C9t\00E9') AS lower;
SELECT to_hex(i) FROM unnest(idset_trigrams(U&'\00E9')::int8[]) i ORDER BY i;
SELECT idset_trigrams(U&'\0436'), idset_trigrams(U&'\6F22\5B57'), idset_trigrams(U&'a\00D7b\2014c') = idset_trigrams('a b c') AS separators;
-- no two trigrams of an alphabet share an id: n^3 + 2 n^2 + n
SELECT name, count(DISTINCT t) AS words, cardinality(idset_union(idset_trigrams(t))) AS ids, n * n * n + 2 * n * n + n AS trigrams
FROM (VALUES ('Russian', 1072, 32), ('Greek', 945, 25), ('Hebrew', 1488, 27), ('Arabic', 1601, 10)) v (name, first, n),
	LATERAL (SELECT chr(first + a) || chr(first + b) || chr(first + c) AS t FROM generate_series(0, n - 1) a, generate_series(0, n - 1) b, generate_series(0, n - 1) c) s
GROUP BY name, n ORDER BY name;
-- other text can have too many
SELECT idset_trigrams(string_agg(chr(12353 + a) || chr(12353 + b) || chr(12353 + c), ' ')) FROM generate_series(0, 49) a, generate_series(0, 49) b, generate_series(0, 49) c;
-- words of many bytes, and the same by SQL
SELECT idset_shingles(U&'\00C9T\00C9, \0416\0423\041A!', 2) = idset_hash(ARRAY[U&'\00E9t\00E9 \0436\0443\043A']) AS shingles,
	   idset_words('simple', U&'\0416\0423\041A') = idset_hash(ARRAY[U&'\0436\0443\043A']) AS words,
	   idset_hash(ARRAY[U&'\0436']) = ARRAY[hashtextextended(U&'\0436', 0) & 4294967295]::idset AS hash;
-- similar words of one alphabet are similar
SELECT round(jaccard_similarity(idset_trigrams(U&'\0436\0443\043A\0438'), idset_trigrams(U&'\0436\0443\043A'))::numeric, 4) AS similarity;
\c :"before"
DROP DATABASE :"unicode";
