# The engine comes and goes; sessions and answers stay.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
make_docs($node, 20000);

is($node->safe_psql('postgres', 'SELECT count(*) FROM gpuvec_engine'), '0', 'CREATE EXTENSION starts nothing');
best($node, 'first search');
my $pid = engine_pid($node);
ok($pid > 0, 'the engine runs');

# one session lives through all of this
my $session = $node->background_psql('postgres', on_error_stop => 0);
my $expected = brute_force($node);

for my $signal ('KILL', 'SEGV', 'TERM')
{
	is(ask($session, GpuvecTest::search_sql('docs')), $expected, "session searches before SIG$signal");
	my $old = engine_pid($node);
	kill $signal, $old;
	wait_for(sub { !kill(0, $old) }, 'the end of the engine');
	is(ask($session, GpuvecTest::search_sql('docs')), $expected, "session searches after SIG$signal");
	isnt(engine_pid($node), $old, "another engine runs after SIG$signal");
}
cmp_ok($node->safe_psql('postgres', 'SELECT restarts FROM gpuvec_engine'), '>=', 3, 'restarts are counted');

# killed while a session loads
$node->safe_psql('postgres', q{SELECT gpuvec_evict('docs')});
my $holder = $node->background_psql('postgres');
ask($holder, 'SELECT pg_advisory_lock(71866, 0)');
for my $point ('load-after-first-page', 'load-before-commit', 'search-before-fetch')
{
	$node->safe_psql('postgres', q{SELECT gpuvec_evict('docs')});
	my $loader = $node->background_psql('postgres');
	ask($loader, "SET gpuvec.injection_point = '$point'");
	$loader->query_until(qr/started/, "\\echo started\n" . GpuvecTest::search_sql('docs') . ";\n");
	$node->poll_query_until('postgres',
		"SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted");
	if ($point ne 'search-before-fetch')
	{
		is($node->safe_psql('postgres', q{SELECT state FROM gpuvec_mirrors WHERE relation = 'docs'::regclass}),
			'loading', "$point: the load shows");
	}
	my $old = engine_pid($node);
	kill 'KILL', $old;
	wait_for(sub { !kill(0, $old) }, 'the end of the engine');
	ask($holder, 'SELECT pg_advisory_unlock(71866, 0)');
	is(ask($loader, 'SELECT 1'), $expected . "\n1", "$point: the search goes on in another engine");
	ask($holder, 'SELECT pg_advisory_lock(71866, 0)');
	$loader->quit;
}
ask($holder, 'SELECT pg_advisory_unlock(71866, 0)');
best($node, 'after kills');

# canceled and timed out while loading and searching
ask($holder, 'SELECT pg_advisory_lock(71866, 0)');
for my $point ('load-after-first-page', 'load-before-commit', 'search-before-request', 'search-before-fetch')
{
	$node->safe_psql('postgres', q{SELECT gpuvec_evict('docs')});
	my ($rc, $out, $err) = $node->psql('postgres',
		"SET gpuvec.injection_point = '$point'; SET statement_timeout = '300ms'; " . GpuvecTest::search_sql('docs'));
	like($err, qr/canceling statement due to statement timeout/, "$point: timeout");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM gpuvec_mirrors WHERE state = 'loading'}), '0',
		"$point: no half-loaded mirror stays") if wait_for(
		sub { $node->safe_psql('postgres', q{SELECT count(*) FROM gpuvec_mirrors WHERE state = 'loading'}) eq '0' }, 'cleanup');
	best($node, "$point: after the timeout");
}
# a caught error leaves the session usable
is(ask($session, q{
	DO $$ BEGIN
		SET LOCAL gpuvec.injection_point = 'search-before-fetch';
		SET LOCAL lock_timeout = '100ms';
		PERFORM * FROM gpuvec_topk('docs', 'tokens', '{1}');
	EXCEPTION WHEN lock_not_available THEN
		NULL;
	END $$;
	}), '', 'an error in a subtransaction');
ask($holder, 'SELECT pg_advisory_unlock(71866, 0)');
is(ask($session, GpuvecTest::search_sql('docs')), $expected, 'the session searches after it');

# the supervisor is terminated
my $old = engine_pid($node);
my $supervisor = supervisor_pid($node);
ok($supervisor > 0, 'the supervisor shows in pg_stat_activity');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($supervisor)");
wait_for(sub { !kill(0, $old) }, 'the end of the engine');
ok(!kill(0, $old), 'the engine goes with its supervisor');
is(ask($session, GpuvecTest::search_sql('docs')), $expected, 'the next search starts another');

# a supervisor is in nobody's way
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('postgres', 'DROP DATABASE other');

# restart by setting
$old = engine_pid($node);
$node->append_conf('postgresql.conf', 'gpuvec.cpu_threads = 1');
$node->reload;
wait_for(sub { !kill(0, $old) }, 'the end of the engine');
best($node, 'after a change of settings');
is($node->safe_psql('postgres', 'SELECT threads FROM gpuvec_engine'), '1', 'the engine has the new setting')
	if $node->safe_psql('postgres', 'SELECT backend FROM gpuvec_engine') eq 'cpu';

$session->quit;
$holder->quit;
for my $mode ('fast', 'immediate')
{
	# stopped while a session loads
	my $lock = $node->background_psql('postgres');
	ask($lock, 'SELECT pg_advisory_lock(71866, 0)');
	$node->safe_psql('postgres', q{SELECT gpuvec_evict('docs')});
	my $loader = $node->background_psql('postgres', on_error_die => 0, on_error_stop => 0);
	ask($loader, "SET gpuvec.injection_point = 'load-after-first-page'");
	$loader->query_until(qr/started/, "\\echo started\n" . GpuvecTest::search_sql('docs') . ";\n");
	$node->poll_query_until('postgres',
		"SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted");
	$old = engine_pid($node);
	$node->stop($mode);
	no_leftovers($node, $old, "stop $mode");
	ok(!-e $node->data_dir . '/pg_stat_tmp/gpuvec.sock', "stop $mode: no socket is left") if $mode eq 'fast';
	eval { $loader->quit; };
	eval { $lock->quit; };
	$node->start;
	best($node, "after stop $mode");
}
$old = engine_pid($node);
$node->stop;
no_leftovers($node, $old, 'stop');
done_testing();
