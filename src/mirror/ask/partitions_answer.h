/*-------------------------------------------------------------------------
 *
 * partitions_answer.h
 *	  The mirrors of several relations, searched by one request: its answer.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PARTITIONS_ANSWER_H
#define GPUVEC_PARTITIONS_ANSWER_H

#include "mirror/ask/conversation.h"
#include "mirror/ask/search_partitions.h"
#include "mirror/ask/search_request.h"

/* Where a query's rows end */
typedef struct PartitionsCut
{
	uint64		first;			/* index of the query's first row */
	uint64		n;				/* rows of all partitions */
	bool		is_cut;			/* as many as were asked for */
	MirrorHit	last;			/* the last row, ... */
	int			target;			/* ... and where it is from */
} PartitionsCut;

/* The mirror of a target */
typedef struct Partition
{
	MirrorConversation conversation;
	bool		open;			/* the conversation is */
	bool		known;			/* the answer counts */
	bool		laid_over;		/* rows were laid over it */
	gpuvec_result head;
	uint32		nhits;
	MirrorHit  *hits;			/* [nhits] its rows, query by query, ... */
	uint32	   *queries;		/* [nhits] ... and the query of each, as they
								 * are numbered in the request; set by
								 * deal_rows() */
} Partition;

struct MirrorPartitions
{
	MemoryContext context;		/* all of it lives here */
	Partition  *partitions;		/* [ntargets] */
	int			ntargets;
	int			nopen;			/* partitions that are to be searched */
	MirrorSearchRequest request;
	gpuvec_search_partitions head;
	gpuvec_search_weights weights;	/* of tversky: sent with the head */
	gpuvec_search_partition *wire;	/* [head.npartitions] */
	int		   *whose;			/* [head.npartitions] their targets */

	/* the answer, in the order of the rows */
	PartitionsCut *cuts;		/* [request.n] */
	uint64		nhits;
	MirrorHit  *hits;			/* [nhits] */
	const char *numbers_of;		/* uint16 [nhits]: indexes of whose[] */
	bool		dealt;			/* partitions have their rows */

	uint32	   *numbers;		/* [search->nqueries] of queries in the
								 * request */
	uint32	   *sent;			/* [request.n] where these queries are in the
								 * search */
};

/* A query of the search that was not sent */
#define NOT_SENT	PG_UINT32_MAX

/* Read an answer, and take what it says of each partition */
extern void PartitionsTakeAnswer(MirrorPartitions *partitions, MirrorSearch *search,
								 const GpuvecReply *reply);

/* End the conversation about a partition, if it is open */
extern void PartitionClose(Partition *partition);

#endif							/* GPUVEC_PARTITIONS_ANSWER_H */
