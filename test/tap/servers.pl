# Tables whose rows are on several servers, behind postgres_fdw: the functions that return
# rows search them all, and answer as one server with all rows would.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $main = new_node('main');
my %node = map { $_ => new_node($_) } qw(s1 s2 s3);

if ($main->safe_psql('postgres', q{SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw'}) eq '0')
{
	SKIP: { skip('the server lacks postgres_fdw', 1); }
	done_testing();
	exit 0;
}

# What a statement returns, or its error without lines of context
sub result
{
	my ($sql, %opts) = @_;
	my ($rc, $out, $err) = $main->psql('postgres', $sql, %opts);

	return $out if $rc == 0;
	$err =~ s/^(?:LINE|LOCATION):.*\n|^psql:\S+ //mg;
	$err =~ s/\s+/ /g;
	return $err;
}

# ---- the same rows on one server and on four ----

my $rows = q{SELECT i AS id, ARRAY[i % 97, i % 89 + 100, i % 83 + 200, i % 79 + 300, i % 7 + 400]::idset AS tokens, 'title ' || i AS title
	FROM generate_series(1, 4000) i UNION ALL SELECT 5000 + i, ARRAY[7000, 7001, 7002 + i / 8]::idset, NULL FROM generate_series(1, 800, 4) i
	UNION ALL SELECT 9000, '{}', 'empty' UNION ALL SELECT 9001, NULL, 'null'};

# another schema of the extension, other names and another order of columns, and dropped ones
$node{s2}->safe_psql('postgres', q{CREATE SCHEMA "Odd Schema"; ALTER EXTENSION gpuvec SET SCHEMA "Odd Schema"});
$node{s1}->safe_psql('postgres', q{CREATE TABLE docs (id int, tokens idset, title text)});
$node{s2}->safe_psql('postgres', q{CREATE SCHEMA "the ""rows"; CREATE TABLE "the ""rows"."Doc's" (gone int, "The 'Title" text, more int, "Set" "Odd Schema".idset, nr int);
	ALTER TABLE "the ""rows"."Doc's" DROP COLUMN gone});
$node{s3}->safe_psql('postgres', q{CREATE TABLE docs (id int, tokens idset, title text)});
$main->safe_psql('postgres', qq{
	CREATE EXTENSION postgres_fdw;
	CREATE TABLE flat AS $rows;
	CREATE TABLE docs (gone int, id int, tokens idset, title text) PARTITION BY LIST ((id % 4));
	ALTER TABLE docs DROP COLUMN gone;
	CREATE TABLE docs_0 PARTITION OF docs FOR VALUES IN (0);
	INSERT INTO docs_0 SELECT * FROM flat WHERE id % 4 = 0 ORDER BY id});
foreach my $n (1 .. 3)
{
	my ($host, $port) = ($node{"s$n"}->host, $node{"s$n"}->port);
	my $names = $n == 2 ? q{schema_name 'the "rows', table_name 'Doc''s'} : q{schema_name 'public', table_name 'docs'};
	my @column = $n == 2 ? (q{OPTIONS (column_name 'nr')}, q{OPTIONS (column_name 'Set')}, q{OPTIONS (column_name 'The ''Title')}) : ('', '', '');

	$main->safe_psql('postgres', qq{
		CREATE SERVER s$n FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'postgres', extensions 'gpuvec');
		CREATE USER MAPPING FOR CURRENT_USER SERVER s$n;
		CREATE FOREIGN TABLE docs_$n (title text $column[2], id int $column[0], tokens idset $column[1]) SERVER s$n OPTIONS ($names);
		INSERT INTO docs_$n (id, tokens, title) SELECT id, tokens, title FROM flat WHERE id % 4 = $n ORDER BY id;
		ALTER TABLE docs ATTACH PARTITION docs_$n FOR VALUES IN ($n)});
}
$node{s1}->safe_psql('postgres', 'CREATE INDEX ON docs USING gpuvec (tokens)');

my $queries = q{(SELECT array_agg(tokens ORDER BY id) || NULL::idset || '{}'::idset || '{7000,7001}'::idset || '{60000}'::idset || ARRAY[7000, 7001, 7042]::idset FROM flat WHERE id <= 30)};

# The answers, and those of one server in the order (score descending, table, rank there)
sub answers
{
	my ($k, $measure, $min_score) = @_;
	my $arguments = "$k, '$measure', $min_score";

	return (qq{SELECT md5(string_agg(concat_ws(' ', t.query, t.rank, t.score, t.common, (t.item).id, (t.item).tokens, (t.item).title), ',' ORDER BY t.query, t.rank)), count(*)
			FROM gpuvec_topk_batch_rows(NULL::docs, 'tokens', $queries, $arguments) t},
		qq{SELECT md5(string_agg(concat_ws(' ', query, rank, score, common, id, tokens, title), ',' ORDER BY query, rank)), count(*)
			FROM (SELECT t.query, t.score, t.common, (t.item).*, row_number() OVER (PARTITION BY t.query ORDER BY t.score DESC, format('docs_%s', (t.item).id % 4)::regclass::oid, (t.item).id) AS rank
			FROM gpuvec_topk_batch_rows(NULL::flat, 'tokens', $queries, 100000, '$measure', $min_score) t) x WHERE rank <= coalesce($k, 100000)});
}

$main->safe_psql('postgres', 'ALTER SYSTEM SET gpuvec.verify = on; SELECT pg_reload_conf()');
foreach my $measure (qw(braun_blanquet jaccard cosine dice overlap containment intersection hamming kulczynski), 'tversky(0.9,0.1)')
{
	foreach my $k (1, 10, 100, 100000)
	{
		my ($servers, $one) = answers($k, $measure, 'NULL');

		is(result($servers), result($one), "$measure, k = $k");
	}
	my ($servers, $one) = answers('NULL', $measure, $measure eq 'hamming' ? -7 : 0.3);

	is(result($servers), result($one), "$measure, rows of a least score");
	like(result($servers), qr/\|[1-9]/, "$measure: there are some");
}
my ($servers, $one) = answers(150, 'jaccard', 0.30000000000000004);
is(result($servers), result($one), 'k and a least score of many digits');
is(result(q{SELECT count(*) FROM gpuvec_topk_rows(NULL::docs, 'tokens', NULL, 10)}), '0', 'a null query');
is(result(q{SELECT count(*) FROM gpuvec_topk_batch_rows(NULL::docs, 'tokens', '{}', 10)}), '0', 'no queries');

my $rows_of = sub {
	my ($table, $k) = @_;
	return result(qq{SELECT string_agg((t.item).id || ' ' || t.rank, ',' ORDER BY t.rank) FROM gpuvec_topk_rows(NULL::$table, 'tokens', '{7000,7001}', $k) t});
};
# all rows with these ids are on one server: it is asked a second time
is($rows_of->('docs', 100), join(',', map { (5000 + 4 * $_ + 1) . ' ' . ($_ + 1) } 0 .. 99), 'the best rows are all in one table');
my @more = split /,/, $rows_of->('docs', 101);
is(join(',', @more[0 .. 99]), $rows_of->('docs', 100), 'k rows are the first of k + 1');
# a server that asks others in its turn
my ($host, $port) = ($node{s3}->host, $node{s3}->port);
$node{s1}->safe_psql('postgres', qq{CREATE EXTENSION postgres_fdw; CREATE SERVER up FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'postgres'); CREATE USER MAPPING FOR PUBLIC SERVER up;
	CREATE TABLE tree (id int, tokens idset, title text); INSERT INTO tree VALUES (-1, '{3,103}'); CREATE FOREIGN TABLE tree_up () INHERITS (tree) SERVER up OPTIONS (table_name 'docs')});
$main->safe_psql('postgres', q{CREATE FOREIGN TABLE tree (id int, tokens idset, title text) SERVER s1 OPTIONS (schema_name 'public')});
is(result(q{SELECT string_agg((t.item).id::text, ' ' ORDER BY rank) FROM gpuvec_topk_rows(NULL::tree, 'tokens', '{3,103,203}', 3) t}),
	'-1 ' . result(q{SELECT string_agg(id::text, ' ' ORDER BY s DESC, id) FROM (SELECT id, braun_blanquet_similarity(tokens, '{3,103,203}') AS s FROM flat WHERE id % 4 = 3 ORDER BY s DESC NULLS LAST, id LIMIT 2) x}), 'a tree of servers');
is($rows_of->('docs_1', 5), $rows_of->('docs', 5), 'a foreign table by its name');

# inheritance, with a column that the parent lacks
$main->safe_psql('postgres', q{CREATE TABLE parent (id int, tokens idset); INSERT INTO parent VALUES (-1, '{7000,7001}');
	CREATE FOREIGN TABLE child (more text) INHERITS (parent) SERVER s3 OPTIONS (table_name 'docs'); ALTER FOREIGN TABLE child ALTER more OPTIONS (ADD column_name 'title')});
is(result(q{SELECT string_agg(t.item::text, ' ' ORDER BY rank) FROM gpuvec_topk_rows(NULL::parent, 'tokens', '{7000,7001,103,203}', 2) t}),
	q{(-1,"{7000,7001}") (3,"{3,103,203,303,403}")}, 'an inherited foreign table');
is(result(q{SELECT count(*) FROM gpuvec_topk_rows(NULL::parent, 'tokens', '{7000,7001,103,203}', NULL, min_score => 0.39)}), '2', 'all rows of two tables');
is(result(q{SELECT count(*) FROM child c, LATERAL (SELECT * FROM gpuvec_topk_rows(NULL::docs, 'tokens', c.tokens, 3)) t WHERE c.id < 40}), '30', 'a call for each row of a foreign scan');
# calls while scans of the same servers are under way, and two tables of one server
$main->safe_psql('postgres', q{CREATE TABLE two (id int, tokens idset, title text); CREATE FOREIGN TABLE two_a () INHERITS (two) SERVER s1 OPTIONS (schema_name 'public', table_name 'docs');
	CREATE FOREIGN TABLE two_b () INHERITS (two) SERVER s3 OPTIONS (schema_name 'public', table_name 'docs'); CREATE FOREIGN TABLE two_c () INHERITS (two) SERVER s1 OPTIONS (schema_name 'public', table_name 'docs')});
my @async = $main->safe_psql('postgres', 'SHOW server_version_num') >= 140000 ? qw(s1 s2 s3) : ();
$main->safe_psql('postgres', "ALTER SERVER $_ OPTIONS (ADD async_capable 'on', ADD fetch_size '7')") for @async;
my $calls = q{SELECT string_agg(d.id || ':' || t.found, ' ' ORDER BY d.id) FROM TABLE d, LATERAL (SELECT string_agg((t.item).id::text, ',' ORDER BY rank) AS found FROM gpuvec_topk_rows(NULL::two, 'tokens', d.tokens, 25) t) t WHERE d.id < 60};
is(result($calls =~ s/TABLE/docs/r), result($calls =~ s/TABLE/flat/r), 'calls while other scans of the servers are under way');
like(result($calls =~ s/TABLE/flat/r), qr/\b1:1,1,/, 'a server with two tables is asked for both');
$main->safe_psql('postgres', "ALTER SERVER $_ OPTIONS (DROP async_capable, DROP fetch_size)") for @async;
is(result(q{SELECT gpuvec_prewarm('docs', 'tokens') = count(tokens) FROM docs WHERE id IS NOT NULL}), 't', 'all servers load their rows');

# ---- transactions ----

my $best = q{SELECT string_agg((t.item).id::text, ' ' ORDER BY rank) FROM gpuvec_topk_rows(NULL::docs, 'tokens', '{8000,8001}', 5) t};
is($main->safe_psql('postgres', qq{
	BEGIN; INSERT INTO docs (id, tokens) VALUES (10001, '{8000}'); $best;
	SAVEPOINT a; INSERT INTO docs (id, tokens) VALUES (10002, '{8000,8001}'), (10004, '{8000,8001}'); $best;
	ROLLBACK TO a; $best; DELETE FROM docs WHERE id = 10001; $best; ROLLBACK; $best}),
	"10001\n10004 10002 10001\n10001\n\n", 'what the transaction has changed on servers');
is(result(qq{DO \$\$ BEGIN
		BEGIN PERFORM * FROM gpuvec_topk_rows(NULL::docs, 'title', '{1}'); EXCEPTION WHEN datatype_mismatch THEN NULL; END;
		BEGIN INSERT INTO docs (id, tokens) VALUES (10003, '{8000}'); PERFORM * FROM gpuvec_topk_rows(NULL::docs, 'tokens', '{8000}'); RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END;
	END \$\$; $best}), '', 'blocks that fail');
my $session = $main->background_psql('postgres');
ask($session, 'BEGIN ISOLATION LEVEL REPEATABLE READ');
is(ask($session, $best), '', 'one snapshot of each server: before');
$node{s3}->safe_psql('postgres', q{INSERT INTO docs VALUES (10003, '{8001}')});
is(ask($session, $best), '', 'one snapshot of each server: after');
is(ask($session, "COMMIT; $best"), '10003', 'the next transaction');
is(ask($session, "DECLARE c CURSOR WITH HOLD FOR $best; FETCH c"), '10003', 'a cursor');
$session->quit;
$node{s3}->safe_psql('postgres', 'DELETE FROM docs WHERE id = 10003');

# ---- refusals ----

like(result(q{SELECT gpuvec_topk('docs', 'tokens', '{1}')}), qr/cannot search relation "docs_1" .* HINT: gpuvec_topk_rows and gpuvec_topk_batch_rows search it/, 'tids are of one server');
like(result(q{SELECT gpuvec_topk_batch('docs_2', 'tokens', '{"{1}"}')}), qr/cannot search relation "docs_2"/, 'and so in batches');
like(result(q{SELECT gpuvec_topk_rows(NULL::docs, 'tokens', '{1}', among => '{"(0,1)"}')}), qr/cannot search among given rows of "docs", which are on other servers/, 'among');
like(result(q{SELECT gpuvec_topk_rows(NULL::docs_1, 'tokens', '{1}', among => '{"(0,1)"}')}), qr/cannot search among given rows of "docs_1"/, 'among rows of a foreign table');
$main->safe_psql('postgres', q{CREATE FOREIGN DATA WRAPPER impostor; CREATE SERVER other FOREIGN DATA WRAPPER impostor; CREATE FOREIGN TABLE other (id int, tokens idset) SERVER other});
like(result(q{SELECT gpuvec_topk_rows(NULL::other, 'tokens', '{1}')}), qr/cannot search relation "other" DETAIL: Foreign tables keep their rows elsewhere. HINT: ORDER BY/, 'another wrapper');
is(result(q{SELECT server, problem FROM gpuvec_check_foreign('other')}), 'other|The server does not belong to postgres_fdw.', 'and the check says so');

# ---- the check ----

sub problems { return result('SELECT leaf, server, problem FROM gpuvec_check_foreign(\'docs\') ORDER BY 1, problem COLLATE "C"'); }
my $no_index = "docs_2|s2|The server has gpuvec in schema \"Odd Schema\", not public: ORDER BY and filters fail.\ndocs_2|s2|The server's column \"Set\" has no index: ORDER BY reads and sorts the table, and searches find changes by the WAL.\n"
	. "docs_3|s3|The server's column tokens has no index: ORDER BY reads and sorts the table, and searches find changes by the WAL.";
is(problems(), $no_index, 'the check: indexes');
$main->safe_psql('postgres', q{ALTER SERVER s1 OPTIONS (SET extensions 'cube, isn', ADD use_remote_estimate 'on'); ALTER FOREIGN TABLE docs_1 OPTIONS (ADD fetch_size '50000')});
is(problems(), qq{docs_1|s1|Estimates of the server price ORDER BY without LIMIT: the planner may fetch and sort all rows.
docs_1|s1|ORDER BY with LIMIT fetches 50000 rows at a time.
docs_1|s1|Operators of gpuvec are not sent to the server: ORDER BY and filters fetch all rows.
$no_index}, 'the check: options');
# nor has a server the option that names none
$main->safe_psql('postgres', q{ALTER SERVER s1 OPTIONS (DROP extensions)});
like(problems(), qr/docs_1\|s1\|Operators of gpuvec are not sent/, 'the check: no extensions');
like(result(q{SELECT hint FROM gpuvec_check_foreign('docs') WHERE problem LIKE 'Operators%'}), qr/ADD extensions/, 'and how to name one');
$main->safe_psql('postgres', q{ALTER SERVER s1 OPTIONS (ADD extensions 'cube, gpuvec', SET use_remote_estimate 'off'); ALTER FOREIGN TABLE docs_1 OPTIONS (SET fetch_size '100', SET table_name 'nothing')});
like(problems(), qr/\Adocs_1\|s1\|The server lacks the table public.nothing.\n/, 'the check: a missing table');
like(result($best), qr/type "public.nothing" does not exist .*search of foreign table "docs_1" on server "s1"/, 'the search: a missing table');
$main->safe_psql('postgres', q{ALTER FOREIGN TABLE docs_1 OPTIONS (SET table_name 'docs'); ALTER FOREIGN TABLE docs_1 ALTER tokens OPTIONS (ADD column_name 'nothing')});
like(problems(), qr/\Adocs_1\|s1\|The server's table public.docs lacks the column nothing.\n/, 'the check: a missing column');
like(result($best), qr/ERROR: column "nothing" .*on server "s1"/, 'the search: a missing column');
$main->safe_psql('postgres', q{ALTER FOREIGN TABLE docs_1 ALTER tokens OPTIONS (SET column_name 'title')});
like(problems(), qr/\Adocs_1\|s1\|The server's column title is of type text.\n/, 'the check: another type');
$main->safe_psql('postgres', q{ALTER FOREIGN TABLE docs_1 ALTER tokens OPTIONS (DROP column_name)});

# ---- rights ----

$main->safe_psql('postgres', q{CREATE ROLE alice; GRANT SELECT ON docs TO alice; CREATE USER MAPPING FOR alice SERVER s2 OPTIONS (user 'remote_alice', password_required 'false');
	CREATE USER MAPPING FOR alice SERVER s3 OPTIONS (user 'remote_alice', password_required 'false')});
like(result("SET ROLE alice; $best"), qr/user mapping not found .*on server "s1"/, 'no user mapping');
like(result('SET ROLE alice; SELECT server, problem FROM gpuvec_check_foreign(\'docs\')'), qr/s1|The current user has no user mapping.|role "remote_alice" does not exist/, 'the check: no user mapping');
$main->safe_psql('postgres', q{CREATE USER MAPPING FOR alice SERVER s1 OPTIONS (user 'remote_alice')});
like(result("SET ROLE alice; $best"), qr/password( or GSSAPI delegated credentials)?( is)? required/, 'connections of others need a password');
$main->safe_psql('postgres', q{ALTER USER MAPPING FOR alice SERVER s1 OPTIONS (ADD password_required 'false')});
$_->safe_psql('postgres', 'CREATE ROLE remote_alice LOGIN') for values %node;
$node{s2}->safe_psql('postgres', q{GRANT USAGE ON SCHEMA "the ""rows", "Odd Schema" TO remote_alice; GRANT SELECT ON "the ""rows"."Doc's" TO remote_alice});
$node{s3}->safe_psql('postgres', q{GRANT SELECT ON docs TO remote_alice});
like(result("SET ROLE alice; $best"), qr/permission denied for table docs .*on server "s1"/, 'rights of the mapped user on the server');
$node{s1}->safe_psql('postgres', q{GRANT SELECT ON docs TO remote_alice});
my $count = q{SELECT count(*) FROM gpuvec_topk_rows(NULL::docs, 'tokens', '{7000,103,301}', 50)};
is(result("SET ROLE alice; $count"), '50', 'all rights');
$node{s3}->safe_psql('postgres', q{ALTER TABLE docs ENABLE ROW LEVEL SECURITY});
like(result("SET ROLE alice; $count"), qr/row-level security policies .*on server "s3"/, 'policies on a server');
$node{s3}->safe_psql('postgres', q{ALTER TABLE docs DISABLE ROW LEVEL SECURITY});
$main->safe_psql('postgres', 'REVOKE SELECT ON docs FROM alice');
like(result("SET ROLE alice; $count"), qr/permission denied for table docs/, 'rights here');
like(result("SET ROLE alice; SELECT gpuvec_check_foreign('docs')"), qr/permission denied for table docs/, 'the check needs them too');

# names of others before ours, here and there
my $hostile = q{CREATE SCHEMA hostile; CREATE DOMAIN hostile.idset AS text; CREATE FUNCTION hostile.gpuvec_topk_batch_rows(anyelement, name, text, int8, text, float8) RETURNS int LANGUAGE sql AS 'SELECT 1/0';
	CREATE FUNCTION hostile.gt(int, int) RETURNS bool LANGUAGE sql AS 'SELECT 1/0 = 1'; CREATE OPERATOR hostile.> (LEFTARG = int, RIGHTARG = int, FUNCTION = hostile.gt);
	CREATE TABLE hostile.docs (id text); ALTER DATABASE postgres SET search_path = hostile, pg_catalog, public};
$_->safe_psql('postgres', $hostile) for $main, values %node;
is($main->safe_psql('postgres', q{SET search_path = hostile, pg_catalog; SELECT count(*) FROM public.gpuvec_topk_rows(NULL::public.docs, 'tokens', '{7000,7001}', 100)}), '100', 'hostile names');
$_->safe_psql('postgres', 'ALTER DATABASE postgres RESET search_path') for $main, values %node;

# ---- servers that are away, hang, lack something or lie ----

$node{s1}->safe_psql('postgres', 'DROP SCHEMA hostile CASCADE; ALTER EXTENSION gpuvec SET SCHEMA pg_catalog');
is(result($count), '50', 'the extension has moved to another schema');

# in another database the function is ours
$node{s3}->safe_psql('postgres', 'CREATE DATABASE fake');
$node{s3}->safe_psql('fake', q{CREATE TABLE docs (id int, tokens text, title text)});
$main->safe_psql('postgres', q{ALTER SERVER s3 OPTIONS (SET dbname 'fake')});
like(result($best), qr/ERROR: extension "gpuvec" does not exist on server "s3" HINT: Run CREATE EXTENSION gpuvec there./, 'no extension');
is(join("\n", grep { /s3/ } split /\n/, problems()), "docs_3|s3|The server lacks the extension gpuvec.\ndocs_3|s3|The server's column tokens is of type text.",
	'the check: no extension, but the table');
$node{s3}->safe_psql('fake', q{CREATE EXTENSION gpuvec; ALTER EXTENSION gpuvec DROP FUNCTION gpuvec_topk_batch_rows(anyelement, name, idset[], int8, text, float8, tid[]);
	DROP FUNCTION gpuvec_topk_batch_rows(anyelement, name, idset[], int8, text, float8, tid[])});
like(result($best), qr/ERROR: gpuvec \S+ on server "s3" has no function gpuvec_topk_batch_rows HINT: Install a later version there, and run ALTER EXTENSION gpuvec UPDATE./, 'an older version');

sub fake
{
	my ($body, $types) = @_;

	$types //= 'query int, rank int, item public.docs, score float8, common int';
	$node{s3}->safe_psql('fake', qq{DROP FUNCTION IF EXISTS gpuvec_topk_batch_rows;
		CREATE FUNCTION gpuvec_topk_batch_rows(public.docs, name, idset[], int8, text, float8) RETURNS TABLE ($types) LANGUAGE sql AS \$\$ $body \$\$});
	return;
}
my $three = q{SELECT count(*) FROM gpuvec_topk_rows(NULL::docs, 'tokens', '{1,2,3}', 3)};
my $row = q{ROW(1, '{1,2}', 'x')::public.docs};
foreach my $lie (
	[ "SELECT 1, i, $row, 2.0::float8 / 3, 2 FROM generate_series(1, 4) i", 'A row has rank 4 after 3 of 3 rows.', 'more rows than asked for' ],
	[ "SELECT 1, i, $row, 2.0::float8 / 3, 2 FROM generate_series(1, 100000) i", 'A row has rank 4 after 3 of 3 rows.', 'many rows' ],
	[ "SELECT 1, 2, $row, 0.5::float8, 2", 'A row has rank 2 after 0 of 3 rows.', 'a rank is left out' ],
	[ "SELECT 1, -5, $row, 0.5::float8, 2", 'A row has rank \d+ after 0', 'a negative rank' ],
	[ "SELECT 1, 1, $row, 2.0::float8 / 3, 2 UNION ALL SELECT 1, 1, $row, 2.0::float8 / 3, 2", 'A row has rank 1 after 1', 'a rank comes twice' ],
	[ "SELECT 2, 1, $row, 0.5::float8, 2", 'A row belongs to query 2 of 1.', 'a query that was not asked' ],
	[ "SELECT 0, 1, $row, 0.5::float8, 2", 'A row belongs to query 0 of 1.', 'query 0' ],
	[ "SELECT 1, 1, $row, 'NaN'::float8, 2", 'The row of rank 1 has score NaN.', 'a score that is not a number' ],
	[ "SELECT 1, i, $row, (i + 1.0::float8) / 3, 2 FROM generate_series(1, 2) i", 'The row of rank 2 has score 1.', 'ascending scores' ],
	[ "SELECT 1, 1, $row, 0.5::float8, 4", 'The row of rank 1 has 4 common ids.', 'more common ids than the query has' ],
	[ "SELECT 1, 1, $row, 0.5::float8, -1", 'The row of rank 1 has \d+ common ids.', 'a negative number' ],
	[ "SELECT NULL::int, 1, $row, 0.5::float8, 2", 'A number of a row is null.', 'null' ],
	[ "SELECT 1, 1, $row, 1::float8, 3", 'The row of rank 1 has 2 common ids|The row of rank 1 has 3 common ids and score 1, not its set', 'another score than the set has' ],
	[ "SELECT 1, 1, ROW(1, NULL, 'x')::public.docs, 1::float8, 3", 'The row of rank 1 has no set.', 'no set' ])
{
	my ($body, $error, $name) = @$lie;

	fake($body);
	like(result($three), qr/ERROR: server "s3" returned a wrong answer DETAIL: (?:$error)/, "a lie: $name");
}
fake("SELECT 1, 1, ROW(1, '{zero}', 'x')::public.docs, 0.5::float8, 2");
like(result($three), qr/ERROR: .*zero.*column "tokens" of foreign table "docs_3".*on server "s3"/, 'a value of another type');
fake("SELECT 1, 1, $row, 'x'::text, 2", 'query int, rank int, item public.docs, score text, common int');
like(result($three), qr/ERROR: invalid input syntax for type double precision: "x" .*on server "s3"/, 'a score of another type');
fake('SELECT 1, 1', 'query int, rank int');
like(result($three), qr/ERROR: column h.score does not exist .*on server "s3"/, 'other columns');
is(result($three =~ s/docs/flat/r), '3', 'the session goes on');

# a search that waits
fake("SELECT 1, 1, $row, pg_sleep(600)::text::float8, 2");
sub sleeping { return $node{s3}->safe_psql('fake', q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'}); }
like(result("SET statement_timeout = '2s'; $three"), qr/canceling statement due to statement timeout/, 'a server that does not answer');
ok(wait_for(sub { sleeping() eq '0' }, 'the end of the statement'), 'statement_timeout ends the statement on the server');
my $waiting = $main->background_psql('postgres', on_error_stop => 0);
$waiting->query_until(qr/started/, "\\echo started\n$three;\n");
ok(wait_for(sub { sleeping() eq '1' }, 'the search'), 'a search waits for its server');
$main->safe_psql('postgres', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT count%gpuvec_topk_rows%' AND pid <> pg_backend_pid()});
ok(wait_for(sub { sleeping() eq '0' }, 'the end of the statement'), 'a cancel ends the statement on the server');
$waiting->query_until(qr/again/, "\\echo again\n$three;\n");
ok(wait_for(sub { sleeping() eq '1' }, 'the search'), 'the session searches again');
$node{s3}->stop('immediate');
$waiting->query('SELECT 1');
like($waiting->{stderr}, qr/canceling statement due to user request/, 'the cancel was an error');
like($waiting->{stderr}, qr/search of foreign table "docs_3" on server "s3"/, 'a server that stops in mid-search is named');
$waiting->quit;
like(result($three), qr/could not connect to server "s3"/, 'a server that is down');
$node{s3}->start;
$main->safe_psql('postgres', q{ALTER SERVER s3 OPTIONS (SET dbname 'postgres')});
is(result($count), '50', 'it is back');

$_->stop for $main, values %node;
done_testing();
