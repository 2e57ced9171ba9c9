# The engine keeps one visibility map for a session.  Two sorted aggregates of one query take turns; the mirror of one table
# goes, and cannot be loaded again: the engine has got that table's map all the same, which proves nothing of the other table.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

# with checksums, which 18 has by default, who first reads a row may write to the WAL, and then a mirror is refreshed: one commit more
my ($version) = `initdb --version` =~ /(\d+)/;
my $node = new_node('main', init => $version >= 18 ? ['--no-data-checksums'] : []);
$node->stop;
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'oom-on-commit:3';
	$node->start;
}
$node->safe_psql('postgres', q{
	CREATE TABLE a (id int, v real[]) WITH (fillfactor = 50);
	CREATE TABLE b (id int, v real[]) WITH (fillfactor = 50);
	INSERT INTO a SELECT i, ARRAY[i, 1] FROM generate_series(1, 60) i;
	INSERT INTO b SELECT i, ARRAY[i, 2] FROM generate_series(1, 60) i;
	CREATE FUNCTION pause(g int) RETURNS int LANGUAGE plpgsql VOLATILE AS $$ BEGIN
		IF g = 10 THEN
			PERFORM pg_advisory_lock(1), pg_advisory_unlock(1);
		END IF;
		RETURN g;
	END $$;});
$node->safe_psql('postgres', "VACUUM $_") for 'a', 'b';
# rows that are gone, but not for everybody, are in the mirror, on pages that are not all-visible
my $old_snapshot = $node->background_psql('postgres');
ask($old_snapshot, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM a');
$node->safe_psql('postgres', 'UPDATE a SET v[2] = 3');
$node->safe_psql('postgres', "SELECT gpuvec_prewarm('$_', 'id', 'v')") for 'a', 'b';

my $holder = $node->background_psql('postgres');
ask($holder, 'SELECT pg_advisory_lock(1)');
my $session = $node->background_psql('postgres', on_error_stop => 0);
ask($session, 'SET enable_hashagg = off; SET client_min_messages = error');
$session->query_until(qr/started/, q{\echo started
SELECT g, gpuvec_sum_agg('a', 'id', 'v', 20 + g), gpuvec_sum_agg('b', 'id', 'v', 20 + g), pause(g) FROM generate_series(1, 20) g GROUP BY g ORDER BY g;
});
$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted");
is($node->safe_psql('postgres', "SELECT gpuvec_evict('b')"), '1', 'the mirror of one table is gone');
my ($rc, $out, $err) = $node->psql('postgres', "SELECT gpuvec_prewarm('b', 'id', 'v')");
isnt($rc, 0, 'and cannot be loaded');
ask($holder, 'SELECT pg_advisory_unlock(1)');
is(ask($session, q{\echo}), join("\n", map { $_ . '|{' . (20 + $_) . ',3}|{' . (20 + $_) . ",2}|$_" } 1 .. 20), 'the answer');
unlike($session->{stderr}, qr/ERROR/, 'no error');
$_->quit for $session, $holder, $old_snapshot;

# The engine dies between two groups: the map that was read before says
# nothing of what the next engine has loaded since
$node->restart;
$node->safe_psql('postgres', 'CREATE TABLE c (id int, v real[]); INSERT INTO c SELECT i, ARRAY[i, 4] FROM generate_series(1, 30) i');
$node->safe_psql('postgres', 'VACUUM c');
# of many loads, so that the next engine begins with lower numbers
$node->safe_psql('postgres', "SELECT gpuvec_evict('c'), gpuvec_prewarm('c', 'id', 'v')") for 1 .. 10;
$holder = $node->background_psql('postgres');
ask($holder, 'SELECT pg_advisory_lock(1)');
$session = $node->background_psql('postgres', on_error_stop => 0);
ask($session, 'SET enable_hashagg = off; SET client_min_messages = error');
$session->query_until(qr/started/, q{\echo started
SELECT g, gpuvec_sum_agg('c', 'id', 'v', 20 + g), pause(g) FROM generate_series(1, 20) g GROUP BY g ORDER BY g;
});
$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted");
my $engine = engine_pid($node);
kill 'KILL', $engine;
wait_for(sub { engine_pid($node) =~ /^(?!$engine$)\d+$/ }, 'another engine');
# (a row that is gone, for whoever begins now: so the map counts, and not the
# newest transaction of the page)
$node->safe_psql('postgres', 'INSERT INTO c SELECT i, ARRAY[i, 4] FROM generate_series(31, 60) i; DELETE FROM c WHERE id = 1');
$node->safe_psql('postgres', "SELECT gpuvec_prewarm('c', 'id', 'v')");
ask($holder, 'SELECT pg_advisory_unlock(1)');
is(ask($session, q{\echo}), join("\n", map { $_ . '|{' . ($_ <= 10 ? 20 + $_ . ',4' : '0,0') . "}|$_" } 1 .. 20), 'the answer of two engines');
$_->quit for $session, $holder;
$node->stop;
done_testing();
