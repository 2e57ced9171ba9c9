# Searches of more partitions than the server has buffers: a function that
# holds a page of each would fail.  (A Merge Append does, whatever the index.)
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => "shared_buffers = '1MB'\nmax_locks_per_transaction = 1024\ngpuvec.verify = off\n");

# The map says nothing of these pages, so that rows are fetched
$node->safe_psql('postgres', q{
	CREATE TABLE parts (id int, tokens idset) PARTITION BY HASH (id);
	SELECT format('CREATE TABLE parts_%s PARTITION OF parts FOR VALUES WITH (MODULUS 200, REMAINDER %1$s)', i) FROM generate_series(0, 199) i \gexec
	INSERT INTO parts SELECT i, ARRAY[1, 100 + i % 89]::idset FROM generate_series(1, 4000) i;
	CREATE INDEX ON parts USING gpuvec (tokens);
	ANALYZE parts});
my %searches = (
	'one query' => q{SELECT count(*) FROM gpuvec_topk('parts', 'tokens', '{1}', 2000)},
	'several queries' => q{SELECT count(*) FROM gpuvec_topk_batch('parts', 'tokens', '{"{1}","{1,101}"}', 1000)});
my $session = $node->background_psql('postgres');
for my $name (sort keys %searches)
{
	# the first search may load, and ask for each partition by itself
	is(ask($session, $searches{$name}), 2000, "$name, $_") for 1 .. 3;
}
$session->quit;
$node->stop;
done_testing();
