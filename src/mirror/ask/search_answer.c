/*-------------------------------------------------------------------------
 *
 * search_answer.c
 *	  The form of an answer to a search of sets.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "mirror/ask/search_answer.h"

Size
MirrorSearchAnswerBytes(uint32 nqueries, uint64 npassed, uint64 nhits)
{
	return sizeof(gpuvec_result) + MAXALIGN64((uint64) nqueries * sizeof(uint32)) +
		npassed * sizeof(uint64) + nhits * sizeof(gpuvec_hit);
}

void
MirrorSearchAnswerRead(MirrorSearchAnswer *answer)
{
	const GpuvecReply *reply = &answer->reply;

	memcpy(&answer->head, reply->data, sizeof(gpuvec_result));
	if ((answer->head.npassed != 0 && answer->head.npassed != answer->head.nqueries) ||
		answer->head.page_bytes > reply->length || answer->head.group_bytes > reply->length ||
		reply->length - answer->head.page_bytes - answer->head.group_bytes !=
		MirrorSearchAnswerBytes(answer->head.nqueries, answer->head.npassed,
								answer->head.page_bytes > 0 ? 0 : answer->head.nhits))
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("invalid message from the gpuvec engine")));
	answer->counts = reply->data + sizeof(gpuvec_result);
	answer->passed = reply->data + MirrorSearchAnswerBytes(answer->head.nqueries, 0, 0);
	answer->hits = (MirrorHit *) (answer->passed + answer->head.npassed * sizeof(uint64));
	answer->groups = (const uint64 *) answer->hits;
	if (answer->head.page_bytes > 0)
		answer->hits = (MirrorHit *) ((const char *) answer->groups + answer->head.group_bytes);
	else
		answer->groups += answer->head.nhits * (sizeof(MirrorHit) / sizeof(uint64));
}
