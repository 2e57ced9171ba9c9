# Maintenance of indexes, searches and views when shared memory is lacking or of another version of the library.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $wanted = '{1,50,101}';
my $knn = qq{SET enable_seqscan = off; SET enable_sort = off;
	SELECT string_agg(id || ' ' || d, ',') FROM (SELECT id, round((tokens <-> '$wanted')::numeric, 6) AS d FROM docs ORDER BY tokens <-> '$wanted' LIMIT 60) x};
my $brute = qq{SET enable_indexscan = off; SET enable_bitmapscan = off;
	SELECT string_agg(id || ' ' || d, ',') FROM (SELECT id, round((tokens <-> '$wanted')::numeric, 6) AS d FROM docs ORDER BY tokens <-> '$wanted', ctid LIMIT 60) x};
my $id = 100_000;

# What a query gives in a session in the background; warnings do not matter
sub told
{
	my ($session, $sql) = @_;
	my $out;

	# some versions of that module do not forget warnings, and then wait for ever
	$session->{stderr} = '' if exists $session->{stderr} && !ref $session->{stderr};
	$out = $session->query($sql) // '';

	$out =~ s/background_psql: QUERY_SEPARATOR.*//g;
	$out =~ s/\A\n+|\n+\z//g;
	return $out;
}

# A session in which the shared memory has something wrong with it
sub session
{
	my ($node, $choice) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);

	told($session, "LOAD 'gpuvec'; SET gpuvec.shared_memory = '$choice'");
	return $session;
}

# Does an index scan in a session give what brute force gives?
sub exact
{
	my ($node, $session, $name) = @_;

	is(told($session, $knn), $node->safe_psql('postgres', $brute), $name);
	return;
}

# Insert the best row there can be
sub insert
{
	my ($session) = @_;

	$id++;
	told($session, "INSERT INTO docs VALUES ($id, '$wanted')");
	return;
}

# What the engine has of the table
sub resident
{
	my ($node) = @_;
	return $node->safe_psql('postgres', q{SELECT count(*) FROM gpuvec_mirrors WHERE relation = 'docs'::regclass AND state = 'ready'});
}

# An ordinary user fills the slack of the server's shared memory, before anybody has used gpuvec
my $node = new_node('full', started => 0);
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE no_owner LOGIN');
my $eater = $node->background_psql('postgres', on_error_stop => 0, extra_params => [ '-U', 'no_owner' ]);
$eater->query('SELECT count(pg_advisory_lock_shared(i)) FROM generate_series(1, 10000000) i');
my ($rc, $out, $err) = $node->psql('postgres', q{SELECT count(pg_advisory_lock(i)) FROM generate_series(20000001, 20100000) i});
like($err, qr/out of shared memory/, 'there is no shared memory left');
# (its locks go with its process, a moment after the client)
$eater->quit;
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE usename = 'no_owner'}), 'the user is gone');
$node->safe_psql('postgres', 'CREATE EXTENSION gpuvec');
make_docs($node, 5000);
$node->safe_psql('postgres', 'CREATE INDEX docs_tokens ON docs USING gpuvec (tokens)');
my $inserter = session($node, 'auto');
insert($inserter);
$node->safe_psql('postgres', 'DELETE FROM docs WHERE id % 7 = 3');
$node->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP on) docs');
is($node->safe_psql('postgres', 'SELECT count(*) FROM gpuvec_mirrors, gpuvec_engine, gpuvec_costs'), '0', 'the views answer');
is(best($node, 'slack filled by a user'), '', 'with the engine');
my $searcher = session($node, 'auto');
exact($node, $searcher, 'an index scan');
for my $round (1 .. 3)
{
	insert($inserter);
	exact($node, $searcher, "an insertion by a session that has inserted before: $round");
}
is(resident($node), '1', 'the engine has a copy');
$_->quit for $inserter, $searcher;

# not even the head can be had
$node->restart;
$inserter = session($node, 'full');
insert($inserter);
$searcher = session($node, 'auto');
exact($node, $searcher, 'no byte of shared memory left: an index scan');
insert($inserter);
exact($node, $searcher, 'no byte of shared memory left: after an insertion');
($rc, $out, $err) = $node->psql('postgres', 'DELETE FROM docs WHERE id % 7 = 4; VACUUM (INDEX_CLEANUP on) docs; ' . GpuvecTest::search_sql('docs'));
is($rc, 0, 'no byte of shared memory left: deleting and vacuum');
is((split /\n/, $out)[-1], brute_force($node), 'no byte of shared memory left: right rows');
like($err, qr/WARNING:  gpuvec searches without its engine.*there is no shared memory for it \(not enough shared memory/s, 'the reason is told');
is($node->safe_psql('postgres', 'SELECT count(*) FROM gpuvec_mirrors, gpuvec_engine, gpuvec_costs'), '0', 'the views answer then, too');
$_->quit for $inserter, $searcher;

# one session cannot attach dynamic shared memory, while others can
$node->restart;
$inserter = session($node, 'unattached');
$searcher = session($node, 'auto');
exact($node, $searcher, 'unattached: an index scan loads');
exact($node, $searcher, 'unattached: an index scan has a feed');
for my $round (1 .. 3)
{
	insert($inserter);
	exact($node, $searcher, "an insertion that could not be marked: $round");
	insert($searcher);
	exact($node, $searcher, "and one that was: $round");
}
my $loser = $node->safe_psql('postgres', qq{SELECT ctid FROM docs WHERE tokens = '$wanted' ORDER BY id DESC LIMIT 1});
told($inserter, "DELETE FROM docs WHERE ctid = '$loser'");
told($inserter, 'VACUUM (INDEX_CLEANUP on) docs');
told($inserter, "INSERT INTO docs VALUES (200000, '{60000}')");
exact($node, $searcher, 'a vacuum that could not be marked, and a line pointer used again');
is(told($inserter, 'SELECT pid, trouble FROM gpuvec_engine'), '|dynamic shared memory is not to be had', 'gpuvec_engine says why');
is(told($inserter, 'SELECT count(*) FROM gpuvec_mirrors, gpuvec_costs'), '0', 'the other views are empty');
exact($node, $inserter, 'it scans itself');
told($inserter, q{SET gpuvec.shared_memory = 'auto'});
ok(wait_for(sub { told($inserter, 'SELECT count(*) FROM gpuvec_mirrors') eq '1' }, 'memory'), 'it can, after a while');
insert($inserter);
exact($node, $searcher, 'and marks');
exact($node, $inserter, 'and uses the engine');
$_->quit for $inserter, $searcher;

# a session whose library is of another version, while there are mirrors; and the other way round
for my $first ('auto', 'old')
{
	my $second = $first eq 'auto' ? 'old' : 'auto';

	$node->restart;
	$searcher = session($node, $first);
	exact($node, $searcher, "first $first: an index scan") for 1, 2;
	$inserter = session($node, $second);
	insert($inserter);
	exact($node, $searcher, "first $first: after an insertion by another version");
	told($inserter, 'DELETE FROM docs WHERE id % 7 = 5');
	told($inserter, 'VACUUM (INDEX_CLEANUP on) docs');
	insert($searcher);
	exact($node, $searcher, "first $first: after a vacuum by another version");
	exact($node, $inserter, "first $first: the other version scans");
	is(told($inserter, 'SELECT count(*) FROM gpuvec_mirrors, gpuvec_costs'), '0', "first $first: views are empty for the other version");
	is(told($inserter, q{SELECT trouble FROM gpuvec_engine}), q{the server's shared memory is that of another version of gpuvec; restart the server}, "first $first: the reason");
	$_->quit for $inserter, $searcher;
}

# a full engine
$node->append_conf('postgresql.conf', 'gpuvec.max_sessions = 1');
$node->restart;
$searcher = session($node, 'auto');
exact($node, $searcher, 'a session within the limit');
is($node->safe_psql('postgres', 'SELECT pid FROM gpuvec_engine'), told($searcher, 'SELECT pid FROM gpuvec_engine'), 'gpuvec_engine answers though another session has the place');
is($node->safe_psql('postgres', 'SELECT count(*) <= 1 FROM gpuvec_mirrors'), 't', 'gpuvec_mirrors, too');
$searcher->quit;

# preloaded, memory is there whoever fills the rest
$node->append_conf('postgresql.conf', "gpuvec.max_sessions = 100\nshared_preload_libraries = 'gpuvec'");
$node->restart;
$inserter = session($node, 'full');
$searcher = session($node, 'unattached');
exact($node, $searcher, 'preloaded: an index scan') for 1, 2;
insert($inserter);
exact($node, $searcher, 'preloaded: after an insertion');
is(resident($node), '1', 'preloaded: the engine has a copy');
# one session waits for the engine after it has found no place for the name of a wait
exact($node, $inserter, 'preloaded: no name of a wait event can be had') for 1, 2;
insert($inserter);
exact($node, $inserter, 'preloaded: and after an insertion of its own');
exact($node, session($node, 'auto'), 'preloaded: nor in another session');
$_->quit for $inserter, $searcher;
$node->stop;
done_testing();
