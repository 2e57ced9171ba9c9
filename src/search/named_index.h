/*-------------------------------------------------------------------------
 *
 * named_index.h
 *	  Indexes that a search function's column names.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_NAMED_INDEX_H
#define GPUVEC_NAMED_INDEX_H

#include "postgres.h"

#include "mirror/describe/mirror.h"
#include "utils/rel.h"

/* What a function's column names in place of a column */
typedef struct SearchIndex
{
	Relation	index;			/* open and locked */
	Oid		   *partitions;		/* [npartitions] its partitions, at all levels;
								 * ascending */
	int			npartitions;
} SearchIndex;

/*
 * The index of an open relation with this name or first key, of those that
 * keep rows of their own; palloc'd, or NULL
 */
extern SearchIndex *SearchNamedIndex(Relation rel, const char *name);

/*
 * Describe a relation by the named index, or by its own that stands for that
 * one.  The index is open then (target->index); its lock stays.
 */
extern void SearchDescribeIndex(Relation rel, const SearchIndex *named, MirrorTarget *target);

/* The type of the sets or vectors that an index has */
extern Oid	SearchIndexType(Relation index);

/* May the user read all columns that an index is made of? */
extern bool SearchIndexReadable(Relation rel, Relation index);

/* A hint that names an index of the relation; 0: there is none */
extern int	SearchHintIndex(Relation rel);

#endif							/* GPUVEC_NAMED_INDEX_H */
