/*-------------------------------------------------------------------------
 *
 * choose.c
 *	  Chooses how a segment is searched: by inverted lists or by a scan.
 *
 * A scan reads all ids of a segment, once for each query, and looks at each
 * row.  With masks that have a bit for each query, one scan serves a batch,
 * but each query looks at the rows.  The search by lists
 * costs each query a pass over the blocks of rows, plus a cost for each of
 * its ids, for each row number, and for each line of a bitmap that it reads.
 * The constants below are nanoseconds, measured with test/bench on an AMD
 * EPYC of Zen 5 (1,000,000 rows, modes A, B and C).  On other machines they
 * differ, but that matters little: the costs mostly lie far apart.
 *
 * What a query reads is summed up from the lengths of its lists, for a sample
 * of the batch.  That is needed only if the choice depends on it.  With few
 * queries, usually even the most that they can read costs less than the scan.
 *
 * Where few rows pass a query's filter, counting these one by one costs less
 * than either.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/cpu/lists_builder.h"

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/sparse_rows.h"

/*
 * Batches of at most this many queries are scanned query by query, by
 * instruction set: one pass over the rows with masks costs as much as this
 * many passes for one query
 */
static const uint32_t lone_queries[] = {0, 2, 2, 12};

/*
 * Most queries that share one pass over the rows, by instruction set.
 * LISTS_WIDTH: most queries that share the lists while these are in the
 * cache.
 */
static const uint32_t batch_widths[] = {0, 64, 256, 512};
#define LISTS_WIDTH		512

/* Queries of a batch whose lists are summed up */
#define SAMPLE			8

/* Fewest rows of a part of an entry: they take longer than to wake a thread */
#define PART_ROWS		4096

/* Nanoseconds, by instruction set */
typedef struct way_costs
{
	double		lone_id;		/* scan for one query: each id */
	double		lone_row;		/* and each row */
	double		batch_id;		/* scan for a batch of any size up to the full
								 * width: each id */
	double		batch_row;		/* and each row, for each query */
	double		rows;			/* lists: each LISTS_LINE_ROWS rows */
	double		line;			/* lists: each line of a bitmap */
	double		number;			/* lists: each row number */
	double		list;			/* lists: each id of the query */
	double		sparse_id;		/* scan by measures of sparse vectors: each
								 * id */
} way_costs;

/*
 * Nanoseconds for each row that is gathered, and each of its ids.  A row of a
 * tile is spread over as many cache lines as it has chunks.
 */
#define GATHERED_ROW	20.0
#define GATHERED_ID		0.9

/* Nanoseconds for each row of a list that is taken: mostly a cache miss */
#define TAKEN_ROW		8.0

static const way_costs costs_of[] = {
	{0},
	{0.70, 1.5, 1.7, 0.5, 75, 4.2, 0.40, 15, 0.7},	/* portable C */
	{0.70, 1.5, 1.9, 0.5, 32, 1.6, 0.40, 15, 0.6},	/* AVX2 */
	{0.09, 1.5, 2.2, 0.5, 30, 1.1, 0.40, 15, 0.6}	/* AVX-512 */
};

/* Most queries of a batch; those by measures of sparse vectors are even */
uint32_t
cpu_width(cpu_simd simd, cpu_way way, uint32_t nqueries)
{
	uint32_t	nbatches = (nqueries + SPARSE_BATCH_MOST - 1) / SPARSE_BATCH_MOST;

	switch (way)
	{
		case CPU_LISTS:
			return LISTS_WIDTH;
		case CPU_BATCH:
			return batch_widths[simd];
		case CPU_SPARSE:
			return nqueries < SPARSE_BATCH_LEAST ? 1 : (nqueries + nbatches - 1) / nbatches;
		case CPU_LONE:
			break;
	}
	return 1;
}

uint32_t
cpu_parts(const gpuvec_view *view, const uint32_t *entries, uint32_t nentries, uint32_t nslices)
{
	uint32_t	wanted = nslices / nentries;
	uint64_t	nrows = 0;
	uint64_t	most;

	for (uint32_t i = 0; i < nentries; i++)
		nrows += view->entries[entries[i]].segment->nrows;
	most = nrows / nentries / PART_ROWS;
	if (wanted > most)
		wanted = (uint32_t) most;
	return wanted > 1 ? wanted : 1;
}

/* Cost of the search by lists for one query */
static double
lists_cost(const way_costs *cost, const cpu_lists *lists, const gpuvec_topk_query *query)
{
	double		lines = (double) (lists->nrows + LISTS_LINE_ROWS - 1) / LISTS_LINE_ROWS;
	uint64_t	bitmaps = 0;
	uint64_t	numbers = 0;

	for (uint32_t i = 0; i < query->len; i++)
	{
		uint32_t	id = query->ids[i];
		const uint32_t *start;

		if (id < lists->first_id || id >= lists->end_id)
			continue;
		start = lists->start + (id - lists->first_id);
		if (start[0] & LISTS_BITMAP)
			bitmaps++;
		else
			numbers += (start[1] & ~LISTS_BITMAP) - start[0];
	}
	return lines * (cost->rows + cost->line * (double) bitmaps) + cost->number * (double) numbers +
		cost->list * query->len;
}

double
cpu_all_rows_cost(cpu_backend *cpu, const gpuvec_segment *segment, const gpuvec_topk_query *query)
{
	const way_costs *cost = &costs_of[cpu->simd];
	const cpu_lists *lists = segment_lists(segment);
	const uint32_t *start;

	if (query->len != 1 || query->filter.n > 0)
		return lists_cost(cost, lists, query);
	if (query->ids[0] < lists->first_id || query->ids[0] >= lists->end_id)
		return cost->list;
	start = lists->start + (query->ids[0] - lists->first_id);
	if (start[0] & LISTS_BITMAP)
		return lists_cost(cost, lists, query);
	/* the list of the only id is walked, not counted */
	return cost->list + TAKEN_ROW * ((start[1] & ~LISTS_BITMAP) - start[0]);
}

/* Highest cost of the search by lists for any query of `len` ids */
static double
most_lists_cost(const way_costs *cost, const cpu_lists *lists, uint32_t len)
{
	double		lines = (double) (lists->nrows + LISTS_LINE_ROWS - 1) / LISTS_LINE_ROWS;
	double		bitmap = cost->line * lines;
	double		list = cost->number * (double) lists->longest;

	return lines * cost->rows + (cost->list + (bitmap > list ? bitmap : list)) * len;
}

/* Cost of a scan for each of nqueries queries */
static double
scan_cost(cpu_simd simd, const gpuvec_segment *segment, uint32_t nqueries)
{
	const way_costs *cost = &costs_of[simd];
	uint32_t	width = batch_widths[simd];
	bool		lone = nqueries <= lone_queries[simd];
	double		id = lone ? cost->lone_id : cost->batch_id * ((nqueries + width - 1) / width) / nqueries;

	return id * (double) gpuvec_segment_hot(segment) +
		(lone ? cost->lone_row : cost->batch_row) * segment->nrows;
}

/* True if lists cost the queries, sorted by length, less than a scan */
static bool
lists_cost_less(cpu_simd simd, const gpuvec_segment *segment, const cpu_lists *lists,
				const cpu_query *queries, uint32_t nqueries)
{
	const way_costs *cost = &costs_of[simd];
	double		scan = scan_cost(simd, segment, nqueries);
	uint32_t	step = nqueries > SAMPLE ? nqueries / SAMPLE : 1;
	uint32_t	n = 0;
	double		sum = 0;

	/* per query */
	if (most_lists_cost(cost, lists, gpuvec_query_len(queries[nqueries - 1].query)) < scan)
		return true;
	for (uint32_t q = step / 2; q < nqueries; q += step, n++)
		sum += lists_cost(cost, lists, queries[q].query);
	return sum / n < scan;
}

/*
 * What a batch by measures of sparse vectors costs, in scans for one query:
 * once, and for each query more
 */
#define SPARSE_SHARED	2.0
#define SPARSE_OWN		0.022

/*
 * True if counting nrows rows of a segment one by one costs less than a
 * search of the segment for one of nqueries queries.  A batch by measures of
 * sparse vectors scans nscanned rows.
 */
bool
gathering_costs_less(cpu_backend *cpu, const gpuvec_segment *segment, gpuvec_method method,
					 const cpu_query *query, uint32_t nqueries, uint32_t nscanned, uint32_t nrows)
{
	const cpu_lists *lists = segment_lists(segment);
	double		ids = (double) gpuvec_segment_hot(segment) / segment->nrows;
	double		cost = scan_cost(cpu->simd, segment, nqueries);

	if (query->scoring.sparse)
		cost = costs_of[cpu->simd].sparse_id * (double) gpuvec_segment_hot(segment) *
			(nqueries < SPARSE_BATCH_LEAST ? 1 :
			 (SPARSE_SHARED / nqueries + SPARSE_OWN) * nscanned / segment->nrows);
	else if (method != GPUVEC_METHOD_BITSET && lists)
	{
		double		by_lists = lists_cost(&costs_of[cpu->simd], lists, query->query);

		if (by_lists < cost || method != GPUVEC_METHOD_AUTO)
			cost = by_lists;
	}
	return nrows * (GATHERED_ROW + GATHERED_ID * ids) < cost;
}

cpu_way
choose_way(cpu_backend *cpu, const gpuvec_segment *segment, gpuvec_method method,
		   const cpu_query *queries, uint32_t nqueries)
{
	const cpu_lists *lists = segment_lists(segment);

	/* lists know no values, and nothing of what sums need */
	if (queries[0].scoring.sparse)
		return CPU_SPARSE;
	if (method != GPUVEC_METHOD_BITSET && lists &&
		(method == GPUVEC_METHOD_INVERTED || method == GPUVEC_METHOD_READY_LISTS ||
		 lists_cost_less(cpu->simd, segment, lists, queries, nqueries)))
		return CPU_LISTS;
	return nqueries <= lone_queries[cpu->simd] ? CPU_LONE : CPU_BATCH;
}
