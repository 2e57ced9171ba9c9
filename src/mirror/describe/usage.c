/*-------------------------------------------------------------------------
 *
 * usage.c
 *	  What this process has had the engine do, for EXPLAIN ANALYZE.
 *
 * Searches count into one struct, as the server counts its buffers.  A plan
 * node keeps the difference between before and after its work.  The engine
 * chooses a method for each of its segments, and tells which it has used for
 * a query.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "commands/explain.h"
#include "core/protocol_monitor.h"
#include "link/engine_link.h"
#include "mirror/describe/usage.h"

MirrorUsage MirrorUsed;

void
MirrorUsageAdd(MirrorUsage *used, const MirrorUsage *before)
{
	used->requests += MirrorUsed.requests - before->requests;
	used->rows += MirrorUsed.rows - before->rows;
	used->filtered += MirrorUsed.filtered - before->filtered;
	used->passed += MirrorUsed.passed - before->passed;
	for (int i = 0; i < GPUVEC_N_WAYS; i++)
		used->ways[i] += MirrorUsed.ways[i] - before->ways[i];
	used->unproven += MirrorUsed.unproven - before->unproven;
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
MirrorUsageWays(const uint32 *ways)
{
	for (int i = 0; i < GPUVEC_N_WAYS; i++)
		MirrorUsed.ways[i] += ways[i];
}

/* Show how many queries were searched in which way */
static void
explain_ways(const MirrorUsage *used, ExplainState *es)
{
	static const char *const names[] = {"scan", "lists", "bit vectors", "gathering"};
	StringInfoData text;

	StaticAssertStmt(lengthof(names) == GPUVEC_N_WAYS, "each way has a name");
	initStringInfo(&text);
	for (int i = 0; i < GPUVEC_N_WAYS; i++)
		if (used->ways[i] > 0)
			appendStringInfo(&text, "%s%s " UINT64_FORMAT, text.len > 0 ? ", " : "", names[i],
							 used->ways[i]);
	if (text.len > 0)
		ExplainPropertyText("Methods", text.data, es);
	pfree(text.data);
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
		ExplainPropertyUInteger("Rows Passing Filter", NULL, used->passed, es);
	explain_ways(used, es);
	if (used->unproven > 0)
		ExplainPropertyUInteger("Rows Not Proven", NULL, used->unproven, es);
	if (used->loads > 0)
		ExplainPropertyUInteger("Copies Loaded", NULL, used->loads, es);
	if (used->waits > used->loads)
		ExplainPropertyUInteger("Waits for Changes", NULL, used->waits, es);
	if (!es->timing)
		return;
	ExplainPropertyFloat("Engine Time", "ms", (double) used->engine_us / 1000, 3, es);
	explain_device(es);
}
