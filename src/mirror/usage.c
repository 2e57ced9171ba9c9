/*-------------------------------------------------------------------------
 *
 * usage.c
 *	  What this process has had the engine do, for EXPLAIN ANALYZE.
 *
 * Searches count into one struct, as the server counts its buffers.  A plan
 * node keeps the difference between before and after its work.  The engine
 * chooses a method by itself, for a batch of several sessions, and does not
 * tell which.  But if rows without a common id were ranked for a query that
 * asked for these, all rows that pass its filter were gathered, and counted
 * one by one.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "commands/explain.h"
#include "core/protocol.h"
#include "link/engine_link.h"
#include "mirror/usage.h"

MirrorUsage MirrorUsed;

void
MirrorUsageAdd(MirrorUsage *used, const MirrorUsage *before)
{
	used->requests += MirrorUsed.requests - before->requests;
	used->rows += MirrorUsed.rows - before->rows;
	used->filtered += MirrorUsed.filtered - before->filtered;
	used->passed += MirrorUsed.passed - before->passed;
	used->gathered += MirrorUsed.gathered - before->gathered;
	used->engine_us += MirrorUsed.engine_us - before->engine_us;
	used->loads += MirrorUsed.loads - before->loads;
	used->waits += MirrorUsed.waits - before->waits;
}

/* Show what the engine runs on; nothing if it cannot be asked */
static void
explain_device(ExplainState *es)
{
	GpuvecReply reply;
	const char *reason;
	gpuvec_engine_info info;

	if (GpuvecLinkOpen(false, &reason) != GPUVEC_LINK_READY ||
		!GpuvecLinkCall(GPUVEC_MSG_ENGINE, NULL, 0, GPUVEC_MSG_ENGINE_INFO, sizeof(info), &reply))
		return;
	memcpy(&info, reply.data, sizeof(info));
	pfree(reply.data);
	ExplainPropertyText("Engine", psprintf("%.*s, %.*s", (int) sizeof(info.backend), info.backend,
										   (int) sizeof(info.device), info.device), es);
}

void
MirrorUsageExplain(const MirrorUsage *used, ExplainState *es)
{
	ExplainPropertyUInteger("Engine Requests", NULL, used->requests, es);
	if (used->requests == 0)
		return;
	if (used->rows > 0)
		ExplainPropertyUInteger("Rows Ranked", NULL, used->rows, es);
	if (used->filtered > 0)
	{
		ExplainPropertyUInteger("Rows Passing Filter", NULL, used->passed, es);
		ExplainPropertyUInteger("Filters Gathered", NULL, used->gathered, es);
	}
	if (used->loads > 0)
		ExplainPropertyUInteger("Copies Loaded", NULL, used->loads, es);
	if (used->waits > used->loads)
		ExplainPropertyUInteger("Waits for Changes", NULL, used->waits, es);
	if (!es->timing)
		return;
	ExplainPropertyFloat("Engine Time", "ms", (double) used->engine_us / 1000, 3, es);
	explain_device(es);
}
