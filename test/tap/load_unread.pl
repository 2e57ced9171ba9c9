# Clients that do not read their sockets: nothing is sent to them while others wait for the mirror that they load or
# refresh, whatever they load, whatever messages they want, and however it ends.
use strict;
use warnings;

use GpuvecTest;
use GpuvecUnread;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# nobody takes over a load, which would hide that it makes no step
my $node = new_node('main', conf => "gpuvec.load_patience = '1h'\ngpuvec.verify = off\nmax_worker_processes = 20\nmax_parallel_workers = 12\n");
my $rows = 'i, ARRAY[i % 97, i % 89 + 100, i % 83 + 200]::idset';
$node->safe_psql('postgres', qq{
	CREATE ROLE reader SUPERUSER LOGIN;
	CREATE TABLE docs (id int, tokens idset); INSERT INTO docs SELECT $rows FROM generate_series(1, 20000) i;
	CREATE TABLE indexed (LIKE docs); INSERT INTO indexed TABLE docs; CREATE INDEX ON indexed USING gpuvec (tokens);
	CREATE TABLE exprs (LIKE docs); INSERT INTO exprs TABLE docs; CREATE INDEX ON exprs USING gpuvec ((tokens | 7::int8));
	CREATE TABLE parts (LIKE docs) PARTITION BY HASH (id);
	CREATE TABLE part0 PARTITION OF parts FOR VALUES WITH (MODULUS 3, REMAINDER 0);
	CREATE TABLE part1 PARTITION OF parts FOR VALUES WITH (MODULUS 3, REMAINDER 1);
	CREATE TABLE part2 PARTITION OF parts FOR VALUES WITH (MODULUS 3, REMAINDER 2); INSERT INTO parts TABLE docs;
	CREATE TABLE vectors (key bigint, vector real[]); INSERT INTO vectors SELECT i, ARRAY[i, 1] FROM generate_series(1, 9000) i;});
my $room = room_of_socket($node, 'reader');
note("a socket takes $room bytes");

my $serial = 'SET max_parallel_workers_per_gather = 0;';
my $parallel = 'SET max_parallel_workers_per_gather = 3; SET min_parallel_table_scan_size = 0;';
my %statements = (
	prewarm => q{SELECT gpuvec_prewarm('docs', 'tokens')},
	search => q{SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{1,101}', 10)},
	order => q{SELECT id FROM indexed ORDER BY tokens <-> '{1,101}' LIMIT 3},
	expression => q{SELECT id FROM exprs ORDER BY (tokens | 7::int8) <-> '{1,101}' LIMIT 3},
	partitions => q{SELECT count(*) FROM gpuvec_topk('parts', 'tokens', '{1,101}', 10)},
	embedding => q{SELECT gpuvec_pool('vectors', 'key', 'vector', '{4,8000}')});
my $set = 'SET enable_seqscan = off; SET enable_sort = off;';

# a client whose next message waits once it has got a value of this length, which sends a statement
sub begin_unread
{
	my ($length, $settings, $sql) = @_;
	my $client = unread_client($node, 'reader');

	send_query($client, "$set $settings SELECT 1");
	read_results($client);
	send_query($client, "SELECT repeat('x', $length); $sql");
	return $client;
}

# once the client's session waits for its client, or is done, it has no lock of a mirror
sub has_no_lock
{
	my ($name, $client) = @_;
	my $state = '';

	wait_for(sub { ($state = client_state($node, $client)) =~ /^(idle|ClientWrite|gone)/ }, $name);
	like($state, qr/^(idle|ClientWrite|gone) 0$/, "$name: no lock");
	return;
}

sub ask_all
{
	my ($name) = @_;

	for (sort keys %statements)
	{
		my ($rc, $out, $err) = $node->psql('postgres', "$set SET statement_timeout = '60s'; $statements{$_}");
		is("$rc $err", '0 ', "$name: others, $_");
	}
	return;
}

sub evict { $node->safe_psql('postgres', 'SELECT gpuvec_evict_all()'); return; }

# ---- loads, in whatever way ----

for my $how ([ 'serial', $serial ], [ 'parallel', $parallel ])
{
	for my $statement (sort keys %statements)
	{
		evict();
		my $client = begin_unread($room, "$how->[1] SET client_min_messages = debug1;", $statements{$statement});
		has_no_lock("$how->[0], $statement", $client);
		close $client->{socket};
	}
}
ask_all('debug1');

# more messages come before: the socket has room for some of them
for my $level (qw(debug2 debug3 debug5 log notice))
{
	for my $spare (0, 3000, 9000, 20000, 60000)
	{
		evict();
		my $client = begin_unread($room - $spare, "$parallel SET client_min_messages = $level;", $statements{$spare % 2 ? 'partitions' : 'prewarm'});
		has_no_lock("$level, $spare bytes left", $client);
		close $client->{socket};
	}
}
ask_all('other levels');

# ---- refreshes ----

for my $freshness (qw(wal sweep))
{
	for my $statement (qw(search order partitions embedding))
	{
		my $client = unread_client($node, 'reader');
		send_query($client, "$set SET gpuvec.freshness = $freshness; $statements{$statement}"); read_results($client);
		$node->safe_psql('postgres', q{UPDATE docs SET id = id WHERE id % 10 = 1; UPDATE indexed SET id = id WHERE id % 10 = 1; UPDATE parts SET tokens = tokens WHERE id % 10 = 1; UPDATE vectors SET vector = vector WHERE key % 10 = 1});
		send_query($client, 'SET client_min_messages = debug1'); read_results($client);
		send_query($client, "SELECT repeat('x', $room); $statements{$statement}");
		has_no_lock("refresh, $freshness, $statement", $client);
		close $client->{socket};
	}
}
ask_all('refreshes');

# ---- errors, and ends of sessions, in the middle ----

my $holder = $node->background_psql('postgres');
for my $point (qw(load-after-position load-after-first-page load-before-commit))
{
	for my $end (qw(pg_cancel_backend pg_terminate_backend))
	{
		for my $how ([ 'serial', $serial ], [ 'parallel', $parallel ])
		{
			evict();
			ask($holder, 'SELECT pg_advisory_lock(71866, 0)');
			my $client = begin_unread($room, "$how->[1] SET gpuvec.injection_point = '$point';", $statements{prewarm});
			my $state = '';

			wait_for(sub { ($state = client_state($node, $client)) =~ /^advisory 1/ }, "$point reached") or diag($state);
			$node->safe_psql('postgres', "SELECT $end($client->{pid})");
			wait_for(sub { client_state($node, $client) !~ /^(active|advisory)/ }, "$point, $end");
			has_no_lock("$end at $point, $how->[0]", $client);
			# nor do others wait for the engine
			my ($rc, $out, $err) = $node->psql('postgres', "SET statement_timeout = '60s'; $statements{prewarm}");
			is("$rc $out", '0 20000', "$end at $point, $how->[0]: another session loads");
			ask($holder, 'SELECT pg_advisory_unlock(71866, 0)');
			close $client->{socket};
		}
	}
}
$holder->quit;

# the client gets the error when it reads, as ever
my $holding = $node->background_psql('postgres');
evict();
ask($holding, 'SELECT pg_advisory_lock(71866, 0)');
my $client = begin_unread(10, "SET gpuvec.injection_point = 'load-after-first-page';", $statements{search});
wait_for(sub { client_state($node, $client) =~ /^advisory 1/ }, 'a load');
$node->safe_psql('postgres', "SELECT pg_cancel_backend($client->{pid})");
my $results = read_results($client);
is(() = $results =~ /canceling statement due to user request/g, 1, 'the error reaches the client');
like($results, qr/57014/, 'with its code');
send_query($client, 'SELECT 11 * 11');
like(read_results($client), qr/121/, 'and the session goes on');
ask($holding, 'SELECT pg_advisory_unlock(71866, 0)');
$holding->quit;

best($node, 'all rows');
$node->stop;
done_testing();
