/*-------------------------------------------------------------------------
 *
 * ranked_rows.c
 *	  Rows that rank, in the order of a distance, from the engine.
 *
 * Rows come in batches that grow.  A batch goes on behind the last row of the
 * batch before, in the order (score, tid), so refreshes in between do no
 * harm.
 *
 * The mirror is rooted (mirror.h).  The engine knows the roots of HOT chains,
 * and the executor follows each chain to the version that the snapshot sees,
 * if there is one.  In recovery the mirror is plain (recovery.c).
 *
 * Rows that may not be in the order (distance, root) yet form a group, which
 * is sorted once more.  These are rows whose distances are equal though their
 * scores are not (see GpuvecRankDistance), and rows of one page that come
 * from a plain mirror.  A group is complete when a row of another group
 * follows.
 *
 * The conditions of search keys go with each request: only rows that pass
 * them come.  If these are few, the engine ranks all of them, also those
 * without a common id, and tells how many pass.  If the first batch has them
 * all, no other rows are left to be found.  (A later batch does not tell
 * that: rows of earlier ones may be gone by then, which the snapshot did not
 * see.  Nor does a plain mirror, where one batch may take several requests.)
 * If a later batch does not rank all of them any more, the session goes on
 * with all rows of the table behind the last one.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "access/relscan.h"
#include "idset/idset.h"
#include "index/merge.h"
#include "link/engine_link.h"
#include "mirror/describe/mirror.h"
#include "utils/memutils.h"

static int
compare_rows(const void *a, const void *b)
{
	const KnnRow *x = a;
	const KnnRow *y = b;

	if (x->distance != y->distance)
		return x->distance < y->distance ? -1 : 1;
	return x->root < y->root ? -1 : x->root > y->root;
}

bool
KnnBeginEngine(IndexScanDesc scan, KnnState *state)
{
	MirrorSearch *search = &state->search;

	if (state->order.value == NULL || state->order.refused)
		return false;
	GpuvecDescribe(scan, &state->target);
	if (state->target.mode != MIRROR_SHARED)
		return false;
	search->scoring = state->order.scoring;
	search->floor = GpuvecFloor(&search->scoring);
	search->roots = state->target.key.rooted;
	search->queries = &state->wire;
	search->nqueries = 1;
	search->snapshot = scan->xs_snapshot;
	search->context = state->context;
	search->k = state->first_batch;
	KnnMakeQuery(&state->order, &state->conditions, &state->wire);
	return true;
}

/* Replace the tid of a row version from a plain mirror by its root's */
static void
find_root(KnnState *state, KnnRow *row)
{
	if (row->version)
		row->root = GpuvecVersionRoot(&state->finder, row->root);
	row->version = false;
}

/*
 * True if two rows are in the same group: the engine may return them in
 * another order than that of their roots
 */
static bool
same_group(const KnnState *state, const KnnRow *a, const KnnRow *b)
{
	return a->distance == b->distance &&
		(GpuvecOrderRounds(&state->order) ||
		 tid_number_block(a->root) == tid_number_block(b->root));
}

/* True if rows of this row's group may not be known yet */
static bool
may_grow(const KnnState *state, const KnnRow *row)
{
	if (GpuvecOrderRounds(&state->order))
		return row->distance >= state->known;
	return same_group(state, row, &state->rows[state->nrows - 1]);
}

/* Only whole groups are ready: not the last group, unless nothing follows */
static void
finish_groups(KnnState *state)
{
	uint64		n = state->nrows;

	state->nsorted = 0;
	if (!GpuvecOrderRounds(&state->order) && state->search.roots)
		state->nsorted = n;
	else if (!state->complete)
		while (n > 0 && may_grow(state, &state->rows[n - 1]))
			n--;
	state->nready = n;
}

void
KnnSortGroup(KnnState *state)
{
	KnnRow	   *first = &state->rows[state->next];
	uint64		n = 0;

	while (state->next + n < state->nready && same_group(state, first, first + n))
	{
		find_root(state, first + n);
		n++;
	}
	if (n > 1)
		qsort(first, n, sizeof(KnnRow), compare_rows);
	state->nsorted = state->next + n;
}

/* Note what a batch says of the rows that pass the filter */
static bool
note_passed(KnnState *state)
{
	const MirrorQuery *query = &state->wire;

	state->exhausted = state->complete && state->search.roots && query->filter != NULL &&
		!query->resumes && query->looked == query->passed;
	if ((state->disjoint && !query->has_disjoint) || query->lost_disjoint)
		return false;
	state->disjoint = query->has_disjoint;
	return true;
}

/* Find the rows of the next batch.  False: the engine is not available. */
static bool
find_batch(IndexScanDesc scan, KnnState *state)
{
	MirrorSearch *search = &state->search;
	const char *reason = NULL;

	if (MergeRowsTake(scan, state))
		return true;
	if (!KnnComingTake(state) && !MirrorTopK(&state->target, search, &reason))
	{
		GpuvecLinkWarn(reason);
		return false;
	}
	state->known = state->wire.nhits < search->k ? INFINITY :
		GpuvecRankDistance(&state->order, state->wire.hits[state->wire.nhits - 1].score);
	search->k = Min(search->k * GPUVEC_BATCH_GROWTH, GPUVEC_MAX_K);
	return true;
}

bool
KnnNextBatch(IndexScanDesc scan, KnnState *state)
{
	MemoryContext old = MemoryContextSwitchTo(state->context);

	if (!find_batch(scan, state))
	{
		MemoryContextSwitchTo(old);
		return false;
	}
	state->complete = state->known == INFINITY;
	if (!note_passed(state))
	{
		MemoryContextSwitchTo(old);
		return false;
	}
	/* drop the rows that were returned */
	state->nrows -= state->next;
	if (state->nrows > 0)
		memmove(state->rows, state->rows + state->next, state->nrows * sizeof(KnnRow));
	state->next = 0;
	if (state->maxrows < state->nrows + state->wire.nhits)
	{
		Size		size;

		state->maxrows = Max(state->maxrows * 2, state->nrows + state->wire.nhits);
		size = state->maxrows * sizeof(KnnRow);
		state->rows = state->rows ? repalloc_huge(state->rows, size) :
			MemoryContextAllocHuge(state->context, size);
	}
	for (uint64 i = 0; i < state->wire.nhits; i++)
	{
		const MirrorHit *hit = &state->wire.hits[i];
		KnnRow	   *row = &state->rows[state->nrows++];

		row->distance = GpuvecRankDistance(&state->order, hit->score);
		row->root = hit_root(hit);
		row->version = !state->search.roots;
	}
	if (!state->complete)
	{
		const MirrorHit *last = &state->wire.hits[state->wire.nhits - 1];

		state->wire.resumes = true;
		state->wire.resume_score = last->score;
		state->wire.resume_tid = mirror_behind(last->place);
	}
	finish_groups(state);
	MemoryContextSwitchTo(old);
	return true;
}
