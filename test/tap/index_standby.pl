# Index scans on a standby, and after its promotion.  The primary drops and creates indexes
# without regard to the snapshots of a standby: rule D4.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary', streaming => 1);
$primary->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'b', has_streaming => 1);
$standby->append_conf('postgresql.conf',
	"max_standby_streaming_delay = -1\nhot_standby_feedback = on\nwal_receiver_status_interval = 1s\nshared_preload_libraries = 'gpuvec'\n");
$standby->start;

my @operators = ('<->', '<%>', '<=>', '<#>', '<~>');
my $by_index = 'SET enable_seqscan = off; SET enable_sort = off; SET enable_bitmapscan = off; SET enable_indexscan = on';
my $by_bitmap = 'SET enable_seqscan = off; SET enable_sort = on; SET enable_bitmapscan = on; SET enable_indexscan = off';
my $by_scan = 'SET enable_seqscan = on; SET enable_sort = on; SET enable_bitmapscan = off; SET enable_indexscan = off';

sub caught_up { $primary->wait_for_catchup($standby, 'replay'); return; }

# The lines of an answer, in the order of their numbers
sub sorted { my ($lines) = @_; return join(' ', sort { $a <=> $b } split /\n/, $lines); }

# A query in a session gives the same rows by every kind of plan; the plan of each has to be so
sub same_rows
{
	my ($session, $sql, $name, $index) = @_;
	my $expected = sorted(ask($session, "$by_scan;\n$sql"));

	for (['an index scan', $by_index, "Index Scan using $index"], ['a bitmap scan', $by_bitmap, "Bitmap Index Scan on $index"])
	{
		my ($kind, $set, $plan) = @$_;

		next if $plan =~ /Bitmap/ && $sql =~ /ORDER BY/;
		like(ask($session, "$set;\nEXPLAIN (COSTS OFF) $sql"), qr/$plan/, "$name: the plan is $kind");
		is(sorted(ask($session, $sql)), $expected, "$name: $kind");
	}
	return;
}

# The function, too
sub same_topk
{
	my ($session, $table, $query, $name) = @_;
	my $sql = "SELECT d.id FROM gpuvec_topk('$table', 's', '$query', 100000) t JOIN $table d ON d.ctid = t.tid";

	is(sorted(ask($session, "SET enable_seqscan = on; SET enable_sort = on;\n$sql")),
		sorted(ask($session, "$by_scan;\nSELECT id FROM $table WHERE s && '$query'")), "$name: gpuvec_topk");
	return;
}

# Rows of equal distance come in the order of their roots, as on the primary.  Here many on
# each page do, most of them not in the place of their root, and batches end among them.
$primary->safe_psql('postgres', q{
	CREATE TABLE docs (id int, note int, s idset, v idvec GENERATED ALWAYS AS (s::idvec * (1 + id % 3 / 2.0::float8)) STORED) WITH (fillfactor = 40);
	INSERT INTO docs (id, note, s) SELECT i, 0, CASE WHEN i % 50 = 0 THEN NULL ELSE ARRAY[i % 5, 10 + i % 3, 20 + i % 2, 30 + i / 400]::idset END FROM generate_series(1, 4000) i;
	CREATE INDEX docs_s ON docs USING gpuvec (s);
	CREATE INDEX docs_v ON docs USING gpuvec (v);
	ANALYZE docs;
	UPDATE docs SET note = 1 WHERE id % 3 = 1;
	UPDATE docs SET note = 2 WHERE id % 4 = 1;
	UPDATE docs SET s = s | 7 WHERE id % 7 = 1;
	DELETE FROM docs WHERE id % 11 = 1;});
caught_up();

sub same_order
{
	my ($a, $b, $name) = @_;

	for my $distance ((map { "s $_ '{1,7,11,20,33}'" } @operators), (map { "s <&> ('{1,7,11,20,33}', '$_')" } 'overlap', 'cosine', 'tversky(0, 1)'), (map { "$_ '{1:0.5,3:-1,7:2,11:0.25,20:-0.5}'::idvec" } 's <#>', 'v <#>', 'v <=>'), "v <%> '{1:0.5,7:2,11:0.25,33:0.5}'")
	{
		for my $filter ('true', "s @> '{3}'", "s <<->> ('{1,11,20}', 0.9, 'jaccard')")
		{
			next if $distance =~ /^v/ && $filter ne 'true';
			my $sql = "SELECT id, s, v FROM docs WHERE $filter ORDER BY $distance";
			my ($first, $second) = map { $_->safe_psql('postgres', "$by_index; SELECT string_agg(id::text, ' ') FROM ($sql) x") } $a, $b;
			my $brute = $a->safe_psql('postgres', "$by_scan; SELECT string_agg(id::text, ' ') FROM ($sql) x");

			like($b->safe_psql('postgres', "$by_index; EXPLAIN $sql"), qr/Index Scan using docs_[sv]/, "$name: $distance, $filter: the plan");
			is($second, $first, "$name: $distance, $filter: the order");
			is(join(' ', sort split / /, $second), join(' ', sort split / /, $brute), "$name: $distance, $filter: the rows");
			my ($indexed, $sorted) = map { $b->safe_psql('postgres', "$_; SELECT string_agg(($distance)::text, ' ') FROM ($sql) x") } $by_index, $by_scan;
			is($indexed, $sorted, "$name: $distance, $filter: the distances");
		}
	}
	return;
}

same_order($primary, $standby, 'standby');
$primary->safe_psql('postgres', q{VACUUM docs; UPDATE docs SET note = 3 WHERE id % 5 = 1; INSERT INTO docs (id, note, s) SELECT i, 0, '{1,11,20}' FROM generate_series(5001, 5300) i});
caught_up();
same_order($primary, $standby, 'standby, changed');

# Functions and indexes use the same mirror there, and that is the one to be loaded after a restart
my $mirrors = q{SELECT string_agg(attnum || ' ' || state || ' ' || loads, ', ' ORDER BY attnum) FROM gpuvec_stat_mirrors() WHERE relation = 'docs'::regclass};
my $list = $standby->data_dir . '/gpuvec.autoprewarm';
my $oid = $standby->safe_psql('postgres', "SELECT 'docs'::regclass::oid");
is($standby->safe_psql('postgres', q{SELECT count(*) FROM gpuvec_topk('docs', 's', '{1}', 5)}), '5', 'a function');
is($standby->safe_psql('postgres', $mirrors), '3 ready 1, 4 ready 1', 'functions and indexes share a mirror');
wait_for(sub { -e $list && (() = slurp_file($list) =~ / $oid /g) == 2 }, 'the list of what is resident');
$standby->restart;
wait_for(sub { $standby->safe_psql('postgres', $mirrors) =~ /3 ready.*4 ready/ }, 'loads after the restart, of sets and of vectors');
like($standby->safe_psql('postgres', "$by_index; EXPLAIN (COSTS OFF) SELECT id FROM docs ORDER BY s <-> '{1}' LIMIT 1"), qr/Index Scan using docs_s/, 'the index is scanned');
is($standby->safe_psql('postgres', "$by_index; SELECT count(*) FROM (SELECT id FROM docs ORDER BY s <-> '{1}' LIMIT 1) x"), '1', 'one row');
is($standby->safe_psql('postgres', "$by_index; SELECT v <=> '{7:2,33:1}' = (SELECT min(v <=> '{7:2,33:1}') FROM docs) FROM docs ORDER BY v <=> '{7:2,33:1}' LIMIT 1"), 't', 'one row by its vector');
is($standby->safe_psql('postgres', $mirrors), '3 ready 1, 4 ready 1', 'it is the mirror that was loaded after the restart');

# The primary drops an index while cursors of a standby are open.  Between its phases, held
# by transactions, an update is not told to the index any more, and is HOT.
$primary->safe_psql('postgres', q{
	CREATE TABLE dropped (id int, s idset) WITH (fillfactor = 50);
	INSERT INTO dropped SELECT i, ARRAY[1, 2 + i % 300, 400 + i]::idset FROM generate_series(1, 3000) i;
	CREATE INDEX dropped_s ON dropped USING gpuvec (s);
	ANALYZE dropped;});
caught_up();
my $reader = $standby->background_psql('postgres');
ask($reader, "BEGIN ISOLATION LEVEL REPEATABLE READ; $by_index");
my %first;
for my $i (0 .. $#operators)
{
	ask($reader, "DECLARE c$i CURSOR FOR SELECT id FROM dropped ORDER BY s $operators[$i] '{1,5,7}'");
	$first{"c$i"} = ask($reader, "FETCH 10 FROM c$i");
}
# these begin after the change
ask($reader, q{DECLARE filtered CURSOR FOR SELECT id FROM dropped WHERE s && '{1}' ORDER BY s <-> '{1,5,7}'});
ask($reader, q{DECLARE found CURSOR FOR SELECT id FROM dropped WHERE s @> '{2622}'});
ask($reader, "$by_bitmap; DECLARE bits CURSOR FOR SELECT id FROM dropped WHERE s \@> '{2622}'");
my $xmin = ask($reader, 'SELECT pg_snapshot_xmin(pg_current_snapshot())');
$primary->poll_query_until('postgres', "SELECT backend_xmin::text = '$xmin' FROM pg_stat_replication")
	or die 'the primary does not learn of the snapshot';

my ($before, $between, $drop) = map { $primary->background_psql('postgres') } 1 .. 3;
ask($before, 'BEGIN; SELECT id FROM dropped LIMIT 1');
$drop->query_until(qr/started/, "\\echo started\nDROP INDEX CONCURRENTLY dropped_s;\n");
$primary->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'DROP INDEX%' AND wait_event_type = 'Lock'});
ask($between, 'BEGIN; SELECT id FROM dropped LIMIT 1');
ask($before, 'COMMIT');
$primary->poll_query_until('postgres', q{SELECT NOT indisready FROM pg_index WHERE indexrelid = 'dropped_s'::regclass});
is($primary->safe_psql('postgres', q{BEGIN; UPDATE dropped SET s = '{60000}' WHERE id = 2222;
	SELECT pg_stat_get_xact_tuples_hot_updated('dropped'::regclass); COMMIT}), '1', 'a HOT update changes the set');
caught_up();
my $all = join(' ', 1 .. 3000);
is(sorted("$first{$_}\n" . ask($reader, "FETCH ALL FROM $_")), $all, "index dropped: cursor $_ gives all rows") for sort keys %first;
is(sorted(ask($reader, 'FETCH ALL FROM filtered')), $all, 'index dropped: with a search key');
is(ask($reader, 'FETCH ALL FROM found'), '2222', 'index dropped: without an order');
is(ask($reader, 'FETCH ALL FROM bits'), '2222', 'index dropped: a bitmap scan');
same_topk($reader, 'dropped', '{1,5,7}', 'index dropped');
ask($reader, 'COMMIT');
ask($between, 'COMMIT');
$_->quit for $before, $between, $drop, $reader;
is($primary->safe_psql('postgres', q{SELECT count(*) FROM pg_class WHERE relname = 'dropped_s'}), '0', 'the index is gone');

# The primary creates an index that a snapshot of a standby is older than.  Without feedback
# the row that it sees is dead for the primary.
$standby->append_conf('postgresql.conf', 'hot_standby_feedback = off');
$standby->reload;
$primary->poll_query_until('postgres', 'SELECT backend_xmin IS NULL FROM pg_stat_replication') or die 'there still is feedback';
$primary->safe_psql('postgres', q{
	CREATE TABLE created (id int, s idset) WITH (fillfactor = 30);
	INSERT INTO created SELECT i, ARRAY[1, 2 + i % 300, 400 + i]::idset FROM generate_series(1, 3000) i;
	ANALYZE created;});
caught_up();
$reader = $standby->background_psql('postgres');
ask($reader, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT id FROM created LIMIT 1');
$primary->safe_psql('postgres', q{UPDATE created SET s = '{60000}' WHERE id = 1822; CREATE INDEX created_s ON created USING gpuvec (s)});
is($primary->safe_psql('postgres', q{SELECT indcheckxmin FROM pg_index WHERE indexrelid = 'created_s'::regclass}), 'f', 'older snapshots may use the index');
caught_up();

sub old_snapshot
{
	my ($name) = @_;

	same_topk($reader, 'created', '{1,5,2222}', $name);
	same_rows($reader, "SELECT id FROM created WHERE s $_", "$name: $_", 'created_s')
		for "@> '{2222}'", "&& '{2222,2223}'", "= '{1,24,2222}'", "<@ '{1,24,25,2222,2223}'", "<<->> ('{1,24,2222}', 0.5, 'dice')";
	same_rows($reader, "SELECT id FROM created ORDER BY s $_ '{1,5,2222}'", "$name: order by $_", 'created_s') for @operators;
	return;
}

old_snapshot('index created');

# That snapshot lives on when the standby is promoted, and so do its cursors
ask($reader, "$by_index");
for my $i (0 .. $#operators)
{
	ask($reader, "DECLARE p$i CURSOR FOR SELECT id FROM created ORDER BY s $operators[$i] '{1,5,2222}'");
	ask($reader, "FETCH 10 FROM p$i") if $i % 2;
}
$primary->stop;
$standby->promote;
old_snapshot('promoted');
$standby->safe_psql('postgres', q{
	UPDATE created SET s = '{1,5}' WHERE id % 100 = 1;
	DELETE FROM created WHERE id % 100 = 2;
	INSERT INTO created SELECT i, '{1,5,2222}' FROM generate_series(4001, 4100) i;
	VACUUM created;});
old_snapshot('promoted and changed');
# In PostgreSQL 13 the row that was dead for the primary is lost to all scans by a promotion
my $seen = ask($reader, "$by_scan; SELECT count(*) FROM created");
is($seen, $standby->pg_version < 14 ? 2999 : 3000, 'promoted: what a sequential scan sees');
for my $i (0 .. $#operators)
{
	ask($reader, "MOVE ABSOLUTE 0 FROM p$i") if !($i % 2);
	my $rest = sorted(ask($reader, "FETCH ALL FROM p$i"));
	is(scalar(split / /, $rest), $i % 2 ? 2990 : $seen, "promoted: cursor $operators[$i] gives all rows");
}

# what is new has the index's mirror, and sees what was changed since
my $new = $standby->background_psql('postgres');
($reader, my $old) = ($new, $reader);
old_snapshot('new snapshot');
is(ask($new, q{SELECT count(*) FROM gpuvec_topk('created', 's', '{1,5,2222}', 1000, 'jaccard', 1)}), '100', 'new snapshot: new rows');
ask($old, 'COMMIT');
old_snapshot('new snapshot alone');
$_->quit for $old, $new;
$standby->safe_psql('postgres', q{UPDATE docs SET note = 4 WHERE id % 6 = 1; INSERT INTO docs (id, note, s) VALUES (7001, 0, '{1,7,11,20,33}')});
same_order($standby, $standby, 'promoted');
$standby->stop;
done_testing();
