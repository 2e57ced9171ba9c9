/*-------------------------------------------------------------------------
 *
 * page_stream.c
 *	  Sends pages to the engine, and publishes them.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "link/engine_link.h"
#include "mirror/pages/page_stream.h"

/* Pages are sent in frames of about FRAME_BYTES */
#define FRAME_BYTES			(512 * 1024)

/*
 * A refresh of a few pages is sent in chunks: the engine takes one chunk while
 * the session reads the next.  The first chunk is small, so that the engine
 * begins soon.  Each later chunk may be twice as large, up to CHUNK_BYTES.
 */
#define FIRST_CHUNK_BYTES	(8 * 1024)
#define CHUNK_BYTES			(32 * 1024)

void
PageStreamBegin(PageStream *stream, const gpuvec_refresh_chunk *chunk)
{
	stream->chunk = chunk;
	stream->frame = chunk ? FIRST_CHUNK_BYTES : FRAME_BYTES;
	initStringInfo(&stream->out);
}

void
PageStreamLarge(PageStream *stream)
{
	stream->frame = FRAME_BYTES;
}

bool
PageStreamSend(PageStream *stream, bool all)
{
	StringInfo	out = &stream->out;
	GpuvecPiece pieces[2] = {{stream->chunk, sizeof(*stream->chunk)}, {out->data, out->len}};
	bool		ok = true;

	if (!all && out->len < stream->frame)
		return true;
	if (stream->chunk)
	{
		ok = GpuvecLinkSend(GPUVEC_MSG_REFRESH_PAGES, pieces, 2);
		if (out->len > 0)
			stream->frame = Min(stream->frame * 2, CHUNK_BYTES);
	}
	else if (out->len > 0)
		ok = GpuvecLinkSend(GPUVEC_MSG_PAGES, pieces + 1, 1);
	resetStringInfo(out);
	return ok;
}

bool
PageStreamCommit(XLogRecPtr position, const gpuvec_freshness *need, BlockNumber nblocks,
				 gpuvec_state *state)
{
	gpuvec_commit commit = {
		.position = position,
		.feed = need->feed,
		.applied = need->applied,
		.nblocks = nblocks
	};
	GpuvecPiece piece = {&commit, sizeof(commit)};
	GpuvecReply reply;

	if (!GpuvecLinkCall(GPUVEC_MSG_COMMIT, &piece, 1, GPUVEC_MSG_STATE,
						sizeof(*state), &reply))
		return false;
	memcpy(state, reply.data, sizeof(*state));
	pfree(reply.data);
	return true;
}
