/*-------------------------------------------------------------------------
 *
 * embedding_query.h
 *	  Requests of embedding tables: what they ask for, and what comes of it.
 *
 * parse_requests.c	taking them apart
 * read_rows.c		which rows do keys mean? gathering and pooling
 * pool_grad.c		gradients of pooling
 * on_device.c		gathering, pooling and gradients, with vectors on a device
 * nearest_rows.c	the nearest rows
 * pool_*.c			inner loops, compiled for each instruction set
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_EMBEDDING_QUERY_H
#define GPUVEC_EMBEDDING_QUERY_H

#include "engine/embedding/embedding_rows.h"
#include "engine/thread_pool.h"

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

/* To gather or pool vectors: read_rows.c */
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
extern bool gpuvec_embedding_run(gpuvec_embedding_table *table, gpuvec_thread_pool *pool,
								 gpuvec_embedding_query *q,
								 gpuvec_error *error);

/* To find the nearest rows: nearest_rows.c */
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

extern bool gpuvec_nearest_run(gpuvec_embedding_table *table, gpuvec_thread_pool *pool,
							   gpuvec_nearest_query *q, gpuvec_error *error);

/* Does the session's snapshot see the row? */
extern gpuvec_seen gpuvec_embedding_sees(const gpuvec_embedding_table *table,
										 const gpuvec_sight *sight,
										 uint64_t tid);

/* Does a session see all rows of this page, as far as is known? */
extern bool gpuvec_page_proven(const gpuvec_embedding_table *table, const gpuvec_sight *sight,
							   uint32_t block);

/* Sort tids, and keep each once; returns how many there are */
extern uint64_t gpuvec_distinct_tids(uint64_t *tids, uint64_t n);

/*
 * parse_requests.c: take a request apart.  NULL, or what is wrong with it.
 */
extern const char *gpuvec_embedding_parse(gpuvec_embedding_query *q, const char *data,
										  size_t length);
extern const char *gpuvec_nearest_parse(gpuvec_nearest_query *q, const char *data, size_t length);

#endif							/* GPUVEC_EMBEDDING_QUERY_H */
