# Recommending, explaining and folding in: canceled while the engine searches, without an engine, and while factors change and the
# engine is killed between two rows.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', started => 0);
my $recommend = q{SELECT md5(string_agg(r::text, ',' ORDER BY r::text)) FROM gpuvec_recommend('users', 'items', NULL, 5, 'events', 'u', 'i') r};
my $explain = q{SELECT md5(string_agg(item_key || ' ' || round(contribution::numeric, 6), ',')) FROM gpuvec_als_explain('events', 'u', 'i', 'items', 3, 4)};
my $fold_in = q{SELECT md5(string_agg(f::text, ',')) FROM gpuvec_als_fold_in('events', 'u', 'i', 'items', '{3,4}') f};

$node->start;
$node->safe_psql('postgres', q{CREATE EXTENSION gpuvec;
	CREATE TABLE events (u int, i int);
	INSERT INTO events SELECT u, i FROM generate_series(1, 3000) u, generate_series(1, 20) i WHERE (u * i) % 7 < 2;
	CREATE TABLE users (key bigint PRIMARY KEY, embedding real[]);
	CREATE TABLE items (key bigint PRIMARY KEY, embedding real[]);
	SELECT count(*) FROM gpuvec_als('events', 'u', 'i', 'users', 'items', factors => 4, iterations => 2);
	VACUUM users, items});
my %right = map { $_ => $node->safe_psql('postgres', $_) } $recommend, $explain, $fold_in;

# After the first batch others change all factors of items, and the engine is killed: the next batches are of the statement's
# snapshot, and searched for without the engine, or with the next one.
my $rows = "SELECT concat_ws(' ', user_key, rank, item_key, score) FROM gpuvec_recommend('users', 'items', NULL, 5, 'events', 'u', 'i')";
like($node->safe_psql('postgres', "EXPLAIN $rows"), qr/Custom Scan/, 'rows are returned one by one');
my $right = join("\n", sort(split(/\n/, $node->safe_psql('postgres', $rows))));
my $session = $node->background_psql('postgres');
ask($session, "BEGIN; DECLARE rows CURSOR FOR $rows");
my $first = ask($session, 'FETCH 3 FROM rows');
$node->safe_psql('postgres', 'UPDATE items SET embedding = ARRAY[key, -key, 1, key * key]');
kill 'KILL', engine_pid($node);
my $rest = ask($session, 'SET client_min_messages = error; FETCH ALL FROM rows');
my @rows = sort(split(/\n/, "$first\n$rest"));
is(scalar(@rows), scalar(my @expected = split(/\n/, $right)), 'changed and killed between two rows: all rows');
is(join("\n", @rows), $right, 'they are right');
ask($session, 'COMMIT');
$session->quit;
isnt($node->safe_psql('postgres', $recommend), $right{$recommend}, 'another answer with another snapshot');
$right{$_} = $node->safe_psql('postgres', $_) for $recommend, $explain, $fold_in;
$node->stop;

# an engine that would take longer than the test may
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'slow-search:3600000';
	$node->start;
	for my $statement ($recommend, $explain, $fold_in)
	{
		my ($rc, $out, $err) = $node->psql('postgres', "SET statement_timeout = '1s'; $statement");
		like($err, qr/canceling statement due to statement timeout/, "canceled: $statement");
	}
	$node->stop;
}

# no engine: those that search and explain need none, folding in does
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'crash-at-start';
	$node->start;
	is($node->safe_psql('postgres', $_), $right{$_}, "without an engine: $_") for $recommend, $explain;
	my ($rc, $out, $err) = $node->psql('postgres', $fold_in);
	like($err, qr/ERROR:  the gpuvec engine is not available/, 'folding in without an engine');
	$node->stop;
}
$node->start;
is($node->safe_psql('postgres', $_), $right{$_}, "in the end: $_") for $recommend, $explain, $fold_in;
$node->stop;
done_testing();
