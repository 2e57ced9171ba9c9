# Test of the engine's server: drives the real program over its socket.  From the
# root of the repository:
#
#   make -f test/unit/server.mk check          plain build
#   make -f test/unit/server.mk check-asan     address and undefined behaviour
#   make -f test/unit/server.mk check-thread   data races
#   make -f test/unit/server.mk check-server_shards   with several devices
#   make -f test/unit/server.mk check-emulated WITH_CUDA=emulated
#                                             embedding tables with an emulated GPU
#
# SERVER_TEST_BACKEND=cuda lets the engine use a GPU; then only tests of embedding tables
# (SERVER_TEST_ARGS="embed embed_gram embed_gram_charged embed_room embed_limit embed_failed embed_scarce embed_concurrency") make sense.
#
# The engine is built anew, with its fault hooks; with BUILT=yes it is linked of what was
# built with them (see unit.mk).  PostgreSQL is not needed.

.DEFAULT_GOAL := check
srcdir ?= .
EXTVERSION ?= 0.2.0
WITH_CUDA ?= no
include engine.mk

SERVER_BIN = test/unit/bin
SERVER_SRCS = $(ENGINE_SRCS) src/engine/main.c test/unit/failing_malloc.c test/unit/engine_peers.c $(if $(KERNEL_OBJS),,src/engine/nocuda/nocuda.c)
# with an emulated GPU small tables go every way
SERVER_SRCS_emulated = $(patsubst src/engine/embedding/embedding_policy.c,test/unit/small_policy.c,$(SERVER_SRCS))
SERVER_TEST_SRCS = test/unit/server_test.c test/unit/server_client.c test/unit/server_model.c test/unit/server_embed.c test/unit/server_memory.c \
	test/unit/server_rows.c test/unit/server_partitions.c test/unit/server_joint.c test/unit/server_als.c
SERVER_TEST_FLAGS = -std=gnu11 -O2 -g -pthread -ffp-contract=off -D_GNU_SOURCE -I$(srcdir)/src -Wall -Wextra

SERVER_WRAP = -Wl,--wrap=getsockopt,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=posix_memalign,--wrap=aligned_alloc,--wrap=free

SERVER_plain =
SERVER_asan = -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
SERVER_thread = -fsanitize=thread
SERVER_emulated =

# where a variant's objects are
SERVER_DIR_plain = $(if $(BUILT),build,$(SERVER_BIN)/plain)
SERVER_DIR_asan = $(if $(BUILT),build,$(SERVER_BIN)/asan)
SERVER_DIR_thread = $(SERVER_BIN)/thread
# (sanitizers do not follow the changes of the stack)
SERVER_DIR_emulated = $(if $(BUILT),$(if $(filter yes,$(SANITIZE)),$(SERVER_BIN)/emulated,build),$(SERVER_BIN)/emulated)

# rules of one variant of the engine
define server_variant
ifneq ($$(SERVER_DIR_$(1)),build)
$(SERVER_BIN)/$(1)/%.o: $(srcdir)/%.c
	@mkdir -p $$(@D)
	$$(ENGINE_CC) $$(ENGINE_FLAGS) $$(FLAGS_$$(notdir $$*)) -DGPUVEC_TEST_HOOKS $$(SERVER_$(1)) -MMD -MP -c -o $$@ $$<
endif

$(SERVER_BIN)/gpuvec-engine-$(1): $$(patsubst %.c,$$(SERVER_DIR_$(1))/%.o,$$(or $$(SERVER_SRCS_$(1)),$$(SERVER_SRCS))) $$(KERNEL_OBJS) $$(KERNELS_LINKED)
	@mkdir -p $$(@D)
	$$(ENGINE_CC) $$(ENGINE_FLAGS) $$(SERVER_$(1)) -pie $$(SERVER_WRAP) -o $$@ $$(filter %.o,$$^) $$(ENGINE_LIBS)

-include $$(patsubst %.c,$$(SERVER_DIR_$(1))/%.d,$$(or $$(SERVER_SRCS_$(1)),$$(SERVER_SRCS)))
endef
$(foreach variant,plain asan thread emulated,$(eval $(call server_variant,$(variant))))

$(SERVER_BIN)/server_test: $(SERVER_TEST_SRCS:%=$(srcdir)/%) $(wildcard $(srcdir)/test/unit/*.h $(srcdir)/src/core/*.h)
	@mkdir -p $(@D)
	$(ENGINE_CC) $(SERVER_TEST_FLAGS) -o $@ $(filter %.c,$^) -lm

# the variant of "make check"
SERVER_VARIANT = $(if $(filter yes,$(SANITIZE)),asan,plain)

# tests of sets, with the CPU as several devices
SERVER_PARTS_ARGS = search edges joint several_mirrors compounds compounds_wide refresh wide merges mergers budget budget_refresh \
	concurrency together cancel rows rows_pages rows_merges rows_concurrency rows_wide filters rows_filters memory wide_memory \
	values rows_values compounds_values values_memory

tests:
	@echo server server_shards

programs: $(SERVER_BIN)/server_test $(SERVER_BIN)/gpuvec-engine-$(SERVER_VARIANT)

check-server: $(if $(filter yes,$(SANITIZE)),check-asan,check)

check-server_shards: $(SERVER_BIN)/server_test $(SERVER_BIN)/gpuvec-engine-$(SERVER_VARIANT)
	SERVER_TEST_PARTS=3 $(SERVER_BIN)/server_test $(SERVER_BIN)/gpuvec-engine-$(SERVER_VARIANT) $(or $(SERVER_TEST_ARGS),$(SERVER_PARTS_ARGS))

check: $(SERVER_BIN)/server_test $(SERVER_BIN)/gpuvec-engine-plain
	$(SERVER_BIN)/server_test $(SERVER_BIN)/gpuvec-engine-plain $(SERVER_TEST_ARGS)

check-asan: $(SERVER_BIN)/server_test $(SERVER_BIN)/gpuvec-engine-asan
	$(SERVER_BIN)/server_test $(SERVER_BIN)/gpuvec-engine-asan $(SERVER_TEST_ARGS)

check-thread: $(SERVER_BIN)/server_test $(SERVER_BIN)/gpuvec-engine-thread
	TSAN_OPTIONS=halt_on_error=1:exitcode=66 \
	$(SERVER_BIN)/server_test $(SERVER_BIN)/gpuvec-engine-thread $(SERVER_TEST_ARGS)

programs-emulated: $(SERVER_BIN)/server_test $(SERVER_BIN)/gpuvec-engine-emulated

check-emulated: $(SERVER_BIN)/server_test $(SERVER_BIN)/gpuvec-engine-emulated
	SERVER_TEST_BACKEND=cuda SERVER_TEST_EMULATED=yes $(SERVER_BIN)/server_test $(SERVER_BIN)/gpuvec-engine-emulated \
		$(or $(SERVER_TEST_ARGS),embed embed_gram embed_gram_charged embed_room embed_limit embed_failed embed_scarce embed_concurrency)

.PHONY: tests programs check-server check-server_shards check check-asan check-thread programs-emulated check-emulated
