/*-------------------------------------------------------------------------
 *
 * search_partitions.c
 *	  The mirrors of several relations, searched by one request.
 *
 * For each relation a conversation begins as for a search of it alone: what
 * makes the answers exact is said of each mirror by itself (conversation.c).
 * Then one request names all mirrors, and how fresh each has to be.  A mirror
 * that is known to be behind is refreshed first.  One that waits for rows of
 * the feed only keeps its place, as the engine knows lists of mirrors that are
 * searched together (sets/compound.c).  It is searched alone, as is one that
 * turns out not to be as fresh.  But if most turn out so, as where a session
 * asks for the first time, the request is repeated.
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
#include "mirror/ask/search_partitions.h"
#include "mirror/ask/search_request.h"
#include "mirror/describe/usage.h"
#include "mirror/fresh/known.h"
#include "mirror/fresh/load_targets.h"

/* Where a query's rows end */
typedef struct PartitionsCut
{
	uint64		n;				/* rows of all partitions */
	bool		is_cut;			/* as many as were asked for */
	MirrorHit	last;			/* the last row, ... */
	int			target;			/* ... and where it is from */
} PartitionsCut;

/* The mirror of a target */
typedef struct Partition
{
	MirrorConversation conversation;
	bool		open;			/* the conversation is */
	bool		known;			/* the answer counts */
	MirrorSearchAnswer answer;
} Partition;

struct MirrorPartitions
{
	Partition  *partitions;		/* [ntargets] */
	int			ntargets;
	int			nopen;			/* partitions that are to be searched */
	MirrorSearchRequest request;
	gpuvec_search_partitions head;
	gpuvec_search_weights weights;	/* of tversky: sent with the head */
	gpuvec_search_partition *wire;	/* [head.npartitions] */
	int		   *whose;			/* [head.npartitions] their targets */
	PartitionsCut *cuts;		/* [request.n] */
	uint32	   *numbers;		/* [search->nqueries] of queries in the
								 * request */
};

/* Attempts to begin all conversations with one engine */
#define OPEN_ATTEMPTS	2

/* Requests for the same, if most mirrors turn out to be behind */
#define ASK_ATTEMPTS	2

/* A query of the search that was not sent */
#define NOT_SENT	PG_UINT32_MAX

uint32
MirrorPartitionsGroup(const MirrorSearch *search, uint32 first)
{
	return MirrorSearchGroup(search, first, search->k == UINT64_MAX ? MIRROR_FIRST_ALL_ROWS :
							 Min(search->k, GPUVEC_MAX_K));
}

/* End the conversation about a partition, if it is open */
static void
close_partition(Partition *partition)
{
	const char *reason;

	if (partition->open)
		(void) MirrorConversationEnd(&partition->conversation, true, &reason);
	partition->open = false;
}

/*
 * Begin the conversation about a target.  Leaves it out if its mirror is not
 * shared, and has the engine search nothing if that is known to be behind.
 * False: there is no engine.
 */
static bool
open_partition(MirrorPartitions *partitions, int number, MirrorTarget *target, const MirrorSearch *search)
{
	static const gpuvec_freshness never = {.position = PG_UINT64_MAX};
	Partition  *partition = &partitions->partitions[number];
	gpuvec_search_partition *wire = &partitions->wire[partitions->head.npartitions];
	const char *reason;

	if (target->mode != MIRROR_SHARED || partitions->head.npartitions == GPUVEC_MAX_PARTITIONS)
		return true;
	memset(&partition->conversation, 0, sizeof(partition->conversation));
	partition->conversation.target = target;
	partition->conversation.snapshot = search->snapshot;
	partition->conversation.queries = search->nqueries;
	partition->conversation.roots = search->roots;
	partition->conversation.use_map = !search->roots && !gpuvec_verify;
	partition->conversation.no_load = true; /* load_absent() loads all */
	partition->conversation.rows = (double) Min(search->k, MIRROR_FIRST_ALL_ROWS) * search->nqueries /
		partitions->ntargets;
	if (!MirrorConversationBegin(&partition->conversation, &reason))
		return false;
	partition->open = true;
	if (!MirrorConversationCatchUp(&partition->conversation))
		return false;
	wire->key = target->key;
	wire->known = partition->conversation.known;
	if (MirrorConversationNeed(&partition->conversation, &wire->need))
		partitions->nopen++;
	else
	{
		wire->need = never;
		close_partition(partition);
	}
	partitions->whose[partitions->head.npartitions++] = number;
	return true;
}

/* Begin all conversations.  False: there is no engine. */
static bool
open_all(MirrorPartitions *partitions, MirrorTarget *targets, const MirrorSearch *search)
{
	for (int i = 0; i < partitions->ntargets; i++)
		if (!open_partition(partitions, i, &targets[i], search))
			return false;
	return true;
}

/*
 * Begin all conversations, with one engine: the numbers of refreshes that were
 * known with another one mean nothing to it.  False: that fails, or too few go
 * together.
 */
static bool
open_partitions(MirrorPartitions *partitions, MirrorTarget *targets, const MirrorSearch *search)
{
	for (int attempt = 0; attempt < OPEN_ATTEMPTS; attempt++)
	{
		const char *reason;
		uint64		generation;

		if (GpuvecLinkOpen(true, &reason) != GPUVEC_LINK_READY)
			return false;
		generation = GpuvecLinkGeneration();
		partitions->head.npartitions = partitions->nopen = 0;
		if (!open_all(partitions, targets, search))
			return false;
		if (GpuvecLinkGeneration() == generation)
			return partitions->nopen > 1;
		for (int i = 0; i < partitions->ntargets; i++)
			close_partition(&partitions->partitions[i]);
	}
	return false;
}

/* Make the request of the queries that want rows, and number them */
static void
make_queries(MirrorPartitions *partitions, MirrorSearch *search, uint32 times)
{
	MirrorSearchRequest *request = &partitions->request;
	const gpuvec_tversky *tversky = &search->scoring.tversky;

	MirrorSearchQueries(request, search, 0, search->nqueries, MIRROR_FIRST_ALL_ROWS);
	for (uint32 i = 0, n = 0; i < search->nqueries; i++)
		partitions->numbers[i] = search->queries[i].done ? NOT_SENT : n++;
	for (uint32 i = 0; i < request->n; i++)
		request->queries[i].k = Min((uint64) request->queries[i].k * times, GPUVEC_MAX_K);
	partitions->head.measure = search->scoring.measure;
	partitions->head.method = gpuvec_method_choice;
	partitions->head.nqueries = request->n;
	partitions->head.nids = request->nids;
	partitions->weights.alpha = gpuvec_given_weight(tversky, tversky->alpha);
	partitions->weights.beta = gpuvec_given_weight(tversky, tversky->beta);
}

/* Send the request, and read its answer */
static bool
ask(MirrorPartitions *partitions, const MirrorSearch *search, GpuvecReply *reply)
{
	MirrorSearchRequest *request = &partitions->request;
	GpuvecPiece pieces[] = {
		{&partitions->head, sizeof(partitions->head)},
		{&partitions->weights, search->scoring.measure == GPUVEC_TVERSKY ? sizeof(partitions->weights) : 0},
		{partitions->wire, partitions->head.npartitions * sizeof(gpuvec_search_partition)},
		{request->queries, request->n * sizeof(gpuvec_query)},
		{request->ids, request->nids * sizeof(uint16)}
	};

	GPUVEC_INJECTION("ask-before-request");
	return GpuvecLinkCall(GPUVEC_MSG_SEARCH_PARTITIONS, pieces, lengthof(pieces),
						  GPUVEC_MSG_PARTITIONS_RESULT, sizeof(gpuvec_result), reply);
}

static void
refuse_answer(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROTOCOL_VIOLATION),
			 errmsg("invalid message from the gpuvec engine")));
}

/* Read what the answer has of a partition, at `at`; returns its bytes */
static Size
read_partition(MirrorPartitions *partitions, Partition *partition, char *at, Size left)
{
	MirrorSearchAnswer *answer = &partition->answer;
	Size		size;

	if (left < sizeof(gpuvec_result))
		refuse_answer();
	memcpy(&answer->head, at, sizeof(gpuvec_result));
	if ((answer->head.nqueries != 0 && answer->head.nqueries != partitions->request.n) ||
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

/* Note the rows of a partition, whose relation comes behind those before */
static void
note_cuts(MirrorPartitions *partitions, int target)
{
	const MirrorSearchAnswer *answer = &partitions->partitions[target].answer;
	const MirrorHit *hits = answer->hits;
	uint64		left = answer->head.nhits;

	for (uint32 i = 0; i < answer->head.nqueries; i++)
	{
		PartitionsCut *cut = &partitions->cuts[i];
		uint32		n = MirrorSearchAnswerHits(answer, i);

		if (n == 0)
			continue;
		if (n > left || cut->n + n > partitions->request.queries[i].k)
			refuse_answer();
		left -= n;
		hits += n;
		if (cut->n == 0 || hits[-1].score <= cut->last.score)
		{
			cut->last = hits[-1];
			cut->target = target;
		}
		cut->n += n;
		cut->is_cut = cut->n == partitions->request.queries[i].k;
	}
	if (left > 0)
		refuse_answer();
}

/*
 * What a partition has given, as if it had been asked for that alone: all rows
 * with the score of the cut or a greater one.  Of the cut's own partition, rows behind the cut may be
 * missing; those that are laid over it there are dropped later
 * (MirrorTakePartition).
 */
static void
restrict_questions(const MirrorPartitions *partitions, int target, gpuvec_query *sent)
{
	for (uint32 i = 0; i < partitions->request.n; i++)
	{
		const PartitionsCut *cut = &partitions->cuts[i];
		double		least = cut->target >= target ? cut->last.score :
			nextafter(cut->last.score, INFINITY);

		sent[i] = partitions->request.queries[i];
		sent[i].k = GPUVEC_ALL_ROWS - 1;
		if (!cut->is_cut)
			continue;
		if ((sent[i].flags & GPUVEC_QUERY_MIN_SCORE) == 0 || least > sent[i].min_score)
			sent[i].min_score = least;
		sent[i].flags |= GPUVEC_QUERY_MIN_SCORE;
	}
}

/* Take the answer of a partition, with what is laid over it */
static void
take_partition(MirrorPartitions *partitions, int target, const MirrorSearch *search)
{
	Partition  *partition = &partitions->partitions[target];
	MirrorRequest request = {.context = search->context};
	gpuvec_query *sent;
	MirrorQuestion *questions;
	char	   *data;

	if (partition->conversation.tail == NULL)
	{
		partition->known = MirrorTakeReply(&partition->conversation, &request, &partition->answer.reply);
		return;
	}
	/* the answer with other rows takes the place of a copy */
	data = MemoryContextAllocHuge(search->context, partition->answer.reply.length);
	memcpy(data, partition->answer.reply.data, partition->answer.reply.length);
	partition->answer.reply.data = data;
	sent = palloc_array(gpuvec_query, partitions->request.n);
	questions = palloc_array(MirrorQuestion, partitions->request.n);
	restrict_questions(partitions, target, sent);
	for (uint32 i = 0; i < partitions->request.n; i++)
	{
		questions[i] = partitions->request.questions[i];
		questions[i].sent = &sent[i];
		questions[i].nfilters = partition->conversation.target->key.nfilters;
	}
	request.questions = questions;
	request.nquestions = partitions->request.n;
	partition->known = partition->answer.head.nqueries > 0 &&
		MirrorTakeReply(&partition->conversation, &request, &partition->answer.reply);
	if (partition->known)
		MirrorSearchAnswerRead(&partition->answer);
	pfree(questions);
	pfree(sent);
}

/* Take the answers of all partitions */
static void
take_partitions(MirrorPartitions *partitions, MirrorSearch *search, const GpuvecReply *reply)
{
	char	   *at = reply->data;
	Size		left = reply->length;

	for (uint32 i = 0; i < partitions->head.npartitions; i++)
	{
		Partition  *partition = &partitions->partitions[partitions->whose[i]];
		Size		size = read_partition(partitions, partition, at, left);

		at += size;
		left -= size;
		note_cuts(partitions, partitions->whose[i]);
		search->engine_us += partition->answer.head.engine_us;
		MirrorUsed.rows += partition->answer.head.state.nrows * partition->answer.head.nqueries;
		MirrorUsed.engine_us += partition->answer.head.engine_us;
		MirrorUsageWays(partition->answer.head.ways);
	}
	if (left > 0)
		refuse_answer();
	MirrorUsed.requests++;
	for (uint32 i = 0; i < partitions->head.npartitions; i++)
		if (partitions->partitions[partitions->whose[i]].open)
			take_partition(partitions, partitions->whose[i], search);
}

/*
 * Load the mirrors that the engine does not have.  Each is then searched
 * alone, as one that is not fresh.
 */
static void
load_absent(MirrorPartitions *partitions, MirrorTarget *targets, const MirrorSearch *search)
{
	MirrorTarget **absent = palloc_array(MirrorTarget *, partitions->head.npartitions);
	int			n = 0;

	for (uint32 i = 0; i < partitions->head.npartitions; i++)
		if (partitions->partitions[partitions->whose[i]].answer.head.state.state == GPUVEC_ABSENT)
			absent[n++] = &targets[partitions->whose[i]];
	LoadTargets(absent, n, search->snapshot);
	pfree(absent);
}

/* True if a mirror that was to be searched is not fresh enough */
static bool
turned_out_behind(const Partition *partition)
{
	return partition->open && !partition->known && partition->answer.head.state.state == GPUVEC_READY;
}

/*
 * True if most mirrors that were to be searched turned out to be behind.  That
 * is remembered, so that another request begins with refreshing them.
 */
static bool
most_are_behind(const MirrorPartitions *partitions)
{
	int			behind = 0;

	for (int i = 0; i < partitions->ntargets; i++)
		behind += turned_out_behind(&partitions->partitions[i]);
	if (behind < 2 || behind * 2 <= partitions->nopen)
		return false;
	for (int i = 0; i < partitions->ntargets; i++)
	{
		const Partition *partition = &partitions->partitions[i];

		if (turned_out_behind(partition))
			MirrorRemember(&partition->conversation.target->key, &partition->answer.head.state);
	}
	return true;
}

/* Ask the engine.  False: that is not possible, or does not pay. */
static bool
ask_all(MirrorPartitions *partitions, MirrorTarget *targets, MirrorSearch *search, uint32 times)
{
	GpuvecReply reply;

	MirrorSearchReset(search);
	if (!open_partitions(partitions, targets, search))
		return false;
	make_queries(partitions, search, times);
	partitions->cuts = palloc0_array(PartitionsCut, partitions->request.n);
	if (!ask(partitions, search, &reply))
		return false;
	take_partitions(partitions, search, &reply);
	return true;
}

MirrorPartitions *
MirrorPartitionsSearch(MirrorTarget *targets, int ntargets, MirrorSearch *search, uint32 times)
{
	MirrorPartitions *partitions = palloc0_object(MirrorPartitions);

	partitions->ntargets = ntargets;
	partitions->head.xmin = MirrorSnapshotXmin(search->snapshot);
	partitions->partitions = palloc0_array(Partition, ntargets);
	partitions->wire = palloc0_array(gpuvec_search_partition, ntargets);
	partitions->whose = palloc_array(int, ntargets);
	partitions->numbers = palloc_array(uint32, search->nqueries);
	for (int attempt = 0; attempt < ASK_ATTEMPTS; attempt++)
	{
		bool		ok = ask_all(partitions, targets, search, times);

		if (ok && (attempt + 1 == ASK_ATTEMPTS || !most_are_behind(partitions)))
		{
			load_absent(partitions, targets, search);
			return partitions;
		}
		MirrorPartitionsEnd(partitions);
		if (!ok)
			break;
		memset(partitions->partitions, 0, ntargets * sizeof(Partition));
	}
	return NULL;
}

bool
MirrorPartitionsAllKnown(const MirrorPartitions *partitions)
{
	for (int i = 0; i < partitions->ntargets; i++)
		if (!partitions->partitions[i].known)
			return false;
	return true;
}

uint64
MirrorPartitionsHits(const MirrorPartitions *partitions, uint32 query)
{
	uint32		number = partitions->numbers[query];

	return number == NOT_SENT ? 0 : partitions->cuts[number].n;
}

bool
MirrorPartitionsCut(const MirrorPartitions *partitions, uint32 query, double *score, int *target)
{
	const PartitionsCut *cut = &partitions->cuts[partitions->numbers[query]];

	*score = cut->last.score;
	*target = cut->target;
	return cut->is_cut;
}

bool
MirrorPartitionsTake(MirrorPartitions *partitions, int target, MirrorSearch *search,
					 uint32 *with, uint32 *nwith)
{
	Partition  *partition = &partitions->partitions[target];
	MirrorHit  *hits = partition->answer.hits;

	if (with)
		*nwith = 0;
	if (!partition->known)
	{
		close_partition(partition);
		return false;
	}
	GPUVEC_INJECTION("ask-before-fetch");
	for (uint32 i = 0; i < search->nqueries; i++)
	{
		const PartitionsCut *cut;
		uint32		n;

		if (partitions->numbers[i] == NOT_SENT)
			continue;
		n = MirrorSearchAnswerHits(&partition->answer, partitions->numbers[i]);
		if (n == 0)
			continue;
		cut = &partitions->cuts[partitions->numbers[i]];
		if (!search->queries[i].skip)
			MirrorTakePartition(partition->conversation.target, search, &search->queries[i],
								partition->conversation.visibility, hits, n,
								cut->is_cut && cut->target == target ? &cut->last : NULL);
		if (with)
			with[(*nwith)++] = i;
		hits += n;
	}
	close_partition(partition);
	return true;
}

bool
MirrorPartitionsComplete(const MirrorPartitions *partitions, const MirrorSearch *search, uint32 query,
						 uint64 n, const MirrorHit *last, int target)
{
	const PartitionsCut *cut;

	if (partitions->numbers[query] == NOT_SENT)
		return true;
	cut = &partitions->cuts[partitions->numbers[query]];
	if (!cut->is_cut)
		return true;
	if (n < search->k)
		return false;
	return partitions->partitions[target].known || last->score > cut->last.score ||
		(last->score == cut->last.score && target < cut->target);
}

void
MirrorPartitionsEnd(MirrorPartitions *partitions)
{
	for (int i = 0; i < partitions->ntargets; i++)
		close_partition(&partitions->partitions[i]);
}
