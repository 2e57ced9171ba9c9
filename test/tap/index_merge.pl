# Scans of partitions that are merged, of which the engine goes in the middle:
# cursors give the rest in order, no row twice and none lost, whether another
# engine follows or not.  So they do if mirrors of some partitions only are
# there, and if more rows are laid over those of a partition than are asked
# for: there is no room for the worker that applies them.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => "max_worker_processes = 1\nmax_logical_replication_workers = 0\n");
my $q = '{1,11,21,41}';
my $force = 'SET enable_seqscan = off; SET enable_sort = off; SET enable_bitmapscan = off;';
my $brute = 'SET enable_indexscan = off; SET enable_bitmapscan = off;';
$node->safe_psql('postgres', q{
	CREATE TABLE parts (id int, n int, tokens idset) PARTITION BY LIST (id);
	SELECT format('CREATE TABLE parts_%s PARTITION OF parts FOR VALUES IN (%1$s)', i) FROM generate_series(0, 4) i \gexec
	INSERT INTO parts SELECT i % 5, i, CASE WHEN i % 97 = 0 THEN NULL WHEN i % 89 = 0 THEN '{}' ELSE ARRAY[i % 7, 10 + i % 6, 20 + i / 10 % 9, 40 + i % 23]::idset END
		FROM generate_series(1, 6000) i;
	CREATE INDEX ON parts USING gpuvec (tokens);
	ANALYZE parts;
	CREATE FUNCTION take(c refcursor, many int) RETURNS int[] LANGUAGE plpgsql AS $$
	DECLARE
		n int;
		ns int[] := '{}';
	BEGIN
		WHILE many > 0 LOOP
			FETCH c INTO n;
			EXIT WHEN NOT FOUND;
			ns := ns || n;
			many := many - 1;
		END LOOP;
		RETURN ns;
	END $$});
my %cursors = (
	'<%>' => "SELECT n FROM parts ORDER BY tokens <%> '$q'",
	'<#>, ties' => "SELECT n FROM parts ORDER BY tokens <#> '{1}'",
	'<=>' => "SELECT n FROM parts ORDER BY tokens <=> '$q'",
	'<~>' => "SELECT n FROM parts ORDER BY tokens <~> '$q'",
	'weights' => "SELECT n FROM parts ORDER BY tokens <#> '{1:0.5,2:-1,11:1,14:-0.25,21:0.25}'::idvec",
	'a filter' => "SELECT n FROM parts WHERE n % 50 = 7 ORDER BY tokens <%> '$q'",
	'of some' => "SELECT n FROM parts WHERE id < 2 ORDER BY tokens <%> '$q'");
like($node->safe_psql('postgres', "$force EXPLAIN $cursors{'<%>'}"), qr/gpuvec merge/, 'the plan');
# A sort of all rows costs less than a scan of each partition, but more than
# one request for all.
$node->safe_psql('postgres', q{
	CREATE TABLE many (id int, tokens idset) PARTITION BY HASH (id);
	SELECT format('CREATE TABLE many_%s PARTITION OF many FOR VALUES WITH (MODULUS 40, REMAINDER %1$s)', i) FROM generate_series(0, 39) i \gexec
	INSERT INTO many SELECT i, ARRAY[i % 97, 100 + i % 89]::idset FROM generate_series(1, 8000) i;
	CREATE INDEX ON many USING gpuvec (tokens);
	ANALYZE many});
like($node->safe_psql('postgres', "EXPLAIN SELECT id, tokens <-> '{1,101}' AS d FROM many ORDER BY d LIMIT 10"), qr/gpuvec merge/, 'the plan for many small partitions');

# What cursors give of which the first rows come before something is done, and
# the rest after it
sub halves
{
	my ($name, $before, $between, $warnings) = @_;
	my (%expected, @opened);
	my $said = '';

	for my $what (sort keys %cursors)
	{
		$expected{$what} = $node->safe_psql('postgres', "$brute SELECT count(*) || md5(string_agg(n::text, ' ')) FROM ($cursors{$what}, tableoid, ctid) x");
		push @opened, map { [$what, $_] } 0, 1, 20, 127, 128, 129, 600, 1500, 20000;
	}
	# one session, so one snapshot
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	ask($session, "$force CREATE TEMP TABLE got (cursor int, part int, ns int[]); BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM parts WHERE n < 0");
	for my $i (0 .. $#opened)
	{
		my ($what, $n) = @{ $opened[$i] };
		$before->();
		ask($session, "DECLARE c$i CURSOR FOR $cursors{$what}; INSERT INTO got SELECT $i, 1, take('c$i', $n)");
	}
	$between->();
	$node->safe_psql('postgres', q{DELETE FROM parts WHERE n % 7 = 0; UPDATE parts SET tokens = '{1,11}' WHERE n % 11 = 0; INSERT INTO parts SELECT id, n + 10000, tokens FROM parts WHERE n <= 1000});
	for my $i (0 .. $#opened)
	{
		my ($what, $n) = @{ $opened[$i] };
		$session->query("INSERT INTO got SELECT $i, 2, take('c$i', 1000000)");
		$said .= $session->{stderr};
		$session->{stderr} = '';
		is(ask($session, "SELECT count(*) || md5(string_agg(n::text, ' ' ORDER BY part, r)) FROM got, unnest(ns) WITH ORDINALITY AS u(n, r) WHERE cursor = $i"),
			$expected{$what}, "$name: $what, $n rows before: all rows, once, in order");
	}
	is(scalar(() = $said =~ /WARNING|ERROR/g), $warnings, "$name: warnings");
	ask($session, 'COMMIT');
	$session->quit;
	# rows in the order of their tids again, so that ties are
	$node->safe_psql('postgres', q{CREATE TEMP TABLE kept AS TABLE parts; TRUNCATE parts; INSERT INTO parts SELECT * FROM kept WHERE n <= 6000 ORDER BY n});
	return;
}

# The engine ends, and there is another one, or none
sub lose_engine
{
	my ($program) = @_;
	my $old = engine_pid($node);

	$node->append_conf('postgresql.conf', "gpuvec.engine_program = '$program'");
	$node->reload;
	kill 'KILL', $old;
	wait_for(sub { !kill(0, $old) }, 'the end of the engine');
	return;
}

halves('nothing', sub { }, sub { }, 0);
halves('another engine', sub { }, sub { lose_engine($ENV{GPUVEC_ENGINE_PROGRAM}) }, 0);
# (scans of the others ask by themselves, and so know more rows than are known
# of these)
my $evict = sub { $node->safe_psql('postgres', q{SELECT gpuvec_evict('parts_1'), gpuvec_evict('parts_3')}) };
halves('mirrors of some', $evict, sub { }, 0);
{
	my $add = "INSERT INTO parts SELECT 2, 10000 + i, '$q' FROM generate_series(1, 300) i;";

	$node->safe_psql('postgres', $add);
	for my $what ('<%>', '<=>', '<~>')
	{
		is($node->safe_psql('postgres', "$force $add BEGIN; DECLARE c CURSOR FOR $cursors{$what}; SELECT array_to_string(take('c', 900), ' ')"),
			$node->safe_psql('postgres', "$brute SELECT string_agg(n::text, ' ') FROM ($cursors{$what}, tableoid, ctid LIMIT 900) x"), "rows laid over: $what");
	}
	$node->safe_psql('postgres', 'DELETE FROM parts WHERE n > 10000; VACUUM parts');
}
halves('no engine', $evict, sub { lose_engine('/bin/false') }, 1);
$node->stop;
done_testing();
