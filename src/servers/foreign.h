/*-------------------------------------------------------------------------
 *
 * foreign.h
 *	  Foreign tables of postgres_fdw: what their files offer one another.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_FOREIGN_H
#define GPUVEC_FOREIGN_H

#include "postgres.h"

#include "executor/tuptable.h"
#include "nodes/execnodes.h"
#include "search/set_search.h"
#include "utils/rel.h"

/* A foreign table, and what it stands for on its server */
typedef struct ForeignLeaf
{
	Relation	rel;			/* locked until the transaction ends */
	Oid			server;
	const char *server_name;
	const char *table;			/* qualified and quoted */
	const char *column;			/* of the sets; not quoted */
	struct ForeignHome *home;	/* what is known of its server */
	const char *schema;			/* of gpuvec over there, quoted */
	bool		values;			/* the column has vectors, not sets */
	Oid			set_type;		/* the column's type here, ... */
	Oid			remote_set_type;	/* ... and there */
	bool		own;			/* ask over a connection of our own */
} ForeignLeaf;

/* A statement for a leaf's server, and who takes the rows that it returns */
typedef struct ForeignStatement
{
	const ForeignLeaf *leaf;
	char	   *sql;
	char	   *parameter;		/* $1, or NULL */
	List	   *tlist;			/* types of its columns, as target entries */
	uint64		nrows;			/* it returns about as many, or fewer */
	void		(*take) (TupleTableSlot *row, void *arg);
	void	   *arg;
} ForeignStatement;

/*
 * foreign_scan.c: statements over the connections of postgres_fdw, or our own
 */
extern bool ForeignCanAsk(Relation rel);
extern List *ForeignAddColumn(List *tlist, Oid type);
extern List *ForeignAddAttribute(List *tlist, Relation rel, AttrNumber attnum);
extern void ForeignRun(const ForeignStatement *statements, int n,
					   void (*meanwhile) (void *arg), void *arg);

/* foreign_options.c */
extern const char *ForeignOption(List *options, const char *name);
extern void ForeignEnter(ErrorContextCallback *callback, const ForeignLeaf *leaf);
extern Oid	ForeignMapping(const ForeignLeaf *leaf);

/* foreign_leaf.c: names of tables, columns and schemas on servers */
extern const char *ForeignColumnName(Relation rel, AttrNumber attnum);
extern ForeignLeaf *ForeignLeaves(List *rels, const char *column, int *nleaves);
extern const char *ForeignFunction(bool vectors);
extern void ForeignFindHomes(ForeignLeaf *leaves, int nleaves, bool vectors);
extern void ForeignConfirmHomes(ForeignLeaf *leaves, int nleaves);
extern void ForeignCloseLeaves(List *rels);

/* foreign_search.c: search leaves and merge their rows with local ones */
typedef struct ForeignSearch
{
	List	   *rels;			/* foreign tables */
	const char *column;
	const char *measure;		/* its name */
	Oid			row_type;		/* of the rows to return */
	MirrorTarget *targets;		/* local tables */
	int			ntargets;
	MirrorSearch *search;
	EState	   *estate;			/* who calls; may be NULL */
} ForeignSearch;

extern void ForeignTopK(const ForeignSearch *search, SearchAnswer *answers);
extern uint64 ForeignPrewarm(List *rels, const char *column);

#endif							/* GPUVEC_FOREIGN_H */
