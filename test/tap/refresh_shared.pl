# Sessions that wait for one refresh of a mirror, and what ends their waiting.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $few = q{SELECT string_agg(tid::text, ' ' ORDER BY rank) FROM gpuvec_topk('docs', 'tokens', '[1,101]', 20) WHERE score = 1};
my $row = q{INSERT INTO docs VALUES (9000, '[1,101]')};
my $refreshes = q{SELECT refreshes FROM gpuvec_mirrors WHERE relation = 'docs'::regclass};

# nobody waits for a lock instead, so a wakeup that does not come is noticed
my $primary = new_node('primary', streaming => 1, conf => "gpuvec.verify = off\ngpuvec.freshness = wal\ngpuvec.refresh_patience = '1h'\n");
my $node = $primary;
my ($holder, @sessions, @pids);
my $rows = 1;

# a row more in the table
sub add_row
{
	$primary->safe_psql('postgres', $row);
	$primary->wait_for_catchup($node, 'replay') if $node != $primary;
	$rows++;
	return;
}

# begin a statement without waiting for its end; the next "ask" also gives its result
sub begin
{
	my ($session, $sql) = @_;

	$session->query_until(qr/started/, "\\echo started\n$sql;\n");
	return;
}

# wait until so many sessions are stopped at an injection point, and wait for a refresh
sub wait_until
{
	my ($stopped, $waiting) = @_;

	wait_for(sub { $node->safe_psql('postgres', q{SELECT
		(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted) || ' ' ||
		(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND wait_event_type = 'Extension')}) eq "$stopped $waiting" },
		"$stopped stopped, $waiting waiting") or die;
	return;
}

# sessions that know the mirror; the first one stops at this point of the refresh for
# another row, and three wait for it
sub stop_leader
{
	my ($point, %opts) = @_;

	@sessions = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 4 + ($opts{more} // 0);
	@pids = map { ask($_, 'SELECT pg_backend_pid()') } @sessions;
	ask($_, $few) for @sessions;
	ask($holder, 'SELECT pg_advisory_lock(71866, 0)');
	ask($sessions[0], "SET gpuvec.injection_point = '$point'");
	add_row();
	begin($sessions[0], $opts{search} // $few);
	wait_until(1, 0);
	begin($_, $few) for @sessions[1 .. 3];
	wait_until(1, 3);
	return;
}

# what these sessions have found, and that they can go on
sub found
{
	my ($name, $n, @which) = @_;

	is(scalar(split / /, ask($_, 'SET gpuvec.injection_point = DEFAULT')), $n, "$name: all rows are found") for @which;
	is(scalar(split / /, ask($_, $few)), $rows, "$name: and by the next search") for @which;
	return;
}

sub leave
{
	eval { $_->quit } for @sessions;
	return;
}

sub go_on { ask($holder, 'SELECT pg_advisory_unlock(71866, 0)'); return; }

$primary->safe_psql('postgres', q{
	CREATE TABLE docs (id int, tokens idset);
	CREATE TABLE other (id int);
	INSERT INTO docs SELECT i, ARRAY[i, i + 100]::idset FROM generate_series(1, 600) i;});
$primary->backup('b');
$holder = $node->background_psql('postgres');

# A7: those who came in time use the refresh, the others the next one: that of one of them
stop_leader('refresh-before-commit');
go_on();
found('in time', $rows, @sessions);
leave();

sub too_late
{
	my ($name) = @_;

	stop_leader('refresh-before-commit', more => 2);
	# one that does not know the mirror
	push @sessions, $node->background_psql('postgres', on_error_stop => 0);
	my $before = $node->safe_psql('postgres', $refreshes);
	add_row();
	begin($_, $few) for @sessions[4 .. 6];
	wait_until(1, 6);
	go_on();
	found("$name, too late", $rows, @sessions[4 .. 6]);
	is($node->safe_psql('postgres', $refreshes) - $before, 2, "$name: two refreshes for all");
	found("$name, in time", $rows - 1, @sessions[0 .. 3]);
	leave();
	return;
}
too_late('primary');

# the leader ends in another way
stop_leader('refresh-before-commit');
$node->safe_psql('postgres', "SELECT pg_cancel_backend($pids[0])");
wait_until(0, 0);
found('leader canceled', $rows, @sessions[1 .. 3]);
like($sessions[0]->query($few), qr/\(/, 'the leader itself goes on');
go_on();
leave();

# it catches the error, and its transaction goes on, for as long as it likes
stop_leader('refresh-before-commit', search => qq{DO \$\$
	BEGIN
		PERFORM * FROM gpuvec_topk('docs', 'tokens', '[1,101]', 20);
	EXCEPTION WHEN query_canceled THEN
		PERFORM pg_advisory_lock(71866, 0);
	END \$\$});
$node->safe_psql('postgres', "SELECT pg_cancel_backend($pids[0])");
wait_until(1, 0);
found('leader caught the error', $rows, @sessions[1 .. 3]);
go_on();
leave();

stop_leader('refresh-before-commit');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pids[0])");
wait_until(0, 0);
found('leader terminated', $rows, @sessions[1 .. 3]);
go_on();
leave();

# one of those who wait gives up
stop_leader('refresh-before-commit');
$node->safe_psql('postgres', "SELECT pg_cancel_backend($pids[1])");
wait_until(1, 2);
go_on();
found('another one canceled', $rows, @sessions[0, 2, 3]);
like($sessions[1]->query($few), qr/\(/, 'that one goes on');
leave();

# the engine goes
stop_leader('refresh-before-commit');
my $old = engine_pid($node);
kill 'KILL', $old;
wait_for(sub { !kill(0, $old) }, 'the end of the engine');
go_on();
found('engine killed', $rows, @sessions);
leave();

# What an engine that is gone has told counts for nothing.  Its numbers were higher than those
# of the next one, so they would cover all that is read again.  A session that begins to search
# takes over what others have told, and is canceled before the engine tells better.
my $session = $node->background_psql('postgres', on_error_stop => 0);
my $pid = ask($session, 'SELECT pg_backend_pid()');
for my $i (1 .. 10)
{
	$node->safe_psql('postgres', "UPDATE docs SET id = id WHERE id = $i; VACUUM docs");
	ask($session, $few);
}
my $expected = ask($session, $few);
$old = engine_pid($node);
kill 'KILL', $old;
wait_for(sub { !kill(0, $old) }, 'the end of the engine');
# the session meets the next engine without being told a number
ask($session, q{SELECT gpuvec_prewarm('docs', 'tokens')});
$node->safe_psql('postgres', 'INSERT INTO other VALUES (1)');
ask($holder, 'SELECT pg_advisory_lock(71866, 0)');
ask($session, q{SET gpuvec.injection_point = 'ask-before-request'});
begin($session, $few);
wait_until(1, 0);
$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
wait_until(0, 0);
$session->query(q{SET gpuvec.injection_point = 'ask-before-position'});
$session->{stderr} = '';
begin($session, $few);
wait_until(1, 0);
# (a row beside it is deleted, so that transactions do not tell who sees the
# page, which is read as a whole)
$node->safe_psql('postgres', "$row; INSERT INTO docs VALUES (9001, '[7]'); DELETE FROM docs WHERE id = 9001");
is(scalar(split / /, $node->safe_psql('postgres', "SET gpuvec.freshness = sweep; $few")), ++$rows, 'another session finds a new row');
go_on();
is(ask($session, q{SET gpuvec.injection_point = DEFAULT}), $expected, 'the session does not: its snapshot is older');
$session->quit;

# B7: the leader waits for what one of those who wait for it holds.  That one sees it, for it
# waits for the mirror's lock after a while.
$primary->append_conf('postgresql.conf', "gpuvec.refresh_patience = '10ms'\ndeadlock_timeout = '1h'\n");
$primary->reload;
@sessions = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 2;
ask($_, $few) for @sessions;
ask($sessions[1], q{SELECT pg_advisory_lock(71866, 0)});
# (a wait that nobody sees would not end)
ask($sessions[1], q{SET deadlock_timeout = '10ms'; SET statement_timeout = '60s'});
ask($sessions[0], q{SET gpuvec.injection_point = 'refresh-before-commit'});
add_row();
begin($sessions[0], $few);
wait_until(1, 0);
$sessions[1]->query($few);
like($sessions[1]->{stderr}, qr/deadlock detected/, 'a deadlock is detected');
$sessions[1]->{stderr} = '';
ask($sessions[1], q{SELECT pg_advisory_unlock(71866, 0)});
found('after a deadlock', $rows, $sessions[0]);
leave();
$holder->quit;

# Standby
$node = PostgreSQL::Test::Cluster->new('standby');
$node->init_from_backup($primary, 'b', has_streaming => 1);
$node->start;
$primary->wait_for_catchup($node, 'replay');
$holder = $node->background_psql('postgres');
too_late('standby');
stop_leader('refresh-before-commit');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pids[0])");
wait_until(0, 0);
found('standby, leader terminated', $rows, @sessions[1 .. 3]);
leave();
$holder->quit;
$node->stop;
$primary->stop;
done_testing();
