#!/bin/bash
# Sees whether anything waits or is planned by the wall clock, which may be set.
#
#   scripts/clocks.sh
#
# Durations and times at which something is due are of the monotonic clock (src/core/clock.h).
# The wall clock is for what people read: src/core/clock.h reads it for them.  Elsewhere in src
# and kernels each use of it is printed, and the exit status is 1 if there is any.  (The start of
# a statement or transaction tells it from others, and is no such use; nor is a number that is
# hard to guess, in src/engine/hash_secret.c.)
set -uo pipefail
cd "$(dirname "$0")/.." || exit
export LC_ALL=C

wall='GetCurrentTimestamp|GetCurrentIntegerTimestamp|TimestampDifference|TimestampTzPlus|gettimeofday|CLOCK_REALTIME|system_clock|timespec_get|[^A-Za-z_]time[(](NULL|0|&)|[^A-Za-z_]ftime[(]'
! grep -rnE --include='*.[ch]' --include='*.inc' --include='*.cu' --include='*.cuh' "$wall" src kernels |
	grep -vE '^src/(core/clock[.]h|engine/hash_secret[.]c):'
