# REPACK, with and without CONCURRENTLY, gives a table and its indexes other files, while others search and write.  Every answer is compared
# with a sequential scan in the same snapshot: by all kinds of indexes, by the functions, on a standby and after a crash.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', streaming => 1, conf => "max_connections = 60\n");

if ($node->safe_psql('postgres', q{SELECT current_setting('server_version_num')::int / 10000}) < 19)
{
	$node->stop;
	SKIP: { skip('REPACK came with PostgreSQL 19', 1); }
	done_testing();
	exit;
}

# Indexes of all kinds: a plain one, one with a filter, and those that keep rows of their own
$node->safe_psql('postgres', q{
	CREATE TABLE docs (id serial PRIMARY KEY, tokens idset, n int) WITH (fillfactor = 70);
	INSERT INTO docs (tokens, n) SELECT ARRAY[i % 31, i % 37 + 40, i % 41 + 80, i % 3 + 130]::idset, i % 5 FROM generate_series(1, 1500) i;
	CREATE INDEX docs_plain ON docs USING gpuvec (tokens);
	CREATE INDEX docs_expression ON docs USING gpuvec ((tokens - 5::int8));
	CREATE INDEX docs_part ON docs USING gpuvec (tokens) WHERE n > 1;
	CREATE TABLE filtered (id serial PRIMARY KEY, tokens idset, n int);
	INSERT INTO filtered (tokens, n) SELECT tokens, n FROM docs;
	CREATE INDEX filtered_columns ON filtered USING gpuvec (tokens, n);
	CREATE TABLE bare (id serial PRIMARY KEY, tokens idset, n int);
	INSERT INTO bare (tokens, n) SELECT tokens, n FROM docs;

	-- All rows in order of distance, by the index of that name and without
	CREATE FUNCTION compare_index(relation text, name text, expression text, q idset, filter text) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		sql text := format('SELECT array_agg(id), array_agg(d) FROM (SELECT id, %2$s <-> %3$L AS d FROM %1$I WHERE %4$s ORDER BY %2$s <-> %3$L) x', relation, expression, q, filter);
		plan text;
		ids int[];
		distances float8[];
		scanned_ids int[];
		scanned float8[];
	BEGIN
		PERFORM set_config('enable_' || what, (what IN ('seqscan', 'sort'))::text, true) FROM unnest('{seqscan,sort,indexscan,bitmapscan}'::text[]) what;
		EXECUTE sql INTO scanned_ids, scanned;
		PERFORM set_config('enable_' || what, (what = 'indexscan')::text, true) FROM unnest('{seqscan,sort,indexscan,bitmapscan}'::text[]) what;
		EXECUTE 'EXPLAIN (FORMAT JSON) ' || sql INTO plan;
		IF plan NOT LIKE '%' || name || '%' THEN RETURN name || ' is not used'; END IF;
		EXECUTE sql INTO ids, distances;
		IF distances IS DISTINCT FROM scanned THEN RETURN name || ': other distances'; END IF;
		IF (SELECT array_agg(i ORDER BY i) FROM unnest(ids) i) IS DISTINCT FROM (SELECT array_agg(i ORDER BY i) FROM unnest(scanned_ids) i) THEN
			RETURN name || ': other rows';
		END IF;
		RETURN 'same';
	END $$;

	-- The nearest rows with their tids and ranks, by the function and by brute force
	CREATE FUNCTION compare_function(relation text, q idset, k int) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		found text;
		scanned text;
	BEGIN
		SELECT string_agg(tid || ' ' || score, ',' ORDER BY rank) INTO found FROM gpuvec_topk(relation, 'tokens', q, k, 'jaccard');
		EXECUTE format('SELECT string_agg(ctid || $1 || s, $2 ORDER BY s DESC, ctid) FROM (SELECT ctid, jaccard_similarity(tokens, %1$L) AS s FROM %2$I
			WHERE tokens && %1$L ORDER BY s DESC, ctid LIMIT %3$s) x', q, relation, k) INTO scanned USING ' ', ',';
		RETURN CASE WHEN found IS NOT DISTINCT FROM scanned THEN 'same' ELSE relation || ': other rows' END;
	END $$;

	-- One of them
	CREATE FUNCTION compare(kind int, q idset, k int) RETURNS text LANGUAGE sql AS $$
		SELECT CASE kind
			WHEN 0 THEN compare_index('docs', 'docs_plain', 'tokens', q, 'true')
			WHEN 1 THEN compare_index('filtered', 'filtered_columns', 'tokens', q, 'n = 3')
			WHEN 2 THEN compare_index('docs', 'docs_expression', '(tokens - 5::int8)', q, 'true')
			WHEN 3 THEN compare_index('docs', 'docs_part', 'tokens', q, 'n > 1')
			WHEN 4 THEN compare_function('docs', q, k)
			ELSE compare_function('bare', q, k) END;
	$$;
	CREATE FUNCTION compare_or_fail(kind int, q idset, k int) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		outcome text := compare(kind, q, k);
	BEGIN
		IF outcome <> 'same' THEN RAISE EXCEPTION 'mistake: %', outcome; END IF;
	END $$;});

my $all = q{SELECT string_agg(DISTINCT compare(kind, ARRAY[a, 44, 90, 131]::idset, 25), ', ') FROM generate_series(0, 5) kind, generate_series(3, 30, 9) a};
my $files = q{SELECT string_agg(pg_relation_filenode(oid)::text, ' ' ORDER BY oid) FROM pg_class WHERE relname IN ('docs', 'filtered', 'bare', 'docs_plain', 'filtered_columns', 'docs_expression', 'docs_part')};

sub repack
{
	my ($options) = @_;

	$node->safe_psql('postgres', "REPACK $options docs; REPACK $options filtered; REPACK $options bare");
	return;
}

$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
is($node->safe_psql('postgres', $all), 'same', 'before');

# At rest.  A snapshot from before sees what a sequential scan with it sees.
for my $options ('', '(CONCURRENTLY)')
{
	my $old = $node->background_psql('postgres');
	my $before = $node->safe_psql('postgres', $files);

	$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
	repack($options);
	my %kept = map { $_ => 1 } split / /, $before;
	my @now = split / /, $node->safe_psql('postgres', $files);
	is(scalar(grep { !$kept{$_} } @now), 7, "REPACK $options: other files");
	like(ask($old, $all), qr/same/, "REPACK $options: an older snapshot") or diag(ask($old, $all));
	unlike(ask($old, $all), qr/other|not used/, "REPACK $options: nothing else in it");
	$old->query_safe('COMMIT');
	$old->quit;
	is($node->safe_psql('postgres', $all), 'same', "REPACK $options: after it");
	$node->safe_psql('postgres', "UPDATE docs SET tokens = tokens | 7::int8, n = n + 1 WHERE id % 10 = 1; DELETE FROM docs WHERE id % 20 = 2;
		INSERT INTO docs (tokens, n) SELECT ARRAY[i % 31, i % 37 + 40, 131]::idset, i % 5 FROM generate_series(1, 100) i; DELETE FROM bare WHERE id % 10 = 3;
		UPDATE filtered SET n = n + 1 WHERE id % 3 = 1; DELETE FROM filtered WHERE id % 10 = 4");
	is($node->safe_psql('postgres', $all), 'same', "REPACK $options: changed rows after it");
	$node->wait_for_catchup($standby);
	is($standby->safe_psql('postgres', $all), 'same', "REPACK $options: on a standby");
}

# A cursor keeps the table as it is: REPACK waits for it, and then goes on
my $cursor = $node->background_psql('postgres');
my $rows = $node->safe_psql('postgres', 'SELECT count(*) FROM docs');
$cursor->query_safe(q{BEGIN; SET enable_seqscan = off; SET enable_sort = off; DECLARE c CURSOR FOR SELECT id FROM docs ORDER BY tokens <-> '{3,44,90,131}'; FETCH 5 FROM c});
my $repacking = $node->background_psql('postgres');
$repacking->query_until(qr/begun/, "\\echo begun\nREPACK (CONCURRENTLY) docs;\n");
$node->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'docs'::regclass AND NOT granted)}) or die 'REPACK does not wait';
my $rest = () = $cursor->query_safe('FETCH ALL FROM c') =~ /^\d+$/mg;
is($rest + 5, $rows, 'a cursor has all rows while REPACK waits');
$cursor->query_safe('COMMIT');
$repacking->query_safe('SELECT 1');
$_->quit for $cursor, $repacking;
is($node->safe_psql('postgres', $all), 'same', 'after it has waited');

# Under load
my %scripts = (
	search => q{
\set a random(0, 30)
\set b random(40, 76)
\set c random(130, 132)
\set k random(1, 40)
\set kind random(0, 5)
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT compare_or_fail(:kind, ARRAY[:a, :b, :c]::idset, :k);
COMMIT;
},
	change => q{
\set id random(1, 2000)
\set a random(0, 30)
BEGIN;
INSERT INTO docs (tokens, n) VALUES (ARRAY[:a, :a + 40, 131]::idset, :a % 5);
UPDATE docs SET tokens = tokens | (:a + 80) WHERE id = :id;
UPDATE docs SET n = (n + 1) % 5 WHERE id = :id + 1;
DELETE FROM docs WHERE id = :id + 2;
UPDATE bare SET tokens = tokens | (:a + 80) WHERE id = :id;
UPDATE filtered SET n = (n + 1) % 5, tokens = tokens | (:a + 80) WHERE id = :id;
INSERT INTO filtered (tokens, n) VALUES (ARRAY[:a, :a + 41, 132]::idset, 3);
INSERT INTO bare (tokens, n) VALUES (ARRAY[:a, :a + 41, 132]::idset, 1);
END;
},
	rollback => q{
\set id random(1, 2000)
BEGIN;
DELETE FROM docs WHERE id BETWEEN :id AND :id + 5;
INSERT INTO docs (tokens, n) VALUES ('{5,45,131}', 3);
ROLLBACK;
},
	repack => "REPACK (CONCURRENTLY) docs;\nREPACK (CONCURRENTLY) bare;\nREPACK (CONCURRENTLY) filtered;\nREPACK docs;\n\\sleep 20 ms\n");
my $dir = $node->basedir;
append_to_file("$dir/$_.sql", $scripts{$_}) for keys %scripts;
my @where = ('-h', $node->host, '-p', $node->port, 'postgres');
my ($out, $err, $packed, $trouble) = ('', '', '', '');
my $before = $node->safe_psql('postgres', 'SELECT pg_relation_filenode(\'docs\')');
my $packing = IPC::Run::start(['pgbench', '-n', '-c', '1', '-T', '15', '-f', "$dir/repack.sql", @where], '>', \$packed, '2>', \$trouble);
IPC::Run::run(['pgbench', '-n', '-c', '10', '-j', '2', '-T', '15', '-f', "$dir/search.sql\@20", '-f', "$dir/change.sql\@10", '-f', "$dir/rollback.sql\@3", @where],
	'>', \$out, '2>', \$err);
ok($packing->finish, 'REPACK under load') or diag($trouble);
unlike($err, qr/mistake/, 'under load: every answer is right') or diag($err);
# deadlocks are not ours: REPACK takes its last lock late, and gives up before writers do
my @errors = grep { /ERROR/ && !/deadlock detected|could not serialize/ } split /\n/, $err;
is(join("\n", @errors[0 .. ($#errors > 4 ? 4 : $#errors)]), '', 'under load: no errors');
like($out, qr/number of transactions actually processed: [1-9]\d/, 'under load: searches ran');
like($packed, qr/number of transactions actually processed: [1-9]/, 'under load: REPACK ran');
is($node->safe_psql('postgres', $all), 'same', 'after the load');
is($node->safe_psql('postgres', 'SELECT restarts FROM gpuvec_engine'), '0', 'the engine lived');
$node->wait_for_catchup($standby);
is($standby->safe_psql('postgres', $all), 'same', 'after the load: on the standby');
$standby->stop;

# After a crash
repack('(CONCURRENTLY)');
$node->stop('immediate');
$node->start;
is($node->safe_psql('postgres', $all), 'same', 'after a crash');
$node->stop;
done_testing();
