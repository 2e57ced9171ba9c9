# What searches leave for the planner: when the engine is slow, dies, or has too many mirrors, and after a restart.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $knn = q{SELECT id FROM docs ORDER BY tokens <-> '{1,101,201}' LIMIT 10};

my $node = new_node('main');
make_docs($node, 20000);
$node->safe_psql('postgres', 'CREATE INDEX docs_tokens ON docs USING gpuvec (tokens); ANALYZE docs');

# What is known of a table
sub known
{
	my ($what, $table) = @_;
	$table //= 'docs';
	return $node->safe_psql('postgres', "SELECT $what FROM gpuvec_costs WHERE relation = '$table'::regclass");
}

# The plan of a search, and the costs before its first row
sub planned
{
	my ($server, $table) = @_;
	my $plan = $server->safe_psql('postgres', "SET statement_timeout = '20s'; SET enable_seqscan = off; EXPLAIN " . ($knn =~ s/docs/$table/r));
	return $plan =~ /Index Scan using ${table}_tokens on $table  \(cost=([0-9]+[.][0-9]+)[.][.]/ ? $1 : "another plan: $plan";
}

is(known('resident'), '', 'nothing is known before the first search');
my $cold = planned($node, 'docs');	# by constants alone
$node->safe_psql('postgres', "$knn;" x 41);
is(known('resident, rows, trips'), 't|20000|5', 'searches leave what they found');

# the plan is made without the engine
my $engine = engine_pid($node);
my $trip = known('trip_operators');
stop_processes($engine);
my $warm = planned($node, 'docs');
is(known('resident'), 't', 'what is known is there when the engine does not answer');
kill 'CONT', $engine;
cmp_ok(abs($warm - ($trip + 20000 * known('rank_operators')) * 0.0025), '<', 0.006, 'nobody waits for the engine to plan');

# one answer that takes a second: the second search of a session is timed
my $session = $node->background_psql('postgres');
is(ask($session, "SELECT count(*) FROM ($knn) x"), 10, 'a session searches');
my $trips = known('trips');
$trip = known('trip_operators');
stop_processes($engine);
$session->query_until(qr/started/, "\\echo started\n$knn;\n");
usleep(1_000_000);
kill 'CONT', $engine;
$session->quit;
is(known('trips'), $trips + 1, 'a slow search was timed');
cmp_ok(abs(known('trip_operators') - $trip - (20000 - $trip) / 8), '<', 0.01, 'it counts for an eighth, as one that takes twice as long as usual');
unlike(planned($node, 'docs'), qr/another/, 'the plan is the same');
is($node->safe_psql('postgres', "EXPLAIN (COSTS OFF) $knn") =~ s/\n.*//sr, 'Limit', 'it is so if a scan of the table is allowed');
like($node->safe_psql('postgres', "EXPLAIN (COSTS OFF) $knn"), qr/Index Scan using docs_tokens/, 'which is not taken');

# mirrors go with their engine
$warm = planned($node, 'docs');
kill 'KILL', $engine;
wait_for(sub { !kill(0, $engine) }, 'the end of the engine');
wait_for(sub { known('resident') eq 'f' }, 'the news of it');
is(known('resident, rows'), 'f|20000', 'the mirror is gone, and remembered');
cmp_ok(planned($node, 'docs'), '>', $warm + 1, 'it has to be loaded again');
$node->safe_psql('postgres', $knn);
is(known('resident'), 't', 'it is resident again');

# more mirrors than there is room for
my $tables = 1000;
$node->safe_psql('postgres', join '', 'SET enable_seqscan = off;', map {
	"CREATE TABLE t$_ AS SELECT i AS id, ARRAY[i]::idset AS tokens FROM generate_series(1, 1000) i; ANALYZE t$_; CREATE INDEX t${_}_tokens ON t$_ USING gpuvec (tokens);"
	. ($knn =~ s/docs/t$_/r) . ';' } 1 .. $tables);
my $slots = $node->safe_psql('postgres', 'SELECT count(*) FROM gpuvec_costs');
cmp_ok($slots, '>', 400, 'many have room');
cmp_ok($slots, '<=', 512, 'the table is fixed');
my $unknown = $node->safe_psql('postgres', "SELECT relname FROM pg_class WHERE relname ~ '^t[0-9]+\$' AND oid NOT IN (SELECT relation FROM gpuvec_stat_costs()) LIMIT 1");
cmp_ok(abs(planned($node, $unknown) - (known('trip_operators') + 0.025 * 1000) * 0.0025), '<', 0.006, 'of others the costs are the constants, as of what is resident');
# those that are not resident make room
$node->safe_psql('postgres', "SELECT gpuvec_evict(oid) FROM pg_class WHERE relname ~ '^t[0-9]+\$'");
$node->safe_psql('postgres', 'SET enable_seqscan = off;' . ($knn =~ s/docs/$unknown/r));
is(known('resident, rows, ids', $unknown), 't|1000|1000', 'there is room for one more');
is(known('resident'), 't', 'and nothing lost of what is resident');

# all is lost in a restart
$node->restart;
is($node->safe_psql('postgres', 'SELECT count(*) FROM gpuvec_stat_costs()'), '0', 'nothing is known after a restart');
is(planned($node, 'docs'), $cold, 'plans are made as if all had to be loaded');

# with preloading, what was resident is so again before any search, and is known to be
my $preloaded = new_node('preloaded', conf => "shared_preload_libraries = 'gpuvec'\n");
make_docs($preloaded, 25000);
$preloaded->safe_psql('postgres', "CREATE INDEX docs_tokens ON docs USING gpuvec (tokens); ANALYZE docs; $knn");
my $oid = $preloaded->safe_psql('postgres', "SELECT 'docs'::regclass::oid");
my $list = $preloaded->data_dir . '/gpuvec.autoprewarm';
wait_for(sub { -e $list && slurp_file($list) =~ / $oid / }, 'the list of what is resident');
$preloaded->restart;
my $known = "SELECT resident, rows FROM gpuvec_costs WHERE relation = 'docs'::regclass";
wait_for(sub { $preloaded->safe_psql('postgres', $known) ne '' }, 'a load');
is($preloaded->safe_psql('postgres', $known), 't|25000', 'what is loaded after a restart is known');
is(planned($preloaded, 'docs'), '25.16', 'and searches are as cheap as they are by constants, for sets of five ids');
$preloaded->stop;
$node->stop;

done_testing();
