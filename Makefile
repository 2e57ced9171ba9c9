# gpuvec: exact set-similarity search for PostgreSQL
#
#   make            the extension and the engine
#   make install    into the PostgreSQL that PG_CONFIG names
#   make check      every suite, against private servers (see scripts/check.sh)
#   make check-quick  a few tests of everything
#   make stress     the randomised tester (see scripts/stress.sh)
#   make demo       a private server with real data and a few searches; makes demo.html
#   make documents  writes what statements of the pages print, the reference and the charts anew
#   make bench      the benchmark
#   make dist       the sources of this version as build/gpuvec-VERSION.zip, for PGXN
#
# WITH_CUDA=auto|yes|no   kernels if nvcc is found | or fail | never

PG_CONFIG ?= pg_config
srcdir ?= .

# these build for themselves, and may have to install PostgreSQL first
ifneq ($(filter check check-quick stress demo documents,$(MAKECMDGOALS)),)
include $(srcdir)/check.mk
else

EXTENSION = gpuvec
EXTVERSION = 0.2.0
# the one that is prepared: its update is tested, but not installed
NEXTVERSION = 0.3.0
MODULE_big = gpuvec
DATA = $(patsubst $(srcdir)/%,%,sql/gpuvec--$(EXTVERSION).sql $(filter-out %--$(NEXTVERSION).sql, \
	$(wildcard $(srcdir)/sql/gpuvec--*--*.sql)))
PGFILEDESC = "gpuvec - exact set-similarity search"

OBJS = $(sort $(patsubst $(srcdir)/%.c,%.o,$(wildcard \
	$(srcdir)/src/*.c $(srcdir)/src/idset/*.c $(srcdir)/src/idvec/*.c $(srcdir)/src/entries/*.c $(srcdir)/src/mirror/*/*.c \
	$(srcdir)/src/link/*.c $(srcdir)/src/search/*.c $(srcdir)/src/servers/*.c $(srcdir)/src/monitor/*.c \
	$(srcdir)/src/index/*.c $(srcdir)/src/embedding/*.c $(srcdir)/src/recommend/*.c)))

# PGXS itself does not know which headers a file needs.  PostgreSQL loads libraries with
# RTLD_GLOBAL: only what is declared PGDLLEXPORT is visible, whatever flags "make" is given.
override PG_CPPFLAGS += -I$(srcdir)/src -DGPUVEC_VERSION='"$(EXTVERSION)"' $(GPUVEC_CPPFLAGS) -MMD -MP -fvisibility=hidden
PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers -fno-fast-math -ffp-contract=off $(GPUVEC_CFLAGS)
# -lrt: timers, with old C libraries
SHLIB_LINK = -lm -lrt

EXTRA_CLEAN = gpuvec-engine build $(OBJS:.o=.d) $(OBJS:.o=.bc.d)

REGRESS = $(basename $(notdir $(wildcard $(srcdir)/expected/*.out)))
REGRESS_OPTS = --inputdir=$(srcdir) --load-extension=$(EXTENSION)

PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

# else bitcode would replace what is known of the object file
override BITCODE_CFLAGS += -MF $@.d -MT $@
-include $(OBJS:.o=.d) $(OBJS:.o=.bc.d)
include $(srcdir)/engine.mk

.PHONY: dist
dist:
	@mkdir -p build
	git -C $(srcdir) archive --format=zip --prefix=$(EXTENSION)-$(EXTVERSION)/ \
		-o $(CURDIR)/build/$(EXTENSION)-$(EXTVERSION).zip HEAD

include $(srcdir)/doc/install.mk
include $(srcdir)/test/bench/bench.mk

endif
