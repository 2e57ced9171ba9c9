# Test and benchmark of the CUDA backend.  From the root of the repository:
#
#   make -f test/unit/cuda.mk            builds both into build/test
#   make -f test/unit/cuda.mk check-cuda  runs the test (FULL=full for all of it)
#
# PostgreSQL is not needed.  CUDA_ARCHS=90 builds the
# kernels for one kind of GPU only.

srcdir ?= .
EXTVERSION ?= 0.2.0
WITH_CUDA := yes

cuda-tests: build/test/cuda_topk build/test/cuda_cold build/test/cuda_filter build/test/cuda_weights build/test/cuda_overlaps build/test/cuda_shards build/test/cuda_als build/test/cuda_bench build/test/cuda_neighbors

include engine.mk

CUDA_TEST_FLAGS = -std=gnu++17 -O2 -g -pthread -ffp-contract=off -Wall -Wextra -Wno-missing-field-initializers \
	-I$(srcdir)/src -I$(srcdir)
CUDA_TEST_HEADERS = $(wildcard $(srcdir)/src/core/*.h $(srcdir)/src/engine/*.h $(srcdir)/src/engine/*/*.h $(srcdir)/kernels/*/*.h $(srcdir)/test/bench/*.h $(srcdir)/test/unit/cuda_test.h $(srcdir)/test/unit/search_met.h)

build/test/cuda_topk build/test/cuda_cold build/test/cuda_bench: \
build/test/cuda_%: $(srcdir)/test/unit/cuda_%.cpp $(CUDA_TEST_HEADERS) $(ENGINE_LIB)
	@mkdir -p $(@D)
	$(CXX) $(CUDA_TEST_FLAGS) -o $@ $< $(ENGINE_LIB) $(ENGINE_LIBS)

# the test of the CPU's filters, with the other backend
build/test/cuda_filter.o: $(srcdir)/test/unit/filter_test.c $(CUDA_TEST_HEADERS) $(srcdir)/test/unit/test_groups.h $(srcdir)/test/unit/test_match.h $(srcdir)/test/unit/test_weights.h $(srcdir)/test/unit/unit_test.h
	@mkdir -p $(@D)
	$(ENGINE_CC) -std=gnu11 -O2 -g -pthread -ffp-contract=off -Wall -Wextra -DFILTER_TEST_GPU \
		-I$(srcdir)/src -I$(srcdir) -c -o $@ $<

build/test/cuda_filter: build/test/cuda_filter.o $(ENGINE_LIB)
	$(CXX) -pthread -o $@ $^ $(ENGINE_LIBS)

# the test of weights, likewise
build/test/cuda_weights.o: $(srcdir)/test/unit/weights_test.c $(CUDA_TEST_HEADERS) $(srcdir)/test/unit/unit_test.h
	@mkdir -p $(@D)
	$(ENGINE_CC) -std=gnu11 -O2 -g -pthread -ffp-contract=off -Wall -Wextra -DWEIGHTS_TEST_GPU \
		-I$(srcdir)/src -I$(srcdir) -c -o $@ $<

build/test/cuda_weights: build/test/cuda_weights.o $(ENGINE_LIB)
	$(CXX) -pthread -o $@ $^ $(ENGINE_LIBS)

# the test of pairs of queries, likewise
build/test/cuda_overlaps.o: $(srcdir)/test/unit/overlaps_test.c $(CUDA_TEST_HEADERS) $(srcdir)/test/unit/unit_test.h
	@mkdir -p $(@D)
	$(ENGINE_CC) -std=gnu11 -O2 -g -pthread -ffp-contract=off -Wall -Wextra -DOVERLAPS_TEST_GPU \
		-I$(srcdir)/src -I$(srcdir) -c -o $@ $<

build/test/cuda_overlaps: build/test/cuda_overlaps.o $(ENGINE_LIB)
	$(CXX) -pthread -o $@ $^ $(ENGINE_LIBS)

# the test of several devices; one GPU counts as several
build/test/cuda_shards.o: $(srcdir)/test/unit/shards_test.c $(CUDA_TEST_HEADERS) $(srcdir)/test/unit/test_groups.h $(srcdir)/test/unit/test_match.h $(srcdir)/test/unit/test_weights.h $(srcdir)/test/unit/unit_test.h
	@mkdir -p $(@D)
	$(ENGINE_CC) -std=gnu11 -O2 -g -pthread -ffp-contract=off -Wall -Wextra -DSHARDS_TEST_GPU \
		-I$(srcdir)/src -I$(srcdir) -c -o $@ $<

build/test/cuda_shards: build/test/cuda_shards.o $(ENGINE_LIB)
	$(CXX) -pthread -o $@ $^ $(ENGINE_LIBS)

# the engine's threads, to compare with
build/test/cuda_neighbors build/test/cuda_als: build/test/cuda_%: $(srcdir)/test/unit/cuda_%.cpp $(CUDA_TEST_HEADERS) $(srcdir)/test/unit/unit_test.h $(ENGINE_LIB)
	@mkdir -p $(@D)
	$(CXX) $(CUDA_TEST_FLAGS) -isystem $(CUDA_HOME)/include -I$(srcdir)/test/bench -o $@ $< $(ENGINE_LIB) $(ENGINE_LIBS)

# these need a GPU
CUDA_TESTS = gpu_search gpu_cold gpu_filter gpu_weights gpu_overlaps gpu_shards gpu_als gpu_neighbors gpu_kernels gpu_vectors
ON_GPU = $(MAKE) -f test/unit/embedding.mk WITH_CUDA=yes CUDA_ARCHS='$(CUDA_ARCHS)'

tests:
	@echo $(CUDA_TESTS)

programs: build/test/cuda_topk build/test/cuda_cold build/test/cuda_filter build/test/cuda_weights build/test/cuda_overlaps build/test/cuda_shards build/test/cuda_als build/test/cuda_neighbors
	+$(ON_GPU) programs-gpu

check: $(CUDA_TESTS:%=check-%)

check-gpu_search: build/test/cuda_topk
	$< full

check-gpu_filter: build/test/cuda_filter
	$< full

check-gpu_weights: build/test/cuda_weights
	$< full

check-gpu_overlaps: build/test/cuda_overlaps
	$< full

check-gpu_shards: build/test/cuda_shards
	$< 400

check-gpu_cold: build/test/cuda_cold
	$< full

check-gpu_als: build/test/cuda_als
	$< full

check-gpu_neighbors: build/test/cuda_neighbors
	$< full

check-gpu_kernels check-gpu_vectors:
	+$(ON_GPU) $@

.PHONY: cuda-tests tests programs check $(CUDA_TESTS:%=check-%)
