# The kernels of searches, and what the CUDA backend makes of them, without a GPU: every
# match is compared with a plain count over all rows.  From the root of the repository:
#
#   make -f test/unit/search.mk check
#
# It needs the headers of the CUDA toolkit; without them there is no test.

srcdir ?= .
WITH_CUDA ?= auto
EXTVERSION ?= 0.2.0

check:

include engine.mk
include test/unit/emulation/emulation.mk

SEARCH_OBJS = $(patsubst $(srcdir)/%.cu,$(EMULATION_DIR)/search/%.o,$(DEVICE_SOURCES) $(wildcard $(srcdir)/kernels/search/*.cu)) \
	$(EMULATION_DIR)/search/$(EMULATION)/search.o $(EMULATION_DIR)/$(EMULATION)/emulation.o

# what they and the tests need of the engine
SEARCH_LIB = $(EMULATION_DIR)/libengine.a

# with much shared memory, and with little
SEARCH_TESTS = search search_small search_cold search_filter search_weights search_overlaps search_shards search_server

tests:
	@echo $(SEARCH_TESTS)

check: $(SEARCH_TESTS:%=check-%)

ifeq ($(CUDA),yes)
programs: $(EMULATION_DIR)/cuda_topk $(EMULATION_DIR)/cuda_cold $(EMULATION_DIR)/cuda_filter $(EMULATION_DIR)/cuda_weights $(EMULATION_DIR)/cuda_overlaps $(EMULATION_DIR)/cuda_shards \
	$(EMULATION_DIR)/gpuvec-engine $(EMULATION_DIR)/server_test

check-search: $(EMULATION_DIR)/cuda_topk
	$< emulated 1

check-search_small: $(EMULATION_DIR)/cuda_topk
	EMULATED_GPU=86 $< tiny 2

check-search_cold: $(EMULATION_DIR)/cuda_cold
	$< emulated 1

check-search_filter: $(EMULATION_DIR)/cuda_filter
	$<

check-search_weights: $(EMULATION_DIR)/cuda_weights
	$<

check-search_overlaps: $(EMULATION_DIR)/cuda_overlaps
	$<

check-search_shards: $(EMULATION_DIR)/cuda_shards
	$< 40

# what the engine makes of a GPU for searches of several mirrors
check-search_server: $(EMULATION_DIR)/server_test $(EMULATION_DIR)/gpuvec-engine
	SERVER_TEST_BACKEND=cuda $^ $(or $(SERVER_TEST_ARGS),several_mirrors compounds_filters compounds_values values values_memory)
else
programs:

$(SEARCH_TESTS:%=check-%):
	@echo "0 passed, 0 failed (no CUDA toolkit)"
endif

$(EMULATION_DIR)/search/%.o: $(srcdir)/%.cu $(EMULATION_HEADERS)
	@mkdir -p $(@D)
	$(CXX) $(EMULATION_FLAGS) -DEMULATED_SEARCH -Wno-unknown-pragmas -x c++ -c -o $@ $<

$(EMULATION_DIR)/search/%.o: $(srcdir)/%.cpp $(EMULATION_HEADERS)
	@mkdir -p $(@D)
	$(CXX) $(EMULATION_FLAGS) -DEMULATED_SEARCH -c -o $@ $<

$(SEARCH_LIB): $(ENGINE_OBJS)
	@mkdir -p $(@D)
	rm -f $@
	$(AR) rcs $@ $^

# the test of the CPU's filters, with the other backend
$(EMULATION_DIR)/cuda_filter.o: $(srcdir)/test/unit/filter_test.c $(srcdir)/test/unit/test_groups.h $(srcdir)/test/unit/test_match.h $(srcdir)/test/unit/test_weights.h $(srcdir)/test/unit/unit_test.h $(srcdir)/test/unit/search_met.h $(EMULATION_HEADERS)
	@mkdir -p $(@D)
	$(ENGINE_CC) -std=gnu11 -O2 -g -pthread -ffp-contract=off -Wall -Wextra -DFILTER_TEST_GPU \
		-I$(srcdir)/src -I$(srcdir) -c -o $@ $<

$(EMULATION_DIR)/cuda_filter: $(EMULATION_DIR)/cuda_filter.o $(SEARCH_OBJS) $(SEARCH_LIB)
	$(CXX) -g -pthread -o $@ $^ -lm -lpthread

# the test of weights, likewise
$(EMULATION_DIR)/cuda_weights.o: $(srcdir)/test/unit/weights_test.c $(srcdir)/test/unit/unit_test.h $(srcdir)/test/unit/search_met.h $(EMULATION_HEADERS)
	@mkdir -p $(@D)
	$(ENGINE_CC) -std=gnu11 -O2 -g -pthread -ffp-contract=off -Wall -Wextra -DWEIGHTS_TEST_GPU \
		-I$(srcdir)/src -I$(srcdir) -c -o $@ $<

$(EMULATION_DIR)/cuda_weights: $(EMULATION_DIR)/cuda_weights.o $(SEARCH_OBJS) $(SEARCH_LIB)
	$(CXX) -g -pthread -o $@ $^ -lm -lpthread

# the test of pairs of queries, likewise
$(EMULATION_DIR)/cuda_overlaps.o: $(srcdir)/test/unit/overlaps_test.c $(srcdir)/test/unit/unit_test.h $(srcdir)/test/unit/search_met.h $(EMULATION_HEADERS)
	@mkdir -p $(@D)
	$(ENGINE_CC) -std=gnu11 -O2 -g -pthread -ffp-contract=off -Wall -Wextra -DOVERLAPS_TEST_GPU \
		-I$(srcdir)/src -I$(srcdir) -c -o $@ $<

$(EMULATION_DIR)/cuda_overlaps: $(EMULATION_DIR)/cuda_overlaps.o $(SEARCH_OBJS) $(SEARCH_LIB)
	$(CXX) -g -pthread -o $@ $^ -lm -lpthread

# several devices, against the CPU
$(EMULATION_DIR)/cuda_shards.o: $(srcdir)/test/unit/shards_test.c $(srcdir)/test/unit/test_groups.h $(srcdir)/test/unit/test_match.h $(srcdir)/test/unit/test_weights.h $(srcdir)/test/unit/unit_test.h $(EMULATION_HEADERS)
	@mkdir -p $(@D)
	$(ENGINE_CC) -std=gnu11 -O2 -g -pthread -ffp-contract=off -Wall -Wextra -DSHARDS_TEST_GPU \
		-I$(srcdir)/src -I$(srcdir) -c -o $@ $<

$(EMULATION_DIR)/cuda_shards: $(EMULATION_DIR)/cuda_shards.o $(SEARCH_OBJS) $(SEARCH_LIB)
	$(CXX) -g -pthread -o $@ $^ -lm -lpthread

$(EMULATION_DIR)/cuda_topk $(EMULATION_DIR)/cuda_cold: $(EMULATION_DIR)/cuda_%: $(srcdir)/test/unit/cuda_%.cpp $(srcdir)/test/unit/cuda_test.h $(srcdir)/test/unit/search_met.h $(SEARCH_OBJS) $(SEARCH_LIB)
	$(CXX) -std=gnu++17 -O2 -g -pthread -ffp-contract=off -Wall -Wextra -Wno-missing-field-initializers \
		-I$(srcdir)/src -I$(srcdir) -o $@ $(filter-out %.h,$^) -lm -lpthread

# whose allocations can be made to fail
$(EMULATION_DIR)/gpuvec-engine: build/src/engine/main.o build/test/unit/failing_malloc.o $(SEARCH_OBJS) $(SEARCH_LIB)
	$(CXX) -g -pthread -pie -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=posix_memalign,--wrap=aligned_alloc,--wrap=free \
		-o $@ $^ -lm -lpthread

$(EMULATION_DIR)/server_test: $(wildcard $(srcdir)/test/unit/server_*.c $(srcdir)/test/unit/server_*.h $(srcdir)/test/unit/unit_test.h $(srcdir)/src/core/*.h)
	@mkdir -p $(@D)
	$(ENGINE_CC) -std=gnu11 -O2 -g -pthread -ffp-contract=off -D_GNU_SOURCE -Wall -Wextra -I$(srcdir)/src -o $@ $(filter %.c,$^) -lm

.PHONY: tests programs check $(SEARCH_TESTS:%=check-%)
