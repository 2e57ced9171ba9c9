# Searches that the engine runs in batches with those of other sessions: each has the rows that it would have alone.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $sessions = 6;

$ENV{GPUVEC_ENGINE_FAULT} = "together:$sessions";
my $node = new_node('main', conf => "gpuvec.verify = off\n");
$node->safe_psql('postgres', q{
	CREATE TABLE docs (id int, tokens idset, tenant int);
	INSERT INTO docs SELECT i, CASE WHEN i % 3 = 0 THEN ARRAY[7, 100 + i % 1000] ELSE ARRAY[200 + i % 1000, 5000 + i % 77] END, i % 100 FROM generate_series(1, 20000) i;
	CREATE INDEX docs_tokens ON docs USING gpuvec (tokens, tenant);
	VACUUM ANALYZE docs;});

# %s is a number of the session: a tenant, and an id
my %forms = (
	'all rows of a tenant, in order' => q{SELECT id, tokens <-> '[7,1%1$02d]' AS d FROM docs WHERE tenant = %1$s ORDER BY tokens <-> '[7,1%1$02d]' OFFSET 0},
	'the first rows of a tenant' => q{SELECT tokens <-> '[7,1%1$02d]' AS d FROM docs WHERE tenant = %1$s ORDER BY tokens <-> '[7,1%1$02d]' LIMIT 150},
	'the first rows of several' => q{SELECT tokens <=> '[7,1%1$02d]' AS d FROM docs WHERE tenant = ANY ('{1,2,%1$s}') ORDER BY tokens <=> '[7,1%1$02d]' LIMIT 500},
	'the first rows of all' => q{SELECT tokens <-> '[7,1%1$02d]' AS d FROM docs ORDER BY tokens <-> '[7,1%1$02d]' LIMIT 100},
	'rows with an id' => q{SELECT id FROM docs WHERE tokens && '[1%1$02d]'},
	'rows with an id, of a tenant' => q{SELECT id FROM docs WHERE tokens && '[7,1%1$02d]' AND tenant < %1$s},
	'rows of a threshold' => q{SELECT id FROM docs WHERE tokens <<->> ('[7,1%1$02d]', 0.4, 'jaccard')},
	'a function' => q{SELECT score FROM gpuvec_topk('docs', 'tokens', '[7,1%1$02d]', 60)});

# What a session finds: how many rows, how many different ones, and which
sub found
{
	my ($form, $n) = @_;
	return 'SELECT count(*), count(DISTINCT x), md5(string_agg(x::text, chr(32) ORDER BY x)) FROM (' . sprintf($forms{$form}, $n) . ') x';
}

my $by_index = 'SET enable_seqscan = off; SET enable_sort = off; SET enable_bitmapscan = off; ';

$node->safe_psql('postgres', $by_index . found('the first rows of all', 1));
for my $form (sort keys %forms)
{
	my @expected = map { $node->safe_psql('postgres', 'SET enable_indexscan = off; SET enable_bitmapscan = off; ' . found($form, $_)) } 1 .. $sessions;
	my $before = $node->safe_psql('postgres', 'SELECT requests - batches FROM gpuvec_engine');
	my @runs = map { start_psql($node, $by_index . found($form, $_)) } 1 .. $sessions;

	is(finish_psql($runs[$_]), $expected[$_], "$form, in a batch") for 0 .. $#runs;
	cmp_ok($node->safe_psql('postgres', 'SELECT requests - batches FROM gpuvec_engine'), '>', $before, "$form: there was a batch");
}

# and each is told how its own queries were searched
for my $form (q{gpuvec_topk('docs', 'tokens', '[7,1%02d]', 60)}, q{gpuvec_topk_batch('docs', 'tokens', ARRAY['[7,1%1$02d]', '[7]', '[1%1$02d]']::idset[], 60)})
{
	my $queries = $form =~ /batch/ ? 3 : 1;
	my $before = $node->safe_psql('postgres', 'SELECT requests - batches FROM gpuvec_engine');
	my @runs = map { start_psql($node, 'EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) SELECT * FROM ' . sprintf($form, $_)) } 1 .. $sessions;

	for (@runs)
	{
		my ($methods) = finish_psql($_) =~ /Methods: (.*)/;
		my $sum = 0;

		$sum += $_ for ($methods // '') =~ /(\d+)/g;
		is($sum, $queries, "methods of $queries queries in a batch");
	}
	cmp_ok($node->safe_psql('postgres', 'SELECT requests - batches FROM gpuvec_engine'), '>', $before, 'there was a batch');
}
$node->stop;
done_testing();
