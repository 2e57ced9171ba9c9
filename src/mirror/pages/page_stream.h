/*-------------------------------------------------------------------------
 *
 * page_stream.h
 *	  Sends pages to the engine, and publishes them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PAGE_STREAM_H
#define GPUVEC_PAGE_STREAM_H

#include "postgres.h"

#include "access/xlogdefs.h"
#include "core/protocol_mirrors.h"
#include "lib/stringinfo.h"
#include "storage/block.h"

typedef struct PageStream
{
	const gpuvec_refresh_chunk *chunk;	/* send pages as chunks of this
										 * refresh; or NULL */
	int			frame;			/* send when this many bytes are collected */
	StringInfoData out;			/* the collected pages */
} PageStream;

/* Begin to collect pages in stream->out, whose data the caller frees */
extern void PageStreamBegin(PageStream *stream, const gpuvec_refresh_chunk *chunk);

/* Let the first frame be large, as the engine is busy meanwhile */
extern void PageStreamLarge(PageStream *stream);

/*
 * Send the collected pages if they fill a frame, or if `all` is set.  False:
 * the connection was lost.
 */
extern bool PageStreamSend(PageStream *stream, bool all);

/*
 * Publish the pages that were sent.  The mirror then has all changes up to
 * the WAL position, and all that need->applied covers.  False: the connection
 * was lost, or the engine refused.
 */
extern bool PageStreamCommit(XLogRecPtr position, const gpuvec_freshness *need,
							 BlockNumber nblocks, gpuvec_state *state);

#endif							/* GPUVEC_PAGE_STREAM_H */
