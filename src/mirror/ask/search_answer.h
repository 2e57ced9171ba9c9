/*-------------------------------------------------------------------------
 *
 * search_answer.h
 *	  The form of an answer to a search of sets.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SEARCH_ANSWER_H
#define GPUVEC_SEARCH_ANSWER_H

#include "link/engine_link.h"
#include "mirror/describe/mirror.h"

/* An answer; all but the head lies in the message */
typedef struct MirrorSearchAnswer
{
	GpuvecReply reply;			/* the message, in the search's context */
	gpuvec_result head;
	const char *counts;			/* uint32 [head.nqueries]: hits of a query */
	const char *passed;			/* uint64 [head.npassed] */
	MirrorHit  *hits;			/* [head.nhits], query by query; if
								 * head.page_bytes is not 0, rows by pages lie
								 * here instead */
	const uint64 *groups;		/* [head.group_bytes / 8] of rows that are
								 * counted */
} MirrorSearchAnswer;

/* Read answer->reply (GPUVEC_MSG_RESULT); a malformed one is an error */
extern void MirrorSearchAnswerRead(MirrorSearchAnswer *answer);

/*
 * Bytes of an answer to `nqueries` queries, with `nhits` hits in all, and with
 * `npassed` counts of rows that pass
 */
extern Size MirrorSearchAnswerBytes(uint32 nqueries, uint64 npassed, uint64 nhits);

/*
 * The number of rows that a query was asked for, given the number of its
 * hits: see GPUVEC_FIRST_ROWS
 */
static inline uint32
MirrorRowsAsked(const gpuvec_query *sent, uint32 hits)
{
	return sent->k == GPUVEC_ALL_ROWS && hits == GPUVEC_FIRST_ROWS ? hits : sent->k;
}

/* Number of hits of the request's query number `query` */
static inline uint32
MirrorSearchAnswerHits(const MirrorSearchAnswer *answer, uint32 query)
{
	uint32		n;

	memcpy(&n, answer->counts + query * sizeof(n), sizeof(n));
	return n;
}

/* What is said of its filter, as in gpuvec_result */
static inline uint64
MirrorSearchAnswerPassed(const MirrorSearchAnswer *answer, uint32 query)
{
	uint64		n = GPUVEC_NOT_COUNTED;

	if (query < answer->head.npassed)
		memcpy(&n, answer->passed + query * sizeof(n), sizeof(n));
	return n;
}

#endif							/* GPUVEC_SEARCH_ANSWER_H */
