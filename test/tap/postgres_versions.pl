# What only later versions of PostgreSQL have: columns that are computed when they are read,
# values that are compressed in another way, custom scans that compute columns.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
my $version = $node->safe_psql('postgres', q{SELECT current_setting('server_version_num')::int / 10000});

# The result of a query, or its error
sub result
{
	my ($sql) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', $sql);

	return $rc == 0 ? $out : $err;
}

# Tables with generated columns of one kind
sub make_generated
{
	my ($kind) = @_;

	$node->safe_psql('postgres', "DROP TABLE IF EXISTS items, docs;
		CREATE TABLE items (id int, a real, v real[] GENERATED ALWAYS AS (ARRAY[a, a + 1]) $kind, twice int GENERATED ALWAYS AS (id * 2) $kind, w real[]);
		INSERT INTO items (id, a, w) VALUES (1, 10, '{7,8}'), (2, 20, '{9,10}');
		CREATE TABLE docs (id int, tokens idset, twice int GENERATED ALWAYS AS (id * 2) $kind);
		INSERT INTO docs VALUES (1, '{1,2}'), (2, '{2,3}');");
	return;
}

my $vectors = q{SELECT key, embedding FROM gpuvec_gather('items', 'id', 'v', '{2}')};
my $keys = q{SELECT key, embedding FROM gpuvec_gather('items', 'twice', 'w', '{4}')};
my $whole = q{SELECT t.item FROM gpuvec_topk_rows(NULL::docs, 'tokens', '{2,3}', 1) t};
my $joined = q{SELECT d FROM gpuvec_topk('docs', 'tokens', '{2,3}', 1) t JOIN docs d ON d.ctid = t.tid};

make_generated('STORED');
is(result($vectors), '2|{20,21}', 'stored vectors');
is(result($keys), '4|{9,10}', 'stored keys');
is(result($whole), '(2,"{2,3}",4)', 'whole rows with a stored column');

SKIP:
{
	skip('virtual columns came with PostgreSQL 18', 5) if $version < 18;
	make_generated('VIRTUAL');
	like(result($vectors), qr/column "v" of relation "items" is a virtual generated column/, 'virtual vectors are refused');
	like(result($keys), qr/column "twice" of relation "items" is a virtual generated column/, 'virtual keys are refused');
	like(result($whole), qr/cannot return whole rows of "docs", which has virtual generated columns/, 'whole rows with a virtual column are refused');
	is(result($joined), '(2,"{2,3}",4)', 'a join has them');
	is(result("CREATE INDEX ON docs USING gpuvec (tokens);
		SET enable_seqscan = off;
		SELECT docs FROM docs ORDER BY tokens <-> '{2,3}' LIMIT 1"), '(2,"{2,3}",4)', 'and an index scan');
}

# Vectors of equal width, in some rows inline and in others in a TOAST table, compressed
sub compressed
{
	my ($method) = @_;
	my $name = $method || 'pglz';

	$node->safe_psql('postgres', "DROP TABLE IF EXISTS vectors;
		CREATE TABLE vectors (id int, v real[]);
		" . ($method ? "ALTER TABLE vectors ALTER v SET COMPRESSION $method;" : '') . "
		INSERT INTO vectors SELECT i, (SELECT array_agg(CASE WHEN j % 40 < i THEN sin(i + j)::real ELSE i END ORDER BY j) FROM generate_series(1, 6000) j) FROM generate_series(1, 30) i");
	is(result(q{SELECT count(*) FILTER (WHERE pg_column_size(v) < 2000) > 1, count(*) FILTER (WHERE pg_column_size(v) BETWEEN 3000 AND 20000) > 10,
		pg_relation_size(reltoastrelid) > 0 FROM vectors, pg_class WHERE oid = 'vectors'::regclass GROUP BY reltoastrelid}), 't|t|t', "$name: vectors are compressed, here and there");
	is(result(q{SELECT count(*) FROM gpuvec_gather('vectors', 'id', 'v', (SELECT array_agg(id) FROM vectors)) g JOIN vectors ON id = key AND v = embedding}), '30', "$name: vectors are read");
	return;
}

compressed('');
SKIP:
{
	skip('this server has no lz4', 2) if $version < 14 || result(q{SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'}) ne 't';
	compressed('lz4');
}
# from 15 on a custom scan tells the planner that it computes columns itself
# (flag 4): else another node would stand between it and its loop
$node->safe_psql('postgres', q{CREATE TABLE many (id int, tokens idset);
	INSERT INTO many SELECT i, ARRAY[i % 97, i % 89 + 100]::idset FROM generate_series(1, 2000) i;
	CREATE INDEX ON many USING gpuvec (tokens); ANALYZE many});
my (undef, undef, $plan) = $node->psql('postgres', ($version < 14 ? '' : 'SET enable_memoize = off;') . q{SET enable_seqscan = off; SET enable_sort = off; SET debug_print_plan = on; SET client_min_messages = log;
	EXPLAIN SELECT x.id FROM generate_series(1, 3) n, LATERAL (SELECT id FROM many m ORDER BY m.tokens <-> ARRAY[n, n + 100]::idset LIMIT 1) x});
my ($flags) = $plan =~ /\{CUSTOMSCAN\b.*?:flags (\S+)/s;
is($flags, $version < 15 ? '0' : '4', 'the planner knows that outer rows that are read ahead may get more columns');

$node->stop;
done_testing();
