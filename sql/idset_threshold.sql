-- Threshold operator: tokens <<->> idset_threshold(query, min_score, measure)
-- the value and its constructor
SELECT idset_threshold('{3,17}', 0.6), idset_threshold('{3,17}', 0.6, 'jaccard'), idset_threshold(NULL, NULL, NULL);
SELECT (idset_threshold(query => '{3,17}', min_score => 1, measure => 'dice')).*;
-- ways to write the right side
SELECT '{3,17}'::idset <<->> ('{3,17,20}', 0.6, 'jaccard') AS literal_row,
	   '{3,17}'::idset <<->> ROW('{3,17,20}'::idset, 0.6, 'jaccard'::text) AS typed_row,
	   '{3,17}'::idset <<->> ('{3,17,20}', 1, NULL) AS whole_number,
	   '{3,17}'::idset <<->> idset_threshold('{3,17,20}', 0.6) AS constructor,
	   '{3,17}'::idset <<->> '("{3,17,20}",0.6,jaccard)' AS literal,
	   '{3,17}' <<->> idset_threshold('{3,17,20}', 0.7) AS literal_left;
PREPARE threshold(idset, float8, text) AS SELECT '{3,17}'::idset <<->> ($1, $2, $3);
EXECUTE threshold('{3,17,20}', 0.6, 'jaccard');
EXECUTE threshold('{3,17,20}', 0.7, 'jaccard');
PREPARE untyped AS SELECT '{3,17}'::idset <<->> ($1, $2, $3) WHERE $1 IS NOT NULL;
EXECUTE untyped('{3,17,20}', 0.6, 'jaccard');
SELECT '{3,17}'::idset <<->> ('{3,17}', 0.6);
-- nulls: an unknown set, query or score; the default measure
SELECT NULL::idset <<->> ('{1}', 0.5, 'jaccard') AS left_null, '{1}'::idset <<->> NULL AS right_null,
	   '{1}'::idset <<->> (NULL, 0.5, 'jaccard') AS query_null, '{1}'::idset <<->> ('{1}', NULL, 'jaccard') AS score_null,
	   '{1,2,3,4}'::idset <<->> ('{1,2}', 0.5, NULL) AS default_measure, '{1,2,3,4}'::idset <<->> ('{1,2}', 0.51, NULL) AS default_above;
-- the same errors as of gpuvec_topk
SELECT '{1}'::idset <<->> ('{1}', 0.5, 'euclid');
SELECT '{1}'::idset <<->> (NULL, 0.5, 'euclid');
SELECT '{1}'::idset <<->> ('{1}', 'NaN', 'jaccard');
-- infinite and negative bounds
SELECT m, '{1}'::idset <<->> ('{1}', 'Infinity', m) AS above_all, '{1}'::idset <<->> ('{2}', '-Infinity', m) AS below_all,
	   '{1}'::idset <<->> ('{2}', 0, m) AS zero, '{1,2}'::idset <<->> ('{2,3}', -2, m) AS minus_two, '{1,2}'::idset <<->> ('{2,3}', -1, m) AS minus_one
FROM unnest(ARRAY['braun_blanquet','jaccard','cosine','dice','overlap','containment','intersection','hamming','kulczynski']) m;

-- Against the measures' functions, with each score that occurs as the bound (a
-- tie), and with its neighbours among the float8 numbers.  Sets of ids from both
-- ends of the range, empty ones, and sets of very different lengths.
CREATE TABLE sets AS
SELECT i, CASE WHEN i % 29 = 0 THEN '{}'::idset ELSE
	(SELECT idset_agg(CASE (i + j) % 4 WHEN 0 THEN 65535 - (i * j) % 9 WHEN 1 THEN (i * 7 + j * j) % 12 WHEN 2 THEN 0 ELSE 1000 + j END)
	 FROM generate_series(1, CASE WHEN i % 11 = 0 THEN 400 ELSE i % 13 END) j) END AS s
FROM generate_series(1, 120) i;
INSERT INTO sets VALUES (121, '{}'), (122, '{0}'), (123, '{65535}'), (124, '{0,65535}'), (125, NULL), (126, '{0}');
UPDATE sets SET s = '{}' WHERE i = 13 OR s IS NULL AND i <> 125;
INSERT INTO sets SELECT 127, idset_agg(i) FROM generate_series(0, 65535) i;
SELECT count(*), count(s), count(*) FILTER (WHERE cardinality(s) = 0) AS empty, count(*) FILTER (WHERE s @> 0) AS with_0,
	   count(*) FILTER (WHERE s @> 65535) AS with_65535, max(cardinality(s))
FROM sets;
CREATE FUNCTION score(measure text, query idset, s idset) RETURNS float8 LANGUAGE sql IMMUTABLE AS $$
	SELECT CASE measure
		WHEN 'braun_blanquet' THEN braun_blanquet_similarity(query, s)
		WHEN 'jaccard' THEN jaccard_similarity(query, s)
		WHEN 'cosine' THEN cosine_similarity(query, s)
		WHEN 'dice' THEN dice_similarity(query, s)
		WHEN 'overlap' THEN overlap_similarity(query, s)
		WHEN 'containment' THEN containment_similarity(query, s)
		WHEN 'intersection' THEN intersection_count(query, s)
		WHEN 'hamming' THEN -hamming_distance(query, s)
		WHEN 'kulczynski' THEN kulczynski_similarity(query, s) END
$$;
-- the next float8 above (direction 1) or below (direction -1)
CREATE FUNCTION beside(x float8, direction int) RETURNS float8 LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE step float8 := CASE WHEN x = 0 THEN 5e-324 ELSE abs(x) * 2.220446049250313e-16 END;
BEGIN
	WHILE step > 5e-324 AND x + direction * step / 2 <> x LOOP step := step / 2; END LOOP;
	RETURN x + direction * step;
END $$;
SELECT beside(0.5, 1) > 0.5 AS above, beside(0.5, -1) < 0.5 AS below, beside(0.5, -1) > 0.4999999999999999 AS near, beside(0, 1) > 0 AS above_zero;
CREATE TABLE bounds AS
SELECT measure, q, beside(bound, direction) AS bound, direction
FROM (SELECT DISTINCT measure, q.i AS q, score(measure, q.s, d.s) AS bound
	  FROM unnest(ARRAY['braun_blanquet','jaccard','cosine','dice','overlap','containment','intersection','hamming','kulczynski']) measure,
		   sets q, sets d
	  WHERE (q.i % 9 = 0 OR q.i > 120) AND q.s IS NOT NULL AND d.s IS NOT NULL) b,
	 LATERAL (VALUES (1), (-1)) v(direction)
UNION ALL
SELECT DISTINCT measure, q.i, score(measure, q.s, d.s), 0
FROM unnest(ARRAY['braun_blanquet','jaccard','cosine','dice','overlap','containment','intersection','hamming','kulczynski']) measure, sets q, sets d
WHERE (q.i % 9 = 0 OR q.i > 120) AND q.s IS NOT NULL AND d.s IS NOT NULL;
SELECT measure, direction, count(*) > 100 AS many,
	   count(*) FILTER (WHERE (d.s <<->> (q.s, b.bound, b.measure)) IS DISTINCT FROM (score(b.measure, q.s, d.s) >= b.bound)) AS differences,
	   count(*) FILTER (WHERE score(b.measure, q.s, d.s) = b.bound) > 0 AS ties,
	   bool_or(d.s <<->> (q.s, b.bound, b.measure)) AS some, bool_and(d.s <<->> (q.s, b.bound, b.measure)) AS every
FROM bounds b JOIN sets q ON q.i = b.q, sets d
WHERE d.i % 3 = b.q % 3 OR d.i > 120
GROUP BY 1, 2 ORDER BY 1, 2;

-- a new right side for each row, one for all, and a parameter that changes within one expression
SELECT count(*) FILTER (WHERE a.s <<->> (b.s, 0.5, CASE WHEN b.i % 2 = 0 THEN 'dice' END)) =
	   count(*) FILTER (WHERE CASE WHEN b.i % 2 = 0 THEN dice_similarity(b.s, a.s) ELSE braun_blanquet_similarity(b.s, a.s) END >= 0.5) AS changing
FROM sets a, sets b WHERE a.i < 127 AND b.i < 127;
SELECT count(*) AS constant FROM sets WHERE s <<->> ('{0,65535}', 0.5, 'overlap');
CREATE FUNCTION changing_parameter() RETURNS bool LANGUAGE plpgsql AS $$
DECLARE q idset; result bool; same bool := true;
BEGIN
	FOR n IN 1 .. 120 LOOP
		q := (SELECT s FROM sets WHERE i = n);
		result := '{0,1,65535}'::idset <<->> (q, 0.25, 'jaccard');
		same := same AND result = (jaccard_similarity(q, '{0,1,65535}') >= 0.25);
	END LOOP;
	RETURN same;
END $$;
SELECT changing_parameter();
-- as gpuvec_topk, whose min_score leaves out rows without a common id
SELECT measure, count(*) AS searches, sum(n) AS hits, bool_and(same) AS same
FROM (SELECT m.measure, q.i, (SELECT count(*) FROM sets d WHERE d.s <<->> (q.s, m.bound, m.measure)) AS n,
			 (SELECT array_agg(d.ctid ORDER BY d.ctid) FROM sets d WHERE d.s <<->> (q.s, m.bound, m.measure)) IS NOT DISTINCT FROM
			 (SELECT array_agg(t.tid ORDER BY t.tid) FROM gpuvec_topk('sets', 's', q.s, NULL, m.measure, m.bound) t) AS same
	  FROM sets q, (VALUES ('braun_blanquet', 0.5), ('jaccard', 0.25), ('cosine', 0.5), ('dice', 0.4), ('overlap', 1), ('containment', 0.75),
						   ('intersection', 3), ('hamming', -4), ('kulczynski', 0.7)) m(measure, bound)
	  WHERE q.i % 5 = 0 OR q.i > 120) x
GROUP BY measure ORDER BY measure;
-- long sets out of line; stored right sides, short, long and compressed
CREATE TABLE long_sets AS SELECT g AS i, (SELECT idset_agg(j * g) FROM generate_series(0, 9000) j WHERE j * g < 65536) AS s FROM generate_series(1, 8) g;
SELECT i, cardinality(s), array(SELECT b.i FROM long_sets b WHERE b.s <<->> (a.s, 0.5, 'cosine') ORDER BY 1) FROM long_sets a ORDER BY i;
CREATE TABLE thresholds (i int, t idset_threshold);
INSERT INTO thresholds VALUES (1, ('{1}', 0.5, NULL)), (2, ('{0,65535}', 1, 'overlap')), (3, NULL);
INSERT INTO thresholds SELECT 4, idset_threshold(s, 0.9, 'containment') FROM long_sets WHERE i = 4;
SELECT t.i, count(*), count(l.s <<->> t.t) AS known, count(*) FILTER (WHERE l.s <<->> t.t) AS hits FROM thresholds t, long_sets l GROUP BY t.i ORDER BY t.i;
-- a row of two fields is none; the constructor has a default
SELECT count(*) FROM long_sets WHERE s <<->> ('{0,65535}', 0.001);
SELECT count(*) FROM long_sets WHERE s <<->> idset_threshold('{0,65535}', 0.0001);
DROP TABLE sets, bounds, long_sets, thresholds;
DROP FUNCTION score, beside, changing_parameter;

-- names of measures, whatever their case, and another name of jaccard
SELECT name, '{1,3,4}'::idset <<->> ('{1,2}', 0.25, name) AS finds, '{1,3,4}'::idset <<->> ('{1,2}', 0.26, name) AS not_more
FROM unnest(ARRAY['Jaccard', 'JACCARD', 'tanimoto', 'Tanimoto']) name;
