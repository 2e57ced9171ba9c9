/*-------------------------------------------------------------------------
 *
 * conversation.h
 *	  What a session and the engine say to each other about a mirror.
 *
 * Searches of sets and of vectors are conversations of the same form:
 *
 *		MirrorConversation talk = {.target = ..., .snapshot = ..., ...};
 *
 *		while (MirrorConversationBegin(&talk, &reason))
 *		{
 *			ok = all that follows from requests with MirrorAsk();
 *			if (MirrorConversationEnd(&talk, ok, &reason))
 *				return true;
 *		}
 *		return false;
 *
 * In which ways they differ, the caller says in the conversation and in each
 * request.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CONVERSATION_H
#define GPUVEC_CONVERSATION_H

#include "link/engine_link.h"
#include "mirror/ahead.h"
#include "mirror/mirror.h"

/*
 * A visibility map for many conversations of one snapshot, one after the
 * other, and the number of the refresh that was known before it was read.
 * Plain memory, without locks or pins.
 */
typedef struct MirrorKeptMap
{
	MemoryContext context;		/* the map lives here */
	double		rows;			/* that were asked for without a map */
	gpuvec_mirror_key key;		/* of the mirror whose number it is */
	uint64		generation;		/* of the connection: engines count anew */
	uint64		known;			/* 0: there is no map */
	uint8	   *map;
	Size		map_bytes;
	uint64		serial;			/* of all kept maps of this process */
} MirrorKeptMap;

typedef struct MirrorConversation
{
	/* set by the caller before it begins; the rest is zero then */
	MirrorTarget *target;
	Snapshot	snapshot;
	bool		roots;			/* no row has to be visible: the feed of the
								 * index will do */
	bool		use_map;		/* the visibility map may prove rows visible;
								 * shared mirrors only */
	double		rows;			/* how many rows the map would prove, about */
	BlockNumber small_map;		/* read a map of at most this many pages for
								 * any row */
	MirrorKeptMap *kept;		/* keep the map here, or NULL */

	/* for the caller to read, while the conversation is open */
	MirrorVisibility *visibility;
	uint64		known;			/* the number that goes with the map; 0: there
								 * is none */
	const uint8 *map;			/* as MirrorVisibilityMap() */
	Size		map_bytes;
	bool		map_kept;		/* it is that of `kept` */

	/* conversation.c's */
	int			opened;			/* how often it was begun */
	bool		refused;
	gpuvec_freshness need;		/* what the next request asks for */
	bool		is_behind;		/* the mirror is known to be behind, ... */
	gpuvec_state behind;		/* ... as it is in this state */
} MirrorConversation;

#define MIRROR_REQUEST_PIECES	9

/* A request about the conversation's mirror, and what its answer is like */
typedef struct MirrorRequest
{
	gpuvec_message type;
	GpuvecPiece pieces[MIRROR_REQUEST_PIECES];
	int			npieces;

	/* where the pieces say how fresh the mirror has to be: one of them */
	gpuvec_freshness *need;
	uint64	   *position;

	gpuvec_message answer_type;
	Size		answer_head;	/* bytes that it has at least */
	Size		answer_state;	/* offset of the gpuvec_state in it */
	MemoryContext context;		/* it is allocated here */

	/* when the mirror is known to be behind; else the refresh comes first */
	bool		along;			/* may be sent together with the end of a
								 * refresh */
	const MirrorAheadQuestion *ahead;	/* may be sent ahead of it, or NULL;
										 * along as well */

	bool		timed;			/* its time may tell the planner something */
	double		trip_us;		/* set by MirrorAsk(): the time, or 0 */
} MirrorRequest;

/*
 * Open the link, and find out how fresh the mirror has to be.  After the
 * connection was lost it may be begun once more: what was answered before
 * counts for nothing.  False, with a reason, if there is no engine, or it
 * cannot serve this.
 */
extern bool MirrorConversationBegin(MirrorConversation *talk, const char **reason);

/* Release what it holds.  `ok`: there was an answer to all; returned. */
extern bool MirrorConversationEnd(MirrorConversation *talk, bool ok, const char **reason);

/*
 * Send a request, and read an answer of a mirror that is fresh.  False: the
 * connection was lost, or the engine refused.
 */
extern bool MirrorAsk(MirrorConversation *talk, MirrorRequest *request, GpuvecReply *answer);

/*
 * Load or refresh a mirror, whatever was refused before.  Returns false, with
 * a reason, without an engine; that it cannot is an error.
 */
extern bool MirrorPrewarm(MirrorTarget *target, Snapshot snapshot, uint64 *nrows,
						  const char **reason);

#endif							/* GPUVEC_CONVERSATION_H */
