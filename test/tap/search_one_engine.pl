# Partitions that are searched by one request are asked of one engine: another
# one that takes its place while the conversations about them begin counts
# refreshes from the beginning, so that the number of a partition that was told
# before it would cover rows that have come since.  The first partition's
# conversation has begun then, and the last one's, of whose mirror the session
# knows nothing yet, meets the other engine.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

# (without the feeder: sessions themselves change the copies)
my $node = new_node('main', conf => "gpuvec.verify = off\ngpuvec.feeder = off\n");
my $set = q{'[1,101]'};
my %searches = (
	'one query' => qq{SELECT count(*) || ' ' || count(*) FILTER (WHERE score = 1) FROM gpuvec_topk('parts', 'tokens', $set, 1200, 'overlap')},
	'several queries' => qq{SELECT count(*) || ' ' || count(*) FILTER (WHERE score = 1) FROM gpuvec_topk_batch('parts', 'tokens', ARRAY[$set, '[2]', $set]::idset[], 700)},
	'whole rows' => qq{SELECT count(*) || ' ' || count(*) FILTER (WHERE score = 1) FROM gpuvec_topk_rows(NULL::parts, 'tokens', $set, 1200)});

$node->safe_psql('postgres', q{
	CREATE TABLE parts (id int, part int, tokens idset) PARTITION BY LIST (part);
	CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1) WITH (fillfactor = 50);
	CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2) WITH (fillfactor = 50);
	CREATE TABLE parts_3 PARTITION OF parts FOR VALUES IN (3) WITH (fillfactor = 50);
	INSERT INTO parts SELECT i, 1 + i % 3, ARRAY[1, i + 100]::idset FROM generate_series(1, 900) i;});

# Locks of the injection point's: which are held, and which are waited for
sub wait_for_locks
{
	my ($held, $waiting) = @_;
	return $node->poll_query_until('postgres', q{SELECT coalesce(string_agg(mode, ' ' ORDER BY mode) FILTER (WHERE granted), '') || ', ' ||
		coalesce(string_agg(mode, ' ' ORDER BY mode) FILTER (WHERE NOT granted), '') FROM pg_locks WHERE locktype = 'advisory'}, "$held, $waiting");
}

for my $name (sort keys %searches)
{
	my $search = $searches{$name};
	my ($session, $holder, $next_holder) = map { $node->background_psql('postgres') } 1 .. 3;

	# the first engine counts many refreshes
	for my $i (1 .. 10)
	{
		$node->safe_psql('postgres', "UPDATE parts SET id = id WHERE id BETWEEN $i AND $i + 2");
		$node->safe_psql('postgres', "VACUUM $_") for 'parts_1', 'parts_2', 'parts_3';
		ask($session, $search);
	}
	my $expected = ask($session, $search);
	my $old = engine_pid($node);
	$node->safe_psql('postgres', q{CREATE TABLE parts_4 PARTITION OF parts FOR VALUES IN (4);
		INSERT INTO parts SELECT i, 4, ARRAY[4000 + i]::idset FROM generate_series(1, 900) i});
	$node->safe_psql('postgres', 'VACUUM parts_4');
	ask($session, "SELECT count(*) FROM gpuvec_topk('$_', 'tokens', $set, 10)") for 'parts_1', 'parts_2', 'parts_3';

	# the session is let go on from the first partition to the second
	ask($holder, 'SELECT pg_advisory_lock(71866, 0)');
	ask($session, q{SET gpuvec.injection_point = 'ask-before-position'});
	$session->query_until(qr/started/, "\\echo started\n$search;\n");
	wait_for_locks('ExclusiveLock', 'ShareLock');
	$next_holder->query_until(qr/queued/, "\\echo queued\nSELECT pg_advisory_lock(71866, 0);\n");
	wait_for_locks('ExclusiveLock', 'ExclusiveLock ShareLock');
	ask($holder, 'SELECT pg_advisory_unlock(71866, 0)');
	wait_for_locks('ExclusiveLock', 'ShareLock');
	# (a row beside them is deleted, so that transactions do not tell who
	# sees their pages)
	$node->safe_psql('postgres', "INSERT INTO parts SELECT 9000 + n, 1, $set FROM generate_series(0, 1) n; DELETE FROM parts WHERE id = 9001");
	kill 'KILL', $old;
	wait_for(sub { !kill(0, $old) }, 'the end of the engine');
	isnt($node->safe_psql('postgres', $search), $expected, "$name: another session finds the new rows");
	isnt(engine_pid($node), $old, "$name: with another engine");
	is($node->safe_psql('postgres', q{SELECT string_agg(loads || ' ' || refreshes, ', ') FROM gpuvec_mirrors WHERE relation IN ('parts_1'::regclass, 'parts_2', 'parts_3')}),
		'1 0, 1 0, 1 0', "$name: which has counted one refresh of each");
	ask($next_holder, 'SELECT pg_advisory_unlock(71866, 0)');
	is(ask($session, q{SET gpuvec.injection_point = ''}), $expected, "$name: the session does not find them: its snapshot is older");
	$_->quit for $session, $holder, $next_holder;
	$node->safe_psql('postgres', 'DROP TABLE parts_4; DELETE FROM parts WHERE id = 9000');
}
$node->stop;
done_testing();
