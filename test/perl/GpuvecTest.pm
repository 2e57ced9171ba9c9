# Helpers of the TAP tests: servers that find the staged gpuvec.
package GpuvecTest;

use strict;
use warnings;

use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

our @EXPORT = qw(new_node make_docs brute_force best engine_pid wait_for comes_true stop_processes supervisor_pid no_leftovers ask random_history
	start_psql finish_psql wait_for_training start_pgbench);

# A server with gpuvec's settings; %opts: conf => more settings, started => 0, init => options of initdb
sub new_node
{
	my ($name, %opts) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(allows_streaming => $opts{streaming} // 0, extra => $opts{init} // []);
	$node->append_conf('postgresql.conf', slurp_file($ENV{GPUVEC_CONF})) if $ENV{GPUVEC_CONF};
	$node->append_conf('postgresql.conf', "autovacuum = off\njit = off\n" . ($opts{conf} // ''));
	if ($opts{started} // 1)
	{
		$node->start;
		$node->safe_psql('postgres', 'CREATE EXTENSION gpuvec');
	}
	return $node;
}

# A table of n rows with sets
sub make_docs
{
	my ($node, $n, $table) = @_;

	$table //= 'docs';
	$node->safe_psql('postgres', qq{
		CREATE TABLE $table (id int PRIMARY KEY, tokens idset);
		INSERT INTO $table SELECT i, ARRAY[i % 97, i % 89 + 100, i % 83 + 200, i % 79 + 300, i % 7 + 400]::idset
			FROM generate_series(1, $n) i;});
	return;
}

our $query = '{1,50,101,150,201,250,301,350,401}';

# The search, and the same by brute force, as one line each
sub search_sql
{
	my ($table) = @_;
	return "SELECT string_agg(tid::text || score::text, ' ' ORDER BY rank) FROM gpuvec_topk('$table', 'tokens', '$query', 20)";
}

sub brute_sql
{
	my ($table) = @_;
	return "SELECT string_agg(ctid::text || s::text, ' ' ORDER BY s DESC, ctid) FROM (SELECT ctid, braun_blanquet_similarity('$query', tokens) AS s
		FROM $table WHERE tokens && '$query' ORDER BY s DESC, ctid LIMIT 20) x";
}

sub brute_force
{
	my ($node, $table) = @_;
	return $node->safe_psql('postgres', brute_sql($table // 'docs'));
}

# Does a search on the node give what brute force gives?
sub best
{
	my ($node, $name, $table) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', search_sql($table // 'docs'));

	is($rc, 0, "$name: no error") or diag($err);
	is($out, brute_force($node, $table), "$name: right rows");
	return $err;
}

# What a query gives in a session in the background.  Some minor versions leave the
# marks of the end of a result, or line ends, in it.
sub ask
{
	my ($session, $sql) = @_;
	my $out = $session->query_safe($sql);

	$out =~ s/background_psql: QUERY_SEPARATOR//;
	$out =~ s/\A\n+|\n+\z//g;
	return $out;
}

# A random history: in each round a writer makes one of the changes (functions that return SQL)
# and leaves its transaction open, or commits, rolls back or prepares it; then `between` is called,
# and each reader asks what `question` returns, settings and query, at one of two isolation levels.
# Each answer has to be "same".  No transaction is left.  Returns how many were
# asked, and how many answers were others.
sub random_history
{
	my ($node, %opts) = @_;
	my @changes = @{ $opts{changes} };
	my @writers = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 2;
	my @readers = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 3;
	my @open = (0, 0);
	my ($asked, $wrong, $gid) = (0, 0, 0);

	for my $round (1 .. $opts{rounds})
	{
		my $w = int(rand(@writers));
		my $step = int(rand(10));

		$writers[$w]->query('SET lock_timeout = 50; BEGIN') if !$open[$w];
		$open[$w] = 1;
		$writers[$w]->query($changes[rand @changes]->());
		if ($step < 6) { $writers[$w]->query($step ? 'COMMIT' : 'ROLLBACK'); $open[$w] = 0; }
		elsif ($step == 6) { $writers[$w]->query("PREPARE TRANSACTION 'g" . ++$gid . "'"); $writers[$w]->query('ROLLBACK'); $open[$w] = 0; }
		end_prepared($node, 2);
		$opts{between}->($round);
		for my $reader (@readers)
		{
			my $level = int(rand(2)) ? 'REPEATABLE READ' : 'READ COMMITTED';
			my ($settings, $question) = $opts{question}->($round);
			my $answer = $reader->query("$settings; BEGIN ISOLATION LEVEL $level; $question; COMMIT");

			$asked++;
			if ($answer !~ /same/) { $wrong++; diag("round $round, $settings: $question: $answer"); }
		}
	}
	$_->quit for @writers, @readers;
	end_prepared($node, 1);
	return ($asked, $wrong);
}

# One of `of` prepared transactions is committed or rolled back, or each with 1
sub end_prepared
{
	my ($node, $of) = @_;

	for (split /\n/, $node->safe_psql('postgres', 'SELECT gid FROM pg_prepared_xacts'))
	{
		$node->safe_psql('postgres', (int(rand(2)) ? 'COMMIT' : 'ROLLBACK') . " PREPARED '$_'") if !int(rand($of));
	}
	return;
}

# Wait until a condition holds
sub wait_for
{
	my ($condition, $name) = @_;

	return 1 if comes_true($condition);
	fail("timed out waiting for $name");
	return 0;
}

# Does a condition come true?  Waits as long as all tests of PostgreSQL do.
sub comes_true
{
	my ($condition) = @_;
	my $end = time + ($PostgreSQL::Test::Utils::timeout_default // $ENV{PG_TEST_TIMEOUT_DEFAULT} // 180);

	while (time < $end)
	{
		return 1 if $condition->();
		usleep(50_000);
	}
	return 0;
}

# Stop processes, until SIGCONT.  A signal reaches a thread some time after it
# was sent, and the others may still answer a search until then.  So wait until
# all of them stand still.
sub stop_processes
{
	my (@pids) = @_;

	die 'no process to stop' if grep { !/^[0-9]+$/ } @pids;
	kill 'STOP', @pids;
	return wait_for(sub { !grep { !stands_still($_) } map { glob "/proc/$_/task/*/stat" } @pids }, 'processes that are stopped to stand still');
}

# Is a thread stopped, or gone?
sub stands_still
{
	my ($file) = @_;

	open(my $stat, '<', $file) or return 1;
	my $line = <$stat> // '';
	return $line !~ /\) [^TtZX] [^()]*$/;
}

sub engine_pid
{
	my ($node) = @_;
	return $node->safe_psql('postgres', 'SELECT pid FROM gpuvec_engine');
}

sub supervisor_pid
{
	my ($node) = @_;
	return $node->safe_psql('postgres',
		"SELECT pid FROM pg_stat_activity WHERE backend_type = 'gpuvec supervisor'");
}

# After a stop: no engine of this server, no socket
sub no_leftovers
{
	my ($node, $pid, $name) = @_;

	wait_for(sub { !kill(0, $pid) }, "the engine's end") if $pid;
	ok(!$pid || !kill(0, $pid), "$name: no engine is left");
	return;
}

# Begin a statement in a session of its own
sub start_psql
{
	my ($node, $sql) = @_;
	my %psql = (out => '', err => '');

	$psql{run} = IPC::Run::start([ 'psql', '-X', '-A', '-t', '-q', '-c', $sql, $node->connstr('postgres') ],
		'>', \$psql{out}, '2>', \$psql{err});
	return \%psql;
}

# Wait for its end; returns what it printed
sub finish_psql
{
	my ($psql) = @_;

	eval { $psql->{run}->finish };
	chomp $psql->{out};
	chomp $psql->{err};
	return $psql->{out} . $psql->{err};
}

# Wait until a training, or a search for neighbors, is in a phase; returns its row without the pid
sub wait_for_training
{
	my ($node, $phase) = @_;
	my $row;

	wait_for(sub { $row = $node->safe_psql('postgres', "SELECT * FROM gpuvec_training WHERE phase = '$phase'"); $row ne '' }, $phase);
	return $row =~ s/^\d+\|//r;
}

# From version 15 on pgbench goes on after serialization failures and deadlocks
our ($pgbench_version) = (`pgbench --version` =~ /(\d+)/);

# Begin pgbench with options, how many clients and how long among them
sub start_pgbench
{
	my ($node, $out, $err, @options) = @_;

	return IPC::Run::start(['pgbench', '-n', '-j', 2, ($pgbench_version >= 15 ? '--max-tries=1000' : ()), @options,
			'-h', $node->host, '-p', $node->port, 'postgres'], '>', $out, '2>', $err);
}

1;
