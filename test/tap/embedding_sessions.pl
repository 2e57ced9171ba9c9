# Embedding tables: many sessions, an engine that dies or is not there, memory, a standby.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => "max_connections = 60\n", streaming => 1);

# Vectors whose sum stays the same with every transaction, and whose first element counts them
$node->safe_psql('postgres', q{
	CREATE TABLE accounts (id int PRIMARY KEY, v real[]) WITH (fillfactor = 70);
	INSERT INTO accounts SELECT i, ARRAY[1, 100, 0, 7] FROM generate_series(1, 400) i;
	CREATE FUNCTION total() RETURNS real[] LANGUAGE sql AS $$ SELECT gpuvec_pool('accounts', 'id', 'v', ARRAY(SELECT generate_series(1, 500))) $$;
	CREATE FUNCTION check_total() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE t real[] := total(); g real[]; n int;
	BEGIN
		IF t IS DISTINCT FROM '{400,40000,0,2800}' THEN
			RAISE EXCEPTION 'mistake: %', t;
		END IF;
		-- other requests of the same snapshot
		SELECT array_agg(x ORDER BY i) INTO g FROM (SELECT i, sum(u.x)::real AS x FROM gpuvec_gather('accounts', 'id', 'v', ARRAY(SELECT generate_series(1, 500))), unnest(embedding) WITH ORDINALITY u (x, i) GROUP BY i) y;
		SELECT count(*) INTO n FROM gpuvec_nearest('accounts', 'id', 'v', '{1,1,1,1}', 1000);
		IF g IS DISTINCT FROM t OR n <> 400 THEN
			RAISE EXCEPTION 'mistake: % % %', t, g, n;
		END IF;
	END $$;});
my %scripts = (
	read => "BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT check_total();\nCOMMIT;\n",
	read_committed => "SELECT total() <> '{400,40000,0,2800}' AS wrong \\gset\n\\if :wrong\nSELECT 1 / 0 AS mistake;\n\\endif\n",
	transfer => q{
\set a random(1, 200)
\set b random(201, 400)
\set x random(1, 50)
BEGIN;
UPDATE accounts SET v = ARRAY[v[1], v[2] - :x, v[3] + :x, v[4]] WHERE id = (SELECT id FROM accounts ORDER BY abs(id - :a) LIMIT 1);
UPDATE accounts SET v = ARRAY[v[1], v[2] + :x, v[3] - :x, v[4]] WHERE id = (SELECT id FROM accounts WHERE id > 200 ORDER BY abs(id - :b) LIMIT 1);
END;
},
	# a row takes another key, is deleted and comes back
	move => q{
\set a random(401, 500)
BEGIN;
LOCK TABLE accounts IN SHARE ROW EXCLUSIVE MODE;
WITH gone AS (DELETE FROM accounts WHERE id = (SELECT max(id) FROM accounts) RETURNING v)
INSERT INTO accounts SELECT (SELECT i FROM generate_series(1, 500) i WHERE i NOT IN (SELECT id FROM accounts) ORDER BY abs(i - :a) LIMIT 1), v FROM gone;
END;
},
	rollback => q{
BEGIN;
UPDATE accounts SET v = '{5,5,5,5}' WHERE id < 50;
DELETE FROM accounts WHERE id > 300;
ROLLBACK;
});
my $dir = $node->basedir;
append_to_file("$dir/$_.sql", $scripts{$_}) for keys %scripts;
append_to_file("$dir/vacuum.sql", "VACUUM accounts;\n\\sleep 50 ms\n");
for my $level ('on', 'off')
{
	$node->append_conf('postgresql.conf', "gpuvec.verify = $level");
	$node->reload;
	my ($out, $err) = ('', '');
	my $vacuuming = IPC::Run::start(
		['pgbench', '-n', '-c', '1', '-T', '8', '-f', "$dir/vacuum.sql", '-h', $node->host, '-p', $node->port, 'postgres'],
		'>', '/dev/null', '2>', '/dev/null');
	IPC::Run::run(
		['pgbench', '-n', '-c', '24', '-j', '2', '-T', '8', '-f', "$dir/read.sql\@20", '-f', "$dir/read_committed.sql\@20", '-f', "$dir/transfer.sql\@20",
			'-f', "$dir/move.sql\@4", '-f', "$dir/rollback.sql\@4", '-h', $node->host, '-p', $node->port, 'postgres'],
		'>', \$out, '2>', \$err);
	ok($vacuuming->finish, "verify $level: vacuum");
	unlike($err, qr/mistake|division by zero/, "verify $level: every answer is of one state of the table");
	# deadlocks between updates are not ours
	my @errors = grep { /ERROR/ && !/deadlock detected|could not serialize/ } split /\n/, $err;
	is(join("\n", @errors[0 .. ($#errors > 4 ? 4 : $#errors)]), '', "verify $level: no errors");
	like($out, qr/number of transactions actually processed: [1-9]/, "verify $level: it ran");
}
$node->safe_psql('postgres', q{VACUUM accounts; SELECT check_total()});

# what other sessions see of a table while it is loaded, and when the engine is gone
my $all = q{SELECT total(), (SELECT count(*) FROM gpuvec_nearest('accounts', 'id', 'v', '{1,1,1,1}', 1000)),
	(SELECT sum(gradient[1]) FROM gpuvec_pool_grad('accounts', 'id', 'v', ARRAY(SELECT id FROM accounts), '{1,2,3,4}'))};
my $expected = '{400,40000,0,2800}|400|400';
my $session = $node->background_psql('postgres');
is(ask($session, $all), $expected, 'a session');
my $pid = engine_pid($node);
kill 'KILL', $pid;
is(ask($session, $all), $expected, 'the engine died between two requests');
isnt(engine_pid($node), $pid, 'and there is another one');
$session->quit;
$node->stop;

{
	# the second request of each engine kills it: the statement is repeated with the next one
	local $ENV{GPUVEC_ENGINE_FAULT} = 'crash-on-search:2';
	$node->start;
	is($node->safe_psql('postgres', 'SELECT total()'), '{400,40000,0,2800}', 'the first request');
	is($node->safe_psql('postgres', 'SELECT total()'), '{400,40000,0,2800}', 'the second request, and again');
	$node->stop;
}
{
	# groups of a sorted aggregate ask with a visibility map that the engine keeps; the next engine does not have it
	local $ENV{GPUVEC_ENGINE_FAULT} = 'crash-on-search:30';
	$node->start;
	$node->safe_psql('postgres', 'VACUUM accounts');
	my $groups = q{SELECT count(*), sum(p[1]), sum(p[2]), sum(p[3]), sum(p[4]) FROM
		(SELECT gpuvec_sum_agg('accounts', 'id', 'v', id) AS p FROM generate_series(1, 500) id GROUP BY id / 5) x};
	my ($rc, $out, $err) = $node->psql('postgres', "SET enable_hashagg = off; $groups; $groups");
	is($out, join("\n", ('101|400|40000|0|2800') x 2), 'groups of a statement, several engines');
	$node->stop;
}
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'crash-on-search';
	$node->start;
	my ($rc, $out, $err) = $node->psql('postgres', 'SELECT total()');
	is($out, '{400,40000,0,2800}', 'an engine that is always lost: the answer');
	like($err, qr/WARNING:  gpuvec searches without its engine/, 'and a warning');
	$node->stop('fast');
}
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'crash-at-start';
	$node->start;
	my ($rc, $out, $err) = $node->psql('postgres', "$all; $all");
	is($out, "$expected\n$expected", 'no engine: right answers');
	my @warnings = $err =~ /(WARNING:  gpuvec searches without its engine)/g;
	is(scalar @warnings, 1, 'no engine: one warning');
	$node->stop;
}
{
	# a pool or search in the engine itself is canceled
	local $ENV{GPUVEC_ENGINE_FAULT} = 'slow-search:20000';
	$node->start;
	for my $sql ('SELECT total()', q{SELECT count(*) FROM gpuvec_nearest('accounts', 'id', 'v', '{1,1,1,1}')})
	{
		my ($rc, $out, $err) = $node->psql('postgres', "SET statement_timeout = '500ms'; $sql");
		like($err, qr/canceling statement due to statement timeout/, "timeout in the engine: $sql");
	}
	wait_for(sub { $node->safe_psql('postgres', 'SELECT sessions FROM gpuvec_engine') eq '1' }, 'the end of the canceled requests');
	is($node->safe_psql('postgres', 'SELECT sessions FROM gpuvec_engine'), '1', 'the engine dropped what nobody waits for');
	$node->stop;
}

# answers that do not fit a message are asked for in parts
my @large = map { my $mode = $_; map { qq{SELECT count(*), md5(string_agg(sample::text || embedding::text, ' ' ORDER BY sample)) FROM gpuvec_pool_batch('accounts', 'id', 'v',
	ARRAY(SELECT (i * 7919) % 600 FROM generate_series(1, 3000) i), hotness => 3, mode => '$mode', missing => '$_')} } 'zero', 'skip' } 'sum', 'mean', 'concat';
push @large, q{SELECT count(*), md5(string_agg(found::text || coalesce(embedding::text, ''), ' ' ORDER BY ordinality)) FROM gpuvec_gather('accounts', 'id', 'v', ARRAY(SELECT (i * 7919) % 600 FROM generate_series(1, 3000) i))};
push @large, map { my $full = $_; map { my ($mode, $n) = @$_; qq{SELECT count(*), md5(string_agg(key::text || gradient::text, ' ')) FROM gpuvec_pool_grad_batch('accounts', 'id', 'v',
	ARRAY(SELECT (i * 7919) % 600 FROM generate_series(1, 3000) i), ARRAY(SELECT i % 13 - 6.5 FROM generate_series(1, $n) i), hotness => 3, mode => '$mode', all_keys => $full)} }
	['sum', 4000], ['mean', 4000], ['concat', 12000] } 'false', 'true';
push @large, q{SELECT gpuvec_pool_grad_weights_batch('accounts', 'id', 'v', ARRAY(SELECT (i * 7919) % 600 FROM generate_series(1, 3000) i), ARRAY(SELECT i % 13 - 6.5 FROM generate_series(1, 4000) i), hotness => 3)};
$node->start;
my @answers = map { $node->safe_psql('postgres', $_) } @large;
is($answers[0] =~ /^1000\|/, 1, 'answers');
$node->stop;
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'embed-limit:500';
	$node->start;
	is($node->safe_psql('postgres', $large[$_]), $answers[$_], "in parts: request $_") for 0 .. $#large;
	my ($rc, $out, $err) = $node->psql('postgres', q{SELECT gpuvec_pool('accounts', 'id', 'v', ARRAY(SELECT generate_series(1, 400)), 'concat')});
	like($err, qr/the vectors of one call would be too large/, 'one bag that is too large');
	($rc, $out, $err) = $node->psql('postgres', q{SET client_min_messages = 'debug1'; } . $large[7]);
	like($err, qr/time in the gpuvec engine/, 'the engine has part in a gradient that is too large');
	$node->stop;
}

# the same for a table with partitions
$node->start;
$node->safe_psql('postgres', q{CREATE TABLE parted (LIKE accounts) PARTITION BY HASH (id);
	CREATE TABLE parted0 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 0);
	CREATE TABLE parted1 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 1);
	INSERT INTO parted SELECT * FROM accounts});
$node->stop;
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'embed-limit:500';
	$node->start;
	is($node->safe_psql('postgres', $large[-1] =~ s/'accounts'/'parted'/r), $answers[-1], 'in parts: partitions');
	$node->stop;
}

# many rounds: few more rows than wanted are looked at in each, and the best ones are all unseen
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'near-spare:1';
	$node->start;
	$node->safe_psql('postgres', q{CREATE TABLE versions (id int, v real[]); INSERT INTO versions SELECT i, ARRAY[i, 0] FROM generate_series(1, 1000) i});
	my $reader = $node->background_psql('postgres', on_error_stop => 0);
	$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM versions');
	$node->safe_psql('postgres', 'DELETE FROM versions WHERE id <= 900');
	is($node->safe_psql('postgres', q{SELECT key, score FROM gpuvec_nearest('versions', 'id', 'v', '{0,0}', 2, 'l2')}), "901|-901\n902|-902", 'many rounds');
	$reader->quit;
	$node->stop;
}

# the width of the table is that of its first row, wherever others have begun to scan it
$node->start;
$node->safe_psql('postgres', q{CREATE TABLE widths AS SELECT i AS id, array_fill(0::real, ARRAY[99 + (i + 1999) / 2000]) AS v FROM generate_series(1, 4000) i});
is($node->safe_psql('postgres', q{SELECT pg_relation_size('widths') > pg_size_bytes(current_setting('shared_buffers')) / 4}), 't', 'a table that is scanned together with others');
my $scanner = $node->background_psql('postgres', on_error_stop => 0);
$scanner->query_safe('BEGIN; DECLARE c CURSOR FOR SELECT * FROM widths; MOVE 3000 FROM c');
is($node->safe_psql('postgres', q{SELECT cardinality(gpuvec_pool('widths', 'id', 'v', '{}'))}), '100', 'the width of the first row');
$scanner->quit;
$node->stop;

# a standby
$node->start;
$node->safe_psql('postgres', q{CREATE UNLOGGED TABLE unlogged AS SELECT * FROM accounts; CREATE UNLOGGED TABLE unlogged_sets AS SELECT 1 AS id, '{1,2}'::idset AS tokens;
	CREATE TABLE mixed (LIKE accounts); CREATE UNLOGGED TABLE mixed_child () INHERITS (mixed)});
$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);
is($standby->safe_psql('postgres', $all), $expected, 'the standby');
$node->safe_psql('postgres', q{UPDATE accounts SET v = '{2,1,1,1}' WHERE id = 1; DELETE FROM accounts WHERE id = 2; VACUUM accounts});
$node->wait_for_catchup($standby);
is($standby->safe_psql('postgres', 'SELECT total()'), $node->safe_psql('postgres', 'SELECT total()'), 'the standby, after changes');
for my $sql (q{SELECT * FROM gpuvec_gather('unlogged', 'id', 'v', '{1}')}, q{SELECT gpuvec_pool('unlogged', 'id', 'v', '{1}')},
	q{SELECT gpuvec_pool('mixed', 'id', 'v', '{1}')}, q{SELECT * FROM gpuvec_nearest('unlogged', 'id', 'v', '{1,1,1,1}')},
	q{SELECT gpuvec_prewarm('unlogged', 'id', 'v')}, q{SELECT * FROM gpuvec_topk('unlogged_sets', 'tokens', '{1}')}, q{SELECT gpuvec_prewarm('unlogged_sets', 'tokens')})
{
	my ($rc, $out, $err) = $standby->psql('postgres', "\\set VERBOSITY verbose\n$sql");
	like($err, qr/ERROR:  0A000: cannot access temporary or unlogged relations during recovery/, "not on a standby: $sql");
}
$standby->stop;

# memory
$node->safe_psql('postgres', q{
	CREATE TABLE big AS SELECT i AS id, array_fill(i::real, '{1000}') AS v FROM generate_series(1, 4000) i;
	CREATE TABLE half1 AS SELECT * FROM big WHERE id <= 1800;
	CREATE TABLE half2 AS SELECT * FROM big WHERE id <= 1800;
	CREATE TABLE half3 AS SELECT * FROM big WHERE id <= 1800;});
$node->append_conf('postgresql.conf', "gpuvec.device_memory = '15MB'\ngpuvec.devices = ''");
$pid = engine_pid($node);
$node->reload;
wait_for(sub { !kill(0, $pid) }, 'the end of the engine');
my ($rc, $out, $err) = $node->psql('postgres', q{SELECT (gpuvec_pool('big', 'id', 'v', '{1,5}'))[1000]});
is($out, '6', 'a table that does not fit: the answer');
like($err, qr/WARNING:  gpuvec searches without its engine\nDETAIL:  .*out of gpuvec memory.*\nHINT:  .*Increase gpuvec.device_memory/, 'and a warning with a hint');
for my $round (1 .. 2)
{
	is($node->safe_psql('postgres', "SELECT (gpuvec_pool('$_', 'id', 'v', '{3,4}'))[1000]"), '7', "round $round of tables that do not fit together: $_")
	  for 'half1', 'half2', 'half3';
}
cmp_ok($node->safe_psql('postgres', 'SELECT evictions FROM gpuvec_engine'), '>=', 3, 'mirrors were evicted');
# a table of which most rows go, again and again, does not grow without limit
$node->safe_psql('postgres', q{CREATE TABLE churn (id int, v real[]); INSERT INTO churn SELECT i, '{1,2,3}' FROM generate_series(1, 100000) i});
$node->safe_psql('postgres', q{SELECT gpuvec_pool('churn', 'id', 'v', '{1}')});
$node->safe_psql('postgres', q{DELETE FROM churn WHERE id > 10000; VACUUM churn});
$node->safe_psql('postgres', q{SELECT gpuvec_pool('churn', 'id', 'v', '{1}')});
$node->safe_psql('postgres', q{UPDATE churn SET v = '{2,2,2}' WHERE id < 100});
is($node->safe_psql('postgres', q{SELECT gpuvec_pool('churn', 'id', 'v', '{1,200}')}), '{3,4,5}', 'a table of which most is gone');
is($node->safe_psql('postgres', q{SELECT loads FROM gpuvec_mirrors WHERE relation = 'churn'::regclass}), '1', 'it was loaded anew');
like(slurp_file($node->logfile), qr/dropping the mirror of relation \d+ of database \d+, as most of its room is unused/, 'as the log says');
is($node->safe_psql('postgres', q{SELECT bytes < 2000000 FROM gpuvec_mirrors WHERE relation = 'churn'::regclass}), 't', 'and takes less room');
# what was resident is loaded again after a restart, as it was stored
$node->append_conf('postgresql.conf', "gpuvec.device_memory = 0\nshared_preload_libraries = 'gpuvec'");
$node->restart;
$node->safe_psql('postgres', q{SET gpuvec.vector_storage = 'float16'; SELECT gpuvec_pool('accounts', 'id', 'v', '{1}')});
$node->safe_psql('postgres', q{SELECT gpuvec_pool('accounts', 'id', 'v', '{1}'); SELECT gpuvec_pool('churn', 'id', 'v', '{1}'); SELECT gpuvec_pool('half1', 'id', 'v', '{1}')});
wait_for(sub { -e $node->data_dir . '/gpuvec.autoprewarm' && (() = slurp_file($node->data_dir . '/gpuvec.autoprewarm') =~ /\n/g) == 5 }, 'the list of what is resident');
$node->safe_psql('postgres', q{DROP TABLE half1});
$node->restart;
my $resident = q{SELECT string_agg(relation::text || columns::text || (bytes > 0)::text || searches, ' ' ORDER BY relation::text, bytes) FROM gpuvec_mirrors WHERE state = 'ready'};
wait_for(sub { $node->safe_psql('postgres', $resident) =~ / .* / }, 'the mirrors');
is($node->safe_psql('postgres', $resident), 'accounts{id,v}true0 accounts{id,v}true0 churn{id,v}true0', 'both copies of a table, and another one');
is($node->safe_psql('postgres', q{SELECT gpuvec_pool('accounts', 'id', 'v', '{1}') = '{2,1,1,1}'}), 't', 'a request');
is($node->safe_psql('postgres', q{SELECT sum(searches) > 0, sum(loads) FROM gpuvec_mirrors WHERE relation = 'accounts'::regclass}), 't|2', 'found it resident');

$pid = engine_pid($node);
$node->stop;
no_leftovers($node, $pid, 'in the end');
done_testing();
