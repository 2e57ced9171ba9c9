# A server that speaks PostgreSQL's protocol, and says what it likes.
package GpuvecHostile;

use strict;
use warnings;

use Exporter 'import';
use IO::Socket::INET;
use POSIX ();

our @EXPORT = qw(start_hostile stop_hostile message describe data_row number double text_error);

my %pid;

# A message: its type and what follows its length
sub message { my ($type, $data) = @_; return pack('a N', $type, 4 + length($data // '')) . ($data // ''); }

# Columns of the given types, in binary format
sub describe
{
	my @types = @_;
	return message('T', pack('n', scalar @types) . join('', map { pack('Z* N n N n N n', "c", 0, 0, $_, 65535, 4294967295, 1) } @types));
}

# Values, as bytes; undef is NULL
sub data_row { return message('D', pack('n', scalar @_) . join('', map { defined $_ ? pack('N', length $_) . $_ : pack('N', 0xFFFFFFFF) } @_)); }
sub number { return pack('N', $_[0] & 0xFFFFFFFF); }
sub double { return pack('d>', $_[0]); }

sub text_error
{
	my ($state, $text, $severity) = @_;
	$severity //= 'ERROR';
	return message('E', "S$severity\0V$severity\0C$state\0M$text\0D%s%n\0H%d\0W%s\0\0");
}

# Read so many bytes; nothing if the other end has gone
sub take
{
	my ($socket, $n) = @_;
	my $data = '';

	while (length($data) < $n)
	{
		my $got = sysread($socket, $data, $n - length($data), length($data));
		return unless $got;
	}
	return $data;
}

# Send; ends the process if the other end has gone
sub put
{
	my ($socket, $data) = @_;
	my $sent = 0;

	while ($sent < length $data)
	{
		my $n = syswrite($socket, $data, 1 << 20, $sent);
		POSIX::_exit(0) unless defined $n;
		$sent += $n;
	}
	return;
}

# Startup messages, until the one that names the database
sub greet
{
	my ($socket, $canceled) = @_;

	for (;;)
	{
		my $length = take($socket, 4) // POSIX::_exit(0);
		my $data = take($socket, unpack('N', $length) - 4) // POSIX::_exit(0);
		my $code = unpack('N', $data);

		if ($code == 80877102) { $canceled->(); POSIX::_exit(0); }
		if ($code == 80877103 || $code == 80877104) { put($socket, 'N'); next; }
		my %options = split /\0/, substr($data, 4);
		return $options{database};
	}
}

# What one connection says: `answers` has for each database a function of the statement, and
# of a function that sends something
sub serve
{
	my ($socket, $answers, $canceled) = @_;
	my $database = greet($socket, $canceled);
	my $answer = $answers->{$database} // POSIX::_exit(0);
	my $sql = '';

	put($socket, message('R', pack('N', 0)) . message('S', "server_version\0" . "15.0\0") . message('S', "client_encoding\0UTF8\0")
		  . message('K', pack('N N', 1, 2)) . message('Z', 'I'));
	for (;;)
	{
		my $type = take($socket, 1) // POSIX::_exit(0);
		my $length = take($socket, 4) // POSIX::_exit(0);
		my $data = take($socket, unpack('N', $length) - 4) // '';

		POSIX::_exit(0) if $type eq 'X';
		if ($type eq 'P') { (undef, $sql) = split /\0/, $data; put($socket, message('1')); }
		elsif ($type eq 'B') { put($socket, message('2')); }
		elsif ($type eq 'D' && $sql !~ /^SELECT/) { put($socket, message('n')); }
		elsif ($type eq 'E' && $sql !~ /^SELECT/) { put($socket, message('C', "DONE\0")); }
		elsif ($type eq 'E') { $answer->($sql, sub { put($socket, $_[0]); }); }
		elsif ($type eq 'S') { put($socket, message('Z', 'I')); }
	}
}

# Start a server; returns its port.  canceled() is called for each request to cancel.
sub start_hostile
{
	my ($answers, $canceled) = @_;
	my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 0, Listen => 20, Proto => 'tcp') or die "cannot listen: $!\n";
	my $port = $listener->sockport;
	my $pid = fork() // die "cannot fork: $!\n";

	if ($pid == 0)
	{
		local $SIG{CHLD} = 'IGNORE';
		setpgrp(0, 0);
		while (1)
		{
			my $socket = $listener->accept or next;
			my $child = fork();
			if (defined $child && $child == 0) { close $listener; $SIG{PIPE} = 'IGNORE'; serve($socket, $answers, $canceled // sub { }); POSIX::_exit(0); }
			close $socket;
		}
	}
	$pid{$port} = $pid;
	return $port;
}

sub stop_hostile
{
	my ($port) = @_;
	my $server = delete $pid{$port};

	kill '-KILL', $server;
	waitpid $server, 0;
	return;
}

# also if the test has died; children end by _exit(), and do not come here
END
{
	my $status = $?;
	stop_hostile($_) for keys %pid;
	$? = $status;
}

1;
