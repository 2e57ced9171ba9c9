# shellcheck shell=bash disable=SC2154
# Fuzzy search of descriptions by gpuvec and by pg_trgm, for scripts/demo.sh, which reads this
# file.  Writes $work/fuzzy: a line for each search, with what was typed, the kind of search,
# the first row, the median time of both in milliseconds, and whether both found the same.

sql <<'SQL' || exit 1
DELETE FROM packages WHERE name = 'my-postgresql';
CREATE TABLE descriptions AS SELECT name, description, idset_trigrams(description) AS trigrams FROM packages;
VACUUM ANALYZE descriptions;
CREATE INDEX descriptions_trigrams ON descriptions USING gpuvec (trigrams);

-- the median milliseconds of some runs, after one that does not count
CREATE FUNCTION milliseconds(statement text, runs int) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
	began timestamptz;
	times float8[];
BEGIN
	FOR run IN 0..runs LOOP
		began := clock_timestamp();
		EXECUTE statement;
		times[run] := extract(epoch FROM clock_timestamp() - began) * 1000;
	END LOOP;
	RETURN (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY t) FROM unnest(times[1:]) t);
END $$;

-- what both find, sorted: scores for the nearest, names for all that are similar enough
CREATE FUNCTION found(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	EXECUTE format('SELECT string_agg(f::text, E''\n'' ORDER BY f::text) FROM (%s) x (f)', statement) INTO answer;
	RETURN answer;
END $$;
CREATE TABLE typed (n int, query text);
INSERT INTO typed VALUES (1, 'gnu imige maniplation program'), (2, 'object relatonal databse server'),
	(3, 'comand line musik player'), (4, 'telscope control for astronmy'), (5, 'pyhton web framewrok');
SQL

if sql -c 'CREATE EXTENSION pg_trgm' 2>"$work/pg_trgm.log"; then
	sql <<'SQL' >"$work/fuzzy" || exit 1
CREATE TABLE beside AS SELECT name, description FROM descriptions;
CREATE INDEX ON beside USING gist (description gist_trgm_ops);
CREATE INDEX ON beside USING gin (description gin_trgm_ops);
VACUUM ANALYZE beside;
SET pg_trgm.similarity_threshold = 0.3;
\pset format unaligned
\pset tuples_only on
\pset fieldsep '\t'
WITH searches AS (
	SELECT n, 1 AS kind, query, 'nearest 10' AS what,
		format('SELECT round((1 - (trigrams <%%> idset_trigrams(%1$L)))::numeric, 5) FROM descriptions ORDER BY trigrams <%%> idset_trigrams(%1$L) LIMIT 10', query) AS ours,
		format('SELECT round((1 - (description <-> %1$L))::numeric, 5) FROM beside ORDER BY description <-> %1$L LIMIT 10', query) AS theirs
	FROM typed
	UNION ALL
	SELECT n, 2, query, 'similarity of at least 0.3',
		format('SELECT name FROM descriptions WHERE trigrams <<->> (idset_trigrams(%L), 0.3, ''jaccard'')', query),
		format('SELECT name FROM beside WHERE description %% %L', query)
	FROM typed)
SELECT query, what, (SELECT name || ': ' || description FROM descriptions ORDER BY trigrams <%> idset_trigrams(query) LIMIT 1),
	milliseconds(ours, 15), milliseconds(theirs, 5), found(ours) IS NOT DISTINCT FROM found(theirs)
FROM searches ORDER BY kind, n;
SQL
else
	echo "(pg_trgm is not installed here: fuzzy search is not compared)"
	: >"$work/fuzzy"
fi
