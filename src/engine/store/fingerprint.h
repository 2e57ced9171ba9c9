/*-------------------------------------------------------------------------
 *
 * fingerprint.h
 *	  Fingerprints of a page's rows, to detect whether they have changed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_FINGERPRINT_H
#define GPUVEC_FINGERPRINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gpuvec_fingerprint
{
	uint64_t	value[2];
} gpuvec_fingerprint;

extern gpuvec_fingerprint gpuvec_fingerprint_of(const void *data, size_t length);

static inline bool
gpuvec_fingerprint_equal(gpuvec_fingerprint a, gpuvec_fingerprint b)
{
	return a.value[0] == b.value[0] && a.value[1] == b.value[1];
}

#endif							/* GPUVEC_FINGERPRINT_H */
