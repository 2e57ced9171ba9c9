/*-------------------------------------------------------------------------
 *
 * wal.h
 *	  Finds what a range of WAL has changed in a relation.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_WAL_H
#define GPUVEC_WAL_H

#include "postgres.h"

#include "access/xlogdefs.h"
#include "mirror/pages/changed_lines.h"
#include "utils/rel.h"

/* What reading a range of WAL has shown */
typedef enum WalResult
{
	WAL_UNKNOWN,				/* it is gone, or too long to be worth reading */
	WAL_UNCHANGED,				/* no page was changed */
	WAL_CHANGED
} WalResult;

/*
 * Read the WAL between two positions, each of which MirrorPosition() returned
 * at some time.  If `lines` is NULL, reading ends at the first change.
 */
extern WalResult WalChanges(Relation rel, XLogRecPtr from, XLogRecPtr to, ChangedLines *lines);

#endif							/* GPUVEC_WAL_H */
