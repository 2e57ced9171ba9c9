# Unit tests of the engine, without PostgreSQL.  From the repository root:
#
#	make -f test/unit/unit.mk check
#	make -f test/unit/unit.mk check SANITIZE=yes

WITH_CUDA ?= auto
PG_CONFIG ?= pg_config
UNIT_TESTS = measure_test stage_test topk_test embed_test
UNIT_CFLAGS = -std=gnu11 -O2 -g -pthread -ffp-contract=off -Wall -Wextra -Isrc
ifeq ($(SANITIZE),yes)
SANITIZER = -fsanitize=address,undefined -fno-sanitize-recover=all
endif

# the sources are compiled here once more, so that sanitizers see all of them
UNIT_SRCS = src/engine/engine_error.c src/engine/host_memory.c src/engine/segment.c src/engine/sets/stage.c src/engine/thread_pool.c src/engine/store/fingerprint.c $(wildcard src/engine/cpu/*.c) $(wildcard src/engine/embedding/pool_simd.c src/engine/embedding/pool_portable.c src/engine/embedding/pool_avx*.c)
FLAGS_scan_batch_avx2 = -mavx2
FLAGS_scan_batch_avx512 = -mavx512f -mavx512bw -mavx512vl
FLAGS_lists_search_avx2 = -mavx2
FLAGS_lists_search_avx512 = -mavx512f -mavx512bw -mavx512vl
FLAGS_scan_lone_avx512 = -mavx512f -mavx512bw -mavx512vl
FLAGS_pool_avx2 = -O3 -mavx2 -mf16c -mfma
FLAGS_pool_avx512 = -O3 -mavx512f -mf16c -mfma
UNIT_DIR = build/unit$(if $(SANITIZER),-sanitize)
UNIT_OBJS = $(UNIT_SRCS:%.c=$(UNIT_DIR)/%.o)

.PHONY: check
check: $(UNIT_TESTS:%=$(UNIT_DIR)/%)
	@for test in $^; do $$test || exit 1; done

$(UNIT_DIR)/src/%.o: src/%.c
	@mkdir -p $(@D)
	$(CC) $(UNIT_CFLAGS) $(SANITIZER) -D_GNU_SOURCE $(FLAGS_$(notdir $*)) -c -o $@ $<

$(UNIT_DIR)/%: test/unit/%.c $(UNIT_OBJS)
	$(CC) $(UNIT_CFLAGS) $(SANITIZER) -o $@ $^ -lm
