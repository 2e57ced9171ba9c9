#!/usr/bin/perl
# Checks the pages: README.md, CHANGELOG.md, CONTRIBUTING.md and doc/*.md.
#
#	scripts/documents.pl check             links, widths, fences, spelling, sentences
#	scripts/documents.pl long PAGE...      prints its long sentences
#	scripts/documents.pl run PAGE...       runs the statements of pages, and compares what they print
#	scripts/documents.pl write PAGE...     runs them, and writes what they print into the pages
#	scripts/documents.pl reference         prints doc/reference.md, made from the catalog of a server
#	scripts/documents.pl wrap PAGE...      breaks the lines of paragraphs anew
#	scripts/documents.pl count PAGE...     prints how many blocks there are of each kind
#
# Statements stand in fences whose first word is "sql".  A fence without a word, or with the
# word "text", that follows with nothing but blank lines between, is what psql prints.  Further
# words of a fence of statements say what cannot run everywhere:
#
#	```sql not-run         is not run: it needs other servers, or stands for something else
#	```sql if=EXTENSION    is run where that extension can be installed
#
# A page is one session of psql in a new and empty database, on the server that the environment
# names (PGHOST, PGUSER).  A page that does not create the extension finds it there.  What a block prints is compared, where the page has it; else it must
# print neither an error nor a warning.  Blanks at the ends of lines do not count.
use strict;
use warnings;
use utf8;
use open qw(:std :encoding(UTF-8));

use Cwd qw(abs_path);
use Digest::MD5 qw(md5_hex);
use File::Basename;
use File::Temp qw(tempdir);

my $top = abs_path(dirname(__FILE__) . '/..');
my $psql = $ENV{PSQL} // 'psql';
my $most_columns = 120;
my $faults = 0;

sub fault
{
	print "@_\n";
	$faults++;
	return;
}

sub read_file
{
	my ($file) = @_;
	open(my $handle, '<', $file) or die "$file: $!\n";
	my @lines = <$handle>;
	close $handle;
	chomp @lines;
	return @lines;
}

sub write_file
{
	my ($file, @lines) = @_;
	open(my $handle, '>', $file) or die "$file: $!\n";
	print $handle "$_\n" foreach @lines;
	close $handle;
	return;
}

# The fences of a page: its words, the numbers of its first and last line of text, the text
sub blocks
{
	my @lines = @_;
	my (@blocks, $block);
	foreach my $i (0 .. $#lines)
	{
		if ($lines[$i] =~ /^\s*```(.*)$/)
		{
			if ($block)
			{
				$block->{last} = $i - 1;
				push @blocks, $block;
				undef $block;
			}
			else
			{
				my ($kind, @words) = split ' ', $1;
				$block = { kind => $kind // 'text', words => \@words, first => $i + 1, text => [] };
			}
		}
		elsif ($block)
		{
			push @{ $block->{text} }, $lines[$i];
		}
	}
	return @blocks;
}

# The blocks of statements of a page, each with the block of what it prints, if there is one
sub statements
{
	my @lines = @_;
	my @blocks = blocks(@lines);
	my @found;
	foreach my $i (0 .. $#blocks)
	{
		next unless $blocks[$i]{kind} eq 'sql';
		my $next = $blocks[ $i + 1 ];
		if ($next && $next->{kind} eq 'text')
		{
			my $between = join '', @lines[ $blocks[$i]{last} + 2 .. $next->{first} - 2 ];
			$blocks[$i]{output} = $next if $between =~ /^\s*$/;
		}
		push @found, $blocks[$i];
	}
	return @found;
}

# ---- statements that run ----

# query DATABASE SQL: what psql prints, unaligned
sub query
{
	my ($database, $sql) = @_;
	open(my $pipe, '-|', $psql, '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $database, '-c', $sql) or die "psql: $!\n";
	my @rows = <$pipe>;
	close $pipe or die "psql failed: $sql\n";
	chomp @rows;
	return @rows;
}

# Is this block run here?
sub is_run
{
	my ($block, $available) = @_;
	return 0 if grep { $_ eq 'not-run' } @{ $block->{words} };
	foreach my $word (@{ $block->{words} })
	{
		return 0 if $word =~ /^if=(.*)/ && !$available->{$1};
	}
	return 1;
}

# Without blanks at the ends of lines, and empty lines at both ends
sub plain
{
	my $text = join "\n", map { s/\s+$//r } @_;
	$text =~ s/^\n+|\n+$//g;
	return $text;
}

# Run blocks as one session in an empty database; sets "printed" of each
sub run_blocks
{
	my ($name, @blocks) = @_;
	my $database = lc "page_$name" =~ s/\W/_/gr;
	my $folder = tempdir(CLEANUP => 1);
	my @script;
	foreach my $i (0 .. $#blocks)
	{
		push @script, "\\echo \@\@block $i", @{ $blocks[$i]{text} };
	}
	write_file("$folder/script", @script);
	local $ENV{PGOPTIONS} = '-c client_min_messages=warning';
	query('postgres', "DROP DATABASE IF EXISTS $database");
	query('postgres', "CREATE DATABASE $database TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'");
	query($database, 'CREATE EXTENSION gpuvec') unless grep { /CREATE EXTENSION gpuvec/ } @script;
	system("'$psql' -Xq -P pager=off -P footer=off -d $database <'$folder/script' >'$folder/printed' 2>&1");
	query('postgres', "DROP DATABASE $database");
	my $block;
	foreach my $line (read_file("$folder/printed"))
	{
		if ($line =~ /^\@\@block (\d+)$/)
		{
			$block = $blocks[$1];
			$block->{printed} = [];
		}
		elsif ($block)
		{
			push @{ $block->{printed} }, $line;
		}
	}
	return;
}

# What is wrong with what a block printed; "" if nothing is
sub difference
{
	my ($block) = @_;
	return 'its session had ended' unless $block->{printed};
	my $printed = plain(@{ $block->{printed} });
	if ($block->{output})
	{
		my $wanted = plain(@{ $block->{output}{text} });
		return $printed eq $wanted ? '' : "the page has\n$wanted\nit printed\n$printed";
	}
	return $printed =~ /^(ERROR|WARNING|FATAL|PANIC|invalid|unterminated|server closed)/m ? "it printed\n$printed" : '';
}

# run_page PAGE WRITE: compare or write what its statements print
sub run_page
{
	my ($page, $write) = @_;
	my @lines = read_file($page);
	my %available = map { $_ => 1 } query('postgres', 'SELECT name FROM pg_available_extensions');
	my @all = statements(@lines);
	my @run = grep { is_run($_, \%available) } @all;
	return unless @run;
	run_blocks(basename($page, '.md'), @run);
	my $compared = grep { $_->{output} } @run;
	foreach my $block (@run)
	{
		my $difference = difference($block);
		if ($write && $block->{output} && $block->{printed})
		{
			$block->{new} = [ split /\n/, plain(@{ $block->{printed} }) ];
		}
		elsif ($difference)
		{
			fault("$page:$block->{first}: $difference");
		}
	}
	foreach my $block (reverse grep { $_->{new} } @run)
	{
		my $output = $block->{output};
		splice @lines, $output->{first}, $output->{last} - $output->{first} + 1, @{ $block->{new} };
	}
	write_file($page, @lines) if $write;
	printf "%s: %d blocks of statements, %d run, %d compared\n", basename($page), scalar @all, scalar @run, $compared;
	return;
}

# ---- the reference ----

# A table of the reference, by a query with two columns, name and comment
sub reference_table
{
	my ($title, $head, $sql, $order) = @_;
	$order //= 'name COLLATE "C"';
	my @rows = query('gpuvec_reference', "SELECT replace(name, '|', '\\|') || E'\\t' || coalesce(replace(about, '|', '\\|'), '') FROM ($sql) o (name, about) ORDER BY $order");
	my @lines = ("## $title", '', "| $head | |", '|---|---|');
	foreach my $row (@rows)
	{
		my ($name, $about) = split /\t/, $row, -1;
		push @lines, "| `$name` | $about |";
	}
	return (@lines, '');
}

# Objects of the extension in a catalog, as a condition on its oid
sub ours
{
	my ($class, $oid) = @_;
	return "EXISTS (SELECT 1 FROM pg_depend JOIN pg_extension e ON e.oid = refobjid WHERE refclassid = 'pg_extension'::regclass
		AND extname = 'gpuvec' AND deptype = 'e' AND classid = '$class'::regclass AND objid = $oid)";
}

# a signature with the names of types that people type, and what it returns
my $result = q{regexp_replace(pg_get_function_result(p.oid), '^TABLE\((.*)\)$', 'rows \1')};
my $outputs = q{(SELECT string_agg(name || ' ' || format_type(type, NULL), ', ' ORDER BY n)
	FROM unnest(proargnames, proargmodes, proallargtypes) WITH ORDINALITY a (name, mode, type, n) WHERE mode IN ('o', 't'))};
my $signature = "regexp_replace(regexp_replace(proname || '(' || regexp_replace(pg_get_function_arguments(p.oid), ', OUT .*', '')
	|| ') → ' || coalesce('rows of ' || $outputs, $result), ' DEFAULT ([^,)]*?)(::[a-z ]+(\\[\\])?)?(?=[,)])', ' = \\1', 'g'),
	'double precision', 'float8', 'g')";
# what other objects are made of: input and output, support, handlers, operators
my $internal = q{(prorettype IN ('internal'::regtype, 'cstring'::regtype, 'index_am_handler'::regtype)
	OR 'internal'::regtype = ANY (proargtypes::oid[]) OR 'cstring'::regtype = ANY (proargtypes::oid[])
	OR p.oid IN (SELECT oprcode FROM pg_operator) OR p.oid IN (SELECT castfunc FROM pg_cast) OR p.oid IN (SELECT amproc FROM pg_amproc)
	OR p.oid IN (SELECT unnest(ARRAY[typsend, typreceive]) FROM pg_type)
	OR p.oid IN (SELECT unnest(ARRAY[aggcombinefn, aggtransfn, aggfinalfn]) FROM pg_aggregate))};

# sections of functions: title, condition on the name
my @sections = (
	[ 'Search', q{proname ~ '^gpuvec_((vec_)?topk|overlaps$)' OR proname NOT LIKE 'idvec%'
		AND proname ~ '_similarity$|^(intersection|union|difference)_count$|^hamming_distance$|^idset_(threshold|ranking)$'} ],
	[ 'Sets', q{proname LIKE 'idset%' OR proname IN ('unnest', 'bit', 'varbit') OR p.oid = to_regprocedure('cardinality(idset)')} ],
	[ 'Sparse vectors', q{proname LIKE 'idvec%' OR proname IN ('cardinality', 'gpuvec_sparsevec_casts')} ],
	[ 'Embedding tables', q{proname ~ '^gpuvec_(gather|pool|nearest|bags|weighted|sum|ensure|apply)'} ],
	[ 'Recommendations', q{proname ~ '^gpuvec_(als|recommend|item|draw)'} ],
	[ 'Residency and statistics', 'true' ]);

# A signature in lines that are not too long
sub wrapped
{
	my ($text) = @_;
	my @lines;
	while (length $text > 100 && $text =~ /^(.{1,98}[,)]) (.*)$/)
	{
		push @lines, $1;
		$text = "    $2";
	}
	return (@lines, $text);
}

sub reference_functions
{
	my @lines;
	my $before = 'false';
	foreach my $section (@sections)
	{
		my ($title, $condition) = @$section;
		my $sql = "SELECT $signature AS name, obj_description(p.oid, 'pg_proc') AS about FROM pg_proc p WHERE "
			. ours('pg_proc', 'p.oid') . " AND ($condition) AND NOT ($before) AND (prokind = 'a' OR NOT $internal
				OR proname ~ '_similarity\$|_count\$|^hamming_distance\$')";
		push @lines, reference_table("Functions: $title", 'function', "SELECT * FROM ($sql) f WHERE length(name) <= 90");
		foreach my $row (query('gpuvec_reference', "SELECT name || E'\t' || coalesce(about, '') FROM ($sql) f WHERE length(name) > 90 ORDER BY name COLLATE \"C\""))
		{
			my ($name, $about) = split /\t/, $row, -1;
			push @lines, wrap_words("`" . ($name =~ s/\(.*//r) . "`: $about", '', ''), '', '```text', wrapped($name), '```', '';
		}
		$before .= " OR $condition";
	}
	return @lines;
}

# Those that a build for tests has beside them are not named
sub setting_names
{
	return map { /DefineCustom\w+\("(gpuvec\.\w+)"/ ? $1 : () } read_file("$top/src/settings.c");
}

# All views with their columns
sub reference_views
{
	my @lines;
	foreach my $view (query('gpuvec_reference', 'SELECT relname FROM pg_class c WHERE relkind = \'v\' AND ' . ours('pg_class', 'c.oid') . ' ORDER BY 1'))
	{
		my ($about) = query('gpuvec_reference', "SELECT obj_description('$view'::regclass, 'pg_class')");
		my @table = reference_table("View `$view`", 'column', "SELECT attname || ' ' || format_type(atttypid, atttypmod),
			col_description(attrelid, attnum) FROM pg_attribute WHERE attrelid = '$view'::regclass AND attnum > 0", '1 = 1');
		splice @table, 2, 0, ucfirst "$about.", '';
		push @lines, @table;
	}
	return @lines;
}

sub reference
{
	local $ENV{PGOPTIONS} = '-c client_min_messages=warning';
	query('postgres', 'DROP DATABASE IF EXISTS gpuvec_reference');
	query('postgres', 'CREATE DATABASE gpuvec_reference TEMPLATE template0');
	query('gpuvec_reference', 'CREATE EXTENSION gpuvec');
	my @lines = ('# Reference', '', wrap_words('Every object of the extension, with its comment, as `\dx+ gpuvec` and `\df` show them. This page is'
		. " made by `scripts/documents.pl reference` from a server's catalog. [The type idset](reference-idset.md) has the details of sets, [The type idvec](reference-idvec.md) those of sparse vectors.", '', ''), '');
	# the types of views' rows belong to the extension as well, from PostgreSQL 17 on
	push @lines, reference_table('Types', 'type', "SELECT format_type(t.oid, NULL), obj_description(t.oid, 'pg_type') FROM pg_type t
		WHERE typelem = 0 AND (" . ours('pg_type', 't.oid') . ") AND typtype IN ('b', 'c', 'd')
		AND NOT EXISTS (SELECT FROM pg_class WHERE oid = typrelid AND relkind <> 'c')");
	push @lines, reference_table('Operators', 'operator', "SELECT CASE WHEN oprleft = 0 THEN '' ELSE format_type(oprleft, NULL) || ' ' END || oprname || ' '
		|| format_type(oprright, NULL) || ' → ' || format_type(oprresult, NULL), obj_description(o.oid, 'pg_operator') FROM pg_operator o WHERE " . ours('pg_operator', 'o.oid'));
	push @lines, reference_functions(), reference_views();
	push @lines, reference_table('Casts', 'cast', "SELECT format_type(castsource, NULL) || ' → ' || format_type(casttarget, NULL),
		CASE castcontext WHEN 'i' THEN 'implicit' WHEN 'a' THEN 'by assignment' ELSE 'explicit' END FROM pg_cast c WHERE " . ours('pg_cast', 'c.oid'));
	push @lines, reference_table('Access methods and operator classes', 'name', "SELECT amname::text, obj_description(a.oid, 'pg_am') FROM pg_am a WHERE " . ours('pg_am', 'a.oid')
		. " UNION ALL SELECT opcname || ' for ' || format_type(opcintype, NULL) || ' (' || amname || ')', obj_description(o.oid, 'pg_opclass')
		FROM pg_opclass o JOIN pg_am a ON a.oid = opcmethod WHERE " . ours('pg_opclass', 'o.oid'));
	push @lines, reference_table('Settings', 'setting', "SELECT name || ' = ' || CASE WHEN vartype = 'string' THEN quote_literal(boot_val) ELSE boot_val END,
		rtrim(short_desc, '.') || CASE CASE name WHEN 'gpuvec.autoprewarm' THEN 'postmaster' ELSE context END WHEN 'user' THEN ' (any user)' WHEN 'superuser' THEN ' (superusers)' WHEN 'postmaster' THEN ' (at the start of the server)'
		ELSE ' (at a reload)' END FROM pg_settings, (SELECT gpuvec_evict_all()) loaded WHERE name LIKE 'gpuvec.%' AND name IN ('" . join("', '", setting_names()) . "')");
	query('postgres', 'DROP DATABASE gpuvec_reference');
	pop @lines;
	print "$_\n" foreach @lines;
	return;
}

# ---- checks that need no server ----

# Names of headings, as links spell them
sub anchors
{
	my %anchors;
	my $fenced = 0;
	foreach my $line (@_)
	{
		$fenced = !$fenced if $line =~ /^\s*```/;
		next if $fenced || $line !~ /^#+ (.*)/;
		my $name = lc $1;
		$name =~ s/[`*]//g;
		$name =~ s/[^\w\- ]//g;
		$name =~ s/ /-/g;
		$anchors{$name} = 1;
	}
	return \%anchors;
}

# Lines without fences and what is in `backquotes`, which may go over the end of a line
sub prose
{
	my $fenced = 0;
	my @kept;
	foreach my $line (@_)
	{
		my $mark = $line =~ /^\s*```/;
		push @kept, $fenced || $mark ? '' : $line;
		$fenced = !$fenced if $mark;
	}
	my $text = join "\n", @kept;
	$text =~ s/`[^`]*`/' ' . "\n" x ($& =~ tr,\n,,)/ge;
	return split /\n/, $text, -1;
}

sub check_links
{
	my ($page, @lines) = @_;
	my $folder = dirname("$top/$page");
	my $number = 0;
	foreach my $line (prose(@lines))
	{
		$number++;
		my @targets = ($line =~ /\]\(([^)\s]+)\)/g, $line =~ /(?:src|srcset|href)="([^"]+)"/g);
		foreach my $target (@targets)
		{
			next if $target =~ /^(https?|mailto):/;
			my ($path, $anchor) = split /#/, $target, 2;
			my $file = $path eq '' ? "$top/$page" : "$folder/$path";
			if (!-e $file) { fault("$page:$number: there is no $target"); }
			elsif (defined $anchor && !anchors(read_file($file))->{$anchor}) { fault("$page:$number: there is no heading $target"); }
		}
	}
	return;
}

# Rows of tables and what psql prints cannot be broken: they may be wider.  So may drawings, a bit.
sub check_widths
{
	my ($page, @lines) = @_;
	foreach my $block (grep { $_->{kind} eq 'text' } blocks(@lines))
	{
		s/^.{0,150}$// foreach @lines[ $block->{first} .. $block->{last} ];
	}
	foreach my $i (0 .. $#lines)
	{
		next if $lines[$i] =~ /^\|/ || $lines[$i] =~ /^\s*\S*https?:\S+$/;
		my $width = length $lines[$i] =~ s/\t/    /gr;
		fault("$page:" . ($i + 1) . ": $width columns") if $width > $most_columns;
	}
	return;
}

sub check_fences
{
	my ($page, @lines) = @_;
	my %kinds = map { $_ => 1 } qw(sql sh text c python js java go rust yaml dockerfile ini json diff);
	foreach my $block (blocks(@lines))
	{
		fault("$page:$block->{first}: unknown kind of block: $block->{kind}") unless $kinds{ $block->{kind} };
		next unless $block->{kind} eq 'sql';
		foreach my $word (@{ $block->{words} })
		{
			fault("$page:$block->{first}: unknown word: $word") unless $word =~ /^(not-run|if=\w+)$/;
		}
	}
	fault("$page: a fence is not closed") if (grep { /^\s*```/ } @lines) % 2;
	return;
}

# A table's rows have as many cells as its head
sub check_tables
{
	my ($page, @lines) = @_;
	my $cells = 0;
	foreach my $i (0 .. $#lines)
	{
		my $row = $lines[$i];
		if ($row !~ /^\|/) { $cells = 0; next; }
		my $n = () = $row =~ /(?<!\\)\|/g;
		$cells ||= $n;
		fault("$page:" . ($i + 1) . ': a row of ' . ($n - 1) . ' cells in a table of ' . ($cells - 1)) if $n != $cells;
	}
	return;
}

# The sentences of paragraphs and items of lists, each as [words, line, text].
# Rows of tables, headings and where a rule of exactness is kept and tested are
# none.
sub sentences
{
	my @lines = @_;
	my (@sentences, @paragraph, $fenced, $left_out);
	my $end = sub {
		my $text = join ' ', map { $_->[1] } @paragraph;
		my @line_of = map { my $line = $_->[0]; map { $line } split ' ', $_->[1] } @paragraph;
		foreach my $sentence (split /(?<=[.!?])[)"'*]*\s+(?=["'(*\[`]*[A-Z0-9`])/, $text)
		{
			my @words = split ' ', $sentence;
			push @sentences, [ scalar(grep { /\w/ } @words), $line_of[0], $sentence ] if @words;
			splice @line_of, 0, scalar @words;
		}
		@paragraph = ();
		return;
	};
	foreach my $i (0 .. $#lines)
	{
		my $line = $lines[$i];
		$fenced = !$fenced if $line =~ /^\s*```/;
		if ($fenced || $line =~ /^\s*$|^\s*(?:```|[|#<]|[-*] |\d+\. )/)
		{
			$end->();
			$left_out = $fenced || $line =~ /^\s*(?:$|```|[|#<]|- (?:Kept in|Broken by|Noticed by): )/;
		}
		elsif ($i == 0 || $lines[ $i - 1 ] =~ /^\s*(?:$|```|[|#<])/) { $left_out = 0; }
		push @paragraph, [ $i + 1, $line =~ s/^\s*(?:[-*] |\d+\. )//r ] unless $left_out;
	}
	$end->();
	return @sentences;
}

# Of ten sentences of a page nine have at most so many words
my $most_words = 24;

sub nine_of_ten
{
	my @counts = sort { $a <=> $b } map { $_->[0] } @_;
	return @counts ? $counts[ int(@counts * 0.9) ] : 0;
}

sub check_sentences
{
	my ($page, @lines) = @_;
	my $words = nine_of_ten(sentences(@lines));
	fault("$page: nine of ten sentences have up to $words words, and may have $most_words: see documents.pl long") if $words > $most_words;
	return;
}

# long PAGE...: the sentences that are longer, longest first
sub long
{
	my @found;
	foreach my $page (@_)
	{
		push @found, map { [ $_->[0], "$page:$_->[1]", $_->[2] ] } grep { $_->[0] > $most_words } sentences(read_file($page));
	}
	printf "%d words, %s: %s\n", @$_ foreach sort { $b->[0] <=> $a->[0] } @found;
	return;
}

# What a checker of spelling found.  Others than these know other words, so what they find is
# told, but is no fault: aspell with its dictionary 2020.12.07, by the sum of its words, and
# codespell 2.2.2.
my %judges = (aspell => '007758560a914c68d77f3340812a8410', codespell => '2.2.2');

sub misspelled
{
	my ($checker, $version, $found) = @_;
	if ($version eq $judges{$checker}) { fault($found); }
	else { print "not judged, as $checker has other words than those that the pages were written with: $found\n"; }
	return;
}

# Of a dictionary
sub sum_of_words
{
	my @words = `aspell dump master --lang=en_US --encoding=utf-8 2>/dev/null`;
	return md5_hex(map { utf8::encode(my $word = $_); $word } sort @words);
}

# Words that neither aspell's dictionary nor doc/words.txt has
sub check_spelling
{
	my ($dictionary, $page, @lines) = @_;
	my %known = map { lc $_ => 1 } read_file("$top/doc/words.txt");
	my $folder = tempdir(CLEANUP => 1);
	my $text = join "\n", prose(@lines);
	$text =~ s/\]\([^)]*\)|<[^>]*>|https?:\S+|[\w.\/-]*[\/_][\w.\/-]*|\b\w+\.(?:md|c|h|sql|pl|sh|py|cu)\b/ /g;
	$text =~ s/[^A-Za-z'\n]/ /g;
	write_file("$folder/text", $text);
	my %unknown;
	foreach my $word (`aspell list --lang=en_US --encoding=utf-8 --ignore-case <'$folder/text'`)
	{
		chomp $word;
		$unknown{$word} = 1 unless $known{ lc $word } || $known{ lc($word =~ s/'s$//r) };
	}
	misspelled('aspell', $dictionary, "$page: unknown words: " . join(' ', sort keys %unknown)) if %unknown;
	return;
}

sub has_command
{
	my ($name) = @_;
	return scalar grep { -x "$_/$name" } split /:/, $ENV{PATH};
}

sub pages
{
	chdir $top or die "$top: $!\n";
	return ('README.md', 'CHANGELOG.md', 'CONTRIBUTING.md', sort glob 'doc/*.md');
}

sub check
{
	my @pages = pages();
	my @sentences;
	my $aspell = has_command('aspell') && system('aspell dicts 2>/dev/null | grep -q "^en_US$"') == 0;
	my $dictionary = $aspell ? sum_of_words() : '';
	foreach my $page (@pages)
	{
		my @lines = read_file($page);
		check_links($page, @lines);
		check_widths($page, @lines);
		check_fences($page, @lines);
		check_tables($page, @lines);
		check_sentences($page, @lines);
		push @sentences, sentences(@lines);
		check_spelling($dictionary, $page, @lines) if $aspell;
	}
	if (has_command('codespell'))
	{
		my $found = `codespell --ignore-words=doc/words.txt @pages 2>&1`;
		my ($version) = `codespell --version 2>&1` =~ /([\d.]+)/;
		misspelled('codespell', $version // '', $found) if $found =~ /==>/;
	}
	printf "documents: %d sentences, nine of ten with at most %d words\n", scalar @sentences, nine_of_ten(@sentences);
	printf "documents: %d pages, %d faults%s\n", scalar @pages, $faults, $aspell ? '' : '; spelling was not checked, for want of aspell';
	return;
}

# The words of a paragraph in lines; short code in `backquotes` stays together
sub wrap_words
{
	my ($text, $first, $rest) = @_;
	my @lines = ($first);
	my $empty = 1;
	$text =~ s/(`[^`]{1,60}`)/$1 =~ s, ,\x01,gr/ge;
	foreach my $word (split ' ', $text)
	{
		$word =~ s/\x01/ /g;
		if (!$empty && length($lines[-1]) + 1 + length($word) > $most_columns - 2) { push @lines, $rest . $word; }
		else { $lines[-1] .= ($empty ? '' : ' ') . $word; }
		$empty = 0;
	}
	return @lines;
}

# wrap PAGE...: paragraphs and items of lists; all else stays as it is
sub wrap
{
	foreach my $page (@_)
	{
		my @lines = read_file($page);
		my (@new, $fenced);
		while (@lines)
		{
			my $line = shift @lines;
			if ($line =~ /^\s*```/) { $fenced = !$fenced; push @new, $line; next; }
			if ($fenced || $line =~ /^\s*$|^[|#<\t]/) { push @new, $line; next; }
			my ($indent, $item, $text) = $line =~ /^(\s*)((?:[-*]|\d+\.) )?(.*)$/;
			$item //= '';
			$text .= ' ' . shift(@lines) =~ s/^\s+//r while @lines && $lines[0] !~ /^\s*$|^\s*(?:```|[|#<]|[-*] |\d+\. )/;
			push @new, wrap_words($text, "$indent$item", $indent . ' ' x length $item);
		}
		write_file($page, @new);
	}
	return;
}

# count PAGE...: blocks of each kind, by their words
sub count
{
	foreach my $page (@_)
	{
		my %count;
		$count{ join ' ', $_->{kind}, @{ $_->{words} } }++ foreach blocks(read_file($page));
		print join(', ', basename($page), map { "$_: $count{$_}" } sort keys %count), "\n";
	}
	return;
}

$ENV{PGCLIENTENCODING} = 'UTF8';
my $goal = shift @ARGV // '';
if ($goal eq 'check') { check(); }
elsif ($goal eq 'reference') { reference(); }
elsif ($goal eq 'long') { long(@ARGV); }
elsif ($goal eq 'wrap') { wrap(@ARGV); }
elsif ($goal eq 'count') { count(@ARGV); }
elsif ($goal eq 'run' || $goal eq 'write') { run_page($_, $goal eq 'write') foreach @ARGV; }
else { die "usage: documents.pl check | run PAGE... | write PAGE... | reference | long PAGE... | wrap PAGE... | count PAGE...\n"; }
exit($faults ? 1 : 0);
