/*-------------------------------------------------------------------------
 *
 * ahead.c
 *	  The answer to a search that did not wait for a refresh.
 *
 * When a mirror is a few pages behind, a search is sent to the engine at
 * once, and the engine searches the mirror as it is.  Meanwhile the session
 * reads the changed pages, ranks their rows itself, and sends the pages.
 * This file merges both into the answer that the engine would have given
 * after the refresh.
 *
 * Let M be the rows of the mirror before the refresh, P the pages that were
 * read again or do not exist any more, and R the rows that were read from
 * these pages.  The refresh turns M into M' = (M without the rows of P) + R,
 * whatever else it does.  The engine returns the best n rows in a total
 * order, by score and tid.  It has returned the best n of M, or all rows of M
 * that qualify if these are fewer than n.
 *
 *	 - All were returned.  Without the rows of P, they are all of M' but R,
 *	   and R is at hand.
 *	 - n were returned.  Let l be the last of them.  Every other row of M
 *	   ranks behind l.  So does every row of M' that was neither returned nor
 *	   is in R.  Hence the best rows of M', in order and without a gap up to
 *	   l, are: the returned rows without those of P, and the rows of R that do
 *	   not rank behind l.  If these are n rows, they are the answer.  If they
 *	   are fewer (rows of P were returned, and fewer took their place), the
 *	   rows behind l are not known: the engine has to be asked again, after
 *	   the refresh.
 *
 * Scores are computed by the same function as in the engine, from the same
 * bytes.
 *
 * The engine's answer must be of M.  So its refresh number must be the one
 * that the session knew when it looked for changed pages.  (A merge in the
 * background changes no rows.)  This answer does not depend on whether the
 * refresh is published in the end.  The next answer does: so the next request
 * names how fresh the mirror must be, as this one would have.
 *
 * Rows of R count as read by a later refresh than any that a visibility map
 * goes with.  The remaining rows of M were not read again, and keep their
 * marks, as in the engine's answer after the refresh.
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
	uint64		marks[(GPUVEC_MAX_ID + 1) / WORD_BITS]; /* bitmap of the query's
														 * ids */
	ChangedPages read;			/* the pages that were read, ascending */
	MirrorHit  *hits;			/* [nhits], rows of these pages that qualify */
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

/* Number of these ids that the query has */
static uint32
count_common(const MirrorAhead *ahead, const uint16 *ids, uint32 len)
{
	uint32		common = 0;

	for (uint32 i = 0; i < len; i++)
		common += ahead->marks[ids[i] / WORD_BITS] >> ids[i] % WORD_BITS & 1;
	return common;
}

/* Rank a row, and keep it if it qualifies */
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
 * Drop rows of the pages read that rank behind the last row that the engine
 * returned
 */
static void
cut_behind(MirrorAhead *ahead, const MirrorHit *last)
{
	uint64		last_tid = gpuvec_hit_tid(last->place);
	uint64		n = 0;

	for (uint64 i = 0; i < ahead->nhits; i++)
	{
		const MirrorHit *hit = &ahead->hits[i];

		/* the row may be the last one itself */
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
 * Merge the engine's hits and the rows of the pages that were read.
 * hits[] has room for question->asked rows.  Returns false if the answer is
 * not known.
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
