-- The measure tversky(alpha, beta): values, ties, weights, and searches compared
-- with plain SQL.
SET extra_float_digits = 1;

-- alpha is for what only the query has, the first argument
SELECT tversky_similarity('{1,2,3,4}', '{1,2,9}', 1, 0) AS of_query,
	tversky_similarity('{1,2,3,4}', '{1,2,9}', 0, 1) AS of_row,
	tversky_similarity('{1,2,3,4}', '{1,2,9}', 0.7, 0.3) AS both,
	tversky_similarity('{1,2}', '{1,2}', 3, 4) AS same,
	tversky_similarity('{1}', '{2}', 1, 1) AS nothing,
	tversky_similarity('{}', '{}', 1, 1) AS empty,
	tversky_similarity('{1,70000}', '{70000,4000000000}', 0.5, 0.5) AS wide;

-- decimal fractions count as such: all of these are one half or one third,
-- whatever rounding would make of 3 * 0.7 + 3 * 0.3
SELECT DISTINCT tversky_similarity((SELECT idset_agg(i) FROM generate_series(1, 2 * n) i),
	(SELECT idset_agg(i) FROM generate_series(n + 1, 3 * n) i), 0.7, 0.3) AS half
	FROM generate_series(1, 200) n;
SELECT DISTINCT tversky_similarity((SELECT idset_agg(i) FROM generate_series(1, 3 * n) i),
	(SELECT idset_agg(i) FROM generate_series(2 * n + 1, 5 * n) i), 0.9, 0.1) AS third
	FROM generate_series(1, 200) n;

-- huge and tiny weights
SELECT tversky_similarity('{1,2,3}', '{1,2,9}', 1e-300, 1e-300) AS tiny,
	tversky_similarity('{1,2,3}', '{1,2,9}', 5e-324, 0) AS tiniest,
	tversky_similarity('{1,2,3}', '{1,2,9}', 1e300, 0) AS huge,
	tversky_similarity('{1,2,3}', '{1,2,9}', 1.7976931348623157e308, 1.7976931348623157e308) AS hugest,
	tversky_similarity('{1,2,3}', '{1,2,3}', 1.7976931348623157e308, 1e-300) AS equal,
	tversky_similarity('{1,2,3}', '{1,2,9}', '-0', 1e-9) AS negative_zero,
	tversky_similarity('{1,2,3}', '{1,2,9}', 1e-9, '-0') AS of_row;

-- weights that are none
SELECT tversky_similarity('{1}', '{1}', 0, 0);
SELECT tversky_similarity('{1}', '{1}', -1, 1);
SELECT tversky_similarity('{1}', '{1}', 'NaN', 1);
SELECT tversky_similarity('{1}', '{1}', 1, 'Infinity');
SELECT tversky_similarity('{1}', '{1}', 1, NULL) IS NULL AS strict;

-- the same measures by other names, bit for bit
CREATE TABLE sets (id int, s idset);
INSERT INTO sets SELECT g, (SELECT coalesce(idset_agg((hashint4(g * 1000 + i) & 255) % (20 + g % 60)), '{}') FROM generate_series(1, g % 37) i)
	FROM generate_series(1, 400) g;
INSERT INTO sets SELECT 400 + id, idset_shift(s, 3000000000) | idset_range(s, 0, 12) FROM sets WHERE id % 5 = 0;
SELECT count(*) > 100000 AS pairs,
	count(*) FILTER (WHERE float8send(tversky_similarity(a.s, b.s, 1, 1)) <> float8send(jaccard_similarity(a.s, b.s))) AS jaccard,
	count(*) FILTER (WHERE float8send(tversky_similarity(a.s, b.s, 0.5, 0.5)) <> float8send(dice_similarity(a.s, b.s))) AS dice,
	count(*) FILTER (WHERE float8send(tversky_similarity(a.s, b.s, 1, 0)) <> float8send(containment_similarity(a.s, b.s))) AS containment,
	count(*) FILTER (WHERE float8send(tversky_similarity(a.s, b.s, 0, 1)) <> float8send(containment_similarity(b.s, a.s))) AS of_row,
	count(*) FILTER (WHERE abs(tversky_similarity(a.s, b.s, 0.7, 0.3) - coalesce(i / nullif(i + 0.7 * (length_a - i) + 0.3 * (length_b - i), 0), 0)) > 1e-15) AS formula
	FROM sets a, sets b, LATERAL (SELECT intersection_count(a.s, b.s)::float8 AS i, cardinality(a.s) AS length_a, cardinality(b.s) AS length_b) n;

-- how a measure is written; searches of large ids may warn that they scan
SET client_min_messages = error;
SELECT m, (SELECT count(*) FROM gpuvec_topk('sets', 's', '{1,2,3}', 5, measure => m)) AS rows
	FROM unnest(ARRAY['tversky(0.7,0.3)', ' Tversky ( 0.7 , 3e-1 ) ', 'TVERSKY(+1,-0)', 'tversky(.5,1.)']) m;
CREATE FUNCTION refusal(m text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE h text;
BEGIN
	PERFORM * FROM gpuvec_topk('sets', 's', '{1}', 1, measure => m);
	RETURN 'none';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS h = PG_EXCEPTION_HINT;
	RETURN SQLSTATE || ': ' || SQLERRM || ' / ' || h;
END $$;
SELECT refusal(m) FROM unnest(ARRAY['tversky', 'tversky()', 'tversky(1)', 'tversky(1,)', 'tversky(1,2', 'tversky(1,2,3)', 'tversky(1 2)',
	'tversky(1,2)x', 'tversky(-1,2)', 'tversky(0,0)', 'tversky(nan,1)', 'tversky(inf,1)', 'tversky(1e999,1)', 'tversky(0x1,1)', 'tversky(1e,1)',
	'tverski(1,2)', '']) m;

-- searches and plain SQL; the same scores, and ties by tid
CREATE TABLE weights (alpha float8, beta float8);
INSERT INTO weights VALUES (0.7, 0.3), (1, 0), (0, 1), (0, 2.5), (1, 1), (1e-300, 1e-12), (1e300, 1e298), (3, 1e-320),
	(0.3333333333333333, 3.14159265358979), (1e-9, 68719476736), (0.000001, 12345.678901);
CREATE FUNCTION expected(q idset, a float8, b float8, lowest float8) RETURNS TABLE (tid tid, score float8) LANGUAGE sql AS
	'SELECT ctid, tversky_similarity(q, s, a, b) AS score FROM sets WHERE s && q AND tversky_similarity(q, s, a, b) >= lowest ORDER BY 2 DESC, 1';
CREATE FUNCTION name_of(a float8, b float8) RETURNS text LANGUAGE sql AS 'SELECT format(''tversky(%s,%s)'', a, b)';

CREATE FUNCTION wrong_answers() RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM weights w, (SELECT s AS q FROM sets WHERE id % 23 = 0 AND s <> '{}') q,
		LATERAL (SELECT array_agg((tid, score) ORDER BY rank) AS got FROM gpuvec_topk('sets', 's', q, 25, measure => name_of(alpha, beta))) g,
		LATERAL (SELECT array_agg((tid, score) ORDER BY score DESC, tid) AS want FROM (SELECT * FROM expected(q, alpha, beta, 0) LIMIT 25) e) x,
		LATERAL (SELECT array_agg((tid, score) ORDER BY rank) AS reached FROM gpuvec_topk('sets', 's', q, NULL, measure => name_of(alpha, beta), min_score => 0.25)) r,
		LATERAL (SELECT array_agg((tid, score) ORDER BY score DESC, tid) AS reach FROM expected(q, alpha, beta, 0.25)) y,
		LATERAL (SELECT array_agg(ctid ORDER BY ctid) AS passed FROM sets WHERE s <<->> idset_threshold(q, 0.25, name_of(alpha, beta))) t,
		LATERAL (SELECT array_agg(tid ORDER BY tid) AS pass FROM expected(q, alpha, beta, 0.25)) z
	WHERE got IS DISTINCT FROM want OR reached IS DISTINCT FROM reach OR passed IS DISTINCT FROM pass $$;
SELECT wrong_answers();
RESET client_min_messages;

-- without large ids the engine answers; batches, whole rows, and given rows
DELETE FROM sets WHERE id > 400;
VACUUM sets;
SET gpuvec.method = bitset;
SELECT wrong_answers();
SET gpuvec.method = inverted;
SELECT wrong_answers();
RESET gpuvec.method;
SELECT count(*) AS wrong FROM weights w, LATERAL (
	SELECT query, rank, tid, score FROM gpuvec_topk_batch('sets', 's', (SELECT array_agg(s ORDER BY id) FROM sets WHERE id BETWEEN 11 AND 16), 7, measure => name_of(alpha, beta))
	EXCEPT
	SELECT id - 10, r.rank, r.tid, r.score FROM sets, gpuvec_topk('sets', 's', s, 7, measure => name_of(alpha, beta)) r WHERE id BETWEEN 11 AND 16) d;
SELECT (item).id, rank, score FROM gpuvec_topk_rows(NULL::sets, 's', '{1,2,3,4,5,6}', 3, measure => 'tversky(0.9,0.1)');
SELECT count(*) AS wrong FROM gpuvec_topk('sets', 's', '{1,2,3,4,5,6}', 9, measure => 'tversky(0.9,0.1)',
	among => (SELECT array_agg(ctid) FROM sets WHERE id % 3 = 0)) r
	JOIN sets ON sets.ctid = r.tid WHERE id % 3 <> 0 OR score <> tversky_similarity('{1,2,3,4,5,6}', s, 0.9, 0.1);

-- thresholds by an index
CREATE INDEX sets_s ON sets USING gpuvec (s);
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM sets WHERE s <<->> idset_threshold('{1,2,3}', 0.25, 'tversky(0.7,0.3)');
SELECT wrong_answers();
RESET enable_seqscan;
SELECT count(*) FROM sets WHERE s <<->> ('{1,2,3}', 0.25, 'tversky(0,0)');

-- partitions: a row of a later one counts if its score is greater
CREATE TABLE parts (id int, s idset) PARTITION BY LIST (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2);
INSERT INTO parts VALUES (1, '{1,2,3}'), (1, '{1,2,3,4}'), (2, '{1,2,3}'), (2, '{1,2}'), (2, '{1,9}');
SELECT source::regclass, rank, score FROM gpuvec_topk('parts', 's', '{1,2,3}', 3, measure => 'tversky(1e-300,1)');
SELECT source::regclass, rank, score FROM gpuvec_topk('parts', 's', '{1,2,3}', 4, measure => 'tversky(1,0)');

DROP TABLE sets, weights, parts;
DROP FUNCTION refusal, expected, name_of, wrong_answers;
