/*-------------------------------------------------------------------------
 *
 * prewarm_list.h
 *	  The file that says which mirrors are loaded again after a restart.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PREWARM_LIST_H
#define GPUVEC_PREWARM_LIST_H

#include "postgres.h"

/* The file in the data directory, and its name while it is written */
#define PREWARM_FILE		"gpuvec.autoprewarm"
#define PREWARM_NEW_FILE	PREWARM_FILE ".tmp"

/* A mirror: of a column, or of an index that keeps its rows */
typedef struct PrewarmEntry
{
	Oid			database;
	Oid			relation;
	int32		attnum;			/* 0: an expression of the index */
	Oid			index;			/* index with an expression or a predicate, or
								 * 0 */
	int32		key_attnum;		/* of an embedding table, or 0 */
	uint32		storage;		/* gpuvec_storage of its vectors */
	uint64		bytes;			/* size of the mirror in the engine's memory */
} PrewarmEntry;

typedef struct PrewarmList
{
	PrewarmEntry *entries;		/* the most recently used first */
	int			n;
} PrewarmList;

extern bool PrewarmReadList(PrewarmList *list);
extern bool PrewarmWriteList(const PrewarmList *list);

#endif							/* GPUVEC_PREWARM_LIST_H */
