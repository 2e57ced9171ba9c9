#!/usr/bin/perl
# Draws doc/images/peers.svg from the tables of test/bench/RESULTS.md.
#
#	scripts/charts.pl            prints the chart
#	scripts/charts.pl --check    compares it with what is committed; the exit status is 1 if it differs
#
# A line of the chart is a row of a table there: what was asked, how long gpuvec took, and how
# long its neighbour.  Times go by powers of ten.  Where runs differ, the chart has the first.
use strict;
use warnings;
use utf8;
use open qw(:std :encoding(UTF-8));

use Cwd qw(abs_path);
use File::Basename;

my $top = abs_path(dirname(__FILE__) . '/..');
my $width = 640;
my ($left, $right) = (14, 626);
my ($least, $most) = (0.1, 100000);

sub slurp
{
	my ($file) = @_;
	open(my $handle, '<', $file) or die "$file: $!\n";
	local $/;
	return scalar <$handle>;
}

# The rows of the tables below a heading, by their first cells joined with the second
sub table_below
{
	my ($results, $heading) = @_;
	my ($section) = $results =~ /^### \Q$heading\E(.*?)(?=^##)/ms or die "RESULTS.md has no heading $heading\n";
	my ($date) = $section =~ /^; (.*)$/m;
	my %rows;
	foreach my $line ($section =~ /^\|(.*)\|$/mg)
	{
		my @cells = map { s/^\s+|\s+$//gr } split /\|/, $line;
		$rows{"$cells[0]; $cells[1]"} = \@cells;
	}
	return ($date, \%rows);
}

# Of the numbers of a cell, the one that is nearest to another
sub nearest
{
	my ($cell, $wanted) = @_;
	my @numbers = map { s/,//gr } $cell =~ /(\d+(?:,\d{3})*)/g;
	my ($best) = sort { abs($a - $wanted) <=> abs($b - $wanted) } @numbers;
	return $best;
}

# The first number of a cell
sub number
{
	my ($cell) = @_;
	my ($number) = $cell =~ /^([\d.,]+)/ or die "no number: $cell\n";
	return $number =~ s/,//gr;
}

# A time as people read it
sub readable
{
	my ($ms) = @_;
	return sprintf('%.1f s', $ms / 1000) if $ms >= 1000;
	return $ms >= 10 ? sprintf('%.0f ms', $ms) : sprintf('%.2g ms', $ms);
}

sub x_of
{
	my ($ms) = @_;
	return $left + ($right - $left - 80) * log($ms / $least) / log($most / $least);
}

# A pair of bars: what was asked, gpuvec's time, the neighbour, its time, how many times that is
sub pair
{
	my ($y, $what, $ms, $peer, $peer_ms, $times) = @_;
	my $svg = sprintf(qq{<text x="%d" y="%d">%s</text>\n}, $left, $y + 14, $what);
	$svg .= sprintf(qq{<text class="times" x="%d" y="%d" text-anchor="end">%s times</text>\n}, $right, $y + 14, nearest($times, $peer_ms / $ms) =~ s/(\d)(?=(\d{3})+$)/$1,/gr);
	my @bars = ([ 'ours', $ms, 'gpuvec ' . readable($ms) ], [ 'theirs', $peer_ms, "$peer " . readable($peer_ms) ]);
	foreach my $i (0, 1)
	{
		my ($class, $time, $label) = @{ $bars[$i] };
		my $top = $y + 21 + $i * 21;
		my $end = x_of($time);
		# a long bar has its words inside
		my ($x, $anchor, $in) = $end > $width / 2 ? ($end - 6, 'end', ' in') : ($end + 6, 'start', '');
		$svg .= sprintf(qq{<rect class="%s" x="%d" y="%d" width="%.1f" height="18" rx="2"/>\n}, $class, $left, $top, $end - $left);
		$svg .= sprintf(qq{<text class="small%s" x="%.1f" y="%d" text-anchor="%s">%s</text>\n}, $in, $x, $top + 14, $anchor, $label);
	}
	return $svg;
}

sub axis
{
	my ($top, $bottom) = @_;
	my $svg = '';
	foreach my $ms (1, 10, 100, 1000, 10000)
	{
		my $x = x_of($ms);
		$svg .= sprintf(qq{<path class="grid" d="M%.1f %d V%d"/>\n}, $x, $top, $bottom);
		$svg .= sprintf(qq{<text class="small" x="%.1f" y="%d" text-anchor="middle">%s</text>\n}, $x, $bottom + 16, $ms >= 1000 ? ($ms / 1000) . ' s' : "$ms ms");
	}
	return $svg;
}

my $style = <<'CSS';
<style>
	.page { fill: #ffffff; }
	text { fill: #1b2430; }
	.small { font-size: 14px; fill: #4b5868; }
	.times { font-weight: 600; }
	.in { fill: #ffffff; }
	.ours { fill: #2f8f5b; }
	.theirs { fill: #66758a; }
	.grid { stroke: #dde3ea; stroke-width: 1; }
	@media (prefers-color-scheme: dark) {
		.page { fill: #10151c; }
		text { fill: #e6ebf2; }
		.small { fill: #a9b6c6; }
		.in { fill: #ffffff; }
		.ours { fill: #3aa66c; }
		.theirs { fill: #5c6b80; }
		.grid { stroke: #2a3440; }
	}
</style>
CSS

# What is drawn: [what was asked, row of the table, columns of both times, the neighbour]
sub lines
{
	my ($similar, $sets) = @_;
	my @lines;
	foreach my $line (
		[ '10 nearest of 1,000,000 strings', 'strings: nearest 10; 1,000,000', 'pg_trgm, GiST' ],
		[ 'strings with a similarity of at least 0.3', 'similarity of at least 0.3, one query a statement; 1,000,000', 'pg_trgm, GIN' ],
		[ '100 such searches in one statement', 'the same, 100 queries in one statement; 1,000,000', 'pg_trgm, GIN' ],
		[ 'fingerprints with a Tanimoto of at least 0.5', q{fingerprints: Tanimoto of at least 0.5, RDKit's GiST index; 1,000,000}, 'RDKit, GiST' ],
		[ '10 nearest of 1,000,000 fingerprints', q{nearest 10, RDKit's sequential scan and sort, one process; 1,000,000}, 'RDKit, scan and sort' ])
	{
		my ($what, $row, $peer) = @$line;
		my $cells = $similar->{$row} or die "RESULTS.md has no row $row\n";
		push @lines, [ $what, number($cells->[2]), $peer, number($cells->[3]), $cells->[4] ];
	}
	my $ours = $sets->{'gpuvec; 1,000,000'} or die "RESULTS.md has no row of gpuvec\n";
	foreach my $line ([ 'GIN with intarray, and a sort', 'GIN and a sort' ], [ 'sequential scan, default workers', 'scan and sort, parallel' ])
	{
		my ($row, $peer) = @$line;
		my $cells = $sets->{"$row; 1,000,000"} or die "RESULTS.md has no row $row\n";
		push @lines, [ '100 nearest of 1,000,000 sets', number($ours->[4]), $peer, number($cells->[4]), $cells->[6] ];
	}
	return @lines;
}

sub chart
{
	my $results = slurp("$top/test/bench/RESULTS.md");
	my ($date, $similar) = table_below($results, 'Trigrams and fingerprints beside their neighbours');
	my ($date_of_sets, $sets) = table_below($results, 'Index scans and other ways to the same rows');
	my @lines = lines($similar, $sets);
	my $step = 72;
	my $bottom = 44 + $step * @lines;
	my $height = $bottom + 62;
	my $svg = qq{<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 $width $height" role="img" aria-labelledby="title"
	font-family="system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="16">
<title id="title">Times of the same searches by gpuvec and by other extensions</title>
$style<rect class="page" width="$width" height="$height" rx="8"/>
<text x="$left" y="26" font-weight="600">Milliseconds of a statement; each line is ten times the one before</text>
};
	$svg .= axis(40, $bottom);
	$svg .= pair(44 + $step * $_, @{ $lines[$_] }) foreach 0 .. $#lines;
	$svg .= sprintf(qq{<text class="small" x="%d" y="%d">Two shared cores, no GPU, PostgreSQL 15; %s, sets %s.</text>\n}, $left, $bottom + 36, $date, $date_of_sets);
	$svg .= sprintf(qq{<text class="small" x="%d" y="%d">From test/bench/RESULTS.md; all with equal rows and scores.</text>\n</svg>\n}, $left, $bottom + 54);
	return $svg;
}

my $chart = chart();
if ("@ARGV" ne '--check') { print $chart; }
elsif ($chart ne slurp("$top/doc/images/peers.svg"))
{
	print "doc/images/peers.svg is not what scripts/charts.pl makes of test/bench/RESULTS.md\n";
	exit 1;
}
