# What others prepare is not called with the rights of whoever installs, looks on, or loads: names that a schema of the
# extension or a database's search path finds first.  And what roles and other users of the system can reach.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => "shared_preload_libraries = 'gpuvec'\ngpuvec.devices = ''\n");

# The log, from a place on
sub logged
{
	my ($from) = @_;
	return substr(slurp_file($node->logfile), $from // 0);
}

# Traps (below) that have sprung since a place in it
sub sprung
{
	my ($from) = @_;
	my %traps = map { $_ => 1 } logged($from) =~ /LOG:  (trap .* sprung as .*)/g;
	return join(', ', sort keys %traps);
}

# What a statement of a role gives, or its error
sub result
{
	my ($database, $role, $sql) = @_;
	my ($rc, $out, $err) = $node->psql($database, $sql, extra_params => [ '-U', $role ]);

	return $rc == 0 ? $out : $err;
}

$node->safe_psql('postgres', 'CREATE ROLE mallory LOGIN; CREATE ROLE watcher LOGIN IN ROLE pg_read_all_stats; CREATE DATABASE app; CREATE DATABASE owned OWNER mallory');

# Functions and operators that fit what the script of the extension writes better than those of pg_catalog, in its schema beforehand
sub trap
{
	my ($name, $arguments, $result, $value) = @_;
	return "CREATE FUNCTION $name($arguments) RETURNS $result LANGUAGE plpgsql AS \$\$ BEGIN RAISE LOG 'trap $name sprung as %', current_user; RETURN $value; END \$\$;";
}
$node->safe_psql('app', 'GRANT CREATE ON SCHEMA public TO mallory');
$node->safe_psql('app', 'SET SESSION AUTHORIZATION mallory;'
	. trap('public.differ', 'oid, int4', 'bool', 'true') . 'CREATE OPERATOR public.<> (LEFTARG = oid, RIGHTARG = int4, FUNCTION = public.differ);'
	. trap('public.divide', 'float8, int8', 'float8', '1') . 'CREATE OPERATOR public./ (LEFTARG = float8, RIGHTARG = int8, FUNCTION = public.divide);'
	. trap('public.more', 'int8, int4', 'bool', 'true') . 'CREATE OPERATOR public.> (LEFTARG = int8, RIGHTARG = int4, FUNCTION = public.more);'
	. trap('public.minus', 'timestamptz, timestamptz', 'interval', 'NULL') . 'CREATE OPERATOR public.- (LEFTARG = timestamptz, RIGHTARG = timestamptz, FUNCTION = public.minus);'
	. trap('public.same', 'name, name', 'bool', 'true') . 'CREATE OPERATOR public.= (LEFTARG = name, RIGHTARG = name, FUNCTION = public.same);'
	. trap('public.pg_relation_filenode', 'oid', 'oid', '1') . trap('public.now', '', 'timestamptz', 'NULL') . trap('public.current_database', '', 'name', 'NULL'));
$node->safe_psql('app', 'CREATE EXTENSION gpuvec');
$node->safe_psql('app', q{CREATE TABLE docs (id int, tokens idset); INSERT INTO docs SELECT i, ARRAY[i] FROM generate_series(1, 500) i;
	CREATE INDEX ON docs USING gpuvec (tokens); SELECT gpuvec_prewarm('docs', 'tokens'); SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{1}')});
is($node->safe_psql('app', q{SELECT relation, index IS NULL, state FROM gpuvec_mirrors WHERE relation = 'docs'::regclass}), 'docs|t|ready', 'gpuvec_mirrors');
is($node->safe_psql('app', q{SELECT count(*) > 0 FROM gpuvec_costs WHERE relation = 'docs'::regclass}), 't', 'gpuvec_costs');
is($node->safe_psql('app', q{SELECT mean_batch > 0 AND uptime > '0' FROM gpuvec_engine}), 't', 'gpuvec_engine');
is($node->safe_psql('app', q{SELECT sum(m.rows) FROM gpuvec_mirror_devices m JOIN gpuvec_devices USING (device) WHERE relation = 'docs'::regclass}), '500', 'views of devices');
is(sprung(0), '', 'no view calls what was prepared');
is($node->safe_psql('app', q{SELECT count(*) FROM pg_depend d JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
		LEFT JOIN pg_proc p ON d.refclassid = 'pg_proc'::regclass AND p.oid = d.refobjid LEFT JOIN pg_operator o ON d.refclassid = 'pg_operator'::regclass AND o.oid = d.refobjid
	WHERE 'mallory'::regrole IN (p.proowner, o.oprowner)}), '0', 'nor depends on it');

# Who sees what: owners their own tables, members of pg_read_all_stats all, others none; in no database the names of another one's
$node->safe_psql('app', 'CREATE TABLE own (id int, tokens idset); ALTER TABLE own OWNER TO mallory');
is(result('app', 'mallory', q{SELECT gpuvec_prewarm('own', 'tokens'); SELECT string_agg(relation::text, ' ') FROM gpuvec_mirrors}), "0\nown", 'the owner sees his own copies');
is(result('app', 'mallory', q{SELECT count(*) FROM gpuvec_mirror_devices}), '0', 'not what devices have of others');
is(result('app', 'mallory', q{SELECT count(*) FROM gpuvec_costs WHERE relation <> 'own'::regclass OR relation IS NULL}), '0', 'and what searches of it have left');
is(result('app', 'watcher', q{SELECT string_agg(database || ' ' || coalesce(relation::text, '-'), ', ' ORDER BY database, relation::text) FROM gpuvec_mirrors}),
	'app docs, app own', 'who may read all statistics sees all, as far as they are of this database by name');
like(result('app', 'mallory', q{SELECT gpuvec_evict('docs')}), qr/must be owner of table docs/, 'only owners evict');
like(result('app', 'mallory', q{SELECT count(*) FROM gpuvec_topk('docs', 'tokens', '{1}')}), qr/permission denied for table docs/, 'searching takes the right to read');
my $pid = engine_pid($node);
is(result('app', 'mallory', "SELECT pg_terminate_backend($pid)"), 'f', 'the engine is no backend');
like(result('app', 'mallory', 'SELECT pg_terminate_backend(' . supervisor_pid($node) . ')'), qr/ERROR/, 'its supervisor is not to be ended by anybody');
is(engine_pid($node), $pid, 'it still runs');

# Files: the socket is for the server's user; the engine has no file of the database open, and no connection of the server's
my @socket = stat($node->data_dir . '/pg_stat_tmp/gpuvec.sock');
is(sprintf('%04o', $socket[2] & 07777), '0600', 'the socket is for nobody else');
is($socket[4], $<, 'and belongs to the server');
my $data = $node->data_dir;
my @open = map { readlink($_) // '' } glob("/proc/$pid/fd/*");
ok(@open > 3, 'the engine has descriptors');
is_deeply([grep { m{^\Q$data\E/(base|global|pg_wal|pg_xact)} } @open], [], 'of no file of the database');
is((stat("/proc/$pid"))[4], $<, 'it runs as the user of the server');

# A database whose owner chooses what its sessions find first: the worker that loads after a restart runs as superuser
$node->safe_psql('owned', 'CREATE EXTENSION gpuvec');
$node->safe_psql('owned', q{CREATE FUNCTION public.tokens_of(t text) RETURNS idset LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN ARRAY[ascii(lower(t)), length(t)]; END $$;
	CREATE FUNCTION public.is_word(t text) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN lower(t) LIKE 'w%'; END $$;
	CREATE TABLE public.docs (id int, body text, tokens idset); INSERT INTO public.docs SELECT i, 'Word' || i % 50, ARRAY[i % 50, 100 + i] FROM generate_series(1, 500) i;
	CREATE INDEX docs_expression ON public.docs USING gpuvec (public.tokens_of(body));
	CREATE INDEX docs_predicate ON public.docs USING gpuvec (tokens) WHERE public.is_word(body)});
my $searches = q{SET enable_seqscan = off; SET enable_sort = off; SELECT id FROM public.docs ORDER BY public.tokens_of(body) OPERATOR(public.<->) '{119,6}' LIMIT 1;
	SELECT id FROM public.docs WHERE public.is_word(body) ORDER BY tokens OPERATOR(public.<->) '{7}' LIMIT 1};
is($node->safe_psql('owned', $searches), "10\n7", 'indexes with an expression and with a predicate');
my $expected = q{SELECT count(*) FROM gpuvec_stat_mirrors() WHERE state = 'ready' AND index <> 0};
is($node->safe_psql('owned', $expected), '2', 'both are resident');
wait_for(sub { my @lines = split /\n/, -e "$data/gpuvec.autoprewarm" ? slurp_file("$data/gpuvec.autoprewarm") : ''; return @lines >= 5 }, 'the list');
is(result('owned', 'mallory', 'CREATE SCHEMA mallory;' . trap('mallory.lower', 'text', 'text', q{'x'}) . trap('mallory.ascii', 'text', 'int', '77') . trap('mallory.length', 'text', 'int', '77')
	. 'GRANT USAGE ON SCHEMA mallory TO PUBLIC; ALTER DATABASE owned SET search_path = mallory, pg_catalog, public'), '', 'what the owner of the database prepares');
my $from = length logged();
my $oid = $node->safe_psql('postgres', q{SELECT oid FROM pg_database WHERE datname = 'owned'});
$node->restart;
wait_for(sub { logged($from) =~ /gpuvec autoprewarm loaded 2 mirrors of database $oid/ }, 'the worker');
is($node->safe_psql('postgres', $expected), '2', 'both are resident again');
is(sprung($from), '', 'nothing of it ran');
is($node->safe_psql('owned', "SET search_path = public; $searches"), "10\n7", 'nor is it in the copies');

$node->stop;
done_testing();
