# A server that is slow is asked on a second host: when that is done, that the
# answer is of one of the two alone and of one snapshot, and that a hedge makes
# no search fail.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $main = new_node('main');

if ($main->safe_psql('postgres', q{SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw'}) eq '0')
{
	SKIP: { skip('the server lacks postgres_fdw', 1); }
	done_testing();
	exit 0;
}

# the first host, a standby of it, and a host that lacks the table.  Engines
# are stopped here: they are not given up, however long a busy machine takes
my $first = new_node('first', streaming => 1, conf => "gpuvec.engine_patience = '1h'\n");
$first->safe_psql('postgres', q{CREATE TABLE one AS SELECT i AS id, ARRAY[i % 97, i % 89 + 100]::idset AS tokens FROM generate_series(1, 2000) i;
	CREATE TABLE two AS SELECT id + 10000 AS id, tokens FROM one; CREATE ROLE bob LOGIN PASSWORD 'secret'; GRANT SELECT ON one, two TO bob});
$first->backup('copy');
my $second = PostgreSQL::Test::Cluster->new('second');
$second->init_from_backup($first, 'copy', has_streaming => 1);
$second->start;
my $other = new_node('other');
my %node = (first => $first, second => $second, other => $other);

$main->safe_psql('postgres', q{CREATE EXTENSION postgres_fdw; CREATE ROLE bob LOGIN});
foreach my $pair ([ 'pair', 'second' ], [ 'poor', 'other' ])
{
	my ($name, $host) = @$pair;
	my ($hosts, $ports) = (join(',', $first->host, $node{$host}->host), join(',', $first->port, $node{$host}->port));

	$main->safe_psql('postgres', qq{CREATE SERVER $name FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$hosts', port '$ports', dbname 'postgres');
		CREATE USER MAPPING FOR CURRENT_USER SERVER $name; CREATE USER MAPPING FOR bob SERVER $name OPTIONS (user 'bob', password 'secret');
		CREATE TABLE $name (id int, tokens idset) PARTITION BY RANGE (id);
		CREATE FOREIGN TABLE ${name}_1 PARTITION OF $name FOR VALUES FROM (1) TO (10001) SERVER $name OPTIONS (schema_name 'public', table_name 'one');
		CREATE FOREIGN TABLE ${name}_2 PARTITION OF $name FOR VALUES FROM (10001) TO (MAXVALUE) SERVER $name OPTIONS (schema_name 'public', table_name 'two');
		GRANT SELECT ON $name TO bob; GRANT USAGE ON FOREIGN SERVER $name TO bob});
}

# Searches of both tables of a server: how many rows, which, and their scores
sub search
{
	my ($table) = @_;
	return qq{SELECT count(*), md5(string_agg((r.item).id || ' ' || r.score, ',' ORDER BY (r.item).id)) FROM gpuvec_topk_rows(NULL::$table, 'tokens', '{3,5,103,105,200}', 400) r};
}

# Backends of gpuvec's connections on a host
sub backends
{
	my ($host) = @_;
	return split(/\n/, $node{$host}->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE application_name = 'gpuvec' AND backend_type = 'client backend'}));
}

# Stop processes while something is done
sub while_stopped
{
	my ($pids, $do) = @_;

	stop_processes(@$pids);
	my $result = $do->();
	kill 'CONT', @$pids;
	return $result;
}

my $right = $main->safe_psql('postgres', search('pair'));
like($right, qr/^172\|/, 'a search');
$first->wait_for_catchup($second, 'replay');

# ---- a backend that hangs ----

# hosts that are not stopped are not hedged, however slow the machine is
my $session = $main->background_psql('postgres');
ask($session, q{SET gpuvec.hedging_delay = '1h'});

# A search while processes are stopped, which is hedged
sub hedged
{
	ask($session, q{SET gpuvec.hedging_delay = '50ms'});
	my $result = while_stopped(\@_, sub { ask($session, search('pair')) });
	ask($session, q{SET gpuvec.hedging_delay = '1h'});
	return $result;
}

is(ask($session, search('pair')), $right, 'both hosts are there: the answer');
my @slow = backends('first');
is(scalar(@slow), 1, 'of the first host');
is(scalar(backends('second')), 0, 'and the second is not asked');
is(hedged(@slow), $right, 'the first host hangs: the same answer');
is(scalar(backends('second')), 1, 'of the second one');
is(ask($session, search('pair')), $right, 'the connection is kept');
wait_for(sub { !backends('first') }, 'the end of the first connection');
is(scalar(backends('second')), 1, 'and used again');

# the other way round
@slow = backends('second');
is(hedged(@slow), $right, 'the second host hangs: the same answer');
is(scalar(backends('first')), 1, 'of the first one');

# entries of connections that were taken over are used again: more of them would
# need more memory
if ($main->pg_version >= 14)
{
	my $memory = q{SELECT used_bytes FROM pg_backend_memory_contexts WHERE name = 'gpuvec connections'};
	my $before = ask($session, $memory);
	my @hosts = qw(first second);

	foreach my $round (1 .. 18)
	{
		@slow = backends($hosts[0]);
		hedged(@slow);
		wait_for(sub { !backends($hosts[0]) }, "the end of the connection of round $round");
		@hosts = reverse @hosts;
	}
	cmp_ok($before, '>', 0, 'connections have entries');
	is(ask($session, $memory), $before, 'and no more of them after many hedges');
}

# both tables are of one snapshot, whichever host answers
$second->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
$first->safe_psql('postgres', q{UPDATE one SET tokens = '{3,5,103,105,200}' WHERE id <= 300; UPDATE two SET tokens = '{3,5,103,105,200}' WHERE id <= 10300});
my $new = ask($session, search('pair'));
isnt($new, $right, 'rows have changed');
@slow = backends('first');
is(hedged(@slow), $right, 'a standby that lags behind answers as of its snapshot');
$second->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
$first->wait_for_catchup($second, 'replay');
is(ask($session, search('pair')), $new, 'and has all rows later');
$session->quit;
wait_for(sub { !backends('first') && !backends('second') }, 'the end of connections');

# ---- a server that hangs ----

my @postmaster = ($first->{_pid});
is(while_stopped(\@postmaster, sub { $main->safe_psql('postgres', q{SET gpuvec.hedging_delay = '50ms'; SET statement_timeout = '60s'; } . search('pair')) }),
	$new, 'no connection to the first host comes about: the second one answers');
my ($rc, $out, $err);
while_stopped(\@postmaster, sub { ($rc, $out, $err) = $main->psql('postgres', q{SET statement_timeout = '1s'; } . search('pair')) });
like($err, qr/canceling statement due to statement timeout/, 'no second host without the setting');
while_stopped([ $first->{_pid}, $second->{_pid} ], sub { ($rc, $out, $err) = $main->psql('postgres', q{SET gpuvec.hedging_delay = '50ms'; SET statement_timeout = '1s'; } . search('pair')) });
like($err, qr/canceling statement due to statement timeout/, 'neither host answers: the search can be canceled');

# ---- a server that is lost ----

# A search that waits for the first host, where its session ends meanwhile, and
# so does the one that it is sent to next
sub lost
{
	my ($settings, $table) = @_;
	my $session = $main->background_psql('postgres', on_error_stop => 0);
	my @engine = $first->safe_psql('postgres', 'SELECT pid FROM gpuvec_engine');

	ask($session, "$settings; " . search($table));
	my $answer = while_stopped(\@engine, sub {
		my $pid = 0;

		$session->query_until(qr/asking/, "\\echo asking\n" . search($table) . ";\n");
		foreach my $time (1, 2)
		{
			my $last = $pid;

			wait_for(sub {
				$pid = $first->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE application_name = 'gpuvec' AND state = 'active' AND query LIKE '%gpuvec_topk%'});
				return $pid ne '' && $pid ne $last;
			}, 'a search there');
			$first->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
		}
		return $session->query(q{SELECT 'no more'});
	});
	my $error = $session->{stderr};

	$session->quit;
	$answer =~ s/background_psql: QUERY_SEPARATOR//;
	$answer =~ s/\A\n+|\n+\z//g;
	return ($answer, $error);
}
my ($answer, $error) = lost(q{SET gpuvec.hedging_delay = '1h'}, 'pair');
is($answer, "$new\nno more", 'the connection is lost: the second host is asked at once');
($answer, $error) = lost('SET gpuvec.hedging_delay = 0', 'pair');
is($answer, 'no more', 'without hedges there is no answer');
like($error, qr/terminating connection/, 'but an error');
($answer, $error) = lost(q{SET gpuvec.hedging_delay = '1h'}, 'poor');
is($answer, 'no more', 'nor is there one if the second host has none');
like($error, qr/terminating connection/, 'but what the first has said');

# ---- hedges that fail ----

# A search while the first host hangs, until a second one has been asked in
# vain
sub hedged_in_vain
{
	my ($name, $settings, $table, $log, $attempt) = @_;
	my $hanging = $main->background_psql('postgres');
	my $from = -s $log->logfile;

	ask($hanging, "SET gpuvec.hedging_delay = '1h'; $settings; " . search($table));
	ask($hanging, q{SET gpuvec.hedging_delay = '50ms'});
	my @pids = backends('first');
	stop_processes(@pids);
	$hanging->query_until(qr/asking/, "\\echo asking\n" . search($table) . ";\n");
	wait_for(sub { slurp_file($log->logfile, $from) =~ /$attempt/ }, "$name: a second host is asked");
	kill 'CONT', @pids;
	is(ask($hanging, q{SELECT 'no error'}), "$new\nno error", "$name: the answer of the first host");
	is(scalar(backends('first')), 1, "$name: over the connection to it");
	$hanging->quit;
	return;
}
foreach my $node ($second, $other)
{
	$node->append_conf('postgresql.conf', "log_connections = on\nlog_min_error_statement = error");
	$node->reload;
}
hedged_in_vain('a table that is missing', 'SET work_mem = 4096', 'poor', $other, 'ERROR:  .*public.one');

# who has to be asked for a password, and is not by the second host
open(my $rules, '>', $first->data_dir . '/pg_hba.conf') or die;
print $rules "local all bob scram-sha-256\nlocal all all trust\nlocal replication all trust\nhost all bob all scram-sha-256\nhost all all all trust\n";
close($rules);
$first->reload;
hedged_in_vain('a host that asks for no password', 'SET ROLE bob', 'pair', $second, 'connection authorized: user=bob');

done_testing();
