/*-------------------------------------------------------------------------
 *
 * gpuvec.c
 *	  Module initialisation.
 *
 * Loading the library must never fail, whatever the state of GPUs and engine:
 * pg_dump, pg_upgrade and the server's start depend on it.  Nothing here
 * talks to the engine.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "embedding/embedding_table.h"
#include "fmgr.h"
#include "index/entry_queue.h"
#include "link/faults.h"
#include "link/supervisor.h"
#include "mirror/autoprewarm.h"
#include "mirror/facts.h"
#include "mirror/feed.h"
#include "miscadmin.h"
#include "search/set_function.h"
#include "utils/guc.h"

PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	GpuvecDefineSettings();
	GpuvecDefineTestSettings();
	GpuvecDefineFaults();
	MarkGUCPrefixReserved("gpuvec");

	FeedInit();
	FactsInit();
	EmbeddingInit();
	SetScanInit();
	EntryQueueInit();

	/* by now all parts of the shared memory have been asked for */
	if (process_shared_preload_libraries_in_progress && !IsBinaryUpgrade)
	{
		GpuvecRegisterSupervisor();
		if (gpuvec_autoprewarm)
			AutoprewarmRegister();
	}
}
