# A session that loads or refreshes and makes no step: one session takes over; if that makes no step either, others look
# for themselves.  What the first one sends when it goes on does not count.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => "gpuvec.load_patience = '1s'\ngpuvec.verify = off\nmax_worker_processes = 20\nmax_parallel_workers = 12\nmin_parallel_table_scan_size = 0\nmax_parallel_workers_per_gather = 0\n");
make_docs($node, 20000);
$node->safe_psql('postgres', q{CREATE TABLE vectors (key bigint, vector real[]); INSERT INTO vectors SELECT i, ARRAY[i, 1] FROM generate_series(1, 9000) i;
	CREATE TABLE indexed (LIKE docs); INSERT INTO indexed TABLE docs; CREATE INDEX ON indexed USING gpuvec (tokens)});

my $holder = $node->background_psql('postgres');
my $all = "SELECT count(*) || ' ' || md5(string_agg(tid::text || score, ' ' ORDER BY rank)) FROM gpuvec_topk('docs', 'tokens', '$GpuvecTest::query', NULL, 'hamming', -1e9)";
my $brute = "SELECT count(*) || ' ' || md5(string_agg(ctid::text || s, ' ' ORDER BY s DESC, ctid)) FROM (SELECT ctid, -hamming_distance('$GpuvecTest::query', tokens)::float8 AS s FROM docs WHERE tokens IS NOT NULL) x";
my $takes = qr/gpuvec takes over the load or refresh/;

sub log_since { my ($offset) = @_; return slurp_file($node->logfile, $offset); }
sub takeovers { my ($offset) = @_; return scalar(() = log_since($offset) =~ /$takes/g); }

# a statement whose session is stopped at an injection point, and then as a process; returns the session and its pid
sub stop_at
{
	my ($point, $settings, $sql) = @_;
	my $psql = start_psql($node, "SET application_name = 'stopped $point'; SET gpuvec.injection_point = '$point'; $settings $sql");
	my $pid = '';

	wait_for(sub { ($pid = $node->safe_psql('postgres', "SELECT max(pid) FROM pg_stat_activity WHERE application_name = 'stopped $point' AND wait_event = 'advisory' AND backend_type = 'client backend'")) ne '' }, $point);
	stop_processes($pid);
	return ($psql, $pid);
}

my %settings = (serial => '', parallel => 'SET max_parallel_workers_per_gather = 2;');
my $id = 100000;

# ---- loads and refreshes that are taken over by one of several, and go on later ----

for my $how (qw(serial parallel))
{
	for my $point (qw(load-after-position load-after-first-page load-workers-launched load-before-commit refresh-before-number refresh-before-commit))
	{
		next if $point eq 'load-workers-launched' && $how eq 'serial';
		my $refresh = $point =~ /^refresh/;
		next if $refresh && $how eq 'parallel';
		$node->safe_psql('postgres', $refresh ? "$all; INSERT INTO docs VALUES (@{[$id++]}, '{1,50}')" : 'SELECT gpuvec_evict_all()');
		ask($holder, 'SELECT pg_advisory_lock(71866, 0)');
		my $offset = -s $node->logfile;
		my ($psql, $pid) = stop_at($point, $settings{$how}, $all);
		# what the stopped session has read is not all
		$node->safe_psql('postgres', "INSERT INTO docs VALUES (@{[$id++]}, '{1,50,101}'); DELETE FROM docs WHERE id % 1000 = " . $id % 1000);
		my @others = map { start_psql($node, $all) } 1 .. 4;
		my $expected = $node->safe_psql('postgres', $brute);

		is(finish_psql($_), $expected, "$how, $point: another session") for @others;
		is(takeovers($offset), 1, "$how, $point: one took over");
		is($node->safe_psql('postgres', q{SELECT state FROM gpuvec_mirrors WHERE relation = 'docs'::regclass}), 'ready', "$how, $point: in the engine");
		# later ones do not wait for the stopped one
		$node->safe_psql('postgres', "INSERT INTO docs VALUES (@{[$id++]}, '{1,50,150}')");
		is($node->safe_psql('postgres', $all), $node->safe_psql('postgres', $brute), "$how, $point: the next refresh");
		is(takeovers($offset), 1, "$how, $point: nobody takes over again");

		ask($holder, 'SELECT pg_advisory_unlock(71866, 0)');
		kill 'CONT', $pid;
		like(finish_psql($psql), qr/^\d+ [0-9a-f]{32}$/, "$how, $point: it goes on");
		is($node->safe_psql('postgres', $all), $node->safe_psql('postgres', $brute), "$how, $point: its pages do no harm");
		$node->safe_psql('postgres', "INSERT INTO docs VALUES (@{[$id++]}, '{1,50,200}'); UPDATE docs SET tokens = '{1}' WHERE id = $id % 20000");
		is($node->safe_psql('postgres', $all), $node->safe_psql('postgres', $brute), "$how, $point: nor later");
		is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'userlock'}), 0, "$how, $point: no lock is left");
	}
}

# ---- other kinds ----

for (['embedding', q{SELECT gpuvec_pool('vectors', 'key', 'vector', '{4,8000}')}, '{8004,2}'],
	['prewarm', q{SELECT gpuvec_prewarm('docs', 'tokens') = count(*) FROM docs}, 't'],
	['index', q{SET enable_seqscan = off; SET enable_sort = off; SELECT id FROM indexed ORDER BY tokens <-> '{1,101}' LIMIT 1}, '97'])
{
	my ($name, $sql, $expected) = @$_;

	$node->safe_psql('postgres', 'SELECT gpuvec_evict_all()');
	$expected = $node->safe_psql('postgres', 'SET enable_indexscan = off; ' . $sql) if $name eq 'index';
	$node->safe_psql('postgres', 'SELECT gpuvec_evict_all()');
	ask($holder, 'SELECT pg_advisory_lock(71866, 0)');
	my ($psql, $pid) = stop_at('load-after-first-page', '', $sql);

	is($node->safe_psql('postgres', $sql), $expected, "$name: another session");
	# eviction waits for nobody
	is($node->safe_psql('postgres', 'SELECT gpuvec_evict_all() > 0'), 't', "$name: evicted");
	is($node->safe_psql('postgres', $sql), $expected, "$name: loaded again");
	ask($holder, 'SELECT pg_advisory_unlock(71866, 0)');
	kill 'CONT', $pid;
	is(finish_psql($psql), $expected, "$name: it goes on");
	is($node->safe_psql('postgres', $sql), $expected, "$name: and does no harm");
}

# ---- a load that makes steps is waited for: the engine works longer than patience lasts ----

$holder->quit;
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'slow-commit:20000';
	$node->restart;
}
$node->safe_psql('postgres', q{ALTER SYSTEM SET gpuvec.load_patience = '8s'; SELECT pg_reload_conf()});
my $offset = -s $node->logfile;
my @both = map { start_psql($node, $all) } 1 .. 2;
is(finish_psql($_), $node->safe_psql('postgres', $brute), 'a slow load') for @both;
is(takeovers($offset), 0, 'nobody takes over a load that makes steps');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET gpuvec.load_patience');
$node->restart;
$holder = $node->background_psql('postgres');
$node->safe_psql('postgres', 'SELECT gpuvec_evict_all()');
$offset = -s $node->logfile;
ask($holder, 'SELECT pg_advisory_lock(71866, 0)');

# ---- whoever takes over stops, too: who has waited for both looks for itself ----

my ($first, $first_pid) = stop_at('load-after-first-page', '', $all);
my @pair = map { start_psql($node, "SET application_name = 'pair'; SET gpuvec.injection_point = 'load-after-position'; $all") } 1 .. 2;
my $second_pid = '';
wait_for(sub { ($second_pid = $node->safe_psql('postgres', q{SELECT max(pid) FROM pg_stat_activity WHERE application_name = 'pair' AND wait_event = 'advisory'})) ne '' }, 'the second load');
stop_processes($second_pid);
my $found = $node->safe_psql('postgres', $brute);
ok(wait_for(sub { grep { $_->{run}->pump_nb; $_->{out} =~ /\w/ } @pair }, 'the third session'), 'the third session looks for itself');
is(takeovers($offset), 1, 'one has taken over');
# its refusal stands for others: they do not wait
is($node->safe_psql('postgres', $all), $found, 'a fourth session');
like(log_since($offset), qr/\w/, 'the log');
ask($holder, 'SELECT pg_advisory_unlock(71866, 0)');
kill 'CONT', $first_pid, $second_pid;
is(finish_psql($_) =~ s/(WARNING|DETAIL|HINT):.*\n?//gr, $found, 'all have found all rows') for $first, @pair;

# ---- cancel, and the user's own timeout, while waiting ----

$node->append_conf('postgresql.conf', "gpuvec.load_patience = '1h'\n");
$node->reload;
$node->safe_psql('postgres', q{SELECT gpuvec_evict_all()});
ask($holder, 'SELECT pg_advisory_lock(71866, 0)');
my ($last, $last_pid) = stop_at('load-after-first-page', '', q{SELECT gpuvec_prewarm('docs', 'tokens')});
for (q{SELECT gpuvec_prewarm('docs', 'tokens')}, $all)
{
	my ($rc, $out, $err) = $node->psql('postgres', "SET lock_timeout = '100ms'; $_");
	like($err, qr/canceling statement due to lock timeout|busy/, 'lock_timeout') if /prewarm/;
	my $waiting = start_psql($node, "SET application_name = 'waiting'; $_");
	my $pid = '';
	wait_for(sub { ($pid = $node->safe_psql('postgres', q{SELECT max(pid) FROM pg_stat_activity WHERE application_name = 'waiting' AND wait_event_type = 'Lock'})) ne '' }, 'a waiting session');
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	like(finish_psql($waiting), qr/canceling statement due to user request/, 'canceled while it waits');
}
ask($holder, 'SELECT pg_advisory_unlock(71866, 0)');
kill 'CONT', $last_pid;
finish_psql($last);
is($node->safe_psql('postgres', $all), $node->safe_psql('postgres', $brute), 'all rows');
$holder->quit;
$node->stop;
done_testing();
