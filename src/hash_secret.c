/*-------------------------------------------------------------------------
 *
 * hash_secret.c
 *	  Draws the secret of a session's hashes.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "core/hash_secret.h"

gpuvec_hash_secret gpuvec_the_hash_secret = {.factor = 1, .summand = 0};

void
gpuvec_hash_secret_draw(void)
{
	gpuvec_hash_secret secret;

	if (gpuvec_the_hash_secret.factor != 1)
		return;
	if (!pg_strong_random(&secret, sizeof(secret)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
	secret.factor |= 1;
	gpuvec_the_hash_secret = secret;
}
