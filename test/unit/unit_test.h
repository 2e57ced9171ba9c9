/*-------------------------------------------------------------------------
 *
 * unit_test.h
 *	  What unit tests of one file share: checks, and random numbers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_UNIT_TEST_H
#define GPUVEC_UNIT_TEST_H

#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/*
 * Memory that is allocated has other bytes than 0, so that who forgets to set
 * them is found out
 */
static void __attribute__((constructor))
allocate_rubbish(void)
{
	mallopt(M_PERTURB, 0xA5);
}

static long passed;
static long failed;

/* Count a check; of those that fail the first twenty are printed */
#define check(ok, what) check_at((ok), (what), __FILE__, __LINE__)

static void
check_at(bool ok, const char *what, const char *file, int line)
{
	if (ok)
		passed++;
	else if (failed++ < 20)
		printf("FAILED %s:%d: %s\n", file, line, what);
}

/* The total, as "make check" wants it; returns the exit status */
static inline int
report_checks(void)
{
	printf("%ld passed, %ld failed\n", passed, failed);
	return failed > 0;
}

static uint64_t random_state = UINT64_C(88172645463325252);

/* xorshift64 (Marsaglia 2003) */
static inline uint64_t
random64(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static inline uint32_t
random32(void)
{
	return (uint32_t) (random64() >> 24);
}

static inline uint64_t
random_below(uint64_t n)
{
	return random64() % n;
}

#endif							/* GPUVEC_UNIT_TEST_H */
