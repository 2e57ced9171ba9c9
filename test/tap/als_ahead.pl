# Recommendations that the engine looks for ahead, while rows are returned: the rows of the statement, whatever the session, others and
# the engine do meanwhile.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
my $rows = q{SELECT concat_ws(' ', user_key, rank, item_key, score) FROM gpuvec_recommend('users', 'items', NULL, 5, 'events', 'u', 'i')};

$node->safe_psql('postgres', q{CREATE TABLE events (u int, i int);
	INSERT INTO events SELECT u, i FROM generate_series(1, 4000) u, generate_series(1, 20) i WHERE (u * i) % 7 < 2;
	CREATE TABLE users (key bigint PRIMARY KEY, embedding real[]);
	CREATE TABLE items (key bigint PRIMARY KEY, embedding real[]);
	INSERT INTO users SELECT n, ARRAY[sin(n), cos(n), sin(2 * n), cos(3 * n)]::real[] FROM generate_series(1, 4000) n;
	INSERT INTO items SELECT n, ARRAY[sin(5 * n), cos(7 * n), sin(n), cos(n)]::real[] FROM generate_series(1, 40) n;
	VACUUM users, items});

sub sorted { return join("\n", sort(grep { $_ ne '' } map { split(/\n/, $_) } @_)); }


my $right = sorted($node->safe_psql('postgres', $rows));
is(scalar(my @all = split(/\n/, $right)), 20000, 'all rows');

# what was asked for ahead is not asked for again
my $searches = q{SELECT sum(searches) FROM gpuvec_mirrors WHERE relation = 'items'::regclass};
my $before = $node->safe_psql('postgres', $searches);
is(sorted($node->safe_psql('postgres', $rows)), $right, 'the same rows');
cmp_ok($node->safe_psql('postgres', $searches) - $before, '<', 5000, 'few users are asked for twice');

# A cursor in the midst of the second batch, so that the engine looks for the third one.  Then something happens, and the rest follows.
sub midway
{
	my ($name, $session, @happens) = @_;
	ask($session, "BEGIN; DECLARE rows CURSOR FOR $rows");
	my $first = ask($session, 'FETCH 2000 FROM rows');
	$_->() for @happens;
	my $rest = ask($session, 'FETCH ALL FROM rows');
	ask($session, 'COMMIT');
	is(sorted($first, $rest), $right, $name);
	return;
}

my $session = $node->background_psql('postgres');
ask($session, 'SET client_min_messages = error');
my $near = q{SELECT count(*) FROM gpuvec_nearest('items', 'key', 'embedding', '{1,2,3,4}', 7)};
midway('nothing else', $session);
midway('another search in the session', $session, sub { is(ask($session, $near), '7', 'its answer') });
midway('a training in the session', $session, sub {
	is(ask($session, q{CREATE TEMP TABLE a (key bigint PRIMARY KEY, embedding real[]); CREATE TEMP TABLE b (key bigint PRIMARY KEY, embedding real[]);
		SELECT count(*) FROM gpuvec_als('events', 'u', 'i', 'a', 'b', factors => 4, iterations => 2)}), '2', 'a training') });
midway('another cursor', $session, sub {
	ask($session, "DECLARE others CURSOR FOR $rows");
	my $first = ask($session, 'FETCH 2500 FROM others');
	is(sorted($first, ask($session, 'FETCH ALL FROM others')), $right, 'the rows of the other one') });
midway('an error in a subtransaction', $session, sub {
	ask($session, "DO \$\$ DECLARE n int = 0; r record; BEGIN
		FOR r IN $rows LOOP n = n + 1; IF n = 2000 THEN RAISE division_by_zero; END IF; END LOOP;
		EXCEPTION WHEN division_by_zero THEN END \$\$") });
midway('the engine is killed', $session, sub { kill 'KILL', engine_pid($node) });
midway('factors change', $session, sub { $node->safe_psql('postgres', 'UPDATE items SET embedding = ARRAY[key, -key, 1, key * key]; VACUUM items') });
$right = sorted($node->safe_psql('postgres', $rows));

# a cursor that is closed, or whose transaction ends, while the engine looks for more
for my $end ('CLOSE rows', 'ROLLBACK')
{
	ask($session, "BEGIN; DECLARE rows CURSOR FOR $rows");
	ask($session, 'FETCH 2000 FROM rows');
	ask($session, $end);
	is(ask($session, $near), '7', "another search after $end");
	ask($session, 'ROLLBACK');
	midway("after $end", $session);
}

# rows that must be looked at: each request names them but once
ask($session, 'BEGIN; UPDATE items SET embedding = embedding; SAVEPOINT s');
is(sorted(ask($session, $rows)), $right, 'rows of pages that are not all-visible');
ask($session, 'ROLLBACK');

# rescanned midway, first while the engine looks for the third batch
my $users = $node->safe_psql('postgres', q{SELECT user_key FROM gpuvec_recommend('users', 'items', NULL, 5, 'events', 'u', 'i') OFFSET 3000 LIMIT 1}) . ',1700,3000,20';
my $items = join(',', map { $right =~ /^$_ 5 (\d+) /m ? $1 : 'NULL' } split(/,/, $users));
my $exists = "SELECT string_agg(n::text, ',' ORDER BY n) FROM generate_series(1, 4) n WHERE EXISTS (SELECT FROM gpuvec_recommend('users', 'items', NULL, 5, 'events', 'u', 'i')
	WHERE user_key - (ARRAY[$users])[n] = 0 AND item_key - (ARRAY[$items])[n] = 0 AND rank = 5)";
my $plan = "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off; SET max_parallel_workers_per_gather = 0;";
like($node->safe_psql('postgres', "$plan EXPLAIN $exists"), qr/Nested Loop Semi Join.*\n.*\n.*Function Scan.*\n.*Custom Scan \(gpuvec function\)/, 'a plan that rescans');
my ($rc, $out, $err) = $node->psql('postgres', "$plan $exists");
is($out, '1,2,3,4', 'rescanned midway') or diag($err);

# nearest rows of many queries: several requests
my $batch = q{SELECT md5(string_agg(r::text, ',' ORDER BY query, rank)) FROM gpuvec_nearest_batch('items', 'key', 'embedding', (SELECT array_agg(embedding ORDER BY key) FROM users WHERE key <= 45), 100000, 'ip') r};
my $single = q{SELECT md5(string_agg(row(u.key::int, r.rank, r.key, r.score)::text, ',' ORDER BY u.key, r.rank)) FROM users u, gpuvec_nearest('items', 'key', 'embedding', u.embedding, 100000, 'ip') r WHERE u.key <= 45};
is($node->safe_psql('postgres', $batch), $node->safe_psql('postgres', $single), 'nearest rows of several requests');

$session->quit;

# an idle cursor: the engine gives up an answer that nobody reads, and the session asks once more
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'unread:500';
	$node->restart;
	my $many = $rows =~ s/NULL, 5,/NULL, 20,/r;
	$right = sorted($node->safe_psql('postgres', $many));
	$session = $node->background_psql('postgres');
	ask($session, "SET client_min_messages = error; BEGIN; DECLARE rows CURSOR FOR $many");
	# in the second batch: the answer for the third one is larger than a socket takes
	my $first = ask($session, 'FETCH 2000 FROM rows');
	# a session that only asks for the number has a connection of its own
	ok(wait_for(sub { $node->safe_psql('postgres', 'SELECT sessions FROM gpuvec_engine') eq '1' }, 'the seat'), 'an idle cursor loses its seat');
	like(slurp_file($node->logfile), qr/closing the connection of a session that does not read its answer/, 'the log says so');
	is(sorted($first, ask($session, 'FETCH ALL FROM rows')), $right, 'the rest of its rows');
	ask($session, 'COMMIT');
	$session->quit;
}

$node->stop;
done_testing();
