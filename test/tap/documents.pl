# What pages say runs and prints what they show; the reference names what the catalog has.
#
# Each page is a session in a new and empty database (scripts/documents.pl).  A block of
# statements that is not run is counted here, so that none is left out by mistake.
use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename;
use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = abs_path('../..');
my $program = "$top/scripts/documents.pl";
my $node = new_node('main', conf => "max_worker_processes = 20\n");

$ENV{PGHOST} = $node->host;
$ENV{PGPORT} = $node->port;
delete $ENV{PGDATABASE};

# Pages with blocks that are not run, and how many each has
# servers.md: foreign servers, and Citus
my %not_run = ('servers.md' => 2);

# What the program prints, and its exit status
sub documents
{
	my $output = '';
	IPC::Run::run([ $^X, $program, @_ ], '>', \$output, '2>&1');
	return ($output, $?);
}

my $compared = 0;

foreach my $page ("$top/README.md", sort glob "$top/doc/*.md")
{
	my $name = basename($page);
	my ($kinds) = documents('count', $page);

	my ($blocks) = $kinds =~ /sql not-run: (\d+)/;
	is($blocks // 0, $not_run{$name} // 0, "$name: blocks that are not run");
	next unless $kinds =~ /\bsql\b/;

	my ($output, $status) = documents('run', $page);
	is($status, 0, "$name: statements run and print what the page shows") or diag($output);
	$compared += $1 if $output =~ /(\d+) compared$/;
}
cmp_ok($compared, '>', 50, 'blocks whose output was compared');

# A page that is wrong is found out
my $wrong = PostgreSQL::Test::Utils::tempdir() . '/wrong.md';
append_to_file($wrong, "```sql\nCREATE EXTENSION gpuvec;\nSELECT cardinality('{1,2}'::idset);\n```\n\n```\n cardinality\n-------------\n           3\n```\n");
my ($output, $status) = documents('run', $wrong);
isnt($status, 0, 'a page with a wrong result fails');
like($output, qr/wrong\.md:1: the page has/, 'and it is said where');

my ($reference) = documents('reference');
is($reference, slurp_file("$top/doc/reference.md"), 'doc/reference.md is what "scripts/documents.pl reference" prints');

$node->stop;
done_testing();
