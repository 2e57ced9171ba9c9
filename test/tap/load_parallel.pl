# Loads by several readers: the same rows as with one, beside writers, and whatever becomes of a worker, the session or the engine.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $conf = "min_parallel_table_scan_size = 0\nmax_parallel_workers_per_gather = 3\nmax_worker_processes = 20\nmax_parallel_workers = 12\nmax_prepared_transactions = 4\n";
my $node = new_node('primary', streaming => 1, conf => $conf);
my $loads = qr/DEBUG:  gpuvec: [1-3] parallel workers load \w+/;
my $some = qr/[1-9] parallel workers load/;

# all rows with their scores, by search and by brute force
sub found
{
	my ($table) = @_;
	return qq{SELECT count(*) || ' ' || md5(string_agg(tid::text || score, ' ' ORDER BY rank)) FROM gpuvec_topk('$table', 'tokens', '{1,50,101,150,201,70000}', NULL, 'hamming', -1e9)};
}

sub brute
{
	my ($table) = @_;
	return qq{SELECT count(*) || ' ' || md5(string_agg(ctid::text || s, ' ' ORDER BY s DESC, ctid)) FROM (SELECT ctid, -hamming_distance('{1,50,101,150,201,70000}', tokens)::float8 AS s
		FROM $table WHERE tokens IS NOT NULL) x};
}

# What statements print, the messages to the client, and those of the server's log: only there is what is said under
# a lock
sub told
{
	my ($server, $sql) = @_;
	my $begin = -s $server->logfile;
	my ($rc, $out, $err) = $server->psql('postgres', "SET log_min_messages = debug1; SET client_min_messages = debug1; $sql");

	return ($out, $err, substr(slurp_file($server->logfile), $begin));
}

# a search that has to load
sub load
{
	my ($table, $before) = @_;
	return told($node, "SELECT FROM gpuvec_evict('$table'); " . ($before // '') . ';' . found($table));
}

sub right
{
	my ($name, $table, $expected, $before) = @_;
	my ($out, $err, $log) = load($table, $before);

	is($out =~ s/.*\n//sr, $node->safe_psql('postgres', brute($table)), "$name: all rows");
	unlike($err, qr/ERROR|WARNING/, "$name: no error");
	if ($expected) { like($log, $loads, "$name: with workers"); }
	else { unlike($log, $some, "$name: without workers"); }
	return;
}

# ---- what is in the tables ----

$node->safe_psql('postgres', q{
	CREATE FUNCTION set_of(i int) RETURNS idset LANGUAGE sql AS $$ SELECT CASE WHEN i % 31 = 0 THEN NULL WHEN i % 37 = 0 THEN '{}'
		ELSE ARRAY[i % 97, i % 89 + 100, i % 83 + 200, i % 5 + 400]::idset END $$;
	CREATE TABLE docs (id int PRIMARY KEY, pad text, tokens idset) WITH (fillfactor = 80);
	INSERT INTO docs SELECT i, repeat('x', 180), set_of(i) FROM generate_series(1, 20000) i;
	CREATE TABLE wide (LIKE docs); INSERT INTO wide SELECT id, pad, tokens | (id + 69990)::int8 FROM docs;
	CREATE TABLE long (LIKE docs); ALTER TABLE long ALTER tokens SET STORAGE EXTERNAL;
	INSERT INTO long SELECT i, repeat('x', 180), CASE WHEN i % 10 = 0 THEN (SELECT idset_agg(j) FROM generate_series(i, 60000, 20) j) ELSE set_of(i) END FROM generate_series(1, 6000) i;
	CREATE TABLE squeezed (LIKE docs); ALTER TABLE squeezed ALTER tokens SET STORAGE EXTENDED;
	INSERT INTO squeezed SELECT id, pad, tokens FROM long;
	CREATE TABLE parts (LIKE docs) PARTITION BY HASH (id);
	CREATE TABLE part0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
	CREATE TABLE part1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1); INSERT INTO parts TABLE docs;
	CREATE TABLE leaves (LIKE docs) PARTITION BY HASH (id);
	SELECT format('CREATE TABLE leaf%s PARTITION OF leaves FOR VALUES WITH (MODULUS 12, REMAINDER %s)', n, n) FROM generate_series(0, 11) n \gexec
	INSERT INTO leaves TABLE docs; CREATE INDEX ON leaves USING gpuvec (tokens);
	CREATE TABLE added (id int, pad text); INSERT INTO added SELECT id, pad FROM docs; ALTER TABLE added ADD tokens idset DEFAULT '{1,2,3}';
	CREATE TABLE fed (LIKE docs, lang text); INSERT INTO fed SELECT *, 'l' || id % 5 FROM docs; CREATE INDEX fed_index ON fed USING gpuvec (tokens, lang);
	CREATE TABLE rows (key bigint, vector real[], pad text); INSERT INTO rows SELECT i, ARRAY[i, 1], repeat('x', 180) FROM generate_series(1, 9000) i;
});

right("table $_", $_, 1) for qw(docs wide long squeezed added fed);
my ($out, $err, $log) = load('parts');
is(() = $log =~ /[1-3] parallel workers load/g, 2, 'partitions');
is($node->safe_psql('postgres', q{SELECT count(*) FROM gpuvec_topk('parts', 'tokens', '{1}', NULL, 'hamming', -1e9)}),
	$node->safe_psql('postgres', 'SELECT count(*) FROM docs WHERE tokens IS NOT NULL'), 'partitions: all rows');

# what the parts of a load took
$node->safe_psql('postgres', 'ALTER SYSTEM SET log_min_messages = debug1');
$node->reload;
my $told = wait_for(sub { $node->safe_psql('postgres', q{SELECT FROM gpuvec_evict('docs'); SELECT gpuvec_prewarm('docs', 'tokens')});
	slurp_file($node->logfile) =~ /DEBUG:  gpuvec engine: loaded \d+ rows of relation \d+ of database \d+: pages came in \d+ ms, ids were numbered in \d+/ }, 'the log');
ok($told, 'the log tells what the parts of a load took');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET log_min_messages');
$node->reload;

($out, $err) = $node->psql('postgres', q{SET client_min_messages = debug1; SELECT FROM gpuvec_evict('docs'); SELECT gpuvec_prewarm('docs', 'tokens')});
is($out, 0, 'gpuvec_prewarm');
is($node->safe_psql('postgres', q{SET max_parallel_workers_per_gather = 0; SELECT FROM gpuvec_evict('docs'); SELECT gpuvec_prewarm('docs', 'tokens')}),
	$node->safe_psql('postgres', q{SELECT FROM gpuvec_evict('docs'); SELECT gpuvec_prewarm('docs', 'tokens')}), 'gpuvec_prewarm: as many rows');
is($node->safe_psql('postgres', q{SELECT gpuvec_prewarm('rows', 'key', 'vector'); SELECT gpuvec_pool('rows', 'key', 'vector', '{4,8000}')}), "9000\n{8004,2}", 'an embedding table');
is($node->safe_psql('postgres', q{SET enable_seqscan = off; SELECT count(*) FROM (SELECT FROM fed WHERE lang = 'l2' ORDER BY tokens <-> '{1,101}' LIMIT 5000) x}),
	$node->safe_psql('postgres', q{SELECT count(*) FROM fed WHERE lang = 'l2'}), 'filters of an index');

# HOT chains, dead rows, rows of transactions that failed, are open or prepared, and old snapshots
my $old = $node->background_psql('postgres');
my $open = $node->background_psql('postgres');
ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ');
ask($old, 'SELECT count(*) FROM docs');
ask($open, "BEGIN; INSERT INTO docs SELECT i, 'open', set_of(i) FROM generate_series(30001, 30500) i; DELETE FROM docs WHERE id % 53 = 0; SAVEPOINT a; UPDATE docs SET pad = 'o' WHERE id % 59 = 0; ROLLBACK TO a");
$node->psql('postgres', q{
	BEGIN; UPDATE docs SET pad = 'failed' WHERE id % 7 = 1 AND id % 53 <> 0; INSERT INTO docs SELECT i, 'failed', set_of(i) FROM generate_series(40001, 40500) i; ROLLBACK;
	UPDATE docs SET pad = 'hot' WHERE id % 11 = 3 AND id % 53 <> 0; UPDATE docs SET pad = 'hotter' WHERE id % 22 = 3 AND id % 53 <> 0;
	UPDATE docs SET tokens = '{1,101,7}' WHERE id % 101 = 3 AND id % 53 <> 0; DELETE FROM docs WHERE id % 103 = 4 AND id % 53 <> 0;
	UPDATE fed SET pad = 'hot' WHERE id % 5 = 3; UPDATE fed SET tokens = '{1,101,9}' WHERE id % 101 = 3; DELETE FROM fed WHERE id % 103 = 4;
	BEGIN; INSERT INTO docs SELECT i, 'prepared', set_of(i) FROM generate_series(50001, 50300) i; PREPARE TRANSACTION 'p'});
right("histories: $_", $_, 1) for qw(docs fed);
is(ask($old, found('docs')), ask($old, brute('docs')), 'histories: an old snapshot');
is(ask($open, found('docs')), ask($open, brute('docs')), 'histories: rows of the own transaction');
$node->safe_psql('postgres', q{SELECT FROM gpuvec_evict('docs')});
is(ask($old, found('docs')), ask($old, brute('docs')), 'histories: an old snapshot loads');
$node->safe_psql('postgres', q{SELECT FROM gpuvec_evict('docs')});
is(ask($open, found('docs')), ask($open, brute('docs')), 'histories: the own transaction loads');
ask($open, 'ROLLBACK'); ask($old, 'COMMIT');
$node->safe_psql('postgres', q{COMMIT PREPARED 'p'; VACUUM docs; VACUUM fed});
right("after VACUUM: $_", $_, 1) for qw(docs fed);

# ---- where there are no workers ----

right('no worker to be had', 'docs', 0, 'SET max_parallel_workers = 0');
right('not wanted', 'docs', 0, 'SET max_parallel_workers_per_gather = 0');
right('a small table', 'docs', 0, q{SET min_parallel_table_scan_size = '1GB'});
right('serializable', 'docs', 0, 'SET default_transaction_isolation = serializable');
right('repeatable read', 'docs', 1, q{SET default_transaction_isolation = 'repeatable read'});
right('read only', 'docs', 1, 'SET default_transaction_read_only = on');
$node->safe_psql('postgres', 'ALTER TABLE docs SET (parallel_workers = 0)');
right('an option of the table', 'docs', 0);
$node->safe_psql('postgres', 'ALTER TABLE docs RESET (parallel_workers)');
($out, $err) = $node->psql('postgres', 'SET client_min_messages = debug1; CREATE TEMP TABLE mine AS TABLE docs; ' . found('mine') . '; BEGIN; CREATE TABLE ours AS TABLE docs;' . found('ours') . '; ROLLBACK');
is($out, 0, 'tables of the session and of the transaction');
my @got = split /\n/, $node->safe_psql('postgres', 'CREATE TEMP TABLE mine AS TABLE docs; ' . found('mine') . ';' . brute('mine') . '; BEGIN; CREATE TABLE ours AS TABLE docs;' . found('ours') . ';' . brute('ours') . '; ROLLBACK');
is($got[0], $got[1], 'a temporary table'); is($got[2], $got[3], 'a table of the same transaction');
is($node->safe_psql('postgres', q{SELECT FROM gpuvec_evict('docs'); DO $$ DECLARE n bigint; BEGIN BEGIN SELECT count(*) INTO n FROM gpuvec_topk('docs', 'tokens', '{1}', NULL, 'hamming', -1e9); RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN IF n <> (SELECT count(*) FROM docs WHERE tokens IS NOT NULL) THEN RAISE 'wrong'; END IF; END; END $$; SELECT 'good'}), 'good', 'within a subtransaction');
is($node->safe_psql('postgres', q{SELECT FROM gpuvec_evict('docs'); BEGIN; CREATE TABLE copies AS SELECT 1 AS n; INSERT INTO copies SELECT rank FROM gpuvec_topk('docs', 'tokens', '{1}', 50); UPDATE copies SET n = n + 1; SELECT count(*) FROM copies; COMMIT; DROP TABLE copies}),
	51, 'within a statement that writes');

# ---- workers that stop on their way ----

my $holder = $node->background_psql('postgres');
my $session;
my $workers_sql = q{SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE locktype = 'advisory' AND NOT granted AND backend_type = 'parallel worker'};

# begin a search that loads; the session does not read, and waits for all workers to stop, or to
# read all pages
sub stop_at
{
	my ($point, $sql) = @_;
	my $done = $point eq 'no' ? q{SELECT 1 FROM gpuvec_mirrors WHERE relation = 'docs'::regclass AND pages_done = pages_total AND pages_done > 500} :
		"$workers_sql HAVING count(*) = 2";

	ask($holder, 'SELECT pg_advisory_lock(71866, 0)');
	$node->safe_psql('postgres', q{SELECT FROM gpuvec_evict('docs')});
	$session = start_psql($node, "SET max_parallel_workers_per_gather = 2; SET gpuvec.injection_point = 'load-workers-launched $point'; " . ($sql // found('docs')));
	wait_for(sub { $node->safe_psql('postgres', $done) ne '' }, $point) or die;
	return;
}

sub go_on { ask($holder, 'SELECT pg_advisory_unlock(71866, 0)'); return; }

sub mirror_state { return $node->safe_psql('postgres', q{SELECT state FROM gpuvec_mirrors WHERE relation = 'docs'::regclass}); }

# the search that was stopped has found all rows, and so does the next
sub ends_well
{
	my ($name) = @_;

	is(finish_psql($session), $node->safe_psql('postgres', brute('docs')), "$name: all rows");
	is($node->safe_psql('postgres', found('docs')), $node->safe_psql('postgres', brute('docs')), "$name: and again");
	return;
}

stop_at('no');
is(mirror_state(), 'loading', 'workers read all: nothing is published');
go_on();
ends_well('workers read all');

stop_at('load-worker-joined');
go_on();
ends_well('workers have joined');

# writers meanwhile: of what was read before, and of what is read afterwards
stop_at('load-worker-after-range');
my $then = $node->safe_psql('postgres', brute('docs'));
$node->safe_psql('postgres', q{UPDATE docs SET tokens = '{1,101,8}' WHERE id % 19 = 2; DELETE FROM docs WHERE id % 23 = 5; INSERT INTO docs SELECT i, 'late', set_of(i) FROM generate_series(60001, 64000) i; VACUUM docs});
go_on();
my $answer = finish_psql($session);
is($answer, $then, 'writers meanwhile: the rows of the snapshot');
is($node->safe_psql('postgres', found('docs')), $node->safe_psql('postgres', brute('docs')), 'writers meanwhile: the next search');

# a worker is ended: the load is made without workers
stop_at('load-worker-after-range');
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'parallel worker'});
go_on();
ends_well('a worker is ended');

# that is forgotten once the load was made: the session's next one has workers
my $begin = -s $node->logfile;
stop_at('load-worker-after-range', 'SET log_min_messages = debug1; ' . found('docs') . q{; SELECT FROM gpuvec_evict('docs'); } . found('docs'));
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'parallel worker'});
go_on();
is(finish_psql($session) =~ s/\n+/ /gr, join(' ', ($node->safe_psql('postgres', brute('docs'))) x 2), 'a worker is ended: all rows, and of the next load');
is(() = substr(slurp_file($node->logfile), $begin) =~ /$loads/g, 2, 'a worker is ended: workers of the load and of the next one, but not in between');
stop_at('load-worker-joined', "SELECT 1; BEGIN; INSERT INTO docs VALUES (99999, 'mine', '{1,2}'); " . found('docs') . ';' . brute('docs') . '; ROLLBACK');
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'parallel worker'});
go_on();
@got = split /\n/, finish_psql($session);
is($got[1], $got[2], 'a worker is ended in a transaction that has written');

# the session is canceled, or ended: nothing is left
for my $how ('pg_cancel_backend', 'pg_terminate_backend')
{
	stop_at('load-worker-after-range');
	$node->safe_psql('postgres', "SELECT $how(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND query LIKE '%max_parallel_workers_per_gather = 2%' AND pid <> pg_backend_pid()");
	like(finish_psql($session), $how eq 'pg_cancel_backend' ? qr/ERROR:  canceling statement due to user request/ : qr/terminating connection|server closed the connection/, "$how: an error");
	wait_for(sub { $node->safe_psql('postgres', q{SELECT 1 FROM pg_stat_activity WHERE backend_type = 'parallel worker'}) eq '' }, 'workers to end');
	wait_for(sub { mirror_state() eq '' }, 'the load to end');
	go_on();
	right("$how: afterwards", 'docs', 1);
}

# small partitions: each is loaded by one process, several at the same time
my $leaves = q{SELECT count(*) || ' ' || md5(string_agg(source::text || tid::text || score, ' ' ORDER BY rank)) FROM gpuvec_topk('leaves', 'tokens', '{1,101,202}', 3000)};
my $in_order = q{SET enable_seqscan = off; SET enable_sort = off; SELECT count(*) || ' ' || md5(string_agg(d::text, ' ')) FROM (SELECT tokens <-> '{1,101,202}' AS d FROM leaves ORDER BY tokens <-> '{1,101,202}' LIMIT 3000) x};
my $ready = q{SELECT count(*) FILTER (WHERE state = 'ready' AND loads = 1) FROM gpuvec_mirrors JOIN pg_inherits ON relation = inhrelid WHERE inhparent = 'leaves'::regclass};
for my $sql ($leaves, $in_order, q{SELECT gpuvec_prewarm('leaves', 'tokens')})
{
	my $set = q{SET min_parallel_table_scan_size = '1MB'; };
	my ($one) = $node->safe_psql('postgres', "SELECT FROM gpuvec_evict('leaves'); SET max_parallel_workers_per_gather = 0; $sql");

	is($node->safe_psql('postgres', $ready), 12, 'small partitions: each is loaded once');
	$node->safe_psql('postgres', q{SELECT FROM gpuvec_evict('leaves')});
	my ($out, $err, $log) = told($node, "$set $sql");
	is($out, $one, 'small partitions: the same rows');
	like($log, qr/[1-3] parallel workers load several relations/, 'small partitions: workers');
	is($node->safe_psql('postgres', $ready), 12, 'small partitions: each is loaded once');
	($out, $err, $log) = told($node, "$set $sql");
	unlike($log, $some, 'small partitions: no workers for what is loaded');

	# workers have to load all; or all of them are ended
	for my $how ('', 'load-worker-after-target')
	{
		$node->safe_psql('postgres', q{SELECT FROM gpuvec_evict('leaves')});
		ask($holder, 'SELECT pg_advisory_lock(71866, 0)');
		$session = start_psql($node, "$set SET gpuvec.injection_point = 'load-workers-launched $how'; $sql");
		wait_for(sub { $node->safe_psql('postgres', $how ? "$workers_sql HAVING count(*) > 0" : "SELECT 1 FROM ($ready) x (n) WHERE n = 12") ne '' }, 'workers') or die;
		$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'parallel worker'}) if $how;
		go_on();
		is(finish_psql($session), $one, $how ? 'small partitions: workers are ended' : 'small partitions: workers load all');
		is($node->safe_psql('postgres', $ready), 12, 'small partitions: each is loaded once') if !$how;
	}
}

# the engine is killed: the next one gets all pages
stop_at('load-worker-after-range');
kill 'KILL', engine_pid($node);
go_on();
ends_well('the engine is killed');

# a standby; no room in the engine for workers; no room for the table
$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby, 'replay');
my ($on_standby, undef, $messages) = told($standby, found('docs'));
is($on_standby, $node->safe_psql('postgres', brute('docs')), 'a standby: all rows');
like($messages, $loads, 'a standby: with workers');
$standby->stop;
$node->append_conf('postgresql.conf', 'gpuvec.max_sessions = 2');
$node->restart;
($out, $err) = load('docs');
is($out =~ s/.*\n//sr, $node->safe_psql('postgres', brute('docs')), 'no place for workers in the engine: all rows');
unlike($err, qr/ERROR/, 'no place for workers in the engine: no error');
$node->append_conf('postgresql.conf', "gpuvec.max_sessions = 100\ngpuvec.device_memory = '1MB'\ngpuvec.devices = ''");
$node->restart;
($out, $err) = load('long');
is($out =~ s/.*\n//sr, $node->safe_psql('postgres', brute('long')), 'no memory for the table: all rows');
like($err, qr/WARNING:.*out of gpuvec memory/s, 'no memory for the table: a warning');
$node->stop;
done_testing();
