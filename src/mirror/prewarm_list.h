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

/* The file, relative to the data directory, and where it is written first */
#define PREWARM_FILE		"gpuvec.autoprewarm"
#define PREWARM_NEW_FILE	PREWARM_FILE ".tmp"

/* What had a mirror: a column, or what an index makes of its table */
typedef struct PrewarmEntry
{
	Oid			database;
	Oid			relation;
	int32		attnum;			/* 0: an expression of the index */
	Oid			index;			/* whose expression or predicate matters, or 0 */
	int32		key_attnum;		/* of an embedding table, or 0 */
	uint32		storage;		/* gpuvec_storage of its vectors */
	uint64		bytes;			/* what the mirror took of the engine's memory */
} PrewarmEntry;

typedef struct PrewarmList
{
	PrewarmEntry *entries;		/* the most recently used first */
	int			n;
} PrewarmList;

extern bool PrewarmReadList(PrewarmList *list);
extern bool PrewarmWriteList(const PrewarmList *list);

#endif							/* GPUVEC_PREWARM_LIST_H */
