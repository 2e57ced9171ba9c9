# An engine that is stopped or stuck holds nobody up for long, and is replaced; one that works is not.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
make_docs($node, 3000);
my $search = GpuvecTest::search_sql('docs');
my $expected = brute_force($node);
# what a session waits for is told from 17 on
my $waits = $node->pg_version >= 17 ? 'GpuvecEngine' : 'Extension';
my $without = qr/WARNING:  gpuvec searches without its engine\n.*the gpuvec engine|no sign of life/;

# A session whose warnings do not matter
sub quiet_session
{
	my $quiet = $node->background_psql('postgres', on_error_stop => 0, on_error_die => 0);

	ask($quiet, 'SET client_min_messages = error');
	return $quiet;
}

# Wait until the supervisor has given up an engine, and it is gone
sub wait_for_end
{
	my ($pid, $log_start) = @_;

	wait_for(sub { slurp_file($node->logfile, $log_start) =~ /gpuvec engine \(PID $pid\) gives no sign of life/ },
		'the supervisor to give the engine up');
	wait_for(sub { !kill(0, $pid) }, 'the end of the engine');
	return;
}

# stopped while sessions are connected, load, wait for who loads, and come
best($node, 'before');
my $session = quiet_session();
is(ask($session, $search), $expected, 'a session');
my @others = map { quiet_session() } 1 .. 4;
my $log_start = -s $node->logfile;
my $old = engine_pid($node);
$node->safe_psql('postgres', q{SELECT gpuvec_evict('docs')});
stop_processes($old);
$_->query_until(qr/started/, "\\echo started\n$search;\n") for $session, @others;
my ($rc, $out, $err) = $node->psql('postgres', $search);
is($out, $expected, 'stopped: right rows for who comes');
is(ask($_, 'SELECT 1'), "$expected\n1", 'stopped: right rows for who was there') for $session, @others;
wait_for_end($old, $log_start);
wait_for(sub { $node->safe_psql('postgres', 'SELECT count(threads) FROM gpuvec_engine') eq '1' }, 'another engine');
isnt(engine_pid($node), $old, 'another engine runs');
is(best($node, 'after it'), '', 'another engine answers');
is($node->safe_psql('postgres', 'SELECT count(*) FROM pg_locks WHERE locktype = \'advisory\' OR locktype = \'userlock\''), '0',
	'no lock is left');
$_->quit for @others;

# who has nothing to do says so
is($node->safe_psql('postgres', q{SELECT wait_event FROM pg_stat_activity WHERE backend_type LIKE 'gpuvec supervisor%'}),
	$node->pg_version >= 17 ? 'GpuvecSupervisorMain' : 'Extension', 'the supervisor waits for work');

# a session that waits can be canceled, and does without when the time is over
$node->append_conf('postgresql.conf', "gpuvec.engine_patience = '1h'");
$node->reload;
$old = engine_pid($node);
stop_processes($old);
for my $waiting ($search, 'SELECT count(*) FROM gpuvec_mirrors', "SELECT gpuvec_evict('docs')")
{
	($rc, $out, $err) = $node->psql('postgres', "SET statement_timeout = '300ms'; $waiting");
	like($err, qr/canceling statement due to statement timeout/, "stopped: timeout of $waiting");
}
$session->query_until(qr/started/, "\\echo started\n$search;\n");
$node->poll_query_until('postgres', qq{SELECT pg_cancel_backend(pid) FROM pg_stat_activity
	WHERE query LIKE '%gpuvec_topk%' AND wait_event = '$waits' AND pid <> pg_backend_pid()});
is(($session->query('SELECT 1'))[0], '1', 'stopped: a session is canceled');
$session->{stderr} = '';
$session->query_until(qr/started/, "\\echo started\n$search;\n");
$node->poll_query_until('postgres', qq{SELECT count(*) > 0 FROM pg_stat_activity
	WHERE query LIKE '%gpuvec_topk%' AND wait_event = '$waits' AND pid <> pg_backend_pid()});
$log_start = -s $node->logfile;
$node->append_conf('postgresql.conf', "gpuvec.engine_patience = '4s'");
$node->reload;
is(ask($session, 'SELECT 1'), "$expected\n1", 'the session does without');
wait_for_end($old, $log_start);
# the supervisor may not have said yet that the engine is gone
wait_for(sub { ask($session, $search) eq $expected && ask($session, 'SELECT count(threads) FROM gpuvec_engine') eq '1' },
	'the next engine to be used by the session');
is(ask($session, $search), $expected, 'and uses the next engine');
$session->quit;

# all are stopped: time in which the supervisor did not run itself does not count
$old = engine_pid($node);
my $supervisor = supervisor_pid($node);
$log_start = -s $node->logfile;
stop_processes($old, $supervisor);
sleep 6;
kill 'CONT', $supervisor;
kill 'CONT', $old;
# the supervisor has looked since
$node->append_conf('postgresql.conf', "gpuvec.cpu_threads = 1");
$node->reload;
wait_for(sub { slurp_file($node->logfile, $log_start) =~ /settings have changed/ }, 'the supervisor');
unlike(slurp_file($node->logfile, $log_start), qr/no sign of life/, 'who was stopped with its supervisor is not given up');

# a fast shutdown ends all the same
wait_for(sub { $node->psql('postgres', $search); $node->safe_psql('postgres', 'SELECT count(threads) FROM gpuvec_engine') eq '1' }, 'an engine');
$old = engine_pid($node);
$node->append_conf('postgresql.conf', "gpuvec.engine_patience = '1h'");
$node->reload;
stop_processes($old);
$session = quiet_session();
$session->query_until(qr/started/, "\\echo started\n$search;\n");
$node->stop('fast');
no_leftovers($node, $old, 'fast shutdown with a stopped engine');
eval { $session->quit; };
$node->append_conf('postgresql.conf', "gpuvec.engine_patience = '3s'");

# a search that takes longer than any patience, but gets on
$node->append_conf('postgresql.conf', "gpuvec.greeting_patience = '3s'");
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'slow-search:5000';
	$node->start;
	$log_start = -s $node->logfile;
	is(best($node, 'a slow search'), '', 'a slow search: by the engine');
	unlike(slurp_file($node->logfile, $log_start), qr/no sign of life/, 'a slow search: the engine lives');
	$node->stop;
}

# one that does not get on
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'stuck-search:500';
	$node->start;
	$log_start = -s $node->logfile;
	like(best($node, 'a search that is stuck'), $without, 'a search that is stuck: done without the engine');
	like(slurp_file($node->logfile, $log_start), qr/no sign of life/, 'a search that is stuck: the log says so');
	$node->stop;
}

# one that accepts connections, and says nothing
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'no-greeting';
	$node->start;
	($rc, $out, $err) = $node->psql('postgres', "SET statement_timeout = '60s'; $search");
	is($out, $expected, 'no greeting: right rows');
	like($err, qr/it does not accept connections/, 'no greeting: done without the engine');
	$node->stop;
}

# one that is late, within patience
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'late-greeting:2500';
	$node->append_conf('postgresql.conf', "gpuvec.greeting_patience = '5min'");
	$node->start;
	is(best($node, 'a late greeting'), '', 'a late greeting: by the engine');
	$node->stop;
}
$node->start;
is(best($node, 'in the end'), '', 'in the end there is an engine');
$node->stop;
done_testing();
