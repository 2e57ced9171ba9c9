/*-------------------------------------------------------------------------
 *
 * embed.h
 *	  Embedding tables: rows with a key and a vector, found by their keys.
 *
 * embed_table.c	the rows: changing them
 * embed_read.c		which rows do keys mean? gathering and pooling
 * embed_keys.c		the same, by a hash table on a device
 * embed_device.c	the same and gradients, with vectors on a device
 * embed_grad.c		gradients of pooling
 * embed_nearest.c	the nearest rows
 * embed_request.c	the requests of sessions
 * embed_pool_*.c	inner loops, compiled for each instruction set
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_EMBEDDING_H
#define GPUVEC_EMBEDDING_H

#include <pthread.h>

#include "core/pooling_grad.h"
#include "engine/store.h"

/* A row: its bank << 32 | its slot there */
typedef uint64_t gpuvec_vector_ref;

#define GPUVEC_NO_VECTOR	UINT64_MAX
#define gpuvec_vector_ref_of(bank, slot)	((uint64_t) (bank) << 32 | (slot))
#define gpuvec_ref_bank(ref)	((uint32_t) ((ref) >> 32))
#define gpuvec_ref_slot(ref)	((uint32_t) (ref))

/* What is kept of a row beside its vector */
typedef struct gpuvec_vector_info
{
	uint64_t	tid;
	int64_t		key;
	gpuvec_vector_ref next;		/* row of the same key */
	gpuvec_vector_ref previous;
	gpuvec_vector_ref next_in_block;
} gpuvec_vector_info;

/* All rows whose vectors have the same width, or are bad for the same reason */
typedef struct gpuvec_bank
{
	uint32_t	width;
	gpuvec_vector_kind kind;
	uint32_t	nslots;			/* that were ever used */
	uint32_t	room;
	uint32_t	nfree;
	gpuvec_vector_info *rows;	/* [room] */
	char	   *elements;		/* [room * width], in the table's storage; or NULL: */
	gpuvec_device_bank *device; /* that is where they are */
	uint32_t   *free;			/* [room]: the nfree slots that can be used again */
	uint8_t    *live;			/* [room]: published, not replaced; below nlive only */
	uint32_t	nlive;
} gpuvec_bank;

typedef struct gpuvec_key_entry
{
	int64_t		key;
	gpuvec_vector_ref first;	/* GPUVEC_NO_VECTOR: the entry is empty */
} gpuvec_key_entry;

/* The pages whose rows a session is known to see, all of them */
typedef struct gpuvec_proven
{
	int			refs;
	uint64_t	version;		/* of the table */
	const gpuvec_page_numbers *numbers;
	uint64_t	known;
	uint64_t	map_bytes;
	uint32_t	nblocks;
	uint32_t   *bits;			/* [nblocks / 32 + 1] */
	uint8_t		map[];			/* of the session, which this was made from */
} gpuvec_proven;

/* Keys that may change before the device's hash table is made anew */
#ifdef EMULATION
#define GPUVEC_CHANGED_KEYS	100
#else
#define GPUVEC_CHANGED_KEYS	16384
#endif

/*
 * What is known of the hash table of a bank on the device.  Readers bring it up to date
 * when they need it.
 */
typedef struct gpuvec_key_map
{
	pthread_mutex_t mutex;		/* readers take it; the updater has the table's lock */
	uint64_t	version;		/* of the table, which it is of; 0: it has to be made */
	uint32_t	bank;
	uint32_t	room;			/* of the bank when it was made */
	uint64_t	entered;		/* places since then */
	gpuvec_proven *proven;		/* the last one, or NULL */
	uint64_t	nchanged;		/* since that version; also those for which there was no room */
	int64_t		changed[GPUVEC_CHANGED_KEYS];	/* keys, some of them twice */
} gpuvec_key_map;

/*
 * A table.  Readers hold the lock shared.  Only the mirror's updater changes
 * anything: rows that no reader can find yet without the lock, all else while it
 * holds it exclusively.
 */
struct gpuvec_embedding_table
{
	int			refs;			/* changed by __atomic builtins only */
	pthread_rwlock_t lock;
	gpuvec_storage storage;
	gpuvec_vectors *vectors;	/* the device's; NULL: vectors are on the host */

	/* guarded by the lock */
	gpuvec_state state;			/* of the mirror, as of these rows */
	gpuvec_page_numbers *numbers;	/* the mirror's */
	gpuvec_bank **banks;
	uint32_t	nbanks;
	gpuvec_key_entry *entries;	/* [mask + 1], open addressing */
	uint64_t	mask;
	uint64_t	nentries;		/* that are not empty */
	gpuvec_key_map *map;		/* if vectors are on a device, or NULL */
	gpuvec_vector_ref *blocks;	/* [nblocks]: first row of each page */
	uint32_t	nblocks;
	uint64_t	nrows;
	uint64_t	version;		/* of live[] of all banks, counted up */

	/* the updater's: rows on their way, in the order of their pages */
	gpuvec_vector_ref *staged;
	uint64_t	nstaged;
	uint64_t	room_staged;
	size_t		staged_bytes;	/* that they add to what is charged */

	/*
	 * Called before arrays on the device are replaced by new ones of so many bytes, `more`
	 * than the old ones have; both are there for a while.  False: there is no room.
	 */
	bool		(*make_room) (void *arg, size_t bytes, size_t more, gpuvec_error *error);
	void	   *make_room_arg;
};

/* NULL on lack of memory; vectors: see the structure */
extern gpuvec_embedding_table *gpuvec_embedding_new(gpuvec_storage storage, gpuvec_vectors *vectors,
											gpuvec_error *error);
extern gpuvec_embedding_table *gpuvec_embedding_ref(gpuvec_embedding_table *table);
extern void gpuvec_embedding_unref(gpuvec_embedding_table *table);

/* Is this the key of a mirror of an embedding table? */
static inline bool
gpuvec_is_embedding_key(const gpuvec_mirror_key *key)
{
	return key->key_attnum != 0;
}

/* The updater's functions: add a row, which nobody sees yet; forget such rows */
extern bool gpuvec_embedding_stage(gpuvec_embedding_table *table, uint64_t tid,
							   const gpuvec_vector_row *row, const void *elements,
							   gpuvec_error *error);
extern void gpuvec_embedding_discard(gpuvec_embedding_table *table);

/* Get ready to publish staged rows: afterwards that cannot fail */
extern bool gpuvec_embedding_prepare(gpuvec_embedding_table *table, uint32_t nblocks, gpuvec_error *error);

/*
 * Publish staged rows in place of those of the given pages (ascending), without
 * those beyond nblocks.  The caller holds the lock exclusively.
 */
extern void gpuvec_embedding_publish(gpuvec_embedding_table *table, const uint32_t *blocks, uint64_t n,
								 uint32_t nblocks);

/* Bytes that the table takes on host and device */
extern void gpuvec_embedding_bytes(const gpuvec_embedding_table *table, size_t *host, size_t *device);

/* Are so many slots unused that the table should be made anew? */
extern bool gpuvec_embedding_sparse(const gpuvec_embedding_table *table);

/* The place of a key, or of the empty entry where it belongs */
static inline uint64_t
gpuvec_key_place(const gpuvec_embedding_table *table, int64_t key)
{
	uint64_t	h = gpuvec_hash_key(key);

	for (h &= table->mask;; h = (h + 1) & table->mask)
		if (table->entries[h].first == GPUVEC_NO_VECTOR || table->entries[h].key == key)
			return h;
}

/* Bytes of a vector of a bank */
static inline size_t
gpuvec_vector_bytes(const gpuvec_embedding_table *table, const gpuvec_bank *bank)
{
	return bank->width * gpuvec_element_bytes(table->storage);
}

static inline gpuvec_vector_info *
gpuvec_vector_at(const gpuvec_embedding_table *table, gpuvec_vector_ref ref)
{
	return &table->banks[gpuvec_ref_bank(ref)]->rows[gpuvec_ref_slot(ref)];
}

/* What the session's snapshot is known to see */
typedef struct gpuvec_sight
{
	uint64_t	known;
	const uint8_t *map;
	uint64_t	map_bytes;
	const uint64_t *verdicts;
	uint64_t	nverdicts;
} gpuvec_sight;

typedef enum gpuvec_seen
{
	GPUVEC_UNSEEN,
	GPUVEC_SEEN,
	GPUVEC_UNDECIDED
} gpuvec_seen;

/*
 * embed_read.c: what a request asks for, and what comes of it
 */
typedef struct gpuvec_embedding_query
{
	gpuvec_embedding_request head;
	const int64_t *keys;
	const uint64_t *offsets;
	gpuvec_sight sight;
	const float *weights;		/* NULL: none */
	const float *gradient;
	const int  *canceled;		/* read atomically */

	/* the answer; both are malloc'd */
	gpuvec_embedding_answer answer;
	uint8_t    *found;			/* [nkeys] */
	void	   *body;			/* tids, elements, or keys and elements */
	size_t		body_size;
} gpuvec_embedding_query;

/* Serve a request; the table is open (with a reference, without the lock) */
extern bool gpuvec_embedding_run(gpuvec_embedding_table *table, gpuvec_pool *pool, gpuvec_embedding_query *q,
							 gpuvec_error *error);

/*
 * embed_simd.c: instruction sets of inner loops; each file of them is compiled for one
 */
typedef enum gpuvec_embedding_simd
{
	GPUVEC_EMBEDDING_PORTABLE,
	GPUVEC_EMBEDDING_AVX2,
	GPUVEC_EMBEDDING_AVX512
} gpuvec_embedding_simd;

extern gpuvec_embedding_simd gpuvec_embedding_best_simd(void);

/* gpuvec_pool_bag and gpuvec_sum_shares, compiled for several instruction sets */
typedef uint64_t gpuvec_pool_bag_function(float *out, const gpuvec_bag *bag);
typedef void gpuvec_sum_shares_function(float *out, const gpuvec_share *shares, uint64_t n,
										const gpuvec_upstream *up, float *scratch);
extern gpuvec_sum_shares_function gpuvec_sum_shares_portable;
extern gpuvec_sum_shares_function gpuvec_sum_shares_avx2;
extern gpuvec_sum_shares_function gpuvec_sum_shares_avx512;
extern gpuvec_pool_bag_function gpuvec_pool_bag_portable;
extern gpuvec_pool_bag_function gpuvec_pool_bag_avx2;
extern gpuvec_pool_bag_function gpuvec_pool_bag_avx512;

/* Does the session's snapshot see the row? */
extern gpuvec_seen gpuvec_embedding_sees(const gpuvec_embedding_table *table, const gpuvec_sight *sight,
									 uint64_t tid);

/* Does a session see all rows of this page, as far as is known? */
extern bool gpuvec_page_proven(const gpuvec_embedding_table *table, const gpuvec_sight *sight,
							   uint32_t block);

/* embed_keys.c; NULL on lack of memory */
extern gpuvec_key_map *gpuvec_key_map_new(gpuvec_error *error);
extern void gpuvec_key_map_free(gpuvec_key_map *map);

/* A key has come, gone, or has other rows now */
static inline void
gpuvec_key_changed(gpuvec_embedding_table *table, int64_t key)
{
	gpuvec_key_map *map = table->map;

	if (map == NULL || map->version == 0)
		return;
	if (map->nchanged < GPUVEC_CHANGED_KEYS)
		map->changed[map->nchanged] = key;
	map->nchanged++;
}

/* Sort tids, and keep each once; returns how many there are */
extern uint64_t gpuvec_distinct_tids(uint64_t *tids, uint64_t n);

/*
 * embed_nearest.c
 */
typedef struct gpuvec_nearest_query
{
	gpuvec_nearest_head head;
	gpuvec_sight sight;
	const int64_t *excluded;
	const float *queries;
	const int  *canceled;		/* read atomically */

	/* the answer; both are malloc'd */
	gpuvec_embedding_answer answer;
	uint32_t   *counts;			/* [nqueries], with room to pad to 8 bytes */
	void	   *body;			/* tids, or rows */
	size_t		body_size;
} gpuvec_nearest_query;

extern bool gpuvec_nearest_run(gpuvec_embedding_table *table, gpuvec_pool *pool,
							   gpuvec_nearest_query *q, gpuvec_error *error);

typedef void gpuvec_near_scores_function(double *scores, gpuvec_metric metric, const float *q,
										 double qq, const void *vectors, uint64_t n,
										 uint32_t width, gpuvec_storage storage,
										 float *scratch);
extern gpuvec_near_scores_function gpuvec_near_scores_portable;
extern gpuvec_near_scores_function gpuvec_near_scores_avx2;
extern gpuvec_near_scores_function gpuvec_near_scores_avx512;

/*
 * embed_request.c: take a request apart.  NULL, or what is wrong with it.
 */
extern const char *gpuvec_embedding_parse(gpuvec_embedding_query *q, const char *data, size_t length);
extern const char *gpuvec_nearest_parse(gpuvec_nearest_query *q, const char *data, size_t length);

#endif							/* GPUVEC_EMBEDDING_H */
