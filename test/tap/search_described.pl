# What a session keeps of how columns are described holds until something
# changes, by whoever.  Compared with plain SQL.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
$node->safe_psql('postgres', q{
	CREATE FUNCTION some_sets(lo int, hi int) RETURNS TABLE (id int, tokens idset, others idset) LANGUAGE sql AS
		$$ SELECT i, ARRAY[i % 7, 10 + i % 5, 20 + i / 10 % 9]::idset, ARRAY[i % 3, 10 + i % 11, 40 + i % 8]::idset FROM generate_series(lo, hi) i $$;
	CREATE TABLE parts (id int, tokens idset, others idset) PARTITION BY RANGE (id);
	CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (100);
	CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (100) TO (300) PARTITION BY RANGE (id);
	CREATE TABLE parts_21 PARTITION OF parts_2 FOR VALUES FROM (100) TO (200);
	CREATE TABLE parts_22 PARTITION OF parts_2 FOR VALUES FROM (200) TO (300);
	CREATE TABLE more (LIKE parts);
	CREATE TABLE docs (LIKE parts);
	CREATE TABLE child () INHERITS (docs);
	INSERT INTO parts SELECT * FROM some_sets(1, 299);
	INSERT INTO more SELECT * FROM some_sets(300, 399);
	INSERT INTO docs SELECT * FROM some_sets(1, 100);
	INSERT INTO child SELECT * FROM some_sets(101, 200);
	CREATE INDEX ON parts USING gpuvec (tokens);
	CREATE INDEX docs_tokens ON docs USING gpuvec (tokens);
	CREATE ROLE reader;
	GRANT SELECT ON parts, docs TO reader;
	CREATE FUNCTION found(name text, q idset) RETURNS text LANGUAGE plpgsql AS
		$$ BEGIN RETURN (SELECT string_agg(source::text || tid || score, ' ' ORDER BY rank) FROM gpuvec_topk(name::regclass, 'tokens', q, 30)); END $$;
	CREATE FUNCTION right_rows(name text, q idset) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		result text;
	BEGIN
		EXECUTE format('SELECT string_agg(source || tid || s, $2 ORDER BY s DESC, oid, tid) FROM (
			SELECT tableoid::regclass::text AS source, tableoid AS oid, ctid AS tid, braun_blanquet_similarity($1, tokens) AS s FROM %I WHERE tokens && $1
			ORDER BY s DESC, oid, ctid LIMIT 30) x', name) INTO result USING q, ' ';
		RETURN result;
	END $$;});

my $reader = $node->background_psql('postgres', on_error_stop => 0, on_error_die => 0);
my $query = '{1,11,21,40}';
my $own = 0;					# the reader has made changes that nobody else sees

# What the reader finds, and what it should find.  If it has a transaction that
# others must not wait for, another session says so: to plan a scan takes locks
# of all indexes.
sub expect_right
{
	my ($what) = @_;

	for my $table ('parts', 'docs')
	{
		my $found = ask($reader, "SELECT found('$table', '$query')");
		my $right = "SELECT right_rows('$table', '$query')";

		is($found, $own ? ask($reader, $right) : $node->safe_psql('postgres', $right), "$table: $what");
	}
	return;
}

# Changes of others, one after another
sub expect_followed
{
	my ($what, @statements) = @_;

	expect_right("before $what");
	for my $statement (@statements)
	{
		$node->safe_psql('postgres', $statement);
		expect_right("after $statement");
	}
	return;
}

ask($reader, 'SET client_min_messages = error');
expect_right('at first');
expect_right('once more');

# a new file of the index, then rows: who holds the table's lock hears of both
ask($reader, 'BEGIN');
expect_followed('new files of indexes, in a transaction',
	'REINDEX INDEX docs_tokens', "INSERT INTO docs VALUES (1001, '$query', '{7}')",
	'REINDEX INDEX parts_1_tokens_idx', "INSERT INTO parts VALUES (5, '$query', '{7}')",
	'CREATE INDEX CONCURRENTLY docs_others ON docs USING gpuvec (others)', "INSERT INTO docs VALUES (1002, '$query', '{7}')");
ask($reader, 'COMMIT');
ask($reader, 'BEGIN');
expect_followed('a new partition, in a transaction',
	'ALTER TABLE parts ATTACH PARTITION more FOR VALUES FROM (300) TO (400)',
	"INSERT INTO parts VALUES (305, '$query', '{7}')");
ask($reader, 'COMMIT');
expect_followed('changes of others',
	'ALTER TABLE parts DETACH PARTITION more', 'ALTER TABLE parts ATTACH PARTITION more FOR VALUES FROM (300) TO (400)',
	'DROP TABLE more', 'CREATE TABLE more PARTITION OF parts FOR VALUES FROM (300) TO (400)',
	"INSERT INTO parts VALUES (306, '$query', '{7}')",
	'DROP INDEX docs_tokens', "INSERT INTO docs VALUES (1003, '$query', '{7}')",
	'CREATE INDEX docs_tokens ON docs USING gpuvec (tokens)', "INSERT INTO docs VALUES (1004, '$query', '{7}')",
	'REINDEX TABLE parts_21', "INSERT INTO parts VALUES (105, '$query', '{7}')",
	'VACUUM FULL parts_22', 'VACUUM FULL docs', 'TRUNCATE parts_22', "INSERT INTO parts VALUES (205, '$query', '{7}')",
	'UPDATE pg_index SET indisvalid = false WHERE indexrelid = $$docs_tokens$$::regclass', "INSERT INTO docs VALUES (1005, '$query', '{7}')",
	'UPDATE pg_index SET indisvalid = true WHERE indexrelid = $$docs_tokens$$::regclass', "INSERT INTO docs VALUES (1006, '$query', '{7}')");

# another column under the name
my $swap = join(';', map { "ALTER TABLE $_ RENAME tokens TO t; ALTER TABLE $_ RENAME others TO tokens; ALTER TABLE $_ RENAME t TO others" } 'parts', 'docs');
expect_followed('another column', "BEGIN; $swap; COMMIT", "BEGIN; $swap; COMMIT");
$node->safe_psql('postgres', 'DROP INDEX docs_tokens; ALTER TABLE docs ALTER tokens TYPE text');
$reader->{stderr} = '';
$reader->query("SELECT found('docs', '$query')");
like($reader->{stderr}, qr/ERROR:  column "tokens" of relation "docs" is of type text, not idset/, 'a column of another type');
$reader->{stderr} = '';
$node->safe_psql('postgres', 'ALTER TABLE docs ALTER tokens TYPE idset USING tokens::idset; CREATE INDEX docs_tokens ON docs USING gpuvec (tokens)');
expect_right('of its type again');

# one transaction gives the index another file and inserts a row, and is seen
# before others hear of its changes
$node->safe_psql('postgres', q{CREATE TABLE solo (LIKE docs); INSERT INTO solo SELECT * FROM some_sets(1, 100); CREATE INDEX solo_tokens ON solo USING gpuvec (tokens)});
$node->safe_psql('postgres', q{SET allow_in_place_tablespaces = on; CREATE TABLESPACE elsewhere LOCATION ''});
my $perfect = "SELECT count(*) FROM gpuvec_topk('solo', 'tokens', '$query', 30) WHERE score = 1";
my $holder = $node->background_psql('postgres');
my $writer = $node->background_psql('postgres');
for my $row (1 .. 3)
{
	ask($writer, "INSERT INTO solo VALUES (1000 + $row, '$query')");
	is(ask($reader, $perfect), $row, "row $row");
}
ask($holder, 'SELECT pg_advisory_lock(71866, 0)');
$writer->query_until(qr/begins/, "\\echo begins\nBEGIN; SET LOCAL gpuvec.injection_point = 'transaction-visible'; ALTER INDEX solo_tokens SET TABLESPACE elsewhere; INSERT INTO solo VALUES (1000, '$query'); COMMIT;\n");
wait_for(sub { $node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE query = 'COMMIT;' AND wait_event = 'advisory'}) }, 'the commit');
is(ask($reader, $perfect), 4, 'a row in a file that was not known is found');
ask($holder, 'SELECT pg_advisory_unlock(71866, 0)');
is(ask($reader, $perfect), 4, 'and later');
$_->quit for $holder, $writer;

# own changes, seen and rolled back
my @own = ($swap, 'REINDEX INDEX parts_21_tokens_idx', 'DROP INDEX docs_tokens', 'TRUNCATE parts_1, child',
	'ALTER TABLE parts DETACH PARTITION parts_1', 'DROP TABLE parts_2 CASCADE', "ALTER TABLE docs DROP tokens, ADD tokens idset DEFAULT '{1,11}'",
	"ALTER TABLE parts DROP tokens, ADD tokens idset DEFAULT '{1,21}'");
$own = 1;
for my $change (@own)
{
	ask($reader, "BEGIN; $change");
	expect_right("own: $change");
	ask($reader, 'ROLLBACK');
	expect_right("rolled back: $change");
	ask($reader, "BEGIN; SAVEPOINT s; $change");
	ask($reader, "SELECT found('parts', '$query'), found('docs', '$query')");
	ask($reader, 'ROLLBACK TO s');
	expect_right("back to before: $change");
	ask($reader, 'COMMIT');
}
ask($reader, "BEGIN; $_; COMMIT") for @own[0, 1, 6];
expect_right('own, committed');
$own = 0;

# rights are looked at each time
my $denied = qr/ERROR:  permission denied for table/;
sub expect_refused
{
	my ($statement, $error) = @_;

	$node->safe_psql('postgres', $statement);
	$reader->{stderr} = '';
	$reader->query("SELECT found('parts', '$query')");
	like($reader->{stderr}, $error, "refused after $statement");
	$reader->{stderr} = '';
	return;
}

ask($reader, 'SET ROLE reader');
expect_right('another role');
expect_refused('REVOKE SELECT ON parts FROM reader', $denied);
$node->safe_psql('postgres', 'GRANT SELECT ON parts TO reader');
expect_right('the right again');
expect_refused('ALTER TABLE parts ENABLE ROW LEVEL SECURITY', qr/ERROR:  cannot search table "parts" because of its row-level security policies/);
ask($reader, 'RESET ROLE');
expect_right('who may see all');
ask($reader, 'CREATE ROLE nobody_else; SET ROLE nobody_else');
expect_refused('ALTER TABLE parts DISABLE ROW LEVEL SECURITY', $denied);

$reader->quit;
$node->stop;
done_testing();
