/*-------------------------------------------------------------------------
 *
 * key_hash.h
 *	  Hash of a key of 64 bits.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_KEY_HASH_H
#define GPUVEC_KEY_HASH_H

#include <stdint.h>

/*
 * Hash of a key: the finalizer of MurmurHash3 (Austin Appleby, public domain)
 */
static inline uint64_t
gpuvec_hash_key(int64_t key)
{
	uint64_t	h = (uint64_t) key;

	h ^= h >> 33;
	h *= UINT64_C(0xff51afd7ed558ccd);
	h ^= h >> 33;
	h *= UINT64_C(0xc4ceb9fe1a85ec53);
	return h ^ h >> 33;
}

#endif							/* GPUVEC_KEY_HASH_H */
