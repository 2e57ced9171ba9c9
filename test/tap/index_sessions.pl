# Many sessions scan indexes of a table while others change it.  Each answer is compared
# with a sequential scan and a sort in the same statement, so under the same snapshot, at
# all isolation levels; cursors side by side with others of the same snapshot.  Afterwards:
# writers of much data beside many searches, and a database in the place of another one.
use strict;
use warnings;

use GpuvecHistories;
use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => "max_connections = 60\nmax_prepared_transactions = 20\n");
my $dir = $node->basedir;

$node->safe_psql('postgres', random_set_sql() . q{
	CREATE FUNCTION with_seven(tokens idset) RETURNS idset LANGUAGE sql IMMUTABLE AS 'SELECT tokens OPERATOR(public.|) 7';
	-- the ids of a set with values, and the same of both signs
	CREATE FUNCTION weights(s idset) RETURNS idvec LANGUAGE sql IMMUTABLE AS $$
		SELECT public.idvec(s::int8[], ARRAY(SELECT (ARRAY[1, 2, 0.3, 255, 0.5])[1 + (i * 7 + public.cardinality(s)) % 5]::real FROM unnest(s::int8[]) i ORDER BY i)) $$;
	CREATE FUNCTION signed(s idset) RETURNS idvec LANGUAGE sql IMMUTABLE AS $$
		SELECT idvec(s::int8[], ARRAY(SELECT (ARRAY[-1, 0.5, 2, 0.3])[1 + i % 4]::real FROM unnest(s::int8[]) i ORDER BY i)) $$;
	CREATE TABLE docs (id serial, tokens idset, note int NOT NULL DEFAULT 0, terms idvec GENERATED ALWAYS AS (weights(tokens)) STORED) WITH (fillfactor = 60);
	INSERT INTO docs (tokens, note) SELECT random_set(6), i % 5 FROM generate_series(1, 1200) i;
	ALTER TABLE docs ADD PRIMARY KEY (id);
	CREATE INDEX docs_tokens ON docs USING gpuvec (tokens);
	CREATE INDEX docs_part ON docs USING gpuvec (tokens) WHERE note < 3;
	CREATE INDEX docs_seven ON docs USING gpuvec (with_seven(tokens));
	CREATE INDEX docs_terms ON docs USING gpuvec (terms);
	ANALYZE docs;

	-- A distance from a set, from weights for its ids, or from a vector: by
	-- the last ones of vectors
	CREATE FUNCTION distance_of(op int, column_name text, q idset) RETURNS text LANGUAGE sql AS $$
		SELECT CASE WHEN op = 6 THEN format('%s <#> %L::idvec', column_name, signed(q))
			WHEN op > 6 THEN format('terms %s %L::idvec', (ARRAY['<#>', '<=>', '<%>'])[op - 6], CASE WHEN op = 9 THEN weights(q) ELSE signed(q) END)
			ELSE format('%s %s %L::idset', column_name, (ARRAY['<->', '<%>', '<=>', '<#>', '<~>'])[op], q) END $$;

	-- Rows in order of a distance.  Where distances are equal, SQL cannot ask for the index's order.
	CREATE FUNCTION ordered(op int, q idset, k int, form int, how int) RETURNS void LANGUAGE plpgsql
		SET enable_seqscan = off SET enable_sort = off SET enable_bitmapscan = off AS $$
	DECLARE
		distance text := distance_of(op, (ARRAY['tokens', 'tokens', 'with_seven(tokens)'])[form], q);
		filter text := (ARRAY['true', 'note < 3', 'id % 3 > 0'])[form];
		sql text;
		r record;
	BEGIN
		PERFORM set_config('gpuvec.freshness', (ARRAY['auto', 'wal', 'sweep'])[how], true);
		sql := format('WITH a AS MATERIALIZED (SELECT *, row_number() OVER () AS n FROM (SELECT id, ctid AS tid, %1$s AS d FROM docs WHERE %2$s ORDER BY %1$s LIMIT %3$s) x),
				b AS MATERIALIZED (SELECT id, ctid AS tid, nullif(%1$s, -1e30) AS d FROM docs WHERE %2$s),
				s AS MATERIALIZED (SELECT d, row_number() OVER (ORDER BY d) AS n FROM b)
			SELECT (SELECT count(*) FROM a) AS rows, (SELECT least(count(*), %3$s) FROM b) AS sorted_rows, (SELECT count(DISTINCT id) FROM a) AS ids,
				(SELECT count(*) FROM a JOIN s USING (n) WHERE a.d IS DISTINCT FROM s.d) AS in_wrong_order,
				(SELECT count(*) FROM a WHERE NOT EXISTS (SELECT FROM b WHERE b.id = a.id AND b.tid = a.tid AND b.d IS NOT DISTINCT FROM a.d)) AS wrong', distance, filter, k);
		EXECUTE sql INTO r;
		IF r.rows <> r.sorted_rows OR r.ids <> r.rows OR r.in_wrong_order + r.wrong > 0 THEN
			RAISE EXCEPTION 'mistake: % k % where %, freshness %: %', distance, k, filter, how, r;
		END IF;
	END $$;

	CREATE FUNCTION searched(q idset, kind int, bitmap bool, how int) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
	DECLARE
		-- what the index knows, and the same that it does not know
		condition text := (ARRAY['tokens && %1$L', 'tokens @> %1$L', 'tokens <@ %1$L', 'tokens = %1$L', 'tokens <<->> (%1$L, 0.4, ''jaccard'')', 'tokens <<->> (%1$L, -2, ''hamming'')'])[kind];
		other text := (ARRAY['intersection_count(%1$L, tokens) > 0', 'intersection_count(%1$L, tokens) = cardinality(%1$L::idset)', 'intersection_count(%1$L, tokens) = cardinality(tokens)',
			'tokens::text = %1$L', 'jaccard_similarity(%1$L, tokens) >= 0.4', 'hamming_distance(%1$L, tokens) <= 2'])[kind];
		r record;
	BEGIN
		PERFORM set_config('gpuvec.freshness', (ARRAY['auto', 'wal', 'sweep'])[how], true),
			set_config('enable_bitmapscan', bitmap::text, true), set_config('enable_indexscan', (NOT bitmap)::text, true);
		EXECUTE format('SELECT (SELECT array_agg(ctid ORDER BY ctid) FROM docs WHERE ' || condition || ') AS found, (SELECT array_agg(ctid ORDER BY ctid) FROM docs WHERE ' || other || ') AS scanned', q) INTO r;
		IF r.found IS DISTINCT FROM r.scanned THEN
			RAISE EXCEPTION 'mistake: % %, bitmap %, freshness %: %', condition, q, bitmap, how, r;
		END IF;
	END $$;

	CREATE FUNCTION best(q idset, k int, how int) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		r record;
	BEGIN
		PERFORM set_config('gpuvec.freshness', (ARRAY['auto', 'wal', 'sweep'])[how], true);
		SELECT (SELECT string_agg(tid || ' ' || score || ' ' || common, ',' ORDER BY rank) FROM gpuvec_topk('docs', 'tokens', q, k, 'jaccard')) AS found,
			(SELECT string_agg(ctid || ' ' || s || ' ' || c, ',' ORDER BY s DESC, ctid) FROM (
				SELECT ctid, jaccard_similarity(q, tokens) AS s, intersection_count(q, tokens) AS c FROM docs WHERE intersection_count(q, tokens) > 0 ORDER BY 2 DESC, 1 LIMIT k) x) AS scanned INTO r;
		IF r.found IS DISTINCT FROM r.scanned THEN
			RAISE EXCEPTION 'mistake: gpuvec_topk % %, freshness %: %', q, k, how, r;
		END IF;
	END $$;

	-- Two cursors side by side, slowly, while this transaction and others change the table
	CREATE FUNCTION cursors(op int, q idset, how int) RETURNS void LANGUAGE plpgsql
		SET enable_seqscan = off SET enable_sort = off SET enable_bitmapscan = off AS $$
	DECLARE
		distance text := distance_of(op, 'tokens', q);
		a refcursor;
		b refcursor;
		x record;
		y record;
		ids int[] := '{}';
	BEGIN
		PERFORM set_config('gpuvec.freshness', (ARRAY['auto', 'wal', 'sweep'])[how], true);
		OPEN a NO SCROLL FOR EXECUTE format('SELECT id, %s AS d FROM docs ORDER BY %1$s', distance);
		OPEN b NO SCROLL FOR EXECUTE format('SELECT id, %s AS d FROM docs ORDER BY nullif(%1$s, -1e30)', distance);
		LOOP
			FETCH a INTO x;
			FETCH b INTO y;
			IF x.d IS DISTINCT FROM y.d OR (x.id IS NULL) <> (y.id IS NULL) OR x.id = ANY (ids) THEN
				RAISE EXCEPTION 'mistake: cursor %, freshness %, row %: % is not %', distance, how, cardinality(ids), x, y;
			END IF;
			EXIT WHEN x.id IS NULL;
			ids := ids || x.id;
			IF cardinality(ids) % 128 IN (0, 1) THEN
				PERFORM pg_sleep(0.005);
				INSERT INTO docs (tokens) VALUES (q), (random_set(5));
				BEGIN
					UPDATE docs SET note = note + 1 WHERE id = x.id;
					UPDATE docs SET tokens = random_set(5) WHERE id = x.id + 1;
					DELETE FROM docs WHERE id = x.id + 2;
					IF random() < 0.5 THEN RAISE EXCEPTION 'undo'; END IF;
				EXCEPTION WHEN raise_exception THEN NULL;
				END;
			END IF;
		END LOOP;
		CLOSE a;
		CLOSE b;
	END $$;});

like($node->safe_psql('postgres', q{SET enable_seqscan = off; SET enable_sort = off; SET enable_bitmapscan = off;
	EXPLAIN SELECT id FROM docs WHERE id % 3 > 0 ORDER BY with_seven(tokens) <-> '{1}'; EXPLAIN SELECT id FROM docs WHERE note < 3 ORDER BY tokens <-> '{1}'; EXPLAIN SELECT id FROM docs ORDER BY terms <=> '{1:1}'}),
	qr/Index Scan using docs_seven.*Index Scan using docs_(part|tokens).*Index Scan using docs_terms/s, 'indexes are used');

my %scripts;
for my $level ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
{
	$scripts{"ask $level"} = qq{
\\set op random(1, 9)
\\set how random(1, 3)
\\set k random(1, 400)
\\set form random(1, 3)
\\set kind random(1, 6)
BEGIN ISOLATION LEVEL $level;
SELECT ordered(:op, coalesce(random_set(6), '{1,2}'), :k, :form, :how);
SELECT searched(coalesce(random_set(4), '{1,2}'), :kind, :k % 2 = 0, :how);
SELECT best(coalesce(random_set(6), '{1,2}'), :k, :how);
COMMIT;
};
	$scripts{"own changes, $level"} = qq{
\\set op random(1, 9)
\\set how random(1, 3)
\\set k random(1, 400)
\\set id random(1, 2500)
BEGIN ISOLATION LEVEL $level;
SELECT ordered(:op, '{1,2,3}', :k, 1, :how);
INSERT INTO docs (tokens, note) VALUES ('{1,2,3}', :id % 5), (random_set(5), 1);
SELECT ordered(:op, '{1,2,3}', :k, 1, :how);
SAVEPOINT s;
DELETE FROM docs WHERE tokens = '{1,2,3}' AND id % 2 = 0;
UPDATE docs SET tokens = random_set(6) WHERE id BETWEEN :id AND :id + 3;
SELECT best('{1,2,3}', :k, :how), ordered(:op, '{1,2,3}', :k, 3, :how);
ROLLBACK TO s;
UPDATE docs SET note = (note + 1) % 5 WHERE id BETWEEN :id AND :id + 3;
SELECT ordered(:op, '{1,2,3}', :k, 2, :how);
COMMIT;
};
	$scripts{"cursors, $level"} = qq{
\\set op random(1, 9)
\\set how random(1, 3)
BEGIN ISOLATION LEVEL $level;
SELECT cursors(:op, coalesce(random_set(6), '{1,2}'), :how);
COMMIT;
} if $level ne 'READ COMMITTED';
}
$scripts{change} = q{
\set id random(1, 2500)
BEGIN;
INSERT INTO docs (tokens, note) SELECT random_set(6), i % 5 FROM generate_series(1, 3) i;
UPDATE docs SET tokens = random_set(6) WHERE id = :id;
UPDATE docs SET note = (note + 1) % 5 WHERE id BETWEEN :id + 1 AND :id + 4;
DELETE FROM docs WHERE id BETWEEN :id + 5 AND :id + 7;
COMMIT;
};
$scripts{undo} = q{
\set id random(1, 2500)
BEGIN;
UPDATE docs SET note = note + 1 WHERE id BETWEEN :id AND :id + 9;
SAVEPOINT s;
DELETE FROM docs WHERE id BETWEEN :id + 5 AND :id + 30;
INSERT INTO docs (tokens, note) SELECT random_set(6), i % 5 FROM generate_series(1, 5) i;
ROLLBACK TO s;
UPDATE docs SET tokens = random_set(6) WHERE id BETWEEN :id + 2 AND :id + 4;
\sleep 5 ms
ROLLBACK;
};
for my $end ('COMMIT', 'ROLLBACK')
{
	$scripts{"prepare and $end"} = qq{
\\set id random(1, 2500)
BEGIN;
INSERT INTO docs (tokens, note) SELECT random_set(6), i % 5 FROM generate_series(1, 5) i;
UPDATE docs SET tokens = random_set(6) WHERE id BETWEEN :id AND :id + 2;
UPDATE docs SET note = (note + 1) % 5 WHERE id BETWEEN :id + 3 AND :id + 6;
DELETE FROM docs WHERE id BETWEEN :id + 7 AND :id + 9;
PREPARE TRANSACTION 'of client :client_id';
\\sleep 10 ms
$end PREPARED 'of client :client_id';
};
}

# For one client each: vacuum, and what makes the table shorter, empties it, fills it.  A
# vacuum that freezes waits for cursors, which may wait for a lock behind REINDEX's, which
# waits for the vacuum: the server does not see that, so all of it is done by one client.
my $vacuum = q{
VACUUM docs;
\sleep 50 ms
DELETE FROM docs WHERE id IN (SELECT id FROM docs ORDER BY random() LIMIT greatest(0, (SELECT count(*) FROM docs) - 1200));
VACUUM docs;
\sleep 50 ms
};
my $truncate = qq{
COPY docs (tokens, note) FROM '$dir/copy.txt';
\\sleep 200 ms
DELETE FROM docs WHERE ctid >= '(8,0)';
VACUUM docs;
INSERT INTO docs (tokens, note) SELECT random_set(6), i % 5 FROM generate_series(1, 400) i;
\\sleep 200 ms
BEGIN;
TRUNCATE docs;
INSERT INTO docs (tokens, note) SELECT random_set(6), i % 5 FROM generate_series(1, 100) i;
ROLLBACK;
\\sleep 200 ms
SELECT gpuvec_evict('docs');
VACUUM (FREEZE) docs;
\\sleep 200 ms
BEGIN;
CREATE TEMP TABLE kept ON COMMIT DROP AS SELECT * FROM docs;
TRUNCATE docs;
INSERT INTO docs (id, tokens, note) SELECT id, tokens, note FROM kept;
COMMIT;
REINDEX INDEX CONCURRENTLY docs_part;
REINDEX INDEX docs_tokens;
REINDEX INDEX docs_terms;
DROP INDEX IF EXISTS docs_seven;
UPDATE docs SET tokens = random_set(6) WHERE id % 7 = 0;
CREATE INDEX CONCURRENTLY docs_seven ON docs USING gpuvec (with_seven(tokens));
};
append_to_file("$dir/copy.txt", join('', map { '{' . $_ % 41 . ",2,$_}\t" . $_ % 5 . "\n" } 1 .. 300));
append_to_file("$dir/$_.sql", $scripts{$_}) for keys %scripts;
append_to_file("$dir/vacuum.sql", $vacuum);
append_to_file("$dir/truncate.sql", $truncate);

# the first errors, with the lines that follow them
sub errors_in
{
	my ($err) = @_;
	my @errors = grep { /ERROR/ && !/^[^\n]*(deadlock detected|could not serialize)/ } split /^(?=\S*pgbench: )/m, $err;

	return join('', @errors[0 .. ($#errors > 4 ? 4 : $#errors)]);
}

for my $verify ('on', 'off')
{
	my @names = grep { $GpuvecTest::pgbench_version >= 15 || /change|undo|prepare|ask (READ|REPEATABLE)/ } sort keys %scripts;
	my $errors = '';
	my $ran = 0;

	$node->append_conf('postgresql.conf', "gpuvec.verify = $verify");
	$node->reload;
	# a machine may be so busy that little runs in the time
	for (my $round = 0; $ran <= 100 && $errors eq '' && $round < 20; $round++)
	{
		my @errors = ('', '', '');
		my @outs = ('', '', '');
		my @runs = (start_pgbench($node, \$outs[0], \$errors[0], '-c', 12, '-T', 12, map { ('-f', "$dir/$_.sql@" . (/ask/ ? 6 : /own/ ? 2 : /cursors/ ? 1 : 4)) } @names),
			start_pgbench($node, \$outs[1], \$errors[1], '-c', 1, '-T', 12, '-f', "$dir/vacuum.sql"), start_pgbench($node, \$outs[2], \$errors[2], '-c', 1, '-T', 12, '-f', "$dir/truncate.sql"));

		$_->finish for @runs;
		$errors = errors_in(join("\n", @errors));
		$ran += join(' ', $outs[0] =~ /actually processed: (\d+)/) || 0;
	}
	is($errors, '', "verify $verify: every answer is right, and no errors");
	cmp_ok($ran, '>', 100, "verify $verify: they ran");
}

# What changes between two searches of a session does not fit a message; several sessions
# wait for each other's refreshes.
$node->safe_psql('postgres', q{
	CREATE FUNCTION long_set(n int) RETURNS idset LANGUAGE sql AS 'SELECT array_agg((n * 31 + j * 17) % 60000)::idset FROM generate_series(1, 300) j';
	CREATE TABLE long_docs (id serial, tokens idset);
	INSERT INTO long_docs (tokens) SELECT long_set(i) FROM generate_series(1, 1000) i;
	CREATE INDEX ON long_docs USING gpuvec (tokens);});
append_to_file("$dir/write.sql", "\\set n random(1, 50000)\nINSERT INTO long_docs (tokens) SELECT long_set(:n + i) FROM generate_series(1, 1200) i;\n\\sleep 20 ms\n");
append_to_file("$dir/index.sql", "\\set n random(1, 50000)\nSET enable_seqscan = off;\nSELECT id FROM long_docs ORDER BY tokens <-> long_set(:n) LIMIT 3;\n");
append_to_file("$dir/topk.sql", "\\set n random(1, 50000)\nSELECT tid FROM gpuvec_topk('long_docs', 'tokens', long_set(:n), 3);\n");
{
	my @errors = ('', '');
	my @outs = ('', '');
	my @runs = (start_pgbench($node, \$outs[0], \$errors[0], '-c', 2, '-T', 8, '-f', "$dir/write.sql"), start_pgbench($node, \$outs[1], \$errors[1], '-c', 10, '-T', 8, '-f', "$dir/index.sql", '-f', "$dir/topk.sql"));

	$_->finish for @runs;
	is(errors_in(join("\n", @errors)), '', 'much is written: no errors');
}
is($node->safe_psql('postgres', 'SELECT restarts FROM gpuvec_engine'), '0', 'the engine lived');

# A database with the number of one that was dropped, and all that a template had
SKIP:
{
	skip 'databases cannot be given a number', 3 if $GpuvecTest::pgbench_version < 15;
	my $ask = q{SET enable_seqscan = off; SET enable_sort = off; SELECT string_agg(id::text, ' ') FROM (SELECT id FROM docs ORDER BY tokens <-> '[1,2]' LIMIT 2) x;
		SELECT string_agg(tid::text, ' ' ORDER BY rank) FROM gpuvec_topk('docs', 'tokens', '[1,2]', 5)};

	$node->safe_psql('postgres', 'CREATE DATABASE template');
	$node->safe_psql('template', q{CREATE EXTENSION gpuvec; CREATE TABLE docs (id int, tokens idset); INSERT INTO docs VALUES (1, '[1,2]'), (2, '[5,6]'); CREATE INDEX ON docs USING gpuvec (tokens)});
	$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE template OID 99999 STRATEGY file_copy');
	is($node->safe_psql('copy', $ask), "1 2\n(0,1)", 'a copied database');
	$node->safe_psql('postgres', 'DROP DATABASE copy');
	$node->safe_psql('template', q{UPDATE docs SET tokens = '[1,7,8]' WHERE id = 1; INSERT INTO docs VALUES (3, '[1,2,3]')});
	for my $strategy ('file_copy', 'wal_log')
	{
		$node->safe_psql('postgres', "CREATE DATABASE copy TEMPLATE template OID 99999 STRATEGY $strategy");
		is($node->safe_psql('copy', $ask), "3 1\n(0,4) (0,3)", "another one in its place, $strategy");
		$node->safe_psql('postgres', 'DROP DATABASE copy');
	}
}
$node->stop;
done_testing();
