# The feeder brings rows to the engine before anybody searches, and is in nobody's way.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $node = new_node('main', conf => "restart_after_crash = on\ngpuvec.engine_patience = '1h'\n");

# The feeder's pid, or ""
sub feeder_pid
{
	return $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'gpuvec feeder'});
}

# Make a table with an index in a database
sub make_indexed
{
	my ($database) = @_;
	$node->safe_psql($database, q{
		CREATE TABLE docs (id int PRIMARY KEY, tokens idset);
		INSERT INTO docs SELECT i, ARRAY[i % 97, i % 89 + 100, i % 83 + 200]::idset FROM generate_series(1, 5000) i;
		CREATE INDEX docs_tokens ON docs USING gpuvec (tokens);
		ANALYZE docs;});
	return;
}

my $query = '{1,2,101,102,201,202}';
my $nearest = "SELECT string_agg(id::text, ' ' ORDER BY n) FROM (SELECT id, row_number() OVER () AS n
	FROM (SELECT id FROM docs ORDER BY tokens <-> '$query' LIMIT 30) x) y";
my $exact = "SELECT string_agg(id::text, ' ' ORDER BY n) FROM (SELECT id, row_number() OVER () AS n
	FROM (SELECT id FROM docs ORDER BY (tokens <-> '$query') + 0, ctid LIMIT 30) x) y";

# A search by the index gives what a sort of the table gives
sub right
{
	my ($name, $database) = @_;
	my ($rc, $out, $err) = $node->psql($database // 'postgres', "SET enable_seqscan = off; $nearest");

	is($rc, 0, "$name: no error") or diag($err);
	is($out, $node->safe_psql($database // 'postgres', $exact), "$name: right rows");
	return;
}

# Insert n rows that match the query
my $next = 100000;

sub insert
{
	my ($n, $database) = @_;
	$node->safe_psql($database // 'postgres', "INSERT INTO docs SELECT i, ARRAY[i % 3, i % 5 + 100, 202]::idset
		FROM generate_series($next, $next + $n - 1) i");
	$next += $n;
	return;
}

# What a column of gpuvec_mirrors says of the table's mirror
sub mirror
{
	my ($column) = @_;
	return $node->safe_psql('postgres', "SELECT $column FROM gpuvec_mirrors WHERE relation = 'docs'::regclass");
}

# Insert n rows; the mirror gets them although nobody searches
sub fed
{
	my ($n, $name) = @_;
	my ($rows, $searches);

	# what a search has left to the feeder comes first
	wait_for(sub { mirror('rows_waiting') eq '0' }, "$name: earlier rows");
	($rows, $searches) = (mirror('rows_by_feed'), mirror('searches'));
	insert($n);
	ok(wait_for(sub { mirror('rows_waiting') eq '0' }, "$name: rows"), "$name: no row waits");
	is(mirror('rows_by_feed'), $rows + $n, "$name: all came by the feed");
	is(mirror('pages_waiting'), '0', "$name: no page waits");
	is(mirror('feed_age IS NULL'), 't', "$name: nothing has an age");
	is(mirror('searches'), $searches, "$name: nobody has searched");
	right($name);
	return;
}

# Searches until the feeder runs; returns its pid
sub feeder_started
{
	my ($name) = @_;
	my $pid = '';

	right($name);
	ok(wait_for(sub { $pid = feeder_pid(); $pid ne '' }, "$name: the feeder"), "$name: the feeder runs");
	return $pid;
}

sub ended
{
	my ($pid, $name) = @_;
	return ok(wait_for(sub { !kill(0, $pid) }, "$name: the end of $pid"), $name);
}

make_indexed('postgres');
insert(10);
is(feeder_pid(), '', 'writers start no feeder');
my $pid = feeder_started('first search');
is($node->safe_psql('postgres', "SELECT datname IS NULL FROM pg_stat_activity WHERE pid = $pid"), 't', 'it is in no database');

fed(1, 'a row');
fed(2000, 'many rows');

# it sleeps without a connection, and writers wake it
ok(wait_for(sub { $node->safe_psql('postgres', 'SELECT sessions FROM gpuvec_engine') eq '1' }, 'sleep'), 'it sleeps without a connection');
fed(70, 'woken');

# rolled back rows are rows of the mirror as well
$node->psql('postgres', "BEGIN; INSERT INTO docs VALUES (1000000, '$query'); ROLLBACK");
wait_for(sub { mirror('rows_waiting') eq '0' }, 'the rows of a transaction that was rolled back');
right('rolled back');

# a page that has to be read is left to sessions
$node->safe_psql('postgres', 'DELETE FROM docs WHERE id % 10 = 0');
$node->safe_psql('postgres', 'VACUUM docs');
fed(100, 'reused line pointers');

# Vectors come by the feed if they fit a record.  One-byte values are longer
# there, and a row of too many has its page read by the next search.
my $nearest_vectors = q{SELECT array_agg(id) FROM (SELECT id FROM vectors ORDER BY v <=> '{1:2,2:1,100000:3}' LIMIT 30) x};
$node->safe_psql('postgres', q{CREATE TABLE vectors (id serial, v idvec);
	INSERT INTO vectors (v) SELECT idvec(ARRAY[i % 5, 10 + i], ARRAY[1 + i % 3, 0.5]) FROM generate_series(1, 500) i;
	CREATE INDEX vectors_v ON vectors USING gpuvec (v)});
sub of_vectors { my ($column) = @_; return $node->safe_psql('postgres', "SELECT $column FROM gpuvec_mirrors WHERE relation = 'vectors'::regclass"); }
sub right_vectors
{
	my ($name) = @_;
	is($node->safe_psql('postgres', "SET enable_seqscan = off; $nearest_vectors"),
		$node->safe_psql('postgres', $nearest_vectors =~ s/(v <=> '[^']*')/($1) + 0, ctid/r), "$name: right rows");
	return;
}
right_vectors('vectors') for 1, 2;
for (['639 floats', 639, 1, 0.5, 1], ['640 one-byte values', 640, 1, 7, 1], ['479 floats of wide ids', 479, 100000, 0.5, 1], ['480 one-byte values of wide ids', 480, 100000, 7, 1],
	['640 floats', 640, 1, 0.5, 0], ['641 one-byte values', 641, 1, 7, 0], ['480 floats of wide ids', 480, 100000, 0.5, 0], ['481 one-byte values of wide ids', 481, 100000, 7, 0])
{
	my ($name, $n, $step, $value, $fits) = @$_;
	ok(wait_for(sub { of_vectors('rows_waiting') eq '0' }, 'earlier rows'), "$name: no row waits");
	my $by_feed = of_vectors('rows_by_feed');
	$node->safe_psql('postgres', "INSERT INTO vectors (v) SELECT idvec_agg(i * $step, $value) FROM generate_series(1, $n) i");
	wait_for(sub { of_vectors('rows_by_feed') > $by_feed || of_vectors('pages_waiting') > 0 }, $name);
	is(of_vectors('rows_by_feed') - $by_feed . ' ' . of_vectors('pages_waiting'), $fits ? '1 0' : '0 1', "$name: rows that came, and pages that wait");
	right_vectors($name);
}

# the engine dies, and the feeder goes on with the next one
my $engine = engine_pid($node);
kill 'KILL', $engine;
ended($engine, 'the engine is killed');
insert(100);
right('another engine');
fed(100, 'another engine');
is(feeder_pid(), $pid, 'the feeder has survived');

# While a session loads the table, more rows come than the feed holds.  The engine keeps them:
# they need no second look at the table.  On a slow machine the feeder may miss some, so it is
# tried again then.
sub kept_while_loading
{
	my ($pause) = @_;
	my $holder = $node->background_psql('postgres');
	my $loader = $node->background_psql('postgres');

	$node->safe_psql('postgres', q{SELECT gpuvec_evict('docs')});
	ask($holder, 'SELECT pg_advisory_lock(71866, 0)');
	ask($loader, "SET gpuvec.injection_point = 'load-before-commit'; SET enable_seqscan = off");
	$loader->query_until(qr/started/, "\\echo started\n$nearest;\n");
	ok(wait_for(sub { $node->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}) eq '1' },
		'the load'), 'a session loads');
	insert(1000) for 1 .. 10;
	sleep($pause);
	ask($holder, 'SELECT pg_advisory_unlock(71866, 0)');
	$loader->quit;
	$holder->quit;
	return comes_true(sub { mirror('rows_waiting') eq '0' }) && mirror('rows_by_feed') eq '10000';
}

# The second time no rows come any more for so long that the feeder would sleep.
for my $pause (0, 3)
{
	my $kept = 0;
	for (1 .. 5)
	{
		$kept = kept_while_loading($pause);
		last if $kept;
		right('rows that were not all kept');
	}
	ok($kept, "rows that came while the table was loaded were kept, $pause s");
}
is(mirror('pages_waiting'), '0', 'no page waits');
right('rows that were kept');
fed(100, 'after kept rows');

# the engine does not answer: the feeder ends all the same
$engine = engine_pid($node);
stop_processes($engine);
insert(300);
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
ended($pid, 'it ends while it waits for the engine');
kill 'CONT', $engine;
insert(50);
my $other = feeder_started('terminated');
isnt($other, $pid, 'the next search has started another');
fed(100, 'another feeder');

# a cancel changes nothing
$node->safe_psql('postgres', "SELECT pg_cancel_backend($other)");
fed(100, 'canceled');
is(feeder_pid(), $other, 'it goes on after a cancel');

# a database with a feed can be dropped
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION gpuvec');
make_indexed('other');
right('other database', 'other');
insert(10, 'other');
$node->safe_psql('postgres', 'DROP DATABASE other');
fed(100, 'after DROP DATABASE');
is(feeder_pid(), $other, 'it goes on after DROP DATABASE');

unlike(slurp_file($node->logfile), qr/gpuvec feeder could not/, 'it has logged no error');
unlike(slurp_file($node->logfile), qr/(ERROR|FATAL): .*feeder/, 'nor did it end by one');

# stops and starts
for my $mode ('fast', 'immediate')
{
	insert(300);
	$node->stop($mode);
	ok(!kill(0, $other), "stop $mode: the feeder has ended");
	$node->start;
	$other = feeder_started("after stop $mode");
	fed(100, "after stop $mode");
}

# a crash takes the shared memory along
kill 'KILL', $other;
ended($other, 'the feeder is killed');
ok($node->poll_query_until('postgres', 'SELECT true'), 'the server is up again');
isnt(feeder_started('after a crash'), $other, 'another feeder runs');
fed(100, 'after a crash');

# the supervisor takes the only worker slot
$node->append_conf('postgresql.conf', "max_worker_processes = 1\nmax_logical_replication_workers = 0");
$node->restart;
right('no slot');
insert(200);
right('no slot, rows');
ok(engine_pid($node) > 0, 'no slot: the engine runs');
is(mirror('rows_waiting'), '0', 'no slot: searches bring the rows');
is(feeder_pid(), '', 'no slot: no feeder');
$node->stop;
done_testing();
