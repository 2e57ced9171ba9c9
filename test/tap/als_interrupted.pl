# Trainings that are canceled, or lose their session or the engine, leave the tables of factors as they were; and what others
# see meanwhile.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', started => 0);
my $train = q{SELECT count(*) FROM gpuvec_als('events', 'u', 'i', 'users', 'items', factors => 4, iterations => 2)};
my $contents = q{SELECT md5(string_agg(r::text, ',' ORDER BY r::text)) FROM (TABLE users UNION ALL TABLE items) r};

# No training is left in the engine, and the tables are as they were
sub nothing_changed
{
	my ($before, $name) = @_;

	ok(wait_for(sub { $node->safe_psql('postgres', 'SELECT count(*) FROM gpuvec_training') eq '0' }, 'the end'), "$name: ended");
	is($node->safe_psql('postgres', $contents), $before, "$name: the tables are as they were");
	return;
}

$node->start;
$node->safe_psql('postgres', q{CREATE EXTENSION gpuvec;
	CREATE TABLE events (u int, i int);
	INSERT INTO events SELECT u, i FROM generate_series(1, 30) u, generate_series(1, 20) i WHERE (u * i) % 3 = 0;
	CREATE TABLE users (key bigint PRIMARY KEY, embedding real[]);
	CREATE TABLE items (key bigint PRIMARY KEY, embedding real[]);
	CREATE ROLE stranger; CREATE ROLE watcher IN ROLE pg_read_all_stats;
	-- wait, while somebody else has lock 1
	CREATE FUNCTION pass() RETURNS bool LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN true; END $$;
	CREATE VIEW slow_events AS SELECT * FROM events WHERE CASE WHEN u = 15 THEN pass() ELSE true END;
	CREATE FUNCTION pass_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pass(); RETURN NEW; END $$});
is($node->safe_psql('postgres', $train), '2', 'a training');
my $before = $node->safe_psql('postgres', $contents);
my $rows = $node->safe_psql('postgres', 'SELECT count(*) FROM events');
my $holder = $node->background_psql('postgres');

# while interactions are read
ask($holder, 'SELECT pg_advisory_lock(1)');
(my $train_slowly = $train) =~ s/'events'/'slow_events'/;
my $psql = start_psql($node, $train_slowly);
is(wait_for_training($node, 'reading'), 'postgres|slow_events|reading|0||||0|2|', 'reading is shown');
$node->safe_psql('postgres', 'SELECT pg_cancel_backend(pid) FROM gpuvec_training');
like(finish_psql($psql), qr/canceling statement due to user request/, 'reading: canceled');
nothing_changed($before, 'reading: canceled');
$psql = start_psql($node, $train_slowly);
wait_for_training($node, 'reading');
kill 'KILL', engine_pid($node);
ask($holder, 'SELECT pg_advisory_unlock(1)');
like(finish_psql($psql), qr/ERROR:  lost the connection to the gpuvec engine during a training\nDETAIL:  The tables of factors are as they were before/, 'reading: the engine is lost');
nothing_changed($before, 'reading: the engine is lost');

# while factors are written
ask($holder, 'SELECT pg_advisory_lock(1)');
$node->safe_psql('postgres', 'CREATE TRIGGER pass BEFORE INSERT ON users FOR EACH ROW EXECUTE FUNCTION pass_row()');
$psql = start_psql($node, $train);
like(wait_for_training($node, 'writing'), qr/^postgres\|events\|writing\|\d+\|30\|20\|\d+\|2\|2\|0\.\d+$/, 'writing is shown');
is($node->safe_psql('postgres', $contents), $before, 'writing: others see the old factors');
$node->safe_psql('postgres', 'SELECT pg_cancel_backend(pid) FROM gpuvec_training');
like(finish_psql($psql), qr/canceling statement due to user request/, 'writing: canceled');
nothing_changed($before, 'writing: canceled');
$psql = start_psql($node, $train);
wait_for_training($node, 'writing');
kill 'KILL', engine_pid($node);
ask($holder, 'SELECT pg_advisory_unlock(1)');
like(finish_psql($psql), qr/ERROR:  lost the connection to the gpuvec engine during a training/, 'writing: the engine is lost');
nothing_changed($before, 'writing: the engine is lost');
$node->safe_psql('postgres', 'DROP TRIGGER pass ON users');
$holder->quit;
$node->stop;

# while the engine trains: an iteration that would take longer than the test may
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'slow-training:3600000';
	$node->start;
	my ($rc, $out, $err) = $node->psql('postgres', "SET statement_timeout = '1s'; $train");
	like($err, qr/canceling statement due to statement timeout/, 'training: timeout');
	nothing_changed($before, 'training: timeout');
	my $engine = engine_pid($node);
	$psql = start_psql($node, $train);
	is(wait_for_training($node, 'training'), "postgres|events|training|$rows|30|20|$rows|0|2|", 'training is shown');
	is($node->safe_psql('postgres', 'SET ROLE stranger; SELECT count(*) FROM gpuvec_training'), '0', 'not to everybody');
	is($node->safe_psql('postgres', 'SET ROLE watcher; SELECT count(*) FROM gpuvec_training'), '1', 'to those who may see all');
	is($node->safe_psql('template1', 'CREATE EXTENSION gpuvec; SELECT database, relation IS NULL FROM gpuvec_training'), 'postgres|t', 'in another database, without the name');
	$node->safe_psql('postgres', 'SELECT pg_terminate_backend(pid) FROM gpuvec_training');
	like(finish_psql($psql), qr/terminating connection/, 'training: the session is terminated');
	nothing_changed($before, 'training: the session is terminated');
	is(engine_pid($node), $engine, 'the engine goes on');
	$psql = start_psql($node, $train);
	wait_for_training($node, 'training');
	kill 'KILL', $engine;
	like(finish_psql($psql), qr/ERROR:  lost the connection to the gpuvec engine during a training/, 'training: the engine is lost');
	nothing_changed($before, 'training: the engine is lost');
	$node->stop;
}
# while the engine prepares
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'slow-preparing:3600000';
	$node->start;
	my ($rc, $out, $err) = $node->psql('postgres', "SET statement_timeout = '1s'; $train");
	like($err, qr/canceling statement due to statement timeout/, 'preparing: timeout');
	nothing_changed($before, 'preparing: timeout');
	my $engine = engine_pid($node);
	$psql = start_psql($node, $train);
	like(wait_for_training($node, 'preparing'), qr/^postgres\|events\|preparing\|$rows\|/, 'preparing is shown');
	$node->safe_psql('postgres', 'SELECT pg_terminate_backend(pid) FROM gpuvec_training');
	like(finish_psql($psql), qr/terminating connection/, 'preparing: the session is terminated');
	nothing_changed($before, 'preparing: the session is terminated');
	is(engine_pid($node), $engine, 'preparing: the engine goes on');
	$node->stop;
}
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'crash-on-training';
	$node->start;
	my ($rc, $out, $err) = $node->psql('postgres', $train);
	like($err, qr/ERROR:  lost the connection to the gpuvec engine during a training/, 'training: the engine crashes');
	is($node->safe_psql('postgres', $contents), $before, 'training: the engine crashes: the tables are as they were');
	$node->stop;
}

# rows that come while the engine trains do not count, and two trainings replace the factors one after the other
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'slow-training:2000';
	$node->start;
	# looks in its own transaction: the other one may end at any time
	$psql = start_psql($node, "CREATE TEMP TABLE trained AS $train; SELECT count, max(key) FROM trained, users GROUP BY count");
	wait_for_training($node, 'training');
	$node->safe_psql('postgres', 'INSERT INTO events VALUES (31, 1), (1, 21)');
	my $second = start_psql($node, $train =~ s/factors => 4/factors => 5/r);
	is($node->safe_psql('postgres', $contents), $before, 'training: others see the old factors');
	is(finish_psql($psql), '2|30', 'the first training has the rows of its snapshot');
	is(finish_psql($second), '2', 'the second training');
	is($node->safe_psql('postgres', 'SELECT max(key), min(cardinality(embedding)) FROM users'), '31|5', 'it has those that came before it');
	is($node->safe_psql('postgres', 'SELECT max(key), min(cardinality(embedding)) FROM items'), '21|5', 'items as well');
	$node->stop;
}

# without an engine
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'crash-at-start';
	$node->start;
	$before = $node->safe_psql('postgres', $contents);
	my ($rc, $out, $err) = $node->psql('postgres', $train);
	like($err, qr/ERROR:  the gpuvec engine is not available/, 'without an engine');
	is($node->safe_psql('postgres', $contents), $before, 'without an engine: the tables are as they were');
	$node->stop;
}

# a subtransaction that fails takes its training back, and the session trains again
$node->append_conf('postgresql.conf', "gpuvec.engine = cpu\ngpuvec.device_memory = '12MB'");
$node->start;
is($node->safe_psql('postgres', "DO \$\$ BEGIN PERFORM gpuvec_als('events', 'u', 'i', 'users', 'items', iterations => 1); PERFORM 1 / 0;
	EXCEPTION WHEN division_by_zero THEN NULL; END \$\$; $contents; $train"), "$before\n2", 'after a subtransaction that failed');

# too little memory: an error of the statement, and the memory is given back
$before = $node->safe_psql('postgres', $contents);
is($node->safe_psql('postgres', 'SELECT memory_used FROM gpuvec_engine'), 0, 'the memory of a training is given back');
$node->safe_psql('postgres', 'CREATE TABLE more AS SELECT n % 1000 AS u, n / 1000 AS i FROM generate_series(1, 1500000) n');
my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n" . $train =~ s/'events'/'more'/r);
like($err, qr/ERROR:  53200: out of gpuvec memory/, 'too much data');
is($node->safe_psql('postgres', 'SELECT memory_used FROM gpuvec_engine'), 0, 'too much data: the memory is given back');
is($node->safe_psql('postgres', $contents), $before, 'too much data: the tables are as they were');
is($node->safe_psql('postgres', $train), '2', 'little data fits');
$node->stop;
done_testing();
