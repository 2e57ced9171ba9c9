/*-------------------------------------------------------------------------
 *
 * merge.h
 *	  The merge of ordered scans of partitions, for merge.c, merge_rows.c and
 *	  the scans (ranked_rows.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_MERGE_H
#define GPUVEC_MERGE_H

#include "index/knn_scan.h"
#include "nodes/pathnodes.h"

/*
 * merge.c: add paths of merges to those that have the order that is asked for;
 * put merges into the other paths of a query, which are all made
 */
extern void MergeAddPaths(PlannerInfo *root, RelOptInfo *input, RelOptInfo *output);
extern void MergePutInto(PlannerInfo *root, RelOptInfo *final);

/* Called once, when the library is loaded */
extern void MergeInit(void);

/*
 * merge_rows.c: what is known of the rows of a Merge Append's children.  All
 * of it lives in the query's memory.
 */
typedef struct MergeRows MergeRows;

/* NULL: fewer than two children are ordered scans of ours by one distance */
extern MergeRows *MergeRowsBegin(MergeAppendState *append);

/* A (re)scan of these children begins: ask for the best rows of all */
extern void MergeRowsAsk(MergeRows *rows, const Bitmapset *valid);

/*
 * Ask for more rows of all, if a child has none that are known.  False: its
 * next row is known, or has to be fetched.
 */
extern bool MergeRowsAskMore(MergeRows *rows, int child);

/*
 * The next row of a child; NULL: there is none.  If it is `alone`, nothing is
 * asked for with others.  The row's distance; infinity, if that is not known,
 * or greater than those of all rows that rank.
 */
extern TupleTableSlot *MergeRowsFetch(MergeRows *rows, int child, bool alone);
extern double MergeRowsDistance(const MergeRows *rows, int child);

/*
 * The next row of a child has at least this distance.  Infinity: it comes
 * behind all rows that rank.
 */
extern double MergeRowsBound(const MergeRows *rows, int child);

/* The table of a child; InvalidOid: it is of another kind */
extern Oid	MergeRowsTable(const MergeRows *rows, int child);

/*
 * For a scan: its next rows, if they were found with those of other children.
 * Sets the hits of its query, and state->known: the rows before that distance
 * are known; infinity: all rows that rank.  False: the scan has to ask.
 */
extern bool MergeRowsTake(IndexScanDesc scan, KnnState *state);

/* For a scan that begins: true if it was counted with the others */
extern bool MergeRowsCounted(IndexScanDesc scan);

#endif							/* GPUVEC_MERGE_H */
