/*-------------------------------------------------------------------------
 *
 * partitions_search.c
 *	  Searching several mirrors at once.
 *
 * Rows of all partitions rank together.  Small partitions may have their rows
 * in common segments (compound.c), and a backend that takes such views
 * searches a joint view, with the segments of all partitions.  Bounds hold for
 * all of them then, and its threads share the work as in one mirror.
 * Otherwise the rows of common segments come first, then partition after
 * partition.  Once a query has its k rows, a row counts only if it ranks
 * before the k-th.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/serve/partitions_run.h"

/* The device of the first mirror that is open; there is one */
static gpuvec_device *
first_device(const partitions_run *run)
{
	const gpuvec_sets_reader *mirror = run->mirrors;

	while (mirror->view == NULL)
		mirror++;
	return mirror->device;
}

/* True if one device has all mirrors that are open */
static bool
on_one_device(const partitions_run *run)
{
	for (uint32_t i = 0; i < run->head.npartitions; i++)
		if (run->mirrors[i].view && run->mirrors[i].device != first_device(run))
			return false;
	return true;
}

/* The partitions as compounds know them; malloc'd; NULL: no memory */
static gpuvec_compound_partition *
compound_partitions(const partitions_run *run)
{
	gpuvec_compound_partition *partitions = calloc(run->head.npartitions, sizeof(*partitions));

	for (uint32_t i = 0; partitions && i < run->head.npartitions; i++)
	{
		partitions[i].key = &run->wire[i].key;
		partitions[i].view = run->mirrors[i].view;
		partitions[i].numbers = run->mirrors[i].id_numbers;
	}
	return partitions;
}

/*
 * Find rows of small partitions in common segments (compound.c), and note
 * which partitions they are of; find a joint view of earlier searches
 */
static void
open_compound(gpuvec_session *s, partitions_run *run)
{
	gpuvec_compound_partition *partitions;

	if (!on_one_device(run))
		return;
	run->shared = true;
	for (uint32_t i = 0; i < run->head.npartitions; i++)
		run->shared &= run->wire[i].key.private_id == 0;
	partitions = run->shared ? compound_partitions(run) : NULL;
	if (partitions)
		run->compound = gpuvec_compound_find(&s->server->store, first_device(run), partitions,
											 run->head.npartitions, run->covered, &run->joint);
	free(partitions);
}

/*
 * Rows of all partitions, or of the largest one that is searched by itself;
 * the compound is one, too
 */
static uint64_t
count_rows(const partitions_run *run, bool largest)
{
	uint64_t	n = largest && run->compound.view ? run->compound.view->nrows : 0;

	for (uint32_t i = 0; i < run->head.npartitions; i++)
	{
		uint64_t	rows = run->mirrors[i].view ? run->mirrors[i].view->nrows : 0;

		n = !largest ? n + rows : n < rows ? rows : n;
	}
	return n;
}

/* Most rows that a query finds in partitions of nrows rows */
static uint64_t
most_rows(const partitions_run *run, uint32_t query, uint64_t nrows)
{
	uint32_t	k = run->plain[query].k;

	return k < nrows ? k : nrows;
}

/* Allocate the rows of all queries.  Fails if they may not fit a frame. */
static bool
allocate_rows(partitions_run *run, gpuvec_error *error)
{
	uint64_t	largest = count_rows(run, true);
	uint64_t	all = count_rows(run, false);
	uint64_t	total = 0;
	uint64_t	some = 0;
	uint64_t	heads = run->head.npartitions * sizeof(gpuvec_result) +
		(run->head.nqueries + (uint64_t) 1) * sizeof(uint32_t);

	for (uint32_t i = 0; i < run->head.nqueries; i++)
	{
		total += most_rows(run, i, all);
		some += most_rows(run, i, largest);
	}
	if (heads > GPUVEC_MAX_FRAME || total > (GPUVEC_MAX_FRAME - heads) / (sizeof(gpuvec_hit) + sizeof(uint16_t)))
		return gpuvec_fail(error, GPUVEC_LIMIT_EXCEEDED,
						   "All queries together may have too many rows.",
						   "Ask for fewer rows, or fewer queries at a time.",
						   "the answer of the gpuvec engine would be too large");
	run->rows = malloc((total + 1) * sizeof(gpuvec_match));
	run->some = malloc((some + 1) * sizeof(gpuvec_match));
	if (run->rows == NULL || run->some == NULL)
		return gpuvec_fail_memory(error, (total + some) * sizeof(gpuvec_match));
	total = 0;
	for (uint32_t i = 0; i < run->head.nqueries; i++)
	{
		run->found[i].rows = run->rows + total;
		total += most_rows(run, i, all);
	}
	return true;
}

/* ---- a joint view ---- */

/*
 * True if the partitions can be searched as one view: a backend takes it that
 * has them all, and a query has the same ids in all of them
 */
static bool
can_join(const partitions_run *run)
{
	if (run->compound.numbers || !on_one_device(run) || !first_device(run)->backend->takes_partitions)
		return false;
	for (uint32_t i = 0; i < run->head.nqueries; i++)
		if (run->q.wire[i].form & GPUVEC_FORM_WIDE)
			return false;
	for (uint32_t i = 0; i < run->head.npartitions; i++)
		if (run->mirrors[i].view && !run->covered[i] && run->mirrors[i].id_numbers)
			return false;
	return true;
}

/* Add the entries of a view to those of a joint one, with references */
static uint32_t
add_entries(gpuvec_view_entry *entries, uint32_t n, const gpuvec_view *view, uint64_t partition)
{
	for (uint32_t i = 0; i < view->nentries; i++)
	{
		entries[n] = view->entries[i];
		gpuvec_segment_ref(entries[n].segment);
		gpuvec_livemap_ref(entries[n].live);
		entries[n++].partition = partition;
	}
	return n;
}

/* Entries of the compound and of the partitions that it does not cover */
static uint32_t
join_entries(const partitions_run *run, gpuvec_view_entry *entries)
{
	uint32_t	n = 0;

	if (run->compound.view)
		n = add_entries(entries, n, run->compound.view, 0);
	for (uint32_t i = 0; i < run->head.npartitions; i++)
		if (run->mirrors[i].view && !run->covered[i])
			n = add_entries(entries, n, run->mirrors[i].view, gpuvec_partition_tid(i));
	return n;
}

/* Let the backend adopt a joint view; false, and it is freed: it cannot */
static bool
adopt(gpuvec_backend *backend, gpuvec_view *view)
{
	gpuvec_error error;

	if (backend->adopt_view(backend, view, &error))
		return true;
	gpuvec_view_unref(view);
	return false;
}

/* Make the joint view; NULL: there is no memory, or it is too large */
static gpuvec_view *
make_joint(const partitions_run *run)
{
	size_t		most = run->compound.view ? run->compound.view->nentries : 0;
	gpuvec_view_entry *entries;
	gpuvec_view *view;
	gpuvec_error error;
	uint32_t	n;

	for (uint32_t i = 0; i < run->head.npartitions; i++)
		most += run->mirrors[i].view ? run->mirrors[i].view->nentries : 0;
	entries = calloc(most + 1, sizeof(*entries));
	if (entries == NULL)
		return NULL;
	n = join_entries(run, entries);
	view = gpuvec_view_new(entries, n, &error);
	for (uint32_t i = 0; view == NULL && i < n; i++)
	{
		gpuvec_segment_unref(entries[i].segment);
		gpuvec_livemap_unref(entries[i].live);
	}
	free(entries);
	return view && adopt(first_device(run)->backend, view) ? view : NULL;
}

/*
 * Open the joint view, and keep a new one for later searches.  One that other
 * queries have read is not for all: those with large ids cannot be joined.
 */
static void
open_joint(gpuvec_session *s, partitions_run *run)
{
	gpuvec_compound_partition *partitions;

	if (!can_join(run))
	{
		gpuvec_view_unref(run->joint);
		run->joint = NULL;
		return;
	}
	if (run->joint)
		return;
	run->joint = make_joint(run);
	partitions = run->joint && run->shared ? compound_partitions(run) : NULL;
	if (partitions)
		gpuvec_joint_keep(&s->server->store, first_device(run), partitions, run->head.npartitions,
						  run->covered, run->compound.view, run->joint);
	free(partitions);
}

/* Search the queries of run->q in a view of a device */
static bool
search_view(partitions_run *run, const gpuvec_device *device, const gpuvec_view *view,
			gpuvec_error *error)
{
	return gpuvec_scheduler_topk(device->scheduler, view, &run->q.scoring,
								 (gpuvec_method) run->head.method, run->q.queries,
								 run->head.nqueries, error);
}

/* Search the joint view */
static bool
search_joint(partitions_run *run, gpuvec_error *error)
{
	for (uint32_t i = 0; i < run->head.nqueries; i++)
		run->q.queries[i].matches = run->found[i].rows;
	if (!search_view(run, first_device(run), run->joint, error))
		return false;
	for (uint32_t i = 0; i < run->head.nqueries; i++)
	{
		run->found[i].n = run->q.queries[i].nmatches;
		run->found[i].ways = run->q.queries[i].ways;
	}
	return true;
}

/* ---- partition by partition ---- */

/*
 * The least score of a row in a part that is better than the k-th that was
 * found: with the same score, it is if its partition comes before
 */
static double
least_score(const gpuvec_match *kth, uint32_t partition)
{
	bool		before = partition < kth->tid >> GPUVEC_PARTITION_SHIFT;

	return before ? kth->score : nextafter(kth->score, INFINITY);
}

/* The queries as they are for the next partition: rows have to be better */
static void
begin_partition(partitions_run *run, uint32_t partition)
{
	uint64_t	total = 0;
	uint64_t	largest = count_rows(run, true);

	for (uint32_t i = 0; i < run->head.nqueries; i++)
	{
		gpuvec_topk_query *query = &run->q.queries[i];
		const found_rows *found = &run->found[i];

		*query = run->plain[i];
		query->matches = run->some + total;
		total += most_rows(run, i, largest);
		if (found->n < query->k)
			continue;
		query->has_min_score = true;
		query->min_score = least_score(&found->rows[query->k - 1], partition);
	}
}

/* True if a row of a is worse than one of b */
static bool
is_worse(const gpuvec_match *a, const gpuvec_match *b)
{
	return a->score < b->score || (a->score == b->score && a->tid > b->tid);
}

/* Add a query's rows in a part; the first k of all are kept */
static void
merge_partition(found_rows *found, gpuvec_match *rows, uint32_t n, uint32_t k)
{
	uint32_t	i = found->n;
	uint32_t	total = n < k - found->n ? found->n + n : k;

	for (uint32_t to = i + n; n > 0; to--)
	{
		const gpuvec_match *last = i > 0 && is_worse(&found->rows[i - 1], &rows[n - 1]) ?
			&found->rows[--i] : &rows[--n];

		if (to <= total)
			found->rows[to - 1] = *last;
	}
	found->n = total;
}

/* Take the rows of a partition */
static void
end_partition(partitions_run *run, uint32_t partition)
{
	for (uint32_t i = 0; i < run->head.nqueries; i++)
	{
		gpuvec_topk_query *query = &run->q.queries[i];
		found_rows *found = &run->found[i];

		found->ways |= query->ways;
		for (uint32_t j = 0; j < query->nmatches; j++)
			query->matches[j].tid |= gpuvec_partition_tid(partition);
		merge_partition(found, query->matches, query->nmatches, query->k);
	}
}

/* Search the rows of a partition, or those of the compound as partition 0 */
static bool
search_partition(partitions_run *run, uint32_t partition, const gpuvec_sets_reader *rows, gpuvec_error *error)
{
	bool		ok;

	begin_partition(run, partition);
	run->q.mirror = *rows;
	ok = gpuvec_search_number(&run->q, error) && search_view(run, rows->device, rows->view, error);
	if (ok)
		end_partition(run, partition);
	free(run->q.numbers);
	free(run->q.hot);
	free(run->q.places);
	run->q.numbers = NULL;
	run->q.hot = NULL;
	run->q.places = NULL;
	return ok;
}

/* Search the compound, if there is one, then other partitions, one by one */
static bool
search_each(partitions_run *run, gpuvec_error *error)
{
	gpuvec_sets_reader compound = {
		.device = first_device(run), .view = run->compound.view, .id_numbers = run->compound.numbers
	};
	bool		ok = compound.view == NULL || search_partition(run, 0, &compound, error);

	for (uint32_t i = 0; ok && i < run->head.npartitions; i++)
		if (run->mirrors[i].view && !run->covered[i])
			ok = search_partition(run, i, &run->mirrors[i], error);
	return ok;
}

bool
gpuvec_partitions_search(gpuvec_session *s, partitions_run *run, gpuvec_error *error)
{
	gpuvec_search_faults(&run->q);
	gpuvec_scheduler_count(first_device(run)->scheduler);
	open_compound(s, run);
	open_joint(s, run);
	return allocate_rows(run, error) &&
		(run->joint ? search_joint(run, error) : search_each(run, error));
}
