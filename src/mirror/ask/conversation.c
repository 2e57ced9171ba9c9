/*-------------------------------------------------------------------------
 *
 * conversation.c
 *	  A session's requests to the engine about one mirror, and their answers.
 *
 * The order of steps makes answers exact.  After the snapshot was taken:
 *
 *	 1. the predicate lock is taken, under SERIALIZABLE;
 *	 2. a refresh number is taken, then the visibility map is read, if that
 *		pays (visibility.c has the proof);
 *	 3. the WAL position is read that the mirror has to be checked to
 *		(refresh.c);
 *	 4. the request is sent.  If the mirror is not as fresh, it is refreshed
 *		or loaded, and the request is sent again.
 *
 * A mirror that was once fresh for a snapshot holds every row that the
 * snapshot can see, for as long as the snapshot lives, through later
 * refreshes and reloads.  So only the first request names a WAL position.
 * (If the first request did not wait for its refresh, see tail.c, the second
 * one names a position as well.)
 *
 * A mirror that follows an index (feed.c) is not refreshed in step 4 if the
 * rows that it lacks are at hand: they are laid over its answer (tail.c).
 * Then each request of the search names what the first one named.
 *
 * Such a mirror is not told of HOT updates.  For index scans that does not
 * matter: they return roots.  A function returns the tids of row versions.
 * It must fetch each row to know its tid, since the mirror's rows may stand
 * for other versions than when they were read; a visibility map proves
 * nothing about that.  So a function with many rows, for which the map pays,
 * uses the feed only if the table was changed since the mirror was checked.
 *
 * What the number and the map prove about a page holds for as long as the
 * snapshot and the engine live: a page that changes is read again under a
 * greater number.  So the map may be kept for later conversations of the same
 * snapshot (MirrorKeptMap).
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "core/clock.h"
#include "mirror/ask/conversation.h"
#include "mirror/ask/visible_pages.h"
#include "mirror/describe/costs.h"
#include "mirror/describe/usage.h"
#include "mirror/feed/feed.h"
#include "mirror/fresh/known.h"
#include "mirror/fresh/refresh.h"
#include "portability/instr_time.h"
#include "storage/bufmgr.h"
#include "storage/predicate.h"
#include "utils/memutils.h"

/*
 * Reading a page of the visibility map costs as much as fetching
 * MAP_PAGE_ROWS rows.  Asking for the number of the last refresh costs as
 * much as fetching MAP_ASK_ROWS rows.
 */
#define MAP_PAGE_ROWS		4
#define MAP_ASK_ROWS		256

/*
 * Functions that return fewer rows than this fetch them all, if the mirror
 * follows an index
 */
#define FEED_ROWS			MAP_ASK_ROWS

/*
 * How long the engine waits for rows that the feeder is about to send, before
 * the session sends them
 */
#define PATIENCE_US			5000

/* Largest map that is kept, in pages: that of a relation of 32 GB */
#define MAX_KEPT_PAGES		128

/* Attempts of a request that finds the mirror stale or gone */
#define ASK_ATTEMPTS		20

/* Attempts to open the link: one more after the connection was lost */
#define OPEN_ATTEMPTS		2

static uint64 last_serial = 0;

/* An answer, and the state of the mirror that gave it */
typedef struct Answer
{
	GpuvecReply *reply;
	gpuvec_state state;
	bool		ahead;			/* made fresh by a tail of pages; `state` does
								 * not say so */
} Answer;

/* Open the link, for the first time or after the connection was lost */
static bool
open_link(const MirrorTarget *target, int *opened, const char **reason)
{
	if ((*opened)++ == OPEN_ATTEMPTS)
	{
		MirrorRefuseLost(target, reason);
		return false;
	}
	return GpuvecLinkOpen(true, reason) == GPUVEC_LINK_READY;
}

/* Use the kept map, if it is of this mirror and engine */
static bool
use_kept_map(MirrorConversation *conversation)
{
	const MirrorKeptMap *kept = conversation->kept;

	if (kept->known == 0 || kept->generation != GpuvecLinkGeneration() ||
		memcmp(&kept->key, &conversation->target->key, sizeof(gpuvec_mirror_key)) != 0)
		return false;
	conversation->known = kept->known;
	conversation->map = kept->map;
	conversation->map_bytes = kept->map_bytes;
	conversation->map_kept = true;
	return true;
}

/* Keep the map that was read */
static void
keep_map(MirrorConversation *conversation)
{
	MirrorKeptMap *kept = conversation->kept;

	if (conversation->map_bytes == 0)
		return;
	if (kept->map)
		pfree(kept->map);
	kept->known = 0;
	kept->map = MemoryContextAlloc(kept->context, conversation->map_bytes);
	memcpy(kept->map, conversation->map, conversation->map_bytes);
	kept->map_bytes = conversation->map_bytes;
	kept->key = conversation->target->key;
	kept->generation = GpuvecLinkGeneration();
	kept->serial = ++last_serial;
	kept->known = conversation->known;
	(void) use_kept_map(conversation);
}

/*
 * Set *refresh to a refresh number that is known, or 0.  If MAP_ASK_ROWS rows
 * depend on it, it is the last one; of one of many partitions only if none is
 * known.  False: the connection was lost, or the engine refused.
 */
static bool
refresh_number(MirrorConversation *conversation, double rows, uint64 *refresh)
{
	MirrorTarget *target = conversation->target;
	gpuvec_state state;

	*refresh = MirrorKnownRefresh(target);
	if (rows < MAP_ASK_ROWS || (conversation->no_load && *refresh != 0))
		return true;
	if (!MirrorState(&target->key, &state))
		return false;
	if (state.state != GPUVEC_READY && conversation->no_load)
	{
		*refresh = 0;
		return true;
	}
	if (state.state != GPUVEC_READY)
	{
		gpuvec_freshness now = {.position = MirrorPosition()};

		if (!MirrorEnsure(target, conversation->snapshot, &now, NULL, &state))
			return false;
	}
	*refresh = state.refresh;
	return true;
}

/* True if the search follows the feed, and not the WAL, whatever happens */
static bool
follows_feed(const MirrorConversation *conversation)
{
	return conversation->target->fed && (conversation->roots || conversation->rows < FEED_ROWS);
}

/*
 * True if a mirror that is behind the WAL is to be refreshed, not searched by
 * the feed.  After a search by the feed each row is fetched, for the feed
 * tells nothing of deletions; a refresh looks at the relation's pages.  To
 * fetch a row costs as much as to look at a page, or more.
 */
static bool
refresh_pays(const MirrorConversation *conversation)
{
	return !conversation->roots &&
		conversation->rows >= RelationGetNumberOfBlocks(conversation->target->rel);
}

/* Read the visibility map if it will save more than it costs */
static bool
take_map(MirrorConversation *conversation)
{
	bool		keep = conversation->kept != NULL;
	double		rows = conversation->rows;
	BlockNumber pages;
	uint64		refresh;

	if (!conversation->use_map || conversation->target->mode != MIRROR_SHARED || follows_feed(conversation))
		return true;
	if (keep && use_kept_map(conversation))
		return true;
	pages = MirrorVisibilityMapPages(conversation->visibility);
	keep = keep && pages <= MAX_KEPT_PAGES;
	if (keep)
		rows = conversation->kept->rows += rows;
	if (pages == 0 || (pages > conversation->small_map && rows < (double) pages * MAP_PAGE_ROWS))
		return true;
	if (!refresh_number(conversation, rows, &refresh))
		return false;
	GPUVEC_INJECTION("ask-before-map");
	if (refresh == 0)
		return true;
	MirrorVisibilityTakeMap(conversation->visibility, refresh);
	conversation->known = MirrorVisibilityNumber(conversation->visibility);
	conversation->map = MirrorVisibilityMap(conversation->visibility, &conversation->map_bytes);
	if (keep)
		keep_map(conversation);
	return true;
}

/* Follow the feed: the rows that are found may not be what they were */
static void
follow_feed(MirrorConversation *conversation)
{
	FeedRead(conversation->target, &conversation->need);
	if (conversation->need.feed == 0)
		return;
	conversation->need.position = MirrorPosition();
	if (!conversation->roots)
	{
		MirrorVisibilityFetchAll(conversation->visibility);
		conversation->known = 0;
		conversation->map = NULL;
		conversation->map_bytes = 0;
	}
}

/*
 * How fresh the mirror has to be for a search that begins now: by the feed,
 * or by the WAL if the search does not follow the feed, or if that tells of
 * no change
 */
static void
how_fresh(MirrorConversation *conversation)
{
	MirrorTarget *target = conversation->target;
	const gpuvec_state *known;

	if (follows_feed(conversation))
		follow_feed(conversation);
	if (conversation->need.feed != 0)
		return;
	conversation->need.position = MirrorKnownPosition(target);
	known = MirrorKnownState(target);
	if (target->fed && known != NULL && known->checked < conversation->need.position &&
		!refresh_pays(conversation))
		follow_feed(conversation);
}

/* How long it pays to wait until rows of the feed are applied */
static uint32
patience(uint64 feed)
{
	switch (FeedComing(feed))
	{
		case FEED_STUCK:
			break;
		case FEED_COMING:
			return PATIENCE_US;
		case FEED_CATCHING_UP:
			return FEED_KEPT_PATIENCE_MS * 1000;
	}
	return 0;
}

/*
 * If the mirror is likely to lack rows, take them, to lay them over its
 * answer.  If they are too many, be patient, provided that the feeder will
 * send them in a moment.
 */
static void
take_tail(MirrorConversation *conversation, const gpuvec_state *known)
{
	const gpuvec_freshness *need = &conversation->need;
	uint64		from;

	if (need->feed == 0 || conversation->queries == 0)
		return;
	from = FeedApplied(need->feed);
	if (known != NULL && known->feed == need->feed)
		from = Max(from, known->applied);
	else if (from == 0)
		return;
	if (from >= need->applied)
		return;
	if (conversation->counts == NULL)
		conversation->tail = MirrorTailTake(need, from, conversation->queries);
	if (conversation->tail == NULL && (known == NULL || known->feed == need->feed))
		conversation->patience_us = patience(need->feed);
}

/* How fresh the mirror has to be, given the rows at hand */
static gpuvec_freshness
least_fresh(const MirrorConversation *conversation)
{
	gpuvec_freshness need = conversation->need;

	if (conversation->tail)
		need.applied = MirrorTailFrom(conversation->tail);
	return need;
}

/*
 * Find out what this search needs, what it has at hand, and whether this
 * session's last answer shows that the mirror is behind that
 */
static void
look_around(MirrorConversation *conversation)
{
	MirrorTarget *target = conversation->target;
	const gpuvec_state *known;
	gpuvec_freshness least;

	if (target->mode != MIRROR_SHARED)
		return;

	/*
	 * read an answer that was left; a lost connection shows with the request
	 */
	(void) GpuvecLinkSettle();
	how_fresh(conversation);
	known = MirrorKnownState(target);
	take_tail(conversation, known);
	least = least_fresh(conversation);
	if (conversation->patience_us == 0 && known != NULL && !gpuvec_fresh(known, &least))
	{
		conversation->is_behind = true;
		conversation->behind = *known;
	}
}

/* Drop the rows at hand: from here on the mirror itself has to be fresh */
static void
drop_tail(MirrorConversation *conversation)
{
	if (conversation->tail)
		MirrorTailFree(conversation->tail);
	conversation->tail = NULL;
}

/* Forget what was learnt from an engine that is gone */
static void
start_over(MirrorConversation *conversation)
{
	memset(&conversation->need, 0, sizeof(conversation->need));
	drop_tail(conversation);
	conversation->patience_us = 0;
	conversation->is_behind = false;
	conversation->known = 0;
	conversation->map = NULL;
	conversation->map_bytes = 0;
	conversation->map_kept = false;
}

bool
MirrorConversationBegin(MirrorConversation *conversation, const char **reason)
{
	while (!conversation->refused && open_link(conversation->target, &conversation->opened, reason))
	{
		bool		ok;

		start_over(conversation);
		conversation->visibility = MirrorVisibilityBegin(conversation->target, conversation->snapshot);
		PredicateLockRelation(conversation->target->rel, conversation->snapshot);
		VisiblePagesRead(conversation->counts, conversation->target);
		ok = take_map(conversation);
		GPUVEC_INJECTION("ask-before-position");
		if (ok)
		{
			look_around(conversation);
			return true;
		}
		(void) MirrorConversationEnd(conversation, false, reason);
	}
	return false;
}

/* The engine drops a private mirror when its connection is closed */
bool
MirrorConversationEnd(MirrorConversation *conversation, bool ok, const char **reason)
{
	bool		private = conversation->target->mode == MIRROR_PRIVATE;

	MirrorVisibilityEnd(conversation->visibility);
	drop_tail(conversation);
	if (ok && private)
		MirrorDropPrivate(conversation->target);
	if (ok)
		return true;
	conversation->refused = MirrorRefused(reason);
	if (private || !conversation->refused)
		GpuvecLinkClose();
	return false;
}

/* Send a request; returns its number, or 0 if the connection was lost */
static uint64
send_request(MirrorRequest *request, const gpuvec_freshness *need, uint32 patience_us)
{
	if (request->need)
		*request->need = *need;
	else
		*request->position = need->position;
	if (request->patience_us)
		*request->patience_us = patience_us;
	return GpuvecLinkBegin(request->type, request->pieces, request->npieces);
}

/* Read the answer to a request of this number (0: it was not sent) */
static bool
read_answer(const MirrorRequest *request, uint64 number, Answer *answer)
{
	MemoryContext old;
	bool		ok;

	if (number == 0)
		return false;
	old = MemoryContextSwitchTo(request->context);
	ok = GpuvecLinkAnswer(number, request->answer_type, request->answer_head, answer->reply);
	MemoryContextSwitchTo(old);
	if (ok)
		memcpy(&answer->state, answer->reply->data + request->answer_state,
			   sizeof(gpuvec_state));
	return ok;
}

/* Send a request and read its answer; note the time if it is timed */
static bool
ask(MirrorConversation *conversation, MirrorRequest *request, Answer *answer)
{
	bool		timed = request->timed && MirrorKnownTimed(conversation->target);
	gpuvec_freshness least = least_fresh(conversation);
	instr_time	begin;
	instr_time	end;

	if (timed)
		INSTR_TIME_SET_CURRENT(begin);
	if (!read_answer(request, send_request(request, &least, conversation->patience_us), answer))
		return false;
	if (timed && gpuvec_fresh(&answer->state, &conversation->need))
	{
		INSTR_TIME_SET_CURRENT(end);
		INSTR_TIME_SUBTRACT(end, begin);
		request->trip_us = INSTR_TIME_GET_MICROSEC(end);
	}
	return true;
}

/*
 * Send a request ahead of a refresh: the engine searches the mirror as it is,
 * however stale.  The pages that are read meanwhile turn the answer into the
 * one after the refresh.  If they cannot, the request is sent again.
 */
static bool
ask_ahead(MirrorConversation *conversation, MirrorRequest *request, MirrorRefresh *refresh, Answer *answer)
{
	gpuvec_freshness any = {0};
	uint64		number = send_request(request, &any, 0);
	MirrorTail *rows = MirrorTailOfPages(request->questions, conversation->behind.refresh,
										 MirrorRefreshBlocks(refresh));
	const char *page;
	bool		ok = number != 0;

	while (ok && (page = MirrorRefreshPage(refresh)) != NULL)
		MirrorTailPage(rows, page);
	ok = ok && MirrorRefreshPublish(refresh) && read_answer(request, number, answer) &&
		MirrorRefreshLeave(refresh);
	MirrorRefreshEnd(refresh, number);
	if (ok)
	{
		answer->ahead = MirrorTailMerge(rows, &answer->state, request->questions, 1,
										request->context, answer->reply);
		if (!answer->ahead && !gpuvec_fresh(&answer->state, &conversation->need))
		{
			pfree(answer->reply->data);
			ok = ask(conversation, request, answer);
		}
	}
	MirrorTailFree(rows);
	return ok;
}

/*
 * Send a request behind the end of a refresh, whose answer is not read yet
 */
static bool
ask_along(MirrorConversation *conversation, MirrorRequest *request, MirrorRefresh *refresh, Answer *answer)
{
	uint64		number = 0;
	bool		ok = MirrorRefreshPages(refresh) && MirrorRefreshPublish(refresh);

	if (ok)
	{
		number = send_request(request, &conversation->need, 0);
		ok = number != 0 && MirrorRefreshAnswer(refresh);
	}
	MirrorRefreshEnd(refresh, number);
	return ok && read_answer(request, number, answer);
}

/* What is asked while a mirror is refreshed */
typedef struct Asking
{
	MirrorConversation *conversation;
	MirrorRequest *request;
	Answer	   *answer;
} Asking;

/* Refresh the mirror, and send the request at the best moment */
static bool
ask_meanwhile(MirrorRefresh *refresh, void *arg)
{
	Asking	   *asking = arg;
	MirrorConversation *conversation = asking->conversation;
	MirrorRequest *request = asking->request;
	MirrorRefreshStep step = MirrorRefreshNext(refresh);

	if (step == MIRROR_REFRESH_READ)
		return request->ahead && MirrorRefreshYields(refresh) ?
			ask_ahead(conversation, request, refresh, asking->answer) :
			ask_along(conversation, request, refresh, asking->answer);
	MirrorRefreshEnd(refresh, 0);
	return step == MIRROR_REFRESH_FRESH && ask(conversation, request, asking->answer);
}

/* Refresh a mirror that is known to be behind, and send a request */
static bool
refresh_and_ask(MirrorConversation *conversation, MirrorRequest *request, Answer *answer)
{
	MirrorTarget *target = conversation->target;
	Asking		asking = {conversation, request, answer};

	conversation->is_behind = false;
	if (!request->along)
	{
		gpuvec_state state;

		if (!MirrorEnsure(target, conversation->snapshot, &conversation->need, &conversation->behind, &state))
			return false;
		MirrorRemember(&target->key, &state);
		return ask(conversation, request, answer);
	}
	return MirrorRefreshDo(target, conversation->snapshot, &conversation->need, &conversation->behind, ask_meanwhile,
						   &asking);
}

/* Make the mirror as fresh as needed.  `known`: its state, or NULL. */
static bool
ensure(MirrorConversation *conversation, const gpuvec_state *known)
{
	gpuvec_freshness now = conversation->need;
	gpuvec_state state;

	if (conversation->target->mode == MIRROR_PRIVATE)
		return MirrorLoadPrivate(conversation->target, conversation->snapshot, &conversation->need, &state);
	if (now.position == 0)
		now.position = MirrorPosition();
	return MirrorEnsure(conversation->target, conversation->snapshot, &now, known, &state);
}

/*
 * True if an answer counts.  Then notes what it tells, and lays the rows at
 * hand over it.
 */
static bool
take_answer(MirrorConversation *conversation, MirrorRequest *request, Answer *answer)
{
	/* the refresh may not be published: the next request needs it, too */
	if (answer->ahead)
		return true;
	FeedNoteState(&answer->state);
	if (gpuvec_fresh(&answer->state, &conversation->need))
	{
		MirrorRemember(&conversation->target->key, &answer->state);
		/* from here on the mirror is fresh for this snapshot */
		memset(&conversation->need, 0, sizeof(conversation->need));
		drop_tail(conversation);
		return true;
	}
	if (conversation->tail == NULL ||
		!MirrorTailMerge(conversation->tail, &answer->state, request->questions, request->nquestions,
						 request->context, answer->reply))
		return false;
	MirrorRemember(&conversation->target->key, &answer->state);
	return true;
}

/* Note how long a request took that had to wait for rows or pages; 0: none */
static void
note_wait(const MirrorConversation *conversation, int64 since)
{
	MirrorUsed.waits += since != 0;
	if (since != 0)
		CostsNoteWait(&conversation->target->key, gpuvec_clock_us() - since);
}

bool
MirrorConversationCatchUp(MirrorConversation *conversation)
{
	int64		since = gpuvec_clock_us();
	const char *reason;

	if (!conversation->is_behind)
		return true;
	if (!ensure(conversation, &conversation->behind))
		return MirrorRefused(&reason);
	conversation->is_behind = false;
	note_wait(conversation, since);
	return true;
}

bool
MirrorConversationNeed(const MirrorConversation *conversation, gpuvec_freshness *need)
{
	*need = least_fresh(conversation);
	return !conversation->is_behind && conversation->patience_us == 0;
}

bool
MirrorTakeReply(MirrorConversation *conversation, MirrorRequest *request, GpuvecReply *reply)
{
	Answer		answer = {.reply = reply};

	memcpy(&answer.state, reply->data + request->answer_state, sizeof(gpuvec_state));
	return take_answer(conversation, request, &answer);
}

bool
MirrorAsk(MirrorConversation *conversation, MirrorRequest *request, GpuvecReply *reply)
{
	Answer		answer = {.reply = reply};
	int64		since = 0;

	request->trip_us = 0;
	GPUVEC_INJECTION("ask-before-request");
	for (int attempt = 0; attempt < ASK_ATTEMPTS; attempt++)
	{
		if (since == 0 && (conversation->is_behind || conversation->patience_us > 0 || attempt > 0))
			since = gpuvec_clock_us();
		if (!(conversation->is_behind ? refresh_and_ask(conversation, request, &answer) :
			  ask(conversation, request, &answer)))
			return false;
		if (take_answer(conversation, request, &answer))
		{
			note_wait(conversation, answer.ahead ? 0 : since);
			return true;
		}
		drop_tail(conversation);
		conversation->patience_us = 0;
		pfree(reply->data);
		if (!ensure(conversation, attempt == 0 ? &answer.state : NULL))
			return false;
	}
	MirrorRefuseEvicted(conversation->target);
	return false;
}

bool
MirrorPrewarm(MirrorTarget *target, Snapshot snapshot, uint64 *nrows, const char **reason)
{
	int			opened = 0;

	while (open_link(target, &opened, reason))
	{
		gpuvec_freshness need = {.position = MirrorPosition()};
		gpuvec_state state;

		CostsForgetRefusal(&target->key);
		if (MirrorEnsure(target, snapshot, &need, NULL, &state))
		{
			*nrows = state.nrows;
			CostsNoteState(&target->key, &state);
			return true;
		}
		if (MirrorRefused(reason))
			break;
		GpuvecLinkClose();
	}
	if (MirrorRefused(reason))
		GpuvecLinkRaiseRefusal();
	return false;
}
