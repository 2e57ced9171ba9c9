# Unit tests of what the library does without a running server, against PostgreSQL's
# headers only.  From the root of the repository:
#
#	make -f test/unit/feed.mk check
#	make -f test/unit/feed.mk check SANITIZE=yes
#
# The goals are those of unit.mk.

PG_CONFIG ?= pg_config
FEED_TESTS = feed_ring known merge counts

check:

ifeq ($(SANITIZE),yes)
SANITIZER = -fsanitize=address,undefined -fno-sanitize-recover=all
endif
FEED_DIR = build/unit-feed$(if $(SANITIZER),-sanitize)
FEED_CFLAGS = -std=gnu11 -O2 -g -pthread -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Isrc \
	-isystem $(shell $(PG_CONFIG) --includedir-server)
FEED_SOURCES = test/unit/feed_ring_test.c src/mirror/feed/feed_ring.c
KNOWN_SOURCES = test/unit/known_test.c src/mirror/fresh/known.c
MERGE_SOURCES = test/unit/merge_test.c src/idset/idset_merge.c src/idset/idset_merge_wide.c
COUNTS_SOURCES = test/unit/counts_test.c src/idset/idset_counts.c

tests:
	@echo $(FEED_TESTS)

programs: $(FEED_TESTS:%=$(FEED_DIR)/%_test)

check: $(FEED_TESTS:%=check-%)

$(FEED_TESTS:%=check-%): check-%: $(FEED_DIR)/%_test
	$<

$(FEED_DIR)/feed_ring_test: $(FEED_SOURCES) src/mirror/feed/feed_ring.h src/core/protocol.h src/core/protocol_mirrors.h
	@mkdir -p $(@D)
	$(CC) $(FEED_CFLAGS) $(SANITIZER) -o $@ $(FEED_SOURCES) -Wl,--wrap=memcpy -lpthread

$(FEED_DIR)/known_test: $(KNOWN_SOURCES) src/mirror/fresh/known.h src/mirror/describe/refreshing.h test/unit/unit_test.h
	@mkdir -p $(@D)
	$(CC) $(FEED_CFLAGS) $(SANITIZER) -o $@ $(KNOWN_SOURCES)

$(FEED_DIR)/merge_test: $(MERGE_SOURCES) src/idset/idset_merge.h src/idset/idset.h
	@mkdir -p $(@D)
	$(CC) $(FEED_CFLAGS) $(SANITIZER) -o $@ $(MERGE_SOURCES)

$(FEED_DIR)/counts_test: $(COUNTS_SOURCES) src/idset/idset_counts.h src/idset/idset.h
	@mkdir -p $(@D)
	$(CC) $(FEED_CFLAGS) $(SANITIZER) -o $@ $(COUNTS_SOURCES)

.PHONY: tests programs check $(FEED_TESTS:%=check-%)
