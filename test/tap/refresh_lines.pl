# Refreshes that read changed line pointers only: through random histories of one plain table,
# against sequential scans under the same snapshot; and what they read.
use strict;
use warnings;

use GpuvecHistories qw(of_vectors);
use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# (WAL is read however little that pays)
my $node = new_node('lines', conf => "max_prepared_transactions = 5\ngpuvec.freshness = wal\n");
$node->safe_psql('postgres', q{
	CREATE TABLE docs (id int, note int, tokens idset) WITH (fillfactor = 80);
	-- rows of functions, and of a sort; for so many rows the visibility map is read
	CREATE FUNCTION compare(queries idset[], k int, measure text) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		found text;
		sorted text;
	BEGIN
		EXECUTE format('SELECT string_agg(n || %L || ctid || s, $1 ORDER BY n, s DESC, ctid) FROM (SELECT n, y.* FROM unnest($2) WITH ORDINALITY AS u (q, n), LATERAL (SELECT ctid, s FROM (SELECT ctid, %I(tokens, q)::float8 AS s FROM docs) x WHERE s > 0 ORDER BY s DESC, ctid LIMIT %s) y) z',
			' ', measure || '_similarity', k) INTO sorted USING ',', queries;
		SELECT string_agg(query || ' ' || tid || score, ',' ORDER BY query, rank) INTO found FROM gpuvec_topk_batch('docs', 'tokens', queries, k, measure);
		IF found IS DISTINCT FROM sorted THEN RETURN 'other rows of a batch'; END IF;
		SELECT string_agg('1 ' || tid || score, ',' ORDER BY rank) INTO found FROM gpuvec_topk('docs', 'tokens', queries[1], k, measure);
		IF found IS DISTINCT FROM (SELECT string_agg(p, ',') FROM regexp_split_to_table(sorted, ',(?=[0-9]+ )') p WHERE p LIKE '1 %') THEN RETURN 'other rows'; END IF;
		RETURN 'same';
	END $$;});

# Update rows from this one on until one of them gets the line pointer
sub used_again
{
	my ($line, $id) = @_;
	my $got = '';

	for (my $i = $id; $i < $id + 30 && $got ne $line; $i++)
	{
		$node->safe_psql('postgres', 'SET enable_bitmapscan = off; SELECT count(*) FROM docs');
		$got = $node->safe_psql('postgres', qq{UPDATE docs SET id = 8000 + $i, note = 5, tokens = '{401,402}' WHERE id = $i RETURNING ctid});
		$node->safe_psql('postgres', qq{UPDATE docs SET tokens = '{9,10}' WHERE id = 8000 + $i}) if $got ne $line;
	}
	return $got;
}

my $rows_by_pages = q{SELECT rows_by_pages FROM gpuvec_mirrors WHERE relation = 'docs'::regclass};
my $rows = q{SELECT rows FROM gpuvec_mirrors WHERE relation = 'docs'::regclass};
my $search = q{SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{1,2,3}', 5)};

# What is read: of a full page one row for each change, and none of those that went.  An old
# snapshot keeps pruning from taking any.
my $old = $node->background_psql('postgres');
ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
$node->safe_psql('postgres', q{INSERT INTO docs SELECT i, 0, ARRAY[i % 7, 10 + i]::idset FROM generate_series(1, 2000) i; VACUUM docs});
$node->safe_psql('postgres', $search);
sub read_by { my ($sql) = @_; my $before = $node->safe_psql('postgres', $rows_by_pages); $node->safe_psql('postgres', "$sql; $search"); return $node->safe_psql('postgres', $rows_by_pages) - $before; }
is(read_by(q{UPDATE docs SET tokens = '{1,2}' WHERE id = 5}), 1, 'an update');
is(read_by(q{DELETE FROM docs WHERE id = 7}), 0, 'a deletion');
is(read_by(q{SELECT FROM docs WHERE id = 8 FOR UPDATE}), 0, 'a lock');
is(read_by(q{INSERT INTO docs VALUES (3000, 0, '{1,2,3}'), (3001, 0, '{2,3}')}), 2, 'two insertions');
is($node->safe_psql('postgres', $rows), 2003, 'rows of deleted tuples stay');
$old->quit;
my $pruning = read_by('SET enable_bitmapscan = off; SELECT count(*) FROM docs WHERE id < 100');
# (version 13 does not write such records of pruning)
is($pruning, 0, 'pruning') if $node->safe_psql('postgres', 'SHOW server_version_num') >= 140000;
is($node->safe_psql('postgres', $rows), 2001, 'and then rows go: that of the deletion, and that of the update');
cmp_ok(read_by(q{VACUUM docs}), '>', 20, 'VACUUM has a page read as a whole');
is($node->safe_psql('postgres', $rows), 2001, 'and then all of them go');

# Of a page that is pruned, all rows go that are no more, and no others: line
# pointers that became redirects, dead or unused ones, one or more of each
my $live = 'SELECT count(*) FROM docs';
my $page = 500;
for my $case (
	['a redirect', q{UPDATE docs SET note = 1 WHERE id = %1$d}],
	['a dead row', q{DELETE FROM docs WHERE id = %1$d; UPDATE docs SET note = 1 WHERE id = %2$d}],
	['dead rows', q{DELETE FROM docs WHERE id BETWEEN %1$d AND %2$d; UPDATE docs SET note = 1 WHERE id = %2$d + 1}],
	['an unused line pointer', q{BEGIN; UPDATE docs SET note = 1 WHERE id = %1$d; ROLLBACK}],
	['unused ones', q{BEGIN; UPDATE docs SET note = 1 WHERE id = %1$d; UPDATE docs SET note = 2 WHERE id = %1$d; UPDATE docs SET note = 3 WHERE id = %1$d; COMMIT}],
	['all of these', q{BEGIN; DELETE FROM docs WHERE id = %1$d; UPDATE docs SET note = 1 WHERE id = %2$d; UPDATE docs SET note = 2 WHERE id = %2$d; DELETE FROM docs WHERE id = %2$d + 1; COMMIT}])
{
	my ($name, $change) = @$case;
	my $sql = sprintf($change, $page, $page + 3);

	$node->safe_psql('postgres', $search);
	cmp_ok(read_by("SET enable_bitmapscan = off;\n$sql;\nSELECT count(*) FROM docs"), '<', 20, "$name: no page is read as a whole") if $node->safe_psql('postgres', 'SHOW server_version_num') >= 140000;
	is($node->safe_psql('postgres', $rows), $node->safe_psql('postgres', $live), "$name: the rows of a page that was pruned");
	$page += 200;
}

# A line pointer that is used again: a row comes, is pruned, and another one takes its place, all
# in one refresh.  Nothing of a row is as it was, so that the records have whole tuples.
my $twice = q{SELECT ctid || ' ' || string_agg(tid || ' ' || score, ' ') FROM docs, gpuvec_topk('docs', 'tokens', '{401,402}', 1) WHERE tokens = '{401,402}' GROUP BY ctid};
$node->safe_psql('postgres', "VACUUM docs; $search");
my $first = $node->safe_psql('postgres', q{UPDATE docs SET id = 7001, note = 3, tokens = '{501,502}' WHERE id = 100 RETURNING ctid});
$node->safe_psql('postgres', q{UPDATE docs SET id = 7102, note = 4, tokens = '{601,603}' WHERE id = 7001});
my $second = used_again($first, 101);
is($second, $first, 'the line pointer is used again');
is($node->safe_psql('postgres', $twice), "$second $second 1", 'a line pointer that is used again');

# The same, but the mirror has the first row.  This session does not wait for its refresh.
my $one = $node->background_psql('postgres');
my $nearest = q{SELECT compare(ARRAY['{701,702}']::idset[], 1, 'jaccard')};
$first = $node->safe_psql('postgres', q{UPDATE docs SET id = 9001, note = 3, tokens = '{701,702}' WHERE id = 131 RETURNING ctid});
is(ask($one, $nearest), 'same', 'a row');
$node->safe_psql('postgres', q{UPDATE docs SET id = 9102, note = 4, tokens = '{801,803}' WHERE id = 9001});
is(used_again($first, 132), $first, 'its line pointer is used again');
is(ask($one, $nearest), 'same', 'the answer of an older mirror is corrected');

# The same, but the first row is in WAL that is read ahead, and the second one comes after that.
# Before the first row, that WAL has many records of few line pointers.
sub answer { my ($sql) = @_; my (undef, $out, $err) = $node->psql('postgres', $sql); return "$out$err"; }
my $ahead = $node->background_psql('postgres');
$node->safe_psql('postgres', "VACUUM docs; $nearest");
$node->safe_psql('postgres', "SET enable_bitmapscan = off;\n" . "UPDATE docs SET note = note + 1 WHERE id = 300;\n" x 200);
$first = $node->safe_psql('postgres', q{UPDATE docs SET id = 10001, note = 3, tokens = '{701,702}' WHERE id = 162 RETURNING ctid});
$node->safe_psql('postgres', q{UPDATE docs SET id = 10102, note = 4, tokens = '{801,803}' WHERE id = 10001});
ask($one, 'SELECT pg_advisory_lock(71866, 0)');
ask($ahead, q{SET gpuvec.injection_point = 'refresh-read-ahead'; SET gpuvec.read_ahead_bytes = 1});
$ahead->query_until(qr/started/, "\\echo started\n$search;\n");
$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}) or die;
is(used_again($first, 163), $first, 'its line pointer is used again');
$node->safe_psql('postgres', q{INSERT INTO docs VALUES (11000, 0, '{701,702,703}')});
ask($one, 'SELECT pg_advisory_unlock(71866, 0)');
is(ask($ahead, 'SELECT 1'), "5\n1", 'the refresh ends');
is(answer($nearest), 'same', 'what was read ahead does not outlive what came later');
is(answer(q{SELECT compare(ARRAY['{701,702,703}']::idset[], 9, 'jaccard')}), 'same', 'nor is anything lost');
$ahead->quit;
$one->quit;

# A row that a refresh has read goes again, and its page is as it was when it was last read as a
# whole.  That page is all-visible then, so that nobody fetches what the mirror has of it.
my $open = $node->background_psql('postgres');
my $all = q{SELECT compare(ARRAY['{1}', '{70000}']::idset[], 3000, 'jaccard')};
$node->safe_psql('postgres', "VACUUM docs; $all");
ask($open, q{BEGIN; INSERT INTO docs VALUES (4000, 0, '{1}')});
is($node->safe_psql('postgres', $all), 'same', 'a row of a transaction in progress');
ask($open, 'ROLLBACK');
$node->safe_psql('postgres', 'VACUUM docs');
is($node->safe_psql('postgres', $all), 'same', 'the page is as it was');
is($node->safe_psql('postgres', $all), 'same', 'and now proven');
$open->quit;

# Locks leave pages all-visible, so that VACUUM does not come to them.  What the mirror has of them
# stays proven: many rows are found, and few pages of the table looked at.
sub pages_read
{
	my $plan = $node->safe_psql('postgres', q{SET gpuvec.verify = off; SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{1}', 3000);
		EXPLAIN (ANALYZE, BUFFERS, COSTS off, TIMING off, SUMMARY off, FORMAT json) SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{1}', 3000)});

	return $1 if $plan =~ /"Shared Hit Blocks": (\d+)/;
	return $plan;
}
$node->safe_psql('postgres', 'VACUUM docs');
cmp_ok(pages_read(), '<', 20, 'rows of all-visible pages are not looked at');
is(read_by('SELECT count(*) FROM (SELECT FROM docs FOR KEY SHARE) x'), 0, 'locks of all rows');
cmp_ok(pages_read(), '<', 20, 'nor are locked rows');

# Random histories
srand($ENV{LINES_SEED} // 5);
my $next = 5000;
my $file = $node->basedir . '/rows';
my @measures = qw(braun_blanquet jaccard cosine overlap);
sub random_set { my ($most) = @_; return '{' . join(',', map { int(rand(3)) ? int(rand(30)) : int(rand(65536)) } 1 .. 1 + int(rand($most))) . '}'; }
sub random_rows { my ($n) = @_; return join(',', map { '(' . $next++ . ', ' . int(rand(10)) . ', ' . (int(rand(15)) ? "'" . random_set(8) . "'" : 'NULL') . ')' } 1 .. $n); }
my $long = q{(SELECT array_agg(1 + (i * 17) % 60000)::idset FROM generate_series(1, (3000 + 2000 * random())::int) i)};
my @changes = (
	sub { 'INSERT INTO docs VALUES ' . random_rows(1 + int(rand(8))) },
	sub { 'INSERT INTO docs VALUES ' . random_rows(1 + int(rand(60))) },
	sub { "CREATE TEMP TABLE t AS SELECT * FROM docs LIMIT 60; COPY t TO '$file'; COPY docs FROM '$file'; DROP TABLE t" },
	sub { 'UPDATE docs SET note = note + 1 WHERE id % ' . (15 + int(rand(90))) . ' = 0' },
	sub { "UPDATE docs SET tokens = '" . random_set(6) . "' WHERE id % " . (9 + int(rand(90))) . ' = 1' },
	sub { "UPDATE docs SET tokens = tokens | '{" . int(rand(9)) . "}' WHERE id % " . (90 + int(rand(90))) . ' = 1' },
	sub { "UPDATE docs SET tokens = $long WHERE id = (SELECT max(id) - " . int(rand(50)) . ' FROM docs)' },
	sub { 'DELETE FROM docs WHERE id % ' . (9 + int(rand(20))) . ' = 2' },
	sub { 'SELECT count(*) FROM (SELECT FROM docs WHERE id % ' . (9 + int(rand(20))) . ' = 3 FOR UPDATE) x' },
	sub { 'SAVEPOINT s; INSERT INTO docs VALUES ' . random_rows(5) . '; ROLLBACK TO s; INSERT INTO docs VALUES ' . random_rows(2) },
	sub { "SAVEPOINT s; UPDATE docs SET tokens = '{3}' WHERE id % 50 = 3; ROLLBACK TO s" });
sub question
{
	my $k = int(rand(3)) ? 1 + int(rand(40)) : 100000;
	my $queries = join(',', map { "'" . random_set(8) . "'" } 1 .. 1 + int(rand(5)));

	return ('SET gpuvec.verify = ' . (int(rand(2)) ? 'on' : 'off'), "SELECT compare(ARRAY[$queries]::idset[], $k, '$measures[rand @measures]')");
}
$node->append_conf('postgresql.conf', 'gpuvec.read_ahead_bytes = 2000');
$node->reload;
my ($asked, $wrong) = random_history($node, rounds => 150, changes => \@changes, question => \&question,
	between => sub { $node->safe_psql('postgres', 'VACUUM docs') if $_[0] % 9 == 0; $node->safe_psql('postgres', 'CHECKPOINT') if $_[0] % 21 == 0; });
is($wrong, 0, 'functions give what sequential scans give');
is($asked, 450, 'all questions were asked');
is($node->safe_psql('postgres', q{SELECT loads FROM gpuvec_mirrors WHERE relation = 'docs'::regclass}), 1, 'by refreshes');

# The same of vectors
$node->safe_psql('postgres', q{
	CREATE TABLE vecs (id int, note int, terms idvec) WITH (fillfactor = 80);
	CREATE FUNCTION compare_vectors(queries idvec[], k int, measure text) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		found text;
		sorted text;
	BEGIN
		EXECUTE format('SELECT string_agg(n || %L || ctid || s, $1 ORDER BY n, s DESC, ctid) FROM (SELECT n, y.* FROM unnest($2) WITH ORDINALITY AS u (q, n), LATERAL (SELECT ctid, s FROM (SELECT ctid, %I(terms, q) AS s FROM vecs) x WHERE s > 0 ORDER BY s DESC, ctid LIMIT %s) y) z',
			' ', 'idvec_' || measure || CASE measure WHEN 'inner_product' THEN '' ELSE '_similarity' END, k) INTO sorted USING ',', queries;
		SELECT string_agg(query || ' ' || tid || score, ',' ORDER BY query, rank) INTO found FROM gpuvec_vec_topk_batch('vecs', 'terms', queries, k, measure);
		RETURN CASE WHEN found IS DISTINCT FROM sorted THEN 'other rows' ELSE 'same' END;
	END $$;});
my @values = (1, 2, 17, 255, 256, 0.5, 0.1, 1e-45, 3e38);
sub change_vectors
{
	my ($sql) = @_;

	$sql =~ s/::idset/::idset::idvec/g;
	$sql =~ s/ \| / + /g;
	return of_vectors($sql, @values);
}
sub question_of_vectors
{
	my $k = int(rand(3)) ? 1 + int(rand(40)) : 100000;
	my $queries = join(',', map { "'" . random_set(8) . "'" } 1 .. 1 + int(rand(5)));
	my $question = "SELECT compare_vectors(ARRAY[$queries]::idvec[], $k, '" . (qw(inner_product cosine jaccard))[rand 3] . "')";

	return ('SET gpuvec.verify = ' . (int(rand(2)) ? 'on' : 'off'), change_vectors($question));
}
my @changes_of_vectors = map { my $change = $_; sub { change_vectors($change->()) } } @changes;
my $rows_by_lines = q{SELECT rows_by_pages FROM gpuvec_mirrors WHERE relation = 'vecs'::regclass};
my $search_vectors = q{SELECT count(*) FROM gpuvec_vec_topk('vecs', 'terms', '{1:1,2:1}', 5)};
$node->safe_psql('postgres', q{INSERT INTO vecs SELECT i, 0, idvec(ARRAY[i % 7, 10 + i], ARRAY[1 + i % 3, 0.5]) FROM generate_series(1, 2000) i; VACUUM vecs});
$node->safe_psql('postgres', $search_vectors);
my $read = $node->safe_psql('postgres', $rows_by_lines);
$node->safe_psql('postgres', "INSERT INTO vecs VALUES (3000, 0, '{1:1,2:2}'); UPDATE vecs SET terms = '{1:3,2:0.5}' WHERE id = 5; $search_vectors");
is($node->safe_psql('postgres', $rows_by_lines) - $read, 2, 'an insertion and an update of vectors: two rows are read');
$next = 5000;
($asked, $wrong) = random_history($node, rounds => 80, changes => \@changes_of_vectors, question => \&question_of_vectors,
	between => sub { $node->safe_psql('postgres', 'VACUUM vecs') if $_[0] % 9 == 0; $node->safe_psql('postgres', 'CHECKPOINT') if $_[0] % 21 == 0; });
is($wrong, 0, 'vectors: functions give what sequential scans give');
is($asked, 240, 'vectors: all questions were asked');
is($node->safe_psql('postgres', q{SELECT loads FROM gpuvec_mirrors WHERE relation = 'vecs'::regclass}), 1, 'vectors: by refreshes');
$node->stop;
done_testing();
