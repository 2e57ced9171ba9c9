# Keys and ids that were chosen to want the same place in a hash table: whoever knows the
# hash function, but not the engine's secret, cannot keep the engine busy with them.
use strict;
use warnings;
no warnings 'portable';

use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
my $folder = $node->basedir;

# ---- the inverse of MurmurHash3's finalizers (core/hash_secret.h) ----

sub times { use integer; return $_[0] * $_[1]; }

# What makes 1 of an odd number by multiplication, modulo 2^64 and so modulo 2^32
sub inverse
{
	use integer;
	my ($odd) = @_;
	my $x = $odd;
	$x = $x * (2 - $odd * $x) for 1 .. 6;
	return $x;
}

# A product of 64 bits, or its lowest 32
sub product { my ($a, $b, $bits) = @_; return unpack('Q', pack('q', main::times($a, $b))) & ($bits == 64 ? ~0 : 0xFFFFFFFF); }

my @of_key = map { inverse($_) } 0xc4ceb9fe1a85ec53, 0xff51afd7ed558ccd;
my @of_id = map { inverse($_) } 0xC2B2AE35, 0x85EBCA6B;

sub key_of
{
	my ($hash) = @_;
	$hash = product($hash ^ $hash >> 33, $_, 64) for @of_key;
	return unpack 'q', pack 'Q', $hash ^ $hash >> 33;
}

sub id_of
{
	my ($hash) = @_;
	$hash = product($hash ^ $hash >> 16, $of_id[0], 32);
	$hash = product($hash ^ $hash >> 13 ^ $hash >> 26, $of_id[1], 32);
	return $hash ^ $hash >> 16;
}

sub hash_of_key
{
	my ($key) = @_;
	my $hash = unpack 'Q', pack 'q', $key;
	$hash = product($hash ^ $hash >> 33, $_, 64) for 0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53;
	return $hash ^ $hash >> 33;
}

sub hash_of_id
{
	my ($hash) = @_;
	$hash = product($hash ^ $hash >> 16, 0x85EBCA6B, 32);
	$hash = product($hash ^ $hash >> 13, 0xC2B2AE35, 32);
	return $hash ^ $hash >> 16;
}

# all want the first place, whatever the size of the table is
my @keys = map { key_of($_ << 40) } 0 .. 99_999;
# 128 ids want each of the first places of the first part of the table
my @ids = map { id_of(($_ & 127) << 19 | $_ >> 7) } 128 .. 120_127;
# as many as a vector has, which want one of 16 places
my @summed = map { id_of($_ << 16) } 0 .. 65_535;

is(hash_of_key($keys[777]), 777 << 40, 'the inverse of the hash of keys');
is(hash_of_id($ids[0]), 1, 'the inverse of the hash of ids');

append_to_file("$folder/summed", join("\n", @summed) . "\n");
append_to_file("$folder/keys", join("\n", @keys) . "\n");
append_to_file("$folder/sets", join("\n", map { my $n = $_; '{' . join(',', @ids[$n * 40_000 .. $n * 40_000 + 39_999]) . '}' } 0 .. 2) . "\n");
$node->safe_psql('postgres', qq{CREATE TABLE chosen (key int8 PRIMARY KEY, v float4[] NOT NULL DEFAULT '{1,2}'); COPY chosen (key) FROM '$folder/keys';
	CREATE TABLE summed (id int8); COPY summed FROM '$folder/summed';
	CREATE TABLE sets (tokens idset); COPY sets FROM '$folder/sets';
	CREATE TABLE one AS SELECT '{1}'::idset AS tokens; SELECT gpuvec_prewarm('one', 'tokens');
	CREATE TABLE users (id int8 PRIMARY KEY, factor float4[]); CREATE TABLE items (id int8 PRIMARY KEY, factor float4[]); CREATE VIEW plays AS SELECT key AS u, abs(key % 10) AS i FROM chosen});

# Seconds of the processor that a process needs meanwhile
sub seconds
{
	my ($pid, $work) = @_;
	die 'no process' unless $pid =~ /^[0-9]+$/;
	my @before = split ' ', slurp_file("/proc/$pid/stat");

	$work->();
	my @after = split ' ', slurp_file("/proc/$pid/stat");
	return ($after[-39] + $after[-38] - $before[-39] - $before[-38]) / 100;
}

# Those of the engine for a statement
sub engine_seconds
{
	my ($sql) = @_;
	return seconds(engine_pid($node), sub { $node->safe_psql('postgres', $sql) });
}

# two seconds and more without a secret
cmp_ok(engine_seconds(q{SELECT gpuvec_prewarm('chosen', 'key', 'v')}), '<', 1, 'keys of an embedding table');
cmp_ok(engine_seconds(q{SELECT * FROM gpuvec_als('plays', 'u', 'i', 'users', 'items', factors => 2, iterations => 1)}), '<', 1, 'keys of users that are trained');
cmp_ok(engine_seconds(q{SELECT gpuvec_prewarm('sets', 'tokens')}), '<', 1, 'ids of sets');

# of two partitions a session collects the vectors itself
$node->safe_psql('postgres', q{CREATE TABLE halves (key int8, v float4[]) PARTITION BY LIST ((key % 2)); CREATE TABLE halves_0 PARTITION OF halves FOR VALUES IN (0);
	CREATE TABLE halves_1 PARTITION OF halves FOR VALUES IN (1, -1)});
my $session = $node->background_psql('postgres');
my $pid = ask($session, 'SELECT pg_backend_pid()');
my $found;
cmp_ok(seconds($pid, sub { $found = ask($session, q{SELECT count(*) FROM gpuvec_gather('halves', 'key', 'v', (SELECT array_agg(key) FROM chosen)) g}) }), '<', 1, 'keys that a session collects');
is($found, '100000', 'all of them');
$session->quit;

# another session has drawn no secret yet
$session = $node->background_psql('postgres');
$pid = ask($session, 'SELECT pg_backend_pid()');
cmp_ok(seconds($pid, sub { $found = ask($session, q{SELECT idvec_sum(idvec_agg(id, 1)) FROM generate_series(1, 5), summed}) }), '<', 1.5, 'ids that a session adds up');
is($found, '327680', 'all of them');
$session->quit;

$node->stop;
done_testing();
