/*-------------------------------------------------------------------------
 *
 * search_request.h
 *	  A search of sets as it goes to the engine, and its answer.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SEARCH_REQUEST_H
#define GPUVEC_SEARCH_REQUEST_H

#include "mirror/ask/conversation.h"
#include "mirror/ask/search_answer.h"

/* Most hits of one answer */
#define MIRROR_ANSWER_HITS		(4 * 1024 * 1024)

/*
 * Ids and filters of one request, in bytes, if it has several queries.  The
 * engine has a request in memory several times.
 */
#define MIRROR_REQUEST_BYTES	((Size) 8 * 1024 * 1024)

/* Number of rows to ask for first, if there is no k */
#define MIRROR_FIRST_ALL_ROWS	GPUVEC_FIRST_ROWS

/* A request for the queries of a search that need more rows */
typedef struct MirrorSearchRequest
{
	MirrorRequest wire;			/* points to what follows: do not move the
								 * struct */
	gpuvec_search head;
	gpuvec_search_weights weights;	/* of tversky: sent with the head */
	gpuvec_query *queries;		/* [n], palloc'd */
	float	   *values;			/* [nvalues], of all queries; palloc'd */
	uint16	   *ids;			/* [nids], of all queries, two for each id of
								 * a wide one; palloc'd */
	char	   *filters;		/* [head.filter_bytes] of all queries, or
								 * NULL; palloc'd */
	MirrorQuery **whose;		/* [n], palloc'd: the search's queries */
	uint32		n;
	uint64		nids;
	uint64		nvalues;
	MirrorQuestion *questions;	/* [n], palloc'd */
} MirrorSearchRequest;

/*
 * Ask for rows for those of the queries [first, last) that are not done;
 * there is at least one.  `page`: the number of rows to ask for if the search
 * has no k.  False: the connection was lost, or the engine refused.
 */
extern bool MirrorSearchAsk(MirrorConversation *conversation, MirrorSearch *search, uint32 first,
							uint32 last, uint32 page, MirrorSearchRequest *request,
							MirrorSearchAnswer *answer);

/*
 * The end of the queries from `first` on that one request has: at least one,
 * and no more than have MIRROR_ANSWER_HITS hits together, of `rows` each, and
 * MIRROR_REQUEST_BYTES
 */
extern uint32 MirrorSearchGroup(const MirrorSearch *search, uint32 first, uint64 rows);

/*
 * The queries [first, last) of a search that are not done, with their ids and
 * filters, as they go into a request.  Sets all of *request but wire, and of
 * its head what tells their number.
 */
extern void MirrorSearchQueries(MirrorSearchRequest *request, MirrorSearch *search, uint32 first,
								uint32 last, uint32 page);

/*
 * answer_pages.c: take the rows of an answer by pages.  The query has all of
 * its rows then; they lie in the answer.
 */
extern void MirrorTakePages(const MirrorSearchRequest *request, const MirrorSearchAnswer *answer,
							const MirrorSearch *search, MirrorVisibility *visibility);

#endif							/* GPUVEC_SEARCH_REQUEST_H */
