/*-------------------------------------------------------------------------
 *
 * wal_lines.h
 *	  Which line pointers of a heap page a WAL record has changed, and what
 *	  they have.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_WAL_LINES_H
#define GPUVEC_WAL_LINES_H

#include "postgres.h"

#include "access/xlogreader.h"
#include "mirror/pages/changed_lines.h"

/* Note what a record has changed in the page of its block reference `id` */
extern void WalNoteLines(XLogReaderState *record, int id, BlockNumber block, ChangedLines *lines);

#endif							/* GPUVEC_WAL_LINES_H */
