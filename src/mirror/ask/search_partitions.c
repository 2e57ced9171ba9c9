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
 * Mirrors that are absent are loaded before their turn comes: several at the
 * same time, if they are small (load_targets.c).
 *
 * partitions_answer.c reads the answer.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "mirror/ask/partitions_answer.h"
#include "mirror/fresh/known.h"
#include "mirror/fresh/load_targets.h"

/* Attempts to begin all conversations with one engine */
#define OPEN_ATTEMPTS	2

/* Requests for the same, if most mirrors turn out to be behind */
#define ASK_ATTEMPTS	2

uint32
MirrorPartitionsGroup(const MirrorSearch *search, uint32 first)
{
	return MirrorSearchGroup(search, first, search->k == UINT64_MAX ? MIRROR_FIRST_ALL_ROWS :
							 Min(search->k, GPUVEC_MAX_K));
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
		PartitionClose(partition);
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
			PartitionClose(&partitions->partitions[i]);
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
	partitions->sent = palloc_array(uint32, Max(request->n, 1));
	for (uint32 i = 0, n = 0; i < search->nqueries; i++)
	{
		partitions->numbers[i] = search->queries[i].done ? NOT_SENT : n;
		if (!search->queries[i].done)
			partitions->sent[n++] = i;
	}
	for (uint32 i = 0; i < request->n; i++)
		request->queries[i].k = Min((uint64) request->queries[i].k * times, GPUVEC_MAX_K);
	partitions->head.measure = gpuvec_wire_measure(search->scoring);
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
		{request->values, request->nvalues * sizeof(float)},
		{request->ids, request->nids * sizeof(uint16)}
	};

	GPUVEC_INJECTION("ask-before-request");
	return GpuvecLinkCall(GPUVEC_MSG_SEARCH_PARTITIONS, pieces, lengthof(pieces),
						  GPUVEC_MSG_PARTITIONS_RESULT, sizeof(gpuvec_result), reply);
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
		if (partitions->partitions[partitions->whose[i]].head.state.state == GPUVEC_ABSENT)
			absent[n++] = &targets[partitions->whose[i]];
	LoadTargets(absent, n, search->snapshot);
	pfree(absent);
}

/* True if a mirror that was to be searched is not fresh enough */
static bool
turned_out_behind(const Partition *partition)
{
	return partition->open && !partition->known && partition->head.state.state == GPUVEC_READY;
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
			MirrorRemember(&partition->conversation.target->key, &partition->head.state);
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
	PartitionsTakeAnswer(partitions, search, &reply);
	return true;
}

MirrorPartitions *
MirrorPartitionsSearch(MirrorTarget *targets, int ntargets, MirrorSearch *search, uint32 times)
{
	MirrorPartitions *partitions = palloc0_object(MirrorPartitions);

	partitions->context = CurrentMemoryContext;
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
		partitions->dealt = false;
	}
	return NULL;
}

void
MirrorPartitionsEnd(MirrorPartitions *partitions)
{
	for (int i = 0; i < partitions->ntargets; i++)
		PartitionClose(&partitions->partitions[i]);
}
