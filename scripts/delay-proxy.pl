#!/usr/bin/perl
# Passes TCP connections on, and each byte a while later: a network with a long way.
#
#   scripts/delay-proxy.pl LISTEN_PORT HOST:PORT MILLISECONDS
#
# The delay holds for each direction, so a round trip takes twice as long.  The proxy
# listens on 127.0.0.1, and runs until it is ended.
use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use Socket qw(IPPROTO_TCP TCP_NODELAY);
use Time::HiRes qw(time);

my ($port, $target, $ms) = @ARGV;
die "usage: $0 LISTEN_PORT HOST:PORT MILLISECONDS\n" if !defined $ms;
my $listen = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 100, ReuseAddr => 1) or die "cannot listen: $!\n";
$SIG{CHLD} = 'IGNORE';

# Both directions of one connection, until one side ends
sub pass_on
{
	my ($client) = @_;
	my $server = IO::Socket::INET->new(PeerAddr => $target) or exit 1;
	my %other = (fileno($client) => $server, fileno($server) => $client);
	my @queue;
	my $select = IO::Select->new($client, $server);

	setsockopt($_, IPPROTO_TCP, TCP_NODELAY, 1) for $client, $server;
	while (1)
	{
		my $wait = @queue ? $queue[0][0] - time : undef;

		for my $from ($select->can_read(defined $wait && $wait < 0 ? 0 : $wait))
		{
			sysread($from, my $bytes, 1 << 16) or exit 0;
			push @queue, [ time + $ms / 1000, $other{ fileno($from) }, $bytes ];
		}
		while (@queue && $queue[0][0] <= time)
		{
			my (undef, $to, $bytes) = @{ shift @queue };

			while (length $bytes)
			{
				my $n = syswrite($to, $bytes) or exit 0;
				$bytes = substr($bytes, $n);
			}
		}
	}
}

while (my $client = $listen->accept)
{
	if (fork)
	{
		close $client;
		next;
	}
	close $listen;
	pass_on($client);
}
