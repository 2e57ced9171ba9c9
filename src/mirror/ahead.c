/*-------------------------------------------------------------------------
 *
 * ahead.c
 *	  The answer to a search that did not wait for a refresh.
 *
 * A mirror is a few pages behind.  The engine is asked at once, about the
 * mirror as it is, and while it works the session reads these pages, ranks
 * their rows itself, and sends them.  Here is made of both what the engine
 * would have answered after the refresh.
 *
 * Let M be the mirror's rows as they were, P the pages that were read again
 * or are no more, and R the rows that were read there.  A refresh makes of M
 * the rows M' = (M without those of P) + R, whatever else it does, and the
 * engine gives the best n of M' in an order that ranks any two rows, by score
 * and tid.  It has given the best n of M, or all that qualify if these are
 * fewer.
 *
 *	 - Given all: without the rows of P they are all of M' but R, and R is at
 *	   hand.
 *	 - Given n: a row of M that is not among them ranks behind the last of
 *	   them, called l.  So do the rows of M' that are neither given nor in R.
 *	   Hence what is given, without the rows of P, and what does not rank
 *	   behind l of R, are the best of M', in order and without a gap, up to l.
 *	   If that is n rows, it is the answer.  If it is fewer (because rows of P
 *	   were given, and fewer came in their place), it is not known what
 *	   follows l: the engine has to be asked again, after the refresh.
 *
 * Scores come from the function that the engine takes them from, and from the
 * same bytes.
 *
 * The engine's answer has to be of M, the mirror that the refresh of the
 * number made that the session took for the latest one when it found out what
 * had changed; a merge in the background changes no row.  Whether the refresh
 * is made does not matter for this answer.  It does for the next one: that
 * names how fresh the mirror must be, as this one would have.
 *
 * Rows of R count as read by a later refresh than any map of visible pages
 * was; those of M that are left were read by none since, as in the engine's
 * answer after the refresh.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "mirror/ahead.h"
#include "mirror/search_request.h"
#include "mirror/wal.h"

#define WORD_BITS	64

/* Rows of pages that were read again, as one query ranks them */
struct MirrorAhead
{
	const MirrorAheadQuestion *question;
	uint64		marks[(GPUVEC_MAX_ID + 1) / WORD_BITS]; /* ids of the query */
	ChangedPages read;			/* the pages, ascending */
	MirrorHit  *hits;			/* of their rows, those that qualify */
	uint64		nhits;
	uint64		maxhits;
};

MirrorAhead *
MirrorAheadBegin(const MirrorAheadQuestion *question)
{
	const MirrorQuery *query = question->query;
	MirrorAhead *ahead = palloc0(sizeof(MirrorAhead));

	ahead->question = question;
	for (uint32 i = 0; i < query->len; i++)
		ahead->marks[query->ids[i] / WORD_BITS] |= UINT64CONST(1) << query->ids[i] % WORD_BITS;
	ahead->maxhits = 128;
	ahead->hits = palloc_array(MirrorHit, ahead->maxhits);
	return ahead;
}

void
MirrorAheadEnd(MirrorAhead *ahead)
{
	if (ahead->read.blocks)
		pfree(ahead->read.blocks);
	pfree(ahead->hits);
	pfree(ahead);
}

/* How many of these ids does the query have? */
static uint32
count_common(const MirrorAhead *ahead, const uint16 *ids, uint32 len)
{
	uint32		common = 0;

	for (uint32 i = 0; i < len; i++)
		common += ahead->marks[ids[i] / WORD_BITS] >> ids[i] % WORD_BITS & 1;
	return common;
}

/* Rank a row */
static void
rank_row(MirrorAhead *ahead, BlockNumber block, const gpuvec_row *row, const uint16 *ids)
{
	const MirrorAheadQuestion *question = ahead->question;
	uint32		common = count_common(ahead, ids, row->len);
	MirrorHit	hit;

	if (!MirrorRank(question->search, question->query, gpuvec_tid(block, row->line), common, row->len,
					true, &hit))
		return;
	if (ahead->nhits == ahead->maxhits)
	{
		ahead->maxhits *= 2;
		ahead->hits = repalloc_huge(ahead->hits, ahead->maxhits * sizeof(MirrorHit));
	}
	ahead->hits[ahead->nhits++] = hit;
}

void
MirrorAheadPage(MirrorAhead *ahead, const char *data)
{
	gpuvec_page page;
	const char *at = data + sizeof(page);

	memcpy(&page, data, sizeof(page));
	NoteChangedPage(&ahead->read, page.block);
	for (uint32 i = 0; i < page.nrows; i++)
	{
		gpuvec_row	row;

		memcpy(&row, at, sizeof(row));
		rank_row(ahead, page.block, &row, (const uint16 *) (at + sizeof(row)));
		at += gpuvec_row_bytes(row.len);
	}
}

/*
 * Drop rows that were read and rank behind the last one that the engine gave
 */
static void
cut_behind(MirrorAhead *ahead, const MirrorHit *last)
{
	uint64		last_tid = gpuvec_hit_tid(last->place);
	uint64		n = 0;

	for (uint64 i = 0; i < ahead->nhits; i++)
	{
		const MirrorHit *hit = &ahead->hits[i];

		/* it may be the last one itself */
		if (hit->score > last->score ||
			(hit->score == last->score && gpuvec_hit_tid(hit->place) <= last_tid))
			ahead->hits[n++] = *hit;
	}
	ahead->nhits = n;
}

/* qsort comparator */
static int
compare_hits(const void *a, const void *b)
{
	return MirrorCompareHits(a, b);
}

/*
 * Make the answer of what the engine gave, and the pages.  hits[] has room
 * for all rows that were asked for.  False: it cannot be told.
 */
static bool
merge(MirrorAhead *ahead, BlockNumber nblocks, const MirrorHit *given, uint32 ngiven,
	  MirrorHit *hits, uint32 *nhits)
{
	uint32		asked = ahead->question->asked;
	bool		all = ngiven < asked;
	uint32		n = 0;
	uint64		read = 0;

	if (!all)
		cut_behind(ahead, &given[ngiven - 1]);
	qsort(ahead->hits, ahead->nhits, sizeof(MirrorHit), compare_hits);
	for (uint32 i = 0; i <= ngiven && n < asked; i++)
	{
		const MirrorHit *next = i < ngiven ? &given[i] : NULL;
		BlockNumber block = next ? gpuvec_hit_block(next->place) : 0;

		while (read < ahead->nhits && n < asked &&
			   (next == NULL || MirrorCompareHits(&ahead->hits[read], next) < 0))
			hits[n++] = ahead->hits[read++];
		if (next != NULL && n < asked && block < nblocks && !HasChangedPage(&ahead->read, block))
			hits[n++] = *next;
	}
	*nhits = n;
	return all || n == asked;
}

bool
MirrorAheadMerge(MirrorAhead *ahead, BlockNumber nblocks, MemoryContext context,
				 GpuvecReply *reply)
{
	uint32		asked = ahead->question->asked;
	MirrorSearchAnswer answer;
	MirrorHit  *hits;
	char	   *data;
	uint32		n;

	answer.reply = *reply;
	MirrorSearchAnswerRead(&answer);
	if (answer.head.nqueries != 1 || answer.head.nhits > asked ||
		MirrorSearchAnswerHits(&answer, 0) != answer.head.nhits)
		return false;
	data = MemoryContextAllocHuge(context, MirrorSearchAnswerBytes(1, asked));
	hits = (MirrorHit *) (data + MirrorSearchAnswerBytes(1, 0));
	if (!merge(ahead, nblocks, answer.hits, answer.head.nhits, hits, &n))
	{
		pfree(data);
		return false;
	}
	answer.head.nhits = n;
	memcpy(data, &answer.head, sizeof(answer.head));
	memcpy(data + sizeof(answer.head), &n, sizeof(n));
	pfree(reply->data);
	reply->data = data;
	reply->length = MirrorSearchAnswerBytes(1, n);
	return true;
}
