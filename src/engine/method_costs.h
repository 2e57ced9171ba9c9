/*-------------------------------------------------------------------------
 *
 * method_costs.h
 *	  What the methods of searching have cost, and the choice that follows.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_METHOD_COSTS_H
#define GPUVEC_METHOD_COSTS_H

#include "engine/backend.h"

/* The costs for one mirror; searches of its views share them */
typedef struct gpuvec_method_costs gpuvec_method_costs;

/* What searches of one kind have cost, by method */
typedef struct gpuvec_method_record gpuvec_method_record;

/* NULL: out of memory */
extern gpuvec_method_costs *gpuvec_method_costs_new(void);
extern gpuvec_method_costs *gpuvec_method_costs_ref(gpuvec_method_costs *costs);
extern void gpuvec_method_costs_unref(gpuvec_method_costs *costs);
extern size_t gpuvec_method_costs_bytes(void);

/*
 * Search a view as backend->topk() does by GPUVEC_METHOD_AUTO, by the method
 * that has cost least in searches like this one.  Without view->costs it is
 * that call.
 */
extern bool gpuvec_topk_by_cost(gpuvec_backend *backend, const gpuvec_view *view,
								const gpuvec_scoring *scoring, gpuvec_topk_query *queries,
								uint32_t nqueries, gpuvec_error *error);

/*
 * The parts of gpuvec_topk_by_cost(), for tests.  find: the record of
 * searches like this one, nqueries > 0, on a replica or not.  choose: the
 * method for the next search of nqueries queries.  note: such a search took so
 * many nanoseconds.
 */
extern gpuvec_method_record *gpuvec_method_costs_find(gpuvec_method_costs *costs,
													  gpuvec_measure measure, bool on_replica,
													  const gpuvec_topk_query *queries,
													  uint32_t nqueries);
extern gpuvec_method gpuvec_method_choose(const gpuvec_method_record *record, uint32_t nqueries);
extern void gpuvec_method_note(gpuvec_method_record *record, gpuvec_method method,
							   uint32_t nqueries, double ns);

#endif							/* GPUVEC_METHOD_COSTS_H */
