/*-------------------------------------------------------------------------
 *
 * reading.h
 *	  A request that is being served: what read_rows.c, pool_grad.c and
 *	  on_device.c share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_EMBEDDING_READING_H
#define GPUVEC_EMBEDDING_READING_H

#include "engine/embedding/embedding_query.h"
#include "engine/embedding/pool_simd.h"

/*
 * Keys of a part; a request with no more of them is served by its own thread
 * alone
 */
#define PART_KEYS	4096

/* Room in an answer for elements */
#define MAX_ELEMENTS	((GPUVEC_MAX_FRAME - sizeof(gpuvec_embedding_answer)) / sizeof(float))

/* A request that is being served */
typedef struct gpuvec_reading
{
	const gpuvec_embedding_table *table;
	gpuvec_embedding_query *q;
	uint64_t	nkeys;
	uint64_t	nbags;
	uint64_t	hotness;		/* of the bags; 0: q->offsets */
	gpuvec_pool_mode mode;
	gpuvec_missing missing;
	uint64_t	nparts;			/* of bags */
	gpuvec_pool_bag_function *pool_bag; /* for this processor */
	gpuvec_sum_shares_function *sum_shares;
	uint64_t	main_key;		/* number of the first key that was found */
	uint32_t	main_bank;

	/* of each key: its row, then its vector */
	union
	{
		gpuvec_vector_ref ref;
		const void *vector;
	}		   *rows;
	uint32_t   *slots;			/* of each key, if vectors are on a device;
								 * once they are located, rows[] only tell
								 * whether there is one */
	float	   *out;
	uint64_t   *part_out;		/* [nparts]: where its first bag goes */

	pthread_mutex_t mutex;		/* guards what follows */
	uint64_t   *undecided;		/* tids */
	uint64_t	nundecided;
	uint64_t	room_undecided;
	uint64_t	nfound;
	uint64_t	wrong;			/* number of the first key to complain about */
	gpuvec_vector_ref wrong_row;
	gpuvec_embedding_status complaint;
	bool		failed;			/* out of memory */
} gpuvec_reading;

/* Is the answer not wanted any more? */
static inline bool
gpuvec_reading_canceled(const gpuvec_reading *r)
{
	return r->q->canceled && __atomic_load_n(r->q->canceled, __ATOMIC_RELAXED);
}

/* Run all parts, on this thread if there is only one */
static inline void
gpuvec_reading_run(gpuvec_reading *r, gpuvec_thread_pool *pool, gpuvec_part work, uint64_t nparts)
{
	if (nparts == 1)
		work(r, 0, 0);
	else if (nparts > 1)
		gpuvec_thread_pool_run(pool, work, r, nparts);
}

/* Where a bag begins */
static inline uint64_t
gpuvec_reading_bag(const gpuvec_reading *r, uint64_t bag)
{
	return r->hotness > 0 ? bag * r->hotness : r->q->offsets[bag];
}

/* A bag, once its keys are looked up; scratch: see gpuvec_bag */
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

/* How many floats an answer may have: MAX_ELEMENTS, less in tests */
extern uint64_t gpuvec_reading_limit(void);

/* Is pooling going to give too much for an answer?  If so, answer so. */
extern bool gpuvec_reading_too_large(gpuvec_reading *r);

/*
 * pool_grad.c: gradients, of keys that were resolved; the caller holds the
 * table's lock
 */
extern bool gpuvec_reading_gradient(gpuvec_reading *r, gpuvec_thread_pool *pool,
									gpuvec_error *error);
extern bool gpuvec_reading_weight_gradients(gpuvec_reading *r, gpuvec_thread_pool *pool,
											gpuvec_error *error);

/* Does the gradient of the request have `rows` rows?  If not, answer so. */
extern bool gpuvec_reading_check_gradient(gpuvec_reading *r, uint64_t rows);

/*
 * key_map.c: if a device is to look the keys up, let it fill slots[], of the
 * bank table->map->bank: GPUVEC_ASK_SLOT where it cannot tell.
 */
extern bool gpuvec_reading_find(gpuvec_reading *r, gpuvec_thread_pool *pool, gpuvec_error *error);

/* on_device.c: do what a request asks for, once slots[] is there */
extern bool gpuvec_reading_device(gpuvec_reading *r, gpuvec_error *error);

#endif							/* GPUVEC_EMBEDDING_READING_H */
