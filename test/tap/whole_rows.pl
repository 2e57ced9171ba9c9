# Whole rows from a table that is larger than the buffer pool, and other changes of what
# lies where between the search and the fetching of its rows.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

# 128 buffers: where blocks lie is looked up for every search
my $node = new_node('main', conf => "shared_buffers = 1MB\nmax_connections = 20\n");

# Rows by the function, and by a join with the same search; as text, in order
my $queries = "(SELECT array_agg(ARRAY[i, 100 + i % 89, 200 + i % 83]::idset ORDER BY i) FROM generate_series(1, 40) i)";

sub rows_sql
{
	my ($table, $k) = @_;
	return "SELECT string_agg(format('%s %s %s', t.query, t.rank, t.item), E'\\n' ORDER BY t.query, t.rank) FROM gpuvec_topk_batch_rows(NULL::$table, 'tokens', $queries, $k) t";
}

sub joined_sql
{
	my ($table, $k) = @_;
	return "SELECT string_agg(format('%s %s %s', t.query, t.rank, d), E'\\n' ORDER BY t.query, t.rank) FROM gpuvec_topk_batch('$table', 'tokens', $queries, $k) t
		JOIN $table d ON (d.tableoid, d.ctid) = (t.source, t.tid)";
}

# Does the function give what the join gives?  As many rows as there must be, too.
sub right_rows
{
	my ($name, $table, $k) = @_;
	my $rows = $node->safe_psql('postgres', rows_sql($table, $k));

	is(scalar(split /\n/, $rows), $node->safe_psql('postgres',
		"SELECT sum(least($k, (SELECT count(*) FROM $table WHERE tokens && q))) FROM unnest($queries) q"), "$name: as many rows");
	ok($rows eq $node->safe_psql('postgres', joined_sql($table, $k)), "$name: the same rows as by a join");
	return;
}

# about 1,500 pages
make_docs($node, 20000);
$node->safe_psql('postgres', q{
	ALTER TABLE docs SET (fillfactor = 50);
	ALTER TABLE docs ADD pad text, ADD big text;
	ALTER TABLE docs ALTER big SET STORAGE EXTERNAL;
	UPDATE docs SET pad = repeat(id::text, 60) WHERE id % 3 > 0;
	VACUUM FULL docs;});
right_rows('a table ten times the pool', 'docs', 100);
$node->safe_psql('postgres', q{
	CREATE TABLE small AS SELECT * FROM docs WHERE id % 50 = 0;
	UPDATE small SET id = -id WHERE id % 100 = 0});
right_rows('a table that fits', 'small', 50);
$node->safe_psql('postgres', q{ALTER TABLE small ADD later int DEFAULT 7; DELETE FROM small WHERE id % 300 = 0});
right_rows('a column that rows do not have yet', 'small', 50);
$node->safe_psql('postgres', q{UPDATE docs SET big = repeat(id::text, 3000) WHERE id % 1000 < 10});
right_rows('with out-of-line values, and dead versions', 'docs', 100);

# new versions in chains; old ones until they are pruned
$node->safe_psql('postgres', q{CREATE INDEX ON docs USING gpuvec (tokens); UPDATE docs SET pad = id::text WHERE id % 2 = 0});
right_rows('with an index', 'docs', 100);

# the buffers' content changes while rows are handed out
my $session = $node->background_psql('postgres');
$session->query_safe("BEGIN; DECLARE c CURSOR FOR SELECT t.query || ' ' || t.rank || ' ' || t.item::text FROM gpuvec_topk_batch_rows(NULL::docs, 'tokens', $queries, 100) t");
my $expected = $node->safe_psql('postgres', joined_sql('docs', 100));
my @rows;
for my $step (1 .. 8)
{
	push @rows, split /\n/, ask($session, 'FETCH 500 FROM c');
	if ($step == 2)
	{
		# everything else moves, and other tables fill the pool
		$node->safe_psql('postgres', q{UPDATE docs SET pad = 'new', tokens = '{9000}' WHERE id % 2 = 1; DELETE FROM docs WHERE id % 5 = 0});
		$node->safe_psql('postgres', q{VACUUM docs});
	}
	$node->safe_psql('postgres', 'SELECT count(pad) FROM small; SELECT sum(id) FROM docs') if $step % 2 == 0;
}
push @rows, split /\n/, ask($session, 'FETCH ALL FROM c');
$session->query_safe('COMMIT');
$session->quit;
is(scalar(@rows), 4000, 'a cursor: as many rows');
ok(join("\n", @rows) eq $expected, 'a cursor: the rows of its snapshot');

# leaves whose columns are in another order than the parent's
$node->safe_psql('postgres', q{
	CREATE TABLE parts (id int, pad text, tokens idset) PARTITION BY RANGE (id);
	CREATE TABLE part1 (tokens idset, gone int, pad text, id int);
	ALTER TABLE part1 DROP gone;
	ALTER TABLE parts ATTACH PARTITION part1 FOR VALUES FROM (0) TO (10000);
	CREATE TABLE part2 PARTITION OF parts FOR VALUES FROM (10000) TO (30000);
	INSERT INTO parts SELECT id, repeat('x', id % 50), tokens FROM docs WHERE tokens <> '{9000}'});
my $parts = $node->safe_psql('postgres', rows_sql('parts', 60));
is(scalar(split /\n/, $parts), 2400, 'partitions: as many rows');
is($node->safe_psql('postgres', "SELECT count(*), sum((t.item).id), string_agg((t.item).pad, '' ORDER BY t.query, t.rank) = (
		SELECT string_agg(d.pad, '' ORDER BY t.query, t.rank) FROM gpuvec_topk_batch('parts', 'tokens', $queries, 60) t JOIN parts d ON (d.tableoid, d.ctid) = (t.source, t.tid))
	FROM gpuvec_topk_batch_rows(NULL::parts, 'tokens', $queries, 60) t"),
	$node->safe_psql('postgres', "SELECT count(*), sum(d.id), true FROM gpuvec_topk_batch('parts', 'tokens', $queries, 60) t
		JOIN parts d ON (d.tableoid, d.ctid) = (t.source, t.tid)"),
	'partitions: the same rows as by a join');

# and a temporary table, whose buffers are the session's own
is($node->safe_psql('postgres', "CREATE TEMP TABLE own AS SELECT * FROM small; " . rows_sql('own', 50)),
	$node->safe_psql('postgres', "CREATE TEMP TABLE own AS SELECT * FROM small; " . joined_sql('own', 50)),
	'a temporary table');

# rows of another access method, which alone knows where they are
$node->safe_psql('postgres', q{
	CREATE FUNCTION method(internal) RETURNS table_am_handler LANGUAGE C AS 'gpuvec', 'gpuvec_test_table_method';
	CREATE ACCESS METHOD other TYPE TABLE HANDLER method;
	CREATE TABLE others USING other AS SELECT * FROM small;});
my ($rc, $rows, $notices) = $node->psql('postgres', rows_sql('others', 5));
is($rows, $node->safe_psql('postgres', joined_sql('others', 5)), 'another access method: the same rows as by a join');
is(scalar(() = $notices =~ /is fetched by its access method/g), scalar(split /\n/, $rows), 'another access method: it fetches each row');
is($node->safe_psql('postgres', q{SELECT count(*) FROM gpuvec_mirrors WHERE relation = 'others'::regclass}), '0', 'another access method: no copy in the engine');

$node->stop;
done_testing();
