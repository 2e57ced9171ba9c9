# Refreshes by pages of a mirror that follows an index.  They tell the engine which records the
# pages have, so that older records do not come over newer pages.  There is no room for the
# worker that applies rows, so rows wait.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => "autovacuum = off\nmax_worker_processes = 1\nmax_logical_replication_workers = 0\n");
$node->safe_psql('postgres', q{
	CREATE TABLE docs (id int, tokens idset);
	INSERT INTO docs SELECT i, ARRAY[i, 60001]::idset FROM generate_series(1, 3000) i;
	CREATE INDEX docs_knn ON docs USING gpuvec (tokens);});

my $next = 10000;
sub insert { my ($n) = @_; $node->safe_psql('postgres', "INSERT INTO docs SELECT i, '[1,60002]' FROM generate_series($next, $next + $n - 1) i"); $next += $n; return; }
sub waiting { return $node->safe_psql('postgres', 'SELECT rows_waiting FROM gpuvec_mirrors'); }

# The rows that were inserted, as an index scan and a function find them
sub right
{
	my ($name) = @_;
	my $rows = $next - 10000;
	my $scan = "SELECT count(*) FROM (SELECT id FROM docs ORDER BY tokens <-> '[1,60002]' LIMIT $rows) x WHERE id >= 10000";

	is($node->safe_psql('postgres', "SET statement_timeout = '20s'; SET enable_seqscan = off; SET enable_sort = off; SET gpuvec.ahead_rows = 0; $scan"), $rows, "$name: an index scan");
	is($node->safe_psql('postgres', "SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '[1,60002]', $rows) WHERE score = 1"), $rows, "$name: a function");
	return;
}

# by a function that does not follow the index, as it returns many rows
insert(1);
right('at first');
insert(10);
is(waiting(), '10', 'rows wait');
$node->safe_psql('postgres', "SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '[1]', 400)");
is(waiting(), '0', 'a function has read the pages: no row waits');
insert(10);
is(waiting(), '10', 'the mirror still follows the index');
right('after a function');

# rows that a search lays over the engine's answer, while they are few bytes:
# all are found, also of those that are more, and by a session that knows the
# mirror
my $knows = $node->background_psql('postgres');
ask($knows, 'SET enable_seqscan = off; SET enable_sort = off');
for my $kind ([1, 'narrow'], [70000, 'wide'])
{
	my ($from, $name) = @$kind;
	my $set = sub { my ($ids) = @_; return "(SELECT idset_agg(id) FROM generate_series($from, $from + $ids - 1) id)"; };
	my $all = sub { my ($n) = @_; return 'SELECT count(*) FROM (SELECT id FROM docs ORDER BY tokens <-> ' . $set->(400) . " LIMIT $n) x WHERE id < 0"; };

	for my $n (100, 250, 330, 600)
	{
		is(ask($knows, $all->(1)), '0', "no $name rows yet");
		$node->safe_psql('postgres', "INSERT INTO docs SELECT -i, tokens FROM (SELECT " . $set->(400) . ") s (tokens), generate_series(1, $n) i");
		is(waiting(), $n, "$n $name rows wait");
		is(ask($knows, $all->($n)), $n, "$n $name rows: a session that knows the mirror");
		is($node->safe_psql('postgres', 'SET enable_seqscan = off; SET enable_sort = off; ' . $all->($n)), $n, "$n $name rows: another one");
		$node->safe_psql('postgres', 'DELETE FROM docs WHERE id < 0');
		ask($knows, 'SET gpuvec.ahead_rows = 0; ' . $all->(1) . '; RESET gpuvec.ahead_rows');
	}
}
$knows->quit;

# by one that cannot follow it, as somebody has locked it
insert(10);
my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; REINDEX INDEX docs_knn');
is($node->safe_psql('postgres', "SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '[1,60002]', 31) WHERE score = 1"), '31', 'without the index');
$locker->query_safe('ROLLBACK');
$locker->quit;
is(waiting(), '', 'the mirror follows the index no more');
right('after the lock');
insert(10);
is(waiting(), '10', 'it follows the index again');

# A session remembers mirrors in a table, where another mirror may take the
# place of one: what it knows of the WAL belongs to one of them.  More mirrors
# come between than the table has places, so some meet.
$node->safe_psql('postgres', 'CREATE TABLE met (' . join(', ', map { "c$_ idset" } 1 .. 12) . '); CREATE TABLE others (' . join(', ', map { "c$_ idset" } 1 .. 1400) . ");
	INSERT INTO met SELECT s, s, s, s, s, s, s, s, s, s, s, s FROM (SELECT ARRAY[i, 60001]::idset FROM generate_series(1, 500) i) x (s); INSERT INTO others (c1) VALUES ('[1]');
	" . join(';', map { "CREATE INDEX ON met USING gpuvec (c$_)" } 1 .. 12));
my $met = $node->background_psql('postgres');
my $scans = 'SELECT ' . join(' + ', map { "(SELECT count(*) FROM (SELECT c$_ FROM met ORDER BY c$_ <-> '[1,60002]' LIMIT 1) x WHERE c$_ = '[1,60002]')" } 1 .. 12);
my $functions = 'SELECT ' . join(' + ', map { "(SELECT count(*) FROM gpuvec_topk('met', 'c$_', '[1,60002]', 400) WHERE score = 1)" } 1 .. 12);
ask($met, 'SET enable_seqscan = off; SET enable_sort = off');
is(ask($met, $scans), '0', 'many mirrors');
my $row = 'INSERT INTO met VALUES (' . join(', ', ("'[1,60002]'") x 12) . ')';
$node->safe_psql('postgres', $row);
is(ask($met, "SET gpuvec.ahead_rows = 0; $scans; RESET gpuvec.ahead_rows"), '12', 'many mirrors: the engine has a row');
$node->safe_psql('postgres', $row);
ask($met, q{DO $$ BEGIN FOR i IN 1 .. 1400 LOOP PERFORM gpuvec_topk('others', 'c' || i, '[1]', 1); END LOOP; END $$});
is(ask($met, $scans), '12', 'many mirrors: index scans, for which rows wait');
is(ask($met, $functions), '24', 'many mirrors: functions, which do not follow the indexes');
$met->quit;
$node->safe_psql('postgres', 'DROP TABLE met, others');

# the engine may refuse rows
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'refuse-rows';
	$node->restart;
}
right('another engine');
insert(10);
is(waiting(), '10', 'rows wait to be refused');
right('refused');
is(waiting(), '0', 'pages were read instead');
is($node->safe_psql('postgres', 'SELECT rows_by_feed FROM gpuvec_mirrors'), '0', 'no row was taken');
$node->stop;
done_testing();
