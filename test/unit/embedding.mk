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

include test/unit/emulation/emulation.mk

EMULATED = kernels/embedding_forward kernels/embedding_grad test/bench/bench_embedding

ifeq ($(CUDA),yes)
check: $(EMULATION_DIR)/embedding
	$< --small --no-time --check $(CASES)
else
check:
	@echo "0 passed, 0 failed (no CUDA toolkit)"
endif

check-gpu: $(BENCH_BIN)/bench_embedding
	$< --no-time --check $(CASES)

$(EMULATION_DIR)/embedding: $(EMULATED:%=$(EMULATION_DIR)/%.o) $(EMULATION_DIR)/$(EMULATION)/emulation.o
	$(CXX) -o $@ $^

.PHONY: check check-gpu
