# The benchmark; test/bench/RESULTS.md says what it measures and how to read it.
#
#   make bench                                        a laptop: mode B, 1,000,000 documents
#   make bench DOCS=8500000 ENGINE=cuda MODES="A B C" a machine with a GPU
#   make bench DOCS=20000 QUERIES=64 MODES="A B C D F U"   all kinds of data, in short
#   make bench-engine                                 the engine alone, without PostgreSQL
#   make bench-filters                                searches with filters, see bench_filters.cpp
#   make bench-sparse-engine   sparse vectors, see bench_sparse_engine.cpp
#   make bench-choice                                 scan or lists, over columns of many kinds, see bench_choice.cpp
#   make bench-embedding                              kernels of embedding tables, see bench_embedding.cu
#   make bench-embedding-sql                          embedding tables through SQL
#   make bench-vectors                                embedding tables on a GPU, see bench_vectors.c
#   make bench-als                                    trainings in the engine alone, see bench_als.cpp
#   make bench-als-sql SCALE=1                        trainings through SQL
#   make bench-filters-sql                            index scans with conditions
#   make bench-counts          counts of rows by an index
#   make bench-facets          groups of rows, counted by an index
#   make bench-facets-engine   the same of many rows, in the engine alone, see bench_facets.cpp
#   make bench-newest          the newest rows that have an id
#   make bench-overlaps        users that audiences share, in the engine alone
#   make bench-devices LAYOUTS="0 0,1"                tables on several devices, through SQL
#   make bench-partitions      a partitioned table beside a flat one
#   make bench-neighbors                              nearest items of each item, see bench_neighbors.cpp
#   make bench-sparse      sparse vectors by sequential scans and by an index
#   make bench-peers                                  index scans against other ways to the same rows
#   make bench-index                                  what an index costs
#   make bench-writers                                searches beside writers, see bench_writers.sh
#   make soak-writers MINUTES=30                      the same for long, every answer compared, see soak_writers.sh
#
# MODES    kinds of data (test/bench/setgen.h)             ENGINE   auto, cpu or cuda
# DOCS     number of documents                             THREADS  CPU threads of the engine, 0: all
#                                                         (default: 1 on the CPU, all with a GPU)
# QUERIES  number of queries of the large batch            ORDER    of the rows: position or random
# CLIENTS  sessions of the throughput test, 0: none        INTARRAY compare with intarray: auto, yes, no
# BENCH_DIR  folder for the server and its data; removed at the end
# MEASURE_SECONDS, CLIENT_SECONDS  how long to repeat each measurement (3), and that of CLIENTS (10)
#
# bench-churn: a mirror under a flood of small updates, see bench_churn.cpp
#
# bench-embedding-sql: ROWS, ITEMS, USERS, CLICKS, BAGS, HOTNESS, UNVACUUMED, NEAREST, WIDTH, ENGINE, THREADS (0: all), REPEATS
#
# bench-als-sql: SCALE (0.1, of 20,000,263 interactions), FACTORS (64), ITERATIONS (15), ENGINE, THREADS (0: all), REPEATS (3), USERS (100,000), WORKERS (8), GOAL
#
# bench-filters-sql: ROWS (1,000,000), QUERIES (2,000), CLIENTS (64), MEASURE_SECONDS (2), ENGINE, THREADS (0: all), GOAL (1.5: times an
#              unfiltered scan), CLIENTS_GOAL (40,000 statements a second), LATERAL_GOAL (0.1 seconds),
#              JOIN_ROWS (values of gpuvec.join_rows, none)
#
# bench-counts: ROWS (1,000,000), MEASURE_SECONDS (2), ENGINE, THREADS (0:
#              all), GOAL (1: milliseconds of a count), GIN (yes)
#
# bench-facets: ROWS (1,000,000), MEASURE_SECONDS (2), ENGINE, THREADS (0:
#              all), GOAL (6: milliseconds of a facet), SCANS (yes),
#              UNPROVEN (yes)
#
# bench-newest: ROWS (1,000,000), MEASURE_SECONDS (2), ENGINE, THREADS (0:
#              all), GOAL (1: milliseconds of a statement), PEERS (yes: GIN, a
#              B-tree, and RUM if it is installed)
#
# bench-devices: ROWS (1,000,000), QUERIES (2,000), MEASURE_SECONDS (4),
#              CLIENTS (64: a list), ENGINE, THREADS (0: all), REPEATS (5),
#              LAYOUTS (0: values of gpuvec.devices), WORKERS (0 2 4 8: of loads), TIER (yes: also with the host's memory)
#
# bench-partitions: ROWS (1,000,000), MODE (B), PARTITIONS (64),
#              QUERIES (2,000), MEASURE_SECONDS (2), ROUNDS (5), ENGINE,
#              THREADS (0: all), LONE_GOAL, ORDER_GOAL and BATCH_GOAL (1.5, 3
#              and 1.1 times the flat table)
#
# bench-sparse: ROWS (200,000), QUERIES (200), ROUNDS (10), ENGINE; with other
#              numbers of rows and queries there is no reference
#
# bench-peers and bench-index: ROWS, QUERIES, THREADS (0: all), and
# PARTS        of bench-peers: sets, text, fingerprints, counts; the latter
#              with SIZE (1,000,000 strings), FINGERPRINTS (numbers of rows),
#              COUNTS (100,000 molecules), NEAREST (10), BATCH (100 thresholds
#              in one statement), and the thresholds SIMILARITY and TANIMOTO
# SMALL_ROWS   rows for RUM and pgvector         REPEATS, ROUNDS, TIMES   of bench-index: see index_cost.sh
# PEERS_ROOT   a folder with these extensions, unpacked there as they would be below / (with
#              "dpkg -x", say), if they are not installed
#
# bench-writers and soak-writers: DOCS (2,000,000), CLIENTS (44), WRITERS (20), ENGINE, THREADS (0: all),
# AUTOVACUUM (on), PATIENCE (seconds that a statement may take, 120),
# PARTITIONS (none), and
# RATES, ALONE_RATE, CLIENT_SECONDS (20), WARM_SECONDS, WRITE_SECONDS, ROUNDS, PARTS   see bench_writers.sh
# MINUTES, RATE, NTH, KILL_SECONDS, SAMPLE_SECONDS                                     see soak_writers.sh

BENCH_BIN = test/bench/bin
BENCH_CXXFLAGS = -std=c++17 -O2 -g -pthread -ffp-contract=off -Wall -Wextra -I$(srcdir)/src -I$(srcdir)/test/bench
BENCH_HEADERS = $(addprefix $(srcdir)/test/bench/,setgen.h checksum.h engine_rows.h bench_lib.h)

# DOCS itself names documentation in PGXS, so it must not get a default here
MODES ?= $(or $(MODE),B)
BENCH_DOCS = $(or $(DOCS),1000000)
QUERIES ?= 2000
ENGINE ?= auto
THREADS ?=
ORDER ?= position
CLIENTS ?= 0
INTARRAY ?= auto
BENCH_DIR ?=

bench: all bench-engine
	MODES='$(MODES)' DOCS='$(BENCH_DOCS)' QUERIES='$(QUERIES)' ENGINE='$(ENGINE)' THREADS='$(THREADS)' \
		ORDER='$(ORDER)' CLIENTS='$(CLIENTS)' INTARRAY='$(INTARRAY)' BENCH_DIR='$(BENCH_DIR)' \
		BENCH_BIN='$(CURDIR)/$(BENCH_BIN)' PG_CONFIG='$(PG_CONFIG)' BUILD_DIR='$(CURDIR)' \
		bash $(srcdir)/test/bench/bench.sh

# these build and start a server as "make check" does
given = $(foreach v,$(1),$(if $(filter command line environment,$(origin $(v))),$(v)='$($(v))'))
PEERS_SETTINGS = $(call given,ROWS SMALL_ROWS SIZE FINGERPRINTS COUNTS NEAREST BATCH SIMILARITY TANIMOTO PARTS QUERIES THREADS PEERS_ROOT REPEATS ROUNDS TIMES) \
	PG_CONFIG='$(PG_CONFIG)' WITH_CUDA='$(WITH_CUDA)' BENCH_BIN='$(CURDIR)/$(BENCH_BIN)'

bench-peers: $(BENCH_BIN)/bench_gen
	$(PEERS_SETTINGS) bash $(srcdir)/test/bench/peers.sh

EMBEDDING_SQL_SETTINGS = $(call given,ITEMS USERS CLICKS BAGS HOTNESS UNVACUUMED NEAREST WIDTH ENGINE)

bench-embedding-sql: $(BENCH_BIN)/bench_gen
	$(PEERS_SETTINGS) $(EMBEDDING_SQL_SETTINGS) bash $(srcdir)/test/bench/embedding_sql.sh

ALS_SQL_SETTINGS = $(call given,SCALE FACTORS ITERATIONS GOAL ENGINE USERS WORKERS)

bench-als-sql: $(BENCH_BIN)/bench_gen $(BENCH_BIN)/bench_als
	$(PEERS_SETTINGS) $(ALS_SQL_SETTINGS) bash $(srcdir)/test/bench/als_sql.sh

FILTERS_SETTINGS = $(call given,CLIENTS ENGINE GOAL MEASURE_SECONDS CLIENTS_GOAL LATERAL_GOAL JOIN_ROWS)

bench-filters-sql: $(BENCH_BIN)/bench_gen
	$(PEERS_SETTINGS) $(FILTERS_SETTINGS) bash $(srcdir)/test/bench/filters_sql.sh

bench-counts: $(BENCH_BIN)/bench_gen
	$(PEERS_SETTINGS) $(call given,ENGINE GOAL MEASURE_SECONDS GIN) bash $(srcdir)/test/bench/counts_sql.sh

bench-facets: $(BENCH_BIN)/bench_gen
	$(PEERS_SETTINGS) $(call given,ENGINE GOAL MEASURE_SECONDS SCANS UNPROVEN) bash $(srcdir)/test/bench/facets_sql.sh

bench-newest: $(BENCH_BIN)/bench_gen
	$(PEERS_SETTINGS) $(call given,ENGINE GOAL MEASURE_SECONDS PEERS) bash $(srcdir)/test/bench/newest_sql.sh

bench-devices: $(BENCH_BIN)/bench_gen
	$(PEERS_SETTINGS) $(call given,CLIENTS ENGINE MEASURE_SECONDS LAYOUTS WORKERS TIER) bash $(srcdir)/test/bench/devices_sql.sh

bench-partitions: $(BENCH_BIN)/bench_gen
	$(PEERS_SETTINGS) $(call given,ENGINE MODE MEASURE_SECONDS PARTITIONS LONE_GOAL ORDER_GOAL BATCH_GOAL) \
		bash $(srcdir)/test/bench/partitions_sql.sh

bench-sparse: $(BENCH_BIN)/bench_gen $(BENCH_BIN)/bench_sparse
	$(call given,ROWS QUERIES ROUNDS ENGINE PEERS_ROOT) PG_CONFIG='$(PG_CONFIG)' WITH_CUDA='$(WITH_CUDA)' BENCH_BIN='$(CURDIR)/$(BENCH_BIN)' \
		bash $(srcdir)/test/bench/sparse_sql.sh

bench-index: $(BENCH_BIN)/bench_gen
	$(PEERS_SETTINGS) bash $(srcdir)/test/bench/index_cost.sh

WRITERS_SETTINGS = $(call given,CLIENTS WRITERS ENGINE AUTOVACUUM PATIENCE RATES ALONE_RATE CLIENT_SECONDS WARM_SECONDS WRITE_SECONDS PARTS PARTITIONS \
	MINUTES RATE NTH KILL_SECONDS SAMPLE_SECONDS) $(if $(DOCS),ROWS='$(DOCS)')

bench-writers: $(BENCH_BIN)/bench_gen
	$(PEERS_SETTINGS) $(WRITERS_SETTINGS) bash $(srcdir)/test/bench/bench_writers.sh

soak-writers: $(BENCH_BIN)/bench_gen
	$(PEERS_SETTINGS) $(WRITERS_SETTINGS) bash $(srcdir)/test/bench/soak_writers.sh

bench-engine: $(BENCH_BIN)/bench_gen $(BENCH_BIN)/bench_engine

# The choice between scan and lists
bench-choice: $(BENCH_BIN)/bench_choice

$(BENCH_BIN)/bench_choice: $(srcdir)/test/bench/bench_choice.cpp $(BENCH_HEADERS) $(ENGINE_LIB)
	@mkdir -p $(@D)
	$(CXX) $(BENCH_CXXFLAGS) -o $@ $< $(ENGINE_LIB) $(ENGINE_LIBS)

$(BENCH_BIN)/bench_gen: $(srcdir)/test/bench/bench_gen.cpp $(BENCH_HEADERS)
	@mkdir -p $(@D)
	$(CXX) $(BENCH_CXXFLAGS) -o $@ $<

$(BENCH_BIN)/bench_sparse: $(srcdir)/test/bench/bench_sparse.cpp $(addprefix $(srcdir)/test/bench/,sparsegen.h setgen.h checksum.h)
	@mkdir -p $(@D)
	$(CXX) $(BENCH_CXXFLAGS) -o $@ $<

$(BENCH_BIN)/bench_engine: $(srcdir)/test/bench/bench_engine.cpp $(BENCH_HEADERS) $(ENGINE_LIB)
	@mkdir -p $(@D)
	$(CXX) $(BENCH_CXXFLAGS) -o $@ $< $(ENGINE_LIB) $(ENGINE_LIBS)

# Searches with filters, without PostgreSQL
bench-filters: $(BENCH_BIN)/bench_filters

$(BENCH_BIN)/bench_filters: $(srcdir)/test/bench/bench_filters.cpp $(BENCH_HEADERS) $(ENGINE_LIB)
	@mkdir -p $(@D)
	$(CXX) $(BENCH_CXXFLAGS) -o $@ $< $(ENGINE_LIB) $(ENGINE_LIBS)

# Searches of sparse vectors, without PostgreSQL
bench-sparse-engine: $(BENCH_BIN)/bench_sparse_engine

$(BENCH_BIN)/bench_sparse_engine: $(srcdir)/test/bench/bench_sparse_engine.cpp $(srcdir)/test/bench/sparsegen.h $(BENCH_HEADERS) $(ENGINE_LIB)
	@mkdir -p $(@D)
	$(CXX) $(BENCH_CXXFLAGS) -o $@ $< $(ENGINE_LIB) $(ENGINE_LIBS)

# Rows that pairs of sets match, without PostgreSQL; beside Roaring bitmaps if
# there are any (Debian: libroaring-dev)
ROARING = $(if $(wildcard /usr/include/roaring/roaring.h),-DHAVE_ROARING)

bench-overlaps: $(BENCH_BIN)/bench_overlaps

$(BENCH_BIN)/bench_overlaps: $(srcdir)/test/bench/bench_overlaps.cpp $(BENCH_HEADERS) $(ENGINE_LIB)
	@mkdir -p $(@D)
	$(CXX) $(BENCH_CXXFLAGS) $(ROARING) -o $@ $< $(ENGINE_LIB) $(ENGINE_LIBS) $(ROARING:-DHAVE_ROARING=-lroaring)

# Groups of matches, without PostgreSQL
bench-facets-engine: $(BENCH_BIN)/bench_facets

$(BENCH_BIN)/bench_facets: $(srcdir)/test/bench/bench_facets.cpp $(BENCH_HEADERS) $(ENGINE_LIB)
	@mkdir -p $(@D)
	$(CXX) $(BENCH_CXXFLAGS) -o $@ $< $(ENGINE_LIB) $(ENGINE_LIBS)

# Segments under churn, without PostgreSQL
bench-churn: $(BENCH_BIN)/bench_churn

$(BENCH_BIN)/bench_churn: $(srcdir)/test/bench/bench_churn.cpp $(BENCH_HEADERS) $(ENGINE_LIB)
	@mkdir -p $(@D)
	$(CXX) $(BENCH_CXXFLAGS) -o $@ $< $(ENGINE_LIB) $(ENGINE_LIBS)

# The kernels of embedding tables alone; needs nvcc, and a GPU to run
EMBEDDING_OBJS = $(patsubst $(srcdir)/%.cu,build/%.o,$(sort $(POOLING_SOURCES))) build/kernels/embedding/products.o

bench-embedding: $(BENCH_BIN)/bench_embedding

$(BENCH_BIN)/bench_embedding: build/test/bench/bench_embedding.o $(EMBEDDING_OBJS)
	@mkdir -p $(@D)
	$(CXX) -o $@ $^ $(ENGINE_LIBS)

build/test/bench/bench_embedding.o: NVCC_EXTRA_FLAGS += -I$(srcdir)/test/bench -Xcompiler -ffp-contract=off
-include build/test/bench/bench_embedding.d

# The CUDA backend's service of embedding tables
bench-vectors: $(BENCH_BIN)/bench_vectors

$(BENCH_BIN)/bench_vectors: $(srcdir)/test/bench/bench_vectors.c $(wildcard $(srcdir)/src/core/*.h $(srcdir)/src/engine/*.h $(srcdir)/src/engine/*/*.h) $(ENGINE_LIB)
	@mkdir -p $(@D)
	$(ENGINE_CC) $(ENGINE_FLAGS) -o $@ $< $(ENGINE_LIB) $(ENGINE_LIBS)

# Trainings in the engine
bench-als: $(BENCH_BIN)/bench_als

$(BENCH_BIN)/bench_als: $(srcdir)/test/bench/bench_als.cpp $(srcdir)/test/bench/als_data.h $(wildcard $(srcdir)/kernels/als/*.h $(srcdir)/src/engine/*.h $(srcdir)/src/engine/als/*.h) $(ENGINE_LIB)
	@mkdir -p $(@D)
	$(CXX) $(BENCH_CXXFLAGS) -O3 -march=native -fassociative-math -fno-signed-zeros -fno-trapping-math -fno-math-errno -I$(srcdir) $(if $(CUDA),-DWITH_CUDA -I$(CUDA_HOME)/include) -o $@ $< $(ENGINE_LIB) $(ENGINE_LIBS)

# The nearest items of each item, without PostgreSQL
bench-neighbors: $(BENCH_BIN)/bench_neighbors

$(BENCH_BIN)/bench_neighbors: $(srcdir)/test/bench/bench_neighbors.cpp $(srcdir)/test/bench/als_data.h $(ENGINE_LIB)
	@mkdir -p $(@D)
	$(CXX) $(BENCH_CXXFLAGS) -o $@ $< $(ENGINE_LIB) $(ENGINE_LIBS)

clean: clean-bench
clean-bench:
	rm -rf $(BENCH_BIN)

.PHONY: bench bench-engine bench-neighbors bench-choice bench-overlaps bench-facets-engine bench-filters bench-embedding bench-embedding-sql bench-vectors bench-als bench-als-sql bench-filters-sql bench-peers bench-index bench-devices bench-partitions bench-sparse bench-sparse-engine bench-churn bench-writers soak-writers clean-bench
