# Large answers beside WAL of other tables.  A mirror that follows an index
# and is behind more WAL than is read for it may be searched by the feed; but
# then each row is fetched.  Where that costs more, the mirror is refreshed,
# and the visibility map proves the rows.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => "gpuvec.verify = off\n");

$node->safe_psql('postgres', q{
	CREATE TABLE flat (id int, tokens idset);
	CREATE TABLE parts (id int, tokens idset) PARTITION BY HASH (id);
	SELECT format('CREATE TABLE parts_%s PARTITION OF parts FOR VALUES WITH (MODULUS 4, REMAINDER %1$s)', i) FROM generate_series(0, 3) i \gexec
	INSERT INTO flat SELECT i, ARRAY[1, 100 + i % 89]::idset FROM generate_series(1, 4000) i;
	INSERT INTO parts SELECT * FROM flat;
	CREATE INDEX ON flat USING gpuvec (tokens);
	CREATE INDEX ON parts USING gpuvec (tokens);
	VACUUM (FREEZE, ANALYZE) flat, parts;
	CREATE TABLE others (x text)});
my $session = $node->background_psql('postgres');

# What EXPLAIN says of a search for all rows, twice over
sub explained
{
	my ($table) = @_;

	return ask($session, qq{EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off)
		SELECT * FROM gpuvec_topk_batch('$table', 'tokens', '{"{1}","{1,101}"}', 4000)});
}

for my $table (qw(flat parts))
{
	explained($table) for 1 .. 2;
	unlike(explained($table), qr/Rows Not Proven/, "$table: all rows are proven");
	for my $round (1 .. 2)
	{
		# more than is read for a table of so few pages
		$node->safe_psql('postgres', q{INSERT INTO others SELECT repeat('x', 1000) FROM generate_series(1, 2000)});
		my $plan = explained($table);
		like($plan, qr/actual rows=8000/, "$table, round $round: all rows");
		unlike($plan, qr/Rows Not Proven/, "$table, round $round: still proven");
	}

	# what has changed is found all the same
	$node->safe_psql('postgres', "DELETE FROM $table WHERE id <= 10; INSERT INTO others SELECT repeat('x', 1000) FROM generate_series(1, 2000)");
	like(explained($table), qr/actual rows=7980/, "$table: rows that were deleted are not found");
}
$session->quit;
$node->stop;
done_testing();
