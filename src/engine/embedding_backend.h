/*-------------------------------------------------------------------------
 *
 * embedding_backend.h
 *	  The vectors of embedding tables in the memory of a device.
 *
 * A bank is the vectors of rows of one width, numbered by slots; whose they
 * are is up to the engine (embedding_mirror.h), which gives requests in terms
 * of slots.  To find those of keys, a device can keep a hash table, which the
 * engine fills.  Results are those that core/pooling.h, pooling_grad.h and
 * nearest.h define, to the bit.
 *
 * All functions may be called from any thread.  Those that change a bank are
 * called by its updater alone, and reserve while nobody else uses the bank;
 * so are put and flush for slots that a running request uses.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_EMBEDDING_BACKEND_H
#define GPUVEC_EMBEDDING_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/pooling_types.h"
#include "engine/engine_error.h"

#ifdef __cplusplus
extern "C"
{
#endif

/* The slot of a key that was not found */
#define GPUVEC_NO_SLOT			UINT32_MAX

/* The slot of a key that find_keys leaves to the host */
#define GPUVEC_ASK_SLOT			(UINT32_MAX - 1)

/* A bank has no more slots */
#define GPUVEC_MAX_SLOTS		INT32_MAX

typedef struct gpuvec_device_bank gpuvec_device_bank;

/*
 * The bags of a request, by slots: on the host, all arrays the caller's.  (A
 * bag of keys is gpuvec_bag, pooling.h; the kernels' are gpuvec_pooling_bags,
 * in device memory.)
 */
typedef struct gpuvec_slot_bags
{
	const uint32_t *slots;		/* [nslots] */
	uint64_t	nslots;
	const uint64_t *offsets;	/* [nbags + 1], from 0 to nslots; NULL:
								 * hotness */
	uint64_t	hotness;		/* slots of each bag */
	uint64_t	nbags;
	const float *weights;		/* [nslots], or NULL */
	const float *divisors;		/* [nbags]: for gradients of the weights of a
								 * mean */
	gpuvec_pool_mode mode;		/* concat: one vector for each slot; bags do
								 * not matter */
	bool		skip_missing;	/* keys that were not found do not count for
								 * the mean */
	const int  *canceled;		/* may be NULL; read atomically, nonzero: the
								 * answer is not wanted any more */
} gpuvec_slot_bags;

/* What is near to queries */
typedef struct gpuvec_slot_search
{
	gpuvec_metric metric;
	const float *queries;		/* [nqueries * width] */
	const double *squares;		/* [nqueries]: of each with itself */
	uint32_t	nqueries;
	uint32_t	k;				/* at least 1, and no more than nlive */
	const uint8_t *live;		/* [nlive]: slots of rows that can be seen */
	uint32_t	nlive;
	uint64_t	version;		/* of `live`: other numbers, other contents */
	const int  *canceled;

	/* the answer: the best k, or all there are, in any order */
	uint32_t   *slots;			/* [nqueries * k] */
	double	   *scores;			/* [nqueries * k] */
	uint32_t   *counts;			/* [nqueries] */
} gpuvec_slot_search;

/* The slot of a key */
typedef struct gpuvec_key_row
{
	int64_t		key;
	uint32_t	slot;			/* GPUVEC_NO_SLOT: there is none any more; or
								 * GPUVEC_ASK_SLOT */
	uint32_t	block;			/* the page of the row */
} gpuvec_key_row;

/* Keys whose slots are wanted */
typedef struct gpuvec_key_search
{
	const int64_t *keys;		/* [nkeys] */
	uint64_t	nkeys;
	const uint32_t *proven;		/* a bit for each of nblocks pages: rows of
								 * others are left to the host */
	uint32_t	nblocks;
	const int  *canceled;

	/* the answer: slots, GPUVEC_NO_SLOT or GPUVEC_ASK_SLOT */
	uint32_t   *slots;			/* [nkeys] */
} gpuvec_key_search;

typedef struct gpuvec_vectors gpuvec_vectors;

struct gpuvec_vectors
{
	/* Free it; all banks have been released */
	void		(*close) (gpuvec_vectors *vectors);

	/* A bank of vectors of at least one element, without room */
	gpuvec_device_bank *(*make) (gpuvec_vectors *vectors, uint32_t width,
								 gpuvec_storage storage, gpuvec_error *error);
	void		(*release) (gpuvec_vectors *vectors, gpuvec_device_bank *bank);

	/* Make room for so many slots; on failure the bank is as before */
	bool		(*reserve) (gpuvec_vectors *vectors, gpuvec_device_bank *bank, uint32_t room,
							gpuvec_error *error);

	/* Bytes that room for so many slots takes on the device */
	size_t		(*bytes) (const gpuvec_device_bank *bank, uint32_t room);

	/*
	 * Fill a slot, once before the next flush, until which the vector may be
	 * on its way. forget drops what is still on its way.
	 */
	bool		(*put) (gpuvec_vectors *vectors, gpuvec_device_bank *bank, uint32_t slot, int64_t key,
						uint64_t tid, const void *elements, gpuvec_error *error);
	bool		(*flush) (gpuvec_vectors *vectors, gpuvec_device_bank *bank, gpuvec_error *error);
	void		(*forget) (gpuvec_device_bank *bank);

	/*
	 * Each bank has room for a hash table from keys to slots, which is not
	 * there before clear_keys has made it, and not any more after reserve.
	 * map_keys enters rows of different keys, also from several threads at a
	 * time if their keys are different; after that find_keys looks keys up.
	 * key_limit: how many rows may be entered before the table has to be
	 * cleared again.
	 */
	uint64_t	(*key_limit) (const gpuvec_device_bank *bank);
	bool		(*clear_keys) (gpuvec_vectors *vectors, gpuvec_device_bank *bank, gpuvec_error *error);
	bool		(*map_keys) (gpuvec_vectors *vectors, gpuvec_device_bank *bank,
							 const gpuvec_key_row *rows, uint64_t n, gpuvec_error *error);
	bool		(*find_keys) (gpuvec_vectors *vectors, gpuvec_device_bank *bank,
							  const gpuvec_key_search *search, gpuvec_error *error);

	/* Pool: out[nbags * width], for concat [nslots * width] */
	bool		(*pool) (gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_slot_bags *bags,
						 float *out, gpuvec_error *error);

	/*
	 * The gradient of the vectors, given that of what pool returns.  *n is
	 * the number of different slots, no more than `most`, which bounds the
	 * memory that this takes; *body is malloc'd and has their keys, int64 and
	 * ascending, and then their gradients.
	 */
	bool		(*gradient) (gpuvec_vectors *vectors, gpuvec_device_bank *bank,
							 const gpuvec_slot_bags *bags, const float *gradient, uint64_t most,
							 uint64_t *n, void **body, gpuvec_error *error);

	/* The gradients of the weights, out[nslots]; not for concat */
	bool		(*weight_gradients) (gpuvec_vectors *vectors, gpuvec_device_bank *bank,
									 const gpuvec_slot_bags *bags, const float *gradient, float *out,
									 gpuvec_error *error);

	/* The nearest vectors of live slots, in the order of nearest.h */
	bool		(*nearest) (gpuvec_vectors *vectors, gpuvec_device_bank *bank,
							gpuvec_slot_search *search, gpuvec_error *error);
};

#ifdef __cplusplus
}
#endif

#endif							/* GPUVEC_EMBEDDING_BACKEND_H */
