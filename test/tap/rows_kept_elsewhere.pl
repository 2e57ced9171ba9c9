# Tables whose rows other extensions keep elsewhere.  Neither Citus nor TimescaleDB is here:
# tables like their catalogs say what theirs would, about tables that we fill by hand.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
my $database;

# What a statement returns, or its error, on one line without line numbers
sub result
{
	my ($sql, %opts) = @_;
	my ($rc, $out, $err) = $node->psql($database, $sql, %opts);

	return $out if $rc == 0;
	$err =~ s/^(?:CONTEXT|LINE|LOCATION):.*\n|^psql:\S+ //mg;
	$err =~ s/\s+/ /g;
	$err =~ s/ $//;
	return $err;
}

# What a superuser does to the catalogs
sub fake
{
	my ($sql) = @_;
	return $node->safe_psql($database, "SET allow_system_table_mods = on; $sql");
}

# A database with gpuvec
sub make_database
{
	($database) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, 'CREATE EXTENSION gpuvec');
	return;
}

# All functions that read a table of sets, or of vectors
my %sets = (
	gpuvec_topk => q{SELECT count(*) FROM gpuvec_topk('TABLE', 'tokens', '{3}', 10)},
	gpuvec_topk_batch => q{SELECT count(*) FROM gpuvec_topk_batch('TABLE', 'tokens', ARRAY['{3}']::idset[], 10)},
	gpuvec_topk_rows => q{SELECT count(*) FROM gpuvec_topk_rows(NULL::TABLE, 'tokens', '{3}', 10)},
	gpuvec_topk_batch_rows => q{SELECT count(*) FROM gpuvec_topk_batch_rows(NULL::TABLE, 'tokens', ARRAY['{3}']::idset[], 10)},
	gpuvec_overlaps => q{SELECT count(*) FROM gpuvec_overlaps('TABLE', 'tokens', ARRAY['{3}']::idset[])},
	among => q{SELECT count(*) FROM gpuvec_topk('TABLE', 'tokens', '{3}', 10, among => ARRAY(SELECT ctid FROM ONLY TABLE))},
	gpuvec_prewarm => q{SELECT gpuvec_prewarm('TABLE', 'tokens')});
my %vectors = (
	gpuvec_gather => q{SELECT count(*) FROM gpuvec_gather('TABLE', 'id', 'v', '{1,2}')},
	gpuvec_gather_batch => q{SELECT count(*) FROM gpuvec_gather_batch('TABLE', 'id', 'v', '{1,2}', hotness => 1)},
	gpuvec_pool => q{SELECT gpuvec_pool('TABLE', 'id', 'v', '{1,2}')},
	gpuvec_pool_batch => q{SELECT count(*) FROM gpuvec_pool_batch('TABLE', 'id', 'v', '{1,2}', hotness => 1)},
	gpuvec_pool_agg => q{SELECT gpuvec_pool_agg('TABLE', 'id', 'v', k, 1, 'sum', 'zero') FROM generate_series(1, 2) k},
	gpuvec_pool_grad => q{SELECT count(*) FROM gpuvec_pool_grad('TABLE', 'id', 'v', '{1,2}', '{1,1}')},
	gpuvec_pool_grad_weights => q{SELECT gpuvec_pool_grad_weights('TABLE', 'id', 'v', '{1,2}', '{1,1}')},
	gpuvec_nearest => q{SELECT count(*) FROM gpuvec_nearest('TABLE', 'id', 'v', '{1,1}')},
	gpuvec_nearest_keys => q{SELECT count(*) FROM gpuvec_nearest_keys('TABLE', 'id', 'v')},
	gpuvec_nearest_batch => q{SELECT count(*) FROM gpuvec_nearest_batch('TABLE', 'id', 'v', '{{1,1}}')},
	gpuvec_prewarm_embedding => q{SELECT gpuvec_prewarm('TABLE', 'id', 'v')});
my %writers = (
	gpuvec_ensure_keys => q{SELECT gpuvec_ensure_keys('TABLE', 'id', 'v', '{7}', 2)},
	gpuvec_apply_grad => q{SELECT gpuvec_apply_grad('TABLE', 'id', 'v', '{1}', '{1,1}')});

# Each of the functions on a table is to fail with this
sub all_fail
{
	my ($functions, $table, $error, $name) = @_;

	foreach my $function (sort keys %$functions)
	{
		my $sql = $functions->{$function} =~ s/TABLE/$table/gr;

		is(result($sql), "ERROR: $error", "$name: $function");
	}
	return;
}

# And on this one none is to
sub none_fails
{
	my ($functions, $table, $name) = @_;

	foreach my $function (sort keys %$functions)
	{
		my $sql = $functions->{$function} =~ s/TABLE/$table/gr;

		unlike(result($sql), qr/^ERROR/, "$name: $function");
	}
	return;
}

sub topk
{
	my ($table) = @_;
	return result("SELECT string_agg((t.item).id::text, ' ' ORDER BY t.rank) FROM gpuvec_topk_rows(NULL::$table, 'tokens', '{3,17}', 10) t");
}

# ---- Citus ----

make_database('citus');
$node->safe_psql($database, q{
	-- rows of the day of distribution are still in the shell
	CREATE TABLE docs (id int, tokens idset);
	INSERT INTO docs VALUES (1, '{3,17}'), (2, '{3}');
	CREATE INDEX docs_tokens ON docs USING gpuvec (tokens);
	CREATE TABLE docs_102008 (LIKE docs);
	INSERT INTO docs_102008 VALUES (1, '{3,17}');
	CREATE TABLE docs_102009 (LIKE docs);
	INSERT INTO docs_102009 VALUES (6, '{17}');
	CREATE INDEX docs_tokens_102009 ON docs_102009 USING gpuvec (tokens);
	CREATE TABLE reference (id int, tokens idset);
	CREATE TABLE reference_102010 (id int, tokens idset);
	INSERT INTO reference_102010 VALUES (8, '{3,17}');
	CREATE TABLE remote (id int, tokens idset);
	CREATE TABLE parted (id int, tokens idset) PARTITION BY LIST (id);
	CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
	CREATE TABLE half (id int, tokens idset) PARTITION BY LIST (id);
	CREATE TABLE half_1 PARTITION OF half FOR VALUES IN (1);
	CREATE TABLE half_2 PARTITION OF half FOR VALUES IN (2);
	INSERT INTO half VALUES (1, '{3}'), (2, '{3}');
	CREATE TABLE items (id int PRIMARY KEY, v real[]);
	CREATE TABLE items_102012 (LIKE items INCLUDING ALL);
	CREATE TABLE items_102013 (LIKE items INCLUDING ALL);
	INSERT INTO items_102012 VALUES (1, '{1,0}'), (2, '{0,1}');
	CREATE TABLE plain (id int PRIMARY KEY, tokens idset, v real[]);
	INSERT INTO plain VALUES (1, '{3}', '{1,0}'), (2, '{17}', '{0,1}')});
is(topk('docs'), '1 2', 'without Citus a table is what it is');

# what anybody could make does not count
$node->safe_psql($database, q{
	CREATE ROLE mallory;
	GRANT CREATE ON SCHEMA public TO mallory;
	GRANT CREATE, TEMPORARY ON DATABASE citus TO mallory;
	SET ROLE mallory;
	CREATE TABLE public.pg_dist_partition (logicalrelid regclass, partmethod "char");
	INSERT INTO public.pg_dist_partition VALUES ('docs', 'h');
	CREATE SCHEMA _timescaledb_catalog;
	CREATE TABLE _timescaledb_catalog.chunk (schema_name name, table_name name, compressed_chunk_id int, UNIQUE (schema_name, table_name));
	INSERT INTO _timescaledb_catalog.chunk VALUES ('public', 'docs', 1)});
is(result(q{CREATE TEMPORARY TABLE pg_dist_partition AS SELECT 'docs'::regclass AS logicalrelid;
	SET search_path = pg_temp, public, pg_catalog;
	SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{3}', 10)}), '2', 'what anybody can make is not believed');

# the relation of an aggregate: of a row, or a parameter of a plan for all its
# values
my $from_rows = q{SELECT gpuvec_pool_agg(r, 'id', 'v', 1, 1, 'sum', 'zero') FROM (VALUES ('plain'::regclass), ('plain')) x (r)};
my $parameter = q{PREPARE pool(regclass) AS SELECT gpuvec_sum_agg($1, 'id', 'v', k) FROM generate_series(1, 2) k; SET plan_cache_mode = force_generic_plan; EXECUTE pool('plain')};
is(result($from_rows), '{2,0}', 'a relation that comes from rows');

fake(q{
	CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid regclass NOT NULL, partmethod "char" NOT NULL, partkey text,
		colocationid int NOT NULL DEFAULT 0, repmodel "char" NOT NULL DEFAULT 'c', autoconverted bool NOT NULL DEFAULT false);
	CREATE UNIQUE INDEX pg_dist_partition_logical_relid_index ON pg_catalog.pg_dist_partition (logicalrelid);
	CREATE TABLE pg_catalog.pg_dist_shard (logicalrelid regclass NOT NULL, shardid int8 NOT NULL, shardstorage "char" NOT NULL, shardminvalue text, shardmaxvalue text);
	CREATE UNIQUE INDEX pg_dist_shard_shardid_index ON pg_catalog.pg_dist_shard (shardid);
	CREATE INDEX pg_dist_shard_logical_relid_index ON pg_catalog.pg_dist_shard (logicalrelid);
	INSERT INTO pg_dist_shard VALUES ('docs', 102008, 't', '0', '1'), ('docs', 102009, 't', '2', '3'), ('reference', 102010, 't', NULL, NULL), ('remote', 102011, 't', NULL, NULL),
		('items', 102012, 't', '0', '1'), ('items', 102013, 't', '2', '3');
	GRANT SELECT ON pg_dist_partition, pg_dist_shard TO PUBLIC});
is(topk('docs'), '1 2', 'a table that Citus does not distribute');
fake(q{INSERT INTO pg_dist_partition (logicalrelid, partmethod, repmodel) VALUES ('docs', 'h', 's'), ('reference', 'n', 't'), ('remote', 'n', 's'),
	('parted', 'h', 's'), ('parted_1', 'h', 's'), ('half_2', 'h', 's'), ('items', 'h', 's')});

is(result($from_rows), 'ERROR: relation must not come from rows in a database with Citus DETAIL: They may be rows of another node, where tables have other oids. '
	. 'HINT: Group by the column that the rows are distributed by, or select them in a subquery with OFFSET 0.', 'a relation that comes from rows, with Citus');
is(result($parameter), '{1,1}', 'a relation that is a parameter, with Citus');

my $elsewhere = 'DETAIL: It is distributed by Citus, and its rows are in its shards.';
my $sets_hint = 'HINT: ORDER BY with a distance operator and LIMIT searches all shards; run_command_on_shards calls a function on each.';
my $shard_hint = 'HINT: run_command_on_shards calls a function on each shard.';

all_fail(\%sets, 'docs', "cannot search relation \"docs\" $elsewhere $sets_hint", 'distributed');
all_fail({ map { $_ => $sets{$_} } grep { $_ ne 'among' } keys %sets }, 'parted', "cannot search relation \"parted\" $elsewhere $sets_hint", 'distributed and partitioned');
all_fail({ gpuvec_topk => $sets{gpuvec_topk} }, 'parted_1', "cannot search relation \"parted_1\" $elsewhere $sets_hint", 'a partition of it');
all_fail({ gpuvec_topk => $sets{gpuvec_topk} }, 'half', "cannot search relation \"half_2\" $elsewhere $sets_hint", 'one partition is distributed');
all_fail({ gpuvec_topk => $sets{gpuvec_topk} }, 'reference', 'cannot search relation "reference" DETAIL: It is a table of Citus, and its rows are in a shard. '
	. 'HINT: Name the shard instead: public.reference_102010, on each node that has it.', 'a reference table');
all_fail({ gpuvec_topk => $sets{gpuvec_topk} }, 'remote', "cannot search relation \"remote\" $elsewhere $sets_hint", 'its shard is on another node');
all_fail({ %vectors, %writers }, 'items', "cannot search relation \"items\" $elsewhere $shard_hint", 'vectors');

is(topk('docs_102009'), '6', 'a shard by its name');
is(topk('reference_102010'), '8', 'the shard of a reference table');
is(topk('reference'), '8', 'whole rows of a reference table are those of its shard here');
is(result(q{SELECT gpuvec_prewarm('reference', 'tokens')}), '1', 'its shard is loaded');
like(result(q{SELECT count(*) FROM gpuvec_topk_batch_rows(NULL::remote, 'tokens', '{"{3}"}')}), qr/distributed by Citus/, 'a table whose shard is elsewhere');
# whoever owns a table without a shard here may call it so that another's table is named like one
$node->safe_psql($database, q{SET ROLE mallory; CREATE TABLE lure (id int, tokens idset); RESET ROLE; CREATE TABLE lure_102014 AS SELECT 9 AS id, '{3}'::idset AS tokens});
fake(q{INSERT INTO pg_dist_partition (logicalrelid, partmethod, repmodel) VALUES ('lure', 'n', 't'); INSERT INTO pg_dist_shard VALUES ('lure', 102014, 't', NULL, NULL)});
like(result(qq{SET ROLE mallory; $sets{$_}} =~ s/TABLE/lure/gr), qr/cannot search relation "lure"/, "a table of another owner is no shard: $_") for qw(gpuvec_topk_rows gpuvec_prewarm);
$node->safe_psql($database, 'ALTER TABLE lure_102014 OWNER TO mallory');
is(result(q{SET ROLE mallory; } . $sets{gpuvec_topk_rows} =~ s/TABLE/lure/gr), '1', 'one of the same owner is');
fake(q{UPDATE pg_dist_partition SET partmethod = 'n', repmodel = 't' WHERE logicalrelid = 'items'::regclass; DELETE FROM pg_dist_shard WHERE shardid = 102013;
	INSERT INTO items VALUES (1, '{9,9}')});
none_fails(\%vectors, 'items', 'vectors of a reference table');
is(result(q{SELECT gpuvec_pool('items', 'id', 'v', '{1,2}')}), '{1,1}', 'and they are those of its shard here');
all_fail(\%writers, 'items', "cannot search relation \"items\" DETAIL: It is a table of Citus, and its rows are in a shard. HINT: Name the shard instead: public.items_102012, on each node that has it.", 'writing them');
is(topk('half_1'), '1', 'the other partition');
none_fails({ %sets, %vectors, %writers }, 'plain', 'a table of this node alone');
none_fails({ %vectors, %writers }, 'items_102012', 'a shard of vectors');
is(result('SET enable_seqscan = off; SELECT id FROM docs_102009 ORDER BY tokens <-> \'{17}\' LIMIT 1'), '6', 'an index scan');
is(result(q{SELECT gpuvec_evict('docs') >= 0}), 't', 'what was resident before can be evicted');

# the catalog as it is now, of this transaction too
is(result(q{SET allow_system_table_mods = on; BEGIN; DELETE FROM pg_dist_partition WHERE logicalrelid = 'docs'::regclass;
	SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{3}', 10); ROLLBACK}), '2', 'undistributed by the transaction itself');
like(result(q{SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{3}', 10)}), qr/distributed by Citus/, 'rolled back');
like(result(q{SET allow_system_table_mods = on; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM gpuvec_topk('plain', 'tokens', '{3}', 10);
	INSERT INTO pg_dist_partition (logicalrelid, partmethod) VALUES ('plain', 'h'); SELECT count(*) FROM gpuvec_topk('plain', 'tokens', '{3}', 10); ROLLBACK}),
	qr/distributed by Citus/, 'distributed by the transaction itself');
# another one commits while this one has its snapshot
my $session = $node->background_psql($database);
ask($session, 'BEGIN ISOLATION LEVEL REPEATABLE READ');
is(ask($session, q{SELECT count(*) FROM gpuvec_topk('plain', 'tokens', '{3}', 10)}), '1', 'not yet distributed');
fake(q{INSERT INTO pg_dist_partition (logicalrelid, partmethod) VALUES ('plain', 'h')});
is(ask($session, q{DO $$ BEGIN PERFORM FROM gpuvec_topk('plain', 'tokens', '{3}', 10); RAISE EXCEPTION 'answered'; EXCEPTION WHEN wrong_object_type THEN NULL; END $$}),
	'', 'distributed by another transaction meanwhile');
$session->quit;

# a catalog that is not the one we know
fake(q{DROP TABLE pg_catalog.pg_dist_partition; CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid text); INSERT INTO pg_dist_partition VALUES ('docs')});
is(topk('docs'), '1 2', 'another type');
fake(q{DROP TABLE pg_catalog.pg_dist_partition; CREATE TABLE pg_catalog.pg_dist_partition (relation regclass)});
is(topk('docs'), '1 2', 'another name');
fake(q{DROP TABLE pg_catalog.pg_dist_partition; CREATE VIEW pg_catalog.pg_dist_partition AS SELECT 'docs'::regclass AS logicalrelid});
is(topk('docs'), '1 2', 'a view');
fake(q{DROP VIEW pg_catalog.pg_dist_partition; CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid regclass); INSERT INTO pg_dist_partition VALUES ('docs')});
like(topk('docs'), qr/distributed by Citus/, 'without an index');

# ---- TimescaleDB ----

make_database('timescale');
$node->safe_psql($database, q{
	CREATE TABLE docs (id int, tokens idset, v real[]);
	CREATE TABLE chunk_1 () INHERITS (docs);
	CREATE TABLE chunk_2 () INHERITS (docs);
	CREATE UNIQUE INDEX ON chunk_2 (id);
	INSERT INTO chunk_1 VALUES (1, '{3,17}', '{1,0}');
	INSERT INTO chunk_2 VALUES (2, '{3}', '{0,1}');
	CREATE SCHEMA _timescaledb_catalog});
is(topk('docs'), '1 2', 'before');

# the catalog of versions up to 2.26, the settings since 2.14
my @before = (q{
	CREATE TABLE _timescaledb_catalog.chunk (id int PRIMARY KEY, hypertable_id int NOT NULL, schema_name name NOT NULL, table_name name NOT NULL, compressed_chunk_id int,
		dropped bool NOT NULL DEFAULT false, status int NOT NULL DEFAULT 0, osm_chunk bool NOT NULL DEFAULT false, UNIQUE (schema_name, table_name));
	INSERT INTO _timescaledb_catalog.chunk VALUES (1, 1, 'public', 'chunk_1', NULL), (2, 1, 'public', 'chunk_2', NULL), (3, 1, 'other', 'chunk_2', 4)},
	q{UPDATE _timescaledb_catalog.chunk SET compressed_chunk_id = 5, status = 1 WHERE id = 2},
	q{UPDATE _timescaledb_catalog.chunk SET compressed_chunk_id = NULL, status = 0 WHERE id = 2});
# and that of later ones
my @after = (q{
	CREATE TABLE _timescaledb_catalog.chunk (id int PRIMARY KEY, relid regclass NOT NULL UNIQUE, hypertable_id int NOT NULL, status int NOT NULL DEFAULT 0);
	INSERT INTO _timescaledb_catalog.chunk VALUES (1, 'chunk_1', 1), (2, 'chunk_2', 1);
	CREATE TABLE _timescaledb_catalog.compression_settings (relid regclass PRIMARY KEY, compress_relid regclass);
	INSERT INTO _timescaledb_catalog.compression_settings VALUES ('docs', NULL)},
	q{INSERT INTO _timescaledb_catalog.compression_settings VALUES ('chunk_2', 'chunk_1')},
	q{DELETE FROM _timescaledb_catalog.compression_settings WHERE relid = 'chunk_2'::regclass});
# and one whose unique index has the second column besides its keys
my @included = (q{
	CREATE TABLE _timescaledb_catalog.chunk (id int PRIMARY KEY, schema_name name NOT NULL, table_name name NOT NULL, compressed_chunk_id int);
	CREATE UNIQUE INDEX ON _timescaledb_catalog.chunk (schema_name) INCLUDE (table_name);
	INSERT INTO _timescaledb_catalog.chunk VALUES (1, 'other', 'chunk_1', 1), (2, 'public', 'chunk_2', NULL)},
	q{UPDATE _timescaledb_catalog.chunk SET compressed_chunk_id = 5 WHERE id = 2},
	q{UPDATE _timescaledb_catalog.chunk SET compressed_chunk_id = NULL WHERE id = 2});
my $compressed = 'cannot search relation "chunk_2" DETAIL: It is a chunk that TimescaleDB has compressed, and its rows are elsewhere. HINT: ';
my $all_rows = 'ORDER BY with a distance operator and LIMIT searches all rows; ';

foreach my $version ([ 'older', @before ], [ 'newer', @after ], [ 'included', @included ])
{
	my ($name, $create, $compress, $decompress) = @$version;

	$node->safe_psql($database, $create);
	$node->safe_psql($database, $compress);
	is(topk('docs'), '1 2', "$name: no extension, no belief");
	fake(q{INSERT INTO pg_extension SELECT 4000000000, 'timescaledb', 10, 'public'::regnamespace, true, '2.0', NULL, NULL
			WHERE NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'timescaledb')});
	is(topk('docs'), '1 2', "$name: not a member of the extension");
	fake(q{DO $$ DECLARE t text; BEGIN FOR t IN SELECT oid::regclass FROM pg_class WHERE relkind = 'r' AND relnamespace = '_timescaledb_catalog'::regnamespace LOOP
			EXECUTE 'ALTER EXTENSION timescaledb ADD TABLE ' || t; END LOOP; END $$});
	all_fail({ gpuvec_topk => $sets{gpuvec_topk}, gpuvec_prewarm => $sets{gpuvec_prewarm} }, $_,
		"$compressed${all_rows}decompress_chunk brings them back.", "$name, $_") for qw(docs chunk_2);
	all_fail(\%vectors, 'docs', "${compressed}decompress_chunk brings them back.", "$name, vectors");
	# SQL writes a compressed chunk, and sees all of its rows
	none_fails({ gpuvec_ensure_keys => $writers{gpuvec_ensure_keys} }, 'chunk_2', "$name, writing a compressed chunk");
	is(topk('chunk_1'), '1', "$name: another chunk");
	$node->safe_psql($database, $decompress);
	is(topk('docs'), '1 2', "$name: decompressed");
	fake(q{DO $$ DECLARE t text; BEGIN FOR t IN SELECT oid::regclass FROM pg_class WHERE relkind = 'r' AND relnamespace = '_timescaledb_catalog'::regnamespace LOOP
			EXECUTE 'ALTER EXTENSION timescaledb DROP TABLE ' || t; EXECUTE 'DROP TABLE ' || t; END LOOP; END $$});
}

$node->stop;
done_testing();
