/*-------------------------------------------------------------------------
 *
 * search_run.h
 *	  A search of sets that is running: what the files that serve searches
 *	  offer one another.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SEARCH_RUN_H
#define GPUVEC_SEARCH_RUN_H

#include "core/protocol_sets.h"
#include "engine/serve/session.h"
#include "engine/sets/sets_mirror.h"

typedef struct search_run
{
	gpuvec_search head;
	gpuvec_scoring scoring;
	const gpuvec_query *wire;	/* [head.nqueries] as the session sent them */
	gpuvec_topk_query *queries;
	uint64_t   *values;			/* of filters with expressions of ids, which
								 * have numbers in place of these */
	uint32_t   *numbers;		/* of the ids of queries that are mapped ... */
	uint16_t   *hot;			/* ... and those that are hot; places in the
								 * order of ids, if these have values */
	uint16_t   *places;
	gpuvec_match *matches;
	gpuvec_sets_reader mirror;
	gpuvec_overlaps overlaps;	/* if pairs of queries are counted; pairs is
								 * NULL if the backend cannot */
	bool		filtered;		/* a query has a filter */
	int			canceled;		/* the connection was closed; set atomically */
} search_run;

/*
 * Set q->scoring to head.measure, with weights that are parsed if it has any;
 * returns their bytes, or SIZE_MAX on failure
 */
extern size_t gpuvec_search_scoring_parse(search_run *q, const char *from, size_t left,
										  gpuvec_error *error);

/* Bytes of the values of n queries */
extern size_t gpuvec_search_values_bytes(const gpuvec_query *wire, uint32_t n);

/*
 * Parse q->wire, values, and the ids behind them, into q->queries; q->head has
 * their numbers
 */
extern bool gpuvec_search_queries_parse(search_run *q, const float *values, gpuvec_error *error);

/* What faults of tests do to a search that begins */
extern void gpuvec_search_faults(const search_run *q);

/*
 * search_numbers.c: turn the ids of queries, and of their filters, into
 * numbers of q->mirror, where these differ.  The caller frees q->values,
 * q->numbers, q->hot and q->places, on failure too.
 */
extern bool gpuvec_search_number(search_run *q, gpuvec_error *error);

/*
 * Leave only the groups of the first query that are wanted, and give those of
 * ids these in place of numbers.  False: out of memory.
 */
extern bool gpuvec_search_groups(const search_run *q, gpuvec_error *error);

/*
 * serve_overlaps.c: true if pairs of queries are counted; parse the bits of
 * the pages whose rows are; run such a search of an open mirror; answer it
 */
extern bool gpuvec_search_overlaps(const search_run *q);
extern bool gpuvec_overlaps_parse(search_run *q, const uint8_t *pages, gpuvec_error *error);
extern bool gpuvec_overlaps_run(search_run *q, gpuvec_error *error);
extern bool gpuvec_overlaps_answer(gpuvec_session *s, const gpuvec_request *request, search_run *q,
								   int64_t started);

/*
 * A row of a mirror for a session that knows refresh number `known`, and whose
 * snapshot has this xmin
 */
extern gpuvec_hit gpuvec_search_hit(const gpuvec_sets_reader *mirror, uint64_t known,
									uint64_t xmin, const gpuvec_match *match, uint64_t tid);

#endif							/* GPUVEC_SEARCH_RUN_H */
