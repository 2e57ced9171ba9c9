# Indexes with expressions and predicates, on vectors and arrays: crashes,
# standbys, prepared transactions, builds beside writers.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary', streaming => 1, conf => "max_prepared_transactions = 5\nautovacuum = off\n");
$primary->safe_psql('postgres', q{
	CREATE FUNCTION of_text(t text) RETURNS idset LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN t::public.idset; END $$;
	CREATE FUNCTION made(i int) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT format('{%s,%s,%s}', i % 31, i % 37 + 100, i % 41 + 200) $$;
	CREATE TABLE t (id int, body text, terms idvec GENERATED ALWAYS AS (of_text(body)::idvec * (1 + id % 3)::float8) STORED,
		tags text[] GENERATED ALWAYS AS (string_to_array(btrim(body, '{}'), ',')) STORED) WITH (fillfactor = 60);
	CREATE INDEX t_i ON t USING gpuvec (of_text(body));
	CREATE INDEX t_v ON t USING gpuvec (terms);
	CREATE INDEX t_a ON t USING gpuvec (tags);
	CREATE INDEX t_w ON t USING gpuvec ((of_text(body)::idvec * (0.5 + id % 2)));
	CREATE INDEX t_p ON t USING gpuvec (of_text(body)) WHERE id % 2 = 0;
	INSERT INTO t SELECT i, made(i) FROM generate_series(1, 3000) i;
	CREATE UNLOGGED TABLE u (id int, body text);
	CREATE INDEX u_i ON u USING gpuvec (of_text(body));
	CREATE INDEX u_c ON u USING gpuvec ((of_text(body) | 1::int8));
	INSERT INTO u SELECT id, body FROM t;});

# All rows, with their distances, by the index and by a sort
sub same
{
	my ($node, $table, $where, $what, $distance) = @_;
	$distance //= q{of_text(body) <-> '{5,105,205}'};
	my $sql = "SELECT count(*) || ' ' || coalesce(md5(string_agg(d::text || ' ' || id::text, ',' ORDER BY d, id)), '') FROM
		(SELECT id, $distance AS d FROM $table $where ORDER BY $distance) x";
	my $index = $node->safe_psql('postgres', "SET enable_seqscan = off; SET enable_sort = off; SET enable_bitmapscan = off; $sql");
	my $plan = $node->safe_psql('postgres', "SET enable_seqscan = off; SET enable_sort = off; SET enable_bitmapscan = off; EXPLAIN $sql");
	like($plan, qr/Index Scan using ${table}_/, "$what: by the index");
	is($index, $node->safe_psql('postgres', "SET enable_indexscan = off; SET enable_bitmapscan = off; $sql"), $what);
	return;
}

sub both
{
	my ($node, $what) = @_;
	same($node, 't', '', "$what: expression");
	same($node, 't', 'WHERE id % 2 = 0', "$what: partial");
	same($node, 't', '', "$what: arrays", q{tags <%> '{5,105,205}'});
	my $called = sub { "SELECT count(*) || ' ' || md5(string_agg(s::text || ' ' || c::text, ',' ORDER BY s, c)) FROM ($_[0]) x (c, s)" };
	is( $node->safe_psql('postgres', $called->(q{SELECT tid, score FROM gpuvec_topk('t', 't_p', '{5,105,205}', NULL, min_score => 0.1)})),
		$node->safe_psql('postgres', 'SET enable_indexscan = off; SET enable_bitmapscan = off; ' .
			$called->(q{SELECT ctid, braun_blanquet_similarity(of_text(body), '{5,105,205}') FROM t WHERE id % 2 = 0 AND of_text(body) && '{5,105,205}'})),
		"$what: a function by the name of a partial index");
	same($node, 't', '', "$what: vectors", q{terms <=> '{5:1,105:2,205:0.5}'});
	same($node, 't', '', "$what: vectors of an expression", q{of_text(body)::idvec * (0.5 + id % 2) <#> '{5:1,105:-2,205:0.5}'});
	return;
}

both($primary, 'primary');
$primary->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'b', has_streaming => 1);
$standby->start;

for my $round (1 .. 4)
{
	$primary->safe_psql('postgres', "DELETE FROM t WHERE id % 7 = $round;");
	$primary->safe_psql('postgres', 'VACUUM t') if $round % 2;
	$primary->safe_psql('postgres', "UPDATE t SET id = id + 1, body = made(id + $round) WHERE id % 11 = $round;
		INSERT INTO t SELECT i, made(i) FROM generate_series(${round}0000, ${round}0500) i;");
	both($primary, "round $round");
	$primary->wait_for_catchup($standby, 'replay');
	both($standby, "round $round, standby");
}

# a prepared transaction: its rows come with its commit
$primary->safe_psql('postgres', q{BEGIN; INSERT INTO t SELECT i, made(i) FROM generate_series(100000, 100300) i; PREPARE TRANSACTION 'p'});
both($primary, 'prepared');
$primary->safe_psql('postgres', q{COMMIT PREPARED 'p'});
both($primary, 'commit prepared');

# builds while a transaction that has inserted is open, and others insert
for my $build ('CREATE INDEX CONCURRENTLY t_new ON t USING gpuvec (of_text(body))', 'REINDEX INDEX CONCURRENTLY t_i')
{
	my $open = $primary->background_psql('postgres');
	ask($open, q{BEGIN; INSERT INTO t SELECT i, made(i) FROM generate_series(110000, 110100) i; SELECT 1});
	my $builder = $primary->background_psql('postgres');
	$builder->query_until(qr/begins/, "\\echo begins\n$build;\n\\echo done\n");
	ok($primary->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_stat_activity WHERE query ~ 'CONCURRENTLY' AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()}), 'the build waits');
	$primary->safe_psql('postgres', 'INSERT INTO t SELECT i, made(i) FROM generate_series(120000, 120100) i');
	ask($open, 'COMMIT; SELECT 1');
	$open->quit;
	$builder->quit;
	is($primary->safe_psql('postgres', 'SELECT count(*) FROM pg_index WHERE NOT indisvalid'), '0', "$build: valid");
	$primary->safe_psql('postgres', 'DROP INDEX t_i; ALTER INDEX t_new RENAME TO t_i') if $build =~ /^CREATE/;
	both($primary, $build);
}

# a crash: what was committed is in the index, and unlogged ones begin anew
same($primary, 'u', '', 'unlogged');
$primary->safe_psql('postgres', 'INSERT INTO t SELECT i, made(i) FROM generate_series(130000, 130100) i');
$primary->stop('immediate');
$primary->start;
both($primary, 'after the crash');
is($primary->safe_psql('postgres', 'SELECT count(*) FROM u'), '0', 'unlogged, after the crash: empty');
$primary->safe_psql('postgres', 'INSERT INTO u SELECT id, body FROM t');
same($primary, 'u', '', 'unlogged, after the crash');
$primary->safe_psql('postgres', 'VACUUM t');
both($primary, 'after the crash and a vacuum');

# promotion: the standby's unlogged tables begin with what WAL told of their indexes
$primary->wait_for_catchup($standby, 'replay');
$primary->stop;
$standby->promote;
both($standby, 'promoted');
$standby->safe_psql('postgres', 'DELETE FROM t WHERE id % 3 = 0; INSERT INTO t SELECT i, made(i) FROM generate_series(140000, 140100) i; INSERT INTO u SELECT id, body FROM t');
both($standby, 'promoted and changed');
same($standby, 'u', '', 'unlogged, promoted');
$standby->safe_psql('postgres', 'VACUUM t; INSERT INTO t SELECT i, made(i) FROM generate_series(150000, 150100) i');
both($standby, 'promoted and vacuumed');
$standby->stop;
done_testing();
