# An engine that takes no ids above 65,535, as one that cannot search them on its device: such queries, and tables
# with such rows, are scanned by the sessions themselves, each with one warning, and all else is as ever.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

$ENV{GPUVEC_ENGINE_FAULT} = 'narrow-ids';
my $node = new_node('main');
my $warning = qr/WARNING:  gpuvec searches without its engine\nDETAIL:  The engine cannot serve this: /;
my $refused = qr/${warning}ids above 65535 cannot be searched/;

make_docs($node, 5000, $_) for 'plain', 'fed';
$node->safe_psql('postgres', 'CREATE INDEX fed_tokens ON fed USING gpuvec (tokens)');

# Both tables, searched for in two ways in a new session: right, and with this warning, once, or with none
sub searched
{
	my ($name, $set, $expected, @queries) = @_;

	for my $table ('plain', 'fed')
	{
		my $list = join(',', map { "'$_'" } @queries);
		my $found = "SELECT string_agg(query || ' ' || tid || ' ' || score, ',' ORDER BY query, rank) FROM gpuvec_topk_batch('$table', 'tokens', ARRAY[$list]::idset[], 20, 'jaccard')";
		my $brute = "SELECT string_agg(n || ' ' || ctid || ' ' || s, ',' ORDER BY n, s DESC, ctid) FROM unnest(ARRAY[$list]::idset[]) WITH ORDINALITY q (q, n),
			LATERAL (SELECT ctid, jaccard_similarity(q, tokens) AS s FROM $table WHERE q && tokens ORDER BY 2 DESC, 1 LIMIT 20) x";
		my ($rc, $out, $err) = $node->psql('postgres', "$set; $found; $found");
		my $right = $node->safe_psql('postgres', $brute);

		is($out, "$right\n$right", "$name, $table: right rows");
		next if !defined $expected;
		like($err, $expected, "$name, $table: what is said") if $expected;
		is(scalar(() = $err =~ /WARNING|ERROR/g), $expected ? 1 : 0, "$name, $table: how often") or diag($err);
	}
	return;
}

my $narrow = '{1,50,101,150,201,250,301,350,401}';
my $wide = '{1,50,101,150,201,250,301,350,401,70000,4294967295}';
my $none = 'SELECT';
searched('narrow', $none, 0, $narrow, '{1}');
my $engine = engine_pid($node);
searched('a query', $none, $refused, $wide);
searched('a batch with such a query', $none, $refused, $narrow, $wide, '{1}');
searched('narrow again', $none, 0, $narrow);

# One such row, which the session reads itself, or is told by the index; then more than it lays over answers
for my $table ('plain', 'fed')
{
	$node->safe_psql('postgres', "INSERT INTO $table VALUES (-1, '{1,50,101,70000}')");
}
searched('a row', $none, undef, $narrow, '{1}');
$node->safe_psql('postgres', "INSERT INTO $_ SELECT -i, ARRAY[1, i, 70000 + i]::idset FROM generate_series(2, 30) i") for 'plain', 'fed';
searched('rows', 'SET gpuvec.ahead_rows = 0', $warning, $narrow, '{1}');
searched('rows, and a query', 'SET gpuvec.ahead_rows = 0', $warning, $narrow, $wide);
for my $table ('plain', 'fed')
{
	my ($rc, $out, $err) = $node->psql('postgres', "SELECT gpuvec_prewarm('$table', 'tokens')");
	like($err, qr/ERROR:  ids above 65535 cannot be searched/, "$table: cannot be loaded");
}
$node->safe_psql('postgres', 'SELECT gpuvec_evict_all()');
searched('evicted', $none, $warning, $narrow, '{1}');
my $scan = "SELECT array_agg(d) FROM (SELECT tokens <-> '$wide' AS d FROM fed ORDER BY tokens <-> '$wide' LIMIT 100) x";
my ($rc, $out, $err) = $node->psql('postgres', "SET enable_seqscan = off; SET enable_sort = off; $scan");
is($out, $node->safe_psql('postgres', "SET enable_indexscan = off; $scan"), 'an index scan');
is(scalar(() = $err =~ /$warning/g), 1, 'an index scan warns');

# Without these rows the engine has the tables again
$node->safe_psql('postgres', "DELETE FROM $_ WHERE id < 0") for 'plain', 'fed';
$node->safe_psql('postgres', "VACUUM $_") for 'plain', 'fed';
is($node->safe_psql('postgres', "SELECT gpuvec_prewarm('$_', 'tokens')"), 5000, "$_: loaded") for 'plain', 'fed';
searched('without these rows', $none, 0, $narrow, '{1}');
is(engine_pid($node), $engine, 'one engine has served all this');

$node->stop;
done_testing();
