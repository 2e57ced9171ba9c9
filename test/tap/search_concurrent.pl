# Many sessions search one table while others change it; every answer is compared
# with brute force under the same snapshot.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => "max_connections = 120\n");
$node->safe_psql('postgres', q{
	CREATE TABLE docs (id serial PRIMARY KEY, tokens idset, n int) WITH (fillfactor = 70);
	INSERT INTO docs (tokens, n) SELECT ARRAY[i % 31, i % 37 + 40, i % 41 + 80, i % 3 + 130]::idset, 0 FROM generate_series(1, 2000) i;
	CREATE TABLE mistakes (what text);
	CREATE FUNCTION compare(q idset, k int) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE a text; b text;
	BEGIN
		SELECT string_agg(tid::text || ':' || score || ':' || common, ' ' ORDER BY rank) INTO a FROM gpuvec_topk('docs', 'tokens', q, k);
		SELECT string_agg(ctid::text || ':' || s || ':' || n, ' ' ORDER BY s DESC, ctid) INTO b FROM (
			SELECT ctid, jaccard.s, intersection_count(q, tokens) AS n FROM docs,
				LATERAL (SELECT intersection_count(q, tokens)::float8 / greatest(cardinality(q), cardinality(tokens)) AS s) jaccard
			WHERE tokens && q ORDER BY jaccard.s DESC, ctid LIMIT k) x;
		IF a IS DISTINCT FROM b THEN
			RAISE EXCEPTION 'mistake: % is not %', a, b;
		END IF;
	END $$;});

my $search = q{
\set a random(0, 30)
\set b random(40, 76)
\set c random(130, 132)
\set k random(1, 40)
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT compare(ARRAY[:a, :b, :c]::idset, :k);
COMMIT;
};
my $change = q{
\set id random(1, 3000)
\set a random(0, 30)
BEGIN;
INSERT INTO docs (tokens, n) VALUES (ARRAY[:a, :a + 40, 131]::idset, 1);
UPDATE docs SET tokens = tokens | (:a + 80) WHERE id = :id;
UPDATE docs SET n = n + 1 WHERE id = :id + 1;
DELETE FROM docs WHERE id = :id + 2;
END;
};
my $rollback = q{
\set id random(1, 3000)
BEGIN;
DELETE FROM docs WHERE id BETWEEN :id AND :id + 5;
SAVEPOINT s;
INSERT INTO docs (tokens) VALUES ('{1,2,3,41,42,130}');
ROLLBACK TO s;
INSERT INTO docs (tokens) VALUES ('{5,45,131}');
ROLLBACK;
};
# one client alone vacuums: several would wait for one another's attempts to truncate
my $vacuum = "VACUUM docs;\n\\sleep 100 ms\n";
my $dir = $node->basedir;
my %scripts = (search => $search, change => $change, rollback => $rollback, vacuum => $vacuum);
append_to_file("$dir/$_.sql", $scripts{$_}) for keys %scripts;

for my $level ('on', 'off')
{
	$node->append_conf('postgresql.conf', "gpuvec.verify = $level");
	$node->reload;
	my ($out, $err) = ('', '');
	my $vacuuming = IPC::Run::start(
		['pgbench', '-n', '-c', '1', '-T', '8', '-f', "$dir/vacuum.sql", '-h', $node->host, '-p', $node->port, 'postgres'],
		'>', '/dev/null', '2>', '/dev/null');
	my $ok = IPC::Run::run(
		['pgbench', '-n', '-c', '50', '-j', '2', '-T', '8', '-f', "$dir/search.sql\@30", '-f', "$dir/change.sql\@10",
			'-f', "$dir/rollback.sql\@3", '-h', $node->host, '-p', $node->port, 'postgres'],
		'>', \$out, '2>', \$err);
	ok($vacuuming->finish, "verify $level: vacuum");
	unlike($err, qr/mistake/, "verify $level: every answer is right");
	# deadlocks between updates are not ours
	my @errors = grep { /ERROR/ && !/deadlock detected|could not serialize/ } split /\n/, $err;
	is(join("\n", @errors[0 .. ($#errors > 4 ? 4 : $#errors)]), '', "verify $level: no errors");
	like($out, qr/number of transactions actually processed: [1-9]/, "verify $level: it ran");
}
cmp_ok($node->safe_psql('postgres', 'SELECT refreshes FROM gpuvec_mirrors WHERE relation = \'docs\'::regclass'), '>', 10, 'the mirror was refreshed');
is($node->safe_psql('postgres', 'SELECT restarts FROM gpuvec_engine'), '0', 'the engine lived');
$node->stop;
done_testing();
