-- Measures of idvec against their definition (src/core/sparse.h), to the last
-- bit: terms are added one after another, ascending by id.
-- Vectors are drawn as arrays, and the oracle sees only these.
SELECT idvec_inner_product('{1:1,2:2}'::idvec, '{2:3,5:1}') AS product, '{1:1,2:2}'::idvec <#> '{2:3,5:1}' AS negative, idvec_cosine_similarity('{1:3,2:4}', '{1:4,2:3}') AS cosine, '{1:3,2:4}'::idvec <=> '{1:4,2:3}' AS cosine_distance,
	   idvec_jaccard_similarity('{1:2,2:3}', '{1:1,3:4}') AS jaccard, '{1:2,2:2}'::idvec <%> '{1:1,3:1}' AS jaccard_distance, idvec_cosine_similarity('{1:1,2:-1}', '{1:-1,2:1}') AS opposite, '{1:1,2:-1}'::idvec <=> '{1:-1,2:1}' AS farthest;
SELECT idvec_inner_product('{}'::idvec, '{}'), '{}'::idvec <#> '{1:1}', idvec_cosine_similarity('{}', '{}'), '{}'::idvec <=> '{}', idvec_cosine_similarity('{}', '{1:1}'), idvec_jaccard_similarity('{}', '{}'), '{}'::idvec <%> '{}', '{1:1}'::idvec <%> '{}';
SELECT '{1,2}'::idset <#> '{2:0.5,3:7}'::idvec AS set_first, '{2:0.5,3:7}'::idvec <#> '{1,2}'::idset AS set_last, idset_inner_product('{70000}'::idset, '{2:1,70000:-2}'::idvec), idset_inner_product('{}'::idset, '{1:1}'::idvec), '{}'::idset <#> '{}'::idvec;
-- squares of the greatest values neither overflow, nor do those of the least
-- vanish
SELECT idvec_inner_product('{1:3.4028235e38}'::idvec, '{1:3.4028235e38}') AS greatest, idvec_inner_product('{1:1e-45}'::idvec, '{1:-1e-45}') AS least, idvec_cosine_similarity('{1:1e-45,2:1e-45}', '{1:1e-45}') AS of_least, idvec_cosine_similarity('{1:3e38,2:3e38}', '{1:3e38}') AS of_greatest,
	   idvec_jaccard_similarity('{1:3e38,2:3e38}', '{1:3e38}'), idvec_jaccard_similarity('{1:1e-45}', '{1:3e-45}'), idvec_cosine_similarity('{1:1e-45,2:3e38}', '{1:1e-45,3:3e38}') AS far_apart;
SELECT float8send(idvec_cosine_similarity('{1:1e-45,2:3e38}', '{1:-1e-45,3:3e38}')) AS positive_zero, float8send('{1:1e-45,2:3e38}'::idvec <=> '{1:-1e-45,3:3e38}') AS one;
-- Jaccard's similarity is not for negative values
CREATE FUNCTION try(statement text, OUT state text, OUT result text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE 'SELECT ' || statement INTO result;
EXCEPTION WHEN OTHERS THEN
	state := SQLSTATE;
	result := SQLERRM;
END$$;
SELECT statement, t.* FROM unnest(ARRAY[$$idvec_jaccard_similarity('{1:-1}', '{1:1}')$$, $$idvec_jaccard_similarity('{1:1}', '{2:1,1:-0.5}')$$, $$idvec_jaccard_similarity('{1:1,2:-1e-45}', '{}')$$, $$idvec_jaccard_similarity('{}', '{70000:-1}')$$, $$'{1:-1}'::idvec <%> '{1:1}'$$,
	$$'{1:1}'::idvec <%> '{1:300,2:-300}'$$, $$'{1:0.5}'::idvec <%> '{1:0.5}'$$]) WITH ORDINALITY u(statement, n), try(statement) t ORDER BY n;
-- chance that is the same each time
CREATE FUNCTION chance(i int8, j int8, below int8) RETURNS int8 IMMUTABLE LANGUAGE sql AS $$SELECT (hashint8extended(i * 1000 + j, 20261129) & 9007199254740991) % below$$;
-- kinds: 0 small, 1 small and wide, 2 float, 3 float, wide, of both signs, 4
-- huge, 5 next to nothing, 6 of all sizes, 7 empty, 8 one pair, 9 a set, 10 a
-- wide set, 11 few values; every other round has positive values only
CREATE FUNCTION drawn(i int8, k int8, kind int) RETURNS float8 IMMUTABLE LANGUAGE sql AS $$
	SELECT CASE WHEN kind IN (0, 1) THEN 1 + chance(i, k + 500, 255)
		WHEN kind IN (2, 3, 8) THEN (1 + chance(i, k + 500, 16777215)) / 65536.0::float8 * 2 ^ (chance(i, k + 300, 24) - 12)
		WHEN kind = 4 THEN 3.4028234663852886e38::float8 * (1 - chance(i, k + 500, 1000) / 4096.0::float8)
		WHEN kind = 5 THEN (1 + chance(i, k + 500, 1000)) * 2 ^ (-149::float8)
		WHEN kind = 6 THEN 2 ^ (chance(i, k + 500, 276) - 149)::float8 * CASE WHEN chance(i, k + 300, 2) = 0 THEN 1 ELSE 1.5 END
		WHEN kind IN (9, 10) THEN 1 ELSE 0.1::real + chance(i, k + 500, 3) END
		* CASE WHEN kind IN (2, 3, 4, 5, 6, 8) AND i / 12 % 2 = 1 AND chance(i, k + 700, 2) = 0 THEN -1 ELSE 1 END$$;
CREATE TABLE vectors (id int8 PRIMARY KEY, kind int, ids int8[], vals real[], v idvec, s idset);
INSERT INTO vectors (id, kind, ids, vals)
SELECT i, i % 12, coalesce(array_agg(CASE WHEN k % 3 = 0 OR i % 12 NOT IN (1, 3, 6, 8, 10) THEN k ELSE k * 14316557::int8 END ORDER BY CASE WHEN k % 3 = 0 OR i % 12 NOT IN (1, 3, 6, 8, 10) THEN k ELSE k * 14316557::int8 END) FILTER (WHERE k IS NOT NULL), '{}'),
	coalesce(array_agg(drawn(i, k, (i % 12)::int)::real ORDER BY CASE WHEN k % 3 = 0 OR i % 12 NOT IN (1, 3, 6, 8, 10) THEN k ELSE k * 14316557::int8 END) FILTER (WHERE k IS NOT NULL), '{}')
FROM generate_series(0, 239) i LEFT JOIN generate_series(0, 299) k ON CASE i % 12 WHEN 7 THEN false WHEN 8 THEN k = i / 12 ELSE chance(i, k, 100) < (ARRAY[1, 5, 20, 60, 100])[1 + chance(i, 999, 5)] END GROUP BY i;
-- three times a vector, of which both have sums that are rounded: without a
-- limit its cosine is beyond 1 or -1 now and then
INSERT INTO vectors (id, kind, ids, vals) SELECT id + 1000, 12, ids, ARRAY(SELECT (x * CASE WHEN id % 5 = 0 THEN -3 ELSE 3 END)::real FROM unnest(vals) WITH ORDINALITY u(x, n) ORDER BY n) FROM vectors WHERE kind IN (2, 3, 8, 11);
UPDATE vectors SET v = idvec(ids, vals), s = ids::idset;
SELECT kind, count(*), min(cardinality(v)) AS shortest, max(cardinality(v)) > 250 AS long, bool_or(get_byte(idvec_send(v), 4) & 1 = 1) AS wide, bool_or(get_byte(idvec_send(v), 4) & 2 = 2) AS small, bool_or(0 > ANY (vals)) AS negative FROM vectors GROUP BY kind ORDER BY kind;
SELECT count(*) FROM vectors WHERE cardinality(ids) <> cardinality(v) OR v::text <> '{' || (SELECT coalesce(string_agg(i || ':' || x, ',' ORDER BY n), '') FROM unnest(ids, vals) WITH ORDINALITY u(i, x, n)) || '}' OR s <> v::idset;
-- the definition; `turned` are the sums of the other order
CREATE FUNCTION oracle(xi int8[], xv real[], yi int8[], yv real[], OUT product float8, OUT cosine float8, OUT jaccard float8, OUT beyond boolean, OUT turned boolean) LANGUAGE plpgsql AS $$
DECLARE
	s float8 := 0;
	m float8 := 0;
	a float8 := 0;
	b float8 := 0;
	asum float8 := 0;
	bsum float8 := 0;
	back float8 := 0;
	ratio float8 := 0;
	terms float8[] := '{}';
	i int := 1;
	j int := 1;
	x real;
BEGIN
	WHILE i <= cardinality(xi) AND j <= cardinality(yi) LOOP
		IF xi[i] < yi[j] THEN
			i := i + 1;
		ELSIF xi[i] > yi[j] THEN
			j := j + 1;
		ELSE
			s := s + xv[i]::float8 * yv[j]::float8;
			m := m + least(xv[i], yv[j])::float8;
			terms := terms || xv[i]::float8 * yv[j]::float8;
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
	FOR n IN REVERSE cardinality(terms) .. 1 LOOP
		back := back + terms[n];
	END LOOP;
	product := s;
	IF s <> 0 THEN
		BEGIN
			ratio := s * s / (a * b);
		EXCEPTION WHEN numeric_value_out_of_range THEN
			ratio := 0;	-- the server's own division does not round to 0
		END;
	END IF;
	beyond := ratio > 1;
	turned := back <> s;
	cosine := CASE WHEN ratio = 0 THEN 0 WHEN s < 0 THEN -sqrt(least(ratio, 1)) ELSE sqrt(least(ratio, 1)) END;
	IF (SELECT coalesce(min(z), 0) FROM unnest(xv || yv) z) >= 0 THEN
		jaccard := CASE WHEN asum + bsum - m = 0 THEN 0 ELSE m / (asum + bsum - m) END;
	END IF;
END$$;
CREATE TABLE pairs AS SELECT x.id AS xid, y.id AS yid, x.v AS xv, y.v AS yv, x.s AS xs, y.s AS ys, o.*
FROM vectors x JOIN vectors y ON y.id % 1000 = x.id % 1000 OR chance(x.id, y.id, 50) = 0, oracle(x.ids, x.vals, y.ids, y.vals) o;
CREATE FUNCTION similar(idvec, idvec) RETURNS float8 LANGUAGE plpgsql AS $$
BEGIN
	RETURN idvec_jaccard_similarity($1, $2);
EXCEPTION WHEN invalid_parameter_value THEN
	RETURN NULL;
END$$;
CREATE FUNCTION apart(idvec, idvec) RETURNS float8 LANGUAGE plpgsql AS $$
BEGIN
	RETURN $1 <%> $2;
EXCEPTION WHEN invalid_parameter_value THEN
	RETURN NULL;
END$$;
CREATE TABLE scores AS SELECT *, idvec_inner_product(xv, yv) AS p, xv <#> yv AS pd, idvec_cosine_similarity(xv, yv) AS c, xv <=> yv AS cd, similar(xv, yv) AS j, apart(xv, yv) AS jd,
	idvec_inner_product(yv, xv) AS p2, yv <#> xv AS pd2, idvec_cosine_similarity(yv, xv) AS c2, yv <=> xv AS cd2, similar(yv, xv) AS j2, apart(yv, xv) AS jd2 FROM pairs;
-- what the pairs are good for
SELECT count(*) > 1500 AS pairs, count(*) FILTER (WHERE turned) > 100 AS order_matters, count(*) FILTER (WHERE beyond) > 5 AS limited, count(*) FILTER (WHERE product < 0) > 50 AS negative, count(*) FILTER (WHERE product = 0) > 100 AS disjoint,
	   count(*) FILTER (WHERE jaccard IS NULL) > 100 AS refused, count(*) FILTER (WHERE jaccard > 0) > 100 AS jaccard FROM pairs;
SELECT count(*) FILTER (WHERE float8send(p) IS DISTINCT FROM float8send(product)) AS product, count(*) FILTER (WHERE float8send(c) IS DISTINCT FROM float8send(cosine)) AS cosine, count(*) FILTER (WHERE float8send(j) IS DISTINCT FROM float8send(jaccard)) AS jaccard,
	   count(*) FILTER (WHERE float8send(pd) IS DISTINCT FROM float8send(0 - product)) AS product_distance, count(*) FILTER (WHERE float8send(cd) IS DISTINCT FROM float8send(1 - cosine)) AS cosine_distance, count(*) FILTER (WHERE float8send(jd) IS DISTINCT FROM float8send(1 - jaccard)) AS jaccard_distance FROM scores;
-- whichever comes first
SELECT count(*) AS wrong FROM scores WHERE float8send(p) <> float8send(p2) OR float8send(pd) <> float8send(pd2) OR float8send(c) <> float8send(c2) OR float8send(cd) <> float8send(cd2) OR float8send(j) IS DISTINCT FROM float8send(j2) OR float8send(jd) IS DISTINCT FROM float8send(jd2);
-- of itself 1, in a range, and 0 has one sign
SELECT count(*) AS themselves, count(*) FILTER (WHERE c <> 1 OR cd <> 0 OR j <> 1 OR jd <> 0) AS wrong FROM scores WHERE xid = yid AND xv <> '{}';
SELECT count(*) FILTER (WHERE c NOT BETWEEN -1 AND 1) AS cosine, count(*) FILTER (WHERE cd NOT BETWEEN 0 AND 2) AS cosine_distance, count(*) FILTER (WHERE j NOT BETWEEN 0 AND 1) AS jaccard, count(*) FILTER (WHERE jd NOT BETWEEN 0 AND 1) AS jaccard_distance,
	   count(*) FILTER (WHERE '\x8000000000000000' IN (float8send(p), float8send(pd), float8send(c), float8send(cd), float8send(j), float8send(jd))) AS negative_zeros, count(*) FILTER (WHERE 0 IN (p, pd, c, cd, j, jd)) > 100 AS zeros FROM scores;
-- vectors of ones score as sets, and a set with a vector as its vector of ones
SELECT count(*) FILTER (WHERE float8send(idvec_cosine_similarity(xs::idvec, ys::idvec)) <> float8send(cosine_similarity(xs, ys))) AS cosine, count(*) FILTER (WHERE float8send(idvec_jaccard_similarity(xs::idvec, ys::idvec)) <> float8send(jaccard_similarity(xs, ys))) AS jaccard,
	   count(*) FILTER (WHERE idvec_inner_product(xs::idvec, ys::idvec) <> intersection_count(xs, ys)) AS product, count(*) FILTER (WHERE float8send(xs::idvec <#> ys::idvec) <> float8send(xs <#> ys)) AS distance,
	   count(*) FILTER (WHERE float8send(idset_inner_product(xs, yv)) <> float8send(idvec_inner_product(xs::idvec, yv))) AS set_vector, count(*) FILTER (WHERE float8send(0 - (yv <#> xs)) <> float8send(idvec_inner_product(xs::idvec, yv))) AS vector_set,
	   count(*) FILTER (WHERE float8send(xs <#> yv) <> float8send(xs::idvec <#> yv)) AS set_distance, count(*) FILTER (WHERE float8send(yv <#> xs) <> float8send(xs::idvec <#> yv)) AS vector_distance FROM pairs;
SELECT count(*) > 100 AS many, count(*) FILTER (WHERE float8send(-(x.s <#> y.v)) <> float8send(o.product)) AS wrong FROM vectors x JOIN vectors y ON chance(x.id, y.id + 300, 30) = 0,
	oracle(x.ids, array_fill(1::real, ARRAY[cardinality(x.ids)]), y.ids, y.vals) o WHERE o.product <> 0 AND y.kind IN (2, 3, 4, 6);
-- norms and sums
SELECT count(*) FILTER (WHERE idvec_norm(v)::text IS DISTINCT FROM sqrt(o.product)::text) AS norm, count(*) FILTER (WHERE float8send(idvec_sum(v)) IS DISTINCT FROM float8send(t.product)) AS sum
FROM vectors, oracle(ids, vals, ids, vals) o, oracle(ids, vals, ids, array_fill(1::real, ARRAY[cardinality(ids)])) t;
-- the order of a search
SELECT q.id, count(*) FILTER (WHERE n.product <> n.by_product) AS product, count(*) FILTER (WHERE n.cosine <> n.by_cosine) AS cosine, count(*) FILTER (WHERE n.jaccard <> n.by_jaccard) AS jaccard
FROM vectors q, LATERAL (SELECT row_number() OVER (ORDER BY v <#> q.v, id) AS product, row_number() OVER (ORDER BY -o.product, id) AS by_product, row_number() OVER (ORDER BY v <=> q.v, id) AS cosine, row_number() OVER (ORDER BY 1 - o.cosine, id) AS by_cosine,
	row_number() OVER (ORDER BY apart(v, q.v), id) AS jaccard, row_number() OVER (ORDER BY 1 - o.jaccard, id) AS by_jaccard FROM vectors t, oracle(t.ids, t.vals, q.ids, q.vals) o) n
WHERE q.id IN (0, 1, 2, 15, 30, 43, 50, 67, 1002) GROUP BY q.id ORDER BY q.id;
SELECT array_agg(id ORDER BY v <=> '{3:1,6:2}', id) = array_agg(id ORDER BY 1 - o.cosine, id) AS cosine, array_agg(id ORDER BY v <#> '{3:1,6:2}', id) = array_agg(id ORDER BY -o.product, id) AS product FROM vectors, oracle(ids, vals, '{3,6}', '{1,2}') o;
DROP TABLE vectors, pairs, scores;
DROP FUNCTION try, chance, drawn, oracle, similar, apart;
