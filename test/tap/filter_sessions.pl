# Many sessions ask for rows by conditions on filter columns while others change these.  Each
# answer is compared with a sequential scan in the same statement, so under the same snapshot,
# at all isolation levels, with the worker that applies rows of feeds.
use strict;
use warnings;

use GpuvecHistories;
use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => "max_connections = 40\nmax_prepared_transactions = 10\n");
my $dir = $node->basedir;

$node->safe_psql('postgres', random_set_sql() . q{
	CREATE TABLE docs (id serial, tokens idset, tenant int, price numeric, tags idset, note int DEFAULT 0) WITH (fillfactor = 60);
	CREATE FUNCTION add(n int) RETURNS void LANGUAGE sql AS $$
		INSERT INTO docs (tokens, tenant, price, tags) SELECT random_set(6), nullif((sqrt(random()) * 12)::int, 3), (random() * 9)::int / 4.0, random_set(3) FROM generate_series(1, n) $$;
	SELECT add(2000);
	ALTER TABLE docs ADD PRIMARY KEY (id);
	CREATE INDEX docs_filters ON docs USING gpuvec (tokens, tenant, price, tags);
	CREATE INDEX docs_kept ON docs USING gpuvec ((tokens | 7), (tenant + 1), price) WHERE note < 2;
	ANALYZE docs;

	-- Rows that satisfy a condition, in order of a distance, or in none, and the same by a
	-- sequential scan: both in one statement
	CREATE FUNCTION checked(op int, q idset, k int, form int, tenants int, how int) RETURNS void LANGUAGE plpgsql
		SET enable_seqscan = off SET enable_sort = off AS $$
	DECLARE
		cond text := format((ARRAY['tenant = %1$s', 'tenant < %1$s AND price = 0.75', 'tenant >= %1$s AND tags && ''{5,7,9}''', 'tenant IS NULL', 'price > 1 AND tenant = ANY (''{%1$s,5}'')', 'tenant = %1$s AND tokens IS NULL',
			'tenant + 1 = %1$s AND note < 2', 'tenant + 1 < %1$s AND price > 1.5 AND note < 2'])[form], tenants);
		other text := format((ARRAY['tenant + 0 = %1$s', 'tenant + 0 < %1$s AND price + 0 = 0.75', 'tenant + 0 >= %1$s AND intersection_count(tags, ''{5,7,9}'') > 0', '(tenant + 0) IS NULL', 'price + 0 > 1 AND tenant + 0 IN (%1$s, 5)', 'tenant + 0 = %1$s AND cardinality(tokens) IS NULL',
			'tenant + 1 + 0 = %1$s AND note < 2', 'tenant + 1 + 0 < %1$s AND price + 0 > 1.5 AND note < 2'])[form], tenants);
		distance text := format('%s %s %L::idset', CASE WHEN form < 7 THEN 'tokens' ELSE '(tokens | 7)' END, (ARRAY['<->', '<%>', '<=>', '<#>', '<~>'])[op], q);
		r record;
	BEGIN
		PERFORM set_config('gpuvec.freshness', (ARRAY['auto', 'wal', 'sweep'])[how], true);
		EXECUTE format('WITH a AS MATERIALIZED (SELECT *, row_number() OVER () AS n FROM (SELECT id, ctid AS tid, %1$s AS d FROM docs WHERE %2$s ORDER BY %1$s LIMIT %4$s) x),
				b AS MATERIALIZED (SELECT id, ctid AS tid, nullif(%1$s, -1e30) AS d FROM docs WHERE %3$s),
				s AS MATERIALIZED (SELECT d, row_number() OVER (ORDER BY d) AS n FROM b)
			SELECT (SELECT count(*) FROM a) AS rows, (SELECT least(count(*), %4$s) FROM b) AS sorted_rows, (SELECT count(DISTINCT id) FROM a) AS ids,
				(SELECT count(*) FROM a JOIN s USING (n) WHERE a.d IS DISTINCT FROM s.d) AS in_wrong_order,
				(SELECT count(*) FROM a WHERE NOT EXISTS (SELECT FROM b WHERE b.id = a.id AND b.tid = a.tid AND b.d IS NOT DISTINCT FROM a.d)) AS wrong,
				(SELECT array_agg(id ORDER BY id) FROM docs WHERE %2$s) IS DISTINCT FROM (SELECT array_agg(id ORDER BY id) FROM b) AS wrong_without_order', distance, cond, other, k) INTO r;
		IF r.rows <> r.sorted_rows OR r.ids <> r.rows OR r.in_wrong_order + r.wrong > 0 OR r.wrong_without_order THEN
			RAISE EXCEPTION 'mistake: % k % where %, freshness %: %', distance, k, cond, how, r;
		END IF;
	END $$;});

like($node->safe_psql('postgres', q{SET enable_seqscan = off; SET enable_sort = off;
	EXPLAIN SELECT id FROM docs WHERE tenant = 3 ORDER BY tokens <-> '{1}'; EXPLAIN SELECT id FROM docs WHERE tenant + 1 = 3 AND note < 2 ORDER BY (tokens | 7) <-> '{1}'}),
	qr/Index Scan using docs_filters.*Index Cond: \(tenant = 3\).*Index Scan using docs_kept.*Index Cond: \(\(tenant \+ 1\) = 3\)/s, 'indexes are used');

my %scripts = (change => q{
\set id random(1, 4000)
BEGIN;
SELECT add(3);
UPDATE docs SET tenant = (random() * 12)::int WHERE id BETWEEN :id AND :id + 4;
UPDATE docs SET note = (note + 1) % 4 WHERE id BETWEEN :id + 5 AND :id + 8;
UPDATE docs SET tokens = random_set(6), price = price + 0.25, tags = random_set(3) WHERE id BETWEEN :id + 9 AND :id + 10;
DELETE FROM docs WHERE id BETWEEN :id + 11 AND :id + 13;
COMMIT;
}, undo => q{
\set id random(1, 4000)
BEGIN;
UPDATE docs SET tenant = 5 WHERE id BETWEEN :id AND :id + 9;
SAVEPOINT s;
DELETE FROM docs WHERE id BETWEEN :id + 5 AND :id + 30;
SELECT add(5);
ROLLBACK TO s;
SELECT checked(1, '{1,2,3}', 50, 1, 5, 1);
\sleep 5 ms
ROLLBACK;
}, vacuum => q{
VACUUM docs;
\sleep 50 ms
DELETE FROM docs WHERE id IN (SELECT id FROM docs ORDER BY random() LIMIT greatest(0, (SELECT count(*) FROM docs) - 2000));
SELECT gpuvec_evict('docs');
\sleep 200 ms
VACUUM (FREEZE) docs;
\sleep 100 ms
});
$scripts{"ask $_"} = qq{
\\set op random(1, 5)
\\set how random(1, 3)
\\set k random(1, 400)
\\set form random(1, 8)
\\set tenant random(0, 13)
BEGIN ISOLATION LEVEL $_;
SELECT checked(:op, coalesce(random_set(6), '{1,2}'), :k, :form, :tenant, :how);
SELECT checked(:op, '{60000}', :k, 9 - :form, :tenant, :how);
COMMIT;
} for 'READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE';
append_to_file("$dir/$_.sql", $scripts{$_}) for keys %scripts;

my ($out, $err, $vacuum_out, $vacuum_err) = ('') x 4;
my @runs = (start_pgbench($node, \$out, \$err, '-c', 8, '-t', 25, map { ('-f', "$dir/$_.sql@" . (/ask READ/ ? 3 : 2)) } grep { $_ ne 'vacuum' } keys %scripts),
	start_pgbench($node, \$vacuum_out, \$vacuum_err, '-c', 1, '-t', 15, '-f', "$dir/vacuum.sql"));
$_->finish for @runs;
unlike("$err$vacuum_err", qr/mistake|PANIC|server closed/, 'no answer differs from a sequential scan');
diag($err) if $err =~ /mistake/;
my ($done) = ($out =~ /number of transactions actually processed: (\d+)/);
cmp_ok($done // 0, '>', 50, 'sessions were busy');
like($vacuum_out, qr/actually processed: [1-9]/, 'with vacuum beside them');
$node->stop;
done_testing();
