#!/usr/bin/perl
# Prints the page of "make demo".
#
#	scripts/demo-page.pl FOLDER BUILT SECONDS
#
# FOLDER has the files of scripts/demo.sh: map (scripts/demo-map.sql), fuzzy
# (scripts/demo-fuzzy.sh) and sections.html.  BUILT says what was built, SECONDS how long all
# that came after the build has taken.
#
# The map is laid out by forces: all packages repel each other, neighbors attract each other,
# and a weak spring draws each to the middle of its group.  It is the same each time.
use strict;
use warnings;
use utf8;
use open qw(:std :encoding(UTF-8));

use POSIX qw(strftime);

my ($folder, $built, $seconds) = @ARGV;
my ($width, $height) = (1180, 760);
my @colors = ('#3b7dd8', '#d9683c', '#2f9e62', '#9a5fc7', '#c2923a', '#d14d72', '#3aa3a8');

# The lines of a file, cut at tabs
sub rows
{
	my ($name) = @_;
	open(my $handle, '<', "$folder/$name") or die "$folder/$name: $!\n";
	return map { chomp; [ split /\t/ ] } <$handle>;
}

sub escaped
{
	my ($text) = @_;
	$text =~ s/&/&amp;/g;
	$text =~ s/</&lt;/g;
	$text =~ s/>/&gt;/g;
	$text =~ s/"/&quot;/g;
	return $text;
}

# ---- the map ----

# Where a package begins: groups in staggered rows, the first of a group in its middle
sub place
{
	my ($nodes, $groups) = @_;
	my $rows = 3;
	foreach my $node (values %$nodes)
	{
		my $row = $node->{group} % $rows;
		my $column = int($node->{group} / $rows);
		my $columns = int(($groups - $row + $rows - 1) / $rows);
		my ($far, $turn) = ($node->{rank} == 1 ? 0 : 45, 2.4 * $node->{rank});
		$node->{home_x} = ($width - 90) * ($column + 0.5) / $columns;
		$node->{home_y} = $height * ($row + 0.5) / $rows;
		$node->{x} = $node->{home_x} + $far * cos $turn;
		$node->{y} = $node->{home_y} + $far * sin $turn;
	}
	return;
}

# Move two nodes apart (positive) or together
sub push_apart
{
	my ($a, $b, $force, $dx, $dy, $distance) = @_;
	my ($fx, $fy) = ($dx / $distance * $force, $dy / $distance * $force);
	$a->{fx} += $fx;
	$a->{fy} += $fy;
	$b->{fx} -= $fx;
	$b->{fy} -= $fy;
	return;
}

# One step of all nodes; none goes farther than $most
sub step
{
	my ($all, $edges, $most) = @_;
	my $rest = 46;
	foreach my $node (@$all)
	{
		$node->{fx} = 0.25 * ($node->{home_x} - $node->{x});
		$node->{fy} = 0.35 * ($node->{home_y} - $node->{y});
	}
	foreach my $i (0 .. $#$all)
	{
		foreach my $j (0 .. $i - 1)
		{
			my ($dx, $dy) = ($all->[$i]{x} - $all->[$j]{x}, $all->[$i]{y} - $all->[$j]{y});
			my $distance = sqrt($dx * $dx + $dy * $dy) + 0.1;
			push_apart($all->[$i], $all->[$j], $rest * $rest / $distance, $dx, $dy, $distance) if $distance < 140;
		}
	}
	foreach my $edge (@$edges)
	{
		my ($a, $b, $score) = @$edge;
		my ($dx, $dy) = ($a->{x} - $b->{x}, $a->{y} - $b->{y});
		my $distance = sqrt($dx * $dx + $dy * $dy) + 0.1;
		push_apart($a, $b, -$distance * $distance / $rest * (0.3 + 0.7 * $score), $dx, $dy, $distance);
	}
	foreach my $node (@$all)
	{
		my $length = sqrt($node->{fx}**2 + $node->{fy}**2) + 0.001;
		my $move = $length < $most ? $length : $most;
		$node->{x} = within($node->{x} + $node->{fx} / $length * $move, 20, $width - 120);
		$node->{y} = within($node->{y} + $node->{fy} / $length * $move, 20, $height - 20);
	}
	return;
}

sub within
{
	my ($value, $least, $most) = @_;
	return $value < $least ? $least : $value > $most ? $most : $value;
}

# Names of packages, the well-known ones first, where they cover no other name
sub labels
{
	my @taken = map { [ $_->{x} - 4, $_->{y} - 4, $_->{x} + 4, $_->{y} + 4 ] } @_;
	my $svg = '';
	foreach my $node (sort { $a->{rank} <=> $b->{rank} || $a->{name} cmp $b->{name} } @_)
	{
		my $seed = $node->{rank} == 1;
		my $wide = length($node->{name}) * ($seed ? 9.5 : 7.1) + 10;
		my $box = [ $node->{x} + 6, $node->{y} - 8, $node->{x} + $wide, $node->{y} + 8 ];
		next if !$seed && grep { $box->[0] < $_->[2] && $box->[2] > $_->[0] && $box->[1] < $_->[3] && $box->[3] > $_->[1] } @taken;
		push @taken, $box;
		$svg .= sprintf(qq{<text class="%s" x="%.1f" y="%.1f">%s</text>\n}, $seed ? 'seed' : 'name', $node->{x} + 8, $node->{y} + 4, escaped($node->{name}));
	}
	return $svg;
}

sub map_svg
{
	my (%nodes, @edges, %groups);
	foreach my $row (rows('map'))
	{
		my ($kind, @cells) = @$row;
		if ($kind eq 'node')
		{
			$groups{ $cells[1] } //= keys %groups;
			$nodes{ $cells[0] } = { name => $cells[0], group => $groups{ $cells[1] }, rank => $cells[2], about => $cells[3] };
		}
		else { push @edges, [ $nodes{ $cells[0] }, $nodes{ $cells[1] }, $cells[2] ]; }
	}
	place(\%nodes, scalar keys %groups);
	my @all = map { $nodes{$_} } sort keys %nodes;
	step(\@all, \@edges, 24 * (1 - $_ / 240) + 0.5) foreach 0 .. 239;

	my $svg = qq{<svg class="map" viewBox="0 0 $width $height" role="img" aria-label="Packages, with lines between those that are alike">\n};
	$svg .= sprintf(qq{<path class="edge" d="M%.1f %.1fL%.1f %.1f" stroke-width="%.1f"/>\n}, $_->[0]{x}, $_->[0]{y}, $_->[1]{x}, $_->[1]{y}, 0.6 + 2.4 * $_->[2]) foreach @edges;
	foreach my $node (@all)
	{
		$svg .= sprintf(qq{<circle cx="%.1f" cy="%.1f" r="%s" fill="%s"><title>%s: %s</title></circle>\n}, $node->{x}, $node->{y},
			$node->{rank} == 1 ? '7' : '4.5', $colors[ $node->{group} % @colors ], escaped($node->{name}), escaped($node->{about}));
	}
	return $svg . labels(@all) . "</svg>\n";
}

# ---- fuzzy search ----

sub readable
{
	my ($ms) = @_;
	return $ms >= 10 ? sprintf('%.0f ms', $ms) : sprintf('%.2f ms', $ms);
}

# A bar with its time behind it; all bars of the page have one scale
sub bar
{
	my ($class, $label, $ms, $most) = @_;
	return sprintf(qq{<div class="bar"><span class="who">%s</span><span class="track"><i class="%s" style="width:%.2f%%"></i></span><span class="ms">%s</span></div>\n},
		$label, $class, 100 * $ms / $most, readable($ms));
}

sub fuzzy_html
{
	my @rows = rows('fuzzy');
	return "<p>pg_trgm is not installed here, so there is nothing to compare.</p>\n" unless @rows;
	my ($most) = sort { $b <=> $a } map { $_->[4] } @rows;
	my $same = grep { $_->[5] eq 't' } @rows;
	my $html = sprintf("<p>Descriptions of %s packages, by their trigrams. Both have found the same in %d of %d searches. Times are medians in one session.</p>\n",
		'41,402', $same, scalar @rows);
	my $kind = '';
	foreach my $row (@rows)
	{
		my ($query, $what, $first, $ours, $theirs) = @$row;
		if ($what ne $kind)
		{
			$kind = $what;
			my $index = $what =~ /nearest/ ? 'GiST' : 'GIN';
			$html .= '<h3>' . ucfirst($what) . " (pg_trgm: $index)</h3>\n";
		}
		$html .= '<div class="search"><p><q>' . escaped($query) . '</q> <span class="first">' . escaped($first) . '</span> <b>'
			. sprintf('%.0f', $theirs / $ours) . " times</b></p>\n" . bar('ours', 'gpuvec', $ours, $most) . bar('theirs', 'pg_trgm', $theirs, $most) . "</div>\n";
	}
	return $html;
}

# ---- the page ----

my $style = <<'CSS';
:root { color-scheme: light dark; --page: #ffffff; --text: #1b2430; --soft: #566476; --line: #d9dfe7; --box: #f5f7fa; --ours: #2f8f5b; --theirs: #8a96a6; }
@media (prefers-color-scheme: dark) { :root { --page: #10151c; --text: #e6ebf2; --soft: #a3b0c1; --line: #2b3643; --box: #18202a; --ours: #3aa66c; --theirs: #66758a; } }
body { margin: 0 auto; max-width: 1180px; padding: 16px; background: var(--page); color: var(--text); font: 16px/1.5 system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; }
h1 { margin: 0 0 4px; font-size: 28px; } h2 { margin: 36px 0 8px; font-size: 20px; } h3 { margin: 18px 0 4px; font-size: 16px; }
p { margin: 6px 0; } .soft { color: var(--soft); }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: 8px; background: var(--box); }
svg.map { display: block; width: 100%; min-width: 900px; height: auto; }
.edge { stroke: var(--soft); stroke-opacity: 0.35; fill: none; }
.name { font-size: 12px; fill: var(--text); } .seed { font-size: 16px; font-weight: 700; fill: var(--text); }
table.rows { display: block; overflow-x: auto; border-collapse: collapse; font-size: 14px; margin: 6px 0; }
table.rows th { text-align: left; color: var(--soft); font-weight: 600; } table.rows td, table.rows th { padding: 3px 14px 3px 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
details { margin: 6px 0; color: var(--soft); } pre { overflow-x: auto; padding: 10px; background: var(--box); border-radius: 6px; font-size: 13px; color: var(--text); }
.search { margin: 8px 0 14px; } .search p { margin: 0; } .first { color: var(--soft); font-size: 14px; }
.bar { display: flex; align-items: center; font-size: 14px; } .who { width: 72px; flex: none; color: var(--soft); } .ms { width: 80px; flex: none; text-align: right; }
.track { flex: auto; height: 12px; background: var(--box); border-radius: 3px; } .track i { display: block; height: 100%; min-width: 2px; border-radius: 3px; }
.ours { background: var(--ours); } .theirs { background: var(--theirs); }
.narrow { display: none; }
@media (max-width: 700px) {
	.narrow { display: block; }
	table.rows td[align="left"] { white-space: normal; }
	table.rows td, table.rows th { padding-right: 8px; }
}
CSS

my ($map, $fuzzy) = (map_svg(), fuzzy_html());
my $sections = join "\n", map { join "\t", @$_ } rows('sections.html');
my $day = strftime('%e %B %Y', localtime) =~ s/^ //r;
$sections =~ s/<p><\/p>\s*|<br ?\/?>//g;
print <<"HTML";
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>gpuvec on Debian's packages</title>
<style>
$style</style>
</head>
<body>
<h1>gpuvec on Debian's packages</h1>
<p class="soft">41,402 packages, each with the set of its tags and of the words of its description. Built $built; data loaded and all
of this page asked in $seconds s, $day. The page needs no server.</p>
<section>
<h2>A map of packages</h2>
<p>Well-known packages in bold, and those most like them by Jaccard's measure; lines join neighbors. It took two statements with
many queries each. Point at a dot to read what it is.</p>
<p class="narrow soft">The map is wider than this window: move it sideways.</p>
<div class="wide">
$map</div>
</section>
<section>
<h2>Fuzzy search, beside pg_trgm</h2>
$fuzzy</section>
$sections
</body>
</html>
HTML
