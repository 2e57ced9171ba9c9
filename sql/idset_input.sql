-- Input of idset: whatever is not a set is an error of the right class, text and binary alike.
-- Nothing here depends on chance: numbers come from this function.
CREATE FUNCTION number(i int8, j int8, below int8) RETURNS int8 IMMUTABLE LANGUAGE sql AS
	$$SELECT (((i * 2654435761 + j * 40503 + 12345) % 2147483648 * 1103515245) % 2147483648 / 1024) % below$$;
CREATE FUNCTION try_text(input text, OUT state text, OUT result text) LANGUAGE plpgsql AS $$
BEGIN
	result := input::idset::text;
EXCEPTION WHEN OTHERS THEN
	state := SQLSTATE;
	result := CASE WHEN length(input) < 60 THEN SQLERRM END;
END$$;
-- malformed, and well-formed but unusual
SELECT input, t.* FROM unnest(ARRAY['', ' ', '{', '}', '[', ']', '{]', '[}', '{}', '[]', '{ }', ' [ ] ', '{{}}', '{{1},{2}}', '[[1]]', '{[1]}',
	'{1}{2}', '{1}}', '{1} ,', '{,}', '{1,}', '{,1}', '{1,,2}', '{1 2}', '{1;2}', '{0x10}', '{1e3}', '{1.0}', '{.5}', '{--1}', '{+-1}', '{+}',
	'{-}', '{- 1}', '{"1"}', '["1"]', '{"1","2","3"}', '["3", " +2 " ,1]', '{""}', '{"}', '{"', '{"1', '{"1}', '{"1,2"}', '{"1""2"}', '{"1" "2"}', '{"1"2}', '{1"2"}', '{x"1"}',
	'{"x"}', '{"\1"}', '{"-"}', '{"1x"}', '{"null"}', '{"4294967296"}', '{"-1"}', '"{1}"', '{null}', '{NULL}', '{NaN}', '{nullx}', 'null', '(1,2)', '1', '1,2', '[1:2]={1,2}', '{1}x', 'x{1}',
	'{+7}', '{-0}', '{00007}', '{65535,0}', '[ 2 , 1 ]', chr(9) || '{1' || chr(10) || ',' || chr(13) || '2}' || chr(12)])
	WITH ORDINALITY u(input, n), try_text(input) t ORDER BY n;
-- quotes tell nothing but what is between them
SELECT '{"1","2}'::idset;
SELECT '{"1"2}'::idset;
SELECT '{"4294967296"}'::idset;
-- no number wraps around
SELECT input, t.* FROM unnest(ARRAY['-1', '65535', '65536', '-65535', '2147483647', '2147483648', '32768', '-32768', '131071', '4294967295', '4294967296', '4294967301', '-4294967295',
	'9223372036854775807', '9223372036854775808', '18446744073709551616', '18446744073709551621', '340282366920938463463374607431768211456',
	'-340282366920938463463374607431768211456', '0000000000000000000000000000000000000000000000000065535']) WITH ORDINALITY u(input, n),
	try_text('{' || input || '}') t ORDER BY n;
-- long input: repeated ids, an error at the very end
SELECT ('{' || repeat('7,', 1000000) || '3}')::idset AS repeated;
SELECT state FROM unnest(ARRAY['x}', '4294967296}', '1', '1]', '}', '1}x', '{1}}']) WITH ORDINALITY u(tail, n), try_text('{' || repeat('7,', 100000) || tail) ORDER BY n;
SELECT cardinality(('[' || string_agg(i::text, ',') || ']')::idset) FROM generate_series(65535, 0, -1) i;
-- lists put together from good and bad pieces, judged by regular expressions
WITH made AS MATERIALIZED (
	SELECT i, (ARRAY['{', '{', '{', '[', '[', ' {', ' [ ', '(', ''])[1 + number(i, 1, 9)] ||
		   (SELECT coalesce(string_agg((ARRAY['0', '1', '2', '65535', ' 17 ', '+7', '-0', '007', '300', '65534', '1 ', '12', '65536', '-1', '4294967296', '', '1.5', 'x',
											  'null', '1 2', '{1}', '"1"', '--1', '"12"', '" 7 "', '"1', '""', '"65536"', '1"'])[1 + number(i, j, CASE WHEN i % 3 = 0 THEN 29 WHEN i % 3 = 1 THEN 15 ELSE 12 END)],
								   (ARRAY[',', ',', ',', ' , ', ',,', ';'])[1 + number(i, 70, CASE WHEN i % 5 = 0 THEN 6 ELSE 4 END)] ORDER BY j), '')
			FROM generate_series(2, 1 + number(i, 50, 7)) j) ||
		   (ARRAY['}', '}', '}', ']', ']', '} ', ' ] ', ')', ''])[1 + number(i, CASE WHEN i % 4 = 0 THEN 60 ELSE 1 END, 9)] AS input
	FROM generate_series(1, 6000) i),
judged AS MATERIALIZED (
	SELECT *, input ~ replace('^ *({ *(id *(, *id *)*)?}|\[ *(id *(, *id *)*)?\]) *$', 'id', '([+-]?[0-9]+|" *[+-]?[0-9]+ *")') AS list,
		   ARRAY(SELECT DISTINCT m[1]::numeric FROM regexp_matches(input, '([+-]?[0-9]+)', 'g') m ORDER BY 1) AS numbers
	FROM made),
tried AS MATERIALIZED (SELECT j.*, t.state, t.result FROM judged j, try_text(input) t)
SELECT list, (0 <= ALL (numbers) AND 4294967295 >= ALL (numbers)) OR NOT list AS ids, count(*) > 200 AS many,
	   count(*) FILTER (WHERE CASE WHEN NOT list THEN state NOT IN ('22P02', '22003') OR state IS NULL
								   WHEN 0 <= ALL (numbers) AND 4294967295 >= ALL (numbers) THEN state IS NOT NULL OR result <> numbers::text
								   ELSE state IS DISTINCT FROM '22003' END) AS wrong
FROM tried GROUP BY 1, 2 ORDER BY 1, 2;
-- binary: COPY reads what a shell prints
CREATE TABLE received (s idset);
CREATE FUNCTION try_binary(value bytea, OUT state text, OUT result text) LANGUAGE plpgsql AS $$
DECLARE
	file bytea := '\x5047434f50590aff0d0a0000000000000000000001'::bytea || int4send(length(value)) || value || '\xffff'::bytea;
	octal text := (SELECT string_agg('\' || lpad((get_byte(file, i) / 64)::text || (get_byte(file, i) / 8 % 8) || (get_byte(file, i) % 8), 3, '0'), '' ORDER BY i)
				   FROM generate_series(0, length(file) - 1) i);
BEGIN
	TRUNCATE received;
	EXECUTE format('COPY received FROM PROGRAM %L (FORMAT binary)', format('printf ''%s''', octal));
	result := s::text FROM received;
EXCEPTION WHEN OTHERS THEN
	state := SQLSTATE;
	result := SQLERRM;
END$$;
SELECT value, t.* FROM unnest(ARRAY['\x', '\x00', '\x000000', '\x00000000', '\x00000001', '\x0000000100', '\x000000010005', '\x00000001000506', '\x00000002000500',
	'\x0000000200050006', '\x0000000200060005', '\x0000000200050005', '\x000000020000ffff', '\x00000003000500060006', '\xffffffff', '\x80000000', '\x7fffffff', '\x00010001',
	'\x00010000', '\x80000001000a', '\x0000000000',
	-- negated numbers of ids of four bytes; all of them may be below 65536
	'\xffffffff00010000', '\xffffffffffffffff', '\xffffffff00000005', '\xfffffffe000000050000ffff', '\xfffffffe0000000500010000', '\xffffffff0005', '\xffffffff000100',
	'\xffffffff0001000000', '\xfffffffe0001000000010000', '\xfffffffe00010000', '\xfffffffe0001000100010000', '\xfffffffe8000000000000001', '\x0000000100010000', '\x0000000200010000',
	'\xffff0000', '\xfffeffff', '\xfffeffff00010000']::bytea[]) WITH ORDINALITY u(value, n), try_binary(value) t ORDER BY n;
-- one byte of a good value changed, taken out or put in, judged by reading the bytes
WITH good AS MATERIALIZED (SELECT i, idset_send(ARRAY(SELECT number(i, j, 2000) * CASE WHEN i % 8 < 4 THEN 1 ELSE 2000003 END FROM generate_series(0, i % 7) j)::idset) AS value FROM generate_series(1, 300) i),
changed AS MATERIALIZED (
	SELECT i, CASE i % 4 WHEN 0 THEN set_byte(value, place, number(i, 9, 256)::int)
						 WHEN 1 THEN set_byte(value, length(value) - 1 - place / 3, (get_byte(value, length(value) - 1 - place / 3) + 1) % 256)
						 WHEN 2 THEN substr(value, 1, place) || substr(value, place + 2)
						 ELSE substr(value, 1, place) || '\x01'::bytea || substr(value, place + 1) END AS value
	FROM good, LATERAL (SELECT number(i, 8, length(value))::int AS place) p),
judged AS MATERIALIZED (
	SELECT *, ARRAY(SELECT ('x' || encode(substr(value, 5 + width * k, width), 'hex'))::varbit::bit(64)::int8 >> (64 - 8 * width) & ((1::int8 << 8 * width) - 1) FROM generate_series(0, (length(value) - 4) / width - 1) k ORDER BY k) AS ids
	FROM changed, LATERAL (SELECT CASE WHEN length(value) >= 4 THEN ('x' || encode(substr(value, 1, 4), 'hex'))::bit(32)::int4::int8 END AS n) c,
		LATERAL (SELECT CASE WHEN n < 0 THEN 4 ELSE 2 END AS width) w),
tried AS MATERIALIZED (
	SELECT j.*, t.*, COALESCE(length(value) = 4 + width * abs(n) AND ids = ARRAY(SELECT DISTINCT x FROM unnest(ids) x ORDER BY 1), false) AS good FROM judged j, try_binary(value) t)
SELECT good, width, count(*) > 20 AS many, count(*) FILTER (WHERE CASE WHEN good THEN state IS NOT NULL OR result <> ids::text ELSE state IS DISTINCT FROM '22P03' END) AS wrong
FROM tried GROUP BY 1, 2 ORDER BY 1, 2;
-- arrays that are no sets
CREATE FUNCTION try_array(input text, type text, OUT state text, OUT result text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('SELECT %L::%s::idset', input, type) INTO result;
EXCEPTION WHEN OTHERS THEN
	state := SQLSTATE;
	result := SQLERRM;
END$$;
SELECT input, type, t.* FROM unnest(ARRAY['{}', '{3,1,3}', '{0,32767}', '{-1}', '{-32768}', '{1,NULL}', '{NULL}', '{{1,2},{3,4}}', '{{1}}', '[5:6]={2,1}']) WITH ORDINALITY u(input, n),
	unnest(ARRAY['int2[]', 'int4[]', 'int8[]']) WITH ORDINALITY v(type, m), try_array(input, type) t ORDER BY n, m;
SELECT input, type, t.* FROM (VALUES ('{65535,65536}', 'int4[]'), ('{2147483647}', 'int4[]'), ('{-2147483648}', 'int4[]'), ('{65536}', 'int8[]'), ('{4294967295,2147483648,2147483647,65535}', 'int8[]'), ('{4294967296}', 'int8[]'),
	('{-9223372036854775808}', 'int8[]'), ('{9223372036854775807}', 'int8[]'), ('{1}', 'text[]'), ('{1}', 'numeric[]'), ('{1}', 'oid[]')) v(input, type), try_array(input, type) t;
-- single ids and aggregates check the range too
SELECT '{1}'::idset | 65536, '{1}'::idset | 4294967295;
SELECT '{1}'::idset | 4294967296;
SELECT '{1}'::idset | (-1);
SELECT '{1}'::idset | 4294967297;
SELECT '{1}'::idset - (-1), '{1}'::idset - 4294967297, '{1}'::idset @> 4294967297, 4294967297 <@ '{1}'::idset, '{1}'::idset @> (-65535);
SELECT idset_agg(i) FROM generate_series(4294967293, 4294967295) i;
SELECT idset_agg(i) FROM generate_series(4294967290, 4294967296) i;
SELECT idset_agg(i) FROM generate_series(-1, 5) i;
SELECT idset_agg(4294967297);
DROP TABLE received;
DROP FUNCTION number, try_text, try_binary, try_array;
