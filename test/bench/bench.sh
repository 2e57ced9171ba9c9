#!/bin/bash
# Measures gpuvec through SQL and in the engine alone, and prints one table.
#
# Called by "make bench" (bench.mk lists the variables).  Starts a private server
# from a staging folder, loads the documents of setgen.h into one table for each
# mode, measures, and removes everything again.  Root is not needed; as root the
# server runs as an ordinary user.  Progress goes to stderr, the table to stdout.
#
# Exit status 1 if any answer differs from what it must be: SQL from the engine,
# the engine from brute force, either from the reference checksums.
set -euo pipefail

: "${MODES:=B}" "${DOCS:=1000000}" "${QUERIES:=2000}" "${ENGINE:=auto}" "${THREADS:=}"
: "${ORDER:=position}" "${CLIENTS:=0}" "${INTARRAY:=auto}" "${BENCH_DIR:=}"
: "${BENCH_BIN:?run this with \"make bench\"}" "${BUILD_DIR:?}" "${MAKE:=make}" "${PG_CONFIG:=pg_config}"

K=100
SINGLE=64                       # queries that the tests of single statements use
SESSIONS=5                      # of these tests
INTARRAY_MAX_DOCS=1000000       # with more, intarray and the plain loop are not measured
: "${MEASURE_SECONDS:=3}" "${CLIENT_SECONDS:=10}"   # time for each measurement, and for that of many clients

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bindir=$("$PG_CONFIG" --bindir)
sharedir=$("$PG_CONFIG" --sharedir)
pkglibdir=$("$PG_CONFIG" --pkglibdir)
version=$("$PG_CONFIG" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
declare -A result               # [mode,name]
failures=0

progress() { printf '[%4d s] %s\n' "$SECONDS" "$*" >&2; }
die() { printf 'bench: %s\n' "$*" >&2; exit 2; }
# calc EXPRESSION [DECIMALS]
calc() { awk "BEGIN { printf \"%.${2:-3}f\", $1 }"; }

# ---- a private server ----

# PostgreSQL refuses to run as root: choose who runs it
user=
if [ "$(id -u)" = 0 ]; then
	for candidate in ${BENCH_USER:-} postgres pgtest nobody; do
		if id -u "$candidate" >/dev/null 2>&1; then user=$candidate; break; fi
	done
	[ -n "$user" ] || die "PostgreSQL does not run as root; set BENCH_USER to an ordinary user"
fi
as_user() {
	if [ -n "$user" ]; then (cd / && exec runuser -u "$user" -- "$@"); else "$@"; fi
}

# Folders: the sockets' path must be short, and the data may be large
sockets=$(mktemp -d "${TMPDIR:-/tmp}/gpuvec-bench.XXXXXX")
make_folder() {
	mkdir -p "$1" && { [ -z "$user" ] || chown "$user" "$1"; } && as_user test -w "$1" 2>/dev/null
}
folder=${BENCH_DIR:-$BUILD_DIR/build}/gpuvec-bench
rm -rf "$folder"
if ! make_folder "$folder"; then
	[ -z "$BENCH_DIR" ] || die "user $user cannot write to $folder"
	folder=$sockets/work
	make_folder "$folder"
fi
make_folder "$sockets"
stage=$folder/stage data=$folder/data log=$folder/log scripts=$folder/scripts

cleanup() {
	local status=$?
	trap - EXIT
	[ ! -e "$data/postmaster.pid" ] ||
		as_user "$bindir/pg_ctl" -D "$data" -m immediate -w stop >/dev/null 2>&1 || true
	if [ $status -ne 0 ] && [ -s "$log" ]; then
		echo "--- end of the server log ---" >&2
		tail -n 20 "$log" >&2
	fi
	rm -rf "$folder" "$sockets"
	exit $status
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# Settings that let the server find the staged extension
extension_settings() {
	if [ "$version" -ge 18 ]; then
		echo "extension_control_path = '$stage$sharedir:\$system'"
	elif as_user "$bindir/postgres" -D "$data" -C extension_destdir >/dev/null 2>&1; then
		echo "extension_destdir = '$stage'"
	else
		die "this PostgreSQL cannot load extensions from another folder; it needs version 18 or Debian's packages"
	fi
	echo "dynamic_library_path = '$stage$pkglibdir:\$libdir'"
	echo "gpuvec.engine_program = '$stage$bindir/gpuvec-engine'"
}

# Memory for the tables (about 170 bytes a row), at most 40 % of the machine's
shared_buffers_mb() {
	local total want n
	total=$(awk '/^MemTotal/ { print int($2 / 1024 * 0.4) }' /proc/meminfo)
	n=$(set -- $MODES; echo $#)
	want=$((512 + DOCS * n * 170 / 1048576))
	[ "$want" -lt "$total" ] && echo "$want" || echo "$total"
}

start_server() {
	progress "installing into $stage"
	# to PGXS, DOCS are files to install
	"$MAKE" -s -C "$BUILD_DIR" install DESTDIR="$stage" PG_CONFIG="$PG_CONFIG" DOCS= >/dev/null
	progress "starting a server"
	as_user "$bindir/initdb" -D "$data" -U bench -A trust --no-sync --locale=C --encoding=UTF8 >/dev/null
	as_user tee -a "$data/postgresql.conf" >/dev/null <<-CONF
		listen_addresses = ''
		unix_socket_directories = '$sockets'
		max_connections = $((CLIENTS + 50))
		shared_buffers = $(shared_buffers_mb)MB
		huge_pages = try
		fsync = off
		max_wal_size = 32GB
		checkpoint_timeout = 1h
		autovacuum = off
		jit = off
		gpuvec.engine = '$ENGINE'
		gpuvec.cpu_threads = $THREADS
		$(extension_settings)
	CONF
	[ -z "$user" ] || { touch "$log"; chown "$user" "$log"; }
	as_user "$bindir/pg_ctl" -D "$data" -l "$log" -w -s start
	export PGHOST=$sockets PGUSER=bench PGDATABASE=postgres PGOPTIONS=
	psql_ -c 'CREATE EXTENSION gpuvec'
}

psql_() { "$bindir/psql" -X -A -t -q -v ON_ERROR_STOP=1 "$@"; }
gen() { "$BENCH_BIN/bench_gen" "$1" --n-docs "$DOCS" --n-queries "$QUERIES" "${@:2}"; }

# ---- helpers ----

# median of the numbers on stdin
median() {
	sort -g | awk '{ v[NR] = $1 } END { if (NR == 0) exit 1; printf "%.3f\n", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# time_sql SETTINGS STATEMENT N: median ms of N executions in one session, after one more
time_sql() {
	local i
	{
		printf '%s;\n\\o /dev/null\n%s;\n\\timing on\n' "$1" "$2"
		for ((i = 0; i < $3; i++)); do printf '%s;\n' "$2"; done
	} | psql_ | awk '/^Time: / { print $2 }' | median
}

# time_once STATEMENT: ms of one execution in a new session
time_once() {
	printf '\\o /dev/null\n\\timing on\n%s;\n' "$1" | psql_ | awk '/^Time: / { print $2 }'
}

repetitions() { # MS MIN MAX: how often something that takes so long can run in the time
	awk "BEGIN { n = int($MEASURE_SECONDS * 1000 / ($1 + 0.001)); if (n < $2) n = $2; if (n > $3) n = $3; print n }"
}

put() { result[$1,$2]=$3; }
get() { echo "${result[$1,$2]:-}"; }

fail() {
	failures=$((failures + 1))
	progress "FAILED: $*"
}

table() { echo "docs_${1,,}"; }

# Statements; N queries of a mode's query table
batch_call() {
	echo "gpuvec_topk_batch('$(table "$1")', 'tokens', (SELECT array_agg(tokens ORDER BY id) FROM queries_${1,,} WHERE id < $2), $K)"
}
batch_rows_call() {
	echo "gpuvec_topk_batch_rows(NULL::$(table "$1"), 'tokens', (SELECT array_agg(tokens ORDER BY id) FROM queries_${1,,} WHERE id < $2), $K)"
}

# ---- loading the tables ----

# One session, so that positions in the heap follow positions in setgen.h
fill_table() {
	local mode=$1 start end
	start=$(date +%s%N)
	{
		echo "BEGIN; CREATE TABLE $(table "$mode") (id bigint NOT NULL, tokens idset NOT NULL);"
		echo "COPY $(table "$mode") FROM PROGRAM '$scripts/copy_$mode docs' (FORMAT binary, FREEZE);"
		echo "CREATE TABLE queries_${mode,,} (id bigint PRIMARY KEY, tokens idset NOT NULL);"
		echo "COPY queries_${mode,,} FROM PROGRAM '$scripts/copy_$mode queries' (FORMAT binary);"
		echo "COMMIT;"
		echo "VACUUM (ANALYZE) $(table "$mode"); VACUUM (ANALYZE) queries_${mode,,};"
	} | psql_
	end=$(date +%s%N)
	echo $(((end - start) / 1000000)) >"$sockets/copy_ms_$mode"
}

# The server's user may not reach the program's folder, hence the copy
fill_tables() {
	local mode pids=() pid
	mkdir -p "$scripts"
	cp "$BENCH_BIN/bench_gen" "$scripts/bench_gen"
	for mode in $MODES; do
		cat >"$scripts/copy_$mode" <<-SCRIPT
			#!/bin/sh
			exec "$scripts/bench_gen" "\$@" --mode $mode --n-docs $DOCS --n-queries $QUERIES --order $ORDER
		SCRIPT
		chmod 755 "$scripts/copy_$mode"
		progress "mode $mode: COPY of $DOCS documents"
		fill_table "$mode" & pids+=($!)
	done
	chmod 755 "$scripts" "$scripts/bench_gen"
	for pid in "${pids[@]}"; do wait "$pid" || die "COPY failed"; done
	for mode in $MODES; do
		put "$mode" copy_ms "$(cat "$sockets/copy_ms_$mode")"
		put "$mode" table_bytes "$(psql_ -c "SELECT pg_table_size('$(table "$mode")')")"
	done
	progress "tables are filled"
}

# ---- measuring ----

# The engine without PostgreSQL
measure_engine() {
	local mode=$1 loop=0 backend=$ENGINE key value
	[ "$DOCS" -gt $INTARRAY_MAX_DOCS ] || loop=8
	progress "mode $mode: engine alone"
	"$BENCH_BIN/bench_engine" --backend "$backend" --mode "$mode" --n-docs "$DOCS" --n-queries "$QUERIES" \
		--threads "$THREADS" --k $K --seconds $MEASURE_SECONDS --loop $loop --check \
		>"$sockets/engine_$mode" || fail "mode $mode: results of the engine are wrong"
	while IFS=$'\t' read -r key value; do put "$mode" "$key" "$value"; done <"$sockets/engine_$mode"
}

# The first search loads the table; what the session's memory does meanwhile
measure_load() {
	local mode=$1 call memory=$sockets/memory_$1
	call="gpuvec_topk('$(table "$mode")', 'tokens', (SELECT tokens FROM queries_${mode,,} WHERE id = 0), $K)"
	progress "mode $mode: sum(cardinality), first search, load"
	put "$mode" sum_ms "$(time_sql 'SET max_parallel_workers_per_gather = 0' "SELECT sum(cardinality(tokens)) FROM $(table "$mode")" 3)"
	put "$mode" sum_default_ms "$(time_sql 'SELECT 1' "SELECT sum(cardinality(tokens)) FROM $(table "$mode")" 3)"
	# the engine starts with the first search of all; that is not part of a load
	time_once "SELECT * FROM gpuvec_topk('queries_${mode,,}', 'tokens', '{1}', 1)" >/dev/null

	put "$mode" first_ms "$(psql_ <<-SQL | awk '/^Time: / { print $2 }'
		SELECT pg_backend_pid() AS pid \\gset
		SELECT 1 FROM gpuvec_topk('queries_${mode,,}', 'tokens', '{1}', 1) \\g /dev/null
		\\setenv BENCH_PID :pid
		\\! awk '/^RssAnon/ { print \$2 }' /proc/\$BENCH_PID/status >$memory.before
		\\! bash $here/watch_memory.sh \$BENCH_PID $memory >/dev/null 2>&1 &
		\\o /dev/null
		\\timing on
		SELECT * FROM $call;
		\\timing off
		\\! touch $memory.stop; awk '/^RssAnon/ { print \$2 }' /proc/\$BENCH_PID/status >$memory.after
	SQL
	)"
	put "$mode" rss_kb "$(cat "$memory.before") / $(cat "$memory") / $(cat "$memory.after")"
	put "$mode" load_ms "$(for _ in 1 2 3; do
		psql_ -c "SELECT gpuvec_evict('$(table "$mode")')" >/dev/null
		time_once "SELECT gpuvec_prewarm('$(table "$mode")', 'tokens')"
	done | median)"
	put "$mode" sql_bytes "$(psql_ -c "SELECT bytes FROM gpuvec_mirrors WHERE relation = '$(table "$mode")'::regclass")"
	# a table that has no mirror is not loaded; its searches read it each time
	[ -n "$(get "$mode" sql_bytes)" ] || { progress "mode $mode: the engine does not serve it"; put "$mode" load_ms ""; }
	put "$mode" sql_segments "$(psql_ -c "SELECT segments FROM gpuvec_mirrors WHERE relation = '$(table "$mode")'::regclass")"
	put "$mode" sql_device "$(psql_ -c "SELECT backend || ' (' || device || ')' FROM gpuvec_engine")"
}

# Statements with one query each, and the same prepared
write_scripts() {
	local mode=$1 i=0 literal columns='rank, tid, score'
	: >"$scripts/round"
	: >"$scripts/round_prepared"
	echo "PREPARE nearest (idset) AS SELECT $columns FROM gpuvec_topk('$(table "$mode")', 'tokens', \$1, $K);" >"$scripts/prepare"
	while read -r literal; do
		echo "SELECT $columns FROM gpuvec_topk('$(table "$mode")', 'tokens', '$literal', $K);" >"$scripts/single_${mode}_$i.sql"
		cat "$scripts/single_${mode}_$i.sql" >>"$scripts/round"
		echo "EXECUTE nearest ('$literal');" >>"$scripts/round_prepared"
		i=$((i + 1))
	done < <(gen literals --mode "$mode" | head -n $SINGLE)
}

script_files() { ls -v "$scripts/single_$1"_*.sql; }

# statements FILE ROUNDS: milliseconds of the statements of a file, so many times, in each of SESSIONS
# sessions, one after another: which processors a session and the engine's thread for it run on matters
statements() {
	local s i
	for ((s = 0; s < SESSIONS; s++)); do
		{
			printf '\\o /dev/null\n'
			cat "$scripts/prepare"
			head -n 10 "$1"
			printf '\\timing on\n'
			for ((i = 0; i < $2; i++)); do cat "$1"; done
		} | psql_ | awk '/^Time: / { print $2 }'
	done
}

# The same queries, as often, as bench_engine asks: median of each, and of these
measure_single() {
	local mode=$1 rounds i
	rounds=$(repetitions "$(calc "$SINGLE * $(get "$mode" engine_ms_1)")" 1 20)
	rounds=$(((rounds + SESSIONS - 1) / SESSIONS))
	progress "mode $mode: single statements"
	statements "$scripts/round" "$rounds" >"$sockets/single"
	for ((i = 0; i < SINGLE; i++)); do
		awk "NR % $SINGLE == ($i + 1) % $SINGLE" "$sockets/single" | median
	done >"$sockets/each"
	put "$mode" sql_ms_1 "$(median <"$sockets/each")"
	put "$mode" added_ms_1 "$(get "$mode" engine_ms_each | tr ' ' '\n' | sed '/^$/d' | paste "$sockets/each" - |
		awk '{ print $1 - $2 }' | median)"
	put "$mode" prepared_ms_1 "$(statements "$scripts/round_prepared" "$rounds" | median)"
}

# after WRITE STATEMENT N: median ms of a statement that follows a write, N times
after() {
	local i
	{
		printf '\\o /dev/null\n%s;\n' "$2"
		for ((i = 0; i < $3; i++)); do
			printf '\\timing off\n%s;\n\\timing on\n%s;\n' "$1" "$2"
		done
	} | psql_ | awk '/^Time: / { print $2 }' | median
}

# An index: ordered scans with and without a filter that keeps one row in 100; and what
# searches take that follow a write
measure_index() {
	local mode=$1 query literal write
	literal=$(psql_ -c "SELECT tokens FROM queries_${mode,,} WHERE id = 0")
	progress "mode $mode: index"
	psql_ -c "CREATE TABLE elsewhere (id int)"
	write="INSERT INTO $(table "$mode") SELECT -1, tokens FROM queries_${mode,,} WHERE id = 1"
	query="gpuvec_topk('$(table "$mode")', 'tokens', '$literal', 10)"
	put "$mode" topk_ms "$(time_sql 'SELECT 1' "SELECT * FROM $query" 50)"
	put "$mode" after_write_ms "$(after "$write" "SELECT * FROM $query" 50)"
	put "$mode" after_elsewhere_ms "$(after 'INSERT INTO elsewhere VALUES (1)' "SELECT * FROM $query" 50)"
	put "$mode" create_ms "$(time_once "CREATE INDEX knn ON $(table "$mode") USING gpuvec (tokens)")"
	query="SELECT id FROM $(table "$mode") ORDER BY tokens <-> '$literal' LIMIT 10"
	put "$mode" index_first_ms "$(time_once "$query")"
	put "$mode" index_ms "$(time_sql 'SELECT 1' "$query" 100)"
	put "$mode" index_after_ms "$(after "$write" "$query" 50)"
	put "$mode" index_elsewhere_ms "$(after 'INSERT INTO elsewhere VALUES (1)' "$query" 50)"
	query=${query/ORDER/WHERE id % 100 = 7 ORDER}
	put "$mode" index_filter_ms "$(time_sql 'SELECT 1' "$query" 100)"
	psql_ -c "DROP INDEX knn; DROP TABLE elsewhere"
}

# Many clients, single queries: throughput
measure_clients() {
	local mode=$1
	[ "$CLIENTS" -gt 0 ] || return 0
	progress "mode $mode: $CLIENTS clients"
	# shellcheck disable=SC2046
	put "$mode" tps "$("$bindir/pgbench" -n -c "$CLIENTS" -j "$(nproc)" -T "$CLIENT_SECONDS" $(script_files "$mode" | sed 's/^/-f /') 2>/dev/null |
		awk '/^tps/ { print int($3) }')"
	put "$mode" mean_batch "$(psql_ -c "SELECT round(mean_batch::numeric, 1) FROM gpuvec_engine")"
}

measure_batches() {
	local mode=$1 n reps
	for n in 16 "$QUERIES"; do
		progress "mode $mode: $n queries in a statement"
		reps=$(repetitions "$(get "$mode" "engine_ms_$n")" 1 20)
		put "$mode" "sql_ms_$n" "$(time_sql 'SELECT 1' "SELECT count(*) FROM $(batch_call "$mode" "$n")" "$reps")"
		put "$mode" "rows_ms_$n" "$(time_sql 'SELECT 1' "SELECT count(*), sum((t.item).id) FROM $(batch_rows_call "$mode" "$n") t" "$reps")"
		put "$mode" "join_ms_$n" "$(time_sql 'SELECT 1' "SELECT count(*), sum(d.id) FROM $(batch_call "$mode" "$n") t JOIN $(table "$mode") d ON d.ctid = t.tid" "$reps")"
	done
}

# Checksums through SQL must be the engine's, which were compared with the reference
check_sql() {
	local mode=$1 sum
	progress "mode $mode: checksum through SQL"
	sum=$(psql_ -c "COPY (SELECT d.id, t.score FROM $(batch_call "$mode" "$QUERIES") t JOIN $(table "$mode") d ON d.ctid = t.tid
		ORDER BY t.query, t.rank) TO STDOUT" | gen checksum --mode "$mode" --k $K) || true
	put "$mode" sql_checksum "$sum"
	# in another order of the rows other ties win, but the scores stay
	if [ "$ORDER" = position ]; then
		[ "$sum" = "$(get "$mode" checksum)" ]
	else
		[ "$(cut -d' ' -f2 <<<"$sum")" = "$(get "$mode" checksum | cut -d' ' -f2)" ]
	fi || fail "mode $mode: SQL gives $sum, the engine $(get "$mode" checksum)"
}

# What there is without gpuvec
measure_intarray() {
	local mode=$1 i literal times=
	[ "$INTARRAY" != no ] || return 0
	[ "$mode" != D ] || { progress "mode D: its ids are no int4"; return 0; }
	[ "$INTARRAY" = yes ] || [ "$DOCS" -le $INTARRAY_MAX_DOCS ] || return 0
	[ -e "$sharedir/extension/intarray.control" ] || { progress "intarray is not installed"; return 0; }
	progress "mode $mode: intarray"
	psql_ <<-SQL
		SET client_min_messages = warning;
		CREATE EXTENSION IF NOT EXISTS intarray;
		BEGIN;
		CREATE TABLE int_${mode,,} (id bigint NOT NULL, tokens int4[] NOT NULL);
		COPY int_${mode,,} FROM PROGRAM '$scripts/copy_$mode docs --ids int4' (FORMAT binary, FREEZE);
		COMMIT;
		VACUUM (ANALYZE) int_${mode,,};
	SQL
	for i in 0 1 2; do
		literal=$(gen literals --mode "$mode" | sed -n $((i + 1))p)
		times+=$(time_sql 'SET max_parallel_workers_per_gather = 0; SET jit = off' \
			"SELECT id FROM int_${mode,,}, (SELECT '$literal'::int4[] AS q) s
			 ORDER BY icount(tokens & q)::float8 / greatest(icount(tokens), icount(q)) DESC, id LIMIT $K" 1)$'\n'
	done
	put "$mode" intarray_ms "$(printf '%s' "$times" | median)"
	psql_ -c "DROP TABLE int_${mode,,}"
}

# ---- the table ----

ratio() { # MODE A B
	local a b
	a=$(get "$1" "$2") b=$(get "$1" "$3")
	[ -n "$a" ] && [ -n "$b" ] && calc "$a / $b" 2 || echo -
}
rate() { # MODE NAME: documents a second
	local ms
	ms=$(get "$1" "$2")
	[ -n "$ms" ] && calc "$DOCS * 1000 / $ms" 0 || echo -
}
row() { # LABEL COMMAND ARGS...: one cell for each mode
	local label=$1 mode value
	shift
	printf '| %s |' "$label"
	for mode in $MODES; do
		value=$("$1" "$mode" "${@:2}")
		printf ' %s |' "${value:--}"
	done
	printf '\n'
}
megabytes() { local b; b=$(get "$1" "$2"); [ -z "$b" ] || calc "$b / 1048576" 0; }
mirror_ratio() { # the ids of mode D have four bytes
	local b width=2
	b=$(get "$1" sql_bytes)
	[ "$1" != D ] || width=4
	[ -z "$b" ] || calc "$b / ($width * $(get "$1" ids))" 3
}

print_table() {
	local mode n=$QUERIES
	printf '\n%s documents, %s queries, k = %s, %s; engine: %s, %s thread(s); rows in %s order\n' \
		"$DOCS" "$n" $K "$("$PG_CONFIG" --version)" "$(get "${MODES%% *}" sql_device)" "$(get "${MODES%% *}" threads)" "$ORDER"
	printf '%s, %s cores\n\n' "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)"
	printf '| milliseconds, unless it says otherwise |'
	for mode in $MODES; do printf ' %s |' "$mode"; done
	printf '\n|---|'
	for mode in $MODES; do printf -- '---|'; done
	printf '\n'
	row 'ids' get ids
	row 'table, MB' megabytes table_bytes
	row 'COPY and VACUUM' get copy_ms
	row '`SELECT sum(cardinality(tokens))`, one process' get sum_ms
	row 'the same, default settings' get sum_default_ms
	row 'first search, which loads the table' get first_ms
	row 'load (`gpuvec_prewarm`, median of 3)' get load_ms
	row 'load, rows/s' rate load_ms
	row 'load / sum, one process' ratio load_ms sum_ms
	row 'load / sum, default settings' ratio load_ms sum_default_ms
	row 'building in the engine alone, rows/s' get build_rows_per_s
	row "loading session's own memory before / peak / after, kB" get rss_kb
	row 'mirror, MB' megabytes sql_bytes
	row 'mirror / bytes of its ids' mirror_ratio
	row 'lists, from the last segment on, in the background' get lists_ms
	row '1 query: engine, bitset scan (median)' get bitset_ms_1
	row '1 query: engine, inverted lists' get inverted_ms_1
	row '1 query: engine, as it chooses' get engine_ms_1
	row '1 query: statement (median)' get sql_ms_1
	row '1 query: what the statement adds (median over the queries)' get added_ms_1
	row '1 query: prepared statement (median)' get prepared_ms_1
	row '16 queries: engine, bitset scan' get bitset_ms_16
	row '16 queries: engine, inverted lists' get inverted_ms_16
	row '16 queries: engine, as it chooses' get engine_ms_16
	row '16 queries: statement' get sql_ms_16
	row '16 queries: statement, as whole rows' get rows_ms_16
	row '16 queries: statement with join' get join_ms_16
	row "$n queries: engine, bitset scan" get "bitset_ms_$n"
	row "$n queries: engine, inverted lists" get "inverted_ms_$n"
	row "$n queries: engine, as it chooses" get "engine_ms_$n"
	row "$n queries: statement" get "sql_ms_$n"
	row "$n queries: statement, as whole rows" get "rows_ms_$n"
	row "$n queries: statement with join" get "join_ms_$n"
	row "$n queries: statement / engine" ratio "sql_ms_$n" "engine_ms_$n"
	row '1 query: plain C loop, one thread' get loop_ms_1
	row '1 query: plain C loop / engine' ratio loop_ms_1 engine_ms_1
	row '1 query: intarray, sequential scan and sort' get intarray_ms
	row '1 query: intarray / engine' ratio intarray_ms engine_ms_1
	row '1 query: intarray / statement' ratio intarray_ms sql_ms_1
	if [ "$CLIENTS" -gt 0 ]; then
		row "$CLIENTS clients, 1 query each: statements/s" get tps
		row 'mean batch in the engine since its start' get mean_batch
	fi
	row '`gpuvec_topk` of 10 rows' get topk_ms
	row 'the same after a row was inserted' get after_write_ms
	row 'the same after a write to another table' get after_elsewhere_ms
	row '`CREATE INDEX`' get create_ms
	row '`ORDER BY ... LIMIT 10` by the index, first (loads its copy)' get index_first_ms
	row '`ORDER BY ... LIMIT 10` by the index' get index_ms
	row 'the same after a row was inserted' get index_after_ms
	row 'the same after a write to another table' get index_elsewhere_ms
	row 'the same with a filter that keeps 1 row in 100' get index_filter_ms
	row 'queries compared with brute force' get checked_queries
	row 'of these wrong' get wrong_queries
	row 'checksums of the engine (index_sum score_sum index_fnv)' get checksum
	row 'checksums through SQL' get sql_checksum
	row 'reference checksums' get reference
	printf '\n'
}

# One CPU thread unless told otherwise, as PostgreSQL's own scan has one
choose_engine() {
	[ "$QUERIES" -ge $SINGLE ] || die "QUERIES must be at least $SINGLE"
	if [ "$ENGINE" = auto ]; then
		ENGINE=$("$BENCH_BIN/bench_engine" --backend cuda --n-docs 1 --n-queries 1 >/dev/null 2>&1 && echo cuda || echo cpu)
	fi
	[ -n "$THREADS" ] || THREADS=$([ "$ENGINE" = cuda ] && echo 0 || echo 1)
	progress "engine: $ENGINE"
}

main() {
	local mode
	choose_engine
	start_server
	fill_tables
	for mode in $MODES; do
		measure_engine "$mode"
		measure_load "$mode"
		write_scripts "$mode"
		measure_single "$mode"
		measure_batches "$mode"
		check_sql "$mode"
		measure_clients "$mode"
		measure_index "$mode"
		measure_intarray "$mode"
		psql_ -c "SELECT gpuvec_evict('$(table "$mode")')" >/dev/null
	done
	print_table
	progress "done; $failures failures"
	[ "$failures" = 0 ]
}
main
