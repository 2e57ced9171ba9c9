# Without an engine, and where its memory or its places end, there are answers all the same.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
make_docs($node, 5000);
my $expected = brute_force($node);

# no program
$node->append_conf('postgresql.conf', "gpuvec.engine_program = '/nonexistent/gpuvec-engine'");
$node->reload;
my ($rc, $out, $err) = $node->psql('postgres', GpuvecTest::search_sql('docs') . ';' . GpuvecTest::search_sql('docs'));
is($out, "$expected\n$expected", 'no program: right rows');
my @warnings = $err =~ /(WARNING:  gpuvec searches without its engine)/g;
is(scalar @warnings, 1, 'no program: one warning');
like($err, qr/could not be executed|could not execute/, 'no program: the warning says why');
my $among = GpuvecTest::search_sql('docs') =~ s/20\)$/20, among => ARRAY(SELECT ctid FROM docs))/r;
is($node->safe_psql('postgres', $among), $expected, 'no program: right rows among all');
$node->safe_psql('postgres', 'CREATE TABLE counted AS SELECT *, id % 7 AS kind FROM docs; CREATE INDEX ON counted USING gpuvec (tokens, kind)');
$node->safe_psql('postgres', 'VACUUM ANALYZE counted');
for my $count (q{SELECT count(*) FROM counted WHERE tokens && '{1,2,3}'}, q{SELECT kind, count(*), max(kind) FROM counted WHERE tokens && '{1,2,3}' GROUP BY kind ORDER BY kind})
{
	like($node->safe_psql('postgres', "SET enable_seqscan = off; EXPLAIN $count"), qr/gpuvec count/, 'no program: a plan that counts');
	is($node->safe_psql('postgres', "SET enable_seqscan = off; $count"), $node->safe_psql('postgres', "SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off; $count"),
		'no program: a right count');
}
# rows of a filter alone, and of null sets: no other search asks for these
for my $filtered ('SELECT count(id) FROM counted WHERE kind = 3', q{SELECT id FROM counted WHERE tokens IS NULL AND kind = 3 ORDER BY tokens <-> '{1}' LIMIT 3})
{
	($rc, $out, $err) = $node->psql('postgres', "SET enable_seqscan = off; SET enable_sort = off; $filtered");
	is($out, $node->safe_psql('postgres', "SET enable_indexscan = off; SET enable_bitmapscan = off; $filtered"), 'no program: right rows of a filter');
	like($err, qr/WARNING:  gpuvec searches without its engine/, 'no program: a warning of a filter');
}
($rc, $out, $err) = $node->psql('postgres', q{SELECT gpuvec_prewarm('docs', 'tokens')});
like($err, qr/the gpuvec engine is not available/, 'no program: prewarm fails');
is($node->safe_psql('postgres', 'SELECT count(*) FROM gpuvec_engine, gpuvec_mirrors'), '0', 'no program: empty views');

# a line of the engine's log that is read in two pieces, behind another
my $talker = PostgreSQL::Test::Utils::tempdir() . '/engine';
append_to_file($talker, qq{#!$^X\nsyswrite STDERR, 'LOG: ' . 'a' x 1500 . "\\nLOG: " . 'b' x 1500 . "end\\n";\n});
chmod(0700, $talker);
$node->append_conf('postgresql.conf', "gpuvec.engine_program = '$talker'");
$node->reload;
my $line = '';
wait_for(sub { ($line) = slurp_file($node->logfile) =~ /gpuvec engine: (b*end)$/m; $line }, 'the line');
is($line, 'b' x 1500 . 'end', 'a line in two pieces is logged as one');
$node->append_conf('postgresql.conf', "gpuvec.engine_program = '$ENV{GPUVEC_ENGINE_PROGRAM}'");
$node->reload;
wait_for(sub { $node->safe_psql('postgres', 'SELECT count(*) FROM gpuvec_engine') eq '1' }, 'the engine');
is(best($node, 'the program is back'), '', 'no warning with an engine');

# connections
$node->append_conf('postgresql.conf', 'gpuvec.max_sessions = 2');
my $old = engine_pid($node);
$node->reload;
wait_for(sub { !kill(0, $old) }, 'the end of the engine');
my @sessions = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 2;
is(ask($_, GpuvecTest::search_sql('docs')), $expected, 'a session within the limit') for @sessions;
($rc, $out, $err) = $node->psql('postgres', GpuvecTest::search_sql('docs'));
is($out, $expected, 'one session too many: right rows');
like($err, qr/WARNING:  gpuvec searches without its engine\n.*all 2 connections that gpuvec.max_sessions allows are in use/,
	'with a warning that names the setting');
$_->quit for @sessions;
wait_for(sub { $node->safe_psql('postgres', 'SELECT sessions FROM gpuvec_engine') eq '1' }, 'a free connection');
is(best($node, 'after the others left'), '', 'no warning after the others left');

# memory
$node->safe_psql('postgres', q{
	CREATE TABLE big AS SELECT i AS id, idset_agg((i * 7 + j * j) % 60000) AS tokens FROM generate_series(1, 16000) i, generate_series(1, 300) j GROUP BY i;
	CREATE TABLE half1 AS SELECT * FROM big LIMIT 5000;
	CREATE TABLE half2 AS SELECT * FROM big LIMIT 5000;
	CREATE TABLE half3 AS SELECT * FROM big LIMIT 5000;});
$node->append_conf('postgresql.conf', "gpuvec.max_sessions = 100\ngpuvec.device_memory = '7MB'\ngpuvec.devices = ''");
$old = engine_pid($node);
$node->reload;
wait_for(sub { !kill(0, $old) }, 'the end of the engine');
my $big = brute_force($node, 'big');
($rc, $out, $err) = $node->psql('postgres', GpuvecTest::search_sql('big'));
is($out, $big, 'a table that does not fit: right rows');
like($err, qr/WARNING:  gpuvec searches without its engine\nDETAIL:  .*out of gpuvec memory.*\nHINT:  .*Increase gpuvec.device_memory/, 'a table that does not fit: a warning with a hint');
($rc, $out, $err) = $node->psql('postgres', '\set VERBOSITY verbose' . "\n" . q{SELECT gpuvec_prewarm('big', 'tokens')});
like($err, qr/ERROR:  53200: out of gpuvec memory/, 'a table that does not fit: prewarm fails');
like($err, qr/HINT:  Increase gpuvec.device_memory/, 'with a hint');
for my $round (1 .. 2)
{
	best($node, "round $round of tables that do not fit together", $_) for 'half1', 'half2', 'half3';
}
cmp_ok($node->safe_psql('postgres', 'SELECT evictions FROM gpuvec_engine'), '>=', 3, 'mirrors were evicted');
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM gpuvec_mirrors'), '<=', 2, 'not all are resident');
ok($node->safe_psql('postgres', 'SELECT memory_used <= memory_budget FROM gpuvec_engine') eq 't', 'the budget is kept');
is($node->safe_psql('postgres', GpuvecTest::search_sql('docs')), $expected, 'a small table');
$node->stop;

# faults of the engine itself
for my $fault ('protocol-version:99', 'crash-at-start')
{
	local $ENV{GPUVEC_ENGINE_FAULT} = $fault;
	$node->start;
	($rc, $out, $err) = $node->psql('postgres', GpuvecTest::search_sql('docs'));
	is($out, $expected, "$fault: right rows");
	like($err, qr/WARNING:  gpuvec searches without its engine/, "$fault: a warning");
	like($err, qr/the gpuvec engine is newer than the library: it speaks protocol version 99, the library \d+/, "$fault: it says why") if $fault =~ /protocol/;
	$node->stop;
}
for my $fault ('crash-on-search', 'crash-on-commit')
{
	local $ENV{GPUVEC_ENGINE_FAULT} = $fault;
	$node->start;
	($rc, $out, $err) = $node->psql('postgres', GpuvecTest::search_sql('docs'));
	is($out, $expected, "$fault: right rows");
	like($err, qr/WARNING:  gpuvec searches without its engine/, "$fault: a warning");
	is($node->safe_psql('postgres', 'SELECT 1'), '1', "$fault: the server lives");
	$node->stop('fast');
}
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'oom-on-commit';
	$node->start;
	($rc, $out, $err) = $node->psql('postgres', GpuvecTest::search_sql('docs'));
	is($out, $expected, 'out of memory: right rows');
	like($err, qr/WARNING:  gpuvec searches without its engine\nDETAIL:  .*the gpuvec engine is out of memory/, 'and a warning');
	is($node->safe_psql('postgres', 'SELECT restarts FROM gpuvec_engine'), '0', 'and no restart');
	$node->stop;
}
{
	# a search in the engine itself is canceled
	local $ENV{GPUVEC_ENGINE_FAULT} = 'slow-search:20000';
	$node->start;
	($rc, $out, $err) = $node->psql('postgres', "SET statement_timeout = '500ms'; " . GpuvecTest::search_sql('docs'));
	like($err, qr/canceling statement due to statement timeout/, 'timeout in the engine');
	wait_for(sub { $node->safe_psql('postgres', 'SELECT sessions FROM gpuvec_engine') eq '1' }, 'the end of the canceled search');
	is($node->safe_psql('postgres', 'SELECT sessions FROM gpuvec_engine'), '1', 'the engine dropped what nobody waits for');
	$node->stop;
}
$node->start;
best($node, 'without faults');
$node->stop;

# no background worker can be had
$node->append_conf('postgresql.conf', 'max_worker_processes = 0');
$node->start;
($rc, $out, $err) = $node->psql('postgres', GpuvecTest::search_sql('docs'));
is($out, $expected, 'max_worker_processes = 0: right rows');
like($err, qr/max_worker_processes/, 'max_worker_processes = 0: the warning names it');
$node->stop;
$node->append_conf('postgresql.conf', 'max_worker_processes = 8');

# single-user mode
my $single = "$ENV{PATH}";
my ($in, $stdout, $stderr) = ("SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '$GpuvecTest::query', 20)\n", '', '');
IPC::Run::run(['postgres', '--single', '-D', $node->data_dir, 'postgres'], '<', \$in, '>', \$stdout, '2>', \$stderr);
like($stdout, qr/count = "20"/, 'single-user mode: an answer');
like($stderr, qr/single-user mode/, 'single-user mode: a warning');
done_testing();
