# Several devices: rows are spread over them, and answers are those of one device.  The engine on the CPU
# pretends to be three devices, with small segments.  Then devices refuse memory, fail, and are lost.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $small = 'full-segment:64';
my $node;
{
	local $ENV{GPUVEC_ENGINE_FAULT} = $small;
	$node = new_node('main', conf => "gpuvec.engine = 'cpu'\ngpuvec.cpu_parts = 3\nautovacuum = off\n");
}
make_docs($node, 3000);

sub sql
{
	my ($query) = @_;
	return $node->safe_psql('postgres', $query);
}

# Rows of docs on each device, and whether these are all its rows
my $rows = q{SELECT string_agg(device || ':' || rows, ' ' ORDER BY device) FROM gpuvec_mirror_devices WHERE relation = 'docs'::regclass};

# Is this so of the rows on each of n devices: about as many on each, and all of the table's together?
sub spread
{
	my ($name, $n, $table) = @_;
	is(sql(qq{SELECT count(*) FILTER (WHERE rows > 0.6 * all_rows / $n) || ' ' || sum(rows)
			- (SELECT rows FROM gpuvec_mirrors WHERE relation = '$table'::regclass)
		FROM (SELECT rows, sum(rows) OVER () AS all_rows FROM gpuvec_mirror_devices WHERE relation = '$table'::regclass) x}),
		"$n 0", "$name: rows are spread over $n devices");
	return;
}

best($node, 'three devices');
spread('three devices', 3, 'docs');
is(sql(q{SELECT string_agg(concat_ws(' ', device, gpu, backend, segments > 10, rows > 500, searches > 0, queries > 0, busy > '0',
			errors, refused, memory_used > 1000, memory_used < memory_budget, trouble), ', ' ORDER BY device) FROM gpuvec_devices}),
	join(', ', map { "$_ cpu t t t t t 0 0 t t" } 0 .. 2), 'gpuvec_devices');
like(sql('SELECT device FROM gpuvec_engine'), qr/ and 2 more\z/, 'gpuvec_engine');
is(sql(q{SELECT sum(d.memory_budget) = max(e.memory_budget) FROM gpuvec_devices d, gpuvec_engine e}), 't', 'budgets add up');

# changes of rows, merges, and what vacuum leaves
for my $round (1 .. 6)
{
	sql(qq{
		UPDATE docs SET tokens = tokens | (id % 90)::bigint WHERE id % 7 = $round;
		DELETE FROM docs WHERE id % 50 = $round;
		INSERT INTO docs SELECT i, ARRAY[i % 97, i % 89 + 100, i % 83 + 200, $round]::idset FROM generate_series($round * 10000, $round * 10000 + 400) i;});
	sql('VACUUM docs') if $round % 3 == 0;
	best($node, "round $round");
}
spread('after changes', 3, 'docs');

# an index with a filter column, partitions, ids above 65535: all by plain SQL, too
sql(q{
	CREATE TABLE items (id int, price int, tokens idset);
	INSERT INTO items SELECT i, i % 50, CASE WHEN i % 100 > 0 THEN ARRAY[i % 11, 20 + i % 7, 40 + i % 5, 100 + i % 300]::idset END FROM generate_series(1, 6000) i;
	CREATE INDEX ON items USING gpuvec (tokens, price);
	CREATE TABLE wide (id int, tokens idset);
	INSERT INTO wide SELECT i, ARRAY[i % 11, 20 + i % 7, 70000 + i % 501, 1000000 + i]::idset FROM generate_series(1, 3000) i;
	CREATE TABLE parts (id int, tokens idset) PARTITION BY LIST (id);
	SELECT format('CREATE TABLE parts_%s PARTITION OF parts FOR VALUES IN (%1$s)', i) FROM generate_series(0, 3) i \gexec
	INSERT INTO parts SELECT i % 4, ARRAY[i % 11, 20 + i % 7, 40 + i % 5]::idset FROM generate_series(1, 2000) i;
	ANALYZE;});

# The distances of the nearest items that satisfy a condition, with an index or without
sub distances
{
	my ($condition, $limit, $by_index) = @_;
	my $off = $by_index ? 'SET enable_seqscan = off; SET enable_sort = off;' : 'SET enable_indexscan = off; SET enable_bitmapscan = off;';
	return sql(qq{$off SELECT string_agg(d::text, ' ') FROM (
		SELECT tokens <%> '{3,22,41,150}' AS d FROM items WHERE $condition ORDER BY tokens <%> '{3,22,41,150}' LIMIT $limit) x});
}
for my $condition ('price = 7', 'price BETWEEN 3 AND 40', 'price = 1 AND tokens @> 5', 'price > 48', 'price = 99')
{
	is(distances($condition, $_, 1), distances($condition, $_, 0), "the $_ nearest items where $condition") foreach 5, 1000;
}
for my $measure ('jaccard', 'hamming', 'cosine')
{
	my $score = $measure eq 'hamming' ? '0 - hamming_distance' : "${measure}_similarity";
	for my $table ('parts', 'wide')
	{
		my $query = $table eq 'wide' ? '{3,22,70044,1000044}' : '{3,22,41}';
		my $common = $measure eq 'hamming' ? 'true' : "tokens && '$query'";
		is( sql(qq{SELECT string_agg(concat_ws(' ', source, tid, score), ', ' ORDER BY rank) FROM gpuvec_topk('$table', 'tokens', '$query', 150, '$measure')}),
			sql(qq{SELECT string_agg(concat_ws(' ', source, ctid, s), ', ' ORDER BY s DESC, source, ctid) FROM (
				SELECT tableoid::regclass AS source, ctid, $score('$query', tokens)::float8 AS s FROM $table WHERE $common ORDER BY s DESC, tableoid, ctid LIMIT 150) x}),
			"$table by $measure");
	}
}
is( sql(q{SELECT sum(hashtext(query || ' ' || rank || tid || score)) FROM gpuvec_topk_batch('items', 'tokens', (SELECT array_agg(tokens ORDER BY id) FROM items WHERE id % 9 = 0), 12)}),
	sql(q{SET gpuvec.method = 'bitset'; SELECT sum(hashtext(n || ' ' || rank || ctid || s)) FROM (SELECT *, row_number() OVER (PARTITION BY n ORDER BY s DESC, ctid) AS rank FROM (
			SELECT q.n, d.ctid, braun_blanquet_similarity(q.tokens, d.tokens) AS s FROM (SELECT tokens, row_number() OVER (ORDER BY id) AS n FROM items WHERE id % 9 = 0) q, items d WHERE d.tokens && q.tokens) x) x WHERE rank <= 12}),
	'a batch of queries');
spread('with an index', 3, 'items');
my $expected = brute_force($node);

# another number of devices
$node->append_conf('postgresql.conf', 'gpuvec.cpu_parts = 5');
$node->reload;
wait_for(sub { sql('SELECT count(*) FROM gpuvec_devices') eq '5' }, 'five devices');
best($node, 'five devices');
spread('five devices', 5, 'docs');
$node->append_conf('postgresql.conf', 'gpuvec.cpu_parts = 3');
$node->stop;

# The host's memory as a device beside others, which have room for a part of the table only
{
	local $ENV{GPUVEC_ENGINE_FAULT} = $small;
	$node->append_conf('postgresql.conf', "gpuvec.cpu_parts = 2\ngpuvec.device_memory = 1MB\ngpuvec.host_memory = 0");
	$node->start;
	sql(q{CREATE TABLE large AS SELECT i AS id, (SELECT idset_agg((i::bigint * j * 31) % 5003) FROM generate_series(1, 40) j) AS tokens FROM generate_series(1, 15000) i});
	my $warned = qr/WARNING:  gpuvec searches without its engine/;
	like(best($node, 'too little memory', 'large'), $warned, 'too little memory: a warning');
	$node->append_conf('postgresql.conf', 'gpuvec.host_memory = 100MB');
	$node->reload;
	wait_for(sub { sql('SELECT count(*) FROM gpuvec_devices') eq '3' }, 'two devices and the host');
	is(best($node, 'with memory of the host', 'large'), '', 'with memory of the host: no warning');
	is(sql(q{SELECT string_agg(concat_ws(' ', d.device, d.memory_used <= d.memory_budget, p.rows > 500), ', ' ORDER BY d.device)
			FROM gpuvec_devices d JOIN gpuvec_mirror_devices p USING (device) WHERE relation = 'large'::regclass}), '0 t t, 1 t t, 2 t t', 'who has what');
	is(sql(q{SELECT sum(p.rows) = 15000 AND max(p.rows) FILTER (WHERE device = 2) > 7500 FROM gpuvec_mirror_devices p WHERE relation = 'large'::regclass}), 't', 'most rows are in the memory of the host');
	sql(q{UPDATE large SET tokens = tokens | 7::bigint WHERE id % 5 = 2; DELETE FROM large WHERE id % 3 = 1});
	is(best($node, 'changed, with memory of the host', 'large'), '', 'no warning');
	$node->append_conf('postgresql.conf', "gpuvec.cpu_parts = 3\ngpuvec.device_memory = 0\ngpuvec.host_memory = 0");
	$node->stop;
}

# a device without memory: at loads, at refreshes, at merges
{
	local $ENV{GPUVEC_ENGINE_FAULT} = "$small,part-full:1";
	$node->start;
	my $err = best($node, 'a device takes no rows');
	is($err, '', 'nobody is warned');
	sql(q{UPDATE docs SET tokens = tokens | 5::bigint WHERE id % 11 = 3});
	best($node, 'after a refresh');
	spread('a device takes no rows', 2, 'docs');
	is(sql('SELECT string_agg(device::text, $$ $$) FROM gpuvec_devices WHERE refused > 0'), '1', 'it has refused them');
	$node->stop;
}

# a device that cannot be used
{
	local $ENV{GPUVEC_ENGINE_FAULT} = "$small,part-gone:2";
	$node->start;
	best($node, 'a device is gone');
	spread('a device is gone', 2, 'docs');
	is(sql('SELECT string_agg(concat_ws($$ $$, device, trouble), $$, $$ ORDER BY device) FROM gpuvec_devices'), '0, 1, device 2 is gone', 'gpuvec_devices says so');
	$node->stop;
	like(slurp_file($node->logfile), qr/WARNING:  .*a device cannot be used: device 2 is gone/, 'so does the log');
}

# a device that has no memory for a search: others have its rows copied, and search them
{
	local $ENV{GPUVEC_ENGINE_FAULT} = "$small,part-search:1";
	$node->start;
	is(best($node, 'no memory for a search'), '', 'nobody is warned');
	sql(q{UPDATE docs SET tokens = tokens | 6::bigint WHERE id % 11 = 4});
	is(best($node, 'no memory for a search, after a refresh'), '', 'nobody is warned');
	is(sql('SELECT string_agg(device::text, $$ $$) FROM gpuvec_devices WHERE errors > 0'), '1', 'the errors are counted');
	is(sql('SELECT restarts FROM gpuvec_engine'), '0', 'the engine goes on');
	$node->stop;
}

# no device has: the session searches
{
	local $ENV{GPUVEC_ENGINE_FAULT} = "$small,part-search:-1";
	$node->start;
	like(best($node, 'no memory for any search'), qr/WARNING:  gpuvec searches without its engine\nDETAIL:  .*out of memory/, 'and a warning');
	is(sql('SELECT restarts FROM gpuvec_engine'), '0', 'the engine goes on');
	$node->stop;
}

# A device that is lost in a search: the engine starts again, without it; a probe finds it lost, and then
# in order: the engine starts again, with it.  The same for one that could not be used from the start.
SKIP:
{
	skip 'the engine is not staged', 1 unless $ENV{GPUVEC_ENGINE_PROGRAM};
	my $folder = PostgreSQL::Test::Utils::tempdir();
	my $count = sub { return -e "$folder/$_[0]" ? slurp_file("$folder/$_[0]") + 0 : 0 };

	append_to_file("$folder/engine", qq{#!/bin/sh
kind=starts
case "\$*" in *--probe*) kind=probes ;; esac
n=\$(cat "$folder/\$kind" 2>/dev/null || echo 0)
echo \$((n + 1)) >"$folder/\$kind"
echo "\$*" >>"$folder/arguments"
case \$kind\$n in starts0) fault=,part-lost:1,slow-end:1000 ;; starts3) fault=,part-gone:2 ;; probes0) fault=,part-gone:1 ;; *) fault= ;; esac
GPUVEC_ENGINE_FAULT=$small\$fault exec "$ENV{GPUVEC_ENGINE_PROGRAM}" "\$@"
});
	chmod(0755, $folder, "$folder/engine");
	$node->append_conf('postgresql.conf', "gpuvec.engine_program = '$folder/engine'\ngpuvec.device_retry = 1s");
	$node->start;
	my $err = best($node, 'a device is lost');
	is($err, '', 'the search was repeated');
	is(sql('SELECT restarts FROM gpuvec_engine'), '1', 'the engine was started again');
	spread('without the lost device', 2, 'docs');
	is(sql('SELECT string_agg(trouble, $$ $$) FROM gpuvec_devices WHERE trouble IS NOT NULL'), 'device 1 has failed: It is tried again later.', 'one device is left out');
	like(slurp_file("$folder/arguments"), qr/--without-devices 1/, 'by the supervisor');
	wait_for(sub { sql('SELECT count(device) FROM gpuvec_devices') eq '3' }, 'all devices');
	is($count->('probes'), 2, 'the second probe found it in order');
	best($node, 'the device is back');
	spread('the device is back', 3, 'docs');
	is($count->('starts'), 3, 'one start with it');

	kill('KILL', engine_pid($node));
	wait_for(sub { $count->('probes') == 3 }, 'a device that could not be used is probed');
	wait_for(sub { sql('SELECT count(device) FROM gpuvec_devices') eq '3' }, 'it is used again');
	best($node, 'all devices again');
	$node->stop;
	like(slurp_file($node->logfile), qr/restarting the gpuvec engine because a device can be used again/, 'the log says so');
}
done_testing();
