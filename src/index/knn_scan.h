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
#include "mirror/describe/usage.h"
#include "utils/tuplesort.h"

/* A row to return */
typedef struct KnnRow
{
	double		distance;
	int64		root;
	bool		version;		/* root is still the tid of a row version: see
								 * find_root() */
} KnnRow;

typedef enum KnnPhase
{
	SCAN_ENGINE,				/* rows that rank */
	SCAN_OTHERS,				/* rows that do not, from the sort */
	SCAN_KEYED,					/* rows that the search keys or their
								 * conditions found, in order */
	SCAN_FOUND,					/* without an order: what the search keys
								 * found */
	SCAN_END
} KnnPhase;

/*
 * The queries of (re)scans to come, as far as they are known (coming.c)
 */
typedef struct KnnComing
{
	MemoryContext context;		/* has the queries and their answers */
	MirrorQuery *queries;		/* [capacity]; [n] of them, in order */
	gpuvec_scoring scoring;		/* of all of them */
	uint32		capacity;
	uint32		n;
	uint32		next;			/* those before are taken, or will not come */
	bool		asked;			/* queries[next .. n) have their first rows */
} KnnComing;

/* What a node above a scan wants of it, besides what its own keys say */
typedef struct KnnRange
{
	ScanKeyData keys[2];		/* [n] search keys of filter columns; values
								 * are the node's */
	int			n;
	uint64		most;			/* of how many rows a bitmap is wanted; 0: any
								 * number */
	const GpuvecFound *only;	/* the rows of a bitmap, whatever the keys
								 * find; NULL: those that they find */
} KnnRange;

typedef struct KnnState
{
	KnnComing	coming;			/* lives as long as the scan */
	KnnRange	range;			/* stays until the node above changes it */
	bool		too_many;		/* the bitmap is empty, as there were more than
								 * range.most rows */
	uint32		first_batch;	/* rows to ask for first */
	MemoryContext context;		/* lives as long as one (re)scan */
	MirrorUsage used;			/* by all (re)scans */
	KnnPhase	phase;
	GpuvecOrder order;
	GpuvecConditions conditions;	/* of the search keys */

	/* SCAN_ENGINE */
	MirrorTarget target;
	MirrorSearch search;
	MirrorQuery wire;
	bool		complete;		/* no rows follow those in rows[] */
	double		known;			/* all rows before this distance are in
								 * rows[]; infinity: all that rank */
	KnnRow	   *rows;			/* [nrows], of the batches so far */
	uint64		nrows;
	uint64		maxrows;
	uint64		nready;			/* rows[0 .. nready) are whole groups */
	uint64		nsorted;		/* rows[0 .. nsorted) are in the order to
								 * return */
	uint64		next;			/* index of the next row to return */
	KnnRow		last;			/* the row that was returned last */
	bool		returned;		/* last is set */
	bool		exhausted;		/* all rows that pass the filter were given */
	bool		disjoint;		/* all rows that pass the filter rank */

	/* SCAN_KEYED */
	bool		looked;			/* found is set */
	KeyedRow   *keyed;
	uint64		nkeyed;

	/* SCAN_OTHERS */
	Tuplesortstate *sort;
	TupleTableSlot *slot;		/* (distance float8, root int8) */
	bool		everything;		/* the engine returns no rows (any more) */

	/* SCAN_FOUND, SCAN_KEYED */
	GpuvecFound found;

	RootFinder	finder;
	Relation	opened;			/* the table, if the executor has not given it */
} KnnState;

/* ranked_rows.c */

/*
 * Prepare for batches.  False: there is no mirror, so the rows have to be
 * sorted here.
 */
extern bool KnnBeginEngine(IndexScanDesc scan, KnnState *state);

/* Get the next batch.  False: the engine is not available. */
extern bool KnnNextBatch(IndexScanDesc scan, KnnState *state);

/*
 * Sort the next group.  Only here its roots are found: most rows of a batch
 * are never returned.
 */
extern void KnnSortGroup(KnnState *state);

/*
 * coming.c: forget queries that were to come, and make room for so many; add
 * the query that the scan has with these keys, false if there is no room; have
 * the first rows of the scan's query set, if they were asked for with others
 */
extern void KnnComingReset(IndexScanDesc scan, uint32 capacity);
extern bool KnnComingAdd(IndexScanDesc scan, ScanKey keys, ScanKey orderbys);
extern bool KnnComingTake(KnnState *state);

/* scan_query.c */

/*
 * Read the keys of a scan, in the current memory context: its conditions, and
 * what it orders by
 */
extern void KnnReadKeys(IndexScanDesc scan, GpuvecConditions *conditions, GpuvecOrder *order);

/* Fill in the query of the scan's first request */
extern void KnnMakeQuery(const GpuvecOrder *order, const GpuvecConditions *conditions,
						 MirrorQuery *wire);

/*
 * True if a scan has rows to return.  The distance of the row that it returned
 * last; infinity: it does not rank, or that is not known.  A distance that its
 * next row has at least, if those that are not in rows[] have `behind`;
 * infinity: no more rank.
 */
extern bool KnnHasRows(const KnnState *state);
extern double KnnLastDistance(const KnnState *state);
extern double KnnNextDistance(const KnnState *state, double behind);

/* keyed.c: true if a row comes behind the last one that was returned */
extern bool KnnComesNext(const KnnState *state, const KeyedRow *row);

/* other_rows.c */

/* Find and sort all rows that the engine does not return */
extern void KnnBeginOthers(IndexScanDesc scan, KnnState *state);

/* Get the next of these rows.  False: there is none. */
extern bool KnnNextOther(KnnState *state, KnnRow *row);

#endif							/* GPUVEC_KNN_SCAN_H */
