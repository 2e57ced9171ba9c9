# Shell functions that bench_writers.sh and soak_writers.sh share: a table that clients search
# while others write.  To be sourced after peers_lib.sh.
#
#	writers_server CONF		build, start a server, and make the tables and pgbench's scripts
#	add_index, drop_index	the index of the table, and its copy in the engine
#	search_once				a search by the index
#	start_writers RATE [OPTION...]
#	start_load NAME [OPTION...]
#							pgbench in the background; times of transactions in $work/log/NAME.*
#	good_load NAME			false, and a failure, if a transaction of it has failed
#	rate_of NAME			its transactions a second, as pgbench says at its end
#	finish_loads			wait for those that were started
#	mirror_columns			segments | MB | MB on the device | rows rows_waiting
#	engine_mb				memory of the engine's process
#
# The table docs has ROWS rows: ids 0 to ROWS - 1, in random order, and sets of setgen.h, mode B.
# With PARTITIONS it is partitioned by hash of the id.  All ids are there at
# any time: a transaction of a writer gives one id a new set, and deletes
# another row and inserts its id again.  It updates even ids and deletes odd
# ones, so that no two transactions wait for each other in a circle.  New sets
# come from the table pool.

: "${ROWS:=2000000}" "${CLIENTS:=44}" "${WRITERS:=20}" "${ENGINE:=auto}" "${THREADS:=0}" "${AUTOVACUUM:=on}" "${PATIENCE:=120}" "${PARTITIONS:=0}"
: "${BENCH_BIN:?run this with make}"
HOOKS=no WITH_CUDA=${WITH_CUDA:-no}
unset MAKEFLAGS MFLAGS MAKELEVEL DOCS
POOL=$((ROWS < 200000 ? ROWS : 200000))
loads=()					# processes that finish_loads waits for

# write_script NAME: a script of pgbench from stdin
write_script() { cat >"$work/$1.sql"; }

write_scripts() {
	local half=$((ROWS / 2 - 1)) random="SELECT tokens FROM docs WHERE id = :q"
	write_script write <<-SQL
		\\set u 2 * random(0, $half)
		\\set d 2 * random(0, $half) + 1
		\\set p random(0, $POOL - 1)
		\\set r random(0, $POOL - 1)
		BEGIN;
		UPDATE docs SET tokens = (SELECT tokens FROM pool WHERE n = :p) WHERE id = :u;
		DELETE FROM docs WHERE id = :d;
		INSERT INTO docs SELECT :d, tokens FROM pool WHERE n = :r ON CONFLICT DO NOTHING;
		END;
	SQL
	write_script index <<-SQL
		\\set q random(0, $ROWS - 1)
		SELECT id, tokens <-> ($random) AS distance FROM docs ORDER BY tokens <-> ($random) LIMIT 10;
	SQL
	write_script topk <<-SQL
		\\set q random(0, $ROWS - 1)
		SELECT rank, tid, score FROM gpuvec_topk('docs', 'tokens', ($random), 10);
	SQL
}

make_tables() {
	local by=
	[ "$PARTITIONS" = 0 ] || by='PARTITION BY HASH (id)'
	progress "making $ROWS rows${by:+ in $PARTITIONS partitions}"
	psql_ <<-SQL || die "could not make the tables"
		CREATE TABLE docs (id bigint NOT NULL, tokens idset NOT NULL) $by;
		SELECT format('CREATE TABLE docs_%s PARTITION OF docs FOR VALUES WITH (MODULUS $PARTITIONS, REMAINDER %s)', n, n)
			FROM generate_series(0, $PARTITIONS - 1) n \\gexec
		COPY docs FROM PROGRAM '$work/bench_gen docs --mode B --order random --n-docs $ROWS' (FORMAT binary);
		CREATE SEQUENCE docs_id START $ROWS;
		ALTER TABLE docs ALTER id SET DEFAULT nextval('docs_id'), ADD PRIMARY KEY (id);
		CREATE TABLE pool (n bigint NOT NULL, tokens idset NOT NULL);
		COPY pool FROM PROGRAM '$work/bench_gen docs --mode B --seed 54321 --n-docs $POOL' (FORMAT binary);
		ALTER TABLE pool ADD PRIMARY KEY (n);
		VACUUM ANALYZE docs;
		VACUUM ANALYZE pool;
	SQL
}

writers_server() {
	bench_server "max_connections = $((2 * CLIENTS + WRITERS + 50))
max_locks_per_transaction = 512
shared_buffers = $((512 + ROWS / 2000))MB
autovacuum = $AUTOVACUUM
gpuvec.engine = '$ENGINE'
gpuvec.cpu_threads = $THREADS
$1"
	mkdir -p "$work/log"
	make_tables
	write_scripts
}

# search_once [EXPLAIN]
search_once() { printf '\\set q 1\n%s %s\n' "${1:-}" "$(tail -n 1 "$work/index.sql")" | psql_; }

# The search makes the copy one that the index feeds
add_index() {
	psql_ -c "CREATE INDEX docs_tokens ON docs USING gpuvec (tokens)" -c "SELECT gpuvec_prewarm('docs', 'tokens')" >/dev/null || die "no index"
	search_once EXPLAIN >"$work/plan"
	grep -q 'Index Scan using docs.*_tokens' "$work/plan" || { cat "$work/plan" >&2; die "the index is not used"; }
	search_once >/dev/null
}

drop_index() {
	psql_ -c "DROP INDEX docs_tokens" -c "SELECT gpuvec_evict('docs')" -c "SELECT gpuvec_prewarm('docs', 'tokens')" >/dev/null
}

# A statement that takes more than PATIENCE seconds is an error
start_load() {
	local name=$1
	shift
	rm -f "$work/log/$name".*
	PGOPTIONS="-c statement_timeout=${PATIENCE}s" "$bindir/pgbench" -n --log --log-prefix="$work/log/$name" "$@" >"$work/log/$name.out" 2>&1 &
	loads+=($!)
}

# start_clients NAME CLIENTS [OPTION...]: a load of so many sessions
start_clients() { start_load "$1" -c "$2" -j "$(($2 < $(nproc) ? $2 : $(nproc)))" "${@:3}"; }

# start_writers RATE [OPTION...]: RATE is transactions a second, or max
start_writers() {
	local limit=(-R "$1")
	[ "$1" != max ] || limit=()
	start_clients writers "$WRITERS" -M prepared -f "$work/write.sql" "${limit[@]}" "${@:2}"
}

good_load() {
	local errors='^pgbench: .*error|aborted in'
	! grep -qE "$errors" "$work/log/$1.out" || { fail "$1: $(grep -E -A 30 "$errors" "$work/log/$1.out")"; return 1; }
}

rate_of() { awk '/^tps/ { rate = $3 } END { print rate }' "$work/log/$1.out"; }

finish_loads() {
	[ ${#loads[@]} = 0 ] || wait "${loads[@]}"
	loads=()
}

# Rows that are rows_waiting are shown by views that have such a column
mirror_columns() {
	local columns
	columns=$(psql_ -F ' | ' -c "SELECT sum(segments), round(sum(bytes) / 1048576.0, 1), round(sum(device_bytes) / 1048576.0, 1), coalesce(sum((to_jsonb(m) ->> 'rows_waiting')::bigint)::text, '-')
		FROM (SELECT DISTINCT ON (relation) * FROM gpuvec_mirrors WHERE relation = 'docs'::regclass OR relation IN (SELECT relid FROM pg_partition_tree('docs'))
			ORDER BY relation, last_use DESC) m")
	echo "${columns:-- | - | - | -}"
}

# kb PID NAME: a line of /proc/PID/status
kb() { awk -v name="$2:" '$1 == name { print $2 }' "/proc/$1/status" 2>/dev/null; }

engine_mb() {
	local pid memory
	pid=$(gpuvec_engines "$work/data" | head -n 1)
	memory=$(kb "${pid:-0}" VmRSS)
	[ -n "$memory" ] && calc "$memory / 1024" 0 || echo -
}

kill_engines() { gpuvec_engines "$work/data" | xargs -r kill -9 2>/dev/null; }
