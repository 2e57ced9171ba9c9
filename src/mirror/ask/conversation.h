/*-------------------------------------------------------------------------
 *
 * conversation.h
 *	  A session's requests to the engine about one mirror, and their answers.
 *
 * Searches of sets and of vectors are conversations of the same form:
 *
 *		MirrorConversation conversation = {.target = ..., .snapshot = ...};
 *
 *		while (MirrorConversationBegin(&conversation, &reason))
 *		{
 *			ok = all that follows from requests with MirrorAsk();
 *			if (MirrorConversationEnd(&conversation, ok, &reason))
 *				return true;
 *		}
 *		return false;
 *
 * The caller sets in the conversation and in each request how these differ.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CONVERSATION_H
#define GPUVEC_CONVERSATION_H

#include "link/engine_link.h"
#include "mirror/ask/tail.h"
#include "mirror/describe/mirror.h"

/*
 * A visibility map that is kept for later conversations of the same snapshot,
 * and the refresh number that was known before the map was read.  Plain
 * memory, without locks or pins.
 */
typedef struct MirrorKeptMap
{
	MemoryContext context;		/* the map lives here */
	double		rows;			/* rows asked for so far without a map */
	gpuvec_mirror_key key;		/* the mirror that `known` is a number of */
	uint64		generation;		/* of the connection: each engine has its own
								 * numbers */
	uint64		known;			/* the refresh number; 0: there is no map */
	uint8	   *map;
	Size		map_bytes;
	uint64		serial;			/* unique among the kept maps of this process */
} MirrorKeptMap;

typedef struct MirrorConversation
{
	/* set by the caller at first; all other members are zero then */
	MirrorTarget *target;
	Snapshot	snapshot;
	bool		roots;			/* rows need not be visible */
	uint32		queries;		/* number of queries of a search of sets */
	MirrorVisiblePages *counts; /* rows are counted: nothing can be laid over
								 * an answer, and these pages are read; else
								 * NULL */
	bool		use_map;		/* the visibility map may prove rows visible;
								 * used for shared mirrors only */
	bool		no_load;		/* an absent mirror is not loaded when the
								 * conversation begins */
	double		rows;			/* estimate: rows that the map would prove
								 * visible */
	BlockNumber small_map;		/* a map of at most this many pages is always
								 * read */
	MirrorKeptMap *kept;		/* where to keep the map, or NULL */

	/* for the caller to read while the conversation is open */
	MirrorVisibility *visibility;
	uint64		known;			/* the refresh number that goes with the map;
								 * 0: there is no map */
	const uint8 *map;			/* as MirrorVisibilityMap() */
	Size		map_bytes;
	bool		map_kept;		/* the map is that of `kept` */

	/* private to conversation.c */
	int			opened;			/* how often the link was opened */
	bool		refused;		/* the engine refused: do not try again */
	gpuvec_freshness need;		/* how fresh the next answer has to be */
	MirrorTail *tail;			/* completes answers that are less fresh, or
								 * NULL */
	uint32		patience_us;	/* how long the engine may wait for that */
	bool		is_behind;		/* the mirror is known to be behind, ... */
	gpuvec_state behind;		/* ... in this state */
} MirrorConversation;

#define MIRROR_REQUEST_PIECES	9

/* A request about the conversation's mirror, and the form of its answer */
typedef struct MirrorRequest
{
	gpuvec_message type;
	GpuvecPiece pieces[MIRROR_REQUEST_PIECES];
	int			npieces;

	/* where the pieces say how fresh the mirror must be: one is set */
	gpuvec_freshness *need;
	uint64	   *position;
	uint32	   *patience_us;	/* where the pieces say how long to wait for
								 * that, or NULL */

	gpuvec_message answer_type;
	Size		answer_head;	/* least length in bytes */
	Size		answer_state;	/* offset of the gpuvec_state */
	MemoryContext context;		/* the answer is allocated here */

	/* for a mirror that is known to be behind; else refresh first */
	bool		along;			/* may be sent together with the end of the
								 * refresh */
	bool		ahead;			/* may be sent ahead of the refresh; has one
								 * question; `along` must be set as well */
	const MirrorQuestion *questions;	/* [nquestions] the queries of a
										 * search of sets, or NULL */
	uint32		nquestions;

	bool		timed;			/* its time may be of use to the planner */
	double		trip_us;		/* set by MirrorAsk(): microseconds; 0: not
								 * timed */
} MirrorRequest;

/*
 * Open the link, and find out how fresh the mirror has to be.  May be called
 * again after the connection was lost: then earlier answers count for
 * nothing.  Returns false, with a reason, if there is no engine, or if it
 * cannot serve the search.
 */
extern bool MirrorConversationBegin(MirrorConversation *conversation, const char **reason);

/*
 * Release what the conversation holds.  `ok`: all requests were answered;
 * returned.
 */
extern bool MirrorConversationEnd(MirrorConversation *conversation, bool ok, const char **reason);

/*
 * Send a request, and read an answer of a mirror that is fresh enough.
 * False: the connection was lost, or the engine refused.
 */
extern bool MirrorAsk(MirrorConversation *conversation, MirrorRequest *request, GpuvecReply *answer);

/*
 * For a request that others than MirrorAsk() send, once after the beginning.
 * CatchUp: refresh the mirror, if it is known to be behind, unless the engine
 * refuses; false: there is none any more.  Need: set how fresh the mirror must
 * be; false: it needs patience, or is behind all the same.
 */
extern bool MirrorConversationCatchUp(MirrorConversation *conversation);
extern bool MirrorConversationNeed(const MirrorConversation *conversation, gpuvec_freshness *need);

/*
 * True if the answer to such a request counts: it has the request's form
 * without answer_head.  Rows at hand are laid over it.
 */
extern bool MirrorTakeReply(MirrorConversation *conversation, MirrorRequest *request, GpuvecReply *reply);

/*
 * Load or refresh a mirror, even if the engine refused before.  Returns
 * false, with a reason, if there is no engine.  If the engine refuses, that
 * is an error.
 */
extern bool MirrorPrewarm(MirrorTarget *target, Snapshot snapshot, uint64 *nrows,
						  const char **reason);

#endif							/* GPUVEC_CONVERSATION_H */
