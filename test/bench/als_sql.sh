#!/bin/bash
# Trainings through SQL: from a table of interactions to both tables of factors, and what each part takes.
#
# Called by "make bench-als-sql" (bench.mk lists the variables).  Starts a private server, makes a table of the
# interactions of als_data.h (SCALE is the part of them), and in one run
#
# - reads the three columns in plain SQL, in one process;
# - trains FACTORS factors in ITERATIONS iterations REPEATS times, first into empty tables, then into full ones;
# - asks for the best items of 100 users from the new tables, for the first time and again, and for the
#   best 100 of USERS users, with the items that they know and without, and the best one;
# - folds in one user, and USERS users, and reads their rows in plain SQL;
# - asks for the 20 nearest neighbors of all items.
#
# Up to WORKERS parallel workers read the interactions.
#
# Prints a table.  Exit status 1 if a goal is missed.
set -uo pipefail

: "${SCALE:=0.1}" "${FACTORS:=64}" "${ITERATIONS:=15}" "${GOAL:=5}" "${THREADS:=0}" "${ENGINE:=auto}" "${REPEATS:=3}" "${USERS:=100000}" "${WORKERS:=8}"
: "${BENCH_BIN:?run this with \"make bench-als-sql\"}"
. "$(dirname "${BASH_SOURCE[0]}")/peers_lib.sh"

make_tables() {
	progress "making the interactions"
	psql_ <<-SQL >/dev/null || die "could not make the tables"
		CREATE TABLE plays (user_id int4, item_id int4, weight float4);
		CREATE TABLE user_factors (key bigint PRIMARY KEY, embedding real[]);
		CREATE TABLE item_factors (key bigint PRIMARY KEY, embedding real[]);
	SQL
	"$BENCH_BIN/bench_als" --rows --scale "$SCALE" | psql_ -c 'COPY plays FROM STDIN' || die "could not fill the table"
	psql_ -c 'VACUUM (ANALYZE, FREEZE) plays'
	rows=$(psql_ -c 'SELECT count(*) FROM plays')
}

# part NAME FILE: seconds that a part of a training took
part() { sed -n "s/^.*gpuvec_als: $1: [0-9]* rows, \([0-9.]*\) s.*$/\1/p" "$2" | tail -n 1; }

train() {
	psql_ >"$work/training" 2>&1 <<-SQL || { cat "$work/training" >&2; die "could not train"; }
		SET client_min_messages = debug1;
		\timing on
		SELECT max(iteration), (array_agg(loss ORDER BY iteration DESC))[1], sum(seconds) FROM gpuvec_als('plays', 'user_id', 'item_id', 'user_factors', 'item_factors', 'weight',
			factors => $FACTORS, iterations => $ITERATIONS);
	SQL
}

measure_training() {
	local i total best=1000000 loss
	for ((i = 1; i <= REPEATS; i++)); do
		progress "training $i"
		train
		total=$(times <"$work/training" | tail -n 1)
		loss=$(sed -n "s/^$ITERATIONS|\([0-9.e-]*\)|.*$/\1/p" "$work/training")
		figure "training $i, seconds" "$(calc "$total / 1000" 2)"
		figure ' of this reading' "$(part read "$work/training")"
		figure ' preparing' "$(part prepared "$work/training")"
		figure " $ITERATIONS iterations" "$(part trained "$work/training")"
		figure ' writing both tables' "$(part written "$work/training")"
		figure ' loss' "$loss"
		[ "$(calc "$total < $best" 0)" = 0 ] || best=$total
	done
	goal "from $rows rows to $FACTORS factors, $ITERATIONS iterations, seconds" "$(calc "$best / 1000" 2)" '<=' "$GOAL"
}

measure_rest() {
	local ask="SELECT count(*) FROM gpuvec_recommend('user_factors', 'item_factors', ARRAY(SELECT generate_series(1, 100))::int8[], 10)"
	figure 'reading the three columns in plain SQL, one process, seconds' \
		"$(printf 'SET max_parallel_workers_per_gather = 0;\n\\timing on\nSELECT count(user_id), count(item_id), sum(weight) FROM plays;\nSELECT count(user_id), count(item_id), sum(weight) FROM plays;\n' |
			psql_ | times | tail -n 1 | awk '{ printf "%.2f", $1 / 1000 }')"
	printf '\\timing on\n%s;\n%s;\n' "$ask" "$ask" | psql_ | times >"$work/asked"
	figure 'best items of 100 users, the first time, ms' "$(head -n 1 "$work/asked")"
	figure 'the same again, ms' "$(tail -n 1 "$work/asked")"
}

# statement NAME TIMES SQL [OPERATOR GOAL]: the median of so many runs in a session, in seconds
statement() {
	local seconds i

	progress "$1"
	{
		echo '\timing on'
		echo 'SET client_min_messages = debug1;'
		for ((i = 0; i < $2; i++)); do echo "$3;"; done
	} | psql_ >"$work/statement" 2>&1 || { tail -n 5 "$work/statement" >&2; die "could not run: $3"; }
	seconds=$(times <"$work/statement" | sort -g | awk '{ t[NR] = $1 } END { printf "%.4f", t[int((NR + 1) / 2)] / 1000 }')
	if [ $# -gt 3 ]; then goal "$1, seconds" "$seconds" "$4" "$5"; else figure "$1, seconds" "$seconds"; fi
	while IFS='|' read -r name seconds; do figure " $name" "$seconds"; done < <(mean_parts "$2" <"$work/statement")
}

# mean_parts TIMES: the seconds that each part of a call took, on average, if it logs any
mean_parts() {
	sed -nE 's/^.*DEBUG:  gpuvec_[a-z_]*: ([a-z ]*): [0-9]* rows, ([0-9.]*) s.*$/\1|\2/p' | awk -F'|' -v times="$1" '
		!($1 in sum) { names[++n] = $1 }
		{ sum[$1] += $2 }
		END { for (i = 1; i <= n; i++) printf "%s|%.3f\n", names[i], sum[names[i]] / times }'
}

measure_uses() {
	local users="ARRAY(SELECT key FROM user_factors ORDER BY key LIMIT $USERS)"
	local tables="'user_factors', 'item_factors'" plays="'plays', 'user_id', 'item_id'"

	psql_ -c 'CREATE INDEX ON plays (user_id)' -c 'VACUUM ANALYZE'
	statement "best 100 items of $USERS users" 3 "SELECT count(*) FROM gpuvec_recommend($tables, $users, 100)" '<=' 1
	statement "best item of $USERS users" 3 "SELECT count(*) FROM gpuvec_recommend($tables, $users, 1)"
	statement 'as many rows of generate_series' 3 "SELECT count(*) FROM generate_series(1, $USERS * 100)"
	statement 'the same without the items that they know' 3 "SELECT count(*) FROM gpuvec_recommend($tables, $users, 100, $plays)"
	statement 'best 10 items of a user, without those that he knows' 15 "SELECT count(*) FROM gpuvec_recommend($tables, ARRAY[77], 10, $plays)"
	statement 'folding in one user' 15 "SELECT count(*) FROM gpuvec_als_fold_in($plays, 'item_factors', ARRAY[77], 'weight')" '<=' 0.002
	statement "folding in $USERS users" 3 "SELECT count(*) FROM gpuvec_als_fold_in($plays, 'item_factors', $users, 'weight')" '<=' 1
	statement "reading the rows of $USERS users in plain SQL, one process" 3 "SELECT count(user_id), count(item_id), sum(weight) FROM plays WHERE user_id = ANY ($users)"
	statement '20 neighbors of all items' 3 "SELECT count(*) FROM gpuvec_item_neighbors($plays, 20, 'weight')"
}

bench_server "shared_buffers = 4GB
max_parallel_workers_per_gather = $WORKERS
max_parallel_workers = 16
max_worker_processes = 24
gpuvec.engine = '$ENGINE'
gpuvec.cpu_threads = $THREADS"
make_tables
measure_training
measure_rest
measure_uses
print_goals 'trainings through SQL'
[ "$failures" = 0 ] || exit 1
