# Rows that an index hands over, laid over the engine's answers: through random histories of
# transactions that overlap, against sequential scans under the same snapshot.  There is no
# room for the worker that applies rows.  So rows wait until a search finds too many of them.
use strict;
use warnings;

use GpuvecHistories;
use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('feed', conf => "max_worker_processes = 1\nmax_logical_replication_workers = 0\nautovacuum = off\nmax_prepared_transactions = 5\n");
$node->safe_psql('postgres', q{
	CREATE TABLE docs (id int PRIMARY KEY, note int, tokens idset) WITH (fillfactor = 70);
	CREATE INDEX docs_knn ON docs USING gpuvec (tokens);
	CREATE TABLE words (id int PRIMARY KEY, note int, list int[]);
	CREATE FUNCTION to_set(int[]) RETURNS idset LANGUAGE sql IMMUTABLE AS 'SELECT $1::public.idset';
	CREATE INDEX words_knn ON words USING gpuvec (to_set(list)) WHERE note < 8;
	CREATE TABLE vecs (id int PRIMARY KEY, note int, terms idvec) WITH (fillfactor = 70);
	CREATE INDEX vecs_knn ON vecs USING gpuvec (terms);
} . compare_sql() . q{
	-- The functions, single and batched, and a sort
	CREATE FUNCTION compare_topk(queries idset[], k int, measure text) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		found text;
		sorted text;
	BEGIN
		EXECUTE format('SELECT string_agg(n || %L || ctid || s, $1 ORDER BY n, s DESC, ctid) FROM (SELECT n, y.* FROM unnest($2) WITH ORDINALITY AS u (q, n), LATERAL (SELECT ctid, s FROM (SELECT ctid, %I(tokens, q)::float8 AS s FROM docs) x WHERE s > 0 ORDER BY s DESC, ctid LIMIT %s) y) z',
			' ', measure || '_similarity', k) INTO sorted USING ',', queries;
		SELECT string_agg(query || ' ' || tid || score, ',' ORDER BY query, rank) INTO found FROM gpuvec_topk_batch('docs', 'tokens', queries, k, measure);
		IF found IS DISTINCT FROM sorted THEN RETURN 'other rows of a batch'; END IF;
		SELECT string_agg('1 ' || tid || score, ',' ORDER BY rank) INTO found FROM gpuvec_topk('docs', 'tokens', queries[1], k, measure);
		IF found IS DISTINCT FROM (SELECT string_agg(p, ',') FROM regexp_split_to_table(sorted, ',(?=[0-9]+ )') p WHERE p LIKE '1 %') THEN RETURN 'other rows'; END IF;
		RETURN 'same';
	END $$;});

srand($ENV{FEED_SEED} // 3);
my $next = 1;
my @measures = qw(braun_blanquet jaccard cosine);
sub random_rows { my ($n) = @_; return join(',', map { '(' . $next++ . ', ' . int(rand(10)) . ', ' . (int(rand(15)) ? "'" . random_set(8) . "'" : 'NULL') . ')' } 1 .. $n); }

# A statement for docs, the same for words, and for vecs
my @values = (1, 1, 2, 17, 255, 256, 0.5, 0.1, 1e-45, 3e38);
sub everywhere { my ($sql) = @_; return twice($sql) . ' ' . of_vectors($sql, @values); }

my @changes = (
	sub { everywhere('INSERT INTO docs VALUES ' . random_rows(1 + int(rand(8)))) },
	sub { everywhere('INSERT INTO docs VALUES ' . random_rows(1 + int(rand(60)))) },
	sub { everywhere('UPDATE docs SET note = note + 1 WHERE id % ' . (5 + int(rand(9))) . ' = 0') },
	sub { everywhere("UPDATE docs SET tokens = '" . random_set(6) . "' WHERE id % " . (9 + int(rand(20))) . ' = 1') },
	sub { everywhere('DELETE FROM docs WHERE id % ' . (9 + int(rand(20))) . ' = 2') },
	sub { my $rows = random_rows(5); everywhere("SAVEPOINT s; INSERT INTO docs VALUES $rows; ROLLBACK TO s; INSERT INTO docs VALUES " . random_rows(2)) },
	sub { my $set = random_set(4); everywhere('INSERT INTO docs SELECT id, 3, ' . "'$set' FROM generate_series(1, 30) id ON CONFLICT (id) DO UPDATE SET tokens = excluded.tokens WHERE docs.id % 7 = 3") });

sub question
{
	my $kind = int(rand(5));
	my $k = 1 + int(rand(40));
	my $measure = $measures[rand @measures];
	my $queries = join(',', map { "'" . random_set(8) . "'" } 1 .. 1 + int(rand(5)));

	return "SELECT compare_topk(ARRAY[$queries]::idset[], $k, '$measure')" if $kind == 0;
	return sprintf("SELECT compare('words', 'to_set(list)', 'note < 8', %s, %d)", random_order(8), $k) if $kind == 1;
	return sprintf("SELECT compare('vecs', 'terms', '%s', %s, %d)", int(rand(3)) ? 'true' : 'note = 5', random_vector_order(8, ['<#>', '<=>', '<%>'], @values), $k) if $kind <= 2;
	return sprintf("SELECT compare('docs', 'tokens', '%s', %s, %d)", int(rand(3)) ? 'true' : 'note = 5', random_order(8), $k);
}

$node->safe_psql('postgres', everywhere('INSERT INTO docs VALUES ' . random_rows(300)));
my ($asked, $wrong) = random_history($node, rounds => 150, changes => \@changes,
	between => sub { $node->safe_psql('postgres', 'VACUUM docs; VACUUM words; VACUUM vecs') if $_[0] % 4 == 0 },
	question => sub { return ('SET gpuvec.ahead_rows = ' . (0, 3, 4096, 4096)[$_[0] / 8 % 4], question()) });
is($wrong, 0, 'index scans and functions give what sequential scans give');
is($asked, 450, 'all questions were asked');
$node->stop;
done_testing();
