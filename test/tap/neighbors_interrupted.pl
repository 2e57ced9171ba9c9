# Neighbors of items that nobody waits for any more, and those whose engine is lost; what others see meanwhile.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', started => 0);
my $ask = q{SELECT count(*) FROM gpuvec_item_neighbors('events', 'u', 'i', 5)};
my $lost = qr/ERROR:  lost the connection to the gpuvec engine while it looked for neighbors$/;

# Nothing is left of it in the engine
sub ended
{
	my ($name) = @_;

	ok(wait_for(sub { $node->safe_psql('postgres', 'SELECT count(*) FROM gpuvec_training') eq '0' }, 'the end'), "$name: ended");
	return;
}

$node->start;
$node->safe_psql('postgres', q{CREATE EXTENSION gpuvec;
	CREATE TABLE events (u int, i int);
	INSERT INTO events SELECT u, i FROM generate_series(1, 30) u, generate_series(1, 20) i WHERE (u * i) % 3 = 0;
	-- wait, while somebody else has lock 1
	CREATE FUNCTION pass() RETURNS bool LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN true; END $$;
	CREATE VIEW slow_events AS SELECT * FROM events WHERE CASE WHEN u = 15 THEN pass() ELSE true END});
is($node->safe_psql('postgres', $ask), '100', 'neighbors');
my $rows = $node->safe_psql('postgres', 'SELECT count(*) FROM events');
my $holder = $node->background_psql('postgres');

# while interactions are read
ask($holder, 'SELECT pg_advisory_lock(1)');
(my $ask_slowly = $ask) =~ s/'events'/'slow_events'/;
my $psql = start_psql($node, $ask_slowly);
is(wait_for_training($node, 'reading'), 'postgres|slow_events|reading|0||||0|0|', 'reading is shown');
$node->safe_psql('postgres', 'SELECT pg_cancel_backend(pid) FROM gpuvec_training');
like(finish_psql($psql), qr/canceling statement due to user request/, 'reading: canceled');
ended('reading: canceled');
$psql = start_psql($node, $ask_slowly);
wait_for_training($node, 'reading');
kill 'KILL', engine_pid($node);
ask($holder, 'SELECT pg_advisory_unlock(1)');
like(finish_psql($psql), $lost, 'reading: the engine is lost');
ended('reading: the engine is lost');
$holder->quit;
$node->stop;

# while the engine looks for neighbors: for longer than the test may take
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'slow-training:3600000';
	$node->start;
	my ($rc, $out, $err) = $node->psql('postgres', "SET statement_timeout = '1s'; $ask");
	like($err, qr/canceling statement due to statement timeout/, 'neighbors: timeout');
	ended('neighbors: timeout');
	my $engine = engine_pid($node);
	$psql = start_psql($node, $ask);
	is(wait_for_training($node, 'neighbors'), "postgres|events|neighbors|$rows|30|20|$rows|0|20|", 'it is shown');
	$node->safe_psql('postgres', 'SELECT pg_terminate_backend(pid) FROM gpuvec_training');
	like(finish_psql($psql), qr/terminating connection/, 'neighbors: the session is terminated');
	ended('neighbors: the session is terminated');
	is(engine_pid($node), $engine, 'the engine goes on');
	$psql = start_psql($node, $ask);
	wait_for_training($node, 'neighbors');
	kill 'KILL', $engine;
	like(finish_psql($psql), $lost, 'neighbors: the engine is lost');
	ended('neighbors: the engine is lost');
	$node->stop;
}
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'slow-preparing:3600000';
	$node->start;
	my ($rc, $out, $err) = $node->psql('postgres', "SET statement_timeout = '1s'; $ask");
	like($err, qr/canceling statement due to statement timeout/, 'preparing: timeout');
	ended('preparing: timeout');
	$node->stop;
}
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'crash-on-training';
	$node->start;
	my ($rc, $out, $err) = $node->psql('postgres', $ask);
	like($err, qr/lost the connection to the gpuvec engine while it looked for neighbors/, 'neighbors: the engine crashes');
	$node->stop;
}

# rows that come meanwhile do not count
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'slow-training:2000';
	$node->start;
	$psql = start_psql($node, $ask);
	wait_for_training($node, 'neighbors');
	$node->safe_psql('postgres', 'INSERT INTO events VALUES (31, 21), (31, 22)');
	is(finish_psql($psql), '100', 'it has the rows of its snapshot');
	is($node->safe_psql('postgres', $ask), '102', 'the next one has those that came before it');
	$node->stop;
}
done_testing();
