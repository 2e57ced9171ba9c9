# Index and bitmap scans against sequential scans and sorts, under the same snapshot: through
# random histories of a table, on a primary, on its standby, after a crash and after
# a promotion.
use strict;
use warnings;

use GpuvecHistories;
use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary', streaming => 1);
$primary->safe_psql('postgres', q{
	CREATE TABLE docs (id int PRIMARY KEY, note int, tokens idset) WITH (fillfactor = 80);
	CREATE INDEX docs_knn ON docs USING gpuvec (tokens);

	-- Both give all rows, and the first ones: in the same order of distances, each row once
	-- and with its own distance.  Among equal distances the index has an order that SQL
	-- cannot ask for (that of the chains' roots).
	CREATE FUNCTION compare(op text, q idset, k int, filter text) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		sql text;
		plan text;
		sorted_ids int[];
		sorted float8[];
		ids int[];
		distances float8[];
	BEGIN
		sql := format('SELECT array_agg(id), array_agg(d) FROM (SELECT id, tokens %s %L AS d FROM docs WHERE %s ORDER BY tokens %1$s %2$L', op, q, filter);
		SET LOCAL enable_indexscan = off;
		SET LOCAL enable_seqscan = on;
		SET LOCAL enable_sort = on;
		EXECUTE sql || ') x' INTO sorted_ids, sorted;
		SET LOCAL enable_indexscan = on;
		SET LOCAL enable_bitmapscan = off;
		SET LOCAL enable_seqscan = off;
		SET LOCAL enable_sort = off;
		EXECUTE 'EXPLAIN (FORMAT JSON) ' || sql || ') x' INTO plan;
		IF plan NOT LIKE '%docs_knn%' THEN RETURN 'the index is not used'; END IF;
		EXECUTE sql || ') x' INTO ids, distances;
		IF distances IS DISTINCT FROM sorted THEN RETURN 'other distances'; END IF;
		IF (SELECT array_agg(i ORDER BY i) FROM unnest(ids) i) IS DISTINCT FROM (SELECT array_agg(i ORDER BY i) FROM unnest(sorted_ids) i) THEN RETURN 'other rows'; END IF;
		EXECUTE sql || format(' LIMIT %s) x', k) INTO ids, distances;
		IF distances IS DISTINCT FROM nullif(sorted[:k], '{}') THEN RETURN 'other distances with a limit'; END IF;
		IF EXISTS (SELECT FROM unnest(ids, distances) AS r (i, d) WHERE d IS DISTINCT FROM sorted[array_position(sorted_ids, i)]) THEN RETURN 'a row with another distance'; END IF;
		RETURN 'same';
	END $$;

	-- The search function, which uses the index's copy, returns the versions that are seen
	CREATE FUNCTION compare_topk(q idset, k int, measure text) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		found text;
		sorted text;
	BEGIN
		EXECUTE format('SELECT string_agg(ctid || %L || s, $1) FROM (SELECT ctid, s FROM (SELECT ctid, tokens, %I(tokens, %L)::float8 AS s FROM docs) x WHERE s > 0 ORDER BY s DESC, ctid LIMIT %s) y',
			' ', measure || CASE measure WHEN 'intersection' THEN '_count' ELSE '_similarity' END, q, k) INTO sorted USING ',';
		SELECT string_agg(tid || ' ' || score, ',' ORDER BY rank) INTO found FROM gpuvec_topk('docs', 'tokens', q, k, measure);
		RETURN CASE WHEN found IS NOT DISTINCT FROM sorted THEN 'same' ELSE 'other rows' END;
	END $$;

	-- Sequential, bitmap and index scans find the same rows, each once
	CREATE FUNCTION compare_search(condition text) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		sql text := 'SELECT array_agg(ctid ORDER BY ctid) FROM docs WHERE ' || condition;
		plan text;
		by_scan tid[];
		tids tid[];
	BEGIN
		SET LOCAL enable_seqscan = on;
		SET LOCAL enable_bitmapscan = off;
		SET LOCAL enable_indexscan = off;
		EXECUTE sql INTO by_scan;
		SET LOCAL enable_seqscan = off;
		SET LOCAL enable_bitmapscan = on;
		EXECUTE 'EXPLAIN (FORMAT JSON) ' || sql INTO plan;
		-- equal to two sets: from 17 on, nothing is scanned
		IF plan LIKE '%"One-Time Filter": "false"%' AND by_scan IS NULL THEN RETURN 'same'; END IF;
		IF plan NOT LIKE '%Bitmap Index Scan%docs_knn%' THEN RETURN 'no bitmap scan'; END IF;
		EXECUTE sql INTO tids;
		IF tids IS DISTINCT FROM by_scan THEN RETURN 'other rows by a bitmap scan'; END IF;
		SET LOCAL enable_bitmapscan = off;
		SET LOCAL enable_indexscan = on;
		EXECUTE 'EXPLAIN (FORMAT JSON) ' || sql INTO plan;
		IF plan NOT LIKE '%"Index Scan"%docs_knn%' THEN RETURN 'no index scan'; END IF;
		EXECUTE sql INTO tids;
		IF tids IS DISTINCT FROM by_scan THEN RETURN 'other rows by an index scan'; END IF;
		RETURN 'same';
	END $$;});
$primary->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'b', has_streaming => 1);
$standby->start;

srand(1);
my $next = 1;
my @operators = ('<->', '<%>', '<=>', '<#>', '<~>');
my @searches = ('&&', '@>', '<@', '=');
my @measures = qw(braun_blanquet jaccard cosine dice overlap containment intersection hamming kulczynski);
my @filters = ('true', 'note % 3 = 0', 'note = 7', 'id < 0', 'tokens @> $f${3}$f$ AND true', 'tokens && $f${5,9,11}$f$ AND note < 8', 'tokens <@ $f${1,2,3,4,5,6,7,8,65535}$f$ AND true');

# Literals and histories.  Small vocabularies make ties, large ones rows without a common id.
sub random_rows { my ($n) = @_; return join(',', map { '(' . $next++ . ", " . int(rand(10)) . ", " . (int(rand(15)) ? "'" . random_set(8) . "'" : 'NULL') . ')' } 1 .. $n); }

my @steps = (
	sub { 'INSERT INTO docs VALUES ' . random_rows(1 + int(rand(60))) },
	sub { 'INSERT INTO docs VALUES ' . random_rows(1 + int(rand(300))) },
	sub { 'UPDATE docs SET note = note + 1 WHERE id % ' . (2 + int(rand(9))) . ' = 0' },
	sub { "UPDATE docs SET tokens = '" . random_set(6) . "' WHERE id % " . (5 + int(rand(20))) . ' = 1' },
	sub { 'DELETE FROM docs WHERE id % ' . (4 + int(rand(20))) . ' = 2' },
	sub { 'BEGIN; INSERT INTO docs VALUES ' . random_rows(40) . '; DELETE FROM docs WHERE id % 3 = 0; ROLLBACK' },
	sub { 'BEGIN; INSERT INTO docs VALUES ' . random_rows(20) . '; SAVEPOINT s; UPDATE docs SET note = 0; ROLLBACK TO s; COMMIT' },
	sub { 'VACUUM docs' },
	sub { 'VACUUM docs' },
	sub { 'DELETE FROM docs WHERE id > (SELECT max(id) - 200 FROM docs); VACUUM docs' },
	sub { int(rand(4)) ? 'ANALYZE docs' : 'TRUNCATE docs' },
	sub { 'REINDEX INDEX docs_knn' },
	sub { "COPY docs FROM STDIN;\n" . join('', map { $next++ . "\t5\t" . random_set(5) . "\n" } 1 .. 30) . "\\.\n" });

my @scores = ('braun_blanquet', 'jaccard', 'cosine', 'intersection');

# A search that has some answers, usually: long queries for subsets, whole and broken bounds
sub random_search
{
	my $op = $searches[rand @searches];
	my $measure = $measures[rand @measures];
	my $bound = $measure eq 'hamming' ? 1 - int(rand(9)) : $measure eq 'intersection' ? int(rand(5)) : (int(rand(13)) - 1) / 10;

	return sprintf("tokens %s '%s'", $op, random_set($op eq '<@' ? 60 : 3)) if int(rand(2));
	return sprintf("tokens <<->> ('%s', %s, '%s')", random_set(8), $bound, $measure);
}

# One answer a line: same, or what is wrong with which question.  Changes are found out in
# all ways.
sub questions
{
	my @freshness = @_ ? @_ : ('auto', 'wal', 'sweep');

	return 'SET gpuvec.freshness = ' . $freshness[rand @freshness] . ";\n" . join(";\n", map {
		my ($op, $q, $k, $filter) = ($operators[rand @operators], random_set(8), 1 + int(rand(300)), $filters[rand @filters]);
		my $measure = $scores[rand @scores];
		int(rand(3))
		? "SELECT r || CASE r WHEN 'same' THEN '' ELSE \$\$: $op $q $k $filter\$\$ END FROM compare('$op', '$q', $k, '$filter') r"
		: "SELECT r || CASE r WHEN 'same' THEN '' ELSE \$\$: $measure $q $k\$\$ END FROM compare_topk('$q', $k, '$measure') r"; } 1 .. 6) .
		";\n" . join(";\n", map {
		my $condition = join(' AND ', map { random_search() } 0 .. int(rand(1.5))) . ' AND ' . $filters[int(rand(8)) ? 0 : 1];
		"SELECT r || CASE r WHEN 'same' THEN '' ELSE \$\$: $condition\$\$ END FROM compare_search(\$\$$condition\$\$) r"; } 1 .. 6);
}

my $wrong = 0;
my $asked = 0;

sub ask_node
{
	my ($node, $name, $questions) = @_;
	my @answers = split /\n/, $node->safe_psql('postgres', $questions);

	$asked += @answers;
	for (grep { $_ ne 'same' } @answers) { $wrong++; diag("$name: $_"); }
	return;
}

for my $round (1 .. 120)
{
	my $sql = $steps[rand @steps]->();

	$primary->safe_psql('postgres', $_) for ($sql =~ /^(DELETE.*); (VACUUM.*)$/ ? ($1, $2) : ($sql));
	ask_node($primary, "round $round, after " . substr($sql, 0, 60), questions());
	if ($round % 12 == 0)
	{
		$primary->wait_for_catchup($standby, 'replay');
		ask_node($standby, "standby, round $round", questions());
	}
}
is($wrong, 0, 'index scans give what sequential scans and sorts give');
is($asked, 130 * 12, 'all questions were answered');

$primary->stop('immediate');
$primary->start;
$wrong = 0;
ask_node($primary, 'after a crash', questions('auto'));
$primary->wait_for_catchup($standby, 'replay');
$primary->stop;
$standby->promote;
$standby->safe_psql('postgres', 'INSERT INTO docs VALUES ' . random_rows(100) . '; DELETE FROM docs WHERE id % 5 = 1');
ask_node($standby, 'after promotion', questions('auto'));
is($wrong, 0, 'after a crash and a promotion too');
$standby->stop;
done_testing();
