/*-------------------------------------------------------------------------
 *
 * page_stream.h
 *	  Pages on their way to the engine, and what publishes them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PAGE_STREAM_H
#define GPUVEC_PAGE_STREAM_H

#include "postgres.h"

#include "access/xlogdefs.h"
#include "core/protocol.h"
#include "lib/stringinfo.h"
#include "storage/block.h"

typedef struct PageStream
{
	const gpuvec_refresh_part *part;	/* pages are parts of this refresh; or
										 * NULL */
	int			frame;			/* bytes that are worth sending */
	StringInfoData out;			/* collected, to be sent */
} PageStream;

/* Begin to collect pages in stream->out; free that afterwards */
extern void PageStreamBegin(PageStream *stream, const gpuvec_refresh_part *part);

/* Send a large first frame: the engine is busy meanwhile */
extern void PageStreamLarge(PageStream *stream);

/*
 * Send what is collected if it makes a frame, or `all` is set.  False: the
 * connection was lost.
 */
extern bool PageStreamSend(PageStream *stream, bool all);

/*
 * Publish the pages that were sent: all changes up to the position, and all
 * that were marked when the need was known.  False: the connection was lost,
 * or the engine refused.
 */
extern bool PageStreamCommit(XLogRecPtr position, const gpuvec_freshness *need,
							 BlockNumber nblocks, gpuvec_state *state);

#endif							/* GPUVEC_PAGE_STREAM_H */
