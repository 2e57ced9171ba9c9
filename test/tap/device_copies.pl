# Several devices: small tables have copies on all of them, and sessions search them at the same time.  Copies
# are as fresh as the table, and give way to what needs their memory.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# small segments, and so several of them in small tables
local $ENV{GPUVEC_ENGINE_FAULT} = 'full-segment:64';
my $node = new_node('main', conf => "gpuvec.engine = 'cpu'\ngpuvec.cpu_parts = 3\nautovacuum = off\nmax_prepared_transactions = 10\n", streaming => 1);
make_docs($node, 400);

sub sql
{
	my ($query) = @_;
	return $node->safe_psql('postgres', $query);
}

# Of the copy of a table that was used last: its rows, and the rows on each device
sub places
{
	my ($table, $on) = @_;
	my ($all, @rows) = split /,/, ($on // $node)->safe_psql('postgres', qq{
		WITH last AS (SELECT * FROM gpuvec_mirrors WHERE relation = '$table'::regclass ORDER BY last_use DESC LIMIT 1)
		SELECT concat_ws(',', max(last.rows), string_agg(p.rows::text, ',' ORDER BY device))
		FROM gpuvec_mirror_devices p JOIN last USING (relation)});
	return ($all // 0, @rows);
}

sub copied
{
	my ($table, $on) = @_;
	my ($all, @rows) = places($table, $on);
	return $all > 0 && "@rows" eq "$all $all $all";
}

sub is_copied
{
	my ($name, $table, $on) = @_;
	ok(copied($table, $on), "$name: each device has all rows") or diag(join(' ', places($table, $on)));
	return;
}

sub is_spread
{
	my ($name, $table) = @_;
	my ($all, @rows) = places($table);
	ok(@rows == 3 && $rows[0] + $rows[1] + $rows[2] == $all, "$name: rows are spread") or diag("$all: @rows");
	return;
}

best($node, 'a small table');
is_copied('a small table', 'docs');
is(sql(q{SELECT sum(d.memory_used) <= max(e.memory_used) FROM gpuvec_devices d, gpuvec_engine e}), 't', 'copies count as memory');

# changes of rows, with merges, and an index that hands rows over
for my $round (1 .. 8)
{
	sql('CREATE INDEX docs_tokens ON docs USING gpuvec (tokens); SELECT gpuvec_evict($$docs$$)') if $round == 5;
	sql(qq{
		UPDATE docs SET tokens = tokens | (id % 90)::bigint WHERE id % 7 = $round % 7;
		DELETE FROM docs WHERE id % 50 = $round;
		INSERT INTO docs SELECT i, ARRAY[i % 97, i % 89 + 100, i % 83 + 200, $round]::idset FROM generate_series($round * 10000, $round * 10000 + 40) i;});
	sql('VACUUM docs') if $round % 3 == 0;
	best($node, "round $round");
	is_copied("round $round", 'docs');
}
sql('INSERT INTO docs SELECT 900000 + i, ARRAY[1, 2, i]::idset FROM generate_series(1, 20) i');
wait_for(sub { sql(q{SELECT count(*) FROM gpuvec_mirrors WHERE relation = 'docs'::regclass AND rows_waiting = 0}) eq '1' }, 'the feeder');
best($node, 'rows of the feeder');
is_copied('rows of the feeder', 'docs');

# random histories: whoever reads finds what plain SQL finds in the same snapshot
my ($asked, $wrong) = random_history($node, rounds => 25,
	changes => [
		sub { sprintf('UPDATE docs SET tokens = tokens | %d::bigint WHERE id %% 40 = %d', int(rand(90)), int(rand(40))) },
		sub { sprintf('DELETE FROM docs WHERE id %% 60 = %d', int(rand(60))) },
		sub { sprintf('INSERT INTO docs SELECT (random() * 1e8)::int, ARRAY[i %% 97, i %% 89 + 100, %d]::idset FROM generate_series(1, 15) i ON CONFLICT DO NOTHING', int(rand(300))) },
		sub { 'SELECT 1' } ],
	between => sub { sql('VACUUM docs') if $_[0] % 6 == 0 },
	question => sub {
		my $method = ('auto', 'bitset', 'inverted')[ int(rand(3)) ];
		return ("SET gpuvec.method = $method", 'SELECT CASE WHEN (' . GpuvecTest::search_sql('docs') . ') IS NOT DISTINCT FROM (' . GpuvecTest::brute_sql('docs') . q{) THEN 'same' ELSE 'other' END});
	});
is($wrong, 0, "$asked answers of random histories");

# single queries of many sessions: all devices answer, and each as plain SQL does, while rows change
my $before = sql(q{SELECT string_agg(searches::text, ',' ORDER BY device) FROM gpuvec_devices});
$node->pgbench('--no-vacuum --client=8 --transactions=60', 0, [qr{processed: 480/480}], [qr{^$}], 'sessions',
	{ 'copies@7' => q{
\set a random(1, 90)
SELECT 1 / (NOT EXISTS (
	(SELECT tid, score FROM gpuvec_topk('docs', 'tokens', ARRAY[:a, 101, 202]::idset, 12, 'jaccard'))
	EXCEPT ALL (SELECT ctid, jaccard_similarity(ARRAY[:a, 101, 202]::idset, tokens) FROM docs)))::int,
	1 / (12 = (SELECT count(*) FROM gpuvec_topk('docs', 'tokens', ARRAY[:a, 101, 202]::idset, 12, 'hamming')))::int;},
	  'writes@1' => q{
\set a random(1, 400)
UPDATE docs SET tokens = tokens | 5 WHERE id = :a;} });
is(sql(qq{SELECT bool_and(searches > was + 20) FROM gpuvec_devices d, unnest('{$before}'::bigint[]) WITH ORDINALITY x(was, n) WHERE n = device + 1}), 't', 'all devices have searched');
best($node, 'after that');

# a large batch is divided
sql('SELECT count(*) FROM gpuvec_topk_batch($$docs$$, $$tokens$$, (SELECT array_agg(tokens) FROM docs), 3)');
is( sql(q{SELECT sum(hashtext(query || ' ' || rank || tid || score)) FROM gpuvec_topk_batch('docs', 'tokens', (SELECT array_agg(tokens ORDER BY id) FROM docs WHERE id % 3 = 0), 12)}),
	sql(q{SELECT sum(hashtext(n || ' ' || rank || ctid || s)) FROM (SELECT *, row_number() OVER (PARTITION BY n ORDER BY s DESC, ctid) AS rank FROM (
			SELECT q.n, d.ctid, braun_blanquet_similarity(q.tokens, d.tokens) AS s FROM (SELECT tokens, row_number() OVER (ORDER BY id) AS n FROM docs WHERE id % 3 = 0) q, docs d WHERE d.tokens && q.tokens) x) x WHERE rank <= 12}),
	'a batch of queries');

# filter columns, with nulls, and null sets are copied as well
sql(q{
	CREATE TABLE tenants AS SELECT i AS id, i % 7 AS tenant, CASE WHEN i % 5 > 0 THEN 'w' || i % 3 END AS word,
		CASE WHEN i % 11 > 0 THEN ARRAY[i % 97, i % 89 + 100, i % 7 + 200]::idset END AS tokens FROM generate_series(1, 400) i;
	CREATE INDEX tenants_tokens ON tenants USING gpuvec (tokens, tenant, word);});
for my $condition ('d.tenant = q.tenant', q{d.word = 'w1'}, 'd.word IS NULL AND d.tenant <> q.tenant', q{d.tenant < 3 AND d.word > 'w0'})
{
	my $search = qq{SELECT string_agg(q.id || ':' || x.d, ' ' ORDER BY q.id, x.d) FROM (SELECT * FROM tenants WHERE id % 7 = 1 AND tokens IS NOT NULL) q,
		LATERAL (SELECT d.tokens <-> q.tokens AS d FROM tenants d WHERE $condition ORDER BY d.tokens <-> q.tokens LIMIT 4) x};

	is(sql("SET enable_seqscan = off; SET enable_sort = off; $search"), sql("SET enable_indexscan = off; SET enable_bitmapscan = off; $search"), "with filter columns: $condition");
}
is_copied('with filter columns', 'tenants');

# placement: a parameter of the index
sql(q{
	CREATE TABLE large AS SELECT i AS id, ARRAY[i % 97, i % 89 + 100, i % 83 + 200, i % 7 + 300]::idset AS tokens FROM generate_series(1, 4000) i;
	CREATE INDEX large_tokens ON large USING gpuvec (tokens);});
best($node, 'a larger table', 'large');
is_spread('a larger table', 'large');
sql('ALTER INDEX large_tokens SET (placement = replicate)');
sql(q{SELECT gpuvec_evict('large')});
best($node, 'a larger table with copies', 'large');
is_copied('replicate', 'large');
sql('UPDATE large SET tokens = tokens | 9 WHERE id % 100 = 1');
best($node, 'changed', 'large');
is_copied('changed', 'large');
sql('ALTER INDEX docs_tokens SET (placement = spread)');
sql(q{SELECT gpuvec_evict('docs')});
best($node, 'a small table that is spread');
is_spread('spread', 'docs');

# who may set it, and when it counts
my $reader = 'SET ROLE reader;';
sql('CREATE ROLE reader; GRANT SELECT ON docs, large TO reader; CREATE INDEX ON large (id)');
my ($rc, $out, $err) = $node->psql('postgres', "$reader ALTER INDEX large_tokens SET (placement = spread)");
like($err, qr/must be owner of/, 'only the owner sets it');
($rc, $out, $err) = $node->psql('postgres', 'ALTER INDEX large_tokens SET (placement = everywhere)');
like($err, qr/invalid value for enum option "placement": everywhere\nDETAIL:  Valid values are "auto", "replicate", and "spread"/, 'its values');
sql('ALTER INDEX large_tokens RESET (placement)');
sql(q{BEGIN; SELECT gpuvec_evict('large'); ALTER INDEX large_tokens SET (placement = replicate); SELECT count(*) FROM gpuvec_topk('large', 'tokens', '{1}', 5); ROLLBACK});
best($node, 'after a rollback', 'large');
is_spread('after a rollback', 'large');
sql('ALTER INDEX large_tokens SET (placement = replicate)');
sql(q{SELECT gpuvec_evict('large')});
sql('ALTER INDEX docs_tokens RESET (placement)');
sql('UPDATE docs SET tokens = tokens | 11 WHERE id % 30 = 2; SELECT gpuvec_evict($$docs$$)');
best($node, 'without a placement');
is_copied('auto', 'docs');

# what a dump has, and a standby
SKIP:
{
	my $dump = $node->basedir . '/dump.sql';
	$node->command_ok([ 'pg_dump', '--schema-only', '-f', $dump, '-d', $node->connstr('postgres') ], 'pg_dump');
	like(slurp_file($dump), qr/CREATE INDEX large_tokens ON public\.large USING gpuvec \(tokens\) WITH \(placement='?replicate'?\)/, 'a dump has it');

	$node->backup('backup');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($node, 'backup', has_streaming => 1);
	$standby->start;
	$node->wait_for_catchup($standby, 'replay', $node->lsn('write'));
	is($standby->safe_psql('postgres', GpuvecTest::search_sql('large')), $node->safe_psql('postgres', GpuvecTest::brute_sql('large')), 'a standby');
	is_copied('a standby', 'large', $standby);
	$standby->stop;
}

# restarts
$node->restart;
best($node, 'after a restart', 'large');
is_copied('after a restart', 'large');

# Memory: copies are dropped before a table is evicted or refused, and come back
$node->append_conf('postgresql.conf', 'gpuvec.device_memory = 1MB');
$node->reload;
wait_for(sub { sql('SELECT sum(memory_budget) = 1024 * 1024 FROM gpuvec_devices') eq 't' }, 'little memory');
best($node, 'little memory', 'large');
is_copied('little memory', 'large');
my $taken = sql(q{SELECT memory_used FROM gpuvec_engine});
cmp_ok($taken, '<=', 1024 * 1024, 'copies keep the budget');
sql(q{CREATE TABLE filler AS SELECT i AS id, (SELECT idset_agg((i::bigint * j * 31) % 503) FROM generate_series(1, 20) j) AS tokens FROM generate_series(1, 4800) i});
my $copied = sql(q{SELECT bytes FROM gpuvec_mirrors WHERE relation = 'large'::regclass});
is(best($node, 'another table', 'filler'), '', 'no warning');
cmp_ok(sql(q{SELECT bytes FROM gpuvec_mirrors WHERE relation = 'large'::regclass}), '<', $copied / 2, 'the other table takes less');
is(sql('SELECT evictions FROM gpuvec_engine'), '0', 'nothing was evicted for it');
is_spread('its copies are gone', 'large');
is(best($node, 'without its copies', 'large'), '', 'no warning');
sql(q{SELECT gpuvec_evict('filler')});
sql('UPDATE large SET tokens = tokens | 13 WHERE id % 100 = 2; SELECT pg_sleep(0)');
best($node, 'changed when there is memory again', 'large');
wait_for(sub { best($node, 'in the end', 'large'); copied('large') }, 'copies come back');
done_testing();
