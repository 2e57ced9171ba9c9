# Recommending, explaining and folding in: canceled while the engine searches, without an engine, and while the engine is killed
# between two rows.
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

# the engine is killed after the first batch: the next one is searched for without it, or with the next engine
my $session = $node->background_psql('postgres');
ask($session, "BEGIN; DECLARE rows CURSOR FOR SELECT r::text AS row FROM gpuvec_recommend('users', 'items', NULL, 5, 'events', 'u', 'i') r; CREATE TEMP TABLE seen (row text)");
my $first = ask($session, 'FETCH 3 FROM rows');
kill 'KILL', engine_pid($node);
my $rest = ask($session, 'SET client_min_messages = error; FETCH ALL FROM rows');
my @rows = sort(split(/\n/, "$first\n$rest"));
is(scalar(@rows), $node->safe_psql('postgres', $recommend =~ s/md5.* FROM gpuvec/count(*) FROM gpuvec/r), 'the engine is killed between two rows: all rows');
is(join("\n", @rows), join("\n", sort(split(/\n/, $node->safe_psql('postgres', $recommend =~ s/md5.* FROM gpuvec/r FROM gpuvec/r)))), 'they are right');
ask($session, 'COMMIT');
$session->quit;
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
