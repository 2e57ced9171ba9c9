/*-------------------------------------------------------------------------
 *
 * set_search.h
 *	  The parts of the search functions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SET_SEARCH_H
#define GPUVEC_SET_SEARCH_H

#include "postgres.h"

#include "fmgr.h"
#include "mirror/mirror.h"

/* The columns that a function is to use */
typedef struct SearchColumns
{
	const char *column;			/* of sets, or of vectors */
	Oid			idset_type;		/* sets: their type */
	bool		whole_rows;		/* sets: all columns are read */
	const char *key_column;		/* NULL: sets */
} SearchColumns;

/* targets.c: from a relation and names of columns to what is searched */
extern MirrorTarget *SearchTargets(Oid relid, const char *column, Oid idset_type,
								   bool whole_rows, int *ntargets);
extern void SearchCheckEmbeddingColumns(Oid relid, const char *key_column, const char *column);
extern MirrorTarget *SearchEmbeddingTargets(Oid relid, const char *key_column, const char *column,
											int *ntargets);
extern void SearchCloseTargets(MirrorTarget *targets, int ntargets);
extern Oid	SearchArgumentType(FunctionCallInfo fcinfo, int argument);
extern Oid	SearchIdSetType(FunctionCallInfo fcinfo);

/* elsewhere.c: tables whose rows are not in them */
typedef struct SearchCatalogs
{
	Oid			citus;			/* where Citus lists its tables; invalid:
								 * nowhere */
	Oid			chunks;			/* where TimescaleDB lists chunks; likewise */
	Oid			compression;	/* and what is compressed */
} SearchCatalogs;

extern void SearchFindCatalogs(SearchCatalogs *catalogs);
extern void SearchCheckElsewhere(Relation rel, const SearchCatalogs *catalogs, bool sets);

/* local_scan.c: the same answer without an engine */
extern void LocalTopK(MirrorTarget *target, MirrorSearch *search);
extern void LocalTopKAmong(MirrorTarget *target, MirrorSearch *search);

/* among.c: the rows of a set alone */
extern void AmongTopK(MirrorTarget *target, MirrorSearch *search);

/* run.c: all targets, merged */
typedef struct SearchAnswer
{
	MirrorHit  *hits;
	int		   *targets;		/* which of the targets each is from; NULL:
								 * the first */
	uint64		nhits;
	uint64		maxhits;		/* room, if there are several targets */
} SearchAnswer;

extern void SearchRun(MirrorTarget *targets, int ntargets, MirrorSearch *search,
					  SearchAnswer *answers);

/* support.c: the value of an argument if it is known now, else NULL */
struct PlannerInfo;
struct Const;
struct FuncExpr;
extern struct Const *SearchKnownArgument(struct PlannerInfo *root, struct FuncExpr *call,
										 int argument);

#endif							/* GPUVEC_SET_SEARCH_H */
