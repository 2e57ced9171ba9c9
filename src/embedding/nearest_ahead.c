/*-------------------------------------------------------------------------
 *
 * nearest_ahead.c
 *	  Searches for the nearest rows that are sent before the rows are needed.
 *
 * While the session returns the rows of one search, the engine finds those of
 * the next one.  The answer is left unread (GpuvecLinkLeave).  It is read
 * when its rows are needed, or before the session sends another request,
 * whatever for.
 *
 * What was sent ahead is exact, for it was sent like any other search: with
 * the snapshot of the statement, and what that needs of the mirror.  Nothing
 * that happens later changes it.  If the answer is an error, is lost, or is
 * that of a mirror that was not fresh enough, the search is sent again when
 * its rows are needed, as if nothing had been sent.
 *
 * The engine asks for rows to be looked at (ask.c) in a table whose pages are
 * not proven.  Verdicts about them hold for the snapshot, so they are
 * kept from one search to the next.
 *
 * If the answer is not needed any more, the connection is closed, unless it
 * has come: that ends the search in the engine.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "embedding/embedding_table.h"
#include "link/engine_link.h"
#include "utils/memutils.h"

struct EmbeddingAhead
{
	MemoryContext context;		/* where this is */
	MemoryContextCallback end;	/* of that */
	gpuvec_mirror_key key;		/* what was searched */
	EmbeddingVerdicts verdicts; /* about its rows */

	/* the search */
	MemoryContext answer_context;	/* NULL: nothing was sent */
	uint64		number;			/* of the request */
	gpuvec_freshness need;		/* how fresh the mirror has to be */
	const float *queries;		/* tell searches apart: queries ... */
	uint32		nqueries;
	GpuvecReply reply;			/* data is NULL until it has come */
};

/* The one whose answer is unread, or NULL */
static EmbeddingAhead *unread = NULL;

/* GpuvecTakeAnswer */
static bool
take_reply(char *data, uint32 length)
{
	EmbeddingAhead *ahead = unread;

	unread = NULL;
	if (ahead == NULL)
		return false;
	ahead->reply.type = GPUVEC_MSG_EMBEDDING_ANSWER;
	ahead->reply.length = length;
	if (GetMemoryChunkContext(data) == ahead->answer_context)
	{
		ahead->reply.data = data;
		return true;
	}
	ahead->reply.data = MemoryContextAllocHuge(ahead->answer_context, length);
	memcpy(ahead->reply.data, data, length);
	return false;
}

/* Do without the answer, if it is unread */
static void
forget_unread(EmbeddingAhead *ahead)
{
	if (unread != ahead)
		return;
	unread = NULL;
	if (GpuvecLinkLeft() == ahead->number)
		GpuvecLinkClose();
}

/* MemoryContextCallback: the call has ended, perhaps by an error */
static void
end_ahead(void *arg)
{
	forget_unread(arg);
}

EmbeddingAhead *
EmbeddingAheadMake(void)
{
	EmbeddingAhead *ahead = palloc0_object(EmbeddingAhead);

	ahead->context = CurrentMemoryContext;
	ahead->end.func = end_ahead;
	ahead->end.arg = ahead;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &ahead->end);
	return ahead;
}

void
EmbeddingAheadDrop(EmbeddingAhead *ahead)
{
	forget_unread(ahead);
	if (ahead->answer_context)
		MemoryContextDelete(ahead->answer_context);
	ahead->answer_context = NULL;
	ahead->reply.data = NULL;
}

/* Copy verdicts into a memory context; frees those that were there */
static void
copy_verdicts(MemoryContext context, EmbeddingVerdicts *to, const EmbeddingVerdicts *from)
{
	Size		bytes = from->n * sizeof(uint64);

	if (to->verdicts)
		pfree(to->verdicts);
	to->verdicts = MemoryContextAllocHuge(context, bytes + 1);
	memcpy(to->verdicts, from->verdicts, bytes);
	to->n = from->n;
}

/* True if searches of a table may be sent ahead */
static bool
can_send(const EmbeddingTable *table)
{
	return table->ntargets == 1 && table->targets[0].mode == MIRROR_SHARED;
}

void
EmbeddingAheadSend(EmbeddingAhead *ahead, EmbeddingTable *table, const EmbeddingNearest *some)
{
	EmbeddingAheadDrop(ahead);
	if (!can_send(table) || GpuvecLinkEngineNumber() == 0)
		return;
	/* the answer that is unread is another call's */
	(void) GpuvecLinkSettle();
	unread = NULL;
	ahead->key = table->targets[0].key;
	if (table->verdicts[0].n > 0)
		copy_verdicts(ahead->context, &ahead->verdicts, &table->verdicts[0]);
	ahead->queries = some->queries;
	ahead->nqueries = some->nqueries;
	ahead->number = EmbeddingSendNearest(table, 0, some, take_reply, &ahead->need);
	if (ahead->number == 0)
		return;
	unread = ahead;
	ahead->answer_context = AllocSetContextCreate(ahead->context, "gpuvec answer ahead",
												  ALLOCSET_DEFAULT_SIZES);
}

/* Read the answer, if it is unread, to where it will stay */
static void
read_unread(EmbeddingAhead *ahead)
{
	MemoryContext old = MemoryContextSwitchTo(ahead->answer_context);

	if (unread == ahead && GpuvecLinkLeft() == ahead->number)
		(void) GpuvecLinkSettle();
	if (unread == ahead)
		unread = NULL;
	MemoryContextSwitchTo(old);
}

/* True if the answer has come, and counts */
static bool
is_good(const EmbeddingAhead *ahead)
{
	gpuvec_embedding_answer head;

	if (ahead->reply.data == NULL)
		return false;
	memcpy(&head, ahead->reply.data, sizeof(head));
	return gpuvec_fresh(&head.state, &ahead->need) &&
		(head.status == GPUVEC_EMBEDDING_DONE || head.status == GPUVEC_EMBEDDING_UNDECIDED);
}

const GpuvecReply *
EmbeddingAheadAnswer(EmbeddingAhead *ahead, EmbeddingTable *table, const EmbeddingNearest *some)
{
	bool		same = can_send(table) &&
		memcmp(&table->targets[0].key, &ahead->key, sizeof(ahead->key)) == 0;
	GpuvecReply *reply;

	if (same && ahead->verdicts.n > 0 && table->verdicts[0].n == 0)
		copy_verdicts(CurrentMemoryContext, &table->verdicts[0], &ahead->verdicts);
	if (ahead->answer_context == NULL)
		return NULL;
	same = same && ahead->queries == some->queries && ahead->nqueries == some->nqueries;
	if (same)
		read_unread(ahead);
	if (!same || !is_good(ahead))
	{
		EmbeddingAheadDrop(ahead);
		return NULL;
	}
	reply = palloc_object(GpuvecReply);
	*reply = ahead->reply;
	MemoryContextSetParent(ahead->answer_context, CurrentMemoryContext);
	ahead->answer_context = NULL;
	ahead->reply.data = NULL;
	return reply;
}
