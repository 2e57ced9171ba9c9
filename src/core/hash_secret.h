/*-------------------------------------------------------------------------
 *
 * hash_secret.h
 *	  Hashes of keys and ids that nobody outside of a process can know.
 *
 * Keys and ids are what users have written into their tables.  With a hash
 * that is known, a user could choose millions of them that all want the same
 * place in a hash table.  Each would be looked for behind all others, the
 * engine would be busy for hours with a table of a few megabytes, and would be
 * taken for stuck.  So keys are mixed with two secret numbers first, which
 * each start of the engine, and each session, draws anew.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_HASH_SECRET_H
#define GPUVEC_HASH_SECRET_H

#include <stdint.h>

#include "core/key_hash.h"

typedef struct gpuvec_hash_secret
{
	uint64_t	factor;			/* odd, so different keys stay different */
	uint64_t	summand;
} gpuvec_hash_secret;

/* That of this process; {1, 0}, no secret, until it is drawn */
extern gpuvec_hash_secret gpuvec_the_hash_secret;

/*
 * Draw the secret, unless it is drawn; called before there are hash tables.
 * The engine and the library each have their own.
 */
extern void gpuvec_hash_secret_draw(void);

/*
 * Another key in place of this one, for those who hash keys in a way that is
 * known.  Different keys get different ones.
 */
static inline int64_t
gpuvec_veiled_key(int64_t key)
{
	return (int64_t) ((uint64_t) key * gpuvec_the_hash_secret.factor +
					  gpuvec_the_hash_secret.summand);
}

/* Hash of a key for a hash table */
static inline uint64_t
gpuvec_secret_hash(int64_t key)
{
	return gpuvec_hash_key(gpuvec_veiled_key(key));
}

/* The same of an id: a bijection */
static inline uint32_t
gpuvec_secret_id_hash(uint32_t id)
{
	uint32_t	hash = id * (uint32_t) gpuvec_the_hash_secret.factor +
		(uint32_t) gpuvec_the_hash_secret.summand;

	/* Appleby's MurmurHash3 */
	hash = (hash ^ hash >> 16) * UINT32_C(0x85EBCA6B);
	hash = (hash ^ hash >> 13) * UINT32_C(0xC2B2AE35);
	return hash ^ hash >> 16;
}

#endif							/* GPUVEC_HASH_SECRET_H */
