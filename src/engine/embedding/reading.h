/*-------------------------------------------------------------------------
 *
 * reading.h
 *	  A request that is being served, as read_rows.c, key_map.c and
 *	  pool_slots.c share it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_EMBEDDING_READING_H
#define GPUVEC_EMBEDDING_READING_H

#include "engine/embedding/embedding_query.h"

/*
 * Number of keys of a slice.  A request with at most this many keys is served
 * by its own thread alone.
 */
#define SLICE_KEYS	4096

/* A request that is being served */
typedef struct gpuvec_reading
{
	const gpuvec_embedding_table *table;
	gpuvec_embedding_query *q;
	gpuvec_resolved *resolved;	/* which rows the session sees; NULL: each is
								 * looked up, as it is told about few */
	uint64_t	nkeys;
	uint64_t	nbags;
	uint64_t	hotness;		/* keys of each bag; 0: use q->offsets */
	gpuvec_pool_mode mode;
	gpuvec_missing missing;
	uint64_t	most_undecided; /* tids, about */
	uint64_t	main_key;		/* index of the first key that was found */
	uint32_t	main_bank;		/* its bank; all vectors must be in this bank */

	gpuvec_vector_ref *rows;	/* [nkeys]: the row of each key */
	uint32_t   *slots;			/* [nkeys], or NULL: the slots that a device
								 * has found, and later those of all rows */

	pthread_mutex_t mutex;		/* guards what follows; nfound is changed by
								 * __atomic builtins */
	uint64_t   *undecided;		/* [nundecided]: tids */
	uint64_t	nundecided;
	uint64_t	undecided_capacity;
	uint64_t	nfound;
	uint64_t	wrong;			/* index of the first key to complain about,
								 * or UINT64_MAX */
	gpuvec_vector_ref wrong_row;	/* its row, if any */
	gpuvec_embedding_status complaint;
	bool		failed;			/* out of memory */
} gpuvec_reading;

/* True if the answer is no longer wanted */
static inline bool
gpuvec_reading_canceled(const gpuvec_reading *r)
{
	return r->q->canceled && __atomic_load_n(r->q->canceled, __ATOMIC_RELAXED);
}

/* Run all slices; a single slice runs in this thread */
static inline void
gpuvec_reading_run(gpuvec_reading *r, gpuvec_thread_pool *pool, gpuvec_slice work, uint64_t nslices)
{
	if (nslices == 1)
		work(r, 0, 0);
	else if (nslices > 1)
		gpuvec_thread_pool_run(pool, work, r, nslices);
}

/* Index of a bag's first key */
static inline uint64_t
gpuvec_reading_bag(const gpuvec_reading *r, uint64_t bag)
{
	return r->hotness > 0 ? bag * r->hotness : r->q->offsets[bag];
}

/* key_map.c: true if the device may look the keys up; needs `resolved` */
extern bool gpuvec_reading_asks_device(const gpuvec_reading *r);

/*
 * key_map.c: if the device should look the keys up, make slots[] and let it
 * fill them with slots of bank table->map->bank.  GPUVEC_ASK_SLOT: it cannot
 * tell.
 */
extern bool gpuvec_reading_find(gpuvec_reading *r, gpuvec_thread_pool *pool, gpuvec_error *error);

/* pool_slots.c: serve a request whose slots[] are those of main_bank */
extern bool gpuvec_reading_slots(gpuvec_reading *r, gpuvec_thread_pool *pool, gpuvec_error *error);

#endif							/* GPUVEC_EMBEDDING_READING_H */
