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

# after a range without rows the engine tells where the others are; also of
# rows in the same order whose values lie far apart, and if most are deleted
sub ranges
{
	my ($query) = @_;

	$primary->safe_psql('postgres', "$by_ranges; EXPLAIN (ANALYZE, COSTS OFF) $query") =~ /Ranges: (\d+)/ or return 'none';
	return $1;
}
is(ranges("$queries{'newest of the old'} LIMIT 20"), 2, 'ranges of rows that are all old');
is(ranges("$queries{'newest of the old'} LIMIT 700"), 2, '.. most of them');
$primary->safe_psql('postgres', q{
	CREATE TABLE uneven AS SELECT i AS id, timestamptz '2020-01-01' + interval '1 second' * (2.0 ^ (i % 29) + i) AS created, CASE WHEN i % 29 > 14 THEN '{8}' ELSE '{9}' END::idset AS tokens FROM generate_series(1, 20000) i;
	CREATE INDEX ON uneven USING gpuvec (tokens, created);
	VACUUM ANALYZE uneven});
my $uneven = q{SELECT id FROM uneven WHERE tokens && '{8}' ORDER BY created, id LIMIT};
for my $limit (20, 500, 3000)
{
	is($primary->safe_psql('postgres', "$by_ranges; $uneven $limit"), $primary->safe_psql('postgres', "$by_sort; $uneven $limit"), "values far apart, $limit rows");
}
is(join(' ', map { ranges("$uneven $_") } 20, 100, 500), '3 3 2', 'ranges of values far apart');
$primary->safe_psql('postgres', q{DELETE FROM uneven WHERE id % 29 < 17});
is($primary->safe_psql('postgres', "$by_ranges; $uneven 20"), $primary->safe_psql('postgres', "$by_sort; $uneven 20"), 'many of the first rows are deleted');

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
