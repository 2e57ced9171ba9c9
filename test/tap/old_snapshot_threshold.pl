# old_snapshot_threshold (until PostgreSQL 16): pages may be pruned while an old
# snapshot still needs them, and only those who read the pages are told.  A mirror's
# search reads none, so such servers have no mirrors: rule A14.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('plain');
my $exists = $node->safe_psql('postgres', "SELECT count(*) FROM pg_settings WHERE name = 'old_snapshot_threshold'");
if (!$exists)
{
	is($node->safe_psql('postgres', 'SHOW server_version_num') >= 170000, 1, 'the setting is gone');
	$node->stop;
	done_testing();
	exit;
}
make_docs($node, 500);
my $mirrors = q{SELECT count(*) FROM gpuvec_mirrors WHERE relation = 'docs'::regclass};
best($node, 'without a threshold');
is($node->safe_psql('postgres', $mirrors), '1', 'there is a mirror');

$node->append_conf('postgresql.conf', 'old_snapshot_threshold = 60');
$node->restart;
is($node->safe_psql('postgres', GpuvecTest::search_sql('docs')), brute_force($node), 'with a threshold: the same answer');
is($node->safe_psql('postgres', $mirrors), '0', 'but no mirror');
$node->stop;
done_testing();
