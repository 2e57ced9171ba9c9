/*-------------------------------------------------------------------------
 *
 * serve_gram.h
 *	  The Gram matrix of a table of factors.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SERVE_GRAM_H
#define GPUVEC_SERVE_GRAM_H

#include "engine/embedding/embedding_query.h"

/*
 * Serve a request: query is a gpuvec_gram_query.  The caller has a reference
 * to the table, and does not hold its lock.
 */
extern bool gpuvec_gram_run(gpuvec_embedding_table *table, gpuvec_thread_pool *pool, void *query,
							gpuvec_error *error);

#endif							/* GPUVEC_SERVE_GRAM_H */
