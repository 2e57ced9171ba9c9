# The engine: a program of its own that includes no PostgreSQL header.
#
# Everything but main.c goes into build/libengine.a, which the engine, its unit
# tests and the benchmark link.

WITH_CUDA ?= auto
ENGINE_CC ?= $(CC)
NVCC ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
CUDA_ARCHS ?= 80 86 89 90
# nvcc may be a script or a link: it knows where its toolkit is
CUDA_TOP = $(if $(NVCC),$(shell $(NVCC) --dryrun -x cu /dev/null 2>&1 | sed -n 's/^\#$$ TOP=//p'))
CUDA_HOME ?= $(or $(realpath $(CUDA_TOP)),$(patsubst %/bin/nvcc,%,$(realpath $(NVCC))))

ifeq ($(WITH_CUDA),no)
CUDA :=
else ifeq ($(WITH_CUDA),yes)
CUDA := yes
ifeq ($(NVCC),)
$(error WITH_CUDA=yes, but nvcc was not found; set NVCC=/path/to/nvcc)
endif
else ifeq ($(WITH_CUDA),auto)
CUDA := $(if $(NVCC),yes,)
else ifeq ($(WITH_CUDA),emulated)
CUDA :=
else
$(error WITH_CUDA must be auto, yes, no or (for tests of embedding tables) emulated, not "$(WITH_CUDA)")
endif

ENGINE_CFLAGS ?= -O2 -g
ENGINE_WARNINGS = -Wall -Wextra -Wmissing-prototypes -Wdeclaration-after-statement -Wno-unused-parameter
ENGINE_FLAGS = -std=gnu11 -pthread -fPIE -ffp-contract=off -I$(srcdir)/src -D_GNU_SOURCE \
	-DGPUVEC_VERSION='"$(EXTVERSION)"' $(ENGINE_WARNINGS) $(ENGINE_CFLAGS) $(ENGINE_EXTRA_CFLAGS)

# kernels that pool, and their gradients: without the service that uses them
POOLING_SOURCES = $(srcdir)/kernels/device/launch.cu \
	$(patsubst %,$(srcdir)/kernels/embedding/%.cu,bags embedding_tuning forward gather grad grad_add grad_heads grad_lookups pieces sort)

# that service and what it uses; training
EMBEDDING_KERNELS = $(wildcard $(srcdir)/kernels/device/*.cu $(srcdir)/kernels/embedding/*.cu)
ALS_KERNELS = $(wildcard $(srcdir)/kernels/als/*.cu)

# what all kernels share
DEVICE_SOURCES = $(wildcard $(srcdir)/kernels/device/*.cu)

ENGINE_SRCS := $(filter-out src/engine/main.c, $(patsubst $(srcdir)/%,%,$(wildcard $(addprefix $(srcdir)/src/engine/,*.c als/*.c cpu/*.c embedding/*.c neighbors/*.c shards/*.c shards/vectors/*.c serve/*.c sets/*.c store/*.c))))
# variants for x86-64 only
ifeq ($(filter x86_64-%,$(shell $(ENGINE_CC) -dumpmachine)),)
ENGINE_SRCS := $(filter-out %_avx2.c %_avx512.c,$(ENGINE_SRCS))
endif
ENGINE_OBJS := $(ENGINE_SRCS:%.c=build/%.o)
# several devices as one
SHARDS_OBJS := $(filter build/src/engine/shards/% $(patsubst %,build/src/engine/embedding/pool_%.o,simd portable avx2 avx512),$(ENGINE_OBJS))
KERNEL_OBJS :=
ENGINE_LIBS = -lm -lpthread

ifeq ($(CUDA),yes)
KERNEL_SRCS := $(patsubst $(srcdir)/%,%,$(wildcard $(srcdir)/kernels/*.cu $(srcdir)/kernels/*/*.cu))
KERNEL_OBJS := $(KERNEL_SRCS:%.cu=build/%.o)
LAST_ARCH = $(lastword $(CUDA_ARCHS))
KERNEL_ARCHS = $(CUDA_ARCHS)
# wgmma is an instruction of no other architecture, not even of later ones
build/kernels/search/dense.o: KERNEL_ARCHS = $(patsubst 90,90a,$(CUDA_ARCHS))
NVCC_FLAGS = -std=c++17 -O3 -lineinfo --fmad=false -I$(srcdir)/src -I$(srcdir) \
	-Xcompiler -fPIE,-Wall,-Wextra,-Wno-unused-parameter \
	$(foreach a,$(KERNEL_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
	-gencode arch=compute_$(LAST_ARCH),code=compute_$(LAST_ARCH) $(NVCC_EXTRA_FLAGS)
# statically linked runtime: the driver is loaded when the engine starts
ENGINE_LIBS += -L$(CUDA_HOME)/lib64 -L$(CUDA_HOME)/targets/x86_64-linux/lib -lcudart_static -ldl -lrt -lstdc++
else ifeq ($(WITH_CUDA),emulated)
include $(srcdir)/test/unit/emulation/emulation.mk
KERNEL_OBJS := $(patsubst $(srcdir)/%.cu,$(EMULATION_DIR)/%.o,$(EMBEDDING_KERNELS) $(ALS_KERNELS)) \
	$(patsubst %,$(EMULATION_DIR)/test/unit/emulation/%.o,emulation engine)
ENGINE_LIBS += -lstdc++
else
ENGINE_OBJS += build/src/engine/nocuda/nocuda.o
endif

# one instruction set a file; chosen at run time
FLAGS_scan_batch_portable = -O3
FLAGS_scan_batch_avx2 = -O3 -mavx2
FLAGS_scan_batch_avx512 = -O3 -mavx512f -mavx512bw -mavx512vl
FLAGS_lists_search = -O3
FLAGS_lists_search_portable = -O3
FLAGS_lists_search_avx2 = -O3 -mavx2
FLAGS_lists_search_avx512 = -O3 -mavx512f -mavx512bw -mavx512vl
FLAGS_filter_codes = -O3
FLAGS_filter_mask_portable = -O3
FLAGS_filter_mask_avx2 = -O3 -mavx2
FLAGS_filter_mask_avx512 = -O3 -mavx512f -mavx512bw -mavx512vl -mpopcnt
FLAGS_bit_pairs_portable = -O3
FLAGS_bit_pairs_avx2 = -O3 -mavx2 -mpopcnt
FLAGS_bit_pairs_avx512 = -O3 -mavx512f -mavx512vpopcntdq
FLAGS_overlaps = -O3
FLAGS_scan_lone = -O3
FLAGS_pool_portable = -O3
FLAGS_pool_avx2 = -O3 -mavx2 -mf16c -mfma
FLAGS_pool_avx512 = -O3 -mavx512f -mf16c -mfma
FLAGS_als_portable = -O3
FLAGS_als_avx2 = -O3 -mavx2
FLAGS_als_avx512 = -O3 -mavx512f
FLAGS_exact_portable = -O3
FLAGS_exact_avx2 = -O3 -mavx2
FLAGS_exact_avx512 = -O3 -mavx512f
FLAGS_product = -O3
FLAGS_shard_pool = -O3
FLAGS_scan_lone_avx512 = -O3 -mavx512f -mavx512bw -mavx512vl
FLAGS_sparse_score = -O3
FLAGS_sparse_scan = -O3
FLAGS_sparse_batch = -O3
FLAGS_sparse_scan_portable = -O3
FLAGS_sparse_scan_avx2 = -O3 -mavx2
FLAGS_sparse_scan_avx512 = -O3 -mavx512f

ENGINE_LIB = build/libengine.a

all: gpuvec-engine

build/%.o: $(srcdir)/%.c
	@mkdir -p $(@D)
	$(ENGINE_CC) $(ENGINE_FLAGS) $(FLAGS_$(notdir $*)) -MMD -MP -c -o $@ $<

build/%.o: $(srcdir)/%.cu
	@mkdir -p $(@D)
	$(NVCC) $(NVCC_FLAGS) -MD -MP -MF $(@:.o=.d) -c -o $@ $<

# What is linked with kernels, or without, is linked anew when that changes.
# With emulated ones only programs of their own are.
KERNELS_LINKED = $(if $(filter emulated,$(WITH_CUDA)),,build/linked-with-$(words $(KERNEL_OBJS))-kernels)
build/linked-with-%-kernels:
	@mkdir -p $(@D)
	@rm -f build/linked-with-*
	@touch $@

$(ENGINE_LIB): $(ENGINE_OBJS) $(KERNEL_OBJS) $(KERNELS_LINKED)
	rm -f $@
	$(AR) rcs $@ $(ENGINE_OBJS) $(KERNEL_OBJS)

gpuvec-engine: build/src/engine/main.o $(ENGINE_LIB)
	$(ENGINE_CC) $(ENGINE_FLAGS) $(ENGINE_LDFLAGS) -pie -o $@ $< $(ENGINE_LIB) $(ENGINE_LIBS)

-include build/src/engine/main.d $(ENGINE_OBJS:.o=.d) $(KERNEL_OBJS:.o=.d)

install: install-engine
installdirs: installdirs-engine
uninstall: uninstall-engine

.PHONY: install-engine installdirs-engine uninstall-engine
installdirs-engine:
	$(MKDIR_P) '$(DESTDIR)$(bindir)'

install-engine: gpuvec-engine installdirs-engine
	$(INSTALL_PROGRAM) gpuvec-engine '$(DESTDIR)$(bindir)'

uninstall-engine:
	rm -f '$(DESTDIR)$(bindir)/gpuvec-engine'
