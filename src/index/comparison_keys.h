/*-------------------------------------------------------------------------
 *
 * comparison_keys.h
 *	  Search keys that comparisons of similarities and distances imply.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_COMPARISON_KEYS_H
#define GPUVEC_COMPARISON_KEYS_H

#include "postgres.h"

#include "nodes/pathnodes.h"

/* An index, and what its conditions are made of */
typedef struct GpuvecSearched
{
	PlannerInfo *root;
	IndexOptInfo *index;
	Oid			operator;		/* <<->>, <<~>> or <<%~>> */
	Oid			type;			/* idset_threshold or idvec_threshold */
	bool		vectors;		/* the latter */
	Oid			made;			/* sets are made of this type; or InvalidOid */
	bool		found;			/* a condition was made */
	bool		exact;			/* the last one that was made of a comparison
								 * is true for no other rows */
} GpuvecSearched;

/*
 * Find the operator of an index that such keys have.  False: it is not one of
 * ours, or has no such operator.
 */
extern bool GpuvecFindSearched(PlannerInfo *root, IndexOptInfo *index, GpuvecSearched *searched);

/*
 * A condition with comparisons replaced by what they imply, where there is
 * anything to replace: then `found` is set
 */
extern Node *GpuvecConditionOf(GpuvecSearched *searched, Node *clause);

/*
 * True for column <<->> threshold, where the threshold is known and good, so
 * that no row makes it fail
 */
extern bool GpuvecIsGoodThreshold(const GpuvecSearched *searched, const OpExpr *clause);

/*
 * The conditions on a table that an index is searched for, with a search key
 * in place of each comparison that is true for the same rows
 */
extern List *GpuvecSameConditions(PlannerInfo *root, IndexOptInfo *index);

#endif							/* GPUVEC_COMPARISON_KEYS_H */
