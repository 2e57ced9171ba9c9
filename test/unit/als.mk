# Training on a GPU, without one: the kernels by an emulation, compared with the engine's
# threads.  From the root of the repository:
#
#   make -f test/unit/als.mk check
#
# It needs the headers of the CUDA toolkit; without them there is no test.  With a GPU:
# test/unit/cuda.mk.

srcdir ?= .
WITH_CUDA ?= auto
EXTVERSION ?= 0.2.0

check:

include engine.mk
include test/unit/emulation/emulation.mk

ALS_OBJS = $(patsubst $(srcdir)/%.cu,$(EMULATION_DIR)/%.o,$(EMBEDDING_KERNELS) $(ALS_KERNELS)) \
	$(patsubst %,$(EMULATION_DIR)/$(EMULATION)/%.o,emulation engine)

tests:
	@echo als_kernels

check: check-als_kernels

ifeq ($(CUDA),yes)
programs: $(EMULATION_DIR)/cuda_als

check-als_kernels: $(EMULATION_DIR)/cuda_als
	$< emulated 1
else
programs:

check-als_kernels:
	@echo "0 passed, 0 failed (no CUDA toolkit)"
endif

$(EMULATION_DIR)/cuda_als: $(srcdir)/test/unit/cuda_als.cpp $(ALS_OBJS) $(ENGINE_OBJS)
	$(CXX) -std=gnu++17 -O2 -g -pthread -ffp-contract=off -Wall -Wextra -Wno-missing-field-initializers \
		-isystem $(CUDA_HOME)/include -I$(srcdir)/src -I$(srcdir) -o $@ $^ -lm -lpthread

.PHONY: tests programs check check-als_kernels
