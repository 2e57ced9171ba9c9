# Rows in the order of a filter column, range by range: where the engine goes
# away between two ranges, where there is none, and on a standby.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary', streaming => 1);

# the rows that have id 8 are all old, so that there are ranges without any
$primary->safe_psql('postgres', q{
	CREATE TABLE docs (id int, created timestamptz, tokens idset) WITH (autovacuum_enabled = off);
	INSERT INTO docs SELECT i, CASE WHEN i % 50 > 0 THEN timestamptz '2026-01-01' + i * 7919 % 20011 * interval '1 minute' END,
		ARRAY[i % 5, CASE WHEN i * 7919 % 20011 < 4000 THEN 8 ELSE 9 END]::idset FROM generate_series(1, 20000) i;
	CREATE INDEX docs_tokens ON docs USING gpuvec (tokens, created);
	VACUUM ANALYZE docs});
$primary->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'b', has_streaming => 1);
$standby->append_conf('postgresql.conf', "shared_preload_libraries = 'gpuvec'\n");
$standby->start;

my %queries = (
	'newest' => q{SELECT id FROM docs WHERE tokens && '{3}' ORDER BY created DESC NULLS LAST, id},
	'oldest' => q{SELECT id FROM docs WHERE tokens && '{3}' ORDER BY created, id},
	'nulls first' => q{SELECT id FROM docs WHERE tokens && '{3}' ORDER BY created DESC, id},
	'newest of the old' => q{SELECT id FROM docs WHERE tokens && '{8}' ORDER BY created DESC NULLS LAST, id});
my $by_ranges = 'SET enable_seqscan = off';
my $by_sort = 'SET enable_bitmapscan = off; SET enable_indexscan = off';

# Compare the rows of all queries with those of a sequential scan and a sort
sub compare
{
	my ($node, $name) = @_;

	for my $query (sort keys %queries)
	{
		for my $limit (20, 150)
		{
			my $limited = "$queries{$query} LIMIT $limit";

			is($node->safe_psql('postgres', "$by_ranges; $limited"), $node->safe_psql('postgres', "$by_sort; $limited"), "$name: $query, $limit rows");
		}
	}
	return;
}

for my $query (sort keys %queries)
{
	like($primary->safe_psql('postgres', "$by_ranges; EXPLAIN $queries{$query} LIMIT 20"), qr/gpuvec ranges/, "the plan: $query");
}
compare($primary, 'with an engine');

# cursors that have returned a few rows go on without the engine: each row once
for my $fetched (0, 1, 50, 150)
{
	my $session = $primary->background_psql('postgres', on_error_stop => 0);
	my %begun;

	ask($session, "$by_ranges; SET client_min_messages = error; BEGIN ISOLATION LEVEL REPEATABLE READ");
	for my $query (sort keys %queries)
	{
		my $name = $query =~ tr/ /_/r;

		ask($session, "DECLARE $name CURSOR FOR $queries{$query}");
		$begun{$query} = ask($session, "FETCH $fetched FROM $name");
	}
	$primary->append_conf('postgresql.conf', "gpuvec.engine_program = '/nonexistent/gpuvec-engine'");
	$primary->reload;
	my $old = $primary->safe_psql('postgres', 'SELECT pid FROM gpuvec_engine');
	kill 'KILL', $old if $old;
	$primary->safe_psql('postgres', 'INSERT INTO docs SELECT -id, created, tokens FROM docs WHERE id % 100 = 3; DELETE FROM docs WHERE id < 0');
	for my $query (sort keys %queries)
	{
		my $name = $query =~ tr/ /_/r;
		my $rest = ask($session, "FETCH ALL FROM $name");

		is(join("\n", grep { $_ ne '' } $begun{$query}, $rest), $primary->safe_psql('postgres', "$by_sort; $queries{$query}"),
			"the engine goes away behind $fetched rows: $query");
	}
	ask($session, 'COMMIT');
	$session->quit;
	compare($primary, 'without an engine') if $fetched == 0;
	$primary->append_conf('postgresql.conf', "gpuvec.engine_program = '$ENV{GPUVEC_ENGINE_PROGRAM}'");
	$primary->reload;
	wait_for(sub { $primary->psql('postgres', "$by_ranges; $queries{newest} LIMIT 20"); $primary->safe_psql('postgres', 'SELECT count(*) FROM gpuvec_engine') eq '1' }, 'the engine');
}
compare($primary, 'with an engine again');

# a standby, while rows come, go and move
$primary->safe_psql('postgres', q{
	DELETE FROM docs WHERE id % 7 = 0;
	UPDATE docs SET created = created - interval '5 days' WHERE id % 11 = 0;
	INSERT INTO docs SELECT id + 100000, created + interval '14 days', tokens FROM docs WHERE id % 13 = 0});
$primary->wait_for_catchup($standby, 'replay');
compare($standby, 'a standby');
$primary->safe_psql('postgres', 'VACUUM docs');
$primary->wait_for_catchup($standby, 'replay');
compare($standby, 'a standby behind a vacuum');
$standby->promote;
$standby->safe_psql('postgres', q{UPDATE docs SET created = now() WHERE id % 17 = 0});
compare($standby, 'a promoted standby');
done_testing();
