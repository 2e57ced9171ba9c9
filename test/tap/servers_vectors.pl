# Searches by vectors of tables on several servers: by sums of weights, cosine
# and Jaccard's measure, the answers are those of one server with all rows.
use strict;
use warnings;

use GpuvecTest;
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

# What a statement returns, or its error without lines of context
sub result
{
	my ($sql) = @_;
	my ($rc, $out, $err) = $main->psql('postgres', $sql);

	return $out if $rc == 0;
	$err =~ s/^(?:LINE|LOCATION):.*\n|^psql:\S+ //mg;
	$err =~ s/\s+/ /g;
	return $err;
}

# ---- the same rows on one server and on three ----

my $rows = q{SELECT i AS id, ARRAY[i % 97, i % 13 + 100, i % 7 + 200, 100000 + i % 5]::idset AS tags, idvec(ARRAY[i % 97, i % 13 + 100, i % 7 + 200, 100000 + i % 5], ARRAY[i % 9 - 4, 0.1 * (i % 11), 3e38, 1e-45]::real[]) AS terms FROM generate_series(1, 1500) i
	UNION ALL SELECT 5000 + i, ARRAY[7000, 7001, 7002 + i / 8]::idset, idvec(ARRAY[7000, 7001, 7002 + i / 8], ARRAY[i % 5 + 1, 1, 2]::real[]) FROM generate_series(1, 300, 2) i UNION ALL SELECT 9000, '{}', '{}' UNION ALL SELECT 9001, NULL, NULL};

$node{s1}->safe_psql('postgres', 'CREATE TABLE docs (id int, tags idset, terms idvec); CREATE INDEX ON docs USING gpuvec (tags); CREATE INDEX ON docs USING gpuvec (terms)');
$node{s2}->safe_psql('postgres', q{CREATE SCHEMA "Odd Schema"; ALTER EXTENSION gpuvec SET SCHEMA "Odd Schema"; CREATE TABLE docs ("Set" "Odd Schema".idset, terms "Odd Schema".idvec, id int)});
$main->safe_psql('postgres', qq{
	CREATE EXTENSION postgres_fdw;
	CREATE TABLE flat AS $rows;
	CREATE TABLE docs (id int, tags idset, terms idvec) PARTITION BY LIST ((id % 3));
	CREATE TABLE docs_0 PARTITION OF docs FOR VALUES IN (0);
	INSERT INTO docs_0 SELECT * FROM flat WHERE id % 3 = 0 ORDER BY id});
foreach my $n (1, 2)
{
	my ($host, $port) = ($node{"s$n"}->host, $node{"s$n"}->port);
	my $column = $n == 2 ? q{OPTIONS (column_name 'Set')} : '';

	$main->safe_psql('postgres', qq{
		CREATE SERVER s$n FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'postgres');
		CREATE USER MAPPING FOR CURRENT_USER SERVER s$n;
		CREATE FOREIGN TABLE docs_$n (id int, tags idset $column, terms idvec) SERVER s$n OPTIONS (schema_name 'public', table_name 'docs');
		INSERT INTO docs_$n (id, tags, terms) SELECT id, tags, terms FROM flat WHERE id % 3 = $n ORDER BY id;
		ALTER TABLE docs ATTACH PARTITION docs_$n FOR VALUES IN ($n)});
}
$main->safe_psql('postgres', 'ALTER SYSTEM SET gpuvec.verify = on; SELECT pg_reload_conf()');

my $positive = q{'{1:0.5,105:2,203:0.25,100003:1.5}', NULL, '{}', '{7000:1,7001:0.3}', '{60000:1}', '{7:0.1,106:0.2,204:0.7,100001:1e-45}', '{7:3e38,9:1e-45}'};
my $signed = q{, '{7000:-1,7001:1,7009:0.5}', '{3:-1,104:-0.5,203:-2.25}', '{3:1,103:-1,203:0.125,100002:-1e-45}'};

# The answers, and those of one server in the order (score descending, table,
# rank there)
sub answers
{
	my ($k, $measure, $min_score, $column) = @_;
	my $queries = 'ARRAY[' . $positive . ($measure eq 'jaccard' ? '' : $signed) . ']::idvec[]';
	my $arguments = "'$column', $queries, $k, '$measure', $min_score";

	return (qq{SELECT md5(string_agg(concat_ws(' ', t.query, t.rank, t.score, t.common, (t.item).id, (t.item).tags, (t.item).terms), ',' ORDER BY t.query, t.rank)), count(*)
			FROM gpuvec_vec_topk_batch_rows(NULL::docs, $arguments) t},
		qq{SELECT md5(string_agg(concat_ws(' ', query, rank, score, common, id, tags, terms), ',' ORDER BY query, rank)), count(*)
			FROM (SELECT t.query, t.score, t.common, (t.item).*, row_number() OVER (PARTITION BY t.query ORDER BY t.score DESC, format('docs_%s', (t.item).id % 3)::regclass::oid, (t.item).id) AS rank
			FROM gpuvec_vec_topk_batch_rows(NULL::flat, '$column', $queries, 100000, '$measure', $min_score) t) x WHERE rank <= coalesce($k, 100000)});
}

foreach my $measure (qw(inner_product cosine jaccard))
{
	foreach my $least ('NULL', 0, '5e-324', 0.3, $measure eq 'inner_product' ? -1.5 : -0.25, q{'-Infinity'})
	{
		foreach my $k (1, 20, 200, $least eq 'NULL' ? 100000 : 'NULL')
		{
			foreach my $column ($k eq '20' && $measure ne 'jaccard' ? qw(tags terms) : 'tags')
			{
				my ($servers, $one) = answers($k, $measure, $least, $column);
				my $found = result($servers);

				is($found, result($one), "$column: $measure, k = $k, min_score = $least");
				like($found, qr/\|[1-9]/, "$column: $measure, k = $k, min_score = $least: there are some");
			}
		}
	}
}
is(result(q{SELECT count(*) FROM gpuvec_vec_topk_rows(NULL::docs, 'tags', NULL, 10)}), '0', 'a null query');
is(result(q{SELECT count(*) FROM gpuvec_vec_topk_rows(NULL::docs, 'tags', '{3:-1}', 10)}), '0', 'rows with negative scores do not rank');
is(result(q{SELECT string_agg((t.item).id || ' ' || t.score, ',' ORDER BY t.rank) FROM gpuvec_vec_topk_rows(NULL::docs_1, 'tags', '{7000:0.5,7004:1.5}', 2) t}),
	result(q{SELECT string_agg(id || ' ' || s, ',' ORDER BY s DESC, id) FROM (SELECT id, idset_inner_product(tags, '{7000:0.5,7004:1.5}') AS s FROM flat WHERE id % 3 = 1 ORDER BY s DESC NULLS LAST, id LIMIT 2) x}), 'a foreign table by its name');

# ---- refusals ----

like(result(q{SELECT gpuvec_vec_topk('docs', 'tags', '{1:1}')}), qr/cannot search relation "docs_1" .* HINT: gpuvec_vec_topk_rows and gpuvec_vec_topk_batch_rows search it./, 'tids are of one server');
like(result(q{SELECT gpuvec_vec_topk_rows(NULL::docs, 'tags', '{1:1}', among => '{"(0,1)"}')}), qr/cannot search among given rows of "docs", which are on other servers/, 'among');
like(result(q{SELECT gpuvec_vec_topk_rows(NULL::docs, 'tags', '{1:-1}', measure => 'jaccard')}), qr/ERROR: Jaccard's similarity is not defined for vectors with negative values/, 'jaccard with a negative weight');

like(result(q{SELECT gpuvec_vec_topk_rows(NULL::docs, 'terms', '{60000:1}', measure => 'jaccard')}), qr/ERROR: Jaccard's similarity is not defined for vectors with negative values/, 'jaccard of rows with negative values');
like(result(q{SELECT gpuvec_vec_topk_rows(NULL::docs_2, 'terms', '{60000:1}', measure => 'jaccard')}), qr/ERROR: Jaccard's similarity is not defined for vectors with negative values .*on server "s2"/, 'and on a server');
like(result(q{SELECT gpuvec_topk_rows(NULL::docs, 'terms', '{1}')}), qr/column "terms" of relation "docs" is of type idvec, not idset HINT: gpuvec_vec_topk searches it/, 'vectors by sets');
is(result(q{SELECT gpuvec_prewarm('docs', 'terms') = count(terms) FROM flat}), 't', 'all servers load their vectors');
$node{s1}->safe_psql('postgres', 'DROP INDEX docs_terms_idx; ALTER TABLE docs ALTER terms TYPE text');
like(result(q{SELECT problem, hint FROM gpuvec_check_foreign('docs_1') WHERE problem LIKE '%terms%'}), qr/^The server's column terms is of type text.\|Make it a column of type idvec there.$/, 'the check: another type');

# ---- servers that lack the function, or lie ----

# known to have the function of sets, which says nothing of the other one
$node{s2}->safe_psql('postgres', 'CREATE DATABASE fake');
$node{s2}->safe_psql('fake', q{CREATE EXTENSION gpuvec; CREATE TABLE docs ("Set" idset, terms idvec, id int); INSERT INTO docs VALUES ('{8000}', '{8000:2}', -1);
	ALTER EXTENSION gpuvec DROP FUNCTION gpuvec_vec_topk_batch_rows(anyelement, name, idvec[], int8, text, float8, tid[]);
	DROP FUNCTION gpuvec_vec_topk_batch_rows(anyelement, name, idvec[], int8, text, float8, tid[])});
$main->safe_psql('postgres', q{ALTER SERVER s2 OPTIONS (SET dbname 'fake')});
my $sets = q{SELECT (t.item).id FROM gpuvec_topk_rows(NULL::docs, 'tags', '{8000}', 3) t};
my $best = q{SELECT (t.item).id, t.score FROM gpuvec_vec_topk_rows(NULL::docs, 'tags', '{8000:0.5}', 3) t};
my $older = qr/ERROR: gpuvec [0-9.]+ on server "s2" has no function gpuvec_vec_topk_batch_rows HINT: Install a later version there, and run ALTER EXTENSION gpuvec UPDATE./;
like(result($best), $older, 'an older version');
my $session = $main->background_psql('postgres', on_error_stop => 0);
is(ask($session, $sets), '-1', 'searches by sets go on');
$session->query($best);
like($session->{stderr} =~ s/\s+/ /gr, $older, 'one session by sets, then by vectors');
$session->{stderr} = '';
$node{s2}->safe_psql('fake', 'DROP EXTENSION gpuvec CASCADE; CREATE EXTENSION gpuvec; ALTER TABLE docs ADD "Set" idset, ADD terms idvec; UPDATE docs SET "Set" = \'{8000}\'');
is(ask($session, $best), '-1|0.5', 'once it has the function, the session calls it');
is(ask($session, $sets), '-1', 'and that of sets');
$session->quit;

sub fake
{
	my ($body) = @_;

	$node{s2}->safe_psql('fake', qq{DROP FUNCTION IF EXISTS gpuvec_vec_topk_batch_rows;
		CREATE FUNCTION gpuvec_vec_topk_batch_rows(public.docs, name, idvec[], int8, text, float8) RETURNS TABLE (query int, rank int, item public.docs, score float8, common int) LANGUAGE sql AS \$\$ $body \$\$});
	return;
}
$node{s2}->safe_psql('fake', 'ALTER EXTENSION gpuvec DROP FUNCTION gpuvec_vec_topk_batch_rows(anyelement, name, idvec[], int8, text, float8, tid[])');
my $row = q{ROW(1, '{1,2}', NULL)::public.docs};
foreach my $lie (
	[ "SELECT 1, 1, $row, 0::float8, 0", 'The row of rank 1 has score 0.', 'a row that does not rank' ],
	[ "SELECT 1, 1, $row, -0.5::float8, 1", 'The row of rank 1 has score -0.5.', 'a negative score' ],
	[ "SELECT 1, 1, $row, 'NaN'::float8, 1", 'The row of rank 1 has score NaN.', 'a score that is not a number' ],
	[ "SELECT 1, 1, $row, 'Infinity'::float8, 2", 'The row of rank 1 has 2 common ids and score Infinity, not its set', 'an infinite score' ],
	[ "SELECT 1, 1, $row, 1.5::float8, 2", 'The row of rank 1 has 2 common ids and score 1.5, not its set', 'another score than the set has' ],
	[ "SELECT 1, 1, $row, 0.75::float8, 1", 'The row of rank 1 has 1 common ids and score 0.75, not its set', 'another number of common ids' ])
{
	my ($body, $error, $name) = @$lie;

	fake($body);
	like(result(q{SELECT count(*) FROM gpuvec_vec_topk_rows(NULL::docs_2, 'tags', '{1:0.5,2:0.25}', 3)}),
		qr/ERROR: server "s2" returned a wrong answer DETAIL: (?:$error).* HINT: .*gpuvec_vec_topk_batch_rows is/, "a lie: $name");
}
fake("SELECT 1, 1, $row, 0.75::float8, 2");
is(result(q{SELECT t.score FROM gpuvec_vec_topk_rows(NULL::docs_2, 'tags', '{1:0.5,2:0.25}', 3) t}), '0.75', 'the truth');
# what is asked for
fake('SELECT 1 / ((format(\'%s %s %s %s %s\', $2, $3, $4, $5, $6) = \'Set {"{1:0.5,3:-1e-45}"} 7 cosine 5e-324\')::int), 1, NULL::public.docs, 0.5::float8, 1 LIMIT 0');
is(result(q{SELECT count(*) FROM gpuvec_vec_topk_rows(NULL::docs_2, 'tags', '{1:0.5,3:-1e-45}', 7, 'cosine')}), '0', 'the least score is told');

$_->stop for $main, values %node;
done_testing();
