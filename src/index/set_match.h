/*-------------------------------------------------------------------------
 *
 * set_match.h
 *	  Conditions on a set as one condition of a filter.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_INDEX_SET_MATCH_H
#define GPUVEC_INDEX_SET_MATCH_H

#include "postgres.h"

#include "access/skey.h"
#include "core/filter.h"
#include "core/set_match.h"
#include "idset/idset_query.h"

/* An expression of ids under construction: all conditions that were added */
typedef struct GpuvecMatch
{
	uint32		ids[GPUVEC_MOST_MATCH_IDS]; /* [nids] distinct */
	uint32		nids;
	uint64		steps[GPUVEC_MOST_MATCH_STEPS]; /* [nsteps] */
	uint32		nsteps;
	int			depth;			/* values that these leave */
	int			nconditions;
	bool		only;			/* one of them allows no ids but the listed
								 * ones */
	bool		failed;			/* the engine does not take them */
} GpuvecMatch;

/* Add a search key of a set, or a query; an empty expression is all 0 */
extern void GpuvecMatchAddKey(GpuvecMatch *match, const ScanKeyData *key);
extern void GpuvecMatchAddQuery(GpuvecMatch *match, const IdSetQuery *query);

/* True if the engine takes all conditions that were added */
extern bool GpuvecMatchFits(const GpuvecMatch *match);

/*
 * A filter with this condition, too.  NULL: there is none, or the engine does
 * not take it.
 */
extern const gpuvec_filter *GpuvecMatchFilter(const GpuvecMatch *match, const gpuvec_filter *filter);

/*
 * The query of a condition column @@ query that search keys do not say all
 * of, or NULL
 */
extern const IdSetQuery *GpuvecMatchedQuery(const Node *clause, AttrNumber column);

#endif							/* GPUVEC_INDEX_SET_MATCH_H */
