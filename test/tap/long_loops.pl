# Loops over what users give look whether they are canceled: at least so many looks for so many elements.
# (gpuvec.looks_left exists for tests: a look takes one off, and the last one cancels the statement.)
use strict;
use warnings;

use GpuvecTest;
use Test::More;

my $node = new_node('main');
$node->safe_psql('postgres', q{
	CREATE TABLE long_inputs AS SELECT array_agg((i % 1000)::int2 ORDER BY i) AS small, array_agg(i % 60000 ORDER BY i) AS narrow, array_agg(i % 50000 * 4000 ORDER BY i) AS wide,
		array_agg((i % 50000)::int8 * 80000 ORDER BY i) AS big, array_agg(i ORDER BY i) || NULL::int AS with_null, ARRAY[array_agg(i % 9 ORDER BY i)] AS rows FROM generate_series(0, 999999) i;
	CREATE TABLE long_keys AS SELECT array_agg((i::int8 * 7919 % 1000) ORDER BY i) AS keys, array_agg(CASE WHEN i < 299999 THEN (i::int8 * 7919 % 1000) END ORDER BY i) AS nulls,
		array_agg(1::float8) AS ones, array_agg(i::int8 ORDER BY i) AS upwards, array_agg(i::int8 * 7919 % 300000 ORDER BY i) AS mixed FROM generate_series(0, 299999) i;
	CREATE TABLE long_vectors (key bigint, embedding real[]) PARTITION BY RANGE (key);
	CREATE TABLE long_vectors_1 PARTITION OF long_vectors FOR VALUES FROM (0) TO (500);
	CREATE TABLE long_vectors_2 PARTITION OF long_vectors FOR VALUES FROM (500) TO (1000);
	INSERT INTO long_vectors SELECT i, ARRAY[i] FROM generate_series(0, 999) i;
	CREATE TABLE long_ragged AS SELECT i AS key, array_fill(1::real, ARRAY[i]) AS embedding FROM generate_series(1, 2) i;
	CREATE TABLE long_sets AS SELECT i AS id, ARRAY[i % 10]::idset AS s FROM generate_series(1, 100) i;
});

# 15 looks for each loop over 1,000,000 elements, 4 for 300,000,
# 46 for 3,000,000
for my $case (
	[15 * 3, q{SELECT small::idset FROM long_inputs}],
	[15 * 3, q{SELECT narrow::idset FROM long_inputs}],
	[15 * 11, q{SELECT wide::idset FROM long_inputs}],
	[15 * 11, q{SELECT big::idset FROM long_inputs}],
	[15, q{SELECT with_null::idset FROM long_inputs}],
	[15 * 3, q{SELECT rows::idset[] FROM long_inputs}],
	[15, q{SELECT idset_hash(narrow) FROM long_inputs}],
	[4, q{SELECT idset_hash(keys::text[]) FROM long_keys}],
	[30, q{SELECT idset_from_bytea(decode(repeat('00', 2000000), 'hex'))}],
	[15, q{SELECT repeat('0', 8000000)::varbit::idset}],
	[4, q{SELECT ('{' || repeat('7,', 300000) || '7}')::idset}],
	[15, q{SELECT ('{' || repeat(' ', 1000000) || '}')::idset}],
	[15, q{SELECT ('{' || repeat('0', 1000000) || '}')::idset}],
	[15, q{SELECT ('{' || repeat('x', 1000000) || '}')::idset}],
	[300000, q{SELECT to_jsonb(keys)::idset FROM long_keys}],
	[300000, q{SELECT to_json(keys)::idset FROM long_keys}],
	[4, q{SELECT idset_words('simple', repeat('a ', 300000))}],
	[15, q{SELECT idset_words('simple', repeat('a ', 1000000))}],
	[300004, q{SELECT idset_shingles(repeat('ab ', 300000), 3)}],
	[15, q{SELECT idset_shingles(repeat('a', 1000000), 3)}],
	[15, q{SELECT idset_shingles(repeat('-', 1000000), 3)}],
	[30, q{SELECT idset_trigrams(repeat('a', 1000000))}],
	[30, q{SELECT idset_trigrams(repeat('é', 1000000))}],
	[15, q{SELECT idset_trigrams(repeat(' ', 1000000))}],
	[15, q{SELECT idset_trigrams(repeat('a ', 1000000))}],
	[900000, q{SELECT ('{' || repeat('8:0,7:0,', 500000) || '9:1}')::idvec}],
	[15 * 2, q{SELECT ('{' || repeat('7:1,', 1000000) || 'x}')::idvec}],
	[15, q{SELECT ('{' || repeat(' ', 1000000) || '}')::idvec}],
	[15, q{SELECT ('{' || repeat('0', 1000000) || ':1}')::idvec}],
	[15, q{SELECT ('{1:1}/' || repeat('0', 1000000) || '1')::idvec}],
	[900000, q{SELECT idvec(big, narrow::real[]) FROM long_inputs}],
	[4 * 3, q{SELECT idvec(upwards, ones::real[]) FROM long_keys}],
	[300000, q{SELECT (SELECT jsonb_object_agg(k, 1) FROM unnest(upwards) k)::idvec FROM long_keys}],
	[300000, q{SELECT (SELECT json_object_agg(k, 1) FROM unnest(upwards) k)::idvec FROM long_keys}],
	[4, q{SELECT idvec_words('simple', repeat('a ', 300000))}],
	[300004, q{SELECT idvec_shingles(repeat('ab ', 300000), 3)}],
	[30, q{SELECT idvec_trigrams(repeat('a', 1000000))}],
	[900000, q{SELECT idvec_ngrams(repeat('a', 1000000), 3)}],
	[1000, q{SELECT gpuvec_pool('long_vectors', 'key', 'embedding', keys) FROM long_keys}],
	[1000, q{SELECT gpuvec_pool('long_vectors', 'key', 'embedding', keys, 'mean', ones) FROM long_keys}],
	[300000, q{SELECT gpuvec_pool('long_vectors', 'key', 'embedding', keys, 'concat') FROM long_keys}],
	[300000, q{SELECT count(*) FROM long_keys, gpuvec_pool_batch('long_vectors', 'key', 'embedding', keys, hotness => 1)}],
	[4 * 3, q{SELECT count(*) FROM long_keys, gpuvec_gather('long_vectors', 'key', 'embedding', nulls)}],
	[46 * 2, q{SELECT count(*) FROM gpuvec_gather('long_ragged', 'key', 'embedding', array_fill(NULL::int8, ARRAY[3000000]) || '{1,2}'::int8[])}],
	[1000, q{SELECT count(*) FROM long_keys, gpuvec_pool_grad('long_vectors', 'key', 'embedding', keys, '{1}')}],
	[300000, q{SELECT gpuvec_pool_grad_weights('long_vectors', 'key', 'embedding', keys, '{1}') FROM long_keys}],
	[1000, q{SELECT count(*) FROM long_keys, gpuvec_gradient_rows(keys, ones)}],
	[300000, q{SELECT count(*) FROM long_keys, gpuvec_nearest('long_vectors', 'key', 'embedding', '{1}', 3, exclude => mixed)}],
	[15, q{SELECT gpuvec_vector_axpy(2, narrow::real[], narrow::real[]) FROM long_inputs}],
	[15, q{SELECT gpuvec_vector_square(2, narrow::real[]) FROM long_inputs}],
	[15, q{SELECT gpuvec_sgd_step(narrow::real[], narrow::real[], 0.1, 1) FROM long_inputs}],
	[15, q{SELECT gpuvec_adagrad_step(narrow::real[], narrow::real[], NULL, narrow::real[], 0.1, 1e-8, 1) FROM long_inputs}],
	[15, q{SELECT gpuvec_adam_step(narrow::real[], narrow::real[], narrow::real[], 1, 0.1, 0.9, 0.999, 1e-8, 1) FROM long_inputs}],
	[300000, q{SELECT count(*) FROM gpuvec_topk('long_sets', 's', '{1}', 3, among => (SELECT array_agg(format('(%s,1)', mixed)::tid) FROM (SELECT unnest(mixed) AS mixed FROM long_keys) x))}])
{
	my ($looks, $statement) = @$case;
	my ($rc, $out, $err) = $node->psql('postgres', "SET gpuvec.looks_left = $looks; $statement");

	like($err, qr/ERROR:  canceling statement at a look of a long loop/, "$looks looks: $statement");
}
$node->stop;
done_testing();
