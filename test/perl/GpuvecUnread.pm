# A client that does not read its socket.
package GpuvecUnread;

use strict;
use warnings;

use Exporter 'import';
use GpuvecTest;
use IO::Socket::UNIX;
use Test::More;

our @EXPORT = qw(unread_client send_query read_results client_state room_of_socket);

# Connect as this role; the client has read what the server said
sub unread_client
{
	my ($node, $role) = @_;
	my $socket = IO::Socket::UNIX->new(Peer => $node->host . '/.s.PGSQL.' . $node->port) or die "could not connect: $!";
	my $client = { socket => $socket };
	my $data = pack('N', 196608) . "user\0$role\0database\0postgres\0\0";

	syswrite($socket, pack('N', 4 + length $data) . $data);
	read_results($client);
	send_query($client, 'SELECT pg_backend_pid()');
	($client->{pid}) = read_results($client) =~ /(\d+)/;
	return $client;
}

sub send_query
{
	my ($client, $sql) = @_;

	$client->{sql} = $sql;
	syswrite($client->{socket}, 'Q' . pack('N', 5 + length $sql) . "$sql\0");
	return;
}

# All messages up to the next ReadyForQuery, as text: rows, messages and errors
sub read_results
{
	my ($client) = @_;
	my $text = '';

	while (1)
	{
		my $head = take($client, 5) // return "$text closed";
		my ($type, $length) = unpack('a N', $head);
		my $body = take($client, $length - 4) // return "$text closed";

		$text .= "$body\n" if $type =~ /[DEN]/;
		return $text if $type eq 'Z';
	}
}

sub take
{
	my ($client, $n) = @_;
	my $data = '';

	while (length($data) < $n)
	{
		sysread($client->{socket}, $data, $n - length($data), length($data)) or return;
	}
	return $data;
}

# What the client's session does, and how many mirrors' locks it has: "before"
# it takes what it was sent last, "idle", "active" and its wait, or "gone"
sub client_state
{
	my ($node, $client) = @_;
	my $sql = substr($client->{sql}, 0, 500);

	return $node->safe_psql('postgres', qq{SELECT coalesce((SELECT CASE WHEN left(query, 500) <> \$sql\$$sql\$sql\$ THEN 'before' WHEN state = 'active' THEN coalesce(wait_event, 'active') ELSE state END
		FROM pg_stat_activity WHERE pid = $client->{pid}), 'gone') || ' ' || (SELECT count(*) FROM pg_locks WHERE locktype = 'userlock' AND pid = $client->{pid} AND granted)});
}

# How long a value the session may send that is not read, so that the next message does not fit
sub room_of_socket
{
	my ($node, $role) = @_;
	my ($low, $high) = (0, 1 << 22);

	while ($high - $low > 64)
	{
		my $middle = int(($low + $high) / 2);
		my $client = unread_client($node, $role);
		my $state = '';

		send_query($client, "SELECT repeat('x', $middle); DO 'BEGIN PERFORM pg_advisory_lock_shared(4711); RAISE WARNING \$\$x\$\$; END'");
		wait_for(sub { ($state = client_state($node, $client)) =~ /^(idle|ClientWrite)/ }, 'an unread client') or die;
		my $second = $node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = $client->{pid}");

		close $client->{socket};
		return $middle if $state =~ /ClientWrite/ && $second;
		if ($state =~ /ClientWrite/) { $high = $middle; } else { $low = $middle; }
	}
	die 'found no length';
}

1;
