# Interactions that parallel workers read: the same factors as without them, to the bit, and only where all rows may be seen.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

# what workers share is used again and again, where the server can do that (from
# PostgreSQL 14 on), and then it is not zeroed
my $node = new_node('main', started => 0);
$node->append_conf('postgresql.conf', "min_dynamic_shared_memory = '64MB'") if $node->pg_version >= 14;
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION gpuvec');
my $contents = q{SELECT md5(string_agg(r::text, ',' ORDER BY r::text)) FROM (TABLE users UNION ALL TABLE items) r};
my $few = 'SET max_parallel_workers_per_gather = 0;';
my $many = 'SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 3; SET client_min_messages = debug1;';
my $workers = qr/DEBUG:  gpuvec_als: [1-3] parallel workers read/;

sub train
{
	my ($table) = @_;
	return "SELECT round(min(loss)::numeric, 9) FROM gpuvec_als('$table', 'u', 'i', 'users', 'items', 'w', factors => 6, iterations => 2);";
}

sub fold_in
{
	my ($users) = @_;
	return "SELECT count(*), md5(string_agg(f::text, ',' ORDER BY key)) FROM gpuvec_als_fold_in('events', 'u', 'i', 'items', $users, 'w') f;";
}

# What a statement prints, and whether workers have read for it
sub run
{
	my ($sql) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', $sql);
	return ($out, $err =~ $workers ? 1 : 0, $err);
}

# A statement with workers and without: the same answer, and the same factors afterwards
sub same
{
	my ($name, $statement, $expected, $before) = @_;
	$before //= '';
	my ($alone, $none) = run("$before $few $statement $contents");
	my ($together, $some) = run("$before $many $statement $contents");

	is($none, 0, "$name: no workers without the setting");
	is($some, $expected, $expected ? "$name: workers" : "$name: no workers");
	like($alone, qr/\w{32}$/, "$name: an answer");
	is($together, $alone, "$name: the same");
	return;
}

$node->safe_psql('postgres', q{CREATE DOMAIN small AS int2;
	CREATE TABLE rows AS SELECT (n * 7919 % 301)::int AS u, (n * n % 97)::int AS i,
		CASE WHEN n % 41 = 0 THEN NULL WHEN n % 37 = 0 THEN 0 WHEN n % 29 = 0 THEN -1 ELSE n % 5 + 0.3 END AS w FROM generate_series(1, 30000) n;
	INSERT INTO rows VALUES (NULL, 1, 1), (1, NULL, 1);
	CREATE TABLE events (pad text, w numeric, i bigint, u int);
	INSERT INTO events SELECT 'x', w, i, u FROM rows;
	CREATE TABLE smalls (u small, w float4, i int2);
	INSERT INTO smalls SELECT u, w, i FROM rows;
	CREATE TABLE larges (u int8, i int8, w float8);
	INSERT INTO larges SELECT u * 10000000000, i * 10000000000, w FROM rows;
	CREATE TABLE users (key bigint PRIMARY KEY, embedding real[]);
	CREATE TABLE items (key bigint PRIMARY KEY, embedding real[]);
	ANALYZE});

same("table $_", train($_), 1) for qw(events smalls larges);
same('serializable', train('events'), 1, 'BEGIN ISOLATION LEVEL SERIALIZABLE;');
same('rows of the same transaction', train('events'), 1, 'BEGIN; INSERT INTO events SELECT NULL, 2, 7, n % 50 FROM generate_series(1, 2000) n; DELETE FROM events WHERE u = 3;');
$node->safe_psql('postgres', train('events'));
same('all users', fold_in('NULL'), 1);
same('many users', fold_in("ARRAY(SELECT n::int8 FROM generate_series(1, 200) n) || '{NULL,5000000000,-3,7}'::int8[]"), 1);
same('many other users, in the same memory', fold_in("ARRAY(SELECT n::int8 FROM generate_series(150, 349) n) || '{NULL,5000000000,-3,7}'::int8[]"), 1);
same('a few users without an index', fold_in("'{3,7,NULL,9}'"), 1);
# more of them than the planner gets to see; of an array full of nulls it sees none
my $very_many = "ARRAY(SELECT n::int8 * 3 - 3000 FROM generate_series(1, 4000) n) || '{NULL,5000000000,7,7}'::int8[]";
same('very many users', fold_in($very_many), 1);
same('very many users, hardly any with rows', fold_in('ARRAY(SELECT n + 299 FROM generate_series(1, 5000) n)'), 1);
same('very many users, most of them null', fold_in("array_fill(NULL::int8, '{5000}') || '{7,NULL,3}'::int8[]"), 1);
is((run("$few " . fold_in("array_fill(NULL::int8, '{5000}') || '{7,NULL,3}'::int8[]")))[0], (run("$few " . fold_in("'{3,7}'")))[0], 'nulls are no users');
same('no users of these', fold_in("ARRAY(SELECT n FROM generate_series(1000, 1100) n)"), 1);

# not everybody may see all rows, and not all rows are in the table
$node->safe_psql('postgres', q{CREATE VIEW seen AS SELECT * FROM events WHERE u < 100;
	CREATE TABLE parts (LIKE events) PARTITION BY HASH (u);
	CREATE TABLE part PARTITION OF parts FOR VALUES WITH (MODULUS 1, REMAINDER 0);
	INSERT INTO parts TABLE events;
	CREATE TABLE parent (LIKE events); CREATE TABLE child () INHERITS (parent);
	INSERT INTO parent SELECT * FROM events WHERE u < 100; INSERT INTO child SELECT * FROM events WHERE u >= 100;
	CREATE ROLE reader; GRANT ALL ON users, items TO reader; GRANT SELECT (u, i, w) ON events TO reader;
	CREATE TABLE guarded (LIKE events); INSERT INTO guarded TABLE events;
	ALTER TABLE guarded ENABLE ROW LEVEL SECURITY; CREATE POLICY few ON guarded USING (u < 100); GRANT SELECT ON guarded TO reader;
	ANALYZE});
same($_, train($_), 0) for qw(seen parent);
same('partitions', train('parts'), 0);
same('temporary', train('private'), 0, 'CREATE TEMP TABLE private AS TABLE events;');
same('own rights', train('events'), 1, 'SET ROLE reader;');
same('row-level security', train('guarded'), 0, 'SET ROLE reader;');
(my $fold_guarded = fold_in($very_many)) =~ s/'events'/'guarded'/;
same('row-level security and very many users', $fold_guarded, 0, 'SET ROLE reader;');
same('its owner', train('guarded'), 1);
same('no worker to be had', train('events'), 0, 'SET max_parallel_workers = 0;');
$node->safe_psql('postgres', 'REVOKE SELECT (w) ON events FROM reader');
my ($out, $some, $err) = run("$many SET ROLE reader;" . train('events'));
like($err, qr/ERROR:  permission denied for table events/, 'no right to read a column');
is($some, 0, 'no workers');

# few users by an index
$node->safe_psql('postgres', 'CREATE INDEX ON larges (u); ANALYZE larges');
(my $fold_few = fold_in('ARRAY(SELECT n * 10000000000 FROM generate_series(1, 10) n)')) =~ s/'events'/'larges'/;
$node->safe_psql('postgres', train('larges'));
same('few users by an index', $fold_few, 0, 'SET enable_seqscan = off; SET max_parallel_workers_per_gather = 1;');

(my $fold_more = fold_in('ARRAY(SELECT n * 10000000000 FROM generate_series(1, 1500) n)')) =~ s/'events'/'larges'/;
same('many users by an index, as there are no workers for a large part', $fold_more, 0, 'SET enable_seqscan = off; SET enable_bitmapscan = off; SET max_parallel_workers = 0;');

# known items: read by workers, and more than memory for them holds
$node->safe_psql('postgres', q{CREATE TABLE known (i int8, pad text, u int8);
	INSERT INTO known SELECT (n::int8 * n % 397 - 100) * 30000000000, 'x', (n * 7919::int8 % 601 - 300) * 10000000000 FROM generate_series(1, 120000) n;
	INSERT INTO known SELECT NULL, 'x', 10000000000 FROM generate_series(1, 10) UNION ALL SELECT 30000000000, 'x', NULL;
	CREATE TABLE their (key bigint PRIMARY KEY, embedding real[]); CREATE TABLE these (key bigint PRIMARY KEY, embedding real[]);
	INSERT INTO their SELECT (n - 310) * 10000000000, ARRAY[sin(n), cos(n), 1]::real[] FROM generate_series(0, 620) n;
	INSERT INTO these SELECT (n - 110) * 30000000000, ARRAY[sin(3 * n), cos(5 * n), sin(n)]::real[] FROM generate_series(0, 420) n;
	CREATE TABLE some_known (LIKE known); INSERT INTO some_known TABLE known; GRANT SELECT ON some_known, their, these TO reader;
	ALTER TABLE some_known ENABLE ROW LEVEL SECURITY; CREATE POLICY few ON some_known USING (u > 0); ANALYZE});

sub recommend
{
	my ($table, $users) = @_;
	return "SELECT count(*), md5(string_agg(r::text, ',' ORDER BY user_key, rank)) FROM gpuvec_recommend('their', 'these', $users, 5, '$table', 'u', 'i') r;";
}

# Ranks that differ from those of all items without the known ones
sub wrong_ranks
{
	my ($table) = @_;
	return "SELECT count(*) FROM (SELECT user_key, rank::int8, item_key FROM gpuvec_recommend('their', 'these', NULL, 5, '$table', 'u', 'i')) a
		FULL JOIN (SELECT * FROM (SELECT user_key, row_number() OVER (PARTITION BY user_key ORDER BY rank) AS rank, item_key FROM gpuvec_recommend('their', 'these', NULL, 2000) r
			WHERE NOT EXISTS (SELECT FROM $table WHERE u = user_key AND i = item_key)) n WHERE rank <= 5) b USING (user_key, rank, item_key) WHERE a IS NULL OR b IS NULL;";
}
my $few_users = 'ARRAY(SELECT (n - 200) * 10000000000 FROM generate_series(1, 250) n)';
same("known items of $_->[0]", recommend('known', $_->[1]), 1, "SET work_mem = '64kB';") for ['all users', 'NULL'], ['many users', $few_users];
for my $case ([$few, 'known'], [$many, 'known'], ["SET ROLE reader; $few", 'some_known'], ["SET ROLE reader; $many", 'some_known'])
{
	my ($out, undef, $err) = run("SET work_mem = '64kB'; $case->[0] " . wrong_ranks($case->[1]));
	is($out, '0', "known items as plain SQL has them: $case->[0]") or diag($err);
}
same('known items and row-level security', recommend('some_known', 'NULL'), 0, 'SET ROLE reader;');
$node->safe_psql('postgres', 'REVOKE SELECT ON some_known FROM reader');
like((run("$many SET ROLE reader;" . recommend('some_known', 'NULL')))[2], qr/ERROR:  permission denied for table some_known/, 'no right to read known items');
(my $held = recommend('known', 'NULL')) =~ s/^SELECT .*? FROM/DECLARE c CURSOR WITH HOLD FOR SELECT * FROM/;
is($node->safe_psql('postgres', "BEGIN; SET LOCAL work_mem = '64kB'; $held FETCH 1 FROM c; SAVEPOINT s; ROLLBACK TO s; COMMIT; MOVE ALL FROM c"), $node->safe_psql('postgres', "BEGIN; $held FETCH 1 FROM c; COMMIT"), 'a cursor that outlives its transaction');

# a worker fails
$node->safe_psql('postgres', train('events'));
my $before = $node->safe_psql('postgres', $contents);
$node->safe_psql('postgres', q{CREATE TABLE bad (LIKE larges); INSERT INTO bad TABLE larges; INSERT INTO bad VALUES (5, 6, 'NaN')});
($out, $some, $err) = run("$many " . train('bad'));
like($err, qr/ERROR:  weight of user 5 and item 6 is not a finite number/, 'a weight that cannot be used');
is($node->safe_psql('postgres', $contents), $before, 'the factors are as they were');

# canceled while the engine takes nothing
my $engine = engine_pid($node);
stop_processes($engine);
($out, $some, $err) = run("SET statement_timeout = '1s'; $many " . train('events'));
kill 'CONT', $engine;
like($err, qr/canceling statement due to statement timeout|lost the connection/, 'canceled');
ok(wait_for(sub { $node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'}) eq '0' }, 'the end of workers'), 'no workers are left');
is($node->safe_psql('postgres', $contents), $before, 'canceled: the factors are as they were');
same('after all that', train('events'), 1);

$node->stop;
done_testing();
