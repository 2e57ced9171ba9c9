# Servers that break the protocol, flood, or do nothing at all: a search of them is an error
# within a short time, never an answer, and costs no memory.
use strict;
use warnings;

use GpuvecHostile;
use GpuvecTest;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $main = new_node('main', conf => "max_files_per_process = 64\n");

if ($main->safe_psql('postgres', q{SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw'}) eq '0')
{
	SKIP: { skip('the server lacks postgres_fdw', 1); }
	done_testing();
	exit 0;
}

# ---- what servers say ----

my ($text, $bool, $oid, $int4, $float8, $set) = (25, 16, 26, 23, 701, 99999);
my $home = describe($text, $text, $bool, $oid);
my $home_row = data_row('public', '0.2.0', chr(1), number($set));
my $done = message('C', "SELECT 1\0");
my $rows = describe($int4, $int4, $float8, $int4, $int4, $set);
my $one = pack 'H*', $main->safe_psql('postgres', q{SELECT encode(idset_send('{1}'), 'hex')});
my $row = data_row(number(1), number(1), double(1), number(1), number(7), $one);

# A row whose columns are others: number => bytes
sub odd_row
{
	my %others = @_;
	return data_row(map { exists $others{$_} ? $others{$_} : (number(1), number(1), double(1), number(1), number(7), $one)[$_] } 0 .. 5);
}

# Where gpuvec is, as it should be; then what `say` returns, or sends
sub then_says
{
	my ($say) = @_;
	return sub { my ($sql, $put) = @_; $put->($sql =~ /pg_extension/ ? "$home$home_row$done" : ref $say ? $say->($put) : $say); };
}

# Ever more of the same
sub flood { my ($put, $first, $more) = @_; $put->($first); $put->($more x 100) while 1; }

# What it says of rows of a type that it has not told, then of these rows as
# text
sub asked_again
{
	my ($again) = @_;
	my $times = 0;
	return then_says(sub { return $times++ ? $again : describe($int4, $int4, $float8, $int4, $int4, 99998) . $row . $done; });
}

my $text_row = data_row('1', '1', '1', '1', '7', '{1}');
my $wrong = qr/returned a wrong answer/;
my $long = 'x' x 50000;
my %says = (
	'a good answer' => [ then_says("$rows$row$done"), qr/^1\|1\|\(7,\{1\}\)$/ ],
	'notices' => [ then_says(message('N', "SNOTICE\0C00000\0Mnothing %s\0\0") x 10 . message('A', pack('N Z* Z*', 1, 'channel', 'payload')) . "$rows$row$done"), qr/^1\|1\|\(7,\{1\}\)$/ ],
	'no answer' => [ then_says(''), $wrong ],
	'a command without rows' => [ then_says($done), $wrong ],
	'the end before the answer' => [ then_says(message('Z', 'T') . "$rows$row$done"), $wrong ],
	'rows as text' => [ asked_again("$rows$text_row$done"), qr/^1\|1\|\(7,\{1\}\)$/ ],
	'no answer as text' => [ asked_again(''), $wrong ],
	'a command without rows as text' => [ asked_again($done), $wrong ],
	'rows without an end as text' => [ asked_again("$rows$text_row"), $wrong ],
	'many ends' => [ then_says(message('Z', 'T') x 100 . "$rows$row$done"), $wrong ],
	'rows that are cut off' => [ then_says(sub { $_[0]->($rows . substr($row, 0, 20)); POSIX::_exit(0); }), qr/closed the connection/ ],
	'nothing, and is gone' => [ sub { POSIX::_exit(0) }, qr/closed the connection/ ],
	'rows without a description' => [ then_says("$row$done"), qr/without prior row description/ ],
	'no columns' => [ then_says(describe() . data_row() . $done), $wrong ],
	'many columns' => [ then_says(describe(($int4) x 1600) . data_row((number(1)) x 1600) . $done), $wrong ],
	'two descriptions' => [ then_says($rows . describe($int4) . data_row(number(1)) . $done), $wrong ],
	'a suspended portal' => [ then_says($rows . message('s')), qr/unexpected response/ ],
	'an empty query' => [ then_says(message('I')), qr/could not obtain message string/ ],
	'COPY OUT' => [ then_says(message('H', pack('C n', 0, 0)) . message('d', 'x') . message('c') . $done), qr/could not obtain message string/ ],
	'COPY IN' => [ then_says(message('G', pack('C n', 0, 0)) . $done), qr/could not obtain message string/ ],
	'COPY BOTH' => [ then_says(message('W', pack('C n', 0, 0)) . $done), qr/could not obtain message string/ ],
	'zeros' => [ then_says("\0" x 100), qr/lost synchronization/ ],
	'a message of 2 GB' => [ then_says(pack('a N', 'D', 0x7FFFFFFF) . 'x' x 100), qr/lost synchronization|cannot allocate memory/ ],
	'a message of no length' => [ then_says(pack('a N', 'D', 0xFFFFFFFF) . 'x' x 100), qr/lost synchronization/ ],
	'formats in an error' => [ then_says(text_error('XX000', '%s %n %s \\')), qr/ERROR: %s %n %s \\ DETAIL: %s%n HINT: %d CONTEXT: %s remote/ ],
	'an odd state' => [ then_says(text_error("\x01\xFF--", 'odd')), qr/ERROR: odd/ ],
	'the end of its session' => [ then_says(text_error('57P01', 'gone', 'FATAL')), qr/ERROR: gone/ ],
	'a short number' => [ then_says($rows . odd_row(0 => 'a') . $done), qr/insufficient data/ ],
	'a malformed set' => [ then_says($rows . odd_row(5 => "\xFF" x 9) . $done), qr/external "idset" value/ ],
	'a huge set' => [ then_says($rows . odd_row(5 => number(0x7FFFFFFF)) . $done), qr/external "idset" value/ ],
	'no rank' => [ then_says($rows . odd_row(1 => undef) . $done), $wrong ],
	'no score' => [ then_says($rows . odd_row(2 => pack('H16', '7ff8000000000000')) . $done), $wrong ],
	'no place of gpuvec' => [ sub { $_[1]->($home . data_row(undef, undef, undef, undef) . $done); }, qr/does not exist on server/ ],
	'no version of gpuvec' => [ sub { $_[1]->($home . data_row('public', undef, chr(1), number($set)) . $done); }, qr/does not exist on server/ ],
	'statements for a schema' => [ sub { my ($sql, $put) = @_; $put->($sql =~ /pg_extension/ ? $home . data_row('x".f(); --', '0', chr(1), number($set)) . $done : text_error('22000', "<$sql>")); }, qr/<SELECT [^;]+ FROM "x"".f\(\); --".gpuvec_topk_batch_rows\(/ ],
	'places of gpuvec without end' => [ sub { flood($_[1], $home, data_row($long, '0', chr(1), number($set))) }, $wrong ],
	'rows without end' => [ then_says(sub { flood($_[0], $rows, $row) }), $wrong ],
	'rows of another type without end' => [ then_says(sub { flood($_[0], describe($int4, $int4, $float8, $int4, $text, $set), data_row(number(1), number(1), double(1), number(1), $long, $one)) }), qr/statement timeout/ ],
	'settings without end' => [ then_says(sub { flood($_[0], $rows, message('S', "a\0b\0")) }), qr/statement timeout/ ]);

# it takes no request to cancel of who waits for what is never said
my @names = (sort(keys %says), 'for ever', map { "again $_" } 1 .. 40);
$says{'for ever'} = [ then_says(sub { sleep 1000; '' }) ];
$says{$_} = $says{'a good answer'} for grep { /again/ } @names;
my $port = start_hostile({ map { $_ => $says{$_}[0] } @names }, sub { sleep 1000 });

# ---- one after the other ----

sub make_table
{
	my ($name, $table) = @_;
	$main->safe_psql('postgres', qq{CREATE SERVER "$table" FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '127.0.0.1', port '$port', dbname '$name');
		CREATE USER MAPPING FOR CURRENT_USER SERVER "$table" OPTIONS (user 'a', password 'b'); CREATE FOREIGN TABLE "$table" (id int, tokens idset) SERVER "$table" OPTIONS (table_name 'docs')});
	return;
}

sub search { my ($table) = @_; return qq{SELECT t.rank, t.score, t.item FROM gpuvec_topk_rows(NULL::"$table", 'tokens', '{1}', 3) t}; }

# what a statement returns, or its error, in one line
sub result
{
	my ($sql) = @_;
	my $timed_out = 0;
	my ($rc, $out, $err) = $main->psql('postgres', $sql, timeout => $PostgreSQL::Test::Utils::timeout_default // 180, timed_out => \$timed_out);

	$err =~ s/\s+/ /g;
	return $timed_out ? 'the session hangs' : $rc ? $err : $out;
}

# the request to cancel is never taken, so errors take a moment
$main->safe_psql('postgres', 'CREATE EXTENSION postgres_fdw');
make_table($_, $_) for @names;
my $quick = start_hostile({ map { $_ => $says{$_}[0] } @names });
$main->safe_psql('postgres', qq{ALTER SERVER "$_" OPTIONS (SET port '$quick')}) for @names;
my $session = $main->background_psql('postgres', on_error_stop => 0);
my $pid = ask($session, 'SELECT pg_backend_pid()');
foreach my $name (grep { !/again|for ever/ } @names)
{
	like(result(q{SET statement_timeout = '3s'; } . search($name)), $says{$name}[1], "a server says $name");
	$session->query(q{SET statement_timeout = '1s'; } . search($name)) if $name =~ /without end/;
}
my ($peak) = slurp_file("/proc/$pid/status") =~ /VmHWM:\s*(\d+)/;
cmp_ok($peak, '<', 150_000, 'what has no end takes no memory');
like($session->query(search('a good answer')), qr/^1\|1\|\(7,\{1\}\)$/m, 'and the session goes on');
$session->quit;

# ---- many servers ----

# a third of 64 files, less some, are for connections
is(result(join('; ', map { search("again $_") } 1 .. 40)), join("\n", ('1|1|(7,{1})') x 40), 'connections that are not used make room for others');
$main->safe_psql('postgres', 'CREATE TABLE parted (id int, tokens idset) PARTITION BY LIST (id)');
$main->safe_psql('postgres', qq{ALTER TABLE parted ATTACH PARTITION "again $_" FOR VALUES IN ($_)}) for 1 .. 40;
like(result(search('parted')), qr/too many open files/, 'more servers at once than files is an error');
is(result(search('again 1') . '; ' . search('again 2')), "1|1|(7,{1})\n1|1|(7,{1})", 'after which others work');

# ---- servers that do nothing ----

$main->safe_psql('postgres', 'CREATE TABLE waiting (id int, tokens idset) PARTITION BY LIST (id)');
foreach my $n (1 .. 3)
{
	make_table('for ever', "wait $n");
	$main->safe_psql('postgres', qq{ALTER TABLE waiting ATTACH PARTITION "wait $n" FOR VALUES IN ($n)});
}
my %seconds;
foreach my $table ('wait 1', 'waiting')
{
	my $begin = time;
	like(result(q{SET statement_timeout = '500ms'; } . search($table)), qr/^(?=.*statement timeout).*could not send cancel request.*within/, "servers of $table do not take a cancel");
	$seconds{$table} = time - $begin;
}
cmp_ok($seconds{waiting}, '<', 2 * $seconds{'wait 1'}, 'three servers are waited for at the same time');
my $run = start_psql($main, search('waiting'));
my $waits = $main->pg_version >= 17 ? 'GpuvecServers' : 'Extension';
ok(wait_for(sub { $pid = $main->safe_psql('postgres', qq{SELECT pid FROM pg_stat_activity WHERE query LIKE '%waiting%' AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND wait_event = '$waits'}); $pid ne '' }, 'the search'), 'a session waits');
$main->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
if (ok(wait_for(sub { !kill 0, $pid }, 'its end'), 'and can be ended')) { like(finish_psql($run), qr/terminating connection/, 'as it should'); }
else { $run->{run}->kill_kill; }

stop_hostile($_) for $port, $quick;
$main->stop('immediate');
done_testing();
