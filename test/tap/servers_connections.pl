# Searches of several servers over connections of gpuvec's own: when they are used, that
# answers are the same, and that they keep to the rules of postgres_fdw.
use strict;
use warnings;

use GpuvecHostile;
use GpuvecTest;
use IO::Socket::UNIX;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $main = new_node('main');
my %node = map { $_ => new_node($_) } qw(s1 s2);

if ($main->safe_psql('postgres', q{SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw'}) eq '0')
{
	SKIP: { skip('the server lacks postgres_fdw', 1); }
	done_testing();
	exit 0;
}
my $version = $main->safe_psql('postgres', 'SHOW server_version_num');

# What a statement returns, or its error in one line
sub result
{
	my ($sql) = @_;
	my ($rc, $out, $err) = $main->psql('postgres', $sql);

	return $out if $rc == 0;
	$err =~ s/\s+/ /g;
	return $err;
}

my $rows = q{SELECT i AS id, ARRAY[i % 97, i % 89 + 100, i % 83 + 200]::idset AS tokens, 'title ' || i AS title FROM generate_series(1, 1000) i};
$main->safe_psql('postgres', qq{CREATE EXTENSION postgres_fdw; CREATE TABLE flat AS $rows; CREATE TABLE kept (id int);
	CREATE TABLE docs (id int, tokens idset, title text) PARTITION BY LIST ((id % 3)); CREATE TABLE docs_0 PARTITION OF docs FOR VALUES IN (0);
	INSERT INTO docs_0 SELECT * FROM flat WHERE id % 3 = 0 ORDER BY id});
foreach my $n (1, 2)
{
	my ($host, $port) = ($node{"s$n"}->host, $node{"s$n"}->port);

	$node{"s$n"}->safe_psql('postgres', qq{CREATE TABLE docs AS SELECT * FROM ($rows) x WHERE id % 3 = $n ORDER BY id; CREATE INDEX ON docs USING gpuvec (tokens)});
	$main->safe_psql('postgres', qq{CREATE SERVER s$n FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'postgres');
		CREATE USER MAPPING FOR CURRENT_USER SERVER s$n; CREATE FOREIGN TABLE docs_$n PARTITION OF docs FOR VALUES IN ($n) SERVER s$n OPTIONS (schema_name 'public', table_name 'docs')});
}

# Who is connected to a server: name of the application and state, and the user
sub connected
{
	my ($server, $columns) = @_;

	$columns //= 'application_name';
	return $node{$server}->safe_psql('postgres', qq{SELECT string_agg(DISTINCT $columns, ',') FROM pg_stat_activity WHERE application_name IN ('gpuvec', 'postgres_fdw', 'named main')});
}

# The result of statements in a session of their own, and the connections it has made
sub way
{
	my ($sql) = @_;
	my $session = $main->background_psql('postgres');
	my $out = ask($session, $sql);
	my $way = connected('s1');

	$session->quit;
	wait_for(sub { connected('s1') eq '' }, 'the end of connections');
	$out =~ s/\s+/ /g;
	return "$way: $out";
}

# ---- which way ----

my $search = q{gpuvec_topk_rows(NULL::docs, 'tokens', '{3,103,203}', 3) t};
my $ids = q{SELECT string_agg((t.item).id::text, ' ' ORDER BY rank) FROM } . $search;
my $best = result($ids);

$main->safe_psql('postgres', qq{CREATE FUNCTION in_function() RETURNS text LANGUAGE plpgsql AS \$\$ BEGIN RETURN ($ids); END \$\$;
	CREATE FUNCTION in_loop() RETURNS text LANGUAGE plpgsql AS \$\$ DECLARE r record; BEGIN FOR r IN $ids LOOP RETURN r.string_agg; END LOOP; END \$\$;
	CREATE FUNCTION writes() RETURNS text LANGUAGE plpgsql AS \$\$ BEGIN INSERT INTO docs_1 VALUES (-1, '{8000}'); RETURN '{8000}'; END \$\$;
	CREATE FOREIGN TABLE other_name (id int, tokens idset, title text) SERVER s1 OPTIONS (schema_name 'public', table_name 'docs');
	CREATE FUNCTION writes_by_other_name() RETURNS text LANGUAGE plpgsql AS \$\$ BEGIN INSERT INTO other_name VALUES (-1, '{8000}'); RETURN '{8000}'; END \$\$});
is($best, result(q{SELECT string_agg(id::text, ' ' ORDER BY s DESC, leaf, id) FROM (SELECT id, s, format('docs_%s', id % 3)::regclass::oid AS leaf
	FROM (SELECT id, braun_blanquet_similarity(tokens, '{3,103,203}') AS s FROM flat) y ORDER BY s DESC, leaf, id LIMIT 3) x}), 'the rows of one server');
is(way($ids), "gpuvec: $best", 'a statement');
is(way("SET gpuvec.own_connections = off; $ids"), "postgres_fdw: $best", 'switched off');
is(way("BEGIN; $ids; COMMIT"), "postgres_fdw: $best", 'a transaction block');
# of which psql before 15 shows the last result alone
like(way("$ids \\; SELECT 'more'"), qr/^postgres_fdw: (\Q$best\E )?more$/, 'the first statement of a message');
like(way("SELECT 'more' \\; $ids"), qr/^postgres_fdw: (more )?\Q$best\E$/, 'the last statement of a message');
is(way("SET default_transaction_isolation = 'repeatable read'; $ids"), "postgres_fdw: $best", 'repeatable read');
is(way('SELECT in_function()'), "postgres_fdw: $best", 'a function');
is(way('SELECT in_loop()'), "postgres_fdw: $best", "a function's cursor");
is(way("PREPARE p AS $ids; EXECUTE p"), "postgres_fdw: $best", 'EXECUTE');
is(way("SELECT (($ids))"), "gpuvec: $best", 'a subquery');
is(way(q{SELECT string_agg(((t).item).id::text, ' ' ORDER BY (t).rank) FROM (SELECT gpuvec_topk_rows(NULL::docs, 'tokens', '{3,103,203}', 3) AS t) x}), "gpuvec: $best", 'a call outside of FROM');
is(way("INSERT INTO kept SELECT (t.item).id FROM $search; SELECT string_agg(id::text, ' ' ORDER BY ctid) FROM kept"), "gpuvec: $best", 'INSERT ... SELECT');
like(way("SELECT t.rank, (SELECT count(*) FROM docs) FROM $search LIMIT 1"), qr/^postgres_fdw: 1\|1000$/, 'a statement with foreign tables');
foreach my $writes (qw(writes writes_by_other_name))
{
	is(way(qq{WITH w AS MATERIALIZED (SELECT $writes() AS q), found AS (SELECT (t.item).id FROM w, LATERAL gpuvec_topk_rows(NULL::docs, 'tokens', w.q::idset, 3) t) SELECT string_agg(id::text, ' ') FROM found}),
		'postgres_fdw: -1', "what the statement itself has written: $writes");
	$node{s1}->safe_psql('postgres', 'DELETE FROM docs WHERE id = -1');
}
like(way("BEGIN; INSERT INTO docs_1 VALUES (-1, '{8000}'); SELECT (t.item).id FROM gpuvec_topk_rows(NULL::docs, 'tokens', '{8000}', 3) t; ROLLBACK"), qr/^postgres_fdw: -1$/, 'what the transaction has written');
my $call = q{SELECT string_agg(t.query || ':' || (t.item).id || ':' || t.score, ' ' ORDER BY t.query, t.score, (t.item).id) FROM gpuvec_topk_batch_rows(NULL::TABLE, 'tokens', (SELECT array_agg(tokens ORDER BY id) FROM flat), NULL, min_score => 0.6) t};
is(result("SELECT md5(s) FROM (" . $call =~ s/TABLE/docs/r . ") x(s)"), result("SELECT md5(s) FROM (" . $call =~ s/TABLE/flat/r . ") x(s)"), 'a batch without k, row by row');

# ---- transactions ----

my $session = $main->background_psql('postgres');
ask($session, $ids);
is(connected('s1', q{application_name || ' ' || state}), 'gpuvec idle', 'a connection is kept, its transaction is not');
is(ask($session, $ids), $best, 'it serves the next search');
$node{s1}->restart;
is(ask($session, $ids), $best, 'a connection that was closed meanwhile is made again');

# a search that is canceled where no process can be made that asks the server
# to cancel it
SKIP: {
	skip('there is no prlimit', 3) unless -x '/usr/bin/prlimit';
	my ($lock, $lone) = map { $_->background_psql('postgres', on_error_stop => 0) } $node{s1}, $main;
	my $pid = ask($lone, 'SELECT pg_backend_pid()');

	ask($lock, 'BEGIN; LOCK TABLE docs');
	system_or_bail('/usr/bin/prlimit', '--pid', $pid, '--nproc=0:');
	$lone->query_until(qr/started/, "\\echo started\n$ids;\n");
	wait_for(sub { $node{s1}->safe_psql('postgres', 'SELECT count(*) FROM pg_locks WHERE NOT granted') eq '1' }, 'the search');
	$main->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	$lone->query('SELECT 1');
	like($lone->{stderr}, qr/WARNING:  could not send cancel request/, 'a cancel that cannot be passed on');
	ask($lock, 'COMMIT');
	$lone->{stderr} = '';
	is($lone->query($ids), $best, 'the next search');
	unlike($lone->{stderr}, qr/WARNING/, 'warns no more');
	$_->quit for $lone, $lock;
}

# two searches of one statement, and a commit on the server between them
my $holder = $main->background_psql('postgres');
ask($holder, 'SELECT pg_advisory_lock(1)');
$session->query_until(qr/started/, q{\echo started
	WITH a AS MATERIALIZED (SELECT count(*) AS n FROM gpuvec_topk_rows(NULL::docs, 'tokens', '{8000}', 3, min_score => 0.5)), l AS MATERIALIZED (SELECT a.n, pg_advisory_lock(1)::text AS done FROM a),
		b AS (SELECT l.n, count(t.*) AS m FROM l LEFT JOIN LATERAL gpuvec_topk_rows(NULL::docs, 'tokens', CASE WHEN l.done IS NOT NULL THEN '{8000}'::idset END, 3, min_score => 0.5) t ON true GROUP BY l.n)
	SELECT n, m FROM b \g
});
ok(wait_for(sub { $main->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}) eq '1' }, 'the lock'), 'a statement between its searches');
$node{s2}->safe_psql('postgres', q{INSERT INTO docs VALUES (-2, '{8000}')});
ask($holder, 'SELECT pg_advisory_unlock(1)');
is(ask($session, ''), '0|0', 'searches of a statement see one snapshot of a server');
is(ask($session, q{SELECT count(*) FROM gpuvec_topk_rows(NULL::docs, 'tokens', '{8000}', 3, min_score => 0.5)}), '1', 'the next statement sees another');
$node{s2}->safe_psql('postgres', 'DELETE FROM docs WHERE id = -2');
$holder->quit;

# Messages that run a statement in a portal, or close the portal
sub in_portal
{
	my ($portal, $sql) = @_;

	return message('C', "P$portal\0") unless defined $sql;
	return message('P', "\0$sql\0" . pack('n', 0)) . message('B', "$portal\0\0" . pack('n3', 0, 0, 0)) . message('E', "$portal\0" . pack('N', 0));
}

# Statements that a client sends one behind the other without a Sync are one
# transaction.  What a search has used on a server ends with the search, or a
# TRUNCATE behind it would wait for that, unseen by any server.  A statement is
# its text, for the unnamed portal, or [portal, text]; [portal] closes one
sub pipelined
{
	my @statements = @_;
	my $timeout = $PostgreSQL::Test::Utils::timeout_default;
	my $user = $main->safe_psql('postgres', 'SELECT current_user');
	my $startup = pack('N', 196608) . join("\0", 'user', $user, 'database', 'postgres', 'options', "-cstatement_timeout=${timeout}s") . "\0\0";
	my $socket = IO::Socket::UNIX->new(Peer => $main->host . '/.s.PGSQL.' . $main->port) or die "no connection: $!";
	my ($ready, @got) = (0);

	print $socket pack('N', 4 + length $startup) . $startup .
		join('', map { in_portal(ref $_ ? @$_ : ('', $_)) } @statements) . message('S');
	$socket->flush;
	while ($ready < 2)
	{
		my ($head, $data) = ('', '');

		(read($socket, $head, 5) // 0) == 5 or die 'the connection was closed';
		my ($type, $length) = unpack('a N', $head);
		read($socket, $data, $length - 4) if $length > 4;
		$ready++ if $type eq 'Z';
		push @got, unpack('x6 a*', $data) if $type eq 'D';
		push @got, unpack('Z*', $data) if $type eq 'C';
		push @got, $data =~ /\0M([^\0]*)/ if $type eq 'E';
	}
	close $socket;
	return join(', ', @got);
}
SKIP:
{
	skip 'foreign tables cannot be emptied', 5 if $version < 140000;
	my $rows = q{SELECT count(*) FROM gpuvec_topk_rows(NULL::spare, 'tokens', '{1}', 10)};

	$main->safe_psql('postgres', q{CREATE FOREIGN TABLE spare (id int, tokens idset) SERVER s1 OPTIONS (schema_name 'public')});
	$node{s1}->safe_psql('postgres', q{CREATE TABLE spare AS SELECT i AS id, '{1,2}'::idset AS tokens FROM generate_series(1, 5) i});
	is(pipelined($rows, $rows), '5, SELECT 1, 5, SELECT 1', 'searches in a pipeline');
	is(pipelined($rows, 'TRUNCATE spare', $rows), '5, SELECT 1, TRUNCATE TABLE, 0, SELECT 1', 'a TRUNCATE behind a search');
	$node{s1}->safe_psql('postgres', q{INSERT INTO spare SELECT i, '{1,2}' FROM generate_series(1, 5) i});
	is(pipelined('SELECT 1', $rows, $rows, 'TRUNCATE spare'), '1, SELECT 1, 5, SELECT 1, 5, SELECT 1, TRUNCATE TABLE', 'and behind others');
	$node{s1}->safe_psql('postgres', q{INSERT INTO spare SELECT i, '{1,2}' FROM generate_series(1, 5) i});
	is(pipelined($rows, [''], ['later', 'TRUNCATE spare']), '5, SELECT 1, TRUNCATE TABLE', 'a TRUNCATE in another portal, once that of the search is closed');
	$node{s1}->safe_psql('postgres', q{INSERT INTO spare SELECT i, '{1,2}' FROM generate_series(1, 5) i});
	is(pipelined(['named', $rows], 'TRUNCATE spare'), '5, SELECT 1, TRUNCATE TABLE', 'a TRUNCATE while the portal of a search is open, which has a name');
	$main->safe_psql('postgres', 'DROP FOREIGN TABLE spare');
}

# ---- options ----

$main->safe_psql('postgres', q{ALTER SERVER s1 OPTIONS (ADD application_name 'named main')});
ask($session, $ids);
is(connected('s1'), 'named main', 'a changed server is connected to anew');
$main->safe_psql('postgres', q{ALTER SERVER s1 OPTIONS (DROP application_name)});
$node{s1}->safe_psql('postgres', 'CREATE ROLE other SUPERUSER LOGIN');
$main->safe_psql('postgres', q{ALTER USER MAPPING FOR CURRENT_USER SERVER s1 OPTIONS (ADD user 'other')});
ask($session, $ids);
is(connected('s1', 'usename'), 'other', 'so is one with a changed user mapping');
$main->safe_psql('postgres', q{ALTER USER MAPPING FOR CURRENT_USER SERVER s1 OPTIONS (DROP user)});
if ($version >= 140000)
{
	$main->safe_psql('postgres', q{ALTER SERVER s1 OPTIONS (ADD keep_connections 'off')});
	ask($session, $ids);
	ok(wait_for(sub { connected('s1') eq '' }, 'the end of the connection'), 'keep_connections');
	$main->safe_psql('postgres', q{ALTER SERVER s1 OPTIONS (DROP keep_connections)});
}
$session->quit;

# ---- who may connect ----

$node{s1}->safe_psql('postgres', q{SET password_encryption = 'md5'; CREATE ROLE remote_alice LOGIN PASSWORD 'secret'; GRANT SELECT ON docs TO remote_alice});
$main->safe_psql('postgres', q{CREATE ROLE alice; GRANT SELECT ON docs_1 TO alice; CREATE USER MAPPING FOR alice SERVER s1 OPTIONS (user 'remote_alice')});
my $alice = q{SET ROLE alice; SELECT count(*) FROM gpuvec_topk_rows(NULL::docs_1, 'tokens', '{3,103}', 2)};
like(result($alice), qr/password( or GSSAPI delegated credentials)?( is)? required/, 'no password');
$main->safe_psql('postgres', q{ALTER USER MAPPING FOR alice SERVER s1 OPTIONS (ADD password 'secret')});
like(result($alice), qr/password( or GSSAPI delegated credentials)?( is)? required .*on server "s1"/, 'a server that does not ask for the password');
my $hba = $node{s1}->data_dir . '/pg_hba.conf';
my $rules = slurp_file($hba);
open my $file, '>', $hba or die "cannot write $hba: $!\n";
print $file "local all remote_alice md5\nhost all remote_alice all md5\n$rules";
close $file;
$node{s1}->reload;
is(way($alice), 'gpuvec: 2', 'a password that the server asks for');
$main->safe_psql('postgres', q{ALTER USER MAPPING FOR alice SERVER s1 OPTIONS (SET password 'wrong')});
like(result($alice), qr/could not connect to server "s1" DETAIL: .*password authentication failed/, 'a wrong password');
# a mapping of all users: a superuser's connection, for which no password was asked, is not for others
$main->safe_psql('postgres', q{DROP USER MAPPING FOR alice SERVER s1; DROP USER MAPPING FOR CURRENT_USER SERVER s1; CREATE USER MAPPING FOR PUBLIC SERVER s1 OPTIONS (password 'unused'); GRANT SELECT ON docs_1 TO alice});
like(result(qq{SELECT count(*) FROM gpuvec_topk_rows(NULL::docs_1, 'tokens', '{3}', 2); $alice}), qr/password( or GSSAPI delegated credentials)?( is)? required/, 'a connection of another user');

# ---- values ----

$node{s2}->safe_psql('postgres', q{CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE TABLE kinds (n int, big numeric, label varchar(9), kind mood, flag bool, at timestamptz, few int[], many text[], tokens idset);
	INSERT INTO kinds VALUES (7, 1.50, 'a "b"', 'glad', true, '2020-02-29 12:00:00.5+00', '{1,NULL,3}', '{x,"y z",NULL}', '{1,2}'), (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{1,9}')});
my $columns = {
	'binary' => 'n int, big numeric, label text, flag bool, at timestamptz, few int[], tokens idset',
	'text' => 'n int, big numeric, label varchar, kind mood, flag bool, at timestamptz, few int[], many text[], tokens idset',
	'other types' => 'n bigint, big float8, label text, flag bool, at timestamp with time zone, few bigint[], tokens idset' };
$main->safe_psql('postgres', q{CREATE TYPE mood AS ENUM ('glad', 'sad')});
foreach my $name (sort keys %$columns)
{
	$main->safe_psql('postgres', qq{CREATE FOREIGN TABLE kinds ($columns->{$name}) SERVER s2 OPTIONS (schema_name 'public')});
	my $query = q{SET timezone = 'Asia/Tokyo'; SET datestyle = 'SQL, DMY'; SELECT string_agg(to_jsonb(t.item)::text, ' ' ORDER BY rank) FROM gpuvec_topk_rows(NULL::kinds, 'tokens', '{1,2}', 5) t};

	is(result($query), result("SET gpuvec.own_connections = off; $query"), "columns: $name");
	is(result("$query; $query"), result("SET gpuvec.own_connections = off; $query; $query"), "columns, and again: $name");
	$main->safe_psql('postgres', 'DROP FOREIGN TABLE kinds');
}

# ---- several hosts ----

my ($down, $up) = map { $_->port } $node{s1}, $node{s2};
my $host = $node{s1}->host;
my $host2 = $node{s2}->host;
$main->safe_psql('postgres', qq{CREATE SERVER pair FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host,$host2', port '$down,$up', dbname 'postgres'); CREATE USER MAPPING FOR PUBLIC SERVER pair OPTIONS (password_required 'false');
	CREATE FOREIGN TABLE pair (id int, tokens idset) SERVER pair OPTIONS (schema_name 'public', table_name 'docs')});
my $one = q{SELECT (t.item).id % 3 FROM gpuvec_topk_rows(NULL::pair, 'tokens', '{3,103,203}', 1) t};
my $lasting = $main->background_psql('postgres');
is(ask($lasting, $one), '1', 'the first host answers');
$node{s1}->stop('immediate');
is(ask($lasting, $one), '2', 'a session goes on with the second host when the first one is gone');
is(way_of_pair(), 'gpuvec: 2', 'a new session finds the second host');
$lasting->quit;

sub way_of_pair
{
	my $new = $main->background_psql('postgres');
	my $out = ask($new, $one);
	my $way = connected('s2');

	$new->quit;
	return "$way: $out";
}

$_->stop for $main, $node{s2};
done_testing();
