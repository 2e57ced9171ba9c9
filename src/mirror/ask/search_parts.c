/*-------------------------------------------------------------------------
 *
 * search_parts.c
 *	  The mirrors of several relations, searched by one request.
 *
 * For each relation a conversation begins as for a search of it alone: what
 * makes the answers exact is said of each mirror by itself (conversation.c).
 * Then one request names all mirrors, and how fresh each has to be.  A mirror
 * that is known to be behind only keeps its place, as the engine knows lists
 * of mirrors that are searched together (sets/compound.c).  It is searched
 * alone, as is one that turns out not to be as fresh.
 *
 * The engine returns the n best rows of all mirrors that it has searched, in
 * the order (score descending, relation, tid).  These are the best rows of
 * each mirror, without a gap, down to the last row of all, the cut.  So if n
 * rows came, each mirror has given
 *
 *	 - all rows of at least the cut's score, if its relation comes before the
 *	   cut's;
 *	 - all rows of a greater score, if it comes behind;
 *	 - the rows up to the cut, if it is the cut's.
 *
 * If fewer came, the mirrors have given all rows.  Rows that an index has
 * handed over since are laid over each mirror's rows (tail.c), and those of
 * them that rank behind the cut are dropped.
 *
 * Mirrors that are absent are loaded before their turn comes: several at the
 * same time, if they are small (load_targets.c).
 *
 * Rows that the snapshot does not see are dropped.  What is left are all rows
 * of these relations before the cut.  So a query's answer is known if its
 * k-th row comes before the cut, whatever relation that is from, or if there
 * was no cut.  Otherwise the query has to be searched again.
 *
 * Functions return the rows of a rooted mirror in the order of their own
 * tids, and the engine ranks them by their roots (candidates.h).  If the cut
 * is within a group, all its rows are dropped, so the group is behind the
 * cut.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "mirror/ask/candidates.h"
#include "mirror/ask/search_parts.h"
#include "mirror/ask/search_request.h"
#include "mirror/describe/usage.h"
#include "mirror/fresh/load_targets.h"

/* Where a query's rows end */
typedef struct PartsCut
{
	uint64		n;				/* rows of all parts */
	bool		is_cut;			/* as many as were asked for */
	MirrorHit	last;			/* the last row, ... */
	int			target;			/* ... and where it is from */
} PartsCut;

/* The mirror of a target */
typedef struct Part
{
	MirrorConversation talk;
	bool		open;			/* the conversation is */
	bool		known;			/* the answer counts */
	MirrorSearchAnswer answer;
} Part;

struct MirrorParts
{
	Part	   *parts;			/* [ntargets] */
	int			ntargets;
	int			nopen;			/* parts that are to be searched */
	MirrorSearchRequest request;
	gpuvec_search_parts head;
	gpuvec_search_weights weights;	/* of tversky: sent with the head */
	gpuvec_search_part *wire;	/* [head.nparts] */
	int		   *whose;			/* [head.nparts] their targets */
	PartsCut   *cuts;			/* [request.n] */
	uint32	   *numbers;		/* [search->nqueries] of queries in the
								 * request */
};

/* Attempts to begin all conversations with one engine */
#define OPEN_ATTEMPTS	2

/* A query of the search that was not sent */
#define NOT_SENT	PG_UINT32_MAX

uint32
MirrorPartsGroup(const MirrorSearch *search, uint32 first)
{
	return MirrorSearchGroup(search, first, search->k == UINT64_MAX ? MIRROR_FIRST_ALL_ROWS :
							 Min(search->k, GPUVEC_MAX_K));
}

/* End the conversation about a part, if it is open */
static void
close_part(Part *part)
{
	const char *reason;

	if (part->open)
		(void) MirrorConversationEnd(&part->talk, true, &reason);
	part->open = false;
}

/*
 * Begin the conversation about a target.  Leaves it out if its mirror is not
 * shared, and has the engine search nothing if that is known to be behind.
 * False: there is no engine.
 */
static bool
open_part(MirrorParts *parts, int number, MirrorTarget *target, const MirrorSearch *search)
{
	static const gpuvec_freshness never = {.position = PG_UINT64_MAX};
	Part	   *part = &parts->parts[number];
	gpuvec_search_part *wire = &parts->wire[parts->head.nparts];
	const char *reason;

	if (target->mode != MIRROR_SHARED || parts->head.nparts == GPUVEC_MAX_PARTS)
		return true;
	memset(&part->talk, 0, sizeof(part->talk));
	part->talk.target = target;
	part->talk.snapshot = search->snapshot;
	part->talk.queries = search->nqueries;
	part->talk.roots = search->roots;
	part->talk.use_map = !search->roots && !gpuvec_verify;
	part->talk.no_load = true;	/* load_absent() does, all of them */
	part->talk.rows = (double) Min(search->k, MIRROR_FIRST_ALL_ROWS) * search->nqueries /
		parts->ntargets;
	if (!MirrorConversationBegin(&part->talk, &reason))
		return false;
	part->open = true;
	wire->key = target->key;
	wire->known = part->talk.known;
	if (MirrorConversationNeed(&part->talk, &wire->need))
		parts->nopen++;
	else
	{
		wire->need = never;
		close_part(part);
	}
	parts->whose[parts->head.nparts++] = number;
	return true;
}

/* Begin all conversations.  False: there is no engine. */
static bool
open_all(MirrorParts *parts, MirrorTarget *targets, const MirrorSearch *search)
{
	for (int i = 0; i < parts->ntargets; i++)
		if (!open_part(parts, i, &targets[i], search))
			return false;
	return true;
}

/*
 * Begin all conversations, with one engine: the numbers of refreshes that were
 * known with another one mean nothing to it.  False: that fails, or too few go
 * together.
 */
static bool
open_parts(MirrorParts *parts, MirrorTarget *targets, const MirrorSearch *search)
{
	for (int attempt = 0; attempt < OPEN_ATTEMPTS; attempt++)
	{
		const char *reason;
		uint64		generation;

		if (GpuvecLinkOpen(true, &reason) != GPUVEC_LINK_READY)
			return false;
		generation = GpuvecLinkGeneration();
		parts->head.nparts = parts->nopen = 0;
		if (!open_all(parts, targets, search))
			return false;
		if (GpuvecLinkGeneration() == generation)
			return parts->nopen > 1;
		for (int i = 0; i < parts->ntargets; i++)
			close_part(&parts->parts[i]);
	}
	return false;
}

/* Make the request of the queries that want rows, and number them */
static void
make_queries(MirrorParts *parts, MirrorSearch *search, uint32 times)
{
	MirrorSearchRequest *request = &parts->request;
	const gpuvec_tversky *tversky = &search->scoring.tversky;

	MirrorSearchQueries(request, search, 0, search->nqueries, MIRROR_FIRST_ALL_ROWS);
	for (uint32 i = 0, n = 0; i < search->nqueries; i++)
		parts->numbers[i] = search->queries[i].done ? NOT_SENT : n++;
	for (uint32 i = 0; i < request->n; i++)
		request->queries[i].k = Min(times == MIRROR_PARTS_EACH ? search->k :
									(uint64) request->queries[i].k * times, GPUVEC_MAX_K);
	parts->head.measure = search->scoring.measure;
	parts->head.method = gpuvec_method_choice;
	parts->head.nqueries = request->n;
	parts->head.together = times != MIRROR_PARTS_EACH;
	parts->head.nids = request->nids;
	parts->weights.alpha = gpuvec_given_weight(tversky, tversky->alpha);
	parts->weights.beta = gpuvec_given_weight(tversky, tversky->beta);
}

/* Send the request, and read its answer */
static bool
ask(MirrorParts *parts, const MirrorSearch *search, GpuvecReply *reply)
{
	MirrorSearchRequest *request = &parts->request;
	GpuvecPiece pieces[] = {
		{&parts->head, sizeof(parts->head)},
		{&parts->weights, search->scoring.measure == GPUVEC_TVERSKY ? sizeof(parts->weights) : 0},
		{parts->wire, parts->head.nparts * sizeof(gpuvec_search_part)},
		{request->queries, request->n * sizeof(gpuvec_query)},
		{request->ids, request->nids * sizeof(uint16)}
	};

	GPUVEC_INJECTION("ask-before-request");
	return GpuvecLinkCall(GPUVEC_MSG_SEARCH_PARTS, pieces, lengthof(pieces),
						  GPUVEC_MSG_PARTS_RESULT, sizeof(gpuvec_result), reply);
}

static void
refuse_answer(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROTOCOL_VIOLATION),
			 errmsg("invalid message from the gpuvec engine")));
}

/* Read what the answer has of a part, at `at`; returns its bytes */
static Size
read_part(MirrorParts *parts, Part *part, char *at, Size left)
{
	MirrorSearchAnswer *answer = &part->answer;
	Size		size;

	if (left < sizeof(gpuvec_result))
		refuse_answer();
	memcpy(&answer->head, at, sizeof(gpuvec_result));
	if ((answer->head.nqueries != 0 && answer->head.nqueries != parts->request.n) ||
		answer->head.npassed != 0 || answer->head.page_bytes != 0 || answer->head.nhits > left / sizeof(gpuvec_hit))
		refuse_answer();
	size = MirrorSearchAnswerBytes(answer->head.nqueries, 0, answer->head.nhits);
	if (size > left)
		refuse_answer();
	answer->reply.data = at;
	answer->reply.length = size;
	MirrorSearchAnswerRead(answer);
	return size;
}

/* Note the rows of a part, whose relation comes behind those before */
static void
note_cuts(MirrorParts *parts, int target)
{
	const MirrorSearchAnswer *answer = &parts->parts[target].answer;
	const MirrorHit *hits = answer->hits;
	uint64		left = answer->head.nhits;

	for (uint32 i = 0; i < answer->head.nqueries; i++)
	{
		PartsCut   *cut = &parts->cuts[i];
		uint32		n = MirrorSearchAnswerHits(answer, i);

		if (n > left || cut->n + n > parts->request.queries[i].k)
			refuse_answer();
		left -= n;
		hits += n;
		if (!parts->head.together)
			continue;
		if (n > 0 && (cut->n == 0 || hits[-1].score <= cut->last.score))
		{
			cut->last = hits[-1];
			cut->target = target;
		}
		cut->n += n;
		cut->is_cut = cut->n == parts->request.queries[i].k;
	}
	if (left > 0)
		refuse_answer();
}

/*
 * What a part has given, as if it had been asked for that alone (it was if
 * parts do not rank together): all rows with the score of the cut or a greater
 * one.  Of the cut's own part, rows behind the cut may be missing; those that
 * are laid over it there are dropped later (MirrorTakePart).
 */
static void
restrict_questions(const MirrorParts *parts, int target, gpuvec_query *sent)
{
	for (uint32 i = 0; i < parts->request.n; i++)
	{
		const PartsCut *cut = &parts->cuts[i];
		double		least = cut->target >= target ? cut->last.score :
			nextafter(cut->last.score, INFINITY);

		sent[i] = parts->request.queries[i];
		if (!parts->head.together)
			continue;
		sent[i].k = GPUVEC_ALL_ROWS - 1;
		if (!cut->is_cut)
			continue;
		if ((sent[i].flags & GPUVEC_QUERY_MIN_SCORE) == 0 || least > sent[i].min_score)
			sent[i].min_score = least;
		sent[i].flags |= GPUVEC_QUERY_MIN_SCORE;
	}
}

/* Take the answer of a part, with what is laid over it */
static void
take_part(MirrorParts *parts, int target, const MirrorSearch *search)
{
	Part	   *part = &parts->parts[target];
	MirrorRequest request = {.context = search->context};
	gpuvec_query *sent;
	MirrorQuestion *questions;
	char	   *data;

	if (part->talk.tail == NULL)
	{
		part->known = MirrorTakeReply(&part->talk, &request, &part->answer.reply);
		return;
	}
	/* the answer with other rows takes the place of a copy */
	data = MemoryContextAllocHuge(search->context, part->answer.reply.length);
	memcpy(data, part->answer.reply.data, part->answer.reply.length);
	part->answer.reply.data = data;
	sent = palloc_array(gpuvec_query, parts->request.n);
	questions = palloc_array(MirrorQuestion, parts->request.n);
	restrict_questions(parts, target, sent);
	for (uint32 i = 0; i < parts->request.n; i++)
	{
		questions[i] = parts->request.questions[i];
		questions[i].sent = &sent[i];
		questions[i].nfilters = part->talk.target->key.nfilters;
	}
	request.questions = questions;
	request.nquestions = parts->request.n;
	part->known = part->answer.head.nqueries > 0 &&
		MirrorTakeReply(&part->talk, &request, &part->answer.reply);
	if (part->known)
		MirrorSearchAnswerRead(&part->answer);
	pfree(questions);
	pfree(sent);
}

/* Take the answers of all parts */
static void
take_parts(MirrorParts *parts, MirrorSearch *search, const GpuvecReply *reply)
{
	char	   *at = reply->data;
	Size		left = reply->length;

	for (uint32 i = 0; i < parts->head.nparts; i++)
	{
		Part	   *part = &parts->parts[parts->whose[i]];
		Size		size = read_part(parts, part, at, left);

		at += size;
		left -= size;
		note_cuts(parts, parts->whose[i]);
		search->engine_us += part->answer.head.engine_us;
		MirrorUsed.rows += part->answer.head.state.nrows * part->answer.head.nqueries;
		MirrorUsed.engine_us += part->answer.head.engine_us;
		MirrorUsageWays(part->answer.head.ways);
	}
	if (left > 0)
		refuse_answer();
	MirrorUsed.requests++;
	for (uint32 i = 0; i < parts->head.nparts; i++)
		if (parts->parts[parts->whose[i]].open)
			take_part(parts, parts->whose[i], search);
}

/*
 * Load the mirrors that the engine does not have.  Each is then searched
 * alone, as one that is not fresh.
 */
static void
load_absent(MirrorParts *parts, MirrorTarget *targets, const MirrorSearch *search)
{
	MirrorTarget **absent = palloc_array(MirrorTarget *, parts->head.nparts);
	int			n = 0;

	for (uint32 i = 0; i < parts->head.nparts; i++)
		if (parts->parts[parts->whose[i]].answer.head.state.state == GPUVEC_ABSENT)
			absent[n++] = &targets[parts->whose[i]];
	LoadTargets(absent, n, search->snapshot);
	pfree(absent);
}

MirrorParts *
MirrorPartsSearch(MirrorTarget *targets, int ntargets, MirrorSearch *search, uint32 times)
{
	MirrorParts *parts = palloc0_object(MirrorParts);
	GpuvecReply reply;
	bool		ok;

	parts->ntargets = ntargets;
	parts->head.xmin = MirrorSnapshotXmin(search->snapshot);
	parts->parts = palloc0_array(Part, ntargets);
	parts->wire = palloc0_array(gpuvec_search_part, ntargets);
	parts->whose = palloc_array(int, ntargets);
	parts->numbers = palloc_array(uint32, search->nqueries);
	MirrorSearchReset(search);
	ok = open_parts(parts, targets, search);
	if (ok)
	{
		make_queries(parts, search, times);
		parts->cuts = palloc0_array(PartsCut, parts->request.n);
		ok = ask(parts, search, &reply);
	}
	if (ok)
	{
		take_parts(parts, search, &reply);
		load_absent(parts, targets, search);
		return parts;
	}
	MirrorPartsEnd(parts);
	return NULL;
}

bool
MirrorPartsAllKnown(const MirrorParts *parts)
{
	for (int i = 0; i < parts->ntargets; i++)
		if (!parts->parts[i].known)
			return false;
	return true;
}

bool
MirrorPartsTake(MirrorParts *parts, int target, MirrorSearch *search)
{
	Part	   *part = &parts->parts[target];
	MirrorHit  *hits = part->answer.hits;

	if (!part->known)
	{
		close_part(part);
		return false;
	}
	GPUVEC_INJECTION("ask-before-fetch");
	for (uint32 i = 0; i < search->nqueries; i++)
	{
		const PartsCut *cut;
		uint32		n;

		if (parts->numbers[i] == NOT_SENT)
			continue;
		cut = &parts->cuts[parts->numbers[i]];
		n = MirrorSearchAnswerHits(&part->answer, parts->numbers[i]);
		if (!search->queries[i].skip)
			MirrorTakePart(part->talk.target, search, &search->queries[i],
						   part->talk.visibility, hits, n,
						   cut->is_cut && cut->target == target ? &cut->last : NULL);
		hits += n;
	}
	close_part(part);
	return true;
}

bool
MirrorPartsComplete(const MirrorParts *parts, const MirrorSearch *search, uint32 query,
					uint64 n, const MirrorHit *last, int target)
{
	const PartsCut *cut;

	if (parts->numbers[query] == NOT_SENT)
		return true;
	cut = &parts->cuts[parts->numbers[query]];
	if (!cut->is_cut)
		return true;
	if (n < search->k)
		return false;
	return parts->parts[target].known || last->score > cut->last.score ||
		(last->score == cut->last.score && target < cut->target);
}

void
MirrorPartsEnd(MirrorParts *parts)
{
	for (int i = 0; i < parts->ntargets; i++)
		close_part(&parts->parts[i]);
}
