# The kernels of embedding tables on random cases, compared bit by bit with plain C++.
# From the root of the repository:
#
#   make -f test/unit/embedding.mk check		without a GPU, by an emulation
#   make -f test/unit/embedding.mk check-gpu	with one
#
# CASES is how many.  Both need the headers of the CUDA toolkit; without them there
# is no test.  SANITIZE=yes is ignored: sanitizers do not follow changes of the stack.

srcdir ?= .
WITH_CUDA ?= auto
EXTVERSION ?= 0.1.0
CASES ?= 200

check:

include engine.mk
include test/bench/bench.mk

EMULATION = test/unit/emulation
EMULATED = kernels/embedding_forward kernels/embedding_grad test/bench/bench_embedding
EMULATION_DIR = build/emulation
EMULATION_FLAGS = -std=c++17 -O2 -g -U_FORTIFY_SOURCE -ffp-contract=off -Wno-attributes -DEMULATION \
	-include $(EMULATION)/emulation.h -I$(EMULATION) -Ikernels -Itest/bench -isystem $(CUDA_HOME)/include
EMULATION_HEADERS = $(wildcard kernels/embedding*.h kernels/embedding*.cuh test/bench/embedding*.h) \
	$(shell find $(EMULATION) -name '*.*h')

ifeq ($(CUDA),yes)
check: $(EMULATION_DIR)/embedding
	$< --small --no-time --check $(CASES)
else
check:
	@echo "0 passed, 0 failed (no CUDA toolkit)"
endif

check-gpu: $(BENCH_BIN)/bench_embedding
	$< --no-time --check $(CASES)

$(EMULATION_DIR)/%.o: %.cu $(EMULATION_HEADERS)
	@mkdir -p $(@D)
	$(CXX) $(EMULATION_FLAGS) -x c++ -c -o $@ $<

$(EMULATION_DIR)/%.o: %.cpp $(EMULATION_HEADERS)
	@mkdir -p $(@D)
	$(CXX) $(EMULATION_FLAGS) -c -o $@ $<

$(EMULATION_DIR)/embedding: $(EMULATED:%=$(EMULATION_DIR)/%.o) $(EMULATION_DIR)/$(EMULATION)/emulation.o
	$(CXX) -o $@ $^

.PHONY: check check-gpu
