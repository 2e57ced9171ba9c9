/*-------------------------------------------------------------------------
 *
 * index_paths.c
 *	  Scans of our indexes that nodes of ours stand above.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "index/index_am.h"
#include "index/index_paths.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/paths.h"

/* The index scan that a path is, or that its bitmap is of; or NULL */
static IndexPath *
index_path(Path *path)
{
	if (IsA(path, BitmapHeapPath))
		path = ((BitmapHeapPath *) path)->bitmapqual;
	if (!IsA(path, IndexPath) || ((IndexPath *) path)->indexorderbys != NIL ||
		((IndexPath *) path)->indexclauses == NIL)
		return NULL;
	return (IndexPath *) path;
}

/*
 * The paths of these indexes are made anew: those that were made may have been
 * dropped, as others cost less
 */
IndexPath *
IndexPathFind(PlannerInfo *root, const RelOptInfo *rel, IndexTest takes, void *arg,
			  IndexPathTest passes)
{
	RelOptInfo	copy = *rel;
	IndexPath  *best = NULL;
	ListCell   *cell;

	copy.pathlist = copy.partial_pathlist = copy.indexlist = NIL;
	copy.consider_parallel = false;
	foreach(cell, rel->indexlist)
	{
		IndexOptInfo *index = lfirst(cell);

		if (GpuvecIsOurIndex(index) && !index->hypothetical && (takes == NULL || takes(index, arg)))
			copy.indexlist = lappend(copy.indexlist, index);
	}
	if (copy.indexlist == NIL)
		return NULL;
	create_index_paths(root, &copy);
	foreach(cell, copy.pathlist)
	{
		IndexPath  *path = index_path(lfirst(cell));

		if (path != NULL && path->path.param_info == NULL && (passes == NULL || passes(path)) &&
			(best == NULL || path->indextotalcost < best->indextotalcost))
			best = path;
	}
	return best;
}

Cost
IndexPathBegin(const RelOptInfo *rel, const IndexPath *path)
{
	double		found = path->indexselectivity * rel->tuples;
	Cost		sent = found * (GPUVEC_FOUND_OPERATORS * cpu_operator_cost + cpu_index_tuple_cost);

	return Max(path->indextotalcost - sent, 0);
}
