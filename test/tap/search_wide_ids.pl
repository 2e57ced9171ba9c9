# Sets of more different ids than there are hot numbers, up to 2^32 - 1: searches by all measures against brute
# force, while rows come and go, without an index and with one, on a standby, in the next engine, after a restart.
use strict;
use warnings;

use GpuvecTest;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', streaming => 1, conf => "shared_preload_libraries = 'gpuvec'\n");
my $seed = $ENV{WIDE_SEED} // 0.17;

# Each row has some of 3,000 frequent ids, and rare ones that it shares with the next row or with none.  Every fifth row is narrow.
$node->safe_psql('postgres', qq{
	CREATE TABLE measures AS SELECT unnest('{braun_blanquet,jaccard,cosine,dice,overlap,containment,intersection,hamming,kulczynski}'::text[]) AS m;
	CREATE TABLE queries (n int, q idset);
	CREATE TABLE docs (id int PRIMARY KEY, note int, tokens idset) WITH (fillfactor = 80);
	CREATE FUNCTION some_set(i int) RETURNS idset LANGUAGE sql AS \$\$
		SELECT array_agg(id)::idset FROM (
			SELECT floor(random() ^ 3 * 3000)::int8 * CASE i % 5 WHEN 0 THEN 20 ELSE 30 END AS id FROM generate_series(1, 10) UNION ALL
			SELECT (i::int8 * 22 + j) * 46001 FROM generate_series(0, 25) j WHERE i % 5 > 0 AND i < 4180 UNION ALL
			SELECT unnest('{65535,65536,2147483647,2147483648,4294967295}'::int8[]) WHERE i % 97 = 1) x \$\$;
	CREATE FUNCTION score(q idset, s idset, m text) RETURNS float8 LANGUAGE sql AS \$\$
		SELECT CASE m WHEN 'braun_blanquet' THEN braun_blanquet_similarity(q, s) WHEN 'jaccard' THEN jaccard_similarity(q, s) WHEN 'cosine' THEN cosine_similarity(q, s) WHEN 'dice' THEN dice_similarity(q, s)
			WHEN 'overlap' THEN overlap_similarity(q, s) WHEN 'containment' THEN containment_similarity(q, s) WHEN 'intersection' THEN intersection_count(q, s) WHEN 'kulczynski' THEN kulczynski_similarity(q, s) ELSE -hamming_distance(q, s) END \$\$;

	-- Queries that are like rows, narrow ones, long ones, rare ids, ids that no row has
	CREATE PROCEDURE new_queries() LANGUAGE sql AS \$\$
		TRUNCATE queries;
		INSERT INTO queries SELECT row_number() OVER (), q FROM (
			(SELECT tokens FROM docs WHERE id % 5 > 0 AND id BETWEEN 1 AND 3300 ORDER BY random() LIMIT 2) UNION ALL
			(SELECT tokens FROM docs WHERE id % 5 = 0 ORDER BY random() LIMIT 1) UNION ALL
			(SELECT tokens - 30 | 4294967294 | 77777 FROM docs WHERE tokens IS NOT NULL ORDER BY random() LIMIT 1) UNION ALL
			SELECT idset_union(tokens) FROM docs WHERE id % 1999 = 7 UNION ALL
			SELECT idset_agg(id) FROM generate_series(0, 60000, 60) id UNION ALL
			SELECT '{65535,65536,2147483647,2147483648,4294967295}' UNION ALL
			SELECT idset_union(tokens) FROM docs WHERE id % 80 = (SELECT floor(random() * 80)::int) UNION ALL
			SELECT idset_agg((3900 * 22 + floor(random() * 2000)::int8) * 46001) FROM generate_series(1, 12) UNION ALL
			SELECT unnest('{"{4294967295}","{4294967294}","{}",NULL}'::idset[]) UNION ALL SELECT some_set(4001)) x (q) \$\$;

	-- What is wrong: measure, k and query
	CREATE FUNCTION wrong(tab regclass) RETURNS text LANGUAGE plpgsql AS \$\$
	DECLARE
		result text;
	BEGIN
		EXECUTE format(\$q\$
			WITH brute AS MATERIALIZED (SELECT m, n, row_number() OVER (PARTITION BY m, n ORDER BY s DESC, ctid) AS rank, ctid AS tid, s AS score
					FROM (SELECT m, n, t.ctid, score(q, tokens, m) AS s FROM measures, queries, %1\$s t WHERE q && tokens OR (m = 'hamming' AND q IS NOT NULL AND tokens IS NOT NULL)) x),
				expected AS (SELECT m, k, n, rank, tid, score FROM brute, unnest('{1,10,1000}'::int[]) k WHERE rank <= k),
				found AS (SELECT m, k, query AS n, rank, tid, score FROM measures, unnest('{1,10,1000}'::int[]) k, gpuvec_topk_batch('%1\$s', 'tokens', (SELECT array_agg(q ORDER BY n) FROM queries), k, m)
					UNION ALL SELECT m, 0, n, rank, tid, score FROM measures, queries, gpuvec_topk('%1\$s', 'tokens', q, 10, m)),
				single AS (SELECT m, 0 AS k, n, rank, tid, score FROM brute WHERE rank <= 10)
			SELECT coalesce(string_agg(DISTINCT m || ' ' || k || ' ' || n, ', '), 'none')
			FROM (TABLE expected UNION ALL TABLE single) e FULL JOIN found USING (m, k, n, rank)
			WHERE (e.tid, e.score) IS DISTINCT FROM (found.tid, found.score) \$q\$, tab) INTO result;
		RETURN result;
	END \$\$;

	-- The same of index scans
	CREATE FUNCTION distances(op text, q idset, by_index bool) RETURNS float8[] LANGUAGE plpgsql AS \$\$
	DECLARE
		sql text := format('SELECT d FROM (SELECT tokens %s %L AS d FROM docs ORDER BY tokens %1\$s %2\$L LIMIT 300) x', op, q);
		plan text;
		result float8[];
	BEGIN
		PERFORM set_config('enable_seqscan', (NOT by_index)::text, true), set_config('enable_sort', (NOT by_index)::text, true), set_config('enable_indexscan', by_index::text, true);
		EXECUTE 'EXPLAIN (FORMAT JSON) ' || sql INTO plan;
		IF by_index AND plan NOT LIKE '%docs_tokens%' THEN RETURN '{-7}'; END IF;
		EXECUTE format('SELECT array_agg(d) FROM (%s) y', sql) INTO result;
		RETURN result;
	END \$\$;
	CREATE FUNCTION index_wrong() RETURNS text LANGUAGE sql AS \$\$
		SELECT coalesce(string_agg(op || ' ' || n, ', '), 'none') FROM queries, unnest('{<->,<%>,<=>,<#>,<~>}'::text[]) op WHERE q IS NOT NULL AND distances(op, q, true) IS DISTINCT FROM distances(op, q, false) \$\$;

	SELECT setseed($seed);
	INSERT INTO docs SELECT i, 0, some_set(i) FROM generate_series(1, 4000) i;
	INSERT INTO docs VALUES (0, 0, NULL), (-1, 0, '{}');
	CALL new_queries()});
cmp_ok($node->safe_psql('postgres', 'SELECT count(DISTINCT x) FROM docs, unnest(tokens::int8[]) x'), '>', 70000, 'more ids than hot numbers');

# What a new session says, without a warning
sub clean
{
	my ($server, $sql, $expected, $name) = @_;
	my ($rc, $out, $err) = $server->psql('postgres', $sql);

	is("$out$err", $expected, $name);
	return;
}

# Change the table, and compare
my $next = 5000;
my @changes = (
	sub { "UPDATE docs SET note = note + 1 WHERE id % 9 = $_[0] % 9" },
	sub { "UPDATE docs SET tokens = some_set(id + $_[0]) WHERE id % 31 = $_[0] % 31" },
	sub { 'DELETE FROM docs WHERE id % 29 = ' . $_[0] % 29 },
	sub { $next += 100; "INSERT INTO docs SELECT $next + i, 0, some_set(4000 + i * $_[0] % 200) FROM generate_series(1, 90) i" },
	sub { $next += 100; "INSERT INTO docs SELECT $next + i, 0, (SELECT idset_agg(i * j * 1234567 % 4294967296) FROM generate_series(1::int8, CASE i WHEN 1 THEN 40000 WHEN 2 THEN 513 WHEN 3 THEN 512 ELSE 8 END) j) FROM generate_series(1::int8, 20) i" },
	sub { 'VACUUM docs' },
	sub { $next += 100; "BEGIN; INSERT INTO docs SELECT $next, 0, some_set(1); SAVEPOINT s; INSERT INTO docs SELECT $next + 1, 0, some_set(2); ROLLBACK TO s; INSERT INTO docs SELECT $next + 2, 0, some_set(3); COMMIT" });

sub rounds
{
	my ($n, $name, $check) = @_;

	for my $round (1 .. $n)
	{
		$node->safe_psql('postgres', 'SELECT setseed(' . ($seed + $round / 100) . "); $_") for $changes[$round % @changes]->($round), $changes[($round * 5 + 3) % @changes]->($round + 7);
		$node->safe_psql('postgres', 'CALL new_queries()');
		$check->("$name, round $round");
	}
	return;
}

clean($node, q{SELECT gpuvec_prewarm('docs', 'tokens')}, 4001, 'prewarmed');
clean($node, q{SELECT wrong('docs')}, 'none', 'loaded');
rounds(5, 'without an index', sub { clean($node, q{SELECT wrong('docs')}, 'none', $_[0]) });

$node->safe_psql('postgres', 'CREATE INDEX docs_tokens ON docs USING gpuvec (tokens)');
rounds(6, 'with an index', sub { clean($node, q{SELECT wrong('docs'), index_wrong()}, 'none|none', $_[0]) });
rounds(2, 'with an index, the mirror first', sub { clean($node, q{SET gpuvec.ahead_rows = 0; SELECT wrong('docs'), index_wrong()}, 'none|none', $_[0]) });

# A column becomes wide under searches: rows that others write meanwhile come by the feed and on pages
$node->safe_psql('postgres', q{
	CREATE TABLE turning (id int, tokens idset);
	CREATE TABLE turning_plain (id int, tokens idset);
	CREATE TABLE enough (id int);
	INSERT INTO turning SELECT id, tokens FROM docs WHERE id % 5 = 0;
	INSERT INTO turning_plain TABLE turning;
	CREATE INDEX ON turning USING gpuvec (tokens);
	CREATE PROCEDURE write() LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1..100000 LOOP
			INSERT INTO turning VALUES (-i, some_set(i * 7 % 4000));
			INSERT INTO turning_plain VALUES (-i, some_set(i * 7 % 4000));
			IF i % 10 = 0 THEN UPDATE turning SET tokens = tokens | 4294967295 - i WHERE id % 40 = i / 10; END IF;
			COMMIT;
			EXIT WHEN EXISTS (SELECT FROM enough);
			PERFORM pg_sleep(0.002);
		END LOOP;
	END $$});
for my $tab ('turning', 'turning_plain')
{
	clean($node, "SELECT wrong('$tab')", 'none', "$tab: narrow");
}
my $writer = IPC::Run::start(['psql', '-X', '-h', $node->host, '-p', $node->port, '-c', 'CALL write()', 'postgres'], '>', \my $written, '2>', \my $trouble);
wait_for(sub { $node->safe_psql('postgres', 'SELECT count(*) FROM turning_plain WHERE id < 0') > 0 }, 'the first row');
for my $round (1 .. 3)
{
	clean($node, "SELECT wrong('$_')", 'none', "$_: while it becomes wide, $round") for 'turning', 'turning_plain';
}
$node->safe_psql('postgres', 'INSERT INTO enough VALUES (1)');
$writer->finish;
is($trouble, '', 'rows were written');
clean($node, "SELECT wrong('$_')", 'none', "$_: afterwards") for 'turning', 'turning_plain';

# A standby
$node->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'b', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby, 'replay');
clean($standby, q{SELECT wrong('docs'), index_wrong()}, 'none|none', 'a standby');
rounds(1, 'a standby', sub { $node->wait_for_catchup($standby, 'replay'); clean($standby, q{SELECT wrong('docs'), index_wrong(), wrong('turning')}, 'none|none|none', $_[0]) });
$standby->stop;

# The next engine, and another one after a restart: what was resident is loaded again before anybody searches
sub loaded { return $node->safe_psql('postgres', q{SELECT count(*) FROM gpuvec_stat_mirrors() WHERE state = 'ready' AND relation = 'docs'::regclass}) > 0; }

wait_for(sub { -e $node->data_dir . '/gpuvec.autoprewarm' }, 'a list of what is resident');
my $engine = engine_pid($node);
kill 'KILL', $engine;
wait_for(sub { engine_pid($node) =~ /^(?!$engine$)\d+$/ }, 'another engine');
clean($node, q{SELECT wrong('docs'), index_wrong()}, 'none|none', 'the next engine');
$node->restart;
wait_for(\&loaded, 'the copy of docs');
clean($node, q{SELECT requests FROM gpuvec_engine}, 0, 'restarted: nobody has searched');
clean($node, q{SELECT wrong('docs'), index_wrong()}, 'none|none', 'restarted');
rounds(1, 'restarted', sub { clean($node, q{SELECT wrong('docs'), index_wrong()}, 'none|none', $_[0]) });

$node->stop;
done_testing();
