# Partitions that are searched by one request are asked of one engine: another one that takes its place while the
# conversations about them begin counts refreshes from the beginning, so that the number of a partition that was told
# before it would cover rows that have come since.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

# (without the feeder: sessions themselves change the copies)
my $node = new_node('main', conf => "gpuvec.verify = off\ngpuvec.feeder = off\n");
my $set = q{'[1,101]'};
my %searches = (
	'one query' => qq{SELECT count(*) || ' ' || count(*) FILTER (WHERE score = 1) FROM gpuvec_topk('parts', 'tokens', $set, 1000, 'overlap')},
	'several queries' => qq{SELECT count(*) || ' ' || count(*) FILTER (WHERE score = 1) FROM gpuvec_topk_batch('parts', 'tokens', ARRAY[$set, '[2]', $set]::idset[], 700)},
	'whole rows' => qq{SELECT count(*) || ' ' || count(*) FILTER (WHERE score = 1) FROM gpuvec_topk_rows(NULL::parts, 'tokens', $set, 1000)});

$node->safe_psql('postgres', q{
	CREATE TABLE parts (id int, part int, tokens idset) PARTITION BY LIST (part);
	CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1) WITH (fillfactor = 50);
	CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2) WITH (fillfactor = 50);
	INSERT INTO parts SELECT i, 1 + i % 2, ARRAY[1, i + 100]::idset FROM generate_series(1, 600) i;});
my $holder = $node->background_psql('postgres');
for my $name (sort keys %searches)
{
	my $search = $searches{$name};
	my $session = $node->background_psql('postgres');

	# the first engine counts many refreshes
	for my $i (1 .. 10)
	{
		$node->safe_psql('postgres', "UPDATE parts SET id = id WHERE id IN ($i, $i + 1)");
		$node->safe_psql('postgres', "VACUUM $_") for 'parts_1', 'parts_2';
		ask($session, $search);
	}
	my $expected = ask($session, $search);
	my $old = engine_pid($node);

	# the session has got the number and the map of the first partition, but nothing of the second one
	ask($holder, 'SELECT pg_advisory_lock(71866, 0)');
	ask($session, q{SET gpuvec.injection_point = 'ask-before-position'});
	$session->query_until(qr/started/, "\\echo started\n$search;\n");
	$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted");
	$node->safe_psql('postgres', "INSERT INTO parts SELECT 9000, p, $set FROM generate_series(1, 2) p");
	kill 'KILL', $old;
	wait_for(sub { !kill(0, $old) }, 'the end of the engine');
	isnt($node->safe_psql('postgres', $search), $expected, "$name: another session finds the new rows");
	isnt(engine_pid($node), $old, "$name: with another engine");
	is($node->safe_psql('postgres', q{SELECT string_agg(loads || ' ' || refreshes, ', ') FROM gpuvec_mirrors WHERE relation IN ('parts_1'::regclass, 'parts_2')}),
		'1 0, 1 0', "$name: which has counted one refresh of each");
	ask($holder, 'SELECT pg_advisory_unlock(71866, 0)');
	is(ask($session, q{SET gpuvec.injection_point = ''}), $expected, "$name: the session does not find them: its snapshot is older");
	$session->quit;
	$node->safe_psql('postgres', 'DELETE FROM parts WHERE id = 9000');
}
$holder->quit;
$node->stop;
done_testing();
