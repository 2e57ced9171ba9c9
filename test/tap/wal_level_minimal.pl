# With wal_level = minimal the pages of a new table have neither WAL nor LSNs, and a new
# table may have the numbers of an old one: rule D5.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => "gpuvec.verify = off\nwal_level = minimal\nmax_wal_senders = 0\nwal_skip_threshold = 0\n");
$node->safe_psql('postgres', q{CREATE FUNCTION next_oid(oid) RETURNS void LANGUAGE C AS 'gpuvec', 'gpuvec_test_next_oid'});

# Tables that are filled in the transaction that makes them; all sets have this id, all vectors
# this element
sub make_tables
{
	my ($value, $sets, $vectors) = @_;

	$node->safe_psql('postgres', ($sets ? "SELECT next_oid($sets);" : '') . qq{
		BEGIN;
		CREATE TABLE sets (id int, s idset);
		INSERT INTO sets SELECT i, ARRAY[$value, 100 + i % 10]::idset FROM generate_series(1, 20000) i;
		COMMIT;} . ($vectors ? "SELECT next_oid($vectors);" : '') . qq{
		BEGIN;
		CREATE TABLE vectors (id bigint, v float4[]);
		INSERT INTO vectors SELECT i, ARRAY[$value, 1] FROM generate_series(1, 20000) i;
		COMMIT;
		CREATE INDEX sets_s ON sets USING gpuvec (s);});
	return;
}

# Oid and file of each
sub numbers { return $node->safe_psql('postgres', q{SELECT string_agg(oid || '/' || relfilenode, ' ' ORDER BY relname) FROM pg_class WHERE relname IN ('sets', 'vectors')}); }

# How many rows have either id, by the function, by the index and by a scan; and a vector
sub answers
{
	my ($freshness) = @_;

	return $node->safe_psql('postgres', "SET gpuvec.freshness = $freshness; SET enable_seqscan = off; " . join('; ', map {
		"SELECT count(*) FROM gpuvec_topk('sets', 's', '{$_}', 100000); SELECT count(*) FROM sets WHERE s && '{$_}'" } 1, 2) .
		"; SELECT (gpuvec_pool('vectors', 'id', 'v', ARRAY[77]))[1]");
}

make_tables(1);
my $numbers = numbers();
my ($sets, $vectors) = $numbers =~ /(\d+)\/\d+/g;
is(answers('auto'), "20000\n20000\n0\n0\n1", 'the first tables');
my $value = 1;
for my $freshness ('auto', 'wal', 'sweep')
{
	$value = 3 - $value;
	$node->safe_psql('postgres', 'DROP TABLE sets, vectors');
	$node->safe_psql('postgres', 'VACUUM pg_class; VACUUM pg_type');
	$node->safe_psql('postgres', 'CHECKPOINT');
	make_tables($value, $sets, $vectors);
	is(numbers(), $numbers, "$freshness: the next tables have the same numbers");
	is(answers($freshness), $value == 1 ? "20000\n20000\n0\n0\n1" : "0\n0\n20000\n20000\n2", "$freshness: but other rows");
}
$node->stop;
done_testing();
