/*-------------------------------------------------------------------------
 *
 * mirror.c
 *	  Searching a column of a table through its mirror.
 *
 * The engine returns candidates in order; those that the snapshot does not see
 * are dropped, and the engine is asked for what follows the last candidate
 * until there are k visible ones.  A mirror that was fresh once for a snapshot
 * holds every row the snapshot can see for as long as the snapshot lives, later
 * refreshes and reloads included, so only the first request names a position.  (If
 * that did not wait for its refresh, see ahead.c, the second one does as well.)
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "access/htup_details.h"
#include "access/xact.h"
#include "common/hashfn.h"
#include "link/engine_link.h"
#include "mirror/ahead.h"
#include "mirror/facts.h"
#include "mirror/feed.h"
#include "mirror/mirror.h"
#include "mirror/wal.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "storage/predicate.h"
#include "utils/snapmgr.h"

/*
 * Reading a page of the visibility map costs about as much as fetching this many
 * rows, and asking for the number of the last refresh as this many.
 */
#define MAP_PAGE_ROWS		4
#define MAP_ASK_ROWS		256

/* Hits that one answer of the engine may have */
#define ANSWER_HITS			(4 * 1024 * 1024)

/* First page of an answer without k, and how it grows */
#define FIRST_ALL_ROWS		8192
#define ALL_ROWS_GROWTH		4

/*
 * For the planner, searches of so few rows are timed, one of so many of a session, for
 * clocks may be slow.
 */
#define TIMED_ROWS			1024
#define TIMED_EVERY			8

/* Searches that find the mirror gone again before we give up */
#define SEARCH_ATTEMPTS		20

/* Make room for n more hits of a query */
static void
reserve_hits(MirrorSearch *search, MirrorQuery *query, uint64 n)
{
	uint64		room = query->nhits + n;

	if (room <= query->maxhits)
		return;
	if (query->maxhits == 0)
	{
		MirrorHit  *mine = MemoryContextAllocHuge(search->context, room * sizeof(MirrorHit));

		if (query->nhits > 0)
			memcpy(mine, query->hits, query->nhits * sizeof(MirrorHit));
		query->hits = mine;
	}
	else
	{
		room = Max(room, query->maxhits * 2);
		query->hits = repalloc_huge(query->hits, room * sizeof(MirrorHit));
	}
	query->maxhits = room;
}

/*
 * How many rows of the engine probably have as many of those among them that a search is
 * restricted to?  Two standard deviations more than expected, so that one trip mostly
 * suffices.
 */
double
MirrorRowsToLookAt(const MirrorSearch *search, uint64 n)
{
	return (n + 2 * sqrt((double) n)) / search->share + 2;
}

/*
 * A group is the rows of a rooted mirror of the same score on the same page.
 * They come in the order of their roots, which may not be that of the tids to
 * be returned.  So a query that has its k rows may need the rest of the last
 * one's group: it is open.
 */
static bool
group_open(const MirrorSearch *search, const MirrorQuery *query)
{
	return query->has_after && query->nhits >= search->k;
}

/*
 * How many rows to ask for to see the end of an open group: one more than the
 * page can have behind the last one, so that one trip is enough.
 */
static uint32
rows_to_close(const MirrorQuery *query, uint32 queries)
{
	OffsetNumber last = mirror_line_offset(gpuvec_tid_line(query->after_tid));
	uint32		rows = last < MaxHeapTuplesPerPage ? MaxHeapTuplesPerPage - last + 1 : 1;

	return Max(Min(rows, ANSWER_HITS / queries), 1);
}

/*
 * How many rows to ask for, for one query of as many that need some.  A little more
 * than what is missing, so that a few invisible rows cost no second trip.  For a
 * restricted search ever more (page grows), since its rows may be rare among the best,
 * until it is abandoned.
 */
static uint32
rows_to_ask(const MirrorSearch *search, const MirrorQuery *query, uint32 page, uint32 queries)
{
	uint64		missing;

	if (group_open(search, query))
		return rows_to_close(query, queries);
	if (search->among)
	{
		double		rows = page;

		if (search->k != UINT64_MAX)
			rows = MirrorRowsToLookAt(search, search->k - Min(query->nhits, search->k)) *
				(page / FIRST_ALL_ROWS);
		rows = Min(rows, search->max_looked - query->looked);
		rows = Min(rows, ANSWER_HITS / queries);
		return Max(Min(rows, GPUVEC_MAX_K), 1);
	}
	if (search->k == UINT64_MAX)
		return page;
	missing = search->k - Min(query->nhits, search->k);
	if (missing <= GPUVEC_FAST_K)
		return Min(missing + missing / 16 + 2, Max(GPUVEC_FAST_K, missing));
	return Min(missing, GPUVEC_MAX_K);
}

/* The least score that rows of a query need; false: any will do */
static bool
least_score(const MirrorSearch *search, const MirrorQuery *query, double *least)
{
	*least = -INFINITY;
	if (search->has_min_score)
		*least = search->min_score;
	if (query->has_above)
		*least = Max(*least, nextafter(query->above, INFINITY));
	/* of an open group's score or not wanted */
	if (group_open(search, query))
		*least = query->after_score;
	return search->has_min_score || query->has_above || group_open(search, query);
}

/* The request for those of the queries that need more rows */
typedef struct Request
{
	gpuvec_search head;
	gpuvec_query *queries;
	uint16	   *ids;
	MirrorQuery **whose;
	uint32		n;
	uint64		nids;
} Request;

/* Fill a request from queries [first, last) */
static void
make_request(Request *request, MirrorTarget *target, MirrorSearch *search,
			 const MirrorVisibility *visibility, uint32 first, uint32 last, uint32 page)
{
	uint64		nids = 0;
	uint32		open = 0;

	for (uint32 i = first; i < last; i++)
	{
		nids += search->queries[i].len;
		if (!search->queries[i].done)
			open++;
	}
	request->n = 0;
	request->nids = 0;
	request->queries = palloc0_array(gpuvec_query, last - first);
	request->whose = palloc_array(MirrorQuery *, last - first);
	request->ids = MemoryContextAllocHuge(CurrentMemoryContext, (nids + 1) * sizeof(uint16));

	for (uint32 i = first; i < last; i++)
	{
		MirrorQuery *query = &search->queries[i];
		gpuvec_query *wire = &request->queries[request->n];
		double		least;

		if (query->done)
			continue;
		wire->len = query->len;
		wire->k = rows_to_ask(search, query, page, open);
		if (least_score(search, query, &least))
		{
			wire->flags |= GPUVEC_QUERY_MIN_SCORE;
			wire->min_score = least;
		}
		if (query->has_after)
		{
			wire->flags |= GPUVEC_QUERY_AFTER;
			wire->after_score = query->after_score;
			wire->after_tid = query->after_tid;
		}
		if (query->len > 0)
			memcpy(request->ids + request->nids, query->ids, query->len * sizeof(uint16));
		request->nids += query->len;
		request->whose[request->n++] = query;
	}
	memset(&request->head, 0, sizeof(request->head));
	request->head.key = target->key;
	request->head.known = MirrorVisibilityNumber(visibility);
	request->head.measure = search->measure;
	request->head.method = gpuvec_method_choice;
	request->head.nqueries = request->n;
	request->head.nids = request->nids;
}

/* An answer of the engine */
typedef struct Answer
{
	GpuvecReply reply;
	gpuvec_result head;
	const char *nhits;			/* uint32 per query */
	char	   *hits;			/* gpuvec_hit, in all */
} Answer;

/* Send a request; its number, or 0 if the connection was lost */
static uint64
send_request(const Request *request)
{
	GpuvecPiece pieces[3];

	pieces[0] = (GpuvecPiece) {&request->head, sizeof(request->head)};
	pieces[1] = (GpuvecPiece) {request->queries, request->n * sizeof(gpuvec_query)};
	pieces[2] = (GpuvecPiece) {request->ids, request->nids * sizeof(uint16)};
	return GpuvecLinkBegin(GPUVEC_MSG_SEARCH, pieces, 3);
}

/* Read the answer to a request of this number (0: it was not sent) into a memory context */
static bool
read_answer(uint64 number, MemoryContext context, Answer *answer)
{
	MemoryContext old;
	Size		counts;
	bool		ok;

	if (number == 0)
		return false;
	old = MemoryContextSwitchTo(context);
	ok = GpuvecLinkAnswer(number, GPUVEC_MSG_RESULT, sizeof(gpuvec_result), &answer->reply);
	MemoryContextSwitchTo(old);
	if (!ok)
		return false;
	memcpy(&answer->head, answer->reply.data, sizeof(gpuvec_result));
	counts = MAXALIGN64((uint64) answer->head.nqueries * sizeof(uint32));
	answer->nhits = answer->reply.data + sizeof(gpuvec_result);
	answer->hits = answer->reply.data + sizeof(gpuvec_result) + counts;
	if (answer->reply.length != sizeof(gpuvec_result) + counts +
		answer->head.nhits * sizeof(gpuvec_hit))
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("invalid message from the gpuvec engine")));
	return true;
}

/* Do two rows of a rooted mirror belong to the same group? */
static bool
same_group(const MirrorHit *a, const MirrorHit *b)
{
	return a->score == b->score && gpuvec_hit_block(a->place) == gpuvec_hit_block(b->place);
}

/* qsort comparator: the tid comes first in a place */
static int
compare_places(const void *a, const void *b)
{
	uint64		x = ((const MirrorHit *) a)->place;
	uint64		y = ((const MirrorHit *) b)->place;

	return x < y ? -1 : x > y;
}

/* Bring the rows of each group in the order of their tids, and cut off what is too much */
static void
sort_groups(MirrorSearch *search, MirrorQuery *query)
{
	uint64		first = 0;

	for (uint64 i = 1; i <= query->nhits; i++)
	{
		if (i < query->nhits && same_group(&query->hits[i], &query->hits[first]))
			continue;
		if (i - first > 1)
			qsort(query->hits + first, i - first, sizeof(MirrorHit), compare_places);
		first = i;
	}
	query->nhits = Min(query->nhits, search->k);
}

/*
 * A query has its k rows, and the last answer ended within the last one's
 * group.  Do the rows of the group that were not given come behind the k-th
 * all the same?  Their roots come behind the last root that was given.  If
 * the k-th row does not, each row before it that the snapshot sees was given,
 * or is not the root of its chain.  The page tells whether it has such a row.
 */
static bool
rest_is_behind(const MirrorSearch *search, MirrorQuery *query, MirrorVisibility *visibility)
{
	uint64		first = search->k - 1;
	uint64		kth;
	OffsetNumber line;

	while (first > 0 && same_group(&query->hits[first - 1], &query->hits[search->k - 1]))
		first--;
	qsort(query->hits + first, query->nhits - first, sizeof(MirrorHit), compare_places);
	kth = query->hits[search->k - 1].place;
	line = mirror_line_offset(gpuvec_hit_line(kth));
	return line <= mirror_line_offset(gpuvec_tid_line(query->after_tid)) &&
		!MirrorPageHasMember(visibility, gpuvec_hit_block(kth), line);
}

/* Is a row, with a tid of its own, one of those that a search is restricted to? */
static bool
is_among(const MirrorTidSet *among, const MirrorHit *hit)
{
	return MirrorTidSetHas(among, gpuvec_hit_block(hit->place),
						   mirror_line_offset(gpuvec_hit_line(hit->place)));
}

/*
 * Is this a row to return: visible, and one of those that the search is restricted to?
 * Few are, so they are looked up before anything is fetched.  Of a HOT chain that may
 * have another member than its root this can only be told by the page: the chain's
 * visible member is known when it is fetched.  (If the root is the last member that is
 * not dead, no snapshot for which the mirror is fresh can see another one.)
 */
static bool
wanted(const MirrorSearch *search, MirrorVisibility *visibility, MirrorHit *hit,
	   const MirrorQuery *query)
{
	const MirrorTidSet *among = search->among;

	if (among == NULL)
		return MirrorVisible(visibility, hit, query, search->measure);
	if (mirror_line_itself(gpuvec_hit_line(hit->place)))
		return is_among(among, hit) &&
			MirrorVisible(visibility, hit, query, search->measure);
	return MirrorTidSetHasBlock(among, gpuvec_hit_block(hit->place)) &&
		MirrorVisible(visibility, hit, query, search->measure) && is_among(among, hit);
}

/*
 * Take the visible rows of one query's answer.  Its first ones stay where they are
 * in the answer, which then has to be kept; but for a restricted search, which takes
 * few of many.
 */
static void
take_hits(MirrorTarget *target, MirrorSearch *search, MirrorQuery *query,
		  MirrorVisibility *visibility, MirrorHit *hits, uint32 n, uint32 asked)
{
	bool		groups = target->key.rooted && !search->roots;
	bool		full = query->nhits >= search->k && !groups;

	if (search->among)
		 /* as they come */ ;
	else if (query->nhits == 0)
	{
		query->hits = hits;
		query->maxhits = 0;
	}
	else
		reserve_hits(search, query, n);
	for (uint32 i = 0; i < n && !full; i++)
	{
		MirrorHit	hit = hits[i];

		if (groups && query->nhits >= search->k &&
			!same_group(&hit, &query->hits[query->nhits - 1]))
		{
			full = true;
			break;
		}
		query->after_score = hit.score;
		query->after_tid = mirror_behind(hit.place);
		query->looked++;
		if (search->roots)
		{
			MirrorHit	seen = hit;

			/* the executor decides; this is to verify the score */
			if (gpuvec_verify)
				(void) MirrorVisible(visibility, &seen, query, search->measure);
			query->hits[query->nhits++] = hit;
		}
		else if (wanted(search, visibility, &hit, query))
		{
			if (search->among)
				reserve_hits(search, query, 1);
			query->hits[query->nhits++] = hit;
		}
		full = query->nhits >= search->k && !groups;
		CHECK_FOR_INTERRUPTS();
	}
	if (groups && !full && n == asked && query->nhits >= search->k)
		full = rest_is_behind(search, query, visibility);
	query->done = n < asked || full;
	if (!query->done && search->among && query->looked >= search->max_looked)
		query->done = query->abandoned = true;
	query->has_after = !query->done;
	if (query->done && groups)
		sort_groups(search, query);
}

/*
 * Take an answer.  True if some query needs more; *keep: if hits lie in the answer.
 */
static bool
take_answer(MirrorTarget *target, MirrorSearch *search, Request *request, Answer *answer,
			MirrorVisibility *visibility, bool *keep)
{
	MirrorHit  *hits = (MirrorHit *) answer->hits;
	uint64		left = answer->head.nhits;
	bool		more = false;

	if (answer->head.nqueries != request->n)
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("invalid message from the gpuvec engine")));
	search->engine_us += answer->head.engine_us;
	for (uint32 i = 0; i < request->n; i++)
	{
		uint32		n;

		memcpy(&n, answer->nhits + i * sizeof(uint32), sizeof(n));
		if (n > left)
			ereport(ERROR,
					(errcode(ERRCODE_PROTOCOL_VIOLATION),
					 errmsg("invalid message from the gpuvec engine")));
		left -= n;
		take_hits(target, search, request->whose[i], visibility, hits, n,
				  request->queries[i].k);
		*keep |= request->whose[i]->hits == hits && n > 0;
		hits += n;
		more |= !request->whose[i]->done;
	}
	return more;
}

/*
 * What this session knows of mirrors, from the last answers of the engine.  A place
 * for each of a few, by hash.
 */
typedef struct Known
{
	gpuvec_mirror_key key;

	/*
	 * Any refresh number known before the map is read will do for visibility.c; an
	 * old one just proves less.  Numbers of another engine (connection) prove nothing.
	 */
	uint64		generation;
	gpuvec_state state;

	/* nothing was changed in (state.checked, until], by the WAL (see wal.c) */
	XLogRecPtr	until;

	uint32		asked;			/* how often it could have been timed */
} Known;

#define KNOWN_PLACES	64

static Known known_mirrors[KNOWN_PLACES];

/* The place of a mirror; it may have another's */
static Known *
known_place(const gpuvec_mirror_key *key)
{
	return &known_mirrors[hash_bytes((const unsigned char *) key, sizeof(*key)) % KNOWN_PLACES];
}

/* What is known of a mirror, or NULL */
static Known *
known_mirror(const gpuvec_mirror_key *key)
{
	Known	   *known = known_place(key);

	return memcmp(&known->key, key, sizeof(*key)) == 0 ? known : NULL;
}

/* Remember what an answer told */
void
MirrorRemember(const gpuvec_mirror_key *key, const gpuvec_state *state)
{
	Known	   *known = known_place(key);
	bool		same = known == known_mirror(key) && known->generation == GpuvecLinkGeneration();

	if (known != known_mirror(key) || known->state.checked > state->checked)
		known->until = 0;
	if (!same || known->state.refresh != state->refresh)
	{
		known->asked = same ? known->asked : 0;
		FactsNoteState(key, state);
	}
	known->key = *key;
	known->generation = GpuvecLinkGeneration();
	known->state = *state;
	known->until = Max(known->until, state->checked);
}

/* Remember that it is not known what the mirror is now; what its WAL told stays true */
void
MirrorForget(const gpuvec_mirror_key *key)
{
	Known	   *known = known_mirror(key);

	if (known)
		known->generation = 0;
}

/* A refresh number that is known for this mirror, or 0 */
uint64
MirrorKnownRefresh(const MirrorTarget *target)
{
	Known	   *known = known_mirror(&target->key);

	return known && known->generation == GpuvecLinkGeneration() ? known->state.refresh : 0;
}

/*
 * The position that the mirror has to be checked to for a search which begins now: the
 * current one, or, if the WAL since then has no change of the relation, the one that
 * is known.
 */
static XLogRecPtr
position_needed(MirrorTarget *target)
{
	Known	   *known = known_mirror(&target->key);
	XLogRecPtr	position = MirrorPosition();

	if (known == NULL || known->state.checked == 0)
		return position;
	if (position > known->until)
	{
		if (WalChanges(MirrorSource(target), known->until, position, NULL) != WAL_UNCHANGED)
			return position;
		known->until = position;
	}
	return known->state.checked;
}

/*
 * Is this request one of those whose times the planner is told?  What they tell should be
 * the time of a trip and of ranking all rows once.  The first search of a session is slow, as
 * anything is that a session does for the first time.
 */
static bool
is_timed(MirrorTarget *target, const Request *request)
{
	Known	   *known = known_mirror(&target->key);

	if (known == NULL || request->n != 1 || request->queries[0].flags != 0 ||
		request->queries[0].k > TIMED_ROWS)
		return false;
	return known->asked++ % TIMED_EVERY == 0;
}

/* Send a request and read its answer, and note how long that took if it is timed */
static bool
ask(MirrorTarget *target, MirrorSearch *search, Request *request, const gpuvec_freshness *need,
	Answer *answer)
{
	bool		timed = is_timed(target, request);
	instr_time	begin;
	instr_time	end;

	if (timed)
		INSTR_TIME_SET_CURRENT(begin);
	if (!read_answer(send_request(request), search->context, answer))
		return false;
	if (timed && gpuvec_fresh(&answer->head.state, need))
	{
		INSTR_TIME_SET_CURRENT(end);
		INSTR_TIME_SUBTRACT(end, begin);
		FactsNoteTrip(&target->key, INSTR_TIME_GET_MICROSEC(end), answer->head.engine_us);
	}
	return true;
}

/* A request that may go along with a refresh, or ahead of it */
typedef struct Companion
{
	MirrorAlong along;
	Request    *request;
	MemoryContext context;
	Answer	   *answer;
	MirrorAhead *rows;			/* of the pages that the refresh is of, if it goes ahead */
} Companion;

/* Send it.  Ahead of the refresh it is of the mirror as it is, however fresh that is. */
static uint64
send_companion(void *arg)
{
	Companion  *companion = arg;
	gpuvec_freshness need = companion->request->head.need;
	uint64		number;

	if (companion->along.ahead)
		companion->request->head.need = (gpuvec_freshness) {0};
	number = send_request(companion->request);
	companion->request->head.need = need;
	return number;
}

/* Read its answer */
static bool
receive_companion(void *arg, uint64 number)
{
	Companion  *companion = arg;

	return read_answer(number, companion->context, companion->answer);
}

/* Rank the rows of a page that was read again */
static void
take_page(void *arg, const char *page)
{
	MirrorAheadPage(((Companion *) arg)->rows, page);
}

/*
 * Can a request go ahead of a refresh?  It has one query, from the best row on, and an answer
 * that fits a socket's buffer, so that the engine can go on to the refresh behind it.
 */
static bool
may_go_ahead(const Request *request)
{
	return request->n == 1 && request->queries[0].k <= GPUVEC_FAST_K &&
		(request->queries[0].flags & GPUVEC_QUERY_AFTER) == 0;
}

/*
 * Put in the place of an answer that came ahead of the refresh what it would be after it.
 * False if that cannot be told.
 */
static bool
merge_ahead(Companion *companion, const gpuvec_state *behind)
{
	Answer	   *answer = companion->answer;
	uint32		asked = companion->request->queries[0].k;
	uint32		n;
	char	   *data;

	if (answer->head.state.state != GPUVEC_READY || answer->head.state.refresh != behind->refresh ||
		answer->head.nqueries != 1)
		return false;
	memcpy(&n, answer->nhits, sizeof(n));
	if (n > asked || n != answer->head.nhits)
		return false;
	data = MemoryContextAllocHuge(companion->context,
								  MAXALIGN64(sizeof(uint32)) + asked * sizeof(MirrorHit));
	if (!MirrorAheadMerge(companion->rows, companion->along.nblocks, (MirrorHit *) answer->hits, n,
						  asked, (MirrorHit *) (data + MAXALIGN64(sizeof(uint32))), &n))
	{
		pfree(data);
		return false;
	}
	memcpy(data, &n, sizeof(n));
	pfree(answer->reply.data);
	answer->reply.data = data;
	answer->nhits = data;
	answer->hits = data + MAXALIGN64(sizeof(uint32));
	answer->head.nhits = n;
	return true;
}

/*
 * Refresh a mirror that is known to be behind, as it is in this state, and ask at once: a
 * refresh of a few pages and the request are sent together.  *ahead: the answer did not wait
 * for the refresh, and is as good; its state says nothing.  False: the connection was lost.
 */
static bool
refresh_and_ask(MirrorTarget *target, MirrorSearch *search, Request *request,
				const gpuvec_freshness *need, gpuvec_state behind, Answer *answer, bool *ahead)
{
	Companion	companion = {.request = request,.context = search->context,.answer = answer};
	MirrorAlong *along = &companion.along;
	gpuvec_state state;
	bool		ok;

	along->send = send_companion;
	along->receive = receive_companion;
	along->arg = &companion;
	if (may_go_ahead(request))
	{
		along->page = take_page;
		companion.rows = MirrorAheadBegin(search, request->whose[0]);
	}
	ok = MirrorEnsure(target, search->snapshot, need, &behind, along, &state);
	if (ok && along->ahead)
	{
		*ahead = merge_ahead(&companion, &behind);
		if (!*ahead && !gpuvec_fresh(&answer->head.state, need))
		{
			pfree(answer->reply.data);
			ok = ask(target, search, request, need, answer);
		}
	}
	else if (ok)
		ok = receive_companion(&companion, along->number ? along->number : send_request(request));
	if (companion.rows)
		MirrorAheadEnd(companion.rows);
	return ok;
}

/*
 * One request, after which the mirror is known to be fresh, or is only just becoming so
 * (*ahead).  `behind`: the mirror's state if it is known that it has to be refreshed first, or
 * NULL.  False: the connection was lost.
 */
static bool
ask_fresh(MirrorTarget *target, MirrorSearch *search, Request *request,
		  const gpuvec_freshness *need, const gpuvec_state *behind, Answer *answer, bool *ahead)
{
	*ahead = false;
	request->head.need = *need;
	for (int attempt = 0; attempt < SEARCH_ATTEMPTS; attempt++)
	{
		gpuvec_state *state = &answer->head.state;
		gpuvec_freshness now = {.position = MirrorPosition()};
		gpuvec_state after;

		if (!(behind ? refresh_and_ask(target, search, request, need, *behind, answer, ahead) :
			  ask(target, search, request, need, answer)))
			return false;
		if (*ahead)
			return true;
		if (gpuvec_fresh(state, need))
		{
			MirrorRemember(&target->key, state);
			return true;
		}
		pfree(answer->reply.data);
		behind = NULL;
		if (target->mode == MIRROR_PRIVATE)
		{
			if (!MirrorLoadPrivate(target, search->snapshot, need, state))
				return false;
		}
		else if (!MirrorEnsure(target, search->snapshot, need->position ? need : &now,
							   attempt == 0 ? state : NULL, NULL, &after))
			return false;
	}
	MirrorRefuseEvicted(target);
	return false;
}

/* Search queries [first, last).  False: the connection was lost. */
static bool
search_group(MirrorTarget *target, MirrorSearch *search, MirrorVisibility *visibility,
			 gpuvec_freshness need, const gpuvec_state *behind, uint32 first, uint32 last)
{
	uint32		page = FIRST_ALL_ROWS;
	bool		more = true;

	while (more)
	{
		Request		request;
		Answer		answer;
		bool		keep = false;
		bool		ahead;

		make_request(&request, target, search, visibility, first, last, page);
		if (request.n == 0)
			break;
		GPUVEC_INJECTION("search-before-request");
		if (!ask_fresh(target, search, &request, &need, behind, &answer, &ahead))
			return false;
		GPUVEC_INJECTION("search-before-fetch");
		more = take_answer(target, search, &request, &answer, visibility, &keep);
		if (!keep)
			pfree(answer.reply.data);
		pfree(request.queries);
		pfree(request.whose);
		pfree(request.ids);
		/* fresh for this snapshot from now on, unless the refresh is still to be made */
		if (!ahead)
			need = (gpuvec_freshness) {0};
		behind = NULL;
		page = Min(page * ALL_ROWS_GROWTH, GPUVEC_MAX_K);
	}
	return true;
}

/* Read the visibility map if it will save more than it costs */
static bool
take_map(MirrorTarget *target, MirrorSearch *search, MirrorVisibility *visibility)
{
	double		rows = (double) Min(search->k, FIRST_ALL_ROWS) * search->nqueries;
	BlockNumber pages;
	gpuvec_state state;

	if (target->mode != MIRROR_SHARED || search->roots)
		return true;
	pages = MirrorVisibilityMapPages(visibility);
	if (pages == 0 || rows < (double) pages * MAP_PAGE_ROWS)
		return true;
	if (rows < MAP_ASK_ROWS)
	{
		uint64		refresh = MirrorKnownRefresh(target);

		GPUVEC_INJECTION("search-before-map");
		if (refresh != 0)
			MirrorVisibilityTakeMap(visibility, refresh);
		return true;
	}
	if (!MirrorState(&target->key, &state))
		return false;
	if (state.state != GPUVEC_READY &&
		!MirrorEnsure(target, search->snapshot, &(gpuvec_freshness) {.position = MirrorPosition()},
					  NULL, NULL, &state))
		return false;
	GPUVEC_INJECTION("search-before-map");
	MirrorVisibilityTakeMap(visibility, state.refresh);
	return true;
}

/* Drop a private mirror */
static void
drop_private(MirrorTarget *target)
{
	gpuvec_drop drop;
	GpuvecPiece piece = {&drop, sizeof(drop)};
	GpuvecReply reply;

	memset(&drop, 0, sizeof(drop));
	drop.database = target->key.database;
	drop.relation = target->key.relation;
	drop.attnum = target->key.attnum;
	drop.private_id = target->key.private_id;
	if (GpuvecLinkCall(GPUVEC_MSG_DROP, &piece, 1, GPUVEC_MSG_COUNT, sizeof(uint64), &reply))
		pfree(reply.data);
}

/*
 * How fresh has the mirror to be for a search that begins now?  Returns its state if this
 * session's own last search shows that it is not: then it is to be refreshed first.
 */
static const gpuvec_state *
how_fresh(MirrorTarget *target, bool roots, gpuvec_freshness *need)
{
	Known	   *known;

	/* what it was in the end; if the connection is lost, the next request will see */
	(void) GpuvecLinkSettle();
	known = known_mirror(&target->key);
	/* a feed does not tell of what the visibility map has to be trusted for */
	if (roots && target->fed)
		FeedRead(target->index, target->build, need);
	need->position = need->feed ? MirrorPosition() : position_needed(target);
	if (known == NULL || known->generation != GpuvecLinkGeneration() ||
		gpuvec_fresh(&known->state, need))
		return NULL;
	return &known->state;
}

/* The same, but the mirror is refreshed at once.  False: the connection was lost. */
bool
MirrorHowFresh(MirrorTarget *target, Snapshot snapshot, bool roots, gpuvec_freshness *need)
{
	const gpuvec_state *behind = how_fresh(target, roots, need);
	gpuvec_state state;

	if (behind == NULL)
		return true;
	if (!MirrorEnsure(target, snapshot, need, behind, NULL, &state))
		return false;
	MirrorRemember(&target->key, &state);
	return true;
}

/* Search once.  False: the connection was lost. */
static bool
try_topk(MirrorTarget *target, MirrorSearch *search)
{
	MirrorVisibility *visibility = MirrorVisibilityBegin(target, search->snapshot);
	uint64		ask = search->k == UINT64_MAX ? FIRST_ALL_ROWS :
		search->among ? Min(MirrorRowsToLookAt(search, search->k), GPUVEC_MAX_K) :
		Min(search->k, GPUVEC_MAX_K);
	uint32		group = Max(ANSWER_HITS / ask, 1);
	gpuvec_freshness need = {0};
	const gpuvec_state *behind = NULL;
	bool		ok;

	PredicateLockRelation(target->rel, search->snapshot);
	ok = take_map(target, search, visibility);
	GPUVEC_INJECTION("search-before-position");
	if (ok && target->mode == MIRROR_SHARED)
		behind = how_fresh(target, search->roots, &need);
	for (uint32 first = 0; ok && first < search->nqueries; first += group)
		ok = search_group(target, search, visibility, need, first == 0 ? behind : NULL, first,
						  Min(first + group, search->nqueries));
	if (ok && target->mode == MIRROR_PRIVATE)
		drop_private(target);
	MirrorVisibilityEnd(visibility);
	return ok;
}

/* Forget what queries have found so far */
static void
reset_queries(MirrorSearch *search)
{
	for (uint32 i = 0; i < search->nqueries; i++)
	{
		MirrorQuery *query = &search->queries[i];

		query->nhits = query->maxhits = 0;
		query->hits = NULL;
		query->done = query->skip;
		query->abandoned = false;
		query->looked = 0;
		query->has_after = query->resumes;
		query->after_score = query->resume_score;
		query->after_tid = query->resume_tid;
	}
}

/*
 * The k best rows of the target for all queries.  If the engine dies
 * meanwhile, the mirror is loaded into the next one and searched again, once.
 * Returns false, with a reason, if there is no engine, or it cannot serve
 * this.  A private mirror goes with its connection.
 */
bool
MirrorTopK(MirrorTarget *target, MirrorSearch *search, const char **reason)
{
	for (int attempt = 0; attempt < 2; attempt++)
	{
		if (GpuvecLinkOpen(true, reason) != GPUVEC_LINK_READY)
			return false;
		reset_queries(search);
		if (try_topk(target, search))
			return true;
		if (target->mode == MIRROR_PRIVATE || !MirrorRefused(reason))
			GpuvecLinkClose();
		if (MirrorRefused(reason))
			return false;
	}
	MirrorRefuseLost(target, reason);
	return false;
}

/*
 * Load or refresh a mirror, whatever was refused before.  Returns false, with
 * a reason, without an engine; that it cannot is an error.
 */
bool
MirrorPrewarm(MirrorTarget *target, Snapshot snapshot, uint64 *nrows, const char **reason)
{
	for (int attempt = 0; attempt < 2; attempt++)
	{
		gpuvec_freshness need;
		gpuvec_state state;

		if (GpuvecLinkOpen(true, reason) != GPUVEC_LINK_READY)
			return false;
		need = (gpuvec_freshness) {.position = MirrorPosition()};
		FactsForgetRefusal(&target->key);
		if (MirrorEnsure(target, snapshot, &need, NULL, NULL, &state))
		{
			*nrows = state.nrows;
			FactsNoteState(&target->key, &state);
			return true;
		}
		if (MirrorRefused(reason))
			GpuvecLinkRaiseRefusal();
		GpuvecLinkClose();
	}
	MirrorRefuseLost(target, reason);
	GpuvecLinkRaiseRefusal();
	return false;
}
