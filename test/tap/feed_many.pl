# More indexes hand over their rows than have large rings: searches of all
# partitions lay these over, and wait for nothing.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $parts = 40;
# there is no room for the feeder: searches find the rows where the indexes
# have put them
my $node = new_node('main', conf => "max_locks_per_transaction = 512\nmax_worker_processes = 1\nmax_logical_replication_workers = 0\n");

$node->safe_psql('postgres', qq{
	CREATE TABLE parts (id int, n int, tokens idset) PARTITION BY LIST (id);
	DO \$\$BEGIN
		FOR i IN 0 .. $parts - 1 LOOP
			EXECUTE format('CREATE TABLE parts_%s PARTITION OF parts FOR VALUES IN (%s)', i, i);
		END LOOP;
	END\$\$;
	INSERT INTO parts SELECT i % $parts, i, ARRAY[i % 97, i % 89 + 100, i % 83 + 200]::idset FROM generate_series(1, 8000) i;
	CREATE INDEX ON parts USING gpuvec (tokens);
	ANALYZE parts;});

my $query = q{'{1,2,101,102,201,202}'};
my $session = $node->background_psql('postgres');

# The scores of a search are those of a sort
sub right
{
	my ($name) = @_;
	my $exact = qq{SELECT string_agg(s::text, ' ') FROM (SELECT braun_blanquet_similarity(tokens, $query) AS s FROM parts ORDER BY 1 DESC LIMIT 100) x};

	is(ask($session, qq{SELECT string_agg(score::text, ' ' ORDER BY rank) FROM gpuvec_topk('parts', 'tokens', $query, 100)}),
		$node->safe_psql('postgres', $exact), $name);
	return;
}

# What EXPLAIN tells of a search
sub told { return $session->query_safe(qq{EXPLAIN (ANALYZE, VERBOSE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT * FROM gpuvec_topk('parts', 'tokens', $query, 10)}); }

# the second search finds mirrors that follow their indexes
right("search $_") for 1, 2;
is($node->safe_psql('postgres', q{SELECT count(*) FROM gpuvec_mirrors WHERE rows_waiting IS NOT NULL}), $parts, 'all follow their indexes');
for my $round (1 .. 3)
{
	$node->safe_psql('postgres', qq{INSERT INTO parts SELECT i, $round, '{1,2,101,102,201,202}' FROM generate_series(0, $parts - 1) i});
	my $plan = told();

	like($plan, qr/Engine Requests: 1\n/, "round $round: one request");
	unlike($plan, qr/Waits for Changes/, "round $round: no wait");
	right("round $round: new rows of all partitions");
}
# as many rows as the small rings have room for
$node->safe_psql('postgres', qq{INSERT INTO parts SELECT i, n, ARRAY[1, 2, 101, 300 + n]::idset FROM generate_series(0, $parts - 1) i, generate_series(1, 100) n});
is($node->safe_psql('postgres', q{SELECT count(*) || ' ' || sum(pages_waiting) FROM gpuvec_mirrors WHERE rows_waiting >= 100}), "$parts 0", 'rings have all rows, and no page waits');
right('rows that all rings have');
# more rows than the small rings have room for
$node->safe_psql('postgres', qq{INSERT INTO parts SELECT i % $parts, i, ARRAY[i % 97, i % 89 + 100, 300 + i % 83]::idset FROM generate_series(1, 40000) i});
right('rows that are not at hand any more');
$node->safe_psql('postgres', 'DELETE FROM parts WHERE n % 3 = 1');
$node->safe_psql('postgres', 'VACUUM parts');
right('rows that are gone');
$node->safe_psql('postgres', qq{INSERT INTO parts SELECT i, 7, '{1,2,101,102,201}' FROM generate_series(0, $parts - 1) i});
right('new rows once more');
is($node->safe_psql('postgres', q{SELECT count(*) FROM gpuvec_mirrors WHERE rows_waiting IS NOT NULL}), $parts, 'all follow their indexes still');

# A session's first search knows of the mirror what others have learned of it:
# rows that wait are laid over the answer, and wait on
$node->safe_psql('postgres', q{CREATE TABLE docs (id int, tokens idset); INSERT INTO docs SELECT i, ARRAY[1, i % 50 + 2]::idset FROM generate_series(1, 2000) i; CREATE INDEX ON docs USING gpuvec (tokens)});
my $nearest = q{SET enable_seqscan = off; SELECT id FROM docs ORDER BY tokens <-> '{1,7777}' LIMIT 1};
my $fed = q{SELECT rows_waiting || ' ' || rows_by_feed FROM gpuvec_mirrors WHERE relation = 'docs'::regclass};
is($node->safe_psql('postgres', $nearest), 1, 'a first session: loads');
$node->safe_psql('postgres', q{INSERT INTO docs VALUES (-1, '{1,7777}')});
is($node->safe_psql('postgres', $nearest), -1, 'a session while nothing is known: right row');
is($node->safe_psql('postgres', $fed), '0 1', 'it was applied');
for my $n (2 .. 4)
{
	$node->safe_psql('postgres', qq{INSERT INTO docs VALUES (-$n, '{1,7777}'); DELETE FROM docs WHERE id = 1 - $n});
	is($node->safe_psql('postgres', $nearest), -$n, "session $n: right row");
	is($node->safe_psql('postgres', $fed), $n - 1 . ' 1', "session $n: rows wait");
}

# Of an index without a feed, for which there is no place, nothing is counted
# without a look at the rows.  That is no reason to warn.
my $slots = 128;
my $last = 'crowd_' . ($slots + 1);
$node->safe_psql('postgres', qq{
	SET enable_seqscan = off;
	DO \$\$BEGIN
		FOR i IN 1 .. $slots + 1 LOOP
			EXECUTE format('CREATE TABLE crowd_%s (tokens idset); INSERT INTO crowd_%s VALUES (''{1}''), (''{1,2}''); CREATE INDEX ON crowd_%s USING gpuvec (tokens)', i, i, i);
		END LOOP;
	END\$\$;
	DO \$\$BEGIN
		FOR i IN 1 .. $slots LOOP
			EXECUTE format('SELECT FROM crowd_%s ORDER BY tokens <-> ''{1}'' LIMIT 1', i);
		END LOOP;
	END\$\$;
	INSERT INTO $last SELECT ARRAY[1, i % 50 + 2]::idset FROM generate_series(1, 2000) i;});
$node->safe_psql('postgres', "VACUUM ANALYZE $last");
for my $table ('parts_0', $last)
{
	my ($out, $err) = ('', '');

	$node->psql('postgres', qq{SET enable_seqscan = off; EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT count(*) FROM $table WHERE tokens && '{1}'}, stdout => \$out, stderr => \$err);
	like($out, qr/gpuvec count/, "$table: the node");
	is($err, '', "$table: no warning");
	is($out =~ /Scans Run/ ? 'run' : 'counted', $table eq $last ? 'run' : 'counted', "$table: a scan or a count");
}

$session->quit;
$node->stop;
done_testing();
