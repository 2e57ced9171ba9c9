/*-------------------------------------------------------------------------
 *
 * among.c
 *	  Search among given rows of a table.
 *
 * There are two ways to find the k best of n given rows in a table of N rows.
 * Their answers are the same:
 *
 *	fetch	get each given row from the table, and rank it in this session;
 *	filter	let the engine rank the whole table, and keep given rows only.
 *
 * If the given rows are chosen independently of the query, n/N of the
 * engine's rows are given ones.  So filtering looks at about k N/n rows.
 *
 * Fetching suits few given rows, filtering many.  Fetching also costs more
 * with each query.  The costs of both ways are estimated, and the cheaper way
 * is taken.
 *
 * Given rows may be rarer among the best rows than estimated: they may be
 * just the rows that have little in common with the query.  So filtering
 * abandons a query once it has looked at as many rows as fetching could have
 * fetched in the same time.  Abandoned queries are done by fetching.  A wrong
 * estimate thus costs at most about twice the time.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/tableam.h"
#include "link/engine_link.h"
#include "search/set_search.h"

/*
 * Costs in microseconds, measured with the engine on the CPU and a million
 * rows of 51 ids each
 */
#define FETCH_ROW		1.0		/* fetch a row by its tid */
#define RANK_ROW		0.25	/* rank a fetched row for one query */
#define ASK_ENGINE		100.0	/* one request to the engine */
#define ENGINE_ROW		0.0003	/* rank a row of the table for one query */
#define LOOK_AT_ROW		1.0		/* order, send and look up a row of the answer */
#define LOAD_ROW		0.5		/* load a row into a private mirror */

/* Assumed number of rows that reach min_score */
#define ROWS_ABOVE		1000

/* At most this many rows are fetched without an estimate */
#define FETCH_ROWS		64

/* An estimate; costs are in microseconds */
typedef struct AmongCost
{
	double		rows;			/* rows of the table */
	double		queries;
	double		fetch;			/* cost of fetching all rows (of an index, all
								 * that it keeps), and ranking them for all
								 * queries */
	double		filter;
} AmongCost;

/* Estimate the costs of both ways, and set search->share */
static void
estimate(MirrorTarget *target, MirrorSearch *search, AmongCost *cost)
{
	BlockNumber pages;
	double		allvisfrac;
	double		looked;

	cost->queries = 0;
	for (uint32 i = 0; i < search->nqueries; i++)
		if (!search->queries[i].skip)
			cost->queries++;
	table_relation_estimate_size(target->rel, NULL, &pages, &cost->rows, &allvisfrac);
	cost->rows = Max(cost->rows, (double) search->among->n);
	search->share = search->among->n / cost->rows;
	cost->fetch = (target->key.index != 0 ? cost->rows : search->among->n) *
		(FETCH_ROW + RANK_ROW * cost->queries);
	looked = cost->rows;
	if (search->k != UINT64_MAX)
		looked = Min(looked, MirrorRowsToLookAt(search, search->k));
	if (search->has_min_score)
		looked = Min(looked, ROWS_ABOVE);
	cost->filter = ASK_ENGINE + cost->queries * (cost->rows * ENGINE_ROW + looked * LOOK_AT_ROW);
	if (target->mode == MIRROR_PRIVATE)
		cost->filter += cost->rows * LOAD_ROW;
}

/* Answer abandoned queries by fetching */
static void
fetch_abandoned(MirrorTarget *target, MirrorSearch *search)
{
	MirrorSearch rest = *search;
	uint32	   *which = palloc_array(uint32, search->nqueries);

	rest.queries = palloc_array(MirrorQuery, search->nqueries);
	rest.nqueries = 0;
	for (uint32 i = 0; i < search->nqueries; i++)
		if (search->queries[i].abandoned)
		{
			which[rest.nqueries] = i;
			rest.queries[rest.nqueries++] = search->queries[i];
		}
	if (rest.nqueries == 0)
		return;
	LocalTopKAmong(target, &rest);
	for (uint32 i = 0; i < rest.nqueries; i++)
		search->queries[which[i]] = rest.queries[i];
}

/* Find the k best of the rows in search->among, for all queries */
void
AmongTopK(MirrorTarget *target, MirrorSearch *search)
{
	const char *reason = NULL;
	AmongCost	cost;

	if (target->mode == MIRROR_NONE || (target->key.index == 0 && search->among->n <= FETCH_ROWS))
	{
		LocalTopKAmong(target, search);
		return;
	}
	estimate(target, search, &cost);
	if (cost.fetch <= cost.filter)
	{
		LocalTopKAmong(target, search);
		return;
	}
	search->max_looked = (uint64) (cost.fetch / Max(cost.queries, 1) / LOOK_AT_ROW) + 1;
	if (MirrorTopK(target, search, &reason))
	{
		fetch_abandoned(target, search);
		return;
	}
	GpuvecLinkWarn(reason);
	LocalTopKAmong(target, search);
}
