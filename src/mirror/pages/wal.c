/*-------------------------------------------------------------------------
 *
 * wal.c
 *	  Finds what a range of WAL has changed in a relation.
 *
 * Every change of a page of a logged relation has a WAL record that names the
 * page in a block reference.  So the block references in the WAL between two
 * positions are exactly the pages that were changed between them.  (Hint bits
 * may change without a record, but nothing that a mirror holds.)  The
 * relation's file can also become shorter, which its number of blocks tells,
 * or be replaced by another file, which makes it another mirror.  Records of
 * the heap also tell the line pointers (wal_lines.c).
 *
 * A record is complete on disk only after a flush.  On a standby, what was
 * replayed is on disk.  WAL files may be removed or recycled while we read.
 * Then page headers and checksums do not match, and the result is
 * WAL_UNKNOWN.  It is the same if WAL before a change of timeline is needed.
 *
 * Reading pays only if it is cheaper than looking at every page of the
 * relation, so the range must not be too long.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <fcntl.h>
#include <unistd.h>

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogreader.h"
#include "mirror/describe/refreshing.h"
#include "mirror/pages/wal.h"
#include "mirror/pages/wal_lines.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/fd.h"

/*
 * Looking at one page of a relation takes as long as reading this many bytes
 * of WAL
 */
#define SWEPT_PAGE_BYTES	256

/* Waiting for a flush of WAL costs as much as reading this many bytes */
#define FLUSH_BYTES			(512 * 1024)

/* This many bytes are worth reading even for the smallest relation */
#define LEAST_BYTES			(16 * 1024)

/* The WAL file that is being read */
typedef struct WalFile
{
	TimeLineID	timeline;
	XLogSegNo	segment;
	int			fd;				/* -1: none */
} WalFile;

/* Open the file of this segment.  False: it is not there. */
static bool
open_segment(WalFile *file, XLogSegNo segment)
{
	char		path[MAXPGPATH];

	if (file->fd >= 0 && file->segment == segment)
		return true;
	if (file->fd >= 0)
		CloseTransientFile(file->fd);
	XLogFilePath(path, file->timeline, segment, wal_segment_size);
	file->fd = OpenTransientFile(path, O_RDONLY | PG_BINARY);
	file->segment = segment;
	return file->fd >= 0;
}

/* Callback of the WAL reader, which validates the page */
static int
read_wal_page(XLogReaderState *reader, XLogRecPtr page, int wanted, XLogRecPtr record, char *buffer)
{
	WalFile    *file = reader->private_data;
	XLogSegNo	segment;

	CHECK_FOR_INTERRUPTS();
	RefreshingMove();
	XLByteToSeg(page, segment, wal_segment_size);
	if (!open_segment(file, segment) ||
		pg_pread(file->fd, buffer, XLOG_BLCKSZ,
				 XLogSegmentOffset(page, wal_segment_size)) != XLOG_BLCKSZ)
		return -1;
	/* a removed file may be recycled for another segment */
	if (segment <= XLogGetLastRemovedSegno())
		return -1;
	return XLOG_BLCKSZ;
}

/*
 * A position may lie behind a page header that is not written yet.  Returns
 * the position before the header then.
 */
static XLogRecPtr
before_header(XLogRecPtr position)
{
	uint32		offset = position % XLOG_BLCKSZ;

	if (XLogSegmentOffset(position, wal_segment_size) == SizeOfXLogLongPHD ||
		(offset == SizeOfXLogShortPHD &&
		 XLogSegmentOffset(position, wal_segment_size) >= XLOG_BLCKSZ))
		return position - offset;
	return position;
}

/* True if the range is worth reading; its WAL is flushed then */
static bool
prepare(Relation rel, XLogRecPtr from, XLogRecPtr to, WalFile *file)
{
	uint64		bytes = to - from;
	uint64		most = (uint64) RelationGetNumberOfBlocks(rel) * SWEPT_PAGE_BYTES + LEAST_BYTES;
	bool		flush;

	if (gpuvec_freshness_choice == GPUVEC_FRESHNESS_SWEEP)
		return false;
	if (gpuvec_freshness_choice == GPUVEC_FRESHNESS_WAL)
		most = PG_UINT64_MAX;
	if (RecoveryInProgress())
	{
		(void) GetXLogReplayRecPtr(&file->timeline);
		return bytes <= most;
	}
	file->timeline = GpuvecInsertTimeLine();
	flush = GpuvecFlushedTo() < to;
	if (bytes + (flush ? FLUSH_BYTES : 0) > most)
		return false;
	if (flush)
		XLogFlush(to);
	return true;
}

/*
 * Note what a record has changed in pages of the relation.  True: there is
 * one among its block references.
 */
static bool
look_at_record(XLogReaderState *reader, Relation rel, ChangedLines *lines)
{
	bool		changed = false;

	for (int id = 0; id <= GpuvecMaxBlockId(reader); id++)
	{
		GpuvecRelFileId file;
		ForkNumber	fork;
		BlockNumber block;

		if (!GpuvecBlockTag(reader, id, &file, &fork, &block) || fork != MAIN_FORKNUM ||
			!GpuvecRelFileEquals(file, rel))
			continue;
		changed = true;
		if (lines)
			WalNoteLines(reader, id, block, lines);
	}
	return changed;
}

/* Read all records between the positions */
static WalResult
read_records(XLogReaderState *reader, Relation rel, XLogRecPtr from, XLogRecPtr to,
			 ChangedLines *lines)
{
	WalResult	result = WAL_UNCHANGED;

	XLogBeginRead(reader, from);
	while (reader->EndRecPtr < to)
	{
		char	   *error;

		if (XLogReadRecord(reader, &error) == NULL)
			return WAL_UNKNOWN;
		if (look_at_record(reader, rel, lines))
			result = WAL_CHANGED;
		if (result == WAL_CHANGED && lines == NULL)
			break;
	}
	return result;
}

WalResult
WalChanges(Relation rel, XLogRecPtr from, XLogRecPtr to, ChangedLines *lines)
{
	XLogReaderRoutine routine = {.page_read = read_wal_page};
	WalFile		file = {.fd = -1};
	XLogReaderState *reader;
	WalResult	result;

	from = before_header(from);
	to = before_header(to);
	if (from >= to)
		return WAL_UNCHANGED;
	if (!prepare(rel, from, to, &file))
		return WAL_UNKNOWN;
	reader = XLogReaderAllocate(wal_segment_size, NULL, &routine, &file);
	if (reader == NULL)
		return WAL_UNKNOWN;
	result = read_records(reader, rel, from, to, lines);
	XLogReaderFree(reader);
	if (file.fd >= 0)
		CloseTransientFile(file.fd);
	if (result == WAL_UNKNOWN && gpuvec_freshness_choice == GPUVEC_FRESHNESS_WAL)
		elog(ERROR, "could not read the WAL between %X/%X and %X/%X",
			 LSN_FORMAT_ARGS(from), LSN_FORMAT_ARGS(to));
	return result;
}
