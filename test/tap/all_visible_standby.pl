# A standby finds out for itself which pages everybody sees all rows of: by the snapshots of
# its own sessions, and by the transactions that it takes for running.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary', streaming => 1, conf => "max_prepared_transactions = 5\nautovacuum = off\n");
$primary->safe_psql('postgres', q{CREATE TABLE docs (id int, tokens idset, embedding real[]);
	INSERT INTO docs SELECT i, ARRAY[7, i + 100]::idset, ARRAY[i, 1] FROM generate_series(1, 400) i;
	CREATE VIEW found AS SELECT
		(SELECT array_agg(tid ORDER BY tid) FROM gpuvec_topk('docs', 'tokens', '[7]', 5000)) IS NOT DISTINCT FROM (SELECT array_agg(ctid ORDER BY ctid) FROM docs) AS sets,
		(SELECT array_agg(key ORDER BY key) FROM gpuvec_nearest('docs', 'id', 'embedding', ARRAY[1, 1], 5000)) IS NOT DISTINCT FROM (SELECT array_agg(id::bigint ORDER BY id) FROM docs) AS nearest,
		(SELECT count(*) FROM docs) AS rows});
$primary->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'b', has_streaming => 1);
$standby->append_conf('postgresql.conf', "hot_standby_feedback = off\nmax_standby_streaming_delay = -1\ngpuvec.verify = off\n");
$standby->start;

# how many rows had to be looked at
sub unproven
{
	my $plan = $standby->safe_psql('postgres', 'EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) SELECT * FROM found');
	my $sum = 0;
	$sum += $1 while $plan =~ /Rows Not Proven: (\d+)/g;
	return $sum;
}

sub found
{
	my ($rows, $name) = @_;
	is($standby->safe_psql('postgres', 'SELECT * FROM found'), "t|t|$rows", $name);
}

# change SQL: on the primary, and wait until the standby has it
sub change
{
	$primary->safe_psql('postgres', $_[0]);
	$primary->wait_for_catchup($standby, 'replay');
}

sub insert_sql { return "INSERT INTO docs SELECT i, ARRAY[7, i + 100]::idset, ARRAY[i, 1] FROM generate_series($_[0], $_[1]) i"; }

found(400, 'the first rows');
is(unproven(), 0, 'no row has to be looked at');

# a snapshot of the standby that does not see what comes
my $old = $standby->background_psql('postgres', on_error_stop => 0);
ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ');
is(ask($old, 'SELECT * FROM found'), 't|t|400', 'the old snapshot');
change(insert_sql(401, 450));
found(450, 'new rows beside the old snapshot');
cmp_ok(unproven(), '>', 0, 'they are looked at');
is(ask($old, 'SELECT * FROM found'), 't|t|400', 'the old snapshot does not see them');
change('DELETE FROM docs WHERE id <= 20');
found(430, 'deleted rows beside the old snapshot');
is(ask($old, 'SELECT * FROM found'), 't|t|400', 'the old snapshot sees them');
ask($old, 'COMMIT');
is(ask($old, 'SELECT * FROM found'), 't|t|430', 'a new snapshot of that session');

# a transaction that runs on the primary, with more subtransactions than a standby keeps track of
my $writer = $primary->background_psql('postgres', on_error_stop => 0);
ask($writer, 'BEGIN; DELETE FROM docs WHERE id BETWEEN 21 AND 30');
ask($writer, q{DO $$ BEGIN FOR i IN 501 .. 700 LOOP BEGIN } . q{INSERT INTO docs VALUES (i, ARRAY[7, i + 100]::idset, ARRAY[i, 1]);}
	. q{ EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$});
# the WAL of other transactions takes that along
change(insert_sql(471, 480));
found(440, 'what a running transaction does is not seen');
ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ');
is(ask($old, 'SELECT * FROM found'), 't|t|440', 'nor by a snapshot that stays');
ask($writer, 'COMMIT');
$primary->wait_for_catchup($standby, 'replay');
found(630, 'it has committed');
is(ask($old, 'SELECT * FROM found'), 't|t|440', 'which the old snapshot does not see');
ask($old, 'COMMIT');

# a prepared transaction, and one that is rolled back
change('BEGIN; DELETE FROM docs WHERE id BETWEEN 501 AND 510; ' . insert_sql(801, 805) . q{; PREPARE TRANSACTION 'p'});
found(630, 'a prepared transaction is not seen');
change(q{COMMIT PREPARED 'p'});
found(625, 'until it commits');
change('BEGIN; DELETE FROM docs WHERE id BETWEEN 511 AND 520; ROLLBACK');
found(625, 'what is rolled back does not count');

# loaded anew, all is proven, by the map or without it
$standby->safe_psql('postgres', q{SELECT gpuvec_evict('docs')});
found(625, 'loaded anew');
change('VACUUM docs');
found(625, 'after VACUUM');
is(unproven(), 0, 'no row has to be looked at after VACUUM');

# promotion: the engine goes on with what it has
ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ');
is(ask($old, 'SELECT * FROM found'), 't|t|625', 'a snapshot before promotion');
$standby->promote;
$standby->safe_psql('postgres', insert_sql(901, 910));
found(635, 'rows of the promoted server');
is(ask($old, 'SELECT * FROM found'), 't|t|625', 'the snapshot of before does not see them');
$standby->safe_psql('postgres', 'DELETE FROM docs WHERE id BETWEEN 100 AND 109');
found(625, 'deletions of the promoted server');
is(ask($old, 'SELECT * FROM found'), 't|t|625', 'nor these');
ask($old, 'COMMIT');
$_->quit for $old, $writer;
$_->stop for $standby, $primary;
done_testing();
