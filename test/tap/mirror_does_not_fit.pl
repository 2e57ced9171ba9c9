# A copy that does not fit, or an engine that goes in the middle, is no error: sessions scan, once warned,
# the planner knows, and when there is room the index is used again.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

# (without the feeder: sessions themselves change the copies; the memory is
# that of one device)
my $node = new_node('main', conf => "gpuvec.feeder = off\ngpuvec.devices = ''\n");
my $q = '{1,50,101,150,201,250,301,350,401}';
my $force = 'SET enable_seqscan = off; SET enable_sort = off; SET enable_bitmapscan = off;';
my $brute = 'SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_seqscan = on;';

# more than 1 MB of ids, with ties, without ids and without sets; rows of tables of vectors as well
$node->safe_psql('postgres', qq{
	CREATE TABLE big (id int PRIMARY KEY, pad int, tokens idset) WITH (fillfactor = 90);
	INSERT INTO big SELECT i, 0, CASE WHEN i % 101 = 0 THEN NULL WHEN i % 103 = 0 THEN '{}' ELSE
			(SELECT array_agg((i * 7 + j * j * 13) % (CASE j % 3 WHEN 0 THEN 450 ELSE 9000 END)) FROM generate_series(1, 30) j)::idset END
		FROM generate_series(1, 30000) i;
	CREATE INDEX big_tokens ON big USING gpuvec (tokens);
	CREATE TABLE tiny (id int PRIMARY KEY, tokens idset);
	INSERT INTO tiny SELECT id, tokens FROM big WHERE id <= 2000;
	CREATE INDEX tiny_tokens ON tiny USING gpuvec (tokens);
	CREATE TABLE vectors (id int PRIMARY KEY, v real[]);
	INSERT INTO vectors SELECT i, array_fill((i % 1000)::real, '{200}') FROM generate_series(1, 4000) i;
	CREATE UNLOGGED TABLE unlogged AS SELECT * FROM big;
	ANALYZE});

# Settings that the engine is started again for
sub restart_engine
{
	my (@settings) = @_;
	my $old = engine_pid($node);
	$node->append_conf('postgresql.conf', join("\n", @settings) . "\n");
	$node->reload;
	wait_for(sub { !kill(0, $old) }, 'the end of the engine') if $old;
	wait_for(sub { engine_pid($node) }, 'the next engine') if $old;
	return;
}

# The ids of a query in its order, and the same by brute force
sub in_order
{
	my ($sql, $limit) = @_;
	return ["SELECT md5(string_agg(id::text, ' ')) FROM ($sql $limit) x", 0, "SELECT md5(string_agg(id::text, ' ')) FROM ($sql, ctid $limit) x"];
}

# Searches, and the same without index and engine
my $top = "SELECT string_agg(t.tid::text || t.score, ' ' ORDER BY t.rank) FROM gpuvec_topk('big', 'tokens', '$q', 50) t";
my $top_brute = "SELECT string_agg(ctid::text || s, ' ' ORDER BY s DESC, ctid) FROM (SELECT ctid, braun_blanquet_similarity('$q', tokens) AS s
	FROM big WHERE tokens && '$q' ORDER BY s DESC, ctid LIMIT 50) x";
my %searches = (
	(map { ("in order of $_" => in_order("SELECT id FROM big ORDER BY tokens $_ '$q'", 'LIMIT 700')) } '<->', '<%>', '<#>', '<~>', '<=>'),
	(map { ("in order of weights $_" => in_order("SELECT id FROM big ORDER BY tokens <#> '$_'::idvec", 'LIMIT 700')) } '{1:0.5,50:2,101:-1,150:0.25}', '{1:-1,50:-2}'),
	'all rows in order' => in_order("SELECT id FROM big ORDER BY tokens <-> '$q'", ''),
	'in order with a key' => in_order("SELECT id FROM big WHERE tokens && '{7}' ORDER BY tokens <=> '$q'", 'LIMIT 900'),
	(map { ("rows with tokens $_" => ["SELECT count(*) || md5(string_agg(id::text, ' ' ORDER BY id)) FROM (SELECT id FROM big WHERE tokens $_ OFFSET 0) x"],
			"bitmap of rows with tokens $_" => ["SELECT count(*) || md5(string_agg(id::text, ' ' ORDER BY id)) FROM (SELECT id FROM big WHERE tokens $_ OFFSET 0) x", 1]) }
		"@> '{7}'", "&& '{7,8}'", "<@ '{}'", "<<->> ('$q', 0.1, 'braun_blanquet')"),
	'gpuvec_topk' => [$top, 0, $top_brute],
	'gpuvec_topk among' => [$top =~ s/50\)/50, among => ARRAY(SELECT ctid FROM big))/r, 0, $top_brute],
	'gpuvec_topk_batch' => ["SELECT string_agg(t.query || t.tid::text || t.score, ' ' ORDER BY t.query, t.rank) FROM gpuvec_topk_batch('big', 'tokens', ARRAY['$q', '{1,7}']::idset[], 20) t", 0,
		"SELECT string_agg(n || ctid::text || s, ' ' ORDER BY n, s DESC, ctid) FROM (VALUES (1, '$q'::idset), (2, '{1,7}')) q(n, q),
			LATERAL (SELECT ctid, braun_blanquet_similarity(q, tokens) AS s FROM big WHERE tokens && q ORDER BY s DESC, ctid LIMIT 20) x"],
	'gpuvec_topk_batch, unlogged' => ["SELECT count(*), min(score) FROM gpuvec_topk_batch('unlogged', 'tokens', array_fill('$q'::idset, '{40}'), 20) t", 0,
		"SELECT 800, min(s) FROM (SELECT braun_blanquet_similarity('$q', tokens) AS s FROM unlogged WHERE tokens && '$q' ORDER BY s DESC LIMIT 20) x"],
	'gpuvec_overlaps' => ["SELECT string_agg(a || ' ' || b || ' ' || \"rows\", ', ' ORDER BY a, b) FROM gpuvec_overlaps('big', 'tokens', ARRAY['$q', '{1,7}']::idset[])", 0,
		"SELECT concat_ws(', ', '1 1 ' || count(*) FILTER (WHERE tokens && '$q'), '1 2 ' || count(*) FILTER (WHERE tokens && '$q' AND tokens && '{1,7}'), '2 2 ' || count(*) FILTER (WHERE tokens && '{1,7}')) FROM big"],
	'gpuvec_gather' => ["SELECT count(*), sum(embedding[200]) FROM gpuvec_gather('vectors', 'id', 'v', ARRAY(SELECT generate_series(1, 500)))", 0, "SELECT count(*), sum(v[200]) FROM vectors WHERE id <= 500"],
	'gpuvec_pool' => ["SELECT (gpuvec_pool('vectors', 'id', 'v', '{3,1004,5}'))[100]", 0, 'SELECT 12'],
	'gpuvec_sum_agg' => ["SELECT sum((p)[7]) FROM (SELECT gpuvec_sum_agg('vectors', 'id', 'v', id) AS p FROM generate_series(1, 60) id GROUP BY id % 4) x", 0, 'SELECT sum(v[7]) FROM vectors WHERE id <= 60'],
	'gpuvec_nearest' => ["SELECT string_agg(key::text, ' ' ORDER BY rank) FROM gpuvec_nearest('vectors', 'id', 'v', array_fill(17, '{200}'), 4, metric => 'l2')", 0, q{SELECT '17 1017 2017 3017'}],
	'gpuvec_pool_grad' => ["SELECT count(*) FROM gpuvec_pool_grad('vectors', 'id', 'v', '{3,4}', upstream => array_fill(1.0, '{200}'))", 0, 'SELECT 2']);

# Every search in a session of its own: the answer is right, with one warning
sub searches
{
	my ($name, $warning, @only) = @_;

	for my $what (sort @only ? @only : keys %searches)
	{
		my ($sql, $bitmap, $by_brute) = @{ $searches{$what} };
		my $set = $bitmap ? 'SET enable_seqscan = off; SET enable_indexscan = off;' : $force;
		my ($rc, $out, $err) = $node->psql('postgres', "$set $sql; $sql");
		my $expected = $node->safe_psql('postgres', "$brute " . ($by_brute // $sql));
		is($out, "$expected\n$expected", "$name: $what: right");
		unlike($err, qr/ERROR/, "$name: $what: no error");
		is(scalar(() = $err =~ /WARNING:  gpuvec searches without its engine/g), 1, "$name: $what: one warning");
		like($err, $warning, "$name: $what: which says why");
	}
	return;
}

sub planned
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', "EXPLAIN (COSTS OFF) $sql");
}

my $knn = "SELECT id FROM big ORDER BY tokens <-> '$q' LIMIT 5";
my $contains = "SELECT id FROM big WHERE tokens \@> '{7,8,9}'";

restart_engine("gpuvec.device_memory = '1MB'");
like(planned($knn), qr/Index Scan using big_tokens/, 'before anybody knows: the index');
like(planned($contains), qr/big_tokens/, 'before anybody knows: the index finds rows');
my ($rc, $out, $err) = $node->psql('postgres', "$force $knn");
like($err, qr/WARNING:  gpuvec searches without its engine\nDETAIL:  The engine cannot serve this: out of gpuvec memory[.] The mirror needs at least \d+ kB; .*\nHINT:  .*gpuvec[.]device_memory/, 'a warning with a reason and a hint');
like(planned($knn), qr/Sort\n.*\n.*Seq Scan/, 'then the table is scanned and sorted');
like(planned($contains), qr/Seq Scan on big/, 'or searched by a scan');
like(planned($knn =~ s/big/tiny/r), qr/Index Scan using tiny_tokens/, 'others are as before');

# nobody tries again soon: who would try waits here for ever
my $holder = $node->background_psql('postgres');
ask($holder, 'SELECT pg_advisory_lock(71866, 0)');
($rc, $out, $err) = $node->psql('postgres', "SET statement_timeout = '60s'; SET gpuvec.injection_point = 'load-after-position'; $force $knn");
is($rc, 0, 'nobody loads in vain again');
like($err, qr/there was no memory for its copy of relation "big" a moment ago.*\nHINT:  .*gpuvec[.]device_memory/, 'and the warning says so');

# after a while one session does, and no other waits for it
wait_for(sub { planned($knn) =~ /Index Scan/ }, 'the index to be tried again');
my $trying = $node->background_psql('postgres');
$trying->query_until(qr/started/, "SET client_min_messages = 'error'; SET gpuvec.injection_point = 'load-after-position'; $force\n\\echo started\n$knn;\n");
$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted");
($rc, $out, $err) = $node->psql('postgres', "SET statement_timeout = '60s'; $force $knn");
is($rc, 0, 'others do not wait for the one that tries again');
ask($holder, 'SELECT pg_advisory_unlock(71866, 0)');
is(ask($trying, 'SELECT 1') =~ s/.*\n//sr, '1', 'which goes on');
$_->quit for $trying, $holder;

searches('too large', qr/gpuvec[.]device_memory/);
is($node->safe_psql('postgres', 'SELECT restarts FROM gpuvec_engine'), '0', 'no engine was lost');
($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT gpuvec_prewarm('big', 'tokens')");
like($err, qr/ERROR:  53200: out of gpuvec memory/, 'who asks for it to be loaded gets the error');
for my $session (1 .. 2)
{
	my @all = map { @{ $searches{$_} }[0] } 'gpuvec_topk', 'in order of <->', 'gpuvec_pool', 'gpuvec_nearest';
	($rc, $out, $err) = $node->psql('postgres', join ';', $force, @all);
	is(scalar(() = $err =~ /WARNING/g), 1, 'one warning in a session, whatever does not fit');
}

# there is room
restart_engine('gpuvec.device_memory = 0');
like(planned($knn), qr/Index Scan using big_tokens/, 'with more memory: the index');
($rc, $out, $err) = $node->psql('postgres', "$knn; $searches{gpuvec_pool}[0]");
is($err, '', 'without warnings');
is($node->safe_psql('postgres', q{SELECT string_agg(relation::text || state, ' ' ORDER BY relation::text) FROM gpuvec_mirrors}), 'bigready vectorsready', 'the copies are there');

# Cursors of which the engine goes in the middle
$node->safe_psql('postgres', q{CREATE INDEX big_without ON big USING gpuvec ((tokens - '{7}'::idset)); UPDATE big SET pad = 1 WHERE id % 10 = 0; VACUUM big});
my %cursors = (
	'<->' => "SELECT id FROM big ORDER BY tokens <-> '$q'",
	'<%>' => "SELECT id FROM big ORDER BY tokens <%> '$q'",
	'<#>, ties' => "SELECT id FROM big ORDER BY tokens <#> '{1,7,77,103,200}'",
	'<=>, ties' => "SELECT id FROM big ORDER BY tokens <=> '{1,7,77}'",
	'<~>' => "SELECT id FROM big ORDER BY tokens <~> '$q'",
	'weights' => "SELECT id FROM big ORDER BY tokens <#> '{1:0.5,7:-0.25,50:2,77:-1,103:1,201:-2}'::idvec",
	'weights, a filter' => "SELECT id FROM big WHERE id % 3 = 0 ORDER BY tokens <#> '{1:1,7:-1,77:1}'::idvec",
	'a filter' => "SELECT id FROM big WHERE id % 3 = 0 ORDER BY tokens <-> '$q'",
	'keys' => "SELECT id FROM big WHERE tokens \@> '{7}' ORDER BY tokens <=> '$q'",
	'many keys' => "SELECT id FROM big WHERE tokens && '{7,8,9,10,11,12,13,14,15,16,17,18}' ORDER BY tokens <-> '$q'",
	'an expression' => "SELECT id FROM big ORDER BY (tokens - '{7}'::idset) <=> '{1,77,103}'",
	'no set' => 'SELECT id FROM big ORDER BY tokens <-> NULL');

$node->safe_psql('postgres', q{CREATE FUNCTION take(c refcursor, n int) RETURNS int[] LANGUAGE plpgsql AS $$
	DECLARE
		id int;
		ids int[] := '{}';
	BEGIN
		WHILE n > 0 LOOP
			FETCH c INTO id;
			EXIT WHEN NOT FOUND;
			ids := ids || id;
			n := n - 1;
		END LOOP;
		RETURN ids;
	END $$});

# What cursors give of which the first rows come with an engine, and the rest after it is broken
sub halves
{
	my ($name, $break, $mend, $warned) = @_;
	my (%expected, @opened);

	for my $what (sort keys %cursors)
	{
		$expected{$what} = $node->safe_psql('postgres', "$force SELECT count(*) || md5(string_agg(id::text, ' ')) FROM ($cursors{$what}) x");
		push @opened, map { [$what, $_] } 0, 1, 127, 128, 129, 600, 1500, 20000;
	}
	# one session, so one snapshot and one warning
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	ask($session, "$force CREATE TEMP TABLE got (cursor int, part int, ids int[]); BEGIN ISOLATION LEVEL REPEATABLE READ");
	for my $i (0 .. $#opened)
	{
		my ($what, $n) = @{ $opened[$i] };
		ask($session, "DECLARE c$i CURSOR FOR $cursors{$what}; INSERT INTO got SELECT $i, 1, take('c$i', $n)");
	}
	$break->();
	$node->safe_psql('postgres', q{DELETE FROM big WHERE id % 7 = 0; UPDATE big SET tokens = '{1,7}' WHERE id % 11 = 0; UPDATE big SET pad = 2 WHERE id % 5 = 0;
		INSERT INTO big SELECT (SELECT max(id) FROM big) + id, 0, tokens FROM big WHERE id <= 1000});
	my $said = '';
	for my $i (0 .. $#opened)
	{
		my ($what, $n) = @{ $opened[$i] };
		$session->query("INSERT INTO got SELECT $i, 2, take('c$i', 1000000)");
		$said .= $session->{stderr};
		$session->{stderr} = '';
		is(ask($session, "SELECT count(*) || md5(string_agg(id::text, ' ' ORDER BY part, n)) FROM got, unnest(ids) WITH ORDINALITY AS u(id, n) WHERE cursor = $i"),
			$expected{$what}, "$name: $what, $n rows before: all rows, once, in order");
	}
	like($said, $warned, "$name: a warning");
	is(scalar(() = $said =~ /WARNING|ERROR/g), 1, "$name: and no other");
	ask($session, 'COMMIT');
	$session->quit;
	$mend->();
	return;
}

halves('no engine any more', sub {
		my $old = engine_pid($node);
		$node->append_conf('postgresql.conf', "gpuvec.engine_program = '/bin/false'");
		$node->reload;
		kill 'KILL', $old;
		wait_for(sub { !kill(0, $old) }, 'the end of the engine');
	},
	sub {
		$node->append_conf('postgresql.conf', "gpuvec.engine_program = '$ENV{GPUVEC_ENGINE_PROGRAM}'");
		$node->reload;
		wait_for(sub { engine_pid($node) }, 'the next engine');
	}, qr/The engine cannot be used/);
is(scalar($node->psql('postgres', "$force $knn")), 0, 'an engine again');
halves('no room any more', sub { restart_engine("gpuvec.device_memory = '1MB'") }, sub { restart_engine('gpuvec.device_memory = 0') }, qr/gpuvec[.]device_memory/);
$node->safe_psql('postgres', 'VACUUM FULL big');
$node->stop;

# No memory when a load is to be published; when a refresh is
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'oom-on-commit';
	$node->start;
	searches('no memory for a load', qr/the gpuvec engine is out of memory|no memory for its copy/, 'in order of <->', 'gpuvec_topk', 'gpuvec_gather', 'gpuvec_nearest', "bitmap of rows with tokens \@> '{7}'");
	$node->stop;
}
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'oom-on-commit:2';
	$node->start;
	is(scalar($node->psql('postgres', "$force $knn")), 0, 'the first load');
	$node->safe_psql('postgres', q{INSERT INTO big SELECT (SELECT max(id) FROM big) + id, 0, tokens FROM big WHERE id <= 20000});
	($rc, $out, $err) = $node->psql('postgres', "$force SELECT md5(string_agg(id::text, ' ')) FROM ($knn) x");
	is($out, $node->safe_psql('postgres', "$brute SELECT md5(string_agg(id::text, ' ')) FROM (SELECT id FROM big ORDER BY tokens <-> '$q', ctid LIMIT 5) x"), 'no memory for a refresh: right');
	like($err, qr/the gpuvec engine is out of memory.*\nHINT:  .*gpuvec[.]device_memory/, 'and a warning');
	like(planned($knn), qr/Seq Scan/, 'the index is not used');
	is($node->safe_psql('postgres', q{SELECT refreshes FROM gpuvec_mirrors WHERE relation = 'big'::regclass}), '0', 'the copy is as it was');
	# (of two mirrors, for an index has its own)
	$node->safe_psql('postgres', "$force SELECT gpuvec_evict('big'); $knn");
	like(planned($knn), qr/Index Scan/, 'it was loaded again, so it is used');
	$node->stop;
}

# Somebody who was publishing is gone, and the engine is busy with that for
# long: neither a session nor a worker of a parallel query waits for that.
# These ask for different copies, for who gives up one tells others.
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'slow-commit:120000';
	my $tiny = $knn =~ s/FROM big/FROM tiny/r;
	$node->start;
	my @gone = map {
		my $gone = $node->background_psql('postgres', on_error_stop => 0);
		my $pid = ask($gone, 'SELECT pg_backend_pid()');
		$gone->query_until(qr/started/, "\\echo started\n$force $_;\n");
		[$gone, $pid]
	} $knn, $tiny;
	wait_for(sub { $node->safe_psql('postgres', q{SELECT count(*) FROM gpuvec_mirrors WHERE state = 'loading' AND pages_done = pages_total}) eq '2' }, 'the end of the pages');
	for my $pid (map { $_->[1] } @gone)
	{
		$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
		$node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)") or die 'a session does not end';
	}
	my ($right, $right_tiny) = map { $node->safe_psql('postgres', "$brute SELECT id FROM $_ ORDER BY tokens <-> '$q', ctid LIMIT 5") } 'big', 'tiny';
	my $parallel = $node->background_psql('postgres', on_error_stop => 0, on_error_die => 0);
	my $worker = $node->pg_version >= 16 ? 'debug_parallel_query' : 'force_parallel_mode';
	like(ask($parallel, "SET client_min_messages = error; $force SET $worker = on; SET statement_timeout = '60s'; EXPLAIN $knn"),
		qr/Gather.*Index Scan using big_tokens/s, 'a worker searches');
	$parallel->query_until(qr/started/, "\\echo started\n$knn;\n");
	($rc, $out, $err) = $node->psql('postgres', "$force $tiny");
	is($out, $right_tiny, 'a load that does not finish: right');
	like($err, qr/WARNING:  gpuvec searches without its engine\nDETAIL:  .*by a session that does not finish/, 'and a warning');
	like(($parallel->query('SELECT 1'))[0], qr/\A\n*\Q$right\E\n1\b/, 'a load that does not finish, in a worker: right');
	$parallel->quit;
	$_->[0]->{run} && $_->[0]->{run}->kill_kill for @gone;
	$node->stop('immediate');
}
done_testing();
