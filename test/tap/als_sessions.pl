# Trainings beside sessions that fold in, recommend and explain: each answer is that of its snapshot.  Then interactions in
# foreign tables.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => "max_connections = 40\n");
my $dir = $node->basedir;

$node->safe_psql('postgres', q{
	CREATE TABLE events (u int, i int, w float4 DEFAULT 1);
	INSERT INTO events SELECT u, i FROM generate_series(1, 300) u, generate_series(1, 30) i WHERE (u * i) % 7 < 2;
	CREATE INDEX ON events (u);
	CREATE TABLE users (key bigint PRIMARY KEY, embedding real[]);
	CREATE TABLE items (key bigint PRIMARY KEY, embedding real[]);
	SELECT count(*) FROM gpuvec_als('events', 'u', 'i', 'users', 'items', 'w', factors => 4, iterations => 2);
	VACUUM ANALYZE;

	CREATE FUNCTION dot(a real[], b real[]) RETURNS float8 LANGUAGE sql IMMUTABLE AS
		'SELECT sum(x::float8 * y::float8) FROM unnest(a, b) e (x, y)';
	-- a user is folded in alone as with all others; factors and scores are those of one training
	CREATE FUNCTION folded(who int8) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		r record;
	BEGIN
		WITH together AS MATERIALIZED (SELECT * FROM gpuvec_als_fold_in('events', 'u', 'i', 'items', NULL, 'w')),
			alone AS MATERIALIZED (SELECT * FROM gpuvec_als_fold_in('events', 'u', 'i', 'items', ARRAY[who, who + 1], 'w'))
		SELECT (SELECT count(*) FROM alone) AS rows, (SELECT count(DISTINCT u) FROM events JOIN items ON key = i WHERE u IN (who, who + 1)) AS expected,
			(SELECT count(*) FROM alone LEFT JOIN together t USING (key) WHERE t.embedding IS DISTINCT FROM alone.embedding) AS differ,
			(SELECT count(DISTINCT cardinality(embedding)) FROM (TABLE users UNION ALL TABLE items) f) AS widths INTO r;
		IF r.rows <> r.expected OR r.differ > 0 OR r.widths > 1 THEN RAISE EXCEPTION 'mistake: folding in %: %', who, r; END IF;
	END $$;
	CREATE FUNCTION recommended(who int8) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		r record;
	BEGIN
		WITH found AS MATERIALIZED (SELECT * FROM gpuvec_recommend('users', 'items', ARRAY[who], 5, 'events', 'u', 'i')),
			scored AS MATERIALIZED (SELECT y.key, dot(x.embedding, y.embedding) AS s FROM users x, items y
				WHERE x.key = who AND NOT EXISTS (SELECT FROM events WHERE u = x.key AND i = y.key))
		SELECT (SELECT count(*) FROM found) AS rows, (SELECT least(count(*), 5) FROM scored) AS expected,
			(SELECT count(*) FROM found LEFT JOIN scored ON key = item_key WHERE abs(s - score) < 1e-6 IS NOT TRUE) AS wrong,
			(SELECT min(score) FROM found) < (SELECT max(s) FROM scored WHERE key NOT IN (SELECT item_key FROM found)) - 1e-6 AS others INTO r;
		IF r.rows <> r.expected OR r.wrong > 0 OR r.others THEN RAISE EXCEPTION 'mistake: recommending to %: %', who, r; END IF;
	END $$;});
my %scripts = (train => q{
\set seed random(1, 1000)
\set factors random(2, 6)
SELECT count(*) FROM gpuvec_als('events', 'u', 'i', 'users', 'items', 'w', factors => :factors, iterations => 1, seed => :seed);
VACUUM items, users;
\sleep 300 ms
}, change => q{
\set u random(1, 320)
\set i random(1, 32)
BEGIN;
INSERT INTO events VALUES (:u, :i, 2);
DELETE FROM events WHERE u = :u + 1 AND i = :i;
UPDATE items SET embedding = embedding WHERE key = :i;
COMMIT;
\sleep 20 ms
DELETE FROM items WHERE key = :i;
\sleep 50 ms
}, folded => q{
\set u random(1, 320)
SELECT folded(:u);
}, recommended => q{
\set u random(1, 320)
SELECT recommended(:u);
});
append_to_file("$dir/$_.sql", $scripts{$_}) for keys %scripts;
my @errors = ('') x 3;
my @outs = ('') x 3;
my @runs = (start_pgbench($node, \$outs[0], \$errors[0], '-c', 2, '-T', 8, '-f', "$dir/train.sql"),
	start_pgbench($node, \$outs[1], \$errors[1], '-c', 4, '-T', 8, '-f', "$dir/folded.sql", '-f', "$dir/recommended.sql"),
	start_pgbench($node, \$outs[2], \$errors[2], '-c', 1, '-T', 8, '-f', "$dir/change.sql"));
$_->finish for @runs;
is(join("\n", grep { /ERROR/ && !/deadlock detected/ } split(/\n/, join("\n", @errors))), '', 'every answer is that of its snapshot');
like($outs[$_], qr/actually processed: [1-9]/, "sessions were busy: $_") for 0 .. 2;
is($node->safe_psql('postgres', 'SELECT count(*) FROM gpuvec_training'), '0', 'no training is left');
is($node->safe_psql('postgres', 'SELECT restarts FROM gpuvec_engine'), '0', 'the engine lived');

# foreign tables
SKIP:
{
	skip 'there is no postgres_fdw', 6
		if $node->safe_psql('postgres', q{SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw'}) eq '0';
	my ($host, $port) = ($node->host, $node->port);

	$node->safe_psql('postgres', qq{CREATE EXTENSION postgres_fdw;
		CREATE SERVER here FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'postgres');
		CREATE USER MAPPING FOR CURRENT_USER SERVER here;
		CREATE FOREIGN TABLE far_events (u int, i int, w float4) SERVER here OPTIONS (table_name 'events');
		CREATE FOREIGN TABLE far_items (key bigint, embedding real[]) SERVER here OPTIONS (table_name 'items');
		CREATE TABLE users2 (LIKE users INCLUDING ALL); CREATE TABLE items2 (LIKE items INCLUDING ALL)});
	my $contents = sub { my ($n) = @_; return "SELECT md5(string_agg(r::text, ',' ORDER BY r::text)) FROM (TABLE users$n UNION ALL TABLE items$n) r" };
	$node->safe_psql('postgres', "SELECT count(*) FROM gpuvec_als('$_->[0]', 'u', 'i', 'users$_->[1]', 'items$_->[1]', 'w', factors => 4, iterations => 3)")
		for [ 'events', '' ], [ 'far_events', '2' ];
	is($node->safe_psql('postgres', $contents->('2')), $node->safe_psql('postgres', $contents->('')), 'a training on a foreign table');
	my $fold = sub { my ($events, $items, $users) = @_; return "SELECT md5(string_agg(f::text, ',' ORDER BY key)) FROM gpuvec_als_fold_in('$events', 'u', 'i', '$items', $users, 'w', key_column => 'key') f" };
	for my $users ('NULL', "'{3,4}'")
	{
		my $right = $node->safe_psql('postgres', $fold->('events', 'items', $users));

		is($node->safe_psql('postgres', $fold->('far_events', 'items', $users)), $right, "folding in $users from a foreign table");
		is($node->safe_psql('postgres', $fold->('events', 'far_items', $users)), $right, "folding in $users with a foreign table of items");
	}
	my $recommend = q{SELECT md5(string_agg(r::text, ',' ORDER BY r::text)) FROM gpuvec_recommend('users', 'items', NULL, 5, 'events', 'u', 'i') r};
	is($node->safe_psql('postgres', $recommend =~ s/'events'/'far_events'/r), $node->safe_psql('postgres', $recommend), 'known items of a foreign table');
}
$node->stop;
done_testing();
