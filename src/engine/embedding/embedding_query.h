/*-------------------------------------------------------------------------
 *
 * embedding_query.h
 *	  Requests about embedding tables, and their answers.
 *
 * parse_requests.c	parsing requests
 * resolved.c		which rows the session sees
 * read_rows.c		finding the rows of keys
 * pool_slots.c		gathering, pooling and gradients of their vectors
 * nearest_rows.c	finding the nearest rows
 * all_rows.c		requests about all rows
 * pool_*.c			inner loops, compiled for each instruction set
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_EMBEDDING_QUERY_H
#define GPUVEC_EMBEDDING_QUERY_H

#include "core/protocol_vectors.h"
#include "engine/embedding/embedding_rows.h"
#include "engine/thread_pool.h"

/*
 * What the session has told about its snapshot: proofs that it sees whole
 * pages (xmin; known and map), and verdicts about single rows
 */
typedef struct gpuvec_visibility
{
	uint64_t	xmin;			/* of the snapshot */
	uint64_t	known;			/* number of a refresh, known before the map
								 * was read */
	const uint8_t *map;			/* [map_bytes]: the visibility map */
	uint64_t	map_bytes;
	const uint64_t *verdicts;	/* [nverdicts]: gpuvec_verdict, ascending */
	uint64_t	nverdicts;
} gpuvec_visibility;

typedef enum gpuvec_seen
{
	GPUVEC_UNSEEN,
	GPUVEC_SEEN,
	GPUVEC_UNDECIDED			/* the session has to decide */
} gpuvec_seen;

/* What becomes of a slot, as far as verdicts tell */
enum
{
	GPUVEC_SLOT_NONE,			/* there is no row, or it is not seen */
	GPUVEC_SLOT_LIVE,			/* a row without a verdict, as in bank->live */
	GPUVEC_SLOT_SEEN
};

/* What becomes of the slots of a bank */
typedef struct gpuvec_resolved_bank
{
	uint8_t    *slots;			/* [nlive]: see above */
	uint64_t	nunseen;		/* rows that are live, but not seen */
	uint64_t	nundecided;		/* rows that the session has to decide about */
} gpuvec_resolved_bank;

/* Which rows a session sees: resolved.c */
typedef struct gpuvec_resolved
{
	int			refs;			/* changed by __atomic builtins only */
	bool		keep;			/* is kept with the table */

	/* what it was made from */
	uint64_t	version;		/* of the table */
	const gpuvec_page_numbers *numbers;
	uint64_t	xmin;			/* or one that proves as much */
	uint64_t	known;
	uint64_t	map_bytes;
	uint64_t	nverdicts;
	uint8_t    *map;			/* copies, if it is kept */
	uint64_t   *verdicts;

	uint32_t	nblocks;
	uint32_t   *pages;			/* [nblocks / 32 + 1]: a bit for each page all
								 * of whose rows are seen */
	uint32_t	nunproven;		/* pages with rows, and without that bit */
	uint64_t	nunseen;		/* verdicts that a row is not seen */
	uint32_t	nbanks;
	gpuvec_resolved_bank *banks;	/* [nbanks]; NULL: there are few verdicts,
									 * or none */
} gpuvec_resolved;

/*
 * Resolve a visibility.  Returns a reference; NULL, with *error, on failure.
 * The caller holds the table's lock, and for as long as it uses the result.
 */
extern gpuvec_resolved *gpuvec_resolve(gpuvec_embedding_table *table, const gpuvec_visibility *visibility,
									   gpuvec_error *error);

/* True if the session sees all rows of a page; block < nblocks */
static inline bool
gpuvec_resolved_page(const gpuvec_resolved *resolved, uint32_t block)
{
	return (resolved->pages[block / 32] >> block % 32 & 1) != 0;
}

/* The verdict about a row, if there is one */
extern gpuvec_seen gpuvec_verdict_of(const gpuvec_visibility *visibility, uint64_t tid);

/* Tell whether the session sees a row that is live */
static inline gpuvec_seen
gpuvec_resolved_sees(const gpuvec_resolved *resolved, const gpuvec_visibility *visibility,
					 gpuvec_vector_ref ref, uint64_t tid)
{
	if (gpuvec_resolved_page(resolved, gpuvec_tid_block(tid)))
		return GPUVEC_SEEN;
	if (resolved->banks == NULL)
		return gpuvec_verdict_of(visibility, tid);
	switch (resolved->banks[gpuvec_ref_bank(ref)].slots[gpuvec_ref_slot(ref)])
	{
		case GPUVEC_SLOT_NONE:
			return GPUVEC_UNSEEN;
		case GPUVEC_SLOT_LIVE:
			return GPUVEC_UNDECIDED;
		default:
			return GPUVEC_SEEN;
	}
}

/*
 * The rows that the session has to decide about, of one bank, or (UINT32_MAX)
 * of all: their tids, ascending and malloc'd.  Stops behind the page where
 * there are more than `most`.
 */
extern bool gpuvec_undecided_rows(const gpuvec_embedding_table *table,
								  const gpuvec_visibility *visibility, const gpuvec_resolved *resolved,
								  uint32_t only, uint64_t most, uint64_t **tids, uint64_t *n,
								  gpuvec_error *error);

/* A request to gather, pool or compute gradients: read_rows.c */
typedef struct gpuvec_embedding_query
{
	gpuvec_embedding_request head;
	const int64_t *keys;		/* [nkeys] */
	const uint64_t *offsets;	/* [nbags + 1]; NULL: gather, or hotness */
	gpuvec_visibility visibility;
	const float *weights;		/* [nkeys], or NULL */
	const float *gradient;		/* [ngradient]: the upstream gradient */
	const int  *canceled;		/* read atomically */

	/* the answer; found and body are malloc'd */
	gpuvec_embedding_answer answer;
	uint8_t    *found;			/* [nkeys] */
	void	   *body;			/* tids, elements, or keys and then elements */
	size_t		body_size;
} gpuvec_embedding_query;

/*
 * Serve a request.  The caller has a reference to the table, and does not
 * hold its lock.
 */
extern bool gpuvec_embedding_run(gpuvec_embedding_table *table, gpuvec_thread_pool *pool,
								 gpuvec_embedding_query *q,
								 gpuvec_error *error);

/* A request for the nearest rows: nearest_rows.c */
typedef struct gpuvec_nearest_query
{
	gpuvec_nearest_head head;
	gpuvec_visibility visibility;
	const int64_t *excluded;	/* [nexcluded]: keys to leave out, ascending */
	const uint64_t *offsets;	/* [nqueries + 1]: where a query's own list of
								 * such keys begins; NULL: there are none */
	const int64_t *listed;		/* [nlisted] */
	const float *queries;		/* [nqueries * width] */
	const int  *canceled;		/* read atomically */

	/* the answer; counts and body are malloc'd */
	gpuvec_embedding_answer answer;
	uint32_t   *counts;			/* [nqueries], and room for padding to 8 bytes */
	void	   *body;			/* tids, or rows */
	size_t		body_size;
} gpuvec_nearest_query;

extern bool gpuvec_nearest_run(gpuvec_embedding_table *table, gpuvec_thread_pool *pool,
							   gpuvec_nearest_query *q, gpuvec_error *error);

/* A request for the Gram matrix: all_rows.c, and serve/serve_gram.c */
typedef struct gpuvec_gram_query
{
	gpuvec_gram_head head;
	gpuvec_visibility visibility;
	gpuvec_store *store;		/* what a matrix that is kept is charged to */

	/* the answer; body is malloc'd */
	gpuvec_embedding_answer answer;
	void	   *body;			/* tids, or the matrix */
	size_t		body_size;
} gpuvec_gram_query;

/* The slot of a row with a key */
typedef struct gpuvec_key_slot
{
	int64_t		key;
	uint32_t	slot;
} gpuvec_key_slot;

/*
 * Set the answer's status: DONE if the session sees all rows, UNDECIDED with
 * the rows that it has to decide about, or UNFIT.  This and what follows: the
 * caller holds the table's lock.
 */
extern bool gpuvec_all_rows_seen(gpuvec_embedding_table *table, gpuvec_gram_query *q,
								 gpuvec_error *error);

/* The bank that has all live rows; NULL: there are several, or bad vectors */
extern const gpuvec_bank *gpuvec_only_bank(const gpuvec_embedding_table *table);

/* The n live slots of a bank by their keys, malloc'd.  NULL on failure. */
extern gpuvec_key_slot *gpuvec_slots_by_key(const gpuvec_bank *bank, uint64_t *n, bool *distinct,
											gpuvec_error *error);

/* Copy the vectors of n slots to out[n * stride], with zeros behind each */
extern bool gpuvec_copy_vectors(const gpuvec_embedding_table *table, const gpuvec_bank *bank,
								const gpuvec_key_slot *slots, uint64_t n, uint32_t stride,
								float *out, gpuvec_error *error);

/*
 * Tell whether the session's snapshot sees the row, as far as is known; for
 * requests about few rows, whose visibility is not resolved
 */
extern gpuvec_seen gpuvec_embedding_sees(const gpuvec_embedding_table *table,
										 const gpuvec_visibility *visibility,
										 uint64_t tid);

/* Sort n tids, and drop duplicates; *n becomes the number of tids left */
extern bool gpuvec_distinct_tids(uint64_t *tids, uint64_t *n, gpuvec_error *error);

/*
 * parse_requests.c: parse a request.  Returns NULL, or what is wrong with it.
 * Arrays of *q point into data.
 */
extern const char *gpuvec_embedding_parse(gpuvec_embedding_query *q, const char *data,
										  size_t length);
extern const char *gpuvec_nearest_parse(gpuvec_nearest_query *q, const char *data, size_t length);
extern const char *gpuvec_gram_parse(gpuvec_gram_query *q, const char *data, size_t length);

#endif							/* GPUVEC_EMBEDDING_QUERY_H */
