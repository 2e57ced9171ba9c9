# The kernels of embedding tables, and what the CUDA backend makes of them, on random
# cases, compared bit by bit with plain C++ and with what the CPU does, and without a GPU the
# engine's server with an emulated one.  From the root of the repository:
#
#   make -f test/unit/embedding.mk check		without a GPU, by an emulation
#   make -f test/unit/embedding.mk check-gpu	with one
#
# CASES is how many, and EMULATED_CASES of the emulated backend, which takes
# half a second for each.  Both need the headers of the CUDA toolkit; without
# them there is no test.
# SANITIZE=yes is ignored: sanitizers do not follow changes of the stack.

srcdir ?= .
WITH_CUDA ?= auto
EXTVERSION ?= 0.2.0
CASES ?= 200
EMULATED_CASES ?= 80

check:

include engine.mk
include test/bench/bench.mk

include test/unit/emulation/emulation.mk

EMULATED = $(patsubst $(srcdir)/%.cu,%,$(POOLING_SOURCES)) test/bench/bench_embedding
EMULATED_VECTORS = $(patsubst $(srcdir)/%.cu,%,$(EMBEDDING_KERNELS) $(ALS_KERNELS)) test/unit/emulation/engine

# the kernels, what the CUDA backend makes of them, and the server with that
EMBEDDING_TESTS = embedding_kernels embedding_vectors embedding_server
EMULATED_SERVER = $(MAKE) -f $(srcdir)/test/unit/server.mk WITH_CUDA=emulated CUDA_HOME='$(CUDA_HOME)'

tests:
	@echo $(EMBEDDING_TESTS)

check: $(EMBEDDING_TESTS:%=check-%)

ifeq ($(CUDA),yes)
# one after the other, since both compile kernels
programs: $(EMULATION_DIR)/embedding $(EMULATION_DIR)/vectors_test
	+$(EMULATED_SERVER) programs-emulated

check-embedding_kernels: $(EMULATION_DIR)/embedding
	$< --small --no-time --check $(CASES)

check-embedding_vectors: $(EMULATION_DIR)/vectors_test
	$< $(EMULATED_CASES)

check-embedding_server:
	+$(EMULATED_SERVER) check-emulated SERVER_TEST_ARGS="embed embed_room embed_failed embed_gram_charged embed_concurrency als als_violations als_budget als_memory"
else
programs:

$(EMBEDDING_TESTS:%=check-%):
	@echo "0 passed, 0 failed (no CUDA toolkit)"
endif

programs-gpu: $(BENCH_BIN)/bench_embedding build/test/vectors_test

check-gpu: check-gpu_kernels check-gpu_vectors

check-gpu_kernels: $(BENCH_BIN)/bench_embedding
	$< --no-time --check $(CASES)

check-gpu_vectors: build/test/vectors_test
	$< $(CASES)

$(EMULATION_DIR)/embedding: $(EMULATED:%=$(EMULATION_DIR)/%.o) $(EMULATION_DIR)/$(EMULATION)/emulation.o
	$(CXX) -o $@ $^

build/test/vectors_test.o: $(srcdir)/test/unit/vectors_test.c $(wildcard $(srcdir)/src/core/*.h $(srcdir)/src/engine/*.h $(srcdir)/src/engine/*/*.h)
	@mkdir -p $(@D)
	$(ENGINE_CC) $(ENGINE_FLAGS) -DVECTORS_TEST_GPU -c -o $@ $<

$(EMULATION_DIR)/vectors_test: build/test/vectors_test.o $(ENGINE_OBJS) $(EMULATED_VECTORS:%=$(EMULATION_DIR)/%.o) $(EMULATION_DIR)/$(EMULATION)/emulation.o
	$(CXX) -o $@ $^ -lm -lpthread

build/test/vectors_test: build/test/vectors_test.o $(ENGINE_OBJS) $(KERNEL_OBJS)
	$(CXX) -o $@ $^ $(ENGINE_LIBS)

.PHONY: tests programs check $(EMBEDDING_TESTS:%=check-%) programs-gpu check-gpu check-gpu_kernels check-gpu_vectors
