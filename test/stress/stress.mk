# The randomised tester.  From the root of the repository:
#
#   make -f test/stress/stress.mk		builds build/stress and build/clock.so
#
# scripts/stress.sh builds and runs it.

PG_CONFIG ?= pg_config
CC ?= cc
STRESS_SOURCES = $(wildcard test/stress/*.c)

all: build/stress build/clock.so

build/stress: $(STRESS_SOURCES) test/stress/stress.h test/stress/stress.mk
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -O1 -g -pthread -Wall -Wextra -Wno-missing-field-initializers \
		-I$(shell $(PG_CONFIG) --includedir) -o $@ $(STRESS_SOURCES) -L$(shell $(PG_CONFIG) --libdir) -lpq

build/clock.so: test/stress/shim/clock.c test/stress/stress.mk
	@mkdir -p $(@D)
	$(CC) -O1 -Wall -Wextra -shared -fPIC -o $@ $<
