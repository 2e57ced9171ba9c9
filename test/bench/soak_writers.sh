#!/bin/bash
# A long run of searches beside writers: is every answer right, and does memory stay as it is?
#
# Called by "make soak-writers" (bench.mk lists the variables).  The load is that of
# bench_writers.sh, for MINUTES, with writers at RATE transactions a second, the engine killed every
# KILL_SECONDS, and autovacuum at its most eager.  In the last two fifths of the time no engine is
# killed, so that what grows in it can show.
#
# Every NTH search is a comparison: one transaction, REPEATABLE READ, asks the index (three of
# five) or gpuvec_topk, and plain SQL that no index serves, one before the other by chance.  Both
# lists must be equal: distances, row versions, and their order.  Rows of equal distance come in
# the order of the roots of their HOT chains; that is ctid here, where every update changes a
# column with an index.  A difference, or any error, ends the run.
#
# At the end the engine's copy is compared with a fresh load.  A figure is steady if its median in
# the last fifth of the samples is at most 1.2 times that in the fifth before: ten samples are
# the least.  Exit status 1 if something is wrong.
set -uo pipefail

: "${MINUTES:=30}" "${RATE:=max}" "${NTH:=1000}" "${KILL_SECONDS:=20}" "${SAMPLE_SECONDS:=10}"
. "$(dirname "${BASH_SOURCE[0]}")/peers_lib.sh"
. "$(dirname "${BASH_SOURCE[0]}")/writers_lib.sh"
duration=$(calc "$MINUTES * 60" 0)

# The functions of comparisons, and the script that calls them
make_comparison() {
	psql_ <<-'SQL' || die "could not make the functions"
		CREATE SEQUENCE compared;
		CREATE FUNCTION answer(q idset, by_index bool) RETURNS text[] LANGUAGE plpgsql SET enable_seqscan = off AS $$
		BEGIN
			IF by_index THEN
				RETURN ARRAY(SELECT (tokens <-> q) || ' ' || ctid FROM docs ORDER BY tokens <-> q LIMIT 10);
			END IF;
			RETURN ARRAY(SELECT score || ' ' || tid FROM gpuvec_topk('docs', 'tokens', q, 10) ORDER BY rank);
		END $$;
		CREATE FUNCTION truth(q idset, by_index bool) RETURNS text[] LANGUAGE plpgsql AS $$
		BEGIN
			IF by_index THEN
				RETURN ARRAY(SELECT d || ' ' || tid FROM (SELECT idset_braun_blanquet_distance(tokens, q) AS d, ctid AS tid FROM docs) t ORDER BY d, tid LIMIT 10);
			END IF;
			RETURN ARRAY(SELECT s || ' ' || tid FROM (SELECT braun_blanquet_similarity(q, tokens) AS s, ctid AS tid FROM docs) t WHERE s > 0 ORDER BY s DESC, tid LIMIT 10);
		END $$;
		CREATE FUNCTION compare(q idset, by_index bool) RETURNS void LANGUAGE plpgsql AS $$
		DECLARE
			truth_first bool := random() < 0.5;
			t text[] := CASE WHEN truth_first THEN truth(q, by_index) END;
			a text[] := answer(q, by_index);
		BEGIN
			t := coalesce(t, truth(q, by_index));
			IF a IS DISTINCT FROM t OR cardinality(a) = 0 THEN
				RAISE EXCEPTION 'an answer is wrong (by the index: %, truth first: %)', by_index, truth_first
					USING DETAIL = format(E'query: %s\nanswer: %s\ntruth: %s', q, a, t);
			END IF;
			PERFORM nextval('compared');
		END $$;
	SQL
	write_script compare <<-SQL
		\\set q random(0, $ROWS - 1)
		\\set kind random(1, 5)
		BEGIN ISOLATION LEVEL REPEATABLE READ;
		SELECT compare((SELECT tokens FROM docs WHERE id = :q), :kind <= 3);
		END;
	SQL
}

# Kill engines, but not in the last two fifths
kill_for_a_while() {
	while sleep "$KILL_SECONDS" && [ "$SECONDS" -lt $((begun + duration * 3 / 5)) ]; do kill_engines; done
}

# backends_mb: memory that sessions have for themselves, in all, and the greatest
backends_mb() {
	local pid
	for pid in $(psql_ -c "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'"); do kb "$pid" RssAnon; done |
		awk '{ sum += $1; if ($1 > most) most = $1 } END { printf "%.0f | %.1f", sum / 1024, most / 1024 }'
}

# One line of the series.  The views are asked first, as that waits for an engine that starts.
sample() {
	local columns compared table
	columns=$(mirror_columns)
	compared=$(psql_ -c 'SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM compared')
	table=$(psql_ -c "SELECT round(pg_table_size('docs') / 1048576.0)")
	samples+=("| $((SECONDS - begun)) | $compared | $(engine_mb) | $(backends_mb) | $columns | $table |")
	progress "${samples[-1]}"
}

# searches_fail: true if the searches have met an error, which is then shown
searches_fail() { ! good_load searches || ! good_load writers; }

run_load() {
	local until=$((SECONDS + duration)) n=$((NTH - 1))
	begun=$SECONDS
	kill_for_a_while & loads+=($!)
	start_writers "$RATE" -T "$duration"
	start_clients searches "$CLIENTS" -f "$work/index.sql@$((3 * n))" -f "$work/topk.sql@$((2 * n))" -f "$work/compare.sql@5" -T "$duration"
	while [ $((SECONDS + SAMPLE_SECONDS)) -lt $until ]; do
		sleep "$SAMPLE_SECONDS"
		sample
		searches_fail && break
	done
	[ "$failures" = 0 ] || kill "${loads[@]}" 2>/dev/null
	finish_loads
	[ "$failures" != 0 ] || searches_fail
}

# late_medians COLUMN: the medians of the last fifth but one and of the last one
late_medians() {
	local n=${#samples[@]}
	printf '%s\n' "${samples[@]:n*3/5:n/5}" | column_of "$1" | median
	printf '%s\n' "${samples[@]:n*4/5}" | column_of "$1" | median
}
column_of() { awk -F ' *[|] *' -v c=$(($1 + 1)) '$c != "-" { print $c }'; }

# steady LABEL COLUMN
steady() {
	goal "$1: last fifth / fifth before" "$(late_medians "$2" | xargs | awk 'NF == 2 { printf "%.2f", ($1 > 0) ? $2 / $1 : 1 }')" '<=' 1.2
}

# The copy as it is when all is quiet, and a new one
compare_copies() {
	local at_end fresh
	search_once >/dev/null
	at_end=$(copy_bytes)
	figure 'the copy at the end: segments, MB, on the device, rows waiting' "$(mirror_columns | sed 's/ |/,/g')"
	psql_ -c "SELECT gpuvec_evict('docs')" -c "SELECT gpuvec_prewarm('docs', 'tokens')" >/dev/null
	search_once >/dev/null
	fresh=$(copy_bytes)
	figure 'a fresh load: the same' "$(mirror_columns | sed 's/ |/,/g')"
	goal 'bytes of the copy at the end / of a fresh load' "$(calc "$at_end / $fresh" 2)" '<=' 1.3
}
copy_bytes() { psql_ -c "SELECT bytes FROM gpuvec_mirrors WHERE relation = 'docs'::regclass"; }

# What was done; comparisons that used the index are among its scans
report_load() {
	local all scans
	all=$(psql_ -c 'SELECT last_value FROM compared WHERE is_called')
	goal 'searches that were compared, none of them wrong' "${all:-0}" '>=' 1
	scans=$(psql_ -c "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'docs_tokens'")
	goal 'scans of the index' "$scans" '>=' 1
	figure 'searches a second' "$(calc "$(rate_of searches)" 0)"
	figure 'write transactions a second' "$(calc "$(rate_of writers)" 0)"
	figure 'warnings of searches that went without the engine' "$(grep -c 'searches without its engine' "$work/log/searches.out")"
	figure 'starts of the engine after its end' "$(psql_ -c 'SELECT restarts FROM gpuvec_engine')"
	figure 'vacuums of the table' "$(psql_ -c "SELECT autovacuum_count FROM pg_stat_user_tables WHERE relname = 'docs'")"
}

print_series() {
	printf '\n| seconds | compared | engine, MB | backends, MB | the largest, MB | segments | copy, MB | on the device, MB | rows waiting | table, MB |\n'
	printf '|---|---|---|---|---|---|---|---|---|---|\n'
	printf '%s\n' "${samples[@]}"
}

samples=()
writers_server "autovacuum_naptime = 1
autovacuum_vacuum_scale_factor = 0
autovacuum_analyze_scale_factor = 0
autovacuum_vacuum_insert_scale_factor = 0
autovacuum_vacuum_cost_delay = 0"
make_comparison
add_index
run_load
[ "$failures" = 0 ] || die "stopped after $(psql_ -c 'SELECT last_value FROM compared') comparisons"
steady "the engine's memory" 3
steady "the backends' memory" 4
steady 'bytes of the copy' 7
steady 'bytes on the device' 8
compare_copies
report_load
print_series
print_goals "$MINUTES minutes, $CLIENTS clients, $WRITERS writers at $RATE transactions a second; $ROWS rows, mode B"
progress "done; $failures failures"
[ "$failures" = 0 ]
