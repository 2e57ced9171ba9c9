# Whatever fails in the connection to the engine: answers are right, or errors are clean, and the next search works.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

# (without the feeder: sessions themselves change the copies)
my $node = new_node('main', conf => "gpuvec.feeder = off\n");
make_docs($node, 3000);
$node->safe_psql('postgres', 'CREATE INDEX docs_tokens ON docs USING gpuvec (tokens)');
my $search = GpuvecTest::search_sql('docs');
my $expected = brute_force($node);
my $nearest = "SELECT tokens <-> '$GpuvecTest::query' AS d FROM docs ORDER BY tokens <-> '$GpuvecTest::query'";
my $first = $node->safe_psql('postgres', "SET enable_indexscan = off; SELECT string_agg(d::text, ' ') FROM ($nearest LIMIT 40) x");
my $last = $node->safe_psql('postgres', "SET enable_indexscan = off; $nearest OFFSET 1001 LIMIT 1");
best($node, 'without faults');

# Errors that say what is lacking, or that the connection is lost, or follow from one
my $clean = qr/^(psql:<stdin>:\d+: )?ERROR:  (53...|08...|25P02): /;

# How a session fares whose N-th call fails; false: there is none any more
sub try_fault
{
	my ($name, $n, $settings, $before, $faulty, $right) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', qq{
		\\set VERBOSITY verbose
		LOAD 'gpuvec';
		$before
		$settings
		SET client_min_messages = log;
		SET gpuvec.fail_at = $n;
		$faulty
		\\echo AFTER
		ROLLBACK;
		SET gpuvec.fail_at = 0;
		$search;
		$search;}, on_error_stop => 0);
	my ($result, @after) = $out =~ /\A(.*?)^AFTER\n(.*)\n(.*)\Z/ms;
	my @errors = grep { !/$clean/ } grep { /ERROR:/ } split /\n/, $err;

	ok(defined $result, "$name, $n: the session lives") or diag($out, $err);
	($result //= '') =~ s/\n\z//;
	is("@errors", '', "$name, $n: no other errors");
	like($result, $right, "$name, $n: right rows, or a clean error") unless $err =~ /ERROR:/;
	is("@after", "$expected $expected", "$name, $n: right rows afterwards");
	return $err =~ /gpuvec fault injected/;
}

# All of them in turn
sub try_faults
{
	my ($name, $settings, $before, $faulty, $right, $evict) = @_;
	my $n = 0;
	my $begin = time;

	do
	{
		$node->safe_psql('postgres', q{SELECT gpuvec_evict('docs')}) if $evict;
		$n++;
	} while ($n < 500 && try_fault($name, $n, $settings, $before, $faulty, $right));
	cmp_ok($n, '>', 1, "$name: " . ($n - 1) . ' faults were met');
	cmp_ok($n, '<', 500, "$name: there is an end");
	note("$name took " . (time - $begin) . ' s');
	return;
}

my $rows = qr/\A\Q$expected\E\z/;
my $caught = qq{
	DO \$\$ BEGIN
		PERFORM * FROM gpuvec_topk('docs', 'tokens', '$GpuvecTest::query', 20);
	EXCEPTION WHEN OTHERS THEN
		RAISE NOTICE 'caught %', SQLSTATE;
	END \$\$;
	};

my $log_start = -s $node->logfile;
for my $errno (24, 104, 4)
{
	try_faults("errno $errno", "SET gpuvec.fail_errno = $errno;", '', "$search;", $rows);
}
try_faults('all later ones', 'SET gpuvec.fail_again = on;', '', "$search;", $rows);
try_faults('connected', '', "$search \\g /dev/null", "$search;", $rows);
try_faults('a load', '', '', "$search;", $rows, 1);
try_faults('a load by who is connected', '', 'SELECT count(*) FROM gpuvec_engine \g /dev/null', "$search;", $rows, 1);
try_faults('a load by workers', 'SET min_parallel_table_scan_size = 0;', '', "$search;", $rows, 1);
try_faults('a refresh', '', "$search \\g /dev/null\nBEGIN; INSERT INTO docs VALUES (-1, '{9999}');", "$search;", $rows);
try_faults('caught', '', '', "BEGIN; $caught $search; COMMIT;", $rows);
try_faults('caught in a load', '', '', "BEGIN; $caught $search; COMMIT;", $rows, 1);
try_faults('a savepoint', '', 'BEGIN;', "SAVEPOINT s; SELECT 1 FROM gpuvec_topk('docs', 'tokens', '{1}', 1) \\g /dev/null\nROLLBACK TO s; $search; COMMIT;", $rows);
try_faults('a cursor', '', "SET enable_seqscan = off; BEGIN; DECLARE c CURSOR FOR $nearest; FETCH 1 FROM c \\g /dev/null",
	'MOVE FORWARD 1000 FROM c; FETCH 1 FROM c;', qr/\A(MOVE 1000\n)?\Q$last\E\z/);
try_faults('an index scan', '', 'SET enable_seqscan = off;',
	"SELECT string_agg(d::text, ' ') FROM ($nearest LIMIT 40) x;", qr/\A\Q$first\E\z/);
try_faults('views', '', '', 'SELECT count(*) <= 1 FROM gpuvec_engine;', qr/\At\z/);
unlike(slurp_file($node->logfile, $log_start), qr/terminated by signal/, 'nothing crashed');

# The same in the supervisor: answers are right meanwhile, and in the end there is an engine
my $fired = 0;
for my $n (1 .. 24)
{
	my $supervisor = supervisor_pid($node);

	$node->append_conf('postgresql.conf', "gpuvec.supervisor_fail_at = $n");
	$node->reload;
	$log_start = -s $node->logfile;
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($supervisor)") if $supervisor;
	wait_for(sub { my $pid = supervisor_pid($node); $pid eq '' || $pid ne $supervisor }, 'the end of the supervisor');
	best($node, "call $n of the supervisor fails");
	wait_for(sub { $node->psql('postgres', $search); slurp_file($node->logfile, $log_start) =~ /gpuvec fault injected/ },
		'the fault');
	$fired++ if slurp_file($node->logfile, $log_start) =~ /gpuvec fault injected/;
	$node->append_conf('postgresql.conf', 'gpuvec.supervisor_fail_at = 0');
	$node->reload;
	wait_for(sub { $node->psql('postgres', $search); $node->safe_psql('postgres', 'SELECT count(threads) FROM gpuvec_engine') eq '1' },
		"an engine after call $n of the supervisor");
	is(best($node, "after call $n of the supervisor"), '', "an engine after call $n of the supervisor");
}
is($fired, 24, 'faults of the supervisor were met');
$node->stop;

# No socket can be made: no search waits, and one supervisor tries again and says so once
my $folder = $node->data_dir . '/pg_stat_tmp';
chmod 0500, $folder or die;
$log_start = -s $node->logfile;
$node->start;
my ($rc, $out, $err) = $node->psql('postgres', join('', map { "SET statement_timeout = '9s'; $search;" } 1 .. 20));
is($out, join("\n", ($expected) x 20), 'no socket: right rows at once');
like($err, qr/The engine cannot be used: could not .*pg_stat_tmp.*Permission denied/, 'no socket: the warning says why');
my $supervisor = supervisor_pid($node);
ok($supervisor, 'no socket: the supervisor stays');
for (1 .. 5)
{
	best($node, 'no socket');
	is(supervisor_pid($node), $supervisor, 'no socket: it is the same supervisor');
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM gpuvec_engine'), '0', 'no socket: the view answers');
my @lines = slurp_file($node->logfile, $log_start) =~ /(gpuvec supervisor could not)/g;
is(scalar @lines, 1, 'no socket: the log hears of it once');
chmod 0700, $folder;
$node->reload;
wait_for(sub { $node->safe_psql('postgres', 'SELECT count(threads) FROM gpuvec_engine') eq '1' }, 'the engine');
is(best($node, 'the folder is writable again'), '', 'the folder is writable again: there is an engine');

# Somebody removes the socket
my $old = engine_pid($node);
unlink "$folder/gpuvec.sock" or die;
wait_for(sub { !kill(0, $old) }, 'the end of the engine that cannot be reached');
wait_for(sub { $node->safe_psql('postgres', 'SELECT count(threads) FROM gpuvec_engine') eq '1' }, 'the next engine');
is(best($node, 'the socket is back'), '', 'the socket is back: there is an engine');
$node->stop;

# The engine lacks threads
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'no-threads';
	$node->start;
	like(best($node, 'no threads'), qr/lacks file descriptors, threads or memory/, 'no threads: the warning says so');
	$node->stop;
}

# An engine that is full: who is idle gives its place, and comes back when it searches
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'least-idle:0';
	$node->append_conf('postgresql.conf', 'gpuvec.max_sessions = 2');
	$node->start;
	my @sessions = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 5;
	$old = undef;
	for my $round (1 .. 3)
	{
		is(ask($_, $search), $expected, "round $round: a session of five") for @sessions;
		my $pid = ask($sessions[0], 'SELECT pid FROM gpuvec_engine');
		is($pid, $old // $pid, "round $round: in the same engine");
		$old = $pid;
	}
	# nothing was said, so none of them did without
	is($_->{stderr} // '', '', 'without a warning') for @sessions;
	cmp_ok(ask($sessions[0], 'SELECT searches FROM gpuvec_mirrors WHERE relation = \'docs\'::regclass'), '>=', 15,
		'all were in the engine');
	$_->quit for @sessions;

	# who loads is not idle
	$node->append_conf('postgresql.conf', 'gpuvec.max_sessions = 1');
	$node->reload;
	wait_for(sub { !kill(0, $old) }, 'the end of the engine');
	my $holder = $node->background_psql('postgres');
	my $loader = $node->background_psql('postgres');
	ask($holder, 'SELECT pg_advisory_lock(71866, 0)');
	ask($loader, "SET gpuvec.injection_point = 'load-after-first-page'");
	$loader->query_until(qr/started/, "\\echo started\n$search;\n");
	$node->poll_query_until('postgres',
		"SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted");
	like(best($node, 'the place is taken'), qr/all 1 connections that gpuvec.max_sessions allows are in use/,
		'the place is taken: the warning names the setting');
	ask($holder, 'SELECT pg_advisory_unlock(71866, 0)');
	is(ask($loader, 'SELECT 1'), "$expected\n1", 'the load goes on');
	is(best($node, 'the place is given away'), '', 'the place is given away');
	$_->quit for $holder, $loader;
	$node->stop;
}
done_testing();
