/*-------------------------------------------------------------------------
 *
 * refusal.c
 *	  When the engine cannot serve a request, or make or keep a mirror.
 *
 * A refusal is no error of a statement: the session scans the table itself,
 * with the same answer.  Functions report a refusal by returning false, and
 * GpuvecLinkRefusal() tells why.  A refusal of a request (no memory for its
 * answer, say) concerns no other session.  A refusal of a mirror does: the
 * mirror does not fit, the engine has no way to search its ids, a session
 * keeps others from refreshing it, or engines die of it.  Such a refusal is
 * noted in shared memory (costs.c).  While it stands no session tries again,
 * whatever it needs the mirror for.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "core/clock.h"
#include "link/engine_link.h"
#include "mirror/describe/costs.h"
#include "mirror/describe/mirror.h"

/* Repeat in short what the engine last said of a mirror */
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
 * True if this session may load or refresh the mirror; if not, that is a
 * refusal.  Called before and after waiting for other sessions, with the same
 * *claim, which is 0 at first.
 */
bool
MirrorMayTry(const MirrorTarget *target, int64 *claim)
{
	int			sqlerrcode = 0;

	if (CostsMayTry(&target->key, claim, &sqlerrcode))
		return true;
	refuse_again(target, sqlerrcode);
	return false;
}

/*
 * The engine has refused an attempt to load or refresh the mirror, which
 * began at `began` (of gpuvec_clock_us())
 */
void
MirrorNoteRefusal(const MirrorTarget *target, int64 began)
{
	CostsNoteRefusal(&target->key, GpuvecLinkRefusal()->sqlerrcode, false, began);
}

/* A session that does not finish has kept us from refreshing the mirror */
void
MirrorRefuseBusy(const MirrorTarget *target)
{
	GpuvecLinkRefuse(ERRCODE_OBJECT_IN_USE,
					 "the mirror is being loaded or refreshed by a session that does not finish", "", "");
	MirrorNoteRefusal(target, gpuvec_clock_us());
}

/*
 * A session that makes no step keeps us from loading or refreshing the
 * mirror.  That concerns nobody else: others may take it over.
 */
void
MirrorRefuseStalled(const MirrorTarget *target)
{
	char		message[128];

	snprintf(message, sizeof(message), "relation \"%s\" is being loaded or refreshed by a session that makes no step",
			 RelationGetRelationName(target->rel));
	GpuvecLinkRefuse(ERRCODE_OBJECT_IN_USE, message, "", "");
}

/* The mirror is evicted before a request can search it */
void
MirrorRefuseEvicted(const MirrorTarget *target)
{
	char		message[128];

	snprintf(message, sizeof(message), "the mirror of relation \"%s\" is evicted before it can be searched",
			 RelationGetRelationName(target->rel));
	GpuvecLinkRefuse(ERRCODE_INSUFFICIENT_RESOURCES, message, "", "Increase gpuvec.device_memory.");
	MirrorNoteRefusal(target, gpuvec_clock_us());
}

/* The engine died twice of a request, and the next one may as well */
void
MirrorRefuseLost(const MirrorTarget *target, const char **reason)
{
	GpuvecLinkRefuse(ERRCODE_CONNECTION_FAILURE, "lost the connection to the gpuvec engine",
					 "It was lost twice while it worked on this request.",
					 "See the server log for what the engine said.");
	CostsNoteRefusal(&target->key, ERRCODE_CONNECTION_FAILURE, true, gpuvec_clock_us());
	*reason = GpuvecLinkRefusal()->message;
}

/*
 * True if a call failed because of a refusal; otherwise the connection was
 * lost
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
