/*-------------------------------------------------------------------------
 *
 * hash_secret.c
 *	  Draws the secret of hashes.
 *
 *-------------------------------------------------------------------------
 */
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "core/hash_secret.h"

gpuvec_hash_secret gpuvec_the_hash_secret = {.factor = 1, .summand = 0};

void
gpuvec_hash_secret_draw(void)
{
	gpuvec_hash_secret secret;

	if (getrandom(&secret, sizeof(secret), 0) != sizeof(secret))
	{
		struct timespec now;

		/* a system that has none: what is hard to guess */
		clock_gettime(CLOCK_REALTIME, &now);
		secret.factor = gpuvec_hash_key((int64_t) now.tv_nsec << 32 ^ getpid());
		secret.summand = gpuvec_hash_key((int64_t) (secret.factor ^ (uint64_t) now.tv_sec));
	}
	secret.factor |= 1;
	gpuvec_the_hash_secret = secret;
}
