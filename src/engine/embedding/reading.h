/*-------------------------------------------------------------------------
 *
 * reading.h
 *	  A request that is being served, as read_rows.c, pool_grad.c, key_map.c
 *	  and on_device.c share it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_EMBEDDING_READING_H
#define GPUVEC_EMBEDDING_READING_H

#include "engine/embedding/embedding_query.h"
#include "engine/embedding/pool_simd.h"

/*
 * Number of keys of a part.  A request with at most this many keys is served
 * by its own thread alone.
 */
#define PART_KEYS	4096

/* Most floats that fit an answer */
#define MAX_ELEMENTS	((GPUVEC_MAX_FRAME - sizeof(gpuvec_embedding_answer)) / sizeof(float))

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
	uint64_t	nparts;			/* number of parts of the bags */
	uint64_t	most_undecided; /* tids, about */
	gpuvec_pool_bag_function *pool_bag; /* variant for this processor */
	gpuvec_sum_shares_function *sum_shares;
	uint64_t	main_key;		/* index of the first key that was found */
	uint32_t	main_bank;		/* its bank; all vectors must be in this bank */

	/* [nkeys]: the row of each key, and later its vector */
	union
	{
		gpuvec_vector_ref ref;
		const void *vector;
	}		   *rows;
	uint32_t   *slots;			/* [nkeys], or NULL; if vectors are on a
								 * device, their slots.  Once they are
								 * located, rows[] only tells whether a vector
								 * was found. */
	float	   *out;			/* the answer's floats */
	uint64_t   *part_out;		/* [nparts]: index in out[], or row of the
								 * gradient, of the part's first bag */

	pthread_mutex_t mutex;		/* guards what follows; nfound, and failed
								 * while pooling, are changed by __atomic
								 * builtins */
	uint64_t   *undecided;		/* [nundecided]: tids */
	uint64_t	nundecided;
	uint64_t	room_undecided;
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

/* Run all parts; a single part runs in this thread */
static inline void
gpuvec_reading_run(gpuvec_reading *r, gpuvec_thread_pool *pool, gpuvec_part work, uint64_t nparts)
{
	if (nparts == 1)
		work(r, 0, 0);
	else if (nparts > 1)
		gpuvec_thread_pool_run(pool, work, r, nparts);
}

/* Index of a bag's first key */
static inline uint64_t
gpuvec_reading_bag(const gpuvec_reading *r, uint64_t bag)
{
	return r->hotness > 0 ? bag * r->hotness : r->q->offsets[bag];
}

/* A bag whose keys have been located; scratch: see gpuvec_bag */
static inline gpuvec_bag
gpuvec_reading_get(const gpuvec_reading *r, uint64_t bag, float *scratch)
{
	uint64_t	start = r->hotness > 0 ? bag * r->hotness : r->q->offsets[bag];
	uint64_t	end = r->hotness > 0 ? start + r->hotness : r->q->offsets[bag + 1];
	gpuvec_bag	keys = {
		.keys = r->q->keys + start, .vectors = &r->rows[start].vector,
		.weights = r->q->weights ? r->q->weights + start : NULL, .n = end - start,
		.width = r->q->answer.width, .storage = r->table->storage, .mode = r->mode,
		.missing = r->missing, .scratch = scratch
	};

	return keys;
}

/* The first bag of a part of bags */
static inline uint64_t
gpuvec_reading_part(const gpuvec_reading *r, uint64_t part)
{
	return (uint64_t) ((unsigned __int128) r->nbags * part / r->nparts);
}

extern float *gpuvec_reading_scratch(gpuvec_reading *r);

/* Most floats that an answer may have: MAX_ELEMENTS, or fewer in tests */
extern uint64_t gpuvec_reading_limit(void);

/*
 * If pooling would give too many floats for an answer, answer so, and return
 * true
 */
extern bool gpuvec_reading_too_large(gpuvec_reading *r);

/*
 * pool_grad.c: compute gradients for located keys; the caller holds the
 * table's lock
 */
extern bool gpuvec_reading_gradient(gpuvec_reading *r, gpuvec_thread_pool *pool,
									gpuvec_error *error);
extern bool gpuvec_reading_weight_gradients(gpuvec_reading *r, gpuvec_thread_pool *pool,
											gpuvec_error *error);

/*
 * Unless the upstream gradient has `rows` rows, answer so, and return false
 */
extern bool gpuvec_reading_check_gradient(gpuvec_reading *r, uint64_t rows);

/* key_map.c: true if the device may look the keys up; needs `resolved` */
extern bool gpuvec_reading_asks_device(const gpuvec_reading *r);

/*
 * key_map.c: if the device should look the keys up, make slots[] and let it
 * fill them with slots of bank table->map->bank.  GPUVEC_ASK_SLOT: it cannot
 * tell.
 */
extern bool gpuvec_reading_find(gpuvec_reading *r, gpuvec_thread_pool *pool, gpuvec_error *error);

/* on_device.c: serve a request whose slots[] are located */
extern bool gpuvec_reading_device(gpuvec_reading *r, gpuvec_error *error);

#endif							/* GPUVEC_EMBEDDING_READING_H */
