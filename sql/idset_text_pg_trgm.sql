-- idset_trigrams beside pg_trgm, which must be installed (it is part of PostgreSQL's contrib)
SET client_min_messages = warning;
CREATE EXTENSION pg_trgm;
RESET client_min_messages;
-- words, punctuation, digits, bytes that are no letters; nothing depends on chance
CREATE TABLE texts AS SELECT i, string_agg(substr('aabcdeEFstuvXYZ019 ,.-_/(@ ' || chr(9), 1 + (i * 7919 + j * j * 104729 + i * j * 31) % 28, 1), '' ORDER BY j) AS t
FROM generate_series(1, 500) i, generate_series(1, 60) j WHERE j <= 1 + i % 60 GROUP BY i;
INSERT INTO texts VALUES (501, ''), (502, '  '), (503, '?!'), (504, 'a'), (505, 'A'), (506, 'ab'), (507, repeat('abc', 1000)), (508, U&'caf\00E9 cr\00E8me');
ALTER TABLE texts ADD COLUMN s idset GENERATED ALWAYS AS (idset_trigrams(t)) STORED;
ANALYZE texts;
SELECT count(*) > 50000 AS pairs, count(*) FILTER (WHERE similarity(a.t, b.t) BETWEEN 0.1 AND 0.9) > 1000 AS similar,
	count(*) FILTER (WHERE jaccard_similarity(a.s, b.s)::real <> similarity(a.t, b.t)) AS wrong,
	count(*) FILTER (WHERE cardinality(a.s) <> cardinality(show_trgm(a.t))) AS lengths
FROM texts a, texts b WHERE a.i <= b.i;
-- containment is never less than word_similarity, and that never less than strict_word_similarity
SELECT count(*) FILTER (WHERE containment_similarity(a.s, b.s)::real < word_similarity(a.t, b.t)) AS less,
	count(*) FILTER (WHERE containment_similarity(a.s, b.s)::real < strict_word_similarity(a.t, b.t)) AS strictly_less,
	count(*) FILTER (WHERE containment_similarity(a.s, b.s)::real = word_similarity(a.t, b.t) AND word_similarity(a.t, b.t) > 0) > 1000 AS often_equal,
	count(*) FILTER (WHERE containment_similarity(a.s, b.s)::real > word_similarity(a.t, b.t)) > 0 AS sometimes_greater
FROM texts a, texts b WHERE a.i % 5 = 0;
-- so both conditions find what word_similarity alone does
SELECT count(*) > 0 AS many, count(*) FILTER (WHERE NOT b.s <<->> (a.s, 0.3, 'containment')) AS missed
FROM texts a JOIN texts b ON word_similarity(a.t, b.t) >= 0.3 WHERE a.i % 5 = 0;
DROP TABLE texts;
DROP EXTENSION pg_trgm;
-- letters beyond ASCII
SELECT current_database() AS before, current_database() || '_trgm' AS unicode
\gset
CREATE DATABASE :"unicode" TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C.UTF-8';
\c :"unicode"
SET client_min_messages = warning;
CREATE EXTENSION gpuvec;
CREATE EXTENSION pg_trgm;
RESET client_min_messages;
CREATE TABLE texts AS SELECT i, string_agg(substr(U&'aeEstXY01  ,.\00E9\00C9\00DF\0130\0131\03A3\03C3\03C2\0416\0436\0443\6F22\5B57\0660\00D7\2014\+01F600', 1 + (i * 7919 + j * j * 104729 + i * j * 31) % 30, 1), '' ORDER BY j) AS t
FROM generate_series(1, 400) i, generate_series(1, 40) j WHERE j <= 1 + i % 40 GROUP BY i;
-- all trigrams have ids of their own here, so each set has as many ids as pg_trgm has trigrams, and similarities are equal
SELECT count(*) > 50000 AS pairs, count(*) FILTER (WHERE similarity(a.t, b.t) BETWEEN 0.1 AND 0.9) > 1000 AS similar,
	count(*) FILTER (WHERE jaccard_similarity(idset_trigrams(a.t), idset_trigrams(b.t))::real <> similarity(a.t, b.t)) AS wrong
FROM texts a, texts b WHERE a.i <= b.i;
\c :"before"
DROP DATABASE :"unicode";
