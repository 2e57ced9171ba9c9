# Filter columns through random histories of transactions that overlap, against sequential
# scans under the same snapshot: rows that an index hands over are laid over the engine's
# answers, for there is no worker that applies them.  Then on a standby, whose mirrors are
# read from pages, and after its promotion.
use strict;
use warnings;

use GpuvecHistories;
use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('primary', streaming => 1,
	conf => "max_worker_processes = 1\nmax_logical_replication_workers = 0\nmax_prepared_transactions = 5\nmax_wal_senders = 3\n");
$node->safe_psql('postgres', q{
	CREATE TABLE docs (id int PRIMARY KEY, note int, tenant int, price float8, name text COLLATE "C", tokens idset) WITH (fillfactor = 70);
	CREATE INDEX docs_knn ON docs USING gpuvec (tokens, tenant, price, name);
	CREATE TABLE words (id int PRIMARY KEY, note int, tenant int, price float8, name text, list int[]);
	CREATE FUNCTION to_set(int[]) RETURNS idset LANGUAGE sql IMMUTABLE AS 'SELECT $1::public.idset';
	CREATE INDEX words_knn ON words USING gpuvec (to_set(list), tenant, (price * 2), name) WHERE note < 8;
	CREATE TABLE vecs (LIKE docs) WITH (fillfactor = 70);
	ALTER TABLE vecs DROP tokens, ADD terms idvec, ADD PRIMARY KEY (id);
	CREATE INDEX vecs_knn ON vecs USING gpuvec (terms, tenant, price, name);
} . compare_sql() . q{
	-- The functions use the copy of such an index, too
	CREATE FUNCTION compare_topk(q idset, k int, measure text) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		found text;
		sorted text;
	BEGIN
		EXECUTE format('SELECT string_agg(ctid || %L || s, $1) FROM (SELECT ctid, s FROM (SELECT ctid, %I(tokens, %L)::float8 AS s FROM docs) x WHERE s > 0 ORDER BY s DESC, ctid LIMIT %s) y',
			' ', measure || '_similarity', q, k) INTO sorted USING ',';
		SELECT string_agg(tid || ' ' || score, ',' ORDER BY rank) INTO found FROM gpuvec_topk('docs', 'tokens', q, k, measure);
		RETURN CASE WHEN found IS NOT DISTINCT FROM sorted THEN 'same' ELSE 'other rows' END;
	END $$;});

srand($ENV{FILTER_SEED} // 5);
my $next = 1;
my @measures = qw(braun_blanquet jaccard cosine);
sub one_of { return $_[rand @_]; }
sub random_row
{
	return '(' . join(', ', $next++, int(rand(10)), one_of('NULL', 0 .. 12), one_of('NULL', "'NaN'", -1.5, 0, 0.5, 1, 2, 7),
		one_of('NULL', map { "'$_'" } '', 'a', 'abcd', 'abcde', 'b', 'abcf'), int(rand(12)) ? "'" . random_set(8) . "'" : 'NULL') . ')';
}
sub random_rows { my ($n) = @_; return join(',', map { random_row() } 1 .. $n); }

# A statement for docs, the same for words, and for vecs
my @values = (-2, -1, -0.5, 1, 1, 2, 0.3, 1e-45, 3e38);
sub everywhere { my ($sql) = @_; return twice($sql) . ' ' . of_vectors($sql, @values); }

my @changes = (
	sub { everywhere('INSERT INTO docs VALUES ' . random_rows(1 + int(rand(8)))) },
	sub { everywhere('INSERT INTO docs VALUES ' . random_rows(1 + int(rand(40)))) },
	sub { everywhere('UPDATE docs SET note = note + 1 WHERE id % ' . (5 + int(rand(9))) . ' = 0') },
	sub { everywhere('UPDATE docs SET tenant = ' . one_of('NULL', 3, 5) . ' WHERE id % ' . (9 + int(rand(20))) . ' = 1') },
	sub { everywhere('UPDATE docs SET price = price + 1, name = ' . one_of('NULL', "'abcd'", "'z'") . ' WHERE id % ' . (9 + int(rand(20))) . ' = 3') },
	sub { everywhere('UPDATE docs SET tokens = ' . one_of('NULL', "'" . random_set(6) . "'") . ' WHERE id % ' . (9 + int(rand(20))) . ' = 1') },
	sub { everywhere('DELETE FROM docs WHERE id % ' . (9 + int(rand(20))) . ' = 2') },
	sub { my $rows = random_rows(5); everywhere("SAVEPOINT s; INSERT INTO docs VALUES $rows; ROLLBACK TO s; INSERT INTO docs VALUES " . random_rows(2)) },
	sub { my $set = random_set(4); everywhere('INSERT INTO docs SELECT id, 3, 5, 1, NULL, ' . "'$set' FROM generate_series(1, 30) id ON CONFLICT (id) DO UPDATE SET tokens = excluded.tokens, tenant = 5 WHERE docs.id % 7 = 3") });

sub condition
{
	my ($price) = @_;

	return join(' AND ', map {
		one_of('tenant = ' . int(rand(13)), 'tenant < ' . int(rand(13)), 'tenant IS NULL', 'tenant IN (1, 5, 9)', "$price = 1", "$price > 0.5", "$price >= 'NaN'", "$price IS NOT NULL",
			"name = 'abcd'", "name > 'abcd'", "name < 'abcde'", 'name IS NULL', 'tenant = 77') } 1 .. 1 + int(rand(2)));
}

sub question
{
	my $kind = int(rand(6));
	my $k = 1 + int(rand(40));

	return sprintf("SELECT compare_topk('%s', %d, '%s')", random_set(8), $k, one_of(@measures)) if $kind == 0;
	return sprintf('SELECT compare(%s, $c$%s$c$, %s, %d)', "'words', 'to_set(list)'", 'note < 8 AND ' . condition('(price * 2)'), random_order(8), $k) if $kind == 1;
	return sprintf('SELECT compare(%s, $c$%s$c$, %s, %d)', "'vecs', 'terms'", condition('price') . one_of('', '', ' AND terms IS NULL'), random_vector_order(8, ['<#>', '<=>'], @values), $k) if $kind <= 3;
	return sprintf('SELECT compare(%s, $c$%s$c$, %s, %d)', "'docs', 'tokens'",
		condition('price') . one_of('', '', ' AND tokens IS NULL', " AND tokens && '{1,2,3,4,5}'"), random_order(8), $k);
}

$node->safe_psql('postgres', everywhere('INSERT INTO docs VALUES ' . random_rows(300)));
is($node->safe_psql('postgres', q{SET enable_seqscan = off; SET enable_sort = off;
	EXPLAIN (COSTS OFF) SELECT id FROM docs WHERE tenant = 5 AND price < 10 ORDER BY tokens <-> '{1,2}'}),
	"Index Scan using docs_knn on docs\n  Index Cond: ((tenant = 5) AND (price < '10'::double precision))\n  Order By: (tokens <-> '{1,2}'::idset)",
	'conditions are index conditions');

$node->backup('b');
my ($asked, $wrong) = random_history($node, rounds => 120, changes => \@changes,
	between => sub { $node->safe_psql('postgres', 'VACUUM docs; VACUUM words; VACUUM vecs') if $_[0] % 4 == 0 },
	question => sub { return ('SET gpuvec.ahead_rows = ' . (0, 3, 4096, 4096)[$_[0] / 8 % 4], question()) });
is($wrong, 0, 'index scans and functions give what sequential scans give');
is($asked, 360, 'all questions were asked');

# More rows pass than the engine looks at one by one: those that do not rank
# come once, also such as are laid over
$node->safe_psql('postgres', q{
	CREATE TABLE many (id int, tenant int, tokens idset);
	INSERT INTO many SELECT i, i % 7, ARRAY[i % 5, 10 + i % 3, 20 + i % 11]::idset FROM generate_series(1, 3000) i;
	CREATE INDEX many_knn ON many USING gpuvec (tokens, tenant)});
for my $round (1 .. 4)
{
	for my $weights ('{1:1,2:-1,10:0.5,20:-0.25}', '{1:-1,12:-2}', '{3:2}')
	{
		is($node->safe_psql('postgres', "SELECT compare('many', 'tokens', 'tenant < 6', '<#>', '$weights', 300)"), 'same', "many rows pass, round $round, $weights");
	}
	$node->safe_psql('postgres', q{INSERT INTO many VALUES (10000, 1, '{2,20}'), (10001, 2, '{1,10}'), (10002, 3, '{99}'), (10003, 4, '{1,2}'), (10004, 5, '{}'), (10005, 1, '{12}'), (10006, 2, NULL), (10007, 6, '{3}');
		UPDATE many SET id = id + 10 WHERE id >= 10000});
}

# On a standby, while the primary goes on
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'b', has_streaming => 1);
$standby->append_conf('postgresql.conf', "hot_standby_feedback = on\n");
$standby->start;
$wrong = 0;

sub ask_standby
{
	my ($name) = @_;
	my $question = question();
	my $answer = $standby->safe_psql('postgres', $question);

	if ($answer ne 'same') { $wrong++; diag("$name: $question: $answer"); }
	return;
}

for my $round (1 .. 25)
{
	$node->safe_psql('postgres', "BEGIN; " . $changes[rand @changes]->() . ' COMMIT');
	$node->safe_psql('postgres', 'VACUUM docs; VACUUM words; VACUUM vecs') if $round % 4 == 0;
	$node->wait_for_catchup($standby, 'replay');
	ask_standby("standby, round $round");
	ask_standby("standby, round $round");
}
is($wrong, 0, 'the same on a standby');

# A snapshot from before the promotion, and new ones
my $old = $standby->background_psql('postgres');
$old->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM docs');
$standby->promote;
$standby->safe_psql('postgres', "BEGIN; " . $changes[4]->() . ' COMMIT');
like($old->query(question()), qr/same/, 'a snapshot from before the promotion') for 1 .. 4;
$old->quit;
ask_standby('promoted') for 1 .. 8;
is($wrong, 0, 'the same after the promotion');
$standby->stop;
$node->stop;
done_testing();
