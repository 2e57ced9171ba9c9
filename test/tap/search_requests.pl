# How often the engine is asked: rows of equal score on a page, and partitions cost no requests of their own.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
my $session = $node->background_psql('postgres');
my $set = '{1,2,3}';

# What a search gives, and how many requests it took when nothing had to be loaded or refreshed
sub searched
{
	my ($sql) = @_;
	my $count = 'SELECT requests FROM gpuvec_engine';

	ask($session, $sql);
	my $before = ask($session, $count);
	my $answer = ask($session, $sql);
	return ($answer, ask($session, $count) - $before);
}

# Searches for the k best of a table: the right ones, by no more requests than these?
sub right_rows
{
	my ($name, $table, $k, $requests) = @_;
	my ($answer, $n) = searched("SELECT string_agg(source || tid::text || score, ' ' ORDER BY rank) FROM gpuvec_topk('$table', 'tokens', '$set', $k)");

	is($answer, $node->safe_psql('postgres', qq{
		SELECT string_agg(oid::regclass || ctid::text || s, ' ' ORDER BY s DESC, oid, ctid) FROM (
			SELECT tableoid AS oid, ctid, braun_blanquet_similarity('$set', tokens) AS s FROM $table WHERE tokens && '$set' ORDER BY s DESC, tableoid, ctid LIMIT $k) x}),
		"$name, k = $k: right rows");
	cmp_ok($n, '<=', $requests, "$name, k = $k: requests");
	return;
}

# Near duplicates with an index: equal sets fill pages
$node->safe_psql('postgres', q{
	CREATE TABLE docs (id int, note int, tokens idset) WITH (fillfactor = 70);
	INSERT INTO docs SELECT i, 0, CASE i % 7 WHEN 0 THEN '{1,2,4}' WHEN 1 THEN '{1,5}' ELSE '{1,2,3}'::idset END FROM generate_series(1, 2000) i;
	CREATE INDEX ON docs USING gpuvec (tokens);
	VACUUM docs;});
right_rows('ties on a page', 'docs', $_, 1) for 1, 2, 10, 90, 200, 1023, 1024, 1025, 1500;
my ($rows, $requests) = searched(qq{SELECT count(*) FROM gpuvec_topk_batch('docs', 'tokens', (SELECT array_agg(tokens) FROM docs), 10)});
is("$rows by $requests", '20000 by 1', 'a batch');
# 26 MB of ids, of which a request has 8 at most
($rows, $requests) = searched(q{SELECT count(*) FROM gpuvec_topk_batch('docs', 'tokens', (SELECT array_fill(array_agg(i)::idset, ARRAY[200]) FROM generate_series(0, 65535) i), 1)});
is($rows, 200, 'a batch of large queries');
cmp_ok($requests, '>=', 4, 'is divided');
# without a root behind the last row: all is given
right_rows('all rows', 'docs', 5000, 1);

# Rows that moved within their pages come in the order of their own tids.  On pages that have such rows it takes one request more to see them all.
$node->safe_psql('postgres', 'UPDATE docs SET note = note + 1 WHERE id % 3 = 0');
right_rows('moved rows', 'docs', $_, 2) for 1, 5, 30, 100, 300;
($rows, $requests) = searched(qq{SELECT count(*) FROM gpuvec_topk_batch('docs', 'tokens', (SELECT array_agg(tokens) FROM docs), 10)});
cmp_ok($requests, '<=', 2, 'moved rows, a batch: requests');
# line pointers that are used again: members before their roots
$node->safe_psql('postgres', 'DELETE FROM docs WHERE id % 5 = 0; VACUUM docs');
$node->safe_psql('postgres', 'UPDATE docs SET note = note + 1 WHERE id % 4 = 0');
right_rows('line pointers that are used again', 'docs', $_, 3) for 1, 2, 3, 5, 8, 20, 30, 50, 100, 300, 700;
# a table without moved rows before the k-th: the page tells
$node->safe_psql('postgres', q{
	CREATE TABLE later (id int, note int, tokens idset) WITH (fillfactor = 50);
	INSERT INTO later SELECT i, 0, '{1,2,3}' FROM generate_series(1, 60) i;
	CREATE INDEX ON later USING gpuvec (tokens);
	UPDATE later SET note = 1 WHERE id > 40;});
right_rows('moved rows behind', 'later', 5, 1);
# a row that the engine names late has moved to the first line pointer of the page
$node->safe_psql('postgres', q{
	CREATE TABLE earlier (id int, note int, tokens idset);
	INSERT INTO earlier SELECT i, 0, '{1,2,3}' FROM generate_series(1, 60) i;
	CREATE INDEX ON earlier USING gpuvec (tokens);
	DELETE FROM earlier WHERE id <= 3;
	VACUUM (INDEX_CLEANUP on) earlier;
	UPDATE earlier SET note = 1 WHERE id IN (50, 55);});
is($node->safe_psql('postgres', q{SELECT string_agg(id || ctid::text, ' ' ORDER BY ctid) FROM earlier WHERE note = 1}), '50(0,1) 55(0,2)', 'rows are where they should be');
right_rows('moved rows before', 'earlier', $_, 2) for 1, 2, 3, 5;

# A row that has moved behind others, of which some are not seen: the last row
# asked for may be the last one needed, with any number dropped before it
my $other = $node->background_psql('postgres');
# rows of a higher score that are seen, those that are not, and how many rows
# are not seen behind the row that moves and behind the next
my @layouts = ([14, 3, 0, 0], map { my $n = $_; map { [0, 0, $n, $_] } 0 .. 3 } 1 .. 4);
$node->safe_psql('postgres', 'CREATE TABLE unseen (note int, tokens idset); CREATE INDEX ON unseen USING gpuvec (tokens)');
ask($other, 'BEGIN; SELECT 1');
for my $i (0 .. $#layouts)
{
	my ($better, $better_unseen, $first, $second) = @{ $layouts[$i] };
	my $add = sub {
		my ($where, $note, $n, $ids) = @_;
		ask($where, "INSERT INTO unseen SELECT $note, '{$ids}' FROM generate_series(1, $n); SELECT 1");
	};
	my ($equal, $less) = (100 + $i, 100 + $i . ',1000');

	$add->($session, 0, $better, $equal);
	$add->($other, 0, $better_unseen, $equal);
	$add->($session, 1, 1, $less);
	$add->($other, 0, $first, $less);
	$add->($session, 0, 1, $less);
	$add->($other, 0, $second, $less);
	$add->($session, 0, 2, $less);
}
ask($session, 'UPDATE unseen SET note = 2 WHERE note = 1; SELECT 1');
is(ask($session, q{SELECT (min(ctid) FILTER (WHERE note = 2) > max(ctid) FILTER (WHERE note = 0)) || ' ' || (max(ctid) < '(1,0)') FROM unseen}),
	'true true', 'rows have moved behind all others of their page');
my $found = q{SELECT string_agg(i || ':' || k || tids, ' ' ORDER BY i, k) FROM generate_series(100, 99 + %d) i, generate_series(1, 20) k, LATERAL (SELECT string_agg(tid::text, '' ORDER BY n) AS tids FROM (%s) x(n, tid)) y};
is(ask($session, sprintf($found, scalar(@layouts), q{SELECT rank, tid FROM gpuvec_topk('unseen', 'tokens', ARRAY[i]::idset, k)})),
	ask($session, sprintf($found, scalar(@layouts), q{SELECT row_number() OVER (), ctid FROM (SELECT ctid FROM unseen WHERE tokens::int[] @> ARRAY[i] ORDER BY cardinality(tokens), ctid LIMIT k) z})),
	'moved rows, unseen rows: right rows');
ask($other, 'ROLLBACK; SELECT 1');

# Partitions: one request asks for the rows of all
$node->safe_psql('postgres', q{
	CREATE TABLE parts (id int, tokens idset) PARTITION BY RANGE (id);
	SELECT format('CREATE TABLE parts_%s PARTITION OF parts FOR VALUES FROM (%s) TO (%s)', i, i * 1000, (i + 1) * 1000) FROM generate_series(0, 7) i \gexec
	INSERT INTO parts SELECT i, CASE WHEN i % 100 = 0 THEN '{1,2,3}' ELSE ARRAY[1, 2, 10 + i % 31]::idset END FROM generate_series(0, 7999) i;
	VACUUM parts;});
right_rows('partitions', 'parts', $_, 1) for 1, 10, 11, 20, 25, 79, 80, 81, 500;
($rows, $requests) = searched(qq{SELECT count(*) || ' of ' || count(DISTINCT source) FROM gpuvec_topk_batch('parts', 'tokens', ARRAY['{1,2,3}', NULL, '{1,2,3}', '{77}']::idset[], 10)});
is($rows, '20 of 1', 'a batch over partitions');
is($requests, 1, 'a batch over partitions: requests');

# Rows that the snapshot does not see, more than are asked for in reserve
$node->safe_psql('postgres', q{UPDATE parts SET tokens = '{1,2,3,4}' WHERE id % 100 = 0 AND id < 3000});
ask($other, q{BEGIN; UPDATE parts SET tokens = '{1,2,3}' WHERE id % 100 = 1 AND id < 4000; SELECT 1});
right_rows('partitions, unseen rows', 'parts', $_, $_ == 1 ? 40 : 12) for 1, 10, 20;
# so many that each partition is asked by itself
ask($other, q{UPDATE parts SET tokens = '{1,2,3}' WHERE id % 10 = 1; SELECT 1});
right_rows('partitions, many unseen rows', 'parts', $_, 200) for 1, 10, 20;
ask($other, 'ROLLBACK; SELECT 1');
$other->quit;

# Index scans below a Merge Append begin by one request for all
$node->safe_psql('postgres', 'CREATE INDEX ON parts USING gpuvec (tokens)');
my $order = q{SELECT md5(string_agg(d::text, ' ')) FROM (SELECT tokens <-> '{1,2,3}' AS d FROM parts ORDER BY 1 LIMIT %s) x};
ask($session, 'SET enable_sort = off; SET enable_seqscan = off; SELECT 1');
for my $k (1, 5, 20, 3000)
{
	my ($answer, $n) = searched(sprintf($order, $k));

	is($answer, $node->safe_psql('postgres', 'SET enable_indexscan = off; SET enable_bitmapscan = off; ' . sprintf($order, $k)), "Merge Append, k = $k: right rows");
	cmp_ok($n, '<=', $k == 1 ? 1 : $k < 100 ? 9 : 33, "Merge Append, k = $k: requests");
}
# a condition that few rows satisfy: each scan begins with its share of what is expected to be ranked
$node->safe_psql('postgres', 'ANALYZE parts');
my $few = q{SELECT md5(string_agg(d::text, ' ')) FROM (SELECT tokens <-> '{1,2,3}' AS d FROM parts WHERE id % 50 = 7 ORDER BY 1 LIMIT 10) x};
my ($answer, $n) = searched($few);
is($answer, $node->safe_psql('postgres', 'SET enable_indexscan = off; SET enable_bitmapscan = off; ' . $few), 'Merge Append with a condition: right rows');
cmp_ok($n, '<=', 2, 'Merge Append with a condition: requests');
is(ask($session, q{SELECT count(*) FROM (VALUES ('{1,2,3}'::idset), ('{1,2,11}'), ('{77}')) v(q), LATERAL (SELECT tokens <-> q AS d FROM parts ORDER BY tokens <-> q LIMIT 3) x
	WHERE d = (SELECT min(tokens <-> q) FROM parts)}),
	9, 'Merge Append, again and again');
# a condition without columns stands above each scan
($answer, $n) = searched(q{SELECT count(*) FROM (VALUES (1, '{1,2,3}'::idset), (2, '{1,2,11}'), (3, '{2,11}')) v(n, q), LATERAL (SELECT tokens <-> q AS d FROM parts WHERE v.n <> 2 ORDER BY tokens <-> q LIMIT 3) x});
is($answer, 6, 'Merge Append with a condition above each scan: rows');
cmp_ok($n, '<=', 4, 'Merge Append with a condition above each scan: requests');

$session->quit;
$node->stop;
done_testing();
