/*-------------------------------------------------------------------------
 *
 * cold_rows.h
 *	  Rows that share a cold number with a query.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_COLD_ROWS_H
#define GPUVEC_COLD_ROWS_H

#include "engine/cpu/cpu_backend.h"

/*
 * Offer the live rows that share a cold number with the query to `best`, and
 * make query->cold.  All other steps of the search then leave these rows out.
 * False if out of memory.
 */
extern bool cold_search(cpu_backend *cpu, int thread, const gpuvec_view *view, cpu_query *query,
						best_rows *best);

extern void cold_free(cold_rows *cold);

#endif							/* GPUVEC_COLD_ROWS_H */
