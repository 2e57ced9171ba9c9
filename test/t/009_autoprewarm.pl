# What was resident before a restart is resident again after it, without any search.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', streaming => 1, conf => "shared_preload_libraries = 'gpuvec'\n");

sub list_file
{
	my ($server) = @_;
	return $server->data_dir . '/gpuvec.autoprewarm';
}

# The mirrors that can be searched, as oids of the relations
sub resident
{
	my ($server) = @_;
	return $server->safe_psql('postgres',
		q{SELECT string_agg(relation::text, ' ' ORDER BY relation) FROM gpuvec_stat_mirrors() WHERE state = 'ready'});
}

# The relations that the file lists, in its order
sub listed
{
	my ($server) = @_;
	return 'no list' if !-e list_file($server);
	my ($first, @lines) = split /\n/, slurp_file(list_file($server));
	return join(' ', map { (split ' ')[1] } @lines);
}

# Wait until a function gives this
sub becomes
{
	my ($got, $expected, $name) = @_;
	wait_for(sub { $got->() eq $expected }, $name);
	is($got->(), $expected, $name);
	return;
}

# How often the log says something
sub says
{
	my ($server, $pattern, $from) = @_;
	my @hits = substr(slurp_file($server->logfile), $from // 0) =~ /$pattern/g;
	return scalar @hits;
}

sub log_size
{
	my ($server) = @_;
	return length slurp_file($server->logfile);
}

# How often sessions have searched
sub searches
{
	my ($server) = @_;
	return $server->safe_psql('postgres', 'SELECT requests FROM gpuvec_engine');
}

my %oid;
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION gpuvec');
for (['postgres', 'docs'], ['postgres', 'gone'], ['postgres', 'changed'], ['other', 'papers'])
{
	my ($database, $table) = @$_;
	$node->safe_psql($database, "CREATE TABLE $table (id int, tokens idset);
		INSERT INTO $table SELECT i, ARRAY[i % 97, i % 89 + 100, i % 83 + 200]::idset FROM generate_series(1, 5000) i");
	$oid{$table} = $node->safe_psql($database, "SELECT '$table'::regclass::oid");
}

# the list follows what is resident, the last searched first
becomes(sub { -e list_file($node) ? 'yes' : 'no' }, 'no', 'no list without mirrors');
$node->safe_psql('postgres', q{SELECT gpuvec_prewarm('gone', 'tokens')});
$node->safe_psql('postgres', q{SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{1}', 5)});
$node->safe_psql('other', q{SELECT count(*) FROM gpuvec_topk('papers', 'tokens', '{1}', 5)});
becomes(sub { listed($node) }, "$oid{papers} $oid{docs} $oid{gone}", 'the list');
$node->safe_psql('postgres', q{SELECT gpuvec_prewarm('changed', 'tokens')});
becomes(sub { listed($node) }, "$oid{papers} $oid{docs} $oid{gone} $oid{changed}", 'one more mirror');
is((stat list_file($node))[2] & 0777, 0600, 'the list is private');
is($node->safe_psql('postgres', 'SELECT sessions FROM gpuvec_engine'), '1', 'the leader does not stay connected to the engine');

# the engine alone is killed: the next one is served as after a restart
my $engine = engine_pid($node);
kill 'KILL', $engine;
wait_for(sub { engine_pid($node) =~ /^(?!$engine$)\d+$/ }, 'another engine');
becomes(sub { resident($node) }, join(' ', sort { $a <=> $b } values %oid), 'a killed engine: all are resident in the next');
is(searches($node), '0', 'a killed engine: nobody searched');
becomes(sub { listed($node) }, "$oid{papers} $oid{docs} $oid{gone} $oid{changed}", 'a killed engine: the list is as before');

# killed again, right after it: no second time within a minute, but nothing is forgotten
$engine = engine_pid($node);
kill 'KILL', $engine;
wait_for(sub { engine_pid($node) =~ /^(?!$engine$)\d+$/ }, 'another engine');
sleep 7;
is(resident($node), '', 'killed again: nothing is loaded at once');
is(listed($node), "$oid{papers} $oid{docs} $oid{gone} $oid{changed}", 'killed again: the list stays');

# after a restart: all but the tables that are there no more, in both databases
my $all = join(' ', sort { $a <=> $b } @oid{qw(docs papers)});
$node->safe_psql('postgres', 'DROP TABLE gone; ALTER TABLE changed ALTER tokens TYPE int[] USING tokens::int[]');
my $from = log_size($node);
$node->restart;
becomes(sub { resident($node) }, $all, 'restart: both are resident');
is(searches($node), '0', 'restart: nobody searched');
becomes(sub { listed($node) }, "$oid{papers} $oid{docs}", 'restart: the list is that of what is resident');
is($node->safe_psql('postgres', q{SELECT string_agg(loads::text, ' ') FROM gpuvec_stat_mirrors()}), '1 1', 'restart: each was loaded once');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'gpuvec autoprewarm worker'}), '0', 'no worker stays');
is(says($node, 'autoprewarm could not|FATAL|PANIC', $from), 0, 'restart: no trouble in the log');
best($node, 'restart');

# a crash
$node->stop('immediate');
$node->start;
becomes(sub { resident($node) }, $all, 'crash: both are resident');

$node->stop;
done_testing();
