# Unit tests of the engine, without PostgreSQL.  From the root of the repository:
#
#	make -f test/unit/unit.mk check
#	make -f test/unit/unit.mk check SANITIZE=yes
#
# Like each makefile here, it has these goals for "make check":
#
#	tests		prints the names of its tests
#	programs	compiles what they need
#	check-NAME	runs one
#
# BUILT=yes says that the engine's objects in build/ were compiled for tests, with fault
# hooks, and with sanitizers if SANITIZE=yes.  Else these are compiled elsewhere.

srcdir ?= .
WITH_CUDA ?= auto
EXTVERSION ?= 0.2.0
UNIT_TESTS = control_group pool measure sparse method stage numbers topk weights match filter shards overlaps embed vectors shard_vectors als neighbors page_rows choose

check:

include engine.mk

ifeq ($(SANITIZE),yes)
SANITIZER = -fsanitize=address,undefined -fno-sanitize-recover=all
endif
UNIT_DIR = build/unit$(if $(SANITIZER),-sanitize)
UNIT_BUILD = $(if $(BUILT),build,$(if $(SANITIZER),$(UNIT_DIR),build))
UNIT_CFLAGS = -std=gnu11 -O2 -g -pthread -ffp-contract=off -Wall -Wextra -Isrc
UNIT_LIB = $(UNIT_DIR)/libengine.a

tests:
	@echo $(UNIT_TESTS)

# of those that are asked for
programs: $(patsubst %,$(UNIT_DIR)/%_test,$(if $(TESTS),$(filter $(TESTS),$(UNIT_TESTS)),$(UNIT_TESTS)))

check: $(UNIT_TESTS:%=check-%)

$(UNIT_TESTS:%=check-%): check-%: $(UNIT_DIR)/%_test
	$<

# without kernels, so that nvcc is not needed
UNIT_OBJS = $(sort $(ENGINE_OBJS:build/%=$(UNIT_BUILD)/%) $(UNIT_BUILD)/src/engine/nocuda/nocuda.o)

$(UNIT_LIB): $(UNIT_OBJS)
	@mkdir -p $(@D)
	rm -f $@
	$(AR) rcs $@ $^

ifneq ($(UNIT_BUILD),build)
$(UNIT_BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(ENGINE_CC) $(ENGINE_FLAGS) $(SANITIZER) $(FLAGS_$(notdir $*)) -MMD -MP -c -o $@ $<
-include $(UNIT_OBJS:.o=.d)
endif

$(UNIT_DIR)/%_test: test/unit/%_test.c test/unit/unit_test.h test/unit/test_groups.h test/unit/test_match.h test/unit/test_weights.h $(UNIT_LIB)
	$(ENGINE_CC) $(UNIT_CFLAGS) $(SANITIZER) -o $@ $(filter-out %.h,$^) -lm -lpthread

.PHONY: tests programs check $(UNIT_TESTS:%=check-%)
