# The wall clock is set back, by a day, while something waits: nothing waits for a day.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

# A library to preload, with which the server's clock is that of the machine and so many seconds; the engine is started without it
my $dir = PostgreSQL::Test::Utils::tempdir();
my $cc = $ENV{CC} || 'cc';
plan skip_all => "$cc cannot make a library" if system("$cc -shared -fPIC -o '$dir/clock.so' ../stress/shim/clock.c 2>/dev/null") != 0;

# The server's clock is that of the machine and so many days
sub set_clock
{
	my ($days) = @_;
	open(my $file, '>', "$dir/now") or die $!;
	binmode($file);
	print $file pack('q', $days * 86400);
	close($file);
	return;
}

# Set it back by one more day
my $days = 0;

sub step_back
{
	# in place: the file is mapped
	open(my $file, '+<', "$dir/now") or die $!;
	binmode($file);
	print $file pack('q', --$days * 86400);
	close($file);
	return;
}

set_clock(0);
my $node = new_node('main', started => 0, conf => "gpuvec.devices = ''\ngpuvec.load_patience = '5s'\n");
$ENV{GPUVEC_CLOCK} = "$dir/now";
{
	local $ENV{LD_PRELOAD} = "$dir/clock.so";
	$node->start;
}
$node->safe_psql('postgres', 'CREATE EXTENSION gpuvec');
make_docs($node, 3000);
$node->safe_psql('postgres', 'CREATE INDEX docs_tokens ON docs USING gpuvec (tokens)');
best($node, 'before');

# The server sees the step, the library does not
my $before = $node->safe_psql('postgres', 'SELECT extract(epoch FROM now())');
my $pid = engine_pid($node);
step_back();
cmp_ok($node->safe_psql('postgres', 'SELECT extract(epoch FROM now())'), '<', $before - 80000, 'the clock is set back');
is(best($node, 'while all is well'), '', 'while all is well');
is(engine_pid($node), $pid, 'the engine runs on');

# Wait until an engine runs, and see that it answers
sub comes_back
{
	my ($name) = @_;
	wait_for(sub { engine_pid($node) ne '' }, "$name: an engine");
	is(best($node, $name), '', "$name: with the engine");
	return;
}

# an engine that has ended is started again
kill 'KILL', $pid;
step_back();
comes_back('after a crash');

# one that cannot be started is tried again, without a reload
my $program = $node->safe_psql('postgres', 'SHOW gpuvec.engine_program');
$node->append_conf('postgresql.conf', "gpuvec.engine_program = '$dir/engine'\n");
$node->reload;
wait_for(sub { slurp_file($node->logfile) =~ /could not be executed/ }, 'an engine that cannot be executed');
step_back();
symlink($program, "$dir/engine") or die $!;
comes_back('once the program is there');

# so is a socket
my $socket = $node->data_dir . '/pg_stat_tmp/gpuvec.sock';
unlink($socket) or die "$socket: $!";
mkdir($socket) or die "$socket: $!";
wait_for(sub { slurp_file($node->logfile) =~ /could not remove the old socket/ }, 'a socket that cannot be made');
step_back();
rmdir($socket) or die "$socket: $!";
comes_back('once the socket can be made');

# one that is stuck is given up
$pid = engine_pid($node);
step_back();
stop_processes($pid);
wait_for(sub { !kill(0, $pid) }, 'the end of an engine that is stuck');
comes_back('after an engine that was stuck');

# nobody waits for a session that loads and makes no step, nor for one that
# refreshes
$node->safe_psql('postgres', 'CREATE TABLE bare AS TABLE docs');
for my $how (qw(load refresh))
{
	my $holder = $node->background_psql('postgres');
	my $all = "SELECT count(*) || ' ' || md5(string_agg(tid::text || score, ' ' ORDER BY rank)) FROM gpuvec_topk('bare', 'tokens', '$GpuvecTest::query', NULL, 'hamming', -1e9)";
	my $brute = "SELECT count(*) || ' ' || md5(string_agg(ctid::text || s, ' ' ORDER BY s DESC, ctid)) FROM (SELECT ctid, -hamming_distance('$GpuvecTest::query', tokens)::float8 AS s FROM bare WHERE tokens IS NOT NULL) x";

	$node->safe_psql('postgres', $how eq 'load' ? 'SELECT gpuvec_evict_all()' : 'UPDATE bare SET id = id WHERE id % 50 = 1');
	my $expected = $node->safe_psql('postgres', $brute);

	ask($holder, 'SELECT pg_advisory_lock(71866, 0)');
	my $first = start_psql($node, "SET application_name = 'first'; SET gpuvec.injection_point = '" . ($how eq 'load' ? 'load-after-first-page' : 'refresh-before-commit') . "'; $all");
	wait_for(sub { $node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'first' AND wait_event = 'advisory'}) eq '1' }, "a $how");
	my $second = start_psql($node, "SET application_name = 'second'; $all");
	wait_for(sub { $node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'second' AND wait_event = 'userlock'}) eq '1' }, "another session waits for the $how");
	step_back();
	ok(wait_for(sub { $second->{run}->pump_nb; $second->{out} =~ /\n/ }, "$how: another session"), "$how: nobody waits for it");
	ask($holder, 'SELECT pg_advisory_unlock(71866, 0)');
	is(finish_psql($second), $expected, "$how: it finds all");
	is(finish_psql($first), $expected, "$how: the first one goes on");
	$holder->quit;
}

# who has once lost patience with a load can be canceled in the next wait
my $holder = $node->background_psql('postgres');
my $waiter = $node->background_psql('postgres', on_error_stop => 0);
my $waiter_pid = ask($waiter, 'SELECT pg_backend_pid()');
my $asked = q{SELECT count(*) FROM gpuvec_topk('bare', 'tokens', '{1,7}', 5)};
for my $wait (qw(long short))
{
	$node->safe_psql('postgres', 'SELECT gpuvec_evict_all()');
	ask($holder, 'SELECT pg_advisory_lock(71866, 0)');
	my $first = start_psql($node, "SET application_name = 'first'; SET gpuvec.injection_point = 'load-after-first-page'; $asked");
	wait_for(sub { $node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'first' AND wait_event = 'advisory'}) eq '1' }, "a load");
	ask($waiter, "SET gpuvec.load_patience = '1h'") if $wait eq 'short';
	$waiter->query_until(qr/asked/, "\\echo asked\n$asked;\n\\echo done :SQLSTATE\n");
	wait_for(sub { $node->safe_psql('postgres', "SELECT wait_event FROM pg_stat_activity WHERE pid = $waiter_pid") eq 'userlock' }, "a $wait wait");
	$wait eq 'long' ? step_back() : $node->safe_psql('postgres', "SELECT pg_cancel_backend($waiter_pid)");
	my $state = '';
	wait_for(sub { $waiter->{run}->pump_nb; ($state) = $waiter->{stdout} =~ /done (\w+)/; defined $state }, "the end of a $wait wait");
	$wait eq 'long' ? is($state, '00000', 'patience ends') : is($state, '57014', 'a user cancels the next wait');
	ask($holder, 'SELECT pg_advisory_unlock(71866, 0)');
	is(finish_psql($first), '5', "the first one goes on after a $wait wait");
}
$waiter->quit;
$holder->quit;

# a copy for which there was no room is tried again, once the table is smaller
$pid = engine_pid($node);
$node->append_conf('postgresql.conf', "gpuvec.device_memory = 1\n");
$node->reload;
wait_for(sub { !kill(0, $pid) }, 'the end of an engine');
comes_back('with little memory');
$node->safe_psql('postgres', q{CREATE TABLE big (id int, tokens idset);
	INSERT INTO big SELECT i, ARRAY(SELECT (i * 7 + j * j * 13) % 9000 FROM generate_series(1, 30) j)::idset FROM generate_series(1, 30000) i;});
my $search = "SELECT count(*) FROM gpuvec_topk('big', 'tokens', '{1,7}', 5)";
my ($rc, $out, $err) = $node->psql('postgres', $search);
like($err, qr/searches without its engine/, 'there is no room');
step_back();
$node->safe_psql('postgres', 'DELETE FROM big WHERE id > 300');
$node->safe_psql('postgres', 'VACUUM big');
wait_for(sub { ($rc, $out, $err) = $node->psql('postgres', $search); $err eq '' }, 'an attempt with less to load');
is($err, '', 'there is room');

# shared memory that could not be had is tried again
SKIP:
{
	skip 'the library is preloaded', 1 if $node->safe_psql('postgres', 'SHOW shared_preload_libraries') =~ /gpuvec/;
	my $session = $node->background_psql('postgres', on_error_stop => 0, on_error_die => 0);

	ask($session, "LOAD 'gpuvec'; SET client_min_messages = error; SET gpuvec.shared_memory = unattached;");
	is(ask($session, 'SELECT trouble FROM gpuvec_engine'), 'dynamic shared memory is not to be had', 'a session cannot attach shared memory');
	step_back();
	ask($session, 'RESET gpuvec.shared_memory');
	wait_for(sub { ask($session, 'SELECT trouble IS NULL FROM gpuvec_engine') eq 't' }, 'shared memory');
	is(ask($session, 'SELECT trouble IS NULL FROM gpuvec_engine'), 't', 'then it can');
	$session->quit;
}
$pid = engine_pid($node);
$node->stop;
no_leftovers($node, $pid, 'at the end');
done_testing();
