# gpuvec changes no expression that worked without it: not over core's types, not over those of the extensions that users have beside it.
#
# Thousands of expressions with the operators and functions that gpuvec adds are planned before and after CREATE EXTENSION, over columns of
# many types, literals, nulls and untyped parameters.  EXPLAIN VERBOSE shows how each was resolved.  Whatever was accepted before must be
# resolved the same afterwards.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $setup = <<'SQL';
SET client_min_messages = error;
CREATE TABLE cols (c_int2 int2, c_int4 int4, c_int8 int8, c_numeric numeric, c_float8 float8, c_text text, c_name name, c_varchar varchar, c_bytea bytea,
	c_bit bit(3), c_varbit varbit, c_bool bool, c_date date, c_time time, c_timestamp timestamp, c_timestamptz timestamptz, c_interval interval,
	c_point point, c_box box, c_circle circle, c_polygon polygon, c_lseg lseg, c_path path, c_line line, c_inet inet, c_macaddr macaddr, c_uuid uuid,
	c_json json, c_jsonb jsonb, c_tsvector tsvector, c_tsquery tsquery, c_oid oid, c_int2vector int2vector, c_oidvector oidvector, c_pg_lsn pg_lsn,
	c_money money, c_int4range int4range, c_int8range int8range, c_numrange numrange,
	c_int2_array int2[], c_int4_array int4[], c_int8_array int8[], c_text_array text[], c_float8_array float8[], c_oid_array oid[], c_numeric_array numeric[]);
-- types that came after PostgreSQL 13
SELECT format('ALTER TABLE cols ADD c_%1$s %1$s', t) FROM unnest(ARRAY['int4multirange', 'int8multirange']) t WHERE to_regtype(t) IS NOT NULL \gexec
CREATE TABLE operators (op text);
INSERT INTO operators VALUES ('='), ('<>'), ('<'), ('<='), ('>'), ('>='), ('&&'), ('@>'), ('<@'), ('&'), ('|'), ('-'), ('<->'), ('<%>'), ('<=>'), ('<#>'), ('<~>');
-- {70000} is an array but no set, so a captured literal shows
CREATE TABLE literals (lit text);
INSERT INTO literals VALUES ('''{70000}'''), ('''{1,2}'''), ('''[1,5)'''), ('''5'''), ('''(1,2)'''), ('''a'''), ('NULL'), ('5'), ('5::int8'), ('ARRAY[1,2]'), ('ARRAY[1,2]::int2[]');
CREATE TABLE expressions (expr text PRIMARY KEY, params int);
WITH col AS (SELECT attname::text AS c FROM pg_attribute WHERE attrelid = 'cols'::regclass AND attnum > 0),
	 pair AS (SELECT c FROM col WHERE c ~ 'int|oid|jsonb|bit|range|text|point|inet')
INSERT INTO expressions
SELECT format('%s %s %s', c, op, lit), 0 FROM col, operators, literals
UNION SELECT format('%s %s %s', lit, op, c), 0 FROM col, operators, literals
UNION SELECT format('%s %s %s', a.lit, op, b.lit), 0 FROM literals a, operators, literals b
UNION SELECT format('%s %s %s', a.c, op, b.c), 0 FROM pair a, operators, pair b
UNION SELECT format('%s %s $1', c, op), 1 FROM col, operators
UNION SELECT format('$1 %s %s', op, c), 1 FROM col, operators
UNION SELECT format('$1 %s %s', op, lit), 1 FROM operators, literals
UNION SELECT format('$1 %s $2', op), 2 FROM operators
UNION SELECT format('%s = ANY (%s)', lit, c), 0 FROM col, literals
UNION SELECT format('%s(%s)', f, x), 0 FROM unnest(ARRAY['cardinality', 'unnest']) f, (SELECT c FROM col UNION SELECT lit FROM literals) y(x)
UNION SELECT format('%s($1)', f), 1 FROM unnest(ARRAY['cardinality', 'unnest']) f;
SET plan_cache_mode = force_generic_plan;
CREATE FUNCTION resolved(expr text, params int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	result text := '';
	query text := format('SELECT %s FROM cols', expr);
BEGIN
	IF params > 0 THEN
		DEALLOCATE ALL;
		EXECUTE 'PREPARE probe AS ' || query;
		SELECT parameter_types::text INTO result FROM pg_prepared_statements WHERE name = 'probe';
		query := 'EXECUTE probe(' || CASE params WHEN 1 THEN 'NULL' ELSE 'NULL, NULL' END || ')';
	END IF;
	FOR line IN EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF) ' || query LOOP
		result := result || ' ' || trim(line);
	END LOOP;
	RETURN result;
EXCEPTION WHEN OTHERS THEN
	RETURN NULL;
END$$;
SQL

my $differences = q{SELECT count(*) FROM before b JOIN after a USING (expr) WHERE b.result IS NOT NULL AND a.result IS DISTINCT FROM b.result};
my $sample = q{SELECT expr, b.result, a.result FROM before b JOIN after a USING (expr) WHERE b.result IS NOT NULL AND a.result IS DISTINCT FROM b.result LIMIT 10};

my $node = new_node('main', started => 0);
$node->start;

# Plan everything, into a table
sub plan_all
{
	my ($db, $table) = @_;
	$node->safe_psql($db, "SET plan_cache_mode = force_generic_plan; DROP TABLE IF EXISTS $table;
		CREATE TABLE $table AS SELECT expr, resolved(expr, params) AS result FROM expressions");
	return;
}

# How many expressions does gpuvec change in a database with these extensions?
sub check_beside
{
	my ($db, @extensions) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $db TEMPLATE template0");
	$node->safe_psql($db, "CREATE EXTENSION $_ CASCADE") for @extensions;
	$node->safe_psql($db, $setup);
	plan_all($db, 'before');
	cmp_ok($node->safe_psql($db, 'SELECT count(*) FROM before WHERE result IS NOT NULL'), '>', 3000, "$db: enough expressions have a meaning");
	$node->safe_psql($db, 'CREATE EXTENSION gpuvec');
	plan_all($db, 'after');
	is($node->safe_psql($db, $differences), '0', "$db: all mean and plan what they did") or diag($node->safe_psql($db, $sample));
	is($node->safe_psql($db, q{SELECT '{1,2}'::idset && '{2}', '{1,2}'::idset & '{2}', '{1,2}'::idset | 3, '{1,2}'::idset - 2, '{1,2}'::idset <-> '{1,2}',
		'{1}'::idset <=> '{1}', '{1}'::idset @> 1, jaccard_similarity('{1,2}', '{1,2}'), cardinality('{7}'::idset)}), 't|{2}|{1,2,3}|{1}|0|0|t|1|1', "$db: sets have their operators");
	return;
}

check_beside('core');

# the check sees what it is there for: an implicit cast, and an operator with an array on one side
$node->safe_psql('core', 'UPDATE pg_cast SET castcontext = $$i$$ WHERE casttarget = $$idset$$::regtype');
plan_all('core', 'after');
cmp_ok($node->safe_psql('core', $differences), '>', 10, 'implicit casts would be seen');
$node->safe_psql('core', 'UPDATE pg_cast SET castcontext = $$a$$ WHERE casttarget = $$idset$$::regtype');
plan_all('core', 'after');
is($node->safe_psql('core', $differences), '0', 'and are seen to be gone');
$node->safe_psql('core', 'CREATE FUNCTION f(int4[], idset) RETURNS bool IMMUTABLE LANGUAGE sql AS $$SELECT true$$;
	CREATE OPERATOR && (LEFTARG = int4[], RIGHTARG = idset, FUNCTION = f)');
plan_all('core', 'after');
cmp_ok($node->safe_psql('core', $differences), '>', 0, 'an operator with an array on one side would be seen');

# Is an extension installed?  Any error but its absence is a failure.
sub installed
{
	my ($extension) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', "BEGIN; CREATE EXTENSION $extension; ROLLBACK");

	return 1 if $rc == 0;
	like($err, qr/is not available|could not open extension control file/, "$extension is missing or works");
	return 0;
}

my %packages = (intarray => 'postgresql-contrib', rum => 'postgresql-NN-rum', pg_similarity => 'postgresql-NN-similarity');
my @available;
for my $extension ('intarray', 'rum', 'pg_similarity')
{
  SKIP:
	{
		skip("$extension is not installed; it is in $packages{$extension}", 3) if !installed($extension);
		push @available, $extension;
		check_beside("beside_$extension", $extension);
	}
}
check_beside('beside_all', @available);

# either may come first
$node->safe_psql('postgres', 'CREATE DATABASE gpuvec_first TEMPLATE template0');
$node->safe_psql('gpuvec_first', 'SET client_min_messages = error; CREATE EXTENSION gpuvec');
for my $extension (@available)
{
	my ($rc, $out, $err) = $node->psql('gpuvec_first', "CREATE EXTENSION $extension");
	is($rc, 0, "$extension can come after gpuvec") or diag($err);
}
$node->stop;
done_testing();
