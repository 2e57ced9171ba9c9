/*-------------------------------------------------------------------------
 *
 * cuda_test.h
 *	  What the tests of the CUDA backend's searches share: counts of checks,
 *	  random numbers, and answers compared.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CUDA_TEST_H
#define CUDA_TEST_H

#include <atomic>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <vector>

#include "test/unit/search_met.h"

static std::atomic<int> npassed;
static std::atomic<int> nfailed;
static uint64_t random_state;

static const char *const measure_names[] = GPUVEC_MEASURE_NAMES;
static const char *const method_names[] = {"auto", "bitset", "inverted", "dense"};

/* splitmix64 */
static uint64_t
random64(void)
{
	uint64_t	z = (random_state += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

static uint32_t
random_below(uint32_t n)
{
	return (uint32_t) ((random64() >> 32) * n >> 32);
}

/* Stop: nothing that follows would mean anything */
static void
die(const char *what, const gpuvec_error *error)
{
	printf("%s: %s %s (%s) (%s)\n", what, error->sqlstate, error->message, error->detail,
		   error->hint);
	printf("%d passed, %d failed, then stopped\n", (int) npassed, (int) nfailed + 1);
	exit(1);
}

/* True if a comes before b in an answer */
static bool
ranks_before(const gpuvec_match &a, const gpuvec_match &b)
{
	return a.score != b.score ? a.score > b.score : a.tid < b.tid;
}

/* Describe the first difference; empty if there is none */
static std::string
difference(const std::vector<gpuvec_match> &is, const std::vector<gpuvec_match> &should)
{
	char		text[300];

	for (size_t i = 0; i < is.size() && i < should.size(); i++)
		if (memcmp(&is[i].score, &should[i].score, 8) != 0 || is[i].tid != should[i].tid ||
			is[i].common != should[i].common)
		{
			snprintf(text, sizeof(text),
					 "rank %zu is (%.17g, %llx, %u), should be (%.17g, %llx, %u)", i + 1,
					 is[i].score, (unsigned long long) is[i].tid, is[i].common,
					 should[i].score, (unsigned long long) should[i].tid, should[i].common);
			return text;
		}
	if (is.size() == should.size())
		return "";
	snprintf(text, sizeof(text), "%zu matches instead of %zu", is.size(), should.size());
	return text;
}

#endif							/* CUDA_TEST_H */
