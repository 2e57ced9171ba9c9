#!/bin/bash
# Measures the code: lengths of functions, widths of comments, copies.
#
#   scripts/house.sh [FOLDER...]               src and kernels by default
#   scripts/house.sh --functions [FOLDER...]   each function: lines, file, first line, name
#   scripts/house.sh --copies [FOLDER...]      where the same lines stand twice
#
# The limits: no file of more than 700 lines, no function of more than 80, no
# line of a comment of more than 79 columns, where a tab goes to the next
# multiple of four.  What is beyond them is listed, and the exit status is 1.
# Medians and copies are printed, not judged: the goals are 13 lines, and none.
#
# A function goes from the line of its name to that of its closing brace.  A comment is
# one that has its lines for itself; what stands behind code is part of that line.  A copy
# is six lines of code and more in succession that are the same but for white space, where
# lines of a brace alone, comments and includes do not count.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
export LC_ALL=C

mode=
case ${1:-} in
	--functions | --copies)
		mode=${1#--}
		shift
		;;
esac
[ $# -gt 0 ] || set -- src kernels

mapfile -t files < <(find "$@" -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' -o -name '*.cpp' \) | sort)
awk -v mode="$mode" \
	-v most_file=700 -v most_lines=80 -v most_columns=79 '
# columns of a line; bytes that continue a character of UTF-8 take none
function columns(line,    parts, n, i, width) {
	gsub(/[\200-\277]/, "", line)
	n = split(line, parts, "\t")
	width = length(parts[1])
	for (i = 2; i <= n; i++) width = (int(width / 4) + 1) * 4 + length(parts[i])
	return width
}

function comment_line(line) {
	comments++
	if (columns(line) <= most_columns) return
	wide++
	if (mode == "") printf "%s:%d: a comment of %d columns\n", FILENAME, FNR, columns(line)
}

# A line without comments, strings and character constants; `plain` is it with these
function code_of(line,    out, at, end, piece) {
	out = plain = ""
	while (line != "") {
		if (in_comment) {
			end = index(line, "*/")
			if (!end) return out
			line = substr(line, end + 2)
			in_comment = 0
			continue
		}
		# digits may have a quote between them
		at = match(line, /\/\*|\/\/|"|\047/)
		piece = at ? substr(line, 1, at - 1) : line
		out = out piece
		plain = plain piece
		if (!at) return out
		end = substr(line, at, 1)
		if (substr(line, at, 2) == "//") return out
		if (substr(line, at, 2) == "/*") {
			in_comment = 1
			line = substr(line, at + 2)
			continue
		}
		line = substr(line, at + 1)
		if (end == "\047" && out ~ /[0-9]$/ && line ~ /^[0-9]/) continue
		out = out end end
		at = 1
		while (at <= length(line) && substr(line, at, 1) != end) at += substr(line, at, 1) == "\\" ? 2 : 1
		plain = plain end substr(line, 1, at)
		line = substr(line, at + 1)
	}
	return out
}

# Remember a line of code, to find copies
function code_line(line) {
	gsub(/[ \t]+/, " ", line)
	sub(/^ /, "", line)
	sub(/ $/, "", line)
	if (line ~ /^[{}; ]*(else)?$/ || line ~ /^# ?(include|pragma unroll)/) return
	nlines++
	text[nlines] = line
	file_of[nlines] = FILENAME
	line_of[nlines] = FNR
}

function find_copies(    i, j, key, before, last, last_before) {
	for (i = 1; i + 5 <= nlines; i++) {
		if (file_of[i] != file_of[i + 5]) continue
		key = ""
		for (j = 0; j < 6; j++) key = key "\n" text[i + j]
		if (!(key in first)) {
			first[key] = i
			continue
		}
		before = first[key]
		if (last != i - 1 || last_before != before - 1) {
			copies++
			if (mode == "copies")
				printf "%s:%d is as %s:%d: %s\n", file_of[i], line_of[i], file_of[before], line_of[before], text[i]
		}
		last = i
		last_before = before
	}
}

# What a brace begins, by the statement before it: a "scope" with functions of its own, a
# "function", or a "block" whose inside does not matter
function kind_of_brace() {
	if (statement ~ /=[ \t]*$/ || statement ~ /^[ \t]*(typedef[ \t]+)?enum/) return "block"
	if (name != "") return "function"
	if (statement ~ /(^|[ \t])(namespace|extern|struct|class|union)([ \t]|$)/) return "scope"
	return "block"
}

function new_statement() { statement = ""; name = ""; round = 0 }

# A "(" at the level of declarations: is the word before it the name of a function?
function open_round(    word) {
	sub(/^[ \t]*template[ \t]*<[^<>]*(<[^<>]*>[^<>]*)*>/, "", statement)
	if (round++ || name != "" || statement ~ /=/ && statement !~ /operator/) return
	if (!match(statement, /[A-Za-z_~][A-Za-z0-9_]*[ \t]*$/)) return
	word = substr(statement, RSTART)
	sub(/[ \t]+$/, "", word)
	if (word ~ /^(__launch_bounds__|__attribute__|__align__|alignas|__declspec|decltype|noexcept|PG_USED_FOR_ASSERTS_ONLY|pg_attribute_.*)$/) return
	name = word
	name_line = FNR
}

function close_function(    lines) {
	lines = FNR - name_line + 1
	n++
	length_of[n] = lines
	folder_of[n] = folder
	if (mode == "functions") printf "%d\t%s\t%d\t%s\n", lines, FILENAME, name_line, name
	if (lines > most_lines) {
		long++
		if (mode == "") printf "%s:%d: %s has %d lines\n", FILENAME, name_line, name, lines
	}
}

function open_brace() {
	if (inside == 0) {
		kind = kind_of_brace()
		if (kind == "scope") {
			scopes++
			new_statement()
			return
		}
		is_function = kind == "function"
	}
	inside++
}

function close_brace() {
	if (inside == 0) {
		if (scopes > 0) scopes--
		new_statement()
		return
	}
	if (--inside > 0) return
	if (is_function) close_function()
	new_statement()
}

# Preprocessor: of #if, #else, #endif each branch begins with the braces of the first
function directive(line) {
	if (line ~ /^[ \t]*#[ \t]*if/) {
		ifs++
		saved_inside[ifs] = inside; saved_scopes[ifs] = scopes; saved_is[ifs] = is_function
		saved_name[ifs] = name; saved_line[ifs] = name_line; saved_statement[ifs] = statement
	}
	else if (line ~ /^[ \t]*#[ \t]*el/ && ifs > 0) {
		inside = saved_inside[ifs]; scopes = saved_scopes[ifs]; is_function = saved_is[ifs]
		name = saved_name[ifs]; name_line = saved_line[ifs]; statement = saved_statement[ifs]
	}
	else if (line ~ /^[ \t]*#[ \t]*endif/ && ifs > 0) ifs--
}

function end_file() {
	if (last_line <= most_file) return
	long_files++
	if (mode == "") printf "%s: a file of %d lines\n", last_file, last_line
}

FNR == 1 {
	end_file()
	last_file = FILENAME
	inside = scopes = ifs = in_comment = continued = is_function = 0
	new_statement()
	folder = FILENAME
	sub(/\/[^\/]*$/, "", folder)
	if (folder ~ /^src\/engine/) folder = "engine"
	else if (folder ~ /^src/) folder = "library"
	else if (folder ~ /^kernels/) folder = "kernels"
}

{
	last_line = FNR
	if (in_comment || $0 ~ /^[ \t]*\/[*\/]/) comment_line($0)
	line = code_of($0)
	code_line(plain)
	if (continued || line ~ /^[ \t]*#/) {
		if (!continued) directive(line)
		continued = line ~ /\\$/
		next
	}
	while (match(line, /[{}();]/)) {
		if (inside == 0) statement = statement substr(line, 1, RSTART - 1)
		mark = substr(line, RSTART, 1)
		line = substr(line, RSTART + 1)
		if (mark == "{") open_brace()
		else if (mark == "}") close_brace()
		else if (inside == 0) {
			if (mark == "(") open_round()
			else if (mark == ")") round--
			else if (round == 0) { new_statement(); continue }
			statement = statement mark
		}
	}
	if (inside == 0) statement = statement line " "
}

function sort_lengths(which,    i, j, gap, value) {
	m = 0
	for (i = 1; i <= n; i++)
		if (which == "all" || folder_of[i] == which) sorted[++m] = length_of[i]
	for (gap = int(m / 2); gap > 0; gap = int(gap / 2))
		for (i = gap + 1; i <= m; i++) {
			value = sorted[i]
			for (j = i; j > gap && sorted[j - gap] > value; j -= gap) sorted[j] = sorted[j - gap]
			sorted[j] = value
		}
}

function print_lengths(which) {
	sort_lengths(which)
	if (m == 0) return
	printf "%-24s %5d functions, median %d lines, nine of ten at most %d, the longest %d\n", which, m,
		sorted[int((m + 1) / 2)], sorted[int((m * 9 + 9) / 10)], sorted[m]
}

END {
	end_file()
	if (mode == "functions") exit
	find_copies()
	if (mode == "copies") exit
	for (i = 1; i <= n; i++)
		if (!(folder_of[i] in printed)) {
			printed[folder_of[i]] = 1
			print_lengths(folder_of[i])
		}
	print_lengths("all")
	printf "%d files of more than %d lines, %d functions of more than %d; %d of %d lines of comments wider than %d columns\n", long_files, most_file, long, most_lines, wide, comments, most_columns
	printf "%d copies of six lines and more\n", copies
	if (n == 0) print "no function was found"
	exit long_files + long + wide > 0 || n == 0
}' "${files[@]}" </dev/null
