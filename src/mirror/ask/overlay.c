/*-------------------------------------------------------------------------
 *
 * overlay.c
 *	  An answer of an older copy, with the rows that have changed since.
 *
 * The engine has searched an older copy of a table.  The session has the rows
 * that were added since, and knows which rows of that copy were replaced or
 * are gone.  This file makes the answer that the engine would have given for
 * the new copy.  tail.c uses it for pages that were read again, and for
 * rows that were handed over.
 *
 * Let M be the rows of the older copy, P those of them that were replaced or
 * are gone, and R the new rows.  The new copy is M' = (M without P) + R.  The
 * engine returns the best n rows in a total order, by score and tid.  It has
 * returned the best n of M, or all rows of M that qualify if these are fewer
 * than n.
 *
 *	 - All were returned.  Without P, they are all of M' but R, and R is at
 *	   hand.
 *	 - n were returned.  Let l be the last of them.  Every other row of M
 *	   ranks behind l.  So does every row of M' that was neither returned nor
 *	   is in R.  Hence the best rows of M', in order and without a gap up to
 *	   l, are: the returned rows without P, and the rows of R that do not rank
 *	   behind l.  If these are n rows, they are the answer.  If they are fewer
 *	   (rows of P were returned, and fewer took their place), the rows behind
 *	   l are not known.
 *
 * Of a query with a filter M, P and R are the rows that pass it.  New rows are
 * tested by the function that the engine uses (core/filter.h).  The engine's
 * count of the rows that pass may only become too large: new ones are added,
 * but of the replaced ones only those are known that were returned.  If all
 * were returned, the count is right.  New rows without a common id count if
 * the engine has ranked such rows, too; only its answer tells.  By a measure
 * of vectors the same goes for new rows that have less than the least score.
 *
 * An engine that was asked for all rows may return them in any order.  These
 * are the first case, whose answer is a union and needs no order.
 *
 * Scores are computed by the same function as in the engine, from the number
 * of common ids, and from values if there are any.  For the ids of 16 bits a
 * bitmap tells which of them the query has.  The larger ones of a row and
 * those of the query are merged: a set has them behind the others.  Rows of R
 * count as read by a later refresh than any that a visibility map goes with.
 * The remaining rows of M keep their marks.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "idset/idset_merge.h"
#include "mirror/ask/overlay.h"
#include "mirror/ask/search_answer.h"

#define WORD_BITS	64
#define MARKS		((GPUVEC_MAX_ID + 1) / WORD_BITS)

/* For more rows than this, a bitmap of the query's small ids pays */
#define FEW_ROWS	16

/* New rows, as one query ranks them */
struct Overlay
{
	const MirrorQuestion *question;
	uint64	   *marks;			/* [MARKS] bitmap of the query's ids up to
								 * GPUVEC_MAX_ID, or NULL */
	gpuvec_id_span large;		/* with marks: its ids above that */
	MirrorHit  *hits;			/* [nhits], new rows that qualify */
	uint64		nhits;
	uint64		maxhits;
	uint64		npassed;		/* new rows that pass the filter */
};

/* The ids of a set that are above GPUVEC_MAX_ID */
static gpuvec_id_span
large_ids(gpuvec_id_span set)
{
	uint32		first = set.n;
	gpuvec_id_span large = {.wide = true};

	if (set.wide)
		first = idset_gallop(set.ids, true, 0, set.n, GPUVEC_MAX_ID + 1);
	large.n = set.n - first;
	if (large.n > 0)
		large.ids = (const uint32 *) set.ids + first;
	return large;
}

/*
 * The bitmap's word of an id.  The ids of a damaged set may have any order,
 * so a large one may be among the small ones.
 */
static pg_attribute_always_inline uint32
mark_word(uint32 id)
{
	return id / WORD_BITS % MARKS;
}

/* Make the bitmap of the query's ids, and find those that it lacks */
static void
mark_ids(Overlay *overlay)
{
	gpuvec_id_span set = overlay->question->query->vector.ids;
	uint64	   *marks = palloc0_array(uint64, MARKS);

	overlay->marks = marks;
	overlay->large = large_ids(set);
	for (uint32 i = 0; i < set.n - overlay->large.n; i++)
	{
		uint32		id = idset_id_at(set.ids, set.wide, i);

		marks[mark_word(id)] |= UINT64CONST(1) << id % WORD_BITS;
	}
}

Overlay *
OverlayBegin(const MirrorQuestion *question, uint32 rows)
{
	Overlay    *overlay = palloc0(sizeof(Overlay));

	overlay->question = question;
	if (rows > FEW_ROWS)
		mark_ids(overlay);
	overlay->maxhits = 16;
	overlay->hits = palloc_array(MirrorHit, overlay->maxhits);
	return overlay;
}

void
OverlayEnd(Overlay *overlay)
{
	if (overlay->marks)
		pfree(overlay->marks);
	pfree(overlay->hits);
	pfree(overlay);
}

/* Number of the first n ids, up to GPUVEC_MAX_ID, that the query has */
static pg_attribute_always_inline uint32
count_marked(const uint64 *marks, const void *ids, bool wide, uint32 n)
{
	uint32		common = 0;

	for (uint32 i = 0; i < n; i++)
	{
		uint32		id = idset_id_at(ids, wide, i);

		common += marks[mark_word(id)] >> id % WORD_BITS & 1;
	}
	return common;
}

/* Number of these ids that the query has */
static uint32
count_common(const Overlay *overlay, gpuvec_id_span set)
{
	gpuvec_id_span large;

	if (overlay->marks == NULL)
		return idset_span_common(overlay->question->query->vector.ids, set);
	if (!set.wide)
		return count_marked(overlay->marks, set.ids, false, set.n);
	large = large_ids(set);
	return count_marked(overlay->marks, set.ids, true, set.n - large.n) +
		idset_span_common(overlay->large, large);
}

/*
 * True if a row may have less than the least score that was sent: the engine's
 * answer tells whether it ranks (drop_others())
 */
static bool
may_be_other(const MirrorQuestion *question)
{
	return question->search->scoring.sparse && question->query->disjoint;
}

/* True if a row is one that the query was sent for */
static bool
was_asked_for(const MirrorQuestion *question, const MirrorHit *hit)
{
	const gpuvec_query *sent = question->sent;

	if ((sent->flags & GPUVEC_QUERY_MIN_SCORE) != 0 && hit->score < sent->min_score &&
		!may_be_other(question))
		return false;
	if ((sent->flags & GPUVEC_QUERY_AFTER) == 0)
		return true;
	return hit->score < sent->after_score ||
		(hit->score == sent->after_score && gpuvec_hit_tid(hit->place) > sent->after_tid);
}

/*
 * True if a row with these filter keys takes part: it passes the filter, and
 * has a set, unless the filter asks for those without
 */
static bool
takes_part(Overlay *overlay, const void *unaligned)
{
	const MirrorQuery *query = overlay->question->query;
	uint64		filter_keys[GPUVEC_MAX_FILTERS + 1];

	if (unaligned == NULL)
		return true;
	memcpy(filter_keys, unaligned, gpuvec_filter_bytes(overlay->question->nfilters));
	if (query->filter != NULL)
	{
		if (!gpuvec_filter_passes(query->filter, filter_keys))
			return false;
		overlay->npassed++;
	}
	return (filter_keys[0] & 1) == 0 || MirrorWantsNulls(query->filter);
}

void
OverlayRow(Overlay *overlay, uint64 tid, const gpuvec_sparse *row, const void *filter_keys)
{
	const MirrorQuestion *question = overlay->question;
	MirrorHit	hit;

	if (!takes_part(overlay, filter_keys))
		return;
	if (!MirrorRank(question->search, question->query, tid, row, count_common(overlay, row->ids),
					true, &hit) ||
		!was_asked_for(question, &hit))
		return;
	if (overlay->nhits == overlay->maxhits)
	{
		overlay->maxhits *= 2;
		overlay->hits = repalloc_huge(overlay->hits, overlay->maxhits * sizeof(MirrorHit));
	}
	overlay->hits[overlay->nhits++] = hit;
}

/*
 * Drop new rows that only rank with all rows that pass the filter: the engine
 * has not ranked these.  By a measure of vectors they are those below the
 * least score, whatever they share with the query.
 */
static void
drop_others(Overlay *overlay)
{
	const MirrorQuestion *question = overlay->question;
	uint64		n = 0;

	for (uint64 i = 0; i < overlay->nhits; i++)
		if (may_be_other(question) ? overlay->hits[i].score >= question->sent->min_score :
			gpuvec_hit_common(overlay->hits[i].place) > 0)
			overlay->hits[n++] = overlay->hits[i];
	overlay->nhits = n;
}

/*
 * The engine's count of rows that pass a query's filter, with the new rows,
 * and without `nreplaced` of those that it has returned
 */
static uint64
count_passed(const Overlay *overlay, uint64 passed, uint32 nreplaced)
{
	uint64		flag = passed & GPUVEC_DISJOINT_TOO;

	passed &= ~GPUVEC_DISJOINT_TOO;
	if (passed == GPUVEC_NOT_COUNTED)
		return passed | flag;
	return (passed - Min(passed, nreplaced) + overlay->npassed) | flag;
}

/* Drop new rows that rank behind the last row that the engine returned */
static void
cut_behind(Overlay *overlay, const MirrorHit *last)
{
	uint64		last_tid = gpuvec_hit_tid(last->place);
	uint64		n = 0;

	for (uint64 i = 0; i < overlay->nhits; i++)
	{
		const MirrorHit *hit = &overlay->hits[i];

		/* the row may be the last one itself */
		if (hit->score > last->score ||
			(hit->score == last->score && gpuvec_hit_tid(hit->place) <= last_tid))
			overlay->hits[n++] = *hit;
	}
	overlay->nhits = n;
}

/* qsort comparator */
static int
compare_hits(const void *a, const void *b)
{
	return MirrorCompareHits(a, b);
}

/*
 * Merge the engine's hits and the new rows of one query.  hits[] has room for
 * all that was asked for, or for all rows of both.  Corrects *passed, the
 * engine's word about the filter.  Returns false if the answer is not known.
 */
static bool
merge_query(Overlay *overlay, OverlayReplaced replaced, const void *arg, const MirrorHit *given,
			uint32 ngiven, MirrorHit *hits, uint32 *nhits, uint64 *passed)
{
	uint32		asked = MirrorRowsAsked(overlay->question->sent, ngiven);
	bool		all = ngiven < asked;
	uint32		n = 0;
	uint32		nreplaced = 0;
	uint64		fresh = 0;

	if (overlay->question->query->disjoint && (*passed & GPUVEC_DISJOINT_TOO) == 0)
		drop_others(overlay);
	if (!all)
		cut_behind(overlay, &given[ngiven - 1]);
	qsort(overlay->hits, overlay->nhits, sizeof(MirrorHit), compare_hits);
	for (uint32 i = 0; i <= ngiven && n < asked; i++)
	{
		const MirrorHit *next = i < ngiven ? &given[i] : NULL;

		while (fresh < overlay->nhits && n < asked &&
			   (next == NULL || MirrorCompareHits(&overlay->hits[fresh], next) < 0))
			hits[n++] = overlay->hits[fresh++];
		if (next != NULL && n < asked)
		{
			if (replaced(next, arg))
				nreplaced++;
			else
				hits[n++] = *next;
		}
	}
	*nhits = n;
	*passed = count_passed(overlay, *passed, nreplaced);
	/* as many rows have to be in order */
	if (n == GPUVEC_FIRST_ROWS && n < asked)
		qsort(hits, n, sizeof(MirrorHit), compare_hits);
	return all || n == asked;
}

/* Most hits that the new answer can have */
static uint64
most_hits(Overlay **overlays, uint32 n, const MirrorSearchAnswer *answer)
{
	uint64		most = 0;

	for (uint32 i = 0; i < n; i++)
		most += Min(MirrorSearchAnswerHits(answer, i) + overlays[i]->nhits,
					overlays[i]->question->sent->k);
	return most;
}

/* True if the answer has as many queries and hits as it may have */
static bool
fits_questions(Overlay **overlays, uint32 n, const MirrorSearchAnswer *answer)
{
	uint64		hits = 0;

	if (answer->head.nqueries != n || answer->head.page_bytes != 0)
		return false;
	for (uint32 i = 0; i < n; i++)
	{
		if (MirrorSearchAnswerHits(answer, i) > overlays[i]->question->sent->k)
			return false;
		hits += MirrorSearchAnswerHits(answer, i);
	}
	return answer->head.nhits == hits;
}

bool
OverlayMerge(Overlay **overlays, uint32 n, OverlayReplaced replaced, const void *arg,
			 MemoryContext context, GpuvecReply *reply)
{
	MirrorSearchAnswer answer;
	const MirrorHit *given;
	MirrorHit  *hits;
	uint64	   *passed;
	char	   *data;
	char	   *counts;
	uint64		done = 0;

	answer.reply = *reply;
	MirrorSearchAnswerRead(&answer);
	if (!fits_questions(overlays, n, &answer))
		return false;
	data = MemoryContextAllocHuge(context,
								  MirrorSearchAnswerBytes(n, answer.head.npassed,
														  most_hits(overlays, n, &answer)));
	counts = data + sizeof(answer.head);
	passed = (uint64 *) (data + MirrorSearchAnswerBytes(n, 0, 0));
	hits = (MirrorHit *) (data + MirrorSearchAnswerBytes(n, answer.head.npassed, 0));
	given = answer.hits;
	for (uint32 i = 0; i < n; i++)
	{
		uint32		ngiven = MirrorSearchAnswerHits(&answer, i);
		uint64		npassed = MirrorSearchAnswerPassed(&answer, i);
		uint32		nhits;

		if (!merge_query(overlays[i], replaced, arg, given, ngiven, hits + done, &nhits, &npassed))
		{
			pfree(data);
			return false;
		}
		if (answer.head.npassed > 0)
			passed[i] = npassed;
		memcpy(counts + i * sizeof(nhits), &nhits, sizeof(nhits));
		done += nhits;
		given += ngiven;
	}
	answer.head.nhits = done;
	memcpy(data, &answer.head, sizeof(answer.head));
	pfree(reply->data);
	reply->data = data;
	reply->length = MirrorSearchAnswerBytes(n, answer.head.npassed, done);
	return true;
}
