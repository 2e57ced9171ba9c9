# Copies of tables, indexes and databases that are no more go within seconds, and can be told apart and evicted by number.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', streaming => 1, conf => "wal_level = replica\n");
$node->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'b', has_streaming => 1);
$standby->start;

# What the engine has, of one table or of all
sub copies
{
	my ($server, $oid, $db) = @_;
	my $where = $oid ? "WHERE relation = $oid" : '';
	return $server->safe_psql($db // 'postgres', "SELECT string_agg(kind, ' ' ORDER BY kind) FROM gpuvec_stat_mirrors() $where");
}

sub oid_of { my ($table, $db) = @_; return $node->safe_psql($db // 'postgres', "SELECT '$table'::regclass::oid"); }
sub search { my ($server, $table) = @_; return $server->safe_psql('postgres', "SELECT count(*) FROM gpuvec_topk('$table', 'tokens', '{1,101}', 5)"); }
sub wait_copies
{
	my ($server, $oid, $wanted, $name) = @_;
	ok(wait_for(sub { copies($server, $oid) eq $wanted }, $name), $name) or diag(copies($server, $oid));
	return;
}

# the engine's copy of a table that nobody touches is to stay, though nobody uses it
make_docs($node, 2000, 'kept');
search($node, 'kept');
my $kept = oid_of('kept');

# the file of the rows goes
my %way = (
	'DROP TABLE' => 'DROP TABLE t', 'TRUNCATE' => 'TRUNCATE t', 'VACUUM FULL' => 'VACUUM FULL t',
	'a table cut down to nothing' => 'DELETE FROM t; VACUUM t',
	'another type' => 'ALTER TABLE t ALTER id TYPE bigint',
	'DROP SCHEMA' => 'CREATE SCHEMA s; ALTER TABLE t SET SCHEMA s; DROP SCHEMA s CASCADE',
	'an embedding table' => 'DROP TABLE e');
for my $name (sort keys %way)
{
	make_docs($node, 2000, 't');
	$node->safe_psql('postgres', 'CREATE TABLE e AS SELECT i AS id, ARRAY[i, 1]::real[] AS v FROM generate_series(1, 2000) i');
	search($node, 't');
	$node->safe_psql('postgres', q{SELECT gpuvec_prewarm('e', 'id', 'v')});
	my $oid = oid_of($name =~ /embedding/ ? 'e' : 't');
	$node->wait_for_catchup($standby, 'replay');
	search($standby, 't');
	is(copies($node, $oid), 'rows', "$name: there is a copy");
	my $before = $node->safe_psql('postgres', 'SELECT memory_used FROM gpuvec_engine');
	$node->safe_psql('postgres', $_) for split /; /, $way{$name};
	wait_copies($node, $oid, '', "$name: the copy goes");
	cmp_ok($node->safe_psql('postgres', 'SELECT memory_used FROM gpuvec_engine'), '<', $before, "$name: its memory is freed");
	$node->wait_for_catchup($standby, 'replay');
	wait_copies($standby, $oid, '', "$name: on a standby, too");
	$node->safe_psql('postgres', "DROP TABLE IF EXISTS $_") for 't', 'e', 's.t';
}

# a whole database
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', q{CREATE EXTENSION gpuvec; CREATE TABLE o AS SELECT ARRAY[i % 9]::idset AS tokens FROM generate_series(1, 500) i; SELECT gpuvec_prewarm('o', 'tokens')});
my $other = oid_of('o', 'other');
is(copies($node, $other), 'rows', 'DROP DATABASE: there is a copy');
$node->safe_psql('postgres', 'DROP DATABASE other');
wait_copies($node, $other, '', 'DROP DATABASE: the copy goes');

# indexes: one copy of the column at a time, one of each index with an expression or predicate
make_docs($node, 2000, 't');
my $oid = oid_of('t');
search($node, 't');
$node->safe_psql('postgres', 'CREATE INDEX t_part ON t USING gpuvec (tokens) WHERE id > 1000');
$node->safe_psql('postgres', q{SET enable_seqscan = off; SET enable_sort = off; SELECT id FROM t WHERE id > 1000 ORDER BY tokens <-> '{1}' LIMIT 1});
$node->safe_psql('postgres', 'CREATE INDEX t_tokens ON t USING gpuvec (tokens)');
search($node, 't');
is(copies($node, $oid), 'chains index rows', 'CREATE INDEX: copies can be told apart');
is($node->safe_psql('postgres', "SELECT count(*) FROM gpuvec_mirrors WHERE relation_oid = $oid AND file = pg_relation_filenode($oid) AND attnum = 2 AND database_oid = (SELECT oid FROM pg_database WHERE datname = 'postgres')"),
	copies($node, $oid) =~ tr/ // + 1, 'with file, column and database');
wait_copies($node, $oid, 'chains index', 'CREATE INDEX: the copy without it goes');
$node->safe_psql('postgres', 'DROP INDEX t_part');
wait_copies($node, $oid, 'chains', 'DROP INDEX: the copy of a predicate goes');
$node->safe_psql('postgres', 'DROP INDEX t_tokens');
search($node, 't');
wait_copies($node, $oid, 'rows', 'DROP INDEX: the copy of the column goes when it is not used any more');
$node->safe_psql('postgres', 'CREATE INDEX t_tokens ON t USING gpuvec (tokens)');
search($node, 't');
wait_copies($node, $oid, 'chains', 'and the other way round');
$node->safe_psql('postgres', 'DROP INDEX t_tokens');
wait_copies($node, $oid, '', 'DROP INDEX: it goes though nobody searches');

# the catalog changes its mind about the same file
make_docs($node, 100, 'm');
$node->safe_psql('postgres', q{ALTER TABLE m ADD more idset DEFAULT '{1,2}'});
$node->safe_psql('postgres', q{SELECT gpuvec_prewarm('m', 'more')});
$node->safe_psql('postgres', 'GRANT TEMPORARY ON DATABASE postgres TO pg_monitor');
$node->safe_psql('postgres', q{SELECT gpuvec_prewarm('m', 'more')});
wait_copies($node, oid_of('m'), 'rows', 'of two copies of the same the older one goes');

# what was not touched, is
is($node->safe_psql('postgres', "SELECT kind, state, loads FROM gpuvec_stat_mirrors() WHERE relation = $kept"), 'rows|ready|1', 'the copy of a table that nobody touched is there');
best($node, 'afterwards', 'kept');
$standby->stop;
$node->stop;

# evicting by number, which the sweeper is kept from being faster than
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'no-sweep';
	$node->start;
}
make_docs($node, 2000, $_) for 'd1', 'd2';
my ($d1, $d2) = map { search($node, $_); oid_of($_) } 'd1', 'd2';
$node->safe_psql('postgres', 'CREATE ROLE reader LOGIN; CREATE ROLE owner LOGIN; CREATE DATABASE owned OWNER owner; DROP TABLE d1, d2');
is(copies($node, $d1), 'rows', 'a copy of a dropped table');
my ($rc, $out, $err) = $node->psql('postgres', "SELECT gpuvec_evict($d1)", extra_params => [ '-U', 'reader' ]);
like($err, qr/must be owner of the database to evict relation with OID $d1, which does not exist/, 'not for everybody');
is($node->safe_psql('postgres', "SELECT gpuvec_evict($d1), gpuvec_evict($d1)"), '1|0', 'it is evicted by number');
is(copies($node, $d2), 'rows', 'no other is');
$node->safe_psql('owned', q{CREATE EXTENSION gpuvec; CREATE TABLE o AS SELECT ARRAY[i % 9]::idset AS tokens FROM generate_series(1, 500) i; SELECT gpuvec_prewarm('o', 'tokens')});
$other = oid_of('o', 'owned');
$node->safe_psql('owned', 'DROP TABLE o');
is($node->safe_psql('owned', "SELECT gpuvec_evict($other)", extra_params => [ '-U', 'owner' ]), '1', "it is for the database's owner");
search($node, 'kept');
($rc, $out, $err) = $node->psql('postgres', 'SELECT gpuvec_evict_all()', extra_params => [ '-U', 'reader' ]);
like($err, qr/permission denied for function gpuvec_evict_all/, 'gpuvec_evict_all is not for everybody');
is($node->safe_psql('owned', 'SELECT gpuvec_evict_all()'), '2', 'gpuvec_evict_all evicts all, of any database');
is(copies($node), '', 'nothing is left');
is($node->safe_psql('postgres', 'SELECT count(*) FROM gpuvec_costs WHERE resident'), '0', 'and the planner knows');
$node->safe_psql('postgres', 'GRANT EXECUTE ON FUNCTION gpuvec_evict_all() TO reader');
search($node, 'kept');
is($node->safe_psql('postgres', 'SELECT gpuvec_evict_all()', extra_params => [ '-U', 'reader' ]), '1', 'it can be granted');
$node->stop;
done_testing();
