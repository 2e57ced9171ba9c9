# Shell functions that the benchmarks with servers of their own share, and those of pgenv.sh.
#
#	bench_server CONF		build, and start a server with these settings in a scratch folder
#	contender NAME TABLE SETTINGS STATEMENT PLAN KIND [INDEX]
#							ask all queries of a table; KIND is reference (what the following ones of
#							the table are compared with), exact, approximate (distances), or
#							similarities, which are approximate, too; WANTED=any: any number of rows
#	index NAME STATEMENT RELATION
#							build an index, and remember time and size
#	missing NAME TABLE		a contender that is not there
#	print_table				what was measured
#	make_shares TABLE SHARE...
#							table shares: an id for each share of rows, not WITHOUT
#	milliseconds SETTINGS STATEMENT
#							of a prepared statement, for MEASURE_SECONDS
#	in_engine STATEMENT		milliseconds of its nodes: the median of 15
#	unsee TABLE EVERY		one page of this number is not all-visible any more
#	goal LABEL VALUE OPERATOR BOUND
#	figure LABEL VALUE		lines of a table of goals
#	print_machine			two lines: versions, the engine, the processor
#	print_goals HEADING		these, and the lines of the table

HOOKS=no WITH_CUDA=${WITH_CUDA:-no}
unset MAKEFLAGS MFLAGS MAKELEVEL
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/pgenv.sh"

failures=0
lines=()						# of the table
reference=()					# name and milliseconds of the last reference
last_ms=						# of the last contender
declare -A built				# [index]: its columns of the table
declare -A table_rows			# [table]: rows, if not ROWS or SMALL_ROWS

progress() { printf '[%4d s] %s\n' "$SECONDS" "$*" >&2; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 2; }
fail() { failures=$((failures + 1)); progress "FAILED: $*"; }
psql_() { "$bindir/psql" -X -A -t -q -v ON_ERROR_STOP=1 "$@"; }
calc() { awk "BEGIN { printf \"%.${2:-2}f\", $1 }"; }
median() {
	sort -g | awk '{ v[NR] = $1 } END { if (NR == 0) exit 1; printf "%.3f\n", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# quotient A B: the median of the quotients of two files' lines
quotient() { paste "$work/$1" "$work/$2" | awk '{ print $1 / $2 }' | median; }

# what psql's \timing says, without the rest
times() { awk '/^Time: / { print $2 }'; }

bench_cleanup() {
	local status=$?
	trap - EXIT
	# what still runs beside us
	kill $(jobs -p) 2>/dev/null
	gpuvec_stop data immediate >/dev/null 2>&1
	[ $status -le 1 ] || tail -n 20 "$work/data/log" >&2
	rm -rf "$sockets" "$work"
	exit $status
}

bench_server() {
	gpuvec_workdir tmp_bench
	trap bench_cleanup EXIT
	trap 'exit 130' INT TERM
	progress "building in $work"
	{ gpuvec_can_stage && gpuvec_build && gpuvec_stage; } >&2 || exit 2
	# other extensions, unpacked there as they would be below /
	if [ -n "${PEERS_ROOT:-}" ]; then
		cp -r "$PEERS_ROOT/." "$stage" || exit 2
	fi
	cp "$BENCH_BIN/bench_gen" "$work/bench_gen"
	chmod 755 "$work/bench_gen"
	progress "starting a server"
	gpuvec_start data "autovacuum = off
max_wal_size = 32GB
checkpoint_timeout = 1h
$1" >&2 || exit 2
	psql_ -c 'CREATE EXTENSION gpuvec' || exit 2
}

# pg_available_extensions does not show what is only in the staging folder
has_extension() { [ -e "$sharedir/extension/$1.control" ] || [ -e "$stage$sharedir/extension/$1.control" ]; }

# script NAME STATEMENT: one for each query
script() {
	local q
	while read -r q; do
		printf '%s;\n' "${2//:q/\'$q\'}"
	done <"$work/queries_$1"
}

index() {
	local ms bytes
	progress "$1: building its index"
	ms=$(psql_ -c '\timing on' -c "$2" | times | tail -n 1)
	bytes=$(psql_ -c "SELECT pg_relation_size('$3')")
	[ -n "$ms" ] && [ -n "$bytes" ] || { fail "$1: no index"; return; }
	built[$1]="$(calc "$ms / 1000") | $(calc "$bytes / 1048576")"
	progress "$1: ${built[$1]} MB"
}

# recall FILE: the share of the reference's rows that a contender has found, ties apart: of the
# 100 of each query, how many distances are not above the reference's last
recall() {
	paste "$work/reference" "$1" | awk -v k="$K" '{ r[NR] = $1; a[NR] = $2 }
		END { for (i = 1; i <= NR; i++) { last = r[int((i - 1) / k + 1) * k]; if (a[i] != "" && a[i] <= last + 1e-12) n++ } printf "%.3f", n / NR }'
}

# the same for similarities, which fall
recall_falling() {
	paste "$work/reference" "$1" | awk -v k="$K" '{ r[NR] = $1; a[NR] = $2 }
		END { for (i = 1; i <= NR; i++) { last = r[int((i - 1) / k + 1) * k]; if (a[i] != "" && a[i] >= last - 1e-12) n++ } printf "%.3f", n / NR }'
}

make_shares() {
	local table=$1
	shift
	# of rows from all over the table, which may be in an order
	psql_ <<-SQL >/dev/null || die "could not find ids"
		CREATE TABLE sampled AS SELECT tokens FROM $table TABLESAMPLE BERNOULLI (least(100, 1e7 / (SELECT count(*) FROM $table))) REPEATABLE (1);
		CREATE TABLE shares AS SELECT DISTINCT ON (share) share, id FROM unnest(ARRAY[$(IFS=,; echo "$*")]) share,
			(SELECT i AS id, count(*)::float8 / (SELECT count(*) FROM sampled) AS part FROM sampled, unnest(tokens) i WHERE i <> ${WITHOUT:--1} GROUP BY i) f
			ORDER BY share, abs(ln(part / share)), id;
		DROP TABLE sampled;
	SQL
}

milliseconds() {
	printf '%s;\n' "$2" >"$work/script"
	PGOPTIONS="$1" "$bindir/pgbench" -n -M prepared -c 1 -T "$MEASURE_SECONDS" -f "$work/script" 2>/dev/null |
		sed -n 's/^latency average = \([0-9.]*\) ms$/\1/p'
}

in_engine() {
	for _ in $(seq 15); do
		psql_ -c "SET enable_seqscan = off" -c "EXPLAIN (ANALYZE, COSTS OFF) $1" |
			awk '/Engine Time:/ { for (i = 1; i < NF; i++) if ($i == "Time:") sum += $(i + 1) } END { print sum + 0 }'
	done | median
}

unsee() {
	psql_ -c "DELETE FROM $1 WHERE ctid IN (SELECT format('(%s,1)', b * $2)::tid
		FROM generate_series(0, (pg_relation_size('$1') / current_setting('block_size')::int - 1) / $2) b)"
}

# compare KIND NAME: column "exact" of the table
compare() {
	local rows wanted
	rows=$(grep -c . "$work/answers")
	wanted=$((QUERIES * K))
	[ "${WANTED:-}" != any ] || wanted=$rows
	case $1 in
		reference) cp "$work/answers" "$work/reference"; [ "$rows" = "$wanted" ] && echo yes || echo "no: $rows rows" ;;
		exact) cmp -s "$work/reference" "$work/answers" && echo 'yes, equal' || echo no ;;
		similarities) [ "$rows" = "$wanted" ] && echo "no, recall $(recall_falling "$work/answers")" || echo "no: $rows rows" ;;
		approximate) [ "$rows" = "$wanted" ] && echo "no, recall $(recall "$work/answers")" || echo "no: $rows rows" ;;
	esac
}

# statement_ms SETTINGS [ROUNDS]: median of the statements, after one more
statement_ms() {
	local i
	{
		echo "$1;"
		printf '\\o /dev/null\n'
		head -n 1 "$work/statements"
		printf '\\timing on\n'
		for ((i = 0; i < ${2:-1}; i++)); do cat "$work/statements"; done
	} | psql_ | times | median
}

contender() {
	local name=$1 table=$2 settings=$3 statement=$4 plan=$5 kind=$6 ms exact rows=$ROWS
	progress "$name, $table"
	[ "$table" = large ] || rows=${table_rows[$table]:-$SMALL_ROWS}
	script "$table" "$statement" >"$work/statements"
	{ echo "$settings;"; echo "EXPLAIN $(head -n 1 "$work/statements")"; } | psql_ >"$work/plan"
	grep -q "$plan" "$work/plan" || { cat "$work/plan" >&2; fail "$name: the plan has no $plan"; }
	{ echo "$settings;"; cat "$work/statements"; } | psql_ >"$work/answers" || fail "$name: an error"
	exact=$(compare "$kind")
	[[ $kind = approximate || $kind = similarities || $exact = yes* ]] || fail "$name: other scores than ${reference[0]:-wanted}"
	ms=$(statement_ms "$settings")
	# what is fast, more often
	[ "$(calc "$ms < 50" 0)" = 0 ] || ms=$(statement_ms "$settings" 7)
	last_ms=$ms
	[ "$kind" != reference ] || reference=("$name" "$ms")
	lines+=("| $name | $rows | $exact | ${built[${7:-$name}]:-- | -} | $ms | $([ "$kind" = reference ] && echo - || calc "$ms / ${reference[1]}" 1) |")
	progress "$name: $ms ms, exact: $exact"
}

missing() {
	lines+=("| $1 | - | not installed | - | - | - | - |")
	progress "$1: not installed"
}

# goal LABEL VALUE OPERATOR BOUND: a line of the table
goal() {
	local ok
	ok=$(awk -v value="${2:-none}" "BEGIN { print (value != \"none\" && value + 0 $3 $4) ? \"reached\" : \"missed\" }")
	[ "$ok" = reached ] || fail "$1: $2, $3 $4 wanted"
	lines+=("| $1 | $2 | $3 $4 | $ok |")
}
figure() { lines+=("| $1 | $2 | | |"); }

print_machine() {
	printf '%s; engine: %s, %s threads\n' "$("$PG_CONFIG" --version)" \
		"$(psql_ -c "SELECT backend || ' (' || device || ')' FROM gpuvec_engine")" "$(psql_ -c 'SELECT threads FROM gpuvec_engine')"
	printf '%s, %s cores\n\n' "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)"
}

print_goals() {
	printf '\n%s; ' "$1"
	print_machine
	printf '| | measured | goal | |\n|---|---|---|---|\n'
	printf '%s\n' "${lines[@]}"
	printf '\n'
}

print_table() {
	printf '\nORDER BY ... %s, median of %s queries, milliseconds of the statement in psql; ' "${1:-LIMIT $K, mode B}" "$QUERIES"
	print_machine
	printf '| | rows | exact | index: built in, s | MB | ms | gpuvec is faster, times |\n|---|---|---|---|---|---|---|\n'
	printf '%s\n' "${lines[@]}"
	printf '\n'
}
