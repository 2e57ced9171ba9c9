# Neighbors of items on a GPU, without one: the kernel by an emulation, compared with the
# engine's threads.  From the root of the repository:
#
#   make -f test/unit/neighbors.mk check
#
# It needs the headers of the CUDA toolkit; without them there is no test.  With a GPU:
# test/unit/cuda.mk.

srcdir ?= .
WITH_CUDA ?= auto
EXTVERSION ?= 0.2.0

check:

include engine.mk
include test/unit/emulation/emulation.mk

NEIGHBORS_DIR = $(EMULATION_DIR)/neighbors
NEIGHBORS_OBJS = $(patsubst $(srcdir)/%.cu,$(NEIGHBORS_DIR)/%.o,$(DEVICE_SOURCES) $(wildcard $(srcdir)/kernels/neighbors/*.cu)) \
	$(NEIGHBORS_DIR)/$(EMULATION)/neighbors.o $(EMULATION_DIR)/$(EMULATION)/emulation.o

tests:
	@echo neighbors_kernel

check: check-neighbors_kernel

ifeq ($(CUDA),yes)
programs: $(NEIGHBORS_DIR)/cuda_neighbors

check-neighbors_kernel: $(NEIGHBORS_DIR)/cuda_neighbors
	$< emulated
else
programs:

check-neighbors_kernel:
	@echo "0 passed, 0 failed (no CUDA toolkit)"
endif

$(NEIGHBORS_DIR)/%.o: $(srcdir)/%.cu $(EMULATION_HEADERS)
	@mkdir -p $(@D)
	$(CXX) $(EMULATION_FLAGS) -DEMULATED_SEARCH -Wno-unknown-pragmas -x c++ -c -o $@ $<

$(NEIGHBORS_DIR)/%.o: $(srcdir)/%.cpp $(EMULATION_HEADERS)
	@mkdir -p $(@D)
	$(CXX) $(EMULATION_FLAGS) -DEMULATED_SEARCH -c -o $@ $<

$(NEIGHBORS_DIR)/cuda_neighbors: $(srcdir)/test/unit/cuda_neighbors.cpp $(NEIGHBORS_OBJS) $(ENGINE_OBJS)
	$(CXX) -std=gnu++17 -O2 -g -pthread -ffp-contract=off -Wall -Wextra -Wno-missing-field-initializers \
		-isystem $(CUDA_HOME)/include -I$(srcdir)/src -I$(srcdir) -I$(srcdir)/test/bench -o $@ $^ -lm -lpthread

.PHONY: tests programs check check-neighbors_kernel
