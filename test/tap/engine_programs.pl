# Which program the engine is: of two beside postgres the one with kernels, unless gpuvec.engine is cpu.
use strict;
use warnings;

use File::Copy qw(copy);
use File::Path qw(make_path);
use GpuvecTest;
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;

my $given = $ENV{GPUVEC_ENGINE_PROGRAM} or plan skip_all => 'the engine is not staged';

# A copy of the server's program, with what it looks for by paths relative to its own.  Among
# its extensions are the staged ones.
my $root = PostgreSQL::Test::Utils::tempdir();
my %path = map { chomp(my $path = `pg_config --$_`); $_ => $path } qw(bindir sharedir pkglibdir);
my $bindir = "$root$path{bindir}";
my $stage = $given =~ s{\Q$path{bindir}\E/[^/]*$}{}r;

# Make links in a folder to all that is in another, but for these
sub link_all
{
	my ($from, $to, @but) = @_;
	make_path($to);
	foreach my $path (glob "$from/*")
	{
		my $name = $path =~ s{.*/}{}r;
		symlink($path, "$to/$name") unless -e "$to/$name" || grep { $_ eq $name } @but;
	}
	return;
}
make_path($bindir);
link_all("$_$path{pkglibdir}", "$root$path{pkglibdir}") foreach $stage, '';
link_all($path{sharedir}, "$root$path{sharedir}", 'extension');
link_all("$_$path{sharedir}/extension", "$root$path{sharedir}/extension") foreach $stage, '';

sub place
{
	my ($from, $name) = @_;
	copy($from, "$bindir/$name") or die "$from: $!";
	chmod(0755, "$bindir/$name");
	return;
}
place("$path{bindir}/postgres", 'postgres');
place($given, 'gpuvec-engine');

my $node = new_node('main', started => 0, conf => "gpuvec.engine_program = ''\ngpuvec.engine = auto\n");
$node->append_conf('postgresql.conf', "extension_destdir = ''") if slurp_file($ENV{GPUVEC_CONF}) =~ /extension_destdir/;
my @pg_ctl = ('pg_ctl', '-D', $node->data_dir, '-l', $node->logfile, '-s', '-w');
system_or_bail(@pg_ctl, '-p', "$bindir/postgres", 'start');

# The name of the program that runs, once it is another engine than before
my $pid = 0;

sub program
{
	my ($what) = @_;
	my ($now, $name) = ('', '');

	wait_for(
		sub {
			$now = engine_pid($node);
			return 0 if $now eq '' || $now eq $pid;
			return ($name = readlink("/proc/$now/exe") // '') ne '';
		},
		$what);
	$pid = $now;
	return $name =~ s{.*/}{}r;
}

$node->safe_psql('postgres', 'CREATE EXTENSION gpuvec');
make_docs($node, 1000);
my $expected = brute_force($node);
is(best($node, 'one program'), '', 'one program: no warning');
is(program('the first engine'), 'gpuvec-engine', 'one program');

place($given, 'gpuvec-engine-cuda');
$node->reload;
is(program('an engine after a program was added'), 'gpuvec-engine-cuda', 'two programs');
is($node->safe_psql('postgres', GpuvecTest::search_sql('docs')), $expected, 'two programs: right rows');

$node->append_conf('postgresql.conf', 'gpuvec.engine = cpu');
$node->reload;
is(program('an engine on the CPU'), 'gpuvec-engine', 'two programs, and the CPU asked for');

$node->append_conf('postgresql.conf', "gpuvec.engine_program = '$bindir/gpuvec-engine-cuda'");
$node->reload;
is(program('an engine of a given program'), 'gpuvec-engine-cuda', 'a program that is given');

chmod(0644, "$bindir/gpuvec-engine-cuda");
$node->append_conf('postgresql.conf', "gpuvec.engine_program = ''\ngpuvec.engine = auto");
$node->reload;
is(program('an engine after a program was lost'), 'gpuvec-engine', 'a program that must not be executed');

system_or_bail(@pg_ctl, '-m', 'fast', 'stop');
no_leftovers($node, $pid, 'stop');

# a server in the foreground, whose input is a file: the engine has neither
# that nor anything else of the server's
append_to_file("$root/input", '');
my $server = fork() // die $!;
if ($server == 0)
{
	open(STDIN, '<', "$root/input") && open(STDOUT, '>>', $node->logfile) && open(STDERR, '>&', \*STDOUT) && exec("$bindir/postgres", '-D', $node->data_dir);
	POSIX::_exit(1);
}
ok($node->poll_query_until('postgres', 'SELECT true'), 'a server in the foreground');
is(best($node, 'foreground'), '', 'foreground: no warning');
is(program('its engine'), 'gpuvec-engine', 'its engine');
my @kinds = map { (readlink("/proc/$pid/fd/$_") // 'closed') =~ s/:\[\d+\]$//r } 0 .. 4;
is("@kinds", '/dev/null /dev/null pipe socket socket', 'descriptors of the engine');
is(join(' ', grep { /^\Q$root\E|^\Q@{[$node->data_dir]}\E/ } map { readlink($_) // '' } glob "/proc/$pid/fd/*"), '', 'none is of a file of the server');
system_or_bail(@pg_ctl, '-m', 'fast', 'stop');
waitpid($server, 0);
no_leftovers($node, $pid, 'stop in the foreground');
done_testing();
