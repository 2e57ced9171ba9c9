/*-------------------------------------------------------------------------
 *
 * fingerprint.c
 *	  Fingerprints of a page's rows.
 *
 * VACUUM, hint bits and deletions change a page's LSN but none of its rows, and
 * then nothing has to move.  To see that without reading rows back from a GPU, a
 * fingerprint of each page's bytes is kept: the bytes, seven at a time, are the
 * coefficients of a polynomial, which is evaluated modulo 2^61 - 1 at two random
 * points that each engine chooses anew.  Two different byte strings of n words
 * agree at no more than n points each (Carter and Wegman 1979), so whatever the
 * pages are, they are taken for the same with a probability below (n / 2^60)^2:
 * 2^-98 for a page of 8 kB, 2^-69 for a page with the longest sets there can be.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "engine/fingerprint.h"

#define PRIME	((UINT64_C(1) << 61) - 1)
#define WORD	7				/* bytes of a coefficient */
#define MASK	((UINT64_C(1) << 56) - 1)

static uint64_t points[2];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Choose the points; without them equal pages cannot be told, so do not go on */
static void
choose_points(void)
{
	if (getrandom(points, sizeof(points), 0) != (ssize_t) sizeof(points))
		abort();
	for (int i = 0; i < 2; i++)
		points[i] = points[i] % (PRIME - 2) + 2;
}

/* a * b modulo PRIME, nearly reduced; a < 2^62, b < PRIME */
static inline uint64_t
multiply(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128) a * b;
	uint64_t	sum = (uint64_t) (product & PRIME) + (uint64_t) (product >> 61);

	return (sum & PRIME) + (sum >> 61);
}

gpuvec_fingerprint
gpuvec_fingerprint_of(const void *data, size_t length)
{
	const char *p = data;
	uint64_t	a = length;
	uint64_t	b = length;
	uint64_t	word;

	pthread_once(&once, choose_points);
	for (; length > WORD; length -= WORD, p += WORD)
	{
		memcpy(&word, p, sizeof(word));
		word &= MASK;
		a = multiply(a + word, points[0]);
		b = multiply(b + word, points[1]);
	}
	word = 0;
	memcpy(&word, p, length);
	a = multiply(a + word, points[0]);
	b = multiply(b + word, points[1]);
	return (gpuvec_fingerprint) {{a % PRIME, b % PRIME}};
}
