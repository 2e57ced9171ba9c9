/*-------------------------------------------------------------------------
 *
 * index_am.h
 *	  The parts of the index access method.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_INDEX_AM_H
#define GPUVEC_INDEX_AM_H

#include "postgres.h"

#include "access/amapi.h"
#include "access/genam.h"
#include "access/htup_details.h"
#include "idset/idset.h"
#include "index/conditions.h"
#include "mirror/describe/mirror.h"
#include "nodes/execnodes.h"
#include "nodes/pathnodes.h"
#include "nodes/tidbitmap.h"

/*
 * Strategies of the operator class idset_ops: distance operators, then search
 * operators; then those of the operator classes for filter columns; and one of
 * idset_ops again, a distance whose right side names the measure.  idvec_ops
 * has three of the distance operators.
 */
#define GPUVEC_FIRST_DISTANCE	1
#define GPUVEC_JACCARD_DISTANCE 2	/* <%> */
#define GPUVEC_COSINE_DISTANCE	3	/* <=> */
#define GPUVEC_INNER_PRODUCT	4	/* <#>; right argument may be idvec */
#define GPUVEC_LAST_DISTANCE	5
#define GPUVEC_OVERLAPS			6	/* && */
#define GPUVEC_CONTAINS			7	/* @> */
#define GPUVEC_EQUALS			8	/* = */
#define GPUVEC_CONTAINED		9	/* <@ */
#define GPUVEC_REACHES			10	/* <<->>, <<~>>, <<%~>>: a threshold */
#define GPUVEC_FIRST_FILTER		11
#define GPUVEC_FILTER_LESS		11	/* < */
#define GPUVEC_FILTER_AT_MOST	12	/* <= */
#define GPUVEC_FILTER_EQUAL		13	/* = */
#define GPUVEC_FILTER_AT_LEAST	14	/* >= */
#define GPUVEC_FILTER_GREATER	15	/* > */
#define GPUVEC_RANKS			16	/* <&>, <&~>, <&%~>: a ranking */
#define GPUVEC_LIKE				17	/* LIKE */
#define GPUVEC_ILIKE			18	/* ILIKE */
#define GPUVEC_N_STRATEGIES		18

/* True for the strategies that order */
static inline bool
GpuvecStrategyOrders(StrategyNumber strategy)
{
	return strategy <= GPUVEC_LAST_DISTANCE || strategy == GPUVEC_RANKS;
}

/* What an ordered scan orders by: the distance from a query */
typedef struct GpuvecOrder
{
	gpuvec_scoring scoring;
	bool		by_score;		/* the distance is the negated score, by any
								 * measure */
	const struct varlena *value;	/* the query, a set or a vector; NULL: every
									 * distance is null */
	gpuvec_sparse vector;		/* its ids and values; point into it */
	bool		refused;		/* the operator fails of it: the engine is not
								 * asked */
} GpuvecOrder;

/* True if two scorings are the same */
static inline bool
GpuvecSameScoring(const gpuvec_scoring *a, const gpuvec_scoring *b)
{
	return a->measure == b->measure && a->sparse == b->sparse &&
		(a->measure != GPUVEC_TVERSKY ||
		 memcmp(&a->tversky, &b->tversky, sizeof(gpuvec_tversky)) == 0);
}

/* True if two queries of one type, which are not toasted, are the same */
static inline bool
GpuvecSameValue(const struct varlena *a, const struct varlena *b)
{
	return VARSIZE(a) == VARSIZE(b) && memcmp(a, b, VARSIZE(a)) == 0;
}

/*
 * strategies.c: the scoring that a distance strategy is of, of two sets or
 * with weights (false: it has none); the operator that an index has for a
 * strategy, and the type of its right side (if there are several, any of them;
 * InvalidOid: it has none); are the values of an index's first column
 * vectors; what a scan of an index with this key orders by, in the current
 * memory context; is an index of this access method; is a node of a plan an
 * ordered scan of one; the elements of a key's array, palloc'd; the table of a
 * scan, and the mirror that it asks
 */
extern bool GpuvecStrategyScoring(StrategyNumber strategy, bool weights, gpuvec_scoring *scoring);
extern Oid	GpuvecFindOperator(const IndexOptInfo *index, StrategyNumber strategy, Oid *right);
extern bool GpuvecHasValues(Relation index);
extern void GpuvecReadOrder(Relation index, const ScanKeyData *key, GpuvecOrder *order);
extern bool GpuvecIsOurs(Relation index);
extern bool GpuvecIsOrderedScan(const PlanState *node);
extern int	GpuvecKeyElements(const ScanKeyData *key, Datum **elements, bool **isnull);
extern Relation GpuvecScanHeap(IndexScanDesc scan);
extern void GpuvecDescribe(IndexScanDesc scan, MirrorTarget *target);

/* trgm_query.c: see ENTRY_QUERY_PROC */
extern Datum gpuvec_trgm_query(PG_FUNCTION_ARGS);

/* build.c */
extern IndexBuildResult *gpuvec_build(Relation heap, Relation index, IndexInfo *info);
extern void gpuvec_buildempty(Relation index);
extern char *gpuvec_buildphasename(int64 phase);

/* scan.c */

/*
 * Rows of the first batch of an ordered scan, and by which factor batches
 * grow
 */
#define GPUVEC_FIRST_BATCH		128
#define GPUVEC_BATCH_GROWTH		8

/*
 * Before the batch of this many rows, a scan with search keys looks for the
 * rows of its keys.  By then it has ranked the rows of all batches before.
 */
#define GPUVEC_KEYED_BATCH		(GPUVEC_FIRST_BATCH * GPUVEC_BATCH_GROWTH * GPUVEC_BATCH_GROWTH)

extern IndexScanDesc gpuvec_beginscan(Relation index, int nkeys, int norderbys);
extern void gpuvec_rescan(IndexScanDesc scan, ScanKey keys, int nkeys, ScanKey orderbys,
						  int norderbys);
extern int64 gpuvec_getbitmap(IndexScanDesc scan, TIDBitmap *bitmap);
extern bool gpuvec_gettuple(IndexScanDesc scan, ScanDirection direction);
extern void gpuvec_endscan(IndexScanDesc scan);

/*
 * scan_query.c: true if sets with different scores may have the same distance,
 * by the operator of the measure, and in an order; a number that sorts like
 * the distance of a row with this score; true if a row with this number and so
 * many common ids ranks.  Of measures of vectors, the greatest score of rows
 * that do not rank.
 */
extern bool GpuvecDistanceRounds(const gpuvec_scoring *scoring);
extern bool GpuvecOrderRounds(const GpuvecOrder *order);
extern double GpuvecRankDistance(const GpuvecOrder *order, double score);
extern bool GpuvecRanks(const GpuvecOrder *order, double distance, uint32 common);
extern double GpuvecFloor(const gpuvec_scoring *scoring);

/* key_search.c: the rows that may satisfy the search keys */
typedef struct GpuvecFound
{
	bool		all;			/* every row may satisfy them */
	bool		exact;			/* those that were found do */
	int64	   *roots;			/* otherwise [n], as tid_number() */
	uint64		n;
} GpuvecFound;

extern void GpuvecFind(IndexScanDesc scan, const GpuvecConditions *conditions,
					   MemoryContext context, GpuvecFound *found);

/*
 * Count the rows that the snapshot sees, that satisfy the search keys, but for
 * those that have to be looked at as their keys are rounded, and that match
 * queries, a list of IdSetQuery.  With a grouping (else NULL), put them into
 * groups, which are allocated in the current memory context.  False: that is
 * not known without looking at them.
 */
typedef struct GpuvecCount
{
	int			n;
	MirrorCount parts[2];		/* [n] different rows */
} GpuvecCount;

extern bool GpuvecCountFound(IndexScanDesc scan, const GpuvecConditions *conditions,
							 const List *queries, const gpuvec_grouping *grouping, GpuvecCount *count);

/*
 * The same, roughly: of the rows that the engine has, visible or not, and
 * that may satisfy the search keys.  None have to be looked at.
 */
extern bool GpuvecEstimateFound(IndexScanDesc scan, const GpuvecConditions *conditions,
								const gpuvec_grouping *grouping, GpuvecCount *count);

/* True if a key of the first column says which rows to look for */
extern bool GpuvecHasBound(IndexScanDesc scan);

/*
 * keyed.c: the rows that the search keys found, in order: first those that
 * rank, by GpuvecRankDistance(), then the others, which have the same or more,
 * then those whose sets are null, which have infinity
 */
typedef struct KeyedRow
{
	double		distance;
	int64		root;
	bool		ranks;
} KeyedRow;

/* qsort comparator of roots */
extern int	GpuvecCompareRoots(const void *a, const void *b);

extern uint64 GpuvecFetchFound(IndexScanDesc scan, GpuvecFound *found, const GpuvecOrder *order,
							   KeyedRow **rows);

/* Find how a row with this value stands in an order: all but row->root */
extern void GpuvecPlaceRow(const GpuvecOrder *order, const gpuvec_sparse *value, KeyedRow *row);

/*
 * filtered.c: all rows that pass a filter, in such an order; NULL: in any.
 * *rows is palloc'd.  False: the mirror cannot be used.
 */
extern bool GpuvecFindFiltered(IndexScanDesc scan, const gpuvec_filter *filter,
							   const GpuvecOrder *order, KeyedRow **rows, uint64 *n);
extern int	GpuvecCompareKeyed(const void *a, const void *b);

/* root.c: finds the roots of HOT chains, as numbers that sort like tids */
typedef struct RootFinder
{
	Relation	heap;
	BlockNumber block;			/* page that was read last, or
								 * InvalidBlockNumber */
	OffsetNumber roots[MaxHeapTuplesPerPage];	/* of that page, [line pointer
												 * - 1] */
} RootFinder;

#define tid_number(block, line) ((int64) (block) << 16 | (line))
#define tid_number_block(number) ((BlockNumber) ((number) >> 16))
#define tid_number_line(number) ((OffsetNumber) ((number) & 0xFFFF))

/* What a hit names: a root, or a row version if the mirror is plain */
#define tid_root(tid) \
	tid_number(gpuvec_tid_block(tid), mirror_line_offset(gpuvec_tid_line(tid)))
#define hit_root(hit) \
	tid_number(gpuvec_hit_block((hit)->place), mirror_line_offset(gpuvec_hit_line((hit)->place)))

extern int64 GpuvecFindRoot(RootFinder *finder, BlockNumber block, OffsetNumber line);
extern int64 GpuvecVersionRoot(RootFinder *finder, int64 version);

/* gone.c: line pointers that VACUUM is about to make reusable */
extern void GpuvecHandOverRemoved(Relation index, ItemPointerData *roots, int n);
extern void GpuvecHandOverReaped(IndexVacuumInfo *info, IndexBulkDeleteCallback callback,
								 void *callback_state);

/* recovery.c */
extern bool GpuvecInRecovery(IndexScanDesc scan, MirrorTarget *target);

/*
 * cost.c: operator calls that take as long as getting a row that a search key
 * finds
 */
#define GPUVEC_FOUND_OPERATORS	60.0

extern void gpuvec_costestimate(PlannerInfo *root, IndexPath *path, double loop_count,
								Cost *startup_cost, Cost *total_cost, Selectivity *selectivity,
								double *correlation, double *pages);

/*
 * cost.c, while a query is planned: true if the engine would answer a scan of
 * this index, as far as is known
 */
extern bool GpuvecHasMirror(PlannerInfo *root, const IndexOptInfo *info);

/* The same: what it costs the engine to read the ids of all rows */
extern Cost GpuvecReadCost(PlannerInfo *root, const IndexOptInfo *info);

/* True for an index of this access method, while a query is planned */
static inline bool
GpuvecIsOurIndex(const IndexOptInfo *index)
{
	return (void *) index->amcostestimate == (void *) gpuvec_costestimate;
}

/* explain.c */
extern void GpuvecExplainInit(void);

/* The operator family of float4 and float8; server headers do not name it */
#define FLOAT_BTREE_FAMILY	1970

/* comparisons.c */
extern void GpuvecComparisonsInit(void);

/*
 * orders.c; a sort key that is a distance, if the order of that is the one
 * that the query's first sort key asks for, or NULL; true if a column of a
 * table has no nulls, or conditions let none pass
 */
extern void GpuvecOrdersInit(void);
extern PathKey *GpuvecFindOrder(PlannerInfo *root, RelOptInfo *rel);
extern bool GpuvecIsNotNull(PlannerInfo *root, RelOptInfo *rel, Node *column);

/* joined.c */
extern void GpuvecJoinedInit(void);

/*
 * expected.c.  While a path is estimated: it returns `rows` rows, of
 * `ranked` that come out of the index, and `limit` of them are wanted (not
 * more than 0: not known).  When a statement begins: its plan.  When a scan
 * begins: the number of rows to ask for first, by the keys of the order that
 * the executor hands it.
 */
extern void ExpectedNote(Oid index, double rows, double ranked, double limit);
extern void ExpectedBegin(PlanState *node);
extern uint32 ExpectedFirst(const ScanKeyData *orderbys);

#endif							/* GPUVEC_INDEX_AM_H */
