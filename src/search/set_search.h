/*-------------------------------------------------------------------------
 *
 * set_search.h
 *	  The search functions for sets: what their files offer one another.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SET_SEARCH_H
#define GPUVEC_SET_SEARCH_H

#include "postgres.h"

#include "access/htup.h"
#include "fmgr.h"
#include "mirror/describe/mirror.h"

/* The columns that a function uses */
typedef struct SearchColumns
{
	const char *column;			/* the column of sets, or of vectors */
	Oid			idset_type;		/* of sets only: the type idset */
	bool		vectors;		/* of sets only: it may have sparse vectors */
	bool		whole_rows;		/* of sets only: the function returns whole
								 * rows */
	const char *key_column;		/* of embedding tables; NULL: sets */
	const struct SearchIndex *index;	/* what `column` names, if it is no
										 * column (named_index.h); set by
										 * SearchTargets() */
	List	  **foreign;		/* open foreign tables that can be asked are
								 * added here; NULL: refuse them */
} SearchColumns;

/*
 * targets.c: from a relation and column names to the relations that are
 * searched
 */
extern MirrorTarget *SearchTargets(Oid relid, const SearchColumns *columns, int *ntargets);
extern void SearchCheckEmbeddingColumns(Oid relid, const char *key_column, const char *column);
extern MirrorTarget *SearchEmbeddingTargets(Oid relid, const char *key_column, const char *column,
											int *ntargets);
extern void SearchCloseTargets(MirrorTarget *targets, int ntargets);
extern void SearchRequireArgument(FunctionCallInfo fcinfo, int argument, const char *name);
extern int	SearchArrayArgument(FunctionCallInfo fcinfo, int argument, const char *name,
								Datum **values, bool **nulls);
extern Oid	SearchArgumentType(FunctionCallInfo fcinfo, int argument);
extern Oid	SearchIdSetType(FunctionCallInfo fcinfo);

/* elsewhere.c: tables whose rows other extensions keep elsewhere */
typedef struct SearchCatalogs
{
	Oid			citus;			/* catalog of Citus tables; invalid: no Citus */
	Oid			chunks;			/* catalog of TimescaleDB chunks; invalid: no
								 * TimescaleDB */
	Oid			compression;	/* catalog of its compression settings; may be
								 * invalid */
} SearchCatalogs;

extern void SearchFindCatalogs(SearchCatalogs *catalogs);
extern Oid	SearchLocalShard(Relation rel, const SearchCatalogs *catalogs);
extern void SearchCheckElsewhere(Relation rel, const SearchCatalogs *catalogs, bool sets);

/*
 * local_scan.c: the same search by a scan in this session.  LocalScan hands
 * over each row of a target that the snapshot sees and that is not null.
 */
typedef void (*LocalRow) (const gpuvec_sparse *row, ItemPointer tid, void *arg);

extern void LocalScan(const MirrorTarget *target, Snapshot snapshot, LocalRow take, void *arg);
extern void LocalTopK(MirrorTarget *target, MirrorSearch *search);
extern void LocalTopKAmong(MirrorTarget *target, MirrorSearch *search);

/* among.c: a search among given rows of a table */
extern void AmongTopK(MirrorTarget *target, MirrorSearch *search);

/* run.c: search all targets and merge their rows */
typedef struct SearchAnswer
{
	MirrorHit  *hits;			/* [nhits], best first */
	int		   *targets;		/* [nhits]: index of each hit's target; NULL:
								 * all are from the first; -1: none */
	HeapTuple  *items;			/* [nhits]: rows of foreign tables, NULL for
								 * others; NULL: there are none */
	uint64		nhits;
	uint64		maxhits;		/* room in hits[] and targets[]; 0 with one
								 * target */
} SearchAnswer;

extern void SearchRun(MirrorTarget *targets, int ntargets, MirrorSearch *search,
					  SearchAnswer *answers);

/*
 * overlap_counts.c: numbers of rows that match sets, and pairs of sets.  A row
 * matches a set if it shares an id with it.
 */
typedef struct OverlapCounts OverlapCounts;

/* Of n sets, none of which is null; they must stay valid */
extern OverlapCounts *OverlapCountsMake(const gpuvec_id_span *sets, uint32 n);

/* Count a row; arg is an OverlapCounts */
extern void OverlapCountsAdd(void *arg, const gpuvec_sparse *row);

/* Rows of all pairs, as core/overlaps.h says */
extern uint64 *OverlapCountsPairs(OverlapCounts *counts);

/* support.c: the value of an argument if the planner knows it, else NULL */
struct PlannerInfo;
struct Const;
struct FuncExpr;
extern struct Const *SearchKnownArgument(struct PlannerInfo *root, struct FuncExpr *call,
										 int argument);

#endif							/* GPUVEC_SET_SEARCH_H */
