# More mirrors than sessions have places to tell each other of them: what is known of one table's WAL is not taken for another's.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', conf => "gpuvec.verify = off\ngpuvec.freshness = wal\ngpuvec.refresh_patience = '100ms'\n");
my $tables = 200;
my ($session, $other, $holder, $reader) = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 4;

sub search { return "SELECT count(*) FROM gpuvec_topk('t$_[0]', 'tokens', '[1,50]', 100) WHERE score = 1" }
sub search_others { return ask($session, join(';', map { search($_) } 1 .. $tables)) }

# WAL without a change of these tables
sub make_noise { return $node->safe_psql('postgres', 'CREATE TABLE noise AS SELECT 1 AS a; DROP TABLE noise') }

$node->safe_psql('postgres', join(';', map { "CREATE TABLE t$_ (id int, tokens idset); INSERT INTO t$_ SELECT i, '[1,50]' FROM generate_series(1, 20) i" } 0 .. $tables));
is(search_others(), join("\n", (20) x $tables), 'all rows of each table');
is(ask($_, search(0)), 20, 'and of one more') for $session, $reader;

# The others' WAL is noted, also that of an insertion into the first table
for (1 .. 2) { make_noise(); search_others(); }
$node->safe_psql('postgres', "INSERT INTO t0 VALUES (100, '[1,50]')");
make_noise();
search_others();

# A session takes a place for the first table again, and stops before it notes anything
ask($holder, 'SELECT pg_advisory_lock(71866, 0)');
ask($other, "SET gpuvec.injection_point = 'refresh-after-position'");
$other->query_until(qr/started/, "\\echo started\n" . search(0) . ";\n");
wait_for(sub { $node->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}) > 0 }, 'the stop');
my $pid = ask($reader, 'SELECT pg_backend_pid()');
$reader->query_until(qr/started/, "\\echo started\n" . search(0) . ";\n");
wait_for(sub { $node->safe_psql('postgres', "SELECT state = 'idle' OR wait_event_type IN ('Lock', 'Extension') FROM pg_stat_activity WHERE pid = $pid") eq 't' }, 'an answer, or a wait');
ask($holder, 'SELECT pg_advisory_unlock_all()');
is(ask($_, 'RESET gpuvec.injection_point'), 21, 'the new row is found') for $reader, $other;
$_->quit for $session, $other, $holder, $reader;
$node->stop;
done_testing();
