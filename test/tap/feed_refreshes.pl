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
