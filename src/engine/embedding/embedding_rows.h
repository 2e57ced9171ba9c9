/*-------------------------------------------------------------------------
 *
 * embedding_rows.h
 *	  Embedding tables: rows with a key and a vector, found by their keys.
 *
 * embedding_rows.c	the rows: changing them
 * embedding_mirror.c	the table as what a mirror holds
 * key_map.c			finding the rows of keys by a hash table on a device
 * embedding_query.h	requests: gathering, pooling, nearest rows
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_EMBEDDING_ROWS_H
#define GPUVEC_EMBEDDING_ROWS_H

#include <pthread.h>

#include "core/pooling.h"
#include "core/protocol.h"
#include "engine/embedding_backend.h"
#include "engine/store/page_numbers.h"

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

/*
 * All rows whose vectors have the same width, or are bad for the same reason
 */
typedef struct gpuvec_bank
{
	uint32_t	width;
	gpuvec_vector_kind kind;
	uint32_t	nslots;			/* that were ever used */
	uint32_t	room;
	uint32_t	nfree;
	gpuvec_vector_info *rows;	/* [room] */
	char	   *elements;		/* [room * width], in the table's storage; or
								 * NULL: */
	gpuvec_device_bank *device; /* that is where they are */
	uint32_t   *free;			/* [room]: the nfree slots that can be used
								 * again */
	uint8_t    *live;			/* [room]: published, not replaced; below
								 * nlive only */
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

/*
 * How much work is done at a time, and from how much on a device does it.
 * Tests link smaller numbers (test/unit/small_policy.c), so that small tables
 * go every way.
 */
typedef struct gpuvec_embedding_limits
{
	uint32_t	changed_keys;	/* that may change before a device's hash
								 * table is made anew */
	uint32_t	device_keys;	/* of a request, from which on a device looks
								 * them up */
	uint64_t	part_entries;	/* of the host's hash table that are entered
								 * together */
	uint64_t	device_rows;	/* that a device is asked for at a time,
								 * unless one query needs more */
} gpuvec_embedding_limits;

extern const gpuvec_embedding_limits gpuvec_embedding_policy;

/*
 * What is known of the hash table of a bank on the device.  Readers bring it
 * up to date when they need it.
 */
typedef struct gpuvec_key_map
{
	pthread_mutex_t mutex;		/* readers take it; the updater has the
								 * table's lock */
	uint64_t	version;		/* of the table, which it is of; 0: it has to
								 * be made */
	uint32_t	bank;
	uint32_t	room;			/* of the bank when it was made */
	uint64_t	entered;		/* keys since then */
	gpuvec_proven *proven;		/* the last one, or NULL */
	uint64_t	nchanged;		/* since that version; also those for which
								 * there was no room */
	int64_t		changed[];		/* [gpuvec_embedding_policy.changed_keys],
								 * some of them twice */
} gpuvec_key_map;

/*
 * A table.  Readers hold the lock shared.  Only the mirror's updater changes
 * anything: rows that no reader can find yet without the lock, all else while
 * it holds it exclusively.
 */
typedef struct gpuvec_embedding_table
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
	 * Called before arrays on the device are replaced by new ones of `bytes`
	 * bytes, `more` than the old ones have; both are there for a while.
	 * False: there is no room.
	 */
	bool		(*make_room) (void *arg, size_t bytes, size_t more, gpuvec_error *error);
	void	   *make_room_arg;
} gpuvec_embedding_table;

/* NULL on lack of memory; vectors: see the structure */
extern gpuvec_embedding_table *gpuvec_embedding_new(gpuvec_storage storage, gpuvec_vectors *vectors,
													gpuvec_error *error);
extern gpuvec_embedding_table *gpuvec_embedding_ref(gpuvec_embedding_table *table);
extern void gpuvec_embedding_unref(gpuvec_embedding_table *table);

/*
 * The updater's functions: add a row, which nobody sees yet; forget such rows
 */
extern bool gpuvec_embedding_stage(gpuvec_embedding_table *table, uint64_t tid,
								   const gpuvec_vector_row *row, const void *elements,
								   gpuvec_error *error);
extern void gpuvec_embedding_discard(gpuvec_embedding_table *table);

/* Get ready to publish staged rows: afterwards that cannot fail */
extern bool gpuvec_embedding_prepare(gpuvec_embedding_table *table, uint32_t nblocks,
									 gpuvec_error *error);

/*
 * Publish staged rows in place of those of the given pages (ascending),
 * without those beyond nblocks.  The caller holds the lock exclusively.
 */
extern void gpuvec_embedding_publish(gpuvec_embedding_table *table, const uint32_t *blocks,
									 uint64_t n,
									 uint32_t nblocks);

/* Bytes that the table takes on host and device */
extern void gpuvec_embedding_bytes(const gpuvec_embedding_table *table, size_t *host,
								   size_t *device);

/* Are most slots unused, so that the table should be made anew? */
extern bool gpuvec_embedding_sparse(const gpuvec_embedding_table *table);

/* The entry of a key, or the empty one where it belongs */
static inline uint64_t
gpuvec_key_index(const gpuvec_embedding_table *table, int64_t key)
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

/* key_map.c: NULL on lack of memory; the bytes of one */
extern gpuvec_key_map *gpuvec_key_map_new(gpuvec_error *error);
extern void gpuvec_key_map_free(gpuvec_key_map *map);
extern size_t gpuvec_key_map_bytes(void);

/* A key has come, gone, or has other rows now */
static inline void
gpuvec_key_changed(gpuvec_embedding_table *table, int64_t key)
{
	gpuvec_key_map *map = table->map;

	if (map == NULL || map->version == 0)
		return;
	if (map->nchanged < gpuvec_embedding_policy.changed_keys)
		map->changed[map->nchanged] = key;
	map->nchanged++;
}

#endif							/* GPUVEC_EMBEDDING_ROWS_H */
