/*-------------------------------------------------------------------------
 *
 * fingerprint.c
 *	  Fingerprints of a page's rows.
 *
 * VACUUM, hint bits and deletions change a page's LSN but none of its rows;
 * then no rows need to be updated.  To detect this without reading rows back
 * from a GPU, the engine keeps a fingerprint of each page's bytes.  The
 * bytes, seven at a time, are the coefficients of a polynomial.  It is
 * evaluated modulo 2^61 - 1 at two random points, which each engine process
 * chooses anew.  Two different byte strings of n words agree at no more than
 * n points each (Carter and Wegman 1979).  So whatever the pages are, two
 * different pages have the same fingerprint with a probability below (n /
 * 2^60)^2: 2^-98 for a page of 8 kB, 2^-69 for a page with the longest
 * possible sets.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "engine/store/fingerprint.h"

#define PRIME	((UINT64_C(1) << 61) - 1)
#define WORD	7				/* bytes of a coefficient */
#define MASK	((UINT64_C(1) << 56) - 1)
#define STEP	8				/* coefficients added in one step */

/* powers[i][j] is the j-th power of point i */
static uint64_t powers[2][STEP + 1];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/*
 * Reduce a sum of products modulo PRIME, but not fully: the result is below
 * 2^61 + 8.  Needs sum < 2^124.
 */
static inline uint64_t
reduce(unsigned __int128 sum)
{
	uint64_t	folded = (uint64_t) (sum & PRIME) + (uint64_t) (sum >> 61);

	return (folded & PRIME) + (folded >> 61);
}

/*
 * Choose the points.  Without random points, unequal pages could be taken for
 * equal, so the engine aborts if it gets none.
 */
static void
choose_points(void)
{
	uint64_t	points[2];

	if (getrandom(points, sizeof(points), 0) != (ssize_t) sizeof(points))
		abort();
	for (int i = 0; i < 2; i++)
	{
		powers[i][0] = 1;
		powers[i][1] = points[i] % (PRIME - 2) + 2;
		for (int j = 2; j <= STEP; j++)
			powers[i][j] = reduce((unsigned __int128) powers[i][j - 1] * powers[i][1]) % PRIME;
	}
}

/*
 * Add STEP coefficients to the value at one point: ((value + w[0]) x + w[1])
 * x ..., computed as a sum of independent products.
 */
static inline uint64_t
advance(uint64_t value, const uint64_t *w, const uint64_t *power)
{
	unsigned	__int128 sum = (unsigned __int128) (value + w[0]) * power[STEP];

#pragma GCC unroll 8
	for (int i = 1; i < STEP; i++)
		sum += (unsigned __int128) w[i] * power[STEP - i];
	return reduce(sum);
}

/* The coefficient in the WORD bytes at p; reads one byte more */
static inline uint64_t
word_at(const char *p)
{
	uint64_t	word;

	memcpy(&word, p, sizeof(word));
	return word & MASK;
}

gpuvec_fingerprint
gpuvec_fingerprint_of(const void *data, size_t length)
{
	const char *p = data;
	uint64_t	a = length;
	uint64_t	b = length;
	uint64_t	word = 0;
	gpuvec_fingerprint result;

	pthread_once(&once, choose_points);
	for (; length > STEP * WORD; length -= STEP * WORD, p += STEP * WORD)
	{
		uint64_t	words[STEP];

#pragma GCC unroll 8
		for (int i = 0; i < STEP; i++)
			words[i] = word_at(p + i * WORD);
		a = advance(a, words, powers[0]);
		b = advance(b, words, powers[1]);
	}
	for (; length > WORD; length -= WORD, p += WORD)
	{
		a = reduce((unsigned __int128) (a + word_at(p)) * powers[0][1]);
		b = reduce((unsigned __int128) (b + word_at(p)) * powers[1][1]);
	}
	memcpy(&word, p, length);
	a = reduce((unsigned __int128) (a + word) * powers[0][1]);
	b = reduce((unsigned __int128) (b + word) * powers[1][1]);
	result.value[0] = a % PRIME;
	result.value[1] = b % PRIME;
	return result;
}
