# Versions: every script in sql/ that updates leads to the objects that a new installation has, indexes and sets outlive an update, and a
# library that is older than the objects says so in one line.  pg_upgrade keeps all.
#
# Scripts of released versions stay in sql/, so each of them is installed here and updated.  The update to the next version is there as
# well, though nobody has it yet; as long as that version has no script of its own, it changes nothing.
use strict;
use warnings;

use Cwd qw(abs_path);
use File::Copy qw(copy);
use File::Basename qw(basename);
use File::Path qw(make_path);
use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# All that a database has of the extension, a line each, without oids
my $catalog = <<'SQL';
WITH members AS (SELECT classid, objid FROM pg_depend d JOIN pg_extension e ON d.refobjid = e.oid
	WHERE d.refclassid = 'pg_extension'::regclass AND e.extname = 'gpuvec' AND d.deptype = 'e')
SELECT line FROM (
SELECT pg_describe_object(classid, objid, 0) || ': ' || coalesce(obj_description(objid, classid::regclass::name), 'no comment') FROM members
UNION ALL SELECT format('function %s %s', pg_get_functiondef(p.oid), p.proacl) FROM members JOIN pg_proc p ON classid = 'pg_proc'::regclass AND objid = p.oid WHERE prokind <> 'a'
UNION ALL SELECT format('aggregate %s %s %s %s %s %s %s %s %s', aggfnoid::regprocedure, aggkind, aggtransfn, aggfinalfn, aggcombinefn, aggserialfn, aggdeserialfn, aggtranstype::regtype, agginitval)
	FROM members JOIN pg_aggregate ON classid = 'pg_proc'::regclass AND objid = aggfnoid
UNION ALL SELECT format('type %s %s %s %s %s %s %s %s', t.oid::regtype, typlen, typalign, typstorage, typcategory, typinput, typsend, typanalyze) FROM members JOIN pg_type t ON classid = 'pg_type'::regclass AND objid = t.oid
UNION ALL SELECT format('operator %s %s %s %s %s %s %s %s', o.oid::regoperator, oprcode, oprcom::regoperator, oprnegate::regoperator, oprrest, oprjoin, oprcanhash, oprcanmerge)
	FROM members JOIN pg_operator o ON classid = 'pg_operator'::regclass AND objid = o.oid
UNION ALL SELECT pg_describe_object('pg_amop'::regclass, a.oid, 0) FROM members JOIN pg_amop a ON classid = 'pg_opfamily'::regclass AND objid = a.amopfamily
UNION ALL SELECT pg_describe_object('pg_amproc'::regclass, a.oid, 0) FROM members JOIN pg_amproc a ON classid = 'pg_opfamily'::regclass AND objid = a.amprocfamily
UNION ALL SELECT format('class %s %s %s', pg_describe_object('pg_opclass'::regclass, c.oid, 0), opcdefault, opckeytype::regtype) FROM members JOIN pg_opclass c ON classid = 'pg_opclass'::regclass AND objid = c.oid
UNION ALL SELECT format('cast %s %s %s', pg_describe_object('pg_cast'::regclass, c.oid, 0), castfunc::regprocedure, castcontext) FROM members JOIN pg_cast c ON classid = 'pg_cast'::regclass AND objid = c.oid
UNION ALL SELECT format('relation %s %s %s', c.oid::regclass, relacl, CASE WHEN relkind = 'v' THEN pg_get_viewdef(c.oid) END) FROM members JOIN pg_class c ON classid = 'pg_class'::regclass AND objid = c.oid
UNION ALL SELECT format('column %s %s %s %s', attrelid::regclass, attname, format_type(atttypid, atttypmod), col_description(attrelid, attnum)) FROM members
	JOIN pg_attribute ON classid = 'pg_class'::regclass AND objid = attrelid WHERE attnum > 0
) lines(line) ORDER BY line COLLATE "C"
SQL

my $conf = slurp_file($ENV{GPUVEC_CONF});
my ($stage) = $conf =~ /^(?:extension_destdir|extension_control_path) = '([^:']*)/m;
my ($sharedir) = `pg_config --sharedir` =~ /(.*)/;
my ($pkglibdir) = `pg_config --pkglibdir` =~ /(.*)/;
my $sources = abs_path('../../sql');
my $control_path = $conf =~ /^extension_control_path/m;
my $installed = $control_path ? $stage : "$stage$sharedir";
my ($version) = slurp_file("$installed/extension/gpuvec.control") =~ /default_version = '([^']*)'/;
my $folder = PostgreSQL::Test::Utils::tempdir;
my $scripts = "$folder$sharedir/extension";

# Scripts of versions that do not exist, beside those that do
make_path($scripts, "$folder$pkglibdir");
copy($_, $scripts) for glob("$installed/extension/gpuvec*");
# (older versions are not installed)
-e "$scripts/" . basename($_) or copy($_, $scripts) for grep { !/--.*--/ } glob("$sources/gpuvec--*.sql");
my ($library) = $conf =~ /^dynamic_library_path = '([^:']*)/m;
symlink("$library/gpuvec.so", "$folder$pkglibdir/gpuvec.so");

sub script
{
	my ($name, $text) = @_;

	append_to_file("$scripts/gpuvec--$name.sql", $text);
	return;
}

my $whole = slurp_file("$scripts/gpuvec--$version.sql");
script('test', $whole);
script("$version--test", '');
script("$version--more", "COMMENT ON FUNCTION gpuvec_evict_all() IS 'another comment';");
script("$version--less", 'ALTER EXTENSION gpuvec DROP FUNCTION gpuvec_evict_all(); DROP FUNCTION gpuvec_evict_all();');
(my $newer = $whole) =~ s/gpuvec_library_version\('\Q$version\E'::text\)/gpuvec_library_version('999.1'::text)/ or die 'the script does not ask for the version';
script('999.1', $newer);
script("$version--999.1", "SELECT gpuvec_library_version('999.1');");

my $path = $control_path ? "extension_control_path = '$folder$sharedir'" : "extension_destdir = '$folder'";
my $node = new_node('main', conf => "$path\n", started => 0);
$node->start;

# Databases have the extension in the same ways: version, and those to update to
sub objects
{
	my ($database, @versions) = @_;
	my $first = shift @versions;

	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, "CREATE EXTENSION gpuvec VERSION '$first'");
	$node->safe_psql($database, "ALTER EXTENSION gpuvec UPDATE TO '$_'") for @versions;
	return $node->safe_psql($database, $catalog);
}

my $fresh = objects('fresh', $version);
cmp_ok(scalar(split /\n/, $fresh), '>', 500, 'the catalog has many lines');
is(objects('to_test', $version, 'test'), objects('test', 'test'), 'an update that does nothing');
isnt(objects('more', $version, 'more'), $fresh, 'another comment is noticed');
isnt(objects('less', $version, 'less'), $fresh, 'a missing function is noticed');

# Those that were released, and the one that comes next.  Its library is not there yet, so its script asks for this one.
my @released = grep { $_ ne $version && $_ ne '999.1' } map { /gpuvec--([0-9.]+)\.sql$/ ? $1 : () } glob("$scripts/*");
my ($next) = map { /gpuvec--\Q$version\E--([0-9.]+)\.sql$/ ? $1 : () } glob("$sources/*");
ok(!-e "$installed/extension/gpuvec--$version--$next.sql", "an update to $next is not installed");
(my $update = slurp_file("$sources/gpuvec--$version--$next.sql")) =~ s/gpuvec_library_version\('\Q$next\E'::text\)/gpuvec_library_version('$version'::text)/
	or die 'the script does not ask for the version';
script("$version--$next", $update);
is(objects('to_next', $version, $next), $fresh, "an update to $next");
my $by_vector = q{terms <=> '{5:1,105:2,7:0.25}'};
for my $old (@released)
{
	my $database = "from_$old" =~ s/\./_/gr;

	is(objects($database, $old, $version), $fresh, "from $old");
	# what is newer can be used: an index on vectors
	$node->safe_psql($database, 'CREATE TABLE vectors (id int, terms idvec); CREATE INDEX vectors_terms ON vectors USING gpuvec (terms);
		INSERT INTO vectors SELECT i, idvec(ARRAY[i % 97, i % 89 + 100], ARRAY[1 + i % 3, 0.5]) FROM generate_series(1, 2000) i');
	like($node->safe_psql($database, "SET enable_seqscan = off; EXPLAIN SELECT id FROM vectors ORDER BY $by_vector LIMIT 9"), qr/Index Scan using vectors_terms/, "from $old: the plan with an index on vectors");
	is($node->safe_psql($database, "SET enable_seqscan = off; SELECT array_agg(id) FROM (SELECT id FROM vectors ORDER BY $by_vector LIMIT 9) x"),
		$node->safe_psql($database, "SELECT array_agg(id) FROM (SELECT id FROM vectors ORDER BY ($by_vector) + 0, ctid LIMIT 9) x"), "from $old: an index on vectors");
}

# Sets, indexes and searches outlive an update
$node->safe_psql('fresh', 'CREATE TABLE docs (id int PRIMARY KEY, tokens idset);
	INSERT INTO docs SELECT i, ARRAY[i % 97, i % 89 + 100]::idset FROM generate_series(1, 2000) i;
	CREATE INDEX docs_tokens ON docs USING gpuvec (tokens)');
my $search = q{SET enable_seqscan = off; SET enable_sort = off; SELECT array_agg(d) FROM (SELECT tokens <-> '{5,105}' AS d FROM docs ORDER BY tokens <-> '{5,105}' LIMIT 20) x};
my $found = $node->safe_psql('fresh', $search);
$node->safe_psql('fresh', "ALTER EXTENSION gpuvec UPDATE TO 'test'");
is($node->safe_psql('fresh', $search), $found, 'an index after an update');

# A dump has columns of vectors, and the casts to the type sparsevec, which
# belong to no extension.  Here the extension vector is a type of that name and
# layout.
my %vector = ('.control' => "default_version = '0.7.0'\n", '--0.7.0.sql' => q{CREATE TYPE sparsevec;
	CREATE FUNCTION sparsevec_in(cstring) RETURNS sparsevec AS 'byteain' LANGUAGE internal IMMUTABLE STRICT;
	CREATE FUNCTION sparsevec_out(sparsevec) RETURNS cstring AS 'byteaout' LANGUAGE internal IMMUTABLE STRICT;
	CREATE TYPE sparsevec (INPUT = sparsevec_in, OUTPUT = sparsevec_out, ALIGNMENT = int4, STORAGE = external);});
append_to_file("$scripts/vector$_", $vector{$_}) for sort keys %vector;
$node->safe_psql('postgres', 'CREATE DATABASE vectors');
$node->safe_psql('vectors', q{CREATE EXTENSION gpuvec; CREATE EXTENSION vector; SELECT gpuvec_sparsevec_casts();
	CREATE TABLE vectors (id int PRIMARY KEY, v idvec DEFAULT '{1:0.5}' CHECK (cardinality(v) < 5), s sparsevec, sum float8 GENERATED ALWAYS AS (idvec_sum(v)) STORED, words idvec[]);
	INSERT INTO vectors VALUES (1, '{}'), (2, '{0:1,65535:255}'), (3, '{4294967295:1e-45,3:-3.4028235e38}'), (4, '{70000:7}'), (5, NULL);
	INSERT INTO vectors VALUES (6, DEFAULT, '{2:3}'::idvec, DEFAULT, ARRAY['{1:0.1}', NULL]::idvec[]);
	CREATE UNIQUE INDEX ON vectors (v); CREATE INDEX ON vectors USING hash (v); CREATE INDEX vectors_v ON vectors USING gpuvec (v, id);
	CREATE VIEW cast_view AS SELECT id, s::idvec AS v, '{5:1}'::idvec::sparsevec AS s, v <=> '{1:1}' AS distance FROM vectors;
	CREATE MATERIALIZED VIEW summed AS SELECT idvec_agg(id, sum) FROM vectors});
my $dumped = q{SELECT * FROM vectors ORDER BY id; SELECT * FROM cast_view ORDER BY id; SELECT * FROM summed;
	SELECT c.castsource::regtype, c.casttarget::regtype, castcontext, castfunc::regprocedure, pg_get_functiondef(castfunc), obj_description(c.oid, 'pg_cast') FROM pg_cast c WHERE 'sparsevec'::regtype IN (castsource, casttarget) ORDER BY castsource::regtype::text};
my $vectors = $node->safe_psql('vectors', $dumped);
like($vectors, qr/^3\|\{3:-3\.4028235e\+38,4294967295:1e-45\}\|.*^6\|\{1:0\.5\}\|\\x02.*^6\|\{2:3\}\|\\x05.*^idvec\|sparsevec\|a\|.*^sparsevec\|idvec\|a\|/ms, 'vectors and casts');
command_ok(['pg_dump', '-f', "$folder/vectors.sql", $node->connstr('vectors')], 'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
command_ok(['psql', '-X', '-q', '-o', "$folder/vectors.out", '-v', 'ON_ERROR_STOP=1', '-f', "$folder/vectors.sql", $node->connstr('restored')], 'psql');
is($node->safe_psql('restored', $dumped), $vectors, 'vectors and casts of a dump');
my $by_index = q{SET enable_seqscan = off; SET enable_sort = off; EXPLAIN (COSTS OFF) SELECT id FROM vectors WHERE id > 1 ORDER BY v <#> '{1:2,65535:0.5}';
	SELECT id, v <#> '{1:2,65535:0.5}' FROM vectors WHERE id > 1 ORDER BY v <#> '{1:2,65535:0.5}'};
my $listed = $node->safe_psql('restored', $by_index);
is($listed, "Index Scan using vectors_v on vectors\n  Index Cond: (id > 1)\n  Order By: (v <#> '{1:2,65535:0.5}'::idvec)\n2|-127.5\n6|-1\n3|0\n4|0\n5|", 'an index on vectors of a dump');
is($node->safe_psql('vectors', $by_index), $listed, 'which is as it was');
$node->safe_psql('restored', 'SELECT gpuvec_sparsevec_casts()');
is($node->safe_psql('restored', $dumped), $vectors, 'which need not be made');

# An older library says in one line what is wrong
$node->safe_psql('postgres', 'CREATE DATABASE older');
my ($rc, $out, $err) = $node->psql('older', "CREATE EXTENSION gpuvec VERSION '999.1'");
like($err, qr/ERROR:  the gpuvec library is version \Q$version\E, older than version 999\.1 of the extension's objects/, 'objects that are newer: CREATE EXTENSION');
($rc, $out, $err) = $node->psql('test', "ALTER EXTENSION gpuvec UPDATE TO '$version'");
like($err, qr/ERROR:  extension "gpuvec" has no update path/, 'there is no way back');
($rc, $out, $err) = $node->psql('older', "CREATE EXTENSION gpuvec VERSION '$version'; ALTER EXTENSION gpuvec UPDATE TO '999.1'");
like($err, qr/ERROR:  the gpuvec library is version \Q$version\E, older than version 999\.1/, 'ALTER EXTENSION UPDATE');
is($node->safe_psql('older', "SELECT extversion FROM pg_extension WHERE extname = 'gpuvec'"), $version, 'and nothing has changed');

# What pg_upgrade to this version makes of a server
sub upgraded
{
	my ($server_version) = @_;
	my %old_server = $ENV{OLD_PG_CONFIG} ? (install_path => `$ENV{OLD_PG_CONFIG} --bindir` =~ s{/bin\n$}{}r) : ();
	my $old = PostgreSQL::Test::Cluster->new('old', %old_server);
	my $old_version = $ENV{OLD_PG_CONFIG} ? `$ENV{OLD_PG_CONFIG} --version` =~ s/\D*(\d+).*/$1/sr : $server_version;
	# from 18 on a new server has checksums, and both must be alike
	my @plain = $old_version < 18 && $server_version >= 18 ? ('--no-data-checksums') : ();
	my $new = new_node('new', started => 0, init => \@plain);
	my $old_bindir = $ENV{OLD_PG_CONFIG} ? `$ENV{OLD_PG_CONFIG} --bindir` : `pg_config --bindir`;
	my $new_bindir = `pg_config --bindir`;

	chomp($old_bindir, $new_bindir);
	$old->init;
	$old->append_conf('postgresql.conf', slurp_file($ENV{OLD_PG_CONFIG} ? $ENV{OLD_GPUVEC_CONF} : $ENV{GPUVEC_CONF}));
	$old->start;
	$old->safe_psql('postgres', 'CREATE EXTENSION gpuvec; CREATE TABLE docs (id int PRIMARY KEY, tokens idset);
		INSERT INTO docs SELECT i, ARRAY[i % 97, i % 89 + 100]::idset FROM generate_series(1, 2000) i;
		CREATE INDEX docs_tokens ON docs USING gpuvec (tokens); CREATE INDEX docs_least ON docs USING gpuvec ((tokens - 5::int8))');
	$old->stop;
	chdir $folder or die;
	command_ok(['pg_upgrade', '-d', $old->data_dir, '-D', $new->data_dir, '-b', $old_bindir, '-B', $new_bindir,
		'-s', $folder, '-p', $old->port, '-P', $new->port], 'pg_upgrade');
	$new->start;
	is($new->safe_psql('postgres', $search), $found, 'an index after pg_upgrade');
	is($new->safe_psql('postgres', $search =~ s/tokens/(tokens - 5::int8)/gr),
		$new->safe_psql('postgres', q{SET enable_indexscan = off; SELECT array_agg(d) FROM (SELECT (tokens - 5::int8) <-> '{5,105}' AS d FROM docs ORDER BY d LIMIT 20) x}),
		'and one with rows of its own');
	is($new->safe_psql('postgres', $catalog), $fresh, 'and all objects') unless $ENV{OLD_PG_CONFIG};
	$new->stop;
	return;
}

# pg_upgrade: from the same version, or that of OLD_PG_CONFIG, whose server finds gpuvec by OLD_GPUVEC_CONF
SKIP:
{
	my $server_version = $node->safe_psql('postgres', q{SELECT current_setting('server_version_num')::int / 10000});

	skip("pg_upgrade of PostgreSQL 18 and later looks for gpuvec.so in $pkglibdir alone", 4) if $server_version >= 18 && !-e "$pkglibdir/gpuvec.so";
	upgraded($server_version);
}

$node->stop;
done_testing();
