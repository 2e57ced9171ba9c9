# What a session remembers of an engine that is gone, and what a canceled refresh
# leaves behind: nothing.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => "gpuvec.verify = off\n");
my $few = q{SELECT string_agg(tid::text, ' ' ORDER BY rank) FROM gpuvec_topk('docs', 'tokens', '[1,101]', 5)};
my $few_more = $few =~ s/, 5\)/, 15) WHERE score = 1/r;
my $mirror = q{SELECT loads || ' ' || refreshes FROM gpuvec_mirrors WHERE relation = 'docs'::regclass};

$node->safe_psql('postgres', q{
	CREATE TABLE docs (id int, tokens idset);
	INSERT INTO docs SELECT i, ARRAY[i, i + 100]::idset FROM generate_series(1, 600) i;});

# A1: a number is remembered for searches with few rows.  The next engine counts from
# the beginning, so a number of the one before would cover all that it reads.
my $session = $node->background_psql('postgres');
for my $i (1 .. 10)
{
	$node->safe_psql('postgres', "UPDATE docs SET id = id WHERE id = $i; VACUUM docs");
	ask($session, $few);
}
my $expected = ask($session, $few);
is($node->safe_psql('postgres', $few), $expected, 'the answer');
my $old = engine_pid($node);
kill 'KILL', $old;
wait_for(sub { !kill(0, $old) }, 'the end of the engine');
# the session meets the next engine without being told a number
ask($session, q{SELECT gpuvec_prewarm('docs', 'tokens')});
isnt(engine_pid($node), $old, 'another engine runs');
is($node->safe_psql('postgres', $mirror), '1 0', 'and has the mirror');

my $holder = $node->background_psql('postgres');
ask($holder, 'SELECT pg_advisory_lock(71866, 0)');
ask($session, q{SET gpuvec.injection_point = 'search-before-position'});
$session->query_until(qr/started/, "\\echo started\n$few;\n");
$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted");
$node->safe_psql('postgres', q{INSERT INTO docs VALUES (9001, '[1,101]')});
like($node->safe_psql('postgres', $few), qr/ .* /, 'another session finds the new row');
is($node->safe_psql('postgres', $mirror), '1 1', 'by a refresh');
ask($holder, 'SELECT pg_advisory_unlock(71866, 0)');
is(ask($session, q{SET gpuvec.injection_point = ''}), $expected, 'the session does not: its snapshot is older');
$_->quit for $session, $holder;
$node->stop;

# A refresh is canceled while the engine is busy with it: the next one waits for its end
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'slow-commit:1000';
	$node->start;
}
$expected = $node->safe_psql('postgres', $few);
for my $round (1 .. 2)
{
	$node->safe_psql('postgres', 'INSERT INTO docs VALUES (9001 + ' . $round . q{, '[1,101]')});
	my ($rc, $out, $err) = $node->psql('postgres', "SET statement_timeout = '300ms'; $few");
	like($err, qr/canceling statement due to statement timeout/, "round $round: canceled");
	($rc, $out, $err) = $node->psql('postgres', $few);
	is($rc, 0, "round $round: no error afterwards") or diag($err);
	is(scalar(split / /, $out), 3 + $round, "round $round: all rows are found");
}
$node->stop;

# A session that knows the mirror sends its search ahead of its refresh, and does not wait for
# that: if it fails, the answer is right all the same, and the next search makes it.  Fault: the second commit is that of the refresh, if the first was the load
my $locks = q{SELECT count(*) FROM pg_locks WHERE locktype = 'userlock'};
my $rows = 4;
for my $fault ('oom-on-commit:2', 'crash-on-commit:2', 'slow-search:1000')
{
	{
		local $ENV{GPUVEC_ENGINE_FAULT} = $fault;
		$node->start;
	}
	$session = $node->background_psql('postgres', on_error_stop => 0);
	is(scalar(split / /, ask($session, $few_more)), $rows++, "$fault: the mirror is known");
	$node->safe_psql('postgres', "INSERT INTO docs VALUES (9100 + $rows, '[1,101]')");
	if ($fault =~ /slow/)
	{
		# the search is canceled before the refresh is made
		ask($session, "SET statement_timeout = '400ms'");
	}
	my $out = $session->query($few_more);
	if ($fault =~ /slow/)
	{
		like($session->{stderr}, qr/ERROR:  canceling statement due to statement timeout/,
			 "$fault: an error of the search");
	}
	else
	{
		is(scalar(split / /, $out), $rows, "$fault: the search finds all rows");
	}
	$session->{stderr} = '';
	is($node->safe_psql('postgres', $locks), '0', "$fault: no lock is left");
	ask($session, 'RESET statement_timeout');
	is(scalar(split / /, ask($session, $few_more)), $rows, "$fault: the session finds all rows afterwards");
	is(scalar(split / /, $node->safe_psql('postgres', $few_more)), $rows, "$fault: and another one");
	$session->quit;
	$node->stop;
}

# The answer to a refresh comes while the request behind it, much larger than a socket's
# buffer, is being sent: the engine does not read on meanwhile
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'slow-after-refresh:500';
	$node->start;
}
my $many = q{SELECT count(*) FROM gpuvec_topk_batch('docs', 'tokens', (SELECT array_fill(array_agg(i)::idset, ARRAY[5000]) FROM generate_series(1, 1000) i), 1)};
$session = $node->background_psql('postgres', on_error_stop => 0);
is(ask($session, $many), 5000, 'a large request');
$node->safe_psql('postgres', q{INSERT INTO docs VALUES (9200, '[1,101]')});
my $found = $session->query($many);
unlike($session->{stderr}, qr/ERROR/, 'a large request behind a refresh: no error');
like($found, qr/\b5000\b/, 'a large request behind a refresh');
$session->quit;
$node->stop;
# The pages of a refresh are much more than a socket takes, and are sent while the engine
# searches; the answer to the search comes before the last of them
$node->append_conf('postgresql.conf', "full_page_writes = off\n");
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'slow-search:300';
	$node->start;
}
$node->safe_psql('postgres', q{
	CREATE TABLE large (id int, tokens idset, filler text, changes int DEFAULT 0) WITH (fillfactor = 50);
	ALTER TABLE large ALTER tokens SET STORAGE EXTERNAL, ALTER filler SET STORAGE PLAIN;
	CREATE FUNCTION large_set(n int) RETURNS idset LANGUAGE sql AS 'SELECT array_agg(i * 3 + n % 3)::idset FROM generate_series(1, 20000) i';
	INSERT INTO large SELECT i, large_set(i), repeat('x', 1500) FROM generate_series(1, 200) i});
my $of_large = q{SELECT string_agg(id || ': ' || common, ', ' ORDER BY rank) FROM gpuvec_topk('large', 'tokens', '[3,4,6]', 4) t JOIN large ON large.ctid = t.tid};
$session = $node->background_psql('postgres', on_error_stop => 0);
ask($session, $of_large);
for my $round (1 .. 3)
{
	# little WAL: the sets stay where they are
	$node->safe_psql('postgres', "UPDATE large SET changes = changes + 1 WHERE id % 2 = 0; INSERT INTO large VALUES (-$round, '[3,4,6,7]')");
	my $answer = $session->query($of_large);
	unlike($session->{stderr}, qr/ERROR/, "large sets behind a search, round $round: no error");
	is(() = $answer =~ /-\d: 3/g, $round, "large sets behind a search, round $round");
}
$session->quit;
$node->stop;
done_testing();
