/*-------------------------------------------------------------------------
 *
 * warning.c
 *	  Warns users that the session does without the engine.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "link/engine_link.h"

/* A hint for a refusal */
static const char *
refusal_hint(const GpuvecRefusal *refusal)
{
	if (refusal->hint[0] != '\0')
		return refusal->hint;
	if (refusal->sqlerrcode == ERRCODE_OUT_OF_MEMORY)
		return "Check gpuvec.device_memory, and what memory is left.";
	return "See the server log for messages of the gpuvec engine.";
}

/* Warn once per session that the engine refuses something */
static void
warn_refusal(const GpuvecRefusal *refusal)
{
	static bool warned = false;

	if (warned)
		return;
	warned = true;
	ereport(WARNING,
			(errmsg("gpuvec searches without its engine"),
			 errdetail("The engine cannot serve this: %s.%s%s", refusal->message,
					   refusal->detail[0] ? " " : "", refusal->detail),
			 errhint("Answers are the same but slow. %s", refusal_hint(refusal))));
}

void
GpuvecLinkWarn(const char *reason)
{
	static bool warned = false;

	if (GpuvecLinkRefusal() != NULL)
	{
		warn_refusal(GpuvecLinkRefusal());
		return;
	}
	if (warned)
		return;
	warned = true;
	ereport(WARNING,
			(errmsg("gpuvec searches without its engine"),
			 errdetail("The engine cannot be used: %s.", reason),
			 errhint("Answers are the same but slow. See the server log for messages of the gpuvec engine.")));
}
