# What tests of random histories and of many sessions have in common: sets, and comparisons in SQL.
package GpuvecHistories;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT = qw(compare_sql of_vectors random_order random_set random_set_sql random_vector_order twice);

# A function for SQL: the rows of tab where cond holds, in the order of a distance, from an index and from a sequential scan
sub compare_sql
{
	return q{
	-- The index scan and a sequential scan with a sort: the same rows at the same distances
	CREATE FUNCTION compare(tab text, expr text, cond text, op text, q text, k int) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
		query text := quote_literal(q) || CASE WHEN q LIKE '%:%' OR expr LIKE '%terms%' THEN '::idvec' ELSE '::idset' END;
		sql text := format('SELECT array_agg(id ORDER BY d, id), array_agg(d ORDER BY d, id) FROM (SELECT id, %s %s %s AS d FROM %s WHERE %s ORDER BY %1$s %2$s %3$s ', expr, op, query, tab, cond);
		plan text;
		all_ids int[]; all_distances float8[]; ids int[]; distances float8[];
	BEGIN
		SET LOCAL enable_indexscan = off;
		SET LOCAL enable_bitmapscan = off;
		SET LOCAL enable_seqscan = on;
		SET LOCAL enable_sort = on;
		EXECUTE sql || ') x' INTO all_ids, all_distances;
		SET LOCAL enable_indexscan = on;
		SET LOCAL enable_seqscan = off;
		SET LOCAL enable_sort = off;
		EXECUTE 'EXPLAIN (FORMAT JSON) ' || sql || ') x' INTO plan;
		IF plan NOT LIKE '%"Order By"%' THEN RETURN 'not by the index'; END IF;
		EXECUTE sql || format('LIMIT %s) x', k) INTO ids, distances;
		IF distances IS DISTINCT FROM nullif(all_distances[:k], '{}') THEN RETURN 'other distances'; END IF;
		IF EXISTS (SELECT FROM unnest(ids, distances) AS r (i, d) WHERE d IS DISTINCT FROM all_distances[array_position(all_ids, i)]) THEN RETURN 'a row with another distance'; END IF;
		IF (SELECT count(DISTINCT i) FROM unnest(ids) i) <> coalesce(cardinality(ids), 0) THEN RETURN 'a row twice'; END IF;
		EXECUTE sql || ') x' INTO ids, distances;
		IF ids IS DISTINCT FROM all_ids OR distances IS DISTINCT FROM all_distances THEN RETURN 'other rows of all'; END IF;
		EXECUTE format('SELECT array_agg(id ORDER BY id) FROM %s WHERE %s', tab, cond) INTO ids;
		IF ids IS DISTINCT FROM (SELECT array_agg(i ORDER BY i) FROM unnest(all_ids) i) THEN RETURN 'other rows without an order'; END IF;
		RETURN 'same';
	END $$;
	};
}

# A function for SQL: sets of which many have common ids, some empty, some null
sub random_set_sql
{
	return q{
	CREATE FUNCTION random_set(n int) RETURNS idset LANGUAGE sql VOLATILE AS $$
		SELECT CASE WHEN random() < 0.05 THEN NULL WHEN random() < 0.03 THEN '{}' ELSE
			(SELECT array_agg((CASE WHEN random() < 0.8 THEN random() * 40 ELSE random() * 65535 END)::int) FROM generate_series(0, (random() * n)::int))::idset END $$;
	};
}

# A set of at most so many ids
sub random_set
{
	my ($most) = @_;
	return '{' . join(',', map { int(rand(3)) ? int(rand(30)) : int(rand(65536)) } 1 .. int(rand($most + 1))) . '}';
}

# For compare(): an operator, and what it orders by: a set, or weights of both
# signs, whose sums tie and cancel
sub random_order
{
	my ($most) = @_;
	my ($set) = random_set($most) =~ /^\{(.*)\}$/;
	my %weights = map { $_ => (-2, -1, -0.5, 0.5, 1, 1, 2, 0.3)[rand 8] } split /,/, $set;

	return "'" . ('<->', '<%>', '<=>', '<#>', '<~>')[rand 5] . "', '{$set}'" if int(rand(3)) || !%weights;
	return "'<#>', '{" . join(',', map { "$_:$weights{$_}" } sort { $a <=> $b } keys %weights) . "}'";
}

# For compare() of vectors: one of these operators, and a vector of ids with
# some of these values
sub random_vector_order
{
	my ($most, $operators, @values) = @_;

	return "'$operators->[rand @$operators]', '" . with_values(random_set($most), @values) . "'";
}

# The vector of a set's ids: each has one of these values
sub with_values
{
	my ($set, @values) = @_;
	my %value_of = map { $_ => $values[rand @values] } $set =~ /[0-9]+/g;

	return '{' . join(',', map { "$_:$value_of{$_}" } sort { $a <=> $b } keys %value_of) . '}';
}

# A statement for docs, as one for vecs, which has vectors in the place of sets
sub of_vectors
{
	my ($sql, @values) = @_;

	$sql =~ s/docs/vecs/g;
	$sql =~ s/tokens/terms/g;
	$sql =~ s/'(\{[0-9,]*\})'/"'" . with_values($1, @values) . "'"/ge;
	return "$sql;";
}

# A statement for docs, and the same for words, which has lists in the place of sets
sub twice
{
	my ($sql) = @_;
	(my $other = $sql) =~ s/docs/words/g;
	$other =~ s/tokens/list/g;
	return "$sql; $other;";
}

1;
