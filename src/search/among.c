/*-------------------------------------------------------------------------
 *
 * among.c
 *	  Searching among given rows of a table.
 *
 * There are two ways to the k best of n given rows in a table of N, and the
 * answer is the same:
 *
 *	fetch	get each of them from the table, and rank it here;
 *	filter	let the engine rank the whole table, and keep what is among them;
 *			of rows
 *			chosen independently of the query one in N/n is, so about k N/n
 *			rows have
 *			to be looked at.
 *
 * So fetching suits few rows and filtering many; fetching costs the more, the
 * more queries there are, too.  What is cheaper is estimated.  If the given
 * rows are rarer among the best than supposed (they may be just those that
 * have little in common with the query) a query is abandoned that had to look
 * at as many rows as could have been fetched in the same time, and those
 * queries are done by fetching, so a wrong estimate costs no more than about
 * twice the time.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/tableam.h"
#include "link/engine_link.h"
#include "search/set_search.h"

/*
 * Microseconds, as measured with the engine on the CPU and a million rows of
 * 51 ids
 */
#define FETCH_ROW		1.0		/* fetch a row by its tid, */
#define RANK_ROW		0.25	/* and rank it for one query */
#define ASK_ENGINE		100.0	/* a request */
#define ENGINE_ROW		0.0003	/* one query, by rows of the table */
#define LOOK_AT_ROW		1.0		/* order it, send it, look it up */
#define LOAD_ROW		0.5		/* load a row for this call alone */

/* Rows that have a least score, supposedly */
#define ROWS_ABOVE		1000

/* Rows that are fetched without further ado */
#define FETCH_ROWS		64

/* What is known before */
typedef struct AmongCost
{
	double		rows;			/* of the table */
	double		queries;
	double		fetch;			/* all rows, for all queries */
	double		filter;
} AmongCost;

/* Estimate both ways */
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
	cost->fetch = search->among->n * (FETCH_ROW + RANK_ROW * cost->queries);
	looked = cost->rows;
	if (search->k != UINT64_MAX)
		looked = Min(looked, MirrorRowsToLookAt(search, search->k));
	if (search->has_min_score)
		looked = Min(looked, ROWS_ABOVE);
	cost->filter = ASK_ENGINE + cost->queries * (cost->rows * ENGINE_ROW + looked * LOOK_AT_ROW);
	if (target->mode == MIRROR_PRIVATE)
		cost->filter += cost->rows * LOAD_ROW;
}

/* Do queries that were abandoned, by fetching */
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

/* The k best of the rows in search->among, for all queries */
void
AmongTopK(MirrorTarget *target, MirrorSearch *search)
{
	const char *reason = NULL;
	AmongCost	cost;

	if (target->mode == MIRROR_NONE || search->among->n <= FETCH_ROWS)
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
