/*-------------------------------------------------------------------------
 *
 * gpuvec.c
 *	  Initializes the module when the library is loaded.
 *
 * Loading the library must never fail, whatever the state of the GPUs and the
 * engine: pg_dump, pg_upgrade and the server's start load it.  So nothing
 * here talks to the engine.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "embedding/embedding_table.h"
#include "fmgr.h"
#include "index/entry_queue.h"
#include "index/index_am.h"
#include "link/faults.h"
#include "link/supervisor.h"
#include "mirror/describe/costs.h"
#include "mirror/describe/refreshing.h"
#include "mirror/feed/feed.h"
#include "mirror/feed/feed_queue.h"
#include "mirror/feed/feeder_state.h"
#include "mirror/prewarm/autoprewarm.h"
#include "miscadmin.h"
#include "recommend/recommend.h"
#include "search/set_function.h"
#include "utils/guc.h"

PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

/*
 * A cancel waits until all is done, for what has been defined cannot be
 * defined again: the session could not use the library any more.  (A warning
 * about a setting of another name would let it through.)
 */
void
_PG_init(void)
{
	HOLD_INTERRUPTS();
	GpuvecDefineSettings();
	GpuvecDefineTestSettings();
	GpuvecDefineFaults();
	MarkGUCPrefixReserved("gpuvec");

	FeedInit();
	FeedQueueInit();
	FeederInit();
	CostsInit();
	RefreshingInit();
	EmbeddingInit();
	RecommendInit();
	SetFunctionsAdd(TopKFunctions);
	SetFunctionsAdd(OverlapFunctions);
	SetScanInit();
	GpuvecComparisonsInit();
	GpuvecOrdersInit();
	GpuvecExplainInit();
	GpuvecJoinedInit();
	EntryQueueInit();

	/*
	 * registers the shared memory, so every module must have asked for its
	 * part
	 */
	if (process_shared_preload_libraries_in_progress && !IsBinaryUpgrade)
	{
		GpuvecRegisterSupervisor();
		if (gpuvec_autoprewarm)
			AutoprewarmRegister();
	}
	RESUME_INTERRUPTS();
}
