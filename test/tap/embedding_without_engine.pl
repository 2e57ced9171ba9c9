# All options of embedding tables (sql/embedding_all_options.sql, against plain SQL) once more, without an engine, with one
# that refuses what is not small, so that sessions ask for parts, and with a GPU that looks up keys of small requests, too.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
my $script = '../../sql/embedding_all_options.sql';
my $engine = $node->safe_psql('postgres', 'SHOW gpuvec.engine');
$node->stop;

# the script's output: tables and combinations that were checked, warnings and errors
sub run_options
{
	my ($fault) = @_;
	local $ENV{GPUVEC_ENGINE_FAULT} = $fault;
	local $ENV{PGOPTIONS} = '-c gpuvec.verify=off';
	$node->start;
	my ($out, $err) = ('', '');
	IPC::Run::run(['psql', '-X', '-q', '-A', '-t', '-f', $script, '-h', $node->host, '-p', $node->port, 'postgres'], '>', \$out, '2>', \$err);
	$node->stop;
	$err =~ s/^psql:[^ ]*: //mg;
	return ($out, $err);
}

my ($out, $err) = run_options('crash-at-start');
like($out, qr/^30\|360$/m, 'no engine: all tables');
like($out, qr/^4\|12$/m, 'no engine: wide ones');
is_deeply([grep { !/^WARNING:  gpuvec searches without its engine/ } split /\n/, $err], [], 'no engine: no mistakes');

# wide vectors do not fit at all
($out, $err) = run_options('embed-limit:500');
like($out, qr/^30\|360$/m, 'in parts: all tables');
like($err, qr/the vectors of one call would be too large/, 'the limit counts');
is_deeply([grep { !/^ERROR:  the vectors of one call would be too large/ } split /\n/, $err], [], 'in parts: no mistakes');

# with a GPU: it looks up all keys
if ($engine eq 'cuda')
{
	($out, $err) = run_options('device-keys:1');
	like($out, qr/^30\|360$/m, 'keys on the GPU: all tables');
	like($out, qr/^4\|12$/m, 'keys on the GPU: wide ones');
	is($err, '', 'keys on the GPU: no mistakes');
}
done_testing();
