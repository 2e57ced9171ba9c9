#!/bin/bash
# What searches take while others write to the table, and what an index costs those who write.
#
# Called by "make bench-writers" (bench.mk lists the variables).  Starts a private server, makes
# the tables of writers_lib.sh, and prints three tables.
#
# Searches beside writers: CLIENTS sessions search for the 10 nearest rows of a random row's set,
# three of five by the index, two of five with gpuvec_topk; WRITERS sessions write at each of
# RATES transactions a second ("max": as they can).  A transaction writes three rows.  A phase
# takes CLIENT_SECONDS, after WARM_SECONDS that do not count; then the table is vacuumed.  One client
# alone beside ALONE_RATE comes last, and then the same without an index, with gpuvec_topk only.
#
# Writers: transactions a second of WRITERS sessions that insert one row, update one, or COPY 1,000,
# for WRITE_SECONDS, into that table with an index and into a copy without, in turn, ROUNDS times;
# medians of the rates and of the quotients.  Without any index on the column an update can be HOT.
# So updates are also measured in a copy with a B-tree over the sets' cardinalities, the cheapest
# index on the column that there is; that is no goal.  Meanwhile the engine
#
#	idle		does nothing
#	busy		serves CLIENTS sessions, which search another table
#	away		cannot be started
#	killed		is killed every second; one session searches the table
#
# Exit status 1 if a transaction failed, or writers reach less than 0.9 of their rate without the
# index.  PARTS chooses parts: "searches", "plain" (without an index) and
# "writers"; with PARTITIONS there are no "writers".
set -uo pipefail

: "${RATES:=0 100 500 2000 8000 max}" "${ALONE_RATE:=500}" "${CLIENT_SECONDS:=20}" "${WARM_SECONDS:=5}"
: "${WRITE_SECONDS:=2}" "${ROUNDS:=7}" "${PARTS:=searches plain$([ "${PARTITIONS:-0}" != 0 ] || echo ' writers')}"
. "$(dirname "${BASH_SOURCE[0]}")/peers_lib.sh"
. "$(dirname "${BASH_SOURCE[0]}")/writers_lib.sh"

# ---- searches beside writers ----

# logged NAME [SCRIPT]: milliseconds of the load's transactions that ended after the warm-up, and
# when they did so; SCRIPT is a number
logged() {
	cat "$work/log/$1".[0-9]* 2>/dev/null |
		awk -v from="$begin" -v script="${2:-}" '$5 >= from && (script == "" || $4 == script) { print $3 / 1000, $5 }'
}

# a second NAME: transactions within the phase
a_second() { logged "$1" | awk -v until=$((begin + CLIENT_SECONDS)) -v s="$CLIENT_SECONDS" '$2 < until { n++ } END { printf "%.1f", n / s }'; }

# latencies [SCRIPT]: mean | p50 | p95 | p99 | max
latencies() {
	logged searches "${1:-}" | sort -g | awk '
		function at(share) { return v[int((NR - 1) * share) + 1] }
		{ v[NR] = $1; sum += $1 }
		END { if (NR == 0) print "- | - | - | - | -"
			else printf "%.2f | %.2f | %.2f | %.2f | %.2f\n", sum / NR, at(0.5), at(0.95), at(0.99), at(1) }'
}

# kinds: the mean and p99 of each kind of search, if there are two
kinds() {
	[ -n "$with_index" ] || { echo '- | -'; return; }
	printf '%s | %s\n' "$(latencies 0 | awk -F ' [|] ' '{ print $1 " / " $4 }')" "$(latencies 1 | awk -F ' [|] ' '{ print $1 " / " $4 }')"
}

# phase RATE CLIENTS: a line of the table.  Times in logs are whole seconds, hence the first sleep.
phase() {
	local rate=$1 clients=$2 columns memory searches writes=0 scripts=(-f "$work/topk.sql@2") time=(-T $((WARM_SECONDS + CLIENT_SECONDS)))
	[ -z "$with_index" ] || scripts=(-f "$work/index.sql@3" "${scripts[@]}")
	progress "$clients clients beside $rate transactions a second"
	begin=$((EPOCHSECONDS + 1 + WARM_SECONDS))
	sleep 1
	[ "$rate" = 0 ] || start_writers "$rate" "${time[@]}"
	start_clients searches "$clients" "${scripts[@]}" "${time[@]}"
	sleep $((WARM_SECONDS + CLIENT_SECONDS - 1))
	columns=$(mirror_columns) memory=$(engine_mb)
	finish_loads
	good_load searches
	[ "$rate" = 0 ] || { good_load writers; writes=$(a_second writers); }
	searches=$(a_second searches)
	[ "$rate" != 0 ] || at_rest=$searches
	beside+=("| $rate | $writes | $clients | $searches | $(share "$clients") | $(latencies) | $(kinds) | $columns | $memory |")
	progress "${beside[-1]}"
	psql_ -c 'VACUUM docs' -c "SELECT gpuvec_prewarm('docs', 'tokens')" >/dev/null
}

# share CLIENTS: of the rate at rest
share() { [ "$1" = "$CLIENTS" ] && [ -n "$at_rest" ] && calc "$searches / ($at_rest + 1e-9)" 2 || echo -; }

print_beside() {
	printf '\n%s; %s rows%s, mode B, LIMIT 10; %s writers; %s s each, autovacuum %s; ' "$1" "$ROWS" "$([ "$PARTITIONS" = 0 ] || echo " in $PARTITIONS partitions")" "$WRITERS" "$CLIENT_SECONDS" "$AUTOVACUUM"
	print_machine
	printf '| write transactions/s asked | reached | clients | searches/s | of those at rest | mean, ms | p50 | p95 | p99 | max | index scan: mean / p99 | gpuvec_topk: mean / p99 | segments | copy, MB | on the device, MB | rows waiting | engine, MB |\n'
	printf '|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n'
	printf '%s\n' "${beside[@]}"
	printf '\n'
}

# searches_beside_writers HEADING: a table
searches_beside_writers() {
	local rate at_rest='' beside=()
	for rate in $RATES; do phase "$rate" "$CLIENTS"; done
	phase "$ALONE_RATE" 1
	print_beside "$1"
}

# ---- what writers pay ----

# write_all NAME: a script of pgbench from stdin, for the table docs and for its copies
write_all() {
	local copy
	write_script "$1.docs"
	for copy in plain btree; do sed "s/\\<docs\\>/$copy/" "$work/$1.docs.sql" | write_script "$1.$copy"; done
}

make_writers() {
	local set="SELECT tokens FROM pool WHERE n = :p"
	progress 'tables without an index, and with another one'
	psql_ <<-SQL || die "could not make the tables"
		CREATE TABLE plain (LIKE docs INCLUDING DEFAULTS);
		INSERT INTO plain SELECT * FROM docs;
		ALTER TABLE plain ADD PRIMARY KEY (id);
		CREATE TABLE btree (LIKE docs INCLUDING DEFAULTS);
		INSERT INTO btree SELECT * FROM docs;
		ALTER TABLE btree ADD PRIMARY KEY (id);
		CREATE INDEX ON btree (cardinality(tokens));
		VACUUM ANALYZE btree;
		CREATE TABLE elsewhere AS SELECT * FROM docs LIMIT $ROWS / 10;
		VACUUM ANALYZE plain;
		VACUUM ANALYZE elsewhere;
		COPY (SELECT tokens FROM pool LIMIT 1000) TO '$work/rows' (FORMAT binary);
	SQL
	write_all INSERT <<-SQL
		\\set p random(0, $POOL - 1)
		INSERT INTO docs (tokens) $set;
	SQL
	write_all UPDATE <<-SQL
		\\set u random(0, $ROWS - 1)
		\\set p random(0, $POOL - 1)
		UPDATE docs SET tokens = ($set) WHERE id = :u;
	SQL
	write_all COPY <<-SQL
		COPY docs (tokens) FROM '$work/rows' (FORMAT binary);
	SQL
	sed "s/'docs'/'elsewhere'/" "$work/topk.sql" | write_script elsewhere
}

# A kill every second, until we are killed
kill_again_and_again() {
	while sleep 1; do kill_engines; done
}

begin_state() {
	case $1 in
		busy) start_clients meanwhile "$CLIENTS" -f "$work/elsewhere.sql" -T 100000 ;;
		away) psql_ -c "ALTER SYSTEM SET gpuvec.engine_program = '$work/nowhere'" -c 'SELECT pg_reload_conf()' >/dev/null; kill_engines ;;
		killed) start_clients meanwhile 1 -f "$work/topk.sql" -R 10 -T 100000; kill_again_and_again & loads+=($!) ;;
	esac
	sleep 1
}

end_state() {
	[ ${#loads[@]} = 0 ] || kill "${loads[@]}"
	finish_loads 2>/dev/null
	case $1 in busy | killed) good_load meanwhile ;; esac
	[ "$1" != away ] || psql_ -c 'ALTER SYSTEM RESET gpuvec.engine_program' -c 'SELECT pg_reload_conf()' >/dev/null
}

# measure_rate SCRIPT STATE: transactions a second, added to a file
measure_rate() {
	local status rate
	"$bindir/pgbench" -n -M prepared -c "$WRITERS" -j "$(nproc)" -T "$WRITE_SECONDS" -f "$work/$1.sql" >"$work/log/writers.out" 2>&1
	status=$?
	good_load writers
	[ $status = 0 ] || fail "$1: pgbench ends with $status"
	rate=$(rate_of writers)
	echo "$rate" >>"$work/rate.$1.$2"
	progress "$1, engine $2: $rate transactions a second"
}

# All statements, as often as they are measured; who is first changes
measure_state() {
	local i statement tables=(docs plain)
	begin_state "$1"
	for ((i = 0; i < ROUNDS; i++)); do
		for statement in INSERT UPDATE COPY; do
			measure_rate "$statement.${tables[i % 2]}" "$1"
			measure_rate "$statement.${tables[(i + 1) % 2]}" "$1"
		done
		measure_rate UPDATE.btree "$1"
	done
	end_state "$1"
	reset_tables
}

# As many rows as before, and a copy in the engine
reset_tables() {
	local i
	for i in docs plain btree; do psql_ -c "DELETE FROM $i WHERE id >= $ROWS" -c "VACUUM $i"; done
	for ((i = 0; i < 60; i++)); do
		psql_ -c "SELECT gpuvec_prewarm('docs', 'tokens')" >/dev/null 2>&1 && search_once >/dev/null && return
		sleep 1
	done
	die "the engine does not come back"
}

measure_writers() {
	local state
	make_writers
	add_index
	for state in idle busy away killed; do measure_state $state; done
	for state in idle busy away killed; do report_state $state; done
	print_goals "$WRITERS writers; $ROWS rows, mode B; $ROUNDS rounds of $WRITE_SECONDS s"
}

# report_state STATE: medians of the rates, and of their quotients
report_state() {
	local statement with without
	for statement in INSERT UPDATE COPY; do
		with=rate.$statement.docs.$1 without=rate.$statement.plain.$1
		goal "$statement, engine $1: with / without an index ($(calc "$(median <"$work/$with")" 0) / $(calc "$(median <"$work/$without")" 0) a second)" \
			"$(quotient "$with" "$without")" '>=' 0.9
	done
	figure "UPDATE, engine $1: with the index / with a B-tree index ($(calc "$(median <"$work/rate.UPDATE.btree.$1")" 0) a second)" \
		"$(quotient "rate.UPDATE.docs.$1" "rate.UPDATE.btree.$1")"
}

has_part() { [[ " $PARTS " == *" $1 "* ]]; }

writers_server ""
if has_part searches; then
	with_index=yes
	add_index
	searches_beside_writers 'With an index'
	drop_index
fi
if has_part plain; then
	with_index=
	searches_beside_writers 'Without an index'
fi
! has_part writers || measure_writers
progress "done; $failures failures"
[ "$failures" = 0 ]
