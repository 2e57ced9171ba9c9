# What was resident before a restart is resident again after it, without any search.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', streaming => 1,
	conf => "shared_preload_libraries = 'gpuvec'\nmax_prepared_transactions = 5\n");

sub list_file
{
	my ($server) = @_;
	return $server->data_dir . '/gpuvec.autoprewarm';
}

# The mirrors that can be searched, as oids of the relations
sub resident
{
	my ($server) = @_;
	return $server->safe_psql('postgres',
		q{SELECT string_agg(relation::text, ' ' ORDER BY relation) FROM gpuvec_stat_mirrors() WHERE state = 'ready'});
}

# The relations that the file lists, in its order
sub listed
{
	my ($server) = @_;
	return 'no list' if !-e list_file($server);
	my ($first, @lines) = split /\n/, slurp_file(list_file($server));
	return join(' ', map { (split ' ')[1] } @lines);
}

# Wait until a function gives this
sub becomes
{
	my ($got, $expected, $name) = @_;
	wait_for(sub { $got->() eq $expected }, $name);
	is($got->(), $expected, $name);
	return;
}

# How often the log says something
sub says
{
	my ($server, $pattern, $from) = @_;
	my @hits = substr(slurp_file($server->logfile), $from // 0) =~ /$pattern/g;
	return scalar @hits;
}

sub log_size
{
	my ($server) = @_;
	return length slurp_file($server->logfile);
}

# How often sessions have searched
sub searches
{
	my ($server) = @_;
	return $server->safe_psql('postgres', 'SELECT requests FROM gpuvec_engine');
}

# The worker that waits in the middle of a load
sub loading
{
	my ($server) = @_;
	my $worker;
	wait_for(sub { $worker = $server->safe_psql('postgres', q{
		SELECT pid FROM pg_stat_activity WHERE backend_type = 'gpuvec autoprewarm worker' AND datname = 'other' AND wait_event = 'advisory'}) }, 'a load');
	return $worker;
}

# Replace the list
sub write_list
{
	my ($lines) = @_;
	unlink list_file($node);
	append_to_file(list_file($node), "gpuvec autoprewarm 1\n$lines");
	return;
}

my %oid;
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION gpuvec');
for (['postgres', 'docs'], ['postgres', 'gone'], ['postgres', 'changed'], ['other', 'papers'])
{
	my ($database, $table) = @$_;
	$node->safe_psql($database, "CREATE TABLE $table (id int, tokens idset);
		INSERT INTO $table SELECT i, ARRAY[i % 97, i % 89 + 100, i % 83 + 200]::idset FROM generate_series(1, 5000) i");
	$oid{$table} = $node->safe_psql($database, "SELECT '$table'::regclass::oid");
}

# the list follows what is resident, the last searched first
becomes(sub { -e list_file($node) ? 'yes' : 'no' }, 'no', 'no list without mirrors');
$node->safe_psql('postgres', q{SELECT gpuvec_prewarm('gone', 'tokens')});
$node->safe_psql('postgres', q{SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{1}', 5)});
$node->safe_psql('other', q{SELECT count(*) FROM gpuvec_topk('papers', 'tokens', '{1}', 5)});
becomes(sub { listed($node) }, "$oid{papers} $oid{docs} $oid{gone}", 'the list');
$node->safe_psql('postgres', q{SELECT gpuvec_prewarm('changed', 'tokens')});
becomes(sub { listed($node) }, "$oid{papers} $oid{docs} $oid{gone} $oid{changed}", 'one more mirror');
is((stat list_file($node))[2] & 0777, 0600, 'the list is private');
becomes(sub { $node->safe_psql('postgres', 'SELECT sessions FROM gpuvec_engine') }, '1', 'the leader does not stay connected to the engine');

# the engine alone is killed: the next one is served as after a restart
my $engine = engine_pid($node);
kill 'KILL', $engine;
wait_for(sub { engine_pid($node) =~ /^(?!$engine$)\d+$/ }, 'another engine');
becomes(sub { resident($node) }, join(' ', sort { $a <=> $b } values %oid), 'a killed engine: all are resident in the next');
is(searches($node), '0', 'a killed engine: nobody searched');
becomes(sub { listed($node) }, "$oid{papers} $oid{docs} $oid{gone} $oid{changed}", 'a killed engine: the list is as before');

# killed again, right after it: no second time within a minute, but nothing is forgotten
$engine = engine_pid($node);
kill 'KILL', $engine;
wait_for(sub { engine_pid($node) =~ /^(?!$engine$)\d+$/ }, 'another engine');
sleep 7;
is(resident($node), '', 'killed again: nothing is loaded at once');
is(listed($node), "$oid{papers} $oid{docs} $oid{gone} $oid{changed}", 'killed again: the list stays');

# after a restart: all but the tables that are there no more, in both databases
my $all = join(' ', sort { $a <=> $b } @oid{qw(docs papers)});
$node->safe_psql('postgres', 'DROP TABLE gone; ALTER TABLE changed ALTER tokens TYPE int[] USING tokens::int[]');
$node->stop;
my $from = log_size($node);
$node->start;
becomes(sub { resident($node) }, $all, 'restart: both are resident');
is(searches($node), '0', 'restart: nobody searched');
becomes(sub { listed($node) }, "$oid{papers} $oid{docs}", 'restart: the list is that of what is resident');
is($node->safe_psql('postgres', q{SELECT string_agg(loads::text, ' ') FROM gpuvec_stat_mirrors()}), '1 1', 'restart: each was loaded once');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'gpuvec autoprewarm worker'}), '0', 'no worker stays');
is(says($node, 'autoprewarm could not|FATAL|PANIC', $from), 0, 'restart: no trouble in the log');
best($node, 'restart');

# a crash
$node->stop('immediate');
$node->start;
becomes(sub { resident($node) }, $all, 'crash: both are resident');


# a standby that has been made of it loads them too
$node->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'b', has_streaming => 1);
$standby->start;
becomes(sub { resident($standby) }, $all, 'standby: both are resident');
is(searches($standby), '0', 'standby: nobody searched');
best($standby, 'standby');
$standby->stop;

# a table that is locked is passed over, the others are loaded
$node->safe_psql('postgres', q{BEGIN; LOCK TABLE docs; PREPARE TRANSACTION 'lock'});
$from = log_size($node);
$node->restart;
becomes(sub { resident($node) }, $oid{papers}, 'a locked table: the other one is resident');
becomes(sub { says($node, "passes over relation $oid{docs} of database .postgres., which is locked", $from) }, 1, 'a locked table: the log says so');
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'lock'});
best($node, 'a table that was locked');
becomes(sub { listed($node) }, "$oid{docs} $oid{papers}", 'the list has it again');

# mirrors of indexes: of a column, an expression and a predicate; one index is dropped
$node->safe_psql('postgres', q{
	CREATE TABLE notes (id int, note int[], tokens idset);
	INSERT INTO notes SELECT i, ARRAY[i % 97, i % 89 + 100], ARRAY[i % 97, i % 89 + 100]::idset FROM generate_series(1, 5000) i;
	CREATE INDEX notes_column ON notes USING gpuvec (tokens);
	CREATE INDEX notes_expression ON notes USING gpuvec ((note::idset));
	CREATE INDEX notes_predicate ON notes USING gpuvec (tokens) WHERE id % 2 = 0;
	CREATE INDEX notes_dropped ON notes USING gpuvec (tokens) WHERE id % 2 = 1;
	ALTER DATABASE postgres SET enable_seqscan = off;
	ALTER DATABASE postgres SET enable_sort = off});
my @indexes = map { "SELECT string_agg((id % 97)::text, ' ') FROM (SELECT id FROM notes $_ LIMIT 10) x" }
	(q{ORDER BY tokens <-> '{1,101}'}, q{ORDER BY note::idset <-> '{2,102}'}, q{WHERE id % 2 = 0 ORDER BY tokens <-> '{3,103}'},
	 q{WHERE id % 2 = 1 ORDER BY tokens <-> '{4,104}'});
my @before = map { $node->safe_psql('postgres', $_) } @indexes;
$oid{notes} = $node->safe_psql('postgres', q{SELECT 'notes'::regclass::oid});
wait_for(sub { 4 == grep { $_ eq $oid{notes} } split ' ', listed($node) }, 'four mirrors of the table in the list');
$node->safe_psql('postgres', 'DROP INDEX notes_dropped');
pop @indexes;
$node->restart;
becomes(sub { resident($node) }, join(' ', sort { $a <=> $b } @oid{qw(docs papers notes notes notes)}), 'indexes: three mirrors of the table are resident');
is(searches($node), '0', 'indexes: nobody searched');
for my $i (0 .. $#indexes)
{
	like($node->safe_psql('postgres', "EXPLAIN $indexes[$i]"), qr/Index Scan using notes/, "index $i is used");
	is($node->safe_psql('postgres', $indexes[$i]), $before[$i], "index $i: the rows are the same");
}
best($node, 'indexes');
is($node->safe_psql('postgres', 'SELECT count(*), sum(loads) FROM gpuvec_stat_mirrors()'), '5|5', 'indexes: searches have used the mirrors that were there');
$node->safe_psql('postgres', 'DROP TABLE notes');
$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET ALL');
$node->restart;
becomes(sub { resident($node) }, $all, 'the table of the indexes is dropped');
becomes(sub { listed($node) }, "$oid{docs} $oid{papers}", 'it leaves the list');

# whoever copies a database need not wait for a load in it, which goes on afterwards
$node->safe_psql('other', q{BEGIN; SELECT pg_advisory_xact_lock(71866, 0); PREPARE TRANSACTION 'hold'});
$node->append_conf('postgresql.conf', "gpuvec.injection_point = 'load-after-first-page'");
$node->restart;
becomes(sub { resident($node) }, $oid{docs}, 'a load that waits: the other database is done') if loading($node);
$node->restart;
is(listed($node), "$oid{docs} $oid{papers}", 'stopped while it loads: nothing is forgotten');
my $worker = loading($node);
ok($worker, 'a worker loads');
my $session = $node->background_psql('other');
ask($session, 'SELECT 1');
my $copier = $node->background_psql('postgres', on_error_stop => 0);
$copier->query_until(qr/started/, "\\echo started\nCREATE DATABASE copy TEMPLATE other;\n");
wait_for(sub { !kill(0, $worker) }, 'the end of the worker');
ok($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CREATE DATABASE%' AND state = 'active'}),
	'the worker has gone while CREATE DATABASE still waits');
ask($session, q{ROLLBACK PREPARED 'hold'});
$session->quit;
$copier->quit;
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_database WHERE datname = 'copy'}), '1', 'the database is copied');
becomes(sub { resident($node) }, $all, 'the load is done afterwards');

# a database that is gone
becomes(sub { listed($node) =~ /$oid{papers}/ ? 'listed' : '' }, 'listed', 'a database in the list');
$node->safe_psql('postgres', 'DROP DATABASE other');
$node->stop;
$from = log_size($node);
$node->start;
becomes(sub { resident($node) }, $oid{docs}, 'a database that is gone: the rest is loaded');
is(says($node, 'autoprewarm could not|FATAL|PANIC', $from), 0, 'a database that is gone: no trouble in the log');
becomes(sub { listed($node) }, $oid{docs}, 'a database that is gone: it leaves the list');

# errors are for the log, and the next mirror has its turn
$node->safe_psql('postgres', q{CREATE TABLE more AS SELECT * FROM docs; SELECT gpuvec_prewarm('more', 'tokens')});
my $more = $node->safe_psql('postgres', q{SELECT 'more'::regclass::oid});
becomes(sub { listed($node) }, "$oid{docs} $more", 'two mirrors');
my (undef, $docs_line, $more_line) = split /\n/, slurp_file(list_file($node));
$node->stop;
$from = log_size($node);
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'oom-on-commit';
	$node->start;
}
becomes(sub { says($node, 'autoprewarm could not load relation \d+: the gpuvec engine is out of memory', $from) }, 2, 'errors in the log');
$node->stop;

# a damaged list is read as far as possible
write_list("$docs_line\n5 x\n$more_line\n");
$from = log_size($node);
$node->start;
becomes(sub { listed($node) }, $oid{docs}, 'a damaged list: it is replaced');
becomes(sub { resident($node) }, $oid{docs}, 'a damaged list: what can be read is loaded');
is(says($node, 'file "gpuvec.autoprewarm" is damaged after 1 entries', $from), 1, 'a damaged list: the log says so');
$node->stop;

# no more is loaded than the engine has memory for
write_list("$docs_line\n" . $more_line =~ s/\d+$/1000000000000000/r . "\n");
$from = log_size($node);
$node->start;
becomes(sub { listed($node) }, $oid{docs}, 'little memory: the list is that of what is resident');
is(resident($node), $oid{docs}, 'little memory: what fits is loaded');
is(says($node, 'autoprewarm loads 1 of 2 mirrors', $from), 1, 'little memory: the log says so');

# a materialized view without data is passed over in silence
my $view = $node->safe_psql('postgres', q{CREATE MATERIALIZED VIEW copy AS TABLE docs WITH NO DATA; SELECT 'copy'::regclass::oid});
$node->stop;
write_list($docs_line =~ s/^(\d+) \d+/$1 $view/r . "\n$docs_line\n");
$from = log_size($node);
$node->start;
becomes(sub { listed($node) }, $oid{docs}, 'a materialized view without data: it leaves the list');
is(resident($node), $oid{docs}, 'a materialized view without data: it is not loaded');
is(says($node, ':  gpuvec autoprewarm (?!loaded 1 mirror)', $from), 0, 'a materialized view without data: the log says nothing');

# no free background worker: nothing is loaded, and nothing is forgotten
my $workers = $node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type IN ('gpuvec supervisor', 'gpuvec autoprewarm leader', 'logical replication launcher')});
$node->append_conf('postgresql.conf', "max_worker_processes = $workers");
$from = log_size($node);
$node->restart;
becomes(sub { says($node, 'autoprewarm waits for a free background worker', $from) }, 1, 'no free worker: the log says so');
sleep 7;
is(resident($node), '', 'no free worker: nothing is loaded');
is(listed($node), $oid{docs}, 'no free worker: the list stays');
$node->append_conf('postgresql.conf', 'max_worker_processes = 8');
$node->restart;
becomes(sub { resident($node) }, $oid{docs}, 'a free worker: the mirror is loaded');

# off: nothing is loaded, and the list is left alone
$node->append_conf('postgresql.conf', 'gpuvec.autoprewarm = off');
$node->restart;
wait_for(sub { $node->safe_psql('postgres', 'SELECT count(*) FROM gpuvec_engine') eq '1' }, 'the engine');
sleep 3;
is(resident($node), '', 'off: nothing is loaded');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'gpuvec autoprewarm%'}), '0', 'off: no worker');
is(listed($node), $oid{docs}, 'off: the list stays');
is(says($node, 'reference leak'), 0, 'no worker left a relation open');
$node->stop;
done_testing();
