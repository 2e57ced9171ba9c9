#!/bin/bash
# Measures searches over several servers: by the functions that return rows, and by ORDER BY.
#
#   scripts/bench-servers.sh HOST:PORT...
#
# PGHOST, PGPORT and PGUSER name the coordinator.  It connects to the servers as PGUSER, with
# the password in PGPASSWORD if there is one; all of them need gpuvec, the coordinator
# postgres_fdw too.  Makes a schema gpuvec_bench on each, and drops it at the end.
#
#   ROWS=100000     on each server
#   LEAVES=1        foreign tables for each server: more of them measure a longer list
#   QUERIES=2000    of a batch
#   K=10            rows of each
#   REPEAT=20       single queries
#   OPTIONS=        more options of CREATE SERVER, such as "parallel_commit 'on'"
#
# Prints a line for each measurement: milliseconds, the median of REPEAT for single queries.
set -euo pipefail

: "${ROWS:=100000}" "${LEAVES:=1}" "${QUERIES:=2000}" "${K:=10}" "${REPEAT:=20}" "${OPTIONS:=}"
: "${PGUSER:=$(id -un)}" "${PGDATABASE:=postgres}"
export PGUSER PGDATABASE
[ $# -gt 0 ] || { sed -n '2,/^set/{s/^# \{0,1\}//p}' "$0" >&2; exit 2; }

sql() { psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }
on() { sql -h "${1%:*}" -p "${1##*:}" -c "$2"; }

# rows of a server: five ids each, a function of the row's number
rows() { echo "SELECT i AS id, ARRAY[i % 997, i % 891 + 1000, i % 831 + 2000, i % 791 + 3000, i % 71 + 4000]::idset AS tokens FROM generate_series($1, $2) i"; }

clean() {
	local server n=0
	for server; do
		n=$((n + 1))
		on "$server" 'SET client_min_messages = error; DROP SCHEMA IF EXISTS gpuvec_bench CASCADE' || true
		sql -c "SET client_min_messages = error; DROP SERVER IF EXISTS gpuvec_bench_$n CASCADE" || true
	done
	sql -c 'SET client_min_messages = error; DROP SCHEMA IF EXISTS gpuvec_bench CASCADE' || true
}

setup() {
	local server n=0 leaf number=0 password=
	[ -z "${PGPASSWORD:-}" ] || password=", password '${PGPASSWORD//\'/\'\'}'"
	sql -c "SET client_min_messages = error; CREATE EXTENSION IF NOT EXISTS gpuvec; CREATE EXTENSION IF NOT EXISTS postgres_fdw;
		CREATE SCHEMA gpuvec_bench; CREATE TABLE gpuvec_bench.docs (id int, tokens idset) PARTITION BY RANGE (id);
		CREATE TABLE gpuvec_bench.queries AS $(rows 1 "$QUERIES")"
	for server; do
		n=$((n + 1))
		on "$server" "SET client_min_messages = error; CREATE EXTENSION IF NOT EXISTS gpuvec; CREATE SCHEMA gpuvec_bench"
		sql -c "CREATE SERVER gpuvec_bench_$n FOREIGN DATA WRAPPER postgres_fdw
				OPTIONS (host '${server%:*}', port '${server##*:}', dbname '$PGDATABASE', extensions 'gpuvec', fetch_size '$K'${OPTIONS:+, $OPTIONS});
			CREATE USER MAPPING FOR CURRENT_USER SERVER gpuvec_bench_$n OPTIONS (user '$PGUSER'$password)"
		for ((leaf = 1; leaf <= LEAVES; leaf++)); do
			on "$server" "CREATE TABLE gpuvec_bench.docs_$leaf AS $(rows $((number * (ROWS / LEAVES) + 1)) $(((number + 1) * (ROWS / LEAVES))));
				CREATE INDEX ON gpuvec_bench.docs_$leaf USING gpuvec (tokens); ANALYZE gpuvec_bench.docs_$leaf"
			sql -c "CREATE FOREIGN TABLE gpuvec_bench.docs_${n}_$leaf PARTITION OF gpuvec_bench.docs FOR VALUES FROM ($((number * (ROWS / LEAVES) + 1))) TO ($(((number + 1) * (ROWS / LEAVES) + 1)))
				SERVER gpuvec_bench_$n OPTIONS (schema_name 'gpuvec_bench', table_name 'docs_$leaf')"
			number=$((number + 1))
		done
	done
}

# measure NAME SQL...: the median of the milliseconds of REPEAT statements, %s is a query's number
measure() {
	local name=$1 i
	{
		echo '\o /dev/null'
		printf "$2;\n" 1
		echo '\timing on'
		for ((i = 1; i <= REPEAT; i++)); do printf "$2;\n" "$i"; done
	} | sql | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' | sort -n | awk -v name="$name" '{ t[NR] = $1 } END { printf "%-44s %10.2f ms\n", name, t[int((NR + 1) / 2)] }'
}

trap 'clean "$@"' EXIT
clean "$@"
setup "$@"
echo "$# servers, $LEAVES leaves each, $ROWS rows each, k = $K${OPTIONS:+, $OPTIONS}"
query="(SELECT tokens FROM gpuvec_bench.queries WHERE id = %s)"
measure "gpuvec_prewarm" "SELECT gpuvec_prewarm('gpuvec_bench.docs', 'tokens')"
measure "gpuvec_topk_rows" "SELECT * FROM gpuvec_topk_rows(NULL::gpuvec_bench.docs, 'tokens', $query, $K)"
measure "the same, of one leaf" "SELECT * FROM gpuvec_topk_rows(NULL::gpuvec_bench.docs_1_1, 'tokens', $query, $K)"
measure "ORDER BY tokens <-> query LIMIT k" "SELECT id FROM gpuvec_bench.docs ORDER BY tokens <-> $query LIMIT $K"
REPEAT=3 measure "gpuvec_topk_batch_rows, $QUERIES queries" "SELECT count(*) FROM gpuvec_topk_batch_rows(NULL::gpuvec_bench.docs, 'tokens', (SELECT array_agg(tokens) FROM gpuvec_bench.queries), $K)"
REPEAT=3 measure "the same, of one leaf" "SELECT count(*) FROM gpuvec_topk_batch_rows(NULL::gpuvec_bench.docs_1_1, 'tokens', (SELECT array_agg(tokens) FROM gpuvec_bench.queries), $K)"
