/*-------------------------------------------------------------------------
 *
 * embedding_rows.h
 *	  Embedding tables in the engine: rows with a key and a vector, found by
 *	  their keys.
 *
 * embedding_rows.c		changing the rows of a table
 * embedding_mirror.c	a table as the contents of a mirror
 * key_map.c			finding rows of keys by a hash table on a device
 * embedding_query.h	requests: gathering, pooling, nearest rows
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_EMBEDDING_ROWS_H
#define GPUVEC_EMBEDDING_ROWS_H

#include <pthread.h>

#include "core/hash_secret.h"
#include "core/pooling.h"
#include "core/protocol_mirrors.h"
#include "engine/embedding_backend.h"
#include "engine/store/page_numbers.h"
#include "engine/store/store.h"

/* Reference to a row: number of its bank << 32 | its slot */
typedef uint64_t gpuvec_vector_ref;

#define GPUVEC_NO_VECTOR	UINT64_MAX
#define gpuvec_vector_ref_of(bank, slot)	((uint64_t) (bank) << 32 | (slot))
#define gpuvec_ref_bank(ref)	((uint32_t) ((ref) >> 32))
#define gpuvec_ref_slot(ref)	((uint32_t) (ref))

/*
 * A row version, without its vector.  The lists are doubly linked for a key,
 * singly linked for a page.
 */
typedef struct gpuvec_vector_info
{
	uint64_t	tid;
	int64_t		key;
	gpuvec_vector_ref next;		/* next row with the same key */
	gpuvec_vector_ref previous;
	gpuvec_vector_ref next_in_block;	/* next row on the same page */
} gpuvec_vector_info;

/*
 * All rows whose vectors have the same width, or (width 0) cannot be used for
 * the same reason
 */
typedef struct gpuvec_bank
{
	uint32_t	width;
	gpuvec_vector_kind kind;
	uint32_t	nslots;			/* slots that were ever used; those behind
								 * them are free */
	uint32_t	capacity;		/* slots that the arrays have */
	uint32_t	nfree;
	gpuvec_vector_info *rows;	/* [capacity] */
	gpuvec_vectors *backend;	/* where the vectors are: the table's, or on
								 * the host if they have no elements */
	gpuvec_device_bank *vectors;
	uint32_t   *free;			/* [capacity]: nfree slots that can be used
								 * again */
	uint8_t    *live;			/* [capacity]: nonzero if the slot's row is
								 * published and not replaced; valid below
								 * nlive */
	uint32_t	nlive;			/* nslots when rows were last published */
} gpuvec_bank;

/* An entry of the hash table: a key, and the list of its rows */
typedef struct gpuvec_key_entry
{
	int64_t		key;
	gpuvec_vector_ref first;	/* GPUVEC_NO_VECTOR: the entry is empty */
} gpuvec_key_entry;

/*
 * How much work is done at a time, and how much must be left to a device.
 * Tests link smaller numbers (test/unit/small_policy.c), so that small tables
 * take all ways.
 */
typedef struct gpuvec_embedding_limits
{
	uint32_t	changed_keys;	/* if more keys have changed, a device's hash
								 * table is rebuilt */
	uint32_t	device_keys;	/* requests with at least this many keys look
								 * them up on the device */
	uint64_t	part_entries;	/* entries of the host's hash table that one
								 * task enters into the device's */
	uint64_t	device_rows;	/* rows that a device is asked for at a time,
								 * unless one query needs more */
} gpuvec_embedding_limits;

extern const gpuvec_embedding_limits gpuvec_embedding_policy;

/*
 * The state of the hash table on the device.  Readers bring the hash table up
 * to date when they need it.
 */
typedef struct gpuvec_key_map
{
	pthread_mutex_t mutex;		/* taken by readers; the updater holds the
								 * table's lock instead */
	uint64_t	version;		/* the table's version that it reflects; 0: it
								 * must be rebuilt */
	uint32_t	bank;
	uint32_t	capacity;		/* room of the bank when it was built */
	uint64_t	entered;		/* keys entered since it was cleared */
	uint64_t	nchanged;		/* keys changed since that version, including
								 * those that did not fit changed[] */
	int64_t		changed[];		/* [gpuvec_embedding_policy.changed_keys]; may
								 * have duplicates */
} gpuvec_key_map;

/*
 * The Gram matrix of a table's rows, made when a reader asks for it, and
 * dropped when rows are published
 */
typedef struct gpuvec_gram
{
	gpuvec_store *store;		/* what it is charged to; NULL: nothing */
	size_t		bytes;
	uint32_t	width;
	bool		fit;			/* false: there is none */
	double		elements[];		/* [width * width]: those from the diagonal on */
} gpuvec_gram;

/*
 * A table.  Readers hold the lock shared.  Only the mirror's updater changes
 * anything.  It needs no lock for rows that no reader can find yet, and holds
 * the lock exclusively for all other changes.
 */
typedef struct gpuvec_embedding_table
{
	int			refs;			/* changed by __atomic builtins only */
	pthread_rwlock_t lock;
	gpuvec_storage storage;
	gpuvec_vectors *vectors;	/* where vectors with elements are */

	/* guarded by the lock */
	gpuvec_state state;			/* the mirror's state that belongs to these
								 * rows */
	gpuvec_page_numbers *numbers;	/* the mirror's */
	gpuvec_bank **banks;		/* [nbanks] */
	uint32_t	nbanks;
	gpuvec_key_entry *entries;	/* [mask + 1], open addressing */
	uint64_t	mask;
	uint64_t	nentries;		/* entries that are not empty */
	gpuvec_key_map *map;		/* NULL: the host finds all keys */
	gpuvec_vector_ref *blocks;	/* [nblocks]: first row of each page */
	uint32_t	nblocks;
	uint64_t	nrows;
	uint64_t	version;		/* incremented whenever rows are published */
	pthread_mutex_t resolved_mutex; /* guards `resolved` among readers */
	struct gpuvec_resolved *resolved;	/* the visibility that was resolved
										 * last (resolved.c), or NULL */
	pthread_mutex_t gram_mutex; /* guards gram among readers */
	gpuvec_gram *gram;			/* NULL: nobody has asked for it */

	/*
	 * the updater's: rows that are not published yet, in the order of their
	 * pages
	 */
	gpuvec_vector_ref *staged;
	uint64_t	nstaged;
	uint64_t	staged_capacity;
	size_t		staged_bytes;	/* memory to charge for them */

	/*
	 * Called before arrays on the device are replaced by new ones of `bytes`
	 * bytes, `more` than the old ones.  Both exist for a while.  False: there
	 * is no room.
	 */
	bool		(*make_room) (void *arg, size_t bytes, size_t more, gpuvec_error *error);
	void	   *make_room_arg;
} gpuvec_embedding_table;

/* vectors: see gpuvec_embedding_table.  NULL, with *error, on failure. */
extern gpuvec_embedding_table *gpuvec_embedding_new(gpuvec_storage storage, gpuvec_vectors *vectors,
													gpuvec_error *error);
extern gpuvec_embedding_table *gpuvec_embedding_ref(gpuvec_embedding_table *table);
extern void gpuvec_embedding_unref(gpuvec_embedding_table *table);

/* Release a reference to a resolved visibility, or NULL */
extern void gpuvec_resolved_unref(struct gpuvec_resolved *resolved);

/* Free a matrix, or NULL, with its charge */
extern void gpuvec_gram_free(gpuvec_gram *gram);

/*
 * The updater's functions: stage a row, which no reader sees yet; discard all
 * staged rows
 */
extern bool gpuvec_embedding_stage(gpuvec_embedding_table *table, uint64_t tid,
								   const gpuvec_vector_row *row, const void *elements,
								   gpuvec_error *error);
extern void gpuvec_embedding_discard(gpuvec_embedding_table *table);

/* Do all that may fail before staged rows are published */
extern bool gpuvec_embedding_prepare(gpuvec_embedding_table *table, uint32_t nblocks,
									 gpuvec_error *error);

/*
 * Publish staged rows in place of the rows of blocks[n] (page numbers,
 * ascending).  Rows of pages from nblocks on are dropped.  The caller holds
 * the lock exclusively, and has called gpuvec_embedding_prepare().
 */
extern void gpuvec_embedding_publish(gpuvec_embedding_table *table, const uint32_t *blocks,
									 uint64_t n,
									 uint32_t nblocks);

/* Bytes that the table takes on the host and on the device */
extern void gpuvec_embedding_bytes(const gpuvec_embedding_table *table, size_t *host,
								   size_t *device);

/* True if most slots are unused, so that the table should be loaded anew */
extern bool gpuvec_embedding_sparse(const gpuvec_embedding_table *table);

/* The index of a key's entry, or of the empty entry where it belongs */
static inline uint64_t
gpuvec_key_index(const gpuvec_embedding_table *table, int64_t key)
{
	uint64_t	h = gpuvec_secret_hash(key);

	for (h &= table->mask;; h = (h + 1) & table->mask)
		if (table->entries[h].first == GPUVEC_NO_VECTOR || table->entries[h].key == key)
			return h;
}

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

/*
 * key_map.c: make a key map (NULL, with *error, on failure), free it, its
 * size
 */
extern gpuvec_key_map *gpuvec_key_map_new(gpuvec_error *error);
extern void gpuvec_key_map_free(gpuvec_key_map *map);
extern size_t gpuvec_key_map_bytes(void);

/* Note that the rows of a key have changed */
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
