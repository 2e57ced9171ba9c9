# Partitions with an index, searched by one request, while rows wait to be
# applied: there is no room for the worker that does it, so they are laid over
# the answers.  Compared with plain SQL, round after round; and again with an
# engine that puts rows of partitions into common segments whenever they have
# not changed for a moment.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => "max_worker_processes = 1\nmax_logical_replication_workers = 0\n");
$node->safe_psql('postgres', q{
	CREATE TABLE parts (id int, note int, tokens idset) PARTITION BY LIST (id);
	SELECT format('CREATE TABLE parts_%s PARTITION OF parts FOR VALUES IN (%1$s) WITH (fillfactor = 60)', i) FROM generate_series(0, 7) i \gexec
	CREATE FUNCTION some_rows(lo int, hi int) RETURNS TABLE (id int, note int, tokens idset) LANGUAGE sql AS
		$$ SELECT i % 8, 0, ARRAY[i % 7, 10 + i % 5, 20 + i / 10 % 9, 40 + i % 23]::idset FROM generate_series(lo, hi) i $$;
	INSERT INTO parts SELECT * FROM some_rows(1, 2400);
	CREATE INDEX ON parts USING gpuvec (tokens);
	CREATE TABLE asked AS SELECT row_number() OVER () AS n, q FROM unnest('{"{1,11,21,41}","{3,13,25,60}","{0,10,20,21,22,23}","{2}"}'::idset[]) q;
	CREATE FUNCTION best(measure text, k int) RETURNS SETOF text LANGUAGE sql AS $$
		SELECT format('%s %s %s %s %s', n, rank, oid::regclass, ctid, s) FROM (
			SELECT *, row_number() OVER (PARTITION BY n ORDER BY s DESC, oid, ctid) AS rank
			FROM (SELECT n, p.tableoid AS oid, p.ctid, cardinality(q & tokens) AS common,
					CASE measure WHEN 'jaccard' THEN jaccard_similarity(q, tokens) WHEN 'intersection' THEN intersection_count(q, tokens) ELSE -hamming_distance(q, tokens) END AS s
				  FROM asked, parts p) x WHERE common > 0 OR measure = 'hamming') x WHERE rank <= k $$;
	CREATE FUNCTION wrong() RETURNS text LANGUAGE sql AS $$
		SELECT string_agg((SELECT count(*) FROM (SELECT * FROM best(m, k)) a(x) FULL JOIN (
				SELECT format('%s %s %s %s %s', query, rank, source, tid, score) FROM gpuvec_topk_batch('parts', 'tokens', (SELECT array_agg(q ORDER BY n) FROM asked), k, m)) b(x)
			USING (x) WHERE a IS NULL OR b IS NULL)::text, ' ')
		FROM unnest('{jaccard,intersection,hamming}'::text[]) m, unnest('{1,5,30,120}'::int[]) k $$;
	CREATE FUNCTION distances(q idset, k int, by_index bool) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		answer text;
	BEGIN
		PERFORM set_config('enable_seqscan', (NOT by_index)::text, true), set_config('enable_sort', (NOT by_index)::text, true),
			set_config('enable_indexscan', by_index::text, true), set_config('enable_bitmapscan', 'off', true);
		EXECUTE format('SELECT string_agg(d::text, $1) FROM (SELECT tokens <-> %L::idset AS d FROM parts ORDER BY 1 LIMIT %s) x', q, k) INTO answer USING ' ';
		RETURN answer;
	END $$;
	CREATE FUNCTION orders() RETURNS text LANGUAGE sql AS $$
		SELECT format('%s differ', count(*)) FROM asked, unnest('{1,3,40,500}'::int[]) k WHERE distances(q, k, true) IS DISTINCT FROM distances(q, k, false) $$;
	CREATE FUNCTION changes(round int) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO parts SELECT i, round, '{1,11,21,41}' FROM unnest(ARRAY[round % 8, (round * 3 + 1) % 8]) i, generate_series(1, 5 + round % 4 * 9);
		INSERT INTO parts SELECT * FROM some_rows(round * 13, round * 13 + 20);
		UPDATE parts SET note = round WHERE id = round % 5 AND tokens @> (round % 7);
		DELETE FROM parts WHERE id = (round * 5) % 8 AND tokens @> (10 + round % 5) AND note < round - 3;
	END $$;});

my $right = join(' ', (0) x 12);

# rounds(NUMBER...): changes, and what all sessions find meanwhile
sub rounds
{
	my $reader = $node->background_psql('postgres');
	my $writer = $node->background_psql('postgres');

	is(ask($reader, 'SELECT wrong()'), $right, 'at first');
	for my $round (@_)
	{
		ask($writer, "BEGIN; SELECT changes($round)");
		is(ask($reader, 'SELECT wrong()'), $right, "round $round, not committed");
		is(ask($writer, 'SELECT wrong()'), $right, "round $round, own changes");
		ask($writer, $round % 4 == 0 ? 'ROLLBACK; SELECT 1' : 'COMMIT; SELECT 1');
		is(ask($reader, 'SELECT wrong()'), $right, "round $round");
		is(ask($reader, 'SELECT orders()'), '0 differ', "round $round, Merge Append");
		$node->safe_psql('postgres', "VACUUM parts_" . $round % 8) if $round % 3 == 0;
	}
	$reader->quit;
	$writer->quit;
}

rounds(1 .. 16);
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'compounds:1';

	$node->restart;
	rounds(17 .. 28);
	ok($node->poll_query_until('postgres', q{
		SELECT wrong() = repeat('0 ', 11) || '0' AND (SELECT memory_used FROM gpuvec_engine) > (SELECT sum(bytes) FROM gpuvec_mirrors)}),
		'once nothing changes, rows are in common segments');
	is($node->safe_psql('postgres', 'SELECT wrong()'), $right, 'and found there');
}

# Partitions without an index follow the WAL.  What a session does not know of
# them it learns from one request; then all go together, however many are
# behind.
$node->safe_psql('postgres', q{
	CREATE TABLE plain (id int, tokens idset) PARTITION BY LIST (id);
	SELECT format('CREATE TABLE plain_%s PARTITION OF plain FOR VALUES IN (%1$s)', i) FROM generate_series(0, 63) i \gexec
	INSERT INTO plain SELECT row_number() OVER () % 64, tokens FROM some_rows(1, 2400);
	SELECT gpuvec_prewarm('plain', 'tokens')});
my $emit = q{SELECT pg_logical_emit_message(false, 'any', 'thing')};
my $explain = q{EXPLAIN (ANALYZE, COSTS OFF) SELECT score FROM gpuvec_topk('plain', 'tokens', '{1,11}', 5)};
foreach my $session (1, 2)
{
	my @plans = split(/Function Scan|Custom Scan/, $node->safe_psql('postgres', "$emit; $explain; $emit; $explain"));

	like($plans[1], qr/Engine Requests: [12]\n/, "session $session: a first search");
	like($plans[2], qr/Engine Requests: 1\n/, 'and the next one');
}

# an engine that answers what nobody has asked is not believed
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'another-query';

	$node->restart;
	cmp_ok($node->safe_psql('postgres', q{SELECT gpuvec_prewarm('parts', 'tokens')}), '>', 0, 'another query: loaded');
	for my $table ('parts_1', 'parts')
	{
		my (undef, undef, $err) = $node->psql('postgres', qq{SELECT * FROM gpuvec_topk('$table', 'tokens', '{1,11}', 5)});

		like($err, qr/invalid message from the gpuvec engine/, "another query: $table");
	}
}
$node->stop;
done_testing();
