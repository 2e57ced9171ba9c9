/*-------------------------------------------------------------------------
 *
 * count.h
 *	  A node that counts rows without looking at most of them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_COUNT_H
#define GPUVEC_COUNT_H

#include "core/grouping.h"
#include "index/index_am.h"
#include "mirror/describe/filter_key.h"
#include "nodes/extensible.h"
#include "nodes/pathnodes.h"

/* What a column of the node's rows is */
typedef enum CountOutput
{
	COUNT_KEY,					/* a column that rows are grouped by */
	COUNT_ID,					/* an id of their sets, which they are grouped
								 * by */
	COUNT_ROWS,					/* how many rows a group has */
	COUNT_LEAST,				/* the least value of a column, */
	COUNT_GREATEST				/* and the greatest one */
} CountOutput;

/* What is asked for: what the rows of the node consist of */
typedef struct CountAsked
{
	RelOptInfo *table;			/* whose rows are counted */
	PathTarget *target;			/* of the node: keys, partial aggregates */
	List	   *kinds;			/* of these: CountOutput */
	List	   *numbers;		/* of the column that each is of, in columns */
	List	   *columns;		/* of the table, those of keys first */
	int			nkeys;
	List	   *groups;			/* expressions of GROUP BY */
	RelOptInfo *ids;			/* the function in FROM that returns the ids
								 * of sets, which are rows; NULL: none */
	Oid			unnest;			/* this function, also if called elsewhere */
	int			most;			/* as many groups with the most rows are
								 * wanted; 0: all */
} CountAsked;

/*
 * count_asked.c.  Find out what a query asks for whose rows are those of
 * `input` and whose result is `target`.  False: it is not what the node can
 * return.
 */
extern bool CountReadAsked(PlannerInfo *root, RelOptInfo *input, const PathTarget *target,
						   CountAsked *asked);

/*
 * count_paths.c.  Add the paths of such a node to those of a query that counts
 * the rows of a table, if there can be one.
 *
 * The node's custom_private is lists of integers: the CountOutput of each of
 * its columns; for each, the number of the scan's column that it is of (0 of
 * COUNT_ROWS); the number of the scan's columns, and CountAsked.most; and a
 * list of one OID, CountAsked.unnest.
 */
extern void CountAddPaths(PlannerInfo *root, RelOptInfo *input, RelOptInfo *output);

/*
 * count.c.  The filter column of an index that is a column of the table, from
 * 1 on, if groups can be made by it or, as_value, if it can have a least and a
 * greatest value; else 0.
 */
extern int	CountColumn(const FilterColumns *filters, AttrNumber attnum, bool as_value);

/*
 * count_keys.c.  Begin: the scan of one of our indexes that a bitmap scan has
 * its rows of, with its keys, and the queries that are the filters of the
 * bitmap scan (IdSetQuery), allocated in `context`; NULL: it is another node,
 * or has other filters.
 * Copy the keys that rows have which must be looked at, each once; returns
 * their number.  The scan forgets them when it begins anew.
 */
extern IndexScanDesc CountBeginKeys(PlanState *node, MemoryContext context, List **queries);
extern int	CountCopyRounded(IndexScanDesc scan, ScanKeyData *others);

/*
 * count_check.c.  What was returned of a scan, or what a run of it returns:
 * gpuvec.verify compares both.
 */
typedef struct CountCheck
{
	uint64		rows;
	uint64		hash;			/* of the keys of each row, added up */
	uint64		low[GPUVEC_MOST_GROUPED];	/* of all values */
	uint64		high[GPUVEC_MOST_GROUPED];
} CountCheck;

extern void CountCheckBegin(CountCheck *check);
extern void CountCheckAdd(CountCheck *check, const gpuvec_grouping *grouping, const uint64 *group);

/*
 * count_fetched.c.  Rows of a scan that have to be looked at.  Next: some that
 * come next, of at most so many pages.  False: there are none.
 */
typedef struct CountToFetch
{
	GpuvecFound found;			/* in order */
	uint64		next;			/* those before were fetched, or are being */
} CountToFetch;

extern bool CountNextToFetch(CountToFetch *fetch, long pages, GpuvecFound *some);

/*
 * Counts of the ids of rows' sets, in a memory context.  Add: those of the set
 * in a row's first column; false: as many are there as fit into work_mem, and
 * should be taken.  Take: one of them as a group; false: all were taken, and
 * there are none any more.  Check: add the ids of a row to what is checked.
 */
typedef struct CountIds CountIds;

extern CountIds *CountIdsNew(MemoryContext context);
extern bool CountIdsAdd(CountIds *ids, TupleTableSlot *row);
extern bool CountIdsTake(CountIds *ids, uint64 *group);
extern void CountIdsCheck(TupleTableSlot *row, const gpuvec_grouping *grouping, CountCheck *check);

extern const CustomScanMethods CountScanMethods;

/* Called once, when the library is loaded */
extern void CountInit(void);

#endif							/* GPUVEC_COUNT_H */
