/*-------------------------------------------------------------------------
 *
 * knn_scan.h
 *	  The state of an index scan, for scan.c, ranked_rows.c and other_rows.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_KNN_SCAN_H
#define GPUVEC_KNN_SCAN_H

#include "postgres.h"

#include "executor/tuptable.h"
#include "index/index_am.h"
#include "utils/tuplesort.h"

/* A row to return */
typedef struct KnnRow
{
	double		distance;
	int64		root;
	bool		version;		/* root is still a row version: see
								 * find_root() */
} KnnRow;

typedef enum KnnPhase
{
	SCAN_ENGINE,				/* rows that rank */
	SCAN_OTHERS,				/* rows that do not, from the sort */
	SCAN_KEYED,					/* rows that the search keys found, in order */
	SCAN_FOUND,					/* without an order: what the search keys
								 * found */
	SCAN_END
} KnnPhase;

typedef struct KnnState
{
	MemoryContext context;		/* of one (re)scan */
	KnnPhase	phase;
	gpuvec_measure measure;
	IdSet	   *query;			/* NULL: every distance is null */

	/* SCAN_ENGINE */
	MirrorTarget target;
	MirrorSearch search;
	MirrorQuery wire;
	bool		complete;		/* no rows are behind those of rows[] */
	KnnRow	   *rows;
	uint64		nrows;
	uint64		maxrows;
	uint64		nready;			/* of these, whole groups */
	uint64		nsorted;		/* of these, in the order to return */
	uint64		next;
	KnnRow		last;			/* that was returned */
	bool		returned;		/* there is one */

	/* SCAN_KEYED */
	bool		looked;			/* found is set */
	KeyedRow   *keyed;
	uint64		nkeyed;

	/* SCAN_OTHERS */
	Tuplesortstate *sort;
	TupleTableSlot *slot;		/* (distance float8, root int8) */
	bool		everything;		/* the engine delivers nothing (more) */

	/* SCAN_FOUND, SCAN_KEYED */
	GpuvecFound found;

	RootFinder	finder;
	Relation	opened;			/* the table, if the executor has not given it */
} KnnState;

/* ranked_rows.c */

/* Prepare for batches; false: the rows have to be sorted here */
extern bool KnnBeginEngine(IndexScanDesc scan, KnnState *state);

/* Get the next batch from the engine; false: there is none */
extern bool KnnNextBatch(IndexScanDesc scan, KnnState *state);

/*
 * Sort the group that comes next.  Its roots are found now: most rows of a
 * batch are never returned.
 */
extern void KnnSortGroup(KnnState *state);

/* scan.c */

/* Does a row come behind the last one that was returned? */
extern bool KnnComesNext(const KnnState *state, const KeyedRow *row);

/* other_rows.c */

/* Find all other rows, and sort them */
extern void KnnBeginOthers(IndexScanDesc scan, KnnState *state);

/* The next of the other rows */
extern bool KnnNextOther(KnnState *state, KnnRow *row);

#endif							/* GPUVEC_KNN_SCAN_H */
