# Crash restarts, standbys, backups.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary', streaming => 1, conf => "synchronous_commit = off\nwal_writer_delay = 10s\n");
make_docs($primary, 3000);
best($primary, 'primary');

# the socket of a running engine disturbs no backup
$primary->backup('b');
ok(!-e $primary->backup_dir . '/b/pg_stat_tmp/gpuvec.sock', 'the socket is in no backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'b', has_streaming => 1);
$standby->start;

for my $round (1 .. 10)
{
	$primary->safe_psql('postgres', "DELETE FROM docs WHERE id % 10 = $round % 10");
	$primary->safe_psql('postgres', 'VACUUM docs') if $round % 2;
	$primary->safe_psql('postgres', "INSERT INTO docs SELECT i, ARRAY[i % 97, i % 89 + 100, $round, 401]::idset
		FROM generate_series(${round}0000, ${round}0000 + 300) i; UPDATE docs SET tokens = tokens | 1 WHERE id % 50 = $round");
	$primary->wait_for_catchup($standby, 'replay');
	my $there = $primary->safe_psql('postgres', GpuvecTest::search_sql('docs'));
	is($there, brute_force($primary), "round $round: primary");
	is($standby->safe_psql('postgres', GpuvecTest::search_sql('docs')), $there, "round $round: standby");
}

# a backend crashes: shared memory is lost, and with it all that an engine knew
my $session = $primary->background_psql('postgres', on_error_stop => 0);
my $backend = ask($session, 'SELECT pg_backend_pid()');
my $engine = engine_pid($primary);
$primary->append_conf('postgresql.conf', 'restart_after_crash = on');
$primary->reload;
$primary->psql('postgres', q{INSERT INTO docs VALUES (999999, '{1,50,101,150,201,250,301,350,401}')});
is(ask($session, q{SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{1,50,101,150,201,250,301,350,401}', 1, 'jaccard', 1)}), '1', 'an unflushed row is found');
kill 'KILL', $backend;
eval { $session->quit; };
$primary->poll_query_until('postgres', 'SELECT 1', '1');
wait_for(sub { !kill(0, $engine) }, 'the end of the engine');
ok(!kill(0, $engine), 'the engine of before the crash is gone');
best($primary, 'after the crash');

# promotion
$primary->safe_psql('postgres', 'CHECKPOINT');
$primary->wait_for_catchup($standby, 'replay');
$primary->stop;
$standby->promote;
best($standby, 'promoted');
$standby->safe_psql('postgres', q{DELETE FROM docs WHERE id % 3 = 0; INSERT INTO docs VALUES (777777, '{1,50,101}')});
best($standby, 'promoted and changed');
$engine = engine_pid($standby);
$standby->stop('immediate');
no_leftovers($standby, $engine, 'immediate stop');
$standby->start;
best($standby, 'recovered');
$standby->stop;

# preloaded: the engine starts with the server
$primary->append_conf('postgresql.conf', "shared_preload_libraries = 'gpuvec'");
$primary->start;
wait_for(sub { $primary->safe_psql('postgres', 'SELECT count(*) FROM gpuvec_engine') eq '1' }, 'the engine');
is($primary->safe_psql('postgres', 'SELECT requests FROM gpuvec_engine'), '0', 'preloaded: the engine runs before any search');
best($primary, 'preloaded');
my $old = supervisor_pid($primary);
$primary->safe_psql('postgres', "SELECT pg_terminate_backend($old)");
best($primary, 'preloaded: after the supervisor was terminated');
$engine = engine_pid($primary);
$primary->stop;
no_leftovers($primary, $engine, 'preloaded: stop');

# dump and restore
$primary->start;
$primary->safe_psql('postgres', q{CREATE VIEW v AS SELECT * FROM gpuvec_topk('docs', 'tokens', '{1}', 5);
	CREATE MATERIALIZED VIEW m AS SELECT d.* FROM gpuvec_topk('docs', 'tokens', '{1}', 5) t JOIN docs d ON d.ctid = t.tid;
	CREATE INDEX ON docs (tokens); CREATE TABLE keys (s idset PRIMARY KEY); INSERT INTO keys VALUES ('{}'), ('{1,65535}')});
my $dump = $primary->basedir . '/dump';
$primary->command_ok(['pg_dump', '-Fc', '-f', $dump, $primary->connstr('postgres')], 'pg_dump');
$primary->safe_psql('postgres', 'CREATE DATABASE copy');
$primary->command_ok(['pg_restore', '-d', $primary->connstr('copy'), $dump], 'pg_restore');
is($primary->safe_psql('copy', 'SELECT count(*), sum(cardinality(tokens)) FROM docs'),
	$primary->safe_psql('postgres', 'SELECT count(*), sum(cardinality(tokens)) FROM docs'), 'restored rows');
is($primary->safe_psql('copy', 'SELECT count(*) FROM v, m'), '25', 'restored views');
$primary->stop;
done_testing();
