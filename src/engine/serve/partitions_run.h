/*-------------------------------------------------------------------------
 *
 * partitions_run.h
 *	  A search of several mirrors that is running.
 *
 * serve_partitions.c	the request, and its answer
 * partitions_search.c	the search
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PARTITIONS_RUN_H
#define GPUVEC_PARTITIONS_RUN_H

#include "engine/serve/search_run.h"
#include "engine/sets/compound.h"

/* Rows of a query; a tid has the number of its partition */
typedef struct found_rows
{
	gpuvec_match *rows;			/* in found_all.rows */
	uint32_t	n;
	uint32_t	ways;			/* gpuvec_way_bit() of how they were found */
} found_rows;

typedef struct partitions_run
{
	gpuvec_search_partitions head;
	const gpuvec_search_partition *wire;	/* [head.npartitions] as the
											 * session sent them */
	gpuvec_sets_reader *mirrors;	/* [head.npartitions] */
	uint32_t	nopen;			/* mirrors that are searched */
	gpuvec_compound_rows compound;	/* rows that take the place ... */
	bool	   *covered;		/* [head.npartitions] ... of those of these
								 * mirrors */
	bool		shared;			/* others may search the same */
	gpuvec_view *joint;			/* of the compound and of mirrors that are not
								 * covered; or NULL */
	search_run	q;				/* the queries; searches of one partition */
	gpuvec_topk_query *plain;	/* [nqueries] with ids, not numbers */
	gpuvec_match *rows;			/* of all queries */
	found_rows *found;			/* [nqueries] */
	gpuvec_match *some;			/* room for the rows of one partition, and to
								 * merge */
} partitions_run;

/*
 * Search the partitions that are open, of which there are some: sets
 * run->found.  Whoever has made the run frees what it has then.
 */
extern bool gpuvec_partitions_search(gpuvec_session *s, partitions_run *run, gpuvec_error *error);

#endif							/* GPUVEC_PARTITIONS_RUN_H */
