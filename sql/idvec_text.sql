-- How often a text has each lexeme, trigram, shingle and n-gram: ids are those
-- of the sets, and counts are counted by SQL.
-- trigrams of three bytes are these bytes as a number
SELECT '  a' AS trigram, idvec_value(idvec_trigrams('a a A'), 32 * 65536 + 32 * 256 + 97) AS three;
SELECT idvec_trigrams('banana') = idset_trigrams('banana')::idvec AS all_once, idvec_trigrams('banana')::idset = idset_trigrams('banana') AS same_ids, idvec_sum(idvec_trigrams('banana')) AS trigrams, idvec_trigrams(''), idvec_trigrams(' -- '), idvec_trigrams(NULL) IS NULL AS nothing;
SELECT (SELECT idvec_agg((idset_hash(ARRAY[w])::int8[])[1], n) FROM (VALUES ('cat', 2), ('sat', 2), ('mat', 1)) v(w, n)) = idvec_words('english', 'The cats sat on mats, and the CAT sat') AS words,
	   idvec_words('english', '') AS empty, idvec_words('english', 'the and') AS stop_words, idvec_words('simple', NULL) IS NULL AND idvec_words(NULL, 'x') IS NULL AS nothing;
SELECT idvec_shingles('the cat the cat', 2) = (SELECT idvec_agg((idset_hash(ARRAY[w])::int8[])[1], n) FROM (VALUES ('the cat', 2), ('cat the', 1)) v(w, n)) AS two, idvec_values(idvec_shingles('a a a a', 1)) AS one, idvec_values(idvec_shingles('a a a a', 4)) AS exactly,
	   idvec_values(idvec_shingles('a a a a', 5)) AS shorter, idvec_shingles('?!', 2) AS none, idvec_shingles('a', NULL) IS NULL AS nothing;
SELECT idvec_values(idvec_ngrams('aaaa aa', 2)) AS two, idvec_values(idvec_ngrams('aaaa aaaa', 5)) AS shorter, idvec_values(idvec_ngrams('aaaa', 4)) AS exactly, idvec_ngrams('?!', 2) AS none, idvec_ngrams('', 1) AS empty, idvec_ngrams('a', NULL) IS NULL AS nothing,
	   idvec_ngrams('abab', 2) = (SELECT idvec_agg((idset_hash(ARRAY[w])::int8[])[1], n) FROM (VALUES ('ab', 2), ('ba', 1)) v(w, n)) AS abab;
CREATE FUNCTION try(statement text, OUT state text, OUT message text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE 'SELECT ' || statement INTO message;
EXCEPTION WHEN OTHERS THEN
	state := SQLSTATE;
	message := SQLERRM;
END$$;
SELECT statement, t.* FROM unnest(ARRAY[$$idvec_shingles('a b', 0)$$, $$idvec_shingles('a b', 101)$$, $$idvec_ngrams('a b', 0)$$, $$idvec_ngrams('a b', 257)$$, $$idvec_shingles('a b', -2147483648)$$, $$idvec_words('nothing', 'x')$$,
	$$idvec_words('simple', string_agg('w' || i, ' ')) FROM generate_series(1, 70000) i$$, $$idvec_shingles(string_agg('w' || i, ' '), 2) FROM generate_series(1, 70000) i$$, $$idvec_ngrams(string_agg('w' || i, ' '), 9) FROM generate_series(1, 70000) i$$])
	WITH ORDINALITY u(statement, n), try(statement) t ORDER BY n;
SET client_min_messages = warning;	-- of words that are too long
-- texts of few words, so that many are there more than once
CREATE TABLE texts AS SELECT i AS id, string_agg((ARRAY['cat', 'Cats', 'the', 'running', 'RUNS', 'aaa', 'aaaaaa', 'x', 'ab12', '12', 'banana', md5(i::text)])[1 + abs(hashint4(i * 100 + j)::int8) % 12] ||
	(ARRAY[' ', ', ', '-', '  ', '.' || chr(10), '/'])[1 + abs(hashint4(i * 100 + j + 50)::int8) % 6], '' ORDER BY j) AS body FROM generate_series(1, 300) i, generate_series(1, 1 + i % 40) j GROUP BY i;
INSERT INTO texts VALUES (1001, ''), (1002, ' .,! '), (1003, repeat('Lorem ipsum dolor sit amet ', 1000)), (1004, repeat('a', 3000)), (1005, repeat('ab ', 5000));
CREATE TABLE words AS SELECT id, n, lower(m[1]) AS word FROM texts, regexp_matches(body, '[[:alnum:]]+', 'g') WITH ORDINALITY r(m, n);
CREATE FUNCTION hash_of(text) RETURNS int8 LANGUAGE sql IMMUTABLE AS $$SELECT hashtextextended($1, 0) & 4294967295$$;
CREATE VIEW trigrams AS SELECT id, get_byte(t, 0)::int8 * 65536 + get_byte(t, 1) * 256 + get_byte(t, 2) AS trigram, count(*)::real AS n
	FROM words, generate_series(1, length(word) + 1) i, LATERAL (SELECT convert_to(substr('  ' || word || ' ', i, 3), 'UTF8') AS t) t GROUP BY 1, 2;
CREATE VIEW shingles AS SELECT id, k, hash_of(string_agg) AS shingle, count(*)::real AS n FROM
	(SELECT a.id, k, a.n, string_agg(b.word, ' ' ORDER BY b.n) FROM generate_series(1, 5) k, words a JOIN words b USING (id), (SELECT id AS last_id, max(n) AS last FROM words GROUP BY id) l
	 WHERE last_id = a.id AND a.n <= greatest(1, last - k + 1) AND b.n >= a.n AND b.n < a.n + k GROUP BY 1, 2, 3) s GROUP BY 1, 2, 3;
CREATE VIEW ngrams AS SELECT id, k, hash_of(substr(word, i, k)) AS ngram, count(*)::real AS n FROM generate_series(1, 6) k, words, generate_series(1, greatest(1, length(word) - k + 1)) i GROUP BY 1, 2, 3;
-- positions of a lexeme are its count; a tsvector keeps no more than 255 of
-- them, and none beyond 16,383
CREATE VIEW lexemes AS SELECT id, config, hash_of(lexeme) AS lexeme, cardinality(positions)::real AS n FROM texts, (VALUES ('english'::regconfig), ('simple')) c(config), unnest(to_tsvector(config, body)) WHERE id NOT IN (1003, 1005);
SELECT count(*), count(*) FILTER (WHERE idvec_trigrams(body) IS DISTINCT FROM (SELECT idvec(coalesce(array_agg(trigram), '{}'), coalesce(array_agg(n), '{}')) FROM trigrams v WHERE v.id = t.id)) AS wrong, max(idvec_value(idvec_trigrams(body), 6381921)) AS most FROM texts t;
SELECT config, count(*), count(*) FILTER (WHERE idvec_words(config, body) IS DISTINCT FROM (SELECT idvec(coalesce(array_agg(lexeme), '{}'), coalesce(array_agg(n), '{}')) FROM lexemes v WHERE v.id = t.id AND v.config = c.config)) AS wrong
FROM texts t, (VALUES ('english'::regconfig), ('simple')) c(config) WHERE id NOT IN (1003, 1005) GROUP BY config ORDER BY config::text;
SELECT k, count(*), count(*) FILTER (WHERE idvec_shingles(body, k) IS DISTINCT FROM (SELECT idvec(coalesce(array_agg(shingle), '{}'), coalesce(array_agg(n), '{}')) FROM shingles v WHERE v.id = t.id AND v.k = g.k)) AS wrong FROM texts t, generate_series(1, 5, 2) g(k) GROUP BY k ORDER BY k;
SELECT k, count(*), count(*) FILTER (WHERE idvec_ngrams(body, k) IS DISTINCT FROM (SELECT idvec(coalesce(array_agg(ngram), '{}'), coalesce(array_agg(n), '{}')) FROM ngrams v WHERE v.id = t.id AND v.k = g.k)) AS wrong FROM texts t, generate_series(1, 6) g(k) GROUP BY k ORDER BY k;
SELECT count(*) FILTER (WHERE idvec_trigrams(body)::idset <> idset_trigrams(body)) AS trigrams, count(*) FILTER (WHERE idvec_words('english', body)::idset <> idset_words('english', body)) AS words, count(*) FILTER (WHERE idvec_shingles(body, 3)::idset <> idset_shingles(body, 3)) AS shingles,
	   count(*) FILTER (WHERE idvec_ngrams(body, 4)::idset <> idset_ngrams(body, 4)) AS ngrams FROM texts;
SELECT id, idvec_values(idvec_words('simple', body)) AS words FROM texts WHERE id > 1000 ORDER BY id;
SELECT idvec_value(idvec_trigrams(repeat('a', 100000)), 6381921) AS aaa, idvec_sum(idvec_shingles(repeat('a b c d ', 200000), 5)) AS shingles, idvec_sum(idvec_words('simple', repeat('a b ', 200000))) AS words, idvec_sum(idvec_ngrams(repeat('a', 100000), 2)) AS ngrams;
-- many ids
SELECT cardinality(v), idvec_sum(v) FROM (SELECT idvec_shingles(string_agg('w' || i % 60000, ' ' ORDER BY i), 1) AS v FROM generate_series(0, 65535) i) s;
-- letters of more bytes
CREATE TABLE accents AS SELECT body FROM unnest(ARRAY['Äpfel äpfel ÄPFEL', 'naïve naïve', '東京都 東京都', 'ßß ßß']) body WHERE getdatabaseencoding() = 'UTF8' UNION ALL SELECT 'plain';
SELECT count(*) FILTER (WHERE idvec_trigrams(body)::idset <> idset_trigrams(body) OR idvec_ngrams(body, 2)::idset <> idset_ngrams(body, 2) OR idvec_shingles(body, 2)::idset <> idset_shingles(body, 2) OR idvec_words('simple', body)::idset <> idset_words('simple', body)) AS wrong FROM accents;
-- generated columns and expression indexes
CREATE TABLE documents (id int PRIMARY KEY, body text, counts idvec GENERATED ALWAYS AS (idvec_words('english', body)) STORED);
INSERT INTO documents (id, body) VALUES (1, 'a cat and a cat'), (2, 'a dog'), (3, NULL), (4, '');
CREATE INDEX ON documents (idvec_trigrams(body));
SET enable_seqscan = off;
SELECT id, idvec_values(counts) FROM documents ORDER BY id;
SELECT id FROM documents WHERE idvec_trigrams(body) = idvec_trigrams('A  dog');
RESET enable_seqscan;
SELECT id, counts <=> idvec_words('english', 'cats') AS distance FROM documents ORDER BY distance, id;
DROP TABLE texts, words, accents, documents CASCADE;
RESET client_min_messages;
DROP FUNCTION try, hash_of;
