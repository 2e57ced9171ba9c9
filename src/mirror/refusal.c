/*-------------------------------------------------------------------------
 *
 * refusal.c
 *	  When the engine cannot serve a request, or make or keep a mirror.
 *
 * That is no error of a statement: the session scans the table itself, and
 * the answer is the same.  Everything below says so by returning false, and
 * GpuvecLinkRefusal() tells why.  There are refusals of a request (no memory
 * for its answer, say), which concern nobody else, and refusals of a mirror:
 * it does not fit, somebody keeps others from refreshing it, or engines die
 * of it.  These are noted in shared memory (facts.c), and while they stand
 * nobody tries again, whatever the mirror is needed for.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "link/engine_link.h"
#include "mirror/facts.h"
#include "mirror/mirror.h"
#include "utils/timestamp.h"

/* What the engine said last of a mirror, in short */
static void
refuse_again(const MirrorTarget *target, int sqlerrcode)
{
	char		message[128];

	snprintf(message, sizeof(message), sqlerrcode == ERRCODE_OUT_OF_MEMORY ?
			 "there was no memory for its copy of relation \"%s\" a moment ago" :
			 "it could not serve relation \"%s\" a moment ago",
			 RelationGetRelationName(target->rel));
	GpuvecLinkRefuse(sqlerrcode, message, "", "");
}

/*
 * May this session load or refresh the mirror?  If not, that is a refusal.
 * Asked before and after waiting for others, with the same *claim, which is 0
 * at first.
 */
bool
MirrorMayTry(const MirrorTarget *target, TimestampTz *claim)
{
	int			sqlerrcode = 0;

	if (FactsMayTry(&target->key, claim, &sqlerrcode))
		return true;
	refuse_again(target, sqlerrcode);
	return false;
}

/*
 * The engine has refused to load or refresh the mirror, which was begun then
 */
void
MirrorNoteRefusal(const MirrorTarget *target, TimestampTz began)
{
	FactsNoteRefusal(&target->key, GpuvecLinkRefusal()->sqlerrcode, false, began);
}

/* Somebody who does not finish has kept us from refreshing the mirror */
void
MirrorRefuseBusy(const MirrorTarget *target)
{
	GpuvecLinkRefuse(ERRCODE_OBJECT_IN_USE,
					 "the mirror is being loaded or refreshed by a session that does not finish", "", "");
	MirrorNoteRefusal(target, GetCurrentTimestamp());
}

/* The mirror does not stay for as long as one request takes */
void
MirrorRefuseEvicted(const MirrorTarget *target)
{
	char		message[128];

	snprintf(message, sizeof(message), "the mirror of relation \"%s\" is evicted before it can be searched",
			 RelationGetRelationName(target->rel));
	GpuvecLinkRefuse(ERRCODE_INSUFFICIENT_RESOURCES, message, "", "Increase gpuvec.device_memory.");
	MirrorNoteRefusal(target, GetCurrentTimestamp());
}

/* The engine died twice of a request.  The next one may as well. */
void
MirrorRefuseLost(const MirrorTarget *target, const char **reason)
{
	GpuvecLinkRefuse(ERRCODE_CONNECTION_FAILURE, "lost the connection to the gpuvec engine",
					 "It was lost twice while it worked on this request.",
					 "See the server log for what the engine said.");
	FactsNoteRefusal(&target->key, ERRCODE_CONNECTION_FAILURE, true, GetCurrentTimestamp());
	*reason = GpuvecLinkRefusal()->message;
}

/*
 * Was it a refusal that made a call fail?  Otherwise the connection was lost.
 */
bool
MirrorRefused(const char **reason)
{
	const GpuvecRefusal *refusal = GpuvecLinkRefusal();

	if (refusal == NULL)
		return false;
	*reason = refusal->message;
	return true;
}
