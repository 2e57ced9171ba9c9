/*-------------------------------------------------------------------------
 *
 * partitions_answer.c
 *	  The mirrors of several relations, searched by one request: its answer.
 *
 * The engine returns the n best rows of all mirrors that it has searched, in
 * the order (score descending, relation, tid).  If all of them are fresh, and
 * nothing is laid over, that is the order of the answer.  Else the rows are
 * dealt to their mirrors.  These are the best rows of each mirror, without a
 * gap, down to the last row of all, the cut.  So if n
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
#include "mirror/ask/partitions_answer.h"
#include "mirror/ask/search_answer.h"
#include "mirror/describe/usage.h"

void
PartitionClose(Partition *partition)
{
	const char *reason;

	if (partition->open)
		(void) MirrorConversationEnd(&partition->conversation, true, &reason);
	partition->open = false;
}

static void
refuse_answer(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROTOCOL_VIOLATION),
			 errmsg("invalid message from the gpuvec engine")));
}

/* The partition of a row of the answer */
static inline int
target_of(const MirrorPartitions *partitions, uint64 hit)
{
	uint16		number;

	memcpy(&number, partitions->numbers_of + hit * sizeof(number), sizeof(number));
	return number < partitions->head.npartitions ? partitions->whose[number] : -1;
}

/* Read the heads of all partitions */
static void
read_heads(MirrorPartitions *partitions, const char *data)
{
	partitions->nhits = 0;
	for (uint32 i = 0; i < partitions->head.npartitions; i++)
	{
		gpuvec_result *head = &partitions->partitions[partitions->whose[i]].head;

		memcpy(head, data + i * sizeof(*head), sizeof(*head));
		if ((head->nqueries != 0 && head->nqueries != partitions->request.n) || head->npassed != 0 ||
			head->page_bytes != 0 || head->nhits > (head->nqueries > 0 ? GPUVEC_MAX_FRAME / sizeof(MirrorHit) : 0))
			refuse_answer();
		partitions->nhits += head->nhits;
	}
}

/* Note where the rows of each query end */
static void
read_counts(MirrorPartitions *partitions, const char *counts)
{
	uint64		first = 0;

	for (uint32 i = 0; i < partitions->request.n; i++)
	{
		PartitionsCut *cut = &partitions->cuts[i];
		uint32		n;

		memcpy(&n, counts + i * sizeof(n), sizeof(n));
		if (n > partitions->request.queries[i].k || n > partitions->nhits - first)
			refuse_answer();
		cut->first = first;
		cut->n = n;
		cut->is_cut = n > 0 && n == partitions->request.queries[i].k;
		first += n;
		if (n == 0)
			continue;
		cut->last = partitions->hits[first - 1];
		cut->target = target_of(partitions, first - 1);
	}
	if (first != partitions->nhits)
		refuse_answer();
}

/* Check which partitions the rows are from */
static void
check_targets(MirrorPartitions *partitions)
{
	for (int i = 0; i < partitions->ntargets; i++)
		partitions->partitions[i].nhits = 0;
	for (uint64 i = 0; i < partitions->nhits; i++)
	{
		int			target = target_of(partitions, i);

		GPUVEC_STEP(i);
		if (target < 0)
			refuse_answer();
		partitions->partitions[target].nhits++;
	}
	for (uint32 i = 0; i < partitions->head.npartitions; i++)
		if (partitions->partitions[partitions->whose[i]].nhits !=
			partitions->partitions[partitions->whose[i]].head.nhits)
			refuse_answer();
}

/* Read the answer, which stays where it is */
static void
read_answer(MirrorPartitions *partitions, const GpuvecReply *reply)
{
	Size		heads = partitions->head.npartitions * sizeof(gpuvec_result);
	Size		counts = MAXALIGN64(partitions->request.n * sizeof(uint32));

	if (reply->length < heads + counts)
		refuse_answer();
	read_heads(partitions, reply->data);
	if (reply->length != heads + counts + partitions->nhits * (sizeof(MirrorHit) + sizeof(uint16)))
		refuse_answer();
	partitions->hits = (MirrorHit *) (reply->data + heads + counts);
	partitions->numbers_of = (char *) (partitions->hits + partitions->nhits);
	read_counts(partitions, reply->data + heads);
	check_targets(partitions);
}

/* Deal the rows to their partitions, unless that was done */
static void
deal_rows(MirrorPartitions *partitions)
{
	if (partitions->dealt)
		return;
	partitions->dealt = true;
	for (int i = 0; i < partitions->ntargets; i++)
	{
		Partition  *partition = &partitions->partitions[i];

		partition->hits = MemoryContextAllocHuge(partitions->context,
												 Max(partition->nhits, 1) * sizeof(MirrorHit));
		partition->queries = MemoryContextAllocHuge(partitions->context,
													Max(partition->nhits, 1) * sizeof(uint32));
		partition->nhits = 0;
	}
	for (uint32 i = 0; i < partitions->request.n; i++)
	{
		const PartitionsCut *cut = &partitions->cuts[i];

		for (uint64 hit = cut->first; hit < cut->first + cut->n; hit++)
		{
			Partition  *partition = &partitions->partitions[target_of(partitions, hit)];

			GPUVEC_STEP(hit);
			partition->queries[partition->nhits] = i;
			partition->hits[partition->nhits++] = partitions->hits[hit];
		}
	}
}

/*
 * What a partition has given, as if it had been asked for that alone: all rows
 * with the score of the cut or a greater one.  Of the cut's own partition,
 * rows behind the cut may be missing; those that are laid over it there are
 * dropped later (MirrorTakePartition).
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

/* What a search of a partition alone would have answered */
static void
make_reply(const Partition *partition, MemoryContext context, GpuvecReply *reply)
{
	uint32	   *counts;

	reply->length = MirrorSearchAnswerBytes(partition->head.nqueries, 0, partition->nhits);
	reply->data = MemoryContextAllocHuge(context, reply->length);
	memset(reply->data, 0, reply->length);
	memcpy(reply->data, &partition->head, sizeof(gpuvec_result));
	counts = (uint32 *) (reply->data + sizeof(gpuvec_result));
	for (uint32 i = 0; i < partition->nhits; i++)
		counts[partition->queries[i]]++;
	memcpy(reply->data + MirrorSearchAnswerBytes(partition->head.nqueries, 0, 0), partition->hits,
		   partition->nhits * sizeof(MirrorHit));
}

/* Take the rows of such an answer, with what was laid over it */
static void
take_reply(Partition *partition, const GpuvecReply *reply, MemoryContext context)
{
	MirrorSearchAnswer answer = {.reply = *reply};
	uint32		at = 0;

	MirrorSearchAnswerRead(&answer);
	partition->hits = answer.hits;
	partition->nhits = (uint32) answer.head.nhits;
	partition->queries = MemoryContextAllocHuge(context, Max(partition->nhits, 1) * sizeof(uint32));
	for (uint32 i = 0; i < answer.head.nqueries; i++)
		for (uint32 n = MirrorSearchAnswerHits(&answer, i); n > 0; n--)
			partition->queries[at++] = i;
}

/* Take the answer of a partition, with what is laid over it */
static void
take_partition(MirrorPartitions *partitions, int target, const MirrorSearch *search)
{
	Partition  *partition = &partitions->partitions[target];
	MirrorRequest request = {.context = search->context};
	GpuvecReply reply = {.data = (char *) &partition->head,.length = sizeof(gpuvec_result)};
	gpuvec_query *sent;
	MirrorQuestion *questions;

	if (partition->conversation.tail == NULL)
	{
		partition->known = MirrorTakeReply(&partition->conversation, &request, &reply) &&
			partition->head.nqueries > 0;
		return;
	}
	if (partition->head.nqueries == 0)
		return;
	deal_rows(partitions);
	make_reply(partition, search->context, &reply);
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
	partition->known = MirrorTakeReply(&partition->conversation, &request, &reply);
	partition->laid_over = partition->known && partition->conversation.tail != NULL;
	if (partition->laid_over)
		take_reply(partition, &reply, search->context);
	pfree(questions);
	pfree(sent);
}

void
PartitionsTakeAnswer(MirrorPartitions *partitions, MirrorSearch *search, const GpuvecReply *reply)
{
	read_answer(partitions, reply);
	for (uint32 i = 0; i < partitions->head.npartitions; i++)
	{
		const gpuvec_result *head = &partitions->partitions[partitions->whose[i]].head;

		search->engine_us += head->engine_us;
		MirrorUsed.rows += head->state.nrows * head->nqueries;
		MirrorUsed.engine_us += head->engine_us;
		MirrorUsageWays(head->ways);
	}
	MirrorUsed.requests++;
	for (uint32 i = 0; i < partitions->head.npartitions; i++)
		if (partitions->partitions[partitions->whose[i]].open)
			take_partition(partitions, partitions->whose[i], search);
}

bool
MirrorPartitionsAllKnown(const MirrorPartitions *partitions)
{
	for (int i = 0; i < partitions->ntargets; i++)
		if (!partitions->partitions[i].known)
			return false;
	return true;
}

bool
MirrorPartitionsInOrder(const MirrorPartitions *partitions)
{
	for (int i = 0; i < partitions->ntargets; i++)
		if (!partitions->partitions[i].known || partitions->partitions[i].laid_over)
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

/* Set a query's hits to those of n rows of a partition that count */
static void
take_rows(const MirrorPartitions *partitions, int target, MirrorSearch *search, uint32 number,
		  MirrorHit *hits, uint32 n)
{
	const PartitionsCut *cut = &partitions->cuts[number];
	const Partition *partition = &partitions->partitions[target];

	MirrorTakePartition(partition->conversation.target, search,
						&search->queries[partitions->sent[number]], partition->conversation.visibility,
						hits, n, cut->is_cut && cut->target == target ? &cut->last : NULL);
	/* there may be more partitions than the server has buffers */
	MirrorVisibilityRest(partition->conversation.visibility);
}

bool
MirrorPartitionsTake(MirrorPartitions *partitions, int target, MirrorSearch *search,
					 uint32 *with, uint32 *nwith)
{
	Partition  *partition = &partitions->partitions[target];
	uint32		next;

	if (with)
		*nwith = 0;
	if (!partition->known)
	{
		PartitionClose(partition);
		return false;
	}
	GPUVEC_INJECTION("ask-before-fetch");
	deal_rows(partitions);
	for (uint32 i = 0; i < partition->nhits; i = next)
	{
		uint32		number = partition->queries[i];

		for (next = i + 1; next < partition->nhits && partition->queries[next] == number;)
			next++;
		if (!search->queries[partitions->sent[number]].skip)
			take_rows(partitions, target, search, number, partition->hits + i, next - i);
		if (with)
			with[(*nwith)++] = partitions->sent[number];
	}
	PartitionClose(partition);
	return true;
}

uint64
MirrorPartitionsRows(MirrorPartitions *partitions, MirrorSearch *search, uint32 number,
					 MirrorHit **hits, int *targets)
{
	const MirrorQuery *query = &search->queries[number];
	const PartitionsCut *cut;
	uint64		next;
	uint64		n = 0;

	if (partitions->numbers[number] == NOT_SENT)
		return 0;
	cut = &partitions->cuts[partitions->numbers[number]];
	*hits = partitions->hits + cut->first;
	GPUVEC_INJECTION("ask-before-fetch");
	for (uint64 i = 0; i < cut->n; i = next)
	{
		int			target = target_of(partitions, cut->first + i);

		for (next = i + 1; next < cut->n && target_of(partitions, cut->first + next) == target;)
			next++;
		take_rows(partitions, target, search, partitions->numbers[number], *hits + i, (uint32) (next - i));
		for (uint64 j = 0; j < query->nhits; j++)
		{
			(*hits)[n] = query->hits[j];
			targets[n++] = target;
		}
	}
	return n;
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
